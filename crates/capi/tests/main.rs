//! Calls of the table as a client in C makes them.

#![allow(unsafe_code)]

mod interface;

mod bindings;
mod containers;
mod damage;
mod editor;
mod options;
mod sessions;
mod table;
mod tensors;
