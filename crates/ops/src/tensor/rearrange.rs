//! Moving whole blocks: between channels and places, around the middle, over and over, backwards.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, input, int, ints, output, string, types, unknown_determinism,
    without_input,
};
use crate::function::{Expand, vector};
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
    )
    .body_from(18, center_crop_pad);

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
    .since(28, &[ unknown_determinism()])
    .body_from(28, depth_to_space);

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
    )
    .body_from(28, space_to_depth);

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

fn center_crop_pad(cx: &Expand<'_>) -> Option<String> {
    let some_axes = cx.has("axes");
    // The sizes of the axes in question, under a name.
    let sizes = |name: &str, of: &str| match some_axes {
        true => format!("all_{name} = Shape ({of})\n{name} = Gather (all_{name}, axes)\n"),
        false => format!("{name} = Shape ({of})\n"),
    };
    let (axes, pad_axes, slice_axes) = match some_axes {
        true => (
            "axes = Constant <value_ints: ints = @axes> ()\n",
            ", \"\", axes",
            ", axes",
        ),
        false => ("", "", ""),
    };
    let two = vector("two", &[2]);
    let (before, between) = (
        sizes("found", "input_data"),
        sizes("padded_sizes", "padded"),
    );
    Some(format!(
        "{two}{axes}{before}
        larger = Max (found, shape)
        missing = Sub (larger, found)
        left = Div (missing, two)
        right = Sub (missing, left)
        pads = Concat <axis = 0> (left, right)
        padded = Pad (input_data, pads{pad_axes})
        {between}
        surplus = Sub (padded_sizes, shape)
        starts = Div (surplus, two)
        ends = Add (starts, shape)
        output_data = Slice (padded, starts, ends{slice_axes})"
    ))
}

fn depth_to_space(cx: &Expand<'_>) -> Option<String> {
    let (split, perm) = match cx.string("mode")?.as_str() {
        "DCR" => ("block, block, channels", "0, 3, 4, 1, 5, 2"),
        "CRD" => ("channels, block, block", "0, 1, 4, 2, 5, 3"),
        _ => return None,
    };
    let sizes = "channels = Div (c, area)
        height = Mul (h, block)
        width = Mul (w, block)";
    rearranged(cx, sizes, &format!("n, {split}, h, w"), perm)
}

fn space_to_depth(cx: &Expand<'_>) -> Option<String> {
    let perm = match cx.string("mode")?.as_str() {
        "DCR" => "0, 3, 5, 1, 2, 4",
        "CRD" => "0, 1, 3, 5, 2, 4",
        _ => return None,
    };
    let sizes = "channels = Mul (c, area)
        height = Div (h, block)
        width = Div (w, block)";
    rearranged(cx, sizes, "n, c, height, block, width, block", perm)
}

/// Splits axes, moves them, and joins them to `n`, `channels`, `height` and `width`.
fn rearranged(cx: &Expand<'_>, sizes: &str, split: &str, perm: &str) -> Option<String> {
    let block = cx.int("blocksize").filter(|block| *block > 0)?;
    let constants = [
        ("block", block),
        ("area", block.checked_mul(block)?),
        ("at_0", 0),
    ];
    let bounds = [("at_1", 1), ("at_2", 2), ("at_3", 3), ("at_4", 4)];
    let constants: String = constants
        .iter()
        .chain(&bounds)
        .map(|(name, value)| vector(name, &[*value]))
        .collect();
    Some(format!(
        "{constants}
        found = Shape (input)
        n = Slice (found, at_0, at_1)
        c = Slice (found, at_1, at_2)
        h = Slice (found, at_2, at_3)
        w = Slice (found, at_3, at_4)
        {sizes}
        split = Concat <axis = 0> ({split})
        parts = Reshape <allowzero = 1> (input, split)
        moved = Transpose <perm = [{perm}]> (parts)
        joined = Concat <axis = 0> (n, channels, height, width)
        output = Reshape <allowzero = 1> (moved, joined)"
    ))
}
