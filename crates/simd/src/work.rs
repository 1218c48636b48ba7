//! Work of a parallel region, and how it is cut for the threads of a pool.
//!
//! Most limits of parallel loops are here; attention, recurrent layers and a few other kernels have
//! units of work of their own. Each thread that takes part costs time on the caller, so a short
//! region gets fewer threads than the pool has, and a part takes at least as long as handing it
//! out. Parts never decide bits: each output element is computed by one part.

use crate::{Ended, Outcome, Pool};

/// Kind of operation that a region repeats, which sets the time of one operation on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Multiply-add of a product or a convolution with vectors.
    MultiplyAdd,
    /// Multiply-add of a product with matrix tiles.
    TileMultiplyAdd,
    /// Multiply-add of a depthwise convolution, or of a product in any number type.
    ShortMultiplyAdd,
    /// Element that is read or written.
    Element,
    /// Step of a row through a decision tree.
    TreeStep,
}

impl Operation {
    /// Returns the number of operations that one thread does in a microsecond.
    const fn per_microsecond(self) -> usize {
        match self {
            Operation::MultiplyAdd => 40_000,
            Operation::TileMultiplyAdd => 700_000,
            Operation::ShortMultiplyAdd => 30_000,
            Operation::Element => 8_000,
            Operation::TreeStep => 2_000,
        }
    }
}

/// Work: bytes that one thread moves between caches in a microsecond.
const BYTES_PER_MICROSECOND: usize = 100_000;
/// Work: nanoseconds that a region with one worker takes beside half of its work: two threads are
/// faster than one from 3 us on (products of 64 x 64 x 64, 64 channels of 7 x 7 pixels).
const REGION: usize = 1_000;
/// Work: nanoseconds that each further thread adds.
const THREAD: usize = 60;
/// Work: shortest part in nanoseconds.
const LEAST_PART: usize = 400;
/// Work: shortest part in nanoseconds of a serial region, which checks for cancellation before each
/// part.
const LEAST_PART_ALONE: usize = 2_000;
// Work shorter than a region is one part: `Work::is_short`.
const _: () = assert!(REGION < LEAST_PART_ALONE);
/// Work: parts per thread, so that a thread that starts late leaves parts to others.
const PARTS_PER_THREAD: usize = 4;

/// Work of a region.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub operation: Operation,
    pub operations: usize,
    /// Bytes of weights, inputs and outputs.
    pub bytes: usize,
    /// Number of pieces, which cuts never divide.
    pub pieces: usize,
}

/// Number of threads that a region is worth, and number of parts that they take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub threads: usize,
    pub count: usize,
}

impl Work {
    /// Returns the work of `operations`, each of which is a piece.
    pub fn new(operation: Operation, operations: usize) -> Work {
        Work { operation, operations, bytes: 0, pieces: operations }
    }

    /// Sets the number of pieces, which cuts never divide.
    #[must_use]
    pub fn in_pieces(self, pieces: usize) -> Work {
        Work { pieces, ..self }
    }

    /// Sets the bytes of weights, inputs and outputs.
    #[must_use]
    pub fn with_bytes(self, bytes: usize) -> Work {
        Work { bytes, ..self }
    }

    /// Estimates the nanoseconds that one thread takes.
    fn nanoseconds(&self) -> usize {
        let computing = self.operations.saturating_mul(1000) / self.operation.per_microsecond();
        computing.max(self.bytes.saturating_mul(1000) / BYTES_PER_MICROSECOND)
    }

    /// Whether the work takes less than [`REGION`], so that it is one part of one thread.
    /// Multiplies where [`Work::nanoseconds`] divides: a division is slow beside a short step.
    fn is_short(&self) -> bool {
        self.operations < REGION / 1000 * self.operation.per_microsecond()
            && self.bytes < REGION / 1000 * BYTES_PER_MICROSECOND
    }

