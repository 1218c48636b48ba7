//! Look-up of nodes with equal inputs, operators and attributes: inputs must have equal types. The
//! results of one such node hold for the others. Most nodes of models with repeated layers are
//! such.
//!
//! Only results that follow from types alone are kept: none that a rule derived from the values of
//! inputs, and none for nodes with problems, names for open sizes, or conditions on sizes.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use sardonyx_model::{Attribute, AttributeValue, Id, Model, NodeId};
use sardonyx_ops::RuleOutcome;
use smallvec::SmallVec;

use super::callees::Callee;
use super::engine::Engine;

/// Maximum number of operands, of attributes, and of numbers in an attribute of nodes that are
/// looked up: comparing longer lists takes as long as inference.
const MOST_LISTED: usize = 64;

/// Maximum number of words that are kept: models with that many different nodes do not repeat them.
const MOST_WORDS: usize = 1 << 18;

/// Number for an absent operand, in place of that of its type.
const ABSENT: u32 = u32::MAX;

/// Types of the outputs of nodes, by their operands, operators and attributes.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    found: HashTable<Kept>,
    /// Operands of each kept node, then the numbers of the types of its outputs.
    words: Vec<u32>,
    /// Operands of the current node.
    given: Vec<u32>,
    hasher: DefaultHashBuilder,
}

/// Node with known results.
#[derive(Debug)]
struct Kept {
    hash: u64,
    node: NodeId,
    /// Index of its first word, and of its results.
    first: u32,
    found: u32,
}

/// Hash of the operands, the operator and the attributes of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenHash(u64);

impl Repeats {
    /// Forgets all nodes, since numbers of types or known sizes have changed.
    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.words.clear();
    }

    fn find(&self, model: &Model, node: NodeId, hash: GivenHash) -> Option<&[u32]> {
        let Repeats { found, words, given, .. } = self;
        let kept = found.find(hash.0, |kept| {
            words[kept.first as usize..kept.found as usize] == given[..]
                && have_same_attributes(model, kept.node, node)
        })?;
        let outputs = model.outputs(node).len();
        words.get(kept.found as usize..kept.found as usize + outputs)
    }

    fn keep(&mut self, node: NodeId, hash: GivenHash, outputs: impl Iterator<Item = u32>) {
        if self.words.len() > MOST_WORDS {
            self.clear();
        }
        let first = self.words.len() as u32;
        self.words.extend(&self.given);
        let found = self.words.len() as u32;
        self.words.extend(outputs);
        let kept = Kept { hash: hash.0, node, first, found };
        self.found.insert_unique(hash.0, kept, |kept| kept.hash);
    }
}

impl Engine<'_> {
    /// Hashes the inputs of a node; `None` if its results depend on more, or if comparing would
    /// take as long as inference.
    pub(super) fn given_hash(&mut self, node: NodeId, callee: &Callee<'_>) -> Option<GivenHash> {
        let has_rule = callee.schema.is_some() && !callee.has_graphs;
        let is_usual = self.style().reuses_results() && !self.alone && self.options.rules.is_none();
        let (model, attributes) = (self.model, self.model.attributes(node));
        let (inputs, outputs) = (model.inputs(node), model.outputs(node));
        if !has_rule
            || !is_usual
            || inputs.len().max(outputs.len()).max(attributes.len()) > MOST_LISTED
        {
            return None;
        }
        let mut given = std::mem::take(&mut self.repeats.given);
        given.clear();
        given.extend([callee.number, inputs.len() as u32, attributes.len() as u32]);
        for value in inputs {
            // A call may leave out an input whose type its function declares.
            given.push(value.map_or(ABSENT, |value| {
                let is_known = u32::from(self.found.known(value).is_some());
                let is_given = u32::from(self.has(Some(value)));
                // A type takes tens of bytes, so that its number has bits to spare.
                self.found.types.number(value) << 2 | is_known << 1 | is_given
            }));
        }
        // Declared types of outputs are merged with the inferred ones.
        let declared = outputs.iter();
        given.extend(
            declared.map(|value| value.map_or(ABSENT, |value| self.found.types.number(value))),
        );
        let mut state = self.repeats.hasher.build_hasher();
        given.hash(&mut state);
        self.repeats.given = given;
        let mut attributes = attributes.iter().map(|id| model.attribute(*id));
        let are_compared = attributes.all(|found| hash_attribute(model, found, &mut state));
        are_compared.then(|| GivenHash(state.finish()))
    }

    /// Whether another node had equal inputs. Its outputs then have the same types.
    pub(super) fn repeat(&mut self, node: NodeId, callee: &Callee<'_>, given: GivenHash) -> bool {
        let model = self.model;
        let Some(numbers) = self.repeats.find(model, node, given) else { return false };
        let numbers: SmallVec<[u32; 4]> = numbers.into();
        if cfg!(debug_assertions) {
            // Detects a rule that depends on more than types, attributes and known values.
            assert!(self.visit(node, callee), "a node like {node:?} was found to be fine");
        }
        for (value, number) in model.outputs(node).iter().zip(numbers) {
            let Some(value) = *value else { continue };
            debug_assert_eq!(self.found.types.get(value), self.found.types.type_of_number(number));
            self.found.types.set_number(value, number);
            let known = self.options.known.and_then(|known| known(value));
            self.found.known[value.index()] = known.map(Box::new);
        }
        true
    }

    /// Keeps the results of a node.
    pub(super) fn keep(&mut self, node: NodeId, given: GivenHash) {
        let types = &self.found.types;
        let outputs = self.model.outputs(node).iter();
        let numbers = outputs.map(|value| value.map_or(0, |value| types.number(value)));
        self.repeats.keep(node, given, numbers);
    }
}

