//! Steps that several operators share on the way to an older version: axes counted from the front,
//! inputs that become attributes, indices that may not be negative.

use std::fmt::Display;

use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Adapt, Assumption, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::tensor::squeeze::SQUEEZE;
use crate::tensor::unsqueeze::UNSQUEEZE;

/// Counts an axis of the first input, given by an attribute, from the front. An absent attribute
/// stays, since its default is not negative.
pub(crate) fn count_axis_from_front(cx: &mut Adapt<'_>, name: &str) -> Result<(), Refusal> {
    let Some(axis) = cx.int(name).filter(|axis| *axis < 0) else { return Ok(()) };
    let axis = from_front(cx, name, axis, cx.rank(0))?;
    cx.set(name, axis);
    Ok(())
}

/// Counts the axes of the first input, given by an attribute, from the front.
pub(crate) fn count_axes_from_front(cx: &mut Adapt<'_>, name: &str) -> Result<(), Refusal> {
    let rank = cx.rank(0);
    count_axes_of_rank(cx, name, rank)
}

/// Counts the axes given by an attribute from the front. `rank` is `None` if it is unknown.
pub(crate) fn count_axes_of_rank(
    cx: &mut Adapt<'_>,
    name: &str,
    rank: Option<usize>,
) -> Result<(), Refusal> {
    let Some(axes) = cx.ints(name).filter(|axes| axes.iter().any(|axis| *axis < 0)) else {
        return Ok(());
    };
    let axes = axes.into_iter().map(|axis| from_front(cx, name, axis, rank));
    let axes = axes.collect::<Result<Vec<i64>, _>>()?;
    cx.set(name, &axes[..]);
    Ok(())
}

/// Returns an axis counted from the front, or refuses if it is out of range or the rank is unknown.
pub(crate) fn from_front(
    cx: &Adapt<'_>,
    name: &str,
    axis: i64,
    rank: Option<usize>,
) -> Result<i64, Refusal> {
    if axis >= 0 {
        return Ok(axis);
    }
    let Some(rank) = rank else {
        return Err(cx.refuse(format_args!("{name} has {axis}, and the rank is unknown")));
    };
    match axis.checked_add(rank as i64) {
        Some(axis) if axis >= 0 => Ok(axis),
        _ => {
            Err(cx.refuse(format_args!("{name} has {axis}, which is out of range for rank {rank}")))
        }
    }
}

/// Returns the value of an input, or refuses if it is not constant. `None` if it is absent.
pub(crate) fn constant(
    cx: &Adapt<'_>,
    index: usize,
    name: impl Display,
) -> Result<Option<Tensor>, Refusal> {
    if cx.input(index).is_none() {
        return Ok(None);
    }
    match cx.constant(index) {
        Some(tensor) => Ok(Some(tensor)),
        None if cx.is_in_data_file(index) => Err(cx.refuse(format_args!(
            "{name} is an attribute in that version, but its value is in a data file, which is not \
             read: it must be in the model"
        ))),
        None => Err(cx.refuse(format_args!(
            "{name} is an attribute in that version, but not a constant here"
        ))),
    }
}

/// Returns the integers of an input, or refuses if it is not constant. `None` if it is absent.
pub(crate) fn constant_ints(
    cx: &Adapt<'_>,
    index: usize,
    name: &str,
) -> Result<Option<Vec<i64>>, Refusal> {
    let sizes = cx.input_type(index).and_then(|ty| ty.shape());
    if sizes.is_some_and(|sizes| sizes.iter().any(|size| size.known() == Some(0))) {
        return Ok(Some(Vec::new()));
    }
    let Some(tensor) = constant(cx, index, name)? else { return Ok(None) };
    match ints_of(&tensor) {
        Some(values) => Ok(Some(values)),
        None => Err(cx.refuse(format_args!("{name} is not a list of integers"))),
    }
}

/// Returns the elements of a tensor of integers.
pub(crate) fn ints_of(tensor: &Tensor) -> Option<Vec<i64>> {
    if !tensor.data_type().is_integer() {
        return None;
    }
    cast(tensor, DataType::Int64, CastOptions::default()).ok()?.to_vec::<i64>().ok()
}

