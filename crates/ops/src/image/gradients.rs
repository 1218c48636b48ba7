//! Gradients of operators that resize images, or that read positions or regions of them.
//!
//! Coordinates have derivatives between elements. At an element, the derivative towards the next
//! one is taken. Where the nearest element is read, or rounded coordinates decide, the derivative
//! is 0.

use sardonyx_tensor::DataType;

use super::samples::{CUBIC, Images, LINEAR, NEAREST, Outside, Samples, Sampling};
use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};

type Result<T = ()> = std::result::Result<T, Refusal>;

/// Sets the gradient of `Resize`. The operation along an axis is a product with a matrix, which is
/// the operation on a unit matrix.
pub(crate) fn resize(cx: &Backward<'_>) -> Result {
    let (x, mut dy) = (cx.input(0)?, cx.arriving()?);
    let transform = cx.string("coordinate_transformation_mode").unwrap_or_default();
    if transform == "tf_crop_and_resize" || transform == "tf_half_pixel_for_nn" {
        return Err(cx.refuse(format_args!(
            "coordinate_transformation_mode {transform} has no gradient rule"
        )));
    }
    let rank = cx.rank_of(x)?;
    let listed = cx.ints("axes").filter(|axes| !axes.is_empty());
    let axes = listed.unwrap_or_else(|| (0..rank as i64).collect());
    let scales = cx.input_if(2).filter(|_| cx.constant(2).is_none_or(|given| !given.is_empty()));
    let policy = cx.string("keep_aspect_ratio_policy").unwrap_or_default();
    if scales.is_none() && axes.len() > 1 && policy != "stretch" {
        return Err(cx.refuse(format_args!(
            "keep_aspect_ratio_policy {policy} has no gradient rule: give scales"
        )));
    }
    let known = cx.constant(2).and_then(|given| given.to_vec::<f32>().ok());
    let (from, to) = (cx.shape_of(x), cx.shape_of(cx.output(0)?));
    for (place, axis) in axes.iter().enumerate() {
        let axis = if *axis < 0 { *axis + rank as i64 } else { *axis };
        let size = |shape: &Option<sardonyx_model::Shape>| {
            shape.as_ref().and_then(|shape| shape.get(axis as usize)?.known())
        };
        let stays = match &known {
            Some(known) if scales.is_some() => known.get(place) == Some(&1.0),
            _ => scales.is_none() && size(&from).is_some() && size(&from) == size(&to),
        };
        if !stays {
            let scale = scales.map(|scales| scales.gather(cx.ints_of(&[place as i64]), 0));
            let matrix = resizing(cx, axis, scale)?;
            dy = multiply_axis(dy, matrix, axis, rank as i64);
        }
    }
    cx.give(0, dy);
    Ok(())
}

/// Makes the matrix of the node's operation along an axis.
fn resizing<'c>(cx: &'c Backward<'_>, axis: i64, scale: Option<Expr<'c>>) -> Result<Expr<'c>> {
    let (x, y) = (cx.input(0)?, cx.output(0)?);
    let size = |value: Expr<'c>| value.sizes(axis, Some(axis + 1));
    let unit = x.number(0.0).expand(size(x).concat(&[size(x)], 0)).op("EyeLike");
    let words = ["mode", "nearest_mode", "coordinate_transformation_mode"]
        .map(|name| (name, cx.string(name).unwrap_or_default()));
    let mut attributes: Vec<(&str, AttrValue<'_>)> = vec![("axes", AttrValue::from(&[0]))];
    attributes.extend(words.iter().map(|(name, word)| (*name, AttrValue::from(word.as_str()))));
    for name in ["antialias", "exclude_outside"] {
        attributes.push((name, AttrValue::Int(cx.int(name).unwrap_or(0))));
    }
    attributes.push(("cubic_coeff_a", cx.float("cubic_coeff_a").unwrap_or(-0.75).into()));
    let operands = match scale {
        Some(scale) => [None, Some(scale), None],
        None => [None, None, Some(size(y))],
    };
    Ok(unit.op_with_some("Resize", &operands, &attributes))
}

/// Multiplies each line along an axis by a matrix, on the side of its results.
fn multiply_axis<'c>(dy: Expr<'c>, matrix: Expr<'c>, axis: i64, rank: i64) -> Expr<'c> {
    match rank - axis {
        1 => dy.matmul(matrix),
        2 => matrix.transpose(&[1, 0]).matmul(dy),
        _ => {
            let mut swap: Vec<i64> = (0..rank).collect();
            swap.swap(axis as usize, rank as usize - 1);
            dy.transpose(&swap).matmul(matrix).transpose(&swap)
        }
    }
}

