//! Gate fusion: computes the product of an image with a number for each channel inside the
//! pointwise convolution that is its only reader.
//!
//! Squeeze and excitation ends with such a product: numbers computed from the means of the channels
//! weigh them. As a step it reads and writes the image and computes hardly anything. The
//! convolution multiplies the pixels when it copies them for its tiles (see
//! [`GatedConv`](sardonyx_kernels::conv::GatedConv)).
//!
//! This runs after [orders](super::orders), as pixels are read with channels last, and after
//! [expansion](super::expansion), which gains more from a pointwise convolution.

use sardonyx_kernels::elementwise::Binary;
use sardonyx_tensor::DataType;

use super::{Note, Readers, put_steps, take_steps};
use crate::program::{Conv, Link, Op, Order, Program, Slot, Step, same_shape};

/// Fuses products into the pointwise convolutions that read them.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    let readers = Readers::new(program);
    let mut steps = take_steps(program);
    for index in 0..steps.len() {
        let found = steps[index].as_ref().and_then(|step| product(program, step));
        let Some((result, image, gate)) = found else { continue };
        // An output of the graph has a reader beyond all steps.
        let &[reader] = readers.readers(result) else { continue };
        let reader = reader as usize;
        let Some(Some(step)) = steps.get(reader) else { continue };
        let takes = matches!(&step.op, Op::Conv(conv) if takes_gate(program, conv, result));
        if !takes {
            continue;
        }
        let (Some(first), Some(second)) = (steps[index].take(), steps[reader].as_mut()) else {
            continue;
        };
        notes.push(Note::fused(second, &first));
        second.origins.extend(first.origins);
        if let Op::Conv(conv) = &mut second.op {
            (conv.x, conv.gate) = (image, Some(gate));
        }
    }
    put_steps(program, steps);
    notes
}

/// Returns the result, the image and the gate of a step that multiplies channels.
fn product(program: &Program, step: &Step) -> Option<(Slot, Slot, Slot)> {
    let (Op::Pointwise(pointwise), &[Some(result)]) = (&step.op, &step.outputs[..]) else {
        return None;
    };
    let is_product = matches!(&pointwise.links[..], [Link::Binary { op: Binary::Mul, .. }]);
    let &[a, b] = &pointwise.operands[..] else { return None };
    if pointwise.elem != DataType::Float || !is_product {
        return None;
    }
    let whole = program.shape(result)?;
    let has_last = |slot: Slot| program.value(slot).order == Order::ChannelsLast;
    let is_image =
        |slot: Slot| has_last(slot) && program.shape(slot).is_some_and(|x| same_shape(x, whole));
    // A number for each channel is in rows; other sizes would broadcast.
    let is_gate = |slot: Slot| {
        program.value(slot).order == Order::Rows
            && program.shape(slot).is_some_and(|gate| {
                let mut leading = gate.iter().zip(whole.iter()).take(2);
                gate.len() == whole.len()
                    && leading.all(|(a, b)| a.surely_equals(b))
                    && gate.iter().skip(2).all(|size| size.known() == Some(1))
            })
    };
    [(a, b), (b, a)]
        .into_iter()
        .find(|&(image, gate)| is_image(image) && is_gate(gate) && has_last(result))
        .map(|(image, gate)| (result, image, gate))
}

/// Whether a convolution can multiply its input `x` as it reads it.
fn takes_gate(program: &Program, conv: &Conv, x: Slot) -> bool {
    let is_pointwise = conv.window.fixed().is_some_and(|window| {
        let ones = |sizes: &[usize]| sizes.iter().all(|size| *size == 1);
        let is_unpadded = window
            .fixed_pads()
            .is_some_and(|(begin, end)| begin.iter().chain(&end).all(|pad| *pad == 0));
        ones(&window.kernel) && ones(&window.strides) && is_unpadded
    });
    // A convolution of one channel to one runs like a depthwise one, without a gate.
    let channels = program.shape(x).and_then(|shape| shape.get(1)?.known());
    conv.x == x
        && is_pointwise
        && conv.takes_stages()
        && conv.group == 1
        && conv.expansion.is_none()
        && conv.gate.is_none()
        && channels.is_some_and(|channels| channels > 1)
}
