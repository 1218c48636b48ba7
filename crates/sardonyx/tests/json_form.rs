//! Reports as JSON with the feature `serde`: keys and their order are those of the command.

use sardonyx::check::CheckOptions;
use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::device::{Division, ShardOptions};
use sardonyx::edit::{InlineOptions, StripOptions};
use sardonyx::infer::InferOptions;
use sardonyx::text::PrintOptions;
use sardonyx::tool::TextForm;
use sardonyx::train::{GradientOptions, Loss, TrainingOptions};
use sardonyx::{Dim, Model};
use serde::Serialize;

/// Model with a function, an operator with another form in newer versions, and a size with a name.
const CALLS: &str = r#"<ir_version: 8, opset_import: ["": 9, "local": 1]>
g (float[N, 4] x) => (float[N, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
    a = local.twice (x)
    b = MatMul (a, w)
    y = Clip <min = 0.0> (b)
}
<domain: "local", opset_import: ["": 9]>
twice (v) => (u) { u = Add (v, v) }"#;

/// Model to train, with an initializer that has no influence.
const LINE: &str = r#"<ir_version: 10, opset_import: ["": 21]>
g (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}, float unused = {1}> {
    y = Gemm (x, w, b)
}"#;

/// Model with a default of an input, an unknown size, an operator that cannot run, training and
/// devices.
const ODD: &str = r#"<ir_version: 11, opset_import: ["": 21, "com.example": 1], notation: "full">
odd (float[?, 2] x, float[2] b = {1, 2}) => (float y, float[M, 2] z) <float[2] w = {0, 0}> {
    y = com.example.Unknown(x, w)
    z = "".Add(x, b)
}
@<
  training_info: [{
    algorithm: step (float[2] t) => (float[2] v) { v = "".Sub(w, t) },
    update_binding: ["w": "v"]
  }],
  configuration: [{name: "c", num_devices: 2}]
>"#;

/// Model whose values are in a data file.
const EXTERNAL: &str = r#"<ir_version: 10, opset_import: ["": 21]>
g (float[2] x) => (float[2] y) <
    float[2] w = ["location": "w.bin", "offset": "16", "length": "8"]
> { y = Add (x, w) }"#;

fn model(text: &str) -> Model {
    Model::from_text(text).unwrap()
}

/// Asserts that a report serializes as `expected`. Its line breaks and indents are ignored.
#[track_caller]
fn assert_form(report: &impl Serialize, expected: &str) {
    let expected: String = expected.lines().map(str::trim_start).collect();
    assert_eq!(serde_json::to_string(report).unwrap(), expected);
}

#[test]
fn checks_count_and_list_findings() {
    assert_form(
        &model(CALLS).check(&CheckOptions::new()),
        r#"{"verdict":"fine","errors":0,"warnings":0,"notes":2,"types_checked":false,"findings":[
        {"code":"no-domain","severity":"note","requirement":"MODEL-07","place":"the model",
        "path":"domain","message":"the model has no domain",
        "help":"set domain to a name in reverse DNS notation, such as com.example"},
        {"code":"no-producer","severity":"note","requirement":"MODEL-06","place":"the model",
        "path":"producer_name","message":"the model has no producer name",
        "help":"set producer_name and producer_version"}],"not_listed":[]}"#,
    );
}

#[test]
fn edits_say_what_changed() {
    let options = ConvertOptions::new(Target::new().opset("", 13));
    let (_, report) = model(CALLS).convert(&options).unwrap();
    assert_form(
        &report,
        r#"{"operator_sets":[{"domain":"ai.onnx","from":9,"to":13}],
        "ir_version":{"from":8,"to":8},"unchanged":3,
        "operators":[{"domain":"ai.onnx","operator":"Clip","from":9,"to":13,"rewritten":1}],
        "constants":[],"expanded":[],"assumed":[],"rewritten":1,"removed":0,"added":0,
        "added_functions":[]}"#,
    );
    let report = model(CALLS).inline(&InlineOptions::new()).unwrap();
    assert_form(
        &report,
        r#"{"functions":[{"domain":"local","name":"twice","overload":"","calls":1}],
        "operators":[],"removed":[{"domain":"local","name":"twice","overload":""}],"kept":[],
        "imported":[],"without_body":[],"converted":[],"added_functions":[]}"#,
    );
    let options = StripOptions { unused_initializers: true, ..StripOptions::default() };
    let report = model(LINE).strip(&options).unwrap();
    assert_form(&report, r#"{"docs":0,"names":0,"metadata":0,"unused":1,"training":0,"types":0}"#);
}