/// Returns the only element of a floating-point tensor, if a 32-bit float can hold it.
pub(crate) fn exact_float(tensor: &Tensor) -> Option<f32> {
    let wide = cast(tensor, DataType::Double, CastOptions::default()).ok()?;
    let &[value] = wide.as_slice::<f64>().ok()? else { return None };
    let narrow = value as f32;
    (f64::from(narrow) == value || value.is_nan()).then_some(narrow)
}

/// Turns the input `index`, which must be constant, into an attribute. The older version has
/// neither this input nor any after it.
pub(crate) fn ints_to_attribute(
    cx: &mut Adapt<'_>,
    index: usize,
    name: &str,
) -> Result<(), Refusal> {
    if let Some(values) = constant_ints(cx, index, name)? {
        cx.set(name, &values[..]);
    }
    cx.keep_inputs(index);
    Ok(())
}

/// Removes an attribute of integers that are all 1, which is its default.
pub(crate) fn drop_ones(cx: &mut Adapt<'_>, name: &str) -> Result<(), Refusal> {
    if cx.ints(name).is_some_and(|values| values.iter().all(|value| *value == 1)) {
        cx.remove(name);
    }
    Ok(())
}

/// Returns the floats of an input that must be constant, if 32-bit floats can hold them. `None` if
/// it is absent.
pub(crate) fn constant_floats(
    cx: &Adapt<'_>,
    index: usize,
    name: &str,
) -> Result<Option<Vec<f32>>, Refusal> {
    let Some(tensor) = constant(cx, index, name)? else { return Ok(None) };
    match tensor.to_vec::<f32>() {
        Ok(values) => Ok(Some(values)),
        Err(error) => Err(cx.refuse(format_args!("{name}: {error}"))),
    }
}

/// Refuses an attribute whose word is not one of `words`.
pub(crate) fn refuse_other_words(
    cx: &mut Adapt<'_>,
    name: &str,
    words: &[&str],
) -> Result<(), Refusal> {
    match cx.string(name) {
        Some(word) if !words.contains(&word.as_str()) => {
            Err(cx
                .refuse(format_args!("{name} must have value {}, not {word}", words.join(" or "))))
        }
        _ => Ok(()),
    }
}

/// Whether indices are certain not to be negative, or the caller grants it.
pub(crate) fn counts_from_front(cx: &mut Adapt<'_>, index: usize) -> bool {
    let found = cx.constant(index).and_then(|tensor| ints_of(&tensor));
    found.is_some_and(|values| values.iter().all(|value| *value >= 0))
        || cx.assume(Assumption::IndicesInRange)
}

/// Replaces negative elements of a constant input of integers by `replace`. Returns whether the
/// input is constant and has no negative element afterwards.
pub(crate) fn replace_negative(
    cx: &mut Adapt<'_>,
    index: usize,
    replace: impl Fn(i64) -> i64,
) -> bool {
    let Some(tensor) = cx.constant(index) else { return false };
    let Some(mut values) = ints_of(&tensor) else { return false };
    if values.iter().all(|value| *value >= 0) {
        return true;
    }
    values.iter_mut().filter(|value| **value < 0).for_each(|value| *value = replace(*value));
    if values.iter().any(|value| *value < 0) {
        return false;
    }
    let Ok(wide) = Tensor::from_vec(tensor.dims(), values) else { return false };
    let options = CastOptions::default();
    let narrow = cast(&wide, tensor.data_type(), options).ok();
    let is_exact = narrow.as_ref().and_then(|narrow| cast(narrow, DataType::Int64, options).ok());
    let Some(narrow) = narrow.filter(|_| is_exact.is_some_and(|again| again == wide)) else {
        return false;
    };
    let replaced = cx.add_constant(narrow);
    cx.set_input(index, Some(replaced));
    true
}

