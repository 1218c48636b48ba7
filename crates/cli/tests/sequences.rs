//! Sequences, optionals and sparse tensors on the command line: given, filled, shown and written.

use crate::support::Files;
use sardonyx::io::write_value;
use sardonyx::tool::npz::Packing;
use sardonyx::tool::{npy, npz};
use sardonyx::value::{Sequence, Sparse};
use sardonyx::{Tensor, Value};

const MODEL: &str = "<ir_version: 10, opset_import: [\"\": 21]>
g (seq(float[N]) s, optional(float[2]) o) => (seq(float[N]) t, float[M] all, bool has) {
    has = OptionalHasElement (o)
    t = If (has) <
        then_branch = a () => (seq(float[N]) g) { e = OptionalGetElement (o) g = SequenceInsert (s, e) },
        else_branch = b () => (seq(float[N]) i) { i = Identity (s) }
    >
    all = ConcatFromSequence <axis = 0> (t)
}";

const SPARSE: &str = "<ir_version: 10, opset_import: [\"\": 21]>
g (sparse_tensor(float[2]) x) => (sparse_tensor(float[2]) y) { y = Add (x, x) }";

fn floats(elements: &[f32]) -> Tensor {
    Tensor::from_slice([elements.len()], elements).unwrap()
}

fn archive(arrays: &[(&str, Tensor)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let arrays = arrays.iter().map(|(name, tensor)| (*name, tensor));
    npz::write(std::io::Cursor::new(&mut bytes), arrays, Packing::Stored).unwrap();
    bytes
}

fn files() -> Files {
    let (a, b) = (floats(&[1.0, 2.0]), floats(&[3.0, 4.0, 5.0]));
    let both = Sequence::from_tensors(a.data_type(), [a.clone(), b.clone()]).unwrap();
    let sparse = Sparse::from_dense(&floats(&[0.0, 7.0])).unwrap();
    Files::new(&[
        ("m.onnxtxt", MODEL.into()),
        ("sparse.onnxtxt", SPARSE.into()),
        ("a.npy", npy::write(&a).unwrap()),
        ("b.npy", npy::write(&b).unwrap()),
        ("both.pb", write_value(&Value::Sequence(both), "s").unwrap()),
        ("named.npz", archive(&[("s.1", b.clone()), ("s.0", a.clone()), ("o", a.clone())])),
        ("gap.npz", archive(&[("s.1", b.clone()), ("s.2", a.clone())])),
        ("other.npz", archive(&[("x", a.clone()), ("y", b)])),
        ("some.pb", write_value(&Value::some(a.into()), "o").unwrap()),
        ("none.pb", Vec::new()),
        ("x.pb", write_value(&sparse.into(), "x").unwrap()),
    ])
}

#[test]
fn sequences_are_given_in_several_ways() {
    let files = files();
    let without = "all: float[5]\n  1.0 2.0 3.0 4.0 5.0\n";
    let with = "all: float[7]\n  1.0 2.0 3.0 4.0 5.0 1.0 2.0\n";
    let rows: [(&[&str], &str); 8] = [
        (&["s=a.npy", "s=b.npy"], without),
        (&["s=both.pb"], without),
        (&["s=other.npz"], without),
        (&["s=named.npz"], without),
        (&["named.npz"], with),
        (&["s=a.npy", "o=a.npy", "s=b.npy"], with),
        (&["s=both.pb", "o=some.pb"], with),
        (&["both.pb", "o=none.pb"], without),
    ];
    for (given, expected) in rows {
        let given: Vec<String> = given
            .iter()
            .map(|given| match given.split_once('=') {
                Some((name, file)) => format!("{name}={}", files.path(file)),
                None => files.path(given),
            })
            .collect();
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let text = files.run("run", "m.onnxtxt", &given).good();
        assert!(text.contains(expected), "{given:?}: {text}");
    }
    let input = |name: &str, file: &str| format!("{name}={}", files.path(file));
    let (s, item, gap) = (input("s", "both.pb"), input("s", "a.npy"), input("s", "gap.npz"));
    files.run("run", "m.onnxtxt", &[&s, &item]).fails_with(&["'s' is given twice"]);
    files.run("run", "m.onnxtxt", &[&gap]).fails_with(&["'s.1'", "no 's.0'", "from 0 on"]);
    files.run("run", "m.onnxtxt", &[]).fails_with(&["the input 's' is missing"]);
    let unfit = input("o", "b.npy");
    files.run("run", "m.onnxtxt", &[&s, &unfit]).fails_with(&["'o' has shape [3]"]);
}

#[test]
fn sequences_are_shown_and_written() {
    let files = files();
    let s = format!("s={}", files.path("both.pb"));
    let text = files.run("run", "m.onnxtxt", &[&s]).good();
    let shown = "t: seq(tensor(float)) of 2 items\n  [0]: float[2]\n    1.0 2.0\n  [1]: float[3]\n";
    assert!(text.contains(shown), "{text}");
    let json = files.run("run", "m.onnxtxt", &[&s, "--json"]).good();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let t = &json["outputs"][0];
    assert_eq!((&t["type"], &t["length"]), (&"seq(tensor(float))".into(), &2.into()));
    assert_eq!(t["items"][1]["values"], serde_json::json!([3.0, 4.0, 5.0]));
    assert_eq!(t["truncated"], false);

    // An archive of outputs can be read back as inputs.
    let target = files.path("out.npz");
    files.run("run", "m.onnxtxt", &[&s, "-o", &target]).good();
    let arrays = npz::read(&files.read("out.npz").into()).unwrap();
    let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["t.0", "t.1", "all", "has"]);
    let t = files.path("renamed.npz");
    let renamed: Vec<(String, Tensor)> = arrays[..2]
        .iter()
        .map(|(name, array)| (name.replace('t', "s"), npy::read(array).unwrap()))
        .collect();
    let renamed: Vec<(&str, Tensor)> =
        renamed.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    std::fs::write(&t, archive(&renamed)).unwrap();
    let again = files.run("run", "m.onnxtxt", &[&t]).good();
    assert_eq!(again, text);
}

#[test]
fn sequences_are_filled() {
    let files = files();
    let answer = files.run("run", "m.onnxtxt", &["--random", "1", "--set", "N=3"]);
    assert!(answer.stderr.contains("the length of s"), "{}", answer.stderr);
    let text = answer.good();
    assert!(text.contains("t: seq(tensor(float)) of 1 item\n  [0]: float[3]"), "{text}");
    assert!(text.contains("has: bool\n  False"), "{text}");
}

#[test]
fn sparse_tensors_are_given_and_shown() {
    let files = files();
    let x = files.path("x.pb");
    let dense = format!("x={}", files.path("a.npy"));
    let text = files.run("run", "sparse.onnxtxt", &[&x]).good();
    let shown = "y: sparse_tensor(float) [2] with 1 values\n";
    assert!(text.starts_with(shown), "{text}");
    let json = files.run("run", "sparse.onnxtxt", &[&dense, "--json"]).good();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let y = &json["outputs"][0];
    assert_eq!(y["shape"], serde_json::json!([2]));
    assert_eq!(y["indices"]["values"], serde_json::json!([0, 1]));
    assert_eq!(y["values"]["values"], serde_json::json!([2.0, 4.0]));
}
