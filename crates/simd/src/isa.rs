//! Which instruction set the kernels use, found once at run time.
//!
//! The order of the variants is the order of preference: a machine that has one has all before it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::OnceLock;

/// An instruction set kernels are compiled for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the compilation target guarantees (SSE2 on x86-64, NEON on AArch64), vectorised by the
    /// compiler.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with AVX2, FMA and BMI2.
    Avx512,
}

/// The environment variable that lowers the instruction set.
const VARIABLE: &str = "SARDONYX_ISA";

impl Isa {
    /// Every instruction set there are kernels for, worst first, whatever this machine has.
    pub const ALL: [Isa; 3] = [Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The instruction set to use: the best of this machine, lowered by the environment variable
    /// `SARDONYX_ISA` (`portable`, `avx2` or `avx512`), which never raises it above what the
    /// machine has. An empty variable is none. It is read once per process.
    ///
    /// # Errors
    ///
    /// If the variable names no instruction set.
    pub fn requested() -> Result<Isa, UnknownIsa> {
        static REQUESTED: OnceLock<Result<Isa, UnknownIsa>> = OnceLock::new();
        REQUESTED
            .get_or_init(|| lowered(machine_best(), std::env::var_os(VARIABLE).as_deref()))
            .clone()
    }

    /// As [`Isa::requested`]; the best of this machine if the variable names no instruction set.
    pub fn detect() -> Isa {
        Isa::requested().unwrap_or_else(|_| machine_best())
    }

    /// The one of [`Isa::detect`] and every one below it, worst first: for tests, which run under
    /// each of them.
    pub fn available() -> &'static [Isa] {
        match Isa::detect() {
            Isa::Portable => &Isa::ALL[..1],
            Isa::Avx2 => &Isa::ALL[..2],
            Isa::Avx512 => &Isa::ALL,
        }
    }

    /// As `SARDONYX_ISA` spells it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Floats in a vector.
    pub const fn lanes(self) -> usize {
        match self {
            Isa::Avx512 => 16,
            Isa::Avx2 => 8,
            Isa::Portable => 4,
        }
    }

    /// Returns the number of vector registers; for portable code that of x86.
    pub const fn registers(self) -> usize {
        match self {
            Isa::Avx512 => 32,
            Isa::Avx2 | Isa::Portable => 16,
        }
    }

    /// Whether this machine can run `self`.
    pub fn is_available(self) -> bool {
        self <= machine_best()
    }
}

/// `SARDONYX_ISA` names no instruction set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsa {
    value: OsString,
}

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Isa::ALL.map(Isa::name).join(", ");
        write!(f, "{VARIABLE} is {:?}, but must be one of {names}", self.value)
    }
}

impl std::error::Error for UnknownIsa {}

/// `best`, or what the variable says where that is lower.
fn lowered(best: Isa, variable: Option<&OsStr>) -> Result<Isa, UnknownIsa> {
    let Some(value) = variable.filter(|value| !value.is_empty()) else {
        return Ok(best);
    };
    let named = Isa::ALL.into_iter().find(|isa| value == isa.name());
    named.map(|isa| isa.min(best)).ok_or_else(|| UnknownIsa { value: value.to_os_string() })
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
    Isa::Portable
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// `cargo xtask isa` reads from this line what a process with its environment uses.
    const LINE: &str = "instruction set in use: ";

    #[test]
    fn the_variable_lowers_and_never_raises() {
        for best in Isa::ALL {
            assert_eq!(lowered(best, None), Ok(best));
            assert_eq!(lowered(best, Some(OsStr::new(""))), Ok(best));
            for (name, isa) in
                [("portable", Isa::Portable), ("avx2", Isa::Avx2), ("avx512", Isa::Avx512)]
            {
                assert_eq!(lowered(best, Some(OsStr::new(name))), Ok(isa.min(best)));
            }
            let error = lowered(best, Some(OsStr::new("avx3"))).unwrap_err();
            assert_eq!(
                error.to_string(),
                "SARDONYX_ISA is \"avx3\", but must be one of portable, avx2, avx512"
            );
        }
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
        match Isa::requested() {
            Ok(isa) => println!("{LINE}{}", isa.name()),
            Err(error) => println!("{LINE}none: {error}"),
        }
    }

    /// What the test above says in a process of its own.
    fn in_use(forced: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
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
            assert_eq!(in_use(isa.name()), isa.min(machine_best()).name());
        }
        assert!(in_use("AVX2").starts_with("none: SARDONYX_ISA is \"AVX2\""));
    }
}
