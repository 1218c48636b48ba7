//! Tests of epilogue fusion: a product absorbs the operations after it in the order that kernels
//! support, and leaves all others to steps of their own. Each graph is compared with its nodes run
//! one by one.

use crate::both_ways::{
    Both, Numbers, bits, check, check_equal, compile, complete, expose_values, inputs,
    run_one_by_one,
};
use sardonyx_runtime::Optimization;
use sardonyx_tensor::Tensor;

const SIZES: [&[(&str, usize)]; 4] =
    [&[("N", 2), ("S", 5)], &[("N", 3), ("S", 16)], &[("N", 1), ("S", 1)], &[("N", 0), ("S", 3)]];

fn graph(body: &str) -> String {
    let numbers = |count: usize, seed: u64| {
        let numbers = Numbers::new(seed).floats(count);
        let texts: Vec<String> = numbers.iter().map(f32::to_string).collect();
        texts.join(", ")
    };
    format!(
        "g (float[N, S, 12] x, float[N, S, 8] r, float[S, 8] s, float[N, 1, 8] n, float[8] v, float[N, S, 1] c) => (y) \
         <float[12, 8] w = {{{}}}, float[8, 8] u = {{{}}}, float[8] b = {{{}}}, float[1, 8] b1 = {{{}}}, \
         float half = {{0.5}}, float[1, 1, 1, 1] deep = {{0.5}}, float[1] three = {{3}}, int64[3] same = {{0, 0, 8}}, \
         int64[2] rows = {{-1, 8}}, int64[4] parts = {{0, 0, 2, 4}}, int64[1] flat = {{-1}}, int64[1] last = {{-1}}, \
         float low = {{-0.25}}, float high = {{0.75}}, int64[2] deeprows = {{-1, 12}}> {{ p = MatMul (x, w) {body} }}",
        numbers(96, 1),
        numbers(64, 2),
        numbers(8, 3),
        numbers(8, 4),
    )
}

/// Lists the operations that products and convolutions absorbed. Other fusions are in
/// `pointwise.rs`.
fn list_fused(both: &Both) -> Vec<(String, String)> {
    let fused = both.fused.fused_steps().into_iter();
    fused.filter(|(by, _)| ["MatMul", "Gemm", "Conv"].iter().any(|op| by.contains(op))).collect()
}

/// Runs a graph and checks the number of steps that products absorbed.
#[track_caller]
fn check_fused(body: &str, expected: usize) {
    let both = check(&graph(body), &SIZES, 1e-5);
    let fused = list_fused(&both);
    assert_eq!(fused.len(), expected, "{fused:?}\n{}\n{body}", both.listing());
}

#[test]
fn what_follows_in_order_is_taken_over() {
    for (body, expected) in [
        ("y = Add (p, b)", 1),
        ("y = Add (b1, p)", 1),
        ("y = Add (v, p)", 1),
        ("y = Add (p, r)", 1),
        ("y = Mul (p, r)", 1),
        ("y = Sum (r, p)", 1),
        ("y = Mul (p, half)", 1),
        ("y = Mul (three, p)", 1),
        ("y = Relu (p)", 1),
        ("y = Gelu (p)", 1),
        ("y = Tanh (p)", 1),
        ("y = Clip (p, low, high)", 1),
        ("y = Clip (p, , high)", 1),
        (
            "a = Mul (p, half) d = Mul (a, three) e = Add (d, b) f = Add (e, r) g1 = Gelu (f) y = Mul (g1, r)",
            6,
        ),
        ("a = Add (p, r) d = Add (b, a) y = Relu (d)", 3),
        ("a = Sigmoid (p) y = Mul (r, a)", 2),
        // The other operand is only known after the product.
        ("e = Exp (r) a = Add (p, e) y = Relu (a)", 2),
        ("e = Exp (r) f = Neg (e) a = Mul (p, f) y = Neg (a)", 1),
        ("a = Add (p, b) e = Exp (r) d = Add (e, a) f = Abs (r) y = Mul (f, d)", 3),
        // An input of the product is the other operand.
        ("q = MatMul (r, u) a = Add (q, r) y = Add (a, p)", 2),
        ("q = MatMul (r, u) a = Mul (r, q) y = Mul (a, p)", 2),
        // A product is the other operand of another one.
        ("q = MatMul (r, u) y = Add (p, q)", 1),
        ("q = MatMul (p, u) a = Add (q, b) d = Relu (a) y = Add (d, r)", 2),
    ] {
        check_fused(body, expected);
    }
}

