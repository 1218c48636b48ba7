//! Planner: decides for the nodes of a model, in order, where and in which forms they run.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{AttrValue, Dim, GraphId, Model, NodeId, Producer, Shape, ValueId};
use sardonyx_ops::operators::CAST_LIKE;
use sardonyx_ops::{Operand, Registry};
use sardonyx_passes::Resolved;
use sardonyx_passes::order::{self, inner_graphs, tree};
use sardonyx_tensor::DataType;

use crate::form::{Device, Form};
use crate::linear;
use crate::options::{OutputsAt, ShardError, ShardOptions};
use crate::plan::{FormId, Given, Move, NotHonored, Plan, Step};
use crate::prepare::{Prepared, prepare};
use crate::sizes::{needed, nominal, with_numbers};
use crate::suggest::Columns;
use crate::transfers::is_within;

/// Makes a plan for a model that was [prepared](crate::prepare_to_shard). A node that is not of the
/// newest version of its operator runs whole.
///
/// # Errors
///
/// A configuration that does not exist or is ambiguous; findings because of which the model cannot
/// run.
pub fn shard(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Plan, ShardError> {
    if options.residents.iter().all(|resident| resident.form.is_some()) {
        return planned(model, registry, options);
    }
    // A first plan, with whole residents, shows in which form devices read them.
    let open = planned(model.clone(), registry, options)?;
    let residents = open.settled(options.residents);
    planned(model, registry, ShardOptions { residents: &residents, ..options })
}

/// Makes a plan in which residents have their given forms; one without a form is whole on all
/// devices.
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

/// Returns the cheapest plan for a prepared model: the first of the candidates that cost the least.
pub(crate) fn of_prepared(prepared: Prepared, options: ShardOptions<'_>) -> Plan {
    let Candidates { first, mut others, needs_whole } = Candidates::list(&prepared);
    if !needs_whole.is_empty()
        && let Some(prepared) = prepared.with_split_nodes(&needs_whole, options)
    {
        // In these plans the nodes are expanded into nodes that can be computed in parts.
        let split = Candidates::list(&prepared);
        others.push(split.first);
        others.extend(split.others);
    }
    let cheaper = |best: Plan, plan: Plan| {
        if PlanCost::new(&plan) < PlanCost::new(&best) { plan } else { best }
    };
    others.into_iter().fold(first, cheaper)
}

/// Plans for a prepared model, of which one is chosen.
struct Candidates {
    first: Plan,
    others: Vec<Plan>,
    /// Nodes that need whole values of which devices have parts, and that can be expanded.
    needs_whole: HashSet<NodeId>,
}

impl Candidates {
    /// Makes a plan, and another one in which linear nodes are computed on partial sums, if there
    /// are such nodes.
    fn list(prepared: &Prepared) -> Candidates {
        let planner = Planner::new(prepared, None).finish();
        let through = linear::find_nodes(&planner);
        let mut others = Vec::new();
        if !through.is_empty() {
            let mut on_sums = Planner::new(prepared, None);
            on_sums.through = through;
            others.push(on_sums.finish().plan);
        }
        Candidates { first: planner.plan, others, needs_whole: planner.needs_whole }
    }
}

/// Cost of a plan.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlanCost {
    /// Number of annotations that it does not follow.
    not_honored: usize,
    /// Bytes that it sends at nominal sizes.
    bytes: u64,
}

impl PlanCost {
    fn new(plan: &Plan) -> PlanCost {
        PlanCost { not_honored: plan.not_honored.len(), bytes: nominal(&plan.bytes()) }
    }
}

/// State of a plan that is being made.
pub(crate) struct Planner<'r> {
    pub(crate) plan: Plan,
    pub(crate) prepared: &'r Prepared,
    pub(crate) resolved: &'r Resolved,
    pub(crate) symbols: &'r HashMap<String, usize>,
    /// Graph whose nodes are being placed.
    pub(crate) graph: GraphId,
    pub(crate) numbers: HashMap<Form, FormId>,
    /// Forms of values, first the one in which a value is computed.
    pub(crate) forms_of: HashMap<ValueId, Vec<FormId>>,
    /// Form in which a value is read by default, if it is not the first one.
    pub(crate) preferred: HashMap<ValueId, FormId>,
    pub(crate) everywhere: FormId,
    /// Devices of each pipeline stage.
    pub(crate) stages: BTreeMap<i64, BTreeSet<Device>>,
    /// State of a search for annotations, in which those of the model are not read.
    pub(crate) columns: Option<Columns>,
    /// Linear nodes that are computed on partial sums.
    pub(crate) through: HashSet<NodeId>,
    /// Nodes that need whole values of which devices have parts, and that can be expanded.
    pub(crate) needs_whole: HashSet<NodeId>,
    /// Values that are computed from constants and read once, with their nodes.
    pub(crate) from_constants: HashMap<ValueId, NodeId>,
    /// Values of [`from_constants`](Self::from_constants) that no node has read yet.
    pub(crate) waiting: HashSet<ValueId>,
}

