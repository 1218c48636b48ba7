//! Kernels as methods of element types.

use sardonyx_elementwise::CodeLoops;
use sardonyx_simd::{Ended, Exec};

use crate::conv::{ByteConv, ByteEnding, ByteOperands};

per_type! {
    /// Convolutions whose results are quantized again.
    trait ByteConvLoops: CodeLoops for [i8, u8, i16, u16] {
        conv::conv_codes = fn conv_codes(
            exec: &Exec<'_>, conv: &ByteConv<'_>, operands: &ByteOperands<'_>, ending: &ByteEnding<'_, Self>,
            y: &mut [Self],
        ) -> Result<(), Ended>;
    }
}
