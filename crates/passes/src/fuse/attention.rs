//! Attention: `softmax(scale * q k' + mask) v` around one softmax, in the forms that exporters
//! write.

use sardonyx_model::{AttrValue, Dim, NodeId, ValueId};
use sardonyx_ops::operators::{
    ADD, ATTENTION, DIV, EXPAND, IS_NAN, MATMUL, MUL, RESHAPE, SOFTMAX, SQUEEZE, TRANSPOSE,
    UNSQUEEZE, WHERE,
};
use sardonyx_tensor::DataType::Float;
use sardonyx_tensor::Tensor;

use crate::matcher::{Match, Matcher, Rewrite, Source, give_up};

/// What has been found on the way from the second product up to the operands of the first.
struct Scores {
    scale: f64,
    mask: Option<ValueId>,
    /// The first product.
    product: NodeId,
    fused: Vec<NodeId>,
}

/// Finds an attention by the product with the values.
pub(super) fn attention(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    find(cx, anchor, true)
}

/// Finds an attention for a file, which must be without a mask: the operator gives zeros for
/// queries that see no key, where the nodes give NaN.
pub(crate) fn attention_without_mask(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    find(cx, anchor, false)
}

fn find(cx: &Matcher<'_>, anchor: NodeId, is_private: bool) -> Match {
    let Some((weights, v)) = cx.pair(anchor) else { give_up!() };
    let guard = if is_private { find_guard(cx, weights) } else { None };
    let weights = guard.as_ref().map_or(weights, |guard| guard.weights);
    let Some(softmax) = cx.made_by(weights, &SOFTMAX) else { give_up!() };
    let Some(scores) = cx.input(softmax, 0) else { give_up!() };
    if !cx.is_last_axis(cx.int(softmax, "axis").unwrap_or(-1), scores) {
        give_up!("the softmax is not along the last axis");
    }
    if cx.elem(v) != Some(Float) {
        give_up!("the type is not float");
    }
    let Some(mut found) = scores_of(cx, scores) else {
        give_up!("the argument of the softmax is not a scaled product of queries and keys");
    };
    found.fused.push(softmax);
    found.fused.extend(guard.iter().flat_map(|guard| guard.nodes));
    let Some((q, transposed)) = cx.pair(found.product) else { give_up!() };
    let (q, transposed) = (unscaled(cx, q, &mut found), unscaled(cx, transposed, &mut found));
    let (Some(q_shape), Some(k_shape), Some(v_shape)) =
        (cx.shape(q), cx.shape(transposed), cx.shape(v))
    else {
        give_up!("the ranks of queries, keys and values are unknown");
    };
    let rank = q_shape.len();
    if !(3..=4).contains(&rank) || k_shape.len() != rank || v_shape.len() != rank {
        give_up!("queries, keys and values do not have rank 3 or 4");
    }
    for axis in 0..rank - 2 {
        if !q_shape[axis].surely_equals(&k_shape[axis])
            || !q_shape[axis].surely_equals(&v_shape[axis])
        {
            give_up!("queries, keys and values may have different leading sizes");
        }
    }
    let keys = &k_shape[rank - 1];
    if let Some(mask) = found.mask {
        if !is_private {
            give_up!("a mask may hide all keys, for which the operator gives other results");
        }
        let fits = match cx.shape(mask) {
            // A shorter mask would hide the keys after it, where adding repeats a single element.
            Some(shape) => {
                (1..=rank).contains(&shape.len()) && shape[shape.len() - 1].surely_equals(keys)
            }
            None => false,
        };
        if !fits {
            give_up!("the mask may not have a column for each key");
        }
    }
    // Neither the mask nor a scale may make more of the scores.
    let product = cx.output(found.product);
    if !product.is_some_and(|product| cx.same_shape(product, scores)) {
        give_up!("adding the mask may change the shape of the scores");
    }
    let shared =
        (rank == 4 && is_private).then(|| heads_before_copies(cx, transposed, v)).flatten();
    if !cx.are_inner(&found.fused, anchor) {
        give_up!("an intermediate value is also used by another node");
    }

    let mut rewrite = Rewrite::fusing(std::mem::take(&mut found.fused));
    let swapped: Vec<i64> = match rank {
        3 => vec![0, 2, 1],
        _ => vec![0, 1, 3, 2],
    };
    let (mut q, mut k, mut v) = match shared {
        Some((k, v)) => (Source::Value(q), Source::Value(k), Source::Value(v)),
        None => {
            let k = rewrite.step(
                &TRANSPOSE,
                vec![Source::Value(transposed)],
                vec![("perm", AttrValue::from(swapped))],
            );
            (Source::Value(q), k, Source::Value(v))
        }
    };
    let first = || {
        Source::Constant(Tensor::from_slice([1], &[0i64]).unwrap_or_else(|_| Tensor::scalar(0i64)))
    };
    if rank == 3 {
        // What is left is a batch of one, with every matrix a head.
        q = rewrite.step(&UNSQUEEZE, vec![q, first()], Vec::new());
        k = rewrite.step(&UNSQUEEZE, vec![k, first()], Vec::new());
        v = rewrite.step(&UNSQUEEZE, vec![v, first()], Vec::new());
    }
    let mask = found.mask.map_or(Source::Absent, Source::Value);
    let mut attributes = vec![("scale", AttrValue::Float(found.scale as f32))];
    if is_private && guard.is_none() {
        // The softmax of nothing but minus infinity is NaN, which the operator itself replaces.
        attributes.push((BLIND_IS_NAN, AttrValue::Int(1)));
    }
    let y = rewrite.step(&ATTENTION, vec![q, k, v, mask], attributes);
    if rank == 3 {
        rewrite.step(&SQUEEZE, vec![y, first()], Vec::new());
    }
    Match::Yes(rewrite)
}

