//! Plans for running a model on several devices, from what its nodes say of a configuration.
//!
//! The annotations are hints: whatever they say, the model computes the same. A plan walks over the
//! graph in order and decides for each node on which devices it runs, in which form it reads its
//! inputs, and in which form it leaves its outputs ([`Form`]). What a node says of its operands
//! comes first, then the forms that its inputs have, then the rule of its operator
//! ([`sardonyx_ops::Factors`]), without which it runs whole. Where a value is needed in another
//! form than it has, it is moved. What is not honored is listed with the reason.
//!
//! The meaning of annotations is that of the section on devices of the specification and of the
//! proposals 0006 and 0007 of ONNX. A plan leaves sizes open along which nothing is split.

mod assign;
mod bodies;
mod collectives;
mod constants;
mod form;
mod linear;
mod local;
mod place;
mod print;
mod rank;
mod resident;
mod sizes;
mod spec;
mod suggest;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{AttrValue, Dim, GraphId, Model, NodeId, Producer, Shape, Type, ValueId};
use sardonyx_ops::operators::CAST_LIKE;
use sardonyx_ops::{Change, Operand, Registry};
use sardonyx_tensor::DataType;

pub use bodies::divides_bodies;
pub use collectives::{Collectives, NotExpressible};
pub use form::{Device, Form, Place, Ranges, Run, Split, SplitAxis};
pub use local::{EXCHANGE, EXCHANGE_DOMAIN, EXCHANGE_STEP, Local};
pub use rank::{RankError, lower_ir_version};
pub use resident::Resident;
pub use suggest::{Division, ShardReport, suggest};

use crate::annotations::{annotations, configurations};
use crate::convert::{ConvertOptions, Target, convert_in_any_order};
use crate::derivatives::{DeriveError, expand_gradients, gradients_in};
use crate::expand::expand_to_split;
use crate::finding::Finding;
use crate::infer::{InferOptions, Inference, infer};
use crate::inline::{InlineOptions, Inlining};
use crate::ir_version::{NEWEST_IR_VERSION, set_ir_version};
use crate::resolve::{Resolved, resolve};
use crate::results::{Origins, Rejected};
use crate::sequences::unpack_sequences;
use assign::Assignment;
use bodies::Bodies;
use resident::Kept;
pub use sizes::Numbers;
use sizes::{Scope, bytes_of, needed, nominal, stand_in, symbols_of_inputs, with_numbers};
use suggest::Columns;

/// What a plan is made for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShardOptions<'a> {
    /// The configuration; without it the only one that the model has.
    pub configuration: Option<&'a str>,
    /// The types of inputs, by position, in place of the declared ones.
    pub inputs: &'a [Option<Type>],
    /// Numbers for symbols of the file.
    pub symbols: &'a [(String, i64)],
    /// Symbols of [`inputs`](ShardOptions::inputs) that stay open unless the plan depends on them,
    /// with the numbers that they have then. The plan says for which other numbers it
    /// [holds](Plan::holds). What depends on other symbols is whole. `None` leaves all symbols of
    /// inputs open, and keeps whole what is to be split along them: for a plan to look at.
    pub open: Option<&'a [(String, i64)]>,
    /// Where outputs of the model are to be in the end.
    pub outputs: OutputsAt,
    /// Values that stay on the devices from one run to the next.
    pub residents: &'a [Resident],
    /// Outputs, by position, that nobody is given: they are new values of residents, or nothing.
    pub unreturned: &'a [usize],
    /// Whether `If`, `Loop` and `Scan` run whole, whatever nodes in their graphs say.
    pub whole_bodies: bool,
}

/// Where outputs of a model are when everything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputsAt {
    /// Whole on one device each.
    #[default]
    One,
    /// Whole on all devices.
    All,
    /// Where they are computed: in parts, or whole on some devices.
    Parts,
}

/// Why there is no plan.
#[derive(Debug, Clone)]
pub enum ShardError {
    /// The configuration does not exist, cannot be chosen, or says too little.
    Configuration(String),
    /// What stands against running the model.
    Invalid(Vec<Finding>),
    /// A result that has errors which the model does not have.
    Rejected(Box<Rejected>),
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardError::Configuration(why) => f.write_str(why),
            ShardError::Invalid(findings) => match findings.first() {
                Some(finding) => write!(f, "{finding}"),
                None => f.write_str("the model cannot be run"),
            },
            ShardError::Rejected(rejected) => rejected.errors.fmt(f),
        }
    }
}

impl std::error::Error for ShardError {}

/// A form of a plan, by number. Equal forms have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormId(u32);

/// A value that gets another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The value, in the model of the plan.
    pub value: ValueId,
    /// The graph in which it is moved, in the model of the plan: each time that the graph runs.
    pub graph: GraphId,
    /// The form that it has.
    pub from: FormId,
    /// The form that it gets, on those devices that need it.
    pub to: FormId,
    /// That form on all devices that could have it: what nodes say that they read.
    form: FormId,
    /// Its element type.
    pub elem: DataType,
    /// Its sizes, numbers where the forms are split; `None` if they do not follow from those of
    /// inputs, in which case both forms are whole.
    pub dims: Option<Shape>,
}

/// A node that runs on some devices.
#[derive(Debug, Clone)]
pub struct Computed {
    /// The node, in the model of the plan.
    pub node: NodeId,
    /// The form in which each input is read; `None` for an absent one.
    pub inputs: Vec<Option<FormId>>,
    /// The form of each output.
    pub outputs: Vec<Option<FormId>>,
    /// Values that graphs in the node read.
    captured: Vec<(ValueId, FormId)>,
    /// What of the node holds sizes.
    changes: Vec<Change>,
    assignment: Assignment,
    /// The graphs of the node whose nodes are steps of their own, before that of the node.
    bodies: Option<Bodies>,
}

