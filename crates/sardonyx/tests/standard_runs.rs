//! Tests of the standard's rules for graphs, nodes, attributes and values, by running sessions.

use std::collections::BTreeMap;

use sardonyx::check::CheckOptions;
use sardonyx::{ErrorKind, Model, Outputs, Session, Tensor};
use sardonyx_tensor::{DataType, StringArray};

fn model_of(opset: u32, rest: &str) -> Model {
    let text = format!(
        "<notation: \"full\", ir_version: 10, opset_import: [\"\": {opset}, \"ai.onnx.ml\": 4]>\n{rest}"
    );
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn session(model: &Model) -> Result<Session, sardonyx::Error> {
    Session::builder(model).threads(1).build()
}

fn run(model: &Model, inputs: &[(&str, Tensor)]) -> Result<Outputs, sardonyx::Error> {
    session(model)?.run(inputs.to_vec(), &Default::default())
}

/// Runs a graph of opset 21.
fn run_graph(graph: &str, inputs: &[(&str, Tensor)]) -> Outputs {
    run(&model_of(21, graph), inputs).unwrap_or_else(|error| panic!("{error}\n{graph}"))
}

/// Returns the error of compiling or running a graph of opset 21.
fn expect_refusal(graph: &str, inputs: &[(&str, Tensor)]) -> String {
    match run(&model_of(21, graph), inputs) {
        Ok(outputs) => panic!("{graph}\n{:?}", outputs.iter().collect::<Vec<_>>()),
        Err(error) => error.to_string(),
    }
}

fn floats(dims: &[usize], elements: &[f32]) -> Tensor {
    Tensor::from_slice(dims, elements).unwrap()
}

/// Makes a tensor of -1.5, -1, -0.5 and so on.
fn numbers(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    floats(dims, &(0..count).map(|index| index as f32 * 0.5 - 1.5).collect::<Vec<_>>())
}

fn list(outputs: &Outputs, name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensor = outputs.tensor(name).unwrap();
    (tensor.dims().to_vec(), tensor.to_vec().unwrap())
}

fn elements(outputs: &Outputs, name: &str) -> Vec<f32> {
    list(outputs, name).1
}

#[test]
fn sparse_attributes_are_dense_for_readers() {
    // ATTR-08+, TENSOR-38+: absent elements are 0, or empty strings
    let constant = |sparse: &str, ty: &str| {
        format!(
            "g () => ({ty} y) {{ y = Constant<sparse_value: sparse_tensor = sparse({sparse})>() }}"
        )
    };
    let graph = constant("float[2, 3], float[2] {5, 7}, int64[2] {1, 5}", "float[2, 3]");
    assert_eq!(
        list(&run_graph(&graph, &[]), "y"),
        (vec![2, 3], vec![0.0, 5.0, 0.0, 0.0, 0.0, 7.0])
    );
    let graph = constant("float[2, 3], float[2] {5, 7}, int64[2, 2] {0, 2, 1, 0}", "float[2, 3]");
    assert_eq!(elements(&run_graph(&graph, &[]), "y"), [0.0, 0.0, 5.0, 7.0, 0.0, 0.0]);
    let graph = constant("float[3], float[0] {}, int64[0] {}", "float[3]");
    assert_eq!(elements(&run_graph(&graph, &[]), "y"), [0.0; 3]);
    let graph = constant("string[2], string[1] {\"a\"}, int64[1] {1}", "string[2]");
    let found = run_graph(&graph, &[]);
    let strings = found.tensor("y").unwrap().strings().unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), [&b""[..], b"a"]);
    // ATTR-08-
    for (sparse, why) in [
        ("float[4], float[1] {1}, int64[1] {4}", "index 4 of value 0 is out of range"),
        ("float[4], float[1] {1}, int64[1] {-1}", "index -1 of value 0 is out of range"),
        ("float[2, 2], float[1] {1}, int64[1, 2] {0, 2}", "index 2 of value 0 is out of range"),
        ("float[4], float[2] {1, 2}, int64[2] {2, 1}", "the index of value 1 is not greater"),
        ("float[4], float[2] {1, 2}, int64[2] {1, 1}", "the index of value 1 is not greater"),
        ("float[2, 2], float[1] {1}, int64[1, 3] {0, 0, 0}", "the indices have shape [1, 3]"),
        ("float[4], float[1, 2] {1, 2}, int64[2] {0, 1}", "the values have 2 dimensions"),
    ] {
        let error = expect_refusal(&constant(sparse, "float[]"), &[]);
        assert!(error.contains(why), "{sparse}: {error}");
    }
}

