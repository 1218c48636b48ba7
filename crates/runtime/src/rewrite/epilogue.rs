//! Epilogue fusion: applies operations that only read the result of a product, a convolution or an
//! attention before that result is written.
//!
//! `MatMul -> Add -> Gelu` becomes one step: the sum with a vector becomes a bias, and the function
//! is applied last before an element is stored. `Conv -> BatchNormalization -> Relu` becomes one as
//! well: the scale of each channel is folded into the weights, the shift is a bias. A step is
//! absorbed only if it is the sole reader of the value in between. Reshapes in between are allowed:
//! they move after the fused step.

use sardonyx_kernels::elementwise::{Binary, Unary};
use sardonyx_kernels::gemm::Activation;
use sardonyx_tensor::{DataType, Dims};
use smallvec::{SmallVec, smallvec};

use super::{Note, Readers, put_steps, take_steps};
use crate::ops::limits;
use crate::program::{
    BatchNorm, Conv, Link, Numbers, Op, Parameters, Pointwise, Product, Program, Slot, Stage, Step,
    is_one_number, is_vector_along, same_shape,
};

/// Operation on a result.
enum Next {
    /// Stages of an epilogue, in order.
    Stages(SmallVec<[Stage; 2]>),
    /// Permutation of the axes.
    Permute(Dims),
    /// Conversion of sums of integers to floats.
    Convert,
    /// Multiplication of converted sums by one number, or by one for each column.
    Factors(Slot),
}

/// Step and the reshapes directly after it.
struct ViewedStep {
    step: Step,
    views: Vec<Step>,
}

impl ViewedStep {
    /// Returns the slot of the result after all views.
    fn result(&self) -> Option<Slot> {
        self.views.last().unwrap_or(&self.step).outputs.first().copied().flatten()
    }
}

/// Fuses operations into the epilogues of the steps before them.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut readers = Readers::new(program);
    // An item moves to the position of the step that it absorbs, where all operands of that exist.
    let mut items: Vec<Option<ViewedStep>> = take_steps(program)
        .into_iter()
        .map(|step| step.map(|step| ViewedStep { step, views: Vec::new() }))
        .collect();
    // Whether the item at each position has moved there and absorbs nothing more.
    let mut is_done = vec![false; items.len()];
    for index in 0..items.len() {
        if is_done[index] {
            continue;
        }
        let mut at = index;
        while let Some(found) = next(program, &items, at, &readers) {
            let (Some(mut item), Some(tail)) = (items[at].take(), items[found.at].take()) else {
                break;
            };
            let joins = found.next.and_then(|next| accept(program, &mut item.step.op, next));
            if let Err(why) = joins {
                notes.push(Note::near_miss(&item.step, &tail.step, why));
                (items[at], items[found.at]) = (Some(item), Some(tail));
                break;
            }
            for view in found.views {
                item.views.extend(items[view].take().map(|view| view.step));
            }
            notes.push(Note::fused(&item.step, &tail.step));
            item.step.origins.extend(tail.step.origins);
            let last = item.views.last_mut().unwrap_or(&mut item.step);
            last.outputs[0] = tail.step.outputs[0];
            item.views.extend(tail.views);
            for slot in item.step.op.operands().into_iter().flatten() {
                readers.replace(slot, at, found.at);
            }
            at = found.at;
            items[at] = Some(item);
        }
        is_done[at] = true;
    }
    let all = items.into_iter().flatten();
    let steps = all.flat_map(|item| std::iter::once(item.step).chain(item.views));
    let steps = steps.map(Some).collect();
    put_steps(program, steps);
    notes
}

/// Absorbs the next operation into a step, or returns the reason why its kernels cannot apply it.
fn accept(program: &Program, op: &mut Op, next: Next) -> Result<(), &'static str> {
    match (op, next) {
        (Op::Product(product), Next::Stages(stages)) => {
            let before = product.epilogue.clone();
            let accepted =
                stages.into_iter().try_for_each(|stage| accept_in_product(product, stage));
            accepted.inspect_err(|_| product.epilogue = before)
        }
        (Op::Conv(conv), Next::Stages(stages)) => {
            let before = conv.epilogue.clone();
            let accepted = accept_in_conv(program, conv, stages);
            accepted.inspect_err(|_| conv.epilogue = before)
        }
        (Op::Attention(attention), Next::Permute(order)) => {
            if attention.permute.is_some() || order.len() != 4 || order[3] != 3 {
                return Err("attention supports only permutations of batch, heads and rows");
            }
            attention.permute = Some(order);
            Ok(())
        }
        (_, Next::Permute(_)) => Err("the axes keep their order"),
        (Op::Product(product), Next::Convert) => {
            product.types.result = DataType::Float;
            Ok(())
        }
        (Op::Product(product), Next::Factors(factors)) => {
            product.factors = Some(factors);
            Ok(())
        }
        _ => Err("only products and convolutions support epilogues"),
    }
}

