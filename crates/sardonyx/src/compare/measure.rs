//! Distances between values of two models, which may have different element types.

use sardonyx_tensor::{
    CastOptions, Class, DataType, Distance, Tensor, Tolerance, Value, WorstElement, cast,
};

/// Elements that are compared at a time, so that wide copies of large tensors stay small. A
/// multiple of 8, so that elements of a few bits fill their bytes.
const PIECE: usize = 1 << 20;

/// Allowed difference of two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Allowed {
    /// Relative to each element.
    rtol: f64,
    /// Absolute.
    atol: f64,
    /// Relative to the largest element of the tensor.
    scale: f64,
}

/// Tolerances that options set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) rtol: Option<f64>,
    pub(super) atol: Option<f64>,
}

impl Limits {
    /// Returns the allowed difference for elements of two types: that of the narrower one, unless
    /// the options set one.
    fn choose(self, one: DataType, other: DataType) -> Allowed {
        let (one, other) = (default_of(one), default_of(other));
        let default = if one.rtol >= other.rtol { one } else { other };
        match (self.rtol, self.atol) {
            (None, None) => default,
            (rtol, atol) => Allowed {
                // Integers have no rounding errors, so only an absolute difference is allowed.
                rtol: rtol.filter(|_| default.rtol > 0.0).unwrap_or(default.rtol),
                atol: atol.unwrap_or(default.atol),
                scale: 0.0,
            },
        }
    }
}

/// Returns the allowed difference for a type. Sums that are computed in other steps differ by some
/// units in the last place of their largest terms, so a part is relative to the largest element.
fn default_of(data_type: DataType) -> Allowed {
    let (rtol, scale) = match data_type {
        DataType::Float | DataType::Double | DataType::Complex64 | DataType::Complex128 => {
            (1e-3, 1e-4)
        }
        DataType::Float16 => (1.0 / 64.0, 1.0 / 256.0),
        DataType::Bfloat16 => (1.0 / 16.0, 1.0 / 32.0),
        other if other.class() == Class::Float => (1.0 / 4.0, 1.0 / 8.0),
        _ => return Allowed { rtol: 0.0, atol: 0.0, scale: 0.0 },
    };
    Allowed { rtol, atol: 1e-7, scale }
}

/// Distance between two values.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    /// Number of elements that differ by more than is allowed.
    pub(super) count: usize,
    /// Number of elements.
    pub(super) total: usize,
    /// Largest absolute difference.
    pub(super) absolute: f64,
    /// Mean absolute difference.
    pub(super) mean: f64,
    /// Largest relative difference.
    pub(super) relative: f64,
    squares: Squares,
    /// Element that exceeds its allowed difference by the largest factor.
    pub(super) worst: Option<WorstElement>,
}

/// Sums of squares over the finite elements of a tensor.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    /// Sum over the elements of the reference.
    signal: f64,
    /// Sum over the differences.
    noise: f64,
}

impl Measured {
    /// Returns the signal-to-noise ratio in decibels; `None` if all elements are equal.
    pub(super) fn signal_to_noise(&self) -> Option<f64> {
        let Squares { signal, noise } = self.squares;
        (noise > 0.0).then(|| 10.0 * (signal / noise).log10())
    }

    /// Describes the elements that differ in a line; `None` if all agree.
    pub(super) fn describe(&self) -> Option<String> {
        let Measured { count, total, absolute, .. } = self;
        let worst = self.worst.as_ref().filter(|_| *count > 0)?;
        let WorstElement { index, got, want, .. } = worst;
        Some(format!(
            "{count} of {total} elements differ, by up to {absolute:.3e}; worst at {index:?}: {got}, \
             should be {want}"
        ))
    }

    /// Adds another tensor of the value.
    fn add(&mut self, other: Measured) {
        let total = self.total + other.total;
        if total > 0 {
            let sum = self.mean * self.total as f64 + other.mean * other.total as f64;
            self.mean = sum / total as f64;
        }
        self.total = total;
        let is_worse = other.absolute > self.absolute || self.worst.is_none();
        if other.count > 0 && (self.count == 0 || is_worse) || self.worst.is_none() {
            self.worst = other.worst;
        }
        self.count += other.count;
        self.absolute = self.absolute.max(other.absolute);
        self.relative = self.relative.max(other.relative);
        self.squares.signal += other.squares.signal;
        self.squares.noise += other.squares.noise;
    }
}

