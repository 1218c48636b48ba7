//! Sessions: models that are compiled and ready to run.

use std::borrow::Cow;
#[cfg(feature = "device")]
use std::collections::hash_map::RandomState;
use std::fmt;
#[cfg(feature = "device")]
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use sardonyx_model::{self as graph, Type};
use sardonyx_passes::{FunctionId, Fusion, NEWEST_IR_VERSION, Spot};
use sardonyx_runtime as runtime;
use sardonyx_runtime::{
    CompileError, CompileReport, ImageDecoder, Input, InputError, KeptState, MemoryBudget,
    NodeError, Optimization, Pending, Port, Precision, RunDetails, RunError, RunOptions,
    StatePorts, StateUse, StepInfo, ThreadPool,
};
use sardonyx_tensor::{Buffer, DataType, TensorView, TensorViewMut, Value};
use sardonyx_text::{ParseError, ParseOptions, parse_function};

use crate::custom::{Adapter, CustomOperator, make_schema};
#[cfg(feature = "device")]
use crate::devices::collectives::{self, Rank};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::external::WatchedFiles;
use crate::model::Model;
use crate::outputs::Outputs;
use crate::runner::{NamedValues, collect_inputs};
use crate::stamp::Stamp;
use crate::state::{StateBuilder, StatePair};

/// Connection with the sessions of other ranks, which only the feature `device` brings.
#[cfg(not(feature = "device"))]
type Rank = std::convert::Infallible;

/// A model made ready to run. Sessions can be shared between threads, and concurrent runs do not
/// affect each other. Cloning increments a reference count.
///
/// A session keeps no reference to the [`Model`] and no descriptor of its files. It copies the
/// weights that it needs from mapped files, so later changes to the files have no effect, unless
/// the model was opened with [`Access::Share`](crate::io::Access::Share). Sessions of one model
/// share these copies and the packed weights.
///
/// A node is resolved to the standard's operator of its name in the imported version of its domain,
/// and to a function of the model only if the standard has none.
///
/// ```
/// use sardonyx::{Model, RunOptions, Session, Tensor};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let session = Session::new(&Model::open(path)?)?;
/// // Three images of 8 x 8 pixels, grey from 0 to 1: [N, C, H, W].
/// let images = Tensor::from_vec([3, 1, 8, 8], vec![0.0f32; 3 * 64])?;
/// let outputs = session.run([("image", images)], &RunOptions::default())?;
/// assert_eq!(outputs.tensor("probabilities")?.dims(), &[3, 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Session(Arc<Inner>);

/// State that all clones of a session share.
struct Inner {
    /// Compiled graph with its plan and packed weights.
    compiled: runtime::Session,
    /// Names of the graph outputs. The [`Outputs`] of all runs share them.
    output_names: Vec<Arc<str>>,
    /// Stamps of the mapped files that hold weights of the session, taken when the files were
    /// mapped.
    mapped_files: Vec<Arc<Stamp>>,
    /// Connection to the sessions of other ranks; `None` if the model has no collectives.
    rank: Option<Rank>,
}

/// Builder that collects the options of a [`Session`]; see [`Session::builder`].
#[derive(Debug, Clone)]
pub struct SessionBuilder<'m> {
    model: &'m Model,
    choices: Choices,
}

/// Options of a session, independent of a model.
#[derive(Debug, Clone)]
pub(crate) struct Choices {
    /// Options of the compiler and of runs.
    pub(crate) options: runtime::Options,
    /// Model-local functions to add, as ONNX text.
    functions: Vec<String>,
    /// Message about the first custom operator that cannot be added; `None` if all were added.
    refused: Option<String>,
    /// Whether building fails for a model of an IR version above [`NEWEST_IR_VERSION`].
    refuses_newer_ir: bool,
    /// Connection to the sessions of other ranks; `None` for a session without a transport.
    pub(crate) rank: Option<Rank>,
}

impl Choices {
    /// Returns the builder of a session of `model` with these options.
    pub(crate) fn to_builder<'m>(&self, model: &'m Model) -> SessionBuilder<'m> {
        SessionBuilder { model, choices: self.clone() }
    }

    /// Returns the seed of random operators: the one that was set, or a random one.
    #[cfg(feature = "device")]
    pub(crate) fn seed(&self) -> u64 {
        self.options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }

    /// Adds a custom operator. If the operator cannot be added, records the message with which
    /// [`SessionBuilder::build`] fails.
    pub(crate) fn add_operator(
        &mut self,
        domain: &str,
        name: &str,
        operator: impl CustomOperator + 'static,
    ) {
        let schema = make_schema(domain, name, &operator);
        let operators = Arc::make_mut(&mut self.options.operators);
        let added = operators.add(schema, Arc::new(Adapter(operator)));
        self.refused = self.refused.take().or(added.err().map(|error| error.to_string()));
    }

    /// Returns `model` with the functions of these options added, and removes them from the
    /// options.
    #[cfg(feature = "device")]
    pub(crate) fn take_functions(&mut self, model: &Model) -> Result<Model, Error> {
        let functions = std::mem::take(&mut self.functions);
        Ok(model.with_graph(with_functions(&model.graph, functions)?.into_owned()))
    }
}

