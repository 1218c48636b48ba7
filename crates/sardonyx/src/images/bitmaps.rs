//! Common part of BMP, PNG, PNM, TIFF and WebP, whose decoders return samples of 8 or 16 bits.

use sardonyx_runtime::PixelFormat;

use super::Image;
use super::bmp::Bmp;
use super::orientation::Orientation;
use super::pixels::convert_pixels;
use super::png::Png;
use super::pnm::Pnm;
use super::tiff::Tiff;
use super::webp::WebP;

/// Memory limit, in bytes, for data of a file whose size does not depend on the image size: tables,
/// palettes, metadata.
pub(super) const SMALL: usize = 16 << 20;

/// Size of an image in pixels, number of channels, and width of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BitmapLayout {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Number of channels: 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGB, alpha).
    pub(super) channels: usize,
    /// Whether samples have 16 bits instead of 8.
    pub(super) is_wide: bool,
}

impl BitmapLayout {
    /// Returns the number of samples in the image; `usize::MAX` if it overflows.
    pub(super) fn count_samples(&self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.channels)
    }

    /// Returns the size of all samples in bytes; `usize::MAX` if it overflows.
    pub(super) fn count_bytes(&self) -> usize {
        self.count_samples().saturating_mul(if self.is_wide { 2 } else { 1 })
    }
}

/// An encoded BMP, PNG, PNM, TIFF or WebP image whose header has been read.
pub(super) trait Samples {
    /// Returns the size of the image, and the number of channels and the sample width that
    /// [`Samples::read`] decodes.
    fn layout(&self) -> BitmapLayout;

    /// Returns the maximum memory of the decoder in bytes, without the decoded samples.
    fn working_bytes(&self) -> usize {
        self.layout().count_bytes()
    }

    /// Returns the orientation in the metadata of the image; upright without metadata.
    fn orientation(&mut self) -> Orientation {
        Orientation::default()
    }

    /// Decodes all samples of the image: rows from the top, pixels from the left, alpha last.
    /// Samples of 16 bits are big-endian.
    fn read(self: Box<Self>) -> Result<Vec<u8>, String>;
}

/// Adapter from [`Samples`] to [`Image`].
pub(super) struct Bitmap<'a> {
    samples: Box<dyn Samples + 'a>,
}

/// Boxes an image of any bitmap format.
fn box_samples<'a>(samples: impl Samples + 'a) -> Box<dyn Samples + 'a> {
    Box::new(samples)
}

impl<'a> Bitmap<'a> {
    /// Reads the header of a BMP, PNG, PNM, TIFF or WebP file. Returns the name of the format and
    /// the image; `None` for any other format.
    pub(super) fn open(encoded: &'a [u8]) -> Option<(&'static str, Result<Bitmap<'a>, String>)> {
        let (name, samples) = match encoded {
            [b'B', b'M', ..] => ("BMP", Bmp::open(encoded).map(box_samples)),
            [0x89, b'P', b'N', b'G', ..] => ("PNG", Png::open(encoded).map(box_samples)),
            [b'P', b'1'..=b'7', ..] => ("PNM", Pnm::open(encoded).map(box_samples)),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => {
                ("TIFF", Tiff::open(encoded).map(box_samples))
            }
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
                ("WebP", WebP::open(encoded).map(box_samples))
            }
            _ => return None,
        };
        Some((name, samples.map(|samples| Bitmap { samples })))
    }
}

impl Image for Bitmap<'_> {
    fn size(&self) -> [usize; 2] {
        let BitmapLayout { width, height, .. } = self.samples.layout();
        [width, height]
    }

    /// Returns the memory of the decoder and of the decoded samples before conversion, in bytes.
    fn working_bytes(&self) -> usize {
        self.samples.layout().count_bytes().saturating_add(self.samples.working_bytes())
    }

    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String> {
        let BitmapLayout { channels, is_wide, .. } = self.samples.layout();
        let bytes = self.samples.read()?;
        // Samples of 16 bits are big-endian, so their first byte is the upper one.
        let size = if is_wide { 2 } else { 1 };
        let pixels = bytes.chunks_exact(channels * size).map(|pixel| match channels {
            1 | 2 => [pixel[0]; 3],
            _ => [pixel[0], pixel[size], pixel[2 * size]],
        });
        convert_pixels(format, pixels, out);
        Ok(())
    }

    fn channels(&self) -> usize {
        self.samples.layout().channels
    }

    fn orientation(&mut self) -> Orientation {
        self.samples.orientation()
    }

    fn decode_channels(self: Box<Self>) -> Result<Vec<u8>, String> {
        let is_wide = self.samples.layout().is_wide;
        let mut bytes = self.samples.read()?;
        if is_wide {
            for at in 0..bytes.len() / 2 {
                let wide = u16::from_be_bytes([bytes[2 * at], bytes[2 * at + 1]]);
                // Scales 65535 to 255, rounded to the nearest.
                bytes[at] = ((u32::from(wide) + 128) / 257) as u8;
            }
            bytes.truncate(bytes.len() / 2);
        }
        Ok(bytes)
    }
}
