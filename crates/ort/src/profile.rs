//! Profiles: start and duration of runs and their steps, in the file format of browsers.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sardonyx::run::StepEvent;
use sardonyx::tool::profile::StepInfo;
use serde_json::{Value, json};

use crate::providers::CPU_PROVIDER;

/// Most steps that are recorded, so that a profile that never ends is bounded.
const MOST_STEPS: usize = 1_000_000;

/// Recorded run, with times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRun {
    /// Start, since the recorder was created.
    pub start: u64,
    /// Duration.
    pub took: u64,
    /// Steps of the run.
    pub steps: Vec<RecordedStep>,
}

/// Recorded step of a run, with times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordedStep {
    /// Index of the step.
    pub number: usize,
    /// Start, since the run began.
    pub start: u64,
    /// Duration.
    pub took: u64,
}

/// Recorder of the runs of all threads.
#[derive(Debug)]
pub struct Recorder {
    began: Instant,
    runs: Mutex<Recorded>,
}

/// Runs so far, and the number of their steps.
#[derive(Debug, Default)]
struct Recorded {
    runs: Vec<RecordedRun>,
    steps: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { began: Instant::now(), runs: Mutex::default() }
    }
}

impl Recorder {
    /// Records a run. `run` receives a function to call after each step.
    pub fn record<R>(&self, run: impl FnOnce(&dyn Fn(StepEvent)) -> R) -> R {
        let began = Instant::now();
        let steps = RefCell::new(Vec::new());
        let result = run(&|event: StepEvent| {
            let mut steps = steps.borrow_mut();
            if steps.len() < MOST_STEPS {
                let (start, took) = (to_micros(event.start), to_micros(event.took));
                steps.push(RecordedStep { number: event.step, start, took });
            }
        });
        let took = to_micros(began.elapsed());
        let steps = steps.into_inner();
        let mut recorded = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.steps + steps.len() < MOST_STEPS {
            // A run without steps counts, too.
            recorded.steps += steps.len() + 1;
            let start = to_micros(began - self.began);
            recorded.runs.push(RecordedRun { start, took, steps });
        }
        result
    }

    /// Takes the recorded runs: at most a million steps.
    pub fn take(&self) -> Vec<RecordedRun> {
        let mut recorded = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *recorded).runs
    }
}

/// Converts a duration to microseconds.
fn to_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Local time, which an interface gets from its own library: Rust's standard library has no time
/// zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Year.
    pub year: i32,
    /// Month, from 1.
    pub month: u8,
    /// Day of the month, from 1.
    pub day: u8,
    /// Hour.
    pub hour: u8,
    /// Minute.
    pub minute: u8,
    /// Second.
    pub second: u8,
    /// Millisecond.
    pub millisecond: u16,
}

/// Profile of one session, which is written to a file once.
#[derive(Debug)]
pub struct Profile {
    prefix: OsString,
    recorder: Arc<Recorder>,
    /// Time to create the session, in microseconds.
    making: u64,
    has_ended: AtomicBool,
}

impl Profile {
    /// Creates the profile of a session. `making` is the time to create the session, which began
    /// with the recorder.
    pub fn new(prefix: OsString, recorder: Arc<Recorder>, making: Duration) -> Profile {
        Profile { prefix, recorder, making: to_micros(making), has_ended: AtomicBool::new(false) }
    }

    /// Returns the recorder of runs, until the profile is ended.
    pub fn recorder(&self) -> Option<Arc<Recorder>> {
        (!self.has_ended.load(Ordering::Relaxed)).then(|| self.recorder.clone())
    }

    /// Ends the profile: writes it and returns the name of the file, or `None` if it has ended
    /// before.
    ///
    /// `steps` are those of the session; `thread` is the system's identifier of this thread.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn end(
        &self,
        steps: &[StepInfo],
        now: LocalTime,
        thread: u64,
    ) -> Result<Option<OsString>, WriteError> {
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return Ok(None);
        }
        let content = to_json(steps, self.making, &self.recorder.take(), thread);
        write_new(&self.prefix, now, &content).map(Some)
    }
}

/// Failure to write a profile.
#[derive(Debug)]
pub struct WriteError {
    /// Name of the file.
    pub name: OsString,
    /// Reason.
    pub reason: io::Error,
}

