//! Dense row-major tensors: element type, dims and a shared reference to the values.
//!
//! Clones and reshapes share the bytes. [`Tensor::as_slice`] borrows the elements and fails if type
//! or alignment do not match; [`Tensor::to_cow`] and [`Tensor::aligned`] copy if needed and count
//! the copies, so that a test can verify that a hot path makes none.
//! [`TensorView`](crate::TensorView) can have strides.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use crate::buffer::{ALIGNMENT, Buffer};
use crate::element::{Bool8, DataType, Element};
use crate::error::{TensorError, err};
use crate::packed;
use crate::shape::{Dims, elems};
use crate::strings::StringArray;
use crate::text;
use crate::view::{TensorView, TensorViewMut, ViewData};

/// Dense n-dimensional array. A clone shares the elements, which are copied on write. Two tensors
/// are equal if type, dims and all bits of the values are equal, so a NaN equals itself and 0
/// differs from -0; [`Tensor::compare`] compares numbers with a tolerance.
pub struct Tensor {
    data_type: DataType,
    dims: Dims,
    /// Cached product of `dims`.
    elems: usize,
    storage: Storage,
}

/// Storage of the values of a tensor.
#[derive(Debug, Clone)]
pub enum Storage {
    /// Elements of every type except strings, in host byte order; types narrower than one byte are
    /// packed.
    Bytes(Buffer),
    /// String elements.
    Strings(Arc<StringArray>),
}

impl Storage {
    /// Borrows the bytes of the elements for writing, like [`Tensor::bytes_mut`].
    fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        match self {
            Storage::Bytes(buffer) => buffer.make_mut(),
            Storage::Strings(_) => err!(Type, "string elements are not bytes"),
        }
    }
}

