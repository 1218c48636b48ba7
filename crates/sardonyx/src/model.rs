//! A model in memory: opened, read, serialized and saved. `inspect` has the methods that list its
//! content.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sardonyx_model as graph;
use sardonyx_proto::Encoded;
use sardonyx_runtime::{SharedWeights, StatePorts};
use sardonyx_tensor::{Buffer, TensorError};

use crate::error::{Error, ErrorKind};
use crate::external::{DataFiles, DataOptions};
use crate::load::OpenOptions;
use crate::open::{Access, io_error};
use crate::save::{SaveOptions, embed};
use crate::stamp::{MappedFile, Stamp};

/// An ONNX model in memory.
///
/// Holds the nodes, names and types of the file. Weights are not copied: they stay in the mapped
/// file, or in the buffer that the model was read from. A clone has its own structure and shares
/// the weights.
#[derive(Clone)]
pub struct Model {
    /// Header, graphs and functions of the model.
    pub(crate) graph: graph::Model,
    /// External data files of the model.
    pub(crate) data: Arc<DataFiles>,
    /// Source that holds the bytes of the model file, if the file is binary protobuf.
    pub(crate) file: Option<graph::SourceId>,
    /// Path of the model file, with symlinks resolved; `None` for a model without a file.
    pub(crate) path: Option<PathBuf>,
    /// The model file, if it is mapped.
    pub(crate) mapped: Option<MappedFile>,
    /// Whether sessions of this model read weights in place in mapped files instead of copying
    /// them.
    pub(crate) shares: bool,
    /// Cache of weights that sessions of this model and of its clones have packed.
    pub(crate) weights: SharedWeights,
    /// State variables of a training step: the main graph input that takes the state, and the main
    /// graph output that returns the next state.
    pub(crate) state: Vec<StatePorts>,
}

impl Model {
    /// Makes a model from parsed graphs that has neither a file nor external data files.
    pub(crate) fn in_memory(graph: graph::Model) -> Model {
        Model::with_data(
            graph,
            DataFiles::unavailable("the model was read from bytes without a directory"),
        )
    }

    /// Makes a model from parsed graphs and their external data files.
    pub(crate) fn with_data(graph: graph::Model, data: DataFiles) -> Model {
        let data = Arc::new(data);
        let (weights, state) = (SharedWeights::default(), Vec::new());
        Model { graph, data, file: None, path: None, mapped: None, shares: false, weights, state }
    }

