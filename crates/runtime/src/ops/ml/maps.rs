//! Operators on maps and vocabularies.

use std::borrow::Cow;

use hashbrown::HashMap;
use sardonyx_kernels::ml;
use sardonyx_model::Type;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{
    CastOptions, DataType, Dims, Element, Map, MapKey, Sequence, StringArray, Tensor, Value,
    ValueType, cast,
};

use super::attributes::{floats, ints, rows_and_columns, strings};
use super::table::{Keys, Table};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::text::set_texts;

/// Returns the default of string values, for unknown keys.
fn default_text(site: &Site<'_>) -> Box<[u8]> {
    site.bytes("default_string").unwrap_or_default().into_boxed_slice()
}

/// Values by key, and after them the default for unknown keys.
enum MapValues {
    Texts(Vec<Box<[u8]>>),
    Numbers(Tensor),
}

impl MapValues {
    /// Makes values from a tensor and a default of the same type.
    fn from_tensor(values: &Tensor, default: &Tensor) -> Result<MapValues, BindError> {
        fn append<T: Element>(values: &Tensor, default: &Tensor) -> Result<MapValues, BindError> {
            let mut all = values.to_vec::<T>()?;
            all.push(default.item::<T>()?);
            Ok(MapValues::Numbers(Tensor::from_vec([all.len()], all)?))
        }
        match values.data_type() {
            DataType::Float => append::<f32>(values, default),
            DataType::Double => append::<f64>(values, default),
            DataType::Int16 => append::<i16>(values, default),
            DataType::Int32 => append::<i32>(values, default),
            DataType::Int64 => append::<i64>(values, default),
            DataType::String => {
                let all = [values, default].into_iter().filter_map(Tensor::strings);
                Ok(MapValues::Texts(all.flat_map(StringArray::iter).map(Box::from).collect()))
            }
            other => fail!("attribute 'values_tensor' has the unsupported type {other}"),
        }
    }

    /// Returns the number of values without the default.
    fn len(&self) -> usize {
        let all = match self {
            MapValues::Texts(texts) => texts.len(),
            MapValues::Numbers(numbers) => numbers.len(),
        };
        all - 1
    }

    /// Writes the values at some places as an output.
    fn write(&self, call: &mut Call<'_>, dims: &Dims, places: &[u32]) -> Result<(), KernelError> {
        fn bytes<const N: usize>(
            call: &mut Call<'_>,
            numbers: &Tensor,
            dims: &Dims,
            places: &[u32],
        ) -> Result<(), KernelError> {
            let pool = call.exec.pool;
            let mut output = call.output(0, numbers.data_type(), dims)?;
            let (table, y) = (numbers.bytes().as_chunks::<N>().0, output.bytes_mut());
            Ok(ml::look_up(pool, table, places, y.as_chunks_mut::<N>().0)?)
        }
        match self {
            MapValues::Texts(texts) => {
                set_texts(call, 0, dims, places.iter().map(|place| &texts[*place as usize][..]))
            }
            MapValues::Numbers(numbers) => match numbers.data_type().bits() {
                Some(16) => bytes::<2>(call, numbers, dims, places),
                Some(32) => bytes::<4>(call, numbers, dims, places),
                Some(64) => bytes::<8>(call, numbers, dims, places),
                _ => fail!("values of type {} cannot be looked up", numbers.data_type()),
            },
        }
    }
}

/// Binds `CategoryMapper`.
pub(crate) fn bind_category_mapper(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (numbers, mut texts) = (ints(site, "cats_int64s")?, strings(site, "cats_strings")?);
    if numbers.len() != texts.len() {
        fail!(
            "attribute 'cats_int64s' has {} elements, but 'cats_strings' has {}",
            numbers.len(),
            texts.len()
        );
    }
    let (table, values) = match site.elem(0)? {
        elem @ DataType::String => {
            let table = Table::new("cats_strings", elem, &Keys::Texts(texts))?;
            let mut all = numbers;
            all.push(site.int("default_int64").unwrap_or(-1));
            (table, MapValues::Numbers(Tensor::from_vec([all.len()], all)?))
        }
        elem @ DataType::Int64 => {
            let table = Table::new("cats_int64s", elem, &Keys::Ints(Cow::Owned(numbers)))?;
            texts.push(default_text(site));
            (table, MapValues::Texts(texts))
        }
        other => return site.unsupported_type(other),
    };
    Ok(Box::new(Encoder { table, values }))
}

