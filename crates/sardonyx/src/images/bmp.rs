//! BMP images (Windows bitmaps) with headers of all versions, uncompressed or run-length encoded.

use super::allocate_zeros;
use super::bitmaps::{BitmapLayout, Samples};

/// Byte offset of the image header in a BMP file, after the file header.
const HEADER: usize = 14;

/// Length in bytes of the oldest header version, whose fields and palette entries are shorter.
const CORE: usize = 12;

/// Length in bytes of the oldest header version with a mask for alpha.
const WITH_ALPHA: usize = 56;

/// Palette of 256 RGB colors, padded with black.
type Palette = Box<[[u8; 3]; 256]>;

/// A BMP image whose headers and palette have been read.
#[derive(Debug)]
pub(super) struct Bmp<'a> {
    encoded: &'a [u8],
    width: usize,
    height: usize,
    is_top_down: bool,
    /// Number of bits of a pixel in the file.
    bits: usize,
    /// Byte offset of the pixels in the file.
    data: usize,
    coding: Coding,
}

/// Coding of the pixels in a BMP file.
#[derive(Debug)]
enum Coding {
    /// Palette index for each pixel.
    Indices(Palette),
    /// Run-length encoded indices into the palette (`RLE4`, `RLE8`).
    Runs(Palette),
    /// Integer for each pixel, with bit fields for red, green, blue and alpha. `alpha` is `None` if
    /// the header has no alpha mask.
    Fields { colors: [Field; 3], alpha: Option<Field> },
}

/// Bit field of a pixel that holds one channel.
#[derive(Debug)]
struct Field {
    shift: u32,
    /// Mask of the field after the shift, at most 8 bits.
    mask: u32,
    /// Table that scales the bits of the field to a sample of 8 bits.
    samples: Box<[u8; 256]>,
}

impl Field {
    /// Makes a field from the mask of a channel, of which the upper 8 bits count. A pixel has
    /// `bits` bits.
    fn new(mask: u32, bits: usize) -> Result<Field, String> {
        let (mut shift, mut len) = (mask.trailing_zeros(), mask.count_ones());
        if mask == 0 || mask.leading_zeros() + shift + len != u32::BITS {
            return Err(format!("the mask {mask:08x} of a channel is not one run of bits"));
        }
        if (shift + len) as usize > bits {
            return Err(format!("the mask {mask:08x} of a channel has more than {bits} bits"));
        }
        if len > 8 {
            (shift, len) = (shift + len - 8, 8);
        }
        let most = (1u32 << len) - 1;
        let mut samples = Box::new([0; 256]);
        for (value, sample) in (0..=most).zip(samples.iter_mut()) {
            // Rounded to the nearest; ties cannot occur, as `most` is odd.
            *sample = ((value * 255 * 2 + most) / (2 * most)) as u8;
        }
        Ok(Field { shift, mask: most, samples })
    }

    /// Extracts the channel's sample of 8 bits from a pixel.
    fn extract_sample(&self, pixel: u32) -> u8 {
        self.samples[(pixel >> self.shift & self.mask) as usize]
    }
}

/// Reads `N` bytes of a header, from byte offset `at` of the file.
fn read_bytes<const N: usize>(encoded: &[u8], at: usize) -> Result<[u8; N], String> {
    let bytes = encoded.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().ok_or_else(|| "the header is truncated".to_string())
}

/// Reads the little-endian integer at byte offset `at` of the file.
fn read_u16(encoded: &[u8], at: usize) -> Result<u16, String> {
    read_bytes(encoded, at).map(u16::from_le_bytes)
}

/// Reads the little-endian integer at byte offset `at` of the file.
fn read_u32(encoded: &[u8], at: usize) -> Result<u32, String> {
    read_bytes(encoded, at).map(u32::from_le_bytes)
}

/// Fields of a BMP image header that all header versions have, or that have a default.
struct Header {
    /// Length of the header in bytes, which identifies its version.
    len: usize,
    width: i32,
    /// Height in pixels; negative if the file stores the top row first.
    height: i32,
    planes: u16,
    bits: u16,
    compression: u32,
    /// Number of palette entries; 0 for as many as `bits` can index.
    entries: u32,
}

