//! Elimination of common subexpressions: nodes that compute equal values are done once, and equal
//! constants are merged.
//!
//! Exporters write an expression wherever their source mentions it, and each number again: the mask
//! of attention in each layer, the square root of a size beside each product. Two nodes compute
//! equal values if they have the same form of the same operator, equal attributes and equal inputs,
//! according to the known values of the inputs. The standard must call the operator deterministic
//! ([`Determinism`]), and no attribute may be a graph, which could read any value around it. Floats
//! are compared by their bits, so that results stay equal bit for bit.
//!
//! A node in an inner graph may also have an equal one in an outer graph, among the nodes before
//! the one that contains the inner graph: their values exist whenever the inner graph runs.
//!
//! Each node is looked up once in a table of earlier nodes, and each use of a value is redirected
//! at most twice, so the time is linear in the size of the graph.

#[cfg(test)]
mod tests;

use hashbrown::{HashMap, HashSet};

use sardonyx_model::{
    Attribute, AttributeValue, GraphId, Id, Model, NoExternalData, NodeId, TensorProto, ValueId,
};
use sardonyx_ops::operators::MAX_POOL;
use sardonyx_ops::{Determinism, Known};
use sardonyx_tensor::Tensor;

use crate::infer::Inference;
use crate::order::inner_graphs;
use crate::payload;
use crate::resolve::Resolved;

/// Maximum number of elements of constants that are compared by content. Larger ones are weights,
/// and reading them would take longer than everything else; they are equal only if they are at the
/// same address.
const SMALL: usize = 64;

/// Number of eliminated items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Eliminated {
    /// Nodes that were removed because an equal one exists.
    pub nodes: usize,
    /// Initializers without a reader because an equal constant exists.
    pub constants: usize,
}

/// Merges nodes that compute equal values into the first of them. `inference` must be that of the
/// current model. `constant` returns values that are known before a run, in addition to the
/// inferred ones.
///
/// The outputs of a graph keep their names: if a later node makes one, the first node makes it
/// instead. If two nodes make an output at the same position, or make it for different graphs, both
/// stay, and readers of the second read the first: an output has one name, and a copy would be a
/// node too.
pub fn eliminate_common(
    resolved: &mut Resolved,
    inference: &Inference,
    constant: &dyn Fn(ValueId) -> Option<Tensor>,
) -> Eliminated {
    eliminate_common_except(resolved, inference, constant, HashSet::new())
}

/// Merges nodes like [`eliminate_common`], but takes no value of `computed` for a constant, even if
/// its elements are inferred.
pub(crate) fn eliminate_common_except(
    resolved: &mut Resolved,
    inference: &Inference,
    constant: &dyn Fn(ValueId) -> Option<Tensor>,
    computed: HashSet<ValueId>,
) -> Eliminated {
    let main = resolved.main();
    let mut elimination = Elimination::new(resolved, inference, constant);
    elimination.computed = computed;
    elimination.graph(main);
    elimination.eliminated
}

/// Key of an item, which equal items share. Parts of variable length follow their length, so that
/// the keys of different items differ.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Key(Vec<u8>);

impl Key {
    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend(bytes);
    }

    /// Appends numbers of one size.
    fn numbers<const N: usize>(&mut self, numbers: impl ExactSizeIterator<Item = [u8; N]>) {
        self.number(numbers.len());
        numbers.for_each(|number| self.0.extend(number));
    }

    /// Appends an id that may be absent.
    fn maybe(&mut self, id: Option<impl Id>) {
        self.number(id.map_or(0, |id| id.index() + 1));
    }

    /// Appends type, dimensions and elements.
    fn content(&mut self, tensor: &Tensor) {
        self.shape(tensor);
        match tensor.strings() {
            Some(strings) => strings.iter().for_each(|text| self.bytes(text)),
            None => self.bytes(tensor.bytes()),
        }
    }

    /// Appends type and dimensions.
    fn shape(&mut self, tensor: &Tensor) {
        self.number(tensor.data_type().number() as usize);
        self.numbers(tensor.dims().iter().map(|dim| dim.to_le_bytes()));
    }

    /// Appends the value of an attribute; `None` for kinds that are not compared: graphs, and rare
    /// kinds.
    fn attribute(&mut self, model: &Model, attribute: &Attribute) -> Option<()> {
        if attribute.ref_attr_name().is_some() {
            return None;
        }
        let Some(value) = attribute.value() else {
            // Zero, or an empty list, of this type.
            self.number(0);
            self.number(attribute.ty?.0 as usize);
            return Some(());
        };
        self.number(value.number() as usize);
        match value {
            AttributeValue::Float(value) => self.0.extend(value.to_bits().to_le_bytes()),
            AttributeValue::Int(value) => self.0.extend(value.to_le_bytes()),
            AttributeValue::String(span) => self.bytes(model.bytes(*span)),
            AttributeValue::Floats(values) => {
                self.numbers(values.iter().map(|value| value.to_bits().to_le_bytes()));
            }
            AttributeValue::Ints(values) => {
                self.numbers(values.iter().map(|value| value.to_le_bytes()));
            }
            AttributeValue::Strings(spans) => {
                self.number(spans.len());
                spans.iter().for_each(|span| self.bytes(model.bytes(*span)));
            }
            AttributeValue::Tensor(tensor) => self.append_stored(model, tensor)?,
            _ => return None,
        }
        Some(())
    }

    /// Appends a stored tensor: by content if it is small, else by its position in the file.
    fn append_stored(&mut self, model: &Model, tensor: &TensorProto) -> Option<()> {
        if payload::element_count(&tensor.dims)? <= SMALL as u64 {
            self.content(&model.tensor(tensor, &NoExternalData).ok()?);
            return Some(());
        }
        let plain = tensor.typed.is_empty() && tensor.segment.is_none() && !tensor.is_external();
        let span = tensor.raw_data.filter(|_| plain)?;
        self.number(tensor.data_type? as usize);
        self.numbers(tensor.dims.iter().map(|dim| dim.to_le_bytes()));
        self.number(span.source.index());
        self.number(span.offset as usize);
        self.number(span.len as usize);
        Some(())
    }
}

