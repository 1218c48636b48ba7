//! `cargo xtask static-build`: the release, which is the command as one file that needs nothing,
//! not even a C library.
//!
//! The proof is that the file names no program interpreter, which would load libraries, and a run
//! inside an otherwise empty root directory.

use crate::sizes::{self, Artefact};
use crate::workspace::{Environment, PROFILE, artifacts, build_release, readable_path, root};
use crate::{Result, shell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// The target that is released.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments of the compiler that link a program without shared libraries, in fewer bytes:
/// functions of equal code are merged, and relocations are packed, which static programs of glibc
/// 2.36 and newer unpack themselves.
pub(crate) const LINK_ARGUMENTS: &[&str] = &[
    "-Ctarget-feature=+crt-static",
    "-Clink-arg=-Wl,--icf=all",
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
    // cargo forgets `strip` of a profile for packages with a level of their own.
    "-Clink-arg=-Wl,--strip-all",
];

/// Flags of a release build without shared libraries: [`LINK_ARGUMENTS`] for all crates, as CI also
/// builds other programs so. The target is named so that the flags do not reach build scripts and
/// procedural macros, which must be shared libraries themselves.
pub(crate) const ENVIRONMENT: Environment = &[
    (
        "RUSTFLAGS",
        "-Ctarget-feature=+crt-static -Clink-arg=-Wl,--icf=all -Clink-arg=-Wl,-z,pack-relative-relocs \
         -Clink-arg=-Wl,--strip-all",
    ),
    ("CARGO_BUILD_TARGET", TARGET),
    (PROFILE, "dist"),
];

pub(crate) fn run() -> Result {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the static build is for x86_64 Linux");
        return Ok(());
    }
    let binary = build_release("sardonyx", ENVIRONMENT)?;
    sizes::check(Artefact::Command, &binary)?;
    check(&binary)
}

/// Checks that the command needs no library, and runs it where there is none.
pub(crate) fn check(binary: &Path) -> Result {
    let directory = artifacts("static/root");
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    for (from, to) in [
        (binary, "sardonyx"),
        (&root().join("examples/digits/digits.onnx"), "digits.onnx"),
        (&root().join("examples/digits/seven.png"), "seven.png"),
    ] {
        fs::copy(from, directory.join(to))
            .map_err(|error| format!("{}: {error}", from.display()))?;
    }
    match interpreter(&fs::read(binary)?)? {
        None => println!("static: {}", readable_path(binary)),
        Some(loader) => {
            let binary = readable_path(binary);
            return Err(format!("{binary} is not static: {loader} has to load libraries").into());
        }
    }

    // The owner of our own process entry is us.
    if fs::metadata("/proc/self")?.uid() != 0 {
        println!("skipped the run in an empty chroot: only root may change the root directory");
        return Ok(());
    }
    for arguments in [["info", "/digits.onnx"].as_slice(), &["run", "/digits.onnx", "/seven.png"]] {
        println!("in an empty chroot: sardonyx {}", arguments.join(" "));
        shell::run(Command::new("chroot").arg(&directory).arg("/sardonyx").args(arguments))?;
    }
    Ok(())
}

/// Reads the name of the program interpreter of a 64-bit ELF file; `None` for a static file.
fn interpreter(file: &[u8]) -> Result<Option<String>> {
    const PT_INTERP: usize = 3;
    let number = |at: usize, bytes: usize| {
        let end = at.checked_add(bytes)?;
        let digits = file.get(at..end)?.iter().rev();
        Some(digits.fold(0, |number, digit| number << 8 | usize::from(*digit)))
    };
    // The table of program headers: where it is, how long an entry is, how many there are.
    let table = || Some((number(32, 8)?, number(54, 2)?, number(56, 2)?));
    let (start, length, count) = if file.starts_with(b"\x7fELF\x02\x01") {
        table().ok_or("the ELF file ends within its header")?
    } else {
        return Err("cargo built something that is not a 64-bit ELF file".into());
    };
    for index in 0..count {
        let entry = start + index * length;
        let header = || Some((number(entry, 4)?, number(entry + 8, 8)?, number(entry + 32, 8)?));
        let (kind, at, bytes) = header().ok_or("the ELF file ends within its program headers")?;
        if kind == PT_INTERP {
            let name = file.get(at..at + bytes).unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            return Ok(Some(name.trim_end_matches('\0').to_string()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_ci_are_linked_like_the_command() {
        let flags = ENVIRONMENT.iter().find(|(name, _)| *name == "RUSTFLAGS");
        assert_eq!(flags.map(|(_, flags)| *flags), Some(LINK_ARGUMENTS.join(" ").as_str()));
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn a_program_that_needs_libraries_is_recognized() {
        // This test is built as `cargo install` builds the command.
        let mut file = fs::read(std::env::current_exe().unwrap()).unwrap();
        let loader = interpreter(&file).unwrap();
        assert_eq!(loader.is_none(), cfg!(target_feature = "crt-static"));

        // A file without program headers needs nothing.
        file[56..58].fill(0);
        assert_eq!(interpreter(&file).unwrap(), None);
        assert!(interpreter(&file[..50]).is_err());
        assert!(interpreter(b"#!/bin/sh").is_err());
    }
}