#[test]
fn other_orders_are_left() {
    for (body, expected) in [
        // Not linear after an activation or a factor.
        ("a = Relu (p) y = Add (a, b)", 1),
        ("a = Relu (p) y = Add (a, r)", 1),
        ("a = Relu (p) y = Mul (a, half)", 1),
        ("a = Relu (p) y = Tanh (a)", 1),
        ("a = Mul (p, r) y = Add (a, b)", 1),
        ("a = Mul (p, r) y = Relu (a)", 1),
        ("a = Mul (p, r) y = Mul (a, r)", 1),
        ("a = Add (p, b) y = Mul (a, half)", 1),
        ("a = Add (p, r) y = Mul (a, half)", 1),
        // One stage of each kind.
        ("a = Add (p, b) y = Add (a, v)", 1),
        ("a = Add (p, r) y = Add (a, r)", 1),
        // A value with other readers, also as both operands, or as an output.
        ("y = Add (p, p)", 0),
        ("y = Mul (p, p)", 0),
        ("a = Relu (p) y = Add (a, p)", 0),
        ("a = Relu (p) d = Neg (p) y = Add (a, d)", 0),
        ("f = Reshape (p, same) y = Add (f, p)", 0),
        // The product is the lower limit.
        ("m = ReduceMin <keepdims = 0> (p) y = Clip (r, m, high)", 0),
        ("y = Sub (p, r)", 0),
        ("y = Sum (p, r, r)", 0),
        ("y = Max (p, r)", 0),
        ("y = Div (r, p)", 0),
        ("y = Pow (half, p)", 0),
    ] {
        check_fused(body, expected);
    }
    let output = graph("y = Relu (p)").replace("=> (y)", "=> (y, p)");
    assert!(list_fused(&check(&output, &SIZES, 1e-5)).is_empty());
}

#[test]
fn what_stretches_is_left() {
    for body in [
        // More axes than the product, fewer rows, one column, one row for each batch.
        "y = Mul (p, deep)",
        "y = Add (p, deep)",
        "y = Add (p, s)",
        "y = Add (p, n)",
        "y = Add (n, p)",
        "y = Add (p, c)",
        "y = Mul (p, c)",
        "y = Mul (p, v)",
        "y = Mul (b, p)",
        "y = Add (p, half)",
        "y = Add (p, three)",
        "e = Unsqueeze (r, last) f = Reshape (e, parts1) parts1 = Identity (parts) g1 = ReduceMax (f, last) \
         h = Reshape (g1, rows2) rows2 = Identity (rows) k = Unsqueeze (p, last) y = Add (k, v)",
    ] {
        let body = body.replace(
            "f = Reshape (e, parts1) parts1 = Identity (parts) g1 = ReduceMax (f, last) h = \
                                 Reshape (g1, rows2) rows2 = Identity (rows) ",
            "",
        );
        let both = check(&graph(&body), &SIZES, 1e-5);
        assert!(list_fused(&both).is_empty(), "{}\n{body}", both.listing());
    }
    // The product is broadcast.
    for (product, other) in
        [("1, S, 12", "N, S, 8"), ("N, 1, 12", "N, S, 8"), ("S, 12", "N, S, 8"), ("T, 12", "S, 8")]
    {
        let graph = format!(
            "g (float[{product}] x, float[{other}] r, float[12, 8] w) => (y, z) {{ p = MatMul (x, w) y = Add (p, r) \
             q = MatMul (x, w) z = Mul (r, q) }}"
        );
        let sizes: [&[(&str, usize)]; 2] =
            [&[("N", 2), ("S", 5), ("T", 1)], &[("N", 1), ("S", 1), ("T", 1)]];
        let both = check(&graph, &sizes, 1e-5);
        assert!(list_fused(&both).is_empty(), "{}\n{graph}", both.listing());
    }
    // A product of one column, and a bias of many.
    let graph = "g (float[N, 12] x, float[12, 1] w, float[8] b) => (y) { p = MatMul (x, w) y = Add (p, b) }";
    let both = check(graph, &[&[("N", 3)]], 1e-5);
    assert!(list_fused(&both).is_empty());
}

