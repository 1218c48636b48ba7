//! Attention: `softmax(scale * q k' + mask) v`, for each head.
//!
//! Never materializes all scores. Queries meet the keys tile by tile; the greatest score so far and
//! the sum of weights are carried along, and earlier sums are rescaled when a greater score turns
//! up: the running softmax of Milakov and Gimelshein, "Online normalizer calculation for softmax"
//! (2018), over tiles as in Dao et al., "FlashAttention" (2022). Keys, values and queries are read
//! with any strides, so heads need not be transposed before or after.
//!
//! Query heads may share heads of keys and values (grouped-query attention). All queries that share
//! keys are rows of one problem, which has two forms: panels put queries side by side into lanes of
//! vectors (`panels`); a few rows are multiplied as vectors by a matrix (`few`).

mod doubles;
mod few;
mod lanes;
mod masks;
mod panels;
mod tile;

pub use doubles::attention_doubles;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec};

/// Elements of all heads, with strides: element `i` of row `r` of head `h` of batch `b` is
/// `data[b * strides[0] + h * strides[1] + r * strides[2] + i * strides[3]]`.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a, T = f32> {
    pub data: &'a [T],
    pub strides: [usize; 4],
}

/// Memory for elements of all heads, with the strides of [`Heads`].
#[derive(Debug)]
pub struct HeadsMut<'a, T = f32> {
    pub data: &'a mut [T],
    pub strides: [usize; 4],
}

impl<T> Heads<'_, T> {
    /// Returns the strides by name.
    fn strides(&self) -> Strides {
        Strides::from(self.strides)
    }

    /// Returns the index of the first element of a row.
    fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        self.strides().row_start(batch, head, row)
    }
}

/// Strides along each axis of [`Heads`], in elements.
#[derive(Clone, Copy, Debug)]
struct Strides {
    batch: usize,
    head: usize,
    /// Stride from one query, key or value to the next.
    row: usize,
    /// Stride from one feature to the next, or from one key of a mask to the next.
    element: usize,
}

impl From<[usize; 4]> for Strides {
    #[inline]
    fn from([batch, head, row, element]: [usize; 4]) -> Strides {
        Strides { batch, head, row, element }
    }
}

impl Strides {
    /// Returns the strides of batch, head, row and element, in this order.
    fn to_array(self) -> [usize; 4] {
        [self.batch, self.head, self.row, self.element]
    }

    /// Returns the index of the first element of a row.
    #[inline]
    fn row_start(self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.batch + head * self.head + row * self.row
    }

    /// Returns the index of element `i` of a row.
    #[inline]
    fn place(self, batch: usize, head: usize, row: usize, i: usize) -> usize {
        self.row_start(batch, head, row) + i * self.element
    }
}

/// Numbers to add to scores, or bytes that select scores, indexed by batch, head, query and key. A
/// stride of 0 broadcasts along its axis.
#[derive(Clone, Copy, Debug)]
pub enum Mask<'a, T = f32> {
    Add(Heads<'a, T>),
    /// Bytes: a score whose byte is 0 becomes minus infinity, all others stay.
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
    /// Soft cap: scores become `cap * tanh(score / cap)`; 0 for no cap.
    pub softcap: f64,
    /// Window: query `i` sees keys `i + window.0..=i + window.1`.
    pub window: (isize, isize),
    /// Whether the output of a query that sees no key is 0, as the Attention of the ONNX standard
    /// requires, and not NaN, the softmax of a row of minus infinities.
    pub blind_is_zero: bool,
}

/// Window that hides no key.
pub const NO_WINDOW: (isize, isize) = (isize::MIN, isize::MAX);

