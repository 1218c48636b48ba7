//! A model in memory: where it comes from and where it goes. Looking at it is in `inspect`.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardonyx_model as graph;
use sardonyx_proto::Encoded;
use sardonyx_runtime::SharedWeights;
use sardonyx_tensor::{Buffer, TensorError};

use crate::error::{Error, ErrorKind};
use crate::external::{DataFiles, DataOptions};
use crate::load::OpenOptions;
use crate::open::{Access, io_error};
use crate::save::{SaveOptions, embed};
use crate::stamp::Stamp;

/// A model in memory.
///
/// Holds the structure of the file; weights stay where they are, mapped or in the buffer that the
/// model was read from. Cloning copies the structure and shares the weights.
#[derive(Clone)]
pub struct Model {
    pub(crate) graph: graph::Model,
    /// Where external data is.
    pub(crate) data: Arc<DataFiles>,
    /// The first bytes that the graph refers to, if they are those of a binary model file.
    pub(crate) file: Option<graph::SourceId>,
    /// The real path of the file that the model was read from.
    pub(crate) path: Option<PathBuf>,
    /// Stamp of that file from when it was mapped, if it is mapped.
    pub(crate) mapped: Option<Arc<Stamp>>,
    /// Whether sessions keep weights in mapped files.
    pub(crate) shares: bool,
    /// What sessions of this model have packed. Clones of the model have it too, as they share the
    /// weights.
    pub(crate) weights: SharedWeights,
    /// Inputs of the main graph, and outputs that are the new values of the same state variables,
    /// by number: those of a training step.
    pub(crate) updates: Vec<(usize, usize)>,
}

impl Model {
    /// A model that is in no file, and has none beside it.
    pub(crate) fn in_memory(graph: graph::Model) -> Model {
        Model::with_data(
            graph,
            DataFiles::nowhere("the model was read from bytes without a directory"),
        )
    }

    /// A model with its data files.
    pub(crate) fn with_data(graph: graph::Model, data: DataFiles) -> Model {
        let data = Arc::new(data);
        let (weights, updates) = (SharedWeights::default(), Vec::new());
        Model { graph, data, file: None, path: None, mapped: None, shares: false, weights, updates }
    }

    /// Another graph over the same payloads and data files.
    pub(crate) fn with_graph(&self, graph: graph::Model) -> Model {
        let Model { data, path, mapped, weights, .. } = self;
        Model {
            graph,
            data: Arc::clone(data),
            file: self.file,
            path: path.clone(),
            mapped: mapped.clone(),
            shares: self.shares,
            weights: weights.clone(),
            updates: Vec::new(),
        }
    }

    /// The files that are mapped, as they were then.
    pub(crate) fn stamps(&self) -> Vec<Arc<Stamp>> {
        self.mapped.iter().cloned().chain(self.data.stamps()).collect()
    }

    /// Refuses mapped files whose content has been changed where it lies: values would come partly
    /// from before that and partly from after it.
    pub(crate) fn demand_unchanged_files(&self) -> Result<(), Error> {
        self.stamps().iter().try_for_each(|stamp| stamp.demand_same_content())
    }

    /// The model with names, texts and small tensors in memory of their own, so that its structure
    /// can be looked at whatever happens to its file. Large payloads stay where they are.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?.with_own_structure()?;
    /// assert_eq!(model.inputs()[0].name(), "image");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if memory is refused.
    pub fn with_own_structure(mut self) -> Result<Model, Error> {
        let Model { graph, weights, .. } = &mut self;
        let copied = graph.copy_small(sardonyx_ops::MAX_KNOWN, &mut |bytes| weights.copy_of(bytes));
        copied.map_err(no_memory)?;
        Ok(self)
    }

    /// Copies the model with everything in memory of its own, its data files included. Nothing that
    /// happens to the files later matters.
    pub(crate) fn in_own_memory(&self) -> Result<Model, Error> {
        self.demand_unchanged_files()?;
        let mut graph = self.graph.clone();
        let copied = graph.copy_sources(&mut |bytes| self.weights.copy_of(bytes));
        copied.map_err(no_memory)?;
        let external = graph.tensors().into_iter().filter_map(|id| {
            let stored = graph.stored(id);
            let reference = stored.is_external().then(|| graph.external_reference(stored));
            Some(reference?.ok()?.location)
        });
        let data = self.data.in_own_memory(external.collect(), &self.weights);
        let data = data.map_err(|what| Error::new(ErrorKind::ExternalData, what))?;
        self.demand_unchanged_files()?;
        let own = self.with_graph(graph);
        let updates = self.updates.clone();
        Ok(Model { data: Arc::new(data), mapped: None, shares: false, updates, ..own })
    }

