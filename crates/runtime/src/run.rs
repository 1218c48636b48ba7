//! Execution of the steps of a program, in the order and with the operands of a schedule.

mod batches;
mod iteration_plans;
mod iterations;
mod regions;
mod scalar_iterations;
mod stack;

use std::cell::Cell;
use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sardonyx_kernels::{Exec, Pool};
use sardonyx_model::{NodeId, Type};
use sardonyx_tensor::{
    Arena, ArenaError, ReadSlices, Recycler, TensorError, TensorView, Value, ViewData, WriteSlices,
};
use smallvec::SmallVec;

use crate::account::Account;
use crate::error::{KernelError, RunError};
use crate::executable::{Body, Executable, Region, Step, Work};
use crate::inputs::ExcludedBranch;
use crate::kernel::{Call, CallLists, Kernel, Operand, Target};
use crate::memory::{Held, Memory, Planned};
use crate::node_error::{NodeError, NodeInput};
use crate::plan::Plan;
use crate::random::{Draws, Randomness};
use crate::schedule::{Goal, Schedule, Scheduled, Source};
use crate::spans;
use crate::stop::{Limits, StopReason, Stopped};

pub(crate) use iteration_plans::IterationPlans;

/// Index and times of a step of a run that has just ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StepEvent {
    /// Index of the step in the session's program.
    pub step: usize,
    /// Start of the step, as time since the run began.
    pub start: Duration,
    /// Duration of the step, without the steps of subgraphs, which have events of their own.
    pub took: Duration,
}

impl StepEvent {
    /// Makes an event of the step at index `step`.
    pub fn new(step: usize, start: Duration, took: Duration) -> StepEvent {
        StepEvent { step, start, took }
    }
}

/// Step that runs inner graphs in place of a kernel.
#[derive(Clone, Copy)]
struct RegionStep<'r> {
    step: &'r Step,
    region: &'r Region,
}

/// State shared by all steps of a run.
pub(crate) struct Run<'r> {
    pub(crate) executable: &'r Executable,
    pub(crate) exec: Exec<'r>,
    /// Source of random numbers.
    pub(crate) random: Randomness,
    /// Source of memory for outputs without a place in the plan.
    pub(crate) recycler: &'r Arc<Recycler>,
    /// Account that is charged before memory is allocated.
    pub(crate) account: &'r Account,
    /// Limits that may cancel the run.
    pub(crate) limits: Limits<'r>,
    /// Plans of iterations from all runs, by number of a step.
    pub(crate) iteration_plans: &'r [IterationPlans],
    /// Branches excluded by the sizes of the inputs.
    pub(crate) closed: &'r [ExcludedBranch<'r>],
    pub(crate) progress: &'r Progress,
}

/// Progress of a run, for the report of a panic.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Node of the step that started last.
    pub(crate) node: Cell<Option<NodeId>>,
    /// Whether steps have begun to overwrite old values of state.
    pub(crate) has_written: Cell<bool>,
}

/// Observer of steps that have run.
pub(crate) struct Watch<'w> {
    began: Instant,
    /// Time taken by the steps of inner graphs since the enclosing step began.
    inside: Duration,
    tell: &'w mut dyn FnMut(StepEvent),
}

