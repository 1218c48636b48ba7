//! Reads a model from a file, a stream or bytes. Every other module comes here for that.
//!
//! Reading has three steps. A [`Source`] holds the bytes, their serialisation and the location of
//! the data files. [`Source::to_binary`] converts any serialisation to binary protobuf.
//! [`read_graph`] decodes the protobuf and decides whether it is a model. Commands, scans, texts
//! that refer to models and stand-alone messages enter at different steps and handle a [`Refusal`]
//! in different ways.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sardonyx_model as graph;
use sardonyx_model::{ExternalData, ReadLimits};
use sardonyx_proto::{Limits, MessageType, ModelProto, SkimError, discard, skim};
use sardonyx_tensor::Buffer;
use sardonyx_text::{Diagnostic, Position};

use crate::check::Finding;
use crate::error::{Error, ErrorKind};
use crate::external::{DataFiles, DataOptions, DataResolver};
use crate::form::ModelFormat;
use crate::model::Model;
use crate::open::{
    Access, directory_error, display_path, io_error, open_file, read_file, read_stream,
};
use crate::positions::find_positions;
use crate::sniff::recognise;
use crate::spans;
use crate::stamp::{MappedFile, Stamp};

/// Time at which the files with a model's external data are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExternalFiles {
    /// Opens a data file when its values are first read, for instance by a session.
    #[default]
    Lazy,
    /// Opens all data files together with the model and checks every reference into them. With
    /// [`Access::Read`] the files are read into memory, so later changes to them have no effect.
    Now,
    /// Opens no data file: reading an external value is an error.
    Never,
}

/// Options for opening a model.
///
/// ```
/// use sardonyx::OpenOptions;
/// use sardonyx::io::Access;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = OpenOptions::new().access(Access::Read).open(path)?;
/// assert_eq!(model.ir_version(), Some(10));
/// # Ok::<(), sardonyx::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    access: Access,
    external: ExternalFiles,
    refuse_links: bool,
    verify: bool,
    limits: ReadLimits,
    max_bytes: Option<u64>,
    skip_payloads: bool,
    form: Option<ModelFormat>,
    lenient: bool,
    directory: Option<PathBuf>,
    /// Access to data files, if it differs from `access`.
    data_access: Option<Access>,
    resolver: Option<Arc<dyn DataResolver>>,
}

impl OpenOptions {
    /// Creates the default options: files are mapped, data files are opened on first use.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets whether files are memory-mapped, as by default, or read.
    pub fn access(mut self, access: Access) -> OpenOptions {
        self.access = access;
        self
    }

    /// Sets the time at which data files are opened. The default is [`ExternalFiles::Lazy`].
    pub fn external(mut self, external: ExternalFiles) -> OpenOptions {
        self.external = external;
        self
    }

    /// Sets whether symlinks to data files are followed. By default a symlink is followed if its
    /// target lies in the model's directory or, if the model file is a symlink too, in the
    /// directory of the model file's target. The Hugging Face cache consists of such links.
    /// Symlinks in the path of the model's directory are followed in any case: that path is the
    /// caller's.
    pub fn follow_links(mut self, follow: bool) -> OpenOptions {
        self.refuse_links = !follow;
        self
    }

    /// Sets whether a data file is compared with the SHA-1 checksum in the model when it is opened.
    /// Off by default.
    pub fn verify_checksums(mut self, verify: bool) -> OpenOptions {
        self.verify = verify;
        self
    }

    /// Sets the limits on nesting depth and on the memory of the model's structure.
    pub fn limits(mut self, limits: ReadLimits) -> OpenOptions {
        self.limits = limits;
        self
    }

