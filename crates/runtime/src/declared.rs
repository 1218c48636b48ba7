//! Check that values have the types that the model declares.
//!
//! Compares element types and kinds, as ONNX Runtime does. Ignores declared shapes: inferred ones
//! are used.

use sardonyx_model::{GraphId, Model, Producer, Type, TypeProto, ValueId};
use sardonyx_passes::codes::TYPES_CONTRADICT;
use sardonyx_passes::{Finding, Inference, Resolved, Spot};
use sardonyx_tensor::{DataType, ValueType};

use crate::border::dense_type;
use crate::error::CompileError;

/// Refuses a model with outputs of other types than declared, as callers rely on the declaration.
pub(crate) fn check_outputs(
    resolved: &Resolved,
    inference: &Inference,
) -> Result<(), CompileError> {
    let model = resolved.model();
    let outputs = &model.graph(resolved.main()).outputs;
    let wrong = outputs.iter().filter_map(|info| {
        let value = info.value?;
        let (made, declared) = differing(model, info.ty.as_ref()?, inference, value)?;
        let spot = spot_of(model, resolved.main(), value);
        let name = model.display(info.name);
        let fact = format!("output '{name}' is {made}, but the model declares {declared}");
        let finding = Finding::new(model, &TYPES_CONTRADICT, spot, fact);
        Some(finding.with_advice("declare what is computed, or add a Cast to what is declared"))
    });
    refuse(wrong.collect())
}

/// Refuses a model with intermediate values or constants of other types than declared, in all
/// graphs. `file` is the model before nodes are changed; `resolved` still has its values. Skips
/// bodies of functions, whose types depend on the call.
pub(crate) fn check_inside(
    file: &Model,
    resolved: &Resolved,
    inference: &Inference,
) -> Result<(), CompileError> {
    let model = resolved.model();
    let last = file.graphs().last().map(|(id, _)| id);
    let mut wrong = Vec::new();
    // Graphs with later numbers are copies made for calls.
    for id in resolved.graphs().iter().copied().filter(|id| Some(*id) <= last) {
        let graph = file.graph(id);
        let outputs: &[_] = if id == resolved.main() { &[] } else { &graph.outputs };
        for info in outputs.iter().chain(&graph.value_info) {
            let (Some(value), Some(ty)) = (info.value, &info.ty) else { continue };
            // An inner graph may list values of an outer one, which declares them.
            if file.value(value).graph == id
                && let Some((made, declared)) = differing(file, ty, inference, value)
            {
                let name = file.display(info.name);
                let fact = format!("'{name}' is {made}, but the model declares {declared}");
                let finding =
                    Finding::new(model, &TYPES_CONTRADICT, spot_of(model, id, value), fact);
                let advice = "declare what is computed, or remove the declaration";
                wrong.push(finding.with_advice(advice));
            }
        }
        wrong.extend(wrong_defaults(file, id));
    }
    refuse(wrong)
}

/// Yields the default values of graph inputs whose types differ from the declared ones.
fn wrong_defaults(file: &Model, id: GraphId) -> impl Iterator<Item = Finding> {
    let graph = file.graph(id);
    let dense = graph.initializers.iter().enumerate().map(|(index, initializer)| {
        ("initializer", index, initializer.value, Some(&initializer.tensor))
    });
    let sparse = graph.sparse_initializers.iter().enumerate().map(|(index, initializer)| {
        ("sparse_initializer", index, initializer.value, initializer.tensor.values.as_ref())
    });
    dense.chain(sparse).filter_map(move |(list, index, value, tensor)| {
        let Producer::Input(input) = file.value(value?).producer else { return None };
        let declared = file.type_of(graph.inputs.get(input as usize)?.ty.as_ref()?)?;
        let held = DataType::from_number(tensor?.data_type?)?;
        if held_type(&declared)? == ValueType::Tensor(held) {
            return None;
        }
        let name = file.display(tensor?.name);
        let fact =
            format!("the initializer of '{name}' is {held}, but the model declares {declared}");
        let spot = Spot::graph(id).item(list, index);
        let finding = Finding::new(file, &TYPES_CONTRADICT, spot, fact);
        Some(finding.with_advice("change the type of the initializer, or the declaration"))
    })
}

/// Returns the inferred and the declared type of a value, if they are of different kinds.
fn differing(
    model: &Model,
    ty: &TypeProto,
    inference: &Inference,
    value: ValueId,
) -> Option<(Type, Type)> {
    let (declared, made) = (model.type_of(ty)?, inference.ty(value)?);
    (held_type(&declared)? != held_type(made)?).then(|| (made.clone(), declared))
}

/// Returns the kind of a value as kernels see it: nodes make sparse tensors dense.
fn held_type(ty: &Type) -> Option<ValueType> {
    ty.value_type().map(|ty| dense_type(&ty))
}

/// Returns the place of a value's producer.
fn spot_of(model: &Model, graph: GraphId, value: ValueId) -> Spot {
    match model.value(value).producer {
        Producer::Node(node, _) => Spot::node(node),
        Producer::Initializer(index) => Spot::graph(graph).item("initializer", index as usize),
        _ => Spot::graph(graph),
    }
}

fn refuse(wrong: Vec<Finding>) -> Result<(), CompileError> {
    if wrong.is_empty() { Ok(()) } else { Err(CompileError::Invalid(wrong)) }
}
