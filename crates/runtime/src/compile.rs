//! From a model to a program: the list of steps, with kernels chosen and constants packed.

use hashbrown::HashSet;

use sardonyx_kernels::{Isa, Pool};
use sardonyx_model::{
    ExternalData, Id, Model, NodeAttributes, NodeId, Producer, Shape, Type, ValueId,
};
use sardonyx_ops::AttributeView;
use sardonyx_ops::operators::CONSTANT;
use sardonyx_passes::{
    Finding, Fusion, InferOptions, Inference, Resolved, fuse, infer, needed, remove_dead, share,
    upgrade,
};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::account::Account;
use crate::chains::join_chains;
use crate::constants::{Constants, Maker};
use crate::dims;
use crate::error::CompileError;
use crate::expanded::{Expanded, expand, nodes_in};
use crate::kernel::{BindError, Kernel, Site, SiteInput};
use crate::ops::binding;
use crate::precision::{Precision, small_matrices};
use crate::report::{Clock, CompileReport};
use crate::skips::take_sums;
use crate::tails::absorb_tails;
use crate::unsupported::Unsupported;
use crate::weights::{Packer, SharedWeights};

/// How a model is compiled. Start from the default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Threads, the calling one included; `None` for one per available processor.
    pub threads: Option<usize>,
    /// Instruction set; `None` for the one of [`Isa::requested`].
    pub isa: Option<Isa>,
    /// Whether the session has threads of its own. Sessions share those of the process otherwise,
    /// if they want as many.
    pub private_pool: bool,
    /// How much of the graph may change on the way to a program.
    pub optimization: Optimization,
    /// How exact products are.
    pub precision: Precision,
    /// Bytes that a session and one run of it may take together: for values computed ahead of time,
    /// packed forms of what the file does not store, values between inputs and outputs, outputs,
    /// and scratch memory. What the file stores does not count, packed or not, and neither does
    /// what single products and convolutions pack while they run. A run that needs more of what
    /// counts fails before it takes more. `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Whether the session is only looked at: nothing large is computed, copied or packed, and runs
    /// fail.
    pub only_looks: bool,
    /// Where to find packed weights of other sessions of the model, and to leave them.
    pub weights: SharedWeights,
    /// Sizes of symbolic dimensions of the inputs, fixed for all runs.
    pub dims: Vec<(String, i64)>,
}

/// How much of the graph may change on the way to a program. Results stay within the tolerance of
/// [`Precision::Exact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Optimization {
    /// Every node runs as it is written; only what inference knows is not computed.
    Off,
    /// What depends on constants only is computed ahead of time.
    Basic,
    /// Nodes that compute the same are done once, and nodes are fused, as well.
    #[default]
    All,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: None,
            isa: None,
            private_pool: false,
            optimization: Optimization::All,
            precision: Precision::Exact,
            memory_limit: None,
            only_looks: false,
            weights: SharedWeights::default(),
            dims: Vec::new(),
        }
    }
}

impl Options {
    /// The default with a number of threads.
    pub fn with_threads(threads: usize) -> Self {
        Options { threads: Some(threads), ..Options::default() }
    }
}

/// A compiled model, before memory is planned for particular dimensions.
pub(crate) struct Program {
    pub(crate) resolved: Resolved,
    pub(crate) inference: Inference,
    /// Values that exist while running, by slot.
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) steps: Vec<Step>,
    /// Slot of each graph input; `None` if nothing reads it.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Slot of each graph output.
    pub(crate) outputs: Vec<Slot>,
    pub(crate) isa: Isa,
    /// Sizes that are fixed for all runs.
    pub(crate) dims: Vec<(String, i64)>,
    /// What was done, in numbers.
    pub(crate) report: CompileReport,
    /// What was recognised as a larger operator, and what nearly was.
    pub(crate) fusions: Vec<Fusion>,
    /// Who does the work of whom, while storing or in the same pass over memory.
    pub(crate) absorbed: Vec<(Work, Work)>,
}

impl Program {
    /// The shape of a value, as far as inferred.
    pub(crate) fn shape(&self, slot: Slot) -> Option<&Shape> {
        self.inference.ty(self.slots[slot.index()].value)?.shape()
    }

