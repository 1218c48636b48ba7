//! Cancellation of runs: a flag that another thread raises, a deadline, a number of iterations.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use sardonyx_model::NodeId;
use sardonyx_passes::{NodePath, Resolved};

/// Flag that cancels runs from another thread; see [`RunOptions`](crate::RunOptions). Clones share
/// one flag.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    raised: Arc<AtomicBool>,
    /// Second flag, which cancels the runs too.
    or: Option<Arc<StopFlag>>,
}

impl StopFlag {
    /// Makes a flag that is not raised.
    pub fn new() -> StopFlag {
        StopFlag::default()
    }

    /// Raises the flag: its runs end before their next step, or at the next test within a long
    /// step.
    pub fn stop(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Lowers the flag, so that later runs can use it again.
    pub fn reset(&self) {
        self.raised.store(false, Ordering::Relaxed);
    }

    /// Whether the flag is raised.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
            || self.or.as_ref().is_some_and(|other| other.is_raised())
    }

    /// Returns this flag in a form that also counts as raised while `other` is raised. Raising or
    /// lowering it does not change `other`.
    #[must_use]
    pub fn or(&self, other: &StopFlag) -> StopFlag {
        StopFlag { raised: self.raised.clone(), or: Some(Arc::new(other.clone())) }
    }
}

/// Reason why a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// Its [`StopFlag`] was raised.
    Flag,
    /// Its deadline has passed.
    Deadline,
    /// Its loops have reached the limit of iterations.
    Iterations(u64),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Flag => f.write_str("the run was stopped"),
            StopReason::Deadline => f.write_str("the run was stopped: the timeout has passed"),
            StopReason::Iterations(limit) => {
                write!(f, "the run was stopped: its loops have run the limit of {limit} iterations")
            }
        }
    }
}

/// Stopped run and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Reason for the stop.
    pub reason: StopReason,
    /// Node that would have been next, or was running, and the nodes around it; `None` if the run
    /// has no nodes, because outputs are inputs or constants.
    pub next: Option<NodePath>,
    /// Iteration of that node that would have been next, if the node had begun.
    pub next_iteration: Option<usize>,
    node: Option<NodeId>,
    iterations: Vec<(NodeId, usize)>,
}

impl Stopped {
    pub(crate) fn new(reason: StopReason, resolved: &Resolved, node: Option<NodeId>) -> Stopped {
        let next = node.map(|node| resolved.path_of(node));
        Stopped { reason, next, next_iteration: None, node, iterations: Vec::new() }
    }

    /// Describes the next or running node for a message.
    pub fn place(&self) -> String {
        match (&self.next, self.next_iteration) {
            (Some(next), Some(iteration)) => format!("iteration {iteration} of {next}"),
            (Some(next), None) => next.to_string(),
            (None, _) => "the outputs of the model".to_string(),
        }
    }

    /// Adds the iteration of an enclosing node.
    pub(crate) fn add_iteration(&mut self, resolved: &Resolved, around: NodeId, iteration: usize) {
        self.iterations.push((around, iteration));
        self.next = self.node.map(|node| resolved.path_in_iterations(node, &self.iterations));
    }
}

impl std::error::Error for Stopped {}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  in {}", self.reason, self.place())
    }
}

/// Limits of a run.
#[derive(Default)]
pub(crate) struct Limits<'a> {
    stop: Option<&'a StopFlag>,
    deadline: Option<Instant>,
    iterations: Option<Iterations>,
    asks: Option<&'a dyn Fn() -> bool>,
}

#[derive(Debug)]
struct Iterations {
    limit: u64,
    left: Cell<u64>,
}

impl<'a> Limits<'a> {
    /// Makes limits from a flag, a deadline, a number of iterations, and a function.
    pub(crate) fn new(
        stop: Option<&'a StopFlag>,
        deadline: Option<Instant>,
        iterations: Option<u64>,
        asks: Option<&'a dyn Fn() -> bool>,
    ) -> Limits<'a> {
        let iterations = iterations.map(|limit| Iterations { limit, left: Cell::new(limit) });
        Limits { stop, deadline, iterations, asks }
    }

    /// Whether anything but a number of iterations may stop the run.
    #[inline]
    pub(crate) fn may_end(&self) -> bool {
        self.stop.is_some() || self.deadline.is_some() || self.asks.is_some()
    }

    /// Returns the reason why the run must stop now, if there is one.
    #[inline]
    pub(crate) fn find_reason(&self) -> Option<StopReason> {
        if !self.may_end() {
            return None;
        }
        if self.stop.is_some_and(StopFlag::is_raised) {
            return Some(StopReason::Flag);
        }
        if self.asks.is_some_and(|ends| ends()) {
            return Some(StopReason::Flag);
        }
        let deadline = self.deadline?;
        (Instant::now() >= deadline).then_some(StopReason::Deadline)
    }

    /// Counts an iteration; returns the reason why there must not be another one.
    #[inline]
    pub(crate) fn take_iteration(&self) -> Option<StopReason> {
        if let Some(iterations) = &self.iterations {
            match iterations.left.get().checked_sub(1) {
                Some(left) => iterations.left.set(left),
                None => return Some(StopReason::Iterations(iterations.limit)),
            }
        }
        self.find_reason()
    }
}
