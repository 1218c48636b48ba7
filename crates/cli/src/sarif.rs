//! Findings in SARIF 2.1.0 (OASIS standard, 2020), the format in which code hosts and editors read
//! the findings of tools.

use sardonyx::check::{Code, Finding, Severity};
use sardonyx::text::Position;
use sardonyx::tool::CODES;
use serde_json::{Value, json};

use crate::failure::Failure;

/// URL of the page that explains the finding codes. The anchor of a code is its name.
const HELP: &str = "https://github.com/sardonyx/sardonyx/blob/main/docs/findings.md";

/// Builds the SARIF log of a command that failed before it read a file.
pub(crate) fn build_failure_log(failure: &Failure) -> Value {
    build_log(Vec::new(), build_notifications(failure, None))
}

/// Builds the SARIF log of a command: `results` are findings, `notifications` are failures to read
/// files.
pub(crate) fn build_log(results: Vec<Value>, notifications: Vec<Value>) -> Value {
    let rules: Vec<Value> = CODES.iter().map(|code| build_rule(code)).collect();
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
                "executionSuccessful": notifications.is_empty(),
                "toolExecutionNotifications": notifications,
            }],
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// Builds a SARIF notification for each syntax error in a text file, or one for the failure as a
/// whole.
pub(crate) fn build_notifications(failure: &Failure, file: Option<&str>) -> Vec<Value> {
    let mut problems: Vec<(&str, Option<Position>)> = failure.diagnostics().collect();
    if problems.is_empty() {
        problems.push((failure.message(), None));
    }
    let mut notifications = Vec::new();
    for (message, position) in problems {
        let mut notification = json!({
            "level": "error",
            "descriptor": {"id": failure.code_name()},
            "message": {"text": message},
        });
        if let Some(file) = file {
            notification["locations"] = json!([build_location(file, None, position)]);
        }
        notifications.push(notification);
    }
    notifications
}

/// Converts a finding code to a rule of the SARIF log.
fn build_rule(code: &Code) -> Value {
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

/// Converts a finding in the file at the path `file` to a result of the SARIF log.
pub(crate) fn build_result(found: &Finding, position: Option<Position>, file: &str) -> Value {
    let index = CODES.iter().position(|code| code.name == found.code.name);
    let (place, advice) = (&found.place.words, found.advice.trim_end_matches('.'));
    json!({
        "ruleId": found.code.name,
        "ruleIndex": index,
        "level": found.severity.name(),
        // Repeats the location in words, as few viewers show logical locations.
        "message": {"text": format!("{place}: {}. {advice}.", found.fact)},
        "locations": [build_location(file, Some(found), position)],
    })
}

/// Builds a SARIF location: the path of a file, a line and column in it, and the place of a finding
/// in the model.
fn build_location(file: &str, found: Option<&Finding>, position: Option<Position>) -> Value {
    let mut location = json!({
        "physicalLocation": {"artifactLocation": {"uri": to_uri(file)}},
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

/// Encodes a path as a relative URI reference: percent-encodes all bytes but unreserved
/// characters and slashes.
fn to_uri(path: &str) -> String {
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
    use super::to_uri;

    #[test]
    fn paths_become_references() {
        assert_eq!(to_uri("models/a b.onnx"), "models/a%20b.onnx");
        assert_eq!(to_uri("é"), "%C3%A9");
    }
}
