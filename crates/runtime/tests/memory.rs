//! Tests that memory of sessions and runs is charged before it is allocated, and bounded by the
//! memory limit.

use std::collections::BTreeSet;

use std::fmt::Write;

use crate::both_ways::{Numbers, complete};
use allocation_counter::measure;
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{CompileError, Optimization, Options, Precision, RunError, Session};
use sardonyx_tensor::{Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn compile(graph: &str, change: impl FnOnce(&mut Options)) -> Result<Session, CompileError> {
    let text = complete(graph);
    let parsed = parse_model(Buffer::from(text.as_bytes().to_vec()), ParseOptions::default());
    let model = parsed.unwrap_or_else(|error| panic!("{error:?}")).model;
    let mut options = Options::with_threads(1);
    change(&mut options);
    Session::compile(&model, &NoExternalData, &options)
}

fn session(graph: &str, limit: Option<usize>) -> Session {
    compile(graph, |options| options.memory_limit = limit).unwrap()
}

fn random(seed: u64, dims: &[usize]) -> Value {
    let numbers = Numbers::new(seed).floats(dims.iter().product());
    Value::Tensor(Tensor::from_vec(dims, numbers).unwrap())
}

fn run(session: &Session, name: &str, value: &Value) -> Result<Vec<Value>, RunError> {
    let outputs = session.run(vec![(name.to_string(), value.clone())])?;
    Ok(outputs.into_iter().map(|(_, value)| value).collect())
}

/// Writes a constant: `float[2, 2] w = {0.5, -0.25, …}`.
fn write_constant(name: &str, dims: &[usize], number: impl Fn(usize) -> f32) -> String {
    let mut text = format!("float{dims:?} {name} = {{");
    for index in 0..dims.iter().product() {
        let comma = if index > 0 { ", " } else { "" };
        write!(text, "{comma}{}", number(index)).unwrap();
    }
    text + "}"
}

fn ops(session: &Session) -> Vec<&'static str> {
    session.steps().iter().map(|step| step.op).collect()
}

#[test]
fn only_what_is_deterministic_is_computed_ahead_of_time() {
    let graph = |op: &str| {
        format!(
            "g () => (float[2] y) <float[2] w = {{1, -1}}> {{
                a = {op} (w)
                y = Relu (a)
            }}"
        )
    };
    assert_eq!(ops(&session(&graph("Neg"), None)), Vec::<&str>::new());
    // Dropout is random by its schema, even if this form only copies.
    assert_eq!(ops(&session(&graph("Dropout"), None)), ["Dropout", "Relu"]);
}

#[test]
fn only_what_is_deterministic_is_done_once() {
    let graph = |op: &str| {
        format!("g (float[2] x) => (a, b) {{ a = {op} (x) c = {op} (x) b = MatMul (c, c) }}")
    };
    assert_eq!(ops(&session(&graph("Neg"), None)), ["Neg", "MatMul"]);
    assert_eq!(ops(&session(&graph("Dropout"), None)), ["Dropout", "Dropout", "MatMul"]);
}

#[test]
fn a_value_made_of_nothing_is_refused_before_it_is_made() {
    let fixed = "g () => (float y) {
        shape = Constant <value_ints = [1000000000]> ()
        big = ConstantOfShape (shape)
        y = ReduceSum <keepdims = 0> (big)
    }";
    let mut found = None;
    let taken = measure(|| {
        let session = session(fixed, Some(100_000_000));
        assert_eq!(session.report().made_bytes, 0);
        found = Some(session.run(vec![]).unwrap_err().to_string());
    });
    let found = found.unwrap();
    assert!(
        found.contains(
            "4000000000 bytes are needed and 0 are in use; the memory limit is 100000000"
        ) && found.contains("ConstantOfShape"),
        "{found}"
    );
    assert!(taken.bytes_max < 2_000_000, "{taken:?}");

    // A size known only from data, as large as can be expressed.
    let given = "g (int64[1] shape) => (float y) {
        big = ConstantOfShape (shape)
        y = ReduceSum <keepdims = 0> (big)
    }";
    let limited = session(given, Some(100_000_000));
    for (size, wanted) in [
        (1_000_000_000i64, "4000000000 bytes are needed"),
        (100_000_000_000_000, "400000000000000 bytes are needed"),
    ] {
        let shape = Value::Tensor(Tensor::from_vec([1], vec![size]).unwrap());
        let taken = measure(|| {
            let error = run(&limited, "shape", &shape).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
            assert!(error.contains("ConstantOfShape"), "{error}");
        });
        assert!(taken.bytes_max < 1_000_000, "{taken:?}");
    }
    let shape = Value::Tensor(Tensor::from_vec([1], vec![1000i64]).unwrap());
    assert_eq!(run(&limited, "shape", &shape).unwrap()[0], Value::Tensor(Tensor::scalar(0.0f32)));
    // Without a limit the system refuses, which is an error, too.
    let shape = Value::Tensor(Tensor::from_vec([1], vec![i64::MAX / 8]).unwrap());
    assert!(run(&session(given, None), "shape", &shape).is_err());
}

