//! ONNX in pure Rust: open a model, inspect it, run it.
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
//! - [`Model`] holds an ONNX model in memory. Opening maps the file and reads its structure, not
//!   its weights; saving writes every field back, those unknown to this release included.
//! - [`Session`] runs a model. Building it checks the model, converts it to the newest operator
//!   versions, plans memory and packs weights. Threads can share a session.
//! - [`Trainer`] runs the training steps that a model file describes and keeps their state. A model
//!   without training steps gets them from [`Model::add_training`]; see [`train`].
//! - [`Value`] is an input or output of a run: nearly always a [`Tensor`], sometimes a sequence, a
//!   map or an optional.
//! - [`Error`] has a message, the place of the fault and advice; [`Error::kind`] is what programs
//!   branch on.
//!
//! Everything else is in modules: [`io`] opens and saves files; [`check`] validates, [`convert`]
//! changes operator set versions, [`infer`] infers types and shapes, [`edit`] changes models and
//! [`inspect`] lists their content; [`text`] reads and prints ONNX text; [`train`] makes gradients
//! and training steps; [`ops`] describes operators and takes your own; [`value`] has the values
//! that are not tensors; [`run`] configures how sessions compute, and with the feature `device`
//! the module `device` configures where.
//!
//! # Features
//!
//! On by default are features for families of operators and formats. A program that runs models of
//! one kind leaves the code of others out with `default-features = false` and those features that
//! its models need: `sardonyx features MODEL` lists them, as does
//! [`Model::required_features`]. An operator or a format without its feature is an error that
//! names the feature.
//!
//! - `json`, `textproto`: models as protobuf JSON and protobuf text format.
//! - `npz`, `safetensors`: [`io::read_tensors`] and [`io::write_tensors`] of these formats.
//! - `ml`: operators of ai.onnx.ml, such as tree ensembles and support vector machines.
//! - `quantization`: operators on integers in place of floats, such as `QuantizeLinear`,
//!   `QLinearConv`, `MatMulInteger` and `MatMulNBits`.
//! - `recurrent`: `LSTM`, `GRU` and `RNN`.
//! - `signal`: `DFT`, `STFT` and `MelWeightMatrix`.
//! - `strings`: regular expressions, tokenizers, `StringNormalizer` and others.
//! - `training`: [`Trainer`], gradients and optimizers; it has `npz` and `safetensors` in it.
//! - `vision`: `Resize`, `GridSample`, `RoiAlign`, `NonMaxSuppression` and others.
//!
//! These are off by default:
//!
//! - `device`: the module `device`, `Model::shard`, `SessionBuilder::devices` and
//!   `TrainerBuilder::devices`: sessions and training on several devices, which are threads,
//!   processes or machines. It has `training` in it.
//! - `images`: decoders of BMP, JPEG, JPEG 2000, PNG, PNM, TIFF and WebP for the operator
//!   `ImageDecoder`, and `io::DecodedImage`, which decodes the same formats for inputs. It has
//!   `vision` in it. Without the feature models with that operator need
//!   [a decoder that the program supplies](SessionBuilder::image_decoder).
//! - `mpi`: devices that are processes of an MPI job, with the feature `device`. The system's MPI
//!   library is loaded at run time.
//! - `ndarray`: `from_array` and `as_array` of [`Tensor`] and its views, which convert from and to
//!   arrays of the crate `ndarray` 0.17 and copy no elements where the layout allows it.
//! - `num-complex`: `Complex<f32>` and `Complex<f64>` of the crate `num-complex` 0.4 as elements,
//!   with the layout of [`value::Complex64`] and [`value::Complex128`].
//! - `serde`: `serde::Serialize` for reports, with the keys that the command prints with `--json`:
//!   [`check::CheckReport`] and its findings, [`check::diff::ModelDiff`], [`check::ScanReport`],
//!   [`convert::ConvertReport`], [`edit::ExtractReport`], [`edit::InlineReport`],
//!   [`edit::StripReport`], [`train::GradientReport`], [`train::TrainingReport`],
//!   `device::ShardReport`, [`infer::InferredValue`], [`io::SaveReport`], [`text::ParseError`],
//!   [`text::LeftOut`], [`ops::RequiredFeature`] and [`ops::UnsupportedOperator`]. Likewise for
//!   [`Port`], [`Dim`], [`train::StateVariable`] and the structs of [`inspect`].
//! - `tracing`: spans of the crate `tracing` 0.1 with the target `sardonyx`: `open`, `plan` and
//!   `run` at the level DEBUG, `step` with its number and nodes at TRACE.
//!
//! # Stability
//!
//! Any release may change the exact text of messages, the order of operators that
//! [`Model::operators`] counts equally often, and the last bits of results. Results are equal for
//! any number of threads on one machine, but may differ between instruction sets. The crates named
//! `sardonyx-…` are internal parts of this one.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]
// A test reports a failure by a panic.
#![cfg_attr(test, allow(clippy::unwrap_used))]
// Parts that only trainers and some formats use.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

mod arrays;
mod beneath;
pub mod check;
mod compare;
pub mod convert;
mod cost;
mod custom;
#[cfg(feature = "device")]
pub mod device;
#[cfg(feature = "device")]
mod devices;
mod digest;
pub mod edit;
mod edit_error;
mod error;
mod external;
mod extract;
mod filling;
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
mod machine;
mod mapping;
mod message;
mod model;
mod nodes;
mod open;
pub mod ops;
mod outputs;
mod parts;
mod positions;
mod reduce;
mod results;
pub mod run;
mod runner;
mod save;
mod scan;
mod scores;
mod session;
mod simplify;
mod sniff;
mod spans;
mod stamp;
mod state;
mod stored;
mod tensors;
pub mod text;
mod text_parts;
#[doc(hidden)]
pub mod tool;
pub mod train;
#[cfg(feature = "training")]
mod trainer;
mod training;
mod unfinished;
pub mod value;
mod values;
mod verify;
mod versions;
mod whole;

pub use error::{Error, ErrorKind};
pub use load::OpenOptions;
pub use model::Model;
pub use outputs::Outputs;
pub use save::SaveOptions;
pub use session::{Session, SessionBuilder};
#[cfg(feature = "training")]
pub use trainer::{Trainer, TrainerBuilder};

#[doc(inline)]
pub use sardonyx_model::{Dim, Shape, Type};
#[doc(inline)]
pub use sardonyx_runtime::{Port, RunOptions, StopFlag};
#[doc(inline)]
pub use sardonyx_tensor::{DataType, Element, Tensor, TensorView, TensorViewMut, Value, ValueType};

/// Example of the README, so that the tests of the documentation compile it.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
