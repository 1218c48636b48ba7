//! Activations that exporters spell out, as patterns.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

use sardonyx_model::NodeId;
use sardonyx_ops::operators::{
    ADD, DIV, ERF, GELU, HARD_SIGMOID, HARD_SWISH, MUL, POW, SIGMOID, SWISH, TANH,
};

use crate::matcher::{Match, Matcher};
use crate::pattern::{
    AttributeTerm, Call, Condition, Form, Given, Pattern, Target, Term, find_first, node,
};

/// Square root of 2 / pi.
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
const _: () = assert!((SQRT_2_OVER_PI * SQRT_2_OVER_PI - FRAC_2_PI).abs() < 1e-15);

const X: Term = Term::Var(0);

/// `x / sqrt 2`.
const ERF_ARGUMENT: Term = Term::OneOf(&[
    node!(DIV, Ordered, &[X, Term::Number(SQRT_2)]),
    node!(MUL, Unordered, &[X, Term::Number(FRAC_1_SQRT_2)]),
]);

/// `0.044715 * x^3`.
const CUBIC: Term = Term::OneOf(&[
    Term::Node(Call {
        op: &MUL,
        form: Form::Nested,
        operands: &[Term::Number(0.044715), node!(POW, Ordered, &[X, Term::Integer(3)])],
        attributes: &[],
    }),
    Term::Node(Call {
        op: &MUL,
        form: Form::Nested,
        operands: &[Term::Number(0.044715), X, X, X],
        attributes: &[],
    }),
]);

/// `sqrt(2/pi) * (x + 0.044715 * x^3)`.
const TANH_ARGUMENT: Term =
    node!(MUL, Unordered, &[Term::Number(SQRT_2_OVER_PI), node!(ADD, Unordered, &[X, CUBIC])]);

const OF_FLOATS: &[Condition] = &[Condition::IsFloat(0), Condition::KeepsRank(0)];

/// `x * 0.5 * (1 + erf(x / sqrt 2))`, its factors in any order, and the approximation
/// `x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))`. Hendrycks and Gimpel, "Gaussian error
/// linear units" (2016).
pub(crate) static GELU_PATTERNS: [Pattern; 2] = [
    Pattern {
        source: Call {
            op: &MUL,
            form: Form::Nested,
            operands: &[
                node!(ADD, Unordered, &[node!(ERF, Ordered, &[ERF_ARGUMENT]), Term::Number(1.0)]),
                Term::Number(0.5),
                X,
            ],
            attributes: &[],
        },
        conditions: OF_FLOATS,
        target: Target { op: &GELU, inputs: &[0], attributes: &[] },
        is_distinctive: true,
    },
    Pattern {
        source: Call {
            op: &MUL,
            form: Form::Nested,
            operands: &[
                node!(ADD, Unordered, &[node!(TANH, Ordered, &[TANH_ARGUMENT]), Term::Number(1.0)]),
                Term::Number(0.5),
                X,
            ],
            attributes: &[],
        },
        conditions: OF_FLOATS,
        target: Target {
            op: &GELU,
            inputs: &[0],
            attributes: &[("approximate", Given::Text("tanh"))],
        },
        is_distinctive: true,
    },
];

/// `x * sigmoid(alpha * x)`: the swish of Ramachandran, Zoph and Le, "Searching for activation
/// functions" (2017); SiLU for alpha 1.
pub(crate) static SWISH_PATTERNS: [Pattern; 2] = [
    Pattern {
        source: Call {
            op: &MUL,
            form: Form::Unordered,
            operands: &[node!(SIGMOID, Ordered, &[X]), X],
            attributes: &[],
        },
        conditions: OF_FLOATS,
        target: Target { op: &SWISH, inputs: &[0], attributes: &[("alpha", Given::Float(1.0))] },
        is_distinctive: false,
    },
    Pattern {
        source: Call {
            op: &MUL,
            form: Form::Unordered,
            operands: &[
                node!(SIGMOID, Ordered, &[node!(MUL, Unordered, &[X, Term::Scalar(0)])]),
                X,
            ],
            attributes: &[],
        },
        conditions: OF_FLOATS,
        target: Target { op: &SWISH, inputs: &[0], attributes: &[("alpha", Given::Scalar(0))] },
        is_distinctive: false,
    },
];

/// `x * max(0, min(1, x / 6 + 1 / 2))`. Howard et al., "Searching for MobileNetV3" (2019). ONNX
/// Runtime spells it out in the models that it saves.
pub(crate) static HARD_SWISH_PATTERNS: [Pattern; 1] = [Pattern {
    source: Call {
        op: &MUL,
        form: Form::Unordered,
        operands: &[
            Term::Node(Call {
                op: &HARD_SIGMOID,
                form: Form::Ordered,
                operands: &[X],
                attributes: &[
                    AttributeTerm::Float("alpha", 0.2, 1.0 / 6.0),
                    AttributeTerm::Float("beta", 0.5, 0.5),
                ],
            }),
            X,
        ],
        attributes: &[],
    },
    conditions: &[],
    target: Target { op: &HARD_SWISH, inputs: &[0], attributes: &[] },
    is_distinctive: false,
}];

pub(super) fn find_gelu(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    find_first(&GELU_PATTERNS, cx, anchor)
}

pub(super) fn find_swish(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    find_first(&SWISH_PATTERNS, cx, anchor)
}

pub(super) fn find_hard_swish(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    find_first(&HARD_SWISH_PATTERNS, cx, anchor)
}
