//! Gradients of elementwise operators and of matrix products.
//!
//! Rules set a derivative where a function has none: `Relu`, `Abs` and `Sign` have 0 at 0,
//! `Clip` has 1 at its limits, and equal largest or smallest elements share the gradient.
//!
//! Masked results receive a gradient of 0, while the slope there may be infinite or NaN: that of
//! `Sqrt` at 0, or of any function of NaN. Rules multiply by [`Expr::scale_by`] and related
//! functions, so that values without effect on the loss get 0.

use std::f64::consts::PI;

use sardonyx_tensor::{CastOptions, DataType, cast};

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};

type Result = std::result::Result<(), Refusal>;

/// Sets the gradient of the input of an operator with one input and one output: `rule` gets both,
/// and the gradient of the output.
fn set_unary<'c>(
    cx: &'c Backward<'_>,
    rule: impl FnOnce(Expr<'c>, Expr<'c>, Expr<'c>) -> Expr<'c>,
) -> Result {
    let gradient = rule(cx.input(0)?, cx.output(0)?, cx.arriving()?);
    cx.give(0, gradient);
    Ok(())
}

/// Sets no gradient, for steps and comparisons, whose derivative is 0 wherever it exists.
pub(crate) fn zero(_: &Backward<'_>) -> Result {
    Ok(())
}

pub(crate) fn abs(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by(x.op("Sign")))
}

pub(crate) fn acos(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| -dy.divide_by((1.0 - x.square()).op("Sqrt")))
}

pub(crate) fn acosh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by((x - 1.0).op("Sqrt") * (x + 1.0).op("Sqrt")))
}

pub(crate) fn asin(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by((1.0 - x.square()).op("Sqrt")))
}

pub(crate) fn asinh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by((x.square() + 1.0).op("Sqrt")))
}

pub(crate) fn atan(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by(x.square() + 1.0))
}

pub(crate) fn atanh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by(1.0 - x.square()))
}

pub(crate) fn cos(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| -dy.scale_by(x.op("Sin")))
}

pub(crate) fn cosh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by(x.op("Sinh")))
}

pub(crate) fn erf(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by((-x.square()).op("Exp") * (2.0 / PI.sqrt())))
}

pub(crate) fn exp(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| dy.scale_by(y))
}

pub(crate) fn log(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.divide_by(x))
}

pub(crate) fn neg(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, _, dy| -dy)
}

pub(crate) fn reciprocal(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| -dy.scale_by(y.square()))
}

pub(crate) fn relu(cx: &Backward<'_>) -> Result {
    // NaN compares false, so values that depend on it get their gradient.
    set_unary(cx, |x, _, dy| x.compare("LessOrEqual", x.number(0.0)).choose(dy.number(0.0), dy))
}

pub(crate) fn sigmoid(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| dy.scale_by(y * (1.0 - y)))
}

pub(crate) fn sin(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by(x.op("Cos")))
}

pub(crate) fn sinh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by(x.op("Cosh")))
}

pub(crate) fn softplus(cx: &Backward<'_>) -> Result {
    set_unary(cx, |x, _, dy| dy.scale_by(x.op("Sigmoid")))
}

pub(crate) fn sqrt(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| (dy * 0.5).divide_by(y))
}

pub(crate) fn tan(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| dy.scale_by(y.square() + 1.0))
}

pub(crate) fn tanh(cx: &Backward<'_>) -> Result {
    set_unary(cx, |_, y, dy| dy.scale_by(1.0 - y.square()))
}

/// Multiplies by `positive` where the input is not negative, and by the slope `negative` elsewhere.
/// The operator's function computes a power that overflows for positive inputs, and 0 times
/// infinity is NaN.
fn set_by_sign<'c>(
    cx: &'c Backward<'_>,
    negative: impl FnOnce(Expr<'c>) -> Expr<'c>,
    positive: f64,
) -> Result {
    set_unary(cx, |x, y, dy| {
        // NaN compares false and gets the slope that depends on it.
        let is_above = x.compare("GreaterOrEqual", x.number(0.0));
        is_above.choose(dy * positive, dy.scale_by(negative(y)))
    })
}

fn float(cx: &Backward<'_>, name: &str) -> f64 {
    cx.float(name).map_or(1.0, f64::from)
}

