//! Interned text: every name of a model once, as a number.
//!
//! A name from the file is not copied: its entry says where it lies. Names come from files that anybody may have made,
//! so the table hashes with a random seed. Beside each symbol the table keeps its hash: texts lie all over the file, and
//! growing the table must not visit them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use sardonyx_tensor::Buffer;

use crate::ids::{Arena, Id, SourceId, ids};
use crate::source::Span;

use std::num::NonZeroU32;

ids! {
    /// An interned text. Resolved by [`Model::text`](crate::Model::text).
    Symbol
}

#[derive(Clone, Default)]
pub(crate) struct Names {
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry>,
    /// Text that is in no source.
    own: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    symbol: Symbol,
}

#[derive(Clone, Copy)]
struct Entry {
    /// `None`: in `own`.
    source: Option<SourceId>,
    len: u32,
    offset: u64,
}

impl Names {
    /// Makes room for more names.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count);
        self.table.reserve(count, |slot| spread(slot.hash));
    }

    /// The symbol of a text that lies in a source, whose bytes are `near` (or empty, which is only slower).
    #[inline]
    pub(crate) fn intern(
        &mut self,
        text: &[u8],
        span: Span,
        near: &[u8],
        sources: &Arena<SourceId, Buffer>,
    ) -> Symbol {
        let near = (Some(span.source), near);
        self.find_or_add(text, near, sources, |_| Entry {
            source: Some(span.source),
            len: span.len as u32,
            offset: span.offset,
        })
    }

    /// The symbol of a text that may lie anywhere.
    pub(crate) fn intern_own(&mut self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Symbol {
        self.find_or_add(text, NOTHING_NEAR, sources, |own| {
            own.extend_from_slice(text);
            Entry {
                source: None,
                len: text.len() as u32,
                offset: (own.len() - text.len()) as u64,
            }
        })
    }

    /// The symbol of a text, if there is one.
    pub(crate) fn find(&self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Option<Symbol> {
        let hash = self.hash(text);
        let found = self.table.find(spread(hash), |slot| {
            slot.hash == hash && self.text(slot.symbol, sources) == text
        });
        found.map(|slot| slot.symbol)
    }

    pub(crate) fn text<'a>(
        &'a self,
        symbol: Symbol,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        let entry = self.entries[symbol.index()];
        resolve(entry, &self.own, NOTHING_NEAR, sources)
    }

    #[inline]
    fn hash(&self, text: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(text);
        (hash ^ hash >> 32) as u32
    }

    #[inline]
    fn find_or_add(
        &mut self,
        text: &[u8],
        near: Near<'_>,
        sources: &Arena<SourceId, Buffer>,
        entry: impl FnOnce(&mut Vec<u8>) -> Entry,
    ) -> Symbol {
        let hash = self.hash(text);
        let Names {
            table,
            entries,
            own,
            ..
        } = self;
        let found = table.find(spread(hash), |slot| {
            slot.hash == hash
                && resolve(entries[slot.symbol.index()], own, near, sources) == text
        });
        if let Some(slot) = found {
            return slot.symbol;
        }
        entries.push(entry(own));
        let symbol = Symbol::new(entries.len() - 1);
        let slot = Slot { hash, symbol };
        table.insert_unique(spread(hash), slot, |slot| spread(slot.hash));
        symbol
    }
}

/// A source and its bytes: most comparisons are with text of the file that is being read, and asking an arena for a
/// buffer and the buffer for its bytes takes longer than comparing.
type Near<'a> = (Option<SourceId>, &'a [u8]);

const NOTHING_NEAR: Near<'static> = (None, &[]);

/// The hash as the table wants it, which looks at both ends of 64 bits.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[inline]
fn resolve<'a>(
    entry: Entry,
    own: &'a [u8],
    near: Near<'a>,
    sources: &'a Arena<SourceId, Buffer>,
) -> &'a [u8] {
    let range = entry.offset as usize..entry.offset as usize + entry.len as usize;
    if entry.source == near.0
        && let Some(text) = near.1.get(range.clone())
    {
        return text;
    }
    match entry.source {
        Some(source) => &sources[source].as_slice()[range],
        None => &own[range],
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} names", self.entries.len())
    }
}
