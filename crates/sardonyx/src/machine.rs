//! Description of this machine as kernels see it, with measured peaks.

use std::fs;
use std::hint::black_box;
use std::thread::available_parallelism;
use std::time::Instant;

use sardonyx_kernels::{Caches, Isa, peak};

use crate::error::{Error, ErrorKind};

/// Processor, caches and measured peak rates of a machine, which the speed of every model depends
/// on.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Model name of the processor; `None` if it is unknown.
    pub processor: Option<String>,
    /// Number of processors that this process may run on.
    pub processors: usize,
    /// Instruction set of the kernels, as the variable `SARDONYX_ISA` spells it.
    pub instruction_set: &'static str,
    /// Cache sizes in bytes that kernels block for, from the nearest level on: first level, second
    /// level, and a core's share of the last level.
    pub caches: [usize; 3],
    /// Floating-point operations per second of 32-bit multiply-adds on one thread; a multiply-add
    /// counts as two.
    pub flops: f64,
    /// Bytes per second that one thread reads from memory.
    pub bandwidth: f64,
}

impl Machine {
    /// Measures the peak rates on the calling thread, in about a quarter of a second.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if `SARDONYX_ISA` or `SARDONYX_CACHES` is malformed.
    pub fn measure() -> Result<Machine, Error> {
        let isa = Isa::from_environment()
            .map_err(|error| Error::new(ErrorKind::Argument, error.to_string()))?;
        let Caches { near, own, shared } = Caches::from_environment()
            .map_err(|error| Error::new(ErrorKind::Argument, error.to_string()))?;
        Ok(Machine {
            processor: find_processor_name(),
            processors: available_parallelism().map_or(1, |count| count.get()),
            instruction_set: isa.name(),
            caches: [near, own, shared],
            flops: measure_flops(isa),
            bandwidth: measure_bandwidth(isa),
        })
    }
}

/// Measures the 32-bit floating-point operations per second of one thread: the best of several
/// rounds of a few milliseconds.
fn measure_flops(isa: Isa) -> f64 {
    const ROUNDS: usize = 12;
    const STEPS: u32 = 500_000;
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let operations = peak::multiply_add(isa, STEPS);
        best = best.max(operations as f64 / start.elapsed().as_secs_f64());
    }
    best
}

/// Measures the bytes per second that one thread reads from memory: the best of several rounds over
/// more data than the caches hold.
fn measure_bandwidth(isa: Isa) -> f64 {
    const ROUNDS: usize = 3;
    const WORDS: u64 = (256 << 20) / 8;
    // Written, so that each page has memory of its own.
    let data: Vec<u64> = (0..WORDS).collect();
    let mut best: f64 = 0.0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(peak::read(isa, black_box(&data)));
        best = best.max(8.0 * WORDS as f64 / start.elapsed().as_secs_f64());
    }
    best
}

/// Reads the model name of the processor from CPUID, or else from Linux; `None` if neither has one.
fn find_processor_name() -> Option<String> {
    let name = brand_string().or_else(|| {
        let facts = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = facts.lines().find(|line| line.starts_with("model name"))?;
        line.split_once(':').map(|(_, name)| name.to_string())
    })?;
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    (!name.is_empty()).then_some(name)
}

/// Reads the brand string of the processor from the CPUID leaves 0x80000002 to 0x80000004; `None`
/// if the processor has none.
#[cfg(target_arch = "x86_64")]
fn brand_string() -> Option<String> {
    use std::arch::x86_64::__cpuid;

    const LEAVES: std::ops::RangeInclusive<u32> = 0x8000_0002..=0x8000_0004;
    if __cpuid(0x8000_0000).eax < *LEAVES.end() {
        return None;
    }
    let bytes: Vec<u8> = LEAVES
        .map(__cpuid)
        .flat_map(|found| [found.eax, found.ebx, found.ecx, found.edx])
        .flat_map(u32::to_le_bytes)
        .take_while(|byte| *byte != 0)
        .collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn brand_string() -> Option<String> {
    None
}

/// Serializes the fields of the description under their names; `caches` is an object with `near`,
/// `own` and `shared`.
#[cfg(feature = "serde")]
impl serde::Serialize for Machine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct CacheForm {
            near: usize,
            own: usize,
            shared: usize,
        }
        #[derive(serde::Serialize)]
        struct Form<'a> {
            processor: Option<&'a str>,
            processors: usize,
            instruction_set: &'a str,
            caches: CacheForm,
            flops: f64,
            bandwidth: f64,
        }
        let [near, own, shared] = self.caches;
        Form {
            processor: self.processor.as_deref(),
            processors: self.processors,
            instruction_set: self.instruction_set,
            caches: CacheForm { near, own, shared },
            flops: self.flops,
            bandwidth: self.bandwidth,
        }
        .serialize(serializer)
    }
}
