//! `Scatter`, `ScatterElements`, `ScatterND` and `TensorScatter`: write elements by index.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Int32, Int64};

use crate::attributes::Attributes;
use crate::def::OpDef;
use crate::downward::{count_axis_from_front, count_indices_from_front, refuse_other_words};
use crate::facts::{ALL, ALL_IR4, ALL_IR12, deprecated, input, int, note, output, string, types};
use crate::infer::{Infer, InferError};
use crate::known::Dims;
use crate::math::shape_values::{self, Ints, of_input, position};
use crate::rules::{demand_rank_from, same_as_first, same_shape};
use crate::sharding::movement;
use crate::tensor::gather_elements::{element_axis, tuple_at};
use crate::tensor::gradients;
use crate::typeset::TypeSet;

pub(crate) static SCATTER: OpDef = OpDef::new("Scatter")
    .about(
        "Writes updates to single elements along an axis. Deprecated since version 11: use \
         `ScatterElements`.",
    )
    .since(
        9,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            input("updates", "T"),
            output("output", "T"),
            int("axis").or(0),
            types("T", ALL),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        11,
        &[
            input("data", "T").differentiable(),
            input("indices", "Tind").non_differentiable(),
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            deprecated(),
        ],
    )
    .same_down()
    .infer(scatter_elements)
    .adapter(10, 11, |cx| {
        cx.become_operator("ScatterElements");
        Ok(())
    })
    .replaced_by("ScatterElements");

pub static SCATTER_ELEMENTS: OpDef = OpDef::new("ScatterElements")
    .about("Copies a tensor and writes updates to single elements along an axis. \
         `output[indices[i][j]][j] = updates[i][j]` for axis 0 in 2-D. `reduction` combines updates \
         with the existing elements; without it, indices must not repeat.")
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "Tind"),
            input("updates", "T"),
            output("output", "T"),
            int("axis").or(0),
            types("T", ALL),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "Tind").non_differentiable(),
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(16, &[string("reduction").or_word("none")])
    .same_up()
    .types_down()
    .since(18, &[note("Adds the reductions `max` and `min`.")])
    .same_up()
    .infer(scatter_elements)
    .adapter(11, 10, |cx| {
        let axis = cx.int("axis").unwrap_or(0);
        count_indices_from_front(cx, 1, axis)?;
        count_axis_from_front(cx, "axis")?;
        cx.become_operator("Scatter");
        Ok(())
    })
    .adapter(18, 17, |cx| refuse_other_words(cx, "reduction", &["none", "add", "mul"]))
.gradient(gradients::scatter_elements)
    .split_by(movement::scatter_elements);

pub static SCATTER_ND: OpDef = OpDef::new("ScatterND")
    .about(
        "Copies a tensor and writes updates to elements or slices given by index tuples. The last \
         axis of `indices` holds tuples that index the first axes of `data`. `reduction` combines \
         updates with the existing elements; without it, tuples must not repeat.",
    )
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "tensor(int64)"),
            input("updates", "T"),
            output("output", "T"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "tensor(int64)").non_differentiable(),
            input("updates", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(16, &[string("reduction").or_word("none")])
    .same_up()
    .types_down()
    .since(18, &[note("Adds the reductions `max` and `min`.")])
    .same_up()
    .infer(scatter_nd)
    .adapter(18, 17, |cx| refuse_other_words(cx, "reduction", &["none", "add", "mul"]))
    .gradient(gradients::scatter_nd);

pub(crate) static TENSOR_SCATTER: OpDef = OpDef::new("TensorScatter")
    .about(
        "Writes an update into a cache along its sequence axis, for key-value caches. The entries \
         of sequence `b` are written from position `write_indices[b]` on. In mode `circular` \
         positions wrap around at the end of the cache; in mode `linear` they must fit.",
    )
    .since(
        24,
        &[
            input("past_cache", "T").differentiable(),
            input("update", "T").differentiable(),
            input("write_indices", "tensor(int64)").optional().non_differentiable(),
            output("present_cache", "T").differentiable(),
            int("axis").or(-2),
            string("mode").or_word("linear"),
            types("T", ALL_IR12),
        ],
    )
    .infer(tensor_scatter)
    .gradient(gradients::tensor_scatter);

fn scatter_elements(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let axis = element_axis(cx, 1)?;
    element_axis(cx, 2)?;
    same_shape(cx, &[1, 2])?;
    same_as_first(cx)?;
    if let Some(axis) = axis {
        let written = write_elements(cx, axis);
        shape_values::set_if(cx, written);
    }
    Ok(())
}

fn write_elements(cx: &Infer<'_>, axis: usize) -> Option<Ints> {
    let (data, indices, updates) = (of_input(cx, 0)?, of_input(cx, 1)?, of_input(cx, 2)?);
    let size = *data.dims.get(axis)?;
    write(cx, data, &updates, |place| {
        let mut target = Dims::from_slice(place);
        *target.get_mut(axis)? = position(&indices.at(place), size)?;
        Some(target)
    })
}

fn scatter_nd(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 1)?;
    demand_rank_from(cx, 1, 1)?;
    if let (Some(data), Some(indices)) = (cx.shape(0), cx.shape(1)) {
        check_updates(cx, data, indices)?;
    }
    same_as_first(cx)?;
    let written = write_slices(cx);
    shape_values::set_if(cx, written);
    Ok(())
}

