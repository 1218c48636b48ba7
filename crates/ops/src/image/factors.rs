//! Sizes multiplied by scale factors, as `Resize` does.
//!
//! A factor is a float, and so a fraction with a power of two below: the size that it gives a
//! symbol is a quotient of whole numbers. Numbers are multiplied as the reference does it, in
//! 64-bit floats.

use sardonyx_model::Dim;

use crate::infer::{Infer, InferError};

/// A size times a factor, rounded down.
pub(super) fn scaled(size: &Dim, factor: f32) -> Dim {
    if let Some(size) = size.known() {
        return whole((size as f64 * f64::from(factor)).floor());
    }
    let (numerator, denominator) = fraction(factor);
    match denominator {
        Some(denominator) => size.mul(&Dim::Known(numerator)).floor_div(&Dim::Known(denominator)),
        None => Dim::Unknown,
    }
}

/// A number without a fraction, if 64 bits hold it.
fn whole(number: f64) -> Dim {
    const LIMIT: f64 = 9.0e18;
    if number.abs() < LIMIT { Dim::Known(number as i64) } else { Dim::Unknown }
}

/// A positive float as a quotient, which it is exactly; without a denominator if that is too large.
fn fraction(factor: f32) -> (i64, Option<i64>) {
    const MOST_HALVES: u32 = 40;
    let (mut numerator, mut halves) = (f64::from(factor), 0);
    while numerator.fract() != 0.0 && halves <= MOST_HALVES {
        numerator *= 2.0;
        halves += 1;
    }
    let fits = halves <= MOST_HALVES && numerator < f64::from(1u32 << 31);
    (numerator as i64, fits.then(|| 1 << halves))
}

/// How sizes that are given bend to keep proportions.
#[derive(Clone, Copy)]
pub(super) enum Policy {
    NotLarger,
    NotSmaller,
}

impl Policy {
    /// `None` to take sizes as they are.
    pub(super) fn new(cx: &Infer<'_>) -> Result<Option<Policy>, InferError> {
        match cx.string("keep_aspect_ratio_policy").as_deref() {
            None | Some("stretch") => Ok(None),
            Some("not_larger") => Ok(Some(Policy::NotLarger)),
            Some("not_smaller") => Ok(Some(Policy::NotSmaller)),
            Some(other) => {
                cx.fail(format_args!("keep_aspect_ratio_policy has no value \"{other}\""))
            }
        }
    }

    /// What becomes of the wanted sizes: one factor for all.
    pub(super) fn bend(self, sizes: &[Dim], wanted: &[Dim]) -> Vec<Dim> {
        // A single axis has nothing to keep proportions with.
        if let [single] = wanted {
            return vec![single.clone()];
        }
        let numbers = |dims: &[Dim]| {
            dims.iter().map(|dim| dim.known().map(|size| size as f64)).collect::<Option<Vec<f64>>>()
        };
        let (Some(sizes), Some(goals)) = (numbers(sizes), numbers(wanted)) else {
            return vec![Dim::Unknown; wanted.len()];
        };
        let factors = sizes.iter().zip(&goals).map(|(size, goal)| goal / size);
        let factor = factors.reduce(match self {
            Policy::NotLarger => f64::min,
            Policy::NotSmaller => f64::max,
        });
        let bent = |size: &f64| whole((factor.unwrap_or(1.0) * size).round());
        sizes.iter().map(bent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_fractions() {
        for factor in [0.5f32, 1.3, 2.0, 0.1, 1.0e-3, 3.75] {
            let (numerator, denominator) = fraction(factor);
            let denominator = denominator.expect("not too small");
            assert_eq!(numerator as f64 / denominator as f64, f64::from(factor));
            for size in 0..1000i64 {
                let symbolic = scaled(&Dim::symbol("N"), factor);
                assert_eq!(
                    symbolic.substitute(&|_| Some(size.into())),
                    scaled(&size.into(), factor)
                );
            }
        }
        assert!(scaled(&Dim::symbol("N"), 1.0e-30).is_unknown());
        assert!(scaled(&Dim::Known(i64::MAX), 4.0).is_unknown());
    }
}
