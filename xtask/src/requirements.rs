//! `cargo xtask requirements`: which of the requirements in `tests/requirements.tsv` the tests
//! quote, and which they show.
//!
//! A test quotes a requirement by its id, anywhere in test code (`// WIRE-07`, `"WIRE-07"`), or by
//! the beginning of its own name or its file's name (`fn wire_07_keeps_unknown_fields`,
//! `wire_07.onnxtxt`). Test code is everything under `tests/` and `crates/*/tests/`, and
//! `#[cfg(test)]` modules. A quote elsewhere is a reference, not a test. Quoting an id that does
//! not exist is an error everywhere.
//!
//! A row has sides: the positive one, where its column `positive` has valid input, and the
//! negative one, where its column `negative` has input to refuse or behaviour to rule out. A row
//! with neither has a positive side. A test quotes the side that it shows with a sign: `WIRE-07+`,
//! `WIRE-07-`, or both as `WIRE-07+-`. A quote without a sign marks a test about the row
//! that does not show it.
//!
//! A row is *quoted* if any test quotes it. It is *shown* if tests quote each of its sides. Where a
//! row names engines in its column `subsystems` (the runtime, the inliner, the converter, the
//! trainer, devices), each side must be quoted for each of these engines by a test that runs there,
//! which its path decides: see [`ENGINES`].

use crate::Result;
use crate::rust_source::{code_only, test_code};
use crate::workspace::{files, readable_path, root};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::ops::{AddAssign, Range};
use std::path::{Path, PathBuf};

/// A part of the project whose rows only its own tests show.
struct Engine {
    /// Name in the column `subsystems`.
    name: &'static str,
    /// The beginnings of the paths of tests that run there.
    places: &'static [&'static str],
    /// Work that will show the missing sides.
    work: &'static str,
}

/// An engine without places does not exist yet.
const ENGINES: [Engine; 5] = [
    Engine {
        name: "runtime",
        places: &[
            "crates/runtime/",
            "crates/simd/",
            "crates/elementwise/",
            "crates/gemm/",
            "crates/kernels/",
            // Its values.
            "crates/tensor/",
            "crates/sardonyx/tests/standard.rs",
            "crates/sardonyx/tests/standard_runs.rs",
            // Each version of each operator runs there.
            "crates/sardonyx/tests/every_version.rs",
            "crates/sardonyx/tests/inline.rs",
            "crates/sardonyx/tests/custom.rs",
            "crates/sardonyx/tests/declared_types.rs",
            // Steps and inference of a trainer are runs.
            "crates/sardonyx/tests/trainer",
            // Runs with and without devices.
            "crates/sardonyx/tests/device_standard.rs",
            "crates/cli/tests/engine.rs",
            "tests/run/",
        ],
        work: "running models",
    },
    Engine {
        name: "inliner",
        places: &[
            "tests/inline/",
            "crates/sardonyx/tests/inline.rs",
            "crates/python/tests/test_inliner.py",
        ],
        work: "functions and versions",
    },
    Engine {
        name: "converter",
        places: &["tests/convert/", "crates/sardonyx/tests/convert.rs"],
        work: "functions and versions",
    },
    Engine { name: "trainer", places: &["crates/sardonyx/tests/trainer"], work: "training" },
    Engine {
        name: "multidev",
        places: &[
            "tests/devices/",
            "crates/sardonyx/tests/devices.rs",
            "crates/sardonyx/tests/device_standard.rs",
            "crates/sardonyx/tests/workers.rs",
            "crates/cli/tests/device_processes.rs",
        ],
        work: "devices",
    },
];

/// Rows, or families of them, of the runtime that wait for other work than the runtime at large.
const OTHER_WORK: [(&[&str], &str); 4] = [
    (
        &[
            "GRAPH-21", "GRAPH-22", "GRAPH-30", "GRAPH-31", "GRAPH-34", "GRAPH-39", "NODE-18",
            "SHAPE-06", "SHAPE-08",
        ],
        "control flow",
    ),
    (
        &["FUNC", "GRAPH-04", "NODE-07", "OPSET-25", "OPSET-26", "OPSET-27", "ATTR-10"],
        "functions and versions",
    ),
    (&["TRAIN"], "training"),
    (&["DIST"], "devices"),
];

/// Number of ids. They are never dropped and rarely added: a list of another length is a mistake
/// until this number follows.
const ROWS: usize = 493;

#[derive(clap::Args)]
pub(crate) struct Requirements {
    /// List the sides of requirements that no test shows, with the work that will show them.
    #[arg(long)]
    missing: bool,
    /// Fail unless tests show every row but those that wait for work that is not done.
    #[arg(long)]
    check: bool,
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

