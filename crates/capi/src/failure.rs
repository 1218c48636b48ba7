//! Errors of calls: the object `OrtStatus`, and the guard around the body of every function.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sardonyx::ErrorKind;
use sardonyx_ort::Status as Code;

use crate::handles::{Handle, Object, give};
use crate::pointers::Text;
use crate::trace;

pub(crate) use sardonyx_ort::Error;

/// Error of a call, `OrtStatus`.
#[derive(Debug)]
pub(crate) struct Status {
    code: c_int,
    message: CString,
}

impl Object for Status {
    const NAME: &'static str = "OrtStatus";
}

/// Result of most functions: null for success, else an error that the caller releases.
pub(crate) type StatusPointer = *mut Status;

/// Makes an error about an argument.
pub(crate) fn argument(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, ErrorKind::Argument, message)
}

/// Fails with an error about an argument unless a condition holds.
///
/// # Errors
///
/// The condition does not hold.
#[inline]
pub(crate) fn demand(holds: bool, message: impl FnOnce() -> String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(argument(message())) }
}

/// Makes an error of a tensor's shape, type or size one of an argument.
pub(crate) fn of_tensor(error: sardonyx::value::TensorError) -> Error {
    argument(error.message())
}

/// Converts a text to a C string. A zero byte ends it, as it would for the reader.
pub(crate) fn to_c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Converts an error to a status that the caller releases.
fn to_status(error: &Error) -> StatusPointer {
    let message = to_c_string(&error.to_string());
    give(Status { code: error.status.number(), message })
}

/// Runs the body of a function of the table and returns its result as a status. A panic becomes an
/// error.
pub(crate) fn answer(name: &str, body: impl FnOnce() -> Result<(), Error>) -> StatusPointer {
    trace::record(name);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => std::ptr::null_mut(),
        Ok(Err(error)) => to_status(&error),
        Err(_) => to_status(&Error::new(
            Code::RuntimeException,
            ErrorKind::Internal,
            format!("{name} failed with a bug of Sardonyx; please report it"),
        )),
    }
}

/// Runs the body of a function of the table that returns no status. After an error or a panic, it
/// returns `otherwise`.
pub(crate) fn answer_or<R>(name: &str, otherwise: R, body: impl FnOnce() -> Result<R, Error>) -> R {
    trace::record(name);
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) | Err(_) => otherwise,
    }
}

/// Runs the body of a function of the table that frees an object.
pub(crate) fn release<T: Object>(name: &str, object: Handle<T>) {
    answer_or(name, (), || {
        object.release();
        Ok(())
    });
}

/// Refuses a function of the table that Sardonyx does not have.
pub(crate) fn refuse(name: &str) -> StatusPointer {
    answer(name, || {
        let what = format!("{name} is not implemented by Sardonyx");
        let help = "docs/libonnxruntime.md lists the functions that are";
        Err(Error::new(Code::NotImplemented, ErrorKind::Unsupported, what).with_help(help))
    })
}

pub(crate) extern "C" fn create_status(code: c_int, message: Text) -> StatusPointer {
    answer_or("CreateStatus", std::ptr::null_mut(), || {
        let message = to_c_string(&message.read("message")?);
        Ok(give(Status { code, message }))
    })
}

pub(crate) extern "C" fn get_error_code(status: Handle<Status>) -> c_int {
    answer_or("GetErrorCode", 0, || Ok(status.optional()?.map_or(0, |status| status.code)))
}

pub(crate) extern "C" fn get_error_message(status: Handle<Status>) -> *const c_char {
    answer_or("GetErrorMessage", c"".as_ptr(), || {
        Ok(status.optional()?.map_or(c"".as_ptr(), |status| status.message.as_ptr()))
    })
}

pub(crate) extern "C" fn release_status(status: Handle<Status>) {
    release("ReleaseStatus", status);
}
