//! The tensor: element type, dims and a reference to the values, dense and row-major.
//!
//! Clones and reshapes share the bytes. Reading typed elements comes in two strengths:
//! [`Tensor::as_slice`] borrows and refuses when type or alignment do not fit; [`Tensor::to_cow`]
//! and [`Tensor::aligned`] copy when they must, and count it, so that a test can show that a hot
//! path does not. Views with strides are in [`view`](crate::TensorView).

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::{ALIGNMENT, Buffer};
use crate::element::{Bool8, DataType, Element};
use crate::error::{TensorError, err};
use crate::packed;
use crate::shape::{Dims, elems};
use crate::strings::StringArray;
use crate::text;
use crate::view::{TensorView, TensorViewMut, ViewData};

/// A dense n-d array. Cloning is cheap; two tensors are equal when type, dims and values are equal,
/// bit by bit (so a NaN equals itself and 0 differs from -0; see [`Tensor::compare`] for the other
/// notion).
#[derive(Clone)]
pub struct Tensor {
    data_type: DataType,
    dims: Dims,
    /// Cached product of `dims`.
    elems: usize,
    storage: Storage,
}

/// Where the values of a tensor are.
#[derive(Debug, Clone)]
pub enum Storage {
    /// Elements of every type but strings, in host byte order, packed if below one byte.
    Bytes(Buffer),
    /// String elements.
    Strings(Arc<StringArray>),
}

