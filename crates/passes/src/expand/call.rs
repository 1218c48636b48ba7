//! Nodes as calls of their operators' functions, with the properties that a function may depend on.

use std::cell::RefCell;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, Attributes, GraphId, Id, Model, NoExternalData, NodeAttributes, NodeId, Producer,
    Type, ValueId, ValueInfo,
};
use sardonyx_ops::{Call, GraphText, OpRef, Registry};
use sardonyx_text::{PrintOptions, PrintPart};

use crate::infer::Inference;
use crate::order::nodes_of_tree;
use crate::resolve::Resolved;
use crate::same_meaning::change;

/// Returns the function of a node's operator as ONNX text, at an opset version. `types` are the
/// known types of the inputs; the list may be shorter. `None` if the call has no function,
/// if operators in it changed between the version that it is written for and this one, or if it
/// contains a subgraph of the node that captures values.
pub fn function_of_call(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    types: &[Option<Type>],
    opset: u32,
) -> Option<String> {
    let name = model.display(model.node(node).op_type);
    let schema = registry.schema(&model.domain_of(node), &name, opset)?;
    let operator = registry.definition(schema)?;
    let mut scratch = Scratch::default();
    let function = with_call(model, &mut scratch, node, types, |call| {
        operator.function_text(registry, opset, Some(call))
    })?;
    function.outer.is_empty().then_some(function.text)
}

/// Function of an operator that replaces a node.
pub(crate) struct CallFunction {
    /// ONNX text.
    pub(crate) text: String,
    /// Values that subgraphs of the node capture, with their names in the text. No two values share
    /// a name in any text, so that bodies with equal texts are equal.
    pub(crate) outer: Vec<(String, ValueId)>,
    /// Whether the call has each input of the function, up to the last one that it has.
    given: Vec<bool>,
}

/// Key of a body: calls with equal keys have the same body.
pub(crate) type BodyKey = (String, Vec<bool>);

impl CallFunction {
    /// Returns the key of the body.
    pub(crate) fn key(&self) -> BodyKey {
        (self.text.clone(), self.given.clone())
    }

    /// Whether the call has an input.
    pub(crate) fn has_input(&self, index: usize) -> bool {
        self.given.get(index).copied().unwrap_or(false)
    }
}

/// Copy of a model in which subgraphs are changed to become parts of functions.
#[derive(Default)]
pub(crate) struct Scratch {
    model: Option<Model>,
    /// Original of each value of the copy that replaces a captured value.
    outer: HashMap<ValueId, ValueId>,
}

/// Makes the function of a node, in the version for which it is written. `op_of` returns the
/// operators of nodes in subgraphs.
///
/// # Errors
///
/// The reason why there is none.
pub(crate) fn function_for(
    model: &Model,
    registry: &Registry,
    scratch: &mut Scratch,
    node: NodeId,
    types: &[Option<Type>],
    op: OpRef,
    op_of: &dyn Fn(NodeId) -> Option<OpRef>,
) -> Result<CallFunction, String> {
    let mut why = None;
    let function = with_call(model, scratch, node, types, |call| {
        let text = op.def.expansion_text(registry, op.opset, call);
        text.map_err(|reason| why = Some(reason)).ok().flatten()
    });
    let Some(function) = function else {
        return Err(why.unwrap_or_else(|| why_none(model, node, types, op)));
    };
    let inside = || graphs_of(model, node).flat_map(|graph| nodes_of_tree(model, graph));
    let mut attributes = inside().flat_map(|inner| model.attributes(inner));
    if attributes.any(|id| model.attribute(*id).ref_attr_name().is_some()) {
        return Err("its subgraph refers to attributes of the enclosing function".to_string());
    }
    // Functions of other domains are written for the newest version of `ai.onnx`, whatever version
    // the subgraphs have.
    if let (false, Some((_, newest))) = (op.def.domain.is_empty(), registry.versions("")) {
        for inner in inside() {
            let Some(found) = op_of(inner).filter(|found| found.def.domain.is_empty()) else {
                continue;
            };
            let (from, to) = (found.opset.into(), newest.into());
            if let Some(change) = change(registry, "", found.def.name, from, to) {
                return Err(format!(
                    "its function contains a subgraph and is defined for version {newest} of \
                     ai.onnx; the graph has version {from}, and {change}"
                ));
            }
        }
    }
    Ok(function)
}

