//! `cargo xtask bench text`: reading and printing the notation; the onnx package and us.
//!
//! As with files, sides take turns, each measurement is a process bound to one processor that
//! repeats its job, and ratios are computed within a round. Before anything is timed, the models
//! and texts of both sides are compared as a whole; timed runs must then give the same counts or
//! bytes. The rival's public functions have a bar that we must reach. Its C++ functions alone,
//! without the copy into or out of a Python model, are shown for comparison.

use super::contest::{Rounds, Sample, answer, bound};
use super::models::{allowed_processors, median};
use crate::workspace::{artifacts, build_release, root};
use crate::{Result, python, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Text {
    /// Only contests whose name contains one of these.
    names: Vec<String>,
    /// Number of rounds, in each of which both sides run once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Leave the files, about 300 MB.
    #[arg(long)]
    keep: bool,
    /// The directory of models without weights [default: ../shared/zoo beside the checkout].
    #[arg(long, value_name = "DIR")]
    zoo: Option<PathBuf>,
    /// Tiny models, one round and no bars: does everything still run and agree?
    #[arg(long)]
    smoke: bool,
}

pub(crate) fn run(task: &Text) -> Result {
    let sides = Sides::prepare(task.smoke)?;
    let result = contests(task, &sides);
    if !task.keep && sides.directory.exists() {
        fs::remove_dir_all(&sides.directory)?;
    }
    result
}

fn contests(task: &Text, sides: &Sides) -> Result {
    let mut make = Command::new(&sides.ours);
    make.arg("make").arg(&sides.directory);
    shell::run(make.args(task.smoke.then_some("--smoke")))?;

    let rounds = if task.smoke { 1 } else { task.rounds };
    let wanted = |name: &str| task.names.is_empty() || task.names.iter().any(|n| name.contains(n));
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for subject in SUBJECTS {
        let contests: Vec<Contest> = Job::ALL
            .iter()
            .map(|job| Contest { subject, job: *job })
            .filter(|contest| wanted(&contest.name()))
            .collect();
        if contests.is_empty() || !sides.make_model(subject, task.zoo.as_deref())? {
            continue;
        }
        for contest in contests {
            eprintln!("{}", contest.name());
            match contest.run(sides, rounds, !task.smoke) {
                Ok(measured) => rows.extend(measured),
                Err(reason) => failures.push(format!("{}: {reason}", contest.name())),
            }
        }
    }
    let formatted = if wanted("format nodes") { Some(sides.format(rounds)?) } else { None };

    let mut report: Vec<Value> = rows.iter().map(Row::to_json).collect();
    report.extend(formatted.as_ref().map(Formatted::to_json));
    let report = serde_json::to_string_pretty(&report)?;
    let file = if task.smoke { "text-smoke.json" } else { "text.json" };
    fs::write(artifacts("bench").join(file), &report)?;
    if task.json {
        println!("{report}");
    } else {
        print_table(&rows);
        if let Some(formatted) = formatted {
            println!("format nodes: {:.0} MB/s", formatted.mb_per_s);
        }
    }
    failures.extend(rows.iter().filter_map(Row::complaint));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// A model whose text is read and printed.
struct Subject {
    name: &'static str,
    /// Whether it is one of the zoo, exported by PyTorch.
    from_zoo: bool,
    /// Lowest accepted ratio of the time of the rival's public functions to ours.
    bar: f64,
    /// Repetitions within a process.
    repeat: u32,
}

const SUBJECTS: &[Subject] = &[
    Subject { name: "nodes", from_zoo: false, bar: 4.0, repeat: 5 },
    Subject { name: "bert_base", from_zoo: true, bar: 4.0, repeat: 50 },
    Subject { name: "gpt2", from_zoo: true, bar: 4.0, repeat: 50 },
    Subject { name: "numbers", from_zoo: false, bar: 2.5, repeat: 3 },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Parse,
    Print,
}

impl Job {
    const ALL: [Job; 2] = [Job::Parse, Job::Print];

    fn name(self) -> &'static str {
        match self {
            Job::Parse => "parse",
            Job::Print => "print",
        }
    }
}

/// Lists the jobs of `text_onnx.py` and the functions that they call.
fn rivals(job: Job) -> [(&'static str, &'static str); 2] {
    match job {
        Job::Parse => [("parse", "parser.parse_model"), ("parse-core", "its C++ part")],
        Job::Print => [("print", "printer.to_text"), ("print-core", "its C++ part")],
    }
}

/// A way in which we do a job.
struct Variant {
    name: &'static str,
    /// Arguments of `text_bench`.
    arguments: &'static [&'static str],
    /// Whether it has to reach the bar.
    barred: bool,
}

