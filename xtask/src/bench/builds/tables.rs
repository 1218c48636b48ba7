//! Measurements as Markdown, like the tables of CONTRIBUTING.md.

use super::calls::{Call, CallKind};
use super::{Build, Product, Round, Sample, rustc_version};
use crate::Result;
use crate::bench::models::{allowed_processors, median, processor_facts};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Number of packages from outside that are named.
const LARGEST: usize = 5;

/// CPU seconds of some calls of one build, by crate.
struct Column {
    title: &'static str,
    build: fn(&Sample) -> Option<&Build>,
    kinds: &'static [CallKind],
    /// Whether totals of the build are shown in this column.
    has_totals: bool,
}

const COLUMNS: &[Column] = &[
    Column {
        title: "command, release",
        build: |sample| sample.command.as_ref().map(|product| &product.build),
        kinds: CallKind::ALL,
        has_totals: true,
    },
    Column {
        title: "wheel after it",
        build: |sample| sample.wheel.as_ref().map(|product| &product.build),
        kinds: CallKind::ALL,
        has_totals: true,
    },
    Column {
        title: "test build, library or program",
        build: test_build,
        kinds: &[CallKind::Library, CallKind::Program, CallKind::BuildScript],
        has_totals: true,
    },
    Column {
        title: "its unit tests",
        build: test_build,
        kinds: &[CallKind::UnitTests],
        has_totals: false,
    },
    Column {
        title: "its test programs",
        build: test_build,
        kinds: &[CallKind::TestProgram],
        has_totals: false,
    },
];

fn test_build(sample: &Sample) -> Option<&Build> {
    sample.tests.as_ref().map(|tests| &tests.build)
}

impl Column {
    /// Sums the CPU seconds of calls; `None` without calls.
    fn cpu_s(&self, sample: &Sample, is_wanted: impl Fn(&Call) -> bool) -> Option<f64> {
        let calls = (self.build)(sample)?.calls.iter();
        let calls = calls.filter(|call| self.kinds.contains(&call.kind) && is_wanted(call));
        calls.map(|call| call.time.cpu_s).reduce(|one, other| one + other)
    }
}

/// Returns the name of the processor.
pub(super) fn processor() -> String {
    processor_facts("model name").unwrap_or("an unknown processor".into())
}

/// Returns all tables that there are measurements for, and where they are from.
pub(super) fn document(rounds: &[Round]) -> Result<String> {
    let mut document = format!(
        "Measured on {}, processors: {}, {}, rounds: {}.\n",
        processor(),
        allowed_processors()?.len(),
        rustc_version()?,
        rounds.len()
    );
    if rounds.iter().any(|round| round.against.is_some()) {
        document += "Cells: this checkout (the other, ratio).\n";
    }
    for table in [crate_table(rounds), size_table(rounds), loop_table(rounds)] {
        if !table.is_empty() {
            document += "\n";
            document += &table;
        }
    }
    Ok(document)
}

fn samples(rounds: &[Round]) -> impl Iterator<Item = &Sample> {
    rounds.iter().flat_map(|round| std::iter::once(&round.here).chain(&round.against))
}

/// Returns the median of a figure as text, with that of the other checkout and the median ratio of
/// both within a round. Empty without a figure.
fn cell(
    rounds: &[Round],
    figure: impl Fn(&Sample) -> Option<f64>,
    shown: fn(f64) -> String,
) -> String {
    let middle = |figures: Vec<f64>| (!figures.is_empty()).then(|| median(figures.into_iter()));
    let against = |round: &Round| round.against.as_ref().and_then(&figure);
    let ours = middle(rounds.iter().filter_map(|round| figure(&round.here)).collect());
    let theirs = middle(rounds.iter().filter_map(against).collect());
    let ratios = rounds.iter().filter_map(|round| Some(figure(&round.here)? / against(round)?));
    // Drops ratios to a time of less than one clock tick.
    let ratio = middle(ratios.filter(|ratio| ratio.is_finite()).collect());
    match (ours, theirs, ratio) {
        (None, None, _) => String::new(),
        (Some(ours), None, _) => shown(ours),
        (None, Some(theirs), _) => format!("none ({})", shown(theirs)),
        (Some(ours), Some(theirs), None) => {
            format!("{} ({})", shown(ours), shown(theirs))
        }
        (Some(ours), Some(theirs), Some(ratio)) => {
            format!("{} ({}, {ratio:.2})", shown(ours), shown(theirs))
        }
    }
}

