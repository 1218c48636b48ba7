//! Chains: functions of elements that follow each other become one step, which passes over memory
//! once.
//!
//! `Add -> Gelu -> Mul` reads and writes its value three times when each is a step of its own. A
//! step joins the one before it if it is the sole reader of its result, nothing else wants that,
//! and the result keeps its shape and type to the end of the chain. What else the steps read may
//! stretch to that shape. The chain stands where its last step stood, where everything that it
//! reads exists. Products and convolutions have taken over their [tails](crate::tails) before.

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{BinaryElement, MAX_LINKS, MAX_RANK, Side, UnaryElement};
use sardonyx_model::Shape;
use sardonyx_tensor::Element;
use smallvec::SmallVec;

use crate::compile::{Program, Slot, Step, Work};
use crate::kernel::{Kernel, Pointwise};
use crate::ops::{Chain, Link};
use crate::tails::{Readers, clip_limits, readers, same_shape};

/// The most inputs of a chain. Each that does not stretch is one more stream from memory, and lies
/// in the first cache together with the output; its sets hold about as many lines.
const MAX_INPUTS: usize = 8;

/// Makes one step of each chain. Says what was joined: the first node of a chain, then another.
pub(crate) fn join_chains(program: &mut Program) -> Vec<(Work, Work)> {
    let mut joined = Vec::new();
    let readers = readers(program);
    let steps = std::mem::take(&mut program.steps);
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    for index in 0..steps.len() {
        let Some(found) = chain_from(program, &steps, &readers, index) else {
            continue;
        };
        let Some(mut chain) = steps[index].take() else {
            continue;
        };
        let first = chain.work.clone();
        let mut last = index;
        for member in found.members {
            let Some(step) = steps[member].take() else {
                continue;
            };
            joined.push((first.clone(), step.work));
            chain.work.with.push(step.op);
            chain.outputs = step.outputs;
            last = member;
        }
        chain.kernel = found.kernel;
        chain.inputs = found.inputs.into_iter().map(Some).collect();
        steps[last] = Some(chain);
    }
    program.steps.reserve_exact(steps.len());
    program.steps.extend(steps.into_iter().flatten());
    joined
}

/// What a step begins.
struct Found {
    /// The steps behind it, in order, at least one.
    members: SmallVec<[usize; MAX_LINKS]>,
    kernel: Box<dyn Kernel>,
    inputs: SmallVec<[Slot; MAX_INPUTS]>,
}

/// The longest chain that begins with a step.
fn chain_from(
    program: &Program,
    steps: &[Option<Step>],
    readers: &Readers,
    index: usize,
) -> Option<Found> {
    let first = steps[index].as_ref()?;
    first.kernel.pointwise()?;
    let elem = program.elem(first.outputs.first().copied()??)?;
    macro_rules! of_type {
        ($($T:ty),*) => {
            match elem {
                $(<$T>::DATA_TYPE => follow::<$T>(program, steps, readers, index),)*
                _ => None,
            }
        };
    }
    of_type!(f32, f64, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64)
}

/// See [`chain_from`]; `T` is the type of all elements.
fn follow<T: Loops + UnaryElement + BinaryElement + Element>(
    program: &Program,
    steps: &[Option<Step>],
    readers: &Readers,
    index: usize,
) -> Option<Found> {
    let first = steps[index].as_ref()?;
    let (mut value, shape) = result::<T>(program, first)?;
    if shape.len() > MAX_RANK {
        return None;
    }
    let start = first.inputs.first().copied()??;
    let (link, other) = link_of::<T>(program, first, start, 1)?;
    // A slot that several links read is there several times: then nobody may write over it.
    let mut inputs: SmallVec<[Slot; MAX_INPUTS]> = [start].into_iter().chain(other).collect();
    let mut links = vec![link];
    let mut members = SmallVec::new();
    let next = |value: Slot, position: usize| {
        // Outputs of the model have a reader that is no step.
        let [at] = *readers.of(value) else {
            return None;
        };
        let step = steps.get(at)?.as_ref()?;
        let (made, made_shape) = result::<T>(program, step)?;
        let (link, other) = link_of::<T>(program, step, value, position)?;
        same_shape(shape, made_shape).then_some((at, made, link, other))
    };
    while let Some((at, made, link, other)) = next(value, inputs.len())
        && links.len() < MAX_LINKS
        && inputs.len() + usize::from(other.is_some()) <= MAX_INPUTS
    {
        members.push(at);
        links.push(link);
        inputs.extend(other);
        value = made;
    }
    (!members.is_empty()).then(|| Found { members, kernel: Box::new(Chain::new(links)), inputs })
}

/// The only output of a step, and its shape, if the elements have that type.
fn result<'p, T: Element>(program: &'p Program, step: &Step) -> Option<(Slot, &'p Shape)> {
    let &[Some(slot)] = &step.outputs[..] else {
        return None;
    };
    let is_wanted = program.elem(slot) == Some(T::DATA_TYPE);
    Some((slot, program.shape(slot).filter(|_| is_wanted)?))
}

/// What a step does with `value`, as a link of a chain, and what else it reads: that becomes the
/// input at `position`.
fn link_of<T: Loops + Element>(
    program: &Program,
    step: &Step,
    value: Slot,
    position: usize,
) -> Option<(Link<T>, Option<Slot>)> {
    match step.kernel.pointwise()? {
        Pointwise::Unary(op) => Some((Link::Unary(op), None)),
        Pointwise::Clip if step.inputs.first() == Some(&Some(value)) => {
            let [low, high] = clip_limits::<T>(program, step)?;
            Some((Link::Clip { low, high }, None))
        }
        Pointwise::Clip => None,
        Pointwise::Binary(op) => {
            let &[Some(a), Some(b)] = &step.inputs[..] else {
                return None;
            };
            let (side, other) = if a == value { (Side::Left, b) } else { (Side::Right, a) };
            let link = Link::Binary { op, side, other: position };
            Some((link, Some(other)))
        }
    }
}
