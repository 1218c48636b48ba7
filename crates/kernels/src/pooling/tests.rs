//! Compares pooling with loops over each output and each kernel position.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;

pub(crate) struct Case {
    pub(crate) input: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    begin: Vec<usize>,
    end: Vec<usize>,
    /// Outputs beyond those that fit, as in ceil mode.
    extra: usize,
}

fn case(
    input: &[usize],
    kernel: usize,
    stride: usize,
    dilation: usize,
    begin: usize,
    end: usize,
    extra: usize,
) -> Case {
    let rank = input.len();
    Case {
        input: input.to_vec(),
        kernel: vec![kernel; rank],
        strides: vec![stride; rank],
        dilations: vec![dilation; rank],
        begin: vec![begin; rank],
        end: vec![end; rank],
        extra,
    }
}

impl Case {
    pub(crate) fn output(&self) -> Vec<usize> {
        (0..self.input.len())
            .map(|d| {
                let reach = (self.kernel[d] - 1) * self.dilations[d] + 1;
                let room = (self.input[d] + self.begin[d] + self.end[d]).saturating_sub(reach);
                room / self.strides[d] + 1 + self.extra
            })
            .collect()
    }

    pub(crate) fn window<'a>(&'a self, output: &'a [usize]) -> Window<'a> {
        Window {
            input: &self.input,
            output,
            kernel: &self.kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.begin,
            pads_end: &self.end,
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(&[9], 3, 1, 1, 0, 0, 0),
        case(&[9], 3, 2, 1, 1, 1, 0),
        case(&[700], 3, 1, 1, 1, 1, 0),
        case(&[1200], 5, 2, 2, 2, 4, 0),
        case(&[8, 10], 2, 2, 1, 0, 0, 0),
        case(&[13, 17], 3, 2, 1, 1, 1, 0),
        case(&[14, 15], 3, 2, 1, 0, 0, 1),
        case(&[7, 6], 3, 1, 1, 1, 1, 0),
        case(&[11, 12], 3, 3, 2, 2, 1, 0),
        case(&[7, 7], 7, 1, 1, 0, 0, 0),
        case(&[7, 7], 7, 1, 1, 1, 0, 0),
        case(&[1, 1], 3, 1, 1, 1, 1, 0),
        case(&[9, 11], 5, 1, 1, 2, 2, 0),
        case(&[9, 8], 4, 1, 2, 3, 3, 0),
        case(&[20, 20], 13, 1, 1, 6, 6, 0),
        // Windows entirely in padding.
        case(&[2, 3], 1, 1, 1, 2, 2, 0),
        case(&[5, 6, 7], 3, 2, 1, 1, 1, 0),
        case(&[3, 4, 3, 5], 2, 1, 1, 1, 0, 0),
        // More rows than a band, and rows longer than one.
        case(&[150, 30], 3, 1, 1, 1, 1, 0),
        case(&[5000], 5, 2, 3, 6, 7, 0),
        case(&[40, 37], 2, 5, 1, 1, 0, 1),
        case(&[23, 41], 3, 4, 3, 2, 2, 0),
        Case {
            input: vec![11, 90],
            kernel: vec![7, 2],
            strides: vec![1, 3],
            dilations: vec![1, 2],
            begin: vec![3, 0],
            end: vec![3, 1],
            extra: 0,
        },
        Case {
            input: vec![9, 20],
            kernel: vec![1, 5],
            strides: vec![2, 1],
            dilations: vec![1, 3],
            begin: vec![0, 6],
            end: vec![1, 6],
            extra: 0,
        },
    ]
}

/// Returns the offsets of the elements in the window of output `at`, and the divisor with padding.
fn window_of(case: &Case, output: &[usize], at: usize) -> (Vec<usize>, usize) {
    let rank = case.input.len();
    let mut o = vec![0; rank];
    let mut plane = at;
    for d in (0..rank).rev() {
        o[d] = plane % output[d];
        plane /= output[d];
    }
    let taps: usize = case.kernel.iter().product();
    let (mut inside, mut padded) = (Vec::new(), 0);
    for tap in 0..taps {
        let mut rest = tap;
        let mut k = vec![0; rank];
        for d in (0..rank).rev() {
            k[d] = rest % case.kernel[d];
            rest /= case.kernel[d];
        }
        let at: Vec<isize> = (0..rank)
            .map(|d| {
                (o[d] * case.strides[d] + k[d] * case.dilations[d]) as isize
                    - case.begin[d] as isize
            })
            .collect();
        if (0..rank).all(|d| at[d] < (case.input[d] + case.end[d]) as isize) {
            padded += 1;
        }
        if (0..rank).all(|d| at[d] >= 0 && at[d] < case.input[d] as isize) {
            inside.push((0..rank).fold(plane, |offset, d| offset * case.input[d] + at[d] as usize));
        }
    }
    (inside, padded)
}

fn check<T: Number>(tolerance: f64) {
    for case in cases() {
        let output = case.output();
        let window = case.window(&output);
        let planes = 3;
        let n = planes * case.input.iter().product::<usize>();
        let x: Vec<T> = (0..n).map(|i| T::from_f64((i * 37 % 101) as f64 - 60.0)).collect();
        let outputs = planes * output.iter().product::<usize>();
        let windows: Vec<_> = (0..outputs).map(|at| window_of(&case, &output, at)).collect();
        for &isa in Isa::available() {
            let pool = Pool::new(2);
            let mut y = vec![T::ONE; outputs];
            max_pool(&Exec::new(&pool, isa), planes, &window, &x, &mut y).unwrap();
            for (y, (inside, _)) in y.iter().zip(&windows) {
                let max =
                    inside.iter().fold(T::LOWEST, |max, &i| if x[i] > max { x[i] } else { max });
                assert_eq!(*y, max);
            }
            let mut indices = vec![7; outputs];
            max_pool_with_indices(
                &Exec::new(&pool, isa),
                planes,
                &window,
                Order::RowMajor,
                &x,
                &mut y,
                &mut indices,
            )
            .unwrap();
            for ((y, (inside, _)), index) in y.iter().zip(&windows).zip(&indices) {
                let first = inside.iter().find(|&&i| x[i] == *y).map_or(-1, |&i| i as i64);
                assert_eq!(*index, first);
            }
            if !T::IS_FLOAT {
                continue;
            }
            for divisor in [Divisor::Inside, Divisor::WithPadding] {
                average_pool(&Exec::new(&pool, isa), planes, &window, divisor, &x, &mut y).unwrap();
                for (y, (inside, padded)) in y.iter().zip(&windows) {
                    let sum: f64 = inside.iter().map(|&i| x[i].to_f64()).sum();
                    let count = match divisor {
                        Divisor::Inside => inside.len(),
                        Divisor::WithPadding => *padded,
                    };
                    close(y.to_f64(), sum / count as f64, tolerance);
                }
            }
            for p in [1, 2, 3, 17] {
                let mut scratch = vec![T::Wide::LOWEST; lp_pool_scratch(1, &window)];
                lp_pool(&Exec::new(&pool, isa), planes, &window, p, &x, &mut scratch, &mut y)
                    .unwrap();
                for (y, (inside, _)) in y.iter().zip(&windows) {
                    let sum: f64 = inside.iter().map(|&i| x[i].to_f64().abs().powi(p as i32)).sum();
                    let norm = T::from_f64(sum.powf(1.0 / f64::from(p))).to_f64();
                    close(y.to_f64(), norm, tolerance);
                }
            }
        }
    }
}

#[track_caller]
fn close(found: f64, expected: f64, tolerance: f64) {
    let near = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
    assert!(
        near || found == expected || (found.is_nan() && expected.is_nan()),
        "{found}, not {expected}"
    );
}

/// Compares pooling of many planes, where narrow ones are pooled side by side, with pooling of a
/// few.
#[test]
fn planes_side_by_side_give_the_same_bits() {
    let planes = 37;
    let mut narrow = 0;
    for case in cases() {
        let output = case.output();
        let window = case.window(&output);
        let (inputs, outputs) =
            (case.input.iter().product::<usize>(), output.iter().product::<usize>());
        narrow += usize::from(narrow::suits(&window, planes));
        let x: Vec<f32> = (0..planes * inputs).map(|i| (i as f32 * 0.71).sin()).collect();
        for &isa in Isa::available() {
            let pools = [1, 3].map(Pool::new);
            let pool_all = |at_once: usize, pool: &Pool| {
                let exec = Exec::new(pool, isa);
                let (mut max, mut mean) =
                    (vec![9.0; planes * outputs], vec![9.0; planes * outputs]);
                for first in (0..planes).step_by(at_once) {
                    let count = at_once.min(planes - first);
                    let x = &x[first * inputs..][..count * inputs];
                    let own = first * outputs..(first + count) * outputs;
                    max_pool(&exec, count, &window, x, &mut max[own.clone()]).unwrap();
                    let divisor = Divisor::WithPadding;
                    average_pool(&exec, count, &window, divisor, x, &mut mean[own]).unwrap();
                }
                max.into_iter().chain(mean).map(f32::to_bits).collect::<Vec<u32>>()
            };
            let expected = pool_all(3, &pools[0]);
            for pool in &pools {
                assert!(pool_all(planes, pool) == expected, "{:?} {isa:?}", case.input);
            }
        }
    }
    assert!(narrow > 5, "{narrow} cases are narrow");
}

#[test]
fn every_type() {
    check::<f32>(1e-6);
    check::<f64>(1e-13);
    check::<f16>(1e-3);
    check::<bf16>(1e-2);
    check::<i8>(0.0);
    check::<u8>(0.0);
}

#[test]
fn indices_count_planes_and_either_order() {
    let window = Window {
        input: &[2, 3],
        output: &[1, 1],
        kernel: &[2, 3],
        strides: &[1, 1],
        dilations: &[1, 1],
        pads_begin: &[0, 0],
        pads_end: &[0, 0],
    };
    let x = [0.0f32, 0.0, 5.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 9.0, 0.0];
    for (order, expected) in [(Order::RowMajor, [2, 10]), (Order::ColumnMajor, [4, 9])] {
        let (mut y, mut indices) = ([0.0; 2], [0; 2]);
        max_pool_with_indices(
            &Exec::new(&Pool::new(1), Isa::detect()),
            2,
            &window,
            order,
            &x,
            &mut y,
            &mut indices,
        )
        .unwrap();
        assert_eq!((y, indices), ([5.0, 9.0], expected));
    }
}

#[test]
fn indices_of_nan_and_of_the_lowest_value() {
    let window = Window {
        input: &[3],
        output: &[1],
        kernel: &[3],
        strides: &[1],
        dilations: &[1],
        pads_begin: &[0],
        pads_end: &[0],
    };
    let (nan, low) = (f32::NAN, f32::NEG_INFINITY);
    let x = [1.0, nan, nan, nan, 2.0, 3.0, low, low, low, low, low, 0.0, 4.0, 4.0, nan];
    for &isa in Isa::available() {
        let (mut y, mut indices) = ([0.0; 5], [0; 5]);
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, isa);
        max_pool_with_indices(&exec, 5, &window, Order::RowMajor, &x, &mut y, &mut indices)
            .unwrap();
        assert_eq!(indices, [1, 3, 6, 11, 14]);
        assert!(y[0].is_nan() && y[1].is_nan() && y[2..4] == [low, 0.0] && y[4].is_nan());
    }
}

#[test]
fn nan_wins_and_threads_do_not_show() {
    let x: Vec<f32> = (0..40 * 64 * 64)
        .map(|i| if i == 5001 { f32::NAN } else { (i as f32 * 0.71).sin() })
        .collect();
    let window = Window {
        input: &[64, 64],
        output: &[32, 32],
        kernel: &[3, 3],
        strides: &[2, 2],
        dilations: &[1, 1],
        pads_begin: &[1, 1],
        pads_end: &[1, 1],
    };
    for &isa in Isa::available() {
        let bits = |threads| {
            let (mut max, mut mean) = (vec![0.0; 40 * 32 * 32], vec![0.0; 40 * 32 * 32]);
            let pool = Pool::new(threads);
            max_pool(&Exec::new(&pool, isa), 40, &window, &x, &mut max).unwrap();
            average_pool(&Exec::new(&pool, isa), 40, &window, Divisor::Inside, &x, &mut mean)
                .unwrap();
            assert_eq!(max.iter().filter(|y| y.is_nan()).count(), 2);
            max.into_iter().chain(mean).map(f32::to_bits).collect::<Vec<_>>()
        };
        let one = bits(1);
        assert!(one == bits(2) && one == bits(3));
    }
}
