//! `QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`: conversion between floats and
//! quantized values by scale and zero point.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Float, Int32, Uint8};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use super::{
    BYTES, CODES_IR9, CODES_IR10, CODES_IR11, CODES_IR13, CODES_IR14, INT32, SCALES, SCALES_IR12,
    check_zero_point,
};
use crate::adapt::{Adapt, Refusal};
use crate::attributes::Attributes;
use crate::def::OpDef;
use crate::facts::{input, int, output, types, without_types};
use crate::infer::{Infer, InferError};
use crate::rules::elem_attribute;
use crate::sharding::elements;
use crate::typeset::TypeSet;

pub static DEQUANTIZE_LINEAR: OpDef = OpDef::new("DequantizeLinear")
    .about("Dequantizes: `y = (x - x_zero_point) * x_scale`. There is one scale for the tensor, one \
         for each slice of `axis` (since version 13), or one for each block along it (since version \
         21).")
    .since(
        10,
        &[
            input("x", "T"),
            input("x_scale", "tensor(float)"),
            input("x_zero_point", "T").optional(),
            output("y", "tensor(float)"),
            types("T", BYTES.and(INT32)),
        ],
    )
    .since(13, &[int("axis").or(1)])
    .same_up()
    .since(
        19,
        &[
            input("x", "T1"),
            input("x_scale", "T2"),
            input("x_zero_point", "T1").optional(),
            output("y", "T2"),
            without_types("T"),
            types(
                "T1",
                CODES_IR9.and(INT32),
            ),
            types("T2", SCALES),
        ],
    )
    .widens()
    .since(
        21,
        &[
            int("block_size").or(0),
            types(
                "T1",
                CODES_IR10.and(INT32),
            ),
        ],
    )
    .same_up()
    .types_down()
    .since(
        23,
        &[
            output("y", "T3"),
            int("output_dtype").or(0),
            types(
                "T1",
                CODES_IR11.and(INT32),
            ),
            types("T3", SCALES),
        ],
    )
    .same_up()
    .since(
        24,
        &[types(
            "T2",
            SCALES_IR12,
        )],
    )
    .widens()
    .since(
        25,
        &[types(
            "T1",
            CODES_IR13.and(INT32),
        )],
    )
    .widens()
    .since(
        28,
        &[types(
            "T1",
            CODES_IR14.and(INT32),
        )],
    )
    .widens()
    .adapter(13, 12, demand_one_scale)
    .adapter(23, 22, |cx| drop_elem(cx, "output_dtype", 1))
.infer(infer_dequantize)
    .infer_as_reference(infer_dequantize_as_reference)
    .split_by(elements::quantize);

pub(crate) static DYNAMIC_QUANTIZE_LINEAR: OpDef = OpDef::new("DynamicQuantizeLinear")
    .about(
        "Quantizes to uint8 with a scale and zero point computed from the data. The range is \
         extended to contain 0: `y_scale = (max(0, max(x)) - min(0, min(x))) / 255`, `y_zero_point \
         = round(-min(0, min(x)) / y_scale)`. Rounds half to even and saturates to 0 to 255.",
    )
    .since(
        11,
        &[
            input("x", "T1"),
            output("y", "T2"),
            output("y_scale", "tensor(float)"),
            output("y_zero_point", "T2"),
            types("T1", TypeSet::tensors(&[Float])),
            types("T2", TypeSet::tensors(&[Uint8])),
        ],
    )
    .infer(infer_dynamic_quantize)
    .body(
        &[11],
        "first = Constant <value = float {0}> ()
    last = Constant <value = float {255}> ()
    smallest = ReduceMin <keepdims = 0> (x)
    low = Min (smallest, first)
    largest = ReduceMax <keepdims = 0> (x)
    high = Max (largest, first)
    distance = Sub (high, low)
    scale = Div (distance, last)
    steps = Div (low, scale)
    place = Sub (first, steps)
    within = Clip (place, first, last)
    rounded = Round (within)
    zero_point = Cast <to = 2> (rounded)
    y_scale = Identity (scale)
    y_zero_point = Identity (zero_point)
    y = QuantizeLinear (x, scale, zero_point)",
    );

