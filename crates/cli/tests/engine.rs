//! Tests of bench, profile, explain and the options of sessions. They check keys and sums, as times
//! vary.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Files, digits_model, npy, sardonyx};
use serde_json::Value;

/// Model with a matrix product with bias and activation, a view, a node of an old operator version,
/// and a node whose result is not used.
const MODEL: &str = r#"<ir_version: 8, opset_import: ["": 11]>
g (float[N, 4] x) => (float[N, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {1, -1}, int64[2] s = {-1, 2}>
{
    [product] p = MatMul (x, w)
    [bias] q = Add (p, b)
    [relu] r = Relu (q)
    [shape] v = Reshape (r, s)
    [soft] y = Softmax <axis: int = 1> (v)
    [idle] z = Exp (p)
}
"#;

fn files() -> Files {
    Files::new(&[("m.onnxtxt", MODEL.into())])
}

fn json(files: &Files, command: &str, more: &[&str]) -> Value {
    let answer = files.run(command, "m.onnxtxt", more).good();
    serde_json::from_str(&answer).unwrap()
}

/// Overwrites a mapped model with other values during many runs, which must stop.
#[cfg(unix)]
#[test]
fn a_model_that_changes_stops_runs_that_share_its_weights() {
    let text = |by: usize| {
        // Large enough to be mapped: a small constant would be copied.
        let numbers: Vec<String> = (0..2304).map(|n| (n % 7 * by).to_string()).collect();
        let table = numbers.join(", ");
        format!(
            "<ir_version: 8, opset_import: [\"\": 17]> g (int64[N] i) => (float[N, 48] y)
             <float[48, 48] t = {{{table}}}> {{ y = Gather (t, i) }}"
        )
    };
    let files = Files::new(&[("a.onnxtxt", text(1).into()), ("b.onnxtxt", text(2).into())]);
    for (from, to) in [("a.onnxtxt", "m.onnx"), ("b.onnxtxt", "other.onnx")] {
        files.run("save", from, &["-o", &files.path(to)]).good();
    }
    let outputs = |mapped: &[&str]| {
        let args = [&["--fill", "i=3", "--shape", "i=2", "--json"], mapped].concat();
        json_of(&files.run("run", "m.onnx", &args).good())["outputs"].clone()
    };
    assert_eq!(outputs(&[]), outputs(&["--mapped"]));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = fs::read(files.path("other.onnx")).unwrap();
            // Writes repeatedly, as the command may take long to start.
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let file = fs::OpenOptions::new().write(true).open(files.path("m.onnx"));
                file.unwrap().write_all(&other).unwrap();
            }
        });
        let args = ["--fill", "i=3", "--shape", "i=2", "--mapped", "--repeat", "1000000"];
        let answer = files.run("run", "m.onnx", &args);
        is_over.store(true, Ordering::Relaxed);
        answer.fails_with(&["m.onnx", "has been changed", "open the model again"]);
    });
}

fn json_of(answer: &str) -> Value {
    serde_json::from_str(answer).unwrap()
}

