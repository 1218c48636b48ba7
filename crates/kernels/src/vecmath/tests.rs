//! The f32 functions against f64, densely, under every instruction set.

use super::{Body, Level, double, single};
use crate::Isa;
use crate::number::Math;

struct Map<'a, F>(&'a [f32], &'a mut [f32], F);

macro_rules! functions_under_test {
    ($($marker:ident = $function:ident),* $(,)?) => { $(
        struct $marker;
        impl Body for Map<'_, $marker> {
            type Out = ();
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                let Map(xs, ys, _) = self;
                for (y, x) in ys.iter_mut().zip(xs) {
                    *y = single::$function::<FMA>(*x);
                }
            }
        }
    )* };
}

functions_under_test!(
    Exp = exp,
    Ln = ln,
    Expm1 = expm1,
    Tanh = tanh,
    Sigmoid = sigmoid,
    Erf = erf,
    Softplus = softplus,
    Sin = sin_reduced,
    Cos = cos_reduced,
);

/// The distance of `y` from the exact value in units of its last place.
fn ulps(y: f32, exact: f64) -> f64 {
    if y.is_nan() && exact.is_nan() {
        return 0.0;
    }
    let rounded = exact as f32;
    if y == rounded {
        return 0.0;
    }
    if y.is_infinite() != rounded.is_infinite() || y.is_nan() || exact.is_nan() {
        // At the edge of overflow a neighbour of infinity counts as one off.
        let edge = y.abs().min(rounded.abs()) >= f32::from_bits(0x7f7f_fffd);
        return if edge { 1.0 } else { f64::INFINITY };
    }
    let next = f32::from_bits(rounded.abs().to_bits() + 1);
    (f64::from(y) - exact).abs() / (f64::from(next) - f64::from(rounded.abs()))
}

/// Every 509th float and the edges.
fn inputs() -> Vec<f32> {
    let edges = [
        0.0,
        1.0,
        88.72283,
        88.72284,
        -87.33655,
        -103.97208,
        -103.9721,
        0.921875,
        10.0,
        f32::INFINITY,
    ];
    (0..=u32::MAX)
        .step_by(509)
        .map(f32::from_bits)
        .chain(edges.into_iter().flat_map(|x| [x, -x]))
        .chain([f32::NAN])
        .collect()
}

fn worst<F>(
    isa: Isa,
    xs: &[f32],
    f: F,
    exact: fn(f64) -> f64,
    error: fn(f32, f64) -> f64,
) -> (f64, f32)
where
    for<'a> Map<'a, F>: Body<Out = ()>,
{
    let mut ys = vec![0.0; xs.len()];
    Level::new(isa).run(Map(xs, &mut ys, f));
    let mut worst = (0.0, 0.0);
    for (&x, &y) in xs.iter().zip(&ys) {
        let e = error(y, exact(f64::from(x)));
        if e > worst.0 || e.is_nan() {
            worst = (e, x);
        }
    }
    worst
}

#[test]
fn errors_are_within_the_documented_bounds() {
    let xs = inputs();
    let angles: Vec<f32> = xs.iter().copied().filter(|x| x.abs() <= 8192.0).collect();
    for &isa in Isa::available() {
        let absolute = |y: f32, e: f64| (f64::from(y) - e).abs();
        for (name, (error, x), bound) in [
            ("exp", worst(isa, &xs, Exp, f64::exp, ulps), 1.5),
            ("ln", worst(isa, &xs, Ln, f64::ln, ulps), 1.5),
            ("expm1", worst(isa, &xs, Expm1, f64::exp_m1, ulps), 3.0),
            ("tanh", worst(isa, &xs, Tanh, f64::tanh, ulps), 3.0),
            (
                "sigmoid",
                worst(isa, &xs, Sigmoid, Math::sigmoid::<false>, ulps),
                3.0,
            ),
            ("erf", worst(isa, &xs, Erf, double::erf, ulps), 2.0),
            (
                "softplus",
                worst(isa, &xs, Softplus, Math::softplus::<false>, ulps),
                3.0,
            ),
            ("sin", worst(isa, &angles, Sin, f64::sin, absolute), 1.5e-7),
            ("cos", worst(isa, &angles, Cos, f64::cos, absolute), 1.5e-7),
        ] {
            println!("{isa:?} {name}: {error:.3} at {x:e}");
            assert!(error <= bound, "{isa:?} {name}: {error} at {x:e}");
        }
    }
}

#[test]
fn special_values() {
    let inf = f32::INFINITY;
    for (name, y, expected) in [
        ("exp(-inf)", single::exp::<false>(-inf), 0.0),
        ("exp(inf)", single::exp::<false>(inf), inf),
        ("ln(0)", single::ln::<false>(0.0), -inf),
        ("ln(-0)", single::ln::<false>(-0.0), -inf),
        ("ln(inf)", single::ln::<false>(inf), inf),
        ("ln(-1)", single::ln::<false>(-1.0), f32::NAN),
        ("tanh(inf)", single::tanh::<false>(inf), 1.0),
        ("tanh(-inf)", single::tanh::<false>(-inf), -1.0),
        ("tanh(-0)", single::tanh::<false>(-0.0), -0.0),
        ("sigmoid(-inf)", single::sigmoid::<false>(-inf), 0.0),
        ("erf(-inf)", single::erf::<false>(-inf), -1.0),
        ("erf(-0)", single::erf::<false>(-0.0), -0.0),
        ("softplus(inf)", single::softplus::<false>(inf), inf),
        ("tanh(1e-40)", single::tanh::<false>(1e-40), 1e-40),
    ] {
        let same = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
        assert!(same, "{name}: {y}");
    }
    for f in [
        single::exp::<false>,
        single::ln::<false>,
        single::tanh::<false>,
        single::erf::<false>,
    ] {
        assert!(f(f32::NAN).is_nan());
    }
    assert!(single::sigmoid::<false>(f32::NAN).is_nan());
    assert!(single::softplus::<false>(f32::NAN).is_nan());
}

#[test]
fn the_f64_error_function() {
    // Abramowitz and Stegun, table 7.1.
    for (x, expected) in [
        (0.5, 0.5204998778),
        (1.0, 0.8427007929),
        (1.9, 0.9927904292),
        (3.5, 0.999999256901628),
    ] {
        assert!((double::erf(x) - expected).abs() < 1e-10);
        assert!((double::erf(-x) + expected).abs() < 1e-10);
    }
    let joint = double::erf(3.0 - 1e-12) - double::erf(3.0 + 1e-12);
    assert!(joint.abs() < 1e-15);
}
