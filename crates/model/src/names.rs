//! Interned text: every name of a model once, as a number.
//!
//! A name from the file is not copied: its entry says where it lies. Names come from files that
//! anybody may have made, so the table hashes with a random seed. What takes time in a large model
//! is not hashing but waiting for memory; the table is made for one access per name.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use sardonyx_tensor::Buffer;

use crate::ids::{Arena, Id, SourceId, ids};
use crate::source::Span;

use std::num::NonZeroU32;

ids! {
    /// An interned text. Resolved by [`Model::text`](crate::Model::text).
    pub Symbol
}

#[derive(Clone, Default)]
pub(crate) struct Names {
    /// Open addressing, linear probing, at most seven eighths full, a power of two long: a small
    /// table stays near the processor, and that is worth more than short probes, which are over
    /// neighbours anyway. A slot is 0 or the number of a symbol in as many low bits as the length
    /// has; the bits above are those of the hash.
    slots: Vec<u32>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry>,
    /// The source in which most texts lie: that of the first one.
    home: Option<SourceId>,
    /// Where the texts lie that are not at home, or are too long or too far behind.
    elsewhere: Vec<Elsewhere>,
    /// Text that is in no source.
    own: Vec<u8>,
}

/// Where a text lies: a word for nearly all.
#[derive(Clone, Copy)]
enum Place {
    /// This many bytes of the home source.
    Home { offset: usize, len: usize },
    /// At this position of the list of those that lie elsewhere.
    Elsewhere(usize),
}

/// A place in 64 bits: the length, or all ones for a text that lies elsewhere, and above it the
/// offset or position.
#[derive(Clone, Copy)]
struct Entry(u64);

#[derive(Clone, Copy)]
struct Elsewhere {
    /// `None`: in `own`.
    source: Option<SourceId>,
    len: u32,
    offset: u64,
}

impl Entry {
    const LEN_BITS: u32 = 24;
    const ELSEWHERE: u64 = (1 << Entry::LEN_BITS) - 1;

    /// The entry of a text of the home source, if there is room for its place.
    #[inline]
    fn home(offset: u64, len: u64) -> Option<Entry> {
        let fits = len < Entry::ELSEWHERE && offset >> (64 - Entry::LEN_BITS) == 0;
        fits.then_some(Entry(offset << Entry::LEN_BITS | len))
    }

    fn elsewhere(position: usize) -> Entry {
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
    /// How many names there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Makes room for more names.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count);
    }

    /// Makes room for more names that lie in no source, of a usual length.
    pub(crate) fn reserve_own(&mut self, count: usize) {
        const USUAL: usize = 16;
        self.reserve(count);
        self.elsewhere.reserve(count);
        self.own.reserve(count.saturating_mul(USUAL));
    }

    /// The symbol of a text with its hash that lies in a source, whose bytes are `near` (or empty,
    /// which is only slower).
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
                None => names.elsewhere(Some(span.source), span.len, span.offset),
            }
        })
    }

    /// The symbol of a text that may lie anywhere.
    pub(crate) fn intern_own(&mut self, text: &[u8], sources: &Arena<SourceId, Buffer>) -> Symbol {
        self.find_or_add(text, self.hash(text), NOTHING_NEAR, sources, |names| {
            let offset = names.own.len();
            names.own.extend_from_slice(text);
            names.elsewhere(None, text.len() as u64, offset as u64)
        })
    }

    #[cold]
    fn elsewhere(&mut self, source: Option<SourceId>, len: u64, offset: u64) -> Entry {
        self.elsewhere.push(Elsewhere { source, len: len as u32, offset });
        Entry::elsewhere(self.elsewhere.len() - 1)
    }

    /// The symbol of a text, if there is one.
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

    /// Whether texts lie in a source for which `is_left` says so.
    pub(crate) fn lie_in(&self, is_left: impl Fn(SourceId) -> bool) -> bool {
        let elsewhere = self.elsewhere.iter().filter_map(|place| place.source);
        self.home.into_iter().chain(elsewhere).any(is_left)
    }

    /// Copies all texts to the end of `bytes`, which are going to be those of the source `home`.
    pub(crate) fn copy_to(
        &mut self,
        home: SourceId,
        bytes: &mut Vec<u8>,
        sources: &Arena<SourceId, Buffer>,
    ) {
        let mut copied = Names { home: Some(home), ..Names::default() };
        copied.entries.reserve(self.entries.len());
        for entry in &self.entries {
            let text = self.resolve(*entry, self.near(sources), sources);
            let (offset, len) = (bytes.len() as u64, text.len() as u64);
            bytes.extend_from_slice(text);
            let entry = Entry::home(offset, len);
            let entry = entry.unwrap_or_else(|| copied.elsewhere(Some(home), len, offset));
            copied.entries.push(entry);
        }
        let Names { entries, elsewhere, .. } = copied;
        (self.entries, self.elsewhere, self.own) = (entries, elsewhere, Vec::new());
        self.home = Some(home);
    }

    /// The source in which most texts lie.
    pub(crate) fn near<'a>(&self, sources: &'a Arena<SourceId, Buffer>) -> Near<'a> {
        let home = self.home.map(|home| sources[home].as_slice());
        (self.home, home.unwrap_or_default())
    }

    /// The text of a symbol, which probably lies in `near`.
    #[inline]
    pub(crate) fn text_near<'a>(
        &'a self,
        symbol: Symbol,
        near: Near<'a>,
        sources: &'a Arena<SourceId, Buffer>,
    ) -> &'a [u8] {
        self.resolve(self.entries[symbol.index()], near, sources)
    }

    /// The hash of a text.
    #[inline]
    pub(crate) fn hash(&self, text: &[u8]) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// Brings what is needed to look up at most `N` hashes near the processor: slots, entries, and
    /// texts that lie in `near`.
    pub(crate) fn fetch<const N: usize>(&self, hashes: impl Iterator<Item = u32>, near: &[u8]) {
        let mask = self.mask();
        // Loads that nothing waits for overlap, as long as none of them depends on another.
        let mut entries = [0u32; N];
        let mut count = 0;
        for (hash, index) in hashes.zip(&mut entries) {
            let slot = self.slots.get((hash & mask) as usize).copied();
            let slot = slot.unwrap_or(0);
            *index = if (slot ^ hash) & !mask == 0 { slot & mask } else { 0 };
            count += 1;
        }
        // A text may lie in two lines of memory.
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

    /// The symbol of a text, or the slot where it belongs. The table is not empty.
    // A call with that many arguments costs as much as what it does.
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

    /// The text of an entry.
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

    /// The same for a text that is not near.
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

    /// The low bits of a slot, and of a hash those that say where in the table.
    #[inline]
    fn mask(&self) -> u32 {
        (self.slots.len() as u32).wrapping_sub(1)
    }

    /// Makes the table large enough for as many names as there is room for, and more than there
    /// are.
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

/// Whether two texts are the same. Names are short, and a call costs more than comparing them does.
#[inline]
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    // Two words that overlap if the text is shorter than both.
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

/// A source and its bytes: most comparisons are with text of the file that is being read, and
/// asking an arena for a buffer and the buffer for its bytes takes longer than comparing.
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
