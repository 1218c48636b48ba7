//! `sardonyx add-training` and `sardonyx differentiate`.

use crate::support::{Files, digits_model, floats, npy, sardonyx};
use serde_json::{Value, json};

const LINE: &str = "<ir_version: 8, opset_import: [\"\": 17]>
g (float[N, 1] x) => (float[N, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
  y = Gemm (x, w, b)
}
";

const HARD: &str = "<ir_version: 8, opset_import: [\"\": 17, \"ai.onnx.ml\": 3]>
g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
  a = MatMul (x, w)
  y = ai.onnx.ml.Normalizer (a)
}
";

fn files() -> Files {
    let files = Files::new(&[("line.onnxtxt", LINE.into()), ("hard.onnxtxt", HARD.into())]);
    std::fs::create_dir(files.path("data")).unwrap();
    let x: Vec<f32> = (0..8).map(|i| i as f32 / 2.0 - 2.0).collect();
    let target: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    for (name, values) in [("x", x), ("target", target)] {
        let path = files.path("data") + "/" + name + ".npy";
        std::fs::write(path, npy("<f4", "(8, 1)", &floats(&values))).unwrap();
    }
    files
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Checks that a model without training information can be given some, and then learns a line.
#[test]
fn training_is_added_and_run() {
    let files = files();
    let (ready, out, data) = (files.path("ready.onnx"), files.path("out.onnx"), files.path("data"));
    let args = [
        "--loss",
        "squared-error",
        "--optimizer",
        "momentum",
        "--learning-rate",
        "0.1",
        "-o",
        &ready,
    ];
    let answer = files.run("add-training", "line.onnxtxt", &args);
    assert!(answer.stderr.contains("training 2 variables with 2 elements"), "{}", answer.stderr);
    let inputs = "new inputs: 'target', 'learning_rate' (has a default); new output: 'loss'";
    assert!(answer.stderr.contains(inputs), "{}", answer.stderr);
    answer.good();
    sardonyx(&["check", "--strict", &ready]).good();
    let again = files.path("again.onnx");
    let answer = sardonyx(&["add-training", &ready, "--loss", "squared-error", "-o", &again]);
    assert!(answer.stderr.contains("has training information already"), "{}", answer.stderr);
    answer.good();
    let args =
        ["train", &ready, "--data", &data, "--steps", "200", "-q", "--inference", "-o", &out];
    sardonyx(&args).good();
    for (name, expected) in [("w", 2.0), ("b", 1.0)] {
        let found = json(&sardonyx(&["cat", &out, name, "--json"]).good());
        let mut value = &found["tensors"][0]["values"];
        while value.is_array() {
            value = &value[0];
        }
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-3, "{name} is {value}");
    }
}

#[test]
fn the_json_answer_lists_added_training() {
    let out = Files::new(&[]);
    let out = out.path("out.onnx");
    let model = digits_model();
    let args = ["add-training", &model, "--loss", "cross-entropy", "--json", "-o", &out];
    let answer = json(&sardonyx(&args).good());
    let report = &answer["report"];
    assert_eq!(answer["schema"], "sardonyx.add-training/1");
    assert_eq!(report["variables"].as_array().unwrap().len(), 8);
    assert_eq!(report["variables"][0], json!({"name": "conv1.weight", "elements": 144}));
    assert_eq!(report["opset"], json!({"from": 21, "to": 21}));
    assert_eq!((&report["label"], &report["loss"]), (&json!("label"), &json!("loss")));

    let args = ["differentiate", &model, "--of", "logits", "--by", "image", "--json", "-o", &out];
    let answer = json(&sardonyx(&args).good());
    let gradients = json!([{"by": "image", "output": "image_grad"}]);
    assert_eq!(
        (&answer["report"]["gradients"], &answer["report"]["of"]),
        (&gradients, &json!("logits"))
    );
    let info = json(&sardonyx(&["info", &out, "--json"]).good());
    let names: Vec<&str> =
        info["outputs"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["probabilities", "image_grad"]);

    // Other runtimes refuse two nodes with one name, so the node for the gradient of the MaxPool
    // has another one.
    let text = sardonyx(&["print", &out, "--no-weights"]).good();
    assert_eq!(text.matches("[pool]").count(), 1, "{text}");
}

