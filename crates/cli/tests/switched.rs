//! Mutation test of findings: each finding is suppressed in turn, in every source line that adds
//! it, and a case of the data suites must fail. The same is done with problems of inference and
//! with refusals of stored tensors. `crates/proto/src/switch.rs` has the switches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use sardonyx::tool::CODES;

use crate::check::{OF_LARGE_MODELS, OF_OTHER_JOBS};
use crate::runner;

/// Suites whose output has findings.
const SUITES: &[&str] = &["check", "convert", "infer", "inline", "run"];

/// Sources that add findings.
const SOURCES: &[&str] =
    &["crates/passes/src/check", "crates/sardonyx/src/check.rs", "crates/model/src/constant.rs"];

/// Maximum number of cases that are run for each finding. The first nearly always fails as it
/// should.
const MOST_TRIED: usize = 8;

pub(crate) fn trials() -> Vec<Trial> {
    // The switches exist only in debug builds, and the command is built with the test's profile.
    if !cfg!(debug_assertions) || std::env::var_os("BLESS").is_some() {
        return Vec::new();
    }
    vec![Trial::test("switched: every_finding_is_noticed", every_finding)]
}

fn every_finding() -> Result<(), Failed> {
    let tests = runner::root().join("tests");
    let suites =
        SUITES.iter().flat_map(|suite| runner::cases(&tests.join(suite), &["onnxtxt", "txtpb"]));
    let cases: Vec<PathBuf> = suites.collect();
    let records = tempfile::tempdir()?;
    // The findings of each case, as `CODE@FILE:LINE`.
    let found = in_parallel(&cases, |case| {
        let file = records.path().join(file_name(case));
        runner::answers(case, &[("SARDONYX_TEST_SITES", file.to_str().unwrap())])?;
        let lines = fs::read_to_string(&file).unwrap_or_default();
        Ok(lines.lines().map(str::to_string).collect::<BTreeSet<String>>())
    })?;
    let mut shown_by: BTreeMap<&str, Vec<&PathBuf>> = BTreeMap::new();
    for (case, sites) in cases.iter().zip(&found) {
        for site in sites {
            shown_by.entry(site).or_default().push(case);
        }
    }
    let mut problems = Vec::new();
    for code in CODES {
        let elsewhere = OF_OTHER_JOBS.contains(&code.name) || OF_LARGE_MODELS.contains(&code.name);
        let is_shown = shown_by.keys().any(|site| site.split_once('@').unwrap().0 == code.name);
        if !is_shown && !elsewhere {
            problems.push(format!("no case has a finding {}", code.name));
        }
    }
    let sites: BTreeSet<&str> =
        shown_by.keys().map(|site| site.split_once('@').unwrap().1).collect();
    for (place, line) in adding_lines() {
        let elsewhere = OF_LARGE_MODELS.iter().any(|code| line.contains(&constant(code)));
        if !sites.contains(place.as_str()) && !elsewhere {
            problems.push(format!("no case has a finding of {place}: {line}"));
        }
    }
    let switches: Vec<(&str, Vec<&PathBuf>)> = shown_by.into_iter().collect();
    let noticed = in_parallel(&switches, |(site, cases)| {
        for case in cases.iter().take(MOST_TRIED) {
            let answers = runner::answers(case, &[("SARDONYX_TEST_WITHOUT", site)])?;
            if fs::read_to_string(case.with_extension("out"))? != answers {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    let missed = switches.iter().zip(noticed).filter(|(_, noticed)| !noticed);
    problems.extend(missed.map(|((site, cases), _)| {
        format!("without {site} no case fails, such as {}", file_name(cases[0]))
    }));
    println!("{} findings, by code and line", switches.len());
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Returns the path of a case below `tests/` in one word, for a file name.
fn file_name(case: &Path) -> String {
    let tests = runner::root().join("tests");
    case.strip_prefix(tests).unwrap().display().to_string().replace(['/', '\\'], ".")
}

/// Returns the constant of a code in the source.
fn constant(code: &str) -> String {
    format!("codes::{}", code.replace('-', "_").to_uppercase())
}

/// Returns the source lines that add a finding, as `FILE:LINE` with their text.
fn adding_lines() -> Vec<(String, String)> {
    let root = runner::root();
    let files = SOURCES.iter().flat_map(|source| {
        let path = root.join(source);
        if path.is_dir() { runner::cases(&path, &["rs"]) } else { vec![path] }
    });
    let mut lines = Vec::new();
    for file in files {
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        for (index, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            // Lines by which a checker passes on all of its findings do not count.
            let adds = line.contains(".add(") || line.contains(".add_with(");
            let adds = adds || line.trim_start().starts_with("refuse(");
            if adds && !line.contains("self.found.add(") && !line.contains("self.add_with(code,") {
                lines.push((format!("{name}:{}", index + 1), line.trim().to_string()));
            }
        }
    }
    assert!(lines.len() > 100, "{} lines add findings", lines.len());
    lines
}

/// Calls a function for each element on all cores, and returns the results.
fn in_parallel<T: Sync, R: Send>(
    list: &[T],
    work: impl Fn(&T) -> Result<R, Failed> + Sync,
) -> Result<Vec<R>, Failed> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(element) = list.get(index) else { break };
                    let result = work(element);
                    results.lock().unwrap().insert(index, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}