    /// The element type of a tensor, if inferred.
    pub(crate) fn elem(&self, slot: Slot) -> Option<DataType> {
        self.inference.ty(self.slots[slot.index()].value)?.elem()
    }

    /// What is done in a step, for people.
    pub(crate) fn label(&self, work: &Work) -> String {
        let with = work.with.iter().map(|op| format!(" with {op}"));
        std::iter::once(self.resolved.place_of(work.node)).chain(with).collect()
    }

    /// The value itself, if it is a constant.
    pub(crate) fn constant(&self, slot: Slot) -> Option<&Tensor> {
        self.slots[slot.index()].constant.as_ref()
    }
}

/// A value that exists while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

pub(crate) struct SlotInfo {
    pub(crate) value: ValueId,
    pub(crate) constant: Option<Tensor>,
    /// Type and dimensions of a constant that is not there, because the session is only looked at.
    pub(crate) outline: Option<(DataType, Dims)>,
}

impl SlotInfo {
    /// Whether it is known before anything runs.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant.is_some() || self.outline.is_some()
    }
}

/// One kernel with what it reads and writes.
pub(crate) struct Step {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) inputs: SmallVec<[Option<Slot>; 6]>,
    pub(crate) outputs: SmallVec<[Option<Slot>; 2]>,
    pub(crate) work: Work,
    pub(crate) op: &'static str,
}

/// What a step does.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// The node, of those that it does the first.
    pub(crate) node: NodeId,
    /// Operators of the nodes that it does besides, in their order.
    pub(crate) with: Vec<&'static str>,
}

/// Compiles a model.
pub(crate) fn compile(
    model: &Model,
    external: &dyn ExternalData,
    options: &Options,
    pool: &Pool,
) -> Result<Program, CompileError> {
    let (mut report, mut clock) = (CompileReport::default(), Clock::start());
    dims::check(model, &options.dims)?;
    let declared = InferOptions { symbols: &options.dims, ..InferOptions::default() };
    let expanded = expand(model, declared).map_err(CompileError::Invalid)?;
    report.nodes = expanded.nodes;
    clock.lap(&mut report, "resolve");
    let missing = expanded.unsupported();
    if !missing.is_empty() {
        return Err(CompileError::Unsupported(missing));
    }
    let Expanded { mut resolved, inference: at_file_versions, expansions, .. } = expanded;
    report.expanded = expansions;
    let before = nodes_in(&resolved);
    report.upgraded = upgrade(&mut resolved, &at_file_versions).map_err(CompileError::Invalid)?;
    report.added = nodes_in(&resolved) - before;
    clock.lap(&mut report, "upgrade");
    let account = Account::new(options.memory_limit, 0);
    let mut constants = Constants::read(&resolved, external, &account)?;
    clock.lap(&mut report, "read");
    let first = infer(&resolved, declared).map_err(CompileError::Invalid)?;
    let fuses = options.optimization >= Optimization::All;
    if fuses {
        // Before anything is computed ahead of time, so that nothing is computed twice there
        // either.
        report.shared = share(&mut resolved, &first, &|value| constants.get(value).cloned());
    }
    report.unread = remove_dead(&mut resolved);
    clock.lap(&mut report, "share");

    let isa = match options.isa {
        Some(isa) => isa,
        None => Isa::requested().map_err(|error| CompileError::Option(error.to_string()))?,
    };
    let packer = Packer::new(&options.weights, &account, options.only_looks);
    let binder = Binder {
        resolved: &resolved,
        inference: &first,
        isa,
        precision: Precision::Exact,
        exact_up_to: 0,
        weights: &packer,
    };
    let folds = options.optimization > Optimization::Off;
    let remaining = constants.fold(&resolved, &first, &binder, pool, folds)?;
    // What was computed may have decided shapes.
    let mut inference = infer_with(&resolved, &constants, &options.dims)?;
    let folded: HashSet<NodeId> = {
        let remaining: HashSet<NodeId> = remaining.into_iter().collect();
        let graphs = resolved.graphs().iter();
        let all = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
        all.filter(|node| !remaining.contains(node)).collect()
    };
    note_folded(&mut report, &resolved, &constants, &folded);
    clock.lap(&mut report, "fold");
    let mut fusions = Vec::new();
    if fuses {
        fusions = fuse(&mut resolved, &inference, &|value| constants.contains(value), &|value| {
            constants.get(value).cloned()
        });
        if fusions.iter().any(|fusion| fusion.nodes > 0) {
            constants.read_initializers(&resolved, external)?;
            inference = infer_with(&resolved, &constants, &options.dims)?;
        }
    }
    let nodes = resolved.order().iter().copied();
    let remaining: Vec<NodeId> = nodes.filter(|node| !folded.contains(node)).collect();
    clock.lap(&mut report, "fuse");

    let is_folded = |value: ValueId| match resolved.model().value(value).producer {
        Producer::Node(node, _) => folded.contains(&node),
        _ => false,
    };
    let needed = needed(&resolved, &is_folded);
    let live: Vec<NodeId> = remaining.iter().copied().filter(|node| needed[node.index()]).collect();
    let binder = Binder {
        resolved: &resolved,
        inference: &inference,
        isa,
        precision: options.precision,
        exact_up_to: small_matrices(&resolved, &constants, &live),
        weights: &packer,
    };
    report.unread += remaining.len() - live.len();
    // What is computed ahead of time is exact, however exact products are that run.
    let exactly = Binder { precision: Precision::Exact, exact_up_to: 0, ..binder };
    let maker = Maker { binder: &exactly, pool };
    let parts = build(&binder, &maker, constants, live, &mut report)?;
    report.made_bytes = account.taken();
    clock.lap(&mut report, "bind");
    let mut program = Program {
        resolved,
        inference,
        slots: parts.slots,
        steps: parts.steps,
        inputs: parts.inputs,
        outputs: parts.outputs,
        isa,
        dims: options.dims.clone(),
        report,
        fusions,
        absorbed: Vec::new(),
    };
    if fuses {
        program.absorbed = absorb_tails(&mut program);
        let sums = take_sums(&mut program);
        program.absorbed.extend(sums);
        let chained = join_chains(&mut program);
        program.absorbed.extend(chained);
    }
    clock.lap(&mut program.report, "absorb");
    Ok(program)
}

