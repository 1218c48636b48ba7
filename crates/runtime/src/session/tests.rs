//! Tests that formulas for sizes agree with inference, and refuse what it refuses.

use sardonyx_model::{Model, NoExternalData, Type};
use sardonyx_tensor::{Buffer, DataType, Dims, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

use super::Session;
use crate::options::{Optimization, Options};
use crate::sizes::{Scope, SizeList, Sizes};
use crate::thread_pool::ThreadPool;

fn model(text: &str) -> Model {
    let text = format!("<ir_version: 10, opset_import: [\"\" : 21]>\n{text}");
    let text = Buffer::from_vec(text.into_bytes());
    parse_model(text, ParseOptions::default()).expect("the text is a model").model
}

fn session(text: &str) -> Session {
    let mut options = Options::with_threads(1);
    options.optimization = Optimization::All;
    Session::compile(&model(text), &NoExternalData, &options).expect("the model can run")
}

/// Makes types with these sizes and the declared elements.
fn types(session: &Session, sizes: &[&[i64]]) -> Vec<Option<Type>> {
    let elems = session.inputs().iter().map(|port| port.ty().and_then(Type::elem));
    let types = elems.zip(sizes);
    types.map(|(elem, sizes)| Some(Type::tensor(elem?, sizes.iter().copied()))).collect()
}

/// Makes tensors of ones.
fn ones(session: &Session, sizes: &[&[i64]]) -> Vec<(String, Value)> {
    let ports = session.inputs().iter().zip(sizes);
    ports
        .map(|(port, sizes)| {
            let dims: Dims = sizes.iter().map(|size| *size as usize).collect();
            let count: usize = dims.iter().product();
            let ones = Tensor::from_vec(&dims[..], vec![1i64; count]).expect("as many as that");
            let elem = port.ty().and_then(Type::elem).expect("a declared type");
            let ones = sardonyx_tensor::cast(&ones, elem, Default::default()).expect("numbers");
            (port.name().to_string(), Value::Tensor(ones))
        })
        .collect()
}

/// Models with sizes for their inputs; the list of formulas is made for the first.
const MODELS: [(&str, &[&[&[i64]]]); 6] = [
    // A decoder with cached values.
    (
        "g (float[B, S, 8] x, float[B, 2, P, 4] past, float[B, T] mask) => (float[] y, float[] k) {
            ws = Constant <value_ints = [8, 8]> () w = ConstantOfShape (ws)
            q0 = MatMul (x, w) shape = Shape (x)
            two = Constant <value_ints = [2, 4]> () front = Constant <value_ints = [0, 1]> ()
            begin = Gather (shape, front) target = Concat <axis = 0> (begin, two)
            q1 = Reshape (q0, target) q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k = Concat <axis = 2> (past, q) kt = Transpose <perm = [0, 1, 3, 2]> (k)
            s0 = MatMul (q, kt) axes = Constant <value_ints = [1, 2]> ()
            m = Unsqueeze (mask, axes) s1 = Add (s0, m) p = Softmax (s1) o0 = MatMul (p, k)
            o1 = Transpose <perm = [0, 2, 1, 3]> (o0) y = Reshape (o1, shape)
        }",
        &[
            &[&[1, 1, 8], &[1, 2, 5, 4], &[1, 6]],
            &[&[1, 1, 8], &[1, 2, 6, 4], &[1, 7]],
            &[&[3, 2, 8], &[3, 2, 9, 4], &[3, 11]],
            // Broadcast over all.
            &[&[3, 2, 8], &[3, 2, 9, 4], &[3, 1]],
        ],
    ),
    (
        "g (float[N, 3, H, W] x) => (float[] y) {
            ws = Constant <value_ints = [4, 3, 3, 3]> () w = ConstantOfShape (ws)
            a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w) b = Relu (a)
            c = MaxPool <kernel_shape = [2, 2]> (b) y = Flatten (c)
        }",
        &[&[&[1, 3, 8, 8]], &[&[1, 3, 9, 7]], &[&[5, 3, 32, 20]]],
    ),
    (
        "g (float[N, M] x) => (float[] y, float[] z) {
            a, b = Split <axis = 1, num_outputs = 2> (x)
            s = Constant <value_ints = [1]> () e = Constant <value_ints = [4]> ()
            axes = Constant <value_ints = [0]> ()
            c = Slice (a, s, e, axes) y = Neg (c) z = Exp (b)
        }",
        &[&[&[6, 4]], &[&[2, 7]], &[&[3, 10]]],
    ),
    // A view whose offset depends on sizes.
    (
        "g (float[N, M] x) => (float[] y) {
            one = Constant <value_ints = [1]> () zero = Constant <value_ints = [0]> ()
            r = Relu (x) shape = Shape (r) n0 = Gather (shape, zero) n = Sub (n0, one)
            l = Slice (r, n, n0, zero) y = Neg (l)
        }",
        &[&[&[6, 4]], &[&[2, 7]], &[&[3, 10]]],
    ),
    // Two inputs whose sizes only a node makes equal.
    (
        "g (float[N, 3] x, float[M, 3] y) => (float[] z) {
            a = Concat <axis = 1> (x, y) z = Relu (a)
        }",
        &[&[&[2, 3], &[2, 3]], &[&[5, 3], &[5, 3]]],
    ),
    // Sizes that depend on data are known to neither.
    (
        "g (float[N, M] x) => (float[] z) {
            i = NonZero (x) t = Transpose (i) f = Cast <to = 1> (t) z = Relu (f)
        }",
        &[&[&[2, 3]], &[&[5, 3]]],
    ),
];

