//! The library for its test, which opens it as a client does.

#![allow(unsafe_code)]

// The symbols are found by name.
#[allow(unreachable_pub)]
#[path = "../src/lib.rs"]
mod library;
#[cfg(has_version_script)]
#[path = "../src/versions.rs"]
mod versions;
