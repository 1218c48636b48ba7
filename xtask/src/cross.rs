//! `cargo xtask cross`: the library for other processors and systems, and its tests under an
//! emulator where Debian has one.
//!
//! Debian's compiler `rustc-web` has the standard library of aarch64 ready, and its sources for
//! every other target, so that nothing needs more than Debian's packages. Its version is not ours,
//! so what it compiles has a directory of its own.
//!
//! An emulator is slow: tests are those of a release build, whose crates of kernels are one unit
//! each. Tests of kernels that are [`LONG`] run with `--all` only.

use crate::workspace::{artifacts, cargo};
use crate::{Result, copies, shell};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Cross {
    /// Targets, by their names in Rust [default: all that are known]
    targets: Vec<String>,
    /// Run all tests of the crates of kernels, on each processor that the emulator imitates
    #[arg(long)]
    all: bool,
    /// Compile only
    #[arg(long, conflicts_with = "all")]
    check: bool,
}

/// A target that the library is compiled for.
struct Target {
    name: &'static str,
    library: Library,
    /// Arguments of cargo that choose the features of `sardonyx`.
    features: &'static [&'static str],
    emulator: Option<Emulator>,
}

/// Origin of the target's standard library.
enum Library {
    /// A package of Debian.
    Ready,
    /// The sources of Debian's compiler, of which these crates are compiled.
    Sources(&'static str),
}

/// A program that runs programs of another processor.
struct Emulator {
    program: &'static str,
    /// Linker of the target.
    linker: &'static str,
    /// Processors that it imitates, the one with most instructions first.
    processors: &'static [&'static str],
}

/// The target that has an emulator.
pub(crate) const AARCH64: &str = "aarch64-unknown-linux-gnu";

const TARGETS: &[Target] = &[
    Target {
        name: AARCH64,
        library: Library::Ready,
        features: &[],
        emulator: Some(Emulator {
            program: "qemu-aarch64-static",
            linker: "aarch64-linux-gnu-gcc",
            processors: &["max", "neoverse-n1", "cortex-a72", "cortex-a53"],
        }),
    },
    Target {
        name: "aarch64-unknown-linux-musl",
        library: Library::Sources("std,panic_abort"),
        features: &[],
        emulator: None,
    },
    Target {
        name: "x86_64-unknown-linux-musl",
        library: Library::Sources("std,panic_abort"),
        features: &[],
        emulator: None,
    },
    Target {
        name: "x86_64-pc-windows-gnu",
        library: Library::Sources("std,panic_abort"),
        features: &[],
        emulator: None,
    },
    Target {
        name: "aarch64-apple-darwin",
        library: Library::Sources("std,panic_abort"),
        features: &[],
        emulator: None,
    },
    Target {
        name: "wasm32-wasip1",
        library: Library::Sources("std,panic_abort"),
        features: &["--no-default-features"],
        emulator: None,
    },
];

/// Debian's packages, for a machine of x86_64.
const DEBIAN_PACKAGES: &[&str] = &[
    "rustc-web",
    "rust-web-src",
    "lld-22",
    "qemu-user-static",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "libc6:arm64",
    "libstd-rust-web-dev",
    "libstd-rust-web-dev:arm64",
    // The standard library of Windows needs its dlltool.
    "binutils-mingw-w64-x86-64",
];

/// Compiler of the package `rustc-web`; rustup's comes before it on the path.
const COMPILER: &str = "/usr/bin/rustc";

/// Crates of which all tests run.
const WHOLE: &[&str] = &["sardonyx-tensor", "sardonyx-proto"];

/// Crates of kernels.
const KERNELS: &[&str] =
    &["sardonyx-simd", "sardonyx-elementwise", "sardonyx-gemm", "sardonyx-kernels"];

/// Tests of kernels that run with `--all` only: each took more than 40 seconds under the emulator,
/// in a build whose crates were 16 units.
const LONG: &[&str] = &[
    "accuracy::functions_of_f32_are_within_the_documented_bounds",
    "accuracy::functions_of_f64_are_within_the_documented_bounds",
    "attention::tests::caches_and_threads_change_no_bit",
    "binary::tests::every_type_operation_and_shape",
    "conv::expanded::tests::results_have_the_bits_of_one_after_the_other",
    "conv::integer::tests::sums_and_codes_are_those_of_the_definition",
    "conv::tests::all_loops_agree_with_the_plain_one",
    "conv::tests::caches_change_no_bit",
    "conv::tests::gradients_of_weights_are_sums_over_outputs",
    "conv::tests::weights_are_scaled_in_double_precision_and_rounded_once",
    "cumulative::tests::every_type",
    "ending_tests::kernels_end_at_any_moment",
    "gemm::few_bits::tests::products_of_few_and_many_rows",
    "gemm::integer::tests::products_of_bytes_are_exact",
    "gemm::tests::products_of_all_shapes_layouts_and_forms",
    "pixels::tests::neighbouring_channels",
    "pixels::tests::windows",
    "pooling::tests::every_type",
    "recurrent::tests::all_cells_in_f32",
    "recurrent::tests::all_cells_in_f64",
    "recurrent::tests::threads_and_caches_change_no_bit",
    "pointwise::tests::floats_as_one_by_one",
    "pointwise::tests::integers_as_one_by_one",
    "sorting::tests::long_lists_are_sorted",
];

