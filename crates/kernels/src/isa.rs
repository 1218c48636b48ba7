//! Which instruction set the kernels use, found once at run time.
//!
//! The order of the variants is the order of preference: a machine that has one has all before it.

use std::sync::OnceLock;

/// An instruction set kernels are compiled for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What the compilation target guarantees (SSE2 on x86-64, NEON on AArch64), vectorised by the compiler.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, with AVX2, FMA and BMI2.
    Avx512,
}

impl Isa {
    /// The best instruction set of this machine.
    ///
    /// The environment variable `SARDONYX_ISA` (`portable`, `avx2` or `avx512`) lowers the answer; it never raises it
    /// above what the machine has. It is read once per process.
    pub fn detect() -> Isa {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            let best = machine_best();
            let wanted = match std::env::var("SARDONYX_ISA").as_deref() {
                Ok("portable") => Isa::Portable,
                Ok("avx2") => Isa::Avx2,
                _ => Isa::Avx512,
            };
            wanted.min(best)
        })
    }

    /// Every instruction set this machine can run, worst first. For tests and benchmarks; ignores `SARDONYX_ISA`.
    pub fn available() -> &'static [Isa] {
        match machine_best() {
            Isa::Portable => &[Isa::Portable],
            Isa::Avx2 => &[Isa::Portable, Isa::Avx2],
            Isa::Avx512 => &[Isa::Portable, Isa::Avx2, Isa::Avx512],
        }
    }

    /// Whether this machine can run `self`.
    pub fn is_available(self) -> bool {
        self <= machine_best()
    }
}

#[cfg(target_arch = "x86_64")]
fn machine_best() -> Isa {
    // The macro caches CPUID itself, so this is a few loads.
    if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
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

    #[test]
    fn available_is_sorted_and_contains_the_detected_one() {
        let all = Isa::available();
        assert!(all.is_sorted());
        assert!(all.contains(&Isa::detect()));
        assert!(all.iter().all(|isa| isa.is_available()));
    }
}
