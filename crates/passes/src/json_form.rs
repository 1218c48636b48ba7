//! Forms of reports for the crate `serde`. The answers of the command have the same keys, as it
//! writes these forms.

use serde::{Serialize, Serializer};

use crate::finding::{CheckReport, Finding, Severity};
use crate::strip::StripReport;

/// `note`, `warning` or `error`.
impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// `code`, `severity`, `requirement` (null if none is violated), `place`, `path`, `message` and
/// `help`.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            code: &'a str,
            severity: Severity,
            requirement: Option<&'a str>,
            place: &'a str,
            path: &'a str,
            message: &'a str,
            help: &'a str,
        }
        let form = Form {
            code: self.code.name,
            severity: self.severity,
            requirement: Some(self.code.requirement).filter(|id| !id.is_empty()),
            place: &self.place.words,
            path: &self.place.path,
            message: &self.fact,
            help: &self.advice,
        };
        form.serialize(serializer)
    }
}

/// `verdict` (`fine`, `warnings` or `errors`), `errors`, `warnings`, `notes`, `types_checked`,
/// `findings`, and `not_listed` with a `code` and the number of its other `findings`.
impl Serialize for CheckReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct NotListed {
            code: &'static str,
            findings: u64,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            verdict: &'a str,
            errors: u64,
            warnings: u64,
            notes: u64,
            types_checked: bool,
            findings: &'a [Finding],
            not_listed: Vec<NotListed>,
        }
        let not_listed = self.more.iter().map(|&(code, findings)| NotListed { code, findings });
        let form = Form {
            verdict: match (self.errors, self.warnings) {
                (0, 0) => "fine",
                (0, _) => "warnings",
                _ => "errors",
            },
            errors: self.errors,
            warnings: self.warnings,
            notes: self.notes,
            types_checked: self.types_checked,
            findings: &self.findings,
            not_listed: not_listed.collect(),
        };
        form.serialize(serializer)
    }
}

/// How many `docs`, `names`, entries of `metadata`, `unused` initializers, steps of `training` and
/// `types` were removed.
impl Serialize for StripReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            docs: usize,
            names: usize,
            metadata: usize,
            unused: usize,
            training: usize,
            types: usize,
        }
        let StripReport { docs, names, metadata, unused_initializers, training, inferred_types } =
            *self;
        let (unused, types) = (unused_initializers, inferred_types);
        Form { docs, names, metadata, unused, training, types }.serialize(serializer)
    }
}
