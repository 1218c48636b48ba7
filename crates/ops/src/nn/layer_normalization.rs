//! Normalizations that look at one example only.

use sardonyx_tensor::DataType::{Bfloat16, Float};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, deprecated, float, input, int, ints, output, types};
use crate::typeset::TypeSet;

pub(crate) static GROUP_NORMALIZATION: OpDef = OpDef::new("GroupNormalization")
    .about("Brings each group of channels to mean 0 and variance 1, then scales and shifts; since 21 with a factor for \
         each channel instead of each group.")
    .since(
        18,
        &[
            input("X", "T").differentiable(),
            input("scale", "T").differentiable(),
            input("bias", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("epsilon").or_float(1e-05),
            int("num_groups").required(),
            types("T", FLOATS_IR4),
            deprecated(),
        ],
    )
    .since(21, &[int("stash_type").or(1)]);

pub(crate) static LAYER_NORMALIZATION: OpDef = OpDef::new("LayerNormalization")
    .about("Brings what lies behind an axis to mean 0 and variance 1, then scales and shifts it.")
    .since(
        17,
        &[
            input("X", "T"),
            input("Scale", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            output("Mean", "U").optional(),
            output("InvStdDev", "U").optional(),
            int("axis").or(-1),
            float("epsilon").or_float(1e-05),
            int("stash_type").or(1),
            types("T", FLOATS_IR4),
            types("U", TypeSet::tensors(&[Float, Bfloat16])),
        ],
    );

pub(crate) static LP_NORMALIZATION: OpDef = OpDef::new("LpNormalization")
    .about("Divides by the 1-norm or 2-norm along an axis.")
    .since(
        1,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            int("axis").or(-1),
            int("p").or(2),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static MEAN_VARIANCE_NORMALIZATION: OpDef = OpDef::new("MeanVarianceNormalization")
    .about("Subtracts the mean over some axes and divides by the standard deviation.")
    .since(
        9,
        &[
            input("X", "T"),
            output("Y", "T"),
            ints("axes").or_ints(&[0, 2, 3]),
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
    );

pub(crate) static RMS_NORMALIZATION: OpDef = OpDef::new("RMSNormalization")
    .about("Divides what lies behind an axis by the root of its mean square, then scales it.")
    .since(
        23,
        &[
            input("X", "T"),
            input("scale", "V"),
            output("Y", "V"),
            int("axis").or(-1),
            float("epsilon").or_float(1e-05),
            int("stash_type").or(1),
            types("T", FLOATS_IR4),
            types("V", FLOATS_IR4),
        ],
    );
