//! Memory: the object `OrtMemoryInfo`, the default allocator, and allocators of the caller.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::LazyLock;

use sardonyx::ErrorKind;
use sardonyx_ort::{Status as Code, providers};

use crate::failure::{Error, StatusPointer, answer, answer_or, argument, demand, release};
use crate::handles::{Handle, Kept, Object, give};
use crate::pairs::Pairs;
use crate::pointers::{Out, Text};
use crate::session::Session;

/// Bytes before each allocation, which hold its size. Also the alignment of allocations.
const HEADER: usize = 64;

/// Kind of allocator in a description of memory: one for each device.
const DEVICE_ALLOCATOR: c_int = 0;

/// Newest version of the structure that the default allocator fills in.
const ALLOCATOR_VERSION: u32 = 25;

/// Kind of device: the CPU, and the kind that onnxruntime gives to memory of any other name.
const CPU_DEVICE: c_int = 0;
const OTHER_DEVICE: c_int = 1;

/// Description of memory, `OrtMemoryInfo`.
///
/// Clients describe the memory of devices that they may never use, such as onnxruntime-node at its
/// start. So any memory can be described, and [`MemoryInfo::demand_cpu`] refuses its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryInfo {
    name: CString,
    allocator: c_int,
    id: c_int,
    kind: c_int,
    device: c_int,
    vendor: u32,
    /// Kind of memory of the device: the usual one, or one that the host reaches.
    device_memory: c_int,
}

impl MemoryInfo {
    /// Describes memory of the CPU.
    fn new_cpu(allocator: c_int, kind: c_int) -> MemoryInfo {
        let name = c"Cpu".into();
        MemoryInfo { name, allocator, id: 0, kind, device: CPU_DEVICE, vendor: 0, device_memory: 0 }
    }

    /// Checks that the memory is that of the CPU.
    ///
    /// # Errors
    ///
    /// Memory of another device.
    pub(crate) fn demand_cpu(&self) -> Result<(), Error> {
        if self.device == CPU_DEVICE {
            return Ok(());
        }
        Err(sardonyx_ort::refused::find("memory", &[&self.name.to_string_lossy()])
            .unwrap_or_else(|| argument("the memory is not that of the CPU")))
    }
}

impl Object for MemoryInfo {
    const NAME: &'static str = "OrtMemoryInfo";
}

/// Description of the memory of the CPU.
pub(crate) static CPU: LazyLock<Kept<MemoryInfo>> =
    LazyLock::new(|| Kept::new(MemoryInfo::new_cpu(DEVICE_ALLOCATOR, 0)));

/// Allocator, a structure of functions that the C header declares.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Allocator {
    version: u32,
    alloc: Option<unsafe extern "C" fn(*mut Allocator, usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut Allocator, *mut c_void)>,
    info: Option<unsafe extern "C" fn(*const Allocator) -> *const MemoryInfo>,
    reserve: Option<unsafe extern "C" fn(*mut Allocator, usize) -> *mut c_void>,
    stats: Option<unsafe extern "C" fn(*const Allocator, *mut *mut Pairs) -> StatusPointer>,
    alloc_on_stream:
        Option<unsafe extern "C" fn(*mut Allocator, usize, *mut c_void) -> *mut c_void>,
    shrink: Option<unsafe extern "C" fn(*mut Allocator) -> StatusPointer>,
}

/// Pointer to an allocator, as C code passes it.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocatorHandle(*mut Allocator);

/// Default allocator. It has no state, so all callers share it.
static DEFAULT: Allocator = new_allocator();

const fn new_allocator() -> Allocator {
    Allocator {
        version: ALLOCATOR_VERSION,
        alloc: Some(allocate),
        free: Some(free),
        info: Some(describe),
        reserve: Some(allocate),
        stats: Some(make_stats),
        alloc_on_stream: None,
        shrink: Some(shrink),
    }
}

/// Allocates memory that [`free`] frees. Null without memory.
unsafe extern "C" fn allocate(_: *mut Allocator, bytes: usize) -> *mut c_void {
    let Some(layout) = layout_of(bytes) else { return ptr::null_mut() };
    // SAFETY: the layout has at least `HEADER` bytes.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the header has room for a `usize` and is aligned for it.
    unsafe { start.cast::<usize>().write(bytes) };
    // SAFETY: the allocation has the header and `bytes` after it.
    unsafe { start.add(HEADER) }.cast()
}

/// Frees memory of [`allocate`]. Ignores a null pointer.
unsafe extern "C" fn free(_: *mut Allocator, memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: the caller promises memory of `allocate`, which begins after a header.
    let start = unsafe { memory.cast::<u8>().sub(HEADER) };
    // SAFETY: `allocate` has written the size there.
    let bytes = unsafe { start.cast::<usize>().read() };
    if let Some(layout) = layout_of(bytes) {
        // SAFETY: `allocate` has allocated the memory with this layout.
        unsafe { dealloc(start, layout) };
    }
}

unsafe extern "C" fn describe(_: *const Allocator) -> *const MemoryInfo {
    CPU.pointer()
}

