//! Compares values by the rules of the reference's own test runner.
//!
//! Types and shapes must be equal. Floats must be within the tolerance; bfloat16 within two units
//! in the last place if that is more and the tolerance is not zero; NaN equals NaN. Integers,
//! booleans and strings must be equal. Sequences, maps and optionals are compared element by
//! element.

use crate::compare::{Distance, Tolerance};
use crate::element::DataType;
use crate::tensor::Tensor;
use crate::value::{Map, Sparse, Value};

/// Two units in the last place of a bfloat16, which the reference runner allows.
const BFLOAT16_RTOL: f64 = 1.0 / 64.0;

impl Tolerance {
    /// Returns the tolerance that the reference test runner uses for elements of this type: exact
    /// for integers; for `bfloat16` at least 1/64 relative unless this tolerance is exact.
    pub fn for_type(self, data_type: DataType) -> Tolerance {
        if data_type == DataType::Bfloat16 && self != Tolerance::EXACT {
            Tolerance { rtol: self.rtol.max(BFLOAT16_RTOL), ..self }
        } else if data_type.is_integer() {
            Tolerance::EXACT
        } else {
            self
        }
    }
}

/// Distances of the tensors in a value, each with its path in the value (empty for the value
/// itself).
pub type Distances = Vec<(String, Distance)>;

impl Value {
    /// Compares the value with the wanted one, by the rules of the reference test runner: integers,
    /// truth values and strings must be equal, floats within `tolerance`, `bfloat16` within at
    /// least 1/64 relative unless `tolerance` is [`Tolerance::EXACT`]. Sequences, maps and
    /// optionals are compared item by item.
    ///
    /// # Errors
    ///
    /// Description of the first difference.
    pub fn compare(&self, want: &Value, tolerance: Tolerance) -> Result<(), String> {
        let distances = self.distances(want, &|data_type| tolerance.for_type(data_type))?;
        for (place, distance) in distances {
            if let Some(mismatch) = distance.mismatch() {
                return Err(with_path(&place, &mismatch.to_string()));
            }
        }
        Ok(())
    }

    /// Measures the distance of each tensor in the value from the wanted one, with the tolerance
    /// for its type.
    ///
    /// # Errors
    ///
    /// Description of a difference in type, shape or length.
    #[doc(hidden)]
    pub fn distances(
        &self,
        want: &Value,
        tolerance: &dyn Fn(DataType) -> Tolerance,
    ) -> Result<Distances, String> {
        let mut found = Vec::new();
        measure(self, want, "", tolerance, &mut found)?;
        Ok(found)
    }
}

/// Prefixes a description with its path.
fn with_path(place: &str, what: &str) -> String {
    if place.is_empty() { what.to_string() } else { format!("{place}: {what}") }
}

fn measure(
    got: &Value,
    want: &Value,
    place: &str,
    tolerance: &dyn Fn(DataType) -> Tolerance,
    found: &mut Distances,
) -> Result<(), String> {
    let wrong = |what: &str| Err(with_path(place, what));
    let mut tensors = |got: &Tensor, want: &Tensor| {
        let distance = got.distance(want, tolerance(want.data_type()));
        let distance = distance.map_err(|mismatch| with_path(place, &mismatch.to_string()))?;
        found.push((place.to_string(), distance));
        Ok(())
    };
    match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => tensors(got, want),
        (Value::Sparse(got), Value::Sparse(want)) => {
            compare_positions(got, want).map_err(|what| with_path(place, &what))?;
            tensors(got.values(), want.values())
        }
        (Value::Sequence(got), Value::Sequence(want)) => {
            if got.element() != want.element() {
                let (got, want) = (got.element(), want.element());
                return wrong(&format!("a sequence of {got}, not of {want}"));
            }
            if got.len() != want.len() {
                return wrong(&format!("{} items, not {}", got.len(), want.len()));
            }
            let mut pairs = got.items().iter().zip(want.items()).enumerate();
            pairs.try_for_each(|(index, (got, want))| {
                let place = with_path(place, &format!("item {index}"));
                measure(got, want, &place, tolerance, found)
            })
        }
        (Value::Map(got), Value::Map(want)) => {
            compare_keys(got, want).map_err(|what| with_path(place, &what))?;
            for (key, want) in want.entries() {
                let place = with_path(place, &format!("entry {key:?}"));
                if let Some(got) = got.get(key) {
                    measure(got, want, &place, tolerance, found)?;
                }
            }
            Ok(())
        }
        (Value::Optional(_, Some(got)), Value::Optional(_, Some(want))) => {
            measure(got, want, place, tolerance, found)
        }
        (Value::Optional(got, None), Value::Optional(want, None)) if got == want => Ok(()),
        (Value::Optional(_, None), Value::Optional(_, Some(_))) => {
            wrong("nothing where a value is expected")
        }
        (Value::Optional(_, Some(_)), Value::Optional(_, None)) => {
            wrong("a value where nothing is expected")
        }
        (Value::Opaque(got), Value::Opaque(want)) if got == want => Ok(()),
        (Value::Opaque(got), Value::Opaque(want)) if got.opaque_type() == want.opaque_type() => {
            wrong("another opaque value, which cannot be compared")
        }
        _ => wrong(&format!("{}, not {}", got.value_type(), want.value_type())),
    }
}

