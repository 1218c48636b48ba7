//! Compares reductions with plain loops over coordinates in f64.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;
use sardonyx_simd::number::Arith;

const ALL: [Reduce; 10] = [
    Reduce::Sum,
    Reduce::Mean,
    Reduce::Max,
    Reduce::Min,
    Reduce::Prod,
    Reduce::L1,
    Reduce::L2,
    Reduce::SumSquare,
    Reduce::LogSum,
    Reduce::LogSumExp,
];

fn define(op: Reduce, xs: &[f64]) -> f64 {
    let n = xs.len() as f64;
    let sum = |f: fn(f64) -> f64| xs.iter().map(|&x| f(x)).sum::<f64>();
    match op {
        Reduce::Sum => sum(|x| x),
        Reduce::Mean => sum(|x| x) / n,
        Reduce::Max => xs.iter().copied().fold(f64::NEG_INFINITY, Arith::max),
        Reduce::Min => xs.iter().copied().fold(f64::INFINITY, Arith::min),
        Reduce::Prod => xs.iter().product(),
        Reduce::L1 => sum(f64::abs),
        Reduce::L2 => sum(|x| x * x).sqrt(),
        Reduce::SumSquare => sum(|x| x * x),
        Reduce::LogSum => sum(|x| x).ln(),
        Reduce::LogSumExp => sum(f64::exp).ln(),
    }
}

/// Collects the elements of each output.
fn groups(dims: &[usize], axes: &[bool], x: &[f64]) -> Vec<Vec<f64>> {
    let kept = dims.iter().zip(axes).filter(|(_, r)| !**r).map(|(d, _)| *d);
    let mut groups = vec![Vec::new(); kept.product()];
    for (at, &x) in x.iter().enumerate() {
        let (mut rest, mut index, mut stride) = (at, 0, 1);
        for (&dim, &reduced) in dims.iter().zip(axes).rev() {
            if !reduced {
                index += rest % dim * stride;
                stride *= dim;
            }
            rest /= dim;
        }
        groups[index].push(x);
    }
    groups
}

const CASES: [(&[usize], &[bool]); 16] = [
    (&[7], &[true]),
    (&[7], &[false]),
    (&[], &[]),
    (&[1000], &[true]),
    (&[5, 77], &[false, true]),
    (&[77, 5], &[true, false]),
    (&[77, 300], &[true, false]),
    (&[3, 40, 5], &[false, true, false]),
    (&[4, 5, 66], &[true, false, true]),
    (&[4, 5, 3, 7], &[true, false, true, false]),
    (&[4, 5, 3, 7], &[false, true, true, false]),
    (&[2, 1, 6], &[false, true, false]),
    (&[3, 0, 2], &[false, true, false]),
    (&[0, 4], &[true, false]),
    (&[0, 4], &[false, true]),
    (&[5, 1], &[true, false]),
];

