//! Running a session: values that are given, plans that are found, values that are returned.
//!
//! After the first runs with inputs of some sizes, [`Session::run_into`] itself neither allocates
//! nor waits for another run: it takes a [`Memory`] that nothing else uses, with the plans that
//! were made in it, and leaves it there for the next.

use std::mem::take;
use std::sync::{Arc, PoisonError};

use sardonyx_kernels::{Exec, Panic, Pool, caught};
use sardonyx_model::Type;
use sardonyx_tensor::{
    DataType, Recycler, Tensor, TensorError, TensorView, TensorViewMut, Value, emptied,
};

use super::Session;
use super::end::{Ending, Pending, Remains};
use crate::account::Account;
use crate::border::{admit, is_aligned, released};
use crate::error::{InputError, Internal, RunError};
use crate::inputs::{AllClosed, Closed, Port, find};
use crate::kernel::Operand;
use crate::memory::{Given, Held, Memory, Planned, Plans, Wanted, key_of};
use crate::options::RunOptions;
use crate::plan::{Place, Plan};
use crate::program::StatePorts;
use crate::run::{IterationPlans, Progress, Run, StepEvent, Watch};
use crate::schedule::{Schedule, Source};
use crate::sizes::{Found, Scope, inferred};
use crate::spans;
use crate::stop::Limits;

/// An input of a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'v> {
    /// The run gets it.
    Value(Value),
    /// It stays with the caller.
    Borrowed(&'v Value),
    /// Elements that stay with the caller, as those of [`Session::run_into`].
    View(TensorView<'v>),
}

/// Outputs of a run, in the order of the model; `None` for those that were written into memory of
/// the caller, or are new values of state that have not been computed yet.
type Values = Vec<Option<Value>>;

/// Terms of a run.
struct Terms<'r, 'o> {
    account: &'r Account,
    recycler: &'r Arc<Recycler>,
    options: &'r RunOptions<'o>,
    progress: &'r Progress,
}

/// A main program that has run.
struct Ran<'v> {
    planned: Arc<Planned>,
    held: Vec<Held<'v>>,
    wanted: Wanted<'v>,
}

/// Memory of the caller for an output, by its number, type and dimensions; `None` if the output is
/// to be a value.
type Lend<'l, 'v> = dyn FnMut(usize, DataType, &[usize]) -> Option<TensorViewMut<'v>> + 'l;

impl<'v> From<Input<'v>> for Held<'v> {
    fn from(input: Input<'v>) -> Held<'v> {
        match input {
            Input::Value(value) => Held::Value(value, 0),
            Input::Borrowed(value) => Held::Borrowed(value),
            Input::View(view) => Held::Input(view),
        }
    }
}

impl Session {
    /// Runs the model.
    ///
    /// # Errors
    ///
    /// Inputs that are missing, unknown or of another type than declared; a node that cannot
    /// compute its outputs.
    pub fn run(&self, inputs: Vec<(String, Value)>) -> Result<Vec<(String, Value)>, RunError> {
        self.run_with(inputs, &RunOptions::new())
    }

    /// As [`Session::run`] with options.
    ///
    /// # Errors
    ///
    /// As [`Session::run`]; [`RunError::Stopped`] if the options end the run.
    pub fn run_with(
        &self,
        inputs: Vec<(String, Value)>,
        options: &RunOptions<'_>,
    ) -> Result<Vec<(String, Value)>, RunError> {
        let inputs = inputs.into_iter().map(|(name, value)| (name, Input::Value(value)));
        let mut outputs = Vec::with_capacity(self.outputs().len());
        self.run_on(inputs, &mut outputs, options)?;
        let names = self.outputs().iter().map(|port| port.name().to_string());
        Ok(names.zip(outputs).filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Runs the model on inputs of which some may stay with the caller. `outputs` becomes all
    /// outputs, in the order of the model. After the first runs with inputs of some sizes this
    /// allocates nothing, as [`Session::run_into`]: memory of outputs comes back when they are
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`Session::run_with`].
    pub fn run_on<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let inputs = inputs.map(|(name, input)| (name, Held::from(input)));
        outputs.clear();
        self.walk(inputs, |_| Ok(()), &mut |_, _, _| None, Some(outputs), options)
    }

