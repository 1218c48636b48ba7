//! Functions that exporters spell out, as patterns. Those that sessions know, too, are in
//! [`crate::fuse`].

use sardonyx_model::NodeId;
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ABS, ADD, CLIP, DIV, EXP, HARD_SIGMOID, HARD_SWISH, LOG, LOG_SOFTMAX, MAX, MISH, MUL, NEG, POW,
    RECIPROCAL, REDUCE_L1, REDUCE_L2, REDUCE_LOG_SUM, REDUCE_LOG_SUM_EXP, REDUCE_SUM,
    REDUCE_SUM_SQUARE, RELU, SIGMOID, SOFTMAX, SOFTPLUS, SOFTSIGN, SQRT, TANH,
};

use crate::fuse::activation::{GELU_PATTERNS, HARD_SWISH_PATTERNS, SWISH_PATTERNS};
use crate::matcher::{Match, Matcher};
use crate::pattern::{
    AttributeTerm, Call, Condition, Form, Given, Pattern, Target, Term, call, find_first, node,
};

const X: Term = Term::Var(0);

const OF_FLOATS: &[Condition] = &[Condition::IsFloat(0), Condition::KeepsRank(0)];

/// Describes a function of one variable.
const fn function(source: Call, op: &'static OpDef) -> Pattern {
    let target = Target { op, inputs: &[0], attributes: &[] };
    Pattern { source, conditions: OF_FLOATS, target, is_distinctive: false }
}

/// `min(max(x + 3, 0), 6)`.
const RELU_6: Term = node!(
    CLIP,
    Ordered,
    &[node!(ADD, Unordered, &[X, Term::Number(3.0)]), Term::Number(0.0), Term::Number(6.0)],
);

/// `1 + exp(-x)`.
const LOGISTIC: Term =
    node!(ADD, Unordered, &[node!(EXP, Ordered, &[node!(NEG, Ordered, &[X])]), Term::Number(1.0)]);

/// Operators at which activations are looked for.
pub(super) const ACTIVATION_ANCHORS: &[&OpDef] = &[&MUL, &DIV, &LOG, &RECIPROCAL, &MAX];

static ACTIVATIONS: [Pattern; 10] = [
    // `x * relu6(x + 3) / 6`, in two orders. Howard et al., "Searching for MobileNetV3" (2019).
    function(
        call!(DIV, Ordered, &[node!(MUL, Unordered, &[RELU_6, X]), Term::Number(6.0)]),
        &HARD_SWISH,
    ),
    function(call!(MUL, Nested, &[RELU_6, Term::Number(1.0 / 6.0), X]), &HARD_SWISH),
    hard_sigmoid(call!(DIV, Ordered, &[RELU_6, Term::Number(6.0)])),
    hard_sigmoid(call!(MUL, Unordered, &[RELU_6, Term::Number(1.0 / 6.0)])),
    // Misra, "Mish: a self regularized non-monotonic activation function" (2019).
    function(
        call!(MUL, Unordered, &[node!(TANH, Ordered, &[node!(SOFTPLUS, Ordered, &[X])]), X]),
        &MISH,
    ),
    function(
        call!(
            LOG,
            Ordered,
            &[node!(ADD, Unordered, &[node!(EXP, Ordered, &[X]), Term::Number(1.0)])]
        ),
        &SOFTPLUS,
    ),
    function(
        call!(
            DIV,
            Ordered,
            &[X, node!(ADD, Unordered, &[node!(ABS, Ordered, &[X]), Term::Number(1.0)])]
        ),
        &SOFTSIGN,
    ),
    function(call!(DIV, Ordered, &[Term::Number(1.0), LOGISTIC]), &SIGMOID),
    function(call!(RECIPROCAL, Ordered, &[LOGISTIC]), &SIGMOID),
    // At least one zero; more change nothing.
    function(call!(MAX, Variadic, &[X, Term::Number(0.0)]), &RELU),
];

const fn hard_sigmoid(source: Call) -> Pattern {
    let attributes = &[("alpha", Given::Float(1.0 / 6.0)), ("beta", Given::Float(0.5))];
    let target = Target { op: &HARD_SIGMOID, inputs: &[0], attributes };
    Pattern { source, conditions: OF_FLOATS, target, is_distinctive: false }
}

/// `x^2`.
const SQUARE: Term =
    Term::OneOf(&[node!(MUL, Ordered, &[X, X]), node!(POW, Ordered, &[X, Term::Integer(2)])]);

/// Sum along constant axes.
macro_rules! sum {
    ($operand:expr $(,)?) => {
        Call {
            op: &REDUCE_SUM,
            form: Form::Leading,
            operands: &[$operand],
            attributes: &[AttributeTerm::Axes, AttributeTerm::Int("keepdims", 1, 0)],
        }
    };
}

/// Describes a reduction along the axes of a sum.
const fn reduction(source: Call, op: &'static OpDef) -> Pattern {
    let attributes = &[("axes", Given::AxesBefore(18)), ("keepdims", Given::Int(0))];
    let target = Target { op, inputs: &[0], attributes };
    Pattern { source, conditions: &[Condition::IsFloat(0)], target, is_distinctive: false }
}

static REDUCTIONS: [Pattern; 6] = [
    reduction(call!(SQRT, Ordered, &[Term::Node(sum!(SQUARE))]), &REDUCE_L2),
    reduction(
        call!(LOG, Ordered, &[Term::Node(sum!(node!(EXP, Ordered, &[X])))]),
        &REDUCE_LOG_SUM_EXP,
    ),
    reduction(call!(LOG, Ordered, &[Term::Node(sum!(X))]), &REDUCE_LOG_SUM),
    reduction(sum!(SQUARE), &REDUCE_SUM_SQUARE),
    reduction(sum!(node!(ABS, Ordered, &[X])), &REDUCE_L1),
    Pattern {
        source: call!(
            LOG,
            Ordered,
            &[Term::Node(Call {
                op: &SOFTMAX,
                form: Form::Ordered,
                operands: &[X],
                attributes: &[AttributeTerm::Int("axis", -1, 1)],
            })],
        ),
        conditions: OF_FLOATS,
        target: Target { op: &LOG_SOFTMAX, inputs: &[0], attributes: &[("axis", Given::Int(1))] },
        is_distinctive: false,
    },
];

static QUOTIENT: Pattern = Pattern {
    source: call!(MUL, Unordered, &[node!(RECIPROCAL, Ordered, &[Term::Var(1)]), Term::Var(0)]),
    conditions: &[Condition::IsFloat(0)],
    target: Target { op: &DIV, inputs: &[0, 1], attributes: &[] },
    is_distinctive: false,
};

pub(super) fn find_activation(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let mut nearly = Match::No;
    for patterns in [&GELU_PATTERNS[..], &SWISH_PATTERNS, &HARD_SWISH_PATTERNS, &ACTIVATIONS] {
        match find_first(patterns, cx, anchor) {
            Match::No => {}
            found @ Match::Yes(_) => return found,
            near @ Match::Nearly(_) => nearly = near,
        }
    }
    nearly
}

/// Finds spelled out reductions. Counterexample: before version 13, the axis of `Softmax`, from
/// which on all axes count.
pub(super) fn find_reduction(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    if cx.is_from(13) { find_first(&REDUCTIONS, cx, anchor) } else { Match::No }
}

pub(super) fn find_quotient(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    QUOTIENT.find(cx, anchor)
}
