//! `sardonyx run`: run a model once, or several times for timing, and show what it gives.

use std::path::PathBuf;
use std::time::Duration;

use sardonyx::{Outputs, Session};
use serde_json::json;

use crate::failure::{Code, Failure};
use crate::inputs::{self, gather};
use crate::session::{Opened, SessionArgs};
use crate::stopping::StopArgs;
use crate::terminal::Terminal;
use crate::timing::{Timing, timed};
use crate::{ModelArg, classes, outputs, saving, show};

/// Run a model on arrays, stored values or images, and show its outputs
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
    session: SessionArgs,
    #[command(flatten)]
    stopping: StopArgs,
    /// Run N times and print minimum, median and 95th percentile of the time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    repeat: u64,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.run/1";

pub(crate) fn run(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let opened = args.session.open(&args.model, terminal)?;
    let inputs = gather(&args.inputs, &opened, terminal)?;
    let Opened { model, session, .. } = opened;
    let classes = classes::Classes::new(&args.classes, &model)?;
    let protected = saving::protect_inputs(&args.model, &model, &inputs.files);

    let place = args.output.as_deref().map(outputs::Place::of).transpose()?;
    let takes_stdout = place.as_ref().is_some_and(outputs::Place::is_stdout);
    if takes_stdout && args.json {
        saving::check_stdout(true, None)?;
    }
    if takes_stdout && args.classes.wanted() {
        return Err(Failure::new("a ranking and the output cannot both be written to stdout")
            .help("give --output FILE, or remove --top and --labels"));
    }

    let (outputs, timing) = repeat(&session, inputs, args, terminal)?;
    let written = match &place {
        Some(place) => outputs::write(&outputs, place, &protected, terminal)?,
        None => Vec::new(),
    };
    if args.json {
        let mut rankings = Vec::new();
        let mut values = Vec::new();
        for (name, value) in outputs.iter() {
            let ranking = value.as_tensor().map(|tensor| classes.rank(name, tensor)).transpose()?;
            rankings.extend(ranking.flatten().iter().flat_map(classes::Ranking::json));
            values.push(show::value_json(name, value)?);
        }
        let paths: Vec<_> = written.iter().map(|written| &written.path).collect();
        let files =
            written.iter().map(|written| json!({"output": written.output, "file": written.path}));
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "threads": session.threads(),
            "timing": timing,
            "outputs": values,
            "top": rankings,
            "written": paths,
            "files": files.collect::<Vec<_>>(),
        });
        return terminal.json(&answer, true);
    }
    for written in &written {
        terminal.remark(&format!("wrote {}", written.path.display()));
        if let Some(output) = written.output.as_ref().filter(|_| written.is_renamed) {
            terminal.note(&format!(
                "the file of the output '{output}' has another name, as files cannot be called so everywhere"
            ));
        }
    }
    if args.repeat > 1 {
        let Timing { runs, min_ms, median_ms, p95_ms, .. } = timing;
        terminal.remark(&format!(
            "{runs} runs: min {min_ms:.3} ms, median {median_ms:.3} ms, p95 {p95_ms:.3} ms"
        ));
    }
    // Files were asked for, not a print; a ranking is asked for by its own option.
    if place.is_none() || args.classes.wanted() {
        let (text, notes) = as_text(&outputs, &classes)?;
        terminal.print(&text)?;
        notes.iter().for_each(|note| terminal.note(note));
    }
    Ok(())
}

/// The outputs of the last of the runs that are asked for.
fn repeat(
    session: &Session,
    inputs: inputs::Inputs,
    args: &Args,
    terminal: &Terminal,
) -> Result<(Outputs, Timing), Failure> {
    let times = args.repeat;
    let bar = terminal.progress("running", (times > 1).then_some(times));
    let mut durations: Vec<Duration> = Vec::new();
    let (mut outputs, first) =
        timed(|| session.run_with(inputs.values.clone(), args.stopping.options()));
    durations.push(first);
    while outputs.is_ok() && (durations.len() as u64) < times {
        let values = inputs.values.clone();
        let (again, duration) = timed(|| session.run_with(values, args.stopping.options()));
        outputs = again;
        durations.push(duration);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let timing = Timing::of(&durations)
        .ok_or_else(|| Failure::new("nothing was run").code(Code::Internal))?;
    Ok((outputs?, timing))
}

/// The outputs, and what there is to know about rankings.
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
                // With one output there is nothing to tell apart.
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
