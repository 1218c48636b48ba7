//! Normalizations that exporters spell out.

use sardonyx_model::{NodeId, ValueId};
use sardonyx_tensor::DataType::{Double, Float};

use super::{Given, Match, Matcher, Rewrite, Source, give_up};

/// `weight * (x / sqrt(mean(x^2) + epsilon))`: Zhang and Sennrich, "Root mean square layer normalization" (2019).
pub(super) fn rms(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (weight, normal) in cx.either_way(anchor) {
        let Some((x, inverse, mut absorbed)) = over_root(cx, normal) else {
            continue;
        };
        let Some((square, epsilon, inner)) = mean_and_epsilon(cx, inverse) else {
            continue;
        };
        absorbed.extend(inner);
        let Some(squared) = square_of(cx, square) else {
            continue;
        };
        if squared.0 != x {
            continue;
        }
        absorbed.push(squared.1);
        // Of what is centred, with a bias to come, it is part of a larger whole.
        let next = cx.only_reader(anchor).filter(|next| cx.is(*next, "Add"));
        if next.is_some_and(|next| matches!(layer(cx, next), Match::Yes(_))) {
            give_up!();
        }
        return normalized(
            cx,
            anchor,
            absorbed,
            x,
            "RMSNormalization",
            vec![weight],
            epsilon,
        );
    }
    Match::No
}

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias`: Ba, Kiros and Hinton, "Layer normalization"
/// (2016).
pub(super) fn layer(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (bias, weighted) in cx.either_way(anchor) {
        let Some(product) = cx.made_by(weighted, "Mul") else {
            continue;
        };
        for (weight, normal) in cx.either_way(product) {
            let Some((centred, inverse, mut absorbed)) = over_root(cx, normal) else {
                continue;
            };
            let Some((square, epsilon, inner)) = mean_and_epsilon(cx, inverse) else {
                continue;
            };
            let (Some(squared), Some(subtract)) =
                (square_of(cx, square), cx.made_by(centred, "Sub"))
            else {
                continue;
            };
            let Some((x, mean)) = cx.pair(subtract) else {
                continue;
            };
            let Some(mean) = cx.made_by(mean, "ReduceMean") else {
                continue;
            };
            if squared.0 != centred
                || cx.input(mean, 0) != Some(x)
                || !is_over_last_axis(cx, mean, x)
            {
                continue;
            }
            absorbed.extend(inner);
            absorbed.extend([product, squared.1, subtract, mean]);
            return normalized(
                cx,
                anchor,
                absorbed,
                x,
                "LayerNormalization",
                vec![weight, bias],
                epsilon,
            );
        }
    }
    Match::No
}

fn normalized(
    cx: &Matcher<'_>,
    anchor: NodeId,
    absorbed: Vec<NodeId>,
    x: ValueId,
    op: &'static str,
    factors: Vec<ValueId>,
    epsilon: f64,
) -> Match {
    if !matches!(cx.elem(x), Some(Float | Double)) {
        give_up!()
    }
    let Some(size) = cx.size_from_end(x, 1) else {
        give_up!("the size of the last axis is not known");
    };
    for factor in &factors {
        // A longer one would make the result larger than x.
        let fits = cx
            .shape(*factor)
            .is_some_and(|shape| shape.len() == 1 && shape[0].surely_equals(size));
        if !fits {
            give_up!("the weight is not a vector of the size of the last axis");
        }
    }
    if !cx.keeps_rank(anchor, x) {
        give_up!("the result is not seen to have the rank of the input");
    }
    if !cx.are_inner(&absorbed, anchor) {
        give_up!("a value in between is read by somebody else as well");
    }
    let mut rewrite = Rewrite::absorbing(absorbed);
    let inputs = std::iter::once(x)
        .chain(factors)
        .map(Source::Value)
        .collect();
    let attributes = vec![
        ("axis", Given::Int(-1)),
        ("epsilon", Given::Float(epsilon as f32)),
    ];
    rewrite.step(op, inputs, attributes);
    Match::Yes(rewrite)
}

/// `x` and the sum under the root, if `value` is `x / sqrt(sum)` in one of its spellings.
fn over_root(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, ValueId, Vec<NodeId>)> {
    let node = cx.producer(value)?;
    if cx.is(node, "Div") {
        let (x, root) = cx.pair(node)?;
        let root = cx.made_by(root, "Sqrt")?;
        return Some((x, cx.input(root, 0)?, vec![node, root]));
    }
    if !cx.is(node, "Mul") {
        return None;
    }
    cx.either_way(node).find_map(|(x, inverse)| {
        let inverted = cx.producer(inverse)?;
        if cx.is(inverted, "Pow") {
            let (sum, exponent) = cx.pair(inverted)?;
            return cx
                .is_number(exponent, -0.5)
                .then(|| (x, sum, vec![node, inverted]));
        }
        let root = if cx.is(inverted, "Reciprocal") {
            cx.input(inverted, 0)?
        } else if cx.is(inverted, "Div") {
            let (one, root) = cx.pair(inverted)?;
            cx.is_number(one, 1.0).then_some(root)?
        } else {
            return None;
        };
        let root = cx.made_by(root, "Sqrt")?;
        Some((x, cx.input(root, 0)?, vec![node, inverted, root]))
    })
}

/// What the mean is taken of and epsilon, if `sum` is `mean(..) + epsilon` along the last axis.
fn mean_and_epsilon(cx: &Matcher<'_>, sum: ValueId) -> Option<(ValueId, f64, Vec<NodeId>)> {
    let add = cx.made_by(sum, "Add")?;
    cx.either_way(add).find_map(|(mean, epsilon)| {
        let epsilon = cx.scalar(epsilon)?;
        let mean = cx.made_by(mean, "ReduceMean")?;
        let of = cx.input(mean, 0)?;
        is_over_last_axis(cx, mean, of).then(|| (of, epsilon, vec![add, mean]))
    })
}

fn is_over_last_axis(cx: &Matcher<'_>, mean: NodeId, of: ValueId) -> bool {
    let axes = cx.input(mean, 1).and_then(|axes| cx.ints(axes));
    cx.int(mean, "keepdims").unwrap_or(1) == 1
        && matches!(axes.as_deref(), Some([axis]) if cx.is_last_axis(*axis, of))
}

/// What `value` is the square of.
fn square_of(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, NodeId)> {
    let node = cx.producer(value)?;
    let (a, b) = cx.pair(node)?;
    let fits = cx.is(node, "Pow") && cx.is_number(b, 2.0) || cx.is(node, "Mul") && a == b;
    fits.then_some((a, node))
}
