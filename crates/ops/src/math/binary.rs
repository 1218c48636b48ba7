//! Elementwise operators on two tensors, as rows: arithmetic, comparison, logic, bits.
//!
//! Before opset 7 the second input broadcasts only if an attribute demands it; since then both
//! inputs broadcast ([`legacy_broadcast`]).
//!
//! - `Add`, `Sub`, `Mul`, `Div`: since 1; 6 takes wide integers and drops `consumed_inputs`; 7
//!   broadcasts; 13 adds bfloat16; 14 adds narrow integers. Division of integers drops the
//!   fraction.
//! - `Pow`, the first input to the power of the second: since 1; 7 broadcasts; 12 takes integers,
//!   and exponents of a type of their own; 13 adds bfloat16, 15 for exponents too.
//! - `Mod`, the remainder with the sign of the divisor, or of the dividend with `fmod=1`: since 10;
//!   13 adds bfloat16; 28 defines `fmod=0` for floats.
//! - `Equal`: since 1; 7 broadcasts; 11 takes all integers and floats; 13 adds bfloat16; 19 adds
//!   strings.
//! - `Greater`, `Less`: since 1; 7 broadcasts; 9 takes integers; 13 adds bfloat16.
//! - `GreaterOrEqual`, `LessOrEqual`: since 12; 16 adds bfloat16.
//! - `And`, `Or`, `Xor` of truth values: since 1; 7 broadcasts.
//! - `BitShift` by the second input, in `direction`: since 11; 28 adds signed integers and defines
//!   shifts by as many bits as the type has, or more.
//! - `BitwiseAnd`, `BitwiseOr`, `BitwiseXor`: since 18.

use sardonyx_model::{Dim, Shape, ValueId};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::{AdapterFn, InferFn, OpDef};
use crate::facts::{
    FLOATS, Fact, HIGH_PRECISION, HIGH_PRECISION_IR4, INTEGERS, NUMERIC, NUMERIC_IR4, UNSIGNED,
    input, int, ints, note, output, string, types, without_attribute,
};
use crate::infer::{Infer, InferError};
use crate::math::gradients;
use crate::math::{consumed_inputs, legacy_broadcast, shape_values, shift};
use crate::rules;
use crate::sharding::{Linear, elements};
use crate::typeset::TypeSet;

pub static ADD: OpDef =
    arithmetic("Add", |cx| elementwise(cx, Dim::add), legacy_broadcast::lower_commutative)
        .about("Adds two tensors element-wise: `C = A + B`. Integers wrap around on overflow.")
        .gradient(gradients::add)
        .linear_in(Linear::Sum(&["Identity"]));

pub static AND: OpDef =
    logic("And", |cx| logical(cx, Dim::mul)).about("Element-wise logical AND: `C = A ∧ B`.");

pub static BIT_SHIFT: OpDef = OpDef::new("BitShift")
    .about(
        "Shifts the bits of each element of `X` left or right by the number of positions in `Y`. \
         With a right shift the value is effectively decreased.",
    )
    .since(
        11,
        &[
            input("X", "T").non_differentiable(),
            input("Y", "T").non_differentiable(),
            output("Z", "T").non_differentiable(),
            string("direction").required(),
            types("T", UNSIGNED),
        ],
    )
    .since(
        28,
        &[
            types("T", INTEGERS),
            note(
                "For signed integers, the right shift is an arithmetic shift: the sign is kept. \
                 Bits shifted out are discarded.",
            ),
            note(
                "If Y is negative or not less than the number of bits, the result is -1 for a \
                 negative X shifted right, and 0 otherwise.",
            ),
        ],
    )
    .same_up()
    .adapter(28, 27, shift::limit_shift)
    .infer(rules::broadcast)
    .split_by(elements::elementwise);

pub static BITWISE_AND: OpDef =
    bitwise("BitwiseAnd").about("Element-wise bitwise AND: `C = A & B`.");

pub static BITWISE_OR: OpDef =
    bitwise("BitwiseOr").about("Element-wise bitwise OR of `A` and `B`.");

