//! Byte ranges of sources, and fields outside the table.

use sardonyx_proto::Slice;

use crate::ids::SourceId;

/// Range of bytes of a source, resolved by [`Model::bytes`](crate::Model::bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Source of the bytes.
    pub source: SourceId,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    pub(crate) fn new(source: SourceId, slice: Slice<'_>) -> Span {
        Span { source, offset: slice.offset, len: slice.bytes.len() as u64 }
    }
}

/// Fields of a message that this release does not know, each with its position.
// Nearly every message has none, so this takes a single pointer.
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

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Adds a record, including its tag, after the known field with the number `after`, or first if
    /// that is 0.
    pub fn add(&mut self, after: u32, record: Span) {
        self.push(UnknownField { after, record });
    }

    /// Iterates over the records, each with the number of the preceding known field, in the order
    /// of the file.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Span)> {
        let fields = self.0.iter().flat_map(|fields| fields.iter());
        fields.map(|field| (field.after, field.record))
    }

    /// Iterates over the records, including tags, in the order of the file.
    pub fn records(&self) -> impl Iterator<Item = Span> {
        self.iter().map(|(_, record)| record)
    }

    /// Returns the records from position `*next` on that preceded all fields with numbers of
    /// `limit` or more, and advances `next`.
    pub(crate) fn take_before(
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
