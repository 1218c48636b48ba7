//! Predicted sizes, work and memory of each step for inputs of given types, without a run.

use sardonyx_model::{NodeId, Type};
use sardonyx_ops::Known;
use sardonyx_passes::{Inference, node_multiply_adds};
use sardonyx_tensor::Dims;
use smallvec::SmallVec;

use crate::error::RunError;
use crate::executable::{Body, Executable, Step};
use crate::layout::{Layout, ViewSite};
use crate::memory::Planned;
use crate::plan::Plan;
use crate::program::Slot;
use crate::session::Session;
use crate::sizes::{Scope, Sizes, infer_types, integers};

/// Sizes, work and memory of a run for inputs of given types.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunDetails {
    /// Details of each step, in the order of [`Session::steps`].
    pub steps: Vec<StepDetails>,
    /// Size of the arena for values between inputs and outputs, inner graphs included, in bytes.
    pub arena_bytes: usize,
    /// Total bytes of these values if none shared memory.
    pub unshared_bytes: u64,
}

/// Sizes, work and memory of a step for inputs of given types.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepDetails {
    /// Whether the output is a view of the input, so that nothing runs.
    pub is_view: bool,
    /// Whether the output reuses the memory of an input.
    pub in_place: bool,
    /// Whether an input is read through strides.
    pub strided: bool,
    /// Whether the step reads or writes images whose channels come last.
    pub channels_last: bool,
    /// Whether the step copies data that could be a view if all readers accepted strides.
    pub copies: bool,
    /// Number of multiply-adds; `None` if sizes are unknown or the operator is not counted.
    pub multiply_adds: Option<u64>,
    /// Bytes read, constants included: of a gathered table only the rows taken, of a concatenation
    /// only the copied inputs. `None` if a size is unknown.
    pub read_bytes: Option<u64>,
    /// Bytes written: of a concatenation only the copied parts. `None` if a size is unknown.
    pub written_bytes: Option<u64>,
    /// Inputs in order, without omitted ones.
    pub inputs: Vec<OperandDetails>,
    /// Outputs that have a reader.
    pub outputs: Vec<OperandDetails>,
}

/// Input or output of a step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OperandDetails {
    /// Type, with all dimensions if they are known before the run.
    pub ty: Option<Type>,
    /// Whether the value is known when the model is compiled.
    pub constant: bool,
    /// Whether the value is read through strides.
    pub strided: bool,
    /// Whether the value is an image whose channels come last.
    pub channels_last: bool,
}

impl OperandDetails {
    /// Returns the size in bytes; `None` if it is unknown or the type has none, as strings.
    pub fn bytes(&self) -> Option<u64> {
        bytes_of(self.ty.as_ref()?)
    }
}

fn bytes_of(ty: &Type) -> Option<u64> {
    let sizes: Option<Dims> = ty.shape()?.iter().map(|dim| dim.size()).collect();
    let elems = sardonyx_tensor::shape::elems(&sizes?).ok()?;
    u64::try_from(ty.elem()?.storage_bytes(elems)?).ok()
}

impl Session {
    /// Predicts the run for inputs of these types, by position among [`Session::inputs`]; `None`
    /// for an omitted input or an unknown type. Sizes that depend on unknown ones are unknown.
    ///
    /// # Errors
    ///
    /// Types with which the model contradicts itself.
    pub fn details(&self, inputs: &[Option<Type>]) -> Result<RunDetails, RunError> {
        let executable = &self.executable;
        let inference = infer_types(Scope::main(executable), inputs)?;
        let mut details = RunDetails { steps: Vec::new(), arena_bytes: 0, unshared_bytes: 0 };
        for body in executable.body.parts() {
            let planned = Planned::new(body, Sizes::from_inference(executable, body, &inference));
            details.add(executable, body, &planned, &inference);
        }
        Ok(details)
    }
}

impl RunDetails {
    /// Adds the steps of a program, and after each those of its inner graphs.
    fn add(
        &mut self,
        executable: &Executable,
        body: &Body,
        planned: &Planned,
        inference: &Inference,
    ) {
        let look = StepInspector { executable, body, plan: &planned.plan, inference };
        for (index, step) in body.steps.iter().enumerate() {
            self.steps.push(look.step(index, step));
            for (body, planned) in step.bodies().iter().zip(planned.inner(index)) {
                self.add(executable, body, planned, inference);
            }
        }
        let outputs = body.steps.iter().flat_map(|step| &step.outputs);
        let between = outputs.flatten().filter(|slot| look.is_between(**slot));
        let bytes = between.filter_map(|slot| bytes_of(&look.type_of(*slot)?));
        self.unshared_bytes = bytes.fold(self.unshared_bytes, u64::saturating_add);
        self.arena_bytes = self.arena_bytes.saturating_add(planned.plan.arena_bytes);
    }
}

struct StepInspector<'a> {
    executable: &'a Executable,
    body: &'a Body,
    plan: &'a Plan,
    inference: &'a Inference,
}

