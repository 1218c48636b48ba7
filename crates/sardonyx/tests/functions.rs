//! Checks the function bodies of standard operators: each parses, calls existing operators with
//! valid operands, and defines its outputs.

use std::collections::{BTreeSet, HashMap, HashSet};

use sardonyx::tool::schema::{Arity, OpDef, Registry};
use sardonyx::tool::{OperatorFunction, TextPart, parse_part};
use sardonyx::{Model, Type};
use sardonyx_model::{self as graph, GraphId, Producer};
use sardonyx_proto::{Encode, Encoder, encode_to_vec, model};

/// Encodes a model that has only a function.
struct Holder(Vec<u8>);

impl Encode for Holder {
    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put_message(model::Functions, |out| out.put_records(&self.0));
    }
}

/// Collects the faults of a function.
struct Judge<'a> {
    model: &'a graph::Model,
    opsets: HashMap<String, u32>,
    parameters: HashSet<String>,
    faults: Vec<String>,
}

impl Judge<'_> {
    fn graph(&mut self, id: GraphId, outer: &HashSet<String>) {
        let model = self.model;
        let graph = model.graph(id);
        let mut names = outer.clone();
        let inputs = graph.inputs.iter().filter_map(|input| input.value);
        for value in inputs {
            self.define(value, &mut names);
        }
        for initializer in &graph.initializers {
            self.define(initializer.value.unwrap(), &mut names);
        }
        for &node in &graph.nodes {
            self.node(node, &names);
            for value in model.outputs(node).iter().flatten() {
                self.define(*value, &mut names);
            }
        }
        for output in &graph.outputs {
            let name = model.display(output.name);
            if !names.contains(name.as_ref()) {
                self.faults.push(format!("nothing gives the output {name}"));
            }
        }
    }

    fn define(&mut self, value: graph::ValueId, names: &mut HashSet<String>) {
        let name = self.model.display(Some(self.model.value(value).name));
        if !names.insert(name.to_string()) {
            self.faults.push(format!("{name} is defined twice"));
        }
    }

    fn node(&mut self, id: graph::NodeId, names: &HashSet<String>) {
        let model = self.model;
        let node = model.node(id);
        let name = model.display(node.op_type);
        let opset = self.opsets.get(model.domain_of(id).as_ref());
        let registry = Registry::standard();
        let schema = opset.and_then(|opset| registry.schema(&model.domain_of(id), &name, *opset));
        let Some(schema) = schema.filter(|schema| !schema.deprecated) else {
            return self.faults.push(format!("operator {name} does not exist"));
        };
        for (what, count, (fewest, most)) in [
            ("inputs", model.inputs(id).count(), schema.input_count()),
            ("outputs", model.outputs(id).len(), schema.output_count()),
        ] {
            if count < fewest || most.is_some_and(|most| count > most) {
                self.faults.push(format!("{name} has {count} {what}"));
            }
        }
        for (index, input) in model.inputs(id).enumerate() {
            match input {
                None if schema.input(index).map(|param| param.arity) != Some(Arity::Optional) => {
                    self.faults.push(format!("{name} needs its input {index}"));
                }
                Some(value) if model.value(value).producer == Producer::Nothing => {
                    let read = model.display(Some(model.value(value).name));
                    self.faults.push(format!("{name} reads {read}, which nothing gives"));
                }
                _ => {}
            }
        }
        for attribute in &schema.attributes {
            if attribute.required && model.attribute_of(id, attribute.name).is_none() {
                self.faults.push(format!("{name} needs {}", attribute.name));
            }
        }
        for attribute in model.attributes(id) {
            let attribute = model.attribute(*attribute);
            let called = model.display(attribute.name);
            let ty = schema.attribute(&called).map(|formal| formal.ty.to_string());
            let is = attribute.ty.and_then(|ty| ty.name()).map(str::to_lowercase);
            if ty != is {
                self.faults.push(format!("{name} has no attribute {called} of type {is:?}"));
            }
            if let Some(parameter) = attribute.ref_attr_name() {
                let parameter = model.display(Some(parameter));
                if !self.parameters.contains(parameter.as_ref()) {
                    self.faults.push(format!("{name} refers to {parameter}"));
                }
            }
            for inner in attribute.graphs() {
                self.graph(inner, names);
            }
        }
    }
}

