//! Compares each function of the kernels with f64, densely over all numbers, on each instruction
//! set.
//!
//! The bounds are read from the table in the documentation of `vecmath`.

mod oracle;

use crate::{Binary, BinaryElement, Strided, Unary, UnaryElement, binary, unary};
use oracle::{CELU, ELU, HARD_SIGMOID, LEAKY, SELU, SHRINK, SWISH};
use sardonyx_simd::number::{Arith, Math};
use sardonyx_simd::{Exec, Isa, Pool};
use sardonyx_simd::{Level, Loop};
use std::f64::consts::FRAC_PI_2;
use std::marker::PhantomData;

type Exact = fn(f64) -> f64;

/// Returns all functions: name in the table, operation, and definition in f64.
fn functions() -> Vec<(&'static str, Unary, Exact)> {
    vec![
        ("Sqrt", Unary::Sqrt, f64::sqrt),
        ("Reciprocal", Unary::Reciprocal, f64::recip),
        ("Square", Unary::Square, |x| x * x),
        ("Exp", Unary::Exp, f64::exp),
        ("Log", Unary::Log, f64::ln),
        ("Sin", Unary::Sin, f64::sin),
        ("Cos", Unary::Cos, f64::cos),
        ("Tan", Unary::Tan, f64::tan),
        ("Asin", Unary::Asin, f64::asin),
        ("Acos", Unary::Acos, f64::acos),
        ("Atan", Unary::Atan, f64::atan),
        ("Sinh", Unary::Sinh, f64::sinh),
        ("Cosh", Unary::Cosh, f64::cosh),
        ("Tanh", Unary::Tanh, f64::tanh),
        ("Asinh", Unary::Asinh, oracle::asinh),
        ("Acosh", Unary::Acosh, oracle::acosh),
        ("Atanh", Unary::Atanh, oracle::atanh),
        ("Erf", Unary::Erf, oracle::erf),
        ("Sigmoid", Unary::Sigmoid, oracle::sigmoid),
        ("Softplus", Unary::Softplus, oracle::softplus),
        ("Softsign", Unary::Softsign, |x| x / (1.0 + x.abs())),
        ("Silu", Unary::Silu, |x| x * oracle::sigmoid(x)),
        ("Swish", Unary::Swish { alpha: SWISH }, |x| x * oracle::sigmoid(f64::from(SWISH) * x)),
        ("Gelu", Unary::Gelu, oracle::gelu),
        ("GeluTanh", Unary::GeluTanh, oracle::gelu_tanh),
        ("Mish", Unary::Mish, oracle::mish),
        ("HardSwish", Unary::HardSwish, |x| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0)),
        ("HardSigmoid", Unary::HardSigmoid { alpha: HARD_SIGMOID.0, beta: HARD_SIGMOID.1 }, |x| {
            (f64::from(HARD_SIGMOID.0) * x + f64::from(HARD_SIGMOID.1)).clamp(0.0, 1.0)
        }),
        ("LeakyRelu", Unary::LeakyRelu { alpha: LEAKY }, |x| {
            if x < 0.0 { f64::from(LEAKY) * x } else { x }
        }),
        ("Elu", Unary::Elu { alpha: ELU }, |x| oracle::elu(x, ELU)),
        ("Selu", Unary::Selu { alpha: SELU.0, gamma: SELU.1 }, |x| {
            f64::from(SELU.1) * oracle::elu(x, SELU.0)
        }),
        ("Celu", Unary::Celu { alpha: CELU }, |x| oracle::celu(x, CELU)),
        ("Shrink", Unary::Shrink { lambda: SHRINK.0, bias: SHRINK.1 }, oracle::shrink),
    ]
}

/// Properties of f32 and f64 that the tests need.
trait Tested: UnaryElement + BinaryElement {
    /// Column of the table with the bounds for the type, in ULP; absolute bounds are in the next
    /// one.
    const COLUMN: usize;
    const MAX: f64;
    /// Returns the distance between neighbouring floats around `exact`.
    fn ulp(exact: f64) -> f64;
    /// Returns the previous float, the float itself, and the next one.
    fn neighbours(self) -> [Self; 3];
    /// Returns floats with evenly spaced bits, over the whole range.
    fn spread(count: u64) -> Vec<Self>;
}

impl Tested for f32 {
    const COLUMN: usize = 1;
    const MAX: f64 = f32::MAX as f64;
    fn neighbours(self) -> [f32; 3] {
        [self.next_down(), self, self.next_up()]
    }
    fn ulp(exact: f64) -> f64 {
        let below = (exact as f32).abs().min(f32::MAX.next_down());
        f64::from(below.next_up()) - f64::from(below)
    }
    fn spread(count: u64) -> Vec<f32> {
        let step = ((1 << 32) / count) | 1;
        (0..1 << 32).step_by(step as usize).map(|bits: u64| f32::from_bits(bits as u32)).collect()
    }
}

