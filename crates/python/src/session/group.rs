//! What programs have in common that work together: a transport that is an object of Python, a
//! session that may be closed, and what the others are told when the work ends.
//!
//! Two threads call the transport ([`Channels`]), so it takes the interpreter where it needs it,
//! and whoever waits for a message does not hold it.

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

use super::engine::input_name;
use super::errors::{of_kind, wrong_argument};
use super::interrupts::{PAUSE, is_main_thread};
use super::ports::PyPort;
use super::take::{Taker, as_dict};
use channel::{PyChannel, Raised};

/// What connects this program with the others, if there are any.
pub(super) struct Connection {
    transport: Option<Arc<Channels>>,
    raised: Raised,
}

impl Connection {
    /// Of the transport that is given. `deadline` is how many seconds another program may be
    /// silent.
    ///
    /// # Errors
    ///
    /// A deadline that is none, or what is given is no transport.
    pub(super) fn new(
        py: Python<'_>,
        transport: Option<&Bound<'_, PyAny>>,
        deadline: Duration,
    ) -> PyResult<Connection> {
        let raised = Raised::default();
        let Some(transport) = transport else { return Ok(Connection { transport: None, raised }) };
        let channel = PyChannel::new(transport, raised.clone())?;
        let settings = DeviceSettings { deadline };
        let transport = py.detach(|| Channels::new(channel, &settings));
        let transport =
            transport.map_err(|error| of_kind(py, ErrorKind::Worker, error.message(), None))?;
        Ok(Connection { transport: Some(Arc::new(transport)), raised })
    }

    /// What carries messages, for a session.
    pub(super) fn transport(&self) -> Option<Arc<dyn Transport>> {
        let transport = self.transport.clone()?;
        Some(transport)
    }

    /// The number of this program, from 0, and how many there are.
    pub(super) fn place(&self) -> (usize, usize) {
        let transport = self.transport.as_ref();
        transport.map_or((0, 1), |transport| (transport.number(), transport.workers()))
    }

    /// Makes a session, which waits for those of the others. They are told if that fails here.
    ///
    /// # Errors
    ///
    /// That of the session; what a handler of a signal raises.
    pub(super) fn make<S: Send>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<S, Error> + Send,
    ) -> PyResult<S> {
        self.attentive(py, &StopFlag::new(), make)?.map_err(|error| {
            let exception = self.raised.because(py, &error);
            // What workers say about each other, the others find out themselves.
            if error.kind() != ErrorKind::Worker {
                self.fail(&exception);
            }
            exception
        })
    }

    /// Tells the other programs, if there are any, of an exception.
    pub(super) fn fail(&self, error: &PyErr) {
        if let Some(transport) = &self.transport {
            let text = error.to_string();
            // An exception without a text, such as that of Ctrl-C.
            transport.fail(text.strip_suffix(": ").unwrap_or(&text));
        }
    }

    /// As [`attentive`]; all others are told of the exception.
    fn attentive<R: Send>(
        &self,
        py: Python<'_>,
        stop: &StopFlag,
        work: impl FnOnce() -> R + Send,
    ) -> PyResult<R> {
        attentive(py, stop, |error| self.fail(error), work)
    }

    /// Drops what needs no interpreter to end, and whose threads need it.
    pub(super) fn end(self, py: Python<'_>) {
        py.detach(|| drop(self));
    }
}

/// Works without the interpreter, in another thread if this is the main one of Python. An exception
/// that a handler of a signal raises there, such as Ctrl-C, raises the flag, is told, and is what
/// this returns.
pub(super) fn attentive<R: Send>(
    py: Python<'_>,
    stop: &StopFlag,
    tell: impl Fn(&PyErr) + Send + Sync,
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
                    tell(&error);
                    raised = Some(error);
                }
            }
            let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match raised {
                Some(error) => {
                    // The caller did not raise it.
                    stop.reset();
                    Err(error)
                }
                None => Ok(result),
            }
        })
    })
}

/// How long another program may be silent.
///
/// # Errors
///
/// It is not a time.
pub(super) fn deadline_of(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    // Longer than the second is for ever, and all clocks can say it.
    if (0.001..=1e9).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        let what = format!("the deadline must be 0.001 or more seconds, not {seconds}");
        Err(wrong_argument(py, what, None))
    }
}

/// A session that is not closed.
///
/// To be dropped without the interpreter: the threads of the transport need it to end.
pub(super) struct Open<S> {
    pub(super) session: S,
    pub(super) connection: Connection,
    /// Dropped last.
    _ended: Ending,
}

/// Whether a session and the threads of its transport have ended.
#[derive(Default)]
struct Ended {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn is_over(&self) -> bool {
        *locked(&self.has_ended)
    }