pub(crate) fn run(task: &Cross) -> Result {
    let targets = find_targets(&task.targets)?;
    install_packages()?;
    let mut summary = Vec::new();
    for target in targets {
        println!("==> {}", target.name);
        let start = Instant::now();
        let mut check = target.cargo("check");
        check.args(["--quiet", "--package", "sardonyx"]).args(target.features);
        shell::run(&mut check)?;
        let mut line = format!("{:26} compiled in {} s", target.name, start.elapsed().as_secs());
        if let Some(emulator) = target.emulator.as_ref().filter(|_| !task.check) {
            copies::check_neon()?;
            let count = if task.all { emulator.processors.len() } else { 1 };
            for processor in &emulator.processors[..count] {
                let start = Instant::now();
                run_tests(target, emulator, processor, task.all)?;
                let seconds = start.elapsed().as_secs();
                line.push_str(&format!("; tests passed on {processor} in {seconds} s"));
            }
        }
        summary.push(line);
    }
    println!("\n{}", summary.join("\n"));
    Ok(())
}

/// Finds targets by their names; all without names.
fn find_targets(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let find = |name: &String| {
        TARGETS.iter().find(|target| target.name == name).ok_or_else(|| {
            let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            format!("{name} is not in the table of targets: {}", known.join(", ")).into()
        })
    };
    names.iter().map(find).collect()
}

/// Returns a command of cargo that compiles for AArch64 with Debian's compiler.
pub(crate) fn cargo_for_aarch64(command: &str) -> Result<Command> {
    install_packages()?;
    let target = TARGETS.iter().find(|target| target.name == AARCH64);
    Ok(target.ok_or("the table of targets has no AArch64")?.cargo(command))
}

/// Runs the tests of crates on an imitated processor.
fn run_tests(target: &Target, emulator: &Emulator, processor: &str, all: bool) -> Result {
    // The loader is that of the package libc6:arm64, as the libraries are, which it finds by the
    // cache of this system: with the loader of libc6-arm64-cross, another release, threads wait
    // for ever.
    let runner = format!("{} -cpu {processor}", emulator.program);
    let long = if all { &[] } else { LONG };
    for (packages, left_out) in [(WHOLE, &[][..]), (KERNELS, long)] {
        let mut command = target.cargo("test");
        command.env(target.variable("RUNNER"), &runner);
        command.env("RUSTFLAGS", copies::FLAGS);
        command.args(["--quiet", "--release", "--lib", "--tests"]);
        for package in packages {
            command.args(["--package", package]);
        }
        command.arg("--");
        for name in left_out {
            command.args(["--skip", name]);
        }
        shell::run(&mut command)?;
    }
    Ok(())
}

impl Target {
    /// Makes a command of cargo that compiles for the target.
    fn cargo(&self, command: &str) -> Command {
        let mut cargo = cargo();
        cargo.arg(command).args(["--target", self.name]);
        cargo.env("CARGO_TARGET_DIR", artifacts("cross")).env("RUSTC", COMPILER);
        if let Library::Sources(crates) = self.library {
            // A stable compiler takes the unstable option then.
            cargo.env("RUSTC_BOOTSTRAP", "1").arg(format!("-Zbuild-std={crates}"));
        }
        if let Some(Emulator { linker, .. }) = self.emulator {
            cargo.env(self.variable("LINKER"), linker);
        }
        cargo
    }

    /// Names the variable from which cargo reads a setting of the target.
    fn variable(&self, setting: &str) -> String {
        format!("CARGO_TARGET_{}_{setting}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Installs Debian's packages unless they are there.
fn install_packages() -> Result {
    /// Directory in which cargo looks for the sources of the standard library.
    const SOURCES: &str = "/usr/lib/rustlib/src/rust/library";
    let present = Path::new(COMPILER).exists()
        && Path::new(SOURCES).exists()
        && TARGETS.iter().filter_map(|target| target.emulator.as_ref()).all(|emulator| {
            [emulator.program, emulator.linker].iter().all(|program| is_program(program))
        });
    if present {
        return Ok(());
    }
    if !is_program("apt-get") {
        return Err(
            format!("please install Debian's packages {}", DEBIAN_PACKAGES.join(" ")).into()
        );
    }
    shell::run(Command::new("dpkg").args(["--add-architecture", "arm64"]))?;
    shell::run(Command::new("apt-get").args(["update", "-qq"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(DEBIAN_PACKAGES);
    shell::run(&mut install)
}

/// Whether the path has a program of this name.
fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}
