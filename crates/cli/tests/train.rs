//! `sardonyx train`.

use std::fs;
use std::path::Path;

use crate::support::{Answer, Files, digits_model, floats, npy, sardonyx};
use serde_json::Value;

/// y = x * w + b, and descent by the mean of squares.
const LINE: &str = r#"<notation: "full", ir_version: 10, opset_import: ["": 21]>
line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
  y = Gemm (x, w, b)
}
@<training_info: [{
  initialization: start () => (float[1, 1] w0) {
    flat = Constant <value_floats: floats = [5.0]> ()
    size = Constant <value_ints: ints = [1, 1]> ()
    w0 = Reshape (flat, size)
  },
  algorithm: descent (float[N, 1] target) => (float loss, float[1, 1] w1, float[1] b1)
    <float rate = {0.1}> {
      d = Sub (y, target)
      s = Mul (d, d)
      loss = ReduceMean <keepdims: int = 0> (s)
      axis = Constant <value_ints: ints = [0]> ()
      xd = Mul (x, d)
      slope_w = ReduceMean <keepdims: int = 1> (xd, axis)
      slope_b = ReduceMean <keepdims: int = 0> (d, axis)
      change_w = Mul (slope_w, rate)
      change_b = Mul (slope_b, rate)
      w1 = Sub (w, change_w)
      b1 = Sub (b, change_b)
    },
  initialization_binding: ["w": "w0"],
  update_binding: ["w": "w1", "b": "b1"]
}]>
"#;

/// Eight points of 2 x + 1.
fn files() -> Files {
    let files = Files::new(&[("line.onnxtxt", LINE.into())]);
    fs::create_dir(files.path("data")).unwrap();
    let x: Vec<f32> = (0..8).map(|i| i as f32 / 2.0 - 2.0).collect();
    let target: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    for (name, values) in [("x", x), ("target", target)] {
        let path = files.path("data") + "/" + name + ".npy";
        fs::write(path, npy("<f4", "(8, 1)", &floats(&values))).unwrap();
    }
    files
}

fn train(files: &Files, args: &[&str]) -> Answer {
    let data = files.path("data");
    files.run("train", "line.onnxtxt", &[&["--data", &data, "-q"], args].concat())
}

/// An initializer of a model, by the command `cat`.
fn number(model: &str, name: &str) -> f64 {
    let text = sardonyx(&["cat", model, name, "--json"]).good();
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut value = &json["tensors"][0]["values"];
    while value.is_array() {
        value = &value[0];
    }
    value.as_f64().unwrap()
}

/// TRAIN-27+: the model that is written has the values that training gave it.
#[test]
fn a_line_is_learnt() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let answer =
        files.run("train", "line.onnxtxt", &["--data", &data, "--steps", "300", "-o", &out]);
    let lines: Vec<&str> = answer.stderr.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(lines.len(), 300, "{}", answer.stderr);
    // The mean of (2 x + 1)^2.
    assert_eq!(lines[0], "step 1: loss 5.5");
    assert!(answer.stderr.contains("--initialize starts from the model's initialization"));
    answer.good();
    assert!((number(&out, "w") - 2.0).abs() < 1e-3 && (number(&out, "b") - 1.0).abs() < 1e-3);
    let info = sardonyx(&["info", &out]).good();
    for line in [
        "training    entry 0: initialization start, algorithm descent (target) => (loss, w1, b1)",
        "state       w  float[1, 1]\n            b  float[1]\n",
    ] {
        assert!(info.contains(line), "lacks {line}:\n{info}");
    }

    train(&files, &["--steps", "1", "--inference", "-o", &out]).good();
    let json = sardonyx(&["info", &out, "--json"]).good();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["training_steps"], &json["state_variables"]),
        (&0.into(), &Value::Array(vec![]))
    );
    assert!(number(&out, "w") > 0.0);
}

/// The rate of this training is a constant, which the command cannot set.
#[test]
fn a_rate_that_is_no_input_is_refused() {
    let files = files();
    let out = files.path("out.onnx");
    train(&files, &["--steps", "1", "--learning-rate", "1", "-o", &out])
        .refused(&["no training step has an input 'learning_rate'", "target: float[N, 1]"]);
    assert!(!Path::new(&out).exists());
}

