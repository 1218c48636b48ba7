//! Interned texts: each name of a model is stored once and represented by a number.
//!
//! The entry of a name from the file is a span, not a copy. Names come from untrusted files, so the
//! hash has a random seed. Large models spend their time on cache misses rather than hashing, so
//! the table needs one memory access per lookup.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use sardonyx_tensor::Buffer;

use crate::ids::{Arena, Id, SourceId, ids};
use crate::source::Span;

use std::num::NonZeroU32;

ids! {
    /// Interned text, resolved by [`Model::text`](crate::Model::text).
    pub Symbol
}

#[derive(Clone, Default)]
pub(crate) struct Names {
    /// Hash table with open addressing and linear probing, at most seven eighths full. Its length
    /// is a power of two. Dense is better than short probes: a small table stays in the cache, and
    /// probes read adjacent slots. A slot is 0 or the number of a symbol in the low bits that index
    /// the table; the upper bits are those of the hash.
    slots: Vec<u32>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry>,
    /// Source that holds most texts: the one of the first text.
    home: Option<SourceId>,
    /// Positions of texts that are in other sources, too long, or at a too large offset.
    elsewhere: Vec<Elsewhere>,
    /// Texts that are in no source.
    own: Vec<u8>,
}

/// Position of a text: one word for nearly all.
#[derive(Clone, Copy)]
enum Place {
    /// Range of the home source.
    Home { offset: usize, len: usize },
    /// Index in the list of other positions.
    Elsewhere(usize),
}

/// Position in 64 bits: the length, or all ones for a text at another position, and above it the
/// offset or index.
#[derive(Clone, Copy)]
struct Entry(u64);

#[derive(Clone, Copy)]
struct Elsewhere {
    /// Source; `None` for `own`.
    source: Option<SourceId>,
    len: u32,
    offset: u64,
}

impl Entry {
    const LEN_BITS: u32 = 24;
    const ELSEWHERE: u64 = (1 << Entry::LEN_BITS) - 1;

    /// Creates the entry of a text of the home source, if its position fits.
    #[inline]
    fn home(offset: u64, len: u64) -> Option<Entry> {
        let fits = len < Entry::ELSEWHERE && offset >> (64 - Entry::LEN_BITS) == 0;
        fits.then_some(Entry(offset << Entry::LEN_BITS | len))
    }

    fn from_elsewhere(position: usize) -> Entry {
        Entry((position as u64) << Entry::LEN_BITS | Entry::ELSEWHERE)
    }

    #[inline]
    fn place(self) -> Place {
        let (above, len) = (self.0 >> Entry::LEN_BITS, self.0 & Entry::ELSEWHERE);
        match len {
            Entry::ELSEWHERE => Place::Elsewhere(above as usize),
            _ => Place::Home { offset: above as usize, len: len as usize },
        }
    }
}

