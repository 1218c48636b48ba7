//! The example programs: compiled with the C and C++ compilers of the machine, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of the shared library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_path_buf()
}

/// Compiles an example and runs it on a model; `None` without a compiler.
fn run(compiler: &str, file: &str, arguments: &[&str]) -> Option<String> {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("skipped: the compiler {compiler} is not installed");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let compiled = Command::new(compiler)
        .args(arguments)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("examples").join(file))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(library())
        .arg("-lsardonyx_c")
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program)
        .arg(root().join("../../examples/digits/digits.onnx"))
        .env("LD_LIBRARY_PATH", library())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{text}");
    Some(text)
}

/// Compares what a program printed with a file, which `BLESS=1` renews.
fn compare(file: &str, text: &str) {
    let path = root().join("examples").join(file);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
#[cfg(target_os = "linux")]
fn example_in_c() {
    let Some(text) = run("cc", "digits.c", &["-std=c11"]) else { return };
    compare("digits.c.txt", &text);
}

#[test]
#[cfg(target_os = "linux")]
fn example_in_cpp() {
    let Some(text) = run("c++", "digits.cpp", &["-std=c++17"]) else { return };
    compare("digits.cpp.txt", &text);
}

#[test]
fn the_file_of_pkg_config_has_the_version() {
    let file = std::fs::read_to_string(root().join("sardonyx.pc")).unwrap();
    assert!(file.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"), "\n")), "{file}");
}

#[test]
#[cfg(target_os = "linux")]
fn only_functions_of_the_header_are_exported() {
    let path = library().join("libsardonyx_c.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&path).output();
    let Ok(output) = output else {
        eprintln!("skipped: the program nm is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<&str> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let header = std::fs::read_to_string(root().join("include/sardonyx.h")).unwrap();
    let declared = header.lines().filter(|line| line.ends_with(");") && line.contains("sardonyx_"));
    let mut declared: Vec<&str> = declared
        .map(|line| line[line.find("sardonyx_").unwrap()..].split('(').next().unwrap())
        .collect();
    found.sort_unstable();
    declared.sort_unstable();
    assert_eq!(found, declared);
    assert!(declared.len() > 40);
}
