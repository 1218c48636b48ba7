//! Tests of the engine's guarantees for all operators: accepted models, errors for others, and
//! results that depend on inputs only.

use crate::draft::{Draft, floats, values};
use sardonyx_model::{NoExternalData, Type};
use sardonyx_runtime::{CompileError, Optimization, Options, RunError, Session, unsupported};
use sardonyx_tensor::{DataType, Tensor};
use std::process::Command;

#[test]
fn nodes_run_in_the_order_of_their_values() {
    // GRAPH-02 is the checker's: the engine sorts. GRAPH-28, GRAPH-29+, NAME-11, NAME-15+-
    let draft = Draft::new(13)
        .input("x", &["N"])
        .node("Add", &["a", "X"], &["y"])
        .node("Neg", &["x"], &["a"])
        .node("Relu", &["x"], &["X"]);
    assert_eq!(draft.run(&[("x", &[2], &[-1.0, 3.0])]), Ok(vec![1.0, 0.0]));
}

#[test]
fn models_that_cannot_be_walked_are_refused() {
    // NODE-01, GRAPH-03, GRAPH-30, NODE-06-, NODE-15-, NODE-21, OPSET-01
    let rows = [
        (Draft::new(13).node("Relu", &["q"], &["y"]), "'q', is not defined"),
        (
            Draft::new(13).node("Relu", &["b"], &["y"]).node("Neg", &["y"], &["b"]),
            "a cycle of 2 nodes",
        ),
        (
            Draft::new(13).input("x", &[]).node("Relu", &["x"], &["z"]),
            "output 'y' of the graph: it is not defined in the graph",
        ),
        (
            Draft::new(13).input("x", &[]).node("Relu", &["x", "x"], &["y"]),
            "Relu takes 1 input, but the node has 2",
        ),
        (Draft::new(13).input("x", &[]).node("Add", &["", "x"], &["y"]), "input 0 (A) is missing"),
        (
            Draft::new(13).input("x", &[]).node("Concat", &["x"], &["y"]),
            "Concat requires the attribute 'axis'",
        ),
        (
            Draft::new(13).input("x", &[]).node("Gemm", &["x", "x"], &["y"]).with(&[("alpha", 1)]),
            "requires 'alpha' to be a float, not an int",
        ),
        (
            Draft { opset: 99, ..Draft::new(13).input("x", &[]).node("Relu", &["x"], &["y"]) },
            "newest opset version known",
        ),
    ];
    for (draft, expected) in rows {
        let error = draft.session(1).expect_err(expected).to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn all_operators_that_cannot_run_are_named_at_once() {
    // MODEL-04-, OPSET-16-
    let draft = Draft::new(13)
        .input("x", &[])
        .node("relu", &["x"], &["a"])
        .node("Nonsense", &["a"], &["b"])
        .node("Nonsense", &["b"], &["y"]);
    let listed = unsupported(&draft.model());
    let names: Vec<(&str, usize)> = listed.iter().map(|op| (op.name.as_str(), op.nodes)).collect();
    assert_eq!(names, [("Nonsense", 2), ("relu", 1)]);
    assert!(
        matches!(draft.session(1), Err(CompileError::Unsupported(operators)) if operators == listed)
    );
}

#[test]
fn initializers_are_defaults_or_constants() {
    // GRAPH-07+-, GRAPH-08, GRAPH-11+, GRAPH-12+-
    let draft = Draft::new(13)
        .input("x", &["2"])
        .input("b", &["2"])
        .constant("b", &[2], vec![10.0, 20.0])
        .node("Add", &["x", "b"], &["y"]);
    let x = ("x", &[2usize][..], &[1.0f32, 2.0][..]);
    assert_eq!(draft.run(&[x]), Ok(vec![11.0, 22.0]));
    assert_eq!(draft.run(&[x, ("b", &[2], &[0.0, 0.0])]), Ok(vec![1.0, 2.0]));
    assert!(draft.run(&[]).is_err_and(|error| error.contains("input 'x' is missing")));
    // Before IR version 4 an initializer had to be an input; there it is a constant.
    let old = Draft { ir: 3, ..draft };
    assert_eq!(old.run(&[x]), Ok(vec![11.0, 22.0]));
    assert!(old.run(&[x, ("b", &[2], &[0.0, 0.0])]).is_err());
}

#[test]
fn sparse_constants_are_whole_for_nodes() {
    // TENSOR-38, GRAPH-37+
    let draft = |dim, positions: &[i64]| {
        let mut draft = Draft::new(17).input("x", &["4"]).node("Add", &["x", "w"], &["y"]);
        draft.sparse = vec![("w", dim, positions.to_vec(), vec![5.0, 7.0])];
        draft
    };
    let x = [("x", &[4][..], &[1.0, 2.0, 3.0, 4.0][..])];
    assert_eq!(draft(4, &[1, 3]).run(&x).unwrap(), [1.0, 7.0, 3.0, 11.0]);
    let error = draft(4, &[1, 4]).run(&x).unwrap_err();
    assert!(error.contains("index 4 of value 1 is outside"), "{error}");
    let mut much = draft(1 << 40, &[1, 4]);
    much.nodes[0] = ("Identity", &["w"], &["y"], &[]);
    let error = much.run(&[]).unwrap_err();
    assert!(error.contains("2 values are stored for 1099511627776 elements"), "{error}");
}

#[test]
fn inputs_are_held_against_their_declaration() {
    // TYPE-25-, SHAPE-07-, SHAPE-11-
    let draft = Draft::new(13).input("x", &["N", "2"]).input("z", &["N", "2"]).node(
        "Add",
        &["x", "z"],
        &["y"],
    );
    let two: (&[usize], &[f32]) = (&[1, 2], &[1.0, 2.0]);
    let four: (&[usize], &[f32]) = (&[2, 2], &[1.0; 4]);
    let cases = [
        (
            vec![("x", two.0, two.1), ("z", four.0, four.1)],
            "has shape [2, 2], so N is 2, but N is 1 for the input 'x'",
        ),
        (
            vec![("x", &[2][..], two.1), ("z", two.0, two.1)],
            "has 1 dimensions, [2], but the model expects 2: float[N, 2]",
        ),
        (vec![("x", two.0, two.1), ("q", two.0, two.1)], "no input 'q'"),
        (vec![("x", two.0, two.1), ("x", two.0, two.1)], "given twice"),
    ];
    for (inputs, expected) in cases {
        let error = draft.run(&inputs).expect_err(expected);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let session = draft.session(1).expect("a valid model");
    let doubles = Tensor::from_slice([1, 2], &[1.0f64, 2.0]).expect("a fitting tensor");
    let mut inputs = values(&[("z", two.0, two.1)]);
    inputs.push(("x".to_string(), doubles.into()));
    assert!(
        matches!(session.run(inputs), Err(RunError::Input(error)) if error.what.contains("has element type double"))
    );
}

/// Makes a network with branches, views, operations in place and residual sums, over symbolic
/// dimensions.
fn network() -> Draft {
    let weights =
        |count: usize| (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    Draft::new(13)
        .input("x", &["N", "3", "H", "W"])
        .constant("w1", &[8, 3, 3, 3], weights(216))
        .constant("w2", &[8, 8, 1, 1], weights(64))
        .constant("w3", &[8, 5], weights(40))
        .node("Conv", &["x", "w1"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node("Conv", &["b", "w2"], &["c"])
        .node("Add", &["c", "b"], &["d"])
        .node("Relu", &["d"], &["e"])
        .node("GlobalAveragePool", &["e"], &["f"])
        .node("Flatten", &["f"], &["g"])
        .node("Gemm", &["g", "w3"], &["h"])
        .node("Tanh", &["h"], &["i"])
        .node("Exp", &["i"], &["j"])
        .node("Softmax", &["j"], &["y"])
}

fn image(batch: usize, size: usize) -> Vec<f32> {
    (0..batch * 3 * size * size).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 500.0).collect()
}

#[test]
fn nothing_but_the_inputs_decides_the_result() {
    // MODEL-15+-, GRAPH-06+-: runs, sizes, threads and neighbours leave no trace
    let images: Vec<(usize, usize, Vec<f32>)> =
        [(1, 9), (3, 12), (1, 9), (2, 5)].into_iter().map(|(n, s)| (n, s, image(n, s))).collect();
    let run = |session: &Session, (n, size, elements): &(usize, usize, Vec<f32>)| {
        let inputs = values(&[("x", &[*n, 3, *size, *size], elements)]);
        let kept = inputs.clone();
        let outputs = session.run(inputs).expect("a fitting input");
        assert_eq!(floats(&kept[0].1), *elements);
        floats(&outputs[0].1).into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    let one = network().session(1).expect("a valid model");
    let expected: Vec<_> = images.iter().map(|image| run(&one, image)).collect();
    assert_eq!(expected[0], expected[2]);
    for threads in [1, 2, 3] {
        let session = network().session(threads).expect("a valid model");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for (image, expected) in images.iter().zip(&expected) {
                        assert_eq!(&run(&session, image), expected, "{threads} threads");
                    }
                });
            }
        });
    }
}

#[test]
fn fusing_changes_nothing_that_matters() {
    let draft = network();
    let compile = |fuse: bool| {
        let mut options = Options::with_threads(1);
        options.optimization = if fuse { Optimization::All } else { Optimization::Basic };
        Session::compile(&draft.model(), &NoExternalData, &options).expect("a valid model")
    };
    let (plain, fused) = (compile(false), compile(true));
    assert!(fused.steps().len() < plain.steps().len());
    let elements = image(2, 10);
    let run = |session: &Session| {
        let outputs =
            session.run(values(&[("x", &[2, 3, 10, 10], &elements)])).expect("a fitting input");
        floats(&outputs[0].1)
    };
    for (a, b) in run(&plain).iter().zip(run(&fused)) {
        assert!((a - b).abs() <= 1e-6, "{a} and {b}");
    }
}

#[test]
fn a_run_that_cannot_be_done_says_where() {
    let draft = Draft::new(13).input("x", &["?", "?"]).input("z", &["?", "?"]).node(
        "MatMul",
        &["x", "z"],
        &["y"],
    );
    let error = draft.run(&[("x", &[2, 3], &[0.0; 6]), ("z", &[2, 3], &[0.0; 6])]);
    assert!(error.is_err_and(|error| error.contains("MatMul")
        && error.contains('3')
        && error.contains('2')));
}

#[test]
fn sizes_can_be_fixed_when_the_model_is_compiled() {
    let draft = Draft::new(13).input("x", &["N", "M"]).input("z", &["N", "M"]).node(
        "Add",
        &["x", "z"],
        &["y"],
    );
    let compile = |dims: &[(&str, i64)]| {
        let mut options = Options::with_threads(1);
        let dims = dims.iter().map(|(name, size)| (name.to_string(), *size));
        options.dims = dims.collect();
        Session::compile(&draft.model(), &NoExternalData, &options)
    };
    let session = compile(&[("N", 2)]).expect("a size of the inputs");
    let types: Vec<String> = session
        .inputs()
        .iter()
        .chain(session.outputs())
        .map(|port| port.ty().expect("a declared type").to_string())
        .collect();
    assert_eq!(types, ["float[2, M]"; 3]);
    let run = |session: &Session, dims: [usize; 2]| {
        let elements = vec![1.0; dims[0] * dims[1]];
        let inputs = values(&[("x", &dims, &elements), ("z", &dims, &elements)]);
        session.run(inputs)
    };
    for size in [1, 3] {
        let outputs = run(&session, [2, size]).expect("the fixed size");
        assert_eq!(floats(&outputs[0].1), vec![2.0; 2 * size]);
    }
    let other = run(&session, [3, 1]).expect_err("another size").to_string();
    for part in ["'x' has shape [3, 1]", "float[2, M]", "set for the session", "N = 2"] {
        assert!(other.contains(part), "{other}");
    }

    let refused = |dims: &[(&str, i64)]| match compile(dims) {
        Err(CompileError::Option(what)) => what,
        other => panic!("{other:?}"),
    };
    let unknown = refused(&[("batch", 2)]);
    assert!(unknown.contains("'batch'") && unknown.contains("M, N"), "{unknown}");
    assert!(refused(&[("N", -1)]).contains("-1"));
    assert!(refused(&[("N", 1), ("N", 2)]).contains("1 and 2"));
    let numbers = Draft::new(13).input("x", &["2"]).node("Relu", &["x"], &["y"]);
    let mut options = Options::with_threads(1);
    options.dims.push(("N".to_string(), 2));
    let error = Session::compile(&numbers.model(), &NoExternalData, &options);
    let error = error.expect_err("no such size").to_string();
    assert!(error.contains("numbers or unknown"), "{error}");
}

#[test]
fn memory_is_planned_for_sizes_that_shapes_are_computed_from() {
    // A shape that depends on another shape is a formula at compilation, and numbers in a run.
    let draft = Draft::new(13)
        .input("x", &["N", "4"])
        .node("Relu", &["x"], &["a"])
        .node("Shape", &["x"], &["s"])
        .node("Expand", &["a", "s"], &["e"])
        .node("Reshape", &["e", "s"], &["r"])
        .node("Neg", &["r"], &["y"]);
    let session = draft.session(1).expect("a valid model");
    for size in [1, 3] {
        let input = Type::tensor(DataType::Float, [size as i64, 4]);
        let details = session.details(&[Some(input)]).expect("a fitting type");
        let sizes = |op: &str| {
            let steps = session.steps();
            let index = steps.iter().position(|step| step.op == op);
            let step = &details.steps[index.expect("it is there")];
            (step.outputs[0].bytes(), step.is_view)
        };
        let bytes = Some(16 * size as u64);
        assert_eq!(sizes("Relu"), (bytes, false));
        assert_eq!(sizes("Expand"), (bytes, true));
        assert_eq!(sizes("Reshape"), (bytes, true));
        assert!(details.arena_bytes >= 16 * size);
        let elements = vec![-1.0; 4 * size];
        let outputs = session.run(values(&[("x", &[size, 4], &elements)]));
        assert_eq!(floats(&outputs.expect("a fitting input")[0].1), vec![0.0; 4 * size]);
    }
}

#[test]
fn compiling_is_counted_and_steps_are_described() {
    let session = network().session(1).expect("a valid model");
    let report = session.report();
    assert_eq!(report.nodes, network().nodes.len());
    assert!(report.packed > 0 && report.packed_bytes > 0);
    assert!(report.took.iter().any(|(part, _)| *part == "select"));
    let input = Type::tensor(DataType::Float, [2i64, 3, 10, 10]);
    let details = session.details(&[Some(input)]).expect("a fitting type");
    let steps = session.steps();
    assert_eq!(details.steps.len(), steps.len());
    for (info, step) in steps.iter().zip(&details.steps) {
        assert!(!info.node.is_empty() && !info.op.is_empty());
        let work = step.multiply_adds.expect("sizes are known");
        assert_eq!(work > 0, matches!(info.op, "Conv" | "Gemm" | "MatMul"));
        assert!(step.read_bytes > Some(0) && step.written_bytes > Some(0));
    }
    // An unknown size is not an error.
    let open = session.details(&[None]).expect("the declared type");
    assert_eq!(open.steps.len(), steps.len());
}

/// Returns the instruction set that a session reports in a process of its own, with `SARDONYX_ISA`
/// set.
fn session_under(forced: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "engine::says_the_instruction_set", "--nocapture"])
        .env("SARDONYX_ISA", forced)
        .output()
        .expect("a process");
    let said = String::from_utf8(output.stdout).expect("text");
    let (_, said) = said.split_once("session: ").expect("the line is there");
    said.lines().next().unwrap_or_default().to_string()
}

#[test]
fn says_the_instruction_set() {
    match network().session(1) {
        Ok(session) => println!("session: {}", session.instruction_set()),
        Err(CompileError::Option(what)) => println!("session: refused, {what}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sessions_use_the_instruction_set_that_is_forced() {
    assert_eq!(session_under("portable"), "portable");
    let refused = session_under("sse9");
    assert!(refused.starts_with("refused, SARDONYX_ISA"), "{refused}");
}
