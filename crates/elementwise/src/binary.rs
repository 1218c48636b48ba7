//! Arithmetic on two operands with broadcasting.

use super::broadcast::{BLOCK, Operand, Strided, Way, for_each_piece, gather};
use super::halves;
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Arithmetic operation on two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Quotient. Integers truncate; `x / 0` is 0 for them, and `MIN / -1` is `MIN`.
    Div,
    /// Maximum; NaN if either operand is NaN.
    Max,
    /// Minimum; NaN if either operand is NaN.
    Min,
    Pow,
    /// Remainder with the sign of the divisor; 0 for integers with divisor 0.
    Mod,
    /// Remainder with the sign of the dividend; 0 for integers with divisor 0.
    Fmod,
    /// `a` if `a` is not below zero, else `a * b`.
    PRelu,
    /// Square of `a - b`.
    SquaredDifference,
    /// `b`, or 0 if `b` is not finite and `a` is 0: slope that the gradient `a` is multiplied by.
    UsedSlope,
    /// `b`, or 1 if `b` is 0 or NaN and `a` is 0: divisor of the gradient `a`.
    UsedDivisor,
}

impl Binary {
    /// Estimates the cost of one element, in cheap operations.
    pub(super) fn work(self) -> usize {
        match self {
            Binary::Pow | Binary::Mod | Binary::Fmod => 30,
            Binary::Div => 2,
            _ => 1,
        }
    }
}

