//! A model made ready to run.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use sardonyx_model::{self as graph, Type};
use sardonyx_passes::{FunctionId, Fusion, NEWEST_IR_VERSION, Spot};
use sardonyx_runtime as runtime;
use sardonyx_runtime::{
    CompileError, CompileReport, ImageDecoder, Input, InputError, MemoryBudget, NodeError,
    Optimization, Port, Precision, RunDetails, RunError, RunOptions, StepInfo, ThreadPool, caught,
};
use sardonyx_tensor::{Buffer, DataType, TensorView, TensorViewMut, Value};
use sardonyx_text::{ParseError, ParseOptions, parse_function};

use crate::custom::{Adapter, CustomOperator, schema_of};
use crate::devices::collectives::{self, Rank};
use crate::error::{Error, ErrorKind, guarded};
use crate::external::Watched;
use crate::model::Model;
use crate::outputs::Outputs;
use crate::runner::{NamedValues, named};
use crate::stamp::Stamp;

/// A model made ready to run. Can be shared between threads; runs do not disturb each other. A
/// clone is the same session, at the cost of counting a reference.
///
/// A session keeps no reference to the [`Model`] and no descriptor of its files. What it needs of
/// mapped files it copies, so nothing that happens to them later matters, unless the model was
/// opened with [`Access::Share`](crate::Access::Share). Sessions of one model share these copies,
/// and what they have packed for their kernels.
///
/// A node calls the operator of its name that the imported version of its domain has in the
/// standard, and a function of the model of that name only where there is no such operator.
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
    compiled: runtime::Session,
    /// Names of the outputs, which the outputs of every run share.
    output_names: Vec<Arc<str>>,
    /// Mapped files that hold weights of the session, in their state at the time of mapping.
    mapped_files: Vec<Arc<Stamp>>,
    /// Connection to the sessions of other ranks, if the model has collectives.
    rank: Option<Rank>,
}

/// Options of a session that is about to be made; see [`Session::builder`].
#[derive(Debug, Clone)]
pub struct SessionBuilder<'m> {
    model: &'m Model,
    choices: Choices,
}

/// What was chosen for a session, of whatever model.
#[derive(Debug, Clone)]
pub(crate) struct Choices {
    pub(crate) options: runtime::Options,
    /// In the notation.
    functions: Vec<String>,
    /// The first operator that was refused, and why.
    refused: Option<String>,
    /// Whether a model of a version of the format that is not known is refused.
    refuses_newer_ir: bool,
    /// What connects the session with those of other ranks.
    pub(crate) rank: Option<Rank>,
}

impl Choices {
    /// A session of a model with these choices, about to be made.
    pub(crate) fn of_model<'m>(&self, model: &'m Model) -> SessionBuilder<'m> {
        SessionBuilder { model, choices: self.clone() }
    }

    /// The seed that was chosen, or any.
    pub(crate) fn seed(&self) -> u64 {
        self.options.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
    }

    /// Adds an operator, or notes why it cannot be.
    pub(crate) fn add_operator(
        &mut self,
        domain: &str,
        name: &str,
        operator: impl CustomOperator + 'static,
    ) {
        let schema = schema_of(domain, name, &operator);
        let operators = Arc::make_mut(&mut self.options.operators);
        let added = operators.add(schema, Arc::new(Adapter(operator)));
        self.refused = self.refused.take().or(added.err().map(|error| error.to_string()));
    }

    /// The graph of a model with the functions that were given, which are forgotten then.
    pub(crate) fn take_functions(&mut self, model: &Model) -> Result<Model, Error> {
        let functions = std::mem::take(&mut self.functions);
        Ok(model.with_graph(with_functions(&model.graph, functions)?.into_owned()))
    }
}

