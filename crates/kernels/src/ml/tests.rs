use super::*;
use crate::softmax::softmax;
use sardonyx_simd::Isa;

/// Calls `check` with each instruction set, on one thread and on two.
fn each_exec(check: impl Fn(&Exec<'_>)) {
    for &isa in Isa::available() {
        for threads in [1, 2] {
            check(&Exec::new(&Pool::new(threads), isa));
        }
    }
}

/// Returns numbers around 0 with a long period.
fn numbers(len: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 37 + i / 11) % 41) as f64 / 8.0 - 2.0).collect()
}

/// Rounds reals to f32.
fn to_f32s(reals: &[f64]) -> Vec<f32> {
    reals.iter().map(|x| *x as f32).collect()
}

#[test]
fn features_are_computed_one_by_one() {
    each_exec(|exec| {
        for (rows, width) in [(3, 4), (0, 3), (2, 0), (3000, 17)] {
            let reals = numbers(rows * width);
            let (x, offsets) = (to_f32s(&reals), to_f32s(&numbers(width)));
            let mut y = vec![9.0; x.len()];
            scale(exec, width, FeatureScale { offsets: &offsets, factors: &[3.0] }, &x, &mut y)
                .unwrap();
            for (at, y) in y.iter().enumerate() {
                assert_eq!(*y, (x[at] - offsets[at % width]) * 3.0);
            }
            let mut z = vec![9.0; x.len()];
            binarize(exec, 0.5, &x, &mut z).unwrap();
            assert!(z.iter().zip(&x).all(|(z, x)| *z == f32::from(u8::from(*x > 0.5))));
            impute(exec, width, -2.0, &offsets, &x, &mut z).unwrap();
            for (at, z) in z.iter().enumerate() {
                assert_eq!(*z, if x[at] == -2.0 { offsets[at % width] } else { x[at] });
            }
            for norm in [RowNorm::Max, RowNorm::L1, RowNorm::L2] {
                normalize(exec, norm, width, &reals, &mut y).unwrap();
                for (at, y) in y.iter().enumerate() {
                    let row = &reals[at / width * width..][..width];
                    let norm: f64 = match norm {
                        RowNorm::Max => row.iter().fold(0.0, |most, x| f64::max(most, x.abs())),
                        RowNorm::L1 => row.iter().map(|x| x.abs()).sum(),
                        RowNorm::L2 => row.iter().map(|x| x * x).sum::<f64>().sqrt(),
                    };
                    assert_eq!(*y, (reals[at] / norm.max(1e-30)) as f32);
                }
            }
            let mut wide = vec![9.0; rows * (width + 3)];
            let range = ColumnRange { width: width + 3, start: 1, count: width + 1 };
            place_columns(exec, width, range, &x, &mut wide).unwrap();
            for (at, y) in wide.iter().enumerate() {
                let (row, column) = (at / (width + 3), at % (width + 3));
                let expected = match column {
                    0 => 9.0,
                    _ if column <= width => x[row * width + column - 1],
                    _ if column == width + 1 => 0.0,
                    _ => 9.0,
                };
                assert_eq!(*y, expected);
            }
        }
    });
}

#[test]
fn what_is_missing_may_be_no_number() {
    each_exec(|exec| {
        let mut y = [0.0; 4];
        impute(exec, 2, f64::NAN, &[7.0, 8.0], &[f64::NAN, 1.0, 2.0, -f64::NAN], &mut y).unwrap();
        assert_eq!(y, [7.0, 1.0, 2.0, 8.0]);
        normalize(exec, RowNorm::Max, 2, &[f32::NAN, 1.0], &mut [0.0, 0.0]).unwrap();
        let mut ints = [0; 3];
        impute(exec, 3, i64::MIN, &[5], &[i64::MIN, 1, i64::MAX], &mut ints).unwrap();
        assert_eq!(ints, [5, 1, i64::MAX]);
    });
}

