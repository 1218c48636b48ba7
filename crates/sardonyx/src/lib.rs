//! ONNX in pure Rust: open a model, look at it, run it.
//!
//! ```
//! use sardonyx::{Model, RunOptions, Session, Tensor};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
//! let model = Model::open(path)?;
//! let session = Session::new(&model)?;
//! let image = Tensor::from_vec([1, 1, 8, 8], vec![0.5f32; 64])?;
//! let outputs = session.run([("image", image)], &RunOptions::default())?;
//! assert_eq!(outputs.tensor("probabilities")?.dims(), &[1, 10]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Model`] is a file in memory. Opening maps it and reads its structure, not its weights;
//!   saving writes back everything that was read, whether this release knows it or not.
//! - [`Session`] is a model made ready to run: checked, converted to the newest operators, planned,
//!   its weights packed. It can be shared between threads.
//! - [`Trainer`] is a model that says how it is trained, made ready for that.
//! - [`Value`] is what goes in and comes out: nearly always a [`Tensor`], sometimes a sequence, a
//!   map or an optional.
//! - [`Error`] says what went wrong, where, and what to do about it; [`Error::kind`] is for
//!   programs.
//!
//! The rest is in modules: [`io`] for files, [`check`], [`convert`], [`infer`] and [`edit`] for
//! jobs on models, [`inspect`] for what is in a model, [`text`] for the notation, [`train`] for
//! gradients and training, [`ops`] for operators, [`value`] for values other than tensors, [`run`]
//! and [`device`] for how and where sessions compute.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `images`: decoders of BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP for the operator
//!   `ImageDecoder`, and `io::DecodedImage`, which decodes the same formats for inputs. Without the
//!   feature models with that operator need
//!   [a decoder of the program](SessionBuilder::image_decoder).
//! - `mpi`: devices that are processes of an MPI job. The library of the system is opened at run
//!   time.
//! - `ndarray`: `Tensor::from_array` and `as_array`, likewise of views, for arrays of the crate
//!   `ndarray` 0.17. Elements are borrowed or taken over where their layout allows.
//! - `num-complex`: `Complex<f32>` and `Complex<f64>` of the crate `num-complex` 0.4 as elements,
//!   with the layout of [`value::Complex64`] and [`value::Complex128`].
//! - `serde`: `serde::Serialize` for reports that the command prints with `--json`, with the keys
//!   of these answers: [`check::CheckReport`] and its findings, [`check::ScanReport`],
//!   [`convert::ConvertReport`], [`edit::InlineReport`], [`edit::StripReport`],
//!   [`train::GradientReport`], [`train::TrainingReport`], [`device::ShardReport`],
//!   [`infer::InferredValue`], [`io::SaveReport`], [`text::ParseError`], [`text::LeftOut`],
//!   [`ops::UnsupportedOperator`]. Likewise for [`Port`], [`Dim`], [`train::StateVariable`] and the
//!   structs of [`inspect`].
//! - `tracing`: spans of the crate `tracing` 0.1 with the target `sardonyx`: `open`, `plan` and
//!   `run` at the level DEBUG, `step` with its number and nodes at TRACE.
//!
//! # What is not promised
//!
//! The exact text of messages, the order of operators in [`Model::operators`] among equals, and the
//! last bits of results: they are the same for every number of threads on one machine, but may
//! differ between instruction sets and releases. The other crates named `sardonyx-…` are parts of
//! this one and may change with any release.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arrays;
mod beneath;
pub mod check;
pub mod convert;
mod cost;
mod custom;
pub mod device;
mod devices;
mod diff;
mod difference;
mod digest;
pub mod edit;
mod error;
mod external;
mod form;
mod functions;
mod given;
mod glob;
#[cfg(feature = "images")]
mod images;
mod indices;
pub mod infer;
mod inference;
mod inline;
pub mod inspect;
pub mod io;
#[cfg(feature = "serde")]
mod json_form;
mod large_pages;
mod load;
mod mapping;
mod message;
mod model;
mod nodes;
mod open;
pub mod ops;
mod outputs;
mod positions;
mod results;
pub mod run;
mod runner;
mod save;
mod scan;
mod scores;
mod session;
mod sniff;
mod spans;
mod stamp;
mod stored;
mod tensors;
pub mod text;
mod text_parts;
#[doc(hidden)]
pub mod tool;
pub mod train;
mod trainer;
mod training;
mod unfinished;
pub mod value;
mod values;
mod versions;
mod whole;

pub use error::{Error, ErrorKind};
pub use load::OpenOptions;
pub use model::Model;
pub use outputs::Outputs;
pub use save::SaveOptions;
pub use session::{Session, SessionBuilder};
pub use trainer::{Trainer, TrainerBuilder};

#[doc(inline)]
pub use sardonyx_model::{Dim, Shape, Type};
#[doc(inline)]
pub use sardonyx_runtime::{Port, RunOptions, StopFlag};
#[doc(inline)]
pub use sardonyx_tensor::{DataType, Element, Tensor, TensorView, TensorViewMut, Value, ValueType};