impl SessionBuilder<'_> {
    /// The model.
    pub(crate) fn model(&self) -> &Model {
        self.model
    }

    /// What was chosen.
    pub(crate) fn choices(&self) -> &Choices {
        &self.choices
    }

    /// What was chosen, to choose more.
    pub(crate) fn choices_mut(&mut self) -> &mut Choices {
        &mut self.choices
    }

    /// How many threads a run uses, the calling one included. By default one per processor that
    /// this process may use, and 1024 at most. The number changes no result.
    pub fn threads(mut self, threads: usize) -> Self {
        self.choices.options.threads = Some(threads);
        self
    }

    /// How much of the graph may change on the way to a program; all of it by default.
    pub fn optimization(mut self, optimization: Optimization) -> Self {
        self.choices.options.optimization = optimization;
        self
    }

    /// How exact products are; exact by default.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.choices.options.precision = precision;
        self
    }

    /// Bytes that the session and one run of it may take together: for values computed ahead of
    /// time, packed forms of what the file does not store, values between inputs and outputs,
    /// outputs, copies of inputs at odd addresses, and scratch memory. What the file stores does
    /// not count, packed or not, and neither does memory of the caller, nor what does not grow with
    /// the model: some hundred KB for each thread. A run that needs more of what counts fails
    /// before it takes more. No limit by default.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.choices.options.memory_limit = Some(bytes);
        self
    }

    /// What operators without an attribute `seed` draw random numbers by, other ones in each run.
    /// Sessions of a model that have the same seed draw the same numbers in their first run, in
    /// their second, and so on, with any number of threads. By default a seed from the system.
    pub fn seed(mut self, seed: u64) -> Self {
        self.choices.options.seed = Some(seed);
        self
    }

    /// Makes a session only to look at it: with [`Session::steps`], [`Session::report`] and
    /// [`Session::details`]. Nothing large is computed, copied or packed, and runs fail.
    pub(crate) fn only_look(mut self) -> Self {
        self.choices.options.only_looks = true;
        self
    }

    /// Runs on the threads of a pool, which other sessions may share. By default sessions share the
    /// threads of the process: as many as the largest [`threads`](SessionBuilder::threads) of all
    /// sessions, of which fewer take part in the runs of the others.
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

    /// Counts the memory of the session and of its runs in a budget, which other sessions may
    /// share. Like [`memory_limit`](SessionBuilder::memory_limit), but for all sessions with this
    /// budget and all their runs together. Making a session, or a run, fails before it takes more
    /// than is left at that moment. A session with a budget keeps no memory for its next run.
    pub fn memory_budget(mut self, budget: &MemoryBudget) -> Self {
        self.choices.options.memory_budget = Some(budget.clone());
        self
    }

    /// Leaves out a rewrite of the program; [`rewrites`](crate::rewrites) lists them. A session is
    /// not made if none has this name.
    pub(crate) fn without_rewrite(mut self, name: impl Into<String>) -> Self {
        self.choices.options.without.push(name.into());
        self
    }

    /// Has the session tell its [program](Session::program) after a rewrite; `lowering` is the
    /// program before any.
    pub(crate) fn print_after(mut self, rewrite: impl Into<String>) -> Self {
        self.choices.options.print_after = Some(rewrite.into());
        self
    }

    /// Gives the session the code of an operator, which the model uses under this domain and name.
    /// It takes the place of a function of the model, and of an operator that ONNX Runtime adds to
    /// the standard. Making the session fails if the standard has an operator of this name, or if
    /// the [schema](CustomOperator::schema) contradicts itself.
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

    /// Gives the session what decodes images for nodes of the operator `ImageDecoder`. With the
    /// feature `images` sessions have a decoder for the formats of the standard, and this takes its
    /// place. Making a session of a model with that operator fails if there is no decoder.
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

    /// Gives the session a function in the notation, which the model calls under its domain and
    /// name. It takes the place of a function of the model. Making the session fails if the text is
    /// not a function.
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

    /// Refuses a model of an IR version above [`NEWEST_IR_VERSION`]. By default it runs without the
    /// fields that are not known.
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

    /// Fixes the size of a symbolic dimension of the inputs for all runs. More is then known when
    /// the model is compiled, and a run with another size is refused. Making the session fails if
    /// no input has a size of that name.
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Self {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.choices.options.dims.push((name.into(), size));
        self
    }

    /// Makes the session: checks the model, reads its external data, converts, plans, packs
    /// weights.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] with the list of everything that cannot run,
    /// [`ErrorKind::Invalid`] if the model contradicts itself, [`ErrorKind::ExternalData`] if
    /// values outside the model's file cannot be had, [`ErrorKind::Io`] if the content of a mapped
    /// file has been changed where it lies since the model was opened, [`ErrorKind::Argument`] if a
    /// size is fixed that the inputs do not have, or there are too many threads;
    /// [`ErrorKind::Worker`] if a [transport](SessionBuilder::transport) finds that the ranks do
    /// not fit together.
    pub fn build(self) -> Result<Session, Error> {
        let rank = self.choices.rank.clone();
        let made = caught(|| self.make());
        made.unwrap_or_else(|panic| Err(told(rank.as_ref(), Error::internal(panic))))
    }

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
        let mut graph = with_functions(&model.graph, functions)?;
        let rank = choices.rank.take();
        if rank.is_some() || choices.options.only_looks {
            let connected = collectives::connect(&mut graph, &mut choices, rank.as_ref());
            connected.map_err(|error| told(rank.as_ref(), error))?;
        }
        choices.options.updates.clone_from(&model.updates);
        choices.options.keeps_mapped = model.shares;
        let demand_files = || model.demand_unchanged_files();
        demand_files().map_err(|error| told(rank.as_ref(), error))?;
        let external = Watched::new(&model.data);
        let compiled = runtime::Session::compile(&graph, &external, &choices.options);
        let compiled = compiled
            .map_err(|error| told(rank.as_ref(), compile_error(error, &external, model)))?;
        // What has been read by now is from before a change or after it.
        demand_files().map_err(|error| told(rank.as_ref(), error))?;
        let mapped_files = if model.shares { model.stamps() } else { Vec::new() };
        let output_names = compiled.outputs().iter().map(|port| Arc::from(port.name())).collect();
        Ok(Session(Arc::new(Inner { compiled, output_names, mapped_files, rank })))
    }
}

