//! ONNX text, a notation in which models can be read, compared, edited and written by hand. The
//! file `docs/notation.md` of the repository describes it.
//!
//! [`Model::open`] and [`Model::save`] accept the suffixes `.onnxtxt` and `.onnxtext`.
//! [`PrintOptions`] also print parts of a model, and can leave values in other files; [`format`]
//! reformats a text and keeps its comments.
//!
//! ```
//! use sardonyx::{Model, text};
//!
//! let model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      double (float[N] x) => (float[N] y) { y = Add(x, x) }",
//! )?;
//! assert_eq!(model.node_count(), 1);
//! let again = Model::from_text(&model.to_text())?;
//! assert_eq!(again.to_bytes(), model.to_bytes());
//!
//! let wrong = "<ir_version: 10, opset_import: [\"\": 21]>
//!     double (float[N] x) => (float[N] y) { y = Add(x x) }";
//! let error = Model::format_text(wrong.as_bytes().to_vec()).unwrap_err();
//! assert!(error.to_string().contains("inputs are separated by commas"));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sardonyx_model::{self as graph, ExternalData, ReadLimits, SourceId, Span, TensorProto};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, Parsed, Payloads, Placed, PrintPart, TextForm};
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::form::ModelFormat;
use crate::load::OpenOptions;
use crate::message;
use crate::model::Model;
use crate::open::io_error;
use crate::save::number_name;
use crate::stored;
use crate::whole::WholeFile;

#[doc(inline)]
pub use sardonyx_text::{Diagnostic, LeftOut, ParseError, Position};

impl Model {
    /// Reformats an ONNX text in the layout of [`PrintOptions`] and keeps its comments. Formatting
    /// is idempotent.
    ///
    /// # Errors
    ///
    /// All syntax errors in the text.
    pub fn format_text(text: impl Into<Buffer>) -> Result<Vec<u8>, ParseError> {
        sardonyx_text::format(text.into())
    }

    /// Parses a model in the ONNX text notation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if the text has errors; [`Error::syntax`] lists them.
    pub fn from_text(text: &str) -> Result<Model, Error> {
        let text = Buffer::from_vec(text.into());
        OpenOptions::new().form(ModelFormat::Notation).from_bytes(text)
    }

    /// Lists the files from which the ONNX text of the model takes tensor values; empty for a model
    /// that was not parsed from a text. A file may be listed under several paths.
    pub(crate) fn list_text_sources(&self) -> Vec<PathBuf> {
        self.data.list_text_sources()
    }

