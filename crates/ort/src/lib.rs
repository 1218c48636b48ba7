//! The behaviour of onnxruntime on Sardonyx, for all interfaces that replace it: the Python module,
//! and others for other languages.
//!
//! An interface converts objects of its language and calls this crate for all else: options with
//! their types and defaults ([`options`]), opening a model with external weights ([`Opening`]),
//! inputs and outputs in onnxruntime's terms ([`ports`]), bindings ([`Bindings`]), status codes
//! ([`Status`]), profiles ([`profile`]), execution providers ([`providers`]), and messages for
//! features that Sardonyx lacks ([`refused`]). Messages name no language.

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

/// Release of onnxruntime whose names and behaviour the crate implements.
pub const VERSION: &str = "1.31.1";

/// Vendor in the description of the execution provider.
pub const VENDOR: &str = "Sardonyx";

/// Version of a model that declares none.
pub const NO_MODEL_VERSION: i64 = i64::MAX;

/// Returns a description of the build: the releases of Sardonyx and of onnxruntime.
pub fn build_info() -> String {
    format!("Sardonyx {}, with the names of onnxruntime {VERSION}", env!("CARGO_PKG_VERSION"))
}
