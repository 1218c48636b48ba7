//! Borrowed tensors, which may be transposed, sliced, broadcast or reversed without a copy.
//!
//! A view is dense unless it has strides. Strides and the offset count elements, also for packed
//! types, whose elements have no address. Every constructor checks that all elements of the view
//! exist, so reading one needs no check beyond that of the slice.

use std::ops::Deref;

use crate::buffer::Buffer;
use crate::element::{DataType, Element};
use crate::error::{TensorError, err};
use crate::packed;
use crate::shape::{self, Dims, NdLoop, Strides, broadcast_strides_of, elems};
use crate::strings::StringArray;
use crate::tensor::{Tensor, cast_bytes, check_type, storage_bytes};

/// Borrowed tensor for reading: dense, or with strides. Strides and offsets count elements, also
/// for packed types. Every constructor checks that all elements of the view exist in its data.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    data_type: DataType,
    dims: ViewDims<'a>,
    elems: usize,
    layout: ViewLayout<'a>,
    data: ViewData<'a>,
}

// Views are moved several times on their way to a kernel. Up to this size the compiler copies them
// in place instead of calling `memcpy`.
const _: () = assert!(size_of::<TensorView<'_>>() <= 128);

/// Dims that are borrowed for as long as the elements, or a copy.
#[derive(Debug)]
enum ViewDims<'a> {
    Borrowed(&'a [usize]),
    Owned(Dims),
}

impl Clone for ViewDims<'_> {
    fn clone(&self) -> Self {
        match self {
            ViewDims::Borrowed(dims) => ViewDims::Borrowed(dims),
            // Not `Dims::clone`, which takes one dim after the other.
            ViewDims::Owned(dims) => ViewDims::Owned(Dims::from_slice(dims)),
        }
    }
}

impl Deref for ViewDims<'_> {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        match self {
            ViewDims::Borrowed(dims) => dims,
            ViewDims::Owned(dims) => dims,
        }
    }
}

/// Order of the elements of a view in its data.
#[derive(Debug, Clone)]
enum ViewLayout<'a> {
    /// Row-major, from the first element of the data on.
    Dense,
    /// Strides that are borrowed for as long as the elements, and the index of the first element.
    Borrowed { strides: &'a [isize], offset: usize },
    /// Strides of the view's own.
    Owned(Box<OwnedLayout>),
}

/// Strides, and the index of the first element in the data.
#[derive(Debug, Clone)]
struct OwnedLayout {
    strides: Strides,
    offset: usize,
}

impl ViewLayout<'_> {
    fn strides(&self) -> Option<&[isize]> {
        match self {
            ViewLayout::Dense => None,
            ViewLayout::Borrowed { strides, .. } => Some(strides),
            ViewLayout::Owned(layout) => Some(&layout.strides),
        }
    }

    fn offset(&self) -> usize {
        match self {
            ViewLayout::Dense => 0,
            ViewLayout::Borrowed { offset, .. } => *offset,
            ViewLayout::Owned(layout) => layout.offset,
        }
    }
}

