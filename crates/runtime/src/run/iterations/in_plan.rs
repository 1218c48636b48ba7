//! Iterations in the memory of one plan, as long as values have its sizes.

use std::mem::{replace, take};

use sardonyx_tensor::{Arena, DataType, Dims, Tensor, Value, WriteSlices};
use smallvec::SmallVec;

use super::{Around, Iterating, Site};
use crate::error::KernelError;
use crate::iteration_plan::{Condition, IterationPlan, NextValue, Stacked};
use crate::kernel::{CallLists, Operand};
use crate::memory::{Held, Memory};
use crate::run::regions::borrow;
use crate::run::stack::{Slices, Stack, format_type};
use crate::run::{Failed, Room, Run, Watch};
use crate::schedule::Source;

/// Iterations in the memory of one plan.
pub(super) struct Iterations<'s, 'h> {
    pub(super) run: &'s Run<'s>,
    pub(super) site: Site<'s>,
    pub(super) plan: &'s IterationPlan,
    pub(super) held: Vec<Held<'h>>,
    pub(super) lists: CallLists,
    /// Second buffer of each carried value, until it is in use.
    pub(super) spare: SmallVec<[Option<&'h mut [u8]>; 4]>,
    /// Whether the next iteration has the sizes of this plan.
    pub(super) fits: bool,
}

impl<'h> Iterations<'_, 'h> {
    /// Runs iterations until the last one, or until sizes change.
    pub(super) fn run_all<'o: 'h, 't: 'h>(
        &mut self,
        buffers: WriteSlices<'h>,
        arena: &mut Arena,
        inner: &mut Option<Box<Memory>>,
        around: Around<'h, 'o>,
        iterating: &mut Iterating<'o, 't>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let Site { step, body, planned, .. } = self.site;
        self.begin(&mut buffers.into_iter(), around.operands, iterating)?;
        while iterating.has_next() {
            if let Some(reason) = self.run.limits.take_iteration() {
                return Err(Failed::Inside(self.run.make_stop_error(
                    reason,
                    step,
                    Some(iterating.iteration),
                )));
            }
            let mut ran = self.lend(around.slices, iterating);
            if ran.is_ok() {
                let held = &mut self.held;
                let (inner, lists) = (&mut *inner, &mut self.lists);
                let mut room = Room { arena: &mut *arena, inner, lists, held };
                let walked = self.run.run_steps(body, planned, &mut room, watch);
                ran = walked.map_err(Failed::Inside).and_then(|()| self.end_iteration(iterating));
            }
            ran.map_err(|failed| self.run.in_iteration(failed, step, iterating.iteration))?;
            iterating.iteration += 1;
            if self.site.is_one_iteration || !self.fits {
                break;
            }
        }
        self.leave(iterating)
    }

