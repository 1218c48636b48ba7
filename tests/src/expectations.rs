//! List of the cases that do not pass, one line each: `kind/name<TAB>reason`.
//!
//! A case that is not listed is expected to pass. A change in either direction is a [`Surprise`],
//! so the list always holds the current state.

use crate::outcome::{Failure, Outcome};
use std::collections::BTreeMap;
use std::fmt;

/// Cases that are expected not to pass, with reasons.
#[derive(Debug, Default, PartialEq)]
pub struct Expectations {
    /// Comments at the top, which describe the list.
    header: String,
    failures: BTreeMap<String, Failure>,
}

/// Outcome that differs from the list.
#[derive(Debug, PartialEq)]
pub struct Surprise {
    pub case: String,
    pub expected: Outcome,
    /// Outcome of the run, or `None` if the case no longer exists.
    pub got: Option<Outcome>,
}

impl Expectations {
    /// Parses the list.
    ///
    /// # Errors
    ///
    /// The text has a line that is neither a comment nor a case with a reason; the first one is
    /// returned.
    pub fn parse(text: &str) -> Result<Expectations, String> {
        let header = text.lines().take_while(|line| line.starts_with('#'));
        let header = header.map(|line| format!("{line}\n")).collect();
        let mut failures = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry = line
                .split_once('\t')
                .and_then(|(case, reason)| Some((case, Failure::parse(reason)?)));
            let Some((case, failure)) = entry else {
                return Err(format!("line {}: no `kind/name<TAB>reason`: {line}", index + 1));
            };
            if failures.insert(case.to_string(), failure).is_some() {
                return Err(format!("line {}: {case} is listed twice", index + 1));
            }
        }
        Ok(Expectations { header, failures })
    }

    /// Lists the differences from the expectations, except for cases that this run left out.
    pub fn surprises(
        &self,
        outcomes: &BTreeMap<String, Outcome>,
        ran: impl Fn(&str) -> bool,
    ) -> Vec<Surprise> {
        let mut surprises = Vec::new();
        for (case, outcome) in outcomes {
            if let Some(surprise) = self.surprise(case, outcome) {
                surprises.push(surprise);
            }
        }
        for (case, failure) in &self.failures {
            if ran(case) && !outcomes.contains_key(case) {
                surprises.push(Surprise {
                    case: case.clone(),
                    expected: Err(failure.clone()),
                    got: None,
                });
            }
        }
        surprises
    }

    /// Returns the difference of one outcome from the list, if there is one.
    pub fn surprise(&self, case: &str, outcome: &Outcome) -> Option<Surprise> {
        let expected = self.failures.get(case);
        let foreseen = match (expected, outcome) {
            (None, Ok(())) => true,
            (Some(expected), Err(failure)) => expected.is_like(failure),
            _ => false,
        };
        let expected = || expected.cloned().map_or(Ok(()), Err);
        (!foreseen).then(|| Surprise {
            case: case.to_string(),
            expected: expected(),
            got: Some(outcome.clone()),
        })
    }

    /// Replaces the lines of these cases. Lines that still hold stay unchanged.
    pub fn adopt(&mut self, surprises: &[Surprise]) {
        for surprise in surprises {
            match &surprise.got {
                Some(Err(failure)) => self.failures.insert(surprise.case.clone(), failure.clone()),
                Some(Ok(())) | None => self.failures.remove(&surprise.case),
            };
        }
    }
}

impl Surprise {
    /// Returns whether the outcome is a bug, which the list should not hold as if it were a gap.
    pub fn is_bug(&self) -> bool {
        matches!(&self.got, Some(Err(failure)) if failure.class.is_bug())
    }
}

impl fmt::Display for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.header)?;
        self.failures.iter().try_for_each(|(case, failure)| writeln!(f, "{case}\t{failure}"))
    }
}

impl fmt::Display for Surprise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Surprise { case, expected, got } = self;
        match (expected, got) {
            (Err(expected), None) => write!(f, "- {case}\t{expected}\n+ the case does not exist"),
            (Ok(()), None) => write!(f, "{case}: the case does not exist"),
            (Err(expected), Some(Ok(()))) => write!(f, "- {case}\t{expected}\n+ {case} passes"),
            (Ok(()), Some(Err(got))) => write!(f, "- {case} passes\n+ {case}\t{got}"),
            (Err(expected), Some(Err(got))) => write!(f, "- {case}\t{expected}\n+ {case}\t{got}"),
            (Ok(()), Some(Ok(()))) => write!(f, "{case} passes, as expected"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Class;

    const LIST: &str = "# about\nnode/a\toperator not implemented: A\nnode/b\terror: old words\nnode/gone\ttimeout\n";

    fn outcomes(list: &[(&str, Outcome)]) -> BTreeMap<String, Outcome> {
        list.iter().map(|(case, outcome)| (case.to_string(), outcome.clone())).collect()
    }

    fn error(detail: &str) -> Outcome {
        Err(Failure::new(Class::Error, detail))
    }

    #[test]
    fn every_change_is_a_surprise() -> Result<(), String> {
        let mut list = Expectations::parse(LIST)?;
        let run = outcomes(&[
            ("node/a", Ok(())),
            ("node/b", error("new words")),
            ("node/c", error("e")),
            ("node/d", Ok(())),
        ]);
        let surprises = list.surprises(&run, |_| true);
        let shown: Vec<String> = surprises.iter().map(Surprise::to_string).collect();
        assert_eq!(
            shown,
            [
                "- node/a\toperator not implemented: A\n+ node/a passes",
                "- node/c passes\n+ node/c\terror: e",
                "- node/gone\ttimeout\n+ the case does not exist",
            ]
        );

        list.adopt(&surprises);
        assert_eq!(list.surprises(&run, |_| true), []);
        let text = list.to_string();
        assert_eq!(text, "# about\nnode/b\terror: old words\nnode/c\terror: e\n");
        assert_eq!(Expectations::parse(&text)?, list);
        Ok(())
    }

    #[test]
    fn cases_that_did_not_run_are_no_surprises() -> Result<(), String> {
        let list = Expectations::parse(LIST)?;
        let run = outcomes(&[("node/b", error("x"))]);
        assert_eq!(list.surprises(&run, |case| case.contains("b")), []);
        Ok(())
    }

    #[test]
    fn bugs_are_not_gaps() {
        for (class, is_bug) in [(Class::Wrong, true), (Class::Panic, true), (Class::Error, false)] {
            let got = Some(Err(Failure::new(class, "")));
            assert_eq!(Surprise { case: "a".into(), expected: Ok(()), got }.is_bug(), is_bug);
        }
    }

    #[test]
    fn broken_lists_are_refused() {
        for list in ["node/a", "node/a\tbecause", "node/a\terror: b\nnode/a\terror: b"] {
            assert!(Expectations::parse(list).is_err(), "{list}");
        }
    }
}
