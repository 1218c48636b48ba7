//! Calls of the table as a client in C makes them.

#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod interface;

mod bindings;
mod clients;
mod containers;
mod damage;
mod editor;
mod options;
mod sessions;
mod table;
mod tensors;