impl Tested for f64 {
    const COLUMN: usize = 3;
    const MAX: f64 = f64::MAX;
    fn neighbours(self) -> [f64; 3] {
        [self.next_down(), self, self.next_up()]
    }
    fn ulp(exact: f64) -> f64 {
        let below = exact.abs().min(f64::MAX.next_down());
        below.next_up() - below
    }
    fn spread(count: u64) -> Vec<f64> {
        let step = (u64::MAX / count) | 1;
        (0..count).map(|i| f64::from_bits(i.wrapping_mul(step))).collect()
    }
}

/// Error bound: a number of units in the last place, or an absolute distance, or a part of the
/// argument.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    ulps: f64,
    absolute: f64,
    of_argument: f64,
}

/// Reads the documented bound of a function.
fn documented_bound<T: Tested>(name: &str) -> Bound {
    let rows = include_str!("../../simd/src/vecmath.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! |"))
        .map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let row = rows.filter(|row| row[0].split(", ").any(|one| one == name)).collect::<Vec<_>>();
    assert_eq!(row.len(), 1, "one row has the bounds of {name}");
    let number = |cell: &str| match cell {
        "" => 0.0,
        cell => cell.parse().expect("a number"),
    };
    let (ulps, or) = (row[0][T::COLUMN], row[0][T::COLUMN + 1]);
    let (absolute, of_argument) = match or.strip_suffix(" x") {
        Some(part) => (0.0, number(part)),
        None => (number(or), 0.0),
    };
    Bound { ulps: number(ulps), absolute, of_argument }
}

/// Worst of many results.
#[derive(Default)]
struct Worst {
    /// Largest error in ULP, over the results that the other parts of the bound do not cover.
    ulps: f64,
    /// Argument and result with that error.
    at: String,
}

impl Worst {
    /// Updates the worst result by `y`, the result for argument `x`.
    fn take<T: Tested>(&mut self, bound: Bound, x: f64, y: T, exact: f64, at: impl Fn() -> String) {
        let (value, rounded) = (y.to_f64(), T::from_f64(exact).to_f64());
        if value == rounded || value.is_nan() && exact.is_nan() {
            return;
        }
        let off = (value - exact).abs();
        let ulps = if value.is_infinite() || rounded.is_infinite() {
            // Infinity counts as the neighbour of the largest finite number of its sign.
            let finite = |x: f64| x.clamp(-T::MAX, T::MAX);
            (finite(value) - finite(exact)).abs() / T::ulp(exact) + 1.0
        } else if off <= bound.absolute || off <= bound.of_argument * x.abs() {
            return;
        } else {
            off / T::ulp(exact)
        };
        // NaN in place of a number, or a number in place of NaN.
        let ulps = if ulps.is_nan() { f64::INFINITY } else { ulps };
        if ulps > self.ulps {
            self.ulps = ulps;
            self.at = at();
        }
    }

    /// Returns a description of the worst result if it exceeds the bound.
    fn complaint<T: Tested>(self, isa: Isa, name: &str, bound: Bound) -> Option<String> {
        let (ty, isa) = (std::any::type_name::<T>(), isa.name());
        let Worst { ulps, at } = self;
        println!("{ty} {name}, {isa}: {ulps:.3} ULP at {at}");
        (ulps > bound.ulps).then(|| format!("{ty} {name}, {isa}: {ulps} ULP at {at}; {bound:?}"))
    }
}

/// Returns evenly spaced bits, evenly spaced small numbers, and neighbours of multiples of a
/// quarter circle and of the edges of domains and ranges.
fn inputs<T: Tested>(count: u64) -> Vec<T> {
    let edges =
        [0.0, 0.5, 1.0, 2.0, 88.72284, 103.97208, 709.782712893384, 745.1332191019412, 8192.0]
            .into_iter()
            .chain((1..200).map(|n| f64::from(n) * FRAC_PI_2))
            .chain((1..5300).step_by(37).map(|n| f64::from(n) * FRAC_PI_2))
            .chain([f64::INFINITY, f64::NAN, T::MAX])
            .map(T::from_f64)
            .flat_map(T::neighbours)
            .flat_map(|x| [x, T::narrow(x.widen().neg())]);
    let small = (-50_000..=50_000).map(|i| T::from_f64(f64::from(i) * 4.1e-4));
    T::spread(count).into_iter().chain(small).chain(edges).collect()
}