/// Binds `LabelEncoder`.
pub(crate) fn bind_label_encoder(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (name, keys) = keys(site)?;
    let values = values(site)?;
    if keys.len() != values.len() {
        fail!("'{name}' has {} keys, but there are {} values", keys.len(), values.len());
    }
    Ok(Box::new(Encoder { table: Table::new(name, site.elem(0)?, &keys)?, values }))
}

/// Returns the one attribute of `names` that the node has. It must have exactly one.
fn find_only(site: &Site<'_>, names: [&'static str; 4]) -> Result<&'static str, BindError> {
    let mut given = names.into_iter().filter(|name| site.attributes.get(name).is_some());
    match (given.next(), given.next()) {
        (Some(name), None) => Ok(name),
        (None, _) => fail!("the node has none of the attributes {}", names.join(", ")),
        (Some(one), Some(other)) => fail!("the node has both '{one}' and '{other}'"),
    }
}

/// Returns a tensor attribute.
fn tensor(site: &Site<'_>, name: &str) -> Result<Option<Tensor>, BindError> {
    match site.attributes.get(name) {
        Some(AttrValue::Tensor(tensor)) => Ok(Some(tensor)),
        Some(_) => fail!("attribute '{name}' is not a tensor"),
        None => Ok(None),
    }
}

fn keys(site: &Site<'_>) -> Result<(&'static str, Keys), BindError> {
    let name = find_only(site, ["keys_tensor", "keys_strings", "keys_int64s", "keys_floats"])?;
    let keys = match (name, tensor(site, "keys_tensor")) {
        (_, Ok(Some(tensor))) => Keys::from_tensor(name, &tensor)?,
        ("keys_strings", _) => Keys::Texts(strings(site, name)?),
        ("keys_int64s", _) => Keys::Ints(Cow::Owned(ints(site, name)?)),
        ("keys_floats", _) => {
            Keys::Floats(floats(site, name)?.into_iter().map(f64::from).collect())
        }
        (_, other) => fail!("attribute '{name}' cannot be read: {other:?}"),
    };
    Ok((name, keys))
}

fn values(site: &Site<'_>) -> Result<MapValues, BindError> {
    let name =
        find_only(site, ["values_tensor", "values_strings", "values_int64s", "values_floats"])?;
    let default_int = site.int("default_int64").unwrap_or(-1);
    let default_float = site.float("default_float").unwrap_or(-0.0);
    Ok(match name {
        "values_strings" => {
            let mut texts = strings(site, name)?;
            texts.push(default_text(site));
            MapValues::Texts(texts)
        }
        "values_int64s" => {
            let mut numbers = ints(site, name)?;
            numbers.push(default_int);
            MapValues::Numbers(Tensor::from_vec([numbers.len()], numbers)?)
        }
        "values_floats" => {
            let mut numbers = floats(site, name)?;
            numbers.push(default_float);
            MapValues::Numbers(Tensor::from_vec([numbers.len()], numbers)?)
        }
        _ => {
            let Some(values) = tensor(site, name)? else {
                fail!("attribute '{name}' cannot be read");
            };
            let default = match tensor(site, "default_tensor")? {
                Some(default) => default,
                // Without a tensor, the default is that of the lists, in the type of the values.
                None => match values.data_type() {
                    DataType::String => {
                        let texts = StringArray::from_iter([default_text(site)]);
                        Tensor::from_strings([1], texts)?
                    }
                    DataType::Float | DataType::Double => cast(
                        &Tensor::from_vec([1], vec![default_float])?,
                        values.data_type(),
                        CastOptions::default(),
                    )?,
                    elem => cast(
                        &Tensor::from_vec([1], vec![default_int])?,
                        elem,
                        CastOptions::default(),
                    )?,
                },
            };
            if (default.data_type(), default.len()) != (values.data_type(), 1) {
                fail!(
                    "attribute 'default_tensor' has {} elements of type {}, but must have one of type {}",
                    default.len(),
                    default.data_type(),
                    values.data_type()
                );
            }
            MapValues::from_tensor(&values, &default)?
        }
    })
}