thread_local! {
    static REALIGNED_COPIES: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has copied a tensor only because its bytes were not aligned.
pub fn realigned_copies() -> u64 {
    REALIGNED_COPIES.get()
}

fn count_realigned_copy() {
    REALIGNED_COPIES.set(REALIGNED_COPIES.get() + 1);
}

impl Tensor {
    /// Takes over the elements; no copy.
    ///
    /// # Errors
    /// If their number is not the product of `dims`.
    pub fn from_vec<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: Vec<T>,
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        check_count(T::DATA_TYPE, dims, elements.len())?;
        Ok(Tensor {
            data_type: T::DATA_TYPE,
            dims: dims.into(),
            elems: elements.len(),
            storage: Storage::Bytes(Buffer::from_elements(elements)),
        })
    }

    /// Copies the elements into aligned memory.
    ///
    /// # Errors
    /// If their number is not the product of `dims`, or memory is refused.
    pub fn from_slice<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: &[T],
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        check_count(T::DATA_TYPE, dims, elements.len())?;
        Self::from_buffer(T::DATA_TYPE, dims, Buffer::copy_of(bytemuck::cast_slice(elements))?)
    }

    /// Truth values.
    ///
    /// # Errors
    /// If their number is not the product of `dims`.
    pub fn from_bools(dims: impl AsRef<[usize]>, elements: &[bool]) -> Result<Tensor, TensorError> {
        Self::from_vec(dims, elements.iter().map(|&b| Bool8::from(b)).collect())
    }

    /// Refers to bytes as elements of `data_type`; no copy. The bytes need not be aligned.
    ///
    /// # Errors
    /// If the number of bytes is not exactly what type and dims imply, the dims overflow, or the
    /// type is `string`.
    pub fn from_buffer(
        data_type: DataType,
        dims: impl AsRef<[usize]>,
        bytes: Buffer,
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        let elems = elems(dims)?;
        let need = storage_bytes(data_type, elems)?;
        if bytes.len() != need {
            return err!(
                Size,
                "{data_type}{dims:?} has {elems} elements and needs {need} bytes, but there are {}",
                bytes.len()
            );
        }
        Ok(Tensor { data_type, dims: dims.into(), elems, storage: Storage::Bytes(bytes) })
    }

    /// String elements.
    ///
    /// # Errors
    /// If their number is not the product of `dims`.
    pub fn from_strings(
        dims: impl AsRef<[usize]>,
        strings: impl Into<Arc<StringArray>>,
    ) -> Result<Tensor, TensorError> {
        let (dims, strings) = (dims.as_ref(), strings.into());
        check_count(DataType::String, dims, strings.len())?;
        Ok(Tensor {
            data_type: DataType::String,
            dims: dims.into(),
            elems: strings.len(),
            storage: Storage::Strings(strings),
        })
    }

    /// Elements of a packed or 8-bit type from their codes, one per byte.
    ///
    /// # Errors
    /// If the type is wider, or the number of codes is not the product of `dims`.
    pub fn from_codes(
        data_type: DataType,
        dims: impl AsRef<[usize]>,
        codes: &[u8],
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        check_count(data_type, dims, codes.len())?;
        let Some(bits @ ..=8) = data_type.bits() else {
            return err!(Type, "{data_type} elements are not codes of at most 8 bits");
        };
        let mut buffer = Buffer::zeroed(storage_bytes(data_type, codes.len())?)?;
        packed::pack_from_codes(codes, bits, buffer.make_mut()?)?;
        Self::from_buffer(data_type, dims, buffer)
    }

    /// A tensor of rank 0.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor {
            data_type: T::DATA_TYPE,
            dims: Dims::new(),
            elems: 1,
            storage: Storage::Bytes(Buffer::from_elements(vec![value])),
        }
    }

    /// All bits zero: the number 0, false, or "". (float8e8m0 has no zero; its code 0 is 2^-127.)
    ///
    /// # Errors
    /// If the dims overflow or memory is refused.
    pub fn zeros(data_type: DataType, dims: impl AsRef<[usize]>) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        let elems = elems(dims)?;
        if data_type == DataType::String {
            // `vec![0; n]` aborts when memory is refused; this asks first.
            let mut probe: Vec<usize> = Vec::new();
            if probe.try_reserve_exact(elems).is_err() {
                return err!(Overflow, "not enough memory for {elems} strings");
            }
            drop(probe);
            return Self::from_strings(dims, StringArray::empty_strings(elems));
        }
        Self::from_buffer(data_type, dims, Buffer::zeroed(storage_bytes(data_type, elems)?)?)
    }

    /// Element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Dims, outermost first; empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elems
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elems == 0
    }

    /// The values as they are kept.
    #[doc(hidden)]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The bytes of all elements; empty for strings.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Bytes(buffer) => buffer.as_slice(),
            Storage::Strings(_) => &[],
        }
    }

    /// Bytes that the elements take in memory, those of strings included.
    pub fn held_bytes(&self) -> usize {
        match &self.storage {
            Storage::Bytes(buffer) => buffer.len(),
            Storage::Strings(strings) => strings.total_bytes() + size_of::<usize>() * strings.len(),
        }
    }

    /// The buffer behind [`Tensor::bytes`]; `None` for strings.
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.storage {
            Storage::Bytes(buffer) => Some(buffer),
            Storage::Strings(_) => None,
        }
    }

    /// The tensor with other bytes for the same elements; strings stay.
    ///
    /// # Errors
    /// If there are more bytes or fewer.
    pub fn with_buffer(mut self, bytes: Buffer) -> Result<Tensor, TensorError> {
        if let Storage::Bytes(own) = &mut self.storage {
            if own.len() != bytes.len() {
                return err!(Size, "{} bytes in place of {}", bytes.len(), own.len());
            }
            *own = bytes;
        }
        Ok(self)
    }

    /// Gives up type and dims; `None` for strings.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.storage {
            Storage::Bytes(buffer) => Some(buffer),
            Storage::Strings(_) => None,
        }
    }

    /// The string elements; `None` for other types.
    pub fn strings(&self) -> Option<&StringArray> {
        match &self.storage {
            Storage::Bytes(_) => None,
            Storage::Strings(strings) => Some(strings),
        }
    }

    /// The elements in place.
    ///
    /// # Errors
    /// `Type` if the elements are not `T`, `Alignment` if the bytes do not lie as `T` must.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        check_type::<T>(self.data_type)?;
        cast_bytes(self.bytes())
    }

    /// The elements for writing, after copying if others share them or they are not aligned.
    ///
    /// # Errors
    /// `Type` if the elements are not `T`; or if a copy is needed and memory is refused.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        check_type::<T>(self.data_type)?;
        let Storage::Bytes(buffer) = &mut self.storage else {
            return err!(Type, "string elements are not a slice");
        };
        if !buffer.is_aligned_to(align_of::<T>()) && buffer.is_unique() {
            count_realigned_copy();
            *buffer = Buffer::copy_of(buffer.as_slice())?;
        }
        match bytemuck::try_cast_slice_mut(buffer.make_mut()?) {
            Ok(slice) => Ok(slice),
            Err(e) => err!(Alignment, "{} elements: {e}", T::DATA_TYPE),
        }
    }

    /// The bytes for writing, after copying if others share them.
    ///
    /// # Errors
    /// If the elements are strings; or if a copy is needed and memory is refused.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        match &mut self.storage {
            Storage::Bytes(buffer) => buffer.make_mut(),
            Storage::Strings(_) => err!(Type, "string elements are not bytes"),
        }
    }

    /// The elements, borrowed if aligned, else copied (and counted).
    ///
    /// # Errors
    /// `Type` if the elements are not `T`.
    pub fn to_cow<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        check_type::<T>(self.data_type)?;
        if let Ok(slice) = bytemuck::try_cast_slice(self.bytes()) {
            return Ok(Cow::Borrowed(slice));
        }
        count_realigned_copy();
        Ok(Cow::Owned(read_unaligned(self.bytes())))
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// `Type` if the elements are not `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        check_type::<T>(self.data_type)?;
        Ok(read_unaligned(self.bytes()))
    }

    /// The only element of a tensor of one element, of any rank.
    ///
    /// # Errors
    /// If there is not exactly one, or it is not `T`.
    pub fn item<T: Element>(&self) -> Result<T, TensorError> {
        check_type::<T>(self.data_type)?;
        if self.elems != 1 {
            return err!(
                Size,
                "one element expected, {}{:?} has {}",
                self.data_type,
                self.dims,
                self.elems
            );
        }
        match bytemuck::try_pod_read_unaligned(self.bytes()) {
            Ok(value) => Ok(value),
            Err(e) => err!(Size, "{} element: {e}", self.data_type),
        }
    }

    /// The codes of a packed or 8-bit type, one per byte.
    ///
    /// # Errors
    /// `Type` if the type is wider.
    pub fn to_codes(&self) -> Result<Vec<u8>, TensorError> {
        let Some(bits @ ..=8) = self.data_type.bits() else {
            return err!(Type, "{} elements are not codes of at most 8 bits", self.data_type);
        };
        let mut codes = vec![0; self.elems];
        packed::unpack_to_u8(self.bytes(), bits, &mut codes)?;
        Ok(codes)
    }

    /// The same tensor with bytes on a multiple of 64; one copy (counted) if they are not there
    /// yet.
    ///
    /// # Errors
    /// If memory is refused.
    pub fn aligned(&self) -> Result<Tensor, TensorError> {
        let mut tensor = self.clone();
        if let Storage::Bytes(buffer) = &mut tensor.storage
            && !buffer.is_aligned_to(ALIGNMENT)
        {
            count_realigned_copy();
            *buffer = Buffer::copy_of(buffer.as_slice())?;
        }
        Ok(tensor)
    }

    /// The same values under other dims; no copy.
    ///
    /// # Errors
    /// If the number of elements would change.
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        match elems(dims)? {
            n if n == self.elems => {
                let mut tensor = self.clone();
                tensor.dims = dims.into();
                Ok(tensor)
            }
            n => err!(Shape, "{:?} has {} elements, {dims:?} has {n}", self.dims, self.elems),
        }
    }

    /// All of it, borrowed.
    pub fn view(&self) -> TensorView<'_> {
        let data = match &self.storage {
            Storage::Bytes(buffer) => ViewData::Bytes(buffer.as_slice()),
            Storage::Strings(strings) => ViewData::Strings(strings),
        };
        TensorView::dense_unchecked(self.data_type, &self.dims, self.elems, data)
    }

    /// Whether [`view_mut`](Tensor::view_mut) would copy nothing.
    pub fn is_unique(&mut self) -> bool {
        match &mut self.storage {
            Storage::Bytes(buffer) => buffer.is_unique(),
            Storage::Strings(_) => false,
        }
    }

    /// All of it for writing, after copying if others share the bytes.
    ///
    /// # Errors
    /// If the elements are strings; or if a copy is needed and memory is refused.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, TensorError> {
        let (data_type, dims) = (self.data_type, self.dims.clone());
        TensorViewMut::new(data_type, dims, self.bytes_mut()?)
    }

    /// Whether type, dims and every bit of every element agree. Padding bits of packed types do not
    /// count.
    pub fn bit_eq(&self, other: &Tensor) -> bool {
        if self.data_type != other.data_type || self.dims != other.dims {
            return false;
        }
        match (&self.storage, &other.storage) {
            (Storage::Strings(a), Storage::Strings(b)) => a == b,
            (Storage::Bytes(a), Storage::Bytes(b)) => {
                let (a, b) = (a.as_slice(), b.as_slice());
                let used = self.data_type.bits().map_or(0, |bits| self.elems % 8 * bits % 8);
                match (a.split_last(), b.split_last()) {
                    (Some((x, a)), Some((y, b))) if used != 0 => {
                        a == b && (x ^ y) << (8 - used) == 0
                    }
                    _ => a == b,
                }
            }
            _ => false,
        }
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.bit_eq(other)
    }
}

