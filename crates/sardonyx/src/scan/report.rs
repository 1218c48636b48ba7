//! Report of a scan, and the collector of findings, whose size does not grow with the file.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use sardonyx_model::Model;
use sardonyx_passes::CheckReport;
use sardonyx_passes::Severity;

use super::codes::{self, Code};
use super::places::spot_path;
use crate::inspect::OperatorSet;

/// Result of a security scan of a model file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanReport {
    /// Contents of the model file, as far as they could be read.
    pub facts: ScanFacts,
    /// Findings, the most severe first, grouped by code. At most
    /// [`findings_per_code`](super::ScanOptions::findings_per_code) findings of a code are listed;
    /// one more finding gives the number of unlisted findings.
    pub findings: Vec<ScanFinding>,
    /// Number of errors, including unlisted findings.
    pub errors: u64,
    /// Number of warnings, including unlisted findings.
    pub warnings: u64,
    /// Number of notes, including unlisted findings.
    pub notes: u64,
}

/// Contents of a scanned model file: versions, and numbers of messages, graphs, nodes and bytes.
/// They do not imply that the model is valid.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanFacts {
    /// Size of the model file in bytes.
    pub size: u64,
    /// IR version of the model; `None` if the file has none.
    pub ir_version: Option<i64>,
    /// Operator sets that the model imports, at most 1000.
    pub opsets: Vec<OperatorSet>,
    /// Name of the tool that made the model, from the file's `producer_name`; truncated if long.
    pub producer_name: String,
    /// Version of the tool that made the model, from the file's `producer_version`; truncated if
    /// long.
    pub producer_version: String,
    /// Number of graphs: the main graph, subgraphs of nodes, training graphs and function bodies.
    pub graphs: u64,
    /// Number of nodes in all graphs.
    pub nodes: u64,
    /// Number of functions that the model defines.
    pub functions: u64,
    /// Number of stored tensors: initializers, and tensors in attributes and attribute defaults.
    pub tensors: u64,
    /// Number of protobuf messages in the file, plus the elements of its string lists.
    pub messages: u64,
    /// Number of levels of nested protobuf messages in the file.
    pub depth: u32,
    /// Size of the tensor data in the model file, in bytes.
    pub inside_bytes: u64,
    /// Size of the tensor data in data files that the tensors declare, in bytes; a range that two
    /// tensors share counts twice.
    pub outside_claimed: u64,
    /// Total size of the existing data files, in bytes.
    pub outside_present: u64,
    /// Data files that tensors refer to, at most 1000.
    pub data_files: Vec<ScannedFile>,
    /// Operator domains that nodes use, at most 1000.
    pub domains: Vec<ScannedDomain>,
}

/// A data file that tensors of a scanned model refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedFile {
    /// Location of the data file as written in the model; truncated if long.
    pub location: String,
    /// Size of the data file in bytes; `None` if it does not exist or was not checked.
    pub size: Option<u64>,
    /// Number of tensors that refer to the data file.
    pub tensors: u64,
}

/// An operator domain that nodes of a scanned model use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScannedDomain {
    /// Name of the operator domain, empty for `ai.onnx`; truncated if long.
    pub domain: String,
    /// Number of different operators of the domain that nodes use.
    pub operators: u64,
    /// Number of nodes with an operator of the domain.
    pub nodes: u64,
}

/// A problem that a security scan found in a model file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanFinding {
    /// Stable name of the kind of finding, such as `location-escapes`.
    pub code: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Place of the problem: a byte offset and field, a node, a tensor, or a data file. Empty if
    /// the problem concerns the whole model file.
    pub place: String,
    /// Description of the problem.
    pub message: String,
    /// Consequence of the problem, or advice on how to handle the file.
    pub help: &'static str,
    /// Identifier of the violated requirement of the ONNX standard; `None` if none is violated.
    pub requirement: Option<&'static str>,
}

impl fmt::Display for ScanFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        if self.place.is_empty() { Ok(()) } else { write!(f, " (in {})", self.place) }
    }
}