/// Checks sessions without weights. Packing alone finds floats that are halves; 0.3 is none.
#[test]
fn looking_makes_and_packs_nothing() {
    let graph = format!(
        "g (float[N, 256] x) => (y, z) <{}, int64[2] shape = {{256, 4096}}> {{
            wide = ConstantOfShape <value = float[1] {{0.3}}> (shape)
            h = MatMul (x, w)
            y = MatMul (h, wide)
            turned = Transpose <perm = [1, 0]> (w)
            double = Mul (turned, turned)
            z = MatMul (h, double)
        }}",
        write_constant("w", &[256, 256], |index| index as f32)
    );
    let real = session(&graph, None);
    let mut looked = None;
    // Parsing the text also allocates; the packed forms would take five times as much.
    measure(|| drop(compile(&graph, |options| options.only_looks = true)));
    let taken = measure(|| {
        looked = Some(compile(&graph, |options| options.only_looks = true).unwrap());
    });
    let looked = looked.unwrap();
    let (found, expected) = (looked.report(), real.report());
    assert_eq!(found.packed, 3);
    assert_eq!(
        (found.packed, found.packed_bytes, found.kept_bytes),
        (expected.packed, expected.packed_bytes, expected.kept_bytes)
    );
    assert_eq!(found.folded_bytes, expected.folded_bytes);
    assert_eq!(found.made_bytes, expected.made_bytes);
    assert!(expected.made_bytes >= 4 * 256 * (4096 + 256));
    let kernels = |session: &Session| {
        let steps = session.steps();
        let steps = steps.into_iter().map(|step| (step.place, step.kernel));
        steps.collect::<Vec<_>>()
    };
    assert_eq!(kernels(&looked), kernels(&real));
    assert!(taken.bytes_max < 4 * 256 * 4096, "{taken:?}");
    let error = run(&looked, "x", &random(1, &[2, 256])).unwrap_err();
    assert!(error.to_string().contains("built without weights"), "{error}");
}

#[test]
fn weights_that_are_made_of_stored_ones_are_made_once() {
    // Values of four times their stored size, decomposed from DequantizeLinear, are packed without
    // a limit on their number.
    let mut text = String::from("g (float[N, 512] x0) => (x8) <float s = {0.01}");
    for index in 0..8 {
        let numbers =
            write_constant(&format!("w{index}"), &[512, 512], |at| ((at + index) % 7) as f32);
        write!(text, ", uint8{}", numbers.strip_prefix("float").unwrap()).unwrap();
    }
    text += "> {";
    for index in 0..8 {
        write!(
            text,
            "c{index} = Cast <to = 1> (w{index})  m{index} = Mul (c{index}, s)
             t{index} = Transpose <perm = [1, 0]> (m{index})  x{} = MatMul (x{index}, t{index})\n",
            index + 1
        )
        .unwrap();
    }
    text += "}";
    let whole = session(&text, None);
    assert_eq!(ops(&whole), ["MatMul"; 8]);
    let packed = whole.report().made_bytes;
    assert_eq!(packed, 8 * 4 * 512 * 512);
    // One by one: they never exist unpacked all at once.
    let parse_only = measure(|| drop(compile(&text, |options| options.only_looks = true)));
    let both = measure(|| drop(session(&text, None)));
    let more = both.bytes_max - parse_only.bytes_max.min(both.bytes_max);
    assert!(more < packed as u64 + 4 * 4 * 512 * 512, "{more} for {packed}");
    // If the limit leaves no memory for them, they are computed in each run, with equal results.
    // Uses many rows, as sums of few rows have another order if B is not packed.
    let x = random(3, &[64, 512]);
    let expected = run(&whole, "x0", &x).unwrap();
    let tight = session(&text, Some(5_000_000));
    assert!(tight.report().made_bytes <= 5_000_000);
    assert!(ops(&tight).len() > 8);
    assert_eq!(run(&tight, "x0", &x).unwrap(), expected);
    let off = compile(&text, |options| options.optimization = Optimization::Off).unwrap();
    assert_eq!(run(&off, "x0", &x).unwrap(), expected);
}

