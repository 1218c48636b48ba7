//! From a program to what runs: a kernel for each step, with constants packed.
//!
//! This is the last decision, so weights are packed once, in the form that the step wants in the
//! end. Constants that the file does not store are computed one after the other when a kernel packs
//! them, and dropped as soon as nothing else wants them.

use hashbrown::{HashMap, HashSet};

use sardonyx_model::{Id, ValueId};
use sardonyx_tensor::{Buffer, Tensor, TensorError};
use smallvec::SmallVec;

use crate::constants::Constants;
use crate::error::{BindError, CompileError};
use crate::executable::{Body, Capture, Commit, Region, SlotInfo, Step, Work};
use crate::kernel::{Inputs, MemoryRules, Selected, SiteOrders};
use crate::lower::{Lowering, refuse_node};
use crate::make::Maker;
use crate::program::{self, Constant, Op, Order, Program, RegionKind, Slot, Value};
use crate::report::CompileReport;
use crate::scalar_iterations::assign_registers;
use crate::sizes::elem_and_dims;
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
    keeps_mapped: bool,
    report: &mut CompileReport,
) -> Result<Body, CompileError> {
    let model = lowering.resolved.model();
    let account = lowering.weights.account;
    // By value of the model: how many operands and outputs still want it.
    let mut readers = vec![0u32; model.value_count()];
    let mut wanting: Vec<SmallVec<[ValueId; 6]>> = Vec::new();
    for program in program.tree() {
        for step in &program.steps {
            let values = values_of(&program.values, step);
            values.iter().for_each(|value| readers[value.index()] += 1);
            if !is_fill(&program.values, step) {
                wanting.push(values);
            }
        }
        for slot in &program.outputs {
            readers[program.value(*slot).value.index()] += 1;
        }
    }
    constants.count_wanted(lowering.resolved, wanting.iter(), &mut readers);

    let mut selecting = Selecting {
        lowering,
        maker,
        keeps_mapped,
        is_used: vec![false; model.value_count()],
        constants: &mut constants,
        readers,
        unsupported: Unsupported::new(model),
        packed: HashMap::new(),
        kept: HashSet::new(),
        used: HashSet::new(),
    };
    let mut body = selecting.program(program)?;
    let Selecting { unsupported, packed, kept, used, .. } = selecting;
    if !unsupported.is_empty() {
        return Err(CompileError::Unsupported(unsupported.into_sorted()));
    }
    (report.packed, report.packed_bytes) = (packed.len(), packed.values().sum());
    let bytes = kept.iter().map(|value| constants.bytes_of(*value));
    (report.kept, report.kept_bytes) = (kept.len(), bytes.sum());
    constants.settle(account, |value| used.contains(&value));
    body.number(&mut 0);
    Ok(body)
}

fn no_memory(error: TensorError) -> CompileError {
    CompileError::Resources(error.to_string())
}

/// The values that a step reads.
fn values_of(values: &[Value], step: &program::Step) -> SmallVec<[ValueId; 6]> {
    let mut read = SmallVec::new();
    step.op.visit_operands(|slot| read.extend(slot.map(|slot| values[slot.index()].value)));
    read
}

/// Whether a step computes a fill. It runs if the fill is neither packed everywhere nor kept.
fn is_fill(values: &[Value], step: &program::Step) -> bool {
    let output = step.outputs.first().copied().flatten();
    output.is_some_and(|slot| matches!(values[slot.index()].constant, Some(Constant::Fill(_))))
}

/// What [`select`] works on.
struct Selecting<'a, 'm> {
    lowering: &'a Lowering<'m>,
    maker: &'a Maker<'a>,
    /// Whether constants stay in mapped files.
    keeps_mapped: bool,
    /// By value of the model: whether a kernel reads it as it is, or it is an output.
    is_used: Vec<bool>,
    constants: &'a mut Constants,
    /// By value of the model.
    readers: Vec<u32>,
    unsupported: Unsupported<'m>,
    /// The bytes of constants that kernels have packed. Those of one form share it.
    packed: HashMap<ValueId, usize>,
    /// Constants that kernels read as they are.
    kept: HashSet<ValueId>,
    /// Those of them that steps read that are left in the end.
    used: HashSet<ValueId>,
}

