//! A bug must not look like one: a panic becomes an error message with exit code 2, and no trace of
//! it is lost.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Code, Failure};

/// What the first panic said, in whichever thread it was: later ones are mostly its consequences.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the message of a panic instead of printing it.
pub(crate) fn install() {
    panic::set_hook(Box::new(|info| {
        let what = info.payload_as_str().unwrap_or("unknown");
        let place = info.location().map_or(String::new(), |location| format!(" at {location}"));
        let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{what}{place}"));
    }));
}

/// What `work` gives, or what is to be said about its panic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    // Nothing that `work` touched is used after a panic.
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        let what = first.as_deref().unwrap_or("unknown");
        Failure::new(format!("internal error: {what}"))
            .code(Code::Internal)
            .help("this is a bug in sardonyx; please report it, with the model if you can share it")
    })
}
