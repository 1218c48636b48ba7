//! Register kernels of attention: both products, and the exponentials between them.
//!
//! A panel is one or two vectors of queries, side by side in lanes: the wide operand of both
//! products. The narrow operand is broadcast, a float at a time: features of some keys, which give
//! scores by key and query, then features of some values, which give sums by feature and query. So
//! keys and values need no transposition, and the greatest score, the exponentials and their sum
//! are operations of whole vectors.

use sardonyx_simd::number::Math;
use sardonyx_simd::{Body, Loop, Rows, Simd};

/// Geometry: floats that pass through exponentials at a time, a multiple of the widths of panels.
pub(super) const CHUNK: usize = 64;
/// Geometry: lanes of the shortest vector, in floats.
const LEAST_LANES: usize = 4;

/// Rows of the narrow operand, whose floats are broadcast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    pub(super) start: *const f32,
    /// Row stride in floats. Features of a row are adjacent.
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) features: usize,
}

impl Narrow {
    /// Returns `rows` rows from row `first` on.
    pub(super) fn part(self, first: usize, rows: usize) -> Narrow {
        Narrow { start: self.start.wrapping_add(first * self.stride), rows, ..self }
    }
}

/// Rows of the wide operand: whole vectors with a lane for each query.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide {
    pub(super) start: *const f32,
    /// Vectors of a row, 1 or 2.
    pub(super) vectors: usize,
}

/// Operands of one register tile of a product.
#[derive(Clone, Copy)]
struct Operands {
    /// Number of products that each sum adds up.
    steps: usize,
    /// Floats of the narrow operand: `R` for each step.
    narrow: *const f32,
    /// Distance between two narrow floats of one step, in floats.
    distance: usize,
    /// Distance from a narrow float of one step to that of the next, in floats.
    narrow_step: usize,
    /// Vectors of the wide operand: `V` adjacent ones for each step.
    wide: *const f32,
}

/// Sums the products of `R` narrow floats and `V` vectors over all steps.
///
/// # Safety
///
/// The machine has the instruction set of `S`, and `R` floats and `V` vectors are readable for each
/// step.
#[inline(always)]
unsafe fn multiply<S: Simd, const R: usize, const V: usize, const ADJACENT: bool>(
    operands: &Operands,
) -> [[S::V; V]; R] {
    // SAFETY: the caller promises the instruction set of `S` and readable operands; pointers
    // advance by one step at a time.
    unsafe {
        let zero = S::splat(0.0);
        let mut sums = [[zero; V]; R];
        let (mut narrow, mut wide) = (operands.narrow, operands.wide);
        let mut rows = Rows::<R>::new(narrow, operands.distance);
        macro_rules! each_row {
            ($vectors:ident, $($r:literal)*) => {$(
                if $r < R {
                    let number = if ADJACENT { narrow.add($r) } else { rows.row::<$r>() };
                    let number = S::splat(*number);
                    // Rows that the tile lacks are never reached; 0 is an index in bounds for the
                    // compiler.
                    for (sum, &vector) in sums[if $r < R { $r } else { 0 }].iter_mut().zip(&$vectors)
                    {
                        *sum = S::fma(number, vector, *sum);
                    }
                }
            )*};
        }
        macro_rules! step {
            () => {
                let mut vectors = [zero; V];
                for (v, vector) in vectors.iter_mut().enumerate() {
                    *vector = S::load(wide.add(v * S::LANES));
                }
                each_row!(vectors, 0 1 2 3 4 5 6 7 8 9 10 11);
            };
        }
        macro_rules! advance {
            () => {
                if ADJACENT {
                    narrow = narrow.wrapping_add(operands.narrow_step);
                } else {
                    rows.step(operands.narrow_step);
                }
                wide = wide.wrapping_add(V * S::LANES);
            };
        }
        for _ in 0..operands.steps / 2 {
            step!();
            advance!();
            step!();
            advance!();
        }
        if operands.steps % 2 == 1 {
            step!();
        }
        sums
    }
}

/// Cuts `count` rows into tiles of `$r` and `$less` rows, and of one row where the count has no
/// such sum. Calls `$tile` with the first row and the number of rows, a constant.
macro_rules! each_tile {
    ($count:expr, $r:ident, $less:ident, $tile:ident) => {
        let count: usize = $count;
        let tiles = count.div_ceil($r);
        // Number of tiles of `$r` rows if all others have `$less`.
        let (whole, less) = match count.checked_sub(tiles * $less) {
            Some(more) => (more, tiles - more),
            None => (count / $r, 0),
        };
        let mut row = 0;
        for _ in 0..whole {
            $tile!(row, $r);
            row += $r;
        }
        for _ in 0..less {
            $tile!(row, $less);
            row += $less;
        }
        while row < count {
            $tile!(row, 1);
            row += 1;
        }
    };
}