    /// Sets the maximum number of bytes that are read from one file or stream into memory.
    /// Unlimited by default. Mapped files have no limit, as they take no memory.
    pub fn max_bytes(mut self, bytes: u64) -> OpenOptions {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets whether values of at least 1 KiB are skipped while a binary model is read. Off by
    /// default. The structure of a large file or stream then fits in little memory. Such a model
    /// can be inspected, but not run or saved. Mapped files are not affected, because their values
    /// take no memory before they are used.
    pub fn skip_payloads(mut self, skip: bool) -> OpenOptions {
        self.skip_payloads = skip;
        self
    }

    /// Sets the format. By default the suffix of the file decides, then its first bytes.
    pub fn form(mut self, form: ModelFormat) -> OpenOptions {
        self.form = Some(form);
        self
    }

    /// Sets whether a message without a graph, functions and training information is accepted, for
    /// programs that fill it in later. Off by default: such a message is an error, because a
    /// truncated file looks like this.
    pub fn lenient(mut self, lenient: bool) -> OpenOptions {
        self.lenient = lenient;
        self
    }

    /// Sets the directory that holds the data files. The default is the directory of the model
    /// file.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> OpenOptions {
        self.directory = Some(directory.into());
        self
    }

    /// Sets a callback that finds the data files, in place of a directory.
    pub fn resolver(mut self, resolver: Arc<dyn DataResolver>) -> OpenOptions {
        self.resolver = Some(resolver);
        self
    }

    /// Sets whether data files are mapped or read. The default is the access to the model file.
    pub(crate) fn data_access(mut self, access: Access) -> OpenOptions {
        self.data_access = Some(access);
        self
    }

