//! Kernels as methods of element types, so that callers dispatch on a type once.

use half::{bf16, f16};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Ended, Exec};

#[cfg(feature = "quantization")]
use crate::quantized::{Code, Dividend, Factors, Precision, Scaling, Stored};
use crate::{Binary, Compare, Link, Side, Source, Strided, Update};

per_type! {
    /// Elementwise loops of all number types.
    trait ElementLoops: Number for [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] {
        compare = fn compare(
            exec: &Exec<'_>, op: Compare, dims: &[usize], a: Strided<'_, Self>, b: Strided<'_, Self>,
            out: &mut [u8],
        ) -> Result<(), Ended>;
        binary = fn binary(
            exec: &Exec<'_>, op: Binary, dims: &[usize], a: Strided<'_, Self>, b: Strided<'_, Self>,
            out: &mut [Self],
        ) -> Result<(), Ended>;
        binary_in_place = fn binary_in_place(
            exec: &Exec<'_>, op: Binary, side: Side, dims: &[usize], a: &mut [Self], b: Strided<'_, Self>,
        ) -> Result<(), Ended>;
        clip = fn clip(exec: &Exec<'_>, low: Self, high: Self, x: &[Self], y: &mut [Self]) -> Result<(), Ended>;
        clip_in_place = fn clip_in_place(exec: &Exec<'_>, low: Self, high: Self, x: &mut [Self]) -> Result<(), Ended>;
        pointwise = fn pointwise(
            exec: &Exec<'_>, dims: &[usize], x: Strided<'_, Self>, links: &[Link<'_, Self>],
            out: &mut [Self],
        ) -> Result<(), Ended>;
        pointwise_in_place = fn pointwise_in_place(
            exec: &Exec<'_>, dims: &[usize], links: &[Link<'_, Self>], x: &mut [Self],
        ) -> Result<(), Ended>;
    }

    /// Conversions of the floats that compute in f32.
    trait NarrowLoops: Number for [f16, bf16] {
        widen = fn widen_slice(exec: &Exec<'_>, x: &[Self], wide: &mut [f32]) -> Result<(), Ended>;
        narrow = fn narrow_slice(exec: &Exec<'_>, wide: &[f32], y: &mut [Self]) -> Result<(), Ended>;
    }

    /// Loops whose results may replace operands, in the types that training computes in.
    trait UpdateLoops: Math for [f32, f64] {
        update = fn update(
            exec: &Exec<'_>, functions: &Update, sources: &[Source<'_, Self>],
            results: &mut [&mut [Self]],
        ) -> Result<(), Ended>;
    }
}

#[cfg(feature = "quantization")]
per_type! {
    /// Loops of the integers that floats are quantized to.
    trait CodeLoops: Code for [i8, u8, i16, u16] {
        quantized::quantize = fn quantize(
            exec: &Exec<'_>, scaling: &Scaling<'_>, x: &[f32], out: &mut [Self],
        ) -> Result<(), Ended>;
        quantized::requantize = fn requantize(
            exec: &Exec<'_>, factors: &Factors<'_>, zero: Self, columns: usize, sums: &[i32], out: &mut [Self],
        ) -> Result<(), Ended>;
    }

    /// Loops of the numbers that are dequantized.
    trait StoredLoops: Stored for [i8, u8, i16, u16, i32, f32] {
        quantized::dequantize = fn dequantize(
            exec: &Exec<'_>, scaling: &Scaling<'_>, x: &[Self], out: &mut [f32],
        ) -> Result<(), Ended>;
    }

    /// Loops of the floats that are divided.
    trait DividendLoops: Dividend for [f32, f64] {
        quantized::divide = fn divide(
            exec: &Exec<'_>, scaling: &Scaling<'_, Self>, precision: Precision, x: &[Self], out: &mut [f32],
        ) -> Result<(), Ended>;
    }
}
