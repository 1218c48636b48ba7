//! Tests of images with channels last: random networks have the results of their nodes run one by
//! one in rows.

use crate::both_ways::{self, Both, inputs};
use crate::networks;
use sardonyx_model::Type;

#[test]
fn random_networks_give_the_same_as_in_rows() {
    let (mut last, mut shuffled) = (0, 0);
    for seed in 1..=150 {
        let both = Both::new(&networks::closed_graph(seed));
        both.agree(&[("n", 1)]);
        both.agree(&[("n", 3)]);
        both.agree(&[("n", 0)]);
        last += usize::from(both.listing().contains("over pixels"));
        shuffled += usize::from(both.listing().contains("shuffle"));
    }
    assert!(last > 50, "{last} networks have steps over pixels");
    assert!(shuffled > 20, "{shuffled} networks shuffle channels in one step");
}

#[test]
fn sizes_with_other_names_may_be_the_same_or_broadcast() {
    let graph = "g (float[a, 8, c, d] x, float[e, f, g, h] z) => (y) {
        ws = Constant <value = int64[4] {16, 8, 3, 3}> ()
        w = ConstantOfShape <value = float[1] {0.1}> (ws)
        r = Conv (x, w) s = Add (r, z) t = Relu (s) y = Mul (z, t) }";
    let both = Both::new(graph);
    for (e, f, h) in [(2, 16, 6), (1, 1, 6), (2, 16, 1), (1, 16, 6)] {
        both.agree(&[("a", 2), ("c", 8), ("d", 8), ("e", e), ("f", f), ("g", 6), ("h", h)]);
    }
}

#[test]
fn images_of_one_pixel_and_of_none_lie_in_both_orders() {
    let chains = [
        "b = LRN <size = 3> (a)",
        "b = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a)",
        "b = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (a)",
        "b = Softmax <axis = 1> (a)",
        "b = ReduceSum (a, axes)",
        "b = HardSwish (a)",
        "p = Conv <pads = [1, 1, 1, 1]> (a, w) b = Add (p, a)",
        "p = LRN <size = 3> (a) b = Concat <axis = 1> (a, p, a)",
    ];
    for (channels, chain) in [16, 64].into_iter().flat_map(|c| chains.map(|chain| (c, chain))) {
        let both = Both::new(&format!(
            "g (float[n, {channels}, h, h] x) => (y, b) <int64[2] axes = {{2, 3}}> {{
                ws = Constant <value = int64[4] {{{channels}, {channels}, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.1}}> (ws)
                a = Conv <pads = [1, 1, 1, 1]> (x, w) {chain}
                vs = Constant <value = int64[4] {{80, {}, 3, 3}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                y = Conv <auto_pad = \"SAME_UPPER\"> (b, v) }}",
            if chain.contains("Concat") { 3 * channels } else { channels }
        ));
        for (n, h) in [(1, 1), (3, 1), (0, 1), (2, 5), (0, 5)] {
            both.agree(&[("n", n), ("h", h)]);
        }
    }
}

#[test]
fn windows_over_whole_images_read_either_order() {
    for (node, has_loop) in [
        ("AveragePool <kernel_shape = [6, 5]> (a)", true),
        ("MaxPool <kernel_shape = [6, 5]> (a)", true),
        ("MaxPool <kernel_shape = [7, 7], pads = [1, 1, 0, 1]> (a)", true),
        ("Resize <mode = \"linear\", axes = [2, 3]> (a, , , one)", false),
    ] {
        let both = Both::new(&format!(
            "g (float[n, 16, 6, 5] x) => (y) <int64[2] one = {{1, 1}}> {{
                ws = Constant <value = int64[4] {{24, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.1}}> (ws)
                a = Conv <pads = [1, 1, 1, 1]> (x, w) b = {node} y = Flatten (b) }}"
        ));
        both.agree(&[("n", 2)]);
        both.agree(&[("n", 0)]);
        let listing = both.listing();
        assert_eq!(listing.contains("over pixels"), has_loop, "{listing}");
        assert!(!has_loop || !listing.contains("reorder"), "{listing}");
    }
}

#[test]
fn a_join_whose_parts_lie_in_a_later_one_may_be_read_for_that() {
    let weight = |name: &str, dims: &str| {
        format!(
            "{name}s = Constant <value = int64[4] {{{dims}}}> ()
            {name} = ConstantOfShape <value = float[1] {{0.1}}> ({name}s) "
        )
    };
    let both = Both::new(&format!(
        "g (float[n, 16, 6, 6] x) => (y) {{ {}{}{}
            a = Conv (x, w) b = Conv (a, w) j = Concat <axis = 1> (a, b)
            c = Conv (j, v) r = Concat <axis = 1> (a, b, c) y = Conv (r, u) }}",
        weight("w", "16, 16, 1, 1"),
        weight("v", "16, 32, 1, 1"),
        weight("u", "24, 48, 1, 1"),
    ));
    both.agree(&[("n", 2)]);
}

