//! Leftmost-longest matching, which RE2 has as an option.

use std::iter;
use std::ops::Range;

use regex::bytes::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, meta};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::full_match::{MOST_BYTES, MOST_NESTED, regex_of};
use super::re2;
use crate::error::{BindError, fail};

/// Pattern whose matches start as early as possible, and are then as long as possible.
pub(super) struct Longest {
    /// Finds the start of matches; also their end if all matches at a position are equally long.
    first: Regex,
    /// Finds the last end of a match that starts at a given position.
    end: Option<meta::Regex>,
}

impl Longest {
    /// Compiles an attribute that is a pattern of RE2.
    pub(super) fn new(name: &str, pattern: Vec<u8>) -> Result<Longest, BindError> {
        let text = String::from_utf8_lossy(&pattern).into_owned();
        let first = regex_of(name, pattern, "(?:", ")")?;
        let Ok(translation) = re2::translate(&text) else {
            return Ok(Longest { first, end: None });
        };
        let pattern = translation.pattern;
        let parsed = ParserBuilder::new().utf8(false).build().parse(&pattern);
        if parsed.is_ok_and(|parsed| first_is_longest(&parsed)) {
            return Ok(Longest { first, end: None });
        }
        let config = meta::Config::new()
            .match_kind(MatchKind::All)
            .utf8_empty(false)
            .nfa_size_limit(Some(MOST_BYTES));
        let syntax = syntax::Config::new().utf8(false).nest_limit(MOST_NESTED);
        match meta::Builder::new().configure(config).syntax(syntax).build(&pattern) {
            Ok(end) => Ok(Longest { first, end: Some(end) }),
            Err(error) => fail!("attribute '{name}' is '{text}': {error}"),
        }
    }

    /// Whether the pattern matches the empty text.
    pub(super) fn matches_nothing(&self) -> bool {
        self.first.is_match(b"")
    }

    /// Yields the ranges of matches from left to right, without overlaps.
    pub(super) fn find_iter<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        iter::from_fn(move || {
            let first = (from <= text.len()).then(|| self.first.find_at(text, from))??;
            let start = first.start();
            let end = self.end.as_ref().map_or(first.end(), |longest| {
                let input = Input::new(text).span(start..text.len()).anchored(Anchored::Yes);
                longest.find(input).map_or(first.end(), |found| found.end())
            });
            // After an empty match, the next one starts at least one byte later.
            from = if end == start { end + 1 } else { end };
            Some(start..end)
        })
        .fuse()
    }
}

/// Whether leftmost-first matching finds the longest match: no repetition is lazy, and alternatives
/// start with different bytes.
fn first_is_longest(pattern: &Hir) -> bool {
    match pattern.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => true,
        HirKind::Repetition(repetition) => repetition.greedy && first_is_longest(&repetition.sub),
        HirKind::Capture(capture) => first_is_longest(&capture.sub),
        HirKind::Concat(parts) => parts.iter().all(first_is_longest),
        HirKind::Alternation(parts) => {
            parts.iter().all(first_is_longest) && union(parts, true).is_some()
        }
    }
}

/// Set of first bytes of matches.
type Bytes = [bool; 256];

/// Returns the first bytes of matches of any pattern; `None` if they are unknown, or if two
/// patterns share one and must `differ`.
fn union(patterns: &[Hir], differ: bool) -> Option<Bytes> {
    let mut all = [false; 256];
    for pattern in patterns {
        for (all, one) in all.iter_mut().zip(first_bytes(pattern)?) {
            if differ && *all && one {
                return None;
            }
            *all |= one;
        }
    }
    Some(all)
}

fn first_bytes(pattern: &Hir) -> Option<Bytes> {
    let mut found = [false; 256];
    let mut add = |first: u8, last: u8| found[usize::from(first)..=usize::from(last)].fill(true);
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => return None,
        HirKind::Literal(literal) => add(*literal.0.first()?, *literal.0.first()?),
        HirKind::Class(Class::Bytes(class)) => {
            class.ranges().iter().for_each(|range| add(range.start(), range.end()));
        }
        HirKind::Class(Class::Unicode(class)) => {
            let lead = |char: char| char.encode_utf8(&mut [0; 4]).as_bytes()[0];
            class.ranges().iter().for_each(|range| add(lead(range.start()), lead(range.end())));
        }
        HirKind::Repetition(repetition) if repetition.min == 0 => return None,
        HirKind::Repetition(repetition) => return first_bytes(&repetition.sub),
        HirKind::Capture(capture) => return first_bytes(&capture.sub),
        HirKind::Concat(parts) => {
            return first_bytes(
                parts.iter().find(|part| !matches!(part.kind(), HirKind::Look(_)))?,
            );
        }
        HirKind::Alternation(parts) => return union(parts, false),
    }
    Some(found)
}