/// Map from elements to values, by keys.
struct Encoder {
    table: Table,
    values: MapValues,
}

impl Kernel for Encoder {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = Dims::from(call.tensor(0)?.dims());
        let mut places = call.scratch::<u32>(call.tensor(0)?.len())?;
        self.table.find(call, 0, self.values.len() as u32, &mut places)?;
        self.values.write(call, &dims, &places)
    }

    fn describe(&self) -> String {
        format!("look up in {} keys", self.values.len())
    }
}

/// Returns the types of keys and values of the input map.
fn map_types(site: &Site<'_>) -> Result<(DataType, DataType), BindError> {
    let input = site.inputs.first().and_then(Option::as_ref);
    match input.and_then(|input| input.ty.as_deref()) {
        Some(Type::Map(key, value)) => match value.elem() {
            Some(value) => Ok((*key, value)),
            None => fail!("the value type of the map is unknown"),
        },
        Some(other) => fail!("the input is {other}, not a map"),
        None => Err(BindError::Unsupported("the type of input 0 is unknown".to_string())),
    }
}

/// Returns the input map.
fn map<'a>(call: &'a Call<'_>) -> Result<&'a Map, KernelError> {
    match call.value(0) {
        Some(Value::Map(map)) => Ok(map),
        Some(other) => fail!("input 0 is {}, not a map", other.value_type()),
        None => fail!("input 0 is not a map"),
    }
}

/// Returns the only element of a value of a map.
fn element<T: Element>(value: &Value) -> Result<T, KernelError> {
    match value {
        Value::Tensor(tensor) if tensor.len() == 1 => Ok(tensor.to_vec::<T>()?[0]),
        other => fail!("a value of the map is {}, not one element", other.value_type()),
    }
}

/// Returns the only string of a value of a map.
fn string(value: &Value) -> Result<&[u8], KernelError> {
    match value {
        Value::Tensor(tensor) if tensor.len() == 1 => match tensor.strings() {
            Some(strings) => Ok(strings.get(0)),
            None => fail!("a value of the map is {}, not a string", tensor.data_type()),
        },
        other => fail!("a value of the map is {}, not one string", other.value_type()),
    }
}

/// Binds `DictVectorizer`.
pub(crate) fn bind_dict_vectorizer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names = ["int64_vocabulary", "string_vocabulary"];
    let (numbers, texts) = (ints(site, names[0])?, strings(site, names[1])?);
    let given = names.map(|name| site.attributes.get(name).is_some());
    let (name, key, places): (_, _, Vec<MapKey>) = match given {
        [true, false] => {
            (names[0], DataType::Int64, numbers.into_iter().map(MapKey::Signed).collect())
        }
        [false, true] => {
            (names[1], DataType::String, texts.into_iter().map(MapKey::String).collect())
        }
        [true, true] => fail!("the node has both '{}' and '{}'", names[0], names[1]),
        [false, false] => {
            fail!("one of the attributes '{}' and '{}' is required", names[0], names[1])
        }
    };
    let (found, elem) = map_types(site)?;
    if found != key {
        fail!("attribute '{name}' has keys of type {key}, but the map has keys of type {found}");
    }
    let mut places_of: HashMap<MapKey, Vec<usize>> = HashMap::with_capacity(places.len());
    for (place, key) in places.iter().enumerate() {
        places_of.entry(key.clone()).or_default().push(place);
    }
    let mut dims = Dims::from(&[places.len()][..]);
    // The standard's output has one dimension. ONNX Runtime returns a matrix of one row, which
    // models made for it declare.
    if site.rank == Some(2) {
        dims.insert(0, 1);
    }
    Ok(Box::new(Vectorizer { elem, dims, places: places_of }))
}

struct Vectorizer {
    /// Type of the values.
    elem: DataType,
    /// Dimensions of the output.
    dims: Dims,
    /// Positions of each key in the output.
    places: HashMap<MapKey, Vec<usize>>,
}

