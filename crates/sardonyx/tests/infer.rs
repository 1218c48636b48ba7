//! Infers types of large and hostile models: work grows linearly with the model, and exceeding a
//! limit is a finding. `tests/infer` has the small cases.

use std::fmt::Write;

use sardonyx::infer::InferOptions;
use sardonyx::io::ReadLimits;
use sardonyx::tool::infer::Style;
use sardonyx::{Dim, Model};

const HEADER: &str = "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>\n";

fn read(text: &str) -> Model {
    let limits = ReadLimits { memory: 1 << 30, ..ReadLimits::default() };
    let options = sardonyx::OpenOptions::new().limits(limits);
    options.from_bytes(text.as_bytes().to_vec()).unwrap()
}

fn type_of(model: &Model, name: &str, options: &InferOptions) -> String {
    let found = model.infer(options);
    found.ty(model, name).map_or("?".into(), ToString::to_string)
}

#[test]
fn a_chain_is_walked_once() {
    // SHAPE-13, SHAPE-15
    let mut text = format!("{HEADER}g (float[N, 4] v0) => (float[?, ?] last) {{\n");
    for index in 0..100_000 {
        let op = ["Relu", "Neg", "Abs"][index % 3];
        writeln!(text, "v{} = {op} (v{index})", index + 1).unwrap();
    }
    text += "last = Concat <axis = 0> (v0, v100000)\n}\n";
    let model = read(&text);
    for style in [Style::Algebra, Style::Reference { data_prop: true }] {
        let found = model.infer(&InferOptions::new().style(style));
        assert_eq!(found.visits(), 100_001);
        assert!(found.report(&model).findings.is_empty());
    }
    assert_eq!(type_of(&model, "last", &InferOptions::new()), "float[2*N, 4]");
    assert_eq!(type_of(&model, "last", &InferOptions::new().set("N", 5)), "float[10, 4]");
}

#[test]
fn nests_of_functions_are_refused_by_their_depth() {
    // FUNC-32
    let mut text = format!("{HEADER}g (float[N] x) => (y) {{ y = local.f0 (x) }}\n");
    for index in 0..10_000 {
        let body = match index {
            9_999 => "w = Relu (v)".to_string(),
            index => format!("w = local.f{} (v)", index + 1),
        };
        writeln!(text, "<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> f{index} (v) => (w) {{ {body} }}").unwrap();
    }
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    let report = found.report(&model);
    assert!(
        report.findings[0].fact.contains("nested more than 100 deep"),
        "{}",
        report.findings[0].fact
    );
    assert!(found.visits() <= 102);
}

#[test]
fn repeated_calls_are_inferred_once_per_argument_types() {
    // FUNC-26, SHAPE-24
    let levels = 60;
    let mut text = format!("{HEADER}g (float[N] x) => (y) {{ y = local.f0 (x) }}\n");
    for index in 0..levels {
        let body = match index + 1 {
            next if next == levels => "w = Relu (v)".to_string(),
            next => format!("a = local.f{next} (v)  b = local.f{next} (a)  w = Add (a, b)"),
        };
        writeln!(text, "<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> f{index} (v) => (w) {{ {body} }}").unwrap();
    }
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    assert_eq!(type_of(&model, "y", &InferOptions::new()), "float[N]");
    assert!(found.visits() <= 3 * levels + 1, "{}", found.visits());
}

#[test]
fn calls_that_never_repeat_end_at_a_limit() {
    let levels = 60;
    let mut text = format!("{HEADER}g (float[N] x) => (y) {{ y = local.f0 (x) }}\n");
    for index in 0..levels {
        let body = match index + 1 {
            next if next == levels => "w = Relu (v)".to_string(),
            // Each call has its own size.
            next => format!(
                "a = local.f{next} (v)  c = Concat <axis = 0> (v, a)  w = local.f{next} (c)"
            ),
        };
        writeln!(text, "<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> f{index} (v) => (w) {{ {body} }}").unwrap();
    }
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    let report = found.report(&model);
    let codes: Vec<&str> = report.findings.iter().map(|found| found.code.name).collect();
    assert!(codes.contains(&"too-much-to-infer"), "{codes:?}");
    assert!(found.visits() <= 200_000);
}

#[test]
fn a_thousand_branches_are_walked_once_each() {
    let mut text = format!("{HEADER}g (bool c, float[N, 4] v0) => (float[?, ?] last) {{\n");
    for index in 0..1_000 {
        writeln!(
            text,
            "v{} = If (c) <then_branch = a () => (t{index}) {{ t{index} = Relu (v{index}) }}, else_branch = b () => (e{index}) {{ e{index} = Neg (v{index}) }}>",
            index + 1
        )
        .unwrap();
    }
    text += "last = Identity (v1000)\n}\n";
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    assert_eq!(found.visits(), 3_001);
    assert_eq!(type_of(&model, "last", &InferOptions::new()), "float[N, 4]");
}

