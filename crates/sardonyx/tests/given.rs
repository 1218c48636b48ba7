//! Replaces weights and sizes of a model by those of the caller.

use sardonyx::tool::ModelExt;
use sardonyx::value::{Map, MapKey, StringArray};
use sardonyx::{DataType, ErrorKind, Model, Session, Tensor, Value, ValueType};

const TEXT: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    g (float[2] x, float[2] both = {7, 7}) => (float[2] y, string[1] t)
    <float[2] w = [\"location\": \"missing.bin\"], float[2] v = {10, 20}, string[1] s = {\"old\"}>
    { a = Mul (x, w) b = Add (a, v) y = Add (b, both) t = Identity (s) }";

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_slice([values.len()], values).unwrap()
}

fn run(model: &Model) -> (Vec<f32>, String) {
    let outputs = Session::new(model)
        .unwrap()
        .run([("x", floats(&[1.0, 1.0]))], &Default::default())
        .unwrap();
    let text = outputs.tensor("t").unwrap().strings().unwrap().get_str(0).unwrap();
    (outputs.tensor("y").unwrap().as_slice::<f32>().unwrap().to_vec(), text.to_string())
}

#[test]
fn initializers_are_replaced_wherever_their_values_are() {
    let mut model = Model::from_text(TEXT).unwrap();
    assert!(model.initializer("w").unwrap().is_external);
    model.set_initializer("w", &floats(&[5.0, 6.0])).unwrap();
    assert!(!model.initializer("w").unwrap().is_external);
    assert_eq!(run(&model), (vec![22.0, 33.0], "old".to_string()));
    // The default value of an input is an initializer too.
    model.set_initializer("both", &floats(&[0.0, 0.0])).unwrap();
    model.set_initializer("v", &floats(&[1.0, 2.0])).unwrap();
    let new = Tensor::from_strings([1], StringArray::from_iter(["new"])).unwrap();
    model.set_initializer("s", &new).unwrap();
    assert_eq!(run(&model), (vec![6.0, 8.0], "new".to_string()));
    // The replaced values survive serialization.
    let again = Model::from_bytes(model.to_bytes()).unwrap();
    assert_eq!(run(&again), run(&model));
}

#[test]
fn a_copy_of_a_model_keeps_its_weights() {
    let mut model = Model::from_text(TEXT).unwrap();
    model.set_initializer("w", &floats(&[1.0, 1.0])).unwrap();
    for value in 0..20u8 {
        let mut copy = model.clone();
        copy.set_initializer("w", &floats(&[f32::from(value); 2])).unwrap();
        assert_eq!(run(&copy).0, [17.0 + f32::from(value), 27.0 + f32::from(value)]);
        assert_eq!(run(&model).0, [18.0, 28.0]);
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let mut model = Model::from_text(TEXT).unwrap();
    let doubles = Tensor::from_slice([2], &[1.0f64, 2.0]).unwrap();
    let rows = [
        ("x", floats(&[1.0, 1.0]), "the model has no initializer 'x'"),
        ("q", floats(&[1.0, 1.0]), "the model has no initializer 'q'"),
        ("w", floats(&[1.0]), "the initializer 'w' is float[2], not float[1]"),
        ("v", doubles, "the initializer 'v' is float[2], not double[2]"),
    ];
    let before = model.to_bytes();
    for (name, value, message) in rows {
        let error = model.set_initializer(name, &value).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Argument, message));
    }
    assert!(model.to_bytes() == before);
}

#[test]
fn open_sizes_are_fixed_by_denotation() {
    let text = "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>
        g (float[N @<denotation: \"DATA_BATCH\">, 3 @<denotation: \"DATA_CHANNEL\">] x,
           float[? @<denotation: \"DATA_BATCH\">, N] z, seq(float[M @<denotation: \"DATA_BATCH\">]) s)
        => (float[N, 3] y) { y = Relu (x) }";
    let mut model = Model::from_text(text).unwrap();
    assert_eq!(model.fix_denoted_dims("FILTER_SPATIAL", 8), 0);
    // A fixed size is not replaced.
    assert_eq!(model.fix_denoted_dims("DATA_CHANNEL", 8), 0);
    assert_eq!(model.fix_denoted_dims("DATA_BATCH", 8), 3);
    let ports: Vec<String> = model.inputs().iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["x: float[8, 3]", "z: float[8, N]", "s: seq(float[8])"]);
    assert_eq!(model.fix_denoted_dims("DATA_BATCH", 9), 0);
}

#[test]
fn dictionary_vectors_without_a_declared_shape_are_rows() {
    let operator = "ai.onnx.ml.DictVectorizer <string_vocabulary = [\"a\", \"b\"]>";
    let rows = [
        ("(y)", "y = V (x)", 1, &[1, 2][..]),
        ("(float[] y)", "y = V (x)", 1, &[1, 2]),
        ("(y)", "v = V (x) y = Neg (v)", 1, &[1, 2]),
        ("(float[2] y)", "y = V (x)", 0, &[2]),
        ("(float[M, N] y)", "y = V (x)", 0, &[1, 2]),
        ("(y)", "v = V (x) w = V (x) y = Concat <axis = 1> (v, w)", 2, &[1, 4]),
    ];
    for (outputs, nodes, count, dims) in rows {
        let nodes = nodes.replace('V', operator);
        let text = format!(
            "<ir_version: 8, opset_import: [\"\": 17, \"ai.onnx.ml\": 3]>
             g (map(string, float) x) => {outputs} {{ {nodes} }}"
        );
        let mut model = Model::from_text(text.as_str()).unwrap();
        assert_eq!(model.declare_dictionary_rows(), count, "{text}");
        assert_eq!(model.declare_dictionary_rows(), 0, "{text}");
        let session = Session::new(&model).unwrap();
        assert!(session.outputs()[0].ty().is_some_and(|ty| ty.shape().is_some()), "{text}");
        let number = ValueType::Tensor(DataType::Float);
        let mut x = Map::new(DataType::String, number).unwrap();
        x.push(MapKey::String(b"b".as_slice().into()), Tensor::scalar(2f32).into()).unwrap();
        let outputs = session.run([("x", Value::from(x))], &Default::default()).unwrap();
        assert_eq!(outputs.tensor("y").unwrap().dims(), dims, "{text}");
    }
}