#[test]
fn operators_without_gradient_are_listed() {
    let files = files();
    let out = files.path("out.onnx");
    for (command, more) in
        [("add-training", &["--loss", "squared-error"][..]), ("differentiate", &[])]
    {
        let args = [&["-o", &out], more].concat();
        let answer = files.run(command, "hard.onnxtxt", &args);
        assert_eq!(answer.code, Some(1), "{}", answer.stderr);
        assert!(answer.stdout.contains("have no gradient: Normalizer"), "{}", answer.stdout);
        assert!(answer.stdout.contains("1 refusal, nothing was written"), "{}", answer.stdout);
        let answer =
            json(&files.run(command, "hard.onnxtxt", &[&args[..], &["--json"]].concat()).stdout);
        assert_eq!(answer["refusals"][0]["code"], "no-gradient");
    }
    assert!(!std::path::Path::new(&out).exists());
}

/// Checks that errors of the model are reported at its own nodes, and not at added ones.
#[test]
fn contradicting_shapes_are_reported_at_their_nodes() {
    let text = "<ir_version: 8, opset_import: [\"\": 17]>
g (float[2] x) => (float[2] z) <float[3] c = {1, 2, 3}> {
  y = Add (x, c)
  z = Neg (y)
}
";
    let files = Files::new(&[("wrong.onnxtxt", text.into())]);
    let out = files.path("out.onnx");
    for (command, more) in
        [("add-training", &["--loss", "squared-error"][..]), ("differentiate", &[])]
    {
        let answer = files.run(command, "wrong.onnxtxt", &[&["-o", &out], more].concat());
        assert_eq!(answer.code, Some(1), "{}", answer.stderr);
        assert!(answer.stdout.contains("y = Add (x, c)"), "{}", answer.stdout);
    }
}

#[test]
fn wrong_options_are_explained() {
    let files = files();
    let out = files.path("out.onnx");
    let message = |command: &str, args: &[&str]| {
        let answer = files.run(command, "line.onnxtxt", &[args, &["-o", &out]].concat());
        assert_eq!(answer.code, Some(2));
        answer.stderr
    };
    let loss = ["--loss", "squared-error"];
    let with = |more: &[&str]| message("add-training", &[&loss[..], more].concat());
    assert!(with(&["--train", "v*"]).contains("no initializer 'v*' exists"));
    assert!(with(&["--init", "xavir"]).contains("did you mean 'xavier'?"));
    assert!(with(&["--of", "W"]).contains("the model has no output 'W'; it has y"));
    assert!(with(&["--learning-rate", "0"]).contains("the learning rate must be greater than 0"));
    assert!(with(&["--init", "uniform:0"]).contains("not one of keep, he, xavier"));
    let both = with(&["--clip-norm", "1", "--clip-value", "1"]);
    assert!(
        both.contains("'--clip-norm <NORM>' cannot be used with '--clip-value <LIMIT>'"),
        "{both}"
    );
    let message_of_norm = "the greatest norm of gradients has to be greater than 0, not 0";
    assert!(with(&["--clip-norm", "0"]).contains(message_of_norm));
    assert!(with(&["--of", "z"]).contains("the model has no output 'z'; it has y"));
    for (optimizer, option, words) in [
        ("sgd", "--momentum", "the optimizer sgd has no momentum; momentum and nesterov have it"),
        (
            "adam",
            "--momentum",
            "remove --momentum, or use --optimizer momentum or --optimizer nesterov",
        ),
        ("nesterov", "--beta1", "the optimizer nesterov has no beta1; adam and adamw have it"),
        ("adagrad", "--beta2", "the optimizer adagrad has no beta2; adam and adamw have it"),
        ("momentum", "--epsilon", "adagrad, adam and adamw have it"),
        ("adamw", "--rate-decay", "remove --rate-decay, or use --optimizer adagrad"),
    ] {
        let said = with(&["--optimizer", optimizer, option, "0.5"]);
        assert!(said.contains(words), "{said}");
    }
    for option in ["--class-axis", "--ignore-class"] {
        let said = with(&[option, "1"]);
        assert!(said.contains(&format!("the loss squared-error does not take {option}")), "{said}");
    }
    assert!(message("add-training", &[]).contains("--loss"));
    assert!(message("differentiate", &["--of", "z"]).contains("the model has no value 'z'"));
    let by = message("differentiate", &["--by", "z*"]);
    assert!(by.contains("'y' does not depend on any"), "{by}");
}

