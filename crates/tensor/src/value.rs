//! Values: what an edge of a graph can carry. Tensors, sparse tensors, sequences, maps and
//! optionals of values, and what only the operators of a program can read.
//!
//! Sequences, maps and optionals carry the type of what they hold, since they may hold nothing.
//! [`ValueType`] says element types only; dims are a matter of the graph.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::element::{Class, DataType};
use crate::error::{TensorError, err};
use crate::shape::{Dims, strides};
use crate::strings::StringArray;
use crate::tensor::Tensor;

/// The kind of a value, down to element types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// Dense tensor of these elements.
    Tensor(DataType),
    /// Sparse tensor of these elements.
    Sparse(DataType),
    /// Ordered list of values of one type.
    Sequence(Box<ValueType>),
    /// Values of one type by keys of one type.
    Map(DataType, Box<ValueType>),
    /// One value of a type, or nothing.
    Optional(Box<ValueType>),
    /// A value that only the operators of a program can read.
    Opaque(Box<OpaqueType>),
}

/// What an opaque value is called: `TypeProto.Opaque`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpaqueType {
    /// Domain; empty for `ai.onnx`.
    pub domain: String,
    /// Name.
    pub name: String,
}

/// A value of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Dense tensor.
    Tensor(Tensor),
    /// Sparse tensor; boxed, being large and rare.
    Sparse(Box<Sparse>),
    /// Ordered list.
    Sequence(Sequence),
    /// Values by key.
    Map(Map),
    /// A value of the type, or nothing.
    Optional(ValueType, Option<Box<Value>>),
    /// What only the operators of a program can read.
    Opaque(Opaque),
}

impl ValueType {
    /// Whether it is opaque, or of values that are. These have no form in a file.
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
    /// An optional that holds `value`.
    pub fn some(value: Value) -> Value {
        Value::Optional(value.value_type(), Some(Box::new(value)))
    }

    /// An optional that could hold `element`, but holds nothing.
    pub fn none(element: ValueType) -> Value {
        Value::Optional(element, None)
    }

    /// Bytes that it takes: those of its elements, and for each item of a sequence what holds it.
    /// What it shares with other values counts as well.
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

    /// The type of the value.
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

    /// The dense tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The dense tensor, or the value back if it is none.
    ///
    /// # Errors
    /// The value itself.
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

/// A value that only the operators of a program can read: a tokenizer, an index, a handle. Clones
/// share what is held, and only they are equal.
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

/// An opaque value with its type and the memory that it takes.
struct Held<T: ?Sized> {
    ty: OpaqueType,
    bytes: usize,
    value: T,
}

impl Opaque {
    /// Wraps a value of a type that is called by a domain and a name. `bytes` is the memory that it
    /// takes, which counts in limits of memory.
    pub fn new<T: Any + Send + Sync>(domain: &str, name: &str, bytes: usize, value: T) -> Opaque {
        let ty = OpaqueType { domain: domain.to_string(), name: name.to_string() };
        Opaque(Arc::new(Held { ty, bytes, value }))
    }

    /// What it is called.
    pub fn opaque_type(&self) -> &OpaqueType {
        &self.0.ty
    }

    /// What is held, if it is of that Rust type.
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

/// Ordered values of one type.
#[derive(Debug, Clone)]
pub struct Sequence {
    element: ValueType,
    items: Vec<Value>,
    /// What the items take: whoever appends to a long sequence asks every time.
    bytes: usize,
}

impl PartialEq for Sequence {
    fn eq(&self, other: &Sequence) -> bool {
        self.element == other.element && self.items == other.items
    }
}

impl Sequence {
    /// Bytes that an item takes besides its elements.
    pub const ITEM_BYTES: usize = size_of::<Value>() + 64;

    /// No items yet, of type `element`.
    pub fn new(element: ValueType) -> Sequence {
        Sequence { element, items: Vec::new(), bytes: 0 }
    }

    /// A sequence of dense tensors.
    ///
    /// # Errors
    /// If a tensor has other elements.
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

    /// The type of every item.
    pub fn element(&self) -> &ValueType {
        &self.element
    }

