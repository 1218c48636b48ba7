//! Normalizations that exporters spell out.

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ADD, DIV, LAYER_NORMALIZATION, MUL, POW, RECIPROCAL, REDUCE_MEAN, RMS_NORMALIZATION, SQRT, SUB,
};
use sardonyx_tensor::DataType::{Double, Float};

use crate::matcher::{Match, Matcher, Rewrite, Source, give_up};

/// `weight * (x / sqrt(mean(x^2) + epsilon))`: Zhang and Sennrich, "Root mean square layer
/// normalization" (2019).
pub(crate) fn rms(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    // Of what is centred, with a bias to come, it is part of a larger whole.
    match scaled(cx, anchor).filter(|_| !has_bias(cx, anchor)) {
        Some(found) => normalized(cx, anchor, found, &RMS_NORMALIZATION, None),
        None => Match::No,
    }
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias`: Ba, Kiros and Hinton,
/// "Layer normalization" (2016).
pub(crate) fn layer(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (bias, weighted) in cx.either_way(anchor) {
        let product = cx.made_by(weighted, &MUL);
        let found = product.and_then(|product| Some((product, centred(cx, product)?)));
        if let Some((product, found)) = found {
            let bias = Some((bias, product));
            return normalized(cx, anchor, found, &LAYER_NORMALIZATION, bias);
        }
    }
    Match::No
}

/// The same without a bias. What does not fit is left to [`rms`], as that of the centred value,
/// which says why not if it does not fit either.
pub(crate) fn layer_without_bias(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let Some(found) = centred(cx, anchor).filter(|_| !has_bias(cx, anchor)) else {
        return Match::No;
    };
    match normalized(cx, anchor, found, &LAYER_NORMALIZATION, None) {
        Match::Nearly(_) => Match::No,
        found => found,
    }
}

/// Whether a product is the part before the bias of a layer normalization that has one.
fn has_bias(cx: &Matcher<'_>, product: NodeId) -> bool {
    let next = cx.only_reader(product).filter(|next| cx.is(*next, &ADD));
    next.is_some_and(|next| matches!(layer(cx, next), Match::Yes(_)))
}

/// What a product of a weight and something of unit size is made of.
struct Scaled {
    x: ValueId,
    weight: ValueId,
    epsilon: f64,
    /// The node that makes the other factor of the product.
    normal: NodeId,
    /// The nodes before that.
    inner: Vec<NodeId>,
}

/// The parts of `x / sqrt(mean(x^2) + epsilon) * weight`, if a product is that.
fn scaled(cx: &Matcher<'_>, product: NodeId) -> Option<Scaled> {
    cx.either_way(product).find_map(|(weight, value)| {
        let normal = cx.producer(value)?;
        let (x, inverse, mut inner) = over_root(cx, normal)?;
        let (square, epsilon, nodes) = mean_and_epsilon(cx, inverse)?;
        let (squared, square) = square_of(cx, square)?;
        inner.extend(nodes);
        inner.push(square);
        (squared == x).then_some(Scaled { x, weight, epsilon, normal, inner })
    })
}

/// The same for `x - mean(x)` in the place of `x`.
fn centred(cx: &Matcher<'_>, product: NodeId) -> Option<Scaled> {
    let mut found = scaled(cx, product)?;
    let subtract = cx.made_by(found.x, &SUB)?;
    let (x, mean) = cx.pair(subtract)?;
    let mean = cx.made_by(mean, &REDUCE_MEAN)?;
    found.inner.extend([subtract, mean]);
    found.x = x;
    (cx.input(mean, 0) == Some(x) && is_over_last_axis(cx, mean, x)).then_some(found)
}

/// `bias` with the product that it is added to.
fn normalized(
    cx: &Matcher<'_>,
    anchor: NodeId,
    found: Scaled,
    op: &'static OpDef,
    bias: Option<(ValueId, NodeId)>,
) -> Match {
    let x = found.x;
    if !matches!(cx.elem(x), Some(Float | Double)) {
        give_up!()
    }
    let Some(size) = cx.size_from_end(x, 1) else {
        give_up!("the size of the last axis is unknown");
    };
    // A longer one would make the result larger than x.
    let is_vector = |factor: ValueId| {
        cx.shape(factor).is_some_and(|shape| shape.len() == 1 && shape[0].surely_equals(size))
    };
    if !is_vector(found.weight) || bias.is_some_and(|(bias, _)| !is_vector(bias)) {
        give_up!("the weight is not a vector of the size of the last axis");
    }
    if !cx.keeps_rank(anchor, x) {
        give_up!("the result may have another rank than the input");
    }
    // What is normalized once and weighted several times, as in blocks side by side, is as many
    // normalizations: together they are still fewer passes over memory. Each of these products is
    // fused for the same reasons as this one.
    let normal = cx.output(found.normal);
    let is_another = |reader: NodeId| {
        cx.is(reader, &MUL)
            && cx.model.node(reader).graph == cx.model.node(anchor).graph
            && cx.keeps_rank(reader, x)
            && cx
                .either_way(reader)
                .any(|(weight, value)| Some(value) == normal && is_vector(weight))
    };
    let product = bias.map_or(anchor, |(_, product)| product);
    let mut readers = normal.into_iter().flat_map(|value| cx.model.uses(value));
    let is_inner = normal.is_some_and(|value| !cx.model.value(value).is_output)
        && readers.all(|(reader, _)| reader == product || is_another(reader))
        && cx.are_inner(&found.inner, found.normal)
        && (product == anchor || cx.are_inner(&[product], anchor));
    if !is_inner {
        give_up!("an intermediate value is also used by another node");
    }
    let mut fused = found.inner;
    fused.push(found.normal);
    fused.extend(bias.map(|(_, product)| product));
    let mut rewrite = Rewrite::fusing(fused);
    let inputs = [Some(x), Some(found.weight), bias.map(|(bias, _)| bias)];
    let inputs = inputs.into_iter().flatten().map(Source::Value).collect();
    let attributes =
        vec![("axis", AttrValue::Int(-1)), ("epsilon", AttrValue::Float(found.epsilon as f32))];
    rewrite.step(op, inputs, attributes);
    Match::Yes(rewrite)
}

/// `x`, the sum under the root, and the nodes between, if `node` is `x / sqrt(sum)` in one of its
/// spellings.
fn over_root(cx: &Matcher<'_>, node: NodeId) -> Option<(ValueId, ValueId, Vec<NodeId>)> {
    if cx.is(node, &DIV) {
        let (x, root) = cx.pair(node)?;
        let root = cx.made_by(root, &SQRT)?;
        return Some((x, cx.input(root, 0)?, vec![root]));
    }
    if !cx.is(node, &MUL) {
        return None;
    }
    cx.either_way(node).find_map(|(x, inverse)| {
        let inverted = cx.producer(inverse)?;
        if cx.is(inverted, &POW) {
            let (sum, exponent) = cx.pair(inverted)?;
            return cx.is_number(exponent, -0.5).then(|| (x, sum, vec![inverted]));
        }
        let root = if cx.is(inverted, &RECIPROCAL) {
            cx.input(inverted, 0)?
        } else if cx.is(inverted, &DIV) {
            let (one, root) = cx.pair(inverted)?;
            cx.is_number(one, 1.0).then_some(root)?
        } else {
            return None;
        };
        let root = cx.made_by(root, &SQRT)?;
        Some((x, cx.input(root, 0)?, vec![inverted, root]))
    })
}

/// What the mean is taken of and epsilon, if `sum` is `mean(..) + epsilon` along the last axis.
fn mean_and_epsilon(cx: &Matcher<'_>, sum: ValueId) -> Option<(ValueId, f64, Vec<NodeId>)> {
    let add = cx.made_by(sum, &ADD)?;
    cx.either_way(add).find_map(|(mean, epsilon)| {
        let epsilon = cx.scalar(epsilon)?;
        let mean = cx.made_by(mean, &REDUCE_MEAN)?;
        let of = cx.input(mean, 0)?;
        is_over_last_axis(cx, mean, of).then(|| (of, epsilon, vec![add, mean]))
    })
}

fn is_over_last_axis(cx: &Matcher<'_>, mean: NodeId, of: ValueId) -> bool {
    let axes = cx.list(mean, "axes", 1);
    cx.int(mean, "keepdims").unwrap_or(1) == 1
        && matches!(axes.as_deref(), Some([axis]) if cx.is_last_axis(*axis, of))
}

/// What `value` is the square of.
fn square_of(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, NodeId)> {
    let node = cx.producer(value)?;
    let (a, b) = cx.pair(node)?;
    let fits = cx.is(node, &POW) && cx.is_power(b, 2) || cx.is(node, &MUL) && a == b;
    fits.then_some((a, node))
}
