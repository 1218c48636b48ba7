//! Resizing: a triangle filter along each axis, as wide as the pixels of the smaller image.

use super::zeros;

/// For each output along an axis the inputs that make it up.
struct Taps {
    /// First input of each output.
    first: Vec<usize>,
    /// End of each output's weights.
    ends: Vec<usize>,
    /// Weights of all outputs, one after the other. Those of an output sum to 1.
    weights: Vec<f32>,
}

impl Taps {
    fn new(len: usize, outputs: usize) -> Result<Taps, String> {
        let ratio = len as f32 / outputs as f32;
        let reach = ratio.max(1.0);
        let mut taps = Taps { first: zeros(outputs)?, ends: zeros(outputs)?, weights: Vec::new() };
        // At most `2 * reach + 2` weights an output.
        let most = (2 * len).saturating_add(outputs.saturating_mul(4));
        let reserved = taps.weights.try_reserve_exact(most);
        reserved.map_err(|_| format!("not enough memory for {most} weights"))?;
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

    /// Iterates over the outputs: the first input and the weights of each.
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

/// Returns the pixels of an image in another size. Neither has sides of zero.
pub(super) fn resize(
    pixels: &[u8],
    from: Size,
    to: Size,
    channels: usize,
) -> Result<Vec<u8>, String> {
    let (down, across) = (Taps::new(from.height, to.height)?, Taps::new(from.width, to.width)?);
    let stride = from.width * channels;
    let bytes = to.width.checked_mul(to.height).and_then(|pixels| pixels.checked_mul(channels));
    let mut out = zeros(bytes.ok_or("the size is too large")?)?;
    let mut blended = zeros::<f32>(stride)?;
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
                // The cast saturates.
                *sample = sum.round() as u8;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resized(pixels: &[u8], from: [usize; 2], to: [usize; 2], channels: usize) -> Vec<u8> {
        let [from, to] = [from, to].map(|[width, height]| Size { width, height });
        resize(pixels, from, to, channels).unwrap()
    }

    #[test]
    fn growing_interpolates() {
        assert_eq!(resized(&[0, 100], [2, 1], [4, 1], 1), [0, 25, 75, 100]);
        assert_eq!(resized(&[0, 100], [1, 2], [1, 4], 1), [0, 25, 75, 100]);
        assert_eq!(
            resized(&[0, 200, 100, 0], [2, 1], [4, 1], 2),
            [0, 200, 25, 150, 75, 50, 100, 0]
        );
        assert_eq!(resized(&[9], [1, 1], [2, 3], 1), [9; 6]);
    }

    #[test]
    fn shrinking_averages() {
        // Weights of 3, 3 and 1, and of 1, 3 and 3, sevenths.
        assert_eq!(resized(&[0, 0, 0, 255], [4, 1], [2, 1], 1), [0, 109]);
        assert_eq!(resized(&[255, 0, 0, 0], [1, 4], [1, 2], 1), [109, 0]);
        assert_eq!(resized(&[0, 255, 0, 255], [2, 2], [1, 1], 1), [128]);
        let stripes: Vec<u8> = (0..64).map(|at| if at % 2 == 0 { 0 } else { 254 }).collect();
        assert!(resized(&stripes, [64, 1], [4, 1], 1).iter().all(|grey| grey.abs_diff(127) < 3));
    }

    #[test]
    fn a_color_stays_in_every_size() {
        for width in 1..20 {
            for height in 1..20 {
                let pixels = resized(&[7, 255, 0].repeat(35), [7, 5], [width, height], 3);
                assert_eq!(pixels, [7, 255, 0].repeat(width * height));
            }
        }
    }
}