pub(crate) fn elu(cx: &Backward<'_>) -> Result {
    let alpha = float(cx, "alpha");
    set_by_sign(cx, |y| y + alpha, 1.0)
}

pub(crate) fn celu(cx: &Backward<'_>) -> Result {
    let alpha = float(cx, "alpha");
    set_by_sign(cx, |y| y / alpha + 1.0, 1.0)
}

pub(crate) fn selu(cx: &Backward<'_>) -> Result {
    let (alpha, gamma) = (float(cx, "alpha"), float(cx, "gamma"));
    set_by_sign(cx, |y| y + alpha * gamma, gamma)
}

pub(crate) fn add(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    for index in (0..2).filter(|index| cx.wants(*index)) {
        cx.give_broadcast(index, dy)?;
    }
    Ok(())
}

pub(crate) fn sub(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    if cx.wants(0) {
        cx.give_broadcast(0, dy)?;
    }
    if cx.wants(1) {
        cx.give_broadcast(1, -dy)?;
    }
    Ok(())
}

pub(crate) fn mul(cx: &Backward<'_>) -> Result {
    let (a, b, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    if cx.wants(0) {
        cx.give_broadcast(0, dy.scale_by(b))?;
    }
    if cx.wants(1) {
        cx.give_broadcast(1, dy.scale_by(a))?;
    }
    Ok(())
}

pub(crate) fn div(cx: &Backward<'_>) -> Result {
    let (b, y, dy) = (cx.input(1)?, cx.output(0)?, cx.arriving()?);
    let quotient = dy.divide_by(b);
    if cx.wants(0) {
        cx.give_broadcast(0, quotient)?;
    }
    if cx.wants(1) {
        cx.give_broadcast(1, -(quotient * y.drop_unused(dy)))?;
    }
    Ok(())
}

/// Sets the gradients of `Pow`, whose exponent may have another type than the base.
pub(crate) fn pow(cx: &Backward<'_>) -> Result {
    let (a, b, y, dy) = (cx.input(0)?, cx.input(1)?, cx.output(0)?, cx.arriving()?);
    let exponent = b.cast(a.elem());
    if cx.wants(0) {
        // The derivative of a constant is 0, also at 0, where the power with the lower exponent is
        // infinite. An infinite exponent makes a constant 0 of a base below 1.
        let below = a.op_with("Pow", &[exponent - 1.0], &[]);
        let slope = exponent.drop_unused(below) * below.drop_unused(exponent);
        cx.give_broadcast(0, dy.scale_by(slope))?;
    }
    if cx.wants(1) {
        let has_none = a.compare("LessOrEqual", a.number(0.0));
        let logarithm = has_none.choose(a.number(1.0), a).op("Log");
        // An infinite base whose power is 0 has that power for nearby exponents too.
        cx.give_broadcast(1, dy.scale_by(y.scale_by(logarithm)).cast(b.elem()))?;
    }
    Ok(())
}

/// Sets the gradients of `Mod` with `fmod=1`. The other form has no gradient.
pub(crate) fn modulo(cx: &Backward<'_>) -> Result {
    let (a, b, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    if cx.wants(0) {
        cx.give_broadcast(0, dy)?;
    }
    if cx.wants(1) {
        let quotient = a / b;
        let whole = quotient.op("Sign") * quotient.op("Abs").op("Floor");
        cx.give_broadcast(1, -dy.scale_by(whole))?;
    }
    Ok(())
}

pub(crate) fn sum(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    for index in (0..cx.input_count()).filter(|index| cx.wants(*index)) {
        cx.give_broadcast(index, dy)?;
    }
    Ok(())
}

pub(crate) fn mean(cx: &Backward<'_>) -> Result {
    let part = cx.arriving()? / cx.input_count() as f64;
    for index in (0..cx.input_count()).filter(|index| cx.wants(*index)) {
        cx.give_broadcast(index, part)?;
    }
    Ok(())
}

/// Gradient of a largest or smallest element, for the elements that equal it.
pub(crate) struct Share<'c> {
    each: Expr<'c>,
    /// Whether no element equals the result, which is NaN.
    is_of_none: Expr<'c>,
}

/// Divides `dy` among `count` elements. If NaN is the result, no element equals it and `count` is
/// 0; then all elements get a gradient that is not finite.
pub(crate) fn share_among<'c>(dy: Expr<'c>, count: Expr<'c>) -> Share<'c> {
    Share { each: dy.divide_by(count), is_of_none: count.compare("Equal", count.number(0.0)) }
}

impl<'c> Share<'c> {
    /// Returns the gradients of elements, given which of them equal the result. Others get 0, even
    /// of an infinite gradient.
    pub(crate) fn for_taken(&self, is_taken: Expr<'c>) -> Expr<'c> {
        is_taken.or(self.is_of_none).choose(self.each, self.each.number(0.0))
    }
}

/// Sets the gradients of `Max` and `Min`.
pub(crate) fn extreme(cx: &Backward<'_>) -> Result {
    let (y, dy) = (cx.output(0)?, cx.arriving()?);
    let (mut taken, mut ones) = (Vec::new(), Vec::new());
    for index in 0..cx.input_count() {
        let is_taken = cx.input(index)?.compare("Equal", y);
        taken.push(is_taken);
        ones.push(is_taken.cast(y.elem()));
    }
    let Some((first, others)) = ones.split_first() else { return Ok(()) };
    let count = first.op_with("Sum", others, &[]);
    let share = share_among(dy, count);
    for (index, taken) in taken.into_iter().enumerate().filter(|(index, _)| cx.wants(*index)) {
        cx.give_broadcast(index, share.for_taken(taken))?;
    }
    Ok(())
}

/// Whether the limits of `Clip` are constants and the lower one is not above the upper one.
fn are_ordered(cx: &Backward<'_>) -> bool {
    let number = |index: usize| {
        let limit = cx.constant(index)?;
        let wide = cast(&limit, DataType::Double, CastOptions::default()).ok()?;
        wide.to_vec::<f64>().ok()?.first().copied()
    };
    number(1).zip(number(2)).is_some_and(|(low, high)| low <= high)
}

pub(crate) fn clip(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let (low, high) = (cx.input_if(1), cx.input_if(2));
    let none = dy.number(0.0);
    let mut is_above = high.map(|high| x.compare("Greater", high));
    let mut is_below = low.map(|low| x.compare("Less", low));
    if let (Some(low), Some(high), Some(below), Some(above)) = (low, high, is_below, is_above)
        && !are_ordered(cx)
    {
        // If the lower limit exceeds the upper one, all elements become the upper one, except NaN.
        let is_crossed = below.op_with("And", &[low.compare("Greater", high)], &[]);
        let above = above.or(is_crossed);
        is_above = Some(above);
        is_below = Some(below.op_with("And", &[above.op("Not")], &[]));
    }
    let mut inside = dy;
    for outside in [is_above, is_below].into_iter().flatten() {
        inside = outside.choose(none, inside);
    }
    cx.give(0, inside);
    for (index, outside) in [(1, is_below), (2, is_above)] {
        if let Some(outside) = outside.filter(|_| cx.wants(index)) {
            cx.give_broadcast(index, outside.choose(dy, none))?;
        }
    }
    Ok(())
}

pub(crate) fn softmax(cx: &Backward<'_>) -> Result {
    let axis = cx.int("axis").unwrap_or(-1);
    set_unary(cx, |_, y, dy| {
        // A line that no gradient reaches is dropped; otherwise a NaN in a line affects all of it.
        let y = y.drop_unused(dy);
        let weighted = dy * y;
        weighted - y * weighted.sum(&[axis], true)
    })
}

pub(crate) fn log_softmax(cx: &Backward<'_>) -> Result {
    let axis = cx.int("axis").unwrap_or(-1);
    set_unary(cx, |_, y, dy| {
        let probabilities = y.op("Exp").drop_unused(dy.sum_magnitudes(&[axis]));
        dy - probabilities * dy.sum(&[axis], true)
    })
}

/// Sets the gradient of `CumSum`: the running sum from the other end.
pub(crate) fn cum_sum(cx: &Backward<'_>) -> Result {
    let (axis, dy) = (cx.input(1)?, cx.arriving()?);
    let [exclusive, reverse] = ["exclusive", "reverse"].map(|name| cx.int(name).unwrap_or(0));
    let attributes = [("exclusive", exclusive.into()), ("reverse", (1 - reverse.signum()).into())];
    cx.give(0, dy.op_with("CumSum", &[axis], &attributes));
    Ok(())
}

/// Products whose factors may be 0.
pub(crate) struct Product<'c> {
    /// Factors.
    pub(crate) factors: Expr<'c>,
    /// Truth values: whether each factor is 0.
    pub(crate) are_zero: Expr<'c>,
    /// Number of zero factors of each product.
    pub(crate) zeros: Expr<'c>,
    /// Sum of the zero factors of each product, which is 0 and has a derivative.
    pub(crate) sum_of_zeros: Expr<'c>,
    /// Product of the factors that are not 0.
    pub(crate) rest: Expr<'c>,
}

impl<'c> Product<'c> {
    /// Tests which elements of `x` are 0.
    pub(crate) fn are_zero(x: Expr<'c>) -> Expr<'c> {
        x.compare("Equal", x.number(0.0))
    }

    /// Replaces zero factors by 1.
    pub(crate) fn without_zeros(x: Expr<'c>, are_zero: Expr<'c>) -> Expr<'c> {
        are_zero.choose(x.number(1.0), x)
    }

    /// Replaces factors that are not 0 by constants 0.
    pub(crate) fn zeros_alone(x: Expr<'c>, are_zero: Expr<'c>) -> Expr<'c> {
        are_zero.choose(x, x.number(0.0))
    }

    fn has_zeros(&self, count: f64) -> Expr<'c> {
        self.zeros.compare("Equal", self.zeros.number(count))
    }

    /// Returns, for a factor that is not 0, the product of all others times that factor. With one
    /// zero factor among them it is 0 and has a derivative by that factor.
    pub(crate) fn for_others(&self) -> Expr<'c> {
        let [zero, one] = [0.0, 1.0].map(|number| self.rest.number(number));
        let of_one = self.has_zeros(1.0).choose(self.sum_of_zeros, zero);
        self.rest * self.has_zeros(0.0).choose(one, of_one)
    }

    /// Returns the product of all other factors for each factor. All fields must have the shape of
    /// the factors. With two zero factors, the slope of each is the other one, so that second
    /// derivatives are right; with three, third derivatives are missing.
    pub(crate) fn slopes(&self) -> Expr<'c> {
        let [zero, one] = [0.0, 1.0].map(|number| self.rest.number(number));
        let of_two = self.has_zeros(2.0).choose(self.sum_of_zeros - self.factors, zero);
        let for_zeros = self.rest * self.has_zeros(1.0).choose(one, of_two);
        let not_zero = Product::without_zeros(self.factors, self.are_zero);
        self.are_zero.choose(for_zeros, self.for_others() / not_zero)
    }
}

