//! Sharding annotations on nodes in the graphs of `If`, `Loop` and `Scan`, and in functions.

use sardonyx::device::DeviceOptions;
use sardonyx::tool::shard::Plan;
use sardonyx::{Model, Session, Tensor};

/// Makes the annotation of a node: each tensor is split along an axis over devices 0 and 1.
fn split(specs: &[(&str, i64)]) -> String {
    let specs = specs.iter().map(|(tensor, axis)| {
        format!(
            "{{tensor_name: \"{tensor}\", device: [0, 1],
               sharded_dim: [{{axis: {axis}, simple_sharding: [{{num_shards: 2}}]}}]}}"
        )
    });
    let specs = specs.collect::<Vec<_>>().join(", ");
    format!("@<device_configurations: [{{configuration_id: \"c\", sharding_spec: [{specs}]}}]>")
}

fn model(graph: &str, functions: &str) -> Model {
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21, \"own\": 1]> {graph} {functions}
         @<configuration: [{{name: \"c\", num_devices: 2}}]>"
    );
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn floats(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    let numbers = (0..count).map(|n| ((n * 37 + 11) % 29) as f32 / 16.0 - 0.875);
    Tensor::from_vec(dims, numbers.collect()).unwrap()
}

/// Runs a model on devices and without them on several inputs, and compares the outputs up to the
/// rounding of sums. Returns the plan.
fn runs_alike(model: &Model, runs: &[Vec<(&str, Tensor)>]) -> Plan {
    let whole = Session::new(model).unwrap();
    let session = Session::builder(model).devices(DeviceOptions::new()).unwrap();
    for inputs in runs {
        let (wanted, found) = (
            whole.run(inputs.clone(), &Default::default()).unwrap(),
            session.run(inputs.clone(), &Default::default()),
        );
        let found = found.unwrap();
        for ((name, wanted), (_, found)) in wanted.iter().zip(found.iter()) {
            let same = found.compare(wanted, sardonyx::value::Tolerance { rtol: 1e-5, atol: 1e-6 });
            same.unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
    let plan = Plan::clone(&session.last_plan().unwrap());
    assert_eq!(plan.not_honored(), []);
    plan
}

/// Counts the steps of inner graphs that send messages, and the nodes that are computed in shards.
fn facts(plan: &Plan) -> (usize, usize) {
    (plan.facts().moves, plan.facts().in_parts)
}

/// Checks that annotations divide one branch, and that both branches give the plain results.
#[test]
fn branches_are_divided() {
    let relu = split(&[("x", 0), ("a", 0)]);
    let model = model(
        &format!(
            "g (float[4, 3] x, bool c) => (float[4, 3] y) {{
               y = If (c) <
                  then_branch = yes () => (float[4, 3] a) {{ a = Relu (x) {relu} }},
                  else_branch = no () => (float[4, 3] b) {{ b = Neg (x) }}
               >
             }}"
        ),
        "",
    );
    let runs = [true, false, true]
        .map(|c| vec![("x", floats(&[4, 3])), ("c", Tensor::from_bools([], &[c]).unwrap())]);
    assert_eq!(facts(&runs_alike(&model, &runs)), (1, 1));
}

/// Checks a product over a split axis in a loop, whose partial sums are reduced in each iteration.
#[test]
fn iterations_combine_partial_sums() {
    let product = split(&[("h", 1), ("w", 0)]);
    let model = model(
        &format!(
            "g (int64 n, float[2, 4] x) => (float[2, 4] y, float[k, 2, 4] all)
             <float[4, 4] w = {{0.5, -0.25, 0.125, 0.0, 0.25, 0.5, -0.5, 0.125,
                               0.0, 0.25, 0.5, 0.125, -0.125, 0.25, 0.0, 0.5}}> {{
               y, all = Loop (n, , x) <
                  body = step (int64 i, bool go, float[2, 4] h)
                     => (bool more, float[2, 4] next, float[2, 4] kept) {{
                     more = Identity (go)
                     next = MatMul (h, w) {product}
                     kept = Neg (next)
                  }}
               >
             }}"
        ),
        "",
    );
    let runs = [0i64, 1, 5].map(|n| vec![("n", Tensor::scalar(n)), ("x", floats(&[2, 4]))]);
    let plan = runs_alike(&model, &runs);
    assert_eq!(plan.facts().partial, 1);
    assert_eq!(plan.facts().moves, 1);
}

/// Checks a loop in a branch, whose condition depends on a split tensor and is gathered.
#[test]
fn conditions_are_whole() {
    let half = split(&[("h", 0), ("next", 0)]);
    let sum = split(&[("next", 0)]);
    let model = model(
        &format!(
            "g (float[6] x, bool c) => (float[6] y)
             <float two = {{2.0}}, float low = {{0.01}}, int64 most = {{50}}> {{
               y = If (c) <
                  then_branch = yes () => (float[6] a) {{
                     a = Loop (most, c, x) <
                        body = step (int64 i, bool go, float[6] h) => (bool more, float[6] next) {{
                           next = Div (h, two) {half}
                           squares = ReduceSumSquare <keepdims = 0> (next) {sum}
                           more = Greater (squares, low)
                        }}
                     >
                  }},
                  else_branch = no () => (float[6] b) {{ b = Neg (x) }}
               >
             }}"
        ),
        "",
    );
    let runs = [true, false]
        .map(|c| vec![("x", floats(&[6])), ("c", Tensor::from_bools([], &[c]).unwrap())]);
    assert!(facts(&runs_alike(&model, &runs)).0 > 0);
}

/// Checks a Scan with annotated outputs, whose body reads an outer value in shards.
#[test]
fn scans_read_values_around_them() {
    let around = split(&[("x", 0), ("r", 0)]);
    let inside = split(&[("r", 1), ("m", 0)]);
    let model = model(
        &format!(
            "g (float[4, 4] x, float[3, 4] rows) => (float[4] last, float[4, 3] all) {{
               zero = Constant <value = int64[1] {{0}}> ()
               r = Relu (x) {around}
               start = ReduceSum <keepdims = 0> (r, zero)
               last, all = Scan (start, rows) <
                  num_scan_inputs = 1, scan_output_axes = [1],
                  body = step (float[4] h, float[4] row) => (float[4] next, float[4] out) {{
                     m = MatMul (h, r) {inside}
                     next = Add (m, row)
                     out = Identity (next)
                  }}
               >
             }}"
        ),
        "",
    );
    let runs = [vec![("x", floats(&[4, 4])), ("rows", floats(&[3, 4]))]];
    assert!(facts(&runs_alike(&model, &runs)).0 > 1);
}

/// Checks that annotations of nodes in a function hold where the function is called.
#[test]
fn functions_are_divided() {
    let relu = split(&[("a", 0), ("b", 0)]);
    let model = model(
        "g (float[4] x) => (float[4] y) { y = own.twice (x) }",
        &format!(
            "<domain: \"own\", opset_import: [\"\": 21]> twice (a) => (c) {{
               b = Relu (a) {relu}
               c = Add (b, b)
             }}"
        ),
    );
    assert_eq!(facts(&runs_alike(&model, &[vec![("x", floats(&[4]))]])), (1, 2));
}

