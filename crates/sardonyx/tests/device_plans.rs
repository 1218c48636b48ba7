//! Plans of networks on devices: split tensors, messages, and constants of each device.

use std::fmt::Write as _;

use sardonyx::device::{DeviceOptions, Division, ShardOptions};
use sardonyx::tool::shard::Plan;
use sardonyx::{Model, Session, Tensor};

const WIDTH: usize = 64;

fn numbers(dims: &[usize], by: usize) -> Vec<f32> {
    let count: usize = dims.iter().product();
    (0..count).map(|index| ((index * by + by) % 97) as f32 / 388.0 - 0.125).collect()
}

/// Constants of a model as text, each filled with different numbers.
#[derive(Default)]
struct Constants {
    text: String,
    count: usize,
}

impl Constants {
    fn add(&mut self, name: &str, dims: &[usize]) {
        self.count += 1;
        let elements = numbers(dims, 31 + 2 * self.count);
        let elements: Vec<String> = elements.iter().map(ToString::to_string).collect();
        let elements = elements.join(", ");
        let comma = if self.text.is_empty() { "" } else { ", " };
        write!(self.text, "{comma}float{dims:?} {name} = {{{elements}}}").unwrap();
    }
}

/// Makes a network like GPT-2 as PyTorch exports it: one product computes queries, keys and values,
/// which a sequence separates; products are of rows and have a bias.
fn transformer(layers: usize) -> Model {
    let mut constants = Constants::default();
    let mut nodes = String::new();
    let mut before = "x".to_string();
    for layer in 0..layers {
        let is_last = layer + 1 == layers;
        let after = if is_last { "y".to_string() } else { format!("y{layer}") };
        for (name, dims) in [
            ("scale", &[WIDTH][..]),
            ("w_attention", &[WIDTH, 3 * WIDTH]),
            ("b_attention", &[3 * WIDTH]),
            ("w_projection", &[WIDTH, WIDTH]),
            ("b_projection", &[WIDTH]),
            ("w_up", &[WIDTH, 4 * WIDTH]),
            ("b_up", &[4 * WIDTH]),
            ("w_down", &[4 * WIDTH, WIDTH]),
            ("b_down", &[WIDTH]),
        ] {
            constants.add(&format!("{name}{layer}"), dims);
        }
        let text = "
            n1_L = LayerNormalization <axis = -1> (BEFORE, scaleL)
            f1_L = Reshape (n1_L, rows)
            qkv_L = Gemm (f1_L, w_attentionL, b_attentionL)
            r_L = Reshape (qkv_L, batched)
            s_L = SplitToSequence <axis = 2> (r_L, width)
            q_L = SequenceAt (s_L, zero)
            k_L = SequenceAt (s_L, one)
            v_L = SequenceAt (s_L, two)
            q1_L = Reshape (q_L, heads)
            k1_L = Reshape (k_L, heads)
            v1_L = Reshape (v_L, heads)
            q2_L = Transpose <perm = [0, 2, 1, 3]> (q1_L)
            k2_L = Transpose <perm = [0, 2, 3, 1]> (k1_L)
            v2_L = Transpose <perm = [0, 2, 1, 3]> (v1_L)
            scores_L = MatMul (q2_L, k2_L)
            p_L = Softmax <axis = -1> (scores_L)
            o_L = MatMul (p_L, v2_L)
            o1_L = Transpose <perm = [0, 2, 1, 3]> (o_L)
            o2_L = Reshape (o1_L, rows)
            a_L = Gemm (o2_L, w_projectionL, b_projectionL)
            a1_L = Reshape (a_L, joined)
            h_L = Add (a1_L, BEFORE)
            n2_L = LayerNormalization <axis = -1> (h_L, scaleL)
            f2_L = Reshape (n2_L, rows)
            up_L = Gemm (f2_L, w_upL, b_upL)
            g_L = Gelu <approximate = \"tanh\"> (up_L)
            down_L = Gemm (g_L, w_downL, b_downL)
            d_L = Reshape (down_L, joined)
            AFTER = Add (d_L, h_L)";
        let text = text.replace("BEFORE", &before).replace("AFTER", &after);
        let text = text.replace("_L ", &format!("_{layer} ")).replace("_L,", &format!("_{layer},"));
        let text = text.replace("_L)", &format!("_{layer})"));
        let text = text.replace("L)", &format!("{layer})")).replace("L,", &format!("{layer},"));
        nodes += &text;
        before = after;
    }
    let constants = constants.text;
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 20]>
        transformer (float[2, 3, {WIDTH}] x) => (float[2, 3, {WIDTH}] y)
        <{constants}, int64 width = {{{WIDTH}}}, int64 zero = {{0}}, int64 one = {{1}},
         int64 two = {{2}}, int64[2] rows = {{-1, {WIDTH}}}, int64[3] batched = {{2, 3, {}}},
         int64[3] joined = {{2, 3, {WIDTH}}}, int64[4] heads = {{2, 3, 4, {}}}>
        {{ {nodes} }}",
        3 * WIDTH,
        WIDTH / 4
    );
    Model::from_text(&text).unwrap()
}

