//! Constants that are merged into the weights of products and convolutions, products in other
//! forms, and padding that convolutions and pools do themselves.

use std::collections::BTreeSet;

use sardonyx_model::{AttrValue, Attributes, Dim, NodeAttributes, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ADD, AVERAGE_POOL, CONV, CONV_TRANSPOSE, DIV, FLATTEN, GEMM, MATMUL, MAX_POOL, MUL, PAD,
    RESHAPE, SQUEEZE, TRANSPOSE, UNSQUEEZE,
};
use sardonyx_tensor::DataType::Float;
use sardonyx_tensor::Tensor;

use super::no_ops::{fill_of, index_of};
use super::rule::CONVOLUTIONS;
use crate::matcher::{InputEdit, Match, Matcher, Rewrite, Source, give_up};
use crate::pages::give_back_pages;

/// Nodes that are followed from a factor to a weight.
const MOST_FOLLOWED: usize = 8;

/// Most bytes of a weight that is changed: the changed one is held in memory, beside the file.
const MOST_CHANGED: usize = 1 << 28;

/// A constant of `float` that a changed one replaces. Its elements stay where they are until they
/// are needed, so that looking at one that does not fit costs nothing.
struct Weight {
    tensor: Tensor,
}

impl Weight {
    /// Finds a constant that nothing but `reader` reads, so that its old elements are not stored
    /// beside the new ones.
    fn from_only_reader(cx: &Matcher<'_>, value: ValueId, reader: NodeId) -> Option<Weight> {
        let is_alone = !cx.model.value(value).is_output
            && cx.model.uses(value).all(|(other, _)| other == reader);
        if is_alone { Weight::from_constant(cx, value) } else { None }
    }

    /// Finds a constant, which other nodes may read as well.
    fn from_constant(cx: &Matcher<'_>, value: ValueId) -> Option<Weight> {
        let tensor = cx
            .constant(value)
            .filter(|tensor| tensor.data_type() == Float && tensor.bytes().len() <= MOST_CHANGED)?;
        Some(Weight { tensor })
    }

    fn dims(&self) -> &[usize] {
        self.tensor.dims()
    }

    /// Reads the elements.
    fn elements(&self) -> Option<Vec<f32>> {
        let elements = self.tensor.to_vec::<f32>().ok();
        give_back_pages(&self.tensor);
        elements
    }

    /// Multiplies by factors along an axis, or by one factor. Reads and writes each element once:
    /// the weights of a whole model pass through here.
    fn scale(&self, axis: usize, factors: &[f64]) -> Option<Source> {
        let bytes = self.tensor.bytes();
        let mut scaled: Vec<f32> = Vec::with_capacity(bytes.len() / size_of::<f32>());
        let inner: usize = match factors {
            [_] => 1,
            _ if self.dims().get(axis) != Some(&factors.len()) => return None,
            _ => self.dims()[axis + 1..].iter().product(),
        };
        match factors {
            [] => return None,
            [factor] => {
                scaled.extend(floats(bytes).map(|element| multiply(element, *factor)));
            }
            _ if inner == 1 => {
                for row in bytes.chunks_exact(factors.len() * size_of::<f32>()) {
                    let row = floats(row).zip(factors);
                    scaled.extend(row.map(|(element, factor)| multiply(element, *factor)));
                }
            }
            _ => {
                let runs = bytes.chunks_exact(inner.max(1) * size_of::<f32>());
                for (run, factor) in runs.zip(factors.iter().cycle()) {
                    scaled.extend(floats(run).map(|element| multiply(element, *factor)));
                }
            }
        }
        give_back_pages(&self.tensor);
        make_source(self.dims(), scaled)
    }
}

/// Multiplies in double precision and rounds once.
fn multiply(element: f32, factor: f64) -> f32 {
    (f64::from(element) * factor) as f32
}

