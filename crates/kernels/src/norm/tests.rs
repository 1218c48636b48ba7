//! Compares normalizations with their definitions in f64.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;

fn values<T: Number>(n: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f64(((i * 29 % 83) as f64 - 40.0) * 0.125)).collect()
}

#[track_caller]
fn close<T: Number>(found: T, expected: f64, tolerance: f64) {
    let found = found.to_f64();
    let error = (found - expected).abs();
    assert!(error <= tolerance * expected.abs().max(0.1), "{found}, not {expected}");
}

fn check_scale_shift<T: Number<Wide = R, Real = R>, R: Math>(tolerance: f64) {
    for &isa in Isa::available() {
        for [batch, channels, inner] in
            [[2, 3, 35], [5, 40, 1], [1, 1, 1], [0, 3, 4], [3, 2, 0], [2, 50, 900]]
        {
            let x: Vec<T> = values(batch * channels * inner);
            let parameter = |k: f64| -> Vec<f32> {
                (0..channels).map(|c| 0.5 + (c as f32) * k as f32).collect()
            };
            let (gamma, beta, mean, variance) =
                (parameter(0.1), parameter(-0.2), parameter(0.05), parameter(0.3));
            let (mut scale, mut shift) = (vec![R::ZERO; channels], vec![R::ZERO; channels]);
            fold_batch_norm(&gamma, &beta, &mean, &variance, 1e-5, &mut scale, &mut shift);
            let mut y = vec![T::ONE; x.len()];
            scale_shift(&Exec::new(&Pool::new(2), isa), inner, &scale, &shift, &x, &mut y).unwrap();
            let mut in_place = x.clone();
            scale_shift_in_place(
                &Exec::new(&Pool::new(1), isa),
                inner,
                &scale,
                &shift,
                &mut in_place,
            )
            .unwrap();
            assert_eq!(y, in_place);
            for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                let c = i / inner % channels;
                let [gamma, beta, mean, variance] =
                    [&gamma, &beta, &mean, &variance].map(|p| f64::from(p[c]));
                let expected = (x.to_f64() - mean) / (variance + 1e-5).sqrt() * gamma + beta;
                close(*y, expected, tolerance);
            }
        }
    }
}

#[test]
fn batch_normalisation() {
    check_scale_shift::<f32, _>(2e-5);
    check_scale_shift::<f64, _>(1e-12);
    check_scale_shift::<f16, _>(2e-2);
    check_scale_shift::<bf16, _>(1e-1);
}

fn check_local<T: Number>(tolerance: f64) {
    for &isa in Isa::available() {
        for ([batch, channels, inner], size) in [
            ([2, 7, 30], 5),
            ([1, 3, 600], 2),
            ([2, 4, 1], 3),
            ([1, 2, 9], 7),
            ([1, 5, 3], 1),
            ([0, 2, 2], 3),
        ] {
            for beta in [0.75, 0.5, 1.0, 0.6] {
                let x: Vec<T> = values(batch * channels * inner);
                let mut y = vec![T::ONE; x.len()];
                local_response_norm(
                    &Exec::new(&Pool::new(2), isa),
                    [batch, channels, inner].into(),
                    LocalResponse { size, alpha: 0.5, beta, bias: 1.5 },
                    &x,
                    &mut y,
                )
                .unwrap();
                for (i, y) in y.iter().enumerate() {
                    let (plane, c, at) = (i / inner / channels, i / inner % channels, i % inner);
                    let low = c as isize - (size as isize - 1) / 2;
                    let squares: f64 = (low..low + size as isize)
                        .filter(|c| (0..channels as isize).contains(c))
                        .map(|c| x[(plane * channels + c as usize) * inner + at].to_f64().powi(2))
                        .sum();
                    let base = 1.5 + 0.5 / size as f64 * squares;
                    close(*y, x[i].to_f64() / base.powf(f64::from(beta)), tolerance);
                }
            }
        }
    }
}

/// Normalizes over a window so much larger than the image that the sum of squares vanishes in the
/// mean.
#[test]
fn a_local_response_to_more_channels_than_there_are() {
    for &isa in Isa::available() {
        let (x, mut y) = ([1.0f32, 2.0, 3.0], [0.0; 3]);
        let response = LocalResponse { size: i64::MAX as usize, alpha: 0.5, beta: 1.0, bias: 2.0 };
        local_response_norm(&Exec::new(&Pool::new(1), isa), [1, 3, 1].into(), response, &x, &mut y)
            .unwrap();
        assert_eq!(y, [0.5, 1.0, 1.5]);
    }
}

#[test]
fn local_responses() {
    check_local::<f32>(1e-6);
    check_local::<f64>(1e-7); // alpha and beta come as f32
    check_local::<f16>(2e-3);
    check_local::<bf16>(1e-2);
}

