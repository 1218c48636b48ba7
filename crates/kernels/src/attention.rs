//! Attention: scaled products of queries and keys, turned into weights that sum to 1, times values.
//!
//! Scores never exist as a whole. A block of queries meets the keys tile by tile; the greatest
//! score so far and the sum of weights are carried along, and what was summed before is rescaled
//! when a greater score turns up: the running softmax of Milakov and Gimelshein, "Online normalizer
//! calculation for softmax" (2018), over tiles as in Dao et al., "FlashAttention" (2022). Keys,
//! values and queries are read where they lie, in any strides, so heads need not be moved apart
//! before or together after.
//!
//! Query heads may share heads of keys and values. When there is one query per head, the heads that
//! share keys are the rows of one product.

use crate::reduce::{Maximum, Sum, run};
use sardonyx_gemm::gemm::{Epilogue, Lhs, MatRef, Rhs, gemm};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec, Operation, Pool, Work, split_even};
use sardonyx_simd::{Level, Loop};

/// Queries of a block.
const ROWS: usize = 128;
/// Keys of a tile: with a full block, 128 KB of scores.
const KEYS: usize = 256;

/// Values of all heads where they lie: element `i` of row `r` of head `h` of batch `b` is
/// `data[b * strides[0] + h * strides[1] + r * strides[2] + i * strides[3]]`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, T = f32> {
    pub data: &'a [T],
    pub strides: [usize; 4],
}

/// What is added to scores, or which of them count: by batch, head, query and key. A stride of 0
/// repeats.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a, T = f32> {
    Add(Heads<'a, T>),
    /// Where a byte is 0 the score is minus infinity.
    Keep(Heads<'a, u8>),
}

/// Sizes of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub batch: usize,
    /// Heads of queries, a multiple of `shared_heads`.
    pub heads: usize,
    /// Heads of keys and values.
    pub shared_heads: usize,
    pub queries: usize,
    pub keys: usize,
    /// Features of a query and a key.
    pub features: usize,
    /// Features of a value and of an output.
    pub value_features: usize,
}

/// One attention: `softmax(cap(scale * q k') + mask) v` for each head.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a, T = f32> {
    pub sizes: Sizes,
    pub q: Heads<'a, T>,
    pub k: Heads<'a, T>,
    pub v: Heads<'a, T>,
    pub mask: Option<Mask<'a, T>>,
    pub scale: f64,
    /// Scores become `cap * tanh(score / cap)`; none if 0.
    pub softcap: f64,
    /// Query `i` sees keys from `i + window.0` to `i + window.1`, both included.
    pub window: (isize, isize),
    /// Whether the output of a query that sees no key is 0, as the standard's Attention demands,
    /// and not NaN, as the softmax of nothing but minus infinity is.
    pub blind_is_zero: bool,
}

/// A window that hides nothing.
pub const NO_WINDOW: (isize, isize) = (isize::MIN, isize::MAX);

impl<T> Attention<'_, T> {
    fn check(&self, y_len: usize, y_strides: [usize; 4]) {
        let s = self.sizes;
        assert!(
            s.heads == 0 || s.shared_heads > 0 && s.heads.is_multiple_of(s.shared_heads),
            "{} heads share {}",
            s.heads,
            s.shared_heads
        );
        let operands = [
            (self.q.data.len(), self.q.strides, s.heads, s.queries, s.features),
            (self.k.data.len(), self.k.strides, s.shared_heads, s.keys, s.features),
            (self.v.data.len(), self.v.strides, s.shared_heads, s.keys, s.value_features),
            (y_len, y_strides, s.heads, s.queries, s.value_features),
        ];
        for (len, strides, heads, rows, features) in operands {
            check_reach(len, strides, [s.batch, heads, rows, features]);
        }
        let scores = [s.batch, s.heads, s.queries, s.keys];
        match &self.mask {
            Some(Mask::Add(mask)) => check_reach(mask.data.len(), mask.strides, scores),
            Some(Mask::Keep(mask)) => check_reach(mask.data.len(), mask.strides, scores),
            None => {}
        }
    }

    /// The keys that a query may see at all.
    fn seen(&self, query: usize) -> std::ops::Range<usize> {
        let bound = |by: isize| (query as isize).saturating_add(by);
        let first = usize::try_from(bound(self.window.0)).unwrap_or(0);
        let end = usize::try_from(bound(self.window.1).saturating_add(1)).unwrap_or(0);
        let end = end.min(self.sizes.keys);
        first.min(end)..end
    }
}

