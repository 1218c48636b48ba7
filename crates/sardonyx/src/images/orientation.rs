//! Orientation: how a camera was held (Exif 2.32, tag 274), and images turned upright.

use super::zeros;

/// Orientation of an image: the value of the Exif tag, from 1 (upright) to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation(u8);

/// Tag of the orientation in an image file directory.
const TAG: u16 = 274;

/// Type of 16-bit integers.
const SHORT: u16 = 3;

impl Default for Orientation {
    fn default() -> Orientation {
        Orientation(1)
    }
}

impl Orientation {
    /// Returns the orientation of a number of the tag, if it has one.
    pub(super) fn new(number: u16) -> Option<Orientation> {
        (1..=8).contains(&number).then_some(Orientation(number as u8))
    }

    /// Reads the orientation in Exif data. Data without a readable one are upright.
    pub(super) fn from_exif(exif: &[u8]) -> Orientation {
        let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
        read(tiff).and_then(Orientation::new).unwrap_or_default()
    }

    pub(super) fn is_upright(self) -> bool {
        self.0 == 1
    }

    /// Whether rows become columns.
    pub(super) fn is_transposed(self) -> bool {
        self.0 >= 5
    }

    /// Returns the pixels of an upright image. `[width, height]` is the size before; a pixel has
    /// `channels` bytes.
    pub(super) fn apply(
        self,
        pixels: &[u8],
        [width, height]: [usize; 2],
        channels: usize,
    ) -> Result<Vec<u8>, String> {
        let is_mirrored = matches!(self.0, 2 | 3 | 7 | 8);
        let is_upside_down = matches!(self.0, 3 | 4 | 6 | 7);
        let mut out = zeros(pixels.len())?;
        let across = if self.is_transposed() { height } else { width };
        let rows = out.chunks_exact_mut((across * channels).max(1));
        for (y, row) in rows.enumerate() {
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let (x, y) = if self.is_transposed() { (y, x) } else { (x, y) };
                let x = if is_mirrored { width - 1 - x } else { x };
                let y = if is_upside_down { height - 1 - y } else { y };
                pixel.copy_from_slice(&pixels[(y * width + x) * channels..][..channels]);
            }
        }
        Ok(out)
    }
}

/// Returns the number of the tag in the first directory of TIFF data.
fn read(tiff: &[u8]) -> Option<u16> {
    let is_big = match tiff.first_chunk()? {
        b"II*\0" => false,
        b"MM\0*" => true,
        _ => return None,
    };
    let number = |bytes: &[u8], at: usize, len: usize| -> Option<u32> {
        let bytes = bytes.get(at..)?.get(..len)?.iter();
        let join = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
        Some(if is_big { bytes.fold(0, join) } else { bytes.rev().fold(0, join) })
    };
    let directory = tiff.get(number(tiff, 4, 4)? as usize..)?;
    let count = number(directory, 0, 2)? as usize;
    let entry = directory[2..].chunks_exact(12).take(count).find(|entry| {
        number(entry, 0, 2) == Some(TAG.into())
            && number(entry, 2, 2) == Some(SHORT.into())
            && number(entry, 4, 4) == Some(1)
    })?;
    number(entry, 8, 2).map(|number| number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes Exif data with the tag of another entry before that of the orientation.
    fn exif(is_big: bool, number: u16) -> Vec<u8> {
        let short = |x: u16| if is_big { x.to_be_bytes() } else { x.to_le_bytes() };
        let long = |x: u32| if is_big { x.to_be_bytes() } else { x.to_le_bytes() };
        let mut exif = if is_big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        exif.extend(long(8));
        exif.extend(short(2));
        for (tag, value) in [(256, 7), (TAG, number)] {
            exif.extend([short(tag), short(SHORT)].concat());
            exif.extend(long(1));
            exif.extend([short(value), [0; 2]].concat());
        }
        exif
    }

    #[test]
    fn every_orientation_turns_upright() {
        // An image of three columns and two rows, as cameras would store it.
        let upright = [1, 2, 3, 4, 5, 6];
        let stored: [([usize; 2], [u8; 6]); 8] = [
            ([3, 2], [1, 2, 3, 4, 5, 6]),
            ([3, 2], [3, 2, 1, 6, 5, 4]),
            ([3, 2], [6, 5, 4, 3, 2, 1]),
            ([3, 2], [4, 5, 6, 1, 2, 3]),
            ([2, 3], [1, 4, 2, 5, 3, 6]),
            ([2, 3], [3, 6, 2, 5, 1, 4]),
            ([2, 3], [6, 3, 5, 2, 4, 1]),
            ([2, 3], [4, 1, 5, 2, 6, 3]),
        ];
        for ((size, pixels), number) in stored.into_iter().zip(1..) {
            let orientation = Orientation::new(number).unwrap();
            assert_eq!(orientation.is_upright(), number == 1);
            assert_eq!(orientation.is_transposed(), size == [2, 3]);
            assert_eq!(orientation.apply(&pixels, size, 1).unwrap(), upright, "{number}");
            let pairs = |pixels: [u8; 6]| pixels.map(|pixel| [pixel, 100 + pixel]).concat();
            let applied = orientation.apply(&pairs(pixels), size, 2).unwrap();
            assert_eq!(applied, pairs(upright), "{number}");
        }
    }

    #[test]
    fn exif_gives_its_number() {
        for number in 0..10 {
            let expected = Orientation::new(number).unwrap_or_default();
            for is_big in [false, true] {
                let exif = exif(is_big, number);
                assert_eq!(Orientation::from_exif(&exif), expected);
                let prefixed = [b"Exif\0\0", &exif[..]].concat();
                assert_eq!(Orientation::from_exif(&prefixed), expected);
            }
        }
    }

    #[test]
    fn unreadable_exif_is_upright() {
        let exif = exif(true, 6);
        for end in 0..exif.len() {
            assert!(Orientation::from_exif(&exif[..end]).is_upright(), "{end}");
        }
        for bit in 0..8 * exif.len() {
            let mut flipped = exif.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            Orientation::from_exif(&flipped);
        }
    }
}
