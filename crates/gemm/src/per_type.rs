//! Kernels as methods of element types.

use half::{bf16, f16};
#[cfg(feature = "quantization")]
use sardonyx_elementwise::CodeLoops;
use sardonyx_elementwise::NarrowLoops;
#[cfg(feature = "quantization")]
use sardonyx_simd::Ended;
use sardonyx_simd::Exec;

#[cfg(feature = "quantization")]
use crate::conv::{ByteConv, ByteEnding, ByteOperands};
use crate::conv::{ConvEpilogue, ConvError, PackedConv};

per_type! {
    /// Convolutions of f16 and bf16, computed in f32.
    trait NarrowConvLoops: NarrowLoops for [f16, bf16] {
        conv::conv_narrow = fn conv_narrow(
            exec: &Exec<'_>, conv: &PackedConv, images: usize, spatial: &[usize], x: &[Self],
            epilogue: &ConvEpilogue<'_>, y: &mut [Self],
        ) -> Result<(), ConvError>;
    }
}

#[cfg(feature = "quantization")]
per_type! {
    /// Convolutions whose results are quantized again.
    trait ByteConvLoops: CodeLoops for [i8, u8, i16, u16] {
        conv::conv_codes = fn conv_codes(
            exec: &Exec<'_>, conv: &ByteConv<'_>, operands: &ByteOperands<'_>, ending: &ByteEnding<'_, Self>,
            y: &mut [Self],
        ) -> Result<(), Ended>;
    }
}
