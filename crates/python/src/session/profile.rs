//! Profiles: when the steps of runs began, and how long they took.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use sardonyx::run::StepEvent;

/// More steps than this are not recorded, so that a profile that nobody ends stays bounded.
const MOST_STEPS: usize = 1_000_000;

/// A run: when it began and how long it took, and the same of its steps, by number. In microseconds
/// since the profile began; those of steps since the run began.
type RecordedRun = (u64, u64, Vec<(usize, u64, u64)>);

/// Where runs of all threads are recorded.
#[derive(Debug)]
pub(crate) struct Recorder {
    began: Instant,
    runs: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    runs: Vec<RecordedRun>,
    steps: usize,
}

impl Recorder {
    /// Records a run. `run` gets a function to call after each step.
    pub(crate) fn record<R>(&self, run: impl FnOnce(&dyn Fn(StepEvent)) -> R) -> R {
        let began = Instant::now();
        let steps = RefCell::new(Vec::new());
        let result = run(&|event: StepEvent| {
            let mut steps = steps.borrow_mut();
            if steps.len() < MOST_STEPS {
                steps.push((event.step, micros(event.start), micros(event.took)));
            }
        });
        let took = began.elapsed();
        let steps = steps.into_inner();
        let mut recorded = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.steps + steps.len() < MOST_STEPS {
            // A run without steps counts as well.
            recorded.steps += steps.len() + 1;
            recorded.runs.push((micros(began - self.began), micros(took), steps));
        }
        result
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Records runs of a session until it is ended.
#[pyclass(frozen, module = "sardonyx._core.session")]
pub(crate) struct Profile {
    recorder: Arc<Recorder>,
    has_ended: AtomicBool,
}

impl Profile {
    /// Where to record, until it is ended.
    pub(crate) fn recorder(&self) -> Option<Arc<Recorder>> {
        (!self.has_ended.load(Ordering::Relaxed)).then(|| self.recorder.clone())
    }
}

#[pymethods]
impl Profile {
    #[new]
    pub(crate) fn new() -> Profile {
        let recorder = Recorder { began: Instant::now(), runs: Mutex::default() };
        Profile { recorder: Arc::new(recorder), has_ended: AtomicBool::new(false) }
    }

    /// Ends the recording and returns the runs: when each began since the profile was made, how
    /// long it took, and for each of its steps the number, when it began in the run, and how long
    /// it took. In microseconds. At most a million steps are recorded.
    pub(crate) fn end(&self) -> Vec<RecordedRun> {
        self.has_ended.store(true, Ordering::Relaxed);
        let mut recorded = self.recorder.runs.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut recorded.runs)
    }
}
