//! Tests of pointwise fusion: successive functions are one step. Each graph is compared, bit for
//! bit, with its nodes run one by one.

use crate::both_ways::{
    Both, Numbers, Outputs, compile, complete, expose_values, inputs, run_one_by_one,
};
use sardonyx_model::Type;
use sardonyx_runtime::Optimization;
use sardonyx_tensor::{DataType, Tensor};

/// Sizes of runs. The last is split among threads, and into tiles.
const SIZES: [&[(&str, usize)]; 4] =
    [&[("N", 2), ("S", 5)], &[("N", 1), ("S", 1)], &[("N", 0), ("S", 3)], &[("N", 3), ("S", 701)]];

/// Writes a graph with inputs of one element type: `x` and `z` have the shape of the result, the
/// others broadcast to it.
fn graph(elem: &str, body: &str) -> String {
    let (half, low, high) = match elem {
        "int64" => ("3", "-20", "40"),
        _ => ("0.5", "-0.25", "0.75"),
    };
    format!(
        "g ({elem}[N, S, 8] x, {elem}[N, S, 8] z, {elem}[8] v, {elem}[N, S, 1] c, {elem}[N, 1, 8] n, {elem}[S, 1] s) \
         => (y) <{elem} half = {{{half}}}, {elem}[1] one = {{{half}}}, {elem}[8] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, \
         {elem} low = {{{low}}}, {elem} high = {{{high}}}, int64[1] last = {{-1}}, \
         int64[2] rows = {{-1, 8}}> {{ {body} }}"
    )
}

/// Checks that shapes and bits are equal, except for the kind of NaN: which of two is returned
/// depends on the order of operands in processors.
#[track_caller]
fn check_bits(expected: &Outputs, found: &Outputs, what: &str) {
    fn bits(tensor: &Tensor) -> Vec<u64> {
        match tensor.data_type() {
            DataType::Float => {
                let elements = tensor.to_vec::<f32>().unwrap().into_iter();
                let known = elements.map(|x| if x.is_nan() { f32::NAN } else { x });
                known.map(|x| u64::from(x.to_bits())).collect()
            }
            DataType::Double => {
                let elements = tensor.to_vec::<f64>().unwrap().into_iter();
                let known = elements.map(|x| if x.is_nan() { f64::NAN } else { x });
                known.map(f64::to_bits).collect()
            }
            _ => tensor.bytes().iter().copied().map(u64::from).collect(),
        }
    }
    assert_eq!(expected.len(), found.len());
    for ((name, expected), (other, found)) in expected.iter().zip(found) {
        let (expected, found) = (expected.as_tensor().unwrap(), found.as_tensor().unwrap());
        assert_eq!(name, other, "{what}");
        assert_eq!(expected.dims(), found.dims(), "{name}\n{what}");
        assert_eq!(expected.data_type(), found.data_type(), "{name}\n{what}");
        assert!(bits(expected) == bits(found), "{name}\n{what}");
    }
}

/// Checks that a graph has the same bits node by node and with fused steps, for any number of
/// threads.
#[track_caller]
fn check_exactly(graph: &str) -> Both {
    let both = Both::new(graph);
    assert!(both.fused_patterns().is_empty(), "{}", both.listing());
    let threaded = compile(&both.text, Optimization::All, 3);
    for (seed, sizes) in SIZES.iter().enumerate() {
        let given = inputs(&both.plain, sizes, seed as u64 + 1);
        let expected = run_one_by_one(graph, given.clone());
        for session in [&both.plain, &both.fused, &threaded] {
            // Twice, to reuse memory of the first run.
            for _ in 0..2 {
                let found = session.run(given.clone()).unwrap();
                check_bits(&expected, &found, &format!("{sizes:?} {}", both.text));
            }
        }
    }
    both
}

/// Runs a graph and compares its steps, each with the nodes fused into it.
#[track_caller]
fn steps(graph: &str, expected: &[&str]) -> Both {
    let both = check_exactly(graph);
    let steps = both.fused.steps();
    let found: Vec<String> = steps
        .iter()
        .map(|step| {
            let with = step.with.iter().copied();
            let ops: Vec<&str> = [step.op].into_iter().chain(with).collect();
            ops.join(" ")
        })
        .collect();
    assert_eq!(found, expected, "{}\n{graph}", both.listing());
    both
}

