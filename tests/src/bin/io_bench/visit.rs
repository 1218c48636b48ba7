//! Visit of every field of every message with the pull reader. Nothing is kept.

use sardonyx_proto::{
    AttributeField, AttributeProto, Error, GraphField, GraphProto, ModelField, ModelProto,
    NodeField, NodeProto, OperatorSetIdField, Reader, Slice,
};

/// Counts of visited parts, which show any skipped ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Fields, each element of a list counted, messages included.
    pub(crate) fields: u64,
    /// Bytes of all texts.
    pub(crate) text_bytes: u64,
    /// Sum of the last bytes of all texts, so that the texts are read, not only found.
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

/// Visits a model whose graph consists of nodes with plain attributes, as in `nodes.onnx`. Messages
/// of other kinds would count as one field each, which the rival's count would show.
pub(crate) fn visit_model(bytes: &[u8]) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    for field in Reader::<ModelProto>::new(bytes) {
        seen.fields += 1;
        match field? {
            ModelField::ProducerName(text)
            | ModelField::ProducerVersion(text)
            | ModelField::Domain(text)
            | ModelField::DocString(text) => seen.text(text),
            ModelField::Graph(reader) => visit_graph(reader, &mut seen)?,
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

fn visit_graph(reader: Reader<'_, GraphProto>, seen: &mut Seen) -> Result<(), Error> {
    for field in reader {
        seen.fields += 1;
        match field? {
            GraphField::Node(reader) => visit_node(reader, seen)?,
            GraphField::Name(text) | GraphField::DocString(text) => seen.text(text),
            _ => {}
        }
    }
    Ok(())
}

fn visit_node(reader: Reader<'_, NodeProto>, seen: &mut Seen) -> Result<(), Error> {
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
            NodeField::Attribute(reader) => visit_attribute(reader, seen)?,
            _ => {}
        }
    }
    Ok(())
}

fn visit_attribute(reader: Reader<'_, AttributeProto>, seen: &mut Seen) -> Result<(), Error> {
    for field in reader {
        seen.fields += 1;
        match field? {
            AttributeField::Name(text)
            | AttributeField::S(text)
            | AttributeField::Strings(text)
            | AttributeField::DocString(text)
            | AttributeField::RefAttrName(text) => seen.text(text),
            AttributeField::G(reader) | AttributeField::Graphs(reader) => {
                visit_graph(reader, seen)?
            }
            _ => {}
        }
    }
    Ok(())
}
