//! Activations that exporters spell out.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, SQRT_2};

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_ops::operators::{
    ADD, DIV, ERF, GELU, HARD_SIGMOID, HARD_SWISH, MUL, POW, SIGMOID, SWISH, TANH,
};
use sardonyx_tensor::DataType::{Double, Float};

use super::{Match, Matcher, Rewrite, Source, give_up};

/// `x * 0.5 * (1 + erf(x / sqrt 2))`, its factors in any order, and the approximation
/// `x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))`. Hendrycks and Gimpel, "Gaussian error
/// linear units" (2016).
pub(super) fn gelu(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let Some((factors, mut fused)) = cx.factors(anchor) else { give_up!() };
    let [a, b, c] = factors[..] else { give_up!() };
    for (x, half, sum) in [(a, b, c), (a, c, b), (b, a, c), (b, c, a), (c, a, b), (c, b, a)] {
        if !cx.is_number(half, 0.5) {
            continue;
        }
        let Some(add) = cx.made_by(sum, &ADD) else {
            continue;
        };
        for (one, function) in cx.either_way(add) {
            if !cx.is_number(one, 1.0) {
                continue;
            }
            let (inner, approximate) =
                match (cx.made_by(function, &ERF), cx.made_by(function, &TANH)) {
                    (Some(erf), _) => (erf_argument(cx, erf, x), 0),
                    (_, Some(tanh)) => (tanh_argument(cx, tanh, x), 1),
                    _ => continue,
                };
            let Some(inner) = inner else { continue };
            fused.push(add);
            fused.extend(inner);
            return replace(cx, anchor, fused, x, &GELU, approximate);
        }
    }
    Match::No
}

fn replace(
    cx: &Matcher<'_>,
    anchor: NodeId,
    fused: Vec<NodeId>,
    x: ValueId,
    op: &'static OpDef,
    approximate: i64,
) -> Match {
    if !matches!(cx.elem(x), Some(Float | Double)) {
        give_up!()
    }
    if !cx.keeps_rank(anchor, x) {
        give_up!("the result may have another rank than the input");
    }
    if !cx.are_inner(&fused, anchor) {
        give_up!("an intermediate value is also used by another node");
    }
    let mut rewrite = Rewrite::fusing(fused);
    let attributes = match approximate {
        0 => Vec::new(),
        _ => vec![("approximate", AttrValue::from("tanh"))],
    };
    rewrite.step(op, vec![Source::Value(x)], attributes);
    Match::Yes(rewrite)
}

/// The nodes from Erf down to `x`, if its argument is `x / sqrt 2`.
fn erf_argument(cx: &Matcher<'_>, erf: NodeId, x: ValueId) -> Option<Vec<NodeId>> {
    let argument = cx.input(erf, 0)?;
    let node = cx.producer(argument)?;
    let (a, b) = cx.pair(node)?;
    let fits = if cx.is(node, &DIV) {
        a == x && cx.is_number(b, SQRT_2)
    } else {
        cx.is(node, &MUL)
            && (a == x && cx.is_number(b, FRAC_1_SQRT_2)
                || b == x && cx.is_number(a, FRAC_1_SQRT_2))
    };
    fits.then(|| vec![erf, node])
}

/// The nodes from Tanh down to `x`, if its argument is `sqrt(2/pi) * (x + 0.044715 * x^3)`.
fn tanh_argument(cx: &Matcher<'_>, tanh: NodeId, x: ValueId) -> Option<Vec<NodeId>> {
    let product = cx.made_by(cx.input(tanh, 0)?, &MUL)?;
    let (sum, _) =
        cx.either_way(product).find(|(_, scale)| cx.is_number(*scale, FRAC_2_PI.sqrt()))?;
    let add = cx.made_by(sum, &ADD)?;
    let (_, cubic) = cx.either_way(add).find(|(linear, _)| *linear == x)?;
    let scaled = cx.made_by(cubic, &MUL)?;
    let (mut factors, mut nodes) = cx.factors(scaled)?;
    let scale = factors.iter().position(|factor| cx.is_number(*factor, 0.044715))?;
    factors.remove(scale);
    match factors[..] {
        [power] => {
            let pow = cx.made_by(power, &POW)?;
            let (base, exponent) = cx.pair(pow)?;
            if base != x || !cx.is_power(exponent, 3) {
                return None;
            }
            nodes.push(pow);
        }
        [a, b, c] if [a, b, c] == [x; 3] => {}
        _ => return None,
    }
    nodes.extend([tanh, product, add, scaled]);
    Some(nodes)
}

/// `x * sigmoid(alpha * x)`: the swish of Ramachandran, Zoph and Le, "Searching for activation
/// functions" (2017); SiLU for alpha 1.
pub(super) fn swish(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (x, weight) in cx.either_way(anchor) {
        let Some(sigmoid) = cx.made_by(weight, &SIGMOID) else {
            continue;
        };
        let Some(argument) = cx.input(sigmoid, 0) else {
            continue;
        };
        let mut fused = vec![sigmoid];
        let alpha = if argument == x {
            1.0
        } else {
            let Some(scaled) = cx.made_by(argument, &MUL) else {
                continue;
            };
            let alpha = cx
                .either_way(scaled)
                .find(|(value, _)| *value == x)
                .and_then(|(_, alpha)| cx.scalar(alpha));
            let Some(alpha) = alpha else { continue };
            fused.push(scaled);
            alpha
        };
        if !matches!(cx.elem(x), Some(Float | Double)) {
            continue;
        }
        if !cx.keeps_rank(anchor, x) {
            give_up!("the result may have another rank than the input");
        }
        if !cx.are_inner(&fused, anchor) {
            give_up!("an intermediate value is also used by another node");
        }
        let mut rewrite = Rewrite::fusing(fused);
        let alpha = vec![("alpha", AttrValue::Float(alpha as f32))];
        rewrite.step(&SWISH, vec![Source::Value(x)], alpha);
        return Match::Yes(rewrite);
    }
    Match::No
}

/// `x * max(0, min(1, x / 6 + 1 / 2))`. Howard et al., "Searching for MobileNetV3" (2019). ONNX
/// Runtime spells it out in the models that it saves.
pub(super) fn hard_swish(cx: &Matcher<'_>, anchor: NodeId) -> Match {
    for (x, weight) in cx.either_way(anchor) {
        let Some(line) = cx.made_by(weight, &HARD_SIGMOID) else {
            continue;
        };
        let [alpha, beta] = ["alpha", "beta"].map(|name| cx.float(line, name));
        let is_usual = alpha == Some(1.0 / 6.0) && beta.unwrap_or(0.5) == 0.5;
        if cx.input(line, 0) != Some(x) || !is_usual {
            continue;
        }
        if !cx.are_inner(&[line], anchor) {
            give_up!("an intermediate value is also used by another node");
        }
        let mut rewrite = Rewrite::fusing(vec![line]);
        rewrite.step(&HARD_SWISH, vec![Source::Value(x)], Vec::new());
        return Match::Yes(rewrite);
    }
    Match::No
}
