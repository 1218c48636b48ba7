//! Normalization of rows by their own statistics: layer, instance, group and root-mean-square
//! normalization.

use crate::reduce::{Sum, run};
use crate::wide::{Slices, by_slices};
use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Ended, Level, Loop};

/// Statistics that a row is normalized by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// `(x - mean) / sqrt(variance + epsilon)`
    MeanVariance,
    /// `x / sqrt(mean of squares + epsilon)`
    RootMeanSquare,
}

/// Scale and shift after normalization.
#[derive(Clone, Copy, Debug)]
pub enum Affine<'a, R> {
    /// Neither.
    None,
    /// A scale, and perhaps a shift, for each element of a row (layer normalization).
    Elements(&'a [R], Option<&'a [R]>),
    /// A scale and a shift for each row, used cyclically (instance normalization, where rows are
    /// channels).
    Rows(&'a [R], &'a [R]),
    /// A scale and a shift for each group of so many adjacent elements: a channel, in group
    /// normalization. A row has several groups, and the next row continues in the lists,
    /// cyclically.
    Groups(usize, &'a [R], &'a [R]),
}

/// Parameters of [`normalize_rows`].
#[derive(Clone, Copy, Debug)]
pub struct RowNormalization<'a, R> {
    pub statistics: Statistics,
    /// Number of elements in a row.
    pub len: usize,
    pub epsilon: f64,
    pub affine: Affine<'a, R>,
}

/// Normalizes each row of `x`.
///
/// `means` and `inverse_deviations` receive one value per row. The mean is 0 for
/// [`Statistics::RootMeanSquare`].
///
/// # Panics
///
/// If lengths do not fit.
pub fn normalize_rows<T: Number<Wide = R, Real = R>, R: Math>(
    exec: &Exec<'_>,
    how: RowNormalization<'_, R>,
    x: &[T],
    y: &mut [T],
    means: Option<&mut [R]>,
    inverse_deviations: Option<&mut [R]>,
) -> Result<(), Ended> {
    let RowNormalization { len, affine, .. } = how;
    assert_eq!(x.len(), y.len(), "one output per input");
    assert!(x.is_empty() || (len > 0 && x.len().is_multiple_of(len)), "whole rows");
    let count = if x.is_empty() { 0 } else { x.len() / len };
    match affine {
        Affine::None => {}
        Affine::Elements(scale, shift) => {
            assert_eq!(scale.len(), len, "one scale per element");
            assert!(shift.is_none_or(|shift| shift.len() == len), "one shift per element");
        }
        Affine::Rows(scale, shift) => {
            assert!(count == 0 || !scale.is_empty(), "no scale");
            assert_eq!(scale.len(), shift.len(), "one shift per scale");
        }
        Affine::Groups(inner, scale, shift) => {
            let whole = inner > 0 && len.is_multiple_of(inner);
            assert!(
                count == 0 || (whole && scale.len().is_multiple_of(len / inner)),
                "whole rows of scales"
            );
            assert!(count == 0 || !scale.is_empty(), "no scale");
            assert_eq!(scale.len(), shift.len(), "one shift per scale");
        }
    }
    for list in [&means, &inverse_deviations].into_iter().flatten() {
        assert!(list.len() >= count, "one statistic per row");
    }
    let statistics =
        [means, inverse_deviations].map(|list| list.map(|list| Shared::new(&mut list[..count])));
    let slices = Slices { count, input: len, output: len, work: 4 * len };
    by_slices(exec, slices, Some(x), y, &|exec, rows, x, y| {
        normalize_some(exec, how, rows.start, x, y, &statistics)
    })
}

