//! Compares each operation with its definition in f64, on each instruction set and for several
//! numbers of threads.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;
use sardonyx_simd::vecmath::erf_f64;

/// Returns all operations, with their definitions.
fn operations() -> Vec<(Unary, fn(f64) -> f64)> {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    fn softplus(x: f64) -> f64 {
        if x > 40.0 { x } else { x.exp().ln_1p() }
    }
    vec![
        (Unary::Abs, f64::abs),
        (Unary::Neg, |x| -x),
        (Unary::Ceil, f64::ceil),
        (Unary::Floor, f64::floor),
        (Unary::Round, f64::round_ties_even),
        (Unary::Sign, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
        (Unary::Sqrt, f64::sqrt),
        (Unary::Reciprocal, |x| 1.0 / x),
        (Unary::Square, |x| x * x),
        (Unary::Exp, f64::exp),
        (Unary::Log, f64::ln),
        (Unary::Sin, f64::sin),
        (Unary::Cos, f64::cos),
        (Unary::Tan, f64::tan),
        (Unary::Asin, f64::asin),
        (Unary::Acos, f64::acos),
        (Unary::Atan, f64::atan),
        (Unary::Sinh, f64::sinh),
        (Unary::Cosh, f64::cosh),
        (Unary::Tanh, f64::tanh),
        (Unary::Asinh, f64::asinh),
        (Unary::Acosh, f64::acosh),
        // The standard library's function loses digits near -1.
        (Unary::Atanh, |x| 0.5 * (x.ln_1p() - (-x).ln_1p())),
        (Unary::Erf, erf_f64),
        (Unary::Sigmoid, sigmoid),
        (Unary::Relu, |x| if x < 0.0 { 0.0 } else { x }),
        (Unary::Softplus, softplus),
        (Unary::Softsign, |x| x / (1.0 + x.abs())),
        (Unary::Silu, |x| x * sigmoid(x)),
        (Unary::Gelu, |x| 0.5 * x * (1.0 + erf_f64(x / 2f64.sqrt()))),
        (Unary::GeluTanh, |x| {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }),
        (Unary::Mish, |x| x * softplus(x).tanh()),
        (Unary::HardSwish, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        (Unary::LeakyRelu { alpha: 0.25 }, |x| if x < 0.0 { 0.25 * x } else { x }),
        (Unary::Elu { alpha: 0.5 }, |x| if x < 0.0 { 0.5 * x.exp_m1() } else { x }),
        (Unary::Selu { alpha: 1.5, gamma: 2.0 }, |x| {
            2.0 * if x < 0.0 { 1.5 * x.exp_m1() } else { x }
        }),
        (Unary::Celu { alpha: 2.0 }, |x| if x < 0.0 { 2.0 * (x / 2.0).exp_m1() } else { x }),
        (Unary::HardSigmoid { alpha: 0.25, beta: 0.5 }, |x| (0.25 * x + 0.5).clamp(0.0, 1.0)),
        (Unary::Swish { alpha: 0.5 }, |x| x * sigmoid(0.5 * x)),
        (Unary::ThresholdedRelu { alpha: 1.0 }, |x| {
            // NaN, too, gives 0: both comparisons of the definition are false.
            if x > 1.0 { x } else { 0.0 }
        }),
        (Unary::Shrink { lambda: 0.5, bias: 0.25 }, |x| {
            if x < -0.5 {
                x + 0.25
            } else if x > 0.5 {
                x - 0.25
            } else {
                0.0
            }
        }),
    ]
}

fn inputs() -> Vec<f64> {
    let mut xs: Vec<f64> = (-4000..4000).map(|i| f64::from(i) * 0.0037).collect();
    xs.extend([0.0, -0.0, 0.5, 1.5, 2.5, 9000.0, -9000.0, 1e-20, -1e-20, 80.0, -80.0]);
    xs.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    xs
}

fn check<T: UnaryElement>(tolerance: f64, absolute: f64, lowest: f64) {
    let xs: Vec<T> =
        inputs().into_iter().filter(|x| x.is_nan() || *x >= lowest).map(T::from_f64).collect();
    let pool = Pool::new(1);
    for &isa in Isa::available() {
        for (op, exact) in operations() {
            let mut ys = vec![T::ONE; xs.len()];
            unary(&Exec::new(&pool, isa), op, &xs, &mut ys).unwrap();
            for (x, y) in xs.iter().zip(&ys) {
                let (x, y) = (x.to_f64(), y.to_f64());
                let expected = T::from_f64(exact(x)).to_f64();
                let near = (y - expected).abs() <= absolute + tolerance * expected.abs();
                let same = y == expected || near || (y.is_nan() && expected.is_nan());
                // Infinity times zero is left open: the definitions are products.
                let open = x == f64::NEG_INFINITY
                    && matches!(
                        op,
                        Unary::Silu
                            | Unary::Swish { .. }
                            | Unary::Gelu
                            | Unary::GeluTanh
                            | Unary::Mish
                            | Unary::HardSwish
                            | Unary::Softsign
                    )
                    || x == f64::INFINITY && op == Unary::Softsign;
                assert!(same || open, "{isa:?} {op:?}({x}) = {y}, not {expected}");
            }
            let mut in_place = xs.clone();
            unary_in_place(&Exec::new(&pool, isa), op, &mut in_place).unwrap();
            for (a, b) in in_place.iter().zip(&ys) {
                let (a, b) = (a.to_f64(), b.to_f64());
                assert!(
                    a == b || (a.is_nan() && b.is_nan()),
                    "{isa:?} {op:?} in place: {a} and {b}"
                );
            }
        }
    }
}

#[test]
fn floats() {
    check::<f32>(6e-7, 3e-7, f64::NEG_INFINITY);
    check::<f64>(1e-14, 1e-14, f64::NEG_INFINITY);
    check::<f16>(1.0 / 1024.0, 4e-7, f64::NEG_INFINITY);
    check::<bf16>(1.0 / 128.0, 3e-7, f64::NEG_INFINITY);
}

#[test]
fn integers() {
    let pool = Pool::new(1);
    for (op, expected) in [
        (Unary::Abs, [7, 3, i32::MIN, 0]),
        (Unary::Neg, [7, -3, i32::MIN, 0]),
        (Unary::Sign, [-1, 1, -1, 0]),
        (Unary::Relu, [0, 3, 0, 0]),
        (Unary::Square, [49, 9, 0, 0]),
        (Unary::Floor, [-7, 3, i32::MIN, 0]),
        (Unary::Exp, [0, 20, 0, 1]),
        (Unary::Sqrt, [0, 1, 0, 0]),
    ] {
        let mut y = [0; 4];
        unary(&Exec::new(&pool, Isa::Portable), op, &[-7, 3, i32::MIN, 0], &mut y).unwrap();
        assert_eq!(y, expected, "{op:?}");
    }
    let mut bytes = [0u8, 5, 255];
    unary_in_place(&Exec::new(&pool, Isa::Portable), Unary::Sign, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 1, 1]);
}

#[test]
fn clips() {
    let pool = Pool::new(2);
    for &isa in Isa::available() {
        let mut y = [0.0; 5];
        clip(&Exec::new(&pool, isa), -1.0, 2.0, &[-5.0, 0.5, 7.0, f32::NAN, f32::INFINITY], &mut y)
            .unwrap();
        assert_eq!(y[..3], [-1.0, 0.5, 2.0]);
        assert!(y[3].is_nan() && y[4] == 2.0);
        let mut y = [3i8, -9, 100];
        clip_in_place(&Exec::new(&pool, isa), -4, 50, &mut y).unwrap();
        assert_eq!(y, [3, -4, 50]);
        let mut y = [f16::from_f32(3.0)];
        clip_in_place(&Exec::new(&pool, isa), f16::ZERO, f16::ONE, &mut y).unwrap();
        assert_eq!(y, [f16::ONE]);
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let xs: Vec<f32> = (0..100_003).map(|i| (i as f32 - 50_000.0) * 0.3).collect();
    for &isa in Isa::available() {
        for op in [Unary::Exp, Unary::Sin, Unary::Gelu, Unary::Relu, Unary::Log] {
            let bits = |threads| {
                let mut y = vec![0.0; xs.len()];
                unary(&Exec::new(&Pool::new(threads), isa), op, &xs, &mut y).unwrap();
                y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let one = bits(1);
            assert!(one == bits(2) && one == bits(3), "{isa:?} {op:?}");
        }
    }
    unary::<f32>(&Exec::new(&Pool::new(2), Isa::Portable), Unary::Exp, &[], &mut []).unwrap();
}
