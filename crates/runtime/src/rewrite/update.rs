//! Update fusion: computes the new value of a state variable, and of its optimizer's state, in one
//! step, which moves to the commit program.
//!
//! A step of Adam is about fifteen pointwise functions, which pass over the weights, two moments
//! and the gradient many times. As one step they pass over each once. No other step of the run
//! reads the new values, so the commit program writes them over the old ones, once all that can
//! fail has run. A step whose old values have other readers at the end stays in the main program,
//! and its new values have memory of their own.
//!
//! This runs before other fusions, which would absorb the last function of a gradient into the
//! product that computes the gradient.

use hashbrown::{HashMap, HashSet};
use sardonyx_kernels::elementwise::Side;
use sardonyx_model::{NodeId, Shape};
use sardonyx_tensor::{DataType, Tensor};
use smallvec::SmallVec;

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{
    Commit, Elements, Instruction, Link, Op, Order, Pointwise, Program, ScalarFunction, Slot,
    StatePorts, Step, Value, same_shape,
};

/// Fuses the functions that compute new values of state variables.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let old_of = map_old_values(program);
    if old_of.is_empty() {
        return notes;
    }
    let mut groups = Finding { program, old_of: &old_of, readers: Readers::new(program) }.groups();
    groups.sort_unstable_by_key(|group| group.last().copied());
    let made = groups.into_iter().filter_map(|members| {
        let step = fuse(program, &old_of, &members)?;
        Some((members, step))
    });
    let made: Vec<(Vec<usize>, Step)> = made.collect();
    let mut steps = take_steps(program);
    let mut last = Vec::with_capacity(made.len());
    for (members, step) in made {
        let mut joined: Vec<Step> = members.iter().filter_map(|at| steps[*at].take()).collect();
        let by = joined.pop();
        notes.extend(by.iter().flat_map(|by| joined.iter().map(|step| Note::fused(by, step))));
        last.push(step);
    }
    put_steps(program, steps);
    let (committed, stay) = split_steps(program, last, &mut notes);
    program.steps.extend(stay);
    if !committed.is_empty() {
        move_to_commit(program, committed);
    }
    notes
}

/// Splits the last steps into those that may overwrite old values, and those that stay in the main
/// program because an old value is also an output, or is read by another of these steps, possibly
/// as a view.
fn split_steps(
    program: &Program,
    last: Vec<Step>,
    notes: &mut Vec<Note>,
) -> (Vec<Step>, Vec<Step>) {
    let makers = program.makers();
    let mut readers: HashMap<Slot, SmallVec<[usize; 1]>> = HashMap::new();
    for (number, step) in last.iter().enumerate() {
        for slot in step.op.operands().into_iter().flatten() {
            readers.entry(program.find_viewed(slot, &makers)).or_default().push(number);
        }
    }
    let mut is_committed = vec![true; last.len()];
    for (number, step) in last.iter().enumerate() {
        let Op::Elements(elements) = &step.op else { continue };
        for old in elements.operands.iter().take(step.outputs.len()) {
            let readers = readers.get(old).map_or(&[][..], |readers| readers);
            is_committed[number] &= readers.len() == 1 && !program.outputs.contains(old);
            if let Some(other) = readers.iter().find(|other| **other != number) {
                let why = "the second reads the old value over which the first would write";
                notes.push(Note::near_miss(step, &last[*other], why));
            }
        }
    }
    let (mut committed, mut stay) = (Vec::new(), Vec::new());
    for (step, is_committed) in last.into_iter().zip(is_committed) {
        if is_committed { committed.push(step) } else { stay.push(step) }
    }
    (committed, stay)
}

/// Moves steps to a commit program, which captures their operands.
fn move_to_commit(program: &mut Program, mut steps: Vec<Step>) {
    let (mut captures, mut outputs): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut inner: HashMap<Slot, Slot> = HashMap::new();
    let graph_outputs = program.outputs.len();
    // Old values replace new ones among the outputs.
    for step in &steps {
        let Op::Elements(elements) = &step.op else { continue };
        for (new, old) in step.outputs.iter().flatten().zip(&elements.operands) {
            let at = program.outputs.iter().position(|slot| slot == new);
            let Some(number) = at else { continue };
            program.outputs[number] = *old;
            inner.insert(*old, Slot(captures.len() as u32));
            captures.push(number);
            outputs.push(number);
        }
    }
    for slot in steps.iter().flat_map(|step| step.op.operands()).flatten() {
        inner.entry(slot).or_insert_with(|| {
            program.outputs.push(slot);
            captures.push(program.outputs.len() - 1);
            Slot(captures.len() as u32 - 1)
        });
    }
    program.kept = program.outputs.len() - graph_outputs;
    let value = |slot: Slot| {
        let Value { value, ty, .. } = program.value(slot);
        Value { value: *value, ty: ty.clone(), constant: None, order: Order::Rows }
    };
    let mut values: Vec<Value> =
        captures.iter().map(|number| value(program.outputs[*number])).collect();
    let inputs = (0..captures.len()).map(|input| Some(Slot(input as u32))).collect();
    let mut results = Vec::with_capacity(outputs.len());
    for step in &mut steps {
        step.op.visit_operands_mut(|slot| {
            if let Some(slot) = slot
                && let Some(input) = inner.get(slot)
            {
                *slot = *input;
            }
        });
        for new in step.outputs.iter_mut().flatten() {
            values.push(value(*new));
            *new = Slot(values.len() as u32 - 1);
            results.push(*new);
        }
    }
    let last = Program { values, steps, inputs, outputs: results, ..Program::default() };
    program.commit = Some(Box::new(Commit { program: last, captures, outputs }));
}

