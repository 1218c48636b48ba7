//! Rules of the ONNX standard by id: their wording in this project, and their place in the
//! standard.

use serde_json::{Value, json};

/// Rules of the ONNX standard as tab-separated rows. Tests quote their ids.
const RULES: &str = include_str!("requirements.tsv");
/// Document and section of the ONNX standard for each rule, as tab-separated rows with the id of
/// the rule.
const SOURCES: &str = include_str!("rule_sources.tsv");

/// Rule of the ONNX standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Identifier, such as `GRAPH-02`.
    pub(crate) id: &'static str,
    /// Strength of the requirement: `MUST`, `SHOULD` or `MAY`; `MUST*` for a plain definition that
    /// constrains behaviour.
    strength: &'static str,
    /// Wording of the rule in this project.
    words: &'static str,
    /// IR version or release of ONNX that the rule applies from; empty or `all` if the standard
    /// names none.
    versions: &'static str,
    /// Document and section of the standard.
    source: &'static str,
}

/// Returns the rule with an id in upper or lower case; `None` for an unknown id.
pub(crate) fn find_rule(id: &str) -> Option<Rule> {
    let row = parse_rows(RULES).find(|row| row[0].eq_ignore_ascii_case(id))?;
    let [id, strength, words, versions, ..] = row[..] else {
        return None;
    };
    let source = parse_rows(SOURCES).find(|source| source[0] == id)?;
    Some(Rule { id, strength, words, versions, source: source.get(1)? })
}

/// Splits a table of tab-separated rows into fields, without its comments and its header.
fn parse_rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| !line.starts_with("id\t"));
    lines.map(|line| line.split('\t').collect())
}

impl Rule {
    /// Formats the rule as text: its strength, versions, wording and source.
    pub(crate) fn format_page(&self) -> String {
        let strength = match self.strength {
            "MUST*" => "MUST, by definition",
            other => other,
        };
        let versions = match self.versions {
            "" | "all" => String::new(),
            versions => format!("; versions: {versions}"),
        };
        format!(
            "Rule {} ({strength}{versions}): {}\nIn the standard: {}.\n",
            self.id, self.words, self.source
        )
    }

    /// Converts the rule to JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "id": self.id,
            "strength": self.strength,
            "rule": self.words,
            "versions": self.versions,
            "source": self.source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_words_and_a_source() {
        let ids: Vec<&str> = parse_rows(RULES).map(|row| row[0]).collect();
        let sources: Vec<&str> = parse_rows(SOURCES).map(|row| row[0]).collect();
        assert_eq!(ids, sources);
        for id in ids {
            let found = find_rule(id).expect("the table has it");
            assert!(!found.words.is_empty() && !found.source.is_empty(), "{id}");
        }
        let found = find_rule("shape-17").expect("letters of any case");
        assert!(found.format_page().contains("In the standard: docs/ShapeInference.md"));
        assert_eq!(find_rule("SHAPE-1700"), None);
        assert_eq!(find_rule("id"), None, "the names of the columns are not a rule");
    }

    #[test]
    fn every_rule_of_a_finding_is_known() {
        for code in sardonyx::tool::CODES {
            let known = code.requirement.is_empty() || find_rule(code.requirement).is_some();
            assert!(known, "{}", code.name);
        }
    }
}
