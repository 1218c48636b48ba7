//! Maps as tensors of their keys and of their values, and back.

use sardonyx::value::{Map, MapKey, StringArray};
use sardonyx::{DataType, Tensor, Value, ValueType};

use crate::failure::{Error, argument, of_tensor};

/// Returns the keys of a map as a tensor.
///
/// # Errors
///
/// Keys of a type that no tensor of keys has.
pub(crate) fn keys(map: &Map) -> Result<Tensor, Error> {
    let entries = map.entries();
    if map.key_type() == DataType::String {
        let strings: StringArray = entries.iter().map(|(key, _)| to_bytes(key)).collect();
        return Tensor::from_strings([entries.len()], strings).map_err(of_tensor);
    }
    let numbers = entries.iter().map(|(key, _)| match key {
        MapKey::Signed(number) => Ok(*number),
        MapKey::Unsigned(number) => {
            i64::try_from(*number).map_err(|_| argument("a key of the map exceeds int64"))
        }
        MapKey::String(_) => Err(argument("the map has a string among integer keys")),
    });
    let numbers: Result<Vec<i64>, Error> = numbers.collect();
    Tensor::from_vec([entries.len()], numbers?).map_err(of_tensor)
}

fn to_bytes(key: &MapKey) -> &[u8] {
    if let MapKey::String(bytes) = key { bytes } else { &[] }
}

/// Returns the values of a map of scalars as a tensor.
///
/// # Errors
///
/// Values of a type that no tensor of values has, or that are not scalars.
pub(crate) fn values(map: &Map) -> Result<Tensor, Error> {
    let ValueType::Tensor(data_type) = map.element() else {
        return Err(argument(format!("the map has values of the type {}", map.element())));
    };
    let tensors = map.entries().iter().map(|(_, value)| value.as_tensor());
    let tensors: Option<Vec<&Tensor>> =
        tensors.map(|tensor| tensor.filter(|tensor| tensor.len() == 1)).collect();
    let tensors = tensors.ok_or_else(|| argument("a value of the map has several elements"))?;
    if *data_type == DataType::String {
        let strings: StringArray = tensors
            .iter()
            .filter_map(|tensor| tensor.strings())
            .flat_map(StringArray::iter)
            .collect();
        return Tensor::from_strings([tensors.len()], strings).map_err(of_tensor);
    }
    let bytes: Vec<u8> = tensors.iter().flat_map(|tensor| tensor.bytes()).copied().collect();
    Tensor::from_buffer(*data_type, [tensors.len()], bytes.into()).map_err(of_tensor)
}

/// Makes a map of a tensor of keys and one of values.
///
/// # Errors
///
/// Keys that are neither int64 nor strings; other numbers of keys and of values.
pub(crate) fn make(keys: &Tensor, values: &Tensor) -> Result<Map, Error> {
    if keys.len() != values.len() {
        let what = format!("there are {} keys and {} values", keys.len(), values.len());
        return Err(argument(what));
    }
    // Before the map is made, which refuses other types with a message about types that are not
    // those of the C interface.
    let found: Vec<MapKey> = match (keys.strings(), keys.data_type()) {
        (Some(strings), _) => strings.iter().map(|key| MapKey::String(key.into())).collect(),
        (None, DataType::Int64) => {
            keys.to_vec::<i64>().map_err(of_tensor)?.into_iter().map(MapKey::Signed).collect()
        }
        (None, other) => {
            return Err(argument(format!("a map has keys of int64 or string, not {other}")));
        }
    };
    let mut map =
        Map::new(keys.data_type(), ValueType::Tensor(values.data_type())).map_err(of_tensor)?;
    for (index, key) in found.into_iter().enumerate() {
        map.push(key, Value::Tensor(take_scalar(values, index)?)).map_err(of_tensor)?;
    }
    Ok(map)
}

/// Copies an element of a tensor to a scalar.
fn take_scalar(values: &Tensor, index: usize) -> Result<Tensor, Error> {
    let flat = values.reshape([values.len()]).map_err(of_tensor)?;
    let one = flat.view().slice(0, index, 1, 1).and_then(|one| one.to_tensor());
    one.and_then(|one| one.reshape(&[][..])).map_err(of_tensor)
}
