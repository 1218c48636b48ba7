//! What the command does when all is well.

#![allow(clippy::unwrap_used)] // a panic is the report

mod support;

use std::fs;

use support::{chain, digits, digits_model, floats, npy, sardonyx, sardonyx_with_stdin};
use tempfile::tempdir;

const DIGITS: [&str; 10] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

#[test]
fn each_picture_gives_its_digit() {
    for (digit, name) in DIGITS.iter().enumerate() {
        let picture = digits().join(format!("{name}.png"));
        let text = sardonyx(&["run", &digits_model(), picture.to_str().unwrap()]).good();
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with(&digit.to_string()) && first.contains('█'),
            "{name}: {text}"
        );
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}

#[test]
fn info_says_what_the_model_is() {
    let text = sardonyx(&["info", &digits_model()]).good();
    for word in [
        "IR version 10",
        "ai.onnx 21",
        "image",
        "float[N, 1, 8, 8]",
        "probabilities",
        "33,546",
        "3  Conv",
        "Gray8",
    ] {
        assert!(text.contains(word), "lacks {word}:\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&sardonyx(&["info", "--json", &digits_model()]).good()).unwrap();
    assert_eq!(json["schema"], "sardonyx.info/1");
    assert_eq!(
        json["inputs"][0]["shape"],
        serde_json::json!(["N", 1, 8, 8])
    );
    assert_eq!(json["parameters"]["elements"], 33_546);
    assert_eq!(json["runnable"], true);
}

#[test]
fn a_model_may_come_from_stdin() {
    let text = sardonyx_with_stdin(&["info", "-"], &digits().join("digits.onnx")).good();
    assert!(text.contains("IR version 10"), "{text}");
}

#[test]
fn run_answers_in_json() {
    let picture = digits().join("seven.png");
    let args = [
        "run",
        &digits_model(),
        picture.to_str().unwrap(),
        "--json",
        "--repeat",
        "3",
        "--top",
        "2",
        "--threads",
        "1",
    ];
    let json: serde_json::Value = serde_json::from_str(&sardonyx(&args).good()).unwrap();
    assert_eq!(json["schema"], "sardonyx.run/1");
    assert_eq!(json["threads"], 1);
    assert_eq!(json["timing"]["runs"], 3);
    assert_eq!(json["outputs"][0]["shape"], serde_json::json!([1, 10]));
    assert_eq!(json["outputs"][0]["values"].as_array().unwrap().len(), 10);
    assert_eq!(json["top"][0]["classes"][0]["label"], "7");
    assert_eq!(json["top"][0]["classes"].as_array().unwrap().len(), 2);
}

#[test]
fn labels_may_come_from_a_file() {
    let folder = tempdir().unwrap();
    let labels = folder.path().join("labels.txt");
    fs::write(&labels, DIGITS.join("\n")).unwrap();
    let picture = digits().join("three.png");
    let text = sardonyx(&[
        "run",
        &digits_model(),
        picture.to_str().unwrap(),
        "--labels",
        labels.to_str().unwrap(),
        "--top",
        "1",
    ])
    .good();
    assert!(
        text.starts_with("three ") && text.lines().count() == 1,
        "{text}"
    );
}

#[test]
fn arrays_go_in_and_come_out() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    fs::write(path("relu.onnx"), chain(&["Relu"], &[2])).unwrap();
    fs::write(path("x.npy"), npy("<f4", "(2,)", &floats(&[-1.0, 2.0]))).unwrap();
    fs::write(
        path("d.npy"),
        npy(
            "<f8",
            "(2,)",
            &[-1.0f64, 2.0].map(f64::to_le_bytes).concat(),
        ),
    )
    .unwrap();
    // TensorProto: dims 2, float, raw data
    fs::write(
        path("x.pb"),
        [b"\x08\x02\x10\x01\x4a\x08".to_vec(), floats(&[-1.0, 2.0])].concat(),
    )
    .unwrap();
    let expected = "y: float[2]\n  0.0 2.0\n";
    for inputs in [
        vec![path("x.npy")],
        vec![format!("x={}", path("x.npy"))],
        vec![path("x.pb")],
        vec![path("d.npy"), "--cast".to_string()],
    ] {
        let model = path("relu.onnx");
        let mut args = vec!["run", &model];
        args.extend(inputs.iter().map(String::as_str));
        assert_eq!(sardonyx(&args).good(), expected, "{inputs:?}");
    }
    // Out as .npz, whose only array is called y; in again under the name x.
    sardonyx(&[
        "run",
        &path("relu.onnx"),
        &path("x.npy"),
        "--output",
        &path("y.npz"),
    ])
    .good();
    assert_eq!(
        sardonyx(&["run", &path("relu.onnx"), &format!("x={}", path("y.npz"))]).good(),
        expected
    );
    sardonyx(&[
        "run",
        &path("relu.onnx"),
        &path("x.npy"),
        "--output",
        &path("out"),
    ])
    .good();
    assert_eq!(
        fs::read(path("out/y.npy")).unwrap(),
        npy("<f4", "(2,)", &floats(&[0.0, 2.0]))
    );
}

#[test]
fn inputs_are_never_overwritten() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    fs::write(path("relu.onnx"), chain(&["Relu"], &[2])).unwrap();
    let array = npy("<f4", "(2,)", &floats(&[-1.0, 2.0]));
    fs::write(path("y.npy"), &array).unwrap();
    sardonyx(&[
        "run",
        &path("relu.onnx"),
        &path("y.npy"),
        "--output",
        &path("."),
    ])
    .refused(&["y.npy", "not overwritten"]);
    assert_eq!(fs::read(path("y.npy")).unwrap(), array);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "nothing is left behind"
    );
}

#[test]
fn random_inputs_repeat_and_take_named_sizes() {
    let run = |seed: &str| {
        sardonyx(&[
            "run",
            &digits_model(),
            "--random",
            seed,
            "--dim",
            "N=3",
            "--json",
        ])
        .good()
    };
    let json: serde_json::Value = serde_json::from_str(&run("1")).unwrap();
    assert_eq!(json["outputs"][0]["shape"], serde_json::json!([3, 10]));
    let values =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["outputs"].clone();
    assert_eq!(values(&run("1")), values(&run("1")));
    assert_ne!(values(&run("1")), values(&run("2")));
    let answer = sardonyx(&["run", &digits_model(), "--random", "1"]);
    assert!(
        answer.stderr.contains("taken as 1") && answer.stderr.contains('N'),
        "{}",
        answer.stderr
    );
    answer.good();
    let quiet = sardonyx(&["run", &digits_model(), "--random", "1", "-q"]);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn bench_answers_in_one_line() {
    let text = sardonyx(&[
        "bench",
        &digits_model(),
        "--random",
        "1",
        "--budget",
        "0",
        "--threads",
        "2",
        "--json",
        "-q",
    ])
    .good();
    assert_eq!(text.lines().count(), 1);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["n"], 7);
    for key in ["load_ms", "first_ms", "median_ms", "min_ms"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{text}");
    }
    let text = sardonyx(&[
        "bench",
        &digits_model(),
        "--random",
        "1",
        "--budget",
        "0",
        "-q",
    ])
    .good();
    assert!(text.contains("median"), "{text}");
}

#[test]
fn help_and_version_are_answers() {
    assert!(sardonyx(&["--help"]).good().contains("Usage"));
    assert!(sardonyx(&["--version"]).good().starts_with("sardonyx "));
    assert_eq!(sardonyx(&[]).code, Some(2));
    assert_eq!(sardonyx(&["info"]).code, Some(2));
}
