//! `sardonyx run`: runs a model once, or several times for timing. Shows the outputs, writes them
//! to files, or compares them with expected ones.

use std::path::PathBuf;
use std::time::Duration;

use sardonyx::Outputs;
use sardonyx::run::{Run, Runner};
use sardonyx::tool::SessionBuilderExt;
use serde_json::json;

use crate::devices::{DeviceArgs, Rank};
use crate::expect::Expected;
use crate::failure::{Code, Failure};
use crate::inner::Dumped;
use crate::inputs::{self, gather_inputs};
use crate::model_arg::ModelArg;
use crate::session::SessionArgs;
use crate::stopping::StopArgs;
use crate::terminal::Terminal;
use crate::timing::{Timing, time_call};
use crate::verdict::Verdict;
use crate::{classes, expect, inner, outputs, saving, show};

/// Run a model on arrays, stored values or images; show its outputs or compare them with expected
/// ones
///
/// An output with scores of classes is shown as a ranking if the names of the classes are known,
/// from --labels or from the model's metadata (key "labels" or "classes"), or if --top asks for it;
/// any other by its first elements.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    inputs: inputs::Args,
    #[command(flatten)]
    classes: classes::Args,
    /// Write the outputs: to a file that ends in .npz, or for one output in .npy, .pb or .csv; to
    /// stdout with -, in lines; or to a directory as NAME.npy (.pb for what is not an array)
    #[arg(short, long, value_name = "DIR|FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    expect: expect::Args,
    #[command(flatten)]
    inner: inner::Args,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    devices: DeviceArgs,
    #[command(flatten)]
    stopping: StopArgs,
    /// Run N times and print minimum, median and 95th percentile of the time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeat: u64,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.run/1";

/// Runs `sardonyx run`. Differences from expected outputs are findings.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    match args.devices.connect_rank(&args.model)? {
        None => run_one(args, &args.model, None, terminal),
        Some(rank) => {
            let result = run_one(args, &rank.fill_in_number(&args.model), Some(&rank), terminal);
            rank.report_result(result)
        }
    }
}

/// Runs the model in this process. With `rank`, this process is one of several that run the model
/// together.
fn run_one(
    args: &Args,
    arg: &ModelArg,
    rank: Option<&Rank>,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    let expected = args.expect.is_wanted().then(|| args.expect.read()).transpose()?;
    let dump_target = args.inner.resolve_target()?;
    let only_looks = args.devices.devices;
    if let (true, Some(number)) = (only_looks, args.inputs.find_stray_number()) {
        let message = format!("--devices takes no number, and the file '{number}' does not exist");
        return Err(Failure::new(message).help(
            "the number of devices is that of the model's device configuration; \
             `sardonyx shard --devices N` adds one",
        ));
    }
    let (opened, wanted) = args.session.open_changed(
        arg,
        &|builder| match rank {
            Some(rank) => rank.connect(builder),
            None if only_looks => builder.inspect_only(),
            None => builder,
        },
        terminal,
        |model| {
            if let Some(rank) = rank {
                rank.check_collectives(&model, terminal)?;
            }
            let names = expected.iter().flat_map(Expected::names);
            args.inner.add_outputs(model, names, expected.is_some())
        },
    )?;
    let running = args.devices.start_runner(&opened, &args.session, arg.is_stdin())?;
    let Some(running) = running else { return Ok(Verdict::Fine) };
    let mut inputs = gather_inputs(&args.inputs, &opened, terminal)?;
    let model = &opened.model;
    let classes = classes::Classes::new(&args.classes, model)?;
    inputs.files.extend(expected.iter().flat_map(|expected| expected.files.iter().cloned()));
    let protected = saving::protect_inputs(arg, model, &inputs.files);

    let place = args.output.as_deref().map(outputs::Place::from_path).transpose()?;
    if place.as_ref().is_some_and(outputs::Place::is_stdout) {
        args.check_stdout_is_free()?;
    }

    let (given, timing) = run_repeatedly(&running.runner, inputs, args, terminal)?;
    if let Some(rank) = rank {
        rank.wait_for_ranks()?;
        if !rank.is_first() {
            return Ok(Verdict::Fine);
        }
    }
    let outputs = wanted.select_own_outputs(&given);
    let written = match &place {
        Some(place) => outputs::write(&outputs, place, &protected, terminal)?,
        None => Vec::new(),
    };
    let dumped = match dump_target {
        Some(target) => Some(wanted.dump(&given, target, &protected, terminal)?),
        None => None,
    };
    let report = match expected {
        Some(expected) => {
            Some(expected.compare(&args.expect, &given, wanted.own, &wanted.nodes)?)
        }
        None => None,
    };
    let differs = report.as_ref().is_some_and(expect::Comparison::differs);
    let results = Results { outputs, given, timing, wanted, written, dumped, report };
    if args.json {
        terminal.json(&results.json(args, &classes, running.runner.threads())?, true)?;
    } else {
        results.print(args, &classes, terminal)?;
    }
    Ok(if differs { Verdict::Findings } else { Verdict::Fine })
}

impl Args {
    /// Fails if other options than `--output -` write to stdout.
    fn check_stdout_is_free(&self) -> Result<(), Failure> {
        if self.json {
            return saving::check_stdout(true, None);
        }
        let other = if self.classes.is_requested() {
            ("a ranking", "--top and --labels")
        } else if self.expect.is_wanted() {
            ("a comparison", "--expect")
        } else if self.inner.has_shown_values() {
            ("inner values", "--show")
        } else {
            return Ok(());
        };
        let (what, options) = other;
        let message = format!("{what} and the output cannot both be written to stdout");
        Err(Failure::new(message).help(format!("give --output FILE, or remove {options}")))
    }
}