/// Checks that a device that fails in an iteration ends the run of the other, which waits for it.
#[test]
fn a_device_that_fails_in_an_iteration_ends_the_run() {
    let rows = split(&[("table", 0)]);
    let model = model(
        &format!(
            "g (int64 n, int64 first) => (float[2] y)
             <float[4, 2] table = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}},
              float[2] zeros = {{0.0, 0.0}}> {{
               y, at = Loop (n, , zeros, first) <
                  body = step (int64 i, bool go, float[2] h, int64 at)
                     => (bool more, float[2] next, int64 after) {{
                     more = Identity (go)
                     one = Constant <value = int64 {{1}}> ()
                     row = Gather (table, at) {rows}
                     next = Add (h, row)
                     after = Add (at, one)
                  }}
               >
             }}"
        ),
        "",
    );
    let inputs = |n: i64| vec![("n", Tensor::scalar(n)), ("first", Tensor::scalar(0i64))];
    runs_alike(&model, &[inputs(4), inputs(1)]);
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    let error = session.run(inputs(5), &Default::default()).unwrap_err().to_string();
    assert!(error.contains("Gather"), "{error}");
    // The session is usable after the failure.
    session.run(inputs(3), &Default::default()).unwrap();
}

/// Checks that a plan uses the sizes of the values passed to a body, not those that it declares.
#[test]
fn sizes_are_those_of_what_is_given() {
    let add = split(&[("h", 0), ("sum", 0)]);
    let scan = |inside: &str| {
        let graph = format!(
            "g (float[w] start, float[3, w] rows) => (float[w] last, float[3, w] all) {{
               last, all = Scan (start, rows) <
                  num_scan_inputs = 1,
                  body = step (float[{inside}] h, float[{inside}] row)
                     => (float[{inside}] sum, float[{inside}] out) {{
                     sum = Add (h, row) {add}
                     out = Identity (sum)
                  }}
               >
             }}"
        );
        model(&graph, "")
    };
    let inputs = |w: usize| vec![("start", floats(&[w])), ("rows", floats(&[3, w]))];
    assert!(facts(&runs_alike(&scan("w"), &[2, 4, 5].map(inputs))).1 > 0);
    assert!(facts(&runs_alike(&scan("?"), &[2, 4, 5].map(inputs))).1 > 0);
    // A run may have the declared size; any other is rejected.
    let declared = scan("2");
    assert!(facts(&runs_alike(&declared, &[inputs(2)])).1 > 0);
    let whole = Session::new(&declared).unwrap();
    let session = Session::builder(&declared).devices(DeviceOptions::new()).unwrap();
    assert!(whole.run(inputs(4), &Default::default()).is_err());
    assert!(session.run(inputs(4), &Default::default()).is_err());
}

