//! Names for what comes out of the bodies of functions.

use std::fmt::Write;

use hashbrown::HashMap;

use crate::graph::Model;
use crate::ids::{GraphId, Id};
use crate::names::Symbol;

/// A value has the name.
const VALUE: u8 = 1;
/// A node has the name.
const NODE: u8 = 2;
/// Two values of one tree of graphs have the name.
const TWICE: u8 = 4;

/// Bytes of a name that are kept: copies of long names would take more memory than all nodes.
const LONGEST: usize = 512;

/// Which names are taken, of values and of nodes, and new ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct InnerNames {
    /// By symbol. Texts that came later without this table count as taken.
    taken: Vec<u8>,
    /// By symbol: the number that the last name had which begins with that text.
    numbers: HashMap<Symbol, u32>,
    /// The name that is being made.
    text: String,
}

impl InnerNames {
    /// Looks at all names of a model, the first time.
    pub(crate) fn look(&mut self, model: &Model) {
        if !self.taken.is_empty() {
            return;
        }
        let mut roots: Vec<GraphId> = Vec::with_capacity(model.graphs.len());
        for (id, graph) in model.graphs.iter() {
            let root = match graph.parent {
                // A graph comes after the one around it.
                Some(parent) if parent.index() < roots.len() => roots[parent.index()],
                Some(parent) => parent,
                None => id,
            };
            roots.push(root);
        }
        self.taken = vec![0; model.symbol_count()];
        // Values of one tree are neighbours.
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

    /// Whether a graph inside of another may use the name for a value of its own.
    pub(crate) fn is_shared(&self, name: Symbol) -> bool {
        self.taken.get(name.index()).is_some_and(|taken| taken & TWICE != 0)
    }

    /// A name that no value has.
    pub(crate) fn value(&mut self, model: &mut Model, prefix: &str, inner: Symbol) -> Symbol {
        self.new_name(model, prefix, inner, VALUE)
    }

    /// A name that no node has.
    pub(crate) fn node(&mut self, model: &mut Model, prefix: &str, inner: Symbol) -> Symbol {
        self.new_name(model, prefix, inner, NODE)
    }

    fn new_name(&mut self, model: &mut Model, prefix: &str, inner: Symbol, what: u8) -> Symbol {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        text.push_str(prefix);
        text.push('/');
        text.push_str(beginning(&String::from_utf8_lossy(model.text(inner))));
        let len = text.len();
        let base = self.symbol(model, &text);
        let mut name = base;
        if !self.take(base, what) {
            let mut number = self.numbers.get(&base).copied().unwrap_or(1);
            loop {
                number += 1;
                text.truncate(len);
                // A string takes what is written.
                let _ = write!(text, "__{number}");
                name = self.symbol(model, &text);
                if self.take(name, what) {
                    break;
                }
            }
            self.numbers.insert(base, number);
        }
        self.text = text;
        name
    }

    /// The symbol of a text. One that is new is not taken.
    fn symbol(&mut self, model: &mut Model, text: &str) -> Symbol {
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

/// A name, or its beginning if it is long.
pub(crate) fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST)]
}
