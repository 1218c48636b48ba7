//! `sardonyx parse`: a model of text.

use std::io::{self, Read};

use sardonyx::check::{self, Severity};
use sardonyx::text::{self, Diagnostic};
use sardonyx::{ErrorKind, Model, OpenOptions, SaveOptions, Weights};
use serde_json::json;

use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, saving};

/// Make a model of text
///
/// Everything that is wrong with the text is listed, each with its line. Also looks at what the text says: names that
/// nothing defines, cycles, operators used in a way that they do not have.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    /// Write the model whatever it says
    #[arg(long)]
    no_check: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning gets a new number.
const SCHEMA: &str = "sardonyx.parse/1";

pub(crate) fn parse(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let (model, warnings, text) = read(&args.model)?;
    if !warnings.is_empty() {
        terminal.remark(&text::render(&text, &args.model.name(), &warnings));
    }
    if !args.no_check {
        let report = model.check(&check::Options::new().types(true).without_files(true));
        if report.errors > 0 {
            let errors = report.findings.iter();
            let errors = errors.filter(|found| found.severity == Severity::Error);
            let name = args.model.name();
            for found in errors {
                terminal.remark(&(check::render(&model, found, &name) + "\n"));
            }
            let count = usize::try_from(report.errors).unwrap_or(usize::MAX);
            let failure = Failure::new(format!(
                "{name}: the model has {}",
                crate::human::count(count, "error")
            ));
            let failure = failure.code(ErrorKind::Invalid);
            terminal.report(&failure.help("--no-check writes it as it is"));
            return Ok(Verdict::Findings);
        }
    }
    let target = args.saving.target(&args.model, &model)?;
    let options = SaveOptions::new();
    let saved = args.saving.save(
        &args.model,
        &model,
        options,
        Weights::Keep,
        target,
        terminal,
    )?;
    if args.saving.json {
        let warnings: Vec<&str> = warnings
            .iter()
            .map(|found| found.message.as_str())
            .collect();
        let answer = json!({
            "schema": SCHEMA,
            "text": args.model.name(),
            "warnings": warnings,
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
    } else {
        saved.say(terminal);
    }
    Ok(Verdict::Fine)
}

/// The model, warnings about the text, and the text.
fn read(arg: &ModelArg) -> Result<(Model, Vec<Diagnostic>, Vec<u8>), Failure> {
    let options = arg.limits.apply(OpenOptions::new());
    if arg.is_stdin() {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        let (model, warnings) = text::read(bytes.clone(), &options)?;
        return Ok((model, warnings, bytes));
    }
    let (model, warnings) = text::open(&arg.path, &options)?;
    let bytes = match warnings.is_empty() {
        true => Vec::new(),
        false => crate::files::read(&arg.path)?.as_slice().to_vec(),
    };
    Ok((model, warnings, bytes))
}