#[test]
fn lists_say_what_inference_says() {
    for (text, sets) in MODELS {
        let session = session(text);
        let executable = &session.executable;
        let first = types(&session, sets[0]);
        let list = SizeList::for_inputs(Scope::main(executable), &first).expect("formulas");
        for set in sets {
            let inputs = types(&session, set);
            let inferred = Sizes::infer(Scope::main(executable), &inputs).expect("sizes that fit");
            assert_eq!(list.compute(&inputs), Some(inferred), "{set:?} for {text}");
        }
    }
}

#[test]
fn only_the_first_sizes_are_inferred() {
    for (text, sets) in MODELS {
        let session = session(text);
        let is_inferred = |set: &[&[i64]]| {
            let found = session.sizes.find(Scope::main(&session.executable), &types(&session, set));
            found.expect("sizes that fit").is_inferred
        };
        for (index, set) in sets.iter().enumerate() {
            assert_eq!(is_inferred(set), index == 0, "{set:?} for {text}");
        }
    }
}

/// Lists the names of sizes of a session's inputs, with numbers.
fn numbers(session: &Session, sizes: &[&[i64]]) -> Vec<(String, i64)> {
    let shapes = session.inputs().iter().map(|port| port.ty().and_then(Type::shape));
    let all = shapes.zip(sizes).flat_map(|(shape, sizes)| shape.into_iter().flatten().zip(*sizes));
    let mut named: Vec<(String, i64)> =
        all.filter_map(|(dim, size)| Some((dim.as_symbol()?.to_string(), *size))).collect();
    named.sort();
    named.dedup();
    named
}

/// Model with inner graphs that share names of sizes with the main graph.
const INNER: (&str, &[&[&[i64]]]) = (
    "g (float[N, 3] x, bool go, int64 turns) => (float[] y, float[] z) {
        r = Relu (x)
        y = If (go) <
            then_branch = t () => (a) { a = Neg (r) },
            else_branch = e () => (b) { b = Exp (r) }>
        z = Loop (turns, go, r) <
            body = l (int64 i, bool c, float[N, 3] v) => (bool d, float[N, 3] w) {
                d = Identity (c) w = Add (v, x)
            }>
    }",
    &[&[&[4, 3], &[], &[]]],
);

