//! Tests of common subexpression elimination: random graphs with many duplicates have the same bits
//! with and without it.

use std::collections::HashMap;

use crate::both_ways;
use crate::both_ways::{Both, Numbers, bits, compile, complete, inputs};
use sardonyx_runtime::Optimization;

/// Operator, and numbers of the computations that are its operands.
type Computed = (&'static str, Vec<usize>);

/// Graph that is written node by node.
struct Draft {
    numbers: Numbers,
    body: String,
    /// Name and number of each computation; the first is the input.
    names: Vec<(String, usize)>,
    known: HashMap<Computed, usize>,
    /// Number of nodes for each computation, and number of them that are outputs.
    times: Vec<(usize, usize)>,
}

const UNARY: [&str; 7] =
    ["Relu", "Neg", "Abs", "Tanh", "Softmax <axis = -1>", "Elu <alpha = 0.5>", "Exp"];
const BINARY: [&str; 4] = ["Add", "Sub", "Max", "Min"];
const SCALED: [&str; 2] = ["Add", "Mul"];

impl Draft {
    fn new(seed: u64) -> Draft {
        Draft {
            numbers: Numbers::new(seed),
            body: String::new(),
            names: vec![("x".to_string(), 0)],
            known: HashMap::new(),
            times: vec![(0, 0)],
        }
    }

    /// Returns a random name of computation `number`.
    fn name_of(&mut self, number: usize) -> String {
        let fits = self.names.iter().filter(|(_, what)| *what == number);
        let fits: Vec<&String> = fits.map(|(name, _)| name).collect();
        fits[self.numbers.number_below(fits.len())].clone()
    }

    fn node(&mut self, op: &'static str, read: Vec<usize>) {
        let read_names: Vec<String> = read.iter().map(|what| self.name_of(*what)).collect();
        let name = format!("v{}", self.names.len());
        self.body += &format!("{name} = {op} ({}) ", read_names.join(", "));
        let next = self.times.len();
        let number = *self.known.entry((op, read)).or_insert(next);
        if number == next {
            self.times.push((0, 0));
        }
        self.times[number].0 += 1;
        self.names.push((name, number));
    }

    /// Adds a product with one of the two constants, each of which has several names.
    fn add_scaled(&mut self, op: &'static str, value: usize, constant: usize) {
        let value_name = self.name_of(value);
        let spelling = ["a", "b", "c"][self.numbers.number_below(3)];
        let name = format!("v{}", self.names.len());
        self.body += &format!("{name} = {op} ({value_name}, {spelling}{constant}) ");
        let next = self.times.len();
        // Numbers above those of computations stand for the constants.
        let key = (op, vec![value, usize::MAX - constant]);
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            self.times.push((0, 0));
        }
        self.times[number].0 += 1;
        self.names.push((name, number));
    }

    fn grow(&mut self, nodes: usize) {
        for _ in 0..nodes {
            // Few choices, so that most are made twice.
            let recent = self.times.len().saturating_sub(4);
            let pick = |numbers: &mut Numbers| recent + numbers.number_below(4);
            let most = self.times.len() - 1;
            let (a, b) = (pick(&mut self.numbers).min(most), pick(&mut self.numbers).min(most));
            match self.numbers.number_below(3) {
                0 => {
                    let op = UNARY[self.numbers.number_below(UNARY.len())];
                    self.node(op, vec![a]);
                }
                1 => {
                    let op = BINARY[self.numbers.number_below(BINARY.len())];
                    self.node(op, vec![a, b]);
                }
                _ => {
                    let op = SCALED[self.numbers.number_below(SCALED.len())];
                    let constant = self.numbers.number_below(2);
                    self.add_scaled(op, a, constant);
                }
            }
        }
    }

    /// Completes the graph, and returns it with the number of duplicate nodes.
    fn finish(mut self) -> (String, usize) {
        let mut outputs = Vec::new();
        for (name, number) in &self.names[1..] {
            if self.numbers.number_below(4) == 0 {
                outputs.push(name.clone());
                self.times[*number].1 += 1;
            }
        }
        let (name, number) = &self.names[self.names.len() - 1];
        if outputs.last() != Some(name) {
            outputs.push(name.clone());
            self.times[*number].1 += 1;
        }
        let graph = format!(
            "g (float[N, 5] x) => (s, {}) <float a0 = {{0.75}}, float b0 = {{0.75}}, float a1 = {{-1.5}}> {{
                c0 = Constant <value = float {{0.75}}> () b1 = Constant <value_float = -1.5> ()
                c1 = Constant <value_float = -1.5> () s = Sum (x, a0, a1) {} }}",
            outputs.join(", "),
            self.body
        );
        let gone = |(nodes, outputs): &(usize, usize)| nodes - (*outputs).max(1).min(*nodes);
        (graph, self.times.iter().map(gone).sum())
    }
}