#[test]
fn reshapes_do_not_stand_between() {
    for (body, expected) in [
        ("f = Reshape (p, rows) y = Add (f, b)", 1),
        (
            "f = Reshape (p, rows) g1 = Reshape (f, rows) a = Add (g1, b) h = Relu (a) y = Unsqueeze (h, last)",
            2,
        ),
        ("a = Add (p, b) f = Reshape (a, parts) y = Relu (f)", 2),
        (
            "a = Add (p, b) f = Reshape (a, parts) d = Relu (f) q = Reshape (r, parts) e = Mul (d, q) y = Reshape (e, \
             same)",
            3,
        ),
        ("q = Reshape (r, rows) f = Reshape (p, rows) y = Add (f, q)", 1),
        ("f = Flatten <axis = 2> (p) q = Flatten <axis = 2> (r) a = Add (q, f) y = Gelu (a)", 2),
        // The last axis is another one.
        ("f = Reshape (p, parts) y = Add (f, four)", 0),
        ("f = Reshape (p, flat) y = Mul (f, half)", 1),
        ("f = Reshape (p, parts) a = Add (f, four) g1 = Reshape (a, same) y = Add (g1, b)", 0),
        // A permutation is not a reshape.
        ("t = Transpose <perm = [1, 0, 2]> (p) y = Add (t, b)", 0),
        ("t = Transpose <perm = [1, 0, 2]> (p) y = Relu (t)", 0),
    ] {
        let graph =
            graph(body).replace("float half =", "float[4] four = {1, 2, 3, 4}, float half =");
        let both = check(&graph, &SIZES[..3], 1e-5);
        let found = list_fused(&both);
        assert_eq!(found.len(), expected, "{found:?}\n{}\n{body}", both.listing());
    }
}

#[test]
fn the_other_operand_may_be_a_view() {
    for body in [
        "t = Transpose <perm = [1, 0, 2]> (r) t1 = Transpose <perm = [1, 0, 2]> (t) y = Add (p, t1)",
        "e = Exp (r) q, q1 = Split <axis = 2, num_outputs = 2> (e) a = Concat <axis = 2> (q1, q) y = Add (p, a)",
        "e = Concat <axis = 2> (r, x) q = Slice (e, zero, eight, last) a = Add (p, q) y = Relu (a)",
        "e = Concat <axis = 2> (r, x) q = Slice (e, zero, eight, last) a = Gelu (p) y = Mul (q, a)",
        "q = Expand (n, wide) a = Add (p, q) y = Relu (a)",
        "e = Transpose <perm = [1, 0, 2]> (r) q = Exp (e) t = Transpose <perm = [1, 0, 2]> (q) a = Add (p, t) y = Mul \
         (a, t)",
        "e = Exp (x) q = Slice (e, zero, eight, last) m = MatMul (e, w) a = Add (m, q) d = Relu (a) y = Add (d, p)",
        "g1 = Gather <axis = 0> (two, i0) a = Add (p, g1) y = Relu (a)",
    ] {
        let graph = graph(body).replace(
            "float half =",
            "int64[1] zero = {0}, int64[1] eight = {8}, int64[3] wide = {1, 5, 1}, float[2, 8] two = {1, 2, 3, 4, 5, \
             6, 7, 8, \
             9, 10, 11, 12, 13, 14, 15, 16}, int64 i0 = {1}, float half =",
        );
        let sizes = if body.contains("wide") { &SIZES[..1] } else { &SIZES[..] };
        check(&graph, sizes, 1e-5);
    }
}

