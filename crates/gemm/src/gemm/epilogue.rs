//! Epilogues: operations on a product before it is stored. Scale, bias, addend, residual,
//! activation, factor, in this order.

use std::marker::PhantomData;

use super::matrix::MatRef;
use super::segments::{self, Gate};
use sardonyx_elementwise::operations as op;
use sardonyx_elementwise::operations::Map;
use sardonyx_simd::vecmath::{self, RowPair, map_vectors};
use sardonyx_simd::{Body, Isa, Simd};

/// Function that is applied to each output. NaN stays NaN in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, lo), hi)`; `hi` wins when they cross.
    Clip(f32, f32),
    /// `x` when positive, else `alpha * x`.
    LeakyRelu(f32),
    /// `min(max(alpha * x + beta, 0), 1)`.
    HardSigmoid(f32, f32),
    /// `x * min(max(x / 6 + 1/2, 0), 1)`.
    HardSwish,
    /// `x / 2 * (1 + erf(x / sqrt 2))`.
    Gelu,
    /// Approximation of `Gelu` with tanh.
    GeluTanh,
    Sigmoid,
    /// `x * sigmoid(alpha * x)`.
    Swish(f32),
    Tanh,
}

impl Activation {
    /// Applies the activation to one value, for scalar code and as the reference of the vector
    /// form.
    #[inline]
    pub fn apply(self, x: f32) -> f32 {
        // Comparisons are ordered so that NaN falls through to itself.
        let clip = |x: f32, lo: f32, hi: f32| {
            let x = if lo > x { lo } else { x };
            if hi < x { hi } else { x }
        };
        match self {
            Activation::None => x,
            Activation::Relu => {
                if 0.0 > x {
                    0.0
                } else {
                    x
                }
            }
            Activation::Clip(lo, hi) => clip(x, lo, hi),
            Activation::LeakyRelu(alpha) => {
                if x < 0.0 {
                    alpha * x
                } else {
                    x
                }
            }
            Activation::HardSigmoid(alpha, beta) => clip(alpha * x + beta, 0.0, 1.0),
            Activation::HardSwish => x * clip(x * (1.0 / 6.0) + 0.5, 0.0, 1.0),
            other => other.apply_function(x),
        }
    }

    /// Applies an activation that is a function rather than a few comparisons, in arithmetic
    /// without branches, so that loops around it vectorize. Other activations return `x`.
    #[inline(always)]
    fn apply_function(self, x: f32) -> f32 {
        match self {
            Activation::Gelu => op::Gelu(PhantomData, []).apply::<false>(x),
            Activation::GeluTanh => op::GeluTanh(PhantomData, []).apply::<false>(x),
            Activation::Sigmoid => op::Sigmoid(PhantomData, []).apply::<false>(x),
            Activation::Swish(alpha) => op::Swish(PhantomData, [alpha]).apply::<false>(x),
            Activation::Tanh => op::Tanh(PhantomData, []).apply::<false>(x),
            _ => x,
        }
    }

    /// Applies [`Activation::apply_function`] to each number, with the instructions of `S`.
    #[inline(always)]
    pub(crate) fn apply_function_to<S: Simd>(self, lanes: &mut [f32]) {
        if S::ISA == Isa::Portable {
            return self.apply_function_in_loops(lanes);
        }
        if let Some((gate, scale)) = self.table_gate::<S>() {
            // SAFETY: code for this instruction set runs only on machines that have it.
            return unsafe { segments::apply_to_slice::<S>(gate, scale, lanes) };
        }
        let (to, cols) = (lanes.as_mut_ptr(), lanes.len());
        let places = RowPair { from: to, to, rows: 1, cols, from_stride: 0, to_stride: 0 };
        // SAFETY: code for this instruction set runs only on machines that have it; the slice is
        // valid.
        unsafe { self.write_function::<S>(&places) }
    }

    /// Returns the gate and its scale if tables in registers replace arithmetic.
    #[inline(always)]
    fn table_gate<S: Simd>(self) -> Option<(Gate, f32)> {
        match self {
            _ if S::ISA != Isa::Avx512 => None,
            Activation::Gelu => Some((Gate::Normal, 1.0)),
            Activation::GeluTanh => Some((Gate::NormalTanh, 1.0)),
            Activation::Swish(alpha) if (0.0..=1e30).contains(&alpha) => {
                Some((Gate::Logistic, alpha))
            }
            _ => None,
        }
    }

