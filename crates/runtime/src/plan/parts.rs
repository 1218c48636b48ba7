//! Parts of joins: images that are written into their places within the value that joins them.

use super::{Place, Plan, Planner};
use crate::executable::Body;
use crate::layout::Layout;
use crate::program::{MoveKind, Order, Slot};

impl Planner<'_> {
    /// Places images that are joined along their channels within the joined value, and joined
    /// values within larger ones. The step that joins copies those that cannot be placed.
    ///
    /// Works from the last step to the first, so that a value that is joined again has its final
    /// place. A value with a place in another join keeps it, as the first of several growing joins
    /// does; if all parts are adjacent, the join is a view.
    pub(super) fn place_parts(&mut self) {
        let Planner { body, owns, plan } = self;
        if !body.slots.iter().any(|slot| slot.order == Order::ChannelsLast) {
            return;
        }
        let mut maker: Vec<Option<usize>> = vec![None; body.slots.len()];
        for (index, step) in body.steps.iter().enumerate() {
            for slot in step.outputs.iter().flatten() {
                maker[slot.index()] = Some(index);
            }
        }
        for index in (0..body.steps.len()).rev() {
            let step = &body.steps[index];
            let (Some(MoveKind::Concat(_)), [Some(joined)]) =
                (step.movement.as_deref(), &step.outputs[..])
            else {
                continue;
            };
            let is_image = plan.order(body, *joined) == Order::ChannelsLast;
            if !is_image || owns[joined.index()] || plan.is_view(*joined) {
                continue;
            }
            let parts: Option<Vec<Slot>> = step.inputs.iter().copied().collect();
            let Some(parts) = parts else { continue };
            let join = Join { body, maker: &maker, index, joined: *joined };
            if let Some(view) = join_adjacent(body, plan, &parts) {
                join.become_view(plan, view);
            } else if let Some(groups) =
                (PartSearch { body, owns, plan, maker: &maker }).place(*joined, &parts)
            {
                join.place_groups(plan, groups);
            }
        }
    }
}

/// Value that may become a part of another one, and its views, with their places there.
type PartGroup = Vec<(Slot, Place)>;

/// Step that joins images.
struct Join<'a> {
    body: &'a Body,
    /// Producer of each slot.
    maker: &'a [Option<usize>],
    /// Index of the step.
    index: usize,
    /// Slot of its output.
    joined: Slot,
}

impl Join<'_> {
    /// Makes the output a view of adjacent parts, unless a step would read the memory that it
    /// writes.
    fn become_view(&self, plan: &mut Plan, view: Place) {
        let own = std::mem::replace(&mut plan.places[self.joined.index()], view);
        plan.skip[self.index] = true;
        // Values computed from this join may be placed beside its parts.
        if self.find_conflict(plan).is_some() {
            plan.places[self.joined.index()] = own;
            plan.skip[self.index] = false;
        }
    }

    /// Places values within the output. The step copies those that cannot be placed.
    fn place_groups(&self, plan: &mut Plan, groups: Vec<PartGroup>) {
        let mut placed = groups;
        placed.iter_mut().for_each(|group| swap_places(plan, group));
        while let Some(slot) = self.find_conflict(plan) {
            let of = placed.iter().position(|group| group.iter().any(|(other, _)| *other == slot));
            // The parts of an earlier join were consistent without these.
            let Some(of) = of else {
                placed.iter_mut().for_each(|group| swap_places(plan, group));
                return;
            };
            let mut group = placed.remove(of);
            swap_places(plan, &mut group);
        }
        let step = &self.body.steps[self.index];
        plan.skip[self.index] =
            (0..step.inputs.len()).all(|position| plan.lies_there(step, position));
    }

    /// Returns the first value in the memory of the output whose step cannot run there, because it
    /// also reads that memory or writes two parts of it: memory is lent either for reading or for
    /// writing.
    fn find_conflict(&self, plan: &Plan) -> Option<Slot> {
        let root = plan.root(self.joined);
        let parts = plan.places.iter().zip(self.maker).enumerate();
        let parts = parts.filter_map(|(slot, (place, maker))| match place {
            Place::Part(of, _) if *of == root => Some((*maker, Slot(slot as u32))),
            _ => None,
        });
        let parts = parts.chain([(self.maker[root.index()], root)]);
        parts
            .filter_map(|(maker, slot)| Some((maker?, slot)))
            .filter(|(maker, _)| self.uses_twice(plan, *maker, root))
            .min_by_key(|(maker, _)| *maker)
            .map(|(_, slot)| slot)
    }

    /// Whether a step that writes into the memory of a slot also reads it, or writes several parts
    /// of it.
    fn uses_twice(&self, plan: &Plan, index: usize, root: Slot) -> bool {
        let step = &self.body.steps[index];
        let is_in = |slot: Slot| plan.root(slot) == root;
        let mut inputs = step.inputs.iter().enumerate();
        let reads = inputs
            .any(|(position, slot)| slot.is_some_and(is_in) && !plan.lies_there(step, position));
        reads || step.outputs.iter().flatten().filter(|slot| is_in(**slot)).count() != 1
    }
}

