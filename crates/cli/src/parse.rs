//! `sardonyx parse`: conversion of ONNX text to a model.

use sardonyx::check::{Finding, Severity};
use sardonyx::io::{Access, ModelFormat, Weights};
use sardonyx::{ErrorKind, Model, OpenOptions, SaveOptions, check, tool};
use serde_json::json;

use crate::data_files::{DataFileStatus, DataFiles};
use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::saving;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Convert ONNX text to a model
///
/// All syntax errors are listed with their lines; then nothing is written. Problems of the model,
/// such as undefined names, cycles or invalid attributes, are listed as warnings, and the model is
/// written, so that every text written by `sardonyx print` can be read back.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    /// Write nothing and exit with 1 if the model breaks rules of the standard
    #[arg(long)]
    strict: bool,
    /// Do not check the model
    #[arg(long, conflicts_with = "strict")]
    no_check: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.parse/1";

/// Runs `sardonyx parse`. With `--strict`, errors of the model are findings, and no model is
/// written.
pub(crate) fn parse(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    // Read instead of mapped, because an editor may change a text while it is parsed.
    let options = OpenOptions::new().form(ModelFormat::Notation).access(Access::Read);
    let loaded = args.model.load(options)?;
    let (model, warnings) = (&loaded.model, &loaded.warnings);
    if let (Some(text), false) = (&loaded.text, warnings.is_empty()) {
        terminal.remark(&tool::render_diagnostics(text.as_slice(), &args.model.name(), warnings));
    }
    let name = args.model.name();
    let (findings, errors) =
        if args.no_check { (Vec::new(), 0) } else { find_errors(model, args.strict) };
    for found in &findings {
        terminal.remark(&(model.render_finding(found, &name) + "\n"));
    }
    if errors > 0 {
        let message = format!("{name}: the model has {}", format_count(errors, "error"));
        if args.strict {
            let help = "remove --strict to write the model in spite of its errors";
            let failure = Failure::new(message).code(ErrorKind::Invalid);
            terminal.report(&failure.help(help));
            return Ok(Verdict::Findings);
        }
        terminal.remark(&format!(
            "warning: {message}; it is written unchanged\nnote: --strict rejects it"
        ));
    }
    let target = args.saving.target(&args.model, model)?;
    let options = SaveOptions::new();
    let saved = args.saving.save(&args.model, model, options, Weights::Keep, target, terminal)?;
    let mut data = DataFiles::new(&args.model);
    for file in model.external_files() {
        if data.find(&file.location) == DataFileStatus::Missing {
            let (location, tensors) = (&file.location, format_count(file.tensors, "tensor"));
            terminal.remark(&format!(
                "warning: the data file '{location}' with the values of {tensors} is missing"
            ));
        }
    }
    if args.saving.json {
        let positions = loaded.positions(&findings);
        let findings = findings
            .iter()
            .zip(positions)
            .map(|(found, position)| crate::check::finding_to_json(found, position));
        let warnings: Vec<&str> = warnings.iter().map(|found| found.message.as_str()).collect();
        let answer = json!({
            "schema": SCHEMA,
            "text": name,
            "warnings": warnings,
            "findings": findings.collect::<Vec<_>>(),
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
    } else {
        saved.print(terminal);
    }
    Ok(Verdict::Fine)
}

/// Checks the model. Returns the listed errors, and the total number of errors, which may be
/// larger. Without `strict` the errors become warnings, as the model is written in spite of them.
fn find_errors(model: &Model, strict: bool) -> (Vec<Finding>, usize) {
    let options = check::CheckOptions::new().types(true).skip_data_files(true);
    let report = model.check(&options);
    let mut listed = report.findings;
    listed.retain(|found| found.severity == Severity::Error);
    if !strict {
        for found in &mut listed {
            found.severity = Severity::Warning;
        }
    }
    (listed, usize::try_from(report.errors).unwrap_or(usize::MAX))
}
