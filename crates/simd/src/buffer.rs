//! Memory aligned to cache lines for packed operands, and scratch memory of each thread that is
//! kept between calls.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use slab::Range;

mod slab;

/// Geometry: bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Choice: size in bytes from which buffers are aligned to huge pages and advised for them. Packed
/// weights are read front to back in every run, and with pages of 4 KB that costs a TLB miss per
/// page.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Value: bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of floats, aligned to 64 bytes.
pub struct AlignedBuf {
    ptr: NonNull<f32>,
    len: usize,
    /// Range in a slab that packed arrays share; `None` for an allocation of its own.
    shared: Option<Range>,
}

// SAFETY: owns its memory like a Vec.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub fn new_zeroed(len: usize) -> AlignedBuf {
        // SAFETY: all `len` floats are written at once.
        unsafe {
            let buf = AlignedBuf::new_uninit(len);
            buf.ptr.as_ptr().write_bytes(0, len);
            buf
        }
    }

    /// Allocates memory without values, for callers that write it piece by piece. Fresh pages come
    /// from the system at the first write, on each of the threads that write.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn new_uninit(len: usize) -> AlignedBuf {
        let layout = Self::layout(len);
        if layout.size() == 0 {
            return AlignedBuf { ptr: NonNull::dangling(), len: 0, shared: None };
        }
        // SAFETY: the size is not zero.
        let Some(ptr) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Before the first touch: a page that is resident already stays small.
        if layout.align() == HUGE_PAGE {
            advise_huge(ptr.as_ptr(), layout.size());
        }
        AlignedBuf { ptr: ptr.cast(), len, shared: None }
    }

    /// Allocates memory without values for an array that lives as long as others, such as packed
    /// weights. Arrays that would only fill parts of one or two huge pages share them.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn new_uninit_for_good(len: usize) -> AlignedBuf {
        match Range::new(len.saturating_mul(size_of::<f32>())) {
            Some(range) => AlignedBuf { ptr: range.start().cast(), len, shared: Some(range) },
            // SAFETY: the caller writes every float before it reads any.
            None => unsafe { AlignedBuf::new_uninit(len) },
        }
    }

    /// Returns the address of the first float. Floats need not have been written.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.ptr.as_ptr()
    }

    fn layout(len: usize) -> Layout {
        let bytes = len * size_of::<f32>();
        let align = if bytes >= HUGE_FROM_BYTES { HUGE_PAGE } else { CACHE_LINE };
        Layout::from_size_align(bytes, align).expect("lengths of slices fit a layout")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.shared.is_some() {
            return;
        }
        let layout = Self::layout(self.len);
        if layout.size() != 0 {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.ptr.as_ptr().cast(), layout) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `ptr` has `len` initialized floats; without floats it dangles.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: `ptr` has `len` initialized floats, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({})", self.len)
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn advise_huge(ptr: *mut u8, bytes: usize) {
    // The C library is linked anyway; its headers' only contribution would be these two lines.
    unsafe extern "C" {
        fn madvise(addr: *mut u8, length: usize, advice: i32) -> i32;
    }
    const MADV_HUGEPAGE: i32 = 14;
    // SAFETY: the range was just allocated and is page-aligned. A refusal changes nothing but
    // speed.
    unsafe {
        madvise(ptr, bytes, MADV_HUGEPAGE);
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn advise_huge(_ptr: *mut u8, _bytes: usize) {}

thread_local! {
    static FREE: RefCell<Vec<AlignedBuf>> = const { RefCell::new(Vec::new()) };
}

/// A type for which any bytes are a valid value.
///
/// # Safety
///
/// Any bytes must be a valid value, and the alignment must divide that of a cache line.
pub unsafe trait AnyBits: Copy {}

macro_rules! any_bits {
    ($($t:ty)*) => {$(
        // SAFETY: a primitive number.
        unsafe impl AnyBits for $t {}
    )*};
}

any_bits!(i8 u8 i16 u16 i32 u32 i64 u64 usize f32 f64);

// SAFETY: an array has nothing between its elements.
unsafe impl<T: AnyBits, const N: usize> AnyBits for [T; N] {}

/// Runs `f` with `len` elements of a number type in this thread's scratch memory, like
/// [`with_scratch`].
pub fn with_scratch_of<T: AnyBits, R>(len: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let floats = len.checked_mul(size_of::<T>()).expect("they fit into memory").div_ceil(4);
    with_scratch(floats, |floats| {
        // SAFETY: buffers begin at cache lines, an empty one at an aligned address of no memory,
        // and this one has room for `len` elements, of which any bytes are values.
        let elements = unsafe {
            let start = if floats.is_empty() {
                NonNull::dangling().as_ptr()
            } else {
                floats.as_mut_ptr().cast::<T>()
            };
            std::slice::from_raw_parts_mut(start, if floats.is_empty() { 0 } else { len })
        };
        f(elements)
    })
}

/// Runs `f` with `len` floats of this thread's scratch memory. Contents are what the last user
/// left, or NaN in builds with assertions.
///
/// Calls may nest; each level has its own buffer. Buffers grow to the largest length requested and
/// are kept for the life of the thread.
pub fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    if len == 0 {
        return f(&mut []);
    }
    let mut buf = take_scratch(len);
    poison(&mut buf[..len]);
    let result = f(&mut buf[..len]);
    give_scratch(buf);
    result
}

/// Fills scratch memory with NaN in builds with assertions, so that a kernel that reads floats
/// before it writes them fails. The bytes are also the unsigned maximum of any width.
fn poison(floats: &mut [f32]) {
    if cfg!(debug_assertions) {
        floats.fill(f32::from_bits(u32::MAX));
    }
}

/// Takes a buffer of at least `len` floats out of this thread's scratch memory, or allocates one.
fn take_scratch(len: usize) -> AlignedBuf {
    let found = FREE.with_borrow_mut(|free| {
        // The smallest that fits, else the largest, which is replaced by a larger one.
        let fits = (0..free.len()).filter(|&i| free[i].len >= len).min_by_key(|&i| free[i].len);
        let index = fits.or_else(|| (0..free.len()).max_by_key(|&i| free[i].len));
        index.map(|i| free.swap_remove(i))
    });
    match found {
        Some(buf) if buf.len >= len => buf,
        _ => AlignedBuf::new_zeroed(len.next_multiple_of(1024)),
    }
}

/// Adds a buffer to the scratch memory of the calling thread. It may come from another thread.
fn give_scratch(buf: AlignedBuf) {
    // A thread that ends has no scratch memory any more and frees the buffer.
    let _ = FREE.try_with(|free| free.borrow_mut().push(buf));
}

/// Lifetime of packed weights, which decides where their memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Many runs: the memory is an allocation of its own, or a part of huge pages that several
    /// arrays share.
    ForGood,
    /// One run: the memory is scratch memory of the thread and returns there when the weights are
    /// dropped, so that the next run allocates nothing.
    ForOneRun,
}

/// A fixed number of floats with a known lifetime.
#[derive(Debug)]
pub struct PackedBuf {
    buf: AlignedBuf,
    len: usize,
    lasts: Lasts,
}

impl PackedBuf {
    /// Provides memory for `len` floats without setting values.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn new_uninit(len: usize, lasts: Lasts) -> PackedBuf {
        let mut buf = match lasts {
            // SAFETY: the caller writes every float before it reads any.
            Lasts::ForGood => unsafe { AlignedBuf::new_uninit_for_good(len) },
            Lasts::ForOneRun => take_scratch(len),
        };
        if lasts == Lasts::ForOneRun {
            poison(&mut buf[..len]);
        }
        PackedBuf { buf, len, lasts }
    }

    pub fn new_zeroed(len: usize, lasts: Lasts) -> PackedBuf {
        // SAFETY: all `len` floats are written at once.
        unsafe {
            let mut buf = PackedBuf::new_uninit(len, lasts);
            buf.as_mut_ptr().write_bytes(0, len);
            buf
        }
    }

    /// Returns the address of the first float. Floats need not have been written.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.buf.as_mut_ptr()
    }
}

impl Drop for PackedBuf {
    fn drop(&mut self) {
        if self.lasts == Lasts::ForOneRun {
            give_scratch(std::mem::replace(&mut self.buf, AlignedBuf::new_zeroed(0)));
        }
    }
}

impl Deref for PackedBuf {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.buf[..self.len]
    }
}

impl DerefMut for PackedBuf {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buf[..self.len]
    }
}