/// Makes the function by which a node is differentiated, for operators with neither a gradient rule
/// nor a function of the standard.
///
/// # Errors
///
/// The reason why there is none.
pub(crate) fn function_to_differentiate(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    types: &[Option<Type>],
    op: OpRef,
) -> Result<CallFunction, String> {
    let mut why = String::new();
    let found = with_call(model, &mut Scratch::default(), node, types, |call| {
        let text = op.def.gradient_text(registry, op.opset, call);
        text.map_err(|reason| why = reason).ok()
    });
    found.ok_or(why)
}

/// Makes the function that computes a node on split axes which the node itself needs whole, if
/// there is one.
pub(crate) fn function_to_split(
    model: &Model,
    registry: &Registry,
    node: NodeId,
    types: &[Option<Type>],
    op: OpRef,
) -> Option<CallFunction> {
    with_call(model, &mut Scratch::default(), node, types, |call| {
        op.def.split_text(registry, op.opset, call)
    })
}

/// Returns the reason why an operator with functions has none for a node, from the inferred types
/// of its inputs. `None` if the definition of the operator has no reason.
pub fn why_no_function(resolved: &Resolved, inference: &Inference, node: NodeId) -> Option<String> {
    let op = resolved.op(node)?;
    let model = resolved.model();
    let types: Vec<Option<Type>> =
        model.inputs(node).map(|value| inference.ty(value?).cloned()).collect();
    let mut why = None;
    with_call(model, &mut Scratch::default(), node, &types, |call| {
        why = op.def.why_no_function(op.opset, call);
        None
    });
    why
}

/// Returns the reason for which a node has no function.
fn why_none(model: &Model, node: NodeId, types: &[Option<Type>], op: OpRef) -> String {
    if op.def.functions_of(op.schema.since).is_empty() {
        return "the standard does not define it as a function".to_string();
    }
    let attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
    let mut references = attributes.filter(|attribute| attribute.ref_attr_name().is_some());
    if let Some(reference) = references.next() {
        let name = model.display(reference.name);
        return format!("its function depends on '{name}', an attribute of the enclosing function");
    }
    let mut known = model.inputs(node).zip(types);
    let is_unknown = |ty: &Option<Type>| match ty {
        Some(Type::Tensor(tensor)) => tensor.elem.is_none() || tensor.shape.is_none(),
        Some(_) => false,
        None => true,
    };
    let said = || {
        let mut why = None;
        with_call(model, &mut Scratch::default(), node, types, |call| {
            why = op.def.why_no_function(op.opset, call);
            None
        });
        why
    };
    match known.position(|(input, ty)| input.is_some() && is_unknown(ty)) {
        Some(_) if let Some(why) = said() => why,
        Some(index) => {
            format!("its function depends on types, and the type of input {index} is unknown")
        }
        None => {
            said().unwrap_or_else(|| "the standard has no function for such a node".to_string())
        }
    }
}

/// Returns the subgraphs of a node.
fn graphs_of(model: &Model, node: NodeId) -> impl Iterator<Item = GraphId> + '_ {
    model.attributes(node).iter().flat_map(|id| model.attribute(*id).graphs())
}

