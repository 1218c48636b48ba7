//! Tests of fusions: every known decomposition of an operator is fused into it, and no other graph;
//! results equal those of the model as written.

use crate::both_ways;
use crate::both_ways::Both;

/// Batch and length of two runs of one session.
const SIZES: [[(&str, usize); 3]; 2] =
    [[("N", 2), ("S", 5), ("T", 7)], [("N", 3), ("S", 8), ("T", 4)]];

/// Writes a graph of one input.
fn graph(constants: &str, body: &str) -> String {
    format!("g (float[N, S, 8] x) => (y) <{constants}> {{ {body} }}")
}

#[track_caller]
fn agree_twice(both: &Both) {
    for sizes in &SIZES {
        both.agree(sizes);
    }
}

/// Checks that a graph has one step of `pattern`.
#[track_caller]
fn check_fuses_to(pattern: &str, graph: &str) {
    let both = Both::new(graph);
    assert_eq!(both.fused_patterns(), [pattern], "{}\n{}", both.listing(), both.text);
    assert!(both.ops().contains(&pattern), "{}\n{}", both.listing(), both.text);
    agree_twice(&both);
}

/// Checks that a graph has one step, of `pattern`.
#[track_caller]
fn check_fuses_to_only(pattern: &str, graph: &str) {
    check_fuses_to(pattern, graph);
    let both = Both::new(graph);
    assert_eq!(both.ops(), [pattern], "{}\n{}", both.listing(), both.text);
}

/// Checks that a graph is not fused, for that reason if it is a near miss.
#[track_caller]
fn check_not_fused(reason: Option<&str>, graph: &str) {
    let both = Both::new(graph);
    let context = || format!("{}\n{}", both.listing(), both.text);
    assert!(both.fused_patterns().is_empty(), "{}", context());
    match reason {
        Some(reason) => {
            assert!(both.reasons().iter().any(|given| given.contains(reason)), "{}", context())
        }
        None => assert!(both.reasons().is_empty(), "{}", context()),
    }
    agree_twice(&both);
}

const READ_ELSEWHERE: Option<&str> = Some("also used by another node");

const GELU: &str =
    "float half = {0.5}, float one = {1}, float r = {1.4142135}, float i = {0.70710677}";

#[test]
fn gelu_with_erf() {
    for body in [
        "a = Div (x, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)",
        "a = Div (x, r) b = Erf (a) c = Add (one, b) d = Mul (c, x) y = Mul (half, d)",
        "a = Mul (x, i) b = Erf (a) c = Add (b, one) h = Mul (x, half) y = Mul (h, c)",
        "a = Mul (i, x) b = Erf (a) c = Add (b, one) h = Mul (half, x) y = Mul (c, h)",
        "a = Mul (x, i) b = Erf (a) c = Add (b, one) h = Mul (half, c) y = Mul (x, h)",
        "a = Mul (x, i) b = Erf (a) c = Add (b, one) h = Mul (c, half) y = Mul (h, x)",
    ] {
        check_fuses_to_only("Gelu", &graph(GELU, body));
    }
    // Constants of one element count as well, and doubles.
    let ones = "float[1] half = {0.5}, float[1, 1] one = {1}, float[1, 1, 1] r = {1.4142135}";
    let body = "a = Div (x, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)";
    check_fuses_to_only("Gelu", &graph(ones, body));
    let double = graph(GELU, body).replace("float", "double");
    check_fuses_to_only(
        "Gelu",
        &double
            .replace("1.4142135", "1.4142135623730951")
            .replace("double[N, S, 8] x) => (y)", "double[N, S, 8] x) => (double[N, S, 8] y)"),
    );
}

#[test]
fn gelu_with_tanh() {
    let constants = "float half = {0.5}, float one = {1}, float three = {3}, float c3 = {0.044715}, \
                     float s = {0.7978846}";
    for cube in [
        "p = Pow (x, three) q = Mul (p, c3)",
        "p = Pow (x, three) q = Mul (c3, p)",
        "p2 = Mul (x, x) p = Mul (p2, x) q = Mul (c3, p)",
        "p2 = Mul (x, x) p = Mul (x, p2) q = Mul (p, c3)",
        "p2 = Mul (c3, x) p = Mul (p2, x) q = Mul (p, x)",
    ] {
        for (sum, scale) in [("Add (x, q)", "Mul (s, u)"), ("Add (q, x)", "Mul (u, s)")] {
            for end in [
                "w = Add (one, t) h = Mul (x, half) y = Mul (h, w)",
                "w = Add (t, one) h = Mul (x, w) y = Mul (half, h)",
            ] {
                let body = format!("{cube} u = {sum} v = {scale} t = Tanh (v) {end}");
                check_fuses_to_only("Gelu", &graph(constants, &body));
            }
        }
    }
}