/// Iterates over floats at any address.
fn floats(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    let (floats, _) = bytes.as_chunks::<4>();
    floats.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

fn make_source(dims: &[usize], elements: Vec<f32>) -> Option<Source> {
    Tensor::from_vec(dims, elements).ok().map(Source::Constant)
}

/// Factors of a product with a constant: one, or one for each index of an axis of the result.
struct Factors {
    numbers: Vec<f64>,
    /// Axis of the result, counted from the end; 0 for a single factor.
    from_end: usize,
}

/// Finds a constant factor or divisor of a node, and its other operand.
fn factors_of(cx: &Matcher<'_>, node: NodeId) -> Option<(ValueId, Factors)> {
    let (a, b) = cx.pair(node)?;
    let is_quotient = cx.is(node, &DIV);
    for (x, constant) in [(a, b), (b, a)] {
        if is_quotient && x != a || x == constant || cx.constant(x).is_some() {
            continue;
        }
        let Some(weight) = cx.constant(constant).filter(|found| found.data_type() == Float) else {
            continue;
        };
        let keeps = cx.output(node).is_some_and(|y| cx.same_shape(x, y));
        let dims = weight.dims();
        let long: Vec<usize> = (0..dims.len()).filter(|axis| dims[*axis] != 1).collect();
        let from_end = match long[..] {
            [] => 0,
            [axis] => dims.len() - axis,
            _ => continue,
        };
        if !keeps || cx.elem(x) != Some(Float) {
            continue;
        }
        let numbers = weight.to_vec::<f32>().ok()?.into_iter().map(f64::from);
        let numbers: Vec<f64> =
            if is_quotient { numbers.map(|x| 1.0 / x).collect() } else { numbers.collect() };
        if numbers.is_empty() || !numbers.iter().all(|number| number.is_finite()) {
            continue;
        }
        return Some((x, Factors { numbers, from_end }));
    }
    None
}

/// Whether a node moves elements and keeps all of them.
fn is_move(cx: &Matcher<'_>, node: NodeId) -> bool {
    [&RESHAPE, &FLATTEN, &SQUEEZE, &UNSQUEEZE, &TRANSPOSE].iter().any(|op| cx.is(node, op))
}

/// Merges a constant factor into the weight of the product or convolution that it multiplies,
/// through sums with constants, and, if it is one number, through nodes that move elements.
pub(super) fn find_scaled(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    match scale_upwards(cx, anchor) {
        Some((x, edits)) => {
            let fused = edits.iter().map(|edit| edit.node).collect();
            Match::Yes(Rewrite { edits, ..Rewrite::with_value(x, fused) })
        }
        None => Match::No,
    }
}

fn scale_upwards(cx: &Matcher<'_>, anchor: NodeId) -> Option<(ValueId, Vec<InputEdit>)> {
    let (x, mut factors) = factors_of(cx, anchor)?;
    let is_single = factors.numbers.len() == 1;
    let (mut value, mut reader, mut edits) = (x, anchor, Vec::new());
    for _ in 0..MOST_FOLLOWED {
        let node = cx.producer(value)?;
        if cx.only_reader(node)? != reader || cx.model.node(reader).graph != cx.graph {
            return None;
        }
        if is_single && is_move(cx, node) || cx.is(node, &TRANSPOSE) {
            let before = cx.input(node, 0)?;
            if !is_single {
                let perm = cx.permutation(node)?;
                let axis = *perm.get(perm.len().checked_sub(factors.from_end)?)?;
                factors.from_end = perm.len().checked_sub(usize::try_from(axis).ok()?)?;
            }
            edits.push(InputEdit { node, index: 0, source: Source::Value(before) });
            value = before;
        } else if cx.is(node, &ADD) {
            let (a, b) = cx.pair(node)?;
            let (other, constant, index) =
                if cx.constant(b).is_some() { (a, b, 1) } else { (b, a, 0) };
            let bias = Weight::from_constant(cx, constant)?;
            let rank = bias.dims().len();
            // A bias of another shape would be repeated along other axes than the factors.
            if !is_single && (rank != 1 || factors.from_end != 1) {
                return None;
            }
            let source = bias.scale(rank.saturating_sub(1), &factors.numbers)?;
            edits.push(InputEdit { node, index, source });
            value = other;
        } else {
            scale_weight(cx, node, &factors, &mut edits)?;
            return Some((x, edits));
        }
        reader = node;
    }
    None
}

/// Scales the weight and the bias of a product or convolution.
fn scale_weight(
    cx: &Matcher<'_>,
    node: NodeId,
    factors: &Factors,
    edits: &mut Vec<InputEdit>,
) -> Option<()> {
    let Factors { numbers, from_end } = factors;
    let is_single = numbers.len() == 1;
    let weight = cx.input(node, 1)?;
    let weight = Weight::from_only_reader(cx, weight, node)?;
    let rank = weight.dims().len();
    let axis = if cx.is(node, &MATMUL) {
        if rank < 2 || !is_single && *from_end != 1 {
            return None;
        }
        rank - 1
    } else if cx.is(node, &GEMM) {
        if rank != 2 || !is_single && *from_end != 1 {
            return None;
        }
        scale_bias(cx, node, numbers, edits)?;
        usize::from(cx.int(node, "transB").unwrap_or(0) == 0)
    } else if CONVOLUTIONS.iter().any(|op| cx.is(node, op)) {
        let axis = channels_axis(cx, node, is_single)?;
        // Channels are the second axis of the result.
        if rank < 3 || !is_single && *from_end != rank - 1 {
            return None;
        }
        scale_bias(cx, node, numbers, edits)?;
        axis
    } else {
        return None;
    };
    edits.push(InputEdit { node, index: 1, source: weight.scale(axis, numbers)? });
    Some(())
}

/// Returns the axis of the weight of a convolution along which output channels lie.
fn channels_axis(cx: &Matcher<'_>, node: NodeId, is_single: bool) -> Option<usize> {
    let is_transposed = cx.is(node, &CONV_TRANSPOSE);
    // In groups, channels are spread over two axes.
    let fits = is_single || !is_transposed || cx.int(node, "group").unwrap_or(1) == 1;
    fits.then_some(usize::from(is_transposed))
}

fn scale_bias(
    cx: &Matcher<'_>,
    node: NodeId,
    factors: &[f64],
    edits: &mut Vec<InputEdit>,
) -> Option<()> {
    let Some(bias) = cx.input(node, 2) else { return Some(()) };
    let bias = Weight::from_constant(cx, bias)?;
    let rank = bias.dims().len();
    if factors.len() > 1 && rank != 1 {
        return None;
    }
    let source = bias.scale(rank.saturating_sub(1), factors)?;
    edits.push(InputEdit { node, index: 2, source });
    Some(())
}

/// Merges a constant factor of an operand into the other operand, a constant weight.
pub(super) fn find_scaled_operand(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    match scale_downwards(cx, anchor) {
        Some(rewrite) => Match::Yes(rewrite),
        None => Match::No,
    }
}

fn scale_downwards(cx: &Matcher<'_>, anchor: NodeId) -> Option<Rewrite> {
    let (x, factors) = factors_of(cx, anchor)?;
    let is_single = factors.numbers.len() == 1;
    let (mut node, mut edits) = (anchor, Vec::new());
    for _ in 0..MOST_FOLLOWED {
        let value = cx.output(node)?;
        let reader = cx.only_reader(node)?;
        let index = cx.model.inputs(reader).position(|input| input == Some(value))?;
        if cx.model.node(reader).graph != cx.graph {
            return None;
        }
        // A product with anything else has the factor, too.
        let is_product = cx.is(reader, &MUL) || cx.is(reader, &DIV) && index == 0;
        if is_single && (index == 0 && is_move(cx, reader) || is_product) {
            edits.push(InputEdit { node: reader, index, source: Source::Value(value) });
            node = reader;
            continue;
        }
        let rows = scaled_rows(cx, reader, &factors).filter(|_| index == 0);
        match rows {
            Some(edit) => edits.push(edit),
            None => {
                edits.push(InputEdit { node: reader, index, source: Source::Value(value) });
                edits.push(scaled_other(cx, reader, 1 - index.min(1), &factors)?);
            }
        }
        let fused = edits.iter().map(|edit| edit.node).collect();
        return Some(Rewrite { edits, ..Rewrite::with_value(x, fused) });
    }
    None
}

/// Scales the rows of the weight of a product.
fn scaled_rows(cx: &Matcher<'_>, node: NodeId, factors: &Factors) -> Option<InputEdit> {
    let is_single = factors.numbers.len() == 1;
    let weight = Weight::from_only_reader(cx, cx.input(node, 1)?, node)?;
    let rank = weight.dims().len();
    let rows = if cx.is(node, &MATMUL) && rank >= 2 {
        rank - 2
    } else if cx.is(node, &GEMM) && rank == 2 {
        if cx.int(node, "transA").unwrap_or(0) != 0 && !is_single {
            return None;
        }
        usize::from(cx.int(node, "transB").unwrap_or(0) != 0)
    } else if CONVOLUTIONS.iter().any(|op| cx.is(node, op)) && is_single {
        // One factor scales all elements; padded zeros stay zeros.
        0
    } else {
        return None;
    };
    if !is_single && factors.from_end != 1 {
        return None;
    }
    Some(InputEdit { node, index: 1, source: weight.scale(rows, &factors.numbers)? })
}

/// Scales the factor by which the other operand of a product of matrices is multiplied.
fn scaled_other(
    cx: &Matcher<'_>,
    node: NodeId,
    index: usize,
    factors: &Factors,
) -> Option<InputEdit> {
    let other = cx.producer(cx.input(node, index)?)?;
    let is_alone = cx.is(other, &MUL) && cx.only_reader(other) == Some(node);
    if !cx.is(node, &MATMUL) || !is_alone || factors.numbers.len() != 1 {
        return None;
    }
    let (a, b) = cx.pair(other)?;
    let at = if cx.scalar(b).is_some() { 1 } else { 0 };
    let factor = Weight::from_constant(cx, [a, b][at]).filter(|found| found.tensor.len() == 1)?;
    Some(InputEdit { node: other, index: at, source: factor.scale(0, &factors.numbers)? })
}

/// Merges `BatchNormalization` into the convolution or product before it. Counterexamples: a
/// convolution with other readers; training mode; running statistics that are outputs.
pub(super) fn find_batch_norm(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let outputs = cx.model.outputs(anchor);
    let is_trained = cx.int(anchor, "training_mode").unwrap_or(0) != 0
        || outputs.iter().skip(1).flatten().any(|value| cx.model.is_read(*value));
    let Some(node) = cx.input(anchor, 0).and_then(|x| cx.producer(x)) else { return Match::No };
    let is_linear = cx.is(node, &GEMM) || CONVOLUTIONS.iter().any(|op| cx.is(node, op));
    // Up to version 8, statistics may be those of single elements.
    let is_by_channel = cx.is_from(7) && cx.int(anchor, "spatial").unwrap_or(1) == 1;
    if is_trained || !is_by_channel || !is_linear {
        return Match::No;
    }
    if cx.only_reader(node) != Some(anchor) {
        give_up!("the result of the convolution is also used by another node");
    }
    match merge_batch_norm(cx, anchor, node) {
        Some(rewrite) => Match::Yes(rewrite),
        None => give_up!("weight and statistics are not all constants of type float"),
    }
}

/// Reads the elements of a constant input.
fn read_vector(cx: &Matcher<'_>, node: NodeId, index: usize) -> Option<Vec<f64>> {
    let weight = Weight::from_constant(cx, cx.input(node, index)?)?;
    Some(weight.elements()?.into_iter().map(f64::from).collect())
}

fn merge_batch_norm(cx: &Matcher<'_>, anchor: NodeId, node: NodeId) -> Option<Rewrite> {
    let x = cx.input(anchor, 0)?;
    let scale = read_vector(cx, anchor, 1)?;
    let shift = read_vector(cx, anchor, 2)?;
    let mean = read_vector(cx, anchor, 3)?;
    let variance = read_vector(cx, anchor, 4)?;
    let count = scale.len();
    if [shift.len(), mean.len(), variance.len()] != [count; 3] || count == 0 {
        return None;
    }
    let epsilon = f64::from(cx.float(anchor, "epsilon").unwrap_or(1e-5));
    let factors: Vec<f64> =
        scale.iter().zip(&variance).map(|(scale, var)| scale / (var + epsilon).sqrt()).collect();
    if !factors.iter().all(|factor| factor.is_finite()) {
        return None;
    }
    let weight = Weight::from_only_reader(cx, cx.input(node, 1)?, node)?;
    let axis = if cx.is(node, &GEMM) {
        if [("alpha", 1.0f32), ("beta", 1.0)]
            .iter()
            .any(|(name, one)| cx.float(node, name).unwrap_or(*one) != *one)
        {
            return None;
        }
        usize::from(cx.int(node, "transB").unwrap_or(0) == 0)
    } else {
        channels_axis(cx, node, false)?
    };
    // One factor would be taken for all channels.
    if weight.dims().get(axis) != Some(&count) {
        return None;
    }
    let before: Vec<f64> = match cx.input(node, 2) {
        None => vec![0.0; count],
        Some(bias) => {
            let bias = Weight::from_constant(cx, bias).filter(|bias| bias.dims() == [count])?;
            bias.elements()?.into_iter().map(f64::from).collect()
        }
    };
    let bias = (0..count).map(|at| ((before[at] - mean[at]) * factors[at] + shift[at]) as f32);
    let edits = vec![
        InputEdit { node, index: 1, source: weight.scale(axis, &factors)? },
        InputEdit { node, index: 2, source: make_source(&[count], bias.collect())? },
    ];
    Some(Rewrite { edits, ..Rewrite::with_value(x, vec![node]) })
}

/// Makes a constant that is added the bias of a convolution or of `Gemm`.
pub(super) fn find_bias(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    match add_bias(cx, anchor) {
        Some(rewrite) => Match::Yes(rewrite),
        None => Match::No,
    }
}

fn add_bias(cx: &Matcher<'_>, anchor: NodeId) -> Option<Rewrite> {
    let (x, constant) = cx
        .either_way(anchor)
        .find(|(x, constant)| cx.constant(*constant).is_some() && cx.constant(*x).is_none())?;
    let node = cx.producer(x)?;
    let keeps = cx.output(anchor).is_some_and(|y| cx.same_shape(x, y));
    if !keeps || cx.only_reader(node) != Some(anchor) || cx.elem(x) != Some(Float) {
        return None;
    }
    let source = if cx.is(node, &GEMM) {
        let beta = cx.float(node, "beta").unwrap_or(1.0);
        if cx.input(node, 2).is_some() || beta != 1.0 || !cx.is_from(7) {
            return None;
        }
        (cx.rank(constant)? <= 2).then_some(Source::Value(constant))?
    } else if CONVOLUTIONS.iter().any(|op| cx.is(node, op)) {
        let rank = cx.rank(x)?;
        let channels = usize::try_from(cx.shape(x)?.get(1)?.known()?).ok()?;
        let added = Weight::from_constant(cx, constant)?;
        let dims = added.dims();
        // All elements lie along the axis of channels, or there is one.
        let lies_along = added.tensor.len() == 1
            || added.tensor.len() == channels
                && dims.len() + 1 >= rank
                && dims.get((dims.len() + 1).checked_sub(rank)?) == Some(&channels);
        if !lies_along {
            return None;
        }
        let mut bias = match cx.input(node, 2) {
            None => vec![0.0; channels],
            Some(bias) => {
                let bias = Weight::from_constant(cx, bias)?;
                bias.elements().filter(|_| bias.dims() == [channels])?
            }
        };
        for (element, added) in bias.iter_mut().zip(added.elements()?.iter().cycle()) {
            *element += added;
        }
        make_source(&[channels], bias)?
    } else {
        return None;
    };
    let edits = vec![InputEdit { node, index: 2, source }];
    Some(Rewrite { edits, ..Rewrite::with_value(x, vec![node]) })
}

/// Replaces `MatMul` and `Add` of matrices by `Gemm`. Counterexamples: products of more than two
/// axes; a term that makes the result larger.
pub(super) fn find_gemm(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (product, term) in cx.either_way(anchor) {
        let Some(node) = cx.made_by(product, &MATMUL) else { continue };
        let Some((a, b)) = cx.pair(node) else { continue };
        let keeps = cx.output(anchor).is_some_and(|y| cx.same_shape(product, y));
        let fits = [a, b].iter().all(|value| cx.rank(*value) == Some(2))
            && cx.rank(term).is_some_and(|rank| rank <= 2)
            && keeps
            && cx.elem(a) == Some(Float)
            && cx.is_from(7);
        if !fits {
            continue;
        }
        if !cx.are_inner(&[node], anchor) {
            give_up!("the product is also used by another node");
        }
        let mut rewrite = Rewrite::fusing(vec![node]);
        rewrite.step(&GEMM, [a, b, term].map(Source::Value).to_vec(), Vec::new());
        return Match::Yes(rewrite);
    }
    Match::No
}

/// Finds `Reshape(Gemm(Reshape(x)))`, where the outer axes of `x` are joined and taken apart again:
/// a `MatMul` of all of them, and a sum.
pub(super) fn find_matmul(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let Some(gemm) = cx.input(anchor, 0).and_then(|y| cx.made_by(y, &GEMM)) else {
        return Match::No;
    };
    let ones = ["alpha", "beta"].iter().all(|name| cx.float(gemm, name).unwrap_or(1.0) == 1.0);
    if !ones || cx.int(gemm, "transA").unwrap_or(0) != 0 || !cx.are_inner(&[gemm], anchor) {
        return Match::No;
    }
    let joined = cx.input(gemm, 0).and_then(|rows| cx.made_by(rows, &RESHAPE));
    let (Some(joined), Some(weight), Some(y)) = (joined, cx.input(gemm, 1), cx.output(anchor))
    else {
        return Match::No;
    };
    let (Some(x), Some(rows)) = (cx.input(joined, 0), cx.input(gemm, 0)) else { return Match::No };
    let (Some(wide), Some(flat), Some(after), Some(weight_shape)) =
        (cx.shape(x), cx.shape(rows), cx.shape(y), cx.shape(weight))
    else {
        return Match::No;
    };
    let is_transposed = cx.int(gemm, "transB").unwrap_or(0) != 0;
    let columns = weight_shape.get(usize::from(!is_transposed));
    let (Some((last, outer)), Some((result, outer_after))) =
        (wide.split_last(), after.split_last())
    else {
        return Match::No;
    };
    let fits = outer.len() >= 2
        && outer.len() == outer_after.len()
        && outer.iter().zip(outer_after).all(|(a, b): (&Dim, &Dim)| a.surely_equals(b))
        && flat.len() == 2
        && flat[1].surely_equals(last)
        && columns.is_some_and(|columns| columns.surely_equals(result));
    let bias = cx.input(gemm, 2);
    // A term with rows of its own would need them in the order of `x`.
    let is_vector = bias.is_none_or(|bias| cx.rank(bias).is_some_and(|rank| rank <= 1));
    if !fits || !is_vector {
        return Match::No;
    }
    let mut rewrite = Rewrite::fusing(vec![joined, gemm]);
    let mut weight = Source::Value(weight);
    if is_transposed {
        // Another reader of the weight would need it as it is.
        let shared = cx.input(gemm, 1).is_none_or(|weight| {
            cx.constant(weight).is_none() || cx.model.uses(weight).count() > 1
        });
        if shared {
            return Match::No;
        }
        let perm = vec![("perm", AttrValue::from(vec![1, 0]))];
        weight = rewrite.step(&TRANSPOSE, vec![weight], perm);
    }
    let product = rewrite.step(&MATMUL, vec![Source::Value(x), weight], Vec::new());
    if let Some(bias) = bias {
        rewrite.step(&ADD, vec![product, Source::Value(bias)], Vec::new());
    }
    Match::Yes(rewrite)
}

/// Finds a sum of products with a constant vector along one of the last two axes, which is a
/// product of matrices with that vector. Counterexamples: a constant along several axes; a sum that
/// keeps the axis; another axis than that of the constant.
pub(super) fn find_weighted_sum(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let Some(product) = cx.input(anchor, 0).and_then(|x| cx.made_by(x, &MUL)) else {
        return Match::No;
    };
    let (Some((x, factors)), Some(axes)) = (factors_of(cx, product), cx.list(anchor, "axes", 1))
    else {
        return Match::No;
    };
    let ([axis], Some(rank)) = (&axes[..], cx.rank(x)) else { return Match::No };
    let from_end = index_of(*axis, rank).map(|axis| rank - axis);
    let fits = from_end == Some(factors.from_end)
        && factors.numbers.len() > 1
        && factors.from_end <= 2
        && rank >= 2
        && cx.int(anchor, "keepdims") == Some(0)
        && cx.are_inner(&[product], anchor);
    let numbers: Vec<f32> = factors.numbers.iter().map(|number| *number as f32).collect();
    let Ok(vector) = Tensor::from_vec([numbers.len()], numbers) else { return Match::No };
    if !fits {
        return Match::No;
    }
    let mut inputs = vec![Source::Value(x), Source::Constant(vector)];
    if factors.from_end == 2 {
        inputs.reverse();
    }
    let mut rewrite = Rewrite::fusing(vec![product]);
    rewrite.step(&MATMUL, inputs, Vec::new());
    Match::Yes(rewrite)
}

/// Copies attributes of a node for a new node.
fn copy_attributes(cx: &Matcher<'_>, node: NodeId, names: &[&'static str]) -> Attrs {
    let attributes = NodeAttributes::new(cx.model, node);
    let found =
        names.iter().filter_map(|name| Some((*name, attributes.attribute(name)?.into_owned())));
    found.collect()
}