const PARSE: Variant = Variant { name: "", arguments: &[], barred: true };
const PORTABLE: Variant =
    Variant { name: "portable", arguments: &["--form", "portable"], barred: true };
const FULL: Variant = Variant { name: "full", arguments: &["--form", "full"], barred: true };
/// Variant with so much text that allocating memory for it takes most of the time.
const FRESH: Variant =
    Variant { name: "portable, new memory", arguments: &["--form", "portable"], barred: false };
const AGAIN: Variant = Variant {
    name: "portable, memory again",
    arguments: &["--form", "portable", "--reuse"],
    barred: true,
};

/// One job on one model.
struct Contest {
    subject: &'static Subject,
    job: Job,
}

impl Contest {
    fn name(&self) -> String {
        format!("{} {}", self.job.name(), self.subject.name)
    }

    fn variants(&self) -> &'static [Variant] {
        match (self.job, self.subject.name) {
            (Job::Parse, _) => &[PARSE],
            (Job::Print, "numbers") => &[AGAIN, FRESH],
            (Job::Print, _) => &[PORTABLE, FULL],
        }
    }

    fn run(&self, sides: &Sides, rounds: u32, bars: bool) -> Result<Vec<Row>> {
        match self.job {
            Job::Parse => sides.compare_parsed(self.subject)?,
            Job::Print => sides.compare_printed(self.subject)?,
        }
        let mut rows = Vec::new();
        for variant in self.variants() {
            for (index, (_, rival)) in rivals(self.job).iter().enumerate() {
                rows.push(Row {
                    contest: self.name(),
                    variant: variant.name,
                    rival,
                    bar: (bars && index == 0 && variant.barred).then_some(self.subject.bar),
                    rounds: Rounds::default(),
                });
            }
        }
        // The first round, which was compared above, has the counts that all others must find.
        let mut expected: Vec<Option<String>> = vec![None; 2 + self.variants().len()];
        for _ in 0..rounds {
            let mut theirs = Vec::new();
            for (job, _) in rivals(self.job) {
                theirs.push(sides.theirs(self, job)?);
            }
            let mut ours = Vec::new();
            for variant in self.variants() {
                ours.push(sides.ours(self, variant.arguments)?);
            }
            for (sample, expected) in theirs.iter().chain(&ours).zip(&mut expected) {
                let expected = expected.get_or_insert_with(|| sample.found.clone());
                if *expected != sample.found {
                    return Err(format!("{} was found, before {expected}", sample.found).into());
                }
            }
            let found = |sample: &Sample| sample.found.clone();
            if self.job == Job::Parse && found(&theirs[0]) != found(&ours[0]) {
                let (theirs, ours) = (found(&theirs[0]), found(&ours[0]));
                return Err(format!("we found {ours}, the onnx package {theirs}").into());
            }
            let pairs = ours.iter().flat_map(|ours| theirs.iter().map(move |t| (t, ours)));
            for (row, (theirs, ours)) in rows.iter_mut().zip(pairs) {
                row.rounds.0.push((theirs.clone(), ours.clone()));
            }
        }
        Ok(rows)
    }
}

/// The programs, and what they share.
struct Sides {
    python: PathBuf,
    ours: PathBuf,
    /// Directory of the files.
    directory: PathBuf,
    processor: usize,
}