#[test]
fn no_gelu() {
    let body = "a = Div (x, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)";
    for (right, wrong) in [
        ("half = {0.5}", "half = {0.5001}"),
        ("one = {1}", "one = {1.0001}"),
        ("r = {1.4142135}", "r = {1.4143}"),
        ("r = {1.4142135}", "r = {-1.4142135}"),
    ] {
        check_not_fused(Some("a constant is"), &graph(&GELU.replace(right, wrong), body));
    }
    // With operands exchanged it is another function.
    check_not_fused(None, &graph(GELU, &body.replace("Div (x, r)", "Div (r, x)")));
    // Intermediate values with other readers.
    for value in ["a", "b", "c"] {
        let output = graph(GELU, body).replace("=> (y)", &format!("=> (y, {value})"));
        check_not_fused(READ_ELSEWHERE, &output);
        let read = format!("{body} z = Neg ({value})");
        check_not_fused(READ_ELSEWHERE, &graph(GELU, &read).replace("=> (y)", "=> (y, z)"));
    }
    // Another x in one place.
    let other =
        "e = Neg (x) a = Div (e, r) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)";
    check_not_fused(None, &graph(GELU, other));
    // A vector is not a number, even if its elements are equal.
    let vector = GELU
        .replace("float half = {0.5}", "float[8] half = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}");
    check_not_fused(None, &graph(&vector, body));
    // Constants with more axes than x broadcast x.
    for (name, value) in [("half", "0.5"), ("one", "1"), ("r", "1.4142135")] {
        let larger = GELU.replace(
            &format!("float {name} = {{{value}}}"),
            &format!("float[1, 1, 1, 1] {name} = {{{value}}}"),
        );
        let both = Both::new(&graph(&larger, body));
        assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
        agree_twice(&both);
    }
}

#[test]
fn swish() {
    for body in [
        "s = Sigmoid (x) y = Mul (x, s)",
        "s = Sigmoid (x) y = Mul (s, x)",
        "t = Mul (x, a) s = Sigmoid (t) y = Mul (x, s)",
        "t = Mul (a, x) s = Sigmoid (t) y = Mul (s, x)",
    ] {
        for alpha in ["1.702", "1", "-0.5"] {
            let constants = format!("float a = {{{alpha}}}");
            check_fuses_to_only("Swish", &graph(&constants, body));
        }
    }
    let a = "float a = {1.702}";
    let body = "t = Mul (x, a) s = Sigmoid (t) y = Mul (x, s)";
    for value in ["t", "s"] {
        check_not_fused(
            READ_ELSEWHERE,
            &graph(a, body).replace("=> (y)", &format!("=> (y, {value})")),
        );
        let read = graph(a, &format!("{body} z = Neg ({value})"));
        check_not_fused(READ_ELSEWHERE, &read.replace("=> (y)", "=> (y, z)"));
    }
    check_not_fused(None, &graph(a, "e = Neg (x) s = Sigmoid (e) y = Mul (x, s)"));
    let vector = "float[8] a = {1, 2, 3, 4, 5, 6, 7, 8}";
    check_not_fused(None, &graph(vector, body));
    let both = Both::new(&graph("float[1, 1, 1, 1] a = {1.702}", body));
    assert!(both.fused_patterns().is_empty(), "{}", both.listing());
    agree_twice(&both);
}

#[test]
fn hard_swish() {
    let line = "s = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)";
    for body in ["y = Mul (x, s)", "y = Mul (s, x)"] {
        check_fuses_to_only("HardSwish", &graph("float one = {1}", &format!("{line} {body}")));
    }
    let body = format!("{line} y = Mul (x, s)");
    check_fuses_to_only("HardSwish", &graph("float one = {1}", &body.replace(", beta = 0.5", "")));
    check_not_fused(
        READ_ELSEWHERE,
        &graph("float one = {1}", &body).replace("=> (y)", "=> (y, s)"),
    );
    check_not_fused(None, &graph("float one = {1}", &body.replace("0.16666667", "0.2")));
    check_not_fused(None, &graph("float one = {1}", &body.replace("beta = 0.5", "beta = 0.25")));
    check_not_fused(
        None,
        &graph("float one = {1}", &format!("e = Neg (x) {}", body.replace("(x) y", "(e) y"))),
    );
}

const RMS: &str = "float two = {2}, float one = {1}, float e = {0.00001}, float p = {-0.5}, int64[1] last = {-1}, \
                   float[8] w = {1, -2, 3, 0.5, 0.25, 0, 1.5, 2}";

