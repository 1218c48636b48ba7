//! Memory in large pages, for programs that choose it.
//!
//! A system hands memory out page by page, when each is touched first, and on many systems a page
//! of 4 KiB costs more time than filling it does. The structure of a model of 100,000 nodes, and
//! what is inferred about it, lies in a few arrays of megabytes; in pages of 2 MiB, checking such a
//! model takes a third less time. Linux gives those to whoever asks, unless its administrator says
//! otherwise; other systems decide for themselves.

// An allocator hands out raw memory, which no safe interface can express.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// The allocator of the system, asked for large pages where memory is large. The command and the
/// Python module use it; a library cannot choose for the program that it is part of:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;
///
/// fn main() -> Result<(), sardonyx::Error> {
/// #   let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
///     let model = sardonyx::Model::open(path)?;
///     println!("{} nodes", model.node_count());
///     Ok(())
/// }
/// ```
///
/// It takes up to a large page more memory for each array of 1 MiB and more.
#[derive(Debug, Clone, Copy, Default)]
pub struct LargePages;

/// The size of a large page, on the processors that have pages of 4 KiB otherwise.
const LARGE_PAGE: usize = 2 << 20;

/// From here on memory comes from the system each time and begins where a large page does, and
/// growing it moves pages in the place of bytes.
const OWN_PAGES: usize = 32 << 20;

/// From here on a large page costs less than the small ones would, even if the rest of it is never
/// used.
const WORTH_ONE: usize = LARGE_PAGE / 2;

/// Where memory of a size lies: at the beginning of a large page, if it is large but shares pages
/// with others. It has its last page for itself, if it fills at least half of it.
fn placed(layout: Layout) -> Layout {
    let size = match layout.size() {
        size @ WORTH_ONE..OWN_PAGES if size % LARGE_PAGE >= WORTH_ONE => {
            size.next_multiple_of(LARGE_PAGE)
        }
        size @ LARGE_PAGE..OWN_PAGES => size,
        _ => return layout,
    };
    Layout::from_size_align(size, layout.align().max(LARGE_PAGE)).unwrap_or(layout)
}

// SAFETY: Memory is that of `System`, always by the layout that `placed` gives for the caller's: at
// least as large, and aligned at least as much. Advice on how it is paged changes nothing about
// what it holds or who owns it.
unsafe impl GlobalAlloc for LargePages {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = placed(layout);
        // SAFETY: The size is at least the caller's, who promises that it is not zero.
        advised(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if placed(layout).align() < LARGE_PAGE {
            // SAFETY: The size is the caller's, who promises that it is not zero.
            return advised(unsafe { System.alloc_zeroed(layout) }, layout.size());
        }
        // Memory of such an alignment is cleared by whoever asks for it, and a page that has been
        // touched stays small. SAFETY: As above, and what is cleared has just been allocated.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: The caller promises that the size, rounded up to the alignment, is one of a
        // layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (old_place, new_place) = (placed(layout), placed(new));
        if old_place == new_place && old_place.size() >= size {
            return memory;
        }
        if old_place == layout && new_place == new {
            // SAFETY: The memory is of `System` by this very layout.
            return advised(unsafe { System.realloc(memory, layout, size) }, size);
        }
        // SAFETY: The new size is not zero, as the caller promises. Both are as large as what is
        // copied and do not overlap, and nobody uses the old memory any more.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(memory, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            moved
        }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: The memory is of `System` by this layout, and nobody uses it any more, as the
        // caller promises.
        unsafe { System.dealloc(memory, placed(layout)) }
    }
}

#[inline]
fn advised(memory: *mut u8, size: usize) -> *mut u8 {
    if size >= LARGE_PAGE && !memory.is_null() {
        advise(memory, size);
    }
    memory
}

#[cfg(target_os = "linux")]
#[cold]
fn advise(memory: *mut u8, size: usize) {
    use rustix::mm::{Advice, madvise};

    const PAGE: usize = 4 << 10;
    // Advice is for whole pages. What the allocator keeps at the edges may be paged in any way.
    let before = memory.addr() % PAGE;
    let begin = memory.wrapping_sub(before);
    let length = (before + size).next_multiple_of(PAGE);
    // SAFETY: The pages are of the allocator's memory, and this advice leaves their content as it
    // is. A system that has no large pages says so, which changes nothing.
    let _ = unsafe { madvise(begin.cast(), length, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a size and alignment, filled, grown, shrunk and given back.
    fn use_memory(size: usize, align: usize) {
        let layout = Layout::from_size_align(size, align).expect("a power of two");
        // SAFETY: The layouts are those of the memory at each step, sizes are not zero, and only
        // what was written is read.
        unsafe {
            let memory = LargePages.alloc_zeroed(layout);
            assert!(!memory.is_null() && memory.addr().is_multiple_of(align));
            assert!((0..size).step_by(997).all(|at| memory.add(at).read() == 0));
            memory.write_bytes(7, size);
            let memory = LargePages.realloc(memory, layout, 3 * size);
            let layout = Layout::from_size_align(3 * size, align).expect("a power of two");
            assert!(!memory.is_null() && memory.addr().is_multiple_of(align));
            let memory = LargePages.realloc(memory, layout, size / 2);
            let layout = Layout::from_size_align(size / 2, align).expect("a power of two");
            assert!((0..size / 2).step_by(997).all(|at| memory.add(at).read() == 7));
            LargePages.dealloc(memory, layout);
        }
    }

    #[test]
    fn memory_of_every_size_is_what_was_asked_for() {
        for size in [
            16,
            4096,
            WORTH_ONE - 1,
            WORTH_ONE,
            LARGE_PAGE - 1,
            LARGE_PAGE,
            2 * LARGE_PAGE - 1,
            5 * LARGE_PAGE + 123,
            OWN_PAGES,
        ] {
            for align in [1, 64, 8192] {
                use_memory(size, align);
            }
        }
    }
}