impl Eq for Tensor {}

impl From<StringArray> for Tensor {
    fn from(strings: StringArray) -> Tensor {
        Tensor {
            data_type: DataType::String,
            dims: SmallVec::from_slice(&[strings.len()]),
            elems: strings.len(),
            storage: Storage::Strings(Arc::new(strings)),
        }
    }
}

impl Tensor {
    /// An element as text, in row-major order: a number, or the beginning of a string in quotes.
    ///
    /// # Panics
    ///
    /// With an index beyond the last element.
    pub fn element_text(&self, index: usize) -> String {
        match &self.storage {
            Storage::Bytes(buffer) => text::element(self.data_type, buffer.as_slice(), index),
            Storage::Strings(strings) => {
                let bytes = strings.get(index);
                let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                format!("{shown:?}{}", if bytes.len() > 40 { "..." } else { "" })
            }
        }
    }
}

/// Type, dims and the first elements, in the notation of ONNX text where it has one:
/// `float[2,3] {1.0, 2.0, ...}`.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        // TENSOR-07: dims are printed, so that [0,5] and [5,0] differ.
        write!(f, "{}[", self.data_type)?;
        for (i, dim) in self.dims.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("] {")?;
        for i in 0..self.elems.min(SHOWN) {
            f.write_str(if i == 0 { "" } else { ", " })?;
            f.write_str(&self.element_text(i))?;
        }
        f.write_str(if self.elems > SHOWN { ", ...}" } else { "}" })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({self})")
    }
}

