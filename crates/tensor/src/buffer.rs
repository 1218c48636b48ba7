//! Reference-counted bytes that can be sliced, and that are copied on write while shared.
//!
//! A [`Buffer`] hides the owner of its bytes: a vector, an aligned allocation of this crate, or
//! memory of the caller such as a file mapping. It is untyped; [`Tensor`](crate::Tensor) adds a
//! type.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use bytemuck::Pod;

use crate::error::{TensorError, err};

/// Alignment in bytes of allocations of this crate: a cache line, and the widest SIMD register.
pub const ALIGNMENT: usize = 64;

/// Bytes that the caller owns, such as a file mapping. `as_ref` must return the same bytes in each
/// call; if it returns fewer, the missing part of a buffer reads as empty.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Bytes that the system loads page by page when they are touched: a file mapping. The methods are
/// advice; the bytes do not change.
pub trait Pages: AsRef<[u8]> + Send + Sync {
    /// Advises that all bytes of a range will be read soon.
    fn fetch(&self, range: Range<usize>);
    /// Advises that a range will not be read for long, so that its pages may be evicted.
    fn give_back(&self, range: Range<usize>);
}

/// Reference-counted range of bytes. Cloning and slicing copy no bytes.
pub struct Buffer {
    /// `None` only while dropping.
    owner: Option<Arc<dyn Owner>>,
    offset: usize,
    len: usize,
}

impl Buffer {
    /// Makes a buffer of no bytes.
    pub fn empty() -> Buffer {
        Buffer::from_vec(Vec::new())
    }

    /// Takes over a vector without a copy. Its alignment is that of the allocator, usually 16
    /// bytes.
    pub fn from_vec(bytes: Vec<u8>) -> Buffer {
        Buffer::from_elements(bytes)
    }

    /// Takes over a vector of numbers as bytes in host order, without a copy, aligned for `T`.
    pub fn from_elements<T: Pod + Send + Sync>(elements: Vec<T>) -> Buffer {
        let len = size_of_val(elements.as_slice());
        Buffer { owner: Some(Arc::new(elements)), offset: 0, len }
    }

    /// Takes over an aligned allocation without a copy.
    #[doc(hidden)]
    pub fn from_aligned(bytes: AlignedBytes) -> Buffer {
        let len = bytes.len();
        Buffer { owner: Some(Arc::new(bytes)), offset: 0, len }
    }

