//! Where the time of a run on several devices goes: what each computes, moves and waits for.

use std::time::Duration;

use sardonyx::device::DeviceSession;
use sardonyx::tool::profile::Exchanged;
use sardonyx::tool::shard::{EXCHANGE, Sent};
use serde_json::{Value, json};

use super::measured::{self, micros, rounded, rounded_micros};
use super::{Args, Device, Exchanges};
use crate::failure::{Code, Failure};
use crate::human::{self, Align, columns, count, cut};
use crate::objects::merged;
use crate::timing::median;

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.profile-devices/1";

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

pub(super) struct Report {
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
    pub(super) fn of(
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

    pub(super) fn text(&self, args: &Args) -> String {
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

    pub(super) fn json(&self, args: &Args) -> Value {
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
