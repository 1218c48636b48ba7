//! What the standard says of device configurations, rule by rule, by plans and by runs: each model
//! runs with and without devices, and gives the same bits.

use sardonyx::device::DeviceOptions;
use sardonyx::tool::shard::Plan;
use sardonyx::{ErrorKind, Model, Session, Tensor};
use sardonyx_passes::Step;

/// A model of opset 21 with one configuration `c`.
fn model(devices: usize, signature: &str, nodes: &str) -> Model {
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21]> g {signature} {{ {nodes} }}
         @<configuration: [{{name: \"c\", num_devices: {devices}}}]>"
    );
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What a node says: specifications, and more fields.
fn says(specs: &[String], more: &str) -> String {
    let specs = specs.join(", ");
    format!(
        "@<device_configurations: [{{configuration_id: \"c\"{more}, sharding_spec: [{specs}]}}]>"
    )
}

/// A specification of a tensor: devices, and by split axis the number of parts.
fn spec(tensor: &str, devices: &[i64], axes: &[(i64, i64)]) -> String {
    let axes = axes.iter().map(|(axis, parts)| {
        format!("{{axis: {axis}, simple_sharding: [{{num_shards: {parts}}}]}}")
    });
    let axes = axes.collect::<Vec<_>>().join(", ");
    format!("{{tensor_name: \"{tensor}\", device: {devices:?}, sharded_dim: [{axes}]}}")
}

/// The same with groups of devices.
fn grouped(tensor: &str, groups: &[(i64, &[i64])], axes: &[(i64, i64)]) -> String {
    let keys: Vec<i64> = groups.iter().map(|(key, _)| *key).collect();
    let map = groups.iter().map(|(key, devices)| format!("{{key: {key}, value: {devices:?}}}"));
    let map = map.collect::<Vec<_>>().join(", ");
    let spec = spec(tensor, &keys, axes);
    spec.replacen(", sharded_dim", &format!(", index_to_device_group_map: [{map}], sharded_dim"), 1)
}

/// A tensor of floats from 0 on.
fn numbers(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::from_vec(dims, (0..count).map(|n| n as f32).collect()).unwrap()
}

/// Runs a model with and without devices; the outputs must have the same bits.
fn plan_of(model: &Model, inputs: &[(&str, Tensor)]) -> Plan {
    let whole = Session::new(model).unwrap().run(inputs.to_vec(), &Default::default()).unwrap();
    let session = Session::builder(model).devices(DeviceOptions::new()).unwrap();
    let found = session.run(inputs.to_vec(), &Default::default()).unwrap();
    assert_eq!(whole, found);
    Plan::clone(&session.last_plan().unwrap())
}

/// What is not honored: the tensor, if it is about one, and why.
fn not_honored(plan: &Plan) -> Vec<(String, String)> {
    let all = plan.not_honored.iter();
    all.map(|one| (one.tensor.clone().unwrap_or_default(), one.why.clone())).collect()
}

/// The indices that a device holds of the output of a node, axis by axis.
fn held(plan: &Plan, output: &str, device: u32) -> Option<Vec<Vec<usize>>> {
    let model = plan.model();
    let (value, form) = plan.steps.iter().find_map(|step| {
        let Step::Node(computed) = step else { return None };
        let outputs = model.outputs(computed.node).iter().zip(&computed.outputs);
        let found = outputs.filter_map(|(value, form)| Some(((*value)?, (*form)?)));
        let mut found =
            found.filter(|(value, _)| model.text(model.value(*value).name) == output.as_bytes());
        found.next()
    })?;
    let (_, dims) = plan.tensor(value)?;
    let dims: Option<Vec<usize>> = dims?.iter().map(sardonyx::Dim::size).collect();
    let ranges = plan.form(form).ranges(device, &dims?)?;
    Some(ranges.iter().map(|axis| axis.iter().flat_map(Clone::clone).collect()).collect())
}

/// The steps of a plan that send something.
fn moves(plan: &Plan) -> usize {
    plan.facts().moves
}

/// DIST-02-, DIST-03+-: a configuration without a name, or without devices, cannot be chosen.
#[test]
fn configurations_have_names_and_devices() {
    let run = |configuration: &str| {
        let text = format!(
            "<ir_version: 11, opset_import: [\"\": 21]>
             g (float[4] x) => (float[4] y) {{ y = Neg (x) }}
             @<configuration: [{{{configuration}}}]>"
        );
        let model = Model::from_text(&text).unwrap();
        let made = Session::builder(&model).devices(DeviceOptions::new());
        made.map(|session| session.device_count())
    };
    assert_eq!(run("name: \"c\", num_devices: 4").unwrap(), 4);
    for wrong in ["num_devices: 4", "name: \"c\"", "name: \"c\", num_devices: 0"] {
        let error = run(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{wrong}: {error}");
    }
}

/// DIST-05-: what a node says of a configuration that the model does not have is reported.
#[test]
fn annotations_of_unknown_configurations_are_reported() {
    let says = says(&[spec("x", &[0, 1], &[(0, 2)])], "").replace("\"c\"", "\"d\"");
    let model = model(2, "(float[4] x) => (float[4] y)", &format!("y = Neg (x) {says}"));
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    let why = "refers to the configuration 'd', which the model does not have";
    assert_eq!(not_honored(&plan), [(String::new(), why.to_string())]);
}

/// DIST-06+: specifications of an input and of an output of one node.
#[test]
fn a_node_has_specs_of_inputs_and_outputs() {
    let says = says(&[spec("x", &[0, 1], &[(0, 2)]), spec("a", &[1, 0], &[(0, 2)])], "");
    let nodes = format!("a = Neg (x) {says} y = Abs (a)");
    let plan = plan_of(&model(2, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    assert_eq!(not_honored(&plan), []);
    // Devices exchange their halves, and compute the absolute values where they are.
    assert_eq!(held(&plan, "a", 0), Some(vec![vec![0, 1]]));
    assert_eq!(held(&plan, "y", 0), Some(vec![vec![2, 3]]));
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![0, 1]]));
}

/// DIST-07+: stage 0 is a stage; a node that names none is where its input is.
#[test]
fn stage_0_is_not_absent() {
    let stage = |stage: i64| says(&[], &format!(", pipeline_stage: {stage}"));
    let nodes = format!("a = Neg (x) {} b = Abs (a) {} y = Neg (b)", stage(1), stage(0));
    let plan = plan_of(&model(2, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    let places = |output| [held(&plan, output, 0).is_some(), held(&plan, output, 1).is_some()];
    assert_eq!(places("a"), [false, true]);
    assert_eq!(places("b"), [true, false]);
    assert_eq!(places("y"), [true, false]);
}

/// DIST-09+-, DIST-10+-: devices and keys of groups.
#[test]
fn entries_are_devices_or_groups() {
    let signature = "(float[4] x) => (float[4] y)";
    let run = |spec: String| {
        let nodes = format!("y = Neg (x) {}", says(&[spec], ""));
        plan_of(&model(4, signature, &nodes), &[("x", numbers(&[4]))])
    };
    let plan = run(spec("x", &[0, 1], &[(0, 2)]));
    assert_eq!(not_honored(&plan), []);
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![2, 3]]));
    let plan = run(grouped("x", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]));
    assert_eq!(not_honored(&plan), []);
    assert_eq!(held(&plan, "y", 2), Some(vec![vec![2, 3]]));
    for (entry, why) in [
        (4, "names device 4; the configuration has 4"),
        (-1, "names device -1; the configuration has 4"),
    ] {
        let plan = run(spec("x", &[0, entry], &[(0, 2)]));
        assert_eq!(not_honored(&plan), [("x".to_string(), why.to_string())]);
    }
}