impl<T> Attention<'_, T> {
    /// Panics unless each operand is long enough for its sizes and strides.
    fn check(&self, y_len: usize, y_strides: Strides) {
        let s = self.sizes;
        assert!(
            s.heads == 0 || s.shared_heads > 0 && s.heads.is_multiple_of(s.shared_heads),
            "{} heads share {}",
            s.heads,
            s.shared_heads
        );
        let operands = [
            (self.q.data.len(), self.q.strides(), s.heads, s.queries, s.features),
            (self.k.data.len(), self.k.strides(), s.shared_heads, s.keys, s.features),
            (self.v.data.len(), self.v.strides(), s.shared_heads, s.keys, s.value_features),
            (y_len, y_strides, s.heads, s.queries, s.value_features),
        ];
        for (len, strides, heads, rows, features) in operands {
            check_reach(len, strides, [s.batch, heads, rows, features]);
        }
        let scores = [s.batch, s.heads, s.queries, s.keys];
        match &self.mask {
            Some(Mask::Add(mask)) => check_reach(mask.data.len(), mask.strides(), scores),
            Some(Mask::Keep(mask)) => check_reach(mask.data.len(), mask.strides(), scores),
            None => {}
        }
    }

    /// Returns the number of query heads that share keys.
    fn group(&self) -> usize {
        self.sizes.heads / self.sizes.shared_heads
    }

    /// Returns the factor of queries with which the products of scaled queries and keys are scores
    /// or, with a soft cap, the arguments of its `tanh`.
    fn query_scale(&self) -> f32 {
        let by_cap = if self.softcap == 0.0 { 1.0 } else { self.softcap };
        (self.scale / by_cap) as f32
    }

    /// Returns the factor that normalizes a weighted sum of values, given the sum of the weights.
    fn inverse(&self, weight: f32) -> f32 {
        // No keys, or all keys hidden.
        let is_blind = weight == 0.0;
        if is_blind && (self.sizes.keys == 0 || self.blind_is_zero) { 0.0 } else { 1.0 / weight }
    }

    /// Returns the range of keys that the window lets `query` see; the mask may hide some of them.
    fn seen_keys(&self, query: usize) -> std::ops::Range<usize> {
        let query = query as isize;
        let first = usize::try_from(query.saturating_add(self.window.0)).unwrap_or(0);
        let last = query.saturating_add(self.window.1);
        let end = usize::try_from(last.saturating_add(1)).unwrap_or(0);
        let end = end.min(self.sizes.keys);
        first.min(end)..end
    }
}

/// Panics unless the last element of an operand with these `dims` and `strides` is among its `len`
/// elements.
fn check_reach(len: usize, strides: Strides, dims: [usize; 4]) {
    if dims.contains(&0) {
        return;
    }
    let strides = strides.to_array();
    let last = dims
        .iter()
        .zip(strides)
        .try_fold(0usize, |at, (dim, stride)| at.checked_add((dim - 1).checked_mul(stride)?));
    assert!(last.is_some_and(|last| last < len), "{dims:?} by {strides:?} in {len}");
}

/// Computes an attention in f32. Rows of `y` are contiguous: its last stride is 1.
///
/// # Panics
///
/// If an operand is too short for its strides, or elements of `y` overlap.
pub fn attention(exec: &Exec<'_>, job: &Attention<'_>, y: HeadsMut<'_>) -> Result<(), Ended> {
    let HeadsMut { data: y, strides } = y;
    let y_strides = Strides::from(strides);
    job.check(y.len(), y_strides);
    let s = job.sizes;
    assert_eq!(y_strides.element, 1, "rows of the output are contiguous");
    if s.batch * s.heads * s.queries * s.value_features == 0 {
        return Ok(());
    }
    check_apart(y_strides, [s.batch, s.heads, s.queries, s.value_features]);
    let out = Shared::new(y);
    match few::FewRows::from_job(job, exec.isa) {
        Some(rows) => few::attention(exec, job, rows, &out, y_strides),
        None => panels::attention(exec, job, &out, y_strides),
    }
}

/// Panics unless all elements of the output have different indices.
fn check_apart(strides: Strides, dims: [usize; 4]) {
    let strides = strides.to_array();
    let mut axes: [(usize, usize); 4] = std::array::from_fn(|axis| (strides[axis], dims[axis]));
    axes.sort_unstable();
    let mut span = 0;
    for (stride, dim) in axes {
        assert!(dim <= 1 || stride > span, "elements of the output overlap");
        span += (dim - 1) * stride;
    }
}

