//! Comparison of the results of jobs with their inputs.

use sardonyx_model::Model;
use sardonyx_ops::Registry;
use sardonyx_passes::{Edit, JobInput, JobKind, NewErrors, Origins};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

/// Makes a model of nodes, with a function.
fn model(nodes: &str) -> Model {
    with_header("ir_version: 10, opset_import: [\"\": 21, \"local\": 1]", nodes)
}

fn with_header(header: &str, nodes: &str) -> Model {
    let text = format!(
        "<{header}> g (float[2] x, int64[2] i) => (float[2] y) <float[2] w = {{1, 2}}> {{ {nodes} }}
         <domain: \"local\", opset_import: [\"\": 21]> f (a) => (b) {{ b = Abs (a) }}"
    );
    parse(&text)
}

fn parse(text: &str) -> Model {
    let bytes = Buffer::from_vec(text.as_bytes().to_vec());
    let parsed = parse_model(bytes, ParseOptions::default());
    parsed.unwrap_or_else(|error| panic!("{error}\n{text}")).model
}

fn check(before: &Model, after: &Model) -> Result<(), NewErrors> {
    let registry = Registry::standard();
    let input = JobInput { job: JobKind::Convert, model: before, registry: &registry };
    input.check(after, &Origins::default())
}

/// Lists the codes of errors, each with the operator of the input that it comes from.
fn list_errors(found: Result<(), NewErrors>) -> Vec<String> {
    let errors = found.err().map_or(Vec::new(), |errors| errors.listed);
    let errors = errors.iter().map(|error| {
        let operator = error.operator.as_deref().unwrap_or("?");
        format!("{} {operator}", error.finding.code.name)
    });
    errors.collect()
}

#[test]
fn only_errors_that_the_input_does_not_have_count() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("y = Abs (x)", "y = Neg (x)", &[]),
        // Rules.
        ("y = Abs (x)", "y = Abs <alpha = 1> (x)", &["unknown-attribute Abs"]),
        ("y = Abs <alpha = 1> (x)", "y = Neg <alpha = 1> (x)", &[]),
        ("y = Abs <alpha = 1> (x)", "y = Neg <alpha = 1> ()", &["input-count Abs"]),
        (
            "a = Abs <b = 1> (x) y = Neg (a)",
            "a = Abs <b = 1> (x) y = Neg <b = 1> (a)",
            &["unknown-attribute Neg"],
        ),
        ("y = local.f (x)", "y = Clip (x, \"\", \"\", x)", &["input-count local.f"]),
        ("y = Abs (z)", "y = Abs (z)", &[]),
        ("y = Abs (x)", "z = Abs (x)", &["undefined-output ?"]),
        // Types, also where both models break a rule.
        ("y = Abs (x)", "y = Add (x, i)", &["input-type Abs"]),
        ("y = Concat <axis = 0> (x)", "y = Concat <axis = 0> (x, x)", &["types-contradict Concat"]),
        ("y = Concat <axis = 0> (x, x)", "y = Concat <axis = 0> (x, x)", &[]),
        (
            "a = Abs <b = 1> (x) y = Concat <axis = 0> (a)",
            "a = Abs <b = 1> (x) y = Concat <axis = 0> (a, a)",
            &["types-contradict Concat"],
        ),
    ];
    for (before, after, expected) in rows {
        let found = list_errors(check(&model(before), &model(after)));
        assert_eq!(found, *expected, "{before} -> {after}");
    }
}

#[test]
fn messages_name_rule_node_origin_and_job() {
    let errors = check(&model("y = local.f (x)"), &model("y = Clip <min = 0.0> (x)"));
    let text = "\
convert made a model with 1 error that its input does not have
attribute 'min' of Clip node that makes 'y': Clip has no attribute 'min' (as defined since opset version 13) \
(Clip has no attributes; remove it) \
[unknown-attribute, rule NODE-21; from f node that makes 'y' of the input, operator local.f]";
    assert_eq!(errors.unwrap_err().to_string(), text);
}

#[test]
fn added_ports_are_compared_with_those_of_the_input() {
    let with_ports = |inputs: &str, outputs: &str, nodes: &str| {
        parse(&format!(
            "<ir_version: 10, opset_import: [\"\": 21]> g ({inputs}) => ({outputs}) {{ {nodes} }}"
        ))
    };
    let open = with_ports("float[] x", "float[2] y", "y = Abs (x)");
    let closed = with_ports("float[2] x", "float[2] y", "y = Abs (x)");
    let more = with_ports("float[] x", "float[2] y, float[] z", "y = Abs (x) z = Neg (x)");
    assert_eq!(list_errors(check(&open, &more)), Vec::<String>::new());
    assert_eq!(list_errors(check(&closed, &more)), ["shapeless-value ?", "shapeless-value ?"]);
    let other = with_ports("float[2] x", "float[] y", "y = Abs (x)");
    assert_eq!(list_errors(check(&open, &other)), ["shapeless-value ?"]);
}