#[test]
fn each_product_of_a_batch_has_its_own_part() {
    // Matrices on both sides, so that the batch is not one tall product.
    for (op, expected) in [("Add", 1), ("Mul", 1)] {
        let graph = format!(
            "g (float[N, 4, S] a, float[N, S, 6] b, float[N, 4, 6] r) => (y) {{ p = MatMul (a, b) y = {op} (p, r) }}"
        );
        let both = check(&graph, &SIZES, 1e-5);
        assert_eq!(list_fused(&both).len(), expected, "{}", both.listing());
    }
}

#[test]
fn convolutions_and_general_products_have_tails_as_well() {
    let numbers = |count: usize| {
        let numbers: Vec<String> =
            Numbers::new(9).floats(count).iter().map(f32::to_string).collect();
        numbers.join(", ")
    };
    let conv = |body: &str| {
        format!(
            "g (float[N, 4, S, 6] x, float[N, 4, S, 6] r, float[6] v, float[N, 4, 1, 1] c) => (y) \
             <float[4, 4, 3, 3] w = {{{}}}, float[4] b = {{1, 2, 3, 4}}, float half = {{0.5}}, float six = {{6}}, \
             float zero = {{0}}> {{ p = Conv <pads = [1, 1, 1, 1]> (x, w, b) {body} }}",
            numbers(144)
        )
    };
    for (body, expected) in [
        ("y = Relu (p)", 1),
        ("a = Add (p, r) y = Relu (a)", 2),
        ("a = Add (r, p) y = Clip (a, zero, six)", 2),
        ("a = Add (p, x) y = Add (a, r)", 1),
        ("y = Add (p, v)", 0),
        ("y = Add (p, c)", 0),
        ("y = Mul (p, half)", 1),
        ("y = Add (p, half)", 1),
        ("y = Mul (p, c)", 0),
        ("y = Mul (p, r)", 1),
        ("y = HardSwish (p)", 1),
        ("y = LeakyRelu <alpha = 0.3> (p)", 1),
        ("y = HardSigmoid (p)", 1),
        ("y = Gelu (p)", 1),
        ("y = Tanh (p)", 1),
        ("y = Elu (p)", 0),
        ("s = Sigmoid (p) y = Mul (p, s)", 1),
        ("s = Sigmoid (p) y = Mul (r, s)", 2),
        ("a = Mul (p, half) b1 = Add (a, r) s = Gelu (b1) y = Mul (x, s)", 4),
        ("a = Add (p, r) y = Mul (a, half)", 1),
    ] {
        let both = check(&conv(body), &SIZES[..3], 1e-5);
        assert_eq!(list_fused(&both).len(), expected, "{}\n{body}", both.listing());
    }
    let gemm = |c: &str, body: &str| {
        format!(
            "g (float[N, 12] x, float[N, 8] r, float[N, 8] c2, float[8] c1) => (y) <float[8, 12] w = {{{}}}, \
             float[8] b = {{1, 2, 3, 4, 5, 6, 7, 8}}, float half = {{0.5}}> {{ \
             p = Gemm <transB = 1, alpha = 0.7, beta = 0.3> (x, w{c}) {body} }}",
            numbers(96)
        )
    };
    for c in ["", ", b", ", c1", ", c2"] {
        for (body, expected) in [
            ("y = Relu (p)", 1),
            ("a = Add (p, r) y = Gelu (a)", 2),
            ("y = Mul (p, r)", 1),
            ("y = Add (p, b)", usize::from(c.is_empty())),
            ("y = Mul (p, half)", usize::from(c.is_empty())),
            (
                "a = Add (p, b) d = Add (a, r) e = Tanh (d) y = Mul (e, r)",
                if c.is_empty() { 4 } else { 0 },
            ),
        ] {
            let both = check(&gemm(c, body), &SIZES, 1e-5);
            assert_eq!(list_fused(&both).len(), expected, "{}\n{c}: {body}", both.listing());
        }
    }
}

