//! Graphs and the nodes that are left of them.

use std::fmt::Write;

use sardonyx_model::{Model, Producer};
use sardonyx_ops::Registry;
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

use super::*;
use crate::infer::{InferOptions, infer};
use crate::resolve::resolve;

fn parse(graph: &str) -> Model {
    let text = format!("<ir_version: 10, opset_import: [\"\": 21]>\n{graph}");
    let parsed = parse_model(Buffer::from(text.into_bytes()), ParseOptions::default());
    parsed.expect("the text is a model").model
}

/// Returns the resulting model, the numbers of eliminated items, and the number of steps.
fn run(model: Model) -> (Resolved, Eliminated, u64) {
    let mut resolved = resolve(model, Registry::standard()).expect("the model can run");
    let inference = infer(&resolved, InferOptions::default()).expect("the types fit");
    let model = resolved.model().clone();
    let constant = |value| {
        let initializer = model.initializer(value)?;
        model.tensor(&initializer.tensor, &NoExternalData).ok()
    };
    let main = resolved.main();
    let mut elimination = Elimination::new(&mut resolved, &inference, &constant);
    elimination.graph(main);
    let (eliminated, steps) = (elimination.eliminated, elimination.steps);
    (resolved, eliminated, steps)
}

/// Lists the nodes in order, each as `a, b = Op(c, d)`.
fn list_nodes(resolved: &Resolved) -> Vec<String> {
    let model = resolved.model();
    let name = |value: Option<ValueId>| match value {
        Some(value) => String::from_utf8_lossy(model.text(model.value(value).name)).into_owned(),
        None => "_".to_string(),
    };
    let names = |values: Vec<Option<ValueId>>| {
        let names: Vec<String> = values.into_iter().map(name).collect();
        names.join(", ")
    };
    let node = |node: &NodeId| {
        // Each input and output is where it is recorded.
        for (index, output) in model.outputs(*node).iter().enumerate() {
            if let Some(output) = output {
                let producer = Producer::Node(*node, index as u32);
                assert_eq!(model.value(*output).producer, producer);
            }
        }
        for input in model.inputs(*node).flatten() {
            assert_ne!(model.value(input).producer, Producer::Nothing);
        }
        let op = model.display(model.node(*node).op_type);
        let inputs = names(model.inputs(*node).collect());
        format!("{} = {op}({inputs})", names(model.outputs(*node).to_vec()))
    };
    resolved.order().iter().map(node).collect()
}

/// Checks the nodes that are left, and the numbers of eliminated nodes and initializers.
#[track_caller]
fn leaves(graph: &str, expected: &[&str], nodes: usize, constants: usize) {
    let (resolved, eliminated, _) = run(parse(graph));
    assert_eq!(list_nodes(&resolved), expected, "{graph}");
    assert_eq!((eliminated.nodes, eliminated.constants), (nodes, constants), "{graph}");
}

/// Checks that nothing changes.
#[track_caller]
fn stays(graph: &str) {
    let before = resolve(parse(graph), Registry::standard()).expect("the model can run");
    let (after, eliminated, _) = run(parse(graph));
    assert_eq!(list_nodes(&after), list_nodes(&before), "{graph}");
    assert_eq!(eliminated, Eliminated::default(), "{graph}");
}

