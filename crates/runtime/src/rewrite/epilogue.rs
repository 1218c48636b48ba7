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

use super::{Joined, Readers, put_together, taken_apart};
use crate::ops::limits;
use crate::program::{Link, Op, Program, Slot, Stage, Step, same_shape};

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
pub(crate) fn run(program: &mut Program) -> Vec<Joined> {
    let mut joined = Vec::new();
    let mut readers = Readers::new(program);
    // An item moves to the place of what joins it, where everything that it reads then exists.
    let mut items: Vec<Option<Item>> = taken_apart(program)
        .into_iter()
        .map(|step| step.map(|step| Item { step, views: Vec::new() }))
        .collect();
    for index in 0..items.len() {
        let mut at = index;
        while let Some(found) = next(program, &items, at, &readers) {
            let Some(mut item) = items[at].take() else {
                break;
            };
            if !accept(&mut item.step.op, found.next) {
                items[at] = Some(item);
                break;
            }
            for view in found.views {
                item.views.extend(items[view].take().map(|view| view.step));
            }
            let Some(tail) = items[found.at].take() else {
                break;
            };
            let nodes = tail.step.origins;
            joined.push(Joined { by: item.step.origins.clone(), nodes: nodes.clone() });
            item.step.origins.extend(nodes);
            let last = item.views.last_mut().unwrap_or(&mut item.step);
            last.outputs[0] = tail.step.outputs[0];
            item.views.extend(tail.views);
            for slot in item.step.op.operands().into_iter().flatten() {
                readers.moved(slot, at, found.at);
            }
            at = found.at;
            items[at] = Some(item);
        }
    }
    let all = items.into_iter().flatten();
    let steps = all.flat_map(|item| std::iter::once(item.step).chain(item.views));
    let steps = steps.map(Some).collect();
    put_together(program, steps);
    joined
}

/// Makes a part of a step what follows it; `false` if its kernels cannot do that.
fn accept(op: &mut Op, next: Next) -> bool {
    match (op, next) {
        (Op::Product(product), Next::Stage(stage)) => {
            // C takes the place of a bias, and nothing scales it afterwards.
            let fits =
                !matches!(stage, Stage::Scale(_) | Stage::Bias(_)) || product.addend.is_none();
            product.elem == DataType::Float && fits && product.epilogue.push(stage)
        }
        (Op::Conv(conv), Next::Stage(stage)) => {
            let fits = match &stage {
                Stage::Add(_) => true,
                Stage::Activation(activation) => !activation.is_function(),
                Stage::Scale(_) | Stage::Bias(_) | Stage::Mul(_) => false,
            };
            conv.takes_stages() && fits && conv.epilogue.push(stage)
        }
        (Op::Attention(attention), Next::Permute(order)) => {
            // Features stay last, and there must be an axis for heads.
            let fits = attention.permute.is_none() && order.len() == 4 && order[3] == 3;
            if fits {
                attention.permute = Some(order);
            }
            fits
        }
        _ => false,
    }
}

/// What may join a step.
struct Found {
    /// Reshapes between, in order.
    views: SmallVec<[usize; 2]>,
    at: usize,
    next: Next,
}

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
        let [at] = *readers.of(value) else {
            return None;
        };
        // Outputs of the graph have a reader that is no step.
        let step = &items.get(at)?.as_ref()?.step;
        if let Op::Move(moved) = &step.op
            && moved.kind.only_reshapes()
            && moved.operands.first() == Some(&Some(value))
        {
            value = step.outputs.first().copied().flatten()?;
            views.push(at);
            continue;
        }
        let is_reshaped = !views.is_empty() || !item.views.is_empty();
        let next = what(program, step, value, is_reshaped)?;
        if matches!(next, Next::Stage(Stage::Bias(_))) && is_reshaped {
            // A vector along the last axis must still be that for the product itself.
            let last = |slot: Slot| program.shape(slot)?.last();
            let before = last(item.step.outputs.first().copied().flatten()?)?;
            if !before.surely_equals(last(value)?) {
                return None;
            }
        }
        // The item moves to this place, and nobody may want another result of it before.
        let others = item.step.outputs.iter().skip(1).flatten();
        let mut early = others.flat_map(|slot| readers.of(*slot));
        if early.any(|reader| *reader < at) {
            return None;
        }
        return Some(Found { views, at, next });
    }
}

/// What a step does to `value`.
fn what(program: &Program, step: &Step, value: Slot, is_reshaped: bool) -> Option<Next> {
    let pointwise = match &step.op {
        Op::Move(moved) => {
            let is_first = moved.operands.first() == Some(&Some(value));
            let order = moved.kind.order().filter(|_| is_first && !is_reshaped)?;
            return Some(Next::Permute(order.clone()));
        }
        Op::Pointwise(pointwise) => pointwise,
        _ => return None,
    };
    if program.elem(value) != Some(DataType::Float) {
        return None;
    }
    let [link] = &pointwise.links[..] else {
        return None;
    };
    let stage = match link {
        Link::Unary(op) => Stage::Activation(activation(*op)?),
        Link::Clip { low, high } => {
            // NaN limits nothing the same way everywhere, so it is left alone.
            let [low, high] = limits::<f32>(low.as_ref(), high.as_ref()).ok()?;
            if low.is_nan() || high.is_nan() {
                return None;
            }
            Stage::Activation(Activation::Clip(low, high))
        }
        Link::Binary { op: op @ (Binary::Add | Binary::Mul), .. } => {
            let &[a, b] = &pointwise.operands[..] else {
                return None;
            };
            with_other(program, *op, value, if a == value { b } else { a })?
        }
        Link::Binary { .. } => return None,
    };
    Some(Next::Stage(stage))
}

/// The sum or the product of a value and another one.
fn with_other(program: &Program, op: Binary, value: Slot, other: Slot) -> Option<Stage> {
    let (shape, other_shape) = (program.shape(value)?, program.shape(other)?);
    if same_shape(shape, other_shape) {
        return Some(match op {
            Binary::Add => Stage::Add(other),
            _ => Stage::Mul(other),
        });
    }
    if other_shape.len() > shape.len() {
        return None;
    }
    if op == Binary::Mul {
        let scale = program.small(other).filter(|scale| scale.len() == 1)?;
        return Some(Stage::Scale(*scale.to_vec::<f32>().ok()?.first()?));
    }
    let (last, leading) = other_shape.split_last()?;
    let is_vector =
        last.surely_equals(shape.last()?) && leading.iter().all(|dim| dim.known() == Some(1));
    is_vector.then_some(Stage::Bias(other))
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