/// DIST-16+: the same on two devices, each with a part of the examples. A state that was saved
/// there is loaded without devices.
#[test]
fn a_line_is_learnt_on_devices() {
    let files = files();
    let (two, out) = (files.path("two.onnx"), files.path("out.onnx"));
    let (data, state) = (files.path("data"), files.path("state.npz"));
    let answer = files.run("shard", "line.onnxtxt", &["--devices", "2", "--batch", "-o", &two]);
    assert!(answer.stderr.contains("'batch-2': 1 input split along the first axis"));
    answer.good();
    let on_devices = ["--devices", "--configuration", "batch-2"];
    let common = ["train", &two, "--data", &data, "-q", "-o", &out, "--state", &state];
    let args = [&common[..], &["--steps", "20"], &on_devices].concat();
    sardonyx(&args).good();
    let near = number(&out, "w");
    assert!((near - 2.0).abs() > 1e-3 && (near - 2.0).abs() < 0.5, "{near}");
    sardonyx(&[&common[..], &["--steps", "300"]].concat()).good();
    assert!((number(&out, "w") - 2.0).abs() < 1e-3 && (number(&out, "b") - 1.0).abs() < 1e-3);

    let unknown =
        ["train", &two, "--data", &data, "--devices", "--configuration", "three", "-o", &out];
    sardonyx(&unknown).refused(&["no configuration 'three'; it has 'batch-2'"]);
    let without = ["train", &two, "--data", &data, "--configuration", "batch-2", "-o", &out];
    sardonyx(&without).refused(&["--devices"]);
    files
        .run("train", "line.onnxtxt", &["--data", &data, "--devices", "-o", &out])
        .refused(&["the model has no device configuration"]);
}

#[test]
fn what_happened_is_told_in_json() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let args = [
        "--epochs",
        "3",
        "--batch",
        "3",
        "--shuffle",
        "--seed",
        "5",
        "--eval",
        &data,
        "--json",
        "-o",
        &out,
    ];
    let keys = ["model", "steps", "seed", "history", "evaluations", "not_finite", "state", "saved"];
    let answer = train(&files, &args).json("sardonyx.train/1", &keys);
    // Batches of 3, 3 and 2 examples.
    assert_eq!((&answer["steps"], &answer["seed"]), (&9.into(), &5.into()));
    let history = answer["history"].as_array().unwrap();
    let steps: Vec<_> = history.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=9).collect::<Vec<_>>());
    let evaluations = answer["evaluations"].as_array().unwrap();
    let losses: Vec<f64> =
        evaluations.iter().map(|row| row["outputs"]["loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 3 && losses[0] > losses[1] && losses[1] > losses[2], "{losses:?}");
    // The same seed is the same order, another one another.
    let w = number(&out, "w");
    let again = |seed: &str| {
        let args = ["--epochs", "3", "--batch", "3", "--shuffle", "--seed", seed, "-o", &out];
        train(&files, &args).good();
        number(&out, "w")
    };
    assert_eq!(again("5").to_bits(), w.to_bits());
    assert_ne!(again("6").to_bits(), w.to_bits());
}

/// The mean over batches of different sizes is that over all examples.
#[test]
fn an_evaluation_is_the_mean_over_all_examples() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let loss = |batch: &str| {
        let args = ["--steps", "1", "--batch", batch, "--eval", &data, "--json", "-o", &out];
        let answer: Value = serde_json::from_str(&train(&files, &args).good()).unwrap();
        answer["evaluations"][0]["outputs"]["loss"].as_f64().unwrap()
    };
    // The first step sees all examples, so both begin with the same state.
    let whole = loss("8");
    let args = ["--steps", "1", "--eval", &data, "--json", "-o", &out];
    let uncut: Value = serde_json::from_str(&train(&files, &args).good()).unwrap();
    assert_eq!(uncut["evaluations"][0]["outputs"]["loss"].as_f64(), Some(whole));
    // With a state that no step changes, by a rate of zero, batches must not matter.
    let still = LINE.replace("rate = {0.1}", "rate = {0}");
    fs::write(files.path("line.onnxtxt"), still).unwrap();
    assert!((loss("3") - 5.5).abs() < 1e-5 && (loss("8") - 5.5).abs() < 1e-5);
}

#[test]
fn training_goes_on_from_a_state() {
    let files = files();
    let (once, out) = (files.path("once.onnx"), files.path("out.onnx"));
    train(&files, &["--steps", "20", "-o", &once]).good();
    for name in ["state.npz", "state.safetensors"] {
        let state = files.path(name);
        train(&files, &["--steps", "12", "--state", &state]).good();
        train(&files, &["--steps", "8", "--state", &state, "-o", &out]).good();
        assert_eq!(files.read("out.onnx"), files.read("once.onnx"), "{name}");
    }
    let answer = train(&files, &["--steps", "1", "--state", &files.path("a.txt")]);
    answer.refused(&[".safetensors or .npz"]);
}