pub static BITWISE_XOR: OpDef =
    bitwise("BitwiseXor").about("Element-wise bitwise XOR: `C = A ^ B`.");

pub static DIV: OpDef = arithmetic("Div", quotient, legacy_broadcast::lower)
    .about("Divides two tensors element-wise: `C = A / B`. Integer division truncates toward zero. The \
         standard does not define integer division by zero; Sardonyx returns 0.")
    .gradient(gradients::div)
    .linear_in(Linear::First);

pub static EQUAL: OpDef = OpDef::new("Equal")
    .about("Element-wise comparison `A == B`. NaN is not equal to any value, including NaN.")
    .since(1, &[A, B, C, int("broadcast").or(0), int("axis"), types("T", INT32_64.and(BOOL)), T1])
    .since(7, BROADCAST)
    .since(11, &[types("T", NUMERIC.and(BOOL))])
    .widens()
    .since(13, &[FIXED_A, FIXED_B, FIXED_C, types("T", NUMERIC_IR4.and(BOOL))])
    .widens()
    .since(19, &[types("T", NUMERIC_IR4.and(BOOL).and(STRING))])
    .widens()
    .infer(|cx| infer_comparison(cx, shape_values::equal))
    .adapter(6, 7, legacy_broadcast::align)
    .adapter(11, 10, equal_by_order)
    .adapter(7, 6, legacy_broadcast::lower_commutative)
    .split_by(elements::elementwise);

pub static GREATER: OpDef = order("Greater", |cx| infer_comparison(cx, shape_values::greater))
    .about("Element-wise comparison `A > B`. False if an operand is NaN.");

pub static GREATER_OR_EQUAL: OpDef = inclusive_order("GreaterOrEqual", |cx| {
    infer_comparison(cx, |a, b| shape_values::greater(b, a).map(|less| !less))
})
.about("Element-wise comparison `A >= B`. False if an operand is NaN.")
.body(&[12, 16], or_equal!("Greater"));

pub static LESS: OpDef =
    order("Less", |cx| infer_comparison(cx, |a, b| shape_values::greater(b, a)))
        .about("Element-wise comparison `A < B`. False if an operand is NaN.");

pub static LESS_OR_EQUAL: OpDef = inclusive_order("LessOrEqual", |cx| {
    infer_comparison(cx, |a, b| shape_values::greater(a, b).map(|greater| !greater))
})
.about("Element-wise comparison `A <= B`. False if an operand is NaN.")
.body(&[12, 16], or_equal!("Less"));

pub static MOD: OpDef = OpDef::new("Mod")
    .about(
        "Remainder of element-wise division. The result has the sign of the divisor `B` if `fmod` \
         is 0 (as `%` in Python) and the sign of the dividend `A` if `fmod` is 1 (as `fmod` in C). \
         The standard does not define the remainder of integer division by zero; Sardonyx returns \
         0.",
    )
    .since(
        10,
        &[
            input("A", "T"),
            input("B", "T"),
            output("C", "T"),
            int("fmod").or(0),
            types("T", NUMERIC),
        ],
    )
    .since(
        13,
        &[
            input("A", "T").differentiable(),
            input("B", "T").non_differentiable(),
            output("C", "T").differentiable(),
            types("T", NUMERIC_IR4),
        ],
    )
    .widens()
    .since(
        28,
        &[note(
            "Floats too may have either `fmod`: 0 gives `A - floor(A / B) * B`, with the sign of \
             B, and 1 gives `A - trunc(A / B) * B`, with that of A.",
        )],
    )
    .same_up()
    .infer(remainder)
    .adapter(10, 9, remainder_of_quotient)
    .adapter(28, 27, |cx| {
        let elem = cx.input_type(0).and_then(|ty| ty.elem());
        if cx.int("fmod").unwrap_or(0) == 0 && !elem.is_some_and(DataType::is_integer) {
            return Err(cx.refuse(
                "remainders of floats with the sign of the divisor (fmod = 0) came with version 28",
            ));
        }
        Ok(())
    })
    .gradient(gradients::modulo)
    .split_by(elements::elementwise);