impl SessionBuilder<'_> {
    /// Returns the model that the session will run.
    #[cfg(feature = "device")]
    pub(crate) fn model(&self) -> &Model {
        self.model
    }

    /// Returns the session options set so far.
    pub(crate) fn choices(&self) -> &Choices {
        &self.choices
    }

    /// Returns the session options set so far, for changing them.
    #[cfg(feature = "device")]
    pub(crate) fn choices_mut(&mut self) -> &mut Choices {
        &mut self.choices
    }

    /// Sets the number of threads of a run, including the calling thread. The default is one for
    /// each processor that this process may use, up to 1024. Results do not depend on the number of
    /// threads.
    pub fn threads(mut self, threads: usize) -> Self {
        self.choices.options.threads = Some(threads);
        self
    }

    /// Sets the extent to which the graph may be rewritten before it runs. The default is
    /// [`Optimization::All`].
    pub fn optimization(mut self, optimization: Optimization) -> Self {
        self.choices.options.optimization = optimization;
        self
    }

    /// Sets the precision of matrix products and convolutions. The default is [`Precision::Exact`].
    pub fn precision(mut self, precision: Precision) -> Self {
        self.choices.options.precision = precision;
        self
    }

    /// Limits the bytes that the session and one run of it take together. Counted are values that
    /// are computed ahead of time, packed forms of values that the file does not store,
    /// intermediate values, outputs, copies of unaligned inputs, and scratch memory. Weights that
    /// the file stores are not counted, packed or not; neither are memory of the caller and some
    /// hundred KB for each thread, which do not grow with the model. A run that exceeds the limit
    /// fails before it allocates. Unlimited by default.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.choices.options.memory_limit = Some(bytes);
        self
    }

    /// Sets the seed for random operators without an attribute `seed`. Each run draws new numbers.
    /// Sessions of one model with equal seeds draw equal numbers in their first run, in their
    /// second, and so on, whatever the number of threads. The default is a seed from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.choices.options.seed = Some(seed);
        self
    }

    /// Makes a session for inspection by [`Session::steps`], [`Session::report`] and
    /// [`Session::details`]. No large value is computed, copied or packed, and runs fail.
    pub(crate) fn inspect_only(mut self) -> Self {
        self.choices.options.only_looks = true;
        self
    }

    /// Runs the session on the threads of a pool, which other sessions may share. By default all
    /// sessions of the process share one pool, with as many threads as the largest
    /// [`threads`](SessionBuilder::threads) of these sessions; sessions with fewer threads use a
    /// part of the pool.
    ///
    /// ```
    /// # use sardonyx::run::ThreadPool;
    /// # use sardonyx::{Model, Session};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = Model::open(path)?;
    /// let pool = ThreadPool::new(2);
    /// let first = Session::builder(&model).thread_pool(&pool).build()?;
    /// let second = Session::builder(&model).thread_pool(&pool).threads(1).build()?;
    /// assert_eq!((first.threads(), second.threads()), (2, 1));
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn thread_pool(mut self, pool: &ThreadPool) -> Self {
        self.choices.options.pool = Some(pool.clone());
        self
    }

    /// Counts the memory of the session and of its runs towards a budget, which other sessions may
    /// share. Like [`memory_limit`](SessionBuilder::memory_limit), but for all sessions with this
    /// budget and all their runs together. Making a session, or a run, fails before it allocates
    /// more than is left of the budget. A session with a budget keeps no memory for its next run.
    pub fn memory_budget(mut self, budget: &MemoryBudget) -> Self {
        self.choices.options.memory_budget = Some(budget.clone());
        self
    }

    /// Disables a rewrite of the compiler by its name; [`rewrites`](crate::rewrites) lists the
    /// names. Building the session fails for an unknown name.
    pub(crate) fn without_rewrite(mut self, name: impl Into<String>) -> Self {
        self.choices.options.without.push(name.into());
        self
    }

    /// Makes the session keep the text of its [program](Session::program) after the rewrite with
    /// this name, or before all rewrites for the name `lowering`.
    pub(crate) fn print_after(mut self, rewrite: impl Into<String>) -> Self {
        self.choices.options.print_after = Some(rewrite.into());
        self
    }

    /// Adds the implementation of an operator that the model calls by this domain and name. It
    /// replaces a function of the model, or an operator that ONNX Runtime adds to the standard. If
    /// the standard has an operator of this name, [`build`](SessionBuilder::build) fails with
    /// [`ErrorKind::Argument`].
    ///
    /// ```
    /// use sardonyx::ops::OperatorCall;
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"com.example\": 1]>
    ///      g (float[N] x) => (float s) { s = com.example.Total (x) }",
    /// )?;
    /// let total = |call: &mut OperatorCall<'_, '_>| {
    ///     let sum = call.slice::<f32>(0)?.iter().sum();
    ///     call.output_slice::<f32>(0, &[])?[0] = sum;
    ///     Ok(())
    /// };
    /// let session = Session::builder(&model).operator("com.example", "Total", total).build()?;
    /// let x = Tensor::from_vec([3], vec![1f32, 2.0, 4.0])?;
    /// let outputs = session.run([("x", x)], &RunOptions::default())?;
    /// assert_eq!(outputs.tensor("s")?.as_slice::<f32>()?, [7.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn operator(
        mut self,
        domain: &str,
        name: &str,
        operator: impl CustomOperator + 'static,
    ) -> Self {
        self.choices.add_operator(domain, name, operator);
        self
    }

    /// Sets the image decoder for nodes of the operator `ImageDecoder`. It replaces the decoder
    /// that the feature `images` brings for the formats of the standard. Without either,
    /// [`build`](SessionBuilder::build) fails for a model with that operator, with
    /// [`ErrorKind::Unsupported`].
    ///
    /// ```
    /// use sardonyx::ops::{EncodedImage, ImageDecoder, OperatorError, PixelFormat};
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// /// Decodes every file to one pixel: its first byte.
    /// #[derive(Debug)]
    /// struct FirstByte;
    ///
    /// struct Pixel(u8);
    ///
    /// impl ImageDecoder for FirstByte {
    ///     fn open<'a>(
    ///         &self,
    ///         encoded: &'a [u8],
    ///     ) -> Result<Box<dyn EncodedImage + 'a>, OperatorError> {
    ///         let first = encoded.first().ok_or("the file is empty")?;
    ///         Ok(Box::new(Pixel(*first)))
    ///     }
    /// }
    ///
    /// impl EncodedImage for Pixel {
    ///     fn width(&self) -> usize {
    ///         1
    ///     }
    ///
    ///     fn height(&self) -> usize {
    ///         1
    ///     }
    ///
    ///     fn working_bytes(&self) -> usize {
    ///         0
    ///     }
    ///
    ///     fn decode(
    ///         self: Box<Self>,
    ///         _: PixelFormat,
    ///         pixels: &mut [u8],
    ///     ) -> Result<(), OperatorError> {
    ///         pixels.fill(self.0);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (uint8[N] file) => (uint8[H, W, 3] image) { image = ImageDecoder (file) }",
    /// )?;
    /// let session = Session::builder(&model).image_decoder(FirstByte).build()?;
    /// let file = Tensor::from_vec([2], vec![7u8, 8])?;
    /// let outputs = session.run([("file", file)], &RunOptions::default())?;
    /// assert_eq!(outputs.tensor("image")?.as_slice::<u8>()?, [7, 7, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn image_decoder(mut self, decoder: impl ImageDecoder + 'static) -> Self {
        self.choices.options.images = Some(Arc::new(decoder));
        self
    }

    /// Adds a function in ONNX text, which the model calls by its domain and name. It replaces a
    /// function of the model with this name. If the text is not a function,
    /// [`build`](SessionBuilder::build) fails with [`ErrorKind::Format`].
    ///
    /// ```
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"com.example\": 1]>
    ///      g (float[N] x) => (float[N] y) { y = com.example.Twice (x) }",
    /// )?;
    /// let twice = "<domain: \"com.example\", opset_import: [\"\": 21]>
    ///              Twice (x) => (y) { y = Add (x, x) }";
    /// let session = Session::builder(&model).function(twice).build()?;
    /// let x = Tensor::from_vec([2], vec![1f32, 2.0])?;
    /// let outputs = session.run([("x", x)], &RunOptions::default())?;
    /// assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn function(mut self, text: impl Into<String>) -> Self {
        self.choices.functions.push(text.into());
        self
    }

    /// Refuses a model of an IR version that is newer than this release:
    /// [`build`](SessionBuilder::build) fails with [`ErrorKind::Invalid`]. By default such a model
    /// runs, and unknown fields are ignored.
    ///
    /// ```
    /// # use sardonyx::{Model, Session};
    /// let text = "<ir_version: 99, opset_import: [\"\": 21]>
    ///     g (float[N] x) => (float[N] y) { y = Abs (x) }";
    /// let model = Model::from_text(text)?;
    /// assert!(Session::new(&model).is_ok());
    /// assert!(Session::builder(&model).refuse_newer_ir().build().is_err());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn refuse_newer_ir(mut self) -> Self {
        self.choices.refuses_newer_ir = true;
        self
    }

    /// Fixes the size of a symbolic dimension of the inputs for all runs. The compiler can then use
    /// the size, and a run with another one fails. If no input has a dimension of that name,
    /// [`build`](SessionBuilder::build) fails with [`ErrorKind::Argument`].
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Self {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.choices.options.dims.push((name.into(), size));
        self
    }

    /// Builds the session: checks the model, reads its external data, compiles and plans the graph,
    /// packs weights.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] with the list of all unsupported operators,
    /// [`ErrorKind::Invalid`] if the model contradicts itself, [`ErrorKind::ExternalData`] if
    /// values outside the model's file cannot be read, [`ErrorKind::Io`] if a mapped file has been
    /// changed in place since the model was opened, [`ErrorKind::Argument`] for an option that does
    /// not fit the model or the machine, such as a size for a dimension that the inputs do not
    /// have, or too many threads; [`ErrorKind::Format`] if the text of a
    /// [function](SessionBuilder::function) has errors; [`ErrorKind::Run`] if memory cannot be
    /// allocated; [`ErrorKind::Worker`] if a [transport](SessionBuilder::transport) finds that the
    /// models of the ranks do not fit together.
    pub fn build(self) -> Result<Session, Error> {
        #[cfg_attr(
            not(feature = "device"),
            expect(clippy::clone_on_copy, reason = "without devices there is no rank to share")
        )]
        let rank = self.choices.rank.clone();
        let made = sardonyx_runtime::catch_panic(|| self.make());
        made.unwrap_or_else(|panic| {
            Err(report_to_ranks(rank.as_ref(), Error::from_caught_panic(panic)))
        })
    }

    /// Builds the session without catching panics.
    fn make(self) -> Result<Session, Error> {
        let SessionBuilder { model, mut choices } = self;
        if let Some(refused) = choices.refused.take() {
            return Err(Error::new(ErrorKind::Argument, refused));
        }
        let version = model.ir_version().filter(|version| *version > NEWEST_IR_VERSION);
        if let Some(version) = version.filter(|_| choices.refuses_newer_ir) {
            let message = format!(
                "the model has IR version {version}; the newest known version is {NEWEST_IR_VERSION}"
            );
            let help = "update Sardonyx, or export the model for an older IR version";
            return Err(Error::new(ErrorKind::Invalid, message).with_help(help));
        }
        let functions = std::mem::take(&mut choices.functions);
        #[cfg_attr(not(feature = "device"), expect(unused_mut, reason = "it has no collectives"))]
        let mut graph = with_functions(&model.graph, functions)?;
        let rank = choices.rank.take();
        #[cfg(feature = "device")]
        if rank.is_some() || choices.options.only_looks {
            let connected = collectives::connect(&mut graph, &mut choices, rank.as_ref());
            connected.map_err(|error| report_to_ranks(rank.as_ref(), error))?;
        }
        choices.options.state.clone_from(&model.state);
        choices.options.keeps_mapped = model.shares;
        model.demand_unchanged_files().map_err(|error| report_to_ranks(rank.as_ref(), error))?;
        let external = WatchedFiles::new(&model.data);
        let compiled = runtime::Session::compile(&graph, &external, &choices.options);
        let compiled = compiled.map_err(|error| {
            report_to_ranks(rank.as_ref(), compile_error(error, &external, model))
        })?;
        // A file that changed while it was read gave a mix of old and new bytes.
        model.demand_unchanged_files().map_err(|error| report_to_ranks(rank.as_ref(), error))?;
        let mapped_files = if model.shares { model.list_stamps() } else { Vec::new() };
        let output_names = compiled.outputs().iter().map(|port| Arc::from(port.name())).collect();
        Ok(Session(Arc::new(Inner { compiled, output_names, mapped_files, rank })))
    }
}

