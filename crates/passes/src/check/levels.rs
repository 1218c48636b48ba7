//! How bad each kind of finding is, as the caller wishes.

use std::collections::HashMap;
use std::fmt;

use super::codes::{CODES, code};
use crate::finding::{Code, Reference, Severity};

/// What counts how much. By default each code counts as its table says.
#[derive(Debug, Clone, Default)]
pub struct Levels {
    /// Whether each code counts one level more: pedantic ones become notes, notes warnings,
    /// warnings errors.
    pub strict: bool,
    /// Whether only that is said for which the checker of the `onnx` package refuses a model. What
    /// it sees with a full check only is found by inference, which runs only if it is asked for.
    pub shared_only: bool,
    /// Whether only errors are said.
    errors_only: bool,
    /// Names of the codes that alone are said, if not all are.
    only: Option<Vec<&'static str>>,
    /// Codes that are said even so.
    also: &'static [&'static Code],
    wishes: HashMap<&'static str, Option<Severity>>,
}

/// A wish about a code that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCode(pub String);

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no finding or requirement '{}' exists", self.0)
    }
}

impl std::error::Error for UnknownCode {}

impl Levels {
    /// Only what the checker of the `onnx` package refuses as well.
    pub fn shared() -> Levels {
        Levels { shared_only: true, ..Levels::default() }
    }

    /// Only errors.
    pub(crate) fn errors() -> Levels {
        Levels { errors_only: true, ..Levels::default() }
    }

    /// Says these codes alone, by name.
    pub(crate) fn only(self, codes: Vec<&'static str>) -> Levels {
        Levels { only: Some(codes), ..self }
    }

    /// Suppresses a code.
    pub(crate) fn suppress(mut self, code: &'static Code) -> Levels {
        self.wishes.insert(code.name, None);
        self
    }

    /// Says these codes, too, if only shared ones are said.
    pub(super) fn and_also(self, also: &'static [&'static Code]) -> Levels {
        Levels { also, ..self }
    }

    /// Says nothing about a code: its name, the id of a requirement, or `warnings` or `notes` for
    /// all of that level.
    ///
    /// # Errors
    ///
    /// There is no such code.
    pub fn allow(&mut self, name: &str) -> Result<(), UnknownCode> {
        self.wish(name, None)
    }

    /// Counts a code as an error; the names are those of [`allow`](Levels::allow).
    ///
    /// # Errors
    ///
    /// There is no such code.
    pub fn deny(&mut self, name: &str) -> Result<(), UnknownCode> {
        self.wish(name, Some(Severity::Error))
    }

    fn wish(&mut self, name: &str, wish: Option<Severity>) -> Result<(), UnknownCode> {
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
            self.wishes.insert(code.name, wish);
        }
        Ok(())
    }

    /// How bad a code is; `None` if nothing is said about it.
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
        if let Some(wish) = self.wishes.get(code.name) {
            return *wish;
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
    use super::super::codes;
    use super::*;

    #[test]
    fn wishes_beat_strictness() {
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
