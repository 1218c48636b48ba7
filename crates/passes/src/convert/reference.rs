//! Differences of the reference implementation's converter that do not affect equivalence: models
//! that it cannot represent, nodes that it refuses although they have an equivalent, and attributes
//! and inputs that it writes although they are optional. Programs that were written for it rely on
//! them.

use sardonyx_model::{Attributes, MadeNodes, Model, NodeAttributes, NodeBuilder, NodeId};
use sardonyx_model::{Producer, ValueId};
use sardonyx_ops::OpRef;
use sardonyx_ops::operators::{
    BIT_SHIFT, GRU, LSTM, PAD, QUANTIZE_LINEAR, RESHAPE, RESIZE, RNN, SCATTER_ELEMENTS, SCATTER_ND,
};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::codes;
use crate::cross::Crossings;
use crate::finding::{Finding, Spot};
use crate::order::tree;

/// Operator name of nodes that represent captured values in graphs of the reference implementation.
const CAPTURED: &str = "Captured";

/// Finds the first fault that graphs of the reference implementation cannot represent: an undefined
/// name, except an output of a subgraph, or a node that looks like a captured value.
pub(super) fn not_held(model: &Model) -> Option<Finding> {
    let main = model.main?;
    let is_defined = |value: ValueId| model.value(value).producer != Producer::Nothing;
    for graph in tree(model, main) {
        for node in model.graph(graph).nodes.iter().copied() {
            let mut inputs = model.inputs(node).enumerate();
            let undefined = inputs.find_map(|(index, value)| {
                Some((index, value.filter(|value| !is_defined(*value))?))
            });
            if let Some((index, value)) = undefined {
                let name = sardonyx_proto::shown(model.text(model.value(value).name));
                let fact = format!("input {index}, '{name}', is not defined");
                let spot = Spot::node(node).item("input", index);
                return Some(Finding::new(model, &codes::UNDEFINED_VALUE, spot, fact));
            }
            let name = model.display(model.node(node).op_type);
            if name == CAPTURED && model.outputs(node).len() != 1 {
                let fact = "Captured node must have exactly one output".to_string();
                return Some(Finding::new(
                    model,
                    &codes::NO_EXACT_CONVERSION,
                    Spot::node(node),
                    fact,
                ));
            }
        }
    }
    let mut outputs = model.graph(main).outputs.iter();
    let index = outputs.position(|output| !output.value.is_some_and(is_defined))?;
    let spot = Spot::graph(main).item("output", index);
    let fact = "it is not defined in the graph".to_string();
    Some(Finding::new(model, &codes::UNDEFINED_OUTPUT, spot, fact))
}

/// Returns the reason why the reference implementation refuses a node of a converted operator.
pub(super) fn refuses(
    model: &Model,
    crossings: &Crossings<'_>,
    node: NodeId,
    op: OpRef,
    goal: u32,
) -> Option<&'static str> {
    let goes_below = |version: u32| op.opset >= version && goal < version;
    if (op.def.is(&SCATTER_ELEMENTS) || op.def.is(&SCATTER_ND)) && goes_below(16) {
        let data = model.inputs(node).next().flatten()?;
        let is_narrow = crossings.elem(data) == Some(DataType::Bfloat16);
        return is_narrow.then_some("the reference takes no bfloat16 below version 16");
    }
    if op.def.is(&BIT_SHIFT) && goes_below(28) {
        let is_signed = |elem: DataType| elem.is_integer() && elem.is_signed();
        let elem = crossings.elem(model.inputs(node).next().flatten()?);
        let why = "the reference shifts no signed integers below version 28";
        return elem.is_some_and(is_signed).then_some(why);
    }
    if op.def.is(&RESIZE) && goes_below(18) {
        let has_axes = model.attribute_of(node, "axes").is_some();
        return has_axes.then_some("the reference takes no axes below version 18");
    }
    if op.def.is(&QUANTIZE_LINEAR) && goes_below(21) {
        let elem = NodeAttributes::new(model, node).int("output_dtype");
        let is_given = elem.is_some_and(|elem| elem != 0);
        return is_given.then_some("the reference takes no output_dtype below version 21");
    }
    None
}

/// Returns the reason why the reference implementation refuses a node of another operator set: it
/// treats every node named `Reshape` as the standard's operator.
pub(super) fn refuses_other(model: &Model, node: NodeId) -> Option<&'static str> {
    let is_reshape = model.display(model.node(node).op_type) == RESHAPE.name;
    let is_empty = model.outputs(node).is_empty();
    (is_reshape && is_empty).then_some("Reshape node must have at least 1 output")
}

/// Adds optional attributes and inputs that the reference implementation writes into a converted
/// node. Returns the constant that stays an initializer there, if there is one.
pub(super) fn complete(
    model: &mut Model,
    made: &mut MadeNodes,
    crossings: &Crossings<'_>,
    node: NodeId,
    op: OpRef,
    goal: u32,
) -> Option<ValueId> {
    let goes_over = |version: u32| op.opset < version && goal >= version;
    if [&GRU, &LSTM, &RNN].iter().any(|def| op.def.is(def)) && goes_over(14) {
        model.set_attribute(node, "layout", 0i64);
        return None;
    }
    if !(op.def.is(&PAD) && goes_over(11)) {
        return None;
    }
    let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
    let [Some(data), Some(pads), value @ ..] = &inputs[..] else { return None };
    if value.first().copied().flatten().is_none() {
        let elem = crossings.elem(*data)?;
        let zero = cast(&Tensor::scalar(0i64), elem, CastOptions::default()).ok()?;
        let zero = NodeBuilder::new(model, made, node).constant("constant", &zero);
        model.set_input(node, 2, Some(zero));
    }
    Some(*pads)
}
