//! Movement of values between the iterations of a loop, decided once for each plan.

use std::ops::Range;

use sardonyx_tensor::ALIGNMENT;
use smallvec::SmallVec;

use crate::executable::Body;
use crate::plan::Plan;
use crate::program::{RegionKind, Slot};
use crate::schedule::{Schedule, Source};

/// Movement of values between the iterations of a body, for one plan.
#[derive(Debug)]
pub(crate) struct IterationPlan {
    /// Inputs and outputs of the body in order: iteration number, condition, carried values,
    /// stacked values.
    pub(crate) number: Option<u32>,
    pub(crate) condition: Option<Condition>,
    pub(crate) carried: SmallVec<[Carried; 4]>,
    pub(crate) stacked: SmallVec<[Stacked; 2]>,
    /// Buffers as ranges of an arena: one for the number, two for the condition (read and written),
    /// two for each carried value of constant size, and one for each stacked value that is copied.
    pub(crate) buffers: Vec<Range<usize>>,
    pub(crate) bytes: usize,
    /// Number of held values: those of the schedule, then outputs that no step reads.
    pub(crate) held: usize,
    /// Whether the type of an input of the body is unknown.
    pub(crate) is_open: bool,
}

/// Location of a condition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Condition {
    pub(crate) input: Option<u32>,
    pub(crate) made: Source,
    /// Whether the body writes it into a buffer.
    pub(crate) is_lent: bool,
}

/// Carried value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    /// Index of the body's input.
    pub(crate) input: u32,
    /// Slot of the body's input; `None` without a reader.
    pub(crate) read: Option<Slot>,
    /// Slot that decides the type of the buffer.
    pub(crate) slot: Slot,
    pub(crate) then: NextValue,
}

/// Source of a carried value for the next iteration.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NextValue {
    /// The value of this iteration.
    Same,
    /// An output with memory of its own: swap it with the input.
    At { output: u32, is_lent: bool },
    /// An alias of another value, which is copied.
    Of(Source),
}

/// Stacked value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stacked {
    pub(crate) source: Source,
    pub(crate) slot: Slot,
    /// Output whose memory the value has, if its size is known and it is not an alias.
    pub(crate) output: Option<u32>,
}

impl IterationPlan {
    /// Decides the movement for the iterations of a body.
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
        let (first, count) = (kind.first_carried(), kind.carried_count());
        let moving = kind.kept_outputs() + count;
        // Returns the output with the value of a place that a step of the body writes and no other
        // output shares.
        let only = |outputs: &[Source], source: Source| match source {
            Source::Held { place, root, slot }
                if root == slot && !schedule.inputs.contains(&Some(place)) =>
            {
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
            // If the value is stacked as well, it is copied before it moves.
            let then = match only(&schedule.outputs[..moving], source) {
                Some(output) => {
                    let stays = read.is_none_or(|read| type_of(read) == type_of(slot));
                    let size = bytes(slot).filter(|_| stays);
                    if let Some(size) = size {
                        iterations.buffer(size);
                        iterations.buffer(size);
                    }
                    NextValue::At { output, is_lent: size.is_some() }
                }
                None => match source {
                    Source::Held { place: at, .. } if Some(at) == place => NextValue::Same,
                    source => NextValue::Of(source),
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
