//! Findings as SARIF 2.1.0, the form that code hosts and editors take findings of tools in (OASIS standard, 2020).

use sardonyx::check::{CODES, Code, Finding, Severity};
use sardonyx::text::Position;
use serde_json::{Value, json};

use super::Checked;

/// Where the codes are described.
const HELP: &str = "https://github.com/sardonyx/sardonyx/blob/main/docs/findings.md";

/// A log with one run.
pub(super) fn log(all: &[Checked]) -> Value {
    let rules: Vec<Value> = CODES.iter().map(|code| rule(code)).collect();
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
            Err(failure) => {
                let mut told: Vec<(&str, Option<Position>)> = failure.diagnostics().collect();
                if told.is_empty() {
                    told.push((failure.message(), None));
                }
                failures.extend(told.into_iter().map(|(message, position)| {
                    json!({
                        "level": "error",
                        "descriptor": {"id": failure.code_name()},
                        "message": {"text": message},
                        "locations": [location(&checked.name, None, position)],
                    })
                }));
            }
        }
    }
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
