//! A part of a model on one short line, with the place of what is meant: for messages, not to be
//! read back.

use std::ops::Range;

use sardonyx_model::{
    Attribute, AttributeValue, Model, NodeId, TensorProto, TypeProto, ValueId, ValueInfo,
};
use sardonyx_proto::shown;

use super::{PrintOptions, Printer};
use crate::words::attribute_word;

/// What of a node is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMark {
    /// All of it.
    Whole,
    /// Its name.
    Name,
    /// What it calls.
    Callee,
    /// An input, by position.
    Input(usize),
    /// An output, by position.
    Output(usize),
    /// An attribute, by position.
    Attribute(usize),
}

/// A line and the part of it that is meant, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The line.
    pub line: String,
    /// What of it is meant.
    pub mark: Range<usize>,
}

/// Of a list, this many items are shown before and around the one that is meant.
const FIRST: usize = 4;
const AROUND: usize = 1;
/// Elements of a list, and characters of a text, that are shown of a value.
const ELEMENTS: usize = 8;

struct Line<'m> {
    model: &'m Model,
    line: String,
    mark: Range<usize>,
}

/// A node.
pub fn node_excerpt(model: &Model, node: NodeId, mark: NodeMark) -> Excerpt {
    let mut line = Line::new(model);
    let found = model.node(node);
    if let Some(name) = found.name {
        line.marked(mark == NodeMark::Name, |line| {
            line.line += &format!("[{}] ", shown(model.text(name)));
        });
        // The blank after it is not meant.
        if mark == NodeMark::Name {
            line.mark.end -= 1;
        }
    }
    let meant = match mark {
        NodeMark::Output(index) => Some(index),
        _ => None,
    };
    line.operands(model.outputs(node).iter().copied(), meant);
    line.line += if model.outputs(node).is_empty() { "= " } else { " = " };
    line.marked(mark == NodeMark::Callee, |line| {
        for (symbol, end) in [(found.domain, "."), (found.op_type, "")] {
            let text = shown(model.maybe_text(symbol).unwrap_or_default());
            if !text.is_empty() {
                line.line += &(text + end);
            }
        }
        let overload = shown(model.maybe_text(found.overload).unwrap_or_default());
        if !overload.is_empty() {
            line.line += &format!(":{overload}");
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
        line.list(attributes, meant, Line::attribute);
        line.line += ">";
    }
    line.line += " (";
    let meant = match mark {
        NodeMark::Input(index) => Some(index),
        _ => None,
    };
    line.operands(model.inputs(node), meant);
    line.line += ")";
    line.finish()
}

/// An attribute.
pub fn attribute_excerpt(model: &Model, attribute: &Attribute) -> Excerpt {
    let mut line = Line::new(model);
    line.attribute(attribute);
    line.finish()
}

/// Name and type of a value.
pub fn value_excerpt(model: &Model, info: &ValueInfo) -> Excerpt {
    let mut line = Line::new(model);
    if let Some(ty) = &info.ty {
        line.line += &type_words(model, ty);
        line.line.push(' ');
    }
    line.line += &match info.name {
        Some(name) => shown(model.text(name)),
        None => "?".to_string(),
    };
    line.finish()
}

/// A stored tensor, without its values.
pub fn tensor_excerpt(model: &Model, tensor: &TensorProto) -> Excerpt {
    let mut line = Line::new(model);
    line.tensor(tensor);
    if let Some(name) = tensor.name {
        line.line += &format!(" {}", shown(model.text(name)));
    }
    line.finish()
}

/// A type as the notation writes it, at most a line.
fn type_words(model: &Model, ty: &TypeProto) -> String {
    let mut printer = Printer::new(model, PrintOptions::default(), None);
    printer.nested = true;
    printer.type_proto(ty, &String::new);
    shown(&printer.out)
}

impl<'m> Line<'m> {
    fn new(model: &'m Model) -> Self {
        Line { model, line: String::new(), mark: 0..0 }
    }

    /// Without anything else that is meant, all of it is.
    fn finish(mut self) -> Excerpt {
        if self.mark.is_empty() {
            self.mark = 0..self.line.len();
        }
        Excerpt { line: self.line, mark: self.mark }
    }

    fn marked(&mut self, is_meant: bool, write: impl FnOnce(&mut Self)) {
        let start = self.line.len();
        write(self);
        if is_meant {
            self.mark = start..self.line.len();
        }
    }

    /// A list, the neighbourhood of what is meant if it is long.
    fn list<T>(
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
            self.marked(meant == Some(index), |line| write(line, item));
        }
        if last.is_some_and(|last| last + 1 < count) {
            self.line += ", …";
        }
    }

    fn operands(
        &mut self,
        values: impl ExactSizeIterator<Item = Option<ValueId>>,
        meant: Option<usize>,
    ) {
        let model = self.model;
        self.list(values, meant, |line, value| match value {
            Some(value) => line.line += &shown(model.text(model.value(value).name)),
            None => line.line += "\"\"",
        });
    }

    fn attribute(&mut self, attribute: &Attribute) {
        let name = self.model.maybe_text(attribute.name);
        self.line += &name.map_or("?".to_string(), shown);
        if let Some(word) = attribute.ty.and_then(attribute_word) {
            self.line += &format!(": {word}");
        }
        if let Some(name) = attribute.ref_attr_name() {
            self.line += &format!(" = @{}", shown(self.model.text(name)));
        } else if let Some(value) = attribute.values.first() {
            self.line += " = ";
            self.value(value);
        }
    }

    fn value(&mut self, value: &AttributeValue) {
        fn some<T>(line: &mut Line<'_>, list: &[T], mut write: impl FnMut(&mut Line<'_>, &T)) {
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
                some(self, values, |line, value| line.line += &format!("{value:?}"));
            }
            AttributeValue::Ints(values) => {
                some(self, values, |line, value| line.line += &value.to_string());
            }
            AttributeValue::Strings(spans) => {
                some(self, spans, |line, span| line.line += &text(*span));
            }
            AttributeValue::Tensor(tensor) => self.tensor(tensor),
            AttributeValue::Tensors(list) => some(self, list, |line, tensor| line.tensor(tensor)),
            AttributeValue::Type(ty) => self.line += &type_words(model, ty),
            AttributeValue::Types(list) => {
                some(self, list, |line, ty| line.line += &type_words(model, ty));
            }
            AttributeValue::Graph(_) => self.line += "{ … }",
            AttributeValue::Graphs(list) => some(self, list, |line, _| line.line += "{ … }"),
            AttributeValue::SparseTensor(_) => self.line += "sparse { … }",
            AttributeValue::SparseTensors(list) => {
                some(self, list, |line, _| line.line += "sparse { … }");
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