#[test]
fn profile_answers_in_json() {
    let files = files();
    let answer =
        json(&files, "profile", &["--json", "--runs", "9", "--dim", "N=3", "--warm-up", "1"]);
    assert_eq!(answer["schema"], "sardonyx.profile/1");
    assert_eq!(answer["runs"], 9);
    // The product has three rows of two columns, each a sum of four products.
    assert_eq!(answer["multiply_adds"], 24);
    for key in ["run_us", "run_min_us", "steps_us", "overhead_us"] {
        assert!(answer[key].as_f64().unwrap() >= 0.0, "{answer:#}");
    }
    let steps = answer["steps"].as_array().unwrap();
    let product = steps.iter().find(|step| step["node"] == "product").unwrap();
    assert_eq!(product["operator"], "MatMul");
    assert_eq!(product["with"], serde_json::json!(["Add", "Relu"]));
    assert_eq!(product["calls"], 1);
    assert_eq!(product["multiply_adds"], 24);
    // x has 3 x 4 elements, packed w 4 x 2, b 2 and the output 3 x 2, all of 4 bytes.
    assert_eq!(product["read_bytes"], 4 * (12 + 8 + 2));
    assert_eq!(product["written_bytes"], 4 * 6);
    assert_eq!(product["inputs"][0]["shape"], serde_json::json!([3, 4]), "{product:#}");
    assert!(product["us"].as_f64().unwrap() > 0.0);
    let view = steps.iter().find(|step| step["operator"] == "Reshape");
    let view = view.unwrap();
    assert_eq!((&view["view"], &view["calls"]), (&true.into(), &0.into()));
    assert!(view["us"].is_null());
    assert!(answer["views"].as_u64().unwrap() >= 1);
    let operators = answer["operators"].as_array().unwrap();
    let shares: f64 = operators.iter().map(|operator| operator["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 0.01, "{answer:#}");
    for operator in operators {
        assert!(operator["calls"].as_u64() > Some(0));
        assert!(operator["kernels"].is_object());
    }
}

#[test]
fn profile_lists_the_steps_that_take_most_or_all() {
    let files = files();
    let all = files.run("profile", "m.onnxtxt", &["--runs", "3", "--all", "-q"]).good();
    for word in ["overhead", "operator", "MatMul with Add with Relu", "view"] {
        assert!(all.contains(word), "lacks {word}:\n{all}");
    }
    let top = files.run("profile", "m.onnxtxt", &["--runs", "3", "--top", "1", "-q"]).good();
    let table = top.split("\n\n").last().unwrap();
    assert_eq!(table.lines().count(), 2, "{top}");
}

#[test]
fn profile_writes_a_trace() {
    let files = files();
    let target = files.path("trace.json");
    let answer = json(&files, "profile", &["--json", "--runs", "3", "--trace", &target]);
    let trace: Value = serde_json::from_slice(&files.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    let ran = answer["steps"].as_array().unwrap();
    let ran = ran.iter().filter(|step| step["calls"] == 1).count();
    assert_eq!(complete.len(), ran);
    let mut end = 0.0;
    for event in complete {
        let number = |key: &str| event[key].as_f64().unwrap();
        assert!(number("ts") >= end, "steps come one after the other");
        end = number("ts") + number("dur") - 1e-3;
        for key in ["op", "node", "kernel", "dims"] {
            assert!(event["args"][key].is_string(), "{event:#}");
        }
    }
    // The trace does not overwrite the model.
    let model = files.path("m.onnxtxt");
    files
        .run("profile", "m.onnxtxt", &["-q", "--trace", &model])
        .fails_with(&["not overwritten", "--trace"]);
}

#[test]
fn explain_lists_changes_of_a_model() {
    let files = files();
    let answer = json(&files, "explain", &["--json", "--steps", "--dim", "N=3"]);
    assert_eq!(answer["schema"], "sardonyx.explain-model/1");
    assert_eq!(answer["nodes"], 6);
    assert_eq!(answer["dead"], 1);
    assert_eq!(answer["cse"], serde_json::json!({"nodes": 0, "constants": 0}));
    let upgraded = answer["upgraded"].as_array().unwrap();
    let softmax = upgraded.iter().find(|group| group["operator"] == "Softmax");
    let softmax = softmax.unwrap();
    assert_eq!((&softmax["from"], &softmax["nodes"]), (&11.into(), &1.into()));
    let fused = answer["fused_steps"].to_string();
    assert!(fused.contains("'bias'") && fused.contains("'relu'"), "{fused}");
    assert_eq!(answer["packed"]["bytes"], 32);
    assert!(answer["memory"]["arena_bytes"].as_u64() > Some(0));
    assert!(answer["memory"]["views"].as_u64() > Some(0));
    assert_eq!(answer["memory"]["inputs"][0]["type"], "float[3, 4]");
    let steps = answer["steps"].as_array().unwrap();
    assert_eq!(answer["step_count"], steps.len());
    assert!(steps.iter().all(|step| step["kernel"].is_string()));

    let plain = json(&files, "explain", &["--json", "--optimization", "off"]);
    assert_eq!(plain["fused_steps"], serde_json::json!([]));
    assert!(plain["steps"].is_null());
    assert!(plain["step_count"].as_u64() > answer["step_count"].as_u64());

    let text = files.run("explain", "m.onnxtxt", &["--steps", "-q"]).good();
    for word in ["6 nodes become", "Softmax, from opset 11", "fused into", "memory", "kernel"] {
        assert!(text.contains(word), "lacks {word}:\n{text}");
    }
}

/// Explains a cache that runs append to, one that a step reads in rows, and one that a step copies.
#[test]
fn explain_tells_what_runs_copy_of_a_state() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[b, n, 4] x, float[b, p, 4] past_0, float[b, p, 4] past_1, float[b, p, 4] past_2)
            => (float[b, n, t] y, float[b, t, 4] present_0, float[b, t, 4] present_1, float[b, t, 4] present_2,
                float[b, t, 4] sums, float[b, t, 2] part) {
            one = Constant <value = int64 {1}> ()
            first = Constant <value = int64[1] {0}> ()
            end = Constant <value = int64[1] {2}> ()
            axis = Constant <value = int64[1] {2}> ()
            present_0 = Concat <axis = 1> (past_0, x)
            columns = Transpose <perm = [0, 2, 1]> (present_0)
            y = MatMul (x, columns)
            present_1 = Concat <axis = 1> (past_1, x)
            [sum] sums = CumSum (present_1, one)
            present_2 = Concat <axis = 1> (past_2, x)
            [half] part = Slice (present_2, first, end, axis)
        }";
    let files = Files::new(&[("m.onnxtxt", text.into())]);
    let sizes = ["--dim", "b=1", "--dim", "n=1", "--dim", "p=3"];
    let answer = json(&files, "explain", &[&["--json"][..], &sizes].concat());
    let state = serde_json::json!([
        {"input": "past_0", "appended": true, "copies": []},
        {"input": "past_1", "appended": false,
         "copies": ["is copied: node 'sum' (CumSum) reads it in rows"]},
        {"input": "past_2", "appended": true,
         "copies": ["is copied: node 'half' (Slice) rearranges 32 bytes"]},
    ]);
    assert_eq!(answer["state"], state);
    let text = files.run("explain", "m.onnxtxt", &sizes).good();
    let lines = "state     3 inputs can be kept between runs: 2 appended to in place, 1 replaced
          'past_1' is copied: node 'sum' (CumSum) reads it in rows
          'past_2' is copied: node 'half' (Slice) rearranges 32 bytes
";
    assert!(text.contains(lines), "{text}");
}

#[test]
fn explain_counts_common_subexpressions() {
    let twice = r#"<ir_version: 10, opset_import: ["": 21]>
g (float[N] x) => (y) <float c = {2}, float d = {2}>
{
    a = Mul (x, c)
    b = Mul (x, d)
    y = Sub (a, b)
}
"#;
    let files = Files::new(&[("m.onnxtxt", twice.into())]);
    let answer = json(&files, "explain", &["--json"]);
    assert_eq!(answer["cse"], serde_json::json!({"nodes": 1, "constants": 1}));
    let text = files.run("explain", "m.onnxtxt", &[]).good();
    assert!(text.contains("cse       1 node and 1 initializer removed"), "{text}");
    let plain = json(&files, "explain", &["--json", "--optimization", "basic"]);
    assert_eq!(plain["cse"]["nodes"], 0);
}

#[test]
fn explain_lists_fusions_that_almost_match() {
    let attention = r#"<ir_version: 10, opset_import: ["": 20]>
g (float[4, 4] s, float[4, 2] v) => (float[4, 2] y)
{
    w = Softmax <axis: int = 0> (s)
    y = MatMul (w, v)
}
"#;
    let files = Files::new(&[("m.onnxtxt", attention.into())]);
    let answer = json(&files, "explain", &["--json"]);
    let nearly = answer["nearly_fused"].as_array().unwrap();
    assert_eq!(nearly[0]["pattern"], "Attention", "{answer:#}");
    assert_eq!(nearly[0]["times"], 1);
    assert!(!nearly[0]["reason"].as_str().unwrap().is_empty());
    let text = files.run("explain", "m.onnxtxt", &[]).good();
    assert!(text.contains("nearly") && text.contains("Attention: "), "{text}");
}

#[test]
fn explain_still_knows_codes() {
    assert!(sardonyx(&["explain"]).good().contains("unknown-operator"));
    let page = sardonyx(&["explain", "unknown-operator"]).good();
    assert!(page.contains("Advice: "), "{page}");
    sardonyx(&["explain", "GRAPH-02"]).good();
    sardonyx(&["explain", "unknown-operater"]).fails_with(&[
        "no finding and no file 'unknown-operater' exists",
        "did you mean 'unknown-operator'?",
    ]);
    sardonyx(&["explain", "/nowhere.onnx"]).fails_with(&["no finding and no file"]);
}

#[test]
fn bench_measures_latency_and_throughput() {
    let answer = sardonyx(&[
        "bench",
        &digits_model(),
        "--runs",
        "5",
        "--concurrency",
        "3",
        "--warm-up",
        "10ms",
        "--set",
        "N=2",
        "--json",
        "-q",
    ])
    .good();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["schema"], "sardonyx.bench/1");
    assert_eq!((&answer["n"], &answer["concurrency"]), (&15.into(), &3.into()));
    assert!(answer["runs_per_second"].as_f64().unwrap() > 0.0);
    assert!(answer["arena_bytes"].as_u64() > Some(0));
    assert!(answer["packed_bytes"].as_u64() > Some(0));
    assert!(answer["given_bytes"].as_u64() > Some(0));
    let order = ["min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"];
    let times = order.map(|key| answer[key].as_f64().unwrap());
    assert!(times.is_sorted(), "{answer:#}");
}

#[test]
fn options_of_sessions_hold_for_all() {
    let files = files();
    for command in ["run", "bench", "profile"] {
        let random: &[&str] = if command == "run" { &["--random", "1"] } else { &["--runs", "1"] };
        let run = |more: &[&str]| files.run(command, "m.onnxtxt", &[random, more].concat());
        run(&["--threads", "1", "--precision", "fast", "--optimization", "basic", "-q"]).good();
        run(&["--memory-limit", "1G", "--set", "N=2", "-q"]).good();
        run(&["--memory-limit", "4", "-q"]).fails_with(&["limit is 4"]);
        run(&["--set", "M=2", "-q"]).fails_with(&["no dimension 'M'", "sizes are: N"]);
        run(&["--set", "N", "-q"]).fails_with(&[]);
        run(&["--optimization", "most"]).fails_with(&[]);
    }
    let answer = json(&files, "run", &["--random", "1", "--set", "N=3", "--json", "-q"]);
    assert_eq!(answer["outputs"][0]["shape"], serde_json::json!([3, 2]));
}

/// Checks that a small file that would need 4 GB of memory is refused under a limit.
#[test]
fn small_files_with_large_values_are_refused() {
    let fixed = r#"<ir_version: 10, opset_import: ["": 21]>
g () => (float y)
{
    shape = Constant <value_ints = [1000000000]> ()
    big = ConstantOfShape (shape)
    y = ReduceSum <keepdims = 0> (big)
}
"#;
    let given = r#"<ir_version: 10, opset_import: ["": 21]>
g (int64[1] shape) => (float y)
{
    big = ConstantOfShape (shape)
    y = ReduceSum <keepdims = 0> (big)
}
"#;
    let files = Files::new(&[
        ("fixed.onnxtxt", fixed.into()),
        ("given.onnxtxt", given.into()),
        ("shape.npy", npy("<i8", "(1,)", &1_000_000_000i64.to_le_bytes())),
    ]);
    let refusal =
        ["ConstantOfShape", "4000000000 bytes are needed", "the memory limit is 100000000"];
    let limit = ["--memory-limit", "100MB", "-q"];
    files.run("run", "fixed.onnxtxt", &limit).fails_with(&refusal);
    let shape = format!("shape={}", files.path("shape.npy"));
    let shape = [&[&*shape][..], &limit].concat();
    files.run("run", "given.onnxtxt", &shape).fails_with(&refusal);
    // `explain` only plans the memory of a run.
    let answer = files.run("explain", "fixed.onnxtxt", &["--json"]).good();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["memory"]["arena_bytes"], 4_000_000_000u64);
    assert_eq!(answer["made_bytes"], 0);
    let found = files.run("scan", "fixed.onnxtxt", &["--strict"]).finds();
    assert!(
        found.contains("creates 1000000000 elements that are not stored in the file"),
        "{found}"
    );
}
