//! Results of edits with errors that the input model does not have.

use std::collections::BTreeSet;

use sardonyx::SaveOptions;
use sardonyx::edit::InvalidResult;
use sardonyx::io::Weights;
use sardonyx::tool::edits::{Edit, NewError};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::saving;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Options for a result that is invalid.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Write the new model even if it has errors that MODEL does not have, so that the bug can be
    /// reported. The exit code is 1 all the same
    #[arg(long)]
    keep_invalid: bool,
}

impl Args {
    /// Makes the report of a command whose JSON answer has the name of its schema and the model.
    pub(crate) fn make_command<'a>(
        &'a self,
        arg: &'a ModelArg,
        saving: &'a saving::Args,
        schema: &str,
    ) -> Command<'a> {
        let answer = json!({"schema": schema, "model": arg.name()});
        Command { arg, saving, invalid: self, answer }
    }
}

/// Command that produced an invalid model, with the data to report the errors.
pub(crate) struct Command<'a> {
    arg: &'a ModelArg,
    saving: &'a saving::Args,
    invalid: &'a Args,
    /// JSON answer of the command, without the errors and the written files.
    answer: Value,
}

impl Command<'_> {
    /// Replaces the JSON answer, which lacks the errors and the written files.
    pub(crate) fn with_answer(self, answer: Value) -> Self {
        Command { answer, ..self }
    }

    /// Reports the errors of the edited model that the input model does not have. With
    /// `--keep-invalid`, writes the edited model to `target`, which is `None` if the command writes
    /// no model.
    pub(crate) fn finish(
        self,
        result: InvalidResult,
        target: Option<saving::Target>,
        terminal: &Terminal,
    ) -> Result<Verdict, Failure> {
        let errors = result.errors().clone();
        let renderings: Vec<String> =
            errors.listed.iter().map(|error| render_error(&result, error)).collect();
        let mut saved = None;
        if let Some(target) = target.filter(|_| self.invalid.keep_invalid) {
            let options = SaveOptions::new();
            let model = result.model();
            let keep = Weights::Keep;
            saved = Some(self.saving.save(self.arg, model, options, keep, target, terminal)?);
        }
        if self.saving.json {
            let mut answer = self.answer;
            answer["invalid"] = json!({
                "job": errors.job.name(),
                "errors": errors.listed.iter().map(error_to_json).collect::<Vec<_>>(),
                "not_listed": errors.more,
            });
            answer["saved"] = saved.map_or(Value::Null, |saved| saved.json());
            terminal.json(&answer, true)?;
            return Ok(Verdict::Findings);
        }
        let total = errors.listed.len() + usize::try_from(errors.more).unwrap_or(usize::MAX);
        let name = self.arg.name();
        let fact = format!(
            "{} made a model with {} that {name} does not have",
            errors.job,
            format_count(total, "error")
        );
        let end = match saved {
            Some(_) => "the invalid model was written",
            None => "nothing was written; --keep-invalid writes the model for a bug report",
        };
        terminal.print(&format!("{}{name}: {fact}; {end}\n", renderings.concat()))?;
        saved.iter().for_each(|saved| saved.print(terminal));
        Ok(Verdict::Findings)
    }
}

/// Formats an error of the edited model, with the node of the input model that it originates from.
fn render_error(result: &InvalidResult, error: &NewError) -> String {
    let job = result.errors().job;
    let mut text = result.model().render_finding(&error.finding, &format!("result of {job}"));
    if let (Some(origin), Some(operator)) = (&error.origin, &error.operator) {
        text += &format!("\n   = from: {origin} of the input, operator {operator}");
    }
    text + "\n\n"
}

/// Converts an error of the edited model to JSON, with its origin in the input model.
fn error_to_json(error: &NewError) -> Value {
    let mut found = crate::check::finding_to_json(&error.finding, None);
    found["origin"] = match (&error.origin, &error.operator) {
        (Some(origin), Some(operator)) => {
            json!({"place": origin.words, "path": origin.path, "operator": operator})
        }
        _ => Value::Null,
    };
    found
}

/// Describes in JSON which rules are checked after `edits`: all rules, or the names of their
/// finding codes.
pub(crate) fn describe_checked_rules(edits: &[Edit]) -> Value {
    let everything = edits.iter().any(|edit| edit.changes_operators());
    let rules = edits.iter().filter(|_| !everything).flat_map(|edit| edit.rules());
    let rules: BTreeSet<&str> = rules.map(|code| code.name).collect();
    json!({"everything": everything, "rules": rules})
}
