//! Counts and times of a compilation, for `explain`.

use std::time::{Duration, Instant};

use sardonyx_passes::{Eliminated, Expansions, Upgrade};

/// Counts and times of a compilation. Nodes are those of the main graph and of inner graphs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CompileReport {
    /// Number of nodes of the file.
    pub nodes: usize,
    /// Calls of functions, and nodes of operators without a kernel, that were replaced by the body
    /// of their function.
    pub expanded: Expansions,
    /// Nodes that were replaced by another form of their operator, by operator.
    pub upgraded: Vec<Upgrade>,
    /// Number of nodes that upgrading added.
    pub added: usize,
    /// Duplicates that were eliminated.
    pub common: Eliminated,
    /// Number of nodes whose outputs were computed ahead of time, or inferred.
    pub folded: usize,
    /// Number of folded nodes that are `Constant` nodes, which only hold a value.
    pub constant_nodes: usize,
    /// Bytes of the values of the other folded nodes.
    pub folded_bytes: usize,
    /// Number of nodes that were removed because their outputs have no readers.
    pub dead: usize,
    /// Number of constants that kernels have packed, mostly weights. One that several kernels read,
    /// in inner graphs too, counts once, as they share the packed form.
    pub packed: usize,
    /// Bytes of the packed constants before packing.
    pub packed_bytes: usize,
    /// Number of constants that runs read unpacked.
    pub kept: usize,
    /// Bytes of the constants that runs read unpacked.
    pub kept_bytes: usize,
    /// Bytes of values that the file does not store: values computed ahead of time that runs read,
    /// and packed forms of such values. They count towards the memory limit.
    pub made_bytes: usize,
    /// Duration of each stage, in order: `resolve` (names, types at the file's versions,
    /// functions), `upgrade`, `read` (constants), `cse` (types of the newest forms, common
    /// subexpressions), `fold`, `fuse`, `lower`, `rewrite`, `select` (kernels, packing).
    pub took: Vec<(&'static str, Duration)>,
}

/// Clock that records the duration of stages.
pub(crate) struct Clock {
    last: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { last: Instant::now() }
    }

    /// Records the end of a stage.
    pub(crate) fn lap(&mut self, report: &mut CompileReport, part: &'static str) {
        let now = Instant::now();
        report.took.push((part, now - self.last));
        self.last = now;
    }
}
