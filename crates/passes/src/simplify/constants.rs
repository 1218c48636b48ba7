//! Constants of a model: reading them, moving them to initializers of the main graph, removing
//! those that nothing reads, and lists that name them.

use std::cell::RefCell;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, AttributeValue, Attributes, ExternalData, GraphId, Model, NoExternalData,
    NodeAttributes, NodeId, Producer, Symbol, TensorProto, ValueId, ValueInfo,
};
use sardonyx_ops::Known;
use sardonyx_ops::operators::CONSTANT;
use sardonyx_tensor::{StringArray, Tensor};

use super::rule::CONSTANTS;
use super::{Job, OldLists, Scope};
use crate::infer::Inference;
use crate::ir_version::PLAIN_INITIALIZERS;
use crate::order::tree;
use crate::pages::give_back_pages;
use crate::resolve::Resolved;

/// Bytes beyond which initializers are compared by a sample first.
pub(super) const LARGE: u64 = 256;
/// Bytes of each part of a sample.
const SAMPLE: usize = 64;
/// Limit: bytes of all initializers that are compared as a whole, as they have to be read.
const MOST_COMPARED: usize = 1 << 29;

/// Use of a name outside of graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUse {
    /// Training steps assign to it, so that it is not a constant.
    State,
    /// It is part of an annotation.
    Annotation,
}

/// Values of constants, read when they are asked for.
pub(super) struct Constants<'a> {
    external: &'a dyn ExternalData,
    names: HashMap<Symbol, NameUse>,
    /// Constants that were read; `None` for those that cannot be.
    read: RefCell<HashMap<ValueId, Option<Tensor>>>,
}

impl<'a> Constants<'a> {
    pub(super) fn new(external: &'a dyn ExternalData, names: HashMap<Symbol, NameUse>) -> Self {
        Constants { external, names, read: RefCell::default() }
    }

    /// Forgets what was read, after values have new definitions.
    pub(super) fn forget(&mut self) {
        self.read.get_mut().clear();
    }

    /// Whether something outside of the graphs refers to a value by its name.
    pub(super) fn is_named(&self, model: &Model, value: ValueId) -> bool {
        self.names.contains_key(&model.value(value).name)
    }

    fn is_state(&self, model: &Model, value: ValueId) -> bool {
        self.names.get(&model.value(value).name) == Some(&NameUse::State)
    }

    /// Whether a value is known before anything runs.
    pub(super) fn is_constant(
        &self,
        resolved: &Resolved,
        inference: &Inference,
        value: ValueId,
    ) -> bool {
        let model = resolved.model();
        match model.value(value).producer {
            Producer::Initializer(_) | Producer::SparseInitializer(_) => {
                !self.is_state(model, value)
            }
            Producer::Node(node, _) => {
                resolved.is(node, &CONSTANT) || is_whole(inference.known(value))
            }
            Producer::Input(_) | Producer::Nothing => false,
        }
    }

    /// Returns the value of a constant.
    pub(super) fn get(
        &self,
        resolved: &Resolved,
        inference: &Inference,
        value: ValueId,
    ) -> Option<Tensor> {
        let model = resolved.model();
        match model.value(value).producer {
            Producer::Node(node, _) if !resolved.is(node, &CONSTANT) => {
                inference.known(value).and_then(Known::to_tensor)
            }
            _ => self.read_stored(model, value),
        }
    }

    /// Reads an initializer or a `Constant` node.
    pub(super) fn read_stored(&self, model: &Model, value: ValueId) -> Option<Tensor> {
        if let Some(read) = self.read.borrow().get(&value) {
            return read.clone();
        }
        let read = match model.value(value).producer {
            Producer::Initializer(_) if !self.is_state(model, value) => {
                let initializer = model.initializer(value);
                initializer.and_then(|found| model.tensor(&found.tensor, self.external).ok())
            }
            Producer::Node(node, 0) if is_constant_node(model, node) => {
                constant_of(model, node, self.external)
            }
            _ => None,
        };
        self.read.borrow_mut().insert(value, read.clone());
        read
    }
}

