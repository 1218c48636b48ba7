//! What happens to the values of the body of a loop between its iterations, decided once for each
//! plan.

use std::ops::Range;

use sardonyx_tensor::ALIGNMENT;
use smallvec::SmallVec;

use crate::executable::Body;
use crate::plan::Plan;
use crate::program::{RegionKind, Slot};
use crate::schedule::{Schedule, Source};

/// What happens to the values of a body between its iterations, for one plan.
#[derive(Debug)]
pub(crate) struct IterationPlan {
    /// What the body has besides the condition and what it carries, in order.
    pub(crate) number: Option<u32>,
    pub(crate) condition: Option<Condition>,
    pub(crate) carried: SmallVec<[Carried; 4]>,
    pub(crate) stacked: SmallVec<[Stacked; 2]>,
    /// Memory that iterations read and write, by range of an arena: of the number, of the condition
    /// as it is given and as it is made, two of each carried value of a size that stays, and one of
    /// each stacked value that is copied.
    pub(crate) buffers: Vec<Range<usize>>,
    pub(crate) bytes: usize,
    /// How many values are held: those of the schedule, then what no step reads.
    pub(crate) held: usize,
    /// Whether the type of something that the body reads is not known.
    pub(crate) is_open: bool,
}

/// Where a condition is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    pub(crate) input: Option<u32>,
    pub(crate) made: Source,
    /// Whether it is written into a buffer.
    pub(crate) is_lent: bool,
}

/// A carried value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    /// Where the body finds it.
    pub(crate) input: u32,
    /// The slot that the body reads it as, if it does.
    pub(crate) read: Option<Slot>,
    /// The slot whose type it has in a buffer.
    pub(crate) slot: Slot,
    pub(crate) then: Then,
}

/// What the value of the next iteration is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Then {
    /// The same as that of this one.
    Same,
    /// What lies at a place that nothing else is.
    At { output: u32, is_lent: bool },
    /// Something that is also something else.
    Of(Source),
}

/// A stacked value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stacked {
    pub(crate) source: Source,
    pub(crate) slot: Slot,
    /// Where it is written, if it has a size that is known and is nothing else.
    pub(crate) output: Option<u32>,
}

impl IterationPlan {
    /// What happens in the iterations of a body.
    pub(crate) fn new(kind: &RegionKind, body: &Body, plan: &Plan, schedule: &Schedule) -> Self {
        let mut iterations = IterationPlan {
            number: None,
            condition: None,
            carried: SmallVec::new(),
            stacked: SmallVec::new(),
            buffers: Vec::new(),
            bytes: 0,
            held: schedule.held,
            is_open: body.inputs.iter().flatten().any(|slot| plan.types[slot.index()].is_none()),
        };
        let is_made = |place: u32| !schedule.inputs.contains(&Some(place));
        let (first, count) = (kind.first_carried(), kind.carried_count());
        let moving = kind.kept_outputs() + count;
        // A place that a step of the body writes and that is only one of some outputs.
        let only = |outputs: &[Source], source: Source| match source {
            Source::Held { place, root, slot } if root == slot && is_made(place) => {
                let same = outputs.iter().filter(|other| **other == source);
                (same.count() == 1).then_some(place)
            }
            _ => None,
        };
        let own = |source: Source| only(&schedule.outputs, source);
        let bytes = |slot: Slot| {
            let (elem, dims) = plan.types[slot.index()].as_ref()?;
            elem.storage_bytes(sardonyx_tensor::shape::elems(dims).ok()?)
        };
        if let RegionKind::Loop { .. } = kind {
            iterations.number = schedule.inputs[0];
            if iterations.number.is_some() {
                iterations.buffer(size_of::<i64>());
            }
            let made = schedule.outputs[0];
            let is_lent = own(made).is_some() && bytes(body.outputs[0]) == Some(1);
            let condition = Condition { input: schedule.inputs[1], made, is_lent };
            if condition.input.is_some() {
                iterations.buffer(1);
            }
            if is_lent {
                iterations.buffer(1);
            }
            iterations.condition = Some(condition);
        }
        let outputs = schedule.outputs.iter().zip(&body.outputs).skip(kind.kept_outputs());
        for (index, (source, slot)) in outputs.enumerate() {
            let (source, slot) = (*source, *slot);
            if index >= count {
                let output = own(source).filter(|_| bytes(slot).is_some());
                if output.is_some() {
                    iterations.buffer(bytes(slot).unwrap_or(0));
                }
                iterations.stacked.push(Stacked { source, slot, output });
                continue;
            }
            let place = schedule.inputs[first + index];
            let input = place.unwrap_or_else(|| {
                iterations.held += 1;
                iterations.held as u32 - 1
            });
            let read = body.inputs[first + index].filter(|_| place.is_some());
            let type_of = |slot: Slot| &plan.types[slot.index()];
            // Who stacks it as well does so before it moves.
            let then = match only(&schedule.outputs[..moving], source) {
                Some(output) => {
                    let stays = read.is_none_or(|read| type_of(read) == type_of(slot));
                    let size = bytes(slot).filter(|_| stays);
                    if let Some(size) = size {
                        iterations.buffer(size);
                        iterations.buffer(size);
                    }
                    Then::At { output, is_lent: size.is_some() }
                }
                None => match source {
                    Source::Held { place: at, .. } if Some(at) == place => Then::Same,
                    source => Then::Of(source),
                },
            };
            iterations.carried.push(Carried { input, read, slot, then });
        }
        iterations
    }

    fn buffer(&mut self, bytes: usize) {
        let start = self.bytes.next_multiple_of(ALIGNMENT);
        self.buffers.push(start..start + bytes);
        self.bytes = start + bytes;
    }
}