/// DIST-11-, DIST-12+-: axes, from both ends; each once.
#[test]
fn axes_count_from_both_ends() {
    let run = |axes: &[(i64, i64)], devices: &[i64]| {
        let nodes = format!("y = Neg (x) {}", says(&[spec("x", devices, axes)], ""));
        plan_of(&model(4, "(float[2, 4] x) => (float[2, 4] y)", &nodes), &[("x", numbers(&[2, 4]))])
    };
    let plan = run(&[(-1, 2)], &[0, 1]);
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![0, 1], vec![2, 3]]));
    let why = |plan: &Plan| not_honored(plan)[0].1.clone();
    assert_eq!(why(&run(&[(2, 2)], &[0, 1])), "splits axis 2 of a tensor with 2 dimensions");
    assert_eq!(why(&run(&[(1, 2), (-1, 2)], &[0, 1, 2, 3])), "splits axis 1 twice");
}

/// DIST-13+: an axis that is the product of several, each split by itself; the sizes of factors are
/// numbers or symbols, which have the value that they have in the run.
#[test]
fn factors_of_an_axis_are_split() {
    let factors = "[{dim_param: \"H\", num_shards: 1}, {dim_value: 4, num_shards: 2}]";
    let spec = spec("x", &[0, 1], &[(1, 2)]).replace("[{num_shards: 2}]", factors);
    let nodes = format!("a = Neg (x) {} y = Neg (h)", says(&[spec], ""));
    let model = model(2, "(float[2, 12] x, float[H] h) => (float[2, 12] a, float[H] y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[2, 12])), ("h", numbers(&[3]))]);
    assert_eq!(not_honored(&plan), []);
    let second = vec![2, 3, 6, 7, 10, 11];
    assert_eq!(held(&plan, "a", 1), Some(vec![vec![0, 1], second]));
}

/// DIST-16+, DIST-17+-: the model runs without devices, and with devices on what cannot be
/// honored, which is reported; results are the same.
#[test]
fn hints_do_not_change_results() {
    let wrong = says(&[spec("x", &[0, 1, 1], &[(0, 3)]), spec("y", &[7], &[])], "");
    let model = model(2, "(float[4] x) => (float[4] y)", &format!("y = Neg (x) {wrong}"));
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    let tensors: Vec<String> = not_honored(&plan).into_iter().map(|(tensor, _)| tensor).collect();
    assert_eq!(tensors, ["x", "y"]);
}

/// DIST-18+-, DIST-33+: the producer leaves rows, the consumer wants columns: what lies between is
/// no node of the model.
#[test]
fn forms_that_differ_are_moved() {
    let rows = says(&[spec("x", &[0, 1], &[(0, 2)]), spec("a", &[0, 1], &[(0, 2)])], "");
    let columns = says(&[spec("a", &[0, 1], &[(1, 2)])], "");
    let nodes = format!("a = Neg (x) {rows} y = Abs (a) {columns}");
    let model = model(2, "(float[4, 4] x) => (float[4, 4] y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4, 4]))]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(held(&plan, "a", 1), Some(vec![vec![2, 3], vec![0, 1, 2, 3]]));
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![0, 1, 2, 3], vec![2, 3]]));
    // One between the nodes, one for the caller.
    assert_eq!(moves(&plan), 2);
    let main = plan.model().main_graph().unwrap();
    assert_eq!(main.nodes.len(), 2);
    // An output that is asked for by columns where the input comes by rows.
    let both = says(&[spec("x", &[0, 1], &[(0, 2)]), spec("y", &[0, 1], &[(1, 2)])], "");
    let nodes = format!("y = Neg (x) {both} z = Abs (y)");
    let model = self::model(2, "(float[4, 4] x) => (float[4, 4] z)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4, 4]))]);
    assert_eq!((not_honored(&plan).len(), moves(&plan)), (0, 2));
    assert_eq!(held(&plan, "z", 1), Some(vec![vec![0, 1, 2, 3], vec![2, 3]]));
}

