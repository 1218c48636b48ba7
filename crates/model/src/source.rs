//! Where bytes lie: sources, spans of them, and the fields that the table did not know.

use sardonyx_proto::Slice;

use crate::ids::SourceId;

/// Bytes of a source. Resolved by [`Model::bytes`](crate::Model::bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Which source.
    pub source: SourceId,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    pub(crate) fn of(source: SourceId, slice: Slice<'_>) -> Span {
        Span { source, offset: slice.offset, len: slice.bytes.len() as u64 }
    }
}

/// Fields of a message that this release does not know, each with the place where it stood.
// Nearly no message has any, and every message has this: one pointer is what it may cost.
#[allow(clippy::box_collection)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unknowns(Option<Box<Vec<UnknownField>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownField {
    /// Number of the last known field before it, or 0.
    pub(crate) after: u32,
    pub(crate) record: Span,
}

impl Unknowns {
    pub(crate) fn push(&mut self, field: UnknownField) {
        self.0.get_or_insert_default().push(field);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a record, tag included, that stands after the known field with a number, or first if
    /// that is 0.
    pub fn add(&mut self, after: u32, record: Span) {
        self.push(UnknownField { after, record });
    }

    /// The records with the numbers of the known fields that they stand after, in the order of the
    /// file.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Span)> {
        let fields = self.0.iter().flat_map(|fields| fields.iter());
        fields.map(|field| (field.after, field.record))
    }

    /// The records, tag included, in the order of the file.
    pub fn records(&self) -> impl Iterator<Item = Span> {
        self.iter().map(|(_, record)| record)
    }

    /// The records from position `*next` on that stood before any field with a number of `limit` or
    /// more.
    pub(crate) fn before(
        &self,
        limit: u32,
        next: &mut usize,
    ) -> impl Iterator<Item = Span> + use<'_> {
        let rest = self.0.as_deref().map_or(&[][..], |fields| &fields[*next..]);
        let due = rest.iter().take_while(|field| field.after < limit).count();
        *next += due;
        rest[..due].iter().map(|field| field.record)
    }
}
