//! `sardonyx train`.

use std::fs;
use std::path::Path;

use crate::support::{Answer, Files, digits_model, floats, npy, sardonyx};
use serde_json::Value;

/// Linear model y = x * w + b, trained by gradient descent on the mean squared error.
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

/// Creates the linear model, and data with eight points of 2 x + 1.
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

/// Lists the names of the files in the directory.
fn names_of(files: &Files) -> Vec<String> {
    let entries = fs::read_dir(files.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn train(files: &Files, args: &[&str]) -> Answer {
    let data = files.path("data");
    files.run("train", "line.onnxtxt", &[&["--data", &data, "-q"], args].concat())
}

/// Reads an initializer of a model that is one number, with the command `cat`.
fn number(model: &str, name: &str) -> f64 {
    let text = sardonyx(&["cat", model, name, "--json"]).good();
    let json: Value = serde_json::from_str(&text).unwrap();
    let mut value = &json["tensors"][0]["values"];
    while value.is_array() {
        value = &value[0];
    }
    value.as_f64().unwrap()
}

/// Checks TRAIN-27+: the written model has the trained values.
#[test]
fn training_learns_a_line() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let answer =
        files.run("train", "line.onnxtxt", &["--data", &data, "--steps", "300", "-o", &out]);
    let lines: Vec<&str> = answer.stderr.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(lines.len(), 300, "{}", answer.stderr);
    // With w = b = 0 the loss is the mean of (2 x + 1)^2.
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

/// Checks that --learning-rate is refused for a model whose rate is a constant.
#[test]
fn a_rate_that_is_a_constant_is_refused() {
    let files = files();
    let out = files.path("out.onnx");
    train(&files, &["--steps", "1", "--learning-rate", "1", "-o", &out])
        .fails_with(&["no training step has an input 'learning_rate'", "target: float[N, 1]"]);
    assert!(!Path::new(&out).exists());
}

/// Checks DIST-16+: training on two devices, each with a part of the examples, gives the results of
/// one. The saved state can be loaded without devices.
#[test]
fn training_learns_a_line_on_devices() {
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
    sardonyx(&unknown).fails_with(&["no configuration 'three'; it has 'batch-2'"]);
    let without = ["train", &two, "--data", &data, "--configuration", "batch-2", "-o", &out];
    sardonyx(&without).fails_with(&["--devices"]);
    files
        .run("train", "line.onnxtxt", &["--data", &data, "--devices", "-o", &out])
        .fails_with(&["the model has no device configuration"]);
}

#[test]
fn the_json_answer_has_the_history() {
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
    // The seed determines the order of the examples.
    let w = number(&out, "w");
    let again = |seed: &str| {
        let args = ["--epochs", "3", "--batch", "3", "--shuffle", "--seed", seed, "-o", &out];
        train(&files, &args).good();
        number(&out, "w")
    };
    assert_eq!(again("5").to_bits(), w.to_bits());
    assert_ne!(again("6").to_bits(), w.to_bits());
}

/// Checks that an evaluation weights batches by their sizes.
#[test]
fn an_evaluation_is_the_mean_over_all_examples() {
    let files = files();
    let (out, data) = (files.path("out.onnx"), files.path("data"));
    let loss = |batch: &str| {
        let args = ["--steps", "1", "--batch", batch, "--eval", &data, "--json", "-o", &out];
        let answer: Value = serde_json::from_str(&train(&files, &args).good()).unwrap();
        answer["evaluations"][0]["outputs"]["loss"].as_f64().unwrap()
    };
    // The step has all examples, so both evaluations have the same state.
    let whole = loss("8");
    let args = ["--steps", "1", "--eval", &data, "--json", "-o", &out];
    let uncut: Value = serde_json::from_str(&train(&files, &args).good()).unwrap();
    assert_eq!(uncut["evaluations"][0]["outputs"]["loss"].as_f64(), Some(whole));
    // With a rate of 0 no step changes the state, so that the size of batches must not matter.
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
    answer.fails_with(&[".safetensors or .npz"]);
}

#[test]
fn initialize_runs_the_initialization() {
    let files = files();
    let out = files.path("out.onnx");
    train(&files, &["--steps", "0", "--initialize", "-o", &out]).good();
    assert_eq!(number(&out, "w"), 5.0);
    train(&files, &["--steps", "0", "-o", &out]).good();
    assert_eq!(number(&out, "w"), 0.0);
}

/// Checks TRAIN-14+: --entry trains one of two entries.
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
    answer.fails_with(&["training step 2 does not exist", "a training entry from 0 to 1"]);
}

/// Checks TRAIN-23-: models without training information and data that do not match are refused.
#[test]
fn untrainable_models_and_data_are_refused() {
    let files = files();
    let out = files.path("out.onnx");
    sardonyx(&["train", &digits_model(), "-o", &out])
        .fails_with(&["no training information", "add-training"]);
    files.run("train", "line.onnxtxt", &["-o", &out]).fails_with(&["no array for the input 'x"]);
    train(&files, &[]).fails_with(&["no output"]);
    for option in ["--batch", "--epochs"] {
        train(&files, &[option, "0", "-o", &out]).fails_with(&[option, "at least 1"]);
        train(&files, &[option, "-2", "-o", &out]).fails_with(&[option, "at least 1"]);
    }
    train(&files, &["--learning-rate", "-1", "-o", &out]).fails_with(&["is not negative"]);
    train(&files, &["--mapped", "-o", &out]).fails_with(&["--mapped cannot be used for training"]);
    train(&files, &["--batch", "2", "--whole", "z", "-o", &out]).fails_with(&["no array 'z'"]);

    let x = files.path("data") + "/x.npy";
    let unknown = files.path("data") + "/targat.npy";
    fs::copy(&x, &unknown).unwrap();
    train(&files, &["-o", &out])
        .fails_with(&["no training step has an input 'targat'", "'target'"]);
    fs::remove_file(&unknown).unwrap();
    let variable = files.path("data") + "/w.npy";
    fs::copy(&x, &variable).unwrap();
    train(&files, &["-o", &out]).fails_with(&["'w' is a state variable", "inputs are: x, target"]);
    fs::remove_file(&variable).unwrap();
    // The advice names the files that --data takes, and how to make them.
    files.run("train", "line.onnxtxt", &["--data", &x, "-o", &out]).fails_with(&[
        "expected a .npz file with training data, found an array (.npy)",
        "numpy.savez(\"data.npz\", x=x, target=target)",
        "x.npy, target.npy",
    ]);
    fs::write(&x, npy("<f4", "(4, 1)", &floats(&[0.0; 4]))).unwrap();
    train(&files, &["--batch", "2", "-o", &out]).fails_with(&["8 examples", "but 'x' has 4"]);
    // The first step fails, so nothing is saved.
    train(&files, &["-o", &out]).fails_with(&["N"]);
    fs::write(&x, npy("<f8", "(8, 1)", &[0; 64])).unwrap();
    train(&files, &["-o", &out]).fails_with(&["input 'x' has element type float", "--cast"]);
    assert!(!Path::new(&out).exists());
    train(&files, &["--cast", "-o", &out]).good();
}

/// Checks before the first step that outputs can be written and do not overwrite inputs.
#[test]
fn outputs_are_checked_before_the_first_step() {
    let files = files();
    let (state, out) = (files.path("state.npz"), files.path("out.onnx"));
    train(&files, &["--state", &state, "-o", &out]).good();
    let data = files.path("data");
    let (x, beyond) = (data.clone() + "/x.npy", files.path("none") + "/out.onnx");
    let before = [&x, &state].map(|path| fs::read(path).unwrap());
    for (args, words) in [
        (vec!["-o", &x], &["arrays", "choose another file"][..]),
        (vec!["--state", &state, "-o", &state], &["arrays"]),
        (vec!["--state", &x, "-o", &out], &["is an input file and is not overwritten"]),
        (vec!["-o", &data], &["is a directory", "model.onnx"]),
        (vec!["-o", &beyond], &["no such directory", "create the directory"]),
        (vec!["--state", &beyond, "-o", &out], &["no such directory"]),
        (vec!["--state", &data, "-o", &out], &["is a directory"]),
    ] {
        let answer = train(&files, &[&["--every", "1"], &args[..]].concat());
        assert!(!answer.stderr.contains("step 1"), "{}", answer.stderr);
        answer.fails_with(words);
    }
    assert!([&x, &state].map(|path| fs::read(path).unwrap()) == before);
    let (new, again) = (files.path("new.npz"), data.clone() + "/../new.npz");
    train(&files, &["--state", &new, "-o", &again]).fails_with(&["both the state and the model"]);
    assert!(!Path::new(&new).exists());
}

/// Checks that the error for an input of a wrong shape lists the inputs, but not the state.
#[test]
fn the_inputs_of_a_step_are_listed() {
    let files = files();
    let out = files.path("out.onnx");
    let x = files.path("data") + "/x.npy";
    fs::write(&x, npy("<f4", "(8, 2)", &floats(&[0.0; 16]))).unwrap();
    let answer = train(&files, &["-o", &out]);
    assert!(!answer.stderr.contains("w: float"), "{}", answer.stderr);
    answer.fails_with(&[
        "dimension 1 is 2 and should be 1",
        "the inputs are\n  x: float[N, 1]\n  target: float[N, 1]\n",
    ]);
}

/// Checks that the first step with a NaN or infinite loss is noted, and later ones are not.
#[test]
fn a_loss_that_is_not_finite_is_noted_once() {
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

    // Inputs so large that gradient descent diverges.
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

/// Checks that a smaller last batch is left out if the input has a fixed size.
#[test]
fn a_partial_batch_is_left_out_if_sizes_are_fixed() {
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

/// Training that runs until it is stopped, and has done its first hundred steps.
#[cfg(unix)]
struct Endless {
    child: std::process::Child,
    lines: Box<dyn Iterator<Item = String>>,
}

#[cfg(unix)]
impl Endless {
    fn start(files: &Files, more: &[&str]) -> Endless {
        Endless::begin(std::process::Command::new(env!("CARGO_BIN_EXE_sardonyx")), files, more)
    }

    fn begin(mut command: std::process::Command, files: &Files, more: &[&str]) -> Endless {
        use std::io::{BufRead, BufReader};

        let (model, data) = (files.path("line.onnxtxt"), files.path("data"));
        let mut child = command
            .args(["train", &model, "--data", &data, "--steps", "1000000000", "--every", "100"])
            .args(more)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = Box::new(stderr.lines().map(Result::unwrap));
        assert!(lines.any(|line| line.starts_with("step 100:")));
        Endless { child, lines }
    }

    fn send(&self, signal: &str) {
        use std::process::Command;

        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end, and returns the exit code with the remaining lines of stderr.
    fn end(mut self) -> (Option<i32>, Vec<String>) {
        let rest = self.lines.collect();
        (self.child.wait().unwrap().code(), rest)
    }
}

/// Checks that SIGINT, SIGTERM and SIGHUP stop training and save its state, also if they are sent
/// twice at once, as `timeout` does.
#[cfg(unix)]
#[test]
fn an_interrupted_training_is_saved() {
    for (signal, times) in [("-INT", 1), ("-INT", 2), ("-TERM", 1), ("-TERM", 3), ("-HUP", 1)] {
        let files = files();
        let (out, state) = (files.path("out.onnx"), files.path("state.npz"));
        let training = Endless::start(&files, &["--state", &state, "-o", &out]);
        (0..times).for_each(|_| training.send(signal));
        let (code, rest) = training.end();
        assert_eq!(code, Some(2), "{signal}: {rest:?}");
        for words in ["training ended after ", "the run was stopped", "wrote "] {
            assert!(rest.iter().any(|line| line.contains(words)), "{signal}, {words}: {rest:?}");
        }
        assert!((number(&out, "w") - 2.0).abs() < 0.2);
        train(&files, &["--steps", "1", "--state", &state]).good();
        assert_eq!(names_of(&files), ["data", "line.onnxtxt", "out.onnx", "state.npz"]);
    }
}

/// Checks that training under `nohup` goes on after SIGHUP.
#[cfg(target_os = "linux")]
#[test]
fn training_under_nohup_survives_sighup() {
    let files = files();
    let out = files.path("out.onnx");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", r#"trap '' HUP; exec "$0" "$@""#, env!("CARGO_BIN_EXE_sardonyx")]);
    let mut training = Endless::begin(command, &files, &["-o", &out]);
    training.send("-HUP");
    let steps = training.lines.by_ref().take(50).filter(|line| line.starts_with("step "));
    assert_eq!(steps.count(), 50);
    training.send("-TERM");
    assert_eq!(training.end().0, Some(2));
    assert!((number(&out, "w") - 2.0).abs() < 1e-3);
}

/// Checks that the state is saved if the model cannot be written, and vice versa.
#[cfg(unix)]
#[test]
fn the_model_is_written_if_the_state_cannot_be() {
    for (lost, kept) in [("state.npz", "out.onnx"), ("out.onnx", "state.npz")] {
        let files = files();
        for name in [lost, kept] {
            fs::create_dir(files.path("of-") + name).unwrap();
        }
        let place = |name: &str| files.path("of-") + name + "/" + name;
        let training =
            Endless::start(&files, &["--state", &place("state.npz"), "-o", &place("out.onnx")]);
        fs::remove_dir_all(files.path("of-") + lost).unwrap();
        training.send("-TERM");
        let (code, rest) = training.end();
        assert_eq!(code, Some(2), "{rest:?}");
        let told = |words: &str| rest.iter().any(|line| line.contains(words));
        assert!(told("the run was stopped") && told(&format!("wrote {}", place(kept))), "{rest:?}");
        assert!(told(&format!("cannot write '{}'", place(lost))), "{rest:?}");
        assert_eq!(told("the written model has the trained values"), lost == "state.npz");
        if kept == "out.onnx" {
            assert!((number(&place(kept), "w") - 2.0).abs() < 0.2);
        } else {
            train(&files, &["--steps", "1", "--state", &place(kept)]).good();
        }
    }
}

/// Checks that the next training removes the temporary files of a killed one, but not those that a
/// process has open.
#[cfg(unix)]
#[test]
fn files_of_ended_processes_are_removed() {
    let files = files();
    let (state, out) = (files.path("state.npz"), files.path("out.onnx"));
    let training = Endless::start(&files, &["--state", &state, "-o", &out]);
    let process = training.child.id();
    training.send("-KILL");
    training.end();
    let abandoned = [format!(".sardonyx-{process}-0.tmp"), format!(".state.npz.{process}.tmp")];
    abandoned.iter().for_each(|name| fs::write(files.path(name), b"x").unwrap());
    let held = format!(".sardonyx-{process}-1.tmp");
    let file = fs::File::create(files.path(&held)).unwrap();
    file.lock().unwrap();
    train(&files, &["--steps", "1", "--state", &state, "-o", &out]).good();
    assert_eq!(names_of(&files), [&held, "data", "line.onnxtxt", "out.onnx", "state.npz"]);
    drop(file);
    train(&files, &["--steps", "1", "-o", &out]).good();
    assert_eq!(names_of(&files), ["data", "line.onnxtxt", "out.onnx", "state.npz"]);
}

/// Linear model with dropout, so that steps draw random numbers, for an optimizer with state of its
/// own.
const NOISY: &str = r#"<ir_version: 10, opset_import: ["": 21]>
line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
  half = Constant <value_float: float = 0.5> ()
  yes = Constant <value: tensor = bool {1}> ()
  dropped = Dropout (x, half, yes)
  y = Gemm (dropped, w, b)
}
"#;

/// Creates the linear model with dropout, with training information and data.
fn noisy() -> Files {
    let files = files();
    fs::write(files.path("noisy.onnxtxt"), NOISY).unwrap();
    let trainable = files.path("line.onnxtxt");
    fs::remove_file(&trainable).unwrap();
    let args = ["--loss", "squared-error", "--optimizer", "adam", "-o", &trainable];
    files.run("add-training", "noisy.onnxtxt", &args).good();
    files
}

/// Checks that training that is interrupted and resumed has the same bits as uninterrupted one: at
/// epochs, in the middle of an epoch, with and without shuffling.
#[test]
fn resumed_training_equals_uninterrupted_training() {
    let files = noisy();
    let (once, out) = (files.path("once.onnx"), files.path("out.onnx"));
    // Batches of 3, 3 and 2 examples: an epoch has three steps.
    let cut: &[&[&[&str]]] = &[
        &[&["--epochs", "1"], &["--epochs", "1"], &["--epochs", "1"], &["--epochs", "1"]],
        &[&["--steps", "5"], &["--steps", "7"]],
        &[
            &["--steps", "1"],
            &["--epochs", "2"],
            &["--steps", "1"],
            &["--steps", "3"],
            &["--epochs", "1"],
        ],
        &[&["--epochs", "3"], &["--steps", "0"], &["--epochs", "1"]],
    ];
    let data = ["--batch", "3", "--seed", "5"];
    for more in [&["--shuffle"][..], &[]] {
        for suffix in ["npz", "safetensors"] {
            let whole = files.path("whole.") + suffix;
            let _ = fs::remove_file(&whole);
            let common = [&data[..], more].concat();
            train(
                &files,
                &[&common[..], &["--epochs", "4", "--state", &whole, "-o", &once]].concat(),
            )
            .good();
            for parts in cut {
                let state = files.path("state.") + suffix;
                let _ = fs::remove_file(&state);
                for part in *parts {
                    train(&files, &[&common[..], part, &["--state", &state, "-o", &out]].concat())
                        .good();
                }
                assert_eq!(files.read("out.onnx"), files.read("once.onnx"), "{more:?} {parts:?}");
                assert!(
                    fs::read(&state).unwrap() == fs::read(&whole).unwrap(),
                    "{more:?} {parts:?}"
                );
            }
        }
    }
    // The state contains the seed and the position in the data.
    let state = files.path("state.npz");
    let answer = files.run(
        "train",
        "line.onnxtxt",
        &[
            "--data",
            &files.path("data"),
            "--batch",
            "3",
            "--shuffle",
            "--seed",
            "6",
            "--steps",
            "1",
            "--state",
            &state,
        ],
    );
    for words in [
        "starting from the state in",
        "state.npz, after 4 epochs\n",
        "--seed 6 is not used: training goes on with the seed 5 of the state",
    ] {
        assert!(answer.stderr.contains(words), "{}", answer.stderr);
    }
    answer.good();
    // With fewer examples than the position counts, the next epoch begins.
    for (name, values) in [("x", [0.0f32, 1.0]), ("target", [1.0, 3.0])] {
        let path = files.path("data") + "/" + name + ".npy";
        fs::write(path, npy("<f4", "(2, 1)", &floats(&values))).unwrap();
    }
    train(&files, &["--batch", "1", "--shuffle", "--epochs", "1", "--state", &state]).good();
}

/// Checks DIST-16+: a state that was saved on two devices can be loaded on three and without
/// annotations, also if `shard` has inlined functions and raised the IR version.
#[test]
fn a_state_is_loaded_on_other_devices() {
    let files = files();
    let (data, state, out) = (files.path("data"), files.path("state.npz"), files.path("out.onnx"));
    let shifted = r#"<ir_version: 10, opset_import: ["": 21, "local": 1]>
line (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
  product = MatMul (x, w)
  y = local.shift (product, b)
}
<domain: "local", opset_import: ["": 21]>
shift (x, b) => (y) { y = Add (x, b) }
"#;
    fs::write(files.path("plain.onnxtxt"), shifted).unwrap();
    let args =
        ["--loss", "squared-error", "--optimizer", "adam", "-o", &files.path("line.onnxtxt")];
    files.run("add-training", "plain.onnxtxt", &args).good();
    let models = [
        ("two.onnx", &["--devices", "2", "--batch"][..]),
        ("three.onnx", &["--devices", "3", "--batch"]),
        ("stages.onnx", &["--devices", "2", "--pipeline"]),
    ];
    for (name, args) in models {
        files.run("shard", "line.onnxtxt", &[args, &["-o", &files.path(name)]].concat()).good();
    }
    let steps = |model: &str, more: &[&str]| {
        let common = ["--data", &data, "-q", "--steps", "3", "--state", &state, "-o", &out];
        files.run("train", model, &[&common[..], more].concat()).good();
    };
    train(&files, &["--steps", "15", "-o", &out]).good();
    let whole = [number(&out, "w"), number(&out, "b")];
    steps("two.onnx", &["--devices"]);
    steps("three.onnx", &["--devices"]);
    steps("line.onnxtxt", &[]);
    steps("stages.onnx", &["--devices"]);
    steps("two.onnx", &[]);
    for (name, whole) in ["w", "b"].into_iter().zip(whole) {
        assert!((number(&out, name) - whole).abs() < 1e-5, "{name}");
    }
    // Any other difference of the model is refused.
    let other = fs::read_to_string(files.path("line.onnxtxt")).unwrap();
    assert!(other.contains("w = {0}"), "{other}");
    fs::write(files.path("other.onnxtxt"), other.replace("w = {0}", "w = {0.5}")).unwrap();
    files
        .run("train", "other.onnxtxt", &["--data", &data, "--state", &state, "-o", &out])
        .fails_with(&["holds the state of another model"]);
}

/// Returns the model y = x * w in bfloat16, with a training step that adds the input to w and with
/// another state variable of type int4. `name` is the name of w.
fn halves(name: &str) -> String {
    format!(
        r#"<notation: "full", ir_version: 10, opset_import: ["": 21]>
g (bfloat16[2] x) => (bfloat16[2] y) <bfloat16[2] "{name}" = {{0, 0}}, int4[3] codes = {{8, 7}}> {{
  y = Mul (x, "{name}")
}}
@<training_info: [{{
  algorithm: add () => (bfloat16[2] w1, int4[3] c1) {{
    w1 = Add ("{name}", x)
    c1 = Identity (codes)
  }},
  update_binding: ["{name}": "w1", "codes": "c1"]
}}]>
"#
    )
}

/// Checks before the first step that the file of the state can hold all its types and can be
/// written. Types that NumPy lacks are stored as bare bytes.
#[test]
fn state_files_are_checked_before_the_first_step() {
    let files = Files::new(&[
        ("halves.onnxtxt", halves("w").into()),
        ("named.onnxtxt", halves("sardonyx.model").into()),
    ]);
    fs::create_dir(files.path("data")).unwrap();
    let x: Vec<u8> = [0x3F80u16, 0x3F00].iter().flat_map(|x| x.to_le_bytes()).collect();
    fs::write(files.path("data") + "/x.npy", npy("<V2", "(2,)", &x)).unwrap();
    let (data, out) = (files.path("data"), files.path("out.onnx"));
    let mut rows = vec![
        ("halves.onnxtxt", "state.safetensors", &["'codes'", "int4", "use a .npz file"][..]),
        ("halves.onnxtxt", "state.pt", &["'", "use the extension .safetensors or .npz"]),
        ("halves.onnxtxt", "state", &["is not supported"]),
        ("named.onnxtxt", "state.npz", &["sardonyx.model", "use a .safetensors file"]),
    ];
    if cfg!(target_os = "linux") {
        rows.push(("halves.onnxtxt", "/proc/state.npz", &["cannot write '/proc/state.npz'"]));
    }
    for (model, state, words) in rows {
        let state = files.path(state);
        let answer = files.run("train", model, &["--data", &data, "--state", &state, "-o", &out]);
        assert!(!answer.stderr.contains("step 1"), "{}", answer.stderr);
        answer.fails_with(words);
        assert!(!Path::new(&out).exists() && !Path::new(&state).exists());
    }
    if cfg!(target_os = "linux") {
        let args = ["--data", &data, "-o", "/proc/out.onnx"];
        files.run("train", "halves.onnxtxt", &args).fails_with(&["cannot write '/proc/out.onnx'"]);
    }

    let state = files.path("state.npz");
    for _ in 0..2 {
        let args = ["--data", &data, "--state", &state, "-o", &out, "-q"];
        files.run("train", "halves.onnxtxt", &args).good();
    }
    let arrays = sardonyx::tool::npz::read(&files.read("state.npz").into()).unwrap();
    let array = |name: &str, data_type| {
        let (_, bytes) = arrays.iter().find(|(found, _)| found == name).unwrap();
        let header = String::from_utf8_lossy(&bytes.as_slice()[..80]).into_owned();
        (header, sardonyx::tool::npy::read_as(bytes, data_type).unwrap().to_string())
    };
    let (header, w) = array("w", sardonyx::DataType::Bfloat16);
    assert!(header.contains("'descr': '<V2'"), "{header}");
    assert_eq!(w, "bfloat16[2] {2.0, 1.0}");
    let (header, codes) = array("codes", sardonyx::DataType::Int4);
    assert!(header.contains("'descr': '<V1'"), "{header}");
    assert_eq!(codes, "int4[3] {-8, 0, 7}");
}
