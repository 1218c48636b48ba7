//! BMP, PNG, PNM, TIFF and WebP: formats whose decoders give samples of 8 or 16 bits.

use sardonyx_runtime::PixelFormat;

use super::Image;
use super::bmp::Bmp;
use super::orientation::Orientation;
use super::pixels::put;
use super::png::Png;
use super::pnm::Pnm;
use super::tiff::Tiff;
use super::webp::WebP;

/// Bytes for what does not grow with the image: tables, palettes, texts beside the pixels.
pub(super) const SMALL: usize = 16 << 20;

/// Size of an image and form of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Grey, grey and alpha, red, green and blue, or these and alpha: 1 to 4.
    pub(super) channels: usize,
    /// Whether samples have 16 bits, not 8.
    pub(super) is_wide: bool,
}

impl Layout {
    /// Returns the number of samples. Saturates.
    pub(super) fn samples(&self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.channels)
    }

    /// Returns the number of bytes of all samples. Saturates.
    pub(super) fn bytes(&self) -> usize {
        self.samples().saturating_mul(if self.is_wide { 2 } else { 1 })
    }
}

/// A file of one of the formats that is not decoded yet.
pub(super) trait Samples {
    fn layout(&self) -> Layout;

    /// Returns the bytes that decoding takes at most, beside the samples.
    fn working_bytes(&self) -> usize {
        self.layout().bytes()
    }

    /// Returns the orientation that the file stores.
    fn orientation(&mut self) -> Orientation {
        Orientation::default()
    }

    /// Decodes all samples: rows from the top, pixels from the left, alpha last. The first byte of
    /// 16 bits is the upper one.
    fn read(self: Box<Self>) -> Result<Vec<u8>, String>;
}

/// An image that is not decoded yet.
pub(super) struct Bitmap<'a> {
    samples: Box<dyn Samples + 'a>,
}

fn boxed<'a>(samples: impl Samples + 'a) -> Box<dyn Samples + 'a> {
    Box::new(samples)
}

impl<'a> Bitmap<'a> {
    /// Reads the header of a file, with the name of its format. Returns `None` for other formats.
    pub(super) fn open(encoded: &'a [u8]) -> Option<(&'static str, Result<Bitmap<'a>, String>)> {
        let (name, samples) = match encoded {
            [b'B', b'M', ..] => ("BMP", Bmp::open(encoded).map(boxed)),
            [0x89, b'P', b'N', b'G', ..] => ("PNG", Png::open(encoded).map(boxed)),
            [b'P', b'1'..=b'7', ..] => ("PNM", Pnm::open(encoded).map(boxed)),
            [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => {
                ("TIFF", Tiff::open(encoded).map(boxed))
            }
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
                ("WebP", WebP::open(encoded).map(boxed))
            }
            _ => return None,
        };
        Some((name, samples.map(|samples| Bitmap { samples })))
    }
}

impl Image for Bitmap<'_> {
    fn size(&self) -> [usize; 2] {
        let Layout { width, height, .. } = self.samples.layout();
        [width, height]
    }

    /// Adds the samples as the file has them to the decoder's memory.
    fn working_bytes(&self) -> usize {
        self.samples.layout().bytes().saturating_add(self.samples.working_bytes())
    }

    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String> {
        let Layout { channels, is_wide, .. } = self.samples.layout();
        let bytes = self.samples.read()?;
        // The upper byte of two.
        let size = if is_wide { 2 } else { 1 };
        let pixels = bytes.chunks_exact(channels * size).map(|pixel| {
            let sample = |channel: usize| pixel[channel * size];
            match channels {
                1 | 2 => [sample(0); 3],
                _ => [sample(0), sample(1), sample(2)],
            }
        });
        put(format, pixels, out);
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
                // The nearest part of 255.
                bytes[at] = ((u32::from(wide) + 128) / 257) as u8;
            }
            bytes.truncate(bytes.len() / 2);
        }
        Ok(bytes)
    }
}
