//! Runs of a session: checks inputs, finds plans, returns outputs.
//!
//! After the first runs with inputs of some sizes, [`Session::run_into`] neither allocates nor
//! waits for another run: it takes a [`Memory`] that no other run uses, with the plans in it, and
//! returns it for the next run.

use std::mem::take;
use std::slice;
use std::sync::{Arc, PoisonError};

use sardonyx_kernels::{Exec, Panic, Pool, catch_panic};
use sardonyx_model::Type;
use sardonyx_tensor::{DataType, Recycler, TensorError, TensorView, TensorViewMut, Value, emptied};

use super::Session;
use super::end::{Ending, Pending, Remains};
use super::kept_state::KeptState;
use crate::account::Account;
use crate::border::{admit, convert_output, has_sparse, is_aligned};
use crate::error::{InputError, Internal, RunError};
use crate::inputs::{AllClosed, ExcludedBranch, GiveInputs, Port, Sorter, find};
use crate::kernel::Operand;
use crate::memory::{Held, HeldValues, Memory, Planned, Plans, Wanted, key_of};
use crate::options::RunOptions;
use crate::plan::{KeptRows, Place, Plan};
use crate::program::StatePorts;
use crate::run::{IterationPlans, Progress, Run, StepEvent, Watch};
use crate::schedule::{Schedule, Source};
use crate::sizes::{FoundSizes, Scope, infer_types};
use crate::spans;
use crate::stop::Limits;

/// Input of a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Input<'v> {
    /// Value that moves into the run.
    Value(Value),
    /// Value that stays with the caller.
    Borrowed(&'v Value),
    /// Elements that stay with the caller, as in [`Session::run_into`].
    View(TensorView<'v>),
}

/// Outputs of a run, in the order of the model; `None` for those written into memory of the caller,
/// and for new values of state that are not computed yet.
type OutputValues = [Option<Value>];

/// State shared by the parts of a run.
pub(super) struct Terms<'r, 'o> {
    pub(super) account: &'r Account,
    pub(super) recycler: &'r Arc<Recycler>,
    pub(super) options: &'r RunOptions<'o>,
    pub(super) progress: &'r Progress,
}

/// Main program after its run.
pub(super) struct Ran<'p, 'v> {
    pub(super) planned: &'p Arc<Planned>,
    pub(super) held: Vec<Held<'v>>,
    pub(super) wanted: Wanted<'v>,
}

/// Inputs and outputs of a run, passed by functions so that it is compiled once for all callers.
pub(super) struct Request<'r, 'v> {
    /// Passes names and values of the inputs.
    give: &'r mut GiveInputs<'r, 'v>,
    /// State with the other inputs.
    kept: Option<&'v mut KeptState>,
    /// Fills the list of outputs that are written into memory of the caller.
    want: Option<&'r mut Want<'r, 'v>>,
    /// Lends memory for other outputs.
    lend: Option<&'r mut Lend<'r, 'v>>,
}

impl<'r, 'v> Request<'r, 'v> {
    /// Makes the request of a run whose outputs all become values.
    pub(super) fn new(give: &'r mut GiveInputs<'r, 'v>) -> Request<'r, 'v> {
        Request { give, kept: None, want: None, lend: None }
    }

    /// Adds a state that has the other inputs.
    pub(super) fn with_kept(self, state: &'v mut KeptState) -> Request<'r, 'v> {
        Request { kept: Some(state), ..self }
    }
}

/// Function that fills the list of outputs that are written into memory of the caller.
type Want<'w, 'v> = dyn FnMut(&mut Wanted<'v>) -> Result<(), RunError> + 'w;

/// Passes the inputs of an iterator.
pub(super) fn give_all<'h, 'v: 'h, N: AsRef<str>>(
    mut inputs: impl Iterator<Item = (N, Input<'v>)>,
) -> impl FnMut(&mut Sorter<'_, '_, 'h>) -> Result<(), InputError> {
    move |sorter| {
        inputs.by_ref().try_for_each(|(name, input)| sorter.put(name.as_ref(), Held::from(input)))
    }
}

/// Passes views of tensors.
fn give_views<'v>(
    inputs: &'v [(&str, TensorView<'_>)],
) -> impl FnMut(&mut Sorter<'_, '_, 'v>) -> Result<(), InputError> {
    |sorter| {
        inputs.iter().try_for_each(|(name, view)| sorter.put(name, Held::Input(view.reborrow())))
    }
}

