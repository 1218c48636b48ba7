//! Commit programs: the end of a run, which writes new values of state over the old ones once
//! nothing can fail any more.
//!
//! Like a body of a region, the commit program captures values of the main program: gradients, and
//! the old values of state. Unlike any other program it changes its captures, as its outputs are
//! the memory of the old values. So a run can be inspected before it changes anything, and an error
//! up to then leaves all state unchanged.
//!
//! Captures are outputs of the main program: the old value replaces an output of the graph that the
//! commit program computes, and the other captures follow the outputs of the graph. So every
//! rewrite, and the plan, keeps captures until the end, in rows, without knowledge of this program.

use std::fmt::Write;

use hashbrown::HashMap;
use sardonyx_passes::Resolved;

use super::verify::Verifier;
use super::{Op, Program, Slot, Step, same_shape};

/// Program at the end of a run.
#[derive(Debug)]
pub(crate) struct Commit {
    /// Program whose inputs are the captures, and whose outputs are new values of state, in order.
    pub(crate) program: Program,
    /// Indices of the captures among the main program's outputs. The old values of the outputs come
    /// first, in order.
    pub(crate) captures: Vec<usize>,
    /// Indices of its outputs among the graph's outputs, where the main program has the old values.
    pub(crate) outputs: Vec<usize>,
}

impl Program {
    /// Returns the number of outputs of the graph, without those kept for the commit program.
    pub(crate) fn graph_outputs(&self) -> usize {
        self.outputs.len().saturating_sub(self.kept)
    }

    /// Yields the outputs of the graph that the steps of this program compute.
    pub(crate) fn own_outputs(&self) -> impl Iterator<Item = Slot> {
        let last = self.commit.as_ref().map_or(&[][..], |commit| &commit.outputs);
        let outputs = self.outputs.iter().take(self.graph_outputs()).enumerate();
        outputs.filter(|(number, _)| !last.contains(number)).map(|(_, slot)| *slot)
    }

    /// Returns the value whose memory a value may share, as a move may become a view. `maker` is
    /// the step of each slot.
    pub(crate) fn find_viewed(&self, mut slot: Slot, maker: &[Option<usize>]) -> Slot {
        while let Some(step) = maker[slot.index()]
            && let Op::Move(moved) = &self.steps[step].op
            && let Some(Some(first)) = moved.operands.first()
        {
            slot = *first;
        }
        slot
    }

    /// Prints the commit program after a program.
    pub(super) fn write_end(&self, text: &mut String, resolved: &Resolved) {
        let Some(commit) = &self.commit else { return };
        let slots = commit.captures.iter().map(|capture| self.outputs[*capture].to_string());
        let _ = writeln!(text, "commit with ({})", slots.collect::<Vec<String>>().join(", "));
        for line in commit.program.lines(resolved).lines() {
            let _ = writeln!(text, "    {line}");
        }
        let model = resolved.model();
        for (output, slot) in commit.program.outputs.iter().enumerate() {
            let value = model.value(commit.program.value(*slot).value);
            let name = model.display(Some(value.name));
            let _ = writeln!(text, "    out   {slot} over {} '{name}'", Slot(output as u32));
        }
    }
}

