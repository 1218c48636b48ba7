//! Reports of checks, as lists of findings.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use sardonyx::check::{CheckOptions, Finding, Severity};

use crate::error::{Error, Failure, answer, answer_or, argument};
use crate::model::Model;
use crate::pointers::{Out, Owned, Ref, give, to_c_string};

/// The finding does not make the model invalid.
pub(crate) const SARDONYX_SEVERITY_NOTE: c_int = 1;
/// The finding is likely a mistake.
pub(crate) const SARDONYX_SEVERITY_WARNING: c_int = 2;
/// The finding makes the model invalid.
pub(crate) const SARDONYX_SEVERITY_ERROR: c_int = 3;

/// Findings of a check.
#[derive(Debug)]
pub(crate) struct Report(Vec<Row>);

/// Finding, in the form for C.
#[derive(Debug)]
struct Row {
    severity: c_int,
    code: CString,
    fact: CString,
    place: CString,
    advice: CString,
}

impl From<&Finding> for Row {
    fn from(finding: &Finding) -> Row {
        Row {
            severity: match finding.severity {
                Severity::Note => SARDONYX_SEVERITY_NOTE,
                Severity::Warning => SARDONYX_SEVERITY_WARNING,
                Severity::Error => SARDONYX_SEVERITY_ERROR,
            },
            code: to_c_string(finding.code.name),
            fact: to_c_string(&finding.fact),
            place: to_c_string(&finding.place.path),
            advice: to_c_string(&finding.advice),
        }
    }
}

/// Checks a model against the rules of the standard; with `types`, types and shapes as well.
/// Findings do not make the call fail.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_model_check(
    model: Ref<Model>,
    types: bool,
    report: Out<*mut Report>,
) -> *mut Error {
    answer(|| {
        let place = report.demand()?;
        let found = model.get()?.0.check(&CheckOptions::new().types(types));
        place.set(give(Report(found.findings.iter().map(Row::from).collect())))
    })
}

/// Returns the number of findings; 0 for a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_count(report: Ref<Report>) -> usize {
    answer_or(0, || Ok(report.get()?.0.len()))
}

fn find(report: &Ref<Report>, index: usize) -> Result<&Row, Failure> {
    let rows = &report.get()?.0;
    rows.get(index).ok_or_else(|| argument(format!("there are {} findings", rows.len())))
}

/// Returns the severity of a finding, one of `SARDONYX_SEVERITY_…`; 0 for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_severity(report: Ref<Report>, index: usize) -> c_int {
    answer_or(0, || Ok(find(&report, index)?.severity))
}

/// Returns the code of a finding, which `sardonyx explain` explains; null for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_code(report: Ref<Report>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || Ok(find(&report, index)?.code.as_ptr()))
}

/// Returns the fact of a finding; null for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_fact(report: Ref<Report>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || Ok(find(&report, index)?.fact.as_ptr()))
}

/// Returns the place of a finding in the model; null for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_place(report: Ref<Report>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || Ok(find(&report, index)?.place.as_ptr()))
}

/// Returns the advice of a finding; null for an index without one.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_advice(report: Ref<Report>, index: usize) -> *const c_char {
    answer_or(ptr::null(), || Ok(find(&report, index)?.advice.as_ptr()))
}

/// Frees a report. Ignores a null pointer.
#[unsafe(no_mangle)]
extern "C" fn sardonyx_report_free(report: Owned<Report>) {
    report.free();
}
