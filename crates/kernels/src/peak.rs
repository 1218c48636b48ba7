//! What this processor can do at most: the figures that benchmarks set kernels against.
//!
//! Multiply-adds in registers and reads of memory, each a loop of one kind of instruction. They are
//! written as such, in assembly where a compiler could see through the loop: a peak that is too low
//! would flatter the kernels. Every function runs on the thread that calls it and says how much it
//! did; the clock is the caller's.

use sardonyx_simd::Isa;
use sardonyx_simd::check_isa;

/// Does multiply-adds of f32 in registers, `steps` rounds of independent chains, and returns how
/// many operations that was; a multiplication and an addition count one each.
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

/// As [`multiply_add`], with products of pairs of bf16 that are added to f32; `None` if the machine
/// has no instruction for that. A pair counts as two multiplications and two additions.
pub fn bf16_dot(steps: u32) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512f") {
        // SAFETY: the machine has these instructions.
        return Some(unsafe { x86::bf16_dot(steps) });
    }
    let _ = steps;
    None
}

/// Reads all of `data` once, with the widest loads of `isa`, and returns its words combined by
/// exclusive or.
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
        // The target has no wider loads than those that the compiler takes.
        read_portable(data),
        read_portable(data)
    )
}

/// Multiplications and additions apart, in vectors as the compiler makes them.
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

/// Chains of `x + 0.999 * 0.999` stay below 2^25, as such a number no longer changes.
#[cfg(target_arch = "aarch64")]
fn multiply_add_neon(steps: u32) -> u64 {
    /// Chains that keep four units busy whose results take four cycles.
    const CHAINS: u64 = 16;
    if steps > 0 {
        // SAFETY: it changes registers that are named and touches no memory.
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

    /// As many, so that none waits for its own result.
    const CHAINS: usize = 16;

    /// Fills registers with a number, each chain and the constant, and repeats one instruction on
    /// each chain.
    ///
    /// The number as f32 is 0.999, so that a chain of `x * number + number` stays below 1,000:
    /// neither infinite nor so small that it would be slow.
    macro_rules! register_loop {
        (
            $steps:expr, constant: $constant:tt, fill: $fill:literal, copy: $copy:ident, step: $step:ident,
            chains: $(($number:tt $register:tt))+
        ) => {
            if $steps > 0 {
                // SAFETY: it changes registers that are named and touches no memory; the function
                // has the target features of the instructions.
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

    // Instructions of one chain, by the number of its register.
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

    /// What the target guarantees has no fused ones. One chain fewer: the constant takes the last
    /// register.
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

    /// One chain fewer: the constant takes the last register.
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

    /// Loads in a row from one place.
    const LOADS: usize = 8;

    /// Four parts of the same length and the rest: reading in several places at once, it may wait
    /// less.
    fn streams<const N: usize>(data: &[u64]) -> ([&[[u64; N]]; 4], &[u64]) {
        let len = data.len() / (4 * N);
        let (whole, rest) = data.split_at(4 * N * len);
        let blocks = whole.as_chunks::<N>().0;
        let part = |i: usize| &blocks[i * len..][..len];
        ([part(0), part(1), part(2), part(3)], rest)
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn read_avx512(data: &[u64]) -> u64 {
        const WORDS: usize = 8;
        let ([a, b, c, d], rest) = streams::<{ WORDS * LOADS }>(data);
        let mut sums = [_mm512_setzero_si512(); LOADS];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for block in [a, b, c, d] {
                for (sum, words) in sums.iter_mut().zip(block.as_chunks::<WORDS>().0) {
                    // SAFETY: there are eight words to load.
                    let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
                    *sum = _mm512_xor_si512(*sum, words);
                }
            }
        }
        let mut words = [[0; WORDS]; LOADS];
        for (words, sum) in words.iter_mut().zip(sums) {
            // SAFETY: there are eight words to store to.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), sum) };
        }
        read_portable(words.as_flattened()) ^ read_portable(rest)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn read_avx2(data: &[u64]) -> u64 {
        const WORDS: usize = 4;
        let ([a, b, c, d], rest) = streams::<{ WORDS * LOADS }>(data);
        let mut sums = [_mm256_setzero_si256(); LOADS];
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for block in [a, b, c, d] {
                for (sum, words) in sums.iter_mut().zip(block.as_chunks::<WORDS>().0) {
                    // SAFETY: there are four words to load.
                    let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast()) };
                    *sum = _mm256_xor_si256(*sum, words);
                }
            }
        }
        let mut words = [[0; WORDS]; LOADS];
        for (words, sum) in words.iter_mut().zip(sums) {
            // SAFETY: there are four words to store to.
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
