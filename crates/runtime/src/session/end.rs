//! Commit of a run: outputs are there, and the [commit program](crate::program::Commit) writes new
//! values of state over the old ones.

use std::fmt;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use sardonyx_kernels::{Exec, Pool, catch_panic};
use sardonyx_tensor::{
    Arena, DataType, Recycler, Tensor, TensorView, TensorViewMut, Value, emptied,
};
use smallvec::SmallVec;

use super::Session;
use crate::account::Account;
use crate::border::{admit, lies_well};
use crate::error::{InputError, RunError};
use crate::executable::{Capture, Commit, Step, Work};
use crate::kernel::{Call, CallLists, MemorySource, Operand, Target};
use crate::memory::{Held, HeldValues, Memory, Planned};
use crate::node_error::NodeError;
use crate::plan::Place;
use crate::program::Slot;
use crate::random::Draws;
use crate::run::{Progress, StepEvent, Watch};
use crate::schedule::Source;
use crate::spans;

/// A run whose outputs have been computed, and whose state has not changed yet.
/// [`commit`](Pending::commit) computes the new values of the session's
/// [state](Session::list_state). Without that call all state stays as it was.
pub struct Pending<'s> {
    session: &'s Session,
    /// Memory of the session, which is returned to it at the end.
    memory: Option<Box<Memory>>,
    planned: Arc<Planned>,
    /// Values of the run, without those that stayed with the caller.
    held: Vec<Held<'static>>,
    account: Account,
    recycler: Arc<Recycler>,
    /// Start of the run, if it is watched.
    began: Option<Instant>,
}

/// Old value of a state variable, and the destination of the new one.
#[derive(Debug)]
pub enum OldValue<'m> {
    /// The new value is written over the old one.
    Over(TensorViewMut<'m>),
    /// The new value gets memory of its own.
    Beside(TensorView<'m>),
}

/// Failure of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingError {
    /// Error itself.
    pub error: RunError,
    /// Whether some old values may have been overwritten. This is so only after a panic; other
    /// errors are found before.
    pub is_partial: bool,
}

impl fmt::Display for PendingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PendingError {}

impl fmt::Debug for Pending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("session", self.session).finish_non_exhaustive()
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(mut memory) = self.memory.take() {
            memory.held = emptied(take(&mut self.held));
            self.session.give_back(memory);
        }
    }
}

/// Values of a run after its outputs were returned.
pub(crate) struct Remains<'v> {
    pub(crate) memory: Box<Memory>,
    pub(crate) planned: Arc<Planned>,
    pub(crate) held: Vec<Held<'v>>,
    pub(crate) account: Account,
    pub(crate) recycler: Arc<Recycler>,
    /// Start of the run, if it is watched.
    pub(crate) began: Option<Instant>,
}

