//! Sessions, the object `OrtSession`: opening models, their inputs, outputs and metadata.

use std::ffi::{OsString, c_char};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sardonyx::tool::{ModelExt, SessionExt};
use sardonyx::value::Buffer;
use sardonyx::{ErrorKind, Model, Port, Session as Engine, Type};
use sardonyx_ort::ports::{InputKind, input_kind};
use sardonyx_ort::profile::{Profile, Recorder};
use sardonyx_ort::{NO_MODEL_VERSION, Opened, Opening, Source, Status as Code};

use crate::clock::read_local_time;
use crate::environment::{Environment, Log};
use crate::failure::{Error, StatusPointer, answer, argument, demand, of_tensor, release};
use crate::handles::{Handle, Object, give};
use crate::memory::AllocatorHandle;
use crate::options::SessionOptions;
use crate::pointers::{Array, Out, PathText, Text};
use crate::types::TypeInfo;

/// Session that C code holds, `OrtSession`. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Session(pub(crate) Arc<Opens>);

impl Object for Session {
    const NAME: &'static str = "OrtSession";
}

/// Session with what calls need beside it.
#[derive(Debug)]
pub(crate) struct Opens {
    pub(crate) session: Engine,
    pub(crate) model: Model,
    pub(crate) log: Arc<Log>,
    /// Session for inputs in which sizes of one name differ.
    independent: OnceLock<Engine>,
    making: Making,
    /// Indices of the inputs that callers give.
    pub(crate) required: Vec<usize>,
    /// Indices of the inputs that have a default.
    overridable: Vec<usize>,
    /// Whether all inputs are tensors that are never missing.
    pub(crate) has_tensors_only: bool,
    pub(crate) profile: Option<Profile>,
    /// Start of the session, in nanoseconds since 1970.
    began: u64,
}

/// Options with which an engine is made of a model.
#[derive(Debug, Clone)]
struct Making {
    threads: Option<usize>,
    sizes: Vec<(String, usize)>,
    seed: Option<u64>,
    pool: Option<sardonyx::run::ThreadPool>,
}

impl Making {
    fn make(&self, model: &Model) -> Result<Engine, sardonyx::Error> {
        let mut builder = Engine::builder(model);
        match (&self.pool, self.threads) {
            (Some(pool), _) => builder = builder.thread_pool(pool),
            (None, Some(threads)) => builder = builder.threads(threads),
            (None, None) => {}
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        for (name, size) in &self.sizes {
            builder = builder.dim(name, *size);
        }
        builder.build()
    }
}

impl Opens {
    /// Returns the session in which sizes that share a name may differ, and makes it first.
    ///
    /// # Errors
    ///
    /// The model cannot run that way.
    pub(crate) fn independent(&self) -> Result<&Engine, sardonyx::Error> {
        if let Some(session) = self.independent.get() {
            return Ok(session);
        }
        let mut model = self.model.clone();
        let fixed: Vec<&str> = self.making.sizes.iter().map(|(name, _)| name.as_str()).collect();
        model.forget_size_names(&fixed);
        let session = self.making.make(&model)?;
        self.log.warn_once(
            "inputs differ in size in dimensions that share a name in the model: the run treats \
             the sizes of these dimensions as independent",
        );
        Ok(self.independent.get_or_init(|| session))
    }

    /// Returns an input that callers give.
    fn input(&self, index: usize) -> Result<&Port, Error> {
        let port = self.required.get(index).map(|place| &self.session.inputs()[*place]);
        port.ok_or_else(|| no_port("input", index, self.required.len()))
    }

    /// Returns an input with a default.
    fn overridable(&self, index: usize) -> Result<&Port, Error> {
        let port = self.overridable.get(index).map(|place| &self.session.inputs()[*place]);
        port.ok_or_else(|| no_port("overridable initializer", index, self.overridable.len()))
    }

    fn output(&self, index: usize) -> Result<&Port, Error> {
        let outputs = self.session.outputs();
        outputs.get(index).ok_or_else(|| no_port("output", index, outputs.len()))
    }

