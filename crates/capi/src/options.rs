//! Options of sessions and of runs, the objects `OrtSessionOptions` and `OrtRunOptions`.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use sardonyx::value::Buffer;
use sardonyx::{ErrorKind, StopFlag, Tensor};
use sardonyx_ort::options::{OPTIMIZED_MODEL, OptionValue, PROFILE_PREFIX, PROFILING, THREADS};
use sardonyx_ort::{Status as Code, providers, refused};

use crate::environment::{LogFunction, Sink};
use crate::failure::{Error, StatusPointer, answer, answer_or, argument, release, to_c_string};
use crate::handles::{Handle, Object, give};
use crate::pairs::Pairs;
use crate::pointers::{Array, Out, PathText, Text, copy_text};
use crate::providers::Device;
use crate::values::Value;

/// Options of a session, `OrtSessionOptions`.
#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    pub(crate) options: sardonyx_ort::SessionOptions<Tensor>,
    /// Function that takes the messages of the session; `None` for that of the environment.
    pub(crate) sink: Option<Sink>,
    /// Whether the session uses the threads of the environment.
    pub(crate) shares_threads: bool,
    /// Flag that ends the making of sessions.
    pub(crate) is_canceled: bool,
}

impl Object for SessionOptions {
    const NAME: &'static str = "OrtSessionOptions";
}

/// Options of a run, `OrtRunOptions`.
#[derive(Debug, Default)]
pub(crate) struct RunOptions {
    pub(crate) stop: StopFlag,
    log_level: Option<c_int>,
    log_verbosity: c_int,
    tag: CString,
    entries: BTreeMap<String, CString>,
}

impl Object for RunOptions {
    const NAME: &'static str = "OrtRunOptions";
}

impl SessionOptions {
    fn set(&mut self, name: &str, value: OptionValue) -> Result<(), Error> {
        self.options.values.set(name, value)
    }
}

fn int(number: c_int) -> OptionValue {
    OptionValue::Int(number.into())
}

fn refusal(key: &str, name: &str) -> Error {
    refused::find(key, &[name]).unwrap_or_else(|| {
        Error::new(Code::NotImplemented, ErrorKind::Unsupported, format!("{key} is not supported"))
    })
}

pub(crate) extern "C" fn create_session_options(out: Out<*mut SessionOptions>) -> StatusPointer {
    answer("CreateSessionOptions", || {
        let out = out.demand()?;
        let options = sardonyx_ort::SessionOptions::default();
        out.set(give(SessionOptions {
            options,
            sink: None,
            shares_threads: false,
            is_canceled: false,
        }))
    })
}

pub(crate) extern "C" fn clone_session_options(
    options: Handle<SessionOptions>,
    out: Out<*mut SessionOptions>,
) -> StatusPointer {
    answer("CloneSessionOptions", || {
        let out = out.demand()?;
        out.set(give(options.get()?.clone()))
    })
}

pub(crate) extern "C" fn release_session_options(options: Handle<SessionOptions>) {
    release("ReleaseSessionOptions", options);
}

pub(crate) extern "C" fn set_optimized_model_file_path(
    mut options: Handle<SessionOptions>,
    path: PathText,
) -> StatusPointer {
    answer("SetOptimizedModelFilePath", || {
        let path = path.path("path of the optimized model")?.into_os_string();
        options.change()?.set(OPTIMIZED_MODEL, OptionValue::Text(path))
    })
}

pub(crate) extern "C" fn set_session_execution_mode(
    mut options: Handle<SessionOptions>,
    mode: c_int,
) -> StatusPointer {
    answer("SetSessionExecutionMode", || options.change()?.set("execution_mode", int(mode)))
}

pub(crate) extern "C" fn get_session_execution_mode(
    options: Handle<SessionOptions>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("GetSessionExecutionMode", || {
        let value = options.get()?.options.values.get("execution_mode");
        out.set(c_int::from(value == Some(OptionValue::Int(1))))
    })
}

pub(crate) extern "C" fn enable_profiling(
    mut options: Handle<SessionOptions>,
    prefix: PathText,
) -> StatusPointer {
    answer("EnableProfiling", || {
        let prefix = prefix.path("prefix of the profile")?.into_os_string();
        let options = options.change()?;
        options.set(PROFILE_PREFIX, OptionValue::Text(prefix))?;
        options.set(PROFILING, OptionValue::Bool(true))
    })
}

pub(crate) extern "C" fn disable_profiling(mut options: Handle<SessionOptions>) -> StatusPointer {
    answer("DisableProfiling", || options.change()?.set(PROFILING, OptionValue::Bool(false)))
}

pub(crate) extern "C" fn enable_mem_pattern(mut options: Handle<SessionOptions>) -> StatusPointer {
    answer("EnableMemPattern", || {
        options.change()?.set("enable_mem_pattern", OptionValue::Bool(true))
    })
}

