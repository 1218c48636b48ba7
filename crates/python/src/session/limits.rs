//! Limits of a run: stop flag, deadline, signals. Also decides whether the run releases the GIL.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use sardonyx::run::StepEvent;
use sardonyx::{Error, RunOptions, StopFlag};
use sardonyx_ort::profile::Recorder;

use super::errors::to_exception;
use super::group::run_interruptible;
use super::interrupts::Interrupts;

/// Conditions that end a run early, and the recorder of its steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    /// Flag with which another thread cancels the run.
    pub(crate) stop: Option<StopFlag>,
    /// Time at which the run is ended with an error.
    pub(crate) deadline: Option<Instant>,
    /// Recorder of the start and duration of each step.
    pub(crate) profile: Option<Arc<Recorder>>,
}

/// Use of the GIL during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GilUse {
    /// Keeps the GIL: the run is shorter than handing the GIL to another thread and back.
    Keep,
    /// Releases the GIL.
    Release,
    /// Releases the GIL and takes it every 50 ms to handle signals.
    ReleaseAndCheck,
}

impl Limits {
    /// Calls `run`, which runs a model on device threads, within these limits. Device threads do
    /// not report steps, so this thread waits for them and handles signals.
    ///
    /// # Errors
    ///
    /// The error of `run` as an exception, or the exception of a signal handler.
    pub(crate) fn run_on_devices<R: Send>(
        self,
        py: Python<'_>,
        run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let stop = self.stop.unwrap_or_default();
        let result = run_interruptible(
            py,
            &stop,
            |_| {},
            || {
                let mut options = RunOptions::new().stop(&stop);
                options.deadline = self.deadline;
                run(&options)
            },
        );
        result?.map_err(|error| to_exception(py, &error))
    }

    /// Calls `run`, which runs a model, within these limits, with the GIL kept or released as
    /// `interpreter` requires.
    ///
    /// # Errors
    ///
    /// The error of `run` as an exception, or the exception of a signal handler.
    pub(crate) fn run<R: Send>(
        self,
        py: Python<'_>,
        interpreter: GilUse,
        run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Limits { stop, deadline, profile } = self;
        let looks = interpreter == GilUse::ReleaseAndCheck;
        let mut interrupts = if looks { Interrupts::new(py) } else { None };
        let whole = || {
            let interrupts = interrupts.as_mut().map(RefCell::new);
            let ends = || match &interrupts {
                Some(interrupts) => interrupts.borrow_mut().check(),
                None => false,
            };
            let watched = |watch: Option<&dyn Fn(StepEvent)>| {
                let mut options = RunOptions::new();
                options.stop = stop;
                options.deadline = deadline;
                options.asks = interrupts.as_ref().map(|_| &ends as &dyn Fn() -> bool);
                options.watch = watch;
                run(&options)
            };
            match profile {
                None => watched(None),
                Some(profile) => profile.record(|watch| watched(Some(watch))),
            }
        };
        let result = if interpreter == GilUse::Keep { whole() } else { py.detach(whole) };
        if let Some(raised) = interrupts.and_then(Interrupts::into_exception) {
            return Err(raised);
        }
        result.map_err(|error| to_exception(py, &error))
    }
}