/// Returns the type in which positions are computed.
fn wide(value: Expr<'_>) -> DataType {
    if value.elem() == DataType::Double { DataType::Double } else { DataType::Float }
}

/// Joins the spatial axes of `[images, channels, sizes..]`.
fn join_elements(images: Expr<'_>) -> Expr<'_> {
    let elements = images.sizes(2, None).product();
    images.reshape(images.sizes(0, Some(2)).concat(&[elements], 0))
}

/// Sets the gradients of `GridSample` (Jaderberg et al., "Spatial Transformer Networks", 2015).
pub(crate) fn grid_sample<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, grid, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let Some(axes) = cx.rank_of(x)?.checked_sub(2).filter(|axes| *axes > 0) else {
        return Err(cx.refuse("its input has no spatial axes"));
    };
    let at_centres = cx.int("align_corners").unwrap_or(0) != 0;
    let between = match cx.string("mode").as_deref() {
        None | Some("linear") => LINEAR,
        Some("nearest") => NEAREST,
        Some("cubic") => CUBIC,
        Some(other) => return Err(cx.refuse(format_args!("mode has no value \"{other}\""))),
    };
    let outside = match cx.string("padding_mode").as_deref() {
        None | Some("zeros") => Outside::Zero,
        Some("border") => Outside::Border,
        Some("reflection") => Outside::Reflection { at_centres },
        Some(other) => return Err(cx.refuse(format_args!("padding_mode has no value \"{other}\""))),
    };
    let is_nearest = cx.string("mode").as_deref() == Some("nearest");
    let placement = Placement { at_centres, is_nearest, outside };
    let elem = wide(if wide(x) == DataType::Double { x } else { grid });
    let places = grid.sizes(1, Some(-1)).product();
    let in_line = grid.sizes(0, Some(1)).concat(&[places, cx.ints_of(&[axes as i64])], 0);
    let lines = grid.cast(elem).reshape(in_line);
    let (mut sizes, mut coordinates, mut factors) = (Vec::new(), Vec::new(), Vec::new());
    for axis in 0..axes as i64 {
        let size = x.sizes(axis + 2, Some(axis + 3));
        // The last axis comes first in the grid.
        let given = lines.gather(cx.ints_of(&[axes as i64 - 1 - axis]), 2).squeeze(&[2]);
        let (at, factor) = place_coordinate(given, size.cast(elem), placement);
        sizes.push(size);
        coordinates.push(at);
        factors.push(factor);
    }
    let images = join_elements(x).cast(elem);
    let images = Images { x: images, sizes: &sizes, start: None };
    let samples = Samples::new(cx, Sampling { between, outside }, images, &coordinates);
    let dy = join_elements(dy).cast(elem).unsqueeze(&[-1]);
    if cx.wants(0) {
        cx.give(0, samples.image_gradients(dy).cast(x.elem()).reshape(x.shape()));
    }
    if cx.wants(1) && !is_nearest {
        let by_axis = samples.coordinate_gradients(dy).into_iter().zip(&factors);
        let mut columns: Vec<Expr<'c>> =
            by_axis.map(|(slope, factor)| slope.scale_by(*factor).unsqueeze(&[-1])).collect();
        columns.reverse();
        let all = columns[0].concat(&columns[1..], -1);
        cx.give(1, all.cast(grid.elem()).reshape(grid.shape()));
    }
    Ok(())
}

/// Position of the coordinates -1 and 1, and rule for positions outside of the image.
#[derive(Clone, Copy)]
struct Placement {
    /// Whether -1 and 1 are the centres of the outermost elements, not their sides.
    at_centres: bool,
    /// Whether the nearest element is read.
    is_nearest: bool,
    outside: Outside,
}