/// Adds a stage to a product.
fn accept_in_product(product: &mut Product, stage: Stage) -> Result<(), &'static str> {
    if product.types.result != DataType::Float {
        return Err("only float products support epilogues");
    }
    if product.types.sum != DataType::Float && matches!(stage, Stage::Scale { .. }) {
        return Err("sums of integers are scaled first, and once");
    }
    let has_own = product.quantized.as_ref().is_some_and(|quantized| quantized.bias.is_some());
    let is_biased = || has_own || product.epilogue.biases().next().is_some();
    match &stage {
        Stage::Scale { by: Numbers::Known(_), .. } | Stage::Bias { by: Numbers::Known(_), .. } => {
            return Err("products do not scale columns");
        }
        Stage::Scale { by: Numbers::Value(_), .. } => {
            return Err("the factor is neither a number nor of the same shape");
        }
        Stage::Bias { by: Numbers::One(_), .. } => {
            return Err("the summand is neither a vector nor of the same shape");
        }
        // C takes the place of a bias, and a scale after it is not supported.
        Stage::Scale { .. } | Stage::Bias { .. } if product.addend.is_some() => {
            return Err("the product adds C already");
        }
        Stage::Scale { .. } if is_biased() => return Err("sums are not scaled"),
        Stage::Bias { .. } if is_biased() => return Err("there is a bias already"),
        _ => {}
    }
    product.epilogue.push(stage)
}

/// Adds stages to a convolution. On failure some of them may have been added.
fn accept_in_conv(
    program: &Program,
    conv: &mut Conv,
    stages: SmallVec<[Stage; 2]>,
) -> Result<(), &'static str> {
    if !conv.takes_stages() {
        return Err("only float convolutions over at most three axes support epilogues");
    }
    stages.into_iter().try_for_each(|stage| conv.epilogue.push(stage))?;
    program.check_channels(conv)
}

/// Candidate for fusion into a step.
struct FusionCandidate {
    /// Reshapes in between, in order.
    views: SmallVec<[usize; 2]>,
    at: usize,
    next: Result<Next, &'static str>,
}

/// Returns the step after a step, and its operation; `None` if it is not a candidate at all.
fn next(
    program: &Program,
    items: &[Option<ViewedStep>],
    index: usize,
    readers: &Readers,
) -> Option<FusionCandidate> {
    let item = items[index].as_ref()?;
    if !matches!(item.step.op, Op::Product(_) | Op::Conv(_) | Op::Attention(_)) {
        return None;
    }
    let mut value = item.result()?;
    let mut views = SmallVec::new();
    loop {
        let (at, is_alone) = match *readers.readers(value) {
            [at] => (at, true),
            // A value with several readers is noted with the first that might have been absorbed.
            [at, ..] => (at, false),
            [] => return None,
        };
        // An output of the graph has a reader that is not a step.
        let at = at as usize;
        let step = &items.get(at)?.as_ref()?.step;
        if let Op::Move(moved) = &step.op
            && moved.kind.only_reshapes()
            && moved.operands.first() == Some(&Some(value))
            && is_alone
        {
            value = step.outputs.first().copied().flatten()?;
            views.push(at);
            continue;
        }
        let is_reshaped = !views.is_empty() || !item.views.is_empty();
        let axis = axis_of(program, &item.step, value, is_reshaped);
        let mut next = match find_dequantization(program, &item.step, step, value) {
            Some(next) if !is_reshaped => Ok(next),
            _ => find_operation(program, step, value, axis, is_reshaped)?,
        };
        if is_reshaped && next.as_ref().is_ok_and(|next| !keeps_images(program, &item.step, next)) {
            next = Err("the result has other dimensions before it is reshaped");
        }
        if !is_alone {
            next = Err("other steps read the result as well");
        }
        // The item moves to this position, so no earlier step may read its other results.
        let others = item.step.outputs.iter().skip(1).flatten();
        let mut early = others.flat_map(|slot| readers.readers(*slot));
        if early.any(|reader| (*reader as usize) < at) {
            next = Err("another result is read before");
        }
        return Some(FusionCandidate { views, at, next });
    }
}