/// Operand whose buffer the output replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Computes `out = op(a, b)` over output dims `dims`.
///
/// `out` is contiguous.
///
/// # Panics
///
/// If the length of `out` is not the product of `dims`, a stride list has another length than
/// `dims`, or an operand is too short for its strides.
pub fn binary<T: BinaryElement>(
    exec: &Exec<'_>,
    op: Binary,
    dims: &[usize],
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(out.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let way = Way::new(dims, [a.strides, b.strides], [a.data.len(), b.data.len()], &mut walk);
    let level = Level::new(isa);
    fill(pool, out, op.work(), |start, out| {
        compute_part(level, op, way, start, a.data, b.data, out);
    })
}

/// Computes the outputs of [`binary`] from output `start` on.
pub(super) fn compute_part<T: BinaryElement>(
    level: Level,
    op: Binary,
    way: Way<'_, 2>,
    start: usize,
    a: &[T],
    b: &[T],
    out: &mut [T],
) {
    let steps = way.steps();
    way.rows(start, start + out.len(), |[at_a, at_b], at, n| {
        let out = &mut out[at - start..][..n];
        for_each_piece(&a[at_a..], &b[at_b..], steps, out, |a, b, out| {
            T::row(level, op, a, b, out);
        });
    });
}

/// Computes `a = op(a, b)` or, with [`Side::Right`], `a = op(b, a)`. `a` is contiguous with dims
/// `dims`; `b` is broadcast to them like operands of [`binary`].
///
/// # Panics
///
/// If the length of `a` is not the product of `dims`, strides have another length than `dims`, or
/// `b` is too short for its strides.
pub fn binary_in_place<T: BinaryElement>(
    exec: &Exec<'_>,
    op: Binary,
    side: Side,
    dims: &[usize],
    a: &mut [T],
    b: Strided<'_, T>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(a.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let way = Way::new(dims, [b.strides], [b.data.len()], &mut walk);
    let level = Level::new(isa);
    fill(pool, a, op.work(), |start, a| {
        compute_part_in_place(level, op, side, way, start, a, b.data);
    })
}

/// Computes the elements of [`binary_in_place`] from element `start` on.
pub(super) fn compute_part_in_place<T: BinaryElement>(
    level: Level,
    op: Binary,
    side: Side,
    way: Way<'_, 1>,
    start: usize,
    a: &mut [T],
    b: &[T],
) {
    let [step] = way.steps();
    way.rows(start, start + a.len(), |[at_b], at, n| {
        let a = &mut a[at - start..][..n];
        let b = &b[at_b..];
        if step < 2 {
            let b = if step == 0 { Operand::Constant(b[0]) } else { Operand::Slice(&b[..n]) };
            return T::row_in_place(level, op, side, a, b);
        }
        let mut block = [T::default(); BLOCK];
        for (i, a) in a.chunks_mut(BLOCK).enumerate() {
            let b = gather(&b[i * BLOCK * step..], step, a.len(), &mut block);
            T::row_in_place(level, op, side, a, b);
        }
    });
}

/// Element type of [`binary`]: each [`Number`]. The methods are loops over one row.
pub trait BinaryElement: Number {
    /// Computes `out = op(a, b)`.
    #[doc(hidden)]
    fn row(level: Level, op: Binary, a: Operand<'_, Self>, b: Operand<'_, Self>, out: &mut [Self]);
    /// Computes `a = op(a, b)`, or `a = op(b, a)` with [`Side::Right`].
    #[doc(hidden)]
    fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [Self], b: Operand<'_, Self>);
}

/// Operation on two elements of a wide type.
pub(crate) trait Map2<W: Arith>: Copy {
    /// Computes the operation.
    fn apply<const FMA: bool>(self, a: W, b: W) -> W;
}

macro_rules! operations {
    ($($name:ident |$a:ident, $b:ident| $value:expr;)*) => { $(
        #[derive(Clone, Copy)]
        struct $name;
        impl<W: Arith> Map2<W> for $name {
            #[inline(always)]
            fn apply<const FMA: bool>(self, $a: W, $b: W) -> W { $value }
        }
    )* };
}

operations! {
    Add |a, b| a.add(b);
    Sub |a, b| a.sub(b);
    Mul |a, b| a.mul(b);
    Div |a, b| a.div(b);
    Max |a, b| Arith::max(a, b);
    Min |a, b| Arith::min(a, b);
    Pow |a, b| Arith::pow(a, b);
    Mod |a, b| a.modulo(b);
    Fmod |a, b| Arith::rem(a, b);
    PRelu |a, b| if a < W::ZERO { a.mul(b) } else { a };
    SquaredDifference |a, b| { let d = a.sub(b); d.mul(d) };
    UsedSlope |a, b| if a == W::ZERO && b.sub(b) != W::ZERO { W::ZERO } else { b };
    UsedDivisor |a, b| if a == W::ZERO && (b == W::ZERO || b.is_nan()) { W::ONE } else { b };
}

/// Powers with a constant exponent that need no logarithm. Other powers are computed by the C
/// library's `pow`.
#[derive(Clone, Copy)]
enum Simple {
    Square,
    Cube,
    Root,
    Inverse,
}

impl Simple {
    fn from_exponent(exponent: f64) -> Option<Simple> {
        [(2.0, Simple::Square), (3.0, Simple::Cube), (0.5, Simple::Root), (-1.0, Simple::Inverse)]
            .into_iter()
            .find_map(|(value, simple)| (value == exponent).then_some(simple))
    }
}

#[derive(Clone, Copy)]
struct Squared;
#[derive(Clone, Copy)]
struct Cubed;
#[derive(Clone, Copy)]
struct Rooted;
#[derive(Clone, Copy)]
struct Inverted;

impl<W: Arith> Map2<W> for Squared {
    #[inline(always)]
    fn apply<const FMA: bool>(self, a: W, _: W) -> W {
        a.mul(a)
    }
}

impl<W: Arith> Map2<W> for Cubed {
    #[inline(always)]
    fn apply<const FMA: bool>(self, a: W, _: W) -> W {
        a.mul(a).mul(a)
    }
}

impl<W: Math> Map2<W> for Rooted {
    #[inline(always)]
    fn apply<const FMA: bool>(self, a: W, _: W) -> W {
        // As `pow` does, gives +0 for -0 and infinity for minus infinity.
        let root = Math::sqrt(a.add(W::ZERO));
        if a == W::LOWEST { W::HIGHEST } else { root }
    }
}

impl<W: Math> Map2<W> for Inverted {
    #[inline(always)]
    fn apply<const FMA: bool>(self, a: W, _: W) -> W {
        W::ONE.div(a)
    }
}

/// Calls `$run!(operation)` with the operation type for `$op`, or evaluates `$scalar` for
/// operations whose elements each take a call of the C library or a division, so that vectors gain
/// nothing.
macro_rules! with_operation {
    ($op:expr, $run:ident, $scalar:expr) => {
        match $op {
            Binary::Add => $run!(Add),
            Binary::Sub => $run!(Sub),
            Binary::Mul => $run!(Mul),
            Binary::Div => $run!(Div),
            Binary::Max => $run!(Max),
            Binary::Min => $run!(Min),
            Binary::PRelu => $run!(PRelu),
            Binary::SquaredDifference => $run!(SquaredDifference),
            Binary::UsedSlope => $run!(UsedSlope),
            Binary::UsedDivisor => $run!(UsedDivisor),
            Binary::Pow | Binary::Mod | Binary::Fmod => $scalar,
        }
    };
}

/// Calls `$run!(operation)` and returns if the operation is a power with a simple constant
/// exponent.
macro_rules! simple_power {
    ($op:expr, $b:expr, $run:ident) => {
        if $op == Binary::Pow
            && let Operand::Constant(exponent) = $b
        {
            match Simple::from_exponent(exponent.to_f64()) {
                Some(Simple::Square) => return $run!(Squared),
                Some(Simple::Cube) => return $run!(Cubed),
                Some(Simple::Root) => return $run!(Rooted),
                Some(Simple::Inverse) => return $run!(Inverted),
                None => {}
            }
        }
    };
}

/// Exact remainder of floats with the sign of the dividend; NaN if the quotient is too large.
///
/// The product of the truncated quotient and the divisor has at most 51 bits, so that an f64 holds
/// it. A quotient that was rounded up leaves a remainder of the other sign, which is corrected.
#[derive(Clone, Copy)]
struct RemainderOfQuotient;

impl Map2<f32> for RemainderOfQuotient {
    #[inline(always)]
    fn apply<const FMA: bool>(self, a: f32, b: f32) -> f32 {
        /// Value: largest quotient, of 27 bits: with 24 bits of the divisor, products fit the 53 of
        /// an f64.
        const MOST: f64 = (1u64 << 27) as f64;
        let (dividend, divisor) = (f64::from(a), f64::from(b));
        let quotient = (dividend / divisor).trunc();
        let rest = dividend - quotient * divisor;
        let back = if rest * dividend < 0.0 { divisor.abs().copysign(dividend) } else { 0.0 };
        let remainder = ((rest + back) as f32).copysign(a);
        if quotient.abs() < MOST { remainder } else { f32::NAN }
    }
}

/// Computes operations without a vector form: element by element, except remainders, most of which
/// have one.
fn call_on_floats(level: Level, op: Binary, a: &[f32], b: &[f32], out: &mut [f32]) {
    if op != Binary::Fmod {
        return both_plain(op, a, b, out);
    }
    level.run(Both { op: RemainderOfQuotient, a, b, out: &mut *out });
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        if out.is_nan() {
            *out = Arith::rem(*a, *b);
        }
    }
}