/// Measures the distance of `found` from `wanted`.
///
/// # Errors
///
/// Description of a difference in type, shape or length.
pub(super) fn measure(found: &Value, wanted: &Value, limits: Limits) -> Result<Measured, String> {
    match (found, wanted) {
        (Value::Tensor(found), Value::Tensor(wanted)) => measure_tensors(found, wanted, limits),
        (Value::Sequence(found), Value::Sequence(wanted)) => {
            if found.len() != wanted.len() {
                let (found, wanted) = (found.len(), wanted.len());
                return Err(format!("the sequence has {found} items and should have {wanted}"));
            }
            let mut all = Measured::default();
            for (index, (found, wanted)) in found.items().iter().zip(wanted.items()).enumerate() {
                let one = measure(found, wanted, limits);
                all.add(one.map_err(|what| format!("item {index}: {what}"))?);
            }
            Ok(all)
        }
        _ => {
            let mut all = Measured::default();
            let distances = found.distances(wanted, &|data_type| {
                let Allowed { rtol, atol, .. } = limits.choose(data_type, data_type);
                Tolerance { rtol, atol }
            });
            for (_, distance) in distances? {
                all.add(Measured::from_distance(distance, Squares::default()));
            }
            Ok(all)
        }
    }
}

impl Measured {
    fn from_distance(distance: Distance, squares: Squares) -> Measured {
        Measured {
            count: distance.count,
            total: distance.total,
            absolute: distance.absolute,
            mean: distance.mean,
            relative: distance.relative,
            squares,
            worst: distance.worst,
        }
    }
}

/// Measures the distance of two tensors, of which one may have shorter floats.
fn measure_tensors(found: &Tensor, wanted: &Tensor, limits: Limits) -> Result<Measured, String> {
    let (one, other) = (found.data_type(), wanted.data_type());
    let are_floats = one.class() == Class::Float && other.class() == Class::Float;
    if one != other && !are_floats {
        return Err(format!("the element type is {one} and should be {other}"));
    }
    if found.dims() != wanted.dims() {
        let (found, wanted) = (found.dims(), wanted.dims());
        return Err(format!("the shape is {found:?} and should be {wanted:?}"));
    }
    let mut all = Measured::default();
    if one == other && found.bit_eq(wanted) {
        all.total = found.len();
        return Ok(all);
    }
    let allowed = limits.choose(one, other);
    // Magnitudes of complex numbers are not looked at.
    let largest = if are_floats { find_largest(wanted)? } else { 0.0 };
    let tolerance = Tolerance { rtol: allowed.rtol, atol: allowed.atol + allowed.scale * largest };
    // Strings are compared at once.
    let step = if found.buffer().is_some() { PIECE } else { found.len().max(1) };
    for start in (0..found.len()).step_by(step) {
        let (piece, other_piece) = (cut(found, start)?, cut(wanted, start)?);
        let (piece, other_piece) =
            if are_floats { (widen(&piece)?, widen(&other_piece)?) } else { (piece, other_piece) };
        let squares = match (piece.to_vec::<f64>(), other_piece.to_vec::<f64>()) {
            (Ok(found), Ok(wanted)) => sum_squares(&found, &wanted),
            _ => Squares::default(),
        };
        let distance =
            piece.distance(&other_piece, tolerance).map_err(|error| error.to_string())?;
        let mut measured = Measured::from_distance(distance, squares);
        if let Some(worst) = &mut measured.worst
            && let [index] = worst.index[..]
        {
            worst.index = to_index(found.dims(), start + index);
        }
        all.add(measured);
    }
    Ok(all)
}

/// Converts floats to double.
fn widen(tensor: &Tensor) -> Result<Tensor, String> {
    cast(tensor, DataType::Double, CastOptions::default()).map_err(to_text)
}

/// Sums the squares of the wanted elements, and of the differences.
fn sum_squares(found: &[f64], wanted: &[f64]) -> Squares {
    let mut squares = Squares::default();
    for (found, wanted) in found.iter().zip(wanted) {
        if found.is_finite() && wanted.is_finite() {
            squares.signal += wanted * wanted;
            squares.noise += (found - wanted) * (found - wanted);
        }
    }
    squares
}

