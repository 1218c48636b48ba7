//! Sardonyx for C and C++: the functions of `include/sardonyx.h`, which the test of the header
//! writes from these sources.
//!
//! A function that can fail returns a null pointer for success, else an error that the caller
//! frees. A panic never leaves a function. Objects are freed by the function with their name, once;
//! a null pointer is ignored there and an error elsewhere.

// Functions have the names of C, and dereference pointers of callers.
#![allow(unsafe_code)]

mod error;
mod model;
mod pointers;
mod report;
mod session;
mod tensor;

use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use pointers::{Bytes, Owned};

static VERSION: LazyLock<CString> =
    LazyLock::new(|| pointers::to_c_string(env!("CARGO_PKG_VERSION")));

/// Returns the version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Frees a text that a function has allocated. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_text_free(text: Owned<c_char>) {
    pointers::free_text(text);
}

/// Frees bytes that a function has allocated. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_bytes_free(bytes: Bytes, count: usize) {
    bytes.free(count);
}
