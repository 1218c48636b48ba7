//! Steps of a session in words and as JSON, for `explain` and `profile`.

use sardonyx::tool::profile::{OperandDetails, StepDetails, StepInfo};
use serde_json::{Map, Value, json};

/// The operator of a step, with what is fused into it: `Conv with Relu`.
pub(crate) fn operator(step: &StepInfo) -> String {
    let names = std::iter::once(step.op).chain(step.with.iter().copied());
    names.collect::<Vec<_>>().join(" with ")
}

/// How the memory of a step is used, in words; nothing for one that reads and writes dense memory
/// of its own.
pub(crate) fn layout(step: &StepDetails) -> String {
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

/// Which step it is as JSON: its node, operator and kernel.
pub(crate) fn info_json(step: &StepInfo) -> Map<String, Value> {
    let mut answer = Map::new();
    answer.insert("node".to_string(), json!(step.node));
    answer.insert("place".to_string(), json!(step.place));
    answer.insert("operator".to_string(), json!(step.op));
    answer.insert("with".to_string(), json!(step.with));
    answer.insert("kernel".to_string(), json!(step.kernel));
    answer
}

/// A step as JSON, without times.
pub(crate) fn step_json(step: &StepInfo, details: &StepDetails) -> Map<String, Value> {
    let mut answer = info_json(step);
    let operands =
        |operands: &[OperandDetails]| -> Value { operands.iter().map(operand_json).collect() };
    let more = [
        ("view", json!(details.is_view)),
        ("in_place", json!(details.in_place)),
        ("strided", json!(details.strided)),
        ("channels_last", json!(details.channels_last)),
        ("copy", json!(details.copies)),
        ("multiply_adds", json!(details.multiply_adds)),
        ("read_bytes", json!(details.read_bytes)),
        ("written_bytes", json!(details.written_bytes)),
        ("inputs", operands(&details.inputs)),
        ("outputs", operands(&details.outputs)),
    ];
    for (key, value) in more {
        answer.insert(key.to_string(), value);
    }
    answer
}

/// An operand as JSON: its element type and sizes.
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