/// Checks that there is a slice for each tuple of indices.
fn check_updates(cx: &Infer<'_>, data: &Shape, indices: &Shape) -> Result<(), InferError> {
    let Some((tuple, outer)) = indices.split_last() else {
        return Ok(());
    };
    let Some(tuple) = tuple.known() else {
        return Ok(());
    };
    let slice = usize::try_from(tuple).ok().and_then(|tuple| data.get(tuple..));
    let Some(slice) = slice else {
        return cx.fail(format_args!("{tuple} indices are too many for rank {}", data.len()));
    };
    cx.demand_rank(2, outer.len() + slice.len())?;
    let updates = cx.shape(2).into_iter().flatten();
    for (axis, (size, expected)) in updates.zip(outer.iter().chain(slice)).enumerate() {
        let what = format_args!("the size of axis {axis} of input 2 and the size that it replaces");
        cx.same_dim(size, expected, what)?;
    }
    Ok(())
}

fn write_slices(cx: &Infer<'_>) -> Option<Ints> {
    let (data, indices, updates) = (of_input(cx, 0)?, of_input(cx, 1)?, of_input(cx, 2)?);
    let outer = indices.dims.len().checked_sub(1)?;
    let sizes = data.dims.clone();
    write(cx, data, &updates, |place| {
        let (place, inner) = place.split_at_checked(outer)?;
        let mut target = tuple_at(&indices, place, &sizes)?;
        target.extend_from_slice(inner);
        Some(target)
    })
}

/// Writes updates into the data in order, each at the index that `target` returns.
fn write(
    cx: &Infer<'_>,
    mut data: Ints,
    updates: &Ints,
    mut target: impl FnMut(&[usize]) -> Option<Dims>,
) -> Option<Ints> {
    let combine: fn(&Dim, &Dim) -> Dim = match cx.string("reduction").as_deref() {
        None | Some("none") => |_, new| new.clone(),
        Some("add") => Dim::add,
        Some("mul") => Dim::mul,
        Some("max") => Dim::larger,
        Some("min") => Dim::smaller,
        Some(_) => return None,
    };
    let mut all = true;
    Ints::build(updates.elem, updates.dims.clone(), |place| {
        let value = updates.at(place);
        match target(place).and_then(|index| data.offset(&index)) {
            Some(offset) => data.values[offset] = combine(&data.values[offset], &value),
            // An unknown position may be any.
            None => all = false,
        }
        value
    })?;
    all.then_some(data)
}