#[test]
fn sparse_values_need_indices() {
    // TENSOR-38+-
    let constant = |values: usize| {
        let list = vec!["1"; values].join(", ");
        let text = format!(
            "ir_version: 10 opset_import {{ version: 21 }}
             graph {{
               name: \"g\"
               node {{
                 output: \"y\" op_type: \"Constant\"
                 attribute {{
                   name: \"sparse_value\" type: SPARSE_TENSOR
                   sparse_tensor {{
                     values {{ dims: {values} data_type: 1 float_data: [{list}] }} dims: 3
                   }}
                 }}
               }}
               output {{ name: \"y\" type {{ tensor_type {{ elem_type: 1 }} }} }}
             }}"
        );
        run(&Model::from_bytes(text.into_bytes()).unwrap(), &[])
    };
    assert_eq!(elements(&constant(0).unwrap(), "y"), [0.0; 3]);
    let error = constant(2).unwrap_err().to_string();
    assert!(error.contains("indices"), "{error}");
}

#[test]
fn attributes_without_a_field_are_zero() {
    // ATTR-16+: 0 or an empty string, not the defaults -1, 0.01 and "_Unused"
    let x = ("x", floats(&[2, 2], &[0.0, 0.0, -1.0, 0.0]));
    let softmax = |attribute: &str| {
        let graph = format!("g (float[2, 2] x) => (float[2, 2] y) {{ y = Softmax{attribute}(x) }}");
        elements(&run_graph(&graph, std::slice::from_ref(&x)), "y")
    };
    assert_eq!(softmax("<axis: int>"), softmax("<axis: int = 0>"));
    assert_ne!(softmax("<axis: int>"), softmax(""));
    let leaky = "g (float[2, 2] x) => (float[2, 2] y) { y = LeakyRelu<alpha: float>(x) }";
    assert_eq!(elements(&run_graph(leaky, &[x]), "y"), [0.0; 4]);
    let labels = "g (int64[2] x) => (string[2] y) {
        y = ai.onnx.ml.LabelEncoder<
          keys_int64s = [1], values_strings = [\"one\"], default_string: string
        >(x)
    }";
    let found = run_graph(labels, &[("x", Tensor::from_slice([2], &[1i64, 2]).unwrap())]);
    let strings = found.tensor("y").unwrap().strings().unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), [&b"one"[..], b""]);
    // ATTR-16-: a required attribute without a field is present
    let concat = "g (float[2, 2] x) => (float[4, 2] y) { y = Concat<axis: int>(x, x) }";
    let (dims, _) = list(&run_graph(concat, &[("x", numbers(&[2, 2]))]), "y");
    assert_eq!(dims, [4, 2]);
    let error = expect_refusal("g (float[2, 2] x) => (float[4, 2] y) { y = Concat(x, x) }", &[]);
    assert!(error.contains("requires the attribute 'axis'"), "{error}");
}

#[test]
fn nodes_without_a_needed_output_do_not_run() {
    // GRAPH-23+: a node that would fail, but no output depends on it
    let graph =
        "g (float[3] x, int64[2] s) => (float[3] y) { y = Neg(x) z = Reshape(x, s) w = Neg(z) }";
    let shape = Tensor::from_slice([2], &[5i64, 7]).unwrap();
    let inputs = [("x", floats(&[3], &[1.0, 2.0, 3.0])), ("s", shape)];
    assert_eq!(elements(&run_graph(graph, &inputs), "y"), [-1.0, -2.0, -3.0]);
    let needed = graph.replace("(float[3] y)", "(float[3] y, float[] w)");
    assert!(expect_refusal(&needed, &inputs).contains("Reshape"));
    // GRAPH-23-: undefined outputs, of the graph and of a branch
    let x = [("x", floats(&[3], &[1.0, 2.0, 3.0]))];
    let error = expect_refusal("g (float[3] x) => (float[3] y, float[3] z) { y = Neg(x) }", &x);
    assert!(error.contains("'z'"), "{error}");
    let error = expect_refusal(
        "g (float[3] x) => (float[3] y) {
           c = Constant<value = bool {1}>()
           y = If<then_branch = t () => (q) { p = Neg(x) }, else_branch = e () => (p) { p = Neg(x) }>(c)
         }",
        &x,
    );
    assert!(error.contains("'q'"), "{error}");
}

#[test]
fn outputs_of_nodes_are_values_and_outputs() {
    // GRAPH-28+, NODE-02+: `a` is read twice and is also an output
    let graph = "g (float[2] x) => (float[2] y, float[2] a, float[2] z) {
        a = Neg(x) b = Add(a, a) c = Mul(a, b) y = Identity(c) z = Sub(b, c)
    }";
    let found = run_graph(graph, &[("x", floats(&[2], &[1.0, -2.0]))]);
    assert_eq!(elements(&found, "a"), [-1.0, 2.0]);
    assert_eq!(elements(&found, "y"), [2.0, 8.0]);
    assert_eq!(elements(&found, "z"), [-4.0, -4.0]);
    assert_eq!(found.names().collect::<Vec<_>>(), ["y", "a", "z"]);
}

#[test]
fn outputs_are_defined_in_their_graph() {
    // GRAPH-30+: outputs that alias an input or a constant, also in a branch
    let graph = "g (float[2] x) => (float[2] x, float[2] w, float[2] y, float[2] z)
        <float[2] w = {3, 4}> {
        c = Constant<value = bool {1}>()
        y = If<
          then_branch = t () => (k) <float[2] k = {5, 6}> {}, else_branch = e () => (p) { p = Neg(x) }
        >(c)
        n = Constant<value = int64 {2}>()
        z = Loop<body = b (int64 i, bool go, float[2] v) => (bool go, float[2] v) {}>(n, , x)
    }";
    let found = run_graph(graph, &[("x", floats(&[2], &[1.0, 2.0]))]);
    for (name, wanted) in
        [("x", [1.0, 2.0]), ("w", [3.0, 4.0]), ("y", [5.0, 6.0]), ("z", [1.0, 2.0])]
    {
        assert_eq!(elements(&found, name), wanted, "{name}");
    }
    // GRAPH-30-: an outer value cannot be an output of a branch; an Identity makes it one
    let branches = |then: &str| {
        format!(
            "g (float[2] x) => (float[2] y) {{
               c = Constant<value = bool {{1}}>() h = Abs(x)
               y = If<then_branch = t () => {then}, else_branch = e () => (p) {{ p = Neg(x) }}>(c)
             }}"
        )
    };
    let x = [("x", floats(&[2], &[1.0, 2.0]))];
    for outer in ["x", "h"] {
        let error = expect_refusal(&branches(&format!("({outer}) {{}}")), &x);
        assert!(error.contains(&format!("'{outer}'")) && error.contains("Identity"), "{error}");
        let inside = branches(&format!("(q) {{ q = Identity({outer}) }}"));
        assert_eq!(elements(&run_graph(&inside, &x), "y"), [1.0, 2.0]);
    }
}