/// Maps the slots of new values to those of old ones, for variables and outputs that occur once and
/// have one size in all runs.
fn map_old_values(program: &Program) -> HashMap<Slot, Slot> {
    let mut pairs: Vec<(Slot, Slot)> = Vec::with_capacity(program.state.len());
    // Number of times that a slot is an output, a new value, and an old one. A variable without
    // readers has no slot for its old value, but still has a new value.
    let mut outputs: HashMap<Slot, usize> = HashMap::new();
    let (mut news, mut olds) = (outputs.clone(), outputs.clone());
    for output in &program.outputs {
        *outputs.entry(*output).or_default() += 1;
    }
    for StatePorts { input, output } in &program.state {
        let Some(new) = program.outputs.get(*output) else { continue };
        *news.entry(*new).or_default() += 1;
        if let Some(Some(old)) = program.inputs.get(*input) {
            *olds.entry(*old).or_default() += 1;
            pairs.push((*new, *old));
        }
    }
    let fits = |(new, old): &(Slot, Slot)| {
        let (Some(shape), Some(elem)) = (program.shape(*new), program.elem(*new)) else {
            return false;
        };
        let is_sized = shape.iter().all(|dim| dim.known().is_some());
        let is_old = program.elem(*old) == Some(elem)
            && program.shape(*old).is_some_and(|old| same_shape(old, shape));
        is_sized && is_old && [outputs[new], news[new], olds[old]] == [1; 3]
    };
    pairs.into_iter().filter(fits).collect()
}

struct Finding<'p> {
    program: &'p Program,
    old_of: &'p HashMap<Slot, Slot>,
    readers: Readers,
}

impl Finding<'_> {
    /// Returns the positions of the steps of each group, in order.
    fn groups(&self) -> Vec<Vec<usize>> {
        let steps = &self.program.steps;
        let mut groups: Vec<(&Shape, Vec<usize>)> = Vec::new();
        let mut group_of: Vec<Option<usize>> = vec![None; steps.len()];
        for index in (0..steps.len()).rev() {
            let Some((function, made)) = function(&steps[index]) else { continue };
            let Some(shape) = self.program.shape(made) else { continue };
            if !self.is_pointwise(function, shape) {
                continue;
            }
            let group = match self.only_group(made, &group_of) {
                Only::Group(group) if same_shape(groups[group].0, shape) => group,
                Only::Nobody => {
                    groups.push((shape, Vec::new()));
                    groups.len() - 1
                }
                Only::Group(_) | Only::Others => continue,
            };
            group_of[index] = Some(group);
            groups[group].1.push(index);
        }
        let groups = groups.into_iter().map(|(_, mut members)| {
            members.reverse();
            self.remove_sums(members)
        });
        groups.filter(|members| !members.is_empty()).collect()
    }

    /// Whether a function computes floats from values of its shape and single elements.
    fn is_pointwise(&self, function: &Pointwise, shape: &Shape) -> bool {
        let is_function = |link: &Link| matches!(link, Link::Unary(_) | Link::Binary { .. });
        let fits = |slot: &Slot| {
            self.program.shape(*slot).is_some_and(|operand| {
                let is_one = operand.iter().all(|dim| dim.known() == Some(1));
                is_one || same_shape(operand, shape)
            })
        };
        matches!(function.elem, DataType::Float | DataType::Double)
            && function.links.iter().all(is_function)
            && function.operands.iter().all(fits)
    }

    /// Returns the group that alone reads a value, ignoring outputs of the graph that are new
    /// values of state.
    fn only_group(&self, made: Slot, group_of: &[Option<usize>]) -> Only {
        let is_new = self.old_of.contains_key(&made);
        let mut only = Only::Others;
        for reader in self.readers.readers(made) {
            let group = match group_of.get(*reader as usize) {
                Some(Some(group)) => Only::Group(*group),
                None if is_new => continue,
                _ => return Only::Others,
            };
            if only != Only::Others && only != group {
                return Only::Others;
            }
            only = group;
        }
        if only == Only::Others && is_new { Only::Nobody } else { only }
    }

    /// Removes the members of a group that read two or more values computed for it, as a sum of
    /// gradients does: all of these would have to live until the end, in place of one. Also removes
    /// members whose results then have outside readers.
    fn remove_sums(&self, mut members: Vec<usize>) -> Vec<usize> {
        let steps = &self.program.steps;
        loop {
            let mut inside: HashSet<Slot> = HashSet::new();
            inside.extend(self.program.inputs.iter().flatten());
            let mut kept: Vec<usize> = Vec::with_capacity(members.len());
            for at in &members {
                let Some((function, made)) = function(&steps[*at]) else { continue };
                let shape = self.program.shape(made);
                let is_whole = |slot: &Slot| match (self.program.shape(*slot), shape) {
                    (Some(operand), Some(shape)) => same_shape(operand, shape),
                    _ => false,
                };
                let mut outside: SmallVec<[Slot; 4]> = function.operands.iter().copied().collect();
                outside.retain(|slot| is_whole(slot) && !inside.contains(slot));
                outside.sort_unstable();
                outside.dedup();
                if outside.len() < 2 || self.old_of.contains_key(&made) {
                    inside.insert(made);
                    kept.push(*at);
                }
            }
            let is_inner = |at: &usize| {
                let made = steps[*at].outputs[0];
                let read = made.map_or(&[][..], |made| self.readers.readers(made));
                read.iter().all(|reader| {
                    let reader = *reader as usize;
                    reader >= steps.len() || kept.contains(&reader)
                })
            };
            let inner: Vec<usize> = kept.iter().copied().filter(is_inner).collect();
            if inner.len() == members.len() {
                return members;
            }
            members = inner;
        }
    }
}