type Attrs = Vec<(&'static str, AttrValue<'static>)>;

/// `Pad` before a node with windows, as far as it pads the spatial axes alone.
struct Padding {
    pad: NodeId,
    x: ValueId,
    /// Padding of the node itself and of the `Pad` together.
    pads: Vec<i64>,
}

/// Counterexamples: padded channels; negative padding; `auto_pad`; another mode or value.
fn padding_of(cx: &Matcher<'_>, node: NodeId, value: f64) -> Option<Padding> {
    let pad = cx.made_by(cx.input(node, 0)?, &PAD)?;
    let attributes = NodeAttributes::new(cx.model, pad);
    let mode = attributes.string("mode").unwrap_or_else(|| "constant".to_string());
    let given = match cx.input(pad, 2) {
        Some(given) => fill_of(&cx.constant(given)?)?,
        None => f64::from(cx.float(pad, "value").unwrap_or(0.0)),
    };
    let auto = NodeAttributes::new(cx.model, node).string("auto_pad");
    let is_plain = auto.is_none_or(|auto| auto == "NOTSET");
    if mode != "constant"
        || given != value
        || !is_plain
        || !cx.are_inner(&[pad], node)
        || cx.input(pad, 3).is_some()
    {
        return None;
    }
    let added = cx.list(pad, "pads", 1)?;
    let rank = cx.rank(cx.input(pad, 0)?)?;
    if added.len() != 2 * rank || rank < 3 || added.iter().any(|pad| *pad < 0) {
        return None;
    }
    let (begin, end) = added.split_at(rank);
    if begin[..2] != [0, 0] || end[..2] != [0, 0] {
        return None;
    }
    let added: Vec<i64> = begin[2..].iter().chain(&end[2..]).copied().collect();
    let own = cx.int_list(node, "pads").unwrap_or_else(|| vec![0; added.len()]);
    if own.len() != added.len() {
        return None;
    }
    let pads = own.iter().zip(&added).map(|(own, added)| own + added).collect();
    Some(Padding { pad, x: cx.input(pad, 0)?, pads })
}

