//! Rules of the standard for device configurations, checked by plans and by runs: each model gives
//! equal bits with and without devices.

use sardonyx::device::DeviceOptions;
use sardonyx::tool::shard::Plan;
use sardonyx::{ErrorKind, Model, Session, Tensor};
use sardonyx_shard::Step;

/// Makes a model of opset 21 with one configuration `c`.
fn model(devices: usize, signature: &str, nodes: &str) -> Model {
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21]> g {signature} {{ {nodes} }}
         @<configuration: [{{name: \"c\", num_devices: {devices}}}]>"
    );
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Makes the annotation of a node from sharding specifications and more fields.
fn annotate(specs: &[String], more: &str) -> String {
    let specs = specs.join(", ");
    format!(
        "@<device_configurations: [{{configuration_id: \"c\"{more}, sharding_spec: [{specs}]}}]>"
    )
}

/// Makes the sharding specification of a tensor: devices, and split axes with their numbers of
/// shards.
fn spec(tensor: &str, devices: &[i64], axes: &[(i64, i64)]) -> String {
    let axes = axes.iter().map(|(axis, parts)| {
        format!("{{axis: {axis}, simple_sharding: [{{num_shards: {parts}}}]}}")
    });
    let axes = axes.collect::<Vec<_>>().join(", ");
    format!("{{tensor_name: \"{tensor}\", device: {devices:?}, sharded_dim: [{axes}]}}")
}

/// Makes the sharding specification of a tensor for groups of devices.
fn group_spec(tensor: &str, groups: &[(i64, &[i64])], axes: &[(i64, i64)]) -> String {
    let keys: Vec<i64> = groups.iter().map(|(key, _)| *key).collect();
    let map = groups.iter().map(|(key, devices)| format!("{{key: {key}, value: {devices:?}}}"));
    let map = map.collect::<Vec<_>>().join(", ");
    let spec = spec(tensor, &keys, axes);
    spec.replacen(", sharded_dim", &format!(", index_to_device_group_map: [{map}], sharded_dim"), 1)
}

/// Makes a tensor of the floats 0, 1, 2 and so on.
fn numbers(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::from_vec(dims, (0..count).map(|n| n as f32).collect()).unwrap()
}

/// Runs a model with and without devices, compares the bits of the outputs, and returns the plan.
fn plan_of(model: &Model, inputs: &[(&str, Tensor)]) -> Plan {
    let whole = Session::new(model).unwrap().run(inputs.to_vec(), &Default::default()).unwrap();
    let session = Session::builder(model).devices(DeviceOptions::new()).unwrap();
    let found = session.run(inputs.to_vec(), &Default::default()).unwrap();
    assert_eq!(whole, found);
    Plan::clone(&session.last_plan().unwrap())
}

/// Returns the annotations that a plan does not honor: the tensor, if any, and the reason.
fn not_honored(plan: &Plan) -> Vec<(String, String)> {
    let all = plan.not_honored().iter();
    all.map(|one| (one.tensor.clone().unwrap_or_default(), one.why.clone())).collect()
}

/// Returns the indices of a node's output that a device holds, for each axis; `None` if it holds
/// none.
fn shard_indices(plan: &Plan, output: &str, device: u32) -> Option<Vec<Vec<usize>>> {
    let model = plan.model();
    let (value, form) = plan.steps().iter().find_map(|step| {
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

/// Counts the steps of a plan that send messages.
fn moves(plan: &Plan) -> usize {
    plan.facts().moves
}

/// Rejects configurations without a name or without devices (DIST-02-, DIST-03+-).
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

/// Reports annotations for a configuration that the model does not have (DIST-05-).
#[test]
fn annotations_of_unknown_configurations_are_reported() {
    let says = annotate(&[spec("x", &[0, 1], &[(0, 2)])], "").replace("\"c\"", "\"d\"");
    let model = model(2, "(float[4] x) => (float[4] y)", &format!("y = Neg (x) {says}"));
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    let why = "refers to the configuration 'd', which the model does not have";
    assert_eq!(not_honored(&plan), [(String::new(), why.to_string())]);
}

/// Checks that a node may have specifications of an input and of an output (DIST-06+).
#[test]
fn a_node_has_specs_of_inputs_and_outputs() {
    let says = annotate(&[spec("x", &[0, 1], &[(0, 2)]), spec("a", &[1, 0], &[(0, 2)])], "");
    let nodes = format!("a = Neg (x) {says} y = Abs (a)");
    let plan = plan_of(&model(2, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    assert_eq!(not_honored(&plan), []);
    // Devices exchange their halves, then compute absolute values of the halves that they hold.
    assert_eq!(shard_indices(&plan, "a", 0), Some(vec![vec![0, 1]]));
    assert_eq!(shard_indices(&plan, "y", 0), Some(vec![vec![2, 3]]));
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![0, 1]]));
}

/// Checks that stage 0 differs from no stage: a node without a stage runs on the device of its
/// input (DIST-07+).
#[test]
fn stage_0_is_not_absent() {
    let stage = |stage: i64| annotate(&[], &format!(", pipeline_stage: {stage}"));
    let nodes = format!("a = Neg (x) {} b = Abs (a) {} y = Neg (b)", stage(1), stage(0));
    let plan = plan_of(&model(2, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    let places = |output| {
        [shard_indices(&plan, output, 0).is_some(), shard_indices(&plan, output, 1).is_some()]
    };
    assert_eq!(places("a"), [false, true]);
    assert_eq!(places("b"), [true, false]);
    assert_eq!(places("y"), [true, false]);
}

/// Checks that the entries of a device list are devices or keys of groups (DIST-09+-, DIST-10+-).
#[test]
fn entries_are_devices_or_groups() {
    let signature = "(float[4] x) => (float[4] y)";
    let run = |spec: String| {
        let nodes = format!("y = Neg (x) {}", annotate(&[spec], ""));
        plan_of(&model(4, signature, &nodes), &[("x", numbers(&[4]))])
    };
    let plan = run(spec("x", &[0, 1], &[(0, 2)]));
    assert_eq!(not_honored(&plan), []);
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![2, 3]]));
    let plan = run(group_spec("x", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]));
    assert_eq!(not_honored(&plan), []);
    assert_eq!(shard_indices(&plan, "y", 2), Some(vec![vec![2, 3]]));
    for (entry, why) in [
        (4, "names device 4; the configuration has 4"),
        (-1, "names device -1; the configuration has 4"),
    ] {
        let plan = run(spec("x", &[0, entry], &[(0, 2)]));
        assert_eq!(not_honored(&plan), [("x".to_string(), why.to_string())]);
    }
}

/// Checks that axes count from both ends, and that no axis is split twice (DIST-11-, DIST-12+-).
#[test]
fn axes_count_from_both_ends() {
    let run = |axes: &[(i64, i64)], devices: &[i64]| {
        let nodes = format!("y = Neg (x) {}", annotate(&[spec("x", devices, axes)], ""));
        plan_of(&model(4, "(float[2, 4] x) => (float[2, 4] y)", &nodes), &[("x", numbers(&[2, 4]))])
    };
    let plan = run(&[(-1, 2)], &[0, 1]);
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![0, 1], vec![2, 3]]));
    let why = |plan: &Plan| not_honored(plan)[0].1.clone();
    assert_eq!(why(&run(&[(2, 2)], &[0, 1])), "splits axis 2 of a tensor with 2 dimensions");
    assert_eq!(why(&run(&[(1, 2), (-1, 2)], &[0, 1, 2, 3])), "splits axis 1 twice");
}