impl Sides {
    fn prepare(smoke: bool) -> Result<Sides> {
        // The packages that files are measured with.
        let requirements = root().join("tests/perf/io-requirements.txt");
        let processors = allowed_processors()?;
        Ok(Sides {
            python: python::environment(&artifacts("bench/onnx"), &requirements)?,
            ours: build_release("text_bench", &[])?,
            directory: artifacts("bench").join(if smoke { "text-smoke" } else { "text" }),
            processor: *processors.first().ok_or("there is no processor")?,
        })
    }

    fn file(&self, subject: &Subject, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}.{suffix}", subject.name))
    }

    /// Sees that there are the model and its text. Whether there are: not everybody has the zoo.
    fn make_model(&self, subject: &Subject, zoo: Option<&Path>) -> Result<bool> {
        let model = self.file(subject, "onnx");
        if subject.from_zoo {
            let beside = root().join("../shared/zoo");
            let file = format!("{}.onnx", subject.name);
            let source = zoo.unwrap_or(&beside).join(file);
            if !source.is_file() {
                eprintln!("{} is left out: there is no {}", subject.name, source.display());
                return Ok(false);
            }
            shell::run(self.onnx("without-weights").arg(source).arg(&model))?;
        }
        let text = self.file(subject, "txt");
        shell::run(self.onnx("write-text").arg(model).arg(text))?;
        Ok(true)
    }

    /// Checks that the text printed by the rival gives the same model on both sides.
    fn compare_parsed(&self, subject: &Subject) -> Result {
        let (text, parsed) = (self.file(subject, "txt"), self.file(subject, "parsed"));
        self.parse(&text, &parsed)?;
        shell::run(self.onnx("compare-parsed").arg(text).arg(&parsed))?;
        Ok(fs::remove_file(parsed)?)
    }

    /// Checks that our portable text gives the rival the model, and the full one gives us its very
    /// bytes.
    fn compare_printed(&self, subject: &Subject) -> Result {
        let (model, text) = (self.file(subject, "onnx"), self.file(subject, "printed"));
        self.print(&model, PORTABLE.arguments, &text)?;
        shell::run(self.onnx("compare-printed").arg(&model).arg(&text))?;
        let again = self.file(subject, "again");
        self.print(&model, AGAIN.arguments, &again)?;
        shell::run(Command::new("cmp").arg(&text).arg(&again))?;
        self.print(&model, FULL.arguments, &text)?;
        self.parse(&text, &again)?;
        shell::run(Command::new("cmp").arg(&model).arg(&again))?;
        fs::remove_file(again)?;
        Ok(fs::remove_file(text)?)
    }

    /// Writes the model that we read in a text.
    fn parse(&self, text: &Path, result: &Path) -> Result {
        let mut command = bound(self.processor, &self.ours);
        command.arg("parse").arg(text).arg("--result").arg(result);
        answer(&mut command).map(|_| ())
    }

    /// Writes the text that we print of a model.
    fn print(&self, model: &Path, arguments: &[&str], result: &Path) -> Result {
        let mut command = bound(self.processor, &self.ours);
        command.arg("print").arg(model).args(arguments);
        answer(command.arg("--result").arg(result)).map(|_| ())
    }

    fn onnx(&self, job: &str) -> Command {
        let mut command = bound(self.processor, &self.python);
        command.arg(root().join("tests/perf/text_onnx.py"));
        command.arg(job);
        command
    }

    fn ours(&self, contest: &Contest, arguments: &[&str]) -> Result<Sample> {
        let mut command = bound(self.processor, &self.ours);
        command.arg(contest.job.name()).args(arguments);
        self.sample(&mut command, contest)
    }

    fn theirs(&self, contest: &Contest, job: &str) -> Result<Sample> {
        self.sample(&mut self.onnx(job), contest)
    }

    fn sample(&self, command: &mut Command, contest: &Contest) -> Result<Sample> {
        command.arg(self.file(
            contest.subject,
            match contest.job {
                Job::Parse => "txt",
                Job::Print => "onnx",
            },
        ));
        Sample::new(&answer(command.args(["--repeat", &contest.subject.repeat.to_string()]))?)
    }

    /// Formats the text of many nodes.
    fn format(&self, rounds: u32) -> Result<Formatted> {
        let nodes = &SUBJECTS[0];
        self.make_model(nodes, None)?;
        let text = self.file(nodes, "txt");
        let mut times = Vec::new();
        for _ in 0..rounds {
            let mut command = bound(self.processor, &self.ours);
            command.arg("format").arg(&text);
            let repeat = nodes.repeat.to_string();
            times.push(Sample::new(&answer(command.args(["--repeat", &repeat]))?)?.median_ms);
        }
        let median_ms = median(times.into_iter());
        Ok(Formatted { median_ms, mb_per_s: text.metadata()?.len() as f64 / 1e3 / median_ms })
    }
}

