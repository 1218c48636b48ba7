//! Successful runs of the command.

use std::fs;

use crate::support::{
    Files, chain, digits, digits_model, floats, npy, sardonyx, sardonyx_with_stdin,
};
use sardonyx::io::write_value;
use sardonyx::value::{Map, MapKey, Sequence};
use sardonyx::{DataType, Tensor, Value, ValueType};
use tempfile::tempdir;

const DIGITS: [&str; 10] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

#[test]
fn each_image_gives_its_digit() {
    for (digit, name) in DIGITS.iter().enumerate() {
        let image = digits().join(format!("{name}.png"));
        let text = sardonyx(&["run", &digits_model(), image.to_str().unwrap()]).good();
        let first = text.lines().next().unwrap();
        assert!(first.starts_with(&digit.to_string()) && first.contains('█'), "{name}: {text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }
}

#[test]
fn info_describes_the_model() {
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
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["N", 1, 8, 8]));
    assert_eq!(json["parameters"]["elements"], 33_546);
    assert_eq!(json["runnable"], true);
}

#[test]
fn a_model_may_come_from_stdin() {
    let text = sardonyx_with_stdin(&["info", "-"], &digits().join("digits.onnx")).good();
    assert!(text.contains("IR version 10"), "{text}");
}

/// Checks places of findings in a text from a pipe, which can be read only once.
#[cfg(unix)]
#[test]
fn a_text_may_come_from_a_pipe() {
    let files = Files::new(&[]);
    let pipe = files.path("model.onnxtxt");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let text =
        "<ir_version: 10, opset_import: [\"\": 21]>\ng (float x) => (float y) {\n y = Relu(z)\n}";
    for (command, key) in [("check", "files"), ("parse", "text")] {
        let args = [command, &pipe, "--json"];
        let output = files.path("model.onnx");
        let more = if command == "parse" { &["-o", output.as_str()][..] } else { &[] };
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| fs::write(&pipe, text).unwrap());
            sardonyx(&[&args[..], more].concat())
        });
        let json: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        assert!(!json[key].is_null(), "{json}");
        let findings =
            if command == "check" { &json["files"][0]["findings"] } else { &json["findings"] };
        let place = (&findings[0]["line"], &findings[0]["column"]);
        assert_eq!(place, (&3.into(), &11.into()), "{command}: {findings}");
    }
}

#[test]
fn run_answers_in_json() {
    let image = digits().join("seven.png");
    let args = [
        "run",
        &digits_model(),
        image.to_str().unwrap(),
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
    let directory = tempdir().unwrap();
    let labels = directory.path().join("labels.txt");
    fs::write(&labels, DIGITS.join("\n")).unwrap();
    let image = digits().join("three.png");
    let text = sardonyx(&[
        "run",
        &digits_model(),
        image.to_str().unwrap(),
        "--labels",
        labels.to_str().unwrap(),
        "--top",
        "1",
    ])
    .good();
    assert!(text.starts_with("three ") && text.lines().count() == 1, "{text}");
}

#[test]
fn arrays_go_in_and_come_out() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    fs::write(path("relu.onnx"), chain(&["Relu"], &[2])).unwrap();
    fs::write(path("x.npy"), npy("<f4", "(2,)", &floats(&[-1.0, 2.0]))).unwrap();
    fs::write(path("d.npy"), npy("<f8", "(2,)", &[-1.0f64, 2.0].map(f64::to_le_bytes).concat()))
        .unwrap();
    // TensorProto: dims 2, float, raw data
    fs::write(path("x.pb"), [b"\x08\x02\x10\x01\x4a\x08".to_vec(), floats(&[-1.0, 2.0])].concat())
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
    // The only array of the .npz file is y; it is passed again under the name x.
    sardonyx(&["run", &path("relu.onnx"), &path("x.npy"), "--output", &path("y.npz")]).good();
    assert_eq!(
        sardonyx(&["run", &path("relu.onnx"), &format!("x={}", path("y.npz"))]).good(),
        expected
    );
    sardonyx(&["run", &path("relu.onnx"), &path("x.npy"), "--output", &path("out")]).good();
    assert_eq!(fs::read(path("out/y.npy")).unwrap(), npy("<f4", "(2,)", &floats(&[0.0, 2.0])));
}

/// Builds the text of a model with these outputs and nodes.
fn text_model(outputs: &str, nodes: &str) -> Vec<u8> {
    format!(
        "<ir_version: 10, opset_import: [\"\": 21]> g (float[2] x) => ({outputs}) {{ {nodes} }}"
    )
    .into_bytes()
}

