//! Running a session: values that are given, the walk over the steps, values that are returned.
//!
//! After the first runs with inputs of some sizes, [`Session::run_into`] itself neither allocates
//! nor waits for another run: it takes a [`Memory`] that nobody else uses, with the plans that were
//! made in it, and leaves it behind for the next.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sardonyx_kernels::Exec;
use sardonyx_model::Type;
use sardonyx_tensor::{Arena, DataType, Dims, Tensor, TensorView, TensorViewMut, Value, ViewData};
use smallvec::SmallVec;

use crate::account::Account;
use crate::error::{InputError, RunError};
use crate::inputs::{Port, find};
use crate::kernel::{Call, KernelError, Operand, Target};
use crate::plan::{Place, Plan, plan};
use crate::schedule::{Goal, Schedule, Scheduled, Source};
use crate::session::{Session, StepEvent};

/// What a run keeps for the next one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    arena: Option<Arena>,
    /// The latest used of the plans, by the inputs that they are for.
    plans: Vec<(Key, Arc<Planned>)>,
    /// Empty between runs.
    held: Vec<Held<'static>>,
}

/// Memories that no run uses at the moment. Nobody waits here: a place that somebody else looks at
/// is passed by.
#[derive(Debug)]
pub(crate) struct Memories([Mutex<Option<Box<Memory>>>; 32]);

/// A plan and what follows from it for a run.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    schedule: Schedule,
}

/// Element types and sizes of the inputs; `None` for what is no tensor, or not given.
pub(crate) type Key = Vec<Option<(i32, Dims)>>;

/// More sets of input sizes than this are not remembered.
const MAX_PLANS: usize = 32;

/// A value outside of the arena and the constants.
#[derive(Debug, Default)]
pub(crate) enum Held<'a> {
    /// Not there yet, or no longer.
    #[default]
    Nothing,
    /// With the bytes that the run has taken for it.
    Value(Value, usize),
    /// Given by the caller, with elements at addresses of their type.
    Input(TensorView<'a>),
    /// Memory of the caller, for an output. It has been written when a step reads it.
    Output(&'a mut [u8]),
}

impl Held<'_> {
    fn as_view(&self) -> Option<TensorView<'_>> {
        match self {
            Held::Value(Value::Tensor(tensor), _) => Some(tensor.view()),
            Held::Input(view) => Some(view.clone()),
            Held::Value(..) | Held::Output(_) | Held::Nothing => None,
        }
    }
}