#[test]
fn what_follows_joins() {
    for (body, expected) in [
        ("a = Neg (x) y = Exp (a)", &["Neg Exp"][..]),
        ("a = Add (x, z) b = Relu (a) d = Mul (b, half) y = Tanh (d)", &["Add Relu Mul Tanh"]),
        // Broadcast operands on either side.
        (
            "a = Abs (x) b = Sub (v, a) d = Add (b, c) e = Div (n, d) f = Mul (s, e) g1 = Sub (f, one) y = Max (w, g1)",
            &["Abs Sub Add Div Mul Sub Max"],
        ),
        // Both operands of the first may broadcast, also the first one.
        ("a = Mul (c, n) y = Sub (half, a)", &["Mul Sub"]),
        ("a = Sub (v, x) y = Neg (a)", &["Sub Neg"]),
        (
            "a = Clip (x, low, high) b = Clip (a, , high) d = Clip (b, low) y = Clip (d)",
            &["Clip Clip Clip Clip"],
        ),
        (
            "a = PRelu (x, v) b = Pow (a, half) d = Pow (half, b) e = Mod <fmod = 1> (d, z) y = PRelu (e, s)",
            &["PRelu Pow Pow Mod PRelu"],
        ),
        (
            "a = Sum (x, z) b = Min (v, a) d = Max (b, x) y = Softsign (d)",
            &["Sum Min Max Softsign"],
        ),
        // An operand is computed before the first function, or after it.
        ("a = Sigmoid (x) b = Sub (a, x) d = Add (b, x) y = Mul (x, d)", &["Sigmoid Sub Add Mul"]),
        (
            "a = Neg (x) r = ReduceMax (z, last) b = Add (a, r) y = Exp (b)",
            &["ReduceMax", "Neg Add Exp"],
        ),
        // Two chains that meet: the first one continues.
        (
            "a = Neg (x) b = Exp (a) d = Abs (z) e = Sqrt (d) f = Add (e, b) y = Tanh (f)",
            &["Abs Sqrt", "Neg Exp Add Tanh"],
        ),
        // Only while shapes are equal.
        ("a = Neg (c) b = Exp (a) d = Add (b, x) y = Relu (d)", &["Neg Exp", "Add Relu"]),
        ("a = Mul (v, half) b = Add (x, a) d = Neg (b) y = Exp (d)", &["Mul", "Add Neg Exp"]),
        (
            "p = Reshape (x, rows) a = Neg (p) b = Exp (a) q = Unsqueeze (b, last) d = Abs (q) y = Sqrt (d)",
            &["Reshape", "Neg Exp", "Unsqueeze", "Abs Sqrt"],
        ),
    ] {
        steps(&graph("float", body), expected);
    }
}

#[test]
fn what_others_want_stays() {
    for (body, expected) in [
        // Read twice, by one step or by two.
        ("a = Neg (x) y = Mul (a, a)", &["Neg", "Mul"][..]),
        ("a = Neg (x) b = Exp (a) y = Add (a, b)", &["Neg", "Exp Add"]),
        (
            "a = Neg (x) b = Exp (a) r = ReduceMax (a, last) y = Add (b, r)",
            &["Neg", "ReduceMax", "Exp Add"],
        ),
        // Shapes that are equal only for some sizes.
        ("a = Neg (n) y = Add (a, x)", &["Neg", "Add"]),
        ("a = Neg (v) y = Add (a, one)", &["Neg Add"]),
        // Other operations, computed limits, more than two operands, other types.
        ("a = Neg (x) b = Softmax (a) y = Exp (b)", &["Neg", "Softmax", "Exp"]),
        (
            "a = Neg (x) m = ReduceMin <keepdims = 0> (z) y = Clip (a, m)",
            &["Neg", "ReduceMin", "Clip"],
        ),
        ("a = Neg (x) y = Sum (a, z, v)", &["Neg", "Sum"]),
        ("a = Neg (x) y = Mean (a, z)", &["Neg", "Mean"]),
        (
            "a = Neg (x) b = Cast <to = 11> (a) d = Exp (b) y = Cast <to = 1> (d)",
            &["Neg", "Cast", "Exp", "Cast"],
        ),
        ("a = Neg (x) y = Pow (a, last)", &["Neg", "Pow"]),
    ] {
        steps(&graph("float", body), expected);
    }
    for (outputs, expected) in [
        ("y, b", &["Neg Exp", "Abs Sqrt"][..]),
        ("a, y", &["Neg", "Exp Abs Sqrt"]),
        ("y, d, b", &["Neg Exp", "Abs", "Sqrt"]),
    ] {
        let graph = graph("float", "a = Neg (x) b = Exp (a) d = Abs (b) y = Sqrt (d)");
        steps(&graph.replace("=> (y)", &format!("=> ({outputs})")), expected);
    }
}

