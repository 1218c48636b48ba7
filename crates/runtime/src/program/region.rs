//! Nodes with inner graphs: the graphs as programs, and what decides which of them run how often.

use super::{Program, Slot};

/// The inner graphs of a node, as programs.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) kind: RegionKind,
    /// What the bodies read of the programs around them. The last inputs of each body are these, in
    /// this order.
    pub(crate) captures: Vec<Slot>,
    pub(crate) bodies: Vec<Program>,
}

/// Which bodies of a region run, how often, and on what.
#[derive(Debug)]
pub(crate) enum RegionKind {
    /// The first if the condition is true, the second if it is false. The bodies have no inputs
    /// besides the captures.
    If { condition: Slot },
    /// The body runs until there have been as many iterations as the trip count says, or the
    /// condition is false. Its inputs are the number of the iteration, the condition, and the
    /// carried values; its outputs the condition, the carried values for the next iteration, and
    /// what is stacked.
    Loop { trip_count: Option<Slot>, condition: Option<Slot>, carried: Vec<Slot> },
    /// The body runs once for each slice of what is scanned. Its inputs are the carried values,
    /// then the slices; its outputs the carried values for the next iteration, then what is
    /// stacked. With lengths there is a batch: each of the operands has one more axis in front, and
    /// everything is done for each sequence of it.
    Scan {
        lengths: Option<Slot>,
        carried: Vec<Slot>,
        scanned: Vec<(Slot, Along)>,
        stacked: Vec<Along>,
    },
}

/// How slices follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Along {
    /// Counted from the end if it is negative.
    pub(crate) axis: i64,
    pub(crate) is_backward: bool,
}

impl Along {
    /// One after the other along the first axis.
    pub(crate) const FIRST: Along = Along { axis: 0, is_backward: false };
}

impl RegionKind {
    /// The attributes with the graphs of the bodies, in the order of these.
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

    /// What a region reads besides the captures, in the order in which a run finds it.
    pub(super) fn each_operand(&self, mut see: impl FnMut(Option<Slot>)) {
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

    /// Lets these be changed.
    pub(super) fn each_operand_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
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

    /// How many operands there are besides the captures.
    pub(crate) fn operand_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 1,
            RegionKind::Loop { carried, .. } => 2 + carried.len(),
            RegionKind::Scan { lengths, carried, scanned, .. } => {
                usize::from(lengths.is_some()) + carried.len() + scanned.len()
            }
        }
    }

    /// How many inputs a body has besides the captures.
    pub(crate) fn input_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 0,
            RegionKind::Loop { .. } => self.operand_count(),
            RegionKind::Scan { carried, scanned, .. } => carried.len() + scanned.len(),
        }
    }

    /// How many values are carried from iteration to iteration.
    pub(crate) fn carried_count(&self) -> usize {
        match self {
            RegionKind::If { .. } => 0,
            RegionKind::Loop { carried, .. } | RegionKind::Scan { carried, .. } => carried.len(),
        }
    }

    /// The first of the operands that are carried, and of the inputs of the body.
    pub(crate) fn first_carried(&self) -> usize {
        match self {
            RegionKind::If { .. } | RegionKind::Scan { .. } => 0,
            RegionKind::Loop { .. } => 2,
        }
    }

    /// The outputs of a body that are not for the outside: the condition.
    pub(crate) fn kept_outputs(&self) -> usize {
        match self {
            RegionKind::If { .. } | RegionKind::Scan { .. } => 0,
            RegionKind::Loop { .. } => 1,
        }
    }
}
