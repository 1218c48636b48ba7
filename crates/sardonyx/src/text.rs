//! The notation: models as text, to read, compare, edit and write by hand. `docs/notation.md` describes it.
//!
//! [`Model::open`] and [`Model::save`] take files called `.onnxtxt` or `.onnxtext` like any other; here are the pieces, and
//! what a text has beyond a model: a form, values outside of it, comments.
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
//! let error = text::parse_part(text::Part::Node, "y = Add(x x)".as_bytes().to_vec()).unwrap_err();
//! assert!(error.to_string().contains("inputs are separated by commas"));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sardonyx_model::{self as graph, ExternalData, ReadLimits, SourceId, Span};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, Parsed, Payloads, PrintPart};

use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::open::{OpenOptions, io_error};
use crate::whole::WholeFile;

pub use sardonyx_text::{
    Diagnostic, Form as TextForm, LeftOut, LeftOutKind, ParseError, Part, Position, Severity,
    SyntaxKind, SyntaxPart, SyntaxTree, render,
};

/// Reads a part of a model alone (a node, a type, …) and gives its protobuf message.
///
/// # Errors
///
/// Everything that is wrong with the text.
pub fn parse_part(part: Part, text: impl Into<Buffer>) -> Result<Vec<u8>, ParseError> {
    sardonyx_text::parse_part(part, text.into(), ParseOptions::default())
}

/// A text in the layout in which models are printed, with its comments. Formatting it again changes nothing.
///
/// # Errors
///
/// Everything that is wrong with the text.
pub fn format(text: impl Into<Buffer>) -> Result<Vec<u8>, ParseError> {
    sardonyx_text::format(text.into())
}

/// The parts of a text and where they stand, as far as it can be read, and what is wrong with it. For editors.
pub fn syntax_tree(text: impl Into<Buffer>) -> (SyntaxTree, Vec<Diagnostic>) {
    sardonyx_text::syntax_tree(&text.into())
}

impl Model {
    /// Reads a model in the notation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`]; [`Error::syntax`] has everything that is wrong with the text.
    pub fn from_text(text: &str) -> Result<Model, Error> {
        let text = Buffer::from_vec(text.into());
        let opened = OpenOptions::new().open_text(None, text)?;
        Ok(opened.0)
    }

