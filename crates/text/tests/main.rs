//! Integration tests of this crate, as one program: each program costs a link of the whole crate.
#![allow(clippy::unwrap_used)]

mod editor_words;
mod hostile;
mod round_trip;