/// Checks that an axis that is a product of factors can be split along each factor, whose sizes are
/// numbers or symbols (DIST-13+).
#[test]
fn factors_of_an_axis_are_split() {
    let factors = "[{dim_param: \"H\", num_shards: 1}, {dim_value: 4, num_shards: 2}]";
    let spec = spec("x", &[0, 1], &[(1, 2)]).replace("[{num_shards: 2}]", factors);
    let nodes = format!("a = Neg (x) {} y = Neg (h)", annotate(&[spec], ""));
    let model = model(2, "(float[2, 12] x, float[H] h) => (float[2, 12] a, float[H] y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[2, 12])), ("h", numbers(&[3]))]);
    assert_eq!(not_honored(&plan), []);
    let second = vec![2, 3, 6, 7, 10, 11];
    assert_eq!(shard_indices(&plan, "a", 1), Some(vec![vec![0, 1], second]));
}

/// Checks that annotations never change results: a model runs without devices, and annotations that
/// cannot be honored are reported (DIST-16+, DIST-17+-).
#[test]
fn hints_do_not_change_results() {
    let wrong = annotate(&[spec("x", &[0, 1, 1], &[(0, 3)]), spec("y", &[7], &[])], "");
    let model = model(2, "(float[4] x) => (float[4] y)", &format!("y = Neg (x) {wrong}"));
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    let tensors: Vec<String> = not_honored(&plan).into_iter().map(|(tensor, _)| tensor).collect();
    assert_eq!(tensors, ["x", "y"]);
}

/// Checks that a tensor is resharded between a producer that splits rows and a consumer that splits
/// columns, without a node of the model (DIST-18+-, DIST-33+).
#[test]
fn forms_that_differ_are_moved() {
    let rows = annotate(&[spec("x", &[0, 1], &[(0, 2)]), spec("a", &[0, 1], &[(0, 2)])], "");
    let columns = annotate(&[spec("a", &[0, 1], &[(1, 2)])], "");
    let nodes = format!("a = Neg (x) {rows} y = Abs (a) {columns}");
    let model = model(2, "(float[4, 4] x) => (float[4, 4] y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4, 4]))]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(shard_indices(&plan, "a", 1), Some(vec![vec![2, 3], vec![0, 1, 2, 3]]));
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![0, 1, 2, 3], vec![2, 3]]));
    // One move between the nodes, one for the caller.
    assert_eq!(moves(&plan), 2);
    let main = plan.model().main_graph().unwrap();
    assert_eq!(main.nodes.len(), 2);
    // The output is annotated by columns, the input by rows.
    let both = annotate(&[spec("x", &[0, 1], &[(0, 2)]), spec("y", &[0, 1], &[(1, 2)])], "");
    let nodes = format!("y = Neg (x) {both} z = Abs (y)");
    let model = self::model(2, "(float[4, 4] x) => (float[4, 4] z)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4, 4]))]);
    assert_eq!((not_honored(&plan).len(), moves(&plan)), (0, 2));
    assert_eq!(shard_indices(&plan, "z", 1), Some(vec![vec![0, 1, 2, 3], vec![2, 3]]));
}