    /// The model in the full form of the notation, with all values.
    pub fn to_text(&self) -> String {
        let mut text = Vec::new();
        // A vector takes every byte.
        let _ = PrintOptions::new().print(self, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Opens a file in the notation; also gives what is probably not what was meant.
///
/// # Errors
///
/// See [`OpenOptions::open`].
pub fn open(
    path: impl AsRef<Path>,
    options: &OpenOptions,
) -> Result<(Model, Vec<Diagnostic>), Error> {
    let path = path.as_ref();
    let text = crate::open::read_file(path, crate::open::Access::Read, None)?;
    options
        .open_text(Some(path), text)
        .map_err(|error| error.with_place(crate::open::shown(path)))
}

/// Reads a text in the notation; see [`open`].
///
/// # Errors
///
/// See [`OpenOptions::open`].
pub fn read(
    text: impl Into<Buffer>,
    options: &OpenOptions,
) -> Result<(Model, Vec<Diagnostic>), Error> {
    options.open_text(None, text.into())
}

pub(crate) fn parse(
    text: Buffer,
    limits: ReadLimits,
    external: &dyn ExternalData,
) -> Result<Parsed, Error> {
    sardonyx_text::parse_model(
        text,
        ParseOptions {
            limits,
            external,
            any_count: false,
        },
    )
    .map_err(|error| {
        let count = error.diagnostics().len();
        let errors = if count == 1 { "error" } else { "errors" };
        let mut lines = error.to_string();
        lines.insert_str(
            0,
            &format!("the text has {count} {errors} in the notation\n"),
        );
        Error::new(ErrorKind::Format, lines).with_source(error)
    })
}

/// How a model is printed.
#[derive(Debug, Clone)]
pub struct PrintOptions {
    form: TextForm,
    inline_bytes: u64,
    values: Values,
}

/// Where the values of large tensors are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values {
    Inline,
    Elided,
    /// In the file that the model was read from, which is called like this beside the text.
    InModelFile(String),
}

impl Default for PrintOptions {
    fn default() -> Self {
        PrintOptions {
            form: TextForm::Full,
            inline_bytes: 128,
            values: Values::Inline,
        }
    }
}

impl PrintOptions {
    /// The full form, with all values in the text.
    pub fn new() -> PrintOptions {
        PrintOptions::default()
    }

    /// Which form of the notation. The default is the full one.
    pub fn form(mut self, form: TextForm) -> PrintOptions {
        self.form = form;
        self
    }

    /// Values of so many bytes stand in the text in any case. The default is 128.
    pub fn inline_bytes(mut self, bytes: u64) -> PrintOptions {
        self.inline_bytes = bytes;
        self
    }

    /// Leaves larger values out; a digest stands for them. Such a text cannot be read back.
    pub fn without_values(mut self) -> PrintOptions {
        self.values = Values::Elided;
        self
    }

    /// Refers to larger values that are in the binary file that the model was read from, which is called `location` from
    /// the folder of the text. Those that are not there stand in the text.
    pub fn refer_to(mut self, location: impl Into<String>) -> PrintOptions {
        self.values = Values::InModelFile(location.into());
        self
    }

    /// Prints a model. Gives what the text does not say.
    ///
    /// # Errors
    ///
    /// Those of `sink`.
    pub fn print(&self, model: &Model, sink: &mut dyn Write) -> io::Result<LeftOut> {
        let mut place = self.place(model);
        sardonyx_text::print_model(&model.graph, self.options(&mut place), sink)
    }

    /// Prints the nodes with a name, in all graphs and functions; there may be none or several.
    ///
    /// # Errors
    ///
    /// None but those of memory.
    pub fn print_nodes(&self, model: &Model, name: &str) -> io::Result<(Vec<u8>, LeftOut)> {
        let graph = &model.graph;
        let named = graph.graphs().flat_map(|(_, found)| &found.nodes);
        let named = named.filter(|id| graph.display(graph.node(**id).name) == name);
        self.print_parts(model, named.map(|id| PrintPart::Node(*id)))
    }

    /// Prints nodes of the main graph by their positions.
    ///
    /// # Errors
    ///
    /// See [`print_nodes`](PrintOptions::print_nodes).
    pub fn print_range(
        &self,
        model: &Model,
        range: std::ops::Range<usize>,
    ) -> io::Result<(Vec<u8>, LeftOut)> {
        let nodes = model
            .graph
            .main_graph()
            .map_or(&[][..], |graph| &graph.nodes);
        let range = range.start.min(nodes.len())..range.end.min(nodes.len());
        let nodes = nodes.get(range).unwrap_or_default();
        self.print_parts(model, nodes.iter().map(|id| PrintPart::Node(*id)))
    }

    /// Prints the functions with a name, whatever their domains and overloads.
    ///
    /// # Errors
    ///
    /// See [`print_nodes`](PrintOptions::print_nodes).
    pub fn print_functions(&self, model: &Model, name: &str) -> io::Result<(Vec<u8>, LeftOut)> {
        let functions = model.graph.functions.iter().enumerate();
        let named = functions.filter(|(_, found)| model.graph.display(found.name) == name);
        self.print_parts(model, named.map(|(index, _)| PrintPart::Function(index)))
    }

    fn print_parts(
        &self,
        model: &Model,
        parts: impl Iterator<Item = PrintPart>,
    ) -> io::Result<(Vec<u8>, LeftOut)> {
        let mut text = Vec::new();
        let mut left_out = LeftOut::default();
        for part in parts {
            let mut place = self.place(model);
            let printed = sardonyx_text::part_to_text(&model.graph, part, self.options(&mut place));
            let (part, missing) = printed?;
            text.extend_from_slice(&part);
            left_out.join(missing);
        }
        Ok((text, left_out))
    }

    fn place(&self, model: &Model) -> InModelFile {
        let location = match &self.values {
            Values::InModelFile(location) => location.clone(),
            _ => String::new(),
        };
        InModelFile {
            file: model.file,
            location,
        }
    }

    fn options<'o>(&self, place: &'o mut InModelFile) -> sardonyx_text::PrintOptions<'o> {
        sardonyx_text::PrintOptions {
            form: self.form,
            weights: match self.values {
                Values::Inline => sardonyx_text::Weights::Inline,
                Values::Elided => sardonyx_text::Weights::Elided(&digest),
                Values::InModelFile(_) => sardonyx_text::Weights::Placed(place),
            },
            inline_bytes: self.inline_bytes,
            like_onnx: false,
        }
    }

