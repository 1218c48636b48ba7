//! Property: any bytes are a model or an error, and the accessors of a model that was read work.

use sardonyx_model::{AttributeValue, Id, Model, NoExternalData, ReadLimits, TypeProto, ValueId};
use sardonyx_tensor::Buffer;

/// Reads the bytes as a model and calls its accessors.
pub(crate) fn check(input: &[u8]) {
    let source = Buffer::from_vec(input.to_vec());
    let read = Model::read(source.clone());
    let small = ReadLimits { depth: 24, memory: 6_000, expansion: 0 };
    let under_limits = Model::read_with(source, small);
    match &read {
        Ok(model) => walk(model),
        Err(error) => {
            assert!(error.offset() <= input.len() as u64, "{error}");
            assert!(!error.to_string().is_empty());
            assert!(under_limits.is_err(), "limits made it readable");
        }
    }
    if let Ok(model) = under_limits {
        let nodes = model.graphs().map(|(_, graph)| graph.nodes.len()).sum::<usize>();
        assert!(nodes <= 6_000 / size_of::<sardonyx_model::Node>(), "{nodes} nodes");
    }
}

fn walk(model: &Model) {
    let mut reads = 0;
    for (_, graph) in model.graphs() {
        model.display(graph.name);
        for node in &graph.nodes {
            for (position, value) in model.inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                reads += 1;
                // Checking each use would take quadratic time if all nodes read one value.
                if position < 4 && reads < 64 {
                    assert!(model.uses(value).any(|found| found == (*node, position)));
                }
            }
            for value in model.outputs(*node).iter().flatten() {
                model.text(model.value(*value).name);
            }
            model.domain_of(*node);
            for attribute in model.attributes(*node) {
                walk_values(model, &model.attribute(*attribute).values);
                model.attribute(*attribute).value();
            }
        }
        let infos = [&graph.inputs, &graph.outputs, &graph.value_info];
        for info in infos.into_iter().flatten() {
            model.display(info.name);
            walk_type(model, info.ty.as_ref());
        }
        for sparse in &graph.sparse_initializers {
            let _ = model.sparse_tensor(&sparse.tensor, &NoExternalData);
        }
    }
    let values = (0..model.value_count()).map(ValueId::new);
    let uses: usize = values.map(|value| model.uses(value).count()).sum();
    assert_eq!(uses, reads, "every input read is a use of one value");
    for function in &model.functions {
        for attribute in &function.attribute_protos {
            walk_values(model, &attribute.values);
        }
    }
    model.opset("");
    let tensors = model.tensors();
    assert_eq!(tensors.len(), model.tensor_places().len());
    for id in tensors {
        let stored = model.stored_tensor(id);
        match model.tensor(stored, &NoExternalData) {
            Ok(tensor) => assert_eq!(tensor.rank(), stored.dims.len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        model.implied_bytes(stored);
        if stored.is_external() {
            let _ = model.external_reference(stored);
        }
    }
}

fn walk_values(model: &Model, values: &[AttributeValue]) {
    for value in values {
        match value {
            AttributeValue::String(span) => drop(model.buffer(*span)),
            AttributeValue::Strings(spans) => {
                spans.iter().for_each(|span| assert_eq!(model.bytes(*span).len() as u64, span.len));
            }
            AttributeValue::Type(ty) => walk_type(model, Some(ty)),
            AttributeValue::Types(types) => types.iter().for_each(|ty| walk_type(model, Some(ty))),
            AttributeValue::SparseTensor(sparse) => {
                drop(model.sparse_tensor(sparse, &NoExternalData))
            }
            _ => {}
        }
    }
}

fn walk_type(model: &Model, ty: Option<&TypeProto>) {
    if let Some(ty) = ty.and_then(|ty| model.type_of(ty)) {
        assert!(!ty.to_string().is_empty());
    }
}