    /// Opens a model file. Data files are expected in the directory of the model file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is not an ONNX
    /// model, [`ErrorKind::ExternalData`] if data files are opened at once and one does not fit the
    /// model.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        self.load(path).map(|loaded| loaded.model)
    }

    /// Reads a model from bytes, which the model keeps. External data needs a
    /// [`directory`](OpenOptions::directory) or a [`resolver`](OpenOptions::resolver).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_bytes(&self, bytes: impl Into<Buffer>) -> Result<Model, Error> {
        self.load_bytes(bytes).map(|loaded| loaded.model)
    }

    /// Reads a model from a stream to the end of the stream, which must come within
    /// [`max_bytes`](OpenOptions::max_bytes).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_reader(&self, reader: impl Read) -> Result<Model, Error> {
        self.load_reader(reader).map(|loaded| loaded.model)
    }

    /// Opens a model file like [`open`](OpenOptions::open), and also returns the warnings about and
    /// the text of a model in ONNX text.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Loaded, Error> {
        let path = path.as_ref();
        let _span = spans::enter_open(|| path.display().to_string());
        let form = self.form.or_else(|| ModelFormat::from_path(path));
        let is_skimmed = self.skip_payloads
            && self.access == Access::Read
            && form.unwrap_or_default() == ModelFormat::Binary;
        let mut loaded = if is_skimmed {
            self.skim_file(path)?
        } else {
            let source = self.open_source(path)?;
            self.load_source(source).map_err(|error| add_path(path, error))?
        };
        loaded.model.path = fs::canonicalize(path).ok();
        Ok(loaded)
    }

    /// Reads a model from bytes like [`from_bytes`](OpenOptions::from_bytes), and also returns the
    /// warnings about and the text of a model in ONNX text.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load_bytes(&self, bytes: impl Into<Buffer>) -> Result<Loaded, Error> {
        let _span = spans::enter_open(|| "bytes".to_string());
        self.load_source(self.source_from_bytes(bytes.into())?)
    }

    /// Reads a model from a stream like [`from_reader`](OpenOptions::from_reader), and also returns
    /// the warnings about and the text of a model in ONNX text.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load_reader(&self, reader: impl Read) -> Result<Loaded, Error> {
        let _span = spans::enter_open(|| "stream".to_string());
        let mut stream: &mut dyn BufRead = &mut BufReader::new(reader);
        if self.skip_payloads {
            // Text has no payloads to skip.
            let start = stream.fill_buf().map_err(read_error)?;
            if self.form.unwrap_or_else(|| ModelFormat::from_bytes(start)) == ModelFormat::Binary {
                let graph = self.skim(&mut stream, discard)?;
                return self.attach_data_files(graph, self.find_data_files(refuse_data_files)?);
            }
        }
        self.load_source(self.source_from_reader(stream)?)
    }

    /// Reads or maps a model file without decoding it. Data files are expected in the directory of
    /// the file.
    pub(crate) fn open_source(&self, path: &Path) -> Result<Source, Error> {
        let (bytes, stamp) = open_file(path, self.access, self.max_bytes)?;
        let form = self.form.or_else(|| ModelFormat::from_path(path));
        let data =
            self.find_data_files(|| DataFiles::from_model_path(path, self.make_data_options()))?;
        Ok(Source { stamp, ..Source::new(bytes, form, data) })
    }

    /// Makes the source of a model that is in memory as bytes.
    pub(crate) fn source_from_bytes(&self, bytes: Buffer) -> Result<Source, Error> {
        Ok(Source::new(bytes, self.form, self.find_data_files(refuse_data_files)?))
    }

    /// Reads the bytes of a model from a stream to the end of the stream, which must come within
    /// [`max_bytes`](OpenOptions::max_bytes).
    pub(crate) fn source_from_reader(&self, mut reader: impl Read) -> Result<Source, Error> {
        let bytes = read_stream(&mut reader, 0, self.max_bytes).map_err(read_error)?;
        self.source_from_bytes(bytes)
    }

    /// Decodes a binary model file and skips the payloads of large tensors.
    fn skim_file(&self, path: &Path) -> Result<Loaded, Error> {
        let file = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = file.map_err(|error| io_error("cannot read", path, error))?;
        if metadata.is_dir() {
            return Err(directory_error(path));
        }
        let mut file = BufReader::new(file);
        let graph = self.skim(&mut file, |file, bytes| {
            if metadata.is_file() {
                seek_over(file, metadata.len(), bytes)
            } else {
                discard(file, bytes)
            }
        });
        let graph = graph.map_err(|error| add_path(path, error))?;
        let data =
            self.find_data_files(|| DataFiles::from_model_path(path, self.make_data_options()))?;
        self.attach_data_files(graph, data).map_err(|error| add_path(path, error))
    }

    /// Returns the options with which data files are opened.
    fn make_data_options(&self) -> DataOptions {
        DataOptions {
            access: self.data_access.unwrap_or(self.access),
            whole: self.external == ExternalFiles::Now,
            refuse_links: self.refuse_links,
            verify: self.verify,
        }
    }

    /// Decodes a binary model from a stream; `skip` passes over each payload of at least
    /// [`SKIPPED_BYTES`] bytes.
    fn skim<R: Read>(
        &self,
        stream: &mut R,
        skip: impl FnMut(&mut R, u64) -> io::Result<()>,
    ) -> Result<graph::Model, Error> {
        let max_bytes = self.max_bytes.unwrap_or(u64::MAX);
        let limits = Limits { depth: self.limits.depth };
        let skimmed = skim::<ModelProto, R>(stream, skip, SKIPPED_BYTES, max_bytes, limits);
        let skimmed = skimmed.map_err(|error| match error {
            SkimError::Io(error) => read_error(error),
            SkimError::Wire(error) => Error::new(
                ErrorKind::Format,
                format!("the model is damaged, or not an ONNX model: {}", error.kind()),
            )
            .with_place(format!("byte {}", error.offset())),
            SkimError::TooLarge(limit) => Error::new(
                ErrorKind::Io,
                format!("the model's structure exceeds the limit of {limit} bytes"),
            ),
        })?;
        check_content(graph::Model::read_skimmed(skimmed, self.limits), self.lenient)
            .map_err(|refusal| refusal.explain(&[]))
    }

    /// Decodes the model of a source, and keeps its mapped file with its stamp, to detect later
    /// changes and to copy from it.
    fn load_source(&self, source: Source) -> Result<Loaded, Error> {
        let mapped = source
            .stamp
            .clone()
            .map(|stamp| MappedFile { bytes: source.bytes.clone(), stamp: Arc::new(stamp) });
        let mut loaded = self.read_source(source)?;
        loaded.model.mapped = mapped;
        Ok(loaded)
    }

    /// Decodes the model of a source in any serialisation.
    fn read_source(&self, source: Source) -> Result<Loaded, Error> {
        if source.form == ModelFormat::Notation {
            let text = source.bytes.clone();
            let parsed = crate::text::parse(source.bytes, self.limits, &source.data)?;
            let loaded = self.attach_data_files(parsed.model, source.data)?;
            return Ok(Loaded { warnings: parsed.warnings, text: Some(text), ..loaded });
        }
        let binary = source.to_binary(self.limits)?;
        let graph = read_graph(binary.clone(), self.limits, self.lenient)
            .map_err(|refusal| refusal.explain(binary.as_slice()))?;
        let mut loaded = self.attach_data_files(graph, source.data)?;
        loaded.model.file = (source.form == ModelFormat::Binary).then(graph::SourceId::first);
        Ok(loaded)
    }

    /// Returns the access to the data files: none, by the resolver, in the directory of the
    /// options, or the result of `beside`.
    fn find_data_files(&self, beside: impl FnOnce() -> DataFiles) -> Result<DataFiles, Error> {
        Ok(match (&self.resolver, &self.directory) {
            _ if self.external == ExternalFiles::Never => DataFiles::unavailable(NEVER),
            (Some(resolver), _) => {
                DataFiles::from_resolver(Arc::clone(resolver), self.make_data_options())
            }
            (None, Some(directory)) => {
                DataFiles::from_directory(directory, self.make_data_options())
                    .map_err(|error| io_error("cannot use the directory", directory, error))?
            }
            (None, None) => beside(),
        })
    }

    /// Combines a graph with its data files; checks all external data for [`ExternalFiles::Now`].
    fn attach_data_files(&self, graph: graph::Model, data: DataFiles) -> Result<Loaded, Error> {
        let model = Model { shares: self.access == Access::Share, ..Model::with_data(graph, data) };
        if self.external == ExternalFiles::Now {
            model.check_external_data()?;
        }
        Ok(Loaded { model, warnings: Vec::new(), text: None })
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("access", &self.access)
            .field("external", &self.external)
            .field("follow_links", &!self.refuse_links)
            .field("verify", &self.verify)
            .field("limits", &self.limits)
            .field("lenient", &self.lenient)
            .finish_non_exhaustive()
    }
}

