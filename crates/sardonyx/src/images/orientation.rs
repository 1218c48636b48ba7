//! Exif orientation of images (Exif 2.32, tag 274): reads it, and turns images upright.

use super::allocate_zeros;
use super::resize::Size;

/// Value of the Exif orientation tag of an image, from 1 (upright) to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Orientation(u8);

/// Number of the orientation tag in an Exif image file directory (IFD).
const TAG: u16 = 274;

/// Number of the type SHORT (16-bit integer) in an image file directory.
const SHORT: u16 = 3;

impl Default for Orientation {
    fn default() -> Orientation {
        Orientation(1)
    }
}

impl Orientation {
    /// Makes an orientation from the value of the Exif tag; `None` if it is not from 1 to 8.
    pub(super) fn new(number: u16) -> Option<Orientation> {
        (1..=8).contains(&number).then_some(Orientation(number as u8))
    }

    /// Reads the orientation in Exif data; upright if the tag is missing or unreadable.
    pub(super) fn from_exif(exif: &[u8]) -> Orientation {
        let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
        read_tag(tiff).and_then(Orientation::new).unwrap_or_default()
    }

    /// Whether an image with this orientation is displayed as stored, without turning.
    pub(super) fn is_upright(self) -> bool {
        self.0 == 1
    }

    /// Whether turning an image with this orientation upright swaps its width and height.
    pub(super) fn is_transposed(self) -> bool {
        self.0 >= 5
    }

    /// Turns an image of this orientation upright. `size` is the size before turning; a pixel has
    /// `channels` bytes.
    pub(super) fn apply(
        self,
        pixels: &[u8],
        size: Size,
        channels: usize,
    ) -> Result<Vec<u8>, String> {
        let Size { width, height } = size;
        let is_mirrored = matches!(self.0, 2 | 3 | 7 | 8);
        let is_upside_down = matches!(self.0, 3 | 4 | 6 | 7);
        let mut out = allocate_zeros(pixels.len())?;
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

/// Reads the value of the orientation tag in the first image file directory of TIFF data; `None` if
/// there is none or the data are malformed.
fn read_tag(tiff: &[u8]) -> Option<u16> {
    let order = match tiff.first_chunk()? {
        b"II*\0" => ByteOrder::Little,
        b"MM\0*" => ByteOrder::Big,
        _ => return None,
    };
    let directory = tiff.get(order.read(tiff, 4, 4)? as usize..)?;
    let count = order.read(directory, 0, 2)? as usize;
    let entry = directory[2..].chunks_exact(12).take(count).find(|entry| {
        order.read(entry, 0, 2) == Some(TAG.into())
            && order.read(entry, 2, 2) == Some(SHORT.into())
            && order.read(entry, 4, 4) == Some(1)
    })?;
    order.read(entry, 8, 2).map(|number| number as u16)
}

/// Byte order of TIFF data.
#[derive(Clone, Copy)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Reads an integer of `len` bytes, at most 4, at byte offset `at`; `None` if the bytes end
    /// before.
    fn read(self, bytes: &[u8], at: usize, len: usize) -> Option<u32> {
        let field = bytes.get(at..)?.get(..len)?;
        let mut number = 0;
        for index in 0..len {
            let byte = match self {
                ByteOrder::Little => field[len - 1 - index],
                ByteOrder::Big => field[index],
            };
            number = number << 8 | u32::from(byte);
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes Exif data with two entries, of which the second is the orientation.
    fn make_exif(order: ByteOrder, number: u16) -> Vec<u8> {
        let mut exif = match order {
            ByteOrder::Little => b"II*\0".to_vec(),
            ByteOrder::Big => b"MM\0*".to_vec(),
        };
        // Numbers of the directory, with their sizes in bytes: its offset, the number of entries,
        // and for each entry tag, type, count, value and padding.
        let mut fields: Vec<(u32, usize)> = vec![(8, 4), (2, 2)];
        for (tag, value) in [(256, 7), (TAG, number)] {
            let entry = [(tag.into(), 2), (SHORT.into(), 2), (1, 4), (value.into(), 2), (0, 2)];
            fields.extend(entry);
        }
        for (field, size) in fields {
            match order {
                ByteOrder::Little => exif.extend(&field.to_le_bytes()[..size]),
                ByteOrder::Big => exif.extend(&field.to_be_bytes()[4 - size..]),
            }
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
        for (([width, height], pixels), number) in stored.into_iter().zip(1..) {
            let orientation = Orientation::new(number).unwrap();
            assert_eq!(orientation.is_upright(), number == 1);
            assert_eq!(orientation.is_transposed(), width < height);
            let size = Size { width, height };
            assert_eq!(orientation.apply(&pixels, size, 1).unwrap(), upright, "{number}");
            let [pairs, upright_pairs] =
                [pixels, upright].map(|pixels| pixels.map(|pixel| [pixel, 100 + pixel]).concat());
            let applied = orientation.apply(&pairs, size, 2).unwrap();
            assert_eq!(applied, upright_pairs, "{number}");
        }
    }

    #[test]
    fn exif_gives_its_number() {
        for number in 0..10 {
            let expected = Orientation::new(number).unwrap_or_default();
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let exif = make_exif(order, number);
                assert_eq!(Orientation::from_exif(&exif), expected);
                let prefixed = [b"Exif\0\0", &exif[..]].concat();
                assert_eq!(Orientation::from_exif(&prefixed), expected);
            }
        }
    }

    #[test]
    fn unreadable_exif_is_upright() {
        let exif = make_exif(ByteOrder::Big, 6);
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