/// Counts what was computed ahead of time. A node that only holds a value computes nothing.
fn note_folded(
    report: &mut CompileReport,
    resolved: &Resolved,
    constants: &Constants,
    folded: &HashSet<NodeId>,
) {
    let model = resolved.model();
    report.folded = folded.len();
    for node in folded {
        if resolved.is(*node, &CONSTANT) {
            report.constant_nodes += 1;
            continue;
        }
        let values = model.outputs(*node).iter().flatten();
        let bytes = values.map(|value| constants.bytes_of(*value));
        report.folded_bytes += bytes.sum::<usize>();
    }
}

/// What is inferred when constants are known.
fn infer_with(
    resolved: &Resolved,
    constants: &Constants,
    dims: &[(String, i64)],
) -> Result<Inference, CompileError> {
    let known = |value: ValueId| constants.known(value);
    let options = InferOptions { symbols: dims, known: Some(&known), ..InferOptions::default() };
    infer(resolved, options).map_err(CompileError::Invalid)
}

/// Makes kernels from nodes.
pub(crate) struct Binder<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) inference: &'a Inference,
    pub(crate) isa: Isa,
    pub(crate) precision: Precision,
    /// As [`Site::exact_up_to`].
    pub(crate) exact_up_to: usize,
    pub(crate) weights: &'a Packer<'a>,
}