/// Whether the operands of the absorbed stages have the dimensions of the step's own result, as
/// convolutions require.
fn keeps_images(program: &Program, step: &Step, next: &Next) -> bool {
    let (Op::Conv(_), Next::Stages(stages)) = (&step.op, next) else { return true };
    let own = step.outputs.first().copied().flatten().and_then(|slot| program.shape(slot));
    stages.iter().all(|stage| match stage {
        Stage::Add(other) | Stage::Mul(other) => {
            own.zip(program.shape(*other)).is_some_and(|(own, other)| same_shape(own, other))
        }
        _ => true,
    })
}

/// Axis along which a step can scale its result and add biases.
#[derive(Clone, Copy)]
struct Axis {
    /// Axis of the step's result.
    own: usize,
    /// Axis after the reshapes, unless they split it.
    reshaped: Option<usize>,
}

/// Returns the axis of a step whose result is `value` after reshapes; `None` for a step without
/// one.
fn axis_of(program: &Program, step: &Step, value: Slot, is_reshaped: bool) -> Option<Axis> {
    let before = program.shape(step.outputs.first().copied().flatten()?)?;
    let after = program.shape(value)?;
    let is_kept = |at: usize, then: usize| match (before.get(at), after.get(then)) {
        (Some(before), Some(after)) => !is_reshaped || before.surely_equals(after),
        _ => false,
    };
    match step.op {
        Op::Product(_) => {
            let (own, last) = (before.len().checked_sub(1)?, after.len().checked_sub(1)?);
            Some(Axis { own, reshaped: is_kept(own, last).then_some(last) })
        }
        // With batch and channels kept, the elements of a channel stay together.
        Op::Conv(_) => {
            Some(Axis { own: 1, reshaped: (is_kept(0, 0) && is_kept(1, 1)).then_some(1) })
        }
        _ => None,
    }
}

/// Returns the operation of a step that makes floats of the sums of integers in `value`, or scales
/// them.
fn find_dequantization(program: &Program, item: &Step, step: &Step, value: Slot) -> Option<Next> {
    let Op::Product(product) = &item.op else { return None };
    if product.types.sum != DataType::Int32 {
        return None;
    }
    match &step.op {
        Op::Cast(cast) => {
            let converts = cast.x == value && cast.conversion.to == DataType::Float;
            (converts && product.types.result == DataType::Int32).then_some(Next::Convert)
        }
        Op::Pointwise(pointwise) => {
            let is_product = matches!(pointwise.links[..], [Link::Binary { op: Binary::Mul, .. }]);
            let is_first = product.factors.is_none() && product.epilogue.0.is_empty();
            let is_float = [pointwise.elem, product.types.result] == [DataType::Float; 2];
            let &[a, b] = &pointwise.operands[..] else { return None };
            let other = if a == value { b } else { a };
            let (shape, other_shape) = (program.shape(value)?, program.shape(other)?);
            let column = shape.len().checked_sub(1)?;
            let is_one = is_one_number(other_shape) && other_shape.len() <= shape.len();
            let fits = is_one || is_vector_along(column, other_shape, shape);
            (is_product && is_first && is_float && a != b && fits).then_some(Next::Factors(other))
        }
        _ => None,
    }
}

/// Returns the operation of a step on `value`, or the reason why it is not known well enough;
/// `None` if it is neither pointwise nor a permutation of axes.
fn find_operation(
    program: &Program,
    step: &Step,
    value: Slot,
    axis: Option<Axis>,
    is_reshaped: bool,
) -> Option<Result<Next, &'static str>> {
    let pointwise = match &step.op {
        Op::Move(moved) => {
            let is_first = moved.operands.first() == Some(&Some(value));
            let order = moved.kind.order().filter(|_| is_first && !is_reshaped)?;
            return Some(Ok(Next::Permute(order.clone())));
        }
        Op::BatchNorm(norm) if norm.x == value => {
            return Some(normalization(program, norm, axis).map(Next::Stages));
        }
        Op::Pointwise(pointwise) => pointwise,
        _ => return None,
    };
    let [link] = &pointwise.links[..] else {
        return None;
    };
    let stage = stage(program, pointwise, link, value, axis);
    Some(stage.map(|stage| Next::Stages(smallvec![stage])))
}