/// Checks tensors that are replicated on several devices, which are listed or a group, and tensors
/// that are split (DIST-19+, DIST-24+).
#[test]
fn tensors_are_split_or_replicated() {
    for (spec, wanted) in [
        (spec("x", &[0, 2], &[]), [true, false, true]),
        (group_spec("x", &[(-1, &[0, 1])], &[]), [true, true, false]),
    ] {
        // A node on another device reads both outputs, so that all copies exist.
        let whole = annotate(&[spec], "");
        let nodes = format!("a = Neg (x) {whole} y = Abs (a)");
        let model = model(3, "(float[2] x) => (float[2] y)", &nodes);
        let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
        let plan = session.plan(&[]).unwrap();
        assert_eq!(not_honored(&plan), []);
        // All copies are one value, and the caller receives one of them.
        let has = [0, 1, 2].map(|device| shard_indices(&plan, "a", device).is_some());
        assert_eq!(has, wanted);
        assert_eq!(plan_of(&model, &[("x", numbers(&[2]))]).facts().moves, 0);
    }
}

/// Checks a pipeline of two stages with two devices each, which shard the tensors (DIST-20+).
#[test]
fn stages_have_shards() {
    let first = annotate(&[spec("x", &[0, 1], &[(0, 2)])], ", pipeline_stage: 0");
    let second = annotate(&[spec("a", &[2, 3], &[(0, 2)])], ", pipeline_stage: 1");
    let nodes = format!("a = Neg (x) {first} y = Abs (a) {second}");
    let plan = plan_of(&model(4, "(float[4] x) => (float[4] y)", &nodes), &[("x", numbers(&[4]))]);
    assert_eq!(not_honored(&plan), []);
    let all = |output| [0, 1, 2, 3].map(|device| shard_indices(&plan, output, device));
    let (low, high) = (Some(vec![vec![0, 1]]), Some(vec![vec![2, 3]]));
    assert_eq!(all("a"), [low.clone(), high.clone(), None, None]);
    assert_eq!(all("y"), [None, None, low, high]);
}

