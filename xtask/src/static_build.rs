//! `cargo xtask static-build`: the command as one file that needs nothing, not even a C library.
//!
//! The proof is a run inside an otherwise empty root directory.

use crate::workspace::{Environment, artifacts, build_release, root, shown};
use crate::{Result, shell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// What makes cargo build without shared libraries. The target is named so that the flags do not reach build
/// scripts and procedural macros, which must be shared libraries themselves.
pub(crate) const ENVIRONMENT: Environment = &[
    ("RUSTFLAGS", "-C target-feature=+crt-static"),
    ("CARGO_BUILD_TARGET", "x86_64-unknown-linux-gnu"),
];

pub(crate) fn run() -> Result {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the static build is for x86_64 Linux");
        return Ok(());
    }
    let binary = build_release("sardonyx", ENVIRONMENT)?;
    let folder = artifacts("static/root");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for (from, to) in [
        (binary.as_path(), "sardonyx"),
        (&root().join("examples/digits/digits.onnx"), "digits.onnx"),
        (&root().join("examples/digits/seven.png"), "seven.png"),
    ] {
        fs::copy(from, folder.join(to)).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let size = fs::metadata(&binary)?.len() as f64 / 1e6;
    println!("static build: {} ({size:.1} MB)", shown(&binary));

    // The owner of our own process entry is us.
    if fs::metadata("/proc/self")?.uid() != 0 {
        println!("skipped the run in an empty chroot: only root may change the root directory");
        return Ok(());
    }
    for arguments in [
        ["info", "/digits.onnx"].as_slice(),
        &["run", "/digits.onnx", "/seven.png"],
    ] {
        println!("in an empty chroot: sardonyx {}", arguments.join(" "));
        shell::run(
            Command::new("chroot")
                .arg(&folder)
                .arg("/sardonyx")
                .args(arguments),
        )?;
    }
    Ok(())
}
