//! Interned text: every name of a model once, as a number.
//!
//! A name from the file is not copied: its entry says where it lies. Names come from files that anybody may have made,
//! so the table hashes with a random seed.

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
    table: HashTable<Symbol>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry>,
    /// Text that is in no source.
    own: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Entry {
    /// `None`: in `own`.
    source: Option<SourceId>,
    len: u32,
    offset: u64,
}

impl Names {
    /// The symbol of a text that lies in a source.
    pub(crate) fn intern(
        &mut self,
        text: &[u8],
        span: Span,
        sources: &Arena<SourceId, Buffer>,
    ) -> Symbol {
        self.find_or_add(text, sources, |_| Entry {
            source: Some(span.source),
            len: span.len as u32,
            offset: span.offset,
        })
    }

    /// The symbol of a text that may lie anywhere.
    pub(crate) fn intern_own(&mut self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Symbol {
        self.find_or_add(text, sources, |own| {
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
        let hash = self.hasher.hash_one(text);
        self.table
            .find(hash, |symbol| self.text(*symbol, sources) == text)
            .copied()
    }

    pub(crate) fn text<'a>(
        &'a self,
        symbol: Symbol,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        resolve(self.entries[symbol.index()], &self.own, sources)
    }

    fn find_or_add(
        &mut self,
        text: &[u8],
        sources: &Arena<SourceId, Buffer>,
        entry: impl FnOnce(&mut Vec<u8>) -> Entry,
    ) -> Symbol {
        let hash = self.hasher.hash_one(text);
        let Names {
            table,
            hasher,
            entries,
            own,
        } = self;
        if let Some(symbol) = table.find(hash, |symbol| {
            resolve(entries[symbol.index()], own, sources) == text
        }) {
            return *symbol;
        }
        entries.push(entry(own));
        let symbol = Symbol::new(entries.len() - 1);
        table.insert_unique(hash, symbol, |symbol| {
            hasher.hash_one(resolve(entries[symbol.index()], own, sources))
        });
        symbol
    }
}

fn resolve<'a>(entry: Entry, own: &'a [u8], sources: &'a Arena<SourceId, Buffer>) -> &'a [u8] {
    let bytes = match entry.source {
        Some(source) => sources[source].as_slice(),
        None => own,
    };
    &bytes[entry.offset as usize..][..entry.len as usize]
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} names", self.entries.len())
    }
}