#[test]
fn fixed_sizes_are_not_inferred_again() {
    for (text, sets) in MODELS.into_iter().chain([INNER]) {
        let open = session(text);
        for set in sets {
            let inputs = types(&open, set);
            assert!(
                Sizes::from_compilation(Scope::main(&open.executable), &inputs).is_none(),
                "{text}"
            );
            let mut options = Options::with_threads(1);
            options.optimization = Optimization::All;
            options.dims = numbers(&open, set);
            let fixed = Session::compile(&model(text), &NoExternalData, &options)
                .expect("the model can run with these sizes");
            let scope = Scope::main(&fixed.executable);
            let inferred = Sizes::infer(scope, &inputs).expect("sizes that fit");
            assert_eq!(
                Sizes::from_compilation(scope, &inputs),
                Some(inferred),
                "{set:?} for {text}"
            );
        }
    }
}

/// Checks an empty tensor, another rank, and conditions that no formula expresses.
#[test]
fn what_a_list_is_not_for_is_inferred() {
    let rows: [(&str, &[&[i64]], &[bool]); 5] = [
        (
            "g (float[N, M] x) => (y) { y = Relu (x) }",
            &[&[2, 3], &[4, 3], &[0, 3], &[4, 5]],
            &[true, false, true, false],
        ),
        // Formulas are made for the first set that they hold for.
        (
            "g (float[N, M] x) => (y) { y = Relu (x) }",
            &[&[0, 3], &[1, 3], &[2, 3], &[0, 3], &[3, 3]],
            &[true, true, false, true, false],
        ),
        // Not after several for which they do not.
        (
            "g (float[N, M] x) => (y) { y = Relu (x) }",
            &[&[0, 3], &[0, 4], &[0, 5], &[2, 3], &[3, 3]],
            &[true; 5],
        ),
        (
            "g (float[] x) => (y) { y = Relu (x) }",
            &[&[2, 3], &[4, 3], &[4], &[5, 5]],
            &[true, false, true, false],
        ),
        (
            "g (float[N, M] x) => (y) { z = Squeeze (x) y = Relu (z) }",
            &[&[2, 3], &[4, 3], &[4, 1]],
            &[true, true, true],
        ),
    ];
    for (text, sets, expected) in rows {
        let session = session(text);
        for (set, expected) in sets.iter().zip(expected) {
            let elem = DataType::Float;
            let inputs = [Some(Type::tensor(elem, set.iter().copied()))];
            let found = session
                .sizes
                .find(Scope::main(&session.executable), &inputs)
                .expect("sizes that fit");
            assert_eq!(found.is_inferred, *expected, "{set:?} for {text}");
            let inferred =
                Sizes::infer(Scope::main(&session.executable), &inputs).expect("sizes that fit");
            assert_eq!(found.sizes, inferred, "{set:?} for {text}");
        }
    }
}

