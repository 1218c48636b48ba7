//! The steps of a run, with everything decided that the sizes of the inputs decide.
//!
//! A plan says where values lie, by slot. A schedule says the same by step, in the order in which a
//! run needs it: which ranges of the arena a step reads and writes, and which values it finds among
//! those that the run holds. All lists are flat, so that a run walks them front to back.

use std::ops::Range;

use crate::executable::{Body, Step};
use crate::plan::{Place, Plan};
use crate::program::Slot;

/// What a run does.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pub(crate) steps: Vec<Scheduled>,
    sources: Vec<Source>,
    goals: Vec<Goal>,
    /// Of the arena.
    ranges: Vec<Range<usize>>,
    dead: Vec<u32>,
    /// How many values are held outside of the arena and the constants.
    pub(crate) held: usize,
    /// By input of the model: among the held values; `None` if nobody reads it.
    pub(crate) inputs: Vec<Option<u32>>,
    /// Sources of the model's outputs, then of the values that are kept until the end.
    pub(crate) outputs: Vec<Source>,
}

/// A step that runs.
#[derive(Debug)]
pub(crate) struct Scheduled {
    /// Its number in the body.
    pub(crate) step: usize,
    /// The input whose memory the first output takes over.
    pub(crate) over: Option<usize>,
    /// Whether one of its sources is [`Source::Taken`].
    pub(crate) takes: bool,
    sources: Range<u32>,
    goals: Range<u32>,
    reads: Range<u32>,
    writes: Range<u32>,
    dead: Range<u32>,
}

/// Where an input of a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Left out.
    Absent,
    /// Where the first output will be.
    InPlace,
    /// Where the first output will have it as a part.
    There(Slot),
    /// The next of the ranges that the step reads.
    Arena(Slot),
    /// The constant of a slot, or what another slot is of it.
    Constant { root: Slot, slot: Slot },
    /// The held value of a slot, or what another slot is of it.
    Held { place: u32, root: Slot, slot: Slot },
    /// The held value of a slot, which nothing reads later: the kernel may have it.
    Taken { place: u32, slot: Slot },
}

impl Source {
    /// Number of the held value that it is, or is a part of, and stays.
    pub(crate) fn held_place(&self) -> Option<u32> {
        match self {
            Source::Held { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// Where an output of a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Nobody wants it, or it lies in the input already.
    Absent,
    /// Into the next of the ranges that the step writes.
    Arena(Slot),
    /// Among the held values.
    Held(u32, Slot),
}

impl Schedule {
    /// The steps of `body` in the places of `plan`.
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
                                && may_take(step, position, plan.last_use.of(index)) =>
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
                            _ => Goal::Held(schedule.hold(&mut held, slot), slot),
                        }
                    }
                    _ => Goal::Absent,
                };
                schedule.goals.push(goal);
            }
            let dead = plan.last_use.of(index).iter();
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

    /// The ranges of the arena that a step reads, by input that lies there.
    pub(crate) fn reads(&self, step: &Scheduled) -> &[Range<usize>] {
        part(&self.ranges, &step.reads)
    }

    /// The ranges of the arena that a step writes, by output that lies there.
    pub(crate) fn writes(&self, step: &Scheduled) -> &[Range<usize>] {
        part(&self.ranges, &step.writes)
    }

    /// The held values that nobody reads after a step.
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
        // Slots have numbers of 32 bits, and no list is longer than all inputs and outputs of a
        // model together.
        Ends {
            sources: self.sources.len() as u32,
            goals: self.goals.len() as u32,
            ranges: self.ranges.len() as u32,
            dead: self.dead.len() as u32,
        }
    }
}

/// Whether a step may have the value that it reads at a position: it wants it, reads it once, and
/// is the last that does.
fn may_take(step: &Step, position: usize, dying: &[Slot]) -> bool {
    let slot = step.inputs[position];
    step.rules.takes.contains(position)
        && slot.is_some_and(|slot| dying.contains(&slot))
        && step.inputs.iter().filter(|other| **other == slot).count() == 1
}

/// How long the lists are.
struct Ends {
    sources: u32,
    goals: u32,
    ranges: u32,
    dead: u32,
}

fn part<'a, T>(list: &'a [T], range: &Range<u32>) -> &'a [T] {
    &list[range.start as usize..range.end as usize]
}
