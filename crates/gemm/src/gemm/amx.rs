//! Products of operands rounded to bfloat16, and of bytes, in the tile registers of AMX: up to 16
//! and 32 times the multiply-adds of floats per cycle.
//!
//! A tile register has 16 rows of 64 bytes. One instruction multiplies a tile of A, up to 16 rows
//! of up to 16 words, by a tile of B, as many rows as A has words, and adds the result to a tile of
//! 16 by 16 floats. A word is two neighbouring steps of k, as in the panels of
//! [`bf16`](super::bf16), or four, as in those of [`integer`](super::integer): a row of B is a row
//! of such a panel. The rows of A are read where the left operand has been rounded, with any row
//! stride.
//!
//! A [`Block`] is up to two *strips* of rows by up to two vectors of columns, over all of k: four
//! sums hide the latency of an instruction, and both operands are read once for two. Sums are
//! chains over k in order, whatever block they are in. The instruction rounds sums to nearest, ties
//! to even, and flushes denormal numbers to zero.
//!
//! Tile registers belong to a thread. [`Registers`] configures them for the time of a unit of work,
//! as the system saves registers only while they are configured.

#[cfg(feature = "quantization")]
pub(super) mod bytes;
pub(super) mod product;

use std::marker::PhantomData;

use super::bf16;
use sardonyx_simd::Isa;
use sardonyx_simd::buffer::AnyBits;

/// Value: most rows of a strip, and most words of a row that an instruction multiplies.
pub(crate) const ROWS: usize = 16;
/// Geometry: floats in a row of the sums of a block, and columns of the largest block.
pub(crate) const WIDTH: usize = 32;
/// Geometry: number of strips of a block.
pub(crate) const STRIPS: usize = 2;

/// Whether this machine multiplies tiles, on that instruction set, and the system permits it to
/// this process.
pub(crate) fn is_available(isa: Isa) -> bool {
    bf16::is_available(isa) && system::lets_us()
}

/// Whether this machine multiplies tiles of bytes, and the system permits it to this process.
#[cfg(feature = "quantization")]
pub(crate) fn multiplies_bytes(isa: Isa) -> bool {
    is_available(isa) && system::has_bytes()
}

/// Returns the words of k that an instruction multiplies when `words` words are adjacent in both
/// operands, and their number with the zeros that fill the last tile.
pub(crate) fn depth_of(words: usize) -> (usize, usize) {
    let tiles = words.div_ceil(ROWS);
    let depth = words.div_ceil(tiles.max(1)).max(1);
    (depth, tiles * depth)
}

/// Returns the number of rows of a strip, and of strips, for `rows` rows.
pub(crate) fn strips_of(rows: usize) -> (usize, usize) {
    let count = rows.div_ceil(ROWS).max(1);
    let each = rows.div_ceil(count).max(1);
    (each, rows.div_ceil(each))
}

/// A run of words of k that are adjacent in both operands.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Segment {
    /// Bytes in A from the end of the previous segment to this one.
    pub(crate) skip: usize,
    /// Number of tiles.
    pub(crate) tiles: usize,
}

// SAFETY: two words without padding.
unsafe impl AnyBits for Segment {}

/// Sums of a block: the rows of one strip after those of the other, [`WIDTH`] floats each.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Sums([f32; STRIPS * ROWS * WIDTH]);

impl Sums {
    pub(crate) fn new() -> Sums {
        Sums([0.0; STRIPS * ROWS * WIDTH])
    }

    /// Returns the address of the sums of a strip.
    fn strip(&self, strip: usize) -> *const f32 {
        self.0[strip * ROWS * WIDTH..].as_ptr()
    }
}

/// The product of up to two strips by up to two vectors. Pointers are valid for the sizes given.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux")),
    allow(dead_code, reason = "only the instructions read it")
)]
pub(crate) struct Block<'a> {
    /// First segment. There is at least one, of at least one tile each.
    segments: *const Segment,
    /// End of the segments.
    end: *const Segment,
    /// First row of each strip.
    a: [*const f32; STRIPS],
    /// Row stride of `a`, in bytes.
    a_rs: usize,
    /// First row of each vector.
    b: [*const f32; 2],
    /// Row stride of `b`, in bytes.
    b_rs: usize,
    /// Stride between tiles of `a`, in bytes.
    a_ks: usize,
    /// Stride between tiles of `b`, in bytes.
    b_ks: usize,
    /// Output, the rows of [`Sums`].
    sums: *mut f32,
    /// Data to prefetch meanwhile; null for none.
    next: *const f32,
    lifetime: PhantomData<&'a [Segment]>,
}

