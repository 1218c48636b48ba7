//! Opening files: mapped or read, with errors that name the file.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardonyx_model as graph;
use sardonyx_model::ReadLimits;
use sardonyx_proto::{Limits, ModelProto, SkimError, discard, skim};
use sardonyx_runtime::SharedWeights;
use sardonyx_tensor::Buffer;

use crate::error::{Error, ErrorKind};
use crate::external::{DataFiles, DataOptions, DataResolver, Links};
use crate::form::Form;
use crate::mapping;
use crate::model::Model;

/// How the bytes of a model file, and of the data files beside it, come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Mapped: pages come in when touched, and are shared between processes. If somebody truncates
    /// a mapped file, touching the missing part ends the process (SIGBUS); if somebody overwrites
    /// it in place, values change. For files that stay as they are.
    #[default]
    Map,
    /// Read into memory of our own: slower to open and as large as the file, but nothing that
    /// happens to the file later matters.
    Read,
}

/// When the files are opened that hold a model's external data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
/// use sardonyx::{Access, OpenOptions};
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
    links: Links,
    verify: bool,
    limits: ReadLimits,
    max_bytes: Option<u64>,
    skip_payloads: bool,
    form: Option<Form>,
    folder: Option<PathBuf>,
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

    /// Which links may lead to data files.
    pub fn links(mut self, links: Links) -> OpenOptions {
        self.links = links;
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

    /// The folder, instead of that of the model file, in which data files are looked for.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> OpenOptions {
        self.folder = Some(folder.into());
        self
    }

    /// Finds data files, instead of looking into a folder.
    pub fn resolver(mut self, resolver: Arc<dyn DataResolver>) -> OpenOptions {
        self.resolver = Some(resolver);
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
        let path = path.as_ref();
        let form = self.form.or_else(|| Form::of_path(path));
        let beside = || DataFiles::beside(path, self.data_options());
        let is_skimmed = self.skip_payloads
            && self.access == Access::Read
            && form.unwrap_or_default() == Form::Binary;
        let opened = if is_skimmed {
            let failed = |error: io::Error| io_error("cannot read", path, error);
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(folder_given(path));
            }
            let mut file = BufReader::new(file);
            let skip = |file: &mut BufReader<File>, bytes| {
                if metadata.is_file() {
                    seek_over(file, metadata.len(), bytes)
                } else {
                    discard(file, bytes)
                }
            };
            let graph = self.skim(&mut file, skip);
            graph.and_then(|graph| self.with_data(graph, self.data(beside)?, None))
        } else {
            let bytes = read_file(path, self.access, self.max_bytes)?;
            self.finish(bytes, form, beside)
        };
        let opened = opened.map(|model| Model { path: fs::canonicalize(path).ok(), ..model });
        opened.map_err(|error| {
            let place = match error.place() {
                Some(place) => format!("{}, {place}", shown(path)),
                None => shown(path),
            };
            error.with_place(place)
        })
    }

    /// Reads a model from bytes, which it keeps. External data is found only with
    /// [`folder`](OpenOptions::folder) or [`resolver`](OpenOptions::resolver).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_bytes(&self, bytes: impl Into<Buffer>) -> Result<Model, Error> {
        self.finish(bytes.into(), self.form, || DataFiles::nowhere(FROM_BYTES))
    }

    /// Reads a model from a stream, to its end, or to [`max_bytes`](OpenOptions::max_bytes).
    ///
    /// # Errors
    ///
    /// See [`open`](OpenOptions::open).
    pub fn from_reader(&self, reader: impl Read) -> Result<Model, Error> {
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Io, format!("cannot read the model: {error}")).with_source(error)
        };
        let mut stream: &mut dyn BufRead = &mut BufReader::new(reader);
        if self.skip_payloads {
            // Text is read whole: it has no payloads that could be passed over.
            let start = stream.fill_buf().map_err(failed)?;
            if self.form.unwrap_or_else(|| Form::of_bytes(start)) == Form::Binary {
                let graph = self.skim(&mut stream, discard)?;
                let data = self.data(|| DataFiles::nowhere(FROM_BYTES))?;
                return self.with_data(graph, data, None);
            }
        }
        let bytes = read_stream(&mut stream, 0, self.max_bytes).map_err(failed)?;
        self.from_bytes(bytes)
    }

    fn data_options(&self) -> DataOptions {
        DataOptions {
            access: self.access,
            whole: self.external == ExternalFiles::Now,
            links: self.links,
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
            SkimError::Io(error) => {
                let message = format!("cannot read the model: {error}");
                Error::new(ErrorKind::Io, message).with_source(error)
            }
            SkimError::Wire(error) => Error::new(
                ErrorKind::Format,
                format!("this is no ONNX model, or a damaged one: {}", error.kind()),
            )
            .with_place(format!("byte {}", error.offset())),
            SkimError::TooLarge(limit) => Error::new(
                ErrorKind::Io,
                format!("its structure alone has more than the {limit} bytes that are allowed"),
            ),
        })?;
        crate::model::judge(graph::Model::read_skimmed(skimmed, self.limits), &[])
    }

    fn finish(
        &self,
        bytes: Buffer,
        form: Option<Form>,
        beside: impl FnOnce() -> DataFiles,
    ) -> Result<Model, Error> {
        let data = self.data(beside)?;
        let form = form.unwrap_or_else(|| Form::of_bytes(bytes.as_slice()));
        let graph = crate::model::read_graph(bytes, form, self.limits, &data)?;
        let file = (form == Form::Binary).then(graph::SourceId::first);
        self.with_data(graph, data, file)
    }

    /// Where the files beside the model are.
    pub(crate) fn data(&self, beside: impl FnOnce() -> DataFiles) -> Result<DataFiles, Error> {
        Ok(match (&self.resolver, &self.folder) {
            _ if self.external == ExternalFiles::Never => DataFiles::nowhere(NEVER),
            (Some(resolver), _) => {
                DataFiles::from_resolver(Arc::clone(resolver), self.data_options())
            }
            (None, Some(folder)) => DataFiles::at(folder, self.data_options())
                .map_err(|error| io_error("cannot use the folder", folder, error))?,
            (None, None) => beside(),
        })
    }

    fn with_data(
        &self,
        graph: graph::Model,
        data: DataFiles,
        file: Option<graph::SourceId>,
    ) -> Result<Model, Error> {
        let data = Arc::new(data);
        let model = Model { graph, data, file, path: None, weights: SharedWeights::default() };
        if self.external == ExternalFiles::Now {
            model.check_external_data()?;
        }
        Ok(model)
    }

    /// Opens a file in the notation; also gives what is probably not what was meant.
    pub(crate) fn open_text(
        &self,
        path: Option<&Path>,
        text: Buffer,
    ) -> Result<(Model, Vec<sardonyx_text::Diagnostic>), Error> {
        let data = self.data(|| match path {
            Some(path) => DataFiles::beside(path, self.data_options()),
            None => DataFiles::nowhere(FROM_BYTES),
        })?;
        let parsed = crate::text::parse(text, self.limits, &data)?;
        let model = self.with_data(parsed.model, data, None)?;
        let path = path.and_then(|path| fs::canonicalize(path).ok());
        Ok((Model { path, ..model }, parsed.warnings))
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("access", &self.access)
            .field("external", &self.external)
            .field("links", &self.links)
            .field("verify", &self.verify)
            .field("limits", &self.limits)
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

/// Why data files are not found; completes "its values are in the file …, and".
const FROM_BYTES: &str = "the model was read from bytes without a folder";
const NEVER: &str = "the model was opened without its data files";

/// The content of a file. Pipes are always read; folders and devices are refused.
pub(crate) fn read_file(
    path: &Path,
    access: Access,
    max_bytes: Option<u64>,
) -> Result<Buffer, Error> {
    let failed = |error: io::Error| io_error("cannot read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(folder_given(path));
    }
    if metadata.is_file() && access == Access::Map {
        return mapping::map(&file).map_err(failed);
    }
    if is_device(&metadata) {
        return Err(Error::new(ErrorKind::Io, "a device is no model").with_place(shown(path)));
    }
    read_stream(&mut file, metadata.len(), max_bytes).map_err(failed)
}

/// The rest of a stream, of which `expected` bytes are known to come.
pub(crate) fn read_stream(
    stream: &mut dyn Read,
    expected: u64,
    max_bytes: Option<u64>,
) -> io::Result<Buffer> {
    let limit = max_bytes.unwrap_or(u64::MAX);
    let too_long = || {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than the {limit} bytes that are allowed"),
        )
    };
    if expected > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Memory that is not there is an error before it is used.
    let len = usize::try_from(expected).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| {
        io::Error::new(io::ErrorKind::OutOfMemory, format!("no memory for {len} bytes"))
    })?;
    stream.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_long()) } else { Ok(Buffer::from_vec(bytes)) }
}

