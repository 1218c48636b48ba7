//! Environments: where messages go, and threads that sessions share.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sardonyx::run::ThreadPool;

use crate::failure::{Error, StatusPointer, answer, release, to_c_string};
use crate::handles::{Handle, Object, give};
use crate::pairs::Pairs;
use crate::pointers::{Array, Out, Text};

/// Severity of warnings.
pub(crate) const WARNING: c_int = 2;

/// Function of the caller that takes messages: its parameter, the severity, the category, the name
/// of the log, the place in the code and the message.
pub(crate) type LogFunction = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    *const c_char,
    *const c_char,
    *const c_char,
);

/// Function of the caller with its parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sink {
    function: LogFunction,
    parameter: *mut c_void,
}

// SAFETY: the C interface demands a function that any thread may call, with this parameter.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

impl Sink {
    /// Pairs a function with its parameter; `None` for a null function.
    pub(crate) fn new(function: Option<LogFunction>, parameter: *mut c_void) -> Option<Sink> {
        Some(Sink { function: function?, parameter })
    }
}

/// Log of an environment or a session.
#[derive(Debug)]
pub(crate) struct Log {
    /// Least severity of messages that are written.
    level: AtomicI32,
    name: CString,
    /// Function that takes messages; `None` for the standard error output.
    sink: Option<Sink>,
    /// Messages that are written once.
    written: Mutex<HashSet<String>>,
}

impl Log {
    fn new(level: c_int, name: &str, sink: Option<Sink>) -> Log {
        let (level, name) = (AtomicI32::new(level), to_c_string(name));
        Log { level, name, sink, written: Mutex::default() }
    }

    /// Makes a log with this name and level that writes to another function.
    pub(crate) fn with_sink(&self, sink: Sink) -> Log {
        Log::new(self.level.load(Ordering::Relaxed), &self.name.to_string_lossy(), Some(sink))
    }

    /// Writes a warning, but only the first time.
    pub(crate) fn warn_once(&self, message: &str) {
        if WARNING < self.level.load(Ordering::Relaxed) {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.insert(message.to_string()) {
            return;
        }
        drop(written);
        let Some(sink) = self.sink else {
            eprintln!("[sardonyx] warning: {message}");
            return;
        };
        let message = to_c_string(message);
        let (category, place) = (c"sardonyx", c"");
        // SAFETY: the caller has given the function for these arguments.
        unsafe {
            (sink.function)(
                sink.parameter,
                WARNING,
                category.as_ptr(),
                self.name.as_ptr(),
                place.as_ptr(),
                message.as_ptr(),
            );
        }
    }
}

/// Environment of sessions, `OrtEnv`.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) log: Arc<Log>,
    /// Threads for sessions that have none of their own.
    pub(crate) pool: Option<ThreadPool>,
}

impl Object for Environment {
    const NAME: &'static str = "OrtEnv";
}

/// Options of threads that sessions share, `OrtThreadingOptions`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Threading {
    threads: usize,
}

impl Object for Threading {
    const NAME: &'static str = "OrtThreadingOptions";
}

impl Threading {
    /// Makes the threads.
    fn make_pool(&self) -> ThreadPool {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { processors } else { self.threads.min(processors) };
        ThreadPool::new(threads)
    }
}

/// Arguments of all functions that make an environment.
struct Request {
    level: c_int,
    name: Text,
    sink: Option<Sink>,
    threading: Option<ThreadPool>,
}

impl Request {
    fn make(self, out: Out<*mut Environment>) -> Result<(), Error> {
        let out = out.demand()?;
        let name = self.name.optional().unwrap_or_default();
        let log = Arc::new(Log::new(self.level, &name, self.sink));
        out.set(give(Environment { log, pool: self.threading }))
    }
}

pub(crate) extern "C" fn create_env(
    level: c_int,
    name: Text,
    out: Out<*mut Environment>,
) -> StatusPointer {
    answer("CreateEnv", || Request { level, name, sink: None, threading: None }.make(out))
}

