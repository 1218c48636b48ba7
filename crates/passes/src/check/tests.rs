//! Models that are large or deep in one way, like hostile ones: their findings, and the growth of
//! work with the size of the model. `tests/check` has the findings of small models.

use std::fmt::Write;

use sardonyx_model::{Model, ReadLimits};
use sardonyx_tensor::Buffer;
use sardonyx_text::ParseOptions;

use super::{CheckOptions, Checker};
use crate::finding::CheckReport;

const HEADER: &str = "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>";

/// Parses a model of any depth. Reading text needs stack for each level, checking does not, so only
/// the reader gets a large stack.
fn parse(text: String) -> Model {
    let read = || {
        let limits = ReadLimits { depth: 1_000_000, ..ReadLimits::default() };
        let options = ParseOptions { limits, ..ParseOptions::default() };
        sardonyx_text::parse_model(Buffer::from(text.into_bytes()), options)
    };
    let reader = std::thread::Builder::new().stack_size(1 << 30).spawn(read);
    let parsed = reader.expect("a thread starts").join();
    let parsed = parsed.expect("the reader does not panic");
    parsed.expect("the text is a model").model
}

/// Returns the findings of a model, and the number of steps.
fn check_steps(text: String) -> (CheckReport, u64) {
    let model = parse(text);
    let options = CheckOptions::default();
    let mut checker = Checker::new(&model, &options);
    checker.check_all();
    (checker.found.report(), checker.steps)
}

fn codes(report: &CheckReport) -> Vec<&'static str> {
    let mut codes: Vec<&str> = report.findings.iter().map(|found| found.code.name).collect();
    codes.dedup();
    codes.retain(|code| !["no-domain", "no-producer"].contains(code));
    codes
}

/// Checks models of one kind at `size` and at twice that, which `text` makes. The work may at most
/// double, apart from a constant part. Returns the report of the larger one.
fn grows_with_size(size: usize, text: impl Fn(usize) -> String) -> CheckReport {
    let (_, once) = check_steps(text(size));
    let (report, twice) = check_steps(text(2 * size));
    assert!(once >= size as u64, "{once} steps for {size}: they are not counted");
    assert!(twice <= 2 * once + 1000, "{once} steps for {size}, {twice} for twice as many");
    report
}

fn lines(count: usize, mut line: impl FnMut(&mut String, usize)) -> String {
    let mut text = String::new();
    for index in 0..count {
        line(&mut text, index);
        text.push('\n');
    }
    text
}

/// Makes functions f0, f1, … each of which calls the next one.
fn chain(count: usize) -> String {
    let functions = lines(count, |text, index| {
        let body =
            if index + 1 < count { format!("local.f{}", index + 1) } else { "Relu".to_string() };
        let _ = write!(
            text,
            "<domain: \"local\", opset_import: [\"\": 21, \"local\": 1]> f{index} (x) => (y) {{ y = {body}(x) }}"
        );
    });
    format!("{HEADER} g (float[N] x) => (float[N] y) {{ y = local.f0(x) }}\n{functions}")
}

/// Checks FUNC-32+-.
#[test]
fn a_hundred_levels_of_calls_are_the_most() {
    assert_eq!(codes(&check_steps(chain(100)).0), [""; 0]);
    assert_eq!(codes(&check_steps(chain(101)).0), ["calls-too-deep"]);
}

/// Checks FUNC-15: a cycle through many functions is found like one through two.
#[test]
fn long_circles_are_found() {
    let text = chain(5000).replace("y = Relu(x)", "y = local.f0(x)");
    assert_eq!(codes(&check_steps(text).0)[0], "recursive-function");
}

/// Checks FUNC-32.
#[test]
fn ten_thousand_functions_are_the_most() {
    let flat = |count| {
        let functions = lines(count, |text, index| {
            let _ = write!(
                text,
                "<domain: \"local\", opset_import: [\"\": 21]> f{index} (x) => (y) {{ y = Relu(x) }}"
            );
        });
        format!("{HEADER} g (float[N] x) => (float[N] y) {{ y = local.f0(x) }}\n{functions}")
    };
    let report = grows_with_size(5000, flat);
    assert_eq!(codes(&report), [""; 0]);
    assert_eq!(codes(&check_steps(flat(10_001)).0), ["too-many-functions"]);
}

