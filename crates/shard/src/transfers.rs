//! Transfers: the parts of a value that devices send each other when it gets another form.

use std::collections::{BTreeMap, BTreeSet};

use sardonyx_model::Dim;

use crate::form::{Device, Form, Place};
use crate::ranges::Run;
use crate::sizes::stand_in;

/// Returns the group of devices, `device` included, that combine their partial results of its part,
/// one device for each partial result, if each of them gets the combined part. Sorted; `None` if
/// there is no such group.
pub(crate) fn reducing(from: &Form, to: &Form, device: Device) -> Option<Vec<Device>> {
    let (_, count) = from.partial()?;
    if from.combined() != *to {
        return None;
    }
    let place = to.places().get(&device)?;
    // Devices with the same part and the same partial result take turns in forming groups.
    let mut holders: Vec<Vec<Device>> = vec![Vec::new(); count];
    for (other, _) in to.places().iter().filter(|(_, own)| *own == place) {
        holders[from.partial_of(*other)].push(*other);
    }
    let groups = holders[0].len();
    if holders.iter().any(|devices| devices.len() != groups) {
        return None;
    }
    let at = holders[from.partial_of(device)].iter().position(|one| *one == device)?;
    let mut group: Vec<Device> = holders.iter().map(|devices| devices[at]).collect();
    group.sort_unstable();
    Some(group)
}

pub(crate) fn elements_of(axis: &[Run]) -> usize {
    axis.iter().map(|run| run.len).sum()
}

/// Whether each device finds its part of the form `to` in its part of the form `from`.
pub(crate) fn is_within(from: &Form, to: &Form, dims: Option<&[Dim]>) -> bool {
    let dims = dims.map(stand_in);
    from.partial().is_none()
        && to.devices().all(|device| {
            if from.is_whole() {
                return from.is_on(device);
            }
            let Some(dims) = &dims else { return false };
            match (from.ranges(device, dims), to.ranges(device, dims)) {
                (Some(have), Some(want)) => {
                    have.iter().zip(&want).all(|(have, want)| have.contain(want))
                }
                _ => false,
            }
        })
}

/// Part of a value that one device has and another device, or the same one, needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Device that has the part.
    pub from: Device,
    /// Device that needs the part.
    pub to: Device,
    /// Number of the partial result that the part belongs to.
    pub partial: usize,
    /// Runs of indices for each axis: positions in the part of the sender and of the receiver.
    pub runs: Vec<Vec<Run>>,
}

/// Returns the transfers that bring a value of sizes `dims` into another form, also those from a
/// device to itself. Of devices with the same part, the receiver itself is preferred as sender, and
/// others take turns. Sorted by receiver, partial result and sender.
pub fn transfers(from: &Form, to: &Form, dims: &[usize]) -> Vec<Transfer> {
    // Devices with the same part of the same partial result.
    let mut holders: BTreeMap<(usize, &Place), Vec<Device>> = BTreeMap::new();
    for (device, place) in from.places() {
        holders.entry((from.partial_of(*device), place)).or_default().push(*device);
    }
    let mut found = Vec::new();
    for (turn, device) in to.devices().enumerate() {
        let Some(want) = to.ranges(device, dims) else { continue };
        for ((partial, _), devices) in &holders {
            let sender =
                if devices.contains(&device) { device } else { devices[turn % devices.len()] };
            let Some(have) = from.ranges(sender, dims) else { continue };
            let runs: Vec<Vec<Run>> =
                have.iter().zip(&want).map(|(have, want)| have.shared(want)).collect();
            if runs.iter().all(|axis| !axis.is_empty()) {
                found.push(Transfer { from: sender, to: device, partial: *partial, runs });
            }
        }
    }
    found
}

/// Returns the devices whose part of a value is read when it gets another form.
pub(crate) fn givers(from: &Form, to: &Form, dims: Option<&[Dim]>) -> BTreeSet<Device> {
    if is_within(from, to, dims) {
        return to.devices().collect();
    }
    match dims {
        Some(dims) => {
            transfers(from, to, &stand_in(dims)).iter().map(|transfer| transfer.from).collect()
        }
        None => {
            let mut givers: BTreeSet<Device> =
                to.devices().filter(|taker| from.is_on(*taker)).collect();
            if to.devices().any(|taker| !from.is_on(taker)) {
                givers.extend(from.devices().next());
            }
            givers
        }
    }
}
