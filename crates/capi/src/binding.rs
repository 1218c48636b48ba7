//! Inputs and outputs that are bound to a session, the object `OrtIoBinding`.

use std::borrow::Cow;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sardonyx_ort::{Bindings, unknown_name};

use crate::failure::{Error, StatusPointer, answer, answer_or, argument, demand, release};
use crate::handles::{Handle, Object, give};
use crate::memory::{AllocatorHandle, MemoryInfo};
use crate::options::RunOptions;
use crate::pointers::{Out, Text};
use crate::run::{InputList, OwnedWanted, borrow_wanted, find_output, run};
use crate::session::Session;
use crate::values::Value;

/// Inputs and outputs that are bound to a session.
#[derive(Debug)]
pub(crate) struct Binding {
    session: Session,
    bindings: Mutex<Bindings<Value>>,
}

impl Object for Binding {
    const NAME: &'static str = "OrtIoBinding";
}

impl Binding {
    fn lock(&self) -> MutexGuard<'_, Bindings<Value>> {
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_input(&self, name: &str) -> Result<usize, Error> {
        let inputs = self.session.0.session.inputs();
        inputs.iter().position(|port| port.name() == name).ok_or_else(|| {
            let names: Vec<&str> = inputs.iter().map(|port| port.name()).collect();
            argument(unknown_name("input", name, &names))
        })
    }
}

pub(crate) extern "C" fn create_io_binding(
    session: Handle<Session>,
    out: Out<*mut Binding>,
) -> StatusPointer {
    answer("CreateIoBinding", || {
        let out = out.demand()?;
        let session = session.get()?.clone();
        out.set(give(Binding { session, bindings: Mutex::default() }))
    })
}

pub(crate) extern "C" fn release_io_binding(binding: Handle<Binding>) {
    release("ReleaseIoBinding", binding);
}

pub(crate) extern "C" fn bind_input(
    binding: Handle<Binding>,
    name: Text,
    value: Handle<Value>,
) -> StatusPointer {
    answer("BindInput", || {
        let binding = binding.get()?;
        let index = binding.find_input(&name.read("name of the input")?)?;
        let value = value.get()?.clone();
        let before = binding.lock().bind_input(index, value);
        drop(before);
        Ok(())
    })
}

pub(crate) extern "C" fn bind_output(
    binding: Handle<Binding>,
    name: Text,
    value: Handle<Value>,
) -> StatusPointer {
    answer("BindOutput", || {
        let binding = binding.get()?;
        let index = find_output(&binding.session.0, &name.read("name of the output")?)?;
        let value = value.get()?.clone();
        let before = binding.lock().bind_output(index, Some(value));
        drop(before);
        Ok(())
    })
}

pub(crate) extern "C" fn bind_output_to_device(
    binding: Handle<Binding>,
    name: Text,
    info: Handle<MemoryInfo>,
) -> StatusPointer {
    answer("BindOutputToDevice", || {
        info.get()?.demand_cpu()?;
        let binding = binding.get()?;
        let index = find_output(&binding.session.0, &name.read("name of the output")?)?;
        let before = binding.lock().bind_output(index, None);
        drop(before);
        Ok(())
    })
}

pub(crate) extern "C" fn run_with_binding(
    session: Handle<Session>,
    options: Handle<RunOptions>,
    binding: Handle<Binding>,
) -> StatusPointer {
    answer("RunWithBinding", || {
        let (session, binding) = (session.get()?, binding.get()?);
        demand(std::sync::Arc::ptr_eq(&session.0, &binding.session.0), || {
            "the binding belongs to another session".to_string()
        })?;
        let bindings = binding.lock();
        let values: Vec<(usize, Value)> =
            bindings.inputs().map(|(index, value)| (index, value.clone())).collect();
        let bound = bindings.outputs().iter().map(|output| (output.number, output.into.clone()));
        let bound: OwnedWanted = bound.collect();
        drop(bindings);
        let ports = session.0.session.inputs();
        let inputs = values.iter().map(|(index, value)| (Cow::from(ports[*index].name()), value));
        let inputs: InputList<'_> = inputs.collect();
        let stop = options.optional()?.map(|options| &options.stop);
        let results = run(&session.0, stop, &inputs, &borrow_wanted(&bound))?;
        let all = bound.into_iter().zip(results);
        let results = all.filter_map(|((_, into), new)| new.map(|value| *value).or(into)).collect();
        let before = binding.lock().keep(results);
        drop(before);
        Ok(())
    })
}

pub(crate) extern "C" fn get_bound_output_names(
    binding: Handle<Binding>,
    allocator: AllocatorHandle,
    names: Out<*mut c_char>,
    lengths: Out<*mut usize>,
    count: Out<usize>,
) -> StatusPointer {
    answer("GetBoundOutputNames", || {
        let (names, lengths, count) = (names.demand()?, lengths.demand()?, count.demand()?);
        let binding = binding.get()?;
        let outputs = binding.session.0.session.outputs();
        let bound: Vec<&str> =
            binding.lock().outputs().iter().map(|bound| outputs[bound.number].name()).collect();
        if bound.is_empty() {
            names.set(std::ptr::null_mut())?;
            lengths.set(std::ptr::null_mut())?;
            return count.set(0);
        }
        // No zero bytes: each name ends at its length.
        let text = allocator.copy(bound.concat().as_bytes())?;
        let sizes: Vec<usize> = bound.iter().map(|name| name.len()).collect();
        let sizes = match allocator.copy(&sizes) {
            Ok(sizes) => sizes,
            Err(error) => {
                allocator.free(text.cast())?;
                return Err(error);
            }
        };
        names.set(text.cast())?;
        lengths.set(sizes)?;
        count.set(bound.len())
    })
}

pub(crate) extern "C" fn get_bound_output_values(
    binding: Handle<Binding>,
    allocator: AllocatorHandle,
    values: Out<*mut *mut Value>,
    count: Out<usize>,
) -> StatusPointer {
    answer("GetBoundOutputValues", || {
        let (values, count) = (values.demand()?, count.demand()?);
        let results: Vec<Value> = binding.get()?.lock().results().to_vec();
        if results.is_empty() {
            values.set(std::ptr::null_mut())?;
            return count.set(0);
        }
        // Room first, so that no value is lost without memory.
        let pointers = allocator.copy(&vec![std::ptr::null_mut::<Value>(); results.len()])?;
        let number = results.len();
        let given: Vec<*mut Value> = results.into_iter().map(give).collect();
        Out::new(pointers).set_all(&given)?;
        values.set(pointers)?;
        count.set(number)
    })
}

pub(crate) extern "C" fn clear_bound_inputs(binding: Handle<Binding>) {
    answer_or("ClearBoundInputs", (), || {
        let before = binding.get()?.lock().clear_inputs();
        drop(before);
        Ok(())
    });
}

pub(crate) extern "C" fn clear_bound_outputs(binding: Handle<Binding>) {
    answer_or("ClearBoundOutputs", (), || {
        let before = binding.get()?.lock().clear_outputs();
        drop(before);
        Ok(())
    });
}

pub(crate) extern "C" fn synchronize_bound_inputs(binding: Handle<Binding>) -> StatusPointer {
    answer("SynchronizeBoundInputs", || binding.get().map(|_| ()))
}

pub(crate) extern "C" fn synchronize_bound_outputs(binding: Handle<Binding>) -> StatusPointer {
    answer("SynchronizeBoundOutputs", || binding.get().map(|_| ()))
}