impl BinaryElement for f32 {
    fn row(level: Level, op: Binary, a: Operand<'_, f32>, b: Operand<'_, f32>, out: &mut [f32]) {
        macro_rules! run {
            ($op:expr) => {
                match (a, b) {
                    (Operand::Slice(a), Operand::Slice(b)) => {
                        level.run(Both { op: $op, a, b, out })
                    }
                    (Operand::Slice(a), Operand::Constant(b)) => {
                        level.run(ByRight { op: $op, a, b, out })
                    }
                    (Operand::Constant(a), Operand::Slice(b)) => {
                        level.run(ByLeft { op: $op, a, b, out })
                    }
                    (Operand::Constant(a), Operand::Constant(b)) => {
                        level.run(ByRight { op: $op, a: &[a], b, out: &mut out[..1] });
                        let value = out[0];
                        out.fill(value);
                    }
                }
            };
        }
        simple_power!(op, b, run);
        with_operation!(op, run, {
            row_of_slices(a, b, out, &|a, b, out| call_on_floats(level, op, a, b, out));
        });
    }

    fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [f32], b: Operand<'_, f32>) {
        macro_rules! run {
            ($op:expr) => {
                match (side, b) {
                    (Side::Left, Operand::Slice(b)) => level.run(IntoLeft { op: $op, a, b }),
                    (Side::Left, Operand::Constant(b)) => {
                        level.run(IntoLeftByRight { op: $op, a, b })
                    }
                    (Side::Right, Operand::Slice(b)) => {
                        level.run(IntoRight { op: $op, a: b, b: a })
                    }
                    (Side::Right, Operand::Constant(b)) => {
                        level.run(IntoRightByLeft { op: $op, a: b, b: a })
                    }
                }
            };
        }
        if side == Side::Left {
            simple_power!(op, b, run);
        }
        with_operation!(op, run, {
            in_place_of_slices(side, a, b, &|a, b, out| call_on_floats(level, op, a, b, out));
        });
    }
}

