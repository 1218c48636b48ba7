//! `cargo xtask requirements`: which of the requirements in `tests/requirements.tsv` the tests quote.
//!
//! A test quotes a requirement by its id, anywhere in test code (`// WIRE-07`, `"WIRE-07"`), or by the beginning
//! of its own name or its file's name (`fn wire_07_keeps_unknown_fields`, `wire_07.onnxtxt`). Test code is everything
//! under `tests/` and `crates/*/tests/`, and `#[cfg(test)]` modules. A quote elsewhere is a reference, not a test.
//! Quoting an id that does not exist is an error everywhere.

use crate::Result;
use crate::rust_source::{code_only, test_code};
use crate::workspace::{files, root, shown};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Ids are never dropped and rarely added: a list of another length is a mistake until this number says otherwise.
const ROWS: usize = 493;

#[derive(clap::Args)]
pub(crate) struct Requirements {
    /// List the requirements that no test quotes.
    #[arg(long)]
    missing: bool,
}

pub(crate) fn run(task: &Requirements) -> Result {
    let list = List::parse(&fs::read_to_string(root().join("tests/requirements.tsv"))?)?;
    if list.rows.len() != ROWS {
        return Err(format!(
            "tests/requirements.tsv has {} rows instead of {ROWS}",
            list.rows.len()
        )
        .into());
    }

    let mut covered = BTreeSet::new();
    let mut unknown = Vec::new();
    for source in sources()? {
        for quote in list.quotes(&source) {
            if !list.contains(&quote.id) {
                unknown.push(format!(
                    "{}:{}: {} does not exist",
                    shown(&source.path),
                    quote.line,
                    quote.id
                ));
            } else if quote.in_test {
                covered.insert(quote.id);
            }
        }
    }

    for family in &list.families {
        let of_family: Vec<&Row> = list
            .rows
            .iter()
            .filter(|row| family_of(&row.id) == family)
            .collect();
        let count = of_family
            .iter()
            .filter(|row| covered.contains(&row.id))
            .count();
        println!("{family:7} {count:3} of {}", of_family.len());
        if task.missing {
            for row in of_family.iter().filter(|row| !covered.contains(&row.id)) {
                println!("  {:9} {:6} {}", row.id, row.strength, row.statement);
            }
        }
    }
    println!("{} covered of {ROWS}", covered.len());
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(unknown.join("\n").into())
    }
}

struct Row {
    id: String,
    strength: String,
    statement: String,
}

/// The rows in the file's order, with their families.
struct List {
    rows: Vec<Row>,
    ids: BTreeSet<String>,
    families: Vec<String>,
}

impl List {
    fn parse(text: &str) -> Result<List> {
        let mut list = List {
            rows: Vec::new(),
            ids: BTreeSet::new(),
            families: Vec::new(),
        };
        let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        for line in lines {
            let cells: Vec<&str> = line.split('\t').collect();
            let [
                id,
                strength,
                statement,
                _versions,
                _subsystems,
                _positive,
                _negative,
            ] = cells[..]
            else {
                return Err(format!("{} cells instead of 7: {line}", cells.len()).into());
            };
            if !list.ids.insert(id.to_string()) {
                return Err(format!("{id} is there twice").into());
            }
            if !list.families.iter().any(|family| family == family_of(id)) {
                list.families.push(family_of(id).to_string());
            }
            list.rows.push(Row {
                id: id.into(),
                strength: strength.into(),
                statement: statement.into(),
            });
        }
        Ok(list)
    }

    fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Every id that the source quotes, in either form.
    fn quotes(&self, source: &Source) -> Vec<Quote> {
        let mut quotes = Vec::new();
        let text = source.text.as_str();
        for family in &self.families {
            // As itself: WIRE-07.
            for (at, _) in text.match_indices(family.as_str()) {
                let before = text[..at].bytes().next_back();
                if !before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'-') {
                    quotes.extend(source.quote(at, family, &text[at + family.len()..], '-'));
                }
            }
            // As the beginning of a test's name: fn wire_07_keeps_unknown_fields.
            let name = format!("fn {}", family.to_lowercase());
            for (at, _) in text.match_indices(&name) {
                if source.in_test(at) {
                    quotes.extend(source.quote(at, family, &text[at + name.len()..], '_'));
                }
            }
            // As the beginning of a file's name: wire_07.onnxtxt.
            let stem = source
                .path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
                .unwrap_or_default();
            if let Some(rest) = stem.strip_prefix(&family.to_lowercase()) {
                quotes.extend(source.quote(0, family, rest, '_'));
            }
        }
        quotes
    }
}

