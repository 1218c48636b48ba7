//! Panics of the command, which become error messages with exit code 2. The message and the place
//! of the panic are kept for a bug report.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Code, Failure};

/// Message and source location of the first panic in any thread. Later panics are mostly its
/// consequences.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that keeps the message of the first panic for [`catch_panic`] and prints
/// no message.
pub(crate) fn install_hook() {
    panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("unknown");
        let place = info.location().map_or(String::new(), |location| format!(" at {location}"));
        let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{what}{place}"));
    }));
}

/// Calls `work`, and turns a panic in it into a failure with the message of the first panic.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    // Unwind-safe, because after a panic no caller uses data that `work` has changed.
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        let what = first.as_deref().unwrap_or("unknown");
        Failure::new(format!("internal error: {what}"))
            .code(Code::Internal)
            .help("this is a bug in sardonyx; please report it, with the model if you can share it")
    })
}
