//! Profile of an `InferenceSession`.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use sardonyx_ort::profile::{self, LocalTime, Recorder, WriteError};

use super::super::PySession;

/// Profile of a session, which is written to a file once.
#[pyclass(frozen, name = "Profile", module = "sardonyx._core.ort")]
pub(crate) struct Profile {
    profile: profile::Profile,
    session: Py<PySession>,
}

impl Profile {
    /// Starts the profile of a session that took `making` to open. The file name begins with
    /// `prefix`.
    pub(super) fn new(
        prefix: OsString,
        recorder: Arc<Recorder>,
        making: Duration,
        session: Py<PySession>,
    ) -> Profile {
        Profile { profile: profile::Profile::new(prefix, recorder, making), session }
    }

    /// Returns the recorder of runs; `None` after the profile has been written.
    pub(super) fn recorder(&self) -> Option<Arc<Recorder>> {
        self.profile.recorder()
    }
}

#[pymethods]
impl Profile {
    /// Writes the profile and returns the name of its file, or an empty string if it was written
    /// before. Raises `OSError` if the file cannot be written.
    pub(super) fn end(&self, py: Python<'_>) -> PyResult<OsString> {
        let now = read_local_time(py)?;
        let thread = py.import("threading")?.call_method0("get_native_id")?.extract()?;
        let steps = self.session.get().0.step_infos();
        let ended = py.detach(|| self.profile.end(&steps, now, thread));
        ended.map(Option::unwrap_or_default).map_err(|WriteError { name, reason }| {
            // With an error number, Python selects the subclass, such as `PermissionError`.
            let text = reason.to_string();
            match reason.raw_os_error() {
                Some(number) => PyOSError::new_err((number, text, name)),
                None => PyOSError::new_err(text),
            }
        })
    }
}

/// Returns the local time of the system, to the millisecond.
fn read_local_time(py: Python<'_>) -> PyResult<LocalTime> {
    let time = py.import("time")?;
    let now: f64 = time.call_method0("time")?.extract()?;
    let local = time.call_method1("localtime", (now,))?;
    let (year, month, day) = (
        local.get_item(0)?.extract()?,
        local.get_item(1)?.extract()?,
        local.get_item(2)?.extract()?,
    );
    let (hour, minute, second) = (
        local.get_item(3)?.extract()?,
        local.get_item(4)?.extract()?,
        local.get_item(5)?.extract()?,
    );
    let millisecond = (now.rem_euclid(1.0) * 1000.0) as u16;
    Ok(LocalTime { year, month, day, hour, minute, second, millisecond })
}