    /// Prints a model to a file. With [`refer_to`](PrintOptions::refer_to), values that are not in that file go to one
    /// beside the text, called like it with `.data` behind; without, that is done with all larger values if `sidecar`
    /// says so. Both files appear complete or not at all.
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
        let cannot = |error: io::Error| io_error("cannot write", path, error);
        let name = path
            .file_name()
            .ok_or_else(|| Error::new(ErrorKind::Io, "this is no file name"))?;
        let mut data_name = name.to_os_string();
        data_name.push(".data");
        let referring = matches!(self.values, Values::InModelFile(_));
        let mut place = Beside {
            own: self.place(model),
            name: data_name.to_string_lossy().into_owned(),
            path: path.with_file_name(&data_name),
            file: None,
            length: 0,
            known: HashMap::new(),
        };
        if !referring {
            place.own.file = None;
        }
        let elsewhere = referring || (sidecar && self.values == Values::Inline);
        let options = match elsewhere {
            true => sardonyx_text::PrintOptions {
                form: self.form,
                weights: sardonyx_text::Weights::Placed(&mut place),
                inline_bytes: self.inline_bytes,
                like_onnx: false,
            },
            false => self.options(&mut place.own),
        };
        let mut file = WholeFile::create(path).map_err(cannot)?;
        let left_out = sardonyx_text::print_model(&model.graph, options, &mut file);
        let left_out = left_out.map_err(cannot)?;
        if let Some(data) = place.file.take() {
            data.finish().map_err(cannot)?;
        }
        // Last, as it refers to the other.
        file.finish().map_err(cannot)?;
        Ok(left_out)
    }
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(bytes);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Values that stay in the model's own file.
struct InModelFile {
    file: Option<SourceId>,
    location: String,
}

impl Payloads for InModelFile {
    fn place(&mut self, _: &graph::Model, span: Span) -> io::Result<Option<(String, u64)>> {
        let here = self.file == Some(span.source);
        Ok(here.then(|| (self.location.clone(), span.offset)))
    }
}

/// Values that stay in the model's own file or go to one beside the text.
struct Beside {
    own: InModelFile,
    name: String,
    path: PathBuf,
    file: Option<WholeFile>,
    length: u64,
    known: HashMap<(SourceId, u64, u64), u64>,
}

/// Values begin at multiples of this, so that they can be used where they are.
const ALIGNMENT: u64 = 64;

impl Payloads for Beside {
    fn place(&mut self, model: &graph::Model, span: Span) -> io::Result<Option<(String, u64)>> {
        if let Some(found) = self.own.place(model, span)? {
            return Ok(Some(found));
        }
        let key = (span.source, span.offset, span.len);
        if let Some(offset) = self.known.get(&key) {
            return Ok(Some((self.name.clone(), *offset)));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(WholeFile::create(&self.path)?),
        };
        let offset = self.length.next_multiple_of(ALIGNMENT);
        let padding = [0; ALIGNMENT as usize];
        file.write_all(&padding[..(offset - self.length) as usize])?;
        file.write_all(model.bytes(span))?;
        self.length = offset + span.len;
        self.known.insert(key, offset);
        Ok(Some((self.name.clone(), offset)))
    }
}
