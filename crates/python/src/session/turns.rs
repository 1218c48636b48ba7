//! Lock that admits the callers of an object in FIFO order: a trainer or a kept state.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx::{ErrorKind, StopFlag};

use crate::session::errors::new_error;
use crate::session::limits::Limits;

/// Interval at which a waiting thread handles signals and checks its limits.
const PAUSE: Duration = Duration::from_millis(50);

/// FIFO lock of a Python object, which knows the thread that holds it: a signal handler that runs
/// in the middle of a call would otherwise deadlock on the lock of its own thread.
pub(super) struct TurnLock {
    /// Noun for the object, for messages.
    object: &'static str,
    state: Mutex<TurnQueue>,
    /// Notified when the lock is released or the queue has changed.
    ended: Condvar,
}

/// Thread that holds a [`TurnLock`], and the calls that wait for it.
#[derive(Default)]
struct TurnQueue {
    /// Thread that holds the lock.
    thread: Option<ThreadId>,
    /// Ticket numbers of the waiting calls; the lowest is next.
    waiting: BTreeSet<u64>,
    /// Ticket number that was issued last.
    last: u64,
}

/// Guard of [`TurnLock`]: the right to change the object until it is dropped.
pub(super) struct TurnGuard<'t>(&'t TurnLock);

/// Result of waiting for the lock for one [`PAUSE`].
enum WaitResult {
    /// The calling thread holds the lock now.
    Begun,
    /// Another call holds the lock or is ahead in the queue.
    Busy,
    /// The calling thread held the lock before the call.
    Within,
}

impl TurnLock {
    /// Creates the lock of an object, which messages call `object`.
    pub(super) fn new(object: &'static str) -> TurnLock {
        TurnLock { object, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Acquires the lock. Handles signals and checks `limits` every [`PAUSE`] while it waits.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the calling thread holds the lock already; `sardonyx.Error` with the code
    /// `stopped` if a limit is reached; the exception of a signal handler.
    pub(super) fn acquire(&self, py: Python<'_>, limits: &Limits) -> PyResult<TurnGuard<'_>> {
        let number = {
            let mut state = self.lock_queue();
            // Keeps the GIL, which takes longer to hand over than a free lock to take.
            if state.thread.is_none() && state.waiting.is_empty() {
                state.thread = Some(thread::current().id());
                return Ok(TurnGuard(self));
            }
            state.last += 1;
            state.last
        };
        let object = self.object;
        loop {
            let pause = match limits.deadline {
                Some(deadline) => PAUSE.min(deadline.saturating_duration_since(Instant::now())),
                None => PAUSE,
            };
            match py.detach(|| self.wait(number, pause)) {
                WaitResult::Begun => return Ok(TurnGuard(self)),
                WaitResult::Within => {
                    let what = format!(
                        "the {object} is used during a change by the same thread, for example in a \
                         signal handler"
                    );
                    return Err(PyRuntimeError::new_err(what));
                }
                WaitResult::Busy => {}
            }
            py.check_signals()?;
            let is_late = limits.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let reason = if is_late {
                "time limit was reached"
            } else if limits.stop.as_ref().is_some_and(StopFlag::is_raised) {
                "call was stopped"
            } else {
                continue;
            };
            let what = format!("the {reason} while another thread changed the {object}");
            return Err(new_error(py, ErrorKind::Stopped, what, None));
        }
    }

    /// Waits in the queue for at most `pause`. The ticket leaves the queue in between: a signal
    /// handler that runs then may take a turn of its own, and would deadlock behind the ticket of
    /// its thread.
    fn wait(&self, number: u64, pause: Duration) -> WaitResult {
        let me = thread::current().id();
        let mut state = self.lock_queue();
        if state.thread == Some(me) {
            return WaitResult::Within;
        }
        state.waiting.insert(number);
        let is_next =
            |state: &TurnQueue| state.thread.is_none() && state.waiting.first() == Some(&number);
        let waited = self.ended.wait_timeout_while(state, pause, |state| !is_next(state));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let begins = is_next(&state);
        state.waiting.remove(&number);
        if begins {
            state.thread = Some(me);
            return WaitResult::Begun;
        }
        // The call behind this ticket may be the next in the queue now.
        self.ended.notify_all();
        WaitResult::Busy
    }

    /// Locks the queue. A panic of another thread leaves it consistent, so poisoning is ignored.
    fn lock_queue(&self) -> MutexGuard<'_, TurnQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.lock_queue().thread = None;
        self.0.ended.notify_all();
    }
}
