//! The table of measures, and the file of counts that may only fall.

use super::COUNTS;
use super::measures::{Measures, Rule};
use crate::Result;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts of violations by crate, in the order of [`Rule::ALL`].
pub(crate) type Counts = BTreeMap<String, [usize; Rule::ALL.len()]>;

const HEADER: &str = "\
# Violations of the rules in CONTRIBUTING.md, \"How we write\", by crate. They may only fall:
# `cargo xtask tidy` fails if one rises, and asks for `cargo xtask tidy --bless` if one has fallen.
";

/// Reads `tests/voice/counts.tsv`.
///
/// # Errors
///
/// A row lacks a number.
pub(crate) fn read_counts(text: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let numbers: Vec<usize> = columns.map(str::parse).collect::<std::result::Result<_, _>>()?;
        let numbers = numbers
            .try_into()
            .map_err(|_| format!("{COUNTS}: {name}: a column too few or too many"))?;
        counts.insert(name.to_string(), numbers);
    }
    Ok(counts)
}

/// Reports each crate whose violations differ from `counts`.
pub(crate) fn compare(counts: &Counts, crates: &BTreeMap<String, Measures>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, measures) in crates {
        let allowed = counts.get(name).copied().unwrap_or_default();
        for (rule, allowed) in Rule::ALL.into_iter().zip(allowed) {
            let (found, column) = (measures.count(rule), rule.column());
            if found > allowed {
                findings.push(format!(
                    "{name}: {found} violations of \"{column}\", {allowed} before; \
                     `cargo xtask tidy --places {name}` lists them"
                ));
            } else if found < allowed {
                findings.push(format!(
                    "{name}: only {found} violations of \"{column}\", {COUNTS} allows {allowed}; \
                     lower it with `cargo xtask tidy --bless`"
                ));
            }
        }
    }
    let gone = counts.keys().filter(|name| !crates.contains_key(*name));
    findings.extend(gone.map(|name| format!("{COUNTS}: no crate {name}")));
    findings
}

/// Formats the new `tests/voice/counts.tsv`.
///
/// # Errors
///
/// A number rose: these are mended, not recorded.
pub(crate) fn lower_counts(before: &str, crates: &BTreeMap<String, Measures>) -> Result<String> {
    let counts = read_counts(before)?;
    for (name, measures) in crates {
        let Some(allowed) = counts.get(name) else { continue };
        for (rule, allowed) in Rule::ALL.into_iter().zip(allowed) {
            let found = measures.count(rule);
            if found > *allowed {
                let column = rule.column();
                return Err(format!("{name}: \"{column}\" rose from {allowed} to {found}").into());
            }
        }
    }
    let mut text = HEADER.to_string() + "crate";
    for rule in Rule::ALL {
        write!(text, "\t{}", rule.column())?;
    }
    for (name, measures) in crates {
        write!(text, "\n{name}")?;
        for rule in Rule::ALL {
            write!(text, "\t{}", measures.count(rule))?;
        }
    }
    Ok(text + "\n")
}

/// A column of the table: a title, and the rate in one crate.
type Column = (&'static str, fn(&Measures) -> String);

const COLUMNS: &[Column] = &[
    ("docs", |m| m.docs.to_string()),
    ("What %", |m| rate(m.what, m.docs, 100.0)),
    ("How, Who, … %", |m| rate(m.questions, m.docs, 100.0)),
    ("Of, By, … %", |m| rate(m.prepositions, m.docs, 100.0)),
    ("Returns %", |m| rate(m.returns, m.docs, 100.0)),
    ("say / 10k words", |m| rate(m.say, m.words, 10_000.0)),
    ("what is", |m| rate(m.what_is, m.words, 10_000.0)),
    ("nobody", |m| rate(m.nobody, m.words, 10_000.0)),
    ("is no", |m| rate(m.is_no, m.words, 10_000.0)),
    ("closures / 1k lines", |m| rate(m.count(Rule::Closure), m.code_lines, 1000.0)),
    ("called once", |m| m.closures_called_once.to_string()),
    ("tuples / 100 fns", |m| rate(m.count(Rule::Tuple), m.functions, 100.0)),
    ("bare names", |m| m.count(Rule::Name).to_string()),
    ("Kind, Form, …", |m| m.shared_type_names.to_string()),
    ("no verb %", |m| rate(m.count(Rule::Verb), m.documented_functions, 100.0)),
    ("openings", |m| m.count(Rule::Opening).to_string()),
    ("words", |m| m.count(Rule::Word).to_string()),
];

fn rate(count: usize, of: usize, per: f64) -> String {
    if of == 0 { "-".to_string() } else { format!("{:.1}", count as f64 * per / of as f64) }
}

/// Formats a table in Markdown with a row for each crate and one for all.
pub(crate) fn table(crates: &BTreeMap<String, Measures>) -> String {
    let mut all = Measures::default();
    crates.values().for_each(|measures| all.merge(measures));
    let mut text = String::from("| crate |");
    for (title, _) in COLUMNS {
        text += &format!(" {title} |");
    }
    text += &format!("\n| --- |{}\n", " ---: |".repeat(COLUMNS.len()));
    let rows = crates.iter().map(|(name, measures)| (name.as_str(), measures));
    for (name, measures) in rows.chain([("all", &all)]) {
        let cells = COLUMNS.iter().map(|(_, cell)| format!(" {} |", cell(measures)));
        text += &format!("| {name} |{}\n", cells.collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_source::Source;
    use crate::voice::lists::Lists;

    fn measure_source(source: &str) -> BTreeMap<String, Measures> {
        let mut measures = Measures::default();
        measures.add("a.rs", &Source::new(source), &Lists::read().unwrap());
        BTreeMap::from([("a".to_string(), measures)])
    }

    #[test]
    fn a_rise_is_a_finding_and_cannot_be_recorded() {
        let crates = measure_source("/// What it does.\nfn made() {}\n");
        let recorded = lower_counts("", &crates).unwrap();
        assert_eq!(compare(&read_counts(&recorded).unwrap(), &crates), Vec::<String>::new());
        let worse = measure_source("/// What it does.\nfn made() {}\n/// How.\nfn held() {}\n");
        let findings = compare(&read_counts(&recorded).unwrap(), &worse);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(
            findings[0].starts_with("a: 2 violations of \"openings\", 1 before"),
            "{findings:?}"
        );
        assert!(lower_counts(&recorded, &worse).is_err());
    }

    #[test]
    fn a_fall_asks_for_the_lower_number() {
        let recorded = lower_counts("", &measure_source("fn made() {}\nfn held() {}\n")).unwrap();
        let findings = compare(&read_counts(&recorded).unwrap(), &measure_source("fn made() {}\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("cargo xtask tidy --bless"), "{findings:?}");
    }

    #[test]
    fn the_table_has_rates_of_each_crate_and_of_all() {
        let table = table(&measure_source("/// What it is.\n/// Nobody knows.\nstruct Kind;\n"));
        let rows: Vec<&str> = table.lines().collect();
        assert!(rows[2].starts_with("| a | 1 | 100.0 | 0.0 |"), "{table}");
        assert_eq!(rows[3].replace("all", "a"), rows[2]);
    }
}