#[test]
fn root_mean_square() {
    let mean = |square: &str| format!("q = {square} m = ReduceMean (q, last) f = Add (m, e)");
    for square in ["Pow (x, two)", "Mul (x, x)"] {
        for end in [
            "r = Sqrt (f) i = Reciprocal (r) n = Mul (x, i) y = Mul (w, n)",
            "r = Sqrt (f) i = Reciprocal (r) n = Mul (i, x) y = Mul (n, w)",
            "r = Sqrt (f) i = Div (one, r) n = Mul (x, i) y = Mul (n, w)",
            "r = Sqrt (f) n = Div (x, r) y = Mul (n, w)",
            "i = Pow (f, p) n = Mul (x, i) y = Mul (w, n)",
        ] {
            check_fuses_to_only(
                "RMSNormalization",
                &graph(RMS, &format!("{} {end}", mean(square))),
            );
        }
    }
    let end = "r = Sqrt (f) i = Reciprocal (r) n = Mul (x, i) y = Mul (w, n)";
    let body = format!("{} {end}", mean("Mul (x, x)"));
    let swapped = body.replace("Add (m, e)", "Add (e, m)");
    check_fuses_to_only("RMSNormalization", &graph(RMS, &swapped));
    let counted = RMS.replace("{-1}", "{2}");
    check_fuses_to_only("RMSNormalization", &graph(&counted, &body));

    // Near misses.
    check_not_fused(None, &graph(&RMS.replace("{-1}", "{1}"), &body));
    check_not_fused(
        None,
        &graph(
            &RMS.replace("two = {2}", "two = {2.001}"),
            &body.replace("Mul (x, x)", "Pow (x, two)"),
        ),
    );
    check_not_fused(
        None,
        &graph(
            &RMS.replace("p = {-0.5}", "p = {-0.499}"),
            &body.replace("r = Sqrt (f) i = Reciprocal (r)", "i = Pow (f, p)"),
        ),
    );
    check_not_fused(
        None,
        &graph(RMS, &format!("o = Neg (x) {}", body.replace("Mul (x, i)", "Mul (o, i)"))),
    );
    for value in ["q", "m", "f", "r", "i", "n"] {
        let output = graph(RMS, &body).replace("=> (y)", &format!("=> (y, {value})"));
        check_not_fused(READ_ELSEWHERE, &output);
    }
    let weight = "the weight is not a vector";
    for (dims, elements) in
        [("1", "3"), ("1, 8", "1, 2, 3, 4, 5, 6, 7, 8"), ("5, 1", "1, 2, 3, 4, 5")]
    {
        let constants = RMS.replace(
            "float[8] w = {1, -2, 3, 0.5, 0.25, 0, 1.5, 2}",
            &format!("float[{dims}] w = {{{elements}}}"),
        );
        let both = Both::new(&graph(&constants, &body).replace("[N, S, 8]", "[N, 5, 8]"));
        assert!(both.fused_patterns().is_empty(), "{}", both.listing());
        assert!(both.reasons().iter().any(|why| why.contains(weight)), "{}", both.listing());
        agree_twice(&both);
    }
    // A weight longer than x broadcasts x.
    let longer = graph(RMS, &body).replace("[N, S, 8]", "[N, S, 1]");
    check_not_fused(Some(weight), &longer);
    // Epsilon with more axes than x.
    let larger = RMS.replace("float e = ", "float[1, 1, 1, 1] e = ");
    let both = Both::new(&graph(&larger, &body));
    assert!(both.fused_patterns().is_empty(), "{}", both.listing());
    agree_twice(&both);
    // The weight is an input.
    let given =
        "g (float[N, S, 8] x, float[8] w) => (y) <float e = {0.00001}, int64[1] last = {-1}>";
    check_fuses_to_only("RMSNormalization", &format!("{given} {{ {body} }}"));
    check_not_fused(
        Some(weight),
        &format!("{given} {{ {body} }}")
            .replace("float[8] w", "float[T] w")
            .replace("S, 8]", "S, T]")
            .replace("float[T] w)", "float[N, 1, T] w)"),
    );
}

const LAYER: &str = "float two = {2}, float e = {0.00001}, float p = {-0.5}, int64[1] last = {-1}, \
                     float[8] w = {1, -2, 3, 0.5, 0.25, 0, 1.5, 2}, float[8] b = {0, 1, 2, 3, 4, 5, 6, 7}";

#[test]
fn layer_normalization() {
    let start = "m = ReduceMean (x, last) c = Sub (x, m)";
    for square in ["Pow (c, two)", "Mul (c, c)"] {
        for end in [
            "r = Sqrt (f) n = Div (c, r) s = Mul (n, w) y = Add (s, b)",
            "r = Sqrt (f) n = Div (c, r) s = Mul (w, n) y = Add (b, s)",
            "r = Sqrt (f) i = Reciprocal (r) n = Mul (c, i) s = Mul (n, w) y = Add (s, b)",
            "i = Pow (f, p) n = Mul (c, i) s = Mul (n, w) y = Add (s, b)",
        ] {
            let body =
                format!("{start} q = {square} v = ReduceMean (q, last) f = Add (v, e) {end}");
            check_fuses_to_only("LayerNormalization", &graph(LAYER, &body));
        }
    }
    let body = format!(
        "{start} q = Pow (c, two) v = ReduceMean (q, last) f = Add (v, e) r = Sqrt (f) n = Div (c, r) s = Mul (n, w) \
         y = Add (s, b)"
    );
    for value in ["q", "v", "f", "r", "n"] {
        let output = graph(LAYER, &body).replace("=> (y)", &format!("=> (y, {value})"));
        check_not_fused(READ_ELSEWHERE, &output);
    }
    check_not_fused(None, &graph(&LAYER.replace("{-1}", "{1}"), &body));
    let power = LAYER.replace("two = {2}", "two = {2.01}");
    check_not_fused(None, &graph(&power, &body));
    // With one of these as output it is still the other normalization, of the centered value.
    for value in ["m", "c"] {
        let output = graph(LAYER, &body).replace("=> (y)", &format!("=> (y, {value})"));
        check_fuses_to("RMSNormalization", &output);
    }
    for (right, wrong) in [
        ("Sub (x, m)", "Sub (m, x)"),
        ("m = ReduceMean (x, last)", "o = Neg (x) m = ReduceMean (o, last)"),
    ] {
        check_fuses_to("RMSNormalization", &graph(LAYER, &body.replace(right, wrong)));
    }
    // A duplicate node counts as one value.
    let twice = body.replace("n = Div (c, r)", "d = Sub (x, m) n = Div (d, r)");
    check_fuses_to_only("LayerNormalization", &graph(LAYER, &twice));
}

