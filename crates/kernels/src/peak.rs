//! Peak rates of this processor, which benchmarks compare kernels with: multiply-adds in registers,
//! and reads of memory.
//!
//! Each is a loop of one kind of instruction, in assembly where a compiler could simplify the loop:
//! a peak that is too low would flatter the kernels. All functions run on the calling thread and
//! return the amount of work; the caller measures the time.

use sardonyx_simd::Isa;
use sardonyx_simd::check_isa;

/// Runs `steps` rounds of independent multiply-adds of f32 in registers. Returns the number of
/// operations: a multiplication and an addition count one each.
///
/// # Panics
///
/// If this machine does not have `isa`.
pub fn multiply_add(isa: Isa, steps: u32) -> u64 {
    check_isa(isa);
    #[cfg(target_arch = "x86_64")]
    let portable = x86::multiply_add_sse2;
    #[cfg(not(target_arch = "x86_64"))]
    let portable = multiply_add_portable;
    by_isa!(
        isa,
        // SAFETY: the machine has `isa`.
        unsafe { x86::multiply_add_avx512(steps) },
        // SAFETY: the machine has `isa`.
        unsafe { x86::multiply_add_avx2(steps) },
        multiply_add_neon(steps),
        portable(steps)
    )
}

/// Runs `steps` rounds of `vdpbf16ps`, which adds products of pairs of bf16 to f32, and returns the
/// number of operations: a pair counts as two multiplications and two additions. Returns `None` if
/// the machine lacks the instruction.
pub fn bf16_dot(steps: u32) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512f") {
        // SAFETY: the machine has these instructions.
        return Some(unsafe { x86::bf16_dot(steps) });
    }
    let _ = steps;
    None
}

/// Reads all of `data` once, with the widest loads of `isa`, and returns the exclusive or of its
/// words.
///
/// # Panics
///
/// If this machine does not have `isa`.
pub fn read(isa: Isa, data: &[u64]) -> u64 {
    check_isa(isa);
    by_isa!(
        isa,
        // SAFETY: the machine has `isa`.
        unsafe { x86::read_avx512(data) },
        // SAFETY: the machine has `isa`.
        unsafe { x86::read_avx2(data) },
        // The compiler already uses the widest loads of the target.
        read_portable(data),
        read_portable(data)
    )
}

/// Runs separate multiplications and additions, in vectors chosen by the compiler.
#[cfg(not(target_arch = "x86_64"))]
fn multiply_add_portable(steps: u32) -> u64 {
    const LANES: usize = 4;
    const CHAINS: usize = 16;
    let factor = std::hint::black_box([0.999f32; LANES]);
    let term = std::hint::black_box([0.999f32; LANES]);
    let mut chains = [[1.0f32; LANES]; CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            for ((x, factor), term) in chain.iter_mut().zip(&factor).zip(&term) {
                *x = *x * factor + term;
            }
        }
    }
    std::hint::black_box(chains);
    u64::from(steps) * (CHAINS * LANES * 2) as u64
}

/// Runs fused multiply-adds in assembly. Chains of `x + 0.999 * 0.999` stop growing below 2^25,
/// where the sum rounds to `x`.
#[cfg(target_arch = "aarch64")]
fn multiply_add_neon(steps: u32) -> u64 {
    /// Value: chains that keep four units with a latency of four cycles busy.
    const CHAINS: u64 = 16;
    if steps > 0 {
        // SAFETY: the assembly changes only named registers and accesses no memory.
        unsafe {
            std::arch::asm!(
                "dup v16.4s, {number:w}",
                "2:",
                "fmla v0.4s, v16.4s, v16.4s",
                "fmla v1.4s, v16.4s, v16.4s",
                "fmla v2.4s, v16.4s, v16.4s",
                "fmla v3.4s, v16.4s, v16.4s",
                "fmla v4.4s, v16.4s, v16.4s",
                "fmla v5.4s, v16.4s, v16.4s",
                "fmla v6.4s, v16.4s, v16.4s",
                "fmla v7.4s, v16.4s, v16.4s",
                "fmla v17.4s, v16.4s, v16.4s",
                "fmla v18.4s, v16.4s, v16.4s",
                "fmla v19.4s, v16.4s, v16.4s",
                "fmla v20.4s, v16.4s, v16.4s",
                "fmla v21.4s, v16.4s, v16.4s",
                "fmla v22.4s, v16.4s, v16.4s",
                "fmla v23.4s, v16.4s, v16.4s",
                "fmla v24.4s, v16.4s, v16.4s",
                "subs {steps:w}, {steps:w}, #1",
                "b.ne 2b",
                steps = inout(reg) steps => _,
                number = in(reg) 0.999f32.to_bits(),
                inout("v0") 0.0f32 => _, inout("v1") 0.0f32 => _,
                inout("v2") 0.0f32 => _, inout("v3") 0.0f32 => _,
                inout("v4") 0.0f32 => _, inout("v5") 0.0f32 => _,
                inout("v6") 0.0f32 => _, inout("v7") 0.0f32 => _,
                inout("v17") 0.0f32 => _, inout("v18") 0.0f32 => _,
                inout("v19") 0.0f32 => _, inout("v20") 0.0f32 => _,
                inout("v21") 0.0f32 => _, inout("v22") 0.0f32 => _,
                inout("v23") 0.0f32 => _, inout("v24") 0.0f32 => _,
                out("v16") _,
                options(nomem, nostack),
            );
        }
    }
    u64::from(steps) * CHAINS * 4 * 2
}