fn tensor_scatter(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let Some(cache) = cx.shape(0) else {
        return same_as_first(cx);
    };
    let axis = cx.axis(cx.int("axis").unwrap_or(-2), cache.len())?;
    if axis == 0 {
        return cx.fail("axis 0 is the batch axis and is not allowed");
    }
    let mut shape = cache.clone();
    cx.demand_rank(1, cache.len())?;
    for (index, size) in cx.shape(1).into_iter().flatten().enumerate() {
        if index != axis {
            let what = format_args!("sizes of axis {index} of inputs 0 and 1");
            shape[index] = cx.same_dim(&shape[index], size, what)?;
        } else if let (Some(new), Some(room)) = (size.known(), cache[axis].known())
            && new > room
        {
            return cx
                .fail(format_args!("{new} new entries do not fit into {room} of axis {axis}"));
        }
    }
    cx.demand_rank(2, 1)?;
    if let Some([batch]) = cx.shape(2).map(|shape| &shape[..]) {
        shape[0] = cx.same_dim(&shape[0], batch, "the batch and the number of write indices")?;
    }
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::{check, word};

    #[test]
    fn elements_are_written() {
        // SHAPE-16, SHAPE-25
        check(
            &SCATTER_ELEMENTS,
            18,
            &[
                (&[], "float[3, N]; int64[2, 1]; float[2, 1]", "float[3, N]"),
                (&[], "float[...]; int64[2]; -", "float[...]"),
                (
                    &[],
                    "float[3]; int64[2]; float[3]",
                    "ScatterElements: sizes of axis 0 of inputs 1 and 2 differ (2 and 3)",
                ),
                (
                    &[],
                    "float[3]; int64[2]; float[2, 1]",
                    "ScatterElements: input 2 must have rank 1, not 2",
                ),
                (
                    &[("axis", Int(1))],
                    "float[3]; int64[2]; float[2]",
                    "ScatterElements: axis 1 is out of range for rank 1",
                ),
            ],
        );
        check(&SCATTER, 9, &[(&[], "float[3, N]; int64[2, 1]; float[2, 1]", "float[3, N]")]);
        let rows: [(&[_], _, _); 3] = [
            (&[], "[N, 2, 3]; [-1, 0]; [7, M]", "[M, 2, 7]"),
            (&[("reduction", word("add"))], "[N, 2]; [0]; [7]", "[N + 7, 2]"),
            (&[], "[N, 2]; [I]; [7]", "-"),
        ];
        for (attributes, inputs, expected) in rows {
            assert_eq!(infer_value(&SCATTER_ELEMENTS, 18, attributes, inputs), expected);
        }
    }

    #[test]
    fn slices_are_written() {
        check(
            &SCATTER_ND,
            16,
            &[
                (&[], "float[4, 5, 6]; int64[3, M, 2]; float[3, M, 6]", "float[4, 5, 6]"),
                (&[], "float[...]; int64[3, 2]; float[3]", "float[...]"),
                (&[], "float[4]; int64[3, K]; float[3, 9]", "float[4]"),
                (
                    &[],
                    "float[4, 5]; int64[3, 3]; float[3]",
                    "ScatterND: 3 indices are too many for rank 2",
                ),
                (
                    &[],
                    "float[4, 5]; int64[3, 1]; float[3]",
                    "ScatterND: input 2 must have rank 2, not 1",
                ),
                (
                    &[],
                    "float[4, 5]; int64[3, 1]; float[3, 4]",
                    "ScatterND: the size of axis 1 of input 2 and the size that it replaces differ (4 and 5)",
                ),
                (
                    &[],
                    "float; int64[1]; float",
                    "ScatterND: input 0 must have rank 1 or more, not 0",
                ),
            ],
        );
        assert_eq!(infer_value(&SCATTER_ND, 16, &[], "[N, 2, 3]; [[1]]; [M]"), "[N, M, 3]");
        assert_eq!(
            infer_value(&SCATTER_ND, 16, &[], "[[N, 2], [3, 4]]; [[1]]; [[5, 6]]"),
            "[[N, 2], [5, 6]]"
        );
    }

    #[test]
    fn caches_are_written() {
        check(
            &TENSOR_SCATTER,
            24,
            &[
                (&[], "float[?, 8, 128, H]; float[B, 8, 1, 64]; int64[2]", "float[2, 8, 128, 64]"),
                (&[], "float[2, 8, 4]; float[2, 3, 4]", "float[2, 8, 4]"),
                (&[], "-; float[2, 3, 4]", "-"),
                (
                    &[("axis", Int(0))],
                    "float[2, 8]; float[2, 8]",
                    "TensorScatter: axis 0 is the batch axis and is not allowed",
                ),
                (
                    &[],
                    "float[2, 8, 4]; float[2, 9, 4]",
                    "TensorScatter: 9 new entries do not fit into 8 of axis 1",
                ),
                (
                    &[],
                    "float[2, 8, 4]; float[2, 8]",
                    "TensorScatter: input 1 must have rank 3, not 2",
                ),
                (
                    &[],
                    "float[2, 8, 4]; float[2, 8, 5]",
                    "TensorScatter: sizes of axis 2 of inputs 0 and 1 differ (4 and 5)",
                ),
                (
                    &[],
                    "float[2, 8, 4]; float[2, 8, 4]; int64[3]",
                    "TensorScatter: the batch and the number of write indices differ (2 and 3)",
                ),
            ],
        );
    }

    #[test]
    fn scatter_becomes_scatter_elements() {
        use crate::math::testing::raise_version;
        let axis = [("axis", Int(1))];
        assert_eq!(
            raise_version(&SCATTER, 10, &axis, "-; -; -"),
            "y = ScatterElements(a, b, c) axis=1"
        );
    }
}
