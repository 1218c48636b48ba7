//! Profile of a run on several devices: the time in which each computes, moves values and waits.

use std::time::Duration;

use sardonyx::device::DeviceSession;
use sardonyx::tool::shard::{EXCHANGE, Sent};
use serde_json::{Value, json};

use super::measured::{self, format_micros, round_number, to_micros};
use super::{Args, Device, TimedExchange, fail_without_runs};
use crate::failure::Failure;
use crate::human::{self, Align, cut_line, format_columns, format_count};
use crate::objects::merge_objects;
use crate::timing::compute_median;

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.profile-devices/1";

/// Time of exchanges between devices, and the messages that were sent in them.
#[derive(Clone, Copy, Default)]
struct Moved {
    /// Time for packing, sending, copying and combining values.
    moving: Duration,
    /// Time spent waiting for messages of other devices.
    waiting: Duration,
    sent: Sent,
}

impl Moved {
    /// Divides the time of an exchange into moving and waiting.
    fn from_exchange(exchange: &TimedExchange) -> Moved {
        let TimedExchange { took, exchanged } = *exchange;
        let waiting = exchanged.waited.min(took);
        Moved { moving: took - waiting, waiting, sent: exchanged.sent }
    }

    /// Adds the times and the messages of two exchanges.
    fn add(self, other: Moved) -> Moved {
        Moved {
            moving: self.moving + other.moving,
            waiting: self.waiting + other.waiting,
            sent: self.sent + other.sent,
        }
    }

    /// Returns the medians of the times over `runs`, and the messages of the last run.
    fn from_medians(runs: &[Moved]) -> Moved {
        Moved {
            moving: find_median(runs.iter().map(|moved| moved.moving)),
            waiting: find_median(runs.iter().map(|moved| moved.waiting)),
            sent: runs.last().map_or(Sent::default(), |moved| moved.sent),
        }
    }

    /// Converts the times in microseconds and the sent messages to JSON.
    fn json(self) -> Value {
        json!({
            "moving_us": to_micros(self.moving),
            "waiting_us": to_micros(self.waiting),
            "messages": self.sent.messages,
            "sent_bytes": self.sent.bytes,
        })
    }

    /// Formats the three table cells for moving, waiting and sent bytes.
    fn format_cells(self) -> [String; 3] {
        [
            format_micros(self.moving),
            format_micros(self.waiting),
            human::format_bytes(self.sent.bytes),
        ]
    }
}

/// Returns the median of `times`, which is zero without times.
fn find_median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    compute_median(&times).unwrap_or_default()
}

impl Device {
    /// Sums the exchanges of the device in each run.
    fn sum_exchanges(&self) -> Vec<Moved> {
        let runs = self.exchanges.iter();
        runs.map(|run| run.values().map(Moved::from_exchange).fold(Moved::default(), Moved::add))
            .collect()
    }

    /// Returns the fraction of a run in which the device neither computes nor moves values: the
    /// median over all runs.
    fn compute_idle_share(&self, wall: &[Duration]) -> f64 {
        let runs = self.runs.iter().zip(self.sum_exchanges()).zip(wall);
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

    /// Sums the median times of the steps that are not exchanges.
    fn sum_computing_time(&self) -> Duration {
        let steps = self.profile.steps.iter().filter(|step| step.info.op != EXCHANGE);
        steps.map(measured::MeasuredStep::took).sum()
    }
}

/// Move of a value between devices, a step of the plan.
struct Move {
    /// Index of the step in the plan.
    step: usize,
    /// Name of the value, and how it is divided over the devices before and after the move.
    words: [String; 3],
    /// Numbers of the devices that exchange messages in the move, with their times.
    devices: Vec<(usize, Moved)>,
}

/// Profile of a model that runs on several devices.
pub(super) struct DeviceProfile {
    configuration: String,
    /// Median time of a run.
    run: Duration,
    /// Time of the shortest run.
    shortest: Duration,
    /// Number of measured runs.
    runs: usize,
    /// Threads of each device.
    threads: usize,
    instruction_set: String,
    /// Fraction of a run in which each device is idle.
    idle: Vec<f64>,
    devices: Vec<Device>,
    moves: Vec<Move>,
}

impl DeviceProfile {
    /// Computes the profile from the measurements of `devices` and the wall times of all runs.
    /// Fails without runs.
    pub(super) fn new(
        session: &DeviceSession,
        wall: &[Duration],
        devices: Vec<Device>,
    ) -> Result<DeviceProfile, Failure> {
        let plan = session.last_plan().ok_or_else(fail_without_runs)?;
        let mut moves = Vec::new();
        for (step, words) in (0..plan.steps().len()).map(|step| (step, plan.move_in_words(step))) {
            let Some(words) = words else { continue };
            let taking_part = devices.iter().filter_map(|device| {
                let runs = device.exchanges.iter().filter_map(|run| run.get(&step));
                let runs: Vec<Moved> = runs.map(Moved::from_exchange).collect();
                (!runs.is_empty()).then(|| (device.number, Moved::from_medians(&runs)))
            });
            let taking_part: Vec<_> = taking_part.collect();
            // A move in which each device cuts a part from its own copy exchanges nothing.
            if !taking_part.is_empty() {
                moves.push(Move { step, words, devices: taking_part });
            }
        }
        let mut sorted = wall.to_vec();
        sorted.sort_unstable();
        Ok(DeviceProfile {
            configuration: plan.configuration().to_string(),
            run: compute_median(&sorted).ok_or_else(fail_without_runs)?,
            shortest: *sorted.first().ok_or_else(fail_without_runs)?,
            runs: wall.len(),
            threads: session.threads_per_device(),
            instruction_set: session.instruction_set(),
            idle: devices.iter().map(|device| device.compute_idle_share(wall)).collect(),
            devices,
            moves,
        })
    }