/// Function that lends memory of the caller for an output, by its number, type and dimensions;
/// `None` if the output becomes a value.
pub type Lend<'l, 'v> = dyn FnMut(usize, DataType, &[usize]) -> Option<TensorViewMut<'v>> + 'l;

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

    /// Runs the model with options.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run`]; [`RunError::Stopped`] if the options cancel the run.
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

    /// Runs the model on inputs that may stay with the caller. Fills `outputs` with all outputs, in
    /// the order of the model. After the first runs with inputs of some sizes this does not
    /// allocate, like [`Session::run_into`]: the memory of outputs is reused when they are dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run_with`].
    pub fn run_on<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let mut give = give_all(inputs);
        let request = Request::new(&mut give);
        self.run_to_end(request, Some(self.make_room(outputs)), options)
    }

    /// Runs the model like [`Session::run_on`], but leaves the new values of the session's
    /// [state](Session::list_state) to [`Pending::commit`]: they are `None` among the outputs.
    /// Until then all inputs keep their values, and none is borrowed any more.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run_with`].
    pub fn begin<'s, 'v, N: AsRef<str>>(
        &'s self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<Pending<'s>, RunError> {
        let _span = spans::enter_run();
        let outputs = self.make_room(outputs);
        let progress = Progress::default();
        let mut give = give_all(inputs);
        let request = Request::new(&mut give);
        let begun = catch_panic(|| {
            Pool::run_to_end(|| Ok(self.begin_with_progress(request, outputs, options, &progress)))
        });
        begun.unwrap_or_else(|panic| Err(self.make_panic_error(panic, &progress)))
    }

    /// Runs [`Session::begin`] and records its progress.
    fn begin_with_progress<'s>(
        &'s self,
        request: Request<'_, '_>,
        outputs: &mut OutputValues,
        options: &RunOptions<'_>,
        progress: &Progress,
    ) -> Result<Pending<'s>, RunError> {
        let mut memory = self.memories.take();
        let (account, own) = self.open_account(0);
        let recycler = own.unwrap_or_else(|| Arc::clone(&self.recycler));
        let mut tell = options.watch.map(|watch| move |event: StepEvent| watch(event));
        let mut watch = tell.as_mut().map(|tell| Watch::new(tell));
        let began = watch.as_ref().map(Watch::began);
        let terms = Terms { account: &account, recycler: &recycler, options, progress };
        let mut plans = take(&mut memory.plans);
        let ran = self.run_main(&mut plans, &mut memory, request, &terms, &mut watch);
        let ran = ran.and_then(|Ran { planned, mut held, wanted }| {
            self.collect_outputs(&planned.schedule, &mut held, outputs, &account)?;
            Ok((Arc::clone(planned), held, wanted))
        });
        memory.plans = plans;
        match ran {
            Ok((planned, held, wanted)) => {
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

    /// Runs the model on inputs that stay with the caller. Calls `lend` before the first step for
    /// the memory of each output whose type and dimensions are known by then, that is not empty,
    /// and that is neither an input, nor a constant, nor another output: dense, aligned memory.
    /// Fills `outputs`, one place for each output of the model, with `None` for those written into
    /// lent memory. After the first runs with inputs of some sizes this does not allocate for
    /// the latter, like [`Session::run_into`].
    ///
    /// # Errors
    ///
    /// Those of [`Session::run_with`]; memory of another type or of other dimensions than the
    /// output, or unaligned. Memory written before an error is found stays written.
    pub fn run_lending<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &mut [Option<Value>],
        options: &RunOptions<'_>,
        lend: Option<&mut Lend<'_, 'v>>,
    ) -> Result<(), RunError> {
        let (places, count) = (outputs.len(), self.outputs().len());
        if places != count {
            let what = format!("the model has {count} outputs, but there are places for {places}");
            return Err(InputError::new(what).into());
        }
        let mut give = give_views(inputs);
        let mut request = Request::new(&mut give);
        if let Some(lend) = lend {
            request.lend = Some(lend);
        }
        self.run_to_end(request, Some(outputs), options)
    }

    /// Returns the ports of state whose new values [`Pending::commit`] computes, and may write over
    /// the old ones: those of [`Options::state`](crate::Options::state) that are pointwise
    /// functions, if the rest of the commit does not read the old values.
    pub fn list_state(&self) -> Vec<StatePorts> {
        let body = &self.executable.body;
        let ports = body.committed_outputs().iter().filter_map(|output| {
            let old = body.outputs.get(*output).copied();
            let input = body.inputs.iter().position(|slot| slot.is_some() && *slot == old)?;
            Some(StatePorts { input, output: *output })
        });
        ports.collect()
    }

    /// Runs the model on inputs that stay with the caller, and writes outputs into memory of the
    /// caller. Outputs that are not named are not returned. Inputs that are not dense and aligned
    /// are copied first.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run`]; an output that is named twice, is unknown or not a tensor, or has
    /// another type or other dimensions than its memory. Memory written before an error is found
    /// stays written.
    pub fn run_into<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &'v mut [(&str, TensorViewMut<'_>)],
    ) -> Result<(), RunError> {
        self.run_into_with(inputs, outputs, &RunOptions::new())
    }

    /// Runs the model like [`Session::run_into`], with options.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run_into`]; [`RunError::Stopped`] if the options cancel the run.
    pub fn run_into_with<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        outputs: &'v mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let mut give = give_views(inputs);
        let mut outputs = outputs.iter_mut();
        let request = Request {
            want: Some(&mut |wanted| self.sort_outputs(&mut outputs, wanted)),
            ..Request::new(&mut give)
        };
        self.run_to_end(request, None, options)
    }

    /// Makes a list one place for each output.
    pub(super) fn make_room<'o>(
        &self,
        outputs: &'o mut Vec<Option<Value>>,
    ) -> &'o mut OutputValues {
        outputs.clear();
        outputs.resize_with(self.outputs().len(), || None);
        outputs
    }

    /// Runs the model to the end. Outputs that are not written into memory of the caller become
    /// `values`, if that is given.
    fn run_to_end(
        &self,
        request: Request<'_, '_>,
        values: Option<&mut OutputValues>,
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let _span = spans::enter_run();
        let progress = Progress::default();
        let ran = catch_panic(|| self.run_with_progress(request, values, options, &progress));
        ran.unwrap_or_else(|panic| Err(self.make_panic_error(panic, &progress)))
    }

    /// Makes the error for a panic, and drops all plans, as that of the run may be the cause. Its
    /// memory has been dropped by unwinding.
    #[cold]
    pub(crate) fn make_panic_error(&self, panic: Panic, progress: &Progress) -> RunError {
        self.forget_plans();
        let step = progress.node.get().map(|node| self.executable.label(&[node]));
        RunError::Internal(Box::new(Internal { panic, step }))
    }

    /// Drops the plans of all runs.
    fn forget_plans(&self) {
        *self.plans.lock().unwrap_or_else(PoisonError::into_inner) = Plans::default();
        self.memories.clear();
        self.iteration_plans.iter().for_each(IterationPlans::forget);
    }

    /// Runs [`Session::run_to_end`] and records its progress.
    fn run_with_progress(
        &self,
        request: Request<'_, '_>,
        mut values: Option<&mut OutputValues>,
        options: &RunOptions<'_>,
        progress: &Progress,
    ) -> Result<(), RunError> {
        let (account, own) = self.open_account(0);
        let recycler = own.as_ref().unwrap_or(&self.recycler);
        let terms = Terms { account: &account, recycler, options, progress };
        let mut tell = options.watch.map(|watch| move |event: StepEvent| watch(event));
        let mut watch = tell.as_mut().map(|tell| Watch::new(tell));
        self.with_memory(|memory| {
            with_plans(memory, |plans, memory| {
                let ran = self.run_main(plans, memory, request, &terms, &mut watch)?;
                let Ran { planned, mut held, mut wanted } = ran;
                if let Some(values) = &mut values {
                    self.collect_outputs(&planned.schedule, &mut held, values, &account)?;
                }
                if self.executable.body.commit.is_some() {
                    let made = self.run_commit(memory, planned, &held, &terms, &mut watch)?;
                    self.deliver_state(made, &mut values, &mut wanted, &account)?;
                }
                if values.is_none() {
                    self.copy_outputs(planned, &held, &mut wanted)?;
                }
                memory.held = emptied(held);
                memory.wanted = emptied(wanted);
                Ok(())
            })
        })
    }

    /// Puts new values of state among the output values, or copies them into memory of the caller.
    fn deliver_state(
        &self,
        made: Vec<(usize, Value)>,
        values: &mut Option<&mut OutputValues>,
        wanted: &mut Wanted<'_>,
        account: &Account,
    ) -> Result<(), RunError> {
        for (output, value) in made {
            match (&mut *values, wanted.get_mut(output).and_then(Option::take)) {
                (Some(values), _) => {
                    values[output] = Some(self.release(output, value, account)?);
                }
                (None, Some((name, mut memory))) => {
                    let copied = match &value {
                        Value::Tensor(tensor) => {
                            memory.copy_from(&tensor.view()).map_err(|e| e.to_string())
                        }
                        _ => Err(NOT_A_TENSOR.into()),
                    };
                    copied
                        .map_err(|what| InputError::new(format!("the output '{name}': {what}")))?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Runs the main program.
    pub(super) fn run_main<'p, 'v>(
        &self,
        plans: &'p mut Plans,
        memory: &mut Memory,
        request: Request<'_, 'v>,
        terms: &Terms<'_, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<Ran<'p, 'v>, RunError> {
        let Request { give, mut kept, want, lend } = request;
        let mut given: HeldValues<'v> = emptied(take(&mut memory.given));
        let closed = self.sort_inputs(give, kept.as_deref(), &mut given, terms.account)?;
        let mut wanted: Wanted<'v> = emptied(take(&mut memory.wanted));
        if let Some(want) = want {
            want(&mut wanted)?;
        }
        self.find_plan(plans, &given)?;
        if let Some(kept) = kept.as_deref_mut()
            && !kept.make_room(self, &plans.newest().plan)?
        {
            kept.inputs().for_each(|(input, value)| given[input] = value);
            self.find_plan(plans, &given)?;
        }
        let planned = plans.newest();
        self.charge_arena(&planned.plan, terms.account)?;
        let mut held = self.hold(memory, planned, given);
        if let Some(kept) = kept {
            kept.lend(&planned.schedule, &mut held)?;
        }
        if !wanted.is_empty() {
            self.lend(planned, &mut held, &mut wanted)?;
        }
        if let Some(lend) = lend {
            self.ask_for_memory(planned, &mut held, lend)?;
        }
        let body = &self.executable.body;
        let run = self.start_run(terms, &closed);
        let ran = run.program(body, planned, memory, &mut held, watch);
        ran.map_err(|error| self.explain_failure(planned, error))?;
        if body.commit.is_some() {
            run.check_limits(body, &planned.schedule)?;
        }
        Ok(Ran { planned, held, wanted })
    }

    /// Runs the commit program on old values that the run holds. Returns the new values of state,
    /// with the numbers of their outputs.
    pub(super) fn run_commit(
        &self,
        memory: &mut Memory,
        planned: &Planned,
        held: &[Held<'_>],
        terms: &Terms<'_, '_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<Vec<(usize, Value)>, RunError> {
        let committed = self.executable.body.committed_outputs().len();
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

    /// Returns an account for a run beside a state of `bytes` bytes, and memory for its outputs,
    /// unless it is the session's.
    pub(super) fn open_account(&self, bytes: usize) -> (Account, Option<Arc<Recycler>>) {
        let budget = self.reserved.budget();
        let taken = self.report.made_bytes.saturating_add(bytes);
        let account = Account::with_budget(self.memory_limit, taken, budget);
        // With a shared budget, memory kept for the next run would be missing in other sessions.
        (account, budget.map(|_| Arc::default()))
    }

    /// Copies outputs from other places into the memory of the caller.
    fn copy_outputs(
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

    /// Makes the state of a run.
    fn start_run<'r, 'o: 'r>(
        &'r self,
        terms: &Terms<'r, 'o>,
        closed: &'r [ExcludedBranch<'r>],
    ) -> Run<'r> {
        let RunOptions { stop, deadline, iteration_limit, asks, .. } = terms.options;
        Run {
            executable: &self.executable,
            exec: Exec::new(&self.pool, self.executable.isa),
            random: self.seed.next_run(terms.options.seed),
            recycler: terms.recycler,
            account: terms.account,
            limits: Limits::new(stop.as_ref(), *deadline, *iteration_limit, *asks),
            iteration_plans: &self.iteration_plans,
            closed,
            progress: terms.progress,
        }
    }

    /// Calls a function with a memory that no other run uses, and keeps it for later runs, unless
    /// sessions share a budget.
    pub(super) fn with_memory<R, E>(
        &self,
        body: impl FnOnce(&mut Memory) -> Result<R, E>,
    ) -> Result<R, E> {
        let (mut slot, mut own) = (self.memories.hold(), None);
        let memory = match &mut slot {
            Some(slot) => slot.get_or_insert_default(),
            None => own.get_or_insert_default(),
        };
        // A run within a custom operator is cancelled by its own limits only: the operator could
        // not distinguish the end of the outer run from that of its own.
        let result = Pool::run_to_end(|| Ok(body(memory)));
        if let (Some(slot), Some(_)) = (&mut slot, self.reserved.budget()) {
            **slot = None;
        }
        result
    }

    /// Keeps the memory of a run for later ones, unless sessions share a budget.
    pub(crate) fn give_back(&self, memory: Box<Memory>) {
        if self.reserved.budget().is_none() {
            self.memories.give_back(memory);
        }
    }

    /// Sorts the inputs in the order of the model, checks them against the declared types, and
    /// converts them to the form that kernels read.
    fn sort_inputs<'a, 's>(
        &'s self,
        give: &mut GiveInputs<'_, 'a>,
        kept: Option<&KeptState>,
        given: &mut HeldValues<'a>,
        account: &Account,
    ) -> Result<AllClosed<'s>, RunError> {
        let kept_inputs = kept.into_iter().flat_map(KeptState::inputs);
        let closed = self.input_ports().sort(give, kept_inputs, given)?;
        for (index, port) in self.inputs().iter().enumerate() {
            admit(&mut given[index], port.ty(), account).map_err(|error| {
                RunError::Resources(format!("a copy of input '{}': {error}", port.name()))
            })?;
        }
        Ok(closed)
    }

    /// Sorts memory for outputs in the order of the model.
    fn sort_outputs<'a, 'n: 'a, 't: 'a>(
        &self,
        outputs: &mut slice::IterMut<'a, (&'n str, TensorViewMut<'t>)>,
        wanted: &mut Wanted<'a>,
    ) -> Result<(), RunError> {
        wanted.resize_with(self.outputs().len(), || None);
        for (turn, (name, memory)) in outputs.enumerate() {
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

    /// Charges the arena of a plan.
    fn charge_arena(&self, plan: &Plan, account: &Account) -> Result<(), RunError> {
        let charged = account.charge(plan.arena_bytes);
        charged.map_err(|_| self.arena_refusal(plan, account))
    }

    /// Makes the error for an arena that exceeds the account. Names the first step whose outputs do
    /// not fit.
    fn arena_refusal(&self, plan: &Plan, account: &Account) -> RunError {
        let body = &self.executable.body;
        for step in &body.steps {
            for slot in step.outputs.iter().flatten() {
                if let Place::Arena(range, _) = &plan.places[plan.root(*slot).index()]
                    && let before = account.with_more(range.start)
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

    /// Makes the plan for inputs of these sizes the newest of `plans`.
    fn find_plan(&self, plans: &mut Plans, given: &[Held<'_>]) -> Result<(), RunError> {
        if plans.find(given).is_some() {
            return Ok(());
        }
        let key = key_of(given);
        let all = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all().find(given).cloned();
        let planned = match found {
            Some(planned) => planned,
            None => {
                let planned = Arc::new(self.make_plan(given)?);
                all().keep(key.clone(), planned.clone());
                planned
            }
        };
        plans.keep(key, planned);
        Ok(())
    }

    fn make_plan(&self, given: &[Held<'_>]) -> Result<Planned, RunError> {
        let types: Vec<Option<Type>> = given
            .iter()
            .zip(&self.defaults)
            .map(|(value, default)| {
                let default = || default.as_ref().map(|own| (own.data_type(), own.dims()));
                let (elem, dims) = value.elem_and_dims().or_else(default)?;
                Some(Type::tensor(elem, dims.iter().copied()))
            })
            .collect();
        let FoundSizes { sizes, is_inferred } =
            self.sizes.find(Scope::main(&self.executable), &types)?;
        let kept: Vec<KeptRows> = given.iter().filter_map(Held::rows).collect();
        let planned = Planned::with_kept(&self.executable.body, sizes, &kept);
        Ok(Planned { uninferred: (!is_inferred).then_some(types), ..planned })
    }

    /// Returns the error of a failed run. For sizes that were not inferred, inference may find a
    /// better one than the step that failed.
    fn explain_failure(&self, planned: &Planned, error: RunError) -> RunError {
        match (&error, &planned.uninferred) {
            (RunError::Node(_), Some(types)) => {
                infer_types(Scope::main(&self.executable), types).err().unwrap_or(error)
            }
            _ => error,
        }
    }

    /// Makes the held values at the start of a run.
    fn hold<'a>(
        &self,
        memory: &mut Memory,
        planned: &Planned,
        mut given: HeldValues<'a>,
    ) -> Vec<Held<'a>> {
        let mut held: Vec<Held<'a>> = emptied(take(&mut memory.held));
        held.resize_with(planned.schedule.held, Held::default);
        for (index, place) in planned.schedule.inputs.iter().enumerate() {
            let Some(place) = place else { continue };
            let place = &mut held[*place as usize];
            match (&given[index], &self.defaults[index]) {
                (Held::Nothing, Some(default)) => {
                    *place = Held::Value(Value::Tensor(default.clone()), 0);
                }
                _ => *place = take(&mut given[index]),
            }
        }
        memory.given = emptied(given);
        held
    }

    /// Lends memory of the caller to the steps that write outputs. Entries left in `wanted` must be
    /// copied at the end.
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
            demand_same(name, *data_type, dims, memory)?;
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

    /// Calls `lend` for the memory of outputs that steps can write directly.
    fn ask_for_memory<'a>(
        &self,
        planned: &Planned,
        held: &mut [Held<'a>],
        lend: &mut Lend<'_, 'a>,
    ) -> Result<(), RunError> {
        let sources = &planned.schedule.outputs;
        for (index, port) in self.outputs().iter().enumerate() {
            let (source, slot) = (&sources[index], self.executable.body.outputs[index]);
            let Source::Held { place: number, .. } = source else { continue };
            let place @ Held::Nothing = &mut held[*number as usize] else { continue };
            let Some((data_type, dims)) = &planned.plan.types[slot.index()] else { continue };
            // Skips sparse tensors, which are made from the steps' output, empty outputs, whose
            // address is arbitrary, and outputs that share a value, as only one could have the
            // memory.
            let is_dense = matches!(port.ty(), Some(Type::Tensor(_)));
            let is_other = |(other, source): (usize, &Source)| {
                other != index && source.held_place() == Some(*number)
            };
            if !is_dense || dims.contains(&0) || sources.iter().enumerate().any(is_other) {
                continue;
            }
            let Some(mut memory) = lend(index, *data_type, dims) else { continue };
            demand_same(port.name(), *data_type, dims, &memory)?;
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

    /// Collects the outputs from the held values. `None` for those of the commit program, and for
    /// those in lent memory.
    pub(super) fn collect_outputs(
        &self,
        schedule: &Schedule,
        held: &mut [Held<'_>],
        outputs: &mut OutputValues,
        account: &Account,
    ) -> Result<(), RunError> {
        let committed = self.executable.body.committed_outputs();
        for (index, output) in outputs.iter_mut().enumerate() {
            *output = None;
            if committed.contains(&index) {
                continue;
            }
            let source = &schedule.outputs[index];
            if let Source::Held { place, .. } = source {
                // A value may be several outputs, or be read by the commit program.
                let is_last = !schedule.outputs[index + 1..].contains(source);
                let place = &mut held[*place as usize];
                match place {
                    Held::Output(_) => continue,
                    Held::Value(..) if is_last => {
                        if let Held::Value(value, _) = take(place) {
                            *output = Some(self.release(index, value, account)?);
                        }
                        continue;
                    }
                    _ => {}
                }
            }
            let value = self.copy_output(index, source, held)?;
            *output = Some(self.release(index, value, account)?);
        }
        Ok(())
    }

    /// Copies an output that others read too: an input, a constant, or a value that is several
    /// outputs.
    fn copy_output(
        &self,
        index: usize,
        source: &Source,
        held: &[Held<'_>],
    ) -> Result<Value, RunError> {
        let value = match source {
            Source::Held { place, .. } => match &held[*place as usize] {
                Held::Value(value, _) => Some(value.clone()),
                Held::Borrowed(value) => Some((*value).clone()),
                Held::Input(view) => {
                    let refused = |e: TensorError| RunError::Resources(e.to_string());
                    Some(Value::Tensor(view.to_tensor().map_err(refused)?))
                }
                Held::Nothing | Held::Output(_) | Held::Kept(_) => None,
            },
            Source::Constant { root, .. } => {
                let constant = self.executable.body.slots[root.index()].constant.as_deref();
                constant.cloned().map(Value::Tensor)
            }
            Source::Absent
            | Source::InPlace
            | Source::There(_)
            | Source::Arena(_)
            | Source::Taken { .. } => None,
        };
        value.ok_or_else(|| {
            let name = self.outputs()[index].name();
            InputError::new(format!("the output '{name}' is not a value")).into()
        })
    }

    /// Converts an output to the declared type.
    #[inline]
    pub(super) fn release(
        &self,
        output: usize,
        value: Value,
        account: &Account,
    ) -> Result<Value, RunError> {
        let port = &self.outputs()[output];
        // Most values stay, and a call would copy them.
        if !port.ty().is_some_and(has_sparse) {
            return Ok(value);
        }
        convert_output(value, port.ty(), account)
            .map_err(|error| RunError::Resources(format!("the output '{}': {error}", port.name())))
    }
}

/// Calls a function with the plans of a memory beside the rest of it, so that a run borrows its
/// plan while it uses the memory.
pub(super) fn with_plans<R>(
    memory: &mut Memory,
    body: impl FnOnce(&mut Plans, &mut Memory) -> R,
) -> R {
    let mut plans = take(&mut memory.plans);
    let result = body(&mut plans, memory);
    memory.plans = plans;
    result
}

/// Reason that memory of the caller cannot hold an output.
const NOT_A_TENSOR: &str = "it is not a tensor, so it cannot be written into memory of the caller";

/// Refuses memory of another type or of other dimensions than an output.
fn demand_same(
    name: &str,
    data_type: DataType,
    dims: &[usize],
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
