//! Compares models: every model of the data suites with itself and with a renamed copy, and large
//! graphs. `tests/diff` has the outputs for single changes.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use sardonyx::Model;
use sardonyx::check::diff::{DiffOptions, ModelDiff, NodeChangeKind, TensorChange};
use sardonyx::value::Buffer;
use sardonyx_model as graph;

fn diff(before: &Model, after: &Model) -> ModelDiff {
    before.diff(after, &DiffOptions::new())
}

fn count(diff: &ModelDiff, kind: NodeChangeKind) -> usize {
    diff.graphs.iter().map(|graph| graph.count(kind)).sum()
}

/// Reads the valid models of the data suites, with their paths.
pub(crate) fn models() -> Vec<(PathBuf, Model)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let mut left: Vec<PathBuf> = ["check", "convert", "devices", "infer", "inline", "run"]
        .map(|suite| tests.join(suite))
        .into();
    let mut models = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(model) = Model::open(&path) {
            models.push((path, model));
        }
    }
    assert!(models.len() > 500, "{} models", models.len());
    models.sort_by(|(one, _), (other, _)| one.cmp(other));
    models
}

/// Renames all node outputs of the main graph that are not outputs of the graph.
fn rename_values(model: &Model) -> Model {
    let mut graph = graph::Model::read(Buffer::from_vec(model.to_bytes())).unwrap();
    let nodes = graph.main_graph().map(|main| main.nodes.clone()).unwrap_or_default();
    for node in nodes {
        let outputs: Vec<graph::ValueId> = graph.outputs(node).iter().flatten().copied().collect();
        for value in outputs {
            if !graph.value(value).is_output {
                let name =
                    String::from_utf8_lossy(graph.text(graph.value(value).name)).into_owned();
                let name = graph.intern(&format!("renamed_{name}"));
                graph.rename_value(value, name);
            }
        }
    }
    Model::from_bytes(graph.to_bytes()).unwrap()
}

#[test]
fn a_model_does_not_differ_from_itself() {
    for (path, model) in models() {
        // Both from bytes: of two definitions of a name, readers of text and of bytes take
        // different ones.
        let bytes = model.to_bytes();
        let Ok(model) = Model::from_bytes(bytes.clone()) else { continue };
        let copy = Model::from_bytes(bytes).unwrap();
        let found = model.diff(&copy, &DiffOptions::new().with_values(false));
        assert!(found.is_empty(), "{}: {found:?}", path.display());
        // The copy has no directory, so it cannot read external data.
        let found = diff(&model, &copy);
        let constants = found.graphs.iter().flat_map(|graph| &graph.constants);
        for constant in constants {
            assert!(matches!(constant.content, TensorChange::Unknown(_)), "{}", path.display());
        }
    }
}

#[test]
fn renaming_values_changes_no_nodes() {
    let mut seen = 0;
    for (path, model) in models() {
        if model.check(&sardonyx::check::CheckOptions::new()).errors > 0 {
            continue;
        }
        let found = model.diff(&rename_values(&model), &DiffOptions::new().with_values(false));
        for kind in [NodeChangeKind::Added, NodeChangeKind::Removed, NodeChangeKind::Changed] {
            assert_eq!(count(&found, kind), 0, "{}: {found:?}", path.display());
        }
        seen += count(&found, NodeChangeKind::Renamed);
    }
    assert!(seen > 300, "{seen} renamed nodes");
}

#[test]
fn both_directions_find_the_same_number_of_nodes() {
    let models = models();
    for pair in models.windows(2) {
        let [(before_path, before), (_, after)] = pair else { unreachable!() };
        let (there, back) = (diff(before, after), diff(after, before));
        let swapped = node_counts(&back).map(|(before, after)| (after, before));
        assert_eq!(node_counts(&there), swapped, "{}", before_path.display());
    }
}

/// Returns the number of main graph nodes of both models, if the main graphs differ.
fn node_counts(diff: &ModelDiff) -> Option<(usize, usize)> {
    let main = diff.graphs.iter().find(|graph| graph.place == "the graph");
    main.map(|graph| (graph.nodes_before, graph.nodes_after))
}

/// Makes the text of a model of `nodes` equal nodes, parallel or chained, with numbered outputs.
fn large_model(nodes: usize, chained: bool, prefix: &str) -> String {
    let mut text = String::from(
        "<ir_version: 10, opset_import: [\"\": 21]> g (float[N] x) => (float[N] y) {\n",
    );
    let mut last = "x".to_string();
    for index in 0..nodes {
        writeln!(text, "{prefix}{index} = Relu ({last})").unwrap();
        if chained {
            last = format!("{prefix}{index}");
        }
    }
    write!(text, "y = Neg ({last}) }}").unwrap();
    text
}

#[test]
fn equal_nodes_by_the_ten_thousands_are_matched() {
    const NODES: usize = 50_000;
    for chained in [false, true] {
        let before = Model::from_text(&large_model(NODES, chained, "a")).unwrap();
        let after = Model::from_text(&large_model(NODES, chained, "b")).unwrap();
        let found = diff(&before, &after);
        let added = count(&found, NodeChangeKind::Added);
        assert_eq!((added, count(&found, NodeChangeKind::Renamed)), (0, NODES), "{chained}");
        // Inserting a node in the middle renames all later values.
        let text = large_model(NODES + 1, chained, "a").replace("a25000 = Relu", "a25000 = Abs");
        let found = diff(&before, &Model::from_text(&text).unwrap());
        let counts =
            [NodeChangeKind::Added, NodeChangeKind::Removed].map(|kind| count(&found, kind));
        assert_eq!(counts, [1, 0], "{chained}");
    }
}

/// Makes a model whose last node reads the outputs of all others.
fn summing_model(nodes: usize, prefix: &str) -> Model {
    let text = large_model(nodes, false, prefix);
    let names: Vec<String> = (0..nodes).map(|index| format!("{prefix}{index}")).collect();
    let sum = format!("y = Sum ({}) }}", names.join(", "));
    Model::from_text(&text.replace("y = Neg (x) }", &sum)).unwrap()
}

#[test]
fn a_node_that_reads_ten_thousands_of_values_is_matched() {
    const NODES: usize = 50_000;
    let found = diff(&summing_model(NODES, "a"), &summing_model(NODES, "b"));
    let counts = NodeChangeKind::ALL.map(|kind| count(&found, kind));
    assert_eq!(counts, [0, 0, 0, NODES, 0]);
}
