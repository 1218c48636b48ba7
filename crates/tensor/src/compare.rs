//! Compares tensors with a tolerance. A mismatch names the worst element.
//!
//! The rule is that of `numpy.allclose`, relative to the wanted tensor: `|got - want| <= atol +
//! rtol * |want|`. NaN equals NaN, and an infinity equals only itself. Element types and dims must
//! be equal (requirements TENSOR-02 and TENSOR-05). Strings and booleans are compared exactly;
//! integers are, too, if the tolerance is zero, otherwise by the rule without rounding.

use std::fmt;

use crate::convert::to_f64;
use crate::element::{Class, DataType};
use crate::tensor::Tensor;
use crate::text;

/// Maximum difference of elements that counts as equal: `|got - want| <= atol + rtol * |want|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Maximum difference relative to the wanted element, as a fraction of it.
    pub rtol: f64,
    /// Maximum absolute difference, in addition to the relative one.
    pub atol: f64,
}

impl Tolerance {
    /// Values must be equal. NaN equals NaN, and 0 equals -0.
    pub const EXACT: Tolerance = Tolerance { rtol: 0.0, atol: 0.0 };

    /// Tolerance of the node tests of the standard: 1e-3 relative, 1e-7 absolute.
    pub const NODE_TESTS: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-7 };
}

/// Difference of a tensor from the wanted one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The element types differ.
    Type {
        /// Element type of the compared tensor.
        got: DataType,
        /// Element type of the wanted tensor.
        want: DataType,
    },
    /// The dims differ.
    Dims {
        /// Dims of the compared tensor.
        got: Vec<usize>,
        /// Dims of the wanted tensor.
        want: Vec<usize>,
    },
    /// Elements differ by more than the tolerance allows.
    Elements {
        /// Number of elements that differ too much.
        count: usize,
        /// Number of all elements.
        total: usize,
        /// Index along each axis of the worst element, which exceeds its tolerance by the largest
        /// factor.
        worst: Vec<usize>,
        /// Worst element, formatted.
        got: String,
        /// Wanted value of the worst element, formatted.
        want: String,
        /// Absolute difference of the two; infinite if it is not a number.
        difference: f64,
    },
}

/// Distance between two tensors of equal type and dims.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Distance {
    /// Number of elements that differ by more than the tolerance allows.
    pub count: usize,
    /// Number of all elements.
    pub total: usize,
    /// Largest absolute difference; infinite if a difference is not a number.
    pub absolute: f64,
    /// Mean absolute difference of all elements; 0 if there are none.
    pub mean: f64,
    /// Largest difference relative to the wanted element, as a fraction of it. Wanted elements that
    /// are 0 are skipped.
    pub relative: f64,
    /// Element with the largest ratio of difference to tolerance; `None` if all elements are equal.
    pub worst: Option<WorstElement>,
}

/// Element that differs from the wanted one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WorstElement {
    /// Index along each axis.
    pub index: Vec<usize>,
    /// Element, formatted.
    pub got: String,
    /// Wanted element, formatted.
    pub want: String,
    /// Absolute difference of the two; infinite if it is not a number.
    pub difference: f64,
}

impl Distance {
    /// Returns the elements that differ too much; `None` if there are none.
    pub fn mismatch(&self) -> Option<Mismatch> {
        let worst = self.worst.clone().filter(|_| self.count > 0)?;
        Some(Mismatch::Elements {
            count: self.count,
            total: self.total,
            worst: worst.index,
            got: worst.got,
            want: worst.want,
            difference: worst.difference,
        })
    }
}

impl Tensor {
    /// Compares the tensor with the wanted one.
    ///
    /// # Errors
    /// The first difference in the order type, dims, elements. For elements, it has the worst one:
    /// the one that exceeds its tolerance by the largest factor.
    pub fn compare(&self, want: &Tensor, tolerance: Tolerance) -> Result<(), Mismatch> {
        self.distance(want, tolerance)?.mismatch().map_or(Ok(()), Err)
    }

