//! Iterations of `Loop` and `Scan`: one graph runs repeatedly, on its outputs of the previous iteration.
//!
//! A carried value of constant size has two buffers, which the graph reads and writes alternately; any other is
//! passed on as a value. A stacked value is written in its place if its size is known before, else appended to memory
//! that grows by doubling.

use std::mem::{replace, take};

use sardonyx_model::{Dim, Type};
use sardonyx_tensor::{Arena, Bool8, DataType, Dims, Tensor, Value, WriteSlices, emptied};
use smallvec::SmallVec;

use super::iteration_plans::{Choice, types_of};
use super::regions::{borrow, read_condition};
use super::stack::{Slices, Stack, format_type};
use super::{Failed, Room, Run, Watch};
use crate::error::KernelError;
use crate::executable::{Body, Executable, Region, Step};
use crate::iteration_plan::{Condition, IterationPlan, NextValue, Stacked};
use crate::kernel::{Call, Operand, Target};
use crate::memory::{Held, Memory, Planned};
use crate::program::{Along, RegionKind};
use crate::schedule::Source;

/// Iterations of one run of a region.
struct Iterating<'o, 't> {
    /// Carried values of the next iteration that no plan holds.
    carried: SmallVec<[Held<'o>; 4]>,
    /// Number of iterations so far.
    iteration: usize,
    /// Maximum number of iterations.
    most: u64,
    /// Whether the condition allows another iteration.
    goes_on: bool,
    finals: &'t mut [Target<'o>],
    stacks: SmallVec<[Stack<'t, 'o>; 2]>,
}

impl Iterating<'_, '_> {
    fn has_next(&self) -> bool {
        self.goes_on && (self.iteration as u64) < self.most
    }
}