fn check_reach(len: usize, strides: [usize; 4], dims: [usize; 4]) {
    if dims.contains(&0) {
        return;
    }
    let last = dims
        .iter()
        .zip(strides)
        .try_fold(0usize, |at, (dim, stride)| at.checked_add((dim - 1).checked_mul(stride)?));
    assert!(last.is_some_and(|last| last < len), "{dims:?} by {strides:?} in {len}");
}

/// Computes an attention in f32. Output rows are contiguous: the last of `y_strides` is 1, and no
/// two elements of `y` share a place.
///
/// # Panics
///
/// If an operand is too short for its strides, or rows of `y` overlap.
pub fn attention(
    exec: &Exec<'_>,
    job: &Attention<'_>,
    y: &mut [f32],
    y_strides: [usize; 4],
) -> Result<(), Ended> {
    let pool = exec.pool;
    let alone = Exec { pool: Pool::serial(), ..*exec };
    job.check(y.len(), y_strides);
    let s = job.sizes;
    assert_eq!(y_strides[3], 1, "rows of the output are contiguous");
    if s.batch * s.heads * s.queries * s.value_features == 0 {
        return Ok(());
    }
    check_apart(y_strides, [s.batch, s.heads, s.queries, s.value_features]);
    let group = s.heads / s.shared_heads;
    // With one query per head, heads that share keys are rows of one product.
    let together = s.queries == 1 && group > 1;
    let (heads, rows) = if together { (s.shared_heads, group) } else { (s.heads, s.queries) };
    let blocks = rows.div_ceil(ROWS);
    let units = s.batch * heads * blocks;
    let out = Shared::new(y);
    let unit = |index: usize| {
        let (block, rest) = (index % blocks, index / blocks);
        let (head, batch) = (rest % heads, rest / heads);
        let rows = block * ROWS..rows.min((block + 1) * ROWS);
        Unit { job, alone, batch, head, rows, together }.run(&out, y_strides)
    };
    let work = s.keys * (s.features + s.value_features) * rows.min(ROWS);
    let work = Work::new(Operation::ShortMultiplyAdd, units.saturating_mul(work));
    let parts = work.in_pieces(units).cut(pool);
    parts.run(pool, |part| split_even(units, parts.count, part).try_for_each(&unit))
}

/// Panics unless all elements have places of their own.
fn check_apart(strides: [usize; 4], dims: [usize; 4]) {
    let mut axes: [(usize, usize); 4] = std::array::from_fn(|axis| (strides[axis], dims[axis]));
    axes.sort_unstable();
    let mut span = 0;
    for (stride, dim) in axes {
        assert!(dim <= 1 || stride > span, "elements of the output overlap");
        span += (dim - 1) * stride;
    }
}

/// A block of rows of one head: queries, or the heads that share keys.
struct Unit<'a> {
    job: &'a Attention<'a>,
    /// Computes the unit's products on the thread that has it.
    alone: Exec<'a>,
    batch: usize,
    /// Of queries, or of keys when rows are heads.
    head: usize,
    rows: std::ops::Range<usize>,
    together: bool,
}

