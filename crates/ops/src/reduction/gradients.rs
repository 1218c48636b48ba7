//! Gradients of reductions.

use sardonyx_tensor::DataType;

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};
use crate::math::gradients::{Product, share_among};

type Result = std::result::Result<(), Refusal>;

/// Reduction whose axes are kept with size 1.
struct Reduction<'c> {
    x: Expr<'c>,
    y: Expr<'c>,
    /// Gradient of the output.
    dy: Expr<'c>,
    axes: Axes<'c>,
}

/// Axes that are reduced.
#[derive(Clone, Copy)]
enum Axes<'c> {
    All,
    These(Expr<'c>),
}

impl<'c> Reduction<'c> {
    /// Reads the reduction of a node; `None` if nothing is reduced.
    fn new(cx: &'c Backward<'_>) -> std::result::Result<Option<Reduction<'c>>, Refusal> {
        let (x, y, dy) = (cx.input(0)?, cx.output(0)?, cx.arriving()?);
        let is_empty = |axes: &sardonyx_tensor::Tensor| axes.dims().contains(&0);
        let given = cx.input_if(1);
        let has_none = given.is_none() || cx.constant(1).as_ref().is_some_and(is_empty);
        if has_none && cx.int("noop_with_empty_axes").unwrap_or(0) != 0 {
            return Ok(None);
        }
        let axes = match given.filter(|_| !has_none) {
            Some(axes) => Axes::These(axes),
            None => Axes::All,
        };
        if cx.int("keepdims").unwrap_or(1) != 0 {
            return Ok(Some(Reduction { x, y, dy, axes }));
        }
        let keep_axes = |value: Expr<'c>| match axes {
            Axes::These(axes) => value.op_with("Unsqueeze", &[axes], &[]),
            Axes::All => {
                let one = cx.ints_of(&[1]);
                value.reshape(one.op_with("Expand", &[x.shape().shape()], &[]))
            }
        };
        Ok(Some(Reduction { x, y: keep_axes(y), dy: keep_axes(dy), axes }))
    }

    /// Adds up the elements over the reduced axes, which stay with size 1.
    fn sum(&self, value: Expr<'c>) -> Expr<'c> {
        let axes = match self.axes {
            Axes::All => None,
            Axes::These(axes) => Some(axes),
        };
        value.op_with_some("ReduceSum", &[axes], &[("keepdims", AttrValue::Int(1))])
    }

    /// Repeats the gradient for each reduced element.
    fn spread(&self) -> Expr<'c> {
        self.dy.op_with("Expand", &[self.x.shape()], &[])
    }
}

/// Sets the gradient to `rule` if elements are reduced, and to `single` for each element otherwise.
fn set_reduced<'c>(
    cx: &'c Backward<'_>,
    single: impl FnOnce(Expr<'c>, Expr<'c>, Expr<'c>) -> Expr<'c>,
    rule: impl FnOnce(&Reduction<'c>) -> Expr<'c>,
) -> Result {
    let gradient = match Reduction::new(cx)? {
        Some(reduction) => rule(&reduction),
        None => single(cx.input(0)?, cx.output(0)?, cx.arriving()?),
    };
    cx.give(0, gradient);
    Ok(())
}

pub(crate) fn sum(cx: &Backward<'_>) -> Result {
    set_reduced(cx, |_, _, dy| dy, Reduction::spread)
}

pub(crate) fn mean(cx: &Backward<'_>) -> Result {
    set_reduced(
        cx,
        |_, _, dy| dy,
        |all| {
            let [whole, part] =
                [all.x, all.y].map(|value| value.op("Size").with_elem(DataType::Int64));
            all.spread() / (whole / part).cast(all.x.elem())
        },
    )
}

/// Sets the gradient of `ReduceMax` and `ReduceMin`: equal elements share.
pub(crate) fn extreme(cx: &Backward<'_>) -> Result {
    set_reduced(
        cx,
        |_, _, dy| dy,
        |all| {
            let is_taken = all.x.compare("Equal", all.y);
            let count = all.sum(is_taken.cast(all.x.elem()));
            share_among(all.dy, count).for_taken(is_taken)
        },
    )
}

/// Sets the gradient of `ReduceProd`: the product of the other factors, even if some are 0.
pub(crate) fn product(cx: &Backward<'_>) -> Result {
    set_reduced(
        cx,
        |_, _, dy| dy,
        |all| {
            let are_zero = Product::are_zero(all.x);
            let axes = match all.axes {
                Axes::All => None,
                Axes::These(axes) => Some(axes),
            };
            let not_zero = Product::without_zeros(all.x, are_zero);
            let rest =
                not_zero.op_with_some("ReduceProd", &[axes], &[("keepdims", AttrValue::Int(1))]);
            let product = Product {
                factors: all.x,
                are_zero,
                zeros: all.sum(are_zero.cast(all.x.elem())),
                sum_of_zeros: all.sum(Product::zeros_alone(all.x, are_zero)),
                rest,
            };
            all.dy.scale_by(product.slopes())
        },
    )
}

pub(crate) fn l1(cx: &Backward<'_>) -> Result {
    set_reduced(cx, |x, _, dy| dy.scale_by(x.op("Sign")), |all| all.dy.scale_by(all.x.op("Sign")))
}

/// Sets the gradient of `ReduceL2`; 0 where all elements are 0.
pub(crate) fn l2(cx: &Backward<'_>) -> Result {
    set_reduced(
        cx,
        |x, _, dy| dy.scale_by(x.op("Sign")),
        |all| {
            let (zero, one) = (all.y.number(0.0), all.y.number(1.0));
            let is_zero = all.y.compare("Equal", zero);
            let parts = all.dy.divide_by(is_zero.choose(one, all.y));
            all.x.drop_unused(all.dy) * is_zero.choose(zero, parts)
        },
    )
}

pub(crate) fn sum_of_squares(cx: &Backward<'_>) -> Result {
    set_reduced(cx, |x, _, dy| (dy * 2.0).scale_by(x), |all| (all.dy * 2.0).scale_by(all.x))
}

pub(crate) fn log_sum(cx: &Backward<'_>) -> Result {
    set_reduced(
        cx,
        |x, _, dy| dy.divide_by(x),
        |all| all.dy.divide_by(all.sum(all.x)).op_with("Expand", &[all.x.shape()], &[]),
    )
}

pub(crate) fn log_sum_exp(cx: &Backward<'_>) -> Result {
    set_reduced(cx, |_, _, dy| dy, |all| all.dy.scale_by((all.x - all.y).op("Exp")))
}