#[test]
fn layer_normalization_without_bias() {
    let start = "m = ReduceMean (x, last) c = Sub (x, m)";
    for square in ["Pow (c, two)", "Mul (c, c)"] {
        for end in [
            "r = Sqrt (f) n = Div (c, r) y = Mul (n, w)",
            "r = Sqrt (f) n = Div (c, r) y = Mul (w, n)",
            "r = Sqrt (f) i = Reciprocal (r) n = Mul (c, i) y = Mul (n, w)",
            "i = Pow (f, p) n = Mul (c, i) y = Mul (n, w)",
        ] {
            let body =
                format!("{start} q = {square} v = ReduceMean (q, last) f = Add (v, e) {end}");
            check_fuses_to_only("LayerNormalization", &graph(LAYER, &body));
            let double = graph(LAYER, &body)
                .replace("float", "double")
                .replace("=> (y)", "=> (double[N, S, 8] y)");
            check_fuses_to_only("LayerNormalization", &double);
        }
    }
    let body = format!(
        "{start} q = Pow (c, two) v = ReduceMean (q, last) f = Add (v, e) r = Sqrt (f) n = Div (c, r) y = Mul (n, w)"
    );
    for value in ["q", "v", "f", "r", "n"] {
        let output = graph(LAYER, &body).replace("=> (y)", &format!("=> (y, {value})"));
        check_not_fused(READ_ELSEWHERE, &output);
    }
    for value in ["m", "c"] {
        let output = graph(LAYER, &body).replace("=> (y)", &format!("=> (y, {value})"));
        check_fuses_to("RMSNormalization", &output);
    }
    check_not_fused(None, &graph(&LAYER.replace("{-1}", "{1}"), &body));
    // The addend is not a bias: of another size, subtracted, or added to a value with other
    // readers.
    let with = |end: &str| graph(LAYER, &body.replace("y = Mul", "s = Mul").replace("(n, w)", end));
    check_fuses_to("LayerNormalization", &with("(n, w) y = Sub (s, b)"));
    check_fuses_to("LayerNormalization", &with("(n, w) y = Add (s, e)"));
    let output = with("(n, w) y = Add (s, b)").replace("=> (y)", "=> (y, s)");
    check_fuses_to("LayerNormalization", &output);
    // A weight that is not a vector fits neither normalization.
    let scalar = LAYER.replace("float[8] w = {1, -2, 3, 0.5, 0.25, 0, 1.5, 2}", "float[1] w = {3}");
    check_not_fused(Some("the weight is not a vector"), &graph(&scalar, &body));
}

/// Checks that parallel blocks normalize one value, each with a weight of its own, although
/// duplicates are merged first.
#[test]
fn normalizations_of_one_value() {
    let weights = format!("{LAYER}, float[8] k = {{2, 2, 3, 3, 4, 4, 5, 5}}");
    let part = |way: &str, end: &str| {
        let names = ["m", "c", "q", "v", "f", "r", "n"];
        let body = "m = ReduceMean (x, last) c = Sub (x, m) q = Pow (c, two) v = ReduceMean (q, last) f = Add (v, e) \
                    r = Sqrt (f) n = Div (c, r)";
        let words = format!("{body} {end}");
        let own = words.split_inclusive([' ', '(', ')', ',']);
        own.map(|word| {
            let name = word.trim_end_matches([' ', '(', ')', ',']);
            if names.contains(&name) {
                word.replacen(name, &format!("{name}{way}"), 1)
            } else {
                word.to_string()
            }
        })
        .collect::<String>()
    };
    let graph = |first: &str, second: &str| {
        let body = format!("{} {}", part("1", first), part("2", second));
        graph(&weights, &body).replace("=> (y)", "=> (y, z)")
    };
    let (biased, other) = ("s = Mul (n, w) y = Add (s, b)", "t = Mul (n, k) z = Add (t, k)");
    let without = "z = Mul (k, n)";
    for (first, second) in [(biased, other), (biased, without), ("y = Mul (n, w)", without)] {
        let both = Both::new(&graph(first, second));
        assert_eq!(both.fused_patterns(), ["LayerNormalization"; 2], "{}", both.listing());
        assert_eq!(both.ops(), ["LayerNormalization"; 2], "{}", both.listing());
        agree_twice(&both);
    }
    // The normalized value has other readers, so fusion would save nothing.
    check_not_fused(READ_ELSEWHERE, &graph(biased, "z = Neg (n)"));
    check_not_fused(READ_ELSEWHERE, &graph(biased, "z = Mul (n, e)"));
    let root = "q = Mul (x, x) v = ReduceMean (q, last) f = Add (v, e) r = Sqrt (f) n = Div (x, r)";
    let root = format!(
        "g (float[N, S, 8] x) => (y, z) <{weights}> {{ {root} y = Mul (n, w) z = Mul (n, k) }}"
    );
    let both = Both::new(&root);
    assert_eq!(both.ops(), ["RMSNormalization"; 2], "{}", both.listing());
    agree_twice(&both);
}

