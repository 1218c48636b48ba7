//! Profile of a session, or of the part of a model that one device runs: steps with their times, as
//! tables, JSON and trace events.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use sardonyx::Dim;
use sardonyx::tool::profile::{OperandDetails, RunDetails, StepDetails, StepInfo};
use serde_json::{Value, json};

use super::{Args, Calls, Run, SCHEMA, fail_without_runs};
use crate::failure::Failure;
use crate::human::{self, Align, cut_line, format_columns, format_count};
use crate::steps;
use crate::timing::compute_median;

/// Step of a session with its measured times.
pub(super) struct MeasuredStep {
    pub(super) info: StepInfo,
    details: StepDetails,
    /// Median and shortest time of the step in a run; `None` if the step did not run.
    pub(super) time: Option<(Duration, Duration)>,
    /// Number of calls of the step in the run of median time.
    calls: u64,
}

impl MeasuredStep {
    /// Returns the median time of the step in a run: zero for a step that did not run.
    pub(super) fn took(&self) -> Duration {
        self.time.map_or(Duration::ZERO, |(median, _)| median)
    }

    /// Returns the number of bytes that one call of the step reads and writes; `None` if unknown.
    fn bytes_of_call(&self) -> Option<u64> {
        let (read, written) = (self.details.read_bytes?, self.details.written_bytes?);
        read.checked_add(written)
    }

    /// Returns the number of bytes that all calls of the step in a run read and write; `None` if
    /// unknown.
    fn bytes(&self) -> Option<u64> {
        self.bytes_of_call()?.checked_mul(self.calls)
    }

    /// Returns the number of multiply-adds of all calls of the step in a run; `None` if unknown.
    fn multiply_adds(&self) -> Option<u64> {
        self.details.multiply_adds?.checked_mul(self.calls)
    }

    /// Describes how the step uses memory, such as `in place, strided`; may be empty.
    fn format_layout(&self) -> String {
        steps::format_layout(&self.details)
    }

    /// Formats the operator of the step with the operators that are fused into it, such as `Conv
    /// with Relu`.
    pub(super) fn format_operator(&self) -> String {
        steps::format_operator(&self.info)
    }

    /// Formats the shapes of the first two inputs and of the first output.
    fn format_dims(&self) -> String {
        let outputs = &self.details.outputs;
        let output = format_shapes(&outputs[..outputs.len().min(1)]);
        format!("{} -> {output}", format_shapes(&self.details.inputs))
    }
}

/// Formats the first two known shapes of `operands`.
fn format_shapes(operands: &[OperandDetails]) -> String {
    let shapes = operands.iter().filter_map(|operand| {
        let shape = operand.ty.as_ref()?.shape()?;
        let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
        Some(format!("[{}]", dims.join(",")))
    });
    shapes.take(2).collect::<Vec<_>>().join(" ")
}

/// Sum of work and time of several steps.
struct Sum {
    calls: u64,
    took: Duration,
    /// Multiply-adds of all calls; `None` if those of any step are unknown.
    multiply_adds: Option<u64>,
    /// Bytes that all calls read and write; `None` if those of any step are unknown.
    bytes: Option<u64>,
    /// Time of the steps by the name of their kernel.
    kernels: BTreeMap<String, Duration>,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            calls: 0,
            took: Duration::ZERO,
            multiply_adds: Some(0),
            bytes: Some(0),
            kernels: BTreeMap::new(),
        }
    }
}

impl Sum {
    /// Adds the work and time of a step.
    fn add_step(&mut self, step: &MeasuredStep) {
        self.calls += step.calls;
        self.took += step.took();
        self.multiply_adds = add_known(self.multiply_adds, step.multiply_adds());
        self.bytes = add_known(self.bytes, step.bytes());
        *self.kernels.entry(step.info.kernel.clone()).or_default() += step.took();
    }

    /// Formats the name of the kernel that took most of the time, and the number of other kernels.
    fn format_kernels(&self) -> String {
        let most = self.kernels.iter().max_by_key(|(_, took)| **took);
        let name = most.map_or("", |(name, _)| name.as_str());
        match self.kernels.len() {
            0 | 1 => name.to_string(),
            several => format!("{name} and {} more", several - 1),
        }
    }
}

