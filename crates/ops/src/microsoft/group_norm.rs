//! `GroupNorm` and `SkipGroupNorm`: the standard's `GroupNormalization` with channels last, a
//! residual, and an activation.

use sardonyx_tensor::DataType::{Float, Float16};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{Fact, float, input, int, output, types};
use crate::function::{Expand, FLOAT, vector};
use crate::infer::{Infer, InferError};
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

const T: TypeSet = TypeSet::tensors(&[Float16, Float]);

const ACTIVATION: Fact = int("activation").required();
const CHANNELS_LAST: Fact = int("channels_last").or(1);
const EPSILON: Fact = float("epsilon").or_float(1e-05);
const GROUPS: Fact = int("groups").required();

pub(crate) static GROUP_NORM: OpDef = OpDef::new("GroupNorm")
    .domain(DOMAIN)
    .about(
        "Group normalization with a scale and a bias for each channel, computed in float, \
         optionally followed by SiLU. Channels are the last axis by default.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("gamma", "M"),
            input("beta", "M"),
            output("Y", "T"),
            ACTIVATION,
            CHANNELS_LAST,
            EPSILON,
            GROUPS,
            types("T", T),
            types("M", T),
        ],
    )
    .infer(infer)
    .body_or_reason(1, |cx| build_normalized(cx, "X"));

pub(crate) static SKIP_GROUP_NORM: OpDef = OpDef::new("SkipGroupNorm")
    .domain(DOMAIN)
    .about(
        "Adds a residual, and a bias if given, and applies `GroupNorm`. The sum is an optional \
         output.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("gamma", "M"),
            input("beta", "M"),
            input("skip", "T"),
            input("bias", "T").optional(),
            output("Y", "T"),
            output("S", "T").optional(),
            ACTIVATION,
            CHANNELS_LAST,
            EPSILON,
            GROUPS,
            types("T", T),
            types("M", T),
        ],
    )
    .infer(infer)
    .body_or_reason(1, skip);

const SKIP: usize = 3;
const BIAS: usize = 4;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(1, 1)?;
    cx.demand_rank(2, 1)?;
    cx.demand_rank(BIAS, 1)?;
    match cx.int("groups") {
        Some(..=0) => return cx.fail("groups must be positive"),
        Some(groups) => {
            let is_last = is_last(cx.int("channels_last"));
            let channels =
                cx.shape(0).and_then(|shape| if is_last { shape.last() } else { shape.get(1) });
            let channels = channels.and_then(|channels| channels.known());
            if let Some(channels) = channels.filter(|channels| channels % groups != 0) {
                return cx.fail(format_args!(
                    "{channels} channels cannot be divided into {groups} groups"
                ));
            }
        }
        None => {}
    }
    same_as_first(cx)?;
    if let Some(ty) = cx.input(0) {
        cx.set(1, ty.clone());
    }
    Ok(())
}

fn is_last(channels_last: Option<i64>) -> bool {
    channels_last != Some(0)
}

/// Builds the nodes that normalize a value of the shape of `X`.
fn build_normalized(cx: &Expand<'_>, of: &str) -> Result<String, String> {
    let rank = cx.rank(0).ok_or("the rank of its input is unknown")?;
    if rank < 3 {
        return Err(format!("its input has rank {rank}, not 3 or more"));
    }
    let activated = match cx.int("activation") {
        Some(0) => "activated = Identity (normalized)\n",
        Some(1) => "activated = Swish (normalized)\n",
        Some(other) => return Err(format!("attribute 'activation' is {other}, not 0 or 1")),
        None => return Err("attribute 'activation' is missing".to_string()),
    };
    let (transposed, back) = if is_last(cx.int("channels_last")) {
        let [to_second, to_last] = channel_permutations(rank);
        (
            format!("first = Transpose <perm = {to_second:?}> (wide)\n"),
            format!("turned = Transpose <perm = {to_last:?}> (activated)\n"),
        )
    } else {
        ("first = Identity (wide)\n".to_string(), "turned = Identity (activated)\n".to_string())
    };
    Ok(format!(
        "wide = Cast <to = {FLOAT}> ({of})
        {transposed}scale = Cast <to = {FLOAT}> (gamma)
        shift = Cast <to = {FLOAT}> (beta)
        normalized = GroupNormalization <
            epsilon: float = @epsilon, num_groups: int = @groups
        > (first, scale, shift)
        {activated}{back}Y = CastLike (turned, X)\n"
    ))
}

/// Returns the permutations that move channels from the last axis to the second, and back.
pub(super) fn channel_permutations(rank: usize) -> [Vec<usize>; 2] {
    let mut to_second: Vec<usize> = (0..rank).collect();
    to_second[1..].rotate_right(1);
    let mut to_last: Vec<usize> = (0..rank).collect();
    to_last[1..].rotate_left(1);
    [to_second, to_last]
}

fn skip(cx: &Expand<'_>) -> Result<String, String> {
    let sum = if cx.has_output(1) { "S" } else { "sum" };
    let is_last = is_last(cx.int("channels_last"));
    let rank = cx.rank(0).ok_or("the rank of its input is unknown")?;
    // Axes of the positions, which a residual or a bias for each channel lacks.
    let axes = if is_last { 1..rank as i64 - 1 } else { 2..rank as i64 };
    let places: Vec<i64> = axes.collect();
    let mut text = match cx.rank(SKIP) {
        Some(2) if rank != 2 => vector("places", &places) + "residual = Unsqueeze (skip, places)\n",
        Some(found) if found == rank => "residual = Identity (skip)\n".to_string(),
        Some(found) => return Err(format!("skip has rank {found}, not 2 or {rank}")),
        None => return Err("the rank of skip is unknown".to_string()),
    };
    text += &if cx.has_input(BIAS) {
        let biased = if is_last {
            "by_channel = Identity (bias)\n".to_string()
        } else {
            let axes: Vec<i64> = (1..rank as i64 - 1).collect();
            vector("bias_axes", &axes) + "by_channel = Unsqueeze (bias, bias_axes)\n"
        };
        format!("{biased}partial_sum = Add (X, residual)\n{sum} = Add (partial_sum, by_channel)\n")
    } else {
        format!("{sum} = Add (X, residual)\n")
    };
    Ok(text + &build_normalized(cx, sum)?)
}