impl Default for Memories {
    fn default() -> Self {
        Memories(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Memory {
    /// An arena that is large enough.
    fn arena(&mut self, planned: &Planned) -> Result<&mut Arena, RunError> {
        let refused = |error: sardonyx_tensor::TensorError| RunError::Resources(error.to_string());
        let bytes = planned.plan.arena_bytes;
        match &mut self.arena {
            Some(arena) => {
                arena.reserve(bytes).map_err(refused)?;
                Ok(arena)
            }
            none => Ok(none.insert(Arena::new(bytes).map_err(refused)?)),
        }
    }
}

impl Memories {
    fn take(&self) -> Box<Memory> {
        let mut free = self.0.iter().filter_map(|place| place.try_lock().ok());
        free.find_map(|mut place| place.take()).unwrap_or_default()
    }

    /// If there is no room, the memory goes back to the system.
    fn give_back(&self, memory: Box<Memory>) {
        let mut free = self.0.iter().filter_map(|place| place.try_lock().ok());
        if let Some(mut place) = free.find(|place| place.is_none()) {
            *place = Some(memory);
        }
    }
}

/// The values of a run, by input of the model.
pub(crate) type Given<'a> = SmallVec<[Held<'a>; 8]>;

impl Session {
    /// Runs the model.
    ///
    /// # Errors
    ///
    /// Inputs that are missing, unknown or of another type than declared; a node that cannot
    /// compute its outputs.
    pub fn run(&self, inputs: Vec<(String, Value)>) -> Result<Vec<(String, Value)>, RunError> {
        self.run_watched(inputs, None)
    }

    /// As [`Session::run`]; `watch` is told of every step that has run.
    ///
    /// # Errors
    ///
    /// As [`Session::run`].
    pub fn run_watched(
        &self,
        inputs: Vec<(String, Value)>,
        watch: Option<&mut dyn FnMut(StepEvent)>,
    ) -> Result<Vec<(String, Value)>, RunError> {
        let inputs = inputs.into_iter();
        let inputs = inputs.map(|(name, value)| (name, Held::Value(value, 0)));
        let account = Account::new(self.memory_limit, self.report.made_bytes);
        let given = self.sort_inputs(inputs, &account)?;
        self.with_memory(|memory| {
            let planned = self.planned_for(memory, &given, &account)?;
            let mut held = self.hold(memory, &planned, given)?;
            self.walk(&planned, memory.arena(&planned)?, &mut held, &account, watch)?;
            let outputs = self.returned(&planned.schedule, &mut held);
            memory.held = emptied(held);
            outputs
        })
    }

    /// Runs the model on inputs that stay with the caller, and writes outputs into memory of the
    /// caller. Outputs that are not named are not returned. Inputs whose elements do not lie
    /// densely, at addresses of their type, are copied first.
    ///
    /// # Errors
    ///
    /// As [`Session::run`]; an output that is named twice, is unknown or no tensor, or has another
    /// type or other dimensions than its memory. What has been written when an error is found stays
    /// written.
    pub fn run_into<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &'v mut [(&str, TensorViewMut<'_>)],
    ) -> Result<(), RunError> {
        let inputs = inputs.iter();
        let given = inputs.map(|(name, view)| (*name, Held::<'v>::Input(view.clone())));
        let account = Account::new(self.memory_limit, self.report.made_bytes);
        let given: Given<'v> = self.sort_inputs(given, &account)?;
        let mut wanted = self.sort_outputs(outputs)?;
        self.with_memory(|memory| {
            let planned = self.planned_for(memory, &given, &account)?;
            let mut held = self.hold(memory, &planned, given)?;
            self.lend(&planned, &mut held, &mut wanted)?;
            self.walk(&planned, memory.arena(&planned)?, &mut held, &account, None)?;
            for (source, wanted) in planned.schedule.outputs.iter().zip(&mut wanted) {
                if let Some((name, memory)) = wanted {
                    let copied = self.operand(&planned.plan, &held, *source, None);
                    let copied = copied.and_then(|operand| match operand {
                        Operand::Tensor(view) => memory.copy_from(&view).map_err(|e| e.to_string()),
                        _ => Err("it is no tensor, so it has no memory to be written into".into()),
                    });
                    copied.map_err(|what| RunError::Node {
                        place: format!("output '{name}'"),
                        what,
                    })?;
                }
            }
            memory.held = emptied(held);
            Ok(())
        })
    }

    fn with_memory<R>(
        &self,
        body: impl FnOnce(&mut Memory) -> Result<R, RunError>,
    ) -> Result<R, RunError> {
        let mut memory = self.memories.take();
        let result = body(&mut memory);
        self.memories.give_back(memory);
        result
    }

    /// The inputs in the order of the model, checked against what it declares and placed where
    /// kernels can read them.
    fn sort_inputs<'a, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Held<'a>)>,
        account: &Account,
    ) -> Result<Given<'a>, RunError> {
        let mut given = self.door().sort(inputs)?;
        for (port, value) in self.inputs().iter().zip(&mut given) {
            place_well(value, account).map_err(|error| {
                RunError::Resources(format!("a copy of input '{}': {error}", port.name()))
            })?;
        }
        Ok(given)
    }

    /// The memory for outputs in the order of the model.
    fn sort_outputs<'a>(
        &self,
        outputs: &'a mut [(&str, TensorViewMut<'_>)],
    ) -> Result<Wanted<'a>, RunError> {
        let mut wanted: Wanted<'a> = self.outputs().iter().map(|_| None).collect();
        for (turn, (name, memory)) in outputs.iter_mut().enumerate() {
            let Some(index) = find(self.outputs(), turn, name) else {
                let names: Vec<&str> = self.outputs().iter().map(Port::name).collect();
                let what = format!("the model has no output '{name}'");
                let help = format!("its outputs are '{}'", names.join("', '"));
                return Err(InputError { what, help: Some(help) }.into());
            };
            if wanted[index].is_some() {
                let what = format!("the output '{name}' is wanted twice");
                return Err(InputError::new(what).into());
            }
            wanted[index] = Some((name, memory.reborrow()));
        }
        Ok(wanted)
    }

    /// The plan for inputs of these sizes, whose arena is charged.
    fn planned_for(
        &self,
        memory: &mut Memory,
        given: &Given<'_>,
        account: &Account,
    ) -> Result<Arc<Planned>, RunError> {
        let planned = self.find_plan(memory, given)?;
        if account.charge(planned.plan.arena_bytes).is_err() {
            return Err(self.arena_refusal(&planned.plan, account));
        }
        Ok(planned)
    }

    /// Names the first step whose outputs do not fit the account in the place that they have in the
    /// arena.
    fn arena_refusal(&self, plan: &Plan, account: &Account) -> RunError {
        for step in &self.executable.steps {
            for slot in step.outputs.iter().flatten() {
                if let Place::Arena(range) = &plan.places[slot.index()]
                    && let before = account.more(range.start)
                    && let Err(refused) = before.charge(range.len())
                {
                    return RunError::Resources(format!(
                        "{}: {refused}",
                        self.executable.label(&step.origins)
                    ));
                }
            }
        }
        let refused = account.charge(plan.arena_bytes).err();
        let refused = refused.map(|refused| refused.to_string());
        RunError::Resources(refused.unwrap_or_default())
    }

    fn find_plan(&self, memory: &mut Memory, given: &Given<'_>) -> Result<Arc<Planned>, RunError> {
        if let Some(found) = memory.plans.iter().position(|(key, _)| fits(key, given)) {
            memory.plans[..=found].rotate_right(1);
            return Ok(memory.plans[0].1.clone());
        }
        let key: Key = given
            .iter()
            .map(|value| {
                let tensor = value.as_view()?;
                Some((tensor.data_type().number(), tensor.dims().into()))
            })
            .collect();
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans().get(&key).cloned();
        let planned = match found {
            Some(planned) => planned,
            None => {
                let planned = Arc::new(self.make_plan(given)?);
                let mut plans = plans();
                if plans.len() >= MAX_PLANS {
                    plans.clear();
                }
                plans.insert(key.clone(), planned.clone());
                planned
            }
        };
        memory.plans.truncate(MAX_PLANS - 1);
        memory.plans.insert(0, (key, planned.clone()));
        Ok(planned)
    }

    fn make_plan(&self, given: &Given<'_>) -> Result<Planned, RunError> {
        let types: Vec<Option<Type>> = given
            .iter()
            .zip(&self.defaults)
            .map(|(value, default)| {
                let view = value.as_view();
                let view = view.or_else(|| default.as_ref().map(Tensor::view))?;
                Some(Type::tensor(view.data_type(), view.dims().iter().copied()))
            })
            .collect();
        let plan = plan(&self.executable, &types)?;
        Ok(Planned { schedule: Schedule::new(&self.executable, &plan), plan })
    }

    /// The values that a run starts with.
    fn hold<'a>(
        &self,
        memory: &mut Memory,
        planned: &Planned,
        given: Given<'a>,
    ) -> Result<Vec<Held<'a>>, RunError> {
        let mut held: Vec<Held<'a>> = emptied(take(&mut memory.held));
        held.resize_with(planned.schedule.held, Held::default);
        let values = given.into_iter().zip(&self.defaults);
        for (place, (value, default)) in planned.schedule.inputs.iter().zip(values) {
            let Some(place) = place else { continue };
            held[*place as usize] = match (value, default) {
                (Held::Nothing, Some(default)) => Held::Value(Value::Tensor(default.clone()), 0),
                (value, _) => value,
            };
        }
        Ok(held)
    }

    /// Lets steps write outputs where the caller wants them. What is left in `wanted` must be
    /// copied in the end.
    fn lend<'a>(
        &self,
        planned: &Planned,
        held: &mut [Held<'a>],
        wanted: &mut Wanted<'a>,
    ) -> Result<(), RunError> {
        let outputs = planned.schedule.outputs.iter().zip(&self.executable.outputs);
        for ((source, slot), wanted) in outputs.zip(wanted) {
            let Some((name, memory)) = wanted else {
                continue;
            };
            let Some((data_type, dims)) = &planned.plan.types[slot.index()] else {
                continue;
            };
            if *data_type != memory.data_type() || dims[..] != *memory.dims() {
                let what = format!(
                    "the output '{name}' is {}{:?}, but its memory is {}{:?}",
                    data_type.name(),
                    &dims[..],
                    memory.data_type().name(),
                    memory.dims()
                );
                return Err(InputError::new(what).into());
            }
            let lies_well = is_aligned(*data_type, memory.bytes_mut());
            if let Source::Held { place, .. } = source
                && let place @ Held::Nothing = &mut held[*place as usize]
                && lies_well
                && let Some((_, memory)) = wanted.take()
            {
                *place = Held::Output(memory.into_bytes());
            }
        }
        Ok(())
    }

    fn walk(
        &self,
        planned: &Planned,
        arena: &mut Arena,
        held: &mut [Held<'_>],
        account: &Account,
        mut watch: Option<&mut dyn FnMut(StepEvent)>,
    ) -> Result<(), RunError> {
        let began = watch.is_some().then(Instant::now);
        let schedule = &planned.schedule;
        for scheduled in &schedule.steps {
            let start = began.map(|began| began.elapsed());
            self.run_step(planned, arena, held, account, scheduled).map_err(|what| {
                let nodes = &self.executable.steps[scheduled.step].origins;
                RunError::Node { place: self.executable.label(nodes), what }
            })?;
            if let (Some(watch), Some(began), Some(start)) = (&mut watch, began, start) {
                watch(StepEvent { step: scheduled.step, start, took: began.elapsed() - start });
            }
            for place in schedule.dead(scheduled) {
                if let Held::Value(_, bytes) = take(&mut held[*place as usize]) {
                    account.credit(bytes);
                }
            }
        }
        Ok(())
    }

    fn run_step<'a>(
        &self,
        planned: &Planned,
        arena: &mut Arena,
        held: &mut [Held<'a>],
        account: &Account,
        scheduled: &Scheduled,
    ) -> Result<(), String> {
        let taken = account.taken();
        let (plan, schedule) = (&planned.plan, &planned.schedule);
        let step = &self.executable.steps[scheduled.step];
        let goals = schedule.goals(scheduled);
        let (read, mut written) = arena
            .borrow(schedule.reads(scheduled), schedule.writes(scheduled))
            .map_err(|error| error.to_string())?;
        let makes_values = goals.iter().any(|goal| matches!(goal, Goal::Held(..)));
        // Memory of the caller leaves its place while it is written.
        let mut lent: SmallVec<[(u32, &'a mut [u8]); 2]> = SmallVec::new();
        if makes_values {
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
        let exec = Exec { pool: self.pool.get(), isa: self.executable.isa };
        let mut call = Call {
            operands: SmallVec::new(),
            targets: SmallVec::new(),
            over: scheduled.over,
            exec: &exec,
            memory: Some(&self.recycler),
            account,
        };
        let mut read = read.iter().copied();
        for source in schedule.sources(scheduled) {
            let bytes = match source {
                Source::Arena(_) => read.next(),
                _ => None,
            };
            call.operands.push(self.operand(plan, held, *source, bytes)?);
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
                    Target::Planned { data_type: *data_type, dims, bytes }
                }
                _ => Target::Owned(None),
            });
        }
        step.kernel.run(&mut call).map_err(|error| error.0)?;
        if !makes_values {
            account.settle(taken);
            return Ok(());
        }
        let targets = take(&mut call.targets);
        drop(call);
        let mut made: SmallVec<[(u32, Value); 1]> = SmallVec::new();
        for (goal, target) in goals.iter().zip(targets) {
            if let (Goal::Held(place, _), Target::Owned(Some(value))) = (goal, target) {
                made.push((*place, value));
            }
        }
        let mut kept = taken;
        for (place, value) in made {
            let bytes = value.bytes();
            kept = kept.saturating_add(bytes);
            held[place as usize] = Held::Value(value, bytes);
        }
        account.settle(kept);
        for (place, bytes) in lent {
            held[place as usize] = Held::Output(bytes);
        }
        Ok(())
    }

    /// What a step reads: bytes of the arena, a constant, or a held value; each under the slot's
    /// own dimensions.
    #[inline]
    fn operand<'c>(
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
            Source::Arena(slot) => (slot, bytes.ok_or_else(absent)?),
            Source::Constant { root, slot } => {
                let constant = self.executable.slots[root.index()].constant.as_ref();
                let constant = constant.ok_or_else(absent)?;
                if root == slot {
                    return Ok(Operand::Tensor(constant.view()));
                }
                (slot, constant.bytes())
            }
            Source::Held { place, root, slot } => match &held[place as usize] {
                Held::Nothing => return Err(absent()),
                Held::Output(bytes) => (slot, &**bytes),
                Held::Value(Value::Tensor(tensor), _) if root == slot => {
                    return Ok(Operand::Tensor(tensor.view()));
                }
                Held::Input(view) if root == slot => return Ok(Operand::Tensor(view.clone())),
                Held::Value(Value::Tensor(tensor), _) => (slot, tensor.bytes()),
                Held::Input(view) => (slot, view.contiguous_bytes().ok_or_else(absent)?),
                Held::Value(value, _) => return Ok(Operand::Value(value)),
            },
        };
        let (data_type, dims) = plan.types[slot.index()]
            .as_ref()
            .ok_or_else(|| "a planned value has no shape".to_string())?;
        let view = match plan.layout(slot) {
            None => TensorView::over(*data_type, dims, bytes),
            Some(layout) => TensorView::with_strides(
                *data_type,
                dims,
                &layout.strides,
                layout.offset,
                ViewData::Bytes(bytes),
            ),
        };
        Ok(Operand::Tensor(view.map_err(|error| error.to_string())?))
    }

    /// The outputs, taken from what is held.
    fn returned(
        &self,
        schedule: &Schedule,
        held: &mut [Held<'_>],
    ) -> Result<Vec<(String, Value)>, RunError> {
        let mut outputs = Vec::with_capacity(self.outputs().len());
        for (index, (port, source)) in self.outputs().iter().zip(&schedule.outputs).enumerate() {
            let value = match source {
                Source::Held { place, .. } => match &mut held[*place as usize] {
                    // The same value may be several outputs, or an input.
                    Held::Value(value, _) if schedule.outputs[index + 1..].contains(source) => {
                        Some(value.clone())
                    }
                    place => match take(place) {
                        Held::Value(value, _) => Some(value),
                        Held::Nothing | Held::Input(_) | Held::Output(_) => None,
                    },
                },
                Source::Constant { root, .. } => {
                    self.executable.slots[root.index()].constant.clone().map(Value::Tensor)
                }
                Source::Absent | Source::InPlace | Source::Arena(_) => None,
            };
            let value = value.ok_or_else(|| RunError::Node {
                place: format!("output '{}'", port.name()),
                what: "no step produced it".to_string(),
            })?;
            outputs.push((port.name().to_string(), value));
        }
        Ok(outputs)
    }
}