/// Adds two amounts; `None` if one of them is unknown or the sum overflows.
fn add_known(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_add(b?)
}

/// Headings of a table of measured steps.
pub(super) const STEP_HEADINGS: [(&str, Align); 10] = [
    ("step", Align::Right),
    ("node", Align::Left),
    ("operator", Align::Left),
    ("us", Align::Right),
    ("share", Align::Right),
    ("GFLOP/s", Align::Right),
    ("GB/s", Align::Right),
    ("layout", Align::Left),
    ("sizes", Align::Left),
    ("kernel", Align::Left),
];

/// Compiled steps of a session, or of the part of a model that one device runs, without
/// measurements.
pub(super) struct ModelPart {
    pub(super) infos: Vec<StepInfo>,
    pub(super) details: RunDetails,
    pub(super) threads: usize,
}

/// Measured steps of a session, or of the part of a model that one device runs.
pub(super) struct Profile {
    pub(super) steps: Vec<MeasuredStep>,
    /// Median time of a run.
    pub(super) run: Duration,
    /// Time of the shortest run.
    shortest: Duration,
    /// Number of measured runs.
    runs: usize,
    pub(super) threads: usize,
    /// Size of the memory for intermediate values, in bytes.
    arena_bytes: usize,
}

impl Profile {
    /// Computes the median times of the steps of `part` over `runs`. Fails without runs.
    pub(super) fn new(part: ModelPart, runs: &[Run]) -> Result<Profile, Failure> {
        let ModelPart { infos, details, threads } = part;
        let mut times: Vec<Vec<Calls>> = vec![Vec::new(); infos.len()];
        for run in runs {
            for (times, took) in times.iter_mut().zip(&run.steps) {
                times.extend(took);
            }
        }
        let steps = infos.into_iter().zip(details.steps).zip(times);
        let steps = steps.map(|((info, details), mut times)| {
            times.sort_unstable();
            let calls = times.get(times.len() / 2).map_or(0, |calls| calls.count);
            let times: Vec<Duration> = times.iter().map(|calls| calls.took).collect();
            let time = compute_median(&times).zip(times.first().copied());
            MeasuredStep { info, details, time, calls }
        });
        let mut wall: Vec<Duration> = runs.iter().map(|run| run.took).collect();
        wall.sort_unstable();
        Ok(Profile {
            steps: steps.collect(),
            run: compute_median(&wall).ok_or_else(fail_without_runs)?,
            shortest: *wall.first().ok_or_else(fail_without_runs)?,
            runs: runs.len(),
            threads,
            arena_bytes: details.arena_bytes,
        })
    }

    /// Returns the steps that ran, which excludes views.
    fn timed_steps(&self) -> impl Iterator<Item = &MeasuredStep> {
        self.steps.iter().filter(|step| step.time.is_some())
    }

    /// Counts the steps that are views, which do not run.
    fn count_views(&self) -> usize {
        self.steps.iter().filter(|step| step.time.is_none()).count()
    }

    /// Returns the time of the median run outside of its steps; `steps` is the time of all steps.
    fn compute_overhead(&self, steps: Duration) -> Duration {
        self.run.saturating_sub(steps)
    }

    /// Sums work and time of all steps that ran.
    fn sum_steps(&self) -> Sum {
        let mut sum = Sum::default();
        self.timed_steps().for_each(|step| sum.add_step(step));
        sum
    }

    /// Sums work and time of the steps by operator, in decreasing order of time.
    fn sum_by_operator(&self) -> Vec<(&'static str, Sum)> {
        let mut found: HashMap<&'static str, Sum> = HashMap::new();
        for step in self.timed_steps() {
            found.entry(step.info.op).or_default().add_step(step);
        }
        let mut sums: Vec<_> = found.into_iter().collect();
        sums.sort_by(|a, b| b.1.took.cmp(&a.1.took).then(a.0.cmp(b.0)));
        sums
    }

    /// Returns `took` as a fraction of the time of all steps; 0 without measured time.
    fn compute_share(&self, took: Duration) -> f64 {
        let all: Duration = self.timed_steps().map(MeasuredStep::took).sum();
        if all.is_zero() { 0.0 } else { took.as_secs_f64() / all.as_secs_f64() }
    }