    /// Whether [`Activation::write_function`] applies the function on `S`.
    #[inline(always)]
    pub(crate) fn is_arithmetic<S: Simd>(self) -> bool {
        S::ISA != Isa::Portable && self.table_gate::<S>().is_none()
    }

    /// Writes [`Activation::apply_function`] of each number in vectors. Matches the activation
    /// once, so that each loop has one body.
    ///
    /// # Safety
    ///
    /// The demands of [`map_vectors`] must hold.
    #[inline(always)]
    pub(crate) unsafe fn write_function<S: Simd>(self, places: &RowPair) {
        // SAFETY: the caller upholds the demands of `map_vectors`.
        unsafe {
            match self {
                Activation::Gelu => map_vectors::<S, _>(vecmath::Gelu, places),
                Activation::GeluTanh => map_vectors::<S, _>(vecmath::GeluTanh, places),
                Activation::Sigmoid => map_vectors::<S, _>(vecmath::Sigmoid, places),
                Activation::Swish(alpha) => map_vectors::<S, _>(vecmath::Swish(alpha), places),
                Activation::Tanh => map_vectors::<S, _>(vecmath::Tanh, places),
                _ => {}
            }
        }
    }

    /// Applies [`Activation::apply_function`] to each number in loops that the compiler vectorizes
    /// for the target. It must not know a short length, for which it would unroll the loop first.
    #[inline(always)]
    fn apply_function_in_loops(self, lanes: &mut [f32]) {
        macro_rules! each {
            ($activation:expr) => {
                for lane in lanes {
                    *lane = $activation.apply_function(*lane);
                }
            };
        }
        match self {
            Activation::Gelu => each!(Activation::Gelu),
            Activation::GeluTanh => each!(Activation::GeluTanh),
            Activation::Sigmoid => each!(Activation::Sigmoid),
            Activation::Swish(alpha) => each!(Activation::Swish(alpha)),
            Activation::Tanh => each!(Activation::Tanh),
            _ => {}
        }
    }

    /// Whether the activation takes more than a few comparisons. Such functions are applied to many
    /// numbers in memory at a time.
    #[inline(always)]
    pub fn is_function(self) -> bool {
        matches!(
            self,
            Activation::Gelu
                | Activation::GeluTanh
                | Activation::Sigmoid
                | Activation::Swish(_)
                | Activation::Tanh
        )
    }

