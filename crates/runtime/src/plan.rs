//! Memory plans: the place of each value for one set of input dimensions.
//!
//! A tensor of known [size](crate::sizes) has a place in the arena from its producer to its last reader; a view has
//! the place of its source; an output in place has the place of its input. The planner walks over the steps with a
//! list of free ranges, best fit first, as in Sekiyama et al., "Profile-guided memory optimization for deep neural
//! networks" (2018), section 4. Values of unknown shape, strings, sequences and the outputs of the model get memory
//! of their own when they are computed.

use std::ops::Range;

use sardonyx_kernels::pixels::pitch_of;
use sardonyx_tensor::{ALIGNMENT, DataType, Dims};

use crate::executable::{Body, SlotInfo, Step, Work};
use crate::kernel::Laid;
use crate::layout::{Layout, ViewSite, is_whole};
use crate::program::{MoveKind, Order, Slot};
use crate::sizes::Sizes;

/// Places of the values of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Place of each slot.
    pub(crate) places: Vec<Place>,
    /// Type and shape of each slot, where known.
    pub(crate) types: Vec<Option<(DataType, Dims)>>,
    /// Input of each step whose memory the first output reuses.
    pub(crate) over: Vec<Option<usize>>,
    /// Whether each step can be skipped, because its outputs are views.
    pub(crate) skip: Vec<bool>,
    /// Slots whose last reader is a step, except outputs of the model.
    pub(crate) last_use: ByStep,
    /// Size of the arena in bytes.
    pub(crate) arena_bytes: usize,
    /// Whether values have the orders of the program. Otherwise all are in rows, as the size of a value with another
    /// order is unknown.
    has_orders: bool,
}

/// Place of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Constant.
    Constant,
    /// Memory of its own: inputs and outputs of the model, and values of unknown shape.
    Own,
    /// Range of bytes of the arena, in rows or with a layout.
    Arena(Range<usize>, Option<Layout>),
    /// Part of the memory of another slot, where the producer writes it.
    Part(Slot, Layout),
    /// View of another slot under its own dimensions: in rows from the first element on, or with a layout.
    View(Slot, Option<Layout>),
}

/// Slots grouped by step.
#[derive(Debug, Default)]
pub(crate) struct ByStep {
    slots: Vec<Slot>,
    /// End of each step's slots.
    ends: Vec<u32>,
}

impl ByStep {
    /// Groups slots by the step of each.
    fn new(step_of: &[Option<usize>], steps: usize) -> ByStep {
        let mut ends = vec![0u32; steps];
        for step in step_of.iter().flatten() {
            ends[*step] += 1;
        }
        let mut count = 0;
        for end in &mut ends {
            count += std::mem::replace(end, count);
        }
        let mut slots = vec![Slot(0); count as usize];
        // Each entry starts as the beginning of its group, and ends as its end.
        for (slot, step) in step_of.iter().enumerate() {
            if let Some(step) = step {
                slots[ends[*step] as usize] = Slot(slot as u32);
                ends[*step] += 1;
            }
        }
        ByStep { slots, ends }
    }

    pub(crate) fn slots(&self, step: usize) -> &[Slot] {
        let start = step.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.slots[start as usize..self.ends[step] as usize]
    }
}

impl Place {
    /// Returns the initial place of a slot.
    fn initial(slot: &SlotInfo) -> Place {
        if slot.is_constant() { Place::Constant } else { Place::Own }
    }
}

impl Plan {
    /// Returns the slot that owns the memory of a slot.
    pub(crate) fn root(&self, slot: Slot) -> Slot {
        match self.places[slot.index()] {
            // Views and parts refer to slots that are neither.
            Place::View(root, _) | Place::Part(root, _) => root,
            _ => slot,
        }
    }

    /// Whether a slot is a view, so that no step writes it.
    pub(crate) fn is_view(&self, slot: Slot) -> bool {
        matches!(self.places[slot.index()], Place::View(..))
    }

    /// Returns the layout of a slot in the memory of its root, unless it is dense from the first element on.
    pub(crate) fn layout(&self, slot: Slot) -> Option<&Layout> {
        match &self.places[slot.index()] {
            Place::View(_, layout) | Place::Arena(_, layout) => layout.as_ref(),
            Place::Part(_, layout) => Some(layout),
            Place::Constant | Place::Own => None,
        }
    }