/// Checks NODE-11.
#[test]
fn a_node_may_have_any_number_of_inputs() {
    let report = grows_with_size(50_000, |size| {
        let inputs = vec!["x"; size].join(", ");
        format!("{HEADER} g (float[N] x) => (float[N] y) {{ y = Sum({inputs}) }}")
    });
    assert_eq!(codes(&report), [""; 0]);
}

/// Checks GRAPH-02: nodes in exactly reversed order.
#[test]
fn a_hundred_thousand_nodes_in_reverse_order() {
    let report = grows_with_size(50_000, |size| {
        let nodes = lines(size, |text, index| {
            let _ = write!(text, "v{index} = Relu(v{})", index + 1);
        });
        format!("{HEADER} g (float[N] v{size}) => (float[N] v0) {{ {nodes} }}")
    });
    assert_eq!(codes(&report), ["used-too-early"]);
    assert_eq!(report.errors, 99_999);
    assert_eq!(report.more, [("used-too-early", 99_979)]);
}

/// Checks GRAPH-23: nodes without an effect, each of which is found once.
#[test]
fn a_value_with_a_hundred_thousand_dead_readers() {
    let report = grows_with_size(50_000, |size| {
        let nodes = lines(size, |text, index| {
            let _ = write!(text, "d{index} = Relu(a)");
        });
        format!("{HEADER} g (float[N] x) => (float[N] y) {{ a = Neg(x)\n{nodes} y = Abs(x) }}")
    });
    assert_eq!(codes(&report), ["unused-node"]);
    // All readers, and the values that only they need.
    assert_eq!(report.notes, 100_001 + 2);
}

/// Checks GRAPH-31: each level reads a value outside of all of them.
#[test]
fn a_thousand_levels_of_inner_graphs() {
    let report = grows_with_size(500, |size| {
        let mut text = "y0 = Neg(x)".to_string();
        for level in 1..size {
            let inner = level - 1;
            text = format!(
                "y{level} = If<then_branch = t{level} () => (y{inner}) {{ {text} }}, \
                 else_branch = e{level} () => (z{level}) {{ z{level} = Abs(x) }}>(c)"
            );
        }
        let last = size - 1;
        format!("{HEADER} g (bool c, float[N] x) => (float[N] y{last}) {{ {text} }}")
    });
    assert_eq!(codes(&report), [""; 0]);
}

/// Checks GRAPH-34: many inner graphs may use the same names.
#[test]
fn many_graphs_with_the_same_names() {
    let report = grows_with_size(5000, |size| {
        let nodes = lines(size, |text, index| {
            let _ = write!(
                text,
                "y{index} = If<then_branch = t () => (r) {{ r = Neg(x) }}, \
                 else_branch = e () => (r) {{ r = Abs(x) }}>(c)"
            );
        });
        let all: Vec<String> = (0..size).map(|index| format!("y{index}")).collect();
        let all = all.join(", ");
        format!("{HEADER} g (bool c, float[N] x) => (float[N] y) {{ {nodes} y = Sum({all}) }}")
    });
    assert_eq!(codes(&report), [""; 0]);
}

/// Checks SHAPE-22: types are propagated along a chain of any length.
#[test]
fn types_are_followed_to_the_end() {
    let report = grows_with_size(20_000, |size| {
        let nodes = lines(size, |text, index| {
            let _ = write!(text, "v{} = Abs(v{index})", index + 1);
        });
        format!(
            "{HEADER} g (int64[N] v0, float[N] x) => (float[N] y) {{ {nodes} y = Add(x, v{size}) }}"
        )
    });
    assert_eq!(codes(&report), ["input-type"]);
}
