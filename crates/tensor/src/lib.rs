//! Data of Sardonyx: element types, shapes, and n-dimensional arrays over owned or mapped bytes.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! A [`Tensor`] is a [`DataType`], dims and a reference to bytes, always dense and row-major.
//! Cloning it is cheap. The bytes may be in a vector, in an aligned allocation or in a mapped file
//! at an odd offset, so [`Tensor::as_slice`] may fail; [`Tensor::to_cow`] copies then, and counts
//! the copy ([`realigned_copies`]). Elements of less than one byte stay packed as in an ONNX file.
//!
//! ```
//! use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};
//! let t = Tensor::from_vec([2, 2], vec![1.0f32, 2.5, -3.0, 0.0])?;
//! assert_eq!(t.dims(), &[2, 2]);
//! assert_eq!(t.as_slice::<f32>()?[1], 2.5);
//! let i = cast(&t, DataType::Int64, CastOptions::default())?;
//! assert_eq!(i.to_vec::<i64>()?, [1, 2, -3, 0]);
//! # Ok::<(), sardonyx_tensor::TensorError>(())
//! ```
//!
//! The crate has no ONNX messages, graphs, operators or file I/O, and no arithmetic except
//! conversion between element types.
//!
//! Bytes are in host order. ONNX files are little-endian; on big-endian hosts the reader of a file
//! swaps bytes with [`swap_bytes`].

// Unsafe code is allowed here for three things, each behind a safe API: 64-byte aligned allocation
// (`buffer`), advice to the kernel about huge pages (`buffer`), and borrowing disjoint exclusive
// slices of one block (`arena`).
#![allow(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]
// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arena;
#[cfg(feature = "ndarray")]
mod arrays;
mod buffer;
mod compare;
#[cfg(feature = "num-complex")]
mod complex;
mod convert;
mod element;
mod error;
pub mod npy;
pub mod packed;
mod recycle;
pub mod shape;
mod small_float;
mod strings;
mod tensor;
mod text;
mod value;
mod value_compare;
mod view;

pub use arena::{Arena, ArenaError, ReadSlices, WriteSlices};
pub use buffer::{ALIGNMENT, AlignedBytes, Buffer, BufferName, Pages, SharedBytes};
pub use compare::{Distance, Mismatch, Tolerance, WorstElement};
pub use convert::{CastOptions, cast, cast_slices};
pub use element::{Bool8, Class, Complex64, Complex128, DataType, Element, swap_bytes};
pub use error::{TensorError, TensorErrorKind};
pub use half::{bf16, f16};
pub use recycle::{Recycler, emptied};
pub use shape::{Dims, Strides};
pub use small_float::{
    Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz, Float8e8m0, RoundMode, SmallFloat,
};
pub use strings::StringArray;
pub use tensor::{Storage, Tensor, realigned_copies};
pub use value::{Map, MapKey, Opaque, OpaqueType, Sequence, Sparse, Value, ValueType};
pub use value_compare::Distances;
pub use view::{TensorView, TensorViewMut, ViewData};