/// An attribute that only fused nodes have: queries that see no key give NaN, as the nodes did that
/// are fused.
pub const BLIND_IS_NAN: &str = "sardonyx_blind_is_nan";

/// Zeros in place of weights that are NaN.
struct Guard {
    /// Weights before.
    weights: ValueId,
    nodes: [NodeId; 2],
}

/// Finds `Where (IsNaN (weights), 0, weights)`, by which PyTorch exports the zeros of queries that
/// see no key. Weights are also NaN where queries or keys are, in which case the operator returns
/// NaN.
fn find_guard(cx: &Matcher<'_>, value: ValueId) -> Option<Guard> {
    let choice = cx.made_by(value, &WHERE)?;
    let [is_nan, zero, weights] =
        [cx.input(choice, 0)?, cx.input(choice, 1)?, cx.input(choice, 2)?];
    let test = cx.made_by(is_nan, &IS_NAN)?;
    let fits = cx.input(test, 0) == Some(weights)
        && cx.scalar(zero) == Some(0.0)
        && cx.same_shape(value, weights);
    fits.then_some(Guard { weights, nodes: [choice, test] })
}

/// Follows sums with a mask and scales up to the first product.
fn scores_of(cx: &Matcher<'_>, mut value: ValueId) -> Option<Scores> {
    let mut found =
        Scores { scale: 1.0, mask: None, product: cx.producer(value)?, fused: Vec::new() };
    for _ in 0..4 {
        let node = cx.producer(value)?;
        found.fused.push(node);
        if cx.is(node, &MATMUL) {
            found.product = node;
            return Some(found);
        }
        if cx.is(node, &ADD) && found.mask.is_none() && found.scale == 1.0 {
            let (scores, mask) =
                cx.either_way(node).find(|(scores, _)| leads_to_product(cx, *scores))?;
            (found.mask, value) = (Some(mask), scores);
        } else if cx.is(node, &MUL) {
            let (scores, scale) =
                cx.either_way(node).find(|(_, scale)| cx.scalar(*scale).is_some())?;
            found.scale *= cx.scalar(scale)?;
            value = scores;
        } else if cx.is(node, &DIV) {
            let (scores, scale) = cx.pair(node)?;
            found.scale /= cx.scalar(scale)?;
            value = scores;
        } else {
            return None;
        }
    }
    None
}

/// Whether a value is a product of matrices, or one times a constant.
fn leads_to_product(cx: &Matcher<'_>, mut value: ValueId) -> bool {
    for _ in 0..3 {
        let Some(node) = cx.producer(value) else {
            return false;
        };
        if cx.is(node, &MATMUL) {
            return true;
        }
        let constant = if cx.is(node, &MUL) {
            cx.either_way(node).find(|(_, scale)| cx.scalar(*scale).is_some())
        } else if cx.is(node, &DIV) {
            cx.pair(node).filter(|(_, scale)| cx.scalar(*scale).is_some())
        } else {
            None
        };
        match constant {
            Some((scores, _)) => value = scores,
            None => return false,
        }
    }
    false
}

/// An operand without a scale that only it has.
fn unscaled(cx: &Matcher<'_>, value: ValueId, found: &mut Scores) -> ValueId {
    let Some(node) = cx.made_by(value, &MUL) else {
        return value;
    };
    let scaled =
        cx.either_way(node).find_map(|(operand, scale)| Some((operand, cx.scalar(scale)?)));
    match scaled {
        Some((operand, scale)) if cx.are_inner(&[node], found.product) => {
            found.scale *= scale;
            found.fused.push(node);
            operand
        }
        _ => value,
    }
}

/// Keys and values before each head was copied for the query heads that share it, if both were.
fn heads_before_copies(
    cx: &Matcher<'_>,
    transposed: ValueId,
    v: ValueId,
) -> Option<(ValueId, ValueId)> {
    let transpose = cx.made_by(transposed, &TRANSPOSE)?;
    if cx.int_list(transpose, "perm")? != [0, 1, 3, 2] {
        return None;
    }
    let (k, k_copies) = before_copies(cx, cx.input(transpose, 0)?)?;
    let (v, v_copies) = before_copies(cx, v)?;
    (k_copies == v_copies).then_some((k, v))
}

/// `[b, h, t, d]` unsqueezed to `[b, h, 1, t, d]`, expanded to `[b, h, n, t, d]` and reshaped to
/// `[b, h * n, t, d]`: what it was before, and n.
fn before_copies(cx: &Matcher<'_>, value: ValueId) -> Option<(ValueId, i64)> {
    let reshape = cx.made_by(value, &RESHAPE)?;
    let copies = cx.input(reshape, 0)?;
    let expand = cx.made_by(copies, &EXPAND)?;
    let unsqueeze = cx.made_by(cx.input(expand, 0)?, &UNSQUEEZE)?;
    let heads = cx.input(unsqueeze, 0)?;
    let (before, between, after) = (cx.shape(heads)?, cx.shape(copies)?, cx.shape(value)?);
    let fits = before.len() == 4
        && between.len() == 5
        && after.len() == 4
        && cx.ints(cx.input(unsqueeze, 1)?)? == [2]
        && [(0, 0), (1, 1), (2, 3), (3, 4)]
            .iter()
            .all(|(a, b)| before[*a].surely_equals(&between[*b]))
        && [0, 2, 3].iter().all(|axis| before[*axis].surely_equals(&after[*axis]));
    let (heads_count, copies) = (before.get(1)?.known()?, between.get(2)?.known()?);
    let joined = after.get(1).is_some_and(|all| *all == Dim::Known(heads_count * copies));
    (fits && joined).then_some((heads, copies))
}
