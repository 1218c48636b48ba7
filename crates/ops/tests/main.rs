//! Tests of this crate's public interface, as one program: each further file would be linked with
//! the whole crate again.
#![allow(clippy::unwrap_used)]

mod boundaries;
mod crossings;
mod history;
mod inference;
mod schemas;
