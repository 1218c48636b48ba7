//! Gradients of operators that move, select and repeat elements.

use sardonyx_tensor::{CastOptions, DataType};

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};
use crate::math::gradients::{Product, share_among};

type Result = std::result::Result<(), Refusal>;

/// Sets the gradient of an operator that only changes the shape.
pub(crate) fn reshape(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    cx.give(0, dy.reshape(x.shape()));
    Ok(())
}

pub(crate) fn identity(cx: &Backward<'_>) -> Result {
    cx.give(0, cx.arriving()?);
    Ok(())
}

/// Sets the gradient of `Cast` from floats to floats.
pub(crate) fn cast(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    cx.give(0, dy.cast(x.elem()));
    Ok(())
}

pub(crate) fn transpose(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let Some(axes) = cx.ints("perm") else {
        cx.give(0, dy.op("Transpose"));
        return Ok(());
    };
    let mut back = vec![0; axes.len()];
    for (to, from) in axes.iter().enumerate() {
        let place = usize::try_from(*from).ok().and_then(|from| back.get_mut(from));
        let Some(place) = place else {
            return Err(cx.refuse(format_args!("perm {axes:?} is not a permutation")));
        };
        *place = to as i64;
    }
    cx.give(0, dy.transpose(&back));
    Ok(())
}

pub(crate) fn expand(cx: &Backward<'_>) -> Result {
    cx.give_broadcast(0, cx.arriving()?)
}

/// Sets the gradients of `Concat`: each input gets its part.
pub(crate) fn concat(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let axis = cx.int("axis").unwrap_or(0);
    let mut sizes = Vec::new();
    for index in 0..cx.input_count() {
        sizes.push(size_of(cx.input(index)?, axis));
    }
    let Some((first, others)) = sizes.split_first() else { return Ok(()) };
    if others.is_empty() {
        cx.give(0, dy);
        return Ok(());
    }
    let split = first.op_with("Concat", others, &[("axis", 0.into())]);
    let attributes = [("axis", AttrValue::Int(axis))];
    let parts = cx.make_many("Split", &[dy, split], &attributes, dy.elem(), sizes.len());
    for (index, part) in parts.into_iter().enumerate() {
        cx.give(index, part);
    }
    Ok(())
}

/// Makes a vector of the size of an axis.
fn size_of(value: Expr<'_>, axis: i64) -> Expr<'_> {
    value.sizes(axis, (axis != -1).then_some(axis + 1))
}

/// Sets the gradient of `Split`: the joined parts, with zeros for outputs without a gradient.
pub(crate) fn split(cx: &Backward<'_>) -> Result {
    let axis = cx.int("axis").unwrap_or(0);
    let mut parts = Vec::new();
    for index in 0..cx.output_count() {
        let part = match cx.arriving_if(index) {
            Some(part) => part,
            None => cx.output(index)?.zeros(),
        };
        parts.push(part);
    }
    let Some((first, others)) = parts.split_first() else { return Ok(()) };
    cx.give(0, first.op_with("Concat", others, &[("axis", axis.into())]));
    Ok(())
}

/// Returns the position from which an operator takes each element, in the flat order of its input:
/// applies the operator to positions instead of elements.
fn from_positions<'c>(
    cx: &'c Backward<'_>,
    moved: impl FnOnce(Expr<'c>) -> Expr<'c>,
) -> std::result::Result<Expr<'c>, Refusal> {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let count = x.op("Size").with_elem(DataType::Int64);
    let (zero, one) = (count.number(0.0), count.number(1.0));
    let positions = zero.op_with("Range", &[count, one], &[]).reshape(x.shape());
    let flat = cx.ints_of(&[-1]);
    let from = moved(positions).reshape(flat);
    let zeros = dy.number(0.0).op_with("Expand", &[count.reshape(flat)], &[]);
    let sums = scatter(zeros, from, dy.reshape(flat), 0);
    Ok(sums.reshape(x.shape()))
}

/// Adds `updates` to `data` at `indices` along an axis.
fn scatter<'c>(data: Expr<'c>, indices: Expr<'_>, updates: Expr<'_>, axis: i64) -> Expr<'c> {
    let attributes = [("axis", axis.into()), ("reduction", "add".into())];
    data.op_with("ScatterElements", &[indices, updates], &attributes)
}