/// Converts a coordinate from -1 to 1 to one along an axis of `len` elements, and returns its
/// derivative.
fn place_coordinate<'c>(
    given: Expr<'c>,
    len: Expr<'c>,
    Placement { at_centres, is_nearest, outside }: Placement,
) -> (Expr<'c>, Expr<'c>) {
    let last = len - 1.0;
    let (mut at, scale) = if at_centres {
        ((given + 1.0) * 0.5 * last, last * 0.5)
    } else {
        (((given + 1.0) * len - 1.0) * 0.5, len * 0.5)
    };
    if is_nearest {
        at = at.op("Round");
    }
    let (low, high) = if at_centres { (last * 0.0, last) } else { (last * 0.0 - 0.5, last + 0.5) };
    let is_outside = at.compare("Less", low);
    let is_outside = is_outside.op_with("Or", &[at.compare("Greater", high)], &[]);
    match outside {
        Outside::Zero => (at, scale),
        Outside::Border => {
            let inside = at.op_with("Max", &[at.number(0.0)], &[]).op_with("Min", &[last], &[]);
            (is_outside.choose(inside, at), is_outside.choose(at.number(0.0), scale))
        }
        Outside::Reflection { .. } => {
            let range = high - low;
            // An image of one element that is reflected at its centre is that element everywhere.
            let is_single = range.compare("Equal", range.number(0.0));
            let period = is_single.choose(range.number(1.0), range * 2.0);
            let beyond = at - low;
            let beyond = beyond - (beyond / period).op("Floor") * period;
            let is_mirrored = beyond.compare("Greater", range);
            let mirrored = is_mirrored.choose(range * 2.0 - beyond, beyond) + low;
            let slope = is_mirrored.choose(-scale, scale);
            let mirrored = is_single.choose(low, mirrored);
            (is_outside.choose(mirrored, at), is_outside.choose(slope, scale))
        }
    }
}

/// Points along one side of regions: `[regions, cells, points]` each.
struct Points<'c> {
    at: Expr<'c>,
    /// Distance of the point from the start of the region, in cells.
    distance: Expr<'c>,
    /// Whether the cell has that point: `[regions, 1, points]`.
    exists: Expr<'c>,
    /// Number of points of a cell: `[regions, 1, 1]`.
    count: Expr<'c>,
    /// Derivative of the size of cells by the end of the region: `[regions, 1, 1]`.
    by_end: Expr<'c>,
}

/// Returns the points that `RoiAlign` reads along the rows or columns of regions. `first` is the
/// index of the region's first corner along that axis.
fn find_points<'c>(cx: &'c Backward<'_>, regions: Expr<'c>, first: i64, cells: i64) -> Points<'c> {
    let elem = regions.elem();
    let scale = f64::from(cx.float("spatial_scale").unwrap_or(1.0));
    let half_pixel =
        cx.string("coordinate_transformation_mode").as_deref() != Some("output_half_pixel");
    let corner = |place: i64| {
        let corner = regions.gather(cx.ints_of(&[place]), 1).unsqueeze(&[-1]) * scale;
        if half_pixel { corner - 0.5 } else { corner }
    };
    let (start, end) = (corner(first), corner(first + 2));
    let mut len = end - start;
    let mut by_end = len.number(scale / cells as f64).expand(len.shape());
    if !half_pixel {
        let is_short = len.compare("Less", len.number(1.0));
        len = is_short.choose(len.number(1.0), len);
        by_end = is_short.choose(by_end.number(0.0), by_end);
    }
    let size = len / cells as f64;
    let (count, most) = match cx.int("sampling_ratio").unwrap_or(0) {
        given @ 1.. => (size.number(given as f64).expand(size.shape()), cx.ints_of(&[given])),
        _ => {
            // A region of size NaN has one point, which is NaN too.
            let is_region = size.compare("Equal", size);
            let count = is_region.choose(size, size.number(1.0)).op("Ceil");
            let count = count.op_with("Max", &[size.number(0.0)], &[]);
            // Ensures that the maximum exists without regions.
            let one = cx.numbers_of(&[0.0], elem);
            let all = count.reshape(cx.ints_of(&[-1])).concat(&[one], 0);
            let most = all.op_with("ReduceMax", &[], &[("keepdims", 1.into())]);
            (count, most.cast(DataType::Int64))
        }
    };
    let cell = cx.count_up(cx.ints_of(&[cells]).squeeze(&[0])).cast(elem);
    let cell = cell.unsqueeze(&[0, 2]);
    let point = cx.count_up(most.squeeze(&[0])).cast(elem).unsqueeze(&[0, 1]);
    let distance = cell + (point + 0.5) / count.op_with("Max", &[count.number(1.0)], &[]);
    let exists = point.compare("Less", count);
    Points { at: start + distance * size, distance, exists, count, by_end }
}

