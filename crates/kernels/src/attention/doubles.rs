//! Attention of doubles, by blocks of queries: products with all keys that the block sees, softmax
//! of each row, products of weights and values.
//!
//! Materializes the scores of a block: attention of doubles with many keys is rare. The block of a
//! query follows from the sizes alone, so that results do not depend on the number of threads.

use super::{Attention, Heads, HeadsMut, Mask, Strides, check_apart};
use crate::softmax::{Row, Softmax};
use sardonyx_gemm::gemm::{MatRef, gemm_generic};
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Level, Pool};

/// Cache: scores of a block of queries, at 8 bytes each a quarter of a 2 MB second-level cache.
const SCORES: usize = 1 << 16;
/// Geometry: fewest and most queries of a block. Each block reads all keys and values once.
const LEAST_QUERIES: usize = 16;
const MOST_QUERIES: usize = 128;

/// Computes an attention in f64. The strides of `y` may be in any order.
///
/// # Panics
///
/// If an operand is too short for its strides, or elements of `y` overlap.
pub fn attention_doubles(
    exec: &Exec<'_>,
    job: &Attention<'_, f64>,
    y: HeadsMut<'_, f64>,
) -> Result<(), Ended> {
    let HeadsMut { data: y, strides } = y;
    let y_strides = Strides::from(strides);
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
    /// First query of the block.
    first: usize,
    /// Number of queries.
    count: usize,
}

impl Block<'_> {
    fn run(&self, exec: &Exec<'_>, out: &Shared<'_, f64>, y_strides: Strides) -> Result<(), Ended> {
        let (job, s) = (self.job, self.job.sizes);
        // The window moves with the query, so no query of the block sees a key before the first key
        // of its first query or after the last key of its last query.
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
            gemm_generic(&here, job.scale, q, k.transpose(), None, scores, keys)?;
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
            // The window hides all keys from the block.
            if keys == 0 && s.keys > 0 && !job.blind_is_zero {
                results.fill(f64::NAN);
            }
            for (i, row) in results.chunks_exact(s.value_features).enumerate() {
                let at = y_strides.row_start(self.batch, self.head, self.first + i);
                for (j, result) in row.iter().enumerate() {
                    // SAFETY: `check_apart` showed that elements of the output do not overlap, and
                    // no other block has these queries.
                    unsafe { out.part(at + j * y_strides.element, 1)[0] = *result };
                }
            }
            Ok(())
        })
    }

    /// Applies soft cap, mask and window to the scores of `query` with the keys from `start` on.
    fn finish_scores(&self, query: usize, start: usize, row: &mut [f64]) {
        let job = self.job;
        if job.softcap != 0.0 {
            let cap = job.softcap;
            row.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        match &job.mask {
            Some(Mask::Add(mask)) => {
                let (at, step) = self.mask_start(mask.strides(), query, start);
                for (i, score) in row.iter_mut().enumerate() {
                    *score += mask.data[at + i * step];
                }
            }
            Some(Mask::Keep(mask)) => {
                let (at, step) = self.mask_start(mask.strides(), query, start);
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

    /// Returns the index of a mask's element for `query` and key `start`, and the stride from one
    /// key to the next.
    fn mask_start(&self, strides: Strides, query: usize, start: usize) -> (usize, usize) {
        (strides.place(self.batch, self.head, query, start), strides.element)
    }
}

/// Returns `rows` rows of a head as a matrix, given the index `first` of their first element.
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