#[test]
fn initialization_is_run_if_asked_for() {
    let files = files();
    let out = files.path("out.onnx");
    train(&files, &["--steps", "0", "--initialize", "-o", &out]).good();
    assert_eq!(number(&out, "w"), 5.0);
    train(&files, &["--steps", "0", "-o", &out]).good();
    assert_eq!(number(&out, "w"), 0.0);
}

/// TRAIN-14+: one of two entries.
#[test]
fn one_entry_is_trained() {
    let text = r#"<notation: "full", ir_version: 10, opset_import: ["": 21]>
g () => (float y) <float w = {3}> { y = Neg (w) }
@<training_info: [
  { algorithm: add () => (float size, float a) { size = Abs (w) a = Add (w, w) }, update_binding: ["w": "a"] },
  { algorithm: halve () => (float b) <float half = {0.5}> { b = Mul (w, half) }, update_binding: ["w": "b"] }
]>
"#;
    let files = Files::new(&[("two.onnxtxt", text.into())]);
    let out = files.path("out.onnx");
    for (args, expected) in
        [(&["--entry", "0"][..], 3.0 * 16.0), (&["--entry", "1"], 3.0 / 16.0), (&[], 3.0)]
    {
        let args = [args, &["--steps", "4", "-o", &out]].concat();
        let answer = files.run("train", "two.onnxtxt", &args);
        let has_size = answer.stderr.contains("step 1, entry 0: y -3, size 3");
        assert_eq!(has_size, args[1] != "1", "{}", answer.stderr);
        answer.good();
        assert_eq!(number(&out, "w"), expected);
    }
    let answer = files.run("train", "two.onnxtxt", &["--entry", "2", "-o", &out]);
    answer.refused(&["training step 2 does not exist", "an entry from 0 to 1"]);
}

/// TRAIN-23-: a model that does not say how it is trained; data that do not fit.
#[test]
fn what_cannot_be_trained_is_refused() {
    let files = files();
    let out = files.path("out.onnx");
    sardonyx(&["train", &digits_model(), "-o", &out])
        .refused(&["no training information", "add-training"]);
    files.run("train", "line.onnxtxt", &["-o", &out]).refused(&["no array for the input 'x"]);
    train(&files, &[]).refused(&["no output"]);
    for option in ["--batch", "--epochs"] {
        train(&files, &[option, "0", "-o", &out]).refused(&[option, "at least 1"]);
        train(&files, &[option, "-2", "-o", &out]).refused(&[option, "at least 1"]);
    }
    train(&files, &["--learning-rate", "-1", "-o", &out]).refused(&["is not negative"]);
    train(&files, &["--batch", "2", "--whole", "z", "-o", &out]).refused(&["no array 'z'"]);

    let x = files.path("data") + "/x.npy";
    let unknown = files.path("data") + "/targat.npy";
    fs::copy(&x, &unknown).unwrap();
    train(&files, &["-o", &out]).refused(&["no training step has an input 'targat'", "'target'"]);
    fs::remove_file(&unknown).unwrap();
    let variable = files.path("data") + "/w.npy";
    fs::copy(&x, &variable).unwrap();
    train(&files, &["-o", &out]).refused(&["'w' is a state variable", "inputs are: x, target"]);
    fs::remove_file(&variable).unwrap();
    // What --data takes, and how to make it.
    files.run("train", "line.onnxtxt", &["--data", &x, "-o", &out]).refused(&[
        "this is a single array (.npy), but data are a .npz file",
        "numpy.savez(\"data.npz\", x=x, target=target)",
        "x.npy, target.npy",
    ]);
    fs::write(&x, npy("<f4", "(4, 1)", &floats(&[0.0; 4]))).unwrap();
    train(&files, &["--batch", "2", "-o", &out]).refused(&["8 examples", "but 'x' has 4"]);
    // The step itself fails: nothing was reached, so nothing is saved.
    train(&files, &["-o", &out]).refused(&["N"]);
    fs::write(&x, npy("<f8", "(8, 1)", &[0; 64])).unwrap();
    train(&files, &["-o", &out]).refused(&["input 'x' has element type float", "--cast"]);
    assert!(!Path::new(&out).exists());
    train(&files, &["--cast", "-o", &out]).good();
}

