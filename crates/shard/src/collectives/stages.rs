//! Stages of moves that the collectives of an engine can express.

use std::collections::BTreeSet;

use sardonyx_ops::{Combine, Sizes};

use super::{Collectives, NotExpressible};
use crate::form::{Device, Form};
use crate::plan::{Move, Plan, Step};
use crate::sizes::Numbers;
use crate::transfers::{is_within, reducing, transfers};

/// Method by which the ranks carry out a stage of a move.
#[derive(Debug, Clone)]
pub(super) enum Way {
    /// Each rank takes its new part from its own old part.
    Take,
    /// Groups combine their partial results by an all-reduce.
    Reduce { groups: Vec<Vec<Device>>, combine: Combine },
    /// Groups concatenate even parts of an axis by an all-gather.
    Gather { groups: Vec<Vec<Device>>, axis: usize },
    /// All ranks exchange even parts of one axis for even parts of another.
    AllToAll { from: usize, to: usize },
    /// A group gathers the parts of all senders.
    Blocks { group: Vec<Device> },
}

/// Stage of a move, from one form to another.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) from: Form,
    pub(super) to: Form,
    pub(super) way: Way,
}

impl Plan {
    /// Checks that the collectives of an engine can express all moves of the plan.
    ///
    /// # Errors
    ///
    /// The first move that they cannot express.
    pub fn is_expressible(&self, collectives: Collectives) -> Result<(), NotExpressible> {
        for step in &self.steps {
            if let Step::Move(moved) = step
                && !self.is_local(moved)
            {
                self.stages(moved, collectives)?;
            }
        }
        Ok(())
    }

    /// Divides a move into stages that the collectives of an engine can express.
    pub(super) fn stages(
        &self,
        moved: &Move,
        collectives: Collectives,
    ) -> Result<Vec<Stage>, NotExpressible> {
        let refuse = |why: &str, help| {
            let name = self.typed.name(moved.value);
            let (from, to) = (self.form(moved.from), self.form(moved.to));
            let what = format!("'{name}' cannot be moved from {from} to {to}: {why}");
            Err(NotExpressible { what, help })
        };
        let (mut from, to) = (self.form(moved.from).clone(), self.form(moved.to).clone());
        let Some(dims) = &known_sizes(moved) else {
            let help = "give sizes of inputs that the model leaves open, as --set NAME=SIZE does";
            return refuse("its sizes are not known before the run", help);
        };
        let all: Vec<Device> = (0..Device::try_from(self.devices).unwrap_or(Device::MAX)).collect();
        let mut stages = Vec::new();
        let givers = self.givers(moved);
        let gives_all = from.devices().all(|device| givers.contains(&device));
        let is_whole_group =
            |groups: &[Vec<Device>]| collectives.has_groups() || *groups == [&all[..]];
        if let Some((combine, _)) = from.partial()
            && gives_all
            && collectives.reduces(moved.elem, combine)
            && let Some(groups) = groups_of_sums(&from).filter(|groups| is_whole_group(groups))
        {
            let combined = from.combined();
            let way = Way::Reduce { groups, combine };
            stages.push(Stage { from, to: combined.clone(), way });
            from = combined;
        }
        if is_within(&from, &to, moved.dims.as_deref()) {
            stages.push(Stage { from, to, way: Way::Take });
            return Ok(stages);
        }
        if collectives.carrier(moved.elem).is_none() {
            let why = format!("no collective takes elements of type {}", moved.elem);
            return refuse(
                &why,
                "let the value stay on its devices, or cast it before it is moved",
            );
        }
        let is_complete = !stages.is_empty() || gives_all;
        if is_complete
            && let Some((axis, groups)) = groups_of_parts(&from, dims)
            && is_whole_group(&groups)
            && to.is_whole()
            && to.devices().all(|device| from.is_on(device))
        {
            stages.push(Stage { from, to, way: Way::Gather { groups, axis } });
            return Ok(stages);
        }
        if is_complete
            && collectives.has_all_to_all()
            && let (Some(own), Some(other)) =
                (even_axis(&from, dims, &all), even_axis(&to, dims, &all))
        {
            stages.push(Stage { from, to, way: Way::AllToAll { from: own, to: other } });
            return Ok(stages);
        }
        let group = if collectives.has_groups() {
            let senders = transfers(&from, &to, dims).into_iter().map(|transfer| transfer.from);
            let members: BTreeSet<Device> = senders.chain(to.devices()).collect();
            members.into_iter().collect()
        } else {
            all
        };
        stages.push(Stage { from, to, way: Way::Blocks { group } });
        Ok(stages)
    }
}

/// Returns the sizes of a moved value, if all are numbers.
pub(super) fn known_sizes(moved: &Move) -> Option<Sizes> {
    Numbers::default().of(moved.dims.as_deref()?)
}

/// Returns the groups of devices that combine their partial results, one group for each part.
/// `None` if a device has no such group.
fn groups_of_sums(from: &Form) -> Option<Vec<Vec<Device>>> {
    let combined = from.combined();
    let groups: Option<BTreeSet<Vec<Device>>> =
        from.devices().map(|device| reducing(from, &combined, device)).collect();
    Some(groups?.into_iter().collect())
}

/// Returns the only split axis of a form, and groups of devices that each hold all its parts, in
/// the order of the device numbers. `None` if several axes are split, the parts are uneven, or some
/// parts are on more devices than others.
fn groups_of_parts(form: &Form, dims: &[usize]) -> Option<(usize, Vec<Vec<Device>>)> {
    let (axis, parts) = split_axis(form, dims)?;
    let mut holders: Vec<Vec<Device>> = vec![Vec::new(); parts];
    for (device, place) in form.places() {
        holders.get_mut(*place.first()?)?.push(*device);
    }
    let count = holders.first()?.len();
    if count == 0 || holders.iter().any(|devices| devices.len() != count) {
        return None;
    }
    let groups = (0..count).map(|at| holders.iter().map(|devices| devices[at]).collect());
    let groups: Vec<Vec<Device>> = groups.collect();
    groups.iter().all(|group| group.is_sorted()).then_some((axis, groups))
}

/// Returns the only split axis of a form and the number of its parts. `None` if another axis is
/// split as well, the parts are uneven, or the form has partial results.
fn split_axis(form: &Form, dims: &[usize]) -> Option<(usize, usize)> {
    let mut split = form
        .axes()
        .iter()
        .enumerate()
        .filter(|(_, factors)| factors.iter().any(|factor| factor.parts > 1));
    let (axis, factors) = split.next()?;
    let [factor] = &factors[..] else { return None };
    let is_even = dims.get(axis)?.is_multiple_of(factor.parts);
    let is_only = split.next().is_none() && form.partial().is_none();
    (is_even && is_only).then_some((axis, factor.parts))
}

/// Returns the only split axis of a form if each device has one of its even parts, in the order of
/// the device numbers.
fn even_axis(form: &Form, dims: &[usize], all: &[Device]) -> Option<usize> {
    let (axis, groups) = groups_of_parts(form, dims)?;
    (groups == [all]).then_some(axis)
}