/// Puts images one after the other for each channel: `[1, channels, images * elements]`.
fn join_images<'c>(cx: &'c Backward<'_>, x: Expr<'c>, elem: DataType) -> Expr<'c> {
    let moved = join_elements(x).transpose(&[1, 0, 2]);
    let elements = moved.sizes(1, Some(2)) * moved.sizes(2, None);
    moved.cast(elem).reshape(cx.ints_of(&[1]).concat(&[moved.sizes(0, Some(1)), elements], 0))
}

/// Undoes [`join_images`].
fn split_images<'c>(cx: &'c Backward<'_>, line: Expr<'c>, x: Expr<'c>) -> Expr<'c> {
    let sizes = x.sizes(1, Some(2)).concat(&[x.sizes(0, Some(1)), cx.ints_of(&[-1])], 0);
    let apart = line.op_with("Reshape", &[sizes], &[]).transpose(&[1, 0, 2]);
    apart.cast(x.elem()).reshape(x.shape())
}

/// Makes weights for the largest existing elements over axes: equal shares whose sum is 1.
fn share_largest<'c>(
    cx: &'c Backward<'_>,
    values: Expr<'c>,
    exists: Expr<'c>,
    axes: &[i64],
) -> Expr<'c> {
    let held = exists.choose(values, values.number(f64::NEG_INFINITY));
    let most = held.op_with("ReduceMax", &[cx.ints_of(axes)], &[("keepdims", 1.into())]);
    let is_taken = held.compare("Equal", most).op_with("And", &[exists], &[]);
    let taken = is_taken.cast(values.elem());
    taken / taken.sum(axes, true).op_with("Max", &[values.number(1.0)], &[])
}