    /// Copies bytes into an allocation that is aligned to 64 bytes.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn copy_of(bytes: &[u8]) -> Result<Buffer, TensorError> {
        Ok(Buffer::from_aligned(AlignedBytes::copy_of(bytes)?))
    }

    /// Makes a buffer of `len` zero bytes, aligned to 64 bytes.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn zeroed(len: usize) -> Result<Buffer, TensorError> {
        Ok(Buffer::from_aligned(AlignedBytes::zeroed(len)?))
    }

    /// Refers to all bytes of memory that `owner` shares, without a copy.
    pub fn from_shared(owner: SharedBytes) -> Buffer {
        let len = (*owner).as_ref().len();
        Buffer { owner: Some(Arc::new(Foreign(owner))), offset: 0, len }
    }

    /// Refers to all bytes of a mapping, without a copy.
    #[doc(hidden)]
    pub fn from_pages(pages: Arc<dyn Pages>) -> Buffer {
        Buffer::from_owner(Arc::new(Mapped(pages)))
    }

    /// Advises that the bytes will be read soon; see [`Pages`].
    #[doc(hidden)]
    pub fn fetch_pages(&self) {
        if let Some(pages) = self.owner.as_ref().and_then(|owner| owner.pages()) {
            pages.fetch(self.offset..self.offset + self.len);
        }
    }

    /// Advises that the bytes will not be read for long; see [`Pages`].
    #[doc(hidden)]
    pub fn give_back_pages(&self) {
        if let Some(pages) = self.owner.as_ref().and_then(|owner| owner.pages()) {
            pages.give_back(self.offset..self.offset + self.len);
        }
    }

    /// Whether the bytes are in a file mapping, which other programs may change.
    pub fn is_mapped(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.pages().is_some())
    }

    /// Copies the bytes of a file mapping into private memory, one range after the other. The pages
    /// of each range are evicted, so only the copy and one range are in memory at a time.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn unmapped(&self) -> Result<Buffer, TensorError> {
        /// Size of a range in bytes, large enough that the system calls for each are negligible.
        const RANGE: usize = 4 << 20;
        if self.len <= RANGE {
            self.fetch_pages();
            let copy = Buffer::copy_of(self.as_slice())?;
            self.give_back_pages();
            return Ok(copy);
        }
        let mut copy = AlignedBytes::zeroed(self.len)?;
        for (index, part) in copy.chunks_mut(RANGE).enumerate() {
            let from = self.slice(index * RANGE..index * RANGE + part.len())?;
            from.fetch_pages();
            part.copy_from_slice(from.as_slice());
            from.give_back_pages();
        }
        Ok(Buffer::from_aligned(copy))
    }

    /// Returns an identity of the bytes that does not keep them alive.
    #[doc(hidden)]
    pub fn name(&self) -> BufferName {
        let owner = self.share().as_ref().map(Arc::downgrade);
        BufferName { owner, offset: self.offset, len: self.len }
    }

    /// Refers to all bytes of an owner.
    pub(crate) fn from_owner(owner: Arc<dyn Owner>) -> Buffer {
        let len = owner.bytes().len();
        Buffer::from_start(owner, len)
    }

    /// Refers to the first `len` bytes of an owner, which must have them.
    pub(crate) fn from_start(owner: Arc<dyn Owner>, len: usize) -> Buffer {
        Buffer { owner: Some(owner), offset: 0, len }
    }

    /// Returns the owner for another reference to it.
    fn share(&self) -> &Option<Arc<dyn Owner>> {
        if let Some(owner) = &self.owner {
            owner.note_sharing();
        }
        &self.owner
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Borrows the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // The end was checked when the buffer was created; `get` guards against owners that shrink
        // later.
        let bytes = self.owner.as_ref().map_or(&[][..], |owner| owner.bytes());
        bytes.get(self.offset..self.offset + self.len).unwrap_or(&[])
    }

    /// Returns a part of the buffer, which shares the bytes; `range` is relative to this buffer.
    ///
    /// # Errors
    /// `range` is reversed or ends after the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<Buffer, TensorError> {
        if range.start > range.end || range.end > self.len {
            return err!(Range, "bytes {range:?} of a buffer of {} bytes", self.len);
        }
        Ok(Buffer {
            owner: self.share().clone(),
            offset: self.offset + range.start,
            len: range.end - range.start,
        })
    }

    /// Borrows the bytes for writing: in place if this buffer alone owns them; otherwise they are
    /// copied first, into memory that is aligned to 64 bytes.
    ///
    /// # Errors
    /// Memory for a copy cannot be allocated.
    pub fn make_mut(&mut self) -> Result<&mut [u8], TensorError> {
        if let Some(bytes) = self.unique_bytes() {
            let (start, len) = (bytes.as_mut_ptr(), bytes.len());
            // SAFETY: the slice borrows `self` exclusively, for the lifetime of the result. It is
            // taken apart as the compiler extends a borrow that one path returns to all paths.
            return Ok(unsafe { std::slice::from_raw_parts_mut(start, len) });
        }
        // Memory that is written once is usually written again, which makes huge pages worthwhile.
        *self = Buffer::from_aligned(AlignedBytes::copy_on_huge_pages(self.as_slice())?);
        match self.unique_bytes() {
            Some(bytes) => Ok(bytes),
            None => err!(Unsupported, "the buffer is shared"),
        }
    }

    /// Borrows the bytes for writing; `None` if other buffers share them, or if they must not be
    /// written.
    fn unique_bytes(&mut self) -> Option<&mut [u8]> {
        let owner = self.owner.as_mut()?;
        let owner = if owner.was_shared() {
            Arc::get_mut(owner)?
        } else {
            // SAFETY: `share` is the only source of further references, strong or weak, and has not
            // been called since the owner had this one alone. The borrow of `self` is exclusive, so
            // nothing calls it meanwhile. `Arc::get_mut` locks the count of weak references, which
            // takes a notable part of the time of a short step.
            unsafe { &mut *Arc::as_ptr(owner).cast_mut() }
        };
        let bytes = owner.bytes_mut()?;
        Some(bytes.get_mut(self.offset..self.offset + self.len).unwrap_or(&mut []))
    }

    /// Whether [`Buffer::make_mut`] would copy nothing.
    pub fn is_unique(&mut self) -> bool {
        self.unique_bytes().is_some()
    }

    /// Whether the address of the first byte is a multiple of `align`. Empty buffers are aligned.
    pub fn is_aligned_to(&self, align: usize) -> bool {
        self.len == 0 || self.as_slice().as_ptr().addr().is_multiple_of(align)
    }
}

