//! Tests over all files of `tests/check`: every code of the checker has an example, and SARIF logs
//! name rules and places.

use std::fs;
use std::process::Command;

use crate::runner;
use libtest_mimic::{Failed, Trial};
use sardonyx::tool::CODES;

const DIRECTORY: &str = "tests/check";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("check: every_code_has_an_example", every_code),
        Trial::test("check: sarif_names_rules_and_places", sarif),
        Trial::test("check: sarif_reports_failures", sarif_of_failures),
    ]
}

/// Checks that results in SARIF name a rule of the log, its level, the file, and the place in the
/// model.
fn sarif() -> Result<(), Failed> {
    let file = runner::root().join(DIRECTORY).join("graph/undefined_value.onnxtxt");
    let output = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
        .args(["check", "--format", "sarif"])
        .arg(&file)
        .output()?;
    assert_eq!(output.status.code(), Some(1));
    let log: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), CODES.len());
    let results = run["results"].as_array().unwrap();
    let found = results.iter().find(|result| result["ruleId"] == "undefined-value").unwrap();
    assert_eq!(found["level"], "error");
    let location = &found["locations"][0];
    let uri = location["physicalLocation"]["artifactLocation"]["uri"].as_str();
    assert!(uri.unwrap().ends_with("graph/undefined_value.onnxtxt"));
    let place = location["logicalLocations"][0]["fullyQualifiedName"].as_str();
    assert_eq!(place, Some("graph.node[0].input[0]"));
    let region = &location["physicalLocation"]["region"];
    let line = region["startLine"].as_u64().unwrap();
    let text = fs::read_to_string(&file)?;
    let line = text.lines().nth(usize::try_from(line)? - 1).unwrap();
    let column = usize::try_from(region["startColumn"].as_u64().unwrap())?;
    let quoted = found["message"]["text"].as_str().unwrap();
    let name: String = line.chars().skip(column - 1).take_while(|c| c.is_alphanumeric()).collect();
    assert!(!name.is_empty() && quoted.contains(&name), "{line}: {quoted}");
    let output = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
        .args(["check", "--json"])
        .arg(&file)
        .output()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let findings = answer["files"][0]["findings"].as_array().unwrap();
    let same = findings.iter().find(|found| found["code"] == "undefined-value").unwrap();
    assert_eq!(same["line"], region["startLine"]);
    assert_eq!(same["column"], region["startColumn"]);
    for result in results {
        assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]));
    }
    Ok(())
}

/// Checks the SARIF log of a command that failed: the run is marked as not successful and names the
/// failure, with the file if there is one. The message for people stays on stderr.
fn sarif_of_failures() -> Result<(), Failed> {
    let directory = std::env::temp_dir().join(format!("sardonyx-sarif-{}", std::process::id()));
    fs::create_dir_all(&directory)?;
    let damaged = directory.join("damaged.onnx");
    fs::write(&damaged, [0x08, 0x0a, 0x3a, 0x7f, 0x01])?;
    let text = directory.join("text.onnxtxt");
    fs::write(&text, "<ir_version: 10>\ng (float[N] x => () {}\n")?;
    let (damaged, text) = (damaged.to_str().unwrap(), text.to_str().unwrap());
    let missing = format!("{damaged}.not");
    // Arguments, the code of the failure, and the file that the log names.
    let rows: [(&[&str], &str, Option<&str>); 8] = [
        (&["--allow", "no-such-code", damaged], "usage", None),
        (&["--deny", "no-such-code", damaged], "usage", None),
        (&["--opset-file", &missing, damaged], "io", None),
        (&["-", "-"], "usage", None),
        (&["--no-such-flag", damaged], "usage", None),
        (&[&missing], "io", Some(&missing)),
        (&[damaged], "format", Some(damaged)),
        (&[text], "syntax", Some(text)),
    ];
    for (args, code, file) in rows {
        let output = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
            .args(["check", "--format", "sarif"])
            .args(args)
            .output()?;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let prose = String::from_utf8(output.stderr)?;
        assert!(prose.contains("error: "), "{args:?}: {prose}");
        let log: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(log["version"], "2.1.0", "{args:?}");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "sardonyx", "{args:?}");
        assert_eq!(run["results"], serde_json::json!([]), "{args:?}");
        let invocation = &run["invocations"][0];
        assert_eq!(invocation["executionSuccessful"], false, "{args:?}");
        let notifications = invocation["toolExecutionNotifications"].as_array().unwrap();
        assert!(!notifications.is_empty(), "{args:?}");
        for notification in notifications {
            assert_eq!(notification["level"], "error", "{args:?}");
            assert_eq!(notification["descriptor"]["id"], code, "{args:?}");
            let message = notification["message"]["text"].as_str().unwrap();
            assert!(!message.is_empty(), "{args:?}");
            let place = &notification["locations"][0]["physicalLocation"];
            match file {
                Some(file) => assert_eq!(place["artifactLocation"]["uri"], file, "{args:?}"),
                None => assert!(notification["locations"].is_null(), "{args:?}"),
            }
            assert_eq!(place["region"].is_object(), code == "syntax", "{args:?}");
        }
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Codes that `check` never reports, as they belong to other commands.
pub(crate) const OF_OTHER_JOBS: &[&str] =
    &["malformed-node", "no-exact-upgrade", "no-exact-conversion", "no-gradient"];

/// Codes of models that are too large for a test file. `crates/passes/src/check/tests.rs` and
/// `crates/sardonyx/tests/infer.rs` cover them.
pub(crate) const OF_LARGE_MODELS: &[&str] =
    &["too-many-functions", "calls-too-deep", "too-much-to-infer"];

/// Checks that exactly the codes without an exception above occur in the answers.
fn every_code() -> Result<(), Failed> {
    let files = runner::cases(&runner::root().join(DIRECTORY), &["out"]);
    let answers: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let missing: Vec<&str> = CODES
        .iter()
        .map(|code| code.name)
        .filter(|code| {
            let is_exception = OF_OTHER_JOBS.contains(code) || OF_LARGE_MODELS.contains(code);
            let marker = format!("[{code}]: ");
            answers.iter().any(|answer| answer.contains(&marker)) == is_exception
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the files of {DIRECTORY} lack an example of these codes, or have one of a code that is listed as an exception: {}",
        missing.join(", ")
    )
    .into())
}
