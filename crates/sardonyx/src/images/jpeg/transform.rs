//! From the coefficients of a block to its samples: the inverse discrete cosine transform.
//!
//! The standard of ImageDecoder wants the bytes of libjpeg, whose transform is that of C. Loeffler,
//! A. Ligtenberg and G. Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications"
//! (1989), on integers: factors have 13 bits after the point, columns keep two bits of fraction.
//! Between these two roundings it is linear, so the sums below, with the weights that its factors
//! add up to, give the same bits. Some differ by one from the rounded cosines.

/// Weights of the even coefficients 0, 2, 4, 6 in the first four samples of the even half.
const EVEN: [[i32; 4]; 4] = [
    [8192, 10703, 8192, 4433],
    [8192, 4433, -8192, -10704],
    [8192, -4433, -8192, 10704],
    [8192, -10703, 8192, -4433],
];

/// Weights of the odd coefficients 1, 3, 5, 7 in the first four samples of the odd half.
const ODD: [[i32; 4]; 4] = [
    [11363, 9633, 6437, 2260],
    [9633, -2259, -11362, -6436],
    [6437, -11362, 2261, 9633],
    [2260, -6436, 9633, -11363],
];

/// Eight samples of eight coefficients, which are within 16 bits: so are the sums within 32.
fn line(x: [i32; 8], shift: u32) -> [i32; 8] {
    let sum = |weights: &[i32; 4], first: usize| {
        (0..4).map(|i| weights[i] * x[2 * i + first]).sum::<i32>()
    };
    let half = 1 << (shift - 1);
    let mut samples = [0; 8];
    for i in 0..4 {
        let (even, odd) = (sum(&EVEN[i], 0) + half, sum(&ODD[i], 1));
        (samples[i], samples[7 - i]) = ((even + odd) >> shift, (even - odd) >> shift);
    }
    samples
}

/// The samples of a block, in rows that are a stride apart. Products beyond 16 bits wrap, which no
/// image of 8 bits has.
pub(super) fn samples(block: &[i16], table: &[u16; 64], out: &mut [u8], stride: usize) {
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
        line(x, 11).map(|value| value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)))
    });
    for y in 0..8 {
        let row = std::array::from_fn(|column| columns[column][y]);
        for (out, value) in out[y * stride..][..8].iter_mut().zip(line(row, 18)) {
            *out = (value + 128).clamp(0, 255) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{PI, SQRT_2};

    use super::*;

    /// By the definition (ITU-T T.81, A.3.3).
    fn by_definition(block: &[i16], table: &[u16; 64]) -> Vec<f64> {
        let basis = |u: usize, x: usize| {
            let scale = if u == 0 { 1.0 / SQRT_2 } else { 1.0 };
            scale * ((2 * x + 1) as f64 * u as f64 * PI / 16.0).cos() / 2.0
        };
        let at = |x: usize, y: usize| {
            let terms = (0..64).map(|i| {
                let value = f64::from(block[i]) * f64::from(table[i]);
                value * basis(i % 8, x) * basis(i / 8, y)
            });
            terms.sum::<f64>() + 128.0
        };
        (0..64).map(|i| at(i % 8, i / 8).clamp(0.0, 255.0)).collect()
    }

    #[test]
    fn samples_are_those_of_the_definition() {
        let mut state = 1u32;
        let mut next = |bound: i32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as i32 % (2 * bound + 1) - bound
        };
        let table: [u16; 64] = std::array::from_fn(|i| 1 + i as u16 % 7);
        for bound in [0, 1, 5, 30] {
            for _ in 0..50 {
                let mut block = [0i16; 64];
                block.iter_mut().for_each(|x| *x = next(bound) as i16);
                block[0] = next(900) as i16;
                let mut got = vec![0; 8 * 10];
                samples(&block, &table, &mut got, 10);
                for (i, want) in by_definition(&block, &table).into_iter().enumerate() {
                    let got = f64::from(got[i / 8 * 10 + i % 8]);
                    assert!((got - want).abs() < 1.0, "{i}: {got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn the_largest_coefficients_overflow_nothing() {
        for value in [i16::MIN, i16::MAX, -1, 12345] {
            samples(&[value; 64], &[u16::MAX; 64], &mut [0; 64], 8);
            samples(&[value; 64], &[1; 64], &mut [0; 64], 8);
        }
    }
}
