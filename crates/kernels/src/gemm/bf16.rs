//! Products of floats rounded to bfloat16, two at a time: twice the multiply-adds per instruction, and half the memory.
//!
//! The idea: a *pair* of neighbouring steps of k takes the place of one float. Panels of pairs have the form of panels of
//! floats with half as many steps, so everything around the microkernel is the same code; only the multiply-add is
//! another instruction (`VDPBF16PS`), which multiplies both halves and adds them to a float. Operands are rounded to
//! nearest, ties to even; sums are floats.

use super::buffer::with_scratch;
use super::matrix::MatRef;
use super::pack::{PackSource, Packed, Panels, pack_all};
use super::simd::panel_width;
use crate::Isa;
use crate::pool::Pool;

/// Whether this machine has the instruction, on that instruction set.
pub(crate) fn is_available(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa == Isa::Avx512 && isa.is_available() && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Bits of the bfloat16 nearest to `x`, in the upper half of a word. NaN stays NaN.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    let nan = bits & 0xffff_0000 | 0x0040_0000;
    if x.is_nan() { nan } else { nearest }
}

/// A pair as the bits of a float: the earlier step in the lower half.
#[inline(always)]
fn pair(first: f32, second: f32) -> f32 {
    f32::from_bits(rounded(first) >> 16 | rounded(second))
}

/// Turns `depth` rows of `width` floats into rows of pairs; a last row without a partner meets zeros. In place works if
/// `to` begins where `from` does.
fn to_pairs(depth: usize, width: usize, from: &[f32], to: &mut [f32]) {
    for step in 0..depth.div_ceil(2) {
        let first = &from[2 * step * width..][..width];
        let to = &mut to[step * width..][..width];
        if 2 * step + 1 < depth {
            let second = &from[(2 * step + 1) * width..][..width];
            for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
                *to = pair(*first, *second);
            }
        } else {
            for (to, first) in to.iter_mut().zip(first) {
                *to = pair(*first, 0.0);
            }
        }
    }
}

impl Packed {
    /// The same panels in pairs.
    pub(crate) fn into_pairs(self) -> Packed {
        let w = panel_width(self.isa);
        let panels = self.width.div_ceil(w);
        let (floats, pairs) = (self.depth * w, self.depth.div_ceil(2) * w);
        let mut data = super::buffer::AlignedBuf::zeroed(panels * pairs);
        for panel in 0..panels {
            let to = &mut data[panel * pairs..][..pairs];
            to_pairs(self.depth, w, &self.data[panel * floats..][..floats], to);
        }
        Packed {
            pairs: true,
            data,
            ..self
        }
    }
}

/// Most rows of A that get a form of their own instead of whole panels.
const FEW: usize = 12;

/// Lends the rows of a matrix in pairs.
pub(super) fn with_pairs<R>(
    pool: &Pool,
    isa: Isa,
    a: &MatRef<'_>,
    f: impl FnOnce(Panels) -> R,
) -> R {
    let (m, k, w) = (a.rows(), a.cols(), panel_width(isa));
    let steps = k.div_ceil(2);
    if m <= FEW {
        return with_scratch(steps * m, |to| {
            for step in 0..steps {
                for row in 0..m {
                    let second = 2 * step + 1;
                    let second = if second < k { a.get(row, second) } else { 0.0 };
                    to[step * m + row] = pair(a.get(row, 2 * step), second);
                }
            }
            f(Panels {
                ptr: to.as_ptr(),
                stride: 0,
                ks: m,
                ws: 1,
            })
        });
    }
    let panels = m.div_ceil(w);
    with_scratch(panels * w * k, |floats| {
        let turned = a.transposed();
        pack_all(pool, isa, &turned as &dyn PackSource, floats);
        with_scratch(panels * w * steps, |to| {
            for panel in 0..panels {
                let from = &floats[panel * w * k..][..w * k];
                to_pairs(k, w, from, &mut to[panel * w * steps..][..w * steps]);
            }
            f(Panels::packed(isa, to, steps))
        })
    })
}

/// The multiply-add of pairs.
#[cfg(target_arch = "x86_64")]
pub(super) mod tiles {
    use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};

    use crate::gemm::avx512::Avx512;
    use crate::gemm::tile::Mac;

    pub(crate) struct Pairs;

    impl Mac<Avx512> for Pairs {
        #[inline(always)]
        unsafe fn mac(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: both types are 64 bytes without invalid values; the caller's machine has the instruction.
            unsafe {
                let a = std::mem::transmute::<__m512, __m512bh>(a);
                let b = std::mem::transmute::<__m512, __m512bh>(b);
                _mm512_dpbf16_ps(c, a, b)
            }
        }
    }

    tile_table!(
        Avx512,
        Pairs,
        [#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,bmi2")]],
        1 2 3 4 5 6 7 8 9 10 11 12
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Epilogue, Lhs, PackedB, Rhs, gemm};

    #[test]
    fn rounding_is_that_of_the_type() {
        let edge = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            3.3,
            1e-40,
            f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::from_bits(0x3f80_8000),
            f32::from_bits(0x3f81_8000),
            f32::from_bits(0x3f80_8001),
        ];
        for x in edge {
            assert_eq!(
                rounded(x) >> 16,
                u32::from(half::bf16::from_f32(x).to_bits()),
                "{x}"
            );
        }
        assert!(f32::from_bits(rounded(f32::NAN)).is_nan());
        assert!(f32::from_bits(rounded(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn products_are_those_of_rounded_operands() {
        let isa = Isa::Avx512;
        if !is_available(isa) {
            eprintln!("skipped: this machine does not multiply bfloat16");
            return;
        }
        let round = |x: f32| f64::from(f32::from_bits(rounded(x)));
        for (m, n, k) in [
            (1, 33, 70),
            (3, 5, 1),
            (12, 64, 513),
            (13, 31, 2),
            (70, 100, 700),
            (128, 7, 40),
        ] {
            let numbers = |len: usize, by: usize| -> Vec<f32> {
                (0..len)
                    .map(|i| ((i * by) % 1009) as f32 / 504.0 - 1.0)
                    .collect()
            };
            let (a, b, bias) = (numbers(m * k, 37), numbers(k * n, 71), numbers(n, 13));
            let packed = PackedB::new(isa, MatRef::row_major(&b, k, n)).into_bf16();
            let epilogue = Epilogue {
                bias: Some(crate::gemm::Bias::Col(&bias)),
                ..Epilogue::default()
            };
            let mut first = None;
            for threads in [1, 2, 4] {
                let mut c = vec![0.0; m * n];
                let lhs = Lhs::Plain(MatRef::row_major(&a, m, k));
                gemm(
                    &Pool::new(threads),
                    isa,
                    lhs,
                    Rhs::Packed(&packed),
                    &mut c,
                    n,
                    &epilogue,
                );
                for (at, c) in c.iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let products = (0..k).map(|p| round(a[i * k + p]) * round(b[p * n + j]));
                    let (sum, size) = products.fold((0.0, 0.0), |(s, z), x| (s + x, z + x.abs()));
                    let want = sum + f64::from(bias[j]);
                    let bound = 4e-7 * (size + 1.0) * (k as f64).sqrt().max(2.0);
                    assert!(
                        (f64::from(*c) - want).abs() <= bound,
                        "{m}x{n}x{k} at {i},{j}: {c} not {want}"
                    );
                }
                let bits: Vec<u32> = c.iter().map(|c| c.to_bits()).collect();
                assert_eq!(
                    first.get_or_insert(bits.clone()),
                    &bits,
                    "{threads} threads"
                );
            }
        }
    }
}