#[test]
fn what_is_much_larger_than_what_is_stored_is_computed_by_runs() {
    // Each takes 16 MB, computed from 4 kB. Only four are folded; of 80 MB, none.
    let mut text = format!(
        "g (float[N, 1000] x) => (y0, y1, y2, y3, y4, y) <{}, int64[2] many = {{20000, 1000}}",
        write_constant("row", &[1000], |index| index as f32)
    );
    for index in 0..5 {
        write!(text, ", int64[2] s{index} = {{{}, 1000}}", 4000 - index).unwrap();
    }
    text += "> { all = Expand (row, many)  y = ReduceMax <keepdims = 0> (all) ";
    for index in 0..5 {
        write!(
            text,
            "e{index} = Expand (row, s{index})  r{index} = Add (e{index}, e{index})
             y{index} = ReduceMax <keepdims = 0> (r{index}) "
        )
        .unwrap();
    }
    text += "}";
    let session = session(&text, None);
    let made = session.report().made_bytes;
    assert!(made <= 64 << 20, "{made}");
    assert!(ops(&session).contains(&"Expand"));
    let outputs = run(&session, "x", &random(1, &[1, 1000])).unwrap();
    let last = |value: &Value| value.as_tensor().unwrap().item::<f32>().unwrap();
    assert_eq!(
        outputs.iter().map(last).collect::<Vec<_>>(),
        [1998.0, 1998.0, 1998.0, 1998.0, 1998.0, 999.0]
    );
}

/// Graph with a weight that repeats one number, computed and stored.
struct Twins {
    input: &'static [usize],
    weight: &'static [usize],
    op: &'static str,
    /// Node that makes the operator's operand from the computed weight.
    then: &'static str,
}

