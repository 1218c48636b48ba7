//! Losses of classifiers.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, input, int, output, string, types};
use crate::typeset::TypeSet;

pub(crate) static NEGATIVE_LOG_LIKELIHOOD_LOSS: OpDef = OpDef::new("NegativeLogLikelihoodLoss")
    .about("The negated score of the right class, weighted by class; summed up, averaged or as it is. Targets may be \
         ignored.")
    .since(
        12,
        &[
            input("input", "T"),
            input("target", "Tind"),
            input("weight", "T").optional(),
            output("loss", "T"),
            int("ignore_index"),
            string("reduction").or_string("mean"),
            types("T", FLOATS),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("target", "Tind").non_differentiable(),
            input("weight", "T").optional().non_differentiable(),
            output("loss", "T").differentiable(),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static SOFTMAX_CROSS_ENTROPY_LOSS: OpDef = OpDef::new("SoftmaxCrossEntropyLoss")
    .about("The negated logarithm of the probability that softmax gives to the right class, weighted by class; summed \
         up, averaged or as it is.")
    .since(
        12,
        &[
            input("scores", "T"),
            input("labels", "Tind"),
            input("weights", "T").optional(),
            output("output", "T"),
            output("log_prob", "T").optional(),
            int("ignore_index"),
            string("reduction").or_string("mean"),
            types("T", FLOATS),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("scores", "T").differentiable(),
            input("labels", "Tind").non_differentiable(),
            input("weights", "T").optional().non_differentiable(),
            output("output", "T").differentiable(),
            output("log_prob", "T").optional().differentiable(),
            types("T", FLOATS_IR4),
        ],
    );