impl<'s> Pending<'s> {
    /// Makes a pending commit from the values of a run. Copies values that the caller lent and the
    /// commit program reads, except old values of state.
    pub(crate) fn new(session: &'s Session, remains: Remains<'_>) -> Result<Pending<'s>, RunError> {
        let Remains { memory, planned, mut held, account, recycler, began } = remains;
        let body = &session.executable.body;
        let captures = body.commit.iter().flat_map(|commit| &commit.captures);
        for capture in captures.filter(|capture| capture.output >= body.graph_outputs()) {
            let Source::Held { place, .. } = planned.schedule.outputs[capture.output] else {
                continue;
            };
            let lent = match &held[place as usize] {
                Held::Input(view) => view.clone(),
                Held::Borrowed(Value::Tensor(tensor)) => tensor.view(),
                _ => continue,
            };
            let memory = MemorySource { recycler: Some(&recycler), account: &account };
            let copied = memory.tensor(lent.data_type(), lent.dims()).and_then(|mut copy| {
                lent.copy_to(copy.bytes_mut()?)?;
                Ok(copy)
            });
            let copy = copied.map_err(|error| RunError::Resources(error.to_string()))?;
            held[place as usize] = Held::Value(Value::Tensor(copy), 0);
        }
        // Collecting in place keeps the allocation.
        let own = held.into_iter().map(|held| match held {
            Held::Value(value, bytes) => Held::Value(value, bytes),
            _ => Held::Nothing,
        });
        let held = own.collect();
        let memory = Some(memory);
        Ok(Pending { session, memory, planned, held, account, recycler, began })
    }

    /// Computes the new values of state. `state` yields the old value of each pair of
    /// [`Session::list_state`] by the number of its output. Returns the new values that have memory
    /// of their own, with the numbers of their outputs. After the first runs with inputs of some
    /// sizes the others are written without an allocation. `watch` is called after the last step,
    /// with the events of all.
    ///
    /// # Errors
    ///
    /// An old value that is missing, not dense, or of another type than the state; a lack of
    /// memory; a panic. Only a panic can leave some values old and others new.
    pub fn commit<'m>(
        mut self,
        state: impl Iterator<Item = (usize, OldValue<'m>)>,
        watch: Option<&dyn Fn(StepEvent)>,
    ) -> Result<Vec<(usize, Value)>, PendingError> {
        let session = self.session;
        let progress = Progress::default();
        // Memory of a commit that panics is dropped by unwinding.
        let memory = self.memory.take();
        let held: Vec<Held<'m>> = take(&mut self.held);
        let mut tell = watch.map(|watch| move |event: StepEvent| watch(event));
        let tell = tell.as_mut().zip(self.began);
        let watch = tell.map(|(tell, began)| Watch::from_start(began, tell));
        let done = catch_panic(|| {
            Pool::run_to_end(
                || Ok(self.commit_with_progress(memory, held, watch, state, &progress)),
            )
        });
        let done = done.unwrap_or_else(|panic| Err(session.make_panic_error(panic, &progress)));
        done.map_err(|error| PendingError { error, is_partial: progress.has_written.get() })
    }

    /// Runs [`Pending::commit`] and records its progress.
    fn commit_with_progress<'m>(
        &self,
        memory: Option<Box<Memory>>,
        mut held: Vec<Held<'m>>,
        mut watch: Option<Watch<'_>>,
        state: impl Iterator<Item = (usize, OldValue<'m>)>,
        progress: &Progress,
    ) -> Result<Vec<(usize, Value)>, RunError> {
        let mut memory = memory.unwrap_or_default();
        let mut lent: HeldValues<'m> = emptied(take(&mut memory.lent));
        let session = self.session;
        let place = self.place_state(state, &mut held, &mut lent);
        let done = place.and_then(|()| {
            let ending = Ending {
                session,
                account: &self.account,
                recycler: &self.recycler,
                planned: &self.planned,
                held: &held,
                progress,
            };
            ending.run(&mut memory, &mut lent, &mut watch)
        });
        (memory.held, memory.lent) = (emptied(held), emptied(lent));
        session.give_back(memory);
        done
    }

    /// Places old values for the commit program: in `lent` if they are overwritten.
    fn place_state<'m>(
        &self,
        state: impl Iterator<Item = (usize, OldValue<'m>)>,
        held: &mut [Held<'m>],
        lent: &mut HeldValues<'m>,
    ) -> Result<(), RunError> {
        let body = &self.session.executable.body;
        let committed = body.committed_outputs();
        lent.resize_with(committed.len(), Held::default);
        for (output, value) in state {
            let port = self.session.outputs()[output].name();
            let found = committed.iter().position(|committed| *committed == output);
            let (Some(number), Some(commit)) = (found, &body.commit) else {
                let what = format!("the output '{port}' is not state that a run commits");
                return Err(InputError::new(what).into());
            };
            let Capture { elem, dims, .. } = &commit.captures[number];
            let fits = match &value {
                OldValue::Over(memory) => memory.data_type() == *elem && memory.dims() == &dims[..],
                OldValue::Beside(view) => view.data_type() == *elem && view.dims() == &dims[..],
            };
            let lies_well = match &value {
                OldValue::Over(memory) => lies_well(&memory.as_view()),
                // An unaligned value is copied.
                OldValue::Beside(_) => true,
            };
            if !fits || !lies_well {
                let what = format!(
                    "the old value of '{port}' is not a dense {}{:?}",
                    elem.name(),
                    &dims[..]
                );
                return Err(InputError::new(what).into());
            }
            match (value, self.planned.schedule.outputs[output]) {
                (OldValue::Over(memory), _) => lent[number] = Held::Output(memory.into_bytes()),
                (OldValue::Beside(view), Source::Held { place, .. }) => {
                    let mut old = Held::Input(view);
                    admit(&mut old, None, &self.account).map_err(|error| {
                        RunError::Resources(format!("a copy of the old value of '{port}': {error}"))
                    })?;
                    held[place as usize] = old;
                }
                (OldValue::Beside(_), _) => {}
            }
        }
        Ok(())
    }
}

