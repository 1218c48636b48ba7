//! Iterations of `Loop` and `Scan`: one graph runs repeatedly, on its outputs of the previous
//! iteration.
//!
//! A carried value of constant size has two buffers, which the graph reads and writes alternately;
//! any other is passed on as a value. A stacked value is written in its place if its size is known
//! before, else appended to memory that grows by doubling.

mod in_plan;

use std::mem::{replace, take};

use sardonyx_model::{Dim, Type};
use sardonyx_tensor::{Arena, Bool8, DataType, Dims, Tensor, Value, emptied};
use smallvec::SmallVec;

use super::iteration_plans::{Choice, types_of};
use super::regions::{borrow, read_condition};
use super::stack::{Slices, Stack, format_type};
use super::{Failed, RegionStep, Run, Watch};
use crate::error::KernelError;
use crate::executable::{Body, Executable, Step};
use crate::kernel::{Call, Operand, Target};
use crate::memory::{Held, Memory, Planned};
use crate::program::{Along, RegionKind};

use in_plan::Iterations;

/// Iterations of one run of a region.
struct Iterating<'o, 't> {
    /// Carried values of the next iteration that no plan holds.
    carried: SmallVec<[Held<'o>; 4]>,
    /// Number of iterations so far.
    iteration: usize,
    limits: LoopLimits,
    /// Destinations of the carried values after the last iteration.
    finals: &'t mut [Target<'o>],
    stacks: SmallVec<[Stack<'t, 'o>; 2]>,
}

impl Iterating<'_, '_> {
    fn has_next(&self) -> bool {
        self.limits.goes_on && (self.iteration as u64) < self.limits.most
    }
}

impl Run<'_> {
    /// Runs the body of a region iteration by iteration. The operands of the call are those of the
    /// kind, then the captures of the body.
    pub(super) fn run_iterations<'o>(
        &self,
        RegionStep { step, region }: RegionStep<'_>,
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
        let mut limits = LoopLimits::read(kind, call)?;
        if let Some(slices) = &slices {
            limits.most = slices.len() as u64;
        }
        let Call { operands, targets, .. } = call;
        let (first, count) = (kind.first_carried(), kind.carried_count());
        let carried = operands[first..first + count].iter_mut().map(take_carried).collect();
        let Some((finals, stacked)) = targets.split_at_mut_checked(count) else {
            return Err("there are more loop-carried inputs than outputs".to_string().into());
        };
        let stacks = stacked.iter_mut().enumerate().map(|(index, target)| {
            let along = match kind {
                RegionKind::Scan { stacked, .. } => stacked[index],
                RegionKind::If { .. } | RegionKind::Loop { .. } => Along::FIRST,
            };
            Stack::new(target, along)
        });
        let stacks = stacks.collect();
        let mut iterating = Iterating { carried, iteration: 0, limits, finals, stacks };
        let memory = inner.get_or_insert_with(Box::default);
        let is_open = planned.iterations.as_deref().is_some_and(|plan| plan.is_open);
        let around = Around { operands, slices: slices.as_ref() };
        let site = Site { step, kind, body, planned, is_open, is_one_iteration: false };
        let mut choice = Choice::default();
        while iterating.has_next() {
            self.check_declared(site, around.slices, &iterating)?;
            let chosen = if is_open {
                let inputs = list_inputs(kind, around, &iterating)?;
                let plans = &self.iteration_plans[step.number];
                plans.choose(self.executable, kind, body, &inputs, &mut choice)
            } else {
                None
            };
            let is_one_iteration = is_open && chosen.is_none();
            let planned = chosen.as_deref().unwrap_or(planned);
            let site = Site { planned, is_one_iteration, ..site };
            self.run_in_plan(site, memory, around, &mut iterating, watch)?;
        }
        let sizes = match iterating.iteration {
            0 => self.find_slice_sizes(site, around, &iterating)?,
            _ => Vec::new(),
        };
        self.end(kind, body, iterating, &sizes)
    }

    /// Returns the element type and sizes that a slice of each stacked output would have in an
    /// iteration, which decide the shape of an output without slices.
    fn find_slice_sizes(
        &self,
        site: Site<'_>,
        around: Around<'_, '_>,
        iterating: &Iterating<'_, '_>,
    ) -> Result<Vec<Option<(DataType, Dims)>>, Failed> {
        let Site { step, kind, body, planned, is_open, .. } = site;
        let mut actual = None;
        if is_open && iterating.stacks.iter().any(|stack| matches!(stack, Stack::Grown { .. })) {
            let unsliced = Around { slices: None, ..around };
            let mut types = types_of(&list_inputs(kind, unsliced, iterating)?);
            if let Some(slices) = around.slices {
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

    /// Refuses values of the next iteration whose sizes differ from the declared ones. Steps rely
    /// on these to different degrees, so not all of them would notice.
    fn check_declared(
        &self,
        Site { kind, body, .. }: Site<'_>,
        slices: Option<&Slices<'_>>,
        iterating: &Iterating<'_, '_>,
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
    fn run_in_plan<'o>(
        &self,
        site: Site<'_>,
        memory: &mut Memory,
        around: Around<'_, 'o>,
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
        let lists = take(&mut memory.lists);
        let arena = memory.arena(planned).map_err(Failed::Inside)?;
        let (ran, held, lists) = {
            let (_, lent) = buffers.borrow(&[], &plan.buffers)?;
            let spare = SmallVec::new();
            let mut iterations =
                Iterations { run: self, site, plan, held, lists, spare, fits: true };
            let ran = iterations.run_all(lent, arena, &mut inner, around, iterating, watch);
            (ran, emptied(iterations.held), iterations.lists)
        };
        (memory.held, memory.lists) = (held, lists);
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

    /// Delivers the values that are not in their final place. `sizes` are those of slices, by
    /// stacked output, if there was no iteration.
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
                Held::Output(_) | Held::Kept(_) | Held::Nothing => {}
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

/// Lists the inputs of the body in the next iteration.
fn list_inputs<'g>(
    kind: &RegionKind,
    around: Around<'g, '_>,
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
            Held::Output(_) | Held::Kept(_) | Held::Nothing => Held::Nothing,
        });
    }
    if let Some(slices) = around.slices {
        for slice in slices.at(iterating.iteration) {
            given.push(slice?);
        }
    }
    given.extend(around.operands[kind.input_count()..].iter().map(borrow));
    Ok(given)
}

/// Takes a carried operand over, or borrows it.
fn take_carried<'o>(operand: &mut Operand<'o>) -> Held<'o> {
    if let Operand::Taken(_) = operand
        && let Operand::Taken(value) = replace(operand, Operand::Absent)
    {
        let bytes = value.bytes();
        return Held::Value(value, bytes);
    }
    borrow(operand)
}

/// Limits of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoopLimits {
    /// Maximum number of iterations.
    pub(super) most: u64,
    /// Whether the condition allows another iteration.
    pub(super) goes_on: bool,
}

impl LoopLimits {
    /// Reads the limits before the first iteration.
    pub(super) fn read(kind: &RegionKind, call: &Call<'_>) -> Result<LoopLimits, KernelError> {
        let RegionKind::Loop { .. } = kind else {
            return Ok(LoopLimits { most: u64::MAX, goes_on: true });
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
        let goes_on = !call.has_input(1) || read_condition(call, 1)?;
        Ok(LoopLimits { most, goes_on })
    }
}