pub static MUL: OpDef =
    arithmetic("Mul", |cx| elementwise(cx, Dim::mul), legacy_broadcast::lower_commutative)
        .about(
            "Multiplies two tensors element-wise: `C = A * B`. Integers wrap around on overflow.",
        )
        .gradient(gradients::mul)
        .linear_in(Linear::Factor);

pub static OR: OpDef =
    logic("Or", |cx| logical(cx, logical_or)).about("Element-wise logical OR: `C = A ∨ B`.");

pub static POW: OpDef = OpDef::new("Pow")
    .about(
        "Raises each element of `X` to the power of the corresponding element of `Y`. The output \
         has the type of `X`. Since version 12 the exponent may have another type than the base.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("Y", "T"),
            output("Z", "T"),
            int("broadcast").or(0),
            int("axis"),
            types("T", FLOATS),
        ],
    )
    .since(7, BROADCAST)
    .since(12, &[input("Y", "T1"), types("T", FLOATS.and(INT32_64)), types("T1", NUMERIC)])
    .widens()
    .since(
        13,
        &[
            input("X", "T").differentiable(),
            input("Y", "T1").differentiable(),
            output("Z", "T").differentiable(),
            types("T", FLOATS.and(INT32_64).and(BFLOAT16)),
        ],
    )
    .widens()
    .since(15, &[types("T1", NUMERIC_IR4)])
    .widens()
    .infer(power)
    .adapter(6, 7, legacy_broadcast::align)
    .adapter(7, 6, legacy_broadcast::lower)
    .gradient(gradients::pow)
    .split_by(elements::elementwise);

pub static SUB: OpDef = arithmetic("Sub", |cx| elementwise(cx, Dim::sub), legacy_broadcast::lower)
    .about("Subtracts two tensors element-wise: `C = A - B`. Integers wrap around on overflow.")
    .gradient(gradients::sub)
    .linear_in(Linear::Sum(&["Neg", "Identity"]));

pub static XOR: OpDef =
    logic("Xor", |cx| logical(cx, logical_xor)).about("Element-wise logical XOR: `C = A ⊕ B`.");

const BFLOAT16: TypeSet = TypeSet::tensors(&[DataType::Bfloat16]);
const BOOL: TypeSet = TypeSet::tensors(&[DataType::Bool]);
const INT32_64: TypeSet = TypeSet::tensors(&[DataType::Int32, DataType::Int64]);
const STRING: TypeSet = TypeSet::tensors(&[DataType::String]);

// Facts of comparisons: two inputs of one type, and an output of type `bool`.
const A: Fact = input("A", "T");
const B: Fact = input("B", "T");
const C: Fact = output("C", "T1");
const T1: Fact = types("T1", BOOL);
const FIXED_A: Fact = A.non_differentiable();
const FIXED_B: Fact = B.non_differentiable();
const FIXED_C: Fact = C.non_differentiable();

const BROADCAST: &[Fact] = &[without_attribute("broadcast"), without_attribute("axis")];

const fn arithmetic(name: &'static str, infer: InferFn, lower: AdapterFn) -> OpDef {
    const FIRST: &[Fact] = &[
        input("A", "T"),
        input("B", "T"),
        output("C", "T"),
        int("broadcast").or(0),
        int("axis"),
        ints("consumed_inputs"),
        types("T", FLOATS),
    ];
    const NOT_IN_PLACE: &[Fact] =
        &[without_attribute("consumed_inputs"), types("T", HIGH_PRECISION)];
    const BFLOAT16_TOO: &[Fact] = &[
        input("A", "T").differentiable(),
        input("B", "T").differentiable(),
        output("C", "T").differentiable(),
        types("T", HIGH_PRECISION_IR4),
    ];
    OpDef::new(name)
        .split_by(elements::elementwise)
        .without_reference_rule(&[1])
        .since(1, FIRST)
        .since(6, NOT_IN_PLACE)
        .types_down()
        .since(7, BROADCAST)
        .since(13, BFLOAT16_TOO)
        .widens()
        .since(14, const { &[types("T", NUMERIC_IR4)] })
        .widens()
        .infer(infer)
        .adapter(5, 6, consumed_inputs::remove)
        .adapter(6, 7, legacy_broadcast::align)
        .adapter(7, 6, lower)
}

