//! Visiting everything: the pull reader over each field of each message, nothing kept.

use sardonyx_proto::{
    AttributeField, AttributeProto, Error, GraphField, GraphProto, ModelField, ModelProto,
    NodeField, NodeProto, OperatorSetIdField, Reader, Slice,
};

/// Counts of visited parts, so that skipped ones are noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Fields, each element of a list counted, messages included.
    pub(crate) fields: u64,
    /// Bytes of all texts.
    pub(crate) text_bytes: u64,
    /// The last bytes of all texts, added up: so that the texts are looked at, not only found.
    pub(crate) text_sum: u64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} fields, {} bytes of text, sum {}",
            self.fields, self.text_bytes, self.text_sum
        )
    }
}

impl Seen {
    #[inline]
    fn text(&mut self, text: Slice<'_>) {
        self.text_bytes += text.bytes.len() as u64;
        self.text_sum += u64::from(text.bytes.last().copied().unwrap_or(0));
    }
}

/// Visits a model whose graph is made of nodes with plain attributes, as that of `nodes.onnx` is.
/// Messages of other kinds would count as one field each; the rival's count would show it.
pub(crate) fn model(bytes: &[u8]) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    for field in Reader::<ModelProto>::new(bytes) {
        seen.fields += 1;
        match field? {
            ModelField::ProducerName(text)
            | ModelField::ProducerVersion(text)
            | ModelField::Domain(text)
            | ModelField::DocString(text) => seen.text(text),
            ModelField::Graph(reader) => graph(reader, &mut seen)?,
            ModelField::OpsetImport(import) => {
                for field in import {
                    seen.fields += 1;
                    if let OperatorSetIdField::Domain(text) = field? {
                        seen.text(text);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(seen)
}

fn graph(reader: Reader<'_, GraphProto>, seen: &mut Seen) -> Result<(), Error> {
    for field in reader {
        seen.fields += 1;
        match field? {
            GraphField::Node(reader) => node(reader, seen)?,
            GraphField::Name(text) | GraphField::DocString(text) => seen.text(text),
            _ => {}
        }
    }
    Ok(())
}

fn node(reader: Reader<'_, NodeProto>, seen: &mut Seen) -> Result<(), Error> {
    for field in reader {
        seen.fields += 1;
        match field? {
            NodeField::Input(text)
            | NodeField::Output(text)
            | NodeField::Name(text)
            | NodeField::OpType(text)
            | NodeField::DocString(text)
            | NodeField::Domain(text)
            | NodeField::Overload(text) => seen.text(text),
            NodeField::Attribute(reader) => attribute(reader, seen)?,
            _ => {}
        }
    }
    Ok(())
}

fn attribute(reader: Reader<'_, AttributeProto>, seen: &mut Seen) -> Result<(), Error> {
    for field in reader {
        seen.fields += 1;
        match field? {
            AttributeField::Name(text)
            | AttributeField::S(text)
            | AttributeField::Strings(text)
            | AttributeField::DocString(text)
            | AttributeField::RefAttrName(text) => seen.text(text),
            AttributeField::G(reader) | AttributeField::Graphs(reader) => graph(reader, seen)?,
            _ => {}
        }
    }
    Ok(())
}
