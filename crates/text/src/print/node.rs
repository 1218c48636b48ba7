//! Nodes and attributes.

use sardonyx_model::{Attribute, AttributeId, AttributeValue, Node, NodeExtras, NodeId, ValueId};
use sardonyx_proto::{AttributeType, MessageType, NodeDeviceConfigurationProto};

use super::tensor::{has_odd_nan, plain_nan};
use super::{Notes, Printer};
use crate::cursor::is_word;
use crate::layout;
use crate::numbers::{self, Form as NumberForm};
use crate::words::{attribute_word, element_of};

impl<'m> Printer<'m, '_, '_> {
    /// A node with its line, if this form has words for it.
    #[inline]
    pub(super) fn node_line(&mut self, id: NodeId) -> bool {
        let line = self.out.len();
        if self.nested {
            self.node(id, false);
        } else {
            self.out.resize(line + self.indent, b' ');
            let start = self.out.len();
            self.has_lines = false;
            self.nested = true;
            self.node(id, true);
            self.nested = false;
            let too_long = self.out.len() - line > layout::WIDTH;
            if self.has_lines || (too_long && !self.wrap_node(line)) {
                self.lay_out(start, 0);
            }
        }
        // A node that this form has no words for is left out as a whole.
        if self.out[line..].trim_ascii().is_empty() {
            self.out.truncate(line);
            return false;
        }
        self.end_line();
        true
    }

    pub(super) fn node_statement(&mut self, id: NodeId) {
        self.node_line(id);
    }

    /// A node on one line. `mark` its brackets, and it can be wrapped.
    fn node(&mut self, id: NodeId, mark: bool) {
        let model = self.model;
        let node = model.node(id);
        if !self.full() && !self.callee_is_portable(node) {
            self.left_out.add("nodes whose operator, domain or overload is no identifier", || {
                node_place(self.model, node)
            });
            return;
        }
        if let Some(name) = node.name {
            self.push("[");
            if !self.texts.text(name).is_empty() {
                self.name(name);
            }
            self.push("] ");
        }
        let outputs = model.outputs(id);
        self.operands(outputs.iter().copied(), false);
        self.push(if outputs.is_empty() { "= " } else { " = " });
        self.callee(node);
        if mark {
            self.marks.clear();
        }
        let attributes = model.attributes(id);
        if !attributes.is_empty() {
            self.attributes(node, attributes, mark);
        }
        self.push("(");
        self.operands(model.inputs(id), mark);
        self.push(")");
        if mark {
            self.marks.inputs_end = self.out.len();
        }
        if let Some(extras) = model.extras(id) {
            self.extras(node, extras);
        }
    }

    #[inline]
    fn operands(&mut self, values: impl Iterator<Item = Option<ValueId>>, mark: bool) {
        let mut first = true;
        for value in values {
            self.separator(&mut first);
            if mark {
                self.marks.inputs.push(self.out.len());
            }
            match value {
                Some(value) => self.name(self.model.value(value).name),
                None => self.push("\"\""),
            }
        }
    }

    // Operators.

    fn callee_is_portable(&self, node: &Node) -> bool {
        let words = |text: &[u8]| text.split(|byte| *byte == b'.').all(is_word);
        let domain = self.model.maybe_text(node.domain).unwrap_or_default();
        let overload = self.model.maybe_text(node.overload).unwrap_or_default();
        let op_type = self.model.maybe_text(node.op_type).unwrap_or_default();
        is_word(op_type)
            && (domain.is_empty() || words(domain))
            && (overload.is_empty() || is_word(overload))
    }

    #[inline]
    fn callee(&mut self, node: &Node) {
        let model = self.model;
        match node.domain {
            None => {
                if !self.full() {
                    self.left_out.add_harmless("absent domains, which become empty ones", || {
                        node_place(model, node)
                    });
                }
            }
            Some(domain) => {
                let text = self.texts.text(domain);
                if text.is_empty() {
                    if self.full() {
                        self.push("\"\".");
                    }
                } else {
                    if text.split(|byte| *byte == b'.').all(is_word) {
                        self.out.extend_from_slice(text);
                    } else {
                        self.quoted(text);
                    }
                    self.push(".");
                }
            }
        }
        self.callee_name(node.op_type);
        // The portable form has no word for an empty overload, which is none.
        let is_written = |overload: &sardonyx_model::Symbol| {
            self.full() || !self.texts.text(*overload).is_empty()
        };
        if let Some(overload) = node.overload.filter(is_written) {
            self.push(":");
            self.callee_name(Some(overload));
        }
    }

