//! Instruction set of the kernels, found once at run time.
//!
//! The variants are in order of preference. A machine that has one also has all earlier ones of its
//! kind of processor, which [`Isa::ALL`] lists.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::OnceLock;

/// An instruction set that kernels are compiled for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Instructions that the compilation target guarantees, such as SSE2 on x86-64. The compiler
    /// vectorizes plain loops with them.
    Portable,
    /// NEON with fused multiply-add, which all AArch64 has.
    Neon,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with AVX2, FMA and BMI2.
    Avx512,
}

/// Name of the environment variable that lowers the instruction set.
const VARIABLE: &str = "SARDONYX_ISA";

impl Isa {
    /// All instruction sets of this kind of processor that have kernels, worst first, including
    /// those that this machine lacks.
    pub const ALL: &'static [Isa] = if cfg!(target_arch = "x86_64") {
        &[Isa::Portable, Isa::Avx2, Isa::Avx512]
    } else if cfg!(target_arch = "aarch64") {
        &[Isa::Portable, Isa::Neon]
    } else {
        &[Isa::Portable]
    };

    /// Returns the instruction set to use: the best of this machine, lower_isa by the environment
    /// variable `SARDONYX_ISA` (`portable`; `avx2` or `avx512` on x86-64, `neon` on AArch64), which
    /// never raises it above those of the machine. An empty variable counts as unset. The variable
    /// is read once per process.
    ///
    /// # Errors
    ///
    /// If the variable names no instruction set of this kind of processor.
    pub fn from_environment() -> Result<Isa, UnknownIsa> {
        static REQUESTED: OnceLock<Result<Isa, UnknownIsa>> = OnceLock::new();
        REQUESTED
            .get_or_init(|| lower_isa(machine_best(), std::env::var_os(VARIABLE).as_deref()))
            .clone()
    }

    /// Returns the instruction set to use like [`Isa::from_environment`], or the best of this
    /// machine if the variable names no instruction set.
    pub fn detect() -> Isa {
        Isa::from_environment().unwrap_or_else(|_| machine_best())
    }

    /// Returns the instruction set of [`Isa::detect`] and all below it, worst first, for tests that
    /// run under each of them.
    pub fn available() -> &'static [Isa] {
        let worse = Isa::ALL.iter().filter(|isa| **isa < Isa::detect()).count();
        &Isa::ALL[..=worse]
    }

    /// Returns the name as `SARDONYX_ISA` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Neon => "neon",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Returns the number of floats in a vector.
    pub const fn lanes(self) -> usize {
        match self {
            Isa::Avx512 => 16,
            Isa::Avx2 => 8,
            Isa::Portable | Isa::Neon => 4,
        }
    }

    /// Returns the number of vector registers. Portable code counts those of x86.
    pub const fn registers(self) -> usize {
        match self {
            Isa::Avx512 | Isa::Neon => 32,
            Isa::Avx2 | Isa::Portable => 16,
        }
    }

    /// Whether this machine can run `self`.
    pub fn is_available(self) -> bool {
        Isa::ALL.contains(&self) && self <= machine_best()
    }
}

/// Error for a `SARDONYX_ISA` that names no instruction set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsa {
    value: OsString,
}

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Isa::ALL.iter().map(|isa| isa.name()).collect();
        let names = names.join(", ");
        write!(f, "{VARIABLE} is {:?}, but must be one of {names}", self.value)
    }
}

impl std::error::Error for UnknownIsa {}

/// Returns the instruction set that the variable names if it is lower than `best`, else `best`.
fn lower_isa(best: Isa, variable: Option<&OsStr>) -> Result<Isa, UnknownIsa> {
    let Some(value) = variable.filter(|value| !value.is_empty()) else {
        return Ok(best);
    };
    let named = Isa::ALL.iter().find(|isa| value == isa.name());
    named.map(|isa| best.min(*isa)).ok_or_else(|| UnknownIsa { value: value.to_os_string() })
}