impl Selecting<'_, '_> {
    /// A constant as a slot holds it. Kernels read slices, and bytes of a file may lie anywhere.
    fn kept(&mut self, id: ValueId, how: Used) -> Result<Option<Box<Tensor>>, CompileError> {
        let looks = self.lowering.weights.looks();
        if !looks && !self.keeps_mapped {
            self.constants.leave_file(id).map_err(no_memory)?;
        }
        let constant = match how {
            Used::AsElements if !looks => self.constants.get_aligned(id).map_err(no_memory)?,
            _ => self.constants.get(id),
        };
        // What is only looked at has an outline, which needs no file.
        let is_left = |tensor: &&Tensor| looks && tensor.buffer().is_some_and(Buffer::is_mapped);
        Ok(constant.filter(|tensor| !is_left(tensor)).cloned().map(Box::new))
    }

    /// The steps of a program, and the constants that they read.
    fn program(&mut self, program: Program) -> Result<Body, CompileError> {
        let Program { values, steps, inputs, outputs, kept, commit, graph, .. } = program;
        let looks = self.lowering.weights.looks();
        let account = self.lowering.weights.account;
        let mut selected: Vec<Step> = Vec::with_capacity(steps.len());
        let mut fills = Vec::new();
        for step in steps {
            if is_fill(&values, &step) {
                fills.push((selected.len(), step));
                continue;
            }
            let operands = values_of(&values, &step);
            if !looks {
                self.maker.make_for(self.constants, &operands)?;
            }
            selected.extend(self.step(&values, step)?);
            let Selecting { constants, is_used, .. } = self;
            constants.release(&operands, account, |value| is_used[value.index()]);
        }
        for slot in &outputs {
            self.is_used[values[slot.index()].value.index()] = true;
        }
        // Kernels have packed what they could; what they have not is kept as a constant, or
        // computed in each run.
        let mut computed: HashSet<Slot> = HashSet::new();
        let mut late: Vec<(usize, Step)> = Vec::new();
        for (position, step) in fills.into_iter().rev() {
            let Some(slot) = step.outputs.first().copied().flatten() else { continue };
            let value = values[slot.index()].value;
            if self.is_used[value.index()] && !self.constants.may_keep_fill(value, account) {
                computed.insert(slot);
                late.extend(self.step(&values, step)?.map(|step| (position, step)));
            }
        }
        let mut steps = with_late(selected, late);
        let uses = remove_dead(&mut steps, values.len(), &outputs);
        let mut slots = Vec::with_capacity(values.len());
        // What cannot run is told of without making anything.
        let makes = !looks && self.unsupported.is_empty();
        for (index, (value, how)) in values.iter().zip(uses).enumerate() {
            let (id, order) = (value.value, value.order);
            let is_computed = computed.contains(&Slot(index as u32));
            let is_constant = value.constant.is_some() && !is_computed;
            let is_constant = is_constant && self.constants.contains(id);
            if is_constant && self.is_used[id.index()] {
                self.kept.insert(id);
            }
            if how == Used::Not || !is_constant {
                slots.push(SlotInfo { value: id, constant: None, outline: None, order });
                continue;
            }
            self.used.insert(id);
            if makes {
                self.maker.make(self.constants, id)?;
            }
            let outline = self.constants.outline(id).filter(|_| looks);
            let outline = outline.map(|(data_type, dims)| Box::new((data_type, dims.into())));
            let constant = self.kept(id, how)?;
            slots.push(SlotInfo { value: id, constant, outline, order });
        }
        let commit = commit.map(|commit| self.commit(*commit).map(Box::new)).transpose()?;
        Ok(Body { slots, steps, inputs, outputs, kept, commit, graph })
    }

    /// Selects the steps of a commit program.
    fn commit(&mut self, commit: program::Commit) -> Result<Commit, CompileError> {
        let captures = commit.captures.iter().zip(&commit.program.values);
        let captures = captures.filter_map(|(output, value)| {
            let (elem, dims) = elem_and_dims(value.ty.as_ref()?)?;
            Some(Capture { output: *output, elem, dims })
        });
        let captures = captures.collect();
        Ok(Commit { body: self.program(commit.program)?, captures, outputs: commit.outputs })
    }