impl BinaryElement for f64 {
    fn row(level: Level, op: Binary, a: Operand<'_, f64>, b: Operand<'_, f64>, out: &mut [f64]) {
        macro_rules! run {
            ($op:expr) => {
                match (a, b) {
                    (Operand::Slice(a), Operand::Slice(b)) => {
                        level.run_avx2(Both { op: $op, a, b, out })
                    }
                    (Operand::Slice(a), Operand::Constant(b)) => {
                        level.run_avx2(ByRight { op: $op, a, b, out })
                    }
                    (Operand::Constant(a), Operand::Slice(b)) => {
                        level.run_avx2(ByLeft { op: $op, a, b, out })
                    }
                    (Operand::Constant(a), Operand::Constant(b)) => {
                        level.run_avx2(ByRight { op: $op, a: &[a], b, out: &mut out[..1] });
                        let value = out[0];
                        out.fill(value);
                    }
                }
            };
        }
        simple_power!(op, b, run);
        with_operation!(op, run, {
            row_of_slices(a, b, out, &|a, b, out| both_plain(op, a, b, out));
        });
    }

    fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [f64], b: Operand<'_, f64>) {
        each_block_in_place(side, a, b, &|a, b, out| f64::row(level, op, a, b, out));
    }
}

/// Implements [`BinaryElement`] for 16-bit floats: by vectors where instructions do the whole
/// operation, else by widening blocks for the loops of f32.
macro_rules! halves {
    ($($t:ty),*) => { $(
        impl BinaryElement for $t {
            fn row(level: Level, op: Binary, a: Operand<'_, $t>, b: Operand<'_, $t>, out: &mut [$t]) {
                if halves::row(level, op, a, b, out) {
                    return;
                }
                let (side, x, other) = match (a, b) {
                    (Operand::Slice(a), b) => (Side::Left, a, b),
                    (a, Operand::Slice(b)) => (Side::Right, b, a),
                    (Operand::Constant(a), b) => {
                        let mut one = [a];
                        <$t>::row_in_place(level, op, Side::Left, &mut one, b);
                        return out.fill(one[0]);
                    }
                };
                for (i, out) in out.chunks_mut(BLOCK).enumerate() {
                    out.copy_from_slice(&x[i * BLOCK..][..out.len()]);
                    <$t>::row_in_place(level, op, side, out, other.part(i * BLOCK, out.len()));
                }
            }

            fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [$t], b: Operand<'_, $t>) {
                if halves::row_in_place(level, op, side == Side::Right, a, b) {
                    return;
                }
                let (mut wide_a, mut wide_b) = ([0.0; BLOCK], [0.0; BLOCK]);
                for (i, a) in a.chunks_mut(BLOCK).enumerate() {
                    let wide_a = &mut wide_a[..a.len()];
                    <$t>::widen_all(level, a, wide_a);
                    let b = b.part(i * BLOCK, a.len()).widen(level, &mut wide_b);
                    f32::row_in_place(level, op, side, wide_a, b);
                    <$t>::narrow_all(level, wide_a, a);
                }
            }
        }
    )* };
}

halves!(half::f16, half::bf16);

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl BinaryElement for $t {
            fn row(_: Level, op: Binary, a: Operand<'_, $t>, b: Operand<'_, $t>, out: &mut [$t]) {
                row_of_slices(a, b, out, &|a, b, out| both_plain(op, a, b, out));
            }

            fn row_in_place(_: Level, op: Binary, side: Side, a: &mut [$t], b: Operand<'_, $t>) {
                in_place_of_slices(side, a, b, &|a, b, out| both_plain(op, a, b, out));
            }
        }
    )* };
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Computes `op` in the only form that loops of most types are compiled in: for the baseline of the
/// target, with both operands in slices.
fn both_plain<T: Number>(op: Binary, a: &[T], b: &[T], out: &mut [T]) {
    macro_rules! run {
        ($op:expr) => {
            Both { op: $op, a, b, out }.run::<false>()
        };
    }
    with_operation!(
        op,
        run,
        match op {
            Binary::Mod => run!(Mod),
            Binary::Fmod => run!(Fmod),
            _ => run!(Pow),
        }
    );
}

