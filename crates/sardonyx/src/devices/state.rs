//! Runs on state variables that stay on the devices, such as the weights of a trainer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_model::Type;
use sardonyx_runtime::RunOptions;
use sardonyx_shard::{Device, Form, Plan, Resident};
use sardonyx_tensor::{DataType, Tensor, Value};

use super::runs::{OpenRuns, RunResult};
use super::seat::{Inputs, Limits, RunInputs, Terms};
use super::{DeviceSession, Parts};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Choices;

/// Sharding of each state variable, chosen by the first plan that reads or assigns the variable;
/// later plans follow.
#[derive(Debug, Default)]
pub(crate) struct StateForms(Mutex<Vec<Option<Form>>>);

impl StateForms {
    /// Makes the table for this number of state variables, none of which has a sharding yet.
    pub(crate) fn new(variables: usize) -> StateForms {
        StateForms(Mutex::new(vec![None; variables]))
    }

    /// Locks the table: the sharding of each state variable, `None` until a plan chooses it.
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Form>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State variable that a model reads from its device shards and may assign.
#[derive(Debug)]
pub(crate) struct ResidentVariable {
    /// Index of the variable in the trainer's state.
    pub(crate) variable: usize,
    /// Name of the model's input that reads the variable.
    pub(crate) name: Arc<str>,
    /// Index of the model's input that reads the variable.
    pub(crate) input: usize,
    /// Index of the model's output that computes the variable's new value; `None` if the model only
    /// reads the variable.
    pub(crate) output: Option<usize>,
    /// Element type and sizes of the whole variable.
    pub(crate) ty: (DataType, Vec<usize>),
}

/// State variables of a model, which stay on the devices between runs.
#[derive(Debug, Default)]
pub(crate) struct ResidentVariables {
    pub(crate) all: Vec<ResidentVariable>,
    /// Indices of the model's outputs that a run does not return to the caller.
    pub(crate) unreturned: Vec<usize>,
    /// Sharding of the variables, shared by all models that use them.
    pub(crate) forms: Arc<StateForms>,
}

impl ResidentVariables {
    /// Whether the model has no state variables.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the model input called `input` reads a state variable.
    pub(super) fn has_input(&self, input: &str) -> bool {
        self.all.iter().any(|stay| *stay.name == *input)
    }

    /// Sets the types of the inputs that read state variables in `types`, which has one entry for
    /// each model input, and returns all types.
    pub(super) fn set_types(&self, mut types: Vec<Option<Type>>) -> Vec<Option<Type>> {
        for stay in &self.all {
            if let Some(ty) = types.get_mut(stay.input) {
                *ty = Some(Type::tensor(stay.ty.0, stay.ty.1.iter().copied()));
            }
        }
        types
    }

    /// Describes the state variables to the sharding planner: their inputs, outputs and current
    /// shardings.
    pub(super) fn describe_residents(&self) -> Vec<Resident> {
        let forms = self.forms.lock();
        let residents = self.all.iter().map(|stay| Resident {
            input: stay.input,
            output: stay.output,
            form: forms.get(stay.variable).cloned().flatten(),
        });
        residents.collect()
    }

    /// Fixes the shardings that a plan has chosen for state variables without a sharding.
    pub(super) fn settle_forms(&self, plan: &Plan) {
        let mut forms = self.forms.lock();
        for (stay, chosen) in self.all.iter().zip(plan.forms_of_residents()) {
            if let Some(form) = forms.get_mut(stay.variable)
                && form.is_none()
            {
                *form = chosen.cloned();
            }
        }
    }
}

/// Outputs of a run on state variables, and the new value of each variable that the run assigned,
/// with the variable's index.
pub(crate) type StateRun = (Outputs, Vec<(usize, Arc<Parts>)>);

impl DeviceSession {
    /// Makes a session of another model on the devices of this session, with its seed and threads,
    /// so that both models can share state variables.
    pub(crate) fn make_sibling(
        &self,
        model: &Model,
        choices: &Choices,
        stays: ResidentVariables,
    ) -> Result<DeviceSession, Error> {
        let mut choices = choices.clone();
        choices.options.seed = self.choices.options.seed;
        choices.options.threads = self.choices.options.threads;
        let model = choices.take_functions(model)?;
        DeviceSession::new(model, choices, self.crew.clone(), stays)
    }

