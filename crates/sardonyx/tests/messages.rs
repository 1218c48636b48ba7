//! Checks messages and places of errors of sessions separately: some programs show only the
//! message.

use sardonyx::{Error, ErrorKind, Model, Session};

fn session_error(text: &str) -> Error {
    let model = Model::from_text(text).expect("the text is a model");
    Session::new(&model).expect_err("it cannot run")
}

/// Checks that the message has the limit, and the place has the innermost and the outermost node.
#[test]
fn graphs_that_are_nested_too_deep() {
    let mut graph = "o100 = Neg (x)".to_string();
    for level in (0..100).rev() {
        let (inner, outer) = (level + 1, level);
        graph = format!(
            "o{outer} = If (c) <then_branch = t () => (o{inner}) {{ {graph} }}, \
             else_branch = e () => (e{outer}) {{ e{outer} = Abs (x) }}>"
        );
    }
    let model = |graph: &str, output: &str| {
        format!(
            "<ir_version: 8, opset_import: [\"\": 13]>
             g (bool c, float[1] x) => (float[1] {output}) {{ {graph} }}"
        )
    };
    Session::new(&Model::from_text(&model(&graph, "o0")).expect("the text is a model"))
        .expect("100 levels are allowed");
    let deeper = format!(
        "y = If (c) <then_branch = t () => (o0) {{ {graph} }}, \
         else_branch = e () => (z) {{ z = Abs (x) }}>"
    );
    let error = session_error(&model(&deeper, "y"));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(
        error.message(),
        "the model is not valid: graphs and calls are nested more than 100 deep"
    );
    assert_eq!(
        error.place(),
        Some("If node that makes 'o99' in graph 't' in 99 more nodes in If node that makes 'y'")
    );
}

/// Checks that the message lists unsupported operators, and the place is the first such node.
/// OPSET-14-
#[test]
fn operators_that_cannot_run() {
    let model = |nodes: &str| {
        format!(
            "<ir_version: 10, opset_import: [\"\": 21, \"my.ops\": 1]>
             g (float[N] x) => (float[N] y) {{ {nodes} }}"
        )
    };
    let nodes = "a = Neg (x) [\"second\"] b = my.ops.Foo (a) y = my.ops.Foo (b)";
    let error = session_error(&model(nodes));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(
        error.message(),
        "the model uses 1 operator that this release does not support: my.ops.Foo"
    );
    assert_eq!(error.place(), Some("node 'second' (Foo)"));
    let calls: Vec<String> = (0..7).map(|at| format!("a{at} = my.ops.Foo{at} (x)")).collect();
    let error = session_error(&model(&format!("{} y = Neg (x)", calls.join(" "))));
    assert_eq!(
        error.message(),
        "the model uses 7 operators that this release does not support: my.ops.Foo0, my.ops.Foo1, my.ops.Foo2, my.ops.Foo3, my.ops.Foo4 and 2 more"
    );
    assert!(error.place().expect("there is a place").contains("'a0'"), "{error}");
}

/// Checks that a contradiction has a message, a place and advice.
#[test]
fn models_that_contradict_themselves() {
    let error = session_error(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[2] a, double[2] b) => (float[2] c) { c = Add (a, b) }",
    );
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(
        error.message(),
        "the model is not valid: input 1 is tensor(double), but input 0 is tensor(float); they must have the same type"
    );
    assert_eq!(error.place(), Some("Add node that makes 'c'"));
    assert!(error.help().expect("there is advice").starts_with("convert the input with Cast"));
}
