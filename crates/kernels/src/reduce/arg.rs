//! Positions of the greatest or least element along an axis.

use super::fold::{Fold, Least, Maximum, run};
use crate::Exec;
use crate::elementwise::chunks::fill;
use crate::number::{Arith, Number};
use crate::simd::{Level, Loop};

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
) {
    let &Exec { pool, isa } = exec;
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    assert_eq!(out.len(), outer * inner, "the output has other dims");
    assert!(axis > 0 || out.is_empty(), "no element to choose from");
    let level = Level::new(isa);
    fill(pool, out, axis, |start, out| {
        macro_rules! with {
            ($fold:ident) => {
                T::run(level, Positions { fold: $fold, ties, axis, inner, x, start, out })
            };
        }
        match which {
            Extreme::Max => with!(Maximum),
            Extreme::Min => with!(Least),
        }
    });
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

const COLUMNS: usize = 64;

impl<T: Number, F: Fold> Loop for Positions<'_, T, F> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (axis, inner) = (self.axis, self.inner);
        let mut done = 0;
        while done < self.out.len() {
            let (row, column) = ((self.start + done) / inner, (self.start + done) % inner);
            let n = COLUMNS.min(inner - column).min(self.out.len() - done);
            let out = &mut self.out[done..done + n];
            done += n;
            if inner == 1 {
                let x = &self.x[row * axis..][..axis];
                let best = T::Wide::from_total(run(self.fold, x));
                let is_best = |x: &T| same(x.widen(), best);
                let found = match self.ties {
                    Ties::First => x.iter().position(is_best),
                    Ties::Last => x.iter().rposition(is_best),
                };
                out[0] = found.unwrap_or(0) as i64;
                continue;
            }
            let mut best = [self.fold.start::<T::Wide>(); COLUMNS];
            out.fill(0);
            for i in 0..axis {
                let x = &self.x[(row * axis + i) * inner + column..][..n];
                for ((out, best), x) in out.iter_mut().zip(&mut best).zip(x) {
                    let x = x.widen();
                    let joined = self.fold.join(*best, x);
                    // A tie counts only for the last; the first one ever needs no case, position 0
                    // is the start.
                    let wins = same(joined, x) && (!same(*best, x) || self.ties == Ties::Last);
                    *out = if wins { i as i64 } else { *out };
                    *best = joined;
                }
            }
        }
    }
}

#[inline(always)]
fn same<W: Arith>(a: W, b: W) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
