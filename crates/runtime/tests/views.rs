//! Tests of views: values read through strides, in parts, broadcast. Each graph runs as written,
//! and with every intermediate value as an output, which prevents views.

use crate::both_ways;
use crate::both_ways::{Both, check};
use sardonyx_tensor::{DataType, StringArray, Tensor, Value};

const SIZES: [&[(&str, usize)]; 3] =
    [&[("N", 2), ("S", 5)], &[("N", 3), ("S", 8)], &[("N", 1), ("S", 1)]];

#[test]
fn products_read_views() {
    for body in [
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)",
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, x)",
        "t = Transpose <perm = [1, 0, 2]> (x) u = Transpose <perm = [1, 2, 0]> (x) y = MatMul (t, u)",
        "t = Transpose <perm = [2, 1, 0]> (x) u = Transpose <perm = [2, 0, 1]> (x) y = MatMul (t, u)",
        "a, b, c = Split <axis = 2, num_outputs = 3> (x) t = Transpose <perm = [0, 2, 1]> (b) p = MatMul (a, t) \
         y = MatMul (p, c)",
        "a = Slice (x, two, seven, last) b = Slice (x, seven, end, last) t = Transpose <perm = [0, 2, 1]> (a) \
         y = MatMul (t, b)",
        "a = Slice (x, two, end, last, two) t = Transpose <perm = [0, 2, 1]> (a) y = MatMul (t, x)",
        "a = Slice (x, end, zero, last, back) t = Transpose <perm = [0, 2, 1]> (a) y = MatMul (t, x)",
        "h = Reshape (x, heads) t = Transpose <perm = [0, 2, 1, 3]> (h) u = Transpose <perm = [0, 2, 3, 1]> (h) \
         p = MatMul (t, u) o = MatMul (p, t) back1 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (back1, joined)",
        "q = Gather <axis = 2> (x, five) r = Unsqueeze (q, last) y = MatMul (x, w) z = Mul (y, r)",
        "q = Gather <axis = 2> (x, minus) r = Unsqueeze (q, last) t = Transpose <perm = [0, 2, 1]> (r) y = MatMul (r, \
         t)",
        "q = Gather <axis = 0> (x, first) y = MatMul (q, w)",
        "u = Unsqueeze (x, zero) e = Expand (u, copies) t = Transpose <perm = [0, 1, 3, 2]> (e) y = MatMul (e, t)",
        "r = ReduceMean (x, last) e = Expand (r, wide) y = MatMul (e, w)",
        "r = ReduceMean (x, last) e = Expand (r, wide) t = Transpose <perm = [0, 2, 1]> (e) y = MatMul (t, x)",
        "n = Neg (x) t = Transpose <perm = [0, 2, 1]> (n) f = Reshape (t, flat) y = MatMul (f, f)",
    ] {
        let body = body.replace("z = Mul", "z0 = Mul");
        let graph = format!(
            "g (float[N, S, 12] x) => (y) <int64[1] two = {{2}}, int64[1] zero = {{0}}, int64[1] seven = {{7}}, \
             int64[1] end = {{9223372036854775807}}, int64[1] last = {{-1}}, int64[1] back = {{-1}}, int64 five = \
             {{5}}, \
             int64 minus = {{-1}}, int64 first = {{0}}, int64[4] heads = {{0, 0, 3, 4}}, int64[3] joined = {{0, 0, \
             12}}, \
             int64[4] copies = {{3, 1, 1, 1}}, int64[3] wide = {{1, 1, 12}}, int64[3] flat = {{1, -1, 1}}, \
             float[12, 12] w = {{{}}}> {{ {body} }}",
            (0..144)
                .map(|i| format!("{}", (i * 31 % 17) as f32 / 17.0 - 0.4))
                .collect::<Vec<_>>()
                .join(", ")
        );
        // The last graph requires a square matrix.
        let graph = if body.contains("flat)") {
            graph.replace(
                "y = MatMul (f, f)",
                "g = Transpose <perm = [0, 2, 1]> (f) y = MatMul (g, f)",
            )
        } else {
            graph
        };
        check(&graph, &SIZES, 1e-5);
    }
}