#[test]
fn fills_are_packed_to_the_same_bits() {
    let twins = |input, weight, op| Twins { input, weight, op, then: "w = Identity (f)" };
    let cases = [
        twins(&[3, 200], &[200, 170], "MatMul (x, w)"),
        twins(&[40, 200], &[200, 170], "MatMul (x, w)"),
        twins(&[5, 200], &[170, 200], "Gemm <transB = 1> (x, w)"),
        twins(&[5, 200], &[200, 170], "Gemm <alpha = 0.5> (x, w)"),
        Twins {
            then: "w = Transpose <perm = [1, 0]> (f)",
            ..twins(&[5, 170], &[200, 170], "MatMul (x, w)")
        },
        twins(&[1, 64, 9, 7], &[64, 64, 3, 3], "Conv <pads = [1, 1, 1, 1]> (x, w)"),
        twins(&[1, 192, 5, 5], &[192, 192, 1, 1], "Conv (x, w)"),
        twins(&[1, 2048, 5, 5], &[2048, 1, 3, 3], "Conv <group = 2048> (x, w)"),
        twins(&[1, 128, 6, 6], &[128, 64, 3, 3], "Conv <group = 2, strides = [2, 2]> (x, w)"),
        twins(&[1, 64, 9, 7], &[64, 64, 3, 3], "Conv <auto_pad = \"SAME_UPPER\"> (x, w)"),
    ];
    for case in cases {
        let (input, weight, op, then) = (case.input, case.weight, case.op, case.then);
        for (elem, to) in [("float", 1), ("float16", 10), ("bfloat16", 16)] {
            let is_conv = op.starts_with("Conv");
            if elem != "float" && is_conv {
                continue;
            }
            let casts = format!("x = Cast <to = {to}> (given)");
            let filled = format!(
                "g (float{input:?} given) => (y) <int64[{}] shape = {{{}}}> {{
                    {casts}
                    number = Constant <value = float[1] {{-0.37}}> ()
                    one = Cast <to = {to}> (number)
                    f = Expand (one, shape)
                    {then}
                    y = {op} }}",
                weight.len(),
                weight.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
            );
            let constant = write_constant("f", weight, |_| -0.37);
            let constant = constant.strip_prefix("float").unwrap();
            let raw = if elem == "float" { "" } else { "raw " };
            let constant = constant.replace("= {", &format!("= {raw}{{"));
            let kept = format!(
                "g (float{input:?} given) => (y) <{elem}{constant}> {{ {casts} {then} y = {op} }}"
            );
            let x = random(7, input);
            for precision in [Precision::Exact, Precision::Fast] {
                let outputs = [1, 2].map(|threads| {
                    [&filled, &kept].map(|text| {
                        let session = compile(text, |options| {
                            options.threads = Some(threads);
                            options.precision = precision;
                        });
                        let session = session.unwrap();
                        let found = ops(&session);
                        let plain = |op: &&str| !["MatMul", "Gemm", "Conv", "Cast"].contains(op);
                        // A convolution whose padding depends on its input keeps its weights.
                        assert!(!found.iter().any(plain), "{found:?} of {text:.300}");
                        run(&session, "given", &x).unwrap()
                    })
                });
                let [[first, second], [third, fourth]] = outputs;
                assert_eq!(first, second, "{op} of {elem}, {precision:?}");
                assert!(first == third && first == fourth, "{op} of {elem}, {precision:?}");
            }
        }
    }
}

#[test]
fn fills_of_one_node_are_packed_once_and_others_read_them_in_full() {
    let graph = "g (float[N, 300] x) => (y, z) <int64[2] shape = {300, 300}> {
        w = ConstantOfShape <value = float[1] {0.25}> (shape)
        a = MatMul (x, w)
        y = MatMul (a, w)
        t = Transpose (w)
        z = Sub (t, w)
    }";
    let session = session(graph, None);
    assert_eq!(session.report().packed, 1);
    let one = 4 * 300 * 300;
    // Packed once, with padded panels, and in full for the subtraction, whose result is computed
    // ahead of time.
    let made = session.report().made_bytes;
    assert!((2 * one..3 * one).contains(&made), "{made}");
    let x = Value::Tensor(Tensor::from_vec([1, 300], vec![1.0f32; 300]).unwrap());
    let outputs = run(&session, "x", &x).unwrap();
    let y = outputs[0].as_tensor().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(y, vec![75.0 * 75.0; 300]);
    let z = outputs[1].as_tensor().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(z, vec![0.0; 300 * 300]);
}

#[test]
fn a_run_takes_no_more_than_the_limit() {
    // `a` and `b` are in the arena, the sizes of `n` and `t` depend on data, `y` and `t` are
    // returned.
    let graph = "g (float[N] x) => (y, t) {
        a = Exp (x)
        b = Add (a, x)
        y = Mul (b, a)
        n = NonZero (y)
        t = Transpose (n)
    }";
    let x = random(5, &[4096]);
    let expected = run(&session(graph, None), "x", &x).unwrap();
    let fits = |limit: usize| run(&session(graph, Some(limit)), "x", &x);
    let needed = (0..).map(|step| step * 1024).find(|limit| fits(*limit).is_ok());
    let needed = needed.unwrap();
    // At most `y`, `n` and `t` of 16, 32 and 32 kB at once, and the arena.
    assert!((80 << 10..=150 << 10).contains(&needed), "{needed}");
    let limited = session(graph, Some(needed));
    for _ in 0..3 {
        assert_eq!(run(&limited, "x", &x).unwrap(), expected);
    }
    let mut refused = BTreeSet::new();
    for limit in (0..needed).step_by(4096) {
        match fits(limit).unwrap_err() {
            RunError::Node(error) => {
                assert!(error.what.contains("memory limit is"), "{error}");
                refused.insert(error.path.0[0].operator.clone());
            }
            other => panic!("{other}"),
        }
    }
    // A value that exceeds the arena, and one with memory of its own.
    assert!(refused.contains("Exp") && refused.contains("NonZero"), "{refused:?}");
}

