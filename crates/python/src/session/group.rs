//! Shared parts of workers and ranks: a transport that is a Python object, a session that can be
//! closed, and error reports to the other members.
//!
//! Two threads call the transport ([`Channels`]). They take the GIL for each call only, so a
//! session waits for messages without it.

mod channel;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sardonyx::device::{Channels, Transport, TransportSettings as DeviceSettings};
use sardonyx::{Error, ErrorKind, StopFlag, Value};

use super::engine::to_input_name;
use super::errors::{argument_error, new_error};
use super::interrupts::{PAUSE, is_main_thread};
use super::member::MemberPlace;
use super::ports::PyPort;
use super::take::{InputConverter, as_dict};
use channel::{FirstException, PyChannel};

/// Connection to the other members of the group, if there are any.
pub(super) struct Connection {
    /// Message channels; `None` for a worker without a transport.
    transport: Option<Arc<Channels>>,
    /// First exception of the transport's methods.
    raised: FirstException,
}

impl Connection {
    /// Connects to the other members through `transport`, if one is given. `deadline` is the time
    /// after which a silent member counts as lost.
    ///
    /// # Errors
    ///
    /// The object is not a transport, or its `rank` and `size` contradict each other.
    pub(super) fn new(
        py: Python<'_>,
        transport: Option<&Bound<'_, PyAny>>,
        deadline: Duration,
    ) -> PyResult<Connection> {
        let raised = FirstException::default();
        let Some(transport) = transport else { return Ok(Connection { transport: None, raised }) };
        let channel = PyChannel::new(transport, raised.clone())?;
        let settings = DeviceSettings { deadline };
        let transport = py.detach(|| Channels::new(channel, &settings));
        let transport =
            transport.map_err(|error| new_error(py, ErrorKind::Worker, error.message(), None))?;
        Ok(Connection { transport: Some(Arc::new(transport)), raised })
    }

    /// Returns the transport for a session builder.
    pub(super) fn transport(&self) -> Option<Arc<dyn Transport>> {
        let transport = self.transport.clone()?;
        Some(transport)
    }

    /// Returns the rank of this program and the number of members; 0 of 1 without a transport.
    pub(super) fn place(&self) -> MemberPlace {
        match &self.transport {
            Some(transport) => MemberPlace { rank: transport.number(), size: transport.workers() },
            None => MemberPlace { rank: 0, size: 1 },
        }
    }

    /// Builds a session, which waits for the sessions of the other members. Reports a failure to
    /// the other members.
    ///
    /// # Errors
    ///
    /// The error of `make`, or the exception of a signal handler.
    pub(super) fn build_session<S: Send>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<S, Error> + Send,
    ) -> PyResult<S> {
        self.run_interruptible(py, &StopFlag::new(), make)?.map_err(|error| {
            let exception = self.raised.to_exception(py, &error);
            // The other members detect a lost or mismatching worker themselves.
            if error.kind() != ErrorKind::Worker {
                self.report_failure(&exception);
            }
            exception
        })
    }

    /// Reports an exception to the other members, whose calls raise an error then.
    pub(super) fn report_failure(&self, error: &PyErr) {
        if let Some(transport) = &self.transport {
            let text = error.to_string();
            // The text of an exception without a message, such as `KeyboardInterrupt: `.
            transport.fail(text.strip_suffix(": ").unwrap_or(&text));
        }
    }

    /// Runs `work` like [`run_interruptible`], and reports an exception of a signal handler to the
    /// other members.
    fn run_interruptible<R: Send>(
        &self,
        py: Python<'_>,
        stop: &StopFlag,
        work: impl FnOnce() -> R + Send,
    ) -> PyResult<R> {
        run_interruptible(py, stop, |error| self.report_failure(error), work)
    }

    /// Drops the connection without the GIL, which the threads of the transport need to finish.
    pub(super) fn end(self, py: Python<'_>) {
        py.detach(|| drop(self));
    }
}

/// Runs `work` without the GIL. On Python's main thread, `work` runs in a thread of its own while
/// this thread handles signals. An exception of a signal handler, such as `KeyboardInterrupt`,
/// raises `stop`, is passed to `report`, and is returned after `work` has ended.
pub(super) fn run_interruptible<R: Send>(
    py: Python<'_>,
    stop: &StopFlag,
    report: impl Fn(&PyErr) + Send + Sync,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    if !is_main_thread(py) {
        return Ok(py.detach(work));
    }
    py.detach(|| {
        thread::scope(|scope| {
            let (working, ended) = channel::<()>();
            let working = scope.spawn(move || {
                let _until_the_end = working;
                work()
            });
            let mut raised = None;
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let looked = Python::attach(|py| py.check_signals());
                if let (Err(error), None) = (looked, &raised) {
                    stop.stop();
                    report(&error);
                    raised = Some(error);
                }
            }
            let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match raised {
                Some(error) => {
                    // The flag may belong to the caller, and was not raised by the caller.
                    stop.reset();
                    Err(error)
                }
                None => Ok(result),
            }
        })
    })
}

