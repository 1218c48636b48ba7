//! WebP images, decoded by the crate `image-webp`.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::allocate_zeros;
use super::bitmaps::{BitmapLayout, Samples};
use super::orientation::Orientation;

/// A WebP image whose chunk headers have been read.
pub(super) struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
}

impl<'a> WebP<'a> {
    /// Reads the headers of all chunks of a WebP file.
    pub(super) fn open(encoded: &'a [u8]) -> Result<WebP<'a>, String> {
        let decoder = WebPDecoder::new(Cursor::new(encoded));
        let mut decoder = decoder.map_err(|error| error.to_string())?;
        // Metadata cannot be longer than the file, whatever length their header declares.
        decoder.set_memory_limit(encoded.len());
        Ok(WebP { decoder })
    }
}

impl Samples for WebP<'_> {
    fn layout(&self) -> BitmapLayout {
        let (width, height) = self.decoder.dimensions();
        let channels = if self.decoder.has_alpha() { 4 } else { 3 };
        BitmapLayout { width: width as usize, height: height as usize, channels, is_wide: false }
    }

    fn orientation(&mut self) -> Orientation {
        let exif = self.decoder.exif_metadata().ok().flatten();
        exif.map(|exif| Orientation::from_exif(&exif)).unwrap_or_default()
    }

    fn read(mut self: Box<Self>) -> Result<Vec<u8>, String> {
        let mut out = allocate_zeros(self.layout().count_bytes())?;
        self.decoder.read_image(&mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }
}