/// Addresses and strides of the operands of a block, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// First row of each strip. Both are equal for a single strip.
    pub(crate) a: [*const f32; STRIPS],
    /// Row stride of `a`, in words.
    pub(crate) a_rs: usize,
    /// First row of each vector.
    pub(crate) b: [*const f32; 2],
    /// Row stride of `b`, in words.
    pub(crate) b_rs: usize,
}

/// Data to prefetch while a block is multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ahead {
    Nothing,
    /// Vectors of the block, whose rows follow each other, ahead of the tiles that are loaded.
    Vectors,
    /// Other data from this address on, [`FETCHED`] floats for each tile of a row, into the
    /// second-level cache.
    Next(*const f32),
}

/// Geometry: floats that a block of two strips and two vectors prefetches for each tile of a row.
pub(crate) const FETCHED: usize = 128;

/// Kind of words and of their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Two steps as bfloat16, added up in floats.
    Pairs,
    /// Four steps as bytes, unsigned in A and signed in B, added up in integers of 32 bits, which
    /// wrap.
    #[cfg(feature = "quantization")]
    Quads,
}

/// The tile registers of this thread, configured for strips of a number of rows.
#[derive(Debug)]
pub(crate) struct Registers {
    words: Words,
    rows: usize,
    depth: usize,
    /// Marker against sending: the registers belong to one thread.
    thread: PhantomData<*const ()>,
}

impl Registers {
    /// Configures the registers for strips of `rows` rows of pairs, whose tiles have `depth` words.
    ///
    /// # Safety
    ///
    /// The machine must multiply tiles, and this thread must not have configured registers.
    pub(crate) unsafe fn set_up(rows: usize, depth: usize) -> Registers {
        // SAFETY: the caller has tiles and no configured registers.
        unsafe { Registers::set_up_for(Words::Pairs, rows, depth) }
    }

    /// Configures the registers for strips of `rows` rows of `words`, whose tiles have `depth`
    /// words.
    ///
    /// # Safety
    ///
    /// The machine must multiply tiles of such words, and this thread must not have configured
    /// registers.
    pub(crate) unsafe fn set_up_for(words: Words, rows: usize, depth: usize) -> Registers {
        assert!((1..=ROWS).contains(&rows) && (1..=ROWS).contains(&depth), "{rows} x {depth}");
        // SAFETY: the sizes are those of tiles; the caller has tiles and no configured registers.
        unsafe { system::set_up(rows as u8, depth as u8) };
        Registers { words, rows, depth, thread: PhantomData }
    }

    /// Multiplies one or two strips by one or two vectors over all segments and stores the sums.
    ///
    /// # Safety
    ///
    /// The strips must have as many rows as the registers, and all words of the segments must be
    /// readable in both operands.
    #[inline(always)]
    pub(crate) unsafe fn multiply(
        &self,
        strips: usize,
        vectors: usize,
        segments: &[Segment],
        operands: &Operands,
        sums: &mut Sums,
        ahead: Ahead,
    ) {
        let word = size_of::<f32>();
        let ends = segments.as_ptr_range();
        let block = Block {
            segments: ends.start,
            end: ends.end,
            a: operands.a,
            a_rs: operands.a_rs * word,
            b: operands.b,
            b_rs: operands.b_rs * word,
            a_ks: self.depth * word,
            b_ks: self.depth * operands.b_rs * word,
            sums: sums.0.as_mut_ptr(),
            next: if let Ahead::Next(next) = ahead { next } else { std::ptr::null() },
            lifetime: PhantomData,
        };
        assert!(!segments.is_empty(), "a sum of nothing");
        // SAFETY: the caller has strips with the rows of the registers and all words readable.
        unsafe {
            use system::pairs;
            #[cfg(feature = "quantization")]
            if self.words == Words::Quads {
                use system::quads;
                return match (strips, vectors, ahead) {
                    (1, 1, _) => quads::one_by_one(&block),
                    (1, ..) => quads::one_by_two(&block),
                    (_, 1, _) => quads::two_by_one(&block),
                    (_, _, Ahead::Next(_)) => quads::two_by_two_before_next(&block),
                    _ => quads::two_by_two(&block),
                };
            }
            match (strips, vectors, ahead) {
                (1, 1, _) => pairs::one_by_one(&block),
                (1, _, Ahead::Vectors) => pairs::one_by_two_fetched(&block),
                (1, ..) => pairs::one_by_two(&block),
                (_, 1, _) => pairs::two_by_one(&block),
                (_, _, Ahead::Vectors) => pairs::two_by_two_fetched(&block),
                (_, _, Ahead::Next(_)) => pairs::two_by_two_before_next(&block),
                _ => pairs::two_by_two(&block),
            }
        }
    }