impl<'w> Watch<'w> {
    /// Watches a run that begins now.
    pub(crate) fn new(tell: &'w mut dyn FnMut(StepEvent)) -> Watch<'w> {
        Watch::from_start(Instant::now(), tell)
    }

    /// Watches a run that began earlier.
    pub(crate) fn from_start(began: Instant, tell: &'w mut dyn FnMut(StepEvent)) -> Watch<'w> {
        Watch { began, inside: Duration::ZERO, tell }
    }

    /// Returns the start of the run.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Reports a step that has run.
    pub(crate) fn report(&mut self, event: StepEvent) {
        (self.tell)(event);
    }

    /// Runs a step and reports it.
    pub(crate) fn step<R>(
        watch: &mut Option<Watch<'_>>,
        step: usize,
        run: impl FnOnce(&mut Option<Watch<'_>>) -> R,
    ) -> R {
        let Some(watching) = watch else {
            return run(watch);
        };
        let start = watching.began.elapsed();
        let before = take(&mut watching.inside);
        let result = run(watch);
        if let Some(watching) = watch {
            let all = watching.began.elapsed() - start;
            let took = all.saturating_sub(watching.inside);
            watching.inside = before + all;
            (watching.tell)(StepEvent::new(step, start, took));
        }
        result
    }
}

/// Memory that a program runs in.
struct Room<'m, 'h> {
    arena: &'m mut Arena,
    /// Memory of inner graphs.
    inner: &'m mut Option<Box<Memory>>,
    lists: &'m mut CallLists,
    held: &'m mut [Held<'h>],
}

/// Failure of a step.
enum Failed {
    /// The step itself failed.
    Here(String),
    /// A step of an inner graph failed, or the run is cancelled.
    Inside(RunError),
}

impl From<KernelError> for Failed {
    fn from(error: KernelError) -> Failed {
        Failed::Here(error.to_string())
    }
}

impl From<TensorError> for Failed {
    fn from(error: TensorError) -> Failed {
        Failed::Here(error.to_string())
    }
}

impl From<ArenaError> for Failed {
    fn from(error: ArenaError) -> Failed {
        Failed::Here(error.to_string())
    }
}

impl From<String> for Failed {
    fn from(what: String) -> Failed {
        Failed::Here(what)
    }
}

impl Run<'_> {
    /// Runs a program in a memory that nothing else uses.
    pub(crate) fn program(
        &self,
        body: &Body,
        planned: &Planned,
        memory: &mut Memory,
        held: &mut [Held<'_>],
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), RunError> {
        // Steps check the limits before they start.
        if let (true, Some(reason)) = (planned.schedule.steps.is_empty(), self.limits.find_reason())
        {
            let stopped = Stopped::new(reason, &self.executable.resolved, None);
            return Err(RunError::Stopped(Box::new(stopped)));
        }
        let (mut inner, mut lists) = (memory.inner.take(), take(&mut memory.lists));
        let arena = memory.arena(planned)?;
        let mut room = Room { arena, inner: &mut inner, lists: &mut lists, held };
        let walked = self.run_steps(body, planned, &mut room, watch);
        (memory.inner, memory.lists) = (inner, lists);
        walked
    }

    /// Runs the steps of a program.
    fn run_steps(
        &self,
        body: &Body,
        planned: &Planned,
        room: &mut Room<'_, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), RunError> {
        let schedule = &planned.schedule;
        for scheduled in &schedule.steps {
            let step = &body.steps[scheduled.step];
            if let Some(reason) = self.limits.find_reason() {
                return Err(self.make_stop_error(reason, step, None));
            }
            let ran = Watch::step(watch, step.number, |watch| {
                self.run_step(body, planned, room, scheduled, watch)
            });
            ran.map_err(|failed| self.make_error(body, planned, room.held, scheduled, failed))?;
            for place in schedule.dead(scheduled) {
                let place = &mut room.held[*place as usize];
                if let Held::Value(_, bytes) = *place {
                    *place = Held::Nothing;
                    self.account.credit(bytes);
                }
            }
        }
        Ok(())
    }

    /// Whether the limits allow a run to continue after its last step.
    pub(crate) fn check_limits(&self, body: &Body, schedule: &Schedule) -> Result<(), RunError> {
        match (self.limits.find_reason(), schedule.steps.last()) {
            (Some(reason), Some(last)) => {
                Err(self.make_stop_error(reason, &body.steps[last.step], None))
            }
            _ => Ok(()),
        }
    }

    /// Makes the error of a run that is cancelled before or within a step, or before one of its
    /// iterations.
    #[cold]
    fn make_stop_error(
        &self,
        reason: StopReason,
        step: &Step,
        next_iteration: Option<usize>,
    ) -> RunError {
        let mut stopped = Stopped::new(reason, &self.executable.resolved, Some(step.origins[0]));
        stopped.next_iteration = next_iteration;
        RunError::Stopped(Box::new(stopped))
    }

    /// Makes the error of a run that a step ends.
    #[cold]
    fn make_error(
        &self,
        body: &Body,
        planned: &Planned,
        held: &[Held<'_>],
        scheduled: &Scheduled,
        failed: Failed,
    ) -> RunError {
        let what = match failed {
            Failed::Here(what) => what,
            Failed::Inside(error) => return error,
        };
        let (plan, sources) = (&planned.plan, planned.schedule.sources(scheduled));
        let held = |position: usize| match sources.get(position)? {
            Source::Held { place, .. } | Source::Taken { place, .. } => held[*place as usize].ty(),
            _ => None,
        };
        self.executable.failure(body, &body.steps[scheduled.step], plan, held, what)
    }

    fn run_step<'a>(
        &self,
        body: &Body,
        planned: &Planned,
        room: &mut Room<'_, 'a>,
        scheduled: &Scheduled,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let _span = spans::enter_step(self.executable, &body.steps[scheduled.step]);
        let Room { arena, inner, lists, held } = room;
        let account = self.account;
        let step = &body.steps[scheduled.step];
        let origin = step.origins.as_slice()[0];
        self.progress.node.set(Some(origin));
        // Most steps take no inputs, and an absent list need not be moved.
        let mut given = scheduled.takes.then(|| {
            let mut given: SmallVec<[Value; 1]> = SmallVec::new();
            self.take_sources(planned.schedule.sources(scheduled), held, &mut given);
            given.into_iter()
        });
        let taken = account.charged_bytes();
        let (plan, schedule) = (&planned.plan, &planned.schedule);
        let goals = schedule.goals(scheduled);
        let (mut read, mut written) = (ReadSlices::new(), WriteSlices::new());
        let (reads, writes) = (schedule.reads(scheduled), schedule.writes(scheduled));
        arena.borrow_into(reads, writes, &mut read, &mut written)?;
        let makes_values = goals.iter().any(|goal| matches!(goal, Goal::Held(..)));
        let mut lent: Lent<'a> = SmallVec::new();
        if makes_values {
            lend(goals, held, &mut lent);
        }
        // The value comes first: it is copied in pieces at the same offsets as it was written.
        let mut made: SmallVec<[(Option<Value>, u32); 2]> = SmallVec::new();
        {
            let (operands, targets) = lists.take();
            let mut call = Call {
                operands,
                targets,
                over: scheduled.over,
                exec: &self.exec,
                random: Draws::new(&self.random, &self.executable.resolved, origin),
                memory: Some(self.recycler),
                account,
            };
            let mut read = read.iter().copied();
            for source in schedule.sources(scheduled) {
                let bytes = match source {
                    Source::Arena(_) => read.next(),
                    Source::Taken { place, .. }
                        if matches!(held[*place as usize], Held::Nothing)
                            && let Some(value) = given.as_mut().and_then(Iterator::next) =>
                    {
                        call.operands.push(Operand::Taken(value));
                        continue;
                    }
                    _ => None,
                };
                call.operands.push(body.operand(plan, held, *source, bytes)?);
            }
            let mut written = written.iter_mut().map(|bytes| &mut **bytes);
            let mut memories = lent.iter_mut().peekable();
            for goal in goals {
                let (slot, bytes) = match goal {
                    Goal::Absent => {
                        call.targets.push(Target::Absent);
                        continue;
                    }
                    Goal::Arena(slot) => (slot, written.next()),
                    Goal::Held(place, slot) => {
                        let memory = memories.next_if(|(of, _)| of == place);
                        (slot, memory.map(|(_, bytes)| &mut **bytes))
                    }
                };
                call.targets.push(match (&plan.types[slot.index()], bytes) {
                    (Some((data_type, dims)), Some(bytes)) => {
                        let laid = plan.output_layout(*slot);
                        Target::Planned { data_type: *data_type, dims, bytes, laid }
                    }
                    _ => Target::Owned(None),
                });
            }
            match &step.work {
                Work::Kernel(kernel) => self.kernel(step, &**kernel, &mut call)?,
                Work::Region(region) => {
                    let planned = planned.inner(scheduled.step);
                    let at = RegionStep { step, region };
                    self.run_region(at, planned, inner, &mut call, watch)?;
                }
            }
            let Call { operands, mut targets, .. } = call;
            if makes_values {
                for (position, goal) in goals.iter().enumerate() {
                    if let (Goal::Held(place, _), Target::Owned(value)) =
                        (goal, &mut targets[position])
                        && value.is_some()
                    {
                        made.push((value.take(), *place));
                    }
                }
            }
            lists.keep(operands, targets);
        }
        account.settle(taken.saturating_add(hold_made(held, &mut made)));
        while let Some((place, bytes)) = lent.pop() {
            held[place as usize] = Held::Output(bytes);
        }
        Ok(())
    }

    /// Runs the kernel of a step, during which the run may be cancelled.
    #[inline]
    fn kernel(&self, step: &Step, kernel: &dyn Kernel, call: &mut Call<'_>) -> Result<(), Failed> {
        // Without limits, parallel regions are not cancelled.
        if !self.limits.may_end() {
            return Ok(kernel.run(call)?);
        }
        let reached = Cell::new(None);
        let ends = || {
            reached.set(self.limits.find_reason());
            reached.get().is_some()
        };
        match Pool::run_until(&ends, || kernel.run(call)) {
            Ok(()) => Ok(()),
            Err(KernelError::Failed(what)) => Err(Failed::Here(what)),
            Err(KernelError::Ended(_)) => {
                let reason = reached.get().unwrap_or(StopReason::Flag);
                Err(Failed::Inside(self.make_stop_error(reason, step, None)))
            }
        }
    }

    /// Moves owned inputs that a step takes over out of the held values, in order. Other values
    /// stay.
    fn take_sources(
        &self,
        sources: &[Source],
        held: &mut [Held<'_>],
        given: &mut SmallVec<[Value; 1]>,
    ) {
        for source in sources {
            if let Source::Taken { place, .. } = source
                && let place = &mut held[*place as usize]
                && matches!(place, Held::Value(..))
                && let Held::Value(value, bytes) = take(place)
            {
                self.account.credit(bytes);
                given.push(value);
            }
        }
    }
}

/// Puts new values among the held ones, and returns their bytes.
#[inline]
fn hold_made(held: &mut [Held<'_>], made: &mut [(Option<Value>, u32)]) -> usize {
    let mut all = 0usize;
    for (value, place) in made {
        let bytes = value.as_ref().map_or(0, Value::bytes);
        all = all.saturating_add(bytes);
        if let Some(value) = value.take() {
            held[*place as usize] = Held::Value(value, bytes);
        }
    }
    all
}

/// Memory of the caller, removed from the held values while a step writes it.
type Lent<'a> = SmallVec<[(u32, &'a mut [u8]); 4]>;

/// Removes the memory of the caller that a step writes from the held values.
fn lend<'a>(goals: &[Goal], held: &mut [Held<'a>], lent: &mut Lent<'a>) {
    for goal in goals {
        if let Goal::Held(place, _) = goal
            && let place_of = &mut held[*place as usize]
            && matches!(place_of, Held::Output(_))
            && let Held::Output(bytes) = take(place_of)
        {
            lent.push((*place, bytes));
        }
    }
}

