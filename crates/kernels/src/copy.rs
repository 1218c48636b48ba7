//! Copies of elements: permutations, slices, joins, look-ups and padding.
//!
//! Nearly all of them read through strides into a contiguous output ([`copy_strided`]), which after
//! merging dims means copied rows, filled rows, or a transposition in tiles. Elements are only
//! moved, so callers pick any plain type of the right width (`u8`, `u16`, `u32`, `u64`, `u128`) for
//! the actual type.

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
pub use pick::{NOWHERE, PickDims, pick};
pub use sequences::{RingDims, reverse_sequences, write_around};
pub use strided::{StridedMut, StridedRef, copy_between, copy_strided, fill};
pub use triangle::{MatrixDims, one_hot, triangle};

/// Plain element that can be copied bit by bit.
pub trait Plain: Copy + Default + Send + Sync + 'static {}

impl<T: Copy + Default + Send + Sync + 'static> Plain for T {}
