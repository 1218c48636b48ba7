//! Tails: what only reads the result of a product or convolution is done while that result is
//! written.
//!
//! `MatMul -> Add -> Gelu` becomes one step: the kernel takes the vector of the sum as a bias and
//! the activation as the last thing it does before storing. A step is absorbed only if it is the
//! sole reader and nothing else wants the value in between. Steps that only give the value other
//! dimensions do not stand in the way: they happen afterwards.

use sardonyx_kernels::elementwise::{Binary, Unary};
use sardonyx_kernels::gemm::Activation;
use sardonyx_kernels::number::Number;
use sardonyx_model::Shape;
use sardonyx_tensor::{DataType, Element};
use smallvec::SmallVec;

use crate::compile::{Program, Slot, Step, Work};
use crate::kernel::{Pointwise, Tail};

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

/// Lets every step that can take over what follows it. Says what was absorbed by whom.
pub(crate) fn absorb_tails(program: &mut Program) -> Vec<(Work, Work)> {
    let mut absorbed = Vec::new();
    let mut readers = readers(program);
    // An item moves to the place of what it absorbs, where everything that it reads then exists.
    let mut items: Vec<Option<Item>> = std::mem::take(&mut program.steps)
        .into_iter()
        .map(|step| Some(Item { step, views: Vec::new() }))
        .collect();
    for index in 0..items.len() {
        let mut at = index;
        while let Some(found) = next_tail(program, &items, at, &readers) {
            let Some(mut item) = items[at].take() else {
                break;
            };
            let position = item.step.inputs.len();
            if !item.step.kernel.absorb(&found.tail, position) {
                items[at] = Some(item);
                break;
            }
            for view in found.views {
                item.views.extend(items[view].take().map(|view| view.step));
            }
            let Some(tail) = items[found.at].take() else {
                break;
            };
            absorbed.push((item.step.work.clone(), tail.step.work));
            let last = item.views.last_mut().unwrap_or(&mut item.step);
            last.outputs[0] = tail.step.outputs[0];
            item.step.work.with.push(tail.step.op);
            if let Some(other) = found.other {
                item.step.inputs.push(Some(other));
            }
            item.views.extend(tail.views);
            for slot in item.step.inputs.iter().flatten() {
                for reader in &mut readers.0[slot.index()] {
                    if *reader == at {
                        *reader = found.at;
                    }
                }
            }
            at = found.at;
            items[at] = Some(item);
        }
    }
    program.steps.reserve_exact(items.len());
    for item in items.into_iter().flatten() {
        program.steps.push(item.step);
        program.steps.extend(item.views);
    }
    absorbed
}

/// What a step may absorb.
struct Found {
    /// Reshapes between, in order.
    views: SmallVec<[usize; 2]>,
    /// The step that is absorbed.
    at: usize,
    tail: Tail,
    /// What else it reads.
    other: Option<Slot>,
}

fn next_tail(
    program: &Program,
    items: &[Option<Item>],
    index: usize,
    readers: &Readers,
) -> Option<Found> {
    let item = items[index].as_ref()?;
    let mut value = item.result()?;
    let mut views = SmallVec::new();
    loop {
        let [at] = *readers.of(value) else {
            return None;
        };
        // Outputs of the model have a reader that is no step.
        let next = &items.get(at)?.as_ref()?.step;
        if next.kernel.only_reshapes() && next.inputs.first() == Some(&Some(value)) {
            value = next.outputs.first().copied().flatten()?;
            views.push(at);
            continue;
        }
        let is_reshaped = !views.is_empty() || !item.views.is_empty();
        let (tail, other) = tail_of(program, next, value, is_reshaped)?;
        if tail == Tail::Bias && is_reshaped {
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
        return Some(Found { views, at, tail, other });
    }
}

/// What `next` does to `value`, as a tail of whoever computes it.
fn tail_of(
    program: &Program,
    next: &Step,
    value: Slot,
    is_reshaped: bool,
) -> Option<(Tail, Option<Slot>)> {
    let is_first = next.inputs.first() == Some(&Some(value));
    if let Some(order) = next.kernel.turns() {
        let turns = is_first && !is_reshaped;
        return turns.then(|| (Tail::Turn(order.clone()), None));
    }
    if program.elem(value) != Some(DataType::Float) {
        return None;
    }
    match next.kernel.pointwise()? {
        Pointwise::Unary(op) => Some((Tail::Activation(activation(op)?), None)),
        Pointwise::Clip if is_first => {
            // NaN limits nothing the same way everywhere, so it is left alone.
            let [low, high] = clip_limits::<f32>(program, next)?;
            let is_known = !low.is_nan() && !high.is_nan();
            is_known.then_some((Tail::Activation(Activation::Clip(low, high)), None))
        }
        Pointwise::Binary(op @ (Binary::Add | Binary::Mul)) => {
            let &[Some(a), Some(b)] = &next.inputs[..] else {
                return None;
            };
            with_other(program, op, value, if a == value { b } else { a })
        }
        Pointwise::Clip | Pointwise::Binary(_) => None,
    }
}

/// The sum or the product of a value and another one, as a tail of whoever computes the value.
fn with_other(
    program: &Program,
    op: Binary,
    value: Slot,
    other: Slot,
) -> Option<(Tail, Option<Slot>)> {
    let (shape, other_shape) = (program.shape(value)?, program.shape(other)?);
    if same_shape(shape, other_shape) {
        let tail = match op {
            Binary::Add => Tail::Residual,
            _ => Tail::Factor,
        };
        return Some((tail, Some(other)));
    }
    if other_shape.len() > shape.len() {
        return None;
    }
    if op == Binary::Mul {
        let constant = program.constant(other);
        let scale = constant.filter(|scale| scale.len() == 1)?;
        return Some((Tail::Scale(*scale.to_vec::<f32>().ok()?.first()?), None));
    }
    let (last, leading) = other_shape.split_last()?;
    let is_vector =
        last.surely_equals(shape.last()?) && leading.iter().all(|dim| dim.known() == Some(1));
    is_vector.then_some((Tail::Bias, Some(other)))
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

/// The limits of a `Clip`, those left out included, if all are known.
pub(crate) fn clip_limits<T: Number + Element>(program: &Program, step: &Step) -> Option<[T; 2]> {
    let limit = |index: usize, absent: T| match step.inputs.get(index).copied().flatten() {
        None => Some(absent),
        Some(slot) => program.constant(slot)?.item::<T>().ok(),
    };
    Some([limit(1, T::LOWEST)?, limit(2, T::HIGHEST)?])
}

/// Whether two shapes are the same for all sizes of the inputs.
pub(crate) fn same_shape(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.surely_equals(b))
}

/// By slot: the steps that read it, once for each input, and once a number beyond all for an output
/// of the model.
pub(crate) struct Readers(Vec<SmallVec<[usize; 2]>>);

impl Readers {
    pub(crate) fn of(&self, slot: Slot) -> &[usize] {
        &self.0[slot.index()]
    }
}

/// See [`Readers`].
pub(crate) fn readers(program: &Program) -> Readers {
    let mut readers = vec![SmallVec::new(); program.slots.len()];
    for (index, step) in program.steps.iter().enumerate() {
        for slot in step.inputs.iter().flatten() {
            readers[slot.index()].push(index);
        }
    }
    for slot in &program.outputs {
        readers[slot.index()].push(usize::MAX);
    }
    Readers(readers)
}