    /// Prints the model in the full form of the ONNX text notation, with all values.
    pub fn to_text(&self) -> String {
        let mut text = Vec::new();
        // Writing to a vector cannot fail.
        let _ = PrintOptions::new().print(self, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Parses a model in ONNX text; the error lists all syntax errors.
pub(crate) fn parse(
    text: Buffer,
    limits: ReadLimits,
    external: &dyn ExternalData,
) -> Result<Parsed, Error> {
    sardonyx_text::parse_model(text, ParseOptions { limits, external, any_count: false }).map_err(
        |error| {
            let count = error.diagnostics().len();
            let errors = if count == 1 { "error" } else { "errors" };
            let mut lines = error.to_string();
            lines.insert_str(0, &format!("the text has {count} {errors} in ONNX text\n"));
            Error::new(ErrorKind::Format, lines).with_source(error)
        },
    )
}

/// Options for printing a model in the ONNX text notation.
#[derive(Debug, Clone)]
pub struct PrintOptions {
    form: TextForm,
    inline_bytes: u64,
    digests: bool,
    like_onnx: bool,
    values: Values,
}

/// Storage of the values of large tensors in a printed text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    /// Values are in the text.
    Inline,
    /// Values are omitted; the text has their digest.
    Elided,
    /// Values stay in the file that the model was read from; the string is the path of that file
    /// relative to the text.
    InModelFile(String),
}

impl Default for PrintOptions {
    fn default() -> Self {
        PrintOptions {
            form: TextForm::Full,
            inline_bytes: 128,
            digests: false,
            like_onnx: false,
            values: Values::Inline,
        }
    }
}

impl PrintOptions {
    /// Creates the default options: all values are in the text.
    pub fn new() -> PrintOptions {
        PrintOptions::default()
    }

    /// Sets the form of the ONNX text notation. The default is [`TextForm::Full`].
    #[doc(hidden)]
    pub fn form(mut self, form: TextForm) -> PrintOptions {
        self.form = form;
        self
    }

    /// Sets the size in bytes up to which the values of a tensor are always printed in the text.
    /// The default is 128.
    pub fn inline_bytes(mut self, bytes: u64) -> PrintOptions {
        self.inline_bytes = bytes;
        self
    }

    /// Sets whether the text has the SHA-256 hash of values in other files, which is checked when
    /// the text is parsed. With hashes, printing and parsing read all values.
    pub fn digests(mut self, digests: bool) -> PrintOptions {
        self.digests = digests;
        self
    }

    /// Sets whether tensors are printed like in the `onnx` package: elements on one line without
    /// spaces, and `...`, which cannot be parsed back, for 2-bit and 4-bit elements. Off by
    /// default.
    pub fn like_onnx(mut self, like_onnx: bool) -> PrintOptions {
        self.like_onnx = like_onnx;
        self
    }

    /// Replaces values of more than [`inline_bytes`](PrintOptions::inline_bytes) bytes by a digest.
    /// Such a text cannot be parsed back.
    pub fn without_values(mut self) -> PrintOptions {
        self.values = Values::Elided;
        self
    }

    /// Makes the text refer to values of more than [`inline_bytes`](PrintOptions::inline_bytes)
    /// bytes in the binary file that the model was read from. `location` is the path of that file
    /// relative to the text. Values that are not in the file are printed in the text.
    pub fn refer_to(mut self, location: impl Into<String>) -> PrintOptions {
        self.values = Values::InModelFile(location.into());
        self
    }

    /// Prints a model to `sink` as ONNX text. Returns a summary of the content that the notation
    /// leaves out.
    ///
    /// # Errors
    ///
    /// Errors that `sink` returns.
    pub fn print(&self, model: &Model, sink: &mut dyn Write) -> io::Result<LeftOut> {
        let mut place = self.refer_to_model_file(model);
        sardonyx_text::print_model(&model.graph, self.make_options(&mut place), sink)
    }

    /// Prints all nodes called `name`, in all graphs and functions.
    ///
    /// # Errors
    ///
    /// Memory cannot be allocated.
    pub fn print_nodes(&self, model: &Model, name: &str) -> io::Result<(Vec<u8>, LeftOut)> {
        let graph = &model.graph;
        let named = graph.graphs().flat_map(|(_, found)| &found.nodes);
        let named = named.filter(|id| graph.display(graph.node(**id).name) == name);
        self.print_parts(model, named.map(|id| PrintPart::Node(*id)))
    }

    /// Prints the nodes of the main graph at the positions in `range`; ignores positions after the
    /// last node.
    ///
    /// # Errors
    ///
    /// See [`print_nodes`](PrintOptions::print_nodes).
    pub fn print_range(
        &self,
        model: &Model,
        range: std::ops::Range<usize>,
    ) -> io::Result<(Vec<u8>, LeftOut)> {
        let nodes = model.graph.main_graph().map_or(&[][..], |graph| &graph.nodes);
        let range = range.start.min(nodes.len())..range.end.min(nodes.len());
        let nodes = nodes.get(range).unwrap_or_default();
        self.print_parts(model, nodes.iter().map(|id| PrintPart::Node(*id)))
    }

    /// Prints all functions called `name`, of any domain and overload.
    ///
    /// # Errors
    ///
    /// See [`print_nodes`](PrintOptions::print_nodes).
    pub fn print_functions(&self, model: &Model, name: &str) -> io::Result<(Vec<u8>, LeftOut)> {
        let functions = model.graph.functions.iter().enumerate();
        let named = functions.filter(|(_, found)| model.graph.display(found.name) == name);
        self.print_parts(model, named.map(|(index, _)| PrintPart::Function(index)))
    }

    /// Prints a protobuf message that was [read alone](message::read) if it is a graph, a function
    /// or a node. Prints nothing for other messages.
    ///
    /// # Errors
    ///
    /// See [`print_nodes`](PrintOptions::print_nodes).
    #[doc(hidden)]
    pub fn print_message(
        &self,
        model: &Model,
        part: message::MessagePart,
    ) -> io::Result<(Vec<u8>, LeftOut)> {
        let graph = &model.graph;
        let part = match part {
            message::MessagePart::Function => Some(PrintPart::Function(0)),
            message::MessagePart::Graph => graph.main.map(PrintPart::Graph),
            message::MessagePart::Node => {
                let nodes = graph.main_graph().map_or(&[][..], |graph| &graph.nodes);
                nodes.first().map(|node| PrintPart::Node(*node))
            }
            _ => None,
        };
        self.print_parts(model, part.into_iter())
    }

    /// Prints parts of a model one after the other.
    fn print_parts(
        &self,
        model: &Model,
        parts: impl Iterator<Item = PrintPart>,
    ) -> io::Result<(Vec<u8>, LeftOut)> {
        let mut text = Vec::new();
        let mut left_out = LeftOut::default();
        for part in parts {
            let mut place = self.refer_to_model_file(model);
            let printed =
                sardonyx_text::part_to_text(&model.graph, part, self.make_options(&mut place));
            let (part, missing) = printed?;
            text.extend_from_slice(&part);
            left_out.join(missing);
        }
        Ok((text, left_out))
    }

    /// Returns the reference to the file that the model was read from.
    fn refer_to_model_file(&self, model: &Model) -> InModelFile {
        let location = match &self.values {
            Values::InModelFile(location) => location.clone(),
            _ => String::new(),
        };
        InModelFile { file: model.file, location, digests: self.digests, paths: HashMap::new() }
    }

    /// Converts the options to those of the printer.
    fn make_options<'o>(&self, place: &'o mut InModelFile) -> sardonyx_text::PrintOptions<'o> {
        sardonyx_text::PrintOptions {
            form: self.form,
            weights: match self.values {
                Values::Inline => sardonyx_text::Weights::Inline,
                Values::Elided => sardonyx_text::Weights::Elided(&format_digest),
                Values::InModelFile(_) => sardonyx_text::Weights::Placed(place),
            },
            inline_bytes: self.inline_bytes,
            like_onnx: self.like_onnx,
        }
    }

