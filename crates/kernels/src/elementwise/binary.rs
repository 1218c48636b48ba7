//! Arithmetic on two operands with broadcasting.

use super::broadcast::{BLOCK, Operand, Strided, Way, gathered, row_of_two};
use super::chunks::fill;
use crate::Exec;
use crate::number::{Arith, Math, Number};
use crate::simd::{Level, Loop};

/// An arithmetic operation on two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Integers truncate; x / 0 is 0 for them and MIN / -1 is MIN.
    Div,
    /// NaN if either operand is.
    Max,
    /// NaN if either operand is.
    Min,
    Pow,
    /// The remainder with the sign of the divisor; 0 for integers when that is 0.
    Mod,
    /// The remainder with the sign of the dividend; 0 for integers when the divisor is 0.
    Fmod,
    /// `a` where it is not below zero, else `a * b`.
    PRelu,
    /// `(a - b)` squared.
    SquaredDifference,
}

impl Binary {
    /// A guess at the cost of one element, in units of a cheap one.
    pub(super) fn work(self) -> usize {
        match self {
            Binary::Pow | Binary::Mod | Binary::Fmod => 30,
            Binary::Div => 2,
            _ => 1,
        }
    }
}

/// The operand whose buffer the output takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// `out = op(a, b)` over output dims `dims`.
///
/// `out` is contiguous.
///
/// # Panics
///
/// If `out` has not the size of `dims`, a stride list not their length, or an operand is too short
/// for its strides.
pub fn binary<T: BinaryElement>(
    exec: &Exec<'_>,
    op: Binary,
    dims: &[usize],
    a: Strided<'_, T>,
    b: Strided<'_, T>,
    out: &mut [T],
) {
    let &Exec { pool, isa } = exec;
    assert_eq!(out.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let way = Way::new(dims, [a.strides, b.strides], [a.data.len(), b.data.len()], &mut walk);
    let level = Level::new(isa);
    fill(pool, out, op.work(), |start, out| {
        part(level, op, way, start, a.data, b.data, out);
    });
}

/// The outputs of [`binary`] from number `start` on.
pub(super) fn part<T: BinaryElement>(
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
        row_of_two(&a[at_a..], &b[at_b..], steps, out, |a, b, out| {
            T::row(level, op, a, b, out);
        });
    });
}

/// `a = op(a, b)` or, when `side` says that `a` is the right operand, `a = op(b, a)`. `a` is
/// contiguous with dims `dims`; `b` has strides as in [`binary`].
///
/// # Panics
///
/// As [`binary`].
pub fn binary_in_place<T: BinaryElement>(
    exec: &Exec<'_>,
    op: Binary,
    side: Side,
    dims: &[usize],
    a: &mut [T],
    b: Strided<'_, T>,
) {
    let &Exec { pool, isa } = exec;
    assert_eq!(a.len(), dims.iter().product(), "the output has other dims");
    let mut walk = None;
    let way = Way::new(dims, [b.strides], [b.data.len()], &mut walk);
    let level = Level::new(isa);
    fill(pool, a, op.work(), |start, a| {
        part_in_place(level, op, side, way, start, a, b.data);
    });
}

/// The elements of [`binary_in_place`] from number `start` on.
pub(super) fn part_in_place<T: BinaryElement>(
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
            let b = gathered(&b[i * BLOCK * step..], step, a.len(), &mut block);
            T::row_in_place(level, op, side, a, b);
        }
    });
}

/// An element type [`binary`] works on: every [`Number`]. The methods are loops over one row.
pub trait BinaryElement: Number {
    #[doc(hidden)]
    fn row(level: Level, op: Binary, a: Operand<'_, Self>, b: Operand<'_, Self>, out: &mut [Self]);
    #[doc(hidden)]
    fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [Self], b: Operand<'_, Self>);
}

/// An operation on two elements of a wide type.
pub(crate) trait Map2<W: Arith>: Copy {
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
}

/// Powers with a constant exponent that need no logarithm. Others take the C library's `pow`,
/// element by element.
#[derive(Clone, Copy)]
enum Simple {
    Square,
    Cube,
    Root,
    Inverse,
}