/// Counts indices of an axis of the first input from the front, which older versions demand.
/// Constant indices are replaced if the size of the axis is known. Otherwise nodes add the size to
/// negative ones at run time, unless the caller grants that none is negative.
pub(crate) fn count_indices_from_front(
    cx: &mut Adapt<'_>,
    index: usize,
    axis: i64,
) -> Result<(), Refusal> {
    if let Some(size) = size_of_axis(cx, axis)
        && replace_negative(cx, index, |value| value.saturating_add(size))
    {
        return Ok(());
    }
    if counts_from_front(cx, index) {
        return Ok(());
    }
    let elem = cx.input_type(index).and_then(|ty| ty.elem());
    let elem = elem.or_else(|| Some(cx.constant(index)?.data_type()));
    let Some(elem) = elem.filter(|elem| matches!(elem, DataType::Int32 | DataType::Int64)) else {
        return Err(cx.refuse("its indices may be negative and do not have type int32 or int64"));
    };
    let to = || [("to", AttrValue::Int(elem.number().into()))];
    let indices = cx.input(index);
    let axis = from_front(cx, "axis", axis, cx.rank(0))?;
    let shape = cx.before("Shape", &[cx.input(0)], &[]);
    let axis = cx.add_int(axis);
    let size = cx.before("Gather", &[Some(shape), Some(axis)], &[]);
    let size = cx.before("Cast", &[Some(size)], &to());
    let zero = cast(&Tensor::scalar(0i64), elem, CastOptions::default());
    let zero = cx.add_constant(zero.map_err(|error| cx.refuse(error))?);
    let below = cx.before("Less", &[indices, Some(zero)], &[]);
    let count = cx.before("Cast", &[Some(below)], &to());
    let added = cx.before("Mul", &[Some(count), Some(size)], &[]);
    let positive = cx.before("Add", &[indices, Some(added)], &[]);
    cx.set_input(index, Some(positive));
    Ok(())
}

/// Returns the size of an axis of the first input, if it is known.
fn size_of_axis(cx: &Adapt<'_>, axis: i64) -> Option<i64> {
    let shape = cx.input_type(0)?.shape()?;
    let axis = if axis < 0 { axis.checked_add(shape.len() as i64)? } else { axis };
    shape.get(usize::try_from(axis).ok()?)?.known()
}

/// Puts a `Squeeze` of a version before 13 between an input and its producer.
pub(crate) fn squeeze(cx: &mut Adapt<'_>, index: usize, axes: &[i64]) {
    change_axes(cx, index, axes, SQUEEZE.name);
}

/// Puts an `Unsqueeze` of a version before 13 between an input and its producer.
pub(crate) fn unsqueeze(cx: &mut Adapt<'_>, index: usize, axes: &[i64]) {
    change_axes(cx, index, axes, UNSQUEEZE.name);
}