/// Body that multiplies keys with the queries of a panel and writes scores, indexed by key and
/// query.
pub(super) struct Scores<const R: usize, const LESS: usize> {
    pub(super) keys: Narrow,
    /// Queries of the panel, indexed by feature and query.
    pub(super) queries: Wide,
    /// Scores, indexed by key and query.
    pub(super) out: *mut f32,
}

impl<const R: usize, const LESS: usize> Body for Scores<R, LESS> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller promises the instruction set of `S`, and the constructor valid
        // operands.
        unsafe {
            match self.queries.vectors {
                1 => self.run_vectors::<S, 1>(),
                _ => self.run_vectors::<S, 2>(),
            }
        }
    }
}

impl<const R: usize, const LESS: usize> Scores<R, LESS> {
    /// Computes the scores of panels of `V` vectors.
    #[inline(always)]
    unsafe fn run_vectors<S: Simd, const V: usize>(self) {
        let Narrow { start, stride, rows, features } = self.keys;
        macro_rules! tile {
            ($row:ident, $rows:tt) => {
                let operands = Operands {
                    steps: features,
                    narrow: start.wrapping_add($row * stride),
                    distance: stride,
                    narrow_step: 1,
                    wide: self.queries.start,
                };
                // SAFETY: the tile is within the `rows` keys, and `out` has a row of scores for
                // each key.
                unsafe {
                    let sums = multiply::<S, $rows, V, false>(&operands);
                    for (r, sums) in sums.iter().enumerate() {
                        for (v, sum) in sums.iter().enumerate() {
                            let out = self.out.add((($row + r) * V + v) * S::LANES);
                            S::store(out, *sum);
                        }
                    }
                }
            };
        }
        each_tile!(rows, R, LESS, tile);
    }
}

/// Body that multiplies earlier sums by factors and adds weighted values.
pub(super) struct Values<const R: usize, const LESS: usize> {
    pub(super) values: Narrow,
    /// Weights of the values, indexed by key and query.
    pub(super) weights: Wide,
    /// Factor of each query.
    pub(super) factors: *const f32,
    /// Weighted sums, indexed by feature and query.
    pub(super) sums: *mut f32,
}

impl<const R: usize, const LESS: usize> Body for Values<R, LESS> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller promises the instruction set of `S`, and the constructor valid
        // operands.
        unsafe {
            match self.weights.vectors {
                1 => self.run_vectors::<S, 1>(),
                _ => self.run_vectors::<S, 2>(),
            }
        }
    }
}

impl<const R: usize, const LESS: usize> Values<R, LESS> {
    /// Updates the sums of panels of `V` vectors.
    #[inline(always)]
    unsafe fn run_vectors<S: Simd, const V: usize>(self) {
        let Narrow { start, stride, rows, features } = self.values;
        macro_rules! tile {
            ($feature:ident, $features:tt) => {
                let operands = Operands {
                    steps: rows,
                    narrow: start.wrapping_add($feature),
                    distance: 1,
                    narrow_step: stride,
                    wide: self.weights.start,
                };
                // SAFETY: the tile is within the `features` features of each value, and `sums` has
                // a row for each feature.
                unsafe {
                    let added = multiply::<S, $features, V, true>(&operands);
                    for v in 0..V {
                        let factor = S::load(self.factors.add(v * S::LANES));
                        for (r, added) in added.iter().enumerate() {
                            let sum = self.sums.add((($feature + r) * V + v) * S::LANES);
                            S::store(sum, S::fma(S::load(sum), factor, added[v]));
                        }
                    }
                }
            };
        }
        each_tile!(features, R, LESS, tile);
    }
}

/// Running softmax of the queries of a panel: three floats for each query.
#[derive(Debug)]
pub(super) struct RunningSoftmax<'a> {
    /// Greatest score so far.
    pub(super) greatest: &'a mut [f32],
    /// Sum of weights relative to the greatest score so far.
    pub(super) weights: &'a mut [f32],
    /// Factors by which the last tile of keys rescaled earlier sums.
    pub(super) factors: &'a mut [f32],
}

impl<'a> RunningSoftmax<'a> {
    /// Value: floats of a query.
    pub(super) const ROWS: usize = 3;