#[test]
fn names_of_nodes_have_no_effect() {
    // NAME-11+: empty names, names of values, equal names
    let graph = |names: [&str; 3]| {
        let [first, second, third] = names;
        let text = format!(
            "g (float[2] x) => (float[2] y) {{
               {first} a = Neg(x)
               {second} b = Exp(a)
               {third} y = Add(a, b)
             }}"
        );
        elements(&run_graph(&text, &[("x", numbers(&[2]))]), "y")
    };
    let wanted = graph(["[first]", "[second]", "[third]"]);
    for names in [["", "", ""], ["[y]", "[x]", "[a]"], ["[same]", "[same]", "[same]"]] {
        assert_eq!(graph(names), wanted, "{names:?}");
    }
}

#[test]
fn names_are_compared_byte_by_byte() {
    // NAME-15+-: upper and lower case differ, and so do composed and decomposed characters
    let (one, two) = ("caf\u{e9}", "cafe\u{301}");
    let graph = format!(
        "g (float[2] x, float[2] X) => (float[2] y, float[2] Y) {{
           \"{one}\" = Neg(x) \"{two}\" = Abs(X) y = Identity(\"{one}\") Y = Identity(\"{two}\")
         }}"
    );
    let inputs = [("x", floats(&[2], &[1.0, 2.0])), ("X", floats(&[2], &[-3.0, 4.0]))];
    let found = run_graph(&graph, &inputs);
    assert_eq!((elements(&found, "y"), elements(&found, "Y")), (vec![-1.0, -2.0], vec![3.0, 4.0]));
    let graph = format!("g (float[2] \"{one}\") => (float[2] y) {{ y = Neg(\"{two}\") }}");
    assert!(expect_refusal(&graph, &[]).contains("is not defined"));
    let model =
        model_of(21, &format!("g (float[2] \"{one}\") => (float[2] y) {{ y = Neg(\"{one}\") }}"));
    let error = run(&model, &[(two, floats(&[2], &[1.0, 2.0]))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
}

#[test]
fn operators_are_those_of_imported_sets() {
    // NODE-04+-, OPSET-16+-
    let x = [("x", floats(&[2], &[-1.0, 2.0]))];
    let relu = |imports: &str, operator: &str| {
        let text = format!(
            "<ir_version: 10, opset_import: [{imports}]>
             g (float[2] x) => (float[2] y) {{ y = {operator}(x) }}"
        );
        run(&Model::from_text(&text).unwrap(), &x)
    };
    assert_eq!(elements(&relu("\"\": 21", "Relu").unwrap(), "y"), [0.0, 2.0]);
    assert_eq!(
        elements(&relu("\"ai.onnx.ml\": 4", "ai.onnx.ml.Scaler").unwrap(), "y"),
        [-1.0, 2.0]
    );
    for (imports, operator, named) in [
        ("\"\": 21", "ai.onnx.ml.Scaler", "'ai.onnx.ml'"),
        ("\"ai.onnx.ml\": 4", "Relu", "'ai.onnx'"),
        ("\"\": 21", "com.acme.Relu", "'com.acme'"),
        ("\"\": 21", "relu", "relu"),
        ("\"\": 21", "RELU", "RELU"),
        // An operator of a set that is not imported.
        ("\"\": 21", "Scaler", "Scaler"),
    ] {
        let error = relu(imports, operator).unwrap_err().to_string();
        assert!(error.contains(named), "{operator}: {error}");
    }
}

#[test]
fn a_model_without_imports_uses_version_1() {
    // MODEL-26+, OPSET-02+: in version 1, the shape of Reshape is an attribute, and Softmax
    // normalizes over all axes from axis 1 on
    let text = "<ir_version: 2>
        g (float[1, 4] x) => (float[1, 2, 2] y) { a = Reshape<shape = [1, 2, 2]>(x) y = Softmax(a) }";
    let model = Model::from_text(text).unwrap();
    let found = run(&model, &[("x", floats(&[1, 4], &[3.0; 4]))]).unwrap();
    assert_eq!(list(&found, "y"), (vec![1, 2, 2], vec![0.25; 4]));
    let report = model.check(&CheckOptions::new());
    assert_eq!(report.errors, 0, "{:?}", report.findings);
    let later = "<ir_version: 2> g (float[4] x) => (float[4] y) { y = HardSwish(x) }";
    let later = Model::from_text(later).unwrap();
    assert!(later.check(&CheckOptions::new()).errors > 0);
    assert!(session(&later).is_err());
}

#[test]
fn optional_operands_may_be_omitted() {
    // NODE-13+-: the bias of a convolution is optional, weights and image are not
    let w = floats(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let inputs = [("x", floats(&[1, 1, 2, 2], &[1.0, 1.0, 1.0, 2.0])), ("w", w)];
    let conv = |operands: &str| {
        format!(
            "g (float[1, 1, 2, 2] x, float[1, 1, 2, 2] w) => (float[1, 1, 1, 1] y) <float[1] b = {{100}}> {{
               y = Conv({operands})
             }}"
        )
    };
    for (operands, wanted) in [("x, w", 14.0), ("x, w, ", 14.0), ("x, w, b", 114.0)] {
        assert_eq!(elements(&run_graph(&conv(operands), &inputs), "y"), [wanted], "{operands}");
    }
    for operands in ["x", "x, , b", ", w", "x, "] {
        let error = expect_refusal(&conv(operands), &inputs);
        assert!(error.contains("Conv"), "{operands}: {error}");
    }
}