#[test]
fn equal_nodes_are_done_once() {
    leaves(
        "g (float[N] x) => (y) { a = Relu(x) b = Relu(x) y = Add(a, b) }",
        &["a = Relu(x)", "y = Add(a, a)"],
        1,
        0,
    );
    // Equal only because the inputs are, with attributes in another order.
    leaves(
        "g (float[N, 4, 8, 8] x) => (y) {
            a = Relu(x) b = MaxPool <kernel_shape = [2, 2], strides = [2, 1]> (a)
            c = Relu(x) d = MaxPool <strides = [2, 1], kernel_shape = [2, 2]> (c)
            y = Add(b, d)
        }",
        &["a = Relu(x)", "b = MaxPool(a)", "y = Add(b, b)"],
        2,
        0,
    );
    // All outputs of a node.
    leaves(
        "g (float[4] x) => (y) {
            a, b = Split <num_outputs = 2> (x) c, d = Split <num_outputs = 2> (x)
            e = Sub(a, d) f = Sub(c, b) y = Add(e, f)
        }",
        &["a, b = Split(x)", "e = Sub(a, b)", "y = Add(e, e)"],
        2,
        0,
    );
    // Only the later MaxPool returns positions: then the first one does, and nothing else moves.
    leaves(
        "g (float[N, 4, 8, 8] x) => (y, i) {
            a = MaxPool <kernel_shape = [2, 2]> (x) b, i = MaxPool <kernel_shape = [2, 2]> (x)
            y = Add(a, b)
        }",
        &["a, i = MaxPool(x)", "y = Add(a, a)"],
        1,
        0,
    );
    leaves(
        "g (float[N, 4, 8, 8] x) => (y, i) {
            b, i = MaxPool <kernel_shape = [2, 2]> (x) a = MaxPool <kernel_shape = [2, 2]> (x)
            y = Add(a, b)
        }",
        &["b, i = MaxPool(x)", "y = Add(b, b)"],
        1,
        0,
    );
    // Inner graphs read the remaining values.
    let graph = "g (float[N] x, bool c) => (y) {
        a = Relu(x) b = Relu(x)
        i = If <then_branch = t () => (p) { p = Neg(b) }, else_branch = e () => (q) { q = Abs(b) }> (c)
        y = Add(a, i)
    }";
    let (resolved, eliminated, _) = run(parse(graph));
    assert_eq!(eliminated.nodes, 1);
    let model = resolved.model();
    let readers = |name: &str| {
        let mut values =
            model.values().filter(|(_, value)| model.text(value.name) == name.as_bytes());
        values.next().map(|(value, _)| model.uses(value).count())
    };
    assert_eq!((readers("a"), readers("b")), (Some(3), Some(0)));
}

#[test]
fn different_nodes_stay() {
    for graph in [
        "g (float[N] x) => (y) { a = Relu(x) b = Neg(x) y = Add(a, b) }",
        "g (float[N] x) => (y) { a = Relu(x) b = Relu(a) y = Add(a, b) }",
        "g (float[N] x, float[N] z) => (y) { a = Sub(x, z) b = Sub(z, x) y = Add(a, b) }",
        "g (float[N] x) => (y) { a = Elu <alpha = 0.5> (x) b = Elu <alpha = 0.25> (x) y = Add(a, b) }",
        // Compared by their bits.
        "g (float[N] x) => (y) { a = Elu <alpha = 0.0> (x) b = Elu <alpha = -0.0> (x) y = Add(a, b) }",
        "g (float[N] x) => (y) { a = Cast <to = 1> (x) b = Cast <to = 11> (x) c = Cast <to = 1> (b) y = Add(a, c) }",
        // An absent input differs from a present one, and two outputs from three.
        "g (float[N] x, float l) => (y) { a = Clip(x, l) b = Clip(x, , l) y = Add(a, b) }",
        "g (float[6] x) => (y) {
            a, b = Split <num_outputs = 2> (x) c, d, e = Split <num_outputs = 3> (x) y = Concat <axis = 0> (b, e)
        }",
        // Numbers are drawn again, even with equal seeds and shapes.
        "g (float[N] x) => (y) { a = RandomNormalLike <seed = 1.0> (x) b = RandomNormalLike <seed \
         = 1.0> (x) y = Add(a, b) }",
        "g (float[N] x, float r, bool t) => (y) { a = Dropout(x, r, t) b = Dropout(x, r, t) y = Add(a, b) }",
        // Graphs are not compared.
        "g (float[N] x, bool c) => (y) {
            a = If <then_branch = t () => (p) { p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }> (c)
            b = If <then_branch = t () => (p) { p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }> (c)
            y = Add(a, b)
        }",
    ] {
        stays(graph);
    }
}