#[test]
fn graphs_within_graphs_are_refused_by_their_depth() {
    // Runs with a stack of 2 MiB, the default of threads.
    let depth = 40;
    let mut text = format!("{HEADER}g (bool c, float[N] x) => (y) {{ ");
    for index in 0..depth {
        write!(
            text,
            "{} = If (c) <then_branch = t{index} () => (a{index}) {{ ",
            match index {
                0 => "y".to_string(),
                index => format!("a{}", index - 1),
            }
        )
        .unwrap();
    }
    write!(text, "a{} = Relu (x) ", depth - 1).unwrap();
    for index in (0..depth).rev() {
        write!(text, "}}, else_branch = e{index} () => (b{index}) {{ b{index} = Neg (x) }}> ")
            .unwrap();
    }
    text += "}\n";
    let model = read(&text);
    let walk = std::thread::Builder::new().stack_size(2 << 20);
    let walk = walk.spawn(move || type_of(&model, "y", &InferOptions::new())).unwrap();
    assert_eq!(walk.join().unwrap(), "float[N]");
}

#[test]
fn large_ranks_and_sizes_are_bounded() {
    // SHAPE-09, SHAPE-12
    let (ones, too_many) = (vec!["1"; 64].join(", "), vec!["1"; 1_024].join(", "));
    let large = i64::MAX;
    let text = format!(
        "{HEADER}g (float[{ones}] x, float[{large}, 2] y, float[N, {large}] z, float[{too_many}] w) => (a, b, c, d, e, f) {{
            a = Relu (x)
            b = Concat <axis = 0> (y, y)
            c = Flatten <axis = 0> (y)
            d = Flatten <axis = 0> (z)
            e = Add (x, x)
            f = Relu (w)
        }}"
    );
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    assert_eq!(found.ty(&model, "a").unwrap().shape().unwrap().len(), 64);
    assert_eq!(found.ty(&model, "e").unwrap().shape().unwrap().len(), 64);
    assert_eq!(found.ty(&model, "f").unwrap().shape(), None);
    let report = found.report(&model);
    let deep = report.findings.iter().find(|found| found.code.name == "rank-above-limit");
    assert_eq!(deep.unwrap().fact, "'w' has 1024 dimensions; at most 64 are supported");
    for name in ["c", "d"] {
        let size = &found.ty(&model, name).unwrap().shape().unwrap()[1];
        assert!(size.known().is_none_or(|size| size >= 0), "{name}: {size}");
    }
    // The concatenated size overflows a dimension, so the node cannot run: an error is reported.
    assert!(found.report(&model).errors >= 1);
    assert_eq!(Dim::Known(large).add(&Dim::Known(1)), Dim::Unknown);
}

#[test]
fn equalities_are_bounded() {
    // Every node implies one more equality; the list and the work are limited.
    let count = 3_000;
    let mut inputs = String::new();
    let mut nodes = String::new();
    for index in 0..count {
        write!(inputs, "float[A{index}, B{index}] x{index}, ").unwrap();
        if index > 0 {
            writeln!(nodes, "y{index} = MatMul (x{}, x{index})", index - 1).unwrap();
        }
    }
    let text = format!("{HEADER}g ({}) => (y1) {{\n{nodes}}}\n", inputs.trim_end_matches(", "));
    let model = read(&text);
    let found = model.infer(&InferOptions::new());
    assert_eq!(found.equalities(&model).len(), 1_000);
}

#[test]
fn inference_changes_nothing_but_types() {
    // SHAPE-21+
    let text = format!(
        "{HEADER}g (float[N, 4] x, bool c) => (float[?, 4] y) <float[4] w = {{1, 2, 3, 4}}> {{
            a = Add (x, w)
            y = If (c) <then_branch = t () => (u) {{ u = Relu (a) }}, else_branch = e () => (v) {{ v = Neg (a) }}>
        }}"
    );
    let before = read(&text);
    let mut after = before.clone();
    let found = after.infer(&InferOptions::new());
    after.add_types(&found);
    assert_ne!(before.to_bytes(), after.to_bytes());
    let strip = sardonyx::edit::StripOptions {
        inferred_types: true,
        ..sardonyx::edit::StripOptions::default()
    };
    let mut stripped = after.clone();
    stripped.strip(&strip).unwrap();
    // Completed types of outputs are not stripped.
    let mut left = stripped.to_text().to_string().replace("float[N, 4] y", "float[?, 4] y");
    for output in ["u", "v"] {
        left = left.replace(&format!("float[N, 4] {output})"), &format!("{output})"));
    }
    assert_eq!(left, before.to_text().to_string());
    // A second inference changes nothing.
    let mut twice = after.clone();
    let found = twice.infer(&InferOptions::new());
    twice.add_types(&found);
    assert_eq!(twice.to_bytes(), after.to_bytes());
}
