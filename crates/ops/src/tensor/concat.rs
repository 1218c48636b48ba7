//! Concat: join tensors along one axis.
//!
//! Since 1; 4 makes `axis` required and takes every type; 11 allows negative `axis`; 13 adds bfloat16.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use super::vector_len;
use crate::facts::*;
use crate::infer::MAX_KNOWN;
use crate::math::shape_values::{self, Ints};
use crate::{Adapt, Infer, InferError, OpDef, Refusal};

pub static CONCAT: OpDef = OpDef::new("Concat")
    .since(1, &[inputs("inputs", "T"), output("concat_result", "T"), int("axis"), types("T", FLOATS)])
    .since(4, &[int("axis").required(), types("T", ALL)])
    .since(11, &[])
    .since(
        13,
        &[inputs("inputs", "T").differentiable(), output("concat_result", "T").differentiable(), types("T", ALL_IR4)],
    )
    .infer(infer)
    .adapter(3, 4, write_axis);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = (0..cx.input_count()).find_map(|index| cx.elem(index));
    let axis = cx.int("axis").or((cx.since() < 4).then_some(1));
    let shape = match axis {
        Some(axis) => joined(cx, axis)?,
        None => None,
    };
    let is_vector = shape.as_ref().is_some_and(|shape| shape.len() == 1);
    cx.set_tensor(0, elem, shape);
    if is_vector {
        pass_ints(cx);
    }
    Ok(())
}

fn joined(cx: &Infer<'_>, axis: i64) -> Result<Option<Shape>, InferError> {
    let mut joined: Option<Shape> = None;
    let mut sum = Dim::Known(0);
    for index in 0..cx.input_count() {
        let Some(shape) = cx.shape(index) else {
            sum = Dim::Unknown;
            continue;
        };
        let axis = cx.axis(axis, shape.len())?;
        sum = sum.add(&shape[axis]);
        let Some(joined) = &mut joined else {
            joined = Some(shape.clone());
            continue;
        };
        cx.demand_rank(index, joined.len())?;
        for (other, (a, b)) in joined.iter_mut().zip(shape).enumerate().filter(|(other, _)| *other != axis) {
            *a = cx.same_dim(a, b, format_args!("sizes of axis {other} of inputs 0 and {index}"))?;
        }
    }
    if let Some(shape) = &mut joined {
        let axis = cx.axis(axis, shape.len())?;
        shape[axis] = sum;
    }
    Ok(joined)
}

/// Joins vectors of integers. One that is not known still takes its place.
fn pass_ints(cx: &mut Infer<'_>) {
    let mut joined: Option<Ints> = None;
    for index in 0..cx.input_count() {
        let next = shape_values::of_input(cx, index).filter(|ints| !ints.scalar).or_else(|| {
            let values = vec![Dim::Unknown; vector_len(cx, index)?];
            Some(Ints { elem: cx.elem(index)?, scalar: false, values })
        });
        match (&mut joined, next) {
            (Some(joined), Some(next)) => joined.values.extend(next.values),
            (None, Some(next)) => joined = Some(next),
            (_, None) => return,
        }
    }
    if let Some(joined) = joined.filter(|ints| ints.values.len() <= MAX_KNOWN && matches!(ints.elem, DataType::Int32 | DataType::Int64)) {
        shape_values::set(cx, joined);
    }
}

fn write_axis(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if !cx.has("axis") {
        cx.set_int("axis", 1);
    }
    Ok(())
}