    fn describe(&self, port: &Port) -> TypeInfo {
        TypeInfo::from_port(port, &self.model.list_invalid_symbols(port.name()))
    }
}

fn no_port(what: &str, index: usize, count: usize) -> Error {
    argument(format!("there is no {what} {index} of {count}"))
}

/// Opens a model.
///
/// # Errors
///
/// The model cannot be opened or run.
pub(crate) fn open(
    env: Handle<Environment>,
    source: &Source,
    options: Handle<SessionOptions>,
) -> Result<Session, Error> {
    let env = env.get()?;
    let none = sardonyx_ort::SessionOptions::default();
    let given = options.optional()?;
    let options = given.map_or(&none, |given| &given.options);
    if given.is_some_and(|given| given.is_canceled) {
        let what = "the options cancel the making of sessions";
        return Err(Error::new(Code::ModelLoadCanceled, ErrorKind::Stopped, what));
    }
    let log = match given.and_then(|given| given.sink) {
        Some(sink) => Arc::new(env.log.with_sink(sink)),
        None => env.log.clone(),
    };
    for warning in options.warnings() {
        log.warn_once(&warning);
    }
    let (recorder, started) = (Arc::new(Recorder::default()), Instant::now());
    let mut opening = Opening::start(source, options)?;
    for initializer in opening.list_replaced()? {
        opening.replace(&initializer.name, &initializer.value)?;
    }
    let Opened { model, threads, sizes, seed, has_denoted_sizes: _ } = opening.finish()?;
    let shares = given.is_some_and(|given| given.shares_threads);
    demand(!shares || env.pool.is_some(), || {
        "the session is to share threads, but the environment has none: make it with \
         CreateEnvWithGlobalThreadPools"
            .to_string()
    })?;
    let pool = env.pool.clone().filter(|_| shares);
    let making = Making { threads, sizes, seed, pool };
    let session = making.make(&model);
    let session =
        session.map_err(|error| Error::from_sardonyx(Code::of_model(&error, source), &error))?;
    let required = list_inputs(&session, InputKind::Input);
    let overridable = list_inputs(&session, InputKind::OverridableInitializer);
    let profile = options.profile_prefix();
    let profile = profile.map(|prefix| Profile::new(prefix, recorder, started.elapsed()));
    let mut ports = session.inputs().iter();
    let has_tensors_only = ports.all(|port| matches!(port.ty(), None | Some(Type::Tensor(_))));
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Ok(Session(Arc::new(Opens {
        session,
        model,
        log,
        independent: OnceLock::new(),
        making,
        required,
        overridable,
        has_tensors_only,
        profile,
        began: u64::try_from(began.as_nanos()).unwrap_or(u64::MAX),
    })))
}

/// Returns the indices of the inputs of a kind.
fn list_inputs(session: &Engine, kind: InputKind) -> Vec<usize> {
    let ports = session.inputs().iter().enumerate();
    ports.filter(|(_, port)| input_kind(port) == kind).map(|(index, _)| index).collect()
}

/// Copies the bytes of a model, which the caller may free once the session is there.
fn copy_bytes(bytes: Array<u8>, len: usize) -> Result<Source, Error> {
    let bytes = bytes.read(len, "bytes")?;
    Ok(Source::Bytes(Buffer::copy_of(bytes).map_err(of_tensor)?))
}

pub(crate) extern "C" fn create_session(
    env: Handle<Environment>,
    path: PathText,
    options: Handle<SessionOptions>,
    out: Out<*mut Session>,
) -> StatusPointer {
    answer("CreateSession", || {
        let out = out.demand()?;
        let source = Source::Path(path.path("path of the model")?);
        out.set(give(open(env, &source, options)?))
    })
}

pub(crate) extern "C" fn create_session_from_array(
    env: Handle<Environment>,
    bytes: Array<u8>,
    len: usize,
    options: Handle<SessionOptions>,
    out: Out<*mut Session>,
) -> StatusPointer {
    answer("CreateSessionFromArray", || {
        let out = out.demand()?;
        out.set(give(open(env, &copy_bytes(bytes, len)?, options)?))
    })
}

/// Container of weights that sessions share, `OrtPrepackedWeightsContainer`. Sessions pack their
/// weights on their own, so it is empty.
#[derive(Debug)]
pub(crate) struct PackedWeights {
    /// Gives each object an address of its own.
    _place: u8,
}

impl Object for PackedWeights {
    const NAME: &'static str = "OrtPrepackedWeightsContainer";
}

pub(crate) extern "C" fn create_prepacked_weights_container(
    out: Out<*mut PackedWeights>,
) -> StatusPointer {
    answer("CreatePrepackedWeightsContainer", || {
        let out = out.demand()?;
        out.set(give(PackedWeights { _place: 0 }))
    })
}

pub(crate) extern "C" fn release_prepacked_weights_container(container: Handle<PackedWeights>) {
    release("ReleasePrepackedWeightsContainer", container);
}

pub(crate) extern "C" fn create_session_with_prepacked_weights_container(
    env: Handle<Environment>,
    path: PathText,
    options: Handle<SessionOptions>,
    container: Handle<PackedWeights>,
    out: Out<*mut Session>,
) -> StatusPointer {
    answer("CreateSessionWithPrepackedWeightsContainer", || {
        container.get()?;
        let out = out.demand()?;
        let source = Source::Path(path.path("path of the model")?);
        out.set(give(open(env, &source, options)?))
    })
}

pub(crate) extern "C" fn create_session_from_array_with_prepacked_weights_container(
    env: Handle<Environment>,
    bytes: Array<u8>,
    len: usize,
    options: Handle<SessionOptions>,
    container: Handle<PackedWeights>,
    out: Out<*mut Session>,
) -> StatusPointer {
    answer("CreateSessionFromArrayWithPrepackedWeightsContainer", || {
        container.get()?;
        let out = out.demand()?;
        out.set(give(open(env, &copy_bytes(bytes, len)?, options)?))
    })
}

pub(crate) extern "C" fn release_session(session: Handle<Session>) {
    release("ReleaseSession", session);
}

pub(crate) extern "C" fn session_get_input_count(
    session: Handle<Session>,
    out: Out<usize>,
) -> StatusPointer {
    answer("SessionGetInputCount", || out.set(session.get()?.0.required.len()))
}

pub(crate) extern "C" fn session_get_output_count(
    session: Handle<Session>,
    out: Out<usize>,
) -> StatusPointer {
    answer("SessionGetOutputCount", || out.set(session.get()?.0.session.outputs().len()))
}

pub(crate) extern "C" fn session_get_overridable_initializer_count(
    session: Handle<Session>,
    out: Out<usize>,
) -> StatusPointer {
    answer("SessionGetOverridableInitializerCount", || out.set(session.get()?.0.overridable.len()))
}

pub(crate) extern "C" fn session_get_input_type_info(
    session: Handle<Session>,
    index: usize,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("SessionGetInputTypeInfo", || {
        let out = out.demand()?;
        let session = &session.get()?.0;
        out.set(give(session.describe(session.input(index)?)))
    })
}

pub(crate) extern "C" fn session_get_output_type_info(
    session: Handle<Session>,
    index: usize,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("SessionGetOutputTypeInfo", || {
        let out = out.demand()?;
        let session = &session.get()?.0;
        out.set(give(session.describe(session.output(index)?)))
    })
}

pub(crate) extern "C" fn session_get_overridable_initializer_type_info(
    session: Handle<Session>,
    index: usize,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("SessionGetOverridableInitializerTypeInfo", || {
        let out = out.demand()?;
        let session = &session.get()?.0;
        out.set(give(session.describe(session.overridable(index)?)))
    })
}

pub(crate) extern "C" fn session_get_input_name(
    session: Handle<Session>,
    index: usize,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("SessionGetInputName", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(session.get()?.0.input(index)?.name())?)
    })
}