    /// Measures the distance of the elements from the wanted ones.
    ///
    /// # Errors
    /// [`Mismatch::Type`] or [`Mismatch::Dims`]; different elements are not an error.
    #[doc(hidden)]
    pub fn distance(&self, want: &Tensor, tolerance: Tolerance) -> Result<Distance, Mismatch> {
        if self.data_type() != want.data_type() {
            return Err(Mismatch::Type { got: self.data_type(), want: want.data_type() });
        }
        if self.dims() != want.dims() {
            return Err(Mismatch::Dims { got: self.dims().to_vec(), want: want.dims().to_vec() });
        }
        let mut tally = Tally::default();
        match self.data_type().class() {
            Class::String => {
                if let (Some(a), Some(b)) = (self.strings(), want.strings()) {
                    for (i, (a, b)) in a.iter().zip(b.iter()).enumerate() {
                        tally.add_exact(i, a == b);
                    }
                }
            }
            Class::Bool => {
                for (i, (a, b)) in self.bytes().iter().zip(want.bytes()).enumerate() {
                    tally.add_exact(i, (*a != 0) == (*b != 0));
                }
            }
            class => {
                let (Ok(a), Ok(b)) = (to_f64(self), to_f64(want)) else {
                    // Numbers that cannot be converted are equal only if their bits are.
                    tally.add_exact(0, self.bit_eq(want));
                    return Ok(tally.distance(self, want));
                };
                let parts = if class == Class::Complex { 2 } else { 1 };
                let wide = self.data_type().bits() == Some(64) && class != Class::Complex;
                for (i, (&a, &b)) in a.iter().zip(b.iter()).enumerate() {
                    let difference = match class {
                        Class::Signed | Class::Unsigned if wide => self.wide_difference(want, i),
                        _ if a == b || a.is_nan() && b.is_nan() => 0.0,
                        _ if a.is_finite() && b.is_finite() => (a - b).abs(),
                        _ => f64::INFINITY,
                    };
                    let allowed =
                        if b.is_finite() { tolerance.atol + tolerance.rtol * b.abs() } else { 0.0 };
                    tally.add_number(i / parts, difference, allowed, b);
                }
            }
        }
        Ok(tally.distance(self, want))
    }

    /// Returns the difference of 64-bit integers, which f64 cannot represent.
    fn wide_difference(&self, other: &Tensor, index: usize) -> f64 {
        let read = |tensor: &Tensor| -> i128 {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&tensor.bytes()[index * 8..index * 8 + 8]);
            if self.data_type().is_signed() {
                i64::from_ne_bytes(bytes).into()
            } else {
                u64::from_ne_bytes(bytes).into()
            }
        };
        (read(self) - read(other)).unsigned_abs() as f64
    }
}

#[derive(Default)]
struct Tally {
    count: usize,
    absolute: f64,
    /// Sum of the absolute differences.
    sum: f64,
    relative: f64,
    /// Index, ratio of the difference to the tolerance, and difference of the worst element.
    worst: Option<(usize, f64, f64)>,
}

impl Tally {
    fn distance(&self, got: &Tensor, want: &Tensor) -> Distance {
        Distance {
            count: self.count,
            total: got.len(),
            absolute: self.absolute,
            mean: self.sum / got.len().max(1) as f64,
            relative: self.relative,
            worst: self.worst.map(|(index, _, difference)| WorstElement {
                index: to_index(got.dims(), index),
                got: format_element(got, index),
                want: format_element(want, index),
                difference,
            }),
        }
    }

    fn add_exact(&mut self, index: usize, equal: bool) {
        self.add_number(index, if equal { 0.0 } else { f64::INFINITY }, 0.0, 0.0);
    }

    fn add_number(&mut self, index: usize, difference: f64, allowed: f64, want: f64) {
        if difference == 0.0 {
            return;
        }
        self.count += usize::from(difference > allowed);
        self.absolute = self.absolute.max(difference);
        self.sum += difference;
        if want != 0.0 {
            let relative =
                if difference.is_finite() { difference / want.abs() } else { difference };
            self.relative = self.relative.max(relative);
        }
        let excess = difference / allowed.max(f64::MIN_POSITIVE);
        // With a tolerance of zero, several ratios may be infinite; then the larger difference is
        // worse.
        if self.worst.is_none_or(|(_, e, d)| excess > e || excess == e && difference > d) {
            self.worst = Some((index, excess, difference));
        }
    }
}

fn to_index(dims: &[usize], mut index: usize) -> Vec<usize> {
    let mut out = vec![0; dims.len()];
    for (at, &dim) in out.iter_mut().zip(dims).rev() {
        *at = index % dim.max(1);
        index /= dim.max(1);
    }
    out
}

