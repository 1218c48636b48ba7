//! Values that an edge of a graph can carry: tensors, sparse tensors, sequences, maps and optionals
//! of values, and opaque values, which only operators of a program read.
//!
//! Sequences, maps and optionals carry the type of their content because they may be empty.
//! [`ValueType`] has element types only; dims belong to the types of the graph.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::element::{Class, DataType};
use crate::error::{TensorError, err};
use crate::shape::{Dims, strides};
use crate::strings::StringArray;
use crate::tensor::Tensor;

/// Type of a value without its dims: its kind and its element types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Dense tensor of these elements.
    Tensor(DataType),
    /// Sparse tensor of these elements.
    Sparse(DataType),
    /// List of values of one type.
    Sequence(Box<ValueType>),
    /// Map of values of one type with keys of one type.
    Map(DataType, Box<ValueType>),
    /// Value of a type, or none.
    Optional(Box<ValueType>),
    /// Value that only operators of a program can read.
    Opaque(Box<OpaqueType>),
}

/// Name of an opaque type, as in `TypeProto.Opaque`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpaqueType {
    /// Domain of the type; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the type in its domain.
    pub name: String,
}

/// Input, output or intermediate value of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Dense tensor.
    Tensor(Tensor),
    /// Sparse tensor; boxed because it is large and rare.
    Sparse(Box<Sparse>),
    /// List of values of one type.
    Sequence(Sequence),
    /// Map of values of one type.
    Map(Map),
    /// Value of the given type, or none.
    Optional(ValueType, Option<Box<Value>>),
    /// Value that only operators of a program can read.
    Opaque(Opaque),
}

impl ValueType {
    /// Whether the type is opaque or contains an opaque type. Such values cannot be written to
    /// files.
    pub fn is_opaque(&self) -> bool {
        match self {
            ValueType::Tensor(_) | ValueType::Sparse(_) => false,
            ValueType::Sequence(inner) | ValueType::Map(_, inner) | ValueType::Optional(inner) => {
                inner.is_opaque()
            }
            ValueType::Opaque(_) => true,
        }
    }
}

impl Value {
    /// Wraps a value in an optional.
    pub fn some(value: Value) -> Value {
        Value::Optional(value.value_type(), Some(Box::new(value)))
    }

    /// Makes an empty optional for values of type `element`.
    pub fn none(element: ValueType) -> Value {
        Value::Optional(element, None)
    }

    /// Returns the number of bytes that the value takes: its elements, and for each item of a
    /// sequence [`Sequence::ITEM_BYTES`]. Memory that it shares with other values counts too.
    pub fn bytes(&self) -> usize {
        match self {
            Value::Tensor(tensor) => tensor.held_bytes(),
            Value::Sparse(sparse) => {
                sparse.values.held_bytes()
                    + sparse.indices.held_bytes()
                    + size_of_val(&sparse.positions[..])
            }
            Value::Sequence(sequence) => sequence.bytes,
            Value::Map(map) => {
                let entries = map.entries().iter();
                entries.map(|(_, value)| 16 + value.bytes()).sum()
            }
            Value::Optional(_, held) => held.as_ref().map_or(0, |value| value.bytes()),
            Value::Opaque(opaque) => opaque.0.bytes,
        }
    }

