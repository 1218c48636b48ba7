//! Saves models: chooses a storage for each value and replaces files atomically, so that readers
//! never see a partial file.
//!
//! `layout` assigns tensors to data files, `replace` changes the directory step by step, `copy`
//! copies ranges of mapped files.

mod copy;
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
use crate::form::ModelFormat;
use crate::model::Model;

/// Storage of tensor values in a saved model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Weights {
    /// Each value keeps its storage: in the model file, or in a data file. If the model is saved to
    /// another directory than that of its data files, values in data files are copied to a new data
    /// file in that directory.
    #[default]
    Keep,
    /// All values are stored in the model file.
    Inside,
    /// Values of at least [`SaveOptions::threshold`] bytes are stored in data files. Exceptions are
    /// strings, for which the format has no external storage, and sparse tensors, whose external
    /// values some readers do not load.
    Outside,
}

/// Distribution of tensors over data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// All tensors share one file.
    #[default]
    OneFile,
    /// Each tensor has a file of its own.
    PerTensor,
    /// A new file is started when the current one would exceed this size in bytes. Tensors are not
    /// split, so a larger tensor has a file of its own.
    Shards(u64),
}

/// Callback that receives the number of bytes written so far and in total.
pub(crate) type Progress = dyn Fn(u64, u64) + Send + Sync;

/// Options for saving a model.
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
    form: Option<ModelFormat>,
    progress: Option<Arc<Progress>>,
    /// Callback before every change on disk; an error makes that change fail. Tests use it to
    /// simulate a crash at any step.
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
    /// Creates the default options: values keep their storage, the model file is replaced
    /// atomically, nothing is flushed to disk.
    pub fn new() -> SaveOptions {
        SaveOptions::default()
    }

    /// Sets the storage of tensor values.
    pub fn weights(mut self, weights: Weights) -> SaveOptions {
        self.weights = weights;
        self
    }

    /// Sets the distribution of tensors over data files. The default is one file.
    pub fn layout(mut self, layout: Layout) -> SaveOptions {
        self.layout = layout;
        self
    }

    /// Sets the size in bytes from which a tensor is moved to a data file. The default is 1024, as
    /// in the reference implementation.
    pub fn threshold(mut self, bytes: u64) -> SaveOptions {
        self.threshold = bytes;
        self
    }

    /// Sets the alignment of tensors in data files, in bytes, so that a reader can map each tensor
    /// separately. The default is 64 KiB, which is a multiple of the page size of every system.
    /// Tensors that are smaller than the alignment are aligned to 4 KiB, or to `bytes` if that is
    /// less.
    pub fn alignment(mut self, bytes: u64) -> SaveOptions {
        self.alignment = bytes.max(1);
        self
    }

    /// Sets the name of the data file, relative to the directory of the model. If there are several
    /// data files, their names have a number or the name of the tensor in addition. The default is
    /// the name of the model file with `.data` appended.
    pub fn data_name(mut self, name: impl Into<String>) -> SaveOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets whether tensors in attributes are moved to data files too. Off by default: only
    /// initializers are moved, because not every runtime reads external attributes.
    pub fn attributes(mut self, attributes: bool) -> SaveOptions {
        self.attributes = attributes;
        self
    }

    /// Sets whether values in typed lists such as `float_data` are moved to data files too. They
    /// are read back as `raw_data`. Off by default: only `raw_data` is moved.
    pub fn typed_values(mut self, typed: bool) -> SaveOptions {
        self.typed = typed;
        self
    }

    /// Sets whether the model records the SHA-1 checksum of each data file. Off by default.
    pub fn checksum(mut self, checksum: bool) -> SaveOptions {
        self.checksum = checksum;
        self
    }

    /// Sets whether to flush all files to disk before returning, so that even a power failure
    /// leaves either the old model or the new one. Off by default.
    pub fn sync(mut self, sync: bool) -> SaveOptions {
        self.sync = sync;
        self
    }

    /// Sets whether the data files of a replaced model are removed even if the saved model was not
    /// read from the file that it replaces. By default such data files stay, and the report lists
    /// them. Data files that another model in the directory uses are never removed.
    pub fn replace(mut self, replace: bool) -> SaveOptions {
        self.replace = replace;
        self
    }

    /// Sets the format. By default the suffix of the file decides.
    pub fn form(mut self, form: ModelFormat) -> SaveOptions {
        self.form = Some(form);
        self
    }

    /// Sets a callback that receives the number of bytes written so far and in total, about once
    /// per MiB.
    pub fn progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> SaveOptions {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Saves a model to `path`. New files appear complete or not at all, and the model file comes
    /// last: after a crash at any moment, the directory holds the whole old model or the whole new
    /// one. If a model replaces the file that it was read from, data files that the model no longer
    /// uses are removed, unless another model in the directory uses them. Saving an unchanged model
    /// rewrites no data file.
    ///
    /// A model that was parsed from a text may have values in a file to which the text refers. That
    /// file is replaced only by a model in which the text still finds these values.
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

/// Result of saving a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveReport {
    /// Size of the model file in bytes.
    pub bytes: u64,
    /// Data files to which tensors were moved, new or reused. Data files of tensors that kept their
    /// storage are not listed.
    pub files: Vec<SavedFile>,
    /// Data files of the old model that were removed.
    pub removed: Vec<String>,
    /// Data files that the new model does not use, but another model in the directory does, so that
    /// they were not removed.
    pub shared: Vec<String>,
    /// Data files of the replaced model that were not removed, because the saved model was not read
    /// from the file that it replaces.
    pub left: Vec<String>,
    /// Descriptions of the content that the chosen format cannot represent.
    pub left_out: Vec<String>,
}

/// A data file of a saved model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedFile {
    /// Path of the data file, relative to the model's directory.
    pub location: String,
    /// Size of the data file in bytes.
    pub bytes: u64,
    /// Number of tensors in the data file.
    pub tensors: usize,
    /// Whether an identical data file existed and was reused.
    pub reused: bool,
}

impl SaveReport {
    /// Whether the model file exceeds 2 GiB, the limit of readers that use libprotobuf.
    pub fn exceeds_2_gib(&self) -> bool {
        self.bytes > i32::MAX as u64
    }
}

/// Makes an error of the kind [`ErrorKind::ExternalData`].
fn external_error(error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::ExternalData, error.to_string())
}