fn format_element(tensor: &Tensor, index: usize) -> String {
    match tensor.strings() {
        Some(strings) => {
            let bytes = strings.get(index);
            format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)]))
        }
        None => text::format_element(tensor.data_type(), tensor.bytes(), index),
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Type { got, want } => write!(f, "element type is {got}, not {want}"),
            Mismatch::Dims { got, want } => write!(f, "dims are {got:?}, not {want:?}"),
            Mismatch::Elements { count, total, worst, got, want, difference } => write!(
                f,
                "{count} of {total} elements differ; the worst, at {worst:?}, is {got}, not {want} (off by {difference:e})"
            ),
        }
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_slice([values.len()], values).unwrap()
    }

    #[test]
    fn tolerances_as_numpy_has_them() {
        let tolerance = Tolerance { rtol: 1e-3, atol: 1e-7 };
        let ok = |a: &[f32], b: &[f32]| floats(a).compare(&floats(b), tolerance);
        ok(
            &[1.0, 1000.5, f32::NAN, f32::INFINITY, -0.0],
            &[1.0005, 1000.0, -f32::NAN, f32::INFINITY, 0.0],
        )
        .unwrap();
        for (a, b) in [
            (1.0, 1.01),
            (f32::NAN, 1.0),
            (1.0, f32::NAN),
            (f32::INFINITY, f32::MAX),
            (f32::MAX, f32::INFINITY),
        ] {
            ok(&[a], &[b]).unwrap_err();
        }
        ok(&[f32::INFINITY], &[-f32::INFINITY]).unwrap_err();
    }

    #[test]
    fn the_worst_is_reported() {
        let got = floats(&[1.0, 2.5, 100.0, 4.0]).reshape([2, 2]).unwrap();
        let want = floats(&[1.0, 2.0, 101.0, 4.0]).reshape([2, 2]).unwrap();
        let mismatch = got.compare(&want, Tolerance { rtol: 1e-3, atol: 0.0 }).unwrap_err();
        assert_eq!(
            mismatch.to_string(),
            "2 of 4 elements differ; the worst, at [0, 1], is 2.5, not 2.0 (off by 5e-1)"
        );
    }

    #[test]
    fn distances_are_measured_within_the_tolerance_too() {
        let tolerance = Tolerance { rtol: 1e-2, atol: 0.0 };
        let measure =
            |got: &[f32], want: &[f32]| floats(got).distance(&floats(want), tolerance).unwrap();
        let near = measure(&[1.0, 1000.0, f32::NAN], &[1.0, 1001.0, f32::NAN]);
        assert_eq!((near.count, near.total, near.absolute), (0, 3, 1.0));
        assert_eq!(near.mean, 1.0 / 3.0);
        assert!((near.relative - 1.0 / 1001.0).abs() < 1e-12 && near.mismatch().is_none());
        assert_eq!(near.worst.map(|worst| worst.index), Some(vec![1]));
        // A wanted 0 has no relative difference.
        let zero = measure(&[0.5, 2.0], &[0.0, 2.0]);
        assert_eq!((zero.count, zero.absolute, zero.relative), (1, 0.5, 0.0));
        let infinite = measure(&[1.0], &[f32::INFINITY]);
        assert_eq!((infinite.absolute, infinite.relative), (f64::INFINITY, f64::INFINITY));
        assert_eq!(measure(&[1.0], &[1.0]).worst, None);
        assert!(floats(&[1.0]).distance(&Tensor::scalar(1f32), tolerance).is_err());
    }

    #[test]
    fn shapes_and_types_count() {
        // TENSOR-02, TENSOR-05, TENSOR-07
        let scalar = Tensor::scalar(1.0f32);
        assert!(scalar.compare(&floats(&[1.0]), Tolerance::EXACT).is_err());
        assert!(scalar.compare(&Tensor::scalar(1.0f64), Tolerance::EXACT).is_err());
        let (a, b) = (
            Tensor::zeros(DataType::Float, [0, 5]).unwrap(),
            Tensor::zeros(DataType::Float, [5, 0]).unwrap(),
        );
        assert!(a.compare(&b, Tolerance::EXACT).is_err() && a != b);
    }

    #[test]
    fn wide_integers_are_exact() {
        let t = |x: i64| Tensor::scalar(x);
        assert!(t(i64::MAX).compare(&t(i64::MAX - 1), Tolerance::EXACT).is_err());
        assert!(
            Tensor::scalar(u64::MAX)
                .compare(&Tensor::scalar(u64::MAX - 1), Tolerance::EXACT)
                .is_err()
        );
        t(i64::MAX).compare(&t(i64::MAX - 1), Tolerance { rtol: 0.0, atol: 1.0 }).unwrap();
        assert!(t(i64::MAX).compare(&t(i64::MIN), Tolerance { rtol: 0.0, atol: 1e18 }).is_err());
    }

    #[test]
    fn other_types() {
        let strings = |s: [&str; 2]| Tensor::from(crate::StringArray::from_iter(s));
        assert!(strings(["a", "b"]).compare(&strings(["a", "c"]), Tolerance::NODE_TESTS).is_err());
        strings(["a", "b"]).compare(&strings(["a", "b"]), Tolerance::EXACT).unwrap();
        let complex = |im| Tensor::scalar(crate::Complex64 { re: 1.0, im });
        assert!(complex(2.0).compare(&complex(2.5), Tolerance::NODE_TESTS).is_err());
        let codes = |c: [u8; 3]| Tensor::from_codes(DataType::Int4, [3], &c).unwrap();
        assert!(codes([1, 2, 15]).compare(&codes([1, 2, 7]), Tolerance::EXACT).is_err());
        let bools = |b: u8| Tensor::from_buffer(DataType::Bool, [1], vec![b].into()).unwrap();
        bools(2).compare(&bools(1), Tolerance::EXACT).unwrap(); // TYPE-07
    }
}