    /// Prints a model to a file as ONNX text. With [`refer_to`](PrintOptions::refer_to), values
    /// that are not in the file of the model are written to a sidecar file beside the text, named
    /// like the text with `.data` appended; without it, `sidecar` does so with all larger values.
    /// Both files are created atomically. If another file has the name of the sidecar file, the new
    /// sidecar file gets a number in its name, because other texts may refer to the existing file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if a file cannot be written.
    pub fn save(
        &self,
        model: &Model,
        path: impl AsRef<Path>,
        sidecar: bool,
    ) -> Result<LeftOut, Error> {
        let path = path.as_ref();
        let cannot_write = |error: io::Error| io_error("cannot write", path, error);
        let name = path.file_name().ok_or_else(|| {
            Error::new(ErrorKind::Io, "cannot print the model to a file: the path has no file name")
        })?;
        let mut data_name = name.to_os_string();
        data_name.push(".data");
        let referring = matches!(self.values, Values::InModelFile(_));
        let mut place = SidecarFile {
            own: self.refer_to_model_file(model),
            name: data_name.to_string_lossy().into_owned(),
            path: path.with_file_name(&data_name),
            file: None,
            known: HashMap::new(),
        };
        if !referring {
            place.own.file = None;
        }
        let elsewhere = referring || (sidecar && self.values == Values::Inline);
        let options = if elsewhere {
            sardonyx_text::PrintOptions {
                form: self.form,
                weights: sardonyx_text::Weights::Placed(&mut place),
                inline_bytes: self.inline_bytes,
                like_onnx: self.like_onnx,
            }
        } else {
            self.make_options(&mut place.own)
        };
        let mut file = WholeFile::create(path).map_err(cannot_write)?;
        let left_out = sardonyx_text::print_model(&model.graph, options, &mut file);
        let left_out = left_out.map_err(cannot_write)?;
        if let Some((data, path)) = place.file.take() {
            data.finish_as(&path).map_err(cannot_write)?;
        }
        // Last, because the text refers to the other file.
        file.finish().map_err(cannot_write)?;
        Ok(left_out)
    }
}

/// Formats the SHA-256 hash of values for a text without them.
fn format_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", stored::sha256(bytes))
}

/// Values of a text that stay in the file that the model was read from.
struct InModelFile {
    file: Option<SourceId>,
    location: String,
    digests: bool,
    /// Path of the tensor with values at an offset of the file; `None` if several tensors have this
    /// path. Only for values that are not printed inline.
    paths: HashMap<u64, Option<Vec<u8>>>,
}

/// Returns the byte ranges of a tensor's values in the model: raw data and typed lists.
fn list_value_spans(tensor: &TensorProto) -> impl Iterator<Item = Span> {
    let typed = tensor.typed.iter().map(|run| run.records);
    tensor.raw_data.into_iter().chain(typed)
}

impl InModelFile {
    /// Whether a byte range is in the file of the model and too large to be printed inline.
    fn holds(&self, span: Span, inline_bytes: u64) -> bool {
        span.len > inline_bytes && self.file == Some(span.source)
    }
}

