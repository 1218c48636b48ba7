//! Losses of classifiers: `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`.

use sardonyx_model::Shape;
use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, input, int, output, string, types};
use crate::function::{Expand, FLOAT, float_vector, vector};
use crate::infer::{Infer, InferError};
use crate::nn::loss_gradients;
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static NEGATIVE_LOG_LIKELIHOOD_LOSS: OpDef = OpDef::new("NegativeLogLikelihoodLoss")
    .about(
        "Negative log likelihood loss: `loss = -weight[target] * input[target]`. `reduction` sums \
         the losses, averages them by weight, or returns each. Elements whose target is \
         `ignore_index` do not count.",
    )
    .since(
        12,
        &[
            input("input", "T"),
            input("target", "Tind"),
            input("weight", "T").optional(),
            output("loss", "T"),
            int("ignore_index"),
            string("reduction").or_word("mean"),
            types("T", FLOATS),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("input", "T").differentiable(),
            input("target", "Tind").non_differentiable(),
            input("weight", "T").optional().non_differentiable(),
            output("loss", "T").differentiable(),
        ],
    )
    .same()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .body_from(12, negative_log_likelihood)
    .gradient(loss_gradients::negative_log_likelihood);

pub(crate) static SOFTMAX_CROSS_ENTROPY_LOSS: OpDef = OpDef::new("SoftmaxCrossEntropyLoss")
    .about(
        "Cross-entropy loss of the softmax of `scores`: `loss = -weights[label] * \
         log(softmax(scores)[label])`. `reduction` sums the losses, averages them by weight, or \
         returns each. Elements whose label is `ignore_index` do not count.",
    )
    .since(
        12,
        &[
            input("scores", "T"),
            input("labels", "Tind"),
            input("weights", "T").optional(),
            output("output", "T"),
            output("log_prob", "T").optional(),
            int("ignore_index"),
            string("reduction").or_word("mean"),
            types("T", FLOATS),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .since(
        13,
        &[
            input("scores", "T").differentiable(),
            input("labels", "Tind").non_differentiable(),
            input("weights", "T").optional().non_differentiable(),
            output("output", "T").differentiable(),
            output("log_prob", "T").optional().differentiable(),
            types("T", FLOATS_IR4),
        ],
    )
    .widens()
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .body_from(12, softmax_cross_entropy)
    .gradient(loss_gradients::softmax_cross_entropy);

/// Infers a loss for each target, or one for all. The logarithms of the probabilities are like the
/// scores.
fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let targets = targets(cx)?;
    losses(cx, targets)
}

/// Infers `SoftmaxCrossEntropyLoss` like the reference implementation, which compares no sizes.
fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let targets = cx.shape(1).cloned();
    losses(cx, targets)
}

fn losses(cx: &mut Infer<'_>, targets: Option<Shape>) -> Result<(), InferError> {
    let loss = match cx.string("reduction").as_deref() {
        Some("none") => targets,
        Some("mean" | "sum") | None => Some(Shape::new()),
        Some(other) => return cx.fail(format_args!("reduction has no value \"{other}\"")),
    };
    cx.set_tensor(0, cx.elem(0), loss);
    cx.set_tensor(1, cx.elem(0), cx.shape(0).cloned());
    Ok(())
}

/// Returns the shape of the targets: that of the scores without the classes, `[N, D1, …]` for `[N,
/// C, D1, …]`.
fn targets(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let rank = match (cx.rank(0), cx.rank(1)) {
        (Some(rank @ ..2), _) => {
            return cx.fail(format_args!("the scores have rank {rank}, not at least 2"));
        }
        (Some(rank), _) => {
            cx.demand_rank(1, rank - 1)?;
            rank - 1
        }
        (None, Some(0)) => return cx.fail("the targets have rank 0, not at least 1"),
        (None, Some(rank)) => rank,
        (None, None) => return Ok(None),
    };
    cx.demand_rank(2, 1)?;
    shared_dim(cx, "classes", &[(0, 1), (2, 0)])?;
    let size = |axis: usize| {
        let in_scores = if axis == 0 { 0 } else { axis + 1 };
        shared_dim(cx, "a size", &[(1, axis), (0, in_scores)])
    };
    (0..rank).map(size).collect::<Result<Shape, _>>().map(Some)
}