#[test]
fn results_are_the_same_bits() {
    for seed in 1..200 {
        let mut draft = Draft::new(seed);
        draft.grow(3 + seed as usize % 40);
        let (graph, gone) = draft.finish();
        let both = Both::new(&graph);
        let shared = both.fused.report().common;
        // The three `Constant` nodes equal two initializers.
        assert_eq!(shared.nodes, gone + 3, "{graph}");
        let threads = compile(&complete(&graph), Optimization::All, 3);
        for rows in [1, 4] {
            let given = inputs(&both.plain, &[("N", rows)], seed);
            let expected = both.plain.run(given.clone()).unwrap();
            for session in [&both.fused, &threads] {
                let found = session.run(given.clone()).unwrap();
                let names = |outputs: &both_ways::Outputs| -> Vec<String> {
                    outputs.iter().map(|(name, _)| name.clone()).collect()
                };
                assert_eq!(names(&found), names(&expected), "{graph}");
                assert_eq!(bits(&found), bits(&expected), "{graph}");
            }
        }
    }
}

/// Checks that products are shared, although they pack weights and outputs have names.
#[test]
fn products_are_shared() {
    let both = both_ways::check(
        "g (float[N, 4] x, float[4, 4] w) => (y, z) <float[4] b = {1, 2, 3, 4}, float[4] c = {1, 2, 3, 4}> {
            p = MatMul (x, w) q = Add (p, b) r = Relu (q)
            s = MatMul (x, w) t = Add (s, c) z = Relu (t)
            y = Sub (r, z)
        }",
        &[&[("N", 3)], &[("N", 1)]],
        0.0,
    );
    let shared = both.fused.report().common;
    assert_eq!((shared.nodes, shared.constants), (3, 1));
    let products = both.ops().into_iter().filter(|op| *op == "MatMul");
    assert_eq!(products.count(), 1, "{}", both.listing());
}

/// Checks that the optimization level decides.
#[test]
fn sharing_is_an_optimization() {
    let text = complete("g (float[N] x) => (y) { a = Relu (x) b = Relu (x) y = Add (a, b) }");
    for (optimization, nodes) in
        [(Optimization::Off, 0), (Optimization::Basic, 0), (Optimization::All, 1)]
    {
        let session = compile(&text, optimization, 1);
        assert_eq!(session.report().common.nodes, nodes, "{optimization:?}");
    }
}

/// Checks that large tensors computed from constants are computed once.
#[test]
fn what_is_folded_is_folded_once() {
    let graph = "g (float[N, 100] x) => (y) {
        n = Constant <value_ints = [100]> () a = ConstantOfShape <value = float[1] {2}> (n)
        m = Constant <value_ints = [100]> () b = ConstantOfShape <value = float[1] {2}> (m)
        c = Exp (a) d = Exp (b) p = Add (x, c) q = Add (x, d) y = Mul (p, q)
    }";
    let both = both_ways::check(graph, &[&[("N", 2)]], 0.0);
    let report = both.fused.report();
    // The two constants, the two fills, the exponentials and the sums.
    assert_eq!(report.common.nodes, 4);
    assert_eq!(report.folded, 3);
    assert_eq!(report.folded_bytes, 2 * 400);
}
