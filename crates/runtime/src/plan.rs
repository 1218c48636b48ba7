//! Memory plans: the place of each value for one set of input dimensions.
//!
//! A tensor of known [size](crate::sizes) has a place in the arena from its producer to its last
//! reader; a view has the place of its source; an output in place has the place of its input. The
//! planner walks over the steps with a list of free ranges, best fit first, as in Sekiyama et al.,
//! "Profile-guided memory optimization for deep neural networks" (2018), section 4. Values of
//! unknown shape, strings, sequences and the outputs of the model get memory of their own when they
//! are computed.

mod arena;
mod kept;
mod parts;
mod views;

use std::ops::Range;

use sardonyx_kernels::pixels::pitch_of;
use sardonyx_tensor::shape::elems;
use sardonyx_tensor::{DataType, Dims};

use crate::executable::{Body, SlotInfo, Step, Work};
use crate::kernel::OutputLayout;
use crate::layout::Layout;
use crate::program::{MoveKind, Order, Slot};
use crate::sizes::Sizes;

pub(crate) use kept::{KeptCopy, KeptRows};

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
    /// Copies of rows in memory of a state.
    pub(crate) copies: Vec<KeptCopy>,
    /// Whether values have the orders of the program. Otherwise all are in rows, as the size of a
    /// value with another order is unknown.
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
    /// Memory of a state, which has room for more rows.
    Kept(Layout),
    /// Part of the memory of another slot, where the producer writes it.
    Part(Slot, Layout),
    /// View of another slot under its own dimensions: in rows from the first element on, or with a
    /// layout.
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

    /// Returns the layout of a slot in the memory of its root, unless it is dense from the first
    /// element on.
    pub(crate) fn layout(&self, slot: Slot) -> Option<&Layout> {
        match &self.places[slot.index()] {
            Place::View(_, layout) | Place::Arena(_, layout) => layout.as_ref(),
            Place::Part(_, layout) | Place::Kept(layout) => Some(layout),
            Place::Constant | Place::Own => None,
        }
    }

    /// Returns the layout of a slot that a step writes, unless it is in rows.
    pub(crate) fn output_layout(&self, slot: Slot) -> Option<OutputLayout<'_>> {
        match &self.places[slot.index()] {
            Place::Arena(_, Some(layout)) => Some(OutputLayout { layout, is_part: false }),
            Place::Part(_, layout) => Some(OutputLayout { layout, is_part: true }),
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

    /// Whether an input of a step that joins images or writes rows already lies in its place in the
    /// output.
    pub(crate) fn lies_there(&self, step: &Step, position: usize) -> bool {
        let [Some(joined)] = &step.outputs[..] else { return false };
        let becomes_part = match step.movement.as_deref() {
            Some(MoveKind::Concat(_)) => true,
            Some(MoveKind::WriteRows(_)) => position == 0,
            _ => false,
        };
        if !becomes_part {
            return false;
        }
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

    /// Returns the bytes of a slot's elements; `None` for unknown sizes and strings.
    fn bytes_of(&self, slot: Slot) -> Option<usize> {
        let (data_type, dims) = self.types[slot.index()].as_ref()?;
        data_type.storage_bytes(elems(dims).ok()?)
    }

    /// Returns the bytes of a slot that is not a view. Kernels write images with channels last up
    /// to the pitch of the last pixel, so that is included.
    fn count_own_bytes(&self, body: &Body, slot: Slot) -> Option<usize> {
        let (Order::ChannelsLast, Some((data_type, dims))) =
            (self.order(body, slot), &self.types[slot.index()])
        else {
            return self.bytes_of(slot);
        };
        let pixels = elems(dims).ok()? / dims[1].max(1);
        data_type.storage_bytes(pixels.checked_mul(pitch_of(dims[1]))?)
    }
}

/// Plans memory for values of these sizes. Inputs in `kept` are in memory of a state.
pub(crate) fn make_plan(body: &Body, mut sizes: Sizes, kept: &[KeptRows]) -> Plan {
    let types = std::mem::take(&mut sizes.types);
    let mut slots = body.slots.iter().zip(&types);
    let plan = Plan {
        places: body.slots.iter().map(Place::initial).collect(),
        has_orders: slots.all(|(slot, ty)| slot.order == Order::Rows || ty.is_some()),
        types,
        over: vec![None; body.steps.len()],
        skip: vec![false; body.steps.len()],
        last_use: ByStep::default(),
        arena_bytes: 0,
        copies: Vec::new(),
    };
    let mut planner = Planner { body, owns: find_owners(body), plan };
    planner.place_kept(kept);
    planner.place_views(&sizes.ints);
    planner.list_copies(kept);
    planner.place_parts();
    let last_readers = planner.find_last_readers();
    planner.plan.last_use = ByStep::new(&last_readers, body.steps.len());
    planner.place_in_arena(&last_readers);
    planner.plan
}

/// State of the planning of a body: first views, then parts of joins, then the arena.
struct Planner<'b> {
    body: &'b Body,
    /// Whether each slot must have memory of its own.
    owns: Vec<bool>,
    plan: Plan,
}

impl Planner<'_> {
    /// Returns the last step that reads each slot, directly or through a view; `None` for outputs.
    fn find_last_readers(&self) -> Vec<Option<usize>> {
        let mut last = vec![None; self.body.slots.len()];
        for (index, step) in self.body.steps.iter().enumerate() {
            // A value without readers lives for one step.
            for slot in step.outputs.iter().chain(&step.inputs).flatten() {
                let last = &mut last[self.plan.root(*slot).index()];
                *last = (*last).max(Some(index));
            }
        }
        for slot in &self.body.outputs {
            last[self.plan.root(*slot).index()] = None;
        }
        last
    }
}

/// Returns whether each slot must have memory of its own: inputs and outputs of the model, and
/// values that a kernel takes over.
fn find_owners(body: &Body) -> Vec<bool> {
    let mut owns = vec![false; body.slots.len()];
    let outputs = &body.outputs[..body.graph_outputs()];
    let taken = list_taken(body);
    for slot in body.inputs.iter().flatten().chain(outputs).chain(&taken) {
        owns[slot.index()] = true;
    }
    owns
}

/// Lists the slots whose last reader takes them over: with memory of their own they become part of
/// a sequence without a copy.
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