/// Convolutions of four channels, depthwise, of two groups, and some whose weights are packed at
/// run time, with the channels of their output.
const CONVOLUTIONS: [(&str, usize); 6] = [
    ("p = Conv <pads = [1, 1, 1, 1]> (x, w)", 6),
    ("p = Conv <pads = [1, 1, 1, 1]> (x, w, b)", 6),
    ("p = Conv <pads = [1, 1, 1, 1], group = 4> (x, d, b)", 4),
    ("p = Conv <pads = [1, 1, 1, 1], group = 2> (x, g, b)", 6),
    ("p = Conv <auto_pad = \"SAME_UPPER\", strides = [2, 2]> (x, w, b)", 6),
    ("p = Conv <pads = [1, 1, 1, 1]> (x, z, b)", 6),
];

#[test]
fn convolutions_take_over_what_happens_to_channels() {
    let list = |count: usize, seed: u64| {
        let numbers = Numbers::new(seed).floats(count);
        let texts: Vec<String> = numbers.iter().map(f32::to_string).collect();
        texts.join(", ")
    };
    let graph = |conv: &str, channels: usize, body: &str| {
        let vector = |name: &str, seed: u64| {
            format!("float[{channels}] {name} = {{{}}}", list(channels, seed))
        };
        let three = |name: &str, seed: u64| {
            format!("float[{channels}, 1, 1] {name} = {{{}}}", list(channels, seed))
        };
        let positive: Vec<String> =
            Numbers::new(7).floats(channels).iter().map(|x| (x + 1.5).to_string()).collect();
        format!(
            "g (float[N, 4, S, 6] x, float[6, 4, 3, 3] z, float[{channels}, 1, 1] given) => (y) \
             <float[6, 4, 3, 3] w = {{{}}}, float[4, 1, 3, 3] d = {{{}}}, float[6, 2, 3, 3] g = {{{}}}, {}, {}, {}, \
             {}, \
             float[{channels}] variance = {{{}}}, {}, {}, float[1, {channels}, 1, 1] deep = {{{}}}, float half = \
             {{0.5}}> \
             {{ {conv} {body} }}",
            list(216, 1),
            list(36, 2),
            list(108, 3),
            vector("b", 4),
            vector("gamma", 5),
            vector("beta", 6),
            vector("mean", 8),
            positive.join(", "),
            three("s", 9),
            three("t", 10),
            list(channels, 11),
        )
    };
    let has_bias = |conv: &str| conv.contains(", b)");
    for (conv, channels) in CONVOLUTIONS {
        for (body, expected) in [
            ("y = BatchNormalization (p, gamma, beta, mean, variance)", 1),
            ("n = BatchNormalization (p, gamma, beta, mean, variance) y = Relu (n)", 2),
            (
                "n = BatchNormalization (p, gamma, beta, mean, variance) f = Sigmoid (n) y = Mul (n, f)",
                2,
            ),
            (
                "a = Add (p, t) n = BatchNormalization (a, gamma, beta, mean, variance) y = Gelu (n)",
                3,
            ),
            ("y = BatchNormalization (p, gamma, beta, mean, given1) given1 = Squeeze (given)", 0),
            ("y = Mul (p, s)", 1),
            ("y = Mul (deep, p)", 1),
            ("a = Mul (p, s) y = Add (a, t)", 2),
            ("a = Add (p, t) c = Mul (a, s) e = Add (half, c) f = Mul (e, half) y = Tanh (f)", 5),
            ("a = Add (p, deep) y = HardSwish (a)", 2),
            ("y = Add (p, given)", usize::from(!has_bias(conv))),
            ("a = Mul (p, s) y = Add (a, given)", 1 + usize::from(!has_bias(conv))),
            ("a = Add (p, given) y = Mul (a, s)", usize::from(!has_bias(conv))),
            ("y = Mul (p, given)", 0),
            // The function comes in between.
            ("a = Relu (p) y = BatchNormalization (a, gamma, beta, mean, variance)", 1),
        ] {
            let graph = graph(conv, channels, body);
            let sizes: [&[(&str, usize)]; 3] =
                [&[("N", 2), ("S", 5)], &[("N", 1), ("S", 14)], &[("N", 3), ("S", 1)]];
            let both = check(&graph, &sizes, 1e-5);
            let found = list_fused(&both);
            assert_eq!(found.len(), expected, "{found:?}\n{}\n{graph}", both.listing());
            for threads in [2, 3, 8] {
                let session = compile(&both.text, Optimization::All, threads);
                let given = both.inputs(sizes[1], 5);
                let expected = bits(&both.fused.run(given.clone()).unwrap());
                assert_eq!(expected, bits(&session.run(given).unwrap()), "{}", both.text);
            }
        }
    }
}

