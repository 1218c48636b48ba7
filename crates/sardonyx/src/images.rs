//! Images: formats, by the first bytes of a file, for the operator `ImageDecoder` and as
//! [`DecodedImage`]s.
//!
//! For the operator, whatever a file holds, red, green, blue or brightness come out, 8 bits each.
//! Palettes are looked up; transparency, profiles of colours and the orientation of a camera are
//! left out; of samples of 16 bits the upper 8 remain.

mod bitmaps;
mod bmp;
mod decoded;
mod jpeg;
mod jpeg2000;
mod orientation;
mod pixels;
mod png;
mod pnm;
mod resize;
mod tiff;
mod webp;

use sardonyx_runtime::{EncodedImage, ImageDecoder, OperatorError, PixelFormat};

use bitmaps::Bitmap;
pub use decoded::{DecodeLimits, DecodedImage};
use jpeg::Jpeg;
use jpeg2000::Jpeg2000;
use orientation::Orientation;

/// The most pixels of an image that is decoded: a small file can name any size, and not every
/// session has a memory limit. Pillow, by which the operator is defined, draws the line here too.
const MOST_PIXELS: usize = 178_956_970;

/// Decodes the formats of the standard: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP. Sessions
/// have it unless they are [given another](crate::SessionBuilder::image_decoder).
#[derive(Debug, Clone, Copy, Default)]
pub struct Images;

impl ImageDecoder for Images {
    fn open<'a>(&self, encoded: &'a [u8]) -> Result<Box<dyn EncodedImage + 'a>, OperatorError> {
        Ok(Box::new(Encoded::open(encoded)?))
    }
}

/// An image of one of the formats, which is not decoded yet.
trait Image {
    /// Width and height.
    fn size(&self) -> [usize; 2];

    /// As [`EncodedImage::working_bytes`].
    fn working_bytes(&self) -> usize;

    /// As [`EncodedImage::decode`].
    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String>;

    /// Returns how many channels [`Image::decode_channels`] gives: 1 to 4.
    fn channels(&self) -> usize;

    /// Returns the orientation that the file stores.
    fn orientation(&mut self) -> Orientation {
        Orientation::default()
    }

    /// Decodes all channels, 8 bits each, alpha last.
    fn decode_channels(self: Box<Self>) -> Result<Vec<u8>, String> {
        let ([width, height], channels) = (self.size(), self.channels());
        let format = if channels == 1 { PixelFormat::Grayscale } else { PixelFormat::Rgb };
        let mut out = zeros(width.saturating_mul(height).saturating_mul(channels))?;
        self.decode(format, &mut out)?;
        Ok(out)
    }
}

fn boxed<'a>(image: impl Image + 'a) -> Box<dyn Image + 'a> {
    Box::new(image)
}

/// An image with the name of its format, which its errors say.
struct Encoded<'a> {
    name: &'static str,
    image: Box<dyn Image + 'a>,
}

impl<'a> Encoded<'a> {
    /// Reads the header of an image of any format.
    fn open(encoded: &'a [u8]) -> Result<Encoded<'a>, String> {
        let (name, image) = match encoded {
            [] => return Err("the file is empty".to_string()),
            [0xff, 0xd8, 0xff, ..] => ("JPEG", Jpeg::open(encoded).map(boxed)),
            _ if jpeg2000::is(encoded) => ("JPEG 2000", Jpeg2000::open(encoded).map(boxed)),
            _ => match Bitmap::open(encoded) {
                Some((name, image)) => (name, image.map(boxed)),
                None => {
                    let formats = "BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP";
                    return Err(format!("its format is not one of {formats}"));
                }
            },
        };
        let image = image.map_err(|what| format!("{name}: {what}"))?;
        let [width, height] = image.size();
        if width.checked_mul(height).is_none_or(|pixels| pixels > MOST_PIXELS) {
            return Err(format!(
                "{name}: the size is {width} x {height}, above the limit of {MOST_PIXELS} pixels"
            ));
        }
        Ok(Encoded { name, image })
    }
}

impl EncodedImage for Encoded<'_> {
    fn width(&self) -> usize {
        self.image.size()[0]
    }

    fn height(&self) -> usize {
        self.image.size()[1]
    }

    fn working_bytes(&self) -> usize {
        self.image.working_bytes()
    }

    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), OperatorError> {
        let Encoded { name, image } = *self;
        image.decode(format, out).map_err(|what| format!("{name}: {what}").into())
    }
}

/// Elements that are all zero, or that there is no memory for them.
fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>, String> {
    let mut zeros = Vec::new();
    let reserved = zeros.try_reserve_exact(len);
    reserved.map_err(|_| {
        format!("not enough memory for {} bytes", len.saturating_mul(size_of::<T>()))
    })?;
    zeros.resize(len, T::default());
    Ok(zeros)
}
