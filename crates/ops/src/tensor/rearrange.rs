//! Moving whole blocks: between channels and places, around the middle, over and over, backwards.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, input, int, ints, output, string, types, unknown_determinism,
    without_input,
};
use crate::typeset::TypeSet;

pub(crate) static CENTER_CROP_PAD: OpDef = OpDef::new("CenterCropPad")
    .about(
        "Cuts axes down to a size around their middle, or fills them up with zeros on both sides.",
    )
    .since(
        18,
        &[
            input("input_data", "T").differentiable(),
            input("shape", "Tind").non_differentiable(),
            output("output_data", "T").differentiable(),
            ints("axes"),
            types("T", ALL_IR4),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    );

pub(crate) static DEPTH_TO_SPACE: OpDef = OpDef::new("DepthToSpace")
    .about("Moves channels into blocks of height and width. `DCR` takes the block from the outer part of the channels, \
         `CRD` from the inner one.")
    .since(
        1,
        &[
            input("input", "T"),
            output("output", "T"),
            int("blocksize").required(),
            types("T", ALL),
        ],
    )
    .since(11, &[string("mode").or_string("DCR")])
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .since(28, &[ unknown_determinism()]);

pub(crate) static REVERSE_SEQUENCE: OpDef = OpDef::new("ReverseSequence")
    .about(
        "Turns the first elements of each sequence of a batch around, as many as its length says.",
    )
    .since(
        10,
        &[
            input("input", "T"),
            input("sequence_lens", "tensor(int64)"),
            output("Y", "T"),
            int("batch_axis").or(1),
            int("time_axis").or(0),
            types("T", ALL),
        ],
    )
    .since(28, &[types("T", ALL_IR4)]);

pub(crate) static SPACE_TO_DEPTH: OpDef = OpDef::new("SpaceToDepth")
    .about("Moves blocks of height and width into channels.")
    .since(
        1,
        &[
            input("input", "T"),
            output("output", "T"),
            int("blocksize").required(),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .since(
        28,
        &[string("mode").or_string("DCR"), unknown_determinism()],
    );

pub(crate) static TILE: OpDef = OpDef::new("Tile")
    .about("Repeats a tensor along each axis.")
    .since(
        1,
        &[
            input("input", "T"),
            input("tiles", "T"),
            input("axis", "T"),
            output("output", "T"),
            types("T", FLOATS),
            types("T1", TypeSet::tensors(&[Int64])),
        ],
    )
    .since(
        6,
        &[
            without_input("tiles"),
            without_input("axis"),
            input("repeats", "T1"),
            types("T", ALL),
        ],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("repeats", "T1").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    );
