//! `--json`: stdout has exactly one JSON value, also if a command fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{
    Answer, Files, add_node, chain, edited_digits, many_tensors, sardonyx, with_external_data,
};
use serde_json::{Value, json};

/// Commands with arguments, one a line; the file describes the placeholders.
const COMMANDS: &str = include_str!("json_commands.txt");

/// Number of damaged files that are tried.
const DAMAGED: usize = 200;

/// Parses stdout as one JSON value, and checks that it names its schema.
fn value(answer: &Answer, what: &str) -> Value {
    let value: Value = serde_json::from_str(&answer.stdout)
        .unwrap_or_else(|error| panic!("{what}: {error}\n{}\n{}", answer.stdout, answer.stderr));
    assert!(value["schema"].is_string(), "{what}: {}", answer.stdout);
    value
}

/// Returns the failure in a JSON answer. Checks that the exit code and stderr match it.
fn failure(answer: &Answer, what: &str) -> Value {
    let value = value(answer, what);
    assert_eq!(value["schema"], "sardonyx.error/2", "{what}");
    assert_eq!(answer.code, Some(2), "{what}");
    let error = value["error"].clone();
    let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
    let expected = ["code", "message", "place", "node", "stopped", "help", "details"];
    assert_eq!(keys, expected, "{what}");
    assert!(!error["message"].as_str().unwrap().is_empty(), "{what}");
    assert!(answer.stderr.contains("error"), "{what}: {}", answer.stderr);
    error
}

/// Runs a line of [`COMMANDS`] on a model.
fn run(line: &str, model: &str, out: &str) -> Answer {
    let args: Vec<String> =
        line.split(' ').map(|word| word.replace("%o", out).replace('%', model)).collect();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.push("--json");
    sardonyx(&args)
}

fn commands() -> Vec<&'static str> {
    let lines = COMMANDS.lines();
    lines.filter(|line| !line.starts_with('#')).collect()
}

/// Returns small models: binary and text, with data files, with training information.
fn models() -> Vec<(&'static str, Vec<u8>)> {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>\n\
        g (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>\n\
        {\n  a = MatMul(x, w)\n  [last] y = Softmax<axis = -1>(a)\n}\n";
    let trained = "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>\n\
        g () => (float y) <float w = {1}> { y = Exp(w) }\n\
        @<training_info: [{algorithm: s () => (float w1) { w1 = Neg(w) }, update_binding: [\"w\": \"w1\"]}]>\n";
    vec![
        ("chain.onnx", chain(&["Relu", "Sigmoid", "Flatten"], &[2])),
        ("many.onnx", many_tensors()),
        ("outside.onnx", with_external_data("weights.bin")),
        ("text.onnxtxt", text.as_bytes().to_vec()),
        ("trained.onnxtxt", trained.as_bytes().to_vec()),
    ]
}

/// Returns models that are cut off or have a flipped bit. They are the same in each run.
fn damage_models() -> Vec<(String, Vec<u8>)> {
    let models = models();
    let mut state: u64 = 1;
    let mut random = move |below: usize| {
        // Linear congruential generator with the constants of Knuth's MMIX. Its upper bits are
        // random enough.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut damaged = Vec::new();
    for index in 0..DAMAGED {
        let (name, bytes) = &models[index % models.len()];
        let at = random(bytes.len());
        let mut bytes = bytes.clone();
        match index / models.len() % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << random(8),
        }
        damaged.push((format!("{index}_{name}"), bytes));
    }
    damaged
}

/// Calls `work` for each number below `count`, on all processors.
fn on_all_processors(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    work(index);
                }
            });
        }
    });
}

#[test]
fn every_command_answers_on_good_models() {
    let mut files: Vec<_> = models();
    files.push(("weights.bin", vec![0; 16]));
    let files = Files::new(&files);
    for line in commands() {
        let command = match line.split(' ').next().unwrap() {
            // The names of other programs for it.
            "sim" | "slim" => "simplify",
            command => command,
        };
        // A command may fail on some of the models, but not on all.
        let mut done = false;
        for (name, _) in models() {
            let answer = run(line, &files.path(name), &files.path("out"));
            let found = value(&answer, line);
            if answer.code == Some(0) {
                let schema = found["schema"].as_str().unwrap();
                let expected = format!("sardonyx.{command}");
                assert!(schema.starts_with(&expected), "{schema}");
                done = true;
            }
        }
        assert!(done, "{line}");
    }
}