/// Converts the argument `deadline`, in seconds.
///
/// # Errors
///
/// `sardonyx.Error` if `seconds` is less than a millisecond, more than 1e9 seconds, or NaN.
pub(super) fn parse_deadline(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    // 1e9 seconds are practically forever, and within the range of every platform's clock.
    if (0.001..=1e9).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        let what = format!("the deadline must be 0.001 or more seconds, not {seconds}");
        Err(argument_error(py, what, None))
    }
}

/// Open session of a worker or rank with its connection. Must be dropped without the GIL, which the
/// threads of the transport need to finish.
pub(super) struct OpenSession<S> {
    pub(super) session: S,
    pub(super) connection: Connection,
    /// Signals, when it is dropped as the last field, that all threads have ended.
    _ended: EndGuard,
}

/// Signal that a session and the threads of its transport have ended.
#[derive(Default)]
struct EndSignal {
    has_ended: Mutex<bool>,
    /// Notified when `has_ended` becomes true.
    changed: Condvar,
}

impl EndSignal {
    /// Whether the session and its threads have ended.
    fn is_over(&self) -> bool {
        *lock(&self.has_ended)
    }

    /// Waits at most `at_most` for the session and its threads to end. Returns whether they have
    /// ended.
    fn wait(&self, at_most: Duration) -> bool {
        let has_ended = lock(&self.has_ended);
        let waited = self.changed.wait_timeout_while(has_ended, at_most, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Guard that signals the end of a session and its threads when it is dropped.
struct EndGuard(Arc<EndSignal>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        *lock(&self.0.has_ended) = true;
        self.0.changed.notify_all();
    }
}

/// Session of a worker or rank, until it is closed.
pub(super) struct Handle<S: Send + Sync + 'static> {
    /// Session with its connection; `None` once it is closed.
    open: Arc<Mutex<Option<Arc<OpenSession<S>>>>>,
    /// Noun for the session in messages: `worker` or `rank`.
    what: &'static str,
}

/// Session that can be closed: by its Python object, and before the interpreter exits.
pub(super) trait Close: Send + Sync {
    /// Closes the session, and waits for its threads unless another thread is still running it. The
    /// caller must not hold the GIL.
    fn close(&self);

    /// Closes the session unless another thread runs it. The caller must not hold the GIL.
    fn close_if_idle(&self);

    /// Reports `why` to the other members, which ends the runs of all members with an error.
    fn report_failure(&self, why: &PyErr);
}

impl<S: Send + Sync> Close for Mutex<Option<Arc<OpenSession<S>>>> {
    fn close(&self) {
        let open = lock(self).take();
        drop(open);
    }

    fn close_if_idle(&self) {
        let mut open = lock(self);
        let is_idle = open.as_ref().is_some_and(|open| Arc::strong_count(open) == 1);
        let idle = if is_idle { open.take() } else { None };
        // Unlocks before the session is dropped: a thread that waits for this lock may hold the
        // GIL, which the session's threads need to finish.
        drop(open);
        drop(idle);
    }

    fn report_failure(&self, why: &PyErr) {
        let open = lock(self).clone();
        open.inspect(|open| open.connection.report_failure(why));
    }
}

/// All sessions that are not known to have ended. They are closed before the interpreter exits, as
/// their threads must not use it afterwards.
static OPEN: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Session that [`OPEN`] lists, with the signal of its end.
struct Registered {
    session: Weak<dyn Close>,
    ended: Arc<EndSignal>,
}

/// Time that the interpreter's exit waits for runs in other threads, which may be ending because
/// the session of another member was closed.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time that the interpreter's exit waits for each session after its runs have been failed.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// Locks a mutex and ignores poisoning: the values stay consistent when a thread panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Send + Sync + 'static> Handle<S> {
    /// Registers a session to be closed before the interpreter exits. `what` is its noun in
    /// messages.
    ///
    /// # Errors
    ///
    /// An exception of `atexit.register`.
    pub(super) fn new(
        py: Python<'_>,
        session: S,
        connection: Connection,
        what: &'static str,
    ) -> PyResult<Handle<S>> {
        let ended = Arc::new(EndSignal::default());
        let open = OpenSession { session, connection, _ended: EndGuard(Arc::clone(&ended)) };
        let open = Arc::new(Mutex::new(Some(Arc::new(open))));
        let handle = Handle { open, what };
        register_close_at_exit(py)?;
        let closes: Arc<dyn Close> = handle.open.clone();
        let mut all = lock(&OPEN);
        all.retain(|registered| !registered.ended.is_over());
        all.push(Registered { session: Arc::downgrade(&closes), ended });
        Ok(handle)
    }

