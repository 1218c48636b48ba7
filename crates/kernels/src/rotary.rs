//! Rotary embedding: pairs of features rotated by angles that depend on the position.
//!
//! For each layout of the tensor, a head at a position is one contiguous row, and the angles of a
//! position are one row of the caches. So this is a loop over rows that finds the row of the
//! caches.

use sardonyx_simd::Exec;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Pairing of the features, and number of rotated pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotary {
    /// Whether pairs are neighbours; else feature `i` pairs with feature `pairs + i`.
    pub interleaved: bool,
    /// Number of rotated pairs, the first ones; all other features stay.
    pub pairs: usize,
    /// Columns of the caches, of which the first `pairs` are read.
    pub columns: usize,
}

/// Caches of cosines and sines, and positions of tokens.
#[derive(Clone, Copy, Debug)]
pub struct Angles<'a, T> {
    /// Cosines of the angles; `sin` has the same dims.
    pub cos: &'a [T],
    pub sin: &'a [T],
    /// Row of the caches for each token.
    pub positions: Option<&'a [i64]>,
}

/// Dims of the heads, `[outer, heads, inner, features]`. Those at `[o, .., i]` are of token `o *
/// inner + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotaryDims {
    /// Product of the dims before the axis of heads.
    pub outer: usize,
    /// Number of heads of a token.
    pub heads: usize,
    /// Product of the dims between the heads and the features.
    pub inner: usize,
    /// Number of features of a head.
    pub features: usize,
}

/// Rotates each pair `(a, b)` of the heads in `x` to `(a * cos - b * sin, a * sin + b * cos)`.
///
/// A token's row of the caches is given by `positions`, where negative numbers count from the end,
/// or is its own number. Fewer positions than tokens, or fewer rows than tokens without positions,
/// are used cyclically.
///
/// # Panics
///
/// If lengths do not fit, or a position is outside the caches.
pub fn rotary<T: Number>(
    exec: &Exec<'_>,
    which: Rotary,
    RotaryDims { outer, heads, inner, features }: RotaryDims,
    x: &[T],
    angles: Angles<'_, T>,
    y: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let Angles { cos, sin, positions } = angles;
    let Rotary { pairs, columns, .. } = which;
    assert_eq!(x.len(), outer * heads * inner * features, "the input has other dims");
    assert_eq!(y.len(), x.len(), "one output per input");
    assert_eq!(cos.len(), sin.len(), "the caches have the same dims");
    assert!(pairs <= features / 2, "more pairs than features");
    assert!(
        pairs <= columns && (columns == 0 || cos.len().is_multiple_of(columns)),
        "whole rows of the caches"
    );
    if y.is_empty() {
        return Ok(());
    }
    if pairs == 0 {
        y.copy_from_slice(x);
        return Ok(());
    }
    let cached = cos.len() / columns;
    let level = Level::new(isa);
    rows(pool, y, features, features, |first, y| {
        for (i, y) in y.chunks_exact_mut(features).enumerate() {
            let row = first + i;
            let token = row / (heads * inner) * inner + row % inner;
            let angles = match positions {
                None => token % cached,
                Some(positions) => {
                    let position = positions[token % positions.len()];
                    let back = if position < 0 { cached } else { 0 };
                    position.wrapping_add(back as i64) as usize
                }
            };
            let angles = angles * columns..angles * columns + pairs;
            T::run(
                level,
                Row {
                    interleaved: which.interleaved,
                    x: &x[row * features..][..features],
                    cos: &cos[angles.clone()],
                    sin: &sin[angles],
                    y,
                },
            );
        }
    })
}

/// Loop over one row.
struct Row<'a, T> {
    interleaved: bool,
    x: &'a [T],
    cos: &'a [T],
    sin: &'a [T],
    y: &'a mut [T],
}

