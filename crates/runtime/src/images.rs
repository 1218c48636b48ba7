//! Who decodes images for the operator `ImageDecoder`: the program that makes the session.
//!
//! Decoders of file formats are large, and most models have no use for them, so this crate has
//! none.

use std::fmt;

use crate::error::OperatorError;

/// Decodes the images that nodes of `ImageDecoder` are given.
pub trait ImageDecoder: fmt::Debug + Send + Sync {
    /// Reads the header of an image, and decodes no pixel: what it takes does not depend on the
    /// size that the header names. May be called by several threads at once.
    ///
    /// # Errors
    ///
    /// An unknown format, or a header that cannot be read.
    fn open<'a>(&self, encoded: &'a [u8]) -> Result<Box<dyn EncodedImage + 'a>, OperatorError>;
}

/// An image whose size is known, and whose pixels are not decoded yet.
pub trait EncodedImage {
    /// The columns of pixels.
    fn width(&self) -> usize;

    /// The rows of pixels.
    fn height(&self) -> usize;

    /// Bytes that decoding takes at most, beside the pixels. They count towards the memory limit of
    /// the session, and are asked for before anything is decoded.
    fn working_bytes(&self) -> usize;

    /// Decodes the image: rows from the top, in each the pixels from the left, in each the channels
    /// of the format. The memory has exactly that many bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with the data, and where.
    fn decode(self: Box<Self>, format: PixelFormat, pixels: &mut [u8])
    -> Result<(), OperatorError>;
}

/// The channels of a pixel, one byte each: what `pixel_format` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// Brightness.
    Grayscale,
}

impl PixelFormat {
    /// How many channels a pixel has.
    pub fn channels(self) -> usize {
        match self {
            PixelFormat::Rgb | PixelFormat::Bgr => 3,
            PixelFormat::Grayscale => 1,
        }
    }
}