/// Returns the image decoder of sessions without [`SessionBuilder::image_decoder`]; `None` without
/// the feature `images`.
fn default_decoder() -> Option<Arc<dyn ImageDecoder>> {
    #[cfg(feature = "images")]
    return Some(Arc::new(crate::images::Images));
    #[cfg(not(feature = "images"))]
    return None;
}

impl Session {
    /// Compiles a model with default options.
    ///
    /// # Errors
    ///
    /// See [`SessionBuilder::build`].
    pub fn new(model: &Model) -> Result<Session, Error> {
        Session::builder(model).build()
    }

    /// Returns a builder that sets the options of a session of `model`.
    ///
    /// ```
    /// # use sardonyx::{Model, Session};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = Model::open(path)?;
    /// let session = Session::builder(&model).threads(1).build()?;
    /// assert_eq!(session.threads(), 1);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn builder(model: &Model) -> SessionBuilder<'_> {
        let mut options = runtime::Options::default();
        options.weights = model.weights.clone();
        options.images = default_decoder();
        let choices = Choices {
            options,
            functions: Vec::new(),
            refused: None,
            refuses_newer_ir: false,
            rank: None,
        };
        SessionBuilder { model, choices }
    }

    /// Returns the names and types of the inputs of a run, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.0.compiled.inputs()
    }

    /// Returns the type of the input called `name`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if no input has this name; the help lists the inputs.
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        self.0.compiled.input(name).map(|(_, port)| port).map_err(input_error)
    }

    /// Describes the required inputs, one a line, and the dimensions that [`SessionBuilder::dim`]
    /// has fixed; for messages.
    pub fn describe_inputs(&self) -> String {
        self.0.compiled.describe_inputs()
    }

    /// Returns the names and types of the outputs of a run, in the model's order. Inference may
    /// have refined the types beyond the declared ones.
    pub fn outputs(&self) -> &[Port] {
        self.0.compiled.outputs()
    }

    /// Returns the names of the outputs, in the model's order.
    #[cfg(feature = "device")]
    pub(crate) fn output_names(&self) -> &[Arc<str>] {
        &self.0.output_names
    }

    /// Returns the number of threads of a run, including the calling thread.
    pub fn threads(&self) -> usize {
        self.0.compiled.threads()
    }

    /// Runs the model on inputs, given by name in any order, and returns the outputs of the model.
    /// The options can end the run early: by a flag, at a deadline, after a number of iterations.
    ///
    /// Element types must be exactly those of [`Session::inputs`], and shapes must fit; nothing is
    /// converted. Two dims with one name must be equal, except for the items of sequences and maps,
    /// each of which has its own dims. An input of optional type accepts a value without its
    /// wrapping, and may be omitted to pass an empty optional. An empty sequence or optional fits
    /// any element type. A dense tensor may be given where a sparse one is declared and the
    /// reverse; an output that is declared sparse is a [`Value::Sparse`].
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use sardonyx::{ErrorKind, Model, RunOptions, Session, Tensor};
    /// // An endless loop.
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float x) => (float y) {
    ///         y = Loop (, , x) <
    ///             body = iteration (int64 i, bool c, float v) => (bool d, float w) {
    ///                 d = Constant <value = bool {1}> ()
    ///                 w = Add (v, v)
    ///             }>
    ///     }";
    /// let session = Session::new(&Model::from_text(text)?)?;
    /// let options = RunOptions::new().deadline(Instant::now() + Duration::from_millis(10));
    /// let error = session.run([("x", Tensor::scalar(1f32))], &options).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Stopped);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if an input is missing, unknown, given twice, or does not fit;
    /// [`ErrorKind::Run`] if an operator fails, for instance because two shapes do not go together;
    /// [`ErrorKind::Stopped`] if the options end the run; [`ErrorKind::Io`] if the model was opened
    /// with [`Access::Share`](crate::io::Access::Share) and one of its files has changed.
    pub fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        self.run_values(collect_inputs(inputs, self.inputs().iter()), options)
    }

    /// Runs the model on boxed inputs. [`Session::run`] is generic and only boxes its inputs, so
    /// that this function is compiled once.
    fn run_values(
        &self,
        inputs: NamedValues<'_>,
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let inputs = inputs.into_iter().map(|(name, value)| (name, Input::Value(value)));
        let mut outputs = Vec::with_capacity(self.outputs().len());
        self.demand_unchanged_files()?;
        let run = self.0.compiled.run_on(inputs, &mut outputs, options);
        run.map_err(|error| self.report_run_error(error))?;
        Ok(self.name_outputs(outputs))
    }

    /// Runs the model on borrowed inputs and writes the named outputs into memory of the caller;
    /// other outputs are dropped. After the first runs with inputs of some sizes, a run allocates
    /// nothing and never blocks on another run, except in operators that need scratch memory, such
    /// as those that widen narrow floats. Inputs that are strided or unaligned are copied first.
    ///
    /// ```
    /// # use sardonyx::{Model, RunOptions, Session, TensorView, TensorViewMut};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let session = Session::new(&Model::open(path)?)?;
    /// let images = vec![0.0f32; 3 * 64];
    /// let mut probabilities = vec![0.0f32; 3 * 10];
    /// let image = TensorView::from_slice([3, 1, 8, 8], &images)?;
    /// let output = TensorViewMut::from_slice([3, 10], &mut probabilities)?;
    /// let mut outputs = [("probabilities", output)];
    /// session.run_into(&[("image", image)], &mut outputs, &RunOptions::default())?;
    /// assert!(probabilities.iter().all(|probability| *probability > 0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if an input is missing, unknown, given twice, or does not fit, or if
    /// the memory of an output does not fit; [`ErrorKind::Run`] if an operator fails;
    /// [`ErrorKind::Stopped`] if the options end the run. After an error, outputs may have been
    /// partly written.
    pub fn run_into(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        self.demand_unchanged_files()?;
        let run = self.0.compiled.run_into_with(inputs, outputs, options);
        run.map_err(|error| self.report_run_error(error))
    }

    /// Runs the model on borrowed inputs, and writes outputs into memory that the caller provides
    /// once their sizes are known. `lend` is called before the first node runs, with the index, the
    /// element type and the dims of an output; the run writes the output into the returned memory,
    /// which must be dense and aligned. `lend` is not called for outputs whose size is not known by
    /// then, for empty ones, and for those that alias an input, a constant or another output.
    /// These, and outputs for which `lend` returns `None`, are returned as values in the model's
    /// order, with `None` for outputs that were written into lent memory.
    ///
    /// ```
    /// # use sardonyx::{Model, RunOptions, Session, TensorView, TensorViewMut};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let session = Session::new(&Model::open(path)?)?;
    /// let images = vec![0.0f32; 3 * 64];
    /// let image = TensorView::from_slice([3, 1, 8, 8], &images)?;
    /// let mut probabilities = vec![0.0f32; 100];
    /// let mut memory = Some(&mut probabilities[..]);
    /// let options = RunOptions::default();
    /// let outputs = session.run_lending(&[("image", image)], &options, |_, _, dims| {
    ///     let len = dims.iter().product();
    ///     let memory = memory.take()?.get_mut(..len)?;
    ///     TensorViewMut::from_slice(dims, memory).ok()
    /// })?;
    /// assert!(outputs[0].is_none());
    /// assert!(probabilities[..30].iter().all(|probability| *probability > 0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`]; [`ErrorKind::Input`] for memory that does not fit its
    /// output. After an error, lent memory may have been partly written.
    pub fn run_lending<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        options: &RunOptions<'_>,
        mut lend: impl FnMut(usize, DataType, &[usize]) -> Option<TensorViewMut<'v>>,
    ) -> Result<Vec<Option<Value>>, Error> {
        let mut outputs: Vec<Option<Value>> = self.outputs().iter().map(|_| None).collect();
        self.run_lending_to(&mut outputs, inputs, options, Some(&mut lend))?;
        Ok(outputs)
    }

    /// Runs the model like [`Session::run_lending`], and puts the outputs in places of the caller,
    /// one for each output of the model.
    pub(crate) fn run_lending_to<'v>(
        &self,
        outputs: &mut [Option<Value>],
        inputs: &'v [(&str, TensorView<'_>)],
        options: &RunOptions<'_>,
        lend: Option<&mut runtime::Lend<'_, 'v>>,
    ) -> Result<(), Error> {
        self.demand_unchanged_files()?;
        let run = self.0.compiled.run_lending(inputs, outputs, options, lend);
        run.map_err(|error| self.report_run_error(error))
    }

    /// Starts building the state of a series of runs, in which outputs become inputs of the next
    /// run: the keys and values of a decoder.
    ///
    /// ```no_run
    /// # use sardonyx::{Model, RunOptions, Session, Tensor};
    /// let session = Session::new(&Model::open("decoder.onnx")?)?;
    /// let mut state = session.state().batch(1).capacity(2048).build()?;
    /// for token in [17i64, 4, 256] {
    ///     let ids = Tensor::from_slice([1, 1], &[token])?;
    ///     let logits = state.run([("input_ids", ids)], &RunOptions::default())?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self) -> StateBuilder<'_> {
        StateBuilder::new(self)
    }

    /// Returns the compiled session.
    pub(crate) fn as_runtime(&self) -> &runtime::Session {
        &self.0.compiled
    }

    /// Runs the model on the inputs that a state does not keep, and returns the outputs that it
    /// does not keep.
    pub(crate) fn run_kept<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        state: &mut KeptState,
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let mut outputs = Vec::with_capacity(self.outputs().len());
        self.demand_unchanged_files()?;
        let run = self.0.compiled.run_kept(inputs, state, &mut outputs, options);
        run.map_err(|error| self.report_run_error(error))?;
        Ok(self.name_outputs(outputs))
    }

    /// Pairs the outputs of a run with their names, without those that are missing.
    fn name_outputs(&self, outputs: Vec<Option<Value>>) -> Outputs {
        let outputs = self.0.output_names.iter().cloned().zip(outputs);
        Outputs::new(outputs.filter_map(|(name, value)| Some((name, value?))).collect())
    }

    /// Begins a run on owned and borrowed inputs. Puts all outputs into `outputs` in the model's
    /// order, with `None` for the new values of [state](Session::list_state), which the returned
    /// run computes in the end.
    pub(crate) fn begin<'s, 'v, N: AsRef<str>>(
        &'s self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<Pending<'s>, Error> {
        self.demand_unchanged_files()?;
        let run = self.0.compiled.begin(inputs, outputs, options);
        run.map_err(|error| self.report_run_error(error))
    }

    /// Returns the ports of state whose new values a run computes in the end.
    pub(crate) fn list_state(&self) -> Vec<StatePorts> {
        self.0.compiled.list_state()
    }

    /// Returns the compiled steps in the order in which a run executes them.
    pub(crate) fn steps(&self) -> Vec<StepInfo> {
        self.0.compiled.steps()
    }

    /// Returns the instruction set of the kernels in lower case: `portable`, `avx2`, … The
    /// environment variable `SARDONYX_ISA` selects a lower one. If its value is not the name of an
    /// instruction set, making a session fails with [`ErrorKind::Argument`].
    pub fn instruction_set(&self) -> String {
        self.0.compiled.instruction_set()
    }

    /// Returns the counts and times that the compiler reports.
    pub(crate) fn report(&self) -> &CompileReport {
        self.0.compiled.report()
    }

    /// Computes sizes, operations and memory of each step of a run, without running the model.
    /// `inputs` pairs names of inputs with types; omitted inputs have their declared type.
    /// Quantities that depend on unknown sizes are unknown.
    ///
    /// ```
    /// # use sardonyx::{DataType, Model, Session, Type, tool::SessionExt};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let session = Session::new(&Model::open(path)?)?;
    /// let images = Type::tensor(DataType::Float, [2i64, 1, 8, 8]);
    /// let details = session.details([("image", images)])?;
    /// let multiply_adds: u64 = details.steps.iter().filter_map(|step| step.multiply_adds).sum();
    /// assert!(multiply_adds > 0 && details.arena_bytes > 0);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a name that no input has, and for types with which the model
    /// contradicts itself.
    pub(crate) fn details<I, N>(&self, inputs: I) -> Result<RunDetails, Error>
    where
        I: IntoIterator<Item = (N, Type)>,
        N: AsRef<str>,
    {
        let mut types: Vec<Option<Type>> = self.inputs().iter().map(|_| None).collect();
        for (name, ty) in inputs {
            let name = name.as_ref();
            let (index, _) = self.0.compiled.input(name).map_err(input_error)?;
            types[index] = Some(ty);
        }
        catch_panic(|| self.0.compiled.details(&types).map_err(run_error))
    }

    /// Explains how runs would keep the pairs of state that names and types show, for inputs of
    /// the given types: the name of each input, whether runs append to it in place, and reasons why
    /// they copy earlier rows.
    pub(crate) fn explain_state(
        &self,
        inputs: &[(&str, Type)],
    ) -> Result<Vec<(String, StateUse)>, Error> {
        self.explain_pairs(&StatePair::find(self.inputs(), self.outputs()), inputs)
    }

    /// Explains how runs would keep the given pairs of state, like [`Session::explain_state`].
    pub(crate) fn explain_pairs(
        &self,
        pairs: &[StatePair],
        inputs: &[(&str, Type)],
    ) -> Result<Vec<(String, StateUse)>, Error> {
        let types = self.inputs().iter().map(|port| {
            let given = inputs.iter().find(|(name, _)| *name == port.name())?;
            Some(given.1.clone())
        });
        let types: Vec<Option<Type>> = types.collect();
        let ports: Vec<StatePorts> =
            pairs.iter().map(|pair| pair.find_ports(self)).collect::<Result<_, _>>()?;
        if ports.is_empty() {
            return Ok(Vec::new());
        }
        let uses = self.0.compiled.explain_state(&ports, &types).map_err(run_error)?;
        Ok(pairs.iter().map(|pair| pair.input().to_string()).zip(uses).collect())
    }

    /// Returns the compiled program as text; `None` without [`SessionBuilder::print_after`]. The
    /// text has a line for each input, constant, step and output, and for each rewrite that nearly
    /// applied.
    pub(crate) fn program(&self) -> Option<&str> {
        self.0.compiled.program()
    }

    /// Returns the groups of nodes that were fused into one operator, and near misses with the
    /// reason.
    pub(crate) fn fusions(&self) -> &[Fusion] {
        self.0.compiled.fusions()
    }

    /// Returns pairs of names: a compiled step, and a node that is fused into the step.
    pub(crate) fn fused_steps(&self) -> Vec<(String, String)> {
        self.0.compiled.fused_steps()
    }

    /// Fails if a mapped file that holds weights has been changed since it was mapped.
    fn demand_unchanged_files(&self) -> Result<(), Error> {
        let same = self.0.mapped_files.iter().try_for_each(|stamp| stamp.demand_unchanged());
        same.map_err(|error| report_to_ranks(self.0.rank.as_ref(), error))
    }

    /// Converts the error of a run and sends it to the other ranks, so that they do not wait for
    /// this rank.
    pub(crate) fn report_run_error(&self, error: RunError) -> Error {
        report_to_ranks(self.0.rank.as_ref(), run_error(error))
    }
}

