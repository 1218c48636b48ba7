//! Resizing of images with a triangle filter along each axis: linear interpolation when growing,
//! weighted averages when shrinking.

use super::allocate_zeros;

/// Filter weights along one axis: each output sample is a weighted sum of adjacent input samples.
struct Taps {
    /// Index of the first input sample of each output sample.
    first: Vec<usize>,
    /// End index in `weights` of the weights of each output sample.
    ends: Vec<usize>,
    /// Weights of all output samples, concatenated. The weights of one output sample sum to 1.
    weights: Vec<f32>,
}

impl Taps {
    /// Computes the filter weights for resizing an axis from `len` to `outputs` samples.
    fn new(len: usize, outputs: usize) -> Result<Taps, String> {
        let ratio = len as f32 / outputs as f32;
        let reach = ratio.max(1.0);
        let mut taps = Taps {
            first: allocate_zeros(outputs)?,
            ends: allocate_zeros(outputs)?,
            weights: Vec::new(),
        };
        // An output has at most `2 * reach + 2` weights.
        let most = (2 * len).saturating_add(outputs.saturating_mul(4));
        let reserved = taps.weights.try_reserve_exact(most);
        reserved.map_err(|_| format!("not enough memory for {most} filter weights"))?;
        for output in 0..outputs {
            let center = (output as f32 + 0.5) * ratio;
            let first = ((center - reach).floor().max(0.0) as usize).min(len - 1);
            let end = ((center + reach).ceil() as usize).clamp(first + 1, len);
            let start = taps.weights.len();
            taps.weights.extend((first..end).map(|input| {
                let distance = (input as f32 - (center - 0.5)) / reach;
                (1.0 - distance.abs()).max(0.0)
            }));
            let sum: f32 = taps.weights[start..].iter().sum();
            taps.weights[start..].iter_mut().for_each(|weight| *weight /= sum);
            (taps.first[output], taps.ends[output]) = (first, taps.weights.len());
        }
        Ok(taps)
    }

    /// Iterates over the output samples: index of the first input sample, and weights.
    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        self.first.iter().copied().zip(ranges.map(|(start, end)| &self.weights[start..*end]))
    }
}

/// Size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Resizes an image whose pixels have `channels` bytes. Widths and heights must not be zero.
pub(super) fn resize(
    pixels: &[u8],
    from: Size,
    to: Size,
    channels: usize,
) -> Result<Vec<u8>, String> {
    let (down, across) = (Taps::new(from.height, to.height)?, Taps::new(from.width, to.width)?);
    let stride = from.width * channels;
    let bytes = to.width.checked_mul(to.height).and_then(|pixels| pixels.checked_mul(channels));
    let mut out = allocate_zeros(bytes.ok_or("the new image size is too large")?)?;
    let mut blended = allocate_zeros::<f32>(stride)?;
    for (out, (first, weights)) in out.chunks_exact_mut(to.width * channels).zip(down.iter()) {
        blended.fill(0.0);
        for (row, weight) in pixels[first * stride..].chunks_exact(stride).zip(weights) {
            for (sum, sample) in blended.iter_mut().zip(row) {
                *sum += f32::from(*sample) * weight;
            }
        }
        for (pixel, (first, weights)) in out.chunks_exact_mut(channels).zip(across.iter()) {
            let inputs = &blended[first * channels..][..weights.len() * channels];
            for (channel, sample) in pixel.iter_mut().enumerate() {
                let mut sum = 0.0;
                for (input, weight) in inputs[channel..].iter().step_by(channels).zip(weights) {
                    sum += input * weight;
                }
                // The cast saturates, so values outside of 0 to 255 are clamped.
                *sample = sum.round() as u8;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn make_size(width: usize, height: usize) -> Size {
        Size { width, height }
    }

    fn resize_pixels(pixels: &[u8], from: Size, to: Size, channels: usize) -> Vec<u8> {
        resize(pixels, from, to, channels).unwrap()
    }

    #[test]
    fn growing_interpolates() {
        assert_eq!(resize_pixels(&[0, 100], make_size(2, 1), make_size(4, 1), 1), [0, 25, 75, 100]);
        assert_eq!(resize_pixels(&[0, 100], make_size(1, 2), make_size(1, 4), 1), [0, 25, 75, 100]);
        assert_eq!(
            resize_pixels(&[0, 200, 100, 0], make_size(2, 1), make_size(4, 1), 2),
            [0, 200, 25, 150, 75, 50, 100, 0]
        );
        assert_eq!(resize_pixels(&[9], make_size(1, 1), make_size(2, 3), 1), [9; 6]);
    }

    #[test]
    fn shrinking_averages() {
        // The weights are 3/7, 3/7 and 1/7, and 1/7, 3/7 and 3/7.
        assert_eq!(resize_pixels(&[0, 0, 0, 255], make_size(4, 1), make_size(2, 1), 1), [0, 109]);
        assert_eq!(resize_pixels(&[255, 0, 0, 0], make_size(1, 4), make_size(1, 2), 1), [109, 0]);
        assert_eq!(resize_pixels(&[0, 255, 0, 255], make_size(2, 2), make_size(1, 1), 1), [128]);
        let stripes: Vec<u8> = (0..64).map(|at| if at % 2 == 0 { 0 } else { 254 }).collect();
        let shrunk = resize_pixels(&stripes, make_size(64, 1), make_size(4, 1), 1);
        assert!(shrunk.iter().all(|grey| grey.abs_diff(127) < 3));
    }

    #[test]
    fn a_color_stays_in_every_size() {
        for width in 1..20 {
            for height in 1..20 {
                let to = make_size(width, height);
                let pixels = resize_pixels(&[7, 255, 0].repeat(35), make_size(7, 5), to, 3);
                assert_eq!(pixels, [7, 255, 0].repeat(width * height));
            }
        }
    }
}