    /// Unlike elsewhere, words for types need no quotes here.
    fn callee_name(&mut self, symbol: Option<sardonyx_model::Symbol>) {
        match symbol {
            None => self.push("?"),
            Some(symbol) => {
                let text = self.texts.text(symbol);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.quoted(text);
                }
            }
        }
    }

    fn extras(&mut self, node: &Node, extras: &NodeExtras) {
        let model = self.model;
        let place = &|| node_place(model, node);
        let mut notes = Notes::marked();
        self.doc_note(&mut notes, extras.doc_string, place);
        self.metadata_note(&mut notes, &extras.metadata_props, place);
        if !extras.device_configurations.is_empty()
            && self.harmless_note(
                &mut notes,
                "device_configurations",
                "device configurations",
                place,
            )
        {
            self.messages(NodeDeviceConfigurationProto::DEF, &extras.device_configurations);
        }
        self.unknown(&mut notes, "unknown", &extras.unknown, place);
        self.end_notes(notes);
    }

    // Attributes.

    fn attributes(&mut self, node: &Node, attributes: &[AttributeId], mark: bool) {
        let model = self.model;
        let place = &|| node_place(model, node);
        let start = self.out.len();
        let mut first = true;
        for id in attributes {
            let before = self.out.len();
            self.push(if first { "<" } else { ", " });
            if self.attribute(model.attribute(*id), place) {
                if mark {
                    let open = if first { "<" } else { ", " };
                    self.marks.attributes.push(before + open.len());
                }
                first = false;
            } else {
                self.out.truncate(before);
            }
        }
        if self.out.len() > start {
            self.push(">");
        }
    }

    /// An attribute. Whether there is a way to write it in this form.
    pub(super) fn attribute(&mut self, attribute: &Attribute, place: &dyn Fn() -> String) -> bool {
        let model = self.model;
        let here = &|| {
            let name = model.display(attribute.name);
            format!("{}, attribute {name}", place())
        };
        if !self.full()
            && let Some(why) = self.unportable(attribute)
        {
            self.left_out.add(why, here);
            return false;
        }
        match attribute.name {
            Some(name) => {
                let text = self.texts.text(name);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.quoted(text);
                }
            }
            None => self.push("?"),
        }
        // A value that is not that of the type, or more than one, stands in the notes.
        let declared = attribute.ty;
        let keeps_empty = self.full() && attribute.has_empty_ref_attr_name();
        let is_reference = keeps_empty || attribute.ref_attr_name().is_some();
        if attribute.has_empty_ref_attr_name() && !keeps_empty {
            self.left_out.add_harmless("empty names of references, which mean nothing", here);
        }
        let word = declared.and_then(attribute_word);
        let direct = match (&attribute.values[..], declared) {
            ([value], Some(ty)) => (value.ty() == ty && !is_reference).then_some(value),
            ([value], None) if !self.full() && !is_reference => Some(value),
            _ => None,
        };
        match (word, declared) {
            (Some(word), _) => {
                self.push(": ");
                self.push(word);
            }
            (None, Some(ty)) if self.full() => {
                self.push(": ?");
                self.integer(ty.0.into());
            }
            (None, Some(_)) => {
                self.left_out.add("types of references that have no word", here);
            }
            // A reference without a type is read as one.
            (None, None) if self.full() && !is_reference => self.push(": ?"),
            _ => {}
        }
        let mut reach_out = false;
        if let Some(name) = attribute.ref_attr_name() {
            self.push(" = @");
            self.name(name);
        } else if keeps_empty {
            self.push(" = @");
            self.quoted(b"");
        } else if let Some(value) = direct {
            self.push(" = ");
            let typed = declared.is_some();
            let start = self.out.len();
            reach_out = self.value(value, typed, here);
            if self.out.len() == start {
                return false;
            }
            if !self.full() && !typed {
                self.left_out.add_harmless(
                    "absent types of attributes, which become those of the values",
                    here,
                );
            }
        } else if attribute.values.is_empty()
            && let Some(ty) = declared
            && element_of(ty).is_some()
        {
            self.push(" = []");
        }
        let mut notes = Notes { reach_out, ..Notes::default() };
        let extras = attribute.extras.as_deref();
        let doc_string = extras.and_then(|extras| extras.doc_string);
        self.doc_note(&mut notes, doc_string, here);
        if direct.is_none() {
            for value in &attribute.values {
                if self.note(&mut notes, value_key(value), "values of another type", here) {
                    self.value(value, true, here);
                }
            }
        }
        if let Some(extras) = extras {
            self.unknown(&mut notes, "unknown", &extras.unknown, here);
        }
        self.end_notes(notes);
        true
    }

    /// Why an attribute cannot be written in the portable form.
    fn unportable(&self, attribute: &Attribute) -> Option<&'static str> {
        let name = self.model.maybe_text(attribute.name).unwrap_or_default();
        if !is_word(name) {
            return Some("attributes whose names are no identifiers");
        }
        if attribute.ref_attr_name().is_some() {
            return None;
        }
        let matches = match (&attribute.values[..], attribute.ty) {
            ([value], Some(ty)) => value.ty() == ty,
            ([_], None) => true,
            ([], Some(ty)) if element_of(ty).is_some() => return None,
            ([], _) => return Some("attributes without a value"),
            _ => false,
        };
        if !matches {
            return Some("attributes whose value is not of their type");
        }
        match attribute.values.first() {
            Some(
                AttributeValue::Tensors(_) | AttributeValue::Graphs(_) | AttributeValue::Types(_),
            ) => Some("attributes that are lists of tensors, graphs or types"),
            Some(AttributeValue::SparseTensor(_) | AttributeValue::SparseTensors(_)) => {
                Some("attributes that are sparse tensors")
            }
            Some(AttributeValue::Type(ty)) if !self.type_is_portable(ty) => {
                Some("types that the portable form cannot name")
            }
            _ => None,
        }
    }

    /// The value of an attribute. Whether what stands last in it could have notes, but has none.
    fn value(&mut self, value: &AttributeValue, typed: bool, place: &dyn Fn() -> String) -> bool {
        // Where no type is written, a float must look like one.
        let form = if typed { NumberForm::Shortest } else { NumberForm::Float };
        match value {
            AttributeValue::Float(value) => {
                let write = self.attribute_floats(&[*value], place);
                numbers::push_f32(&mut self.out, write(*value), form);
            }
            AttributeValue::Int(value) => self.integer(*value),
            AttributeValue::String(text) => self.quoted(self.model.bytes(*text)),
            AttributeValue::Tensor(tensor) => return self.attribute_tensor(tensor, place),
            AttributeValue::Graph(graph) => {
                self.has_lines = true;
                self.graph_here(*graph, true);
            }
            AttributeValue::Type(ty) => {
                self.type_proto(ty, place);
                return !Self::type_has_notes(ty);
            }
            AttributeValue::SparseTensor(tensor) => {
                self.sparse_tensor(tensor);
                return tensor.unknown.is_empty();
            }
            AttributeValue::Floats(values) => {
                let write = self.attribute_floats(values, place);
                self.list(values, |printer, value| {
                    numbers::push_f32(&mut printer.out, write(*value), form);
                });
            }
            AttributeValue::Ints(values) => self.list(values, |printer, value| {
                printer.integer(*value);
            }),
            AttributeValue::Strings(values) => self.list(values, |printer, text| {
                printer.quoted(printer.model.bytes(*text));
            }),
            AttributeValue::Tensors(values) => self.list(values, |printer, tensor| {
                printer.attribute_tensor(tensor, place);
            }),
            AttributeValue::Graphs(values) => self.list(values, |printer, graph| {
                printer.has_lines = true;
                printer.graph_here(*graph, true);
            }),
            AttributeValue::Types(values) => self.list(values, |printer, ty| {
                printer.type_proto(ty, place);
            }),
            AttributeValue::SparseTensors(values) => self.list(values, |printer, tensor| {
                printer.sparse_tensor(tensor);
            }),
        }
        false
    }

    /// What this form writes for each of some floats.
    fn attribute_floats(&mut self, values: &[f32], place: &dyn Fn() -> String) -> fn(f32) -> f32 {
        if self.full() || !values.iter().any(|value| has_odd_nan(*value)) {
            return |value| value;
        }
        self.left_out.add("bits of NaNs", place);
        plain_nan
    }

    fn list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.push("[");
        let mut first = true;
        for value in values {
            self.separator(&mut first);
            write(self, value);
        }
        self.push("]");
    }
}

/// A node in words.
fn node_place(model: &sardonyx_model::Model, node: &Node) -> String {
    let op_type = model.display(node.op_type);
    match model.display(node.name) {
        name if name.is_empty() => format!("a node {op_type}"),
        name => format!("{op_type} {name}"),
    }
}

/// The key of a value among the notes.
fn value_key(value: &AttributeValue) -> &'static str {
    match value.ty() {
        AttributeType::FLOAT => "f",
        AttributeType::INT => "i",
        AttributeType::STRING => "s",
        AttributeType::TENSOR => "t",
        AttributeType::GRAPH => "g",
        AttributeType::TYPE_PROTO => "tp",
        other => attribute_word(other).unwrap_or_default(),
    }
}
