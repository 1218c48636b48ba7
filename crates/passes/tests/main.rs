//! The tests of this crate that see it from outside, as one program: each file of its own would be
//! linked with the whole crate once more.
#![allow(clippy::unwrap_used)]

mod results;
mod scopes;
mod sizes;
