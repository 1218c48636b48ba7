//! Tests that a process killed at any moment of a save leaves the whole old model or the whole new
//! one.

// In a test, a panic is the report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sardonyx::io::{Access, ExternalFiles, Weights};
use sardonyx::{Model, OpenOptions, SaveOptions};

/// Environment variable with the directory in which the process to be killed saves.
const PLACE: &str = "SARDONYX_TEST_SAVE_UNTIL_KILLED";
/// Number of elements of the only tensor: large enough that writing takes a while.
const LEN: usize = 3 << 20;

/// Makes a model whose weights are all `seed`.
fn model(seed: u8) -> Model {
    let weights = vec![seed; LEN];
    let mut tensor = vec![0x08];
    varint(&mut tensor, LEN); // dims
    tensor.extend(b"\x10\x02\x42\x01w"); // uint8, "w"
    field(&mut tensor, 0x4a, &weights); // raw_data
    let mut graph = b"\x12\x01g".to_vec();
    field(&mut graph, 0x2a, &tensor);
    let mut bytes = b"\x08\x0a".to_vec();
    field(&mut bytes, 0x3a, &graph);
    Model::from_bytes(bytes).unwrap()
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    varint(out, content.len());
    out.extend(content);
}

/// Returns the options of a save with or without data files.
fn options(with_data: bool) -> SaveOptions {
    SaveOptions::new().replace(true).weights(if with_data {
        Weights::Outside
    } else {
        Weights::Inside
    })
}

/// Saves model after model until the process is killed. Does nothing unless the environment
/// variable is set.
#[test]
fn saves_until_killed() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let (path, how) = (PathBuf::from(&place).join("m.onnx"), std::env::var("HOW"));
    let how = how.unwrap();
    for round in 0u8.. {
        let with_data = match how.as_str() {
            "data" => true,
            "plain" => false,
            _ => round.is_multiple_of(2),
        };
        options(with_data).save(&model(round), &path).unwrap();
    }
}

/// Reads the value of all weights.
fn seed_of(path: &Path) -> u8 {
    let options = OpenOptions::new().access(Access::Read).external(ExternalFiles::Now);
    let model = options.open(path).unwrap();
    let value = model.value_of(&model.tensors()[0]).unwrap();
    let bytes = value.buffer().unwrap().clone();
    let bytes = bytes.as_slice();
    assert_eq!(bytes.len(), LEN);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "weights of two models");
    bytes[0]
}

#[test]
fn a_killed_save_leaves_a_whole_model() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    for round in 0..60u64 {
        let how = ["data", "plain", "both"][round as usize % 3];
        options(how == "data").save(&model(0), &path).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::saves_until_killed", "--nocapture"])
            .env(PLACE, scratch.path())
            .env("HOW", how)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Delays spread over several saves, equal in each run of the test.
        let moment = 5_000 + round * 7_919 % 60_000;
        std::thread::sleep(Duration::from_micros(moment));
        child.kill().unwrap();
        child.wait().unwrap();

        seed_of(&path);
        let used = Model::open(&path).unwrap().external_files();
        let orphans: Vec<String> = names(scratch.path())
            .into_iter()
            .filter(|name| name != "m.onnx" && used.iter().all(|file| &file.location != name))
            // The model under its temporary name, and the note that the next save reads.
            .filter(|name| ![".m.onnx.tmp", ".m.onnx.replacing"].contains(&name.as_str()))
            .collect();
        assert!(orphans.len() <= 1, "round {round}, {how}: {orphans:?}");
        // The next save removes all other files.
        options(false).save(&model(255), &path).unwrap();
        assert_eq!(names(scratch.path()), ["m.onnx"], "round {round}, {how}");
        assert_eq!(seed_of(&path), 255);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