impl Executable {
    /// Makes the error of a failed step. `held` returns the type of an input that the plan does not
    /// know.
    pub(crate) fn failure(
        &self,
        body: &Body,
        step: &Step,
        plan: &Plan,
        held: impl Fn(usize) -> Option<Type>,
        what: String,
    ) -> RunError {
        let packed = |position| step.packed.iter().find(|(at, _)| *at == position);
        let inputs = step.inputs.iter().enumerate().map(|(position, slot)| {
            let slot = slot.or_else(|| packed(position).map(|(_, slot)| *slot))?;
            let info = &body.slots[slot.index()];
            let known = info.constant_type().or_else(|| plan.types[slot.index()].clone());
            let known = known.map(|(elem, dims)| Type::tensor(elem, dims));
            // An input that the step took over is not held any more.
            let inferred = || self.inference.ty(info.value).cloned();
            let ty = known.or_else(|| held(position)).or_else(inferred);
            Some(NodeInput { name: self.resolved.name_of(info.value), ty })
        });
        let inputs = inputs.collect();
        let error = NodeError::new(&self.resolved, &step.origins, inputs, what);
        RunError::Node(Box::new(error))
    }
}

impl Body {
    /// Returns an operand of a step: bytes of the arena, a constant, or a held value, with the
    /// dimensions of its slot.
    #[inline]
    pub(crate) fn operand<'c>(
        &'c self,
        plan: &'c Plan,
        held: &'c [Held<'_>],
        source: Source,
        bytes: Option<&'c [u8]>,
    ) -> Result<Operand<'c>, String> {
        let absent = || "an input has not been computed".to_string();
        let (slot, bytes) = match source {
            Source::Absent => return Ok(Operand::Absent),
            Source::InPlace => return Ok(Operand::InPlace),
            Source::There(slot) => {
                let ty = plan.types[slot.index()].as_ref().ok_or_else(absent)?;
                return Ok(Operand::There(&ty.1));
            }
            Source::Arena(slot) => (slot, bytes.ok_or_else(absent)?),
            Source::Constant { root, slot } => {
                let constant = self.slots[root.index()].constant.as_ref();
                let constant = constant.ok_or_else(absent)?;
                if root == slot {
                    return Ok(Operand::Tensor(constant.view()));
                }
                (slot, constant.bytes())
            }
            Source::Taken { place, slot } => {
                let source = Source::Held { place, root: slot, slot };
                return self.operand(plan, held, source, bytes);
            }
            Source::Held { place, root, slot } => match &held[place as usize] {
                Held::Nothing | Held::Kept(_) => return Err(absent()),
                Held::Output(bytes) => (slot, &**bytes),
                Held::Value(Value::Tensor(tensor), _) | Held::Borrowed(Value::Tensor(tensor))
                    if root == slot =>
                {
                    return Ok(Operand::Tensor(tensor.view()));
                }
                Held::Input(view) if root == slot => return Ok(Operand::Tensor(view.reborrow())),
                Held::Value(Value::Tensor(tensor), _) | Held::Borrowed(Value::Tensor(tensor)) => {
                    (slot, tensor.bytes())
                }
                Held::Input(view) => (slot, view.contiguous_bytes().ok_or_else(absent)?),
                Held::Value(value, _) => return Ok(Operand::Value(value)),
                Held::Borrowed(value) => return Ok(Operand::Value(value)),
            },
        };
        let (data_type, dims) = plan.types[slot.index()]
            .as_ref()
            .ok_or_else(|| "a planned value has no shape".to_string())?;
        let view = match plan.layout(slot) {
            None => TensorView::over(*data_type, dims, bytes),
            Some(layout) => TensorView::over_strides(
                *data_type,
                dims,
                &layout.strides,
                layout.offset,
                ViewData::Bytes(bytes),
            ),
        };
        Ok(Operand::Tensor(view.map_err(|error| error.to_string())?))
    }
}