#[test]
fn convolutions_over_four_axes_read_a_constant_bias() {
    let graph = "g (float[N, 1, 2, 2, 2, 2] x) => (y) <float[2, 1, 1, 1, 1, 1] w = {2, 3}, float[2] b = {0.5, 1}> \
                 { p = Conv (x, w, b) y = Relu (p) }";
    check(graph, &[&[("N", 2)]], 1e-6);
}

/// Adds the constant `w{number}` of random numbers.
fn random_weight(constants: &mut String, seed: u64, number: u64, dims: &[usize]) -> String {
    let count = dims.iter().product();
    let elements: Vec<String> = Numbers::new(seed * 100 + number)
        .floats(count)
        .iter()
        .map(|x| (x * 0.7).to_string())
        .collect();
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    *constants += &format!(", float[{}] w{number} = {{{}}}", dims.join(", "), elements.join(", "));
    format!("w{number}")
}

/// Selects the last value, and sometimes others that are not inputs.
fn random_outputs(numbers: &mut Numbers, values: &[(String, usize, usize)]) -> Vec<String> {
    let mut outputs = vec![values[values.len() - 1].0.clone()];
    for (name, ..) in &values[2..] {
        if numbers.number_below(8) == 0 && !outputs.contains(name) {
            outputs.push(name.clone());
        }
    }
    outputs
}

/// Draws an index below `count`, in four of five cases the last one.
fn draw_recent(numbers: &mut Numbers, count: usize) -> usize {
    if numbers.number_below(5) > 0 { count - 1 } else { numbers.number_below(count) }
}