/// Data of a [`TensorView`].
#[derive(Debug, Clone, Copy)]
pub enum ViewData<'a> {
    /// Elements of every type except strings, in host byte order; types narrower than one byte are
    /// packed.
    Bytes(&'a [u8]),
    /// String elements.
    Strings(&'a StringArray),
}

impl<'a> TensorView<'a> {
    /// Makes a dense view of `bytes`, which need not be aligned.
    ///
    /// # Errors
    /// The number of bytes is not exactly the one that type and dims imply, or the type is
    /// `string`.
    pub fn new(
        data_type: DataType,
        dims: impl AsRef<[usize]>,
        bytes: &'a [u8],
    ) -> Result<Self, TensorError> {
        let elems = check_bytes(data_type, dims.as_ref(), bytes.len())?;
        let dims = ViewDims::Owned(Dims::from_slice(dims.as_ref()));
        Ok(Self::dense(data_type, dims, elems, bytes))
    }

    /// Makes a dense view like [`TensorView::new`], but borrows the dims, so that it never
    /// allocates.
    ///
    /// # Errors
    /// See [`TensorView::new`].
    pub fn over(
        data_type: DataType,
        dims: &'a [usize],
        bytes: &'a [u8],
    ) -> Result<Self, TensorError> {
        let elems = check_bytes(data_type, dims, bytes.len())?;
        let dims = ViewDims::Borrowed(dims);
        Ok(Self::dense(data_type, dims, elems, bytes))
    }

    fn dense(data_type: DataType, dims: ViewDims<'a>, elems: usize, bytes: &'a [u8]) -> Self {
        TensorView {
            data_type,
            dims,
            elems,
            layout: ViewLayout::Dense,
            data: ViewData::Bytes(bytes),
        }
    }

    /// Makes a dense view of elements in row-major order.
    ///
    /// # Errors
    /// The number of elements is not the product of `dims`.
    pub fn from_slice<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: &'a [T],
    ) -> Result<Self, TensorError> {
        Self::new(T::DATA_TYPE, dims, bytemuck::cast_slice(elements))
    }

    /// Makes a view with one stride for each dim, in elements. The first element of the view is at
    /// index `offset` of the data. Negative strides are allowed; a stride of 0 repeats elements.
    ///
    /// # Errors
    /// The number of strides is not the rank, an element would lie outside of the data, or the data
    /// is not of the kind of `data_type`.
    pub fn with_strides(
        data_type: DataType,
        dims: impl AsRef<[usize]>,
        strides: impl AsRef<[isize]>,
        offset: usize,
        data: ViewData<'a>,
    ) -> Result<Self, TensorError> {
        let (dims, strides) = (dims.as_ref(), strides.as_ref());
        let elems = check_strides(data_type, dims, strides, offset, data)?;
        let strides = Strides::from_slice(strides);
        Ok(TensorView {
            data_type,
            dims: ViewDims::Owned(Dims::from_slice(dims)),
            elems,
            layout: ViewLayout::Owned(Box::new(OwnedLayout { strides, offset })),
            data,
        })
    }

    /// Makes a view like [`TensorView::with_strides`], but borrows dims and strides, so that it
    /// never allocates.
    ///
    /// # Errors
    /// See [`TensorView::with_strides`].
    pub fn over_strides(
        data_type: DataType,
        dims: &'a [usize],
        strides: &'a [isize],
        offset: usize,
        data: ViewData<'a>,
    ) -> Result<Self, TensorError> {
        let elems = check_strides(data_type, dims, strides, offset, data)?;
        let layout = ViewLayout::Borrowed { strides, offset };
        Ok(TensorView { data_type, dims: ViewDims::Borrowed(dims), elems, layout, data })
    }

    /// Makes a dense view without checking the size.
    pub(crate) fn dense_unchecked(
        data_type: DataType,
        dims: &'a [usize],
        elems: usize,
        data: ViewData<'a>,
    ) -> Self {
        let layout = ViewLayout::Dense;
        TensorView { data_type, dims: ViewDims::Borrowed(dims), elems, layout, data }
    }

    /// Borrows the view again, dims and strides included, so that it never allocates.
    #[inline]
    pub fn reborrow(&self) -> TensorView<'_> {
        let layout = match self.layout.strides() {
            None => ViewLayout::Dense,
            Some(strides) => ViewLayout::Borrowed { strides, offset: self.layout.offset() },
        };
        TensorView {
            data_type: self.data_type,
            dims: ViewDims::Borrowed(&self.dims),
            elems: self.elems,
            layout,
            data: self.data,
        }
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

    /// Whether the view has no elements, because a dim is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.elems == 0
    }

    /// Returns the strides in elements, one for each dim.
    pub fn strides(&self) -> Strides {
        match self.layout.strides() {
            Some(strides) => Strides::from_slice(strides),
            None => shape::strides(&self.dims),
        }
    }

    /// Returns the index in the data of the first element.
    pub fn offset(&self) -> usize {
        self.layout.offset()
    }

    /// Returns all data that the view borrows, including elements outside of the view.
    #[inline]
    pub fn data(&self) -> ViewData<'a> {
        self.data
    }

    /// Whether the elements are adjacent in the data and in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let Some(strides) = self.layout.strides() else {
            return true;
        };
        let dense = shape::strides(&self.dims);
        self.elems == 0
            || (0..self.rank()).all(|axis| self.dims[axis] == 1 || strides[axis] == dense[axis])
    }

    /// Returns the bytes of the elements if they are contiguous and start at a byte boundary;
    /// otherwise, and for strings, `None`.
    #[inline]
    pub fn contiguous_bytes(&self) -> Option<&'a [u8]> {
        let ViewData::Bytes(bytes) = self.data else {
            return None;
        };
        // The bytes of a dense view are those of its elements, or none if their owner has shrunk.
        if matches!(self.layout, ViewLayout::Dense) {
            return (bytes.is_empty() == (self.elems == 0)).then_some(bytes);
        }
        if !self.is_contiguous() {
            return None;
        }
        if self.elems == 0 {
            return Some(&[]);
        }
        let first_bit = self.offset().checked_mul(self.data_type.bits()?)?;
        if first_bit % 8 != 0 {
            return None;
        }
        let start = first_bit / 8;
        bytes.get(start..start + self.data_type.storage_bytes(self.elems)?)
    }

    /// Borrows the elements of a contiguous view.
    ///
    /// # Errors
    /// The element type is not that of `T`, the bytes are not aligned for `T`, or the view is not
    /// contiguous.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        check_type::<T>(self.data_type)?;
        match self.contiguous_bytes() {
            Some(bytes) => cast_bytes(bytes),
            None => err!(Unsupported, "a view that is not contiguous is no slice"),
        }
    }

    /// Borrows all elements of the data. The view's elements start at [`TensorView::offset`] and
    /// follow [`TensorView::strides`].
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`.
    pub fn data_slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        check_type::<T>(self.data_type)?;
        match self.data {
            ViewData::Bytes(bytes) => {
                cast_bytes(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
            }
            ViewData::Strings(_) => err!(Type, "string elements are not a slice"),
        }
    }

    /// Permutes the dims without a copy: dim `i` of the result is dim `perm[i]` of this view.
    ///
    /// # Errors
    /// `perm` is not a permutation of the axes.
    pub fn transpose(&self, perm: &[usize]) -> Result<TensorView<'a>, TensorError> {
        let rank = self.rank();
        if perm.len() != rank || !(0..rank).all(|axis| perm.contains(&axis)) {
            return err!(Shape, "{perm:?} is not a permutation of {rank} axes");
        }
        let strides = self.strides();
        let (dims, strides) = perm.iter().map(|&axis| (self.dims[axis], strides[axis])).unzip();
        Ok(self.with_layout(dims, strides, self.offset()))
    }

    /// Selects `len` elements along `axis`, from index `start` in steps of `step`, without a copy.
    /// A negative step goes backwards; a step of 0 repeats the element at `start`.
    ///
    /// # Errors
    /// The view has no such axis, or an element would lie outside of it.
    pub fn slice(
        &self,
        axis: usize,
        start: usize,
        len: usize,
        step: isize,
    ) -> Result<TensorView<'a>, TensorError> {
        let Some(&dim) = self.dims.get(axis) else {
            return err!(Range, "axis {axis} is out of range for rank {}", self.rank());
        };
        let mut dims = Dims::from_slice(&self.dims);
        dims[axis] = len;
        elems(&dims)?;
        let mut strides = self.strides();
        if len == 0 {
            return Ok(self.with_layout(dims, strides, 0));
        }
        let last = start as i128 + (len as i128 - 1) * step as i128;
        if start >= dim || last < 0 || last >= dim as i128 {
            return err!(Range, "{len} elements from {start} in steps of {step} in a dim of {dim}");
        }
        // Both products stay within the data unless the view is empty along another axis.
        let offset =
            (self.offset() as isize).wrapping_add((start as isize).wrapping_mul(strides[axis]));
        strides[axis] = if len == 1 { strides[axis] } else { strides[axis].saturating_mul(step) };
        let empty = dims.contains(&0);
        Ok(self.with_layout(dims, strides, if empty { 0 } else { offset as usize }))
    }

    /// Broadcasts the view to `dims` without a copy: repeats dims of size 1, and adds outer dims.
    ///
    /// # Errors
    /// The dims do not broadcast to `dims`.
    pub fn broadcast_to(&self, dims: impl AsRef<[usize]>) -> Result<TensorView<'a>, TensorError> {
        let dims = Dims::from_slice(dims.as_ref());
        elems(&dims)?;
        let strides = broadcast_strides_of(&self.dims, &self.strides(), &dims)?;
        Ok(self.with_layout(dims, strides, self.offset()))
    }

    /// Returns a view of other dims with the elements in the same row-major order. Copies nothing.
    ///
    /// # Errors
    /// The number of elements would change, or the view is not contiguous.
    pub fn reshape(&self, dims: impl AsRef<[usize]>) -> Result<TensorView<'a>, TensorError> {
        let dims = Dims::from_slice(dims.as_ref());
        if elems(&dims)? != self.elems {
            return err!(Shape, "{:?} and {dims:?} differ in their number of elements", self.dims);
        }
        if !self.is_contiguous() {
            return err!(Unsupported, "reshape of a view that is not contiguous");
        }
        let strides = shape::strides(&dims);
        Ok(self.with_layout(dims, strides, self.offset()))
    }

    /// Copies the elements into a dense tensor that is aligned to 64 bytes.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn to_tensor(&self) -> Result<Tensor, TensorError> {
        match self.data {
            ViewData::Strings(strings) => {
                let mut out = StringArray::with_capacity(self.elems, 0);
                self.for_each_index(|i| out.push(strings.get(i)))?;
                Tensor::from_strings(&*self.dims, out)
            }
            ViewData::Bytes(_) => {
                let mut buffer = Buffer::zeroed(storage_bytes(self.data_type, self.elems)?)?;
                self.copy_to(buffer.make_mut()?)?;
                Tensor::from_buffer(self.data_type, &*self.dims, buffer)
            }
        }
    }

    /// Copies the elements in row-major order into `out`.
    ///
    /// # Errors
    /// `out` does not have exactly as many bytes as the elements, or the elements are strings.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<(), TensorError> {
        check_bytes(self.data_type, &self.dims, out.len())?;
        if let Some(bytes) = self.contiguous_bytes() {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let (ViewData::Bytes(bytes), Some(bits)) = (self.data, self.data_type.bits()) else {
            return err!(Type, "string elements are not bytes");
        };
        let mut at = 0;
        match bits / 8 {
            0 => {
                out.fill(0);
                self.for_each_index(|i| {
                    packed::set(out, bits, at, packed::get(bytes, bits, i));
                    at += 1;
                })
            }
            1 => self.gather::<1>(bytes, out),
            2 => self.gather::<2>(bytes, out),
            4 => self.gather::<4>(bytes, out),
            8 => self.gather::<8>(bytes, out),
            _ => self.gather::<16>(bytes, out),
        }
    }

    fn gather<const WIDTH: usize>(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), TensorError> {
        let (source, _) = bytes.as_chunks::<WIDTH>();
        let mut out = out.as_chunks_mut::<WIDTH>().0.iter_mut();
        self.for_each_index(|i| {
            if let Some(out) = out.next() {
                *out = source[i];
            }
        })
    }

    /// Calls `body` with the index in the data of every element, in row-major order.
    fn for_each_index(&self, mut body: impl FnMut(usize)) -> Result<(), TensorError> {
        let strides = self.strides();
        let nd = NdLoop::new(&self.dims, [&strides])?;
        let ([step], start) = (nd.inner_strides(), self.offset() as isize);
        nd.for_each(|[run]| {
            for i in 0..nd.inner_len() as isize {
                body((start + run + i * step) as usize);
            }
        });
        Ok(())
    }

    /// Makes a view of the same data with another layout, which must stay within the data.
    fn with_layout(&self, dims: Dims, strides: Strides, offset: usize) -> TensorView<'a> {
        TensorView {
            data_type: self.data_type,
            elems: dims.iter().product(),
            dims: ViewDims::Owned(dims),
            layout: ViewLayout::Owned(Box::new(OwnedLayout { strides, offset })),
            data: self.data,
        }
    }
}

/// Borrowed dense tensor for writing, of any element type except strings.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    data_type: DataType,
    dims: ViewDims<'a>,
    elems: usize,
    bytes: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    /// Makes a dense view of `bytes`, which need not be aligned.
    ///
    /// # Errors
    /// The number of bytes is not exactly the one that type and dims imply, or the type is
    /// `string`.
    pub fn new(
        data_type: DataType,
        dims: impl AsRef<[usize]>,
        bytes: &'a mut [u8],
    ) -> Result<Self, TensorError> {
        let elems = check_bytes(data_type, dims.as_ref(), bytes.len())?;
        let dims = ViewDims::Owned(Dims::from_slice(dims.as_ref()));
        Ok(TensorViewMut { data_type, dims, elems, bytes })
    }

    /// Makes a dense view like [`TensorViewMut::new`], but borrows the dims, so that it never
    /// allocates.
    ///
    /// # Errors
    /// See [`TensorViewMut::new`].
    pub fn over(
        data_type: DataType,
        dims: &'a [usize],
        bytes: &'a mut [u8],
    ) -> Result<Self, TensorError> {
        let elems = check_bytes(data_type, dims, bytes.len())?;
        Ok(TensorViewMut { data_type, dims: ViewDims::Borrowed(dims), elems, bytes })
    }

    /// Makes a dense view without checking the size.
    pub(crate) fn dense_unchecked(
        data_type: DataType,
        dims: &'a [usize],
        elems: usize,
        bytes: &'a mut [u8],
    ) -> Self {
        TensorViewMut { data_type, dims: ViewDims::Borrowed(dims), elems, bytes }
    }

    /// Makes a dense view of elements in row-major order.
    ///
    /// # Errors
    /// The number of elements is not the product of `dims`.
    pub fn from_slice<T: Element>(
        dims: impl AsRef<[usize]>,
        elements: &'a mut [T],
    ) -> Result<Self, TensorError> {
        Self::new(T::DATA_TYPE, dims, bytemuck::cast_slice_mut(elements))
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

    /// Returns the number of elements: 1 for a scalar.
    #[inline]
    pub fn len(&self) -> usize {
        self.elems
    }

    /// Whether the view has no elements, because a dim is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Borrows the bytes of all elements in row-major order.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Converts the view into the bytes of all elements, for the full lifetime of the borrow.
    #[inline]
    pub fn into_bytes(self) -> &'a mut [u8] {
        self.bytes
    }

    /// Borrows the elements in row-major order.
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        self.reborrow().into_slice()
    }

    /// Converts the view into its elements in row-major order, for the full lifetime of the borrow.
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`.
    pub fn into_slice<T: Element>(self) -> Result<&'a mut [T], TensorError> {
        check_type::<T>(self.data_type)?;
        match bytemuck::try_cast_slice_mut(self.bytes) {
            Ok(slice) => Ok(slice),
            Err(e) => err!(Alignment, "{} elements: {e}", T::DATA_TYPE),
        }
    }

    /// Reborrows the view for reading.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView::dense_unchecked(
            self.data_type,
            &self.dims,
            self.elems,
            ViewData::Bytes(self.bytes),
        )
    }

    /// Reborrows the view for a shorter lifetime.
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        TensorViewMut {
            data_type: self.data_type,
            dims: ViewDims::Borrowed(&self.dims),
            elems: self.elems,
            bytes: self.bytes,
        }
    }

    /// Copies all elements of `source`, which may have strides.
    ///
    /// # Errors
    /// The element types or the dims differ.
    pub fn copy_from(&mut self, source: &TensorView<'_>) -> Result<(), TensorError> {
        if source.data_type != self.data_type || *source.dims != *self.dims {
            return err!(
                Shape,
                "copy of {}{:?} into {}{:?}",
                source.data_type,
                source.dims,
                self.data_type,
                self.dims
            );
        }
        source.copy_to(self.bytes)
    }
}