/// Checks exponents of another type than the bases.
#[test]
fn whole_exponents() {
    for (constant, fits) in [
        ("int64 two = {2}", true),
        ("int64[1] two = {2}", true),
        ("int32 two = {2}", true),
        ("int64 two = {3}", false),
        ("int32 two = {-2}", false),
    ] {
        let constants = RMS.replace("float two = {2}", constant);
        let end =
            "m = ReduceMean (q, last) f = Add (m, e) r = Sqrt (f) n = Div (x, r) y = Mul (n, w)";
        let body = graph(&constants, &format!("q = Pow (x, two) {end}"));
        if fits {
            check_fuses_to_only("RMSNormalization", &body)
        } else {
            check_not_fused(None, &body)
        }
        let constants = LAYER.replace("float two = {2}", constant);
        let end = "v = ReduceMean (q, last) f = Add (v, e) r = Sqrt (f) n = Div (c, r) s = Mul (n, w) y = Add (s, b)";
        let start = "m = ReduceMean (x, last) c = Sub (x, m) q = Pow (c, two)";
        let body = graph(&constants, &format!("{start} {end}"));
        if fits {
            check_fuses_to_only("LayerNormalization", &body)
        } else {
            check_not_fused(None, &body)
        }
    }
    let constants = "float half = {0.5}, float one = {1}, int64 three = {3}, float c3 = {0.044715}, \
                     float s = {0.7978846}";
    let body = "p = Pow (x, three) q = Mul (p, c3) u = Add (x, q) v = Mul (s, u) t = Tanh (v) w = Add (one, t) \
                h = Mul (x, half) y = Mul (h, w)";
    check_fuses_to_only("Gelu", &graph(constants, body));
}

const ROTARY: &str = "int64[1] zero = {0}, int64[1] half = {4}, int64[1] end = {9223372036854775807}, int64[1] three \
                      = {3}, \
                      int64[1] one = {1}";

fn rotary(x: &str, angles: &str, body: &str) -> String {
    format!("g (float[{x}] x, float[{angles}] angles) => (y) <{ROTARY}> {{ {body} }}")
}

const ROTARY_BODY: &str = "twice = Concat <axis = -1> (angles, angles) cc = Cos (twice) ss = Sin (twice) \
                           c = Unsqueeze (cc, one) s = Unsqueeze (ss, one) straight = Mul (x, c) \
                           low = Slice (x, zero, half, three) high = Slice (x, half, end, three) minus = Neg (high) \
                           turned = Concat <axis = -1> (minus, low) crossed = Mul (turned, s) y = Add (straight, \
                           crossed)";

#[test]
fn rotary_embedding() {
    let (x, angles) = ("N, 3, S, 8", "N, S, 4");
    check_fuses_to("RotaryEmbedding", &rotary(x, angles, ROTARY_BODY));
    check_fuses_to("RotaryEmbedding", &rotary(x, "1, S, 4", ROTARY_BODY));
    for (right, other) in [
        ("Add (straight, crossed)", "Add (crossed, straight)"),
        ("Mul (x, c)", "Mul (c, x)"),
        ("Mul (turned, s)", "Mul (s, turned)"),
        ("(x, zero, half, three)", "(x, zero, half, three, one)"),
        ("turned = Concat <axis = -1>", "turned = Concat <axis = 3>"),
    ] {
        check_fuses_to("RotaryEmbedding", &rotary(x, angles, &ROTARY_BODY.replace(right, other)));
    }
    // Two values rotate by one set of angles: cosine and sine are computed once.
    let second = ROTARY_BODY
        .replace("y = Add", "y1 = Add")
        .replace(
            "twice = Concat <axis = -1> (angles, angles) cc = \
     Cos (twice) ss = Sin (twice) c = Unsqueeze (cc, one) s = Unsqueeze (ss, one)",
            "",
        )
        .replace("straight", "straight1")
        .replace("low", "low1")
        .replace("high", "high1")
        .replace("minus", "minus1")
        .replace("turned", "turned1")
        .replace("crossed", "crossed1")
        .replace("Mul (x, c)", "Mul (x1, c)")
        .replace("Slice (x,", "Slice (x1,");
    let two = rotary(x, angles, &format!("{ROTARY_BODY} x1 = Exp (x) {second}"))
        .replace("=> (y)", "=> (y, y1)");
    let both = Both::new(&two);
    assert_eq!(both.fused_patterns(), ["RotaryEmbedding"; 2], "{}", both.listing());
    let count = |op: &str| both.ops().iter().filter(|other| **other == op).count();
    assert_eq!((count("Cos"), count("Sin")), (1, 1), "{}", both.listing());
    agree_twice(&both);
}