impl Names {
    /// Returns the number of names.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Reserves capacity for more names.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count);
    }

    /// Reserves capacity for more names that are in no source, of a usual length.
    pub(crate) fn reserve_own(&mut self, count: usize) {
        const USUAL: usize = 16;
        self.reserve(count);
        self.elsewhere.reserve(count);
        self.own.reserve(count.saturating_mul(USUAL));
    }

    /// Interns a text of a source, given its hash. `near` has the bytes of the source, or is empty,
    /// which is slower.
    #[inline(always)]
    pub(crate) fn intern(
        &mut self,
        text: &[u8],
        hash: u32,
        span: Span,
        near: &[u8],
        sources: &Arena<SourceId, Buffer>,
    ) -> Symbol {
        let near = (Some(span.source), near);
        self.find_or_add(text, hash, near, sources, |names| {
            let is_home = *names.home.get_or_insert(span.source) == span.source;
            match Entry::home(span.offset, span.len).filter(|_| is_home) {
                Some(entry) => entry,
                None => names.push_elsewhere(Some(span.source), span.len, span.offset),
            }
        })
    }

    /// Interns a text that is not in a source.
    pub(crate) fn intern_own(&mut self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Symbol {
        self.find_or_add(text, self.hash(text), NOTHING_NEAR, sources, |names| {
            let offset = names.own.len();
            names.own.extend_from_slice(text);
            names.push_elsewhere(None, text.len() as u64, offset as u64)
        })
    }

    #[cold]
    fn push_elsewhere(&mut self, source: Option<SourceId>, len: u64, offset: u64) -> Entry {
        self.elsewhere.push(Elsewhere { source, len: len as u32, offset });
        Entry::from_elsewhere(self.elsewhere.len() - 1)
    }

    /// Returns the symbol of a text, if the text is interned.
    pub(crate) fn find(&self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Option<Symbol> {
        self.probe(self.hash(text), text, NOTHING_NEAR, sources).ok()
    }

    pub(crate) fn text<'a>(
        &'a self,
        symbol: Symbol,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        self.resolve(self.entries[symbol.index()], NOTHING_NEAR, sources)
    }

    /// Whether a text is in a source for which `is_left` returns true.
    pub(crate) fn lie_in(&self, is_left: impl Fn(SourceId) -> bool) -> bool {
        let elsewhere = self.elsewhere.iter().filter_map(|place| place.source);
        self.home.into_iter().chain(elsewhere).any(is_left)
    }

    /// Appends all texts to `bytes`, which will become the source `home`.
    pub(crate) fn copy_to(
        &mut self,
        home: SourceId,
        bytes: &mut Vec<u8>,
        sources: &Arena<SourceId, Buffer>,
    ) {
        let mut copied = Names { home: Some(home), ..Names::default() };
        copied.entries.reserve(self.entries.len());
        for entry in &self.entries {
            let text = self.resolve(*entry, self.home_source(sources), sources);
            let (offset, len) = (bytes.len() as u64, text.len() as u64);
            bytes.extend_from_slice(text);
            let entry = Entry::home(offset, len);
            let entry = entry.unwrap_or_else(|| copied.push_elsewhere(Some(home), len, offset));
            copied.entries.push(entry);
        }
        let Names { entries, elsewhere, .. } = copied;
        (self.entries, self.elsewhere, self.own) = (entries, elsewhere, Vec::new());
        self.home = Some(home);
    }

    /// Returns the source that holds most texts, with its bytes.
    pub(crate) fn home_source<'a>(&self, sources: &'a Arena<SourceId, Buffer>) -> Near<'a> {
        let home = self.home.map(|home| sources[home].as_slice());
        (self.home, home.unwrap_or_default())
    }

    /// Returns the text of a symbol, which is probably in `near`.
    #[inline]
    pub(crate) fn text_near<'a>(
        &'a self,
        symbol: Symbol,
        near: Near<'a>,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        self.resolve(self.entries[symbol.index()], near, sources)
    }

    /// Hashes a text.
    #[inline]
    pub(crate) fn hash(&self, text: &[u8]) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// Prefetches the memory that lookups of up to `N` hashes need: slots, entries, and texts in
    /// `near`.
    pub(crate) fn fetch<const N: usize>(&self, hashes: impl Iterator<Item = u32>, near: &[u8]) {
        let mask = self.mask();
        // Independent loads overlap, so each loop only depends on the results of the one before.
        let mut entries = [0u32; N];
        let mut count = 0;
        for (hash, index) in hashes.zip(&mut entries) {
            let slot = self.slots.get((hash & mask) as usize).copied();
            let slot = slot.unwrap_or(0);
            *index = if (slot ^ hash) & !mask == 0 { slot & mask } else { 0 };
            count += 1;
        }
        // A text may span two cache lines.
        let mut texts = [(0, 0); N];
        for (index, text) in entries[..count].iter().zip(&mut texts) {
            let entry = self.entries.get((*index as usize).wrapping_sub(1));
            if let Some(Place::Home { offset, len }) = entry.map(|entry| entry.place()) {
                *text = (offset, len);
            }
        }
        let mut bytes = 0;
        for (offset, len) in &texts[..count] {
            bytes ^= near.get(*offset).copied().unwrap_or(0);
            bytes ^= near.get(offset + len).copied().unwrap_or(0);
        }
        std::hint::black_box(bytes);
    }

    #[inline(always)]
    fn find_or_add(
        &mut self,
        text: &[u8],
        hash: u32,
        near: Near<'_>,
        sources: &Arena<SourceId, Buffer>,
        entry: impl FnOnce(&mut Self) -> Entry,
    ) -> Symbol {
        if self.slots.len() / 8 * 7 < self.entries.len() + 1 {
            self.grow(near, sources);
        }
        match self.probe(hash, text, near, sources) {
            Ok(symbol) => symbol,
            Err(free) => {
                let entry = entry(self);
                self.entries.push(entry);
                let symbol = Symbol::new(self.entries.len() - 1);
                self.slots[free] = hash & !self.mask() | symbol.number();
                symbol
            }
        }
    }

    /// Returns the symbol of a text, or the slot where it belongs. The table is not empty.
    // Inlined: a call with that many arguments costs as much as the body.
    #[inline(always)]
    fn probe(
        &self,
        hash: u32,
        text: &[u8],
        near: Near<'_>,
        sources: &Arena<SourceId, Buffer>,
    ) -> Result<Symbol, usize> {
        let mask = self.mask();
        let mut at = hash & mask;
        loop {
            let slot = self.slots.get(at as usize).copied().unwrap_or(0);
            if slot == 0 {
                return Err(at as usize);
            }
            if (slot ^ hash) & !mask == 0 {
                let index = (slot & mask) as usize - 1;
                if same(self.resolve(self.entries[index], near, sources), text) {
                    return Ok(Symbol::new(index));
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the text of an entry.
    #[inline]
    fn resolve<'a>(
        &'a self,
        entry: Entry,
        near: Near<'a>,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        match entry.place() {
            Place::Home { offset, len } if near.0 == self.home => {
                match near.1.get(offset..offset + len) {
                    Some(text) => text,
                    None => self.resolve_slowly(entry, sources),
                }
            }
            _ => self.resolve_slowly(entry, sources),
        }
    }

    /// Returns the text of an entry that is not near.
    #[cold]
    fn resolve_slowly<'a>(
        &'a self,
        entry: Entry,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        let (source, offset, len) = match entry.place() {
            Place::Home { offset, len } => (self.home, offset, len),
            Place::Elsewhere(position) => {
                let place = self.elsewhere[position];
                (place.source, place.offset as usize, place.len as usize)
            }
        };
        let bytes = match source {
            Some(source) => sources[source].as_slice(),
            None => &self.own,
        };
        &bytes[offset..offset + len]
    }

    /// Returns the mask of the bits that hold a symbol in a slot, and a position in a hash.
    #[inline]
    fn mask(&self) -> u32 {
        (self.slots.len() as u32).wrapping_sub(1)
    }

    /// Resizes the table for the capacity of `entries`, and at least for more names than there are.
    #[cold]
    fn grow(&mut self, near: Near<'_>, sources: &Arena<SourceId, Buffer>) {
        let names = self.entries.capacity().max(self.entries.len() + 8);
        let length = (names / 7 * 8 + 8).next_power_of_two().min(1 << 31);
        self.slots = vec![0; length];
        let mask = self.mask();
        for (index, entry) in self.entries.iter().enumerate() {
            let hash = self.hash(self.resolve(*entry, near, sources));
            let mut at = hash & mask;
            while self.slots[at as usize] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at as usize] = hash & !mask | Symbol::new(index).number();
        }
    }
}