/// Sets the gradient of `CumProd`: the sum, over all products that an element is a factor of, of
/// the product of the other factors. See [`Product`].
pub(crate) fn cum_prod<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, axis, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let [exclusive, reverse] = ["exclusive", "reverse"].map(|name| cx.int(name).unwrap_or(0));
    let way = |reverse: i64| {
        [("exclusive", AttrValue::Int(exclusive)), ("reverse", AttrValue::Int(reverse))]
    };
    let sums_before = |of: Expr<'c>| of.op_with("CumSum", &[axis], &way(reverse));
    let sums_after = |of: Expr<'c>| of.op_with("CumSum", &[axis], &way(1 - reverse.signum()));
    let are_zero = Product::are_zero(x);
    let not_zero = Product::without_zeros(x, are_zero);
    let products = Product {
        factors: x,
        are_zero,
        zeros: sums_before(are_zero.cast(x.elem())),
        sum_of_zeros: sums_before(Product::zeros_alone(x, are_zero)),
        rest: not_zero.op_with("CumProd", &[axis], &way(reverse)),
    };
    let (zero, one) = (x.number(0.0), x.number(1.0));
    let (is_one, are_two) = (products.has_zeros(1.0), products.has_zeros(2.0));
    // With two zeros the slope of each is the other one: their sum minus the factor itself.
    let of_two = are_two.choose(products.sum_of_zeros, zero);
    let for_zeros = dy.scale_by(products.rest * is_one.choose(one, of_two));
    let own = sums_after(dy.scale_by(are_two.choose(products.rest, zero)));
    let for_zeros = sums_after(for_zeros) - are_zero.choose(x, zero) * own;
    let for_others = sums_after(dy.scale_by(products.for_others())).divide_by(not_zero);
    cx.give(0, are_zero.choose(for_zeros, for_others));
    Ok(())
}