/// Checks that the branch that is not taken need not support the sizes of the run.
#[test]
fn branches_that_are_not_taken_may_not_fit() {
    let first = split(&[("x", 0)]);
    let model = model(
        &format!(
            "g (float[n, k] x, bool c) => (float[n, ?] y)
             <float[2, 3] wide = {{1, 2, 3, 4, 5, 6}},
              float[4, 3] tall = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}}> {{
               r = Relu (x) {first}
               y = If (c) <
                  then_branch = yes () => (a) {{ a = MatMul (r, wide) }},
                  else_branch = no () => (b) {{ b = MatMul (r, tall) }}
               >
             }}"
        ),
        "",
    );
    let inputs = |k: usize, c: bool| {
        vec![("x", floats(&[2, k])), ("c", Tensor::from_bools([], &[c]).unwrap())]
    };
    runs_alike(&model, &[inputs(2, true), inputs(4, false), inputs(2, true)]);
}

/// Checks the shapes of stacked outputs of a loop without iterations: they follow from the types of
/// inputs, or from values that another device sends.
#[test]
fn loops_without_iterations_give_the_same_shapes() {
    let half = split(&[("x", 0), ("z", 0)]);
    let [first, second] = [0, 1].map(|stage| {
        format!("@<device_configurations: [{{configuration_id: \"c\", pipeline_stage: {stage}}}]>")
    });
    let body = "body = step (int64 i, bool go, h) => (bool more, next, kept) {
        more = Identity (go)
        next = Neg (h)
        kept = Concat <axis = 0> (next, h)
    }";
    let positions = format!(
        "at = NonZero (x) {first}
         t = Transpose (at) {first}
         z = GatherND (x, t) {first}"
    );
    for (before, on_loop, rank) in [
        (format!("z = Relu (x) {half}"), String::new(), 3),
        (format!("z = Relu (x) {first}"), second.clone(), 3),
        (positions, second.clone(), 2),
    ] {
        let model = model(
            &format!(
                "g (int64 n, float[N, 3] x) => (y, all) {{
                     {before}
                     y, all = Loop (n, , z) <{body}> {on_loop}
                 }}"
            ),
            "",
        );
        let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
        let whole = Session::new(&model).unwrap();
        for rows in [4, 6, 2] {
            for n in [0, 2, 0i64] {
                let inputs = [("n", Tensor::scalar(n)), ("x", floats(&[rows, 3]))];
                let [wanted, found] = [
                    whole.run(inputs.clone(), &Default::default()).unwrap(),
                    session.run(inputs, &Default::default()).unwrap(),
                ];
                let [wanted, found] = [wanted, found].map(|run| run.tensor("all").unwrap().clone());
                assert_eq!(found.dims(), wanted.dims(), "{before}");
                // One element of `floats` is 0.
                let slice = if rank == 3 { vec![2 * rows, 3] } else { vec![2 * (3 * rows - 1)] };
                assert_eq!(wanted.dims(), [&[n as usize], &slice[..]].concat(), "{before}");
            }
        }
    }
}

/// Checks that a Scan over an empty axis has outputs of equal shapes on devices and without them.
#[test]
fn scans_over_nothing_give_the_same_shapes() {
    let [first, second] = [0, 1].map(|stage| {
        format!("@<device_configurations: [{{configuration_id: \"c\", pipeline_stage: {stage}}}]>")
    });
    let model = model(
        &format!(
            "g (float[M] x, float[N, M] rows) => (last, all) {{
                 z = Relu (x) {first}
                 r = Neg (rows) {first}
                 last, all = Scan (z, r) <
                     num_scan_inputs = 1,
                     body = step (h, row) => (next, out) {{
                         next = Add (h, row)
                         out = Concat <axis = 0> (next, row)
                     }}
                 > {second}
             }}"
        ),
        "",
    );
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    let whole = Session::new(&model).unwrap();
    for (rows, columns) in [(0, 5), (2, 3), (0, 2)] {
        let inputs = [("x", floats(&[columns])), ("rows", floats(&[rows, columns]))];
        for run in [
            whole.run(inputs.clone(), &Default::default()),
            session.run(inputs, &Default::default()),
        ] {
            assert_eq!(run.unwrap().tensor("all").unwrap().dims(), [rows, 2 * columns]);
        }
    }
}