fn change_axes(cx: &mut Adapt<'_>, index: usize, axes: &[i64], op: &'static str) {
    if !axes.is_empty() {
        let value = cx.before(op, &[cx.input(index)], &[("axes", AttrValue::from(axes))]);
        cx.set_input(index, Some(value));
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue;
    use sardonyx_model::AttrValue::{Float, Int};

    use crate::OpDef;
    use crate::math::binary::ADD;
    use crate::math::binary::MOD;
    use crate::math::binary::SUB;
    use crate::math::clip::CLIP;
    use crate::math::softmax::SOFTMAX;
    use crate::math::testing::lower_version;
    use crate::math::unary::SELU;
    use crate::nn::dropout::DROPOUT;
    use crate::nn::recurrent::GRU;
    use crate::quantization::linear::QUANTIZE_LINEAR;
    use crate::reduction::REDUCE_L2;
    use crate::reduction::REDUCE_MAX;
    use crate::reduction::REDUCE_SUM;
    use crate::reduction::REDUCE_SUM_SQUARE;
    use crate::tensor::cast::CAST;
    use crate::tensor::concat::CONCAT;
    use crate::tensor::gather::GATHER;
    use crate::tensor::generate::ONE_HOT;
    use crate::tensor::pad::PAD;
    use crate::tensor::rearrange::DEPTH_TO_SPACE;
    use crate::tensor::reshape::RESHAPE;
    use crate::tensor::scatter::SCATTER_ELEMENTS;
    use crate::tensor::select::TOP_K;
    use crate::tensor::slice::SLICE;
    use crate::tensor::split::SPLIT;
    use crate::tensor::squeeze::SQUEEZE;
    use crate::tensor::testing::{ints, word};
    use crate::tensor::unsqueeze::UNSQUEEZE;

    type Row =
        (&'static OpDef, u32, Vec<(&'static str, AttrValue<'static>)>, &'static str, &'static str);

    fn check(rows: Vec<Row>) {
        for (def, from, attributes, inputs, expected) in rows {
            let found = lower_version(def, from, &attributes, inputs);
            assert_eq!(found, expected, "{} {from} {attributes:?} of {inputs}", def.name);
        }
    }

    #[test]
    fn inputs_become_attributes() {
        check(vec![
            (&REDUCE_MAX, 18, vec![], "float[2, 3]; =[1]", "y = ReduceMax(a) axes=[1]"),
            (&REDUCE_MAX, 18, vec![], "float[2, 3]", "y = ReduceMax(a)"),
            (&REDUCE_MAX, 18, vec![], "float[2, 3]; int64[0]", "y = ReduceMax(a)"),
            (
                &REDUCE_MAX,
                18,
                vec![],
                "float[2, 3]; int64[1]",
                "ReduceMax: axes is an attribute in that version, but not a constant here",
            ),
            (&REDUCE_L2, 18, vec![("noop_with_empty_axes", Int(1))], "float[2]", "y = Abs(a)"),
            (
                &REDUCE_SUM_SQUARE,
                18,
                vec![("noop_with_empty_axes", Int(1)), ("keepdims", Int(0))],
                "float[2]",
                "y = Mul(a, a)",
            ),
            (&SQUEEZE, 13, vec![], "float[1, 3]; =[0]", "y = Squeeze(a) axes=[0]"),
            (&SPLIT, 13, vec![], "float[4]; =[1, 3]", "y = Split(a) split=[1, 3]"),
            (&PAD, 11, vec![], "float[4]; =[1, 3]; =1", "y = Pad(a) value=1 pads=[1, 3]"),
            (&TOP_K, 10, vec![], "float[4]; =[2]", "y = TopK(a) k=2"),
            (&SLICE, 10, vec![], "float[9]; =[1]; =[5]", "y = Slice(a) starts=[1] ends=[5]"),
            (
                &SLICE,
                10,
                vec![],
                "float[9]; =[1]; =[5]; =[0]; =[2]",
                "Slice: that version has no input `steps`, but a step is not 1",
            ),
            (&CLIP, 11, vec![], "float[4]; _; =6", "y = Clip(a) max=6"),
            (&CLIP, 11, vec![], "double[4]; _; =6", "y = Clip(a) min=-inf max=6"),
        ]);
    }

    #[test]
    fn axes_count_from_the_front() {
        check(vec![
            (
                &CONCAT,
                11,
                vec![("axis", Int(-1))],
                "float[2, 3]; float[2, 3]",
                "y = Concat(a, b) axis=1",
            ),
            (
                &CONCAT,
                11,
                vec![("axis", Int(-1))],
                "float[...]; float[2, 3]",
                "Concat: axis has -1, and the rank is unknown",
            ),
            (&UNSQUEEZE, 11, vec![("axes", ints(&[-1]))], "float[2]", "y = Unsqueeze(a) axes=[1]"),
            (
                &REDUCE_SUM,
                11,
                vec![("axes", ints(&[-2]))],
                "float[2, 3]",
                "y = ReduceSum(a) axes=[0]",
            ),
            (&SLICE, 11, vec![], "float[2, 3]; =[0]; =[1]; =[-1]", "y = Slice(a, [0], [1], [1])"),
            (
                &SOFTMAX,
                13,
                vec![("axis", Int(0))],
                "float[2, 3]",
                "t2 = Transpose(a) perm=[1, 0]; t3 = Softmax(t2) axis=1; y = Transpose(t3) perm=[1, 0]",
            ),
            (&SOFTMAX, 13, vec![], "float[...]", "y = Softmax(a) axis=-1"),
        ]);
    }

    #[test]
    fn old_broadcasting_names_a_run_of_axes() {
        check(vec![
            (&ADD, 7, vec![], "float[2, 3]; float[2, 3]", "y = Add(a, b)"),
            (&ADD, 7, vec![], "float[2, 3]; float[3]", "y = Add(a, b) broadcast=1"),
            (&ADD, 7, vec![], "float[3]; float[2, 3]", "y = Add(b, a) broadcast=1"),
            (
                &SUB,
                7,
                vec![],
                "float[2, 3, 4, 4]; float[3, 1, 1]",
                "t3 = Squeeze(b) axes=[1, 2]; y = Sub(a, t3) broadcast=1 axis=1",
            ),
            (
                &SUB,
                7,
                vec![],
                "float[3]; float[2, 3]",
                "t4 = Unsqueeze(a) axes=[0]; t5 = Tile(t4, [2, 1]); y = Sub(t5, b)",
            ),
            (
                &SUB,
                7,
                vec![],
                "float[N]; float[2, N]",
                "Sub: that version has no implicit broadcasting, and the sizes of the inputs are unknown",
            ),
        ]);
    }

    #[test]
    fn refuses_features_that_older_versions_lack() {
        check(vec![
            (
                &PAD,
                19,
                vec![("mode", word("wrap"))],
                "float[2]; =[1, 1]",
                "Pad: mode must have value constant or reflect or edge, not wrap",
            ),
            (
                &DEPTH_TO_SPACE,
                11,
                vec![("mode", word("CRD"))],
                "float[1, 4, N, 1]",
                "DepthToSpace: mode must have value DCR where channels, height and width are not known, not CRD",
            ),
            (
                &DEPTH_TO_SPACE,
                11,
                vec![("mode", word("CRD")), ("blocksize", Int(2))],
                "float[N, 12, 3, 5]",
                "t4 = Reshape(a, [0, 3, 2, 2, 3, 5]); t5 = Transpose(t4) perm=[0, 1, 4, 2, 5, 3]; \
                 y = Reshape(t5, [0, 3, 6, 10])",
            ),
            (
                &RESHAPE,
                14,
                vec![("allowzero", Int(1))],
                "float[0, 3]; =[0, 3]",
                "Reshape: with allowzero = 1, the shape has a 0",
            ),
            (
                &QUANTIZE_LINEAR,
                13,
                vec![],
                "float[2, 3]; float[3]",
                "QuantizeLinear: version 10 supports only one scale, and there are more, or the shape is unknown",
            ),
            (
                &MOD,
                28,
                vec![],
                "float[2]; float[2]",
                "Mod: remainders of floats with the sign of the divisor (fmod = 0) came with version 28",
            ),
        ]);
    }

    #[test]
    fn old_defaults_are_written() {
        check(vec![
            (
                &SELU,
                6,
                vec![("alpha", Float(2.0))],
                "float[2]",
                "y = Selu(a) alpha=2 gamma=1.050701",
            ),
            (&DROPOUT, 7, vec![], "float[2]", "y = Dropout(a) is_test=1"),
            (&GRU, 3, vec![], "float[1, 1, 1]", "y = GRU(a) direction=forward"),
            (&CAST, 6, vec![("to", Int(7))], "float[2]", "y = Cast(a) to=INT64"),
        ]);
    }

    #[test]
    fn constant_indices_count_from_the_front() {
        let axis = |axis| ("axis", Int(axis));
        check(vec![
            (&GATHER, 11, vec![], "float[5, 2]; =[-1, 0, -5]", "y = Gather(a, [4, 0, 0])"),
            (&GATHER, 11, vec![axis(-1)], "float[N, 2]; =-1", "y = Gather(a, 1) axis=-1"),
            (
                &SCATTER_ELEMENTS,
                11,
                vec![axis(1)],
                "float[N, 5]; =[[-3]]; float[1, 1]",
                "y = Scatter(a, [2], c) axis=1",
            ),
            (
                &ONE_HOT,
                11,
                vec![],
                "=[-1, 2, -4, -9]; =4; float[2]",
                "y = OneHot([3, 2, 0, 4], 4, c)",
            ),
            (
                &ONE_HOT,
                11,
                vec![],
                "=[-1]; int64; float[2]",
                "OneHot: an index may be negative, which version 9 does not support",
            ),
        ]);
        // With an unknown size, indices are counted at run time.
        let found = lower_version(&GATHER, 11, &[], "float[N, 2]; =[-1]");
        assert!(found.contains("Shape(a)"), "{found}");
    }

    /// Checks that the remainder follows the divisor, as for -7 and 3: -7 - (-2) * 3 = -1, and -1 +
    /// 3 = 2.
    #[test]
    fn integers_divide_towards_zero() {
        check(vec![(
            &MOD,
            10,
            vec![("fmod", Int(1))],
            "int64[2]; int64[2]",
            "t3 = Div(a, b); t4 = Mul(t3, b); y = Sub(a, t4)",
        )]);
    }
}
