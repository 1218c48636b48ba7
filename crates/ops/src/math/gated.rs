//! Activations that are multiplied by a gate, or moved by a bias.

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, NUMERIC, float, input, output, types};
use crate::function::{attribute_like, number_like};

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
    )
    .body(
        &[18],
        concat!(
            attribute_like!("lambd", "input"),
            attribute_like!("bias", "input"),
            number_like!("zero", "0", "input"),
            "lower = Neg (lambd)
            below = Less (input, lower)
            raised = Add (input, bias)
            lowered = Sub (input, bias)
            above = Less (lambd, input)
            not_below = Where (above, lowered, zero)
            output = Where (below, raised, not_below)",
        ),
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
    )
    .body(
        &[28],
        "gate = Swish <alpha: float = @alpha> (A)
        Y = Mul (gate, B)",
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
    )
    .body(
        &[24],
        concat!(
            attribute_like!("alpha", "X"),
            "scaled = Mul (alpha, X)
            gate = Sigmoid (scaled)
            Y = Mul (X, gate)",
        ),
    );