    /// Begins a run like [`Session::run_on`], but leaves the new values of the session's
    /// [state](Session::list_state) to [`Pending::commit`]: they are `None` among the outputs.
    /// Until then all inputs are as they were, and none is borrowed any more.
    ///
    /// # Errors
    ///
    /// As [`Session::run_with`].
    pub fn begin<'s, 'v, N: AsRef<str>>(
        &'s self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<Pending<'s>, RunError> {
        let _span = spans::enter_run();
        outputs.clear();
        let progress = Progress::default();
        let inputs = inputs.map(|(name, input)| (name, Held::from(input)));
        let begun = caught(|| {
            Pool::to_its_end(|| Ok(self.begin_noting(inputs, outputs, options, &progress)))
        });
        begun.unwrap_or_else(|panic| Err(self.internal(panic, &progress)))
    }

    /// [`Session::begin`], which notes how far it is.
    fn begin_noting<'s, 'v, N: AsRef<str>>(
        &'s self,
        inputs: impl Iterator<Item = (N, Held<'v>)>,
        outputs: &mut Values,
        options: &RunOptions<'_>,
        progress: &Progress,
    ) -> Result<Pending<'s>, RunError> {
        let mut memory = self.memories.take();
        let (account, own) = self.open_account();
        let recycler = own.unwrap_or_else(|| Arc::clone(&self.recycler));
        let mut tell = options.watch.map(|watch| move |event: StepEvent| watch(event));
        let mut watch = tell.as_mut().map(|tell| Watch::new(tell));
        let began = watch.as_ref().map(Watch::began);
        let terms = Terms { account: &account, recycler: &recycler, options, progress };
        let ran = self.run_main(&mut memory, inputs, |_| Ok(()), None, &terms, &mut watch);
        let ran = ran.and_then(|mut ran| {
            self.returned(&ran.planned.schedule, &mut ran.held, outputs, &account)?;
            Ok(ran)
        });
        match ran {
            Ok(Ran { planned, held, wanted }) => {
                memory.wanted = emptied(wanted);
                let remains = Remains { memory, planned, held, account, recycler, began };
                Pending::new(self, remains)
            }
            Err(error) => {
                self.give_back(memory);
                Err(error)
            }
        }
    }

    /// Runs the model on inputs that stay with the caller. `lend` is asked before the first step
    /// for the memory of each output whose type and dimensions are known by then, that has elements
    /// and is neither an input, nor a constant, nor another output as well: dense memory at an
    /// address of the type. `outputs` becomes all outputs, in the order of the model, with `None`
    /// for those that were written into memory that was lent. After the first runs with inputs of
    /// some sizes this allocates nothing for the latter, as [`Session::run_into`].
    ///
    /// # Errors
    ///
    /// As [`Session::run_with`]; memory of another type or of other dimensions than the output, or
    /// at another address. What has been written when an error is found stays written.
    pub fn run_lending<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
        lend: &mut dyn FnMut(usize, DataType, &[usize]) -> Option<TensorViewMut<'v>>,
    ) -> Result<(), RunError> {
        let inputs = inputs.iter();
        let inputs = inputs.map(|(name, view)| (*name, Held::<'v>::Input(view.clone())));
        outputs.clear();
        self.walk(inputs, |_| Ok(()), lend, Some(outputs), options)
    }

    /// Returns the ports of state whose new values [`Pending::commit`] computes, and may write over
    /// the old ones: those of [`Options::state`](crate::Options::state) that are functions of the
    /// elements at the same place, where nothing else that happens last reads the old values.
    pub fn list_state(&self) -> Vec<StatePorts> {
        let body = &self.executable.body;
        let ports = body.list_committed().iter().filter_map(|output| {
            let old = body.outputs.get(*output).copied();
            let input = body.inputs.iter().position(|slot| slot.is_some() && *slot == old)?;
            Some(StatePorts { input, output: *output })
        });
        ports.collect()
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
        self.run_into_with(inputs, outputs, &RunOptions::new())
    }

    /// As [`Session::run_into`] with options.
    ///
    /// # Errors
    ///
    /// As [`Session::run_into`]; [`RunError::Stopped`] if the options end the run.
    pub fn run_into_with<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &'v mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let inputs = inputs.iter();
        let inputs = inputs.map(|(name, view)| (*name, Held::<'v>::Input(view.clone())));
        let lend = &mut |_, _, _: &_| None;
        self.walk(inputs, |wanted| self.sort_outputs(outputs, wanted), lend, None, options)
    }

    /// Runs the model to the end. `want` says which outputs are written into memory of the caller,
    /// and `lend` gives memory for others; the rest become `values` if there is a list for that.
    fn walk<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Held<'v>)>,
        want: impl FnOnce(&mut Wanted<'v>) -> Result<(), RunError>,
        lend: &mut Lend<'_, 'v>,
        values: Option<&mut Values>,
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let _span = spans::enter_run();
        let progress = Progress::default();
        let ran = caught(|| self.walk_noting(inputs, want, lend, values, options, &progress));
        ran.unwrap_or_else(|panic| Err(self.internal(panic, &progress)))
    }

    /// Makes the error for a panic, and forgets all plans: the one of the run may be the reason.
    /// Its memory has been dropped by unwinding.
    #[cold]
    pub(crate) fn internal(&self, panic: Panic, progress: &Progress) -> RunError {
        self.forget_plans();
        let step = progress.node.get().map(|node| self.executable.label(&[node]));
        RunError::Internal(Box::new(Internal { panic, step }))
    }

    /// Drops what runs have planned.
    fn forget_plans(&self) {
        *self.plans.lock().unwrap_or_else(PoisonError::into_inner) = Plans::default();
        self.memories.clear();
        self.iteration_plans.iter().for_each(IterationPlans::forget);
    }

    /// [`Session::walk`], which notes how far it is.
    fn walk_noting<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Held<'v>)>,
        want: impl FnOnce(&mut Wanted<'v>) -> Result<(), RunError>,
        lend: &mut Lend<'_, 'v>,
        mut values: Option<&mut Values>,
        options: &RunOptions<'_>,
        progress: &Progress,
    ) -> Result<(), RunError> {
        let (account, own) = self.open_account();
        let recycler = own.as_ref().unwrap_or(&self.recycler);
        let terms = Terms { account: &account, recycler, options, progress };
        let mut tell = options.watch.map(|watch| move |event: StepEvent| watch(event));
        let mut watch = tell.as_mut().map(|tell| Watch::new(tell));
        self.with_memory(|memory| {
            let lend = values.is_some().then_some(lend);
            let ran = self.run_main(memory, inputs, want, lend, &terms, &mut watch)?;
            let Ran { planned, mut held, mut wanted } = ran;
            if let Some(values) = &mut values {
                self.returned(&planned.schedule, &mut held, values, &account)?;
            }
            for (output, value) in self.run_last(memory, &planned, &held, &terms, &mut watch)? {
                match (&mut values, wanted.get_mut(output).and_then(Option::take)) {
                    (Some(values), _) => {
                        values[output] = Some(self.release(output, value, &account)?)
                    }
                    (None, Some((name, mut memory))) => {
                        let copied = match &value {
                            Value::Tensor(tensor) => {
                                memory.copy_from(&tensor.view()).map_err(|e| e.to_string())
                            }
                            _ => Err(NOT_A_TENSOR.into()),
                        };
                        copied.map_err(|what| {
                            InputError::new(format!("the output '{name}': {what}"))
                        })?;
                    }
                    (None, None) => {}
                }
            }
            if values.is_none() {
                self.copied(&planned, &held, &mut wanted)?;
            }
            memory.held = emptied(held);
            memory.wanted = emptied(wanted);
            Ok(())
        })
    }

    /// Runs the main program.
    fn run_main<'v, N: AsRef<str>>(
        &self,
        memory: &mut Memory,
        inputs: impl Iterator<Item = (N, Held<'v>)>,
        want: impl FnOnce(&mut Wanted<'v>) -> Result<(), RunError>,
        lend: Option<&mut Lend<'_, 'v>>,
        terms: &Terms<'_, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<Ran<'v>, RunError> {
        let mut given: Given<'v> = emptied(take(&mut memory.given));
        let closed = self.sort_inputs(inputs, &mut given, terms.account)?;
        let mut wanted: Wanted<'v> = emptied(take(&mut memory.wanted));
        want(&mut wanted)?;
        let planned = self.planned_for(memory, &given, terms.account)?;
        let mut held = self.hold(memory, &planned, given)?;
        self.lend(&planned, &mut held, &mut wanted)?;
        if let Some(lend) = lend {
            self.lend_as_asked(&planned, &mut held, lend)?;
        }
        let body = &self.executable.body;
        let run = self.started(terms, &closed);
        let ran = run.program(body, &planned, memory, &mut held, watch);
        ran.map_err(|error| self.failure(&planned, error))?;
        if body.commit.is_some() {
            run.check_limits(body, &planned.schedule)?;
        }
        Ok(Ran { planned, held, wanted })
    }

    /// Runs what happens last, on old values that the run holds. Returns the new values of state,
    /// with the numbers of their outputs.
    fn run_last(
        &self,
        memory: &mut Memory,
        planned: &Planned,
        held: &[Held<'_>],
        terms: &Terms<'_, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<Vec<(usize, Value)>, RunError> {
        let committed = self.executable.body.list_committed().len();
        if committed == 0 {
            return Ok(Vec::new());
        }
        let Terms { account, recycler, progress, .. } = *terms;
        let ending = Ending { session: self, account, recycler, planned, held, progress };
        let mut none: Vec<Held<'_>> = emptied(take(&mut memory.lent));
        none.resize_with(committed, Held::default);
        let made = ending.run(memory, &mut none, watch)?;
        memory.lent = emptied(none);
        Ok(made)
    }

    /// Returns an account for a run, and memory for its outputs, if that is not the session's.
    fn open_account(&self) -> (Account, Option<Arc<Recycler>>) {
        let budget = self.reserved.budget();
        let account = Account::within(self.memory_limit, self.report.made_bytes, budget);
        // What a session keeps for its next run would be missing in those of other sessions.
        (account, budget.map(|_| Arc::default()))
    }

    /// Writes outputs that lie elsewhere into the memory that is wanted for them.
    fn copied(
        &self,
        planned: &Planned,
        held: &[Held<'_>],
        wanted: &mut Wanted<'_>,
    ) -> Result<(), RunError> {
        for (source, wanted) in planned.schedule.outputs.iter().zip(wanted) {
            let Some((name, memory)) = wanted else { continue };
            let operand = self.executable.body.operand(&planned.plan, held, *source, None);
            let copied = operand.and_then(|operand| match operand {
                Operand::Tensor(view) => memory.copy_from(&view).map_err(|e| e.to_string()),
                _ => Err(NOT_A_TENSOR.into()),
            });
            copied.map_err(|what| InputError::new(format!("the output '{name}': {what}")))?;
        }
        Ok(())
    }

    /// Makes a run on some terms.
    fn started<'r, 'o: 'r>(&'r self, terms: &Terms<'r, 'o>, closed: &'r [Closed<'r>]) -> Run<'r> {
        let RunOptions { stop, deadline, iteration_limit, asks, .. } = terms.options;
        Run {
            executable: &self.executable,
            exec: Exec::new(&self.pool, self.executable.isa),
            random: self.seed.next_run(terms.options.seed),
            recycler: terms.recycler,
            account: terms.account,
            limits: Limits::new(stop.clone(), *deadline, *iteration_limit, *asks),
            iteration_plans: &self.iteration_plans,
            closed,
            progress: terms.progress,
        }
    }

    fn with_memory<R, E>(&self, body: impl FnOnce(&mut Memory) -> Result<R, E>) -> Result<R, E> {
        let mut memory = self.memories.take();
        // A run within an operator that a program brings asks its own limits only: the operator
        // would take the end of the run around it for that of its own.
        let result = Pool::to_its_end(|| Ok(body(&mut memory)));
        self.give_back(memory);
        result
    }

    /// Keeps the memory of a run for later ones, unless sessions share a budget.
    pub(crate) fn give_back(&self, memory: Box<Memory>) {
        if self.reserved.budget().is_none() {
            self.memories.give_back(memory);
        }
    }

    /// The inputs in the order of the model, checked against what it declares and placed where
    /// kernels can read them.
    fn sort_inputs<'a, 's, N: AsRef<str>>(
        &'s self,
        inputs: impl Iterator<Item = (N, Held<'a>)>,
        given: &mut Given<'a>,
        account: &Account,
    ) -> Result<AllClosed<'s>, RunError> {
        let closed = self.door().sort(inputs, given)?;
        for (port, value) in self.inputs().iter().zip(given) {
            admit(value, port.ty(), account).map_err(|error| {
                RunError::Resources(format!("a copy of input '{}': {error}", port.name()))
            })?;
        }
        Ok(closed)
    }

    /// The memory for outputs in the order of the model.
    fn sort_outputs<'a>(
        &self,
        outputs: &'a mut [(&str, TensorViewMut<'_>)],
        wanted: &mut Wanted<'a>,
    ) -> Result<(), RunError> {
        wanted.resize_with(self.outputs().len(), || None);
        for (turn, (name, memory)) in outputs.iter_mut().enumerate() {
            let Some(index) = find(self.outputs(), turn, name) else {
                let names: Vec<&str> = self.outputs().iter().map(Port::name).collect();
                let what = format!("the model has no output '{name}'");
                let hint = format!("use one of the model's outputs: '{}'", names.join("', '"));
                return Err(InputError { hint: Some(hint), ..InputError::new(what) }.into());
            };
            if wanted[index].is_some() {
                let what = format!("the output '{name}' is requested twice");
                return Err(InputError::new(what).into());
            }
            wanted[index] = Some((name, memory.reborrow()));
        }
        Ok(())
    }

    /// The plan for inputs of these sizes, whose arena is charged.
    fn planned_for(
        &self,
        memory: &mut Memory,
        given: &[Held<'_>],
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
        let body = &self.executable.body;
        for step in &body.steps {
            for slot in step.outputs.iter().flatten() {
                if let Place::Arena(range, _) = &plan.places[plan.root(*slot).index()]
                    && let before = account.more(range.start)
                    && let Err(refused) = before.charge(range.len())
                {
                    let planned = |_| None;
                    return self.executable.failure(body, step, plan, planned, refused.to_string());
                }
            }
        }
        let refused = account.charge(plan.arena_bytes).err();
        let refused = refused.map(|refused| refused.to_string());
        RunError::Resources(refused.unwrap_or_default())
    }

    fn find_plan(&self, memory: &mut Memory, given: &[Held<'_>]) -> Result<Arc<Planned>, RunError> {
        if let Some(planned) = memory.plans.find(given) {
            return Ok(planned);
        }
        let key = key_of(given);
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans().find(given);
        let planned = match found {
            Some(planned) => planned,
            None => {
                let planned = Arc::new(self.make_plan(given)?);
                plans().keep(key.clone(), planned.clone());
                planned
            }
        };
        memory.plans.keep(key, planned.clone());
        Ok(planned)
    }

    fn make_plan(&self, given: &[Held<'_>]) -> Result<Planned, RunError> {
        let types: Vec<Option<Type>> = given
            .iter()
            .zip(&self.defaults)
            .map(|(value, default)| {
                let view = value.as_view();
                let view = view.or_else(|| default.as_ref().map(Tensor::view))?;
                Some(Type::tensor(view.data_type(), view.dims().iter().copied()))
            })
            .collect();
        let Found { sizes, is_inferred } =
            self.sizes.find(Scope::main(&self.executable), &types)?;
        let planned = Planned::new(&self.executable.body, sizes);
        Ok(Planned { uninferred: (!is_inferred).then_some(types), ..planned })
    }

    /// Why a run failed. Where inference did not look at these sizes, it may have more to say of
    /// them than the step that they made fail.
    fn failure(&self, planned: &Planned, error: RunError) -> RunError {
        match (&error, &planned.uninferred) {
            (RunError::Node(_), Some(types)) => {
                inferred(Scope::main(&self.executable), types).err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// The values that a run starts with.
    fn hold<'a>(
        &self,
        memory: &mut Memory,
        planned: &Planned,
        mut given: Given<'a>,
    ) -> Result<Vec<Held<'a>>, RunError> {
        let mut held: Vec<Held<'a>> = emptied(take(&mut memory.held));
        held.resize_with(planned.schedule.held, Held::default);
        let values = given.drain(..).zip(&self.defaults);
        for (place, (value, default)) in planned.schedule.inputs.iter().zip(values) {
            let Some(place) = place else { continue };
            let place = &mut held[*place as usize];
            match (&value, default) {
                (Held::Nothing, Some(default)) => {
                    *place = Held::Value(Value::Tensor(default.clone()), 0);
                }
                _ => *place = value,
            }
        }
        memory.given = emptied(given);
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
        let outputs = planned.schedule.outputs.iter().zip(&self.executable.body.outputs);
        for ((source, slot), wanted) in outputs.zip(wanted) {
            let Some((name, memory)) = wanted else {
                continue;
            };
            let Some((data_type, dims)) = &planned.plan.types[slot.index()] else {
                continue;
            };
            demand_same(name, (*data_type, dims), memory)?;
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

    /// Asks for memory for the outputs that steps can write where the caller wants them.
    fn lend_as_asked<'a>(
        &self,
        planned: &Planned,
        held: &mut [Held<'a>],
        lend: &mut Lend<'_, 'a>,
    ) -> Result<(), RunError> {
        let sources = &planned.schedule.outputs;
        let outputs = self.outputs().iter().zip(&self.executable.body.outputs);
        for (index, (source, (port, slot))) in sources.iter().zip(outputs).enumerate() {
            let Source::Held { place: number, .. } = source else { continue };
            let place @ Held::Nothing = &mut held[*number as usize] else { continue };
            let Some((data_type, dims)) = &planned.plan.types[slot.index()] else { continue };
            // A sparse tensor is made of what steps write, memory of 0 bytes may lie anywhere, and
            // of two outputs that are one value only one could have the memory.
            let is_dense = matches!(port.ty(), Some(Type::Tensor(_)));
            let is_other = |(other, source): (usize, &Source)| {
                other != index && source.held_place() == Some(*number)
            };
            if !is_dense || dims.contains(&0) || sources.iter().enumerate().any(is_other) {
                continue;
            }
            let Some(mut memory) = lend(index, *data_type, dims) else { continue };
            demand_same(port.name(), (*data_type, dims), &memory)?;
            if !is_aligned(*data_type, memory.bytes_mut()) {
                let what = format!(
                    "the memory of the output '{}' is not at an address of {}",
                    port.name(),
                    data_type.name()
                );
                return Err(InputError::new(what).into());
            }
            *place = Held::Output(memory.into_bytes());
        }
        Ok(())
    }

    /// Takes the outputs from what is held. `None` for those that are computed last, and for those
    /// that lie in memory that was lent.
    fn returned(
        &self,
        schedule: &Schedule,
        held: &mut [Held<'_>],
        outputs: &mut Values,
        account: &Account,
    ) -> Result<(), RunError> {
        let committed = self.executable.body.list_committed();
        for (index, (port, source)) in self.outputs().iter().zip(&schedule.outputs).enumerate() {
            if committed.contains(&index) {
                outputs.push(None);
                continue;
            }
            let value = match source {
                Source::Held { place, .. } => match &mut held[*place as usize] {
                    Held::Output(_) => {
                        outputs.push(None);
                        continue;
                    }
                    // The same value may be several outputs, be read last, or be an input.
                    Held::Value(value, _) if schedule.outputs[index + 1..].contains(source) => {
                        Some(value.clone())
                    }
                    place => match take(place) {
                        Held::Value(value, _) => Some(value),
                        Held::Borrowed(given) => {
                            *place = Held::Borrowed(given);
                            Some(given.clone())
                        }
                        Held::Input(view) => {
                            let copy = view.to_tensor();
                            *place = Held::Input(view);
                            let refused = |e: TensorError| RunError::Resources(e.to_string());
                            Some(Value::Tensor(copy.map_err(refused)?))
                        }
                        // The last one is handled above.
                        Held::Nothing | Held::Output(_) => None,
                    },
                },
                Source::Constant { root, .. } => self.executable.body.slots[root.index()]
                    .constant
                    .as_deref()
                    .cloned()
                    .map(Value::Tensor),
                Source::Absent
                | Source::InPlace
                | Source::There(_)
                | Source::Arena(_)
                | Source::Taken { .. } => None,
            };
            let value = value.ok_or_else(|| {
                InputError::new(format!("the output '{}' is not a value", port.name()))
            })?;
            outputs.push(Some(self.release(index, value, account)?));
        }
        Ok(())
    }

    /// Returns an output as the model declares it.
    fn release(&self, output: usize, value: Value, account: &Account) -> Result<Value, RunError> {
        let port = &self.outputs()[output];
        released(value, port.ty(), account)
            .map_err(|error| RunError::Resources(format!("the output '{}': {error}", port.name())))
    }
}

/// Reason that memory of the caller cannot hold an output.
const NOT_A_TENSOR: &str = "it is not a tensor, so it cannot be written into memory of the caller";

/// Refuses memory for an output that is of another type or has other dimensions.
fn demand_same(
    name: &str,
    (data_type, dims): (DataType, &[usize]),
    memory: &TensorViewMut<'_>,
) -> Result<(), InputError> {
    if data_type == memory.data_type() && *dims == *memory.dims() {
        return Ok(());
    }
    Err(InputError::new(format!(
        "the output '{name}' is {}{dims:?}, but its memory is {}{:?}",
        data_type.name(),
        memory.data_type().name(),
        memory.dims()
    )))
}
