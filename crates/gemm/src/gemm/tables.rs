//! Tile functions per instruction set and type of the wide operand.

use super::halves::Storage;
use super::tile::TileTable;
use sardonyx_simd::Isa;

/// Defines `FLOATS`, `F16`, `BF16` and `SHORTS` of one instruction set for the given row counts.
macro_rules! tile_tables {
    ($simd:ty, $set:ident, $($rows:literal)*) => {
        tile_table!(FLOATS, $simd, $crate::gemm::tile::Floats, $set, $($rows)*);
        tile_table!(F16, $simd, $crate::gemm::halves::F16, $set, $($rows)*);
        tile_table!(BF16, $simd, $crate::gemm::halves::Bf16, $set, $($rows)*);
        #[cfg(feature = "quantization")]
        tile_table!(SHORTS, $simd, $crate::gemm::tile::Shorts, $set, $($rows)*);
    };
}

mod portable {
    tile_tables!(sardonyx_simd::portable::Portable, portable, 1 2 3 4);
}

/// Tiles of up to 6 x 16: 12 of 16 registers are accumulators.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #[cfg(feature = "quantization")]
    use crate::gemm::integer::macs::pairs_of_bytes::PairsOfBytes;
    use sardonyx_simd::avx2::Avx2;

    tile_tables!(Avx2, avx2, 1 2 3 4 5 6);
    #[cfg(feature = "quantization")]
    tile_table!(PAIRS_OF_BYTES, Avx2, PairsOfBytes, avx2, 1 2 3 4 5 6);
}

/// Tiles of up to 12 x 32: 24 accumulators, two vectors of one operand and one broadcast of the
/// other. At 14 rows the compiler starts to spill.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    tile_tables!(sardonyx_simd::avx512::Avx512, avx512, 1 2 3 4 5 6 7 8 9 10 11 12);
}

/// Tiles of up to 10 x 8: 20 accumulators, four steps of two vectors of one operand and of a few
/// rows of the other.
#[cfg(target_arch = "aarch64")]
mod neon {
    use crate::gemm::{halves, tile};

    tile_table!(FLOATS, Neon, tile::Floats, neon, 1 2 3 4 5 6 7 8 9 10);
    tile_table!(F16, Neon, halves::F16, neon, 1 2 3 4 5 6 7 8 9 10);
    tile_table!(BF16, Neon, halves::Bf16, neon, 1 2 3 4 5 6 7 8 9 10);
    // A lane of 16 bits must be in one of the first 16 registers: at 7 rows the compiler spills.
    #[cfg(feature = "quantization")]
    tile_table!(SHORTS, Neon, tile::Shorts, neon, 1 2 3 4 5 6);
}

#[cfg(all(target_arch = "x86_64", feature = "quantization"))]
pub(super) use avx2::PAIRS_OF_BYTES;

/// Returns the tile functions of an instruction set for a wide operand of a type.
pub(super) fn tiles(isa: Isa, storage: Storage) -> TileTable {
    match storage {
        Storage::F32 => by_isa!(isa, avx512::FLOATS, avx2::FLOATS, neon::FLOATS, portable::FLOATS),
        Storage::F16 => by_isa!(isa, avx512::F16, avx2::F16, neon::F16, portable::F16),
        Storage::Bf16 => by_isa!(isa, avx512::BF16, avx2::BF16, neon::BF16, portable::BF16),
    }
}

/// Returns the tile functions of an instruction set for pairs of integers of 16 bits.
#[cfg(feature = "quantization")]
pub(super) fn tiles_of_shorts(isa: Isa) -> TileTable {
    by_isa!(isa, avx512::SHORTS, avx2::SHORTS, neon::SHORTS, portable::SHORTS)
}
