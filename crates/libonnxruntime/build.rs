//! Gives the shared library the name that clients look for, and its symbols the versions that
//! they have in releases of onnxruntime.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Symbols that clients look up.
const SYMBOLS: [&str; 2] = ["OrtGetApiBase", "OrtSessionOptionsAppendExecutionProvider_CPU"];

/// Minor versions of the releases of onnxruntime whose clients find the symbols.
const MINOR_VERSIONS: std::ops::RangeInclusive<u32> = 8..=31;

/// Patches of each minor version: 1.24.4 is the highest so far.
const PATCHES: std::ops::RangeInclusive<u32> = 0..=4;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(has_version_script)");
    if !is("OS", "linux") {
        return;
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libonnxruntime.so.1");
    // Two version scripts, this one and that of rustc, are combined by LLD alone, which rustc takes
    // on this target.
    if !is("ARCH", "x86_64") || !is("ENV", "gnu") {
        return;
    }
    println!("cargo:rustc-cfg=has_version_script");
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets the directory"));
    write_versions(&directory).expect("cargo makes the directory");
    let script = directory.join("versions.map");
    if env::var_os("CARGO_FEATURE_SYMBOL_VERSIONS").is_some() {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={}", script.display());
    }
}

/// Whether a property of the target has this value.
fn is(property: &str, value: &str) -> bool {
    env::var(format!("CARGO_CFG_TARGET_{property}")).is_ok_and(|found| found == value)
}

/// Writes the version script, and assembly with a symbol of each version that jumps to the function
/// of Rust. The symbols without a version are for clients that look them up by name.
fn write_versions(directory: &Path) -> std::io::Result<()> {
    let (mut script, mut assembly) = (String::new(), String::from("core::arch::global_asm!(\n"));
    for (minor, patch) in MINOR_VERSIONS.flat_map(|minor| PATCHES.map(move |patch| (minor, patch)))
    {
        let version = format!("VERS_1.{minor}.{patch}");
        let _ = writeln!(script, "{version} {{}};");
        for (index, symbol) in SYMBOLS.iter().enumerate() {
            let name = format!("sardonyx_{minor}_{patch}_{index}");
            for line in [
                format!(".globl {name}"),
                format!(".type {name}, @function"),
                format!("{name}: jmp {{{symbol}}}"),
                format!(".size {name}, . - {name}"),
                format!(".symver {name}, {symbol}@{version}"),
            ] {
                let _ = writeln!(assembly, "    {line:?},");
            }
        }
    }
    for (symbol, function) in SYMBOLS.iter().zip(["find_base", "append_cpu"]) {
        let _ = writeln!(assembly, "    {symbol} = sym {function},");
    }
    assembly.push_str(");\n");
    fs::write(directory.join("versions.map"), script)?;
    fs::write(directory.join("versions.rs"), assembly)
}