/// Values and memory of a commit program.
pub(crate) struct Ending<'e, 'h> {
    pub(crate) session: &'e Session,
    pub(crate) account: &'e Account,
    pub(crate) recycler: &'e Arc<Recycler>,
    pub(crate) planned: &'e Planned,
    /// Captures, and old values that are not overwritten.
    pub(crate) held: &'e [Held<'h>],
    pub(crate) progress: &'e Progress,
}

/// Memory that a step of a commit program runs in.
struct StepRoom<'m> {
    arena: &'m mut Arena,
    lists: &'m mut CallLists,
}

impl Ending<'_, '_> {
    /// Runs the commit program. `lent` holds, by new value, the memory of old values that are
    /// overwritten. Returns the other new values, with the numbers of their outputs.
    ///
    /// Cannot be cancelled: all operands exist, all memory is allocated before the first step, and
    /// an observer is called after the last one.
    pub(crate) fn run(
        &self,
        memory: &mut Memory,
        lent: &mut [Held<'_>],
        watch: &mut Option<Watch<'_>>,
    ) -> Result<Vec<(usize, Value)>, RunError> {
        let executable = &self.session.executable;
        let Some(commit) = &executable.body.commit else { return Ok(Vec::new()) };
        let mut made = self.allocate(commit, lent)?;
        let mut free = made.iter_mut().map(|(_, tensor)| tensor);
        let mut lists = take(&mut memory.lists);
        let arena = memory.arena(self.planned)?;
        self.progress.has_written.set(lent.iter().any(is_lent));
        let mut events = Vec::new();
        let mut note = |event| events.push(event);
        let mut noting = watch.as_ref().map(|watch| Watch::from_start(watch.began(), &mut note));
        for step in &commit.body.steps {
            let _span = spans::enter_step(executable, step);
            self.progress.node.set(Some(step.origins[0]));
            let ran = Watch::step(&mut noting, step.number, |_| {
                let room = StepRoom { arena: &mut *arena, lists: &mut lists };
                self.step(commit, step, room, lent, &mut free)
            });
            ran.map_err(|what| {
                let (resolved, inputs) = (&executable.resolved, Vec::new());
                let error = NodeError::new(resolved, &step.origins, inputs, what);
                RunError::Node(Box::new(error))
            })?;
        }
        memory.lists = lists;
        if let Some(watch) = watch {
            events.into_iter().for_each(|event| watch.report(event));
        }
        let made = made.into_iter();
        Ok(made.map(|(output, tensor)| (output, Value::Tensor(tensor))).collect())
    }

    /// Allocates the new values that do not overwrite old ones, by the numbers of their outputs,
    /// and checks that all captures exist.
    fn allocate(
        &self,
        commit: &Commit,
        lent: &[Held<'_>],
    ) -> Result<Vec<(usize, Tensor)>, RunError> {
        let mut made = Vec::new();
        for (input, capture) in commit.captures.iter().enumerate() {
            if lent.get(input).is_some_and(is_lent) {
                continue;
            }
            if let Some(output) = commit.outputs.get(input) {
                let memory = MemorySource { recycler: Some(self.recycler), account: self.account };
                let tensor = memory.tensor(capture.elem, &capture.dims);
                let tensor = tensor.map_err(|error| RunError::Resources(error.to_string()))?;
                made.push((*output, tensor));
            }
            let source = self.planned.schedule.outputs[capture.output];
            let found = self.type_of(source);
            if found != Some((capture.elem, &capture.dims[..])) {
                let what = format!(
                    "a value that is needed for new values of state is {found:?}, not {}{:?}",
                    capture.elem.name(),
                    &capture.dims[..]
                );
                return Err(InputError::new(what).into());
            }
        }
        Ok(made)
    }

    /// Returns the type of a captured value; `None` if it does not exist.
    fn type_of(&self, source: Source) -> Option<(DataType, &[usize])> {
        let slot = match source {
            Source::Held { place, root, slot } => match &self.held[place as usize] {
                Held::Nothing => return None,
                held if root == slot && !is_lent(held) => return held.elem_and_dims(),
                _ => slot,
            },
            Source::Arena(slot) | Source::Constant { slot, .. } => slot,
            _ => return None,
        };
        let (elem, dims) = self.planned.plan.types[slot.index()].as_ref()?;
        Some((*elem, dims))
    }

    /// Runs a step over the old values that are lent, and into `free` memory.
    fn step<'f>(
        &self,
        commit: &Commit,
        step: &Step,
        room: StepRoom<'_>,
        lent: &mut [Held<'_>],
        free: &mut impl Iterator<Item = &'f mut Tensor>,
    ) -> Result<(), String> {
        let executable = &self.session.executable;
        let (plan, sources) = (&self.planned.plan, &self.planned.schedule.outputs);
        let captures = commit.captures.len();
        let number = |position: usize| {
            let new = step.outputs.get(position).copied().flatten()?;
            Some(new.index() - captures)
        };
        let is_over = |position: usize| number(position).is_some_and(|new| is_lent(&lent[new]));
        let source = |slot: Slot| sources[commit.captures[slot.index()].output];
        let inputs = step.inputs.iter().copied().flatten().enumerate();
        let reads = inputs.clone().filter_map(|(position, slot)| match source(slot) {
            Source::Arena(slot) if !is_over(position) => {
                match &plan.places[plan.root(slot).index()] {
                    Place::Arena(range, _) => Some(range.clone()),
                    _ => None,
                }
            }
            _ => None,
        });
        let reads: SmallVec<[Range<usize>; 8]> = reads.collect();
        let (read, _) = room.arena.borrow(&reads, &[]).map_err(|error| error.to_string())?;
        let mut read = read.iter().copied();
        let exec = Exec::new(&self.session.pool, executable.isa);
        let (operands, targets) = room.lists.take();
        let mut call = Call {
            operands,
            targets,
            over: None,
            exec: &exec,
            random: Draws::default(),
            memory: Some(self.recycler),
            account: self.account,
        };
        for (position, slot) in inputs {
            if is_over(position) {
                call.operands.push(Operand::InPlace);
                continue;
            }
            let source = source(slot);
            let bytes = if let Source::Arena(_) = source { read.next() } else { None };
            call.operands.push(executable.body.operand(plan, self.held, source, bytes)?);
        }
        for position in 0..step.outputs.len() {
            let Some(new) = number(position) else { continue };
            let bytes = match take(&mut lent[new]) {
                Held::Output(bytes) => bytes,
                _ => match free.next() {
                    Some(tensor) => tensor.bytes_mut().map_err(|error| error.to_string())?,
                    None => return Err("a new value has no memory".to_string()),
                },
            };
            let Capture { elem, dims, .. } = &commit.captures[new];
            call.targets.push(Target::Planned { data_type: *elem, dims, bytes, laid: None });
        }
        match &step.work {
            Work::Kernel(kernel) => kernel.run(&mut call).map_err(|error| error.to_string())?,
            Work::Region(_) => return Err("a step with graphs is not committed".to_string()),
        }
        room.lists.keep(call.operands, call.targets);
        Ok(())
    }
}

/// Whether a value is lent memory of the caller.
fn is_lent(held: &Held<'_>) -> bool {
    matches!(held, Held::Output(_))
}
