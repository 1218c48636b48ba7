//! Changes of a trainer, one after the other.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx::{ErrorKind, StopFlag};

use crate::session::errors::of_kind;
use crate::session::limits::Limits;

/// How long a thread waits before it looks again whether it is to go on waiting.
const PAUSE: Duration = Duration::from_millis(50);

/// Who changes the trainer. A lock that knows its thread: a handler of a signal runs in the middle
/// of a step, and would wait for that step for ever.
#[derive(Default)]
pub(super) struct Turns {
    thread: Mutex<Option<ThreadId>>,
    ended: Condvar,
}

/// The right to change the trainer, until it is dropped.
pub(super) struct Turn<'t>(&'t Turns);

/// What came of waiting.
enum Waited {
    Begun,
    Busy,
    /// The calling thread itself is at it.
    Within,
}

impl Turns {
    /// Waits until no other thread changes the trainer.
    ///
    /// # Errors
    ///
    /// The limits end the waiting, or a handler of a signal does; `RuntimeError` if the thread is
    /// changing the trainer already.
    pub(super) fn begin(&self, py: Python<'_>, limits: &Limits) -> PyResult<Turn<'_>> {
        loop {
            let pause = match limits.deadline {
                Some(deadline) => PAUSE.min(deadline.saturating_duration_since(Instant::now())),
                None => PAUSE,
            };
            match py.detach(|| self.wait(pause)) {
                Waited::Begun => return Ok(Turn(self)),
                Waited::Within => {
                    let what = "the trainer is changed in the middle of a change by the same \
                                thread, such as by a handler of a signal";
                    return Err(PyRuntimeError::new_err(what));
                }
                Waited::Busy => {}
            }
            py.check_signals()?;
            let is_late = limits.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let what = if is_late {
                "the time limit was reached while another thread changed the trainer"
            } else if limits.stop.as_ref().is_some_and(StopFlag::is_raised) {
                "the call was stopped while another thread changed the trainer"
            } else {
                continue;
            };
            return Err(of_kind(py, ErrorKind::Stopped, what, None));
        }
    }

    fn wait(&self, pause: Duration) -> Waited {
        let me = thread::current().id();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if *thread == Some(me) {
            return Waited::Within;
        }
        if thread.is_some() {
            let waited = self.ended.wait_timeout(thread, pause);
            (thread, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if thread.is_some() {
            return Waited::Busy;
        }
        *thread = Some(me);
        Waited::Begun
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.ended.notify_one();
    }
}