/// Normalizes the rows from row `first_row` on, in a type with arithmetic.
fn normalize_some<R: Math>(
    exec: &Exec<'_>,
    how: RowNormalization<'_, R>,
    first_row: usize,
    x: &[R],
    y: &mut [R],
    statistics_of_rows: &[Option<Shared<'_, R>>],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let RowNormalization { statistics, len, epsilon, affine } = how;
    let level = Level::new(isa);
    let count = y.len() / len.max(1);
    let y = Shared::new(y);
    ranges(pool, count, 4 * len, |rows| {
        for own in rows {
            let row = first_row + own;
            let first = match affine {
                Affine::Groups(inner, scale, _) => row * (len / inner) % scale.len(),
                _ => 0,
            };
            let (row_scale, row_shift) = match affine {
                Affine::Rows(scale, shift) => (scale[row % scale.len()], shift[row % scale.len()]),
                _ => (R::ONE, R::ZERO),
            };
            // SAFETY: each row is borrowed once, by one thread.
            let y = unsafe { y.part(own * len, len) };
            let x = &x[own * len..][..len];
            let (mean, inverse) = R::run(
                level,
                Row { statistics, epsilon, affine, row_scale, row_shift, first, x, y },
            );
            for (list, value) in statistics_of_rows.iter().zip([mean, inverse]) {
                if let Some(list) = list {
                    // SAFETY: each row is borrowed once, by one thread.
                    let value_of_row = unsafe { list.part(row, 1) };
                    value_of_row[0] = R::from_f64(value);
                }
            }
        }
    })
}

/// Loop over one row, which returns its mean and inverse deviation.
struct Row<'a, R> {
    statistics: Statistics,
    epsilon: f64,
    affine: Affine<'a, R>,
    /// Scale of [`Affine::Rows`], else 1.
    row_scale: R,
    /// Shift of [`Affine::Rows`], else 0.
    row_shift: R,
    /// Index of the first scale of [`Affine::Groups`].
    first: usize,
    x: &'a [R],
    y: &'a mut [R],
}

impl<R: Math> Loop for Row<'_, R> {
    type Out = (f64, f64);
    #[inline(always)]
    fn run<const FMA: bool>(self) -> (f64, f64) {
        let x = self.x;
        let n = x.len() as f64;
        let mean = match self.statistics {
            Statistics::MeanVariance => run(Sum, x).to_f64() / n,
            Statistics::RootMeanSquare => 0.0,
        };
        // Squares are taken around the mean: the difference of two large sums would lose all
        // digits.
        let center = R::from_f64(mean);
        let mut block = [R::ZERO; 256];
        let mut squares = 0.0;
        for x in x.chunks(block.len()) {
            for (square, x) in block.iter_mut().zip(x) {
                let d = x.to_real().sub(center);
                *square = d.mul(d);
            }
            squares += run(Sum, &block[..x.len()]).to_f64();
        }
        let inverse = 1.0 / (squares / n + self.epsilon).sqrt();
        let factor = R::from_f64(inverse);
        let pairs = self.y.iter_mut().zip(x);
        match self.affine {
            Affine::Elements(scale, Some(shift)) => {
                for (((y, x), scale), shift) in pairs.zip(scale).zip(shift) {
                    let normal = x.to_real().sub(center).mul(factor);
                    *y = R::from_real(normal.mul_add::<FMA>(*scale, *shift));
                }
            }
            Affine::Elements(scale, None) => {
                for ((y, x), scale) in pairs.zip(scale) {
                    *y = R::from_real(x.to_real().sub(center).mul(factor).mul(*scale));
                }
            }
            Affine::Groups(inner, scale, shift) => {
                let pieces = self.y.chunks_exact_mut(inner).zip(x.chunks_exact(inner));
                let parameters = scale[self.first..].iter().zip(&shift[self.first..]);
                for ((y, x), (scale, shift)) in pieces.zip(parameters) {
                    let scale = factor.mul(*scale);
                    for (y, x) in y.iter_mut().zip(x) {
                        let centred = x.to_real().sub(center);
                        *y = R::from_real(centred.mul_add::<FMA>(scale, *shift));
                    }
                }
            }
            Affine::Rows(..) | Affine::None => {
                let (scale, shift) = (factor.mul(self.row_scale), self.row_shift);
                for (y, x) in pairs {
                    *y = R::from_real(x.to_real().sub(center).mul_add::<FMA>(scale, shift));
                }
            }
        }
        (mean, inverse)
    }
}
