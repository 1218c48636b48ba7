//! `sardonyx models`: the models of a directory, and what can be done with them next. `sardonyx`
//! without arguments does it in a directory that has models.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use sardonyx::check::{CheckOptions, CheckReport, Severity};
use sardonyx::infer::InferOptions;
use sardonyx::ops::UnsupportedOperator;
use sardonyx::tool::ModelExt;
use sardonyx::tool::cost::{Sum, at_assumed_sizes};
use sardonyx::{Model, OpenOptions};
use serde_json::{Value, json};

use crate::check::Counts;
use crate::failure::Failure;
use crate::human::{
    Align, compare_names, format_bytes, format_columns, format_count, group_digits,
};
use crate::model_arg::Limits;
use crate::parallel::{count_processors, map_in_parallel};
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// List models: whether each is valid and runs, what takes most of its work, and what to do next
///
/// Models are not run and weights are not read. `sardonyx` without arguments does the same in a
/// directory that has models. Exit code 0: no errors, 1: a model has errors or
/// operators that cannot run, 2: a file cannot be read.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Directories, which are searched up to three levels deep, and ONNX files
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<PathBuf>,
    /// Maximum number of models to look into; more are counted
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_models: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: Limits,
}

/// Name and version of the schema of `models --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.models/1";

/// Extensions of files that are models. Those that other files have as well, such as `json`, are
/// left out.
const EXTENSIONS: &[&str] = &["onnx", "onnxtxt", "onnxtext"];

/// Number of levels of directories that are searched, the first one included: models of the Hub are
/// in `onnx/`, those of servers in `NAME/1/`.
const LEVELS: usize = 3;

/// Maximum number of directory entries that are looked at, so that a call in a home directory ends
/// soon.
const MAX_ENTRIES: usize = 20_000;

/// Looks for models, and counts what it has looked at.
#[derive(Default)]
struct Search {
    found: Vec<PathBuf>,
    entries: usize,
}

impl Search {
    /// Adds the models of a directory and of those within, by name. Hidden directories and links to
    /// directories are left out.
    fn add_directory(&mut self, directory: &Path, levels: usize) -> std::io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                break;
            }
            let entry = entry?;
            names.push((entry.file_name().to_string_lossy().into_owned(), entry));
        }
        names.sort_by(|a, b| compare_names(&a.0, &b.0));
        let mut directories = Vec::new();
        for (name, entry) in names {
            // The path without `./` is what a user types.
            let path =
                if directory == Path::new(".") { PathBuf::from(&name) } else { entry.path() };
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') {
                    directories.push(path);
                }
            } else if has_extension(&path) {
                self.found.push(path);
            }
        }
        for directory in directories.iter().filter(|_| levels > 1) {
            // A directory that may not be read has no models for this user.
            let _ = self.add_directory(directory, levels - 1);
        }
        Ok(())
    }
}

