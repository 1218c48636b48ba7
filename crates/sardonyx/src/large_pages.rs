//! Allocator that places large arrays in huge pages (2 MiB).
//!
//! The first access to each page of memory faults, and on many systems the fault for a page of
//! 4 KiB takes longer than filling it. The structure and the inferred types of a model of 100,000
//! nodes are in a few arrays of several megabytes; with huge pages, checking such a model takes a
//! third less time. Linux grants them on request (`madvise`) unless transparent huge pages are
//! disabled; other systems take no such request.

// An allocator returns raw memory, which no safe interface can express.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Global allocator that requests huge pages from the system for large arrays. The command and the
/// Python module use it. A Rust program has to choose it, as a library must not set the allocator:
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
/// Each array of 1 MiB or more may take up to 2 MiB more memory than with [`System`].
#[derive(Debug, Clone, Copy, Default)]
pub struct LargePages;

/// Size of a huge page in bytes, on processors whose small pages have 4 KiB.
const LARGE_PAGE: usize = 2 << 20;

/// Size in bytes from which glibc maps each allocation by itself (`mmap`). The layout of such an
/// allocation is not changed, so that growing can remap pages instead of copying bytes.
const OWN_PAGES: usize = 32 << 20;

/// Size in bytes from which an allocation takes less time in one huge page than in small pages,
/// even if the rest of the huge page is never used.
const WORTH_ONE: usize = LARGE_PAGE / 2;

/// Aligns the layout of a large allocation to huge pages. Rounds the size up if the allocation
/// fills at least half of its last huge page, so that no other allocation shares that page.
fn align_to_large_pages(layout: Layout) -> Layout {
    let size = match layout.size() {
        size @ WORTH_ONE..OWN_PAGES if size % LARGE_PAGE >= WORTH_ONE => {
            size.next_multiple_of(LARGE_PAGE)
        }
        size @ LARGE_PAGE..OWN_PAGES => size,
        _ => return layout,
    };
    Layout::from_size_align(size, layout.align().max(LARGE_PAGE)).unwrap_or(layout)
}

// SAFETY: All memory comes from `System`, always with the layout that `align_to_large_pages`
// returns for the caller's layout: at least as large, and aligned at least as much. Advice about
// paging changes neither content nor ownership of memory.
unsafe impl GlobalAlloc for LargePages {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = align_to_large_pages(layout);
        // SAFETY: The size is at least the caller's, who promises that it is not zero.
        let memory = unsafe { System.alloc(layout) };
        request_large_pages(memory, layout.size());
        memory
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if align_to_large_pages(layout).align() < LARGE_PAGE {
            // SAFETY: The size is the caller's, who promises that it is not zero.
            let memory = unsafe { System.alloc_zeroed(layout) };
            request_large_pages(memory, layout.size());
            return memory;
        }
        // `System.alloc_zeroed` would clear memory of this alignment itself, before the advice: a
        // page that has been touched stays small. SAFETY: The caller promises a size that is not
        // zero, and only memory that was just allocated is cleared.
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
        let (old_actual, new_actual) = (align_to_large_pages(layout), align_to_large_pages(new));
        if old_actual == new_actual && old_actual.size() >= size {
            return memory;
        }
        if old_actual == layout && new_actual == new {
            // SAFETY: The memory was allocated by `System` with exactly this layout.
            let memory = unsafe { System.realloc(memory, layout, size) };
            request_large_pages(memory, size);
            return memory;
        }
        // SAFETY: The new size is not zero, as the caller promises. Both blocks are at least as
        // large as the copied range and do not overlap, and the caller does not use the old block
        // afterwards.
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
        // SAFETY: The memory was allocated by `System` with this layout, and the caller promises
        // not to use it afterwards.
        unsafe { System.dealloc(memory, align_to_large_pages(layout)) }
    }
}

/// Requests huge pages for an allocation of at least [`LARGE_PAGE`] bytes.
#[inline]
fn request_large_pages(memory: *mut u8, size: usize) {
    if size >= LARGE_PAGE && !memory.is_null() {
        advise_huge_pages(memory, size);
    }
}

/// Advises the kernel to back `size` bytes from `memory` on with huge pages (`madvise`).
#[cfg(target_os = "linux")]
#[cold]
fn advise_huge_pages(memory: *mut u8, size: usize) {
    use rustix::mm::{Advice, madvise};

    const PAGE: usize = 4 << 10;
    // Advice must cover whole pages. The first and last may also hold other allocations, which
    // huge pages do not harm.
    let before = memory.addr() % PAGE;
    let begin = memory.wrapping_sub(before);
    let length = (before + size).next_multiple_of(PAGE);
    // SAFETY: The pages are mapped memory of the allocator, and this advice does not change their
    // content. A system without huge pages returns an error, which has no effect.
    let _ = unsafe { madvise(begin.cast(), length, Advice::LinuxHugepage) };
}

/// Does nothing: other systems take no advice about huge pages.
#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: *mut u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates a block, checks that it is zeroed and aligned, grows, shrinks and frees it.
    fn use_memory(size: usize, align: usize) {
        let layout = Layout::from_size_align(size, align).expect("a power of two");
        // SAFETY: Each call gets the current layout of the block, sizes are not zero, and only
        // bytes that were written are read.
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
    fn memory_of_every_size_is_usable() {
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
