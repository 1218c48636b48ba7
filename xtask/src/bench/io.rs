//! `cargo xtask bench io`: opening, reading and saving files; the onnx package, prost and us.
//!
//! As with models, sides take turns, each measurement is a process bound to one processor, and
//! ratios are computed within a round. A process repeats its job, so that the job is
//! compared and not the start of an interpreter; its peak memory is that of the whole process.
//! Before anything is timed the onnx package lists the content of the files, and every side must
//! find that.

use super::contest::{Rounds, Sample, answer, bound};
use super::models::allowed_processors;
use crate::workspace::{artifacts, build_release, cargo, root};
use crate::{Result, python, shell};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Io {
    /// Only contests whose name contains one of these.
    names: Vec<String>,
    /// Number of rounds, in each of which both sides run once.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave the files, more than 4 GB, for the next time.
    #[arg(long)]
    keep: bool,
    /// Tiny files and one round: does everything still run and agree?
    #[arg(long)]
    smoke: bool,
}

pub(crate) fn run(task: &Io) -> Result {
    let sides = Sides::prepare(task.smoke)?;
    sides.make_files(task)?;
    let result = contests(task, &sides);
    if !task.keep {
        fs::remove_dir_all(&sides.directory)?;
    }
    result
}

fn contests(task: &Io, sides: &Sides) -> Result {
    let wanted = |contest: &&Contest| {
        task.names.is_empty() || task.names.iter().any(|name| contest.name.contains(name))
    };
    let mut rows = Vec::new();
    for contest in CONTESTS.iter().filter(wanted) {
        eprintln!("{}", contest.name);
        rows.extend(contest.run(sides, if task.smoke { 1 } else { task.rounds })?);
    }
    print_table(&rows);
    let report = artifacts("bench").join(if task.smoke { "io-smoke.json" } else { "io.json" });
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    fs::write(report, serde_json::to_string_pretty(&rows)?)?;
    Ok(())
}

/// A job that we and rivals do.
struct Contest {
    name: &'static str,
    file: &'static str,
    ours: &'static str,
    rivals: &'static [Rival],
    /// Question to the onnx package about the file, to compare its answer with ours.
    check: Option<&'static str>,
    /// Repetitions within a process.
    repeat: u32,
}

#[derive(Clone, Copy)]
enum Rival {
    /// A job of `io_onnx.py`.
    Onnx(&'static str),
    /// A job of the prost decoder.
    Prost(&'static str),
    /// `cp`, which no saving can beat by much.
    Cp,
}

use Rival::{Cp, Onnx, Prost};

const CONTESTS: &[Contest] = &[
    Contest {
        name: "open, weights inside",
        file: "inline.onnx",
        ours: "open",
        rivals: &[Onnx("load"), Prost("read"), Prost("read-shared")],
        check: Some("counts"),
        repeat: 3,
    },
    Contest {
        name: "open and read, weights inside",
        file: "inline.onnx",
        ours: "touch",
        rivals: &[Onnx("load")],
        check: Some("weights"),
        repeat: 3,
    },
    Contest {
        name: "open and read, weights outside",
        file: "external.onnx",
        ours: "touch",
        rivals: &[Onnx("load")],
        check: Some("weights"),
        repeat: 2,
    },
    Contest {
        name: "open, many nodes",
        file: "nodes.onnx",
        ours: "open",
        rivals: &[Onnx("load"), Prost("read")],
        check: Some("counts"),
        repeat: 7,
    },
    Contest {
        name: "visit, many nodes",
        file: "nodes.onnx",
        ours: "visit",
        rivals: &[Onnx("parse"), Prost("decode")],
        check: Some("fields"),
        repeat: 15,
    },
    Contest {
        name: "decode packed lists",
        file: "packed.onnx",
        ours: "packed",
        rivals: &[Onnx("parse"), Prost("packed")],
        check: Some("numbers"),
        repeat: 15,
    },
    Contest {
        name: "save, weights inside",
        file: "inline.onnx",
        ours: "save",
        rivals: &[Cp, Onnx("save")],
        // Written files are compared byte for byte.
        check: None,
        repeat: 2,
    },
    Contest {
        name: "externalize",
        file: "inline.onnx",
        ours: "externalize",
        rivals: &[Onnx("externalize")],
        // Written files are loaded by the onnx package.
        check: None,
        repeat: 2,
    },
];

impl Contest {
    fn run(&self, sides: &Sides, rounds: u32) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = self.rivals.iter().map(|rival| Row::new(self, *rival)).collect();
        let our_truth = self.truth(sides, self.check)?;
        let truths: Vec<Option<String>> = self
            .rivals
            .iter()
            .map(|rival| self.truth(sides, rival.check()))
            .collect::<Result<_>>()?;
        for _ in 0..rounds {
            for (row, truth) in rows.iter_mut().zip(&truths) {
                let theirs = sides.rival(self, row.rival)?;
                self.agree(row.rival.name(), &theirs, truth)?;
                let ours = sides.ours(self)?;
                self.agree("sardonyx", &ours, &our_truth)?;
                row.rounds.0.push((theirs, ours));
            }
        }
        Ok(rows)
    }

    fn truth(&self, sides: &Sides, check: Option<&str>) -> Result<Option<String>> {
        check.map(|check| sides.truth(self, check)).transpose()
    }

    fn agree(&self, who: &str, sample: &Sample, truth: &Option<String>) -> Result {
        match truth {
            Some(truth) if *truth != sample.found => {
                let (name, found) = (self.name, &sample.found);
                Err(format!("{name}: {who} found {found}, the onnx package {truth}").into())
            }
            _ => Ok(()),
        }
    }
}

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Onnx("load") => "onnx.load",
            Onnx("parse") => "ModelProto.FromString",
            Onnx("externalize") => "onnx.save, external",
            Onnx(_) => "onnx.save",
            Prost("read") => "prost, read + decode",
            Prost("read-shared") => "prost, shared bytes",
            Prost(_) => "prost, decode",
            Cp => "cp --reflink=never",
        }
    }

    /// Returns the question to the onnx package that checks the rival's answer.
    fn check(self) -> Option<&'static str> {
        match self {
            Onnx(_) | Cp => None,
            Prost("packed") => Some("numbers"),
            Prost(_) => Some("counts"),
        }
    }
}

