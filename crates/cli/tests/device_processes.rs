//! Devices that are processes: `run --devices --processes`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Files, digits_model, sardonyx};
use serde_json::{Value, json};

/// Creates the digits model divided into pipeline stages for several devices.
fn shard_digits(devices: &str) -> Files {
    let files = Files::new(&[]);
    let out = files.path("model.onnx");
    let args = ["shard", &digits_model(), "--devices", devices, "--pipeline", "-o", &out];
    assert_eq!(sardonyx(&args).code, Some(0));
    files
}

/// Checks DIST-30: several processes give the same answer as one, for all models in
/// `tests/devices`.
#[test]
fn processes_give_the_results_of_one() {
    let files = Files::new(&[]);
    let stored = files.path("wanted.npz");
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/devices");
    let mut ran = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|suffix| suffix != "onnxtxt") {
            continue;
        }
        let model = path.to_str().unwrap();
        let random = ["run", model, "--random", "7"];
        let whole = sardonyx(&[&random[..], &["-o", &stored]].concat());
        assert_eq!(whole.code, Some(0), "{model}: {}", whole.stderr);
        // A model with several device configurations needs the name of one.
        let is_one_of = path.file_stem().is_some_and(|stem| stem == "two_configurations");
        let chosen: &[&str] = if is_one_of { &["--configuration", "wide"] } else { &[] };
        for processes in ["2", "3"] {
            let more = ["--devices", "--processes", processes, "--expect", &stored];
            let answer = sardonyx(&[&random[..], &more, chosen].concat());
            assert_eq!(answer.code, Some(0), "{model} {processes}: {}", answer.stderr);
            ran += 1;
        }
    }
    assert!(ran >= 20, "{ran} runs");
}

/// Checks that no device has to return values that only the training information reads.
#[test]
fn a_model_with_training_runs_in_processes() {
    let files = Files::new(&[]);
    let [trainable, model, stored] =
        ["trainable.onnx", "model.onnx", "wanted.npz"].map(|name| files.path(name));
    let digits = digits_model();
    sardonyx(&["add-training", &digits, "--loss", "cross-entropy", "-o", &trainable]).good();
    sardonyx(&["shard", &trainable, "--devices", "2", "--pipeline", "-o", &model]).good();
    let run = ["run", &model, "--random", "3", "--set", "N=2"];
    sardonyx(&[&run[..], &["-o", &stored]].concat()).good();
    for processes in [&[][..], &["--processes"]] {
        let more = [&["--devices", "--expect", &stored], processes].concat();
        sardonyx(&[&run[..], &more].concat()).good();
    }
}

/// Checks that the profile and the trace have the steps and moves of the devices in all processes.
#[test]
fn profiles_cover_all_devices() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/devices/products.onnxtxt");
    let files = Files::new(&[]);
    let trace = files.path("trace.json");
    for processes in [&[][..], &["--processes"]] {
        let profile = ["profile", model, "--devices", "--runs", "3", "-q"];
        let answer = sardonyx(&[&profile[..], processes, &["--json", "--trace", &trace]].concat());
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let json: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert_eq!(json["schema"], "sardonyx.profile-devices/1");
        let devices = json["devices"].as_array().unwrap();
        assert_eq!(devices.len(), 2);
        for device in devices {
            let operators: Vec<&str> = device["steps"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| {
                    assert!(step["us"].is_null() || step["us"].as_f64().unwrap() > 0.0, "{step}");
                    step["operator"].as_str().unwrap()
                })
                .collect();
            assert!(operators.contains(&"MatMul") && operators.contains(&"Exchange"));
            assert!((0.0..1.0).contains(&device["idle"].as_f64().unwrap()), "{device}");
        }
        // Device 0 waits for the partial sums of device 1.
        let moves = json["moves"].as_array().unwrap();
        assert_eq!(moves.len(), 1);
        assert_eq!((&moves[0]["value"], &moves[0]["to"]), (&json!("c"), &json!("whole on 0")));
        let sent: Vec<&Value> =
            moves[0]["devices"].as_array().unwrap().iter().map(|one| &one["sent_bytes"]).collect();
        assert_eq!(sent, [0, 60]);
        let events: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
        let events = events["traceEvents"].as_array().unwrap();
        for thread in [1, 2] {
            let steps = events.iter().filter(|event| event["tid"] == thread && event["ph"] == "X");
            let steps = steps.count();
            assert!(steps >= 3, "{steps} steps of thread {thread}");
        }
        let text = sardonyx(&[&profile[..], processes].concat());
        assert!(text.stdout.contains("waiting us"), "{}", text.stdout);
    }
}

