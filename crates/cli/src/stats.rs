//! Statistics of the values of a tensor. Values are converted in chunks, so that a tensor of
//! gigabytes needs little memory beside its own.

use sardonyx::tool::{CastOptions, Class, cast};
use sardonyx::value::{Buffer, Complex128, TensorError};
use sardonyx::{DataType, Element, Tensor};
use serde_json::json;

/// Number of elements that are converted at a time. A multiple of 8, so that chunks of packed types
/// begin at byte boundaries.
const CHUNK: usize = 1 << 16;

/// Statistics of the values of a tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stats {
    /// Number of all elements.
    pub(crate) elements: u64,
    /// Number of elements that are 0.
    pub(crate) zeros: u64,
    /// Number of elements that are NaN.
    pub(crate) nan: u64,
    /// Number of infinite elements.
    pub(crate) inf: u64,
    /// Smallest and largest of the finite elements; `None` without finite elements, and for complex
    /// numbers.
    pub(crate) range: Option<(Number, Number)>,
    /// Mean of the finite elements; `None` without finite elements, for complex numbers, and if it
    /// overflows.
    pub(crate) mean: Option<f64>,
}

/// Element of a tensor of numbers, without rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i128),
    Real(f64),
}

impl Number {
    /// Converts the number to JSON; null for an integer of more than 64 bits.
    pub(crate) fn json(self) -> serde_json::Value {
        match self {
            // Every integer type of ONNX fits into one of the two.
            Number::Integer(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => json!(value),
                (_, Ok(value)) => json!(value),
                _ => serde_json::Value::Null,
            },
            Number::Real(value) => json!(value),
        }
    }
}

impl Stats {
    /// Computes the statistics of a tensor; `None` for strings. Calls `advance` with the number of
    /// bytes of each chunk.
    pub(crate) fn from_tensor(
        tensor: &Tensor,
        mut advance: impl FnMut(u64),
    ) -> Result<Option<Stats>, TensorError> {
        let Some(buffer) = tensor.buffer() else {
            return Ok(None);
        };
        let data_type = tensor.data_type();
        let mut sums = Sums::default();
        let mut start = 0;
        let mut left = tensor.len();
        while left > 0 {
            let count = left.min(CHUNK);
            let bytes = data_type.storage_bytes(count).unwrap_or(0);
            let chunk = buffer.slice(start..start + bytes)?;
            sums.add_chunk(data_type, count, chunk)?;
            start += bytes;
            left -= count;
            advance(bytes as u64);
        }
        Ok(Some(sums.into_stats(tensor.len() as u64)))
    }

    /// Returns the fraction of elements that are 0; `None` for an empty tensor.
    pub(crate) fn sparsity(&self) -> Option<f64> {
        (self.elements > 0).then(|| self.zeros as f64 / self.elements as f64)
    }

    /// Converts the statistics to JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({
            "zeros": self.zeros,
            "sparsity": self.sparsity(),
            "min": self.range.map(|(min, _)| min.json()),
            "max": self.range.map(|(_, max)| max.json()),
            "mean": self.mean,
            "nan": self.nan,
            "inf": self.inf,
        })
    }
}

/// Running statistics over the chunks of a tensor. Integers are summed exactly, the sums of chunks
/// of floats with the compensated summation of Kahan and Babuška.
#[derive(Default)]
struct Sums {
    zeros: u64,
    nan: u64,
    inf: u64,
    finite: u64,
    /// Smallest and largest integer so far; `None` without integers.
    integers: Option<(i128, i128)>,
    integer_sum: i128,
    /// Smallest and largest finite float so far; `None` without finite floats.
    floats: Option<(f64, f64)>,
    float_sum: f64,
    /// Rounding errors of the additions to `float_sum`.
    lost: f64,
}

