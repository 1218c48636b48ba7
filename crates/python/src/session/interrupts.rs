//! Signal handling (Ctrl-C) during runs in Python's main thread.
//!
//! Python calls signal handlers only in its main thread and only when code there checks for them. A
//! run that has released the GIL would delay Ctrl-C until its end, so it checks between its steps,
//! and between the parts of long steps.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Interval between checks for signals. Each check takes the GIL, which other threads may hold.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Periodic signal checks during one run in Python's main thread.
pub(crate) struct Interrupts {
    /// Time of the next signal check.
    next: Instant,
    /// Exception that a signal handler raised; `None` before.
    raised: Option<PyErr>,
}

/// Python's main thread; `None` if another thread imported the module.
static MAIN: PyOnceLock<Option<ThreadId>> = PyOnceLock::new();

/// Records whether the importing thread is Python's main thread. Called at import.
pub(crate) fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    let is_main = current.is(&threading.call_method0("main_thread")?);
    let _ = MAIN.set(py, is_main.then(|| thread::current().id()));
    Ok(())
}

/// Whether the calling thread is Python's main thread, in which signal handlers run.
pub(crate) fn is_main_thread(py: Python<'_>) -> bool {
    MAIN.get(py).copied().flatten() == Some(thread::current().id())
}

impl Interrupts {
    /// Prepares signal checks for a run of the calling thread; `None` outside of Python's main
    /// thread.
    pub(crate) fn new(py: Python<'_>) -> Option<Interrupts> {
        is_main_thread(py).then(|| Interrupts { next: Instant::now() + PAUSE, raised: None })
    }

    /// Checks for signals if the interval has passed. Returns whether a signal handler has raised
    /// an exception, so that the run must end.
    pub(crate) fn check(&mut self) -> bool {
        if self.raised.is_some() {
            return true;
        }
        if Instant::now() < self.next {
            return false;
        }
        self.raised = Python::attach(|py| py.check_signals()).err();
        // Counts from now: the handler may have run for longer than the interval.
        self.next = Instant::now() + PAUSE;
        self.raised.is_some()
    }

    /// Returns the exception that a signal handler raised; `None` if none did.
    pub(crate) fn into_exception(self) -> Option<PyErr> {
        self.raised
    }
}
