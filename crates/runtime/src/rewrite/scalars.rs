//! Scalar fusion: functions of single elements become one step of instructions over registers.
//!
//! To begin a step takes far longer than to add two numbers, and what loops do besides their work
//! is just that: count, compare, combine conditions. A group of such steps stands where its first
//! step stood. Others come forward into it if all that they read is there; nothing else moves, so
//! large values live no longer than before.
//!
//! In an inner graph a single function becomes instructions too if there is nothing else: a loop
//! whose graph is one such step keeps what it carries in registers.

use hashbrown::HashMap;
use sardonyx_kernels::elementwise::Side;
use smallvec::SmallVec;

use super::{Note, Readers, put_together, taken_apart};
use crate::program::{
    Instruction, Link, MoveKind, Op, Program, ScalarFunction, ScalarOutput, Scalars, Slot, Step,
};
use crate::registers::{has_registers, is_instruction};

/// Makes one step of functions of single elements.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let groups = groups(program);
    if groups.is_empty() {
        return notes;
    }
    let readers = Readers::new(program);
    let mut steps = taken_apart(program);
    for members in groups {
        let taken: Vec<Step> = members.iter().filter_map(|at| steps[*at].take()).collect();
        let fused = fused(program, &readers, &members, taken, &mut notes);
        steps[members[0]] = fused;
    }
    put_together(program, steps);
    notes
}

/// The positions of the steps that become one, for each group, in order.
fn groups(program: &Program) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // By slot: the first position at which a group can stand that reads it.
    let mut ready = vec![0; program.values.len()];
    for (at, step) in program.steps.iter().enumerate() {
        let mut ready_after = at + 1;
        if is_scalar(program, step) {
            let read = step.op.operands().into_iter().flatten();
            let earliest = read.map(|slot| ready[slot.index()]).max().unwrap_or(0);
            let index = groups.partition_point(|group| group[0] < earliest);
            // A move alone is free already.
            if index == groups.len() && !matches!(step.op, Op::Move(_)) {
                groups.push(Vec::new());
            }
            if let Some(group) = groups.get_mut(index) {
                group.push(at);
                ready_after = group[0];
            }
        }
        for slot in step.outputs.iter().flatten() {
            ready[slot.index()] = ready_after;
        }
    }
    let count = program.steps.len();
    groups.retain(|group| group.len() > 1 || program.graph.is_some() && group.len() == count);
    groups
}

/// Whether a step is made of instructions, or gives another shape to a single element.
fn is_scalar(program: &Program, step: &Step) -> bool {
    let [Some(output)] = step.outputs[..] else {
        return false;
    };
    let is_single = |slot: Slot| program.single(slot).is_some_and(has_registers);
    // What is constant everywhere may be made by a step, or not: that is decided later.
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

/// What a group becomes, while it grows.
#[derive(Default)]
struct Building {
    operands: SmallVec<[Slot; 4]>,
    /// Results count from `RESULT`, as it is not known yet how many operands there are.
    instructions: Vec<Instruction>,
    registers: HashMap<Slot, u32>,
}

/// The number of the first result.
const RESULT: u32 = 1 << 31;

impl Building {
    fn register(&mut self, slot: Slot) -> u32 {
        *self.registers.entry(slot).or_insert_with(|| {
            self.operands.push(slot);
            self.operands.len() as u32 - 1
        })
    }

    fn push(&mut self, function: ScalarFunction, a: u32, b: u32) -> u32 {
        self.instructions.push(Instruction { function, a, b });
        RESULT + self.instructions.len() as u32 - 1
    }

    /// The register of what a step makes.
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

/// The step that does what some steps at some positions did.
fn fused(
    program: &Program,
    readers: &Readers,
    members: &[usize],
    steps: Vec<Step>,
    notes: &mut Vec<Note>,
) -> Option<Step> {
    let mut building = Building::default();
    let (mut outputs, mut made) = (SmallVec::new(), SmallVec::<[(u32, usize); 2]>::new());
    let mut origins = SmallVec::new();
    let mut all = steps.into_iter();
    let first = all.next()?;
    for step in std::iter::once(&first).chain(all.as_slice()) {
        let register = building.step(&step.op)?;
        let slot = step.outputs.first().copied().flatten()?;
        building.registers.insert(slot, register);
        let is_inside = |reader: &u32| members.binary_search(&(*reader as usize)).is_ok();
        if !readers.of(slot).iter().all(is_inside) {
            outputs.push(Some(slot));
            made.push((register, program.shape(slot)?.len()));
        }
        origins.extend(step.origins.iter().copied());
    }
    notes.extend(all.as_slice().iter().map(|step| Note::joined(&first, step)));
    let Building { operands, mut instructions, .. } = building;
    let count = operands.len() as u32;
    let settled = |register: u32| match register.checked_sub(RESULT) {
        Some(result) => count + result,
        None => register,
    };
    for instruction in &mut instructions {
        (instruction.a, instruction.b) = (settled(instruction.a), settled(instruction.b));
    }
    let made = made.into_iter();
    let made = made.map(|(register, rank)| ScalarOutput { register: settled(register), rank });
    let scalars = Scalars { operands, instructions, outputs: made.collect() };
    Some(Step { op: Op::Scalars(Box::new(scalars)), outputs, origins })
}
