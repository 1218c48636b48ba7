//! Transpose elimination for products: the transpose of a product becomes the product of the
//! transposes in the other order, which writes the transposed result directly.
//!
//! The gradient of the weights of a linear layer is such a transpose if the exporter transposed the
//! weights, and would copy all of them. Constants are not moved, as only a right operand is packed
//! ahead of time.

use super::{Note, Readers};
use crate::program::{MoveKind, Op, Product, ProductForm, ProductTypes, Program, Slot};

/// Replaces transposes of products.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    if !program.steps.iter().any(|step| matches!(step.op, Op::Product(_))) {
        return notes;
    }
    let (readers, makers) = (Readers::new(program), program.makers());
    for index in 0..program.steps.len() {
        let Some((product, multiplies)) = find(program, &readers, &makers, index) else { continue };
        let joined = program.steps[multiplies].origins.clone();
        notes.push(Note::fused(&program.steps[multiplies], &program.steps[index]));
        let step = &mut program.steps[index];
        step.op = Op::Product(Box::new(product));
        // The node that multiplies names the step. The step that it was made from is dead now.
        step.origins.insert_many(0, joined);
    }
    notes
}

/// Returns the product that replaces a step that transposes, and the step that multiplies now.
fn find(
    program: &Program,
    readers: &Readers,
    makers: &[Option<usize>],
    index: usize,
) -> Option<(Product, usize)> {
    let x = find_transposed(program, index)?;
    let multiplies = makers[x.index()]?;
    let Op::Product(product) = &program.steps[multiplies].op else { return None };
    let is_plain = product.addend.is_none()
        && product.epilogue.0.is_empty()
        && product.a_zero_point.is_none()
        && product.b_zero_point.is_none()
        && product.types == ProductTypes::uniform(product.types.a);
    let operands = [product.b, product.a];
    // The product reads other views in place, and would have to copy them.
    let is_dense = |slot: Slot| {
        makers[slot.index()].is_none_or(|at| match &program.steps[at].op {
            Op::Move(moved) => {
                matches!(moved.kind, MoveKind::Reshape(_)) || find_transposed(program, at).is_some()
            }
            _ => true,
        })
    };
    let may_be = |slot: &Slot| {
        let is_matrix = program.shape(*slot).is_some_and(|shape| shape.len() == 2);
        is_matrix && !program.is_constant(*slot) && is_dense(*slot)
    };
    let fits = readers.readers(x).len() == 1 && operands.iter().all(may_be);
    if !is_plain || !fits {
        return None;
    }
    // An operand that is a transpose is replaced by its source.
    let [(a, trans_a), (b, trans_b)] = [(product.b, product.trans_b), (product.a, product.trans_a)]
        .map(|(slot, is_transposed)| {
            match makers[slot.index()].and_then(|at| find_transposed(program, at)) {
                Some(before) => (before, is_transposed),
                None => (slot, !is_transposed),
            }
        });
    let made = Product {
        form: ProductForm::Gemm,
        a,
        b,
        trans_a,
        trans_b,
        types: product.types,
        alpha: product.alpha,
        a_zero_point: None,
        b_zero_point: None,
        factors: None,
        quantized: None,
        addend: None,
        epilogue: product.epilogue.clone(),
    };
    Some((made, multiplies))
}

/// Returns the matrix that a step transposes.
fn find_transposed(program: &Program, index: usize) -> Option<Slot> {
    let Op::Move(moved) = &program.steps[index].op else { return None };
    let matrix = moved.operands.first().copied().flatten()?;
    let is_matrix = program.shape(matrix).is_some_and(|shape| shape.len() == 2);
    (moved.kind.transposes_matrix() && is_matrix).then_some(matrix)
}