/// Makes a node with windows that pads itself.
fn make_padded(
    cx: &Matcher<'_>,
    node: NodeId,
    op: &'static OpDef,
    padding: Padding,
    mut attributes: Attrs,
) -> Match {
    let mut rewrite = Rewrite::fusing(vec![padding.pad]);
    let mut inputs = vec![Source::Value(padding.x)];
    let others = cx.model.inputs(node).skip(1);
    inputs.extend(others.map(|input| input.map_or(Source::Absent, Source::Value)));
    attributes.push(("pads", padding.pads.into()));
    rewrite.step(op, inputs, attributes);
    Match::Yes(rewrite)
}

/// Moves `Pad` with zeros into a convolution, or into a pool that counts padded elements.
pub(super) fn find_conv_pad(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(padding) = padding_of(cx, node, 0.0) else { return Match::No };
    if cx.is(node, &CONV) {
        let names = ["dilations", "group", "kernel_shape", "strides"];
        return make_padded(cx, node, &CONV, padding, copy_attributes(cx, node, &names));
    }
    let own = cx.int_list(node, "pads").unwrap_or_default();
    let counts =
        cx.int(node, "count_include_pad").unwrap_or(0) != 0 || own.iter().all(|pad| *pad == 0);
    let is_cut = cx.int(node, "ceil_mode").unwrap_or(0) == 0;
    if !counts || !is_cut || !cx.is_from(7) || !is_below_window(cx, node, &padding.pads) {
        return Match::No;
    }
    let mut attributes = copy_attributes(cx, node, &["dilations", "kernel_shape", "strides"]);
    attributes.push(("count_include_pad", AttrValue::Int(1)));
    make_padded(cx, node, &AVERAGE_POOL, padding, attributes)
}

