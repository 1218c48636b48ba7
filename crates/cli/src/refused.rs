//! Report of the refusals because of which a command does not change a model.

use sardonyx::{Model, check};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::format_count;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Prints the findings that keep a command from changing a model: as text, or with `--json` in the
/// member `refusals` of `answer`.
pub(crate) fn report_refusals(
    model: &Model,
    name: &str,
    findings: &[check::Finding],
    answer: Option<Value>,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    if let Some(mut answer) = answer {
        let refusals: Vec<Value> =
            findings.iter().map(|found| crate::check::finding_to_json(found, None)).collect();
        answer["refusals"] = json!(refusals);
        terminal.json(&answer, true)?;
    } else {
        let renderings = findings.iter().map(|found| model.render_finding(found, name));
        let renderings: String = renderings.map(|text| text + "\n\n").collect();
        let what = format_count(findings.len(), "refusal");
        terminal.print(&format!("{renderings}{name}: {what}, nothing was written\n"))?;
    }
    Ok(Verdict::Findings)
}
