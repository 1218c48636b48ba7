//! TIFF, by the crate `tiff`: the first image of a file.

use std::io::Cursor;

use ::tiff::decoder::{ChunkType, Decoder, Limits};
use ::tiff::tags::{SampleFormat, Tag};
use ::tiff::{ColorType, TiffError};

use super::bitmaps::{Layout, SMALL, Samples};
use super::orientation::Orientation;
use super::zeros;

/// An image that is not decoded yet.
pub(super) struct Tiff<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    layout: Layout,
    form: Form,
}

/// Difference between the samples of a file and those that are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Plain,
    /// Eight samples a byte, rows padded to bytes.
    Bits,
    /// Inks in place of colors.
    Cmyk,
}

impl<'a> Tiff<'a> {
    /// Reads the directory of the first image.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Tiff<'a>, String> {
        let failed = |error: TiffError| error.to_string();
        let mut decoder = Decoder::new(Cursor::new(encoded)).map_err(failed)?;
        let (width, height) = decoder.dimensions().map_err(failed)?;
        let color = decoder.colortype().map_err(failed)?;
        let (channels, bits, form) = match color {
            ColorType::Gray(1) => (1, 8, Form::Bits),
            ColorType::Gray(bits) => (1, bits, Form::Plain),
            ColorType::GrayA(bits) => (2, bits, Form::Plain),
            ColorType::RGB(bits) => (3, bits, Form::Plain),
            ColorType::RGBA(bits) => (4, bits, Form::Plain),
            ColorType::CMYK(bits) => (3, bits, Form::Cmyk),
            other => return Err(format!("pixels of the type {other:?} are not supported")),
        };
        if !matches!(bits, 8 | 16) {
            return Err(format!("pixels of the type {color:?} are not supported"));
        }
        let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat).map_err(failed)?;
        let is_uint = |format: &u16| *format == SampleFormat::Uint.to_u16();
        if let Some(other) = formats.iter().flatten().find(|format| !is_uint(format)) {
            return Err(format!("the sample format {other} is not supported"));
        }
        let is_wide = bits == 16;
        let layout = Layout { width: width as usize, height: height as usize, channels, is_wide };
        let bytes = layout.bytes().saturating_add(SMALL);
        // Beside the samples, whose memory is not the decoder's.
        let mut limits = Limits::default();
        limits.intermediate_buffer_size = bytes;
        limits.ifd_value_size = bytes;
        Ok(Tiff { decoder: decoder.with_limits(limits), layout, form })
    }
}

impl Samples for Tiff<'_> {
    fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the bytes of the samples in the file, of which inks have four channels.
    fn working_bytes(&self) -> usize {
        match self.form {
            Form::Cmyk => (self.layout.bytes() / 3).saturating_mul(4),
            Form::Plain | Form::Bits => self.layout.bytes(),
        }
    }

    fn orientation(&mut self) -> Orientation {
        let tag = self.decoder.find_tag_unsigned(Tag::Orientation).ok().flatten();
        tag.and_then(Orientation::new).unwrap_or_default()
    }

    fn read(mut self: Box<Self>) -> Result<Vec<u8>, String> {
        let failed = |error: TiffError| error.to_string();
        let Layout { width, height, channels, is_wide } = self.layout;
        let stored = self.decoder.image_buffer_layout().map_err(failed)?;
        let size = if is_wide { 2 } else { 1 };
        let expected = match self.form {
            Form::Plain => self.layout.bytes(),
            Form::Bits => width.div_ceil(8) * height,
            Form::Cmyk => self.layout.bytes() / 3 * 4,
        };
        if stored.complete_len != expected {
            return Err(format!(
                "{} bytes of samples do not fit {width} x {height} pixels",
                stored.complete_len
            ));
        }
        if stored.planes > 1 && self.form == Form::Cmyk {
            return Err("CMYK in planes is not supported".to_string());
        }
        // `tiff` 0.11 takes the tiles of the second plane for rows below the image, and panics.
        let is_tiled = self.decoder.get_chunk_type() == ChunkType::Tile;
        let tile_rows = self.decoder.chunk_dimensions().1 as usize;
        if stored.planes > 1 && is_tiled && height % tile_rows != 0 {
            return Err("tiles in planes, and rows that do not fill them, are not supported".into());
        }
        let mut bytes = zeros::<u8>(expected)?;
        self.decoder.read_image_bytes(&mut bytes).map_err(failed)?;
        if is_wide && cfg!(target_endian = "little") {
            bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|sample| sample.reverse());
        }
        if stored.planes == 1 && self.form == Form::Plain {
            return Ok(bytes);
        }
        let mut out = zeros(self.layout.bytes())?;
        match self.form {
            Form::Plain => {
                let planes = bytes.chunks_exact(width * height * size);
                for (channel, plane) in planes.take(channels).enumerate() {
                    let pixels = out.chunks_exact_mut(channels * size);
                    for (pixel, sample) in pixels.zip(plane.chunks_exact(size)) {
                        pixel[channel * size..][..size].copy_from_slice(sample);
                    }
                }
            }
            Form::Bits => {
                let rows = bytes.chunks_exact(width.div_ceil(8));
                for (out, row) in out.chunks_exact_mut(width).zip(rows) {
                    for (x, sample) in out.iter_mut().enumerate() {
                        *sample = if row[x / 8] << (x % 8) & 0x80 == 0 { 0 } else { 255 };
                    }
                }
            }
            Form::Cmyk if is_wide => {
                let inks = bytes.as_chunks::<2>().0.as_chunks::<4>().0;
                for (pixel, inks) in
                    out.as_chunks_mut::<2>().0.as_chunks_mut().0.iter_mut().zip(inks)
                {
                    let inks = inks.map(|ink| f32::from(u16::from_be_bytes(ink)));
                    *pixel = colors(inks, 65535.0).map(|color| (color as u16).to_be_bytes());
                }
            }
            Form::Cmyk => {
                for (pixel, inks) in out.as_chunks_mut().0.iter_mut().zip(bytes.as_chunks().0) {
                    *pixel = colors(inks.map(f32::from), 255.0).map(|color| color as u8);
                }
            }
        }
        Ok(out)
    }
}

/// Returns the parts of white that inks for cyan, magenta, yellow and black leave. `max` is white,
/// and the most of an ink.
fn colors([cyan, magenta, yellow, black]: [f32; 4], max: f32) -> [f32; 3] {
    let light = 1.0 - black / max;
    [cyan, magenta, yellow].map(|ink| (max - ink) * light)
}
