//! What stands against changing a model, where a command gives all of it at once.

use sardonyx::{Model, check};
use serde_json::{Value, json};

use crate::Verdict;
use crate::failure::Failure;
use crate::human::count;
use crate::terminal::Terminal;

/// Tells what stands against changing a model. `answer` is the JSON answer without it, if that is
/// asked for.
pub(crate) fn refused(
    (model, name): (&Model, &str),
    findings: &[check::Finding],
    answer: Option<Value>,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    if let Some(mut answer) = answer {
        let refusals: Vec<Value> =
            findings.iter().map(|found| crate::check::finding((found, None))).collect();
        answer["refusals"] = json!(refusals);
        terminal.json(&answer, true)?;
    } else {
        let renderings = findings.iter().map(|found| model.render_finding(found, name));
        let renderings: String = renderings.map(|text| text + "\n\n").collect();
        let what = count(findings.len(), "refusal");
        terminal.print(&format!("{renderings}{name}: {what}, nothing was written\n"))?;
    }
    Ok(Verdict::Findings)
}