impl Computed {
    /// The devices that run it.
    pub fn devices(&self) -> impl Iterator<Item = Device> + '_ {
        self.assignment.places.keys().copied()
    }
}

/// A step of a plan. All devices take theirs in the same order. Steps in the graphs of a node stand
/// before the node.
#[derive(Debug, Clone)]
pub enum Step {
    /// A value gets another form.
    Move(Move),
    /// A node runs.
    Node(Computed),
}

/// What a plan does, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanFacts {
    /// Moves for which devices send something.
    pub moves: usize,
    /// Nodes that are computed in parts.
    pub in_parts: usize,
    /// Nodes whose results are partial.
    pub partial: usize,
}

/// Something that the model asks for and that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHonored {
    /// The node, in the model of the plan.
    pub node: NodeId,
    /// The name of the tensor that it is about, if it is about one.
    pub tensor: Option<String>,
    /// Why, as a sentence whose subject is the specification or the node.
    pub why: String,
}

/// How a model runs on several devices.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The model: calls are inlined, and nodes have the newest forms of their operators.
    model: Model,
    /// The name of the configuration.
    pub configuration: String,
    /// The number of its devices.
    pub devices: usize,
    /// The symbols of the model whose numbers the plan depends on, in the order of their names. It
    /// holds for any sizes of others.
    pub sizes: Vec<(String, i64)>,
    /// Symbols of inputs that are open.
    open: HashSet<String>,
    /// For which numbers in their place the plan holds, if it was made for several.
    scope: Option<Arc<Scope>>,
    forms: Vec<Form>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What is asked for and not done.
    pub not_honored: Vec<NotHonored>,
    /// The types of all values that are known.
    types: Inference,
    /// Types of values that the plan added.
    added: HashMap<ValueId, (DataType, Option<Shape>)>,
    /// By output of the model, where it is when everything is done; `None` where nobody is given
    /// it.
    outputs: Vec<Option<Given>>,
    /// By resident.
    kept: Vec<Kept>,
    /// By input of the model, the devices that read it.
    readers: Vec<BTreeSet<Device>>,
}

/// Where an output of the model is when everything is done.
#[derive(Debug, Clone, Copy)]
struct Given {
    value: ValueId,
    form: FormId,
    /// The first device that has it.
    by: Device,
    at: OutputsAt,
}

impl Plan {
    /// The model that nodes and values of the plan belong to.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// A form.
    pub fn form(&self, id: FormId) -> &Form {
        &self.forms[id.0 as usize]
    }

    /// By output of the model, the device that has it in the end. The others need not have it.
    /// `None` for an output that nobody is given.
    pub fn givers_of_outputs(&self) -> impl ExactSizeIterator<Item = Option<Device>> + '_ {
        self.outputs.iter().map(|given| given.map(|given| given.by))
    }

    /// The form in which devices have an output of the model in the end, and its sizes if they
    /// follow from those of inputs. `None` for an output that nobody is given.
    pub fn form_of_output(&self, index: usize) -> Option<(&Form, Option<Shape>)> {
        let given = (*self.outputs.get(index)?)?;
        Some((self.form(given.form), self.tensor(given.value).and_then(|(_, dims)| dims)))
    }

    /// Whether a device gives an output of the model.
    fn gives(&self, given: Given, device: Device) -> bool {
        match given.at {
            OutputsAt::One => given.by == device,
            OutputsAt::All | OutputsAt::Parts => self.form(given.form).is_on(device),
        }
    }

    /// By input of the model, initializers that are inputs included, the devices that read it and
    /// have to be given it: none of a resident.
    pub fn readers_of_inputs(&self) -> &[BTreeSet<Device>] {
        &self.readers
    }

    /// The bytes that devices send each other, as far as they can be counted before the run. What
    /// is sent in a graph of a node counts once, however often the graph runs.
    pub fn bytes(&self) -> Dim {
        let moves = self.steps.iter().map(|step| match step {
            Step::Move(moved) => self.bytes_moved(moved),
            Step::Node(_) => Dim::Known(0),
        });
        moves.fold(Dim::Known(0), |all, bytes| all.add(&bytes))
    }

    /// The bytes that devices send each other in a move.
    pub fn bytes_moved(&self, moved: &Move) -> Dim {
        self.traffic(moved).values().fold(Dim::Known(0), |all, bytes| all.add(bytes))
    }

    /// What the plan does, in numbers.
    pub fn facts(&self) -> PlanFacts {
        let mut facts = PlanFacts::default();
        for step in &self.steps {
            match step {
                Step::Move(moved) => facts.moves += usize::from(!self.is_local(moved)),
                Step::Node(computed) => {
                    facts.in_parts += usize::from(computed.assignment.is_cut());
                    let forms = computed.outputs.iter().flatten();
                    let partial = forms.filter(|form| self.form(**form).partial().is_some());
                    facts.partial += usize::from(partial.count() > 0);
                }
            }
        }
        facts
    }

    /// Element type and sizes of a tensor, if these follow from the sizes of inputs.
    pub fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.added.get(&value).cloned().or_else(|| sizes::tensor(self.types.ty(value)?, &self.open))
    }

    /// Whether a move takes no communication: each device makes its part of what it holds.
    pub fn is_local(&self, moved: &Move) -> bool {
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        is_within(from, to, moved.dims.as_deref())
    }

    /// Whether a move is in a graph of a node: it is made as often as that graph runs.
    pub fn is_inner(&self, moved: &Move) -> bool {
        self.model.main != Some(moved.graph)
    }

    /// The devices whose part of a value is read when it is moved.
    pub fn givers(&self, moved: &Move) -> BTreeSet<Device> {
        givers(self.form(moved.from), self.form(moved.to), moved.dims.as_deref())
    }

    /// The devices that combine their partial results of the part of a device, itself included, one
    /// for each of these, where all of them get the result. Sorted; `None` if it is not so.
    pub fn reducing(&self, moved: &Move, device: Device) -> Option<Vec<Device>> {
        reducing(self.form(moved.from), self.form(moved.to), device)
    }

    /// The bytes that each device has to send to each other one, where they can be counted. Sums of
    /// a group are counted as a reduce-scatter and an all-gather.
    pub fn traffic(&self, moved: &Move) -> BTreeMap<(Device, Device), Dim> {
        let mut bytes: BTreeMap<(Device, Device), Dim> = BTreeMap::new();
        if self.is_local(moved) {
            return bytes;
        }
        let Some(dims) = &moved.dims else { return bytes };
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        // Who sends what does not depend on open sizes, only how much it is.
        let open = dims.iter().filter(|dim| dim.size().is_none());
        let open = open.fold(Dim::Known(1), |all, dim| all.mul(dim));
        let numbers = stand_in(dims);
        let of = |elements: usize| bytes_of(&open.mul(&elements.into()), moved.elem);
        let mut reduced = BTreeSet::new();
        for device in to.devices() {
            let Some(group) = self.reducing(moved, device) else { continue };
            let elements = to.dims(device, &numbers).map_or(0, |dims| dims.iter().product());
            let others = group.iter().filter(|other| **other != device);
            let part = of(elements).mul(&Dim::Known(2)).floor_div(&group.len().into());
            bytes.extend(others.map(|other| ((device, *other), part.clone())));
            reduced.insert(device);
        }
        for transfer in transfers(from, to, &numbers) {
            if transfer.from != transfer.to && !reduced.contains(&transfer.to) {
                let elements = transfer.runs.iter().map(|axis| elements_of(axis)).product();
                let sent = bytes.entry((transfer.from, transfer.to)).or_insert(Dim::Known(0));
                *sent = sent.add(&of(elements));
            }
        }
        bytes
    }
}

