//! Changes of a trainer, one after the other.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx::{ErrorKind, StopFlag};

use crate::session::errors::of_kind;
use crate::session::limits::Limits;

/// How long a thread waits before it looks again whether it is to go on waiting.
const PAUSE: Duration = Duration::from_millis(50);

/// Who changes the trainer, and who waits for it: who came first goes first. A lock that knows its
/// thread: a handler of a signal runs in the middle of a step, and would wait for that step for
/// ever.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread that changes the trainer.
    thread: Option<ThreadId>,
    /// The numbers of those who wait, each greater than those that were given before.
    waiting: BTreeSet<u64>,
    last: u64,
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
        let number = {
            let mut state = self.state();
            state.last += 1;
            state.last
        };
        loop {
            let pause = match limits.deadline {
                Some(deadline) => PAUSE.min(deadline.saturating_duration_since(Instant::now())),
                None => PAUSE,
            };
            match py.detach(|| self.wait(number, pause)) {
                Waited::Begun => return Ok(Turn(self)),
                Waited::Within => {
                    let what = "the trainer is changed during another change by the same thread, for example in a signal handler";
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

    /// Waits for a while. A number stands in the list only that long: a handler of a signal may
    /// run between two waits, and what it waits for must not be its own thread.
    fn wait(&self, number: u64, pause: Duration) -> Waited {
        let me = thread::current().id();
        let mut state = self.state();
        if state.thread == Some(me) {
            return Waited::Within;
        }
        state.waiting.insert(number);
        let is_next =
            |state: &State| state.thread.is_none() && state.waiting.first() == Some(&number);
        let waited = self.ended.wait_timeout_while(state, pause, |state| !is_next(state));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let begins = is_next(&state);
        state.waiting.remove(&number);
        if begins {
            state.thread = Some(me);
            return Waited::Begun;
        }
        // Whoever comes after this number may be the next one now.
        self.ended.notify_all();
        Waited::Busy
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().thread = None;
        self.0.ended.notify_all();
    }
}