pub(crate) extern "C" fn disable_mem_pattern(mut options: Handle<SessionOptions>) -> StatusPointer {
    answer("DisableMemPattern", || {
        options.change()?.set("enable_mem_pattern", OptionValue::Bool(false))
    })
}

pub(crate) extern "C" fn get_mem_pattern_enabled(
    options: Handle<SessionOptions>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("GetMemPatternEnabled", || {
        let value = options.get()?.options.values.get("enable_mem_pattern");
        out.set(c_int::from(value == Some(OptionValue::Bool(true))))
    })
}

pub(crate) extern "C" fn enable_cpu_mem_arena(
    mut options: Handle<SessionOptions>,
) -> StatusPointer {
    answer("EnableCpuMemArena", || {
        options.change()?.set("enable_cpu_mem_arena", OptionValue::Bool(true))
    })
}

pub(crate) extern "C" fn disable_cpu_mem_arena(
    mut options: Handle<SessionOptions>,
) -> StatusPointer {
    answer("DisableCpuMemArena", || {
        options.change()?.set("enable_cpu_mem_arena", OptionValue::Bool(false))
    })
}

pub(crate) extern "C" fn set_session_log_id(
    mut options: Handle<SessionOptions>,
    name: Text,
) -> StatusPointer {
    answer("SetSessionLogId", || {
        let name = name.read("name of the log")?.into_owned().into();
        options.change()?.set("logid", OptionValue::Text(name))
    })
}

pub(crate) extern "C" fn set_session_log_verbosity_level(
    mut options: Handle<SessionOptions>,
    level: c_int,
) -> StatusPointer {
    answer("SetSessionLogVerbosityLevel", || {
        options.change()?.set("log_verbosity_level", int(level))
    })
}

pub(crate) extern "C" fn set_session_log_severity_level(
    mut options: Handle<SessionOptions>,
    level: c_int,
) -> StatusPointer {
    answer("SetSessionLogSeverityLevel", || options.change()?.set("log_severity_level", int(level)))
}

pub(crate) extern "C" fn set_session_graph_optimization_level(
    mut options: Handle<SessionOptions>,
    level: c_int,
) -> StatusPointer {
    answer("SetSessionGraphOptimizationLevel", || {
        options.change()?.set("graph_optimization_level", int(level))
    })
}

pub(crate) extern "C" fn set_intra_op_num_threads(
    mut options: Handle<SessionOptions>,
    threads: c_int,
) -> StatusPointer {
    answer("SetIntraOpNumThreads", || options.change()?.set(THREADS, int(threads)))
}

pub(crate) extern "C" fn set_inter_op_num_threads(
    mut options: Handle<SessionOptions>,
    threads: c_int,
) -> StatusPointer {
    answer("SetInterOpNumThreads", || options.change()?.set("inter_op_num_threads", int(threads)))
}

pub(crate) extern "C" fn set_deterministic_compute(
    mut options: Handle<SessionOptions>,
    is_on: bool,
) -> StatusPointer {
    answer("SetDeterministicCompute", || {
        options.change()?.set("use_deterministic_compute", OptionValue::Bool(is_on))
    })
}

pub(crate) extern "C" fn disable_per_session_threads(
    mut options: Handle<SessionOptions>,
) -> StatusPointer {
    answer("DisablePerSessionThreads", || {
        let options = options.change()?;
        options.shares_threads = true;
        options.set("use_per_session_threads", OptionValue::Bool(false))
    })
}

pub(crate) extern "C" fn set_user_logging_function(
    mut options: Handle<SessionOptions>,
    function: Option<LogFunction>,
    parameter: *mut c_void,
) -> StatusPointer {
    answer("SetUserLoggingFunction", || {
        options.change()?.sink = Sink::new(function, parameter);
        Ok(())
    })
}

pub(crate) extern "C" fn session_options_set_load_cancellation_flag(
    mut options: Handle<SessionOptions>,
    is_canceled: bool,
) -> StatusPointer {
    answer("SessionOptionsSetLoadCancellationFlag", || {
        options.change()?.is_canceled = is_canceled;
        Ok(())
    })
}

pub(crate) extern "C" fn register_custom_ops_library(
    options: Handle<SessionOptions>,
    path: Text,
    _library: Out<*mut c_void>,
) -> StatusPointer {
    answer("RegisterCustomOpsLibrary", || {
        options.get()?;
        Err(refusal("custom operators", &path.read("path of the library")?))
    })
}

pub(crate) extern "C" fn register_custom_ops_library_v2(
    options: Handle<SessionOptions>,
    path: PathText,
) -> StatusPointer {
    answer("RegisterCustomOpsLibrary_V2", || {
        options.get()?;
        let path: PathBuf = path.path("path of the library")?;
        Err(refusal("custom operators", &path.display().to_string()))
    })
}