fn has_extension(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

/// Whether the current directory or one below it has models.
pub(crate) fn is_in_directory_of_models() -> bool {
    let mut search = Search::default();
    search.add_directory(Path::new("."), LEVELS).is_ok() && !search.found.is_empty()
}

/// Facts about a model.
struct Overview {
    path: PathBuf,
    result: Result<Facts, Failure>,
}

struct Facts {
    bytes: Option<u64>,
    nodes: usize,
    report: CheckReport,
    cannot_run: Vec<UnsupportedOperator>,
    work: Option<MostWork>,
}

/// Operator that takes most of the work of a model.
struct MostWork {
    operator: String,
    /// Share of the work, from 0 to 1, where every open size has the same number.
    share: f64,
    /// Unit of the work: `multiply-adds`, or `elements` in a model without products.
    unit: &'static str,
}

pub(crate) fn models(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut search = Search::default();
    for path in &args.paths {
        if path.is_dir() {
            search.add_directory(path, LEVELS).map_err(|error| {
                crate::files::io_failure("cannot read the directory", path, &error)
            })?;
        } else {
            search.found.push(path.clone());
        }
    }
    if search.entries > MAX_ENTRIES {
        terminal.note(&format!(
            "only the first {} entries of the directories were looked at",
            group_digits(MAX_ENTRIES as u64)
        ));
    }
    let more = search.found.len().saturating_sub(args.max_models);
    search.found.truncate(args.max_models);
    let bar = terminal.progress("looking into models", Some(search.found.len() as u64));
    let all = map_in_parallel(&search.found, count_processors(), |path| {
        let result = look_into(path, &args.limits);
        bar.inc(1);
        Overview { path: path.clone(), result }
    });
    bar.finish_and_clear();
    if args.json {
        terminal.json(&as_json(&all, more), true)?;
    } else {
        terminal.print(&as_text(&all, more))?;
    }
    let mut verdict = Verdict::Fine;
    let mut failures = Vec::new();
    for overview in all {
        match overview.result {
            Ok(facts) if facts.is_fine() => {}
            Ok(_) => verdict = Verdict::Findings,
            Err(failure) => failures.push(failure),
        }
    }
    // The last failure is returned as that of the command; earlier ones are printed here.
    let last = failures.pop();
    for earlier in &failures {
        terminal.print_failure(earlier);
    }
    last.map_or(Ok(verdict), Err)
}

/// Checks and measures a model.
fn look_into(path: &Path, limits: &Limits) -> Result<Facts, Failure> {
    let model = limits.load(path, OpenOptions::new())?.model;
    let report = model.check(&CheckOptions::new().types(true));
    Ok(Facts {
        bytes: fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| file.len()),
        nodes: model.node_count(),
        cannot_run: model.unsupported_operators(),
        // The sizes of a model with errors may be anything.
        work: if report.errors == 0 { find_most_work(&model) } else { None },
        report,
    })
}

/// Finds the operator with most multiply-adds, or with most elements in a model without products.
fn find_most_work(model: &Model) -> Option<MostWork> {
    let sums = model.cost(&InferOptions::new()).sum_by_operator();
    let products = sums.iter().map(|(operator, _, work)| (operator, &work.multiply_adds));
    let elements = sums.iter().map(|(operator, _, work)| (operator, &work.elements));
    find_largest("multiply-adds", products).or_else(|| find_largest("elements", elements))
}

/// Finds the operator with the largest of the sums; `None` if all are 0.
fn find_largest<'a>(
    unit: &'static str,
    sums: impl Iterator<Item = (&'a String, &'a Sum)>,
) -> Option<MostWork> {
    let counts: Vec<(&String, i64)> =
        sums.map(|(operator, sum)| (operator, at_assumed_sizes(&sum.known))).collect();
    let total = counts.iter().map(|(_, count)| *count).fold(0, i64::saturating_add);
    // The first of equal ones.
    let (operator, most) = counts.iter().min_by_key(|(_, count)| Reverse(*count))?;
    let share = *most as f64 / total as f64;
    (total > 0).then(|| MostWork { operator: operator.to_string(), share, unit })
}

impl Facts {
    fn is_fine(&self) -> bool {
        self.report.errors == 0 && self.cannot_run.is_empty()
    }

    fn format_valid(&self) -> String {
        let mut counts = Counts::default();
        counts.add(&self.report);
        match (self.report.errors, self.report.warnings) {
            (0, 0) => "yes".to_string(),
            (0, _) => format!("yes, {}", counts.format_words()),
            _ => {
                let mut findings = self.report.findings.iter();
                let first = findings.find(|found| found.severity == Severity::Error);
                let code = first.map_or(String::new(), |found| format!(" ({} …)", found.code.name));
                format!("no, {}{code}", counts.format_words())
            }
        }
    }

    fn format_runs(&self) -> String {
        match &self.cannot_run[..] {
            [] if self.report.errors > 0 => "not before it is valid".to_string(),
            [] => "yes".to_string(),
            [only] => format!("no, without {only}"),
            all => format!("no, without {}", format_count(all.len(), "operator")),
        }
    }
}