impl Header {
    /// Reads the image header of a BMP file.
    fn read(encoded: &[u8]) -> Result<Header, String> {
        let len = read_u32(encoded, HEADER)? as usize;
        match len {
            CORE => Ok(Header {
                len,
                width: read_u16(encoded, HEADER + 4)?.into(),
                height: read_u16(encoded, HEADER + 6)?.into(),
                planes: read_u16(encoded, HEADER + 8)?,
                bits: read_u16(encoded, HEADER + 10)?,
                compression: 0,
                entries: 0,
            }),
            40 | 52 | 56 | 108 | 124 => {
                // The last field, the number of important colors, must exist.
                read_u32(encoded, HEADER + 36)?;
                Ok(Header {
                    len,
                    width: read_bytes(encoded, HEADER + 4).map(i32::from_le_bytes)?,
                    height: read_bytes(encoded, HEADER + 8).map(i32::from_le_bytes)?,
                    planes: read_u16(encoded, HEADER + 12)?,
                    bits: read_u16(encoded, HEADER + 14)?,
                    compression: read_u32(encoded, HEADER + 16)?,
                    entries: read_u32(encoded, HEADER + 32)?,
                })
            }
            _ => Err(format!("a header of {len} bytes is not supported")),
        }
    }

    /// Determines the coding of the pixels, and reads the palette or the channel masks.
    fn read_coding(&self, encoded: &[u8]) -> Result<Coding, String> {
        match (self.compression, self.bits) {
            (0, 1 | 4 | 8) => Ok(Coding::Indices(self.read_palette(encoded)?)),
            (0, 2) if self.len != CORE => Ok(Coding::Indices(self.read_palette(encoded)?)),
            (0, 16) if self.len != CORE => self.make_fields(&[0x7c00, 0x03e0, 0x001f], 0),
            (0, 24) => self.make_fields(&[0xff_0000, 0xff00, 0xff], 0),
            (0, 32) if self.len != CORE => self.make_fields(&[0xff_0000, 0xff00, 0xff], 0),
            (1, 8) | (2, 4) if self.height > 0 => Ok(Coding::Runs(self.read_palette(encoded)?)),
            (1, 8) | (2, 4) => Err("run-length encoded rows cannot begin at the top".to_string()),
            (3, 16 | 32) => {
                let count = if self.len < WITH_ALPHA { 3 } else { 4 };
                let mut masks = [0; 4];
                for (index, mask) in masks[..count].iter_mut().enumerate() {
                    *mask = read_u32(encoded, HEADER + 40 + 4 * index)?;
                }
                self.make_fields(&masks[..3], masks[3])
            }
            (0..=3, bits) => Err(format!(
                "pixels of {bits} bits with the compression {} are not supported",
                self.compression
            )),
            (4, _) => Err("JPEG inside of BMP is not supported".to_string()),
            (5, _) => Err("PNG inside of BMP is not supported".to_string()),
            (11..=13, _) => Err("CMYK is not supported".to_string()),
            (other, _) => Err(format!("the compression {other} is not supported")),
        }
    }

    /// Makes the bit fields of red, green and blue from `masks`, and of alpha from the mask
    /// `alpha`; 0 stands for no alpha.
    fn make_fields(&self, masks: &[u32], alpha: u32) -> Result<Coding, String> {
        let bits = usize::from(self.bits);
        let alpha = if alpha == 0 { None } else { Some(Field::new(alpha, bits)?) };
        let colors =
            [Field::new(masks[0], bits)?, Field::new(masks[1], bits)?, Field::new(masks[2], bits)?];
        Ok(Coding::Fields { colors, alpha })
    }

    /// Reads the palette of a BMP file. Colors that the file does not have are black.
    fn read_palette(&self, encoded: &[u8]) -> Result<Palette, String> {
        let most = 1u32 << self.bits;
        if self.entries > most {
            return Err(format!(
                "a palette of {} colors does not fit indices of {} bits",
                self.entries, self.bits
            ));
        }
        let entries = if self.entries == 0 { most } else { self.entries } as usize;
        let size = if self.len == CORE { 3 } else { 4 };
        let stored = encoded.get(HEADER + self.len..).and_then(|rest| rest.get(..entries * size));
        let stored = stored.ok_or("the palette is truncated")?;
        let mut palette = Box::new([[0; 3]; 256]);
        for (color, stored) in palette.iter_mut().zip(stored.chunks_exact(size)) {
            *color = [stored[2], stored[1], stored[0]];
        }
        Ok(palette)
    }
}

