//! Where the time of a run on several devices goes: what each computes, moves and waits for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sardonyx::device::DeviceSession;
use sardonyx::tool::profile::{DeviceRun, Exchanged};
use sardonyx::tool::shard::EXCHANGE;
use sardonyx::tool::shard::Sent;
use serde_json::{Value, json};

use super::measured::{self, Measured, Profile, Track, micros, rounded, rounded_micros};
use super::{Args, Run};
use crate::failure::{Code, Failure};
use crate::human::{self, Align, columns, count, cut};
use crate::inputs::Inputs;
use crate::terminal::Terminal;
use crate::timing::median;

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.profile-devices/1";

/// The profile of a session on devices.
pub(super) fn profile(
    args: &Args,
    session: &DeviceSession,
    inputs: &Inputs,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let parts = session.parts(&inputs.types())?;
    let steps: Vec<usize> = parts.iter().map(|part| part.steps.len()).collect();
    let runs = args.record(steps.iter().sum(), terminal, |keeps| {
        let options = args.stopping.options();
        let values = inputs.named();
        let began = Instant::now();
        let (_, devices) = session.run_watched(values, &options)?;
        let took = began.elapsed();
        let devices = devices.iter().zip(&steps);
        let devices: Vec<_> = devices.map(|(device, steps)| taken(device, *steps, keeps)).collect();
        let kept = devices.iter().map(|(run, _)| run.events.len()).sum();
        Ok(((took, devices), kept))
    })?;

    // By run; and by device and run.
    let mut wall: Vec<Duration> = Vec::new();
    let mut of_devices: Vec<(Vec<Run>, Vec<Exchanges>)> =
        parts.iter().map(|_| Default::default()).collect();
    for (took, devices) in runs {
        wall.push(took);
        for ((runs, exchanges), (run, exchanged)) in of_devices.iter_mut().zip(devices) {
            runs.push(run);
            exchanges.push(exchanged);
        }
    }
    let mut devices = Vec::new();
    for (part, (runs, exchanges)) in parts.into_iter().zip(of_devices) {
        let (infos, details) = (part.steps, part.details);
        let threads = session.threads_per_device();
        let profile = Profile::of(Measured { infos, details, threads }, &runs)?;
        devices.push(Device { number: part.device, profile, runs, exchanges });
    }
    let report = Report::of(session, &wall, devices)?;
    if let Some(target) = &args.trace {
        let nearest = (0..wall.len()).min_by_key(|run| wall[*run].abs_diff(report.run));
        let tracks = report.tracks(nearest.unwrap_or(0));
        let more = json!({
            "threads": session.threads(),
            "instruction_set": report.instruction_set,
            "run_us": nearest.map(|run| rounded_micros(wall[run])),
        });
        args.write_trace(target, &tracks, more, terminal)?;
    }
    if args.json {
        terminal.json(&report.json(args), true)
    } else {
        terminal.print(&report.text(args))
    }
}

/// What a device did in exchanges, by step of the plan: how long the step took, and what it did.
type Exchanges = BTreeMap<usize, (Duration, Exchanged)>;

/// What is kept of the run of a device.
fn taken(watched: &DeviceRun, steps: usize, keeps: usize) -> (Run, Exchanges) {
    let mut run = Run::new(steps);
    (run.start, run.took) = (watched.start, watched.took);
    let mut exchanges = Exchanges::new();
    for event in &watched.events {
        run.add(event.step, keeps);
        if let Some(exchanged) = event.exchanged {
            exchanges.insert(exchanged.step, (event.step.took, exchanged));
        }
    }
    run.untold += watched.untold;
    (run, exchanges)
}

/// A device, run by run.
struct Device {
    number: usize,
    profile: Profile,
    runs: Vec<Run>,
    exchanges: Vec<Exchanges>,
}

/// Times of exchanges, and what was sent.
#[derive(Clone, Copy, Default)]
struct Moved {
    moving: Duration,
    waiting: Duration,
    sent: Sent,
}

impl Moved {
    fn of((took, exchanged): &(Duration, Exchanged)) -> Moved {
        let waiting = exchanged.waited.min(*took);
        Moved { moving: *took - waiting, waiting, sent: exchanged.sent }
    }

    fn plus(self, other: Moved) -> Moved {
        Moved {
            moving: self.moving + other.moving,
            waiting: self.waiting + other.waiting,
            sent: self.sent + other.sent,
        }
    }

