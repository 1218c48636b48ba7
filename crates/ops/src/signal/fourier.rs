//! `DFT` and `STFT`: Fourier transforms of signals and of their frames.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Int32, Int64};

use super::{gradients, half_spectrum, positive_scalar, scalar};
use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::cost::{Counted, elements};
use crate::def::OpDef;
use crate::downward::{constant_ints, from_front};
use crate::facts::{FLOATS_IR4, input, int, output, types, without_attribute};
use crate::infer::Rule;
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static DFT: OpDef = OpDef::new("DFT")
    .about(
        "Discrete Fourier transform along an axis, or its inverse. The last axis has size 1 (real) \
         or 2 (real and imaginary part). With `onesided` only the first half of the spectrum of a \
         real signal is computed.",
    )
    .since(
        17,
        &[
            input("input", "T1").non_differentiable(),
            input("dft_length", "T2").optional().non_differentiable(),
            output("output", "T1"),
            int("axis").or(1),
            int("inverse").or(0),
            int("onesided").or(0),
            types("T1", FLOATS_IR4),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        20,
        &[
            input("axis", "tensor(int64)").optional().non_differentiable(),
            without_attribute("axis"),
        ],
    )
    .infer(infer_transform)
    .differs(|cx| {
        let is_set = |name: &str| cx.int(name).is_some_and(|value| value != 0);
        (is_set("inverse") && is_set("onesided")).then(|| {
            "numbers beyond the first half of the spectrum do not count; on ONNX Runtime they do"
                .to_string()
        })
    })
    .adapter(19, 20, move_axis_to_input)
    .adapter(20, 19, move_axis_to_attribute)
    .cost(count_transform)
    .gradient(gradients::dft);

/// Writes the axis, since an absent attribute and an absent input mean different axes.
fn move_axis_to_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let axis = cx.int("axis").unwrap_or(1);
    cx.remove("axis");
    let axis = cx.add_int(axis);
    cx.set_input(2, Some(axis));
    Ok(())
}

/// Moves the axis to an attribute. An absent input means the last axis before that of real and
/// imaginary parts, an absent attribute axis 1.
fn move_axis_to_attribute(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let axis = constant_ints(cx, 2, "axis")?;
    let axis = axis.and_then(|axis| axis.first().copied()).unwrap_or(-2);
    let axis = from_front(cx, "axis", axis, cx.rank(0))?;
    cx.keep_inputs(2);
    cx.set("axis", axis);
    Ok(())
}