#[test]
fn places_become_elements() {
    each_exec(|exec| {
        let mut y = [9.0; 6];
        one_hot(exec.pool, 2, &[1, 7, 0], &mut y).unwrap();
        assert_eq!(y, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
        let mut y = [0u8; 3];
        look_up(exec.pool, b"abc", &[2, 0, 2], &mut y).unwrap();
        assert_eq!(&y, b"cac");
    });
}

/// Compares short rows, which are computed together, with rows computed alone.
#[test]
fn softmax_of_short_rows_is_that_of_rows() {
    each_exec(|exec| {
        for width in 1..20 {
            let mut scores = to_f32s(&numbers(width * 70));
            scores[0] = f32::NAN;
            scores[2 * width..3 * width].fill(f32::NEG_INFINITY);
            scores[4 * width] = f32::INFINITY;
            let mut expected = vec![0f32; scores.len()];
            softmax(exec, Softmax::Softmax, [70, width, 1].into(), &scores, &mut expected).unwrap();
            post_transform(exec, PostTransform::Softmax, width, &mut scores).unwrap();
            // Compared as text, as NaN does not equal itself.
            assert_eq!(format!("{scores:?}"), format!("{expected:?}"), "{width}");
        }
    });
}

/// Transforms the scores of a row by the definition.
fn transform_row(how: PostTransform, row: &[f64]) -> Vec<f64> {
    match how {
        PostTransform::None => row.to_vec(),
        PostTransform::Softmax => softmax_of(row, false),
        PostTransform::SoftmaxZero => softmax_of(row, true),
        PostTransform::Logistic => row.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        PostTransform::Probit => row.iter().map(|x| probit(*x)).collect(),
    }
}

/// Computes the softmax of a row; where `keeps_zero`, scores near 0 stay near 0.
fn softmax_of(row: &[f64], keeps_zero: bool) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row
        .iter()
        .map(|x| if keeps_zero && x.abs() <= 1e-7 { x * (-most).exp() } else { (x - most).exp() })
        .collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|exp| if sum == 0.0 { 0.5 } else { exp / sum }).collect()
}

#[test]
fn scores_are_transformed() {
    let all = [
        PostTransform::None,
        PostTransform::Softmax,
        PostTransform::SoftmaxZero,
        PostTransform::Logistic,
        PostTransform::Probit,
    ];
    each_exec(|exec| {
        for how in all {
            for (rows, width) in [(1, 1), (2, 3), (5000, 5), (0, 2)] {
                let scores: Vec<f64> =
                    numbers(rows * width).iter().map(|x| x * 0.15 + 0.5).collect();
                let expected: Vec<f64> =
                    scores.chunks(width).flat_map(|row| transform_row(how, row)).collect();
                let (mut double, mut single) = (scores.clone(), to_f32s(&scores));
                post_transform(exec, how, width, &mut double).unwrap();
                post_transform(exec, how, width, &mut single).unwrap();
                for ((double, single), expected) in double.iter().zip(&single).zip(expected) {
                    assert!((double - expected).abs() < 1e-12, "{how:?} {double} {expected}");
                    assert!((f64::from(*single) - expected).abs() < 2e-6, "{how:?} {single}");
                }
            }
        }
        let mut zeros = [0.0f32, 0.0, 1.0, 0.0];
        post_transform(exec, PostTransform::SoftmaxZero, 2, &mut zeros).unwrap();
        assert_eq!(zeros, [0.5, 0.5, 1.0, 0.0]);
        let mut pairs = [0.0, 3.0, 0.0, -1.0];
        mirror(exec, &mut pairs).unwrap();
        assert_eq!(pairs, [-3.0, 3.0, 1.0, -1.0]);
    });
    // The true quantile is 1.2816.
    assert!((probit(0.9) - 1.2816).abs() < 2e-3 && (probit(0.1) + 1.2816).abs() < 2e-3);
    assert_eq!((probit(0.0), probit(0.5), probit(1.0)), (0.0, 0.0, 0.0));
}

#[test]
fn sums_are_products() {
    fn check<T: Score>(exec: &Exec<'_>, tolerance: f64) {
        for (rows, features, sums, pitch) in
            [(3, 5, 2, 2), (200, 33, 9, 9), (4, 3, 1, 2), (2, 0, 2, 2)]
        {
            let of = |reals: Vec<f64>| -> Vec<T> { reals.into_iter().map(T::from_f64).collect() };
            let (x, w, bias) =
                (of(numbers(rows * features)), of(numbers(sums * features)), of(numbers(sums)));
            let mut y = vec![T::ZERO; rows * pitch];
            T::sums(exec, Sums { rows, features, sums, pitch }, &x, &w, &bias, &mut y).unwrap();
            for row in 0..rows {
                for sum in 0..sums {
                    let products = (0..features).map(|at| {
                        x[row * features + at].to_f64() * w[sum * features + at].to_f64()
                    });
                    let expected = bias[sum].to_f64() + products.sum::<f64>();
                    assert!((y[row * pitch + sum].to_f64() - expected).abs() < tolerance);
                }
            }
        }
    }
    each_exec(|exec| {
        check::<f32>(exec, 1e-4);
        check::<f64>(exec, 1e-12);
    });
}