#[test]
fn training_steps_are_checked() {
    let step = |node: &str| {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ y = Add (x, w) }}
             @<training_info: [{{
                 algorithm: step (float[3] t) => (float[2] v) {{ v = {node} }},
                 update_binding: [\"w\": \"v\"]}}]>"
        );
        parse(&text)
    };
    assert_eq!(list_errors(check(&step("Sub (w, w)"), &step("Mul (w, w)"))), Vec::<String>::new());
    let found = list_errors(check(&step("Sub (w, w)"), &step("Sub (w, t)")));
    assert_eq!(found, ["types-contradict Sub"]);
}

#[test]
fn edits_are_checked_by_the_rules_that_they_can_break() {
    let registry = Registry::standard();
    let check = |before: &Model, after: &Model, edit| {
        let input = JobInput { job: JobKind::Set, model: before, registry: &registry };
        list_errors(input.check_edits(after, &[edit]))
    };
    let header = |ir: u32, opset: u32| {
        with_header(
            &format!("ir_version: {ir}, opset_import: [\"\": {opset}, \"local\": 1]"),
            "y = Clip <min = 0.0> (w)",
        )
    };
    assert_eq!(
        check(&header(10, 6), &header(10, 11), Edit::OperatorSets),
        ["unknown-attribute Clip"]
    );
    // Errors that the edit cannot cause are not reported.
    assert_eq!(check(&header(10, 6), &header(10, 11), Edit::IrVersion), Vec::<String>::new());
    assert_eq!(check(&header(10, 6), &header(3, 6), Edit::IrVersion), ["initializer-not-input ?"]);
    assert_eq!(check(&header(10, 6), &header(3, 6), Edit::Metadata), Vec::<String>::new());
    // Each rule of an edit is an error, and one of the checker's.
    for edit in [Edit::IrVersion, Edit::Metadata, Edit::UnusedInitializers] {
        for code in edit.rules() {
            assert_eq!(code.severity, Some(sardonyx_passes::Severity::Error), "{}", code.name);
        }
    }
}

/// Makes a model with a long chain of nodes and more nodes after it. `a` starts the chain and `z`
/// ends it.
fn with_chain(header: &str, first: &str, last: &str, functions: &str) -> Model {
    const LENGTH: usize = 3_000;
    let step = |index: usize| match index % 3 {
        0 => format!("a{} = Relu (a{index})", index + 1),
        1 => format!("a{} = Add (a{index}, a{index})", index + 1),
        _ => format!("a{} = Transpose <perm = [1, 0]> (a{index})", index + 1),
    };
    let chain: Vec<String> = (0..LENGTH).map(step).collect();
    let chain = chain.join("\n");
    parse(&format!(
        "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]> g ({header}) {{
             a0 = {first}
             {chain}
             z = Identity (a{LENGTH})
             {last}
         }} {functions}"
    ))
}

#[test]
fn errors_far_behind_a_change_are_found() {
    let f = "<domain: \"local\", opset_import: [\"\": 21]> f (p, q) => (r) { r = MatMul (p, q) }";
    let inner = "b = If (c) <
        then_branch = t () => (float[2, 2] o) { o = MatMul (z, w) },
        else_branch = e () => (float[2, 2] o) { o = Identity (w) }>
        y = Relu (b)";
    let ports =
        "float[2, 2] x, float[2, 3] x2, float[2, 2] w, bool c, float[2, N] s, float[3, N] s2";
    let rows: &[(&str, &str, &str, &str)] = &[
        // The output and the operator of the node with the error.
        ("float[2, 2] y", "y = MatMul (z, w)", "", "MatMul"),
        ("float[2, 2] y", "y = Identity (z)", "", "Identity"),
        ("float[2, 2] y", "y = local.f (z, w)", f, "MatMul"),
        ("float[2, 2] y", inner, "", "MatMul"),
        ("seq(float[2, 2]) y", "y = SequenceConstruct (z, z)", "", "SequenceConstruct"),
        ("float[2, 2] y", "o = Optional (z) y = OptionalGetElement (o)", "", "OptionalGetElement"),
        (
            "float[2, 2] y",
            "o = SequenceConstruct (z) i = Constant <value_int = 0> () \
          y = SequenceAt (o, i)",
            "",
            "SequenceAt",
        ),
        ("float[4, 2] y", "y = Concat <axis = 0> (w, z)", "", "Concat"),
    ];
    for (output, last, functions, operator) in rows {
        let header = format!("{ports}) => ({output}");
        let chain = |first| with_chain(&header, first, last, functions);
        let square = chain("Identity (x)");
        assert_eq!(list_errors(check(&square, &chain("Relu (x)"))), Vec::<String>::new(), "{last}");
        let expected = [format!("types-contradict {operator}")];
        assert_eq!(list_errors(check(&square, &chain("Relu (x2)"))), expected, "{last}");
    }
    // Sizes with names.
    let header = format!("{ports}) => (float[2, N] y");
    let chain = |first| with_chain(&header, first, "y = MatMul (w, z)", "");
    let two = chain("Identity (s)");
    assert_eq!(list_errors(check(&two, &chain("Abs (s)"))), Vec::<String>::new());
    assert_eq!(list_errors(check(&two, &chain("Abs (s2)"))), ["types-contradict MatMul"]);
}