#[test]
fn the_output_name_selects_format_and_place() {
    let files = Files::new(&[
        ("one.onnx", chain(&["Relu"], &[2])),
        ("two.onnxtxt", text_model("float[2] y, float[2] z", "y = Relu(x) z = Neg(x)")),
        ("odd.onnxtxt", text_model("float[2] \"a/b:c\"", "\"a/b:c\" = Relu(x)")),
        ("x.npy", npy("<f4", "(2,)", &floats(&[-1.0, 2.0]))),
    ]);
    let x = files.path("x.npy");
    let run = |model: &str, target: &str| {
        let target = match target {
            "-" => "-".to_string(),
            name => files.path(name),
        };
        files.run("run", model, &[&x, "-o", &target])
    };
    run("one.onnx", "out.npy").good();
    let array = npy("<f4", "(2,)", &floats(&[0.0, 2.0]));
    assert_eq!(files.read("out.npy"), array);
    run("one.onnx", "OUT.NPY").good();
    assert_eq!(files.read("OUT.NPY"), array);
    run("one.onnx", "out.csv").good();
    assert_eq!(files.read("out.csv"), b"0.0,2.0\n");
    run("one.onnx", "out.pb").good();
    assert!(files.read("out.pb").ends_with(&floats(&[0.0, 2.0])));
    run("one.onnx", "out.npz").good();
    run("two.onnxtxt", "two.npz").good();
    assert!(files.read("two.npz").len() > files.read("out.npz").len());
    // Stdout has only the values.
    let answer = run("one.onnx", "-");
    assert_eq!((answer.stdout.as_str(), answer.code), ("0.0 2.0\n", Some(0)));
    for target in ["several.npy", "several.pb", "-"] {
        run("two.onnxtxt", target).fails_with(&["2 outputs", ".npz", "directory"]);
    }
    let answer = files.run("run", "one.onnx", &[&x, "-o", "-", "--top", "1"]);
    answer.fails_with(&["ranking", "stdout"]);
    let answer = files.run("run", "one.onnx", &[&x, "-o", "-", "--json"]);
    assert_eq!(answer.code, Some(2));
    files.run("bench", "one.onnx", &["-o", "-"]).fails_with(&["stdout", "--output"]);
    // Any other name is a directory. A note names the file of an output whose name it cannot have.
    let answer = run("odd.onnxtxt", "directory");
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    for words in ["directory/a_b_c.npy", "note: the file of the output 'a/b:c'"] {
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
    }
    let json = files.run("run", "odd.onnxtxt", &[&x, "-o", &files.path("directory"), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.good()).unwrap();
    assert_eq!(json["files"][0]["output"], "a/b:c");
    let file = json["files"][0]["file"].as_str().unwrap();
    assert!(file.ends_with("directory/a_b_c.npy"));
    for name in ["several.npy", "several.pb"] {
        assert!(!fs::exists(files.path(name)).unwrap(), "{name}");
    }
}

/// Checks that sequences, optionals and maps are written to `.pb` files as messages of the standard
/// and can be read back.
#[test]
fn sequences_maps_and_optionals_go_through_pb_files() {
    const X: [f32; 2] = [1.0, 2.0];
    const Y: [f32; 3] = [3.0, 4.0, 5.0];
    let tensor = |x: &[f32]| Tensor::from_slice([x.len()], x).unwrap();
    let ty = ValueType::Tensor(DataType::Float);
    let mut sequence = Sequence::new(ty.clone());
    sequence.push(tensor(&X).into()).unwrap();
    sequence.push(tensor(&Y).into()).unwrap();
    let mut by_name = Map::new(DataType::String, ty.clone()).unwrap();
    by_name.push(MapKey::String(b"b".as_slice().into()), tensor(&X).into()).unwrap();
    by_name.push(MapKey::String(b"".as_slice().into()), tensor(&Y).into()).unwrap();
    let mut by_number = Map::new(DataType::Int64, ty.clone()).unwrap();
    by_number.push(MapKey::Signed(-7), tensor(&X).into()).unwrap();
    let mut maps = Sequence::new(ValueType::Map(DataType::Int64, Box::new(ty.clone())));
    maps.push(Value::Map(by_number.clone())).unwrap();
    let optional = |inner: Option<Value>| Value::Optional(ty.clone(), inner.map(Box::new));
    let rows = [
        ("seq(float[])", Value::Sequence(sequence.clone())),
        ("seq(float[])", Value::Sequence(Sequence::new(ty.clone()))),
        ("seq(map(int64, float[]))", Value::Sequence(maps)),
        ("optional(float[])", optional(Some(tensor(&X).into()))),
        ("optional(float[])", optional(None)),
        (
            "optional(seq(float[]))",
            Value::Optional(
                ValueType::Sequence(Box::new(ty.clone())),
                Some(Box::new(Value::Sequence(sequence))),
            ),
        ),
        ("map(string, float[])", Value::Map(by_name)),
        ("map(int64, float[])", Value::Map(by_number)),
    ];
    for (spelled, value) in rows {
        let model = |outputs: &str, more: &str| {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]> g ({spelled} v, float[N] x) => ({outputs}) {{ {more} }}"
            );
            text.into_bytes()
        };
        let files = Files::new(&[
            ("one.onnxtxt", model(&format!("{spelled} w"), "w = Identity(v)")),
            (
                "two.onnxtxt",
                model(&format!("{spelled} w, float[N] y"), "w = Identity(v) y = Neg(x)"),
            ),
            ("x.npy", npy("<f4", "(2,)", &floats(&X))),
            ("v.pb", write_value(&value, "v").unwrap()),
        ]);
        let run = |model: &str, v: &str, to: &str| {
            let [v, x] = [format!("v={}", files.path(v)), format!("x={}", files.path("x.npy"))];
            files.run("run", model, &[&v, &x, "-o", &files.path(to)])
        };
        // Writing, reading and writing again gives equal bytes.
        run("one.onnxtxt", "v.pb", "first.pb").good();
        run("one.onnxtxt", "first.pb", "second.pb").good();
        assert_eq!(files.read("first.pb"), files.read("second.pb"), "{spelled}");
        assert_eq!(files.read("first.pb"), write_value(&value, "w").unwrap(), "{spelled}");
        run("two.onnxtxt", "second.pb", "directory").good();
        assert_eq!(files.read("directory/w.pb"), files.read("first.pb"), "{spelled}");
        // Other formats cannot hold the value, and the message names those that can.
        for to in ["w.npy", "w.npz", "w.csv"] {
            let answer = run("one.onnxtxt", "v.pb", to);
            let has_items = matches!(&value, Value::Sequence(items)
                if items.items().iter().any(|item| item.as_tensor().is_some()));
            if to == "w.npz" && has_items {
                answer.good();
                run("one.onnxtxt", to, "third.pb").good();
                assert_eq!(files.read("third.pb"), files.read("first.pb"), "{spelled}");
            } else {
                answer.fails_with(&["'w'", "only .pb files can hold", "--output DIR"]);
            }
        }
        run("two.onnxtxt", "v.pb", "several.pb").fails_with(&[
            "2 outputs",
            "one value",
            "--output DIR",
        ]);
        // A truncated file is refused.
        fs::write(
            files.path("cut.pb"),
            &files.read("first.pb")[..files.read("first.pb").len() - 1],
        )
        .unwrap();
        run("one.onnxtxt", "cut.pb", "never.pb").fails_with(&["cut.pb"]);
        assert!(!fs::exists(files.path("never.pb")).unwrap(), "{spelled}");
    }
}