    /// Returns the layout of a slot that a step writes, unless it is in rows.
    pub(crate) fn output_layout(&self, slot: Slot) -> Option<Laid<'_>> {
        match &self.places[slot.index()] {
            Place::Arena(_, Some(layout)) => Some(Laid { layout, is_part: false }),
            Place::Part(_, layout) => Some(Laid { layout, is_part: true }),
            _ => None,
        }
    }

    /// Returns the layout of a slot in memory of its own, unless it is in rows.
    fn own_layout(&self, body: &Body, slot: Slot) -> Option<Layout> {
        match (&self.types[slot.index()], self.order(body, slot)) {
            (Some((_, dims)), Order::ChannelsLast) => Some(Layout::channels_last(dims)),
            _ => None,
        }
    }

    /// Whether an input of a step that joins images already lies in its place in the output.
    pub(crate) fn lies_there(&self, step: &Step, position: usize) -> bool {
        let (Some(MoveKind::Concat(_)), [Some(joined)]) =
            (step.movement.as_deref(), &step.outputs[..])
        else {
            return false;
        };
        let Some(input) = step.inputs[position] else { return false };
        // Only images with channels last are parts of a join.
        if self.root(input) != self.root(*joined) || self.is_view(*joined) {
            return false;
        }
        let offset = |slot: Slot| self.layout(slot).map_or(0, |layout| layout.offset);
        let channels = |slot: &Option<Slot>| {
            let (_, dims) = self.types[slot.as_ref()?.index()].as_ref()?;
            dims.get(1).copied()
        };
        let before: Option<usize> = step.inputs[..position].iter().map(channels).sum();
        before.is_some_and(|before| offset(input) == offset(*joined) + before)
    }

    /// Whether a slot is an image with channels last.
    pub(crate) fn has_channels_last(&self, body: &Body, slot: Slot) -> bool {
        self.order(body, slot) == Order::ChannelsLast
    }

    fn order(&self, body: &Body, slot: Slot) -> Order {
        if self.has_orders { body.slots[slot.index()].order } else { Order::Rows }
    }
}

/// Plans memory for values of these sizes.
pub(crate) fn make_plan(body: &Body, mut sizes: Sizes) -> Plan {
    let mut plan = Plan {
        places: body.slots.iter().map(Place::initial).collect(),
        types: Vec::new(),
        over: vec![None; body.steps.len()],
        skip: vec![false; body.steps.len()],
        last_use: ByStep::default(),
        arena_bytes: 0,
        has_orders: false,
    };
    // Values that must keep memory of their own: inputs and outputs of the model, and values that a kernel takes
    // over.
    let mut owns = vec![false; body.slots.len()];
    let outputs = &body.outputs[..body.graph_outputs()];
    for slot in body.inputs.iter().flatten().chain(outputs) {
        owns[slot.index()] = true;
    }
    for slot in list_taken(body) {
        owns[slot.index()] = true;
    }
    plan.types = std::mem::take(&mut sizes.types);
    let mut slots = body.slots.iter().zip(&plan.types);
    plan.has_orders = slots.all(|(slot, ty)| slot.order == Order::Rows || ty.is_some());
    place_views(body, &owns, sizes, &mut plan);
    place_parts(body, &owns, &mut plan);
    let mut last_read = find_last_readers(body, &plan);
    for slot in &body.outputs {
        last_read[plan.root(*slot).index()] = None;
    }
    plan.last_use = ByStep::new(&last_read, body.steps.len());
    place_in_arena(body, &owns, &last_read, &mut plan);
    plan
}

fn bytes_of(plan: &Plan, slot: Slot) -> Option<usize> {
    let (data_type, dims) = plan.types[slot.index()].as_ref()?;
    data_type.storage_bytes(sardonyx_tensor::shape::elems(dims).ok()?)
}