/// Lists the faults of a function. Outputs in `absent`, which the call omits, may be undefined.
fn judge(text: &str, absent: &[&str]) -> Vec<String> {
    let function = parse_part(TextPart::Function, text.as_bytes().to_vec());
    let function = function.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let model = graph::Model::read(encode_to_vec(&Holder(function)).into()).unwrap();
    let found = &model.functions[0];
    let text = |symbol| model.display(Some(symbol)).to_string();
    let opsets = found.opset_import.iter().map(|entry| {
        let version = entry.version.unwrap().try_into().unwrap();
        (entry.domain.map(text).unwrap_or_default(), version)
    });
    let mut judge = Judge {
        model: &model,
        opsets: opsets.collect(),
        parameters: found.attributes.iter().copied().map(text).collect(),
        faults: Vec::new(),
    };
    judge.graph(found.body, &HashSet::new());
    let absent = absent.iter().map(|name| format!("nothing gives the output {name}"));
    let absent: BTreeSet<String> = absent.collect();
    judge.faults.retain(|fault| !absent.contains(fault));
    judge.faults
}

fn operators_with_functions() -> impl Iterator<Item = (&'static OpDef, u32, bool)> {
    Registry::standard().operators().flat_map(|operator| {
        let versions = operator.versions().map(|version| version.since);
        let functions = versions.flat_map(|version| operator.functions_of(version));
        functions.map(move |function| (operator, function.since, function.needs_call))
    })
}

#[test]
fn faults_of_functions_are_found() {
    let rows = [
        ("y = Neg (x)", None),
        ("y = Negg (x)", Some("operator Negg does not exist")),
        ("y = Upsample (x, x)", Some("operator Upsample does not exist")),
        ("y = Neg (x, x)", Some("Neg has 2 inputs")),
        ("y, z = Neg (x)", Some("Neg has 2 outputs")),
        ("y = Add (\"\", x)", Some("Add needs its input 0")),
        ("y = Neg (z)", Some("Neg reads z, which nothing gives")),
        ("z = Neg (x)", Some("nothing gives the output y")),
        ("y = Neg (x) x = Neg (y)", Some("x is defined twice")),
        ("y = Neg <axis = 1> (x)", Some("Neg has no attribute axis of type Some(\"int\")")),
        (
            "y = Softmax <axis = 1.0> (x)",
            Some("Softmax has no attribute axis of type Some(\"float\")"),
        ),
        ("y = Softmax <axis: int = @b> (x)", Some("Softmax refers to b")),
        ("y = Cast (x)", Some("Cast needs to")),
        (
            "y = If (x) <then_branch = t () => (z) { z = Neg (w) }, else_branch = e () => (x) { x = Neg (x) }>",
            Some("Neg reads w, which nothing gives"),
        ),
    ];
    for (nodes, fault) in rows {
        let text =
            format!("<domain: \"\", opset_import: [\"\": 18]> f <a> (x) => (y) {{ {nodes} }}");
        let found = judge(&text, &[]);
        assert_eq!(found.first().map(String::as_str), fault, "{nodes}");
    }
}

#[test]
fn functions_that_do_not_depend_on_the_call_are_sound() {
    let mut count = 0;
    for (operator, since, _) in operators_with_functions().filter(|(_, _, needs_call)| !needs_call)
    {
        let function = OperatorFunction::find(operator.domain, operator.name, since).unwrap();
        assert_eq!(judge(function.text(), &[]), [""; 0], "{}", function.text());
        count += 1;
    }
    assert_eq!(count, 43);
}