/// Identity of a buffer's bytes, which does not keep them alive. Names are equal if the buffers
/// share their bytes. While a name exists, no other bytes get an equal name, even if its own are
/// freed.
#[derive(Clone)]
pub struct BufferName {
    owner: Option<Weak<dyn Owner>>,
    offset: usize,
    len: usize,
}

impl BufferName {
    /// Returns the buffer with that name, if its bytes are still alive.
    pub fn buffer(&self) -> Option<Buffer> {
        let owner = self.owner.as_ref()?.upgrade()?;
        Some(Buffer { owner: Some(owner), offset: self.offset, len: self.len })
    }

    /// Returns the fields that identify the bytes. A weak reference keeps the address of an owner
    /// from being reused.
    fn identity(&self) -> (*const (), usize, usize) {
        let owner = self.owner.as_ref().map_or(std::ptr::null(), |owner| owner.as_ptr().cast());
        (owner, self.offset, self.len)
    }
}

impl PartialEq for BufferName {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for BufferName {}

impl Hash for BufferName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for BufferName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, offset, len) = self.identity();
        write!(f, "BufferName({owner:?}, {offset}..{})", offset + len)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer::from_vec(bytes)
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Buffer { owner: self.share().clone(), offset: self.offset, len: self.len }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.release();
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// Owner of bytes.
pub(crate) trait Owner: Send + Sync {
    fn bytes(&self) -> &[u8];
    /// Returns the bytes for writing; `None` if they must not be written.
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;
    /// Returns the mapping, if the bytes are in one.
    fn pages(&self) -> Option<&dyn Pages> {
        None
    }
    /// Notes that there will be another reference, strong or weak.
    fn note_sharing(&self) {}
    /// Whether there may be, or have been, another reference than that of the caller.
    fn was_shared(&self) -> bool {
        true
    }
    /// Releases a buffer's reference when the buffer is dropped.
    fn release(self: Arc<Self>) {}
}

struct Mapped(Arc<dyn Pages>);

impl Owner for Mapped {
    fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn pages(&self) -> Option<&dyn Pages> {
        Some(&*self.0)
    }
}

impl<T: Pod + Send + Sync> Owner for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(bytemuck::cast_slice_mut(self))
    }
}

impl Owner for AlignedBytes {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(self)
    }
}

struct Foreign(SharedBytes);

impl Owner for Foreign {
    fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// Allocation of fixed size at a multiple of [`ALIGNMENT`] bytes, always initialised.
pub struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    /// Alignment of the allocation, which must be passed to `dealloc`.
    align: usize,
}

/// Size of a huge page in bytes, and the smallest allocation that is worth one.
const HUGE_PAGE: usize = 2 << 20;