/// Formats the profile for browsers: events with times in microseconds.
fn to_json(steps: &[StepInfo], making: u64, runs: &[RecordedRun], thread: u64) -> String {
    let process = std::process::id();
    let event = |category: &str, name: &str, start: u64, took: u64, facts: Value| {
        json!({
            "cat": category, "pid": process, "tid": thread, "dur": took, "ts": start, "ph": "X",
            "name": name, "args": facts,
        })
    };
    let mut events = vec![event("Session", "session_initialization", 0, making, json!({}))];
    for run in runs {
        events.push(event("Session", "model_run", run.start, run.took, json!({})));
        for RecordedStep { number, start, took } in &run.steps {
            let Some(step) = steps.get(*number) else { continue };
            let facts = json!({
                "op_name": step.op, "provider": CPU_PROVIDER, "node_index": number.to_string(),
                "kernel": step.kernel,
            });
            let name = format!("{}_kernel_time", step.node);
            events.push(event("Node", &name, run.start + start, *took, facts));
        }
    }
    Value::from(events).to_string()
}

/// Writes a new file and returns its name: the prefix, the time, and a number if another session
/// ended in that millisecond.
fn write_new(prefix: &OsStr, now: LocalTime, content: &str) -> Result<OsString, WriteError> {
    let LocalTime { year, month, day, hour, minute, second, millisecond } = now;
    let mut number = 0u64;
    loop {
        let mut name = prefix.to_os_string();
        name.push(format!(
            "_{year:04}-{month:02}-{day:02}_{hour:02}-{minute:02}-{second:02}_{millisecond:03}"
        ));
        if number > 0 {
            name.push(format!("_{number}"));
        }
        name.push(".json");
        let file = OpenOptions::new().write(true).create_new(true).open(&name);
        match file.and_then(|mut file| file.write_all(content.as_bytes())) {
            Ok(()) => return Ok(name),
            Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(reason) => return Err(WriteError { name, reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx::tool::SessionExt;
    use sardonyx::{Model, RunOptions, Session, Tensor};

    const NOW: LocalTime =
        LocalTime { year: 2026, month: 1, day: 9, hour: 7, minute: 5, second: 3, millisecond: 42 };

    #[test]
    fn a_profile_is_written_once() {
        let text = "<ir_version: 8, opset_import: [\"\": 17]>
            g (float[N] x) => (float[N] y) { z = Softmax (x) y = CumSum (z, axis) }";
        let text = text.replace("(float[N] x)", "(float[N] x, int32 axis)");
        let session = Session::new(&Model::from_text(&text).unwrap()).unwrap();
        let recorder = Arc::new(Recorder::default());
        let directory =
            std::env::temp_dir().join(format!("sardonyx-profile-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let prefix = directory.join("100%d").into_os_string();
        let made = Duration::from_micros(70);
        let profile = Profile::new(prefix.clone(), recorder, made);
        for _ in 0..3 {
            let inputs = [
                ("x", Tensor::from_vec([2], vec![1f32, 2.0]).unwrap()),
                ("axis", Tensor::scalar(0i32)),
            ];
            let recorder = profile.recorder().unwrap();
            recorder.record(|watch| session.run(inputs, &RunOptions::new().watch(watch))).unwrap();
        }
        let steps = session.steps();
        let name = profile.end(&steps, NOW, 9).unwrap().unwrap();
        let mut expected = prefix.clone();
        expected.push("_2026-01-09_07-05-03_042.json");
        assert_eq!(name, expected);
        assert!(profile.recorder().is_none());
        assert_eq!(profile.end(&steps, NOW, 9).unwrap(), None);
        let events: Value = serde_json::from_slice(&std::fs::read(&name).unwrap()).unwrap();
        let events = events.as_array().unwrap();
        assert_eq!(events[0]["name"], "session_initialization");
        assert_eq!((&events[0]["dur"], &events[0]["tid"]), (&json!(70), &json!(9)));
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((count("model_run"), events.len()), (3, 1 + 3 * (1 + steps.len())));
        let names: Vec<&str> =
            events.iter().filter_map(|e| e["args"]["op_name"].as_str()).collect();
        assert!(names.contains(&"Softmax") && names.contains(&"CumSum"), "{names:?}");

        let other = Profile::new(prefix, Arc::default(), made);
        let second = other.end(&steps, NOW, 9).unwrap().unwrap();
        assert!(second.to_str().unwrap().ends_with("_042_1.json"));
        let lost = directory.join("nowhere").join("p").into_os_string();
        let failed = Profile::new(lost, Arc::default(), made).end(&steps, NOW, 9).unwrap_err();
        assert_eq!(failed.reason.kind(), io::ErrorKind::NotFound);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_recorded_is_bounded() {
        let recorder = Recorder::default();
        let event = StepEvent::new(0, Duration::ZERO, Duration::from_micros(1));
        for _ in 0..3 {
            recorder.record(|watch| (0..MOST_STEPS / 2).for_each(|_| watch(event)));
        }
        assert_eq!(recorder.take().len(), 1);
        recorder.record(|watch| watch(event));
        assert_eq!(recorder.take()[0].steps[0].took, 1);
    }
}