pub static QUANTIZE_LINEAR: OpDef = OpDef::new("QuantizeLinear")
    .about(
        "Quantizes: `y = saturate(round(x / y_scale) + y_zero_point)`. Rounds half to even. There \
         is one scale for the tensor, one for each slice of `axis` (since version 13), or one for \
         each block along it (since version 21).",
    )
    .since(
        10,
        &[
            input("x", "T1"),
            input("y_scale", "tensor(float)"),
            input("y_zero_point", "T2").optional(),
            output("y", "T2"),
            types("T1", TypeSet::tensors(&[Float, Int32])),
            types("T2", BYTES),
        ],
    )
    .since(13, &[int("axis").or(1)])
    .same_up()
    .since(
        19,
        &[
            input("y_scale", "T1"),
            int("saturate").or(1),
            types("T1", SCALES.and(INT32)),
            types("T2", CODES_IR9),
        ],
    )
    .same_up()
    .since(21, &[int("block_size").or(0), int("output_dtype").or(0), types("T2", CODES_IR10)])
    .same_up()
    .since(
        23,
        &[
            input("y_scale", "T2"),
            input("y_zero_point", "T3").optional(),
            output("y", "T3"),
            int("precision").or(0),
            types("T2", SCALES.and(INT32)),
            types("T3", CODES_IR11),
        ],
    )
    .same_up()
    .since(24, &[types("T2", SCALES_IR12.and(INT32))])
    .widens()
    .since(25, &[types("T3", CODES_IR13)])
    .widens()
    .since(28, &[types("T3", CODES_IR14)])
    .widens()
    .adapter(13, 12, demand_one_scale)
    .adapter(19, 18, |cx| {
        // The attribute concerns the types that came with it.
        cx.remove("saturate");
        Ok(())
    })
    .adapter(21, 20, write_zero_point)
    .adapter(23, 22, |cx| drop_elem(cx, "precision", 1))
    .infer(infer_quantize)
    .infer_as_reference(infer_quantize_as_reference)
    .split_by(elements::quantize);

fn infer_dynamic_quantize(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.set_tensor(0, Some(Uint8), cx.shape(0).cloned());
    cx.set_tensor(1, Some(Float), Some(Shape::new()));
    cx.set_tensor(2, Some(Uint8), Some(Shape::new()));
    Ok(())
}

/// Infers the type from the zero point or from `output_dtype`; without both it is `uint8`.
fn infer_quantize(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_quantize_as_reference(cx)?;
    check_scales(cx)
}

/// Infers like the reference implementation, which ignores the shapes of scales and zero points.
fn infer_quantize_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let given = output_type(cx)?;
    let elem = match (cx.elem(2), given) {
        (Some(zero_point), Some(given)) if zero_point != given => {
            return cx
                .fail(format_args!("output_dtype is {given}, but the zero point is {zero_point}"));
        }
        (Some(elem), _) | (None, Some(elem)) => Some(elem),
        (None, None) if cx.has_input(2) => None,
        (None, None) => Some(Uint8),
    };
    cx.set_tensor(0, elem, cx.shape(0).cloned());
    Ok(())
}

/// Infers the type from `output_dtype` or from the scale, which was always float in the first
/// versions.
fn infer_dequantize(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_dequantize_as_reference(cx)?;
    check_scales(cx)
}

/// Infers like the reference implementation, which ignores the shapes of scales and zero points.
fn infer_dequantize_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_zero_point(cx, 0, 2)?;
    let elem = match cx.since() {
        ..19 => Some(Float),
        _ => output_type(cx)?.or(cx.elem(1)),
    };
    cx.set_tensor(0, elem, cx.shape(0).cloned());
    Ok(())
}