#[test]
fn copies_read_views() {
    for body in [
        "t = Transpose <perm = [2, 0, 1]> (x) u = Transpose <perm = [2, 0, 1]> (x) y = Concat <axis = 0> (t, u)",
        "a, b, c = Split <axis = 2, num_outputs = 3> (x) y = Concat <axis = 1> (c, a, b, a)",
        "a, b, c = Split <axis = 2, num_outputs = 3> (x) t = Transpose <perm = [1, 0, 2]> (b) \
         d, e = Split <axis = 2, num_outputs = 2> (t) y = Concat <axis = 2> (e, d)",
        "t = Transpose <perm = [2, 1, 0]> (x) s = Slice (t, two, seven, zero, two) r = Reshape (s, flat) n = Identity \
         (r) \
         y = Concat <axis = 0> (n, r)",
        "t = Transpose <perm = [0, 2, 1]> (x) s = Slice (t, end, zero, one, back) y = Concat <axis = 1> (s, t)",
        "s = Slice (x, end, zero, two, back) t = Transpose <perm = [0, 2, 1]> (s) u = Slice (t, zero, two, one) \
         y = Concat <axis = 1> (u, t)",
        "u = Unsqueeze (x, one) e = Expand (u, copies) t = Transpose <perm = [0, 3, 1, 2]> (e) r = Reshape (t, joined) \
         y = Concat <axis = 1> (r, r)",
        "s = Slice (x, seven, two, two) y = Concat <axis = 2> (s, x, s)",
        "s = Squeeze (u) u = Unsqueeze (x, one) y = Concat <axis = 0> (u, u)",
        "p = Pad (x, pads) t = Transpose <perm = [2, 0, 1]> (p) s = Slice (t, one, two, zero) y = Concat <axis = 0> \
         (s, s)",
        "t = Transpose <perm = [1, 0, 2]> (x) r = ReduceSum (t, two) y = Concat <axis = 2> (r, t)",
        "t = Transpose <perm = [1, 0, 2]> (x) g = Gather <axis = 2> (t, some) y = Concat <axis = 2> (g, t)",
        "t = Transpose <perm = [2, 1, 0]> (x) a = Add (t, t) b = Softmax <axis = 0> (t) c = Where (mask, a, t) \
         y = Concat <axis = 1> (a, b, c)",
    ] {
        let body = body.replace("s = Squeeze (u) ", "");
        let graph = format!(
            "g (float[N, S, 12] x) => (y) <int64[1] two = {{2}}, int64[1] zero = {{0}}, int64[1] seven = {{7}}, \
             int64[1] end = {{9223372036854775807}}, int64[1] one = {{1}}, int64[1] back = {{-1}}, \
             int64[4] copies = {{1, 3, 1, 1}}, int64[3] joined = {{0, 12, -1}}, int64[1] flat = {{-1}}, \
             int64[6] pads = {{0, 1, 0, 0, 2, 1}}, int64[3] some = {{3, 0, -1}}, bool mask = {{1}}> {{ {body} }}",
        );
        check(&graph, &SIZES, 1e-6);
    }
}

