//! From the samples of a component to a row of the image, and from components to colours.
//!
//! A component with half the samples along an axis is interpolated as the standard of ImageDecoder
//! says it: the centres of the new samples are a quarter and three quarters of the way between the
//! old ones, and halves are rounded up and down in turns. Any other whole ratio repeats samples.

/// The samples of a component.
pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    /// From row to row.
    pub(super) stride: usize,
    /// How many of the samples are of the image: the rest fills up blocks.
    pub(super) width: usize,
    pub(super) height: usize,
    /// How many samples of the image one sample stands for, along each axis.
    pub(super) across: usize,
    pub(super) down: usize,
}

impl Plane {
    fn line(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..][..self.width]
    }

    /// How long the rows are that [`Plane::row`] gives.
    pub(super) fn row_len(&self) -> usize {
        self.width * self.across
    }

    /// One row of the image.
    pub(super) fn row(&self, y: usize, out: &mut [u8]) {
        // Of a component of one or two columns libjpeg repeats samples, but for the rows.
        let is_smooth = self.across == 1 || self.across == 2 && self.width > 2;
        match (self.across, self.down) {
            (1, 2) | (2, 2) if is_smooth => {
                let near = self.line(y / 2);
                // The first and the last row have no neighbour but themselves.
                let is_even = y.is_multiple_of(2);
                let far = if is_even { (y / 2).saturating_sub(1) } else { y / 2 + 1 };
                let far = self.line(far.min(self.height - 1));
                if self.across == 1 {
                    let half = if is_even { 1 } else { 2 };
                    let pairs = near.iter().zip(far);
                    for (out, (near, far)) in out.iter_mut().zip(pairs) {
                        *out = ((3 * u32::from(*near) + u32::from(*far) + half) >> 2) as u8;
                    }
                } else {
                    let sum = |x: usize| 3 * u32::from(near[x]) + u32::from(far[x]);
                    doubled(self.width, sum, (8, 7), 4, out);
                }
            }
            (2, 1) if is_smooth => {
                let line = self.line(y);
                doubled(self.width, |x| u32::from(line[x]), (1, 2), 2, out);
            }
            (1, down) => out[..self.width].copy_from_slice(self.line(y / down)),
            (across, down) => {
                for (out, sample) in out.chunks_exact_mut(across).zip(self.line(y / down)) {
                    out.fill(*sample);
                }
            }
        }
    }
}

/// Two samples for each of a line: one drawn to the left neighbour, one to the right. What is added
/// before bits are cut off rounds halves down in one of them.
fn doubled(
    width: usize,
    at: impl Fn(usize) -> u32,
    (left, right): (u32, u32),
    shift: u32,
    out: &mut [u8],
) {
    for (x, out) in (0..width).zip(out.chunks_exact_mut(2)) {
        let (near, before) = (3 * at(x), at(x.saturating_sub(1)));
        out[0] = ((near + before + left) >> shift) as u8;
        out[1] = ((near + at((x + 1).min(width - 1)) + right) >> shift) as u8;
    }
}

/// Red, green and blue of brightness and two differences (ITU-T T.871), with 16 bits after the
/// point.
pub(super) fn rgb_of_ycc([y, cb, cr]: [u8; 3]) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((HALF - 22554 * cb - 46802 * cr) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|x| x.clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(rows: &[&[u8]], across: usize, down: usize) -> Plane {
        let (width, height) = (rows[0].len(), rows.len());
        let mut samples = Vec::new();
        for row in rows {
            samples.extend_from_slice(row);
            // What fills up a block must not be seen.
            samples.push(99);
        }
        Plane { samples, stride: width + 1, width, height, across, down }
    }

    fn rows(plane: &Plane) -> Vec<Vec<u8>> {
        let row = |y| {
            let mut row = vec![0; plane.row_len()];
            plane.row(y, &mut row);
            row
        };
        (0..plane.height * plane.down).map(row).collect()
    }

    /// Three quarters of one sample and a quarter of another, where halves go up or down.
    fn blend(near: u8, far: u8, up: bool) -> u8 {
        let exact = 0.75 * f64::from(near) + 0.25 * f64::from(far);
        if up { (exact + 0.5).floor() as u8 } else { (exact - 0.5).ceil() as u8 }
    }

    #[test]
    fn halves_are_rounded_down_and_up_in_turns() {
        let line = [10, 20, 0, 255, 2];
        let mut want = Vec::new();
        for x in 0..5usize {
            want.push(blend(line[x], line[x.saturating_sub(1)], false));
            want.push(blend(line[x], line[(x + 1).min(4)], true));
        }
        assert_eq!(rows(&plane(&[&line], 2, 1)), [want]);
        let column = rows(&plane(&[&[10], &[20], &[0]], 1, 2));
        let want = [
            blend(10, 10, false),
            blend(10, 20, true),
            blend(20, 10, false),
            blend(20, 0, true),
            blend(0, 20, false),
            blend(0, 0, true),
        ];
        assert_eq!(column.concat(), want);
    }

    #[test]
    fn both_axes_are_rounded_once() {
        let (a, b): ([u8; 3], [u8; 3]) = ([0, 100, 7], [50, 31, 255]);
        let got = rows(&plane(&[&a, &b], 2, 2));
        for (y, row) in got.iter().enumerate() {
            let (near, far) = if y < 2 { (&a, &b) } else { (&b, &a) };
            let far = if y == 0 || y == 3 { near } else { far };
            let at = |x: usize| 0.75 * f64::from(near[x]) + 0.25 * f64::from(far[x]);
            for (x, got) in row.iter().enumerate() {
                let neighbour = if x.is_multiple_of(2) {
                    (x / 2).saturating_sub(1)
                } else {
                    (x / 2 + 1).min(2)
                };
                let exact = 0.75 * at(x / 2) + 0.25 * at(neighbour);
                let want =
                    if x.is_multiple_of(2) { (exact + 0.5).floor() } else { (exact - 0.5).ceil() };
                assert_eq!(f64::from(*got), want, "{x}, {y}");
            }
        }
    }

    #[test]
    fn narrow_components_and_other_ratios_repeat() {
        assert_eq!(rows(&plane(&[&[1, 9]], 2, 1)), [[1, 1, 9, 9]]);
        assert_eq!(rows(&plane(&[&[1, 9]], 2, 2)), [[1, 1, 9, 9], [1, 1, 9, 9]]);
        assert_eq!(rows(&plane(&[&[1, 9, 5]], 1, 3)), [[1, 9, 5]; 3]);
        assert_eq!(rows(&plane(&[&[1, 9, 5]], 4, 1)), [[1, 1, 1, 1, 9, 9, 9, 9, 5, 5, 5, 5]]);
    }

    #[test]
    fn colours_are_those_of_the_definition() {
        for y in (0..=255).step_by(5) {
            for cb in (0..=255).step_by(5) {
                for cr in (0..=255).step_by(5) {
                    let [l, b, r] = [f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0];
                    let want = [l + 1.402 * r, l - 0.344_136 * b - 0.714_136 * r, l + 1.772 * b];
                    for (got, want) in rgb_of_ycc([y, cb, cr]).into_iter().zip(want) {
                        assert!((f64::from(got) - want.clamp(0.0, 255.0)).abs() < 0.51);
                    }
                }
            }
        }
    }
}
