//! What `add-training` and `differentiate` have in common: a changed model and a report, or what
//! has no gradient.

use std::collections::BTreeMap;

use sardonyx::io::Weights;
use sardonyx::train::TrainingError;
use sardonyx::{Model, SaveOptions};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::info::qualified;
use crate::refused::refused;
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, invalid, saving};

/// A command that changes a model.
pub(crate) struct Command<'a> {
    /// The name and version of the form of its JSON answer.
    pub(crate) schema: &'static str,
    pub(crate) arg: &'a ModelArg,
    pub(crate) saving: &'a saving::Args,
    pub(crate) invalid: &'a invalid::Args,
}

impl Command<'_> {
    /// Saves the changed model and tells what was done, as JSON or as text, or why it was not.
    pub(crate) fn finish<R: Serialize>(
        &self,
        model: &Model,
        target: saving::Target,
        result: Result<(Model, R), TrainingError>,
        as_text: impl Fn(&R) -> String,
        terminal: &Terminal,
    ) -> Result<Verdict, Failure> {
        let Command { schema, arg, saving, invalid } = *self;
        let name = arg.name();
        let mut answer = json!({
            "schema": schema, "model": name, "report": null, "refusals": [], "saved": null,
        });
        let (mut changed, report) = match result {
            Ok(changed) => changed,
            Err(TrainingError::Option(message)) => return Err(Failure::new(message).at(name)),
            Err(TrainingError::Findings(findings)) => {
                let answer = saving.json.then_some(answer);
                return refused((model, &name), &findings, answer, terminal);
            }
            Err(TrainingError::Invalid(result)) => {
                let target = Some(target);
                let command = invalid::Command { arg, saving, invalid, target, answer };
                return command.finish(*result, terminal);
            }
        };
        changed.fill_producer();
        let options = SaveOptions::new();
        let saved = saving.save(arg, &changed, options, Weights::Keep, target, terminal)?;
        if saving.json {
            answer["report"] = json!(report);
            answer["saved"] = saved.json();
            terminal.json(&answer, true)?;
        } else {
            terminal.remark(&as_text(&report));
            saved.say(terminal);
        }
        Ok(Verdict::Fine)
    }
}

/// Lines on what else changed: the version of `ai.onnx`, and operators that became their functions.
pub(crate) fn notes(
    (from, to): (u32, u32),
    expansions: &BTreeMap<(String, String), usize>,
) -> String {
    let mut text = String::new();
    if from != to {
        text += &format!("\nai.onnx: {from} → {to}, the oldest version with the operators needed");
    }
    for ((domain, name), nodes) in expansions {
        let name = qualified(domain, name);
        text += &format!("\nreplaced by its function body: {nodes} {name}");
    }
    text
}