impl AlignedBytes {
    /// Allocates `len` zero bytes. Large allocations cost nothing until they are touched.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn zeroed(len: usize) -> Result<AlignedBytes, TensorError> {
        let make = |layout| {
            // SAFETY: `allocate` never passes a layout of size 0.
            unsafe { alloc_zeroed(layout) }
        };
        // SAFETY: `make` allocates the layout with all bytes zero.
        unsafe { Self::allocate(len, ALIGNMENT, make) }
    }

    /// Copies `bytes` into a new allocation.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn copy_of(bytes: &[u8]) -> Result<AlignedBytes, TensorError> {
        let make = |layout| {
            // SAFETY: `allocate` never passes a layout of size 0.
            let start = unsafe { alloc(layout) };
            if !start.is_null() {
                // SAFETY: `start` is a fresh allocation of `layout.size()` = `bytes.len()` bytes,
                // so both ranges are valid and do not overlap.
                unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
            start
        };
        // SAFETY: `make` allocates the layout and copies onto all of it.
        unsafe { Self::allocate(bytes.len(), ALIGNMENT, make) }
    }

    /// Allocates `len` zero bytes for long use, on huge pages if the allocation is large enough and
    /// the system supports it. Takes one pass over the bytes.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn zeroed_on_huge_pages(len: usize) -> Result<AlignedBytes, TensorError> {
        if len < 2 * HUGE_PAGE {
            return Self::zeroed(len);
        }
        // SAFETY: all bytes are cleared.
        unsafe { Self::on_huge_pages(len, |start| start.write_bytes(0, len)) }
    }

    /// Copies `bytes` into an allocation for long use, on huge pages like
    /// [`zeroed_on_huge_pages`](Self::zeroed_on_huge_pages).
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn copy_on_huge_pages(bytes: &[u8]) -> Result<AlignedBytes, TensorError> {
        let len = bytes.len();
        if len < 2 * HUGE_PAGE {
            return Self::copy_of(bytes);
        }
        // SAFETY: all bytes are written; a fresh allocation does not overlap others.
        unsafe {
            Self::on_huge_pages(len, |start| start.copy_from_nonoverlapping(bytes.as_ptr(), len))
        }
    }

    /// Allocates `len` bytes on huge pages.
    ///
    /// # Safety
    /// `fill` must initialise `len` bytes, which are not 0, from its argument on.
    unsafe fn on_huge_pages(
        len: usize,
        fill: impl FnOnce(*mut u8),
    ) -> Result<AlignedBytes, TensorError> {
        let make = |layout| {
            // SAFETY: `len` is not 0 here.
            let start = unsafe { alloc(layout) };
            if !start.is_null() {
                // Must precede the first touch: a page that exists already would stay small.
                advise_huge_pages(start, len);
                fill(start);
            }
            start
        };
        // SAFETY: `make` allocates the layout and fills all of it.
        unsafe { Self::allocate(len, HUGE_PAGE, make) }
    }

    /// Allocates `len` bytes at a multiple of `align`.
    ///
    /// # Safety
    /// `make` must return null or an allocation of the global allocator with the given layout, all
    /// bytes initialised.
    unsafe fn allocate(
        len: usize,
        align: usize,
        make: impl FnOnce(Layout) -> *mut u8,
    ) -> Result<AlignedBytes, TensorError> {
        let Ok(layout) = Layout::from_size_align(len, align) else {
            return err!(Overflow, "{len} bytes cannot be allocated");
        };
        if len == 0 {
            // Aligned, never read and never freed.
            let start = layout.dangling_ptr();
            return Ok(AlignedBytes { start, len, align });
        }
        match NonNull::new(make(layout)) {
            Some(start) => Ok(AlignedBytes { start, len, align }),
            None => err!(Overflow, "not enough memory for {len} bytes"),
        }
    }

    /// Returns the address of the first byte, for code that splits the block; see `arena`.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: `allocate` checked this very layout, and made `start` with it.
            unsafe {
                let layout = Layout::from_size_align_unchecked(self.len, self.align);
                dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes (or dangling with `len` 0), and
        // borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

// SAFETY: it owns its bytes like `Vec<u8>` and has no interior mutability.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBytes({} bytes)", self.len)
    }
}