    let mut quoted = BTreeSet::new();
    let mut shown_sides = BTreeSet::new();
    let mut unknown = Vec::new();
    for source in sources()? {
        let engines = engines_of(&readable_path(&source.path));
        for quote in list.quotes(&source) {
            if !list.contains(&quote.id) {
                unknown.push(format!(
                    "{}:{}: {} does not exist",
                    readable_path(&source.path),
                    quote.line,
                    quote.id
                ));
            } else if quote.in_test {
                for side in quote.sides {
                    shown_sides.insert((quote.id.clone(), side, None));
                    for engine in &engines {
                        shown_sides.insert((quote.id.clone(), side, Some(*engine)));
                    }
                }
                quoted.insert(quote.id);
            }
        }
    }

    let (mut total, mut not_shown) = (Count::default(), BTreeSet::new());
    for family in &list.families {
        let mut count = Count::default();
        let mut missing = Vec::new();
        for row in list.rows.iter().filter(|row| family_of(&row.id) == family) {
            let open: Vec<(Side, Option<&str>)> = row
                .needs()
                .filter(|(side, engine)| !shown_sides.contains(&(row.id.clone(), *side, *engine)))
                .collect();
            count.add(row, quoted.contains(&row.id), open.is_empty());
            if !open.is_empty() {
                not_shown.insert(row.id.as_str());
            }
            missing.extend(open.iter().map(|(side, engine)| row.missing(*side, *engine)));
        }
        println!("{family:7} {count}");
        if task.missing {
            missing.iter().for_each(|line| println!("  {line}"));
        }
        total += count;
    }
    println!("in all  {total}");
    println!(
        "{} of {} rows that name no engine are shown",
        total.shown_without_engine, total.without_engine
    );
    if !unknown.is_empty() {
        return Err(unknown.join("\n").into());
    }
    if task.check { demand_all(&not_shown) } else { Ok(()) }
}

/// Fails if tests do not show a row.
fn demand_all(not_shown: &BTreeSet<&str>) -> Result {
    let mut rows = not_shown.iter();
    match (rows.next(), rows.count()) {
        (None, _) => Ok(()),
        (Some(row), others) => Err(format!(
            "tests do not show {row} and {others} more rows; --missing lists the sides that none shows"
        )
        .into()),
    }
}

/// Numbers of rows: all, quoted and shown.
#[derive(Default)]
struct Count {
    rows: usize,
    quoted: usize,
    shown: usize,
    without_engine: usize,
    shown_without_engine: usize,
}

impl Count {
    fn add(&mut self, row: &Row, quoted: bool, shown: bool) {
        let engineless = row.engines.is_empty();
        self.rows += 1;
        self.quoted += usize::from(quoted);
        self.shown += usize::from(shown);
        self.without_engine += usize::from(engineless);
        self.shown_without_engine += usize::from(engineless && shown);
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.rows += other.rows;
        self.quoted += other.quoted;
        self.shown += other.shown;
        self.without_engine += other.without_engine;
        self.shown_without_engine += other.shown_without_engine;
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:3} quoted, {:3} shown of {:3}", self.quoted, self.shown, self.rows)
    }
}

/// Side of a row that a test shows: valid input passes, or invalid input is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Positive,
    Negative,
}

impl Side {
    fn sign(self) -> char {
        match self {
            Side::Positive => '+',
            Side::Negative => '-',
        }
    }
}

/// Names the engines that the tests at a path run in.
fn engines_of(path: &str) -> Vec<&'static str> {
    let there = |engine: &&Engine| engine.places.iter().any(|place| path.starts_with(place));
    ENGINES.iter().filter(there).map(|engine| engine.name).collect()
}

struct Row {
    id: String,
    strength: String,
    statement: String,
    sides: Vec<Side>,
    engines: Vec<&'static Engine>,
    /// Whether it names the command line, whose work shows what no engine does.
    commands: bool,
}

impl Row {
    /// Lists the signs that tests must quote: each side, for each engine if the row names any.
    fn needs(&self) -> impl Iterator<Item = (Side, Option<&'static str>)> {
        let engines = if self.engines.is_empty() {
            vec![None]
        } else {
            self.engines.iter().map(|engine| Some(engine.name)).collect()
        };
        let sides = self.sides.iter();
        sides.flat_map(move |side| engines.clone().into_iter().map(move |engine| (*side, engine)))
    }