impl Unit<'_> {
    /// Head and query of a row.
    fn place(&self, row: usize) -> (usize, usize) {
        let s = self.job.sizes;
        if self.together {
            (self.head * (s.heads / s.shared_heads) + row, 0)
        } else {
            (self.head, row)
        }
    }

    fn run(&self, out: &Shared<'_, f32>, y_strides: [usize; 4]) -> Result<(), Ended> {
        let (job, s) = (self.job, self.job.sizes);
        let shared_head =
            if self.together { self.head } else { self.head / (s.heads / s.shared_heads) };
        let count = self.rows.len();
        let (head, query) = self.place(self.rows.start);
        let row_stride = job.q.strides[if self.together { 1 } else { 2 }];
        let start = |strides: [usize; 4], head: usize, row: usize| {
            self.batch * strides[0] + head * strides[1] + row * strides[2]
        };
        let q = MatRef::new(
            job.q.data.get(start(job.q.strides, head, query)..).unwrap_or_default(),
            count,
            s.features,
            row_stride,
            job.q.strides[3],
        );
        // Keys that no row of the block sees need not be looked at.
        let seen = self.rows.clone().map(|row| job.seen(self.place(row).1));
        let (first, end) =
            seen.fold((s.keys, 0), |(first, end), seen| (first.min(seen.start), end.max(seen.end)));
        let tile = KEYS.min(s.keys.max(1));
        let dv = s.value_features;
        let len = count * (tile + 2 * dv + 2);
        with_scratch(len, |scratch| {
            let (scores, scratch) = scratch.split_at_mut(count * tile);
            let (sums, scratch) = scratch.split_at_mut(count * dv);
            let (part, scratch) = scratch.split_at_mut(count * dv);
            let (greatest, weights) = scratch.split_at_mut(count);
            sums.fill(0.0);
            greatest.fill(f32::NEG_INFINITY);
            weights.fill(0.0);
            let mut key = first;
            while key < end {
                let keys = tile.min(end - key);
                let k = MatRef::new(
                    &job.k.data[start(job.k.strides, shared_head, key)..],
                    s.features,
                    keys,
                    job.k.strides[3],
                    job.k.strides[2],
                );
                // Scaling comes with the mask, in one multiply-add.
                let alone = &self.alone;
                let plain = Epilogue::default();
                gemm(alone, Lhs::Plain(q), Rhs::Plain(k), scores, keys, &plain)?;
                let tile =
                    Tile { unit: self, first_key: key, keys, scores, sums, greatest, weights };
                Level::new(self.alone.isa).run(tile);
                let p = MatRef::row_major(scores, count, keys);
                let v = MatRef::new(
                    &job.v.data[start(job.v.strides, shared_head, key)..],
                    keys,
                    dv,
                    job.v.strides[2],
                    job.v.strides[3],
                );
                let into = if key == first { &mut *sums } else { &mut *part };
                gemm(alone, Lhs::Plain(p), Rhs::Plain(v), into, dv, &plain)?;
                if key != first {
                    for (sum, part) in sums.iter_mut().zip(part.iter()) {
                        *sum += part;
                    }
                }
                key += keys;
            }
            for (index, row) in self.rows.clone().enumerate() {
                let (head, query) = self.place(row);
                // SAFETY: no two rows of the output overlap (checked by the caller), and each
                // belongs to one unit.
                let y = unsafe { out.part(start(y_strides, head, query), dv) };
                let scale = match weights[index] {
                    // No key at all, or none that counts.
                    0.0 if s.keys == 0 || job.blind_is_zero => 0.0,
                    sum => 1.0 / sum,
                };
                for (y, sum) in y.iter_mut().zip(&sums[index * dv..]) {
                    *y = sum * scale;
                }
            }
            Ok(())
        })
    }
}

/// Turns the scores of a tile into weights relative to the greatest score so far, and rescales what
/// was summed before.
struct Tile<'a> {
    unit: &'a Unit<'a>,
    first_key: usize,
    keys: usize,
    scores: &'a mut [f32],
    /// Weighted sums of values of earlier tiles.
    sums: &'a mut [f32],
    greatest: &'a mut [f32],
    weights: &'a mut [f32],
}

impl Loop for Tile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let unit = self.unit;
        let (job, dv) = (unit.job, unit.job.sizes.value_features);
        let (scale, cap) = (job.scale as f32, job.softcap as f32);
        for (index, row) in unit.rows.clone().enumerate() {
            let scores = &mut self.scores[index * self.keys..][..self.keys];
            let (head, query) = unit.place(row);
            let added = matches!(job.mask, Some(Mask::Add(mask)) if mask.strides[3] == 1);
            if cap != 0.0 {
                for score in scores.iter_mut() {
                    *score = cap * Math::tanh::<FMA>(*score * scale / cap);
                }
            } else if scale != 1.0 && !added {
                for score in scores.iter_mut() {
                    *score *= scale;
                }
            }
            let at = |strides: [usize; 4]| {
                unit.batch * strides[0]
                    + head * strides[1]
                    + query * strides[2]
                    + self.first_key * strides[3]
            };
            match job.mask {
                Some(Mask::Add(mask)) => match mask.strides[3] {
                    1 => {
                        let mask = &mask.data[at(mask.strides)..][..scores.len()];
                        let scale = if cap == 0.0 { scale } else { 1.0 };
                        for (score, mask) in scores.iter_mut().zip(mask) {
                            *score = Math::mul_add::<FMA>(*score, scale, *mask);
                        }
                    }
                    step => {
                        let start = at(mask.strides);
                        for (i, score) in scores.iter_mut().enumerate() {
                            *score += mask.data[start + i * step];
                        }
                    }
                },
                Some(Mask::Keep(mask)) => match mask.strides[3] {
                    1 => {
                        let mask = &mask.data[at(mask.strides)..][..scores.len()];
                        for (score, mask) in scores.iter_mut().zip(mask) {
                            *score = if *mask != 0 { *score } else { f32::NEG_INFINITY };
                        }
                    }
                    step => {
                        let start = at(mask.strides);
                        for (i, score) in scores.iter_mut().enumerate() {
                            if mask.data[start + i * step] == 0 {
                                *score = f32::NEG_INFINITY;
                            }
                        }
                    }
                },
                None => {}
            }
            let seen = job.seen(query);
            let inside =
                |key: usize| key.clamp(self.first_key, self.first_key + self.keys) - self.first_key;
            let (from, to) = (inside(seen.start), inside(seen.end).max(inside(seen.start)));
            scores[..from].fill(f32::NEG_INFINITY);
            scores[to..].fill(f32::NEG_INFINITY);

            let before = self.greatest[index];
            let greatest = f32::max(before, run(Maximum, scores) as f32);
            // Nothing seen yet: no score is subtracted, and all weights become 0.
            let shift = if greatest == f32::NEG_INFINITY { 0.0 } else { greatest };
            for score in scores.iter_mut() {
                *score = Math::exp::<FMA>(*score - shift);
            }
            let factor = Math::exp::<FMA>(before - shift);
            if self.first_key > 0 && factor != 1.0 {
                for sum in &mut self.sums[index * dv..][..dv] {
                    *sum *= factor;
                }
            }
            self.weights[index] = self.weights[index] * factor + run(Sum, scores) as f32;
            self.greatest[index] = greatest;
        }
    }
}

