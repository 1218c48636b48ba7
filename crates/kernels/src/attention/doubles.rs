//! Attention of doubles: products of blocks of queries with all keys that they see, softmax of each
//! row, products of weights and values.
//!
//! Scores of a block exist as a whole: doubles are rarely attended to by many keys. The block of a
//! query follows from sizes alone, so threads change no bit.

use super::{Attention, Heads, Mask, Strides, check_apart};
use crate::softmax::{Row, Softmax};
use sardonyx_gemm::gemm::{MatRef, gemm_generic};
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Level, Pool};

/// Cache: scores of a block of queries: a quarter of a second-level cache.
const SCORES: usize = 1 << 16;
/// Geometry: fewest and most queries of a block: keys and values are read once for each.
const LEAST_QUERIES: usize = 16;
const MOST_QUERIES: usize = 128;

/// Computes an attention in f64. Rows and elements of `y` may lie in any order.
///
/// # Panics
///
/// If an operand is too short for its strides, or elements of `y` overlap.
pub fn attention_doubles(
    exec: &Exec<'_>,
    job: &Attention<'_, f64>,
    y: &mut [f64],
    y_strides: [usize; 4],
) -> Result<(), Ended> {
    let y_strides = Strides::from(y_strides);
    job.check(y.len(), y_strides);
    let s = job.sizes;
    if s.batch * s.heads * s.queries * s.value_features == 0 {
        return Ok(());
    }
    check_apart(y_strides, [s.batch, s.heads, s.queries, s.value_features]);
    let each = (SCORES / s.keys.max(1)).clamp(LEAST_QUERIES, MOST_QUERIES);
    let blocks = s.queries.div_ceil(each);
    let out = Shared::new(y);
    let work = each.saturating_mul(s.keys).saturating_mul(s.features + s.value_features + 16);
    ranges(exec.pool, s.batch * s.heads * blocks, work, |units| {
        for unit in units {
            let (index, first) = (unit / blocks, unit % blocks * each);
            let block = Block {
                job,
                batch: index / s.heads,
                head: index % s.heads,
                first,
                count: each.min(s.queries - first),
            };
            block.run(exec, &out, y_strides)?;
        }
        Ok(())
    })
}

/// Queries of a head that are computed together.
struct Block<'a> {
    job: &'a Attention<'a, f64>,
    batch: usize,
    head: usize,
    /// The first query, and how many there are.
    first: usize,
    count: usize,
}

impl Block<'_> {
    fn run(&self, exec: &Exec<'_>, out: &Shared<'_, f64>, y_strides: Strides) -> Result<(), Ended> {
        let (job, s) = (self.job, self.job.sizes);
        // Windows move with the queries: keys before those of the first and after those of the last
        // query are seen by none.
        let start = job.seen_keys(self.first).start;
        let end = job.seen_keys(self.first + self.count - 1).end.max(start);
        let keys = end - start;
        with_scratch_of(self.count * (keys + s.value_features), |memory: &mut [f64]| {
            let (scores, results) = memory.split_at_mut(self.count * keys);
            let shared = self.head / job.group();
            let here = Exec { pool: Pool::serial(), ..*exec };
            let q =
                matrix(&job.q, job.q.at(self.batch, self.head, self.first), self.count, s.features);
            let k = matrix(&job.k, job.k.at(self.batch, shared, start), keys, s.features);
            let v = matrix(&job.v, job.v.at(self.batch, shared, start), keys, s.value_features);
            gemm_generic(&here, job.scale, q, k.transposed(), None, scores, keys)?;
            for (i, row) in scores.chunks_exact_mut(keys.max(1)).enumerate() {
                self.finish_scores(self.first + i, start, row);
                if row.iter().all(|score| *score == f64::NEG_INFINITY) {
                    row.fill(if job.blind_is_zero { 0.0 } else { f64::NAN });
                } else {
                    f64::run(Level::new(exec.isa), Row { op: Softmax::Softmax, row });
                }
            }
            let weights = MatRef::row_major(scores, self.count, keys);
            gemm_generic(&here, 1.0, weights, v, None, results, s.value_features)?;
            // No key of those that there are is seen.
            if keys == 0 && s.keys > 0 && !job.blind_is_zero {
                results.fill(f64::NAN);
            }
            for (i, row) in results.chunks_exact(s.value_features).enumerate() {
                let at = y_strides.row_start(self.batch, self.head, self.first + i);
                for (j, result) in row.iter().enumerate() {
                    // SAFETY: elements of the output do not overlap; this thread alone has those of
                    // these queries.
                    unsafe { out.part(at + j * y_strides.element, 1)[0] = *result };
                }
            }
            Ok(())
        })
    }

    /// Applies the cap, the mask and the window to the scores of a query with keys from `start` on.
    fn finish_scores(&self, query: usize, start: usize, row: &mut [f64]) {
        let job = self.job;
        if job.softcap != 0.0 {
            let cap = job.softcap;
            row.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        match &job.mask {
            Some(Mask::Add(mask)) => {
                let (at, step) = self.of_mask(mask.strides(), query, start);
                for (i, score) in row.iter_mut().enumerate() {
                    *score += mask.data[at + i * step];
                }
            }
            Some(Mask::Keep(mask)) => {
                let (at, step) = self.of_mask(mask.strides(), query, start);
                for (i, score) in row.iter_mut().enumerate() {
                    if mask.data[at + i * step] == 0 {
                        *score = f64::NEG_INFINITY;
                    }
                }
            }
            None => {}
        }
        let seen = job.seen_keys(query);
        let (first, end) = (seen.start.max(start) - start, seen.end.max(start) - start);
        row[..first].fill(f64::NEG_INFINITY);
        row[end.max(first)..].fill(f64::NEG_INFINITY);
    }

    /// Returns the place of a mask's element for a query and the first key, and the distance of
    /// neighbours.
    fn of_mask(&self, strides: Strides, query: usize, start: usize) -> (usize, usize) {
        (strides.place(self.batch, self.head, query, start), strides.element)
    }
}

/// Returns rows of a head, whose first element is number `first`.
fn matrix<'a>(
    heads: &Heads<'a, f64>,
    first: usize,
    rows: usize,
    features: usize,
) -> MatRef<'a, f64> {
    let strides = heads.strides();
    let data = if rows * features == 0 { &[] } else { &heads.data[first..] };
    MatRef::new(data, rows, features, strides.row, strides.element)
}