/// Makes a random graph of products, sums, activations and moves over values `[N, rows, cols]`.
fn random_graph(seed: u64) -> String {
    let mut numbers = Numbers::new(seed);
    let cols = [4usize, 8, 12];
    // Name, rows (5 is a symbol), columns.
    let mut values: Vec<(String, usize, usize)> = vec![("x".into(), 5, 8), ("z".into(), 5, 4)];
    let (mut body, mut constants) =
        (String::new(), String::from("float half = {0.5}, float[1] two = {2}"));
    let mut weights = 0;
    for step in 0..4 + numbers.number_below(14) {
        let (a, rows, width) = values[draw_recent(&mut numbers, values.len())].clone();
        let same: Vec<String> = values
            .iter()
            .filter(|(_, r, c)| (*r, *c) == (rows, width))
            .map(|(name, ..)| name.clone())
            .collect();
        let other = same[numbers.number_below(same.len())].clone();
        let name = format!("v{step}");
        let mut weight = |constants: &mut String, dims: &[usize]| {
            weights += 1;
            random_weight(constants, seed, weights, dims)
        };
        match numbers.number_below(16) {
            0..=3 => {
                let to = cols[numbers.number_below(3)];
                let w = weight(&mut constants, &[width, to]);
                body += &format!("{name} = MatMul ({a}, {w}) ");
                values.push((name, rows, to));
            }
            4 => {
                let b = weight(&mut constants, &[width]);
                body += &format!("{name} = Add ({a}, {b}) ");
                values.push((name, rows, width));
            }
            5 | 6 => {
                body += &format!("{name} = Add ({a}, {other}) ");
                values.push((name, rows, width));
            }
            7 => {
                body += &format!("{name} = Mul ({other}, {a}) ");
                values.push((name, rows, width));
            }
            8 => {
                body +=
                    &format!("{name} = Mul ({a}, {}) ", ["half", "two"][numbers.number_below(2)]);
                values.push((name, rows, width));
            }
            9 | 10 => {
                let op = ["Relu", "Gelu", "Tanh", "Sigmoid", "Neg"][numbers.number_below(5)];
                body += &format!("{name} = {op} ({a}) ");
                values.push((name, rows, width));
            }
            11 => {
                // Heads are split, transposed, and joined in another order.
                constants += &format!(
                    ", int64[4] h{step} = {{0, 0, 2, {}}}, int64[3] j{step} = {{0, 0, {width}}}",
                    width / 2
                );
                body += &format!(
                    "a{step} = Reshape ({a}, h{step}) b{step} = Transpose <perm = [0, 1, 3, 2]> (a{step}) \
                     {name} = Reshape (b{step}, j{step}) "
                );
                values.push((name, rows, width));
            }
            12 => {
                body += &format!(
                    "t{step} = Transpose <perm = [0, 2, 1]> ({a}) {name} = MatMul (t{step}, {other}) "
                );
                // A product of columns by columns.
                values.push((name, width, width));
            }
            13 if width > 4 => {
                body += &format!("{name}, q{step} = Split <axis = 2> ({a}, s{step}) ");
                constants += &format!(", int64[2] s{step} = {{{}, 4}}", width - 4);
                if width - 4 == 4 || width - 4 == 8 {
                    values.push((name, rows, width - 4));
                }
                values.push((format!("q{step}"), rows, 4));
            }
            14 if width == 4 => {
                body += &format!("{name} = Concat <axis = 2> ({a}, {other}) ");
                values.push((name, rows, 8));
            }
            _ => {
                constants += &format!(
                    ", int64[2] r{step} = {{-1, {width}}}, int64[3] k{step} = {{1, -1, {width}}}"
                );
                let b = weight(&mut constants, &[width]);
                body += &format!(
                    "a{step} = Reshape ({a}, r{step}) b{step} = Add (a{step}, {b}) \
                                  c{step} = Unsqueeze (b{step}, zero) d{step} = ReduceMean (c{step}, one) \
                                  {name} = Add ({a}, d{step}) "
                );
                values.push((name, rows, width));
            }
        }
    }
    let outputs = random_outputs(&mut numbers, &values);
    format!(
        "g (float[N, S, 8] x, float[N, S, 4] z) => ({}) <{constants}, int64[1] zero = {{0}}, int64[1] one = {{1}}> {{ \
         {body}}}",
        outputs.join(", ")
    )
}

#[test]
fn random_graphs() {
    let mut count = 0;
    for seed in 1..=200u64 {
        let graph = random_graph(seed);
        let both = Both::new(&graph);
        count += list_fused(&both).len();
        for sizes in [[("N", 2), ("S", 5)], [("N", 3), ("S", 17)]] {
            let given = inputs(&both.plain, &sizes, seed);
            let expected = run_one_by_one(&graph, given.clone());
            let plain = both.plain.run(given.clone()).unwrap();
            let fused = both.fused.run(given.clone()).unwrap();
            check_equal(&expected, &plain, 1e-5, &both.text);
            check_equal(&expected, &fused, 1e-5, &both.text);
            let once = bits(&fused);
            assert_eq!(once, bits(&both.fused.run(given).unwrap()), "{}", both.text);
        }
    }
    assert!(count > 100, "{count}");
    assert!(
        expose_values("g (float[N] x) => (y) { a = Neg (x) y = Neg (a) }").contains("=> (y, a)")
    );
}

#[test]
fn threads_and_callers_leave_no_trace() {
    for seed in 1..=60u64 {
        let text = complete(&random_graph(seed));
        let one = compile(&text, Optimization::All, 1);
        let sizes = [[("N", 2), ("S", 33)], [("N", 1), ("S", 70)]];
        let cases: Vec<_> = sizes
            .iter()
            .map(|sizes| {
                let given = inputs(&one, sizes, seed);
                let expected = bits(&one.run(given.clone()).unwrap());
                (given, expected)
            })
            .collect();
        for threads in [2, 4] {
            let session = compile(&text, Optimization::All, threads);
            std::thread::scope(|scope| {
                for caller in 0..4 {
                    let (session, cases, text) = (&session, &cases, &text);
                    scope.spawn(move || {
                        for round in 0..3 {
                            let (given, expected) = &cases[(round + caller) % 2];
                            let found = bits(&session.run(given.clone()).unwrap());
                            assert_eq!(&found, expected, "{threads} threads, {text}");
                        }
                    });
                }
            });
        }
    }
}

