//! Tests of random numbers over whole runs: seeds of nodes and of sessions, and draws that must not
//! be folded, merged, or shared by iterations.

use sardonyx_model::NoExternalData;
use sardonyx_runtime::{CompileError, Optimization, Options, Session};
use sardonyx_tensor::{Bool8, Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn compile(graph: &str, options: &Options) -> Result<Session, CompileError> {
    let text = format!("<ir_version: 10, opset_import: [\"\": 22]> {graph}");
    let text = Buffer::from_vec(text.into_bytes());
    let model = parse_model(text, ParseOptions::default()).unwrap().model;
    Session::compile(&model, &NoExternalData, options)
}

fn options(threads: usize, seed: Option<u64>) -> Options {
    let mut options = Options::with_threads(threads);
    options.seed = seed;
    options
}

/// Runs a session, and returns all outputs as floats.
fn run(session: &Session, inputs: &[(&str, Tensor)]) -> Vec<Vec<f32>> {
    let inputs = inputs.iter().map(|(name, x)| (name.to_string(), Value::Tensor(x.clone())));
    let outputs = session.run(inputs.collect()).unwrap();
    let floats = outputs.into_iter().map(|(_, value)| match value {
        Value::Tensor(tensor) => tensor.to_vec().unwrap(),
        other => panic!("{other:?}"),
    });
    floats.collect()
}

/// Computes mean and variance.
fn moments(numbers: &[f32]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let variance = numbers.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance)
}

const SEEDED: &str = "g () => (float[3] a, float[3] b, float[50001] c) {
    b = RandomNormal <shape = [3], seed = 42.0> ()
    a = RandomUniform <shape = [3], seed = 42.0> ()
    c = RandomNormal <shape = [50001], seed = 42.0> ()
}";

#[test]
fn a_seed_of_a_node_gives_the_numbers_of_numpy_in_every_run() {
    // MODEL-16+
    let mut before: Option<Vec<Vec<f32>>> = None;
    for (threads, seed) in [(1, None), (2, None), (2, Some(7))] {
        let session = compile(SEEDED, &options(threads, seed)).unwrap();
        for _ in 0..2 {
            let found = run(&session, &[]);
            assert_eq!(found[0], [0.374_540_12, 0.950_714_3, 0.731_993_9]);
            assert_eq!(found[1], [0.496_714_15, -0.138_264_3, 0.647_688_54]);
            assert_eq!(found[1], found[2][..3]);
            assert_eq!(*before.get_or_insert_with(|| found.clone()), found);
        }
    }
}

#[test]
fn without_a_seed_every_run_draws_anew() {
    let graph = "g () => (float[60000] a, float[60000] b) {
        a = RandomUniform <shape = [60000], low = -1.0, high = 3.0> ()
        b = RandomNormal <shape = [60000], mean = 5.0, scale = 2.0> ()
    }";
    let session = compile(graph, &options(2, None)).unwrap();
    let (first, second) = (run(&session, &[]), run(&session, &[]));
    assert_ne!(first, second);
    assert_ne!(run(&compile(graph, &options(2, None)).unwrap(), &[]), first);
    for found in [first, second] {
        assert!(found[0].iter().all(|x| (-1.0..3.0).contains(x)));
        let (mean, variance) = moments(&found[0]);
        assert!((mean - 1.0).abs() < 0.03 && (variance - 4.0 / 3.0).abs() < 0.03);
        let (mean, variance) = moments(&found[1]);
        assert!((mean - 5.0).abs() < 0.05 && (variance - 4.0).abs() < 0.15);
    }
}

#[test]
fn a_seed_of_the_session_gives_the_same_runs() {
    let draws = |threads, seed, change: &dyn Fn(&mut Options)| {
        let graph = "g (float[70000] x) => (y, z) {
            a = RandomUniformLike (x)
            unread = RandomNormalLike (x)
            y = Add (a, x)
            t = Constant <value = bool {1}> ()
            z = Dropout (x, , t)
        }";
        let mut options = options(threads, Some(seed));
        change(&mut options);
        let session = compile(graph, &options).unwrap();
        let x = Tensor::from_vec([70_000], vec![1.0f32; 70_000]).unwrap();
        [run(&session, &[("x", x.clone())]), run(&session, &[("x", x)])]
    };
    let found = draws(1, 5, &|_| ());
    assert_ne!(found[0], found[1]);
    assert_eq!(draws(2, 5, &|_| ()), found);
    // The rest of the model, and its optimization, have no effect.
    assert_eq!(draws(2, 5, &|options| options.optimization = Optimization::Off), found);
    assert_ne!(draws(2, 6, &|_| ()), found);
    let kept = found[0][1].iter().filter(|x| **x == 2.0).count();
    assert!(kept.abs_diff(35_000) < 800, "{kept}");
}

#[test]
fn equal_nodes_draw_different_numbers() {
    let graph = "g () => (float[9] a, float[9] b) {
        a = RandomNormal <shape = [9]> ()
        b = RandomNormal <shape = [9]> ()
    }";
    let session = compile(graph, &options(1, None)).unwrap();
    assert_eq!(session.steps().len(), 2);
    let found = run(&session, &[]);
    assert_ne!(found[0], found[1]);
}

