//! `AffineGrid`: the coordinates to which affine maps move the points of a regular grid.
//!
//! Since 20. The function treats a plane as a volume of depth 1: the map gets a third row and
//! column, and its result loses the depth again.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::Int64;

use crate::def::OpDef;
use crate::facts::{FLOATS_IR4, input, int, non_deterministic, output, types};
use crate::function::Expand;
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static AFFINE_GRID: OpDef = OpDef::new("AffineGrid")
    .about("Generates a 2D or 3D sampling grid from a batch of affine matrices, for `GridSample`. Each \
         output location is `theta · (x, y, 1)`, or `theta · (x, y, z, 1)` in 3D, where `x`, `y` \
         and `z` are evenly spaced from -1 to 1.")
    .since(
        20,
        &[
            input("theta", "T1").non_differentiable(),
            input("size", "T2").non_differentiable(),
            output("grid", "T1").differentiable(),
            int("align_corners").or(0),
            types("T1", FLOATS_IR4),
            types("T2", TypeSet::tensors(&[Int64])),
            non_deterministic(),
        ],
    )
    .infer(infer)
    .body(
        &[20],
        concat!(
            numbers!(),
            sizes!(),
            maps!(),
            steps!(),
            points!("width", "height", "depth"),
            mapped!()
        ),
    )
    .call_body(build_with_scalar_lengths);

/// Builds the function with scalars for `Range`. The function of the standard has vectors of one
/// element, which the operator does not accept.
#[expect(clippy::unnecessary_wraps, reason = "bodies of other calls may be missing")]
fn build_with_scalar_lengths(_: &Expand<'_>) -> Result<Option<String>, String> {
    let nodes = concat!(
        numbers!(),
        sizes!(),
        maps!(),
        steps!(),
        "x_length = Squeeze (width)
        y_length = Squeeze (height)
        z_length = Squeeze (depth)\n",
        points!("x_length", "y_length", "z_length"),
        mapped!()
    );
    Ok(Some(nodes.to_string()))
}

/// Infers `[N, H, W, 2]` or `[N, D, H, W, 3]`: a point for each position of a grid.
fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = grid_shape(cx)?;
    let is_open = |shape: &Shape| shape[1..].iter().any(Dim::is_unknown);
    if cx.known_value(1).is_none() && shape.as_ref().is_none_or(is_open) {
        cx.set_reason(0, "the values of size");
    }
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn grid_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    cx.demand_rank(0, 3)?;
    cx.demand_rank(1, 1)?;
    let sizes = cx.known_ints(1);
    // `size` begins with batch and channels; `theta` has a row for each spatial axis.
    let rows = shared_dim(cx, "rows", &[(0, 1)])?;
    let count = match &sizes {
        Some(sizes) => sizes.len().into(),
        None => shared_dim(cx, "sizes", &[(1, 0)])?,
    };
    let what = "spatial axes of theta and of size";
    let axes = cx.same_dim(&rows, &count.sub(&Dim::Known(2)), what)?;
    let columns = shared_dim(cx, "columns", &[(0, 2)])?;
    cx.same_dim(&columns, &axes.add(&Dim::Known(1)), "columns of theta and spatial axes and 1")?;
    let spatial = match axes.known() {
        Some(axes @ (2 | 3)) => axes as usize,
        Some(axes) => {
            return cx.fail(format_args!("there are {axes} spatial axes, not 2 or 3"));
        }
        None => return Ok(None),
    };
    let sizes = sizes.unwrap_or_else(|| vec![Dim::Unknown; spatial + 2]);
    let batch = shared_dim(cx, "elements of the batch", &[(0, 0)])?;
    let batch = cx.same_dim(&sizes[0], &batch, "elements of the batch of size and theta")?;
    let mut shape: Shape = [batch].into_iter().collect();
    shape.extend(sizes.into_iter().skip(2));
    shape.push(axes);
    Ok(Some(shape))
}

