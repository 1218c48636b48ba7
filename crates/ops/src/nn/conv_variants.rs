//! Relatives of the convolution.

use crate::def::OpDef;
use crate::facts::{ALL_IR4, FLOATS, FLOATS_IR4, input, int, ints, output, string, types};

pub(crate) static COL2IM: OpDef = OpDef::new("Col2Im")
    .about("Adds columns of blocks back to the images that they were taken from; blocks may overlap. The inverse of \
         unfolding an image into blocks.").since(
    18,
    &[
        input("input", "T").differentiable(),
        input("image_shape", "tensor(int64)").non_differentiable(),
        input("block_shape", "tensor(int64)").non_differentiable(),
        output("output", "T").differentiable(),
        ints("dilations"),
        ints("pads"),
        ints("strides"),
        types("T", ALL_IR4),
    ],
);

pub(crate) static CONV_TRANSPOSE: OpDef = OpDef::new("ConvTranspose")
    .about("The transpose of a convolution: each element of the input is spread over the window of the kernel. The size \
         of the output is computed from the pads, or the pads from `output_shape`.")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_string("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("output_padding"),
            ints("output_shape"),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            output("Y", "T").differentiable(),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static DEFORM_CONV: OpDef = OpDef::new("DeformConv")
    .about("A convolution whose kernel looks at places that an input shifts, each with a weight of its own if there is a \
         mask. Between elements values are interpolated.")
    .since(
        19,
        &[
            input("X", "T"),
            input("W", "T"),
            input("offset", "T"),
            input("B", "T").optional(),
            input("mask", "T").optional(),
            output("Y", "T"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            int("offset_group").or(1),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)]);