#[test]
fn gradients_and_training_name_their_outputs() {
    let (_, report) = model(LINE).add_gradients(&GradientOptions::new()).unwrap();
    let nodes = report.nodes;
    assert_form(
        &report,
        &[
            r#"{"of":"y","gradients":[{"by":"x","output":"x_grad"},
            {"by":"w","output":"w_grad"},{"by":"b","output":"b_grad"}],"#,
            &format!(r#""nodes":{nodes},"replaced":0,"opset":{{"from":21,"to":21}},"#),
            r#""expanded":[]}"#,
        ]
        .concat(),
    );
    let options = TrainingOptions::new(Loss::SquaredError { output: None });
    let (_, report) = model(LINE).add_training(&options).unwrap();
    let nodes = report.nodes;
    assert_form(
        &report,
        &[
            r#"{"variables":[{"name":"w","elements":1},{"name":"b","elements":1}],
            "not_trained":[{"name":"unused","reason":"the loss does not depend on it"}],
            "label":"target","loss":"loss","learning_rate":"learning_rate","#,
            &format!(r#""nodes":{nodes},"training_mode":0,"float_copies":0,"#),
            r#""opset":{"from":21,"to":21},"expanded":[]}"#,
        ]
        .concat(),
    );
}

#[test]
fn divisions_count_what_is_split() {
    let (_, report) = model(LINE).shard(&ShardOptions::new(Division::Batch, 2)).unwrap();
    assert_form(
        &report,
        r#"{"products_by_columns":0,"products_by_rows":0,"products_whole":0,
        "tables_by_rows":0,"multiply_adds_of_stages":[],"inputs_by_batch":1,"nodes_by_batch":1,
        "nodes_in_subgraphs":0}"#,
    );
}

#[test]
fn inferred_values_have_types_as_text_and_in_parts() {
    let model = model(CALLS);
    let found = model.infer(&InferOptions::new());
    let values: Vec<_> = found.values(&model).take(2).collect();
    assert_form(
        &values,
        r#"[{"graph":"graph","name":"x","made_by":"input","type":"float[N, 4]","elem":"float",
        "shape":["N",4]},
        {"graph":"graph","name":"a","made_by":"twice","type":"float[N, 4]","elem":"float",
        "shape":["N",4]}]"#,
    );
    let sum = Dim::symbol("N").add(&Dim::from(1));
    assert_form(&[Dim::Unknown, Dim::from(3), sum], r#"[null,3,"N + 1"]"#);
}

#[test]
fn parts_of_a_model_have_forms() {
    let odd = model(ODD);
    assert_form(
        &odd.inputs(),
        r#"[{"name":"x","type":"float[?, 2]","element_type":"float","shape":[null,2],
        "required":true},
        {"name":"b","type":"float[2]","element_type":"float","shape":[2],"required":false}]"#,
    );
    assert_form(&odd.parameters(), r#"{"tensors":2,"elements":4,"bytes":16}"#);
    assert_form(
        &odd.operators(),
        r#"[{"domain":"ai.onnx","name":"Add","nodes":1,"function":false},
        {"domain":"ai.onnx","name":"Sub","nodes":1,"function":false},
        {"domain":"com.example","name":"Unknown","nodes":1,"function":false}]"#,
    );
    assert_form(
        &odd.unsupported_operators(),
        r#"[{"domain":"com.example","name":"Unknown","opset":1,"nodes":1,
        "why":"operator not implemented"}]"#,
    );
    assert_form(
        &odd.state_variables(),
        r#"[{"name":"w","entry":null,"type":"float","shape":[2]}]"#,
    );
    assert_form(&odd.device_configurations(), r#"[{"name":"c","num_devices":2,"devices":[]}]"#);
    let calls = model(CALLS);
    assert_form(
        &calls.functions(),
        r#"[{"domain":"local","name":"twice","overload":"","inputs":["v"],"outputs":["u"],
        "nodes":1}]"#,
    );
    let types = calls.infer(&InferOptions::new());
    assert_form(
        &calls.nodes(Some(&types))[1],
        r#"{"graph":"graph","index":1,"name":"","domain":"ai.onnx","operator":"MatMul",
        "inputs":[{"name":"a","type":"float[N, 4]","source":"node","made_by":0,"output":false},
        {"name":"w","type":"float[4, 2]","source":"initializer","made_by":null,
        "output":false}],
        "outputs":[{"name":"b","type":"float[N, 2]","source":"node","made_by":1,
        "output":false}]}"#,
    );
}

#[test]
fn stored_tensors_say_where_their_values_are() {
    assert_form(
        &model(ODD).tensors()[1],
        r#"{"name":"w","place":"graph.initializer[1]","role":"initializer","type":"float",
        "type_number":1,"shape":[2],"elements":2,"bytes":10,"storage":"typed",
        "field":"float_data"}"#,
    );
    let external = model(EXTERNAL);
    assert_form(
        &external.tensors(),
        r#"[{"name":"w","place":"graph.initializer[0]","role":"initializer","type":"float",
        "type_number":1,"shape":[2],"elements":2,"bytes":8,"storage":"external",
        "location":"w.bin","offset":16,"length":8,"checksum":null}]"#,
    );
    assert_form(&external.external_files(), r#"[{"location":"w.bin","tensors":1,"bytes":8}]"#);
}

#[test]
fn texts_say_what_is_wrong_and_what_they_omit() {
    let wrong = "<ir_version: 10, opset_import: [\"\": 21]>
g (float[N] x) => (float[N] y) {
    y = Relu (x
    z =
}
";
    assert_form(
        &Model::format_text(wrong.as_bytes().to_vec()).unwrap_err(),
        r#"[{"code":"syntax-error","message":"expected `,` or `)` after an input, found `z`",
        "line":4,"column":5,"help":"the `(` of line 3 has no `)`"}]"#,
    );
    let portable = PrintOptions::new().form(TextForm::Portable);
    let left_out = portable.print(&model(ODD), &mut Vec::new()).unwrap();
    assert_form(&left_out, r#"["training steps: model","device configurations: model"]"#);
}