    /// Cuts `floats` into three rows.
    pub(super) fn new(floats: &'a mut [f32]) -> RunningSoftmax<'a> {
        let width = floats.len() / RunningSoftmax::ROWS;
        let (greatest, floats) = floats.split_at_mut(width);
        let (weights, factors) = floats.split_at_mut(width);
        RunningSoftmax { greatest, weights, factors }
    }
}

/// Body that turns scores into weights relative to the greatest score so far, and updates the
/// running softmax.
pub(super) struct WeighScores<'a, 'b> {
    /// Scores in whole chunks, indexed by key and query; minus infinity after the last key.
    pub(super) scores: &'a mut [f32],
    pub(super) softmax: &'a mut RunningSoftmax<'b>,
}

impl Body for WeighScores<'_, '_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let RunningSoftmax { greatest, weights, factors } = self.softmax;
        let width = greatest.len();
        let (chunks, _) = self.scores.as_chunks_mut::<CHUNK>();
        // SAFETY: the caller promises the instruction set of `S`.
        let most = unsafe { find_greatest::<S>(chunks) };
        factors.copy_from_slice(greatest);
        for most in most.chunks_exact(width) {
            for (greatest, most) in greatest.iter_mut().zip(most) {
                *greatest = f32::max(*greatest, *most);
            }
        }
        let mut shifts = [0.0; CHUNK];
        for shifts in shifts.chunks_exact_mut(width) {
            for (shift, &greatest) in shifts.iter_mut().zip(greatest.iter()) {
                // All keys so far are hidden: subtract 0, as `-inf - -inf` is NaN; all weights
                // become 0.
                *shift = if greatest == f32::NEG_INFINITY { 0.0 } else { greatest };
            }
        }
        let sums = S::run_loop(Exponentials { chunks, shifts });
        S::run_loop(Factors { x: factors, shifts });
        for (weight, factor) in weights.iter_mut().zip(factors.iter()) {
            *weight *= factor;
        }
        for sums in sums.chunks_exact(width) {
            for (weight, sum) in weights.iter_mut().zip(sums) {
                *weight += sum;
            }
        }
    }
}

/// Returns the greatest float at each position of the chunks, or minus infinity without chunks.
/// Ignores NaN.
///
/// # Safety
///
/// The machine has the instruction set of `S`.
#[inline(always)]
unsafe fn find_greatest<S: Simd>(chunks: &[[f32; CHUNK]]) -> [f32; CHUNK] {
    // SAFETY: the caller promises the instruction set of `S`; vectors lie within chunks.
    unsafe {
        let mut greatest = [S::splat(f32::NEG_INFINITY); CHUNK / LEAST_LANES];
        let vectors = CHUNK / S::LANES;
        for chunk in chunks {
            for (v, greatest) in greatest[..vectors].iter_mut().enumerate() {
                *greatest = S::max(S::load(chunk.as_ptr().add(v * S::LANES)), *greatest);
            }
        }
        let mut out = [0.0; CHUNK];
        for (v, greatest) in greatest[..vectors].iter().enumerate() {
            S::store(out.as_mut_ptr().add(v * S::LANES), *greatest);
        }
        out
    }
}

/// Loop that replaces each float by `exp(x - shift)` and returns their sums by position in a chunk.
struct Exponentials<'a> {
    chunks: &'a mut [[f32; CHUNK]],
    shifts: [f32; CHUNK],
}

impl Loop for Exponentials<'_> {
    type Out = [f32; CHUNK];

    #[inline(always)]
    fn run<const FMA: bool>(self) -> [f32; CHUNK] {
        let mut sums = [0.0; CHUNK];
        for chunk in self.chunks {
            for ((x, shift), sum) in chunk.iter_mut().zip(&self.shifts).zip(&mut sums) {
                *x = Math::exp_nonpositive::<FMA>(*x - shift);
                *sum += *x;
            }
        }
        sums
    }
}

/// Loop that turns the greatest scores before a tile into the factors that rescale earlier sums.
struct Factors<'a> {
    x: &'a mut [f32],
    shifts: [f32; CHUNK],
}

impl Loop for Factors<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (x, shift) in self.x.iter_mut().zip(&self.shifts) {
            *x = Math::exp_nonpositive::<FMA>(*x - shift);
        }
    }
}

/// Body that replaces each float `x` by `cap * tanh(x)`.
pub(super) struct CapScores<'a> {
    pub(super) x: &'a mut [f32],
    pub(super) cap: f32,
}

impl Body for CapScores<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        S::run_loop(self);
    }
}

impl Loop for CapScores<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.x {
            *x = self.cap * Math::tanh::<FMA>(*x);
        }
    }
}