    /// Waits for the end, no longer than this.
    fn wait(&self, at_most: Duration) -> bool {
        let has_ended = locked(&self.has_ended);
        let waited = self.changed.wait_timeout_while(has_ended, at_most, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Tells of the end when it is dropped.
struct Ending(Arc<Ended>);

impl Drop for Ending {
    fn drop(&mut self) {
        *locked(&self.0.has_ended) = true;
        self.0.changed.notify_all();
    }
}

/// A session that is open until it is closed.
pub(super) struct Handle<S: Send + Sync + 'static> {
    open: Arc<Mutex<Option<Arc<Open<S>>>>>,
    /// What it is called in messages.
    what: &'static str,
}

/// What can be closed: by its class, and before Python ends.
pub(super) trait Close: Send + Sync {
    /// Ends its work, without the interpreter.
    fn close(&self);

    /// The same unless another thread uses it.
    fn close_if_idle(&self);

    /// Ends the work that other threads do with it, with an error.
    fn fail(&self, why: &PyErr);
}

impl<S: Send + Sync> Close for Mutex<Option<Arc<Open<S>>>> {
    fn close(&self) {
        let open = locked(self).take();
        drop(open);
    }

    fn close_if_idle(&self) {
        let mut open = locked(self);
        let is_idle = open.as_ref().is_some_and(|open| Arc::strong_count(open) == 1);
        let idle = if is_idle { open.take() } else { None };
        // Whoever waits for the lock may hold the interpreter, which the end needs.
        drop(open);
        drop(idle);
    }

    fn fail(&self, why: &PyErr) {
        let open = locked(self).clone();
        open.inspect(|open| open.connection.fail(why));
    }
}

/// What is to be closed before Python ends: its threads must not use the interpreter any more then.
static OPEN: Mutex<Vec<(Weak<dyn Close>, Arc<Ended>)>> = Mutex::new(Vec::new());

/// How long Python waits at its end for work that other threads do with a session, as it may end
/// because of what was closed.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it waits for such work once that is told to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Send + Sync + 'static> Handle<S> {
    /// Of a session and what connects it with others; `what` it is called in messages.
    ///
    /// # Errors
    ///
    /// Whatever registering it to be closed raises.
    pub(super) fn new(
        py: Python<'_>,
        session: S,
        connection: Connection,
        what: &'static str,
    ) -> PyResult<Handle<S>> {
        let ended = Arc::new(Ended::default());
        let open = Open { session, connection, _ended: Ending(Arc::clone(&ended)) };
        let open = Arc::new(Mutex::new(Some(Arc::new(open))));
        let handle = Handle { open, what };
        close_at_exit(py)?;
        let closes: Arc<dyn Close> = handle.open.clone();
        let mut all = locked(&OPEN);
        all.retain(|(_, ended)| !ended.is_over());
        all.push((Arc::downgrade(&closes), ended));
        Ok(handle)
    }

    /// Does something with the open session, without the interpreter.
    ///
    /// # Errors
    ///
    /// It is closed; what the work and handlers of signals raise.
    pub(super) fn with<R: Send>(
        &self,
        py: Python<'_>,
        stop: Option<StopFlag>,
        work: impl FnOnce(&Open<S>, &StopFlag) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Some(open) = locked(&self.open).clone() else {
            let what = format!("the {} is closed", self.what);
            return Err(of_kind(py, ErrorKind::Worker, what, None));
        };
        let stop = stop.unwrap_or_default();
        let connection = &open.connection;
        let result = connection.attentive(py, &stop, || work(&open, &stop));
        let result =
            result.and_then(|done| done.map_err(|error| connection.raised.because(py, &error)));
        // Another thread may have closed it.
        py.detach(|| drop(open));
        result
    }

    /// Inputs by name, of ports that the session has.
    pub(super) fn values(
        &self,
        feeds: &Bound<'_, PyAny>,
        ports: &[PyPort],
        taker: &mut Taker,
        unknown: impl Fn(&S, &str) -> Result<(), Error> + Sync,
    ) -> PyResult<Vec<(String, Value)>> {
        let py = feeds.py();
        let mut values = Vec::new();
        for (key, value) in as_dict(feeds)?.iter() {
            let name = input_name(&key)?;
            let Some(PyPort(port)) = ports.iter().find(|PyPort(port)| port.name() == name) else {
                // For its words.
                self.with(py, None, |open, _| unknown(&open.session, &name))?;
                continue;
            };
            if let Some(value) = taker.given(&value, port)? {
                values.push((name, value));
            }
        }
        Ok(values)
    }

    /// What closes the session.
    pub(super) fn closing(&self) -> Arc<dyn Close> {
        self.open.clone()
    }
}

/// Ends the work of this program.
pub(super) fn close(py: Python<'_>, open: &dyn Close) {
    py.detach(|| open.close());
}

/// Ends the work after a block; the others are told of the exception that ended that.
pub(super) fn close_after(py: Python<'_>, open: &dyn Close, value: Option<&Bound<'_, PyAny>>) {
    if let Some(value) = value {
        let error = PyErr::from_value(value.clone());
        py.detach(|| open.fail(&error));
    }
    close(py, open);
}

impl<S: Send + Sync + 'static> Drop for Handle<S> {
    fn drop(&mut self) {
        Python::attach(|py| close(py, &*self.open));
    }
}

/// Has all sessions closed before Python ends.
fn close_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    REGISTERED
        .get_or_try_init(py, || {
            let close_all = wrap_pyfunction!(close_all, py)?;
            py.import("atexit")?.call_method1("register", (close_all,)).map(|_| ())
        })
        .copied()
}

/// Closes all sessions, and waits until their threads have ended, those of sessions included that
/// other threads use: what ends a thread of ours within the interpreter, ends the process.
#[pyfunction]
fn close_all(py: Python<'_>) {
    let why = PyRuntimeError::new_err("Python ends");
    py.detach(|| {
        let all = std::mem::take(&mut *locked(&OPEN));
        let used = || {
            let used = all.iter().filter(|(_, ended)| !ended.is_over());
            used.filter_map(|(open, _)| open.upgrade())
        };
        let start = Instant::now();
        while used().inspect(|open| open.close_if_idle()).count() > 0 && start.elapsed() < PATIENCE
        {
            thread::sleep(Duration::from_millis(1));
        }
        used().for_each(|open| open.fail(&why));
        used().for_each(|open| open.close());
        for (_, ended) in &all {
            ended.wait(LAST_PATIENCE);
        }
    });
}