fn with_call(
    model: &Model,
    scratch: &mut Scratch,
    node: NodeId,
    types: &[Option<Type>],
    function: impl FnOnce(&Call<'_>) -> Option<String>,
) -> Option<CallFunction> {
    let inputs: Vec<bool> = model.inputs(node).map(|input| input.is_some()).collect();
    let outputs = model.outputs(node).iter();
    let outputs: Vec<bool> = outputs.map(Option::is_some).collect();
    let scratch = RefCell::new(scratch);
    let outer = RefCell::new(Vec::new());
    let text = function(&Call {
        attributes: &NodeAttributes::new(model, node),
        inputs: &inputs,
        outputs: &outputs,
        types,
        graphs: &|attribute, prefix| {
            let Scratch { model: copy, outer: known } = &mut **scratch.borrow_mut();
            let copy = copy.get_or_insert_with(|| model.clone_to_run());
            let taken = Taken { model: copy, known, prefix, named: 0, outer: Vec::new() };
            let (text, found) = taken.graph(node, attribute)?;
            outer.borrow_mut().extend(found);
            Some(text)
        },
    })?;
    let mut given = inputs;
    given.truncate(given.iter().rposition(|is_there| *is_there).map_or(0, |last| last + 1));
    Some(CallFunction { text, outer: outer.into_inner(), given })
}

/// Subgraph of a node that becomes part of a function.
struct Taken<'a> {
    /// Copy of the model, which is changed.
    model: &'a mut Model,
    /// Original of each value that replaces a captured value.
    known: &'a mut HashMap<ValueId, ValueId>,
    /// Prefix of all names in the subgraph.
    prefix: &'a str,
    /// Number of new names.
    named: usize,
    /// Captured values, with their new names.
    outer: Vec<(String, ValueId)>,
}

impl Taken<'_> {
    /// Returns the parts of an attribute's graph as text, with new names, and the captured values.
    fn graph(
        mut self,
        node: NodeId,
        attribute: &str,
    ) -> Option<(GraphText, Vec<(String, ValueId)>)> {
        let attributes = NodeAttributes::new(self.model, node);
        let Some(AttrValue::Graph(graph)) = attributes.attribute(attribute) else {
            return None;
        };
        let graphs = with_graphs_inside(self.model, graph);
        self.rename_outer(&graphs)?;
        for inner in graphs {
            self.rename_all(inner);
        }
        constants_as_nodes(self.model, graph)?;
        let model = &*self.model;
        let found = model.graph(graph);
        let name = |info: &ValueInfo| {
            let value = model.value(info.value?);
            let text = std::str::from_utf8(model.text(value.name)).ok()?;
            // Only values that the graph defines have new names.
            (value.graph == graph && text.starts_with(self.prefix)).then(|| text.to_string())
        };
        let mut nodes = Vec::new();
        for node in &found.nodes {
            let options = PrintOptions::default();
            let (text, _) =
                sardonyx_text::part_to_text(model, PrintPart::Node(*node), options).ok()?;
            nodes.extend_from_slice(&text);
        }
        let text = GraphText {
            inputs: found.inputs.iter().map(name).collect::<Option<_>>()?,
            outputs: found.outputs.iter().map(name).collect::<Option<_>>()?,
            output_types: found
                .outputs
                .iter()
                .map(|output| model.type_of(output.ty.as_ref()?))
                .collect(),
            nodes: String::from_utf8(nodes).ok()?,
        };
        Some((text, self.outer))
    }

    /// Adds a value with a new name.
    fn value(&mut self, graph: GraphId) -> ValueId {
        self.named += 1;
        self.model.add_named_value(graph, &format!("{}{}", self.prefix, self.named))
    }

    /// Replaces captured values by new values in the nodes of `graphs`, as their names could refer
    /// to other values in a function. `None` if a value is undefined, or if a captured value is an
    /// output of a graph.
    fn rename_outer(&mut self, graphs: &[GraphId]) -> Option<()> {
        let inside: HashSet<GraphId> = graphs.iter().copied().collect();
        let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
        for graph in graphs {
            let outputs = self.model.graph(*graph).outputs.iter().filter_map(|info| info.value);
            if outputs.into_iter().any(|value| !inside.contains(&self.model.value(value).graph)) {
                return None;
            }
            for node in self.model.graph(*graph).nodes.clone() {
                let inputs: Vec<Option<ValueId>> = self.model.inputs(node).collect();
                for (index, value) in inputs.into_iter().enumerate() {
                    let Some(value) = value else { continue };
                    let known = self.known.get(&value).copied();
                    let found = self.model.value(value);
                    if known.is_none() && inside.contains(&found.graph) {
                        if found.producer == Producer::Nothing {
                            return None;
                        }
                        continue;
                    }
                    if known.is_none() && found.producer == Producer::Nothing {
                        return None;
                    }
                    let outer = known.unwrap_or(value);
                    let new = match renamed.get(&outer) {
                        Some(new) => *new,
                        None => {
                            let name = format!("{}outer_{}", self.prefix, outer.index());
                            let new = self.model.add_named_value(graphs[0], &name);
                            renamed.insert(outer, new);
                            self.known.insert(new, outer);
                            self.outer.push((name, outer));
                            new
                        }
                    };
                    self.model.set_input(node, index, Some(new));
                }
            }
        }
        Some(())
    }

    /// Gives each value that a graph defines a name that is unique in the function.
    fn rename_all(&mut self, graph: GraphId) {
        let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
        let mut found = self.model.graph(graph).clone();
        let mut rename = |taken: &mut Self, old: ValueId| {
            *renamed.entry(old).or_insert_with(|| taken.value(graph))
        };
        for input in &mut found.inputs {
            if let Some(old) = input.value {
                let new = rename(self, old);
                (input.name, input.value) = (Some(self.model.value(new).name), Some(new));
            }
        }
        for initializer in &mut found.initializers {
            if let Some(old) = initializer.value {
                let new = rename(self, old);
                let name = Some(self.model.value(new).name);
                (initializer.tensor.name, initializer.value) = (name, Some(new));
            }
        }
        for node in &found.nodes {
            for index in 0..self.model.outputs(*node).len() {
                if let Some(old) = self.model.outputs(*node)[index] {
                    let new = rename(self, old);
                    self.model.redefine_output(*node, index, new);
                }
            }
        }
        for (old, new) in &renamed {
            self.model.replace_uses(*old, *new, None);
        }
        for info in found.outputs.iter_mut().chain(&mut found.value_info) {
            if let Some(new) = info.value.and_then(|old| renamed.get(&old)) {
                (info.name, info.value) = (Some(self.model.value(*new).name), Some(*new));
            }
        }
        *self.model.graph_mut(graph) = found;
    }
}