/// Computes an attention by its definition, element by element and in f64: the oracle of tests, and
/// the kernel for models that output scores. `scores` receives the scores of all queries at one
/// stage; its last value is the stride between queries.
pub fn attention_plain<T: Math>(
    job: &Attention<'_, T>,
    y: HeadsMut<'_, T>,
    scores: Option<StageScores<'_, T>>,
) {
    let HeadsMut { data: y, strides } = y;
    let y_strides = Strides::from(strides);
    with_scratch_of(job.sizes.keys, |row| compute_plain(row, job, y, y_strides, scores));
}

/// Buffer for the scores at one stage, an output of [`attention_plain`].
#[derive(Debug)]
pub struct StageScores<'a, T> {
    pub stage: Stage,
    pub scores: &'a mut [T],
    /// Distance in elements between the scores of one query and the next.
    pub stride: usize,
}

/// Stores the scores of query `index`, counted over all heads, if `kept` holds those of `stage`.
fn store_scores<T: Math>(
    kept: &mut Option<StageScores<'_, T>>,
    stage: Stage,
    index: usize,
    row: &[f64],
) {
    if let Some(kept) = kept
        && kept.stage == stage
    {
        for (to, score) in kept.scores[index * kept.stride..].iter_mut().zip(row) {
            *to = T::from_f64(*score);
        }
    }
}

/// Computes an attention like [`attention_plain`], with `row` as scratch memory for the scores of
/// one query.
fn compute_plain<T: Math>(
    row: &mut [f64],
    job: &Attention<'_, T>,
    y: &mut [T],
    y_strides: Strides,
    mut kept: Option<StageScores<'_, T>>,
) {
    job.check(y.len(), y_strides);
    let s = job.sizes;
    for index in 0..s.batch * s.heads * s.queries {
        let (query, rest) = (index % s.queries, index / s.queries);
        let (head, batch) = (rest % s.heads, rest / s.heads);
        let shared = head / (s.heads / s.shared_heads);
        for (key, score) in row.iter_mut().enumerate() {
            *score = 0.0;
            for i in 0..s.features {
                let q = job.q.strides().place(batch, head, query, i);
                let k = job.k.strides().place(batch, shared, key, i);
                *score += job.q.data[q].to_f64() * job.k.data[k].to_f64();
            }
            *score *= job.scale;
        }
        store_scores(&mut kept, Stage::Products, index, row);
        if job.softcap != 0.0 {
            let cap = job.softcap;
            row.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        store_scores(&mut kept, Stage::Capped, index, row);
        let seen = job.seen_keys(query);
        for (key, score) in row.iter_mut().enumerate() {
            match job.mask {
                Some(Mask::Add(mask)) => {
                    let at = mask.strides().place(batch, head, query, key);
                    *score += mask.data[at].to_f64();
                }
                Some(Mask::Keep(mask))
                    if mask.data[mask.strides().place(batch, head, query, key)] == 0 =>
                {
                    *score = f64::NEG_INFINITY;
                }
                _ => {}
            }
            if !seen.contains(&key) {
                *score = f64::NEG_INFINITY;
            }
        }
        store_scores(&mut kept, Stage::Masked, index, row);
        let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|score| *score = (*score - greatest).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|score| *score /= sum);
        if job.blind_is_zero && greatest == f64::NEG_INFINITY {
            row.fill(0.0);
        }
        store_scores(&mut kept, Stage::Weights, index, row);
        for i in 0..s.value_features {
            let products = row.iter().enumerate().map(|(key, weight)| {
                weight * job.v.data[job.v.strides().place(batch, shared, key, i)].to_f64()
            });
            let sum: f64 = products.sum();
            y[y_strides.place(batch, head, query, i)] = T::from_f64(sum);
        }
    }
}

/// Stage of the computation at which scores are output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Scaled products of queries and keys.
    Products,
    /// Scores after the soft cap.
    Capped,
    /// Scores with mask and window.
    Masked,
    /// Weights: scores after the softmax.
    Weights,
}

#[cfg(test)]
pub(crate) mod tests;