    /// Loads the constants of the activation into registers.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold.
    #[inline(always)]
    pub(crate) unsafe fn prepare<S: Simd>(self) -> Prepared<S> {
        let (kind, a, b) = match self {
            Activation::None => (Kind::None, 0.0, 0.0),
            Activation::Relu => (Kind::Relu, 0.0, 0.0),
            Activation::Clip(lo, hi) => (Kind::Clip, lo, hi),
            Activation::LeakyRelu(alpha) => (Kind::Leaky, alpha, 0.0),
            Activation::HardSigmoid(alpha, beta) => (Kind::HardSigmoid, alpha, beta),
            Activation::HardSwish => (Kind::HardSwish, 1.0 / 6.0, 0.5),
            // Functions are applied to numbers in memory instead.
            _ => (Kind::None, 0.0, 0.0),
        };
        // SAFETY: the caller runs on a machine with `S`.
        unsafe { Prepared { kind, a: S::splat(a), b: S::splat(b) } }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    None,
    Relu,
    Clip,
    Leaky,
    HardSigmoid,
    HardSwish,
}

/// An [`Activation`] with its constants in vectors.
#[derive(Clone, Copy)]
pub(crate) struct Prepared<S: Simd> {
    kind: Kind,
    a: S::V,
    b: S::V,
}

impl<S: Simd> Prepared<S> {
    /// Applies the activation. The constant comes first in every minimum and maximum, so that NaN
    /// in `x` stays.
    #[inline(always)]
    pub(crate) fn apply(&self, x: S::V) -> S::V {
        // SAFETY: `prepare` was called where `S` may run, and values of `S::V` do not leave such
        // code.
        unsafe {
            let (zero, one) = (S::splat(0.0), S::splat(1.0));
            match self.kind {
                Kind::None => x,
                Kind::Relu => S::max(self.a, x),
                Kind::Clip => S::min(self.b, S::max(self.a, x)),
                Kind::Leaky => {
                    // One of the two parts is zero; `x` second in both keeps NaN.
                    S::fma(self.a, S::min(zero, x), S::max(zero, x))
                }
                Kind::HardSigmoid => S::min(one, S::max(zero, S::fma(self.a, x, self.b))),
                Kind::HardSwish => S::mul(x, S::min(one, S::max(zero, S::fma(self.a, x, self.b)))),
            }
        }
    }
}

/// A vector added to every column or to every row.
#[derive(Clone, Copy, Debug)]
pub enum Bias<'a> {
    /// One value per row of the output (output channels of a convolution).
    Row(&'a [f32]),
    /// One value per column of the output (features of a linear layer).
    Col(&'a [f32]),
}

/// Operations on a result before it is stored: `activation(alpha * product + bias + beta * addend +
/// residual) * factor`, applied while the result is in registers. A convolution is a product whose
/// rows are its output channels and whose columns are its output positions.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue<'a> {
    pub alpha: f32,
    pub bias: Option<Bias<'a>>,
    /// `beta`, and a matrix of the output's size; strides of zero broadcast.
    pub addend: Option<(f32, MatRef<'a>)>,
    /// A matrix in the layout of the output slice: equal offsets, equal row stride.
    pub residual: Option<&'a [f32]>,
    pub activation: Activation,
    /// A matrix in the layout of the output slice.
    pub factor: Option<&'a [f32]>,
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue {
            alpha: 1.0,
            bias: None,
            addend: None,
            residual: None,
            activation: Activation::None,
            factor: None,
        }
    }
}

impl Epilogue<'_> {
    /// Checks all parts against an output of `m` rows of `n` columns that spans `c_len` floats.
    pub(crate) fn check(&self, m: usize, n: usize, c_len: usize) {
        match self.bias {
            Some(Bias::Row(b)) => assert!(b.len() >= m, "row bias of {} for {m} rows", b.len()),
            Some(Bias::Col(b)) => assert!(b.len() >= n, "column bias of {} for {n}", b.len()),
            None => {}
        }
        if let Some((_, c0)) = self.addend {
            assert_eq!((c0.rows(), c0.cols()), (m, n), "size of the addend");
        }
        if let Some(r) = self.residual {
            assert!(r.len() >= c_len, "residual of {} for {c_len}", r.len());
        }
        if let Some(f) = self.factor {
            assert!(f.len() >= c_len, "factor of {} for {c_len}", f.len());
        }
    }

    /// Converts checked parts to pointers, for an output with a row stride of `ldc`.
    pub(crate) fn raw(&self, ldc: usize) -> TileEpilogue {
        let null = std::ptr::null();
        let (row_bias, col_bias) = match self.bias {
            Some(Bias::Row(b)) => (b.as_ptr(), null),
            Some(Bias::Col(b)) => (null, b.as_ptr()),
            None => (null, null),
        };
        let (beta, addend, addend_rs, addend_cs) = match self.addend {
            Some((beta, c)) => (beta, c.as_ptr(), c.row_stride(), c.col_stride()),
            None => (0.0, null, 0, 0),
        };
        TileEpilogue {
            alpha: self.alpha,
            row_bias,
            col_bias,
            beta,
            addend,
            addend_rs,
            addend_cs,
            residual: self.residual.map_or(null, <[f32]>::as_ptr),
            residual_rs: ldc,
            activation: self.activation,
            factor: self.factor.map_or(null, <[f32]>::as_ptr),
            factor_rs: ldc,
        }
    }
}

/// An [`Epilogue`] in the form that the microkernel reads. Null pointers are parts that are
/// missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileEpilogue {
    pub(crate) alpha: f32,
    pub(crate) row_bias: *const f32,
    pub(crate) col_bias: *const f32,
    pub(crate) beta: f32,
    pub(crate) addend: *const f32,
    pub(crate) addend_rs: usize,
    pub(crate) addend_cs: usize,
    pub(crate) residual: *const f32,
    /// Row stride of `residual`, in floats.
    pub(crate) residual_rs: usize,
    pub(crate) activation: Activation,
    pub(crate) factor: *const f32,
    /// Row stride of `factor`, in floats.
    pub(crate) factor_rs: usize,
}

// SAFETY: only reads, from memory that is borrowed for the whole call that made it.
unsafe impl Send for TileEpilogue {}
// SAFETY: only reads, from memory that is borrowed for the whole call that made it.
unsafe impl Sync for TileEpilogue {}

