//! Runs on state that stays on the devices, as that of a trainer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_model::Type;
use sardonyx_passes::{Device, Form, Plan, Resident};
use sardonyx_runtime::RunOptions;
use sardonyx_tensor::{DataType, Tensor, Value};

use super::runs::{Found, Running};
use super::seat::{Inputs, Limits, Taken, Terms};
use super::{DeviceSession, Parts};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Choices;

/// The forms of state variables, by their numbers. The first plan that reads or assigns one says in
/// which form it is best had; it stays in that.
#[derive(Debug, Default)]
pub(crate) struct Forms(Mutex<Vec<Option<Form>>>);

impl Forms {
    /// So many variables in no form yet.
    pub(crate) fn open(variables: usize) -> Forms {
        Forms(Mutex::new(vec![None; variables]))
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Option<Form>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state variable that a model reads and may assign.
#[derive(Debug)]
pub(crate) struct Stay {
    /// The number of the variable.
    pub(crate) variable: usize,
    /// The name of the input of the model.
    pub(crate) name: Arc<str>,
    /// Its position.
    pub(crate) input: usize,
    /// The position of the output that is the new value.
    pub(crate) output: Option<usize>,
    /// Element type and sizes.
    pub(crate) ty: (DataType, Vec<usize>),
}

/// What stays on the devices between runs of a model.
#[derive(Debug, Default)]
pub(crate) struct Stays {
    pub(crate) all: Vec<Stay>,
    /// Outputs, by position, that nobody is given.
    pub(crate) unreturned: Vec<usize>,
    /// Those of all models that share the state.
    pub(crate) forms: Arc<Forms>,
}

impl Stays {
    /// Whether nothing stays.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether an input stays.
    pub(super) fn have(&self, input: &str) -> bool {
        self.all.iter().any(|stay| *stay.name == *input)
    }

    /// The types of inputs, by position, with those of what stays.
    pub(super) fn with_types(&self, mut types: Vec<Option<Type>>) -> Vec<Option<Type>> {
        for stay in &self.all {
            if let Some(ty) = types.get_mut(stay.input) {
                *ty = Some(Type::tensor(stay.ty.0, stay.ty.1.iter().copied()));
            }
        }
        types
    }

    pub(super) fn unreturned(&self) -> &[usize] {
        &self.unreturned
    }

    /// What a plan is to know.
    pub(super) fn residents(&self) -> Vec<Resident> {
        let forms = self.forms.locked();
        let resident = |stay: &Stay| Resident {
            input: stay.input,
            output: stay.output,
            form: forms.get(stay.variable).cloned().flatten(),
        };
        self.all.iter().map(resident).collect()
    }

    /// Takes over the forms that a plan has chosen.
    pub(super) fn settle(&self, plan: &Plan) {
        let mut forms = self.forms.locked();
        for (stay, chosen) in self.all.iter().zip(plan.forms_of_residents()) {
            if let Some(form) = forms.get_mut(stay.variable)
                && form.is_none()
            {
                *form = chosen.cloned();
            }
        }
    }
}

/// What a run has computed: outputs, and new values of variables by their numbers.
pub(crate) type OnDevices = (Outputs, Vec<(usize, Arc<Parts>)>);

impl DeviceSession {
    /// A session of another model, whose state stays on the devices of this one.
    pub(crate) fn beside(
        &self,
        model: &Model,
        choices: &Choices,
        stays: Stays,
    ) -> Result<DeviceSession, Error> {
        let mut choices = choices.clone();
        choices.options.seed = self.choices.options.seed;
        choices.options.threads = self.choices.options.threads;
        let model = choices.take_functions(model)?;
        DeviceSession::new(model, choices, self.crew.clone(), stays)
    }

    /// What all devices draw random numbers by.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.choices.options.seed
    }

    /// The parts that the devices of this process have of a tensor in a form.
    pub(crate) fn parts_of(&self, whole: &Tensor, form: &Form) -> Result<Parts, Error> {
        Parts::of(whole, form, self.crew.seats.iter().map(|seat| seat.device))
    }

    /// Runs the model once. `parts` gives what devices have of a variable, by its number, in a
    /// form.
    ///
    /// # Errors
    ///
    /// As [`DeviceSession::run`]; if a new value has another type than its variable.
    pub(crate) fn run_on_state(
        &self,
        inputs: Vec<(&str, Value)>,
        parts: &dyn Fn(usize, &Form) -> Result<Arc<Parts>, Error>,
        options: &RunOptions<'_>,
    ) -> Result<OnDevices, Error> {
        let (inputs, limits) = (self.inputs_of(inputs)?, Limits::new(options)?);
        catch_panic(|| self.run_with_parts(inputs, parts, &limits))
    }

    fn run_with_parts(
        &self,
        inputs: Inputs,
        parts: &dyn Fn(usize, &Form) -> Result<Arc<Parts>, Error>,
        limits: &Limits,
    ) -> Result<OnDevices, Error> {
        self.demand_all(&inputs)?;
        let _turn = self.crew.take_turn();
        let types = self.stays.with_types(self.types_of(&inputs));
        let fitted = self.fit_plan(&types)?;
        let forms: Vec<Option<Form>> =
            fitted.prepared.plan.forms_of_residents().map(|form| form.cloned()).collect();
        let mut residents = Vec::with_capacity(forms.len());
        for (stay, form) in self.stays.all.iter().zip(&forms) {
            if let Some(form) = form {
                residents.push((Arc::clone(&stay.name), parts(stay.variable, form)?));
            }
        }
        let mut running = Running::new(self);
        let transport = self.crew.transport().ok_or_else(|| self.crew.only_first())?;
        let terms = Terms::new(transport.endpoint().next_run(), limits, None);
        running.start(fitted, Taken { inputs, residents }, terms);
        let Found { outputs, kept: mut left, .. } = running.finish_next()?;
        let mut assigned = Vec::new();
        for (index, (stay, form)) in self.stays.all.iter().zip(&forms).enumerate() {
            let (Some(form), Some(_)) = (form, stay.output) else { continue };
            let kept = left.iter_mut();
            let kept =
                kept.filter_map(|(device, kept)| Some((*device, kept.get_mut(index)?.take()?)));
            let own: Result<Vec<(Device, Tensor)>, Error> =
                kept.map(|(device, value)| Ok((device, stay.tensor(value)?))).collect();
            let new = Parts::computed(&stay.ty, form, own?).map_err(|part| stay.unfit(&part))?;
            assigned.push((stay.variable, Arc::new(new)));
        }
        Ok((outputs, assigned))
    }
}

impl Stay {
    fn tensor(&self, value: Value) -> Result<Tensor, Error> {
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

    fn unfit(&self, part: &Tensor) -> Error {
        let shown = |elem: DataType, dims: &[usize]| Type::tensor(elem, dims.iter().copied());
        let (ty, given) = (shown(self.ty.0, &self.ty.1), shown(part.data_type(), part.dims()));
        let message = format!("the state variable '{}' is {ty}, not {given}", self.name);
        Error::new(ErrorKind::Run, message)
    }
}
