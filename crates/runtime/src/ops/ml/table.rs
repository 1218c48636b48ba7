//! Lookup tables from keys to their positions in a list.

use std::borrow::Cow;

use hashbrown::HashMap;
use sardonyx_kernels::ml;
use sardonyx_tensor::{DataType, Element, Tensor, ViewData};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Call;

/// A list of keys.
pub(super) enum Keys {
    Floats(Vec<f64>),
    Ints(Cow<'static, [i64]>),
    Texts(Vec<Box<[u8]>>),
}

impl Keys {
    /// Reads keys from a tensor.
    pub(super) fn from_tensor(name: &str, tensor: &Tensor) -> Result<Keys, BindError> {
        fn convert<T: Element + Copy, O>(
            tensor: &Tensor,
            to: fn(T) -> O,
        ) -> Result<Vec<O>, BindError> {
            Ok(tensor.to_cow::<T>()?.iter().map(|element| to(*element)).collect())
        }
        Ok(match tensor.data_type() {
            DataType::Float => Keys::Floats(convert::<f32, f64>(tensor, f64::from)?),
            DataType::Double => Keys::Floats(convert::<f64, f64>(tensor, |key| key)?),
            DataType::Int16 => Keys::Ints(convert::<i16, i64>(tensor, i64::from)?.into()),
            DataType::Int32 => Keys::Ints(convert::<i32, i64>(tensor, i64::from)?.into()),
            DataType::Int64 => Keys::Ints(convert::<i64, i64>(tensor, |key| key)?.into()),
            DataType::String => {
                let texts = tensor.strings().into_iter().flat_map(|texts| texts.iter());
                Keys::Texts(texts.map(Box::from).collect())
            }
            other => fail!("attribute '{name}' has type {other}, which is not supported for keys"),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Keys::Floats(keys) => keys.len(),
            Keys::Ints(keys) => keys.len(),
            Keys::Texts(keys) => keys.len(),
        }
    }
}

/// Position of each key. For duplicate keys it is that of the last one, as in a dictionary filled
/// in order.
pub(super) enum Table {
    Texts(HashMap<Box<[u8]>, u32>),
    /// Integers, by their bits.
    Ints(HashMap<u64, u32>),
    /// Floats, by their bits: see [`float_key`].
    Floats(HashMap<u64, u32>),
}

/// Returns the bits of a float, with -0 as 0 and one NaN for all.
fn float_key(float: f64) -> u64 {
    if float.is_nan() { f64::NAN.to_bits() } else { (float + 0.0).to_bits() }
}

/// Work: cost of finding a key, in elements.
const WORK: usize = 32;

impl Table {
    /// Makes the table for elements of a type, with keys of an attribute.
    pub(super) fn new(name: &str, elem: DataType, keys: &Keys) -> Result<Table, BindError> {
        if u32::try_from(keys.len()).is_err() {
            fail!("attribute '{name}' has too many elements: {}", keys.len());
        }
        let places = 0u32..;
        Ok(match (elem, keys) {
            (DataType::String, Keys::Texts(keys)) => {
                Table::Texts(keys.iter().cloned().zip(places).collect())
            }
            (DataType::Int16 | DataType::Int32 | DataType::Int64, Keys::Ints(keys)) => {
                Table::Ints(keys.iter().map(|key| *key as u64).zip(places).collect())
            }
            (DataType::Float | DataType::Double, Keys::Floats(keys)) => {
                Table::Floats(keys.iter().map(|key| float_key(*key)).zip(places).collect())
            }
            (DataType::Float | DataType::Double, Keys::Ints(keys)) => {
                let keys = keys.iter().map(|key| float_key(*key as f64));
                Table::Floats(keys.zip(places).collect())
            }
            _ => fail!("attribute '{name}' has no keys for elements of type {elem}"),
        })
    }

    /// Writes the position of each element of an input to `places`; `other` for elements that are
    /// not keys.
    pub(super) fn find(
        &self,
        call: &Call<'_>,
        index: usize,
        other: u32,
        places: &mut [u32],
    ) -> Result<(), KernelError> {
        let view = call.tensor(index)?;
        match (self, view.data_type()) {
            (Table::Texts(table), DataType::String) => {
                let ViewData::Strings(texts) = view.data() else {
                    fail!("input {index} is not a string tensor");
                };
                if !view.is_contiguous() {
                    fail!("input {index} is not dense");
                }
                let (pool, start) = (call.exec.pool, view.offset());
                ml::fill(pool, WORK, places, |at| {
                    table.get(texts.get(start + at)).copied().unwrap_or(other)
                })?;
                Ok(())
            }
            (Table::Ints(table), DataType::Int16) => {
                numbers::<i16>(call, index, table, other, places, |x| i64::from(x) as u64)
            }
            (Table::Ints(table), DataType::Int32) => {
                numbers::<i32>(call, index, table, other, places, |x| i64::from(x) as u64)
            }
            (Table::Ints(table), DataType::Int64) => {
                numbers::<i64>(call, index, table, other, places, |x| x as u64)
            }
            (Table::Floats(table), DataType::Float) => {
                numbers::<f32>(call, index, table, other, places, |x| float_key(f64::from(x)))
            }
            (Table::Floats(table), DataType::Double) => {
                numbers::<f64>(call, index, table, other, places, float_key)
            }
            (_, elem) => {
                fail!("input {index} has element type {elem}, which is not supported for keys")
            }
        }
    }
}

fn numbers<T: Element + Copy>(
    call: &Call<'_>,
    index: usize,
    table: &HashMap<u64, u32>,
    other: u32,
    places: &mut [u32],
    key: fn(T) -> u64,
) -> Result<(), KernelError> {
    let x = call.slice::<T>(index)?;
    ml::map(call.exec.pool, WORK, x, places, |x| table.get(&key(*x)).copied().unwrap_or(other))?;
    Ok(())
}
