//! Plans with open sizes: one plan serves inputs of many sizes.

use std::sync::Arc;

use sardonyx::device::{DeviceOptions, DeviceSession, Division, ShardOptions};
use sardonyx::tool::shard::Plan;
use sardonyx::{Model, Session, Tensor};

const WIDTH: usize = 64;

fn numbers(dims: &[usize], by: usize) -> Vec<f32> {
    let count: usize = dims.iter().product();
    (0..count).map(|index| ((index * by + by) % 97) as f32 / 388.0 - 0.125).collect()
}

fn constant(name: &str, dims: &[usize], by: usize) -> String {
    let elements: Vec<String> = numbers(dims, by).iter().map(ToString::to_string).collect();
    format!("float{dims:?} {name} = {{{}}}", elements.join(", "))
}

/// Makes a decoder layer with cached keys and values, as exporters write it: nodes read sizes from
/// tensors that are split by heads.
fn decoder() -> Model {
    let constants = [
        constant("w_q", &[WIDTH, WIDTH], 31),
        constant("w_k", &[WIDTH, WIDTH], 33),
        constant("w_v", &[WIDTH, WIDTH], 37),
        constant("w_o", &[WIDTH, WIDTH], 41),
        constant("w_up", &[WIDTH, 2 * WIDTH], 43),
        constant("w_down", &[2 * WIDTH, WIDTH], 47),
    ];
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 20]>
        decoder (float[batch, new, {WIDTH}] x, float[batch, 4, past, 16] k_before,
                 float[batch, 4, past, 16] v_before)
            => (float[batch, new, {WIDTH}] y, float[batch, 4, all, 16] k, float[batch, 4, all, 16] v)
        <{}, int64[2] flat = {{-1, {WIDTH}}}, int64[4] heads = {{0, 0, 4, 16}},
         int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
         int64[1] width = {{{WIDTH}}}, int64[1] rest = {{-1}}, int64[1] end = {{9223372036854775807}}>
        {{
            shape = Shape (x)
            batch_size = Gather (shape, zero)
            length = Gather (shape, one)
            rows = Reshape (x, flat)
            joined = Concat <axis = 0> (batch_size, length, width)
            q0 = MatMul (rows, w_q)
            k0 = MatMul (rows, w_k)
            v0 = MatMul (rows, w_v)
            q1 = Reshape (q0, joined)
            k1 = Reshape (k0, joined)
            v1 = Reshape (v0, joined)
            q2 = Reshape (q1, heads)
            k2 = Reshape (k1, heads)
            v2 = Reshape (v1, heads)
            q3 = Transpose <perm = [0, 2, 1, 3]> (q2)
            k3 = Transpose <perm = [0, 2, 1, 3]> (k2)
            v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
            k = Concat <axis = 2> (k_before, k3)
            v = Concat <axis = 2> (v_before, v3)
            k_shape = Shape (k)
            all_length = Gather (k_shape, two)
            q_shape = Shape (q3)
            head = Gather (q_shape, three)
            head_size = Cast <to = 1> (head)
            scale = Sqrt (head_size)
            k4 = Transpose <perm = [0, 1, 3, 2]> (k)
            scores = MatMul (q3, k4)
            scaled = Div (scores, scale)
            start = Sub (all_length, length)
            mask_shape = Concat <axis = 0> (length, all_length)
            full = ConstantOfShape <value = float[1] {{-1.0}}> (mask_shape)
            mask = Trilu <upper = 1> (full, later)
            later = Add (start_scalar, one_scalar)
            start_scalar = Squeeze (start)
            one_scalar = Squeeze (one)
            masked = Add (scaled, mask)
            p = Softmax <axis = -1> (masked)
            o = MatMul (p, v)
            o1 = Transpose <perm = [0, 2, 1, 3]> (o)
            o_shape = Concat <axis = 0> (batch_size, rest, width)
            o2 = Reshape (o1, o_shape)
            o3 = MatMul (o2, w_o)
            h = Add (o3, x)
            up = MatMul (h, w_up)
            g = Gelu (up)
            down = MatMul (g, w_down)
            y = Add (down, h)
        }}",
        constants.join(", ")
    );
    Model::from_text(&text).unwrap()
}

