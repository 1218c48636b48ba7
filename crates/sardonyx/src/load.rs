//! From a file, a stream or bytes to a model: the only place where that happens.
//!
//! There are three steps, for everything that reads models. A [`Source`] is the bytes, their
//! serialisation and the place of the data files. [`Source::binary`] brings every serialisation to
//! the binary one. [`read_graph`] reads that one and judges whether it is a model. Commands, scans,
//! texts that refer to models and messages that stand alone differ in where they begin and in what
//! they do with a [`Refusal`].

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
use crate::form::Form;
use crate::model::Model;
use crate::open::{Access, directory_given, io_error, open_file, read_file, read_stream, shown};
use crate::positions::positions;
use crate::sniff::recognise;
use crate::spans;
use crate::stamp::Stamp;

/// When the files are opened that hold a model's external data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ExternalFiles {
    /// When something asks for the values, such as a session.
    #[default]
    Lazy,
    /// At once, and every reference into them is checked. With [`Access::Read`] they are read
    /// whole, so that nothing that happens to them later matters.
    Now,
    /// Never: whatever asks for the values gets an error.
    Never,
}

/// How to open a model.
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
    form: Option<Form>,
    lenient: bool,
    directory: Option<PathBuf>,
    /// How data files are opened, if not like the model.
    data_access: Option<Access>,
    resolver: Option<Arc<dyn DataResolver>>,
}

impl OpenOptions {
    /// The defaults: files are mapped, data files opened when needed.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether files are mapped or read.
    pub fn access(mut self, access: Access) -> OpenOptions {
        self.access = access;
        self
    }

    /// When data files are opened.
    pub fn external(mut self, external: ExternalFiles) -> OpenOptions {
        self.external = external;
        self
    }

    /// Whether a symbolic link may lead to a data file: by default, if its target lies in the
    /// directory of the model, or in the directory of the real model file if the model is a link
    /// itself. The cache of Hugging Face is built of such links. With `false`, no link is followed.
    pub fn follow_links(mut self, follow: bool) -> OpenOptions {
        self.refuse_links = !follow;
        self
    }

    /// Whether data files are compared with the SHA-1 that the model gives for them, when they are
    /// opened.
    pub fn verify_checksums(mut self, verify: bool) -> OpenOptions {
        self.verify = verify;
        self
    }

    /// What reading may cost: depth of nesting and number of messages.
    pub fn limits(mut self, limits: ReadLimits) -> OpenOptions {
        self.limits = limits;
        self
    }

    /// The most bytes that are read from a file or stream into memory. Mapping is not limited, it
    /// takes none.
    pub fn max_bytes(mut self, bytes: u64) -> OpenOptions {
        self.max_bytes = Some(bytes);
        self
    }

    /// Whether values of 1 KiB and more are passed over where a binary model is read, not mapped:
    /// its structure then takes little memory, whatever the size of the file or stream. Such a
    /// model can be looked at, but not run or saved. A mapped file is not affected: its values cost
    /// nothing until they are used.
    pub fn skip_payloads(mut self, skip: bool) -> OpenOptions {
        self.skip_payloads = skip;
        self
    }

    /// The serialisation. The default follows the suffix of the file and the first bytes.
    pub fn form(mut self, form: Form) -> OpenOptions {
        self.form = Some(form);
        self
    }

    /// Whether a message of a model is taken that says nothing: without a graph and functions, or
    /// without any bytes. Otherwise it is refused, as what is left of a file that was cut off. Such
    /// a message is for programs that complete it.
    pub fn lenient(mut self, lenient: bool) -> OpenOptions {
        self.lenient = lenient;
        self
    }