    /// Returns the number of threads of `pool` that the work is worth; 1 if it should stay serial.
    pub fn threads(&self, pool: &Pool) -> usize {
        let (all, time) = (pool.threads().min(self.pieces), self.nanoseconds());
        if all <= 1 {
            return 1;
        }
        // `best` minimizes `time / threads + THREAD * threads`.
        let best = if time / THREAD >= all * all { all } else { (time / THREAD).isqrt().max(2) };
        let cut = time / best + REGION + THREAD * best;
        if cut + cut / 8 < time { best } else { 1 }
    }

    /// Cuts the pieces for the threads of `pool`. A serial region gets parts, too, so that it can
    /// end early.
    pub fn cut(&self, pool: &Pool) -> Parts {
        if self.is_short() {
            return Parts { threads: 1, count: 1 };
        }
        let threads = self.threads(pool);
        if threads == 1 {
            let most = self.nanoseconds() / LEAST_PART_ALONE;
            return Parts { threads, count: most.min(PARTS_PER_THREAD).min(self.pieces).max(1) };
        }
        let most = (self.nanoseconds() / LEAST_PART).clamp(threads, self.pieces);
        let counts = [4, 3, 2, 5, 6, 7, 8].map(|each| (threads * each).min(most));
        let count = Grid { rows: self.pieces, cols: 1 }
            .choose(threads, counts, |count| Grid { rows: count, cols: 1 });
        Parts { threads, count: count.rows }
    }
}

impl Parts {
    /// Returns the number of parts for `threads` threads that evens out threads that start late.
    pub fn count_for(threads: usize) -> usize {
        if threads == 1 { 1 } else { threads * PARTS_PER_THREAD }
    }

    /// Runs `body` for each part on threads of `pool`.
    ///
    /// # Errors
    ///
    /// The work ended before all parts were done ([`Pool::run`]).
    #[inline]
    pub fn run<R: Outcome>(
        self,
        pool: &Pool,
        body: impl Fn(usize) -> R + Sync,
    ) -> Result<(), Ended> {
        pool.run_on(self.threads, self.count, body)
    }
}

/// Rows and columns, of pieces or of the parts that they are cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub rows: usize,
    pub cols: usize,
}

impl Grid {
    /// Makes a candidate from each of `counts` and returns the first whose slowest thread takes at
    /// most 2 % longer than in the best one. Candidates have at least one row and one column.
    pub fn choose<const N: usize>(
        self,
        threads: usize,
        counts: [usize; N],
        make: impl Fn(usize) -> Grid,
    ) -> Grid {
        let candidates = counts.map(|count| {
            let parts = make(count);
            (self.slowest(parts, threads), parts)
        });
        let best = candidates.iter().map(|(time, _)| *time).min().unwrap_or(0);
        let good = candidates.iter().find(|(time, _)| *time <= best + best / 50);
        good.map_or(self, |(_, parts)| *parts)
    }

