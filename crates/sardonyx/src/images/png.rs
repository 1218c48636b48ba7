//! PNG images, decoded by the crate `png`.

use std::io::Cursor;

use ::png::{BitDepth, ColorType, Decoder, Limits, Reader, Transformations};

use super::allocate_zeros;
use super::bitmaps::{BitmapLayout, SMALL, Samples};
use super::orientation::Orientation;

/// A PNG image whose header has been read.
pub(super) struct Png<'a> {
    reader: Reader<Cursor<&'a [u8]>>,
    layout: BitmapLayout,
}

impl<'a> Png<'a> {
    /// Reads all chunks of a PNG file before the pixels.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Png<'a>, String> {
        // The limit includes buffered rows; the size of the image is limited elsewhere.
        let bytes = encoded.len().saturating_mul(4).saturating_add(SMALL);
        let mut decoder = Decoder::new_with_limits(Cursor::new(encoded), Limits { bytes });
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        // Expands palettes to colors and samples of 1 to 4 bits to 8; samples of 16 bits stay.
        decoder.set_transformations(Transformations::EXPAND);
        let reader = decoder.read_info().map_err(|error| error.to_string())?;
        let (width, height) = reader.info().size();
        let (color, depth) = reader.output_color_type();
        let channels = match color {
            ColorType::Grayscale => 1,
            ColorType::GrayscaleAlpha => 2,
            ColorType::Rgb => 3,
            ColorType::Rgba => 4,
            ColorType::Indexed => return Err("the image has no palette".to_string()),
        };
        let is_wide = match depth {
            BitDepth::Eight => false,
            BitDepth::Sixteen => true,
            _ => return Err(format!("samples of {} bits are not supported", depth as u8)),
        };
        let layout =
            BitmapLayout { width: width as usize, height: height as usize, channels, is_wide };
        Ok(Png { reader, layout })
    }
}

impl Samples for Png<'_> {
    fn layout(&self) -> BitmapLayout {
        self.layout
    }

    fn orientation(&mut self) -> Orientation {
        let exif = self.reader.info().exif_metadata.as_deref();
        exif.map(Orientation::from_exif).unwrap_or_default()
    }

    fn read(mut self: Box<Self>) -> Result<Vec<u8>, String> {
        let mut out = allocate_zeros(self.layout.count_bytes())?;
        self.reader.next_frame(&mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }
}
