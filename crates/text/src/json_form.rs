//! Implements `serde::Serialize` for reports. The command uses these implementations for `--json`,
//! so the keys are the same.

use serde::{Serialize, Serializer};

use crate::diagnostic::{DiagnosticSeverity, ParseError};
use crate::left_out::LeftOut;

/// Writes a list of diagnostics, each with `code` (`syntax-error` or `syntax-warning`), `message`,
/// `line`, `column` (both from 1, in characters) and `help` (null without advice).
impl Serialize for ParseError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct DiagnosticForm<'a> {
            code: &'static str,
            message: &'a str,
            line: usize,
            column: usize,
            help: Option<&'a str>,
        }
        serializer.collect_seq(self.locate_all().map(|(found, position)| DiagnosticForm {
            code: match found.severity {
                DiagnosticSeverity::Error => "syntax-error",
                DiagnosticSeverity::Warning => "syntax-warning",
            },
            message: &found.message,
            line: position.line,
            column: position.column,
            help: found.help.as_deref(),
        }))
    }
}

/// Writes a list of texts, one for each kind of omission, with the first place and the number of
/// the others.
impl Serialize for LeftOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.to_string().lines())
    }
}