impl TileEpilogue {
    /// Epilogue without any operation.
    pub(crate) const PLAIN: TileEpilogue = TileEpilogue {
        alpha: 1.0,
        row_bias: std::ptr::null(),
        col_bias: std::ptr::null(),
        beta: 0.0,
        addend: std::ptr::null(),
        addend_rs: 0,
        addend_cs: 0,
        residual: std::ptr::null(),
        residual_rs: 0,
        activation: Activation::None,
        factor: std::ptr::null(),
        factor_rs: 0,
    };

    /// Returns the epilogue of the part of the output that starts at (`row`, `col`).
    #[inline(always)]
    pub(crate) fn at(&self, row: usize, col: usize) -> TileEpilogue {
        // Null stays null. Other pointers stay inside their matrices because row and column are
        // inside the output.
        let step = |p: *const f32, by: usize| if p.is_null() { p } else { p.wrapping_add(by) };
        TileEpilogue {
            row_bias: step(self.row_bias, row),
            col_bias: step(self.col_bias, col),
            addend: step(self.addend, row * self.addend_rs + col * self.addend_cs),
            residual: step(self.residual, row * self.residual_rs + col),
            factor: step(self.factor, row * self.factor_rs + col),
            ..*self
        }
    }

    /// Returns the epilogue of the output that begins `elements` elements later: residual and
    /// factor move, the other parts stay.
    #[inline(always)]
    pub(crate) fn skip(&self, elements: usize) -> TileEpilogue {
        let step = |p: *const f32| if p.is_null() { p } else { p.wrapping_add(elements) };
        TileEpilogue { residual: step(self.residual), factor: step(self.factor), ..*self }
    }

    /// Splits the epilogue into the parts before and after the function, which is applied to many
    /// numbers in memory at a time; `None` without a function.
    #[inline(always)]
    pub(crate) fn split_at_function(&self) -> Option<(TileEpilogue, TileEpilogue)> {
        self.activation.is_function().then(|| {
            let null = std::ptr::null();
            let before = TileEpilogue { activation: Activation::None, factor: null, ..*self };
            let (factor, factor_rs) = (self.factor, self.factor_rs);
            (before, TileEpilogue { factor, factor_rs, ..TileEpilogue::PLAIN })
        })
    }

    /// Returns the parts before the function, or the whole epilogue if it has no function.
    #[inline(always)]
    pub(crate) fn before_function(&self) -> TileEpilogue {
        self.split_at_function().map_or(*self, |(before, _)| before)
    }

    /// Whether the epilogue has no operation.
    pub(crate) fn is_plain(&self) -> bool {
        self.alpha == 1.0
            && self.row_bias.is_null()
            && self.col_bias.is_null()
            && self.addend.is_null()
            && self.residual.is_null()
            && self.activation == Activation::None
            && self.factor.is_null()
    }

    /// Whether the epilogue has at most a bias of columns.
    pub(crate) fn is_column_bias(&self) -> bool {
        TileEpilogue { col_bias: std::ptr::null(), ..*self }.is_plain()
    }

    /// Splits the epilogue of a convolution whose rows are pixels into parts that take a few
    /// instructions per vector and the rest: residual, activation and factor.
    pub(crate) fn split_short(&self) -> (ShortEpilogue, TileEpilogue) {
        let Self { col_bias: bias, residual, residual_rs, activation, .. } = *self;
        let rest = TileEpilogue { residual, residual_rs, ..self.after_residual() };
        debug_assert!(self.alpha == 1.0 && self.row_bias.is_null() && self.addend.is_null());
        let is_short = matches!(
            activation,
            Activation::None | Activation::Relu | Activation::Clip(..) | Activation::HardSwish
        );
        if is_short && residual.is_null() {
            let rest = TileEpilogue { activation: Activation::None, ..rest };
            (ShortEpilogue { bias, activation }, rest)
        } else {
            (ShortEpilogue { bias, activation: Activation::None }, rest)
        }
    }

    /// Returns the limits to which the activation clamps.
    #[inline(always)]
    pub(crate) fn limits(&self) -> (f32, f32) {
        match self.activation {
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Clip(lo, hi) => (lo, hi),
            _ => (f32::NEG_INFINITY, f32::INFINITY),
        }
    }

    /// Returns the parts after the residual.
    #[inline(always)]
    pub(crate) fn after_residual(&self) -> TileEpilogue {
        let Self { activation, factor, factor_rs, .. } = *self;
        TileEpilogue { activation, factor, factor_rs, ..TileEpilogue::PLAIN }
    }

