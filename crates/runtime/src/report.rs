//! What compiling did, in numbers: noted on the way, for `explain`.

use std::time::{Duration, Instant};

use sardonyx_passes::{Eliminated, Expansions, Upgrade};

/// What compiling did to a model. Nodes are those of the main graph and of graphs in its nodes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CompileReport {
    /// Nodes of the file.
    pub nodes: usize,
    /// Calls of functions, and nodes of operators without a kernel, that became the body of their
    /// function.
    pub expanded: Expansions,
    /// Nodes that became another form of their operator, by operator.
    pub upgraded: Vec<Upgrade>,
    /// Nodes that upgrading added.
    pub added: usize,
    /// What went because something else is the same.
    pub common: Eliminated,
    /// Nodes whose outputs were computed ahead of time, or followed from types alone.
    pub folded: usize,
    /// How many of these are `Constant` nodes, which only hold a value.
    pub constant_nodes: usize,
    /// Bytes of the values of the other folded nodes.
    pub folded_bytes: usize,
    /// Nodes that went because nothing reads what they make.
    pub dead: usize,
    /// Constants that kernels have packed, mostly weights. One that several kernels read, in graphs
    /// of nodes too, counts once: they share what was packed.
    pub packed: usize,
    /// Bytes of these before they were packed.
    pub packed_bytes: usize,
    /// Constants that stay as they are for runs to read.
    pub kept: usize,
    /// Bytes of these.
    pub kept_bytes: usize,
    /// Bytes that the session takes for what the file does not store: values computed ahead of time
    /// that runs read, and packed forms of such values. They count for the memory limit.
    pub made_bytes: usize,
    /// How long each part took, in order: `resolve` (names, types at the file's versions,
    /// functions), `upgrade`, `read` (constants), `cse` (types of the newest forms, equal nodes),
    /// `fold`, `fuse`, `lower`, `rewrite`, `select` (kernels, packing).
    pub took: Vec<(&'static str, Duration)>,
}

/// Notes how long parts take.
pub(crate) struct Clock {
    last: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { last: Instant::now() }
    }

    /// A part has ended.
    pub(crate) fn lap(&mut self, report: &mut CompileReport, part: &'static str) {
        let now = Instant::now();
        report.took.push((part, now - self.last));
        self.last = now;
    }
}