    /// Formats the profile as text: a summary, a table of operators and a table of steps.
    pub(super) fn text(&self, args: &Args, instruction_set: &str) -> String {
        let total = self.sum_steps();
        let overhead = self.compute_overhead(total.took);
        let percent = 100.0 * overhead.as_secs_f64() / self.run.as_secs_f64().max(1e-12);
        let mut text = String::new();
        let mut line = |name: &str, rest: String| text += &format!("{name:<8}  {rest}\n");
        line(
            "run",
            format!(
                "{} us, the median of {}; the shortest {} us; {}, {}",
                format_micros(self.run),
                format_count(self.runs, "run"),
                format_micros(self.shortest),
                format_count(self.threads, "thread"),
                instruction_set
            ),
        );
        line(
            "steps",
            format!(
                "{} us in {}, the sum of their medians",
                format_micros(total.took),
                format_count(usize::try_from(total.calls).unwrap_or(usize::MAX), "step"),
            ),
        );
        line(
            "overhead",
            format!("{} us outside of steps, {percent:.1} % of the run", format_micros(overhead)),
        );
        if self.count_views() > 0 {
            let views = human::group_digits(self.count_views() as u64);
            line("views", format!("{views}, which are not run"));
        }
        if let Some(multiply_adds @ 1..) = total.multiply_adds {
            let speed = compute_rate(2.0, Some(multiply_adds), total.took).unwrap_or(0.0);
            let number = human::group_digits(multiply_adds);
            line("work", format!("{number} multiply-adds, {speed:.1} GFLOP/s"));
        }
        let arena = human::format_bytes(self.arena_bytes as u64);
        line("memory", format!("{arena} for intermediate values"));

        let right = Align::Right;
        let headings = [
            ("operator", Align::Left),
            ("calls", right),
            ("us", right),
            ("share", right),
            ("GFLOP/s", right),
            ("GB/s", right),
            ("kernel", Align::Left),
        ];
        let operators = self.sum_by_operator().into_iter();
        let sums =
            operators.map(|(operator, sum)| (operator, cut_line(&sum.format_kernels()), sum));
        let rows = sums.chain([("all steps", String::new(), total)]).map(|(name, kernel, sum)| {
            let mut row = vec![name.to_string(), sum.calls.to_string()];
            row.extend(self.format_speeds(sum.took, sum.multiply_adds, sum.bytes));
            row.push(kernel);
            row
        });
        text += "\n";
        text += &format_columns(&headings, &rows.collect::<Vec<_>>());

        let mut steps: Vec<(usize, &MeasuredStep)> = self.steps.iter().enumerate().collect();
        if !args.all {
            steps.retain(|(_, step)| step.time.is_some());
            // A stable sort, so that steps with equal times stay in the order of execution.
            steps.sort_by_key(|(_, step)| std::cmp::Reverse(step.took()));
            steps.truncate(args.top);
        }
        if steps.is_empty() {
            return text;
        }
        let rows = steps.into_iter().map(|(index, step)| self.format_step(index, step));
        text += "\n";
        text += &format_columns(&STEP_HEADINGS, &rows.collect::<Vec<_>>());
        text
    }

    /// Formats a step as a row of a table with [`STEP_HEADINGS`].
    pub(super) fn format_step(&self, index: usize, step: &MeasuredStep) -> Vec<String> {
        let mut row = vec![index.to_string(), cut_line(&step.info.node), step.format_operator()];
        match step.time {
            Some(_) => {
                row.extend(self.format_speeds(step.took(), step.multiply_adds(), step.bytes()))
            }
            None => row.extend([const { String::new() }; 4]),
        }
        row.extend([step.format_layout(), step.format_dims(), cut_line(&step.info.kernel)]);
        row
    }

    /// Formats the four table cells for time in microseconds, share, GFLOP/s and GB/s.
    fn format_speeds(
        &self,
        took: Duration,
        multiply_adds: Option<u64>,
        bytes: Option<u64>,
    ) -> [String; 4] {
        [
            format_micros(took),
            format!("{:.1} %", 100.0 * self.compute_share(took)),
            format_rate(compute_rate(2.0, multiply_adds, took)),
            format_rate(compute_rate(1.0, bytes, took)),
        ]
    }

