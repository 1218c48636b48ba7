//! Arguments that name a model: its path and the limits for opening it.

use std::path::{Path, PathBuf};

use sardonyx::io::ReadLimits;
use sardonyx::tool::Loaded;
use sardonyx::{Model, OpenOptions};

use crate::failure::Failure;

/// Argument for the model that a command reads.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct ModelArg {
    /// ONNX file, binary or text, or - for stdin
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

impl ModelArg {
    /// Opens the model with default options.
    pub(crate) fn open(&self) -> Result<Model, Failure> {
        self.open_with(OpenOptions::new())
    }

    /// Opens the model with `options` and the limits of the command line.
    pub(crate) fn open_with(&self, options: OpenOptions) -> Result<Model, Failure> {
        self.load(options).map(|loaded| loaded.model)
    }

    /// Opens the model. If the file is a text, also returns its source and the warnings of the
    /// parser.
    pub(crate) fn load(&self, options: OpenOptions) -> Result<Loaded, Failure> {
        self.limits.load(&self.path, options)
    }

    /// Whether the model is read from stdin.
    pub(crate) fn is_stdin(&self) -> bool {
        is_stdin(&self.path)
    }

    /// Returns the path of the model for messages and JSON answers.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Limits for opening a model.
#[derive(clap::Args, Clone)]
pub(crate) struct Limits {
    /// Maximum memory for nodes, values and attributes, in addition to 12 times the file size
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = crate::human::parse_bytes)]
    pub(crate) max_structure: u64,
}

impl Limits {
    /// Opens a model file, or reads the model on stdin.
    pub(crate) fn load(&self, path: &Path, options: OpenOptions) -> Result<Loaded, Failure> {
        let limits = ReadLimits { memory: self.max_structure, ..ReadLimits::default() };
        let options = options.limits(limits);
        if is_stdin(path) {
            options
                .load_reader(std::io::stdin().lock())
                .map_err(|error| Failure::from(error).at("standard input"))
        } else {
            Ok(options.load(path)?)
        }
    }
}

/// Whether a path is `-`, which stands for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
