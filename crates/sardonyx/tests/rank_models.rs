//! Models of ranks with the collectives of other engines: run together, they give the outputs of
//! the whole model.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sardonyx::check::Severity;
use sardonyx::device::{Division, ShardOptions, Threads, TransportSettings};
use sardonyx::tool::ModelExt;
use sardonyx::tool::shard::{Collectives, RankOptions};
use sardonyx::{
    DataType, ErrorKind, Model, Outputs, SaveOptions, Session, Tensor, Type, Value, check, infer,
};

const BOTH: [Collectives; 2] = [Collectives::Microsoft, Collectives::TensorRt];

/// Makes a tensor of an input's type, whose elements differ from each other.
fn make_input(ty: &Type) -> Tensor {
    let dims: Vec<usize> =
        ty.shape().unwrap().iter().map(|dim| dim.size().expect("sizes are known")).collect();
    let count: usize = dims.iter().product();
    match ty.elem().unwrap() {
        DataType::Float => {
            let elements = (0..count).map(|index| ((index * 31) % 97) as f32 / 48.0 - 1.0);
            Tensor::from_vec(dims, elements.collect()).unwrap()
        }
        DataType::Int64 => {
            let elements = (0..count).map(|index| ((index * 7) % 5) as i64);
            Tensor::from_vec(dims, elements.collect()).unwrap()
        }
        DataType::Bool => Tensor::from_bools(dims, &vec![true; count]).unwrap(),
        other => panic!("no numbers of type {other}"),
    }
}

/// Makes the models of all ranks, writes each to a file and opens it again. The files must pass the
/// checker, and inference must find the types of all values.
fn through_files(model: &Model, collectives: Collectives, sizes: &[(&str, usize)]) -> Vec<Model> {
    let mut options = RankOptions::new(collectives);
    for (name, size) in sizes {
        options = options.dim(*name, *size);
    }
    if let [first, _, ..] = &model.device_configurations()[..] {
        options = options.configuration(&first.name);
    }
    let ranks = model.rank_models(&options).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let files = (0..ranks.count()).map(|rank| {
        let path = scratch.path().join(format!("rank{rank}.onnx"));
        SaveOptions::new().save(&ranks.model(rank).unwrap(), &path).unwrap();
        let opened = Model::read_file(&path).unwrap();
        let names = |model: &Model| -> Vec<String> {
            model.inputs().iter().map(|port| port.name().to_string()).collect()
        };
        assert_eq!(names(&opened), names(model));
        let outputs = opened.outputs();
        for (own, port) in outputs.iter().zip(model.outputs()) {
            assert_eq!(own.name(), port.name());
        }
        assert_eq!(opened.opsets()[0].version, model.opsets()[0].version);
        assert!(!opened.to_text().contains("device_configurations"), "{}", opened.to_text());
        check_file(&opened, collectives);
        opened
    });
    files.collect()
}

/// Checks that the model of a rank is valid, except for the operator of TensorRT, which is not in
/// the standard.
fn check_file(model: &Model, collectives: Collectives) {
    let report = model.check(&check::CheckOptions::new());
    let errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error);
    for finding in errors {
        let is_theirs = collectives == Collectives::TensorRt
            && finding.code.name == "unknown-operator"
            && finding.to_string().contains("DistCollective");
        assert!(is_theirs, "{finding}\n{}", model.to_text());
    }
    let inferred = model.infer(&infer::InferOptions::new());
    let open = inferred.count_types(model).open;
    assert_eq!(open, 0, "{}", model.to_text());
}