/// Returns the number of nodes of each step.
fn lengths(both: &Both) -> Vec<usize> {
    let steps = both.fused.steps();
    steps.iter().map(|step| 1 + step.with.len()).collect()
}

#[test]
fn chains_have_an_end() {
    let mut body = String::from("a0 = Neg (x) ");
    for link in 1..40 {
        body += &format!("a{link} = LeakyRelu (a{}) ", link - 1);
    }
    let both = check_exactly(&graph("float", &(body + "y = Neg (a39)")));
    assert_eq!(lengths(&both), [16, 16, 9]);
    let mut body = String::from("a0 = Neg (x) ");
    for link in 1..12 {
        body += &format!("a{link} = Add (a{}, z) ", link - 1);
    }
    let both = check_exactly(&graph("float", &(body + "y = Neg (a11)")));
    assert_eq!(lengths(&both), [8, 5]);
}

#[test]
fn products_come_first() {
    let text = "g (float[N, 4] x, float[N, 8] r) => (y) \
                <float[4, 8] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, \
                -1, 2, -3, 4, -5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}> { a = Neg (x) b = Abs (a) p = MatMul (b, w) \
                d = Add (p, r) e = Relu (d) f = Sub (e, r) g1 = Exp (f) y = Neg (g1) }";
    let both = Both::new(text);
    let steps = both.fused.steps();
    let found: Vec<String> =
        steps.iter().map(|step| format!("{} {}", step.op, step.with.join(" "))).collect();
    assert_eq!(found, ["Neg Abs", "MatMul Add Relu", "Sub Exp Neg"], "{}", both.listing());
    assert_eq!(both.fused.fused_steps().len(), 5);
    both.agree(&[("N", 7)]);
}

#[test]
fn over_the_memory_of_what_the_first_reads() {
    for (body, expected) in [
        ("a = Relu (k) e = Mul (a, half)", true),
        ("a = Sub (k, x) e = Abs (a)", true),
        ("a = Sub (x, k) b = Abs (a) e = Add (b, z)", true),
        ("a = PRelu (x, k) e = Abs (a)", true),
        ("a = Sub (v, k) e = Exp (a)", true),
        // Read again by another link, or by a view of it.
        ("a = Relu (k) e = Mul (a, k)", false),
        ("a = Relu (k) e = Mul (k, a)", false),
        ("a = Mul (k, k) e = Abs (a)", false),
        ("a = Relu (x) e = Sub (a, k)", false),
        ("k1 = Reshape (k, same) a = Relu (k) e = Sub (a, k1)", false),
        // Too small.
        ("r = ReduceMax (z, last) a = Add (r, x) e = Abs (a)", false),
    ] {
        // In between, where values are in the arena.
        let body = format!("k = Softmax (z) {body} y = Softmax (e)");
        let graph = graph("float", &body)
            .replace("float half =", "int64[3] same = {0, 0, 8}, float half =");
        let both = check_exactly(&graph);
        let types: Vec<Option<Type>> = inputs(&both.plain, SIZES[0], 1)
            .iter()
            .map(|(_, value)| {
                let tensor = value.as_tensor().unwrap();
                let dims = tensor.dims().iter().copied();
                Some(Type::tensor(tensor.data_type(), dims))
            })
            .collect();
        let steps = both.fused.steps();
        let fused = steps.iter().position(|step| !step.with.is_empty()).unwrap();
        let details = both.fused.details(&types).unwrap();
        let found = details.steps[fused].in_place;
        assert_eq!(found, expected, "{body}\n{}", both.listing());
    }
}

