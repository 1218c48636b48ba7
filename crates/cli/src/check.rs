//! `sardonyx check` and `sardonyx explain`: checks models against the rules of the standard and
//! explains the findings.

use std::path::{Path, PathBuf};

use sardonyx::check::{CheckOptions, CheckReport, Code, Finding, Severity};
use sardonyx::ops::UnsupportedOperator;
use sardonyx::text::Position;
use sardonyx::tool::Reference;
use sardonyx::tool::document::{self, Document};
use sardonyx::{Error, OpenOptions, tool};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::{Limits, is_stdin};
use crate::objects::merge_objects;
use crate::parallel::{count_processors, map_in_parallel};
use crate::rules::{self, Rule};
use crate::sarif;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Check models against the rules of the ONNX standard
///
/// Each finding has a code, the rule, the location and advice; `sardonyx explain CODE` explains it.
/// Weights are not read. Exit code 0: no errors, 1: errors, 2: a file cannot be read.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX files, binary or text, or - for stdin
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Kind of the files, if they are not models
    #[arg(long = "as", value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// OperatorSetProto file that defines further operators. May be repeated
    #[arg(long, value_name = "FILE")]
    opset_file: Vec<PathBuf>,
    /// Raise every severity by one level and include pedantic findings
    #[arg(long)]
    strict: bool,
    /// Suppress a code, a requirement, or all `warnings` or `notes`
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    allow: Vec<String>,
    /// Report a code, a requirement, or all `warnings` or `notes` as errors
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    deny: Vec<String>,
    /// Report only findings for which the checker of the `onnx` package rejects a model; with
    /// --full, its full check
    #[arg(long, conflicts_with = "strict")]
    like_onnx: bool,
    /// Report operators outside of the standard's domains as errors
    #[arg(long)]
    custom_domains: bool,
    /// Also infer types and shapes, and report contradictions, sizes that cannot vary although they
    /// have a name, and operators that sardonyx cannot run
    #[arg(long)]
    full: bool,
    /// Do not look at external data files
    #[arg(long)]
    no_files: bool,
    /// List notes; by default they are only counted
    #[arg(long)]
    notes: bool,
    /// Maximum number of findings to list for each code
    #[arg(long, value_name = "N", default_value_t = 20)]
    max_findings: usize,
    /// Number of models to check in parallel; by default the number of processors
    #[arg(short, long, value_name = "N")]
    jobs: Option<std::num::NonZeroUsize>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
    /// Print JSON; the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    limits: Limits,
}

/// Message type of the files to check, for files that are not models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A model
    Model,
    /// An OperatorSetProto; binary ones are recognized without this option
    OperatorSet,
    /// A stored sequence, as in test data
    Sequence,
    /// A stored map
    Map,
    /// A stored optional
    Optional,
}

impl Kind {
    /// Returns the library's [`Document`] for this kind of file; `None` for a model, which is not a
    /// `Document`.
    fn to_document(self) -> Option<Document> {
        match self {
            Kind::Model => None,
            Kind::OperatorSet => Some(Document::OperatorSet),
            Kind::Sequence => Some(Document::Sequence),
            Kind::Map => Some(Document::Map),
            Kind::Optional => Some(Document::Optional),
        }
    }
}

/// Output format that `--format` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
    /// SARIF 2.1.0 for code hosts and editors
    Sarif,
}

/// Name and version of the schema of `check --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.check/1";

/// Outcome of the check of one file.
struct CheckedFile {
    name: String,
    /// Findings, or the failure to read the file.
    result: Result<FileReport, Failure>,
}

/// Findings of a file that could be read.
struct FileReport {
    report: CheckReport,
    /// Text that is printed for each finding, in the order of the report.
    renderings: Vec<String>,
    /// Line and column of each finding of a text file; empty for a binary file.
    positions: Vec<Option<Position>>,
    /// Whether the file holds a model. Other protobuf messages have no types and shapes to check.
    is_model: bool,
    /// Operators of the model that sardonyx cannot run; `None` if types were not checked.
    cannot_run: Option<Vec<UnsupportedOperator>>,
}

impl FileReport {
    /// Pairs each finding with its position in the text file; `None` in a binary file.
    fn findings(&self) -> impl Iterator<Item = (&Finding, Option<Position>)> {
        let positions = self.positions.iter().copied();
        let positions = positions.chain(std::iter::repeat(None));
        self.report.findings.iter().zip(positions)
    }
}

