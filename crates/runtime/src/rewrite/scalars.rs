//! Scalar fusion: functions of single elements become one step of instructions over registers.
//!
//! Starting a step takes far longer than adding two numbers, and the bookkeeping of loops is just
//! that: count, compare, combine conditions. A group of such steps takes the position of its first
//! step. Others move forward into it if all of their operands exist there; no other step moves, so
//! large values live no longer than before.
//!
//! In an inner graph without other steps a single function becomes instructions too: a loop whose
//! graph is one such step keeps carried values in registers.

use hashbrown::HashMap;
use sardonyx_kernels::elementwise::Side;
use sardonyx_tensor::Tensor;
use smallvec::SmallVec;

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{
    Constant, Instruction, Link, MoveKind, Op, Program, ScalarFunction, ScalarOutput, Scalars,
    Slot, Step, Value,
};
use crate::registers::{has_registers, is_instruction};

/// Fuses functions of single elements.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let groups = find_groups(program);
    if groups.is_empty() {
        return notes;
    }
    let readers = Readers::new(program);
    let mut steps = take_steps(program);
    for members in groups {
        let kept = kept_moves(&steps, &readers, &members);
        let joined: Vec<usize> = members.iter().copied().filter(|at| !kept.contains(at)).collect();
        let is_whole = program.graph.is_some() && joined.len() == steps.len();
        if joined.len() < 2 && !is_whole {
            continue;
        }
        let Some(fused) = fuse(program, &readers, &steps, &members, &kept) else {
            continue;
        };
        if let Some(first) = &steps[joined[0]] {
            let others = joined[1..].iter().filter_map(|at| steps[*at].as_ref());
            notes.extend(others.map(|step| Note::fused(first, step)));
        }
        joined.iter().for_each(|at| steps[*at] = None);
        steps[joined[0]] = Some(fused);
    }
    put_steps(program, steps);
    notes
}

/// Returns the positions of the steps of each group, in order. The first step of a group computes.
fn find_groups(program: &Program) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // For each slot, the first position of a group that can read it, and the group that computes
    // it.
    let mut ready = vec![0; program.values.len()];
    let mut home: Vec<Option<usize>> = vec![None; program.values.len()];
    for (at, step) in program.steps.iter().enumerate() {
        let (mut ready_after, mut member_of) = (at + 1, None);
        if is_scalar(program, step) {
            let is_move = matches!(step.op, Op::Move(_));
            let read: SmallVec<[Slot; 4]> = step.op.operands().into_iter().flatten().collect();
            let last = read.iter().filter_map(|slot| home[slot.index()]).max();
            let same = last.filter(|group| {
                read.iter().all(|slot| {
                    home[slot.index()] == Some(*group) || ready[slot.index()] <= groups[*group][0]
                })
            });
            let earliest = read.iter().map(|slot| ready[slot.index()]).max().unwrap_or(0);
            let index = same.unwrap_or_else(|| groups.partition_point(|group| group[0] < earliest));
            // A move alone is free already.
            if index == groups.len() && !is_move {
                groups.push(Vec::new());
            }
            if let Some(group) = groups.get_mut(index) {
                group.push(at);
                member_of = Some(index);
                // A move with other readers keeps its position.
                ready_after = if is_move { at + 1 } else { group[0] };
            }
        }
        for slot in step.outputs.iter().flatten() {
            ready[slot.index()] = ready_after;
            home[slot.index()] = member_of;
        }
    }
    groups
}

/// Returns the moves of a group whose results have readers outside of it. They stay, as views.
fn kept_moves(steps: &[Option<Step>], readers: &Readers, members: &[usize]) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for at in members.iter().rev() {
        if let Some(Step { op: Op::Move(_), outputs, .. }) = &steps[*at]
            && outputs.iter().flatten().any(|slot| is_read_outside(readers, *slot, members, &kept))
        {
            kept.push(*at);
        }
    }
    kept
}

/// Whether a value has readers besides the fused members of a group.
fn is_read_outside(readers: &Readers, slot: Slot, members: &[usize], kept: &[usize]) -> bool {
    readers.readers(slot).iter().any(|reader| {
        let reader = *reader as usize;
        members.binary_search(&reader).is_err() || kept.contains(&reader)
    })
}

/// Whether a step consists of instructions, or reshapes a single element.
fn is_scalar(program: &Program, step: &Step) -> bool {
    let [Some(output)] = step.outputs[..] else {
        return false;
    };
    let is_single = |slot: Slot| program.single(slot).is_some_and(has_registers);
    // A step may compute a constant, which is decided later.
    if !is_single(output) || program.is_constant(output) {
        return false;
    }
    match &step.op {
        Op::Pointwise(pointwise) => {
            pointwise.operands.iter().all(|slot| is_single(*slot))
                && pointwise.links.iter().all(|link| match link {
                    Link::Unary(op) => is_instruction(ScalarFunction::Unary(*op, pointwise.elem)),
                    Link::Binary { op, .. } => {
                        is_instruction(ScalarFunction::Binary(*op, pointwise.elem))
                    }
                    Link::Clip(_) => false,
                })
        }
        Op::Truth(truth) => {
            truth.operands.iter().all(|slot| is_single(*slot))
                && is_instruction(ScalarFunction::Test(truth.test))
        }
        Op::Cast(cast) => {
            is_single(cast.x) && is_instruction(ScalarFunction::Cast(cast.conversion))
        }
        Op::Move(moved) => {
            matches!(moved.kind, MoveKind::Reshape(_))
                && moved.operands.first().copied().flatten().is_some_and(is_single)
        }
        _ => false,
    }
}

