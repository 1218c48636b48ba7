//! Tests of `sardonyx run --expect`, `--show` and `--dump`, which compare outputs and inner values
//! with stored ones, show them and write them.

use std::fs;

use crate::support::{Answer, Files};
use sardonyx::io::write_value;
use sardonyx::tool::npz::Packing;
use sardonyx::tool::{npy, npz};
use sardonyx::value::{Sequence, bf16};
use sardonyx::{Tensor, Value};
use serde_json::json;

/// Model whose values are `a = x + 1`, `b = 2 a`, `y = b - 1` and `z = b / 2`.
const MODEL: &str = "<ir_version: 10, opset_import: [\"\": 21]>
g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z) <float one = {1}, float two = {2}> {
    [first] a = Add (x, one)
    [second] b = Mul (a, two)
    [third] y = Sub (b, one)
    [fourth] z = Div (b, two)
}";

fn floats(elements: &[f32]) -> Tensor {
    Tensor::from_slice([2, 2], elements).unwrap()
}

fn archive(arrays: &[(&str, Tensor)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let arrays = arrays.iter().map(|(name, tensor)| (*name, tensor));
    npz::write(std::io::Cursor::new(&mut bytes), arrays, Packing::Stored).unwrap();
    bytes
}

/// Creates a directory with the model, its input, right outputs and wrong ones.
fn files() -> Files {
    let x = floats(&[0.0, 1.0, 2.0, 3.0]);
    let y = floats(&[1.0, 3.0, 5.0, 7.0]);
    let z = floats(&[1.0, 2.0, 3.0, 4.0]);
    let wrong = floats(&[1.0, 3.25, 5.0, 14.0]);
    let files = Files::new(&[
        ("m.onnxtxt", MODEL.into()),
        ("x.npy", npy::write(&x).unwrap()),
        ("y.npy", npy::write(&y).unwrap()),
        ("y.pb", write_value(&y.clone().into(), "y").unwrap()),
        ("right.npz", archive(&[("z", z.clone()), ("y", y.clone())])),
        ("unnamed.npz", archive(&[("arr_0", y.clone()), ("arr_1", z.clone())])),
        ("wrong.npz", archive(&[("y", wrong), ("z", z.clone())])),
        ("misspelt.npz", archive(&[("yy", y.clone()), ("z", z.clone())])),
        ("inner.npz", archive(&[("b", floats(&[2.0, 4.0, 6.0, 9.0])), ("a", z.clone())])),
        ("other.npz", archive(&[("y", y.clone()), ("z", z.clone()), ("unknown", x.clone())])),
    ]);
    for set in ["test_data_set_0", "case/test_data_set_0"] {
        let set = files.path(set);
        fs::create_dir_all(&set).unwrap();
        for (name, tensor) in [("input_0", &x), ("output_0", &y), ("output_1", &z)] {
            let bytes = write_value(&tensor.clone().into(), "").unwrap();
            fs::write(format!("{set}/{name}.pb"), bytes).unwrap();
        }
    }
    files
}

/// Runs the model. Arguments that look like file names become paths in the directory.
fn run(files: &Files, args: &[&str]) -> Answer {
    let is_file = |arg: &str| arg.contains('.') && !arg.contains('*') || arg.contains("set_0");
    let args: Vec<String> = args
        .iter()
        .map(|arg| match arg.split_once('=') {
            Some((name, file)) if is_file(arg) => format!("{name}={}", files.path(file)),
            None if is_file(arg) && arg.parse::<f64>().is_err() => files.path(arg),
            _ => arg.to_string(),
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    files.run("run", "m.onnxtxt", &args)
}

#[test]
fn expected_values_have_several_file_formats() {
    let files = files();
    let summary = "2 values are as expected (rtol 0.001, atol 1e-7)\n";
    let both = format!("y: float[2, 2] matches\nz: float[2, 2] matches\n{summary}");
    for expected in ["right.npz", "unnamed.npz", "test_data_set_0"] {
        let answer = run(&files, &["x.npy", "--expect", expected]);
        assert_eq!(answer.stderr, "", "{expected}");
        assert_eq!(answer.good(), both, "{expected}");
    }
    // Inputs and expected values may be directories: one that --output wrote, or a test case.
    run(&files, &["x.npy", "-o", "test_set_0"]).good();
    assert_eq!(run(&files, &["x.npy", "--expect", "test_set_0"]).good(), both);
    assert_eq!(run(&files, &["test_data_set_0", "--expect", "test_data_set_0"]).good(), both);
    // A file with a single value is compared with the next output.
    for expected in ["y.npy", "y.pb", "y=y.npy", "y=right.npz"] {
        let answer = run(&files, &["x.npy", "--expect", expected]);
        assert_eq!(answer.stderr, "note: outputs without an expected value: z\n", "{expected}");
        assert!(answer.good().starts_with("y: float[2, 2] matches\n1 value is as expected"));
    }
}

#[test]
fn differences_are_findings_with_their_worst_element() {
    let files = files();
    let text = run(&files, &["x.npy", "--expect", "wrong.npz"]).finds();
    let expected = "y: float[2, 2] differs: 2 of 4 elements
  worst at [1, 1]: 7.0, expected 14.0
  largest difference: absolute 7, relative 0.5
z: float[2, 2] matches
1 of 2 values differs (rtol 0.001, atol 1e-7)
first value that differs, in the order of the graph: 'y', output of node 'third' (Sub)
";
    assert_eq!(text, expected);
    let answer = run(&files, &["x.npy", "--expect", "wrong.npz", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&answer.finds()).unwrap();
    let found = &json["expected"];
    assert_eq!(found["first"], json!({"name": "y", "node": "node 'third' (Sub)"}));
    assert_eq!(
        found["values"][0],
        json!({
            "name": "y", "type": "float[2, 2]", "output": true, "node": "node 'third' (Sub)",
            "differs": true, "message": null, "elements": 4, "differing": 2,
            "max_absolute": 7.0, "max_relative": 0.5,
            "worst": {"part": null, "index": [1, 1], "value": 7.0, "expected": 14.0},
        })
    );
    assert_eq!(found["values"][1]["worst"], json!(null));
    // A difference may be as large as both tolerances together.
    for (tolerances, matches) in [
        (["--rtol", "0.5", "--atol", "0"], true),
        (["--rtol", "0.49", "--atol", "0"], false),
        (["--rtol", "0", "--atol", "7"], true),
        (["--rtol", "0.25", "--atol", "3.5"], true),
    ] {
        let answer = run(&files, &[&["x.npy", "--expect", "wrong.npz"], &tolerances[..]].concat());
        assert_eq!(answer.code, Some(i32::from(!matches)), "{tolerances:?}");
    }
}

#[test]
fn types_and_shapes_that_differ_are_reported() {
    let rows = [
        (npy::write(&Tensor::scalar(1f32)).unwrap(), "differs: dims are [2, 2], not []"),
        (
            npy::write(&Tensor::from_vec([2, 2], vec![1i64; 4]).unwrap()).unwrap(),
            "differs: element type is float, not int64",
        ),
    ];
    for (bytes, words) in rows {
        let files = files();
        fs::write(files.path("bad.npy"), bytes).unwrap();
        let text = run(&files, &["x.npy", "--expect", "bad.npy"]).finds();
        assert!(text.starts_with(&format!("y: float[2, 2] {words}\n")), "{text}");
    }
}

/// Checks that references in double precision, which are common, are compared as floats.
#[test]
fn expected_doubles_are_compared_in_the_type_of_the_output() {
    let files = files();
    for (last, matches) in [(7.0, true), (7.5, false)] {
        let y = Tensor::from_vec([2, 2], vec![1f64, 3.0, 5.0, last]).unwrap();
        fs::write(files.path("double.npy"), npy::write(&y).unwrap()).unwrap();
        let answer = run(&files, &["x.npy", "--expect", "double.npy"]);
        let note = "the expected values of 'y' are double and are compared as float";
        assert!(answer.stderr.contains(note), "{}", answer.stderr);
        if matches {
            answer.good();
        } else {
            assert!(answer.finds().starts_with("y: float[2, 2] differs: 1 of 4 elements"));
        }
    }
}

#[test]
fn nan_equals_nan_and_integers_are_exact_by_default() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g () => (float[2] f, int64[2] i, bfloat16[1] b)
        <float[2] zero = {0, 1}, int64[2] two = {1000, 2}, bfloat16[1] w = {16256}> {
            f = Div (zero, zero) i = Identity (two) b = Identity (w)
        }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let store = |name: &str, integer: i64| {
        let f = Tensor::from_vec([2], vec![f32::NAN, 1.0]).unwrap();
        let i = Tensor::from_vec([2], vec![integer, 2]).unwrap();
        let b = Tensor::from_vec([1], vec![bf16::from_f32(1.0078125)]).unwrap();
        let set = files.path(name);
        fs::create_dir_all(&set).unwrap();
        for (index, tensor) in [f, i, b].into_iter().enumerate() {
            let bytes = write_value(&tensor.into(), "").unwrap();
            fs::write(format!("{set}/output_{index}.pb"), bytes).unwrap();
        }
        set
    };
    let (same, near) = (store("same", 1000), store("near", 1001));
    let run = |set: &str, more: &[&str]| {
        files.run("run", "m.onnxtxt", &[&["--expect", set], more].concat()).code
    };
    assert_eq!(run(&same, &[]), Some(0));
    // The directory has no input files, and the model has no inputs.
    assert_eq!(run(&same, &[&same]), Some(0));
    assert_eq!(run(&near, &[]), Some(1));
    assert_eq!(run(&near, &["--rtol", "0.5"]), Some(1));
    assert_eq!(run(&near, &["--atol", "1"]), Some(0));
    // By default, bfloat16 may differ by two units in the last place.
    assert_eq!(run(&same, &["--rtol", "1e-3"]), Some(1));
}

#[test]
fn unusable_expected_values_are_refused() {
    let files = files();
    let refused = |args: &[&str], words: &[&str]| {
        run(&files, &[&["x.npy"], args].concat()).fails_with(words);
    };
    refused(&["--expect", "misspelt.npz"], &["expected 'yy'", "misspelt.npz", "expected value: y"]);

    refused(&["--expect", "absent.npz"], &["cannot read", "absent.npz"]);
    refused(
        &["--expect", "m.onnxtxt"],
        &["unsupported format of a file of expected values", ".npz"],
    );
    refused(
        &["--expect", "y.npy", "--expect", "y=y.npy"],
        &["two expected values are given for 'y'"],
    );
    refused(&["--rtol", "0.1"], &["--expect"]);
    refused(&["--expect", "y.npy", "--rtol", "-1"], &["at least 0"]);
    refused(&["--expect", "y.npy", "-o", "-"], &["cannot both be written to stdout"]);
    refused(&["--expect", "y.npy", "-o", "y.npy"], &["is an input"]);
    // The directory of a test case holds data sets, but is not one itself.
    let case = files.path("case");
    files
        .run("run", "m.onnxtxt", &[&files.path("x.npy"), "--expect", &case])
        .fails_with(&["no expected outputs", "test_data_set_0"]);
    // Expected values that the model does not have, beside others, are a note.
    let answer = run(&files, &["x.npy", "--expect", "other.npz"]);
    assert!(answer.stderr.contains("does not have: unknown"), "{}", answer.stderr);
    answer.good();
}

#[test]
fn inner_values_are_shown_after_the_outputs() {
    let files = files();
    let text = run(&files, &["x.npy", "--show", "b", "a"]).good();
    let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(shown, ["y: float[2, 2]", "z: float[2, 2]", "b: float[2, 2]", "a: float[2, 2]"]);
    assert!(text.ends_with("a: float[2, 2]\n  [0, :] 1.0 2.0\n  [1, :] 3.0 4.0\n"), "{text}");
    let text = run(&files, &["x.npy", "--show", "?", "--json"]).good();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names = |key: &str| -> Vec<&str> {
        json[key].as_array().unwrap().iter().map(|value| value["name"].as_str().unwrap()).collect()
    };
    assert_eq!((names("outputs"), names("shown")), (vec!["y", "z"], vec!["a", "b", "y", "z"]));
    run(&files, &["x.npy", "--show", "c"]).fails_with(&["no value 'c'"]);
    run(&files, &["x.npy", "--show", "c*"]).fails_with(&["--show", "'c*'"]);
    run(&files, &["x.npy", "--show", "a", "-o", "-"])
        .fails_with(&["cannot both be written to stdout"]);
}

#[test]
fn a_dump_is_compared_value_by_value() {
    let files = files();
    for dump in ["dump.npz", "dump.safetensors"] {
        let answer = run(&files, &["x.npy", "--dump", "*", "--to", dump]);
        assert!(answer.stderr.ends_with(": 4 values\n"), "{}", answer.stderr);
        assert_eq!(answer.good(), "");
        let text = run(&files, &["x.npy", "--expect", dump]).good();
        let last = "4 values are as expected (rtol 0.001, atol 1e-7)\n";
        assert!(text.ends_with(last), "{text}");
    }
    // The first difference is that of the first node, whatever the order in the files.
    let text = run(&files, &["x.npy", "--expect", "inner.npz", "--expect", "wrong.npz"]).finds();
    let words = ["b: float[2, 2] differs: 1 of 4 elements\n  worst at [1, 1]: 8.0, expected 9.0"];
    words.iter().for_each(|words| assert!(text.contains(words), "{text}"));
    assert!(text.ends_with("'b', output of node 'second' (Mul)\n"), "{text}");
    let refused = |args: &[&str], words: &[&str]| {
        run(&files, &[&["x.npy"], args].concat()).fails_with(words);
    };
    refused(&["--dump", "*"], &["--to"]);
    refused(&["--dump", "*", "--to", "dump.npy"], &["cannot hold several", ".npz"]);
    refused(&["--dump", "q*", "--to", "q.npz"], &["--dump", "'q*'"]);
    refused(&["--dump", "*", "--to", "x.npy"], &["cannot hold several"]);
}

/// Checks that inner values are those of the model as written, although the session fuses nodes.
#[test]
fn inner_values_are_those_of_the_model_as_written() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[1, 2] x, seq(float[2]) s) => (float[1, 2] y, seq(float[2]) t)
        <float[2, 2] w = {1, 2, 3, 4}, float[2] c = {1, 1}> {
            m = MatMul (x, w) p = Add (m, c) y = Relu (p)
            unread = Cast <to = 16> (p) t = SequenceInsert (s, c)
        }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let x = Tensor::from_vec([1, 2], vec![1f32, -1.0]).unwrap();
    fs::write(files.path("x.npy"), npy::write(&x).unwrap()).unwrap();
    let item = Tensor::from_vec([2], vec![5f32, 6.0]).unwrap();
    let sequence = Sequence::from_tensors(item.data_type(), [item]).unwrap();
    fs::write(files.path("s.pb"), write_value(&Value::Sequence(sequence), "s").unwrap()).unwrap();
    let inputs = [files.path("x.npy"), files.path("s.pb")];
    let run = |more: &[&str]| {
        files.run("run", "m.onnxtxt", &[&[inputs[0].as_str(), &inputs[1]], more].concat())
    };
    let text = run(&["--show", "m", "p", "unread"]).good();
    for words in ["m: float[1, 2]\n  [0, :] -2.0 -2.0", "p: float[1, 2]\n  [0, :] -1.0 -1.0"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(text.contains("unread: bfloat16[1, 2]"), "{text}");
    // Items of sequences are stored one by one, and bfloat16 as raw bytes.
    let npz = files.path("all.npz");
    run(&["--dump", "*", "--to", &npz]).good();
    let text = run(&["--expect", &npz]).good();
    assert!(text.contains("t: seq(tensor(float)) matches"), "{text}");
    assert!(text.contains("5 values are as expected"), "{text}");
}

/// Checks that a string that ends in NUL, which NumPy archives cannot hold, is named in a note.
#[test]
fn values_that_a_file_cannot_hold_are_named() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g () => (float y) {
            t = Constant <value_string: string = \"a\0\"> () y = Constant <value_float: float = 1.0> ()
        }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let npz = files.path("all.npz");
    let answer = files.run("run", "m.onnxtxt", &["--dump", "*", "--to", &npz]);
    let note = "1 value cannot be stored in a file of this format: t";
    assert!(answer.stderr.contains(note), "{}", answer.stderr);
    answer.good();
}