/// Returns the integers of an input that is equal in every run.
fn known_ints(cx: &Backward<'_>, index: usize) -> Option<Vec<i64>> {
    let given = cx.constant(index)?;
    let known = sardonyx_tensor::cast(&given, DataType::Int64, CastOptions::default()).ok()?;
    known.to_vec::<i64>().ok()
}

/// Sets the gradient of `Slice`. Without steps the gradient is padded with zeros, wherever starts
/// and axes are. Steps other than 1, and steps known only at run time, add it by position.
pub(crate) fn slice<'c>(cx: &'c Backward<'_>) -> Result {
    let has_steps = cx.input_if(4).is_some()
        && known_ints(cx, 4).is_none_or(|steps| steps != vec![1; steps.len()]);
    if has_steps {
        let operands: Vec<Option<Expr<'c>>> =
            (1..cx.input_count()).map(|index| cx.input_if(index)).collect();
        let gradient = from_positions(cx, |places| places.op_with_some("Slice", &operands, &[]))?;
        cx.give(0, gradient);
        return Ok(());
    }
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let starts = cx.input(1)?.cast(DataType::Int64);
    let axes = match cx.input_if(3) {
        Some(axes) => axes.cast(DataType::Int64),
        None => cx.count_up(starts.op("Size")),
    };
    let [sizes, left] = [x, dy].map(|value| value.shape().gather(axes, 0));
    let is_from_end = starts.compare("Less", starts.number(0.0));
    let before = is_from_end.choose(starts + sizes, starts).clamp(sizes);
    let pads = before.concat(&[sizes - before - left], 0);
    cx.give(0, dy.op_with("Pad", &[pads, dy.number(0.0), axes], &[]));
    Ok(())
}