/// Runs a plain session and one on devices, and compares the outputs.
fn same(plain: &Session, session: &DeviceSession, inputs: &[(&str, Tensor)]) {
    let wanted = plain.run(inputs.to_vec(), &Default::default()).unwrap();
    let found = session.run(inputs.to_vec(), &Default::default()).unwrap();
    for (name, wanted) in wanted.iter() {
        let (wanted, found) = (wanted.as_tensor().unwrap(), found.tensor(name).unwrap());
        assert_eq!(wanted.dims(), found.dims(), "{name}");
        let pairs = wanted.to_vec::<f32>().unwrap().into_iter().zip(found.to_vec::<f32>().unwrap());
        for (a, b) in pairs {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "{name}: {a} and {b}");
        }
    }
}

fn tensor(dims: &[usize], by: usize) -> Tensor {
    Tensor::from_vec(dims, numbers(dims, by)).unwrap()
}

fn sessions(model: &Model) -> (Session, DeviceSession) {
    let plain = Session::builder(model).threads(1).build().unwrap();
    (plain, Session::builder(model).devices(DeviceOptions::new()).unwrap())
}

fn plan(session: &DeviceSession) -> Arc<Plan> {
    session.last_plan().unwrap()
}

/// Checks that a decoder makes one plan for steps of one position, with any number of cached ones,
/// and one for steps of several positions.
#[test]
fn one_plan_serves_all_lengths() {
    let model = decoder();
    for devices in [2, 4] {
        let (annotated, report) =
            model.shard(&ShardOptions::new(Division::Tensor, devices).configuration("c")).unwrap();
        assert_eq!((report.columns, report.rows, report.whole), (4, 2, 0));
        let (plain, session) = sessions(&annotated);
        let run = |batch: usize, new: usize, past: usize| {
            let x = tensor(&[batch, new, WIDTH], 53);
            let before = [59, 61].map(|by| tensor(&[batch, 4, past, 16], by));
            let [k, v] = before;
            same(&plain, &session, &[("x", x), ("k_before", k), ("v_before", v)]);
            plan(&session)
        };
        let several = run(2, 3, 5);
        assert!(several.sizes().is_empty() && several.facts().in_parts > 10, "{}", several.text());
        for (batch, new, past) in [(2, 4, 2), (3, 2, 8), (5, 7, 3)] {
            assert!(Arc::ptr_eq(&several, &run(batch, new, past)));
        }
        let step = run(1, 1, 4);
        assert!(!Arc::ptr_eq(&several, &step));
        for past in 5..9 {
            assert!(Arc::ptr_eq(&step, &run(1, 1, past)));
        }
        // Messages are the two sums, and the outputs for the caller.
        let sends = several.steps().iter().filter_map(|step| match step {
            sardonyx_shard::Step::Move(moved) if !several.is_local(moved) => Some(moved.value),
            _ => None,
        });
        let names: Vec<String> = sends
            .map(|value| {
                let model = several.model();
                String::from_utf8_lossy(model.text(model.value(value).name)).into_owned()
            })
            .collect();
        assert_eq!(names, ["o3", "down", "k", "v"], "{}", several.text());
        // A step without cached positions.
        run(2, 3, 0);
    }
}