/// Returns the largest magnitude of the finite elements.
fn find_largest(tensor: &Tensor) -> Result<f64, String> {
    let mut largest = 0.0f64;
    for start in (0..tensor.len()).step_by(PIECE) {
        let piece = cut(tensor, start)?;
        let wide = widen(&piece)?;
        let numbers = wide.to_vec::<f64>().map_err(to_text)?;
        let finite = numbers.into_iter().filter(|number| number.is_finite());
        largest = finite.fold(largest, |largest, number| largest.max(number.abs()));
    }
    Ok(largest)
}

/// Returns the elements from `start` on, at most [`PIECE`], as a vector. Strings and short tensors
/// are not cut.
fn cut(tensor: &Tensor, start: usize) -> Result<Tensor, String> {
    let (Some(buffer), Some(bits)) = (tensor.buffer(), tensor.data_type().bits()) else {
        return Ok(tensor.clone());
    };
    let len = PIECE.min(tensor.len() - start);
    let bytes = start * bits / 8..(start * bits / 8) + (len * bits).div_ceil(8);
    let piece = buffer.slice(bytes).map_err(to_text)?;
    Tensor::from_buffer(tensor.data_type(), [len], piece).map_err(to_text)
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Converts the position of an element in row-major order to an index along each axis.
fn to_index(dims: &[usize], mut position: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (at, dim) in index.iter_mut().zip(dims).rev() {
        *at = position % dim.max(&1);
        position /= dim.max(&1);
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(numbers: &[f32]) -> Value {
        Tensor::from_vec([numbers.len()], numbers.to_vec()).unwrap().into()
    }

    /// Counts the elements that differ from 1000 and 0.001.
    fn count(found: &[f32], limits: Limits) -> usize {
        measure(&floats(found), &floats(&[1000.0, 0.001]), limits).unwrap().count
    }

    /// Makes a float16 tensor of one number.
    fn half(number: f32) -> Value {
        let wide = Tensor::from_vec([1], vec![number]).unwrap();
        cast(&wide, DataType::Float16, CastOptions::default()).unwrap().into()
    }

    #[test]
    fn differences_are_relative_to_the_largest_element() {
        let default = Limits::default();
        assert_eq!(count(&[1000.0, 0.05], default), 0);
        assert_eq!(count(&[1000.0, 0.2], default), 1);
        let strict = Limits { rtol: Some(1e-3), atol: Some(1e-7) };
        assert_eq!(count(&[1000.0, 0.05], strict), 1);
        assert_eq!(count(&[1000.5, 0.001], strict), 0);
    }

    #[test]
    fn shorter_floats_are_compared_with_their_own_tolerance() {
        let measured = measure(&half(1.001), &floats(&[1.0]), Limits::default()).unwrap();
        assert_eq!((measured.count, measured.total), (0, 1));
        assert!(measured.absolute > 0.0);
        let measured = measure(&half(1.1), &floats(&[1.0]), Limits::default()).unwrap();
        assert_eq!(measured.count, 1);
        let error = measure(&half(1.0), &Tensor::scalar(1i64).into(), Limits::default());
        assert!(error.unwrap_err().contains("should be int64"));
    }

    #[test]
    fn large_tensors_are_measured_in_pieces() {
        let count = PIECE + 10;
        let mut numbers = vec![1.0f32; count];
        let wanted = Value::from(Tensor::from_vec([2, count / 2], numbers.clone()).unwrap());
        numbers[PIECE + 3] = 3.0;
        let found = Value::from(Tensor::from_vec([2, count / 2], numbers).unwrap());
        let measured = measure(&found, &wanted, Limits::default()).unwrap();
        assert_eq!((measured.count, measured.total, measured.absolute), (1, count, 2.0));
        let worst = measured.worst.clone().unwrap();
        assert_eq!(worst.index, [1, PIECE + 3 - count / 2]);
        let decibels = measured.signal_to_noise().unwrap();
        assert!((decibels - 10.0 * (count as f64 / 4.0).log10()).abs() < 1e-9, "{decibels}");
    }
}