    /// Places all values for the first iteration.
    fn begin<'o: 'h>(
        &mut self,
        buffers: &mut dyn Iterator<Item = &'h mut [u8]>,
        operands: &[Operand<'o>],
        iterating: &mut Iterating<'o, '_>,
    ) -> Result<(), Failed> {
        let Iterations { site, plan, held, spare, .. } = self;
        let schedule = &site.planned.schedule;
        held.resize_with(plan.held, Held::default);
        let mut next = || buffers.next().map_or(Held::Nothing, Held::Output);
        if let Some(place) = plan.number {
            held[place as usize] = next();
        }
        if let Some(condition) = &plan.condition {
            if let Some(place) = condition.input {
                let mut value = next();
                if let Held::Output(bytes) = &mut value {
                    bytes.fill(1);
                }
                held[place as usize] = value;
            }
            if condition.is_lent
                && let Source::Held { place, .. } = condition.made
            {
                held[place as usize] = next();
            }
        }
        for (carried, value) in plan.carried.iter().zip(&mut iterating.carried) {
            let value = match value {
                Held::Value(..) => take(value),
                Held::Input(view) => Held::Input(view.clone()),
                Held::Borrowed(value) => Held::Borrowed(value),
                Held::Output(_) | Held::Kept(_) | Held::Nothing => Held::Nothing,
            };
            let declared =
                carried.read.and_then(|slot| site.planned.plan.types[slot.index()].as_ref());
            check(&value, declared)?;
            held[carried.input as usize] = value;
            let mut second = None;
            if let NextValue::At { output, is_lent: true } = carried.then {
                held[output as usize] = next();
                second = match next() {
                    Held::Output(bytes) => Some(bytes),
                    _ => None,
                };
            }
            spare.push(second);
        }
        for (stacked, stack) in plan.stacked.iter().zip(&iterating.stacks) {
            if let Some(output) = stacked.output {
                let place = next();
                if !stack.is_placed() {
                    held[output as usize] = place;
                }
            }
        }
        let own = site.kind.input_count();
        for (place, operand) in
            schedule.inputs[own..].iter().zip(&operands[site.kind.input_count()..])
        {
            if let Some(place) = place {
                held[*place as usize] = borrow(operand);
            }
        }
        Ok(())
    }

    /// Sets the new inputs of the next iteration, and lends memory for its stacked values.
    fn lend<'o: 'h, 't: 'h>(
        &mut self,
        slices: Option<&'h Slices<'o>>,
        iterating: &mut Iterating<'o, 't>,
    ) -> Result<(), Failed> {
        let Iterations { site, plan, held, .. } = self;
        if let Some(place) = plan.number {
            let number = iterating.iteration as i64;
            match &mut held[place as usize] {
                Held::Output(bytes) if bytes.len() == size_of::<i64>() => {
                    bytes.copy_from_slice(&number.to_ne_bytes());
                }
                place => *place = Held::Value(Value::Tensor(Tensor::scalar(number)), 0),
            }
        }
        let types = &site.planned.plan.types;
        if let Some(slices) = slices {
            let first = site.kind.carried_count();
            let inputs = first..first + slices.count();
            let slots = site.body.inputs[inputs.clone()].iter();
            let places = site.planned.schedule.inputs[inputs].iter();
            for ((place, slot), slice) in places.zip(slots).zip(slices.at(iterating.iteration)) {
                if let (Some(place), Some(slot)) = (place, slot) {
                    let slice = slice?;
                    check(&slice, types[slot.index()].as_ref())?;
                    held[*place as usize] = slice;
                }
            }
        }
        for (stacked, stack) in plan.stacked.iter().zip(&mut iterating.stacks) {
            if let Some(output) = stacked.output
                && let Some(bytes) = stack.lend(types[stacked.slot.index()].as_ref())?
            {
                held[output as usize] = Held::Output(bytes);
            }
        }
        Ok(())
    }

    /// Moves the results of an iteration to the inputs of the next.
    fn end_iteration(&mut self, iterating: &mut Iterating<'_, '_>) -> Result<(), Failed> {
        if let Some(condition) = &self.plan.condition {
            iterating.limits.goes_on = self.read_condition(condition)?;
        }
        for (stacked, stack) in self.plan.stacked.iter().zip(&mut iterating.stacks) {
            self.stack(stacked, stack)?;
        }
        // Copies aliased values before swapping.
        let mut copies: SmallVec<[Value; 2]> = SmallVec::new();
        for carried in &self.plan.carried {
            if let NextValue::Of(source) = carried.then {
                let operand = self.operand(source)?;
                copies.push(self.run.to_value(operand)?);
            }
        }
        let mut copies = copies.into_iter();
        let Iterations { plan, held, spare, run, site, .. } = self;
        for (carried, spare) in plan.carried.iter().zip(spare) {
            match carried.then {
                NextValue::Same => {}
                NextValue::At { output, .. } => {
                    let made = take(&mut held[output as usize]);
                    let before = replace(&mut held[carried.input as usize], made);
                    held[output as usize] = match before {
                        Held::Output(bytes) => Held::Output(bytes),
                        Held::Value(_, bytes) => {
                            run.account.credit(bytes);
                            spare.take().map_or(Held::Nothing, Held::Output)
                        }
                        _ => spare.take().map_or(Held::Nothing, Held::Output),
                    };
                }
                NextValue::Of(_) => {
                    let value = copies.next().map(|value| {
                        let bytes = value.bytes();
                        Held::Value(value, bytes)
                    });
                    let place = &mut held[carried.input as usize];
                    if let Held::Value(_, bytes) = replace(place, value.unwrap_or_default()) {
                        run.account.credit(bytes);
                    }
                }
            }
            let planned =
                carried.read.and_then(|slot| site.planned.plan.types[slot.index()].as_ref());
            if let Err(failed) = check(&held[carried.input as usize], planned) {
                if !site.is_open {
                    return Err(failed);
                }
                self.fits = false;
            }
        }
        Ok(())
    }

    /// Reads the condition that an iteration has computed.
    fn read_condition(&self, condition: &Condition) -> Result<bool, Failed> {
        if let Source::Held { place, .. } = condition.made
            && Some(place) == condition.input
        {
            return Ok(true);
        }
        let operand = self.operand(condition.made)?;
        match &operand {
            Operand::Tensor(view) if view.data_type() == DataType::Bool && view.len() == 1 => {
                Ok(view.contiguous_bytes().is_some_and(|bytes| bytes == [1]))
            }
            Operand::Tensor(view) => {
                let is = format_type(view.data_type(), view.dims());
                Err(format!("the condition must be one bool, not {is}").into())
            }
            _ => Err("the condition is not a tensor".to_string().into()),
        }
    }

    /// Stacks a result of an iteration, unless it is in its place.
    fn stack(&mut self, stacked: &Stacked, stack: &mut Stack<'_, '_>) -> Result<(), Failed> {
        if let Some(place) = stacked.output
            && stack.is_placed()
            && let place = &mut self.held[place as usize]
            && matches!(place, Held::Output(_))
        {
            *place = Held::Nothing;
            return Ok(());
        }
        match self.operand(stacked.source)? {
            Operand::Tensor(view) => {
                let pushed = stack.push(&view, self.run.recycler, self.run.account);
                pushed.map_err(|error| self.describe_output_error(stacked, &error))?;
            }
            Operand::Value(value) => {
                let ty = value.value_type();
                return Err(format!("only tensors can be stacked, not {ty}").into());
            }
            _ => return Err("what is stacked has not been computed".to_string().into()),
        }
        // Frees a value of its own, which has been copied.
        if let Some(place) = stacked.output
            && let Held::Value(_, bytes) = self.held[place as usize]
        {
            self.held[place as usize] = Held::Nothing;
            self.run.account.credit(bytes);
        }
        Ok(())
    }

    /// Describes an error of an output of the body.
    #[cold]
    fn describe_output_error(&self, stacked: &Stacked, error: &KernelError) -> String {
        let value = self.site.body.slots[stacked.slot.index()].value;
        format!("output '{}' of the graph: {error}", self.run.executable.resolved.name_of(value))
    }

    fn operand(&self, source: Source) -> Result<Operand<'_>, Failed> {
        let Site { body, planned, .. } = self.site;
        Ok(body.operand(&planned.plan, &self.held, source, None)?)
    }