impl Binder<'_> {
    pub(crate) fn bind(
        &self,
        node: NodeId,
        constants: &Constants,
    ) -> Result<Box<dyn Kernel>, BindError> {
        let model = self.resolved.model();
        let unsupported = || BindError::Unsupported("operator not implemented".to_string());
        let schema = self.resolved.schema(node).ok_or_else(unsupported)?;
        let bind = binding(schema.domain, schema.name).ok_or_else(unsupported)?;
        let attributes = NodeAttributes::new(model, node);
        let ty = |value: ValueId| self.inference.ty(value).cloned();
        bind(&Site {
            attributes: AttributeView::new(schema, &attributes),
            inputs: model
                .inputs(node)
                .map(|value| {
                    value.map(|value| SiteInput {
                        // A constant says more than inference, which does not look at large ones.
                        ty: constants
                            .outline(value)
                            .map(|(elem, dims)| Type::tensor(elem, dims.iter().copied()))
                            .or_else(|| ty(value)),
                        constant: constants.get(value),
                        weight: constants.weight(value),
                    })
                })
                .collect(),
            outputs: model
                .outputs(node)
                .iter()
                .map(|value| {
                    let read = value.filter(|value| model.is_read(*value));
                    read.map(ty)
                })
                .collect(),
            isa: self.isa,
            precision: self.precision,
            exact_up_to: self.exact_up_to,
            weights: self.weights,
        })
    }
}