pub(crate) extern "C" fn session_get_output_name(
    session: Handle<Session>,
    index: usize,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("SessionGetOutputName", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(session.get()?.0.output(index)?.name())?)
    })
}

pub(crate) extern "C" fn session_get_overridable_initializer_name(
    session: Handle<Session>,
    index: usize,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("SessionGetOverridableInitializerName", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(session.get()?.0.overridable(index)?.name())?)
    })
}

pub(crate) extern "C" fn session_end_profiling(
    session: Handle<Session>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("SessionEndProfiling", || {
        let out = out.demand()?;
        let session = &session.get()?.0;
        let Some(profile) = &session.profile else { return out.set(allocator.copy_text("")?) };
        let ended = profile.end(&session.session.steps(), read_local_time(), 0);
        let name: Option<OsString> = ended.map_err(|error| {
            let what = format!("{}: {}", error.name.to_string_lossy(), error.reason);
            Error::new(Code::Fail, ErrorKind::Io, what)
        })?;
        out.set(allocator.copy_text(&name.unwrap_or_default().to_string_lossy())?)
    })
}

pub(crate) extern "C" fn session_get_profiling_start_time_ns(
    session: Handle<Session>,
    out: Out<u64>,
) -> StatusPointer {
    answer("SessionGetProfilingStartTimeNs", || out.set(session.get()?.0.began))
}