#[cfg(unix)]
fn is_device(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_char_device() || metadata.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &fs::Metadata) -> bool {
    false
}

fn folder_given(path: &Path) -> Error {
    let mut inside: Vec<String> = fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|suffix| suffix == "onnx"))
        .take(6)
        .map(|entry| entry.path().display().to_string())
        .collect();
    inside.sort();
    let error =
        Error::new(ErrorKind::Io, "this is a folder, not a model file").with_place(shown(path));
    if inside.is_empty() {
        error.with_help("give the path of the .onnx file")
    } else {
        error.with_help(format!("models inside: {}", inside.join(", ")))
    }
}

/// An I/O error as one of ours, with the file's name and advice where there is any.
pub(crate) fn io_error(what: &str, path: &Path, error: io::Error) -> Error {
    let reason = io_reason(path, &error);
    let not_found = error.kind() == io::ErrorKind::NotFound;
    let message = format!("{what} '{}': {reason}", path.display());
    let made = Error::new(ErrorKind::Io, message).with_source(error);
    match not_found.then(|| similar_file(path)).flatten() {
        Some(similar) => made.with_help(format!("did you mean '{}'?", similar.display())),
        None => made,
    }
}

/// Why a file could not be opened, read or written, in words. If a directory on the way to it is
/// missing, that is said.
pub fn io_reason(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => match missing_directory(path) {
            Some(missing) => format!("there is no directory '{}'", missing.display()),
            None => "there is no such file".to_string(),
        },
        io::ErrorKind::PermissionDenied => "permission denied".to_string(),
        _ => error.to_string(),
    }
}

/// The first directory on the way to a file that does not exist.
fn missing_directory(path: &Path) -> Option<&Path> {
    let directories = path.ancestors().skip(1);
    let missing = directories.take_while(|directory| {
        !directory.as_os_str().is_empty() && fs::symlink_metadata(directory).is_err()
    });
    missing.last()
}

/// A file of the same folder with a similar name, which could hold the same: a model for a model,
/// else a file with the same suffix.
fn similar_file(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let is_same_kind = |name: &str| {
        let name = Path::new(name);
        match (Form::of_path(path), path.extension()) {
            // A name without suffix is that of a model whose suffix was left out.
            (Some(_), _) | (None, None) => Form::of_path(name).is_some(),
            (None, suffix) => name.extension() == suffix,
        }
    };
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .take(1000)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_same_kind(name))
        .collect();
    let closest = sardonyx_proto::closest(wanted, names.iter().map(String::as_str))?;
    Some(path.with_file_name(closest))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
