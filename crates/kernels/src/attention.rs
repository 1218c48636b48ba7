//! Attention: scaled products of queries and keys, turned into weights that sum to 1, times values.
//!
//! Scores never exist as a whole. Queries meet the keys tile by tile; the greatest score so far and
//! the sum of weights are carried along, and earlier sums are rescaled when a greater score turns
//! up: the running softmax of Milakov and Gimelshein, "Online normalizer calculation for softmax"
//! (2018), over tiles as in Dao et al., "FlashAttention" (2022). Keys, values and queries are read
//! in any strides, so heads need not be moved apart before or together after.
//!
//! Query heads may share heads of keys and values. All queries that share keys are rows of one
//! problem. There are two forms of it: panels put queries side by side into lanes of vectors; few
//! rows are multiplied as vectors by a matrix.

mod few;
mod lanes;
mod masks;
mod panels;
mod tile;

use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec};

/// Values of all heads where they lie: element `i` of row `r` of head `h` of batch `b` is
/// `data[b * strides[0] + h * strides[1] + r * strides[2] + i * strides[3]]`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, T = f32> {
    pub data: &'a [T],
    pub strides: [usize; 4],
}

impl<T> Heads<'_, T> {
    /// Returns the place of the first element of a row.
    fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1] + row * self.strides[2]
    }
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

    /// Returns the number of query heads that share keys.
    fn group(&self) -> usize {
        self.sizes.heads / self.sizes.shared_heads
    }

    /// Returns the factor of queries: products of scaled queries and keys are scores, or the
    /// arguments of the soft cap.
    fn query_scale(&self) -> f32 {
        let by_cap = if self.softcap == 0.0 { 1.0 } else { self.softcap };
        (self.scale / by_cap) as f32
    }

    /// Returns the factor that makes a weighted sum of values an output, by the sum of weights.
    fn inverse(&self, weight: f32) -> f32 {
        // No key at all, or none that counts.
        let is_blind = weight == 0.0;
        if is_blind && (self.sizes.keys == 0 || self.blind_is_zero) { 0.0 } else { 1.0 / weight }
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
    job.check(y.len(), y_strides);
    let s = job.sizes;
    assert_eq!(y_strides[3], 1, "rows of the output are contiguous");
    if s.batch * s.heads * s.queries * s.value_features == 0 {
        return Ok(());
    }
    check_apart(y_strides, [s.batch, s.heads, s.queries, s.value_features]);
    let out = Shared::new(y);
    match few::FewRows::of(job, exec.isa) {
        Some(rows) => few::attention(exec, job, rows, &out, y_strides),
        None => panels::attention(exec, job, &out, y_strides),
    }
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
