//! Products of many rows with a constant in 16 bits, by tiles.
//!
//! All of A is rounded first, row by row. Then each unit of work has some rows, which stay in the
//! second-level cache, and some panels of B: it converts a panel to pairs, and all its rows meet
//! it.

use super::{Ahead, FETCHED, Operands, Registers, STRIPS, Segment, Sums, depth_of, strips_of};
use crate::gemm::bf16;
use crate::gemm::bf16::make_pairs;
use crate::gemm::pack::{PackedB, SendPtr, panel_width};
use crate::gemm::{Operand, PackSource, TileEnd, TileEpilogue};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Caches, Ended, Exec, Grid, Isa, Operation, Parts, Pool, Work, split_even};

/// Work: rows of a unit that are worth converting all panels of B to pairs, if C has as many.
const LEAST_ROWS: usize = 192;
/// Work: rows that are rounded at a time.
const ROUNDED_ROWS: usize = 32;

/// A product C = epilogue(A B) with checked sizes.
pub(in crate::gemm) struct ProductByTiles<'a> {
    pub(in crate::gemm) isa: Isa,
    pub(in crate::gemm) caches: Caches,
    /// Number of rows of C.
    pub(in crate::gemm) m: usize,
    /// Number of steps, at least one.
    pub(in crate::gemm) k: usize,
    /// Left operand, a matrix or a source.
    pub(in crate::gemm) a: Operand<'a>,
    /// Right operand in 16 bits.
    pub(in crate::gemm) b: &'a PackedB,
    pub(in crate::gemm) c: SendPtr,
    pub(in crate::gemm) ldc: usize,
    pub(in crate::gemm) epilogue: TileEpilogue,
}

/// Returns the stride between rounded rows of `k` steps, in words.
fn pitch(k: usize) -> usize {
    let (_, words) = depth_of(k.div_ceil(2));
    // Rows some KB apart share a few sets of a cache.
    if words.is_multiple_of(256) { words + 16 } else { words }
}

/// Returns the floats of scratch memory that grow with the sizes of a product.
pub(in crate::gemm) fn scratch_floats(exec: &Exec<'_>, m: usize, k: usize) -> usize {
    let panel = k.saturating_add(32).saturating_mul(panel_width(exec.isa)) / 2;
    m.saturating_mul(pitch(k)).saturating_add(panel.saturating_mul(exec.pool.threads()))
}