#[test]
fn kernels_of_vectors() {
    let (gamma, coef0) = (0.125f32, 0.5f32);
    let (g, c) = (f64::from(gamma), f64::from(coef0));
    type Naive<'a> = &'a dyn Fn(f64, f64) -> f64;
    let rows: [(KernelFunction, Naive<'_>); 5] = [
        (KernelFunction::Linear, &|dot, _| dot),
        (KernelFunction::Poly { gamma, coef0, degree: 3 }, &|dot, _| (g * dot + c).powi(3)),
        (KernelFunction::Poly { gamma, coef0, degree: -1 }, &|dot, _| 1.0 / (g * dot + c)),
        (KernelFunction::Rbf { gamma }, &|_, distance| (-g * distance).exp()),
        (KernelFunction::Sigmoid { gamma, coef0 }, &|dot, _| (g * dot + c).tanh()),
    ];
    each_exec(|exec| {
        for (kernel, naive) in rows {
            for (rows, features, count) in [(2, 3, 4), (40, 19, 50)] {
                let (x, v) = (numbers(rows * features), numbers(count * features + 5).split_off(5));
                let zeros = vec![0.0; count];
                let mut y = vec![9.0; rows * count];
                let sizes = Sums { rows, features, sums: count, pitch: count };
                similarities(
                    exec,
                    kernel,
                    sizes,
                    &x,
                    SupportVectors { vectors: &v, zeros: &zeros },
                    &mut y,
                )
                .unwrap();
                for (at, y) in y.iter().enumerate() {
                    let x = &x[at / count * features..][..features];
                    let v = &v[at % count * features..][..features];
                    let dot: f64 = x.iter().zip(v).map(|(a, b)| a * b).sum();
                    let distance: f64 = x.iter().zip(v).map(|(a, b)| (a - b) * (a - b)).sum();
                    let expected = naive(dot, distance);
                    let far = (y - expected).abs() / expected.abs().max(1.0);
                    assert!(*y == expected || far < 1e-10, "{kernel:?} {y} {expected}");
                }
            }
        }
    });
}

#[test]
fn pairs_vote() {
    // Classes of 1, 2 and 1 vectors. Rows of coefficients are those against the first and the
    // second other class.
    let pairs = Pairs {
        per_class: &[1, 2, 1],
        coefficients: &[1.0, -1.0, 2.0, 3.0, 0.5, 4.0, -2.0, 1.0],
        constants: &[0.25, 0.0, -1.0],
    };
    let similarities = [1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0];
    each_exec(|exec| {
        let (mut decisions, mut best) = ([0.0; 6], [9; 2]);
        decide(exec, &pairs, &similarities, &mut decisions, &mut best).unwrap();
        // (0, 1): 1 - 2 + 6 + 0.25; (0, 2): 0.5 + 12; (1, 2): 8 - 6 + 4 - 1.
        assert_eq!(decisions, [5.25, 12.5, 5.0, 0.25, 0.0, -1.0]);
        assert_eq!(best, [0, 2]);
        let mut sums = [0.0; 2];
        weigh(exec, &[1.0, 0.0, 2.0, 0.0], -1.0, &similarities, &mut sums).unwrap();
        assert_eq!(sums, [6.0, -1.0]);
    });
}

#[test]
fn probabilities_minimize_the_sum() {
    each_exec(|exec| {
        for classes in [2usize, 3, 6] {
            let count = pair_count(classes);
            let rows = 20;
            let decisions: Vec<f64> = numbers(rows * count);
            let (a, b) = (vec![-1.5f32; count], vec![0.1f32; count]);
            let mut work = vec![0.0; rows * (count + 3 * classes)];
            let mut y = vec![0.0; rows * classes];
            couple(exec, classes, Sigmoids { a: &a, b: &b }, &decisions, &mut work, &mut y)
                .unwrap();
            for (row, p) in y.chunks(classes).enumerate() {
                assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                let mut r = vec![0.0; classes * classes];
                let mut at = row * count;
                for i in 0..classes {
                    for j in i + 1..classes {
                        r[i * classes + j] =
                            1.0 - 1.0 / (1.0 + (1.5 * decisions[at] - 0.1f32 as f64).exp());
                        r[j * classes + i] = 1.0 - r[i * classes + j];
                        at += 1;
                    }
                }
                let sum = |p: &[f64]| -> f64 {
                    let pairs = (0..classes * classes).map(|at| (at / classes, at % classes));
                    let pairs = pairs.filter(|(i, j)| i != j);
                    pairs
                        .map(|(i, j)| {
                            (r[j * classes + i] * p[i] - r[i * classes + j] * p[j]).powi(2)
                        })
                        .sum()
                };
                // No neighbour is much better than the result of the iteration.
                for from in 0..classes {
                    for to in 0..classes {
                        let mut other = p.to_vec();
                        let step = 0.03f64.min(p[from]);
                        other[from] -= step;
                        other[to] += step;
                        assert!(sum(&other) >= sum(p) - 1e-3, "{p:?}");
                    }
                }
            }
        }
    });
}
