//! From a program to what runs: a kernel for each step, with constants packed.
//!
//! This is the last decision, so weights are packed once, in the form that the step wants in the
//! end. Constants that the file does not store are computed one after the other when a kernel packs
//! them, and dropped as soon as nothing else wants them.

use hashbrown::HashSet;

use sardonyx_model::{Id, ValueId};
use sardonyx_passes::Finding;
use smallvec::SmallVec;

use crate::constants::Constants;
use crate::error::{BindError, CompileError};
use crate::executable::{Body, SlotInfo, Step};
use crate::kernel::Selected;
use crate::lower::Lowering;
use crate::make::Maker;
use crate::program::{self, Constant, Op, Program, Slot};
use crate::report::CompileReport;
use crate::unsupported::Unsupported;

/// Chooses the kernels.
///
/// # Errors
///
/// All operators that cannot run, or a constant for which there is no memory.
pub(crate) fn select(
    lowering: &Lowering<'_>,
    maker: &Maker<'_>,
    mut constants: Constants,
    program: Program,
    report: &mut CompileReport,
) -> Result<Body, CompileError> {
    let model = lowering.resolved.model();
    let looks = lowering.weights.looks();
    let account = lowering.weights.account;
    let Program { values, steps, inputs, outputs } = program;

    // By value of the model: how many operands and outputs still want it.
    let mut readers = vec![0u32; model.value_count()];
    let operands: Vec<SmallVec<[ValueId; 6]>> = steps
        .iter()
        .map(|step| {
            let slots = step.op.operands().into_iter().flatten();
            slots.map(|slot| values[slot.index()].value).collect()
        })
        .collect();
    let read = operands.iter().flatten().copied();
    for value in read.chain(outputs.iter().map(|slot| values[slot.index()].value)) {
        readers[value.index()] += 1;
    }
    // A step that computes a fill runs if the fill is neither packed everywhere nor kept.
    let is_fill = |step: &program::Step| {
        let output = step.outputs.first().copied().flatten();
        output.is_some_and(|slot| matches!(values[slot.index()].constant, Some(Constant::Fill(_))))
    };
    let wanting = steps.iter().zip(&operands).filter(|(step, _)| !is_fill(step));
    constants.count_wanted(lowering.resolved, wanting.map(|(_, values)| values), &mut readers);

    let mut selecting = Selecting {
        lowering,
        values: values.iter().map(|value| value.value).collect(),
        is_used: vec![false; model.value_count()],
        constants: &mut constants,
        readers,
        steps: Vec::with_capacity(steps.len()),
        unsupported: Unsupported::new(model),
        packed: (0, 0),
    };
    let steps = steps.into_iter().zip(operands).enumerate();
    let (fills, steps): (Vec<_>, Vec<_>) = steps.partition(|(_, (step, _))| is_fill(step));
    for (position, (step, operands)) in steps {
        if !looks {
            maker.make_for(selecting.constants, &operands)?;
        }
        selecting.step(position, step)?;
        let Selecting { constants, is_used, .. } = &mut selecting;
        constants.done_with(&operands, account, |value| is_used[value.index()]);
    }
    for slot in &outputs {
        selecting.is_used[values[slot.index()].value.index()] = true;
    }
    // Kernels have packed what they could; what they have not is kept as a constant, or computed in
    // each run.
    let mut computed: HashSet<Slot> = HashSet::new();
    for (position, (step, _)) in fills.into_iter().rev() {
        let Some(slot) = step.outputs.first().copied().flatten() else { continue };
        let value = values[slot.index()].value;
        if selecting.is_used[value.index()] && !selecting.constants.may_keep_fill(value, account) {
            computed.insert(slot);
            selecting.step(position, step)?;
        }
    }
    let Selecting { mut steps, unsupported, is_used, packed, .. } = selecting;
    (report.packed, report.packed_bytes) = packed;
    if !unsupported.is_empty() {
        return Err(CompileError::Unsupported(unsupported.into_sorted()));
    }
    steps.sort_by_key(|(position, _)| *position);
    let mut steps: Vec<Step> = steps.into_iter().map(|(_, step)| step).collect();
    let numbered = || (0..values.len()).map(|index| Slot(index as u32)).zip(&values);
    let kept = numbered().filter(|(slot, value)| {
        is_used[value.value.index()] && constants.contains(value.value) && !computed.contains(slot)
    });
    let kept: Vec<usize> = kept.map(|(_, value)| constants.bytes_of(value.value)).collect();
    (report.kept, report.kept_bytes) = (kept.len(), kept.iter().sum());
    let uses = remove_dead(&mut steps, values.len(), &outputs);
    let all = numbered().zip(&uses);
    let used = all.filter(|((slot, _), used)| **used != Used::Not && !computed.contains(slot));
    let used: HashSet<ValueId> = used.map(|((_, value), _)| value.value).collect();
    if !looks {
        for value in values.iter().filter(|value| used.contains(&value.value)) {
            maker.make(&mut constants, value.value)?;
        }
    }
    constants.settle(account, |value| used.contains(&value));
    let slots = values
        .into_iter()
        .zip(uses)
        .map(|(value, how)| {
            let value = value.value;
            let is_constant = used.contains(&value) && constants.contains(value);
            let outline = constants.outline(value).filter(|_| is_constant && looks);
            let outline = outline.map(|(data_type, dims)| (data_type, dims.into()));
            let constant = match how {
                _ if !is_constant => Ok(None),
                // Kernels read slices; bytes of a file may lie anywhere.
                Used::AsElements if !looks => {
                    constants.take(value).map(|tensor| tensor.aligned()).transpose()
                }
                _ => Ok(constants.take(value)),
            };
            constant
                .map(|constant| SlotInfo { value, constant, outline })
                .map_err(|e| CompileError::Resources(e.to_string()))
        })
        .collect::<Result<_, _>>()?;
    Ok(Body { slots, steps, inputs, outputs })
}