#[test]
fn constants_make_no_random_node_constant() {
    let graph = "g () => (float[9] a, float[9] b, float[9] c)
        <float[9] p = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, bool t = {1}> {
        a = RandomUniformLike (p)
        b = Dropout (p, , t)
        d = Bernoulli <dtype = 11> (a)
        c = Cast <to = 1> (d)
    }";
    let session = compile(graph, &options(1, None)).unwrap();
    assert_eq!(session.steps().len(), 4);
    let runs: Vec<_> = (0..20).map(|_| run(&session, &[])).collect();
    for output in 0..3 {
        assert!(runs.iter().any(|run| run[output] != runs[0][output]), "{output}");
    }
}

#[test]
fn every_iteration_of_a_loop_draws_anew() {
    let graph = |seed: &str| {
        format!(
            "g (int64 n, bool on) => (float[n, 4] y) {{
                y = Loop (n, on) <body = body (int64 i, bool k) => (bool m, float[4] r) {{
                    m = Identity (k)
                    r = RandomNormal <shape = [4]{seed}> ()
                }}>
            }}"
        )
    };
    let inputs = [("n", Tensor::scalar(5i64)), ("on", Tensor::scalar(Bool8::from(true)))];
    let session = compile(&graph(""), &options(1, Some(1))).unwrap();
    let (first, second) = (run(&session, &inputs), run(&session, &inputs));
    let mut iterations: Vec<Vec<f32>> =
        first.iter().chain(&second).flat_map(|y| y.chunks(4).map(<[f32]>::to_vec)).collect();
    iterations.sort_by(|a, b| a[0].total_cmp(&b[0]));
    iterations.dedup();
    assert_eq!(iterations.len(), 10);
    let again = compile(&graph(""), &options(2, Some(1))).unwrap();
    assert_eq!(run(&again, &inputs), first);
    // A node with a seed draws the same numbers whenever it runs.
    let session = compile(&graph(", seed = 42.0"), &options(1, None)).unwrap();
    let found = run(&session, &inputs);
    assert!(found[0].chunks(4).all(|iteration| iteration == &found[0][..4]));
    assert_eq!(found[0][0], 0.496_714_15);
}

#[test]
fn whether_a_dropout_trains_may_be_an_input() {
    let graph = "g (float[4] x, float r, bool t) => (float[4] y, bool[4] m) {
        y, kept = Dropout <seed = 0> (x, r, t)
        m = Identity (kept)
    }";
    let session = compile(graph, &options(1, None)).unwrap();
    let x = Tensor::from_vec([4], vec![1.0f32, -2.0, 3.0, 4.0]).unwrap();
    let run = |ratio: f32, trains: bool| {
        let (ratio, trains) = (Tensor::scalar(ratio), Tensor::scalar(Bool8::from(trains)));
        let inputs = [("x", x.clone()), ("r", ratio), ("t", trains)];
        let inputs = inputs.map(|(name, tensor)| (name.to_string(), Value::Tensor(tensor)));
        session.run(inputs.into())
    };
    let of = |ratio, trains| {
        let outputs = run(ratio, trains).unwrap();
        match (&outputs[0].1, &outputs[1].1) {
            (Value::Tensor(y), Value::Tensor(mask)) => {
                (y.to_vec::<f32>().unwrap(), mask.bytes().to_vec())
            }
            other => panic!("{other:?}"),
        }
    };
    // `RandomState(0).rand(4)` is 0.5488, 0.7152, 0.6028, 0.5449.
    let scale = 1.0 / (1.0 - 0.6f32);
    assert_eq!(of(0.6, true), (vec![0.0, -2.0 * scale, 3.0 * scale, 0.0], vec![0, 1, 1, 0]));
    for kept in [of(0.0, true), of(0.6, false), of(1.5, false)] {
        assert_eq!(kept, (vec![1.0, -2.0, 3.0, 4.0], vec![1; 4]));
    }
    let refused = run(1.5, true).unwrap_err().to_string();
    assert!(
        refused.contains("the ratio is 1.5, but must be at least 0 and less than 1"),
        "{refused}"
    );
}

#[test]
fn seeds_that_numpy_refuses_are_refused() {
    for seed in ["-1.0", "4294967296.0"] {
        let graph =
            format!("g () => (float[1] a) {{ a = RandomNormal <shape = [1], seed = {seed}> () }}");
        let refused = compile(&graph, &options(1, None)).unwrap_err().to_string();
        assert!(refused.contains("attribute 'seed' is"), "{refused}");
    }
}

/// Checks MODEL-16-: the seed of a session has no effect on models that draw no numbers.
#[test]
fn seeds_change_nothing_where_nothing_is_drawn() {
    let graph = "g () => (float[3] y) <float[3] w = {1, -2, 0.5}> { a = Softmax (w) y = Tanh (a) }";
    let run = |seed| {
        let outputs = compile(graph, &options(1, seed)).unwrap().run(Vec::new()).unwrap();
        outputs[0].1.clone().into_tensor().unwrap()
    };
    let first = run(Some(1));
    for seed in [Some(2), None] {
        assert!(run(seed).bit_eq(&first));
    }
}
