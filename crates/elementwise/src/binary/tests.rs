//! Compares broadcast arithmetic with plain loops over coordinates.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;
use crate::broadcast_strides;

pub(crate) const ALL: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Mod,
    Binary::Fmod,
    Binary::PRelu,
    Binary::SquaredDifference,
    Binary::UsedSlope,
    Binary::UsedDivisor,
];

/// Computes an operation by its definition, in the wide type.
fn define<W: Arith>(op: Binary, a: W, b: W) -> W {
    match op {
        Binary::Add => a.add(b),
        Binary::Sub => a.sub(b),
        Binary::Mul => a.mul(b),
        Binary::Div => a.div(b),
        Binary::Max if a.is_nan() || a >= b => a,
        Binary::Min if a.is_nan() || a <= b => a,
        Binary::Max | Binary::Min => b,
        Binary::Pow => Arith::pow(a, b),
        Binary::Mod => a.modulo(b),
        Binary::Fmod => Arith::rem(a, b),
        Binary::PRelu => {
            if a < W::ZERO {
                a.mul(b)
            } else {
                a
            }
        }
        Binary::SquaredDifference => a.sub(b).mul(a.sub(b)),
        Binary::UsedSlope => {
            let is_finite = b.sub(b) == W::ZERO;
            if a == W::ZERO && !is_finite { W::ZERO } else { b }
        }
        Binary::UsedDivisor => {
            let divides = b.partial_cmp(&W::ZERO).is_some_and(std::cmp::Ordering::is_ne);
            if a == W::ZERO && !divides { W::ONE } else { b }
        }
    }
}

/// Returns the offset of output `at` in an operand.
fn offset(dims: &[usize], strides: &[usize], at: usize) -> usize {
    let mut rest = at;
    let mut offset = 0;
    for (dim, stride) in dims.iter().zip(strides).rev() {
        offset += rest % dim * stride;
        rest /= dim;
    }
    offset
}

const SHAPES: [(&[usize], &[usize], &[usize]); 13] = [
    (&[37], &[37], &[37]),
    (&[5, 7], &[5, 7], &[]),
    (&[5, 7], &[1], &[5, 7]),
    (&[5, 7], &[5, 7], &[7]),
    (&[5, 7], &[5, 1], &[5, 7]),
    (&[2, 3, 4, 5], &[2, 3, 4, 5], &[3, 1, 1]),
    (&[2, 3, 4, 5], &[3, 1, 5], &[2, 1, 4, 1]),
    (&[3, 0, 2], &[3, 0, 2], &[2]),
    (&[], &[], &[]),
    (&[4, 6], &[4, 1], &[1, 6]),
    (&[1, 1, 300], &[300], &[1, 1]),
    (&[6, 5], &[1, 1], &[1]),
    (&[2, 9000, 3], &[2, 9000, 3], &[9000, 1]),
];

fn values<T: Number>(n: usize, seed: usize) -> Vec<T> {
    (0..n)
        .map(|i| match (i * 7 + seed) % 41 {
            0 if T::IS_FLOAT => T::from_f64(f64::NAN),
            1 if T::IS_FLOAT => T::HIGHEST,
            2 => T::ZERO,
            3 => T::LOWEST,
            k => T::from_f64((k as f64 - 20.0) * 0.75),
        })
        .collect()
}

fn check<T: BinaryElement>() {
    for &isa in Isa::available() {
        for (dims, a_dims, b_dims) in SHAPES {
            let (mut a_strides, mut b_strides) = (vec![0; dims.len()], vec![0; dims.len()]);
            broadcast_strides(a_dims, dims, &mut a_strides).expect("broadcasts");
            broadcast_strides(b_dims, dims, &mut b_strides).expect("broadcasts");
            let a: Vec<T> = values(a_dims.iter().product(), 5);
            let b: Vec<T> = values(b_dims.iter().product(), 30);
            let n: usize = dims.iter().product();
            if n > 1000 && T::ONE.to_f64() != 1.0 {
                continue;
            }
            for op in ALL {
                let at = |i| {
                    let (a, b) = (a[offset(dims, &a_strides, i)], b[offset(dims, &b_strides, i)]);
                    T::narrow(define(op, a.widen(), b.widen()))
                };
                let expected: Vec<T> = (0..n).map(at).collect();
                for threads in [1, 2, 3] {
                    let pool = Pool::new(threads);
                    let mut out = vec![T::ONE; n];
                    binary(
                        &Exec::new(&pool, isa),
                        op,
                        dims,
                        Strided::new(&a, &a_strides),
                        Strided::new(&b, &b_strides),
                        &mut out,
                    )
                    .unwrap();
                    assert_same(&out, &expected, op);
                    if a.len() == n && a_dims == dims {
                        let mut out = a.clone();
                        binary_in_place(
                            &Exec::new(&pool, isa),
                            op,
                            Side::Left,
                            dims,
                            &mut out,
                            Strided::new(&b, &b_strides),
                        )
                        .unwrap();
                        assert_same(&out, &expected, op);
                    }
                    if b.len() == n && b_dims == dims {
                        let mut out = b.clone();
                        binary_in_place(
                            &Exec::new(&pool, isa),
                            op,
                            Side::Right,
                            dims,
                            &mut out,
                            Strided::new(&a, &a_strides),
                        )
                        .unwrap();
                        assert_same(&out, &expected, op);
                    }
                }
            }
        }
    }
}

