//! The ends of the domains of functions. How exact they are elsewhere is a test of
//! `crates/elementwise`, which has the loops.

use super::single;

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
    for f in
        [single::exp::<false>, single::ln::<false>, single::tanh::<false>, single::erf::<false>]
    {
        assert!(f(f32::NAN).is_nan());
    }
    assert!(single::sigmoid::<false>(f32::NAN).is_nan());
    assert!(single::softplus::<false>(f32::NAN).is_nan());
}
