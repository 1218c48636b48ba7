//! Products of bytes by tiles, added up in integers of 32 bits.
//!
//! Both operands are read in place as the words of [`integer`](crate::gemm::integer): rows of A
//! whose words are adjacent, and panels of B. Nothing is copied or padded, so a row must have a
//! whole number of tiles.

use super::{Ahead, FETCHED, Operands, ROWS, Registers, STRIPS, Segment, Sums, Words, strips_of};
use crate::gemm::TileEnd;
use crate::gemm::pack::{Panels, SendPtr};
use sardonyx_simd::{Caches, Ended, Grid, Operation, Parts, Pool, Work, split_even};

/// Choice: rows from which on tiles are worth it. Fewer leave most of each tile empty.
pub(in crate::gemm) const LEAST_ROWS: usize = 16;
/// Choice: words of a tile below which too little of it is used.
const LEAST_DEPTH: usize = 8;

/// Returns the largest number of words of a tile that divides a row of `words`; `None` if tiles
/// would be mostly empty.
pub(in crate::gemm) fn depth_of(words: usize) -> Option<usize> {
    let divides = |depth: &usize| words > 0 && words.is_multiple_of(*depth);
    (LEAST_DEPTH..=ROWS).rev().find(divides)
}

/// A product C = A B with checked sizes.
pub(in crate::gemm) struct BytesByTiles {
    pub(in crate::gemm) caches: Caches,
    /// Numbers of rows and columns of C.
    pub(in crate::gemm) size: [usize; 2],
    /// Words of a row of A.
    pub(in crate::gemm) words: usize,
    /// Words of a tile, which divide those of a row.
    pub(in crate::gemm) depth: usize,
    /// Left operand, rows whose words are adjacent.
    pub(in crate::gemm) a: Panels,
    pub(in crate::gemm) b: Panels,
    pub(in crate::gemm) c: SendPtr<i32>,
}

impl BytesByTiles {
    /// Computes the product.
    ///
    /// # Safety
    ///
    /// Operands and output must be valid for the sizes, the output for writing by this call alone,
    /// and the machine must multiply tiles of bytes.
    pub(in crate::gemm) unsafe fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let [m, n] = self.size;
        let macs = m.saturating_mul(n).saturating_mul(4 * self.words);
        let threads = Work::new(Operation::TileMultiplyAdd, macs).threads(pool);
        let panels = n.div_ceil(self.b.width);
        let parts = self.cut(threads, panels);
        pool.run_on(threads, parts.rows * parts.cols, |unit| {
            let rows = split_even(m, parts.rows, unit / parts.cols);
            let panels = split_even(panels, parts.cols, unit % parts.cols);
            // SAFETY: the unit owns this rectangle of C; the caller has valid operands and tiles of
            // bytes.
            unsafe { self.run_unit(rows, panels) }
        })
    }

    /// Returns the numbers of parts into which rows and panels are cut.
    fn cut(&self, threads: usize, panels: usize) -> Grid {
        let [m, _] = self.size;
        // Rows of A of a unit stay in half of the second-level cache while panels pass by.
        let kept = (m * self.a.ws).div_ceil(self.caches.own_floats(1, 2));
        let rows = kept.clamp(1, m.div_ceil(ROWS * STRIPS));
        let wanted = Parts::count_for(threads);
        Grid { rows, cols: wanted.div_ceil(rows).clamp(1, panels) }
    }

    /// Multiplies some rows with some panels.
    ///
    /// # Safety
    ///
    /// The demands of [`BytesByTiles::run`] must hold.
    unsafe fn run_unit(&self, rows: std::ops::Range<usize>, panels: std::ops::Range<usize>) {
        let (w, pitch, n) = (self.b.width, self.a.ws, self.size[1]);
        let (each, count) = strips_of(rows.len());
        let segments = [Segment { skip: 0, tiles: self.words / self.depth }];
        let mut sums = Sums::new();
        // SAFETY: the caller has tiles of bytes, and this thread is in no other unit.
        let registers = unsafe { Registers::set_up_for(Words::Quads, each, self.depth) };
        for panel in panels.clone() {
            let (col, vectors) = (panel * w, (n - panel * w).div_ceil(w / 2).min(2));
            let b = [0, w / 2].map(|at| self.b.at(panel, 0).wrapping_add(at));
            for first in (0..count).step_by(STRIPS) {
                let strips = STRIPS.min(count - first);
                let starts = [first, first + strips - 1]
                    .map(|strip| rows.start + (strip * each).min(rows.len() - each));
                let a = starts.map(|row| self.a.ptr.wrapping_add(row * pitch));
                let operands = Operands { a, a_rs: pitch, b, b_rs: w };
                // The next panel comes from memory while this one is multiplied.
                let fetched = first / STRIPS * segments[0].tiles * FETCHED;
                let ahead = if fetched < self.b.stride && panel + 1 < panels.end {
                    Ahead::Next(self.b.at(panel + 1, 0).wrapping_add(fetched))
                } else {
                    Ahead::Nothing
                };
                // SAFETY: the strips have as many rows as the registers, and both operands all
                // words.
                unsafe {
                    registers.multiply(strips, vectors, &segments, &operands, &mut sums, ahead)
                };
                for (strip, row) in starts.into_iter().enumerate().take(strips) {
                    let end = TileEnd {
                        c: self.c.get().wrapping_add(row * n + col).cast(),
                        ldc: n,
                        n: w.min(n - col),
                        epilogue: std::ptr::null(),
                    };
                    // SAFETY: the unit owns these rows of C, whose elements have 32 bits.
                    unsafe { registers.finish(&sums, strip, &end) };
                }
            }
        }
    }
}