pub(crate) fn check(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    if args.models.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::new("only one model can be read from stdin"));
    }
    let options = make_options(args)?;
    let format = if args.json { Format::Json } else { args.format };
    let all = check_files(args, &options, terminal);
    let mut total = Counts::default();
    for found in all.iter().filter_map(|checked| checked.result.as_ref().ok()) {
        total.add(&found.report);
    }
    match format {
        Format::Text => terminal.print(&as_text(&all, args, &total))?,
        Format::Json => terminal.json(&as_json(&all, args), true)?,
        Format::Sarif => terminal.json(&make_sarif_log(&all), true)?,
    }
    let mut failures: Vec<Failure> =
        all.into_iter().filter_map(|checked| checked.result.err()).collect();
    // The last failure is returned as that of the command; earlier ones are printed here.
    let last = failures.pop();
    for earlier in &failures {
        terminal.print_failure(earlier);
    }
    match (last, total.errors) {
        (Some(failure), _) => Err(failure),
        (None, 0) => Ok(Verdict::Fine),
        (None, _) => Ok(Verdict::Findings),
    }
}

/// Creates the failure for an unknown code in `--allow` or `--deny`. If the error has no advice,
/// adds a hint at the list of codes.
fn unknown_code_failure(error: Error) -> Failure {
    let help = error.help().unwrap_or("`sardonyx explain` lists all codes").to_string();
    Failure::new(error.message()).help(help)
}

/// Converts the arguments of the command to options of the library.
fn make_options(args: &Args) -> Result<CheckOptions, Failure> {
    let mut options = CheckOptions::new()
        .strict(args.strict)
        .like_onnx(args.like_onnx)
        .custom_domains(args.custom_domains)
        .types(args.full)
        .skip_data_files(args.no_files)
        .per_code(args.max_findings);
    for name in &args.allow {
        options = options.allow(name).map_err(unknown_code_failure)?;
    }
    for name in &args.deny {
        options = options.deny(name).map_err(unknown_code_failure)?;
    }
    for file in &args.opset_file {
        options = options.operator_set(file)?;
    }
    Ok(options)
}

/// Checks all files of the command line, several in parallel. Results are in the order of the
/// arguments.
fn check_files(args: &Args, options: &CheckOptions, terminal: &Terminal) -> Vec<CheckedFile> {
    let jobs = args.jobs.map_or_else(count_processors, usize::from);
    let bar = terminal.progress("checking", Some(args.models.len() as u64));
    let checked = map_in_parallel(&args.models, jobs, |path| {
        let result = check_file(path, args, options);
        bar.inc(1);
        CheckedFile { name: path.display().to_string(), result }
    });
    bar.finish_and_clear();
    checked
}

/// Checks the model, or other protobuf message, in the file at `path`.
fn check_file(path: &Path, args: &Args, options: &CheckOptions) -> Result<FileReport, Failure> {
    let name = path.display().to_string();
    let document = match args.kind {
        Some(kind) => kind.to_document(),
        None if is_stdin(path) => None,
        None => document::recognize_document(path),
    };
    if let Some(document) = document {
        let report = document::check_document(path, document, options)?;
        let findings = report.findings.iter();
        let renderings = findings.map(|found| document::render_document(found, &name)).collect();
        let (positions, cannot_run) = (Vec::new(), None);
        return Ok(FileReport { report, renderings, positions, is_model: false, cannot_run });
    }
    let loaded = args.limits.load(path, OpenOptions::new())?;
    let report = loaded.model.check(options);
    let renderings =
        report.findings.iter().map(|found| loaded.model.render_finding(found, &name)).collect();
    let positions = loaded.positions(&report.findings);
    let is_asked = report.types_checked && !args.like_onnx;
    let cannot_run = is_asked.then(|| loaded.model.unsupported_operators());
    Ok(FileReport { report, renderings, positions, is_model: true, cannot_run })
}

/// Numbers of findings by severity.
#[derive(Default)]
pub(crate) struct Counts {
    errors: u64,
    warnings: u64,
    notes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, report: &CheckReport) {
        self.errors += report.errors;
        self.warnings += report.warnings;
        self.notes += report.notes;
    }

    /// Formats the counts that are not 0, such as `2 errors, 1 note`; empty if all are 0.
    pub(crate) fn format_words(&self) -> String {
        let counts = [(self.errors, "error"), (self.warnings, "warning"), (self.notes, "note")];
        let words: Vec<String> = counts
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format_count(usize::try_from(number).unwrap_or(usize::MAX), what))
            .collect();
        words.join(", ")
    }

    /// Returns a hint at `--notes` if notes are counted but not listed, else an empty text.
    fn format_hint(&self, args: &Args) -> &'static str {
        if self.notes > 0 && !args.notes { "; --notes lists the notes" } else { "" }
    }
}

