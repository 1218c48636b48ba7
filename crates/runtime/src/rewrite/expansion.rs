//! Expansion fusion: computes a pointwise convolution inside the depthwise one that is its only
//! reader.
//!
//! Inverted residual blocks multiply the channels of an image by up to six, convolve each of them
//! and reduce their number again. The result of the first convolution is the largest value of the
//! block, and has no other reader. As one step, a band of its rows is computed into memory that
//! stays in the second-level cache, and consumed right after (see
//! [`ExpandedConv`](sardonyx_kernels::conv::ExpandedConv)).
//!
//! This runs after [orders](super::orders), as both must have channels last.

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{Conv, Op, Order, Program, Slot, Stage, Step, Window};

/// Choice: floats of the intermediate image from which bands are faster: smaller ones stay in the
/// second-level cache anyway. Constant, as the program of a model must not depend on the machine.
const LEAST_FLOATS: i64 = 96 * 1024;
/// Choice: floats of weights of the first convolution, which each band reads.
const MOST_WEIGHTS: i64 = 64 * 1024;
/// Choice: floats of a row of the intermediate image, so that a band has several rows.
const LONGEST_ROW: i64 = 24 * 1024;
/// Choice: rows of a kernel, so that a band has few more rows than needed.
const MOST_TAPS: usize = 7;
/// Choice: assumed size of an unknown axis of an image.
const NOMINAL: i64 = 128;

/// Fuses pointwise convolutions into the depthwise ones that read them.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let readers = Readers::new(program);
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        let Some(between) = steps[index].as_ref().and_then(|step| expands(program, step)) else {
            continue;
        };
        // An output of the graph has a reader beyond all steps.
        let &[reader] = readers.readers(between) else { continue };
        let Some(Some(step)) = steps.get(reader as usize) else { continue };
        if !is_depthwise_of(program, step, between) {
            continue;
        }
        let (Some(first), Some(second)) = (steps[index].take(), steps[reader as usize].as_mut())
        else {
            continue;
        };
        notes.push(Note::fused(second, &first));
        second.origins.extend(first.origins);
        if let (Op::Conv(conv), Op::Conv(first)) = (&mut second.op, first.op) {
            conv.expansion = Some(first);
        }
    }
    put_steps(program, steps);
    notes
}

/// Returns the result of a step, if it is a pointwise convolution that can be computed in bands and
/// gains from it.
fn expands(program: &Program, step: &Step) -> Option<Slot> {
    let (Op::Conv(conv), &[Some(result)]) = (&step.op, &step.outputs[..]) else {
        return None;
    };
    let window = conv.window.fixed()?;
    let (begin, end) = window.fixed_pads()?;
    let is_pointwise = window.kernel[..] == [1, 1]
        && window.strides[..] == [1, 1]
        && begin.iter().chain(&end).all(|pad| *pad == 0);
    let has_last = |slot: Slot| program.value(slot).order == Order::ChannelsLast;
    let may = is_pointwise
        && conv.group == 1
        && conv.expansion.is_none()
        && has_constant_operands(program, conv)
        && has_last(conv.x)
        && has_last(result);
    let sizes = program.shape(result)?.iter().skip(1);
    let sizes = sizes.map(|dim| dim.known().unwrap_or(NOMINAL).max(1));
    let sizes: Vec<i64> = sizes.collect();
    let [channels, height, width] = sizes[..] else { return None };
    let row = width.saturating_mul(channels);
    let weights = program.shape(conv.x)?.get(1)?.known()?.saturating_mul(channels);
    let pays =
        row.saturating_mul(height) >= LEAST_FLOATS && row <= LONGEST_ROW && weights <= MOST_WEIGHTS;
    (may && pays).then_some(result)
}

/// Whether all operands of a convolution besides its input are constant.
fn has_constant_operands(program: &Program, conv: &Conv) -> bool {
    let is_constant = |stage: &Stage| match stage {
        Stage::Scale { by, .. } | Stage::Bias { by, .. } => program.are_constant(by),
        Stage::Activation(_) => true,
        Stage::Add(_) | Stage::Mul(_) => false,
    };
    conv.takes_stages()
        && program.is_constant(conv.weights)
        && conv.bias.is_none_or(|bias| program.is_constant(bias))
        && conv.epilogue.0.iter().all(is_constant)
}

/// Whether a step is a depthwise convolution inside of which its input can be computed.
fn is_depthwise_of(program: &Program, step: &Step, x: Slot) -> bool {
    let (Op::Conv(conv), &[Some(result)]) = (&step.op, &step.outputs[..]) else {
        return false;
    };
    let size = |slot: Slot, axis: usize| program.shape(slot)?.get(axis)?.known();
    let channels = i64::try_from(conv.group).ok().filter(|group| *group > 1);
    let is_small = |window: &Window| {
        window.kernel.len() == 2 && window.kernel[0] <= MOST_TAPS && window.fixed_pads().is_some()
    };
    conv.x == x
        && conv.expansion.is_none()
        && conv.takes_stages()
        && conv.window.fixed().is_some_and(is_small)
        && program.is_constant(conv.weights)
        && channels.is_some()
        && channels == size(x, 1)
        && channels == size(conv.weights, 0)
        && program.value(result).order == Order::ChannelsLast
}
