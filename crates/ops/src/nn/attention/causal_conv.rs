//! `CausalConvWithState`.

use sardonyx_model::Dim;

use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;

/// Infers the output like the input `[B, C, L]`. The state is one element shorter than the kernel.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    match cx.string("activation").as_deref() {
        Some("none" | "silu" | "swish") | None => {}
        Some(other) => return cx.fail(format_args!("activation has no value \"{other}\"")),
    }
    for (input, rank) in [(0, 3), (1, 3), (2, 1), (3, 3)] {
        cx.demand_rank(input, rank)?;
    }
    let batch = shared_dim(cx, "elements of the batch", &[(0, 0), (3, 0)])?;
    let channels = shared_dim(cx, "channels", &[(0, 1), (1, 0), (2, 0), (3, 1)])?;
    let per_group = shared_dim(cx, "channels of a kernel", &[(1, 1)])?;
    cx.same_dim(&per_group, &Dim::Known(1), "the channels of a kernel and 1")?;
    let width = shared_dim(cx, "places", &[(1, 2)])?;
    if let Some(width) = width.known().filter(|width| *width < 1) {
        return cx.fail(format_args!("the kernel must have a positive size, not {width}"));
    }
    let past = shared_dim(cx, "places", &[(3, 2)])?;
    let before = cx.same_dim(
        &width.sub(&Dim::Known(1)),
        &past,
        "the size of the kernel less 1 and the length of the state",
    )?;
    let length = shared_dim(cx, "places", &[(0, 2)])?;
    let output = [batch.clone(), channels.clone(), length];
    cx.set_tensor(0, cx.elem(0), Some(output.into_iter().collect()));
    let state = [batch, channels, before];
    cx.set_tensor(1, cx.elem(0), Some(state.into_iter().collect()));
    Ok(())
}

/// Builds a convolution of the input after the state, channel by channel.
pub(super) fn body(cx: &Expand<'_>) -> Option<String> {
    let rank = cx.rank(0).filter(|rank| *rank >= 2);
    let channels = rank.and_then(|_| cx.dim(0, 1).or_else(|| cx.dim(1, 0)))?;
    let extended = if cx.has_input(3) {
        "extended = Concat <axis = 2> (past_state, input)"
    } else {
        "batch = Shape <start = 0, end = 1> (input)
            channels = Shape <start = 1, end = 2> (input)
            state_size = Concat <axis = 0> (batch, channels, before)
            float_zeros = ConstantOfShape (state_size)
            zeros = CastLike (float_zeros, input)
            extended = Concat <axis = 2> (zeros, input)"
    };
    let bias = if cx.has_input(2) { ", bias" } else { "" };
    let activated = match cx.string("activation")?.as_str() {
        "none" => "output = Identity (convolved)",
        "silu" | "swish" => {
            "wide = Cast <to = 1> (convolved)
            gate = Sigmoid (wide)
            gated = Mul (wide, gate)
            output = CastLike (gated, convolved)"
        }
        _ => return None,
    };
    let (one, time) = (vector("one", &[1]), vector("time", &[2]));
    Some(format!(
        "{one}{time}
        width = Shape <start = 2, end = 3> (weight)
        before = Sub (width, one)
        {extended}
        convolved = Conv <group = {channels}> (extended, weight{bias})
        {activated}
        length = Shape <start = 2, end = 3> (extended)
        state_start = Sub (length, before)
        present_state = Slice (extended, state_start, length, time)"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::CAUSAL_CONV_WITH_STATE;
    use crate::tensor::testing::{outputs, word};

    #[test]
    fn the_state_is_one_shorter_than_the_kernel() {
        let rows = [
            ("float16[2, 4, 8]; float16[4, 1, 4]", "float16[2, 4, 8]; float16[2, 4, 3]"),
            (
                "float[B, C, L]; float[4, 1, K]; -; float[2, ?, ?]",
                "float[2, 4, L]; float[2, 4, K - 1]",
            ),
            ("float[...]; -; float[4]; float[B, ?, 3]", "float[B, 4, ?]; float[B, 4, 3]"),
            ("-; -", "?[?, ?, ?]; ?[?, ?, ?]"),
            ("float[2, 4, 8]; float[4, 1, 1]", "float[2, 4, 8]; float[2, 4, 0]"),
            (
                "float[2, 4, 8]; float[4, 1, 0]",
                "CausalConvWithState: the kernel must have a positive size, not 0",
            ),
            ("float[2, 4, 8]; float[4, 4]", "CausalConvWithState: input 1 must have rank 3, not 2"),
            (
                "float[2, 4, 8]; float[4, 2, 3]",
                "CausalConvWithState: the channels of a kernel and 1 differ (2 and 1)",
            ),
            (
                "float[2, 4, 8]; float[5, 1, 3]",
                "CausalConvWithState: channels of input 1 and of others differ (4 and 5)",
            ),
            (
                "float[2, 4, 8]; float[4, 1, 3]; -; float[2, 4, 3]",
                "CausalConvWithState: the size of the kernel less 1 and the length of the state differ (2 and 3)",
            ),
        ];
        for (inputs, expected) in rows {
            let found = outputs(&CAUSAL_CONV_WITH_STATE, 27, &[], inputs, 2);
            assert_eq!(found, expected, "{inputs}");
        }
        let unknown = [("activation", word("forza"))];
        assert_eq!(
            outputs(&CAUSAL_CONV_WITH_STATE, 27, &unknown, "-; -", 2),
            "CausalConvWithState: activation has no value \"forza\""
        );
    }
}