    /// Calls `work` with the open session, without the GIL.
    ///
    /// # Errors
    ///
    /// `sardonyx.Error` if the session is closed; the error of `work`; the exception of a signal
    /// handler.
    pub(super) fn with_session<R: Send>(
        &self,
        py: Python<'_>,
        stop: Option<StopFlag>,
        work: impl FnOnce(&OpenSession<S>, &StopFlag) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Some(open) = lock(&self.open).clone() else {
            let what = format!("the {} is closed", self.what);
            return Err(new_error(py, ErrorKind::Worker, what, None));
        };
        let stop = stop.unwrap_or_default();
        let connection = &open.connection;
        let result = connection.run_interruptible(py, &stop, || work(&open, &stop));
        let result = result
            .and_then(|done| done.map_err(|error| connection.raised.to_exception(py, &error)));
        // May be the last reference if another thread has closed the session.
        py.detach(|| drop(open));
        result
    }

    /// Converts a dict of inputs to values for `ports`. Calls `unknown` for a name that no port
    /// has, and raises the error of `unknown`.
    pub(super) fn convert_inputs(
        &self,
        feeds: &Bound<'_, PyAny>,
        ports: &[PyPort],
        converter: &mut InputConverter,
        unknown: impl Fn(&S, &str) -> Result<(), Error> + Sync,
    ) -> PyResult<Vec<(String, Value)>> {
        let py = feeds.py();
        let mut values = Vec::new();
        for (key, value) in as_dict(feeds)?.iter() {
            let name = to_input_name(&key)?;
            let Some(PyPort(port)) = ports.iter().find(|PyPort(port)| port.name() == name) else {
                // The session reports the unknown name, with suggestions.
                self.with_session(py, None, |open, _| unknown(&open.session, &name))?;
                continue;
            };
            if let Some(value) = converter.convert_argument(&value, port)? {
                values.push((name, value));
            }
        }
        Ok(values)
    }

    /// Returns the session as an object that can be closed.
    pub(super) fn as_close(&self) -> Arc<dyn Close> {
        self.open.clone()
    }
}

/// Closes a session with the GIL released.
pub(super) fn close(py: Python<'_>, open: &dyn Close) {
    py.detach(|| open.close());
}

/// Closes a session after a `with` block. Reports the exception `value` that ended the block to the
/// other members first.
pub(super) fn close_after_block(
    py: Python<'_>,
    open: &dyn Close,
    value: Option<&Bound<'_, PyAny>>,
) {
    if let Some(value) = value {
        let error = PyErr::from_value(value.clone());
        py.detach(|| open.report_failure(&error));
    }
    close(py, open);
}

impl<S: Send + Sync + 'static> Drop for Handle<S> {
    fn drop(&mut self) {
        Python::attach(|py| close(py, &*self.open));
    }
}

/// Registers [`close_all`] with `atexit`, once per process.
fn register_close_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    REGISTERED
        .get_or_try_init(py, || {
            let close_all = wrap_pyfunction!(close_all, py)?;
            py.import("atexit")?.call_method1("register", (close_all,)).map(|_| ())
        })
        .copied()
}

/// Closes all sessions before the interpreter exits and waits for their threads, even those that
/// run in other threads. A thread of Sardonyx that takes the GIL after the exit would end the
/// process.
#[pyfunction]
fn close_all(py: Python<'_>) {
    let why = PyRuntimeError::new_err("the Python interpreter exits");
    py.detach(|| {
        let all = std::mem::take(&mut *lock(&OPEN));
        let start = Instant::now();
        while list_open_sessions(&all).inspect(|open| open.close_if_idle()).count() > 0
            && start.elapsed() < PATIENCE
        {
            thread::sleep(Duration::from_millis(1));
        }
        list_open_sessions(&all).for_each(|open| open.report_failure(&why));
        list_open_sessions(&all).for_each(|open| open.close());
        for registered in &all {
            registered.ended.wait(LAST_PATIENCE);
        }
    });
}

/// Returns the sessions in `all` that still exist and have not ended.
fn list_open_sessions(all: &[Registered]) -> impl Iterator<Item = Arc<dyn Close>> {
    let running = all.iter().filter(|registered| !registered.ended.is_over());
    running.filter_map(|registered| registered.session.upgrade())
}
