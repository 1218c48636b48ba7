//! The symbols of libonnxruntime, for clients in C and other languages.

#![allow(unsafe_code)]

use std::ffi::c_int;

use sardonyx_capi::{ApiBase, ObjectPointer, StatusPointer};

/// Returns the start of the interface.
// SAFETY: the name is that of the C interface, and nothing else in the library has it.
#[unsafe(no_mangle)]
pub extern "C" fn OrtGetApiBase() -> *const ApiBase {
    sardonyx_capi::api_base()
}

/// Appends the execution provider of the CPU to the options of a session.
// SAFETY: the name is that of the C interface, and nothing else in the library has it.
#[unsafe(no_mangle)]
pub extern "C" fn OrtSessionOptionsAppendExecutionProvider_CPU(
    options: ObjectPointer,
    uses_arena: c_int,
) -> StatusPointer {
    sardonyx_capi::append_cpu(options, uses_arena)
}

#[cfg(all(feature = "symbol-versions", has_version_script))]
mod versions;
