//! BMP, PNG, PNM, TIFF and WebP, which the crate `image` decodes.

use std::io::Cursor;

use image::{ColorType, ImageDecoder, ImageFormat, ImageReader, Limits};
use sardonyx_runtime::PixelFormat;

use super::Image;
use super::pixels::put;

/// Bytes for what does not grow with the image: tables, palettes, texts beside the pixels.
const SMALL: usize = 16 << 20;

/// Which of the formats a file has, by its first bytes.
pub(super) fn format(encoded: &[u8]) -> Option<(&'static str, ImageFormat)> {
    match encoded {
        [b'B', b'M', ..] => Some(("BMP", ImageFormat::Bmp)),
        [0x89, b'P', b'N', b'G', ..] => Some(("PNG", ImageFormat::Png)),
        [b'P', b'1'..=b'7', ..] => Some(("PNM", ImageFormat::Pnm)),
        [b'I', b'I', 42, 0, ..] | [b'M', b'M', 0, 42, ..] => Some(("TIFF", ImageFormat::Tiff)),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => {
            Some(("WebP", ImageFormat::WebP))
        }
        _ => None,
    }
}

/// An image that is not decoded yet.
pub(super) struct Bitmap<'a> {
    decoder: Box<dyn ImageDecoder + 'a>,
}

impl<'a> Bitmap<'a> {
    pub(super) fn open(encoded: &'a [u8], format: ImageFormat) -> Result<Bitmap<'a>, String> {
        let mut reader = ImageReader::with_format(Cursor::new(encoded), format);
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(SMALL as u64);
        // That of PNG counts the rows as well, which are compared with the size of the image
        // before.
        if format == ImageFormat::Png {
            limits.max_alloc = Some((SMALL + encoded.len() * 4) as u64);
        }
        reader.limits(limits);
        let decoder = reader.into_decoder().map_err(|error| error.to_string())?;
        Ok(Bitmap { decoder: Box::new(decoder) })
    }
}

impl Image for Bitmap<'_> {
    fn size(&self) -> [usize; 2] {
        let (width, height) = self.decoder.dimensions();
        [width as usize, height as usize]
    }

    /// The pixels as the file has them, and as much for what the decoder keeps.
    fn working_bytes(&self) -> usize {
        usize::try_from(self.decoder.total_bytes()).unwrap_or(usize::MAX).saturating_mul(2)
    }

    fn decode(mut self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String> {
        let color = self.decoder.color_type();
        let channels = usize::from(color.channel_count());
        let wide = match color {
            ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => 1,
            ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => 2,
            other => return Err(format!("pixels of the type {other:?} are not supported")),
        };
        let len = usize::try_from(self.decoder.total_bytes());
        let mut bytes = super::zeros(len.unwrap_or(usize::MAX))?;
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some((bytes.len() as u64).saturating_mul(2) + SMALL as u64);
        let failed = |error: image::ImageError| error.to_string();
        self.decoder.set_limits(limits).map_err(failed)?;
        self.decoder.read_image_boxed(&mut bytes).map_err(failed)?;
        // The upper byte of two.
        let upper = if wide == 2 && cfg!(target_endian = "little") { 1 } else { 0 };
        let pixels = bytes.chunks_exact(channels * wide).map(|pixel| {
            let sample = |channel: usize| pixel[channel * wide + upper];
            match channels {
                1 | 2 => [sample(0); 3],
                _ => [sample(0), sample(1), sample(2)],
            }
        });
        put(format, pixels, out);
        Ok(())
    }
}
