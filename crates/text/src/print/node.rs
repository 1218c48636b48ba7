//! Nodes and attributes.

use sardonyx_model::{Attribute, AttributeValue, Node, NodeId, ValueId};
use sardonyx_proto::{AttributeType, MessageType, NodeDeviceConfigurationProto};

use super::{Notes, Printer};
use crate::cursor::is_word;
use crate::layout;
use crate::numbers::{self, Form as NumberForm};
use crate::words::{attribute_word, element_of};

impl<'m> Printer<'m, '_, '_> {
    /// A node with its line.
    #[inline]
    pub(super) fn node_line(&mut self, id: NodeId) {
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
            if self.has_lines || (too_long && !self.wrap_node(id, line)) {
                self.lay_out(start, 0);
            }
        }
        // A node that this form has no words for is left out as a whole.
        if self.out[line..].trim_ascii().is_empty() {
            self.out.truncate(line);
            return;
        }
        self.end_line();
    }

    pub(super) fn node_statement(&mut self, id: NodeId) {
        self.node_line(id);
    }

    /// A node on one line. `mark` its brackets, and it can be wrapped.
    fn node(&mut self, id: NodeId, mark: bool) {
        let model = self.model;
        let node = model.node(id);
        if !self.full() && !self.callee_is_portable(node) {
            self.left_out.add(
                "nodes whose operator, domain or overload is no identifier",
                || node_place(self.model, node),
            );
            return;
        }
        if let Some(name) = node.name {
            self.push("[");
            if !model.text(name).is_empty() {
                self.name(name);
            }
            self.push("] ");
        }
        let outputs = model.outputs(id);
        self.operands(outputs.iter().copied(), false);
        self.push(if outputs.is_empty() { "= " } else { " = " });
        self.callee(node);
        if mark {
            self.marks.attributes.clear();
            self.marks.inputs.clear();
        }
        if !node.attributes.is_empty() {
            self.attributes(node, mark);
        }
        self.push("(");
        self.operands(model.inputs(id), mark);
        self.push(")");
        if node.extras.is_some() {
            self.extras(node);
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
        let overload = self.model.maybe_text(node.overload);
        let op_type = self.model.maybe_text(node.op_type).unwrap_or_default();
        is_word(op_type) && (domain.is_empty() || words(domain)) && overload.is_none_or(is_word)
    }

    #[inline]
    fn callee(&mut self, node: &Node) {
        let model = self.model;
        match node.domain {
            None => {
                if !self.full() {
                    self.left_out
                        .add("absent domains, which become empty ones", || {
                            node_place(model, node)
                        });
                }
            }
            Some(domain) => {
                let text = model.text(domain);
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
        if let Some(overload) = node.overload {
            self.push(":");
            self.callee_name(Some(overload));
        }
    }

    /// Unlike elsewhere, words for types need no quotes here.
    fn callee_name(&mut self, symbol: Option<sardonyx_model::Symbol>) {
        match symbol {
            None => self.push("?"),
            Some(symbol) => {
                let text = self.model.text(symbol);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.quoted(text);
                }
            }
        }
    }

    fn extras(&mut self, node: &Node) {
        let model = self.model;
        let Some(extras) = node.extras.as_deref() else {
            return;
        };
        let place = &|| node_place(model, node);
        let mut notes = Notes::default();
        self.doc_note(&mut notes, extras.doc_string, place);
        self.metadata_note(&mut notes, &extras.metadata_props, place);
        if !extras.device_configurations.is_empty()
            && self.note(
                &mut notes,
                "device_configurations",
                "device configurations",
                place,
            )
        {
            self.messages(
                NodeDeviceConfigurationProto::DEF,
                &extras.device_configurations,
            );
        }
        self.unknown(&mut notes, "unknown", &extras.unknown, place);
        self.end_notes(notes);
    }

    // Attributes.

    fn attributes(&mut self, node: &Node, mark: bool) {
        let model = self.model;
        let place = &|| node_place(model, node);
        let start = self.out.len();
        let mut first = true;
        for id in &node.attributes {
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

    /// Lays out the node that was just written on one line, which is too long: the brackets of its attributes, of its inputs
    /// or of both are opened, as [`layout`] does it for any statement. Most long lines are such nodes, and reading them again
    /// would take longer than writing them. Whether that was enough.
    fn wrap_node(&mut self, id: NodeId, line: usize) -> bool {
        if self.model.node(id).extras.is_some() {
            return false;
        }
        let end = self.out.len();
        let marks = std::mem::take(&mut self.marks);
        let inputs_open = marks.inputs.first().map_or(end - 1, |first| *first) - 1;
        let mut wrapped = std::mem::take(&mut self.wrapped);
        wrapped.clear();
        let mut writer = Wrapper {
            flat: &self.out[line..],
            base: line,
            indent: self.indent,
            out: &mut wrapped,
            line_start: 0,
        };
        let fine = match marks.attributes.first() {
            Some(first) => {
                writer.copy(line..first - 1);
                // Behind them stands the bracket of the inputs; empty ones cannot be opened.
                let rest = if marks.inputs.is_empty() { 2 } else { 1 };
                writer.group(&marks.attributes, inputs_open, rest, Items::MayBeOpened)
            }
            None => {
                writer.copy(line..inputs_open);
                true
            }
        };
        if fine {
            if marks.inputs.is_empty() {
                writer.copy(inputs_open..end);
            } else {
                writer.group(&marks.inputs, end, 0, Items::AreNames);
            }
            self.out.truncate(line);
            self.out.extend_from_slice(&wrapped);
        }
        self.marks = marks;
        self.wrapped = wrapped;
        fine
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
                let text = model.text(name);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.quoted(text);
                }
            }
            None => self.push("?"),
        }
        if !self.full() && attribute.ty.is_none() && attribute.ref_attr_name.is_none() {
            self.left_out.add(
                "absent types of attributes, which become those of the values",
                here,
            );
        }
        // A value that is not that of the type, or more than one, stands in the notes.
        let declared = attribute.ty;
        let word = declared.and_then(attribute_word);
        let direct = match (&attribute.values[..], declared) {
            ([value], Some(ty)) => {
                (value.ty() == ty && attribute.ref_attr_name.is_none()).then_some(value)
            }
            ([value], None) if !self.full() => Some(value),
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
            // A reference without a type is read as one.
            (None, None) if self.full() && attribute.ref_attr_name.is_none() => self.push(": ?"),
            _ => {}
        }
        let mut reach_out = false;
        if let Some(name) = attribute.ref_attr_name {
            self.push(" = @");
            self.name(name);
        } else if let Some(value) = direct {
            self.push(" = ");
            let typed = declared.is_some();
            let start = self.out.len();
            reach_out = self.value(value, typed, here);
            if self.out.len() == start {
                return false;
            }
        } else if attribute.values.is_empty()
            && let Some(ty) = declared
            && element_of(ty).is_some()
        {
            self.push(" = []");
        }
        let mut notes = Notes {
            reach_out,
            ..Notes::default()
        };
        self.doc_note(&mut notes, attribute.doc_string, here);
        if direct.is_none() {
            for value in &attribute.values {
                if self.note(&mut notes, value_key(value), "values of another type", here) {
                    self.value(value, true, here);
                }
            }
        }
        self.unknown(&mut notes, "unknown", &attribute.unknown, here);
        self.end_notes(notes);
        true
    }

    /// Why an attribute cannot be written in the portable form.
    fn unportable(&self, attribute: &Attribute) -> Option<&'static str> {
        let name = self.model.maybe_text(attribute.name).unwrap_or_default();
        if !is_word(name) {
            return Some("attributes whose names are no identifiers");
        }
        if attribute.ref_attr_name.is_some() {
            return None;
        }
        let matches = match (&attribute.values[..], attribute.ty) {
            ([value], Some(ty)) => value.ty() == ty,
            ([_], None) => true,
            ([], Some(ty)) => {
                return if element_of(ty).is_some() {
                    None
                } else {
                    Some("attributes without a value")
                };
            }
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
        let form = if typed {
            NumberForm::Shortest
        } else {
            NumberForm::Float
        };
        match value {
            AttributeValue::Float(value) => {
                let value = self.attribute_float(*value, place);
                numbers::push_f32(&mut self.out, value, form);
            }
            AttributeValue::Int(value) => self.integer(*value),
            AttributeValue::String(text) => self.quoted(self.model.bytes(*text)),
            AttributeValue::Tensor(tensor) => return self.attribute_tensor(tensor, place),
            AttributeValue::Graph(graph) => {
                self.has_lines = true;
                self.graph_here(*graph);
            }
            AttributeValue::Type(ty) => {
                self.type_proto(ty, place);
                return !Self::type_has_notes(ty);
            }
            AttributeValue::SparseTensor(tensor) => {
                self.sparse_tensor(tensor);
                return tensor.unknown.is_empty();
            }
            AttributeValue::Floats(values) => self.list(values, |printer, value| {
                let value = printer.attribute_float(*value, place);
                numbers::push_f32(&mut printer.out, value, form);
            }),
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
                printer.graph_here(*graph);
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

    /// A float as this form can write it.
    fn attribute_float(&mut self, value: f32, place: &dyn Fn() -> String) -> f32 {
        let plain = super::tensor::plain_nan(value);
        if self.full() || plain.to_bits() == value.to_bits() {
            return value;
        }
        self.left_out.add("bits of NaNs", place);
        plain
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

/// Where the items of a node's brackets begin in the line that was just written.
#[derive(Default)]
pub(super) struct Marks {
    attributes: Vec<usize>,
    inputs: Vec<usize>,
}

/// What stands in brackets that are opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Items {
    /// Names, which stay as long as they are.
    AreNames,
    /// Attributes, which have brackets of their own.
    MayBeOpened,
}

/// Copies a line with its brackets opened.
struct Wrapper<'f, 'w> {
    /// The line, which begins at `base` of the text.
    flat: &'f [u8],
    base: usize,
    indent: usize,
    out: &'w mut Vec<u8>,
    line_start: usize,
}

impl Wrapper<'_, '_> {
    fn copy(&mut self, range: std::ops::Range<usize>) {
        self.out
            .extend_from_slice(&self.flat[range.start - self.base..range.end - self.base]);
    }

    fn new_line(&mut self, indent: usize) {
        self.out.push(b'\n');
        self.line_start = self.out.len();
        self.out.resize(self.line_start + indent, b' ');
    }

    /// Brackets around items that begin at `starts`; the closing one is the last byte before `end`. Whether no item is too
    /// long for a line.
    fn group(&mut self, starts: &[usize], end: usize, rest: usize, items: Items) -> bool {
        let (Some(first), close) = (starts.first().copied(), end - 1) else {
            return true;
        };
        let column = self.out.len() - self.line_start;
        if column + (end - first + 1) + rest <= layout::WIDTH {
            self.copy(first - 1..end);
            return true;
        }
        let inner = self.indent + layout::INDENT;
        self.copy(first - 1..first);
        if inner + (close - first) <= layout::WIDTH {
            self.new_line(inner);
            self.copy(first..close);
        } else {
            for (index, start) in starts.iter().enumerate() {
                // Between items stand a comma and a blank.
                let (end, comma) = match starts.get(index + 1) {
                    Some(next) => (next - 2, 1),
                    None => (close, 0),
                };
                if items == Items::MayBeOpened && inner + (end - start) + comma > layout::WIDTH {
                    return false;
                }
                self.new_line(inner);
                self.copy(*start..end + comma);
            }
        }
        self.new_line(self.indent);
        self.copy(close..end);
        true
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
