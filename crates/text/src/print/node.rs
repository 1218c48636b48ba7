//! Prints nodes and attributes.

use sardonyx_model::{Attribute, AttributeId, AttributeValue, Node, NodeExtras, NodeId, ValueId};
use sardonyx_proto::{AttributeType, MessageType, NodeDeviceConfigurationProto};

use super::tensor::{has_odd_nan, plain_nan};
use super::{Notes, Printer};
use crate::cursor::is_word;
use crate::layout;
use crate::numbers::{self, FloatForm};
use crate::words::{attribute_word, element_of};

impl<'m> Printer<'m, '_, '_> {
    /// Writes a node with its line, if this form can express it; returns whether it did.
    #[inline]
    pub(super) fn write_node_line(&mut self, id: NodeId) -> bool {
        let line = self.out.len();
        if self.nested {
            self.write_node(id, false);
        } else {
            self.out.resize(line + self.indent, b' ');
            let start = self.out.len();
            self.has_lines = false;
            self.nested = true;
            self.write_node(id, true);
            self.nested = false;
            let too_long = self.out.len() - line > layout::WIDTH;
            if self.has_lines || (too_long && !self.wrap_node(line)) {
                self.lay_out(start, 0);
            }
        }
        // A node that this form cannot express is left out as a whole.
        if self.out[line..].trim_ascii().is_empty() {
            self.out.truncate(line);
            return false;
        }
        self.end_line();
        true
    }

    pub(super) fn write_node_statement(&mut self, id: NodeId) {
        self.write_node_line(id);
    }

    /// Writes a node on one line. With `mark`, records its brackets, so that it can be wrapped.
    fn write_node(&mut self, id: NodeId, mark: bool) {
        let model = self.model;
        let node = model.node(id);
        if !self.is_full() && !self.callee_is_portable(node) {
            self.left_out.add("nodes whose operator, domain or overload is no identifier", || {
                node_place(self.model, node)
            });
            return;
        }
        if let Some(name) = node.name {
            self.push("[");
            if !self.texts.text(name).is_empty() {
                self.write_name(name);
            }
            self.push("] ");
        }
        let outputs = model.outputs(id);
        self.write_operands(outputs.iter().copied(), false);
        self.push(if outputs.is_empty() { "= " } else { " = " });
        self.write_callee(node);
        if mark {
            self.marks.clear();
        }
        let attributes = model.attributes(id);
        if !attributes.is_empty() {
            self.write_attributes(node, attributes, mark);
        }
        self.push("(");
        self.write_operands(model.inputs(id), mark);
        self.push(")");
        if mark {
            self.marks.inputs_end = self.out.len();
        }
        if let Some(extras) = model.extras(id) {
            self.write_extras(node, extras);
        }
    }

    #[inline]
    fn write_operands(&mut self, values: impl Iterator<Item = Option<ValueId>>, mark: bool) {
        let mut first = true;
        for value in values {
            self.write_separator(&mut first);
            if mark {
                self.marks.inputs.push(self.out.len());
            }
            match value {
                Some(value) => self.write_name(self.model.value(value).name),
                None => self.push("\"\""),
            }
        }
    }

    // Operators.

    fn callee_is_portable(&self, node: &Node) -> bool {
        let domain = self.model.maybe_text(node.domain).unwrap_or_default();
        let overload = self.model.maybe_text(node.overload).unwrap_or_default();
        let op_type = self.model.maybe_text(node.op_type).unwrap_or_default();
        is_word(op_type)
            && (domain.is_empty() || domain.split(|byte| *byte == b'.').all(is_word))
            && (overload.is_empty() || is_word(overload))
    }

