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
//! # Features
//!
//! With `images` sessions decode images for the operator `ImageDecoder`: BMP, JPEG, JPEG 2000, PNG,
//! PNM, TIFF and WebP. Without it such models need
//! [a decoder of the program](SessionBuilder::image_decoder). `DecodedImage` decodes the same
//! formats for inputs.
//!
//! # What is not promised
//!
//! The exact text of messages, the order of operators in [`Model::operators`] among equals, and the
//! last bits of results: they are the same for every number of threads on one machine, but may
//! differ between instruction sets and releases. The other crates named `sardonyx-…` are parts of
//! this one and may change with any release.

#![deny(missing_docs)]
// In a test, a panic is the report.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod beneath;
pub mod check;
pub mod convert;
pub mod cost;
mod custom;
pub mod devices;
pub mod diff;
mod difference;
mod digest;
mod edit;
mod error;
mod external;
mod form;
pub mod functions;
mod given;
mod glob;
#[cfg(feature = "images")]
mod images;
mod indices;
pub mod infer;
pub mod inline;
mod inspect;
mod large_pages;
mod load;
mod mapping;
pub mod message;
mod model;
mod nodes;
mod open;
pub mod ops;
mod outputs;
mod positions;
mod results;
mod run;
mod save;
mod scan;
mod scores;
mod session;
mod sniff;
mod stamp;
mod stored;
mod tensors;
pub mod text;
mod trainer;
pub mod training;
mod unfinished;
mod values;
mod whole;

pub use custom::CustomOperator;
pub use devices::{DeviceOptions, DeviceSession};
pub use difference::Difference;
pub use edit::parse_version;
pub use error::{Error, ErrorKind};
pub use external::{DataAccess, DataResolver, Links, open_data_file};
pub use form::Form;
pub use given::InitializerInfo;
pub use glob::Glob;
#[cfg(feature = "images")]
pub use images::{DecodeLimits, DecodedImage, Images};
pub use inspect::{
    DeviceConfiguration, ExternalFile, FunctionInfo, OperatorCount, OperatorSet, Totals,
    format_version,
};
pub use large_pages::LargePages;
pub use load::{ExternalFiles, Loaded, OpenOptions};
pub use model::Model;
pub use nodes::{NodeInfo, NodeValue, ValueSource};
pub use open::{Access, io_reason};
pub use outputs::Outputs;
pub use results::{Edit, InvalidResult, JobKind, NewError, NewErrors};
pub use sardonyx_passes::{Eliminated, Fusion, NodePath, Part, PathNode, Upgrade};
pub use sardonyx_runtime::{
    CompileReport, EncodedImage, ImageDecoder, NodeError, NodeInput, OperandDetails, OperatorCall,
    OperatorError, Optimization, PixelFormat, Port, Precision, RunDetails, RunOptions, StepDetails,
    StepEvent, StepInfo, StopFlag, StopReason, Stopped, UnsupportedOperator, keep_panic_places,
    rewrites,
};
pub use save::{Layout, SaveOptions, SaveReport, SavedFile, Weights};
pub use scan::{
    ScanFacts, ScanFinding, ScanOptions, ScanReport, ScanSeverity, ScannedDomain, ScannedFile,
    scan, scan_bytes, scan_reader,
};
pub use scores::ScoreOperator;
pub use session::{Session, SessionBuilder};
pub use tensors::{Role, Storage, StoredTensor};
pub use trainer::{DataPosition, StateVariable, Trainer, TrainerBuilder, TrainingEntry};
pub use values::{read_value, write_value};
pub use whole::WholeFile;

pub use sardonyx_proto::{Encoded, suggest};

pub use sardonyx_formats::{npz, safetensors};
pub use sardonyx_model::{Dim, ReadLimits, Shape, TensorType, Type};
pub use sardonyx_passes::{NEWEST_IR_VERSION, StripOptions, StripReport};
pub use sardonyx_tensor::{
    Bool8, Buffer, CastOptions, Class, Complex64, Complex128, DataType, Distance, Distances,
    Element, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz, Float8e8m0, Map, MapKey,
    Mismatch, Opaque, OpaqueType, Sequence, Sparse, StringArray, Tensor, TensorError, TensorView,
    TensorViewMut, Tolerance, Value, ValueType, ViewData, WorstElement, bf16, cast, f16, npy,
    swap_bytes,
};