const fn order(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(1, const { &[A, B, C, int("broadcast").or(0), int("axis"), types("T", FLOATS), T1] })
        .since(7, BROADCAST)
        .since(9, const { &[types("T", NUMERIC)] })
        .widens()
        .since(13, const { &[FIXED_A, FIXED_B, FIXED_C, types("T", NUMERIC_IR4)] })
        .widens()
        .infer(infer)
        .adapter(6, 7, legacy_broadcast::align)
        .adapter(7, 6, legacy_broadcast::lower)
}

macro_rules! or_equal {
    ($order:literal) => {
        concat!("strictly = ", $order, " (A, B)\nequal = Equal (A, B)\nC = Or (strictly, equal)")
    };
}
use or_equal;

const fn inclusive_order(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(12, const { &[FIXED_A, FIXED_B, FIXED_C, types("T", NUMERIC), T1] })
        .since(16, const { &[types("T", NUMERIC_IR4)] })
        .widens()
        .infer(infer)
}

const fn logic(name: &'static str, infer: InferFn) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(1, const { &[A, B, C, int("broadcast").or(0), int("axis"), types("T", BOOL), T1] })
        .since(
            7,
            const {
                &[
                    FIXED_A,
                    FIXED_B,
                    FIXED_C,
                    without_attribute("broadcast"),
                    without_attribute("axis"),
                ]
            },
        )
        .infer(infer)
        .adapter(6, 7, legacy_broadcast::align)
        .adapter(7, 6, legacy_broadcast::lower_commutative)
}

const fn bitwise(name: &'static str) -> OpDef {
    OpDef::new(name)
        .split_by(elements::elementwise)
        .since(
            18,
            const {
                &[
                    FIXED_A,
                    FIXED_B,
                    output("C", "T").non_differentiable(),
                    types("T", INTEGERS),
                ]
            },
        )
        .infer(rules::broadcast)
}

/// Computes the remainder from a quotient that is rounded towards zero, as integers are divided. If
/// `fmod` is 0 and the remainder is neither zero nor of the divisor's sign, adds the divisor once.
fn remainder_of_quotient(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    let Some(elem) = elem.filter(|elem| elem.is_integer()) else {
        return Err(cx.refuse(
            "Mod was added in version 10, and only Mod of integers can be expressed by older operators",
        ));
    };
    let follows_divisor = cx.int("fmod").unwrap_or(0) == 0 && elem.is_signed();
    cx.remove("fmod");
    let (a, b) = (cx.input(0), cx.input(1));
    let quotient = cx.before(DIV.name, &[a, b], &[]);
    let whole = cx.before(MUL.name, &[Some(quotient), b], &[]);
    if !follows_divisor {
        cx.become_operator(SUB.name);
        cx.set_inputs(&[a, Some(whole)]);
        return Ok(());
    }
    let zero = cast(&Tensor::scalar(0i64), elem, CastOptions::default());
    let zero = Some(cx.add_constant(zero.map_err(|error| cx.refuse(error))?));
    let rest = Some(cx.before(SUB.name, &[a, Some(whole)], &[]));
    let below = cx.before(LESS.name, &[rest, zero], &[]);
    let divisor_below = cx.before(LESS.name, &[b, zero], &[]);
    let differs = cx.before(XOR.name, &[Some(below), Some(divisor_below)], &[]);
    let is_zero = cx.before(EQUAL.name, &[rest, zero], &[]);
    let is_not_zero = cx.before("Not", &[Some(is_zero)], &[]);
    let adds = cx.before(AND.name, &[Some(differs), Some(is_not_zero)], &[]);
    let to = [("to", AttrValue::Int(elem.number().into()))];
    let count = cx.before("Cast", &[Some(adds)], &to);
    let added = cx.before(MUL.name, &[Some(count), b], &[]);
    cx.become_operator(ADD.name);
    cx.set_inputs(&[rest, Some(added)]);
    Ok(())
}