/// Appends a row of a table.
fn add_row(table: &mut String, cells: impl IntoIterator<Item = String>) {
    for cell in cells {
        *table += "|";
        if !cell.is_empty() {
            *table += " ";
            *table += &cell;
        }
        *table += " ";
    }
    *table += "|\n";
}

/// Appends titles of columns and the line below them.
fn add_titles(table: &mut String, titles: &[&str]) {
    add_row(table, titles.iter().map(|title| title.to_string()));
    add_row(table, titles.iter().map(|_| "---".to_string()));
}

/// Returns the table of CPU seconds by crate; empty if nothing was built from nothing.
fn crate_table(rounds: &[Round]) -> String {
    let is_measured =
        |column: &&Column| samples(rounds).any(|sample| (column.build)(sample).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_measured).collect();
    let mut table = String::new();
    if columns.is_empty() {
        return table;
    }
    let mut titles = vec!["CPU seconds"];
    titles.extend(columns.iter().map(|column| column.title));
    add_titles(&mut table, &titles);

    let mut add = |title: String, is_wanted: &dyn Fn(&Call) -> bool| {
        let figures = columns
            .iter()
            .map(|column| cell(rounds, |sample| column.cpu_s(sample, is_wanted), seconds));
        add_row(&mut table, std::iter::once(title).chain(figures));
    };
    for (package, _) in packages_by_cpu(rounds, false) {
        let title = package.strip_prefix("sardonyx-").unwrap_or(package);
        add(title.to_string(), &|call| !call.is_outside && call.package == package);
    }
    let outside = packages_by_cpu(rounds, true);
    let largest = outside.iter().take(LARGEST);
    let largest: Vec<String> =
        largest.map(|(package, cpu_s)| format!("{package} {}", seconds(*cpu_s))).collect();
    let title = match largest.as_slice() {
        [] => "from outside".to_string(),
        largest => format!("from outside (largest: {})", largest.join(", ")),
    };
    add(title, &|call| call.is_outside);
    add("all calls of rustc".to_string(), &|_| true);

    type Figure = (&'static str, fn(&Build) -> f64, fn(f64) -> String);
    let totals: [Figure; 2] = [
        ("all, with cargo and runs of build scripts", |build| build.time.cpu_s, seconds),
        ("wall time", |build| build.time.wall_s, duration),
    ];
    for (title, figure, shown) in totals {
        let figures = columns.iter().map(|column| {
            let total = |sample: &Sample| (column.build)(sample).map(figure);
            cell(rounds, |sample| total(sample).filter(|_| column.has_totals), shown)
        });
        add_row(&mut table, std::iter::once(title.to_string()).chain(figures));
    }
    let run = |sample: &Sample| sample.tests.as_ref().map(|tests| tests.run);
    if samples(rounds).any(|sample| run(sample).is_some()) {
        let cpu = cell(rounds, |sample| Some(run(sample)?.cpu_s), seconds);
        let wall = cell(rounds, |sample| Some(run(sample)?.wall_s), duration);
        let _ = writeln!(table, "\nRunning all tests: {wall}, CPU seconds: {cpu}.");
    }
    table
}

/// Returns packages of ours or from outside with their CPU seconds in all builds of this checkout,
/// the largest first. Packages that only the other checkout has are last.
fn packages_by_cpu(rounds: &[Round], is_outside: bool) -> Vec<(&str, f64)> {
    let mut cpu_s: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for sample in samples(rounds) {
        let builds = COLUMNS.iter().filter(|column| column.has_totals);
        for call in
            builds.filter_map(|column| (column.build)(sample)).flat_map(|build| &build.calls)
        {
            if call.is_outside == is_outside {
                cpu_s.entry(&call.package).or_default();
            }
        }
    }
    for round in rounds {
        for (package, figures) in &mut cpu_s {
            let is_wanted = |call: &Call| call.is_outside == is_outside && call.package == *package;
            let figure = COLUMNS.iter().filter_map(|column| column.cpu_s(&round.here, is_wanted));
            figures.push(figure.sum());
        }
    }
    let medians =
        cpu_s.into_iter().map(|(package, figures)| (package, median(figures.into_iter())));
    let mut packages: Vec<(&str, f64)> = medians.collect();
    packages.sort_by(|one, other| other.1.total_cmp(&one.1));
    packages
}

/// Returns the table of sizes; empty if no product was built.
fn size_table(rounds: &[Round]) -> String {
    let mut table = String::new();
    type Built = fn(&Sample) -> Option<&Product>;
    let products: [(&str, Built); 2] = [
        ("command", |sample| sample.command.as_ref()),
        ("library of the wheel", |sample| sample.wheel.as_ref()),
    ];
    for (title, product) in products {
        if samples(rounds).all(|sample| product(sample).is_none()) {
            continue;
        }
        if table.is_empty() {
            add_titles(&mut table, &["bytes", "as cargo builds it", "without symbols"]);
        }
        let whole = |sample: &Sample| Some(product(sample)?.bytes as f64);
        let stripped = |sample: &Sample| Some(product(sample)?.stripped_bytes? as f64);
        let sizes = [cell(rounds, whole, group_digits), cell(rounds, stripped, group_digits)];
        add_row(&mut table, std::iter::once(title.to_string()).chain(sizes));
    }
    table
}

/// Returns the table of test commands after a change; empty if none was measured.
fn loop_table(rounds: &[Round]) -> String {
    let mut table = String::new();
    let mut titles: Vec<&str> = Vec::new();
    for times in samples(rounds).flat_map(|sample| &sample.loops) {
        if !titles.contains(&times.title.as_str()) {
            titles.push(&times.title);
        }
    }
    for title in titles {
        if table.is_empty() {
            let changes = ["a line added, which moves others", "a line changed in place"];
            add_titles(&mut table, &["wall seconds", changes[0], changes[1]]);
        }
        let times = |sample: &Sample| {
            let times = sample.loops.iter().find(|times| times.title == title)?;
            Some((times.added.wall_s, times.changed.wall_s))
        };
        let added = cell(rounds, |sample| Some(times(sample)?.0), seconds);
        let changed = cell(rounds, |sample| Some(times(sample)?.1), seconds);
        add_row(&mut table, [title.to_string(), added, changed]);
    }
    table
}

/// Returns seconds as text: to a tenth below ten, or else whole.
fn seconds(figure: f64) -> String {
    if figure < 9.95 { format!("{figure:.1}") } else { group_digits(figure) }
}

/// Returns a duration in seconds or, from 100 seconds on, in minutes.
fn duration(figure: f64) -> String {
    if figure < 100.0 { format!("{figure:.1} s") } else { format!("{:.1} min", figure / 60.0) }
}

/// Returns a whole number with commas between groups of three digits.
fn group_digits(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::calls::Time;
    use super::super::{Tests, loops};
    use super::*;

    fn call(package: &str, kind: CallKind, cpu_s: f64) -> Call {
        let is_outside = !package.starts_with("sardonyx");
        Call { package: package.into(), kind, is_outside, time: Time { wall_s: 1.0, cpu_s } }
    }

    fn build(calls: &[Call], wall_s: f64) -> Build {
        let cpu_s: f64 = calls.iter().map(|call| call.time.cpu_s).sum();
        Build { time: Time { wall_s, cpu_s: cpu_s + 1.0 }, calls: calls.to_vec() }
    }

    /// Makes a release build in which kernels take `cpu_s`.
    fn sample(cpu_s: f64) -> Sample {
        use CallKind::{BuildScript, Library, Program};
        let mut calls = vec![
            call("sardonyx-cli", Program, 20.0),
            call("sardonyx-kernels", Library, cpu_s),
            call("syn", Library, 4.0),
            call("syn", BuildScript, 1.0),
        ];
        calls.extend(["a", "b", "c", "d", "e"].map(|package| call(package, Library, 2.0)));
        let command =
            Product { build: build(&calls, 288.0), bytes: 12_345_678, stripped_bytes: None };
        Sample { command: Some(command), ..Sample::default() }
    }

    #[test]
    fn crates_are_sorted_and_those_from_outside_are_one_row() {
        let rounds = [Round { here: sample(1118.4), against: None }];
        assert_eq!(
            crate_table(&rounds),
            "| CPU seconds | command, release |\n\
             | --- | --- |\n\
             | kernels | 1,118 |\n\
             | cli | 20 |\n\
             | from outside (largest: syn 5.0, a 2.0, b 2.0, c 2.0, d 2.0) | 15 |\n\
             | all calls of rustc | 1,153 |\n\
             | all, with cargo and runs of build scripts | 1,154 |\n\
             | wall time | 4.8 min |\n"
        );
        assert_eq!(
            size_table(&rounds),
            "| bytes | as cargo builds it | without symbols |\n\
             | --- | --- | --- |\n\
             | command | 12,345,678 | |\n"
        );
        assert_eq!(loop_table(&rounds), "");
    }

    #[test]
    fn cells_are_medians_of_rounds() {
        let round =
            |here: f64, against: f64| Round { here: sample(here), against: Some(sample(against)) };
        let rounds = [round(10.0, 40.0), round(30.0, 60.0), round(20.0, 20.0)];
        let table = crate_table(&rounds);
        assert!(table.contains("\n| kernels | 20 (40, 0.50) |\n"), "{table}");
        assert!(table.contains("\n| wall time | 4.8 min (4.8 min, 1.00) |\n"), "{table}");
    }

    #[test]
    fn crates_of_one_checkout_have_no_ratio() {
        let mut round = Round { here: sample(30.0), against: Some(sample(0.0)) };
        let other = round.against.as_mut().unwrap().command.as_mut().unwrap();
        other.build.calls[0].package = "sardonyx-old".into();
        let table = crate_table(&[round]);
        for row in ["| kernels | 30 (0.0) |", "| cli | 20 |", "| old | none (20) |"] {
            assert!(table.contains(&format!("\n{row}\n")), "{table}");
        }
    }

    #[test]
    fn tests_are_distinguished_from_libraries() {
        use CallKind::{BuildScript, Library, Program, TestProgram, UnitTests};
        let calls = [
            call("sardonyx-ops", BuildScript, 1.0),
            call("sardonyx-ops", Library, 11.0),
            call("sardonyx-ops", Program, 2.0),
            call("sardonyx-ops", UnitTests, 15.0),
            call("sardonyx-ops", TestProgram, 3.0),
            call("sardonyx-ops", TestProgram, 4.0),
            call("memchr", Library, 6.0),
        ];
        let tests =
            Tests { build: build(&calls, 99.9), run: Time { wall_s: 108.0, cpu_s: 1234.5 } };
        let here = Sample { tests: Some(tests), ..Sample::default() };
        assert_eq!(
            crate_table(&[Round { here, against: None }]),
            "| CPU seconds | test build, library or program | its unit tests | its test programs |\n\
             | --- | --- | --- | --- |\n\
             | ops | 14 | 15 | 7.0 |\n\
             | from outside (largest: memchr 6.0) | 6.0 | | |\n\
             | all calls of rustc | 20 | 15 | 7.0 |\n\
             | all, with cargo and runs of build scripts | 43 | | |\n\
             | wall time | 99.9 s | | |\n\
             \n\
             Running all tests: 1.8 min, CPU seconds: 1,234.\n"
        );
    }

    #[test]
    fn loops_have_a_row_each() {
        let times = |added: f64, changed: f64| loops::Times {
            title: "a kernel: `cargo test`".into(),
            added: Time { wall_s: added, cpu_s: 1.0 },
            changed: Time { wall_s: changed, cpu_s: 1.0 },
        };
        let here = Sample { loops: vec![times(27.4, 3.25)], ..Sample::default() };
        let against = Sample { loops: vec![times(82.2, 6.5)], ..Sample::default() };
        assert_eq!(
            loop_table(&[Round { here, against: Some(against) }]),
            "| wall seconds | a line added, which moves others | a line changed in place |\n\
             | --- | --- | --- |\n\
             | a kernel: `cargo test` | 27 (82, 0.33) | 3.2 (6.5, 0.50) |\n"
        );
    }

    #[test]
    fn numbers_are_grouped() {
        for (figure, wanted) in
            [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1234567.0, "1,234,567")]
        {
            assert_eq!(group_digits(figure), wanted);
        }
    }
}
