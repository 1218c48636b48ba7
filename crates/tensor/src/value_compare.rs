//! Whether a value is what is wanted, by the rules of the reference's own runner of cases.
//!
//! Types and shapes are equal. Floats are within the tolerance, bfloat16 within two units in its
//! last place if that is more and the tolerance is not zero, NaN equals NaN. Integers, booleans and
//! strings are equal. Sequences, maps and optionals are compared element by element.

use crate::compare::Tolerance;
use crate::element::DataType;
use crate::tensor::Tensor;
use crate::value::{Map, Sparse, Value};

/// Two units in the last place of a bfloat16, as the reference runner allows.
const BFLOAT16_RTOL: f64 = 1.0 / 64.0;

impl Value {
    /// Compares with what is wanted.
    ///
    /// # Errors
    ///
    /// What differs, in words, from the outside in.
    pub fn compare(&self, want: &Value, tolerance: Tolerance) -> Result<(), String> {
        match (self, want) {
            (Value::Tensor(got), Value::Tensor(want)) => tensors(got, want, tolerance),
            (Value::Sparse(got), Value::Sparse(want)) => sparse(got, want, tolerance),
            (Value::Sequence(got), Value::Sequence(want)) => {
                if got.element() != want.element() {
                    return Err(format!(
                        "a sequence of {}, not of {}",
                        got.element(),
                        want.element()
                    ));
                }
                if got.len() != want.len() {
                    return Err(format!("{} items, not {}", got.len(), want.len()));
                }
                let mut pairs = got.items().iter().zip(want.items()).enumerate();
                pairs.try_for_each(|(index, (got, want))| {
                    got.compare(want, tolerance).map_err(|why| format!("item {index}: {why}"))
                })
            }
            (Value::Map(got), Value::Map(want)) => maps(got, want, tolerance),
            (Value::Optional(_, Some(got)), Value::Optional(_, Some(want))) => {
                got.compare(want, tolerance)
            }
            (Value::Optional(got, None), Value::Optional(want, None)) if got == want => Ok(()),
            (Value::Optional(_, None), Value::Optional(_, Some(_))) => {
                Err("nothing where a value is expected".into())
            }
            (Value::Optional(_, Some(_)), Value::Optional(_, None)) => {
                Err("a value where nothing is expected".into())
            }
            (Value::Opaque(got), Value::Opaque(want)) if got == want => Ok(()),
            (Value::Opaque(got), Value::Opaque(want))
                if got.opaque_type() == want.opaque_type() =>
            {
                Err("another opaque value, which cannot be compared".into())
            }
            _ => Err(format!("{}, not {}", self.value_type(), want.value_type())),
        }
    }
}

fn tensors(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    let data_type = want.data_type();
    let tolerance = if data_type == DataType::Bfloat16 && tolerance != Tolerance::EXACT {
        Tolerance { rtol: tolerance.rtol.max(BFLOAT16_RTOL), ..tolerance }
    } else if data_type.is_integer() {
        Tolerance::EXACT
    } else {
        tolerance
    };
    got.compare(want, tolerance).map_err(|mismatch| mismatch.to_string())
}

fn sparse(got: &Sparse, want: &Sparse, tolerance: Tolerance) -> Result<(), String> {
    if got.dims() != want.dims() {
        return Err(format!("dims are {:?}, not {:?}", got.dims(), want.dims()));
    }
    if got.positions() != want.positions() {
        return Err("values at other positions".into());
    }
    tensors(got.values(), want.values(), tolerance)
}

/// The order of entries means nothing.
fn maps(got: &Map, want: &Map, tolerance: Tolerance) -> Result<(), String> {
    if got.key_type() != want.key_type() {
        return Err(format!("keys of type {}, not {}", got.key_type(), want.key_type()));
    }
    if got.entries().len() != want.entries().len() {
        return Err(format!("{} entries, not {}", got.entries().len(), want.entries().len()));
    }
    for (key, want) in want.entries() {
        let got = got.get(key).ok_or_else(|| format!("no entry {key:?}"))?;
        got.compare(want, tolerance).map_err(|why| format!("entry {key:?}: {why}"))?;
    }
    Ok(())
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
