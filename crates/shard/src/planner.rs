//! The planner: decides about the nodes of a model in order.

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

pub(crate) fn of_prepared(prepared: Prepared, options: ShardOptions<'_>) -> Plan {
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

/// A plan in the making.
pub(crate) struct Planner<'r> {
    pub(crate) plan: Plan,
    pub(crate) prepared: &'r Prepared,
    pub(crate) resolved: &'r Resolved,
    pub(crate) symbols: &'r HashMap<String, usize>,
    /// The graph whose nodes are looked at.
    pub(crate) graph: GraphId,
    pub(crate) numbers: HashMap<Form, FormId>,
    /// The forms that values have, the first one that they were computed in first.
    pub(crate) forms_of: HashMap<ValueId, Vec<FormId>>,
    /// The form that a value is read in where nothing else is asked for, if it is not the first.
    pub(crate) preferred: HashMap<ValueId, FormId>,
    pub(crate) everywhere: FormId,
    /// The devices of each stage.
    pub(crate) stages: BTreeMap<i64, BTreeSet<Device>>,
    /// Where annotations are looked for and not read.
    pub(crate) columns: Option<Columns>,
    /// Nodes that are to be computed on partial sums.
    pub(crate) through: HashSet<NodeId>,
    /// Nodes that need whole what devices have in parts, and that others could take the place of.
    pub(crate) needs_whole: HashSet<NodeId>,
    /// Values that are computed from constants and read once, with the nodes that make them.
    pub(crate) from_constants: HashMap<ValueId, NodeId>,
    /// Those of them that nothing has read yet.
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

    /// The number of a form.
    pub(crate) fn number(&mut self, form: Form) -> FormId {
        if let Some(known) = self.numbers.get(&form) {
            return *known;
        }
        let id = FormId(u32::try_from(self.plan.forms.len()).unwrap_or(u32::MAX));
        self.plan.forms.push(form.clone());
        self.numbers.insert(form, id);
        id
    }

    /// Plans everything.
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

    /// Decides about the nodes of a graph.
    pub(crate) fn place_nodes_of(&mut self, graph: GraphId) {
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

    /// Element type and sizes of a tensor.
    pub(crate) fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.plan.tensor(value)
    }

    /// Whether a value can be sent: whether it is a tensor of numbers that are whole bytes.
    pub(crate) fn can_move(&self, value: ValueId) -> bool {
        // Elements that share bytes cannot be moved one by one.
        let has_bytes = |elem: DataType| elem.bits().is_some_and(|bits| bits % 8 == 0);
        self.tensor(value).is_some_and(|(elem, _)| has_bytes(elem))
    }

    /// Lets a value have a form.
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

    /// What is known of an operand, if it is a tensor whose sizes follow from those of inputs.
    pub(crate) fn operand(&self, value: ValueId) -> Option<Operand> {
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

    pub(crate) fn name(&self, value: ValueId) -> String {
        self.plan.model.display(Some(self.plan.model.value(value).name)).into_owned()
    }

    /// Notes what is not done.
    pub(crate) fn refuse(&mut self, node: NodeId, tensor: Option<&[u8]>, why: impl Into<String>) {
        let tensor = tensor.map(|name| String::from_utf8_lossy(name).into_owned());
        let note = NotHonored { node, tensor, why: why.into() };
        if !self.plan.not_honored.contains(&note) {
            self.plan.not_honored.push(note);
        }
    }

    /// The values that a node, and the graphs in it, read from the graph around and further out,
    /// each once, in an order that is the same in every process: the steps of a plan follow it.
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