struct Elimination<'a> {
    resolved: &'a mut Resolved,
    inference: &'a Inference,
    constant: &'a dyn Fn(ValueId) -> Option<Tensor>,
    /// Values that are not constants, whatever inference knows.
    computed: HashSet<ValueId>,
    /// First equal value of each value.
    first: Vec<ValueId>,
    /// Items in the graphs around the current node, the innermost last.
    scopes: Vec<Scope>,
    /// Constants that are identified by their address, which must not be reused meanwhile.
    held: Vec<Tensor>,
    eliminated: Eliminated,
    /// Number of bytes that were compared and of uses that were redirected. Tests use it to show
    /// that work is linear in the size of the model.
    steps: u64,
}

/// Items of a graph so far.
#[derive(Default)]
struct Scope {
    constants: HashMap<Key, ValueId>,
    computed: HashMap<Key, NodeId>,
}

impl<'a> Elimination<'a> {
    fn new(
        resolved: &'a mut Resolved,
        inference: &'a Inference,
        constant: &'a dyn Fn(ValueId) -> Option<Tensor>,
    ) -> Self {
        let first = (0..resolved.model().value_count()).map(Id::new).collect();
        Elimination {
            resolved,
            inference,
            constant,
            computed: HashSet::new(),
            first,
            scopes: Vec::new(),
            held: Vec::new(),
            eliminated: Eliminated::default(),
            steps: 0,
        }
    }

    fn graph(&mut self, graph: GraphId) {
        self.scopes.push(Scope::default());
        self.initializers(graph);
        let mut order = self.resolved.order_of(graph).to_vec();
        let before = order.len();
        order.retain(|node| {
            let is_redundant = self.is_redundant(*node);
            if !is_redundant {
                let inner: Vec<GraphId> = inner_graphs(self.resolved.model(), *node).collect();
                inner.into_iter().for_each(|graph| self.graph(graph));
            }
            !is_redundant
        });
        if order.len() < before {
            self.eliminated.nodes += before - order.len();
            self.resolved.set_order(graph, order);
        }
        self.scopes.pop();
    }

    /// Adds the constants of the graph before those of nodes: they are available to every reader,
    /// including those in graphs of early nodes.
    fn initializers(&mut self, graph: GraphId) {
        let graph = self.resolved.model().graph(graph);
        let dense = graph.initializers.iter().map(|found| found.value);
        let sparse = graph.sparse_initializers.iter().map(|found| found.value);
        let values: Vec<ValueId> = dense.chain(sparse).flatten().collect();
        for value in values {
            if !self.resolved.model().is_read(value) {
                continue;
            }
            let Some(tensor) = (self.constant)(value) else {
                continue;
            };
            let mut key = Key::default();
            if tensor.len() <= SMALL {
                key.content(&tensor);
            } else {
                let Some(buffer) = tensor.buffer() else {
                    continue;
                };
                key.shape(&tensor);
                key.number(buffer.as_slice().as_ptr().addr());
                self.held.push(tensor);
            }
            if self.redirect_constant(key, value) && !self.resolved.model().is_read(value) {
                self.eliminated.constants += 1;
            }
        }
    }

    /// Whether a node is not needed because earlier ones make its outputs.
    fn is_redundant(&mut self, node: NodeId) -> bool {
        let model = self.resolved.model();
        if let [Some(value)] = *model.outputs(node)
            && let Some(tensor) = self.small_constant(value)
        {
            let mut key = Key::default();
            key.content(&tensor);
            let gone =
                self.redirect_constant(key, value) && !self.resolved.model().value(value).is_output;
            if gone {
                self.resolved.model_mut().detach_node(node);
            }
            return gone;
        }
        let Some(key) = self.key(node) else {
            return false;
        };
        self.steps += key.0.len() as u64;
        let scopes = self.scopes.iter().rev();
        match scopes.filter_map(|scope| scope.computed.get(&key)).next().copied() {
            Some(first) if !self.can_provide(first, node) => false,
            Some(first) => self.merge(first, node),
            None => {
                self.scopes.last_mut().map(|scope| scope.computed.insert(key, node));
                false
            }
        }
    }