/// Why a run ends early.
enum Refused {
    Run(RunError),
    /// By who looks at its outputs.
    By(Error),
}

impl From<RunError> for Refused {
    fn from(error: RunError) -> Refused {
        Refused::Run(error)
    }
}

/// What decodes images in sessions that are given nothing else.
fn default_decoder() -> Option<Arc<dyn ImageDecoder>> {
    #[cfg(feature = "images")]
    return Some(Arc::new(crate::images::Images));
    #[cfg(not(feature = "images"))]
    return None;
}

impl Session {
    /// Makes a model ready to run.
    ///
    /// # Errors
    ///
    /// See [`SessionBuilder::build`].
    pub fn new(model: &Model) -> Result<Session, Error> {
        Session::builder(model).build()
    }

    /// Makes a model ready to run, with options.
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

    /// What a run takes, in the model's order.
    pub fn inputs(&self) -> &[Port] {
        self.0.compiled.inputs()
    }

    /// The input of a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a name that no input has; the help says which there are.
    pub fn input(&self, name: &str) -> Result<&Port, Error> {
        self.0.compiled.input(name).map(|(_, port)| port).map_err(input_error)
    }

    /// The inputs that a run must be given, one per line, and the sizes that were fixed when the
    /// session was made; for messages.
    pub fn describe_inputs(&self) -> String {
        self.0.compiled.describe_inputs()
    }

    /// What a run gives back, in the model's order. Types may say more than the file does.
    pub fn outputs(&self) -> &[Port] {
        self.0.compiled.outputs()
    }

    /// Names of the outputs, which the outputs of every run share.
    pub(crate) fn output_names(&self) -> &[Arc<str>] {
        &self.0.output_names
    }

    /// How many threads a run uses, the calling one included.
    pub fn threads(&self) -> usize {
        self.0.compiled.threads()
    }

    /// Runs the model on inputs, given by name in any order, and returns its outputs. The options
    /// can end the run early: by a flag, at a time, after a number of iterations. Names are only
    /// read, and not copied.
    ///
    /// Element types must be exactly those of [`Session::inputs`], and shapes must fit; nothing is
    /// converted. Two dims of the same name must be the same number, but for the items of sequences
    /// and maps, each of which has dims of its own. A value for an input of optional type may be
    /// given without its wrapping, or left out for an empty one. An empty sequence or optional fits
    /// whatever it could hold. A dense tensor may be given where a sparse one is declared, and the
    /// other way round; an output that is declared sparse is [`Value::Sparse`].
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
    /// with [`Access::Share`](crate::Access::Share) and one of its files has changed.
    pub fn run<I, N, V>(&self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        self.run_values(named(inputs, self.inputs().iter()), options)
    }