impl<'a> Bmp<'a> {
    /// Reads the headers and the palette of a BMP file.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Bmp<'a>, String> {
        let data = read_u32(encoded, 10)? as usize;
        let header = Header::read(encoded)?;
        let Header { width, height, planes, .. } = header;
        if width <= 0 || height == 0 || height == i32::MIN {
            return Err(format!("the image size {width} x {height} is not valid"));
        }
        if planes != 1 {
            return Err(format!("an image must have one plane, but the header has {planes}"));
        }
        let coding = header.read_coding(encoded)?;
        let (width, is_top_down) = (width as usize, height < 0);
        let (height, bits) = (height.unsigned_abs() as usize, usize::from(header.bits));
        Ok(Bmp { encoded, width, height, is_top_down, bits, data, coding })
    }

    /// Converts the index of a row in the file into its index from the top of the image.
    fn to_row_from_top(&self, number: usize) -> usize {
        if self.is_top_down { number } else { self.height - 1 - number }
    }

    /// Decodes uncompressed pixels. `put` converts the bytes of one row of the file into samples.
    fn read_rows(&self, mut put: impl FnMut(&[u8], &mut [u8])) -> Result<Vec<u8>, String> {
        let bytes = self.width.checked_mul(self.bits).map(|bits| bits.div_ceil(32) * 4);
        let stride = bytes.ok_or("the image size is too large")?;
        let stored = stride.checked_mul(self.height).and_then(|len| {
            let rest = self.encoded.get(self.data..)?;
            rest.get(..len)
        });
        let stored = stored.ok_or_else(|| {
            format!("the file ends before {} rows of {stride} bytes", self.height)
        })?;
        let layout = self.layout();
        let mut out = allocate_zeros(layout.count_bytes())?;
        let row_len = self.width * layout.channels;
        for (number, stored) in stored.chunks_exact(stride).enumerate() {
            put(stored, &mut out[self.to_row_from_top(number) * row_len..][..row_len]);
        }
        Ok(out)
    }

    /// Decodes run-length encoded pixels. Pixels that no run sets are black, as on Windows.
    fn read_runs(&self, palette: &Palette) -> Result<Vec<u8>, String> {
        let mut codes = self.encoded.get(self.data..).unwrap_or_default();
        let mut out = allocate_zeros(self.layout().count_bytes())?;
        let (mut x, mut y) = (0, 0);
        while y < self.height {
            let code = take_codes(&mut codes, 2)?;
            let (first, second) = (usize::from(code[0]), usize::from(code[1]));
            let row = &mut out[self.to_row_from_top(y) * self.width * 3..][..self.width * 3];
            let (pixels, _) = row[x * 3..].as_chunks_mut();
            match (first, second) {
                (0, 0) => (x, y) = (0, y + 1),
                (0, 1) => break,
                (0, 2) => {
                    let step = take_codes(&mut codes, 2)?;
                    (x, y) = (x + usize::from(step[0]), y + usize::from(step[1]));
                    if x > self.width || y >= self.height {
                        return Err(format!(
                            "a run-length code leads to {x}, {y}, outside of the image"
                        ));
                    }
                }
                (0, count) => {
                    // Literal pixels, padded to a multiple of two bytes.
                    let indices = take_codes(&mut codes, (count * self.bits).div_ceil(16) * 2)?;
                    let Some(pixels) = pixels.get_mut(..count) else {
                        return Err(format!("{count} pixels at {x}, {y} do not fit the row"));
                    };
                    for (at, pixel) in pixels.iter_mut().enumerate() {
                        *pixel = palette[read_palette_index(indices, at, self.bits)];
                    }
                    x += count;
                }
                (count, _) => {
                    // ImageMagick writes runs that extend beyond the end of the row.
                    let count = count.min(pixels.len());
                    for (at, pixel) in pixels[..count].iter_mut().enumerate() {
                        let at = at % (8 / self.bits);
                        *pixel = palette[read_palette_index(&code[1..], at, self.bits)];
                    }
                    x += count;
                }
            }
        }
        Ok(out)
    }
}

/// Takes `len` bytes from the front of the run-length codes.
fn take_codes<'a>(codes: &mut &'a [u8], len: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = codes.split_at_checked(len).ok_or("the run-length codes end early")?;
    *codes = rest;
    Ok(taken)
}