/// Bytes of `elems` elements, as an error if there is no such number.
pub(crate) fn storage_bytes(data_type: DataType, elems: usize) -> Result<usize, TensorError> {
    match data_type.storage_bytes(elems) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(bytes),
        _ if data_type == DataType::String => err!(Type, "string elements are not bytes"),
        _ => err!(Overflow, "{elems} {data_type} elements are more than can be addressed"),
    }
}

pub(crate) fn check_type<T: Element>(data_type: DataType) -> Result<(), TensorError> {
    if T::DATA_TYPE == data_type {
        return Ok(());
    }
    err!(Type, "the elements are {data_type}, not {}", T::DATA_TYPE)
}

pub(crate) fn cast_bytes<T: Element>(bytes: &[u8]) -> Result<&[T], TensorError> {
    // No elements lie nowhere in particular, so their place cannot be wrong.
    if bytes.is_empty() {
        return Ok(&[]);
    }
    match bytemuck::try_cast_slice(bytes) {
        Ok(slice) => Ok(slice),
        Err(e) => err!(Alignment, "{} elements: {e}", T::DATA_TYPE),
    }
}

fn check_count(data_type: DataType, dims: &[usize], have: usize) -> Result<(), TensorError> {
    let need = elems(dims)?;
    if need != have {
        return err!(Size, "{data_type}{dims:?} has {need} elements, but there are {have}");
    }
    Ok(())
}

fn read_unaligned<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut out = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    let whole = size_of_val(out.as_slice());
    bytemuck::cast_slice_mut(&mut out).copy_from_slice(&bytes[..whole]);
    out
}
