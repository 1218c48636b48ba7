//! Moving elements: permutations, slices, joins, look-ups and padding.
//!
//! The one idea: nearly all of these are reads through strides into a contiguous output
//! ([`copy_strided`]), and after merging dims that is rows to copy, to fill, or a transposition
//! done in tiles. Elements are only moved, so callers pick any plain type of the right width (`u8`,
//! `u16`, `u32`, `u64`, `u128`) for whatever the element really is.

mod gather;
mod join;
mod pad;
mod pick;
mod sequences;
mod strided;
mod triangle;

pub use gather::{
    IndexOutOfRange, Indices, ScatterInto, gather, gather_elements, gather_nd, scatter_elements,
    scatter_nd,
};
pub use join::concat;
pub use pad::{Pad, Padding, pad};
pub use pick::{NOWHERE, pick};
pub use sequences::{reverse_sequences, write_around};
pub use strided::{copy_between, copy_strided, fill};
pub use triangle::{one_hot, triangle};

/// A plain element that can be moved about.
pub trait Plain: Copy + Default + Send + Sync + 'static {}

impl<T: Copy + Default + Send + Sync + 'static> Plain for T {}
