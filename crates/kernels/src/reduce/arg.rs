//! Positions of the maximum or minimum along an axis.

use super::fold::{Fold, Least, Maximum, run};
use crate::AxisDims;
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Extreme whose position is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    Max,
    Min,
}

/// Choice between several equal elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    First,
    Last,
}

/// Finds the position of the maximum or minimum along the middle axis of `x`, with dims `[outer,
/// axis, inner]`. `out` has dims `[outer, inner]`. NaN is both greater and less than all numbers;
/// of several, the first or the last is found, as for other ties.
///
/// # Panics
///
/// If lengths do not fit the dims, or `axis` is 0 while there are outputs.
pub fn arg_extreme<T: Number>(
    exec: &Exec<'_>,
    which: Extreme,
    ties: Ties,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    out: &mut [i64],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    assert_eq!(out.len(), outer * inner, "the output has other dims");
    assert!(axis > 0 || out.is_empty(), "no element to choose from");
    let level = Level::new(isa);
    fill(pool, out, axis, |start, out| {
        let is_wide = size_of::<T>() == size_of::<T::Wide>();
        if is_wide || inner > 1 || axis > WIDENED {
            return find(level, which, Positions { fold: (), ties, axis, inner, x, start, out });
        }
        // Short rows of narrow floats are widened and go through the loops of f32.
        let together = WIDENED / axis;
        with_scratch_of(together.min(out.len()) * axis, |wide: &mut [T::Wide]| {
            for (i, out) in out.chunks_mut(together).enumerate() {
                let wide = &mut wide[..out.len() * axis];
                T::widen_all(level, &x[(start + i * together) * axis..][..wide.len()], wide);
                let x = &*wide;
                find(level, which, Positions { fold: (), ties, axis, inner, x, start: 0, out });
            }
        });
    })
}

/// Cache: elements that are widened together.
const WIDENED: usize = 8192;

/// Finds the positions on the calling thread.
fn find<T: Number>(level: Level, which: Extreme, positions: Positions<'_, T, ()>) {
    let Positions { ties, axis, inner, x, start, out, .. } = positions;
    macro_rules! with {
        ($fold:ident) => {
            T::run(level, Positions { fold: $fold, ties, axis, inner, x, start, out })
        };
    }
    match which {
        Extreme::Max => with!(Maximum),
        Extreme::Min => with!(Least),
    }
}

/// Loop over outputs, from output `start` on.
struct Positions<'a, T, F> {
    fold: F,
    ties: Ties,
    axis: usize,
    inner: usize,
    x: &'a [T],
    start: usize,
    out: &'a mut [i64],
}

/// Cache: columns that are searched together.
const COLUMNS: usize = 64;
/// Choice: most elements of rows of which several are searched side by side.
const SHORT: usize = 32;

/// Finds the position in one contiguous row.
#[inline(always)]
fn find_in_row<T: Number, F: Fold>(fold: F, ties: Ties, x: &[T]) -> i64 {
    let best = T::Wide::from_total(run(fold, x));
    let is_best = |x: &T| are_equal(x.widen(), best);
    let found = match ties {
        Ties::First => x.iter().position(is_best),
        Ties::Last => x.iter().rposition(is_best),
    };
    found.unwrap_or(0) as i64
}

/// Finds the positions in short contiguous rows, side by side.
#[inline(always)]
fn find_in_rows<T: Number, F: Fold>(fold: F, ties: Ties, axis: usize, x: &[T], out: &mut [i64]) {
    for (x, out) in x.chunks(COLUMNS * axis).zip(out.chunks_mut(COLUMNS)) {
        let mut best = [fold.start::<T::Wide>(); COLUMNS];
        // Indices of 32 bits, so that vectors hold as many indices as elements.
        let mut found = [0i32; COLUMNS];
        for i in 0..axis {
            let mut column = [T::Wide::ZERO; COLUMNS];
            for (to, row) in column.iter_mut().zip(x.chunks_exact(axis)) {
                *to = row[i].widen();
            }
            for ((best, found), x) in best.iter_mut().zip(&mut found).zip(&column) {
                step(fold, ties, best, found, *x, i as i32);
            }
        }
        for (out, found) in out.iter_mut().zip(&found) {
            *out = i64::from(*found);
        }
    }
}

/// Updates the best element so far, and its position, by the next element.
#[inline(always)]
fn step<W: Arith, F: Fold, I: Copy>(fold: F, ties: Ties, best: &mut W, found: &mut I, x: W, i: I) {
    let joined = fold.join(*best, x);
    // Position 0 is the start, so `Ties::First` needs no case for the first element.
    let wins = are_equal(joined, x) && (!are_equal(*best, x) || ties == Ties::Last);
    *found = if wins { i } else { *found };
    *best = joined;
}

impl<T: Number, F: Fold> Loop for Positions<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (axis, inner) = (self.axis, self.inner);
        if inner == 1 && axis <= SHORT {
            let rows = &self.x[self.start * axis..][..self.out.len() * axis];
            return find_in_rows(self.fold, self.ties, axis, rows, self.out);
        }
        if inner == 1 {
            for (at, out) in self.out.iter_mut().enumerate() {
                let row = &self.x[(self.start + at) * axis..][..axis];
                *out = find_in_row(self.fold, self.ties, row);
            }
            return;
        }
        let mut done = 0;
        while done < self.out.len() {
            let (row, column) = ((self.start + done) / inner, (self.start + done) % inner);
            let n = COLUMNS.min(inner - column).min(self.out.len() - done);
            let out = &mut self.out[done..done + n];
            done += n;
            let mut best = [self.fold.start::<T::Wide>(); COLUMNS];
            out.fill(0);
            for i in 0..axis {
                let x = &self.x[(row * axis + i) * inner + column..][..n];
                for ((out, best), x) in out.iter_mut().zip(&mut best).zip(x) {
                    step(self.fold, self.ties, best, out, x.widen(), i as i64);
                }
            }
        }
    }
}

/// Whether two elements are equal or both NaN.
#[inline(always)]
fn are_equal<W: Arith>(a: W, b: W) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