#[test]
fn every_command_answers_on_damaged_models() {
    let damaged = damage_models();
    let named: Vec<(&str, Vec<u8>)> =
        damaged.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let files = Files::new(&named);
    let commands = commands();
    on_all_processors(damaged.len(), |index| {
        let name = &damaged[index].0;
        for (number, line) in commands.iter().enumerate() {
            let out = files.path(&format!("out{index}_{number}"));
            let answer = run(line, &files.path(name), &out);
            let what = format!("{line} of {name}");
            let found = value(&answer, &what);
            assert!(matches!(answer.code, Some(0..=2)), "{what}");
            assert!(!answer.stderr.contains("internal error"), "{what}");
            if found["schema"] == "sardonyx.error/2" && answer.code == Some(2) {
                failure(&answer, &what);
            }
        }
    });
}

#[test]
fn failures_have_codes() {
    let files = Files::new(&[
        ("chain.onnx", chain(&["Relu"], &[2])),
        ("cut.onnx", chain(&["Relu"], &[2])[..20].to_vec()),
        ("outside.onnx", with_external_data("absent.bin")),
        ("strange.onnx", edited_digits(|model| add_node(model, "Strange", ""))),
        ("text.npy", b"1 2".to_vec()),
    ]);
    let (chain, cut, absent) =
        (&files.path("chain.onnx"), &files.path("cut.onnx"), &files.path("absent.onnx"));
    let rows: [(&[&str], &str); 17] = [
        (&["info", absent], "io"),
        (&["info", cut], "format"),
        (&["run", chain], "input"),
        (&["run", chain, "x=absent.npy"], "io"),
        (&["run", chain, "z=x.npy"], "input"),
        (&["run", chain, &files.path("text.npy")], "format"),
        (&["run", &files.path("outside.onnx"), "--random", "1"], "external-data"),
        (&["run", &files.path("strange.onnx"), "--random", "1"], "unsupported"),
        (&["cat", chain, "w"], "usage"),
        (&["set", chain, "-o", &files.path("x.onnx")], "usage"),
        (&["ops", "Rleu"], "usage"),
        (&["explain", "no-such-code"], "usage"),
        (&["info"], "usage"),
        (&["info", chain, "--frob"], "usage"),
        (&["ls", chain, "--sort", "colour"], "usage"),
        (&["run", chain, "--repeat", "x"], "usage"),
        (&["frob", chain], "usage"),
    ];
    for (args, code) in rows {
        let answer = sardonyx(&[args, &["--json"]].concat());
        let error = failure(&answer, &format!("{args:?}"));
        assert_eq!(error["code"], code, "{args:?}: {error}");
    }
    let error = |args: &[&str]| failure(&sardonyx(args), &format!("{args:?}"));
    let strange = error(&["explain", &files.path("strange.onnx"), "--json"]);
    let details = strange["details"].as_array().unwrap();
    assert_eq!(details[0]["code"], "unsupported-operator");
    assert_eq!(details[0]["operator"], "Strange");
    let misspelt = error(&["ls", chain, "--srot", "name", "--json"]);
    assert_eq!(misspelt["details"][0]["message"], "--srot");
    assert_eq!(misspelt["help"], "did you mean '--sort'?");
    // Without --json, a failure writes nothing to stdout.
    let prose = sardonyx(&["info", absent]);
    assert!(prose.stdout.is_empty() && prose.stderr.starts_with("error: cannot read"));
}