    /// Formats a line about a side that no test shows.
    fn missing(&self, side: Side, engine: Option<&str>) -> String {
        format!(
            "{:>9}{} {:9} {:22} {:6} {}",
            self.id,
            side.sign(),
            engine.unwrap_or("any test"),
            self.work(engine),
            self.strength,
            self.statement
        )
    }

    /// Returns the work that will show a side.
    fn work(&self, engine: Option<&str>) -> &'static str {
        let Some(engine) = self.engines.iter().find(|known| engine == Some(known.name)) else {
            return if self.commands { "commands" } else { "formats and rules" };
        };
        let named = |names: &[&str]| {
            names.contains(&self.id.as_str()) || names.contains(&family_of(&self.id))
        };
        let other = OTHER_WORK.iter().find(|(names, _)| named(names));
        match other {
            Some((_, work)) if engine.name == "runtime" => work,
            _ => engine.work,
        }
    }
}

/// The rows in the file's order, with their families.
struct List {
    rows: Vec<Row>,
    ids: BTreeSet<String>,
    families: Vec<String>,
}

impl List {
    fn parse(text: &str) -> Result<List> {
        let mut list = List { rows: Vec::new(), ids: BTreeSet::new(), families: Vec::new() };
        let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
        for line in lines {
            let cells: Vec<&str> = line.split('\t').collect();
            let [id, strength, statement, _versions, subsystems, positive, negative] = cells[..]
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
                sides: sides(positive, negative),
                engines: ENGINES.iter().filter(|engine| names(subsystems, engine.name)).collect(),
                commands: names(subsystems, "cli"),
            });
        }
        Ok(list)
    }

    fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Collects the ids that the source quotes, in either form.
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

/// Whether the list, separated by commas, has the name.
fn names(list: &str, name: &str) -> bool {
    list.split(',').any(|item| item.trim() == name)
}

/// Reads the sides of a row from the two columns that describe them.
fn sides(positive: &str, negative: &str) -> Vec<Side> {
    let negative = !negative.trim().is_empty();
    let mut sides = Vec::new();
    if !positive.trim().is_empty() || !negative {
        sides.push(Side::Positive);
    }
    if negative {
        sides.push(Side::Negative);
    }
    sides
}

/// Reads the signs at the beginning of `rest`. A hyphen that goes on in a word is not
/// a sign.
fn signs(rest: &str) -> Vec<Side> {
    let signs = rest.bytes().take_while(|b| matches!(b, b'+' | b'-')).count();
    let after = rest[signs..].bytes().next();
    if after.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'>') {
        return Vec::new();
    }
    match &rest[..signs] {
        "+" => vec![Side::Positive],
        "-" => vec![Side::Negative],
        "+-" => vec![Side::Positive, Side::Negative],
        _ => Vec::new(),
    }
}

fn family_of(id: &str) -> &str {
    id.split_once('-').map_or(id, |(family, _)| family)
}

struct Quote {
    id: String,
    sides: Vec<Side>,
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

    /// Reads the id that the family and `rest` make: a separator, two digits and no third.
    fn quote(&self, at: usize, family: &str, rest: &str, separator: char) -> Option<Quote> {
        let rest = rest.strip_prefix(separator)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let after = rest[digits..].bytes().next();
        if digits != 2 || after.is_some_and(|b| b.is_ascii_alphabetic()) {
            return None;
        }
        Some(Quote {
            id: format!("{family}-{}", &rest[..digits]),
            sides: signs(&rest[digits..]),
            line: self.text[..at].matches('\n').count() + 1,
            in_test: self.in_test(at),
        })
    }
}

/// Reads the sources of the crates and of `tests/`. This crate is none of them: its tests are about
/// made-up ids.
fn sources() -> Result<Vec<Source>> {
    let mut paths = files(&root().join("crates"), &[".rs", ".py", ".onnxtxt", ".txtpb"])?;
    paths.extend(files(&root().join("tests"), &[".rs", ".py", ".onnxtxt", ".txtpb"])?);
    let mut sources = Vec::new();
    let mut test_files = BTreeSet::new();
    for path in paths {
        let bytes =
            fs::read(&path).map_err(|error| format!("{}: {error}", readable_path(&path)))?;
        // Some texts test bytes that are not UTF-8.
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
        if is_test_directory(&source.path) || test_files.contains(&source.path) {
            // An empty file can still quote by its name, at its beginning.
            source.tests.push(Range { start: 0, end: source.text.len().max(1) });
        }
    }
    Ok(sources)
}

