//! External tests of this crate as one program, because each program of tests links the whole crate
//! once more.
#![allow(clippy::unwrap_used)]

mod agreement;
mod allocations;
mod channels;
mod collectives;
mod steps;
mod threads;