macro_rules! numbers {
    () => {
        "one = Constant <value_int: int = 1> ()
        two = Constant <value_int: int = 2> ()
        zero = Constant <value_int: int = 0> ()
        four = Constant <value_int: int = 4> ()
        ones = Constant <value_ints: ints = [1]> ()
        zeros = Constant <value_ints: ints = [0]> ()
        last = Constant <value_int: int = -1> ()
        float_minus_one = CastLike (last, theta)
        float_zero = CastLike (zero, theta)
        float_one = CastLike (one, theta)
        float_two = CastLike (two, theta)
        align_corners = Constant <value_int: int = @align_corners> ()
        between_corners = Equal (align_corners, zero)\n"
    };
}

macro_rules! sizes {
    () => {
        "rank = Size (size)
        is_plane = Equal (rank, four)
        batch, channels, depth, height, width = If (is_plane) <
            then_branch = plane () => (n, c, d, h, w) {
                n, c, h, w = Split <num_outputs = 4> (size)
                d = Identity (ones)
            },
            else_branch = body () => (n2, c2, d2, h2, w2) {
                n2, c2, d2, h2, w2 = Split <num_outputs = 5> (size)
            }
        >
        body_size = Concat <axis = 0> (batch, channels, depth, height, width)\n"
    };
}

macro_rules! maps {
    () => {
        "map = If (is_plane) <
            then_branch = plane_map () => (rows) {
                columns = Constant <value_ints: ints = [0, 1, 2, 0, 1, 2]> ()
                two_by_three = Constant <value_ints: ints = [2, 3]> ()
                column_pairs = Reshape (columns, two_by_three)
                each_two_by_three = Concat <axis = 0> (batch, two_by_three)
                each_columns = Expand (column_pairs, each_two_by_three)
                map_rows = GatherElements <axis = 2> (theta, each_columns)
                first_row, second_row = Split <axis = 1, num_outputs = 2> (map_rows)
                first = Squeeze (first_row, ones)
                second = Squeeze (second_row, ones)
                first_x, first_y, first_shift = Split <axis = 1, num_outputs = 3> (first)
                second_x, second_y, second_shift = Split <axis = 1, num_outputs = 3> (second)
                column_size = Shape (second_x)
                empty_float = ConstantOfShape (column_size)
                empty = CastLike (empty_float, theta)
                full = Add (empty, float_one)
                wide_first = Concat <axis = 1> (first_x, first_y, empty, first_shift)
                wide_second = Concat <axis = 1> (second_x, second_y, empty, second_shift)
                wide_third = Concat <axis = 1> (empty, empty, full, empty)
                row_one = Unsqueeze (wide_first, ones)
                row_two = Unsqueeze (wide_second, ones)
                row_three = Unsqueeze (wide_third, ones)
                rows = Concat <axis = 1> (row_one, row_two, row_three)
            },
            else_branch = body_map () => (same) {
                same = Identity (theta)
            }
        >\n"
    };
}

macro_rules! steps {
    () => {
        "twos = Constant <value_ints: ints = [2]> ()
        threes = Constant <value_ints: ints = [3]> ()
        fives = Constant <value_ints: ints = [5]> ()
        volume = Slice (body_size, twos, fives)
        volume_zeros_float = ConstantOfShape (volume)
        volume_zeros = CastLike (volume_zeros_float, theta)
        volume_ones = Add (volume_zeros, float_one)
        float_depth = CastLike (depth, float_zero)
        float_height = CastLike (height, float_zero)
        float_width = CastLike (width, float_zero)
        z_start, z_step, y_start, y_step, x_start, x_step = If (between_corners) <
            then_branch = from_centres () => (z0, dz, y0, dy, x0, dx) {
                dz = Div (float_two, float_depth)
                dy = Div (float_two, float_height)
                dx = Div (float_two, float_width)
                half_dz = Div (dz, float_two)
                z0 = Add (float_minus_one, half_dz)
                half_dy = Div (dy, float_two)
                y0 = Add (float_minus_one, half_dy)
                half_dx = Div (dx, float_two)
                x0 = Add (float_minus_one, half_dx)
            },
            else_branch = from_corners () => (z0c, dzc, y0c, dyc, x0c, dxc) {
                depth_steps = Sub (float_depth, float_one)
                height_steps = Sub (float_height, float_one)
                width_steps = Sub (float_width, float_one)
                is_flat = Equal (depth, one)
                dzc = If (is_flat) <
                    then_branch = flat () => (no_step) {
                        no_step = Identity (float_zero)
                    },
                    else_branch = deep () => (deep_step) {
                        deep_step = Div (float_two, depth_steps)
                    }
                >
                dyc = Div (float_two, height_steps)
                dxc = Div (float_two, width_steps)
                z0c = Identity (float_minus_one)
                y0c = Identity (float_minus_one)
                x0c = Identity (float_minus_one)
            }
        >\n"
    };
}