#[test]
fn outputs_keep_their_names() {
    // The first node makes the outputs of the second.
    leaves(
        "g (float[N] x) => (y, z) { a = Relu(x) b = Neg(a) y = Relu(x) z = Neg(y) }",
        &["y = Relu(x)", "z = Neg(y)"],
        2,
        0,
    );
    leaves(
        "g (float[N] x) => (y, z) { y = Relu(x) b = Relu(x) z = Neg(b) }",
        &["y = Relu(x)", "z = Neg(y)"],
        1,
        0,
    );
    leaves(
        "g (float[4] x) => (a, d, y) {
            a, b = Split <num_outputs = 2> (x) c, d = Split <num_outputs = 2> (x) y = Sub(c, b)
        }",
        &["a, d = Split(x)", "y = Sub(a, d)"],
        1,
        0,
    );
    // Two names for one value need two nodes.
    leaves(
        "g (float[N] x) => (y, z, w) { y = Relu(x) z = Relu(x) w = Neg(z) }",
        &["y = Relu(x)", "z = Relu(x)", "w = Neg(y)"],
        0,
        0,
    );
}

#[test]
fn equal_constants_are_one() {
    leaves(
        "g (float[N, 2] x) => (y) <float[2] c = {1, 2}, float[2] d = {1, 2}, float[2] e = {1, 3}> {
            a = Add(x, c) b = Add(x, d) f = Add(b, e) y = Mul(a, f)
        }",
        &["a = Add(x, c)", "f = Add(a, e)", "y = Mul(a, f)"],
        1,
        1,
    );
    // Nodes that hold constants, in any form; initializers come first, wherever they are read.
    leaves(
        "g (float[N, 2] x) => (y) <float d = {2}> {
            c = Constant <value = float {2}> () e = Constant <value_float = 2.0> ()
            a = Mul(x, c) b = Mul(a, d) f = Mul(b, e) y = Neg(f)
        }",
        &["a = Mul(x, d)", "b = Mul(a, d)", "f = Mul(b, d)", "y = Neg(f)"],
        2,
        0,
    );
    // Known sizes count too.
    leaves(
        "g (float[3, 2] x) => (y) <int64[2] d = {3, 2}> {
            s = Shape(x) a = Relu(x) b = Reshape(a, s) c = Reshape(a, d) y = Add(b, c)
        }",
        &["a = Relu(x)", "b = Reshape(a, d)", "y = Add(b, b)"],
        2,
        0,
    );
    // A constant that is an output stays.
    leaves(
        "g (float[N] x) => (c, y) <float d = {2}> {
            c = Constant <value = float {2}> () a = Mul(x, c) b = Mul(x, d) y = Add(a, b)
        }",
        &["c = Constant()", "a = Mul(x, d)", "y = Add(a, a)"],
        1,
        0,
    );
    let two = |c: &str, d: &str| {
        format!(
            "g (float[N, 1] x) => (y) <{c}, {d}> {{ a = Less(x, c) b = Less(x, d) y = Xor(a, b) }}"
        )
    };
    for (c, d) in [
        // Zero has a sign.
        ("float c = {0}", "float d = {-0.0}"),
        // Other dimensions.
        ("float[1] c = {1}", "float[1, 1] d = {1}"),
    ] {
        stays(&two(c, d));
    }
    let same = "y = Xor(a, a)";
    for (c, d) in [("float c = {nan}", "float d = {nan}"), ("float[0] c = {}", "float[0] d = {}")] {
        leaves(&two(c, d), &["a = Less(x, c)", same], 1, 1);
    }
    // Another type with the same bytes.
    stays(
        "g (float[N] x) => (y) <int32 c = {-1}, uint32 d = {4294967295}> {
            a = Cast <to = 1> (c) b = Cast <to = 1> (d) e = Add(x, a) y = Add(e, b)
        }",
    );
    leaves(
        "g (string[N] x) => (y) <string c = {\"a\"}, string d = {\"a\"}, string e = {\"b\"}> {
            a = Equal(x, c) b = Equal(x, d) f = Equal(x, e) h = Xor(a, b) y = Xor(h, f)
        }",
        &["a = Equal(x, c)", "f = Equal(x, e)", "h = Xor(a, a)", "y = Xor(h, f)"],
        1,
        1,
    );
}

