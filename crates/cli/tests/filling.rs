//! `--random`, `--shape` and `--fill`: values of inputs without a file.

use crate::support;
use crate::support::{Answer, Files, chain};
use serde_json::Value;

/// Model that returns its inputs.
const MODEL: &str = "<ir_version: 10, opset_import: [\"\": 21]>
g (float[N, 3] x, int64[N] ids, int64[N] attention_mask, int64[N] token_type_ids, float d)
=> (float[N, 3] xx, float[N] word, int64[N] i, int64[N] m, int64[N] t, float dd)
<float[5] words = {1, 2, 3, 4, 5}, float d = {7}> {
    xx = Identity (x) word = Gather (words, ids)
    i = Identity (ids) m = Identity (attention_mask) t = Identity (token_type_ids)
    dd = Identity (d)
}";

fn files() -> Files {
    Files::new(&[("m.onnxtxt", MODEL.into()), ("chain.onnx", chain(&["Relu"], &[2]))])
}

fn run(files: &Files, args: &[&str]) -> Answer {
    files.run("run", "m.onnxtxt", &[args, &["--json"]].concat())
}

/// Returns the shape and the elements of an output.
fn output(answer: Answer, name: &str) -> (Vec<i64>, Vec<f64>) {
    let json: Value = serde_json::from_str(&answer.good()).unwrap();
    let outputs = json["outputs"].as_array().unwrap();
    let found = outputs.iter().find(|output| output["name"] == name).unwrap();
    let shape = found["shape"].as_array().unwrap().iter();
    let values = found["values"].as_array().unwrap().iter();
    (
        shape.map(|dim| dim.as_i64().unwrap()).collect(),
        values.map(|value| value.as_f64().unwrap()).collect(),
    )
}

#[test]
fn inputs_are_filled_with_what_fits() {
    let files = files();
    let filled = |name| output(run(&files, &["--random", "3", "--set", "N=100"]), name).1;
    let ids = filled("i");
    assert!(ids.iter().all(|id| (0.0..5.0).contains(id)), "{ids:?}");
    assert!((0..5).all(|id| ids.contains(&f64::from(id))), "{ids:?}");
    assert_eq!((filled("m"), filled("t")), (vec![1.0; 100], vec![0.0; 100]));
    assert!(filled("xx").iter().all(|x| (-1.0..1.0).contains(x)));
    assert_eq!(filled("dd"), [7.0]);
    let [one, other] = [&["--random", "0"][..], &["--random"]]
        .map(|random| output(run(&files, &[random, &["--set", "N=9"]].concat()), "xx"));
    assert_eq!(one, other);
    let answer = files.run("run", "m.onnxtxt", &["--random", "3", "--set", "N=1", "-v"]);
    let words = "the input 'ids' is filled with pseudo-random numbers from 0 to below 5";
    assert!(answer.stderr.contains(words), "{}", answer.stderr);
}

#[test]
fn shapes_hold_for_all_inputs_with_the_same_names() {
    let files = files();
    for shape in ["x=4,3", "x=4x3"] {
        assert_eq!(output(run(&files, &["--shape", shape]), "xx").0, [4, 3]);
        assert_eq!(output(run(&files, &["--shape", shape]), "i").0, [4]);
    }
    let refused = |args: &[&str], words: &[&str]| run(&files, args).fails_with(words);
    refused(
        &["--shape", "x=4"],
        &["the given shape", "the number of dimensions is 1 and should be 2"],
    );
    refused(&["--shape", "x=4,5"], &["dimension 1 is 5 and should be 3"]);
    refused(&["--shape", "x=4,3", "--shape", "ids=5"], &["dimension 0 (N) is 5 and should be 4"]);
    refused(&["--shape", "xs=4,3"], &["no input 'xs'", "the inputs of the model are: x, ids"]);
    refused(&["--shape", "attention_masks=4"], &["did you mean 'attention_mask'?"]);
    refused(&["--shape", "x=4,y"], &["NAME=SIZES"]);
    let chain = files.path("chain.onnx");
    let answer = support::sardonyx(&["bench", &chain, "--shape", "x=2", "--runs", "1", "--json"]);
    answer.good();
    support::sardonyx(&["profile", &chain, "--shape", "x=3"]).fails_with(&["is 3 and should be 2"]);
}

#[test]
fn fills_have_the_requested_values() {
    let files = files();
    let filled = |fills: &[&str], name: &str| {
        let fills: Vec<&str> = fills.iter().flat_map(|fill| ["--fill", *fill]).collect();
        output(run(&files, &[&fills[..], &["--shape", "x=2,3"]].concat()), name).1
    };
    assert_eq!(filled(&["x=arange"], "xx"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(filled(&["x=zeros"], "xx"), [0.0; 6]);
    assert_eq!(filled(&["x=0.5"], "xx"), [0.5; 6]);
    assert!(filled(&["x=10..11"], "xx").iter().all(|x| (10.0..11.0).contains(x)));
    // The last matching option applies, and a pattern can match several inputs.
    assert_eq!(filled(&["*=ones", "ids=2..3"], "i"), [2.0; 2]);
    assert_eq!(filled(&["*=ones", "ids=2..3"], "t"), [1.0; 2]);
    // An input with a default value is filled only if it is named.
    assert_eq!(filled(&["d=ones"], "dd"), [1.0]);
    let refused = |args: &[&str], words: &[&str]| run(&files, args).fails_with(words);
    refused(&["--fill", "ids=0.5", "--set", "N=2"], &["0.5 is not a whole number", "ids"]);
    refused(&["--fill", "ids=3..3"], &["LO below HI"]);
    refused(&["--fill", "q*=ones"], &["no input 'q*'"]);
    let array = support::npy("<f4", "(2,)", &support::floats(&[1.0, 2.0]));
    std::fs::write(files.path("x.npy"), array).unwrap();
    let given = format!("x={}", files.path("x.npy"));
    refused(&[&given, "--fill", "x=ones"], &["a file gives the input 'x'"]);
}