    /// Finishes the vector of row 0 from column `col` on, with `n` lanes, in the order of
    /// operations of the tile. A function is left to [`ApplyFunction`], with the parts after it.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold; the pointers are valid for these columns.
    #[inline(always)]
    pub(crate) unsafe fn finish_linear<S: Simd>(&self, mut x: S::V, col: usize, n: usize) -> S::V {
        // SAFETY: the caller has pointers that are valid for these columns; masks leave out other
        // lanes.
        unsafe {
            let mask = S::first(n);
            if self.alpha != 1.0 {
                x = S::mul(S::splat(self.alpha), x);
            }
            if !self.row_bias.is_null() {
                x = S::add(x, S::splat(*self.row_bias));
            }
            if !self.col_bias.is_null() {
                x = S::add(x, S::load_m(self.col_bias.add(col), mask));
            }
            if !self.addend.is_null() {
                let lanes = ((1u64 << n.min(S::LANES)) - 1) as u32;
                let p = self.addend.add(col * self.addend_cs);
                let c0 = S::select(S::splat(0.0), lanes, p, self.addend_cs);
                x = S::fma(S::splat(self.beta), c0, x);
            }
            if !self.residual.is_null() {
                x = S::add(x, S::load_m(self.residual.add(col), mask));
            }
            if self.activation != Activation::None {
                x = self.activation.prepare::<S>().apply(x);
            }
            if !self.factor.is_null() {
                x = S::mul(x, S::load_m(self.factor.add(col), mask));
            }
            x
        }
    }
}

/// A bias of columns and an activation of a few instructions, which need no registers of their own
/// in the loops of a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortEpilogue {
    /// One number per column; null for none.
    bias: *const f32,
    /// No activation, limits or [`Activation::HardSwish`].
    activation: Activation,
}

// SAFETY: only reads, from memory that is borrowed for the whole call that made it.
unsafe impl Send for ShortEpilogue {}
// SAFETY: only reads, from memory that is borrowed for the whole call that made it.
unsafe impl Sync for ShortEpilogue {}

impl ShortEpilogue {
    /// Finishes the vector of columns from `col` on in each of `R` rows.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold; `mask` selects columns of the output only.
    #[inline(always)]
    pub(crate) unsafe fn finish<S: Simd, const R: usize>(
        &self,
        mut sums: [S::V; R],
        col: usize,
        mask: S::M,
    ) -> [S::V; R] {
        // SAFETY: the caller has a mask that selects columns of the output only.
        unsafe {
            if !self.bias.is_null() {
                let bias = S::load_m(self.bias.add(col), mask);
                for sum in &mut sums {
                    *sum = S::add(*sum, bias);
                }
            }
            match self.activation {
                Activation::Relu => Self::apply::<S, R>(sums, Activation::Relu),
                Activation::Clip(lo, hi) => Self::apply::<S, R>(sums, Activation::Clip(lo, hi)),
                Activation::HardSwish => Self::apply::<S, R>(sums, Activation::HardSwish),
                _ => sums,
            }
        }
    }

    /// Applies an activation whose variant the compiler knows.
    #[inline(always)]
    unsafe fn apply<S: Simd, const R: usize>(
        mut sums: [S::V; R],
        activation: Activation,
    ) -> [S::V; R] {
        // SAFETY: the caller runs on a machine with `S`.
        let prepared = unsafe { activation.prepare::<S>() };
        for sum in &mut sums {
            *sum = prepared.apply(*sum);
        }
        sums
    }
}

/// Body that applies the function of an epilogue, and the parts after it, to a part of an output
/// that has the parts before it. Longer runs of numbers have fewer loop ends.
pub(crate) struct ApplyFunction {
    /// Epilogue of the part of the output. Without a function in it, nothing changes.
    pub(crate) epilogue: TileEpilogue,
    /// Output, `rows` rows of `cols` values.
    pub(crate) out: *mut f32,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Row stride of `out`, in floats.
    pub(crate) ldc: usize,
}

impl Body for ApplyFunction {
    type Out = ();

