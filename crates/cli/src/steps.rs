//! Steps of a session as text and as JSON, for `explain` and `profile`.

use sardonyx::tool::profile::{OperandDetails, StepDetails, StepInfo};
use serde_json::{Map, Value, json};

/// Formats the operator of a step with the operators that are fused into it, such as `Conv with
/// Relu`.
pub(crate) fn format_operator(step: &StepInfo) -> String {
    let names = std::iter::once(step.op).chain(step.with.iter().copied());
    names.collect::<Vec<_>>().join(" with ")
}

/// Describes how a step uses memory, such as `in place, strided`. Empty for a step that reads dense
/// operands and writes a dense result of its own.
pub(crate) fn format_layout(step: &StepDetails) -> String {
    let words = [
        (step.is_view, "view"),
        (step.in_place, "in place"),
        (step.strided, "strided"),
        (step.channels_last, "channels last"),
        (step.copies, "copy"),
    ];
    let words = words.into_iter().filter(|(holds, _)| *holds);
    words.map(|(_, word)| word).collect::<Vec<_>>().join(", ")
}

/// Converts the node, operator and kernel of a step to members of a JSON object.
pub(crate) fn step_info_json(step: &StepInfo) -> Map<String, Value> {
    let mut answer = Map::new();
    answer.insert("node".to_string(), json!(step.node));
    answer.insert("place".to_string(), json!(step.place));
    answer.insert("operator".to_string(), json!(step.op));
    answer.insert("with".to_string(), json!(step.with));
    answer.insert("kernel".to_string(), json!(step.kernel));
    answer
}

/// Converts a step to members of a JSON object: node, operator, kernel, use of memory, work and
/// operands, but no times.
pub(crate) fn step_json(step: &StepInfo, details: &StepDetails) -> Map<String, Value> {
    let mut answer = step_info_json(step);
    let more = [
        ("view", json!(details.is_view)),
        ("in_place", json!(details.in_place)),
        ("strided", json!(details.strided)),
        ("channels_last", json!(details.channels_last)),
        ("copy", json!(details.copies)),
        ("multiply_adds", json!(details.multiply_adds)),
        ("read_bytes", json!(details.read_bytes)),
        ("written_bytes", json!(details.written_bytes)),
        ("inputs", details.inputs.iter().map(operand_json).collect()),
        ("outputs", details.outputs.iter().map(operand_json).collect()),
    ];
    for (key, value) in more {
        answer.insert(key.to_string(), value);
    }
    answer
}

/// Converts an operand to JSON: its element type, shape and memory layout.
fn operand_json(operand: &OperandDetails) -> Value {
    let ty = operand.ty.as_ref();
    let shape = ty.and_then(|ty| ty.shape());
    json!({
        "type": ty.and_then(|ty| ty.elem()).map(|elem| elem.name()),
        "shape": shape.map(|shape| &shape[..]),
        "constant": operand.constant,
        "strided": operand.strided,
        "channels_last": operand.channels_last,
    })
}