unsafe extern "C" fn make_stats(_: *const Allocator, out: *mut *mut Pairs) -> StatusPointer {
    // SAFETY: the caller promises a place for a pointer.
    let place = unsafe { out.as_mut() };
    answer("GetStats", || {
        let place = place.ok_or_else(|| argument("the place for the result is a null pointer"))?;
        *place = give(Pairs::default());
        Ok(())
    })
}

unsafe extern "C" fn shrink(_: *mut Allocator) -> StatusPointer {
    ptr::null_mut()
}

fn layout_of(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes.checked_add(HEADER)?, HEADER).ok()
}

impl AllocatorHandle {
    /// Returns the default allocator.
    pub(crate) fn default_one() -> AllocatorHandle {
        AllocatorHandle((&raw const DEFAULT).cast_mut())
    }

    /// Whether the memory of the allocator is that of Rust's allocator.
    pub(crate) fn is_ours(self) -> bool {
        // SAFETY: the caller promises an allocator, which outlives what it allocates.
        let allocator = unsafe { self.0.as_ref() };
        let function = allocator.and_then(|allocator| allocator.alloc);
        function.is_some_and(|function| ptr::fn_addr_eq(function, allocate as AllocateFunction))
    }

    /// Allocates memory.
    ///
    /// # Errors
    ///
    /// A null pointer, an allocator without functions, no memory.
    pub(crate) fn allocate(self, bytes: usize) -> Result<*mut c_void, Error> {
        // SAFETY: the caller promises an allocator, which outlives what it allocates.
        let allocator = unsafe { self.0.as_ref() };
        let function = allocator.and_then(|allocator| allocator.alloc);
        let function =
            function.ok_or_else(|| argument("the OrtAllocator has no function Alloc"))?;
        // SAFETY: the function takes its allocator and a size.
        let memory = unsafe { function(self.0, bytes) };
        if memory.is_null() {
            let what = format!("the allocator has not enough memory for {bytes} bytes");
            return Err(Error::new(Code::Fail, ErrorKind::Internal, what));
        }
        Ok(memory)
    }

    /// Frees memory of the allocator.
    ///
    /// # Errors
    ///
    /// A null pointer, an allocator without functions.
    pub(crate) fn free(self, memory: *mut c_void) -> Result<(), Error> {
        // SAFETY: the caller promises an allocator, which outlives what it allocates.
        let allocator = unsafe { self.0.as_ref() };
        let function = allocator.and_then(|allocator| allocator.free);
        let function = function.ok_or_else(|| argument("the OrtAllocator has no function Free"))?;
        // SAFETY: the function takes its allocator and memory of it.
        unsafe { function(self.0, memory) };
        Ok(())
    }

    /// Copies values to memory of the allocator, which the caller frees.
    ///
    /// # Errors
    ///
    /// The errors of [`AllocatorHandle::allocate`].
    pub(crate) fn copy<T: Copy>(self, values: &[T]) -> Result<*mut T, Error> {
        let memory = self.allocate(size_of_val(values).max(1))?.cast::<T>();
        demand(memory.is_aligned(), || "the allocator returns memory without alignment".into())?;
        // SAFETY: the memory is new, aligned, and has room for all values.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), memory, values.len()) };
        Ok(memory)
    }

    /// Copies a text with a zero byte to memory of the allocator, which the caller frees.
    ///
    /// # Errors
    ///
    /// The errors of [`AllocatorHandle::allocate`].
    pub(crate) fn copy_text(self, text: &str) -> Result<*mut c_char, Error> {
        let text = crate::failure::to_c_string(text);
        Ok(self.copy(text.as_bytes_with_nul())?.cast())
    }

    /// Returns the description of the memory.
    fn info(self) -> *const MemoryInfo {
        // SAFETY: the caller promises an allocator.
        let allocator = unsafe { self.0.as_ref() };
        match allocator.and_then(|allocator| allocator.info) {
            // SAFETY: the function takes its allocator.
            Some(function) => unsafe { function(self.0) },
            None => ptr::null(),
        }
    }

    fn demand(self) -> Result<Self, Error> {
        demand(!self.0.is_null(), || "the OrtAllocator is a null pointer".to_string())?;
        Ok(self)
    }
}

/// Type of the function [`allocate`].
type AllocateFunction = unsafe extern "C" fn(*mut Allocator, usize) -> *mut c_void;

// SAFETY: the allocator is only passed to its own functions, which the C interface demands to be
// callable from any thread.
unsafe impl Send for AllocatorHandle {}
// SAFETY: as above.
unsafe impl Sync for AllocatorHandle {}

pub(crate) extern "C" fn create_memory_info(
    name: Text,
    allocator: c_int,
    id: c_int,
    kind: c_int,
    out: Out<*mut MemoryInfo>,
) -> StatusPointer {
    answer("CreateMemoryInfo", || {
        let out = out.demand()?;
        let name = name.read("name")?;
        demand(!name.is_empty(), || "the name of the memory is empty".to_string())?;
        let is_cpu = name.eq_ignore_ascii_case(providers::CPU_MEMORY);
        let device = if is_cpu { CPU_DEVICE } else { OTHER_DEVICE };
        let name = crate::failure::to_c_string(&name);
        out.set(give(MemoryInfo { name, allocator, id, kind, device, vendor: 0, device_memory: 0 }))
    })
}