/// Checks the assignment of shards to devices against the tables of proposal 0006, with
/// x = [[1, 2], [3, 4]] (DIST-21+-, DIST-22+, DIST-25+).
#[test]
fn shards_are_numbered_and_handed_out_in_order() {
    let run = |spec: String| {
        let nodes = format!("y = Neg (x) {}", annotate(&[spec], ""));
        let model = model(4, "(float[2, 2] x) => (float[2, 2] y)", &nodes);
        let plan = plan_of(&model, &[("x", numbers(&[2, 2]))]);
        assert_eq!(not_honored(&plan), []);
        // Elements on each device.
        [0, 1, 2, 3].map(|device| {
            let held = shard_indices(&plan, "y", device).unwrap_or_default();
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
    let groups = run(group_spec("x", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]));
    assert_eq!(groups, [vec![1, 2], vec![1, 2], vec![3, 4], vec![3, 4]]);
}

/// Checks uneven shards: the first ones have one element more, some may be empty, and together they
/// hold all elements (DIST-23+-).
#[test]
fn uneven_parts_hold_everything() {
    for size in 0..9usize {
        let nodes = format!("y = Neg (x) {}", annotate(&[spec("x", &[0, 1, 2, 3], &[(0, 4)])], ""));
        let signature = format!("(float[{size}] x) => (float[{size}] y)");
        let plan = plan_of(&model(4, &signature, &nodes), &[("x", numbers(&[size]))]);
        assert_eq!(not_honored(&plan), []);
        let parts = (0..4)
            .map(|device| shard_indices(&plan, "y", device).map_or(vec![], |held| held[0].clone()));
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

/// Checks nodes without specifications: they take their inputs as the producers leave them and
/// split their outputs alike, and inputs of the model are whole (DIST-26+, DIST-27+).
#[test]
fn what_is_not_said_is_inferred() {
    let nodes = format!(
        "a = Neg (x) {} b = Relu (a) y = Relu (b) z = Relu (x)",
        annotate(&[spec("x", &[0, 1], &[(0, 2)])], "")
    );
    let model = model(2, "(float[4] x) => (float[4] y, float[4] z)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[4]))]);
    assert_eq!(shard_indices(&plan, "b", 1), Some(vec![vec![2, 3]]));
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![2, 3]]));
    assert_eq!(shard_indices(&plan, "z", 0), Some(vec![vec![0, 1, 2, 3]]));
}

/// Checks that the inputs of an element-wise node must be split alike, and reports others
/// (DIST-28+-).
#[test]
fn element_wise_inputs_are_split_alike() {
    let run = |of_b: &[(i64, i64)]| {
        let specs = [spec("a", &[0, 1], &[(0, 2)]), spec("b", &[0, 1], of_b)];
        let nodes = format!("y = Add (a, b) {}", annotate(&specs, ""));
        let model = model(2, "(float[2, 2] a, float[2, 2] b) => (float[2, 2] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[2, 2])), ("b", numbers(&[2, 2]))])
    };
    let plan = run(&[(0, 2)]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![1], vec![0, 1]]));
    let reported = not_honored(&run(&[(1, 2)]));
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].0, "b");
}

