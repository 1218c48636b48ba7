//! `LRN`: divides each element by a power of the squares of its neighbours along the channels.
//!
//! Since 1; 13 adds bfloat16.

use crate::OpDef;
use crate::denotation::IMAGES;
use crate::facts::*;
use crate::nn::gradients;
use crate::rules::same_as_first;
use crate::sharding::layers;

pub(crate) static LRN: OpDef = OpDef::new("LRN")
    .about(
        "Local response normalization across neighboring channels. `Y = X / (bias + alpha / size * \
         sum(X^2))^beta`, where the sum runs over `size` channels around the current one.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("alpha").or_float(0.0001),
            float("beta").or_float(0.75),
            float("bias").or_float(1.0),
            int("size").required(),
            types("T", FLOATS),
        ],
    )
    .since(
        13,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            types("T", FLOATS_IR4),
        ],
    )
    .widens()
    .infer(same_as_first)
    .keeps_format(&[(0, IMAGES)])
    .gradient(gradients::lrn)
    .split_by(layers::batch);