/// Sends an error to the other ranks, if there are any. Returns the error to report in this
/// process, which may be that of another rank.
fn report_to_ranks(rank: Option<&Rank>, error: Error) -> Error {
    match rank {
        #[cfg(feature = "device")]
        Some(rank) => rank.fail(error),
        #[cfg(not(feature = "device"))]
        Some(never) => match *never {},
        None => error,
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Session({} inputs, {} outputs, {} threads)",
            self.inputs().len(),
            self.outputs().len(),
            self.threads()
        )
    }
}

/// Maximum number of operators that the error message about unsupported operators lists.
const SHOWN_OPERATORS: usize = 5;

/// Maximum number of findings that the error message about an invalid model lists.
const SHOWN_FINDINGS: usize = 8;

/// Returns the model with functions parsed from ONNX text. Each replaces the function of the model
/// with the same domain, name and overload.
fn with_functions(
    model: &graph::Model,
    texts: Vec<String>,
) -> Result<Cow<'_, graph::Model>, Error> {
    let mut model = Cow::Borrowed(model);
    for text in texts {
        let model = model.to_mut();
        parse_function(model, Buffer::from_vec(text.into_bytes()), ParseOptions::default())
            .map_err(function_error)?;
        let Some((added, others)) = model.functions.split_last() else { continue };
        let added = FunctionId::of(model, added);
        let replaced = others.iter().position(|other| FunctionId::of(model, other) == added);
        if let Some(replaced) = replaced {
            model.functions.remove(replaced);
        }
    }
    Ok(model)
}