#[test]
fn attention_reads_views() {
    for (graph, fuses) in [
        // One product for queries, keys and values, which are then split.
        (
            "a, b, c = Split <axis = 2, num_outputs = 3> (x) q1 = Reshape (a, heads) q = Transpose <perm = [0, 2, 1, \
             3]> (q1) \
             k1 = Reshape (b, heads) t = Transpose <perm = [0, 2, 3, 1]> (k1) \
             v1 = Reshape (c, heads) v = Transpose <perm = [0, 2, 1, 3]> (v1) \
             p = MatMul (q, t) w = Softmax <axis = -1> (p) o = MatMul (w, v) o1 = Transpose <perm = [0, 2, 1, 3]> (o) \
             y = Reshape (o1, joined)",
            true,
        ),
        // Five axes; an index selects queries, keys and values.
        (
            "h = Reshape (x, all) m = Transpose <perm = [2, 0, 3, 1, 4]> (h) q = Gather <axis = 0> (m, n0) \
             k = Gather <axis = 0> (m, n1) v = Gather <axis = 0> (m, n2) t = Transpose <perm = [0, 1, 3, 2]> (k) \
             p = MatMul (q, t) w = Softmax <axis = -1> (p) o = MatMul (w, v) o1 = Transpose <perm = [0, 2, 1, 3]> (o) \
             y = Reshape (o1, joined)",
            true,
        ),
        // The operator itself, packed and with an axis for heads.
        (
            "a, b, c = Split <axis = 2, num_outputs = 3> (x) o = Attention <q_num_heads = 2, kv_num_heads = 2> (a, b, \
             c) \
             y = Identity (o)",
            false,
        ),
        (
            "h = Reshape (x, all) m = Transpose <perm = [2, 0, 3, 1, 4]> (h) q = Gather <axis = 0> (m, n0) \
             k = Gather <axis = 0> (m, n1) v = Gather <axis = 0> (m, n2) o = Attention <is_causal = 1> (q, k, v) \
             o1 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (o1, joined)",
            false,
        ),
        // A result in another order, with further outputs that are read before.
        (
            "h = Reshape (x, all) m = Transpose <perm = [2, 0, 3, 1, 4]> (h) q = Gather <axis = 0> (m, n0) \
             k = Gather <axis = 0> (m, n1) v = Gather <axis = 0> (m, n2) pk = Slice (k, zero, two, one) \
             o, nk, nv = Attention (q, k, v, , pk, pk) n = Neg (nk) ne = Exp (n) n2s = Add (ne, nv) \
             o1 = Transpose <perm = [0, 2, 1, 3]> (o) o2 = Reshape (o1, joined) s = ReduceSum (n2s) y = Add (o2, s)",
            false,
        ),
    ] {
        let graph = format!(
            "g (float[N, S, 24] x) => (y) <int64[4] heads = {{0, 0, 2, 4}}, int64[3] joined = {{0, 0, 8}}, \
             int64[5] all = {{0, 0, 3, 2, 4}}, int64 n0 = {{0}}, int64 n1 = {{1}}, int64 n2 = {{2}}, int64[1] zero = \
             {{0}}, \
             int64[1] one = {{1}}, int64[1] two = {{2}}> {{ {graph} }}"
        );
        // Cached keys are parts of the new ones: along the axis of rows.
        let graph =
            graph.replace("pk = Slice (k, zero, two, one)", "pk = Slice (k, zero, two, two)");
        let both = check(&graph, &SIZES, 1e-5);
        assert_eq!(both.fused_patterns() == ["Attention"], fuses, "{}", both.listing());
    }
}

#[test]
fn outputs_are_values_of_their_own() {
    // Views of an input, of each other, of a constant, and an input itself.
    let graph = "g (float[N, S, 4] x) => (a, b, c, d, e, f, h, i) <int64[2] two = {-1, 4}, int64[1] one = {1}, \
                 int64[1] zero = {0}, float[2, 2] w = {1, 2, 3, 4}> \
                 { a = Reshape (x, two) b = Transpose <perm = [1, 0]> (a) c = Identity (x) d = Slice (b, one, two1, \
                 zero) \
                   two1 = Identity (three) e = Transpose <perm = [1, 0]> (b) f = Transpose (w) h, i = Split <axis = 2, \
                   num_outputs = 2> (c) three = Add (one, one) }";
    check(graph, &SIZES, 0.0);
    check(
        "g (float[N, S, 4] x) => (x, y, z) { y = Transpose <perm = [2, 1, 0]> (x) z = Exp (x) }",
        &SIZES,
        0.0,
    );
    // Only one half of a split is an output, the other one is read through strides.
    check(
        "g (float[N, S, 4] x) => (a, y) { n = Neg (x) a, b = Split <axis = 2, num_outputs = 2> (n) \
         t = Transpose <perm = [0, 2, 1]> (b) y = MatMul (t, b) }",
        &SIZES,
        1e-6,
    );
    check(
        "g (float[N, S, 4] x) => (y, b) { n = Neg (x) t1 = Transpose <perm = [1, 0, 2]> (n) \
         a, b = Split <axis = 2, num_outputs = 2> (t1) t = Transpose <perm = [0, 2, 1]> (a) y = MatMul (t, a) }",
        &SIZES,
        1e-6,
    );
    // Outputs do not change when the input does.
    let both = Both::new(
        "g (float[N, S, 4] x) => (y, z) { y = Identity (x) z = Transpose <perm = [1, 0, 2]> (x) }",
    );
    let first = both.fused.run(both.inputs(SIZES[0], 1)).unwrap();
    let before = both_ways::bits(&first);
    both.fused.run(both.inputs(SIZES[0], 2)).unwrap();
    assert_eq!(before, both_ways::bits(&first));
}

