//! Clipping of gradients that are too large, before the optimizer uses them.
//!
//! Clipping by norm: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural
//! networks", ICML 2013.

use hashbrown::HashMap;
use sardonyx_model::{AttrValue, ValueId};
use sardonyx_ops::scalar;
use sardonyx_tensor::DataType;

use super::variables::Variable;
use crate::addition::Addition;

/// Limit of the gradients in a training step.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Clipping {
    /// Maximum of the L2 norm of all gradients together. If it is exceeded, all gradients are
    /// multiplied by one factor so that the norm becomes this value.
    Norm(f64),
    /// Maximum absolute value of each element. Larger ones are set to this value, with their sign.
    Value(f64),
}

impl Clipping {
    /// Checks that the limit is positive and finite.
    pub(super) fn check(self) -> Result<(), String> {
        let (what, limit) = match self {
            Clipping::Norm(limit) => ("norm", limit),
            Clipping::Value(limit) => ("element", limit),
        };
        if limit.is_finite() && limit > 0.0 {
            return Ok(());
        }
        Err(format!("the greatest {what} of gradients has to be greater than 0, not {limit}"))
    }
}

/// Adds nodes that clip the gradients of variables, and returns the clipped gradients.
pub(super) fn add(
    add: &mut Addition,
    clipping: Clipping,
    variables: &[Variable],
    gradients: &[ValueId],
) -> Vec<ValueId> {
    let pairs = gradients.iter().zip(variables.iter().map(|variable| variable.elem));
    match clipping {
        Clipping::Value(limit) => {
            let mut limits: HashMap<DataType, [ValueId; 2]> = HashMap::new();
            pairs
                .map(|(gradient, elem)| {
                    let [low, high] = *limits.entry(elem).or_insert_with(|| {
                        let low = add.constant("clip_low", &scalar(elem, -limit));
                        [low, add.constant("clip_high", &scalar(elem, limit))]
                    });
                    add.node("Clip", &[Some(*gradient), Some(low), Some(high)], &[])
                })
                .collect()
        }
        Clipping::Norm(limit) => {
            let all_double = variables.iter().all(|variable| variable.elem == DataType::Double);
            let wide = if all_double { DataType::Double } else { DataType::Float };
            // Squares of 16-bit floats may overflow.
            let pairs: Vec<(ValueId, DataType)> =
                pairs.map(|(gradient, elem)| (add.cast(*gradient, elem, wide), elem)).collect();
            let squares: Vec<Option<ValueId>> = pairs
                .iter()
                .map(|(gradient, _)| {
                    let keep = [("keepdims", AttrValue::Int(0))];
                    Some(add.node("ReduceSumSquare", &[Some(*gradient)], &keep))
                })
                .collect();
            let sum = add.node("Sum", &squares, &[]);
            let norm = add.node("Sqrt", &[Some(sum)], &[]);
            add.rename(norm, "gradient_norm");
            let limit = Some(add.constant("clip_norm", &scalar(wide, limit)));
            // The factor is exactly 1 if the norm is at most the limit.
            let divisor = add.node("Max", &[Some(norm), limit], &[]);
            let factor = add.node("Div", &[limit, Some(divisor)], &[]);
            pairs
                .into_iter()
                .map(|(gradient, elem)| {
                    let clipped = add.node("Mul", &[Some(gradient), Some(factor)], &[]);
                    add.cast(clipped, wide, elem)
                })
                .collect()
        }
    }
}