#[cfg(target_arch = "x86_64")]
fn machine_best() -> Isa {
    // The macro caches CPUID itself, so this is a few loads.
    if !(is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c"))
    {
        Isa::Portable
    } else if is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi2")
    {
        Isa::Avx512
    } else {
        Isa::Avx2
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn machine_best() -> Isa {
    if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Portable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Start of the line in which a process reports its instruction set. `cargo xtask isa` reads
    /// it.
    const LINE: &str = "instruction set in use: ";

    /// The spelling of each instruction set.
    const NAMES: [(&str, Isa); 4] = [
        ("portable", Isa::Portable),
        ("neon", Isa::Neon),
        ("avx2", Isa::Avx2),
        ("avx512", Isa::Avx512),
    ];

    #[test]
    fn the_variable_lowers_and_never_raises() {
        for &best in Isa::ALL {
            assert_eq!(lower_isa(best, None), Ok(best));
            assert_eq!(lower_isa(best, Some(OsStr::new(""))), Ok(best));
            for (name, isa) in NAMES {
                let found = lower_isa(best, Some(OsStr::new(name)));
                if Isa::ALL.contains(&isa) {
                    assert_eq!(found, Ok(isa.min(best)));
                } else {
                    assert!(found.is_err(), "{name} is of another kind of processor");
                }
            }
            let error = lower_isa(best, Some(OsStr::new("avx3"))).unwrap_err().to_string();
            let known = NAMES.iter().filter(|(_, isa)| Isa::ALL.contains(isa));
            let known: Vec<_> = known.map(|(name, _)| *name).collect();
            let known = known.join(", ");
            assert_eq!(error, format!("SARDONYX_ISA is \"avx3\", but must be one of {known}"));
        }
    }

    #[test]
    fn only_sets_of_this_processor_are_available() {
        for (name, isa) in NAMES {
            assert!(!isa.is_available() || Isa::ALL.contains(&isa), "{name}");
        }
        assert_eq!(Isa::Neon.is_available(), cfg!(target_arch = "aarch64"));
    }

    #[test]
    fn available_ends_with_the_one_in_use() {
        let all = Isa::available();
        assert!(all.is_sorted());
        assert_eq!(all.first(), Some(&Isa::Portable));
        assert_eq!(all.last(), Some(&Isa::detect()));
        assert!(all.iter().all(|isa| isa.is_available()));
    }

    #[test]
    fn says_which_one_is_in_use() {
        match Isa::from_environment() {
            Ok(isa) => println!("{LINE}{}", isa.name()),
            Err(error) => println!("{LINE}none: {error}"),
        }
    }

    /// Makes a command that starts this program, under the emulator that cargo runs it under.
    fn this_program() -> Command {
        let program = std::env::current_exe().unwrap();
        let mut runners = std::env::vars()
            .filter(|(name, _)| name.starts_with("CARGO_TARGET_") && name.ends_with("_RUNNER"));
        let Some((_, runner)) = runners.next() else {
            return Command::new(program);
        };
        let mut words = runner.split_whitespace();
        let mut command = Command::new(words.next().expect("a runner has a name"));
        command.args(words).arg(program);
        command
    }

    /// Runs this program with `SARDONYX_ISA` set to `forced` and returns the instruction set that
    /// it reports.
    fn in_use(forced: &str) -> String {
        let output = this_program()
            .args(["--exact", "isa::tests::says_which_one_is_in_use", "--nocapture"])
            .env(VARIABLE, forced)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let at = said.find(LINE).expect("the line is there") + LINE.len();
        said[at..].lines().next().unwrap_or_default().to_string()
    }

    #[test]
    fn a_process_uses_the_one_that_is_forced() {
        for isa in Isa::ALL {
            let isa = *isa;
            assert_eq!(in_use(isa.name()), isa.min(machine_best()).name());
        }
        assert!(in_use("AVX2").starts_with("none: SARDONYX_ISA is \"AVX2\""));
    }
}