/// Expresses `Equal` by older operators: before version 11 it takes `bool`, `int32` and `int64`.
/// Other integers are cast to `int64`. Floats are equal if neither is less than the other and both
/// are numbers, that is, below 1 or above 0, since NaN compares false.
fn equal_by_order(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.input_type(0).or(cx.input_type(1)).and_then(|ty| ty.elem());
    match elem {
        Some(DataType::Bool | DataType::Int32 | DataType::Int64) | None => return Ok(()),
        // A cast to a signed integer would change the largest values.
        Some(DataType::Uint64) => return Ok(()),
        Some(elem) if elem.is_integer() => {
            let to = [("to", AttrValue::Int(DataType::Int64.number().into()))];
            let wide = [0, 1].map(|index| Some(cx.before("Cast", &[cx.input(index)], &to)));
            cx.set_inputs(&wide);
            return Ok(());
        }
        Some(elem) if !elem.is_float() => return Ok(()),
        Some(_) => {}
    }
    let (a, b) = (cx.input(0), cx.input(1));
    let below = cx.before(LESS.name, &[a, b], &[]);
    let above = cx.before(GREATER.name, &[a, b], &[]);
    let differs = cx.before(OR.name, &[Some(below), Some(above)], &[]);
    let mut numbers = None;
    for index in [0, 1] {
        let Some(is_number) = is_number(cx, index)? else { continue };
        numbers = match numbers {
            Some(first) => Some(cx.before(AND.name, &[Some(first), Some(is_number)], &[])),
            None => Some(is_number),
        };
    }
    match numbers {
        Some(numbers) => {
            let same = cx.before("Not", &[Some(differs)], &[]);
            cx.become_operator(AND.name);
            cx.set_inputs(&[Some(same), Some(numbers)]);
        }
        None => {
            cx.become_operator("Not");
            cx.set_inputs(&[Some(differs)]);
        }
    }
    Ok(())
}

/// Makes nodes that test whether the elements of a floating-point input are numbers; `None` if it
/// is a constant without NaN.
fn is_number(cx: &mut Adapt<'_>, index: usize) -> Result<Option<ValueId>, Refusal> {
    let input = cx.input(index);
    let constant = cx.constant(index);
    let elem = cx.input_type(index).and_then(|ty| ty.elem());
    let Some(elem) = elem.or(constant.as_ref().map(Tensor::data_type)) else {
        return Err(cx.refuse(format_args!("the type of input {index} is unknown")));
    };
    let wide = constant.and_then(|it| cast(&it, DataType::Double, CastOptions::default()).ok());
    let values = wide.as_ref().and_then(|wide| wide.as_slice::<f64>().ok());
    if values.is_some_and(|values| values.iter().all(|value| !value.is_nan())) {
        return Ok(None);
    }
    let mut scalar = |value: i64| {
        let value = cast(&Tensor::scalar(value), elem, CastOptions::default());
        value.map(|value| Some(cx.add_constant(value))).map_err(|error| cx.refuse(error))
    };
    let (zero, one) = (scalar(0)?, scalar(1)?);
    let below = cx.before(LESS.name, &[input, one], &[]);
    let above = cx.before(GREATER.name, &[input, zero], &[]);
    Ok(Some(cx.before(OR.name, &[Some(below), Some(above)], &[])))
}

/// Infers the shape of the output, in all versions of operators that exist since opset 1.
fn shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    if cx.since() < 7 { legacy_broadcast::shape(cx) } else { rules::broadcast_inputs(cx) }
}

fn broadcast(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = shape(cx)?;
    cx.set_tensor(0, cx.elem(0).or(cx.elem(1)), shape);
    Ok(())
}