/// Returns the bytes of a slot that is not a view. Kernels write images with channels last up to the pitch of the
/// last pixel, so that is included.
fn own_bytes(plan: &Plan, body: &Body, slot: Slot) -> Option<usize> {
    let (Order::ChannelsLast, Some((data_type, dims))) =
        (plan.order(body, slot), &plan.types[slot.index()])
    else {
        return bytes_of(plan, slot);
    };
    let pixels = sardonyx_tensor::shape::elems(dims).ok()? / dims[1].max(1);
    data_type.storage_bytes(pixels.checked_mul(pitch_of(dims[1]))?)
}

/// Makes outputs views where the kernel has a layout for them and all readers accept it.
fn place_views(body: &Body, owns: &[bool], sizes: Sizes, plan: &mut Plan) {
    let follows = find_accepted_layouts(body);
    let Sizes { ints, .. } = sizes;
    for (index, step) in body.steps.iter().enumerate() {
        let (Some(movement), Some(Some(input))) = (&step.movement, step.inputs.first()) else {
            continue;
        };
        let Some((data_type, from)) = plan.types[input.index()].clone() else {
            continue;
        };
        // Strings have no bytes, and elements below one byte no address: only whole values of them can be viewed.
        let Some(bits) = data_type.bits() else {
            continue;
        };
        let layout = match plan.layout(*input) {
            Some(layout) => layout.clone(),
            None => plan.own_layout(body, *input).unwrap_or_else(|| Layout::dense(&from)),
        };
        let ints = |position: usize| {
            let slot = step.inputs.get(position).copied().flatten()?;
            ints.get(&slot).cloned()
        };
        let has_input = |position: usize| step.inputs.get(position).is_some_and(Option::is_some);
        let mut all = true;
        for (output, slot) in step.outputs.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let viewed = match &plan.types[slot.index()] {
                Some((output_type, to)) if *output_type == data_type && !owns[slot.index()] => {
                    movement
                        .view(&ViewSite {
                            output,
                            from: &from,
                            layout: &layout,
                            to,
                            ints: &ints,
                            has_input: &has_input,
                        })
                        .filter(|layout| match plan.order(body, *slot) {
                            Order::ChannelsLast => layout.pitch(to).is_some(),
                            Order::Rows => {
                                let follows = &follows[slot.index()];
                                layout.is_dense(to) || follows.accept(layout, to)
                            }
                        })
                        // Readers accept positive strides only.
                        .filter(|layout| layout.strides.iter().all(|stride| *stride >= 0))
                        .map(|layout| (is_whole(to, &layout), layout))
                        .filter(|(whole, _)| *whole || bits % 8 == 0)
                }
                _ => None,
            };
            match viewed {
                Some((whole, layout)) => {
                    let root = plan.root(*input);
                    let whole = whole
                        && plan.order(body, *slot) == Order::Rows
                        && own_bytes(plan, body, root) == bytes_of(plan, *slot);
                    plan.places[slot.index()] = Place::View(root, (!whole).then_some(layout));
                }
                None => all = false,
            }
        }
        plan.skip[index] = all && step.outputs.iter().any(Option::is_some);
    }
}

/// Places images that are joined along their channels within the joined value, and joined values within larger ones.
/// The step that joins copies those that cannot be placed.
///
/// Works from the last step to the first, so that a value that is joined again has its final place. A value with a
/// place in another join keeps it, as the first of several growing joins does; if all parts are adjacent, the join is
/// a view.
fn place_parts(body: &Body, owns: &[bool], plan: &mut Plan) {
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
        if let Some(view) = adjacent(body, plan, &parts) {
            let own = std::mem::replace(&mut plan.places[joined.index()], view);
            plan.skip[index] = true;
            // Values computed from this join may be placed beside its parts.
            if reads_where_it_writes(body, plan, plan.root(*joined), &maker).is_some() {
                plan.places[joined.index()] = own;
                plan.skip[index] = false;
            }
        } else if let Some(groups) = (Parts { body, owns, plan, maker: &maker }).place(*joined, &parts)
        {
            place_groups(body, plan, (index, *joined), groups, &maker);
        }
    }
}

/// Value that may become a part of another one, and its views, with their places there.
type Group = Vec<(Slot, Place)>;