#[track_caller]
fn assert_same<T: Number>(found: &[T], expected: &[T], op: Binary) {
    for (i, (x, y)) in found.iter().zip(expected).enumerate() {
        // The C library's `pow` and special exponents may differ in the last place.
        let near = T::IS_FLOAT && op == Binary::Pow && {
            let (x, y) = (x.to_f64(), y.to_f64());
            (x - y).abs() <= y.abs() * 1e-6
        };
        let nan = x.widen().is_nan() && y.widen().is_nan();
        assert!(x == y || nan || near, "{op:?} at {i}: {x:?}, not {y:?}");
    }
}

#[test]
fn every_type_operation_and_shape() {
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
    check::<i8>();
    check::<i32>();
    check::<i64>();
    check::<u8>();
    check::<u32>();
}

#[test]
fn operands_with_other_strides() {
    // A transposed left operand, and a right one with gaps.
    let (a, b): (Vec<f32>, Vec<f32>) = (values(600, 3), values(1200, 11));
    let dims = [20, 30];
    for &isa in Isa::available() {
        let mut out = vec![0.0; 600];
        binary(
            &Exec::new(&Pool::new(1), isa),
            Binary::Sub,
            &dims,
            Strided::new(&a, &[1, 20]),
            Strided::new(&b, &[60, 2]),
            &mut out,
        )
        .unwrap();
        for (i, out) in out.iter().enumerate() {
            let expected = a[i % 30 * 20 + i / 30] - b[i * 2];
            assert!(*out == expected || (out.is_nan() && expected.is_nan()));
        }
        let mut left = a.clone();
        binary_in_place(
            &Exec::new(&Pool::new(1), isa),
            Binary::Sub,
            Side::Left,
            &dims,
            &mut left,
            Strided::new(&b, &[60, 2]),
        )
        .unwrap();
        for (i, out) in left.iter().enumerate() {
            let expected = a[i] - b[i * 2];
            assert!(*out == expected || (out.is_nan() && expected.is_nan()));
        }
    }
}

/// Checks floats of all sizes, and those next to multiples of divisors, whose quotients round up.
#[test]
fn remainders_of_floats_are_exact() {
    let spread = (0..=u32::MAX).step_by(10_000_019).map(f32::from_bits);
    let edges = [0.0, -0.0, 1.0, -3.0, 0.1, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN];
    let divisors: Vec<f32> = spread.chain(edges).collect();
    for &isa in Isa::available() {
        for &divisor in &divisors {
            let multiples = (1..20).chain([1 << 23, (1 << 27) - 1, 1 << 27, 1 << 40]);
            let near = multiples.flat_map(|n: u64| {
                let multiple = n as f32 * divisor;
                [multiple.next_down(), multiple, multiple.next_up(), -multiple]
            });
            let dividends: Vec<f32> = divisors.iter().copied().chain(near).collect();
            let mut out = vec![1.0; dividends.len()];
            binary(
                &Exec::new(&Pool::new(1), isa),
                Binary::Fmod,
                &[dividends.len()],
                Strided::flat(&dividends),
                Strided::new(&[divisor], &[0]),
                &mut out,
            )
            .unwrap();
            for (found, dividend) in out.iter().zip(&dividends) {
                let expected = dividend % divisor;
                let same = found.to_bits() == expected.to_bits();
                assert!(
                    same || found.is_nan() && expected.is_nan(),
                    "{isa:?}: {dividend:e} % {divisor:e} = {found:e}, not {expected:e}"
                );
            }
        }
    }
}

#[test]
fn constant_powers() {
    for &isa in Isa::available() {
        for (exponent, base, expected) in [
            (2.0, -3.0, 9.0),
            (3.0, -3.0, -27.0),
            (0.5, 16.0, 4.0),
            (0.5, f32::NEG_INFINITY, f32::INFINITY),
            (-1.0, 4.0, 0.25),
            (1.5, 4.0, 8.0),
        ] {
            let mut out = [0.0];
            binary(
                &Exec::new(&Pool::new(1), isa),
                Binary::Pow,
                &[1],
                Strided::flat(&[base]),
                Strided::new(&[exponent], &[0]),
                &mut out,
            )
            .unwrap();
            assert_eq!(out[0], expected, "{base}^{exponent}");
        }
    }
}

#[test]
#[should_panic(expected = "too short")]
fn an_operand_too_short_is_refused() {
    binary(
        &Exec::new(&Pool::new(1), Isa::Portable),
        Binary::Add,
        &[4],
        Strided::flat(&[1, 2]),
        Strided::new(&[1], &[0]),
        &mut [0; 4],
    )
    .unwrap();
}
