//! Integration tests of the command in one program, so that the crate is linked only once.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod cat;
mod command;
#[cfg(unix)]
mod device_processes;
#[cfg(unix)]
mod docs;
mod edits;
mod engine;
mod expect;
mod externalize;
mod features;
mod filling;
mod graph;
mod hash;
mod help;
mod info;
mod json;
mod json_page;
mod ls;
mod machine;
mod models;
mod ops;
mod pack;
#[cfg(unix)]
mod panic_abort;
mod phrases;
mod save;
mod scan;
mod sequences;
mod set;
mod strip;
mod support;
mod train;
mod training;