fn check<T: Number>(tolerance: f64) {
    for &isa in Isa::available() {
        for (dims, axes) in CASES {
            let n: usize = dims.iter().product();
            let x: Vec<T> =
                (0..n).map(|i| T::from_f64(1.0 + 0.25 * ((i * 37 % 11) as f64 - 4.0))).collect();
            let wide: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
            let groups = groups(dims, axes, &wide);
            for op in ALL {
                let mut out = vec![T::ONE; groups.len()];
                reduce(&Exec::new(&Pool::new(1), isa), op, dims, axes, &x, &mut out).unwrap();
                for (found, group) in out.iter().zip(&groups) {
                    let expected = T::from_f64(define(op, group)).to_f64();
                    let found = found.to_f64();
                    let near = (found - expected).abs() <= tolerance * expected.abs().max(0.01);
                    assert!(
                        found == expected || near || (found.is_nan() && expected.is_nan()),
                        "{isa:?} {op:?} {dims:?} {axes:?}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn floats() {
    check::<f32>(2e-6);
    check::<f64>(1e-13);
    check::<f16>(2e-3);
    check::<bf16>(1e-2);
}

#[test]
fn integers() {
    let x: Vec<i32> = (1..=24).collect();
    for (op, expected) in [
        (Reduce::Sum, vec![28, 92, 156]),
        (Reduce::Mean, vec![3, 11, 19]),
        (Reduce::Max, vec![7, 15, 23]),
        (Reduce::Min, vec![0, 8, 16]),
        (Reduce::L2, vec![11, 33, 55]),
        (Reduce::LogSumExp, vec![7, 15, 23]),
    ] {
        let x: Vec<i32> = x.iter().map(|x| x - 1).collect();
        let mut out = [0; 3];
        reduce(&Exec::new(&Pool::new(1), Isa::detect()), op, &[3, 8], &[false, true], &x, &mut out)
            .unwrap();
        assert_eq!(out.to_vec(), expected, "{op:?}");
    }
    let mut out = [0];
    reduce(
        &Exec::new(&Pool::new(1), Isa::detect()),
        Reduce::Sum,
        &[3],
        &[true],
        &[i32::MAX, 3, 1],
        &mut out,
    )
    .unwrap();
    assert_eq!(out, [i32::MIN + 3]);
    for (op, expected) in [(Reduce::Max, i64::MIN), (Reduce::Min, i64::MAX), (Reduce::Mean, 0)] {
        let mut out = [1];
        reduce(&Exec::new(&Pool::new(1), Isa::detect()), op, &[0], &[true], &[], &mut out).unwrap();
        assert_eq!(out, [expected]);
    }
}

#[test]
fn nan_and_infinity() {
    for &isa in Isa::available() {
        for at in [0, 5, 40, 99] {
            let mut x = vec![1.0f32; 200];
            x[at] = f32::NAN;
            for (op, axes) in [
                (Reduce::Max, [false, true]),
                (Reduce::Min, [false, true]),
                (Reduce::Sum, [false, true]),
                (Reduce::LogSumExp, [false, true]),
            ] {
                let mut out = [0.0; 2];
                reduce(&Exec::new(&Pool::new(1), isa), op, &[2, 100], &axes, &x, &mut out).unwrap();
                assert!(out[0].is_nan() && !out[1].is_nan(), "{op:?}");
                let mut out = vec![0.0; 100];
                reduce(&Exec::new(&Pool::new(1), isa), op, &[2, 100], &[true, false], &x, &mut out)
                    .unwrap();
                assert!(out.iter().enumerate().all(|(i, y)| y.is_nan() == (i == at)), "{op:?}");
            }
        }
        for (x, expected) in [
            ([f32::NEG_INFINITY; 2], f32::NEG_INFINITY),
            ([f32::INFINITY, 0.0], f32::INFINITY),
            ([1000.0, 1000.0], 1000.0 + 2f32.ln()),
        ] {
            let mut out = [0.0];
            reduce(&Exec::new(&Pool::new(1), isa), Reduce::LogSumExp, &[2], &[true], &x, &mut out)
                .unwrap();
            assert_eq!(out, [expected]);
        }
    }
}

#[test]
fn long_sums_are_accurate() {
    let x: Vec<f32> = (0..3_000_000).map(|i| 0.1 + (i % 7) as f32 * 1e-3).collect();
    let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
    for &isa in Isa::available() {
        for dims in [[3_000_000, 1], [1_000_000, 3]] {
            let mut out = vec![0.0; dims[1]];
            reduce(
                &Exec::new(&Pool::new(1), isa),
                Reduce::Sum,
                &dims,
                &[true, false],
                &x,
                &mut out,
            )
            .unwrap();
            let sum: f64 = out.iter().map(|&x| f64::from(x)).sum();
            assert!((sum / exact - 1.0).abs() < 3e-7, "{sum} {exact}");
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let x: Vec<f32> = (0..600_000).map(|i| (i as f32).sin()).collect();
    for &isa in Isa::available() {
        for (dims, axes) in [
            ([60, 100, 100], [false, false, true]),
            ([60, 100, 100], [true, false, true]),
            ([60, 100, 100], [false, true, false]),
            ([60, 1, 10_000], [true, false, false]),
            ([200_000, 1, 3], [false, false, true]),
        ] {
            for op in [Reduce::Sum, Reduce::LogSumExp] {
                let bits = |threads| {
                    let kept = dims.iter().zip(axes).filter(|(_, r)| !r).map(|(d, _)| *d);
                    let mut out = vec![0.0; kept.product()];
                    reduce(&Exec::new(&Pool::new(threads), isa), op, &dims, &axes, &x, &mut out)
                        .unwrap();
                    out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                };
                let one = bits(1);
                assert!(one == bits(2) && one == bits(3), "{isa:?} {dims:?}");
            }
        }
    }
}

#[test]
fn positions_of_extremes() {
    let nan = f32::NAN;
    let rows: [(&[f32], [i64; 4]); 7] = [
        // Greatest first and last, least first and last.
        (&[1.0, 3.0, 3.0, 0.0, 0.0], [1, 2, 3, 4]),
        (&[1.0, nan, 3.0, nan], [1, 3, 1, 3]),
        (&[f32::NEG_INFINITY, f32::NEG_INFINITY], [0, 1, 0, 1]),
        (&[f32::INFINITY, 1.0], [0, 0, 1, 1]),
        (&[2.0], [0, 0, 0, 0]),
        (&[-0.0, 0.0], [0, 1, 0, 1]),
        (&[5.0; 100], [0, 99, 0, 99]),
    ];
    for &isa in Isa::available() {
        for (row, expected) in rows {
            let mut which = 0;
            for extreme in [Extreme::Max, Extreme::Min] {
                for ties in [Ties::First, Ties::Last] {
                    let mut out = [7];
                    arg_extreme(
                        &Exec::new(&Pool::new(1), isa),
                        extreme,
                        ties,
                        [1, row.len(), 1].into(),
                        row,
                        &mut out,
                    )
                    .unwrap();
                    assert_eq!(out[0], expected[which], "{row:?} {extreme:?} {ties:?}");
                    // The same row as 131 columns of two items.
                    let inner = 131;
                    let x: Vec<f32> =
                        [row, row].concat().iter().flat_map(|&x| vec![x; inner]).collect();
                    let mut out = vec![7; 2 * inner];
                    let dims = [2, row.len(), inner];
                    arg_extreme(
                        &Exec::new(&Pool::new(3), isa),
                        extreme,
                        ties,
                        dims.into(),
                        &x,
                        &mut out,
                    )
                    .unwrap();
                    assert!(
                        out.iter().all(|&i| i == expected[which]),
                        "{row:?} {extreme:?} {ties:?}"
                    );
                    // The same row again and again, between others.
                    let other: Vec<f32> = (0..row.len()).map(|i| i as f32).collect();
                    let x = [row, &other[..], row].concat().repeat(67);
                    let mut out = vec![7; 201];
                    let dims = [out.len(), row.len(), 1];
                    arg_extreme(
                        &Exec::new(&Pool::new(3), isa),
                        extreme,
                        ties,
                        dims.into(),
                        &x,
                        &mut out,
                    )
                    .unwrap();
                    let last = if extreme == Extreme::Max { row.len() as i64 - 1 } else { 0 };
                    for (i, found) in out.iter().enumerate() {
                        let expected = if i % 3 == 1 { last } else { expected[which] };
                        assert_eq!(*found, expected, "{row:?} {extreme:?} {ties:?}, row {i}");
                    }
                    which += 1;
                }
            }
        }
    }
    let mut out = [0; 2];
    arg_extreme(
        &Exec::new(&Pool::new(1), Isa::detect()),
        Extreme::Min,
        Ties::First,
        [2, 2, 1].into(),
        &[3u8, 2, 0, 1],
        &mut out,
    )
    .unwrap();
    assert_eq!(out, [1, 0]);
}
