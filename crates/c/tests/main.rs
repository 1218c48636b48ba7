//! The functions of the header as a client in C calls them, and the header itself.

#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

// The symbols of the library.
extern crate sardonyx_c as _;

mod calls;
mod examples;
mod header;