    /// The directory, instead of that of the model file, in which data files are looked for.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> OpenOptions {
        self.directory = Some(directory.into());
        self
    }

    /// Finds data files, instead of looking into a directory.
    pub fn resolver(mut self, resolver: Arc<dyn DataResolver>) -> OpenOptions {
        self.resolver = Some(resolver);
        self
    }

    /// How data files are opened, if not like the model.
    pub(crate) fn data_access(mut self, access: Access) -> OpenOptions {
        self.data_access = Some(access);
        self
    }

    /// Opens a model file. Files that hold its external data are looked for beside it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is no ONNX model,
    /// [`ErrorKind::ExternalData`] if data files are opened at once and one is not as the model
    /// says.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        self.load(path).map(|loaded| loaded.model)
    }

    /// Reads a model from bytes, which it keeps. External data is found only with
    /// [`directory`](OpenOptions::directory) or [`resolver`](OpenOptions::resolver).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_bytes(&self, bytes: impl Into<Buffer>) -> Result<Model, Error> {
        self.load_bytes(bytes).map(|loaded| loaded.model)
    }

    /// Reads a model from a stream, to its end, or to [`max_bytes`](OpenOptions::max_bytes).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_reader(&self, reader: impl Read) -> Result<Model, Error> {
        self.load_reader(reader).map(|loaded| loaded.model)
    }

    /// The same as [`open`](OpenOptions::open), with what is known beyond the model.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Loaded, Error> {
        let path = path.as_ref();
        let _span = spans::enter_open(|| path.display().to_string());
        let form = self.form.or_else(|| Form::of_path(path));
        let is_skimmed = self.skip_payloads
            && self.access == Access::Read
            && form.unwrap_or_default() == Form::Binary;
        let mut loaded = if is_skimmed {
            self.skim_file(path)?
        } else {
            let source = self.source(path)?;
            self.finish(source).map_err(|error| within(path, error))?
        };
        loaded.model.path = fs::canonicalize(path).ok();
        Ok(loaded)
    }

    /// The same as [`from_bytes`](OpenOptions::from_bytes), with what is known beyond the model.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load_bytes(&self, bytes: impl Into<Buffer>) -> Result<Loaded, Error> {
        let _span = spans::enter_open(|| "bytes".to_string());
        self.finish(self.source_of_bytes(bytes.into())?)
    }

    /// The same as [`from_reader`](OpenOptions::from_reader), with what is known beyond the model.
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    #[doc(hidden)]
    pub fn load_reader(&self, reader: impl Read) -> Result<Loaded, Error> {
        let _span = spans::enter_open(|| "stream".to_string());
        let mut stream: &mut dyn BufRead = &mut BufReader::new(reader);
        if self.skip_payloads {
            // Text is read whole: it has no payloads that could be passed over.
            let start = stream.fill_buf().map_err(unreadable)?;
            if self.form.unwrap_or_else(|| Form::of_bytes(start)) == Form::Binary {
                let graph = self.skim(&mut stream, discard)?;
                return self.with_data(graph, self.data(from_bytes)?);
            }
        }
        self.finish(self.source_of_reader(stream)?)
    }

    /// A file, read or mapped.
    pub(crate) fn source(&self, path: &Path) -> Result<Source, Error> {
        let (bytes, stamp) = open_file(path, self.access, self.max_bytes)?;
        let form = self.form.or_else(|| Form::of_path(path));
        let data = self.data(|| DataFiles::beside(path, self.data_options()))?;
        Ok(Source { stamp, ..Source::new(bytes, form, data) })
    }

    /// Bytes in memory.
    pub(crate) fn source_of_bytes(&self, bytes: Buffer) -> Result<Source, Error> {
        Ok(Source::new(bytes, self.form, self.data(from_bytes)?))
    }

    /// A stream, read to its end.
    pub(crate) fn source_of_reader(&self, mut reader: impl Read) -> Result<Source, Error> {
        let bytes = read_stream(&mut reader, 0, self.max_bytes).map_err(unreadable)?;
        self.source_of_bytes(bytes)
    }

    fn skim_file(&self, path: &Path) -> Result<Loaded, Error> {
        let failed = |error: io::Error| io_error("cannot read", path, error);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(directory_given(path));
        }
        let mut file = BufReader::new(file);
        let skip = |file: &mut BufReader<File>, bytes| {
            if metadata.is_file() {
                seek_over(file, metadata.len(), bytes)
            } else {
                discard(file, bytes)
            }
        };
        let graph = self.skim(&mut file, skip).map_err(|error| within(path, error))?;
        let data = self.data(|| DataFiles::beside(path, self.data_options()))?;
        self.with_data(graph, data).map_err(|error| within(path, error))
    }

    fn data_options(&self) -> DataOptions {
        DataOptions {
            access: self.data_access.unwrap_or(self.access),
            whole: self.external == ExternalFiles::Now,
            refuse_links: self.refuse_links,
            verify: self.verify,
        }
    }

    fn skim<R: Read>(
        &self,
        stream: &mut R,
        skip: impl FnMut(&mut R, u64) -> io::Result<()>,
    ) -> Result<graph::Model, Error> {
        let max_bytes = self.max_bytes.unwrap_or(u64::MAX);
        let limits = Limits { depth: self.limits.depth };
        let skimmed = skim::<ModelProto, R>(stream, skip, SKIPPED_BYTES, max_bytes, limits);
        let skimmed = skimmed.map_err(|error| match error {
            SkimError::Io(error) => unreadable(error),
            SkimError::Wire(error) => Error::new(
                ErrorKind::Format,
                format!("this is not an ONNX model, or a damaged one: {}", error.kind()),
            )
            .with_place(format!("byte {}", error.offset())),
            SkimError::TooLarge(limit) => Error::new(
                ErrorKind::Io,
                format!("its structure exceeds the limit of {limit} bytes"),
            ),
        })?;
        judge(graph::Model::read_skimmed(skimmed, self.limits), self.lenient)
            .map_err(|refusal| refusal.explain(&[]))
    }

    /// The model in a source.
    fn finish(&self, source: Source) -> Result<Loaded, Error> {
        let mapped = source.stamp.clone().map(Arc::new);
        let mut loaded = self.read(source)?;
        loaded.model.mapped = mapped;
        Ok(loaded)
    }

    fn read(&self, source: Source) -> Result<Loaded, Error> {
        if source.form == Form::Notation {
            let text = source.bytes.clone();
            let parsed = crate::text::parse(source.bytes, self.limits, &source.data)?;
            let loaded = self.with_data(parsed.model, source.data)?;
            return Ok(Loaded { warnings: parsed.warnings, text: Some(text), ..loaded });
        }
        let binary = source.binary(self.limits)?;
        let graph = read_graph(binary.clone(), self.limits, self.lenient)
            .map_err(|refusal| refusal.explain(binary.as_slice()))?;
        let mut loaded = self.with_data(graph, source.data)?;
        loaded.model.file = (source.form == Form::Binary).then(graph::SourceId::first);
        Ok(loaded)
    }

    /// Where the files beside the model are.
    fn data(&self, beside: impl FnOnce() -> DataFiles) -> Result<DataFiles, Error> {
        Ok(match (&self.resolver, &self.directory) {
            _ if self.external == ExternalFiles::Never => DataFiles::nowhere(NEVER),
            (Some(resolver), _) => {
                DataFiles::from_resolver(Arc::clone(resolver), self.data_options())
            }
            (None, Some(directory)) => DataFiles::at(directory, self.data_options())
                .map_err(|error| io_error("cannot use the directory", directory, error))?,
            (None, None) => beside(),
        })
    }

    fn with_data(&self, graph: graph::Model, data: DataFiles) -> Result<Loaded, Error> {
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

/// Payloads from this size on are passed over on request. Smaller ones may say what shape something
/// has.
const SKIPPED_BYTES: u64 = 1024;

/// Passes over bytes of a file that has `len`.
fn seek_over(file: &mut BufReader<File>, len: u64, bytes: u64) -> io::Result<()> {
    let end = file.stream_position()?.checked_add(bytes);
    let step = end.filter(|end| *end <= len).and_then(|_| i64::try_from(bytes).ok());
    match step {
        Some(step) => file.seek_relative(step),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("the file ends inside a value of {bytes} bytes"),
        )),
    }
}

