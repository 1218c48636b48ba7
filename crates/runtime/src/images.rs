//! Interface for image decoders, which the program supplies for the operator `ImageDecoder`.
//!
//! Decoders of file formats are large and few models need them, so this crate has none.

use std::fmt;

use crate::error::OperatorError;

/// Image decoder that a program supplies for nodes of the operator `ImageDecoder`.
pub trait ImageDecoder: fmt::Debug + Send + Sync {
    /// Reads the header of an image without decoding pixels, so that time and memory do not depend
    /// on the size in the header. Several threads may call it at the same time.
    ///
    /// # Errors
    ///
    /// The format is unknown, or the header is malformed.
    fn open<'a>(&self, encoded: &'a [u8]) -> Result<Box<dyn EncodedImage + 'a>, OperatorError>;
}

/// Encoded image whose header has been read.
pub trait EncodedImage {
    /// Returns the width in pixels.
    fn width(&self) -> usize;

    /// Returns the height in pixels.
    fn height(&self) -> usize;

    /// Returns the maximum number of bytes of memory that decoding takes in addition to the pixels.
    /// They count towards the memory limit of the session, which is tested before the image is
    /// decoded.
    fn working_bytes(&self) -> usize;

    /// Decodes the image into `pixels`: rows from the top, pixels from the left, channels of a
    /// pixel adjacent. `pixels` has exactly width × height × channels bytes.
    ///
    /// # Errors
    ///
    /// The image data is malformed; the error describes the fault and its place.
    fn decode(self: Box<Self>, format: PixelFormat, pixels: &mut [u8])
    -> Result<(), OperatorError>;
}

/// Channels of a pixel, one byte each: the attribute `pixel_format` of the operator `ImageDecoder`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    /// Red, green and blue.
    Rgb,
    /// Blue, green and red.
    Bgr,
    /// Brightness alone.
    Grayscale,
}

impl PixelFormat {
    /// Returns the number of channels of a pixel: 3 or 1.
    pub fn channels(self) -> usize {
        match self {
            PixelFormat::Rgb | PixelFormat::Bgr => 3,
            PixelFormat::Grayscale => 1,
        }
    }
}