/// Exchanges the places of a group with those in the plan.
fn swap_places(plan: &mut Plan, group: &mut PartGroup) {
    for (slot, place) in group {
        std::mem::swap(&mut plan.places[slot.index()], place);
    }
}

/// Returns the view that is the join of several images, if they are adjacent parts of one value.
fn join_adjacent(body: &Body, plan: &Plan, parts: &[Slot]) -> Option<Place> {
    let place = |slot: Slot| match &plan.places[slot.index()] {
        Place::Part(root, layout) | Place::View(root, Some(layout)) => Some((*root, layout)),
        _ => None,
    };
    let (root, first) = place(*parts.first()?)?;
    let mut next = first.offset;
    for part in parts {
        let (of, layout) = place(*part)?;
        let (_, dims) = plan.types[part.index()].as_ref()?;
        let is_next = of == root && layout.offset == next;
        let is_image = plan.order(body, *part) == Order::ChannelsLast;
        if !is_next || !is_image || layout.pitch(dims) != first.pitch(dims) {
            return None;
        }
        next += dims[1];
    }
    Some(Place::View(root, Some(first.clone())))
}

/// Context of the search for places of parts.
struct PartSearch<'a> {
    body: &'a Body,
    owns: &'a [bool],
    plan: &'a Plan,
    /// Producer of each slot.
    maker: &'a [Option<usize>],
}

impl PartSearch<'_> {
    /// Returns the places of the images that `joined` joins, except those that must stay; `None` if
    /// all must.
    fn place(&self, joined: Slot, parts: &[Slot]) -> Option<Vec<PartGroup>> {
        let plan = self.plan;
        let whole = match plan.layout(joined) {
            Some(layout) => layout.clone(),
            None => plan.own_layout(self.body, joined)?,
        };
        let mut groups: Vec<PartGroup> = Vec::with_capacity(parts.len());
        let mut channel = 0;
        let mut rest = parts;
        while let [first, ..] = rest {
            // Views that cover a value in order are treated as the value.
            let (slot, count) = self.value_of(rest).unwrap_or((*first, 1));
            let (_, dims) = plan.types[slot.index()].as_ref()?;
            // A value that is joined twice has two places. A view of only a part of a value stays
            // with it.
            let others = parts.iter().filter(|part| plan.root(**part) == plan.root(slot)).count();
            if others == count && self.may_move(slot) {
                groups.extend(self.group(slot, plan.root(joined), whole.narrow(1, channel, 1)?));
            }
            channel += dims[1];
            rest = &rest[count..];
        }
        (!groups.is_empty()).then_some(groups)
    }

    /// Places a value as a part of another one, with its views; `None` if a view cannot move with
    /// it.
    fn group(&self, slot: Slot, root: Slot, part: Layout) -> Option<PartGroup> {
        let plan = self.plan;
        let mut group = Vec::new();
        for viewer in self.viewers(slot) {
            let Place::View(_, Some(view)) = &plan.places[viewer.index()] else { return None };
            let (_, dims) = plan.types[viewer.index()].as_ref()?;
            // Only views of whole pixels move along.
            let is_image = plan.order(self.body, viewer) == Order::ChannelsLast;
            view.pitch(dims).filter(|_| is_image)?;
            let moved = part.narrow(1, view.offset, 1)?;
            group.push((viewer, Place::View(root, Some(moved))));
        }
        group.push((slot, Place::Part(root, part)));
        Some(group)
    }

    /// Returns the value that the first parts cover in order by views, or the first part itself,
    /// and the number of parts.
    fn value_of(&self, parts: &[Slot]) -> Option<(Slot, usize)> {
        let plan = self.plan;
        let first = *parts.first()?;
        let Place::View(root, _) = plan.places[first.index()] else {
            return Some((first, 1));
        };
        let (_, dims) = plan.types[root.index()].as_ref()?;
        let mut channel = 0;
        for (count, part) in parts.iter().enumerate() {
            let Place::View(of, Some(layout)) = &plan.places[part.index()] else { return None };
            let (_, part_dims) = plan.types[part.index()].as_ref()?;
            if *of != root || layout.offset != channel || part_dims[2..] != dims[2..] {
                return None;
            }
            channel += part_dims[1];
            if channel == dims[1] {
                return Some((root, count + 1));
            }
        }
        None
    }

    /// Whether a value may be placed in the memory of another one: it has channels last and no
    /// required memory.
    fn may_move(&self, slot: Slot) -> bool {
        let plan = self.plan;
        let is_free = matches!(plan.places[slot.index()], Place::Own) && !self.owns[slot.index()];
        let is_image = plan.order(self.body, slot) == Order::ChannelsLast;
        let is_made = self.maker[slot.index()].is_some_and(|maker| !plan.skip[maker]);
        is_free && is_image && is_made
    }

    fn viewers(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let places = self.plan.places.iter().enumerate();
        places.filter_map(move |(index, place)| match place {
            Place::View(root, _) | Place::Part(root, _) if *root == slot => {
                Some(Slot(index as u32))
            }
            _ => None,
        })
    }
}