impl Run<'_> {
    /// Runs the body of a region iteration by iteration. The operands of the call are those of the kind, then the
    /// captures of the body.
    pub(super) fn iterations<'o>(
        &self,
        (step, region): (&Step, &Region),
        planned: &[Planned],
        inner: &mut Option<Box<Memory>>,
        call: &mut Call<'o>,
        slices: Option<Slices<'o>>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let ([body], [planned]) = (&region.bodies[..], planned) else {
            return Err("the node does not have one graph".to_string().into());
        };
        let kind = &region.kind;
        let (most, goes_on) = limits(kind, call)?;
        let most = slices.as_ref().map_or(most, |slices| slices.len() as u64);
        let Call { operands, targets, .. } = call;
        let (first, count) = (kind.first_carried(), kind.carried_count());
        let carried = operands[first..first + count].iter_mut().map(|operand| {
            if let Operand::Taken(_) = operand
                && let Operand::Taken(value) = replace(operand, Operand::Absent)
            {
                let bytes = value.bytes();
                return Held::Value(value, bytes);
            }
            borrow(operand)
        });
        let carried = carried.collect();
        let Some((finals, stacked)) = targets.split_at_mut_checked(count) else {
            return Err("there are more loop-carried inputs than outputs".to_string().into());
        };
        let along = |index: usize| match kind {
            RegionKind::Scan { stacked, .. } => stacked[index],
            RegionKind::If { .. } | RegionKind::Loop { .. } => Along::FIRST,
        };
        let stacked = stacked.iter_mut().enumerate();
        let stacks = stacked.map(|(index, target)| Stack::new(target, along(index))).collect();
        let mut iterating = Iterating { carried, iteration: 0, most, goes_on, finals, stacks };
        let memory = inner.get_or_insert_with(Box::default);
        let is_open = planned.iterations.as_deref().is_some_and(|plan| plan.is_open);
        let mut choice = Choice::default();
        while iterating.has_next() {
            self.check_declared((kind, body), &iterating, slices.as_ref())?;
            let chosen = if is_open {
                let given = list_inputs(kind, operands, slices.as_ref(), &iterating)?;
                self.iteration_plans[step.number].choose(
                    self.executable,
                    (region, body),
                    &given,
                    &mut choice,
                )
            } else {
                None
            };
            let is_one_iteration = is_open && chosen.is_none();
            let planned = chosen.as_deref().unwrap_or(planned);
            let site = Site { step, kind, body, planned, is_open, is_one_iteration };
            let given = Around { operands, slices: slices.as_ref() };
            self.run_iterations(site, memory, given, &mut iterating, watch)?;
        }
        let sizes = match iterating.iteration {
            0 => {
                let given = Around { operands, slices: slices.as_ref() };
                self.sizes_without_iterations((step, region, body), planned, given, &iterating)?
            }
            _ => Vec::new(),
        };
        self.end(kind, body, iterating, &sizes)
    }

    /// Returns the element type and sizes that a slice of each stacked output would have in an iteration, which
    /// decide the shape of an output without slices.
    fn sizes_without_iterations(
        &self,
        (step, region, body): (&Step, &Region, &Body),
        planned: &Planned,
        given: Around<'_, '_>,
        iterating: &Iterating<'_, '_>,
    ) -> Result<Vec<Option<(DataType, Dims)>>, Failed> {
        let kind = &region.kind;
        let mut actual = None;
        if planned.iterations.as_deref().is_some_and(|plan| plan.is_open)
            && iterating.stacks.iter().any(|stack| matches!(stack, Stack::Grown { .. }))
        {
            let mut types = types_of(&list_inputs(kind, given.operands, None, iterating)?);
            if let Some(slices) = given.slices {
                let first = types.len().min(iterating.carried.len());
                drop(types.splice(first..first, slices.types().map(Some)));
            }
            let plans = &self.iteration_plans[step.number];
            actual = plans.types(self.executable, body, &types);
        }
        let types = actual.as_ref().unwrap_or(&planned.plan.types);
        let stacked = body.outputs.iter().skip(kind.kept_outputs() + kind.carried_count());
        Ok(stacked.map(|slot| types.get(slot.index())?.clone()).collect())
    }

    /// Refuses values of the next iteration whose sizes differ from the declared ones. Steps rely on these to
    /// different degrees, so not all of them would notice.
    fn check_declared(
        &self,
        (kind, body): (&RegionKind, &Body),
        iterating: &Iterating<'_, '_>,
        slices: Option<&Slices<'_>>,
    ) -> Result<(), Failed> {
        let first = match kind {
            RegionKind::Loop { .. } => 2,
            RegionKind::Scan { .. } | RegionKind::If { .. } => 0,
        };
        let Executable { inference, resolved, .. } = self.executable;
        let check = |input: usize, held: &Held<'_>| -> Result<(), Failed> {
            let (Some(Some(slot)), Some(view)) = (body.inputs.get(input), held.as_view()) else {
                return Ok(());
            };
            let value = body.slots[slot.index()].value;
            let Some(declared) = inference.ty(value) else { return Ok(()) };
            let dims = view.dims();
            let fits = declared.shape().is_none_or(|shape| {
                let fits = |(dim, size): (&Dim, &usize)| {
                    dim.known().is_none_or(|known| usize::try_from(known) == Ok(*size))
                };
                shape.len() == dims.len() && shape.iter().zip(dims).all(fits)
            });
            if fits {
                return Ok(());
            }
            let (name, is) = (resolved.name_of(value), format_type(view.data_type(), dims));
            Err(format!("input '{name}' of the graph is {is}, but must be {declared}").into())
        };
        for (index, held) in iterating.carried.iter().enumerate() {
            check(first + index, held)?;
        }
        let slices = slices.into_iter().flat_map(|slices| slices.at(iterating.iteration));
        for (index, slice) in slices.enumerate() {
            check(first + iterating.carried.len() + index, &slice?)?;
        }
        Ok(())
    }

    /// Runs iterations in the memory of one plan.
    fn run_iterations<'o>(
        &self,
        site: Site<'_>,
        memory: &mut Memory,
        given: Around<'_, 'o>,
        iterating: &mut Iterating<'o, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let planned = site.planned;
        let Some(plan) = planned.iterations.as_deref() else {
            return Err("its iterations are not planned".to_string().into());
        };
        let bytes = planned.plan.arena_bytes.saturating_add(plan.bytes);
        self.account.charge(bytes).map_err(KernelError::from)?;
        let mut buffers = match memory.buffers.take() {
            Some(buffers) => buffers,
            None => Arena::new(plan.bytes)?,
        };
        buffers.reserve(plan.bytes)?;
        let (mut inner, held) = (memory.inner.take(), emptied(take(&mut memory.held)));
        let arena = memory.arena(planned).map_err(Failed::Inside)?;
        let (ran, held) = {
            let (_, lent) = buffers.borrow(&[], &plan.buffers)?;
            let mut iterations =
                Iterations { run: self, site, plan, held, spare: SmallVec::new(), fits: true };
            let ran = iterations.run_all(lent, (arena, &mut inner), given, iterating, watch);
            (ran, emptied(iterations.held))
        };
        memory.held = held;
        memory.inner = inner;
        memory.buffers = Some(buffers);
        self.account.credit(bytes);
        ran
    }

    /// Adds the iteration to a failure.
    #[cold]
    fn in_iteration(&self, failed: Failed, step: &Step, iteration: usize) -> Failed {
        match failed {
            Failed::Here(what) => Failed::Here(format!("in iteration {iteration}: {what}")),
            Failed::Inside(error) => Failed::Inside(error.in_iteration(
                &self.executable.resolved,
                step.origins[0],
                iteration,
            )),
        }
    }

    /// Delivers the values that are not in their final place. `sizes` are those of slices, by stacked output, if
    /// there was no iteration.
    fn end(
        &self,
        kind: &RegionKind,
        body: &Body,
        iterating: Iterating<'_, '_>,
        sizes: &[Option<(DataType, Dims)>],
    ) -> Result<(), Failed> {
        for (target, held) in iterating.finals.iter_mut().zip(iterating.carried) {
            match held {
                Held::Value(value, _) => self.deliver(target, Operand::Taken(value))?,
                Held::Input(view) => self.deliver(target, Operand::Tensor(view))?,
                Held::Borrowed(value) => self.deliver(target, Operand::Value(value))?,
                // The last iteration has delivered it.
                Held::Output(_) | Held::Nothing => {}
            }
        }
        let outputs = body.outputs.iter().skip(kind.kept_outputs() + kind.carried_count());
        for (index, (stack, slot)) in iterating.stacks.into_iter().zip(outputs).enumerate() {
            let known = sizes.get(index).and_then(Option::as_ref);
            let known = known.map(|(elem, dims)| Type::tensor(*elem, dims.iter().copied()));
            let ty = self.executable.inference.ty(body.slots[slot.index()].value);
            self.finish(stack, known.as_ref().or(ty), iterating.iteration)?;
        }
        Ok(())
    }
}

