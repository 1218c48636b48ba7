//! Execution of inner graphs, in place of a kernel.

use std::mem::take;

use sardonyx_tensor::{Bool8, DataType, TensorViewMut, Value, emptied};
use smallvec::SmallVec;

use super::stack::Slices;
use super::{Failed, RegionStep, Run, Watch};
use crate::error::KernelError;
use crate::executable::Body;
use crate::inputs::Branch;
use crate::kernel::{Call, MemorySource, Operand, Target};
use crate::memory::{Held, Memory, Planned};
use crate::plan::Plan;
use crate::program::{RegionKind, Slot};
use crate::schedule::Source;

impl Run<'_> {
    /// Runs the inner graphs of a step by its kind. The operands of the call are those of the kind,
    /// then the captures of the graphs.
    pub(super) fn run_region(
        &self,
        at: RegionStep<'_>,
        planned: &[Planned],
        inner: &mut Option<Box<Memory>>,
        call: &mut Call<'_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let RegionStep { step, region } = at;
        let chosen = match region.kind {
            RegionKind::If { .. } => usize::from(!read_condition(call, 0)?),
            RegionKind::Scan { lengths: Some(_), .. } => {
                return self.run_batches(at, planned, inner, call, watch);
            }
            RegionKind::Loop { .. } | RegionKind::Scan { .. } => {
                if let Some(iterations) = &region.scalars
                    && self.run_scalar_loop(at, iterations, call, watch)?
                {
                    return Ok(());
                }
                let slices = Slices::from_call(&region.kind, call)?;
                return self.run_iterations(at, planned, inner, call, slices, watch);
            }
        };
        let branch = Branch { step: step.number, index: chosen };
        if let Some(closed) = self.closed.iter().find(|closed| closed.branch == branch) {
            return Err(closed.reason().into());
        }
        let (Some(body), Some(planned)) = (region.bodies.get(chosen), planned.get(chosen)) else {
            return Err(format!("there is no graph {chosen}").into());
        };
        let Call { operands, targets, .. } = call;
        let captured = operands.iter().skip(1).map(borrow);
        let memory = inner.get_or_insert_with(Box::default);
        self.account.charge(planned.plan.arena_bytes).map_err(KernelError::from)?;
        self.enter(body, planned, memory, captured, targets, watch)?;
        self.account.credit(planned.plan.arena_bytes);
        Ok(())
    }

    /// Runs an inner graph on its captures, with outputs written to the targets of the enclosing
    /// step.
    fn enter<'h>(
        &self,
        body: &Body,
        planned: &Planned,
        memory: &mut Memory,
        captured: impl Iterator<Item = Held<'h>>,
        targets: &'h mut [Target<'_>],
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let (plan, schedule) = (&planned.plan, &planned.schedule);
        let mut held: Vec<Held<'h>> = emptied(take(&mut memory.held));
        held.resize_with(schedule.held, Held::default);
        for (place, value) in schedule.inputs.iter().zip(captured) {
            if let Some(place) = place {
                held[*place as usize] = value;
            }
        }
        // Outputs that no step of the graph can write in their place are delivered at the end.
        let mut later: SmallVec<[(Source, &mut Target<'_>); 2]> = SmallVec::new();
        for (source, target) in schedule.outputs.iter().zip(targets) {
            if let Source::Held { place, root, slot } = *source
                && root == slot
                && matches!(held[place as usize], Held::Nothing)
                && fits(plan, slot, target)
                && let Target::Planned { bytes, .. } = target
            {
                held[place as usize] = Held::Output(bytes);
                continue;
            }
            later.push((*source, target));
        }
        let ran = self.program(body, planned, memory, &mut held, watch);
        ran.map_err(Failed::Inside)?;
        let mut later = later.into_iter();
        while let Some((source, target)) = later.next() {
            let is_last = later.as_slice().iter().all(|(other, _)| *other != source);
            if let Source::Held { place, root, slot } = source
                && root == slot
                && is_last
                && let place = &mut held[place as usize]
                && matches!(place, Held::Value(..))
                && let Held::Value(value, _) = take(place)
            {
                self.deliver(target, Operand::Taken(value))?;
                continue;
            }
            self.deliver(target, body.operand(plan, &held, source, None)?)?;
        }
        memory.held = emptied(held);
        Ok(())
    }

    /// Delivers an output of an inner graph to a target of the enclosing step.
    pub(super) fn deliver(
        &self,
        target: &mut Target<'_>,
        operand: Operand<'_>,
    ) -> Result<(), Failed> {
        match target {
            Target::Absent => {}
            Target::Planned { data_type, dims, bytes, .. } => {
                let view = match &operand {
                    Operand::Tensor(view) => view.clone(),
                    Operand::Taken(Value::Tensor(tensor)) => tensor.view(),
                    _ => {
                        return Err("an output is not a tensor, as was inferred"
                            .to_string()
                            .into());
                    }
                };
                if view.data_type() != *data_type || view.dims() != &dims[..] {
                    let (is, inferred) = (view.dims(), &dims[..]);
                    return Err(format!("an output is {is:?}, {inferred:?} was inferred").into());
                }
                TensorViewMut::over(*data_type, dims, bytes)?.copy_from(&view)?;
            }
            Target::Owned(place_of) => *place_of = Some(self.to_value(operand)?),
        }
        Ok(())
    }

    /// Converts an operand to a value of its own; charges copies.
    pub(super) fn to_value(&self, operand: Operand<'_>) -> Result<Value, Failed> {
        match operand {
            Operand::Taken(value) => Ok(value),
            Operand::Tensor(view) => {
                if view.data_type() == DataType::String {
                    return Ok(Value::Tensor(view.to_tensor()?));
                }
                let memory = MemorySource { recycler: Some(self.recycler), account: self.account };
                let mut copy = memory.tensor(view.data_type(), view.dims())?;
                view.copy_to(copy.bytes_mut()?)?;
                Ok(Value::Tensor(copy))
            }
            Operand::Value(value) => {
                self.account.charge(value.bytes()).map_err(KernelError::from)?;
                Ok(value.clone())
            }
            Operand::InPlace | Operand::There(_) | Operand::Absent => {
                Err("an output has not been computed".to_string().into())
            }
        }
    }
}

/// Borrows an operand of the enclosing step for an inner graph.
pub(super) fn borrow<'a>(operand: &Operand<'a>) -> Held<'a> {
    match operand {
        Operand::Tensor(view) => Held::Input(view.clone()),
        Operand::Value(value) => Held::Borrowed(value),
        Operand::Taken(_) | Operand::InPlace | Operand::There(_) | Operand::Absent => Held::Nothing,
    }
}

/// Reads a condition.
pub(super) fn read_condition(call: &Call<'_>, index: usize) -> Result<bool, KernelError> {
    match call.slice::<Bool8>(index)? {
        [condition] => Ok(bool::from(*condition)),
        _ => {
            let dims = call.tensor(index)?.dims();
            Err(KernelError::Failed(format!("the condition must be one bool, not {dims:?}")))
        }
    }
}

/// Whether a slot has the planned type and dimensions of a target.
fn fits(plan: &Plan, slot: Slot, target: &Target<'_>) -> bool {
    match (target, &plan.types[slot.index()]) {
        (Target::Planned { data_type, dims, .. }, Some((is, sized))) => {
            is == data_type && sized == *dims
        }
        _ => false,
    }
}