/// Checks that values which a caller may pass are not constants, even if their defaults are equal.
#[test]
fn defaults_are_not_constants() {
    stays(
        "g (float[N, 2] x, float[2] c = {1, 2}, float[2] d = {1, 2}) => (y) {
            a = Add(x, c) b = Add(x, d) y = Mul(a, b)
        }",
    );
}

#[test]
fn large_constants_are_equal_at_the_same_place() {
    let numbers = vec!["1.5"; SMALL + 1].join(", ");
    let size = SMALL + 1;
    let text = format!(
        "g (float[{size}] x) => (y) <float[{size}] c = {{{numbers}}}, float[{size}] d = {{{numbers}}}> {{
            a = Add(x, c) b = Add(x, d) y = Mul(a, b)
        }}"
    );
    stays(&text);
    let mut model = parse(&text);
    // Tied weights are stored like this.
    let bytes = Buffer::from_vec(vec![0x3F; 4 * size]);
    let span = model.add_bytes(bytes);
    let main = model.main.expect("there is a graph");
    for initializer in &mut model.graph_mut(main).initializers {
        initializer.tensor.typed.clear();
        initializer.tensor.raw_data = Some(span);
    }
    let (resolved, eliminated, _) = run(model);
    assert_eq!(list_nodes(&resolved), ["a = Add(x, c)", "y = Mul(a, a)"]);
    assert_eq!((eliminated.nodes, eliminated.constants), (1, 1));
}

/// Checks that the work at most doubles with the size, apart from a constant part.
fn grows_with_size(nodes: usize, text: impl Fn(usize) -> String) -> Eliminated {
    let (_, _, once) = run(parse(&text(nodes)));
    let (_, eliminated, twice) = run(parse(&text(2 * nodes)));
    assert!(once >= nodes as u64, "{once} steps for {nodes}: they are not counted");
    assert!(twice <= 2 * once + 1000, "{once} steps for {nodes}, {twice} for twice as many");
    eliminated
}

/// Makes a graph of the nodes that `node` writes.
fn many(count: usize, outputs: &str, node: impl Fn(&mut String, usize)) -> String {
    let mut text = format!("g (float[N] x) => ({outputs}) <float one = {{1}}> {{ ");
    (0..count).for_each(|index| node(&mut text, index));
    text + " }"
}

#[test]
fn a_hundred_thousand_nodes() {
    // One value again and again, whose name is an output at the end.
    let equal = |count: usize| {
        many(count, &format!("a{}, y", count - 1), |text, index| {
            let _ = write!(text, "a{index} = Relu(x) ");
            if index + 1 == count {
                let _ = write!(text, "y = Neg(a0)");
            }
        })
    };
    assert_eq!(grows_with_size(50_000, equal).nodes, 99_999);
    // Two long paths that are equal step by step.
    let chains = |count: usize| {
        many(count, &format!("p{0}, q{0}", count - 2), |text, index| {
            let way = ["p", "q"][index % 2];
            let before =
                if index < 2 { "x".to_string() } else { format!("{way}{}", (index - 2) / 2 * 2) };
            let _ = write!(text, "{way}{} = Add({before}, one) ", index / 2 * 2);
        })
    };
    assert_eq!(grows_with_size(50_000, chains).nodes, 49_999);
    // Equal constants, which all become one value.
    let constants = |count: usize| {
        many(count, "y", |text, index| {
            let _ = write!(text, "c{index} = Constant <value_float = 2.0> () ");
            if index + 1 == count {
                let _ = write!(text, "y = Add(x, c{index})");
            }
        })
    };
    assert_eq!(grows_with_size(50_000, constants).nodes, 99_999);
    // All nodes differ and read one value.
    let different = |count: usize| {
        many(count, &format!("a{}", count - 1), |text, index| {
            let _ = write!(text, "a{index} = Elu <alpha = {index}.0> (x) ");
        })
    };
    assert_eq!(grows_with_size(50_000, different).nodes, 0);
}