/// Places values within the join that a step makes of them. The step copies those that cannot be placed.
fn place_groups(
    body: &Body,
    plan: &mut Plan,
    (index, joined): (usize, Slot),
    groups: Vec<Group>,
    maker: &[Option<usize>],
) {
    let root = plan.root(joined);
    let exchange = |plan: &mut Plan, group: &mut Group| {
        for (slot, place) in group {
            std::mem::swap(&mut plan.places[slot.index()], place);
        }
    };
    let mut placed = groups;
    placed.iter_mut().for_each(|group| exchange(plan, group));
    while let Some(slot) = reads_where_it_writes(body, plan, root, maker) {
        let of = placed.iter().position(|group| group.iter().any(|(other, _)| *other == slot));
        // The parts of an earlier join were consistent without these.
        let Some(of) = of else {
            placed.iter_mut().for_each(|group| exchange(plan, group));
            return;
        };
        let mut group = placed.remove(of);
        exchange(plan, &mut group);
    }
    let step = &body.steps[index];
    plan.skip[index] = (0..step.inputs.len()).all(|position| plan.lies_there(step, position));
}

/// Returns the first value in the memory of `root` whose step cannot run there, because it also reads that memory or
/// writes two parts of it: memory is lent either for reading or for writing.
fn reads_where_it_writes(
    body: &Body,
    plan: &Plan,
    root: Slot,
    maker: &[Option<usize>],
) -> Option<Slot> {
    let parts = plan.places.iter().zip(maker).enumerate();
    let parts = parts.filter_map(|(slot, (place, maker))| match place {
        Place::Part(of, _) if *of == root => Some((*maker, Slot(slot as u32))),
        _ => None,
    });
    let parts = parts.chain([(maker[root.index()], root)]);
    let is_in = |slot: Slot| plan.root(slot) == root;
    let offends = |index: usize| {
        let step = &body.steps[index];
        let reads =
            step.inputs.iter().enumerate().any(|(position, slot)| {
                slot.is_some_and(is_in) && !plan.lies_there(step, position)
            });
        reads || step.outputs.iter().flatten().filter(|slot| is_in(**slot)).count() != 1
    };
    parts
        .filter_map(|(maker, slot)| Some((maker?, slot)))
        .filter(|(maker, _)| offends(*maker))
        .min_by_key(|(maker, _)| *maker)
        .map(|(_, slot)| slot)
}

/// Returns the view that is the join of several images, if they are adjacent parts of one value.
fn adjacent(body: &Body, plan: &Plan, parts: &[Slot]) -> Option<Place> {
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
struct Parts<'a> {
    body: &'a Body,
    owns: &'a [bool],
    plan: &'a Plan,
    /// Producer of each slot.
    maker: &'a [Option<usize>],
}

