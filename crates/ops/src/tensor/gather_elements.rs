//! `GatherElements` and `GatherND`: take elements along one axis by index, or by tuples of indices.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Int32, Int64};
use sardonyx_tensor::Tensor;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::{count_indices_from_front, from_front};
use crate::facts::{ALL, ALL_IR4, input, int, output, types};
use crate::infer::{Infer, InferError};
use crate::known::Dims;
use crate::math::shape_values::{self, Ints, of_input, position};
use crate::sharding::movement;
use crate::tensor::gradients;
use crate::typeset::TypeSet;

pub static GATHER_ELEMENTS: OpDef = OpDef::new("GatherElements")
    .about(
        "Gathers single elements along an axis. `output[i][j] = data[indices[i][j]][j]` for axis 0 \
         in 2-D. The output has the shape of `indices`.",
    )
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "Tind"),
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
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .adapter(11, 10, gather_by_positions)
    .infer(gather_elements)
    .reads_part_of_first()
    .gradient(gradients::gather_elements)
    .split_by(movement::gather_elements);

pub static GATHER_ND: OpDef = OpDef::new("GatherND")
    .about(
        "Gathers elements or slices by index tuples. The last axis of `indices` holds tuples that \
         index the axes of `data` after `batch_dims`. The first `batch_dims` axes of both are \
         processed in parallel.",
    )
    .since(
        11,
        &[
            input("data", "T"),
            input("indices", "tensor(int64)"),
            output("output", "T"),
            types("T", ALL),
        ],
    )
    .since(12, &[int("batch_dims").or(0)])
    .same_up()
    .types_down()
    .since(
        13,
        &[
            input("data", "T").differentiable(),
            input("indices", "tensor(int64)").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(gather_nd)
    .reads_part_of_first()
    .gradient(gradients::gather_nd);

/// Replaces `GatherElements` by `Gather` from the flat data. The position of each element is the
/// index times the stride of the axis, plus, for each other axis, the own position times its
/// stride.
fn gather_by_positions(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let sizes = |index: usize| {
        let shape = cx.input_type(index)?.shape()?;
        shape.iter().map(Dim::known).collect::<Option<Vec<i64>>>()
    };
    let (Some(data), Some(indices)) = (sizes(0), sizes(1)) else {
        return Err(cx.refuse(
            "it was added in version 11, and older operators require the sizes of its inputs, which are unknown",
        ));
    };
    let axis = from_front(cx, "axis", cx.int("axis").unwrap_or(0), Some(data.len()))?;
    let axis = usize::try_from(axis).unwrap_or_default();
    let strides: Vec<i64> = (0..data.len()).map(|axis| data[axis + 1..].iter().product()).collect();
    count_indices_from_front(cx, 1, axis as i64)?;
    let to = [("to", AttrValue::Int(Int64.number().into()))];
    let wide = cx.before("Cast", &[cx.input(1)], &to);
    let stride = cx.add_int(strides[axis]);
    let mut places = cx.before("Mul", &[Some(wide), Some(stride)], &[]);
    for (other, count) in indices.iter().enumerate().filter(|(other, _)| *other != axis) {
        let mut dims = vec![1; indices.len()];
        dims[other] = usize::try_from(*count).unwrap_or_default();
        let positions = (0..*count).map(|position| position * strides[other]).collect();
        let positions = Tensor::from_vec(&dims[..], positions).map_err(|error| cx.refuse(error))?;
        let positions = cx.add_constant(positions);
        places = cx.before("Add", &[Some(places), Some(positions)], &[]);
    }
    let all = cx.add_ints(&[-1]);
    let elements = cx.before("Reshape", &[cx.input(0), Some(all)], &[]);
    cx.become_operator("Gather");
    cx.set("axis", 0i64);
    cx.set_inputs(&[Some(elements), Some(places)]);
    Ok(())
}

fn gather_elements(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let axis = element_axis(cx, 1)?;
    cx.set_tensor(0, cx.elem(0), cx.shape(1).cloned());
    if let (Some(data), Some(indices), Some(axis)) = (of_input(cx, 0), of_input(cx, 1), axis) {
        let picked = data.pick(indices.dims.clone(), |index| {
            let mut from = Dims::from_slice(index);
            *from.get_mut(axis)? = position(&indices.at(index), *data.dims.get(axis)?)?;
            Some(from)
        });
        shape_values::set_if(cx, picked);
    }
    Ok(())
}

/// Returns the axis along which an index replaces the position of its element. Data and the input
/// `indices` must have one rank, which may be unknown.
pub(super) fn element_axis(cx: &Infer<'_>, indices: usize) -> Result<Option<usize>, InferError> {
    let rank = match (cx.rank(0), cx.rank(indices)) {
        (Some(rank), _) => {
            cx.demand_rank(indices, rank)?;
            Some(rank)
        }
        (None, rank) => rank,
    };
    match (rank, cx.int("axis")) {
        (Some(0), _) => cx.fail("the inputs must not be scalars"),
        (Some(rank), Some(axis)) => cx.axis(axis, rank).map(Some),
        _ => Ok(None),
    }
}

fn gather_nd(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match (cx.shape(0), cx.shape(1)) {
        (Some(data), Some(indices)) => infer_slices(cx, data, indices)?,
        _ => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    let values = pick_slices(cx);
    shape_values::set_if(cx, values);
    Ok(())
}

/// Infers the shape of the slices that tuples pick. Its rank depends on the length of the tuples.
fn infer_slices(
    cx: &Infer<'_>,
    data: &Shape,
    indices: &Shape,
) -> Result<Option<Shape>, InferError> {
    let [outer @ .., tuple] = &indices[..] else {
        return cx.fail("input 1 must not be a scalar");
    };
    if data.is_empty() {
        return cx.fail("input 0 must not be a scalar");
    }
    let batch = batch_dims(cx)?;
    if batch > outer.len().min(data.len()) {
        return cx.fail(format_args!(
            "batch_dims is {batch}, but the inputs have rank {} and {}",
            data.len(),
            indices.len()
        ));
    }
    let mut shape: Shape = outer.iter().cloned().collect();
    for (axis, size) in shape.iter_mut().enumerate().take(batch) {
        let what = format_args!("sizes of axis {axis} of both inputs");
        *size = cx.same_dim(size, &data[axis], what)?;
    }
    let Some(tuple) = tuple.known() else {
        return Ok(None);
    };
    let rest = usize::try_from(tuple).ok().and_then(|tuple| data.get(tuple.checked_add(batch)?..));
    match rest {
        Some(rest) => {
            shape.extend(rest.iter().cloned());
            Ok(Some(shape))
        }
        None => cx.fail(format_args!(
            "{tuple} indices after {batch} batch axes are too many for rank {}",
            data.len()
        )),
    }
}

fn batch_dims(cx: &Infer<'_>) -> Result<usize, InferError> {
    let batch = cx.int("batch_dims").unwrap_or(0);
    usize::try_from(batch).or_else(|_| cx.fail(format_args!("batch_dims is {batch}")))
}

fn pick_slices(cx: &Infer<'_>) -> Option<Ints> {
    let (data, indices) = (of_input(cx, 0)?, of_input(cx, 1)?);
    let batch = batch_dims(cx).ok()?;
    let (tuple, outer) = indices.dims.split_last()?;
    let rest = data.dims.get(tuple.checked_add(batch)?..)?;
    if batch > outer.len() {
        return None;
    }
    let dims = outer.iter().chain(rest).copied().collect();
    data.pick(dims, |index| {
        let (place, inner) = index.split_at(outer.len());
        let mut from = Dims::from_slice(&place[..batch]);
        from.extend(tuple_at(&indices, place, &data.dims[batch..])?);
        from.extend_from_slice(inner);
        Some(from)
    })
}

/// Returns the indices in one tuple, each within its axis.
pub(super) fn tuple_at(indices: &Ints, place: &[usize], sizes: &[usize]) -> Option<Dims> {
    let mut at = Dims::from_slice(place);
    at.push(0);
    (0..*indices.dims.last()?)
        .map(|number| {
            at[place.len()] = number;
            position(&indices.at(&at), *sizes.get(number)?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn each_index_picks_an_element() {
        // SHAPE-16, SHAPE-25
        check(
            &GATHER_ELEMENTS,
            13,
            &[
                (&[], "float[3, N]; int64[2, M]", "float[2, M]"),
                (&[], "-; int64[2]", "?[2]"),
                (&[], "float[3]; -", "float[...]"),
                (
                    &[("axis", Int(2))],
                    "float[3, N]; int64[2, M]",
                    "GatherElements: axis 2 is out of range for rank 2",
                ),
                (&[], "float[3, N]; int64[2]", "GatherElements: input 1 must have rank 2, not 1"),
                (&[], "float; int64", "GatherElements: the inputs must not be scalars"),
            ],
        );
        assert_eq!(
            infer_value(&GATHER_ELEMENTS, 13, &[("axis", Int(1))], "[[N, 2], [3, 4]]; [[-1], [0]]"),
            "[[2], [3]]"
        );
    }

    #[test]
    fn each_tuple_picks_a_slice() {
        let batch = |number| ("batch_dims", Int(number));
        check(
            &GATHER_ND,
            13,
            &[
                (&[], "float[4, 5, N]; int64[2]", "float[N]"),
                (&[], "float[4, 5, N]; int64[M, 1]", "float[M, 5, N]"),
                (&[batch(1)], "float[?, 2, N]; int64[B, 1]", "float[B, N]"),
                (&[], "float[4, 5]; int64[M, K]", "float[...]"),
                (&[], "float[4, 5]; int64[M, 0]", "float[M, 4, 5]"),
                (&[], "float[...]; int64[2]", "float[...]"),
                (
                    &[],
                    "float[4, 5]; int64[3]",
                    "GatherND: 3 indices after 0 batch axes are too many for rank 2",
                ),
                (
                    &[batch(1)],
                    "float[4, 5]; int64[3, 1]",
                    "GatherND: sizes of axis 0 of both inputs differ (3 and 4)",
                ),
                (
                    &[batch(2)],
                    "float[4, 5]; int64[3, 1]",
                    "GatherND: batch_dims is 2, but the inputs have rank 2 and 2",
                ),
                (&[batch(-1)], "float[4]; int64[1]", "GatherND: batch_dims is -1"),
                (&[], "float; int64[1]", "GatherND: input 0 must not be a scalar"),
                (&[], "float[4]; int64", "GatherND: input 1 must not be a scalar"),
            ],
        );
        assert_eq!(
            infer_value(&GATHER_ND, 13, &[], "[[N, 2], [3, 4]]; [[1], [0]]"),
            "[[3, 4], [N, 2]]"
        );
        assert_eq!(
            infer_value(&GATHER_ND, 13, &[batch(1)], "[[N, 2], [3, 4]]; [[-1], [0]]"),
            "[2, 3]"
        );
    }
}