/// Returns a remark if types and shapes of some models were not checked, else an empty text.
fn describe_unchecked_types(all: &[CheckedFile], args: &Args) -> &'static str {
    let mut models = all.iter().filter_map(|checked| checked.result.as_ref().ok());
    if args.full {
        let failed = models.any(|found| found.is_model && !found.report.types_checked);
        return if failed {
            "; types and shapes are not checked until the errors are fixed"
        } else {
            ""
        };
    }
    let is_without = models.any(|found| found.is_model && found.report.errors == 0);
    if is_without { "; types and shapes are checked only with --full" } else { "" }
}

fn as_text(all: &[CheckedFile], args: &Args, total: &Counts) -> String {
    let mut text = String::new();
    for checked in all {
        let Ok(FileReport { report, renderings, cannot_run, .. }) = &checked.result else {
            continue;
        };
        let findings = report.findings.iter().zip(renderings);
        let listed = findings.filter(|(found, _)| args.notes || found.severity > Severity::Note);
        for (_, rendering) in listed {
            text += rendering;
            text += "\n\n";
        }
        for (code, more) in &report.more {
            let number = usize::try_from(*more).unwrap_or(usize::MAX);
            text += &format!(
                "{}: and {} of {code}\n\n",
                checked.name,
                format_count(number, "more finding")
            );
        }
        for operator in cannot_run.iter().flatten() {
            text += &format!("{}: sardonyx cannot run {operator}\n\n", checked.name);
        }
        let mut counts = Counts::default();
        counts.add(report);
        let words = match (report.errors, counts.format_words()) {
            (_, words) if words.is_empty() => "no findings".to_string(),
            (0, words) => format!("no errors; {words}"),
            (_, words) => words,
        };
        let [hint, types] = match all.len() {
            1 => [counts.format_hint(args), describe_unchecked_types(all, args)],
            _ => [""; 2],
        };
        text += &format!("{}: {words}{hint}{types}\n", checked.name);
    }
    if all.len() > 1 {
        let wrong = all
            .iter()
            .filter(|checked| checked.result.as_ref().is_ok_and(|found| found.report.errors > 0));
        let unreadable = all.iter().filter(|checked| checked.result.is_err()).count();
        let mut summary =
            format!("{} checked: {} with errors", format_count(all.len(), "model"), wrong.count());
        if unreadable > 0 {
            summary += &format!(", {unreadable} not readable");
        }
        let words = total.format_words();
        if !words.is_empty() {
            summary += &format!(" ({words}{})", total.format_hint(args));
        }
        text += &(summary + describe_unchecked_types(all, args) + "\n");
    }
    text
}

fn as_json(all: &[CheckedFile], args: &Args) -> Value {
    let files = all.iter().map(|checked| match &checked.result {
        Ok(found) => {
            let mut answer = merge_objects(json!({"model": checked.name}), json!(found.report));
            // Replaces the findings of the report by findings with line and column.
            let findings = found.findings();
            answer["findings"] =
                findings.map(|(found, position)| finding_to_json(found, position)).collect();
            answer["unsupported"] = json!(found.cannot_run);
            answer
        }
        Err(failure) => json!({
            "model": checked.name,
            "verdict": "unreadable",
            "error": failure.message(),
            "failure": failure.json(),
        }),
    });
    json!({
        "schema": SCHEMA,
        "strict": args.strict,
        "files": files.collect::<Vec<_>>(),
    })
}

/// Builds the SARIF log of all checked files: findings are results, failures notifications.
fn make_sarif_log(all: &[CheckedFile]) -> Value {
    let mut results = Vec::new();
    let mut notifications = Vec::new();
    for checked in all {
        let name = &checked.name;
        match &checked.result {
            Ok(found) => {
                let findings = found.findings();
                results.extend(findings.map(|(found, at)| sarif::build_result(found, at, name)));
            }
            Err(failure) => notifications.extend(sarif::build_notifications(failure, Some(name))),
        }
    }
    sarif::build_log(results, notifications)
}