    /// Runs the model for [`Session::run`], which has an instance for each type of inputs.
    fn run_values(
        &self,
        inputs: NamedValues<'_>,
        options: &RunOptions<'_>,
    ) -> Result<Outputs, Error> {
        let inputs = inputs.into_iter().map(|(name, value)| (name, Input::Value(value)));
        let mut outputs = Vec::with_capacity(self.outputs().len());
        self.run_updating(inputs, &mut outputs, options, |_| Ok(()))?;
        let outputs = self.0.output_names.iter().cloned().zip(outputs);
        Ok(Outputs::new(outputs.filter_map(|(name, value)| Some((name, value?))).collect()))
    }

    /// Runs the model on inputs that stay with the caller, and writes outputs into memory of the
    /// caller. After the first runs with inputs of some sizes this allocates nothing and waits for
    /// no other run, but for operators that need memory of their own, such as those that widen
    /// narrow floats. Outputs that are not named are not returned. Inputs whose elements do not lie
    /// densely, at addresses of their type, are copied first.
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
    /// the memory of an output does; [`ErrorKind::Run`] if an operator fails;
    /// [`ErrorKind::Stopped`] if the options end the run. Output memory keeps what has been written
    /// by then.
    pub fn run_into(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        self.demand_files()?;
        let run = self.0.compiled.run_into_with(inputs, outputs, options);
        run.map_err(|error| self.run_error(error))
    }

    /// Runs the model on inputs that stay with the caller, and asks for the memory of outputs once
    /// their sizes are known. `lend` is called before the first node runs, with the number, the
    /// element type and the dims of an output; the output is written into what it returns, dense
    /// memory of that type at an address of it. Not asked for are outputs of which less is known by
    /// then, those without elements, and those that are an input, a constant or another output as
    /// well. These, and outputs for which `lend` returns `None`, are values in the answer, which is
    /// in the model's order and has `None` for all others.
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
    /// Those of [`Session::run`]; [`ErrorKind::Input`] for memory that does not fit its output.
    /// What has been written by then stays written.
    pub fn run_lending<'v>(
        &self,
        inputs: &'v [(&str, TensorView<'_>)],
        options: &RunOptions<'_>,
        mut lend: impl FnMut(usize, DataType, &[usize]) -> Option<TensorViewMut<'v>>,
    ) -> Result<Vec<Option<Value>>, Error> {
        let mut outputs = Vec::with_capacity(self.outputs().len());
        let run = self.0.compiled.run_lending(inputs, &mut outputs, options, &mut lend);
        run.map(|()| outputs).map_err(|error| self.run_error(error))
    }

    /// Runs the model on inputs of which some stay with the caller. `outputs` becomes all outputs,
    /// in the order of the model, but for those that are written over inputs once `accept` has
    /// accepted the others.
    pub(crate) fn run_updating<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
        accept: impl FnOnce(&mut Vec<Option<Value>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.demand_files()?;
        let accept = |outputs: &mut Vec<Option<Value>>| accept(outputs).map_err(Refused::By);
        let run = self.0.compiled.run_updating(inputs, outputs, options, accept);
        run.map_err(|refused| match refused {
            Refused::Run(error) => self.run_error(error),
            Refused::By(error) => error,
        })
    }

    /// Inputs, and outputs that can be written over them, by number.
    pub(crate) fn updates(&self) -> Vec<(usize, usize)> {
        self.0.compiled.updates()
    }

    /// The steps of a run, in order: what nodes have become.
    pub(crate) fn steps(&self) -> Vec<StepInfo> {
        self.0.compiled.steps()
    }

    /// The instruction set that kernels use, in lower case: `portable`, `avx2`, … The environment
    /// variable `SARDONYX_ISA` lowers it; a session is not made if that names none.
    pub fn instruction_set(&self) -> String {
        self.0.compiled.instruction_set()
    }

    /// What making the session did, in numbers.
    pub(crate) fn report(&self) -> &CompileReport {
        self.0.compiled.report()
    }

    /// What a run does for inputs of these types, by name: sizes, work and memory of each step.
    /// Nothing runs. Inputs that are left out have their declared type; what depends on sizes that
    /// are unknown is unknown.
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
    /// [`ErrorKind::Input`] for a name that is no input, and for types with which the model
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
        guarded(|| self.0.compiled.details(&types).map_err(run_error))
    }

    /// The program as text, if [`SessionBuilder::print_after`] asked for it: a line for each input,
    /// constant, step and output, and for what rewrites nearly did.
    pub(crate) fn program(&self) -> Option<&str> {
        self.0.compiled.program()
    }

    /// What was recognised as a larger operator, and what nearly was, with the reason.
    pub(crate) fn fusions(&self) -> &[Fusion] {
        self.0.compiled.fusions()
    }

    /// Which nodes are fused into the step of another: the other, then the node.
    pub(crate) fn fused_steps(&self) -> Vec<(String, String)> {
        self.0.compiled.fused_steps()
    }

    /// Refuses files in which weights are kept that are not what they were.
    fn demand_files(&self) -> Result<(), Error> {
        let same = self.0.mapped_files.iter().try_for_each(|stamp| stamp.demand_same());
        same.map_err(|error| told(self.0.rank.as_ref(), error))
    }

    /// The error of a run that failed. Other ranks are told.
    fn run_error(&self, error: RunError) -> Error {
        told(self.0.rank.as_ref(), run_error(error))
    }
}