fn check_rows<T: Number<Wide = R, Real = R>, R: Math>(tolerance: f64) {
    for &isa in Isa::available() {
        for (count, len) in [(3, 7), (1, 1000), (6, 1), (0, 5), (40, 768)] {
            let x: Vec<T> = values(count * len);
            let parameters = |n: usize, k: f64| -> Vec<R> {
                (0..n).map(|i| Number::from_f64(0.75 + (i % 9) as f64 * k)).collect()
            };
            let (scale, shift) = (parameters(len, 0.25), parameters(len, -0.5));
            let (row_scale, row_shift) = (parameters(3, 0.25), parameters(3, -0.5));
            for statistics in [Statistics::MeanVariance, Statistics::RootMeanSquare] {
                for affine in [
                    Affine::None,
                    Affine::Elements(&scale, None),
                    Affine::Elements(&scale, Some(&shift)),
                    Affine::Rows(&row_scale, &row_shift),
                    Affine::Groups(1, &scale, &shift),
                    Affine::Groups(len, &row_scale, &row_shift),
                ] {
                    let mut y = vec![T::ONE; x.len()];
                    let (mut means, mut inverses) = (vec![R::ONE; count], vec![R::ONE; count]);
                    normalize_rows(
                        &Exec::new(&Pool::new(2), isa),
                        RowNormalization { statistics, len, epsilon: 1e-3, affine },
                        &x,
                        &mut y,
                        Some(&mut means),
                        Some(&mut inverses),
                    )
                    .unwrap();
                    for row in 0..count {
                        let xs: Vec<f64> =
                            x[row * len..][..len].iter().map(|x| x.to_f64()).collect();
                        let mean = match statistics {
                            Statistics::MeanVariance => xs.iter().sum::<f64>() / len as f64,
                            Statistics::RootMeanSquare => 0.0,
                        };
                        let squares: f64 = xs.iter().map(|x| (x - mean).powi(2)).sum();
                        let inverse = 1.0 / (squares / len as f64 + 1e-3).sqrt();
                        close(means[row], mean, 1e-5);
                        close(inverses[row], inverse, 1e-5);
                        for (i, x) in xs.iter().enumerate() {
                            let normal = (x - mean) * inverse;
                            let expected = match affine {
                                Affine::None => normal,
                                Affine::Elements(scale, None) => normal * scale[i].to_f64(),
                                Affine::Elements(scale, Some(shift)) => {
                                    normal * scale[i].to_f64() + shift[i].to_f64()
                                }
                                Affine::Groups(1, scale, shift) if len > 1 => {
                                    normal * scale[i].to_f64() + shift[i].to_f64()
                                }
                                Affine::Groups(_, scale, shift) => {
                                    let row = row % scale.len();
                                    normal * scale[row].to_f64() + shift[row].to_f64()
                                }
                                Affine::Rows(scale, shift) => {
                                    normal * scale[row % 3].to_f64() + shift[row % 3].to_f64()
                                }
                            };
                            close(y[row * len + i], expected, tolerance);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn rows_by_their_own_statistics() {
    check_rows::<f32, _>(2e-5);
    check_rows::<f64, _>(1e-12);
    check_rows::<f16, _>(1e-2);
    check_rows::<bf16, _>(5e-2);
}

fn check_lp<T: Number>(eps: f64) {
    for &isa in Isa::available() {
        for dims in [
            [3, 7, 1],
            [2, 5, 3],
            [1, 300, 65],
            [4, 1000, 1],
            [2, 9, 128],
            [0, 3, 2],
            [2, 0, 3],
            [1, 1, 2],
        ] {
            let [_, axis, inner] = dims;
            let mut x: Vec<T> = values(dims.iter().product());
            // A row or column of zeros.
            x.iter_mut().step_by(inner.max(1)).take(axis).for_each(|x| *x = T::ZERO);
            for norm in [Norm::L1, Norm::L2] {
                let mut y = vec![T::ONE; x.len()];
                lp_norm(&Exec::new(&Pool::new(2), isa), norm, dims.into(), &x, &mut y).unwrap();
                for (at, y) in y.iter().enumerate() {
                    let first = at / inner / axis * axis * inner + at % inner;
                    let others = (0..axis).map(|a| x[first + a * inner].to_f64());
                    let total: f64 = match norm {
                        Norm::L1 => others.map(f64::abs).sum(),
                        Norm::L2 => others.map(|x| x * x).sum::<f64>().sqrt(),
                    };
                    let expected = if total == 0.0 { 0.0 } else { x[at].to_f64() / total };
                    let error = (y.to_f64() - expected).abs();
                    // Halves are subnormal near zero.
                    assert!(error <= 4.0 * eps * expected.abs() + eps * 1e-4, "{isa:?} {dims:?}");
                }
            }
        }
    }
}

#[test]
fn division_by_norms() {
    check_lp::<f32>(f64::from(f32::EPSILON));
    check_lp::<f64>(f64::EPSILON);
    check_lp::<f16>(2f64.powi(-10));
    check_lp::<bf16>(2f64.powi(-7));
}

#[test]
fn a_large_offset_does_not_ruin_the_variance() {
    let x: Vec<f32> = (0..512).map(|i| 10_000.0 + (i % 2) as f32).collect();
    let mut y = vec![0.0; 512];
    normalize_rows(
        &Exec::new(&Pool::new(1), Isa::detect()),
        RowNormalization {
            statistics: Statistics::MeanVariance,
            len: 512,
            epsilon: 0.0,
            affine: Affine::None,
        },
        &x,
        &mut y,
        None,
        None,
    )
    .unwrap();
    assert!(y.iter().all(|y| (y.abs() - 1.0).abs() < 1e-5));
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let x: Vec<f32> = values(8 * 64 * 512);
    for &isa in Isa::available() {
        let bits = |threads| {
            let pool = Pool::new(threads);
            let mut y = vec![0.0; x.len()];
            let mut all = Vec::new();
            local_response_norm(
                &Exec::new(&pool, isa),
                [8, 64, 512].into(),
                LocalResponse { size: 5, alpha: 1e-4, beta: 0.6, bias: 1.0 },
                &x,
                &mut y,
            )
            .unwrap();
            all.extend(y.iter().map(|y| y.to_bits()));
            let none = Affine::None;
            normalize_rows(
                &Exec::new(&pool, isa),
                RowNormalization {
                    statistics: Statistics::MeanVariance,
                    len: 512,
                    epsilon: 1e-5,
                    affine: none,
                },
                &x,
                &mut y,
                None,
                None,
            )
            .unwrap();
            all.extend(y.iter().map(|y| y.to_bits()));
            all
        };
        let one = bits(1);
        assert!(one == bits(2) && one == bits(3));
    }
}