fn input(dims: &[usize]) -> Tensor {
    Tensor::from_vec(dims, numbers(dims, 53).iter().map(|x| 8.0 * x).collect()).unwrap()
}

/// Runs a model on devices and without them. Returns the largest difference of an element, relative
/// to the largest element, and the plan.
fn compare_runs(plain: &Model, annotated: &Model, x: &Tensor) -> (f32, Plan) {
    let wanted = Session::new(plain).unwrap().run([("x", x.clone())], &Default::default()).unwrap();
    let session = Session::builder(annotated).devices(DeviceOptions::new()).unwrap();
    let found = session.run([("x", x.clone())], &Default::default()).unwrap();
    let wanted = wanted.tensor("y").unwrap().to_vec::<f32>().unwrap();
    let found = found.tensor("y").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(wanted.len(), found.len());
    let largest = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
    let pairs = wanted.iter().zip(&found);
    let off = pairs.fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest;
    (off, session.plan(&[]).unwrap())
}

/// Checks that attention heads and both products of a feed-forward layer are split, and that each
/// layer takes two all-reduces (DIST-16).
#[test]
fn layers_send_two_sums() {
    let layers = 2;
    let model = transformer(layers);
    let x = input(&[2, 3, WIDTH]);
    let bytes = (2 * 3 * WIDTH * 4) as u64;
    for devices in [2usize, 4] {
        let (annotated, report) =
            model.shard(&ShardOptions::new(Division::Tensor, devices).configuration("c")).unwrap();
        assert_eq!((report.columns, report.rows, report.whole), (2 * layers, 2 * layers, 0));
        let (off, plan) = compare_runs(&model, &annotated, &x);
        assert!(off < 1e-5, "{devices} devices: off by {off}");
        let others = devices as u64 - 1;
        // An all-reduce sends each sum twice; the last sum goes to the first device alone.
        let sums = 2 * layers as u64 - 1;
        let sent = sums * 2 * others * bytes + others * bytes;
        assert_eq!(plan.bytes().size(), Some(sent as usize), "{}", plan.text());
        // Matrices are split, and biases of matrices that are split by columns. Other vectors are
        // replicated, and biases that are added to a sum are on one device.
        let split = layers * (12 * WIDTH * WIDTH + 7 * WIDTH) * 4 / devices;
        let whole = layers * WIDTH * 4;
        for device in 0..u32::try_from(devices).unwrap() {
            let once = if device == 0 { layers * 2 * WIDTH * 4 } else { 0 };
            let found = plan.constant_bytes(device);
            let wanted = (split + whole + once) as u64;
            // Sizes and positions are replicated.
            assert!((wanted..wanted + 2000).contains(&found), "{device}: {found}, not {wanted}");
        }
    }
}