#[test]
fn bits_do_not_depend_on_threads() {
    for seed in 1..=20 {
        let text = both_ways::complete(&networks::closed_graph(seed));
        let sessions = [1, 2, 3, 8]
            .map(|threads| both_ways::compile(&text, sardonyx_runtime::Optimization::All, threads));
        let given = inputs(&sessions[0], &[("n", 2)], seed);
        let first = sessions[0].run(given.clone()).unwrap();
        for session in &sessions[1..] {
            let outputs = session.run(given.clone()).unwrap();
            for ((name, a), (_, b)) in first.iter().zip(&outputs) {
                let (a, b) = (a.as_tensor().unwrap(), b.as_tensor().unwrap());
                assert!(a.bit_eq(b), "{name} of\n{text}");
            }
        }
    }
}

/// Measures the bytes that the join of a network copies.
fn joined_bytes(both: &Both, sizes: &[(&str, usize)]) -> u64 {
    let given = both.inputs(sizes, 1);
    let types: Vec<_> = given
        .iter()
        .map(|(_, value)| value.as_tensor().unwrap())
        .map(|x| Some(Type::tensor(x.data_type(), x.dims().iter().copied())))
        .collect();
    let details = both.fused.details(&types).unwrap();
    let steps = both.fused.steps();
    let mut joins = steps.iter().zip(&details.steps).filter(|(step, _)| step.op == "Concat");
    let (_, join) = joins.next().unwrap();
    if join.is_view { 0 } else { join.read_bytes.unwrap() }
}

#[test]
fn what_is_computed_from_another_part_alone_is_copied_when_joined() {
    let conv = |y: &str, x: &str| format!("{y} = Conv <pads = [1, 1, 1, 1]> ({x}, w)\n");
    let block = |y: &str, x: &str| {
        let [c, d] = ["c", "d"].map(|of| format!("{of}{y}"));
        format!("{}{}{y} = Add ({x}, {d})\n", conv(&c, x), conv(&d, &c))
    };
    let plane = 4 * 16 * 10 * 12;
    for (parts, body, copied) in [
        (3, conv("c", "b") + &conv("e", "c"), 0),
        (3, conv("e", "b"), plane),
        (3, block("e", "b"), plane),
        (4, block("e", "b") + &block("f", "e"), plane),
        (5, block("e", "b") + &block("f", "e") + &block("g", "f"), 2 * plane),
        (4, block("e", "b") + &conv("f", "e"), plane),
    ] {
        let names = ["a", "b", "e", "f", "g"][..parts].join(", ");
        let both = Both::new(&format!(
            "g (float[n, 16, h, k] x) => (y) {{
                us = Constant <value = int64[4] {{32, 16, 1, 1}}> ()
                u = ConstantOfShape <value = float[1] {{0.1}}> (us)
                ws = Constant <value = int64[4] {{16, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.02}}> (ws)
                vs = Constant <value = int64[4] {{8, {}, 1, 1}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                s = Conv (x, u) a, b = Split <axis = 1, num_outputs = 2> (s)
                {body} j = Concat <axis = 1> ({names}) y = Conv (j, v) }}",
            16 * parts
        ));
        assert_eq!(joined_bytes(&both, &[("n", 2), ("h", 10), ("k", 12)]), 2 * copied, "{names}");
        for (n, h) in [(1, 10), (2, 5), (1, 1)] {
            both.agree(&[("n", n), ("h", h), ("k", 12)]);
        }
    }
}

#[test]
fn what_cannot_be_a_part_is_copied_when_joined() {
    let plane = 4 * 16 * 10 * 12;
    for (count, parts, copied) in [
        (4, "c, d, c, d", 4 * plane),
        (3, "c, d, c", 2 * plane),
        (3, "x, c, d", plane),
        (3, "e, c, d", 2 * plane),
    ] {
        let both = Both::new(&format!(
            "g (float[n, 16, h, k] x) => (y) {{
                ws = Constant <value = int64[4] {{16, 16, 3, 3}}> ()
                w = ConstantOfShape <value = float[1] {{0.02}}> (ws)
                vs = Constant <value = int64[4] {{8, {}, 1, 1}}> ()
                v = ConstantOfShape <value = float[1] {{0.1}}> (vs)
                c = Conv <pads = [1, 1, 1, 1]> (x, w)
                d = Conv <pads = [1, 1, 1, 1]> (c, w)
                e = Add (c, d)
                j = Concat <axis = 1> ({parts}) y = Conv (j, v) }}",
            16 * count
        ));
        both.agree(&[("n", 1), ("h", 10), ("k", 12)]);
        let found = joined_bytes(&both, &[("n", 1), ("h", 10), ("k", 12)]);
        assert_eq!(found, copied, "{parts}");
    }
}