impl Vectorizer {
    /// Returns the number of keys of the vocabulary.
    fn count(&self) -> usize {
        self.dims.iter().product()
    }

    fn place<'m, T: Clone>(
        &self,
        map: &'m Map,
        y: &mut [T],
        value_of: impl Fn(&'m Value) -> Result<T, KernelError>,
    ) -> Result<(), KernelError> {
        for (key, value) in map.entries() {
            // Keys outside of the vocabulary are ignored.
            let Some(places) = self.places.get(key) else { continue };
            let value = value_of(value)?;
            for place in places {
                y[*place] = value.clone();
            }
        }
        Ok(())
    }

    fn numbers<T: Element>(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut y = call.scratch::<T>(self.count())?;
        self.place(map(call)?, &mut y, element::<T>)?;
        call.output_slice::<T>(0, &self.dims)?.copy_from_slice(&y);
        Ok(())
    }
}

impl Kernel for Vectorizer {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match self.elem {
            DataType::Float => self.numbers::<f32>(call),
            DataType::Double => self.numbers::<f64>(call),
            DataType::Int64 => self.numbers::<i64>(call),
            DataType::String => {
                call.reserve(self.count().saturating_mul(size_of::<Vec<u8>>()))?;
                let mut y: Vec<Vec<u8>> = vec![Vec::new(); self.count()];
                self.place(map(call)?, &mut y, |value| Ok(string(value)?.to_vec()))?;
                set_texts(call, 0, &self.dims, y.iter().map(Vec::as_slice))
            }
            other => fail!("a map to {other} is not supported"),
        }
    }

    fn describe(&self) -> String {
        format!("values of {} keys", self.count())
    }
}

/// Binds `CastMap`.
pub(crate) fn bind_cast_map(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let types = [
        ("TO_FLOAT", DataType::Float),
        ("TO_INT64", DataType::Int64),
        ("TO_STRING", DataType::String),
    ];
    let to = site.find_named("cast_to", &types)?;
    let mut width = None;
    if site.find_named("map_form", &[("DENSE", false), ("SPARSE", true)])? {
        let given = site.int("max_map").unwrap_or(1);
        width = usize::try_from(given).ok().filter(|width| *width > 0);
        if width.is_none() {
            fail!("attribute 'max_map' is {given}, but must be greater than 0");
        }
    }
    match map_types(site)? {
        (DataType::Int64, elem @ (DataType::Float | DataType::String)) => {
            Ok(Box::new(CastMap { elem, to, width }))
        }
        (key, value) => {
            fail!("the input is map({key}, {value}), which the operator does not support")
        }
    }
}

struct CastMap {
    elem: DataType,
    to: DataType,
    /// Length of the output, if keys are positions.
    width: Option<usize>,
}

impl CastMap {
    /// Returns the values with their positions in ascending order, and the length of the output.
    fn place<'m>(&self, map: &'m Map) -> Result<(Vec<(usize, &'m Value)>, usize), KernelError> {
        let mut entries = Vec::with_capacity(map.entries().len());
        for (key, value) in map.entries() {
            let MapKey::Signed(key) = key else { fail!("a key of the map is not an integer") };
            entries.push((*key, value));
        }
        entries.sort_by_key(|(key, _)| *key);
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            fail!("the map has the key {} twice", twice[0].0);
        }
        let Some(width) = self.width else {
            let count = entries.len();
            let values = entries.into_iter().map(|(_, value)| value);
            return Ok((values.enumerate().collect(), count));
        };
        let placed = entries.into_iter().map(|(key, value)| match usize::try_from(key) {
            Ok(place) if place < width => Ok((place, value)),
            _ => fail!(
                "the map has the key {key}, but attribute 'max_map' allows 0 to {}",
                width - 1
            ),
        });
        Ok((placed.collect::<Result<_, KernelError>>()?, width))
    }
}