impl<T: Number> Loop for Row<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let rotate_pair = |a: T, b: T, cos: T, sin: T| {
            let [a, b, cos, sin] = [a, b, cos, sin].map(T::to_real);
            (
                T::from_real(a.mul_add::<FMA>(cos, b.mul(sin).neg())),
                T::from_real(a.mul_add::<FMA>(sin, b.mul(cos))),
            )
        };
        let pairs = self.cos.len();
        let (x, kept) = self.x.split_at(2 * pairs);
        let (y, y_kept) = self.y.split_at_mut(2 * pairs);
        y_kept.copy_from_slice(kept);
        let angles = self.cos.iter().zip(self.sin);
        if self.interleaved {
            let (x, y) = (x.as_chunks::<2>().0, y.as_chunks_mut::<2>().0);
            for ((y, x), (cos, sin)) in y.iter_mut().zip(x).zip(angles) {
                (y[0], y[1]) = rotate_pair(x[0], x[1], *cos, *sin);
            }
        } else {
            let (a, b) = x.split_at(pairs);
            let (y_a, y_b) = y.split_at_mut(pairs);
            let y = y_a.iter_mut().zip(y_b);
            for (((y_a, y_b), (a, b)), (cos, sin)) in y.zip(a.iter().zip(b)).zip(angles) {
                (*y_a, *y_b) = rotate_pair(*a, *b, *cos, *sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use sardonyx_simd::{Isa, Pool};

    fn values<T: Number>(n: usize, seed: usize) -> Vec<T> {
        (0..n).map(|i| T::from_f64((((i + seed) * 29 % 83) as f64 - 40.0) / 64.0)).collect()
    }

    /// Compares [`rotary`] with the formula, up to an error of `eps`.
    fn check<T: Number>(eps: f64) {
        for &isa in Isa::available() {
            for (dims, pairs, columns) in [
                ([2, 3, 5, 8], 4, 4),
                ([2, 3, 5, 9], 3, 4),
                ([10, 4, 1, 64], 32, 32),
                ([1, 1, 1, 2], 1, 1),
                ([3, 2, 7, 70], 17, 35),
                ([2, 2, 2, 5], 0, 0),
                ([2, 0, 2, 4], 2, 2),
                ([0, 1, 2, 4], 2, 2),
                ([1, 12, 40, 66], 33, 33),
            ] {
                let [outer, heads, inner, features] = dims;
                let tokens = outer * inner;
                let x: Vec<T> = values(outer * heads * inner * features, 0);
                let cached = tokens.max(1) + 3;
                let (cos, sin) = (values::<T>(cached * columns, 5), values(cached * columns, 40));
                let all: Vec<i64> = (0..tokens as i64)
                    .map(|i| {
                        let position = i * 7 % cached as i64;
                        if i % 3 == 1 { position - cached as i64 } else { position }
                    })
                    .collect();
                for interleaved in [false, true] {
                    for positions in [None, Some(&all[..]), Some(&all[..inner.min(all.len())])] {
                        let mut y = vec![T::ONE; x.len()];
                        let which = Rotary { interleaved, pairs, columns };
                        let pool = Pool::new(2);
                        rotary(
                            &Exec::new(&pool, isa),
                            which,
                            RotaryDims { outer, heads, inner, features },
                            &x,
                            Angles { cos: &cos, sin: &sin, positions },
                            &mut y,
                        )
                        .unwrap();
                        for (i, y) in y.iter().enumerate() {
                            let (row, at) = (i / features, i % features);
                            let token = row / (heads * inner) * inner + row % inner;
                            let position = match positions {
                                None => token,
                                Some(list) => {
                                    list[token % list.len()].rem_euclid(cached as i64) as usize
                                }
                            };
                            if at >= 2 * pairs {
                                assert_eq!(*y, x[i]);
                                continue;
                            }
                            let (pair, second) = if interleaved {
                                (at / 2, at % 2 == 1)
                            } else {
                                (at % pairs, at >= pairs)
                            };
                            let (a, b) = if interleaved {
                                (2 * pair, 2 * pair + 1)
                            } else {
                                (pair, pair + pairs)
                            };
                            let [a, b] = [a, b].map(|at| x[row * features + at].to_f64());
                            let cache = position * columns + pair;
                            let (cos, sin) = (cos[cache].to_f64(), sin[cache].to_f64());
                            let expected =
                                if second { a * sin + b * cos } else { a * cos - b * sin };
                            let error = (y.to_f64() - expected).abs();
                            assert!(error <= eps, "{isa:?} {dims:?} {which:?} {i}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_turn() {
        check::<f32>(f64::from(f32::EPSILON));
        check::<f64>(f64::EPSILON);
        check::<f16>(2f64.powi(-11));
        check::<bf16>(2f64.powi(-8));
    }

    #[test]
    fn what_is_no_number_spoils_its_own_pair_only() {
        for &isa in Isa::available() {
            let (cos, sin) = (vec![0.5f32; 16], vec![0.25f32; 16]);
            let mut x = vec![1.0f32; 40];
            (x[3], x[39]) = (f32::NAN, f32::INFINITY);
            let mut y = vec![0.0; 40];
            let which = Rotary { interleaved: false, pairs: 16, columns: 16 };
            let pool = Pool::new(1);
            rotary(
                &Exec::new(&pool, isa),
                which,
                RotaryDims { outer: 1, heads: 1, inner: 1, features: 40 },
                &x,
                Angles { cos: &cos, sin: &sin, positions: None },
                &mut y,
            )
            .unwrap();
            let odd: Vec<usize> = (0..40).filter(|i| !y[*i].is_finite()).collect();
            assert_eq!(odd, [3, 19, 39]);
        }
    }
}