/// Why data files are not found; completes "values are in the file …, and".
const FROM_BYTES: &str = "the model was read from bytes without a directory";
const NEVER: &str = "the model was opened without its data files";

fn from_bytes() -> DataFiles {
    DataFiles::nowhere(FROM_BYTES)
}

fn unreadable(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot read the model: {error}")).with_source(error)
}

/// An error about what is in a file.
fn within(path: &Path, error: Error) -> Error {
    let place = match error.place() {
        Some(place) => format!("{}, {place}", shown(path)),
        None => shown(path),
    };
    error.with_place(place)
}

/// A model, and what is known of where it came from.
#[derive(Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// What is probably not what was meant, in a text in the notation.
    pub warnings: Vec<Diagnostic>,
    /// That text.
    pub text: Option<Buffer>,
}

impl Loaded {
    /// The line and column of each finding about the model, which has not changed since. `None` for
    /// findings about the model as a whole, and for all if the model was not read from a text.
    pub fn positions(&self, findings: &[Finding]) -> Vec<Option<Position>> {
        match &self.text {
            Some(text) => positions(&self.model, text, findings),
            None => findings.iter().map(|_| None).collect(),
        }
    }
}

/// Bytes that a model may be in.
pub(crate) struct Source {
    pub(crate) bytes: Buffer,
    /// Their serialisation: the one that is asked for, that of the suffix, or what they look like.
    pub(crate) form: Form,
    /// Where the files beside the model are.
    pub(crate) data: DataFiles,
    /// The file as it was when it was mapped.
    pub(crate) stamp: Option<Stamp>,
}

impl Source {
    fn new(bytes: Buffer, form: Option<Form>, data: DataFiles) -> Source {
        let form = form.unwrap_or_else(|| Form::of_bytes(bytes.as_slice()));
        Source { bytes, form, data, stamp: None }
    }