    /// Estimates the time of the slowest thread, in sixteenths of a piece, if part number `i` has
    /// row `i % rows`.
    ///
    /// Each whole round takes as long as its largest part. Where sizes differ, a thread is late by
    /// at most one part (Graham, "Bounds on multiprocessing timing anomalies", 1969). Shares of
    /// whole rows or columns are even although their parts are not
    /// ([`split_even`](crate::split_even)).
    fn slowest(self, parts: Grid, threads: usize) -> usize {
        let times = usize::saturating_mul;
        let largest = times(self.rows.div_ceil(parts.rows), self.cols.div_ceil(parts.cols));
        let count = times(parts.rows, parts.cols);
        let even = times(times(self.rows, self.cols), 16) / threads;
        let late = even.saturating_add(times(largest, 16) / threads * (threads - 1));
        let mut whole = times(count.div_ceil(threads), largest);
        if count.is_multiple_of(threads) {
            let share = count / threads;
            if share.is_multiple_of(parts.rows) {
                let cols = times(self.cols, share / parts.rows).div_ceil(parts.cols);
                whole = whole.min(times(self.rows, cols));
            } else if parts.rows.is_multiple_of(share) {
                let rows = times(self.rows, share).div_ceil(parts.rows);
                whole = whole.min(times(rows, self.cols.div_ceil(parts.cols)));
            }
        }
        times(whole, 16).min(late).max(even)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a pool with workers of its own.
    fn pool(threads: usize) -> Pool {
        Pool::new(threads)
    }

    #[test]
    fn short_work_stays_serial_and_longer_work_gets_more_threads() {
        let pool = pool(16);
        let [none, short, a, b, c, long, longest] =
            [0, 60_000, 130_000, 300_000, 600_000, 100_000_000, usize::MAX]
                .map(|operations| Work::new(Operation::MultiplyAdd, operations).threads(&pool));
        assert_eq!([none, short], [1, 1]);
        assert!(1 < a && a <= b && b <= c && c < 16, "{a}, {b} and {c} threads");
        assert_eq!([long, longest], [16, 16]);
        // Two threads share any work that is worth two.
        assert_eq!(Work::new(Operation::MultiplyAdd, 130_000).threads(&pool.at_most(2)), 2);
    }

    #[test]
    fn a_microsecond_is_the_limit_of_short_work() {
        let pool = pool(16);
        for operation in [Operation::MultiplyAdd, Operation::Element, Operation::TreeStep] {
            let most = operation.per_microsecond();
            for operations in [0, 1, most - 1, most, 2 * most] {
                let work = Work::new(operation, operations);
                assert_eq!(work.is_short(), work.nanoseconds() < REGION);
                let parts = Parts { threads: work.threads(&pool), count: work.cut(&pool).count };
                assert!(!work.is_short() || parts == Parts { threads: 1, count: 1 }, "{parts:?}");
            }
        }
        let bytes = BYTES_PER_MICROSECOND;
        assert!(Work::new(Operation::Element, 1).with_bytes(bytes - 1).is_short());
        assert!(!Work::new(Operation::Element, 1).with_bytes(bytes).is_short());
    }

    #[test]
    fn bytes_count_where_they_take_longer() {
        let (pool, work) = (pool(4), Work::new(Operation::MultiplyAdd, 1000).in_pieces(8));
        assert_eq!(work.threads(&pool), 1);
        assert_eq!(work.with_bytes(4 << 20).threads(&pool), 4);
    }

    #[test]
    fn parts_are_not_more_than_pieces_nor_shorter_than_handing_them_out() {
        for threads in [1, 2, 3, 5, 8, 16] {
            let pool = pool(threads);
            for pieces in [0, 1, 2, 7, 11, 36, 100, 264, 5000] {
                for operations in [0, 50_000, 300_000, 1_000_000, 1 << 34] {
                    let work = Work::new(Operation::MultiplyAdd, operations).in_pieces(pieces);
                    let parts = work.cut(&pool);
                    assert!(parts.count <= pieces.max(1) && parts.threads <= threads);
                    assert!(parts.threads <= parts.count);
                    let shortest = operations * 1000 / Operation::MultiplyAdd.per_microsecond();
                    assert!(parts.count <= parts.threads.max(shortest / LEAST_PART));
                }
            }
        }
    }

    #[test]
    fn parts_of_many_pieces_are_even() {
        for threads in [2, 3, 4, 8, 16, 32, 64] {
            let pool = pool(threads);
            for pieces in [threads * 9, threads * 16 + 1, 264, 1000, 4096] {
                if pieces < 9 * threads {
                    continue;
                }
                let parts = Work::new(Operation::MultiplyAdd, 1 << 34).in_pieces(pieces).cut(&pool);
                let slowest = Grid { rows: pieces, cols: 1 }
                    .slowest(Grid { rows: parts.count, cols: 1 }, threads);
                let ideal = 16 * pieces / threads;
                assert!(slowest * 8 <= ideal * 9, "{pieces} pieces, {threads} threads: {parts:?}");
            }
        }
    }
}
