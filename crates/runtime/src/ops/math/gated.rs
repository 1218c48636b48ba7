//! Functions that are a gate times its input.

use sardonyx_kernels::elementwise::Unary;

use super::pointwise::{self, FLOATS};
use super::unary::number;
use crate::error::BindError;
use crate::kernel::Site;
use crate::program::Op;

/// `Swish`
pub(crate) fn lower_swish(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::Swish { alpha: number(site, "alpha")? })
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Float;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn swish() {
        let x = tensor(&[4], &[-3f32, 0.0, 1.0, f32::INFINITY]);
        let found = run("Swish", &[("alpha", Float(2.0))], &[Some(&x)], 1).unwrap();
        let expected = [-3.0 / (1.0 + 6f32.exp()), 0.0, 1.0 / (1.0 + (-2f32).exp()), f32::INFINITY];
        for (found, expected) in found[0].to_vec::<f32>().unwrap().iter().zip(expected) {
            let close = (found - expected).abs() <= 4.0 * f32::EPSILON * expected.abs();
            assert!(close || *found == expected, "{found} {expected}");
        }
        let halves = tensor(&[1], &[half::f16::ONE]);
        let found = run("Swish", &[], &[Some(&halves)], 1).unwrap();
        assert_eq!(found[0], tensor(&[1], &[half::f16::from_f32(0.731_058_6)]));
    }
}
