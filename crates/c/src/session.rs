//! Sessions: models that run.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use sardonyx::{Port, RunOptions, Value};

use crate::error::{Error, Failure, SARDONYX_ERROR_OUTPUT, answer, answer_or, argument, fail};
use crate::model::Model;
use crate::pointers::{Array, Out, Owned, Ref, Text, give, to_c_string};
use crate::tensor::Tensor;

/// Model that is prepared to run. Several threads may use it at the same time.
#[derive(Debug)]
pub(crate) struct Session {
    session: sardonyx::Session,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
}

fn to_names(ports: &[Port]) -> Vec<CString> {
    ports.iter().map(|port| to_c_string(port.name())).collect()
}

/// Prepares a model to run with this number of threads; 0 for one for each processor. The model may
/// be freed afterwards.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_new(
    model: Ref<Model>,
    threads: usize,
    session: Out<*mut Session>,
) -> *mut Error {
    answer(|| {
        let place = session.demand()?;
        let mut builder = sardonyx::Session::builder(&model.get()?.0);
        if threads > 0 {
            builder = builder.threads(threads);
        }
        let session = builder.build()?;
        let (inputs, outputs) = (to_names(session.inputs()), to_names(session.outputs()));
        place.set(give(Session { session, inputs, outputs }))
    })
}

/// Returns the number of inputs; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_input_count(session: Ref<Session>) -> usize {
    answer_or(0, || Ok(session.get()?.inputs.len()))
}

/// Returns the number of outputs; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_output_count(session: Ref<Session>) -> usize {
    answer_or(0, || Ok(session.get()?.outputs.len()))
}

/// Returns the name of an input, which lives as long as the session; null for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_input_name(session: Ref<Session>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || {
        Ok(session.get()?.inputs.get(index).map_or(ptr::null(), |name| name.as_ptr()))
    })
}

/// Returns the name of an output, which lives as long as the session; null for an index without
/// one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_output_name(session: Ref<Session>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || {
        Ok(session.get()?.outputs.get(index).map_or(ptr::null(), |name| name.as_ptr()))
    })
}

/// Returns the element type of an input, one of `SARDONYX_TYPE_…`; 0 for an input that is not a
/// tensor or has an open type.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_input_type(session: Ref<Session>, index: usize) -> c_int {
    answer_or(0, || {
        let port = session.get()?.session.inputs().get(index).and_then(Port::ty);
        Ok(port.and_then(sardonyx::Type::elem).map_or(0, sardonyx::DataType::number))
    })
}

/// Runs a session on inputs with these names. `outputs` has room for `output_count` tensors, as
/// many as the model has outputs, which are in the order of the model; the caller frees each.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_run(
    session: Ref<Session>,
    names: Array<Text>,
    inputs: Array<Ref<Tensor>>,
    input_count: usize,
    outputs: Out<*mut Tensor>,
    output_count: usize,
) -> *mut Error {
    answer(|| {
        let session = session.get()?;
        let wanted = session.outputs.len();
        if output_count != wanted {
            let what = format!("there is room for {output_count} outputs of {wanted}");
            return Err(argument(what));
        }
        let place = outputs.demand()?;
        let names = names.read(input_count, "names")?;
        let tensors = inputs.read(input_count, "inputs")?;
        let mut inputs = Vec::with_capacity(input_count);
        for (name, tensor) in names.iter().zip(tensors) {
            inputs.push((name.read("name of an input")?, tensor.get()?.value.clone()));
        }
        let results = session.session.run(inputs, &RunOptions::new())?;
        let results: Result<Vec<Tensor>, Failure> = results.into_values().map(to_tensor).collect();
        place.set_all(results?.into_iter().map(give).collect())
    })
}

fn to_tensor(value: Value) -> Result<Tensor, Failure> {
    let tensor = value.into_tensor().map_err(|_| {
        let what = "an output is not a tensor, the only kind of value that this interface has";
        fail(SARDONYX_ERROR_OUTPUT, what)
    })?;
    Ok(Tensor::new(tensor))
}

/// Frees a session. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_session_free(session: Owned<Session>) {
    session.free();
}