    /// Returns the seed that the random operators of all devices share.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.choices.options.seed
    }

    /// Distributes a whole tensor over the devices of this process, by the sharding `form`.
    pub(crate) fn distribute(&self, whole: &Tensor, form: &Form) -> Result<Parts, Error> {
        Parts::from_whole(whole, form, self.crew.seats.iter().map(|seat| seat.device))
    }

    /// Runs the model once on state variables. `parts` returns the shards of the variable with a
    /// given index, in a given sharding.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::run`]; [`ErrorKind::Run`] if the new value of a variable has
    /// another type than the variable.
    pub(crate) fn run_on_state(
        &self,
        inputs: Vec<(&str, Value)>,
        parts: &dyn Fn(usize, &Form) -> Result<Arc<Parts>, Error>,
        options: &RunOptions<'_>,
    ) -> Result<StateRun, Error> {
        let (inputs, limits) = (self.collect_inputs(inputs)?, Limits::new(options)?);
        catch_panic(|| self.run_with_parts(inputs, parts, &limits))
    }

    /// Runs the model for [`DeviceSession::run_on_state`], which catches panics.
    fn run_with_parts(
        &self,
        inputs: Inputs,
        parts: &dyn Fn(usize, &Form) -> Result<Arc<Parts>, Error>,
        limits: &Limits,
    ) -> Result<StateRun, Error> {
        self.check_required_inputs(&inputs)?;
        let _turn = self.crew.take_turn();
        let types = self.stays.set_types(self.find_types(&inputs));
        let fitted = self.fit_plan(&types)?;
        let forms: Vec<Option<Form>> =
            fitted.prepared.plan.forms_of_residents().map(|form| form.cloned()).collect();
        let mut residents = Vec::with_capacity(forms.len());
        for (stay, form) in self.stays.all.iter().zip(&forms) {
            if let Some(form) = form {
                residents.push((Arc::clone(&stay.name), parts(stay.variable, form)?));
            }
        }
        let mut running = OpenRuns::new(self);
        let transport = self.crew.transport().ok_or_else(|| self.crew.make_worker_error())?;
        let terms = Terms::new(transport.endpoint().next_run(), limits, None);
        running.start(fitted, RunInputs { inputs, residents }, terms);
        let RunResult { outputs, kept: mut left, .. } = running.finish_next()?;
        let mut assigned = Vec::new();
        for (index, (stay, form)) in self.stays.all.iter().zip(&forms).enumerate() {
            let (Some(form), Some(_)) = (form, stay.output) else { continue };
            let kept = left.iter_mut();
            let kept =
                kept.filter_map(|(device, kept)| Some((*device, kept.get_mut(index)?.take()?)));
            let own: Result<Vec<(Device, Tensor)>, Error> =
                kept.map(|(device, value)| Ok((device, stay.take_tensor(value)?))).collect();
            let (elem, dims) = &stay.ty;
            let new = Parts::from_computed(*elem, dims, form, own?);
            let new = new.map_err(|part| stay.make_type_error(&part))?;
            assigned.push((stay.variable, Arc::new(new)));
        }
        Ok((outputs, assigned))
    }
}

impl ResidentVariable {
    /// Converts a new value of the state variable into its tensor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if the value is not a tensor.
    fn take_tensor(&self, value: Value) -> Result<Tensor, Error> {
        match value {
            Value::Tensor(tensor) => Ok(tensor),
            other => {
                let message = format!(
                    "the state variable '{}' is a tensor, not {}",
                    self.name,
                    other.value_type()
                );
                Err(Error::new(ErrorKind::Run, message))
            }
        }
    }

    /// Makes the error for a new value whose element type or sizes differ from the state
    /// variable's.
    fn make_type_error(&self, part: &Tensor) -> Error {
        let own = Type::tensor(self.ty.0, self.ty.1.iter().copied());
        let given = Type::tensor(part.data_type(), part.dims().iter().copied());
        let message = format!("the state variable '{}' is {own}, not {given}", self.name);
        Error::new(ErrorKind::Run, message)
    }
}