/// Asks the kernel for huge pages. Ignores a refusal, as the memory works either way.
#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge_pages(start: *mut u8, len: usize) {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        fn madvise(addr: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    const MADV_HUGEPAGE: c_int = 14;
    // SAFETY: the signature is that of the C library. The range is a live allocation of ours
    // starting on a page; this advice changes no contents. The length is cut to whole huge pages,
    // so nothing beyond the allocation is advised.
    let _ = unsafe { madvise(start.cast(), len / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn advise_huge_pages(_start: *mut u8, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_are_checked() {
        let buffer = Buffer::from_vec((0..10).collect());
        let part = buffer.slice(2..8).unwrap().slice(1..3).unwrap();
        assert_eq!(part.as_slice(), [3, 4]);
        assert_eq!(part.as_slice().as_ptr(), buffer.as_slice()[3..].as_ptr());
        assert!(buffer.slice(3..11).is_err());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = buffer.slice(3..2);
        assert!(reversed.is_err());
        assert!(buffer.slice(10..10).unwrap().is_empty());
    }

    #[test]
    fn writes_copy_only_when_shared() {
        let mut a = Buffer::from_vec(vec![1, 2, 3]);
        let before = a.as_slice().as_ptr();
        a.make_mut().unwrap()[0] = 9;
        assert_eq!(a.as_slice().as_ptr(), before);
        let b = a.clone();
        a.make_mut().unwrap()[1] = 8;
        assert_eq!((a.as_slice(), b.as_slice()), (&[9, 8, 3][..], &[9, 2, 3][..]));
        assert!(a.is_aligned_to(ALIGNMENT));
        // A slice that is the only reference left is written in place, and only its range.
        let mut tail = b.slice(1..3).unwrap();
        drop(b);
        assert!(tail.is_unique());
        tail.make_mut().unwrap().fill(0);
        assert_eq!(tail.as_slice(), [0, 0]);
    }

    #[test]
    fn foreign_bytes_are_never_written() {
        let source: SharedBytes = Arc::new(vec![1u8, 2, 3]);
        let mut buffer = Buffer::from_shared(Arc::clone(&source));
        assert!(!buffer.is_unique());
        buffer.make_mut().unwrap()[0] = 7;
        assert_eq!((*source).as_ref(), [1, 2, 3]);
        assert_eq!(buffer.as_slice(), [7, 2, 3]);
    }

    #[test]
    fn allocations_are_aligned_and_refusable() {
        for len in [0, 1, 63, 4096] {
            let bytes = AlignedBytes::zeroed(len).unwrap();
            assert_eq!((bytes.as_ptr().addr() % ALIGNMENT, bytes.len()), (0, len));
            assert!(bytes.iter().all(|&b| b == 0));
        }
        let huge = AlignedBytes::zeroed_on_huge_pages(5 << 20).unwrap();
        assert_eq!((huge.as_ptr().addr() % HUGE_PAGE, huge[5 << 19]), (0, 0));
        let numbers: Vec<u8> = (0..5 << 20).map(|i: usize| (i % 251) as u8).collect();
        let copy = AlignedBytes::copy_on_huge_pages(&numbers).unwrap();
        assert_eq!((copy.as_ptr().addr() % HUGE_PAGE, &*copy), (0, &numbers[..]));
        assert_eq!(&*AlignedBytes::copy_on_huge_pages(b"abc").unwrap(), b"abc");
        assert!(AlignedBytes::zeroed(usize::MAX).is_err());
        assert!(AlignedBytes::zeroed(isize::MAX as usize - 1000).is_err());
        assert_eq!(&*AlignedBytes::copy_of(b"abc").unwrap(), b"abc");
    }
}