#[test]
fn no_rotary_embedding() {
    let (x, angles) = ("N, 3, S, 8", "N, S, 4");
    for (right, wrong) in [
        // The halves are not halves, or are exchanged, or the wrong one is negative.
        ("half = {4}", "half = {3}"),
        ("Concat <axis = -1> (minus, low)", "Concat <axis = -1> (low, minus)"),
        ("minus = Neg (high)", "minus = Abs (high)"),
    ] {
        let graph = rotary(x, angles, ROTARY_BODY).replace(right, wrong);
        check_not_fused(None, &graph);
    }
    let why = Some("angles that are repeated in each row");
    let other_twice = ROTARY_BODY.replace("(angles, angles)", "(angles, others)");
    check_not_fused(why, &rotary(x, angles, &format!("others = Neg (angles) {other_twice}")));
    check_not_fused(why, &rotary(x, angles, &ROTARY_BODY.replace("Cos (twice)", "Exp (twice)")));
    for value in ["straight", "turned", "crossed", "minus", "low", "high"] {
        check_not_fused(
            READ_ELSEWHERE,
            &rotary(x, angles, ROTARY_BODY).replace("=> (y)", &format!("=> (y, {value})")),
        );
    }
    // Angles that are broadcast, or that broadcast x.
    for (x, angles) in
        [("N, 3, S, 8", "N, 1, 4"), ("1, 3, S, 8", "N, S, 4"), ("N, 3, 1, 8", "N, S, 4")]
    {
        let both = Both::new(&rotary(x, angles, ROTARY_BODY));
        assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
        assert!(!both.reasons().is_empty(), "{}", both.listing());
        agree_twice(&both);
    }
}

/// Writes attention of rank 4, with the first product, the operations on the scores, and their
/// constants.
fn heads(key: &str, scores: &str) -> String {
    format!(
        "g (float[N, 3, S, 8] q, float[N, 3, T, 8] k, float[N, 3, T, 4] v, float[N, 1, S, T] mask) => (y) \
         <float s = {{0.35}}, float d = {{2.8}}, float h = {{0.6}}> {{ {key} p = MatMul (q, t) {scores} \
         w = Softmax <axis = -1> (z) y = MatMul (w, v) }}"
    )
}

const KEY: &str = "t = Transpose <perm = [0, 1, 3, 2]> (k)";

#[test]
fn attention_with_heads() {
    for scores in [
        "z = Mul (p, s)",
        "z = Mul (s, p)",
        "z = Div (p, d)",
        "z1 = Mul (p, s) z = Div (z1, d)",
        "z1 = Div (p, d) z = Add (z1, mask)",
        "z1 = Mul (p, s) z = Add (mask, z1)",
        "z = Add (p, mask)",
    ] {
        let both = Both::new(&heads(KEY, scores));
        assert_eq!(both.fused_patterns(), ["Attention"], "{}\n{}", both.listing(), both.text);
        // The keys are not moved.
        let left = both.ops();
        assert!(!left.contains(&"MatMul") && !left.contains(&"Softmax"), "{left:?}");
        agree_twice(&both);
    }
    // No scale and no mask.
    let bare = heads(KEY, "").replace("(z)", "(p)");
    check_fuses_to("Attention", &bare);
    // Scales of the operands.
    let key = "k1 = Mul (k, h) t = Transpose <perm = [0, 1, 3, 2]> (k1) ";
    for (key, product) in [
        (KEY, "q1 = Mul (q, h) p = MatMul (q1, t)"),
        (
            "t1 = Transpose <perm = [0, 1, 3, 2]> (k) t = Mul (t1, h)",
            "q1 = Mul (h, q) p = MatMul (q1, t)",
        ),
        (key, "q1 = Mul (h, q) p = MatMul (q1, t)"),
    ] {
        let graph = heads(key, "z = Add (p, mask)").replace("p = MatMul (q, t)", product);
        check_fuses_to("Attention", &graph);
    }
    // Masks of fewer axes, or of fewer rows.
    for mask in
        ["1, 1, S, T", "N, 1, 1, T", "N, 3, S, T", "S, T", "1, T", "T", "1, S, T", "3, 1, T"]
    {
        let graph = heads(KEY, "z1 = Mul (p, s) z = Add (z1, mask)").replace("N, 1, S, T", mask);
        check_fuses_to("Attention", &graph);
    }
}

#[test]
fn attention_in_a_transformer() {
    // Keys as a linear layer computes them, transposed once; the result is transposed back and
    // joined.
    for (perm, order) in [("[0, 2, 3, 1]", true), ("[0, 1, 3, 2]", false)] {
        let key = if order {
            format!("t = Transpose <perm = {perm}> (k4)")
        } else {
            format!("k5 = Transpose <perm = [0, 2, 1, 3]> (k4) t = Transpose <perm = {perm}> (k5)")
        };
        let graph = format!(
            "g (float[N, S, 24] q, float[N, T, 24] k, float[N, T, 24] v, float[N, 1, 1, T] mask) => (y) \
             <int64[4] split = {{0, 0, 3, 8}}, int64[3] join = {{0, 0, 24}}, float s = {{0.35}}> {{ \
             q4 = Reshape (q, split) q5 = Transpose <perm = [0, 2, 1, 3]> (q4) \
             k4 = Reshape (k, split) {key} v4 = Reshape (v, split) v5 = Transpose <perm = [0, 2, 1, 3]> (v4) \
             p = MatMul (q5, t) p1 = Mul (p, s) p2 = Add (p1, mask) w = Softmax <axis = -1> (p2) o = MatMul (w, v5) \
             o1 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (o1, join) }}"
        );
        let both = Both::new(&graph);
        assert_eq!(both.fused_patterns(), ["Attention"], "{}\n{}", both.listing(), both.text);
        let kernels = both.fused.steps();
        let attention = kernels.iter().find(|step| step.op == "Attention").unwrap();
        assert!(attention.kernel.contains("order"), "{}", both.listing());
        agree_twice(&both);
    }
}