impl ProductByTiles<'_> {
    /// Computes the product.
    ///
    /// # Safety
    ///
    /// Operands, output and epilogue must be valid for the sizes, the output for writing by this
    /// call alone, and the machine must multiply tiles.
    pub(in crate::gemm) unsafe fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let (m, k, n) = (self.m, self.k, self.b.cols());
        if m == 0 || n == 0 {
            return Ok(());
        }
        let macs = m.saturating_mul(k).saturating_mul(n);
        let threads = Work::new(Operation::TileMultiplyAdd, macs).threads(pool);
        with_scratch(m * pitch(k), |rows| {
            self.round(&pool.at_most(threads), rows)?;
            let panels = n.div_ceil(panel_width(self.isa));
            let parts = self.cut(threads, panels);
            pool.run_on(threads, parts.rows * parts.cols, |unit| {
                let part = split_even(m, parts.rows, unit / parts.cols);
                let cols = split_even(panels, parts.cols, unit % parts.cols);
                // SAFETY: the unit owns this rectangle of C; the caller has valid operands and
                // tiles.
                unsafe { self.run_unit(rows, part, cols) }
            })
        })
    }

    /// Returns the numbers of parts into which rows and panels are cut.
    fn cut(&self, threads: usize, panels: usize) -> Grid {
        let (m, pitch) = (self.m, pitch(self.k));
        let wanted = Parts::count_for(threads);
        // Rows of A of a unit stay in half of the second-level cache, one word per two numbers.
        let most_words = self.caches.own_floats(1, 2);
        // Rows of C are written whole, as far as the cache holds them, but each part of the rows
        // converts B to pairs again.
        let most = (m / LEAST_ROWS).max(1);
        let kept = m.saturating_mul(pitch + self.b.cols()).div_ceil(most_words);
        let least = (m * pitch).div_ceil(most_words).min(m);
        let rows = kept.max(wanted).min(most).max(least);
        let cols = wanted.div_ceil(rows).min(panels);
        if threads == 1 {
            return Grid { rows, cols };
        }
        // Parts of some rows come one after the other.
        let pieces = Grid { rows: panels, cols: m };
        let fewer = [rows, rows - rows / 8, rows - rows / 4, rows - rows / 2];
        let cut = pieces.choose(threads, fewer.map(|rows| rows.max(least).max(1)), |rows| {
            pieces.choose(threads, [4, 3, 5, 6, 2], |each| Grid {
                rows: (threads * each).div_ceil(rows).min(panels),
                cols: rows,
            })
        });
        Grid { rows: cut.cols, cols: cut.rows }
    }

    /// Rounds all rows of A.
    fn round(&self, pool: &Pool, to: &mut [f32]) -> Result<(), Ended> {
        let (k, pitch) = (self.k, pitch(self.k));
        let (_, words) = depth_of(k.div_ceil(2));
        let to = SendPtr(to.as_mut_ptr());
        let parts = self.m.div_ceil(ROUNDED_ROWS);
        pool.run(parts, |part| {
            let first = part * ROUNDED_ROWS;
            let count = ROUNDED_ROWS.min(self.m - first);
            let to = to.get().wrapping_add(first * pitch);
            match self.a {
                Operand::Matrix(a) if a.row_stride() == 1 => {
                    let rows = bf16::Rows {
                        from: a.as_ptr().wrapping_add(first * a.col_stride()),
                        from_step: a.col_stride(),
                        count,
                        len: k,
                        to,
                        to_step: pitch,
                        words,
                    };
                    // SAFETY: the part owns these rows; the machine rounds.
                    unsafe { rows.round() };
                }
                Operand::Matrix(a) => self.round_packed(a, first, count, to),
                Operand::Source(a) => self.round_packed(a, first, count, to),
                Operand::Panels(_) => unreachable!("rows in panels are not rounded"),
            }
        })
    }

    /// Rounds some rows of a matrix whose rows are not adjacent in memory: packs and transposes
    /// them first.
    fn round_packed(&self, a: &dyn PackSource, first: usize, count: usize, to: *mut f32) {
        /// Cache: steps of a panel on the stack: 32 KB with AVX-512.
        const STEPS: usize = 256;
        let (k, pitch, w) = (self.k, pitch(self.k), panel_width(self.isa));
        let (_, words) = depth_of(k.div_ceil(2));
        with_scratch(STEPS * w, |packed| {
            for start in (0..k).step_by(STEPS) {
                let end = k.min(start + STEPS);
                let packed = &mut packed[..(end - start) * w];
                a.pack(self.isa, start..end, first, packed);
                let mut transposed = [0.0f32; STEPS];
                for row in 0..count {
                    for (to, from) in transposed.iter_mut().zip(packed.chunks_exact(w)) {
                        *to = from[row];
                    }
                    let whole = if end == k { words - start / 2 } else { (end - start) / 2 };
                    let rows = bf16::Rows {
                        from: transposed.as_ptr(),
                        from_step: 0,
                        count: 1,
                        len: end - start,
                        to: to.wrapping_add(row * pitch + start / 2),
                        to_step: 0,
                        words: whole,
                    };
                    // SAFETY: the caller owns this part of the row; the machine rounds.
                    unsafe { rows.round() };
                }
            }
        });
    }

    /// Multiplies some rows with some panels.
    ///
    /// # Safety
    ///
    /// The demands of [`ProductByTiles::run`] must hold.
    unsafe fn run_unit(
        &self,
        rounded: &[f32],
        rows: std::ops::Range<usize>,
        panels: std::ops::Range<usize>,
    ) {
        let (k, w, pitch) = (self.k, panel_width(self.isa), pitch(self.k));
        let (depth, words) = depth_of(k.div_ceil(2));
        let (each, count) = strips_of(rows.len());
        let segments = [Segment { skip: 0, tiles: words / depth }];
        let view = self.b.panels.view();
        let mut sums = Sums::new();
        with_scratch(words * w, |pairs| {
            pairs[k.div_ceil(2) * w..].fill(0.0);
            // SAFETY: the caller has tiles, and this thread is in no other unit.
            let registers = unsafe { Registers::set_up(each, depth) };
            for panel in panels.clone() {
                let (col, vectors) =
                    (panel * w, (self.b.cols() - panel * w).div_ceil(w / 2).min(2));
                // SAFETY: the panel has `k` steps, and the scratch memory has room for their pairs.
                unsafe { make_pairs(self.b.storage(), view.at(panel, 0), k, pairs.as_mut_ptr()) };
                let b = [0, w / 2].map(|at| pairs[at..].as_ptr());
                for first in (0..count).step_by(STRIPS) {
                    let strips = STRIPS.min(count - first);
                    let starts = [first, first + strips - 1]
                        .map(|strip| rows.start + (strip * each).min(rows.len() - each));
                    let a = starts.map(|row| rounded[row * pitch..].as_ptr());
                    let operands = Operands { a, a_rs: pitch, b, b_rs: w };
                    // The next panel comes from memory while this one is multiplied.
                    let fetched = first / STRIPS * segments[0].tiles * FETCHED;
                    let ahead = if fetched < view.stride && panel + 1 < panels.end {
                        Ahead::Next(view.at(panel + 1, 0).wrapping_add(fetched))
                    } else {
                        Ahead::Nothing
                    };
                    // SAFETY: the strips have as many rounded rows as the registers, and the pairs
                    // all words.
                    unsafe {
                        registers.multiply(strips, vectors, &segments, &operands, &mut sums, ahead);
                    }
                    for (strip, row) in starts.into_iter().enumerate().take(strips) {
                        let epilogue;
                        let end = TileEnd {
                            c: self.c.get().wrapping_add(row * self.ldc + col),
                            ldc: self.ldc,
                            n: w.min(self.b.cols() - col),
                            epilogue: if self.epilogue.is_plain() {
                                std::ptr::null()
                            } else {
                                epilogue = self.epilogue.at(row, col);
                                &raw const epilogue
                            },
                        };
                        // SAFETY: the unit owns these rows of C.
                        unsafe { registers.finish(&sums, strip, &end) };
                    }
                }
            }
        });
    }
}
