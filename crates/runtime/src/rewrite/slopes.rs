//! Slope fusion: guards of gradients become one pointwise function.
//!
//! Gradient rules multiply by slopes that are 0 where they are not finite and the gradient is 0,
//! and divide by divisors that are 1 where they are 0 or NaN and the gradient is 0. In nodes of the
//! standard this is a selection by a comparison or a test of the gradient: five passes over the
//! elements. As a function of two operands it is part of the pass that computes the product.
//!
//! This runs before other pointwise fusions, which absorb the function.

use sardonyx_kernels::elementwise::{Binary, Compare, Logic, Side, Unary};
use sardonyx_tensor::{CastOptions, DataType, cast};
use smallvec::smallvec;

use super::{Note, dead};
use crate::program::{Link, Op, Pointwise, Program, Select, Slot, Step, Test};

/// Fuses each such selection; the steps that it was computed from may be dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    if !program.steps.iter().any(|step| matches!(step.op, Op::Select(_))) {
        return notes;
    }
    let makers = program.makers();
    for index in 0..program.steps.len() {
        let Some((pointwise, test)) = find(program, &makers, index) else { continue };
        notes.push(Note::fused(&program.steps[index], &program.steps[test]));
        program.steps[index].op = Op::Pointwise(Box::new(pointwise));
    }
    if !notes.is_empty() {
        // A step that only the test read would separate chains of functions.
        dead::run(program);
    }
    notes
}

/// Returns the function of a selection, and the step that tests.
fn find(program: &Program, makers: &[Option<usize>], index: usize) -> Option<(Pointwise, usize)> {
    let Op::Select(Select { condition, x, y }) = program.steps[index].op else { return None };
    let maker = |slot: Slot| makers[slot.index()].map(|at| &program.steps[at]);
    let elem = program.elem(x).filter(|elem| elem.is_float())?;
    let test = makers[condition.index()]?;
    let Op::Truth(either) = &program.steps[test].op else { return None };
    let (Test::Logic(Logic::Or), &[first, second]) = (either.test, &either.operands[..]) else {
        return None;
    };
    let found = [(first, second), (second, first)].into_iter().find_map(|(sized, used)| {
        let op = guard(program, &maker, sized, x, y)?;
        let Op::Cast(cast) = &maker(used)?.op else { return None };
        let is_test = cast.conversion.from == elem && cast.conversion.to == DataType::Bool;
        is_test.then_some((op, cast.x))
    });
    let (op, gradient) = found?;
    let links = smallvec![Link::Binary { op, side: Side::Left, other: 1 }];
    Some((Pointwise { elem, links, operands: smallvec![gradient, x] }, test))
}

/// Returns the function of a gradient and `x` that is `x` where `test` holds or the gradient is not
/// 0, and `y` elsewhere.
fn guard<'p>(
    program: &Program,
    maker: &impl Fn(Slot) -> Option<&'p Step>,
    test: Slot,
    x: Slot,
    y: Slot,
) -> Option<Binary> {
    let Op::Truth(truth) = &maker(test)?.op else { return None };
    let (Test::Compare(compare, _), &[size, limit]) = (truth.test, &truth.operands[..]) else {
        return None;
    };
    let Op::Pointwise(abs) = &maker(size)?.op else { return None };
    let is_size = matches!(abs.links[..], [Link::Unary(Unary::Abs)]) && abs.operands[..] == [x];
    let number = |slot: Slot| {
        let one = program.small_constant(slot).filter(|one| one.len() == 1)?;
        cast(one, DataType::Double, CastOptions::default()).ok()?.item::<f64>().ok()
    };
    match (compare, number(limit)?, number(y)?) {
        _ if !is_size => None,
        (Compare::Less, f64::INFINITY, 0.0) => Some(Binary::UsedSlope),
        (Compare::Greater, 0.0, 1.0) => Some(Binary::UsedDivisor),
        _ => None,
    }
}