fn is_whole(known: Option<&Known>) -> bool {
    match known {
        Some(Known::Tensor(_)) => true,
        Some(known @ Known::Ints { values, .. }) => {
            values.iter().all(|value| value.known().is_some()) && known.to_tensor().is_some()
        }
        None => false,
    }
}

/// Whether a node is a `Constant` of the standard.
fn is_constant_node(model: &Model, node: NodeId) -> bool {
    model.domain_of(node).is_empty()
        && model.maybe_text(model.node(node).op_type) == Some(b"Constant")
}

/// Reads a `Constant` node.
fn constant_of(model: &Model, node: NodeId, external: &dyn ExternalData) -> Option<Tensor> {
    if let Some(tensor) = stored_in(model, node) {
        return model.tensor(tensor, external).ok();
    }
    let attributes = NodeAttributes::new(model, node);
    let names =
        ["value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"];
    match names.iter().find_map(|name| attributes.attribute(name))? {
        AttrValue::Float(value) => Some(Tensor::scalar(value)),
        AttrValue::Floats(values) => Tensor::from_slice([values.len()], &values).ok(),
        AttrValue::Int(value) => Some(Tensor::scalar(value)),
        AttrValue::Ints(values) => Tensor::from_slice([values.len()], &values).ok(),
        AttrValue::String(text) => make_texts(&[&text], &[]),
        AttrValue::Strings(all) => {
            make_texts(&all.iter().map(|text| &text[..]).collect::<Vec<_>>(), &[all.len()])
        }
        _ => None,
    }
}

/// Makes a tensor of texts.
fn make_texts(texts: &[&[u8]], dims: &[usize]) -> Option<Tensor> {
    let mut array = StringArray::new();
    texts.iter().for_each(|text| array.push(text));
    Tensor::from_strings(dims, array).ok()
}

