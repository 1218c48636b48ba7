//! Gradients of the losses of classifiers.

use sardonyx_model::AttrValue;
use sardonyx_tensor::DataType;

use crate::adapt::Refusal;
use crate::gradient::{Backward, Expr};

type Result<T = ()> = std::result::Result<T, Refusal>;

/// By scores: a score changes its own loss by its probability, less 1 for the right class.
pub(crate) fn softmax_cross_entropy(cx: &Backward<'_>) -> Result {
    let scores = cx.input(0)?;
    let axis = [("axis", AttrValue::Int(1))];
    let probabilities = scores.op_with("Softmax", &[], &axis);
    let mut gradient = None;
    if let Some(dy) = cx.arriving_if(0) {
        let targets = Targets::of(cx, scores)?;
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

/// By logarithms of probabilities: only that of the right class has an influence.
pub(crate) fn negative_log_likelihood(cx: &Backward<'_>) -> Result {
    let (logs, dy) = (cx.input(0)?, cx.arriving()?);
    let targets = Targets::of(cx, logs)?;
    if cx.wants(0) {
        cx.give(0, targets.spread(-targets.one_hot, dy));
    }
    if cx.wants(2) {
        targets.give_weights(cx, logs, dy)?;
    }
    Ok(())
}

/// The right classes, `[N, D1, …]`.
struct Targets<'c> {
    /// Class numbers, 0 for those that are ignored.
    classes: Expr<'c>,
    /// 1 for the right class and 0 for the others: `[N, C, D1, …]`.
    one_hot: Expr<'c>,
    /// How much each counts; `None` if all count 1.
    counts: Option<Expr<'c>>,
    is_none: bool,
    is_mean: bool,
}

impl<'c> Targets<'c> {
    /// For a node whose first input is `scores`.
    fn of(cx: &'c Backward<'_>, scores: Expr<'c>) -> Result<Targets<'c>> {
        let given = cx.input(1)?;
        let ignored =
            cx.int("ignore_index").map(|class| given.compare("Equal", given.number(class as f64)));
        // A number that is ignored need not be one of a class.
        let classes = ignored.map_or(given, |ignored| ignored.choose(given.number(0.0), given));
        let values = scores.number(0.0).unsqueeze(&[0]);
        let values = values.op_with(
            "Concat",
            &[scores.number(1.0).unsqueeze(&[0])],
            &[("axis", AttrValue::Int(0))],
        );
        let axis = [("axis", AttrValue::Int(1))];
        // A vector of one element and int32 would do; some runtimes take a scalar and int64 alone.
        let depth = scores.sizes(1, Some(2)).squeeze(&[0]);
        let one_hot = classes.cast(DataType::Int64).op_with("OneHot", &[depth, values], &axis);
        let one_hot = one_hot.of(scores.elem());
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

    /// What all counts add up to.
    fn total(&self) -> Expr<'c> {
        let elem = self.one_hot.elem();
        match self.counts {
            Some(counts) => counts.op_with("ReduceSum", &[], &[("keepdims", AttrValue::Int(0))]),
            None => self.classes.op("Size").of(DataType::Int64).cast(elem),
        }
    }

    /// What each target's own loss changes the result by, `[N, D1, …]` or a scalar, times
    /// `slopes`, `[N, C, D1, …]`.
    fn spread(&self, slopes: Expr<'c>, dy: Expr<'c>) -> Expr<'c> {
        let dy = if self.is_mean { dy.divide_by(self.total()) } else { dy };
        match self.counts {
            Some(counts) => dy.scale_by(counts).unsqueeze(&[1]).scale_by(slopes),
            None if self.is_none => dy.unsqueeze(&[1]).scale_by(slopes),
            None => dy.scale_by(slopes),
        }
    }

    /// By the weights of classes: the sum of the losses of each class, for a mean less the mean.
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