/// The devices that combine their partial results of the part of a device, itself included, one for
/// each of these, where all of them get the result. Sorted; `None` if it is not so.
fn reducing(from: &Form, to: &Form, device: Device) -> Option<Vec<Device>> {
    let (_, count) = from.partial()?;
    if from.combined() != *to {
        return None;
    }
    let place = to.places().get(&device)?;
    // Devices with the same part and the same partial result take turns in forming groups.
    let mut holders: Vec<Vec<Device>> = vec![Vec::new(); count];
    for (other, _) in to.places().iter().filter(|(_, own)| *own == place) {
        holders[from.partial_of(*other)].push(*other);
    }
    let groups = holders[0].len();
    if holders.iter().any(|devices| devices.len() != groups) {
        return None;
    }
    let at = holders[from.partial_of(device)].iter().position(|one| *one == device)?;
    let mut group: Vec<Device> = holders.iter().map(|devices| devices[at]).collect();
    group.sort_unstable();
    Some(group)
}

fn elements_of(axis: &[Run]) -> usize {
    axis.iter().map(|run| run.len).sum()
}

/// Whether each device that is to hold something in one form finds it in what it holds in another.
fn is_within(from: &Form, to: &Form, dims: Option<&[Dim]>) -> bool {
    let dims = dims.map(stand_in);
    from.partial().is_none()
        && to.devices().all(|device| {
            if from.is_whole() {
                return from.is_on(device);
            }
            let Some(dims) = &dims else { return false };
            match (from.ranges(device, dims), to.ranges(device, dims)) {
                (Some(have), Some(want)) => {
                    have.iter().zip(&want).all(|(have, want)| have.contain(want))
                }
                _ => false,
            }
        })
}

/// A part of a value that a device has and another one, or the same one, needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Who has it.
    pub from: Device,
    /// Who needs it.
    pub to: Device,
    /// The number of the partial result that it belongs to.
    pub partial: usize,
    /// Axis by axis the runs of indices: positions in what the one has, and in what the other one
    /// gets.
    pub runs: Vec<Vec<Run>>,
}

/// What has to be sent so that a value of these sizes gets another form, also what devices keep. Of
/// devices that hold the same, what is needed is taken from the one that needs it, or else from
/// each in turn. Sorted by receiver, partial result and sender.
pub fn transfers(from: &Form, to: &Form, dims: &[usize]) -> Vec<Transfer> {
    // Devices that hold the same.
    let mut holders: BTreeMap<(usize, &Place), Vec<Device>> = BTreeMap::new();
    for (device, place) in from.places() {
        holders.entry((from.partial_of(*device), place)).or_default().push(*device);
    }
    let mut found = Vec::new();
    for (turn, device) in to.devices().enumerate() {
        let Some(want) = to.ranges(device, dims) else { continue };
        for ((partial, _), devices) in &holders {
            let sender =
                if devices.contains(&device) { device } else { devices[turn % devices.len()] };
            let Some(have) = from.ranges(sender, dims) else { continue };
            let runs: Vec<Vec<Run>> =
                have.iter().zip(&want).map(|(have, want)| have.shared(want)).collect();
            if runs.iter().all(|axis| !axis.is_empty()) {
                found.push(Transfer { from: sender, to: device, partial: *partial, runs });
            }
        }
    }
    found
}

