//! Opening a model like onnxruntime: with weights, files and sizes that the caller passes
//! separately.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use sardonyx::edit::{SimplifyLevel, SimplifyOptions};
use sardonyx::tool::{ModelExt, NEWEST_IR_VERSION};
use sardonyx::value::Buffer;
use sardonyx::{ErrorKind, Model, OpenOptions, SaveOptions, Tensor};

use crate::error::Error;
use crate::options::{GivenInitializer, SessionOptions};
use crate::ports;
use crate::status::Status;

/// Source of a model.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file.
    Path(PathBuf),
    /// Bytes of the file.
    Bytes(Buffer),
}

impl Source {
    /// Opens the model.
    ///
    /// # Errors
    ///
    /// The errors of [`OpenOptions::open`] and [`OpenOptions::from_bytes`].
    pub fn open(&self, options: &OpenOptions) -> Result<Model, sardonyx::Error> {
        match self {
            Source::Path(path) => options.open(path),
            Source::Bytes(bytes) => options.from_bytes(bytes.clone()),
        }
    }

    /// Whether the source is empty bytes.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Source::Bytes(bytes) if bytes.is_empty())
    }
}

/// Model that is open, before the caller's weights replace its own.
///
/// The interface converts the values that [`Opening::list_replaced`] returns and passes them to
/// [`Opening::replace`].
#[derive(Debug)]
pub struct Opening<'o, V> {
    model: Model,
    source: &'o Source,
    options: &'o SessionOptions<V>,
}

/// Open model with the weights of the caller, and the settings of its session.
#[derive(Debug)]
pub struct Opened {
    /// Model, whose structure is in memory of its own.
    pub model: Model,
    /// Number of threads; `None` for the default.
    pub threads: Option<usize>,
    /// Sizes of inputs that the model leaves open, by name.
    pub sizes: Vec<(String, usize)>,
    /// Whether sizes were fixed by the denotation of their axis.
    pub has_denoted_sizes: bool,
    /// Seed of random operators.
    pub seed: Option<u64>,
}

impl<'o, V> Opening<'o, V> {
    /// Opens a model.
    ///
    /// # Errors
    ///
    /// If the model cannot be read, or its IR version is unknown.
    pub fn start(source: &'o Source, options: &'o SessionOptions<V>) -> Result<Self, Error> {
        let mut open = OpenOptions::new();
        if !options.files.is_empty() {
            let files: HashMap<String, Buffer> = options.files.iter().cloned().collect();
            open = open.resolver(Arc::new(files));
        }
        let model = source.open(&open).map_err(|error| of_model(&error, source))?;
        demand_known_version(&model)?;
        Ok(Opening { model, source, options })
    }

    /// Returns the values that replace initializers of the model.
    ///
    /// # Errors
    ///
    /// If a value was added for an initializer in a data file, and the model has none of that name.
    pub fn list_replaced(&self) -> Result<Vec<&'o GivenInitializer<V>>, Error> {
        let mut wanted = Vec::new();
        for given in &self.options.initializers {
            let name = &given.name;
            let found = self.model.initializer(name);
            if given.must_be_external && !found.as_ref().is_some_and(|found| found.is_external) {
                let what = match found {
                    None => format!("the model has no initializer '{name}'"),
                    Some(_) => {
                        format!("the values of the initializer '{name}' are in no data file")
                    }
                };
                let help = "use add_initializer, which replaces any one";
                return Err(Error::new(Status::Fail, ErrorKind::Argument, what).with_help(help));
            }
            if found.is_some() {
                wanted.push(given);
            }
        }
        Ok(wanted)
    }

    /// Replaces an initializer.
    ///
    /// # Errors
    ///
    /// If the value has another type or shape than the initializer.
    pub fn replace(&mut self, name: &str, value: &Tensor) -> Result<(), Error> {
        let set = self.model.set_initializer(name, value);
        set.map_err(|error| of_model(&error, self.source))
    }

    /// Fixes sizes and finds data files.
    ///
    /// # Errors
    ///
    /// If the directory of data files does not exist, memory cannot be allocated, or the simplified
    /// model cannot be made or written.
    pub fn finish(self) -> Result<Opened, Error> {
        let Opening { mut model, source, options } = self;
        model.declare_dictionary_rows();
        for (denotation, size) in &options.denoted {
            model.fix_denoted_dims(denotation, *size);
        }
        let is_bytes = matches!(source, Source::Bytes(_));
        if is_bytes && options.files.is_empty() && !model.external_files().is_empty() {
            let directory = options.data_directory().map_or(Path::new("."), Path::new);
            model.set_data_directory(directory).map_err(|error| of_model(&error, source))?;
        }
        if let Some(path) = options.optimized_model() {
            write_simplified(&model, &path).map_err(|error| of_model(&error, source))?;
        }
        // A session reads the declarations of its model throughout its life.
        let model = model.with_own_structure().map_err(|error| of_model(&error, source))?;
        let names = ports::size_names(&model.inputs());
        let sizes = options.sizes.iter().filter(|(name, _)| names.contains(name));
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Opened {
            threads: options.threads().map(|threads| threads.min(processors)),
            sizes: sizes.cloned().collect(),
            has_denoted_sizes: !options.denoted.is_empty(),
            seed: crate::seed(),
            model,
        })
    }
}

/// Simplifies a model at its own operator set versions, and writes the result.
fn write_simplified(model: &Model, path: &Path) -> Result<(), sardonyx::Error> {
    let options = SimplifyOptions::new().level(SimplifyLevel::Close);
    let (simplified, _) = model.simplify(&options).map_err(sardonyx::Error::from)?;
    SaveOptions::new().save(&simplified, path).map(drop)
}

