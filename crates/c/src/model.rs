//! Models: opening, saving, ports, conversion, simplification, inference.

use std::ffi::c_char;

use sardonyx::Port;
use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::edit::SimplifyOptions;
use sardonyx::infer::InferOptions;

use crate::error::{Error, Failure, answer, answer_or, argument};
use crate::pointers::{Array, Mut, Out, Owned, Ref, Text, give, give_bytes, give_text};

/// Model.
#[derive(Debug)]
pub(crate) struct Model(pub(crate) sardonyx::Model);

/// Opens a model file: binary, text, JSON or text format of protobuf. Weights in data files are
/// read when they are needed.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_open(path: Text, model: Out<*mut Model>) -> *mut Error {
    answer(|| {
        let place = model.demand()?;
        place.set(give(Model(sardonyx::Model::open(path.path()?)?)))
    })
}

/// Reads a model from the bytes of a file, which are copied.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_from_bytes(
    bytes: Array<u8>,
    count: usize,
    model: Out<*mut Model>,
) -> *mut Error {
    answer(|| {
        let place = model.demand()?;
        let bytes = bytes.read(count, "bytes")?.to_vec();
        place.set(give(Model(sardonyx::Model::from_bytes(bytes)?)))
    })
}

/// Parses a model in ONNX text.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_from_text(text: Text, model: Out<*mut Model>) -> *mut Error {
    answer(|| {
        let place = model.demand()?;
        place.set(give(Model(sardonyx::Model::from_text(&text.read("text")?)?)))
    })
}

/// Saves a model in the format that the extension of the path names.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_save(model: Ref<Model>, path: Text) -> *mut Error {
    answer(|| Ok(model.get()?.0.save(path.path()?)?))
}

/// Encodes a model. The caller frees the bytes with `sardonyx_bytes_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_to_bytes(
    model: Ref<Model>,
    bytes: Out<*mut u8>,
    count: Out<usize>,
) -> *mut Error {
    answer(|| {
        let (place, count) = (bytes.demand()?, count.demand()?);
        let bytes = model.get()?.0.with_values_inside()?.to_bytes();
        count.set(bytes.len())?;
        place.set(give_bytes(bytes))
    })
}

/// Prints a model as ONNX text. The caller frees it with `sardonyx_text_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_to_text(model: Ref<Model>, text: Out<*mut c_char>) -> *mut Error {
    answer(|| {
        let place = text.demand()?;
        place.set(give_text(&model.get()?.0.to_text()))
    })
}

/// Frees a model. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_free(model: Owned<Model>) {
    model.free();
}

/// Returns the number of inputs; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_input_count(model: Ref<Model>) -> usize {
    answer_or(0, || Ok(model.get()?.0.inputs().len()))
}

/// Returns the number of outputs; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_output_count(model: Ref<Model>) -> usize {
    answer_or(0, || Ok(model.get()?.0.outputs().len()))
}

fn give_name(ports: &[Port], index: usize, name: Out<*mut c_char>) -> Result<(), Failure> {
    let place = name.demand()?;
    let port = ports.get(index).ok_or_else(|| {
        argument(format!("index {index} is out of range: there are {}", ports.len()))
    })?;
    place.set(give_text(port.name()))
}

/// Copies the name of an input. The caller frees it with `sardonyx_text_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_input_name(
    model: Ref<Model>,
    index: usize,
    name: Out<*mut c_char>,
) -> *mut Error {
    answer(|| give_name(&model.get()?.0.inputs(), index, name))
}

/// Copies the name of an output. The caller frees it with `sardonyx_text_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_output_name(
    model: Ref<Model>,
    index: usize,
    name: Out<*mut c_char>,
) -> *mut Error {
    answer(|| give_name(&model.get()?.0.outputs(), index, name))
}

/// Returns the number of nodes, those of subgraphs and functions included; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_node_count(model: Ref<Model>) -> usize {
    answer_or(0, || Ok(model.get()?.0.node_count()))
}

/// Returns the version of an operator set that the model imports; 0 for one that it does not. An
/// empty name stands for the standard's.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_opset(model: Ref<Model>, domain: Text) -> i64 {
    answer_or(0, || {
        let domain = domain.read("domain")?;
        let sets = model.get()?.0.opsets();
        let found = sets.iter().find(|set| set.domain == domain);
        Ok(found.map_or(0, |set| set.version))
    })
}

/// Copies the metadata of a key; null without it. The caller frees it with `sardonyx_text_free`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_metadata(
    model: Ref<Model>,
    key: Text,
    value: Out<*mut c_char>,
) -> *mut Error {
    answer(|| {
        let found = model.get()?.0.metadata_value(&key.read("key")?);
        value.set(found.map_or(std::ptr::null_mut(), |found| give_text(&found)))
    })
}

/// Sets the metadata of a key.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_set_metadata(
    mut model: Mut<Model>,
    key: Text,
    value: Text,
) -> *mut Error {
    answer(|| {
        let (key, value) = (key.read("key")?, value.read("value")?);
        model.get()?.0.set_metadata(&key, &value);
        Ok(())
    })
}

/// Converts a model to a version of an operator set; an empty name stands for the standard's. The
/// model stays, and the result is a new one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_convert(
    model: Ref<Model>,
    domain: Text,
    version: u32,
    converted: Out<*mut Model>,
) -> *mut Error {
    answer(|| {
        let place = converted.demand()?;
        let target = Target::new().opset(&domain.read("domain")?, version);
        let (result, _) = model.get()?.0.convert(&ConvertOptions::new(target))?;
        place.set(give(Model(result)))
    })
}

/// Simplifies a model: computes constants and removes nodes without an effect. The result is a
/// new one, with equal results.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_simplify(
    model: Ref<Model>,
    simplified: Out<*mut Model>,
) -> *mut Error {
    answer(|| {
        let place = simplified.demand()?;
        let (result, _) = model.get()?.0.simplify(&SimplifyOptions::new())?;
        place.set(give(Model(result)))
    })
}

/// Infers types and shapes. The result is a new model that declares them.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_infer(model: Ref<Model>, inferred: Out<*mut Model>) -> *mut Error {
    answer(|| {
        let place = inferred.demand()?;
        let mut result = model.get()?.0.clone();
        let found = result.infer(&InferOptions::new());
        result.add_types(&found);
        place.set(give(Model(result)))
    })
}