#[test]
fn what_is_viewed_is_not_overwritten() {
    for body in [
        // Exp and other functions may overwrite their input, unless a view of it has a later
        // reader.
        "a = Exp (x) v = Transpose <perm = [0, 2, 1]> (a) b = Neg (a) y = MatMul (b, v)",
        "a = Exp (x) b = Neg (a) v = Transpose <perm = [0, 2, 1]> (a) c = Abs (b) y = MatMul (c, v)",
        "a = Exp (x) p, q = Split <axis = 2, num_outputs = 2> (a) r = Neg (p) y = Concat <axis = 2> (q, r, p, a)",
        "a = Exp (x) p, q = Split <axis = 0, num_outputs = 1> (a) r = Neg (a) y = Concat <axis = 0> (r, p)",
        "a = Exp (x) f = Reshape (a, flat) r = Neg (f) s = Neg (a) y = Concat <axis = 0> (r, s0) s0 = Reshape (s, \
         flat)",
        "a = Exp (x) f = Reshape (a, flat) r = Neg (f) y = Add (r, r)",
        "a = Exp (x) f = Reshape (a, flat) r = Add (f, f) s = Mul (f, r) y = Sub (s, f)",
        "a = Exp (x) u = Unsqueeze (a, zero) e = Expand (u, copies) b = Neg (a) c = Neg (u) d = Concat <axis = 0> (e, \
         c, e) \
         y = Add (d, b)",
        "a = Exp (x) g = Gather <axis = 2> (a, one) b = Neg (a) c = Unsqueeze (g, last) d = Concat <axis = 2> (c, b, \
         c) \
         y = Neg (d)",
        "a = Exp (x) s = Slice (a, zero, one1, last) r = Relu (a) t = Concat <axis = 2> (s, r) y = Softmax (t)",
        "a = Exp (x) i = Identity (a) b = Neg (i) c = Neg (a) d = Identity (c) e = Neg (d) y = Concat <axis = 1> (b, \
         e, d)",
    ] {
        let body = body.replace(
            "p, q = Split <axis = 0, num_outputs = 1>",
            "p = Split <axis = 0, num_outputs = 1>",
        );
        let graph = format!(
            "g (float[N, S, 4] x) => (y) <int64[1] flat = {{-1}}, int64[1] zero = {{0}}, int64[4] copies = {{3, 1, 1, \
             1}}, \
             int64 one = {{1}}, int64[1] one1 = {{1}}, int64[1] last = {{-1}}> {{ {body} }}"
        );
        check(&graph, &SIZES, 1e-6);
    }
}