    /// The binary form: the bytes themselves, or what they are once their text is read.
    pub(crate) fn binary(&self, limits: ReadLimits) -> Result<Buffer, Error> {
        match self.form {
            Form::Binary => Ok(self.bytes.clone()),
            text => text.read(&self.bytes, limits, &self.data).map(Buffer::from_vec),
        }
    }
}

/// Why bytes are not a model.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There are none.
    Empty,
    /// They say nothing that a model says.
    NoGraph,
    /// They are no such message.
    Damaged(graph::Error),
}

/// Reads the graph of a model from its binary form. Unless `lenient`, a message that says nothing
/// is refused.
pub(crate) fn read_graph(
    binary: Buffer,
    limits: ReadLimits,
    lenient: bool,
) -> Result<graph::Model, Refusal> {
    if binary.is_empty() && !lenient {
        return Err(Refusal::Empty);
    }
    judge(graph::Model::read_with(binary, limits), lenient)
}

/// Nearly every short run of bytes is some protobuf message; a model has a graph or at least
/// functions.
fn judge(read: Result<graph::Model, graph::Error>, lenient: bool) -> Result<graph::Model, Refusal> {
    let model = read.map_err(Refusal::Damaged)?;
    let says_nothing =
        model.main.is_none() && model.functions.is_empty() && model.training_info.is_empty();
    if says_nothing && !lenient { Err(Refusal::NoGraph) } else { Ok(model) }
}

impl Refusal {
    /// The error for people; `source`, the bytes, may tell what they are instead of a model.
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
                        .with_help("the file may be crafted to exhaust memory; if it is not, raise the limit (command: --max-structure; Rust: ReadLimits::memory)")
                        .with_source(error);
                }
                let message = format!("this is not an ONNX model, or a damaged one: {reason}");
                Error::new(ErrorKind::Format, message).with_place(place).with_source(error)
            }
        };
        match recognise(source) {
            Some((what, advice)) => {
                Error::new(ErrorKind::Format, format!("this is {what}, not an ONNX model"))
                    .with_help(advice)
            }
            None => {
                wrong.with_help(format!("{INTERRUPTED}; compare the file's size with the original"))
            }
        }
    }
}

const INTERRUPTED: &str = "check whether the download or export was interrupted";
/// What is said about a message that says nothing.
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

/// The binary form of a message in a file that is not a model, in any serialisation that the suffix
/// tells; `what` it is, for error messages.
pub(crate) fn read_message<M: MessageType>(path: &Path, what: &str) -> Result<Vec<u8>, Error> {
    let file = read_file(path, Access::Read, None)?;
    let form = Form::of_path(path).unwrap_or_default();
    let read = form.read_message::<M>(file.as_slice(), ReadLimits::default(), what);
    read.map_err(|error| within(path, error))
}

/// The first bytes of a file, at most `count`. Pipes are left alone, as they can be read only once;
/// so is what cannot be read.
pub(crate) fn start_of(path: &Path, count: u64) -> Option<Vec<u8>> {
    if !path.is_file() {
        return None;
    }
    let mut start = Vec::new();
    File::open(path).ok()?.take(count).read_to_end(&mut start).ok()?;
    Some(start)
}

/// A file that may be a model, read for the files that it refers to: values in others are left out.
pub(crate) enum Referring {
    Model(graph::Model),
    /// A model in the notation, and the files that it has values in.
    Text(graph::Model, BTreeSet<String>),
    /// A text that has errors.
    BrokenText(Buffer),
}

/// Reads a file for the files that it refers to; `None` if it is no model, or cannot be read.
pub(crate) fn referring(path: &Path) -> Option<Referring> {
    // A pipe would be waited for.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let form = Form::of_path(path).unwrap_or_default();
    let options = OpenOptions::new().form(form).external(ExternalFiles::Never);
    let source = options.source(path).ok()?;
    if form == Form::Notation {
        let named = Named::default();
        let text = source.bytes;
        return Some(match crate::text::parse(text.clone(), options.limits, &named) {
            Ok(parsed) => {
                let files = named.0.into_inner().unwrap_or_else(PoisonError::into_inner);
                Referring::Text(parsed.model, files)
            }
            Err(_) => Referring::BrokenText(text),
        });
    }
    let binary = source.binary(options.limits).ok()?;
    read_graph(binary, options.limits, true).ok().map(Referring::Model)
}

/// Notes which files a text has values in, and finds nothing in them.
#[derive(Default)]
struct Named(Mutex<BTreeSet<String>>);

impl ExternalData for Named {
    fn load(&self, location: &str, _: u64, _: Option<u64>) -> Result<Buffer, String> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(location.to_string());
        Ok(Buffer::empty())
    }
}