/// Checks broadcasting along two axes: shard [i, j] is computed where shard i of one input and
/// shard j of the other are (DIST-29+-).
#[test]
fn two_axes_that_stretch() {
    let run = |groups_of_b: &[(i64, &[i64])]| {
        let specs = [
            group_spec("a", &[(-1, &[0, 1]), (-2, &[2, 3])], &[(0, 2)]),
            group_spec("b", groups_of_b, &[(1, 2)]),
        ];
        let nodes = format!("y = Add (a, b) {}", annotate(&specs, ""));
        let model = model(4, "(float[4, 1] a, float[1, 6] b) => (float[4, 6] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[4, 1])), ("b", numbers(&[1, 6]))])
    };
    let plan = run(&[(-3, &[0, 2]), (-4, &[1, 3])]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(shard_indices(&plan, "y", 1), Some(vec![vec![0, 1], vec![3, 4, 5]]));
    assert_eq!(shard_indices(&plan, "y", 2), Some(vec![vec![2, 3], vec![0, 1, 2]]));
    // No device holds both shard 0 of a and shard 1 of b.
    assert_eq!(not_honored(&run(&[(-3, &[0, 1]), (-4, &[2, 3])])).len(), 1);
}

/// Checks reductions over a split axis, whose partial results are combined, and over other axes,
/// where the shards stay (DIST-30+, DIST-31+-).
#[test]
fn split_axes_are_reduced_over_devices() {
    let nodes = format!(
        "a = Neg (x) {} axes = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (a, axes)",
        annotate(&[spec("x", &[0, 1, 2, 3], &[(0, 2), (1, 2)])], "")
    );
    let signature = "(float[2, 4] x) => (float[2] y)";
    let plan = plan_of(&model(4, signature, &nodes), &[("x", numbers(&[2, 4]))]);
    assert_eq!(not_honored(&plan), []);
    assert_eq!(plan.facts().partial, 1);
    assert_eq!(shard_indices(&plan, "y", 3), Some(vec![vec![1]]));

    let product = |of_b: (i64, i64)| {
        let specs = [spec("a", &[0, 1], &[(1, 2)]), spec("b", &[0, 1], &[of_b])];
        let nodes = format!("y = MatMul (a, b) {}", annotate(&specs, ""));
        let model = model(2, "(float[2, 4] a, float[4, 4] b) => (float[2, 4] y)", &nodes);
        plan_of(&model, &[("a", numbers(&[2, 4])), ("b", numbers(&[4, 4]))])
    };
    let plan = product((0, 2));
    assert_eq!((not_honored(&plan).len(), plan.facts().partial), (0, 1));
    // `a` is split along the axis of the sum, `b` by columns.
    let reported = not_honored(&product((1, 2)));
    assert_eq!(reported.len(), 1, "{reported:?}");
}

/// Checks that an operator without a sharding rule runs whole, and that the report names the node
/// and the tensor (DIST-32+, DIST-34+).
#[test]
fn what_has_no_rule_runs_whole() {
    let nodes = format!("y = Det (x) {}", annotate(&[spec("x", &[0, 1], &[(0, 2)])], ""));
    let model = model(2, "(float[2, 2] x) => (float y)", &nodes);
    let plan = plan_of(&model, &[("x", numbers(&[2, 2]))]);
    let [reported] = plan.not_honored() else { panic!("{:?}", plan.not_honored()) };
    assert_eq!(reported.tensor.as_deref(), Some("x"));
    let model = plan.model();
    assert_eq!(model.display(model.node(reported.node).op_type), "Det");
}