/// The programs, and what they share.
struct Sides {
    python: PathBuf,
    prost: PathBuf,
    ours: PathBuf,
    /// Directory of the files.
    directory: PathBuf,
    processor: usize,
}

impl Sides {
    fn prepare(smoke: bool) -> Result<Sides> {
        let requirements = root().join("tests/perf/io-requirements.txt");
        let processors = allowed_processors()?;
        Ok(Sides {
            python: python::environment(&artifacts("bench/onnx"), &requirements)?,
            prost: build_prost()?,
            ours: build_release("io_bench", &[])?,
            directory: artifacts("bench").join(if smoke { "io-smoke" } else { "io" }),
            processor: *processors.first().ok_or("there is no processor")?,
        })
    }

    /// Makes the files, if the same program has not made them before.
    fn make_files(&self, task: &Io) -> Result {
        let stamp = self.directory.join("made-by");
        let wanted = fs::read_to_string(root().join("tests/src/bin/io_bench/make.rs"))?;
        if fs::read_to_string(&stamp).is_ok_and(|made_by| made_by == wanted) {
            return Ok(());
        }
        let mut command = Command::new(&self.ours);
        command.arg("make").arg(&self.directory);
        shell::run(command.args(task.smoke.then_some("--smoke")))?;
        fs::write(stamp, wanted)?;
        Ok(())
    }

    fn onnx(&self) -> Command {
        let mut command = bound(self.processor, &self.python);
        command.arg(root().join("tests/perf/io_onnx.py"));
        command
    }

    /// Asks the onnx package for the content of a contest's file.
    fn truth(&self, contest: &Contest, check: &str) -> Result<String> {
        self.truth_of(&self.directory.join(contest.file), check)
    }

    fn truth_of(&self, model: &Path, check: &str) -> Result<String> {
        let mut command = self.onnx();
        command.arg("load").arg(model);
        let answer = answer(command.args(["--check", check]))?;
        Ok(answer["found"].as_str().unwrap_or_default().to_string())
    }

    fn ours(&self, contest: &Contest) -> Result<Sample> {
        let mut command = bound(self.processor, &self.ours);
        command.args(["--repeat", &contest.repeat.to_string(), contest.ours]);
        self.files(&mut command, contest);
        self.sample(&mut command, contest)
    }

    fn rival(&self, contest: &Contest, rival: Rival) -> Result<Sample> {
        let repeat = contest.repeat.to_string();
        match rival {
            Onnx(job) => {
                let mut command = self.onnx();
                command.args(["--repeat", &repeat, job]);
                self.files(&mut command, contest);
                self.sample(&mut command, contest)
            }
            Prost(job) => {
                let mut command = bound(self.processor, &self.prost);
                command.arg(job).arg(self.directory.join(contest.file)).arg(repeat);
                self.sample(&mut command, contest)
            }
            Cp => self.copy(contest),
        }
    }

    fn files(&self, command: &mut Command, contest: &Contest) {
        command.arg(self.directory.join(contest.file));
        match contest.ours {
            "save" => command.arg(self.saved_path()),
            "externalize" => command.arg(self.externalized_path()),
            _ => command,
        };
    }

