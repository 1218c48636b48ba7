//! `sardonyx features`.

use crate::support::{Files, digits_model, sardonyx};

const MIXED: &str = "<ir_version: 10, opset_import: [\"\": 22, \"own\": 1]>\n\
    g (float[S, 1, 2] x, float[1, 9, 2] w, float[1, 9, 3] r, float s) => (float[S, 1, 1, 3] y, uint8[S, 1, 2] q) {\n\
        y = GRU <hidden_size = 3> (x, w, r)\n\
        q = own.Codes (x, s)\n\
    }\n\
    <domain: \"own\", opset_import: [\"\": 22]>\n\
    Codes (x, s) => (q) { q = QuantizeLinear (x, s) }\n";

fn files() -> Files {
    let digits = sardonyx(&["print", &digits_model(), "--inline", "1M"]).good();
    Files::new(&[
        ("mixed.onnxtxt", MIXED.into()),
        ("digits.onnxtxt", digits.into_bytes()),
        ("broken.onnxtxt", b"<ir_version: 10> g (x".to_vec()),
    ])
}

#[test]
fn each_model_is_listed_with_reasons_and_all_become_one_dependency() {
    let files = files();
    let json = files.path("d.json");
    sardonyx(&["save", &digits_model(), "-o", &json]).good();
    let (mixed, digits) = (files.path("mixed.onnxtxt"), files.path("digits.onnxtxt"));
    let text = sardonyx(&["features", &mixed, &digits, &json]).good();
    let expected = format!(
        "{mixed}:\n  quantization: own.Codes\n  recurrent: GRU\n{digits}: no feature\n\
         {json}:\n  json: the file is in protobuf JSON\n\nCargo.toml:\n\
         sardonyx = {{ version = \"{}\", default-features = false, features = [\"json\", \
         \"quantization\", \"recurrent\"] }}\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text, expected);
    let alone = sardonyx(&["features", &digits]).good();
    assert!(alone.ends_with("default-features = false }\n"), "{alone}");
}

#[test]
fn training_steps_need_training() {
    let files = files();
    let trained = files.path("t.onnx");
    let digits = digits_model();
    sardonyx(&["add-training", &digits, "-o", &trained, "--loss", "squared-error"]).good();
    let text = sardonyx(&["features", &trained]).good();
    assert!(text.contains("  training: "), "{text}");
}

#[test]
fn models_that_fail_do_not_hide_the_others() {
    let files = files();
    let (mixed, broken) = (files.path("mixed.onnxtxt"), files.path("broken.onnxtxt"));
    let answer = sardonyx(&["features", "--json", &broken, &mixed]);
    assert_eq!(answer.code, Some(2));
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(json["schema"], "sardonyx.features/1");
    assert_eq!(json["models"][0]["failure"]["code"], "syntax");
    assert_eq!(json["models"][1]["features"][1]["operators"][0], "GRU");
    assert_eq!(json["features"], serde_json::json!(["quantization", "recurrent"]));
    let answer = sardonyx(&["features", &mixed, &files.path("absent.onnx")]);
    assert!(answer.stdout.starts_with(&format!("{mixed}:\n")), "{}", answer.stdout);
    answer.fails_with(&["absent.onnx", "no such file"]);
    assert_eq!(sardonyx(&["features"]).code, Some(2));
}