impl Simple {
    fn of(exponent: f64) -> Option<Simple> {
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
        // Unlike the square root, pow gives +0 for -0 and infinity for minus infinity.
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

macro_rules! with_operation {
    ($op:expr, $run:ident) => {
        match $op {
            Binary::Add => $run!(Add),
            Binary::Sub => $run!(Sub),
            Binary::Mul => $run!(Mul),
            Binary::Div => $run!(Div),
            Binary::Max => $run!(Max),
            Binary::Min => $run!(Min),
            Binary::Pow => $run!(Pow),
            Binary::Mod => $run!(Mod),
            Binary::Fmod => $run!(Fmod),
            Binary::PRelu => $run!(PRelu),
            Binary::SquaredDifference => $run!(SquaredDifference),
        }
    };
}

/// `level.$run` is how much of the instruction set the type uses; `power` handles simple exponents.
macro_rules! elements {
    ($($t:ty => $run:ident, $simple:ident);* $(;)?) => { $(
            impl BinaryElement for $t {
            fn row(level: Level, op: Binary, a: Operand<'_, $t>, b: Operand<'_, $t>, out: &mut [$t]) {
                macro_rules! run {
                    ($op:expr) => {
                        match (a, b) {
                            (Operand::Slice(a), Operand::Slice(b)) => $run(level, Both { op: $op, a, b, out }),
                            (Operand::Slice(a), Operand::Constant(b)) => $run(level, ByRight { op: $op, a, b, out }),
                            (Operand::Constant(a), Operand::Slice(b)) => $run(level, ByLeft { op: $op, a, b, out }),
                            (Operand::Constant(a), Operand::Constant(b)) => {
                                $run(level, ByRight { op: $op, a: &[a], b, out: &mut out[..1] });
                                let value = out[0];
                                out.fill(value);
                            }
                        }
                    };
                }
                if op == Binary::Pow && let Operand::Constant(exponent) = b {
                    $simple!(exponent, run);
                }
                with_operation!(op, run)
            }

            fn row_in_place(level: Level, op: Binary, side: Side, a: &mut [$t], b: Operand<'_, $t>) {
                macro_rules! run {
                    ($op:expr) => {
                        match (side, b) {
                            (Side::Left, Operand::Slice(b)) => $run(level, IntoLeft { op: $op, a, b }),
                            (Side::Left, Operand::Constant(b)) => $run(level, IntoLeftByRight { op: $op, a, b }),
                            (Side::Right, Operand::Slice(b)) => $run(level, IntoRight { op: $op, a: b, b: a }),
                            (Side::Right, Operand::Constant(b)) => $run(level, IntoRightByLeft { op: $op, a: b, b: a }),
                        }
                    };
                }
                if op == Binary::Pow && side == Side::Left && let Operand::Constant(exponent) = b {
                    $simple!(exponent, run);
                }
                with_operation!(op, run)
            }
        }
    )* };
}

macro_rules! simple_power {
    ($exponent:expr, $run:ident) => {
        match Simple::of($exponent.to_f64()) {
            Some(Simple::Square) => return $run!(Squared),
            Some(Simple::Cube) => return $run!(Cubed),
            Some(Simple::Root) => return $run!(Rooted),
            Some(Simple::Inverse) => return $run!(Inverted),
            None => {}
        }
    };
}

macro_rules! no_simple_power {
    ($exponent:expr, $run:ident) => {
        let _ = $exponent;
    };
}

#[inline(always)]
fn all_levels(level: Level, body: impl Loop<Out = ()>) {
    level.run(body);
}

#[inline(always)]
fn two_levels(level: Level, body: impl Loop<Out = ()>) {
    level.run_avx2(body);
}

#[inline(always)]
fn one_level(_: Level, body: impl Loop<Out = ()>) {
    body.run::<false>();
}

elements! {
    f32 => all_levels, simple_power;
    f64 => two_levels, simple_power;
    half::f16 => two_levels, simple_power;
    half::bf16 => two_levels, simple_power;
    i8 => one_level, no_simple_power;
    i16 => one_level, no_simple_power;
    i32 => one_level, no_simple_power;
    i64 => one_level, no_simple_power;
    u8 => one_level, no_simple_power;
    u16 => one_level, no_simple_power;
    u32 => one_level, no_simple_power;
    u64 => one_level, no_simple_power;
}

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
