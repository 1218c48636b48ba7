//! Outcome of a case: it passes, or fails in one of a few ways that are counted apart.
//!
//! An outcome has a one-line text form. Workers send it to the main process, and the expectations
//! file holds it.

use std::fmt;

/// Outcome of a case, `Ok` if it passes.
pub type Outcome = Result<(), Failure>;

/// Reason for which a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: Class,
    /// Details in one line.
    pub detail: String,
}

/// Way to fail, from a clear refusal to faults that must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The cell has no model that can be run, or no oracle for its outputs.
    NoCase,
    /// The library names operators that it cannot run.
    OperatorNotImplemented,
    /// The library names a type that it cannot handle.
    TypeNotImplemented,
    /// The model has no exact equivalent in the version that it was to be converted to.
    Refused,
    /// The library refuses for another reason.
    Error,
    /// The run ends with other values, shapes or types than expected.
    Wrong,
    /// A panic, or the end of the process.
    Panic,
    /// The case did not end in time.
    Timeout,
}

impl Class {
    const ALL: [Class; 8] = [
        Class::NoCase,
        Class::OperatorNotImplemented,
        Class::TypeNotImplemented,
        Class::Refused,
        Class::Error,
        Class::Wrong,
        Class::Panic,
        Class::Timeout,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Class::NoCase => "no case",
            Class::OperatorNotImplemented => "operator not implemented",
            Class::TypeNotImplemented => "type not implemented",
            Class::Refused => "refused",
            Class::Error => "error",
            Class::Wrong => "wrong",
            Class::Panic => "panic",
            Class::Timeout => "timeout",
        }
    }

    /// Returns whether failing in this way is a bug rather than a gap.
    pub fn is_bug(self) -> bool {
        matches!(self, Class::Wrong | Class::Panic | Class::Timeout)
    }

    /// Returns whether the detail is a list of missing parts, not a wording or a measured number.
    fn detail_is_stable(self) -> bool {
        matches!(self, Class::OperatorNotImplemented | Class::TypeNotImplemented)
    }
}

impl Failure {
    pub fn new(class: Class, detail: impl Into<String>) -> Failure {
        let detail: String = detail.into();
        // The text form is one line of a tab-separated file.
        let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
        Failure { class, detail }
    }

    /// Returns whether the expectations count two failures as equal. A better message is not a
    /// change.
    pub fn is_like(&self, other: &Failure) -> bool {
        self.class == other.class && (!self.class.detail_is_stable() || self.detail == other.detail)
    }

    /// Parses the text of a failure. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Failure> {
        let (label, detail) = text.split_once(": ").unwrap_or((text, ""));
        let class = Class::ALL.into_iter().find(|class| class.label() == label)?;
        Some(Failure::new(class, detail))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.class.label())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_equal_after_a_round_trip_through_text() {
        for failure in [
            Failure::new(Class::OperatorNotImplemented, "Foo, ai.onnx.ml.Bar"),
            Failure::new(Class::Wrong, "output 0: 1.5\n instead of\t2"),
            Failure::new(Class::Timeout, ""),
        ] {
            assert_eq!(Failure::parse(&failure.to_string()), Some(failure));
        }
        assert_eq!(Failure::parse("passed"), None);
    }

    #[test]
    fn a_change_of_operators_counts_and_of_wording_does_not() {
        let failure = |class, detail: &str| Failure::new(class, detail);
        assert!(failure(Class::Error, "a").is_like(&failure(Class::Error, "b")));
        assert!(!failure(Class::Error, "a").is_like(&failure(Class::Wrong, "a")));
        let operators = |names| failure(Class::OperatorNotImplemented, names);
        assert!(operators("Foo").is_like(&operators("Foo")));
        assert!(!operators("Foo, Bar").is_like(&operators("Foo")));
    }
}
