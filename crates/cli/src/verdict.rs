//! Result of a command that did its work, which decides between exit codes 0 and 1.

/// Result of a command that did its work without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Success: exit code 0.
    Fine,
    /// Findings in a model, or a difference between models or values: exit code 1.
    Findings,
}
