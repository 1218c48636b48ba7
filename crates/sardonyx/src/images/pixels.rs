//! Pixels in the format that a node wants.

use sardonyx_runtime::PixelFormat;

/// Writes pixels, given as red, green and blue.
pub(super) fn put(format: PixelFormat, pixels: impl Iterator<Item = [u8; 3]>, out: &mut [u8]) {
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
                *out = brightness(pixel);
            }
        }
    }
}

/// Brightness by the weights of ITU-R BT.601, with 16 bits after the point, rounded: what Pillow
/// computes. That of a grey is the grey.
fn brightness([red, green, blue]: [u8; 3]) -> u8 {
    let sum = 19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue);
    ((sum + (1 << 15)) >> 16) as u8
}

/// What is left of white after inks for cyan, magenta and yellow, and black over them.
pub(super) fn rgb_of_cmyk(inks: [u8; 3], black: u8) -> [u8; 3] {
    let light = 255 - black;
    inks.map(|ink| {
        // The product over 255, rounded, is at most `light`.
        let taken = (u32::from(ink) * u32::from(light) * 2 + 255) / 510;
        light - taken as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_come_in_the_order_of_the_format() {
        let pixels = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [7, 7, 7]];
        let mut out = [0; 12];
        put(PixelFormat::Rgb, pixels.into_iter(), &mut out);
        assert_eq!(out, [255, 0, 0, 0, 255, 0, 0, 0, 255, 7, 7, 7]);
        put(PixelFormat::Bgr, pixels.into_iter(), &mut out);
        assert_eq!(out, [0, 0, 255, 0, 255, 0, 255, 0, 0, 7, 7, 7]);
        put(PixelFormat::Grayscale, pixels.into_iter(), &mut out);
        assert_eq!(out[..4], [76, 150, 29, 7]);
    }

    #[test]
    fn every_grey_is_its_brightness() {
        assert!((0..=255).all(|grey| brightness([grey; 3]) == grey));
    }

    #[test]
    fn inks_take_light_away() {
        assert_eq!(rgb_of_cmyk([0, 0, 0], 0), [255, 255, 255]);
        assert_eq!(rgb_of_cmyk([255, 0, 128], 0), [0, 255, 127]);
        assert_eq!(rgb_of_cmyk([255, 0, 128], 100), [0, 155, 77]);
        assert_eq!(rgb_of_cmyk([1, 2, 3], 255), [0, 0, 0]);
    }
}
