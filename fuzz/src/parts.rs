//! Property: a part of a model of nested branches, loops and scans has no errors of its own and
//! computes the bits that the whole model computes; models compared with themselves do not differ,
//! and a reduced model keeps what it is reduced for.
//!
//! The bytes are choices, for the model as in `programs`, and for the values of the part.

use std::time::{Duration, Instant};

use sardonyx::check::diff::DiffOptions;
use sardonyx::edit::{CheckAnswer, EditError, ExtractOptions, ReduceOptions};
use sardonyx::run::Optimization;
use sardonyx::{Error, Model, Outputs, RunOptions, Session, Value};

use crate::programs;

/// Iterations of all loops of a run.
const TURNS: u64 = 300;
const MEMORY: usize = 8 << 20;
/// Checks of a reduction.
const CHECKS: u64 = 30;

/// Extracts parts of the model of some choices.
pub(crate) fn check(input: &[u8]) {
    extract_parts(input);
}

/// Extracts parts, and returns whether one of them ran.
fn extract_parts(input: &[u8]) -> bool {
    let model = programs::make_model(input);
    let differences = model.diff(&model, &DiffOptions::new());
    assert!(differences.is_empty(), "{differences:?}");
    let nodes = model.nodes(None);
    let mut results: Vec<&str> = Vec::new();
    for node in nodes.iter().filter(|node| node.is_in_main_graph()) {
        results.extend(node.outputs.iter().flatten().map(|value| &*value.name));
        let has_graphs = ["If", "Loop", "Scan"].contains(&&*node.operator);
        let Some(output) = node.outputs.iter().flatten().next().filter(|_| has_graphs) else {
            continue;
        };
        for body in ["body", "then_branch", "else_branch"] {
            extract(&model, &ExtractOptions::new().body_of(&output.name).graph(body));
        }
    }
    let choose = |index: usize| {
        let choice = usize::from(input.get(index).copied().unwrap_or(0));
        results[choice % results.len()]
    };
    let (from, to) = ([choose(1), choose(3)], [choose(0), choose(2)]);
    let mut distinct = vec![to[0]];
    distinct.extend((to[1] != to[0]).then_some(to[1]));
    let begins = [&from[..1], &from[..], &[]][usize::from(input.first().copied().unwrap_or(0)) % 3];
    let begins: Vec<&str> =
        if begins.len() == 2 && begins[0] == begins[1] { vec![begins[0]] } else { begins.to_vec() };
    let options = ExtractOptions::new().from(begins.iter().copied()).to(distinct.iter().copied());
    if input.len().is_multiple_of(8) {
        reduce(&model);
    }
    let Some(part) = extract(&model, &options) else { return false };
    model.diff(&part, &DiffOptions::new());
    let all = model.with_outputs(begins.iter().chain(&distinct).copied());
    let all = all.unwrap_or_else(|error| panic!("{error}"));
    let Ok(whole) = run(&all, Vec::new()) else { return false };
    let value = |name: &str| whole.get(name).cloned().unwrap_or_else(|| panic!("no value {name}"));
    let given = begins.iter().map(|name| (name.to_string(), value(name))).collect();
    let computed = run(&part, given).unwrap_or_else(|error| panic!("{error}\n{options:?}"));
    for name in distinct {
        let (part, whole) = (computed.get(name), whole.get(name));
        let is_same = part.zip(whole).is_some_and(|(part, whole)| programs::is_equal(part, whole));
        assert!(is_same, "'{name}' is {part:?} and {whole:?} with {options:?}");
    }
    true
}

/// Extracts a part; `None` if there is no such part.
fn extract(model: &Model, options: &ExtractOptions) -> Option<Model> {
    match model.extract(options) {
        Ok((part, _)) => {
            let read = Model::from_bytes(part.to_bytes());
            assert!(read.is_ok(), "{read:?}");
            Some(part)
        }
        Err(error @ EditError::Invalid(_)) => panic!("{error}\n{options:?}"),
        Err(_) => None,
    }
}

/// Reduces a model to one with a loop.
fn reduce(model: &Model) {
    let has_loop = |model: &Model| model.operators().iter().any(|found| found.name == "Loop");
    let options = ReduceOptions { checks: CHECKS };
    let (reduced, report) = model.reduce(&options, &mut |candidate| {
        if has_loop(candidate) { CheckAnswer::Fails } else { CheckAnswer::Passes }
    });
    assert!(report.nodes <= report.nodes_before);
    assert_eq!(has_loop(&reduced), has_loop(model));
}

fn run(model: &Model, inputs: Vec<(String, Value)>) -> Result<Outputs, Error> {
    let session = Session::builder(model)
        .threads(1)
        .optimization(Optimization::Off)
        .memory_limit(MEMORY)
        .build()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    session.run(inputs, &RunOptions::new().iteration_limit(TURNS).deadline(deadline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn most_parts_run() {
        let stream = |index: u64| {
            let mut random = Random::new(11, index);
            (0..400 + index % 8).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
        };
        let ran = (0..200).filter(|index| extract_parts(&stream(*index))).count();
        assert!(ran > 60, "{ran} of 200");
    }
}