/// Minimum size in bytes of a tensor payload that [`OpenOptions::skip_payloads`] skips. Smaller
/// payloads may be shapes that inference reads.
const SKIPPED_BYTES: u64 = 1024;

/// Skips `bytes` bytes of a file that has `len` bytes; fails if the file has fewer bytes left.
fn seek_over(file: &mut BufReader<File>, len: u64, bytes: u64) -> io::Result<()> {
    let end = file.stream_position()?.checked_add(bytes);
    let step = end.filter(|end| *end <= len).and_then(|_| i64::try_from(bytes).ok());
    match step {
        Some(step) => file.seek_relative(step),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file ends inside a tensor value of {bytes} bytes"),
        )),
    }
}

/// Reason for missing data files; completes "values are in the file …, and".
const FROM_BYTES: &str = "the model was read from bytes without a directory";
/// Reason for missing data files under [`ExternalFiles::Never`]; completes "values are in the file
/// …, and".
const NEVER: &str = "the model was opened without its data files";

/// Returns data files of which none can be opened, because the model has no directory.
fn refuse_data_files() -> DataFiles {
    DataFiles::unavailable(FROM_BYTES)
}

/// Makes the error about a stream from which a model cannot be read.
fn read_error(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot read the model: {error}")).with_source(error)
}

