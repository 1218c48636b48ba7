//! ImageDecoder: decodes an image with the decoder of the session.
//!
//! An image that cannot be decoded is an error, as in the reference implementation. The standard's
//! text asks for an empty matrix, with which a model would continue silently.

use std::sync::Arc;

use sardonyx_tensor::DataType;

use crate::error::{BindError, KernelError, fail};
use crate::images::{ImageDecoder, PixelFormat};
use crate::kernel::{Call, Kernel, Site};

struct Decode {
    decoder: Arc<dyn ImageDecoder>,
    format: PixelFormat,
}

/// Binds `ImageDecoder`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let formats = [
        ("RGB", PixelFormat::Rgb),
        ("BGR", PixelFormat::Bgr),
        ("Grayscale", PixelFormat::Grayscale),
    ];
    let format = site.find_named("pixel_format", &formats)?;
    match site.elem(0)? {
        DataType::Uint8 => {}
        elem => return site.unsupported_type(elem),
    }
    let Some(decoder) = site.images.cloned() else {
        return Err(BindError::Unsupported(
            "the session has no image decoder: this build of Sardonyx is without the feature 'images' (Rust: \
             SessionBuilder::image_decoder sets one)"
                .to_string(),
        ));
    };
    Ok(Box::new(Decode { decoder, format }))
}

impl Kernel for Decode {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = call.tensor(0)?.dims();
        if dims.len() != 1 {
            fail!("input 0 must have one dimension, the bytes of a file, not {dims:?}");
        }
        let encoded = call.slice::<u8>(0)?;
        let failed = |error| KernelError::Failed(format!("the image cannot be decoded: {error}"));
        let image = self.decoder.open(encoded).map_err(failed)?;
        call.reserve(image.working_bytes())?;
        let dims = [image.height(), image.width(), self.format.channels()];
        let pixels = call.output_slice::<u8>(0, &dims)?;
        image.decode(self.format, pixels).map_err(failed)
    }

    fn describe(&self) -> String {
        format!("{:?} by {:?}", self.format, self.decoder)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::error::OperatorError;
    use crate::images::EncodedImage;
    use crate::ops::testing::{run, run_with_images, tensor, text};

    /// Images whose first two bytes are height and width, and whose others are the pixels.
    #[derive(Debug)]
    struct Plain;

    struct Image<'a>([usize; 2], &'a [u8]);

    impl ImageDecoder for Plain {
        fn open<'a>(&self, encoded: &'a [u8]) -> Result<Box<dyn EncodedImage + 'a>, OperatorError> {
            let [height, width, pixels @ ..] = encoded else {
                return Err("there is no header".into());
            };
            Ok(Box::new(Image([usize::from(*height), usize::from(*width)], pixels)))
        }
    }

    impl EncodedImage for Image<'_> {
        fn width(&self) -> usize {
            self.0[1]
        }

        fn height(&self) -> usize {
            self.0[0]
        }

        fn working_bytes(&self) -> usize {
            0
        }

        fn decode(
            self: Box<Self>,
            format: PixelFormat,
            pixels: &mut [u8],
        ) -> Result<(), OperatorError> {
            if pixels.len() != self.1.len() {
                return Err(format!("{} bytes are no image in {format:?}", self.1.len()).into());
            }
            pixels.copy_from_slice(self.1);
            Ok(())
        }
    }

    fn decode(format: &str, encoded: &Tensor) -> Result<Tensor, String> {
        let attributes = [("pixel_format", format)].map(|(name, word)| text(name, word));
        let decoder: Arc<dyn ImageDecoder> = Arc::new(Plain);
        let outputs = run_with_images("ImageDecoder", &attributes, encoded, &decoder)?;
        Ok(outputs.into_iter().next().unwrap())
    }

    #[test]
    fn the_decoder_says_size_and_pixels() {
        let encoded = tensor(&[8], &[2u8, 1, 1, 2, 3, 4, 5, 6]);
        let pixels = [1u8, 2, 3, 4, 5, 6];
        for format in ["RGB", "BGR"] {
            assert_eq!(decode(format, &encoded), Ok(tensor(&[2, 1, 3], &pixels)));
        }
        let encoded = tensor(&[8], &[3u8, 2, 1, 2, 3, 4, 5, 6]);
        assert_eq!(decode("Grayscale", &encoded), Ok(tensor(&[3, 2, 1], &pixels)));
        assert_eq!(decode("RGB", &tensor(&[2], &[0u8, 7])), Ok(tensor::<u8>(&[0, 7, 3], &[])));
    }

    #[test]
    fn errors_say_why() {
        let few = tensor(&[3], &[1u8, 1, 9]);
        let cases = [
            (decode("RGB", &few), "the image cannot be decoded: 1 bytes are no image in Rgb"),
            (
                decode("RGB", &tensor(&[1], &[1u8])),
                "the image cannot be decoded: there is no header",
            ),
            (
                decode("RGB", &tensor(&[1, 3], &[1u8, 1, 9])),
                "input 0 must have one dimension, the bytes of a file, not [1, 3]",
            ),
            (
                decode("CMYK", &few),
                "attribute 'pixel_format' is 'CMYK', which is not one of RGB, BGR, Grayscale",
            ),
            (decode("RGB", &tensor(&[1], &[1f32])), "type not implemented: float"),
        ];
        for (got, want) in cases {
            assert_eq!(got.unwrap_err(), want);
        }
        let error = run("ImageDecoder", &[], &[Some(&few)], 1).unwrap_err();
        assert_eq!(
            error,
            "the session has no image decoder: this build of Sardonyx is without the feature 'images' (Rust: \
             SessionBuilder::image_decoder sets one)"
        );
    }
}
