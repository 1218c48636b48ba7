//! `InstanceNormalization`: scales each channel of each sample to mean 0 and variance 1, then
//! scales and shifts it.
//!
//! Since 1; 6 drops the hint `consumed_inputs`; 22 adds bfloat16.

use super::batch_normalization::count_channels;
use crate::facts::*;
use crate::math::consumed_inputs;
use crate::nn::gradients;
use crate::rules::same_as_first;
use crate::sharding::layers;
use crate::{Infer, InferError, OpDef};

pub(crate) static INSTANCE_NORMALIZATION: OpDef = OpDef::new("InstanceNormalization")
    .about("Instance normalization: normalizes each channel of each sample over its spatial axes. `Y = \
         scale * (X - mean) / sqrt(var + epsilon) + B`.")
    .since(
        1,
        &[
            input("input", "T"),
            input("scale", "T"),
            input("B", "T"),
            output("output", "T"),
            ints("consumed_inputs"),
            float("epsilon").or_float(1e-5),
            types("T", FLOATS),
        ],
    )
    .since(
        6,
        &[
            input("input", "T").differentiable(),
            input("scale", "T").differentiable(),
            input("B", "T").differentiable(),
            output("output", "T").differentiable(),
            without_attribute("consumed_inputs"),
        ],
    )
    .same_down()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .adapter(5, 6, consumed_inputs::remove)
    .without_reference_rule(&[1])
    .gradient(gradients::instance_normalization)
    .split_by(layers::instance_normalization);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    count_channels(cx, 1..3)?;
    same_as_first(cx)
}

#[cfg(test)]
mod tests {
    use super::INSTANCE_NORMALIZATION;
    use crate::tensor::testing::check;

    #[test]
    fn scale_and_bias_have_one_element_per_channel() {
        check(
            &INSTANCE_NORMALIZATION,
            6,
            &[
                (&[], "float[N, 3, H]; float[3]; float[?]", "float[N, 3, H]"),
                (
                    &[],
                    "float[N, 3, H]; float[3]; float[2]",
                    "InstanceNormalization: channels of inputs 0 and 2 differ (3 and 2)",
                ),
                (&[], "-; -; -", "-"),
            ],
        );
    }
}