/// DIST-19+, DIST-24+: a whole tensor on several devices, listed or as a group; and a split one.
#[test]
fn tensors_are_split_or_replicated() {
    for (spec, wanted) in [
        (spec("x", &[0, 2], &[]), [true, false, true]),
        (grouped("x", &[(-1, &[0, 1])], &[]), [true, true, false]),
    ] {
        // Both outputs are needed by another device, so that all copies are.
        let whole = says(&[spec], "");
        let nodes = format!("a = Neg (x) {whole} y = Abs (a)");
        let model = model(3, "(float[2] x) => (float[2] y)", &nodes);
        let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
        let plan = session.plan(&[]).unwrap();
        assert_eq!(not_honored(&plan), []);
        // All copies are the same value, of which the caller gets one.
        let has = [0, 1, 2].map(|device| held(&plan, "a", device).is_some());
        assert_eq!(has, wanted);
        assert_eq!(plan_of(&model, &[("x", numbers(&[2]))]).facts().moves, 0);
    }
}

/// DIST-20+: two stages, each of two devices with a part of its own.
#[test]
fn stages_have_shards() {
    let first = says(&[spec("x", &[0, 1], &[(0, 2)])], ", pipeline_stage: 0");
    let second = says(&[spec("a", &[2, 3], &[(0, 2)])], ", pipeline_stage: 1");
    let nodes = format!("a = Neg (x) {first} y = Abs (a) {second}");
    let plan = plan_of(&model(4, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    assert_eq!(not_honored(&plan), []);
    let all = |output| [0, 1, 2, 3].map(|device| held(&plan, output, device));
    let (low, high) = (Some(vec![vec![0, 1]]), Some(vec![vec![2, 3]]));
    assert_eq!(all("a"), [low.clone(), high.clone(), None, None]);
    assert_eq!(all("y"), [None, None, low, high]);
}

/// DIST-21+-, DIST-22+, DIST-25+: the tables of proposal 0006, with x = [[1, 2], [3, 4]].
#[test]
fn shards_are_numbered_and_handed_out_in_order() {
    let run = |spec: String| {
        let nodes = format!("y = Neg (x) {}", says(&[spec], ""));
        let model = model(4, "(float[2, 2] x) => (float[2, 2] y)", &nodes);
        let plan = plan_of(&model, &[("x", numbers(&[2, 2]))]);
        assert_eq!(not_honored(&plan), []);
        // The elements that each device has.
        [0, 1, 2, 3].map(|device| {
            let held = held(&plan, "y", device).unwrap_or_default();
            let [rows, columns] = &held[..] else { return Vec::new() };
            let elements =
                |row: &usize| columns.iter().map(|column| row * 2 + column + 1).collect();
            rows.iter().flat_map(|row| -> Vec<usize> { elements(row) }).collect()
        })
    };
    assert_eq!(run(spec("x", &[0, 1], &[(0, 2)])), [vec![1, 2], vec![3, 4], vec![], vec![]]);
    assert_eq!(run(spec("x", &[0, 1], &[(1, 2)])), [vec![1, 3], vec![2, 4], vec![], vec![]]);
    let both = run(spec("x", &[0, 1, 2, 3], &[(0, 2), (1, 2)]));
    assert_eq!(both, [vec![1], vec![2], vec![3], vec![4]]);
    let columns_first = run(spec("x", &[0, 1, 2, 3], &[(1, 2), (0, 2)]));
    assert_eq!(columns_first, [vec![1], vec![3], vec![2], vec![4]]);
    let groups = run(grouped("x", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]));
    assert_eq!(groups, [vec![1, 2], vec![1, 2], vec![3, 4], vec![3, 4]]);
}

/// DIST-23+-: the first parts have one element more; parts may be empty; nothing is lost.
#[test]
fn uneven_parts_hold_everything() {
    for size in 0..9usize {
        let nodes = format!("y = Neg (x) {}", says(&[spec("x", &[0, 1, 2, 3], &[(0, 4)])], ""));
        let signature = format!("(float[{size}] x) => (float[{size}] y)");
        let plan = plan_of(&model(4, &signature, &nodes), &[("x", numbers(&[size]))]);
        assert_eq!(not_honored(&plan), []);
        let parts =
            (0..4).map(|device| held(&plan, "y", device).map_or(vec![], |held| held[0].clone()));
        let parts: Vec<Vec<usize>> = parts.collect();
        assert_eq!(parts.concat(), (0..size).collect::<Vec<_>>());
        let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert!(
            lens.windows(2).all(|pair| pair[0] == pair[1] || pair[0] == pair[1] + 1),
            "{lens:?}"
        );
        assert!(lens[0] - lens[3] <= 1, "{lens:?}");
    }
}

/// DIST-26+, DIST-27+: without specifications, a node takes what its producer left, and leaves what
/// it took; an input of the model is whole.
#[test]
fn what_is_not_said_is_inferred() {
    let nodes = format!(
        "a = Neg (x) {} b = Relu (a) y = Relu (b) z = Relu (x)",
        says(&[spec("x", &[0, 1], &[(0, 2)])], "")
    );
    let model = model(2, "(float[4] x) => (float[4] y, float[4] z)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    assert_eq!(held(&plan, "b", 1), Some(vec![vec![2, 3]]));
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![2, 3]]));
    assert_eq!(held(&plan, "z", 0), Some(vec![vec![0, 1, 2, 3]]));
}