thread_local! {
    static REALIGNED_COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of times that this thread copied a tensor only because its bytes were not
/// aligned.
pub fn realigned_copies() -> u64 {
    REALIGNED_COPIES.get()
}

fn count_realigned_copy() {
    REALIGNED_COPIES.set(REALIGNED_COPIES.get() + 1);
}

impl Tensor {
    /// Makes a tensor from a vector in row-major order, without a copy.
    ///
    /// # Errors
    /// The number of elements is not the product of `dims`, or `dims` has more than 64 entries.
    pub fn from_vec<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: Vec<T>,
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        check_count(T::DATA_TYPE, dims, elements.len())?;
        Ok(Tensor {
            data_type: T::DATA_TYPE,
            dims: Dims::from_slice(dims),
            elems: elements.len(),
            storage: Storage::Bytes(Buffer::from_elements(elements)),
        })
    }

    /// Copies elements in row-major order into memory that is aligned to 64 bytes.
    ///
    /// # Errors
    /// The number of elements is not the product of `dims`, or memory cannot be allocated.
    pub fn from_slice<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: &[T],
    ) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        check_count(T::DATA_TYPE, dims, elements.len())?;
        Self::from_buffer(T::DATA_TYPE, dims, Buffer::copy_of(bytemuck::cast_slice(elements))?)
    }

    /// Makes a tensor of type `bool` from truth values in row-major order.
    ///
    /// # Errors
    /// The number of elements is not the product of `dims`.
    pub fn from_bools(dims: impl AsRef<[usize]>, elements: &[bool]) -> Result<Tensor, TensorError> {
        Self::from_vec(dims, elements.iter().map(|&b| Bool8::from(b)).collect())
    }

    /// Makes a tensor of type `data_type` that refers to `bytes`, without a copy. The elements are
    /// in row-major order and in host byte order; the bytes need not be aligned.
    ///
    /// # Errors
    /// The number of bytes is not exactly the one that type and dims imply, the product of `dims`
    /// overflows, or the type is `string`.
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
        let dims = Dims::from_slice(dims);
        Ok(Tensor { data_type, dims, elems, storage: Storage::Bytes(bytes) })
    }

    /// Makes a tensor of type `string` from strings in row-major order.
    ///
    /// # Errors
    /// The number of strings is not the product of `dims`.
    pub fn from_strings(
        dims: impl AsRef<[usize]>,
        strings: impl Into<Arc<StringArray>>,
    ) -> Result<Tensor, TensorError> {
        let (dims, strings) = (dims.as_ref(), strings.into());
        check_count(DataType::String, dims, strings.len())?;
        Ok(Tensor {
            data_type: DataType::String,
            dims: Dims::from_slice(dims),
            elems: strings.len(),
            storage: Storage::Strings(strings),
        })
    }

    /// Packs elements of a type of at most 8 bits, given as codes: the bits of one element in the
    /// low bits of each byte.
    ///
    /// # Errors
    /// The type is wider than 8 bits or `string`, or the number of codes is not the product of
    /// `dims`.
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

    /// Makes a tensor of rank 0.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor {
            data_type: T::DATA_TYPE,
            dims: Dims::new(),
            elems: 1,
            storage: Storage::Bytes(Buffer::from_elements(vec![value])),
        }
    }

    /// Makes a tensor whose bits are all zero: the number 0, false or an empty string. For
    /// `float8e8m0`, which has no zero, code 0 is 2^-127.
    ///
    /// # Errors
    /// The product of `dims` overflows, or memory cannot be allocated.
    pub fn zeros(data_type: DataType, dims: impl AsRef<[usize]>) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        let elems = elems(dims)?;
        if data_type == DataType::String {
            // `vec![0; n]` aborts when memory is refused, so this tries to reserve it first.
            let mut probe: Vec<usize> = Vec::new();
            if probe.try_reserve_exact(elems).is_err() {
                return err!(Overflow, "not enough memory for {elems} strings");
            }
            drop(probe);
            return Self::from_strings(dims, StringArray::empty_strings(elems));
        }
        Self::from_buffer(data_type, dims, Buffer::zeroed(storage_bytes(data_type, elems)?)?)
    }

    /// Returns the element type.
    #[inline]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Returns the dims, outermost first; empty for a scalar.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of dims.
    #[inline]
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements: 1 for a scalar.
    #[inline]
    pub fn len(&self) -> usize {
        self.elems
    }

    /// Whether the tensor has no elements, because a dim is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.elems == 0
    }

    /// Returns the storage of the values.
    #[doc(hidden)]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the bytes of all elements in row-major order; empty for strings.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Bytes(buffer) => buffer.as_slice(),
            Storage::Strings(_) => &[],
        }
    }

    /// Returns the number of bytes that the elements take in memory, the text of strings included.
    pub fn held_bytes(&self) -> usize {
        match &self.storage {
            Storage::Bytes(buffer) => buffer.len(),
            Storage::Strings(strings) => strings.total_bytes() + size_of::<usize>() * strings.len(),
        }
    }

    /// Returns the buffer that holds [`Tensor::bytes`]; `None` for strings.
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.storage {
            Storage::Bytes(buffer) => Some(buffer),
            Storage::Strings(_) => None,
        }
    }

    /// Replaces the bytes of the elements and keeps type and dims. Has no effect on strings.
    ///
    /// # Errors
    /// The number of bytes is another one.
    pub fn with_buffer(mut self, bytes: Buffer) -> Result<Tensor, TensorError> {
        if let Storage::Bytes(own) = &mut self.storage {
            if own.len() != bytes.len() {
                return err!(Size, "{} bytes in place of {}", bytes.len(), own.len());
            }
            *own = bytes;
        }
        Ok(self)
    }

    /// Converts the tensor into the buffer of its bytes, without a copy; `None` for strings.
    pub fn into_buffer(self) -> Option<Buffer> {
        match self.storage {
            Storage::Bytes(buffer) => Some(buffer),
            Storage::Strings(_) => None,
        }
    }

    /// Returns the string elements; `None` for other types.
    pub fn strings(&self) -> Option<&StringArray> {
        match &self.storage {
            Storage::Bytes(_) => None,
            Storage::Strings(strings) => Some(strings),
        }
    }

    /// Borrows the elements in row-major order.
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`: tensors that were
    /// read from files may be unaligned. [`Tensor::to_cow`] copies these.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        check_type::<T>(self.data_type)?;
        cast_bytes(self.bytes())
    }

    /// Borrows the elements for writing. Copies them first if other tensors share them or if they
    /// are not aligned.
    ///
    /// # Errors
    /// The element type is not that of `T`, or memory for a copy cannot be allocated.
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

    /// Borrows the bytes of the elements for writing. Copies them first if other tensors share
    /// them.
    ///
    /// # Errors
    /// The elements are strings, or memory for a copy cannot be allocated.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        self.storage.bytes_mut()
    }

    /// Borrows the elements in row-major order, or copies them if they are not aligned for `T`.
    ///
    /// # Errors
    /// The element type is not that of `T`.
    pub fn to_cow<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        check_type::<T>(self.data_type)?;
        if let Ok(slice) = bytemuck::try_cast_slice(self.bytes()) {
            return Ok(Cow::Borrowed(slice));
        }
        count_realigned_copy();
        Ok(Cow::Owned(read_unaligned(self.bytes())))
    }

    /// Copies the elements in row-major order into a vector.
    ///
    /// # Errors
    /// The element type is not that of `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        check_type::<T>(self.data_type)?;
        Ok(read_unaligned(self.bytes()))
    }

    /// Returns the only element of a tensor of one element, of any rank.
    ///
    /// # Errors
    /// The tensor does not have exactly one element, or its element type is not that of `T`.
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

    /// Unpacks elements of a type of at most 8 bits into codes: the bits of one element in the low
    /// bits of each byte.
    ///
    /// # Errors
    /// The type is wider than 8 bits or `string`.
    pub fn to_codes(&self) -> Result<Vec<u8>, TensorError> {
        let Some(bits @ ..=8) = self.data_type.bits() else {
            return err!(Type, "{} elements are not codes of at most 8 bits", self.data_type);
        };
        let mut codes = vec![0; self.elems];
        packed::unpack_to_u8(self.bytes(), bits, &mut codes)?;
        Ok(codes)
    }

    /// Returns the tensor with its bytes aligned to 64 bytes. Copies them unless they are aligned
    /// already.
    ///
    /// # Errors
    /// Memory for a copy cannot be allocated.
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

    /// Returns a tensor of other dims with the elements in the same row-major order, which it
    /// shares.
    ///
    /// # Errors
    /// The number of elements would change.
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Result<Tensor, TensorError> {
        let dims = dims.as_ref();
        match elems(dims)? {
            n if n == self.elems => {
                let mut tensor = self.clone();
                tensor.dims = Dims::from_slice(dims);
                Ok(tensor)
            }
            n => err!(Shape, "{:?} has {} elements, {dims:?} has {n}", self.dims, self.elems),
        }
    }

    /// Borrows the tensor as a dense view.
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

    /// Borrows the tensor as a writable view. Copies the elements first if other tensors share
    /// them.
    ///
    /// # Errors
    /// The elements are strings, or memory for a copy cannot be allocated.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, TensorError> {
        let bytes = self.storage.bytes_mut()?;
        Ok(TensorViewMut::dense_unchecked(self.data_type, &self.dims, self.elems, bytes))
    }

    /// Whether type, dims and every bit of every element are equal. The padding bits of packed
    /// types are ignored.
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

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        // Not derived: `Dims::clone` takes one dim after the other.
        Tensor {
            data_type: self.data_type,
            dims: Dims::from_slice(&self.dims),
            elems: self.elems,
            storage: self.storage.clone(),
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
            dims: Dims::from_slice(&[strings.len()]),
            elems: strings.len(),
            storage: Storage::Strings(Arc::new(strings)),
        }
    }
}

impl Tensor {
    /// Formats the element at a row-major index: a number, or the beginning of a string in quotes.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`Tensor::len`].
    pub fn element_text(&self, index: usize) -> String {
        match &self.storage {
            Storage::Bytes(buffer) => {
                text::format_element(self.data_type, buffer.as_slice(), index)
            }
            Storage::Strings(strings) => {
                let bytes = strings.get(index);
                let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
                format!("{shown:?}{}", if bytes.len() > 40 { "..." } else { "" })
            }
        }
    }
}

/// Prints type, dims and the first elements, as in ONNX text where it has a notation for them:
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

/// Returns the number of bytes of `elems` elements, or an error if they cannot be addressed.
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
    // An empty slice may have any address, so its alignment does not matter.
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