/// Makes the error about a text that does not parse as a function.
fn function_error(error: ParseError) -> Error {
    let message = format!("the text is not a function: {error}");
    Error::new(ErrorKind::Format, message).with_source(error)
}

/// Converts an error of the compiler into an [`Error`] with kind, place and help.
pub(crate) fn compile_error(
    error: CompileError,
    external: &WatchedFiles<'_>,
    model: &Model,
) -> Error {
    match &error {
        CompileError::Unsupported(operators) => {
            let count = operators.len();
            let s = if count == 1 { "" } else { "s" };
            let mut names: Vec<String> =
                operators.iter().take(SHOWN_OPERATORS).map(|found| found.full_name()).collect();
            names.dedup();
            let more = match count.saturating_sub(SHOWN_OPERATORS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!(
                "the model uses {count} operator{s} that this release does not support: {}{more}",
                names.join(", ")
            );
            let place = operators.first().map_or("", |found| found.place.as_str());
            Error::new(ErrorKind::Unsupported, message)
                .with_place(place)
                .with_unsupported(operators.clone())
        }
        CompileError::Invalid(findings) => {
            let mut lines: Vec<String> =
                findings.iter().take(SHOWN_FINDINGS).map(ToString::to_string).collect();
            if findings.len() > SHOWN_FINDINGS {
                lines.push(format!(
                    "… and at least {} more findings",
                    findings.len() - SHOWN_FINDINGS
                ));
            }
            let [only] = &findings[..] else {
                let message = format!("the model is not valid:\n  {}", lines.join("\n  "));
                return Error::new(ErrorKind::Invalid, message);
            };
            let message = format!("the model is not valid: {}", only.fact);
            let made = Error::new(ErrorKind::Invalid, message);
            let made = match only.place.spot {
                Spot::MODEL => made,
                _ => made.with_place(only.place.to_string()),
            };
            if only.advice.is_empty() { made } else { made.with_help(&*only.advice) }
        }
        CompileError::Constant(_) if external.has_failed() => {
            let made = Error::new(ErrorKind::ExternalData, error.to_string());
            let made = if model.data.can_have_files() {
                made.with_help("keep the model's data files in its directory, under the names that `sardonyx info` shows")
            } else {
                made.with_help("pass the model as a file in the directory of its data files, not as its bytes (Rust: OpenOptions::directory sets the directory)")
            };
            made.with_source(error)
        }
        CompileError::Constant(constant) => {
            let made = Error::new(ErrorKind::Invalid, error.to_string());
            let made = if constant.has_no_values {
                made.with_help("use a model with its weights: this file was saved without them, and names no data file that has them")
            } else {
                made
            };
            made.with_source(error)
        }
        CompileError::Node(error) => node_error(error),
        CompileError::Option(_) => {
            Error::new(ErrorKind::Argument, error.to_string()).with_source(error)
        }
        _ => Error::new(ErrorKind::Run, error.to_string()).with_source(error),
    }
}

/// Converts the runtime's error about an input or output of a run.
fn input_error(InputError { what, hint, inputs }: InputError) -> Error {
    let error = Error::new(ErrorKind::Input, what);
    match (hint, inputs) {
        (hint, Some(inputs)) => error.with_inputs(hint, &inputs),
        (Some(hint), None) => error.with_help(hint),
        (None, None) => error,
    }
}

/// Converts the runtime's error of a failed or stopped run.
fn run_error(error: RunError) -> Error {
    match error {
        RunError::Input(error) => input_error(error),
        RunError::Node(error) => node_error(&error),
        RunError::Stopped(stopped) => {
            let made = Error::new(ErrorKind::Stopped, stopped.reason.to_string());
            made.with_place(stopped.place()).with_source(*stopped)
        }
        RunError::Internal(internal) => Error::from_panic_in_run(*internal),
        other => Error::new(ErrorKind::Run, other.to_string()).with_source(other),
    }
}

/// Converts the error of a failed node, whose name becomes the place.
fn node_error(error: &NodeError) -> Error {
    let made = Error::new(ErrorKind::Run, error.failure()).with_place(error.place());
    made.with_source(error.clone())
}

/// Fails to compile unless sessions, trainers, models and errors can be shared between threads, and
/// sessions can be cloned.
const _: fn() = || {
    fn assert_shareable<T: Send + Sync + 'static>() {}
    fn assert_clone<T: Clone>() {}
    assert_clone::<Session>();
    assert_shareable::<Session>();
    #[cfg(feature = "training")]
    assert_shareable::<crate::Trainer>();
    assert_shareable::<Model>();
    assert_shareable::<Error>();
};
