//! Ctrl-C: a run in the main thread of Python looks between its steps whether a signal has arrived.
//!
//! Python handles signals in its main thread only, and only where somebody asks it to. A run that
//! has released the interpreter would end before that.

use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use sardonyx::{StepEvent, StopFlag};

/// How long a run does not ask: what asks needs the interpreter, which others may hold.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// What is asked for a run in the main thread.
pub(crate) struct Interrupts {
    /// The flag that ends the run: that of the caller, if there is one.
    pub(crate) stop: StopFlag,
    /// How long after its beginning the run asks again.
    next: Duration,
    /// When the last step that was told of was done.
    last: Duration,
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
    pub(crate) fn new(py: Python<'_>, of_caller: Option<&StopFlag>) -> Option<Interrupts> {
        is_main_thread(py).then(|| Interrupts {
            stop: of_caller.cloned().unwrap_or_default(),
            next: PAUSE,
            last: Duration::ZERO,
            raised: None,
        })
    }

    /// After a step: raises the flag if a handler of a signal raises an exception.
    pub(crate) fn look(&mut self, step: StepEvent) {
        let now = step.start + step.took;
        if now < self.last {
            // Another run of the same call has begun, and the clock with it.
            self.next = PAUSE;
        }
        self.last = now;
        if now < self.next || self.raised.is_some() {
            return;
        }
        if let Err(raised) = Python::attach(|py| py.check_signals()) {
            self.stop.stop();
            self.raised = Some(raised);
        }
        self.next = now + PAUSE;
    }

    /// What a handler has raised. The flag that was raised for it is lowered, as the caller did not
    /// raise it.
    pub(crate) fn raised(self) -> Option<PyErr> {
        if self.raised.is_some() {
            self.stop.reset();
        }
        self.raised
    }
}
