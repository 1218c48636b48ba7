//! Property: any model can be checked. The number and the length of findings are bounded, and every
//! finding of a check for the findings that the `onnx` package has too is one of the usual check.

use std::collections::HashMap;

use sardonyx::Model;
use sardonyx::check::{CheckOptions, CheckReport, Severity};
use sardonyx::tool::{CODES, Reference};

/// Findings listed for each code.
const PER_CODE: usize = 3;

/// Longest text of a finding in bytes: names and lists in it are shortened.
const LONGEST: usize = 2 << 10;

/// Checks the bytes as a model, with the usual, the strict and the shared findings.
pub(crate) fn check(input: &[u8]) {
    let Ok(model) = Model::from_bytes(input.to_vec()) else {
        return;
    };
    let options = || CheckOptions::new().per_code(PER_CODE);
    let usual = model.check(&options());
    let strict = model.check(&options().strict(true).custom_domains(true));
    let shared = model.check(&options().like_onnx(true));
    for report in [&usual, &strict, &shared] {
        assert_bounded(&model, report, input.len());
    }
    let all = count_codes(&usual);
    for (code, count) in count_codes(&shared) {
        assert!(all.get(code) >= Some(&count), "{code}: {count}, {all:?}");
    }
    for found in &shared.findings {
        assert_eq!(found.code.reference, Reference::Refuses, "{}", found.code.name);
        assert_eq!(found.severity, Severity::Error, "{}", found.code.name);
    }
}

fn assert_bounded(model: &Model, report: &CheckReport, size: usize) {
    let total: u64 = count_codes(report).values().sum();
    assert_eq!(total, report.errors + report.warnings + report.notes);
    // A node takes two bytes and may break a few rules.
    assert!(total <= 100 + 10 * size as u64, "{total} findings");
    assert!(report.findings.len() <= 2 * PER_CODE * CODES.len());
    for found in &report.findings {
        let text = model.render_finding(found, "model");
        assert!(text.len() <= LONGEST, "{}", found.code.name);
    }
}

/// Counts the findings of each code, listed or not.
fn count_codes(report: &CheckReport) -> HashMap<&str, u64> {
    let mut totals = HashMap::new();
    for found in &report.findings {
        *totals.entry(found.code.name).or_default() += 1;
    }
    for (code, more) in &report.more {
        *totals.entry(*code).or_default() += more;
    }
    totals
}
