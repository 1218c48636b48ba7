//! Programs with `panic = "abort"`: stopping a run must not unwind, as that would abort the
//! process.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::tempdir;

/// Maximum time for a run that is stopped: it ends in far less, and would run far longer otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// Libraries that this test was linked with, as Cargo lists them.
struct Libraries {
    sardonyx: PathBuf,
    ctrlc: PathBuf,
    /// Directories of system libraries that crates were linked with.
    native: BTreeSet<String>,
}

impl Libraries {
    /// Lists the libraries by `cargo test --no-run`, which builds nothing, because all is fresh
    /// while this test runs.
    fn find() -> Libraries {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--workspace", "--test", "integration", "--no-run", "--offline"]);
        cargo.args(["--message-format", "json"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let answer = cargo.stderr(Stdio::inherit()).output().unwrap();
        assert!(answer.status.success(), "cargo does not say what was built");
        let messages: Vec<Value> = String::from_utf8(answer.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let library = |name: &str| -> PathBuf {
            let artifacts = messages.iter().filter(|message| {
                message["reason"] == "compiler-artifact"
                    && message["target"]["name"] == name
                    && message["target"]["kind"][0] == "lib"
                    && message["profile"]["test"] == false
            });
            let mut files = artifacts.flat_map(|message| message["filenames"].as_array().unwrap());
            let file = files.find(|file| file.as_str().unwrap().ends_with(".rlib"));
            file.unwrap_or_else(|| panic!("no library {name}")).as_str().unwrap().into()
        };
        let native = messages
            .iter()
            .filter(|message| message["reason"] == "build-script-executed")
            .flat_map(|message| message["linked_paths"].as_array().unwrap())
            .map(|path| path.as_str().unwrap().to_string());
        Libraries {
            sardonyx: library("sardonyx"),
            ctrlc: library("ctrlc"),
            native: native.collect(),
        }
    }
}

/// Compiles the program with `panic = "abort"`. Its libraries are compiled for unwinding, because
/// the choice is made by the program.
fn compile(program: &Path) {
    let Libraries { sardonyx, ctrlc, native } = Libraries::find();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/src/bin/ends_early.rs");
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc.args(["--edition", "2024", "-C", "panic=abort"]).arg("-o").arg(program).arg(source);
    for (name, library) in [("sardonyx", &sardonyx), ("ctrlc", &ctrlc)] {
        rustc.arg("--extern").arg(format!("{name}={}", library.display()));
        let directory = library.parent().unwrap().display();
        // The dependencies of a library are in its directory, or in `deps` below it.
        rustc.arg("-L").arg(format!("dependency={directory}"));
        rustc.arg("-L").arg(format!("dependency={directory}/deps"));
    }
    for path in native {
        rustc.arg("-L").arg(path);
    }
    assert!(rustc.status().unwrap().success(), "the program does not compile");
}

/// Waits for a process and returns its exit code and output. Kills it after [`PATIENCE`].
fn wait(mut child: Child, what: &str) -> (Option<i32>, String) {
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{what} does not end");
        }
        thread::sleep(Duration::from_millis(10));
    };
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (status.code(), errors)
}

#[test]
fn runs_end_with_an_error() {
    let directory = tempdir().unwrap();
    let program = directory.path().join("ends-early");
    compile(&program);
    for place in ["loop", "product", "threads", "training", "devices"] {
        for way in ["deadline", "flag", "interrupt"] {
            let what = format!("{place}, {way}");
            let mut child = Command::new(&program)
                .args([place, way])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "running\n", "{what}: {}", wait(child, &what).1);
            if way == "interrupt" {
                thread::sleep(Duration::from_millis(300));
                let pid = child.id().to_string();
                assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
            }
            let (code, errors) = wait(child, &what);
            assert_eq!(code, Some(0), "{what}: {errors}");
            assert!(errors.starts_with("the run was stopped"), "{what}: {errors}");
        }
    }
}