/// Swaps the last two of `rank` axes.
fn swap_matrix_axes(matrices: Expr<'_>, rank: usize) -> Expr<'_> {
    let mut axes: Vec<i64> = (0..rank as i64).collect();
    axes.swap(rank - 2, rank - 1);
    matrices.transpose(&axes)
}

/// Sets the gradients of `MatMul`. A vector is a matrix of one row on the left, and of one column
/// on the right. Operands that broadcast get the sum over their repetitions.
pub(crate) fn matmul<'c>(cx: &'c Backward<'_>) -> Result {
    let (a, b, mut dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let (Ok(rank_a), Ok(rank_b)) = (cx.rank_of(a), cx.rank_of(b)) else {
        matmul_of_any_rank(cx, a, b, dy);
        return Ok(());
    };
    let (mut left, mut right) = (a, b);
    if rank_b == 1 {
        right = right.unsqueeze(&[1]);
        dy = dy.unsqueeze(&[-1]);
    }
    if rank_a == 1 {
        left = left.unsqueeze(&[0]);
        dy = dy.unsqueeze(&[-2]);
    }
    let [rank_left, rank_right] = [rank_a.max(2), rank_b.max(2)];
    let rank = rank_left.max(rank_right);
    // Sum of the magnitudes of the gradients that each line of an operand contributes to, with as
    // many axes as the operand.
    let sum_along = |own: usize, line: i64| {
        let repeated: Vec<i64> = (0..(rank - own) as i64).collect();
        let all: Vec<i64> = repeated.iter().copied().chain([line]).collect();
        let sums = dy.sum_magnitudes(&all);
        if repeated.is_empty() { sums } else { sums.squeeze(&repeated) }
    };
    if cx.wants(0) {
        if cx.may_be_infinite(1) {
            right = right.drop_unused_lines(&[-2], sum_along(rank_right, -2));
        }
        let product = dy.matmul(swap_matrix_axes(right, rank_right));
        cx.give(0, undo_broadcast(cx, product, rank, rank_a, a, b));
    }
    if cx.wants(1) {
        if cx.may_be_infinite(0) {
            left = left.drop_unused_lines(&[-1], sum_along(rank_left, -1));
        }
        // A right operand of one matrix takes one product over all rows.
        let product = if rank_right == 2 && rank_left > 2 {
            let rows = |value: Expr<'c>, columns: Expr<'c>| -> Expr<'c> {
                let all = cx.ints_of(&[-1]).op_with("Concat", &[columns], &[("axis", 0.into())]);
                value.op_with("Reshape", &[all], &[])
            };
            let last = |value: Expr<'c>| value.sizes(-1, None);
            swap_matrix_axes(rows(left, last(left)), 2).matmul(rows(dy, last(dy)))
        } else {
            swap_matrix_axes(left, rank_left).matmul(dy)
        };
        let rank = if rank_right == 2 { 2 } else { rank };
        cx.give(1, undo_broadcast(cx, product, rank, rank_b, b, a));
    }
    Ok(())
}