pub(crate) extern "C" fn create_env_with_custom_logger(
    function: Option<LogFunction>,
    parameter: *mut c_void,
    level: c_int,
    name: Text,
    out: Out<*mut Environment>,
) -> StatusPointer {
    answer("CreateEnvWithCustomLogger", || {
        let sink = Sink::new(function, parameter);
        Request { level, name, sink, threading: None }.make(out)
    })
}

pub(crate) extern "C" fn create_env_with_global_thread_pools(
    level: c_int,
    name: Text,
    threading: Handle<Threading>,
    out: Out<*mut Environment>,
) -> StatusPointer {
    answer("CreateEnvWithGlobalThreadPools", || {
        let threading = Some(threading.get()?.make_pool());
        Request { level, name, sink: None, threading }.make(out)
    })
}

pub(crate) extern "C" fn create_env_with_custom_logger_and_global_thread_pools(
    function: Option<LogFunction>,
    parameter: *mut c_void,
    level: c_int,
    name: Text,
    threading: Handle<Threading>,
    out: Out<*mut Environment>,
) -> StatusPointer {
    answer("CreateEnvWithCustomLoggerAndGlobalThreadPools", || {
        let sink = Sink::new(function, parameter);
        let threading = Some(threading.get()?.make_pool());
        Request { level, name, sink, threading }.make(out)
    })
}

/// Options of an environment, a structure that the C header declares.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct CreationOptions {
    version: u32,
    level: i32,
    name: Text,
    function: Option<LogFunction>,
    parameter: *mut c_void,
    threading: Handle<Threading>,
    entries: Handle<Pairs>,
}

pub(crate) extern "C" fn create_env_with_options(
    options: Array<CreationOptions>,
    out: Out<*mut Environment>,
) -> StatusPointer {
    answer("CreateEnvWithOptions", || {
        let [options] = options.read(1, "options")? else { return Ok(()) };
        let sink = Sink::new(options.function, options.parameter);
        let threading = options.threading.optional()?.map(Threading::make_pool);
        Request { level: options.level, name: options.name, sink, threading }.make(out)
    })
}

pub(crate) extern "C" fn enable_telemetry_events(env: Handle<Environment>) -> StatusPointer {
    answer("EnableTelemetryEvents", || env.get().map(|_| ()))
}

pub(crate) extern "C" fn disable_telemetry_events(env: Handle<Environment>) -> StatusPointer {
    answer("DisableTelemetryEvents", || env.get().map(|_| ()))
}

pub(crate) extern "C" fn set_language_projection(
    env: Handle<Environment>,
    _projection: c_int,
) -> StatusPointer {
    answer("SetLanguageProjection", || env.get().map(|_| ()))
}

pub(crate) extern "C" fn update_env_with_custom_log_level(
    env: Handle<Environment>,
    level: c_int,
) -> StatusPointer {
    answer("UpdateEnvWithCustomLogLevel", || {
        env.get()?.log.level.store(level, Ordering::Relaxed);
        Ok(())
    })
}

pub(crate) extern "C" fn release_env(env: Handle<Environment>) {
    release("ReleaseEnv", env);
}

pub(crate) extern "C" fn create_threading_options(out: Out<*mut Threading>) -> StatusPointer {
    answer("CreateThreadingOptions", || {
        let out = out.demand()?;
        out.set(give(Threading::default()))
    })
}

pub(crate) extern "C" fn release_threading_options(options: Handle<Threading>) {
    release("ReleaseThreadingOptions", options);
}

pub(crate) extern "C" fn set_global_intra_op_num_threads(
    mut options: Handle<Threading>,
    threads: c_int,
) -> StatusPointer {
    answer("SetGlobalIntraOpNumThreads", || {
        options.change()?.threads = usize::try_from(threads).unwrap_or(0);
        Ok(())
    })
}

pub(crate) extern "C" fn set_global_inter_op_num_threads(
    options: Handle<Threading>,
    _threads: c_int,
) -> StatusPointer {
    answer("SetGlobalInterOpNumThreads", || options.get().map(|_| ()))
}

pub(crate) extern "C" fn set_global_spin_control(
    options: Handle<Threading>,
    _spins: c_int,
) -> StatusPointer {
    answer("SetGlobalSpinControl", || options.get().map(|_| ()))
}
