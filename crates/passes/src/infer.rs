//! Inference of types and shapes, symbolic, and of the values that shapes are computed from.

use sardonyx_model::{Id, Model, NoExternalData, NodeId, Producer, Type, ValueId};
use sardonyx_ops::{Infer, Known};
use smallvec::SmallVec;

use crate::attributes::NodeAttributes;
use crate::check::codes;
use crate::finding::{Finding, Spot};
use crate::resolve::Resolved;

/// What is known beyond the model.
#[derive(Clone, Copy, Default)]
pub struct InferOptions<'a> {
    /// Types of graph inputs in place of the declared ones, by position; `None` keeps the declared one.
    pub inputs: &'a [Option<Type>],
    /// Values of constants that are not in the model's file, such as those computed before.
    pub known: Option<&'a dyn Fn(ValueId) -> Option<Known>>,
}

impl std::fmt::Debug for InferOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InferOptions")
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}

/// What inference found, by value.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    types: Vec<Option<Type>>,
    known: Vec<Option<Known>>,
}

impl Inference {
    /// The type of a value.
    pub fn ty(&self, value: ValueId) -> Option<&Type> {
        self.types.get(value.index())?.as_ref()
    }

    /// The value itself, as far as known before anything runs.
    pub fn known(&self, value: ValueId) -> Option<&Known> {
        self.known.get(value.index())?.as_ref()
    }
}

/// Constants with more elements than this are never looked at: they are weights, not shapes.
const MAX_CONSTANT_ELEMS: i64 = 1024;

/// Infers the types of all values of the main graph.
///
/// # Errors
///
/// Every node whose inputs contradict what its operator demands.
pub fn infer(resolved: &Resolved, options: InferOptions<'_>) -> Result<Inference, Vec<Finding>> {
    let model = resolved.model();
    let mut found = Inference {
        types: vec![None; model.value_count()],
        known: vec![None; model.value_count()],
    };
    let mut findings = Vec::new();
    begin(resolved, options, &mut found);
    for node in resolved.order() {
        if let Err(error) = infer_node(resolved, *node, &mut found) {
            let spot = Spot::node(*node);
            let finding = Finding::new(model, &codes::TYPES_CONTRADICT, spot, error.to_string());
            findings.push(finding.with_advice(describe_inputs(model, *node, &found)));
        }
        if let Some(known) = options.known {
            for value in model.outputs(*node).iter().flatten() {
                if let Some(known) = known(*value) {
                    found.known[value.index()] = Some(known);
                }
            }
        }
    }
    if findings.is_empty() {
        Ok(found)
    } else {
        Err(findings)
    }
}

/// Types of inputs and initializers, and declared types of everything else.
fn begin(resolved: &Resolved, options: InferOptions<'_>, found: &mut Inference) {
    let model = resolved.model();
    let graph = model.graph(resolved.main());
    for info in graph.value_info.iter().chain(&graph.outputs) {
        if let (Some(value), Some(ty)) = (info.value, &info.ty) {
            found.types[value.index()] = model.type_of(ty);
        }
    }
    for (index, info) in graph.inputs.iter().enumerate() {
        let Some(value) = info.value else { continue };
        let given = options.inputs.get(index).cloned().flatten();
        found.types[value.index()] =
            given.or_else(|| info.ty.as_ref().and_then(|ty| model.type_of(ty)));
    }
    for initializer in &graph.sparse_initializers {
        let (Some(value), Some(values)) = (initializer.value, &initializer.tensor.values) else {
            continue;
        };
        if matches!(model.value(value).producer, Producer::SparseInitializer(_)) {
            // Nodes see the whole tensor.
            found.types[value.index()] =
                Some(constant_type(values.data_type, &initializer.tensor.dims));
        }
    }
    for initializer in &graph.initializers {
        let Some(value) = initializer.value else {
            continue;
        };
        // What is also an input may be anything that its declared type allows.
        if !matches!(model.value(value).producer, Producer::Initializer(_)) {
            continue;
        }
        let proto = &initializer.tensor;
        found.types[value.index()] = Some(constant_type(proto.data_type, &proto.dims));
        let elems = proto
            .dims
            .iter()
            .try_fold(1i64, |product, dim| product.checked_mul(*dim));
        if elems.is_some_and(|elems| elems <= MAX_CONSTANT_ELEMS) && !proto.is_external() {
            found.known[value.index()] =
                model.tensor(proto, &NoExternalData).ok().map(Known::Tensor);
        }
    }
}

fn constant_type(data_type: Option<i32>, dims: &[i64]) -> Type {
    Type::Tensor(sardonyx_model::TensorType {
        elem: data_type.and_then(sardonyx_tensor::DataType::from_number),
        shape: Some(dims.iter().map(|dim| (*dim).into()).collect()),
    })
}

fn infer_node(
    resolved: &Resolved,
    node: NodeId,
    found: &mut Inference,
) -> Result<(), sardonyx_ops::InferError> {
    let model = resolved.model();
    let (Some(operator), Some(schema)) = (resolved.operator(node), resolved.schema(node)) else {
        return Ok(());
    };
    let Some(rule) = operator.inference_at(resolved.opset(node)) else {
        return Ok(());
    };
    let attributes = NodeAttributes::new(model, node);
    let inputs: SmallVec<[Option<Type>; 6]> = model
        .inputs(node)
        .map(|value| value.and_then(|value| found.ty(value).cloned()))
        .collect();
    let known: SmallVec<[Option<Known>; 6]> = model
        .inputs(node)
        .map(|value| value.and_then(|value| found.known(value).cloned()))
        .collect();
    let mut cx = Infer::new(
        schema,
        &attributes,
        &inputs,
        &known,
        model.outputs(node).len(),
    );
    rule(&mut cx)?;
    let (types, values) = cx.finish();
    for (value, (ty, known)) in model
        .outputs(node)
        .iter()
        .zip(types.into_iter().zip(values))
    {
        let Some(value) = value else { continue };
        if let Some(ty) = ty {
            let slot = &mut found.types[value.index()];
            // A declared type adds to what was inferred, but what was inferred is what will happen.
            *slot = Some(
                slot.as_ref()
                    .and_then(|declared| ty.merge(declared))
                    .unwrap_or(ty),
            );
        }
        found.known[value.index()] = known;
    }
    Ok(())
}

fn describe_inputs(model: &Model, node: NodeId, found: &Inference) -> String {
    let inputs: Vec<String> = model
        .inputs(node)
        .flatten()
        .take(8)
        .map(|value| {
            let name = sardonyx_proto::shown(model.text(model.value(value).name));
            match found.ty(value) {
                Some(ty) => format!("{name}: {ty}"),
                None => format!("{name}: ?"),
            }
        })
        .collect();
    format!("its inputs are {}", inputs.join(", "))
}
