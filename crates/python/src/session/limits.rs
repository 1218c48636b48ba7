//! What may end a run, and a run that it may end.

use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use sardonyx::{Error, RunOptions, StepEvent, StopFlag};

use super::errors::raised;
use super::interrupts::Interrupts;
use super::profile::Recorder;

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
    /// Releases it, and looks between steps whether a signal has arrived.
    ReleaseAndLook,
}

impl Limits {
    /// Does a run that keeps to these limits.
    ///
    /// # Errors
    ///
    /// The error of the run, as an exception; what a handler of a signal has raised.
    pub(crate) fn run<R: Send>(
        self,
        py: Python<'_>,
        interpreter: Interpreter,
        run: impl FnOnce(RunOptions<'_>) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let Limits { stop, deadline, profile } = self;
        let looks = interpreter == Interpreter::ReleaseAndLook;
        let mut interrupts = looks.then(|| Interrupts::new(py, stop.as_ref())).flatten();
        let whole = || {
            let stop = interrupts.as_ref().map(|interrupts| interrupts.stop.clone()).or(stop);
            let watched = |watch: Option<&mut dyn FnMut(StepEvent)>| {
                let mut options = RunOptions::new();
                options.stop = stop;
                options.deadline = deadline;
                options.watch = watch;
                run(options)
            };
            match (profile, &mut interrupts) {
                (None, None) => watched(None),
                (None, Some(interrupts)) => watched(Some(&mut |event| interrupts.look(event))),
                (Some(profile), None) => profile.record(|watch| watched(Some(watch))),
                (Some(profile), Some(interrupts)) => profile.record(|watch| {
                    watched(Some(&mut |event| {
                        watch(event);
                        interrupts.look(event);
                    }))
                }),
            }
        };
        let result = if interpreter == Interpreter::Keep { whole() } else { py.detach(whole) };
        if let Some(raised) = interrupts.and_then(Interrupts::raised) {
            return Err(raised);
        }
        result.map_err(|error| raised(py, &error))
    }
}