/// Sets the gradients of `MatMul` if ranks are known only at run time: nodes turn vectors into
/// matrices.
fn matmul_of_any_rank<'c>(cx: &'c Backward<'_>, a: Expr<'c>, b: Expr<'c>, dy: Expr<'c>) {
    let one = cx.ints_of(&[1]);
    let rank = |value: Expr<'c>| value.shape().shape();
    // One `1` for each axis that a vector lacks.
    let ones =
        |value: Expr<'c>| one.expand((2.0 - rank(value)).op_with("Max", &[cx.ints_of(&[0])], &[]));
    let left = a.reshape(ones(a).concat(&[a.shape()], 0));
    let right = b.reshape(b.shape().concat(&[ones(b)], 0));
    let matrix_axes = |value: Expr<'c>| (rank(value) - 1.0).op_with("Min", &[one], &[]);
    let batches = rank(dy) - matrix_axes(a) - matrix_axes(b);
    let batches = dy.shape().op_with("Slice", &[cx.ints_of(&[0]), batches], &[]);
    let whole = batches.concat(&[left.sizes(-2, Some(-1)), right.sizes(-1, None)], 0);
    let dy = dy.reshape(whole);
    let swapped = |matrices: Expr<'c>| {
        matrices.op_with("Einsum", &[], &[("equation", "...ij->...ji".into())])
    };
    let back = |product: Expr<'c>, matrices: Expr<'c>, operand: Expr<'c>| {
        cx.unbroadcast_to(product, matrices, false).reshape(operand.shape())
    };
    if cx.wants(0) {
        let counting = right.drop_unused_lines(&[-2], dy.sum_magnitudes(&[-2]));
        cx.give(0, back(dy.matmul(swapped(counting)), left, a));
    }
    if cx.wants(1) {
        let counting = left.drop_unused_lines(&[-1], dy.sum_magnitudes(&[-1]));
        cx.give(1, back(swapped(counting).matmul(dy), right, b));
    }
}