    /// Opens a model file by mapping it into memory: fast whatever its size.
    ///
    /// The file must stay as it is while the model is in use: if another program truncates it,
    /// touching the missing part ends the process. [`Model::read_file`] has no such condition, and
    /// neither has a [`Session`](crate::Session) once it has been made. Data files beside the model
    /// are opened the same way, when a session needs them.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// assert_eq!(model.inputs()[0].name(), "image");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is no ONNX model.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        OpenOptions::new().open(path)
    }

    /// Opens a model file by reading it, and the data files beside it likewise.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::read_file(path)?;
    /// assert_eq!(model.outputs()[0].name(), "probabilities");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`open`](Model::open).
    pub fn read_file(path: impl AsRef<Path>) -> Result<Model, Error> {
        OpenOptions::new().access(Access::Read).open(path)
    }

    /// Reads a model from bytes, which it keeps. External data is found only with
    /// [`OpenOptions::directory`] or [`OpenOptions::resolver`].
    ///
    /// ```
    /// // ir_version 10, and a graph called g
    /// let model = sardonyx::Model::from_bytes(b"\x08\x0a\x3a\x03\x12\x01g".to_vec())?;
    /// assert_eq!(model.graph_name(), "g");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Format`] if they are no ONNX model.
    pub fn from_bytes(bytes: impl Into<Buffer>) -> Result<Model, Error> {
        OpenOptions::new().from_bytes(bytes)
    }

    /// Reads a model from a stream, to its end. A stream that nobody vouches for may never end:
    /// limit it with [`OpenOptions::max_bytes`].
    ///
    /// ```
    /// let bytes: &[u8] = b"\x08\x0a\x3a\x03\x12\x01g";
    /// let model = sardonyx::Model::from_reader(bytes)?;
    /// assert_eq!(model.node_count(), 0);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if reading fails, [`ErrorKind::Format`] if the bytes are no ONNX model.
    pub fn from_reader(reader: impl Read) -> Result<Model, Error> {
        OpenOptions::new().from_reader(reader)
    }

    /// Names the directory, instead of that of the model file, in which files with external data
    /// are looked for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if there is no such directory.
    pub(crate) fn look_in(&mut self, directory: impl AsRef<Path>) -> Result<(), Error> {
        let directory = directory.as_ref();
        let found = DataFiles::at(directory, DataOptions::default())
            .map_err(|error| io_error("cannot use the directory", directory, error))?;
        self.data = Arc::new(found);
        Ok(())
    }

    /// The bytes of the model's file: those that were read, if they were in canonical order.
    /// External data stays outside.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// assert!(model.to_bytes() == std::fs::read(path).unwrap());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        self.graph.to_bytes()
    }

    /// The bytes of the model's file in pieces, for whoever sends or digests them: payloads stay
    /// where they lie, and a model of a gigabyte takes as much memory as its nodes and names do.
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        self.graph.encoded()
    }

    /// Writes the model in its binary form, payloads straight from where they lie. External data
    /// stays outside. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Those of `sink`.
    pub fn write_to(&self, sink: &mut dyn io::Write) -> io::Result<u64> {
        self.graph.write_to(sink)
    }

    /// Writes the model to a file, whole or not at all: a file of that name is replaced only once
    /// the new one is complete. External data stays where it is, or comes along if the file is in
    /// another directory. [`SaveOptions`] has the choices.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// let copy = std::env::temp_dir().join(format!("sardonyx-copy-{}.onnx", std::process::id()));
    /// model.save(&copy)?;
    /// # assert!(std::fs::read(path).unwrap() == std::fs::read(&copy).unwrap());
    /// # std::fs::remove_file(copy).unwrap();
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the file cannot be written; what was there before is then unharmed.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        SaveOptions::new().save(self, path).map(drop)
    }

    /// The same model with the values of its data files inside. Values of mapped files stay where
    /// they lie, so that this takes no memory for them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ExternalData`] if a data file cannot be read; [`ErrorKind::Invalid`] for a
    /// model that was opened without its payloads.
    pub fn with_values_inside(&self) -> Result<Model, Error> {
        self.check_complete()?;
        let mut graph = self.graph.clone();
        embed(&mut graph, &self.data)?;
        Ok(self.with_graph(graph))
    }

    /// Refuses a model that was read without its payloads.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        if self.graph.is_skimmed() {
            Err(Error::new(ErrorKind::Invalid, "values of the model were skipped when it was read")
                .with_help("open it without skipping payloads"))
        } else {
            Ok(())
        }
    }

    /// Opens all data files and checks every reference into them.
    pub(crate) fn check_external_data(&self) -> Result<(), Error> {
        for id in self.graph.tensors() {
            let tensor = self.graph.stored(id);
            if tensor.is_external() {
                self.graph
                    .tensor(tensor, &*self.data)
                    .map_err(|error| Error::new(ErrorKind::ExternalData, error.to_string()))?;
            }
        }
        Ok(())
    }
}

fn no_memory(error: TensorError) -> Error {
    Error::new(ErrorKind::Run, error.to_string()).with_source(error)
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({:?}, {} nodes)", self.graph_name(), self.node_count())
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::new(ErrorKind::Io, error.to_string()).with_source(error)
    }
}
