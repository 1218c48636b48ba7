//! Opening the models of a directory: which file, and how its session is built.

use sardonyx::{Model, Session};

use crate::error::Error;
use crate::files::Files;

/// Options of opening a directory.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Model file, relative to the directory, or the variant of a name: `q4` means
    /// `onnx/model_q4.onnx`. By default a file without a variant is preferred.
    pub model: Option<String>,
    /// Number of threads; by default one for each core.
    pub threads: Option<usize>,
    /// Limit of memory in bytes for what runs take beside the weights, and for keys and values.
    pub memory_limit: Option<usize>,
    /// Maximum number of tokens of a text, for encoders. Longer texts are cut.
    pub max_length: Option<usize>,
}

impl LoadOptions {
    /// Creates the default options.
    pub fn new() -> LoadOptions {
        LoadOptions::default()
    }

    /// Opens a model file of the directory and builds its session.
    pub(crate) fn build_session(
        &self,
        files: &Files,
        name: &str,
    ) -> Result<(Model, Session), Error> {
        let model = Model::open(files.resolve(name)?)?;
        let mut builder = Session::builder(&model);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        let session = builder.build()?;
        Ok((model, session))
    }

    /// Chooses a model file of the directory: the one that the options name, or the first of
    /// `names` that exists without or, failing that, with a variant.
    ///
    /// # Errors
    ///
    /// If no file fits, or several variants do.
    pub(crate) fn choose_model(&self, files: &Files, names: &[&str]) -> Result<String, Error> {
        let models = files.list_models();
        if models.is_empty() {
            return Err(Error::new(
                sardonyx::ErrorKind::Io,
                "has no ONNX file, nor has its `onnx`",
            )
            .at(files.root())
            .with_help("directories of hubs have model.onnx or onnx/model.onnx"));
        }
        let stem = |file: &str| {
            let name = file.rsplit('/').next().unwrap_or(file);
            name.strip_suffix(".onnx").unwrap_or(name).to_string()
        };
        if let Some(wanted) = &self.model {
            let suffixed =
                |file: &String| names.iter().any(|name| stem(file) == format!("{name}_{wanted}"));
            let fits = |file: &&String| *file == wanted || stem(file) == *wanted || suffixed(file);
            return models.iter().find(fits).cloned().ok_or_else(|| {
                let message = format!("has no model file `{wanted}`");
                let listed = models[..models.len().min(20)].join(", ");
                Error::argument(message).at(files.root()).with_help(format!("there are: {listed}"))
            });
        }
        for name in names {
            if let Some(file) = models.iter().find(|file| stem(file) == *name) {
                return Ok(file.clone());
            }
        }
        // One model of any name, or variants of a known name alone.
        let variants: Vec<&String> = models
            .iter()
            .filter(|file| names.iter().any(|name| stem(file).starts_with(&format!("{name}_"))))
            .collect();
        match (models.as_slice(), variants.as_slice()) {
            ([only], _) => Ok(only.clone()),
            (_, [only]) => Ok((*only).clone()),
            _ => {
                let listed = models[..models.len().min(20)].join(", ");
                Err(Error::argument("has several models, and none is called model.onnx")
                    .at(files.root())
                    .with_help(format!("choose one with the option `model`: {listed}")))
            }
        }
    }
}