/// Returns the number of elements, if all of them lie in the data.
fn check_strides(
    data_type: DataType,
    dims: &[usize],
    strides: &[isize],
    offset: usize,
    data: ViewData<'_>,
) -> Result<usize, TensorError> {
    let have = match (data, data_type.bits()) {
        (ViewData::Strings(strings), None) => strings.len(),
        // `bits` is at least 2 here, and the bytes of a slice times 8 may overflow.
        (ViewData::Bytes(bytes), Some(bits)) => {
            bytes.len() / bits * 8 + bytes.len() % bits * 8 / bits
        }
        _ => return err!(Type, "the data of a {data_type} view is of the other kind"),
    };
    if dims.len() != strides.len() {
        return err!(Shape, "{} strides for rank {}", strides.len(), dims.len());
    }
    let count = elems(dims)?;
    if count > 0 {
        let (mut low, mut high) = (offset as i128, offset as i128);
        for (&dim, &stride) in dims.iter().zip(strides) {
            let reach = (dim as i128 - 1) * stride as i128;
            if reach < 0 { low += reach } else { high += reach }
        }
        if low < 0 || high >= have as i128 {
            return err!(Range, "the view reaches elements {low}..={high} of {have}");
        }
    }
    Ok(count)
}

/// Returns the number of elements, if they need exactly `have` bytes.
fn check_bytes(data_type: DataType, dims: &[usize], have: usize) -> Result<usize, TensorError> {
    let elems = elems(dims)?;
    let need = storage_bytes(data_type, elems)?;
    if need != have {
        return err!(
            Size,
            "{data_type}{dims:?} has {elems} elements and needs {need} bytes, but there are {have}"
        );
    }
    Ok(elems)
}
