//! Run of one case, from its files to an outcome: the only part of the runner that calls the
//! library.

use crate::cases::{Case, DataSet};
use crate::outcome::{Class, Failure, Outcome};
use crate::trials;
use sardonyx::value::Tolerance;
use sardonyx::{Error, ErrorKind, Model, Port, Session, Type, Value};
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

/// Place and message of the last panic, in any thread.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Loads the model, runs every data set and compares the outputs.
pub fn run_case(case: &Case) -> Outcome {
    catch_panic(|| {
        let tolerance = case.tolerance().map_err(unreadable)?;
        run_model(case, &Model::open(case.model()).map_err(failure)?, tolerance)
    })
}

/// Runs a function. Returns a panic as an outcome.
pub fn catch_panic(run: impl FnOnce() -> Outcome) -> Outcome {
    panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = info.to_string();
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let why = LAST_PANIC.lock().map(|last| last.clone()).unwrap_or_default();
        Err(Failure::new(Class::Panic, why))
    })
}

/// Runs every data set of a case on a model.
pub(crate) fn run_model(case: &Case, model: &Model, tolerance: Tolerance) -> Outcome {
    let data_sets = case.data_sets().map_err(unreadable)?;
    // The processes share the machine; each case is small.
    let session = Session::builder(model).threads(1).build().map_err(failure)?;
    for (index, data) in data_sets.iter().enumerate() {
        run_data_set(case, &session, data, tolerance).map_err(|failure| match data_sets.len() {
            1 => failure,
            _ => Failure::new(failure.class, format!("data set {index}: {}", failure.detail)),
        })?;
    }
    Ok(())
}

fn run_data_set(case: &Case, session: &Session, data: &DataSet, tolerance: Tolerance) -> Outcome {
    let inputs = read_inputs(session, data)?;
    if let (true, [port], [bytes]) = (trials::is_random(case), session.outputs(), &data.outputs[..])
    {
        return trials::judge(case, session, &inputs, &read(bytes, port)?);
    }
    let outputs = session.run(inputs, &Default::default()).map_err(failure)?;
    if outputs.len() != data.outputs.len() {
        return Err(wrong(format!("{} outputs, not {}", outputs.len(), data.outputs.len())));
    }
    let wanted = session.outputs().iter().zip(&data.outputs);
    for ((name, got), (port, bytes)) in outputs.iter().zip(wanted) {
        got.compare(&read(bytes, port)?, tolerance)
            .map_err(|why| wrong(format!("{name}: {why}")))?;
    }
    Ok(())
}

/// Reads the inputs of a data set.
pub fn read_inputs<'s>(
    session: &'s Session,
    data: &DataSet,
) -> Result<Vec<(&'s str, Value)>, Failure> {
    // Data sets leave out the inputs that have a default value.
    let fed = session.inputs().iter().filter(|port| port.is_required() || is_optional(port));
    let mut inputs: Vec<(&str, Value)> = Vec::new();
    for (port, bytes) in fed.zip(&data.inputs) {
        // An empty file is an input that is left out.
        if !bytes.is_empty() {
            inputs.push((port.name(), read(bytes, port)?));
        }
    }
    Ok(inputs)
}

fn is_optional(port: &Port) -> bool {
    matches!(port.ty(), Some(Type::Optional(_)))
}

fn read(bytes: &[u8], port: &Port) -> Result<Value, Failure> {
    let Some(ty) = port.ty() else {
        return Err(Failure::new(Class::Error, format!("`{}` has no type", port.name())));
    };
    sardonyx::io::read_value(bytes.to_vec(), ty).map_err(failure)
}

pub fn wrong(why: String) -> Failure {
    Failure::new(Class::Wrong, why)
}

/// Makes the failure of a case whose files cannot be read.
pub(crate) fn unreadable(error: std::io::Error) -> Failure {
    Failure::new(Class::Error, format!("the case is broken: {error}"))
}

pub(crate) fn failure(error: Error) -> Failure {
    let operators =
        error.unsupported_operators().iter().map(|operator| match operator.domain.as_str() {
            "" => operator.name.clone(),
            domain => format!("{domain}.{}", operator.name),
        });
    let operators: BTreeSet<String> = operators.collect();
    if !operators.is_empty() {
        let names: Vec<String> = operators.into_iter().collect();
        return Failure::new(Class::OperatorNotImplemented, names.join(", "));
    }
    let message = match error.place() {
        Some(place) => format!("{place}: {}", error.message()),
        None => error.message().to_string(),
    };
    match error.kind() {
        ErrorKind::Unsupported => Failure::new(Class::TypeNotImplemented, message),
        ErrorKind::Internal => Failure::new(Class::Panic, message),
        _ => Failure::new(Class::Error, message),
    }
}