impl Parts<'_> {
    /// Returns the places of the images that `joined` joins, except those that must stay; `None` if all must.
    fn place(&self, joined: Slot, parts: &[Slot]) -> Option<Vec<Group>> {
        let plan = self.plan;
        let whole = match plan.layout(joined) {
            Some(layout) => layout.clone(),
            None => plan.own_layout(self.body, joined)?,
        };
        let mut groups: Vec<Group> = Vec::with_capacity(parts.len());
        let mut channel = 0;
        let mut rest = parts;
        while let [first, ..] = rest {
            // Views that cover a value in order are treated as the value.
            let (slot, count) = self.value_of(rest).unwrap_or((*first, 1));
            let (_, dims) = plan.types[slot.index()].as_ref()?;
            // A value that is joined twice has two places. A view of only a part of a value stays with it.
            let others = parts.iter().filter(|part| plan.root(**part) == plan.root(slot)).count();
            if others == count && self.may_move(slot) {
                groups.extend(self.group(slot, plan.root(joined), whole.narrow(1, channel, 1)?));
            }
            channel += dims[1];
            rest = &rest[count..];
        }
        (!groups.is_empty()).then_some(groups)
    }

    /// Places a value as a part of another one, with its views; `None` if a view cannot move with it.
    fn group(&self, slot: Slot, root: Slot, part: Layout) -> Option<Group> {
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

    /// Returns the value that the first parts cover in order by views, or the first part itself, and the number of
    /// parts.
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

    /// Whether a value may be placed in the memory of another one: it has channels last and no required memory.
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

/// Lists the slots whose last reader takes them over: with memory of their own they become part of a sequence without
/// a copy.
fn list_taken(body: &Body) -> Vec<Slot> {
    let mut seen = vec![false; body.slots.len()];
    for slot in &body.outputs {
        seen[slot.index()] = true;
    }
    let mut taken = Vec::new();
    for step in body.steps.iter().rev() {
        let read = || step.inputs.iter().enumerate();
        for (position, slot) in read() {
            let Some(slot) = *slot else { continue };
            // A moved value is mostly a view, and loops have places for carried values.
            let keeps = step.movement.is_none() && matches!(step.work, Work::Kernel(_));
            let takes = keeps && step.rules.takes.contains(position);
            if takes && !seen[slot.index()] && !body.slots[slot.index()].is_constant() {
                taken.push(slot);
            }
        }
        read().filter_map(|(_, slot)| *slot).for_each(|slot| seen[slot.index()] = true);
    }
    taken
}

/// Layouts that all readers of a slot accept.
#[derive(Debug, Clone, Copy)]
struct Follows {
    /// Any strides.
    strides: bool,
    /// Rows along the last axis with a pitch.
    pitch: bool,
}

impl Follows {
    fn accept(self, layout: &Layout, dims: &[usize]) -> bool {
        self.strides || (self.pitch && layout.row_pitch(dims).is_some())
    }
}

/// Returns the layouts that all readers of each slot accept.
fn find_accepted_layouts(body: &Body) -> Vec<Follows> {
    let mut follows = vec![Follows { strides: true, pitch: true }; body.slots.len()];
    // Kept values are dense.
    for slot in &body.outputs {
        follows[slot.index()] = Follows { strides: false, pitch: false };
    }
    for step in &body.steps {
        for (position, slot) in step.inputs.iter().enumerate() {
            if let Some(slot) = slot {
                let follows = &mut follows[slot.index()];
                let strides = step.rules.strided.contains(position);
                follows.strides &= strides;
                follows.pitch &= strides || step.rules.pitched.contains(position);
            }
        }
    }
    follows
}

/// Returns the last step that reads each slot, directly or through a view.
fn find_last_readers(body: &Body, plan: &Plan) -> Vec<Option<usize>> {
    let mut last = vec![None; body.slots.len()];
    for (index, step) in body.steps.iter().enumerate() {
        // A value without readers lives for one step.
        for slot in step.outputs.iter().chain(&step.inputs).flatten() {
            let last = &mut last[plan.root(*slot).index()];
            *last = (*last).max(Some(index));
        }
    }
    last
}

fn place_in_arena(body: &Body, owns: &[bool], last_read: &[Option<usize>], plan: &mut Plan) {
    let mut free = FreeList::default();
    // Memory that was reused is freed with its new owner.
    let mut is_taken = vec![false; body.slots.len()];
    for (index, step) in body.steps.iter().enumerate() {
        if !plan.skip[index] {
            for (position, output) in step.outputs.iter().enumerate() {
                let Some(output) = output.filter(|slot| {
                    !owns[slot.index()] && !matches!(plan.places[slot.index()], Place::View(..))
                }) else {
                    continue;
                };
                // A part is written into its root, whose place is decided with its first part.
                let root = plan.root(output);
                if !matches!(plan.places[root.index()], Place::Own) {
                    continue;
                }
                let layout = plan.own_layout(body, root);
                let Some(bytes) = own_bytes(plan, body, root) else {
                    continue;
                };
                let over = if position == 0 && root == output {
                    take_over(body, plan, last_read, index, (output, layout.as_ref()))
                } else {
                    None
                };
                let range = match over {
                    Some((input, root, range)) => {
                        plan.over[index] = Some(input);
                        is_taken[root.index()] = true;
                        range
                    }
                    None => free.take(bytes),
                };
                plan.arena_bytes = plan.arena_bytes.max(range.end);
                plan.places[root.index()] = Place::Arena(range, layout);
            }
        }
        for slot in plan.last_use.slots(index) {
            if let Place::Arena(range, _) = &plan.places[slot.index()]
                && !is_taken[slot.index()]
            {
                free.give(range.clone());
            }
        }
    }
}

/// Returns the input of a step whose memory the first output may reuse: this step is its last reader, reads it once,
/// and the sizes are equal.
fn take_over(
    body: &Body,
    plan: &Plan,
    last_read: &[Option<usize>],
    index: usize,
    (output, layout): (Slot, Option<&Layout>),
) -> Option<(usize, Slot, Range<usize>)> {
    let step = &body.steps[index];
    step.rules.in_place.iter().find_map(|position| {
        let input = step.inputs.get(*position).copied().flatten()?;
        let root = plan.root(input);
        let Place::Arena(range, own) = &plan.places[root.index()] else {
            return None;
        };
        let read_once =
            step.inputs.iter().flatten().filter(|slot| plan.root(**slot) == root).count() == 1;
        // A part of another value must not be overwritten.
        let is_own = match &plan.places[input.index()] {
            Place::View(_, part) => part.is_none() && own.is_none(),
            _ => root == input,
        };
        let same = is_own
            && own.as_ref() == layout
            && plan.types[input.index()] == plan.types[output.index()];
        (same && read_once && last_read[root.index()] == Some(index))
            .then(|| (*position, root, range.clone()))
    })
}

/// Free ranges of the arena, disjoint and sorted. The memory after the end is free as well.
#[derive(Debug, Default)]
struct FreeList {
    /// Start and end. Models have few at a time, for which a scan is faster than a tree.
    ranges: Vec<(usize, usize)>,
    end: usize,
}

/// Limit: free ranges that are remembered, as each search scans all of them.
const MAX_FREE: usize = 1024;

impl FreeList {
    /// Takes the smallest free range that is large enough, or extends the arena.
    fn take(&mut self, bytes: usize) -> Range<usize> {
        let size = bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let lengths = self.ranges.iter().map(|(start, end)| end - start).enumerate();
        let best = lengths.filter(|(_, length)| *length >= size).min_by_key(|(_, length)| *length);
        let start = match best {
            Some((index, length)) => {
                let start = self.ranges[index].0;
                if length == size {
                    self.ranges.remove(index);
                } else {
                    self.ranges[index].0 += size;
                }
                start
            }
            None => {
                // A free range at the end is extended.
                let at_end = self.ranges.pop_if(|(_, end)| *end == self.end);
                let start = at_end.map_or(self.end, |(start, _)| start);
                self.end = start + size;
                start
            }
        };
        start..start + bytes
    }

    fn give(&mut self, range: Range<usize>) {
        let start = range.start;
        let end = start + range.len().next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let next = self.ranges.partition_point(|(other, _)| *other < start);
        let joins_before = next > 0 && self.ranges[next - 1].1 == start;
        let joins_next = self.ranges.get(next).is_some_and(|(other, _)| *other == end);
        match (joins_before, joins_next) {
            (true, true) => self.ranges[next - 1].1 = self.ranges.remove(next).1,
            (true, false) => self.ranges[next - 1].1 = end,
            (false, true) => self.ranges[next].0 = start,
            (false, false) if self.ranges.len() < MAX_FREE => {
                self.ranges.insert(next, (start, end));
            }
            (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_join_and_are_used_again() {
        let mut free = FreeList::default();
        let (a, b, c) = (free.take(100), free.take(64), free.take(1));
        assert_eq!((a.clone(), b.clone(), c.clone()), (0..100, 128..192, 192..193));
        free.give(a);
        free.give(b);
        assert_eq!(free.take(192), 0..192);
        free.give(c);
        assert_eq!(free.take(1000), 192..1192, "the free end grows");
    }

    #[test]
    fn few_free_ranges_are_remembered() {
        let mut free = FreeList::default();
        let taken: Vec<Range<usize>> = (0..4 * MAX_FREE).map(|_| free.take(64)).collect();
        taken.iter().step_by(2).for_each(|range| free.give(range.clone()));
        assert_eq!(free.ranges.len(), MAX_FREE);
        taken.iter().skip(1).step_by(2).for_each(|range| free.give(range.clone()));
        // What was forgotten stays in use, and what lies between it is found again.
        assert_eq!(free.ranges.len(), MAX_FREE);
        assert_eq!(free.take(64 * 2 * MAX_FREE), 0..64 * 2 * MAX_FREE);
    }
}