    /// Returns the type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::Tensor(tensor) => ValueType::Tensor(tensor.data_type()),
            Value::Sparse(sparse) => ValueType::Sparse(sparse.values.data_type()),
            Value::Sequence(sequence) => ValueType::Sequence(Box::new(sequence.element.clone())),
            Value::Map(map) => ValueType::Map(map.key, Box::new(map.value.clone())),
            Value::Optional(element, _) => ValueType::Optional(Box::new(element.clone())),
            Value::Opaque(opaque) => ValueType::Opaque(Box::new(opaque.opaque_type().clone())),
        }
    }

    /// Returns the dense tensor; `None` for other kinds of values.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Converts the value into its dense tensor.
    ///
    /// # Errors
    /// The value itself, if it is not a dense tensor.
    pub fn into_tensor(self) -> Result<Tensor, Value> {
        match self {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(other),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl From<Sparse> for Value {
    fn from(sparse: Sparse) -> Value {
        Value::Sparse(Box::new(sparse))
    }
}

impl From<Sequence> for Value {
    fn from(sequence: Sequence) -> Value {
        Value::Sequence(sequence)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Value {
        Value::Map(map)
    }
}

impl From<Opaque> for Value {
    fn from(opaque: Opaque) -> Value {
        Value::Opaque(opaque)
    }
}

/// Value that only operators of a program can read, such as a tokenizer, an index or a handle.
/// Clones share the content, and an opaque value equals only its clones.
///
/// ```
/// use sardonyx_tensor::Opaque;
///
/// let words = Opaque::new("com.example", "Words", 10, vec!["to", "be"]);
/// assert_eq!(words.get::<Vec<&str>>().map(Vec::len), Some(2));
/// assert!(words.get::<String>().is_none());
/// ```
#[derive(Clone)]
pub struct Opaque(Arc<Held<dyn Any + Send + Sync>>);

/// Opaque value with its type and its memory size in bytes.
struct Held<T: ?Sized> {
    ty: OpaqueType,
    bytes: usize,
    value: T,
}

impl Opaque {
    /// Wraps a value as one of the opaque type with this domain and name. `bytes` is the memory
    /// that it takes, for limits of memory.
    pub fn new<T: Any + Send + Sync>(domain: &str, name: &str, bytes: usize, value: T) -> Opaque {
        let ty = OpaqueType { domain: domain.to_string(), name: name.to_string() };
        Opaque(Arc::new(Held { ty, bytes, value }))
    }

    /// Returns the domain and the name of the opaque type.
    pub fn opaque_type(&self) -> &OpaqueType {
        &self.0.ty
    }

    /// Returns the content if it has the Rust type `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.value.downcast_ref()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.opaque_type())
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Opaque) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// List of values of one type.
#[derive(Debug, Clone)]
pub struct Sequence {
    element: ValueType,
    items: Vec<Value>,
    /// Total size of the items in bytes; cached because appending to a long sequence reads it each
    /// time.
    bytes: usize,
}

impl PartialEq for Sequence {
    fn eq(&self, other: &Sequence) -> bool {
        self.element == other.element && self.items == other.items
    }
}

impl Sequence {
    /// Bytes that an item takes in addition to its elements.
    pub const ITEM_BYTES: usize = size_of::<Value>() + 64;

    /// Makes an empty sequence for items of type `element`.
    pub fn new(element: ValueType) -> Sequence {
        Sequence { element, items: Vec::new(), bytes: 0 }
    }

    /// Makes a sequence of dense tensors.
    ///
    /// # Errors
    /// A tensor has another element type than `data_type`.
    pub fn from_tensors(
        data_type: DataType,
        tensors: impl IntoIterator<Item = Tensor>,
    ) -> Result<Sequence, TensorError> {
        let mut sequence = Sequence::new(ValueType::Tensor(data_type));
        for tensor in tensors {
            sequence.push(Value::Tensor(tensor))?;
        }
        Ok(sequence)
    }

    /// Returns the type of the items.
    pub fn element(&self) -> &ValueType {
        &self.element
    }

    /// Returns the items in order.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// Converts the sequence into its items.
    pub fn into_items(self) -> Vec<Value> {
        self.items
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the sequence has no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Reserves memory for `items` more items.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn reserve(&mut self, items: usize) -> Result<(), TensorError> {
        if self.items.try_reserve(items).is_err() {
            return err!(Overflow, "not enough memory for {items} items");
        }
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Errors
    /// The item has another type.
    pub fn push(&mut self, item: Value) -> Result<(), TensorError> {
        self.insert(self.items.len(), item)
    }

    /// Inserts an item before the one at `index`.
    ///
    /// # Errors
    /// The item has another type, or `index` is greater than the number of items.
    pub fn insert(&mut self, index: usize, item: Value) -> Result<(), TensorError> {
        if index > self.items.len() {
            return err!(Range, "position {index} in a sequence of {}", self.items.len());
        }
        let found = item.value_type();
        if found != self.element {
            return err!(Type, "a sequence of {} cannot hold {found}", self.element);
        }
        self.bytes = self.bytes.saturating_add(item.bytes() + Self::ITEM_BYTES);
        self.items.insert(index, item);
        Ok(())
    }

    /// Removes and returns the item at `index`; `None` if the sequence has no such item.
    pub fn remove(&mut self, index: usize) -> Option<Value> {
        let item = (index < self.items.len()).then(|| self.items.remove(index))?;
        self.bytes = self.bytes.saturating_sub(item.bytes() + Self::ITEM_BYTES);
        Some(item)
    }
}

/// Key of a [`Map`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapKey {
    /// Key of a signed integer type.
    Signed(i64),
    /// Key of an unsigned integer type.
    Unsigned(u64),
    /// Key of type `string`, as bytes.
    String(Box<[u8]>),
}

/// Map of values of one type with keys of one type, in the order of insertion.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    key: DataType,
    value: ValueType,
    entries: Vec<(MapKey, Value)>,
}

impl Map {
    /// Makes an empty map.
    ///
    /// # Errors
    /// `key` is neither `string` nor an integer type of at least 8 bits (requirement TYPE-17).
    pub fn new(key: DataType, value: ValueType) -> Result<Map, TensorError> {
        if key == DataType::String || key.is_integer() && !key.is_packed() {
            return Ok(Map { key, value, entries: Vec::new() });
        }
        err!(Type, "{key} cannot be the key of a map: integers of 8 to 64 bits and strings can")
    }

    /// Returns the type of the keys.
    pub fn key_type(&self) -> DataType {
        self.key
    }

    /// Returns the type of the values.
    pub fn element(&self) -> &ValueType {
        &self.value
    }

    /// Returns the entries in the order of insertion.
    pub fn entries(&self) -> &[(MapKey, Value)] {
        &self.entries
    }

    /// Looks up a key. Takes time linear in the number of entries.
    pub fn get(&self, key: &MapKey) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Appends an entry without comparing its key with the others; see [`Map::has_duplicate_keys`].
    ///
    /// # Errors
    /// Key or value has another type, or the key is outside of the range of its type.
    pub fn push(&mut self, key: MapKey, value: Value) -> Result<(), TensorError> {
        let bits = self.key.bits().unwrap_or(64);
        let fits = match (&key, self.key.class()) {
            (MapKey::Signed(k), Class::Signed) => k << (64 - bits) >> (64 - bits) == *k,
            (MapKey::Unsigned(k), Class::Unsigned) => k << (64 - bits) >> (64 - bits) == *k,
            (MapKey::String(_), Class::String) => true,
            _ => false,
        };
        if !fits {
            return err!(Type, "{key:?} is not a key of type {}", self.key);
        }
        let found = value.value_type();
        if found != self.value {
            return err!(Type, "a map to {} cannot hold {found}", self.value);
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// Whether a key occurs several times.
    pub fn has_duplicate_keys(&self) -> bool {
        let mut keys: Vec<&MapKey> = self.entries.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Sparse tensor, which stores some of its elements; the others are 0, false or an empty string.
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    dims: Dims,
    values: Tensor,
    /// Row-major position of each value, strictly ascending.
    positions: Vec<usize>,
    indices: Tensor,
}

impl Sparse {
    /// Makes a sparse tensor from its dims, values of shape `[NNZ]`, and `int64` indices: row-major
    /// positions of shape `[NNZ]`, or coordinates of shape `[NNZ, rank]`.
    ///
    /// # Errors
    /// Shapes or types do not fit (requirements TENSOR-34 and TENSOR-35), or indices are not
    /// strictly ascending (TENSOR-36) or out of range (TENSOR-37).
    pub fn new(
        dims: impl AsRef<[usize]>,
        values: Tensor,
        indices: Tensor,
    ) -> Result<Sparse, TensorError> {
        let dims = dims.as_ref();
        let total = crate::shape::elems(dims)?;
        if dims.is_empty() || total == 0 {
            return err!(Shape, "a sparse tensor must have positive dims, not {dims:?}");
        }
        if values.rank() != 1 {
            return err!(Shape, "values of a sparse tensor have rank 1, not {:?}", values.dims());
        }
        let (nnz, rank) = (values.len(), dims.len());
        let tuples = match *indices.dims() {
            [n] if n == nnz => false,
            [n, r] if n == nnz && r == rank => true,
            ref other => {
                return err!(
                    Shape,
                    "indices of {nnz} values in {dims:?} are [{nnz}] or [{nnz}, {rank}], not {other:?}"
                );
            }
        };
        let flat = indices.to_cow::<i64>()?;
        let steps = strides(dims);
        let mut positions = Vec::with_capacity(nnz);
        for k in 0..nnz {
            let position = if tuples {
                let mut position = 0;
                for axis in 0..rank {
                    let index = flat[k * rank + axis];
                    if index < 0 || index as u64 >= dims[axis] as u64 {
                        return err!(
                            Range,
                            "index {index} of value {k} is outside dim {axis} of {dims:?}"
                        );
                    }
                    position += index as usize * steps[axis] as usize;
                }
                position
            } else {
                let index = flat[k];
                if index < 0 || index as u64 >= total as u64 {
                    return err!(Range, "index {index} of value {k} is outside {dims:?}");
                }
                index as usize
            };
            if positions.last().is_some_and(|&last| last >= position) {
                return err!(
                    Range,
                    "indices of a sparse tensor must ascend; those of values {} and {k} do not",
                    k - 1
                );
            }
            positions.push(position);
        }
        drop(flat);
        Ok(Sparse { dims: dims.into(), values, positions, indices })
    }

    /// Stores the elements of a dense tensor that are not 0, false or empty, with row-major
    /// positions as indices. A negative zero is stored.
    ///
    /// # Errors
    /// The tensor is a scalar or has no elements, which sparse tensors cannot represent, or memory
    /// cannot be allocated.
    pub fn from_dense(tensor: &Tensor) -> Result<Sparse, TensorError> {
        let (data_type, bytes) = (tensor.data_type(), tensor.bytes());
        let bits = data_type.bits().unwrap_or(8);
        let width = bits / 8;
        let is_there = |at: &usize| match tensor.strings() {
            Some(strings) => !strings.get(*at).is_empty(),
            None if bits < 8 => crate::packed::get(bytes, bits, *at) != 0,
            None => bytes[at * width..(at + 1) * width].iter().any(|byte| *byte != 0),
        };
        let positions: Vec<usize> = (0..tensor.len()).filter(is_there).collect();
        let values = match tensor.strings() {
            Some(strings) => {
                let given = positions.iter().map(|at| strings.get(*at));
                Tensor::from_strings([positions.len()], given.collect::<StringArray>())?
            }
            None => {
                let mut values = Tensor::zeros(data_type, [positions.len()])?;
                let out = values.bytes_mut()?;
                for (k, &at) in positions.iter().enumerate() {
                    if bits < 8 {
                        crate::packed::set(out, bits, k, crate::packed::get(bytes, bits, at));
                    } else {
                        out[k * width..(k + 1) * width]
                            .copy_from_slice(&bytes[at * width..(at + 1) * width]);
                    }
                }
                values
            }
        };
        let indices: Vec<i64> = positions.iter().map(|at| *at as i64).collect();
        Sparse::new(tensor.dims(), values, Tensor::from_vec([indices.len()], indices)?)
    }

    /// Returns the dims of the whole tensor.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the stored values, of shape `[NNZ]`.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// Returns the indices as they were given, of shape `[NNZ]` or `[NNZ, rank]`.
    pub fn indices(&self) -> &Tensor {
        &self.indices
    }

    /// Returns the row-major position of each stored value, strictly ascending.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Converts to a dense tensor (requirement TENSOR-38).
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn to_dense(&self) -> Result<Tensor, TensorError> {
        let data_type = self.values.data_type();
        if let Some(strings) = self.values.strings() {
            let total = crate::shape::elems(&self.dims)?;
            // Tries to allocate the ends alone first, so that a malicious shape is an error rather
            // than an abort.
            Tensor::zeros(data_type, &self.dims)?;
            let mut out = StringArray::with_capacity(total, strings.total_bytes());
            let mut given = self.positions.iter().zip(strings.iter()).peekable();
            for position in 0..total {
                match given.next_if(|(at, _)| **at == position) {
                    Some((_, string)) => out.push(string),
                    None => out.push(b""),
                }
            }
            return Tensor::from_strings(&self.dims, out);
        }
        let mut dense = Tensor::zeros(data_type, &self.dims)?;
        let (source, out) = (self.values.bytes(), dense.bytes_mut()?);
        let bits = data_type.bits().unwrap_or(8);
        for (k, &at) in self.positions.iter().enumerate() {
            if bits < 8 {
                crate::packed::set(out, bits, at, crate::packed::get(source, bits, k));
            } else {
                let width = bits / 8;
                out[at * width..(at + 1) * width]
                    .copy_from_slice(&source[k * width..(k + 1) * width]);
            }
        }
        Ok(dense)
    }
}

/// Prints the type as in ONNX text: `seq(tensor(float))`.
impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Tensor(element) => write!(f, "tensor({element})"),
            ValueType::Sparse(element) => write!(f, "sparse_tensor({element})"),
            ValueType::Sequence(element) => write!(f, "seq({element})"),
            ValueType::Map(key, value) => write!(f, "map({key},{value})"),
            ValueType::Optional(element) => write!(f, "optional({element})"),
            ValueType::Opaque(opaque) => opaque.fmt(f),
        }
    }
}

/// Prints the type as in ONNX text: `opaque(com.example, Words)`.
impl fmt::Display for OpaqueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.domain.as_str() {
            "" => write!(f, "opaque({})", self.name),
            domain => write!(f, "opaque({domain}, {})", self.name),
        }
    }
}
