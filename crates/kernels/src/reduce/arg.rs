//! Positions of the greatest or least element along an axis.

use super::fold::{Fold, Least, Maximum, run};
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Which end to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    Max,
    Min,
}

/// Which of several equal elements to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    First,
    Last,
}

/// The position along `axis` of the greatest or least element, for `x` with dims
/// `[outer, axis, inner]`. `out` has dims `[outer, inner]`. A NaN counts as both the greatest and
/// the least, so one (the first or the last, as for ties) wins.
///
/// # Panics
///
/// If lengths do not fit the dims, or `axis` is 0 while there are outputs.
pub fn arg_extreme<T: Number>(
    exec: &Exec<'_>,
    which: Extreme,
    ties: Ties,
    [outer, axis, inner]: [usize; 3],
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
        // Rows of narrow floats go through the loops of wide ones.
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

/// Finds the positions of an extreme.
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

struct Positions<'a, T, F> {
    fold: F,
    ties: Ties,
    axis: usize,
    inner: usize,
    x: &'a [T],
    start: usize,
    out: &'a mut [i64],
}

/// Cache: columns that are worked on together.
const COLUMNS: usize = 64;
/// Choice: most elements of rows of which many are searched side by side.
const SHORT: usize = 32;

/// Finds the place in a row of adjacent elements.
#[inline(always)]
fn in_row<T: Number, F: Fold>(fold: F, ties: Ties, x: &[T]) -> i64 {
    let best = T::Wide::from_total(run(fold, x));
    let is_best = |x: &T| same(x.widen(), best);
    let found = match ties {
        Ties::First => x.iter().position(is_best),
        Ties::Last => x.iter().rposition(is_best),
    };
    found.unwrap_or(0) as i64
}

/// Finds the places in short rows of adjacent elements, side by side.
#[inline(always)]
fn in_rows<T: Number, F: Fold>(fold: F, ties: Ties, axis: usize, x: &[T], out: &mut [i64]) {
    for (x, out) in x.chunks(COLUMNS * axis).zip(out.chunks_mut(COLUMNS)) {
        let mut best = [fold.start::<T::Wide>(); COLUMNS];
        // Indices as wide as most elements, so that vectors hold as many of both.
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

/// Takes one element more into the best so far and its place.
#[inline(always)]
fn step<W: Arith, F: Fold, I: Copy>(fold: F, ties: Ties, best: &mut W, found: &mut I, x: W, i: I) {
    let joined = fold.join(*best, x);
    // A tie counts only for the last; the first one ever needs no case, position 0 is the start.
    let wins = same(joined, x) && (!same(*best, x) || ties == Ties::Last);
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
            return in_rows(self.fold, self.ties, axis, rows, self.out);
        }
        if inner == 1 {
            for (at, out) in self.out.iter_mut().enumerate() {
                let row = &self.x[(self.start + at) * axis..][..axis];
                *out = in_row(self.fold, self.ties, row);
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

#[inline(always)]
fn same<W: Arith>(a: W, b: W) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