fn as_text(all: &[Overview], more: usize) -> String {
    if all.is_empty() {
        return "no models: files that end in .onnx, .onnxtxt or .onnxtext\n".to_string();
    }
    use Align::{Left, Right};
    let headings = [
        ("model", Left),
        ("size", Right),
        ("nodes", Right),
        ("valid", Left),
        ("runs", Left),
        ("most work in", Left),
    ];
    let rows = all.iter().map(|overview| {
        let name = overview.path.display().to_string();
        match &overview.result {
            Ok(facts) => [
                name,
                facts.bytes.map_or(String::new(), format_bytes),
                group_digits(facts.nodes as u64),
                facts.format_valid(),
                facts.format_runs(),
                facts.work.as_ref().map_or(String::new(), MostWork::as_text),
            ],
            Err(_) => {
                let [size, nodes, runs, work] = [const { String::new() }; 4];
                [name, size, nodes, "cannot be read".to_string(), runs, work]
            }
        }
    });
    let mut text = format_columns(&headings, &rows.collect::<Vec<[String; 6]>>());
    if more > 0 {
        text += &format!("… and {}\n", format_count(more, "more model"));
    }
    let next = suggest_commands(all);
    if !next.is_empty() {
        text += "\nnext:\n";
        let width = next.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        for (command, purpose) in next {
            text += &format!("  {command:<width$}  {purpose}\n");
        }
    }
    text
}

impl MostWork {
    fn as_text(&self) -> String {
        format!("{}, {:.0} % of {}", self.operator, self.share * 100.0, self.unit)
    }
}

/// Suggests commands for the first model that is fine, the first with errors and the first that
/// cannot run, each with its purpose.
fn suggest_commands(all: &[Overview]) -> Vec<(String, &'static str)> {
    let mut commands = Vec::new();
    if let Some(name) = find_model(all, Facts::is_fine) {
        commands.push((format!("sardonyx info {name}"), "inputs, outputs, operators, metadata"));
        commands.push((format!("sardonyx run {name} --random"), "runs it on random inputs"));
        commands.push((
            format!("sardonyx profile {name} --random"),
            "where the time goes, step by step",
        ));
    }
    if let Some(name) = find_model(all, |facts| facts.report.errors > 0) {
        commands.push((format!("sardonyx check --full {name}"), "every error, with advice"));
    }
    if let Some(name) =
        find_model(all, |facts| facts.report.errors == 0 && !facts.cannot_run.is_empty())
    {
        commands.push((format!("sardonyx explain {name}"), "why it cannot run"));
    }
    commands
}

/// Returns the path of the first model whose facts are `wanted`, quoted for a shell.
fn find_model(all: &[Overview], wanted: fn(&Facts) -> bool) -> Option<String> {
    let model = all.iter().find(|one| one.result.as_ref().is_ok_and(wanted))?;
    Some(quote_word(&model.path.display().to_string()))
}

/// Quotes a word for a shell, if needed.
fn quote_word(word: &str) -> String {
    if !word.starts_with('-')
        && word.chars().all(|c| c.is_alphanumeric() || "-_./+=:,@".contains(c))
    {
        word.to_string()
    } else if word.starts_with('-') {
        quote_word(&format!("./{word}"))
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn as_json(all: &[Overview], more: usize) -> Value {
    let models = all.iter().map(|overview| {
        let name = overview.path.display().to_string();
        match &overview.result {
            Ok(facts) => json!({
                "model": name,
                "file_bytes": facts.bytes,
                "nodes": facts.nodes,
                "errors": facts.report.errors,
                "warnings": facts.report.warnings,
                "notes": facts.report.notes,
                "unsupported": facts.cannot_run,
                "most_work": facts.work.as_ref().map(|work| json!({
                    "operator": work.operator, "share": work.share, "unit": work.unit,
                })),
            }),
            Err(failure) => json!({
                "model": name,
                "verdict": "unreadable",
                "error": failure.message(),
                "failure": failure.json(),
            }),
        }
    });
    let models: Vec<Value> = models.collect();
    let next: Vec<Value> = suggest_commands(all)
        .into_iter()
        .map(|(command, purpose)| json!({"command": command, "purpose": purpose}))
        .collect();
    json!({"schema": SCHEMA, "models": models, "more": more, "next": next})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, quoted) in [
            ("a.onnx", "a.onnx"),
            ("my model.onnx", "'my model.onnx'"),
            ("it's.onnx", "'it'\\''s.onnx'"),
            ("-x.onnx", "./-x.onnx"),
        ] {
            assert_eq!(quote_word(word), quoted);
        }
    }
}