/// Memory of the caller for outputs, by output of the model.
type Wanted<'a> = SmallVec<[Option<(&'a str, TensorViewMut<'a>)>; 4]>;

/// Whether a plan is for inputs such as these.
fn fits(key: &Key, given: &Given<'_>) -> bool {
    let fits = |(wanted, given): (&Option<(i32, Dims)>, &Held<'_>)| match (wanted, given.as_view())
    {
        (Some((elem, dims)), Some(view)) => {
            *elem == view.data_type().number() && dims[..] == *view.dims()
        }
        (None, None) => true,
        _ => false,
    };
    key.iter().zip(given).all(fits)
}

/// The same memory for values that live for another time.
fn emptied<'b>(mut held: Vec<Held<'_>>) -> Vec<Held<'b>> {
    held.clear();
    // Collecting in place keeps the memory: the two types differ in a lifetime only.
    held.into_iter().map(|_| Held::Nothing).collect()
}

/// Whether the address is one of elements of the type.
fn is_aligned(data_type: DataType, bytes: &[u8]) -> bool {
    let element = data_type.bits().unwrap_or(8) / 8;
    bytes.as_ptr().addr().is_multiple_of(element.clamp(1, 8))
}

/// Copies elements that are not dense or not at addresses of their type, and counts the copy.
fn place_well(value: &mut Held<'_>, account: &Account) -> Result<(), KernelError> {
    let is_well = |view: &TensorView<'_>| match view.data() {
        ViewData::Bytes(_) => {
            view.contiguous_bytes().is_some_and(|bytes| is_aligned(view.data_type(), bytes))
        }
        ViewData::Strings(_) => view.is_contiguous(),
    };
    let copy = match value {
        Held::Input(view) if !is_well(view) => view.clone(),
        Held::Value(Value::Tensor(tensor), _) if !is_well(&tensor.view()) => tensor.view(),
        _ => return Ok(()),
    };
    // Only a copy tells how long its strings are together.
    let known = copy.data_type().storage_bytes(copy.len());
    account.charge(known.unwrap_or(0))?;
    let copy = Value::Tensor(copy.to_tensor()?);
    let bytes = copy.bytes();
    account.charge(bytes.saturating_sub(known.unwrap_or(0)))?;
    *value = Held::Value(copy, bytes);
    Ok(())
}