/// Time that formatting took.
struct Formatted {
    median_ms: f64,
    mb_per_s: f64,
}

impl Formatted {
    fn to_json(&self) -> Value {
        json!({ "contest": "format nodes", "median_ms": self.median_ms, "mb_per_s": self.mb_per_s })
    }
}

/// One line of the table: a rival and we, a pair of samples per round.
struct Row {
    contest: String,
    variant: &'static str,
    rival: &'static str,
    bar: Option<f64>,
    rounds: Rounds,
}

impl Row {
    /// Returns the complaint if the bar is not reached.
    fn complaint(&self) -> Option<String> {
        let (bar, ratio) = (self.bar?, self.rounds.ratio(|sample| sample.median_ms));
        let (contest, variant) = (&self.contest, self.variant);
        (ratio < bar).then(|| format!("{contest} {variant}: {ratio:.2} times, the bar is {bar}"))
    }

    fn to_json(&self) -> Value {
        let figures: [(&str, fn(&Sample) -> f64); 4] = [
            ("median_ms", |sample| sample.median_ms),
            ("min_ms", |sample| sample.min_ms),
            ("rss_before_mb", |sample| sample.rss_before_mb),
            ("rss_peak_mb", |sample| sample.rss_peak_mb),
        ];
        let mut row = json!({
            "contest": self.contest,
            "variant": self.variant,
            "rival": self.rival,
            "bar": self.bar,
        });
        self.rounds.report(&mut row, &figures);
        row
    }
}

fn print_table(rows: &[Row]) {
    println!(
        "Milliseconds; ratio: how many times faster we are. Memory: peak of the process, MB, and \
         how much of it came with the job."
    );
    println!(
        "{:16} {:22} {:18} {:>9} {:>9} {:>6} {:>5} {:>9} {:>9} {:>6} {:>13} {:>13}",
        "contest",
        "ours",
        "rival",
        "median",
        "ours",
        "ratio",
        "bar",
        "best",
        "ours",
        "ratio",
        "memory",
        "ours"
    );
    for row in rows {
        let medians = row.rounds.median(|sample| sample.median_ms);
        let best = row.rounds.median(|sample| sample.min_ms);
        let memory = row.rounds.median(|sample| sample.rss_peak_mb);
        let added = row.rounds.median(Sample::rss_added_mb);
        println!(
            "{:16} {:22} {:18} {:>9.2} {:>9.2} {:>6.2} {:>5} {:>9.2} {:>9.2} {:>6.2} {:>5.0} \
             (+{:>5.0}) {:>5.0} (+{:>5.0}){}",
            row.contest,
            row.variant,
            row.rival,
            medians.0,
            medians.1,
            row.rounds.ratio(|sample| sample.median_ms),
            row.bar.map(|bar| bar.to_string()).unwrap_or_default(),
            best.0,
            best.1,
            row.rounds.ratio(|sample| sample.min_ms),
            memory.0,
            added.0,
            memory.1,
            added.1,
            row.complaint().map(|_| "  missed").unwrap_or_default(),
        );
    }
}