/// Returns the palette index of pixel `at` of a row. Indices of `bits` bits are packed into bytes,
/// the upper bits first.
fn read_palette_index(bytes: &[u8], at: usize, bits: usize) -> usize {
    let at = at * bits;
    let byte = usize::from(bytes[at / 8]);
    byte >> (8 - bits - at % 8) & ((1 << bits) - 1)
}

impl Samples for Bmp<'_> {
    fn layout(&self) -> BitmapLayout {
        let channels = match &self.coding {
            Coding::Fields { alpha: Some(_), .. } => 4,
            _ => 3,
        };
        BitmapLayout { width: self.width, height: self.height, channels, is_wide: false }
    }

    fn read(self: Box<Self>) -> Result<Vec<u8>, String> {
        let bits = self.bits;
        match &self.coding {
            Coding::Runs(palette) => self.read_runs(palette),
            Coding::Indices(palette) => self.read_rows(|stored, row| {
                for (at, pixel) in row.as_chunks_mut().0.iter_mut().enumerate() {
                    *pixel = palette[read_palette_index(stored, at, bits)];
                }
            }),
            Coding::Fields { colors, alpha } => {
                let channels = self.layout().channels;
                self.read_rows(|stored, row| {
                    let pixels = row.chunks_exact_mut(channels);
                    for (pixel, stored) in pixels.zip(stored.chunks_exact(bits / 8)) {
                        let number = stored.iter().rev();
                        let number = number.fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                        for (sample, field) in pixel.iter_mut().zip(colors.iter().chain(alpha)) {
                            *sample = field.extract_sample(number);
                        }
                    }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a BMP file. `tables` are the palette or masks between header and pixels.
    fn make_file(header: &[u8], tables: &[u8], pixels: &[u8]) -> Vec<u8> {
        let data = (HEADER + header.len() + tables.len()) as u32;
        [b"BM\0\0\0\0\0\0\0\0", &data.to_le_bytes()[..], header, tables, pixels].concat()
    }

    /// Makes a BMP image header of the oldest version.
    fn make_core(width: u16, height: u16, bits: u16) -> Vec<u8> {
        let fields = [width, height, 1, bits];
        [&12u32.to_le_bytes()[..], &fields.map(u16::to_le_bytes).concat()].concat()
    }

    /// Width and height in a BMP image header, in pixels.
    type HeaderSize = [i32; 2];

    /// Makes a BMP image header of a later version, with `len` bytes.
    fn make_info(len: u32, size: HeaderSize, bits: u16, compression: u32, entries: u32) -> Vec<u8> {
        let mut header = len.to_le_bytes().to_vec();
        header.extend(size.map(i32::to_le_bytes).concat());
        header.extend([1u16, bits].map(u16::to_le_bytes).concat());
        header.extend([compression, 0, 0, 0, entries, 0].map(u32::to_le_bytes).concat());
        header.resize(len as usize, 0);
        header
    }

    /// Sets the channel masks in a BMP image header of at least 52 bytes.
    fn set_masks(mut header: Vec<u8>, masks: &[u32]) -> Vec<u8> {
        let masks: Vec<u8> = masks.iter().flat_map(|mask| mask.to_le_bytes()).collect();
        header[40..][..masks.len()].copy_from_slice(&masks);
        header
    }

    fn decode(file: &[u8]) -> Result<Vec<u8>, String> {
        Box::new(Bmp::open(file)?).read()
    }

    const RED: [u8; 3] = [200, 10, 20];
    const BLUE: [u8; 3] = [30, 40, 210];
    const BLACK: [u8; 3] = [0, 0, 0];
    /// Red and blue as palette entries of three bytes.
    const THREE_BYTES: &[u8] = &[20, 10, 200, 210, 40, 30];
    /// Red and blue as palette entries of four bytes.
    const FOUR_BYTES: &[u8] = &[20, 10, 200, 0, 210, 40, 30, 0];

    /// Makes BMP files of all variants, each with a name and the expected samples.
    #[rustfmt::skip]
    fn make_files() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
        let sixteen_colors = [FOUR_BYTES, &[9; 56]].concat();
        let fields = [0xf800u32, 0x07e0, 0x001f].map(u32::to_le_bytes).concat();
        let ten_bits = [0x3ff0_0000, 0x000f_fc00, 0x3ff, 0xc000_0000];
        let rgba = [0xff, 0xff00, 0xff_0000, 0xff00_0000];
        // Two rows: a run and a step to the right; literal pixels and a run that is too long.
        let eight: &[u8] = &[2, 1, 0, 2, 1, 0, 1, 0, 0, 0, 0, 3, 0, 1, 0, 0, 9, 1, 0, 1];
        let nibbles: &[u8] = &[3, 0x01, 0, 0, 0, 4, 0x10, 0x01, 1, 0, 0, 1];
        vec![
            ("core, 1 bit",
                make_file(&make_core(3, 2, 1), THREE_BYTES, &[0x40, 0, 0, 0, 0xa0, 0, 0, 0]),
                [BLUE, RED, BLUE, RED, BLUE, RED].concat()),
            ("core, 24 bits",
                make_file(&make_core(1, 2, 24), &[], &[20, 10, 200, 0, 210, 40, 30, 0]),
                [BLUE, RED].concat()),
            ("1 bit", make_file(&make_info(40, [3, 1], 1, 0, 0), FOUR_BYTES, &[0x40, 0, 0, 0]),
                [RED, BLUE, RED].concat()),
            ("2 bits, short palette",
                make_file(&make_info(40, [3, 1], 2, 0, 2), FOUR_BYTES, &[0x1c, 0, 0, 0]),
                [RED, BLUE, BLACK].concat()),
            ("4 bits",
                make_file(&make_info(40, [3, 1], 4, 0, 0), &sixteen_colors, &[0x01, 0x20, 0, 0]),
                [RED, BLUE, [9; 3]].concat()),
            ("8 bits", make_file(&make_info(124, [3, 1], 8, 0, 2), FOUR_BYTES, &[1, 0, 255, 0]),
                [BLUE, RED, BLACK].concat()),
            ("8 bits, from the top",
                make_file(&make_info(40, [1, -2], 8, 0, 2), FOUR_BYTES, &[1, 0, 0, 0, 0, 0, 0, 0]),
                [BLUE, RED].concat()),
            ("16 bits", make_file(&make_info(40, [2, 1], 16, 0, 0), &[], &[0xe0, 0x7f, 0x10, 0x00]),
                vec![255, 255, 0, 0, 0, 132]),
            ("16 bits, 5 6 5",
                make_file(&make_info(40, [2, 1], 16, 3, 0), &fields, &[0xe0, 0xff, 0x10, 0x04]),
                vec![255, 255, 0, 0, 130, 132]),
            ("24 bits, version 2",
                make_file(&make_info(52, [1, 1], 24, 0, 0), &[], &[20, 10, 200, 0]), RED.to_vec()),
            ("32 bits, no alpha",
                make_file(&make_info(40, [1, 1], 32, 0, 0), &[], &[20, 10, 200, 99]), RED.to_vec()),
            ("alpha, version 3",
                make_file(&set_masks(make_info(56, [1, 1], 32, 3, 0), &rgba), &[], &[1, 2, 3, 4]),
                vec![1, 2, 3, 4]),
            ("10 bits, version 4",
                make_file(&set_masks(make_info(108, [1, 1], 32, 3, 0), &ten_bits), &[0; 12],
                    &(2u32 << 30 | 1023 << 20 | 512 << 10 | 7).to_le_bytes()),
                vec![255, 128, 1, 170]),
            ("RLE8", make_file(&make_info(40, [4, 2], 8, 1, 2), FOUR_BYTES, eight),
                [RED, BLUE, RED, BLUE, BLUE, BLUE, BLACK, RED].concat()),
            ("RLE8, a step up",
                make_file(&make_info(40, [2, 3], 8, 1, 2), FOUR_BYTES,
                    &[1, 1, 0, 2, 0, 2, 1, 0, 0, 1]),
                [BLACK, RED, BLACK, BLACK, BLUE, BLACK].concat()),
            ("RLE4", make_file(&make_info(40, [5, 2], 4, 2, 2), FOUR_BYTES, nibbles),
                [BLUE, RED, RED, BLUE, RED, RED, BLUE, RED, BLACK, BLACK].concat()),
        ]
    }

    #[test]
    fn every_variant_gives_its_pixels() {
        for (name, file, pixels) in make_files() {
            assert_eq!(decode(&file).as_ref(), Ok(&pixels), "{name}");
        }
    }

    #[test]
    fn fields_spread_over_all_values() {
        for len in 1..=8 {
            let most = (1u32 << len) - 1;
            let field = Field::new(most << 3, 16).unwrap();
            for value in 0..=most {
                let exact = f64::from(value) / f64::from(most) * 255.0;
                assert_eq!(
                    field.extract_sample(value << 3),
                    exact.round() as u8,
                    "{value} of {len} bits"
                );
            }
        }
    }

    /// Makes a BMP file with a given header and one pixel.
    fn make_pixel_file(header: &[u8]) -> Vec<u8> {
        make_file(header, &[], &[0; 4])
    }

    /// Makes a BMP image header with channel masks for one pixel of 16 bits.
    fn make_masks(masks: &[u32]) -> Vec<u8> {
        set_masks(make_info(56, [1, 1], 16, 3, 0), masks)
    }

    /// Makes a BMP file of 4 x 2 run-length encoded pixels.
    fn make_runs_file(codes: &[u8]) -> Vec<u8> {
        make_file(&make_info(40, [4, 2], 8, 1, 2), FOUR_BYTES, codes)
    }

    #[test]
    fn errors_name_the_reason() {
        let cases = [
            (make_pixel_file(&make_core(1, 0, 24)), "the image size 1 x 0 is not valid"),
            (
                make_pixel_file(&make_info(40, [-1, 1], 24, 0, 0)),
                "the image size -1 x 1 is not valid",
            ),
            (
                make_pixel_file(&make_core(1, 1, 16)),
                "pixels of 16 bits with the compression 0 are not supported",
            ),
            (
                make_pixel_file(&make_info(40, [1, 1], 24, 4, 0)),
                "JPEG inside of BMP is not supported",
            ),
            (
                make_pixel_file(&make_info(40, [1, 1], 24, 5, 0)),
                "PNG inside of BMP is not supported",
            ),
            (
                make_pixel_file(&make_info(40, [1, 1], 24, 6, 0)),
                "the compression 6 is not supported",
            ),
            (
                make_pixel_file(&make_info(40, [1, -1], 8, 1, 0)),
                "run-length encoded rows cannot begin at the top",
            ),
            (
                make_pixel_file(&make_info(40, [1, 1], 8, 0, 257)),
                "a palette of 257 colors does not fit",
            ),
            (make_pixel_file(&make_info(40, [1, 1], 8, 0, 0)), "the palette is truncated"),
            (
                make_pixel_file(&make_info(64, [1, 1], 24, 0, 0)),
                "a header of 64 bytes is not supported",
            ),
            (
                make_pixel_file(&make_masks(&[0, 0x7e0, 0x1f])),
                "the mask 00000000 of a channel is not one run",
            ),
            (
                make_pixel_file(&make_masks(&[0xa000, 0x7e0, 0x1f])),
                "the mask 0000a000 of a channel is not one run",
            ),
            (
                make_pixel_file(&make_masks(&[0x1_0000, 0x7e0, 0x1f])),
                "the mask 00010000 of a channel has more",
            ),
            (
                make_pixel_file(&make_info(40, [2, 1], 24, 0, 0)),
                "the file ends before 1 rows of 8 bytes",
            ),
            (make_runs_file(&[4, 1]), "the run-length codes end early"),
            (make_runs_file(&[2, 0, 0, 3, 0, 0, 0, 0]), "3 pixels at 2, 0 do not fit the row"),
            (
                make_runs_file(&[2, 0, 0, 2, 3, 0]),
                "a run-length code leads to 5, 0, outside of the image",
            ),
            (
                make_runs_file(&[0, 2, 0, 2]),
                "a run-length code leads to 0, 2, outside of the image",
            ),
        ];
        for (file, what) in cases {
            let error = decode(&file).expect_err(what);
            assert!(error.contains(what), "{error} is not about: {what}");
        }
    }

    #[test]
    fn damaged_files_give_pixels_or_an_error() {
        for (name, file, pixels) in make_files() {
            for end in 0..file.len() {
                let cut = decode(&file[..end]);
                // The end marker of run-length encoded pixels may be missing.
                assert!(cut.is_err() || cut == Ok(pixels.clone()), "{name}, {end} bytes");
            }
            for bit in 0..8 * file.len() {
                let mut flipped = file.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                if Bmp::open(&flipped).is_ok_and(|bmp| bmp.layout().count_bytes() < 1 << 20) {
                    let _ = decode(&flipped);
                }
            }
        }
    }
}
