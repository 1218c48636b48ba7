//! Conversion of RGB pixels into the pixel format of the operator `ImageDecoder`.

use sardonyx_runtime::PixelFormat;

/// Red, green and blue of a pixel, 8 bits each.
pub(super) type Rgb = [u8; 3];

/// Writes RGB pixels to `out` in the pixel format `format`.
pub(super) fn convert_pixels(
    format: PixelFormat,
    pixels: impl Iterator<Item = Rgb>,
    out: &mut [u8],
) {
    match format {
        PixelFormat::Rgb => {
            for (out, pixel) in out.chunks_exact_mut(3).zip(pixels) {
                out.copy_from_slice(&pixel);
            }
        }
        PixelFormat::Bgr => {
            for (out, [red, green, blue]) in out.chunks_exact_mut(3).zip(pixels) {
                out.copy_from_slice(&[blue, green, red]);
            }
        }
        PixelFormat::Grayscale => {
            for (out, pixel) in out.iter_mut().zip(pixels) {
                *out = compute_luma(pixel);
            }
        }
    }
}

/// Computes the luma of a pixel with the weights of ITU-R BT.601, in 16-bit fixed point, rounded
/// like Pillow. The luma of a grey is the grey itself.
fn compute_luma([red, green, blue]: Rgb) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + (1 << 15)) >> 16) as u8
}

/// Cyan, magenta and yellow of a pixel, 8 bits each.
pub(super) type Cmy = [u8; 3];

/// Converts a pixel from CMYK into RGB. `inks` and `black` are from 0 (no ink) to 255.
pub(super) fn cmyk_to_rgb(inks: Cmy, black: u8) -> Rgb {
    let light = 255 - black;
    inks.map(|ink| {
        // `ink * light / 255`, rounded to the nearest integer, which is at most `light`.
        let absorption = (u32::from(ink) * u32::from(light) * 2 + 255) / 510;
        light - absorption as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_in_the_order_of_the_format() {
        let pixels = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [7, 7, 7]];
        let mut out = [0; 12];
        convert_pixels(PixelFormat::Rgb, pixels.into_iter(), &mut out);
        assert_eq!(out, [255, 0, 0, 0, 255, 0, 0, 0, 255, 7, 7, 7]);
        convert_pixels(PixelFormat::Bgr, pixels.into_iter(), &mut out);
        assert_eq!(out, [0, 0, 255, 0, 255, 0, 255, 0, 0, 7, 7, 7]);
        convert_pixels(PixelFormat::Grayscale, pixels.into_iter(), &mut out);
        assert_eq!(out[..4], [76, 150, 29, 7]);
    }

    #[test]
    fn every_grey_is_its_brightness() {
        assert!((0..=255).all(|grey| compute_luma([grey; 3]) == grey));
    }

    #[test]
    fn inks_take_light_away() {
        assert_eq!(cmyk_to_rgb([0, 0, 0], 0), [255, 255, 255]);
        assert_eq!(cmyk_to_rgb([255, 0, 128], 0), [0, 255, 127]);
        assert_eq!(cmyk_to_rgb([255, 0, 128], 100), [0, 155, 77]);
        assert_eq!(cmyk_to_rgb([1, 2, 3], 255), [0, 0, 0]);
    }
}