#[test]
fn nothing_is_viewed_as_well() {
    let none: &[&[(&str, usize)]] =
        &[&[("N", 0), ("S", 5)], &[("N", 2), ("S", 0)], &[("N", 0), ("S", 0)]];
    for body in [
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (x, t)",
        "t = Transpose <perm = [0, 2, 1]> (x) y = MatMul (t, x)",
        "a, b = Split <axis = 2, num_outputs = 2> (x) y = Concat <axis = 1> (b, a)",
        "a = Exp (x) s = Slice (a, one, three, last) t = Transpose <perm = [2, 0, 1]> (s) y = Concat <axis = 0> (t, t)",
        "a = Exp (x) s = Slice (a, three, three, last) t = Transpose <perm = [2, 0, 1]> (s) y = Concat <axis = 0> (t, \
         t)",
        "a = Exp (x) s = Slice (a, three, one, axis1, back) t = Transpose <perm = [2, 0, 1]> (s) y = Concat <axis = \
         0> (t, t)",
        "a = Exp (x) g = Gather <axis = 2> (a, zero) u = Unsqueeze (g, last) y = MatMul (u, w)",
        "h = Reshape <allowzero = 1> (x, same) y = Concat <axis = 0> (h, h)",
        "u = Unsqueeze (x, axis1) e = Expand (u, none) t = Transpose <perm = [1, 0, 2, 3]> (e) y = Concat <axis = 0> \
         (t, t)",
        "y = Attention <q_num_heads = 2, kv_num_heads = 2> (x, x, x)",
        "r = ReduceSum (x, axis1) e = Expand (r, four) y = Concat <axis = 0> (e, e)",
    ] {
        let body = body.replace(
            "h = Reshape <allowzero = 1> (x, same)",
            "s = Shape (x) h = Reshape <allowzero = 1> (x, s)",
        );
        let graph = format!(
            "g (float[N, S, 4] x) => (y) <int64[1] one = {{1}}, int64[1] three = {{3}}, int64[1] last = {{-1}}, \
             int64[1] axis1 = {{1}}, int64[1] back = {{-1}}, int64 zero = {{0}}, int64[4] none = {{1, 0, 1, 1}}, \
             int64[3] four = {{1, 1, 4}}, float[1, 3] w = {{1, 2, 3}}> {{ {body} }}"
        );
        check(&graph, none, 1e-6);
        check(&graph, &SIZES, 1e-5);
    }
}

#[test]
fn other_types_are_viewed() {
    for (ty, tail) in [
        ("double", "c = Neg (b) y = Concat <axis = 0> (c, b)"),
        ("double", "t = Transpose <perm = [0, 2, 1]> (b) y = MatMul (t, b)"),
        ("int64", "c = Neg (b) y = Concat <axis = 0> (c, b)"),
        ("int64", "t = Transpose <perm = [0, 2, 1]> (b) y = MatMul (t, b)"),
        ("bool", "c = Not (b) y = Concat <axis = 0> (c, b)"),
        ("string", "c = Identity (b) y = Concat <axis = 0> (c, b)"),
        ("int4", "c = Identity (b) y = Unsqueeze (c, one)"),
        ("uint4", "r = Reshape (b, flat) y = Unsqueeze (r, one)"),
    ] {
        for head in [
            "b = Transpose <perm = [2, 0, 1]> (x)",
            "b0 = Transpose <perm = [1, 0, 2]> (x) b = Transpose <perm = [0, 2, 1]> (b0)",
            "b0 = Reshape (x, two) b = Unsqueeze (b0, one)",
            "b0 = Slice (x, one, three, one) b = Transpose <perm = [2, 1, 0]> (b0)",
            "b0 = Slice (x, three, one, last, back) b = Transpose <perm = [2, 1, 0]> (b0)",
            "b0 = Transpose <perm = [2, 0, 1]> (x) b1 = Gather <axis = 0> (b0, zero) b = Unsqueeze (b1, one)",
            "b0, b1 = Split <axis = 2, num_outputs = 2> (x) b = Transpose <perm = [1, 0, 2]> (b1)",
            "b0 = Unsqueeze (x, one) b1 = Expand (b0, copies) b = Squeeze (b2, one) b2 = Slice (b1, zero1, one, one)",
        ] {
            // Elements of less than a byte can only be viewed as a whole.
            let moved = ["Slice", "Gather", "Split", "Expand"].iter().any(|op| head.contains(op));
            if ty.ends_with("int4") && moved {
                continue;
            }
            let graph = format!(
                "g ({ty}[N, S, 4] x) => ({ty}[a, b, c] y) <int64[1] one = {{1}}, int64[1] three = {{3}}, int64[1] \
                 last = {{-1}}, \
                 int64[1] back = {{-1}}, int64 zero = {{0}}, int64[1] zero1 = {{0}}, int64[2] two = {{-1, 4}}, \
                 int64[1] flat = {{-1}}, int64[4] copies = {{1, 3, 1, 1}}> {{ {head} {tail} }}"
            );
            let graph = graph.replace(&format!("({ty}[a, b, c] y)"), "(y)");
            check(&graph, &[&[("N", 2), ("S", 5)], &[("N", 3), ("S", 7)]], 1e-12);
        }
    }
}