impl Verifier<'_> {
    /// Finds a contradiction in the commit program: its steps are functions of elements of
    /// captures, which are dense, and each slot of state is read once and written once. Steps that
    /// move along the length of a state, as decoders need for cached rows, would be allowed here.
    pub(super) fn contradiction_at_the_end(&self) -> Option<String> {
        let main = self.program;
        let Some(commit) = &main.commit else {
            return (main.kept > 0).then(|| "outputs stay for no program".to_string());
        };
        if main.graph.is_some() {
            return Some("an inner graph has a commit program".to_string());
        }
        let Commit { program, captures, outputs } = &**commit;
        let inner = Verifier { program, ..*self };
        if let Err(broken) = inner.verify() {
            return Some(format!("in the commit program: {broken}"));
        }
        if program.inputs.len() != captures.len() || program.outputs.len() != outputs.len() {
            return Some(format!(
                "the commit program has {} inputs for {} captures, and {} outputs for {}",
                program.inputs.len(),
                captures.len(),
                program.outputs.len(),
                outputs.len()
            ));
        }
        let slots = program.inputs.iter().copied().chain(program.outputs.iter().copied().map(Some));
        let has_others = program.values.len() != captures.len() + outputs.len();
        if has_others || slots.enumerate().any(|(at, slot)| slot != Some(Slot(at as u32))) {
            return Some("the commit program has other values than captures and results".into());
        }
        for (number, input) in captures.iter().zip(0u32..) {
            let Some(outer) = main.outputs.get(*number).copied() else {
                return Some(format!("the commit program captures output {number}, which is none"));
            };
            let same = match (main.shape(outer), program.shape(Slot(input))) {
                (Some(outer), Some(inner)) => same_shape(outer, inner),
                _ => false,
            };
            if !same || main.elem(outer) != program.elem(Slot(input)) {
                return Some(format!(
                    "the commit program has another type of {}",
                    self.name(outer)
                ));
            }
        }
        if captures.get(..outputs.len()) != Some(&outputs[..]) {
            return Some("the first captures are not the old values".to_string());
        }
        let maker = main.makers();
        let mut reads: HashMap<Slot, usize> = HashMap::new();
        for slot in program.steps.iter().flat_map(|step| step.op.operands()).flatten() {
            let Some(capture) = captures.get(slot.index()) else { continue };
            let viewed = main.find_viewed(main.outputs[*capture], &maker);
            *reads.entry(viewed).or_default() += 1;
        }
        program.steps.iter().find_map(|step| self.contradiction_in_last(commit, step, &reads))
    }

    /// Finds a contradiction in a step of the commit program. `reads` counts the captures by the
    /// values of the main program whose memory they may share.
    fn contradiction_in_last(
        &self,
        commit: &Commit,
        step: &Step,
        reads: &HashMap<Slot, usize>,
    ) -> Option<String> {
        let (main, program) = (self.program, &commit.program);
        let Op::Elements(elements) = &step.op else {
            return Some("a step of the commit program is not a function of elements".to_string());
        };
        let inputs = commit.captures.len();
        if let Some(slot) = elements.operands.iter().find(|slot| slot.index() >= inputs) {
            return Some(format!("the commit program reads {slot}, which it makes"));
        }
        step.outputs.iter().enumerate().find_map(|(position, slot)| {
            let Some(new) = *slot else {
                return Some("a step of the commit program makes what nothing reads".to_string());
            };
            let output = new.index() - inputs;
            let number = commit.outputs[output];
            let old = elements.operands.get(position).map(|slot| slot.index());
            if old != Some(output) || number >= main.graph_outputs() {
                return Some(format!("{new} does not take the place of operand {position}"));
            }
            let shape = program.shape(new);
            if !shape.is_some_and(|shape| shape.iter().all(|dim| dim.known().is_some())) {
                return Some(format!("the size of {new} is not that of all runs"));
            }
            let outer = main.outputs[number];
            let count = main.outputs.iter().filter(|slot| **slot == outer).count();
            if !main.inputs.contains(&Some(outer)) || count != 1 {
                return Some(format!("{} is not state alone", self.name(outer)));
            }
            (reads.get(&outer) != Some(&1))
                .then(|| format!("the old value {} is read twice", self.name(outer)))
        })
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::{Dim, GraphId, Id, Type};
    use sardonyx_tensor::DataType;

    use super::*;
    use crate::program::elements::tests::{elements, valid as negative};
    use crate::program::verify::tests::{relu, step};
    use crate::program::{Order, Value, ValueId};

    /// Makes a program of a state variable of two floats that becomes its negative.
    fn valid() -> Program {
        let program = negative();
        let Value { value, ty, order, .. } = &program.values[0];
        let old = Value { value: *value, ty: ty.clone(), constant: None, order: *order };
        Program {
            values: vec![old],
            inputs: vec![Some(Slot(0))],
            outputs: vec![Slot(0)],
            commit: Some(Box::new(Commit { program, captures: vec![0], outputs: vec![0] })),
            ..Program::default()
        }
    }

    fn commit(program: &mut Program) -> &mut Commit {
        program.commit.as_mut().unwrap()
    }

    /// Lets the commit program capture a second value of the main program, of the same type.
    fn capture(program: &mut Program, is_input: bool) {
        let another = |index: usize| Value {
            value: ValueId::new(index),
            ty: Some(Type::tensor(DataType::Float, [2i64])),
            constant: None,
            order: Order::Rows,
        };
        program.values.push(another(1));
        program.inputs.extend(is_input.then_some(Some(Slot(1))));
        program.outputs.push(if is_input { Slot(1) } else { Slot(0) });
        program.kept += 1;
        let commit = commit(program);
        commit.captures.push(1);
        commit.program.values.insert(1, another(1));
        commit.program.inputs.push(Some(Slot(1)));
        commit.program.outputs[0] = Slot(2);
        commit.program.steps[0].outputs[0] = Some(Slot(2));
        elements(&mut commit.program).operands.push(Slot(1));
        elements(&mut commit.program).results[0] = 2;
    }

    #[test]
    fn what_contradicts_itself_is_found() {
        assert_eq!(valid().verify(), Ok(()));
        let mut program = valid();
        capture(&mut program, true);
        assert_eq!(program.verify(), Ok(()));
        let changes: [(fn(&mut Program), &str); 14] = [
            (|p| p.commit = None, ""),
            (|p| (p.commit, p.kept) = (None, 1), "outputs stay for no program"),
            (|p| p.graph = Some(GraphId::new(0)), "an inner graph has a commit program"),
            (
                |p| commit(p).program.steps[0].op = relu(Slot(0)),
                "a step of the commit program is not a function of elements",
            ),
            (
                |p| commit(p).program.steps.clear(),
                "in the commit program: the output %1 is not computed",
            ),
            (
                |p| commit(p).captures.push(0),
                "the commit program has 1 inputs for 2 captures, and 1 outputs for 1",
            ),
            (|p| commit(p).captures[0] = 7, "the commit program captures output 7, which is none"),
            (
                |p| commit(p).program.inputs[0] = None,
                "in the commit program: step 0: %0 is read before it is computed",
            ),
            (
                |p| p.values[0].ty = Some(Type::tensor(DataType::Float, [3i64])),
                "the commit program has another type of %0",
            ),
            (|p| p.kept = 1, "%1 does not take the place of operand 0"),
            (
                |p| {
                    capture(p, true);
                    commit(p).captures.swap(0, 1);
                },
                "the first captures are not the old values",
            ),
            (|p| capture(p, false), "%0 is not state alone"),
            (
                |p| {
                    capture(p, true);
                    let op = relu(Slot(0));
                    p.inputs.truncate(1);
                    p.steps.push(step(op, &[Slot(1)]));
                    elements(&mut commit(p).program).operands[1] = Slot(0);
                },
                "the old value %0 is read twice",
            ),
            (
                |p| {
                    let ty = Type::tensor(DataType::Float, [Dim::symbol("N")]);
                    p.values[0].ty = Some(ty.clone());
                    let commit = commit(p);
                    commit.program.values.iter_mut().for_each(|v| v.ty = Some(ty.clone()));
                },
                "the size of %1 is not that of all runs",
            ),
        ];
        for (change, expected) in changes {
            let mut program = valid();
            change(&mut program);
            let broken = program.verify().err().map(|broken| broken.what).unwrap_or_default();
            assert_eq!(broken, expected);
        }
    }
}
