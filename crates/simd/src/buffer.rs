//! Aligned memory for packed operands, and per-thread scratch that is kept between calls.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use slab::Range;

mod slab;

/// Geometry: bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Choice: size from which buffers are aligned to and advised for huge pages: packed weights are
/// read front to back on every run, and with 4 KB pages that costs a TLB miss per page.
const HUGE_FROM_BYTES: usize = 4 << 20;
/// Value: bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of floats, aligned to 64 bytes.
pub struct AlignedBuf {
    ptr: NonNull<f32>,
    len: usize,
    /// Place in memory that packed arrays share; `None` for an allocation of its own.
    shared: Option<Range>,
}

// SAFETY: owns its memory like a Vec.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    pub fn zeroed(len: usize) -> AlignedBuf {
        // SAFETY: everything is written before it is read.
        unsafe {
            let buf = AlignedBuf::unwritten(len);
            buf.ptr.as_ptr().write_bytes(0, len);
            buf
        }
    }

    /// Memory without values, for who writes it piece by piece: fresh pages then come from the
    /// system when they are wanted, and to all threads that write.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn unwritten(len: usize) -> AlignedBuf {
        let layout = Self::layout(len);
        if layout.size() == 0 {
            return AlignedBuf { ptr: NonNull::dangling(), len: 0, shared: None };
        }
        // SAFETY: the size is not zero.
        let Some(ptr) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        // Before the first touch: a page that exists already stays small.
        if layout.align() == HUGE_PAGE {
            advise_huge(ptr.as_ptr(), layout.size());
        }
        AlignedBuf { ptr: ptr.cast(), len, shared: None }
    }

    /// Allocates memory without values for an array that lives as long as others, such as packed
    /// weights. Arrays that would fill one or two huge pages in part share them.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn unwritten_for_good(len: usize) -> AlignedBuf {
        match Range::new(len.saturating_mul(size_of::<f32>())) {
            Some(range) => AlignedBuf { ptr: range.start().cast(), len, shared: Some(range) },
            // SAFETY: The caller's promise.
            None => unsafe { AlignedBuf::unwritten(len) },
        }
    }

    /// Where the floats are, whether they have been written or not.
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
        // SAFETY: `len` initialised floats, or a dangling pointer and none.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and borrowed mutably.
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

/// A type of which any bytes are a value.
///
/// # Safety
///
/// That must be so, and its alignment must divide that of a cache line.
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

/// As [`with_scratch`], with elements of any type of numbers.
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

/// Runs `f` with `len` floats of this thread's scratch memory. Contents are whatever the last user
/// left, or NaN in builds with assertions.
///
/// Calls may nest; each level has its own buffer. Buffers grow to the largest size asked for and
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

/// Fills scratch memory with NaN, which is the greatest integer of any width too, in builds with
/// assertions: a kernel that reads what it has not written then fails.
fn poison(floats: &mut [f32]) {
    if cfg!(debug_assertions) {
        floats.fill(f32::from_bits(u32::MAX));
    }
}

/// At least `len` floats of this thread's scratch memory.
fn take_scratch(len: usize) -> AlignedBuf {
    let found = FREE.with_borrow_mut(|free| {
        // The smallest that fits, else the largest, which then is replaced.
        let fits = (0..free.len()).filter(|&i| free[i].len >= len).min_by_key(|&i| free[i].len);
        let index = fits.or_else(|| (0..free.len()).max_by_key(|&i| free[i].len));
        index.map(|i| free.swap_remove(i))
    });
    match found {
        Some(buf) if buf.len >= len => buf,
        _ => AlignedBuf::zeroed(len.next_multiple_of(1024)),
    }
}

/// Takes scratch memory back, of whichever thread.
fn give_scratch(buf: AlignedBuf) {
    // A thread that ends has no scratch memory any more.
    let _ = FREE.try_with(|free| free.borrow_mut().push(buf));
}

/// How long packed weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// For many runs: they have memory of their own, or share huge pages with others.
    ForGood,
    /// For one run: they lie in scratch memory of the thread, which has it back when they are
    /// dropped. So the next run asks the system for nothing.
    ForOneRun,
}

/// A fixed number of floats in a buffer that lasts.
#[derive(Debug)]
pub struct PackedBuf {
    buf: AlignedBuf,
    len: usize,
    lasts: Lasts,
}

impl PackedBuf {
    /// Memory without values of its own.
    ///
    /// # Safety
    ///
    /// Every float must be written before the buffer is read.
    pub unsafe fn unwritten(len: usize, lasts: Lasts) -> PackedBuf {
        let mut buf = match lasts {
            // SAFETY: the caller's promise.
            Lasts::ForGood => unsafe { AlignedBuf::unwritten_for_good(len) },
            Lasts::ForOneRun => take_scratch(len),
        };
        if lasts == Lasts::ForOneRun {
            poison(&mut buf[..len]);
        }
        PackedBuf { buf, len, lasts }
    }

    pub fn zeroed(len: usize, lasts: Lasts) -> PackedBuf {
        // SAFETY: everything is written before it is read.
        unsafe {
            let mut buf = PackedBuf::unwritten(len, lasts);
            buf.as_mut_ptr().write_bytes(0, len);
            buf
        }
    }

    /// Where the floats are, whether they have been written or not.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.buf.as_mut_ptr()
    }
}

impl Drop for PackedBuf {
    fn drop(&mut self) {
        if self.lasts == Lasts::ForOneRun {
            give_scratch(std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0)));
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
