//! Steps that `add-training` and `differentiate` share: saving the changed model and reporting it,
//! or reporting the operators that have no gradient.

use std::collections::BTreeMap;

use sardonyx::edit::EditError;
use sardonyx::io::Weights;
use sardonyx::{Model, SaveOptions};
use serde::Serialize;
use serde_json::json;

use crate::failure::Failure;
use crate::model_arg::ModelArg;
use crate::operator_name::qualified_name;
use crate::refused::report_refusals;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Arguments of a command that writes a changed model, such as `add-training`.
pub(crate) struct Command<'a> {
    /// Name and version of the schema of the JSON answer.
    pub(crate) schema: &'static str,
    pub(crate) arg: &'a ModelArg,
    pub(crate) saving: &'a saving::Args,
    pub(crate) invalid: &'a invalid::Args,
}

impl Command<'_> {
    /// Saves the changed model and reports the changes in JSON or text. If `result` is an error,
    /// reports why the model was not changed.
    pub(crate) fn finish<R: Serialize>(
        &self,
        model: &Model,
        target: saving::Target,
        result: Result<(Model, R), EditError>,
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
            Err(EditError::NotDifferentiable(findings)) => {
                let answer = saving.json.then_some(answer);
                return report_refusals(model, &name, &findings, answer, terminal);
            }
            Err(EditError::Invalid(result)) => {
                let command = invalid.make_command(arg, saving, schema).with_answer(answer);
                return command.finish(*result, Some(target), terminal);
            }
            Err(error) => return Err(Failure::new(error.to_string()).at(name)),
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
            saved.print(terminal);
        }
        Ok(Verdict::Fine)
    }
}

/// Formats side effects of a change, one on each line: a raised version of `ai.onnx`, and operators
/// that were replaced by their function bodies. Empty if there are none.
pub(crate) fn format_side_effects(
    from: u32,
    to: u32,
    expansions: &BTreeMap<(String, String), usize>,
) -> String {
    let mut text = String::new();
    if from != to {
        text += &format!("\nai.onnx: {from} → {to}, the oldest version with the operators needed");
    }
    for ((domain, name), nodes) in expansions {
        let name = qualified_name(domain, name);
        text += &format!("\nreplaced by its function body: {nodes} {name}");
    }
    text
}