/// Whether each window has an element that is not padded.
fn is_below_window(cx: &Matcher<'_>, node: NodeId, pads: &[i64]) -> bool {
    let Some(kernel) = cx.int_list(node, "kernel_shape") else { return false };
    kernel.len() * 2 == pads.len()
        && pads.iter().enumerate().all(|(at, pad)| *pad < kernel[at % kernel.len()])
}

/// Moves `Pad` with minus infinity into `MaxPool`. Counterexamples: places of the greatest
/// elements, which count from the padded image; NaN, which may be the first element of a window.
pub(super) fn find_max_pool_pad(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some(padding) = padding_of(cx, node, f64::NEG_INFINITY) else { return Match::No };
    let places = cx.model.outputs(node).get(1).copied().flatten();
    let is_cut = cx.int(node, "ceil_mode").unwrap_or(0) == 0;
    if places.is_some() || !is_cut || !is_below_window(cx, node, &padding.pads) {
        return Match::No;
    }
    let names = ["dilations", "kernel_shape", "storage_order", "strides"];
    make_padded(cx, node, &MAX_POOL, padding, copy_attributes(cx, node, &names))
}

/// Labels of an equation without ellipsis: those of each operand, and of the result.
fn labels(cx: &Matcher<'_>, node: NodeId) -> Option<(Vec<Vec<char>>, Vec<char>)> {
    let equation = NodeAttributes::new(cx.model, node).string("equation")?;
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (operands, result) = equation.split_once("->")?;
    let operands: Vec<&str> = operands.split(',').collect();
    let fits = operands.iter().chain([&result]).all(|text| {
        let labels: BTreeSet<char> = text.chars().collect();
        labels.len() == text.len() && text.chars().all(|c| c.is_ascii_alphabetic())
    });
    fits.then(|| {
        (operands.iter().map(|text| text.chars().collect()).collect(), result.chars().collect())
    })
}

