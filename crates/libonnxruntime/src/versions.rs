//! The symbols with the version that they have in each release of onnxruntime.
//!
//! A client that was linked with a release looks up that version alone. Each symbol jumps to a
//! function that is not exported, so that it is that of this library also where another
//! libonnxruntime is loaded.

use std::ffi::c_int;

use sardonyx_capi::{ApiBase, ObjectPointer, StatusPointer};

extern "C" fn find_base() -> *const ApiBase {
    sardonyx_capi::api_base()
}

extern "C" fn append_cpu(options: ObjectPointer, uses_arena: c_int) -> StatusPointer {
    sardonyx_capi::append_cpu(options, uses_arena)
}

include!(concat!(env!("OUT_DIR"), "/versions.rs"));
