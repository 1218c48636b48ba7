//! Epilogue fusion: what only reads the result of a product, a convolution or an attention is done
//! before that result is written.
//!
//! `MatMul -> Add -> Gelu` becomes one step: the sum with a vector becomes a bias, and the function
//! the last thing that happens before an element is stored. `Conv -> BatchNormalization -> Relu`
//! becomes one as well: the factor of each channel will be multiplied into the weights, the summand
//! is a bias. A step joins only if it is the sole reader and nothing else wants the value in
//! between. Steps that only give the value other dimensions do not stand in the way: they happen
//! afterwards.

use sardonyx_kernels::elementwise::{Binary, Unary};
use sardonyx_kernels::gemm::Activation;
use sardonyx_tensor::{DataType, Dims};
use smallvec::{SmallVec, smallvec};

use super::{Note, Readers, put_together, taken_apart};
use crate::ops::limits;
use crate::program::{
    BatchNorm, Conv, Link, Numbers, Op, Parameters, Pointwise, Product, Program, Slot, Stage, Step,
    is_vector_along, same_shape,
};

/// What another step does to a result.
enum Next {
    /// In order.
    Stages(SmallVec<[Stage; 2]>),
    /// Another order of the axes.
    Permute(Dims),
}

/// A step and the reshapes that follow it at once.
struct Item {
    step: Step,
    views: Vec<Step>,
}

impl Item {
    /// Where the result is after all views.
    fn result(&self) -> Option<Slot> {
        self.views.last().unwrap_or(&self.step).outputs.first().copied().flatten()
    }
}

/// Lets every step that can take over what follows it.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut readers = Readers::new(program);
    // An item moves to the place of what joins it, where everything that it reads then exists.
    let mut items: Vec<Option<Item>> = taken_apart(program)
        .into_iter()
        .map(|step| step.map(|step| Item { step, views: Vec::new() }))
        .collect();
    // By place: whether an item has come here and takes over nothing more.
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
                notes.push(Note::missed(&item.step, &tail.step, why));
                (items[at], items[found.at]) = (Some(item), Some(tail));
                break;
            }
            for view in found.views {
                item.views.extend(items[view].take().map(|view| view.step));
            }
            notes.push(Note::joined(&item.step, &tail.step));
            item.step.origins.extend(tail.step.origins);
            let last = item.views.last_mut().unwrap_or(&mut item.step);
            last.outputs[0] = tail.step.outputs[0];
            item.views.extend(tail.views);
            for slot in item.step.op.operands().into_iter().flatten() {
                readers.moved(slot, at, found.at);
            }
            at = found.at;
            items[at] = Some(item);
        }
        is_done[at] = true;
    }
    let all = items.into_iter().flatten();
    let steps = all.flat_map(|item| std::iter::once(item.step).chain(item.views));
    let steps = steps.map(Some).collect();
    put_together(program, steps);
    notes
}

/// Makes a part of a step what follows it, or says why its kernels cannot do that.
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
        _ => Err("only products and convolutions support epilogues"),
    }
}

/// Adds a stage to a product.
fn accept_in_product(product: &mut Product, stage: Stage) -> Result<(), &'static str> {
    if product.types.a != DataType::Float {
        return Err("only float products support epilogues");
    }
    let is_biased = || product.epilogue.biases().next().is_some();
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
        // C takes the place of a bias, and nothing scales it afterwards.
        Stage::Scale { .. } | Stage::Bias { .. } if product.addend.is_some() => {
            return Err("the product adds C already");
        }
        Stage::Scale { .. } if is_biased() => return Err("sums are not scaled"),
        Stage::Bias { .. } if is_biased() => return Err("there is a bias already"),
        _ => {}
    }
    product.epilogue.push(stage)
}

/// Adds stages to a convolution. It may be left with some of them if it does not take all.
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

/// What may join a step.
struct Found {
    /// Reshapes between, in order.
    views: SmallVec<[usize; 2]>,
    at: usize,
    next: Result<Next, &'static str>,
}

/// The step that follows a step, and what it does to its result; `None` if that is nothing that
/// could ever join.
fn next(
    program: &Program,
    items: &[Option<Item>],
    index: usize,
    readers: &Readers,
) -> Option<Found> {
    let item = items[index].as_ref()?;
    if !matches!(item.step.op, Op::Product(_) | Op::Conv(_) | Op::Attention(_)) {
        return None;
    }
    let mut value = item.result()?;
    let mut views = SmallVec::new();
    loop {
        let (at, is_alone) = match *readers.of(value) {
            [at] => (at, true),
            // What several steps read is told of with the first that might have joined.
            [at, ..] => (at, false),
            [] => return None,
        };
        // Outputs of the graph have a reader that is no step.
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
        let mut next = what(program, step, value, axis, is_reshaped)?;
        if is_reshaped && next.as_ref().is_ok_and(|next| !keeps_images(program, &item.step, next)) {
            next = Err("the result has other dimensions before it is reshaped");
        }
        if !is_alone {
            next = Err("other steps read the result as well");
        }
        // The item moves to this place, and nobody may want another result of it before.
        let others = item.step.outputs.iter().skip(1).flatten();
        let mut early = others.flat_map(|slot| readers.of(*slot));
        if early.any(|reader| (*reader as usize) < at) {
            next = Err("another result is read before");
        }
        return Some(Found { views, at, next });
    }
}

/// Whether a step takes what it would read for its next step: a convolution reads images of the
/// dimensions of its own result.
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

/// The axis along which a step can multiply its result with numbers, and add some.
#[derive(Clone, Copy)]
struct Axis {
    /// Of its result.
    own: usize,
    /// Of what that is after reshapes, unless these have taken the axis apart.
    reshaped: Option<usize>,
}

/// The axis of a step whose result is `value` after reshapes; `None` for a step without one.
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
        // With batch and channels kept, all of a channel stays together.
        Op::Conv(_) => {
            Some(Axis { own: 1, reshaped: (is_kept(0, 0) && is_kept(1, 1)).then_some(1) })
        }
        _ => None,
    }
}

/// What a step does to `value`, or why that is not known well enough; `None` for what is neither a
/// function of elements nor another order of axes.
fn what(
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

/// A normalization of channels as stages.
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

/// A function of elements as a stage.
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
            // NaN limits nothing the same way everywhere, so it is left alone.
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

/// The sum or the product of a value and another one.
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
    let number = program.small(other).filter(|number| number.len() == 1);
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

/// The function as an activation, if it is one that is computed while a product is stored.
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
