//! Transpose elimination for constants: a product whose right operand is the transpose of a
//! constant matrix reads the matrix itself, which it can pack in either order.
//!
//! Exporters write `MatMul(x, Transpose(w))` for a linear layer. Computing the transpose ahead of
//! time would copy all weights.

use sardonyx_tensor::DataType;

use super::Note;
use crate::program::{Op, Program, Slot};

/// Replaces transposed right operands of products. The steps that transpose may be dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    // Step that transposes a matrix into each slot, and the matrix.
    let mut transposes: Vec<Option<(usize, Slot)>> = vec![None; program.values.len()];
    for (index, step) in program.steps.iter().enumerate() {
        if let Op::Move(moved) = &step.op
            && moved.kind.transposes_matrix()
            && let (Some(Some(matrix)), Some(Some(output))) =
                (moved.operands.first(), step.outputs.first())
            && program.shape(*matrix).is_some_and(|shape| shape.len() == 2)
            && program.is_constant(*matrix)
        {
            transposes[output.index()] = Some((index, *matrix));
        }
    }
    for index in 0..program.steps.len() {
        let Op::Product(product) = &program.steps[index].op else {
            continue;
        };
        let Some((transposing, matrix)) = transposes[product.b.index()] else {
            continue;
        };
        if product.quantized.is_some() {
            continue;
        }
        let (step, transpose) = (&program.steps[index], &program.steps[transposing]);
        let elem = product.types.b;
        if !matches!(elem, DataType::Float | DataType::Int8 | DataType::Uint8) {
            let why = format!("constants of type {elem} are not packed");
            notes.push(Note::near_miss(step, transpose, why));
            continue;
        }
        notes.push(Note::fused(step, transpose));
        if let Op::Product(product) = &mut program.steps[index].op {
            product.b = matrix;
            product.trans_b = !product.trans_b;
        }
    }
    notes
}