/// Checks that a plan depends on an open size only if its axis is split.
#[test]
fn a_plan_depends_on_sizes_that_are_split() {
    let model = Model::from_text(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (float[rows, columns] x, float[columns] b) => (float[rows, columns] y, float[rows] z) {
             y = Add (x, b) @<device_configurations: [{configuration_id: \"c\", sharding_spec:
                 [{tensor_name: \"x\", device: [0, 1], sharded_dim:
                     [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
             z = ReduceSum <keepdims = 0> (y, axis)
             axis = Constant <value_ints = [1]> ()
         }
         @<configuration: [{name: \"c\", num_devices: 2}]>",
    )
    .unwrap();
    let (plain, session) = sessions(&model);
    let run = |rows: usize, columns: usize| {
        let inputs = [("x", tensor(&[rows, columns], 31)), ("b", tensor(&[columns], 37))];
        same(&plain, &session, &inputs);
        plan(&session)
    };
    let first = run(4, 3);
    assert_eq!(first.sizes(), [("rows".to_string(), 4)]);
    assert_eq!(first.facts().in_parts, 2, "{}", first.text());
    assert!(Arc::ptr_eq(&first, &run(4, 6)));
    let other = run(5, 6);
    assert_eq!(other.sizes(), [("rows".to_string(), 5)]);
    assert!(Arc::ptr_eq(&first, &run(4, 2)));
    // Without a size, the axis cannot be split.
    let open = session.plan(&[]).unwrap();
    assert!(open.not_honored()[0].why.contains("sizes are not known"), "{}", open.text());
}

/// Checks that stages take inputs of any size, though the receiving device cannot infer the sizes.
#[test]
fn stages_take_any_size() {
    let model = Model::from_text(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (float[?, 8] x) => (float[?, 8] y) {
             a = Exp (x) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 0}]>
             b = Neg (a) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 1}]>
             y = Softmax (b) @<device_configurations: [{configuration_id: \"c\", pipeline_stage: 2}]>
         }
         @<configuration: [{name: \"c\", num_devices: 3}]>",
    )
    .unwrap();
    let (plain, session) = sessions(&model);
    let run = |rows: usize| {
        same(&plain, &session, &[("x", tensor(&[rows, 8], 31))]);
        plan(&session)
    };
    let first = run(3);
    assert_eq!(first.bytes().to_string(), "64*x[0]");
    for rows in [2, 9, 4] {
        assert!(Arc::ptr_eq(&first, &run(rows)));
    }
    run(1);
    run(0);
}

/// Checks that a plan is made for fixed sizes if it would differ for others.
#[test]
fn sizes_that_must_fit_are_looked_at() {
    let model = Model::from_text(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (float[n, 4] x, float[m, 4] b) => (float[a, 4] y) {
             y = Add (x, b) @<device_configurations: [{configuration_id: \"c\", sharding_spec:
                 [{tensor_name: \"x\", device: [0, 1], sharded_dim:
                     [{axis: 1, simple_sharding: [{num_shards: 2}]}]}]}]>
         }
         @<configuration: [{name: \"c\", num_devices: 2}]>",
    )
    .unwrap();
    let (plain, session) = sessions(&model);
    for (n, m) in [(3, 3), (2, 2), (1, 5), (5, 1), (4, 4)] {
        same(&plain, &session, &[("x", tensor(&[n, 4], 31)), ("b", tensor(&[m, 4], 37))]);
    }
    let wrong = [("x", tensor(&[3, 4], 31)), ("b", tensor(&[2, 4], 37))];
    let (plain, devices) =
        (plain.run(wrong.clone(), &Default::default()), session.run(wrong, &Default::default()));
    assert_eq!(plain.unwrap_err().kind(), devices.unwrap_err().kind());
}

/// Checks that scales are split with an axis only if they have its size, which is known only at run
/// time.
#[test]
fn scales_of_another_size_are_whole() {
    let model = Model::from_text(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (uint8[1, 4, 2] x, float[scales] s, uint8[scales] zero) => (float[1, 4, 2] y) {
             y = DequantizeLinear <axis = 1> (x, s, zero)
                 @<device_configurations: [{configuration_id: \"c\", sharding_spec:
                 [{tensor_name: \"x\", device: [0, 1], sharded_dim:
                     [{axis: 1, simple_sharding: [{num_shards: 2}]}]}]}]>
         }
         @<configuration: [{name: \"c\", num_devices: 2}]>",
    )
    .unwrap();
    let (plain, session) = sessions(&model);
    let bytes = |dims: &[usize]| {
        let count: usize = dims.iter().product();
        Tensor::from_vec(dims, (0..count as u8).collect()).unwrap()
    };
    let inputs = [("x", bytes(&[1, 4, 2])), ("s", tensor(&[4], 31)), ("zero", bytes(&[4]))];
    same(&plain, &session, &inputs);
}

/// Checks that an omitted input has the sizes of its initializer, even if its symbols have other
/// values in other inputs.
#[test]
fn defaults_have_their_own_sizes() {
    // SHAPE-07: the same holds for sessions without devices.
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (int64[1, n] at, float[n, 3] table) => (float[?, ?, ?] y)
        <float[4, 3] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
            y = Gather (table, at) @<device_configurations: [{configuration_id: \"c\",
                sharding_spec: [{tensor_name: \"table\", device: [0, 1],
                    sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let model = Model::from_text(text).unwrap();
    let whole = Session::new(&model).unwrap();
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    for count in [4, 8, 3] {
        let at: Vec<i64> = (0..count).map(|n| n % 4).collect();
        let inputs = [("at", Tensor::from_slice([1, at.len()], &at).unwrap())];
        assert_eq!(
            session.run(inputs.clone(), &Default::default()).unwrap(),
            whole.run(inputs, &Default::default()).unwrap()
        );
    }
}

/// Checks that a symbol that the size of a default contradicts does not determine the sizes of
/// exchanged values.
#[test]
fn defaults_do_not_decide_what_symbols_are() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[n, 2, 3] x, float[4, 2, n] w) => (float[?, ?, ?] y)
        <float[4, 2, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {
            y = Conv (x, w) @<device_configurations: [{configuration_id: \"c\",
                sharding_spec: [{tensor_name: \"w\", device: [0, 1],
                    sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let model = Model::from_text(text).unwrap();
    let whole = Session::new(&model).unwrap();
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    for n in [2, 4, 3, 2] {
        let values = (0..n * 6).map(|value| value as f32).collect();
        let inputs = [("x", Tensor::from_vec([n, 2, 3], values).unwrap())];
        assert_eq!(
            session.run(inputs.clone(), &Default::default()).unwrap(),
            whole.run(inputs, &Default::default()).unwrap()
        );
    }
    assert!(session.last_plan().unwrap().facts().in_parts > 0);
}

/// Checks that tables stay whole if their batch size is not known to equal that of the values.
#[test]
fn tables_of_another_size_are_whole() {
    let text = "<ir_version: 11, opset_import: [\"\": 23]>
        g (float[2, 4, 3, 8] x, float[a, 3, 4] cosines, float[b, 3, 4] sines) => (y) {
            y = RotaryEmbedding (x, cosines, sines) @<device_configurations: [{
                configuration_id: \"c\", sharding_spec: [{tensor_name: \"x\", device: [0, 1],
                    sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let model = Model::from_text(text).unwrap();
    let whole = Session::new(&model).unwrap();
    let session = Session::builder(&model).devices(DeviceOptions::new()).unwrap();
    let tensor = |dims: &[usize]| {
        let count: usize = dims.iter().product();
        Tensor::from_vec(dims, (0..count).map(|value| value as f32 / 8.0).collect()).unwrap()
    };
    let inputs = [
        ("x", tensor(&[2, 4, 3, 8])),
        ("cosines", tensor(&[2, 3, 4])),
        ("sines", tensor(&[2, 3, 4])),
    ];
    assert_eq!(
        session.run(inputs.clone(), &Default::default()).unwrap(),
        whole.run(inputs, &Default::default()).unwrap()
    );
}