/// Formats a finding as JSON, with its line and column if the model was read from text.
pub(crate) fn finding_to_json(found: &Finding, position: Option<Position>) -> Value {
    let (line, column) = position.map(|position| (position.line, position.column)).unzip();
    merge_objects(json!(found), json!({"line": line, "column": column}))
}

/// Returns the id of the ONNX requirement that findings of `code` violate; `None` if the code has
/// none.
fn find_requirement(code: &Code) -> Option<&'static str> {
    Some(code.requirement).filter(|id| !id.is_empty())
}

/// Name and version of the schema of `explain CODE --json`. The version rises when the meaning of a
/// key changes, not when a key is added.
const EXPLAIN_SCHEMA: &str = "sardonyx.explain/1";

/// Returns the code of findings called `name`, or all codes that check the requirement `name`;
/// empty if there is none.
pub(crate) fn find_codes(name: &str) -> Vec<&'static Code> {
    match tool::code(name) {
        Some(code) => vec![code],
        None => {
            let codes = tool::CODES.iter().copied();
            codes.filter(|code| code.requirement.eq_ignore_ascii_case(name)).collect()
        }
    }
}

/// Prints the text of a rule and the explanations of the chosen codes of findings. Lists all codes
/// if `chosen` is `None`.
pub(crate) fn explain(
    rule: Option<Rule>,
    chosen: Option<&[&Code]>,
    json: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let listed = chosen.unwrap_or(tool::CODES);
    if json {
        let codes = listed.iter().map(|code| {
            json!({
                "code": code.name,
                "severity": format_severity(code),
                "requirement": find_requirement(code),
                "refused_by_onnx": code.reference == Reference::Refuses,
                "refused_by_onnx_full_check": code.reference != Reference::Accepts,
                "about": code.about,
                "help": code.help,
            })
        });
        let codes = codes.collect::<Vec<_>>();
        let mut answer = json!({"schema": EXPLAIN_SCHEMA, "codes": codes});
        if let Some(rule) = rule {
            answer["rule"] = rule.json();
        }
        return terminal.json(&answer, true);
    }
    let text: String = match chosen {
        None => listed.iter().map(|code| format_code_line(code)).collect(),
        Some(chosen) => {
            let first = rule.map(|rule| {
                let none =
                    if chosen.is_empty() { "`check` has no finding for this rule.\n" } else { "" };
                wrap_lines(&rule.format_page()) + none
            });
            let pages = chosen.iter().map(|code| format_code_page(code, rule.is_none()));
            let pages: Vec<String> = first.into_iter().chain(pages).collect();
            pages.join("\n")
        }
    };
    terminal.print(&text)
}

/// Returns the name of the severity of a code, or `only with --strict` if it has none by default.
fn format_severity(code: &Code) -> &'static str {
    code.severity.map_or("only with --strict", Severity::name)
}

/// Formats a code as a line of the list of codes: name, severity, requirement and advice.
fn format_code_line(code: &Code) -> String {
    format!(
        "{:34} {:9} {:10} {}\n",
        code.name,
        code.severity.map_or("strict", Severity::name),
        code.requirement,
        code.help
    )
}

/// Formats the explanation of a code. `with_rule` adds the text of the rule that the code checks.
fn format_code_page(code: &Code, with_rule: bool) -> String {
    let mut text = format!("{}: {}\n\n", code.name, format_severity(code));
    text += &wrap_lines(code.about);
    text += &format!("\nAdvice: {}.\n", code.help.trim_end_matches('.'));
    if let Some(requirement) = find_requirement(code).filter(|_| with_rule) {
        text += &match rules::find_rule(requirement) {
            Some(rule) => wrap_lines(&rule.format_page()),
            None => format!("Rule: {requirement}.\n"),
        };
    }
    text += match code.reference {
        Reference::Refuses => "The checker of the onnx package also rejects the model.\n",
        Reference::RefusesInFull => {
            "The checker of the onnx package rejects the model only with full_check=True; `check --like-onnx --full` does the same.\n"
        }
        Reference::Accepts => "The checker of the onnx package accepts the model.\n",
    };
    text
}

/// Breaks each line of `text` so that it has at most 100 characters.
fn wrap_lines(text: &str) -> String {
    text.lines().map(wrap_line).collect()
}

/// Breaks `text` between words so that each line has at most 100 characters.
fn wrap_line(text: &str) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length > 0 && length + 1 + word.chars().count() > 100 {
            lines.push('\n');
            length = 0;
        }
        if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += word.chars().count();
    }
    lines + "\n"
}
