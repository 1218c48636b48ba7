//! Extracts parts of every model of the data suites, and reduces models. `tests/extract` and
//! `tests/reduce` have the results for single models.

use std::fmt::Write;

use sardonyx::Model;
use sardonyx::check::CheckOptions;
use sardonyx::edit::{CheckAnswer, EditError, ExtractOptions, ReduceOptions, ReduceReport};

use crate::diff::models;

/// Maximum number of nodes of a model whose surroundings are extracted.
const MOST_NODES: usize = 12;

/// Extracts a part. Returns 1, or 0 if the part cannot be a model.
fn extract(model: &Model, options: &ExtractOptions) -> usize {
    match model.extract(options) {
        Ok((part, report)) => {
            let read = Model::from_bytes(part.to_bytes()).unwrap();
            assert_eq!(read.inputs().len(), report.inputs.len(), "{options:?}");
            1
        }
        Err(error @ EditError::Invalid(_)) => panic!("{options:?}\n{error}"),
        Err(_) => 0,
    }
}

#[test]
fn parts_have_no_errors_of_their_own() {
    let (mut parts, mut bodies) = (0, 0);
    for (path, model) in models() {
        println!("{}", path.display());
        extract(&model, &ExtractOptions::new());
        for node in model.nodes(None).into_iter().take(MOST_NODES) {
            let Some(output) = node.outputs.iter().flatten().next() else { continue };
            parts += extract(&model, &ExtractOptions::new().to([&output.name]));
            parts += extract(&model, &ExtractOptions::new().from([&output.name]));
            for depth in [0, 1] {
                parts += extract(&model, &ExtractOptions::new().node(&output.name, depth));
            }
            let body = ExtractOptions::new().body_of(&output.name);
            bodies += extract(&model, &body);
            for graph in ["body", "then_branch", "else_branch"] {
                bodies += extract(&model, &body.clone().graph(graph));
            }
        }
    }
    assert!(parts > 2000 && bodies > 100, "{parts} parts, {bodies} bodies");
}

/// Makes a model with a long chain of nodes.
fn chain(length: usize) -> Model {
    let mut nodes = String::from("v0 = Abs (x)\n");
    for index in 0..length {
        let _ = writeln!(nodes, "v{} = Relu (v{index})", index + 1);
    }
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[N] x) => (float[N] v{length}) {{ {nodes} }}"
    );
    Model::from_text(&text).unwrap()
}

#[test]
fn the_middle_of_a_large_model_is_extracted() {
    let model = chain(20_000);
    let options = ExtractOptions::new().from(["v5000"]).to(["v15000"]);
    let (part, report) = model.extract(&options).unwrap();
    assert_eq!((report.nodes, report.nodes_before), (10_000, 20_001));
    assert_eq!(
        (part.inputs()[0].to_string(), part.node_count()),
        ("v5000: float[N]".into(), 10_000)
    );
    assert_eq!(part.check(&CheckOptions::new()).errors, 0);
}

/// Reduces a chain of 50 nodes to seven. Returns the reduced model, the numbers of nodes of the
/// candidates, and the report.
fn reduce_chain(checks: u64) -> (Vec<u8>, Vec<usize>, ReduceReport) {
    let mut sizes = Vec::new();
    let (reduced, report) = chain(50).reduce(&ReduceOptions { checks }, &mut |candidate| {
        sizes.push(candidate.node_count());
        let operators = candidate.operators();
        let relus = operators.iter().filter(|found| found.name == "Relu");
        let relus: usize = relus.map(|found| found.nodes).sum();
        if relus > 6 { CheckAnswer::Fails } else { CheckAnswer::Passes }
    });
    (reduced.to_bytes(), sizes, report)
}

#[test]
fn a_reduction_follows_from_the_model_and_the_answers() {
    let (reduced, sizes, report) = reduce_chain(1000);
    assert_eq!((report.nodes_before, report.nodes, report.stopped), (51, 7, false));
    assert_eq!(reduce_chain(1000), (reduced, sizes.clone(), report));
    let (_, first, report) = reduce_chain(5);
    assert_eq!((first.as_slice(), report.stopped), (&sizes[..5], true));
}
