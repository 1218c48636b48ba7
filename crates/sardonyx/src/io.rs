//! Reads and writes files: choices for opening and saving models, external data files, and files of
//! tensors, values and images.
//!
//! [`OpenOptions`](crate::OpenOptions) and [`SaveOptions`](crate::SaveOptions) take the choices of
//! this module. A program that has external data in another place than files, for example
//! encrypted or in a remote store, implements [`DataResolver`].

#[doc(inline)]
pub use crate::arrays::{TensorFormat, read_tensors, write_tensors};
#[doc(inline)]
pub use crate::external::DataResolver;
#[doc(inline)]
pub use crate::form::ModelFormat;
#[cfg(feature = "images")]
#[doc(inline)]
pub use crate::images::{DecodeLimits, DecodedImage};
#[doc(inline)]
pub use crate::load::ExternalFiles;
#[doc(inline)]
pub use crate::open::Access;
#[doc(inline)]
pub use crate::save::{Layout, SaveReport, SavedFile, Weights};
#[doc(inline)]
pub use crate::values::{read_value, write_value};
#[doc(inline)]
pub use sardonyx_model::ReadLimits;