    /// Converts the profile to the JSON answer.
    pub(super) fn json(&self, args: &Args, instruction_set: &str) -> Value {
        let total = self.sum_steps();
        let operators = self.sum_by_operator().into_iter().map(|(operator, sum)| {
            let kernels = sum.kernels.iter();
            let kernels: BTreeMap<&str, f64> =
                kernels.map(|(name, took)| (name.as_str(), to_micros(*took))).collect();
            json!({
                "operator": operator,
                "calls": sum.calls,
                "us": to_micros(sum.took),
                "share": round_number(self.compute_share(sum.took)),
                "multiply_adds": sum.multiply_adds,
                "bytes": sum.bytes,
                "gflops": compute_rate(2.0, sum.multiply_adds, sum.took).map(round_number),
                "gbps": compute_rate(1.0, sum.bytes, sum.took).map(round_number),
                "kernels": kernels,
            })
        });
        let steps = self.steps.iter().map(|step| self.step_json(step));
        json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "threads": self.threads,
            "instruction_set": instruction_set,
            "runs": self.runs,
            "run_us": to_micros(self.run),
            "run_min_us": to_micros(self.shortest),
            "steps_us": to_micros(total.took),
            "overhead_us": to_micros(self.compute_overhead(total.took)),
            "views": self.count_views(),
            "multiply_adds": total.multiply_adds,
            "bytes": total.bytes,
            "arena_bytes": self.arena_bytes,
            "operators": operators.collect::<Vec<_>>(),
            "steps": steps.collect::<Vec<_>>(),
        })
    }

    /// Converts a step with its measured times to JSON.
    pub(super) fn step_json(&self, step: &MeasuredStep) -> Value {
        let time = step.time;
        let rate = |factor, amount| compute_rate(factor, amount, time?.0).map(round_number);
        let mut answer = steps::step_json(&step.info, &step.details);
        let measured = [
            ("calls", json!(step.calls)),
            ("us", json!(time.map(|(median, _)| to_micros(median)))),
            ("min_us", json!(time.map(|(_, min)| to_micros(min)))),
            ("share", json!(time.map(|(median, _)| round_number(self.compute_share(median))))),
            ("gflops", json!(rate(2.0, step.multiply_adds()))),
            ("gbps", json!(rate(1.0, step.bytes()))),
        ];
        for (key, value) in measured {
            answer.insert(key.to_string(), value);
        }
        Value::Object(answer)
    }
}

/// Steps of one run on one track of a trace.
pub(super) struct Track<'r> {
    pub(super) name: String,
    pub(super) profile: &'r Profile,
    pub(super) run: &'r Run,
}

impl Track<'_> {
    /// Returns the steps in the trace event format, as events of the thread with number `thread`.
    pub(super) fn to_events(&self, thread: usize) -> impl Iterator<Item = Value> + '_ {
        self.run.events.iter().filter_map(move |event| {
            let step = self.profile.steps.get(event.step)?;
            Some(json!({
                "name": step.format_operator(),
                "cat": step.info.op,
                "ph": "X",
                "pid": 1,
                "tid": thread,
                "ts": to_micros(self.run.start + event.start),
                "dur": to_micros(event.took),
                "args": {
                    "step": event.step,
                    "op": step.info.op,
                    "node": step.info.node,
                    "kernel": step.info.kernel,
                    "dims": step.format_dims(),
                    "layout": step.format_layout(),
                    "multiply_adds": step.details.multiply_adds,
                    "bytes": step.bytes_of_call(),
                },
            }))
        })
    }
}

/// Returns `factor * amount / took` in billions per second; `None` if `amount` is 0 or unknown.
fn compute_rate(factor: f64, amount: Option<u64>, took: Duration) -> Option<f64> {
    let amount = amount.filter(|amount| *amount > 0)?;
    Some(factor * amount as f64 / took.as_nanos().max(1) as f64)
}

/// Formats a rate as a table cell, which is empty if the rate is unknown.
fn format_rate(rate: Option<f64>) -> String {
    rate.map_or(String::new(), |rate| format!("{rate:.1}"))
}

/// Formats a time in microseconds with one decimal place.
pub(super) fn format_micros(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64() * 1e6)
}

/// Returns a time in microseconds, rounded to four decimal places.
pub(super) fn to_micros(took: Duration) -> f64 {
    round_number(took.as_secs_f64() * 1e6)
}

/// Rounds a number to four decimal places.
pub(super) fn round_number(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
