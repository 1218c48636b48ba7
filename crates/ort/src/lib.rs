//! The behaviour of onnxruntime on Sardonyx, for every interface that takes its place: the Python
//! module, and others for other languages.
//!
//! An interface converts objects of its language and calls this crate for all else: options with
//! their types and defaults ([`options`]), opening a model with weights from outside ([`Opening`]),
//! inputs and outputs in onnxruntime's terms ([`ports`]), bindings ([`Bindings`]), status codes
//! ([`Status`]), profiles ([`profile`]), execution providers ([`providers`]), and the messages for
//! what Sardonyx does not have ([`refused`]). Messages name no language.

mod bindings;
mod config;
mod error;
mod opening;
pub mod options;
pub mod ports;
pub mod profile;
pub mod providers;
pub mod refused;
mod seed;
mod status;

pub use bindings::{Bindings, BoundOutput, unknown_name};
pub use error::Error;
pub use opening::{Opened, Opening, Source};
pub use options::{RunOptions, SessionOptions};
pub use seed::{seed, set_seed};
pub use status::Status;

/// The release of onnxruntime whose names and behaviour these are.
pub const VERSION: &str = "1.31.1";

/// Maker of the execution provider, in its description.
pub const VENDOR: &str = "Sardonyx";

/// Version of a model that does not say one.
pub const NO_MODEL_VERSION: i64 = i64::MAX;

/// Text that describes the build: the releases of Sardonyx and of onnxruntime.
pub fn build_info() -> String {
    format!("Sardonyx {}, with the names of onnxruntime {VERSION}", env!("CARGO_PKG_VERSION"))
}