impl Sums {
    /// Adds a chunk of `count` elements of the type `data_type`. Strings are ignored.
    fn add_chunk(
        &mut self,
        data_type: DataType,
        count: usize,
        chunk: Buffer,
    ) -> Result<(), TensorError> {
        let chunk = Tensor::from_buffer(data_type, [count], chunk)?;
        match data_type.class() {
            Class::Float => self.add_floats(&widen::<f64>(&chunk)?),
            Class::Signed => self.add_integers(&widen::<i64>(&chunk)?),
            Class::Unsigned | Class::Bool => self.add_integers(&widen::<u64>(&chunk)?),
            Class::Complex => self.add_complex(&widen::<Complex128>(&chunk)?),
            Class::String => {}
        }
        Ok(())
    }

    /// Adds a chunk of floats, which may be NaN or infinite.
    fn add_floats(&mut self, values: &[f64]) {
        let (mut min, mut max, mut sum) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        let (mut zeros, mut nan, mut inf) = (0u64, 0u64, 0u64);
        for value in values {
            zeros += u64::from(*value == 0.0);
            nan += u64::from(value.is_nan());
            inf += u64::from(value.is_infinite());
            if value.is_finite() {
                min = min.min(*value);
                max = max.max(*value);
                sum += value;
            }
        }
        self.zeros += zeros;
        self.nan += nan;
        self.inf += inf;
        let finite = values.len() as u64 - nan - inf;
        if finite == 0 {
            return;
        }
        self.finite += finite;
        let (least, most) = self.floats.unwrap_or((min, max));
        self.floats = Some((least.min(min), most.max(max)));
        let total = self.float_sum + sum;
        self.lost += if self.float_sum.abs() >= sum.abs() {
            (self.float_sum - total) + sum
        } else {
            (sum - total) + self.float_sum
        };
        self.float_sum = total;
    }

    /// Adds a chunk of integers or booleans.
    fn add_integers<T: Copy + Ord + Into<i128>>(&mut self, values: &[T]) {
        let (Some(min), Some(max)) = (values.iter().min(), values.iter().max()) else {
            return;
        };
        let (min, max) = ((*min).into(), (*max).into());
        for value in values {
            let value: i128 = (*value).into();
            self.zeros += u64::from(value == 0);
            self.integer_sum += value;
        }
        self.finite += values.len() as u64;
        let (least, most) = self.integers.unwrap_or((min, max));
        self.integers = Some((least.min(min), most.max(max)));
    }

    /// Adds a chunk of complex numbers, of which only zeros, NaN and infinities are counted.
    fn add_complex(&mut self, values: &[Complex128]) {
        for value in values {
            let is_nan = value.re.is_nan() || value.im.is_nan();
            self.zeros += u64::from(value.re == 0.0 && value.im == 0.0);
            self.nan += u64::from(is_nan);
            self.inf += u64::from(!is_nan && (value.re.is_infinite() || value.im.is_infinite()));
        }
    }

    /// Returns the statistics of a tensor of `elements` elements, all of whose chunks were added.
    fn into_stats(self, elements: u64) -> Stats {
        let count = self.finite as f64;
        let (range, mean) = match (self.floats, self.integers) {
            (Some((min, max)), _) => (
                Some((Number::Real(min), Number::Real(max))),
                Some((self.float_sum + self.lost) / count),
            ),
            (None, Some((min, max))) => (
                Some((Number::Integer(min), Number::Integer(max))),
                Some(self.integer_sum as f64 / count),
            ),
            (None, None) => (None, None),
        };
        Stats {
            elements,
            zeros: self.zeros,
            nan: self.nan,
            inf: self.inf,
            range,
            // The sum of large finite numbers may not be finite.
            mean: mean.filter(|mean| mean.is_finite()),
        }
    }
}

/// Converts the elements of a chunk to a type that holds each of them exactly.
fn widen<T: Element>(chunk: &Tensor) -> Result<Vec<T>, TensorError> {
    cast(chunk, T::DATA_TYPE, CastOptions::default())?.to_vec()
}