#[test]
fn omitted_attributes_have_the_default_of_their_version() {
    // NODE-22+-, VER-17+: the default is that of the imported version, not of the next one
    let nodes = |opset: u32, node: &str, x: Tensor, more: &[(&str, Tensor)]| {
        let inputs: String = more
            .iter()
            .map(|(name, tensor)| format!(", float{:?} {name}", tensor.dims()))
            .collect();
        let graph = format!("g (float{:?} x{inputs}) => (float[] y) {{ y = {node} }}", x.dims());
        let mut inputs = vec![("x", x)];
        inputs.extend(more.iter().cloned());
        let found = run(&model_of(opset, &graph), &inputs);
        list(&found.unwrap_or_else(|error| panic!("{opset} {node}: {error}")), "y")
    };
    let x = || numbers(&[2, 2, 2]);
    // Softmax, LogSoftmax and Hardmax flatten from axis 1 before opset 13, and use the last axis
    // from then on.
    for operator in ["Softmax", "LogSoftmax", "Hardmax"] {
        let without = |opset| nodes(opset, &format!("{operator}(x)"), x(), &[]);
        let with =
            |opset, axis| nodes(opset, &format!("{operator}<axis: int = {axis}>(x)"), x(), &[]);
        for opset in [11, 12] {
            assert_eq!(without(opset), with(opset, 1), "{operator} {opset}");
        }
        for opset in [13, 21] {
            assert_eq!(without(opset), with(opset, -1), "{operator} {opset}");
        }
        assert_ne!(without(12), without(13), "{operator}");
    }
    assert_eq!(nodes(12, "Softmax(x)", floats(&[1, 2, 2], &[0.0; 4]), &[]).1, [0.25; 4]);
    assert_eq!(nodes(13, "Softmax(x)", floats(&[1, 2, 2], &[0.0; 4]), &[]).1, [0.5; 4]);
    // Expected values follow the formulas of the operators.
    let two = || floats(&[2], &[-2.0, 3.0]);
    assert_eq!(nodes(1, "LeakyRelu(x)", two(), &[]).1, [-2.0 * 0.01, 3.0]);
    assert_eq!(nodes(21, "LeakyRelu(x)", two(), &[]).1, [-2.0 * 0.01, 3.0]);
    assert_eq!(nodes(21, "ThresholdedRelu(x)", floats(&[2], &[0.5, 3.0]), &[]).1, [0.0, 3.0]);
    assert_eq!(nodes(21, "HardSigmoid(x)", floats(&[2], &[-5.0, 0.0]), &[]).1, [0.0, 0.5]);
    assert_eq!(nodes(21, "Flatten(x)", x(), &[]).0, [2, 4]);
    assert_eq!(nodes(1, "Concat(x, x)", x(), &[]).0, [2, 4, 2]);
    assert_eq!(nodes(21, "Transpose(x)", numbers(&[1, 2, 3]), &[]).0, [3, 2, 1]);
    assert_eq!(nodes(21, "ReduceSum(x)", x(), &[]).0, [1, 1, 1]);
    // The default epsilon, 1e-5, keeps a division by the variance 0 finite.
    let one = || floats(&[1], &[1.0]);
    let more =
        [("s", one()), ("b", floats(&[1], &[0.0])), ("m", one()), ("v", floats(&[1], &[0.0]))];
    let found = nodes(7, "BatchNormalization(x, s, b, m, v)", floats(&[1, 1], &[2.0]), &more).1[0];
    assert!((found - 1.0 / 1e-5f32.sqrt()).abs() < 0.1, "{found}");
}

#[test]
fn data_are_operands_and_options_are_attributes() {
    // OPSET-22+: the shape of Reshape is an operand since version 5, constant or computed, and an
    // attribute before
    let x = ("x", numbers(&[2, 3]));
    let graph = "g (float[2, 3] x, int64[2] s) => (float[?, ?] y, float[?, ?] z) {
        y = Reshape(x, s) t = Shape(y) z = Reshape<allowzero = 0>(x, t)
    }";
    let found = run_graph(graph, &[x.clone(), ("s", Tensor::from_slice([2], &[3i64, 2]).unwrap())]);
    assert_eq!((list(&found, "y").0, list(&found, "z").0), (vec![3, 2], vec![3, 2]));
    let old =
        model_of(1, "g (float[2, 3] x) => (float[?, ?] y) { y = Reshape<shape = [3, 2]>(x) }");
    assert_eq!(list(&run(&old, std::slice::from_ref(&x)).unwrap(), "y").0, [3, 2]);
    // OPSET-22-: an attribute in place of an operand, and the reverse
    let confused = "g (float[2, 3] x) => (float[?, ?] y) { y = Reshape<shape = [3, 2]>(x) }";
    assert!(expect_refusal(confused, std::slice::from_ref(&x)).contains("Reshape"));
    let confused = "g (float[2, 3] x, float alpha) => (float[2, 3] y) { y = LeakyRelu(x, alpha) }";
    let error = expect_refusal(confused, &[x, ("alpha", Tensor::scalar(0.5f32))]);
    assert!(error.contains("LeakyRelu"), "{error}");
}

