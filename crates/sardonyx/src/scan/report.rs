//! What a scan says, and how findings are gathered without growing with the file.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use sardonyx_model::Model;
use sardonyx_passes::CheckReport;
use sardonyx_passes::Severity;

use super::codes::{self, Code};
use super::places::of_spot;
use crate::inspect::OperatorSet;

/// What a scan found out about a file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanReport {
    /// What the file holds, as far as it could be read.
    pub facts: ScanFacts,
    /// What was found, the worst first, findings of one code together. Of each code only the first
    /// few are listed; how many more there are is said in one finding after them.
    pub findings: Vec<ScanFinding>,
    /// How many errors there are, those included that are not listed.
    pub errors: u64,
    /// How many warnings there are, likewise.
    pub warnings: u64,
    /// How many notes there are, likewise.
    pub notes: u64,
}

/// What a scanned file holds. All numbers are those of the file; none is a promise that the model
/// is right.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanFacts {
    /// Size of the model file in bytes.
    pub size: u64,
    /// Version of the file format.
    pub ir_version: Option<i64>,
    /// Imported operator sets.
    pub opsets: Vec<OperatorSet>,
    /// The tool that made the model, as it says; may be cut.
    pub producer_name: String,
    /// The version of that tool; may be cut.
    pub producer_version: String,
    /// Graphs: the main one, subgraphs, those of training steps, bodies of functions.
    pub graphs: u64,
    /// Nodes in all graphs.
    pub nodes: u64,
    /// Functions that the model brings along.
    pub functions: u64,
    /// Stored tensors, wherever they stand.
    pub tensors: u64,
    /// Messages and elements of lists of texts in the file.
    pub messages: u64,
    /// Levels of nested messages.
    pub depth: u32,
    /// Bytes of values of tensors in the file.
    pub inside_bytes: u64,
    /// Bytes of values of tensors in data files, as the tensors claim; a range that two tensors
    /// share counts twice.
    pub outside_claimed: u64,
    /// Bytes of the data files that are there.
    pub outside_present: u64,
    /// The data files that tensors name.
    pub data_files: Vec<ScannedFile>,
    /// The domains of operators that nodes use.
    pub domains: Vec<ScannedDomain>,
}

/// A data file that tensors name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedFile {
    /// Its location, as the model says it; may be cut.
    pub location: String,
    /// Its size in bytes; `None` if it is not there or was not looked at.
    pub size: Option<u64>,
    /// How many tensors name it.
    pub tensors: u64,
}

/// A domain of operators that nodes use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedDomain {
    /// Domain; empty for `ai.onnx`. May be cut.
    pub domain: String,
    /// How many different operators.
    pub operators: u64,
    /// How many nodes.
    pub nodes: u64,
}

/// One thing that a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanFinding {
    /// Stable name of the kind of finding, such as `location-escapes`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where: a field with its byte, a node, a tensor, or a data file. Empty if it is the file as a
    /// whole.
    pub place: String,
    /// The fact.
    pub message: String,
    /// What to do about it, or why it matters.
    pub help: &'static str,
    /// The requirement of the standard that is violated, if one is.
    pub requirement: Option<&'static str>,
}

impl fmt::Display for ScanFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        if self.place.is_empty() { Ok(()) } else { write!(f, " (in {})", self.place) }
    }
}

impl ScanReport {
    /// The worst that was found; `None` if there is nothing to say.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Findings while they are gathered. Of each code a few are kept, the rest is counted: a file
/// cannot make the report large.
#[derive(Debug)]
pub(super) struct Findings {
    per_code: usize,
    kept: Vec<ScanFinding>,
    /// How often each code was found, and when it was found first.
    totals: HashMap<&'static str, Total>,
}

#[derive(Debug)]
struct Total {
    code: &'static Code,
    count: u64,
    rank: usize,
}

impl Findings {
    pub(super) fn new(per_code: usize) -> Findings {
        Findings { per_code: per_code.max(1), kept: Vec::new(), totals: HashMap::new() }
    }

    /// Adds a finding. Place and message are only put together if it is kept.
    pub(super) fn add(&mut self, code: &'static Code, words: impl FnOnce() -> (String, String)) {
        if self.counts(code) {
            let (place, message) = words();
            self.kept.push(finding(code, place, message));
        }
    }

    /// Counts a finding and returns whether it is kept.
    #[inline(never)]
    fn counts(&mut self, code: &'static Code) -> bool {
        let rank = self.totals.len();
        let total = self.totals.entry(code.name).or_insert(Total { code, count: 0, rank });
        total.count += 1;
        total.count <= self.per_code as u64
    }

    /// Adds what the checker found and what counts here.
    pub(super) fn add_checked(&mut self, model: &Model, report: &CheckReport) {
        for finding in &report.findings {
            if let Some(code) = codes::of_checker(finding.code) {
                let words = || (of_spot(model, &finding.place), finding.fact.clone());
                self.add(code, words);
            }
        }
        for (name, more) in &report.more {
            let code = sardonyx_passes::check::code(name).and_then(codes::of_checker);
            if let Some(total) = code.and_then(|code| self.totals.get_mut(code.name)) {
                total.count += more;
            }
        }
    }

    /// Into the report, in order.
    pub(super) fn report(mut self, facts: ScanFacts) -> ScanReport {
        let mut report = ScanReport { facts, ..ScanReport::default() };
        for total in self.totals.values() {
            *match total.code.severity {
                Severity::Error => &mut report.errors,
                Severity::Warning => &mut report.warnings,
                Severity::Note => &mut report.notes,
            } += total.count;
            let more = total.count.saturating_sub(self.per_code as u64);
            if more > 0 {
                let message = format!("and {more} more of this kind");
                self.kept.push(finding(total.code, String::new(), message));
            }
        }
        // Stable: findings of one code stay in the order of the file, with the count of the rest
        // after them.
        self.kept.sort_by_key(|found| {
            let rank = self.totals.get(found.code).map_or(0, |total| total.rank);
            (Reverse(found.severity), rank)
        });
        report.findings = self.kept;
        report
    }
}

fn finding(code: &'static Code, place: String, message: String) -> ScanFinding {
    ScanFinding {
        code: code.name,
        severity: code.severity,
        place,
        message,
        help: code.help,
        requirement: Some(code.requirement).filter(|id| !id.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::codes;
    use super::*;

    #[test]
    fn the_rest_is_counted() {
        let mut findings = Findings::new(2);
        let words = |n: usize| move || (format!("place {n}"), "message".to_string());
        for n in 0..5 {
            findings.add(&codes::UNALIGNED, words(n));
            findings.add(&codes::CYCLE, words(n));
        }
        let report = findings.report(ScanFacts::default());
        assert_eq!((report.errors, report.warnings, report.notes), (5, 0, 5));
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert_eq!(lines[2], "error[cycle]: and 3 more of this kind");
        assert_eq!(lines[3], "note[unaligned]: message (in place 0)");
        assert_eq!(lines.len(), 6);
        assert_eq!(report.worst(), Some(Severity::Error));
    }
}
