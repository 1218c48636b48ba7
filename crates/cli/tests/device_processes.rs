//! Devices that are processes: `run --devices --processes`.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Files, digits_model, sardonyx};

/// The digits model in stages.
fn staged(devices: &str) -> Files {
    let files = Files::new(&[]);
    let out = files.path("model.onnx");
    let args = ["shard", &digits_model(), "--devices", devices, "--pipeline", "-o", &out];
    assert_eq!(sardonyx(&args).code, Some(0));
    files
}

/// DIST-30: the same answer as that of one process, for all examples of annotations.
#[test]
fn processes_give_what_one_gives() {
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
        for processes in ["2", "3"] {
            let more = ["--devices", "--processes", processes, "--expect", &stored];
            let answer = sardonyx(&[&random[..], &more].concat());
            assert_eq!(answer.code, Some(0), "{model} {processes}: {}", answer.stderr);
            ran += 1;
        }
    }
    assert!(ran >= 20, "{ran} runs");
}

#[test]
fn what_goes_wrong_is_said_once() {
    let files = staged("2");
    let model = files.path("model.onnx");
    let answer = sardonyx(&["run", &model, "nothing.npy", "--devices", "--processes"]);
    assert_eq!(answer.code, Some(2));
    assert_eq!(answer.stderr.matches("error").count(), 1, "{}", answer.stderr);
    let answer = sardonyx(&["run", &model, "--random", "1", "--processes"]);
    assert!(answer.stderr.contains("--devices"), "{}", answer.stderr);
}

/// DIST-32: a process that is killed at any moment ends the run, and is named.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_is_named() {
    let files = staged("3");
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
        // A moment while they find each other, agree, or run.
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

/// The processes that a process has started.
#[cfg(target_os = "linux")]
fn children(process: &Child) -> Vec<String> {
    let id = process.id();
    let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    listed.unwrap_or_default().split_whitespace().map(str::to_string).collect()
}