/// Runs the models of all ranks together on the same inputs.
fn run_ranks(models: &[Model], inputs: &[(String, Value)]) -> Vec<Outputs> {
    let settings = TransportSettings { deadline: Duration::from_secs(20) };
    let ranks = Threads::new(models.len(), &settings);
    std::thread::scope(|scope| {
        let ranks = ranks.into_iter().zip(models).map(|(rank, model)| {
            scope.spawn(move || {
                let builder = Session::builder(model).threads(1).transport(Arc::new(rank));
                let session = builder.build().unwrap();
                session.run(inputs.to_vec(), &Default::default()).unwrap();
                session.run(inputs.to_vec(), &Default::default()).unwrap()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Checks that all ranks give the outputs of the whole model.
fn agree(name: &str, model: &Model, sizes: &[(&str, usize)], collectives: Collectives) {
    let mut builder = Session::builder(model).threads(1);
    for (name, size) in sizes {
        builder = builder.dim(*name, *size);
    }
    let session = builder.build().unwrap();
    let inputs = session.inputs().iter().map(|port| {
        let ty = port.ty().unwrap().substitute(&|name: &str| {
            let known = sizes.iter().find(|(known, _)| *known == name);
            known.map(|(_, size)| (*size).into())
        });
        (port.name().to_string(), Value::from(make_input(&ty)))
    });
    let inputs: Vec<(String, Value)> = inputs.collect();
    let wanted = session.run(inputs.clone(), &Default::default()).unwrap();
    let models = through_files(model, collectives, sizes);
    for (rank, found) in run_ranks(&models, &inputs).iter().enumerate() {
        for (output, wanted) in wanted.iter() {
            let (wanted, found) = (wanted.as_tensor().unwrap(), found.tensor(output).unwrap());
            assert_eq!(wanted.dims(), found.dims(), "{name} rank {rank} {output}");
            let is_near = match wanted.data_type() {
                DataType::Float => {
                    let pairs = wanted.to_vec::<f32>().unwrap();
                    let pairs = pairs.into_iter().zip(found.to_vec::<f32>().unwrap());
                    pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
                }
                _ => wanted.bytes() == found.bytes(),
            };
            assert!(is_near, "{name} rank {rank} {output}: {wanted:?} {found:?} {collectives:?}");
        }
    }
}

/// Exports all examples of annotations, and compares their outputs with those of the whole models.
#[test]
fn examples_of_annotations_give_what_the_whole_model_gives() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/devices");
    let mut ran = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|suffix| suffix != "onnxtxt") {
            continue;
        }
        let model = Model::open(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // TensorRT does not support double.
        if name != "rows.onnxtxt" {
            agree(&name, &model, &[], Collectives::TensorRt);
        }
        agree(&name, &model, &[], Collectives::Microsoft);
        ran += 1;
    }
    assert!(ran >= 15, "{ran} models");
}

/// Makes a transformer block, as exporters write it.
fn transformer(is_causal: bool) -> Model {
    let weights = |name: &str, rows: usize, columns: usize, seed: usize| {
        let count = rows * columns;
        let values = (0..count).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 32.0 - 0.25);
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        format!("float[{rows}, {columns}] {name} = {{{}}}", values.join(", "))
    };
    let constants = [
        weights("words", 16, 64, 1),
        weights("wq", 64, 64, 2),
        weights("wk", 64, 64, 3),
        weights("wv", 64, 64, 4),
        weights("wo", 64, 64, 5),
        weights("w1", 64, 128, 6),
        weights("w2", 128, 64, 7),
        weights("b1", 1, 128, 8),
        weights("b2", 1, 64, 9),
    ];
    let mask = if is_causal {
        "ones = ConstantOfShape <value = float[1] {-1000.0}> (lengths)
         one = Constant <value_int = 1> ()
         mask = Trilu <upper = 1> (ones, one)
         masked = Add (scaled, mask)"
    } else {
        "masked = Identity (scaled)"
    };
    let text = format!(
        "<ir_version: 9, opset_import: [\"\": 17]>
        block (int64[B, S] ids, float[64] scale) => (float[B, S, 64] y)
        <{}>
        {{
            x = Gather (words, ids)
            n = LayerNormalization (x, scale)
            heads = Constant <value_ints = [0, 0, 4, 16]> ()
            flat = Constant <value_ints = [0, 0, 64]> ()
            length = Shape <start = 1, end = 2> (ids)
            lengths = Concat <axis = 0> (length, length)
            q0 = MatMul (n, wq)  q1 = Reshape (q0, heads)  q = Transpose <perm = [0, 2, 1, 3]> (q1)
            k0 = MatMul (n, wk)  k1 = Reshape (k0, heads)  k = Transpose <perm = [0, 2, 3, 1]> (k1)
            v0 = MatMul (n, wv)  v1 = Reshape (v0, heads)  v = Transpose <perm = [0, 2, 1, 3]> (v1)
            scores = MatMul (q, k)
            four = Constant <value_float = 0.25> ()
            scaled = Mul (scores, four)
            {mask}
            p = Softmax <axis = -1> (masked)
            mixed = MatMul (p, v)
            back = Transpose <perm = [0, 2, 1, 3]> (mixed)
            joined = Reshape (back, flat)
            o = MatMul (joined, wo)
            r = Add (o, x)
            m = LayerNormalization (r, scale)
            h0 = MatMul (m, w1)  h1 = Add (h0, b1)  h = Relu (h1)
            f0 = MatMul (h, w2)  f = Add (f0, b2)
            y = Add (f, r)
        }}",
        constants.join(", ")
    );
    Model::from_text(&text).unwrap()
}

/// Exports layers of BERT and GPT for two and four ranks, by heads and in stages. The files keep
/// the versions of the model, which are older than device configurations.
#[test]
fn transformers_give_what_the_whole_model_gives() {
    for is_causal in [false, true] {
        let model = transformer(is_causal);
        for (ranks, division) in [
            (2, Division::Tensor),
            (4, Division::Tensor),
            (2, Division::Pipeline),
            (4, Division::Pipeline),
        ] {
            let options = ShardOptions::new(division, ranks).dim("B", 2).dim("S", 3);
            let (annotated, _) = model.shard(&options).unwrap();
            for collectives in BOTH {
                let name = format!("causal {is_causal}, {ranks} {division:?}");
                agree(&name, &annotated, &[("B", 2), ("S", 3)], collectives);
            }
        }
    }
}

/// Checks that tensor parallelism takes one all-reduce for each half of a layer and nothing else,
/// and that each rank holds only its shards of split matrices.
#[test]
fn a_layer_by_heads_takes_two_sums() {
    let model = transformer(false);
    let options = ShardOptions::new(Division::Tensor, 4).dim("B", 2).dim("S", 3);
    let (annotated, _) = model.shard(&options).unwrap();
    let models = through_files(&annotated, Collectives::Microsoft, &[("B", 2), ("S", 3)]);
    for model in &models {
        let count = |name: &str| {
            let operators = model.operators();
            let found = operators.iter().find(|operator| operator.name == name);
            found.map_or(0, |operator| operator.nodes)
        };
        assert_eq!((count("AllReduce"), count("AllGather"), count("AllToAll")), (2, 0, 0));
        assert_eq!(count("Slice"), 0, "constants are cut");
        let mut shapes: Vec<Vec<i64>> =
            model.tensors().iter().map(|tensor| tensor.dims.clone()).collect();
        shapes.retain(|dims| dims.iter().product::<i64>() >= 1024);
        shapes.sort();
        let parts = [[16, 64], [16, 64], [32, 64], [64, 16], [64, 16], [64, 16], [64, 32]];
        assert_eq!(shapes, parts);
        assert_eq!(model.ir_version(), Some(8));
    }
}

/// Checks that a change of the split axis, from heads to rows as in sequence parallelism, becomes
/// one all-to-all if the shards are even.
#[test]
fn even_parts_of_another_axis_take_an_all_to_all() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[2, 4, 8] x) => (float[2, 4, 8] y) {
            a = Neg (x) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"x\", device: [0, 1], sharded_dim: [{axis: FROM, simple_sharding: [{num_shards: 2}]}]},
                {tensor_name: \"a\", device: [0, 1], sharded_dim: [{axis: TO, simple_sharding: [{num_shards: 2}]}]}]}]>
            y = Abs (a)
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    for (from, to) in [("0", "1"), ("1", "0"), ("0", "2"), ("2", "1"), ("1", "2")] {
        let text = text.replace("FROM", from).replace("TO", to);
        let model = Model::from_text(&text).unwrap();
        for collectives in BOTH {
            agree(&format!("{from} to {to}"), &model, &[], collectives);
        }
        let models = through_files(&model, Collectives::Microsoft, &[]);
        assert!(models[0].to_text().contains("AllToAll"), "{}", models[0].to_text());
    }
}

/// Checks moves that no collective can express, which become a gather: partial results other than
/// sums, uneven and empty shards, unsupported element types.
#[test]
fn what_no_collective_says_is_gathered() {
    let text = "<ir_version: 11, opset_import: [\"\": 21]>
        g (TYPE[5, 4] x) => (TYPE[4] most, TYPE[4] least, TYPE[4] product, TYPE[5, 4] all) {
            all = Abs (x) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"x\", device: [2, 0, 1, 3, 4, 5], sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 6}]}]}]}]>
            axes = Constant <value_ints = [0]> ()
            most = ReduceMax <keepdims = 0> (all, axes)
            least = ReduceMin <keepdims = 0> (all, axes)
            product = ReduceProd <keepdims = 0> (all, axes)
        }
        @<configuration: [{name: \"c\", num_devices: 6}]>";
    for ty in ["float", "int64"] {
        let model = Model::from_text(&text.replace("TYPE", ty)).unwrap();
        for collectives in BOTH {
            agree(ty, &model, &[], collectives);
        }
    }
    let cast = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4, 4] x) => (float[4, 4] y) {
            a = Cast <to = TYPE> (x) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"x\", device: [0, 1], sharded_dim: [{axis: 1, simple_sharding: [{num_shards: 2}]}]}]}]>
            b = Identity (a) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"a\", device: [1]}]}]>
            y = Cast <to = 1> (b)
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    // uint8, int8, int16, int32, bool, float16, bfloat16, float8e4m3fn
    for number in [2, 3, 5, 6, 9, 10, 16, 17] {
        let text = cast.replace("TYPE", &number.to_string());
        for collectives in BOTH {
            agree(&text, &Model::from_text(&text).unwrap(), &[], collectives);
        }
    }
}

#[test]
fn what_cannot_be_said_is_refused_with_advice() {
    let doubles = "<ir_version: 11, opset_import: [\"\": 21]>
        g (TYPE[4] x) => (TYPE[4] y) {
            a = Neg (x) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"x\", device: [0, 1], sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
            y = Abs (a)
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let refused = |text: &str, collectives| {
        let model = Model::from_text(text).unwrap();
        let error = model.rank_models(&RankOptions::new(collectives)).unwrap_err();
        (error.kind(), format!("{} ({})", error.message(), error.help().unwrap_or_default()))
    };
    assert_eq!(
        refused(&doubles.replace("TYPE", "double"), Collectives::TensorRt),
        (
            ErrorKind::Unsupported,
            "'y' cannot be moved from [4/2] on 0 1 to whole on 0 1: no collective takes elements \
             of type double (let the value stay on its devices, or cast it before it is moved)"
                .to_string()
        )
    );
    assert_eq!(
        refused(&doubles.replace("TYPE[4]", "float[N]"), Collectives::Microsoft),
        (
            ErrorKind::Argument,
            "dimension 0 of the input 'x' is open: float[N] (the model of a rank has fixed \
             sizes: set the open size with --set 'N=SIZE' (Python: dims={'N': SIZE}; Rust: \
             RankOptions::dim))"
                .to_string()
        )
    );
    let unknown = "<ir_version: 11, opset_import: [\"\": 21]>
        g (float[4] x) => (int64[1, M] y) {
            a = NonZero (x) @<device_configurations: [{configuration_id: \"c\", sharding_spec: [
                {tensor_name: \"a\", device: [0]}]}]>
            y = Abs (a)
        }
        @<configuration: [{name: \"c\", num_devices: 2}]>";
    let (kind, why) = refused(unknown, Collectives::Microsoft);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(why.contains("its sizes are not known before the run"), "{why}");
    let model = Model::from_text(&doubles.replace("TYPE", "float")).unwrap();
    let ranks = model.rank_models(&RankOptions::new(Collectives::Microsoft)).unwrap();
    assert_eq!(ranks.model(2).unwrap_err().kind(), ErrorKind::Argument);
}