    /// Makes a model from other graphs that use the tensors and data files of this model. The new
    /// model has no state.
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
            state: Vec::new(),
        }
    }

    /// Returns the mapped files of the model: its own, and the data files that have been opened.
    pub(crate) fn list_mapped_files(&self) -> Vec<MappedFile> {
        self.mapped.iter().cloned().chain(self.data.list_mapped_files()).collect()
    }

    /// Returns the identity, size and times that each mapped file of the model had when it was
    /// mapped.
    pub(crate) fn list_stamps(&self) -> Vec<Arc<Stamp>> {
        self.list_mapped_files().into_iter().map(|file| file.stamp).collect()
    }

    /// Fails if a mapped file of the model was overwritten in place since it was mapped: tensors
    /// would mix old and new elements.
    pub(crate) fn demand_unchanged_files(&self) -> Result<(), Error> {
        self.list_stamps().iter().try_for_each(|stamp| stamp.demand_unchanged_content())
    }

    /// Copies names, texts and small tensors out of the mapped model file, so that the structure of
    /// the model stays readable even if the file changes. Large tensors stay in the file.
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
        copied.map_err(memory_error)?;
        Ok(self)
    }

    /// Copies the model and its external data into private memory, so that later changes of the
    /// files have no effect.
    pub(crate) fn copy_to_own_memory(&self) -> Result<Model, Error> {
        self.demand_unchanged_files()?;
        let mut graph = self.graph.clone();
        let copied = graph.copy_sources(&mut |bytes| self.weights.copy_of(bytes));
        copied.map_err(memory_error)?;
        let external = graph.tensors().into_iter().filter_map(|id| {
            let stored = graph.stored_tensor(id);
            let reference = stored.is_external().then(|| graph.external_reference(stored));
            Some(reference?.ok()?.location)
        });
        let data = self.data.copy_to_own_memory(external.collect(), &self.weights);
        let data = data.map_err(|what| Error::new(ErrorKind::ExternalData, what))?;
        self.demand_unchanged_files()?;
        let own = self.with_graph(graph);
        let state = self.state.clone();
        Ok(Model { data: Arc::new(data), mapped: None, shares: false, state, ..own })
    }

    /// Opens a model file by mapping it into memory, which is fast whatever its size.
    ///
    /// The file must not change while the model is in use: if another program truncates it,
    /// touching the missing part ends the process (SIGBUS). [`Model::read_file`] has no such
    /// condition, and neither has a [`Session`](crate::Session) once it has been built. External
    /// data files are mapped too, when a session needs them.
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
    /// [`ErrorKind::Io`] if the file cannot be read, [`ErrorKind::Format`] if it is not an ONNX
    /// model.
    pub fn open(path: impl AsRef<Path>) -> Result<Model, Error> {
        OpenOptions::new().open(path)
    }

    /// Opens a model file by reading it into memory. External data files are read too, when a
    /// session needs them.
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

    /// Reads a model from the bytes of a model file, which stay in memory. External data is found
    /// only with [`OpenOptions::directory`] or [`OpenOptions::resolver`].
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
    /// [`ErrorKind::Format`] if the bytes are not an ONNX model.
    pub fn from_bytes(bytes: impl Into<Buffer>) -> Result<Model, Error> {
        OpenOptions::new().from_bytes(bytes)
    }

    /// Reads a model from a stream until EOF. An untrusted stream may never end: bound it with
    /// [`OpenOptions::max_bytes`].
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
    /// [`ErrorKind::Io`] if reading fails, [`ErrorKind::Format`] if the bytes are not an ONNX
    /// model.
    pub fn from_reader(reader: impl Read) -> Result<Model, Error> {
        OpenOptions::new().from_reader(reader)
    }

    /// Sets the directory in which external data files are looked up, in place of the model file's
    /// directory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] if the directory does not exist or cannot be opened.
    pub(crate) fn set_data_directory(&mut self, directory: impl AsRef<Path>) -> Result<(), Error> {
        let directory = directory.as_ref();
        let found = DataFiles::from_directory(directory, DataOptions::default())
            .map_err(|error| io_error("cannot use the directory", directory, error))?;
        self.data = Arc::new(found);
        Ok(())
    }

    /// Serializes the model as binary protobuf. External data stays in its data files. The bytes
    /// are equal to those that the model was read from if their protobuf fields were in canonical
    /// order.
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

    /// Serializes the model as a list of pieces of binary protobuf, to be sent or hashed. Tensor
    /// data is borrowed, so a model of one gigabyte needs only the memory of its nodes and names.
    pub(crate) fn encode(&self) -> Encoded<'_> {
        self.graph.to_encoded()
    }

    /// Writes the model as binary protobuf, without copying tensor data in memory. External data
    /// stays in its data files. Returns the number of bytes written.
    ///
    /// # Errors
    ///
    /// The error that `sink` returns.
    pub fn write_to(&self, sink: &mut dyn io::Write) -> io::Result<u64> {
        self.graph.write_to(sink)
    }

    /// Saves the model to a file atomically: an existing file is replaced only once the new one is
    /// complete. External data files stay as they are, or are copied if the new file is in another
    /// directory. [`SaveOptions`] has more choices.
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
    /// [`ErrorKind::Io`] if the model file cannot be written; an existing file is then unchanged.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        SaveOptions::new().save(self, path).map(drop)
    }

    /// Returns the model with the tensors of its external data files embedded. Tensors in mapped
    /// files are referenced, not copied, so they take no memory.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ExternalData`] if a data file cannot be read; [`ErrorKind::Invalid`] for a
    /// model that was opened without its tensor data.
    pub fn with_values_inside(&self) -> Result<Model, Error> {
        self.check_complete()?;
        let mut graph = self.graph.clone();
        embed(&mut graph, &self.data)?;
        Ok(self.with_graph(graph))
    }

    /// Fails if the model was opened without its tensor data, so that it has no weights.
    pub(crate) fn check_complete(&self) -> Result<(), Error> {
        if self.graph.is_skimmed() {
            Err(Error::new(ErrorKind::Invalid, "the model was opened without its tensor values")
                .with_help("open the model without skipping payloads"))
        } else {
            Ok(())
        }
    }

    /// Opens all external data files of the model, and checks that the byte range of each tensor
    /// lies within its data file.
    pub(crate) fn check_external_data(&self) -> Result<(), Error> {
        for id in self.graph.tensors() {
            let tensor = self.graph.stored_tensor(id);
            if tensor.is_external() {
                self.graph
                    .tensor(tensor, &*self.data)
                    .map_err(|error| Error::new(ErrorKind::ExternalData, error.to_string()))?;
            }
        }
        Ok(())
    }
}

/// Converts a failed memory allocation to [`ErrorKind::Run`].
fn memory_error(error: TensorError) -> Error {
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
