//! Convolution by its definition, for any number type and any number of spatial dimensions.

use super::{ConvError, ConvParams, check_len, product};
use crate::gemm::Number;

/// Computes `weights * input + bias` position by position, accumulating in `T`.
///
/// Shapes are those of [`super::PackedConv::run`]. Slow, but the only path for types without a fast
/// one, and the oracle of the tests.
///
/// # Errors
///
/// If the parameters do not fit each other or a length does not fit them.
pub fn conv_naive<T: Number>(
    params: &ConvParams,
    batch: usize,
    spatial: &[usize],
    input: &[T],
    weights: &[T],
    bias: Option<&[T]>,
    output: &mut [T],
) -> Result<(), ConvError> {
    params.check()?;
    let out_dims = params.output_dims(spatial)?;
    let too_large = ConvError::TooLarge;
    let in_plane = product(spatial).ok_or(too_large)?;
    let out_plane = product(&out_dims).ok_or(too_large)?;
    let tensor = |channels: usize, plane| product(&[batch, channels, plane]).ok_or(too_large);
    check_len("input", tensor(params.in_channels, in_plane)?, input.len())?;
    check_len("output", tensor(params.out_channels, out_plane)?, output.len())?;
    check_len("weights", params.weights_len().ok_or(too_large)?, weights.len())?;
    if let Some(bias) = bias {
        check_len("bias", params.out_channels, bias.len())?;
    }
    if output.is_empty() {
        return Ok(());
    }
    let group_in = params.in_channels / params.groups;
    let group_out = params.out_channels / params.groups;
    let taps = product(&params.kernel).ok_or(too_large)?;
    let rank = spatial.len();
    // Offset into a plane for each tap at an output position, or `None` in padding. All channels
    // share the offsets.
    let mut tap_offsets = vec![None; taps];
    let (mut position, mut tap) = (vec![0; rank], vec![0; rank]);
    for at in 0..out_plane {
        tap.fill(0);
        for slot in &mut tap_offsets {
            *slot = (0..rank).try_fold(0, |offset, i| {
                (position[i] * params.strides[i] + tap[i] * params.dilations[i])
                    .checked_sub(params.pads_begin[i])
                    .filter(|&x| x < spatial[i])
                    .map(|x| offset * spatial[i] + x)
            });
            advance(&mut tap, &params.kernel);
        }
        for image in 0..batch {
            for channel in 0..params.out_channels {
                let first = image * params.in_channels + channel / group_out * group_in;
                let mut sum = T::ZERO;
                for c in 0..group_in {
                    let plane = &input[(first + c) * in_plane..][..in_plane];
                    let weights = &weights[(channel * group_in + c) * taps..][..taps];
                    for (offset, &weight) in tap_offsets.iter().zip(weights) {
                        if let Some(offset) = *offset {
                            sum = sum.plus(weight.times(plane[offset]));
                        }
                    }
                }
                if let Some(bias) = bias {
                    sum = sum.plus(bias[channel]);
                }
                output[(image * params.out_channels + channel) * out_plane + at] = sum;
            }
        }
        advance(&mut position, &out_dims);
    }
    Ok(())
}

/// Advances `index` to the next position within `dims`, last dimension fastest.
pub(super) fn advance(index: &mut [usize], dims: &[usize]) {
    for (x, &size) in index.iter_mut().zip(dims).rev() {
        *x += 1;
        if *x < size {
            return;
        }
        *x = 0;
    }
}