/// Returns the type that `output_dtype` sets; 0 sets none.
fn output_type(cx: &Infer<'_>) -> Result<Option<DataType>, InferError> {
    match cx.int("output_dtype") {
        Some(0) => Ok(None),
        _ => elem_attribute(cx, "output_dtype"),
    }
}

/// Checks that there is one scale for all elements, one for each slice of an axis, or one for each
/// block along it, and as many zero points.
fn check_scales(cx: &Infer<'_>) -> Result<(), InferError> {
    const NAMES: [(usize, &str); 2] = [(1, "scales"), (2, "zero points")];
    let block = cx.int("block_size").unwrap_or(0);
    if block < 0 {
        return cx.fail(format_args!("block_size must not be negative, not {block}"));
    }
    for (input, name) in NAMES {
        let (Some(x), Some(found)) = (cx.shape(0), cx.shape(input)) else {
            continue;
        };
        // Implementations accept a single one even with an axis.
        let is_one = match &found[..] {
            [] => true,
            [size] => block == 0 && size.known().is_none_or(|size| size == 1),
            _ => false,
        };
        if is_one {
            continue;
        }
        if cx.since() < 13 {
            cx.demand_rank(input, 0)?;
        }
        let axis = cx.axis(cx.int("axis").unwrap_or(1), x.len())?;
        if block == 0 {
            cx.demand_rank(input, 1)?;
            let what = format_args!("{name} and slices of axis {axis}");
            cx.same_dim(&found[0], &x[axis], what)?;
            continue;
        }
        cx.demand_rank(input, x.len())?;
        for (at, (found, size)) in found.iter().zip(x).enumerate() {
            let blocks = if at == axis { size.ceil_div(&Dim::Known(block)) } else { size.clone() };
            cx.same_dim(found, &blocks, format_args!("{name} and blocks along axis {at}"))?;
        }
    }
    Ok(())
}

/// Refuses several scales, since version 10 has one for all elements.
fn demand_one_scale(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let scale = cx.input_type(1).and_then(|ty| ty.shape());
    if !scale.is_some_and(|scale| scale.iter().all(|size| size.known() == Some(1))) {
        return Err(cx.refuse(
            "version 10 supports only one scale, and there are more, or the shape is unknown",
        ));
    }
    cx.remove("axis");
    Ok(())
}

/// Removes an attribute that repeats the element type of an input.
fn drop_elem(cx: &mut Adapt<'_>, name: &str, index: usize) -> Result<(), Refusal> {
    let elem = cx.input_type(index).and_then(|ty| ty.elem());
    if cx
        .int(name)
        .is_some_and(|number| elem.is_some_and(|elem| i64::from(elem.number()) == number))
    {
        cx.remove(name);
    }
    Ok(())
}

