//! Assignment of registers for loops whose graph is one step of scalar functions.

use sardonyx_passes::Inference;
use sardonyx_tensor::{DataType, Dims};

use crate::executable::{Body, SlotInfo, Step};
use crate::program::{RegionKind, Slot, single};
use crate::registers::{CarriedScalar, Made, ScalarCode, ScalarIterations, has_registers, word_of};

/// Assigns the registers of a loop, if its graph is one step of scalar functions, and all carried
/// and stacked values are single elements.
pub(crate) fn assign_registers(
    kind: &RegionKind,
    body: &Body,
    inference: &Inference,
) -> Option<ScalarIterations> {
    let (RegionKind::Loop { carried, .. }, [step]) = (kind, &body.steps[..]) else {
        return None;
    };
    let mut finding =
        Finding { body, inference, step, code: step.scalars()?, more: 0, constants: Vec::new() };
    let mut inputs = Vec::with_capacity(body.inputs.len());
    for (index, slot) in body.inputs.iter().enumerate() {
        // A carried value has a register even if the graph does not read it.
        let is_carried = (2..2 + carried.len()).contains(&index);
        inputs.push(finding.input(*slot, is_carried));
    }
    let own = kind.input_count();
    let mut captured = Vec::new();
    for (index, slot) in body.inputs.iter().enumerate().skip(own) {
        if let (Some(slot), Some(register)) = (slot, inputs[index]) {
            captured.push((index, register, finding.single(*slot)?.0));
        }
    }
    let goes_on = finding.output(body.outputs[0], &inputs)?;
    if goes_on.elem != DataType::Bool {
        return None;
    }
    let mut moving = Vec::with_capacity(carried.len());
    for index in 0..carried.len() {
        let (slot, made) =
            (body.inputs[2 + index], finding.output(body.outputs[1 + index], &inputs)?);
        let read = inputs[2 + index]?;
        if let Some(slot) = slot {
            let (elem, dims) = finding.single(slot)?;
            if elem != made.elem || dims != made.dims {
                return None;
            }
        }
        moving.push(CarriedScalar { read, made: made.register, elem: made.elem, dims: made.dims });
    }
    let stacked = body.outputs[1 + carried.len()..].iter();
    let stacked = stacked.map(|slot| finding.output(*slot, &inputs)).collect::<Option<_>>()?;
    Some(ScalarIterations {
        more: finding.more,
        number: inputs[0],
        is_on: inputs[1],
        goes_on: goes_on.register,
        carried: moving,
        stacked,
        captured,
        constants: finding.constants,
    })
}

/// State of the assignment.
struct Finding<'b> {
    body: &'b Body,
    inference: &'b Inference,
    step: &'b Step,
    code: &'b ScalarCode,
    more: usize,
    constants: Vec<(u32, u64)>,
}

impl Finding<'_> {
    /// Returns the register in which the code reads a slot.
    fn read(&self, slot: Slot) -> Option<u32> {
        let position = self.step.inputs.iter().position(|read| *read == Some(slot))?;
        Some(position as u32)
    }

    fn another(&mut self) -> u32 {
        self.more += 1;
        (self.code.types().len() + self.more - 1) as u32
    }

    /// Returns the register of an input of the graph.
    fn input(&mut self, slot: Option<Slot>, is_carried: bool) -> Option<u32> {
        let is_given = slot.is_some_and(|slot| self.body.outputs.contains(&slot));
        let read = slot.and_then(|slot| self.read(slot));
        read.or_else(|| (is_carried || is_given).then(|| self.another()))
    }

    /// Returns type and dimensions of a slot of one element.
    fn single(&self, slot: Slot) -> Option<(DataType, Dims)> {
        let (elem, rank) = single(self.inference.ty(self.slot(slot).value)?)?;
        has_registers(elem).then(|| (elem, Dims::from_elem(1, rank)))
    }

    fn slot(&self, slot: Slot) -> &SlotInfo {
        &self.body.slots[slot.index()]
    }

    /// Returns the register of an output of the graph.
    fn output(&mut self, slot: Slot, inputs: &[Option<u32>]) -> Option<Made> {
        let is = |other: &Option<Slot>| *other == Some(slot);
        if let Some(at) = self.step.outputs.iter().position(is) {
            return self.code.outputs().get(at).cloned();
        }
        let (elem, dims) = self.single(slot)?;
        if let Some(at) = self.body.inputs.iter().position(is) {
            return Some(Made { register: inputs[at]?, elem, dims });
        }
        let word = word_of(&self.slot(slot).constant.as_ref()?.view(), elem).ok()?;
        let register = self.another();
        self.constants.push((register, word));
        Some(Made { register, elem, dims })
    }
}
