//! The arena: memory for the values of a run, with a list of free ranges.

use std::ops::Range;

use sardonyx_tensor::ALIGNMENT;

use super::{Place, Planner};
use crate::layout::Layout;
use crate::program::Slot;

/// Input whose memory an output reuses.
struct Reused {
    /// Position among the inputs of the step.
    position: usize,
    /// Slot that owns the memory.
    root: Slot,
    range: Range<usize>,
}

impl Planner<'_> {
    /// Places the outputs of all steps in the arena, from their step to their last reader.
    pub(super) fn place_in_arena(&mut self, last_readers: &[Option<usize>]) {
        let mut free = FreeList::default();
        // Memory that was reused is freed with its new owner.
        let mut is_taken = vec![false; self.body.slots.len()];
        for index in 0..self.body.steps.len() {
            if !self.plan.skip[index]
                && let Some(root) = self.place_outputs(index, last_readers, &mut free)
            {
                is_taken[root.index()] = true;
            }
            for slot in self.plan.last_use.slots(index) {
                if let Place::Arena(range, _) = &self.plan.places[slot.index()]
                    && !is_taken[slot.index()]
                {
                    free.give(range.clone());
                }
            }
        }
    }

    /// Places the outputs of a step, and returns the slot whose memory the first output reuses.
    fn place_outputs(
        &mut self,
        index: usize,
        last_readers: &[Option<usize>],
        free: &mut FreeList,
    ) -> Option<Slot> {
        let mut taken = None;
        for (position, output) in self.body.steps[index].outputs.iter().enumerate() {
            let Some(output) = *output else { continue };
            if self.owns[output.index()] || self.plan.is_view(output) {
                continue;
            }
            // A part is written into its root, whose place is decided with its first part.
            let root = self.plan.root(output);
            if !matches!(self.plan.places[root.index()], Place::Own) {
                continue;
            }
            let layout = self.plan.own_layout(self.body, root);
            let Some(bytes) = self.plan.count_own_bytes(self.body, root) else {
                continue;
            };
            let reused = if position == 0 && root == output {
                self.find_reused(last_readers, index, output, layout.as_ref())
            } else {
                None
            };
            let range = match reused {
                Some(reused) => {
                    self.plan.over[index] = Some(reused.position);
                    taken = Some(reused.root);
                    reused.range
                }
                None => free.take(bytes),
            };
            self.plan.arena_bytes = self.plan.arena_bytes.max(range.end);
            self.plan.places[root.index()] = Place::Arena(range, layout);
        }
        taken
    }

    /// Returns the input of a step whose memory the first output may reuse: this step is its last
    /// reader, reads it once, and types and layouts are equal.
    fn find_reused(
        &self,
        last_readers: &[Option<usize>],
        index: usize,
        output: Slot,
        layout: Option<&Layout>,
    ) -> Option<Reused> {
        let (plan, step) = (&self.plan, &self.body.steps[index]);
        step.rules.in_place.iter().find_map(|position| {
            let input = step.inputs.get(*position).copied().flatten()?;
            let root = plan.root(input);
            let Place::Arena(range, own) = &plan.places[root.index()] else {
                return None;
            };
            let reads = step.inputs.iter().flatten().filter(|slot| plan.root(**slot) == root);
            // A part of another value must not be overwritten.
            let is_own = match &plan.places[input.index()] {
                Place::View(_, part) => part.is_none() && own.is_none(),
                _ => root == input,
            };
            let fits = is_own
                && own.as_ref() == layout
                && plan.types[input.index()] == plan.types[output.index()];
            (fits && reads.count() == 1 && last_readers[root.index()] == Some(index))
                .then(|| Reused { position: *position, root, range: range.clone() })
        })
    }
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

    /// Returns a range to the list, joined with adjacent ones.
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
        // Forgotten ranges stay in use; the ranges between them are found again.
        assert_eq!(free.ranges.len(), MAX_FREE);
        assert_eq!(free.take(64 * 2 * MAX_FREE), 0..64 * 2 * MAX_FREE);
    }
}