pub(crate) extern "C" fn add_free_dimension_override(
    mut options: Handle<SessionOptions>,
    denotation: Text,
    size: i64,
) -> StatusPointer {
    answer("AddFreeDimensionOverride", || {
        let denotation = denotation.read("denotation")?.into_owned();
        let size = to_size(size)?;
        options.change()?.options.denoted.push((denotation, size));
        Ok(())
    })
}

pub(crate) extern "C" fn add_free_dimension_override_by_name(
    mut options: Handle<SessionOptions>,
    name: Text,
    size: i64,
) -> StatusPointer {
    answer("AddFreeDimensionOverrideByName", || {
        let name = name.read("name of the size")?.into_owned();
        let size = to_size(size)?;
        options.change()?.options.fix_size(name, size);
        Ok(())
    })
}

fn to_size(size: i64) -> Result<usize, Error> {
    usize::try_from(size).map_err(|_| argument(format!("the size is {size}, which is negative")))
}

pub(crate) extern "C" fn add_session_config_entry(
    mut options: Handle<SessionOptions>,
    key: Text,
    value: Text,
) -> StatusPointer {
    answer("AddSessionConfigEntry", || {
        let (key, value) = (key.read("key")?.into_owned(), value.read("value")?.into_owned());
        options.change()?.options.values.add_entry(key, value.into());
        Ok(())
    })
}

pub(crate) extern "C" fn has_session_config_entry(
    options: Handle<SessionOptions>,
    key: Text,
    out: Out<c_int>,
) -> StatusPointer {
    answer("HasSessionConfigEntry", || {
        let found = options.get()?.options.values.entry(&key.read("key")?).is_ok();
        out.set(found.into())
    })
}

pub(crate) extern "C" fn get_session_config_entry(
    options: Handle<SessionOptions>,
    key: Text,
    place: Out<c_char>,
    size: Out<usize>,
) -> StatusPointer {
    answer("GetSessionConfigEntry", || {
        let value = options.get()?.options.values.entry(&key.read("key")?)?;
        copy_text(&value.to_string_lossy(), place, size)
    })
}

pub(crate) extern "C" fn get_session_options_config_entries(
    options: Handle<SessionOptions>,
    out: Out<*mut Pairs>,
) -> StatusPointer {
    answer("GetSessionOptionsConfigEntries", || {
        let out = out.demand()?;
        let mut pairs = Pairs::default();
        for (key, value) in options.get()?.options.values.entries() {
            pairs.set(key, &value.to_string_lossy());
        }
        out.set(give(pairs))
    })
}

pub(crate) extern "C" fn add_initializer(
    mut options: Handle<SessionOptions>,
    name: Text,
    value: Handle<Value>,
) -> StatusPointer {
    answer("AddInitializer", || {
        let name = name.read("name of the initializer")?.into_owned();
        let tensor = value.get()?.to_engine()?.into_tensor();
        let tensor = tensor.map_err(|_| argument("an initializer is a tensor"))?;
        options.change()?.options.add_initializer(name, tensor)
    })
}

pub(crate) extern "C" fn add_external_initializers(
    mut options: Handle<SessionOptions>,
    names: Array<Text>,
    values: Array<Handle<Value>>,
    count: usize,
) -> StatusPointer {
    answer("AddExternalInitializers", || {
        let names = names.read(count, "names")?.iter();
        let names: Result<Vec<String>, Error> =
            names.map(|name| Ok(name.read("name of an initializer")?.into_owned())).collect();
        // Copies: the values may be released before the session.
        let copies = values.read(count, "values")?.iter().map(|value| {
            let tensor = value.get()?.to_engine()?.into_tensor();
            let tensor = tensor.map_err(|_| argument("an initializer is a tensor"))?;
            tensor.view().to_tensor().map_err(crate::failure::of_tensor)
        });
        let copies: Result<Vec<Tensor>, Error> = copies.collect();
        options.change()?.options.add_external_initializers(names?, copies?)
    })
}

pub(crate) extern "C" fn add_external_initializers_from_memory(
    mut options: Handle<SessionOptions>,
    names: Array<PathText>,
    contents: Array<Array<u8>>,
    lengths: Array<usize>,
    count: usize,
) -> StatusPointer {
    answer("AddExternalInitializersFromFilesInMemory", || {
        let names = names.read(count, "names")?;
        let contents = contents.read(count, "buffers")?;
        let lengths = lengths.read(count, "lengths")?;
        let options = options.change()?;
        for ((name, content), length) in names.iter().zip(contents).zip(lengths) {
            let name = name.path("name of a file")?.to_string_lossy().into_owned();
            // A copy: the caller may free the memory once the session is there.
            let content = Buffer::copy_of(content.read(*length, "bytes")?);
            options.options.add_file(name, content.map_err(crate::failure::of_tensor)?);
        }
        Ok(())
    })
}

