//! Transposed constants: a product whose right operand is the transpose of a constant matrix reads
//! the matrix itself, which it packs in any order.
//!
//! Exporters write `MatMul(x, Transpose(w))` for a linear layer. Computing the transpose ahead of
//! time would copy all weights.

use sardonyx_tensor::DataType;

use super::Joined;
use crate::program::{Op, Program, Slot};

/// Lets products read what is transposed for them. The steps that transpose may be dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Joined> {
    let mut transposes: Vec<Option<Slot>> = vec![None; program.values.len()];
    for step in &program.steps {
        if let Op::Move(moved) = &step.op
            && moved.kind.transposes_matrix()
            && let (Some(Some(matrix)), Some(Some(output))) =
                (moved.operands.first(), step.outputs.first())
            && program.is_constant(*matrix)
            && program.elem(*matrix) == Some(DataType::Float)
            && program.shape(*matrix).is_some_and(|shape| shape.len() == 2)
        {
            transposes[output.index()] = Some(*matrix);
        }
    }
    for step in &mut program.steps {
        if let Op::Product(product) = &mut step.op
            && let Some(matrix) = transposes[product.b.index()]
        {
            product.b = matrix;
            product.trans_b = !product.trans_b;
        }
    }
    Vec::new()
}
