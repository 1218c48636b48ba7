//! Pool gradient fusion: computes the gradient of `MaxPool` in one step.
//!
//! In nodes of the standard this gradient is a sum at indices: those of the pool count all
//! elements, so their remainder by the size of an image is the position in it, and the gradient is
//! added to zeros there. The remainders of millions of integers take longer than all else, and
//! mostly amount to a subtraction.

use sardonyx_kernels::elementwise::{Binary, Side};
use sardonyx_model::Shape;
use sardonyx_tensor::DataType;

use super::Note;
use crate::program::{Constant, Link, MoveKind, Op, PoolGradient, Program, ScatterAdd, Slot, Step};

/// Fuses each such sum with the remainders that it reads.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    if !program.steps.iter().any(|step| matches!(step.op, Op::ScatterAdd(_))) {
        return notes;
    }
    let makers = program.makers();
    for index in 0..program.steps.len() {
        let Some((gradient, remainder)) = find(program, &makers, index) else { continue };
        notes.push(Note::fused(&program.steps[index], &program.steps[remainder]));
        let origins = program.steps[remainder].origins.clone();
        let step = &mut program.steps[index];
        step.op = Op::PoolGradient(gradient);
        step.origins.extend(origins);
    }
    // The steps that compute zeros and remainders are dead now.
    notes
}

/// Returns the gradient that a step computes, and the step that computes its remainders.
fn find(
    program: &Program,
    makers: &[Option<usize>],
    index: usize,
) -> Option<(PoolGradient, usize)> {
    let Op::ScatterAdd(scatter) = &program.steps[index].op else { return None };
    let &ScatterAdd { elem, data, indices, updates, axis } = &**scatter;
    let maker = |slot: Slot| makers[slot.index()].map(|at| (at, &program.steps[at]));
    let [images, size] = &program.shape(data)?[..] else { return None };
    let size = size.size().filter(|size| *size > 0)?;
    let is_row = |shape: &Shape| shape.len() == 2 && shape[0].surely_equals(images);
    let fits = matches!(elem, DataType::Float | DataType::Double)
        && matches!(axis, 1 | -1)
        && is_row(program.shape(updates)?)
        && is_row(program.shape(indices)?)
        && program.elem(indices) == Some(DataType::Int64);
    if !fits || !is_zero(program, data, maker(data).map(|(_, step)| step)) {
        return None;
    }
    let (mut at, mut made) = maker(indices)?;
    if let Op::Move(moved) = &made.op
        && let (MoveKind::Reshape(_), Some(Some(x))) = (&moved.kind, moved.operands.first())
    {
        (at, made) = maker(*x)?;
    }
    let Op::Pointwise(pointwise) = &made.op else { return None };
    let [Link::Binary { op: Binary::Mod, side: Side::Left, other: 1 }] = pointwise.links[..] else {
        return None;
    };
    let &[places, divisor] = &pointwise.operands[..] else { return None };
    let divisor = program.small_constant(divisor)?.to_vec::<i64>().ok()?;
    let is_size = divisor.len() == 1 && usize::try_from(divisor[0]) == Ok(size);
    is_size.then_some((PoolGradient { elem, places, dy: updates, size }, at))
}

/// Whether all elements of a value are 0.
fn is_zero(program: &Program, slot: Slot, maker: Option<&Step>) -> bool {
    let one = match &program.value(slot).constant {
        Some(Constant::Fill(one)) => Some(&**one),
        _ => maker.and_then(|step| {
            let first = step.op.operands().first().copied().flatten();
            step.op.fill(first.and_then(|first| program.small_constant(first)))
        }),
    };
    one.is_some_and(|one| one.len() == 1 && one.bytes().iter().all(|byte| *byte == 0))
}
