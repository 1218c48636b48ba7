//! `Gemm`: a scaled matrix product plus a scaled third matrix: `alpha * A * B + beta * C`.
//!
//! `transA` and `transB` transpose the operands first. C broadcasts to the shape of the product.
//!
//! Since 1, where C broadcasts only with `broadcast=1`; 6 is the same; 7 always broadcasts C; 9
//! adds integers; 11 makes C optional; 13 adds bfloat16.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::{CastOptions, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::cost::Counted;
use crate::def::OpDef;
use crate::downward::squeeze;
use crate::facts::{
    FLOATS, HIGH_PRECISION, HIGH_PRECISION_IR4, float, input, int, output, types, without_attribute,
};
use crate::infer::{Demand, Infer, InferError};
use crate::math::gradients;
use crate::sharding::contraction;
use crate::tensor::rearrange::TILE;

pub static GEMM: OpDef = OpDef::new("Gemm")
    .about(
        "General matrix multiplication: `Y = alpha * A' * B' + beta * C`. `A'` is `A`, or its \
         transpose if `transA` is 1; likewise `B'`. `C` is broadcast to the shape of the product. \
         Before version 7 `C` is broadcast only if `broadcast` is 1; since version 11 it may be \
         absent.",
    )
    .since(
        1,
        &[
            input("A", "T"),
            input("B", "T"),
            input("C", "T"),
            output("Y", "T"),
            float("alpha").or_float(1.0),
            float("beta").or_float(1.0),
            int("broadcast").or(0),
            int("transA").or(0),
            int("transB").or(0),
            types("T", FLOATS),
        ],
    )
    .since(6, &[])
    .same()
    .since(7, &[without_attribute("broadcast")])
    .since(9, &[types("T", HIGH_PRECISION)])
    .widens()
    .since(11, &[input("C", "T").optional()])
    .same_up()
    .since(
        13,
        &[
            input("A", "T").differentiable(),
            input("B", "T").differentiable(),
            input("C", "T").optional().differentiable(),
            output("Y", "T").differentiable(),
            types("T", HIGH_PRECISION_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .adapter(6, 7, remove_broadcast)
    .adapter(7, 6, set_broadcast)
    .adapter(11, 10, add_zero)
    .cost(multiply_adds)
    .without_reference_rule(&[1])
    .gradient(gradients::gemm)
    .split_by(contraction::gemm);

/// Counts one multiply-add for each element of the product and each index of the inner axis.
fn multiply_adds(node: &Counted<'_>) -> Option<Dim> {
    let is_turned = node.cx.int("transA")? != 0;
    let summed = node.shape(0)?.get(usize::from(!is_turned))?;
    Some(node.output_elements()?.mul(summed))
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let [rows, a_inner] = matrix(cx, 0, "transA")?;
    let [b_inner, columns] = matrix(cx, 1, "transB")?;
    cx.same_dim(&a_inner, &b_inner, "the inner sizes of A and B")?;
    let mut shape = Shape::from_iter([rows, columns]);
    if let Some(c) = cx.shape(2) {
        broadcast(cx, c, &mut shape)?;
    }
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), Some(shape));
    Ok(())
}

/// Returns rows and columns of an input, swapped if the attribute `transposed` is set.
fn matrix(cx: &Infer<'_>, index: usize, transposed: &str) -> Result<[Dim; 2], InferError> {
    cx.demand_rank(index, 2)?;
    let sizes = match cx.shape(index).map(|shape| &shape[..]) {
        Some([rows, columns]) => [rows.clone(), columns.clone()],
        _ => [Dim::Unknown, Dim::Unknown],
    };
    let [rows, columns] = sizes;
    Ok(if cx.int(transposed).unwrap_or(0) == 0 { [rows, columns] } else { [columns, rows] })
}

/// Checks that C broadcasts to the product, and takes sizes of the product from it.
fn broadcast(cx: &Infer<'_>, c: &Shape, shape: &mut Shape) -> Result<(), InferError> {
    let exact = cx.since() < 7 && cx.int("broadcast").unwrap_or(0) == 0;
    let Some(missing) = shape.len().checked_sub(c.len()).filter(|missing| *missing == 0 || !exact)
    else {
        return cx.fail(format_args!("C of rank {} does not match the product", c.len()));
    };
    for (axis, size) in shape.iter_mut().enumerate().skip(missing) {
        let other = &c[axis - missing];
        cx.demand(|| Demand::BroadcastTo(other.clone(), size.clone()));
        // A symbol may be 1 at run time, from which no size of the product follows.
        if exact || other.known().is_some_and(|other| other != 1) {
            *size =
                cx.same_dim(size, other, format_args!("the sizes of axis {axis} of A * B and C"))?;
        }
    }
    Ok(())
}

/// Removes `broadcast`: its effect is the rule since version 7, and without it, C has the shape of
/// the product anyway.
fn remove_broadcast(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    demand_matrices(cx)?;
    cx.remove("broadcast");
    Ok(())
}

/// Adds zeros for an absent C.
fn add_zero(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.input(2).is_some() {
        return Ok(());
    }
    let elem = [0, 1].into_iter().find_map(|index| cx.input_type(index)?.elem());
    let zero = elem.and_then(|elem| {
        let zero = Tensor::from_slice([1], &[0f32]).ok()?;
        cast(&zero, elem, CastOptions::default()).ok()
    });
    let Some(zero) = zero else {
        return Err(cx.refuse("that version requires C, and its element type is unknown"));
    };
    let zero = cx.add_constant(zero);
    cx.set_input(2, Some(zero));
    Ok(())
}

/// Refuses A or B of other rank than 2, which is a mistake in the model.
fn demand_matrices(cx: &Adapt<'_>) -> Result<(), Refusal> {
    for (index, name) in [(0, "A"), (1, "B")] {
        if let Some(rank) = cx.rank(index).filter(|rank| *rank != 2) {
            return Err(cx.refuse(format_args!("{name} must have rank 2, not {rank}")));
        }
    }
    Ok(())
}

/// Sets `broadcast`, which is needed unless C has the shape of the product. Refuses a C that is
/// neither the last axes of the product, nor one element, nor a column that can be repeated.
fn set_broadcast(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let shape = |index: usize| cx.input_type(index).and_then(|ty| ty.shape());
    let c = shape(2).cloned();
    demand_matrices(cx)?;
    let size = |index: usize, name: &str, axis: usize| {
        let is_turned = cx.int(name).unwrap_or(0) != 0;
        shape(index)?.get(if is_turned { 1 - axis } else { axis }).cloned()
    };
    let product = [size(0, "transA", 0), size(1, "transB", 1)];
    let is = |found: &Dim, wanted: &Option<Dim>| {
        *found != Dim::Unknown && Some(found) == wanted.as_ref()
    };
    let Some(c) = c else {
        return Err(
            cx.refuse("that version has no implicit broadcasting, and the shape of C is unknown")
        );
    };
    match &c[..] {
        [rows, columns] if is(rows, &product[0]) && is(columns, &product[1]) => return Ok(()),
        [] | [_] => {}
        sizes if sizes.iter().all(|size| size.known() == Some(1)) => {}
        [rows, columns] if rows.known() == Some(1) && is(columns, &product[1]) => {
            squeeze(cx, 2, &[0]);
        }
        [rows, columns] if is(rows, &product[0]) && columns.known() == Some(1) => {
            let Some(count) = product[1].as_ref().and_then(Dim::known) else {
                return Err(
                    cx.refuse("C is a column to repeat, and the number of columns is unknown")
                );
            };
            let repeats = cx.add_ints(&[1, count]);
            let whole = cx.before(TILE.name, &[cx.input(2), Some(repeats)], &[]);
            cx.set_input(2, Some(whole));
            return Ok(());
        }
        _ => {
            return Err(cx.refuse("C does not match the product, or their sizes are unknown"));
        }
    }
    cx.set("broadcast", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue;
    use crate::math::testing::{infer_type, lower_version, raise_version};

    #[test]
    fn shapes_of_products() {
        // SHAPE-13, SHAPE-16, SHAPE-20
        let one = |name| (name, AttrValue::Int(1));
        let rows = [
            (13, vec![], "float[N, 3]; float[3, 5]; float[5]", "float[N, 5]"),
            (13, vec![], "float[N, 3]; float[3, 5]", "float[N, 5]"),
            (13, vec![], "float[N, 3]; float[3, 5]; -", "float[N, 5]"),
            (13, vec![one("transA")], "float[3, N]; float[3, 5]", "float[N, 5]"),
            (13, vec![one("transB")], "float[N, 3]; float[5, 3]", "float[N, 5]"),
            (13, vec![one("transA"), one("transB")], "float[3, 2]; float[5, 3]", "float[2, 5]"),
            (
                13,
                vec![],
                "float[2, 3]; float[4, 5]",
                "Gemm: the inner sizes of A and B differ (3 and 4)",
            ),
            (13, vec![], "float[2, 3, 1]; float[3, 5]", "Gemm: input 0 must have rank 2, not 3"),
            (13, vec![], "float[...]; float[3, 5]", "float[?, 5]"),
            (13, vec![], "-; -", "?[?, ?]"),
            (13, vec![], "float[...]; float[...]; float[7, 1]", "float[7, ?]"),
            (13, vec![], "float[2, 3]; float[3, 5]; float[1, 1]", "float[2, 5]"),
            (
                13,
                vec![],
                "float[1, 3]; float[3, 5]; float[2, 5]",
                "Gemm: the sizes of axis 0 of A * B and C differ (1 and 2)",
            ),
            (
                13,
                vec![],
                "float[2, 3]; float[3, 5]; float[1, 2, 5]",
                "Gemm: C of rank 3 does not match the product",
            ),
            (6, vec![one("broadcast")], "float[2, 3]; float[3, 5]; float[5]", "float[2, 5]"),
            (
                6,
                vec![],
                "float[2, 3]; float[3, 5]; float[5]",
                "Gemm: C of rank 1 does not match the product",
            ),
            (6, vec![], "float[2, 3]; float[3, ?]; float[2, N]", "float[2, N]"),
        ];
        for (opset, attributes, inputs, expected) in rows {
            assert_eq!(
                infer_type(&GEMM, opset, &attributes, inputs),
                expected,
                "{attributes:?} {inputs}"
            );
        }
    }

    #[test]
    fn c_needs_no_broadcasting_before_version_7() {
        let rows = [
            ("float[2, 3]; float[3, 5]; float[5]", "y = Gemm(a, b, c) broadcast=1"),
            ("float[N, 3]; float[3, 5]; float[N, 1]", "t5 = Tile(c, [1, 5]); y = Gemm(a, b, t5)"),
            (
                "float[2, 3]; float[3, N]; float[2, 1]",
                "Gemm: C is a column to repeat, and the number of columns is unknown",
            ),
        ];
        for (inputs, expected) in rows {
            assert_eq!(lower_version(&GEMM, 7, &[], inputs), expected, "{inputs}");
        }
    }

    #[test]
    fn c_always_broadcasts() {
        let broadcast = ("broadcast", AttrValue::Int(1));
        let transposed = ("transB", AttrValue::Int(1));
        assert_eq!(
            raise_version(&GEMM, 6, &[broadcast, transposed], "-; -; -"),
            "y = Gemm(a, b, c) transB=1"
        );
    }
}
