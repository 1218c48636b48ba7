//! Losses of classifiers.

use sardonyx_tensor::DataType::{Int32, Int64};

use crate::def::OpDef;
use crate::facts::{FLOATS, FLOATS_IR4, input, int, output, string, types};
use crate::function::{Expand, FLOAT, float_vector, vector};
use crate::typeset::TypeSet;

pub(crate) static NEGATIVE_LOG_LIKELIHOOD_LOSS: OpDef = OpDef::new("NegativeLogLikelihoodLoss")
    .about("The negated score of the right class, weighted by class; summed up, averaged or as it is. Targets may be \
         ignored.")
    .since(
        12,
        &[
            input("input", "T"),
            input("target", "Tind"),
            input("weight", "T").optional(),
            output("loss", "T"),
            int("ignore_index"),
            string("reduction").or_string("mean"),
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
    .since(22, &[types("T", FLOATS_IR4)])
    .body_from(12, negative_log_likelihood);

pub(crate) static SOFTMAX_CROSS_ENTROPY_LOSS: OpDef = OpDef::new("SoftmaxCrossEntropyLoss")
    .about("The negated logarithm of the probability that softmax gives to the right class, weighted by class; summed \
         up, averaged or as it is.")
    .since(
        12,
        &[
            input("scores", "T"),
            input("labels", "Tind"),
            input("weights", "T").optional(),
            output("output", "T"),
            output("log_prob", "T").optional(),
            int("ignore_index"),
            string("reduction").or_string("mean"),
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
    .body_from(12, softmax_cross_entropy);

fn negative_log_likelihood(cx: &Expand<'_>) -> Option<String> {
    let elem = cx.elem(0)?;
    let weighted = cx.has_input(2);
    // Axis 1, as an attribute or as an input.
    let (attribute, input) = match cx.since() {
        ..13 => (" <axes = [1]>", ""),
        _ => ("", ", axes"),
    };
    let squeezed = |value: &str| format!("Squeeze{attribute} ({value}{input})");
    // A constant in the type of the scores.
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
    let log_prob = match cx.has_output(1) {
        true => "log_prob = Identity (logs)",
        false => "",
    };
    // To begin with, the attribute was only handed on if it was there.
    let ignore_index = match cx.since() >= 13 || cx.has("ignore_index") {
        true => ", ignore_index: int = @ignore_index",
        false => "",
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