    fn saved_path(&self) -> PathBuf {
        self.directory.join("saved.onnx")
    }

    /// Returns the path for a model whose weights are moved out, in a directory of its own.
    fn externalized_path(&self) -> PathBuf {
        self.directory.join("outside/model.onnx")
    }

    fn sample(&self, command: &mut Command, contest: &Contest) -> Result<Sample> {
        if contest.ours == "externalize" {
            fs::create_dir_all(self.directory.join("outside"))?;
        }
        let answer = answer(command)?;
        match contest.ours {
            "save" => self.compare_saved(contest)?,
            "externalize" => self.compare_moved(contest)?,
            _ => {}
        }
        Sample::new(&answer)
    }

    fn copy(&self, contest: &Contest) -> Result<Sample> {
        let mut times = Vec::new();
        for _ in 0..contest.repeat {
            let mut command = bound(self.processor, Path::new("cp"));
            command.arg("--reflink=never");
            command.arg(self.directory.join(contest.file)).arg(self.saved_path());
            let start = Instant::now();
            shell::run(&mut command)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            self.compare_saved(contest)?;
        }
        Sample::from_times(&times)
    }

    /// Compares the copy with the file byte for byte and removes it, so that everybody writes a new
    /// file.
    fn compare_saved(&self, contest: &Contest) -> Result {
        let saved = self.saved_path();
        shell::run(Command::new("cmp").arg(self.directory.join(contest.file)).arg(&saved))?;
        fs::remove_file(saved)?;
        Ok(())
    }

    /// Compares the weights that were moved out with those of the file, and removes them. That they
    /// are outside shows in the size of the model.
    fn compare_moved(&self, contest: &Contest) -> Result {
        let moved = self.externalized_path();
        let (whole, rest) = (self.directory.join(contest.file), moved.metadata()?.len());
        if rest > whole.metadata()?.len() / 10 {
            return Err(format!("{} bytes are left in the model", rest).into());
        }
        let (wanted, found) =
            (self.truth_of(&whole, "weights")?, self.truth_of(&moved, "weights")?);
        if wanted != found {
            return Err(format!("{found} were moved out of {wanted}").into());
        }
        fs::remove_dir_all(self.directory.join("outside"))?;
        Ok(())
    }
}

/// Builds the prost decoder, in a target directory of its own: it is not part of the workspace.
fn build_prost() -> Result<PathBuf> {
    let target = artifacts("bench/prost");
    let manifest = root().join("xtask/rivals/prost/Cargo.toml");
    let mut command = cargo();
    command
        .env_remove("CARGO_BUILD_TARGET")
        // The flags of the static build are not for procedural macros.
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", &target);
    command.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
    shell::run(command.arg(manifest))?;
    Ok(target.join("release/rival-prost"))
}

/// One line of the table: a rival and we, a pair of samples per round.
struct Row {
    name: &'static str,
    rival: Rival,
    rounds: Rounds,
}

impl Row {
    fn new(contest: &Contest, rival: Rival) -> Row {
        Row { name: contest.name, rival, rounds: Rounds::default() }
    }

    fn to_json(&self) -> Value {
        let figures: [(&str, fn(&Sample) -> f64); 4] = [
            ("first_ms", |sample| sample.first_ms),
            ("median_ms", |sample| sample.median_ms),
            ("min_ms", |sample| sample.min_ms),
            ("rss_peak_mb", |sample| sample.rss_peak_mb),
        ];
        let mut row = json!({
            "contest": self.name,
            "rival": self.rival.name(),
        });
        self.rounds.report(&mut row, &figures);
        row
    }
}

fn print_table(rows: &[Row]) {
    println!("Milliseconds; ratio: how many times faster we are. Memory: peak of the process, MB.");
    println!(
        "{:31} {:22} {:>9} {:>9} {:>7} {:>9} {:>9} {:>7} {:>8} {:>7}",
        "contest", "rival", "median", "ours", "ratio", "best", "ours", "ratio", "memory", "ours"
    );
    for row in rows {
        let medians = row.rounds.median(|sample| sample.median_ms);
        let best = row.rounds.median(|sample| sample.min_ms);
        let memory = row.rounds.median(|sample| sample.rss_peak_mb);
        println!(
            "{:31} {:22} {:>9.2} {:>9.2} {:>7.2} {:>9.2} {:>9.2} {:>7.2} {:>8.0} {:>7.0}",
            row.name,
            row.rival.name(),
            medians.0,
            medians.1,
            row.rounds.ratio(|sample| sample.median_ms),
            best.0,
            best.1,
            row.rounds.ratio(|sample| sample.min_ms),
            memory.0,
            memory.1,
        );
    }
}