/// Measures the smallest limit under which a graph runs, to 64 KB, and the most bytes that its run
/// allocates. Each runs in a thread of its own, as scratch memory stays with a thread.
fn counted_and_allocated(graph: &str, inputs: &[(&str, &[usize])]) -> (usize, usize) {
    let inputs: Vec<(String, Value)> = inputs
        .iter()
        .enumerate()
        .map(|(i, (name, dims))| (name.to_string(), random(i as u64, dims)))
        .collect();
    let runs = |limit: usize| session(graph, Some(limit)).run(inputs.clone()).is_ok();
    let (mut refused, mut accepted) = (0, 1 << 30);
    assert!(runs(accepted), "{graph}");
    while accepted - refused > 1 << 16 {
        let middle = refused.midpoint(accepted);
        if runs(middle) { accepted = middle } else { refused = middle }
    }
    let free = session(graph, None);
    let run = || measure(|| drop(free.run(inputs).unwrap())).bytes_max;
    let allocated = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    (accepted, usize::try_from(allocated).unwrap())
}

#[test]
fn scratch_memory_of_products_is_counted_before_it_is_taken() {
    let cases: &[(&str, &[(&str, &[usize])])] = &[
        // Both operands are packed, or one of them; few rows are read in place.
        (
            "g (float[M, K] a, float[K, N] b) => (float[M, N] y) { y = MatMul (a, b) }",
            &[("a", &[700, 900]), ("b", &[900, 300])],
        ),
        (
            "g (float[M, K] a, float[K, N] b) => (float[M, N] y) { y = MatMul (a, b) }",
            &[("a", &[1800, 2000]), ("b", &[2000, 17])],
        ),
        (
            "g (float[M, K] a, float[N, K] b) => (float[M, N] y) { y = Gemm <transB = 1> (a, b) }",
            &[("a", &[3, 500]), ("b", &[900, 500])],
        ),
        // Matrices of a batch that share the right operand are one tall matrix, gathered.
        (
            "g (float[M, H, K] a, float[K, N] b) => (float[H, M, N] y) {
                t = Transpose <perm = [1, 0, 2]> (a)
                y = MatMul (t, b)
            }",
            &[("a", &[200, 12, 300]), ("b", &[300, 100])],
        ),
        // Weights that are packed for the run, and a padded copy of the input.
        (
            "g (float[1, 200, H, W] x, float[M, 200, 3, 3] w) => (float[1, M, H, W] y) {
                y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
            }",
            &[("x", &[1, 200, 20, 20]), ("w", &[300, 200, 3, 3])],
        ),
        (
            "g (float[2, 3, H, W] x, float[8, 3, 7, 7] w) => (float[2, 8, P, Q] y) {
                y = Conv <kernel_shape = [7, 7], strides = [4, 4]> (x, w)
            }",
            &[("x", &[2, 3, 800, 800]), ("w", &[8, 3, 7, 7])],
        ),
    ];
    for (graph, inputs) in cases {
        let (counted, allocated) = counted_and_allocated(graph, inputs);
        // A chunk's panels and the lists of a run have a fixed size.
        assert!(
            allocated <= counted + (1 << 20),
            "{graph}: {allocated} allocated, {counted} counted"
        );
        assert!(
            counted <= allocated * 3 / 2 + (1 << 20),
            "{graph}: {counted} counted, {allocated} allocated"
        );
    }
}