#[test]
fn a_value_without_a_shape_has_any_shape() {
    // SHAPE-03+: an input, an intermediate value and an output. TENSOR-04+: empty tensors
    let graph = "g (float[] x) => (float[] y) <float[] a> { a = Neg(x) y = Abs(a) }";
    for dims in [&[][..], &[1], &[0], &[0, 5], &[2, 3], &[1, 2, 1, 3]] {
        let (found, _) = list(&run_graph(graph, &[("x", numbers(dims))]), "y");
        assert_eq!(found, dims);
    }
    // SHAPE-03-: a shape without dimensions is a scalar, not an unknown shape
    let scalar = "g (float x) => (float y) { y = Neg(x) }";
    assert_eq!(list(&run_graph(scalar, &[("x", numbers(&[]))]), "y").0, [0; 0]);
    for dims in [&[1][..], &[2, 3]] {
        let error = expect_refusal(scalar, &[("x", numbers(dims))]);
        assert!(error.contains("dimensions"), "{error}");
    }
    // SHAPE-10-: the names "" and "*" do not stand for any rank
    for name in ["", "*"] {
        let graph = format!(
            "g (float[\"{name}\"] x, float[\"{name}\"] z) => (float[] y) {{ y = Concat<axis = 0>(x, z) }}"
        );
        let error = expect_refusal(&graph, &[("x", numbers(&[2, 3])), ("z", numbers(&[2]))]);
        assert!(error.contains("dimensions"), "{error}");
    }
}

#[test]
fn a_symbolic_size_is_equal_in_subgraphs() {
    // SHAPE-06+: N of a branch is N of the graph, and so the size of the output of the If
    let graph = "g (bool c, float[N] x, float[M] z) => (float[?] y, float[?] w) {
        y = If<
          then_branch = t () => (float[N] a) { a = Neg(x) },
          else_branch = e () => (float[N] b) { b = Abs(x) }
        >(c)
        w = If<
          then_branch = t2 () => (float[N] p) { p = Neg(x) },
          else_branch = e2 () => (float[M] q) { q = Abs(z) }
        >(c)
    }";
    let model = model_of(21, graph);
    let report = model.infer(&sardonyx::infer::InferOptions::new());
    let ty = |name| report.ty(&model, name).map(|ty| ty.to_string());
    assert_eq!(ty("y").as_deref(), Some("float[N]"));
    // The branches of `w` have the sizes N and M.
    assert!(!["float[N]", "float[M]"].contains(&ty("w").unwrap().as_str()), "{:?}", ty("w"));
    for (chosen, sizes) in [(true, [3, 3]), (false, [3, 2])] {
        let inputs = [
            ("c", Tensor::from_bools([], &[chosen]).unwrap()),
            ("x", numbers(&[3])),
            ("z", numbers(&[2])),
        ];
        let found = run(&model, &inputs).unwrap();
        let lens = ["y", "w"].map(|name| found.tensor(name).unwrap().len());
        assert_eq!(lens, sizes);
    }
}

#[test]
fn inputs_of_one_symbolic_size_must_agree() {
    // SHAPE-07+-
    let graph =
        "g (float[N] x, float[N, 2] z) => (float[N] y, float[N, 2] w) { y = Neg(x) w = Neg(z) }";
    for size in [0, 1, 3] {
        let found = run_graph(graph, &[("x", numbers(&[size])), ("z", numbers(&[size, 2]))]);
        assert_eq!(found.tensor("w").unwrap().dims(), [size, 2]);
    }
    for size in [1, 2, 4] {
        let error = expect_refusal(graph, &[("x", numbers(&[3])), ("z", numbers(&[size, 2]))]);
        assert!(error.contains(&format!("N is {size}")), "{error}");
    }
}

/// Computes the broadcast shape of two operands by the rules of NumPy; `None` if they do not fit.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size = |dims: &[usize], axis: usize| {
        (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis])
    };
    let sizes = (0..rank).map(|axis| match (size(a, axis), size(b, axis)) {
        (1, other) | (other, 1) => Some(other),
        (one, other) => (one == other).then_some(one),
    });
    sizes.collect()
}

/// Returns the element of a broadcast operand for index `index` of a result of shape `all`.
fn element_for(tensor: &Tensor, all: &[usize], index: usize) -> f32 {
    let mut rest = index;
    let mut place = 0;
    let mut step = 1;
    let dims = tensor.dims();
    for axis in (0..all.len()).rev() {
        let coordinate = rest % all[axis];
        rest /= all[axis];
        if let Some(own) = (axis + dims.len()).checked_sub(all.len()) {
            place += if dims[own] == 1 { 0 } else { coordinate * step };
            step *= dims[own];
        }
    }
    tensor.to_vec::<f32>().unwrap()[place]
}

/// Lists shapes of up to two axes of sizes 0 to 3, and those in the standard's examples.
fn shapes() -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![]];
    for a in [0, 1, 2, 3] {
        shapes.push(vec![a]);
        for b in [1, 2, 3] {
            shapes.push(vec![a, b]);
        }
    }
    shapes.extend([
        vec![3, 4, 5],
        vec![2, 1, 1, 1],
        vec![3, 4],
        vec![2, 3, 4, 5],
        vec![1, 3, 1, 5],
    ]);
    shapes
}

