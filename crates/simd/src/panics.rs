//! Panics as values, with their message and place.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

thread_local! {
    /// Source place of the last panic of this thread, or of a worker that handed its panic on.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A catch_panic panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// Message of the panic.
    pub what: String,
    /// File, line and column of its origin, if [`keep_panic_places`] was called before.
    pub place: Option<String>,
}

/// Sets a hook that records where panics begin, for [`catch_panic`]. The library does not set it by
/// itself: a program that wants places in errors calls this once. The previous hook still runs.
pub fn keep_panic_places() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            set_place(info.location().map(ToString::to_string));
            before(info);
        }));
    });
}

/// Calls a function and returns its panic as an error. In a program with `panic = "abort"` a panic
/// ends the process.
///
/// The caller drops values that the function may have left half done.
///
/// # Errors
///
/// The function panicked.
pub fn catch_panic<R>(work: impl FnOnce() -> R) -> Result<R, Panic> {
    // Forget the place of an earlier panic that other code catch_panic.
    set_place(None);
    Panicked::catch(work)
        .map_err(|Panicked { payload, place }| Panic { what: message_of(&*payload), place })
}

/// A panic that one thread catch_panic and another continues.
pub(crate) struct Panicked {
    payload: Box<dyn Any + Send>,
    place: Option<String>,
}

impl Panicked {
    /// Calls a function and catches its panic. The caller drops values that the function may have
    /// left half done.
    pub(crate) fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|payload| Panicked { payload, place: take_place() })
    }

    /// Continues the panic on the calling thread.
    pub(crate) fn resume(self) -> ! {
        set_place(self.place);
        resume_unwind(self.payload)
    }
}

/// Returns the message of a panic.
fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_string())
}

/// Takes the place of the last panic of this thread.
fn take_place() -> Option<String> {
    PLACE.try_with(RefCell::take).ok().flatten()
}

/// Sets the place of the current or continued panic of this thread.
fn set_place(place: Option<String>) {
    // A panic while the values of a thread are dropped has no place.
    let _ = PLACE.try_with(|last| last.replace(place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn a_panic_has_its_message_and_its_place() {
        keep_panic_places();
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            let line = line!() + 3;
            let found = catch_panic(|| {
                pool.run(9, |chunk| {
                    assert!(chunk != 4, "chunk {chunk}");
                })
            });
            let Err(Panic { what, place: Some(place) }) = found else { panic!("{found:?}") };
            assert_eq!(what, "chunk 4");
            assert!(place.starts_with(&format!("{}:{line}:", file!())), "{place}");
            assert_eq!(catch_panic(|| 7), Ok(7));
        }
    }

    #[test]
    fn a_payload_of_another_type_has_no_message() {
        let found = catch_panic::<()>(|| resume_unwind(Box::new(7)));
        assert_eq!(found.map_err(|panic| panic.what), Err("a panic without a message".into()));
    }
}
