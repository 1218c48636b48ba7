//! Integers and small floats in the place of floats, and computing with them.

use sardonyx_tensor::DataType::{
    Bfloat16, Float, Float4e2m1, Float6e2m3, Float6e3m2, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2,
    Float8e5m2fnuz, Float8e8m0, Float16, Int2, Int4, Int8, Int16, Int32, Uint2, Uint4, Uint8,
    Uint16,
};

use crate::def::OpDef;
use crate::facts::{input, int, ints, output, string, types, without_types};
use crate::typeset::TypeSet;

/// What is quantized to, by the IR version that brought the last of its types.
const BYTES: TypeSet = TypeSet::tensors(&[Int8, Uint8]);
const CODES_IR9: TypeSet = BYTES.and(TypeSet::tensors(&[
    Float8e4m3fn,
    Float8e4m3fnuz,
    Float8e5m2,
    Float8e5m2fnuz,
]));
const CODES_IR10: TypeSet = CODES_IR9.and(TypeSet::tensors(&[Int16, Uint16, Int4, Uint4]));
const CODES_IR11: TypeSet = CODES_IR10.and(TypeSet::tensors(&[Float4e2m1]));
const CODES_IR13: TypeSet = CODES_IR11.and(TypeSet::tensors(&[Int2, Uint2]));
const CODES_IR14: TypeSet = CODES_IR13.and(TypeSet::tensors(&[Float6e2m3, Float6e3m2]));
/// What sums of products of bytes are kept in.
const INT32: TypeSet = TypeSet::tensors(&[Int32]);
const SCALES: TypeSet = TypeSet::tensors(&[Float16, Float, Bfloat16]);
const SCALES_IR12: TypeSet = SCALES.and(TypeSet::tensors(&[Float8e8m0]));

pub(crate) static CONV_INTEGER: OpDef = OpDef::new("ConvInteger")
    .about("A convolution of 8-bit integers with zero points, summed up in 32 bits.")
    .since(
        10,
        &[
            input("x", "T1"),
            input("w", "T2"),
            input("x_zero_point", "T1").optional(),
            input("w_zero_point", "T2").optional(),
            output("y", "T3"),
            string("auto_pad").or_string("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", INT32),
        ],
    );

pub(crate) static DEQUANTIZE_LINEAR: OpDef = OpDef::new("DequantizeLinear")
    .about("From quantized integers back to floats: `(x - zero_point) * scale`, with one scale for all, one for each \
         slice of an axis, or one for each block along it.")
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
    .since(
        24,
        &[types(
            "T2",
            SCALES_IR12,
        )],
    )
    .since(
        25,
        &[types(
            "T1",
            CODES_IR13.and(INT32),
        )],
    )
    .since(
        28,
        &[types(
            "T1",
            CODES_IR14.and(INT32),
        )],
    );

pub(crate) static DYNAMIC_QUANTIZE_LINEAR: OpDef = OpDef::new("DynamicQuantizeLinear")
    .about("Quantizes to 8 bits with scale and zero point computed from the smallest and largest element, such that 0 \
         has an exact image.").since(
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

pub(crate) static MATMUL_INTEGER: OpDef = OpDef::new("MatMulInteger")
    .about("A matrix product of 8-bit integers with zero points, summed up in 32 bits.")
    .since(
        10,
        &[
            input("A", "T1").non_differentiable(),
            input("B", "T2").non_differentiable(),
            input("a_zero_point", "T1").optional().non_differentiable(),
            input("b_zero_point", "T2").optional().non_differentiable(),
            output("Y", "T3").non_differentiable(),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", INT32),
        ],
    );

pub(crate) static QLINEAR_CONV: OpDef = OpDef::new("QLinearConv")
    .about("A convolution of quantized tensors: each with its scale and zero point, and so is the result.").since(
    10,
    &[
        input("x", "T1"),
        input("x_scale", "tensor(float)"),
        input("x_zero_point", "T1"),
        input("w", "T2"),
        input("w_scale", "tensor(float)"),
        input("w_zero_point", "T2"),
        input("y_scale", "tensor(float)"),
        input("y_zero_point", "T3"),
        input("B", "T4").optional(),
        output("y", "T3"),
        string("auto_pad").or_string("NOTSET"),
        ints("dilations"),
        int("group").or(1),
        ints("kernel_shape"),
        ints("pads"),
        ints("strides"),
        types("T1", BYTES),
        types("T2", BYTES),
        types("T3", BYTES),
        types("T4", INT32),
    ],
);

pub(crate) static QLINEAR_MATMUL: OpDef = OpDef::new("QLinearMatMul")
    .about("A matrix product of quantized tensors: each with its scale and zero point, and so is the result.")
    .since(
        10,
        &[
            input("a", "T1").non_differentiable(),
            input("a_scale", "tensor(float)").non_differentiable(),
            input("a_zero_point", "T1").non_differentiable(),
            input("b", "T2").non_differentiable(),
            input("b_scale", "tensor(float)").non_differentiable(),
            input("b_zero_point", "T2").non_differentiable(),
            input("y_scale", "tensor(float)").non_differentiable(),
            input("y_zero_point", "T3").non_differentiable(),
            output("y", "T3").non_differentiable(),
            types("T1", BYTES),
            types("T2", BYTES),
            types("T3", BYTES),
        ],
    )
    .since_anew(
        21,
        &[
            input("a", "T1").non_differentiable(),
            input("a_scale", "TS").non_differentiable(),
            input("a_zero_point", "T1").non_differentiable(),
            input("b", "T2").non_differentiable(),
            input("b_scale", "TS").non_differentiable(),
            input("b_zero_point", "T2").non_differentiable(),
            input("y_scale", "TS").non_differentiable(),
            input("y_zero_point", "T3").non_differentiable(),
            output("y", "T3").non_differentiable(),
            types("TS", SCALES),
            types(
                "T1",
                CODES_IR9,
            ),
            types(
                "T2",
                CODES_IR9,
            ),
            types(
                "T3",
                CODES_IR9,
            ),
        ],
    );

pub(crate) static QUANTIZE_LINEAR: OpDef = OpDef::new("QuantizeLinear")
    .about("To integers or small floats of fewer bits: `x / scale + zero_point`, rounded half to even and limited to the \
         range of the type, with one scale for all, for each slice of an axis or for each block along it.")
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
    .since(
        19,
        &[
            input("y_scale", "T1"),
            int("saturate").or(1),
            types("T1", SCALES.and(INT32)),
            types(
                "T2",
                CODES_IR9,
            ),
        ],
    )
    .since(
        21,
        &[
            int("block_size").or(0),
            int("output_dtype").or(0),
            types(
                "T2",
                CODES_IR10,
            ),
        ],
    )
    .since(
        23,
        &[
            input("y_scale", "T2"),
            input("y_zero_point", "T3").optional(),
            output("y", "T3"),
            int("precision").or(0),
            types("T2", SCALES.and(INT32)),
            types(
                "T3",
                CODES_IR11,
            ),
        ],
    )
    .since(
        24,
        &[types(
            "T2",
            SCALES_IR12.and(INT32),
        )],
    )
    .since(
        25,
        &[types(
            "T3",
            CODES_IR13,
        )],
    )
    .since(
        28,
        &[types(
            "T3",
            CODES_IR14,
        )],
    );