fn build(
    binder: &Binder<'_>,
    maker: &Maker<'_>,
    mut constants: Constants,
    nodes: Vec<NodeId>,
    report: &mut CompileReport,
) -> Result<Parts, CompileError> {
    let model = binder.resolved.model();
    let graph = model.graph(binder.resolved.main());
    let looks = binder.weights.looks();
    let account = binder.weights.account;
    let mut readers = vec![0u32; model.value_count()];
    let outputs = graph.outputs.iter().filter_map(|output| output.value);
    for value in nodes.iter().flat_map(|node| model.inputs(*node).flatten()).chain(outputs) {
        readers[value.index()] += 1;
    }

    let mut building = Building {
        binder,
        constants: &mut constants,
        readers,
        is_read: Vec::new(),
        slots: Slots::new(model),
        steps: Vec::with_capacity(nodes.len()),
        unsupported: Unsupported::new(model),
        report,
    };
    let output = |node: NodeId| model.outputs(node).first().copied().flatten();
    let nodes = nodes.into_iter().enumerate();
    let (stand_ins, nodes): (Vec<_>, Vec<_>) = nodes.partition(|(_, node)| {
        output(*node).is_some_and(|value| building.constants.is_stand_in(value))
    });
    let each = nodes.iter().map(|(_, node)| node);
    let readers = &mut building.readers;
    building.constants.count_wanted(binder.resolved, each, readers);
    building.is_read = readers.iter().map(|readers| *readers > 0).collect();
    for (position, node) in nodes {
        if !looks {
            building.constants.make_for(node, maker)?;
        }
        building.step(position, node)?;
        let Building { constants, slots, .. } = &mut building;
        constants.done_with(node, maker, |value| slots.has(value));
    }
    let outputs: Vec<Slot> = graph
        .outputs
        .iter()
        .filter_map(|info| info.value)
        .map(|value| building.slots.of(value))
        .collect();
    // Kernels have packed what they could; what they have not is kept as a constant, or computed in
    // each run.
    let mut computed: HashSet<ValueId> = HashSet::new();
    for (position, node) in stand_ins.into_iter().rev() {
        let Some(value) = output(node) else { continue };
        if building.slots.has(value) && !building.constants.may_keep_fill(value, account) {
            computed.insert(value);
            building.step(position, node)?;
        }
    }
    let inputs = graph
        .inputs
        .iter()
        .map(|info| {
            info.value
                .filter(|value| building.is_read[value.index()])
                .map(|value| building.slots.of(value))
        })
        .collect();
    let Building { slots, mut steps, unsupported, .. } = building;
    if !unsupported.is_empty() {
        return Err(CompileError::Unsupported(unsupported.into_sorted()));
    }
    steps.sort_by_key(|(position, _)| *position);
    let mut steps: Vec<Step> = steps.into_iter().map(|(_, step)| step).collect();
    let kept = slots.values.iter();
    let kept = kept.filter(|value| constants.contains(**value) && !computed.contains(*value));
    let kept: Vec<usize> = kept.map(|value| constants.bytes_of(*value)).collect();
    (report.kept, report.kept_bytes) = (kept.len(), kept.iter().sum());
    let uses = use_of_slots(&mut steps, slots.values.len(), &outputs);
    let all = slots.values.iter().zip(&uses);
    let used = all.filter(|(value, used)| **used != Used::Not && !computed.contains(*value));
    let used: HashSet<ValueId> = used.map(|(value, _)| *value).collect();
    if !looks {
        for value in slots.values.iter().filter(|value| used.contains(*value)) {
            constants.make(*value, maker)?;
        }
    }
    constants.settle(account, |value| used.contains(&value));
    let slots = slots
        .values
        .into_iter()
        .zip(uses)
        .map(|(value, how)| {
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
    Ok(Parts { slots, steps, inputs, outputs })
}

/// What [`build`] works on.
struct Building<'a> {
    binder: &'a Binder<'a>,
    constants: &'a mut Constants,
    /// By value: how many inputs of nodes, and outputs, still want it.
    readers: Vec<u32>,
    /// By value: whether any did.
    is_read: Vec<bool>,
    slots: Slots,
    /// With their places among all nodes.
    steps: Vec<(usize, Step)>,
    unsupported: Unsupported<'a>,
    report: &'a mut CompileReport,
}

impl Building<'_> {
    /// Makes a step of a node.
    fn step(&mut self, position: usize, node: NodeId) -> Result<(), CompileError> {
        let resolved = self.binder.resolved;
        let model = resolved.model();
        let kernel = match self.binder.bind(node, self.constants) {
            Ok(kernel) => kernel,
            Err(BindError::Unsupported(why)) => {
                self.unsupported.add(node, 1, why);
                return Ok(());
            }
            Err(BindError::Invalid(fact)) => {
                let spot = sardonyx_passes::Spot::node(node);
                let code = &sardonyx_passes::check::codes::MALFORMED_NODE;
                return Err(CompileError::Invalid(vec![Finding::new(model, code, spot, fact)]));
            }
        };
        let taken = kernel.taken_in();
        let inputs = model
            .inputs(node)
            .enumerate()
            .map(|(index, value)| {
                let value = value?;
                if !taken.contains(&index) {
                    return Some(self.slots.of(value));
                }
                self.report.packed += 1;
                self.report.packed_bytes += self.constants.bytes_of_source(value);
                // The packed form is all that is needed; the original may go as soon as nothing
                // else wants it.
                let left = &mut self.readers[value.index()];
                *left = left.saturating_sub(1);
                if *left == 0 && !self.constants.is_made(value) {
                    self.constants.take(value);
                }
                None
            })
            .collect();
        let outputs = model
            .outputs(node)
            .iter()
            .map(|value| {
                value.filter(|value| self.is_read[value.index()]).map(|value| self.slots.of(value))
            })
            .collect();
        let op = resolved.schema(node).map_or("", |schema| schema.name);
        let step = Step { kernel, inputs, outputs, work: Work { node, with: Vec::new() }, op };
        self.steps.push((position, step));
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

/// Takes out steps that nobody needs, now that kernels have taken in what they need, and says how
/// slots are read.
fn use_of_slots(steps: &mut Vec<Step>, count: usize, outputs: &[Slot]) -> Vec<Used> {
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
            let how = if step.kernel.reads_unaligned(position) {
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

/// What [`build`] makes of a program.
struct Parts {
    slots: Vec<SlotInfo>,
    steps: Vec<Step>,
    inputs: Vec<Option<Slot>>,
    outputs: Vec<Slot>,
}

struct Slots {
    values: Vec<ValueId>,
    /// By value.
    slots: Vec<Option<Slot>>,
}

impl Slots {
    fn new(model: &Model) -> Slots {
        Slots { values: Vec::new(), slots: vec![None; model.value_count()] }
    }

    fn has(&self, value: ValueId) -> bool {
        self.slots[value.index()].is_some()
    }

    fn of(&mut self, value: ValueId) -> Slot {
        *self.slots[value.index()].get_or_insert_with(|| {
            self.values.push(value);
            Slot(self.values.len() as u32 - 1)
        })
    }
}
