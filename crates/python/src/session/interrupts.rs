//! Ctrl-C: a run in the main thread of Python looks between its steps, and between the parts of
//! long ones, whether a signal has arrived.
//!
//! Python handles signals in its main thread only, and only where somebody asks it to. A run that
//! has released the interpreter would end before that.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// How long a run does not ask: what asks needs the interpreter, which others may hold.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// What is asked for a run in the main thread.
pub(crate) struct Interrupts {
    /// When it looks again.
    next: Instant,
    raised: Option<PyErr>,
}

/// The main thread of Python; `None` if the module was imported by another one.
static MAIN: PyOnceLock<Option<ThreadId>> = PyOnceLock::new();

/// Notes which thread is the main one. Called when the module is imported.
pub(crate) fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    let is_main = current.is(&threading.call_method0("main_thread")?);
    let _ = MAIN.set(py, is_main.then(|| thread::current().id()));
    Ok(())
}

/// Whether the calling thread is the main one, where signals are handled.
pub(crate) fn is_main_thread(py: Python<'_>) -> bool {
    MAIN.get(py).copied().flatten() == Some(thread::current().id())
}

impl Interrupts {
    /// For a run of the calling thread, if that is the main one.
    pub(crate) fn new(py: Python<'_>) -> Option<Interrupts> {
        is_main_thread(py).then(|| Interrupts { next: Instant::now() + PAUSE, raised: None })
    }

    /// Whether the run ends, as a handler of a signal has raised an exception.
    pub(crate) fn look(&mut self) -> bool {
        if self.raised.is_some() {
            return true;
        }
        if Instant::now() < self.next {
            return false;
        }
        self.raised = Python::attach(|py| py.check_signals()).err();
        // The handler may have taken a while.
        self.next = Instant::now() + PAUSE;
        self.raised.is_some()
    }

    /// What a handler has raised.
    pub(crate) fn raised(self) -> Option<PyErr> {
        self.raised
    }
}