/// Returns the gradient of an operand of rank `own` of a product, given the gradient `product`
/// before broadcasting is undone, which has rank `rank`.
fn undo_broadcast<'c>(
    cx: &'c Backward<'_>,
    product: Expr<'c>,
    rank: usize,
    own: usize,
    operand: Expr<'c>,
    other: Expr<'c>,
) -> Expr<'c> {
    let batches = |shape: sardonyx_model::Shape| -> Vec<_> {
        shape.iter().take(shape.len().saturating_sub(2)).cloned().collect()
    };
    if rank == 2 {
        return if own == 1 { product.reshape(operand.shape()) } else { product };
    }
    let own_batches = cx.shape_of(operand).map(batches);
    let are_alike = own_batches.is_some_and(|own| {
        let other = cx.shape_of(other).map(batches).unwrap_or_default();
        let known = own.iter().all(|size| !size.is_unknown());
        known && own.len() >= other.len() && {
            let tail = &own[own.len() - other.len()..];
            tail.iter().zip(&other).all(|(own, other)| own == other || other.known() == Some(1))
        }
    });
    if are_alike {
        return product;
    }
    // A vector stands for a matrix that broadcasts; its own axis does not.
    cx.unbroadcast_to(product, operand, own == 1)
}

pub(crate) fn gemm<'c>(cx: &'c Backward<'_>) -> Result {
    let (a, b, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let [alpha, beta] = ["alpha", "beta"].map(|name| float(cx, name));
    let [swaps_a, swaps_b] = ["transA", "transB"].map(|name| cx.int(name).unwrap_or(0) != 0);
    let product = |left: Expr<'c>, right: Expr<'c>, swaps: [bool; 2]| -> Expr<'c> {
        let [left_swaps, right_swaps] = swaps.map(i64::from);
        let attributes = [
            ("alpha", (alpha as f32).into()),
            ("transA", left_swaps.into()),
            ("transB", right_swaps.into()),
        ];
        left.op_with("Gemm", &[right], &attributes)
    };
    // Drops lines of an operand along its inner axis that are not finite and do not contribute.
    // `axis` is the axis of the result that is summed.
    let counting = |index: usize, operand: Expr<'c>, swaps: bool, axis: i64| {
        if !cx.may_be_infinite(index) {
            return operand;
        }
        let sums = dy.sum_magnitudes(&[axis]);
        let (inner, sums) = if swaps { (1 - axis, sums.transpose(&[1, 0])) } else { (axis, sums) };
        operand.drop_unused_lines(&[inner], sums)
    };
    if cx.wants(0) {
        let b = counting(1, b, swaps_b, 0);
        let gradient = if swaps_a {
            product(b, dy, [swaps_b, true])
        } else {
            product(dy, b, [false, !swaps_b])
        };
        cx.give(0, gradient);
    }
    if cx.wants(1) {
        let a = counting(0, a, swaps_a, 1);
        let gradient = if swaps_b {
            product(dy, a, [true, swaps_a])
        } else {
            product(a, dy, [!swaps_a, false])
        };
        cx.give(1, gradient);
    }
    if cx.wants(2) {
        cx.give_broadcast(2, dy * beta)?;
    }
    Ok(())
}

/// Sets the gradients of `Where`.
pub(crate) fn choose(cx: &Backward<'_>) -> Result {
    let (condition, dy) = (cx.input(0)?.with_elem(DataType::Bool), cx.arriving()?);
    let none = dy.number(0.0);
    if cx.wants(1) {
        cx.give_broadcast(1, condition.choose(dy, none))?;
    }
    if cx.wants(2) {
        cx.give_broadcast(2, condition.choose(none, dy))?;
    }
    Ok(())
}
