//! An object of Python that carries messages between workers.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};
use sardonyx::device::Channel;

use crate::session::errors::{raised, wrong_argument};
use crate::session::take::shown;

/// The transport of a worker, as it is given.
#[derive(Debug)]
pub(super) struct PyChannel {
    transport: Py<PyAny>,
    rank: usize,
    size: usize,
    raised: Raised,
}

/// The first exception that the transport has raised.
#[derive(Debug, Clone, Default)]
pub(super) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// The exception for an error; its cause is what the transport has raised, if it has.
    pub(super) fn because(&self, py: Python<'_>, error: &sardonyx::Error) -> PyErr {
        let exception = raised(py, error);
        let cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = &*cause {
            exception.set_cause(py, Some(cause.clone_ref(py)));
        }
        exception
    }

    fn note(&self, error: PyErr) -> Box<dyn Error + Send + Sync> {
        let text = error.to_string();
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        text.into()
    }
}

impl PyChannel {
    /// # Errors
    ///
    /// The object has no `rank` and `size`, or they do not fit each other.
    pub(super) fn new(transport: &Bound<'_, PyAny>, raised: Raised) -> PyResult<PyChannel> {
        let rank: usize = transport.getattr("rank")?.extract()?;
        let size: usize = transport.getattr("size")?.extract()?;
        if rank >= size {
            let what = format!("the transport has the rank {rank} and the size {size}");
            let help = "ranks are numbers from 0 to size - 1";
            return Err(wrong_argument(transport.py(), what, Some(help)));
        }
        Ok(PyChannel { transport: transport.clone().unbind(), rank, size, raised })
    }

    /// Calls with the interpreter.
    fn with<R>(
        &self,
        work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, Box<dyn Error + Send + Sync>> {
        Python::try_attach(|py| {
            work(self.transport.bind(py)).map_err(|error| self.raised.note(error))
        })
        .unwrap_or_else(|| Err("Python ends".into()))
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
        self.with(|transport| {
            let data = PyBytes::new(transport.py(), message);
            transport.call_method1("send", (to, data)).map(|_| ())
        })
    }

    fn receive(
        &self,
        wait: Duration,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let received = self.with(|transport| {
            let received = transport.call_method1("recv", (wait.as_secs_f64(),))?;
            if received.is_none() { Ok(None) } else { letter(&received).map(Some) }
        })?;
        // Here nobody waits for the interpreter while the message is copied.
        let came = received.is_some();
        if let Some((from, data)) = received {
            take(from, &data);
        }
        Ok(came)
    }
}

/// What `recv` returns: the number of the sender, and a message.
fn letter(received: &Bound<'_, PyAny>) -> PyResult<(usize, PyBackedBytes)> {
    let wrong = || {
        let found = shown(received);
        let what = format!("recv returned {found}, which is not a source with bytes, or None");
        PyTypeError::new_err(what)
    };
    let (from, data): (usize, Bound<'_, PyAny>) = received.extract().map_err(|_| wrong())?;
    if let Ok(data) = data.extract() {
        return Ok((from, data));
    }
    let view = PyMemoryView::from(&data).map_err(|_| wrong())?;
    Ok((from, view.call_method0("tobytes")?.extract()?))
}