fn power(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_comparison(
    cx: &mut Infer<'_>,
    f: fn(&Dim, &Dim) -> Option<bool>,
) -> Result<(), InferError> {
    let shape = shape(cx)?;
    cx.set_tensor(0, Some(DataType::Bool), shape);
    if is_aligned_at_the_right(cx) {
        shape_values::set_comparison(cx, f);
    }
    Ok(())
}

fn logical(cx: &mut Infer<'_>, f: fn(&Dim, &Dim) -> Dim) -> Result<(), InferError> {
    let shape = shape(cx)?;
    cx.set_tensor(0, Some(DataType::Bool), shape);
    if is_aligned_at_the_right(cx) {
        shape_values::combine(cx, f);
    }
    Ok(())
}

fn logical_or(a: &Dim, b: &Dim) -> Dim {
    let not = |value: &Dim| Dim::Known(1).sub(value);
    not(&not(a).mul(&not(b)))
}

fn logical_xor(a: &Dim, b: &Dim) -> Dim {
    a.add(b).sub(&a.mul(b).mul(&Dim::Known(2)))
}

fn elementwise(cx: &mut Infer<'_>, f: fn(&Dim, &Dim) -> Dim) -> Result<(), InferError> {
    let shape = shape(cx)?;
    // Both inputs have one type, so the known one determines it.
    let elem = cx.elem(0).or(cx.elem(1));
    cx.set_tensor(0, elem, shape);
    if is_aligned_at_the_right(cx) {
        shape_values::combine(cx, f);
    }
    Ok(())
}

/// Whether values broadcast by the current rules, aligned at the right.
fn is_aligned_at_the_right(cx: &Infer<'_>) -> bool {
    cx.since() >= 7 || cx.int("axis").is_none()
}

fn quotient(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.known_value(0) {
        Some(known) => elementwise(cx, shape_values::divide(known.elem())),
        None => broadcast(cx),
    }
}

fn remainder(cx: &mut Infer<'_>) -> Result<(), InferError> {
    rules::broadcast(cx)?;
    shape_values::combine(
        cx,
        match cx.int("fmod") {
            Some(0) => Dim::rem,
            _ => shape_values::truncated_remainder,
        },
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue;
    use crate::math::testing::{infer_type, infer_value};

    #[test]
    fn both_inputs_broadcast() {
        // SHAPE-19, SHAPE-16, SHAPE-22
        let rows = [
            (&ADD, "float[3, 4, 5]; float[2, 1, 1, 1]", "float[2, 3, 4, 5]"),
            (&ADD, "float[3, 4]; float[3]", "Add: sizes 4 and 3 of axis 1 do not broadcast"),
            (&SUB, "double[N, 4]; double[1, 4]", "double[N, 4]"),
            (&MUL, "float[N, 4]; float[M, 1]", "float[broadcast(M, N), 4]"),
            (&MUL, "float[?]; float[7]", "float[7]"),
            (&DIV, "float[...]; float[7]", "float[...]"),
            (&DIV, "-; int64[7]", "int64[...]"),
            (&DIV, "-; -", "?[...]"),
            (&POW, "float[2]; int64", "float[2]"),
            (&EQUAL, "int64[2, 1]; int64[3]", "bool[2, 3]"),
            (&LESS_OR_EQUAL, "-; -", "bool[...]"),
            (&XOR, "bool[2]; bool[...]", "bool[...]"),
            (&BITWISE_AND, "uint8[N]; uint8[N]", "uint8[N]"),
            (&BIT_SHIFT, "uint8[N]; uint8", "uint8[N]"),
        ];
        for (def, inputs, expected) in rows {
            assert_eq!(infer_type(def, 18, &[], inputs), expected, "{} of {inputs}", def.name);
        }
    }

    #[test]
    fn old_versions_broadcast_on_demand() {
        let broadcast = ("broadcast", AttrValue::Int(1));
        let at = |axis| ("axis", AttrValue::Int(axis));
        let rows = [
            (vec![], "float[2, 3]; float[?, 3]", "float[2, 3]"),
            (vec![], "float[2, 3]; float[3]", "Add: the ranks of its inputs differ (2 and 1)"),
            (vec![], "float[...]; float[2, N]", "float[2, N]"),
            (vec![broadcast.clone()], "float[2, 3, 4, 5]; float[4, 5]", "float[2, 3, 4, 5]"),
            (vec![broadcast.clone()], "float[2, 3, 4, ?]; float[4, 5]", "float[2, 3, 4, 5]"),
            (vec![broadcast.clone()], "float[2, 3, 4, 5]; float[1, 1]", "float[2, 3, 4, 5]"),
            (
                vec![broadcast.clone()],
                "float[2, 3, 4, 5]; float[3, 4]",
                "Add: the sizes of axis 2 differ (4 and 3)",
            ),
            (vec![broadcast.clone(), at(1)], "float[2, 3, 4, 5]; float[3, 4]", "float[2, 3, 4, 5]"),
            (
                vec![broadcast.clone(), at(3)],
                "float[2, 3, 4, 5]; float[5, 1]",
                "Add: input 1 of rank 2 does not fit at axis 3",
            ),
            (vec![broadcast.clone(), at(0)], "float[N, 3]; float[...]", "float[N, 3]"),
            (vec![broadcast, at(0)], "float[...]; float[2]", "float[...]"),
        ];
        for (attributes, inputs, expected) in rows {
            assert_eq!(
                infer_type(&ADD, 6, &attributes, inputs),
                expected,
                "{attributes:?} {inputs}"
            );
        }
        assert_eq!(infer_type(&GREATER, 1, &[], "float[2]; float[N]"), "bool[2]");
    }

    #[test]
    fn symbolic_shape_values_pass_through() {
        // SHAPE-25
        let rows = [
            (&ADD, "[N, 3]; 2", "[N + 2, 5]"),
            (&ADD, "N; 2", "N + 2"),
            (&ADD, "N; [2]", "[N + 2]"),
            (&SUB, "5; [N, 3]", "[-N + 5, 2]"),
            (&MUL, "[N, 2]; [4, N]", "[4*N, 2*N]"),
            (&MUL, "[N, ?]; 0", "[0, 0]"),
            (&MUL, "?; 2", "-"),
            (&MUL, "[N]; -", "-"),
            (&MUL, "int32:2000000000; int32:2", "-"),
            (&DIV, "[N, -7]; 2", "[floor(N/2), -3]"),
            (&DIV, "[N, 8]; [1, 0]", "[N, ?]"),
            (&ADD, "[1, 2]; [1, 2, 3]", "Add: sizes 2 and 3 of axis 0 do not broadcast"),
            (&MOD, "[-7, N]; 2", "[1, mod(N, 2)]"),
            (&ADD, "[[N], [2]]; [1, 0]", "[[N + 1, N], [3, 2]]"),
            (&DIV, "float:[N, 7, 6]; float:2", "[?, ?, 3]"),
            (&MUL, "float:[N, 16777217]; float:2", "[2*N, ?]"),
            (&MUL, "int8:[N, 64, 3]; int8:2", "[?, ?, 6]"),
            (&SUB, "uint32:[N, 3]; uint32:4", "-"),
            (&EQUAL, "[N, 3, N, 3]; [-1, 3, 3, 4]", "[0, 1, ?, 0]"),
            (&LESS, "[N, 3]; [0, N]", "[0, ?]"),
            (&GREATER, "[N, 3]; -1", "[1, 1]"),
            (&GREATER_OR_EQUAL, "[N, 3]; [0, 4]", "[1, 0]"),
            (&LESS_OR_EQUAL, "N; N", "1"),
            (&AND, "bool:[1, ?, 0]; bool:[?, 0, 1]", "[?, 0, 0]"),
            (&OR, "bool:[1, ?, 0]; bool:[?, 0, 0]", "[1, ?, 0]"),
            (&XOR, "bool:[1, 1, 0]; bool:[1, 0, ?]", "[0, 1, ?]"),
        ];
        for (def, inputs, expected) in rows {
            assert_eq!(infer_value(def, 14, &[], inputs), expected, "{} of {inputs}", def.name);
        }
        assert_eq!(infer_value(&MOD, 14, &[("fmod", AttrValue::Int(1))], "-7; 2"), "-1");
    }
}