pub(crate) extern "C" fn create_cpu_memory_info(
    allocator: c_int,
    kind: c_int,
    out: Out<*mut MemoryInfo>,
) -> StatusPointer {
    answer("CreateCpuMemoryInfo", || {
        let out = out.demand()?;
        out.set(give(MemoryInfo::new_cpu(allocator, kind)))
    })
}

/// Arguments that describe memory of any device.
pub(crate) extern "C" fn create_memory_info_v2(
    name: Text,
    device: c_int,
    vendor: u32,
    id: i32,
    device_memory: c_int,
    _alignment: usize,
    allocator: c_int,
    out: Out<*mut MemoryInfo>,
) -> StatusPointer {
    answer("CreateMemoryInfo_V2", || {
        let out = out.demand()?;
        let name = crate::failure::to_c_string(&name.read("name")?);
        out.set(give(MemoryInfo { name, allocator, id, kind: 0, device, vendor, device_memory }))
    })
}

pub(crate) extern "C" fn compare_memory_info(
    first: Handle<MemoryInfo>,
    second: Handle<MemoryInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("CompareMemoryInfo", || out.set(-c_int::from(first.get()? != second.get()?)))
}

pub(crate) extern "C" fn memory_info_get_name(
    info: Handle<MemoryInfo>,
    out: Out<*const c_char>,
) -> StatusPointer {
    answer("MemoryInfoGetName", || out.set(info.get()?.name.as_ptr()))
}

pub(crate) extern "C" fn memory_info_get_id(
    info: Handle<MemoryInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("MemoryInfoGetId", || out.set(info.get()?.id))
}

pub(crate) extern "C" fn memory_info_get_mem_type(
    info: Handle<MemoryInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("MemoryInfoGetMemType", || out.set(info.get()?.kind))
}

pub(crate) extern "C" fn memory_info_get_type(
    info: Handle<MemoryInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("MemoryInfoGetType", || out.set(info.get()?.allocator))
}

pub(crate) extern "C" fn memory_info_get_device_type(info: Handle<MemoryInfo>, out: Out<c_int>) {
    answer_or("MemoryInfoGetDeviceType", (), || out.set(info.get()?.device));
}

pub(crate) extern "C" fn memory_info_get_device_mem_type(info: Handle<MemoryInfo>) -> c_int {
    answer_or("MemoryInfoGetDeviceMemType", 0, || Ok(info.get()?.device_memory))
}

pub(crate) extern "C" fn memory_info_get_vendor_id(info: Handle<MemoryInfo>) -> u32 {
    answer_or("MemoryInfoGetVendorId", 0, || Ok(info.get()?.vendor))
}

pub(crate) extern "C" fn release_memory_info(info: Handle<MemoryInfo>) {
    release("ReleaseMemoryInfo", info);
}

pub(crate) extern "C" fn allocator_alloc(
    allocator: AllocatorHandle,
    bytes: usize,
    out: Out<*mut c_void>,
) -> StatusPointer {
    answer("AllocatorAlloc", || {
        let out = out.demand()?;
        out.set(allocator.demand()?.allocate(bytes)?)
    })
}

pub(crate) extern "C" fn allocator_free(
    allocator: AllocatorHandle,
    memory: *mut c_void,
) -> StatusPointer {
    answer("AllocatorFree", || allocator.demand()?.free(memory))
}

pub(crate) extern "C" fn allocator_get_info(
    allocator: AllocatorHandle,
    out: Out<*const MemoryInfo>,
) -> StatusPointer {
    answer("AllocatorGetInfo", || out.set(allocator.demand()?.info()))
}

pub(crate) extern "C" fn allocator_get_stats(
    allocator: AllocatorHandle,
    out: Out<*mut Pairs>,
) -> StatusPointer {
    answer("AllocatorGetStats", || {
        allocator.demand()?;
        let out = out.demand()?;
        out.set(give(Pairs::default()))
    })
}

pub(crate) extern "C" fn get_allocator_with_default_options(
    out: Out<AllocatorHandle>,
) -> StatusPointer {
    answer("GetAllocatorWithDefaultOptions", || out.set(AllocatorHandle::default_one()))
}

pub(crate) extern "C" fn create_allocator(
    session: Handle<Session>,
    info: Handle<MemoryInfo>,
    out: Out<*mut Allocator>,
) -> StatusPointer {
    answer("CreateAllocator", || {
        session.get()?;
        info.get()?.demand_cpu()?;
        let out = out.demand()?;
        out.set(Box::into_raw(Box::new(new_allocator())))
    })
}

pub(crate) extern "C" fn release_allocator(allocator: AllocatorHandle) {
    answer_or("ReleaseAllocator", (), || {
        if !allocator.0.is_null() && !ptr::eq(allocator.0, &raw const DEFAULT) {
            // SAFETY: the caller promises an allocator of `create_allocator`, and releases it once.
            drop(unsafe { Box::from_raw(allocator.0) });
        }
        Ok(())
    });
}