/// Tells the other ranks of an error, if there are any; gives what is to be said of it here.
fn told(rank: Option<&Rank>, error: Error) -> Error {
    match rank {
        Some(rank) => rank.fail(error),
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

/// The number of operators that the message about unsupported ones names.
const SHOWN_OPERATORS: usize = 5;

/// How many findings an error message shows.
const SHOWN_FINDINGS: usize = 8;

/// The model with functions in the notation, in place of those that are called the same.
fn with_functions(
    model: &graph::Model,
    texts: Vec<String>,
) -> Result<Cow<'_, graph::Model>, Error> {
    let mut model = Cow::Borrowed(model);
    for text in texts {
        let model = model.to_mut();
        parse_function(model, Buffer::from_vec(text.into_bytes()), ParseOptions::default())
            .map_err(not_a_function)?;
        let same = |one: &graph::Function, other: &graph::Function| {
            FunctionId::of(model, one) == FunctionId::of(model, other)
        };
        if let Some((added, others)) = model.functions.split_last()
            && let Some(replaced) = others.iter().position(|other| same(other, added))
        {
            model.functions.remove(replaced);
        }
    }
    Ok(model)
}

fn not_a_function(error: ParseError) -> Error {
    let message = format!("the text is not a function: {error}");
    Error::new(ErrorKind::Format, message).with_source(error)
}

pub(crate) fn compile_error(error: CompileError, external: &Watched<'_>, model: &Model) -> Error {
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
                lines.push(format!("… and at least {} more", findings.len() - SHOWN_FINDINGS));
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
        CompileError::Constant(_) if external.failed() => {
            let made = Error::new(ErrorKind::ExternalData, error.to_string());
            let made = if model.data.has_place() {
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

fn input_error(InputError { what, help }: InputError) -> Error {
    let error = Error::new(ErrorKind::Input, what);
    match help {
        Some(help) => error.with_help(help),
        None => error,
    }
}

fn run_error(error: RunError) -> Error {
    match error {
        RunError::Input(error) => input_error(error),
        RunError::Node(error) => node_error(&error),
        RunError::Stopped(stopped) => {
            let made = Error::new(ErrorKind::Stopped, stopped.reason.to_string());
            made.with_place(stopped.place()).with_source(*stopped)
        }
        RunError::Internal(internal) => Error::internal_in_run(*internal),
        other => Error::new(ErrorKind::Run, other.to_string()).with_source(other),
    }
}

fn node_error(error: &NodeError) -> Error {
    let made = Error::new(ErrorKind::Run, error.failure()).with_place(error.place());
    made.with_source(error.clone())
}

/// Fails to compile unless sessions can be shared, moved to threads and cloned.
const _: fn() = || {
    fn shared<T: Send + Sync + 'static>() {}
    fn cloned<T: Clone>() {}
    cloned::<Session>();
    shared::<Session>();
    shared::<crate::Trainer>();
    shared::<Model>();
    shared::<Error>();
};
