//! Prints a part of a model on one short line, with a marked range: for messages, not to be parsed.

use std::ops::Range;

use sardonyx_model::{
    Attribute, AttributeValue, Model, NodeId, TensorProto, TypeProto, ValueId, ValueInfo,
};
use sardonyx_proto::{push_shown, shown};

use super::{PrintOptions, Printer};
use crate::words::attribute_word;

/// Part of a node that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMark {
    /// The whole node.
    Whole,
    /// The name of the node.
    Name,
    /// The operator or function that the node calls.
    Callee,
    /// An input, by position.
    Input(usize),
    /// An output, by position.
    Output(usize),
    /// An attribute, by position.
    Attribute(usize),
}

/// Line with a marked range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The line.
    pub line: String,
    /// Marked range of the line, in bytes.
    pub mark: Range<usize>,
}

/// Number of items that are displayed at the start of a list.
const FIRST: usize = 4;

/// Number of items that are displayed on either side of the marked one.
const AROUND: usize = 1;

/// Number of elements of a value that are displayed.
const ELEMENTS: usize = 8;

/// Bytes that most lines take at most.
const LINE: usize = 128;

struct Line<'m> {
    model: &'m Model,
    line: String,
    mark: Range<usize>,
}

/// Prints a node.
pub fn node_excerpt(model: &Model, node: NodeId, mark: NodeMark) -> Excerpt {
    let mut line = Line::new(model);
    let found = model.node(node);
    if let Some(name) = found.name {
        line.write_marked(mark == NodeMark::Name, |line| {
            line.line.push('[');
            push_shown(&mut line.line, model.text(name));
            line.line += "] ";
        });
        // The blank after the name is not marked.
        if mark == NodeMark::Name {
            line.mark.end -= 1;
        }
    }
    let meant = match mark {
        NodeMark::Output(index) => Some(index),
        _ => None,
    };
    line.write_operands(model.outputs(node).iter().copied(), meant);
    line.line += if model.outputs(node).is_empty() { "= " } else { " = " };
    line.write_marked(mark == NodeMark::Callee, |line| {
        for (symbol, end) in [(found.domain, "."), (found.op_type, "")] {
            let text = model.maybe_text(symbol).unwrap_or_default();
            if !text.is_empty() {
                push_shown(&mut line.line, text);
                line.line += end;
            }
        }
        let overload = model.maybe_text(found.overload).unwrap_or_default();
        if !overload.is_empty() {
            line.line.push(':');
            push_shown(&mut line.line, overload);
        }
    });
    let attributes = model.attributes(node);
    if !attributes.is_empty() {
        line.line += " <";
        let meant = match mark {
            NodeMark::Attribute(index) => Some(index),
            _ => None,
        };
        let attributes = attributes.iter().map(|id| model.attribute(*id));
        line.write_list(attributes, meant, Line::write_attribute);
        line.line += ">";
    }
    line.line += " (";
    let meant = match mark {
        NodeMark::Input(index) => Some(index),
        _ => None,
    };
    line.write_operands(model.inputs(node), meant);
    line.line += ")";
    line.finish()
}

/// Prints an attribute.
pub fn attribute_excerpt(model: &Model, attribute: &Attribute) -> Excerpt {
    let mut line = Line::new(model);
    line.write_attribute(attribute);
    line.finish()
}

/// Prints the name and type of a value.
pub fn value_excerpt(model: &Model, info: &ValueInfo) -> Excerpt {
    let mut line = Line::new(model);
    if let Some(ty) = &info.ty {
        line.line += &format_type(model, ty);
        line.line.push(' ');
    }
    line.line += &match info.name {
        Some(name) => shown(model.text(name)),
        None => "?".to_string(),
    };
    line.finish()
}

/// Prints a stored tensor, without its values.
pub fn tensor_excerpt(model: &Model, tensor: &TensorProto) -> Excerpt {
    let mut line = Line::new(model);
    line.tensor(tensor);
    if let Some(name) = tensor.name {
        line.line += &format!(" {}", shown(model.text(name)));
    }
    line.finish()
}

/// Prints a type in the notation, shortened to a line.
fn format_type(model: &Model, ty: &TypeProto) -> String {
    let mut printer = Printer::new(model, PrintOptions::default(), None);
    printer.nested = true;
    printer.write_type_proto(ty, &String::new);
    shown(&printer.out)
}

impl<'m> Line<'m> {
    fn new(model: &'m Model) -> Self {
        Line { model, line: String::with_capacity(LINE), mark: 0..0 }
    }

