//! `DepthToSpace`, `SpaceToDepth`, `Tile`, `ReverseSequence` and `CenterCropPad`: move blocks of
//! elements.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Int32, Int64};
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::def::OpDef;
use crate::downward::{constant_ints, refuse_other_words};
use crate::facts::{
    ALL, ALL_IR4, FLOATS, input, int, ints, output, string, types, unknown_determinism,
    without_input,
};
use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::math::shape_values::{self, of_input};
use crate::rules::{check_overflow, demand_rank_from};
use crate::sharding::{layers, movement};
use crate::tensor::gradients;
use crate::tensor::{unknown_dims, vector_len};
use crate::typeset::TypeSet;

pub static CENTER_CROP_PAD: OpDef = OpDef::new("CenterCropPad")
    .about(
        "Crops or zero-pads axes to a given size, centered. If the difference is odd, the larger \
         part is removed or added at the end.",
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
    .infer(crate::image::center_crop_pad::infer)
    .body_from(18, center_crop_pad);

pub static DEPTH_TO_SPACE: OpDef = OpDef::new("DepthToSpace")
    .about(
        "Rearranges channels into spatial blocks of height and width. `DCR` takes the block \
         position from the outer part of the channel axis, `CRD` from the inner part. Version 1 is \
         `DCR`.",
    )
    .since(
        1,
        &[input("input", "T"), output("output", "T"), int("blocksize").required(), types("T", ALL)],
    )
    .since(11, &[string("mode").or_word("DCR")])
    .same_up()
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(28, &[unknown_determinism()])
    .same()
    .infer(infer_depth_to_space)
    .adapter(11, 10, split_inner_blocks)
    .body_from(28, depth_to_space)
    .gradient(gradients::depth_to_space)
    .split_by(layers::batch);

pub(crate) static REVERSE_SEQUENCE: OpDef = OpDef::new("ReverseSequence")
    .about(
        "Reverses the first `sequence_lens[i]` elements of each sequence of a batch; the rest are \
         copied.",
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
    .since(28, &[types("T", ALL_IR4)])
    .widens()
    .infer(reverse_sequence)
    .gradient(gradients::reverse_sequence);

pub static SPACE_TO_DEPTH: OpDef = OpDef::new("SpaceToDepth")
    .about("Rearranges spatial blocks of height and width into channels. The inverse of `DepthToSpace` \
         with mode `DCR`.")
    .since(
        1,
        &[input("input", "T"), output("output", "T"), int("blocksize").required(), types("T", ALL)],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .since(28, &[string("mode").or_word("DCR"), unknown_determinism()])
    .same_up()
    .infer(infer_space_to_depth)
    .adapter(28, 27, |cx| refuse_other_words(cx, "mode", &["DCR"]))
    .body_from(28, space_to_depth)
    .gradient(gradients::space_to_depth)
    .split_by(layers::batch);

pub static TILE: OpDef = OpDef::new("Tile")
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
        &[without_input("tiles"), without_input("axis"), input("repeats", "T1"), types("T", ALL)],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("repeats", "T1").non_differentiable(),
            output("output", "T").differentiable(),
            types("T", ALL_IR4),
        ],
    )
    .widens()
    .infer(tile_one_axis)
    .infer_since(6, tile)
    .adapter(5, 6, repeat_one_axis)
    .adapter(6, 5, write_axis_and_times)
    .shapes_by(&[1])
    .gradient(gradients::tile)
    .split_by(movement::tile);

fn center_crop_pad(cx: &Expand<'_>) -> Option<String> {
    let some_axes = cx.has("axes");
    // Makes the sizes of the axes that are cropped or padded, under a name.
    let sizes = |name: &str, of: &str| {
        if some_axes {
            format!("all_{name} = Shape ({of})\n{name} = Gather (all_{name}, axes)\n")
        } else {
            format!("{name} = Shape ({of})\n")
        }
    };
    let (axes, pad_axes, slice_axes) = if some_axes {
        ("axes = Constant <value_ints: ints = @axes> ()\n", ", \"\", axes", ", axes")
    } else {
        ("", "", "")
    };
    // The sizes of the tensor are int64, and so the wanted ones must be too.
    let is_narrow = cx.elem(1) == Some(Int32.number().into());
    let (wanted, cast) =
        if is_narrow { ("wanted", "wanted = Cast <to = 7> (shape)\n") } else { ("shape", "") };
    let two = vector("two", &[2]);
    let (before, between) = (sizes("found", "input_data"), sizes("padded_sizes", "padded"));
    Some(format!(
        "{two}{axes}{before}{cast}
        larger = Max (found, {wanted})
        missing = Sub (larger, found)
        left = Div (missing, two)
        right = Sub (missing, left)
        pads = Concat <axis = 0> (left, right)
        padded = Pad (input_data, pads{pad_axes})
        {between}
        surplus = Sub (padded_sizes, {wanted})
        starts = Div (surplus, two)
        ends = Add (starts, {wanted})
        output_data = Slice (padded, starts, ends{slice_axes})"
    ))
}

/// Replaces blocks from the inner part of the channels, since version 1 takes them from the outer
/// part: splits axes, moves them, and joins them again.
fn split_inner_blocks(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.string("mode").as_deref() != Some("CRD") {
        return refuse_other_words(cx, "mode", &["DCR"]);
    }
    let block = cx.int("blocksize").filter(|block| *block > 0);
    let shape = cx.input_type(0).and_then(|ty| ty.shape());
    let sizes = shape.filter(|shape| shape.len() == 4).and_then(|shape| {
        shape[1..].iter().map(|size| size.known().filter(|size| *size > 0)).collect()
    });
    let (Some(block), Some::<Vec<i64>>(sizes)) = (block, sizes) else {
        return Err(cx.refuse(
            "mode must have value DCR where channels, height and width are not known, not CRD",
        ));
    };
    let &[channels, height, width] = &sizes[..] else {
        return Err(cx.refuse("its input must have rank 4"));
    };
    let area = block.checked_mul(block).filter(|area| channels % area == 0);
    let (Some(area), Some(high), Some(wide)) =
        (area, height.checked_mul(block), width.checked_mul(block))
    else {
        return Err(cx.refuse("its channels cannot be divided into blocks"));
    };
    // A size of 0 copies that of the input, so the batch may be unknown.
    let split = cx.add_ints(&[0, channels / area, block, block, height, width]);
    let joined = cx.add_ints(&[0, channels / area, high, wide]);
    let parts = cx.before("Reshape", &[cx.input(0), Some(split)], &[]);
    let order = [("perm", AttrValue::from(&[0i64, 1, 4, 2, 5, 3][..]))];
    let moved = cx.before("Transpose", &[Some(parts)], &order);
    cx.clear_attributes();
    cx.become_operator("Reshape");
    cx.set_inputs(&[Some(moved), Some(joined)]);
    Ok(())
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
    build_rearranged(cx, sizes, &format!("n, {split}, h, w"), perm)
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
    build_rearranged(cx, sizes, "n, c, height, block, width, block", perm)
}

/// Splits axes, moves them, and joins them to `n`, `channels`, `height` and `width`.
fn build_rearranged(cx: &Expand<'_>, sizes: &str, split: &str, perm: &str) -> Option<String> {
    let block = cx.int("blocksize").filter(|block| *block > 0)?;
    let constants = [("block", block), ("area", block.checked_mul(block)?), ("at_0", 0)];
    let bounds = [("at_1", 1), ("at_2", 2), ("at_3", 3), ("at_4", 4)];
    let constants: String =
        constants.iter().chain(&bounds).map(|(name, value)| vector(name, &[*value])).collect();
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

/// Returns the side and the area of a block.
fn block(cx: &Infer<'_>) -> Result<Option<(Dim, Dim)>, InferError> {
    let Some(side) = cx.int("blocksize") else {
        return Ok(None);
    };
    if side < 1 {
        return cx.fail(format_args!("blocksize must be positive, not {side}"));
    }
    let side = Dim::Known(side);
    let area = check_overflow(cx, "the area of a block", side.mul(&side), &[])?;
    Ok(Some((side, area)))
}

/// Divides a size into parts, which must leave no rest.
fn parts(cx: &Infer<'_>, size: &Dim, part: &Dim, axis: usize) -> Result<Dim, InferError> {
    if size.rem(part).known().is_some_and(|rest| rest != 0) {
        return cx.fail(format_args!(
            "axis {axis} of size {size} cannot be divided into parts of {part}"
        ));
    }
    Ok(cx.quotient(size, part))
}

fn infer_depth_to_space(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_blocks(cx, |cx, [batch, channels, height, width], side, area| {
        let grown = |size: &Dim| check_overflow(cx, "a size", size.mul(side), &[size]);
        let channels = parts(cx, channels, area, 1)?;
        Ok([batch.clone(), channels, grown(height)?, grown(width)?])
    })
}

fn infer_space_to_depth(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_blocks(cx, |cx, [batch, channels, height, width], side, area| {
        let channels = check_overflow(cx, "the channels", channels.mul(area), &[channels])?;
        let (height, width) = (parts(cx, height, side, 2)?, parts(cx, width, side, 3)?);
        Ok([batch.clone(), channels, height, width])
    })
}

/// Infers the output of an operator on blocks: `sizes` computes its four sizes from those of the
/// input, and from the side and the area of a block.
fn infer_blocks(
    cx: &mut Infer<'_>,
    sizes: impl Fn(&Infer<'_>, &[Dim; 4], &Dim, &Dim) -> Result<[Dim; 4], InferError>,
) -> Result<(), InferError> {
    let block = block(cx)?;
    cx.demand_rank(0, 4)?;
    let nothing_known = unknown_dims(4);
    let data = cx.shape(0).unwrap_or(&nothing_known);
    let shape = match (data[..].first_chunk(), block) {
        (Some(data), Some((side, area))) => sizes(cx, data, &side, &area)?.into_iter().collect(),
        _ => nothing_known,
    };
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

fn reverse_sequence(cx: &mut Infer<'_>) -> Result<(), InferError> {
    demand_rank_from(cx, 0, 2)?;
    cx.demand_rank(1, 1)?;
    let axes = [("batch_axis", 1), ("time_axis", 0)].map(|(name, default)| {
        let axis = cx.int(name).unwrap_or(default);
        match usize::try_from(axis).ok().filter(|axis| *axis < 2) {
            Some(axis) => Ok(axis),
            None => cx.fail(format_args!("{name} must be 0 or 1, not {axis}")),
        }
    });
    let [batch, time] = axes;
    let (batch, time) = (batch?, time?);
    if batch == time {
        return cx.fail(format_args!("batch_axis and time_axis are both {batch}"));
    }
    let mut shape = cx.shape(0).cloned();
    if let (Some(shape), Some([count])) = (&mut shape, cx.shape(1).map(|shape| &shape[..])) {
        shape[batch] = cx.same_dim(&shape[batch], count, "the batch and the number of lengths")?;
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Infers `Tile` of version 1, which repeats along one axis.
fn tile_one_axis(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let number = |index: usize| {
        let mut values = of_input(cx, index)?.values;
        values.pop().filter(|_| values.is_empty())
    };
    let shape = match (cx.shape(0), number(2).and_then(|axis| axis.known())) {
        (Some(data), Some(axis)) => {
            let axis = cx.axis(axis, data.len())?;
            let mut shape = data.clone();
            shape[axis] = repeat_size(cx, &data[axis], &number(1).unwrap_or(Dim::Unknown), axis)?;
            Some(shape)
        }
        (Some(data), None) => Some(unknown_dims(data.len())),
        (None, _) => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn tile(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(1, 1)?;
    let repeats = cx.known_ints(1);
    let shape = match (cx.shape(0), vector_len(cx, 1)) {
        (Some(data), Some(count)) if count != data.len() => {
            return cx.fail(format_args!("repeats has {count} elements for {} axes", data.len()));
        }
        (Some(data), _) => data.clone(),
        (None, Some(count)) => unknown_dims(count),
        (None, None) => {
            cx.set_tensor(0, cx.elem(0), None);
            return Ok(());
        }
    };
    let tiled = shape.iter().enumerate().map(|(axis, size)| {
        let times = repeats.as_ref().and_then(|repeats| repeats.get(axis));
        repeat_size(cx, size, times.unwrap_or(&Dim::Unknown), axis)
    });
    let tiled: Shape = tiled.collect::<Result<_, _>>()?;
    cx.set_tensor(0, cx.elem(0), Some(tiled.clone()));
    if let (Some(ints), Some(dims)) = (of_input(cx, 0), shape_values::sizes(&tiled)) {
        let values = ints.pick(dims, |index| {
            let axes = index.iter().zip(&ints.dims);
            axes.map(|(index, size)| index.checked_rem(*size)).collect()
        });
        shape_values::set_if(cx, values);
    }
    Ok(())
}

fn repeat_size(cx: &Infer<'_>, size: &Dim, times: &Dim, axis: usize) -> Result<Dim, InferError> {
    if times.known().is_some_and(|times| times < 0) {
        return cx.fail(format_args!("axis {axis} is repeated {times} times"));
    }
    check_overflow(cx, "a size", size.mul(times), &[size, times])
}

/// Replaces the inputs of version 1, which repeats along one axis: both numbers are tensors of the
/// type of the data with one element.
fn repeat_one_axis(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let are_known = (1..3).all(|index| cx.constant(index).is_some());
    if cx.runs() && !(are_known && cx.rank(0).is_some()) {
        compute_repeats(cx);
        return Ok(());
    }
    let Some(rank) = cx.rank(0) else {
        return Err(cx.refuse("the rank of the input is unknown"));
    };
    let number = |index: usize, name: &str| {
        let tensor = cx
            .constant(index)
            .ok_or_else(|| cx.refuse(format_args!("{name} is not a constant")))?;
        whole_number(&tensor)
            .ok_or_else(|| cx.refuse(format_args!("{name} is not one non-negative integer")))
    };
    let (tiles, axis) = (number(1, "tiles")?, number(2, "axis")?);
    let mut repeats = vec![1; rank];
    match usize::try_from(axis).ok().and_then(|axis| repeats.get_mut(axis)) {
        Some(times) => *times = tiles,
        None => return Err(cx.refuse(format_args!("axis {axis} is out of range for rank {rank}"))),
    }
    let repeats = cx.add_ints(&repeats);
    cx.set_inputs(&[cx.input(0), Some(repeats)]);
    Ok(())
}

/// Adds nodes that compute the repeats of all axes from one axis and its number.
fn compute_repeats(cx: &mut Adapt<'_>) {
    let one = cx.add_ints(&[1]);
    let int64 = || [("to", AttrValue::Int(Int64.number().into()))];
    let [tiles, axis] = [1, 2].map(|index| {
        let number = cx.before("Cast", &[cx.input(index)], &int64());
        cx.before("Reshape", &[Some(number), Some(one)], &[])
    });
    let shape = cx.before("Shape", &[cx.input(0)], &[]);
    let rank = cx.before("Shape", &[Some(shape)], &[]);
    let others = cx.before("Sub", &[Some(rank), Some(axis)], &[]);
    let after = cx.before("Sub", &[Some(others), Some(one)], &[]);
    let [before, after] =
        [axis, after].map(|count| cx.before("Tile", &[Some(one), Some(count)], &[]));
    let all = [Some(before), Some(tiles), Some(after)];
    let repeats = cx.before("Concat", &all, &[("axis", AttrValue::Int(0))]);
    cx.set_inputs(&[cx.input(0), Some(repeats)]);
}

/// Refuses repeats along several axes, which version 1 lacks, and gives times and axis the type of
/// the data.
fn write_axis_and_times(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let repeats = constant_ints(cx, 1, "repeats")?.unwrap_or_default();
    let mut repeated = (0i64..).zip(&repeats).filter(|(_, times)| **times != 1);
    let (axis, times) = repeated.next().map_or((0, 1), |(axis, times)| (axis, *times));
    if repeats.is_empty() || repeated.next().is_some() {
        return Err(cx.refuse("version 1 repeats along one axis"));
    }
    let elem = cx.input_type(0).and_then(|ty| ty.elem());
    let number = |value: i64| {
        let tensor = cast(&Tensor::scalar(value), elem?, CastOptions::default()).ok()?;
        (whole_number(&tensor) == Some(value)).then_some(tensor)
    };
    let (Some(times), Some(axis)) = (number(times), number(axis)) else {
        return Err(cx.refuse(
            "times and axis have the element type of the input in that version, which \
             cannot represent them or is unknown",
        ));
    };
    let (times, axis) = (cx.add_constant(times), cx.add_constant(axis));
    cx.set_inputs(&[cx.input(0), Some(times), Some(axis)]);
    Ok(())
}

/// Returns the only element of a tensor, if it is a non-negative whole number.
fn whole_number(tensor: &Tensor) -> Option<i64> {
    if tensor.len() != 1 {
        return None;
    }
    let wide = cast(tensor, DataType::Double, CastOptions::default()).ok()?;
    let &[number] = wide.as_slice::<f64>().ok()? else {
        return None;
    };
    // Up to this bound every whole number has an exact float.
    let most = (1u64 << f64::MANTISSA_DIGITS) as f64;
    (number.fract() == 0.0 && (0.0..=most).contains(&number)).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrValue::Int;
    use crate::math::testing::infer_value;
    use crate::tensor::testing::check;

    #[test]
    fn blocks_change_sizes() {
        let side = |side| ("blocksize", Int(side));
        check(
            &DEPTH_TO_SPACE,
            13,
            &[
                (&[side(2)], "float[N, 12, H, 3]", "float[N, 3, 2*H, 6]"),
                (&[side(2)], "-", "?[?, ?, ?, ?]"),
                (&[], "float[N, 12, H, 3]", "float[?, ?, ?, ?]"),
                (
                    &[side(2)],
                    "float[N, 6, H, 3]",
                    "DepthToSpace: axis 1 of size 6 cannot be divided into parts of 4",
                ),
                (
                    &[side(0)],
                    "float[N, 12, H, 3]",
                    "DepthToSpace: blocksize must be positive, not 0",
                ),
                (&[side(1 << 32)], "-", "DepthToSpace: the area of a block overflows 64 bits"),
                (&[side(2)], "float[N, 12, H]", "DepthToSpace: input 0 must have rank 4, not 3"),
            ],
        );
        check(
            &SPACE_TO_DEPTH,
            1,
            &[
                (&[side(2)], "float[N, C, 4, 6]", "float[N, 4*C, 2, 3]"),
                (
                    &[side(2)],
                    "float[N, C, 5, 6]",
                    "SpaceToDepth: axis 2 of size 5 cannot be divided into parts of 2",
                ),
                (
                    &[side(2)],
                    "float[N, 9223372036854775807, 4, 6]",
                    "SpaceToDepth: the channels overflows 64 bits",
                ),
            ],
        );
    }

    #[test]
    fn sequences_keep_their_shape() {
        let axes = |batch, time| [("batch_axis", Int(batch)), ("time_axis", Int(time))];
        check(
            &REVERSE_SEQUENCE,
            10,
            &[
                (&[], "float[4, B, 6]; int64[5]", "float[4, 5, 6]"),
                (&axes(0, 1), "float[?, 5]; int64[B]", "float[B, 5]"),
                (&[], "-; int64[5]", "?[...]"),
                (
                    &[],
                    "float[4, 6]; int64[5]",
                    "ReverseSequence: the batch and the number of lengths differ (6 and 5)",
                ),
                (
                    &axes(1, 1),
                    "float[4, 6]; int64[6]",
                    "ReverseSequence: batch_axis and time_axis are both 1",
                ),
                (
                    &axes(2, 1),
                    "float[4, 6]; int64[6]",
                    "ReverseSequence: batch_axis must be 0 or 1, not 2",
                ),
                (
                    &[],
                    "float[4]; int64[4]",
                    "ReverseSequence: input 0 must have rank 2 or more, not 1",
                ),
                (&[], "float[4, 6]; int64", "ReverseSequence: input 1 must have rank 1, not 0"),
            ],
        );
    }

    #[test]
    fn repeats_multiply_sizes() {
        check(
            &TILE,
            13,
            &[
                (&[], "float[4, N]; =[2, 3]", "float[8, 3*N]"),
                (&[], "float[4, ?]; =[R, 0]", "float[4*R, 0]"),
                (&[], "float[4, N]; int64[2]", "float[?, ?]"),
                (&[], "float[...]; int64[2]", "float[?, ?]"),
                (&[], "float[...]; -", "float[...]"),
                (&[], "float[4]; =[2, 3]", "Tile: repeats has 2 elements for 1 axes"),
                (&[], "float[4]; =[-1]", "Tile: axis 0 is repeated -1 times"),
                (&[], "float[2]; =[9223372036854775807]", "Tile: a size overflows 64 bits"),
                (&[], "float[4]; =2", "Tile: input 1 must have rank 1, not 0"),
            ],
        );
        assert_eq!(infer_value(&TILE, 13, &[], "[[N, 2]]; [2, 2]"), "[[N, 2, N, 2], [N, 2, N, 2]]");
        check(
            &TILE,
            1,
            &[
                (&[], "float[4, N]; =float:3; =float:1", "float[4, 3*N]"),
                (&[], "float[4, N]; float; =float:1", "float[4, ?]"),
                (&[], "float[4, N]; float; float", "float[?, ?]"),
                (&[], "float[4]; float; =float:1", "Tile: axis 1 is out of range for rank 1"),
            ],
        );
    }
}
