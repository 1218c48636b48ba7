//! TIFF images, decoded by the crate `tiff`; only the first image of a file.

use std::io::Cursor;

use ::tiff::decoder::{ChunkType, Decoder, Limits};
use ::tiff::tags::{SampleFormat, Tag};
use ::tiff::{ColorType, TiffError};

use super::allocate_zeros;
use super::bitmaps::{BitmapLayout, SMALL, Samples};
use super::orientation::Orientation;

/// A TIFF image whose image file directory (IFD) has been read.
pub(super) struct Tiff<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    layout: BitmapLayout,
    coding: Coding,
}

/// Coding of the samples in a TIFF file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Coding {
    /// Samples of 8 or 16 bits, grey or RGB.
    Plain,
    /// One bit a sample, rows padded to bytes.
    Bits,
    /// Inks instead of colors, four samples a pixel.
    Cmyk,
}

impl<'a> Tiff<'a> {
    /// Reads the image file directory (IFD) of the first image in a TIFF file.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Tiff<'a>, String> {
        let mut decoder = Decoder::new(Cursor::new(encoded)).map_err(to_message)?;
        let (width, height) = decoder.dimensions().map_err(to_message)?;
        let color = decoder.colortype().map_err(to_message)?;
        let (channels, bits, coding) = match color {
            ColorType::Gray(1) => (1, 8, Coding::Bits),
            ColorType::Gray(bits) => (1, bits, Coding::Plain),
            ColorType::GrayA(bits) => (2, bits, Coding::Plain),
            ColorType::RGB(bits) => (3, bits, Coding::Plain),
            ColorType::RGBA(bits) => (4, bits, Coding::Plain),
            ColorType::CMYK(bits) => (3, bits, Coding::Cmyk),
            other => return Err(format!("pixels of the type {other:?} are not supported")),
        };
        if !matches!(bits, 8 | 16) {
            return Err(format!("pixels of the type {color:?} are not supported"));
        }
        let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat);
        for format in formats.map_err(to_message)?.iter().flatten() {
            if *format != SampleFormat::Uint.to_u16() {
                return Err(format!("the sample format {format} is not supported"));
            }
        }
        let is_wide = bits == 16;
        let layout =
            BitmapLayout { width: width as usize, height: height as usize, channels, is_wide };
        let bytes = layout.count_bytes().saturating_add(SMALL);
        // The samples themselves are not the decoder's memory.
        let mut limits = Limits::default();
        limits.intermediate_buffer_size = bytes;
        limits.ifd_value_size = bytes;
        Ok(Tiff { decoder: decoder.with_limits(limits), layout, coding })
    }
}

/// Converts an error of the crate `tiff` into an error message.
fn to_message(error: TiffError) -> String {
    error.to_string()
}

impl Samples for Tiff<'_> {
    fn layout(&self) -> BitmapLayout {
        self.layout
    }

    /// Returns the size of the samples before conversion, in bytes; CMYK has four samples a pixel.
    fn working_bytes(&self) -> usize {
        match self.coding {
            Coding::Cmyk => (self.layout.count_bytes() / 3).saturating_mul(4),
            Coding::Plain | Coding::Bits => self.layout.count_bytes(),
        }
    }

    fn orientation(&mut self) -> Orientation {
        let tag = self.decoder.find_tag_unsigned(Tag::Orientation).ok().flatten();
        tag.and_then(Orientation::new).unwrap_or_default()
    }

    fn read(mut self: Box<Self>) -> Result<Vec<u8>, String> {
        let BitmapLayout { width, height, channels, is_wide } = self.layout;
        let stored = self.decoder.image_buffer_layout().map_err(to_message)?;
        let size = if is_wide { 2 } else { 1 };
        let expected = match self.coding {
            Coding::Plain => self.layout.count_bytes(),
            Coding::Bits => width.div_ceil(8) * height,
            Coding::Cmyk => self.layout.count_bytes() / 3 * 4,
        };
        if stored.complete_len != expected {
            return Err(format!(
                "{} bytes of samples do not fit {width} x {height} pixels",
                stored.complete_len
            ));
        }
        if stored.planes > 1 && self.coding == Coding::Cmyk {
            return Err("CMYK in separate planes is not supported".to_string());
        }
        // `tiff` 0.11 panics here: it treats tiles of the second plane as rows below the image.
        let is_tiled = self.decoder.get_chunk_type() == ChunkType::Tile;
        let tile_rows = self.decoder.chunk_dimensions().1 as usize;
        if stored.planes > 1 && is_tiled && height % tile_rows != 0 {
            return Err("separate planes with partly filled tiles are not supported".into());
        }
        let mut bytes = allocate_zeros::<u8>(expected)?;
        self.decoder.read_image_bytes(&mut bytes).map_err(to_message)?;
        if is_wide && cfg!(target_endian = "little") {
            bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|sample| sample.reverse());
        }
        if stored.planes == 1 && self.coding == Coding::Plain {
            return Ok(bytes);
        }
        let mut out = allocate_zeros(self.layout.count_bytes())?;
        match self.coding {
            Coding::Plain => {
                let planes = bytes.chunks_exact(width * height * size);
                for (channel, plane) in planes.take(channels).enumerate() {
                    let pixels = out.chunks_exact_mut(channels * size);
                    for (pixel, sample) in pixels.zip(plane.chunks_exact(size)) {
                        pixel[channel * size..][..size].copy_from_slice(sample);
                    }
                }
            }
            Coding::Bits => {
                let rows = bytes.chunks_exact(width.div_ceil(8));
                for (out, row) in out.chunks_exact_mut(width).zip(rows) {
                    for (x, sample) in out.iter_mut().enumerate() {
                        *sample = if row[x / 8] << (x % 8) & 0x80 == 0 { 0 } else { 255 };
                    }
                }
            }
            Coding::Cmyk if is_wide => {
                let inks = bytes.as_chunks::<2>().0.as_chunks::<4>().0;
                for (pixel, inks) in
                    out.as_chunks_mut::<2>().0.as_chunks_mut().0.iter_mut().zip(inks)
                {
                    let inks = inks.map(|ink| f32::from(u16::from_be_bytes(ink)));
                    *pixel = cmyk_to_rgb(inks, 65535.0).map(|color| (color as u16).to_be_bytes());
                }
            }
            Coding::Cmyk => {
                for (pixel, inks) in out.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
                    *pixel = cmyk_to_rgb(inks.map(f32::from), 255.0).map(|color| color as u8);
                }
            }
        }
        Ok(out)
    }
}

/// Cyan, magenta, yellow and black of a pixel, from 0 to the largest sample.
type Cmyk = [f32; 4];

/// Converts a pixel from CMYK into RGB. `max` is the largest sample: full ink, or full light.
fn cmyk_to_rgb([cyan, magenta, yellow, black]: Cmyk, max: f32) -> [f32; 3] {
    let light = 1.0 - black / max;
    [cyan, magenta, yellow].map(|ink| (max - ink) * light)
}