impl Payloads for InModelFile {
    fn files(
        &mut self,
        model: &graph::Model,
        inline_bytes: u64,
    ) -> io::Result<Vec<(String, String)>> {
        let Some(file) = self.file else {
            return Ok(Vec::new());
        };
        let holds_some = |tensor: &TensorProto| {
            let mut values = list_value_spans(tensor);
            !tensor.is_external() && values.any(|span| self.holds(span, inline_bytes))
        };
        let ids = model.tensors();
        let mut unnamed: Vec<&TensorProto> =
            ids.iter().map(|id| model.stored_tensor(*id)).collect();
        unnamed.retain(|tensor| holds_some(tensor));
        if unnamed.is_empty() {
            return Ok(Vec::new());
        }
        let mut times: HashMap<Vec<u8>, u32> = HashMap::new();
        let paths = model.tensor_paths(holds_some);
        for (_, path) in &paths {
            *times.entry(path.clone()).or_default() += 1;
        }
        let mut known = HashMap::new();
        for (id, path) in paths {
            // Two tensors with one path cannot be distinguished.
            let path = (times.get(&path) == Some(&1)).then_some(path);
            for span in list_value_spans(model.stored_tensor(id)) {
                known.insert(span.offset, path.clone());
            }
        }
        self.paths = known;
        let digest = stored::compute_file_digest(model.source(file));
        Ok(digest.map(|digest| (self.location.clone(), digest)).into_iter().collect())
    }

    fn place(&mut self, model: &graph::Model, span: Span) -> Option<Placed> {
        (self.file == Some(span.source)).then(|| Placed {
            location: self.location.clone(),
            offset: span.offset,
            tensor: self.paths.get(&span.offset).cloned().flatten(),
            sha256: self.digests.then(|| stored::sha256(model.bytes(span))),
        })
    }
}

/// Values of a text that stay in the file of the model, or are written to a sidecar file beside the
/// text.
struct SidecarFile {
    own: InModelFile,
    name: String,
    path: PathBuf,
    /// Unfinished sidecar file and its final path; `None` if no value needs one.
    file: Option<(WholeFile, PathBuf)>,
    /// Offset in the sidecar file of values, by source, offset and length of the values in the
    /// model.
    known: HashMap<(SourceId, u64, u64), u64>,
}

/// Alignment in bytes of values in a sidecar file, so that they can be used in place.
const ALIGNMENT: u64 = 64;

impl Payloads for SidecarFile {
    fn files(
        &mut self,
        model: &graph::Model,
        inline_bytes: u64,
    ) -> io::Result<Vec<(String, String)>> {
        let mut files = self.own.files(model, inline_bytes)?;
        let mut writing: Option<(WholeFile, Sha256)> = None;
        let mut length = stored::HEAD_BYTES as u64;
        for id in model.tensors() {
            for span in list_value_spans(model.stored_tensor(id)) {
                let key = (span.source, span.offset, span.len);
                let stays = span.len <= inline_bytes || self.own.file == Some(span.source);
                if stays || self.known.contains_key(&key) {
                    continue;
                }
                let (file, hasher) = match &mut writing {
                    Some(writing) => writing,
                    none => {
                        let mut file = WholeFile::create(&self.path)?;
                        file.write_all(&[0; stored::HEAD_BYTES])?;
                        none.insert((file, Sha256::new()))
                    }
                };
                let offset = length.next_multiple_of(ALIGNMENT);
                let padding = [0; ALIGNMENT as usize];
                for bytes in [&padding[..(offset - length) as usize], model.bytes(span)] {
                    file.write_all(bytes)?;
                    hasher.update(bytes);
                }
                length = offset + span.len;
                self.known.insert(key, offset);
            }
        }
        if let Some((mut file, hasher)) = writing {
            let (head, digest) = stored::make_head(hasher);
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&head)?;
            self.choose_name(&head, length, file)?;
            files.push((self.name.clone(), digest));
        }
        Ok(files)
    }

    fn place(&mut self, model: &graph::Model, span: Span) -> Option<Placed> {
        if let Some(found) = self.own.place(model, span) {
            return Some(found);
        }
        let key = (span.source, span.offset, span.len);
        let offset = *self.known.get(&key)?;
        Some(Placed {
            location: self.name.clone(),
            offset,
            tensor: None,
            sha256: self.own.digests.then(|| stored::sha256(model.bytes(span))),
        })
    }
}

impl SidecarFile {
    /// Chooses a free name for the sidecar file, because another text may refer to an existing one.
    /// Reuses an existing sidecar file with equal content.
    fn choose_name(&mut self, head: &[u8], length: u64, file: WholeFile) -> io::Result<()> {
        let base = self.name.clone();
        for attempt in 1.. {
            self.name = number_name(&base, attempt);
            let path = self.path.with_file_name(&self.name);
            match fs::symlink_metadata(&path) {
                Err(_) => {
                    self.file = Some((file, path));
                    break;
                }
                Ok(found) if found.is_file() && found.len() == length => {
                    let mut begin = Vec::new();
                    let old = fs::File::open(&path)?;
                    old.take(head.len() as u64).read_to_end(&mut begin)?;
                    if begin == head {
                        break;
                    }
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}