    /// Moves carried values out of the memory of the plan; after the last iteration to their
    /// destination.
    fn leave(&mut self, iterating: &mut Iterating<'_, '_>) -> Result<(), Failed> {
        let is_over = !iterating.has_next();
        for (index, carried) in self.plan.carried.iter().enumerate() {
            let (place, slot) = (carried.input, carried.slot);
            match &self.held[place as usize] {
                Held::Output(_) => {
                    let operand = self.operand(Source::Held { place, root: slot, slot })?;
                    if is_over {
                        self.run.deliver(&mut iterating.finals[index], operand)?;
                        iterating.carried[index] = Held::Nothing;
                    } else {
                        let value = self.run.to_value(operand)?;
                        let bytes = value.bytes();
                        iterating.carried[index] = Held::Value(value, bytes);
                    }
                }
                Held::Value(..) => {
                    if let Held::Value(value, bytes) = take(&mut self.held[place as usize]) {
                        iterating.carried[index] = Held::Value(value, bytes);
                    }
                }
                // Unchanged since the beginning.
                Held::Input(_) | Held::Borrowed(_) | Held::Kept(_) | Held::Nothing => {}
            }
        }
        Ok(())
    }
}

/// Compares a value with its planned type.
fn check(value: &Held<'_>, planned: Option<&(DataType, Dims)>) -> Result<(), Failed> {
    let (Some((elem, dims)), Some(view)) = (planned, value.as_view()) else {
        return Ok(());
    };
    if view.data_type() == *elem && view.dims() == &dims[..] {
        return Ok(());
    }
    let (is, wanted) = (format_type(view.data_type(), view.dims()), format_type(*elem, dims));
    Err(format!("an input of the graph is {is}, but {wanted} was inferred").into())
}