#[test]
fn attention_of_matrices() {
    let graph = |scores: &str| {
        format!(
            "g (float[N, S, 8] q, float[N, T, 8] k, float[N, T, 4] v, float[S, T] mask) => (y) <float s = {{0.35}}> \
             {{ t = Transpose <perm = [0, 2, 1]> (k) p = MatMul (q, t) {scores} w = Softmax <axis = 2> (z) \
             y = MatMul (w, v) }}"
        )
    };
    check_fuses_to("Attention", &graph("z = Mul (p, s)"));
    check_fuses_to("Attention", &graph("z1 = Mul (p, s) z = Add (z1, mask)"));
    for mask in ["T", "1, T", "N, S, T", "N, 1, T"] {
        let graph = graph("z1 = Mul (p, s) z = Add (z1, mask)")
            .replace("float[S, T]", &format!("float[{mask}]"));
        check_fuses_to("Attention", &graph);
    }
}

#[test]
fn attention_with_shared_heads() {
    let graph = |k_copies: usize, v_copies: usize| {
        let copies = |name: &str, copies: usize| {
            format!(
                "{name}1 = Unsqueeze ({name}, two) {name}2 = Expand ({name}1, c{copies}) {name}3 = Reshape ({name}2, \
                 join)"
            )
        };
        format!(
            "g (float[N, 6, S, 8] q, float[N, {}, T, 8] k, float[N, {}, T, 8] v) => (y) <int64[1] two = {{2}}, \
             int64[5] c2 = {{1, 1, 2, 1, 1}}, int64[5] c3 = {{1, 1, 3, 1, 1}}, int64[4] join = {{0, 6, -1, 8}}, \
             float s = {{0.35}}> {{ {} {} t = Transpose <perm = [0, 1, 3, 2]> (k3) p = MatMul (q, t) z = Mul (p, s) \
             w = Softmax <axis = -1> (z) y = MatMul (w, v3) }}",
            6 / k_copies,
            6 / v_copies,
            copies("k", k_copies),
            copies("v", v_copies),
        )
    };
    for copies in [2, 3] {
        let both = Both::new(&graph(copies, copies));
        assert_eq!(both.fused_patterns(), ["Attention"], "{}\n{}", both.listing(), both.text);
        assert!(!both.ops().contains(&"Expand"), "{}", both.listing());
        agree_twice(&both);
    }
    // Different numbers of copies are copied before, so that they are equal.
    check_fuses_to("Attention", &graph(2, 3));
    // Repeating whole sets of heads is another order.
    let other = graph(2, 2).replace("{2}", "{1}").replace("{1, 1, 2, 1, 1}", "{1, 2, 1, 1, 1}");
    let both = Both::new(&other);
    assert_eq!(both.fused_patterns(), ["Attention"], "{}\n{}", both.listing(), both.text);
    agree_twice(&both);
}

#[test]
fn no_attention() {
    let masked = heads(KEY, "z1 = Mul (p, s) z = Add (z1, mask)");
    for value in ["p", "z1", "z", "w"] {
        check_not_fused(READ_ELSEWHERE, &masked.replace("=> (y)", &format!("=> (y, {value})")));
        let read = masked.replace("y = MatMul", &format!("o = Neg ({value}) y = MatMul"));
        check_not_fused(READ_ELSEWHERE, &read.replace("=> (y)", "=> (y, o)"));
    }
    // Keys that another node reads transposed do not prevent fusion: they are transposed for that
    // node alone.
    check_fuses_to("Attention", &masked.replace("=> (y)", "=> (y, t)"));
    let column = Some("a column for each key");
    check_not_fused(column, &masked.replace("N, 1, S, T", "N, 1, S, 1"));
    check_not_fused(column, &masked.replace("float[N, 1, S, T] mask", "float mask"));
    check_not_fused(Some("not along the last axis"), &masked.replace("<axis = -1>", "<axis = 2>"));
    check_not_fused(
        Some("not a scaled product"),
        &heads(KEY, "z1 = Add (p, mask) z = Mul (z1, s)"),
    );
    check_not_fused(Some("not a scaled product"), &heads(KEY, "z1 = Tanh (p) z = Add (z1, mask)"));
    check_not_fused(Some("not a scaled product"), &heads(KEY, "z = Div (s, p)"));
    // A vector is not a scale.
    let vector = heads(KEY, "z = Mul (p, mask)");
    check_not_fused(Some("not a scaled product"), &vector);
    check_not_fused(
        Some("the type is not float"),
        &masked.replace("float", "double").replace("=> (y)", "=> (double[N, 3, S, 4] y)"),
    );
    // Sizes that may differ: one of them may be 1, and broadcast.
    let broadcast = masked.replace("float[N, 3, T, 8] k", "float[1, 3, T, 8] k");
    check_not_fused(Some("different leading sizes"), &broadcast);
    let broadcast = masked.replace("float[N, 3, T, 4] v", "float[N, 1, T, 4] v");
    check_not_fused(Some("different leading sizes"), &broadcast);
    // Masks that broadcast the scores.
    let wide = heads(KEY, "z1 = Mul (p, s) z = Add (z1, mask)").replace("[N, 3,", "[1, 3,");
    let both = Both::new(&wide);
    assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
    assert!(!both.reasons().is_empty());
    agree_twice(&both);
    let heads_of_mask = masked.replace("N, 3, ", "N, 1, ").replace("N, 1, S, T", "N, 3, S, T");
    let both = Both::new(&heads_of_mask);
    assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
    agree_twice(&both);
    let rows_of_mask = masked.replace("float[N, 3, S, 8] q", "float[N, 3, 1, 8] q");
    let both = Both::new(&rows_of_mask);
    assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
    agree_twice(&both);
    // A scale with more axes than the scores.
    let scale = heads(KEY, "z = Mul (p, s)").replace("float s = ", "float[1, 1, 1, 1, 1] s = ");
    let both = Both::new(&scale);
    assert!(both.fused_patterns().is_empty(), "{}\n{}", both.listing(), both.text);
    agree_twice(&both);
}