#[test]
fn a_node_that_fails_has_its_path_and_its_inputs() {
    let text = r#"<ir_version: 10, opset_import: ["": 21]>
g (float[N] x, bool c) => (y) {
  y = If (c) <
    then_branch = yes () => (t) { half = Div (x, x) n = Cast <to: int = 7> (half) t = Gather (x, n) },
    else_branch = no () => (e) { e = Identity (x) }
  >
}"#;
    let files = Files::new(&[("branch.onnxtxt", text.into())]);
    std::fs::write(files.path("x.npy"), npy("<f4", "(1,)", &0f32.to_le_bytes())).unwrap();
    std::fs::write(files.path("c.npy"), npy("|b1", "()", &[1])).unwrap();
    let inputs = [format!("x={}", files.path("x.npy")), format!("c={}", files.path("c.npy"))];
    let model = files.path("branch.onnxtxt");
    let answer = sardonyx(&["run", &model, &inputs[0], &inputs[1], "--json"]);
    let error = failure(&answer, "run");
    assert_eq!(error["code"], "run");
    let path = error["node"]["path"].as_array().unwrap();
    let operators: Vec<_> = path.iter().map(|node| &node["operator"]).collect();
    assert_eq!(operators, ["Gather", "If"]);
    assert_eq!((&path[0]["part"], &path[0]["graph"]), (&json!("graph"), &json!("yes")));
    assert_eq!((&path[1]["part"], &path[1]["output"]), (&Value::Null, &json!("y")));
    assert_eq!(
        error["node"]["inputs"],
        json!([{"name": "x", "type": "float[1]"}, {"name": "n", "type": "int64[1]"}])
    );
    assert!(answer.stderr.ends_with("\n  inputs: x: float[1], n: int64[1]\n"), "{}", answer.stderr);
    // Failures that are not about a node have null.
    assert_eq!(failure(&sardonyx(&["info", "absent.onnx", "--json"]), "info")["node"], Value::Null);
}

/// Encodes an array as a `.npy` file.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{header:<117}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data]
        .concat()
}

#[test]
fn errors_of_texts_have_lines() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>\n\
        g (float[N] x) => (float[N] y) {\n  a = Relu(x x)\n  y = Relu[a]\n}\n";
    let files = Files::new(&[("bad.onnxtxt", text.into())]);
    for command in ["info", "parse", "check"] {
        let answer = match command {
            "parse" => files.run(command, "bad.onnxtxt", &["--json", "-o", "-"]),
            _ => files.run(command, "bad.onnxtxt", &["--json"]),
        };
        let found = value(&answer, command);
        let error = match command {
            "check" => &found["files"][0]["failure"],
            _ => &found["error"],
        };
        assert_eq!(answer.code, Some(2));
        assert_eq!(error["code"], "syntax");
        assert_eq!(error["place"], files.path("bad.onnxtxt"));
        let details = error["details"].as_array().unwrap();
        let places: Vec<_> = details
            .iter()
            .map(|found| (found["line"].as_u64(), found["column"].as_u64()))
            .collect();
        assert_eq!(places, [(Some(3), Some(14)), (Some(4), Some(11))], "{command}");
        assert_eq!(details[0]["code"], "syntax-error");
        assert_eq!(details[0]["help"], "inputs are separated by commas");
    }
}

/// Checks that commands for several files list each failure in one common answer.
#[test]
fn failures_among_several_files_are_entries() {
    let files = Files::new(&[
        ("good.onnx", chain(&["Relu"], &[2])),
        ("broken.onnxtxt", b"<ir_version: 10> g () => {}".to_vec()),
    ]);
    let (good, broken, absent) =
        (files.path("good.onnx"), files.path("broken.onnxtxt"), files.path("absent.onnx"));
    for (command, list) in
        [("check", "files"), ("scan", "files"), ("hash", "hashes"), ("features", "models")]
    {
        let answer = sardonyx(&[command, &broken, &good, &absent, "--json"]);
        assert_eq!(answer.code, Some(2), "{command}");
        let found = value(&answer, command);
        let entries = found[list].as_array().unwrap();
        let codes: Vec<_> = entries.iter().map(|entry| entry["failure"]["code"].as_str()).collect();
        // For a scan, a damaged file is a finding and not a failure.
        let first = (command != "scan").then_some("syntax");
        assert_eq!(codes, [first, None, Some("io")], "{command}");
        assert_eq!(entries[2]["model"], absent.as_str());
    }
}

#[test]
fn color_options_apply_to_usage_errors() {
    let painted = |args: &[&str]| sardonyx(args).stderr.contains('\u{1b}');
    assert!(painted(&["--color", "always", "info"]));
    assert!(painted(&["info", "--color=always"]));
    assert!(!painted(&["--color", "never", "info"]));
    assert!(!painted(&["info"]));
}
