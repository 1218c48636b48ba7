//! Adapter from a Python transport object to [`Channel`], which carries messages between members.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};
use sardonyx::device::Channel;

use crate::session::errors::{argument_error, to_exception};
use crate::session::take::shorten_repr;

/// Transport object of a worker or rank, with its rank and size read once.
#[derive(Debug)]
pub(super) struct PyChannel {
    transport: Py<PyAny>,
    rank: usize,
    size: usize,
    raised: FirstException,
}

/// First exception that a method of the transport has raised.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstException(Arc<Mutex<Option<PyErr>>>);

impl FirstException {
    /// Converts an error to an exception whose `__cause__` is the exception of the transport, if
    /// there is one.
    pub(super) fn to_exception(&self, py: Python<'_>, error: &sardonyx::Error) -> PyErr {
        let exception = to_exception(py, error);
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = &*cause {
            exception.set_cause(py, Some(cause.clone_ref(py)));
        }
        exception
    }

    /// Stores `error` unless an earlier exception is stored, and returns the text of `error`.
    fn record_exception(&self, error: PyErr) -> Box<dyn Error + Send + Sync> {
        let text = error.to_string();
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        text.into()
    }
}

impl PyChannel {
    /// Reads `rank` and `size` of a transport object.
    ///
    /// # Errors
    ///
    /// An attribute is missing or not a number, or `rank` is not less than `size`.
    pub(super) fn new(transport: &Bound<'_, PyAny>, raised: FirstException) -> PyResult<PyChannel> {
        let rank: usize = transport.getattr("rank")?.extract()?;
        let size: usize = transport.getattr("size")?.extract()?;
        if rank >= size {
            let what = format!("the rank {rank} of the transport is not less than its size {size}");
            let help = "ranks are numbers from 0 to size - 1";
            return Err(argument_error(transport.py(), what, Some(help)));
        }
        Ok(PyChannel { transport: transport.clone().unbind(), rank, size, raised })
    }

    /// Calls `work` with the transport object, holding the GIL. An exception becomes a channel
    /// error; so does the exit of the interpreter.
    fn with_transport<R>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, Box<dyn Error + Send + Sync>> {
        Python::try_attach(|py| {
            work(self.transport.bind(py)).map_err(|error| self.raised.record_exception(error))
        })
        .unwrap_or_else(|| Err("the Python interpreter exits".into()))
    }
}

impl Channel for PyChannel {
    fn workers(&self) -> usize {
        self.size
    }

    fn number(&self) -> usize {
        self.rank
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.with_transport(|transport| {
            let data = PyBytes::new(transport.py(), message);
            transport.call_method1("send", (to, data)).map(|_| ())
        })
    }

    fn receive(
        &self,
        wait: Duration,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let received = self.with_transport(|transport| {
            let received = transport.call_method1("recv", (wait.as_secs_f64(),))?;
            if received.is_none() { Ok(None) } else { parse_message(&received).map(Some) }
        })?;
        // Copies the message after the GIL has been released.
        let came = received.is_some();
        if let Some((from, data)) = received {
            take(from, &data);
        }
        Ok(came)
    }
}

/// Converts the result of `recv`: the rank of the sender, and the message as any object with the
/// buffer protocol.
///
/// # Errors
///
/// `TypeError` for any other object.
fn parse_message(received: &Bound<'_, PyAny>) -> PyResult<(usize, PyBackedBytes)> {
    let (from, data): (usize, Bound<'_, PyAny>) =
        received.extract().map_err(|_| message_error(received))?;
    if let Ok(data) = data.extract() {
        return Ok((from, data));
    }
    let view = PyMemoryView::from(&data).map_err(|_| message_error(received))?;
    Ok((from, view.call_method0("tobytes")?.extract()?))
}

/// Makes the exception for an unsuitable result of `recv`.
fn message_error(received: &Bound<'_, PyAny>) -> PyErr {
    let found = shorten_repr(received);
    let what = format!("recv returned {found}, which is not None or a pair of source and bytes");
    PyTypeError::new_err(what)
}
