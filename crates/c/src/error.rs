//! Errors of calls, and the guard around the body of every function.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use sardonyx::ErrorKind;
use sardonyx::edit::EditError;
use sardonyx::value::TensorError;

use crate::pointers::{Owned, Ref, to_c_string};

/// A file could not be opened, read or written.
pub(crate) const SARDONYX_ERROR_IO: c_int = 1;
/// Bytes are not an ONNX model.
pub(crate) const SARDONYX_ERROR_FORMAT: c_int = 2;
/// The model uses operators that sessions cannot compute.
pub(crate) const SARDONYX_ERROR_UNSUPPORTED: c_int = 3;
/// The model contradicts itself or the ONNX standard.
pub(crate) const SARDONYX_ERROR_INVALID: c_int = 4;
/// A data file is missing or too short.
pub(crate) const SARDONYX_ERROR_EXTERNAL_DATA: c_int = 5;
/// An argument is a null pointer or has a value that does not exist.
pub(crate) const SARDONYX_ERROR_ARGUMENT: c_int = 6;
/// A model input is missing, unknown, or of another type or shape.
pub(crate) const SARDONYX_ERROR_INPUT: c_int = 7;
/// An output does not exist, or is of another type than requested.
pub(crate) const SARDONYX_ERROR_OUTPUT: c_int = 8;
/// An operator failed while the model ran.
pub(crate) const SARDONYX_ERROR_RUN: c_int = 9;
/// The run was cancelled.
pub(crate) const SARDONYX_ERROR_STOPPED: c_int = 10;
/// Another worker of a model on several devices failed.
pub(crate) const SARDONYX_ERROR_WORKER: c_int = 11;
/// A bug of the library.
pub(crate) const SARDONYX_ERROR_INTERNAL: c_int = 12;

/// Error of a call.
#[derive(Debug)]
pub(crate) struct Error {
    code: c_int,
    message: CString,
    place: Option<CString>,
    help: Option<CString>,
}

/// Error of a call, before it is handed to the caller. Boxed, as it is larger than most results.
pub(crate) type Failure = Box<Error>;

/// Makes an error about an argument.
pub(crate) fn argument(message: impl AsRef<str>) -> Failure {
    fail(SARDONYX_ERROR_ARGUMENT, message.as_ref())
}

/// Makes an error with a code and a message alone.
pub(crate) fn fail(code: c_int, message: &str) -> Failure {
    Box::new(Error { code, message: to_c_string(message), place: None, help: None })
}

impl From<sardonyx::Error> for Failure {
    fn from(error: sardonyx::Error) -> Failure {
        Box::new(Error {
            code: to_code(error.kind()),
            message: to_c_string(error.message()),
            place: error.place().map(to_c_string),
            help: error.help().map(to_c_string),
        })
    }
}

impl From<EditError> for Failure {
    fn from(error: EditError) -> Failure {
        let code = match &error {
            EditError::Option(_) => SARDONYX_ERROR_ARGUMENT,
            _ => SARDONYX_ERROR_INVALID,
        };
        fail(code, &error.to_string())
    }
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Failure {
        argument(error.message())
    }
}

fn to_code(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Io => SARDONYX_ERROR_IO,
        ErrorKind::Format => SARDONYX_ERROR_FORMAT,
        ErrorKind::Unsupported => SARDONYX_ERROR_UNSUPPORTED,
        ErrorKind::Invalid => SARDONYX_ERROR_INVALID,
        ErrorKind::ExternalData => SARDONYX_ERROR_EXTERNAL_DATA,
        ErrorKind::Argument => SARDONYX_ERROR_ARGUMENT,
        ErrorKind::Input => SARDONYX_ERROR_INPUT,
        ErrorKind::Output => SARDONYX_ERROR_OUTPUT,
        ErrorKind::Run => SARDONYX_ERROR_RUN,
        ErrorKind::Stopped => SARDONYX_ERROR_STOPPED,
        ErrorKind::Worker => SARDONYX_ERROR_WORKER,
        _ => SARDONYX_ERROR_INTERNAL,
    }
}

/// Runs the body of a function and returns its error. A panic becomes an error.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Failure>) -> *mut Error {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => ptr::null_mut(),
        Ok(Err(error)) => Box::into_raw(error),
        Err(_) => Box::into_raw(fail(
            SARDONYX_ERROR_INTERNAL,
            "the call failed with a bug of Sardonyx; please report it",
        )),
    }
}

/// Runs the body of a function that returns no error. After an error or a panic, it returns
/// `otherwise`.
pub(crate) fn answer_or<R>(otherwise: R, body: impl FnOnce() -> Result<R, Failure>) -> R {
    catch_unwind(AssertUnwindSafe(body)).ok().and_then(Result::ok).unwrap_or(otherwise)
}

fn address(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// Returns the code of an error, one of `SARDONYX_ERROR_…`; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_error_code(error: Ref<Error>) -> c_int {
    error.optional().map_or(0, |error| error.code)
}

/// Returns the message of an error, one line or several.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_error_message(error: Ref<Error>) -> *const c_char {
    address(error.optional().map(|error| &error.message))
}

/// Returns the place of an error in the model or file; null without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_error_place(error: Ref<Error>) -> *const c_char {
    address(error.optional().and_then(|error| error.place.as_ref()))
}

/// Returns the advice of an error; null without any.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_error_help(error: Ref<Error>) -> *const c_char {
    address(error.optional().and_then(|error| error.help.as_ref()))
}

/// Frees an error. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_error_free(error: Owned<Error>) {
    error.free();
}