/// The devices whose part of a value is read when it gets another form.
fn givers(from: &Form, to: &Form, dims: Option<&[Dim]>) -> BTreeSet<Device> {
    if is_within(from, to, dims) {
        return to.devices().collect();
    }
    match dims {
        Some(dims) => {
            transfers(from, to, &stand_in(dims)).iter().map(|transfer| transfer.from).collect()
        }
        None => {
            let mut givers: BTreeSet<Device> =
                to.devices().filter(|taker| from.is_on(*taker)).collect();
            if to.devices().any(|taker| !from.is_on(taker)) {
                givers.extend(from.devices().next());
            }
            givers
        }
    }
}

/// What a model is before plans are made for it, whatever the sizes of its inputs: calls of
/// functions are inlined, `Gradient` nodes have become what they mean, and nodes have the newest
/// forms of their operators, as far as that can be.
///
/// # Errors
///
/// `Gradient` nodes that cannot be derived.
pub fn prepare_to_shard(model: &Model, registry: &Registry) -> Result<Model, ShardError> {
    let (inlined, _) = inlined(model, registry)?;
    Ok(newest_forms(inlined, registry))
}

/// A plan for a model that was prepared. A node that is not in the newest form of its operator runs
/// whole.
///
/// # Errors
///
/// A configuration that cannot be chosen; what stands against running the model.
pub fn shard(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Plan, ShardError> {
    if options.residents.iter().all(|resident| resident.form.is_some()) {
        return planned(model, registry, options);
    }
    // What devices do with residents that they all have says in which form they best have them.
    let open = planned(model.clone(), registry, options)?;
    let residents = open.settled(options.residents);
    planned(model, registry, ShardOptions { residents: &residents, ..options })
}

/// The plan with the residents as they are; one without a form is whole on all devices.
fn planned(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Plan, ShardError> {
    let prepared = prepare(model.clone(), registry, options)?;
    let needed = needed(&prepared, &prepared.open);
    let (sizes, open): (Vec<_>, Vec<_>) = options
        .open
        .unwrap_or_default()
        .iter()
        .cloned()
        .partition(|(name, _)| needed.contains(name));
    if sizes.is_empty() {
        return Ok(of_prepared(prepared, options));
    }
    let symbols: Vec<_> = options.symbols.iter().chain(&sizes).cloned().collect();
    let inputs = with_numbers(options.inputs, &sizes);
    let options = ShardOptions { inputs: &inputs, symbols: &symbols, open: Some(&open), ..options };
    let mut plan = of_prepared(prepare(model, registry, options)?, options);
    plan.sizes = sizes;
    Ok(plan)
}

fn of_prepared(prepared: Prepared, options: ShardOptions<'_>) -> Plan {
    let planner = Planner::new(&prepared, None).finish();
    if planner.needs_whole.is_empty() {
        return through_linear(&prepared, planner);
    }
    // The same with nodes that can do with parts.
    let needs_whole = planner.needs_whole.clone();
    let plan = through_linear(&prepared, planner);
    let Some(prepared) = prepared.with_split_nodes(&needs_whole, options) else { return plan };
    let again = through_linear(&prepared, Planner::new(&prepared, None).finish());
    let cost = |plan: &Plan| (plan.not_honored.len(), nominal(&plan.bytes()));
    if cost(&again) < cost(&plan) { again } else { plan }
}

/// A plan, or the one in which partial sums go through linear nodes if less is sent then.
fn through_linear(prepared: &Prepared, planner: Planner<'_>) -> Plan {
    let through = linear::through(&planner);
    if through.is_empty() {
        return planner.plan;
    }
    let mut again = Planner::new(prepared, None);
    again.through = through;
    let again = again.finish().plan;
    if nominal(&again.bytes()) < nominal(&planner.plan.bytes()) { again } else { planner.plan }
}

/// What plans are made of.
struct Prepared {
    resolved: Resolved,
    types: Inference,
    symbols: HashMap<String, usize>,
    /// Symbols of inputs that have no number.
    open: HashSet<String>,
    scope: Option<Arc<Scope>>,
    configuration: String,
    devices: usize,
    outputs: OutputsAt,
    residents: Vec<Resident>,
    unreturned: Vec<usize>,
    whole_bodies: bool,
}

impl Prepared {
    /// The same with other nodes in the place of some, by which these can be computed in parts.
    /// `None` if there are none.
    fn with_split_nodes(
        self,
        nodes: &HashSet<NodeId>,
        options: ShardOptions<'_>,
    ) -> Option<Prepared> {
        let Prepared { mut resolved, types, .. } = self;
        let are_some = expand_to_split(&mut resolved, &types, nodes).ok()?;
        let types = inferred(&resolved, options).ok().filter(|_| are_some)?;
        Some(Prepared { resolved, types, ..self }.with_scope(options))
    }

    /// Finds out for which numbers the types hold.
    fn with_scope(mut self, options: ShardOptions<'_>) -> Prepared {
        self.open = symbols_of_inputs(&self);
        if let Some(open) = options.open {
            self.open.retain(|name| open.iter().any(|(known, _)| known == name));
        }
        self.scope = Scope::new(&self, options);
        self
    }
}

fn inferred(resolved: &Resolved, options: ShardOptions<'_>) -> Result<Inference, Vec<Finding>> {
    let open = options.open.unwrap_or_default().iter();
    let open: HashSet<String> = open.map(|(name, _)| name.clone()).collect();
    let options = InferOptions {
        inputs: options.inputs,
        symbols: options.symbols,
        sizes: (!open.is_empty()).then_some(&open),
        // A branch that is not taken may fit other sizes only.
        inner_may_contradict: true,
        ..InferOptions::default()
    };
    infer(resolved, options)
}

/// A model without calls of functions and without `Gradient` nodes, as far as they can be replaced,
/// and for which nodes of the model its nodes were made.
fn inlined(model: &Model, registry: &Registry) -> Result<(Model, Origins), ShardError> {
    // What cannot be inlined is computed whole.
    let inlined = crate::align::inline_in_any_order(model, registry, &InlineOptions::default());
    let (inlined, origins) = match inlined {
        Ok(Inlining { model, origins, .. }) => (model, origins),
        Err(_) => (model.clone(), Origins::default()),
    };
    Ok((without_gradients(inlined, registry)?, origins))
}

/// A model without what says how it is divided over devices, as [`suggest`] begins with it: calls
/// of functions are inlined, configurations of devices and annotations of nodes are removed, and
/// the version of the format is the newest. Models that differ in these alone become equal.
pub fn without_devices(model: &Model, registry: &Registry) -> Model {
    // What cannot be inlined cannot have been divided.
    let inlined = inlined(model, registry);
    let mut plain = inlined.map_or_else(|_| model.clone(), |(inlined, _)| inlined);
    set_ir_version(&mut plain, NEWEST_IR_VERSION);
    plain.header.configuration.clear();
    let nodes = plain.graphs().flat_map(|(_, graph)| &graph.nodes).copied();
    let annotated: Vec<NodeId> =
        nodes.filter(|node| annotations(&plain, *node).next().is_some()).collect();
    annotated.into_iter().for_each(|node| plain.set_devices(node, Vec::new()));
    plain
}

fn newest_forms(model: Model, registry: &Registry) -> Model {
    let newest = registry.versions("").map_or(1, |(_, newest)| newest);
    let options = ConvertOptions {
        target: Target::new().opset("", newest),
        expand: false,
        granted: Vec::new(),
        like_reference: false,
    };
    // A node without an exact newer form keeps the whole model as it is: it runs whole then.
    match convert_in_any_order(&model, registry, &options) {
        Ok(converted) => converted.model,
        Err(_) => model,
    }
}

fn prepare(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Prepared, ShardError> {
    let (configuration, devices) = chosen_configuration(&model, options.configuration)?;
    let mut resolved = resolve(model, registry.clone()).map_err(ShardError::Invalid)?;
    let mut types = inferred(&resolved, options).map_err(ShardError::Invalid)?;
    // Sequences stay where they are made; the tensors in them move.
    if unpack_sequences(&mut resolved, &types) > 0 {
        types = inferred(&resolved, options).map_err(ShardError::Invalid)?;
    }
    let symbols = symbols_of(&resolved, &types, options.symbols);
    let (residents, unreturned) = (options.residents.to_vec(), options.unreturned.to_vec());
    let prepared = Prepared {
        resolved,
        types,
        symbols,
        open: HashSet::new(),
        scope: None,
        configuration,
        devices,
        outputs: options.outputs,
        residents,
        unreturned,
        whole_bodies: options.whole_bodies,
    };
    Ok(prepared.with_scope(options))
}

/// A model whose `Gradient` nodes have become what they mean: they go by names of the graph around
/// them, which a part of it does not have.
fn without_gradients(model: Model, registry: &Registry) -> Result<Model, ShardError> {
    let has_any = model.main.is_some_and(|main| gradients_in(&model, main) > 0);
    if !has_any {
        return Ok(model);
    }
    match expand_gradients(&model, registry) {
        Ok((expanded, _)) => Ok(expanded),
        Err(DeriveError::Refused(findings)) => Err(ShardError::Invalid(findings)),
        Err(DeriveError::Option(why)) => Err(ShardError::Configuration(why)),
        Err(DeriveError::Invalid(rejected)) => Err(ShardError::Rejected(rejected)),
    }
}

/// The name of the configuration that is chosen, and the number of its devices. Without a name it
/// is the only one that the model has.
///
/// # Errors
///
/// None or several of that name, or an unknown number of devices.
pub fn chosen_configuration(
    model: &Model,
    wanted: Option<&str>,
) -> Result<(String, usize), ShardError> {
    let all = configurations(model);
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let names = || {
        let names: Vec<String> = all.iter().map(|one| format!("'{}'", text(one.name))).collect();
        names.join(", ")
    };
    let refuse = |why: String| Err(ShardError::Configuration(why));
    let found: Vec<_> = match wanted {
        Some(wanted) => all.iter().filter(|one| one.name == wanted.as_bytes()).collect(),
        None => all.iter().collect(),
    };
    match (&found[..], wanted) {
        ([one], _) if one.name.is_empty() => refuse("the device configuration has no name".into()),
        ([one], _) => {
            let count = one.num_devices.and_then(|count| usize::try_from(count).ok());
            match count.filter(|count| (1..=MOST_DEVICES).contains(count)) {
                Some(count) => Ok((text(one.name), count)),
                None => refuse(format!(
                    "the configuration '{}' has {} devices; 1 to {MOST_DEVICES} can be used",
                    text(one.name),
                    one.num_devices
                        .map_or_else(|| "no number of".into(), |count| count.to_string())
                )),
            }
        }
        ([], Some(wanted)) if all.is_empty() => {
            refuse(format!("the model has no configuration '{wanted}': it has none at all"))
        }
        ([], Some(wanted)) => {
            refuse(format!("the model has no configuration '{wanted}'; it has {}", names()))
        }
        ([], None) => refuse("the model has no device configuration".into()),
        (_, Some(wanted)) => {
            refuse(format!("the model has several configurations with the name '{wanted}'"))
        }
        (_, None) => refuse(format!("choose one of the configurations of the model: {}", names())),
    }
}

/// A plan for more devices than this is refused: its size is that of the model times their number.
const MOST_DEVICES: usize = 1024;

/// The numbers that symbols of the model's inputs have.
fn symbols_of(
    resolved: &Resolved,
    types: &Inference,
    given: &[(String, i64)],
) -> HashMap<String, usize> {
    let known =
        given.iter().filter_map(|(name, size)| Some((name.clone(), usize::try_from(*size).ok()?)));
    let mut symbols: HashMap<String, usize> = known.collect();
    let model = resolved.model();
    for info in &model.graph(resolved.main()).inputs {
        let declared = info.ty.as_ref().and_then(|ty| model.type_of(ty));
        let found = info.value.and_then(|value| types.ty(value));
        let (Some(declared), Some(found)) = (declared, found) else { continue };
        let dims = declared.shape().into_iter().flatten().zip(found.shape().into_iter().flatten());
        for (declared, found) in dims {
            if let (Some(name), Some(size)) = (declared.as_symbol(), found.size()) {
                symbols.entry(name.to_string()).or_insert(size);
            }
        }
    }
    symbols
}

/// A plan in the making.
struct Planner<'r> {
    plan: Plan,
    prepared: &'r Prepared,
    resolved: &'r Resolved,
    symbols: &'r HashMap<String, usize>,
    /// The graph whose nodes are looked at.
    graph: GraphId,
    numbers: HashMap<Form, FormId>,
    /// The forms that values have, the first one that they were computed in first.
    forms_of: HashMap<ValueId, Vec<FormId>>,
    /// The form that a value is read in where nothing else is asked for, if it is not the first.
    preferred: HashMap<ValueId, FormId>,
    everywhere: FormId,
    /// The devices of each stage.
    stages: BTreeMap<i64, BTreeSet<Device>>,
    /// Where annotations are looked for and not read.
    columns: Option<Columns>,
    /// Nodes that are to be computed on partial sums.
    through: HashSet<NodeId>,
    /// Nodes that need whole what devices have in parts, and that others could take the place of.
    needs_whole: HashSet<NodeId>,
    /// Values that are computed from constants and read once, with the nodes that make them.
    from_constants: HashMap<ValueId, NodeId>,
    /// Those of them that nothing has read yet.
    waiting: HashSet<ValueId>,
}

impl<'r> Planner<'r> {
    fn new(prepared: &'r Prepared, columns: Option<Columns>) -> Self {
        let Prepared { resolved, types, symbols, open, scope, configuration, devices, .. } =
            prepared;
        let plan = Plan {
            model: resolved.model().clone(),
            configuration: configuration.clone(),
            devices: *devices,
            sizes: Vec::new(),
            open: open.clone(),
            scope: scope.clone(),
            forms: Vec::new(),
            steps: Vec::new(),
            not_honored: Vec::new(),
            types: types.clone(),
            added: HashMap::new(),
            outputs: Vec::new(),
            kept: Vec::new(),
            readers: Vec::new(),
        };
        let mut planner = Planner {
            plan,
            prepared,
            resolved,
            symbols,
            graph: resolved.main(),
            numbers: HashMap::new(),
            forms_of: HashMap::new(),
            preferred: HashMap::new(),
            everywhere: FormId(0),
            stages: BTreeMap::new(),
            columns,
            through: HashSet::new(),
            needs_whole: HashSet::new(),
            from_constants: HashMap::new(),
            waiting: HashSet::new(),
        };
        let all = Form::whole(planner.all());
        planner.everywhere = planner.number(all);
        planner
    }

    fn all(&self) -> std::ops::Range<Device> {
        0..Device::try_from(self.plan.devices).unwrap_or(Device::MAX)
    }

    /// The number of a form.
    fn number(&mut self, form: Form) -> FormId {
        if let Some(known) = self.numbers.get(&form) {
            return *known;
        }
        let id = FormId(u32::try_from(self.plan.forms.len()).unwrap_or(u32::MAX));
        self.plan.forms.push(form.clone());
        self.numbers.insert(form, id);
        id
    }

    /// Plans everything.
    fn finish(mut self) -> Self {
        self.take_residents();
        self.find_stages();
        let main = self.resolved.main();
        self.place_nodes_of(main);
        let outputs = self.plan.model.graph(main).outputs.iter().filter_map(|info| info.value);
        for (index, value) in outputs.collect::<Vec<_>>().into_iter().enumerate() {
            let is_returned = !self.prepared.unreturned.contains(&index);
            let given = is_returned.then(|| self.give(value));
            self.plan.outputs.push(given);
        }
        self.keep_residents();
        self.prune();
        self
    }

    /// Decides about the nodes of a graph.
    fn place_nodes_of(&mut self, graph: GraphId) {
        self.graph = graph;
        for node in self.resolved.order_of(graph).to_vec() {
            self.forget_like(node);
            if !self.is_known(node) && !self.waits(node) {
                self.place(node);
            }
        }
    }

    /// Lets an output of the model be where it is to be in the end. One device is the first one if
    /// that has the value, else one that has the value or a part of it.
    fn give(&mut self, value: ValueId) -> Given {
        let at = self.prepared.outputs;
        let everywhere = match at {
            OutputsAt::One => None,
            OutputsAt::All => Some(self.everywhere),
            OutputsAt::Parts => Some(self.current(value)),
        };
        if let Some(form) = everywhere {
            self.need(value, form);
            let by = self.plan.form(form).devices().next().unwrap_or(0);
            return Given { value, form, by, at };
        }
        let has = self.has(value);
        let whole = has.iter().filter(|form| self.plan.form(**form).is_whole());
        let whole: Vec<(Device, FormId)> = whole
            .filter_map(|form| Some((self.plan.form(*form).devices().next()?, *form)))
            .collect();
        if let Some((by, form)) = whole.into_iter().min() {
            return Given { value, form, by, at };
        }
        let current = self.current(value);
        let by = self.plan.form(current).devices().next().unwrap_or(0);
        let form =
            if self.can_move(value) { self.number(Form::whole([by])) } else { self.everywhere };
        self.need(value, form);
        Given { value, form, by, at }
    }

    /// Takes away what no device needs: nodes on devices that read none of what they make, and
    /// moves to devices that do not read what they get.
    fn prune(&mut self) {
        let outputs = self.plan.outputs.iter().flatten().flat_map(|given| {
            let devices = self.all().filter(|device| self.plan.gives(*given, *device));
            devices.map(|device| (given.value, given.form, device))
        });
        let mut needed: HashSet<(ValueId, FormId, Device)> = outputs.collect();
        needed.extend(self.plan.kept_parts());
        let mut kept = Vec::with_capacity(self.plan.steps.len());
        for step in std::mem::take(&mut self.plan.steps).into_iter().rev() {
            match step {
                Step::Move(moved) => {
                    let all = self.plan.form(moved.to);
                    let is_needed =
                        |device: &Device| needed.contains(&(moved.value, moved.form, *device));
                    let takers: BTreeSet<Device> = all.devices().filter(is_needed).collect();
                    if takers.is_empty() {
                        continue;
                    }
                    let only = all.only_on(&takers);
                    let moved = Move { to: self.number(only), ..moved };
                    let givers = self.plan.givers(&moved);
                    needed.extend(givers.into_iter().map(|one| (moved.value, moved.from, one)));
                    kept.push(Step::Move(moved));
                }
                Step::Node(mut computed) => {
                    let outputs = self.plan.model.outputs(computed.node).iter();
                    let made: Vec<(ValueId, FormId)> = outputs
                        .zip(&computed.outputs)
                        .filter_map(|(value, form)| Some(((*value)?, (*form)?)))
                        .collect();
                    let is_needed = |device: Device| {
                        made.iter().any(|(value, form)| needed.contains(&(*value, *form, device)))
                    };
                    if !computed.devices().any(is_needed) {
                        continue;
                    }
                    // All devices take the steps in its graphs together.
                    if computed.bodies.is_none() {
                        computed.assignment.places.retain(|device, _| is_needed(*device));
                    }
                    let of_bodies = computed.bodies.iter().flat_map(Bodies::outputs);
                    needed.extend(of_bodies.flat_map(|(value, form)| {
                        computed.devices().map(move |device| (value, form, device))
                    }));
                    let inputs = self.plan.model.inputs(computed.node).zip(&computed.inputs);
                    let inputs = inputs.filter_map(|(value, form)| Some((value?, (*form)?)));
                    for (value, form) in inputs.chain(computed.captured.iter().copied()) {
                        let reads = |device: &Device| self.plan.form(form).is_on(*device);
                        let devices = computed.devices().filter(reads);
                        needed.extend(devices.map(|device| (value, form, device)));
                    }
                    kept.push(Step::Node(computed));
                }
            }
        }
        kept.reverse();
        self.plan.steps = kept;
        let main = self.plan.model.graph(self.resolved.main());
        let all = 0..u32::try_from(self.plan.devices).unwrap_or(u32::MAX);
        let residents: HashSet<ValueId> = self
            .plan
            .kept
            .iter()
            .filter(|kept| kept.is_given())
            .filter_map(|kept| kept.input)
            .collect();
        let readers = main.inputs.iter().map(|info| match info.value {
            Some(value) if !residents.contains(&value) => {
                let reads = |device: &Device| needed.contains(&(value, self.everywhere, *device));
                all.clone().filter(reads).collect()
            }
            _ => BTreeSet::new(),
        });
        self.plan.readers = readers.collect();
    }

    /// Makes a `CastLike` a `Cast`: of its second input only the type counts, and nobody should
    /// have to send its elements.
    fn forget_like(&mut self, node: NodeId) {
        if !self.resolved.is(node, &CAST_LIKE) {
            return;
        }
        let model = &mut self.plan.model;
        let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
        let like = inputs.get(1).copied().flatten();
        let elem = like.and_then(|like| self.plan.types.ty(like)?.elem());
        if let (Some(x), Some(elem)) = (inputs.first(), elem) {
            model.set_inputs(node, &[*x]);
            model.set_attribute(node, "to", AttrValue::Int(i64::from(elem.number())));
            let op_type = Some(model.intern("Cast"));
            model.node_mut(node).op_type = op_type;
        }
    }

    /// Whether nobody has to compute a node, as inference knows its integers: shapes, mostly. What
    /// is known takes its place.
    fn is_known(&mut self, node: NodeId) -> bool {
        let outputs: Vec<ValueId> =
            self.plan.model.outputs(node).iter().flatten().copied().collect();
        let known = outputs.iter().map(|output| {
            let is_free = !self.plan.model.value(*output).is_output;
            let has_ints = |elem: DataType| elem.is_integer() || elem == DataType::Bool;
            let known = self.plan.types.known(*output);
            let known = known.filter(|known| is_free && has_ints(known.elem()));
            known.and_then(sardonyx_ops::Known::to_tensor)
        });
        let Some(tensors) = known.collect::<Option<Vec<_>>>() else { return false };
        if outputs.is_empty() || self.resolved.is(node, &sardonyx_ops::operators::CONSTANT) {
            return false;
        }
        let graph = self.plan.model.node(node).graph;
        for (output, tensor) in outputs.into_iter().zip(tensors) {
            let dims = Some(tensor.dims().iter().map(|size| Dim::from(*size)).collect());
            let constant = self.plan.model.add_initializer(graph, "known", &tensor);
            self.plan.added.insert(constant, (tensor.data_type(), dims));
            self.plan.model.replace_uses(output, constant, None);
        }
        true
    }

    /// Whether a node waits for what reads its result: a transposed weight, say, is best made in
    /// the form in which it is read.
    fn waits(&mut self, node: NodeId) -> bool {
        let model = &self.plan.model;
        let [Some(output)] = *model.outputs(node) else { return false };
        let is_constant = |value: ValueId| {
            matches!(model.value(value).producer, Producer::Initializer(_))
                || self.from_constants.contains_key(&value)
        };
        let inputs: Vec<ValueId> = model.inputs(node).flatten().collect();
        let graph = model.node(node).graph;
        let is_read_once = model.uses(output).count() == 1
            && model.uses(output).all(|(reader, _)| model.node(reader).graph == graph);
        let waits = !inputs.is_empty()
            && inputs.into_iter().all(is_constant)
            && is_read_once
            && !model.value(output).is_output
            && !self.is_annotated(node)
            && self.rule(node).is_some();
        if waits {
            self.from_constants.insert(output, node);
            self.waiting.insert(output);
        }
        waits
    }

    /// The forms that a value has.
    fn has(&self, value: ValueId) -> Vec<FormId> {
        match self.forms_of.get(&value) {
            Some(forms) => forms.clone(),
            // Inputs and constants are whole, and everybody has them.
            None => vec![self.everywhere],
        }
    }

    /// The form that a value is read in where nothing else is asked for.
    fn current(&mut self, value: ValueId) -> FormId {
        if let Some(preferred) = self.preferred.get(&value) {
            return *preferred;
        }
        let forms = self.has(value);
        let complete = forms.iter().find(|form| self.plan.form(**form).partial().is_none());
        match complete {
            Some(form) => *form,
            None => {
                let combined = self.plan.form(forms[0]).combined();
                self.number(combined)
            }
        }
    }

    /// Element type and sizes of a tensor.
    fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.plan.tensor(value)
    }

    /// Whether a value can be sent: whether it is a tensor of numbers that are whole bytes.
    fn can_move(&self, value: ValueId) -> bool {
        // Elements that share bytes cannot be moved one by one.
        let has_bytes = |elem: DataType| elem.bits().is_some_and(|bits| bits % 8 == 0);
        self.tensor(value).is_some_and(|(elem, _)| has_bytes(elem))
    }

    /// Lets a value have a form.
    fn need(&mut self, value: ValueId, to: FormId) {
        if self.waiting.remove(&value)
            && let Some(node) = self.from_constants.get(&value).copied()
        {
            self.place_for(node, to);
        }
        let has = self.has(value);
        if has.contains(&to) {
            return;
        }
        let Some((elem, dims)) = self.tensor(value) else { return };
        let is_near =
            |form: &FormId| is_within(self.plan.form(*form), self.plan.form(to), dims.as_deref());
        let is_complete = |form: &FormId| self.plan.form(*form).partial().is_none();
        let from = has.iter().copied().find(is_near);
        let from = from.or_else(|| has.iter().copied().find(is_complete)).unwrap_or(has[0]);
        let graph = self.graph;
        self.plan.steps.push(Step::Move(Move { value, graph, from, to, form: to, elem, dims }));
        let everywhere = self.everywhere;
        self.forms_of.entry(value).or_insert_with(|| vec![everywhere]).push(to);
    }

    /// What is known of an operand, if it is a tensor whose sizes follow from those of inputs.
    fn operand(&self, value: ValueId) -> Option<Operand> {
        let (elem, dims) = self.tensor(value)?;
        let known = match self.plan.model.value(value).producer {
            // What the plan added has its numbers in the file alone.
            Producer::Initializer(_) if self.plan.added.contains_key(&value) => {
                let initializer = self.plan.model.initializer(value)?;
                let tensor =
                    self.plan.model.tensor(&initializer.tensor, &sardonyx_model::NoExternalData);
                tensor.ok().and_then(|tensor| sardonyx_ops::Known::Tensor(tensor).ints())
            }
            _ => self.plan.types.known(value).and_then(|known| known.ints()),
        };
        Some(Operand { elem, dims: dims?, known })
    }

    fn name(&self, value: ValueId) -> String {
        self.plan.model.display(Some(self.plan.model.value(value).name)).into_owned()
    }

    /// Notes what is not done.
    fn refuse(&mut self, node: NodeId, tensor: Option<&[u8]>, why: impl Into<String>) {
        let tensor = tensor.map(|name| String::from_utf8_lossy(name).into_owned());
        let note = NotHonored { node, tensor, why: why.into() };
        if !self.plan.not_honored.contains(&note) {
            self.plan.not_honored.push(note);
        }
    }

    /// The values that a node, and the graphs in it, read from the graph around and further out,
    /// each once, in an order that is the same in every process: the steps of a plan follow it.
    fn reads_of(&self, node: NodeId) -> Vec<ValueId> {
        let model = &self.plan.model;
        let mut reads = crate::order::reads(model, node);
        let inner: HashSet<GraphId> = crate::order::inner_graphs(model, node)
            .flat_map(|graph| crate::order::tree(model, graph))
            .collect();
        reads.retain(|value| !inner.contains(&model.value(*value).graph));
        reads.sort_unstable();
        reads.dedup();
        reads
    }
}