/// Calls as ONNX text, with types of their inputs and the optional outputs that they omit.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("y = Bernoulli (x)", "float16[2]", &[]),
    ("y = CastLike (x, t)", "float[2]; int8[]", &[]),
    ("y = Celu (x)", "", &[]),
    ("y = CenterCropPad (x, s)", "", &[]),
    ("y = CenterCropPad <axes = [1]> (x, s)", "", &[]),
    ("y, s = CausalConvWithState (x, w)", "float[1, 2, 3]; float[2, 1, 3]", &[]),
    ("y, s = CausalConvWithState <activation = \"silu\"> (x, w, b, p)", "float[1, 2, 3]; float[2, 1, 3]", &[]),
    ("y = Clip (x)", "", &[]),
    ("y = Clip (x, low)", "", &[]),
    ("y = Clip (x, \"\", high)", "", &[]),
    ("y = Clip (x, low, high)", "", &[]),
    ("y = DepthToSpace <blocksize = 2> (x)", "", &[]),
    ("y = DepthToSpace <blocksize = 2, mode = \"CRD\"> (x)", "", &[]),
    ("y = SpaceToDepth <blocksize = 2> (x)", "", &[]),
    ("y = SpaceToDepth <blocksize = 2, mode = \"CRD\"> (x)", "", &[]),
    ("y = ai.onnx.preview.FlexAttention (q, k, v)", "float[1, 2, 3, 4]; float[1, 2, 3, 4]; float[1, 2, 3, 4]", &[]),
    (
        "y = ai.onnx.preview.FlexAttention <scale = 2.0,
            score_mod = m (x) => (keys) <float c = {2}> { d = Mul (x, c) keys = Add (d, c) },
            prob_mod = m (x) => (y) { b = Constant <value = bool {1}> () y = If (b) <
                then_branch = t () => (d) { d = Neg (x) }, else_branch = e () => (z) { z = Abs (x) }> }> (q, k, v)",
        "float16[1, 2, 3, 4]; float16[1, 2, 3, 4]; float16[1, 2, 3, 4]",
        &[],
    ),
    ("y = Gelu (x)", "", &[]),
    ("y = Gelu <approximate = \"tanh\"> (x)", "", &[]),
    ("y = GroupNormalization <num_groups = 2> (x, s, b)", "double[1, 2, 3]", &[]),
    ("y = LayerNormalization <axis = 1> (x, s)", "float[2, 3]", &["Mean", "InvStdDev"]),
    ("y, m, i = LayerNormalization (x, s, b)", "float[2, 3]", &[]),
    ("y, s = LinearAttention <q_num_heads = 2, kv_num_heads = 2> (q, k, v, p, d, b)", "float[1, 2, 4]", &[]),
    (
        "y, s = LinearAttention <q_num_heads = 4, kv_num_heads = 2, update_rule = \"linear\", scale = 0.5> (q, k, v)",
        "float[1, 2, 4]",
        &[],
    ),
    ("y = LogSoftmax (x)", "", &[]),
    ("y = Softmax <axis = 1> (x)", "", &[]),
    ("y = NegativeLogLikelihoodLoss (x, t)", "float[2, 3]", &[]),
    ("y = NegativeLogLikelihoodLoss <reduction = \"none\"> (x, t)", "float16[2, 3]", &[]),
    ("y = NegativeLogLikelihoodLoss <ignore_index = 1> (x, t)", "float16[2, 3]", &[]),
    ("y = NegativeLogLikelihoodLoss <ignore_index = 1, reduction = \"sum\"> (x, t, w)", "float[2, 3]", &[]),
    ("y = RMSNormalization (x, s)", "float[2, 3]", &[]),
    ("y = Range (s, l, d)", "bfloat16", &[]),
    ("y = Range (s, l, d)", "int64", &[]),
    ("y = RotaryEmbedding (x, c, s)", "float[1, 2, 3, 4]", &[]),
    ("y = RotaryEmbedding <interleaved = 1, num_heads = 2, rotary_embedding_dim = 2> (x, c, s, p)", "float[1, 2, 8]", &[]),
    (
        "a, b = SequenceMap <body = g (float[N] x, float y) => (float[N] length, float go_on) <float k = {1}> {
            length = Add (x, k) go_on = Neg (y) }> (s, t)",
        "seq(float[N]); float",
        &[],
    ),
    ("y = SoftmaxCrossEntropyLoss (x, t)", "", &["log_prob"]),
    ("y, p = SoftmaxCrossEntropyLoss <ignore_index = 1> (x, t, w)", "", &[]),
    (
        "y = Attention (q, k, v)",
        "float[1, 2, 3, 4]; float[1, 2, 3, 4]; float[1, 2, 3, 4]",
        &["present_key", "present_value", "qk_matmul_output"],
    ),
    (
        "y, p, r, m = Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1, softcap = 2.0, scale = 0.5> (q, k, v, m, a, b)",
        "float[1, 2, 8]; float[1, 2, 4]; float[1, 2, 4]; bool[2, 2]",
        &[],
    ),
];

fn types(text: &str) -> Vec<Option<Type>> {
    let types = text.split(';').map(str::trim).filter(|ty| !ty.is_empty());
    let types = types.enumerate().map(|(index, ty)| format!("{ty} x{index}"));
    let types: Vec<String> = types.collect();
    let model = format!("<ir_version: 10> g ({}) => () {{}}", types.join(", "));
    let inputs = Model::from_text(&model).unwrap().inputs();
    inputs.iter().map(|input| input.ty().cloned()).collect()
}

fn of_call(node: &str, inputs: &str, opset: u32) -> Option<OperatorFunction> {
    let node = parse_part(TextPart::Node, node.as_bytes().to_vec()).unwrap();
    OperatorFunction::from_call(node, &types(inputs), opset).unwrap()
}

