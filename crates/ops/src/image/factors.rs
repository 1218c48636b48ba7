//! Products of sizes and scale factors for `Resize`.
//!
//! A file stores a scale as a 32-bit float, while the program that wrote it multiplied by a 64-bit
//! one: 10 times 0.7 is 7, but 10 times the float nearest to 0.7, which is smaller, is 6.9999999.
//! If the float is the nearest one to a quotient of whole sizes, that quotient is taken as the
//! scale. The floor of the size times that quotient is the size that `PyTorch` computes, and the
//! standard leaves the precision of the product open.

use sardonyx_model::Dim;

use crate::infer::{Infer, InferError, Rule};

/// Result of resizing an axis by a scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resized {
    /// New size: a whole number, which may be too large for a size.
    pub size: f64,
    /// Scale for formulas.
    pub scale: f64,
}

/// Resizes an axis by a scale from a file. Returns the new size and the intended scale.
pub fn resized(len: usize, scale: f32) -> Resized {
    let len = len as f64;
    let scale = find_quotient(len, scale);
    Resized { size: (len * scale).floor(), scale }
}

/// Returns the quotient of whole sizes that a scale stands for, or the scale itself.
fn find_quotient(len: f64, scale: f32) -> f64 {
    let stored = f64::from(scale);
    if is_short(scale) {
        return stored;
    }
    let below = (len * stored).floor();
    let quotients = [below / len, (below + 1.0) / len];
    // Beyond sizes of 2^22 both may be near enough, so that neither is certain.
    match quotients.map(|quotient| quotient as f32 == scale) {
        [true, false] => quotients[0],
        [false, true] => quotients[1],
        _ => stored,
    }
}

/// Whether a scale is a multiple of 1/256, such as 0.5 and 1.25, and so is exact.
fn is_short(scale: f32) -> bool {
    (scale * 256.0).fract() == 0.0
}

/// Multiplies a size by a factor and rounds down.
pub(super) fn scale_size(size: &Dim, factor: f32, rule: Rule) -> Dim {
    match (size.known(), rule) {
        (Some(size), Rule::Reference) => to_dim((size as f64 * f64::from(factor)).floor()),
        (Some(size), Rule::Operator) => match usize::try_from(size) {
            Ok(size) => to_dim(resized(size, factor).size),
            Err(_) => Dim::Unknown,
        },
        // Other scales stand for different numbers with different sizes.
        (None, _) if is_short(factor) => {
            let numerator = f64::from(factor) * 256.0;
            if numerator >= f64::from(1u32 << 31) {
                return Dim::Unknown;
            }
            let numerator = numerator as i64;
            let halves = numerator.trailing_zeros().min(8);
            let (numerator, denominator) = (numerator >> halves, 256 >> halves);
            size.mul(&Dim::Known(numerator)).floor_div(&Dim::Known(denominator))
        }
        (None, _) => Dim::Unknown,
    }
}

/// Converts a number without a fraction, if 64 bits can hold it.
fn to_dim(number: f64) -> Dim {
    const LIMIT: f64 = 9.0e18;
    if number.abs() < LIMIT { Dim::Known(number as i64) } else { Dim::Unknown }
}

/// Adjustment of given sizes that keeps proportions.
#[derive(Clone, Copy)]
pub(super) enum Policy {
    NotLarger,
    NotSmaller,
}

impl Policy {
    /// Reads the policy; `None` if sizes are taken as given.
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

    /// Adjusts the wanted sizes by one factor for all axes.
    pub(super) fn adjust(self, sizes: &[Dim], wanted: &[Dim]) -> Vec<Dim> {
        // A single axis has no proportion to keep.
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
        let adjusted = |size: &f64| to_dim((factor.unwrap_or(1.0) * size).round());
        sizes.iter().map(adjusted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_doubles() {
        // The float nearest to 0.7 is below it, and 100 * 0.29 is below 29 in 64 bits.
        for (len, scale, size) in [
            (10, 0.7, 7.0),
            (90, 0.7, 62.0),
            (100, 0.29, 28.0),
            (3, 5.0 / 3.0, 5.0),
            (49, 1.0 / 49.0, 0.0),
            (7, 1.0 / 7.0, 1.0),
            (10, 0.75, 7.0),
            (11, 0.7, 7.0),
        ] {
            assert_eq!(resized(len, scale as f32).size, size, "{len} by {scale}");
        }
        // Any size of many axes is a quotient of theirs, and so are most decimals.
        for len in 1..300usize {
            for parts in 1..300 {
                let scale = f64::from(parts) / 100.0;
                let found = resized(len, scale as f32);
                assert_eq!(found.size, (len as f64 * scale).floor(), "{len} by {scale}");
                let scale = f64::from(parts) / len as f64;
                let found = resized(len, scale as f32);
                assert_eq!(found.size, (len as f64 * scale).floor(), "{len} by {scale}");
            }
        }
    }

    #[test]
    fn large_sizes_are_as_stored() {
        assert_eq!(resized(16_777_217, 0.5).size, 8_388_608.0);
        assert_eq!(resized(16_777_217, 2.0).size, 33_554_434.0);
        let scale = 0.7f32;
        assert_eq!(resized(40_000_001, scale).scale, f64::from(scale));
        assert_eq!(resized(0, scale).size, 0.0);
    }

    #[test]
    fn short_scales_are_fractions() {
        for factor in [0.5f32, 1.25, 2.0, 0.00390625, 3.75] {
            for size in 0..1000i64 {
                let symbolic = scale_size(&Dim::symbol("N"), factor, Rule::Operator);
                assert_eq!(
                    symbolic.substitute(&|_| Some(size.into())),
                    scale_size(&size.into(), factor, Rule::Operator)
                );
            }
        }
        for factor in [0.7f32, 1.3, 1.0e-3, 1.0e-30, 1.0e20] {
            assert!(scale_size(&Dim::symbol("N"), factor, Rule::Operator).is_unknown());
        }
        assert!(scale_size(&Dim::Known(i64::MAX), 4.0, Rule::Operator).is_unknown());
        assert_eq!(scale_size(&Dim::Known(10), 0.7, Rule::Reference), Dim::Known(6));
    }
}
