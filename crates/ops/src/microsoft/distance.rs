//! `CDist`: distances between the rows of two matrices.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Double, Float};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, output, string, types};
use crate::function::Expand;
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static CDIST: OpDef = OpDef::new("CDist")
    .domain(DOMAIN)
    .about(
        "Pairwise distances between the rows of two matrices: `C[i, j]` is the distance of row `i` \
         of `A` and row `j` of `B`. `metric` selects the Euclidean distance or its square.",
    )
    .since(
        1,
        &[
            input("A", "T"),
            input("B", "T"),
            output("C", "T"),
            string("metric").or_word("sqeuclidean"),
            types("T", TypeSet::tensors(&[Float, Double])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, distances);

/// Infers a row for each row of A, and a column for each row of B.
fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for input in [0, 1] {
        cx.demand_rank(input, 2)?;
    }
    shared_dim(cx, "the number of columns", &[(0, 1), (1, 1)])?;
    let rows = |input: usize| {
        let shape = cx.shape(input)?;
        shape.first().cloned()
    };
    let [a, b] = [0, 1].map(|input| rows(input).unwrap_or(Dim::Unknown));
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), Some(Shape::from_iter([a, b])));
    Ok(())
}

/// Builds `|a|² - 2ab + |b|²` like ONNX Runtime, without a tensor of all differences. Values that
/// are negative because of rounding become 0.
fn distances(cx: &Expand<'_>) -> Result<String, String> {
    let last = match cx.string("metric").as_deref() {
        None | Some("sqeuclidean") => "C = Relu (rounded)",
        Some("euclidean") => "squares = Relu (rounded)\nC = Sqrt (squares)",
        Some(other) => return Err(format!("its metric '{other}' is not implemented")),
    };
    Ok(format!(
        "last = Constant <value_ints: ints = [-1]> ()
        a_squared = ReduceSumSquare (A, last)
        b_squared = ReduceSumSquare <keepdims: int = 0> (B, last)
        b_turned = Transpose <perm: ints = [1, 0]> (B)
        products = MatMul (A, b_turned)
        doubled = Add (products, products)
        squared = Add (a_squared, b_squared)
        rounded = Sub (squared, doubled)
        {last}"
    ))
}