/// Prepends the path of a model file to the place of an error.
fn add_path(path: &Path, error: Error) -> Error {
    let place = match error.place() {
        Some(place) => format!("{}, {place}", display_path(path)),
        None => display_path(path),
    };
    error.with_place(place)
}

/// A model and details of its source that the model does not keep.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// Loaded model.
    pub model: Model,
    /// Warnings of the parser about probable mistakes in a text in the notation.
    pub warnings: Vec<Diagnostic>,
    /// ONNX text from which the model was parsed; `None` for other serialisations.
    pub text: Option<Buffer>,
}

impl Loaded {
    /// Returns the line and column of each finding about the model, which must be unchanged since
    /// it was parsed. `None` for findings about the model as a whole, and for all findings if the
    /// model was not parsed from ONNX text.
    pub fn positions(&self, findings: &[Finding]) -> Vec<Option<Position>> {
        match &self.text {
            Some(text) => find_positions(&self.model, text, findings),
            None => findings.iter().map(|_| None).collect(),
        }
    }
}

/// Undecoded bytes of a model, with their serialisation and the access to data files.
pub(crate) struct Source {
    pub(crate) bytes: Buffer,
    /// Serialisation of `bytes`: by request, else by the suffix, else by the first bytes.
    pub(crate) form: ModelFormat,
    /// Data files of the model.
    pub(crate) data: DataFiles,
    /// Stamp of the mapped file, to detect later changes; `None` if the bytes are not mapped.
    pub(crate) stamp: Option<Stamp>,
}

impl Source {
    fn new(bytes: Buffer, form: Option<ModelFormat>, data: DataFiles) -> Source {
        let form = form.unwrap_or_else(|| ModelFormat::from_bytes(bytes.as_slice()));
        Source { bytes, form, data, stamp: None }
    }

    /// Returns the model as binary protobuf; converts a model in another serialisation.
    pub(crate) fn to_binary(&self, limits: ReadLimits) -> Result<Buffer, Error> {
        match self.form {
            ModelFormat::Binary => Ok(self.bytes.clone()),
            text => text.read(&self.bytes, limits, &self.data).map(Buffer::from_vec),
        }
    }
}

/// Reason for which bytes are not a model.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The input has no bytes.
    Empty,
    /// The protobuf message has no graph, no functions and no training information.
    NoGraph,
    /// The bytes are not a protobuf message of the type `ModelProto`.
    Damaged(graph::Error),
}

/// Decodes a binary `ModelProto`. Unless `lenient`, a message without a graph, functions and
/// training information is refused.
pub(crate) fn read_graph(
    binary: Buffer,
    limits: ReadLimits,
    lenient: bool,
) -> Result<graph::Model, Refusal> {
    if binary.is_empty() && !lenient {
        return Err(Refusal::Empty);
    }
    check_content(graph::Model::read_with(binary, limits), lenient)
}

/// Refuses an empty model unless `lenient`. Nearly every short run of bytes decodes as a protobuf
/// message of unknown fields, so a decoded message is not a model yet.
fn check_content(
    read: Result<graph::Model, graph::Error>,
    lenient: bool,
) -> Result<graph::Model, Refusal> {
    let model = read.map_err(Refusal::Damaged)?;
    let is_empty =
        model.main.is_none() && model.functions.is_empty() && model.training_info.is_empty();
    if is_empty && !lenient { Err(Refusal::NoGraph) } else { Ok(model) }
}