#[test]
fn errors_of_processes_are_printed_once() {
    let files = shard_digits("2");
    let model = files.path("model.onnx");
    let answer = sardonyx(&["run", &model, "nothing.npy", "--devices", "--processes"]);
    assert_eq!(answer.code, Some(2));
    assert_eq!(answer.stderr.matches("error").count(), 1, "{}", answer.stderr);
    let answer = sardonyx(&["run", &model, "--random", "1", "--processes"]);
    assert!(answer.stderr.contains("--devices"), "{}", answer.stderr);
    for option in ["--processes", "--random"] {
        sardonyx(&["run", "--devices", option, &model])
            .fails_with(&[option, "the option goes after the files"]);
    }
    sardonyx(&["run", &model, "--random", "--devices", "2"])
        .fails_with(&["--devices takes no number"]);
    sardonyx(&["run", &digits_model(), "--random", "--devices"])
        .fails_with(&["no device configuration", "`sardonyx shard` adds a device configuration"]);
    let again = ["shard", &model, "--devices", "2", "--pipeline", "-o", &files.path("x.onnx")];
    sardonyx(&again).fails_with(&["a configuration 'pipeline-2' already", "--name"]);
}

/// Checks DIST-32: if a process is killed at any moment, the run ends with an error that names it.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_is_named() {
    let files = shard_digits("3");
    let model = files.path("model.onnx");
    let mut moment = 7u64;
    for _ in 0..12 {
        let mut run = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
            .args(["run", &model, "--fill", "image=ones", "--set", "N=4"])
            .args(["--devices", "--processes", "--device-timeout", "5", "--repeat", "1000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let others = loop {
            let others = children(&run);
            if others.len() == 2 {
                break others;
            }
            assert!(Instant::now() < until, "the processes do not start");
            std::thread::sleep(Duration::from_millis(1));
        };
        // A pseudo-random moment while the processes connect, agree on a plan, or run.
        moment = moment * 48_271 % 2_147_483_647;
        std::thread::sleep(Duration::from_millis(moment % 400));
        let victim = (moment / 400 % 2) as usize;
        let killed = Command::new("kill").args(["-9", &others[victim]]).status().unwrap();
        assert!(killed.success());
        let begin = Instant::now();
        while run.try_wait().unwrap().is_none() {
            if begin.elapsed() > Duration::from_secs(30) {
                run.kill().unwrap();
                panic!("a run goes on without one of its processes");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("worker {}", victim + 1)), "{said}");
        for other in &others {
            let until = Instant::now() + Duration::from_secs(10);
            while Path::new(&format!("/proc/{other}/exe")).exists() {
                assert!(Instant::now() < until, "a process stays behind");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Checks that a process that is stopped, and does not answer, ends the run within the deadline.
#[cfg(target_os = "linux")]
#[test]
fn a_stopped_process_ends_the_run_in_time() {
    let files = shard_digits("3");
    let model = files.path("model.onnx");
    for victim in [0, 1] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_sardonyx"))
            .args(["run", &model, "--fill", "image=ones", "--set", "N=4"])
            .args(["--devices", "--processes", "--device-timeout", "4", "--repeat", "1000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while children(&run).len() < 2 {
            assert!(Instant::now() < until, "the processes do not start");
            std::thread::sleep(Duration::from_millis(1));
        }
        // After this time the processes are connected and run.
        std::thread::sleep(Duration::from_millis(1500));
        let others = children(&run);
        let stopped = Command::new("kill").args(["-STOP", &others[victim]]).status().unwrap();
        assert!(stopped.success());
        let begin = Instant::now();
        let output = loop {
            if run.try_wait().unwrap().is_some() {
                break run.wait_with_output().unwrap();
            }
            if begin.elapsed() > Duration::from_secs(30) {
                run.kill().unwrap();
                panic!("a run goes on without one of its processes");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (took, said) = (begin.elapsed(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("worker {}", victim + 1)), "{said}");
        assert!(took < Duration::from_secs(6), "the run ended after {took:?}: {said}");
        for other in &others {
            assert!(!Path::new(&format!("/proc/{other}/exe")).exists(), "a process stays behind");
        }
    }
}

/// Returns the ids of the child processes of a process.
#[cfg(target_os = "linux")]
fn children(process: &Child) -> Vec<String> {
    let id = process.id();
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    listed.unwrap_or_default().split_whitespace().map(str::to_string).collect()
}

/// Rows and columns of the matrices of [`write_products`]: each half has 1.1 MiB, more than half of
/// a huge page.
#[cfg(target_os = "linux")]
const SIDE: usize = 768;

/// Writes a model of products with `count` constant matrices, in pairs, for two devices.
#[cfg(target_os = "linux")]
fn write_products(files: &Files, count: usize) -> String {
    let bytes = SIDE * SIDE * size_of::<f32>();
    let numbers = (0..count * SIDE * SIDE).map(|index| (index % 251) as f32 / 1000.0 - 0.125);
    let numbers: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    fs::write(files.path("weights.bin"), numbers).unwrap();
    let weights = (0..count).map(|number| {
        let offset = number * bytes;
        format!(
            "float[{SIDE}, {SIDE}] w{number} = \
             [\"location\": \"weights.bin\", \"offset\": \"{offset}\", \"length\": \"{bytes}\"]"
        )
    });
    let weights: Vec<String> = weights.collect();
    let products = (0..count).map(|number| {
        let next = number + 1;
        format!("p{next} = MatMul (x{number}, w{number})  x{next} = Tanh (p{next})\n")
    });
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>\n\
         products (float[N, {SIDE}] x0) => (float[N, {SIDE}] x{count})\n<{}>\n{{ {} }}",
        weights.join(",\n"),
        products.collect::<String>()
    );
    let [whole, model] = ["whole.onnxtxt", "model.onnx"].map(|name| files.path(name));
    fs::write(&whole, text).unwrap();
    sardonyx(&["shard", &whole, "--devices", "2", "-o", &model]).good();
    model
}

/// Measures the peak memory of the first of two processes, in MiB, that run such a model.
#[cfg(target_os = "linux")]
fn measure_peak(files: &Files, count: usize) -> f64 {
    let model = write_products(files, count);
    let bench = ["bench", &model, "--devices", "--processes", "2", "--threads", "1"];
    let runs = ["--runs", "1", "--set", "N=1", "--json"];
    let answer = sardonyx(&[&bench[..], &runs].concat()).good();
    let json: Value = serde_json::from_str(&answer).unwrap();
    json["rss_peak_mb"].as_f64().unwrap()
}

/// Checks that a process of two takes little more memory for weights than its half of them: neither
/// the file's pages nor huge pages that a part fills in part stay resident.
#[test]
#[cfg(target_os = "linux")]
fn a_process_holds_its_part_of_the_weights() {
    let files = Files::new(&[]);
    let (few, many) = (measure_peak(&files, 2), measure_peak(&files, 34));
    let weights = (32 * SIDE * SIDE * size_of::<f32>()) as f64 / f64::from(1 << 20);
    let share = (many - few) / weights;
    assert!(share < 0.6, "{few} MiB, {many} MiB: {share:.2} of the weights");
    assert!(share > 0.4, "the weights are not held: {few} MiB, {many} MiB");
}