impl Kernel for CastMap {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (placed, width) = self.place(map(call)?)?;
        let values = match self.elem {
            DataType::String => {
                let texts = placed.iter().map(|(_, value)| string(value));
                let texts = texts.collect::<Result<Vec<&[u8]>, KernelError>>()?;
                Tensor::from_strings([placed.len()], StringArray::from_iter(texts))?
            }
            _ => {
                let numbers = placed.iter().map(|(_, value)| element::<f32>(value));
                let numbers = numbers.collect::<Result<Vec<f32>, KernelError>>()?;
                Tensor::from_vec([placed.len()], numbers)?
            }
        };
        let values = cast(&values, self.to, CastOptions::default())?;
        let places: Vec<usize> = placed.iter().map(|(place, _)| *place).collect();
        let dims = [1, width];
        let Some(texts) = values.strings() else {
            let bytes = self.to.storage_bytes(1).unwrap_or(0);
            let mut output = call.output(0, self.to, &dims)?;
            let y = output.bytes_mut();
            y.fill(0);
            for (place, value) in places.iter().zip(values.bytes().chunks_exact(bytes.max(1))) {
                y[place * bytes..][..bytes].copy_from_slice(value);
            }
            return Ok(());
        };
        // Charges the positions first, so that a large width is an error and does not abort.
        call.reserve(width.saturating_mul(size_of::<usize>()))?;
        Tensor::zeros(DataType::String, dims)?;
        let mut given = places.iter().zip(texts.iter()).peekable();
        let mut all = StringArray::with_capacity(width, texts.total_bytes());
        for place in 0..width {
            match given.next_if(|(at, _)| **at == place) {
                Some((_, text)) => all.push(text),
                // The zero of strings is the empty string.
                None => all.push(b""),
            }
        }
        call.set_output(0, Value::Tensor(Tensor::from_strings(dims, all)?))
    }

    fn describe(&self) -> String {
        "values of a map in order".to_string()
    }
}

/// Binds `ZipMap`.
pub(crate) fn bind_zip_map(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names = ["classlabels_int64s", "classlabels_strings"];
    let (numbers, texts) = (ints(site, names[0])?, strings(site, names[1])?);
    let (name, key, keys): (_, _, Vec<MapKey>) = match (numbers.is_empty(), texts.is_empty()) {
        (false, true) => {
            (names[0], DataType::Int64, numbers.into_iter().map(MapKey::Signed).collect())
        }
        (true, false) => {
            (names[1], DataType::String, texts.into_iter().map(MapKey::String).collect())
        }
        (true, true) => {
            fail!("one of the attributes '{}' and '{}' is required", names[0], names[1])
        }
        (false, false) => fail!("the node has both '{}' and '{}'", names[0], names[1]),
    };
    let mut sorted: Vec<&MapKey> = keys.iter().collect();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        fail!("attribute '{name}' has {:?} twice", twice[0]);
    }
    Ok(Box::new(ZipMap { name, key, keys }))
}

struct ZipMap {
    name: &'static str,
    key: DataType,
    keys: Vec<MapKey>,
}

impl Kernel for ZipMap {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [rows, columns] = rows_and_columns(call.tensor(0)?.dims())?;
        if columns != self.keys.len() {
            fail!(
                "attribute '{}' has {} elements, but a row has {columns} scores",
                self.name,
                self.keys.len()
            );
        }
        let scores = call.slice::<f32>(0)?;
        let float = ValueType::Tensor(DataType::Float);
        let mut maps = Sequence::new(ValueType::Map(self.key, Box::new(float.clone())));
        let entry = size_of::<(MapKey, Value)>() + SCALAR_BYTES;
        let counted = scores.len().saturating_mul(entry);
        let counted = counted.saturating_add(rows.saturating_mul(Sequence::ITEM_BYTES));
        call.reserve(counted)?;
        maps.reserve(rows)?;
        for row in 0..rows {
            let mut map = Map::new(self.key, float.clone())?;
            for (key, score) in self.keys.iter().zip(&scores[row * columns..]) {
                map.push(key.clone(), Value::Tensor(Tensor::scalar(*score)))?;
            }
            maps.push(Value::Map(map))?;
        }
        call.uncount(counted);
        call.set_output(0, Value::Sequence(maps))
    }

    fn describe(&self) -> String {
        format!("maps of {} classes", self.keys.len())
    }
}

/// Value: approximate bytes of a tensor of one number.
const SCALAR_BYTES: usize = 128;

#[cfg(test)]
mod tests;
