//! Schedules: the steps of a run, with all decisions that depend on the sizes of the inputs.
//!
//! A plan holds places of values by slot. A schedule holds them by step, in the order of a run: the
//! ranges of the arena that a step reads and writes, and its operands among the held values. All
//! lists are flat, so that a run reads them front to back.

use std::ops::Range;

use crate::executable::{Body, Step};
use crate::plan::{Place, Plan};
use crate::program::Slot;

/// Steps of a run with their operands.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Scheduled>,
    sources: Vec<Source>,
    goals: Vec<Goal>,
    /// Ranges of the arena.
    ranges: Vec<Range<usize>>,
    dead: Vec<u32>,
    /// Number of held values, which are outside of the arena and the constants.
    pub(crate) held: usize,
    /// Held value of each input of the model; `None` without a reader.
    pub(crate) inputs: Vec<Option<u32>>,
    /// Sources of the model's outputs, then of the values kept for the commit program.
    pub(crate) outputs: Vec<Source>,
}

/// Step that runs.
#[derive(Debug)]
pub(crate) struct Scheduled {
    /// Index of the step in the body.
    pub(crate) step: usize,
    /// Input whose memory the first output reuses.
    pub(crate) over: Option<usize>,
    /// Whether one of its sources is [`Source::Taken`].
    pub(crate) takes: bool,
    sources: Range<u32>,
    goals: Range<u32>,
    reads: Range<u32>,
    writes: Range<u32>,
    dead: Range<u32>,
}

/// Place of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Omitted.
    Absent,
    /// The memory of the first output.
    InPlace,
    /// A part of the first output.
    There(Slot),
    /// The next range that the step reads.
    Arena(Slot),
    /// The constant of slot `root`, or its view `slot`.
    Constant { root: Slot, slot: Slot },
    /// The held value of slot `root`, or its view `slot`.
    Held { place: u32, root: Slot, slot: Slot },
    /// The held value of a slot, without later readers: the kernel may take it over.
    Taken { place: u32, slot: Slot },
}

impl Source {
    /// Returns the index of the held value that the operand is, or views, unless it is taken over.
    pub(crate) fn held_place(&self) -> Option<u32> {
        match self {
            Source::Held { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// Destination of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Without a reader, or already in its place.
    Absent,
    /// The next range that the step writes.
    Arena(Slot),
    /// A held value.
    Held(u32, Slot),
}

impl Schedule {
    /// Schedules the steps of `body` with the places of `plan`.
    pub(crate) fn new(body: &Body, plan: &Plan) -> Schedule {
        let mut held: Vec<Option<u32>> = vec![None; body.slots.len()];
        let mut schedule = Schedule::default();
        schedule.inputs = body
            .inputs
            .iter()
            .map(|slot| slot.map(|slot| schedule.hold(&mut held, slot)))
            .collect();
        for (index, step) in body.steps.iter().enumerate() {
            if plan.skip[index] {
                continue;
            }
            let over = plan.over[index];
            let first = schedule.ends();
            let mut takes = false;
            for (position, slot) in step.inputs.iter().enumerate() {
                let source = match *slot {
                    None => Source::Absent,
                    Some(_) if Some(position) == over => Source::InPlace,
                    Some(slot) if plan.lies_there(step, position) => Source::There(slot),
                    Some(slot) => match schedule.source(&mut held, plan, slot) {
                        Source::Held { place, root, .. }
                            if root == slot
                                && may_take(step, position, plan.last_use.slots(index)) =>
                        {
                            takes = true;
                            Source::Taken { place, slot }
                        }
                        source => source,
                    },
                };
                schedule.sources.push(source);
            }
            let reads = schedule.ranges.len() as u32;
            for slot in &step.outputs {
                let goal = match *slot {
                    Some(slot) if !plan.is_view(slot) => {
                        match &plan.places[plan.root(slot).index()] {
                            Place::Arena(range, _) => {
                                schedule.ranges.push(range.clone());
                                Goal::Arena(slot)
                            }
                            _ => Goal::Held(schedule.hold(&mut held, plan.root(slot)), slot),
                        }
                    }
                    _ => Goal::Absent,
                };
                schedule.goals.push(goal);
            }
            let dead = plan.last_use.slots(index).iter();
            schedule.dead.extend(dead.filter_map(|slot| held[slot.index()]));
            let last = schedule.ends();
            schedule.steps.push(Scheduled {
                step: index,
                over,
                takes,
                sources: first.sources..last.sources,
                goals: first.goals..last.goals,
                reads: first.ranges..reads,
                writes: reads..last.ranges,
                dead: first.dead..last.dead,
            });
        }
        schedule.outputs =
            body.outputs.iter().map(|slot| schedule.source(&mut held, plan, *slot)).collect();
        schedule
    }

    pub(crate) fn sources(&self, step: &Scheduled) -> &[Source] {
        part(&self.sources, &step.sources)
    }

    pub(crate) fn goals(&self, step: &Scheduled) -> &[Goal] {
        part(&self.goals, &step.goals)
    }

    /// Returns the ranges of the arena that a step reads, in the order of its inputs.
    pub(crate) fn reads(&self, step: &Scheduled) -> &[Range<usize>] {
        part(&self.ranges, &step.reads)
    }

    /// Returns the ranges of the arena that a step writes, in the order of its outputs.
    pub(crate) fn writes(&self, step: &Scheduled) -> &[Range<usize>] {
        part(&self.ranges, &step.writes)
    }

    /// Returns the held values whose last reader is a step.
    pub(crate) fn dead(&self, step: &Scheduled) -> &[u32] {
        part(&self.dead, &step.dead)
    }

    fn source(&mut self, held: &mut [Option<u32>], plan: &Plan, slot: Slot) -> Source {
        let root = plan.root(slot);
        match &plan.places[root.index()] {
            Place::Arena(range, _) => {
                self.ranges.push(range.clone());
                Source::Arena(slot)
            }
            Place::Constant => Source::Constant { root, slot },
            _ => Source::Held { place: self.hold(held, root), root, slot },
        }
    }

    fn hold(&mut self, held: &mut [Option<u32>], slot: Slot) -> u32 {
        *held[slot.index()].get_or_insert_with(|| {
            self.held += 1;
            self.held as u32 - 1
        })
    }

    fn ends(&self) -> Ends {
        // Slots have 32-bit numbers, and no list is longer than all inputs and outputs of a model
        // together.
        Ends {
            sources: self.sources.len() as u32,
            goals: self.goals.len() as u32,
            ranges: self.ranges.len() as u32,
            dead: self.dead.len() as u32,
        }
    }
}

/// Whether a step may take over an operand: its kernel accepts that, reads it once, and is its last
/// reader.
fn may_take(step: &Step, position: usize, dying: &[Slot]) -> bool {
    let slot = step.inputs[position];
    step.rules.takes.contains(position)
        && slot.is_some_and(|slot| dying.contains(&slot))
        && step.inputs.iter().filter(|other| **other == slot).count() == 1
}

/// Lengths of the lists.
struct Ends {
    sources: u32,
    goals: u32,
    ranges: u32,
    dead: u32,
}

fn part<'a, T>(list: &'a [T], range: &Range<u32>) -> &'a [T] {
    &list[range.start as usize..range.end as usize]
}
