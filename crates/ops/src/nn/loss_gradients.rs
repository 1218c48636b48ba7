//! Gradients of the losses of classifiers.

use sardonyx_model::AttrValue;
use sardonyx_tensor::DataType;

use crate::adapt::Refusal;
use crate::gradient::{Backward, Expr};

type Result<T = ()> = std::result::Result<T, Refusal>;

/// Sets the gradient of the scores: a score changes its own loss by its probability, minus 1 for
/// the right class.
pub(crate) fn softmax_cross_entropy(cx: &Backward<'_>) -> Result {
    let scores = cx.input(0)?;
    let axis = [("axis", AttrValue::Int(1))];
    let probabilities = scores.op_with("Softmax", &[], &axis);
    let mut gradient = None;
    if let Some(dy) = cx.arriving_if(0) {
        let targets = Targets::new(cx, scores)?;
        if cx.wants(0) {
            gradient = Some(targets.spread(probabilities - targets.one_hot, dy));
        }
        if cx.wants(2) {
            targets.give_weights(cx, scores.op_with("LogSoftmax", &[], &axis), dy)?;
        }
    }
    if let Some(logs) = cx.arriving_if(1) {
        let probabilities = probabilities.drop_unused(logs.sum_magnitudes(&[1]));
        let of_logs = logs - probabilities * logs.sum(&[1], true);
        gradient = Some(gradient.map_or(of_logs, |gradient: Expr<'_>| gradient + of_logs));
    }
    if let Some(gradient) = gradient {
        cx.give(0, gradient);
    }
    Ok(())
}

/// Sets the gradient of the logarithms of probabilities: only that of the right class contributes.
pub(crate) fn negative_log_likelihood(cx: &Backward<'_>) -> Result {
    let (logs, dy) = (cx.input(0)?, cx.arriving()?);
    let targets = Targets::new(cx, logs)?;
    if cx.wants(0) {
        cx.give(0, targets.spread(-targets.one_hot, dy));
    }
    if cx.wants(2) {
        targets.give_weights(cx, logs, dy)?;
    }
    Ok(())
}

/// Right classes, `[N, D1, …]`.
struct Targets<'c> {
    /// Class numbers; 0 for ignored targets.
    classes: Expr<'c>,
    /// 1 for the right class and 0 for others: `[N, C, D1, …]`.
    one_hot: Expr<'c>,
    /// Weights of the targets; `None` if all are 1.
    counts: Option<Expr<'c>>,
    is_none: bool,
    is_mean: bool,
}

impl<'c> Targets<'c> {
    /// Reads the targets of a node whose first input is `scores`.
    fn new(cx: &'c Backward<'_>, scores: Expr<'c>) -> Result<Targets<'c>> {
        let given = cx.input(1)?;
        let ignored =
            cx.int("ignore_index").map(|class| given.compare("Equal", given.number(class as f64)));
        // The number of an ignored target need not be a class.
        let classes = ignored.map_or(given, |ignored| ignored.choose(given.number(0.0), given));
        let values = scores.number(0.0).unsqueeze(&[0]);
        let values = values.op_with(
            "Concat",
            &[scores.number(1.0).unsqueeze(&[0])],
            &[("axis", AttrValue::Int(0))],
        );
        let axis = [("axis", AttrValue::Int(1))];
        // A vector of one element and int32 would be valid, but some runtimes accept only a scalar
        // and int64.
        let depth = scores.sizes(1, Some(2)).squeeze(&[0]);
        let one_hot = classes.cast(DataType::Int64).op_with("OneHot", &[depth, values], &axis);
        let one_hot = one_hot.with_elem(scores.elem());
        let weights = cx.input_if(2).map(|weights| weights.op_with("Gather", &[classes], &[]));
        let counts = match (weights, ignored) {
            (None, None) => None,
            (Some(weights), None) => Some(weights),
            (None, Some(ignored)) => Some(ignored.choose(scores.number(0.0), scores.number(1.0))),
            (Some(weights), Some(ignored)) => Some(ignored.choose(scores.number(0.0), weights)),
        };
        let reduction = cx.string("reduction");
        let is = |name| reduction.as_deref() == Some(name);
        Ok(Targets {
            classes,
            one_hot,
            counts,
            is_none: is("none"),
            is_mean: !is("none") && !is("sum"),
        })
    }

    /// Sums the weights of all targets.
    fn total(&self) -> Expr<'c> {
        let elem = self.one_hot.elem();
        match self.counts {
            Some(counts) => counts.op_with("ReduceSum", &[], &[("keepdims", AttrValue::Int(0))]),
            None => self.classes.op("Size").with_elem(DataType::Int64).cast(elem),
        }
    }

    /// Multiplies `slopes`, `[N, C, D1, …]`, by the gradient of each target's own loss, which is
    /// `[N, D1, …]` or a scalar.
    fn spread(&self, slopes: Expr<'c>, dy: Expr<'c>) -> Expr<'c> {
        let dy = if self.is_mean { dy.divide_by(self.total()) } else { dy };
        match self.counts {
            Some(counts) => dy.scale_by(counts).unsqueeze(&[1]).scale_by(slopes),
            None if self.is_none => dy.unsqueeze(&[1]).scale_by(slopes),
            None => dy.scale_by(slopes),
        }
    }

    /// Sets the gradient of the weights of classes: the sum of the losses of each class, minus the
    /// mean if the result is a mean.
    fn give_weights(&self, cx: &'c Backward<'_>, logs: Expr<'c>, dy: Expr<'c>) -> Result {
        let weights = cx.input(2)?;
        let mut losses = -self.one_hot.scale_by(logs).sum(&[1], false);
        if self.is_mean {
            losses = (losses - cx.output(0)?) / self.total();
        }
        losses = dy.scale_by(losses);
        if let Some(class) = cx.int("ignore_index") {
            let given = cx.input(1)?;
            let ignored = given.compare("Equal", given.number(class as f64));
            losses = ignored.choose(losses.number(0.0), losses);
        }
        let flat = cx.ints_of(&[-1]);
        let losses = losses.op_with("Reshape", &[flat], &[]);
        let classes = self.classes.op_with("Reshape", &[flat], &[]);
        let add = [("reduction", AttrValue::String(b"add"[..].into()))];
        cx.give(2, weights.zeros().op_with("ScatterElements", &[classes, losses], &add));
        Ok(())
    }
}
