//! Collectives: operators that the ranks of a model run together, each in its own process with its
//! own model. ONNX Runtime has three in its domain; TensorRT has one for all, which its tools write
//! into the default domain.
//!
//! They have no function, since the outputs of a rank depend on the others.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{
    Bfloat16, Bool, Double, Float, Float16, Int8, Int32, Int64, Uint8,
};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, inputs, int, ints, non_deterministic, output, outputs, string, types};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

const MOVED: TypeSet = TypeSet::tensors(&[Float16, Float, Double, Int64, Bool]);

pub(crate) static ALL_REDUCE: OpDef = OpDef::new("AllReduce")
    .domain(DOMAIN)
    .about("Adds the tensors of all ranks element by element. All ranks get the sum.")
    .since(
        1,
        &[
            inputs("input", "T"),
            outputs("output", "T"),
            types("T", TypeSet::tensors(&[Float16, Float, Double])),
            non_deterministic(),
        ],
    )
    .infer(infer_same)
    .collective();

pub(crate) static ALL_GATHER: OpDef = OpDef::new("AllGather")
    .domain(DOMAIN)
    .about(
        "Concatenates the tensors of all ranks along an axis, in the order of the ranks. All ranks \
         get the result. The tensors have the same shape.",
    )
    .since(
        1,
        &[
            inputs("input", "T"),
            outputs("output", "T"),
            int("axis").or(1),
            int("group_size").or(1),
            types("T", MOVED),
            non_deterministic(),
        ],
    )
    .infer(infer_gather)
    .collective();

pub(crate) static ALL_TO_ALL: OpDef = OpDef::new("AllToAll")
    .domain(DOMAIN)
    .about(
        "Cuts the tensor of each rank into as many equal parts as there are ranks, in row-major \
         order. Rank `i` gets part `i` of each rank, in the order of the ranks, in the shape of \
         its input.",
    )
    .since(
        1,
        &[
            inputs("input", "T"),
            outputs("output", "T"),
            int("group_size").or(1),
            types("T", MOVED),
            non_deterministic(),
        ],
    )
    .infer(infer_same)
    .collective();

/// TensorRT's tools write it into the default domain, although the standard has no such operator.
pub(crate) static DIST_COLLECTIVE: OpDef = OpDef::new("DistCollective")
    .about(
        "Collective operation of TensorRT: `all_reduce` combines the tensors of all ranks, \
         `all_gather` concatenates them along the first axis, `reduce_scatter` combines them and \
         gives each rank its part of the first axis, `all_to_all` gives rank `i` part `i` of the \
         first axis of each rank, and `broadcast` gives all ranks the tensor of one. The tensors \
         of the ranks have the same shape.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            output("output", "T"),
            string("collective_operation").required(),
            int("group_size").or(0),
            ints("groups"),
            int("nb_rank").or(1),
            string("reduce_op").or_word("none"),
            int("root").or(-1),
            types("T", TypeSet::tensors(&[Float, Float16, Bfloat16, Int8, Uint8, Int32, Int64])),
            non_deterministic(),
        ],
    )
    .infer(infer_dist)
    .collective();

/// Infers each output like the input of the same index.
fn infer_same(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for index in 0..cx.output_count() {
        if let Some(ty) = cx.input(index) {
            cx.set(index, ty.clone());
        }
    }
    Ok(())
}

/// Returns the number of ranks from an attribute.
fn ranks(cx: &Infer<'_>, name: &str) -> Result<i64, InferError> {
    match cx.int(name).unwrap_or(1) {
        ranks @ 1.. => Ok(ranks),
        ranks => cx.fail(format_args!("{name} must be 1 or more, not {ranks}")),
    }
}

fn infer_gather(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let ranks = ranks(cx, "group_size")?;
    let axis = cx.int("axis").unwrap_or(1);
    for index in 0..cx.output_count() {
        let shape = match cx.shape(index) {
            Some(shape) => {
                let axis = cx.axis(axis, shape.len())?;
                Some(gather_shape(shape, axis, ranks))
            }
            None => None,
        };
        cx.set_tensor(index, cx.elem(index), shape);
    }
    Ok(())
}

/// Returns a shape whose `axis` holds the parts of all ranks.
fn gather_shape(shape: &Shape, axis: usize, ranks: i64) -> Shape {
    let mut shape = shape.clone();
    shape[axis] = shape[axis].mul(&Dim::Known(ranks));
    shape
}

fn infer_dist(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let ranks = ranks(cx, "nb_rank")?;
    let operation = cx.string("collective_operation").unwrap_or_default().to_ascii_lowercase();
    let shape = match (&*operation, cx.shape(0)) {
        ("all_reduce" | "broadcast" | "all_to_all" | "reduce", shape) => shape.cloned(),
        ("all_gather" | "gather", Some(shape)) => {
            let axis = cx.axis(0, shape.len())?;
            Some(gather_shape(shape, axis, ranks))
        }
        ("reduce_scatter" | "scatter", Some(shape)) => {
            let axis = cx.axis(0, shape.len())?;
            let size = &shape[axis];
            if size.known().is_some_and(|size| size % ranks != 0) {
                let what = format_args!("{size} rows cannot be divided among {ranks} ranks");
                return cx.fail(what);
            }
            let mut shape = shape.clone();
            shape[axis] = size.floor_div(&Dim::Known(ranks));
            Some(shape)
        }
        ("all_gather" | "gather" | "reduce_scatter" | "scatter", None) => None,
        _ => return cx.fail(format_args!("the collective operation '{operation}' is unknown")),
    };
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}