/// Aligns values of rows with all points of all cells: `[regions, rows, columns, points down,
/// points across]`.
fn align_rows(value: Expr<'_>) -> Expr<'_> {
    value.unsqueeze(&[2, 4])
}

/// Aligns values of columns with all points of all cells: `[regions, rows, columns, points down,
/// points across]`.
fn align_columns(value: Expr<'_>) -> Expr<'_> {
    value.unsqueeze(&[1, 3])
}

/// Points of all regions of a `RoiAlign`, in a line.
struct Regions<'c> {
    points: [Points<'c>; 2],
    samples: Samples<'c>,
    /// Dimensions of all points.
    shape: Expr<'c>,
    /// `[1, channels, points]`
    in_line: Expr<'c>,
    /// Whether points are in the image or close to it; others read 0.
    is_near: Expr<'c>,
    /// Whether the coordinates of points are read as they are, and not moved inside.
    are_read: [Expr<'c>; 2],
}

impl<'c> Regions<'c> {
    fn new(cx: &'c Backward<'_>) -> Result<Regions<'c>> {
        let (x, rois, images) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let elem = wide(x);
        let points = [("output_height", 1), ("output_width", 0)].map(|(name, first)| {
            find_points(cx, rois.cast(elem), first, cx.int(name).unwrap_or(1))
        });
        let at = [align_rows(points[0].at), align_columns(points[1].at)];
        let shape = (at[0] + at[1]).shape();
        let count = shape.product();
        let one = cx.ints_of(&[1]);
        let one_row = one.concat(&[count], 0);
        let sizes = [2, 3].map(|axis| x.sizes(axis, Some(axis + 1)));
        let [down, across] = [0, 1].map(|axis| {
            let (at, len, zero) = (at[axis], sizes[axis].cast(elem), at[axis].number(0.0));
            // A position that is NaN counts as near.
            let is_far = at.compare("Less", zero - 1.0).or(at.compare("Greater", len));
            let is_near = is_far.op("Not");
            let read = at.op_with("Max", &[zero], &[]).op_with("Min", &[len - 1.0], &[]);
            (is_near, at.compare("Equal", read), read.expand(shape).reshape(one_row))
        });
        let image = images.unsqueeze(&[1, 2, 3, 4]).expand(shape).reshape(one_row);
        let line = Images {
            x: join_images(cx, x, elem),
            sizes: &sizes,
            start: Some(image * sizes[0] * sizes[1]),
        };
        let samples = Samples::new(
            cx,
            Sampling { between: LINEAR, outside: Outside::Border },
            line,
            &[down.2, across.2],
        );
        Ok(Regions {
            points,
            samples,
            shape,
            in_line: one.concat(&[x.sizes(1, Some(2)), count], 0),
            is_near: down.0.op_with("And", &[across.0], &[]),
            are_read: [down.1, across.1],
        })
    }

    /// Makes the gradients of the parts of points from those of cells.
    fn part_gradients(&self, cx: &'c Backward<'_>, dy: Expr<'c>) -> Expr<'c> {
        let [down, across] = &self.points;
        let exists = align_rows(down.exists).op_with("And", &[align_columns(across.exists)], &[]);
        // `[channels, regions, rows, columns, 1, 1]`
        let dy = dy.transpose(&[1, 0, 2, 3]).unsqueeze(&[-2, -1]);
        if cx.string("mode").as_deref() != Some("max") {
            let count = align_rows(down.count) * align_columns(across.count);
            let count = count.op_with("Max", &[dy.number(1.0)], &[]);
            let share = self.is_near.op_with("And", &[exists], &[]).cast(dy.elem()) / count;
            return dy.scale_by(share).reshape(self.in_line).unsqueeze(&[-1]);
        }
        let parts = self.samples.parts();
        let apart = self.in_line.gather(cx.ints_of(&[1]), 0);
        let apart = parts.reshape(apart.concat(&[self.shape, parts.sizes(-1, None)], 0));
        let (is_near, zero) = (self.is_near.unsqueeze(&[-1]), dy.number(0.0));
        let exists = exists.unsqueeze(&[-1]);
        let taken = share_largest(cx, is_near.choose(apart, zero), exists, &[4, 5, 6]);
        let shares = is_near.choose(taken * dy.unsqueeze(&[-1]), zero);
        shares.reshape(parts.shape())
    }

    /// Makes the gradient of the regions from those of parts.
    fn corner_gradients(&self, cx: &'c Backward<'_>, parts: Expr<'c>) -> Expr<'c> {
        let scale = f64::from(cx.float("spatial_scale").unwrap_or(1.0));
        let slopes = self.samples.coordinate_gradients(parts);
        let by_axis = [0, 1].map(|axis| {
            let slope = slopes[axis].reshape(self.shape);
            let slope = self.are_read[axis].choose(slope, slope.number(0.0));
            let points = &self.points[axis];
            let distance = if axis == 0 {
                align_rows(points.distance)
            } else {
                align_columns(points.distance)
            };
            let of_start = slope.sum(&[1, 2, 3, 4], false) * scale;
            let of_size = slope.scale_by(distance).sum(&[1, 2, 3, 4], false);
            let of_end = of_size * points.by_end.squeeze(&[1, 2]);
            [of_start - of_end, of_end].map(|corner| corner.unsqueeze(&[1]))
        });
        let [[y1, y2], [x1, x2]] = by_axis;
        x1.concat(&[y1, x2, y2], 1)
    }
}

/// Sets the gradients of `RoiAlign` (He et al., "Mask R-CNN", 2017). Equal largest parts of a cell
/// share.
pub(crate) fn roi_align(cx: &Backward<'_>) -> Result {
    let (x, rois, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let regions = Regions::new(cx)?;
    let parts = regions.part_gradients(cx, dy.cast(wide(x)));
    if cx.wants(0) {
        cx.give(0, split_images(cx, regions.samples.image_gradients(parts), x));
    }
    if cx.wants(1) {
        cx.give(1, regions.corner_gradients(cx, parts).cast(rois.elem()));
    }
    Ok(())
}

/// Returns the rows or columns of elements that the cells of regions cover, `[regions, cells,
/// elements]`, and whether each of them exists.
fn find_covered<'c>(
    cx: &'c Backward<'_>,
    rois: Expr<'c>,
    first: i64,
    cells: i64,
    size: Expr<'c>,
) -> [Expr<'c>; 2] {
    let scale = f64::from(cx.float("spatial_scale").unwrap_or(1.0));
    let corner = |place: i64| {
        let corner = rois.gather(cx.ints_of(&[place]), 1).unsqueeze(&[-1]) * scale;
        // Halves are rounded away from 0.
        let whole = (corner.op("Abs") + 0.5).op("Floor") * corner.op("Sign");
        whole.cast(DataType::Int64)
    };
    let (start, end) = (corner(first), corner(first + 2));
    let side = (end - start + 1.0).op_with("Max", &[start.number(1.0)], &[]);
    let cell = cx.count_up(cx.ints_of(&[cells]).squeeze(&[0])).unsqueeze(&[0, 2]);
    let number = cells as f64;
    let from = (start + cell * side / number).clamp(size);
    let to = (start + ((cell + 1.0) * side + (number - 1.0)) / number).clamp(size);
    let all = (to - from).reshape(cx.ints_of(&[-1])).concat(&[cx.ints_of(&[0])], 0);
    let most = all.op_with("ReduceMax", &[], &[("keepdims", 0.into())]);
    let at = from + cx.count_up(most).unsqueeze(&[0, 1]);
    [at.op_with("Min", &[size - 1.0], &[]), at.compare("Less", to)]
}

/// Sets the gradient of `MaxRoiPool` (Girshick, "Fast R-CNN", 2015). Equal largest elements of a
/// cell share. Regions are rounded to whole elements and get no gradient.
pub(crate) fn max_roi_pool(cx: &Backward<'_>) -> Result {
    let (x, rois, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let sizes: Option<[i64; 2]> = cx.ints("pooled_shape").and_then(|sizes| sizes.try_into().ok());
    let Some([lines, columns]) = sizes else {
        return Err(cx.refuse("pooled_shape must be two sizes"));
    };
    if !cx.wants(0) {
        return Ok(());
    }
    let [height, width] = [2, 3].map(|axis| x.sizes(axis, Some(axis + 1)));
    let [down, down_exists] = find_covered(cx, rois, 2, lines, height);
    let [across, across_exists] = find_covered(cx, rois, 1, columns, width);
    let image = rois.gather(cx.ints_of(&[0]), 1).cast(DataType::Int64).unsqueeze(&[2, 3, 4]);
    let places = (image * height + align_rows(down)) * width + align_columns(across);
    let exists = align_rows(down_exists).op_with("And", &[align_columns(across_exists)], &[]);
    let line = join_images(cx, x, x.elem()).squeeze(&[0]);
    let elements = line.gather(places, 1);
    let taken = share_largest(cx, elements, exists, &[4, 5]);
    let dy = dy.transpose(&[1, 0, 2, 3]).unsqueeze(&[-2, -1]);
    let count = places.op("Size").unsqueeze(&[0]);
    let in_line = line.sizes(0, Some(1)).concat(&[count], 0);
    let operands = [places.reshape(count).expand(in_line), (taken * dy).reshape(in_line)];
    let attributes = [("axis", 1.into()), ("reduction", "add".into())];
    let sums = line.zeros().op_with("ScatterElements", &operands, &attributes);
    cx.give(0, split_images(cx, sums, x));
    Ok(())
}

/// Sets the gradients of `DeformConv` (Dai et al., "Deformable Convolutional Networks", 2017; the
/// mask: Zhu et al., "Deformable ConvNets v2", 2019). The elements that taps read are columns,
/// which are multiplied by the weights.
pub(crate) fn deform_conv<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, weights, offsets, dy) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.arriving()?);
    let mask = cx.input_if(4);
    let Some(axes) = cx.rank_of(x)?.checked_sub(2).filter(|axes| *axes > 0) else {
        return Err(cx.refuse("its input has no spatial axes"));
    };
    let (elem, one) = (wide(x), cx.ints_of(&[1]));
    let number = |name: &str| cx.ints_of(&[cx.int(name).unwrap_or(1)]);
    let (group, moved) = (number("group"), number("offset_group"));
    let (taps, places) = (weights.sizes(2, None).product(), dy.sizes(2, None).product());
    let (images, channels) = (x.sizes(0, Some(1)), x.sizes(1, Some(2)));
    // Channels with the same offsets form an image.
    let parts = images * moved;
    let read = taps * places;
    let in_parts = |channels: Expr<'c>, rest: &[Expr<'c>]| {
        let mut sizes = vec![channels];
        sizes.extend(rest);
        parts.concat(&sizes, 0)
    };
    let all = join_elements(x).cast(elem);
    let all = all.reshape(in_parts(channels / moved, &[all.sizes(2, None)]));
    let offsets_apart =
        offsets.cast(elem).reshape(in_parts(taps, &[cx.ints_of(&[axes as i64]), places]));
    let mut coordinates = Vec::new();
    let base = find_taps(cx, weights, dy, axes)?;
    for (axis, base) in base.into_iter().enumerate() {
        let moved = offsets_apart.gather(cx.ints_of(&[axis as i64]), 2).squeeze(&[2]);
        let at = moved + base.cast(elem);
        // A tap at a position that is NaN reads nothing, like one outside the image.
        let at = at.compare("Equal", at).choose(at, at.number(-2.0));
        coordinates.push(at.reshape(parts.concat(&[read], 0)));
    }
    let sizes: Vec<Expr<'c>> =
        (2..axes as i64 + 2).map(|axis| x.sizes(axis, Some(axis + 1))).collect();
    let read_images = Images { x: all, sizes: &sizes, start: None };
    let samples = Samples::new(
        cx,
        Sampling { between: LINEAR, outside: Outside::Zero },
        read_images,
        &coordinates,
    );
    let values = samples.values();
    let factors = mask.map(|mask| mask.cast(elem).reshape(in_parts(one, &[read])));
    // One row of axes per group: `[images, group, rows, columns]`.
    let out = weights.sizes(0, Some(1)) / group;
    let width = weights.sizes(1, Some(2)) * taps;
    let kernels = weights.cast(elem).reshape(group.concat(&[out, width], 0));
    let dy_apart = dy.cast(elem).reshape(images.concat(&[group, out, places], 0));
    let of_filters = dy_apart.sum_magnitudes(&[0, 3]).squeeze(&[0]);
    let counting = kernels.drop_unused_lines(&[2], of_filters);
    let of_columns = counting.transpose(&[0, 2, 1]).matmul(dy_apart);
    let of_columns = of_columns.reshape(in_parts(channels / moved, &[read]));
    if cx.wants(1) {
        let columns = factors.map_or(values, |factors| factors.scale_by(values));
        let columns = columns.reshape(images.concat(&[group, width, places], 0));
        let columns = columns.drop_unused_lines(&[2], dy_apart.sum_magnitudes(&[2]));
        let products = dy_apart.matmul(columns.transpose(&[0, 1, 3, 2]));
        cx.give(1, products.sum(&[0], false).cast(weights.elem()).reshape(weights.shape()));
    }
    let of_values =
        factors.map_or(of_columns, |factors| of_columns.scale_by(factors)).unsqueeze(&[-1]);
    if cx.wants(0) {
        cx.give(0, samples.image_gradients(of_values).cast(x.elem()).reshape(x.shape()));
    }
    if cx.wants(2) {
        let apart = in_parts(taps, &[one, places]);
        let slopes: Vec<Expr<'c>> = samples
            .coordinate_gradients(of_values)
            .into_iter()
            .map(|slope| slope.reshape(apart))
            .collect();
        let all = slopes[0].concat(&slopes[1..], 2);
        cx.give(2, all.cast(offsets.elem()).reshape(offsets.shape()));
    }
    if cx.wants(3) {
        let others: Vec<i64> = [0].into_iter().chain(2..axes as i64 + 2).collect();
        cx.give(3, dy.sum(&others, false));
    }
    if let Some(mask) = mask.filter(|_| cx.wants(4)) {
        let sums = of_columns.scale_by(values).sum(&[1], false);
        cx.give(4, sums.cast(mask.elem()).reshape(mask.shape()));
    }
    Ok(())
}

/// Returns the positions of taps for each position of the output before they are moved, by axis:
/// `[taps, places]`.
fn find_taps<'c>(
    cx: &'c Backward<'_>,
    weights: Expr<'c>,
    dy: Expr<'c>,
    axes: usize,
) -> Result<Vec<Expr<'c>>> {
    let (strides, dilations) =
        (cx.ints_per_axis("strides", axes, 1)?, cx.ints_per_axis("dilations", axes, 1)?);
    let pads = cx.ints_per_axis("pads", 2 * axes, 0)?;
    let flat = cx.ints_of(&[-1]);
    let along = |value: Expr<'c>, axis: usize| {
        let at = axis as i64 + 2;
        let count = value.sizes(at, Some(at + 1)).squeeze(&[0]);
        let others: Vec<i64> = (0..axes as i64).filter(|other| *other != axis as i64).collect();
        let steps = cx.count_up(count);
        let steps = if others.is_empty() { steps } else { steps.unsqueeze(&others) };
        steps.expand(value.sizes(2, None)).reshape(flat)
    };
    Ok((0..axes)
        .map(|axis| {
            let taps = along(weights, axis) * dilations[axis] as f64 - pads[axis] as f64;
            let places = along(dy, axis) * strides[axis] as f64;
            taps.unsqueeze(&[1]) + places.unsqueeze(&[0])
        })
        .collect())
}