    /// What runs for a step; `None` if nothing can.
    fn step(
        &mut self,
        values: &[Value],
        step: program::Step,
    ) -> Result<Option<Step>, CompileError> {
        let resolved = self.lowering.resolved;
        let node = step.origins[0];
        let mut inputs = step.op.operands();
        if let Op::Region(region) = step.op {
            for slot in inputs.iter().flatten() {
                self.is_used[values[slot.index()].value.index()] = true;
            }
            let first = region.kind.first_carried();
            // What is carried moves from iteration to iteration; of a batch each sequence has a
            // part.
            let carried = match region.kind {
                RegionKind::Scan { lengths: Some(_), .. } => 0..0,
                _ => first..first + region.kind.carried_count(),
            };
            let rules =
                MemoryRules { takes: Inputs::from_range(carried), ..MemoryRules::default() };
            let bodies = region.bodies.into_iter().map(|body| self.program(body));
            let bodies: Vec<Body> = bodies.collect::<Result<_, _>>()?;
            let scalars = match &bodies[..] {
                [body] => assign_registers(&region.kind, body, self.lowering.inference),
                _ => None,
            };
            let scalars = scalars.map(Box::new);
            return Ok(Some(Step {
                number: 0,
                work: Work::Region(Box::new(Region { kind: region.kind, bodies, scalars })),
                rules,
                movement: None,
                inputs,
                packed: Box::default(),
                outputs: step.outputs,
                origins: step.origins,
            }));
        }
        let read = inputs.iter().map(|slot| slot.map(|slot| (slot, values[slot.index()].value)));
        let [input, output] = [inputs.first(), step.outputs.first()].map(|slot| {
            let slot = slot.copied().flatten();
            slot.map_or(Order::Rows, |slot| values[slot.index()].order)
        });
        let orders = SiteOrders { input, output };
        let read = (read.collect(), orders);
        let selected = self.lowering.kernel_of(node, &step.op, read, self.constants);
        let Selected { kernel, packed } = match selected {
            Ok(selected) => selected,
            Err(BindError::Unsupported(why)) => {
                self.unsupported.add(node, 1, why);
                return Ok(None);
            }
            Err(BindError::Invalid(fact)) => return Err(refuse_node(resolved.model(), node, fact)),
        };
        let mut packed_slots = Vec::new();
        for (index, input) in inputs.iter_mut().enumerate() {
            let Some(slot) = *input else { continue };
            let value = values[slot.index()].value;
            if !packed.contains(&index) {
                self.is_used[value.index()] = true;
                continue;
            }
            *input = None;
            packed_slots.push((index, slot));
            self.packed.entry(value).or_insert_with(|| self.constants.bytes_of(value));
            // The packed form is all that is needed; the original may go as soon as nothing else
            // wants it.
            let left = &mut self.readers[value.index()];
            *left = left.saturating_sub(1);
            if *left == 0 && !self.constants.is_deferred(value) {
                self.constants.take(value);
            }
        }
        let movement = match step.op {
            Op::Move(moved) => Some(Box::new(moved.kind)),
            _ => None,
        };
        Ok(Some(Step {
            number: 0,
            rules: kernel.memory(),
            work: Work::Kernel(kernel),
            movement,
            inputs,
            packed: packed_slots.into(),
            outputs: step.outputs,
            origins: step.origins,
        }))
    }
}

/// The steps with some put among them: each before the step at its position, in reverse order.
fn with_late(steps: Vec<Step>, mut late: Vec<(usize, Step)>) -> Vec<Step> {
    if late.is_empty() {
        return steps;
    }
    let mut all = Vec::with_capacity(steps.len() + late.len());
    for (position, step) in steps.into_iter().enumerate() {
        while late.last().is_some_and(|(before, _)| *before <= position) {
            all.extend(late.pop().map(|(_, step)| step));
        }
        all.push(step);
    }
    all.extend(late.into_iter().rev().map(|(_, step)| step));
    all
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