pub static STFT: OpDef = OpDef::new("STFT")
    .about(
        "Short-time Fourier transform: the spectra of windowed frames of a signal. Frames start \
         every `frame_step` samples. Only frames that lie within the signal are transformed.",
    )
    .since(
        17,
        &[
            input("signal", "T1").non_differentiable(),
            input("frame_step", "T2").non_differentiable(),
            input("window", "T1").optional().non_differentiable(),
            input("frame_length", "T2").optional().non_differentiable(),
            output("output", "T1").non_differentiable(),
            int("onesided").or(1),
            types("T1", FLOATS_IR4),
            types("T2", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(infer_frames)
    .infer_as_reference(infer_frames_as_reference)
    .unknown_cost()
    .gradient(gradients::stft);

/// Indices of the inputs of DFT.
const LENGTH: usize = 1;
const AXIS: usize = 2;

/// Counts the fast transform over n elements: log2(n) stages of n / 2 complex products, each of
/// four real ones. n must be known.
fn count_transform(node: &Counted<'_>) -> Option<Dim> {
    let rank = node.cx.rank(0)?;
    let axis = match node.cx.schema().since {
        ..20 => node.cx.int("axis")?,
        _ if node.cx.has_input(2) => *node.cx.constant_ints(2)?.first()?,
        _ => -2,
    };
    let axis = node.cx.axis(axis, rank).ok()?;
    let length = if node.cx.has_input(1) {
        *node.cx.constant_ints(1)?.first()?
    } else {
        node.shape(0)?[axis].known()?
    };
    let length = u64::try_from(length).ok()?;
    let stages = length.checked_next_power_of_two()?.trailing_zeros();
    let work = i64::try_from(length).ok()?.checked_mul(2 * i64::from(stages))?;
    let shape = node.shape(0)?;
    // The last axis holds the two parts of a complex number.
    let others = shape[..rank - 1].iter().enumerate();
    let others: Shape =
        others.filter(|(index, _)| *index != axis).map(|(_, dim)| dim.clone()).collect();
    Some(elements(&others)?.mul(&Dim::Known(work)))
}

fn infer_transform(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match cx.shape(0) {
        Some(shape) => Some(infer_transformed(cx, shape)?),
        None => None,
    };
    let is_open = |shape: &Shape| shape.iter().any(Dim::is_unknown);
    let is_unknown = |input: usize| cx.has_input(input) && cx.known_value(input).is_none();
    if shape.as_ref().is_some_and(is_open) && (is_unknown(LENGTH) || is_unknown(AXIS)) {
        cx.set_reason(0, "the values of dft_length and axis");
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Infers the signal with another size along the axis, and with 1 or 2 at the end for real or
/// complex numbers.
fn infer_transformed(cx: &Infer<'_>, signal: &Shape) -> Result<Shape, InferError> {
    let [axes @ .., parts] = &signal[..] else {
        return cx.fail("the signal has rank 0, not at least 2");
    };
    if axes.is_empty() {
        return cx.fail("the signal has rank 1, not at least 2");
    }
    let is = |name: &str| cx.int(name).is_some_and(|given| given != 0);
    let (one_sided, inverse) = (is("onesided"), is("inverse"));
    match (parts.known(), one_sided, inverse) {
        (None | Some(1 | 2), false, _) | (None | Some(1), _, false) | (None | Some(2), _, true) => {
        }
        (Some(parts), one_sided, inverse) => {
            let needed = match (one_sided, inverse) {
                (true, false) => "1: one-sided transforms take real numbers",
                (true, true) => "2: inverse one-sided transforms take complex numbers",
                (false, _) => "1 for real numbers or 2 for complex ones",
            };
            return cx.fail(format_args!("the last axis has size {parts}, but must have {needed}"));
        }
    }
    let mut sizes = axes.to_vec();
    match signal_axis(cx, signal.len())? {
        Some(axis) => sizes[axis] = spectrum_size(cx, &sizes[axis], one_sided, inverse)?,
        None if one_sided || cx.has_input(LENGTH) => sizes.fill(Dim::Unknown),
        None => {}
    }
    let parts = if one_sided && inverse { 1 } else { 2 };
    Ok(sizes.into_iter().chain([Dim::Known(parts)]).collect())
}

/// Returns the size along the axis.
fn spectrum_size(
    cx: &Infer<'_>,
    size: &Dim,
    one_sided: bool,
    inverse: bool,
) -> Result<Dim, InferError> {
    let is_given = cx.has_input(LENGTH);
    let length = if is_given { positive_scalar(cx, LENGTH, "dft_length")? } else { size.clone() };
    Ok(match (one_sided, inverse) {
        (true, false) => half_spectrum(&length),
        // Half of a spectrum does not determine whether the length is even; an even one is assumed.
        (true, true) if !is_given => length.sub(&Dim::Known(1)).mul(&Dim::Known(2)),
        _ => length,
    })
}

/// Returns the axis of the signal, which is never the last one. `None` if it is unknown.
fn signal_axis(cx: &Infer<'_>, rank: usize) -> Result<Option<usize>, InferError> {
    let axis = match cx.since() {
        ..20 => cx.int("axis").unwrap_or(1),
        _ if !cx.has_input(AXIS) => -2,
        _ => match scalar(cx, AXIS)?.known() {
            Some(axis) => axis,
            None => return Ok(None),
        },
    };
    let resolved = cx.axis(axis, rank)?;
    if resolved + 1 == rank {
        return cx.fail(format_args!("axis {axis} is the last axis, which is not allowed"));
    }
    Ok(Some(resolved))
}

/// Infers `[batch, frames, frequencies, 2]`.
fn infer_frames(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_frame_shapes(cx, Rule::Operator)
}

fn infer_frames_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_frame_shapes(cx, Rule::Reference)
}

fn infer_frame_shapes(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    if let Some(rank) = cx.rank(0).filter(|rank| !(2..=3).contains(rank)) {
        return cx.fail(format_args!("the signal has rank {rank}, not 2 or 3"));
    }
    cx.demand_rank(2, 1)?;
    let batch = shared_dim(cx, "elements of the batch", &[(0, 0)])?;
    let signal = shared_dim(cx, "places", &[(0, 1)])?;
    let step = positive_scalar(cx, 1, "frame_step")?;
    let window = shared_dim(cx, "places of the window", &[(2, 0)])?;
    let given = positive_scalar(cx, 3, "frame_length")?;
    let frame = cx.same_dim(&given, &window, "frame_length and the size of the window")?;
    let rest = signal.sub(&frame);
    if rest.known().is_some_and(|rest| rest < 0) {
        return cx.fail(format_args!("a frame of {frame} is longer than the signal of {signal}"));
    }
    let frames = rest.floor_div(&step).add(&Dim::Known(1));
    let places = match cx.int("onesided") {
        // One half is the default. The reference implementation, if it knows all sizes, infers the
        // whole.
        _ if cx.attribute("onesided").is_none() && rule == Rule::Reference => {
            match frames.known() {
                Some(_) => frame,
                None => Dim::Unknown,
            }
        }
        Some(0) => frame,
        _ => half_spectrum(&frame),
    };
    if step.is_unknown() || places.is_unknown() {
        cx.set_reason(0, "the values of frame_step and frame_length");
    }
    let shape = [batch, frames, places, Dim::Known(2)];
    cx.set_tensor(0, cx.elem(0), Some(shape.into_iter().collect()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{DFT, STFT};
    use crate::AttrValue::{self, Int};
    use crate::tensor::testing::{check, outputs};

    const ONE_SIDED: (&str, AttrValue<'static>) = ("onesided", Int(1));
    const INVERSE: (&str, AttrValue<'static>) = ("inverse", Int(1));

    #[test]
    fn spectra_have_the_size_of_the_transform() {
        // Attributes, signal, axis, length, result.
        let rows = [
            (vec![], "float[2, 5, 1]", 1, "_", "float[2, 5, 2]"),
            (vec![], "float[3, N, 10, 1]", -2, "_", "float[3, N, 10, 2]"),
            (vec![ONE_SIDED], "float[3, 5, N, 1]", 2, "_", "float[3, 5, floor(N/2) + 1, 2]"),
            (vec![ONE_SIDED], "float[3, 5, 10, 1]", 0, "_", "float[2, 5, 10, 2]"),
            (vec![INVERSE], "float[2, 5, 2]", 1, "_", "float[2, 5, 2]"),
            (vec![ONE_SIDED, INVERSE], "float[3, 3, 10, 2]", 1, "_", "float[3, 4, 10, 1]"),
            (vec![ONE_SIDED, INVERSE], "float[3, N, 10, ?]", 1, "_", "float[3, 2*N - 2, 10, 1]"),
            (vec![], "float[2, 5, 1]", 1, "=42", "float[2, 42, 2]"),
            (vec![ONE_SIDED], "float[2, 5, 1]", 1, "=42", "float[2, 22, 2]"),
            (vec![ONE_SIDED, INVERSE], "float[2, 5, 2]", 1, "=N", "float[2, N, 1]"),
            (vec![], "float[2, 5, 1]", 0, "int64", "float[?, 5, 2]"),
            (vec![], "float[...]", 1, "_", "float[...]"),
            (
                vec![],
                "float[2, 5, 1]",
                2,
                "_",
                "DFT: axis 2 is the last axis, which is not allowed",
            ),
            (
                vec![],
                "float[2, 5, 1]",
                -1,
                "_",
                "DFT: axis -1 is the last axis, which is not allowed",
            ),
            (vec![], "float[2, 5, 1]", -4, "_", "DFT: axis -4 is out of range for rank 3"),
            (vec![], "float[2]", 0, "_", "DFT: the signal has rank 1, not at least 2"),
            (vec![], "float[2, 5, 1]", 1, "=0", "DFT: dft_length must be positive, not 0"),
            (vec![], "float[2, 5, 1]", 1, "int64[1]", "DFT: input 1 must have rank 0, not 1"),
            (
                vec![ONE_SIDED],
                "float[2, 5, 2]",
                1,
                "_",
                "DFT: the last axis has size 2, but must have 1: one-sided transforms take real numbers",
            ),
            (
                vec![ONE_SIDED, INVERSE],
                "float[2, 5, 1]",
                1,
                "_",
                "DFT: the last axis has size 1, but must have 2: inverse one-sided transforms take complex numbers",
            ),
        ];
        for (attributes, signal, axis, length, expected) in rows {
            let mut with_axis = attributes.clone();
            with_axis.push(("axis", Int(axis)));
            let old = outputs(&DFT, 17, &with_axis, &format!("{signal}; {length}"), 1);
            assert_eq!(old, expected, "{signal}");
            let inputs = format!("{signal}; {length}; ={axis}");
            let new = outputs(&DFT, 20, &attributes, &inputs, 1);
            assert_eq!(new, expected, "{inputs}");
        }
    }

    #[test]
    fn axes_by_default_and_unknown() {
        // SHAPE-16
        let row = [(&[ONE_SIDED][..], "float[2, 5, 7, 1]; _", "float[2, 3, 7, 2]")];
        check(&DFT, 17, &row);
        check(
            &DFT,
            20,
            &[
                (&[ONE_SIDED], "float[2, 5, 7, 1]", "float[2, 5, 4, 2]"),
                (&[], "float[2, 5, 7, 1]; _; int64", "float[2, 5, 7, 2]"),
                (&[ONE_SIDED], "float[2, 5, 7, 1]; _; int64", "float[?, ?, ?, 2]"),
                (&[], "float[2, 5, 7, 1]; =9; int64", "float[?, ?, ?, 2]"),
            ],
        );
    }

    #[test]
    fn infer_frame_shapes() {
        check(
            &STFT,
            17,
            &[
                (&[], "float[2, 10, 1]; =2; float[5]", "float[2, 3, 3, 2]"),
                (&[ONE_SIDED], "float[2, 10, 1]; =2; _; =5", "float[2, 3, 3, 2]"),
                (
                    &[("onesided", Int(0))],
                    "float[N, L, 1]; =2; float[5]; =5",
                    "float[N, floor((L - 5)/2) + 1, 5, 2]",
                ),
                (&[], "float[2, 10, 1]; int64; float[5]", "float[2, ?, 3, 2]"),
                (&[], "float[2, 10, 1]; =2", "float[2, ?, ?, 2]"),
                (&[], "-; -", "?[?, ?, ?, 2]"),
                (&[], "float[3]; -", "STFT: the signal has rank 1, not 2 or 3"),
                (
                    &[],
                    "float[2, 10, 1]; =2; float[5]; =6",
                    "STFT: frame_length and the size of the window differ (6 and 5)",
                ),
                (
                    &[],
                    "float[2, 10, 1]; =2; float[11]",
                    "STFT: a frame of 11 is longer than the signal of 10",
                ),
                (&[], "float[2, 10, 1]; =0; float[5]", "STFT: frame_step must be positive, not 0"),
            ],
        );
    }

    #[test]
    fn the_axis_becomes_an_input() {
        use crate::AttrValue::Int;
        use crate::math::testing::raise_version;
        assert_eq!(raise_version(&DFT, 19, &[("axis", Int(2))], "-"), "y = DFT(a, -, 2)");
        assert_eq!(raise_version(&DFT, 19, &[], "-; -"), "y = DFT(a, b, 1)");
    }
}