    /// Finishes the sums of a strip and stores them. If the block has two vectors, the output has
    /// more columns than one.
    ///
    /// # Safety
    ///
    /// The output must be valid for the rows of a strip, and the epilogue, if it is not null, for
    /// the output.
    #[inline(always)]
    pub(crate) unsafe fn finish(&self, sums: &Sums, strip: usize, end: &super::TileEnd) {
        // SAFETY: the caller has a valid output and epilogue; registers exist only where the
        // instructions do.
        unsafe { system::finish(sums.strip(strip), self.rows, end) }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: registers exist only where the instructions do.
        unsafe { system::release() }
    }
}

/// Detection, configuration and instructions of tiles.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod system {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::sync::OnceLock;

    use super::{ROWS, WIDTH};
    use crate::gemm::{TileEnd, TileEpilogue, finish as finish_tile};
    use sardonyx_simd::Simd;
    use sardonyx_simd::avx512::Avx512;

    /// Whether the processor has instructions and registers, and the system saves them.
    pub(super) fn lets_us() -> bool {
        static LETS: OnceLock<bool> = OnceLock::new();
        *LETS.get_or_init(|| has_tiles() && is_saved() && request_registers())
    }

    /// Whether a processor with tiles multiplies bytes, too.
    #[cfg(feature = "quantization")]
    pub(super) fn has_bytes() -> bool {
        static HAS: OnceLock<bool> = OnceLock::new();
        *HAS.get_or_init(|| __cpuid_count(7, 0).edx >> 25 & 1 == 1)
    }

    /// Whether the processor has tiles with the sizes that the code needs, and the system enables
    /// `xgetbv`.
    fn has_tiles() -> bool {
        let bit = |register: u32, bit: u32| register >> bit & 1 == 1;
        let most = __cpuid(0).eax;
        if most < 0x1d || !bit(__cpuid(1).ecx, 27) {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        // Sizes of the registers of palette 1: bytes of all and of one register, bytes of a row,
        // number of registers, number of rows.
        let sizes = __cpuid_count(0x1d, 1);
        bit(features, 22)
            && bit(features, 24)
            && (sizes.eax, sizes.ebx, sizes.ecx as u16) == (1024 << 16 | 8192, 8 << 16 | 64, 16)
    }

    /// Whether the system saves the registers of threads: bits 17 and 18 of XCR0.
    fn is_saved() -> bool {
        let low: u32;
        // SAFETY: `has_tiles` has checked that the system enables the instruction.
        unsafe {
            asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _,
                options(nomem, nostack, preserves_flags));
        }
        low >> 17 & 3 == 3
    }

    /// Requests the registers from the system for the process. It refuses if it does not know them,
    /// or if a thread has an alternate stack for signals that is too small to save them on.
    fn request_registers() -> bool {
        /// Value: numbers of a system call of Linux and of its arguments.
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const TILE_DATA: i64 = 18;
        let answer: i64;
        // SAFETY: a system call that reads and writes no memory.
        unsafe {
            asm!("syscall", inlateout("rax") ARCH_PRCTL => answer,
                in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
                out("rcx") _, out("r11") _, options(nostack));
        }
        answer == 0
    }

    /// Configuration of the registers, as the instruction reads it.
    #[repr(C, align(64))]
    struct Layout {
        palette: u8,
        start: u8,
        reserved: [u8; 14],
        /// Bytes of a row of each register.
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Configures the registers.
    ///
    /// # Safety
    ///
    /// The machine must have tiles, and `rows` and `depth` must be from 1 to 16.
    pub(super) unsafe fn set_up(rows: u8, depth: u8) {
        let mut layout =
            Layout { palette: 1, start: 0, reserved: [0; 14], bytes: [0; 16], rows: [0; 16] };
        // Four sums, two strips of A, two vectors of B.
        layout.bytes[..8].fill(64);
        layout.bytes[4..6].fill(4 * u16::from(depth));
        layout.rows[..6].fill(rows);
        layout.rows[6..8].fill(depth);
        // SAFETY: the caller has tiles and passes sizes in their range. Compiled code does not use
        // the registers.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const layout,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, readonly, preserves_flags));
        }
    }

    /// Releases the registers, so that the system stops saving them.
    ///
    /// # Safety
    ///
    /// The machine must have tiles.
    pub(super) unsafe fn release() {
        // SAFETY: the caller has tiles. Compiled code does not use the registers.
        unsafe {
            asm!("tilerelease",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem, preserves_flags));
        }
    }

    /// Defines the product of a block. Registers 0 to 3 are the sums, strip by strip, 4 and 5 the
    /// strips, 6 and 7 the vectors.
    macro_rules! block {
        ($name:ident, [$($zero:tt)*], [$($step:tt)*], [$($store:tt)*]) => {
            /// Computes the product of a block.
            ///
            /// # Safety
            ///
            /// The registers must be configured for the block, whose pointers must be valid.
            pub(in crate::gemm::amx) unsafe fn $name(block: &Block<'_>) {
                // SAFETY: the caller has registers for the block and valid pointers. Only the sums
                // are written.
                unsafe {
                    asm!(
                        $($zero)*,
                        "mov {a0}, [{block} + {a_at}]",
                        "mov {a1}, [{block} + {a_at} + 8]",
                        "mov {b0}, [{block} + {b_at}]",
                        "mov {b1}, [{block} + {b_at} + 8]",
                        "mov {segment}, [{block} + {segments_at}]",
                        "mov {next}, [{block} + {next_at}]",
                        "2:",
                        "add {a0}, [{segment}]",
                        "add {a1}, [{segment}]",
                        "mov {tiles}, [{segment} + 8]",
                        "3:",
                        $($step)*,
                        "add {a0}, {a_ks}",
                        "add {a1}, {a_ks}",
                        "add {b0}, {b_ks}",
                        "add {b1}, {b_ks}",
                        "dec {tiles}",
                        "jnz 3b",
                        "add {segment}, 16",
                        "cmp {segment}, [{block} + {end_at}]",
                        "jne 2b",
                        "mov {a0}, [{block} + {sums_at}]",
                        "mov {tiles}, 128",
                        $($store)*,
                        block = in(reg) block,
                        a_rs = in(reg) block.a_rs,
                        b_rs = in(reg) block.b_rs,
                        a_ks = in(reg) block.a_ks,
                        b_ks = in(reg) block.b_ks,
                        a0 = out(reg) _,
                        a1 = out(reg) _,
                        b0 = out(reg) _,
                        b1 = out(reg) _,
                        segment = out(reg) _,
                        tiles = out(reg) _,
                        next = out(reg) _,
                        a_at = const offset_of!(Block<'_>, a),
                        b_at = const offset_of!(Block<'_>, b),
                        segments_at = const offset_of!(Block<'_>, segments),
                        end_at = const offset_of!(Block<'_>, end),
                        sums_at = const offset_of!(Block<'_>, sums),
                        next_at = const offset_of!(Block<'_>, next),
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }
        };
    }

    /// Prefetches the lines of the tile of B 4 KB later. Without it, weights of images of 7 x 7
    /// came at 10 GB/s.
    macro_rules! fetch {
        ($b:literal) => {
            fetch!(
                $b,
                4096 4160 4224 4288 4352 4416 4480 4544 4608 4672 4736 4800 4864 4928 4992 5056
            )
        };
        ($b:literal, $($at:literal)*) => {
            concat!($("prefetcht0 [{", $b, "} + ", $at, "]\n",)*)
        };
    }

    /// Defines the products of blocks of a kind of words by the instruction that multiplies them.
    macro_rules! blocks {
        ($dot:literal) => {
            block!(
                two_by_two,
                ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
                [
                    "tileloadd tmm4, [{a0} + {a_rs}*1]",
                    "tileloadd tmm6, [{b0} + {b_rs}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{b1} + {b_rs}*1]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{a1} + {a_rs}*1]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    concat!($dot, " tmm3, tmm5, tmm7")
                ],
                [
                    "tilestored [{a0} + {tiles}*1], tmm0",
                    "tilestored [{a0} + {tiles}*1 + 64], tmm1",
                    "tilestored [{a0} + {tiles}*1 + 2048], tmm2",
                    "tilestored [{a0} + {tiles}*1 + 2112], tmm3"
                ]
            );

            block!(
                two_by_two_before_next,
                ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
                [
                    "tileloadd tmm4, [{a0} + {a_rs}*1]",
                    "tileloadd tmm6, [{b0} + {b_rs}*1]",
                    "prefetcht1 [{next}]",
                    "prefetcht1 [{next} + 64]",
                    "prefetcht1 [{next} + 128]",
                    "prefetcht1 [{next} + 192]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{b1} + {b_rs}*1]",
                    "prefetcht1 [{next} + 256]",
                    "prefetcht1 [{next} + 320]",
                    "prefetcht1 [{next} + 384]",
                    "prefetcht1 [{next} + 448]",
                    "add {next}, 512",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    "tileloadd tmm5, [{a1} + {a_rs}*1]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    concat!($dot, " tmm3, tmm5, tmm7")
                ],
                [
                    "tilestored [{a0} + {tiles}*1], tmm0",
                    "tilestored [{a0} + {tiles}*1 + 64], tmm1",
                    "tilestored [{a0} + {tiles}*1 + 2048], tmm2",
                    "tilestored [{a0} + {tiles}*1 + 2112], tmm3"
                ]
            );

            block!(
                two_by_one,
                ["tilezero tmm0", "tilezero tmm2"],
                [
                    "tileloadd tmm4, [{a0} + {a_rs}*1]",
                    "tileloadd tmm6, [{b0} + {b_rs}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm5, [{a1} + {a_rs}*1]",
                    concat!($dot, " tmm2, tmm5, tmm6")
                ],
                [
                    "tilestored [{a0} + {tiles}*1], tmm0",
                    "tilestored [{a0} + {tiles}*1 + 2048], tmm2"
                ]
            );

            block!(
                one_by_two,
                ["tilezero tmm0", "tilezero tmm1"],
                [
                    "tileloadd tmm4, [{a0} + {a_rs}*1]",
                    "tileloadd tmm6, [{b0} + {b_rs}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{b1} + {b_rs}*1]",
                    concat!($dot, " tmm1, tmm4, tmm7")
                ],
                ["tilestored [{a0} + {tiles}*1], tmm0", "tilestored [{a0} + {tiles}*1 + 64], tmm1"]
            );

            block!(
                one_by_one,
                ["tilezero tmm0"],
                [
                    "tileloadd tmm4, [{a0} + {a_rs}*1]",
                    "tileloadd tmm6, [{b0} + {b_rs}*1]",
                    concat!($dot, " tmm0, tmm4, tmm6")
                ],
                ["tilestored [{a0} + {tiles}*1], tmm0"]
            );
        };
    }

    /// Blocks of pairs of bfloat16, whose sums are floats.
    pub(super) mod pairs {
        use std::arch::asm;
        use std::mem::offset_of;

        use super::super::Block;

        blocks!("tdpbf16ps");

        block!(
            two_by_two_fetched,
            ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
            [
                "tileloadd tmm4, [{a0} + {a_rs}*1]",
                "tileloadd tmm6, [{b0} + {b_rs}*1]",
                fetch!("b0"),
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b1} + {b_rs}*1]",
                fetch!("b1"),
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a1} + {a_rs}*1]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7"
            ],
            [
                "tilestored [{a0} + {tiles}*1], tmm0",
                "tilestored [{a0} + {tiles}*1 + 64], tmm1",
                "tilestored [{a0} + {tiles}*1 + 2048], tmm2",
                "tilestored [{a0} + {tiles}*1 + 2112], tmm3"
            ]
        );

        block!(
            one_by_two_fetched,
            ["tilezero tmm0", "tilezero tmm1"],
            [
                "tileloadd tmm4, [{a0} + {a_rs}*1]",
                "tileloadd tmm6, [{b0} + {b_rs}*1]",
                fetch!("b0"),
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b1} + {b_rs}*1]",
                fetch!("b1"),
                "tdpbf16ps tmm1, tmm4, tmm7"
            ],
            ["tilestored [{a0} + {tiles}*1], tmm0", "tilestored [{a0} + {tiles}*1 + 64], tmm1"]
        );
    }

    /// Blocks of four bytes, unsigned in A and signed in B, whose sums are integers.
    #[cfg(feature = "quantization")]
    pub(super) mod quads {
        use std::arch::asm;
        use std::mem::offset_of;

        use super::super::Block;

        blocks!("tdpbusd");
    }

    enable!(
        avx512,
        /// Finishes the sums of a strip and stores them.
        ///
        /// # Safety
        ///
        /// `rows` rows of sums must be readable, and as many rows of the output writable. The
        /// epilogue must be valid for it, if it is not null.
        pub(super) unsafe fn finish(sums: *const f32, rows: usize, end: &TileEnd) {
            // SAFETY: the caller has the sums, the output and the epilogue valid for `rows` rows.
            unsafe {
                if end.n > Avx512::LANES {
                    finish_rows::<2>(sums, rows, end)
                } else {
                    finish_rows::<1>(sums, rows, end)
                }
            }
        }
    );

    /// Finishes rows of `V` vectors, up to eight at a time.
    #[inline(always)]
    unsafe fn finish_rows<const V: usize>(sums: *const f32, rows: usize, end: &TileEnd) {
        let mut row = 0;
        // SAFETY: the caller has the sums, the output and the epilogue valid for `rows` rows.
        unsafe {
            while row + 8 <= rows {
                finish_some::<8, V>(sums, row, end);
                row += 8;
            }
            if row + 4 <= rows {
                finish_some::<4, V>(sums, row, end);
                row += 4;
            }
            while row < rows {
                finish_some::<1, V>(sums, row, end);
                row += 1;
            }
        }
    }

    /// Finishes the `R` rows from `row` on.
    #[inline(always)]
    unsafe fn finish_some<const R: usize, const V: usize>(
        sums: *const f32,
        row: usize,
        end: &TileEnd,
    ) {
        // SAFETY: the caller has these rows inside the sums and the output.
        unsafe {
            let mut acc = [[Avx512::splat(0.0); V]; R];
            for (r, of_row) in acc.iter_mut().enumerate() {
                for (v, x) in of_row.iter_mut().enumerate() {
                    *x = Avx512::load(sums.add((row + r) * WIDTH + v * Avx512::LANES));
                }
            }
            let epilogue: TileEpilogue;
            let mut part = TileEnd { c: end.c.wrapping_add(row * end.ldc), ..*end };
            if !end.epilogue.is_null() {
                epilogue = (*end.epilogue).at(row, 0);
                part.epilogue = &raw const epilogue;
            }
            finish_tile::<Avx512, R, V>(&part, acc);
        }
    }

    const _: () = assert!(ROWS * WIDTH * 4 == 2048, "distance of the sums of two strips in bytes");
    const _: () = assert!(super::FETCHED * 4 == 512, "bytes prefetched per tile");
}

/// Stub for systems without tiles.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod system {
    use crate::gemm::TileEnd;

    /// Defines functions that no code calls.
    macro_rules! blocks {
        ($($name:ident)*) => {
            use super::super::Block;
            $(pub(in crate::gemm::amx) unsafe fn $name(_block: &Block<'_>) {})*
        };
    }

    pub(super) mod pairs {
        blocks!(two_by_two two_by_two_fetched two_by_two_before_next two_by_one one_by_two
            one_by_two_fetched one_by_one);
    }

    #[cfg(feature = "quantization")]
    pub(super) mod quads {
        blocks!(two_by_two two_by_two_before_next two_by_one one_by_two one_by_one);
    }

    #[cfg(feature = "quantization")]
    pub(super) fn has_bytes() -> bool {
        false
    }

    pub(super) fn lets_us() -> bool {
        false
    }

    pub(super) unsafe fn set_up(_rows: u8, _depth: u8) {}

    pub(super) unsafe fn release() {}

    pub(super) unsafe fn finish(_sums: *const f32, _rows: usize, _end: &TileEnd) {}
}