/// Readers of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Only {
    /// No step; the value is a new value of state.
    Nobody,
    /// Steps of one group.
    Group(usize),
    /// Any other readers.
    Others,
}

/// Returns the function and the result of a pointwise step.
fn function(step: &Step) -> Option<(&Pointwise, Slot)> {
    match (&step.op, &step.outputs[..]) {
        (Op::Pointwise(pointwise), [Some(made)]) => Some((pointwise, *made)),
        _ => None,
    }
}

/// Number of the first constant and of the first result, while the number of operands is unknown.
const CONSTANT: u32 = 1 << 30;
const RESULT: u32 = 1 << 31;

/// Fuses the members of a group; `None` if they are too many for a step.
fn fuse(program: &Program, old_of: &HashMap<Slot, Slot>, members: &[usize]) -> Option<Step> {
    let mut operands: SmallVec<[Slot; 8]> = SmallVec::new();
    let mut registers: HashMap<Slot, u32> = HashMap::new();
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut constants: Vec<Tensor> = Vec::new();
    let mut register = |registers: &mut HashMap<Slot, u32>, slot: Slot| {
        *registers.entry(slot).or_insert_with(|| {
            if let Some(constant) =
                program.small_constant(slot).filter(|constant| constant.len() == 1)
            {
                constants.push(constant.clone());
                return CONSTANT + constants.len() as u32 - 1;
            }
            operands.push(slot);
            operands.len() as u32 - 1
        })
    };
    let made = members.iter().filter_map(|at| Some(function(&program.steps[*at])?.1));
    let made: SmallVec<[Slot; 3]> = made.filter(|slot| old_of.contains_key(slot)).collect();
    for new in &made {
        register(&mut registers, old_of[new]);
    }
    let mut elem = None;
    for at in members {
        let (function, result) = function(&program.steps[*at])?;
        elem = Some(function.elem);
        let mut value = register(&mut registers, *function.operands.first()?);
        for link in &function.links {
            let (function, a, b) = match link {
                Link::Unary(op) => (ScalarFunction::Unary(*op, function.elem), value, 0),
                Link::Binary { op, side, other } => {
                    let other = register(&mut registers, *function.operands.get(*other)?);
                    let (a, b) = match side {
                        Side::Left => (value, other),
                        Side::Right => (other, value),
                    };
                    (ScalarFunction::Binary(*op, function.elem), a, b)
                }
                Link::Clip(_) => return None,
            };
            instructions.push(Instruction { function, a, b });
            value = RESULT + instructions.len() as u32 - 1;
        }
        registers.insert(result, value);
    }
    let mut results: SmallVec<[u32; 3]> = made.iter().map(|new| registers[new]).collect();
    let first_constant = operands.len() as u32;
    let first_result = first_constant + constants.len() as u32;
    let settle = |register: &mut u32| {
        if let Some(result) = register.checked_sub(RESULT) {
            *register = first_result + result;
        } else if let Some(constant) = register.checked_sub(CONSTANT) {
            *register = first_constant + constant;
        }
    };
    for Instruction { a, b, .. } in &mut instructions {
        settle(a);
        settle(b);
    }
    results.iter_mut().for_each(settle);
    let elements = Elements { elem: elem?, operands, constants, instructions, results };
    elements.functions()?;
    // The node that computes the last new value names the step.
    let mut origins: SmallVec<[NodeId; 1]> =
        members.iter().flat_map(|at| program.steps[*at].origins.iter().copied()).collect();
    origins.reverse();
    let outputs = made.into_iter().map(Some).collect();
    Some(Step { op: Op::Elements(Box::new(elements)), outputs, origins })
}