/// Fused step under construction.
struct Building<'p> {
    values: &'p [Value],
    operands: SmallVec<[Slot; 4]>,
    /// Constants of the step. Constants and results have numbers from `CONSTANT` and `RESULT` on,
    /// as the number of operands is not known yet.
    constants: Vec<Tensor>,
    instructions: Vec<Instruction>,
    registers: HashMap<Slot, u32>,
}

/// Number of the first constant.
const CONSTANT: u32 = 1 << 30;
/// Number of the first result.
const RESULT: u32 = 1 << 31;

impl Building<'_> {
    fn register(&mut self, slot: Slot) -> u32 {
        *self.registers.entry(slot).or_insert_with(|| {
            if let Some(Constant::Small(constant)) = &self.values[slot.index()].constant {
                self.constants.push((**constant).clone());
                return CONSTANT + self.constants.len() as u32 - 1;
            }
            self.operands.push(slot);
            self.operands.len() as u32 - 1
        })
    }

    fn push(&mut self, function: ScalarFunction, a: u32, b: u32) -> u32 {
        self.instructions.push(Instruction { function, a, b });
        RESULT + self.instructions.len() as u32 - 1
    }

    /// Adds the instructions of a step, and returns the register of its result.
    fn step(&mut self, op: &Op) -> Option<u32> {
        Some(match op {
            Op::Pointwise(pointwise) => {
                let elem = pointwise.elem;
                let mut value = self.register(*pointwise.operands.first()?);
                for link in &pointwise.links {
                    value = match link {
                        Link::Unary(op) => self.push(ScalarFunction::Unary(*op, elem), value, 0),
                        Link::Binary { op, side, other } => {
                            let other = self.register(*pointwise.operands.get(*other)?);
                            let (a, b) = match side {
                                Side::Left => (value, other),
                                Side::Right => (other, value),
                            };
                            self.push(ScalarFunction::Binary(*op, elem), a, b)
                        }
                        Link::Clip(_) => return None,
                    };
                }
                value
            }
            Op::Truth(truth) => {
                let mut operands = truth.operands.iter().map(|slot| self.register(*slot));
                let (a, b) = (operands.next()?, operands.next().unwrap_or(0));
                drop(operands);
                self.push(ScalarFunction::Test(truth.test), a, b)
            }
            Op::Cast(cast) => {
                let x = self.register(cast.x);
                self.push(ScalarFunction::Cast(cast.conversion), x, 0)
            }
            Op::Move(moved) => self.register(moved.operands.first().copied().flatten()?),
            _ => return None,
        })
    }
}

/// Fuses the members of a group, except the moves that are kept.
fn fuse(
    program: &Program,
    readers: &Readers,
    steps: &[Option<Step>],
    members: &[usize],
    kept: &[usize],
) -> Option<Step> {
    let mut building = Building {
        values: &program.values,
        operands: SmallVec::new(),
        constants: Vec::new(),
        instructions: Vec::new(),
        registers: HashMap::new(),
    };
    let (mut outputs, mut made) = (SmallVec::new(), SmallVec::<[(u32, usize); 2]>::new());
    let mut origins = SmallVec::new();
    for at in members {
        let step = steps[*at].as_ref()?;
        let register = building.step(&step.op)?;
        let slot = step.outputs.first().copied().flatten()?;
        building.registers.insert(slot, register);
        if kept.contains(at) {
            continue;
        }
        if is_read_outside(readers, slot, members, kept) {
            outputs.push(Some(slot));
            made.push((register, program.shape(slot)?.len()));
        }
        origins.extend(step.origins.iter().copied());
    }
    let Building { operands, constants, mut instructions, .. } = building;
    let first_constant = operands.len() as u32;
    let first_result = first_constant + constants.len() as u32;
    let settled = |register: u32| {
        let constant = register.checked_sub(CONSTANT).map(|constant| first_constant + constant);
        let result = register.checked_sub(RESULT).map(|result| first_result + result);
        result.or(constant).unwrap_or(register)
    };
    for instruction in &mut instructions {
        (instruction.a, instruction.b) = (settled(instruction.a), settled(instruction.b));
    }
    let made = made.into_iter();
    let made = made.map(|(register, rank)| ScalarOutput { register: settled(register), rank });
    let scalars = Scalars { operands, constants, instructions, outputs: made.collect() };
    Some(Step { op: Op::Scalars(Box::new(scalars)), outputs, origins })
}