/// Arguments of a region, for all iterations.
#[derive(Clone, Copy)]
struct Around<'s, 'o> {
    operands: &'s [Operand<'o>],
    slices: Option<&'s Slices<'o>>,
}

/// Region whose iterations run, and its plan.
#[derive(Clone, Copy)]
struct Site<'s> {
    step: &'s Step,
    kind: &'s RegionKind,
    body: &'s Body,
    planned: &'s Planned,
    /// Whether values of other sizes get another plan.
    is_open: bool,
    /// Whether every iteration looks for a plan.
    is_one_iteration: bool,
}

/// Iterations in the memory of one plan.
struct Iterations<'s, 'h> {
    run: &'s Run<'s>,
    site: Site<'s>,
    plan: &'s IterationPlan,
    held: Vec<Held<'h>>,
    /// Second buffer of each carried value, until it is in use.
    spare: SmallVec<[Option<&'h mut [u8]>; 4]>,
    /// Whether the next iteration has the sizes of this plan.
    fits: bool,
}

impl<'h> Iterations<'_, 'h> {
    /// Runs iterations until the last one, or until sizes change.
    fn run_all<'o: 'h, 't: 'h>(
        &mut self,
        buffers: WriteSlices<'h>,
        (arena, inner): (&mut Arena, &mut Option<Box<Memory>>),
        given: Around<'h, 'o>,
        iterating: &mut Iterating<'o, 't>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let Site { step, body, planned, .. } = self.site;
        self.begin(&mut buffers.into_iter(), given.operands, iterating)?;
        while iterating.has_next() {
            if let Some(reason) = self.run.limits.take_iteration() {
                return Err(Failed::Inside(self.run.make_stop_error(
                    reason,
                    step,
                    Some(iterating.iteration),
                )));
            }
            let mut ran = self.lend(given.slices, iterating);
            if ran.is_ok() {
                let held = &mut self.held;
                let mut room = Room { arena: &mut *arena, inner: &mut *inner, held };
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
                Held::Output(_) | Held::Nothing => Held::Nothing,
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
            iterating.goes_on = self.truth(condition)?;
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
    fn truth(&self, condition: &Condition) -> Result<bool, Failed> {
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

    /// Moves carried values out of the memory of the plan; after the last iteration to their destination.
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
                Held::Input(_) | Held::Borrowed(_) | Held::Nothing => {}
            }
        }
        Ok(())
    }
}

/// Lists the inputs of the body in the next iteration.
fn list_inputs<'g>(
    kind: &RegionKind,
    operands: &'g [Operand<'_>],
    slices: Option<&'g Slices<'_>>,
    iterating: &'g Iterating<'_, '_>,
) -> Result<SmallVec<[Held<'g>; 8]>, KernelError> {
    let mut given = SmallVec::new();
    if let RegionKind::Loop { .. } = kind {
        given.push(Held::Value(Value::Tensor(Tensor::scalar(0i64)), 0));
        given.push(Held::Value(Value::Tensor(Tensor::scalar(Bool8::from(true))), 0));
    }
    for value in &iterating.carried {
        given.push(match value {
            Held::Value(value, _) => Held::Borrowed(value),
            Held::Borrowed(value) => Held::Borrowed(value),
            Held::Input(view) => Held::Input(view.clone()),
            Held::Output(_) | Held::Nothing => Held::Nothing,
        });
    }
    if let Some(slices) = slices {
        for slice in slices.at(iterating.iteration) {
            given.push(slice?);
        }
    }
    given.extend(operands[kind.input_count()..].iter().map(borrow));
    Ok(given)
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

/// Returns the maximum number of iterations, and whether there is a first one.
pub(super) fn limits(kind: &RegionKind, call: &Call<'_>) -> Result<(u64, bool), KernelError> {
    let RegionKind::Loop { .. } = kind else {
        return Ok((u64::MAX, true));
    };
    let most = if call.has_input(0) {
        match call.slice::<i64>(0)? {
            [most] => u64::try_from(*most).unwrap_or(0),
            _ => {
                let dims = call.tensor(0)?.dims();
                return Err(KernelError::Failed(format!(
                    "the trip count must be one int64, not {dims:?}"
                )));
            }
        }
    } else {
        u64::MAX
    };
    Ok((most, !call.has_input(1) || read_condition(call, 1)?))
}