fn compare_positions(got: &Sparse, want: &Sparse) -> Result<(), String> {
    if got.dims() != want.dims() {
        return Err(format!("dims are {:?}, not {:?}", got.dims(), want.dims()));
    }
    if got.positions() != want.positions() {
        return Err("values at other positions".into());
    }
    Ok(())
}

/// Compares the keys of two maps; the order of the entries does not matter.
fn compare_keys(got: &Map, want: &Map) -> Result<(), String> {
    if got.key_type() != want.key_type() {
        return Err(format!("keys of type {}, not {}", got.key_type(), want.key_type()));
    }
    if got.entries().len() != want.entries().len() {
        return Err(format!("{} entries, not {}", got.entries().len(), want.entries().len()));
    }
    match want.entries().iter().find(|(key, _)| got.get(key).is_none()) {
        Some((key, _)) => Err(format!("no entry {key:?}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MapKey, Sequence, TensorError, ValueType, bf16};

    const TOLERANCE: Tolerance = Tolerance::NODE_TESTS;

    fn equal(got: impl Into<Value>, want: impl Into<Value>) -> bool {
        got.into().compare(&want.into(), TOLERANCE).is_ok()
    }

    #[test]
    fn tensors_by_type() {
        assert!(equal(Tensor::scalar(1000.5f32), Tensor::scalar(1000f32)));
        assert!(!equal(Tensor::scalar(1002f32), Tensor::scalar(1000f32)));
        assert!(!equal(Tensor::scalar(10_001i64), Tensor::scalar(10_000i64)));
        assert!(equal(
            Tensor::scalar(bf16::from_f32(1.0078125)),
            Tensor::scalar(bf16::from_f32(1.0))
        ));
        assert!(!equal(Tensor::scalar(1f32), Tensor::scalar(1f64)));
        assert!(equal(Tensor::scalar(f32::NAN), Tensor::scalar(f32::NAN)));
    }

    #[test]
    fn nested_values() -> Result<(), TensorError> {
        let sequence = |items: &[f32]| -> Result<Value, TensorError> {
            let items = items.iter().map(|&item| Tensor::scalar(item));
            Ok(Value::Sequence(Sequence::from_tensors(DataType::Float, items)?))
        };
        assert!(equal(sequence(&[1.0, 2.0])?, sequence(&[1.0, 2.0])?));
        let why = sequence(&[1.0, 3.0])?.compare(&sequence(&[1.0, 2.0])?, TOLERANCE);
        assert!(why.is_err_and(|why| why.starts_with("item 1: ")));
        assert!(!equal(sequence(&[1.0])?, sequence(&[1.0, 2.0])?));

        let float = ValueType::Tensor(DataType::Float);
        let some = |value: f32| Value::some(Tensor::scalar(value).into());
        assert!(equal(some(1.0), some(1.0)));
        assert!(!equal(some(1.0), Value::none(float.clone())));
        assert!(equal(Value::none(float.clone()), Value::none(float.clone())));
        assert!(!equal(some(1.0), Tensor::scalar(1f32)));

        let map = |keys: [i64; 2]| -> Result<Value, TensorError> {
            let mut map = Map::new(DataType::Int64, float.clone())?;
            for key in keys {
                map.push(MapKey::Signed(key), Tensor::scalar(key as f32).into())?;
            }
            Ok(Value::Map(map))
        };
        assert!(equal(map([1, 2])?, map([2, 1])?));
        assert!(!equal(map([1, 2])?, map([1, 3])?));
        Ok(())
    }
}