/// Checks that the nodes that replace a Gradient node give the same results.
#[test]
fn gradient_nodes_are_expanded() {
    let files = files();
    let (node, nodes, x) = (files.path("node.onnx"), files.path("nodes.onnx"), files.path("data"));
    files.run("differentiate", "line.onnxtxt", &["--gradient-node", "-o", &node]).good();
    let answer = sardonyx(&["differentiate", "--expand", &node, "-o", &nodes]);
    assert!(answer.stderr.contains("replaced 1 Gradient node by"), "{}", answer.stderr);
    answer.good();
    sardonyx(&["check", &nodes]).good();
    let input = format!("x={x}/x.npy");
    let run =
        |model: &str| json(&sardonyx(&["run", model, &input, "--json"]).good())["outputs"].clone();
    let (with_node, with_nodes) = (run(&node), run(&nodes));
    assert_eq!(with_node, with_nodes);
    let names: Vec<&str> =
        with_nodes.as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["y", "x_grad", "w_grad", "b_grad"]);
}

/// Checks that --learning-rate sets the rate of a run, and that it is refused for training
/// information without such an input.
#[test]
fn the_learning_rate_is_set_for_a_run() {
    let files = files();
    let (ready, data) = (files.path("ready.onnx"), files.path("data"));
    let args = ["--loss", "squared-error", "--optimizer", "sgd", "--learning-rate", "0.1"];
    files.run("add-training", "line.onnxtxt", &[&args[..], &["-o", &ready]].concat()).good();
    let weight = |name: &str, more: &[&str]| {
        let out = files.path(name);
        let args = ["train", &ready, "--data", &data, "--steps", "1", "-o", &out];
        sardonyx(&[&args[..], more].concat()).good();
        let text = sardonyx(&["cat", &out, "w", "--json"]).good();
        let answer = json(&text);
        let mut value = &answer["tensors"][0]["values"];
        while value.is_array() {
            value = &value[0];
        }
        value.as_f64().unwrap()
    };
    let (usual, half) = (weight("a.onnx", &[]), weight("b.onnx", &["--learning-rate", "0.05"]));
    assert!(usual != 0.0 && (usual / half - 2.0).abs() < 1e-5, "{usual} {half}");
    for (rate, words) in [("1e39", "too large for float"), ("-0.1", "is not negative")] {
        let out = files.path("refused.onnx");
        let args = ["train", &ready, "--data", &data, "--learning-rate", rate, "-o", &out];
        sardonyx(&args).fails_with(&[words]);
    }
    let stays = weight("c.onnx", &["--learning-rate", "0", "--batch", "4"]);
    assert!(stays == 0.0, "{stays}");
    let refused = sardonyx(&["train", &ready, "--learning-rate", "fast", "-o", &ready]);
    assert!(refused.stderr.contains("a learning rate is a number"), "{}", refused.stderr);
}

/// Checks that a profile of a training step uses the stored weights, and not random ones.
#[test]
fn a_profile_of_a_step_uses_the_stored_state() {
    let files = files();
    let ready = files.path("ready.onnx");
    files.run("add-training", "line.onnxtxt", &["--loss", "squared-error", "-o", &ready]).good();
    let step = ["profile", "-v", &ready, "--training-step", "0", "--runs", "1", "--set", "N=2"];
    let answer = sardonyx(&step);
    for (name, is_filled) in [("x", true), ("target", true), ("w", false), ("b", false)] {
        let note = format!("the input '{name}' is filled");
        assert_eq!(answer.stderr.contains(&note), is_filled, "{name}: {}", answer.stderr);
    }
    answer.good();
    let answer = sardonyx(&[&step[..], &["--fill", "w=ones"]].concat());
    let filled = "the input 'w' is filled with 1";
    assert!(answer.stderr.contains(filled), "{}", answer.stderr);
    answer.good();
}