/// Computes a row by a loop over two slices. A constant fills a block on the stack.
fn row_of_slices<T: Number>(
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    out: &mut [T],
    both: &dyn Fn(&[T], &[T], &mut [T]),
) {
    let constant = match (a, b) {
        (Operand::Slice(a), Operand::Slice(b)) => return both(a, b, out),
        (Operand::Constant(a), Operand::Constant(b)) => {
            both(&[a], &[b], &mut out[..1]);
            let value = out[0];
            return out.fill(value);
        }
        (Operand::Constant(x), _) | (_, Operand::Constant(x)) => x,
    };
    let block = [constant; BLOCK];
    for (i, out) in out.chunks_mut(BLOCK).enumerate() {
        let slice = |x| match x {
            Operand::Slice(x) => &x[i * BLOCK..][..out.len()],
            Operand::Constant(_) => &block[..out.len()],
        };
        both(slice(a), slice(b), out);
    }
}

/// Replaces the operand `a` of a row by the results, block by block: `row` reads a copy on the
/// stack. A loop that reads and writes the same memory would have to be compiled separately.
fn each_block_in_place<T: Number>(
    side: Side,
    a: &mut [T],
    b: Operand<'_, T>,
    row: &dyn Fn(Operand<'_, T>, Operand<'_, T>, &mut [T]),
) {
    let mut copy = [T::default(); BLOCK];
    for (i, a) in a.chunks_mut(BLOCK).enumerate() {
        let copy = &mut copy[..a.len()];
        copy.copy_from_slice(a);
        let b = b.part(i * BLOCK, a.len());
        match side {
            Side::Left => row(Operand::Slice(copy), b, a),
            Side::Right => row(b, Operand::Slice(copy), a),
        }
    }
}

/// Computes a row like [`row_of_slices`], in place of `a`.
fn in_place_of_slices<T: Number>(
    side: Side,
    a: &mut [T],
    b: Operand<'_, T>,
    both: &dyn Fn(&[T], &[T], &mut [T]),
) {
    each_block_in_place(side, a, b, &|a, b, out| row_of_slices(a, b, out, both));
}

/// Loop over two slices.
struct Both<'a, T, O> {
    op: O,
    a: &'a [T],
    b: &'a [T],
    out: &'a mut [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for Both<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = T::narrow(self.op.apply::<FMA>(a.widen(), b.widen()));
        }
    }
}

/// Loop over a slice and a constant right operand.
struct ByRight<'a, T, O> {
    op: O,
    a: &'a [T],
    b: T,
    out: &'a mut [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for ByRight<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let b = self.b.widen();
        for (out, a) in self.out.iter_mut().zip(self.a) {
            *out = T::narrow(self.op.apply::<FMA>(a.widen(), b));
        }
    }
}

/// Loop over a constant left operand and a slice.
struct ByLeft<'a, T, O> {
    op: O,
    a: T,
    b: &'a [T],
    out: &'a mut [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for ByLeft<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let a = self.a.widen();
        for (out, b) in self.out.iter_mut().zip(self.b) {
            *out = T::narrow(self.op.apply::<FMA>(a, b.widen()));
        }
    }
}

/// Loop over two slices, in place of the left one.
struct IntoLeft<'a, T, O> {
    op: O,
    a: &'a mut [T],
    b: &'a [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for IntoLeft<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (a, b) in self.a.iter_mut().zip(self.b) {
            *a = T::narrow(self.op.apply::<FMA>(a.widen(), b.widen()));
        }
    }
}

/// Loop over a slice, in place, and a constant right operand.
struct IntoLeftByRight<'a, T, O> {
    op: O,
    a: &'a mut [T],
    b: T,
}

impl<T: Number, O: Map2<T::Wide>> Loop for IntoLeftByRight<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let b = self.b.widen();
        for a in self.a {
            *a = T::narrow(self.op.apply::<FMA>(a.widen(), b));
        }
    }
}

/// Loop over two slices, in place of the right one.
struct IntoRight<'a, T, O> {
    op: O,
    a: &'a [T],
    b: &'a mut [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for IntoRight<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (b, a) in self.b.iter_mut().zip(self.a) {
            *b = T::narrow(self.op.apply::<FMA>(a.widen(), b.widen()));
        }
    }
}

/// Loop over a constant left operand and a slice, in place.
struct IntoRightByLeft<'a, T, O> {
    op: O,
    a: T,
    b: &'a mut [T],
}

impl<T: Number, O: Map2<T::Wide>> Loop for IntoRightByLeft<'_, T, O> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let a = self.a.widen();
        for b in self.b {
            *b = T::narrow(self.op.apply::<FMA>(a, b.widen()));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
