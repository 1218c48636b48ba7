//! Epilogue fusion: what only reads the result of a product, a convolution or an attention is done
//! before that result is written.
//!
//! `MatMul -> Add -> Gelu` becomes one step: the sum with a vector becomes a bias, and the function
//! the last thing that happens before an element is stored. A step joins only if it is the sole
//! reader and nothing else wants the value in between. Steps that only give the value other
//! dimensions do not stand in the way: they happen afterwards.

use sardonyx_kernels::elementwise::{Binary, Unary};
use sardonyx_kernels::gemm::Activation;
use sardonyx_tensor::{DataType, Dims};
use smallvec::SmallVec;

use super::{Note, Readers, put_together, taken_apart};
use crate::ops::limits;
use crate::program::{Link, Op, Pointwise, Program, Slot, Stage, Step, same_shape};

/// What another step does to a result.
enum Next {
    Stage(Stage),
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
            let joins = found.next.and_then(|next| accept(&mut item.step.op, next));
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
fn accept(op: &mut Op, next: Next) -> Result<(), &'static str> {
    match (op, next) {
        (Op::Product(product), Next::Stage(stage)) => {
            if product.elem != DataType::Float {
                return Err("only products of float do more before they write");
            }
            // C takes the place of a bias, and nothing scales it afterwards.
            if product.addend.is_some() && matches!(stage, Stage::Scale(_) | Stage::Bias(_)) {
                return Err("the product adds C already");
            }
            product.epilogue.push(stage)
        }
        (Op::Conv(conv), Next::Stage(stage)) => {
            if !conv.takes_stages() {
                return Err("only convolutions of float over at most three axes do more");
            }
            match &stage {
                Stage::Add(_) | Stage::Activation(_) | Stage::Mul(_) => {}
                Stage::Scale(_) | Stage::Bias(_) => {
                    return Err("convolutions take tensors of their shape and functions only");
                }
            }
            conv.epilogue.push(stage)
        }
        (Op::Attention(attention), Next::Permute(order)) => {
            if attention.permute.is_some() || order.len() != 4 || order[3] != 3 {
                return Err("attention writes batches, heads and rows in another order only");
            }
            attention.permute = Some(order);
            Ok(())
        }
        (_, Next::Permute(_)) => Err("the axes keep their order"),
        _ => Err("only products and convolutions do more before they write"),
    }
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
        let mut next = what(program, step, value, is_reshaped)?;
        if !is_alone {
            next = Err("other steps read the result as well");
        }
        if let Ok(Next::Stage(Stage::Bias(_))) = next
            && is_reshaped
        {
            // A vector along the last axis must still be that for the product itself.
            let last = |slot: Slot| program.shape(slot)?.last();
            let before = last(item.step.outputs.first().copied().flatten()?)?;
            if !before.surely_equals(last(value)?) {
                next = Err("the vector is not one along the last axis of the product");
            }
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

/// What a step does to `value`, or why that is not known well enough; `None` for what is neither a
/// function of elements nor another order of axes.
fn what(
    program: &Program,
    step: &Step,
    value: Slot,
    is_reshaped: bool,
) -> Option<Result<Next, &'static str>> {
    let pointwise = match &step.op {
        Op::Move(moved) => {
            let is_first = moved.operands.first() == Some(&Some(value));
            let order = moved.kind.order().filter(|_| is_first && !is_reshaped)?;
            return Some(Ok(Next::Permute(order.clone())));
        }
        Op::Pointwise(pointwise) => pointwise,
        _ => return None,
    };
    let [link] = &pointwise.links[..] else {
        return None;
    };
    Some(stage(program, pointwise, link, value).map(Next::Stage))
}

/// A function of elements as a stage.
fn stage(
    program: &Program,
    pointwise: &Pointwise,
    link: &Link,
    value: Slot,
) -> Result<Stage, &'static str> {
    if pointwise.elem != DataType::Float {
        return Err("only float is computed before a result is written");
    }
    let activation = match link {
        Link::Unary(op) => activation(*op).ok_or("this function is not computed there")?,
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
            return with_other(program, *op, value, if a == value { b } else { a });
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
    if op == Binary::Mul {
        let scale = program.small(other).filter(|scale| scale.len() == 1);
        let scale = scale.and_then(|scale| scale.to_vec::<f32>().ok()?.first().copied());
        return scale
            .map(Stage::Scale)
            .ok_or("the factor is neither a number nor of the same shape");
    }
    let is_vector = match (other_shape.split_last(), shape.last()) {
        (Some((last, leading)), Some(wanted)) => {
            last.surely_equals(wanted) && leading.iter().all(|dim| dim.known() == Some(1))
        }
        _ => false,
    };
    if is_vector {
        Ok(Stage::Bias(other))
    } else {
        Err("the summand is neither a vector nor of the same shape")
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
