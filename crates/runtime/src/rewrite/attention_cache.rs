//! Cached keys and values: appends new ones to them in steps of their own, in place of within the
//! attention.
//!
//! An attention with `past_key` and `past_value` joins them with new rows, attends to the result
//! and returns it. As steps of their own the joins write the outputs once, without scratch memory,
//! and in the memory of a [state](crate::session::KeptState) they write the new rows alone. The
//! attention then reads joined keys and values, and of the cached ones only their number.

use smallvec::smallvec;

use super::Note;
use crate::program::{Attention, Concat, Move, MoveKind, Op, Program, Slot, Step};

/// Operands and output of keys or of values.
struct CachedPart {
    /// Position of the new rows among the operands.
    new: usize,
    /// Position of the cached rows.
    past: usize,
    /// Number of the output with both.
    present: usize,
}

const PARTS: [CachedPart; 2] =
    [CachedPart { new: 1, past: 4, present: 1 }, CachedPart { new: 2, past: 5, present: 2 }];

/// Moves the joins of cached and new rows out of attentions.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut steps = Vec::with_capacity(program.steps.len());
    for mut step in std::mem::take(&mut program.steps) {
        if let Op::Attention(attention) = &step.op {
            match find_joins(program, attention, &step) {
                Ok(Some(joins)) => {
                    for (part, [past, new, present]) in PARTS.iter().zip(joins) {
                        let kind = MoveKind::Concat(Concat { axis: 2 });
                        let operands = smallvec![Some(past), Some(new)];
                        steps.push(Step {
                            op: Op::Move(Box::new(Move { kind, operands })),
                            outputs: smallvec![Some(present)],
                            origins: step.origins.clone(),
                        });
                        step.outputs[part.present] = None;
                        if let Op::Attention(attention) = &mut step.op {
                            attention.operands[part.new] = Some(present);
                            attention.is_joined = true;
                        }
                    }
                }
                Ok(None) => {}
                Err(why) => notes.push(Note::near_miss(&step, &step, why)),
            }
        }
        steps.push(step);
    }
    program.steps = steps;
    notes
}

/// Returns the cached rows, the new rows and the output of keys, then of values; `None` for an
/// attention without a cache.
///
/// # Errors
///
/// The reason why the rows stay within the attention.
fn find_joins(
    program: &Program,
    attention: &Attention,
    step: &Step,
) -> Result<Option<[[Slot; 3]; 2]>, &'static str> {
    let operand = |position: usize| attention.operands.get(position).copied().flatten();
    let [Some(past_key), Some(past_value)] = PARTS.map(|part| operand(part.past)) else {
        return Ok(None);
    };
    let [Some(key), Some(value)] = PARTS.map(|part| operand(part.new)) else {
        return Ok(None);
    };
    let present = |part: &CachedPart| step.outputs.get(part.present).copied().flatten();
    let [Some(keys), Some(values)] = [present(&PARTS[0]), present(&PARTS[1])] else {
        return Err("the joined keys and values are not outputs");
    };
    for (new, past) in [(key, past_key), (value, past_value)] {
        if program.shape(new).is_none_or(|shape| shape.len() != 4) {
            return Err("the heads of new keys and values are packed");
        }
        if program.elem(new) != program.elem(past) {
            return Err("cached and new rows have different types");
        }
    }
    Ok(Some([[past_key, key, keys], [past_value, value, values]]))
}