/// Makes a model for two devices, with annotations on its first node that split tensors along axes.
fn annotate(inputs: &str, output: &str, nodes: &str, split: &[(&str, usize)]) -> Model {
    let specs = split.iter().map(|(tensor, axis)| {
        format!(
            "{{tensor_name: \"{tensor}\", device: [0, 1], sharded_dim:
                 [{{axis: {axis}, simple_sharding: [{{num_shards: 2}}]}}]}}"
        )
    });
    let specs = specs.collect::<Vec<_>>().join(", ");
    let says = format!(
        "@<device_configurations: [{{configuration_id: \"c\", sharding_spec: [{specs}]}}]>"
    );
    let (first, others) = nodes.split_once('\n').unwrap_or((nodes, ""));
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21]> g ({inputs}) => ({output}) {{
            {first} {says}
            {others}
        }}
        @<configuration: [{{name: \"c\", num_devices: 2}}]>"
    );
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs a model on devices and without them, compares the outputs, and returns the plan.
fn runs_the_same(model: &Model, inputs: &[(&str, &[usize])]) -> Plan {
    let given = inputs.iter().enumerate().map(|(index, (name, dims))| {
        (*name, Tensor::from_vec(*dims, numbers(dims, 31 + 6 * index)).unwrap())
    });
    let given: Vec<(&str, Tensor)> = given.collect();
    let wanted = Session::new(model).unwrap().run(given.clone(), &Default::default()).unwrap();
    let session = Session::builder(model).devices(DeviceOptions::new()).unwrap();
    let found = session.run(given, &Default::default()).unwrap();
    let plan = session.plan(&[]).unwrap();
    for (name, wanted) in wanted.iter() {
        let (wanted, found) = (wanted.as_tensor().unwrap(), found.tensor(name).unwrap());
        assert_eq!(wanted.dims(), found.dims(), "{}", plan.text());
        match wanted.to_vec::<f32>() {
            Ok(wanted) => {
                let pairs = wanted.iter().zip(found.to_vec::<f32>().unwrap());
                for (a, b) in pairs {
                    assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{}", plan.text());
                }
            }
            Err(_) => assert_eq!(wanted.bytes(), found.bytes(), "{}", plan.text()),
        }
    }
    plan
}

/// Checks that only one device adds the bias of a product that is a sum over devices (DIST-31).
#[test]
fn biases_are_added_once() {
    let gemm = annotate(
        "float[3, 8] a, float[8, 5] b, float[5] c",
        "float[3, 5] y",
        "y = Gemm <alpha = 0.5, beta = 2.0> (a, b, c)",
        &[("a", 1), ("b", 0)],
    );
    let plan = runs_the_same(&gemm, &[("a", &[3, 8]), ("b", &[8, 5]), ("c", &[5])]);
    assert_eq!(plan.facts().partial, 1);
    let conv = annotate(
        "float[2, 4, 5, 5] x, float[3, 4, 3, 3] w, float[3] b",
        "float[2, 3, 3, 3] y",
        "y = Conv (x, w, b)",
        &[("x", 1), ("w", 1)],
    );
    let plan = runs_the_same(&conv, &[("x", &[2, 4, 5, 5]), ("w", &[3, 4, 3, 3]), ("b", &[3])]);
    assert_eq!(plan.facts().partial, 1);
}

/// Checks Split with equal sizes: each output is split like the input if the annotation splits each
/// of these parts of the axis, else the input is gathered (DIST-13).
#[test]
fn equal_parts_are_split_alike() {
    let nodes = |given: &str| {
        format!(
            "h = Relu (x)
             a, b, c = Split <axis = 1{given}
             d = Mul (a, b)
             y = Add (c, d)"
        )
    };
    let spec = |nodes: &str, factors: &str| {
        let model = format!(
            "<ir_version: 11, opset_import: [\"\": 21]>
             g (float[2, 15] x) => (float[2, 5] y) <int64[3] sizes = {{5, 5, 5}}> {{
                 {}
             }}
             @<configuration: [{{name: \"c\", num_devices: 2}}]>",
            nodes.replacen(
                "Relu (x)",
                &format!(
                    "Relu (x) @<device_configurations: [{{configuration_id: \"c\", sharding_spec:
                     [{{tensor_name: \"x\", device: [0, 1], sharded_dim:
                     [{{axis: 1, simple_sharding: [{factors}]}}]}}]}}]>"
                ),
                1
            )
        );
        Model::from_text(&model).unwrap_or_else(|error| panic!("{error}\n{model}"))
    };
    for given in [", num_outputs = 3> (h)", "> (h, sizes)"] {
        let fits = spec(&nodes(given), "{dim_value: 3, num_shards: 1}, {num_shards: 2}");
        let plan = runs_the_same(&fits, &[("x", &[2, 15])]);
        assert_eq!((plan.facts().moves, plan.facts().in_parts), (1, 4), "{}", plan.text());
        // The first device also holds a part of the second output.
        let plan = runs_the_same(&spec(&nodes(given), "{num_shards: 2}"), &[("x", &[2, 15])]);
        assert_eq!((plan.facts().moves, plan.facts().in_parts), (1, 1), "{}", plan.text());
    }
}

/// Checks that linear operators run on partial sums, which are reduced once at the end, and that
/// another summand is added on one device only (DIST-31).
#[test]
fn partial_sums_go_through_what_is_linear() {
    for (nodes, moves) in [
        ("y = Add (p, q)", 1),
        ("y = Sub (p, q)", 1),
        ("y = Sum (p, r, q)", 1),
        ("a = Add (p, r)\n y = Add (a, q)", 1),
        ("a = Add (p, r)\n b = Add (q, r)\n y = Add (a, b)", 1),
        ("a = Sub (r, p)\n y = Add (a, q)", 1),
        ("a = Sub (p, r)\n y = Sub (q, a)", 1),
        ("a = Mul (p, r)\n b = Transpose (q)\n c = Neg (b)\n y = Add (a, c)", 1),
        ("e = Exp (r)\n a = Div (p, e)\n y = Add (a, q)", 1),
        ("y = Add (p, r)", 1),
        // Relu and casts are not linear, so the sum is reduced before it.
        ("a = Relu (p)\n y = Add (a, q)", 2),
        (
            "a = Cast <to = 10> (p)\n b = Cast <to = 10> (q)\n c = Add (a, b)\n y = Cast <to = 1> (c)",
            2,
        ),
        ("a = Div (r, p)\n y = Add (a, q)", 2),
        // Another node reads the sum.
        ("a = Add (p, q)\n b = Mul (p, r)\n y = Add (a, b)", 2),
    ] {
        let nodes = format!("h = Tanh (x)\n p = MatMul (h, v)\n q = MatMul (h, w)\n {nodes}");
        let inputs = "float[5, 8] x, float[8, 5] v, float[8, 5] w, float[5, 5] r";
        let model = annotate(inputs, "float[5, 5] y", &nodes, &[("x", 1)]);
        let inputs: [(&str, &[usize]); 4] =
            [("x", &[5, 8]), ("v", &[8, 5]), ("w", &[8, 5]), ("r", &[5, 5])];
        let plan = runs_the_same(&model, &inputs);
        assert_eq!(plan.facts().moves, moves, "{}", plan.text());
    }
}

/// Checks ArgMax, ArgMin and ReduceLogSumExp along a split axis: devices combine their results, and
/// the axis is not gathered (DIST-31).
#[test]
fn positions_and_exponentials_are_combined() {
    let positions = |op: &str, more: &str| format!("y = {op} <axis = 1{more}> (h)");
    let axes = "axes = Constant <value_ints = [1]> ()";
    for (first, nodes, output) in [
        ("Tanh", positions("ArgMax", ""), "int64[3, 1] y"),
        // Many elements are equal.
        ("Relu", positions("ArgMin", ", keepdims = 0"), "int64[3] y"),
        ("Relu", positions("ArgMin", ", keepdims = 0, select_last_index = 1"), "int64[3] y"),
        ("Sign", positions("ArgMax", ", select_last_index = 1"), "int64[3, 1] y"),
        // Many elements are NaN.
        ("Log", positions("ArgMax", ""), "int64[3, 1] y"),
        ("Log", positions("ArgMin", ", select_last_index = 1"), "int64[3, 1] y"),
        ("Tanh", format!("{axes}\n y = ReduceLogSumExp (h, axes)"), "float[3, 1] y"),
        ("Tanh", format!("{axes}\n y = ReduceLogSumExp <keepdims = 0> (h, axes)"), "float[3] y"),
        ("Tanh", "y = ReduceLogSumExp <keepdims = 0> (h)".into(), "float y"),
    ] {
        let nodes = format!("h = {first} (x)\n {nodes}");
        let model = annotate("float[3, 64] x", output, &nodes, &[("x", 1)]);
        let plan = runs_the_same(&model, &[("x", &[3, 64])]);
        assert!(
            plan.facts().partial > 0 && plan.bytes().size().is_some_and(|bytes| bytes < 100),
            "{nodes}\n{}",
            plan.text()
        );
    }
    // The shards are too small to be worth the messages.
    let nodes = "h = Tanh (x)\n y = ArgMax <axis = 1> (h)";
    let model = annotate("float[3, 4] x", "int64[3, 1] y", nodes, &[("x", 1)]);
    assert_eq!(runs_the_same(&model, &[("x", &[3, 4])]).facts().partial, 0);
}

/// Checks Gather along a split axis: each device gathers its own rows and zeros for the others,
/// which are then summed (DIST-31).
#[test]
fn rows_are_taken_where_they_are() {
    for (dims, axis, indices, output) in [
        (&[7, 3][..], 0, "int64[4] {6, 0, -3, 3}", "float[4, 3] y"),
        (&[1, 3], 0, "int64[1] {0}", "float[1, 3] y"),
        (&[2, 5], 1, "int64[2, 2] {4, 0, -5, 2}", "float[2, 2, 2] y"),
        (&[7, 2, 2], 0, "int64 {5}", "float[2, 2] y"),
        (&[9], 0, "int32[2] {8, 1}", "float[2] y"),
    ] {
        let nodes = format!(
            "h = Tanh (x)\n i = Constant <value = {indices}> ()\n y = Gather <axis = {axis}> (h, i)"
        );
        let model = annotate(&format!("float{dims:?} x"), output, &nodes, &[("x", axis)]);
        let plan = runs_the_same(&model, &[("x", dims)]);
        assert_eq!(plan.facts().partial, 1, "{}", plan.text());
    }
    // An index that is outside of all shards is an error.
    let nodes = "h = Tanh (x)\n y = Gather (h, i)";
    let model = annotate("float[7, 3] x, int64[1] i", "float[1, 3] y", nodes, &[("x", 0)]);
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    for wrong in [7i64, -8] {
        let i = Tensor::from_vec([1], vec![wrong]).unwrap();
        let x = Tensor::from_vec([7, 3], numbers(&[7, 3], 31)).unwrap();
        let error = session.run([("x", x), ("i", i)], &Default::default()).unwrap_err().to_string();
        assert!(error.contains(&wrong.to_string()), "{error}");
    }
}
