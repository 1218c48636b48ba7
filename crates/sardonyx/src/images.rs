//! Image decoding for the operator `ImageDecoder` and for [`DecodedImage`]. The first bytes of a
//! file determine its format.
//!
//! The operator gets RGB, BGR or luma with 8 bits a channel. Palettes are resolved; transparency,
//! colour profiles and Exif orientation are ignored; samples of 16 bits keep their upper 8.

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

/// Maximum number of pixels of an image that is decoded, as a small file can declare any size.
/// Equals the limit of Pillow, which defines the results of the operator `ImageDecoder`.
const MOST_PIXELS: usize = 178_956_970;

/// Decoder of the formats that the ONNX standard lists: BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and
/// WebP. Sessions use it unless [another decoder is set](crate::SessionBuilder::image_decoder).
#[derive(Debug, Clone, Copy, Default)]
pub struct Images;

impl ImageDecoder for Images {
    fn open<'a>(&self, encoded: &'a [u8]) -> Result<Box<dyn EncodedImage + 'a>, OperatorError> {
        Ok(Box::new(Encoded::open(encoded)?))
    }
}

/// An encoded image whose header has been read.
trait Image {
    /// Returns the width and height of the image, in pixels.
    fn size(&self) -> [usize; 2];

    /// Returns the memory that decoding the image takes beside the output, in bytes; see
    /// [`EncodedImage::working_bytes`].
    fn working_bytes(&self) -> usize;

    /// Decodes the image into `out`, in the pixel format `format` of the operator; see
    /// [`EncodedImage::decode`].
    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String>;

    /// Returns the number of channels that [`Image::decode_channels`] decodes, from 1 to 4.
    fn channels(&self) -> usize;

    /// Returns the Exif orientation in the image's metadata; upright without metadata.
    fn orientation(&mut self) -> Orientation {
        Orientation::default()
    }

    /// Decodes all channels of the image, 8 bits each, alpha last.
    fn decode_channels(self: Box<Self>) -> Result<Vec<u8>, String> {
        let ([width, height], channels) = (self.size(), self.channels());
        let format = if channels == 1 { PixelFormat::Grayscale } else { PixelFormat::Rgb };
        let mut out = allocate_zeros(width.saturating_mul(height).saturating_mul(channels))?;
        self.decode(format, &mut out)?;
        Ok(out)
    }
}

/// Boxes an image of any format.
fn box_image<'a>(image: impl Image + 'a) -> Box<dyn Image + 'a> {
    Box::new(image)
}

/// An encoded image whose header has been read, with the name of its format for error messages.
struct Encoded<'a> {
    name: &'static str,
    image: Box<dyn Image + 'a>,
}

impl<'a> Encoded<'a> {
    /// Detects the format of an encoded image and reads the header.
    fn open(encoded: &'a [u8]) -> Result<Encoded<'a>, String> {
        let (name, image) = match encoded {
            [] => return Err("the image file is empty".to_string()),
            [0xff, 0xd8, 0xff, ..] => ("JPEG", Jpeg::open(encoded).map(box_image)),
            _ if jpeg2000::has_signature(encoded) => {
                ("JPEG 2000", Jpeg2000::open(encoded).map(box_image))
            }
            _ => match Bitmap::open(encoded) {
                Some((name, image)) => (name, image.map(box_image)),
                None => {
                    let formats = "BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP";
                    return Err(format!("the image format is not one of {formats}"));
                }
            },
        };
        let image = image.map_err(|what| format!("{name}: {what}"))?;
        let [width, height] = image.size();
        if width.checked_mul(height).is_none_or(|pixels| pixels > MOST_PIXELS) {
            return Err(format!(
                "{name}: the image size is {width} x {height}, above the limit of {MOST_PIXELS} pixels"
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

/// Allocates a vector of `len` zeros; returns an error message if there is not enough memory.
fn allocate_zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>, String> {
    let mut zeros = Vec::new();
    let reserved = zeros.try_reserve_exact(len);
    reserved.map_err(|_| {
        format!("not enough memory for {} bytes", len.saturating_mul(size_of::<T>()))
    })?;
    zeros.resize(len, T::default());
    Ok(zeros)
}