    /// Returns the elements of a known value that is small.
    fn small_constant(&self, value: ValueId) -> Option<Tensor> {
        if self.computed.contains(&value) {
            return None;
        }
        let known = || self.inference.known(value).and_then(Known::to_tensor);
        (self.constant)(value).or_else(known).filter(|tensor| tensor.len() <= SMALL)
    }

    /// Redirects the readers of a constant to an equal earlier one. Returns whether there is one.
    fn redirect_constant(&mut self, key: Key, value: ValueId) -> bool {
        self.steps += key.0.len() as u64;
        let scopes = self.scopes.iter().rev();
        match scopes.filter_map(|scope| scope.constants.get(&key)).next().copied() {
            Some(first) => {
                self.redirect_readers(value, first);
                true
            }
            None => {
                self.scopes.last_mut().map(|scope| scope.constants.insert(key, value));
                false
            }
        }
    }

    /// Returns the key of a node, if it can be compared.
    fn key(&self, node: NodeId) -> Option<Key> {
        let schema = self.resolved.schema(node)?;
        if schema.determinism != Determinism::Deterministic {
            return None;
        }
        let model = self.resolved.model();
        // Few nodes need more.
        let mut key = Key(Vec::with_capacity(128));
        // Each form of an operator has one schema.
        key.number(std::ptr::from_ref(schema).addr());
        key.maybe(model.node(node).overload);
        let inputs = model.inputs(node);
        key.number(inputs.len());
        for input in inputs {
            key.maybe(input.map(|value| self.first[value.index()]));
        }
        // The number of outputs determines the results of some operators, such as `Split`.
        if !self.resolved.is(node, &MAX_POOL) {
            let outputs = model.outputs(node);
            key.number(outputs.len());
            for output in outputs {
                key.number(usize::from(output.is_some()));
            }
        }
        let attributes = model.attributes(node).iter();
        let mut attributes: Vec<&Attribute> = attributes.map(|id| model.attribute(*id)).collect();
        attributes.sort_by_key(|attribute| attribute.name.map(Id::index));
        key.number(attributes.len());
        for attribute in attributes {
            key.maybe(attribute.name);
            key.attribute(model, attribute)?;
        }
        Some(key)
    }

    /// Whether a node has, or can get, all outputs of an equal later one: the gradient of a
    /// `MaxPool` needs the positions of the greatest elements, which the node of the model does not
    /// return.
    fn can_provide(&mut self, first: NodeId, second: NodeId) -> bool {
        let model = self.resolved.model();
        let lacks = |index: usize| model.outputs(first).get(index).is_none_or(Option::is_none);
        let wanted = model.outputs(second).iter().enumerate();
        let wanted = wanted.filter(|(index, output)| output.is_some() && lacks(*index));
        let missing: Vec<usize> = wanted.map(|(index, _)| index).collect();
        if missing.is_empty() {
            return true;
        }
        if model.node(first).graph != model.node(second).graph {
            return false;
        }
        for index in missing {
            let model = self.resolved.model_mut();
            let Some(value) = model.outputs(second)[index] else { continue };
            model.fill_outputs(first, index + 1);
            let made = self.first.len()..model.value_count();
            self.first.extend(made.map(ValueId::new));
            model.drop_output(second, index);
            model.redefine_output(first, index, value);
        }
        true
    }

    /// Gives `first` the outputs of `second`. Returns whether `second` is not needed any more.
    fn merge(&mut self, first: NodeId, second: NodeId) -> bool {
        let model = self.resolved.model();
        let pairs = model.outputs(first).iter().zip(model.outputs(second));
        let pairs = pairs.enumerate();
        let pairs: Vec<(usize, ValueId, ValueId)> =
            pairs.filter_map(|(index, (a, b))| Some((index, (*a)?, (*b)?))).collect();
        let is_output = |value: ValueId| model.value(value).is_output;
        let elsewhere = model.node(first).graph != model.node(second).graph;
        let stays = |a: ValueId, b: ValueId| is_output(b) && (is_output(a) || elsewhere);
        let stays = pairs.iter().any(|(_, a, b)| stays(*a, *b));
        let named: Vec<bool> = pairs.iter().map(|(_, _, b)| is_output(*b)).collect();
        if stays {
            for (_, a, b) in pairs {
                self.redirect_readers(b, a);
            }
            return false;
        }
        self.resolved.model_mut().detach_node(second);
        for ((index, a, b), named) in pairs.into_iter().zip(named) {
            if named {
                // Items that were compared with `a` so far stay comparable with `b`.
                self.first[b.index()] = self.first[a.index()];
                self.redirect_readers(a, b);
                self.resolved.model_mut().redefine_output(first, index, b);
            } else {
                self.redirect_readers(b, a)
            }
        }
        true
    }

    /// Redirects the readers of `value` to `other`, which is equal.
    fn redirect_readers(&mut self, value: ValueId, other: ValueId) {
        let model = self.resolved.model_mut();
        self.steps += model.uses(value).count() as u64;
        model.replace_uses(value, other, None);
        self.first[value.index()] = self.first[other.index()];
    }
}