/// Makes numbers from 0 on with some dimensions.
fn count_up(dims: &[usize]) -> Value {
    let count: usize = dims.iter().product();
    let elements: Vec<f32> = (0..count).map(|i| i as f32).collect();
    Tensor::from_slice(dims, &elements).unwrap().into()
}

#[test]
fn values_by_hand() {
    let constants = "int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] back = {-1}, int64 second \
                     = {1}, \
                     int64[1] far = {-9223372036854775808}, int64[1] end = {9223372036854775807}, int64[2] wide = {2, \
                     2}, \
                     int64[1] flat = {-1}, float[2, 1] w = {1, 10}";
    let rows: [(&str, &[usize], &[usize], &[f32]); 9] = [
        (
            "t = Transpose (x) y = Concat <axis = 1> (t, t)",
            &[2, 3],
            &[3, 4],
            &[0., 3., 0., 3., 1., 4., 1., 4., 2., 5., 2., 5.],
        ),
        ("t = Transpose (x) y = MatMul (t, w)", &[2, 3], &[3, 1], &[30., 41., 52.]),
        ("s = Slice (x, one, end, one) y = MatMul (s, w)", &[2, 3], &[2, 1], &[21., 54.]),
        (
            "s = Slice (x, back, far, one, back) y = Concat <axis = 0> (s, s)",
            &[1, 3],
            &[2, 3],
            &[2., 1., 0., 2., 1., 0.],
        ),
        ("g = Gather <axis = 1> (x, second) y = MatMul (g, w)", &[2, 3], &[1], &[41.]),
        (
            "a, b = Split <axis = 1, num_outputs = 2> (x) t = Transpose (b) y = MatMul (t, w)",
            &[2, 4],
            &[2, 1],
            &[62., 73.],
        ),
        ("e = Expand (x, wide) y = MatMul (e, w)", &[2, 1], &[2, 1], &[0., 11.]),
        ("e = Expand (x, wide) t = Transpose (e) y = MatMul (t, w)", &[2, 1], &[2, 1], &[10., 10.]),
        (
            "t = Transpose (x) r = Reshape (t, flat) n = Neg (r) m = Neg (n) y = Concat <axis = 0> (m, r)",
            &[2, 2],
            &[8],
            &[0., 2., 1., 3., 0., 2., 1., 3.],
        ),
    ];
    for (body, dims, expected_dims, expected) in rows {
        let both = Both::new(&format!("g (float[a, b] x) => (y) <{constants}> {{ {body} }}"));
        for session in [&both.plain, &both.fused] {
            let outputs = session.run(vec![("x".to_string(), count_up(dims))]).unwrap();
            let y = outputs[0].1.as_tensor().unwrap();
            assert_eq!(
                (y.dims(), &y.to_vec::<f32>().unwrap()[..]),
                (expected_dims, expected),
                "{body}"
            );
        }
    }
    let words: StringArray = ["a", "b", "c", "d", "e", "f"].iter().collect();
    let words = Tensor::from_strings([2, 3], words).unwrap();
    let both = Both::new(
        "g (string[a, b] x) => (y) <int64[1] one = {1}, int64[1] three = {3}> { t = Transpose (x) s = Slice (t, one, \
         three) \
         y = Concat <axis = 1> (s, s) }",
    );
    let outputs = both.fused.run(vec![("x".to_string(), words.into())]).unwrap();
    let expected: StringArray = ["b", "e", "b", "e", "c", "f", "c", "f"].iter().collect();
    let expected = Tensor::from_strings([2, 4], expected).unwrap();
    assert!(outputs[0].1.as_tensor().unwrap().bit_eq(&expected));
    // Elements of half a byte are permuted like others.
    let codes = Tensor::from_codes(DataType::Uint4, [2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
    let both = Both::new("g (uint4[a, b] x) => (y) { t = Transpose (x) y = Identity (t) }");
    let outputs = both.fused.run(vec![("x".to_string(), codes.into())]).unwrap();
    let y = outputs[0].1.as_tensor().unwrap();
    assert_eq!((y.dims(), y.to_codes().unwrap()), (&[3, 2][..], vec![1, 4, 2, 5, 3, 6]));
}
