//! Compares layer normalization with its definition in f64, on each instruction set.

use half::{bf16, f16};
use sardonyx_simd::number::Arith;
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;

fn values<T: Number>(n: usize, seed: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f64((((i + seed) * 29 % 83) as f64 - 40.0) * 0.125)).collect()
}

/// Optional operands of a call.
#[derive(Clone, Copy, Debug)]
struct Case {
    center: bool,
    residual: bool,
    bias: bool,
    /// Number of rows of scale and bias.
    parameters: usize,
}

struct Found<T> {
    y: Vec<T>,
    sum: Vec<T>,
    means: Vec<f32>,
    inverses: Vec<f32>,
}

/// Normalizes by the definition, one element after the other, in f64. The sum with the residual is
/// rounded to the element type, as in the kernel.
fn naive<T: Number>(
    case: Case,
    width: usize,
    epsilon: f64,
    [x, residual, scale, bias]: [&[T]; 4],
) -> (Vec<f64>, Vec<T>, Vec<f64>, Vec<f64>) {
    let (mut y, mut sums, mut means, mut inverses) = (vec![], vec![], vec![], vec![]);
    for start in (0..x.len()).step_by(width.max(1)) {
        let sum = |i: usize| {
            if case.residual {
                T::from_real(x[i].to_real().add(residual[i].to_real()))
            } else {
                x[i]
            }
        };
        let row: Vec<T> = (start..start + width).map(sum).collect();
        let n = width as f64;
        let mean = if case.center { row.iter().map(|s| s.to_f64()).sum::<f64>() / n } else { 0.0 };
        let squares: f64 = row.iter().map(|s| (s.to_f64() - mean).powi(2)).sum();
        let inverse = 1.0 / (squares / n + epsilon).sqrt();
        for (i, s) in row.iter().enumerate() {
            let at = start / width % case.parameters * width + i;
            let shift = if case.bias { bias[at].to_f64() } else { 0.0 };
            y.push((s.to_f64() - mean) * inverse * scale[at].to_f64() + shift);
        }
        sums.extend(row);
        means.push(mean);
        inverses.push(inverse);
    }
    (y, sums, means, inverses)
}

fn run_case<T: RowNorm>(
    exec: &Exec<'_>,
    case: Case,
    [count, width]: [usize; 2],
    epsilon: f64,
    [x, residual, scale, bias]: [&[T]; 4],
) -> Found<T> {
    let len = x.len();
    let (mut y, mut sum) = (vec![T::ONE; len], vec![T::ONE; len]);
    let (mut means, mut inverses) = (vec![7.0; count], vec![7.0; count]);
    let (residual, bias) = (case.residual.then_some(residual), case.bias.then_some(bias));
    if case.center {
        layer_norm(
            exec,
            [count, width].into(),
            RowInputs { x, residual, scale, epsilon },
            bias,
            RowOutputs {
                y: &mut y,
                sum: Some(&mut sum),
                means: Some(&mut means),
                inverse_deviations: Some(&mut inverses),
            },
        )
        .unwrap();
        // Optional outputs do not change the result.
        let mut again = vec![T::ONE; len];
        layer_norm(
            exec,
            [count, width].into(),
            RowInputs { x, residual, scale, epsilon },
            bias,
            RowOutputs { y: &mut again, sum: None, means: None, inverse_deviations: None },
        )
        .unwrap();
        let bits = |y: &[T]| y.iter().map(|y| y.to_f64().to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&y), bits(&again));
    } else {
        rms_norm(
            exec,
            [count, width].into(),
            RowInputs { x, residual, scale, epsilon },
            &mut y,
            Some(&mut sum),
        )
        .unwrap();
    }
    Found { y, sum, means, inverses }
}

fn cases() -> impl Iterator<Item = Case> {
    let all = [false, true];
    let pairs = all.into_iter().flat_map(move |center| all.map(|residual| (center, residual)));
    pairs.flat_map(move |(center, residual)| {
        [(false, 1), (true, 1), (true, 3)].map(|(bias, parameters)| Case {
            center,
            residual,
            bias: bias && center,
            parameters,
        })
    })
}