    /// Formats the profile as text: a summary and tables of devices, moves and steps.
    pub(super) fn text(&self, args: &Args) -> String {
        let sent =
            self.devices.iter().map(|device| Moved::from_medians(&device.sum_exchanges()).sent);
        let sent = sent.fold(Sent::default(), |sum, sent| sum + sent);
        let mut text = format!(
            "run       {} us, the median of {}; the shortest {} us; {} of {}, {}\n",
            format_micros(self.run),
            format_count(self.runs, "run"),
            format_micros(self.shortest),
            format_count(self.devices.len(), "device"),
            format_count(self.threads, "thread"),
            self.instruction_set
        );
        text += &format!(
            "moves     {}, {} in {}\n\n",
            self.moves.len(),
            human::format_bytes(sent.bytes),
            format_count(usize::try_from(sent.messages).unwrap_or(usize::MAX), "message")
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
            let mut row =
                vec![device.number.to_string(), format_micros(device.sum_computing_time())];
            row.extend(Moved::from_medians(&device.sum_exchanges()).format_cells());
            row.push(format!("{:.1} %", 100.0 * idle));
            row
        });
        text += &format_columns(&headings, &rows.collect::<Vec<_>>());
        text += &self.format_moves();
        text += &self.format_steps(args);
        text
    }

    /// Formats a table of the moves of values between devices; empty without moves.
    fn format_moves(&self) -> String {
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
                let word = |word: &str| if place == 0 { cut_line(word) } else { String::new() };
                let mut row = vec![word(value), word(from), word(to), device.to_string()];
                row.extend(moved.format_cells());
                row
            })
        });
        format!("\n{}", format_columns(&headings, &rows.collect::<Vec<_>>()))
    }

    /// Formats a table of the slowest steps of all devices, or of all steps with `--all`.
    fn format_steps(&self, args: &Args) -> String {
        let steps = self.devices.iter().flat_map(|device| {
            let steps = device.profile.steps.iter().enumerate();
            steps.map(move |(index, step)| (device, index, step))
        });
        let mut steps: Vec<_> = steps.filter(|(_, _, step)| step.info.op != EXCHANGE).collect();
        if !args.all {
            steps.retain(|(_, _, step)| step.time.is_some());
            // A stable sort, so that steps with equal times stay in the order of execution.
            steps.sort_by_key(|(_, _, step)| std::cmp::Reverse(step.took()));
            steps.truncate(args.top);
        }
        if steps.is_empty() {
            return String::new();
        }
        let headings = [&[("device", Align::Right)][..], &measured::STEP_HEADINGS].concat();
        let rows = steps.into_iter().map(|(device, index, step)| {
            let mut row = vec![device.number.to_string()];
            row.extend(device.profile.format_step(index, step));
            row
        });
        format!("\n{}", format_columns(&headings, &rows.collect::<Vec<_>>()))
    }

    /// Converts the profile to the JSON answer.
    pub(super) fn json(&self, args: &Args) -> Value {
        let devices = self.devices.iter().zip(&self.idle).map(|(device, idle)| {
            let steps = device.profile.steps.iter().map(|step| device.profile.step_json(step));
            let moved = Moved::from_medians(&device.sum_exchanges());
            merge_objects(
                json!({
                    "device": device.number,
                    "us": to_micros(device.profile.run),
                    "computing_us": to_micros(device.sum_computing_time()),
                    "idle": round_number(*idle),
                    "steps": steps.collect::<Vec<_>>(),
                }),
                moved.json(),
            )
        });
        let moves = self.moves.iter().map(|one| {
            let [value, from, to] = &one.words;
            let devices = one.devices.iter();
            let devices = devices
                .map(|(device, moved)| merge_objects(json!({"device": device}), moved.json()));
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
            "run_us": to_micros(self.run),
            "run_min_us": to_micros(self.shortest),
            "devices": devices.collect::<Vec<_>>(),
            "moves": moves.collect::<Vec<_>>(),
        })
    }
}