    /// Returns the excerpt; marks the whole line if no part of it is marked.
    fn finish(mut self) -> Excerpt {
        if self.mark.is_empty() {
            self.mark = 0..self.line.len();
        }
        // Lists of differences keep a line for each node.
        self.line.shrink_to_fit();
        Excerpt { line: self.line, mark: self.mark }
    }

    fn write_marked(&mut self, is_meant: bool, write: impl FnOnce(&mut Self)) {
        let start = self.line.len();
        write(self);
        if is_meant {
            self.mark = start..self.line.len();
        }
    }

    /// Writes a list; of a long one only its start and the neighbourhood of the marked item.
    fn write_list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        meant: Option<usize>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        let (count, mut last) = (items.len(), None);
        let around = meant.map_or(0..0, |meant| meant.saturating_sub(AROUND)..meant + AROUND + 1);
        for (index, item) in items.enumerate() {
            let near = index < FIRST || around.contains(&index) || count <= FIRST + 2;
            if !near {
                continue;
            }
            if index > 0 {
                self.line += ", ";
            }
            if last.map_or(index > 0, |last| index > last + 1) {
                self.line += "…, ";
            }
            last = Some(index);
            self.write_marked(meant == Some(index), |line| write(line, item));
        }
        if last.is_some_and(|last| last + 1 < count) {
            self.line += ", …";
        }
    }

    fn write_operands(
        &mut self,
        values: impl ExactSizeIterator<Item = Option<ValueId>>,
        meant: Option<usize>,
    ) {
        let model = self.model;
        self.write_list(values, meant, |line, value| match value {
            Some(value) => push_shown(&mut line.line, model.text(model.value(value).name)),
            None => line.line += "\"\"",
        });
    }

    fn write_attribute(&mut self, attribute: &Attribute) {
        let name = self.model.maybe_text(attribute.name);
        self.line += &name.map_or("?".to_string(), shown);
        if let Some(word) = attribute.ty.and_then(attribute_word) {
            self.line += &format!(": {word}");
        }
        if let Some(name) = attribute.ref_attr_name() {
            self.line += &format!(" = @{}", shown(self.model.text(name)));
        } else if let Some(value) = attribute.values.first() {
            self.line += " = ";
            self.write_value(value);
        }
    }

    fn write_value(&mut self, value: &AttributeValue) {
        fn write_some<T>(
            line: &mut Line<'_>,
            list: &[T],
            mut write: impl FnMut(&mut Line<'_>, &T),
        ) {
            line.line.push('[');
            for (index, item) in list.iter().take(ELEMENTS).enumerate() {
                line.line += if index > 0 { ", " } else { "" };
                write(line, item);
            }
            line.line += if list.len() > ELEMENTS { ", …]" } else { "]" };
        }
        let model = self.model;
        let text = |span| format!("\"{}\"", shown(model.bytes(span)));
        match value {
            AttributeValue::Float(value) => self.line += &format!("{value:?}"),
            AttributeValue::Int(value) => self.line += &value.to_string(),
            AttributeValue::String(span) => self.line += &text(*span),
            AttributeValue::Floats(values) => {
                write_some(self, values, |line, value| line.line += &format!("{value:?}"));
            }
            AttributeValue::Ints(values) => {
                write_some(self, values, |line, value| line.line += &value.to_string());
            }
            AttributeValue::Strings(spans) => {
                write_some(self, spans, |line, span| line.line += &text(*span));
            }
            AttributeValue::Tensor(tensor) => self.tensor(tensor),
            AttributeValue::Tensors(list) => {
                write_some(self, list, |line, tensor| line.tensor(tensor))
            }
            AttributeValue::Type(ty) => self.line += &format_type(model, ty),
            AttributeValue::Types(list) => {
                write_some(self, list, |line, ty| line.line += &format_type(model, ty));
            }
            AttributeValue::Graph(_) => self.line += "{ … }",
            AttributeValue::Graphs(list) => write_some(self, list, |line, _| line.line += "{ … }"),
            AttributeValue::SparseTensor(_) => self.line += "sparse { … }",
            AttributeValue::SparseTensors(list) => {
                write_some(self, list, |line, _| line.line += "sparse { … }");
            }
        }
    }

    fn tensor(&mut self, tensor: &TensorProto) {
        let number = tensor.data_type.unwrap_or(0);
        self.line += &match sardonyx_tensor::DataType::from_number(number) {
            Some(ty) => ty.name().to_string(),
            None => format!("?{number}"),
        };
        if !tensor.dims.is_empty() {
            let dims = tensor.dims.iter().take(ELEMENTS);
            let dims: Vec<String> = dims.map(i64::to_string).collect();
            let more = if tensor.dims.len() > ELEMENTS { ", …" } else { "" };
            self.line += &format!("[{}{more}]", dims.join(", "));
        }
        self.line += " { … }";
    }
}