/// Converts an error of opening a model or of creating a session.
fn of_model(error: &sardonyx::Error, source: &Source) -> Error {
    Error::from_sardonyx(Status::of_model(error, source), error)
}

/// Refuses a model with an unknown IR version.
fn demand_known_version(model: &Model) -> Result<(), Error> {
    let Some(version) = model.ir_version().filter(|version| *version > NEWEST_IR_VERSION) else {
        return Ok(());
    };
    let what = format!(
        "the model has IR version {version}; the newest known version is {NEWEST_IR_VERSION}"
    );
    let help = "update Sardonyx, or export the model for an older IR version";
    Err(Error::new(Status::Fail, ErrorKind::Unsupported, what).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::{RunOptions, Session};

    const TEXT: &str = "<ir_version: 8, opset_import: [\"\": 17]>
        g (float[N] x) => (float[N] y)
        <float[2] w = [\"location\": \"w.bin\", \"length\": \"8\"], float[2] v = {10, 20}>
        { t = Mul (x, w) y = Add (t, v) }";

    type Options = SessionOptions<Vec<f32>>;

    fn floats(numbers: &[f32]) -> Tensor {
        Tensor::from_vec([numbers.len()], numbers.to_vec()).unwrap()
    }

    fn bytes() -> Source {
        Source::Bytes(Model::from_text(TEXT).unwrap().to_bytes().into())
    }

    fn open_source(source: &Source, options: &Options) -> Result<Opened, Error> {
        let mut opening = Opening::start(source, options)?;
        for given in opening.list_replaced()? {
            opening.replace(&given.name, &floats(&given.value))?;
        }
        opening.finish()
    }

    fn run(options: &Options) -> Result<Vec<f32>, Error> {
        let model = open_source(&bytes(), options)?.model;
        let session = Session::new(&model).map_err(|error| of_model(&error, &bytes()))?;
        let outputs = session.run([("x", floats(&[1.0, 1.0]))], &RunOptions::default()).unwrap();
        Ok(outputs.tensor("y").unwrap().to_vec().unwrap())
    }

    #[test]
    fn weights_replace_those_of_the_model() {
        let mut options = Options::default();
        options.add_initializer("w".into(), vec![5.0, 6.0]).unwrap();
        options.add_initializer("nothing".into(), vec![1.0]).unwrap();
        assert_eq!(run(&options).unwrap(), [15.0, 26.0]);
        options.add_initializer("v".into(), vec![1.0, 2.0]).unwrap();
        assert_eq!(run(&options).unwrap(), [6.0, 8.0]);

        let mut options = Options::default();
        let content = [1f32, 2.0].map(f32::to_le_bytes).concat();
        options.add_file("w.bin".into(), content.into());
        assert_eq!(run(&options).unwrap(), [11.0, 22.0]);
    }

    #[test]
    fn weights_that_do_not_fit_are_refused() {
        for (name, value, words) in [
            ("v", vec![1.0, 2.0], "the values of the initializer 'v' are in no data file"),
            ("q", vec![1.0, 2.0], "the model has no initializer 'q'"),
            ("w", vec![1.0], "the initializer 'w' is float[2], not float[1]"),
        ] {
            let mut options = Options::default();
            options.add_external_initializers(vec![name.into()], vec![value]).unwrap();
            let error = run(&options).unwrap_err();
            assert_eq!((error.status, &*error.message), (Status::Fail, words));
        }
    }

    #[test]
    fn data_files_of_bytes_are_looked_for_in_a_directory() {
        let mut options = Options::default();
        options.values.add_entry(crate::options::DATA_DIRECTORY_KEY.into(), "/nowhere".into());
        let error = run(&options).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
    }

    #[test]
    fn the_simplified_model_is_written() {
        let path = std::env::temp_dir().join(format!("simplified-{}.onnx", std::process::id()));
        let text = TEXT.replace("t = Mul (x, w)", "i = Identity (x) t = Mul (i, v)");
        let source = Source::Bytes(Model::from_text(&text).unwrap().to_bytes().into());
        let mut options = Options::default();
        let given = crate::options::OptionValue::Text(path.clone().into());
        options.values.set(crate::options::OPTIMIZED_MODEL, given).unwrap();
        open_source(&source, &options).unwrap();
        let written = Model::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((written.node_count(), written.opsets()[0].version), (2, 17));
        assert_eq!(written.inputs()[0].to_string(), "x: float[N]");
    }

    #[test]
    fn sizes_of_other_names_are_ignored() {
        let mut options = Options::default();
        options.fix_size("N".into(), 2);
        options.fix_size("M".into(), 3);
        options
            .values
            .set(crate::options::THREADS, crate::options::OptionValue::Int(1 << 20))
            .unwrap();
        let found = open_source(&bytes(), &options).unwrap();
        assert_eq!(found.sizes, [("N".to_string(), 2)]);
        assert!(found.threads.is_some_and(|threads| threads < 1 << 20));
    }

    #[test]
    fn a_newer_version_of_the_format_is_refused() {
        let text = TEXT.replace("ir_version: 8", "ir_version: 77");
        let source = Source::Bytes(Model::from_text(&text).unwrap().to_bytes().into());
        let error = open_source(&source, &Options::default()).unwrap_err();
        assert_eq!((error.status, error.kind), (Status::Fail, ErrorKind::Unsupported));
        assert!(error.message.contains("IR version 77"), "{error}");
    }
}