#[cfg(test)]
mod tests {
    use sardonyx::value::f16;

    use super::*;

    fn stats(tensor: &Tensor) -> Stats {
        Stats::from_tensor(tensor, |_| {}).unwrap().unwrap()
    }

    #[test]
    fn statistics_count_special_floats() {
        let values = vec![0.0f32, -0.0, 1.5, -2.5, f32::NAN, f32::INFINITY];
        let found = stats(&Tensor::from_vec([2, 3], values).unwrap());
        let expected = Stats {
            elements: 6,
            zeros: 2,
            nan: 1,
            inf: 1,
            range: Some((Number::Real(-2.5), Number::Real(1.5))),
            mean: Some(-0.25),
        };
        assert_eq!(found, expected);
        let halves = [1.0, 0.0, -3.0].map(f16::from_f32).to_vec();
        let found = stats(&Tensor::from_vec([3], halves).unwrap());
        assert_eq!((found.zeros, found.mean), (1, Some(-2.0 / 3.0)));
        let nothing = stats(&Tensor::from_vec([1], vec![f64::NAN]).unwrap());
        assert_eq!((nothing.range, nothing.mean), (None, None));
        let huge = stats(&Tensor::from_vec([2], vec![f64::MAX, f64::MAX]).unwrap());
        assert_eq!(huge.mean, None);
        let empty = stats(&Tensor::zeros(DataType::Float, [0, 3]).unwrap());
        assert_eq!((empty.sparsity(), empty.range), (None, None));
    }

    #[test]
    fn integers_are_exact() {
        let found = stats(&Tensor::from_vec([2], vec![i64::MIN, i64::MAX]).unwrap());
        let (min, max) = found.range.unwrap();
        assert_eq!((min.json(), max.json()), (json!(i64::MIN), json!(i64::MAX)));
        assert_eq!(found.mean, Some(-0.5));
        let found = stats(&Tensor::scalar(u64::MAX));
        assert_eq!(found.range.unwrap().1.json(), json!(u64::MAX));
        let packed = Tensor::from_codes(DataType::Int4, [3], &[0xf, 0, 7]).unwrap();
        let found = stats(&packed);
        let range = (Number::Integer(-1), Number::Integer(7));
        assert_eq!((found.zeros, found.range), (1, Some(range)));
        let truths = stats(&Tensor::from_bools([4], &[true, false, false, false]).unwrap());
        assert_eq!((truths.sparsity(), truths.mean), (Some(0.75), Some(0.25)));
    }

    #[test]
    fn chunks_join_and_are_reported() {
        for data_type in [DataType::Float, DataType::Uint2, DataType::Float6e2m3] {
            let tensor = Tensor::zeros(data_type, [3 * CHUNK + 5]).unwrap();
            let mut seen = 0;
            let found = Stats::from_tensor(&tensor, |bytes| seen += bytes).unwrap().unwrap();
            assert_eq!(found.zeros, tensor.len() as u64, "{data_type}");
            assert_eq!(seen, tensor.bytes().len() as u64, "{data_type}");
        }
        // Plain summation of tenths would accumulate rounding errors.
        let tenths = Tensor::from_vec([1_000_000], vec![0.1f64; 1_000_000]).unwrap();
        let mean = stats(&tenths).mean.unwrap();
        assert!((mean - 0.1).abs() < 1e-13, "{mean}");
    }

    #[test]
    fn complex_numbers_have_no_order() {
        let number = |re, im| sardonyx::value::Complex64 { re, im };
        let values = vec![number(0.0, 0.0), number(0.0, f32::NAN), number(1.0, f32::INFINITY)];
        let found = stats(&Tensor::from_vec([3], values).unwrap());
        assert_eq!((found.zeros, found.nan, found.inf), (1, 1, 1));
        assert_eq!((found.range, found.mean), (None, None));
    }
}