/// Metadata of a model, `OrtModelMetadata`.
#[derive(Debug)]
pub(crate) struct Metadata(Model);

impl Object for Metadata {
    const NAME: &'static str = "OrtModelMetadata";
}

pub(crate) extern "C" fn session_get_model_metadata(
    session: Handle<Session>,
    out: Out<*mut Metadata>,
) -> StatusPointer {
    answer("SessionGetModelMetadata", || {
        let out = out.demand()?;
        out.set(give(Metadata(session.get()?.0.model.clone())))
    })
}

pub(crate) extern "C" fn release_model_metadata(metadata: Handle<Metadata>) {
    release("ReleaseModelMetadata", metadata);
}

pub(crate) extern "C" fn model_metadata_get_producer_name(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataGetProducerName", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(&metadata.get()?.0.producer_name())?)
    })
}

pub(crate) extern "C" fn model_metadata_get_graph_name(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataGetGraphName", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(&metadata.get()?.0.graph_name())?)
    })
}

pub(crate) extern "C" fn model_metadata_get_domain(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataGetDomain", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(&metadata.get()?.0.domain())?)
    })
}

pub(crate) extern "C" fn model_metadata_get_description(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataGetDescription", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(&metadata.get()?.0.doc())?)
    })
}

pub(crate) extern "C" fn model_metadata_get_graph_description(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataGetGraphDescription", || {
        let out = out.demand()?;
        out.set(allocator.copy_text(&metadata.get()?.0.graph_doc())?)
    })
}

pub(crate) extern "C" fn model_metadata_get_version(
    metadata: Handle<Metadata>,
    out: Out<i64>,
) -> StatusPointer {
    answer("ModelMetadataGetVersion", || {
        out.set(metadata.get()?.0.model_version().unwrap_or(NO_MODEL_VERSION))
    })
}

pub(crate) extern "C" fn model_metadata_lookup_custom_metadata_map(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    key: Text,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("ModelMetadataLookupCustomMetadataMap", || {
        let out = out.demand()?;
        match metadata.get()?.0.metadata_value(&key.read("key")?) {
            Some(value) => out.set(allocator.copy_text(&value)?),
            None => out.set(std::ptr::null_mut()),
        }
    })
}

pub(crate) extern "C" fn model_metadata_get_custom_metadata_map_keys(
    metadata: Handle<Metadata>,
    allocator: AllocatorHandle,
    out: Out<*mut *mut c_char>,
    count: Out<i64>,
) -> StatusPointer {
    answer("ModelMetadataGetCustomMetadataMapKeys", || {
        let (out, count) = (out.demand()?, count.demand()?);
        let pairs = metadata.get()?.0.metadata();
        if pairs.is_empty() {
            out.set(std::ptr::null_mut())?;
            return count.set(0);
        }
        let keys = pairs.iter().map(|(key, _)| allocator.copy_text(key));
        let keys: Result<Vec<*mut c_char>, Error> = keys.collect();
        let keys = keys?;
        out.set(allocator.copy(&keys)?)?;
        count.set(i64::try_from(keys.len()).unwrap_or(i64::MAX))
    })
}

pub(crate) extern "C" fn set_ep_dynamic_options(
    session: Handle<Session>,
    _keys: Array<Text>,
    _values: Array<Text>,
    _count: usize,
) -> StatusPointer {
    answer("SetEpDynamicOptions", || {
        session.get()?;
        Err(sardonyx_ort::refused::find("dynamic options", &[])
            .unwrap_or_else(|| argument("options of a session cannot be changed after it is made")))
    })
}

/// Returns the version that the model imports, as sessions are not edited.
pub(crate) extern "C" fn session_get_opset_for_domain(
    session: Handle<Session>,
    domain: Text,
    out: Out<i32>,
) -> StatusPointer {
    answer("SessionGetOpsetForDomain", || {
        let domain = domain.read("domain")?;
        let sets = session.get()?.0.model.opsets();
        let found = sets.iter().find(|set| set.domain == domain);
        let found =
            found.ok_or_else(|| argument(format!("the model imports no domain '{domain}'")))?;
        out.set(i32::try_from(found.version).unwrap_or(i32::MAX))
    })
}