impl StepInspector<'_> {
    fn step(&self, index: usize, step: &Step) -> StepDetails {
        let mut inputs = Vec::new();
        let places: SmallVec<[Option<usize>; 6]> = step
            .inputs
            .iter()
            .enumerate()
            .map(|(position, slot)| {
                let packed = step.packed.iter().find(|(packed, _)| *packed == position);
                inputs.push(match (slot, packed) {
                    (Some(slot), _) => self.operand(*slot),
                    (None, Some((_, slot))) => {
                        OperandDetails { constant: true, ..self.operand(*slot) }
                    }
                    (None, None) => return None,
                });
                Some(inputs.len() - 1)
            })
            .collect();
        let outputs: Vec<OperandDetails> =
            step.outputs.iter().flatten().map(|slot| self.operand(*slot)).collect();
        let sum = |operands: &[OperandDetails]| {
            let mut bytes = operands.iter().map(OperandDetails::bytes);
            bytes.try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
        };
        let (mut read_bytes, mut written_bytes) = (sum(&inputs), sum(&outputs));
        let table = places.first().copied().flatten();
        let operator = self.executable.resolved.op(step.origins[0]);
        if operator.is_some_and(|op| op.def.is_part_of_first())
            && let Some(table) = table
            && let (Some(read), Some(written)) = (&mut read_bytes, written_bytes)
        {
            *read -= inputs[table].bytes().unwrap_or(0).saturating_sub(written);
        }
        let is_view = self.plan.skip[index];
        // An input that lies in its place in the output is neither read nor written.
        for (position, at) in places.iter().enumerate() {
            if let Some(at) = at
                && !is_view
                && self.plan.lies_there(step, position)
            {
                let bytes = inputs[*at].bytes().unwrap_or(0);
                let without = |all: Option<u64>| all.map(|all| all.saturating_sub(bytes));
                (read_bytes, written_bytes) = (without(read_bytes), without(written_bytes));
            }
        }
        StepDetails {
            is_view,
            in_place: self.plan.over[index].is_some(),
            strided: !is_view && inputs.iter().any(|input| input.strided),
            channels_last: inputs.iter().chain(&outputs).any(|operand| operand.channels_last),
            copies: !is_view && self.could_be_view(step),
            multiply_adds: self.multiply_adds(step),
            read_bytes,
            written_bytes,
            inputs,
            outputs,
        }
    }

    /// Sums the multiply-adds of the node that the step was made from, and of fused nodes with the
    /// same operator.
    fn multiply_adds(&self, step: &Step) -> Option<u64> {
        let resolved = &self.executable.resolved;
        let (first, others) = step.origins.split_first()?;
        let def = |node: NodeId| resolved.op(node).map(|op| op.def);
        let others = others.iter().filter(|node| match (def(*first), def(**node)) {
            (Some(first), Some(other)) => std::ptr::eq(first, other),
            _ => false,
        });
        std::iter::once(first).chain(others).try_fold(0u64, |sum, node| {
            sum.checked_add(node_multiply_adds(resolved, self.inference, *node)?)
        })
    }

    fn operand(&self, slot: Slot) -> OperandDetails {
        let channels_last = self.plan.has_channels_last(self.body, slot);
        OperandDetails {
            ty: self.type_of(slot),
            constant: self.body.slots[slot.index()].is_constant(),
            strided: self.plan.layout(slot).is_some() && !channels_last,
            channels_last,
        }
    }

    fn type_of(&self, slot: Slot) -> Option<Type> {
        match &self.plan.types[slot.index()] {
            Some((elem, dims)) => Some(Type::tensor(*elem, dims.iter().copied())),
            None => {
                let value = self.body.slots[slot.index()].value;
                self.inference.ty(value).cloned()
            }
        }
    }

    /// Whether a slot is neither an input, an output, nor a constant.
    fn is_between(&self, slot: Slot) -> bool {
        let executable = self.body;
        let outputs = &executable.outputs[..executable.graph_outputs()];
        let outside = outputs.contains(&slot) || executable.inputs.contains(&Some(slot));
        !outside && !executable.slots[slot.index()].is_constant()
    }

    /// Whether every output consists of elements of the first input, seen as contiguous.
    fn could_be_view(&self, step: &Step) -> bool {
        let sized = |slot: Slot| self.plan.types[slot.index()].as_ref();
        let Some((_, from)) = step.inputs.first().copied().flatten().and_then(sized) else {
            return false;
        };
        let layout = Layout::dense(from);
        let ints = |position: usize| {
            let slot = step.inputs.get(position).copied().flatten()?;
            let slot = &self.body.slots[slot.index()];
            let known = || self.inference.known(slot.value).and_then(Known::to_tensor);
            integers(&slot.constant.as_deref().cloned().or_else(known)?)
        };
        let has_input = |position: usize| step.inputs.get(position).is_some_and(Option::is_some);
        let outputs = step.outputs.iter().enumerate();
        let mut outputs = outputs.filter_map(|(output, slot)| Some((output, (*slot)?)));
        let is_view = |(output, slot): (usize, Slot)| {
            let Some((_, to)) = sized(slot) else {
                return false;
            };
            let site =
                ViewSite { output, from, layout: &layout, to, ints: &ints, has_input: &has_input };
            step.movement.as_ref().is_some_and(|movement| movement.view(&site).is_some())
        };
        step.outputs.iter().any(Option::is_some) && outputs.all(is_view)
    }
}