impl Refusal {
    /// Converts the refusal into an error for users. If `source` begins with the signature of
    /// another file format, the error names that format.
    fn explain(self, source: &[u8]) -> Error {
        let wrong = match self {
            Refusal::Empty => {
                return Error::new(ErrorKind::Format, "the file is empty").with_help(INTERRUPTED);
            }
            Refusal::NoGraph => Error::new(ErrorKind::Format, NO_GRAPH),
            Refusal::Damaged(error) => {
                let place = match error.place() {
                    "" => format!("byte {}", error.offset()),
                    place => format!("byte {}, field {place}", error.offset()),
                };
                let reason = error.kind();
                if let graph::ErrorKind::TooMuchStructure { .. } = error.kind() {
                    let message = format!("the model is rejected: {reason}");
                    return Error::new(ErrorKind::Format, message)
                        .with_place(place)
                        .with_help("the file may be crafted to exhaust memory; if it is not, raise the limit on the structure of models (command: --max-structure; Rust: ReadLimits::memory)")
                        .with_source(error);
                }
                let message = format!("the model is damaged, or not an ONNX model: {reason}");
                Error::new(ErrorKind::Format, message).with_place(place).with_source(error)
            }
        };
        match recognise(source) {
            Some((what, advice)) => {
                Error::new(ErrorKind::Format, format!("the file is {what}, not an ONNX model"))
                    .with_help(advice)
            }
            None => {
                wrong.with_help(format!("{INTERRUPTED}; compare the file's size with the original"))
            }
        }
    }
}

/// Help for an empty or damaged model file.
const INTERRUPTED: &str = "check whether the download or export was interrupted";
/// Message for a [`Refusal::NoGraph`].
const NO_GRAPH: &str = "the file has no graph: it is truncated or not an ONNX model";

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Empty => f.write_str("the file is empty"),
            Refusal::NoGraph => f.write_str(NO_GRAPH),
            Refusal::Damaged(error) => error.fmt(f),
        }
    }
}

/// Reads a protobuf message from a file, in the serialisation of the file name's suffix, and
/// returns the message as binary protobuf. `what` names the message in errors.
pub(crate) fn read_message<M: MessageType>(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let file = read_file(path, Access::Read, None)?;
    let form = ModelFormat::from_path(path).unwrap_or_default();
    let read = form.read_message::<M>(file.as_slice(), ReadLimits::default(), what);
    read.map_err(|error| add_path(path, error))
}

/// Reads up to `count` bytes from the start of a file. Returns `None` for a pipe, which could not
/// be read a second time, and for a file that cannot be read.
pub(crate) fn read_start(path: &Path, count: u64) -> Option<Vec<u8>> {
    if !path.is_file() {
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(count).read_to_end(&mut start).ok()?;
    Some(start)
}

/// Model file that is read only for its references to other files, without their content.
pub(crate) enum ReferringFile {
    /// A model in a serialisation of protobuf.
    Model(graph::Model),
    /// A model in ONNX text, and the locations of the files that hold its values.
    Text(graph::Model, BTreeSet<String>),
    /// ONNX text with syntax errors.
    BrokenText(Buffer),
}

/// Reads the references of a model file to other files; `None` if the file is not a model or cannot
/// be read.
pub(crate) fn read_references(path: &Path) -> Option<ReferringFile> {
    // Opening a pipe would block.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let form = ModelFormat::from_path(path).unwrap_or_default();
    let options = OpenOptions::new().form(form).external(ExternalFiles::Never);
    let source = options.open_source(path).ok()?;
    if form == ModelFormat::Notation {
        let named = RecordedFiles::default();
        let text = source.bytes;
        return Some(match crate::text::parse(text.clone(), options.limits, &named) {
            Ok(parsed) => {
                let files = named.0.into_inner().unwrap_or_else(PoisonError::into_inner);
                ReferringFile::Text(parsed.model, files)
            }
            Err(_) => ReferringFile::BrokenText(text),
        });
    }
    let binary = source.to_binary(options.limits).ok()?;
    read_graph(binary, options.limits, true).ok().map(ReferringFile::Model)
}

/// Source of external data that records the files to which an ONNX text refers, and returns empty
/// values.
#[derive(Default)]
struct RecordedFiles(Mutex<BTreeSet<String>>);

impl ExternalData for RecordedFiles {
    fn load(&self, location: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(location.to_string());
        Ok(Buffer::empty())
    }
}
