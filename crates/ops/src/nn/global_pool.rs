//! `GlobalAveragePool` and `GlobalMaxPool`: pooling with a window as large as the input.
//!
//! Since 1; 22 adds bfloat16.

use sardonyx_model::Dim;

use crate::facts::*;
use crate::nn::gradients;
use crate::sharding::layers;
use crate::{Infer, InferError, OpDef};

pub static GLOBAL_AVERAGE_POOL: OpDef = global_pool("GlobalAveragePool")
    .about("Average over all spatial axes of each channel.")
    .gradient(gradients::global_average_pool)
    .split_by(layers::pool);
pub static GLOBAL_MAX_POOL: OpDef = global_pool("GlobalMaxPool")
    .about("Maximum over all spatial axes of each channel. NaN if the channel has a NaN.")
    .gradient(gradients::global_max_pool)
    .split_by(layers::pool);

const fn global_pool(name: &'static str) -> OpDef {
    OpDef::new(name)
        .since(1, FIRST)
        .since(22, WITH_BFLOAT16)
        .widens()
        .infer(infer)
        .infer_as_reference(infer_as_reference)
}

const FIRST: &[Fact] =
    &[input("X", "T").differentiable(), output("Y", "T").differentiable(), types("T", FLOATS)];
const WITH_BFLOAT16: &[Fact] = &[types("T", FLOATS_IR4)];

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match cx.shape(0) {
        Some(shape) if shape.len() < 2 => {
            return cx.fail(format_args!("the input has rank {}, not at least 2", shape.len()));
        }
        Some(shape) => {
            let mut shape = shape.clone();
            shape[2..].fill(Dim::Known(1));
            Some(shape)
        }
        None => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Infers like the reference implementation, which leaves the shape open if the rank is below 2.
pub(super) fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    if cx.rank(0).is_some_and(|rank| rank < 2) {
        cx.set_tensor(0, cx.elem(0), None);
        return Ok(());
    }
    infer(cx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::testing::check;

    #[test]
    fn each_channel_becomes_one_element() {
        for def in [&GLOBAL_AVERAGE_POOL, &GLOBAL_MAX_POOL] {
            check(
                def,
                22,
                &[
                    (&[], "bfloat16[N, 64, H, ?]", "bfloat16[N, 64, 1, 1]"),
                    (&[], "float[2, 3]", "float[2, 3]"),
                    (&[], "float[...]", "float[...]"),
                ],
            );
        }
        check(
            &GLOBAL_MAX_POOL,
            1,
            &[(&[], "float[3]", "GlobalMaxPool: the input has rank 1, not at least 2")],
        );
    }
}
