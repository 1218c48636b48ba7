//! `sardonyx scan`: checks whether files are safe to open. Opens only the models, and the data
//! files in their directories.

use std::io;
use std::path::PathBuf;

use sardonyx::check::{ScanFinding, ScanOptions, ScanReport};
use sardonyx::io::ReadLimits;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{format_bytes, format_count, parse_bytes};
use crate::model_arg::is_stdin;
use crate::objects::merge_objects;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Scan models for what makes them unsafe to open: damage, unsafe paths, decompression bombs,
/// hidden bytes, foreign code
///
/// Opens only the models; of data files in their directories only the sizes are read. Exit code 0:
/// no findings, 1: findings, 2: a model cannot be read. Notes do not count as findings, and
/// warnings only with --strict.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX files, or - for stdin
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Count warnings as findings
    #[arg(long)]
    strict: bool,
    /// Read data files and compare them with the checksums in the model
    #[arg(long)]
    checksums: bool,
    /// Directory of the data files, if not that of the model
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<PathBuf>,
    /// Largest tensor, in elements, that a node without inputs may create
    #[arg(long, value_name = "N", default_value_t = 1 << 28)]
    max_elements: u64,
    /// Maximum nesting depth of messages
    #[arg(long, value_name = "N", default_value_t = ReadLimits::default().depth)]
    max_depth: u32,
    /// Maximum number of messages in a file
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    max_messages: u64,
    /// Maximum number of bytes to read from stdin or a pipe
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = parse_bytes)]
    max_bytes: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.scan/1";

/// Runs `sardonyx scan`. Errors are findings, with `--strict` warnings too.
pub(crate) fn scan(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    if args.models.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::new("stdin can be given only once as a model"));
    }
    let mut files = Vec::new();
    let mut failed = None;
    let mut verdict = Verdict::Fine;
    for model in &args.models {
        let name = model.display().to_string();
        let report = match scan_one(model, args) {
            Ok(report) => report,
            Err(error) => {
                let failure = Failure::from(error);
                files.push(json!({
                    "model": name,
                    "verdict": "unreadable",
                    "error": failure.message(),
                    "failure": failure.json(),
                }));
                // The last failure is the result of the command; earlier ones are printed here.
                if let Some(earlier) = failed.replace(failure) {
                    terminal.print_failure(&earlier);
                }
                continue;
            }
        };
        if has_findings(&report, args.strict) {
            verdict = Verdict::Findings;
        }
        if args.json {
            files.push(as_json(&name, &report, args.strict))
        } else {
            terminal.print(&as_text(&name, &report, args.strict))?
        }
    }
    if args.json {
        let answer = json!({"schema": SCHEMA, "strict": args.strict, "files": files});
        terminal.json(&answer, true)?;
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(verdict),
    }
}

/// Scans a model file, or the model on stdin, within the limits of the options.
fn scan_one(model: &PathBuf, args: &Args) -> Result<ScanReport, sardonyx::Error> {
    let limits = ReadLimits { depth: args.max_depth, ..ReadLimits::default() };
    let mut options = ScanOptions::new()
        .checksums(args.checksums)
        .max_elements(args.max_elements)
        .max_bytes(args.max_bytes)
        .limits(limits)
        .max_messages(args.max_messages);
    if let Some(directory) = &args.data_dir {
        options = options.directory(directory);
    }
    if is_stdin(model) { options.scan_reader(io::stdin().lock()) } else { options.scan(model) }
}

/// Whether the report has errors, or with `strict` warnings.
fn has_findings(report: &ScanReport, strict: bool) -> bool {
    report.errors > 0 || (strict && report.warnings > 0)
}

/// Returns the verdict on a file for JSON answers: `findings`, `warnings` or `fine`.
fn to_verdict_word(report: &ScanReport, strict: bool) -> &'static str {
    match (has_findings(report, strict), report.warnings) {
        (true, _) => "findings",
        (false, 0) => "fine",
        (false, _) => "warnings",
    }
}

/// Formats the report on a file as text.
fn as_text(name: &str, report: &ScanReport, strict: bool) -> String {
    let mut text = format!("{name}: {}\n", format_facts(report));
    for (i, found) in report.findings.iter().enumerate() {
        text += &format!("  {}\n", format_finding(found));
        // Findings with the same code are adjacent and share their advice, which follows the last.
        let next = report.findings.get(i + 1);
        if next.is_none_or(|next| next.code != found.code) {
            let requirement = found.requirement.map(|id| format!(" ({id})"));
            text += &format!("    help: {}{}\n", found.help, requirement.unwrap_or_default());
        }
    }
    text + &format!("  {}\n", format_verdict(report, strict))
}

/// Formats a finding as a line: severity, code, place in the file and message.
fn format_finding(found: &ScanFinding) -> String {
    let head = format!("{}[{}]", found.severity, found.code);
    if found.place.is_empty() {
        format!("{head} {}", found.message)
    } else {
        format!("{head} {}: {}", found.place, found.message)
    }
}

/// Formats the file size, and the numbers of nodes, tensors and data files.
fn format_facts(report: &ScanReport) -> String {
    let facts = &report.facts;
    let mut parts = vec![format_bytes(facts.size)];
    if facts.graphs > 0 {
        parts.push(format_count_u64(facts.nodes, "node"));
        parts.push(format_count_u64(facts.tensors, "tensor"));
    }
    if !facts.data_files.is_empty() {
        let files = format_count(facts.data_files.len(), "data file");
        // Files that are missing or were not looked up have no size.
        let sized = facts.data_files.iter().any(|file| file.size.is_some());
        parts.push(if sized {
            format!("{files} of {}", format_bytes(facts.outside_present))
        } else {
            files
        });
    }
    parts.join(", ")
}

/// Formats a number with its noun in the singular or plural, such as `2 nodes`.
fn format_count_u64(number: u64, what: &str) -> String {
    format_count(usize::try_from(number).unwrap_or(usize::MAX), what)
}

/// Formats the verdict on a file with the numbers of errors, warnings and notes.
fn format_verdict(report: &ScanReport, strict: bool) -> String {
    let counts: Vec<String> =
        [(report.errors, "error"), (report.warnings, "warning"), (report.notes, "note")]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format_count_u64(n, what))
            .collect();
    let verdict = match to_verdict_word(report, strict) {
        "findings" if report.errors > 0 => "do not open this file",
        "fine" => "no findings that make the file unsafe to open",
        _ => "review the findings before opening this file",
    };
    if counts.is_empty() {
        verdict.to_string()
    } else {
        format!("{verdict}: {}", counts.join(", "))
    }
}

/// Converts the report on a file to JSON.
fn as_json(name: &str, report: &ScanReport, strict: bool) -> Value {
    merge_objects(json!({"model": name, "verdict": to_verdict_word(report, strict)}), json!(report))
}