    #[inline]
    fn write_callee(&mut self, node: &Node) {
        let model = self.model;
        match node.domain {
            None => {
                if !self.is_full() {
                    self.left_out.add_harmless("absent domains, which become empty ones", || {
                        node_place(model, node)
                    });
                }
            }
            Some(domain) => {
                let text = self.texts.text(domain);
                if text.is_empty() {
                    if self.is_full() {
                        self.push("\"\".");
                    }
                } else {
                    if text.split(|byte| *byte == b'.').all(is_word) {
                        self.out.extend_from_slice(text);
                    } else {
                        self.write_quoted(text);
                    }
                    self.push(".");
                }
            }
        }
        self.write_callee_name(node.op_type);
        // The portable form cannot express an empty overload, which means none.
        let is_written = |overload: &sardonyx_model::Symbol| {
            self.is_full() || !self.texts.text(*overload).is_empty()
        };
        if let Some(overload) = node.overload.filter(is_written) {
            self.push(":");
            self.write_callee_name(Some(overload));
        }
    }

    /// Writes a name of a callee: unlike elsewhere, words for types need no quotes here.
    fn write_callee_name(&mut self, symbol: Option<sardonyx_model::Symbol>) {
        match symbol {
            None => self.push("?"),
            Some(symbol) => {
                let text = self.texts.text(symbol);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.write_quoted(text);
                }
            }
        }
    }

    fn write_extras(&mut self, node: &Node, extras: &NodeExtras) {
        let model = self.model;
        let place = &|| node_place(model, node);
        let mut notes = Notes::with_marks();
        self.write_doc_note(&mut notes, extras.doc_string, place);
        self.write_metadata_note(&mut notes, &extras.metadata_props, place);
        if !extras.device_configurations.is_empty()
            && self.begin_harmless_note(
                &mut notes,
                "device_configurations",
                "device configurations",
                place,
            )
        {
            self.write_messages(NodeDeviceConfigurationProto::DEF, &extras.device_configurations);
        }
        self.write_unknown(&mut notes, "unknown", &extras.unknown, place);
        self.end_notes(notes);
    }

    // Attributes.

    fn write_attributes(&mut self, node: &Node, attributes: &[AttributeId], mark: bool) {
        let model = self.model;
        let place = &|| node_place(model, node);
        let start = self.out.len();
        let mut first = true;
        for id in attributes {
            let before = self.out.len();
            self.push(if first { "<" } else { ", " });
            if self.write_attribute(model.attribute(*id), place) {
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

    /// Writes an attribute. Returns whether this form can express it.
    pub(super) fn write_attribute(
        &mut self,
        attribute: &Attribute,
        place: &dyn Fn() -> String,
    ) -> bool {
        let model = self.model;
        let here = &|| {
            let name = model.display(attribute.name);
            format!("{}, attribute {name}", place())
        };
        if !self.is_full()
            && let Some(why) = self.find_unportable(attribute)
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
                    self.write_quoted(text);
                }
            }
            None => self.push("?"),
        }
        // A value of another type than declared, or a second value, is written in the annotations.
        let declared = attribute.ty;
        let keeps_empty = self.is_full() && attribute.has_empty_ref_attr_name();
        let is_reference = keeps_empty || attribute.ref_attr_name().is_some();
        if attribute.has_empty_ref_attr_name() && !keeps_empty {
            self.left_out.add_harmless("empty names of references, which mean nothing", here);
        }
        let word = declared.and_then(attribute_word);
        let direct = match (&attribute.values[..], declared) {
            ([value], Some(ty)) => (value.ty() == ty && !is_reference).then_some(value),
            ([value], None) if !self.is_full() && !is_reference => Some(value),
            _ => None,
        };
        match (word, declared) {
            (Some(word), _) => {
                self.push(": ");
                self.push(word);
            }
            (None, Some(ty)) if self.is_full() => {
                self.push(": ?");
                self.write_integer(ty.0.into());
            }
            (None, Some(_)) => {
                self.left_out.add("types of references that have no word", here);
            }
            // Without this, an attribute without type and value would be parsed as a reference.
            (None, None) if self.is_full() && !is_reference => self.push(": ?"),
            _ => {}
        }
        let mut reach_out = false;
        if let Some(name) = attribute.ref_attr_name() {
            self.push(" = @");
            self.write_name(name);
        } else if keeps_empty {
            self.push(" = @");
            self.write_quoted(b"");
        } else if let Some(value) = direct {
            self.push(" = ");
            let typed = declared.is_some();
            let start = self.out.len();
            reach_out = self.write_value(value, typed, here);
            if self.out.len() == start {
                return false;
            }
            if !self.is_full() && !typed {
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
        self.write_doc_note(&mut notes, doc_string, here);
        if direct.is_none() {
            for value in &attribute.values {
                if self.begin_note(&mut notes, value_key(value), "values of another type", here) {
                    self.write_value(value, true, here);
                }
            }
        }
        if let Some(extras) = extras {
            self.write_unknown(&mut notes, "unknown", &extras.unknown, here);
        }
        self.end_notes(notes);
        true
    }

    /// Returns the reason why the portable form cannot express an attribute.
    fn find_unportable(&self, attribute: &Attribute) -> Option<&'static str> {
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

    /// Writes the value of an attribute. Returns whether its last part could have annotations, but
    /// has none.
    fn write_value(
        &mut self,
        value: &AttributeValue,
        typed: bool,
        place: &dyn Fn() -> String,
    ) -> bool {
        // Without a declared type, a float must be a float literal.
        let form = if typed { FloatForm::Shortest } else { FloatForm::Float };
        match value {
            AttributeValue::Float(value) => {
                let write = self.portable_floats(&[*value], place);
                numbers::push_f32(&mut self.out, write(*value), form);
            }
            AttributeValue::Int(value) => self.write_integer(*value),
            AttributeValue::String(text) => self.write_quoted(self.model.bytes(*text)),
            AttributeValue::Tensor(tensor) => return self.write_attribute_tensor(tensor, place),
            AttributeValue::Graph(graph) => {
                self.has_lines = true;
                self.write_graph_here(*graph, true);
            }
            AttributeValue::Type(ty) => {
                self.write_type_proto(ty, place);
                return !Self::type_has_notes(ty);
            }
            AttributeValue::SparseTensor(tensor) => {
                self.write_sparse_tensor(tensor);
                return tensor.unknown.is_empty();
            }
            AttributeValue::Floats(values) => {
                let write = self.portable_floats(values, place);
                self.write_list(values, |printer, value| {
                    numbers::push_f32(&mut printer.out, write(*value), form);
                });
            }
            AttributeValue::Ints(values) => self.write_list(values, |printer, value| {
                printer.write_integer(*value);
            }),
            AttributeValue::Strings(values) => self.write_list(values, |printer, text| {
                printer.write_quoted(printer.model.bytes(*text));
            }),
            AttributeValue::Tensors(values) => self.write_list(values, |printer, tensor| {
                printer.write_attribute_tensor(tensor, place);
            }),
            AttributeValue::Graphs(values) => self.write_list(values, |printer, graph| {
                printer.has_lines = true;
                printer.write_graph_here(*graph, true);
            }),
            AttributeValue::Types(values) => self.write_list(values, |printer, ty| {
                printer.write_type_proto(ty, place);
            }),
            AttributeValue::SparseTensors(values) => self.write_list(values, |printer, tensor| {
                printer.write_sparse_tensor(tensor);
            }),
        }
        false
    }

    /// Returns the function that maps floats to those that this form can express.
    fn portable_floats(&mut self, values: &[f32], place: &dyn Fn() -> String) -> fn(f32) -> f32 {
        if self.is_full() || !values.iter().any(|value| has_odd_nan(*value)) {
            return |value| value;
        }
        self.left_out.add("bits of NaNs", place);
        plain_nan
    }

    fn write_list<T>(&mut self, values: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.push("[");
        let mut first = true;
        for value in values {
            self.write_separator(&mut first);
            write(self, value);
        }
        self.push("]");
    }
}

/// Describes a node for messages.
fn node_place(model: &sardonyx_model::Model, node: &Node) -> String {
    let op_type = model.display(node.op_type);
    match model.display(node.name) {
        name if name.is_empty() => format!("a node {op_type}"),
        name => format!("{op_type} {name}"),
    }
}

/// Returns the key of a value in the annotations.
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