/// Checks that errors equal those of a session that sees the sizes first.
#[test]
fn errors_do_not_depend_on_earlier_sizes() {
    let rows: [(&str, [&[&[i64]]; 3]); 9] = [
        (
            "g (float[N, 3] x, float[M, 3] y) => (z) { z = Concat <axis = 1> (x, y) }",
            [&[&[2, 3], &[2, 3]], &[&[5, 3], &[5, 3]], &[&[5, 3], &[4, 3]]],
        ),
        (
            "g (float[N, A] x, float[B] y) => (z) { z = Add (x, y) }",
            [&[&[2, 3], &[3]], &[&[5, 3], &[1]], &[&[5, 3], &[2]]],
        ),
        (
            "g (float[N, 6] x) => (z) { s = Constant <value_ints = [-1, 4]> () z = Reshape (x, s) }",
            [&[&[2, 6]], &[&[4, 6]], &[&[3, 6]]],
        ),
        (
            "g (float[N, 3, H, W] x) => (y) {
                ws = Constant <value_ints = [4, 3, 3, 3]> () w = ConstantOfShape (ws)
                y = Conv (x, w)
            }",
            [&[&[2, 3, 8, 8]], &[&[2, 3, 9, 9]], &[&[2, 3, 1, 9]]],
        ),
        (
            "g (float[N, M] x) => (y) {
                a = Constant <value_ints = [0]> () r = Relu (x) z = Squeeze (r, a) y = Neg (z)
            }",
            [&[&[1, 8]], &[&[1, 9]], &[&[2, 9]]],
        ),
        (
            "g (float[N, M] x) => (y) {
                i = Constant <value_int = 3> () r = Relu (x) z = Gather (r, i) y = Neg (z)
            }",
            [&[&[4, 8]], &[&[5, 9]], &[&[3, 9]]],
        ),
        (
            "g (float[N, M] x) => (y) {
                s = Constant <value_ints = [2, 3]> () r = Relu (x)
                a, b = Split <axis = 1> (r, s) y = Neg (a)
            }",
            [&[&[1, 5]], &[&[2, 5]], &[&[2, 6]]],
        ),
        // No condition: inference explains the failure of the step better.
        (
            "g (float[N, M] x, int64[K] depth) => (y) {
                i = Cast <to = 7> (x) d = Constant <value_int = 3> () v = Cast <to = 1> (depth)
                y = OneHot (i, d, v)
            }",
            [&[&[1, 5], &[2]], &[&[2, 5], &[2]], &[&[2, 6], &[3]]],
        ),
        (
            "g (float[N] x, float[N] y, float[N, K] z) => (w) {
                a = Add (x, y) b = Mul (a, z) w = Relu (b)
            }",
            [&[&[5], &[5], &[5, 5]], &[&[2], &[2], &[2, 2]], &[&[3], &[3], &[3, 2]]],
        ),
    ];
    for (text, [first, second, bad]) in rows {
        let (used, fresh) = (session(text), session(text));
        for set in [first, second] {
            used.run(ones(&used, set)).expect("sizes that fit");
        }
        let inputs = types(&used, second);
        let found =
            used.sizes.find(Scope::main(&used.executable), &inputs).expect("sizes that fit");
        assert!(!found.is_inferred, "{text}");
        let say = |session: &Session| {
            let error = session.run(ones(session, bad)).map(|_| ()).expect_err(text);
            error.to_string()
        };
        assert_eq!(say(&used), say(&fresh), "{text}");
    }
}

/// Checks that sessions share the threads of the process, or those of a pool, whatever their
/// number.
#[test]
fn sessions_share_their_threads() {
    let model = model("g (float[N] x) => (y) { y = Relu (x) }");
    // More than there are processors, so that no other test starts more.
    let most = sardonyx_kernels::Pool::available_threads() + 2;
    let session = |threads, pool: Option<&ThreadPool>| {
        let mut options = Options::with_threads(threads);
        options.pool = pool.cloned();
        Session::compile(&model, &NoExternalData, &options).expect("the model can run")
    };
    let shared: Vec<Session> = (2..=most).rev().map(|threads| session(threads, None)).collect();
    for (session, threads) in shared.iter().zip((2..=most).rev()) {
        assert_eq!((session.threads(), session.pool.workers()), (threads, most - 1));
    }
    let pool = ThreadPool::new(3);
    for threads in [1, 2, 3, most] {
        let session = session(threads, Some(&pool));
        assert_eq!((session.threads(), session.pool.workers()), (threads.min(3), 2));
    }
    assert_eq!(session(1, None).pool.workers(), 0);
}

#[test]
fn the_number_of_threads_is_bounded() {
    let model = model("g (float[N] x) => (y) { y = Relu (x) }");
    for threads in [1025, 1 << 31, usize::MAX] {
        for pool in [None, Some(ThreadPool::new(2))] {
            let mut options = Options::with_threads(threads);
            options.pool = pool;
            let error = Session::compile(&model, &NoExternalData, &options).expect_err("refused");
            let expected = format!("the number of threads is {threads}, which is above 1024");
            assert_eq!(error.to_string(), expected);
        }
    }
}