/// Compares two texts. Names are short, so a call of `memcmp` would cost more than the comparison.
#[inline]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // Compares two words that overlap if the text is shorter than both.
    if let (Some(a0), Some(a1), Some(b0), Some(b1)) =
        (a.first_chunk::<8>(), a.last_chunk::<8>(), b.first_chunk::<8>(), b.last_chunk::<8>())
    {
        return a0 == b0 && a1 == b1 && (a.len() <= 16 || a == b);
    }
    if let (Some(a0), Some(a1), Some(b0), Some(b1)) =
        (a.first_chunk::<4>(), a.last_chunk::<4>(), b.first_chunk::<4>(), b.last_chunk::<4>())
    {
        return a0 == b0 && a1 == b1;
    }
    a.iter().eq(b)
}

/// Source with its bytes. Most comparisons are with texts of the file that is being read, and
/// fetching its bytes through the arena takes longer than the comparison.
pub(crate) type Near<'a> = (Option<SourceId>, &'a [u8]);

const NOTHING_NEAR: Near<'static> = (None, &[]);

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} names", self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_at_every_byte() {
        for length in 0..40 {
            let text: Vec<u8> = (0..length).collect();
            assert!(same(&text, &text.clone()));
            assert!(!same(&text, &[text.as_slice(), b"x"].concat()));
            for at in 0..usize::from(length) {
                let mut other = text.clone();
                other[at] ^= 0x80;
                assert!(!same(&text, &other), "{length} bytes, byte {at}");
            }
        }
    }

    #[test]
    fn a_text_has_one_symbol() {
        let mut names = Names::default();
        let sources = Arena::default();
        let text = |index: usize| format!("name {}", index % 1000).into_bytes();
        assert_eq!(names.find(b"name 0", &sources), None);
        let symbols: Vec<Symbol> =
            (0..3000).map(|index| names.intern_own(&text(index), &sources)).collect();
        names.reserve(10_000);
        for (index, symbol) in symbols.iter().enumerate() {
            assert_eq!(*symbol, symbols[index % 1000]);
            assert_eq!(names.text(*symbol, &sources), text(index));
            assert_eq!(names.find(&text(index), &sources), Some(*symbol));
        }
        assert_eq!(names.find(b"name", &sources), None);
        assert_eq!(names.entries.len(), 1000);
    }
}