fn negative_log_likelihood(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    let weighted = cx.has_input(2);
    // Axis 1, as an attribute or as an input.
    let (attribute, input) = match cx.since() {
        ..13 => (" <axes = [1]>", ""),
        _ => ("", ", axes"),
    };
    let squeezed = |value: &str| format!("Squeeze{attribute} ({value}{input})");
    // Makes a constant in the type of the scores.
    let typed = |name: &str, value: f32| match elem {
        FLOAT => float_vector(name, value),
        _ => {
            let constant = float_vector(&format!("{name}_float"), value);
            format!("{constant}{name} = Cast <to = {elem}> ({name}_float)\n")
        }
    };
    let bound = if input.is_empty() { "int32" } else { "int64" };
    let mut text = format!(
        "start = Constant <value = {bound}[1] {{0}}> ()
        end = Constant <value = {bound}[1] {{1}}> ()\n"
    );
    if !input.is_empty() {
        text += &vector("axes", &[1]);
    }
    text += &format!("targets = Unsqueeze{attribute} (target{input})\n");
    if cx.has("ignore_index") {
        text += &vector("ignored_index", &[cx.int("ignore_index")?]);
        text += "zero_target = Sub (targets, targets)
            targets_int64 = Cast <to = 7> (targets)
            ignored = Equal (targets_int64, ignored_index)
            classes = Where (ignored, zero_target, targets)
            all_scores = GatherElements <axis = 1> (input, classes)\n";
        text += &typed("zero", 0.0);
        text += "scores = Where (ignored, zero, all_scores)\n";
    } else {
        text += "scores = GatherElements <axis = 1> (input, targets)\n";
    }
    text += "negated = Neg (scores)
        losses = Slice (negated, start, end, end)\n";
    match (cx.has("ignore_index"), weighted) {
        (false, false) => {}
        (false, true) => text += "weights = Gather (weight, target)\n",
        (true, false) => {
            text += &format!("ignored_flat = {}\n", squeezed("ignored"));
            text += &typed("one", 1.0);
            text += "weights = Where (ignored_flat, zero, one)\n";
        }
        (true, true) => {
            text += "all_weights = Gather (weight, classes)
                kept_weights = Where (ignored, zero, all_weights)\n";
            text += &format!("weights = {}\n", squeezed("kept_weights"));
        }
    }
    let reduction = cx.string("reduction")?;
    let reduction = reduction.as_str();
    let flat = squeezed("losses");
    text += &match (cx.has("ignore_index") || weighted, reduction) {
        (false, "none") => format!("loss = {flat}"),
        (false, "mean") => format!("flat = {flat}\nloss = ReduceMean <keepdims = 0> (flat)"),
        (false, _) => format!("flat = {flat}\nloss = ReduceSum <keepdims = 0> (flat)"),
        (true, "none") => format!("flat = {flat}\nloss = Mul (flat, weights)"),
        (true, "mean") => format!(
            "flat = {flat}
            weighted = Mul (flat, weights)
            sum = ReduceSum <keepdims = 0> (weighted)
            weight_sum = ReduceSum <keepdims = 0> (weights)
            loss = Div (sum, weight_sum)"
        ),
        (true, _) => format!(
            "flat = {flat}
            weighted = Mul (flat, weights)
            loss = ReduceSum <keepdims = 0> (weighted)"
        ),
    };
    Some(text)
}

fn softmax_cross_entropy(cx: &Expand<'_>) -> Option<String> {
    let three_axes = vector("three_axes", &[0, 0, -1]);
    let log_prob = if cx.has_output(1) { "log_prob = Identity (logs)" } else { "" };
    // Before 13 the attribute is only passed on if the node has it.
    let ignore_index = if cx.since() >= 13 || cx.has("ignore_index") {
        ", ignore_index: int = @ignore_index"
    } else {
        ""
    };
    let weights = if cx.has_input(2) { ", weights" } else { "" };
    Some(format!(
        "{three_axes}
        flat = Reshape (scores, three_axes)
        classes_last = Transpose <perm = [0, 2, 1]> (flat)
        flat_logs = LogSoftmax <axis = 2> (classes_last)
        classes_second = Transpose <perm = [0, 2, 1]> (flat_logs)
        sizes = Shape (scores)
        logs = Reshape (classes_second, sizes)
        {log_prob}
        output = NegativeLogLikelihoodLoss <reduction: string = @reduction{ignore_index}> (logs, labels{weights})"
    ))
}

#[cfg(test)]
mod tests {
    use super::{NEGATIVE_LOG_LIKELIHOOD_LOSS, SOFTMAX_CROSS_ENTROPY_LOSS};
    use crate::tensor::testing::{outputs, word};

    #[test]
    fn one_loss_for_each_target_or_for_all() {
        let each = || [("reduction", word("none"))];
        let rows = [
            (&each()[..], "float[3, 4]; int64[3]", "float[3]"),
            (&each(), "float[N, 4, H, ?]; int64[3, ?, 6]; float[4]", "float[3, H, 6]"),
            (&each(), "float[...]; int64[3, 5]", "float[3, 5]"),
            (&each(), "float[3, 4, 5]; -", "float[3, 5]"),
            (&each(), "-; -", "?[...]"),
            (&[], "float[3, 4]; int64[3]", "float"),
            (&[("reduction", word("sum"))], "-; -", "?"),
            (&[], "float[3]; -", "the scores have rank 1, not at least 2"),
            (&[], "-; int64", "the targets have rank 0, not at least 1"),
            (&[], "float[3, 4, 5]; int64[3]", "input 1 must have rank 2, not 1"),
            (
                &[],
                "float[3, 5, 6]; int64[3, 7]",
                "a size of input 0 and of others differ (7 and 6)",
            ),
            (
                &each(),
                "float[3, 4]; int64[3]; float[5]",
                "classes of input 2 and of others differ (4 and 5)",
            ),
            (&[("reduction", word("max"))], "-; -", "reduction has no value \"max\""),
        ];
        for def in [&NEGATIVE_LOG_LIKELIHOOD_LOSS, &SOFTMAX_CROSS_ENTROPY_LOSS] {
            for version in def.versions() {
                for (attributes, inputs, expected) in &rows {
                    let found = outputs(def, version.since, attributes, inputs, 1);
                    let found = found.trim_start_matches(def.name).trim_start_matches(": ");
                    assert_eq!(found, *expected, "{} of {inputs}", def.name);
                }
            }
        }
        assert_eq!(
            outputs(&SOFTMAX_CROSS_ENTROPY_LOSS, 13, &[], "float[N, 4]; int64[N]", 2),
            "float; float[N, 4]"
        );
    }
}
