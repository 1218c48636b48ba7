//! Runs of a session, also in a thread of their own.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::PoisonError;
use std::thread;

use sardonyx::tool::{Lend, SessionExt};
use sardonyx::{
    ErrorKind, Port, RunOptions as EngineOptions, Session as Engine, StopFlag, Tensor, TensorView,
    Value as EngineValue,
};
use sardonyx_ort::ports::{demand_inputs, has_different_sizes};
use sardonyx_ort::{Status as Code, unknown_name};
use smallvec::SmallVec;

use crate::failure::{Error, StatusPointer, answer, argument};
use crate::handles::{Handle, give_boxed};
use crate::options::RunOptions;
use crate::pointers::{Array, Out, Text};
use crate::session::{Opens, Session};
use crate::values::{Value, fit_to_input};

/// Input of a run: its name, and its value, which the run borrows.
pub(crate) type Input<'a> = (Cow<'a, str>, &'a Value);

/// Inputs of a run.
type Inputs<'a> = [Input<'a>];

/// Output that a run returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Index of the output.
    pub(crate) index: usize,
    /// Value that takes it; `None` for a new one.
    pub(crate) into: Option<&'a Value>,
}

/// Inputs and wanted outputs of a run; few need no allocation.
pub(crate) type InputList<'a> = SmallVec<[Input<'a>; 4]>;
pub(crate) type WantedList<'a> = SmallVec<[Wanted<'a>; 2]>;

/// Wanted outputs as their indices and the values that take them, for runs that outlive the
/// caller's handles.
pub(crate) type OwnedWanted = Vec<(usize, Option<Value>)>;

/// Borrows the values that take outputs.
pub(crate) fn borrow_wanted(owned: &OwnedWanted) -> WantedList<'_> {
    owned.iter().map(|(index, into)| Wanted { index: *index, into: into.as_ref() }).collect()
}

/// New values of a run, by wanted output; `None` where a given value takes the output.
pub(crate) type NewValues = SmallVec<[Option<Box<Value>>; 2]>;