/// Expands to the points of the grid, given the lengths of its axes.
macro_rules! points {
    ($width:literal, $height:literal, $depth:literal) => {
        concat!(
            along!("x", $width),
            along!("y", $height),
            along!("z", $depth),
            "z_last = Transpose <perm = [1, 2, 0]> (volume_zeros)
            z_spread = Add (z_last, z_places)
            z = Transpose <perm = [2, 0, 1]> (z_spread)
            y_last = Transpose <perm = [0, 2, 1]> (volume_zeros)
            y_spread = Add (y_last, y_places)
            y = Transpose <perm = [0, 2, 1]> (y_spread)
            x = Add (x_places, volume_zeros)
            x_column = Unsqueeze (x, last)
            y_column = Unsqueeze (y, last)
            z_column = Unsqueeze (z, last)
            one_column = Unsqueeze (volume_ones, last)
            points = Concat <axis = -1> (x_column, y_column, z_column, one_column)\n",
        )
    };
}

/// Expands to the coordinates along an axis.
macro_rules! along {
    ($axis:literal, $count:literal) => {
        concat!(
            $axis,
            "_indices = Range (zero, ",
            $count,
            ", one)\n",
            $axis,
            "_floats = CastLike (",
            $axis,
            "_indices, ",
            $axis,
            "_step)\n",
            $axis,
            "_distances = Mul (",
            $axis,
            "_floats, ",
            $axis,
            "_step)\n",
            $axis,
            "_places = Add (",
            $axis,
            "_start, ",
            $axis,
            "_distances)\n",
        )
    };
}

macro_rules! mapped {
    () => {
        "list_of_four = Constant <value_ints: ints = [-1, 4]> ()
        list = Reshape (points, list_of_four)
        columns_of_list = Transpose (list)
        typed_columns = CastLike (columns_of_list, map)
        mapped_columns = MatMul (map, typed_columns)
        mapped_list = Transpose <perm = [0, 2, 1]> (mapped_columns)
        full_size = Concat <axis = -1> (batch, depth, height, width, threes)
        mapped_points = Reshape (mapped_list, full_size)
        typed_points = CastLike (mapped_points, map)
        grid = If (is_plane) <
            then_branch = plane_grid () => (plane_points) {
                flat_points = Squeeze (typed_points, ones)
                plane_points = Slice (flat_points, zeros, twos, threes)
            },
            else_branch = body_grid () => (body_points) {
                body_points = Identity (typed_points)
            }
        >"
    };
}

use {along, mapped, maps, numbers, points, sizes, steps};

#[cfg(test)]
mod tests {
    use super::AFFINE_GRID;
    use crate::tensor::testing::check;

    #[test]
    fn each_position_gets_a_point() {
        // SHAPE-25
        check(
            &AFFINE_GRID,
            20,
            &[
                (&[], "float[2, 2, 3]; =[2, 3, 4, W]", "float[2, 4, W, 2]"),
                (&[], "float[N, 3, 4]; =[2, 3, 4, 5, 6]", "float[2, 4, 5, 6, 3]"),
                (&[], "float[N, ?, 4]; int64[5]", "float[N, ?, ?, ?, 3]"),
                (&[], "float[N, 2, 3]; int64[?]", "float[N, ?, ?, 2]"),
                (&[], "float16[...]; -", "float16[...]"),
                (
                    &[],
                    "float[2, 2, 3]; =[2, 3, 4, 5, 6]",
                    "AffineGrid: spatial axes of theta and of size differ (2 and 3)",
                ),
                (&[], "-; int64[6]", "AffineGrid: there are 4 spatial axes, not 2 or 3"),
                (
                    &[],
                    "float[3, 2, 3]; =[2, 3, 4, 5]",
                    "AffineGrid: elements of the batch of size and theta differ (2 and 3)",
                ),
            ],
        );
    }
}