pub(crate) extern "C" fn session_options_append_execution_provider(
    options: Handle<SessionOptions>,
    name: Text,
    _keys: Array<Text>,
    _values: Array<Text>,
    _count: usize,
) -> StatusPointer {
    answer("SessionOptionsAppendExecutionProvider", || {
        options.get()?;
        let name = name.read("name of the execution provider")?;
        if name == "CPU" { Ok(()) } else { providers::demand_provider(&name) }
    })
}

pub(crate) extern "C" fn session_options_append_execution_provider_v2(
    options: Handle<SessionOptions>,
    env: Handle<crate::environment::Environment>,
    devices: Array<Handle<Device>>,
    count: usize,
    _keys: Array<Text>,
    _values: Array<Text>,
    _option_count: usize,
) -> StatusPointer {
    answer("SessionOptionsAppendExecutionProvider_V2", || {
        options.get()?;
        env.get()?;
        devices.read(count, "devices")?.iter().try_for_each(|device| device.get().map(|_| ()))
    })
}

/// Policies choose among devices; there is one, so each chooses it.
pub(crate) extern "C" fn session_options_set_ep_selection_policy(
    options: Handle<SessionOptions>,
    _policy: c_int,
) -> StatusPointer {
    answer("SessionOptionsSetEpSelectionPolicy", || options.get().map(|_| ()))
}

pub(crate) extern "C" fn create_run_options(out: Out<*mut RunOptions>) -> StatusPointer {
    answer("CreateRunOptions", || {
        let out = out.demand()?;
        out.set(give(RunOptions::default()))
    })
}

pub(crate) extern "C" fn release_run_options(options: Handle<RunOptions>) {
    release("ReleaseRunOptions", options);
}

pub(crate) extern "C" fn run_options_set_run_log_verbosity_level(
    mut options: Handle<RunOptions>,
    level: c_int,
) -> StatusPointer {
    answer("RunOptionsSetRunLogVerbosityLevel", || {
        options.change()?.log_verbosity = level;
        Ok(())
    })
}

pub(crate) extern "C" fn run_options_set_run_log_severity_level(
    mut options: Handle<RunOptions>,
    level: c_int,
) -> StatusPointer {
    answer("RunOptionsSetRunLogSeverityLevel", || {
        options.change()?.log_level = Some(level);
        Ok(())
    })
}

pub(crate) extern "C" fn run_options_set_run_tag(
    mut options: Handle<RunOptions>,
    tag: Text,
) -> StatusPointer {
    answer("RunOptionsSetRunTag", || {
        options.change()?.tag = to_c_string(&tag.read("tag")?);
        Ok(())
    })
}

pub(crate) extern "C" fn run_options_get_run_log_verbosity_level(
    options: Handle<RunOptions>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("RunOptionsGetRunLogVerbosityLevel", || out.set(options.get()?.log_verbosity))
}

pub(crate) extern "C" fn run_options_get_run_log_severity_level(
    options: Handle<RunOptions>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("RunOptionsGetRunLogSeverityLevel", || out.set(options.get()?.log_level.unwrap_or(-1)))
}

pub(crate) extern "C" fn run_options_get_run_tag(
    options: Handle<RunOptions>,
    out: Out<*const c_char>,
) -> StatusPointer {
    answer("RunOptionsGetRunTag", || out.set(options.get()?.tag.as_ptr()))
}

pub(crate) extern "C" fn run_options_set_terminate(options: Handle<RunOptions>) -> StatusPointer {
    answer("RunOptionsSetTerminate", || {
        options.get()?.stop.stop();
        Ok(())
    })
}

pub(crate) extern "C" fn run_options_unset_terminate(options: Handle<RunOptions>) -> StatusPointer {
    answer("RunOptionsUnsetTerminate", || {
        options.get()?.stop.reset();
        Ok(())
    })
}

pub(crate) extern "C" fn add_run_config_entry(
    mut options: Handle<RunOptions>,
    key: Text,
    value: Text,
) -> StatusPointer {
    answer("AddRunConfigEntry", || {
        let (key, value) = (key.read("key")?.into_owned(), to_c_string(&value.read("value")?));
        options.change()?.entries.insert(key, value);
        Ok(())
    })
}

pub(crate) extern "C" fn get_run_config_entry(
    options: Handle<RunOptions>,
    key: Text,
) -> *const c_char {
    answer_or("GetRunConfigEntry", ptr::null(), || {
        let value = options.get()?.entries.get(&*key.read("key")?);
        Ok(value.map_or(ptr::null(), |value| value.as_ptr()))
    })
}