impl ScanReport {
    /// Returns the severity of the most severe finding; `None` if the scan found nothing.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Collector of findings that keeps up to `per_code` findings of each code and only counts more, so
/// that a hostile file cannot make the report large.
#[derive(Debug)]
pub(super) struct Findings {
    per_code: usize,
    kept: Vec<ScanFinding>,
    /// Counts of all findings, by the name of the code.
    totals: HashMap<&'static str, Total>,
}

/// Count of the findings of one code.
#[derive(Debug)]
struct Total {
    code: &'static Code,
    count: u64,
    /// Index of the code in the order of first occurrence.
    rank: usize,
}

impl Findings {
    /// Makes an empty collector that keeps `per_code` findings of each code, at least one.
    pub(super) fn new(per_code: usize) -> Findings {
        Findings { per_code: per_code.max(1), kept: Vec::new(), totals: HashMap::new() }
    }

    /// Adds a finding. Calls `words` for place and message of the finding only if it is kept.
    pub(super) fn add(&mut self, code: &'static Code, words: impl FnOnce() -> (String, String)) {
        if self.count_finding(code) {
            let (place, message) = words();
            self.kept.push(make_finding(code, place, message));
        }
    }

    /// Counts a finding, and returns whether the collector keeps it.
    #[inline(never)]
    fn count_finding(&mut self, code: &'static Code) -> bool {
        let rank = self.totals.len();
        let total = self.totals.entry(code.name).or_insert(Total { code, count: 0, rank });
        total.count += 1;
        total.count <= self.per_code as u64
    }

    /// Adds the model checker's findings whose code corresponds to a code of the scan.
    pub(super) fn add_checked(&mut self, model: &Model, report: &CheckReport) {
        for finding in &report.findings {
            if let Some(code) = codes::from_checker(finding.code) {
                self.add(code, || (spot_path(model, &finding.place), finding.fact.clone()));
            }
        }
        for (name, more) in &report.more {
            let code = sardonyx_passes::codes::code(name).and_then(codes::from_checker);
            if let Some(total) = code.and_then(|code| self.totals.get_mut(code.name)) {
                total.count += more;
            }
        }
    }

    /// Sorts the findings into a report, and adds the number of unlisted findings of each code.
    pub(super) fn into_report(mut self, facts: ScanFacts) -> ScanReport {
        let mut report = ScanReport { facts, ..ScanReport::default() };
        for total in self.totals.values() {
            *match total.code.severity {
                Severity::Error => &mut report.errors,
                Severity::Warning => &mut report.warnings,
                Severity::Note => &mut report.notes,
            } += total.count;
            let more = total.count.saturating_sub(self.per_code as u64);
            if more > 0 {
                let message = format!("and {more} more findings of this kind");
                self.kept.push(make_finding(total.code, String::new(), message));
            }
        }
        // The sort is stable: findings of one code stay in the order of the file, followed by the
        // count of those that are not listed.
        self.kept.sort_by_key(|found| {
            let rank = self.totals.get(found.code).map_or(0, |total| total.rank);
            (Reverse(found.severity), rank)
        });
        report.findings = self.kept;
        report
    }
}

/// Makes a finding with the severity, help and requirement of its code.
fn make_finding(code: &'static Code, place: String, message: String) -> ScanFinding {
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
        for n in 0..5 {
            for code in [&codes::UNALIGNED, &codes::CYCLE] {
                findings.add(code, || (format!("place {n}"), "message".to_string()));
            }
        }
        let report = findings.into_report(ScanFacts::default());
        assert_eq!((report.errors, report.warnings, report.notes), (5, 0, 5));
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert_eq!(lines[2], "error[cycle]: and 3 more findings of this kind");
        assert_eq!(lines[3], "note[unaligned]: message (in place 0)");
        assert_eq!(lines.len(), 6);
        assert_eq!(report.worst(), Some(Severity::Error));
    }
}
