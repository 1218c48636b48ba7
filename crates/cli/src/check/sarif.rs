//! Findings as SARIF 2.1.0, the form that code hosts and editors take findings of tools in (OASIS
//! standard, 2020).

use sardonyx::check::{Code, Finding, Severity};
use sardonyx::text::Position;
use sardonyx::tool::CODES;
use serde_json::{Value, json};

use super::Checked;
use crate::failure::Failure;

/// Where the codes are described.
const HELP: &str = "https://github.com/sardonyx/sardonyx/blob/main/docs/findings.md";

/// The log of a command that failed before it looked at a file.
pub(crate) fn failed(failure: &Failure) -> Value {
    run(Vec::new(), notifications(failure, None))
}

/// The log of what was found in files.
pub(super) fn log(all: &[Checked]) -> Value {
    let mut results = Vec::new();
    let mut failures = Vec::new();
    for checked in all {
        match &checked.result {
            Ok(found) => {
                let findings = found.findings();
                results.extend(
                    findings.map(|(found, position)| result(found, position, &checked.name)),
                );
            }
            Err(failure) => failures.extend(notifications(failure, Some(&checked.name))),
        }
    }
    run(results, failures)
}

/// What a failure says: each problem of a text with its place, or the failure as a whole.
fn notifications(failure: &Failure, file: Option<&str>) -> Vec<Value> {
    let mut told: Vec<(&str, Option<Position>)> = failure.diagnostics().collect();
    if told.is_empty() {
        told.push((failure.message(), None));
    }
    let notification = |(message, position): (&str, Option<Position>)| {
        let mut notification = json!({
            "level": "error",
            "descriptor": {"id": failure.code_name()},
            "message": {"text": message},
        });
        if let Some(file) = file {
            notification["locations"] = json!([location(file, None, position)]);
        }
        notification
    };
    told.into_iter().map(notification).collect()
}

/// A log with one run.
fn run(results: Vec<Value>, failures: Vec<Value>) -> Value {
    let rules: Vec<Value> = CODES.iter().map(|code| rule(code)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "sardonyx",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": "https://github.com/sardonyx/sardonyx",
                "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": failures.is_empty(),
                "toolExecutionNotifications": failures,
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(code: &Code) -> Value {
    json!({
        "id": code.name,
        "shortDescription": {"text": code.help},
        "fullDescription": {"text": code.about},
        "helpUri": format!("{HELP}#{}", code.name),
        "defaultConfiguration": {
            "level": code.severity.map_or("none", Severity::name),
            "enabled": code.severity.is_some(),
        },
        "properties": {"requirement": code.requirement},
    })
}

fn result(found: &Finding, position: Option<Position>, file: &str) -> Value {
    let index = CODES.iter().position(|code| code.name == found.code.name);
    let (place, advice) = (&found.place.words, found.advice.trim_end_matches('.'));
    json!({
        "ruleId": found.code.name,
        "ruleIndex": index,
        "level": found.severity.name(),
        // The place in words as well: few readers of the form show logical locations.
        "message": {"text": format!("{place}: {}. {advice}.", found.fact)},
        "locations": [location(file, Some(found), position)],
    })
}

fn location(file: &str, found: Option<&Finding>, position: Option<Position>) -> Value {
    let mut location = json!({
        "physicalLocation": {"artifactLocation": {"uri": uri(file)}},
    });
    if let Some(Position { line, column }) = position {
        location["physicalLocation"]["region"] = json!({"startLine": line, "startColumn": column});
    }
    if let Some(found) = found {
        location["logicalLocations"] = json!([{
            "name": found.place.words,
            "fullyQualifiedName": found.place.path,
            "kind": "element",
        }]);
    }
    location
}

/// A path as a relative reference: what has a meaning in addresses is escaped.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.replace('\\', "/").bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into());
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("models/a b.onnx"), "models/a%20b.onnx");
        assert_eq!(uri("é"), "%C3%A9");
    }
}