/// Writes a random graph of pointwise functions, and sometimes other nodes.
fn random_graph(elem: &str, seed: u64) -> String {
    let mut numbers = Numbers::new(seed);
    let (mut wide, mut narrow) = (
        vec![String::from("x"), String::from("z")],
        ["v", "c", "n", "s", "half", "one", "w"].map(String::from).to_vec(),
    );
    let unary: &[&str] = match elem {
        "int64" => &["Abs", "Neg", "Relu", "Sign"],
        _ => &[
            "Abs",
            "Neg",
            "Relu",
            "Exp",
            "Sin",
            "Tanh",
            "Erf",
            "Sqrt",
            "Softplus",
            "Elu",
            "HardSwish",
            "Round",
            "Log",
        ],
    };
    let binary = ["Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"];
    let mut body = String::new();
    for step in 0..3 + numbers.number_below(20) {
        let name = format!("v{step}");
        let recent = match numbers.number_below(5) {
            0 => wide[numbers.number_below(wide.len())].clone(),
            _ => wide[wide.len() - 1].clone(),
        };
        let other = match numbers.number_below(3) {
            0 => wide[numbers.number_below(wide.len())].clone(),
            _ => narrow[numbers.number_below(narrow.len())].clone(),
        };
        body += &match numbers.number_below(13) {
            0..=3 => format!("{name} = {} ({recent}) ", unary[numbers.number_below(unary.len())]),
            4..=7 => {
                let op = binary[numbers.number_below(binary.len())];
                let is_turned = op != "PRelu" && numbers.number_below(2) == 0;
                let (a, b) = if is_turned { (other, recent) } else { (recent, other) };
                format!("{name} = {op} ({a}, {b}) ")
            }
            8 => format!("{name} = Clip ({recent}, low, high) "),
            9 => format!("{name} = Add (c, n) "),
            10 => format!("q{step} = ReduceMax ({recent}, last) {name} = Sub ({recent}, q{step}) "),
            11 => {
                let small = narrow[numbers.number_below(narrow.len())].clone();
                let made = format!("m{step}");
                narrow.push(made.clone());
                format!("{made} = Neg ({small}) {name} = Add ({recent}, {made}) ")
            }
            _ => format!(
                "p{step} = Transpose <perm = [0, 2, 1]> ({recent}) {name} = Transpose <perm = [0, 2, 1]> (p{step}) "
            ),
        };
        wide.push(name);
    }
    let mut outputs = vec![wide[wide.len() - 1].clone()];
    for name in &wide[2..] {
        if numbers.number_below(10) == 0 && !outputs.contains(name) {
            outputs.push(name.clone());
        }
    }
    graph(elem, &body).replace("=> (y)", &format!("=> ({})", outputs.join(", ")))
}

#[test]
fn random_graphs() {
    for (elem, seeds) in [("float", 1..160), ("double", 200..260), ("int64", 300..360)] {
        let mut joined = 0;
        for seed in seeds {
            let graph = random_graph(elem, seed);
            joined += check_exactly(&graph).fused.fused_steps().len();
        }
        assert!(joined > 150, "{elem}: {joined}");
    }
    assert!(
        expose_values("g (float[N] x) => (y) { a = Neg (x) y = Neg (a) }").contains("=> (y, a)")
    );
}

#[test]
fn halves_as_well() {
    let text = "g (float[N, S, 8] x, float[N, S, 8] z) => (y) { h = Cast <to = 10> (x) \
                k = Cast <to = 10> (z) a = Add (h, k) b = Gelu (a) d = Mul (k, b) e = Exp (d) \
                y = Cast <to = 1> (e) }";
    for text in [text.replace("to = 10", "to = 16"), text.to_string()] {
        steps(&text, &["Cast", "Cast", "Add Gelu Mul Exp", "Cast"]);
    }
}

#[test]
fn nothing_joins_without_optimization() {
    let text = complete(&graph("float", "a = Neg (x) y = Exp (a)"));
    for (optimization, expected) in
        [(Optimization::Off, 2), (Optimization::Basic, 2), (Optimization::All, 1)]
    {
        assert_eq!(compile(&text, optimization, 1).steps().len(), expected);
    }
}
