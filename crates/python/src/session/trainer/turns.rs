//! Lock that admits the callers of a trainer in FIFO order.

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

/// FIFO lock of a trainer, which knows the thread that holds it: a signal handler that runs in the
/// middle of a step would otherwise deadlock on the lock of its own thread.
#[derive(Default)]
pub(super) struct TurnLock {
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

/// Guard of [`TurnLock`]: the right to change the trainer until it is dropped.
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
    /// Acquires the lock. Handles signals and checks `limits` every [`PAUSE`] while it waits.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if the calling thread holds the lock already; `sardonyx.Error` with the code
    /// `stopped` if a limit is reached; the exception of a signal handler.
    pub(super) fn acquire(&self, py: Python<'_>, limits: &Limits) -> PyResult<TurnGuard<'_>> {
        let number = {
            let mut state = self.lock_queue();
            state.last += 1;
            state.last
        };
        loop {
            let pause = match limits.deadline {
                Some(deadline) => PAUSE.min(deadline.saturating_duration_since(Instant::now())),
                None => PAUSE,
            };
            match py.detach(|| self.wait(number, pause)) {
                WaitResult::Begun => return Ok(TurnGuard(self)),
                WaitResult::Within => {
                    let what = "the trainer is changed during another change by the same thread, for example in a signal handler";
                    return Err(PyRuntimeError::new_err(what));
                }
                WaitResult::Busy => {}
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
