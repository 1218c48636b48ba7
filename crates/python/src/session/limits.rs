//! What may end a run, and a run that it may end.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use sardonyx::run::StepEvent;
use sardonyx::{Error, RunOptions, StopFlag};
use sardonyx_ort::profile::Recorder;

use super::errors::raised;
use super::group::attentive;
use super::interrupts::Interrupts;

/// What may end a run, and who is told of its steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Limits {
    pub(crate) stop: Option<StopFlag>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) profile: Option<Arc<Recorder>>,
}

/// What a run does with the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interpreter {
    /// Keeps it: the run takes less time than others would need to take it.
    Keep,
    /// Releases it.
    Release,
    /// Releases it, and looks meanwhile whether a signal has arrived.
    ReleaseAndLook,
}

impl Limits {
    /// Does a run on devices that keeps to these limits: the threads of the devices tell of no
    /// steps, so this one waits for them and for signals.
    ///
    /// # Errors
    ///
    /// As [`Limits::run`].
    pub(crate) fn run_on_devices<R: Send>(
        self,
        py: Python<'_>,
        run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let stop = self.stop.unwrap_or_default();
        let result = attentive(
            py,
            &stop,
            |_| {},
            || {
                let mut options = RunOptions::new().stop(&stop);
                options.deadline = self.deadline;
                run(&options)
            },
        );
        result?.map_err(|error| raised(py, &error))
    }

    /// Does a run that keeps to these limits.
    ///
    /// # Errors
    ///
    /// The error of the run, as an exception; what a handler of a signal has raised.
    pub(crate) fn run<R: Send>(
        self,
        py: Python<'_>,
        interpreter: Interpreter,
        run: impl FnOnce(&RunOptions<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Limits { stop, deadline, profile } = self;
        let looks = interpreter == Interpreter::ReleaseAndLook;
        let mut interrupts = if looks { Interrupts::new(py) } else { None };
        let whole = || {
            let interrupts = interrupts.as_mut().map(RefCell::new);
            let ends = || match &interrupts {
                Some(interrupts) => interrupts.borrow_mut().look(),
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
        let result = if interpreter == Interpreter::Keep { whole() } else { py.detach(whole) };
        if let Some(raised) = interrupts.and_then(Interrupts::raised) {
            return Err(raised);
        }
        result.map_err(|error| raised(py, &error))
    }
}
