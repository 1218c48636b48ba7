//! The C interface of onnxruntime on Sardonyx: `OrtGetApiBase` and the table of functions that it
//! leads to.
//!
//! Every function of the table exists: it follows the C header, or returns a status with the
//! code `NOT_IMPLEMENTED` that names it. [`ENTRIES`] lists them. A panic never leaves a function,
//! and in debug builds a pointer to an object that was released, or to one of another type, is an
//! error.
//!
//! The crate `sardonyx-libonnxruntime` gives it the symbols that clients in C look up, and
//! `ort-sardonyx` hands the table to the crate `ort`.

mod arenas;
mod binding;
mod clock;
mod editor;
mod environment;
mod failure;
mod handles;
mod maps;
mod memory;
mod options;
mod pairs;
mod pointers;
mod providers;
mod run;
mod session;
mod strings;
mod table;
mod trace;
mod types;
mod values;

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::sync::LazyLock;

pub use table::{ENTRIES, ENTRY_COUNT, EntryInfo};

/// Start of the interface, which `OrtGetApiBase` returns and the C header declares as `OrtApiBase`.
#[repr(C)]
#[derive(Debug)]
pub struct ApiBase {
    /// Returns the table of a version; null for a version that is newer than the newest known.
    pub get_api: extern "C" fn(u32) -> *const (),
    /// Returns the release of onnxruntime whose interface this is.
    pub get_version: extern "C" fn() -> *const c_char,
}

static BASE: ApiBase = ApiBase { get_api, get_version };

/// Returns the start of the interface.
pub fn api_base() -> &'static ApiBase {
    &BASE
}

/// Newest version of the table.
pub const NEWEST_VERSION: u32 = table::NEWEST_VERSION;

/// Returns the number of functions in the table of a version; 0 for an unknown version. Versions
/// before 17 have the functions of 17.
pub fn entry_count(version: u32) -> usize {
    if !(1..=NEWEST_VERSION).contains(&version) {
        return 0;
    }
    ENTRIES.iter().filter(|entry| entry.since <= version.max(17)).count()
}

extern "C" fn get_api(version: u32) -> *const () {
    if entry_count(version) == 0 {
        eprintln!(
            "[sardonyx] error: the client asks for version {version} of the interface of \
             onnxruntime; the newest known version is {NEWEST_VERSION}: update Sardonyx"
        );
        return ptr::null();
    }
    table::TABLE.as_ptr().cast()
}

/// A release of onnxruntime, as clients refuse a library that is older than their header.
static VERSION: LazyLock<CString> = LazyLock::new(|| failure::to_c_string(sardonyx_ort::VERSION));

extern "C" fn get_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Object of the interface, as C code holds it.
pub type ObjectPointer = *mut std::ffi::c_void;

/// Result of most functions: null for success, else an object `OrtStatus`.
pub type StatusPointer = *mut std::ffi::c_void;

/// Appends the execution provider of the CPU to the options of a session, for the function of the
/// interface that is not in the table.
pub extern "C" fn append_cpu(options: ObjectPointer, _uses_arena: c_int) -> StatusPointer {
    let options = handles::Handle::<options::SessionOptions>::new(options.cast());
    let name = "OrtSessionOptionsAppendExecutionProvider_CPU";
    failure::answer(name, || options.get().map(|_| ())).cast()
}