#[test]
fn functions_that_depend_on_the_call_are_sound() {
    let mut called = BTreeSet::new();
    for (node, inputs, absent) in CALLS {
        let callee = node.split_once("= ").unwrap().1;
        let callee = callee.split(' ').next().unwrap();
        for (operator, since, _) in operators_with_functions()
            .filter(|(operator, _, needs_call)| *needs_call && operator.full_name() == callee)
        {
            let function = of_call(node, inputs, since);
            let function = function.unwrap_or_else(|| panic!("{node} at opset {since}"));
            assert_eq!(judge(function.text(), absent), [""; 0], "{node}\n{}", function.text());
            called.insert((operator.full_name(), since));
        }
    }
    let all = operators_with_functions().filter(|(_, _, needs_call)| *needs_call);
    let all: BTreeSet<_> = all.map(|(operator, since, _)| (operator.full_name(), since)).collect();
    assert_eq!(called, all, "each has a call in the table");
}

#[test]
fn calls_and_windows_of_newer_attention_are_sound() {
    let inputs = "float[1, 2, 3, 4]; float[1, 2, 3, 4]; float[1, 2, 3, 4]; -; -; -; int64[1]";
    let absent = ["present_key", "present_value", "qk_matmul_output"];
    for attributes in
        ["is_causal = 1", "left_window_size = 2", "left_window_size = 2, right_window_size = 0"]
    {
        for rest in ["", ", m", ", \"\", \"\", \"\", n"] {
            let node = format!("y = Attention <{attributes}> (q, k, v{rest})");
            let function = of_call(&node, &inputs.replace("-", "bool[2, 2]"), 25).unwrap();
            assert_eq!(judge(function.text(), &absent), [""; 0], "{node}\n{}", function.text());
        }
    }
}

#[test]
fn calls_without_a_function() {
    let rows = [
        ("y = Abs (x)", "float", 13),
        ("y = Nothing (x)", "float", 13),
        // The body depends on a type, which is unknown or not permitted.
        ("y = CastLike (x, t)", "float", 25),
        ("y = LayerNormalization <stash_type = 11> (x, s)", "float[2]", 17),
        ("y = Range <stash_type = 7> (s, l, d)", "float16", 27),
        // The operator has no function at this version.
        ("y = Softmax (x)", "float", 12),
        ("y = DepthToSpace <blocksize = 2> (x)", "float", 13),
        // The call violates a constraint of the operator.
        ("y = DepthToSpace <blocksize = 0> (x)", "float", 28),
        ("y = SpaceToDepth <blocksize = 4000000000> (x)", "float", 28),
        ("y = GroupNormalization (x, s, b)", "float[2]", 21),
        ("s = SequenceMap <body = g (x, y) => (float z) { z = Add (x, y) }> (a)", "seq(float)", 17),
        ("s = SequenceMap <body = g (x) => (z) { z = Neg (x) }> (a)", "seq(float)", 17),
        // The subgraph captures values from outside, one with the name of a value of the function.
        (
            "s = SequenceMap <body = g (float x) => (float z) { z = Add (x, length) }> (a)",
            "seq(float)",
            17,
        ),
        (
            "s = SequenceMap <body = g (float x) => (float z) { z = Add (x, a) }> (a)",
            "seq(float)",
            17,
        ),
        // An output of the subgraph is captured from outside.
        ("s = SequenceMap <body = g (x) => (float z) {}> (a)", "seq(float)", 17),
    ];
    for (node, inputs, opset) in rows {
        assert_eq!(of_call(node, inputs, opset), None, "{node}");
    }
}

#[test]
fn subgraphs_of_the_call_are_inserted_unchanged() {
    // A string with line breaks and blanks, and names that the function uses too.
    let node =
        "s = SequenceMap <body = g (string length) => (string grown_0) <float[2] go_on = {1, 2}> {
        text = Constant <value_string = \"a  \n   {b}\n  > \\\"c\"> ()
        grown_0 = outer.Join <by = \"<\"> (text, length, go_on)
    }> (s)";
    let function = of_call(node, "seq(string)", 17).unwrap();
    let faults = judge(function.text(), &[]);
    assert_eq!(faults, ["operator Join does not exist"]);
    let text = function.text();
    assert!(text.contains("= \"a  \n   {b}\n  > \\\"c\">"), "{text}");
    assert_eq!(text.matches("float[2]").count(), 1, "{text}");
}

#[test]
fn bytes_that_are_not_a_node_are_an_error() {
    for bytes in [&b"\xff"[..], b"\x0a\xff\x01"] {
        let error = OperatorFunction::from_call(bytes.to_vec(), &[], 18).unwrap_err();
        assert_eq!(error.kind(), sardonyx::ErrorKind::Format, "{bytes:?}");
    }
    assert_eq!(OperatorFunction::from_call(Vec::new(), &[], 18).unwrap(), None);
}
