//! Severities of findings, as set by the caller.

use std::collections::HashMap;
use std::fmt;

use crate::codes::{CODES, code};
use crate::finding::{Code, Reference, Severity};

/// Severities of the codes. By default each code has the severity of its table.
#[derive(Debug, Clone, Default)]
pub struct Levels {
    /// Whether each code counts one level higher: pedantic ones become notes, notes warnings,
    /// warnings errors.
    pub strict: bool,
    /// Whether only findings for which the checker of the `onnx` package refuses a model are
    /// reported. Inference finds those of its full check, if it is requested.
    pub shared_only: bool,
    /// Whether only errors are reported.
    errors_only: bool,
    /// Names of the only codes that are reported; `None` if all are.
    only: Option<Vec<&'static str>>,
    /// Codes that are reported in addition.
    also: &'static [&'static Code],
    settings: HashMap<&'static str, Option<Severity>>,
}

/// Setting for a code that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCode(pub String);

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no finding or requirement '{}' exists", self.0)
    }
}

impl std::error::Error for UnknownCode {}

impl Levels {
    /// Reports only findings for which the checker of the `onnx` package also refuses a model.
    pub fn shared() -> Levels {
        Levels { shared_only: true, ..Levels::default() }
    }

    /// Reports only errors.
    pub(crate) fn errors() -> Levels {
        Levels { errors_only: true, ..Levels::default() }
    }

    /// Reports only these codes, by name.
    pub(crate) fn keep_only(self, codes: Vec<&'static str>) -> Levels {
        Levels { only: Some(codes), ..self }
    }

    /// Suppresses a code.
    pub(crate) fn suppress(mut self, code: &'static Code) -> Levels {
        self.settings.insert(code.name, None);
        self
    }

    /// Adds codes to report where `shared` leaves all others out.
    pub(super) fn and_also(self, also: &'static [&'static Code]) -> Levels {
        Levels { also, ..self }
    }

    /// Stops reporting a code: its name, the id of a requirement, or `warnings` or `notes` for all
    /// of that level.
    ///
    /// # Errors
    ///
    /// The code does not exist.
    pub fn allow(&mut self, name: &str) -> Result<(), UnknownCode> {
        self.set_severity(name, None)
    }

    /// Reports a code as an error; the names are those of [`allow`](Levels::allow).
    ///
    /// # Errors
    ///
    /// The code does not exist.
    pub fn deny(&mut self, name: &str) -> Result<(), UnknownCode> {
        self.set_severity(name, Some(Severity::Error))
    }

    fn set_severity(&mut self, name: &str, severity: Option<Severity>) -> Result<(), UnknownCode> {
        let level = match name {
            "warnings" => Some(Severity::Warning),
            "notes" => Some(Severity::Note),
            _ => None,
        };
        let chosen: Vec<&Code> = match code(name) {
            Some(code) => vec![code],
            None => CODES
                .iter()
                .filter(|code| match level {
                    Some(level) => code.severity == Some(level),
                    None => code.requirement == name,
                })
                .copied()
                .collect(),
        };
        if chosen.is_empty() {
            return Err(UnknownCode(name.to_string()));
        }
        for code in chosen {
            self.settings.insert(code.name, severity);
        }
        Ok(())
    }

    /// Returns the severity of a code; `None` if it is not reported.
    pub fn of(&self, code: &Code) -> Option<Severity> {
        self.severity(code).filter(|severity| !self.errors_only || *severity == Severity::Error)
    }

    fn severity(&self, code: &Code) -> Option<Severity> {
        if self.only.as_ref().is_some_and(|only| !only.contains(&code.name)) {
            return None;
        }
        let is_left_out = self.shared_only && code.reference == Reference::Accepts;
        if is_left_out && !self.also.iter().any(|also| also.name == code.name) {
            return None;
        }
        if let Some(severity) = self.settings.get(code.name) {
            return *severity;
        }
        match (self.strict, code.severity) {
            (false, severity) => severity,
            (true, None) => Some(Severity::Note),
            (true, Some(Severity::Note)) => Some(Severity::Warning),
            (true, Some(_)) => Some(Severity::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    #[test]
    fn settings_override_strictness() {
        let mut levels = Levels { strict: true, ..Levels::default() };
        assert_eq!(levels.of(&codes::NAME_NO_IDENTIFIER), Some(Severity::Note));
        assert_eq!(levels.of(&codes::NO_DOMAIN), Some(Severity::Warning));
        assert_eq!(levels.of(&codes::SHADOWED_NAME), Some(Severity::Error));
        levels.allow("shadowed-name").expect("it exists");
        assert_eq!(levels.of(&codes::SHADOWED_NAME), None);
        levels.deny("NAME-01").expect("a code has the requirement");
        assert_eq!(levels.of(&codes::NAME_NO_IDENTIFIER), Some(Severity::Error));
        assert_eq!(levels.deny("nonsense"), Err(UnknownCode("nonsense".into())));
    }
}