/// Compares all unary functions with their bounds, for about `count` numbers.
fn check_unary<T: Tested>(count: u64) {
    let xs = inputs::<T>(count);
    let pool = Pool::new(1);
    let mut ys = vec![T::ZERO; xs.len()];
    let mut complaints = Vec::new();
    for (name, op, exact) in functions() {
        let bound = documented_bound::<T>(name);
        let exact: Vec<f64> = xs.iter().map(|x| exact(x.to_f64())).collect();
        for &isa in Isa::available() {
            unary(&Exec::new(&pool, isa), op, &xs, &mut ys).unwrap();
            let mut worst = Worst::default();
            for ((x, y), exact) in xs.iter().zip(&ys).zip(&exact) {
                worst.take(bound, x.to_f64(), *y, *exact, || format!("{x:?}: {y:?}"));
            }
            complaints.extend(worst.complaint::<T>(isa, name, bound));
        }
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn functions_of_f32_are_within_the_documented_bounds() {
    check_unary::<f32>(1 << 20);
}

#[test]
fn functions_of_f64_are_within_the_documented_bounds() {
    check_unary::<f64>(1 << 17);
}

/// Compares powers for all pairs of some bases and some exponents.
fn check_power<T: Tested>() {
    let edges = [0.0, 0.5, 1.0, 2.0, 3.0, 10.0, f64::INFINITY, f64::NAN, 1e-20, 1.0 + 1e-6];
    let edges = || edges.into_iter().flat_map(|x| [x, -x]).map(T::from_f64);
    let near = (1..400).map(|i| T::from_f64(f64::from(i) * 0.0137));
    // Without signalling NaNs: the C library does not raise them to the power of 0 as 1, and
    // conversion to f64 makes them quiet.
    let spread = |count| T::spread(count).into_iter().filter(|x| !x.to_f64().is_nan());
    let bases: Vec<T> = edges().chain(near).chain(spread(1500)).collect();
    let small = (-60..60).map(|i| T::from_f64(f64::from(i) * 0.25));
    let exponents = edges().chain(small).chain(spread(500));
    let pool = Pool::new(1);
    let mut ys = vec![T::ZERO; bases.len()];
    let bound = documented_bound::<T>("Pow");
    let mut worst: Vec<Worst> = Isa::available().iter().map(|_| Worst::default()).collect();
    for b in exponents {
        let exact: Vec<f64> = bases.iter().map(|a| a.to_f64().powf(b.to_f64())).collect();
        for (&isa, worst) in Isa::available().iter().zip(&mut worst) {
            // A constant exponent, which may have a shortcut, and a slice of exponents.
            for (b, stride) in [(vec![b], 0), (vec![b; bases.len()], 1)] {
                let dims = [bases.len()];
                binary(
                    &Exec::new(&pool, isa),
                    Binary::Pow,
                    &dims,
                    Strided::flat(&bases),
                    Strided::new(&b, &[stride]),
                    &mut ys,
                )
                .unwrap();
                for ((a, y), exact) in bases.iter().zip(&ys).zip(&exact) {
                    let at = || format!("{a:?}, {:?}: {y:?}", b[0]);
                    worst.take(bound, a.to_f64(), *y, *exact, at);
                }
            }
        }
    }
    for (&isa, worst) in Isa::available().iter().zip(worst) {
        assert_eq!(worst.complaint::<T>(isa, "Pow", bound), None);
    }
}

#[test]
fn powers_are_within_the_documented_bounds() {
    check_power::<f32>();
    check_power::<f64>();
}

/// Function that occurs only as a part of operations.
trait Part {
    const NAME: &str;
    fn apply<const FMA: bool>(x: f32) -> f32;
}

/// Part of Elu and related operations below zero.
struct Expm1;
/// Part of softmax and attention.
struct ExpNonpositive;

impl Part for Expm1 {
    const NAME: &str = "expm1";
    #[inline(always)]
    fn apply<const FMA: bool>(x: f32) -> f32 {
        Math::expm1::<FMA>(x)
    }
}

impl Part for ExpNonpositive {
    const NAME: &str = "exp_nonpositive";
    #[inline(always)]
    fn apply<const FMA: bool>(x: f32) -> f32 {
        Math::exp_nonpositive::<FMA>(x)
    }
}

/// Loop that writes a [`Part`] of each element.
struct Apply<'a, P>(PhantomData<P>, &'a [f32], &'a mut [f32]);

impl<P: Part> Loop for Apply<'_, P> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (y, x) in self.2.iter_mut().zip(self.1) {
            *y = P::apply::<FMA>(*x);
        }
    }
}

/// Compares a part of operations with its bound.
fn check_part<P: Part>(xs: &[f32], exact: fn(f64) -> f64) {
    let mut ys = vec![0.0; xs.len()];
    let bound = documented_bound::<f32>(P::NAME);
    for &isa in Isa::available() {
        Level::new(isa).run(Apply(PhantomData::<P>, xs, &mut ys));
        let mut worst = Worst::default();
        for (&x, &y) in xs.iter().zip(&ys) {
            worst.take(bound, x.into(), y, exact(x.into()), || format!("{x:?}: {y:?}"));
        }
        assert_eq!(worst.complaint::<f32>(isa, P::NAME, bound), None);
    }
}

#[test]
fn parts_of_operations_are_within_the_documented_bounds() {
    let mut xs = inputs::<f32>(1 << 20);
    check_part::<Expm1>(&xs, f64::exp_m1);
    xs.retain(|x| x.is_nan() || *x <= 0.0);
    check_part::<ExpNonpositive>(&xs, f64::exp);
}