/// Computes the exclusive or of all words, in vectors chosen by the compiler.
fn read_portable(data: &[u64]) -> u64 {
    const WORDS: usize = 16;
    let (blocks, rest) = data.as_chunks::<WORDS>();
    let mut sums = [0; WORDS];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum ^= word;
        }
    }
    sums.iter().chain(rest).fold(0, |sum, word| sum ^ word)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::read_portable;
    use std::arch::asm;
    use std::arch::x86_64::*;

    /// Value: independent chains, enough that no instruction waits for its own last result.
    const CHAINS: usize = 16;

    /// Fills the registers of all chains and of the constant with a number, then repeats one
    /// instruction on each chain.
    ///
    /// The number is 0.999 as f32, so that a chain of `x * number + number` stays below 1,000:
    /// neither infinite nor denormal, which would be slow.
    macro_rules! register_loop {
        (
            $steps:expr, constant: $constant:tt, fill: $fill:literal, copy: $copy:ident, step: $step:ident,
            chains: $(($number:tt $register:tt))+
        ) => {
            if $steps > 0 {
                // SAFETY: the assembly changes only named registers and accesses no memory; the
                // function enables the target features of its instructions.
                unsafe {
                    asm!(
                        $fill,
                        $($copy!($number),)+
                        "2:",
                        $($step!($number),)+
                        "dec {steps:e}",
                        "jnz 2b",
                        steps = inout(reg) $steps => _,
                        number = in(reg) 0.999f32.to_bits(),
                        out($constant) _,
                        $(out($register) _,)+
                        options(nomem, nostack),
                    );
                }
            }
        };
    }

    // Instructions of one chain, given the number of its register.
    macro_rules! copy_sse {
        ($n:tt) => {
            concat!("movaps xmm", $n, ", xmm15")
        };
    }
    macro_rules! copy_256 {
        ($n:tt) => {
            concat!("vmovaps ymm", $n, ", ymm15")
        };
    }
    macro_rules! copy_512 {
        ($n:tt) => {
            concat!("vmovaps zmm", $n, ", zmm16")
        };
    }
    macro_rules! multiply_add_sse {
        ($n:tt) => {
            concat!("mulps xmm", $n, ", xmm15\n", "addps xmm", $n, ", xmm15")
        };
    }
    macro_rules! multiply_add_256 {
        ($n:tt) => {
            concat!("vfmadd213ps ymm", $n, ", ymm15, ymm15")
        };
    }
    macro_rules! multiply_add_512 {
        ($n:tt) => {
            concat!("vfmadd213ps zmm", $n, ", zmm16, zmm16")
        };
    }
    macro_rules! bf16_dot_512 {
        ($n:tt) => {
            concat!("vdpbf16ps zmm", $n, ", zmm16, zmm16")
        };
    }

    /// Runs separate multiplications and additions, as the baseline of the target has no fused
    /// ones. One chain fewer: the constant takes the last register.
    pub(super) fn multiply_add_sse2(steps: u32) -> u64 {
        register_loop!(
            steps,
            constant: "xmm15",
            fill: "movd xmm15, {number:e}\nshufps xmm15, xmm15, 0",
            copy: copy_sse,
            step: multiply_add_sse,
            chains:
                (0 "xmm0") (1 "xmm1") (2 "xmm2") (3 "xmm3") (4 "xmm4") (5 "xmm5")
                (6 "xmm6") (7 "xmm7") (8 "xmm8") (9 "xmm9") (10 "xmm10") (11 "xmm11")
                (12 "xmm12") (13 "xmm13") (14 "xmm14")
        );
        u64::from(steps) * ((CHAINS - 1) * 4 * 2) as u64
    }

    /// Runs fused multiply-adds of 16 floats.
    #[target_feature(enable = "avx512f")]
    pub(super) fn multiply_add_avx512(steps: u32) -> u64 {
        register_loop!(
            steps,
            constant: "zmm16",
            fill: "vmovd xmm16, {number:e}\nvbroadcastss zmm16, xmm16",
            copy: copy_512,
            step: multiply_add_512,
            chains:
                (0 "zmm0") (1 "zmm1") (2 "zmm2") (3 "zmm3") (4 "zmm4") (5 "zmm5")
                (6 "zmm6") (7 "zmm7") (8 "zmm8") (9 "zmm9") (10 "zmm10") (11 "zmm11")
                (12 "zmm12") (13 "zmm13") (14 "zmm14") (15 "zmm15")
        );
        u64::from(steps) * (CHAINS * 16 * 2) as u64
    }

    /// Runs fused multiply-adds of 8 floats. One chain fewer: the constant takes the last register.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn multiply_add_avx2(steps: u32) -> u64 {
        register_loop!(
            steps,
            constant: "ymm15",
            fill: "vmovd xmm15, {number:e}\nvbroadcastss ymm15, xmm15",
            copy: copy_256,
            step: multiply_add_256,
            chains:
                (0 "ymm0") (1 "ymm1") (2 "ymm2") (3 "ymm3") (4 "ymm4") (5 "ymm5")
                (6 "ymm6") (7 "ymm7") (8 "ymm8") (9 "ymm9") (10 "ymm10") (11 "ymm11")
                (12 "ymm12") (13 "ymm13") (14 "ymm14")
        );
        u64::from(steps) * ((CHAINS - 1) * 8 * 2) as u64
    }

    /// Runs products of 32 bf16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn bf16_dot(steps: u32) -> u64 {
        register_loop!(
            steps,
            constant: "zmm16",
            fill: "vmovd xmm16, {number:e}\nvbroadcastss zmm16, xmm16",
            copy: copy_512,
            step: bf16_dot_512,
            chains:
                (0 "zmm0") (1 "zmm1") (2 "zmm2") (3 "zmm3") (4 "zmm4") (5 "zmm5")
                (6 "zmm6") (7 "zmm7") (8 "zmm8") (9 "zmm9") (10 "zmm10") (11 "zmm11")
                (12 "zmm12") (13 "zmm13") (14 "zmm14") (15 "zmm15")
        );
        u64::from(steps) * (CHAINS * 16 * 4) as u64
    }

    /// Value: adjacent loads from one part of the data.
    const LOADS: usize = 8;

    /// Cuts data into four parts of equal length and a rest: reading several places at once may
    /// wait less for memory.
    fn streams<const N: usize>(data: &[u64]) -> ([&[[u64; N]]; 4], &[u64]) {
        let len = data.len() / (4 * N);
        let (whole, rest) = data.split_at(4 * N * len);
        let blocks = whole.as_chunks::<N>().0;
        let part = |i: usize| &blocks[i * len..][..len];
        ([part(0), part(1), part(2), part(3)], rest)
    }

    /// Computes the exclusive or of all words with loads of 64 bytes.
    #[target_feature(enable = "avx512f")]
    pub(super) fn read_avx512(data: &[u64]) -> u64 {
        const WORDS: usize = 8;
        let ([a, b, c, d], rest) = streams::<{ WORDS * LOADS }>(data);
        let mut sums = [_mm512_setzero_si512(); LOADS];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for block in [a, b, c, d] {
                for (sum, words) in sums.iter_mut().zip(block.as_chunks::<WORDS>().0) {
                    // SAFETY: `words` has eight words.
                    let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
                    *sum = _mm512_xor_si512(*sum, words);
                }
            }
        }
        let mut words = [[0; WORDS]; LOADS];
        for (words, sum) in words.iter_mut().zip(sums) {
            // SAFETY: `words` has eight words.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), sum) };
        }
        read_portable(words.as_flattened()) ^ read_portable(rest)
    }

    /// Computes the exclusive or of all words with loads of 32 bytes.
    #[target_feature(enable = "avx2")]
    pub(super) fn read_avx2(data: &[u64]) -> u64 {
        const WORDS: usize = 4;
        let ([a, b, c, d], rest) = streams::<{ WORDS * LOADS }>(data);
        let mut sums = [_mm256_setzero_si256(); LOADS];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for block in [a, b, c, d] {
                for (sum, words) in sums.iter_mut().zip(block.as_chunks::<WORDS>().0) {
                    // SAFETY: `words` has four words.
                    let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
                    *sum = _mm256_xor_si256(*sum, words);
                }
            }
        }
        let mut words = [[0; WORDS]; LOADS];
        for (words, sum) in words.iter_mut().zip(sums) {
            // SAFETY: `words` has four words.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
        }
        read_portable(words.as_flattened()) ^ read_portable(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_once() {
        for len in [0, 1, 7, 63, 64, 65, 1000] {
            let data: Vec<u64> =
                (0..len).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            let wanted = data.iter().fold(0, |sum, word| sum ^ word);
            for isa in Isa::available() {
                assert_eq!(read(*isa, &data), wanted, "{isa:?}, {len}");
            }
        }
    }

    #[test]
    fn work_grows_with_the_steps() {
        for isa in Isa::available() {
            assert_eq!(multiply_add(*isa, 0), 0);
            let one = multiply_add(*isa, 1);
            assert!(one > 0);
            assert_eq!(multiply_add(*isa, 1000), 1000 * one, "{isa:?}");
        }
        assert!(bf16_dot(3).is_none_or(|work| work > 0));
    }
}