/// Returns a graph and all graphs in it.
fn with_graphs_inside(model: &Model, graph: GraphId) -> Vec<GraphId> {
    let mut inside: HashMap<GraphId, Vec<GraphId>> = HashMap::new();
    for (id, graph) in model.graphs() {
        if let Some(parent) = graph.parent {
            inside.entry(parent).or_default().push(id);
        }
    }
    let mut found = vec![graph];
    let mut next = 0;
    while let Some(outer) = found.get(next) {
        // A graph has only one parent.
        found.extend(inside.remove(outer).unwrap_or_default());
        next += 1;
    }
    found
}

/// Replaces each initializer of a graph by a `Constant` node. `None` if that is not possible.
fn constants_as_nodes(model: &mut Model, graph: GraphId) -> Option<()> {
    let found = model.graph(graph);
    if !found.sparse_initializers.is_empty() {
        return None;
    }
    let nodes = found.nodes.len();
    let constants = found.initializers.iter().map(|initializer| {
        Some((model.tensor(&initializer.tensor, &NoExternalData).ok()?, initializer.value?))
    });
    for (tensor, value) in constants.collect::<Option<Vec<_>>>()? {
        let node = model.add_node(graph, "Constant", "", &[], 1);
        model.set_attribute(node, "value", AttrValue::Tensor(tensor));
        model.redefine_output(node, 0, value);
    }
    model.graph_mut(graph).initializers.clear();
    // Constants precede the nodes that read them.
    model.graph_mut(graph).nodes.rotate_left(nodes);
    Some(())
}
