//! Saving: where values go, and how a file is replaced so that no reader ever finds half of one.
//!
//! `layout` decides which tensor goes where, `replace` changes the directory step by step.

#[cfg(test)]
mod crash;
mod layout;
mod replace;

pub(crate) use layout::embed;
pub(crate) use replace::number_name;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::form::Form;
use crate::model::Model;

/// Where a saved model has the values of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Weights {
    /// Where they are: those inside stay inside, those in files beside the model stay there. If the
    /// model is saved to another directory than that of its data files, these values are copied
    /// into a new one beside it.
    #[default]
    Keep,
    /// All inside the model file.
    Inside,
    /// In files beside the model, as far as they reach [`SaveOptions::threshold`]. Strings cannot
    /// lie outside; sparse tensors stay inside, because not every reader would find them.
    Outside,
}

/// How many data files there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// One for all tensors.
    #[default]
    OneFile,
    /// One per tensor.
    PerTensor,
    /// As many as needed so that none is larger than this, in bytes. A tensor is never split, so
    /// one that is larger has a file to itself.
    Shards(u64),
}

/// Told how many bytes of how many are written.
pub(crate) type Progress = dyn Fn(u64, u64) + Send + Sync;

/// How to save a model.
///
/// ```
/// use sardonyx::{Model, SaveOptions};
/// use sardonyx::io::Weights;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = Model::open(path)?;
/// # let directory = std::env::temp_dir().join(format!("sardonyx-save-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
/// let report = SaveOptions::new()
///     .weights(Weights::Outside)
///     .save(&model, directory.join("digits.onnx"))?;
/// assert_eq!(report.files[0].location, "digits.onnx.data");
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), sardonyx::Error>(())
/// ```
#[derive(Clone)]
pub struct SaveOptions {
    weights: Weights,
    layout: Layout,
    threshold: u64,
    alignment: u64,
    name: Option<String>,
    attributes: bool,
    typed: bool,
    checksum: bool,
    sync: bool,
    replace: bool,
    form: Option<Form>,
    progress: Option<Arc<Progress>>,
    /// Called before every change of the disk; an error is that of the change. For tests of what a
    /// crash leaves behind.
    pub(crate) before_step: Option<Arc<replace::Hook>>,
}

impl Default for SaveOptions {
    fn default() -> SaveOptions {
        SaveOptions {
            weights: Weights::Keep,
            layout: Layout::OneFile,
            threshold: 1024,
            alignment: 64 << 10,
            name: None,
            attributes: false,
            typed: false,
            checksum: false,
            sync: false,
            replace: false,
            form: None,
            progress: None,
            before_step: None,
        }
    }
}

impl SaveOptions {
    /// The defaults: values stay where they are, the file is replaced as a whole, nothing waits for
    /// the disk.
    pub fn new() -> SaveOptions {
        SaveOptions::default()
    }

    /// Where the values of tensors go.
    pub fn weights(mut self, weights: Weights) -> SaveOptions {
        self.weights = weights;
        self
    }

    /// How many data files there are. The default is one.
    pub fn layout(mut self, layout: Layout) -> SaveOptions {
        self.layout = layout;
        self
    }

    /// Tensors of fewer bytes stay in the model. The default is 1024, as in the reference
    /// implementation.
    pub fn threshold(mut self, bytes: u64) -> SaveOptions {
        self.threshold = bytes;
        self
    }

    /// Offsets in data files are multiples of this, so that others can map each tensor for itself.
    /// The default is 64 KiB, which suits every system. Tensors smaller than that begin at
    /// multiples of 4 KiB, or of this if it is less.
    pub fn alignment(mut self, bytes: u64) -> SaveOptions {
        self.alignment = bytes.max(1);
        self
    }

    /// Name of the data file, relative to the model's directory; several files are numbered after
    /// it. The default is the model's name with `.data`.
    pub fn data_name(mut self, name: impl Into<String>) -> SaveOptions {
        self.name = Some(name.into());
        self
    }

    /// Whether tensors in attributes go outside too, not only initializers. Not every runtime reads
    /// that.
    pub fn attributes(mut self, attributes: bool) -> SaveOptions {
        self.attributes = attributes;
        self
    }

    /// Whether values in typed lists go outside too, not only those in `raw_data`. They come back
    /// as `raw_data`.
    pub fn typed_values(mut self, typed: bool) -> SaveOptions {
        self.typed = typed;
        self
    }

    /// Whether the model holds the SHA-1 of each data file.
    pub fn checksum(mut self, checksum: bool) -> SaveOptions {
        self.checksum = checksum;
        self
    }

    /// Whether to wait until everything has reached the disk, so that even a power failure leaves
    /// the old model or the new.
    pub fn sync(mut self, sync: bool) -> SaveOptions {
        self.sync = sync;
        self
    }

    /// Whether data files of a model that is replaced are removed even if it is another one than
    /// the model was read from. By default they stay, and the report names them. Those that a third
    /// model uses stay in any case.
    pub fn replace(mut self, replace: bool) -> SaveOptions {
        self.replace = replace;
        self
    }

    /// The serialisation. The default follows the suffix of the file.
    pub fn form(mut self, form: Form) -> SaveOptions {
        self.form = Some(form);
        self
    }

    /// Calls a function now and then with the number of bytes written and of all bytes.
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> SaveOptions {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Saves a model. The files appear complete or not at all, the model last; whatever happens,
    /// the directory holds the old model or the new one, whole. Where a model replaces the file
    /// that it was read from, data files that only the old one used are removed, except those that
    /// another model of the directory uses as well. Saving the same again changes nothing.
    ///
    /// A file with values of the model, to which the text that it was read from refers, is replaced
    /// only by a model in which the text finds them again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if a file cannot be written, [`ErrorKind::ExternalData`] if values that
    /// must be moved cannot be read.
    pub fn save(&self, model: &Model, path: impl AsRef<Path>) -> Result<SaveReport, Error> {
        replace::save(model, path.as_ref(), self)
    }
}

impl fmt::Debug for SaveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaveOptions")
            .field("weights", &self.weights)
            .field("layout", &self.layout)
            .field("threshold", &self.threshold)
            .field("alignment", &self.alignment)
            .finish_non_exhaustive()
    }
}

/// What saving did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveReport {
    /// Size of the model file.
    pub bytes: u64,
    /// The data files made for it, not those that it shared before.
    pub files: Vec<SavedFile>,
    /// Data files of the model before, now gone.
    pub removed: Vec<String>,
    /// Data files that only the model before used, and that stay because another model uses them.
    pub shared: Vec<String>,
    /// Data files of another model that was replaced, which stay.
    pub left: Vec<String>,
    /// What the chosen form cannot hold and what is therefore left out.
    pub left_out: Vec<String>,
}

/// A data file that belongs to a saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedFile {
    /// Location, relative to the model's directory.
    pub location: String,
    /// Size.
    pub bytes: u64,
    /// How many tensors are in it.
    pub tensors: usize,
    /// Whether it was there already, byte for byte.
    pub reused: bool,
}

impl SaveReport {
    /// Whether the model file is too large for readers that count in 31 bits, as all that use
    /// libprotobuf do.
    pub fn exceeds_2_gib(&self) -> bool {
        self.bytes > i32::MAX as u64
    }
}

fn external_error(error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::ExternalData, error.to_string())
}