/// The definition, element by element in the order of the words: the test oracle, and what runs for
/// f64. Also gives the scores at a stage, if they are asked for, in rows of a given length.
pub fn attention_plain<T: Math>(
    job: &Attention<'_, T>,
    y: &mut [T],
    y_strides: [usize; 4],
    scores: Option<(Stage, &mut [T], usize)>,
) {
    with_scratch_of(job.sizes.keys, |row| plain_in(row, job, y, y_strides, scores));
}

/// `row` has room for the scores of a query.
fn plain_in<T: Math>(
    row: &mut [f64],
    job: &Attention<'_, T>,
    y: &mut [T],
    y_strides: [usize; 4],
    mut scores: Option<(Stage, &mut [T], usize)>,
) {
    job.check(y.len(), y_strides);
    let s = job.sizes;
    let at = |heads: [usize; 4], batch: usize, head: usize, row: usize, i: usize| {
        batch * heads[0] + head * heads[1] + row * heads[2] + i * heads[3]
    };
    for index in 0..s.batch * s.heads * s.queries {
        let (query, rest) = (index % s.queries, index / s.queries);
        let (head, batch) = (rest % s.heads, rest / s.heads);
        let shared = head / (s.heads / s.shared_heads);
        let mut keep = |stage: Stage, row: &[f64]| {
            if let Some((wanted, scores, stride)) = &mut scores
                && *wanted == stage
            {
                for (to, score) in scores[index * *stride..].iter_mut().zip(row) {
                    *to = T::from_f64(*score);
                }
            }
        };
        for (key, score) in row.iter_mut().enumerate() {
            *score = 0.0;
            for i in 0..s.features {
                let (q, k) = (
                    at(job.q.strides, batch, head, query, i),
                    at(job.k.strides, batch, shared, key, i),
                );
                *score += job.q.data[q].to_f64() * job.k.data[k].to_f64();
            }
            *score *= job.scale;
        }
        keep(Stage::Products, row);
        if job.softcap != 0.0 {
            let cap = job.softcap;
            row.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        keep(Stage::Capped, row);
        let seen = job.seen(query);
        for (key, score) in row.iter_mut().enumerate() {
            match job.mask {
                Some(Mask::Add(mask)) => {
                    *score += mask.data[at(mask.strides, batch, head, query, key)].to_f64();
                }
                Some(Mask::Keep(mask))
                    if mask.data[at(mask.strides, batch, head, query, key)] == 0 =>
                {
                    *score = f64::NEG_INFINITY;
                }
                _ => {}
            }
            if !seen.contains(&key) {
                *score = f64::NEG_INFINITY;
            }
        }
        keep(Stage::Masked, row);
        let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|score| *score = (*score - greatest).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|score| *score /= sum);
        if job.blind_is_zero && greatest == f64::NEG_INFINITY {
            row.fill(0.0);
        }
        keep(Stage::Weights, row);
        for i in 0..s.value_features {
            let value = |key: usize| job.v.data[at(job.v.strides, batch, shared, key, i)].to_f64();
            let sum: f64 = row.iter().enumerate().map(|(key, weight)| weight * value(key)).sum();
            y[at(y_strides, batch, head, query, i)] = T::from_f64(sum);
        }
    }
}

/// Scores at a point of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Products, scaled.
    Products,
    /// After the soft cap.
    Capped,
    /// With the mask.
    Masked,
    /// After the softmax.
    Weights,
}

#[cfg(test)]
pub(crate) mod tests;