/// Sets the gradient of `Tile`: the sum over the repetitions of each axis, which become axes of
/// their own.
pub(crate) fn tile(cx: &Backward<'_>) -> Result {
    let (x, repeats, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let options = [("keepdims", AttrValue::Int(0)), ("noop_with_empty_axes", AttrValue::Int(1))];
    let (Ok(rank), Some(known)) = (cx.rank_of(x), known_ints(cx, 1)) else {
        let pairs = repeats.unsqueeze(&[1]).concat(&[x.shape().unsqueeze(&[1])], 1);
        let whole = dy.reshape(pairs.reshape(cx.ints_of(&[-1])));
        let axes = cx.count_up(x.shape().op("Size")) * 2.0;
        cx.give(0, whole.op_with("ReduceSum", &[axes], &options));
        return Ok(());
    };
    if known.len() != rank {
        return Err(cx.refuse(format_args!("it has {} repeats for rank {rank}", known.len())));
    }
    let (mut sizes, mut axes) = (Vec::new(), Vec::new());
    for (axis, repeats) in known.iter().enumerate() {
        if *repeats != 1 {
            axes.push(sizes.len() as i64);
            sizes.push(cx.ints_of(&[*repeats]));
        }
        sizes.push(x.sizes(axis as i64, Some(axis as i64 + 1)));
    }
    let sum = match (axes.as_slice(), sizes.split_first()) {
        ([], _) | (_, None) => dy,
        (axes, Some((first, others))) => dy.reshape(first.concat(others, 0)).sum(axes, false),
    };
    cx.give(0, sum);
    Ok(())
}

/// Sets the gradients of `Pad`. Constant padding is cut off, and negative padding adds zeros. In
/// other modes, elements that were copied to the padding get the sum of their gradients.
pub(crate) fn pad(cx: &Backward<'_>) -> Result {
    let (pads, dy) = (cx.input(1)?, cx.arriving()?);
    let (axes, mode) = (cx.input_if(3), cx.string("mode").unwrap_or_default());
    let attributes = [("mode", AttrValue::from(mode.as_str()))];
    if mode == "constant" {
        if cx.wants(0) {
            let none = Some(dy.number(0.0));
            cx.give(0, dy.op_with_some("Pad", &[Some(-pads), none, axes], &attributes));
        }
        if cx.wants(2) {
            let value = cx.input(2)?;
            let x = cx.input(0)?;
            // Padding is everything that does not come from the input.
            let ones = x.number(1.0).op_with("Expand", &[x.shape()], &[]);
            let none = Some(dy.number(0.0));
            let inside = ones.op_with_some("Pad", &[Some(pads), none, axes], &attributes);
            let outside = inside.cast(DataType::Bool).choose(dy.number(0.0), dy);
            let all = outside.reshape(cx.ints_of(&[-1])).sum(&[0], false);
            cx.give(2, all.reshape(value.shape()));
        }
        return Ok(());
    }
    let operands = [Some(pads), None, axes];
    let gradient = from_positions(cx, |places| places.op_with_some("Pad", &operands, &attributes))?;
    cx.give(0, gradient);
    Ok(())
}

/// Sets the gradient of `Gather`: an element that was taken several times gets the sum. If ranks
/// are unknown, it is added by position.
pub(crate) fn gather(cx: &Backward<'_>) -> Result {
    let (x, indices, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let axis = cx.int("axis").unwrap_or(0);
    let (Ok(rank), Ok(index_rank)) = (cx.rank_of(x), cx.rank_of(indices)) else {
        let gradient = from_positions(cx, |places| places.gather(indices, axis))?;
        cx.give(0, gradient);
        return Ok(());
    };
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    let zeros = x.zeros();
    let places = indices.cast(DataType::Int64).unsqueeze(&[-1]);
    let add = [("reduction", AttrValue::from("add"))];
    if axis == 0 {
        cx.give(0, zeros.op_with("ScatterND", &[places, dy], &add));
        return Ok(());
    }
    // The axis comes first, since whole parts are added along it.
    let of_indices = axis..axis + index_rank as i64;
    let whole = (rank + index_rank - 1) as i64;
    let others = (0..whole).filter(|axis| !of_indices.contains(axis));
    let first: Vec<i64> = of_indices.clone().chain(others).collect();
    let to_front: Vec<i64> =
        std::iter::once(axis).chain((0..rank as i64).filter(|other| *other != axis)).collect();
    let mut back = vec![0; rank];
    for (to, from) in to_front.iter().enumerate() {
        back[*from as usize] = to as i64;
    }
    let sums = zeros.transpose(&to_front);
    let sums = sums.op_with("ScatterND", &[places, dy.transpose(&first)], &add);
    cx.give(0, sums.transpose(&back));
    Ok(())
}

pub(crate) fn gather_elements(cx: &Backward<'_>) -> Result {
    let (x, indices, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    cx.give(0, scatter(x.zeros(), indices, dy, cx.int("axis").unwrap_or(0)));
    Ok(())
}

pub(crate) fn gather_nd(cx: &Backward<'_>) -> Result {
    let (x, indices, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let batch_dims = cx.int("batch_dims").unwrap_or(0);
    if batch_dims == 0 {
        let add = [("reduction", AttrValue::from("add"))];
        cx.give(0, x.zeros().op_with("ScatterND", &[indices, dy], &add));
        return Ok(());
    }
    let attributes = [("batch_dims", batch_dims.into())];
    let gradient =
        from_positions(cx, |places| places.op_with("GatherND", &[indices], &attributes))?;
    cx.give(0, gradient);
    Ok(())
}

/// Operator that writes updates to the positions that indices hold.
struct Writing<'c> {
    op: &'static str,
    /// Operator that reads these positions.
    reading: &'static str,
    axis: Option<i64>,
    indices: Expr<'c>,
    /// Indices into the data with another axis in front, if tuples may be empty: `GatherND` needs
    /// tuples of at least one index.
    longer: Option<Expr<'c>>,
}

impl<'c> Writing<'c> {
    fn axis(&self) -> Vec<(&'static str, AttrValue<'static>)> {
        self.axis.map(|axis| ("axis", AttrValue::Int(axis))).into_iter().collect()
    }

    fn write(&self, data: Expr<'c>, updates: Expr<'c>, reduction: &'static str) -> Expr<'c> {
        let mut attributes = self.axis();
        attributes.push(("reduction", reduction.into()));
        data.op_with(self.op, &[self.indices, updates], &attributes)
    }

    fn read(&self, data: Expr<'c>) -> Expr<'c> {
        let (data, indices) = match self.longer {
            Some(longer) => (data.unsqueeze(&[0]), longer),
            None => (data, self.indices),
        };
        data.op_with(self.reading, &[indices], &self.axis())
    }

    /// Sets the gradients: elements that were overwritten get none. Equal largest or smallest
    /// elements share.
    fn derive(&self, cx: &'c Backward<'_>) -> Result {
        let (x, updates, dy) = (cx.input(0)?, cx.input(2)?, cx.arriving()?);
        let reduction = cx.string("reduction").unwrap_or_else(|| "none".to_string());
        match reduction.as_str() {
            "none" | "add" => {
                if cx.wants(0) {
                    let is_added = reduction == "add";
                    let kept = if is_added { dy } else { self.write(dy, updates.zeros(), "none") };
                    cx.give(0, kept);
                }
                if cx.wants(2) {
                    cx.give(2, self.read(dy));
                }
            }
            "mul" => self.derive_product(cx, x, updates, dy),
            "max" | "min" => {
                let y = cx.output(0)?;
                let (is_data, is_update) =
                    (x.compare("Equal", y), updates.compare("Equal", self.read(y)));
                let [of_data, of_updates] =
                    [is_data, is_update].map(|is_taken| is_taken.cast(x.elem()));
                let count = self.write(of_data, of_updates, "add");
                if cx.wants(0) {
                    cx.give(0, share_among(dy, count).for_taken(is_data));
                }
                if cx.wants(2) {
                    let share = share_among(self.read(dy), self.read(count));
                    cx.give(2, share.for_taken(is_update));
                }
            }
            other => return Err(cx.refuse(format_args!("reduction has no value \"{other}\""))),
        }
        Ok(())
    }

    /// Sets the gradients of a product: the product of the other factors, even if some are 0.
    fn derive_product(&self, cx: &'c Backward<'_>, x: Expr<'c>, updates: Expr<'c>, dy: Expr<'c>) {
        if cx.wants(0) {
            let ones = x.number(1.0).expand(x.shape());
            cx.give(0, dy.scale_by(self.write(ones, updates, "mul")));
        }
        if cx.wants(2) {
            let are_zero = Product::are_zero(updates);
            let added = |of: Expr<'c>| self.read(self.write(x.zeros(), of, "add"));
            let not_zero = Product::without_zeros(updates, are_zero);
            let product = Product {
                factors: updates,
                are_zero,
                zeros: added(are_zero.cast(x.elem())),
                sum_of_zeros: added(Product::zeros_alone(updates, are_zero)),
                rest: self.read(self.write(x, not_zero, "mul")),
            };
            cx.give(2, self.read(dy).scale_by(product.slopes()));
        }
    }
}

pub(crate) fn scatter_elements(cx: &Backward<'_>) -> Result {
    let (axis, indices) = (Some(cx.int("axis").unwrap_or(0)), cx.input(1)?);
    let (op, reading) = ("ScatterElements", "GatherElements");
    Writing { op, reading, axis, indices, longer: None }.derive(cx)
}

pub(crate) fn scatter_nd(cx: &Backward<'_>) -> Result {
    let indices = cx.input(1)?;
    let depth = cx.shape_of(indices).and_then(|shape| shape.last()?.known());
    let may_be_empty = depth.is_none_or(|depth| depth == 0);
    let longer = may_be_empty.then(|| {
        let pads = [cx.ints_of(&[1, 0]), indices.number(0.0), cx.ints_of(&[-1])];
        indices.op_with("Pad", &pads, &[])
    });
    Writing { op: "ScatterND", reading: "GatherND", axis: None, indices, longer }.derive(cx)
}

/// Sets the gradients of `TensorScatter`: overwritten parts of the cache get none.
pub(crate) fn tensor_scatter(cx: &Backward<'_>) -> Result {
    let (update, dy) = (cx.input(1)?, cx.arriving()?);
    let axis = cx.int("axis").unwrap_or(-2);
    let mode = cx.string("mode").unwrap_or_else(|| "linear".to_string());
    if cx.wants(0) {
        let attributes = [("axis", AttrValue::Int(axis)), ("mode", mode.as_str().into())];
        let operands = [Some(update.zeros()), cx.input_if(2)];
        cx.give(0, dy.op_with_some("TensorScatter", &operands, &attributes));
    }
    if cx.wants(1) {
        let rank = cx.rank_of(update)? as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        let others: Vec<i64> = (0..rank).filter(|other| *other != axis).collect();
        let count = update.sizes(axis, Some(axis + 1)).squeeze(&[0]);
        let mut places = cx.count_up(count).unsqueeze(&others);
        if let Some(starts) = cx.input_if(2) {
            places = places + starts.unsqueeze(&(1..rank).collect::<Vec<_>>());
        }
        if mode == "circular" {
            places = places.op_with("Mod", &[dy.sizes(axis, Some(axis + 1))], &[]);
        }
        let axis = [("axis", AttrValue::Int(axis))];
        cx.give(1, dy.op_with("GatherElements", &[places.expand(update.shape())], &axis));
    }
    Ok(())
}

/// Sets the gradient of `Unique`: equal elements or slices share.
pub(crate) fn unique(cx: &Backward<'_>) -> Result {
    let x = cx.input(0)?;
    let (from, counts) = (cx.also_output(2, DataType::Int64), cx.also_output(3, DataType::Int64));
    let Some(dy) = cx.arriving_if(0) else { return Ok(()) };
    let counts = counts.cast(dy.elem());
    let Some(axis) = cx.int("axis") else {
        cx.give(0, (dy / counts).gather(from, 0).reshape(x.shape()));
        return Ok(());
    };
    let rank = cx.rank_of(x)? as i64;
    let axis = if axis < 0 { axis + rank } else { axis };
    let after: Vec<i64> = (1..rank - axis).collect();
    let counts = if after.is_empty() { counts } else { counts.unsqueeze(&after) };
    cx.give(0, (dy / counts).gather(from, axis));
    Ok(())
}

/// Sets the gradient of `OneHot`: each of the two values gets the sum over the positions that hold
/// it.
pub(crate) fn one_hot(cx: &Backward<'_>) -> Result {
    let (indices, depth, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let axis = [("axis", AttrValue::Int(cx.int("axis").unwrap_or(-1)))];
    let values = cx.numbers_of(&[0.0, 1.0], dy.elem());
    let is_on = indices.op_with("OneHot", &[depth, values], &axis).with_elem(dy.elem());
    let (is_on, none) = (is_on.cast(DataType::Bool), dy.number(0.0));
    let [off, on] = [is_on.choose(none, dy), is_on.choose(dy, none)]
        .map(|part| part.reshape(cx.ints_of(&[-1])).sum(&[0], true));
    cx.give(2, off.concat(&[on], 0));
    Ok(())
}

pub(crate) fn top_k(cx: &Backward<'_>) -> Result {
    let (x, indices) = (cx.input(0)?, cx.also_output(1, DataType::Int64));
    let axis = cx.int("axis").unwrap_or(-1);
    if let Some(dy) = cx.arriving_if(0) {
        cx.give(0, scatter(x.zeros(), indices, dy, axis));
    }
    Ok(())
}

pub(crate) fn trilu(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let upper = cx.int("upper").unwrap_or(1);
    cx.give(0, dy.op_with_some("Trilu", &[cx.input_if(1)], &[("upper", upper.into())]));
    Ok(())
}

/// Moves blocks back to their origin with the inverse operator.
fn move_blocks_back(cx: &Backward<'_>, op: &'static str) -> Result {
    let mode = cx.string("mode").unwrap_or_else(|| "DCR".to_string());
    let size = cx.int("blocksize").unwrap_or(1);
    let attributes = [("blocksize", size.into()), ("mode", AttrValue::from(mode.as_str()))];
    cx.give(0, cx.arriving()?.op_with(op, &[], &attributes));
    Ok(())
}

pub(crate) fn depth_to_space(cx: &Backward<'_>) -> Result {
    move_blocks_back(cx, "SpaceToDepth")
}

pub(crate) fn space_to_depth(cx: &Backward<'_>) -> Result {
    move_blocks_back(cx, "DepthToSpace")
}

/// Sets the gradient of `ReverseSequence`, which is its own inverse.
pub(crate) fn reverse_sequence(cx: &Backward<'_>) -> Result {
    let (lengths, dy) = (cx.input(1)?, cx.arriving()?);
    let attributes = ["batch_axis", "time_axis"]
        .map(|name| (name, AttrValue::Int(cx.int(name).unwrap_or_default())));
    cx.give(0, dy.op_with("ReverseSequence", &[lengths], &attributes));
    Ok(())
}

pub(crate) fn compress(cx: &Backward<'_>) -> Result {
    let condition = cx.input(1)?;
    let axis = cx.int("axis").map(|axis| ("axis", AttrValue::Int(axis)));
    let attributes: Vec<_> = axis.into_iter().collect();
    let gradient =
        from_positions(cx, |places| places.op_with("Compress", &[condition], &attributes))?;
    cx.give(0, gradient);
    Ok(())
}