    /// The items in order.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// Gives up the type.
    pub fn into_items(self) -> Vec<Value> {
        self.items
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Asks for the memory of that many items more.
    ///
    /// # Errors
    /// If it is refused.
    pub fn reserve(&mut self, items: usize) -> Result<(), TensorError> {
        if self.items.try_reserve(items).is_err() {
            return err!(Overflow, "not enough memory for {items} items");
        }
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Errors
    /// If it has another type.
    pub fn push(&mut self, item: Value) -> Result<(), TensorError> {
        self.insert(self.items.len(), item)
    }

    /// Puts an item before the one at `index`.
    ///
    /// # Errors
    /// If it has another type, or `index` is beyond the end.
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

    /// Takes out the item at `index`; `None` if there is none.
    pub fn remove(&mut self, index: usize) -> Option<Value> {
        let item = (index < self.items.len()).then(|| self.items.remove(index))?;
        self.bytes = self.bytes.saturating_sub(item.bytes() + Self::ITEM_BYTES);
        Some(item)
    }
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapKey {
    /// Of a signed integer type.
    Signed(i64),
    /// Of an unsigned integer type.
    Unsigned(u64),
    /// Of type `string`.
    String(Box<[u8]>),
}

/// Values of one type by distinct keys of one type, in the order they came.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    key: DataType,
    value: ValueType,
    entries: Vec<(MapKey, Value)>,
}

impl Map {
    /// No entries yet.
    ///
    /// # Errors
    /// If `key` is not an integer type of at least 8 bits or `string` (TYPE-17).
    pub fn new(key: DataType, value: ValueType) -> Result<Map, TensorError> {
        if key == DataType::String || key.is_integer() && !key.is_packed() {
            return Ok(Map { key, value, entries: Vec::new() });
        }
        err!(Type, "{key} cannot be the key of a map: integers of 8 to 64 bits and strings can")
    }

    /// Type of the keys.
    pub fn key_type(&self) -> DataType {
        self.key
    }

    /// Type of the values.
    pub fn element(&self) -> &ValueType {
        &self.value
    }

    /// The entries in order.
    pub fn entries(&self) -> &[(MapKey, Value)] {
        &self.entries
    }

    /// The value of a key. Looks at one entry after the other.
    pub fn get(&self, key: &MapKey) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// Appends an entry. Does not look for the key among the others; see
    /// [`Map::has_duplicate_keys`].
    ///
    /// # Errors
    /// If key or value have another type, or the key is outside the range of its type.
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

    /// Whether some key occurs twice.
    pub fn has_duplicate_keys(&self) -> bool {
        let mut keys: Vec<&MapKey> = self.entries.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// A tensor of which only some elements are given; the others are 0, false or "".
#[derive(Debug, Clone, PartialEq)]
pub struct Sparse {
    dims: Dims,
    values: Tensor,
    /// Row-major position of each value, strictly ascending.
    positions: Vec<usize>,
    indices: Tensor,
}

impl Sparse {
    /// From values `[NNZ]`, int64 indices `[NNZ]` (row-major positions) or `[NNZ, rank]` (tuples),
    /// and the dims of the whole.
    ///
    /// # Errors
    /// If shapes or types do not fit (TENSOR-34, TENSOR-35), indices do not ascend strictly
    /// (TENSOR-36), or lie outside (TENSOR-37).
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

    /// The elements of a dense tensor that are not 0, false or "", at their row-major positions. A
    /// negative zero is kept.
    ///
    /// # Errors
    /// If it is a scalar or has no elements, which no sparse tensor does, or memory is refused.
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

    /// Dims of the whole tensor.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The values that are given, `[NNZ]`.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// The indices as they were given, `[NNZ]` or `[NNZ, rank]`.
    pub fn indices(&self) -> &Tensor {
        &self.indices
    }

    /// Row-major position of each value, strictly ascending.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// The whole tensor (TENSOR-38).
    ///
    /// # Errors
    /// If memory is refused.
    pub fn to_dense(&self) -> Result<Tensor, TensorError> {
        let data_type = self.values.data_type();
        if let Some(strings) = self.values.strings() {
            let total = crate::shape::elems(&self.dims)?;
            // Asks for the memory of the ends alone, so that a hostile shape is refused rather than
            // fatal.
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

/// As in ONNX text: `seq(tensor(float))`.
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

/// As in ONNX text: `opaque(com.example, Words)`.
impl fmt::Display for OpaqueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.domain.as_str() {
            "" => write!(f, "opaque({})", self.name),
            domain => write!(f, "opaque({domain}, {})", self.name),
        }
    }
}
