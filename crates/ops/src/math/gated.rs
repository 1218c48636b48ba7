//! Activations that are multiplied by a gate, or moved by a bias.

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, NUMERIC, float, input, output, types};

pub(crate) static SHRINK: OpDef = OpDef::new("Shrink")
    .about("Zero near zero, and what is further away moved towards it by a bias.")
    .since(
        9,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            float("bias").or_float(0.0),
            float("lambd").or_float(0.5),
            types("T", NUMERIC),
        ],
    );

pub(crate) static SWIGLU: OpDef = OpDef::new("SwiGLU")
    .about(
        "A gated linear unit with Swish: one half of the features, through Swish, times the other.",
    )
    .since(
        28,
        &[
            input("A", "T").differentiable(),
            input("B", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("alpha").or_float(1.0),
            types("T", FLOATS_IR4),
        ],
    );

pub(crate) static SWISH: OpDef = OpDef::new("Swish")
    .about("`x * sigmoid(alpha * x)`.")
    .since(
        24,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            float("alpha").or_float(1.0),
            types("T", FLOATS_IR4),
        ],
    );