/// What [`select`] works on.
struct Selecting<'a, 'm> {
    lowering: &'a Lowering<'m>,
    /// By slot.
    values: Vec<ValueId>,
    /// By value of the model: whether a kernel reads it as it is, or it is an output.
    is_used: Vec<bool>,
    constants: &'a mut Constants,
    /// By value of the model.
    readers: Vec<u32>,
    /// With their places among all steps.
    steps: Vec<(usize, Step)>,
    unsupported: Unsupported<'m>,
    /// How many constants kernels have packed, and their bytes.
    packed: (usize, usize),
}

impl Selecting<'_, '_> {
    fn step(&mut self, position: usize, step: program::Step) -> Result<(), CompileError> {
        let resolved = self.lowering.resolved;
        let node = step.origins[0];
        let slots = step.op.operands();
        let values = &self.values;
        let read = slots.iter().map(|slot| slot.map(|slot| (slot, values[slot.index()])));
        let selected = self.lowering.kernel_of(node, &step.op, read.collect(), self.constants);
        let Selected { kernel, packed } = match selected {
            Ok(selected) => selected,
            Err(BindError::Unsupported(why)) => {
                self.unsupported.add(node, 1, why);
                return Ok(());
            }
            Err(BindError::Invalid(fact)) => {
                let spot = sardonyx_passes::Spot::node(node);
                let code = &sardonyx_passes::check::codes::MALFORMED_NODE;
                let finding = Finding::new(resolved.model(), code, spot, fact);
                return Err(CompileError::Invalid(vec![finding]));
            }
        };
        let mut inputs = slots;
        let mut packed_slots = SmallVec::new();
        for (index, input) in inputs.iter_mut().enumerate() {
            let Some(slot) = *input else { continue };
            let value = self.values[slot.index()];
            if !packed.contains(&index) {
                self.is_used[value.index()] = true;
                continue;
            }
            *input = None;
            packed_slots.push((index, slot));
            self.packed.0 += 1;
            self.packed.1 += self.constants.bytes_of(value);
            // The packed form is all that is needed; the original may go as soon as nothing else
            // wants it.
            let left = &mut self.readers[value.index()];
            *left = left.saturating_sub(1);
            if *left == 0 && !self.constants.is_made(value) {
                self.constants.take(value);
            }
        }
        let movement = match step.op {
            Op::Move(moved) => Some(moved.kind),
            _ => None,
        };
        let selected = Step {
            rules: kernel.memory(),
            kernel,
            movement,
            inputs,
            packed: packed_slots,
            outputs: step.outputs,
            origins: step.origins,
        };
        self.steps.push((position, selected));
        Ok(())
    }
}

/// How steps read a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Used {
    Not,
    /// At any address.
    AsBytes,
    AsElements,
}

/// Takes out steps whose results nothing reads, now that kernels have packed what they need, and
/// says how slots are read.
fn remove_dead(steps: &mut Vec<Step>, count: usize, outputs: &[Slot]) -> Vec<Used> {
    let mut used = vec![Used::Not; count];
    for slot in outputs {
        used[slot.index()] = Used::AsElements;
    }
    let mut needed = vec![false; steps.len()];
    for (index, step) in steps.iter().enumerate().rev() {
        let mut made = step.outputs.iter().flatten();
        needed[index] = made.any(|slot| used[slot.index()] != Used::Not);
        if !needed[index] {
            continue;
        }
        for (position, slot) in step.inputs.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let how = if step.rules.unaligned.contains(position) {
                Used::AsBytes
            } else {
                Used::AsElements
            };
            used[slot.index()] = used[slot.index()].max(how);
        }
    }
    let mut needed = needed.into_iter();
    steps.retain(|_| needed.next().unwrap_or(true));
    used
}