/// Results of a run that are printed or written as a JSON answer.
struct Results {
    /// Graph outputs of the model.
    outputs: Outputs,
    /// Graph outputs of the model, and the intermediate values that options select.
    given: Outputs,
    timing: Timing,
    /// Intermediate values that options select.
    wanted: inner::WantedValues,
    /// Files that the outputs were written to.
    written: Vec<outputs::WrittenOutput>,
    dumped: Option<Dumped>,
    report: Option<expect::Comparison>,
}

impl Results {
    /// Converts the results to the JSON answer.
    fn json(
        &self,
        args: &Args,
        classes: &classes::Classes<'_>,
        threads: usize,
    ) -> Result<serde_json::Value, Failure> {
        let mut rankings = Vec::new();
        let mut values = Vec::new();
        for (name, value) in self.outputs.iter() {
            let ranking = value.as_tensor().map(|tensor| classes.rank(name, tensor)).transpose()?;
            rankings.extend(ranking.flatten().iter().flat_map(classes::Ranking::json));
            values.push(show::value_json(name, value)?);
        }
        let mut shown = Vec::new();
        for name in &self.wanted.shown {
            if let Some(value) = self.given.get(name) {
                shown.push(show::value_json(name, value)?);
            }
        }
        let written = self.written.iter().map(|written| &written.path);
        let files = self.written.iter();
        let files = files.map(|written| json!({"output": written.output, "file": written.path}));
        Ok(json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "threads": threads,
            "timing": self.timing,
            "outputs": values,
            "top": rankings,
            "written": written.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "shown": shown,
            "dumped": self.dumped.as_ref().map(Dumped::json),
            "expected": self.report.as_ref().map(expect::Comparison::json),
        }))
    }

    /// Prints written files, timing, outputs and the comparison with expected outputs.
    fn print(
        &self,
        args: &Args,
        classes: &classes::Classes<'_>,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        for written in &self.written {
            terminal.remark(&format!("wrote {}", written.path.display()));
            if let Some(output) = written.output.as_ref().filter(|_| written.is_renamed) {
                terminal.note(&format!(
                    "the file of the output '{output}' has another name, as not every system allows '{output}' as a file name"
                ));
            }
        }
        if let Some(dumped) = &self.dumped {
            dumped.print(terminal);
        }
        if args.repeat > 1 {
            let Timing { runs, min_ms, median_ms, p95_ms, .. } = self.timing;
            terminal.remark(&format!(
                "{runs} runs: min {min_ms:.3} ms, median {median_ms:.3} ms, p95 {p95_ms:.3} ms"
            ));
        }
        // Outputs that go to files or into a comparison are not printed, except for a ranking,
        // which has options of its own.
        let has_answer = args.output.is_some() || self.dumped.is_some() || self.report.is_some();
        let (mut text, mut notes) = if !has_answer || args.classes.is_requested() {
            as_text(&self.outputs, classes)?
        } else {
            (String::new(), Vec::new())
        };
        for name in &self.wanted.shown {
            if let Some(value) = self.given.get(name) {
                text += &show::value_text(name, value)?;
            }
        }
        if let Some(report) = &self.report {
            text += &report.text();
            notes.extend(report.notes());
        }
        if !text.is_empty() {
            terminal.print(&text)?;
        }
        notes.iter().for_each(|note| terminal.note(note));
        Ok(())
    }
}

/// Runs the model as often as `--repeat` requires. Returns the outputs of the last run, and the
/// times of all runs.
fn run_repeatedly(
    runner: &Runner,
    inputs: inputs::Inputs,
    args: &Args,
    terminal: &Terminal,
) -> Result<(Outputs, Timing), Failure> {
    let times = args.repeat;
    let bar = terminal.progress("running", (times > 1).then_some(times));
    let mut durations: Vec<Duration> = Vec::new();
    let run = || runner.run(inputs.named_values(), &args.stopping.to_run_options());
    let (mut outputs, first) = time_call(run);
    durations.push(first);
    while outputs.is_ok() && (durations.len() as u64) < times {
        let (again, duration) = time_call(run);
        outputs = again;
        durations.push(duration);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let timing = Timing::from_durations(&durations)
        .ok_or_else(|| Failure::new("the model was not run").code(Code::Internal))?;
    Ok((outputs?, timing))
}

/// Formats the outputs as text: a ranking where names of classes are known, else the first
/// elements. Also returns notes on the rankings.
fn as_text(
    outputs: &Outputs,
    classes: &classes::Classes<'_>,
) -> Result<(String, Vec<String>), Failure> {
    if outputs.is_empty() {
        return Ok(("the model has no outputs\n".to_string(), Vec::new()));
    }
    let mut text = String::new();
    let mut notes = Vec::new();
    for (name, value) in outputs.iter() {
        let ranking = match value.as_tensor() {
            Some(tensor) => classes.rank(name, tensor)?,
            None => None,
        };
        match ranking {
            Some(ranking) => {
                // A single output needs no title.
                if outputs.len() > 1 {
                    text += &format!("{name}:\n");
                }
                text += &ranking.text();
                notes.push(ranking.note());
            }
            None => text += &show::value_text(name, value)?,
        }
    }
    Ok((text, notes))
}