/// DIST-28+-: inputs of an element-wise node are split alike; where they are not, it is reported.
#[test]
fn element_wise_inputs_are_split_alike() {
    let run = |of_b: &[(i64, i64)]| {
        let specs = [spec("a", &[0, 1], &[(0, 2)]), spec("b", &[0, 1], of_b)];
        let nodes = format!("y = Add (a, b) {}", says(&specs, ""));
        let model = model(2, "(float[2, 2] a, float[2, 2] b) => (float[2, 2] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[2, 2])), ("b", numbers(&[2, 2]))])
    };
    let plan = run(&[(0, 2)]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![1], vec![0, 1]]));
    let reported = not_honored(&run(&[(1, 2)]));
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].0, "b");
}

/// DIST-29+-: part [i, j] is made where part i of one and part j of the other are.
#[test]
fn two_axes_that_stretch() {
    let run = |groups_of_b: &[(i64, &[i64])]| {
        let specs = [
            grouped("a", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]),
            grouped("b", groups_of_b, &[(1, 2)]),
        ];
        let nodes = format!("y = Add (a, b) {}", says(&specs, ""));
        let model = model(4, "(float[4, 1] a, float[1, 6] b) => (float[4, 6] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[4, 1])), ("b", numbers(&[1, 6]))])
    };
    let plan = run(&[(-3, &[0, 2]), (-4, &[1, 3])]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(held(&plan, "y", 1), Some(vec![vec![0, 1], vec![3, 4, 5]]));
    assert_eq!(held(&plan, "y", 2), Some(vec![vec![2, 3], vec![0, 1, 2]]));
    // No device has part 0 of a and part 1 of b.
    assert_eq!(not_honored(&run(&[(-3, &[0, 1]), (-4, &[2, 3])])).len(), 1);
}

/// DIST-30+, DIST-31+-: what a split axis is reduced over is combined; the other axes stay.
#[test]
fn split_axes_are_reduced_over_devices() {
    let nodes = format!(
        "a = Neg (x) {} axes = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (a, axes)",
        says(&[spec("x", &[0, 1, 2, 3], &[(0, 2), (1, 2)])], "")
    );
    let signature = "(float[2, 4] x) => (float[2] y)";
    let plan = plan_of(&model(4, signature, &nodes), &[("x", numbers(&[2, 4]))]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(plan.facts().partial, 1);
    assert_eq!(held(&plan, "y", 3), Some(vec![vec![1]]));

    let product = |of_b: (i64, i64)| {
        let specs = [spec("a", &[0, 1], &[(1, 2)]), spec("b", &[0, 1], &[of_b])];
        let nodes = format!("y = MatMul (a, b) {}", says(&specs, ""));
        let model = model(2, "(float[2, 4] a, float[4, 4] b) => (float[2, 4] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[2, 4])), ("b", numbers(&[4, 4]))])
    };
    let plan = product((0, 2));
    assert_eq!((not_honored(&plan).len(), plan.facts().partial), (0, 1));
    // a by the axis that is summed over, b by columns.
    let reported = not_honored(&product((1, 2)));
    assert_eq!(reported.len(), 1, "{reported:?}");
}

/// DIST-32+, DIST-34+: an operator whose parts nobody can compute runs whole, and the report names
/// the node and the tensor.
#[test]
fn what_has_no_rule_runs_whole() {
    let nodes = format!("y = Det (x) {}", says(&[spec("x", &[0, 1], &[(0, 2)])], ""));
    let model = model(2, "(float[2, 2] x) => (float y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[2, 2]))]);
    let [reported] = &plan.not_honored[..] else { panic!("{:?}", plan.not_honored) };
    assert_eq!(reported.tensor.as_deref(), Some("x"));
    let model = plan.model();
    assert_eq!(model.display(model.node(reported.node).op_type), "Det");
}
