//! Regions: nodes with inner graphs, with the graphs as programs.

use super::{Program, Slot};

/// Inner graphs of a node, as programs.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) kind: RegionKind,
    /// Values of enclosing programs that the bodies read. The last inputs of each body are these,
    /// in order.
    pub(crate) captures: Vec<Slot>,
    pub(crate) bodies: Vec<Program>,
}

/// Rule that decides which bodies of a region run, how often, and on which values.
#[derive(Debug)]
pub(crate) enum RegionKind {
    /// The first body runs if the condition is true, the second if it is false. The bodies have no
    /// inputs besides the captures.
    If { condition: Slot },
    /// The body runs until the trip count is reached or the condition is false. Its inputs are the
    /// number of the iteration, the condition, and the carried values; its outputs the condition,
    /// the next carried values, and the stacked values.
    Loop { trip_count: Option<Slot>, condition: Option<Slot>, carried: Vec<Slot> },
    /// The body runs once for each slice of the scanned values. Its inputs are the carried values,
    /// then the slices; its outputs the next carried values, then the stacked values. With lengths
    /// there is a batch: each operand has a leading axis, and the body runs for each of its
    /// sequences.
    Scan {
        lengths: Option<Slot>,
        carried: Vec<Slot>,
        scanned: Vec<(Slot, Along)>,
        stacked: Vec<Along>,
    },
}

/// Axis and direction of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Along {
    /// Axis, counted from the end if it is negative.
    pub(crate) axis: i64,
    pub(crate) is_backward: bool,
}

impl Along {
    /// Forward along the first axis.
    pub(crate) const FIRST: Along = Along { axis: 0, is_backward: false };
}

impl RegionKind {
    /// Returns the names of the attributes that hold the bodies, in order.
    pub(crate) fn attributes(&self) -> &'static [&'static str] {
        match self {
            RegionKind::If { .. } => &["then_branch", "else_branch"],
            RegionKind::Loop { .. } | RegionKind::Scan { .. } => &["body"],
        }
    }

    /// Whether the body may run more than once.
    pub(crate) fn has_iterations(&self) -> bool {
        !matches!(self, RegionKind::If { .. })
    }

    /// Calls `see` for the operands besides the captures, in the order of a run.
    pub(super) fn visit_operands(&self, mut see: impl FnMut(Option<Slot>)) {
        match self {
            RegionKind::If { condition } => see(Some(*condition)),
            RegionKind::Loop { trip_count, condition, carried } => {
                see(*trip_count);
                see(*condition);
                carried.iter().for_each(|slot| see(Some(*slot)));
            }
            RegionKind::Scan { lengths, carried, scanned, .. } => {
                lengths.iter().for_each(|slot| see(Some(*slot)));
                let scanned = scanned.iter().map(|(slot, _)| slot);
                carried.iter().chain(scanned).for_each(|slot| see(Some(*slot)));
            }
        }
    }

    /// Calls `see` for the operands besides the captures, to change them.
    pub(super) fn visit_operands_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
        match self {
            RegionKind::If { condition } => see(Some(condition)),
            RegionKind::Loop { trip_count, condition, carried } => {
                see(trip_count.as_mut());
                see(condition.as_mut());
                carried.iter_mut().for_each(|slot| see(Some(slot)));
            }
            RegionKind::Scan { lengths, carried, scanned, .. } => {
                lengths.iter_mut().for_each(|slot| see(Some(slot)));
                let scanned = scanned.iter_mut().map(|(slot, _)| slot);
                carried.iter_mut().chain(scanned).for_each(|slot| see(Some(slot)));
            }
        }
    }

    /// Returns the number of operands besides the captures.
    pub(crate) fn operand_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 1,
            RegionKind::Loop { carried, .. } => 2 + carried.len(),
            RegionKind::Scan { lengths, carried, scanned, .. } => {
                usize::from(lengths.is_some()) + carried.len() + scanned.len()
            }
        }
    }

    /// Returns the number of inputs of a body besides the captures.
    pub(crate) fn input_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 0,
            RegionKind::Loop { .. } => self.operand_count(),
            RegionKind::Scan { carried, scanned, .. } => carried.len() + scanned.len(),
        }
    }

    /// Returns the number of carried values.
    pub(crate) fn carried_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 0,
            RegionKind::Loop { carried, .. } | RegionKind::Scan { carried, .. } => carried.len(),
        }
    }

    /// Returns the index of the first carried value among the operands, and among the inputs of the
    /// body.
    pub(crate) fn first_carried(&self) -> usize {
        match self {
            RegionKind::If { .. } | RegionKind::Scan { .. } => 0,
            RegionKind::Loop { .. } => 2,
        }
    }

    /// Returns the number of outputs of a body that the region does not output: the condition.
    pub(crate) fn kept_outputs(&self) -> usize {
        match self {
            RegionKind::If { .. } | RegionKind::Scan { .. } => 0,
            RegionKind::Loop { .. } => 1,
        }
    }
}