    /// Applies the function.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold. The part is valid and written by this call alone, and the
    /// pointers of the epilogue are valid for it.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Some((_, after)) = self.epilogue.split_at_function() else {
            return;
        };
        // Rows without a gap are one row.
        let is_dense = self.ldc == self.cols && (after.is_plain() || after.factor_rs == self.ldc);
        let (rows, cols) =
            if is_dense { (1, self.rows * self.cols) } else { (self.rows, self.cols) };
        for row in 0..rows {
            // SAFETY: the caller has a valid part, written by this call alone.
            unsafe {
                let out = self.out.add(row * self.ldc);
                let all = std::slice::from_raw_parts_mut(out, cols);
                self.epilogue.activation.apply_function_to::<S>(all);
                if after.is_plain() {
                    continue;
                }
                let after = after.at(row, 0);
                for col in (0..cols).step_by(S::LANES) {
                    let n = S::LANES.min(cols - col);
                    let x = S::load_m(out.add(col), S::first(n));
                    let x = after.finish_linear::<S>(x, col, n);
                    S::store_m(out.add(col), S::first(n), x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_elementwise::{Unary, unary_in_place};
    use sardonyx_simd::{Exec, Pool, dispatch};

    struct Apply<'a>(Activation, &'a [f32; 16], &'a mut [f32; 16]);
    impl Body for Apply<'_> {
        type Out = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            // SAFETY: 16 is a multiple of the lanes of every instruction set.
            unsafe {
                let epilogue = Epilogue { activation: self.0, ..Epilogue::default() };
                let epilogue = epilogue.raw(8);
                let before = epilogue.before_function();
                let out = self.2.as_mut_ptr();
                for i in (0..16).step_by(S::LANES) {
                    let x = S::load(self.1.as_ptr().add(i));
                    S::store(out.add(i), before.finish_linear::<S>(x, i, 16 - i));
                }
                ApplyFunction { epilogue, out, rows: 2, cols: 8, ldc: 8 }.run::<S>();
            }
        }
    }

    #[test]
    fn vector_activations_agree_with_scalar_ones_and_keep_nan() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = [
            nan, -nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, -7.0, 1e-40, -1e-40, 3e38,
            -3e38,
        ];
        let acts = [
            Activation::None,
            Activation::Relu,
            Activation::Clip(-2.0, 6.0),
            Activation::Clip(3.0, 1.0),
            Activation::LeakyRelu(0.1),
            Activation::HardSigmoid(0.2, 0.5),
            Activation::HardSwish,
            Activation::Sigmoid,
            Activation::Tanh,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swish(1.5),
        ];
        for act in acts {
            for &isa in Isa::available() {
                let mut y = [0.0; 16];
                // SAFETY: the machine has `isa`.
                unsafe { dispatch(isa, Apply(act, &x, &mut y)) };
                for (x, y) in x.iter().zip(y) {
                    let want = act.apply(*x);
                    // Where its parts cancel, a function is as exact as its argument.
                    let close = (want - y).abs() <= 2e-6 * want.abs() + 6e-8 * x.abs();
                    assert!(
                        want == y || want.is_nan() && y.is_nan() || close,
                        "{act:?} {isa:?}: {x} -> {y}, not {want}"
                    );
                }
            }
        }
    }

    struct Function<'a>(Activation, &'a mut [f32]);
    impl Body for Function<'_> {
        type Out = ();
        #[inline(always)]
        unsafe fn run<S: Simd>(self) {
            self.0.apply_function_to::<S>(self.1);
        }
    }

    #[test]
    fn functions_have_the_bits_of_the_operators() {
        let x: Vec<f32> = (-5000..5000).map(|i| i as f32 * 3.7e-3).collect();
        for (activation, operation) in [
            (Activation::Sigmoid, Unary::Sigmoid),
            (Activation::Tanh, Unary::Tanh),
            (Activation::Gelu, Unary::Gelu),
            (Activation::GeluTanh, Unary::GeluTanh),
            (Activation::Swish(1.5), Unary::Swish { alpha: 1.5 }),
        ] {
            for &isa in Isa::available() {
                if isa == Isa::Avx512
                    && !matches!(activation, Activation::Sigmoid | Activation::Tanh)
                {
                    // Gates by tables have other bits.
                    continue;
                }
                let (mut y, mut expected) = (x.clone(), x.clone());
                // SAFETY: the machine has `isa`.
                unsafe { dispatch(isa, Function(activation, &mut y)) };
                unary_in_place(&Exec::new(&Pool::new(1), isa), operation, &mut expected).unwrap();
                for (x, (y, expected)) in x.iter().zip(y.iter().zip(&expected)) {
                    assert_eq!(y.to_bits(), expected.to_bits(), "{activation:?} {isa:?} {x}");
                }
            }
        }
    }
}