/// Whether the file lies in `tests/` or in `crates/<crate>/tests/`.
fn is_test_directory(path: &Path) -> bool {
    let relative = path.strip_prefix(root()).unwrap_or(path);
    let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).collect();
    matches!(parts[..], ["tests", ..] | ["crates", _, "tests", ..])
}

/// Returns the two possible files of `mod name;` in the file at `path`.
fn module_files(path: &Path, name: &str) -> [PathBuf; 2] {
    let file = format!("{name}.rs");
    [path.with_file_name(&file), path.with_extension("").join(&file)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# about\nid\tstrength\trequirement\tversions\tsubsystems\tpositive\tnegative\n\
        WIRE-07\tMUST\tUnknown fields stay.\tall\treader\t\t\n\
        WIRE-08\tMUST\tUnknown numbers stay.\tall\treader\t\t\n";

    fn quotes(text: &str) -> Vec<(String, bool)> {
        let (tests, _) = test_code(&code_only(text));
        let source = Source { path: "a.rs".into(), text: text.into(), tests };
        let list = List::parse(LIST).expect("the list is well-formed");
        list.quotes(&source).into_iter().map(|quote| (quote.id, quote.in_test)).collect()
    }

    #[test]
    fn quotes_count_only_in_test_code() {
        let source = "// WIRE-07\n#[cfg(test)]\nmod tests {\n // WIRE-08\n fn wire_07_x() {}\n}\nfn wire_08() {}\n";
        let wanted = [("WIRE-07", false), ("WIRE-08", true), ("WIRE-07", true)];
        assert_eq!(quotes(source), wanted.map(|(id, test)| (id.to_string(), test)));
    }

    #[test]
    fn text_similar_to_an_id_is_not_one() {
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
    fn signs_name_the_sides_that_a_test_shows() {
        use Side::{Negative, Positive};
        let list = List::parse(LIST).expect("the list is well-formed");
        for (text, sides) in [
            ("WIRE-07", vec![]),
            ("WIRE-07+", vec![Positive]),
            ("// WIRE-07-: one byte is missing", vec![Negative]),
            ("WIRE-07+-, and more", vec![Positive, Negative]),
            ("WIRE-07-like", vec![]),
            ("WIRE-07->x", vec![]),
            ("WIRE-07--", vec![]),
        ] {
            let source =
                Source { path: "tests/a.onnxtxt".into(), text: text.into(), tests: Vec::new() };
            let quotes = list.quotes(&source);
            assert_eq!(quotes.len(), 1, "{text}");
            assert_eq!(quotes[0].sides, sides, "{text}");
        }
    }

    #[test]
    fn rows_need_each_side_for_each_engine() {
        let list = "id\tstrength\trequirement\tversions\tsubsystems\tpositive\tnegative\n\
            WIRE-01\tMUST\tNo text.\tall\treader\t\t\n\
            WIRE-02\tMUST\tOnly refused.\tall\treader\t\tA bad one.\n\
            FUNC-03\tMUST\tBoth.\tall\tinliner, runtime, shape\tA.\tB.\n";
        let list = List::parse(list).expect("the list is well-formed");
        let needs: Vec<Vec<_>> = list.rows.iter().map(|row| row.needs().collect()).collect();
        assert_eq!(needs[0], [(Side::Positive, None)]);
        assert_eq!(needs[1], [(Side::Negative, None)]);
        assert_eq!(
            needs[2],
            [
                (Side::Positive, Some("runtime")),
                (Side::Positive, Some("inliner")),
                (Side::Negative, Some("runtime")),
                (Side::Negative, Some("inliner")),
            ]
        );
        assert_eq!(list.rows[0].work(None), "formats and rules");
        assert_eq!(list.rows[2].work(Some("runtime")), "functions and versions");
    }

    #[test]
    fn the_path_of_a_test_determines_its_engines() {
        assert_eq!(engines_of("crates/runtime/tests/engine.rs"), ["runtime"]);
        assert_eq!(engines_of("tests/check/graph/fine.onnxtxt"), [""; 0]);
    }

    #[test]
    fn requirements_of_other_work_exist() -> Result {
        let list = List::parse(&fs::read_to_string(root().join("tests/requirements.tsv"))?)?;
        for name in OTHER_WORK.iter().flat_map(|(names, _)| *names) {
            assert!(
                list.contains(name) || list.families.iter().any(|family| family == name),
                "{name}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_row_that_is_not_shown_fails_the_check() {
        assert!(demand_all(&BTreeSet::new()).is_ok());
        let error = demand_all(&BTreeSet::from(["WIRE-07"])).expect_err("a row is not shown");
        assert!(error.to_string().contains("do not show WIRE-07"), "{error}");
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