/// Finds the stored tensor of a `Constant` node.
fn stored_in(model: &Model, node: NodeId) -> Option<&TensorProto> {
    match model.attribute_of(node, "value")?.value()? {
        AttributeValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

/// Turns a node with one output into a `Constant`.
pub(super) fn become_constant(resolved: &mut Resolved, node: NodeId, value: Tensor, opset: u32) {
    let model = resolved.model_mut();
    let name = model.intern("Constant");
    let changed = model.node_mut(node);
    (changed.op_type, changed.domain, changed.overload) = (Some(name), None, None);
    model.clear_attributes(node);
    model.set_attribute(node, "value", AttrValue::Tensor(value));
    model.set_inputs(node, &[]);
    resolved.set_opset(node, opset);
}

impl Job<'_> {
    /// Makes initializers of the main graph of `Constant` nodes and of the initializers of graphs
    /// of nodes. An output keeps its node: engines expect nodes to make outputs.
    pub(super) fn store_constants(&mut self, scope: Scope) -> usize {
        let ir_version = self.resolved.model().header.ir_version.unwrap_or(0);
        // Before, an initializer has to be an input, and inputs stay as they are.
        if scope.function.is_some() || ir_version < PLAIN_INITIALIZERS {
            return 0;
        }
        let main = self.resolved.main();
        let graphs = self.resolved.graphs().to_vec();
        let mut names: HashMap<Symbol, u32> = HashMap::new();
        for (_, value) in self.resolved.model().values() {
            if value.producer != Producer::Nothing {
                *names.entry(value.name).or_default() += 1;
            }
        }
        let mut moved = Vec::new();
        for graph in graphs {
            for node in self.resolved.order_of(graph).to_vec() {
                let model = self.resolved.model();
                let Some(Some(value)) = model.outputs(node).first().copied() else { continue };
                let is_kept = model.value(value).is_output || self.constants.is_named(model, value);
                if is_kept || !self.resolved.is(node, &CONSTANT) {
                    continue;
                }
                let stored = stored_in(model, node).cloned();
                let model = self.resolved.model_mut();
                let stored = match stored {
                    Some(stored) => Some(stored),
                    None => constant_of(model, node, &NoExternalData)
                        .map(|tensor| model.tensor_proto(&tensor)),
                };
                let Some(stored) = stored else { continue };
                let (model, made, _) = self.resolved.parts_mut();
                made.remove(model, node);
                moved.push((value, stored));
            }
            if graph == main {
                continue;
            }
            // An initializer that is an output stays, as does one that is an input.
            let model = self.resolved.model_mut();
            let mut taken = Vec::new();
            model.retain_initializers(graph, |model, initializer| {
                let is_moved = initializer.value.is_some_and(|value| {
                    let found = model.value(value);
                    !found.is_output && matches!(found.producer, Producer::Initializer(_))
                });
                if is_moved {
                    taken.push(initializer.clone());
                }
                !is_moved
            });
            moved.extend(taken.into_iter().filter_map(|found| Some((found.value?, found.tensor))));
        }
        let count = moved.len();
        for (value, stored) in moved {
            let model = self.resolved.model_mut();
            let name = model.value(value).name;
            // Graphs beside each other may use the same name.
            let is_taken = model.value(value).graph != main
                && names.get(&name).is_some_and(|count| *count > 1);
            let name = is_taken.then(|| {
                let text = model.display(Some(name)).into_owned();
                model.free_name(&text)
            });
            model.define_initializer(main, value, stored, name);
        }
        self.resolved.place_made();
        self.note(CONSTANTS.name, count, 0);
        count
    }

    /// Lets readers of equal large initializers of a graph read the first one, and returns how many
    /// have no readers then. Small ones are compared with those of all graphs.
    ///
    /// Tensors of equal type and shape are distinguished by a few bytes. Only those that have these
    /// in common are read as a whole.
    pub(super) fn merge_large(&mut self, graph: GraphId) -> usize {
        let model = self.resolved.model();
        let mut alike: HashMap<(i32, Vec<i64>), Vec<ValueId>> = HashMap::new();
        for initializer in &model.graph(graph).initializers {
            let Some(value) = initializer.value else { continue };
            let bytes = model.implied_bytes(&initializer.tensor).unwrap_or(0);
            if bytes > LARGE && matches!(model.value(value).producer, Producer::Initializer(_)) {
                let key =
                    (initializer.tensor.data_type.unwrap_or(0), initializer.tensor.dims.to_vec());
                alike.entry(key).or_default().push(value);
            }
        }
        let (mut equal, mut left) = (Vec::new(), MOST_COMPARED);
        for values in alike.into_values().filter(|values| values.len() > 1) {
            let mut first: HashMap<Vec<u8>, (ValueId, Tensor)> = HashMap::new();
            for value in values {
                let Some(tensor) = self.constants.read_stored(model, value) else { continue };
                match first.entry(take_sample(tensor.bytes())) {
                    Entry::Vacant(vacant) => {
                        vacant.insert((value, tensor));
                    }
                    Entry::Occupied(found) => {
                        let bytes = tensor.bytes().len();
                        let (other, before) = found.get();
                        if bytes <= left && before.bytes() == tensor.bytes() {
                            equal.push((value, *other));
                        }
                        give_back_pages(before);
                        give_back_pages(&tensor);
                        left = left.saturating_sub(bytes);
                    }
                }
            }
        }
        let mut count = 0;
        for (value, other) in equal {
            let model = self.resolved.model_mut();
            model.replace_uses(value, other, None);
            count += usize::from(!model.is_read(value));
        }
        count
    }

    /// Removes initializers that nothing reads, in all graphs of the scope.
    pub(super) fn remove_unused_initializers(&mut self) {
        for graph in self.resolved.graphs().to_vec() {
            let names = &self.constants.names;
            let model = self.resolved.model_mut();
            let before = model.graph(graph).initializers.len();
            model.retain_initializers(graph, |model, initializer| {
                initializer.value.is_none_or(|value| {
                    let found = model.value(value);
                    model.is_read(value)
                        || !matches!(found.producer, Producer::Initializer(_))
                        || names.contains_key(&found.name)
                })
            });
            self.report.initializers_removed += before - model.graph(graph).initializers.len();
        }
        self.resolved.forget_constants();
    }
}

/// Takes a few bytes from the start, the middle and the end of a tensor.
fn take_sample(bytes: &[u8]) -> Vec<u8> {
    let (len, size) = (bytes.len(), SAMPLE.min(bytes.len()));
    let starts = [0, (len - size) / 2, len - size];
    starts.iter().flat_map(|start| bytes[*start..start + size].iter().copied()).collect()
}

/// Turns those initializers of a graph for which `turns` returns true into `Constant` nodes. One
/// that cannot be read stays.
pub(super) fn turn_into_nodes(
    model: &mut Model,
    root: GraphId,
    external: &dyn ExternalData,
    turns: &dyn Fn(ValueId) -> bool,
) {
    let mut made = Vec::new();
    model.retain_initializers(root, |model, initializer| {
        let Some(value) = initializer.value.filter(|value| turns(*value)) else { return true };
        let Ok(tensor) = model.tensor(&initializer.tensor, external) else { return true };
        made.push((value, tensor));
        false
    });
    let count = made.len();
    for (value, tensor) in made {
        let node = model.add_node(root, "Constant", "", &[], 1);
        model.set_attribute(node, "value", AttrValue::Tensor(tensor));
        model.redefine_output(node, 0, value);
    }
    model.graph_mut(root).nodes.rotate_right(count);
}

/// Removes functions that are not among the scopes, and returns their number.
pub(super) fn remove_functions(model: &mut Model, scopes: &[Scope]) -> usize {
    let called: HashSet<usize> = scopes.iter().filter_map(|scope| scope.function).collect();
    // Training steps are not scopes, but call functions.
    if !model.training_info.is_empty() {
        return 0;
    }
    let before = model.functions.len();
    let mut index = 0;
    model.functions.retain(|_| {
        index += 1;
        called.contains(&(index - 1))
    });
    before - model.functions.len()
}

/// Removes declared types and annotations of values that no longer exist.
pub(super) fn prune_declarations(model: &mut Model) {
    let roots = model.main.into_iter().chain(model.functions.iter().map(|found| found.body));
    let graphs: Vec<GraphId> = roots.flat_map(|root| tree(model, root)).collect();
    let values = model.values();
    let defined = values.filter(|(_, value)| value.producer != Producer::Nothing);
    let defined: HashSet<(GraphId, Symbol)> =
        defined.map(|(_, value)| (value.graph, value.name)).collect();
    for id in graphs {
        let graph = model.graph_mut(id);
        graph.value_info.retain(|info| info.name.is_none_or(|name| defined.contains(&(id, name))));
        graph.quantization_annotation.retain(|annotation| {
            annotation.tensor_name.is_none_or(|name| defined.contains(&(id, name)))
        });
    }
}

/// Lists the initializers of a graph that are not inputs.
pub(super) fn list_plain(model: &Model, graph: GraphId) -> HashSet<ValueId> {
    let values = model.graph(graph).initializers.iter().filter_map(|found| found.value);
    let is_plain =
        |value: &ValueId| matches!(model.value(*value).producer, Producer::Initializer(_));
    values.filter(is_plain).collect()
}

/// Lists constants among the inputs of the main graph again, as they are before IR version 4: those
/// of the file at their old positions. New ones become nodes, as inputs stay as they are.
pub(super) fn restore_lists(
    model: &mut Model,
    main: GraphId,
    lists: OldLists,
    external: &dyn ExternalData,
) {
    let left: HashSet<ValueId> =
        model.graph(main).initializers.iter().filter_map(|found| found.value).collect();
    let kept = lists.inputs.into_iter().filter(|info| {
        info.value.is_none_or(|value| {
            left.contains(&value) || matches!(model.value(value).producer, Producer::Input(_))
        })
    });
    let inputs: Vec<ValueInfo> = kept.collect();
    let mut old = lists.plain;
    old.extend(inputs.iter().filter_map(|info| info.value));
    turn_into_nodes(model, main, external, &|value| !old.contains(&value));
    model.list_inputs(main, inputs);
}
