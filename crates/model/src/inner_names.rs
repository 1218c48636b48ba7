//! Unique names for values and nodes of inlined function bodies.

use std::fmt::Write;

use hashbrown::HashMap;

use crate::graph::Model;
use crate::ids::{GraphId, Id};
use crate::names::Symbol;

/// Bit of names that a value has.
const VALUE: u8 = 1;
/// Bit of names that a node has.
const NODE: u8 = 2;
/// Bit of names that two values of one tree of graphs have.
const TWICE: u8 = 4;

/// Maximum length of the part that a new name takes from an old one, in bytes: copies of long names
/// could take more memory than all nodes.
const LONGEST: usize = 512;

/// Set of names in use, which creates new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct InnerNames {
    /// Uses of each name, by symbol. Texts that were interned by other code later count as in use.
    taken: Vec<u8>,
    /// Last number that was appended to each base of a new name.
    numbers: HashMap<Symbol, u32>,
    /// Buffer for the name that is being created.
    text: String,
}

impl InnerNames {
    /// Collects the names of a model, in the first call.
    pub(crate) fn collect(&mut self, model: &Model) {
        if !self.taken.is_empty() {
            return;
        }
        let mut roots: Vec<GraphId> = Vec::with_capacity(model.graphs.len());
        for (id, graph) in model.graphs.iter() {
            let root = match graph.parent {
                // A graph has a higher id than its parent.
                Some(parent) if parent.index() < roots.len() => roots[parent.index()],
                Some(parent) => parent,
                None => id,
            };
            roots.push(root);
        }
        self.taken = vec![0; model.symbol_count()];
        // Values of one tree of graphs are adjacent.
        let mut last: Vec<Option<GraphId>> = vec![None; model.symbol_count()];
        for (_, value) in model.values.iter() {
            let name = value.name.index();
            let root = roots[value.graph.index()];
            if last[name].replace(root) == Some(root) {
                self.taken[name] |= TWICE;
            }
            self.taken[name] |= VALUE;
        }
        for (_, node) in model.nodes.iter() {
            if let Some(name) = node.name {
                self.taken[name.index()] |= NODE;
            }
        }
    }

    /// Whether a graph inside another may use the name for a value of its own.
    pub(crate) fn is_shared(&self, name: Symbol) -> bool {
        self.taken.get(name.index()).is_some_and(|taken| taken & TWICE != 0)
    }

    /// Creates a name that no value has.
    pub(crate) fn new_value_name(
        &mut self,
        model: &mut Model,
        prefix: &str,
        inner: Symbol,
    ) -> Symbol {
        self.new_name(model, prefix, inner, VALUE)
    }

    /// Creates a name that no node has.
    pub(crate) fn new_node_name(
        &mut self,
        model: &mut Model,
        prefix: &str,
        inner: Symbol,
    ) -> Symbol {
        self.new_name(model, prefix, inner, NODE)
    }

    fn new_name(&mut self, model: &mut Model, prefix: &str, inner: Symbol, what: u8) -> Symbol {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        text.push_str(prefix);
        text.push('/');
        text.push_str(beginning(&String::from_utf8_lossy(model.text(inner))));
        let len = text.len();
        let base = self.intern(model, &text);
        let mut name = base;
        if !self.take(base, what) {
            let mut number = self.numbers.get(&base).copied().unwrap_or(1);
            loop {
                number += 1;
                text.truncate(len);
                // Writing to a string cannot fail.
                let _ = write!(text, "__{number}");
                name = self.intern(model, &text);
                if self.take(name, what) {
                    break;
                }
            }
            self.numbers.insert(base, number);
        }
        self.text = text;
        name
    }

    /// Interns a text. A new text counts as unused.
    fn intern(&mut self, model: &mut Model, text: &str) -> Symbol {
        let before = model.symbol_count();
        let symbol = model.intern(text);
        self.taken.resize(before.max(self.taken.len()), VALUE | NODE);
        self.taken.resize(model.symbol_count(), 0);
        symbol
    }

    fn take(&mut self, name: Symbol, what: u8) -> bool {
        let taken = &mut self.taken[name.index()];
        let is_free = *taken & what == 0;
        *taken |= what;
        is_free
    }
}

/// Returns a name, or its beginning if it is long.
pub(crate) fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST)]
}