#[test]
fn rankings_name_the_meaning_of_scores() {
    let files = Files::new(&[
        ("soft.onnxtxt", text_model("float[2] y", "y = Softmax(x)")),
        ("log.onnxtxt", text_model("float[2] y", "y = LogSoftmax(x)")),
        ("plain.onnxtxt", text_model("float[2] y", "y = Identity(x)")),
        ("x.npy", npy("<f4", "(2,)", &floats(&[-1.0, 2.0]))),
        ("infinite.npy", npy("<f4", "(2,)", &floats(&[f32::INFINITY, 2.0]))),
    ]);
    let rows = [
        ("soft.onnxtxt", "x.npy", " 95.26 %", "Softmax", "probabilities"),
        ("log.onnxtxt", "x.npy", " 95.26 %", "exp of the scores", "log-probabilities"),
        ("plain.onnxtxt", "x.npy", "class 1  2\n", "not probabilities", "scores"),
        ("plain.onnxtxt", "infinite.npy", "class 0  inf\n", "not probabilities", "scores"),
    ];
    for (model, input, line, note, kind) in rows {
        let input = files.path(input);
        let answer = files.run("run", model, &[&input, "--top", "2"]);
        assert!(answer.stdout.contains(line), "{model}: {}", answer.stdout);
        assert!(answer.stderr.contains(note), "{model}: {}", answer.stderr);
        assert!(!answer.stdout.contains("NaN"), "{model}: {}", answer.stdout);
        let json = files.run("run", model, &[&input, "--top", "2", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json.good()).unwrap();
        assert_eq!(json["top"][0]["scores"], kind);
        assert_eq!(json["top"][0]["classes"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn missing_files_are_named_and_only_models_are_suggested() {
    let files = Files::new(&[
        ("node.onnx", chain(&["Relu"], &[2])),
        ("nope.txt", b"notes".to_vec()),
        ("nope2.npy", npy("<f4", "(2,)", &floats(&[1.0, 2.0]))),
    ]);
    let answer = files.run("info", "nope.onnx", &[]);
    answer.fails_with(&["no such file", "did you mean", "node.onnx"]);
    let answer = files.run("info", "node.onnx", &[]);
    answer.good();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("absent.onnx", files.path("link.onnx")).unwrap();
        let answer = files.run("info", "link.onnx", &[]);
        assert!(!answer.stderr.contains("did you mean"), "{}", answer.stderr);
        answer.fails_with(&["the path is a link to 'absent.onnx', which does not exist"]);
        std::os::unix::fs::symlink("absent", files.path("models")).unwrap();
        let answer = files.run("info", "models/m.onnx", &[]);
        answer.fails_with(&["models' is a link to 'absent', which does not exist"]);
        let answer = files.run("info", "lin.onnx", &[]);
        assert!(!answer.stderr.contains("link.onnx"), "{}", answer.stderr);
        answer.fails_with(&["no such file"]);
    }
    let lonely = Files::new(&[("nope.txt", b"notes".to_vec())]);
    let answer = lonely.run("info", "nope.onnx", &[]);
    assert!(!answer.stderr.contains("did you mean"), "{}", answer.stderr);
    let missing = files.path("absent/deeper/m.onnx");
    let directory = files.path("absent");
    let words = format!("no such directory: '{directory}'");
    sardonyx(&["info", &missing]).fails_with(&[&words]);
    let words = format!("no such directory: '{directory}'");
    files.run("set", "node.onnx", &["--producer", "me", "-o", &missing]).fails_with(&[&words]);
    files.run("run", "node.onnx", &[&files.path("absent/x.npy")]).fails_with(&[&words]);
}

#[test]
fn inputs_are_never_overwritten() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
    fs::write(path("relu.onnx"), chain(&["Relu"], &[2])).unwrap();
    let array = npy("<f4", "(2,)", &floats(&[-1.0, 2.0]));
    fs::write(path("y.npy"), &array).unwrap();
    sardonyx(&["run", &path("relu.onnx"), &path("y.npy"), "--output", &path(".")])
        .fails_with(&["y.npy", "not overwritten"]);
    assert_eq!(fs::read(path("y.npy")).unwrap(), array);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn random_inputs_repeat_and_take_named_sizes() {
    let run = |seed: &str| {
        sardonyx(&["run", &digits_model(), "--random", seed, "--dim", "N=3", "--json"]).good()
    };
    let json: serde_json::Value = serde_json::from_str(&run("1")).unwrap();
    assert_eq!(json["outputs"][0]["shape"], serde_json::json!([3, 10]));
    let values =
        |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["outputs"].clone();
    assert_eq!(values(&run("1")), values(&run("1")));
    assert_ne!(values(&run("1")), values(&run("2")));
    let answer = sardonyx(&["run", &digits_model(), "--random", "1"]);
    assert!(answer.stderr.contains("set to 1") && answer.stderr.contains('N'), "{}", answer.stderr);
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
    let text = sardonyx(&["bench", &digits_model(), "--random", "1", "--budget", "0", "-q"]).good();
    assert!(text.contains("median"), "{text}");
}

#[test]
fn help_and_version_are_answers() {
    assert!(sardonyx(&["--help"]).good().contains("Usage"));
    assert!(sardonyx(&["--version"]).good().starts_with("sardonyx "));
    assert_eq!(sardonyx(&[]).code, Some(2));
    assert_eq!(sardonyx(&["info"]).code, Some(2));
}

#[test]
fn shells_and_man_learn_the_command_line() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = sardonyx(&["completions", shell]).good();
        for word in ["sardonyx", "differentiate", "expect"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    sardonyx(&["completions", "tcsh"]).fails_with(&["tcsh", "fish"]);
    let files = Files::new(&[]);
    let pages = files.path("man1");
    let answer = sardonyx(&["man", "-o", &pages]);
    assert!(answer.stderr.contains("pages to"), "{}", answer.stderr);
    answer.good();
    let page = fs::read_to_string(format!("{pages}/sardonyx-run.1")).unwrap();
    assert!(page.contains(".TH sardonyx-run 1") && page.contains("\\-\\-expect"), "{page}");
    assert!(fs::metadata(format!("{pages}/sardonyx.1")).is_ok());
}
