//! One case from its files to an outcome: the only part of the runner that calls the library.

use crate::cases::{Case, DataSet};
use crate::compare::compare;
use crate::outcome::{Class, Failure, Outcome};
use sardonyx::{Error, ErrorKind, Model, Session, Value};
use sardonyx_tensor::Tolerance;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

/// Where and why the last panic happened; any thread may have done it.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Loads the model, runs every data set and compares. A panic is an outcome like any other.
pub fn run_case(case: &Case) -> Outcome {
    panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = info.to_string();
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(|| load_and_run(case))).unwrap_or_else(|_| {
        let why = LAST_PANIC
            .lock()
            .map(|last| last.clone())
            .unwrap_or_default();
        Err(Failure::new(Class::Panic, why))
    })
}

fn load_and_run(case: &Case) -> Outcome {
    let unreadable =
        |error: std::io::Error| Failure::new(Class::Error, format!("the case is broken: {error}"));
    let tolerance = case.tolerance().map_err(unreadable)?;
    let data_sets = case.data_sets().map_err(unreadable)?;
    let model = Model::open(case.model()).map_err(failure)?;
    // The processes share the machine; each case is small.
    let session = Session::builder(&model)
        .threads(1)
        .build()
        .map_err(failure)?;
    for (index, data) in data_sets.iter().enumerate() {
        run_data_set(&session, data, tolerance).map_err(|failure| match data_sets.len() {
            1 => failure,
            _ => Failure::new(
                failure.class,
                format!("data set {index}: {}", failure.detail),
            ),
        })?;
    }
    Ok(())
}

fn run_data_set(session: &Session, data: &DataSet, tolerance: Tolerance) -> Outcome {
    let mut inputs: Vec<(String, Value)> = Vec::new();
    for (input, bytes) in session.inputs().iter().zip(&data.inputs) {
        // An empty file is an input that is left out.
        if !bytes.is_empty() {
            let value = sardonyx::read_value(bytes, &input.value_type()).map_err(failure)?;
            inputs.push((input.name().to_string(), value));
        }
    }
    let outputs = session.run(inputs).map_err(failure)?;
    if outputs.len() != data.outputs.len() {
        return Err(wrong(format!(
            "{} outputs, not {}",
            outputs.len(),
            data.outputs.len()
        )));
    }
    for ((name, got), (output, bytes)) in outputs
        .iter()
        .zip(session.outputs().iter().zip(&data.outputs))
    {
        let want = sardonyx::read_value(bytes, &output.value_type()).map_err(failure)?;
        compare(got, &want, tolerance).map_err(|why| wrong(format!("{name}: {why}")))?;
    }
    Ok(())
}

fn wrong(why: String) -> Failure {
    Failure::new(Class::Wrong, why)
}

/// The class of an error is what the library says about it, never what its text looks like.
fn failure(error: Error) -> Failure {
    let operators = error.unsupported_operators();
    if !operators.is_empty() {
        let mut names: Vec<String> = operators.iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        return Failure::new(Class::OperatorNotImplemented, names.join(", "));
    }
    match error.kind() {
        ErrorKind::Unsupported => Failure::new(Class::TypeNotImplemented, error.to_string()),
        _ => Failure::new(Class::Error, error.to_string()),
    }
}