/// Converts a normalization of channels to stages.
fn normalization(
    program: &Program,
    norm: &BatchNorm,
    axis: Option<Axis>,
) -> Result<SmallVec<[Stage; 2]>, &'static str> {
    if norm.elem != DataType::Float {
        return Err("only float is supported in epilogues");
    }
    let Parameters::Folded { scale, shift } = &norm.parameters else {
        return Err("the parameters of the normalization are not constants");
    };
    let channels = program.shape(norm.x).and_then(|shape| shape.get(1)?.size());
    let Some(Axis { own, reshaped: Some(1) }) = axis else {
        return Err("its channels are not along the axis that can be scaled");
    };
    if channels != Some(scale.len()) {
        return Err("the number of channels is unknown");
    }
    Ok(smallvec![
        Stage::Scale { by: Numbers::Known(scale.clone()), axis: own },
        Stage::Bias { by: Numbers::Known(shift.clone()), axis: own },
    ])
}

/// Converts a pointwise operation to a stage.
fn stage(
    program: &Program,
    pointwise: &Pointwise,
    link: &Link,
    value: Slot,
    axis: Option<Axis>,
) -> Result<Stage, &'static str> {
    if pointwise.elem != DataType::Float {
        return Err("only float is supported in epilogues");
    }
    let activation = match link {
        Link::Unary(op) => activation(*op).ok_or("this function is not supported in epilogues")?,
        Link::Clip(given) => {
            let limits = limits::<f32>(given);
            let [low, high] = limits.map_err(|_| "the limits cannot be read")?;
            // Kernels clamp to NaN in different ways, so it is left alone.
            if low.is_nan() || high.is_nan() {
                return Err("a limit is NaN");
            }
            Activation::Clip(low, high)
        }
        Link::Binary { op: op @ (Binary::Add | Binary::Mul), .. } => {
            let &[a, b] = &pointwise.operands[..] else {
                return Err("it does not have two operands");
            };
            return with_other(program, *op, value, if a == value { b } else { a }, axis);
        }
        Link::Binary { .. } => return Err("only sums and products with another tensor are"),
    };
    Ok(Stage::Activation(activation))
}

/// Converts a sum or product with another value to a stage.
fn with_other(
    program: &Program,
    op: Binary,
    value: Slot,
    other: Slot,
    axis: Option<Axis>,
) -> Result<Stage, &'static str> {
    let (Some(shape), Some(other_shape)) = (program.shape(value), program.shape(other)) else {
        return Err("a shape is not known");
    };
    if same_shape(shape, other_shape) {
        return Ok(match op {
            Binary::Add => Stage::Add(other),
            _ => Stage::Mul(other),
        });
    }
    if other_shape.len() > shape.len() {
        return Err("the result broadcasts to more dimensions");
    }
    let Some(Axis { own: axis, reshaped }) = axis else {
        return Err("only products and convolutions support epilogues");
    };
    let is_vector = reshaped.is_some_and(|axis| is_vector_along(axis, other_shape, shape));
    let vector = is_vector.then_some(Numbers::Value(other));
    let number = program.small_constant(other).filter(|number| number.len() == 1);
    let number = number.and_then(|number| number.to_vec::<f32>().ok()?.first().copied());
    let number = number.map(Numbers::One);
    match (op, number, vector) {
        (Binary::Mul, Some(by), _) | (Binary::Mul, None, Some(by)) => Ok(Stage::Scale { by, axis }),
        (_, _, Some(by)) | (_, Some(by), None) => Ok(Stage::Bias { by, axis }),
        (Binary::Mul, None, None) => {
            Err("the factor is neither of the same shape nor a vector along the axis of a bias")
        }
        _ => Err("the summand is neither of the same shape nor a vector along the axis of a bias"),
    }
}

/// Returns the activation of a function, if products have one.
fn activation(op: Unary) -> Option<Activation> {
    Some(match op {
        Unary::Relu => Activation::Relu,
        Unary::LeakyRelu { alpha } => Activation::LeakyRelu(alpha),
        Unary::HardSigmoid { alpha, beta } => Activation::HardSigmoid(alpha, beta),
        Unary::HardSwish => Activation::HardSwish,
        Unary::Gelu => Activation::Gelu,
        Unary::GeluTanh => Activation::GeluTanh,
        Unary::Sigmoid => Activation::Sigmoid,
        Unary::Swish { alpha } => Activation::Swish(alpha),
        Unary::Tanh => Activation::Tanh,
        _ => return None,
    })
}
