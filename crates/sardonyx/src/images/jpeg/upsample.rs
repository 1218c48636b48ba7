//! Upsampling of chroma components to the size of the image, and color conversion.
//!
//! A component with half the samples along an axis is interpolated as ImageDecoder requires
//! ("fancy upsampling" of libjpeg): the new samples are at 1/4 and 3/4 of the distance between the
//! old ones, and halves are alternately rounded up and down. Other integer ratios repeat samples.

use super::super::pixels::Rgb;

/// Decoded samples of a JPEG component, before upsampling.
pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    /// Row stride of `samples`, in bytes.
    pub(super) stride: usize,
    /// Width in samples, without the padding of blocks.
    pub(super) width: usize,
    /// Height in samples, without the padding of blocks.
    pub(super) height: usize,
    /// Number of image columns for each column of the component.
    pub(super) across: usize,
    /// Number of image rows for each row of the component.
    pub(super) down: usize,
}

impl Plane {
    /// Returns row `y` of the component, without padding.
    fn slice_row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..][..self.width]
    }

    /// Returns the length in bytes of the rows that [`Plane::write_row`] writes.
    pub(super) fn row_len(&self) -> usize {
        self.width * self.across
    }

    /// Upsamples the component into `out`, row `y` of the image.
    pub(super) fn write_row(&self, y: usize, out: &mut [u8]) {
        // libjpeg interpolates columns only if the component has more than two.
        let is_smooth = self.across == 1 || self.across == 2 && self.width > 2;
        match (self.across, self.down) {
            (1, 2) | (2, 2) if is_smooth => {
                let near = self.slice_row(y / 2);
                // The first and the last row are their own neighbours.
                let is_even = y.is_multiple_of(2);
                let far = if is_even { (y / 2).saturating_sub(1) } else { y / 2 + 1 };
                let far = self.slice_row(far.min(self.height - 1));
                if self.across == 1 {
                    let half = if is_even { 1 } else { 2 };
                    let pairs = near.iter().zip(far);
                    for (out, (near, far)) in out.iter_mut().zip(pairs) {
                        *out = ((3 * u32::from(*near) + u32::from(*far) + half) >> 2) as u8;
                    }
                } else {
                    let rounding = Rounding { left: 8, right: 7, shift: 4 };
                    double_columns(
                        self.width,
                        |x| 3 * u32::from(near[x]) + u32::from(far[x]),
                        rounding,
                        out,
                    );
                }
            }
            (2, 1) if is_smooth => {
                let line = self.slice_row(y);
                let rounding = Rounding { left: 1, right: 2, shift: 2 };
                double_columns(self.width, |x| u32::from(line[x]), rounding, out);
            }
            (1, down) => out[..self.width].copy_from_slice(self.slice_row(y / down)),
            (across, down) => {
                for (out, sample) in out.chunks_exact_mut(across).zip(self.slice_row(y / down)) {
                    out.fill(*sample);
                }
            }
        }
    }
}

/// Rounding of interpolated samples: addition of `left` or `right`, then a right shift by `shift`
/// bits.
#[derive(Clone, Copy)]
struct Rounding {
    /// Addend of the left sample of each pair.
    left: u32,
    /// Addend of the right sample of each pair.
    right: u32,
    shift: u32,
}

/// Interpolates two samples for each column of a component: 3/4 of the column and 1/4 of its left
/// or its right neighbour. `at` returns the sample of a column, or the weighted sum over two rows.
fn double_columns(width: usize, at: impl Fn(usize) -> u32, rounding: Rounding, out: &mut [u8]) {
    let Rounding { left, right, shift } = rounding;
    for (x, out) in (0..width).zip(out.chunks_exact_mut(2)) {
        let (near, before) = (3 * at(x), at(x.saturating_sub(1)));
        out[0] = ((near + before + left) >> shift) as u8;
        out[1] = ((near + at((x + 1).min(width - 1)) + right) >> shift) as u8;
    }
}

/// Luma and two chroma differences of a pixel, 8 bits each.
pub(super) type Ycc = [u8; 3];

/// Converts YCbCr into RGB (ITU-T T.871), in 16-bit fixed point.
pub(super) fn ycc_to_rgb([y, cb, cr]: Ycc) -> Rgb {
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

    fn make_plane(rows: &[&[u8]], across: usize, down: usize) -> Plane {
        let (width, height) = (rows[0].len(), rows.len());
        let mut samples = Vec::new();
        for row in rows {
            samples.extend_from_slice(row);
            // Padding of a block, which must not affect the result.
            samples.push(99);
        }
        Plane { samples, stride: width + 1, width, height, across, down }
    }

    fn upsample_rows(plane: &Plane) -> Vec<Vec<u8>> {
        let mut rows = vec![vec![0; plane.row_len()]; plane.height * plane.down];
        for (y, row) in rows.iter_mut().enumerate() {
            plane.write_row(y, row);
        }
        rows
    }

    /// Blends 3/4 of one sample and 1/4 of another, and rounds halves up or down.
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
        assert_eq!(upsample_rows(&make_plane(&[&line], 2, 1)), [want]);
        let column = upsample_rows(&make_plane(&[&[10], &[20], &[0]], 1, 2));
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
        let got = upsample_rows(&make_plane(&[&a, &b], 2, 2));
        for (y, row) in got.iter().enumerate() {
            let (near, far) = if y < 2 { (&a, &b) } else { (&b, &a) };
            let far = if y == 0 || y == 3 { near } else { far };
            let columns: [f64; 3] =
                std::array::from_fn(|x| 0.75 * f64::from(near[x]) + 0.25 * f64::from(far[x]));
            for (x, got) in row.iter().enumerate() {
                let neighbour = if x.is_multiple_of(2) {
                    (x / 2).saturating_sub(1)
                } else {
                    (x / 2 + 1).min(2)
                };
                let exact = 0.75 * columns[x / 2] + 0.25 * columns[neighbour];
                let want =
                    if x.is_multiple_of(2) { (exact + 0.5).floor() } else { (exact - 0.5).ceil() };
                assert_eq!(f64::from(*got), want, "{x}, {y}");
            }
        }
    }

    #[test]
    fn narrow_components_and_other_ratios_repeat() {
        assert_eq!(upsample_rows(&make_plane(&[&[1, 9]], 2, 1)), [[1, 1, 9, 9]]);
        assert_eq!(upsample_rows(&make_plane(&[&[1, 9]], 2, 2)), [[1, 1, 9, 9], [1, 1, 9, 9]]);
        assert_eq!(upsample_rows(&make_plane(&[&[1, 9, 5]], 1, 3)), [[1, 9, 5]; 3]);
        assert_eq!(
            upsample_rows(&make_plane(&[&[1, 9, 5]], 4, 1)),
            [[1, 1, 1, 1, 9, 9, 9, 9, 5, 5, 5, 5]]
        );
    }

    #[test]
    fn colours_are_those_of_the_definition() {
        for y in (0..=255).step_by(5) {
            for cb in (0..=255).step_by(5) {
                for cr in (0..=255).step_by(5) {
                    let [l, b, r] = [f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0];
                    let want = [l + 1.402 * r, l - 0.344_136 * b - 0.714_136 * r, l + 1.772 * b];
                    for (got, want) in ycc_to_rgb([y, cb, cr]).into_iter().zip(want) {
                        assert!((f64::from(got) - want.clamp(0.0, 255.0)).abs() < 0.51);
                    }
                }
            }
        }
    }
}
