//! Steps of a group of sequences: products with the weights of the state, then functions of gates,
//! row by row.

use std::ops::Range;

use super::cell::Row;
use super::{
    Candidate, Cell, Layer, RecurrentElement, Sequences, SharedOutputs, SharedPass, Strides,
};
use sardonyx_gemm::gemm::{MatRef, Sweep};
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::{Ended, Exec, Level, Pool};
use smallvec::SmallVec;

/// Neighbouring sequences of a pass.
pub(super) struct Group<'a, 'w, T: RecurrentElement> {
    /// Threads that divide each step.
    pub(super) exec: &'a Exec<'a>,
    /// All sequences of the pass.
    pub(super) sequences: &'a Sequences<'a>,
    /// Range of sequences of the group.
    pub(super) own: Range<usize>,
    pub(super) pass: &'a SharedPass<'a, 'w, T>,
    /// Strides in rows of the pass's input.
    pub(super) rows: Strides,
    /// Number of steps whose input is multiplied at once. If fewer than all, the group does so
    /// itself, and has all sequences.
    pub(super) at_once: usize,
    pub(super) outputs: Option<&'a SharedOutputs<'a, T>>,
    /// Index of the pass.
    pub(super) index: usize,
}

/// Memory of a group.
pub(super) struct Work<'a, T> {
    /// State of each sequence.
    pub(super) h: &'a mut [T],
    /// Cells in the layout of the states; empty without memory.
    pub(super) c: &'a mut [T],
    /// Scratch memory of [`Cell::scratch_len`] elements of any value.
    pub(super) scratch: &'a mut [T],
}

impl<'a, T: RecurrentElement> Group<'a, '_, T> {
    /// Computes all steps.
    pub(super) fn run(&self, work: Work<'_, T>) -> Result<(), Ended> {
        let &Sequences { steps, hidden, .. } = self.sequences;
        let Work { h, c, scratch } = work;
        for (index, sequence) in self.own.clone().enumerate() {
            if self.sequences.length(sequence) == 0 {
                h[index * hidden..][..hidden].fill(T::ZERO);
                c.iter_mut().skip(index * hidden).take(hidden).for_each(|c| *c = T::ZERO);
            }
        }
        let Layer { cell, clip } = self.pass.layer;
        let (batch, level) = (self.own.len(), Level::new(self.exec.isa));
        let left = MatRef::row_major(h, batch, hidden);
        let rights: SmallVec<[T::Repeated<'_>; 2]> = cell
            .products()
            .into_iter()
            .flatten()
            .map(|(right, _)| T::repeat(self.exec, left, right))
            .collect();
        let (gates, resets) = scratch.split_at_mut(batch * cell.gates() * hidden);
        let longest = self.own.clone().map(|sequence| self.sequences.length(sequence)).max();
        let mut there = if self.at_once == steps { 0..steps } else { 0..0 };
        for turn in 0..steps {
            let step = if self.pass.backwards { steps - 1 - turn } else { turn };
            if longest.is_none_or(|longest| longest <= step) {
                Pool::check_ended()?;
                for sequence in self.own.clone() {
                    // SAFETY: no other group has these sequences, and the slice ends before the
                    // next begins.
                    if let Some(y) = unsafe { self.output(step, sequence) } {
                        y.fill(T::ZERO);
                    }
                }
                continue;
            }
            if !there.contains(&step) {
                there = self.choose_steps(step);
                self.multiply_input(&there)?;
            }
            let sweep = if turn % 2 == 0 { Sweep::FromFirst } else { Sweep::FromLast };
            let clip = clip.unwrap_or(T::HIGHEST);
            let first = there.start;
            GroupStep { group: self, level, rights: &rights, clip, step, first, sweep }
                .run(h, c, gates, resets)?;
        }
        Ok(())
    }

    /// Returns the steps from `step` on, in the direction of the pass, whose input is multiplied at
    /// once.
    fn choose_steps(&self, step: usize) -> Range<usize> {
        if self.pass.backwards {
            (step + 1).saturating_sub(self.at_once)..step + 1
        } else {
            step..self.sequences.steps.min(step + self.at_once)
        }
    }

    /// Multiplies the input of some steps by its weights.
    fn multiply_input(&self, steps: &Range<usize>) -> Result<(), Ended> {
        let (batch, hidden) = (self.sequences.batch, self.sequences.hidden);
        let width = self.pass.layer.cell.gates() * hidden;
        let x = self.pass.x.slice_rows(steps.start * batch..steps.end * batch);
        // SAFETY: the group has all sequences, so no other group accesses the product.
        let product = unsafe { self.pass.product.part(0, x.rows() * width) };
        T::product(self.exec, x, self.pass.weights, self.pass.bias, product)
    }

    /// Returns the row of the input's product for one step of a sequence, or `None` if the sequence
    /// rests. The product begins with step `first`.
    fn input(&self, first: usize, step: usize, sequence: usize) -> Option<&[T]> {
        let width = self.pass.layer.cell.gates() * self.sequences.hidden;
        let start = ((step - first) * self.rows[0] + sequence * self.rows[1]) * width;
        let moves = self.sequences.length(sequence) > step;
        // SAFETY: the product is written between steps only.
        moves.then(|| unsafe { self.pass.product.read(start, width) })
    }

    /// Returns the row of the outputs for one step of a sequence.
    ///
    /// # Safety
    ///
    /// No other slice of this row may live.
    unsafe fn output(&self, step: usize, sequence: usize) -> Option<&'a mut [T]> {
        let SharedOutputs { y, strides, pass_stride } = self.outputs?;
        let start = self.index * pass_stride + step * strides[0] + sequence * strides[1];
        // SAFETY: `recur` checked that rows do not overlap; the caller promises that no other slice
        // of this row lives.
        Some(unsafe { y.part(start, self.sequences.hidden) })
    }
}