/// Replaces `Einsum` that only moves axes by `Transpose`. Counterexamples: a label twice in the
/// operand, which takes the diagonal; a label that is left out, which is summed.
pub(super) fn find_moving_einsum(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some((operands, result)) = labels(cx, node) else { return Match::No };
    let ([labels], Some(x)) = (&operands[..], cx.input(node, 0)) else { return Match::No };
    if labels.len() != result.len() {
        return Match::No;
    }
    let perm = result.iter().map(|label| labels.iter().position(|found| found == label));
    let perm = perm.map(|axis| i64::try_from(axis?).ok());
    let Some(perm) = perm.collect::<Option<Vec<i64>>>() else {
        return Match::No;
    };
    let mut rewrite = Rewrite::default();
    rewrite.step(&TRANSPOSE, vec![Source::Value(x)], vec![("perm", perm.into())]);
    Match::Yes(rewrite)
}

/// Replaces `Einsum` that is a product of matrices by `MatMul`. Counterexamples: operands that
/// would have to be transposed; batches in other orders.
pub(super) fn find_einsum(cx: &Matcher<'_>, node: NodeId) -> Match {
    let Some((operands, result)) = labels(cx, node) else { return Match::No };
    let ([a, b], Some((x, y))) = (&operands[..], cx.pair(node)) else { return Match::No };
    let rank = result.len();
    if rank < 2 || a.len() != rank || b.len() != rank {
        return Match::No;
    }
    let batch = rank - 2;
    let fits = a[..batch] == result[..batch]
        && b[..batch] == result[..batch]
        && a[batch] == result[batch]
        && a[batch + 1] == b[batch]
        && b[batch + 1] == result[batch + 1]
        && a[batch + 1] != result[batch]
        && !result.contains(&a[batch + 1]);
    if !fits || cx.elem(x) != Some(Float) {
        return Match::No;
    }
    let mut rewrite = Rewrite::default();
    rewrite.step(&MATMUL, [x, y].map(Source::Value).to_vec(), Vec::new());
    Match::Yes(rewrite)
}