#[test]
fn operands_are_broadcast_from_the_right() {
    // SHAPE-19+-
    let graph = "g (float[] x, float[] z) => (float[] y) { y = Sub(x, z) }";
    let session = session(&model_of(21, graph)).unwrap();
    let mut counts = [0, 0];
    for a in shapes() {
        for b in shapes() {
            let (x, z) = (numbers(&a), numbers(&b));
            let found = session.run([("x", x.clone()), ("z", z.clone())], &Default::default());
            match broadcast(&a, &b) {
                Some(dims) => {
                    let count: usize = dims.iter().product();
                    let wanted: Vec<f32> = (0..count)
                        .map(|at| element_for(&x, &dims, at) - element_for(&z, &dims, at))
                        .collect();
                    assert_eq!(list(&found.unwrap(), "y"), (dims, wanted), "{a:?} {b:?}");
                    counts[0] += 1;
                }
                None => {
                    assert!(found.is_err(), "{a:?} {b:?}");
                    counts[1] += 1;
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    assert_eq!(broadcast(&[3, 4, 5], &[2, 1, 1, 1]), Some(vec![2, 3, 4, 5]));
    assert_eq!(broadcast(&[3, 4], &[3]), None);
}

#[test]
fn the_second_operand_is_broadcast_in_one_direction() {
    // SHAPE-20+-: the slope of PRelu and the addend of Gemm
    let prelu = "g (float[] x, float[] z) => (float[] y) { y = PRelu(x, z) }";
    let session_of = |graph: &str| session(&model_of(21, graph)).unwrap();
    let prelu = session_of(prelu);
    let mut counts = [0, 0];
    for a in shapes() {
        for b in shapes() {
            let (x, z) = (numbers(&a), numbers(&b));
            let found = prelu.run([("x", x.clone()), ("z", z.clone())], &Default::default());
            if broadcast(&a, &b).as_ref() == Some(&a) {
                let wanted: Vec<f32> = (0..x.len())
                    .map(|at| {
                        let (value, slope) = (element_for(&x, &a, at), element_for(&z, &a, at));
                        if value < 0.0 { value * slope } else { value }
                    })
                    .collect();
                assert_eq!(list(&found.unwrap(), "y"), (a.clone(), wanted), "{b:?}");
                counts[0] += 1;
            } else {
                assert!(found.is_err(), "{a:?} {b:?}: {:?}", found.map(|found| list(&found, "y")));
                counts[1] += 1;
            }
        }
    }
    assert!(counts[0] > 50 && counts[1] > 100, "{counts:?}");
    let gemm =
        "g (float[] x, float[] c) => (float[] y) <float[1, 2] w = {0, 0}> { y = Gemm(x, w, c) }";
    let gemm = session_of(gemm);
    let run = |dims: &[usize]| {
        gemm.run([("x", numbers(&[3, 1])), ("c", numbers(dims))], &Default::default())
    };
    for dims in [&[][..], &[1], &[2], &[1, 2], &[3, 1], &[3, 2]] {
        let (found, c) = (run(dims).unwrap(), numbers(dims));
        let wanted = (0..6).map(|at| element_for(&c, &[3, 2], at)).collect();
        assert_eq!(list(&found, "y"), (vec![3, 2], wanted), "{dims:?}");
    }
    for dims in [&[3][..], &[2, 2], &[6, 2], &[1, 3, 2], &[3, 4]] {
        assert!(run(dims).is_err(), "{dims:?}");
    }
}

#[test]
fn a_vector_of_one_element_is_not_a_scalar() {
    // TENSOR-05+-, TENSOR-06+: nodes, subgraphs, inputs and outputs keep ranks
    let graph = "g (float[1] v, float s, float[2] t) =>
        (float[1] v2, float s2, float[1] g1, float g0, int64[1] shape_v, int64[0] shape_s,
         int64[2] shape_m, float s3)
        <float[2, 3] m = {1, 2, 3, 4, 5, 6}, int64[1] one = {1}, int64 at = {1}> {
        v2 = Neg(v) s2 = Neg(s)
        g1 = Gather(t, one) g0 = Gather(t, at)
        shape_v = Shape(v) shape_s = Shape(s) shape_m = Shape(m)
        s3 = Loop<
          body = b (int64 i, bool go, float q) => (bool go, float r) { r = Neg(q) }
        >(at, , s)
    }";
    let inputs = [("v", numbers(&[1])), ("s", numbers(&[])), ("t", numbers(&[2]))];
    let found = run_graph(graph, &inputs);
    for (name, dims) in [
        ("v2", &[1][..]),
        ("s2", &[]),
        ("g1", &[1]),
        ("g0", &[]),
        ("shape_v", &[1]),
        ("shape_s", &[0]),
        ("s3", &[]),
    ] {
        assert_eq!(found.tensor(name).unwrap().dims(), dims, "{name}");
    }
    let shape = |name: &str| found.tensor(name).unwrap().to_vec::<i64>().unwrap();
    assert_eq!(
        (shape("shape_v"), shape("shape_s"), shape("shape_m")),
        (vec![1], vec![], vec![2, 3])
    );
    for (name, other) in [("v", numbers(&[])), ("s", numbers(&[1]))] {
        let mut inputs = inputs.clone();
        for input in &mut inputs {
            if input.0 == name {
                input.1 = other.clone();
            }
        }
        let error = expect_refusal(graph, &inputs);
        assert!(error.contains(&format!("'{name}'")), "{error}");
    }
    // A constant of shape [1] has rank 1 too.
    let constants =
        "g () => (float[1] a, float b) <float[1] v = {2}, float s = {2}> { a = Neg(v) b = Neg(s) }";
    let found = run_graph(constants, &[]);
    assert_eq!(["a", "b"].map(|name| found.tensor(name).unwrap().rank()), [1, 0]);
}

#[test]
fn elements_are_in_row_major_order() {
    // TENSOR-08+: in inputs, constants, views and transposed values
    let graph = "g (float[2, 2] x, int64[2] at) =>
        (float[4] a, float[4] b, float[4] c, float[2] row, float[4] cut, float[1] pick)
        <float[2, 2] m = {1, 2, 3, 4}, int64[1] all = {-1}> {
        a = Reshape(x, all) b = Reshape(m, all)
        t = Transpose(x) c = Reshape(t, all)
        zero = Constant<value = int64 {0}>() row = Gather(t, zero)
        s = Constant<value_ints = [0, 1]>() e = Constant<value_ints = [2, 3]>()
        w = Concat<axis = 1>(m, x) k = Slice(w, s, e) cut = Reshape(k, all)
        p = Unsqueeze(at, zero) pick = GatherND(x, p)
    }";
    let at = Tensor::from_slice([2], &[0i64, 1]).unwrap();
    let found = run_graph(graph, &[("x", floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0])), ("at", at)]);
    for (name, wanted) in [
        ("a", &[1.0, 2.0, 3.0, 4.0][..]),
        ("b", &[1.0, 2.0, 3.0, 4.0]),
        ("c", &[1.0, 3.0, 2.0, 4.0]),
        ("row", &[1.0, 3.0]),
        ("cut", &[2.0, 1.0, 4.0, 3.0]),
        ("pick", &[2.0]),
    ] {
        assert_eq!(elements(&found, name), wanted, "{name}");
    }
}

#[test]
fn segments_of_tensors_are_refused() {
    // TENSOR-29+-: a segment is kept in the file, but cannot be an operand
    let text = |node: &str, segment: &str| {
        format!(
            "ir_version: 10 opset_import {{ version: 21 }}
             graph {{
               name: \"g\"
               node {{ {node} output: \"y\" }}
               initializer {{ name: \"w\" dims: 2 data_type: 1 float_data: [1, 2] {segment} }}
               output {{
                 name: \"y\" type {{ tensor_type {{ elem_type: 1 shape {{ dim {{ dim_value: 2 }} }} }} }}
               }}
             }}"
        )
    };
    let neg = "op_type: \"Neg\" input: \"w\"";
    let whole = Model::from_bytes(text(neg, "").into_bytes()).unwrap();
    assert_eq!(elements(&run(&whole, &[]).unwrap(), "y"), [-1.0, -2.0]);
    let segment = "segment { begin: 0 end: 2 }";
    let part = Model::from_bytes(text(neg, segment).into_bytes()).unwrap();
    // Field 3 of the tensor, with begin 0 and end 2.
    let bytes = part.to_bytes();
    assert!(bytes.windows(6).any(|window| window == b"\x1a\x04\x08\x00\x10\x02"));
    assert!(Model::from_bytes(bytes.clone()).unwrap().to_bytes() == bytes);
    let error = run(&part, &[]).unwrap_err().to_string();
    assert!(error.contains("'w'") && error.contains("segment"), "{error}");
    let attribute = format!(
        "op_type: \"Constant\" attribute {{
           name: \"value\" type: TENSOR t {{ dims: 2 data_type: 1 float_data: [1, 2] {segment} }}
         }}"
    );
    let model = Model::from_bytes(text(&attribute, "").into_bytes()).unwrap();
    assert!(run(&model, &[]).unwrap_err().to_string().contains("Constant"));
}

/// Lists the first IR version with each type, and the codes of its largest and smallest element.
fn type_rows() -> BTreeMap<&'static str, (i64, [u64; 2])> {
    BTreeMap::from([
        ("float16", (1, [0x7bff, 0xfbff])),
        ("float", (1, [0x7f7f_ffff, 0xff7f_ffff])),
        ("double", (1, [0x7fef_ffff_ffff_ffff, 0xffef_ffff_ffff_ffff])),
        ("bfloat16", (4, [0x7f7f, 0xff7f])),
        ("float8e4m3fn", (9, [0x7e, 0xfe])),
        ("float8e4m3fnuz", (9, [0x7f, 0xff])),
        ("float8e5m2", (9, [0x7b, 0xfb])),
        ("float8e5m2fnuz", (9, [0x7f, 0xff])),
        ("float4e2m1", (11, [0x7, 0xf])),
        ("float8e8m0", (12, [0xfe, 0x00])),
        ("float6e2m3", (14, [0x1f, 0x3f])),
        ("float6e3m2", (14, [0x1f, 0x3f])),
        ("int8", (1, [0x7f, 0x80])),
        ("int16", (1, [0x7fff, 0x8000])),
        ("int32", (1, [0x7fff_ffff, 0x8000_0000])),
        ("int64", (1, [0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000])),
        ("int4", (10, [0x7, 0x8])),
        ("int2", (13, [0x1, 0x2])),
    ])
}

#[test]
fn elements_of_each_type_survive_a_run() {
    // TYPE-02+, TYPE-03+: all codes of types up to 8 bits, and the extreme values of wider types
    let rows = type_rows();
    assert_eq!(rows.len(), 18);
    for (name, (first, ends)) in &rows {
        let data_type = DataType::from_name(name).unwrap();
        let bits = data_type.bits().unwrap();
        let tensor = if bits <= 8 {
            let codes: Vec<u8> = (0..1u16 << bits).map(|code| code as u8).collect();
            for end in ends {
                assert!(*end < 1 << bits, "{name}");
            }
            Tensor::from_codes(data_type, [codes.len()], &codes).unwrap()
        } else {
            let bytes: Vec<u8> =
                ends.iter().flat_map(|end| end.to_le_bytes()[..bits / 8].to_vec()).collect();
            let buffer = sardonyx::value::Buffer::from_vec(bytes);
            Tensor::from_buffer(data_type, [2], buffer).unwrap()
        };
        let count = tensor.len();
        let text = format!(
            "<ir_version: 14, opset_import: [\"\": 25]>
             g ({name}[{count}] x) => ({name}[{count}] y, {name}[{count}] z) {{
               y = Identity(x)
               r = Constant<value_ints = [1, -1]>() f = Constant<value_ints = [-1]>()
               a = Reshape(x, r) z = Reshape(a, f)
             }}"
        );
        let model = Model::from_text(&text).unwrap();
        let found =
            run(&model, &[("x", tensor.clone())]).unwrap_or_else(|error| panic!("{name}: {error}"));
        for output in ["y", "z"] {
            assert!(found.tensor(output).unwrap().bit_eq(&tensor), "{name}");
        }
        // TYPE-02-, TYPE-03: the checker reports the type in a model of an older IR version
        let mut old =
            Model::from_text(&text.replace("ir_version: 14", &format!("ir_version: {first}")))
                .unwrap();
        let type_findings = |model: &Model| {
            let report = model.check(&CheckOptions::new());
            let codes =
                report.findings.iter().filter(|finding| finding.code.name == "ir-version-too-old");
            codes.map(|finding| finding.fact.to_string()).collect::<Vec<_>>()
        };
        assert!(
            !type_findings(&old).iter().any(|fact| fact.contains("'x'")),
            "{name}: {:?}",
            type_findings(&old)
        );
        if *first > 1 {
            let text = text.replace("ir_version: 14", &format!("ir_version: {}", first - 1));
            old = Model::from_text(&text).unwrap();
            assert!(
                type_findings(&old).iter().any(|fact| fact.contains("'x'")),
                "{name}: {:?}",
                type_findings(&old)
            );
        }
    }
}

#[test]
fn integers_out_of_range_are_refused() {
    // TYPE-03-
    for (ty, fine, wrong) in [
        ("int2", ["-2", "1"], ["-3", "2"]),
        ("int4", ["-8", "7"], ["-9", "8"]),
        ("int8", ["-128", "127"], ["-129", "128"]),
        ("int16", ["-32768", "32767"], ["-32769", "32768"]),
        ("int32", ["-2147483648", "2147483647"], ["-2147483649", "2147483648"]),
        (
            "int64",
            ["-9223372036854775808", "9223372036854775807"],
            ["-9223372036854775809", "9223372036854775808"],
        ),
    ] {
        let model = |value: &str| {
            Model::from_text(&format!(
                "<ir_version: 13, opset_import: [\"\": 25]>
                 g () => ({ty}[1] y, string[1] t) <{ty}[1] w = raw {{{value}}}> {{
                   y = Identity(w) t = Cast<to = 8>(w)
                 }}"
            ))
        };
        for value in fine {
            let found = run(&model(value).unwrap(), &[]).unwrap();
            let text = found.tensor("t").unwrap().strings().unwrap();
            assert_eq!(text.iter().collect::<Vec<_>>(), [value.as_bytes()], "{ty}");
        }
        for value in wrong {
            let error = model(value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Format, "{ty} {value}: {error}");
        }
    }
}

#[test]
fn strings_are_utf_8() {
    // TYPE-06+-: text is passed byte by byte, and the checker reports invalid UTF-8
    let words = ["", "ä€𝄞", "a\u{0}b"];
    let model = model_of(21, "g (string[3] x) => (string[3] y) { y = Identity(x) }");
    let x = Tensor::from(StringArray::from_iter(words));
    let found = run(&model, &[("x", x)]).unwrap();
    let found: Vec<&[u8]> = found.tensor("y").unwrap().strings().unwrap().iter().collect();
    assert_eq!(found, words.map(str::as_bytes));
    let stored = |bytes: &str| {
        let text = format!(
            "ir_version: 10 opset_import {{ version: 21 }}
             graph {{
               name: \"g\"
               node {{ op_type: \"Identity\" input: \"w\" output: \"y\" }}
               initializer {{ name: \"w\" dims: 1 data_type: 8 string_data: \"{bytes}\" }}
               output {{
                 name: \"y\" type {{ tensor_type {{ elem_type: 8 shape {{ dim {{ dim_value: 1 }} }} }} }}
               }}
             }}"
        );
        Model::from_bytes(text.into_bytes()).unwrap()
    };
    let has_finding = |model: &Model| {
        let report = model.check(&CheckOptions::new());
        report.findings.iter().any(|finding| finding.code.name == "string-not-utf8")
    };
    assert!(!has_finding(&stored("caf\\303\\251")));
    for broken in ["caf\\351", "\\355\\240\\200", "\\300\\200", "\\303"] {
        assert!(has_finding(&stored(broken)), "{broken}");
    }
}
