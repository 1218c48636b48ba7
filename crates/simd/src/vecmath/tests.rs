//! Functions at the ends of their domains. Their accuracy elsewhere is a test of
//! `crates/elementwise`, which has the loops.

use super::{Function, Gelu, GeluTanh, Lane, Sigmoid, Tanh, single};

fn apply<F: Function>(function: F, x: f32) -> f32 {
    function.apply(Lane::<false>(x)).0
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
        ("tanh(inf)", apply(Tanh, inf), 1.0),
        ("tanh(-inf)", apply(Tanh, -inf), -1.0),
        ("tanh(-0)", apply(Tanh, -0.0), -0.0),
        ("sigmoid(-inf)", apply(Sigmoid, -inf), 0.0),
        ("erf(-inf)", single::erf::<false>(-inf), -1.0),
        ("erf(-0)", single::erf::<false>(-0.0), -0.0),
        ("softplus(inf)", single::softplus::<false>(inf), inf),
        ("tanh(1e-40)", apply(Tanh, 1e-40), 1e-40),
        ("exp_nonpositive(0)", single::exp_nonpositive::<false>(0.0), 1.0),
        ("exp_nonpositive(-89)", single::exp_nonpositive::<false>(-89.0), 0.0),
        ("exp_nonpositive(-inf)", single::exp_nonpositive::<false>(-inf), 0.0),
        ("gelu(0)", apply(Gelu, 0.0), 0.0),
        ("gelu(3e38)", apply(Gelu, 3e38), 3e38),
        ("gelu(-3e38)", apply(Gelu, -3e38), 0.0),
        ("gelu(-20)", apply(Gelu, -20.0), 0.0),
        ("gelu(inf)", apply(Gelu, inf), inf),
        ("gelu(-inf)", apply(Gelu, -inf), f32::NAN),
        ("gelu_tanh(3e38)", apply(GeluTanh, 3e38), 3e38),
        ("gelu_tanh(-3e38)", apply(GeluTanh, -3e38), -0.0),
        ("gelu_tanh(inf)", apply(GeluTanh, inf), inf),
        ("gelu_tanh(-inf)", apply(GeluTanh, -inf), f32::NAN),
    ] {
        let same = y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan();
        assert!(same, "{name}: {y}");
    }
}

/// Powers of two are made from low bits, so a NaN is tried with several of them.
#[test]
fn nan_stays_nan() {
    type Function = fn(f32) -> f32;
    let functions: [(&str, Function); 9] = [
        ("exp", single::exp::<false>),
        ("exp_nonpositive", single::exp_nonpositive::<false>),
        ("ln", single::ln::<false>),
        ("tanh", |x| apply(Tanh, x)),
        ("sigmoid", |x| apply(Sigmoid, x)),
        ("softplus", single::softplus::<false>),
        ("erf", single::erf::<false>),
        ("gelu", |x| apply(Gelu, x)),
        ("gelu_tanh", |x| apply(GeluTanh, x)),
    ];
    for (name, function) in functions {
        for low in 0..512 {
            for high in [0x7fc0_0000, 0xffc0_0000] {
                let y = function(f32::from_bits(high | low));
                assert!(y.is_nan(), "{name} of {high:#x} + {low}: {y}");
            }
        }
    }
}
