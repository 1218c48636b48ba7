//! Decoded images with all their channels, turned upright, which can be resized and converted.

use super::orientation::Orientation;
use super::pixels::Rgb;
use super::resize::{Size, resize};
use super::{Encoded, Image, allocate_zeros};
use crate::error::{Error, ErrorKind};

/// Limits on the size of an image that [`DecodedImage::decode`] accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Maximum width and height of the image, in pixels. The default is 32,768.
    pub max_side: usize,
    /// Maximum memory of the image and the decoder together, in bytes. The default is 1 GiB.
    pub max_bytes: usize,
}

impl Default for DecodeLimits {
    /// Allows a width and height of 32,768 pixels, and 1 GiB of memory.
    fn default() -> DecodeLimits {
        DecodeLimits { max_side: 32_768, max_bytes: 1 << 30 }
    }
}

/// A decoded image with 8 bits a channel: rows from the top, pixels from the left, channels of a
/// pixel adjacent.
///
/// The channels are grey; grey and alpha; red, green and blue; or red, green, blue and alpha.
/// Requires the feature `images`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedImage {
    width: usize,
    height: usize,
    channels: usize,
    samples: Vec<u8>,
}

/// Weights of red, green and blue in the luminance of a color, for the primaries of ITU-R BT.709
/// and the white point D65.
const LUMINANCE: [f32; 3] = [0.212_647_84, 0.715_179_2, 0.072_173_04];

/// Computes the luminance of a color, rounded to an integer from 0 to 255.
fn compute_luminance(color: Rgb) -> u8 {
    let mut sum = 0.0;
    for (sample, weight) in color.iter().zip(LUMINANCE) {
        sum += f32::from(*sample) * (1.0 / 255.0) * weight;
    }
    (sum * 255.0 + 0.5) as u8
}

/// Makes the error for an image that cannot be decoded, for the reason `what`.
fn decode_error(what: String) -> Error {
    Error::new(ErrorKind::Format, format!("the image cannot be decoded: {what}"))
}

impl DecodedImage {
    /// Decodes an image in one of the formats BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP, and
    /// turns it upright by its Exif orientation. Samples of 16 bits are rounded to 8.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] for an unknown format, a malformed file, or an image above the limits,
    /// which is rejected before it is decoded.
    pub fn decode(encoded: &[u8], limits: &DecodeLimits) -> Result<DecodedImage, Error> {
        let Encoded { name, image } = Encoded::open(encoded).map_err(decode_error)?;
        DecodedImage::read(image, limits).map_err(|what| decode_error(format!("{name}: {what}")))
    }

    /// Decodes an image whose header has been read, if it is within the limits.
    fn read(mut image: Box<dyn Image + '_>, limits: &DecodeLimits) -> Result<DecodedImage, String> {
        let ([width, height], channels) = (image.size(), image.channels());
        let DecodeLimits { max_side, max_bytes } = *limits;
        if width == 0 || height == 0 {
            return Err(format!("the image has no pixels: its size is {width} x {height}"));
        }
        if width > max_side || height > max_side {
            return Err(format!(
                "the image size is {width} x {height}, above the limit of {max_side} pixels a side"
            ));
        }
        let pixels = width.saturating_mul(height).saturating_mul(channels);
        let bytes = pixels.saturating_add(image.working_bytes());
        if bytes > max_bytes {
            return Err(format!(
                "{width} x {height} pixels take {bytes} bytes, above the limit of {max_bytes} bytes"
            ));
        }
        let orientation = image.orientation();
        let samples = image.decode_channels()?;
        DecodedImage { width, height, channels, samples }.turn_upright(orientation)
    }

    /// Turns the image upright.
    fn turn_upright(self, orientation: Orientation) -> Result<DecodedImage, String> {
        if orientation.is_upright() {
            return Ok(self);
        }
        let DecodedImage { width, height, channels, .. } = self;
        let samples = orientation.apply(&self.samples, Size { width, height }, channels)?;
        let (width, height) =
            if orientation.is_transposed() { (height, width) } else { (width, height) };
        Ok(DecodedImage { width, height, channels, samples })
    }

    /// Returns the width of the image, in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the height of the image, in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the number of channels of a pixel, from 1 to 4, such as 3 for red, green and blue.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Returns the samples of the image, 8 bits each: rows from the top, pixels from the left,
    /// channels of a pixel adjacent.
    pub fn samples(&self) -> &[u8] {
        &self.samples
    }

    /// Converts the image into its samples, in the order of [`DecodedImage::samples`], without a
    /// copy.
    pub fn into_samples(self) -> Vec<u8> {
        self.samples
    }

    /// Converts the image to 1 channel (grey), 2 (grey and alpha), 3 (red, green and blue) or 4
    /// (red, green, blue and alpha). Drops a superfluous alpha channel; an added one is opaque.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for any other number of channels; [`ErrorKind::Run`] if there is not
    /// enough memory.
    pub fn into_channels(self, channels: usize) -> Result<DecodedImage, Error> {
        if channels == self.channels {
            return Ok(self);
        }
        if !(1..=4).contains(&channels) {
            let message = format!("an image must have 1 to 4 channels, not {channels}");
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let DecodedImage { width, height, channels: before, samples } = self;
        let mut out = allocate_zeros(samples.len() / before * channels)
            .map_err(|what| Error::new(ErrorKind::Run, what))?;
        for (out, pixel) in out.chunks_exact_mut(channels).zip(samples.chunks_exact(before)) {
            let (color, alpha) = match *pixel {
                [grey] => ([grey; 3], 255),
                [grey, alpha] => ([grey; 3], alpha),
                [red, green, blue] => ([red, green, blue], 255),
                [red, green, blue, alpha] => ([red, green, blue], alpha),
                _ => ([0; 3], 255),
            };
            match out {
                [out, rest @ ..] if channels <= 2 => {
                    *out = if before <= 2 { color[0] } else { compute_luminance(color) };
                    rest.fill(alpha);
                }
                _ => {
                    out[..3].copy_from_slice(&color);
                    out[3..].fill(alpha);
                }
            }
        }
        Ok(DecodedImage { width, height, channels, samples: out })
    }

    /// Resizes the image, without keeping its aspect ratio: interpolates linearly where it grows,
    /// and averages with a triangle filter where it shrinks. Alpha is treated like the colors.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for a width or height of 0; [`ErrorKind::Run`] if there is not
    /// enough memory.
    pub fn resize(self, width: usize, height: usize) -> Result<DecodedImage, Error> {
        if (width, height) == (self.width, self.height) {
            return Ok(self);
        }
        if width == 0 || height == 0 {
            let message = format!("an image cannot be resized to {width} x {height} pixels");
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let from = Size { width: self.width, height: self.height };
        let samples = resize(&self.samples, from, Size { width, height }, self.channels)
            .map_err(|what| Error::new(ErrorKind::Run, what))?;
        Ok(DecodedImage { width, height, channels: self.channels, samples })
    }
}