    /// The medians over runs.
    fn median(runs: &[Moved]) -> Moved {
        let median = |of: fn(&Moved) -> Duration| {
            let mut times: Vec<Duration> = runs.iter().map(of).collect();
            times.sort_unstable();
            median(&times).unwrap_or_default()
        };
        Moved {
            moving: median(|moved| moved.moving),
            waiting: median(|moved| moved.waiting),
            sent: runs.last().map_or(Sent::default(), |moved| moved.sent),
        }
    }

    fn json(self) -> Value {
        json!({
            "moving_us": rounded_micros(self.moving),
            "waiting_us": rounded_micros(self.waiting),
            "messages": self.sent.messages,
            "sent_bytes": self.sent.bytes,
        })
    }

    fn cells(self) -> [String; 3] {
        [micros(self.moving), micros(self.waiting), human::bytes(self.sent.bytes)]
    }
}

impl Device {
    /// All exchanges of a run, by run.
    fn moved(&self) -> Vec<Moved> {
        let all = |run: &Exchanges| run.values().map(Moved::of).fold(Moved::default(), Moved::plus);
        self.exchanges.iter().map(all).collect()
    }

    /// The share of a run in which the device neither computes nor moves: the median over runs.
    fn idle(&self, wall: &[Duration]) -> f64 {
        let runs = self.runs.iter().zip(self.moved()).zip(wall);
        let mut shares: Vec<f64> = runs
            .map(|((run, moved), took)| {
                let steps: Duration = run.steps.iter().flatten().map(|calls| calls.took).sum();
                let busy = steps.saturating_sub(moved.waiting);
                1.0 - (busy.as_secs_f64() / took.as_secs_f64().max(1e-12)).min(1.0)
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        shares.get(shares.len() / 2).copied().unwrap_or(0.0)
    }

    /// In steps that are no exchanges.
    fn computing(&self) -> Duration {
        let steps = self.profile.steps.iter().filter(|step| step.info.op != EXCHANGE);
        steps.map(measured::Step::took).sum()
    }
}

/// A move of the plan.
struct Move {
    step: usize,
    /// The name of the value, and its forms before and after.
    words: [String; 3],
    /// By device that takes part.
    devices: Vec<(usize, Moved)>,
}

struct Report {
    configuration: String,
    run: Duration,
    shortest: Duration,
    runs: usize,
    threads: usize,
    instruction_set: String,
    /// By device.
    idle: Vec<f64>,
    devices: Vec<Device>,
    moves: Vec<Move>,
}

impl Report {
    fn of(
        session: &DeviceSession,
        wall: &[Duration],
        devices: Vec<Device>,
    ) -> Result<Report, Failure> {
        let nothing = || Failure::new("nothing was run").code(Code::Internal);
        let plan = session.last_plan().ok_or_else(nothing)?;
        let mut moves = Vec::new();
        for (step, words) in (0..plan.steps.len()).map(|step| (step, plan.move_in_words(step))) {
            let Some(words) = words else { continue };
            let taking_part = devices.iter().filter_map(|device| {
                let runs = device.exchanges.iter().filter_map(|run| run.get(&step)).map(Moved::of);
                let runs: Vec<Moved> = runs.collect();
                (!runs.is_empty()).then(|| (device.number, Moved::median(&runs)))
            });
            let taking_part: Vec<_> = taking_part.collect();
            // What a device takes of what it has is no exchange.
            if !taking_part.is_empty() {
                moves.push(Move { step, words, devices: taking_part });
            }
        }
        let mut sorted = wall.to_vec();
        sorted.sort_unstable();
        Ok(Report {
            configuration: plan.configuration.clone(),
            run: median(&sorted).ok_or_else(nothing)?,
            shortest: *sorted.first().ok_or_else(nothing)?,
            runs: wall.len(),
            threads: session.threads_per_device(),
            instruction_set: session.instruction_set(),
            idle: devices.iter().map(|device| device.idle(wall)).collect(),
            devices,
            moves,
        })
    }

    /// The tracks of a run, by number of the run.
    fn tracks(&self, run: usize) -> Vec<Track<'_>> {
        let tracks = self.devices.iter().filter_map(|device| {
            let name = format!("device {}", device.number);
            Some(Track { name, profile: &device.profile, run: device.runs.get(run)? })
        });
        tracks.collect()
    }

    fn text(&self, args: &Args) -> String {
        let sent = self.devices.iter().map(|device| Moved::median(&device.moved()).sent);
        let sent = sent.fold(Sent::default(), |sum, sent| sum + sent);
        let mut text = format!(
            "run       {} us, the median of {}; the shortest {} us; {} of {}, {}\n",
            micros(self.run),
            count(self.runs, "run"),
            micros(self.shortest),
            count(self.devices.len(), "device"),
            count(self.threads, "thread"),
            self.instruction_set
        );
        text += &format!(
            "moves     {}, {} in {}\n\n",
            self.moves.len(),
            human::bytes(sent.bytes),
            count(usize::try_from(sent.messages).unwrap_or(usize::MAX), "message")
        );
        let right = Align::Right;
        let headings = [
            ("device", right),
            ("computing us", right),
            ("moving us", right),
            ("waiting us", right),
            ("sent", right),
            ("idle", right),
        ];
        let rows = self.devices.iter().zip(&self.idle).map(|(device, idle)| {
            let mut row = vec![device.number.to_string(), micros(device.computing())];
            row.extend(Moved::median(&device.moved()).cells());
            row.push(format!("{:.1} %", 100.0 * idle));
            row
        });
        text += &columns(&headings, &rows.collect::<Vec<_>>());
        text += &self.moves_text();
        text += &self.steps_text(args);
        text
    }

    fn moves_text(&self) -> String {
        if self.moves.is_empty() {
            return String::new();
        }
        let (left, right) = (Align::Left, Align::Right);
        let headings = [
            ("move", left),
            ("from", left),
            ("to", left),
            ("device", right),
            ("moving us", right),
            ("waiting us", right),
            ("sent", right),
        ];
        let rows = self.moves.iter().flat_map(|one| {
            one.devices.iter().enumerate().map(|(place, (device, moved))| {
                let [value, from, to] = &one.words;
                let word = |word: &str| if place == 0 { cut(word) } else { String::new() };
                let mut row = vec![word(value), word(from), word(to), device.to_string()];
                row.extend(moved.cells());
                row
            })
        });
        format!("\n{}", columns(&headings, &rows.collect::<Vec<_>>()))
    }

    fn steps_text(&self, args: &Args) -> String {
        let steps = self.devices.iter().flat_map(|device| {
            let steps = device.profile.steps.iter().enumerate();
            steps.map(move |(index, step)| (device, index, step))
        });
        let mut steps: Vec<_> = steps.filter(|(_, _, step)| step.info.op != EXCHANGE).collect();
        if !args.all {
            steps.retain(|(_, _, step)| step.time.is_some());
            // A sort that keeps the order of equals.
            steps.sort_by_key(|(_, _, step)| std::cmp::Reverse(step.took()));
            steps.truncate(args.top);
        }
        if steps.is_empty() {
            return String::new();
        }
        let headings = [&[("device", Align::Right)][..], &measured::STEP_HEADINGS].concat();
        let rows = steps.into_iter().map(|(device, index, step)| {
            let mut row = vec![device.number.to_string()];
            row.extend(device.profile.step_cells(index, step));
            row
        });
        format!("\n{}", columns(&headings, &rows.collect::<Vec<_>>()))
    }

    fn json(&self, args: &Args) -> Value {
        let devices = self.devices.iter().zip(&self.idle).map(|(device, idle)| {
            let steps = device.profile.steps.iter().map(|step| device.profile.step_json(step));
            let moved = Moved::median(&device.moved());
            merged(
                json!({
                    "device": device.number,
                    "us": rounded_micros(device.profile.run),
                    "computing_us": rounded_micros(device.computing()),
                    "idle": rounded(*idle),
                    "steps": steps.collect::<Vec<_>>(),
                }),
                moved.json(),
            )
        });
        let moves = self.moves.iter().map(|one| {
            let [value, from, to] = &one.words;
            let devices = one.devices.iter();
            let devices =
                devices.map(|(device, moved)| merged(json!({"device": device}), moved.json()));
            json!({
                "step": one.step,
                "value": value,
                "from": from,
                "to": to,
                "devices": devices.collect::<Vec<_>>(),
            })
        });
        json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "configuration": self.configuration,
            "threads": self.threads,
            "instruction_set": self.instruction_set,
            "runs": self.runs,
            "run_us": rounded_micros(self.run),
            "run_min_us": rounded_micros(self.shortest),
            "devices": devices.collect::<Vec<_>>(),
            "moves": moves.collect::<Vec<_>>(),
        })
    }
}

/// An object with the members of two.
fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
