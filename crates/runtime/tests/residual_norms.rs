//! Tests of residual normalization: sums that are normalized are one step with the normalization,
//! and have the same bits.

use crate::both_ways::{Both, bits, compile, complete, inputs, run_one_by_one};
use sardonyx_runtime::Optimization;
use sardonyx_tensor::Tensor;

const SIZES: [&[(&str, usize)]; 4] =
    [&[("N", 2), ("S", 5)], &[("N", 1), ("S", 1)], &[("N", 0), ("S", 3)], &[("N", 3), ("S", 301)]];

/// Runs a graph in one step and in several, compares the results, and returns the operators of its
/// steps.
#[track_caller]
fn steps(outputs: &str, body: &str) -> Vec<String> {
    let graph = format!(
        "g (float[N, S, 24] x, float[N, S, 24] z, float[24] v) => ({outputs}) \
         <float[24] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}}, \
         float[24] b = {{-1, 2, -3, 4, -5, 6, -7, 8, -9, 10, -11, 12, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}}> {{ {body} \
         }}"
    );
    let both = Both::new(&graph);
    for (seed, sizes) in SIZES.iter().enumerate() {
        let given = inputs(&both.plain, sizes, seed as u64 + 1);
        let expected = bits(&run_one_by_one(&graph, given.clone()));
        // Twice, to reuse memory of the first run.
        for _ in 0..2 {
            let found = bits(&both.fused.run(given.clone()).unwrap());
            assert!(expected == found, "{sizes:?}\n{}", both.listing());
        }
    }
    let steps = both.fused.steps();
    steps
        .iter()
        .map(|step| {
            if step.with.is_empty() {
                step.op.to_string()
            } else {
                format!("{} with {}", step.op, step.with.join(", "))
            }
        })
        .collect()
}

#[test]
fn sums_are_normalized_as_they_are_added_up() {
    for normalization in
        ["LayerNormalization (s, w, b)", "LayerNormalization (s, w)", "RMSNormalization (s, w)"]
    {
        let (op, _) = normalization.split_once(' ').unwrap();
        let step = format!("{op} with Add");
        let body = format!("s = Add (x, z) y = {normalization}");
        assert_eq!(steps("y", &body), [&*step]);
        assert_eq!(steps("y, s", &body), [&*step], "the sum is wanted");
        let body = format!("s = Add (x, z) n = {normalization} y = Sub (n, s)");
        assert_eq!(steps("y", &body), [&*step, "Sub"]);
        let body = format!("s = Add (x, z) t = Sin (s) n = {normalization} y = Sub (n, t)");
        assert_eq!(steps("y", &body).len(), 2, "before other readers: {body}");
        let body = format!("s = Add (x, x) y = {normalization}");
        assert_eq!(steps("y", &body), [&*step]);
    }
}

#[test]
fn statistics_stay_where_they_are() {
    let body = "s = Add (x, z) y, m, i = LayerNormalization (s, w, b)";
    for outputs in ["y, m, i", "y, i, s", "m, s", "y, m"] {
        assert_eq!(steps(outputs, body), ["LayerNormalization with Add"]);
    }
    // The normalized value has no readers.
    let body = "y, m = LayerNormalization (x, w)";
    assert_eq!(steps("m", body), ["LayerNormalization"]);
    let body = "s = Add (x, z) y, m = LayerNormalization (s, w)";
    assert_eq!(steps("y, m, s", body), ["LayerNormalization with Add"]);
}

#[test]
fn other_sums_stay() {
    for (body, why) in [
        ("s = Add (x, v) y = RMSNormalization (s, w)", "broadcast"),
        ("s = Sub (x, z) y = RMSNormalization (s, w)", "no sum"),
        ("s = Add (x, z) t = Neg (v) y = RMSNormalization (s, t)", "a scale that is computed"),
        ("s = Add (x, z) y = Softmax (s)", "no normalization"),
    ] {
        let steps = steps("y", body);
        assert!(steps.iter().all(|step| !step.contains("with Add")), "{why}: {steps:?}");
    }
}

#[test]
fn two_normalizations_share_a_sum() {
    let body = "s = Add (x, z) a = RMSNormalization (s, w) c = LayerNormalization (s, w, b) y = Add (a, c)";
    assert_eq!(steps("y", body), ["RMSNormalization with Add", "LayerNormalization", "Add"]);
}

#[test]
fn other_types_and_constant_operands() {
    let constants = "float[2, 24] wf = {W}, float[24] bf = {B}"
        .replace('W', &vec!["0.5"; 48].join(", "))
        .replace('B', &vec!["0.25"; 24].join(", "));
    for elem in [1, 10, 11, 16] {
        let to = format!("Cast <to = {elem}>");
        for add in ["Add (a, c)", "Add (c, a)", "Add (a, k)"] {
            let graph = format!(
                "g (float[2, 24] x, float[2, 24] z) => (y, s) <{constants}> {{ \
                 a = {to} (x) c = {to} (z) k = {to} (wf) b = {to} (bf) \
                 s = {add} y = LayerNormalization (s, b, b) }}"
            );
            let both = Both::new(&graph);
            let with = both.ops().contains(&"Add");
            assert!(!with, "{elem} {add}\n{}", both.listing());
            let given = inputs(&both.plain, &[], 5);
            let expected = bits(&run_one_by_one(&graph, given.clone()));
            assert!(expected == bits(&both.fused.run(given).unwrap()), "{elem} {add}");
        }
    }
}

/// Checks sizes that differ from the declared ones at run time.
#[test]
fn sums_of_other_sizes_than_declared_are_refused() {
    let text = complete(
        "g (float[1, 1] x, int64[2] p, int64[2] q) => (y) \
         <float[1] w = {2}, float[1, K] a, float[1, K] b> { \
         a = Expand (x, p) b = Expand (x, q) s = Add (a, b) y = RMSNormalization (s, w) }",
    );
    let session = compile(&text, Optimization::All, 1);
    assert!(session.steps().iter().all(|step| step.op != "Add"));
    let run = |p: [i64; 2], q: [i64; 2]| {
        let mut given = inputs(&session, &[], 1);
        given[1].1 = Tensor::from_slice([2], &p).unwrap().into();
        given[2].1 = Tensor::from_slice([2], &q).unwrap().into();
        session.run(given)
    };
    assert!(run([1, 4], [1, 4]).is_ok());
    let error = run([1, 4], [1, 1]).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("[1, 4] and [1, 1] are added, but the model declares"), "{said}");
}
