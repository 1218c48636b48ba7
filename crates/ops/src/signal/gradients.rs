//! Gradients of Fourier transforms.
//!
//! A transform is a complex matrix. The gradient is a product with the conjugate of its transpose,
//! which is the transform in the other direction apart from a factor.

use sardonyx_tensor::DataType;

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};

type Result<T = ()> = std::result::Result<T, Refusal>;

/// Crops an axis at its end, or pads it with zeros, to a size. Both are vectors of one integer.
fn resize<'c>(value: Expr<'c>, axis: Expr<'c>, size: Expr<'c>) -> Expr<'c> {
    let more = size - value.shape().gather(axis, 0);
    let pads = (more * 0.0).concat(&[more], 0);
    value.op_with("Pad", &[pads, value.number(0.0), axis], &[])
}

/// Keeps the first `parts` of the parts of complex numbers.
fn with_parts<'c>(cx: &'c Backward<'_>, value: Expr<'c>, parts: Expr<'c>) -> Expr<'c> {
    value.op_with("Slice", &[cx.ints_of(&[0]), parts, cx.ints_of(&[-1])], &[])
}

/// Transforms `length` elements along an axis, without the factor of the inverse transform.
fn transform<'c>(value: Expr<'c>, axis: Expr<'c>, length: Expr<'c>, inverse: bool) -> Expr<'c> {
    let attributes = [("inverse", AttrValue::Int(inverse.into()))];
    let operands = [length.squeeze(&[0]), axis.squeeze(&[0])];
    let all = value.op_with("DFT", &operands, &attributes);
    if inverse { all * length.cast(value.elem()) } else { all }
}

/// Sets the gradient of `DFT`. The missing half of a spectrum is the conjugate of the other one, so
/// elements that stand for two count twice.
pub(crate) fn dft(cx: &Backward<'_>) -> Result {
    let (x, mut dy) = (cx.input(0)?, cx.arriving()?);
    let [is_inverse, is_half] = ["inverse", "onesided"].map(|name| cx.int(name).unwrap_or(0) != 0);
    let axis = match cx.input_if(2) {
        Some(axis) => axis.cast(DataType::Int64).reshape(cx.ints_of(&[1])),
        None => cx.ints_of(&[-2]),
    };
    let given = x.shape().gather(axis, 0);
    let length = match cx.input_if(1) {
        _ if is_inverse || !is_half => dy.shape().gather(axis, 0),
        Some(length) => length.cast(DataType::Int64).reshape(cx.ints_of(&[1])),
        None => given,
    };
    if is_half && !is_inverse {
        dy = resize(dy, axis, length);
    }
    let mut all = transform(dy, axis, length, !is_inverse);
    if is_inverse {
        all = all / length.cast(dy.elem());
    }
    if is_inverse && is_half {
        let place = cx.count_up(length.squeeze(&[0]));
        let is_start = place.compare("Equal", place.number(0.0));
        let is_middle = (place * 2.0).compare("Equal", length);
        let is_single = is_start.op_with("Or", &[is_middle], &[]);
        let times = is_single.choose(dy.number(1.0), dy.number(2.0));
        // Half of all elements, and the one in the middle.
        all = resize(all, axis, length / 2.0 + 1.0);
        let times = resize(times, cx.ints_of(&[0]), length / 2.0 + 1.0);
        all = all * align_with_axis(cx, times, x)?;
    }
    cx.give(0, with_parts(cx, resize(all, axis, given), x.sizes(-1, None)));
    Ok(())
}

/// Aligns a vector with the axis of a `DFT`.
fn align_with_axis<'c>(cx: &'c Backward<'_>, vector: Expr<'c>, x: Expr<'c>) -> Result<Expr<'c>> {
    let axis = match cx.input_if(2) {
        None => -2,
        Some(_) => {
            let known = cx.constant(2).and_then(|axis| axis.to_vec::<i64>().ok());
            let known = known.and_then(|axis| axis.first().copied());
            known.ok_or_else(|| cx.refuse("its axis is unknown"))?
        }
    };
    let after = if axis < 0 { -axis - 1 } else { cx.rank_of(x)? as i64 - 1 - axis };
    Ok(vector.unsqueeze(&(1..=after).collect::<Vec<_>>()))
}

/// Sets the gradient of `STFT`. Frames overlap: an element of the signal gets the sum over all
/// frames that contain it.
pub(crate) fn stft(cx: &Backward<'_>) -> Result {
    let (signal, step, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let one = cx.ints_of(&[1]);
    let parts = if cx.rank_of(signal)? == 3 { signal.sizes(2, None) } else { one };
    let window = cx.input_if(2);
    let length = match (window, cx.input_if(3)) {
        (Some(window), _) => window.shape(),
        (None, Some(length)) => length.cast(DataType::Int64).reshape(one),
        (None, None) => signal.sizes(1, Some(2)),
    };
    let axis = cx.ints_of(&[2]);
    // `[batch, frames, length, parts]`
    let frames = transform(resize(dy, axis, length), axis, length, true);
    let frames = with_parts(cx, frames, parts);
    let first = cx.count_up(dy.sizes(1, Some(2)).squeeze(&[0])).unsqueeze(&[1]);
    let step = step.cast(DataType::Int64).reshape(one);
    let places = first * step + cx.count_up(length.squeeze(&[0])).unsqueeze(&[0]);
    let line = signal.sizes(0, Some(2)).concat(&[parts], 0);
    if cx.wants(0) {
        let of_signal = match window {
            Some(window) => frames.scale_by(window.unsqueeze(&[1])),
            None => frames,
        };
        let count = places.op("Size").unsqueeze(&[0]);
        let all = signal.sizes(0, Some(1)).concat(&[count, parts], 0);
        let places = places.reshape(count).unsqueeze(&[0, 2]).expand(all);
        let attributes = [("axis", 1.into()), ("reduction", "add".into())];
        let zeros = signal.number(0.0).expand(line);
        let sums = zeros.op_with("ScatterElements", &[places, of_signal.reshape(all)], &attributes);
        cx.give(0, sums.reshape(signal.shape()));
    }
    if cx.wants(2) {
        let read = signal.reshape(line).gather(places, 1);
        cx.give(2, frames.scale_by(read).sum(&[0, 1, 3], false));
    }
    Ok(())
}
