//! Compares softmax with its definition in f64.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;

fn define(op: Softmax, row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, Arith::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    let first = row.iter().position(|&x| x == max || x.is_nan());
    row.iter()
        .enumerate()
        .map(|(i, x)| match op {
            Softmax::Softmax => (x - max).exp() / sum,
            Softmax::LogSoftmax => x - max - sum.ln(),
            Softmax::Hardmax => f64::from(u8::from(Some(i) == first)),
        })
        .collect()
}

const ALL: [Softmax; 3] = [Softmax::Softmax, Softmax::LogSoftmax, Softmax::Hardmax];

fn check<T: Number>(tolerance: f64) {
    for &isa in Isa::available() {
        for [outer, axis, inner] in [
            [1, 1, 1],
            [3, 10, 1],
            [2, 1000, 1],
            [2, 5, 3],
            [3, 7, 150],
            [0, 3, 2],
            [2, 0, 2],
            [2, 300, 1],
        ] {
            let n = outer * axis * inner;
            let x: Vec<T> =
                (0..n).map(|i| T::from_f64(((i * 31 % 97) as f64 - 40.0) * 0.25)).collect();
            for op in ALL {
                let mut y = vec![T::ONE; n];
                softmax(
                    &Exec::new(&Pool::new(2), isa),
                    op,
                    [outer, axis, inner].into(),
                    &x,
                    &mut y,
                )
                .unwrap();
                let mut in_place = x.clone();
                softmax_in_place(
                    &Exec::new(&Pool::new(1), isa),
                    op,
                    [outer, axis, inner].into(),
                    &mut in_place,
                )
                .unwrap();
                assert_eq!(y, in_place);
                for row in 0..outer * inner {
                    let at = |i| row / inner * axis * inner + i * inner + row % inner;
                    let xs: Vec<f64> = (0..axis).map(|i| x[at(i)].to_f64()).collect();
                    for (i, expected) in define(op, &xs).into_iter().enumerate() {
                        let found = y[at(i)].to_f64();
                        let error = (found - expected).abs() / expected.abs().max(1e-3);
                        assert!(error <= tolerance, "{isa:?} {op:?}: {found}, not {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_float() {
    check::<f32>(5e-7);
    check::<f64>(1e-14);
    check::<f16>(1.1e-3);
    check::<bf16>(1e-2);
}

#[test]
fn infinities_and_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for &isa in Isa::available() {
        for (x, expected) in [
            ([-inf, -inf, -inf], [nan; 3]),
            ([-inf, 0.0, 0.0], [0.0, 0.5, 0.5]),
            ([inf, 0.0, 0.0], [nan; 3]),
            ([nan, 0.0, 0.0], [nan; 3]),
            ([1e38, 0.0, 1e38], [0.5, 0.0, 0.5]),
        ] {
            for copies in [1, 70] {
                let x: Vec<f32> = x.iter().flat_map(|&x| vec![x; copies]).collect();
                let mut y = vec![7.0; 3 * copies];
                softmax(
                    &Exec::new(&Pool::new(1), isa),
                    Softmax::Softmax,
                    [1, 3, copies].into(),
                    &x,
                    &mut y,
                )
                .unwrap();
                for (i, y) in y.iter().enumerate() {
                    let e = expected[i / copies];
                    assert!((y - e).abs() < 1e-6 || (y.is_nan() && e.is_nan()), "{x:?}: {y}");
                }
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let x: Vec<f32> = (0..300_000).map(|i| (i as f32 * 0.37).sin() * 9.0).collect();
    for &isa in Isa::available() {
        for dims in [[300, 1000, 1], [3, 100, 1000]] {
            for op in ALL {
                let bits = |threads| {
                    let mut y = vec![0.0; x.len()];
                    softmax(&Exec::new(&Pool::new(threads), isa), op, dims.into(), &x, &mut y)
                        .unwrap();
                    y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                let one = bits(1);
                assert!(one == bits(2) && one == bits(3));
            }
        }
    }
}