impl<'r> Planner<'r> {
    pub(crate) fn new(prepared: &'r Prepared, columns: Option<Columns>) -> Self {
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

    pub(crate) fn all(&self) -> std::ops::Range<Device> {
        0..Device::try_from(self.plan.devices).unwrap_or(Device::MAX)
    }

    /// Returns the number of a form, a new one if the plan does not have the form.
    pub(crate) fn number(&mut self, form: Form) -> FormId {
        if let Some(known) = self.numbers.get(&form) {
            return *known;
        }
        let id = FormId(u32::try_from(self.plan.forms.len()).unwrap_or(u32::MAX));
        self.plan.forms.push(form.clone());
        self.numbers.insert(form, id);
        id
    }

    /// Places all nodes and outputs.
    pub(crate) fn finish(mut self) -> Self {
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

    /// Places the nodes of a graph.
    pub(crate) fn place_nodes_of(&mut self, graph: GraphId) {
        self.graph = graph;
        for node in self.resolved.order_of(graph).to_vec() {
            self.forget_like(node);
            if !self.is_known(node) && !self.waits(node) {
                self.place(node);
            }
        }
    }

    /// Moves an output of the model to the devices that have it after a run. If that is one device,
    /// it is the first one that has the whole value, else the first one that has a part of it.
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

    /// Replaces a `CastLike` by a `Cast`: only the type of its second input counts, so its elements
    /// are not sent.
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

    /// Replaces a node by constants if inference knows its outputs, mostly shapes. Returns whether
    /// it does.
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

    /// Whether a node is placed when its reader is: a transposed weight, for example, is best made
    /// in the form in which it is read.
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

    /// Returns the forms of a value.
    fn has(&self, value: ValueId) -> Vec<FormId> {
        match self.forms_of.get(&value) {
            Some(forms) => forms.clone(),
            // Inputs and constants are whole on all devices.
            None => vec![self.everywhere],
        }
    }

    /// Returns the form in which a value is read by default.
    pub(crate) fn current(&mut self, value: ValueId) -> FormId {
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

    /// Returns the element type and the sizes of a tensor.
    pub(crate) fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.plan.tensor(value)
    }

    /// Whether a value can be sent: a tensor whose elements are whole bytes.
    pub(crate) fn can_move(&self, value: ValueId) -> bool {
        // Elements that share bytes cannot be moved one by one.
        let has_bytes = |elem: DataType| elem.bits().is_some_and(|bits| bits % 8 == 0);
        self.tensor(value).is_some_and(|(elem, _)| has_bytes(elem))
    }

    /// Moves a value to a form unless it has that form.
    pub(crate) fn need(&mut self, value: ValueId, to: FormId) {
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

    /// Describes an operand. `None` unless it is a tensor whose sizes follow from those of inputs.
    pub(crate) fn operand(&self, value: ValueId) -> Option<Operand> {
        let (elem, dims) = self.tensor(value)?;
        let known = match self.plan.model.value(value).producer {
            // Inference does not know constants that the planner added.
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

    pub(crate) fn name(&self, value: ValueId) -> String {
        self.plan.model.display(Some(self.plan.model.value(value).name)).into_owned()
    }

    /// Records an annotation that is not followed.
    pub(crate) fn refuse(&mut self, node: NodeId, tensor: Option<&[u8]>, why: impl Into<String>) {
        let tensor = tensor.map(|name| String::from_utf8_lossy(name).into_owned());
        let note = NotHonored { node, tensor, why: why.into() };
        if !self.plan.not_honored.contains(&note) {
            self.plan.not_honored.push(note);
        }
    }

    /// Returns the values that a node and the graphs in it read from graphs around the node, each
    /// once, in an order that is the same in every process, as the steps of a plan depend on it.
    pub(crate) fn reads_of(&self, node: NodeId) -> Vec<ValueId> {
        let model = &self.plan.model;
        let mut reads = order::reads(model, node);
        let inner: HashSet<GraphId> =
            inner_graphs(model, node).flat_map(|graph| tree(model, graph)).collect();
        reads.retain(|value| !inner.contains(&model.value(*value).graph));
        reads.sort_unstable();
        reads.dedup();
        reads
    }
}