/// Runs a session and returns the wanted outputs in order.
///
/// # Errors
///
/// The error of the run with its status.
pub(crate) fn run(
    session: &Opens,
    stop: Option<&StopFlag>,
    inputs: &Inputs<'_>,
    wanted: &[Wanted<'_>],
) -> Result<NewValues, Error> {
    let mut values: SmallVec<[Option<EngineValue>; 2]> = SmallVec::new();
    values.resize_with(session.session.outputs().len(), || None);
    match run_once(&session.session, session, stop, inputs, wanted, &mut values)? {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Input => {
            demand_all(session, inputs)?;
            let differ = has_different_sizes(session.session.inputs(), |port| {
                let (_, value) = inputs.iter().find(|(known, _)| known == port.name())?;
                Some(value.as_tensor()?.dims().to_vec())
            });
            if !differ {
                return Err(to_run_error(&error));
            }
            let independent = session.independent().map_err(|error| to_run_error(&error))?;
            let again = run_once(independent, session, stop, inputs, wanted, &mut values)?;
            again.map_err(|error| to_run_error(&error))?;
        }
        Err(error) => return Err(to_run_error(&error)),
    }
    collect_outputs(&mut values, wanted)
}

fn to_run_error(error: &sardonyx::Error) -> Error {
    Error::from_sardonyx(Code::of_run(error.kind()), error)
}

fn demand_all(session: &Opens, inputs: &Inputs<'_>) -> Result<(), Error> {
    let given: Vec<String> = inputs.iter().map(|(name, _)| name.to_string()).collect();
    demand_inputs(session.session.inputs(), &given, |name| given.iter().any(|known| known == name))
}

/// Outputs of the engine in the model's order; `None` for one that was written in place.
type EngineOutputs = [Option<EngineValue>];

/// Runs an engine, within the limits of the options, and records its steps for the profile.
fn run_once(
    engine: &Engine,
    session: &Opens,
    stop: Option<&StopFlag>,
    inputs: &Inputs<'_>,
    wanted: &[Wanted<'_>],
    outputs: &mut EngineOutputs,
) -> Result<Result<(), sardonyx::Error>, Error> {
    let mut options = EngineOptions::new();
    options.stop = stop.cloned();
    // The profile describes the steps of the first engine.
    let is_first = std::ptr::eq(engine, &raw const session.session);
    let profile = session.profile.as_ref().filter(|_| is_first);
    let Some(recorder) = profile.and_then(|profile| profile.recorder()) else {
        return run_engine(engine, session, &options, inputs, wanted, outputs);
    };
    recorder.record(|watch| {
        let mut options = EngineOptions::new().watch(watch);
        options.stop = stop.cloned();
        run_engine(engine, session, &options, inputs, wanted, outputs)
    })
}

fn run_engine(
    engine: &Engine,
    session: &Opens,
    options: &EngineOptions<'_>,
    inputs: &Inputs<'_>,
    wanted: &[Wanted<'_>],
    outputs: &mut EngineOutputs,
) -> Result<Result<(), sardonyx::Error>, Error> {
    if session.has_tensors_only
        && let Some(strings) = hold_strings(inputs)?
    {
        return Ok(run_in_place(engine, options, inputs, &strings, wanted, outputs));
    }
    let mut values = Vec::with_capacity(inputs.len());
    for (name, value) in inputs {
        let port = engine.inputs().iter().find(|port| port.name() == *name);
        let value = fit_to_input(value.to_engine()?, port.and_then(|port| port.ty()));
        values.push((name.as_ref(), value));
    }
    Ok(engine.run(values, options).map(|values| {
        for (output, value) in outputs.iter_mut().zip(values.into_values()) {
            *output = Some(value);
        }
    }))
}

/// Tensors of strings among the inputs, with their indices. Inputs are rarely strings.
type HeldStrings = Vec<(usize, Tensor)>;

/// Makes the tensors of strings for a run; `None` if an input is not a tensor.
fn hold_strings(inputs: &Inputs<'_>) -> Result<Option<HeldStrings>, Error> {
    let mut held = HeldStrings::new();
    for (index, (_, value)) in inputs.iter().enumerate() {
        match value.strings() {
            Some(strings) => {
                let strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
                held.push((index, strings.to_tensor()?));
            }
            None if value.as_tensor().is_some() => {}
            None => return Ok(None),
        }
    }
    Ok(Some(held))
}

/// Runs an engine on tensors, without a copy of inputs, and writes outputs to given values.
fn run_in_place(
    engine: &Engine,
    options: &EngineOptions<'_>,
    inputs: &Inputs<'_>,
    strings: &[(usize, Tensor)],
    wanted: &[Wanted<'_>],
    outputs: &mut EngineOutputs,
) -> Result<(), sardonyx::Error> {
    let mut views: SmallVec<[(&str, TensorView<'_>); 4]> = SmallVec::new();
    let mut strings = strings.iter().peekable();
    for (index, (name, value)) in inputs.iter().enumerate() {
        let held = strings.next_if(|(place, _)| *place == index).map(|(_, tensor)| tensor);
        if let Some(tensor) = held.or_else(|| value.as_tensor()) {
            views.push((name.as_ref(), tensor.view()));
        }
    }
    if wanted.iter().all(|output| output.into.is_none()) {
        return engine.run_lending_to(outputs, &views, options, None);
    }
    let bytes = views.iter().filter_map(|(_, view)| view.contiguous_bytes());
    let used = bytes.map(|bytes| to_range(bytes.as_ptr(), bytes.len()));
    let mut used: SmallVec<[Range<usize>; 4]> = used.collect();
    let lend: &mut Lend<'_, '_> = &mut |index, data_type, dims| {
        let output = wanted.iter().find(|output| output.index == index)?;
        let value = output.into?;
        let bytes = value.as_tensor()?.bytes();
        let range = to_range(bytes.as_ptr(), bytes.len());
        // The engine writes to aligned memory only; other memory gets a copy.
        if !data_type.element_bytes().is_none_or(|size| range.start.is_multiple_of(size)) {
            return None;
        }
        if used.iter().any(|other| other.start < range.end && range.start < other.end) {
            return None;
        }
        used.push(range);
        value.lend(data_type, dims)
    };
    engine.run_lending_to(outputs, &views, options, Some(lend))
}

fn to_range(start: *const u8, len: usize) -> Range<usize> {
    start.addr()..start.addr().saturating_add(len)
}

/// Makes the wanted outputs values of the caller.
fn collect_outputs(values: &mut EngineOutputs, wanted: &[Wanted<'_>]) -> Result<NewValues, Error> {
    let mut results = NewValues::new();
    for (place, output) in wanted.iter().enumerate() {
        let earlier = wanted[..place].iter().position(|other| other.index == output.index);
        let earlier = earlier.and_then(|place| results[place].as_deref().or(wanted[place].into));
        let result = match (values[output.index].take(), output.into, earlier) {
            (Some(value), Some(into), _) => {
                into.copy_from(&value)?;
                None
            }
            (Some(value), None, _) => Some(Value::from_engine(value)?),
            (None, None, Some(earlier)) => Some(Box::new(earlier.clone())),
            (None, Some(into), Some(earlier)) => {
                into.copy_from(&earlier.to_engine()?)?;
                None
            }
            (None, Some(_), None) => None,
            (None, None, None) => return Err(argument("the run returned no such output")),
        };
        results.push(result);
    }
    Ok(results)
}

/// Arguments of a run, as C code passes them.
#[derive(Clone, Copy)]
struct Request {
    session: Handle<Session>,
    options: Handle<RunOptions>,
    input_names: Array<Text>,
    inputs: Array<Handle<Value>>,
    input_count: usize,
    output_names: Array<Text>,
    output_count: usize,
    outputs: Out<*mut Value>,
}

impl Request {
    /// Reads inputs and outputs into lists of the caller: a result of both would be copied.
    fn read<'a>(
        &'a self,
        inputs: &mut InputList<'a>,
        wanted: &mut WantedList<'a>,
    ) -> Result<(), Error> {
        let names = self.input_names.read(self.input_count, "names of inputs")?;
        let values = self.inputs.read(self.input_count, "inputs")?;
        let session = &self.session.get()?.0;
        let ports = session.session.inputs();
        for (turn, name) in names.iter().enumerate() {
            let name = match find_port(ports, turn, *name) {
                Some(index) => Cow::Borrowed(ports[index].name()),
                None => name.read("name of an input")?,
            };
            inputs.push((name, values[turn].get()?));
        }
        let names = self.output_names.read(self.output_count, "names of outputs")?;
        let values = self.outputs.read(self.output_count, "outputs")?;
        let ports = session.session.outputs();
        for (turn, name) in names.iter().enumerate() {
            let index = match find_port(ports, turn, *name) {
                Some(index) => index,
                None => find_output(session, &name.read("name of an output")?)?,
            };
            wanted.push(Wanted { index, into: Handle::borrow(&values[turn])? });
        }
        Ok(())
    }

    fn run(&self, inputs: &Inputs<'_>, wanted: &[Wanted<'_>]) -> Result<(), Error> {
        let stop = self.options.optional()?.map(|options| &options.stop);
        give_outputs(self.outputs, run(&self.session.get()?.0, stop, inputs, wanted)?)
    }
}

/// Hands new values to the caller, whose places for them have null pointers.
fn give_outputs(outputs: Out<*mut Value>, results: NewValues) -> Result<(), Error> {
    for (index, result) in results.into_iter().enumerate() {
        if let Some(value) = result {
            outputs.set_at(index, give_boxed(value))?;
        }
    }
    Ok(())
}

/// Returns the index of the port of this name, without a check that the name is text. Looks at
/// index `turn` first, as callers mostly pass values in the model's order.
fn find_port(ports: &[Port], turn: usize, name: Text) -> Option<usize> {
    let name = name.bytes()?;
    match ports.get(turn) {
        Some(port) if port.name().as_bytes() == name => Some(turn),
        _ => ports.iter().position(|port| port.name().as_bytes() == name),
    }
}

/// Returns the index of the output of this name.
///
/// # Errors
///
/// No output has the name.
pub(crate) fn find_output(session: &Opens, name: &str) -> Result<usize, Error> {
    let outputs = session.session.outputs();
    outputs.iter().position(|port| port.name() == name).ok_or_else(|| {
        let names: Vec<&str> = outputs.iter().map(|port| port.name()).collect();
        argument(unknown_name("output", name, &names))
    })
}

pub(crate) extern "C" fn run_session(
    session: Handle<Session>,
    options: Handle<RunOptions>,
    input_names: Array<Text>,
    inputs: Array<Handle<Value>>,
    input_count: usize,
    output_names: Array<Text>,
    output_count: usize,
    outputs: Out<*mut Value>,
) -> StatusPointer {
    answer("Run", || {
        let request = Request {
            session,
            options,
            input_names,
            inputs,
            input_count,
            output_names,
            output_count,
            outputs,
        };
        let (mut inputs, mut wanted) = (InputList::new(), WantedList::new());
        request.read(&mut inputs, &mut wanted)?;
        request.run(&inputs, &wanted)
    })
}

/// Function of the caller that takes the outputs of a run: its parameter, the outputs, their number
/// and the status.
type Callback = unsafe extern "C" fn(*mut c_void, *mut *mut Value, usize, StatusPointer);

pub(crate) use asynchronous::run_async;

/// Runs in a thread of their own, which calls a function of the caller.
mod asynchronous {
    #![allow(unsafe_code)]

    use super::*;

    /// Arguments of the caller that the thread uses at the end.
    struct Task {
        outputs: Out<*mut Value>,
        output_count: usize,
        callback: Callback,
        parameter: *mut c_void,
    }

    // SAFETY: the C interface demands that the outputs stay until the callback is called, from any
    // thread, with its parameter.
    unsafe impl Send for Task {}

    impl Task {
        fn call(self, status: StatusPointer) {
            // SAFETY: the caller has given the function for these arguments.
            unsafe {
                (self.callback)(self.parameter, self.outputs.address(), self.output_count, status);
            }
        }
    }

    pub(crate) extern "C" fn run_async(
        session: Handle<Session>,
        options: Handle<RunOptions>,
        input_names: Array<Text>,
        inputs: Array<Handle<Value>>,
        input_count: usize,
        output_names: Array<Text>,
        output_count: usize,
        outputs: Out<*mut Value>,
        callback: Option<Callback>,
        parameter: *mut c_void,
    ) -> StatusPointer {
        answer("RunAsync", || {
            let callback = callback.ok_or_else(|| argument("the callback is a null pointer"))?;
            let request = Request {
                session,
                options,
                input_names,
                inputs,
                input_count,
                output_names,
                output_count,
                outputs,
            };
            let (mut inputs, mut wanted) = (InputList::new(), WantedList::new());
            request.read(&mut inputs, &mut wanted)?;
            let wanted: OwnedWanted =
                wanted.iter().map(|output| (output.index, output.into.cloned())).collect();
            let inputs: Vec<(String, Value)> = inputs
                .into_iter()
                .map(|(name, value)| (name.into_owned(), value.clone()))
                .collect();
            let stop = options.optional()?.map(|options| options.stop.clone());
            let session = session.get()?.0.clone();
            let task = Task { outputs, output_count, callback, parameter };
            let spawned = thread::Builder::new().name("sardonyx run".into()).spawn(move || {
                let task = task;
                let given = &task;
                // The caller waits for the callback, so a panic becomes a status too. The body
                // drops what it uses before the callback, which may release the session.
                let status = answer("RunAsync", move || {
                    let borrowed = inputs.iter().map(|(name, value)| (Cow::from(name), value));
                    let borrowed: InputList<'_> = borrowed.collect();
                    let wanted = borrow_wanted(&wanted);
                    let results = run(&session, stop.as_ref(), &borrowed, &wanted)?;
                    give_outputs(given.outputs, results)
                });
                task.call(status);
            });
            spawned.map(|_| ()).map_err(|error| {
                Error::new(Code::Fail, ErrorKind::Internal, format!("no thread: {error}"))
            })
        })
    }
}