/// Whether the results are independent of a single node and of values.
pub(super) fn depends_on_types_only(outcome: &RuleOutcome) -> bool {
    !outcome.used_values
        && outcome.known.iter().all(Option::is_none)
        && outcome.equal.is_empty()
        && outcome.demands.is_empty()
        && outcome.cut_windows.is_empty()
        && outcome.difference.is_none()
}

/// Adds an attribute to a hash. Returns whether it can be compared.
fn hash_attribute(model: &Model, attribute: &Attribute, state: &mut impl Hasher) -> bool {
    if attribute.ref_attr_name().is_some() {
        return false;
    }
    attribute.name.map(Id::index).hash(state);
    attribute.ty.map(|ty| ty.0).hash(state);
    let [value] = &attribute.values[..] else { return attribute.values.is_empty() };
    match value {
        AttributeValue::Float(value) => value.to_bits().hash(state),
        AttributeValue::Int(value) => value.hash(state),
        AttributeValue::String(span) if span.len as usize <= MOST_LISTED => {
            model.bytes(*span).hash(state);
        }
        AttributeValue::Ints(values) if values.len() <= MOST_LISTED => values.hash(state),
        AttributeValue::Floats(values) if values.len() <= MOST_LISTED => {
            values.iter().for_each(|value| value.to_bits().hash(state));
        }
        _ => return false,
    }
    true
}

/// Whether two nodes have equal attributes in the same order, with floats compared by their bits.
/// Both must be comparable.
fn have_same_attributes(model: &Model, a: NodeId, b: NodeId) -> bool {
    let [a, b] = [a, b].map(|node| model.attributes(node));
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            let [a, b] = [*a, *b].map(|id| model.attribute(id));
            a.name == b.name && a.ty == b.ty && have_same_values(model, a, b)
        })
}

fn have_same_values(model: &Model, a: &Attribute, b: &Attribute) -> bool {
    match (&a.values[..], &b.values[..]) {
        ([], []) => true,
        ([a], [b]) => match (a, b) {
            (AttributeValue::Float(a), AttributeValue::Float(b)) => a.to_bits() == b.to_bits(),
            (AttributeValue::Int(a), AttributeValue::Int(b)) => a == b,
            (AttributeValue::String(a), AttributeValue::String(b)) => {
                model.bytes(*a) == model.bytes(*b)
            }
            (AttributeValue::Ints(a), AttributeValue::Ints(b)) => a == b,
            (AttributeValue::Floats(a), AttributeValue::Floats(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::Registry;
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;
    use crate::infer::InferOptions;

    /// Returns the number of nodes of a model that are kept.
    fn count_kept(nodes: &str) -> usize {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>
             g (float[N, 4] x, float[N, 4] x2, float[4, N] w, float[M, N] v) => (float[N, 4] y)
             <float[4] b = {{1, 2, 3, 4}}, float[4] c = {{5, 6, 7, 8}}, int64[1] s = {{-1}}> {{ {nodes} }}
             <domain: \"local\", opset_import: [\"\": 21]> f <k = 0> (p) => (q) {{
                 h = Abs (p)
                 i = Abs (h)
                 q = Softmax <axis: int = @k> (i)
             }}"
        );
        let parsed = parse_model(Buffer::from_vec(text.into_bytes()), ParseOptions::default());
        let model = parsed.unwrap_or_else(|error| panic!("{error}")).model;
        let registry = Registry::standard();
        let mut engine = Engine::new(&model, &registry, InferOptions::default());
        let main = model.main.unwrap();
        engine.begin(main);
        engine.walk(main);
        engine.repeats.found.len()
    }

    #[test]
    fn equal_nodes_are_inferred_once() {
        let rows = [
            ("y = Abs (x)", 1),
            ("a = Abs (x) b1 = Abs (x2) c1 = Abs (a) y = Identity (a)", 2),
            // Attributes.
            ("a = Transpose <perm = [1, 0]> (x) e = Transpose <perm = [1, 0]> (x2)", 1),
            ("a = Transpose <perm = [1, 0]> (x) e = Transpose <perm = [0, 1]> (x2)", 2),
            ("a = Softmax <axis = 0> (x) e = Softmax <axis = 1> (x2)", 2),
            ("a = Gelu <approximate = \"none\"> (x) e = Gelu <approximate = \"tanh\"> (x)", 2),
            ("a = Elu <alpha = 0.0> (x) e = Elu <alpha = -0.0> (x)", 2),
            // Values that the rule does not read.
            ("a = Add (x, b) e = Add (x2, c)", 1),
            ("a = Add (b, x) e = Add (c, x2)", 1),
            // Values that the rule reads.
            ("a = Reshape (x, s) e = Reshape (x2, s)", 0),
            ("a = Shape (x) e = Shape (x2)", 0),
            // Open sizes, and conditions.
            ("a = NonZero (x) e = NonZero (x2)", 0),
            ("a = MatMul (v, x) e = MatMul (v, x)", 1),
            // A size becomes known here: results before it are not kept.
            ("a = Abs (x) e = Concat <axis = 0> (x, v) h = Abs (x)", 1),
            ("a = Abs (x) e = MatMul (x, x) h = Abs (x)", 1),
            // Problems.
            ("a = Transpose <perm = [0]> (x) e = Transpose <perm = [0]> (x2)", 0),
            // Graphs and functions: their nodes are kept, unless a call determines them.
            ("a = local.f (x) e = local.f (x2) h = local.f <k = 1> (x)", 1),
        ];
        for (nodes, count) in rows {
            assert_eq!(count_kept(nodes), count, "{nodes}");
        }
    }
}