/// Moves the type of the output to the zero point; without either it is uint8.
fn write_zero_point(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let number = cx.int("output_dtype").and_then(|number| i32::try_from(number).ok());
    let Some(elem) = number.and_then(DataType::from_number) else { return Ok(()) };
    if cx.input(2).is_none() && elem != Uint8 {
        let sizes = cx.input_type(1).and_then(|ty| ty.shape());
        let sizes = sizes.and_then(|sizes| sizes.iter().map(|size| size.size()).collect());
        let zero = sizes.and_then(|sizes: Vec<usize>| {
            let zeros = vec![0f32; sizes.iter().product()];
            cast(&Tensor::from_vec(sizes, zeros).ok()?, elem, CastOptions::default()).ok()
        });
        let Some(zero) = zero else {
            return Err(cx.refuse(
                "a zero point of output_dtype requires the sizes of the scale, which are unknown",
            ));
        };
        let zero = cx.add_constant(zero);
        cx.set_input(2, Some(zero));
    }
    cx.remove("output_dtype");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, outputs};

    #[test]
    fn quantized_types_follow_zero_points() {
        // SHAPE-16, SHAPE-22
        for version in QUANTIZE_LINEAR.versions() {
            check(
                &QUANTIZE_LINEAR,
                version.since,
                &[
                    (&[], "float[N, 4, ?]; float; int8", "int8[N, 4, ?]"),
                    (&[], "float[N]; float", "uint8[N]"),
                    (&[], "float[N]; float; _", "uint8[N]"),
                    // The zero point is present, but its type is unknown.
                    (&[], "float[N]; float; -", "?[N]"),
                    (&[], "-; -; _", "uint8[...]"),
                ],
            );
        }
        let uint4 = || [("output_dtype", Int(21))];
        for opset in [21, 23, 24, 25, 28] {
            check(
                &QUANTIZE_LINEAR,
                opset,
                &[
                    (&uint4(), "float[3]; float", "uint4[3]"),
                    (&uint4(), "float[3]; float; -", "uint4[3]"),
                    (
                        &uint4(),
                        "float[3]; float; uint16",
                        "QuantizeLinear: output_dtype is uint4, but the zero point is uint16",
                    ),
                    (
                        &[("output_dtype", Int(99))],
                        "-; -",
                        "QuantizeLinear: output_dtype = 99 is not an element type",
                    ),
                ],
            );
        }
    }

    #[test]
    fn scales_for_slices_and_blocks() {
        let blocks = || [("axis", Int(1)), ("block_size", Int(2))];
        check(
            &QUANTIZE_LINEAR,
            21,
            &[
                (&[], "float[2, 3]; float[3]; int8[3]", "int8[2, 3]"),
                (&[], "float[2, 3]; float[1]", "uint8[2, 3]"),
                (&[], "float[2]; float[?]", "uint8[2]"),
                (&[("axis", Int(-2))], "float[N, 3]; float[2]", "uint8[N, 3]"),
                (&blocks(), "float[2, 5]; float[2, 3]; int8[?, 3]", "int8[2, 5]"),
                (
                    &[],
                    "float[2, 3]; float[2]",
                    "QuantizeLinear: scales and slices of axis 1 differ (2 and 3)",
                ),
                (
                    &[],
                    "float[2, 3]; float; int8[2]",
                    "QuantizeLinear: zero points and slices of axis 1 differ (2 and 3)",
                ),
                (
                    &[("axis", Int(2))],
                    "float[2, 3]; float[2]",
                    "QuantizeLinear: axis 2 is out of range for rank 2",
                ),
                (
                    &blocks(),
                    "float[2, 5]; float[2, 2]",
                    "QuantizeLinear: scales and blocks along axis 1 differ (2 and 3)",
                ),
                (
                    &[("block_size", Int(-1))],
                    "-; -",
                    "QuantizeLinear: block_size must not be negative, not -1",
                ),
            ],
        );
    }

    #[test]
    fn dequantized_types_follow_scales() {
        for version in DEQUANTIZE_LINEAR.versions() {
            let expected = if version.since < 19 { "float[N]" } else { "float16[N]" };
            check(
                &DEQUANTIZE_LINEAR,
                version.since,
                &[
                    (&[], "uint8[N]; float16; uint8", expected),
                    (
                        &[],
                        "uint8[N]; -; int8",
                        "DequantizeLinear: input 0 is uint8, but its zero point, input 2, is int8",
                    ),
                ],
            );
        }
        let row = [(&[("output_dtype", Int(16))][..], "uint8[N]; float", "bfloat16[N]")];
        check(&DEQUANTIZE_LINEAR, 23, &row);
        let found = outputs(&DYNAMIC_QUANTIZE_LINEAR, 11, &[], "float[N, 4]", 3);
        assert_eq!(found, "uint8[N, 4]; float; uint8");
        let found = outputs(&DYNAMIC_QUANTIZE_LINEAR, 11, &[], "-", 3);
        assert_eq!(found, "uint8[...]; float; uint8");
    }
}