fn family_of(id: &str) -> &str {
    id.split_once('-').map_or(id, |(family, _)| family)
}

struct Quote {
    id: String,
    line: usize,
    in_test: bool,
}

/// A file and which part of it is test code.
struct Source {
    path: PathBuf,
    text: String,
    tests: Vec<Range<usize>>,
}

impl Source {
    fn in_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The id that the family and `rest` make: a separator, two digits and no third.
    fn quote(&self, at: usize, family: &str, rest: &str, separator: char) -> Option<Quote> {
        let rest = rest.strip_prefix(separator)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let behind = rest[digits..].bytes().next();
        if digits != 2 || behind.is_some_and(|b| b.is_ascii_alphabetic()) {
            return None;
        }
        Some(Quote {
            id: format!("{family}-{}", &rest[..digits]),
            line: self.text[..at].matches('\n').count() + 1,
            in_test: self.in_test(at),
        })
    }
}

/// The sources of the crates and of `tests/`. This crate is none of them: its tests are about made-up ids.
fn sources() -> Result<Vec<Source>> {
    let mut paths = files(
        &root().join("crates"),
        &[".rs", ".py", ".onnxtxt", ".txtpb"],
    )?;
    paths.extend(files(
        &root().join("tests"),
        &[".rs", ".py", ".onnxtxt", ".txtpb"],
    )?);
    let mut sources = Vec::new();
    let mut test_files = BTreeSet::new();
    for path in paths {
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", shown(&path)))?;
        // Some texts are tests of bytes that are no UTF-8.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut tests = Vec::new();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let (bodies, modules) = test_code(&code_only(&text));
            tests = bodies;
            for module in modules {
                test_files.extend(module_files(&path, &module));
            }
        }
        sources.push(Source { path, text, tests });
    }
    for source in &mut sources {
        if is_test_folder(&source.path) || test_files.contains(&source.path) {
            // An empty file can still quote by its name, at its beginning.
            source.tests.push(Range {
                start: 0,
                end: source.text.len().max(1),
            });
        }
    }
    Ok(sources)
}

/// Whether the file lies in `tests/` or in `crates/<crate>/tests/`.
fn is_test_folder(path: &Path) -> bool {
    let relative = path.strip_prefix(root()).unwrap_or(path);
    let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], ["tests", ..] | ["crates", _, "tests", ..])
}

/// Where `mod name;` in the file at `path` may lie.
fn module_files(path: &Path, name: &str) -> [PathBuf; 2] {
    let file = format!("{name}.rs");
    [
        path.with_file_name(&file),
        path.with_extension("").join(&file),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# about\nid\tstrength\trequirement\tversions\tsubsystems\tpositive\tnegative\n\
        WIRE-07\tMUST\tUnknown fields stay.\tall\treader\t\t\n\
        WIRE-08\tMUST\tUnknown numbers stay.\tall\treader\t\t\n";

    fn quotes(text: &str) -> Vec<(String, bool)> {
        let (tests, _) = test_code(&code_only(text));
        let source = Source {
            path: "a.rs".into(),
            text: text.into(),
            tests,
        };
        let list = List::parse(LIST).expect("the list is well-formed");
        list.quotes(&source)
            .into_iter()
            .map(|quote| (quote.id, quote.in_test))
            .collect()
    }

    #[test]
    fn quotes_count_only_in_test_code() {
        let source = "// WIRE-07\n#[cfg(test)]\nmod tests {\n // WIRE-08\n fn wire_07_x() {}\n}\nfn wire_08() {}\n";
        let wanted = [("WIRE-07", false), ("WIRE-08", true), ("WIRE-07", true)];
        assert_eq!(
            quotes(source),
            wanted.map(|(id, test)| (id.to_string(), test))
        );
    }

    #[test]
    fn what_only_looks_like_an_id_is_none() {
        for text in [
            "XWIRE-07",
            "A-WIRE-07",
            "WIRE-7",
            "WIRE-071",
            "WIRE-*",
            "WIRE-07a",
            "let wire_07 = 1;",
        ] {
            assert_eq!(quotes(text), [], "{text}");
        }
    }

    #[test]
    fn ids_that_do_not_exist_are_still_quotes() {
        assert_eq!(quotes("\"WIRE-99\""), [("WIRE-99".to_string(), false)]);
    }

    #[test]
    fn the_list_is_complete_and_unique() -> Result {
        let list = List::parse(&fs::read_to_string(root().join("tests/requirements.tsv"))?)?;
        assert_eq!(list.rows.len(), ROWS);
        assert!(List::parse(&format!("{LIST}WIRE-07\t\t\t\t\t\t\n")).is_err());
        Ok(())
    }
}