/// What is read is not replaced, and what cannot be written is found out before any step.
#[test]
fn outputs_are_looked_at_before_the_first_step() {
    let files = files();
    let (state, out) = (files.path("state.npz"), files.path("out.onnx"));
    train(&files, &["--state", &state, "-o", &out]).good();
    let data = files.path("data");
    let (x, beyond) = (data.clone() + "/x.npy", files.path("none") + "/out.onnx");
    let before = [&x, &state].map(|path| fs::read(path).unwrap());
    for (args, words) in [
        (vec!["-o", &x], &["arrays", "choose another file"][..]),
        (vec!["--state", &state, "-o", &state], &["arrays"]),
        (vec!["--state", &x, "-o", &out], &["is an input and is not overwritten"]),
        (vec!["-o", &data], &["is a directory", "model.onnx"]),
        (vec!["-o", &beyond], &["no such directory", "create the directory"]),
        (vec!["--state", &beyond, "-o", &out], &["no such directory"]),
        (vec!["--state", &data, "-o", &out], &["is a directory"]),
    ] {
        let answer = train(&files, &[&["--every", "1"], &args[..]].concat());
        assert!(!answer.stderr.contains("step 1"), "{}", answer.stderr);
        answer.refused(words);
    }
    assert!([&x, &state].map(|path| fs::read(path).unwrap()) == before);
}

/// An input of a step that does not fit: the inputs are listed, not the state.
#[test]
fn the_inputs_of_a_step_are_listed() {
    let files = files();
    let out = files.path("out.onnx");
    let x = files.path("data") + "/x.npy";
    fs::write(&x, npy("<f4", "(8, 2)", &floats(&[0.0; 16]))).unwrap();
    let answer = train(&files, &["-o", &out]);
    assert!(!answer.stderr.contains("w: float"), "{}", answer.stderr);
    answer.refused(&[
        "dimension 1 is 2 and should be 1",
        "the inputs are\n  x: float[N, 1]\n  target: float[N, 1]\n",
    ]);
}

/// A loss that is NaN or infinite is pointed out once, where it begins.
#[test]
fn a_loss_that_is_not_finite_is_pointed_out() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let notes = |more: &[&str]| {
        let args = ["--data", &data, "--steps", "60", "--every", "0", "--json", "-o", &out];
        let answer = files.run("train", "line.onnxtxt", &[&args[..], more].concat());
        let stderr = answer.stderr.clone();
        let json: Value = serde_json::from_str(&answer.good()).unwrap();
        (stderr, json["not_finite"].clone())
    };
    let (_, fine) = notes(&[]);
    assert_eq!(fine, Value::Null);

    // Steps that are too long for numbers of this size.
    let x: Vec<f32> = (0..8).map(|i| i as f32 * 100.0).collect();
    fs::write(data.clone() + "/x.npy", npy("<f4", "(8, 1)", &floats(&x))).unwrap();
    let (text, first) = notes(&[]);
    let step = first["step"].as_u64().unwrap();
    assert!(step > 1 && first["output"] == "loss", "{first}");
    let expected = format!("the output 'loss' is infinite from step {step} on");
    assert!(text.contains(&expected) && text.contains("a lower --learning-rate"), "{text}");
    assert_eq!(text.matches("from step").count(), 1, "{text}");

    fs::write(data.clone() + "/x.npy", npy("<f4", "(8, 1)", &floats(&[f32::NAN; 8]))).unwrap();
    let (text, first) = notes(&[]);
    assert_eq!(first["step"], 1);
    assert!(text.contains("'loss' is NaN from step 1 on") && text.contains("the data"), "{text}");
}

/// A last batch that is smaller does not fit an input of a fixed size.
#[test]
fn examples_that_fill_no_batch_are_left_out_where_sizes_are_fixed() {
    let files = files();
    let fixed = LINE.replace("[N, 1] x", "[3, 1] x").replace("[N, 1] target", "[3, 1] target");
    fs::write(files.path("line.onnxtxt"), fixed.replace("[N, 1] y", "[3, 1] y")).unwrap();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let args = ["--data", &data, "--batch", "3", "--json", "-o", &out];
    let answer = files.run("train", "line.onnxtxt", &args);
    assert!(answer.stderr.contains("2 examples of each epoch are omitted"), "{}", answer.stderr);
    let json: Value = serde_json::from_str(&answer.good()).unwrap();
    assert_eq!(json["steps"], 2);
}

/// Ctrl-C ends training, and what it reached is saved.
#[cfg(unix)]
#[test]
fn an_interrupted_training_is_saved() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let files = files();
    let (out, state) = (files.path("out.onnx"), files.path("state.npz"));
    let (model, data) = (files.path("line.onnxtxt"), files.path("data"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
        .args(["train", &model, "--data", &data, "--steps", "1000000000"])
        .args(["--every", "100", "--state", &state, "-o", &out])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("step 100:")));
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{rest:?}");
    assert!(rest.iter().any(|line| line.starts_with("training ended after ")), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("the run was stopped")), "{rest:?}");
    assert!((number(&out, "w") - 2.0).abs() < 0.2);
    train(&files, &["--steps", "1", "--state", &state]).good();
}