#[test]
fn queries_that_see_nothing_are_nan_as_written() {
    let graph = heads(KEY, "z1 = Mul (p, s) z = Add (z1, mask)");
    let both = Both::new(&graph);
    assert_eq!(both.fused_patterns(), ["Attention"]);
    let mut inputs = both.inputs(&SIZES[0], 1);
    let mut mask: Vec<f32> = inputs[3].1.as_tensor().unwrap().to_vec().unwrap();
    mask[..7].fill(f32::NEG_INFINITY);
    mask[8..12].fill(f32::NEG_INFINITY);
    inputs[3].1 = sardonyx_tensor::Tensor::from_slice([2, 1, 5, 7], &mask).unwrap().into();
    let (plain, fused) = (both.plain.run(inputs.clone()).unwrap(), both.fused.run(inputs).unwrap());
    both_ways::check_equal(&plain, &fused, 1e-5, &both.text);
    let y: Vec<f32> = fused[0].1.as_tensor().unwrap().to_vec().unwrap();
    assert!(y[..4].iter().all(|y| y.is_nan()) && y[4..20].iter().all(|y| y.is_finite()));
}

/// Checks the form in which PyTorch exports zeros for queries that see no key: weights that are 0
/// where they are NaN.
#[test]
fn queries_that_see_nothing_are_zero_if_guarded() {
    let guarded = |guard: &str| {
        heads(KEY, "z1 = Mul (p, s) z = Add (z1, mask)")
            .replace("w = Softmax <axis = -1> (z)", &format!("a = Softmax <axis = -1> (z) {guard}"))
            .replace("float s", "float o = {0.0}, float s")
    };
    let both = Both::new(&guarded("b = IsNaN (a) w = Where (b, o, a)"));
    assert_eq!(both.fused_patterns(), ["Attention"], "{}", both.listing());
    agree_twice(&both);
    let mut inputs = both.inputs(&SIZES[0], 1);
    let mut mask: Vec<f32> = inputs[3].1.as_tensor().unwrap().to_vec().unwrap();
    mask[..7].fill(f32::NEG_INFINITY);
    inputs[3].1 = sardonyx_tensor::Tensor::from_slice([2, 1, 5, 7], &mask).unwrap().into();
    let (plain, fused) = (both.plain.run(inputs.clone()).unwrap(), both.fused.run(inputs).unwrap());
    both_ways::check_equal(&plain, &fused, 1e-5, &both.text);
    let y: Vec<f32> = fused[0].1.as_tensor().unwrap().to_vec().unwrap();
    assert_eq!(y[..4], [0.0; 4]);
    for guard in [
        "b = IsNaN (a) w = Where (b, s, a)",
        "b = IsNaN (z) w = Where (b, o, a)",
        "b = IsNaN (a) w = Where (b, a, o)",
        "b = IsInf (a) w = Where (b, o, a)",
    ] {
        let both = Both::new(&guarded(guard));
        assert!(both.fused_patterns().is_empty(), "{guard}");
        agree_twice(&both);
    }
}

#[test]
fn fusions_follow_each_other() {
    // A normalization, a product with Gelu as epilogue, and another product with a residual sum.
    let graph = format!(
        "g (float[N, S, 8] x) => (y) <{LAYER}, {GELU}, float[8, 8] w1 = {{{m}}}, float[8, 8] w2 = {{{m}}}> {{ \
         m = ReduceMean (x, last) c = Sub (x, m) q = Pow (c, two) v = ReduceMean (q, last) f = Add (v, e) ro = Sqrt \
         (f) \
         n = Div (c, ro) s = Mul (n, w) ln = Add (s, b) \
         l1 = MatMul (ln, w1) l2 = Add (l1, b) a1 = Div (l2, r) a2 = Erf (a1) a3 = Add (a2, one) a4 = Mul (l2, a3) \
         a5 = Mul (a4, half) l3 = MatMul (a5, w2) l4 = Add (b, l3) y = Add (x, l4) }}",
        m = (0..64)
            .map(|i| format!("{}", (i * 37 % 19) as f32 / 19.0 - 0.5))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let both = Both::new(&graph);
    assert_eq!(both.fused_patterns(), ["LayerNormalization", "Gelu"], "{}", both.listing());
    assert_eq!(both.ops(), ["LayerNormalization", "MatMul", "MatMul"], "{}", both.listing());
    agree_twice(&both);
}
