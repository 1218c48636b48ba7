//! Files: how models are opened and saved, data files beside them, and files of tensors and images.
//!
//! [`OpenOptions`](crate::OpenOptions) and [`SaveOptions`](crate::SaveOptions) take the choices of
//! this module. A program that keeps data elsewhere than in files, for example encrypted or in a
//! remote store, implements [`DataResolver`].

#[doc(inline)]
pub use crate::arrays::{TensorFormat, read_tensors, write_tensors};
#[doc(inline)]
pub use crate::external::DataResolver;
#[doc(inline)]
pub use crate::form::Form;
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
