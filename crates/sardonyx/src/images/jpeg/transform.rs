//! Inverse discrete cosine transform (IDCT): converts the coefficients of a block into samples.
//!
//! The operator ImageDecoder is defined by the bytes of libjpeg. Its transform is an integer
//! version of C. Loeffler, A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with
//! 11 multiplications" (1989): factors have 13 fractional bits, columns keep two. The transform is
//! linear between these two roundings, so sums with the products of its factors as weights give
//! equal bits. Some weights differ by one from the rounded cosines.

/// Eight DCT coefficients or samples of one row or column of a block.
type Line = [i32; 8];

/// Quantization steps of the coefficients of a block, row by row.
pub(super) type QuantizationTable = [u16; 64];

/// Weights of the even coefficients 0, 2, 4, 6 in the first four samples, with 13 fractional bits.
const EVEN: [[i32; 4]; 4] = [
    [8192, 10703, 8192, 4433],
    [8192, 4433, -8192, -10704],
    [8192, -4433, -8192, 10704],
    [8192, -10703, 8192, -4433],
];

/// Weights of the odd coefficients 1, 3, 5, 7 in the first four samples, with 13 fractional bits.
const ODD: [[i32; 4]; 4] = [
    [11363, 9633, 6437, 2260],
    [9633, -2259, -11362, -6436],
    [6437, -11362, 2261, 9633],
    [2260, -6436, 9633, -11363],
];

/// Transforms the coefficients of one row or column into samples (IDCT), and rounds `shift` bits
/// off. Coefficients have at most 16 bits, so that sums fit in 32 bits.
fn transform_line(x: Line, shift: u32) -> Line {
    let half = 1 << (shift - 1);
    let mut samples = [0; 8];
    for i in 0..4 {
        let (mut even, mut odd) = (half, 0);
        for k in 0..4 {
            even += EVEN[i][k] * x[2 * k];
            odd += ODD[i][k] * x[2 * k + 1];
        }
        (samples[i], samples[7 - i]) = ((even + odd) >> shift, (even - odd) >> shift);
    }
    samples
}

/// Transforms the coefficients of a block into 8 x 8 samples (IDCT), in rows of `stride` bytes.
/// Products of coefficients and quantization steps wrap at 16 bits, which valid images of 8 bits
/// never exceed.
pub(super) fn transform_block(
    block: &[i16],
    table: &QuantizationTable,
    out: &mut [u8],
    stride: usize,
) {
    if block[1..].iter().all(|x| *x == 0) {
        let dc = i32::from(block[0].wrapping_mul(table[0].cast_signed()));
        let sample = (((dc << 2) + 16) >> 5) + 128;
        let sample = sample.clamp(0, 255) as u8;
        (0..8).for_each(|y| out[y * stride..][..8].fill(sample));
        return;
    }
    let columns: [[i32; 8]; 8] = std::array::from_fn(|column| {
        let x = std::array::from_fn(|row| {
            let at = row * 8 + column;
            i32::from(block[at].wrapping_mul(table[at].cast_signed()))
        });
        transform_line(x, 11).map(|value| value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)))
    });
    for y in 0..8 {
        let row = std::array::from_fn(|column| columns[column][y]);
        for (out, value) in out[y * stride..][..8].iter_mut().zip(transform_line(row, 18)) {
            *out = (value + 128).clamp(0, 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{PI, SQRT_2};

    use super::*;

    /// Computes the samples of a block by the definition of the IDCT (ITU-T T.81, A.3.3).
    fn transform_by_definition(block: &[i16], table: &QuantizationTable) -> Vec<f64> {
        let mut samples = Vec::new();
        for at in 0..64 {
            let terms = (0..64).map(|i| {
                let value = f64::from(block[i]) * f64::from(table[i]);
                value * compute_basis(i % 8, at % 8) * compute_basis(i / 8, at / 8)
            });
            samples.push((terms.sum::<f64>() + 128.0).clamp(0.0, 255.0));
        }
        samples
    }

    /// Returns the IDCT's scaled cosine of frequency `u` at sample `x`.
    fn compute_basis(u: usize, x: usize) -> f64 {
        let scale = if u == 0 { 1.0 / SQRT_2 } else { 1.0 };
        scale * ((2 * x + 1) as f64 * u as f64 * PI / 16.0).cos() / 2.0
    }

    /// Returns the next pseudo-random number from `-bound` to `bound`.
    fn next_random(state: &mut u32, bound: i32) -> i16 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((*state >> 8) as i32 % (2 * bound + 1) - bound) as i16
    }

    #[test]
    fn samples_are_those_of_the_definition() {
        let mut state = 1u32;
        let table: QuantizationTable = std::array::from_fn(|i| 1 + i as u16 % 7);
        for bound in [0, 1, 5, 30] {
            for _ in 0..50 {
                let mut block = [0i16; 64];
                block.iter_mut().for_each(|x| *x = next_random(&mut state, bound));
                block[0] = next_random(&mut state, 900);
                let mut got = vec![0; 8 * 10];
                transform_block(&block, &table, &mut got, 10);
                for (i, want) in transform_by_definition(&block, &table).into_iter().enumerate() {
                    let got = f64::from(got[i / 8 * 10 + i % 8]);
                    assert!((got - want).abs() < 1.0, "{i}: {got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn the_largest_coefficients_overflow_nothing() {
        for value in [i16::MIN, i16::MAX, -1, 12345] {
            transform_block(&[value; 64], &[u16::MAX; 64], &mut [0; 64], 8);
            transform_block(&[value; 64], &[1; 64], &mut [0; 64], 8);
        }
    }
}