/// Checks sizes that differ from the declared ones at run time.
#[test]
fn tails_of_other_sizes_than_declared_are_refused() {
    for (op, sizes) in [("Add (p, e)", [1i64, 2]), ("Mul (p, e)", [1, 2]), ("Add (p, e)", [3, 1])] {
        let text = complete(&format!(
            "g (float[N, 4] x, float[1, 1] c, int64[2] q) => (y) \
             <float[4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[N, 2] e> \
             {{ e = Expand (c, q) p = MatMul (x, w) y = {op} }}"
        ));
        let session = compile(&text, Optimization::All, 1);
        assert!(session.steps().iter().all(|step| step.op != &op[..3]));
        let run = |sizes: [i64; 2]| {
            let mut given = inputs(&session, &[("N", 3)], 1);
            given[2].1 = Tensor::from_slice([2], &sizes).unwrap().into();
            session.run(given)
        };
        assert!(run([3, 2]).is_ok());
        let said = run(sizes).unwrap_err().to_string();
        assert!(said.contains("6 elements were declared"), "{said}");
    }
}

/// Makes a graph with a product of quantized numbers, whose sums are `m`.
fn make_quantized(body: &str) -> String {
    let codes: Vec<String> = (0..96).map(|at| (at * 89 % 255 - 127).to_string()).collect();
    format!(
        "g (float[N, S, 12] x, float[N, S, 8] r, float[8] v, float[8] wv) => (y) \
         <int8[12, 8] w = {{{}}}, float ws = {{0.01}}, int8 wz = {{3}}, float half = {{0.5}}> {{ \
         q, s, z = DynamicQuantizeLinear (x) f = Mul (s, ws) fv = Mul (s, wv) {body} }}",
        codes.join(", ")
    )
}

#[test]
fn sums_of_integers_become_floats() {
    const MULTIPLY: &str = "m = MatMulInteger (q, w, z, wz) c = Cast <to = 1> (m)";
    for (body, expected) in [
        ("p = Mul (c, f) y = Add (p, v)", 3),
        ("p = Mul (f, c) h = Add (v, p) y = Relu (h)", 4),
        ("p = Mul (c, f) h = Add (p, v) i = Add (h, r) y = Sigmoid (i)", 5),
        ("p = Mul (c, f) y = Mul (p, r)", 3),
        ("p = Mul (c, fv) y = Add (p, r)", 3),
        // A second factor comes after the sums are floats.
        ("p = Mul (c, f) y = Mul (p, half)", 2),
        ("y = Add (c, v)", 2),
        // Another reader wants the sums as they are.
        ("p = Mul (c, f) d = Cast <to = 11> (m) e = Cast <to = 1> (d) y = Add (p, e)", 0),
        ("p = Mul (c, f) y = Add (p, c)", 1),
    ] {
        let both = check(&make_quantized(&format!("{MULTIPLY} {body}")), &SIZES, 1e-5);
        let fused = list_fused(&both);
        assert_eq!(fused.len(), expected, "{fused:?}\n{}\n{body}", both.listing());
    }
}

/// Checks products without zero points, whose other operands take their positions.
#[test]
fn sums_without_zero_points_become_floats() {
    let multiply = "m = MatMulInteger (q, w) c = Cast <to = 1> (m) p = Mul (c, f)";
    for (body, expected) in [("y = Add (p, v)", 3), ("h = Add (p, r) y = Tanh (h)", 4)] {
        let both = check(&make_quantized(&format!("{multiply} {body}")), &SIZES, 1e-5);
        let fused = list_fused(&both);
        assert_eq!(fused.len(), expected, "{fused:?}\n{}\n{body}", both.listing());
    }
}