/// Compares results with the definition, up to `factor` units in the last place of the largest
/// term; `eps` is that of the type computed in.
fn check<T: RowNorm>(eps: f64, factor: f64) {
    let pool = Pool::new(2);
    for &isa in Isa::available() {
        for [count, width] in [
            [3, 1],
            [4, 7],
            [3, 16],
            [2, 63],
            [3, 129],
            [1, 1000],
            [9, 771],
            [70, 512],
            [2, 9001],
            [0, 5],
            [3, 0],
        ] {
            for case in cases() {
                let (x, residual) = (values::<T>(count * width, 3), values::<T>(count * width, 50));
                let (scale, bias) = (
                    values::<T>(width * case.parameters, 11),
                    values::<T>(width * case.parameters, 17),
                );
                let inputs = [&x[..], &residual, &scale, &bias];
                let found = run_case(&Exec::new(&pool, isa), case, [count, width], 1e-3, inputs);
                let (y, sum, means, inverses) = naive(case, width, 1e-3, inputs);
                assert_eq!(found.sum, sum, "{isa:?} {case:?} [{count}, {width}]");
                for (i, (found, expected)) in found.y.iter().zip(&y).enumerate() {
                    // Normalised values are at most sqrt(width), scales and shifts at most 5.3.
                    let bound = factor * eps * (5.3 * (width as f64).sqrt() + expected.abs());
                    let error = (found.to_f64() - expected).abs();
                    assert!(
                        error <= bound,
                        "{isa:?} {case:?} [{count}, {width}] at {i}: {found:?}, not {expected}"
                    );
                }
                if case.center && width > 0 {
                    for (found, expected) in
                        found.means.iter().zip(&means).chain(found.inverses.iter().zip(&inverses))
                    {
                        let eps = eps.max(f64::from(f32::EPSILON));
                        let error = (f64::from(*found) - expected).abs();
                        assert!(error <= 8.0 * eps * expected.abs().max(6.0), "{found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_against_their_definition() {
    check::<f32>(f64::from(f32::EPSILON), 2.0);
    check::<f64>(f64::EPSILON, 4.0);
    check::<f16>(2f64.powi(-10), 1.0);
    check::<bf16>(2f64.powi(-7), 1.0);
}

#[test]
fn nothing_has_no_mean() {
    let (mut means, mut inverses) = ([0.0; 2], [0.0; 2]);
    layer_norm::<f32>(
        &Exec::new(&Pool::new(1), Isa::detect()),
        [2, 0].into(),
        RowInputs { x: &[], residual: None, scale: &[], epsilon: 1e-5 },
        None,
        RowOutputs {
            y: &mut [],
            sum: None,
            means: Some(&mut means),
            inverse_deviations: Some(&mut inverses),
        },
    )
    .unwrap();
    assert!(means.iter().chain(&inverses).all(|value| value.is_nan()));
}

#[test]
fn what_is_no_number_spoils_its_own_row_only() {
    for &isa in Isa::available() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 16, 36] {
                let mut x: Vec<f32> = values(3 * 37, 0);
                x[37 + at] = bad;
                let scale = vec![1.0; 37];
                let mut y = vec![0.0; x.len()];
                layer_norm(
                    &Exec::new(&Pool::new(1), isa),
                    [3, 37].into(),
                    RowInputs { x: &x, residual: None, scale: &scale, epsilon: 1e-5 },
                    None,
                    RowOutputs { y: &mut y, sum: None, means: None, inverse_deviations: None },
                )
                .unwrap();
                for (row, y) in y.chunks(37).enumerate() {
                    let nans = y.iter().filter(|y| y.is_nan()).count();
                    assert_eq!(nans, if row == 1 { 37 } else { 0 }, "{isa:?} {bad} {at}");
                }
            }
        }
    }
}

#[test]
fn a_large_offset_leaves_the_variance() {
    for &isa in Isa::available() {
        let x: Vec<f32> = (0..512).map(|i| 10_000.0 + (i % 2) as f32).collect();
        let (scale, mut y) = (vec![1.0; 512], vec![0.0; 512]);
        layer_norm(
            &Exec::new(&Pool::new(1), isa),
            [1, 512].into(),
            RowInputs { x: &x, residual: None, scale: &scale, epsilon: 0.0 },
            None,
            RowOutputs { y: &mut y, sum: None, means: None, inverse_deviations: None },
        )
        .unwrap();
        assert!(y.iter().all(|y| (y.abs() - 1.0).abs() <= 2.0 * f32::EPSILON), "{isa:?}");
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let (count, width) = (301, 257);
    let (x, residual) = (values::<f32>(count * width, 3), values(count * width, 8));
    let (scale, bias) = (values(width, 1), values(width, 2));
    for &isa in Isa::available() {
        for case in cases().filter(|case| case.parameters == 1) {
            let bits = |threads| {
                let inputs = [&x[..], &residual, &scale, &bias];
                let pool = Pool::new(threads);
                let found = run_case(&Exec::new(&pool, isa), case, [count, width], 1e-5, inputs);
                found.y.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
            };
            assert!(bits(1) == bits(3), "{isa:?} {case:?}");
        }
    }
}
