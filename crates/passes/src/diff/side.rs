//! One of the two models of a comparison, with its texts numbered so that equal texts of both
//! models have equal numbers.

use std::hash::{DefaultHasher, Hash, Hasher};

use sardonyx_model::{
    Attribute, AttributeValue, Entry, ExternalData, Id, Model, ModelPart, NoExternalData, NodeId,
    Span, Symbol, TensorProto, TypeProto, ValueId,
};

use super::ModelWithData;
use crate::payload;

/// The most elements of a tensor whose values count when nodes are matched. Larger tensors are
/// weights, which differ between versions of a model that is otherwise the same.
const SMALL: u64 = 64;

/// A model with numbers for its texts, to compare it with the other one.
pub(super) struct Side<'m> {
    pub(super) model: &'m Model,
    pub(super) data: &'m dyn ExternalData,
    /// The number of each text, by symbol.
    numbers: Vec<usize>,
    /// The number of the empty text.
    empty: Option<usize>,
    /// The number of `ai.onnx`.
    standard: Option<usize>,
}

/// The operator or function that a node calls. Equal texts have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Callee {
    domain: Option<usize>,
    name: Option<usize>,
    overload: Option<usize>,
}

impl<'m> Side<'m> {
    /// Numbers the texts of both models.
    pub(super) fn pair(before: ModelWithData<'m>, after: ModelWithData<'m>) -> [Side<'m>; 2] {
        let count = after.model.symbol_count();
        let texts = before.model.all_texts().enumerate();
        let numbers = texts.map(|(index, text)| match after.model.symbol(text) {
            Some(symbol) => symbol.index(),
            None => count + index,
        });
        [Side::new(before, numbers.collect()), Side::new(after, (0..count).collect())]
    }

    fn new(files: ModelWithData<'m>, numbers: Vec<usize>) -> Side<'m> {
        let ModelWithData { model, data } = files;
        let number = |text: &[u8]| model.symbol(text).map(|symbol| numbers[symbol.index()]);
        let (empty, standard) = (number(b""), number(b"ai.onnx"));
        Side { model, data, numbers, empty, standard }
    }

    /// Returns the number of a text; `None` for an empty or absent one.
    pub(super) fn number(&self, symbol: Option<Symbol>) -> Option<usize> {
        Some(self.numbers[symbol?.index()]).filter(|number| Some(*number) != self.empty)
    }

    /// Returns the number of a value's name.
    pub(super) fn name(&self, value: ValueId) -> Option<usize> {
        self.number(Some(self.model.value(value).name))
    }

    /// Returns the name of a value for people.
    pub(super) fn show(&self, value: ValueId) -> String {
        sardonyx_proto::shown(self.model.text(self.model.value(value).name))
    }

    pub(super) fn callee(&self, node: NodeId) -> Callee {
        let node = self.model.node(node);
        Callee {
            domain: self.number(node.domain).filter(|domain| Some(*domain) != self.standard),
            name: self.number(node.op_type),
            overload: self.number(node.overload),
        }
    }

    /// Hashes a node apart from its inputs: callee, attributes and the outputs that it has. Graphs
    /// in attributes and large tensors do not count.
    pub(super) fn hash_node(&self, node: NodeId) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.callee(node).hash(&mut hasher);
        for output in self.model.outputs(node) {
            output.is_some().hash(&mut hasher);
        }
        let ids = self.model.attributes(node).iter();
        let mut attributes: Vec<&Attribute> = ids.map(|id| self.model.attribute(*id)).collect();
        attributes.sort_by_key(|attribute| self.number(attribute.name));
        for attribute in attributes {
            self.number(attribute.name).hash(&mut hasher);
            self.number(attribute.ref_attr_name()).hash(&mut hasher);
            for value in &attribute.values {
                self.hash_attribute(value, &mut hasher);
            }
        }
        hasher.finish()
    }

    fn hash_attribute(&self, value: &AttributeValue, hasher: &mut DefaultHasher) {
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        value.number().hash(hasher);
        match value {
            AttributeValue::Float(value) => value.to_bits().hash(hasher),
            AttributeValue::Int(value) => value.hash(hasher),
            AttributeValue::String(span) => self.model.bytes(*span).hash(hasher),
            AttributeValue::Floats(values) => bits(values).hash(hasher),
            AttributeValue::Ints(values) => values.hash(hasher),
            AttributeValue::Strings(spans) => {
                spans.iter().for_each(|span| self.model.bytes(*span).hash(hasher));
            }
            AttributeValue::Tensor(tensor) => self.hash_tensor(tensor, hasher),
            AttributeValue::Tensors(list) => {
                list.iter().for_each(|tensor| self.hash_tensor(tensor, hasher));
            }
            AttributeValue::Graph(_)
            | AttributeValue::Graphs(_)
            | AttributeValue::Type(_)
            | AttributeValue::Types(_)
            | AttributeValue::SparseTensor(_)
            | AttributeValue::SparseTensors(_) => {}
        }
    }

    fn hash_tensor(&self, tensor: &TensorProto, hasher: &mut DefaultHasher) {
        tensor.data_type.hash(hasher);
        tensor.dims.hash(hasher);
        let is_small = payload::element_count(&tensor.dims).is_some_and(|count| count <= SMALL);
        if is_small && let Ok(tensor) = self.model.tensor(tensor, &NoExternalData) {
            match tensor.strings() {
                Some(strings) => strings.iter().for_each(|text| text.hash(hasher)),
                None => tensor.bytes().hash(hasher),
            }
        }
    }

    /// Returns named texts in the order of their keys.
    pub(super) fn entries(&self, entries: &[Entry]) -> Vec<(String, String)> {
        let text =
            |symbol| sardonyx_proto::shown(self.model.maybe_text(symbol).unwrap_or_default());
        let mut entries: Vec<(String, String)> =
            entries.iter().map(|entry| (text(entry.key), text(entry.value))).collect();
        entries.sort();
        entries
    }

    /// Returns the bytes of messages that a model keeps as they are.
    pub(super) fn records(&self, spans: impl Iterator<Item = Span>) -> Vec<&'m [u8]> {
        spans.map(|span| self.model.bytes(span)).collect()
    }

    /// Returns a declared type as it is in the file.
    pub(super) fn type_bytes(&self, ty: Option<&TypeProto>) -> Option<Vec<u8>> {
        ty.map(|ty| self.model.part_to_bytes(ModelPart::Type(ty)))
    }
}