/// One step of a group.
struct GroupStep<'a, 'w, T: RecurrentElement> {
    group: &'a Group<'a, 'w, T>,
    level: Level,
    /// Weights of the state, for each product.
    rights: &'a [T::Repeated<'w>],
    /// Bound of the arguments of functions; the highest number for none.
    clip: T,
    step: usize,
    /// First step of the input's product.
    first: usize,
    /// Order in which weights are read.
    sweep: Sweep,
}

impl<T: RecurrentElement> GroupStep<'_, '_, T> {
    /// Computes the step: new states and cells from old ones.
    fn run(
        &self,
        h: &mut [T],
        c: &mut [T],
        gates: &mut [T],
        resets: &mut [T],
    ) -> Result<(), Ended> {
        let &GroupStep { group, rights, clip, sweep, .. } = self;
        let (batch, hidden) = (group.own.len(), group.sequences.hidden);
        let cell = group.pass.layer.cell;
        let width = cell.gates() * hidden;
        let state = MatRef::row_major(h, batch, hidden);
        T::multiply(group.exec, &rights[0], state, gates, width, sweep)?;
        match cell {
            Cell::Plain { function, .. } => {
                self.end_rows(gates, h, &mut [], |mut row| row.run_plain(function, clip))
            }
            Cell::Memory { functions, peepholes, coupled, .. } => {
                self.end_rows(gates, h, c, |mut row| {
                    row.run_memory(functions, peepholes, coupled, clip)
                })
            }
            Cell::Gated { functions: [f, g], candidate } => match candidate {
                Candidate::ResetFirst { .. } => {
                    let resets = &mut resets[..batch * hidden];
                    self.each_row(gates, h, resets, |_, row| {
                        if let Some(mut row) = row {
                            row.compute_gates(f, clip);
                            row.reset();
                        }
                    })?;
                    let state = MatRef::row_major(resets, batch, hidden);
                    let own = &mut gates[2 * hidden..];
                    T::multiply(group.exec, &rights[1], state, own, width, sweep)?;
                    self.end_rows(gates, h, &mut [], |mut row| row.finish_candidate(g, clip))
                }
                Candidate::ResetLast { bias, .. } => self
                    .end_rows(gates, h, &mut [], |mut row| row.run_reset_last([f, g], bias, clip)),
            },
        }
    }

    /// Calls `body`, which computes the new state, for each sequence that does not rest, and copies
    /// the states to the outputs.
    fn end_rows(
        &self,
        gates: &mut [T],
        h: &mut [T],
        other: &mut [T],
        body: impl Fn(Row<'_, T>) + Sync,
    ) -> Result<(), Ended> {
        self.each_row(gates, h, other, |sequence, row| {
            // SAFETY: each row is visited by one thread, and no other slice of it lives.
            let y = unsafe { self.group.output(self.step, sequence) };
            match row {
                Some(Row { h, level, hidden, x, gates, other }) => {
                    body(Row { h: &mut *h, level, hidden, x, gates, other });
                    if let Some(y) = y {
                        y.copy_from_slice(h);
                    }
                }
                None => y.into_iter().for_each(|y| y.fill(T::ZERO)),
            }
        })
    }

    /// Calls `body` with the index of each sequence and its row, or `None` if the sequence rests.
    /// `other` has a row for each sequence or is empty.
    fn each_row(
        &self,
        gates: &mut [T],
        h: &mut [T],
        other: &mut [T],
        body: impl Fn(usize, Option<Row<'_, T>>) + Sync,
    ) -> Result<(), Ended> {
        /// Work: approximate cost of a function of a gate, in operations.
        const WORK: usize = 8;
        let &GroupStep { group, level, step, first, .. } = self;
        let (batch, hidden) = (group.own.len(), group.sequences.hidden);
        let width = group.pass.layer.cell.gates() * hidden;
        let other_width = other.len() / batch;
        let (gates, h, other) = (Shared::new(gates), Shared::new(h), Shared::new(other));
        ranges(group.exec.pool, batch, width * WORK, |rows| {
            for index in rows {
                let sequence = group.own.start + index;
                let row = group.input(first, step, sequence).map(|x| {
                    // SAFETY: ranges are disjoint, so each row is borrowed by one thread.
                    let (gates, h, other) = unsafe {
                        (
                            gates.part(index * width, width),
                            h.part(index * hidden, hidden),
                            other.part(index * other_width, other_width),
                        )
                    };
                    Row { level, hidden, x, gates, h, other }
                });
                body(sequence, row);
            }
        })
    }
}
