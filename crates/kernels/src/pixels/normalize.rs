//! Normalization by the mean and variance of a group of channels of an image.

use super::affine::{Parameters, scale_pixels};
use super::reduce::fold_images;
use super::{Pixels, PixelsMut, check_alike};
use crate::reduce::{Squares, Sum};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Ended, Exec};

/// Parameters of [`group_norm`].
#[derive(Clone, Copy, Debug)]
pub struct GroupNorm<'a> {
    /// Number of groups, each of equally many adjacent channels. One group per channel is instance
    /// normalization.
    pub groups: usize,
    pub epsilon: f64,
    /// Scale of each channel.
    pub scale: &'a [f32],
    /// Shift of each channel.
    pub shift: &'a [f32],
}

/// Normalizes pixels: `y = (x - mean) / sqrt(variance + epsilon) * scale[c] + shift[c]`, with mean
/// and variance of the group of channels in one of `images` images.
///
/// # Panics
///
/// If sizes do not fit.
pub fn group_norm(
    exec: &Exec<'_>,
    images: usize,
    norm: GroupNorm<'_>,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let GroupNorm { groups, epsilon, scale, shift } = norm;
    check_alike(&x, &y);
    let (pixels, channels) = (x.per_image(images), x.channels);
    assert_eq!([scale.len(), shift.len()], [channels; 2], "one scale and shift per channel");
    if y.count == 0 || channels == 0 {
        return Ok(());
    }
    assert!(groups > 0 && channels.is_multiple_of(groups), "groups of one size");
    let group = channels / groups;
    let each = images * channels;
    let elements = (pixels * group) as f64;
    with_scratch_of::<f64, _>(each, |totals| {
        with_scratch(2 * each, |parameters| {
            let (minus, scales) = parameters.split_at_mut(each);
            fold_images(exec, Sum, images, &x, None, totals)?;
            for (totals, minus) in totals.chunks_exact(group).zip(minus.chunks_exact_mut(group)) {
                minus.fill(-(totals.iter().sum::<f64>() / elements) as f32);
            }
            // Squares are taken around the mean: the difference of two large sums would lose all
            // digits.
            fold_images(exec, Squares, images, &x, Some(minus), totals)?;
            for (i, totals) in totals.chunks_exact(group).enumerate() {
                let variance = totals.iter().sum::<f64>() / elements;
                let factor = (1.0 / (variance + epsilon).sqrt()) as f32;
                let scale = &scale[i % groups * group..][..group];
                let scales = &mut scales[i * group..][..group];
                for (scaled, scale) in scales.iter_mut().zip(scale) {
                    *scaled = factor * scale;
                }
            }
            let parameters = Parameters { minus: Some(minus), scale: scales, shift };
            scale_pixels(exec, images, parameters, Some(x), &y)
        })
    })
}
