//! Annotations for a model that has none: they split its products, heads and tables, divide its
//! nodes into pipeline stages, or split the batch.

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, GraphId, Model, NodeId, Producer, Type, ValueId, ValueInfo};
use sardonyx_ops::operators::{GATHER, GEMM, MATMUL};
use sardonyx_ops::{Cut, Registry};
use sardonyx_passes::{
    FactorSize, JobInput, JobKind, NodeAnnotation, ShardedDim, ShardingSpec, SimpleShardedDim, Sum,
    add_configuration, annotate_devices, at_assumed_sizes, configurations, cost_of_inferred,
    node_multiply_adds, raise_ir_version,
};

use crate::form::{Device, Form, Place, Split, SplitAxis};
use crate::options::{ShardError, ShardOptions};
use crate::plan::{Computed, FormId, Step};
use crate::planner::{Planner, of_prepared};
use crate::prepare::{Prepared, inlined, newest_forms, prepare};

/// Scheme that divides a model among devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Tensor parallelism: matrix products with constant right operands are split by columns and,
    /// where the split extends to a later product, that product by rows, so that one sum over all
    /// devices is the only exchange for the two. Attention is split by heads, and large embedding
    /// tables by rows. The scheme is that of Shoeybi et al., "Megatron-LM: Training Multi-Billion
    /// Parameter Language Models Using Model Parallelism", 2019.
    Tensor,
    /// Pipeline parallelism: the nodes are divided into one stage for each device. Stages have
    /// about equal work, measured in multiply-adds and in elements read and written.
    Pipeline,
    /// Data parallelism: the examples of a batch are split along the first axis of the first input
    /// that has axes, and of all other inputs whose first axis has that size. All devices hold all
    /// weights. In training, the gradients of each device are partial sums.
    Batch,
}

/// Statistics of a division of a model among devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardReport {
    /// Number of products whose matrices are split by columns.
    pub columns: usize,
    /// Number of products whose matrices are split by rows.
    pub rows: usize,
    /// Number of products with constant matrices that are not split, because their whole results
    /// would be needed.
    pub whole: usize,
    /// Number of tables that are split by rows.
    pub tables: usize,
    /// Multiply-adds of each stage of a pipeline, in the order of the devices; empty for other
    /// divisions.
    pub stages: Vec<u64>,
    /// Number of inputs whose first axis is split.
    pub inputs: usize,
    /// Number of nodes that compute a part of the batch, if the batch is split.
    pub in_parts: usize,
    /// Number of nodes with multiply-adds in subgraphs, such as branches of an `If`, which are not
    /// divided.
    pub inside: usize,
}

/// Minimum number of elements of a matrix that is split: a smaller one is not worth a message.
const SMALLEST_MATRIX: usize = 1 << 12;

/// Minimum number of elements of a table that is split: a smaller one is not worth a sum over all
/// devices.
const SMALLEST_TABLE: usize = 1 << 20;

/// Minimum number of multiply-adds per element of a product for which the element takes longer to
/// compute than to send.
const WORTH_SENDING: usize = 256;

/// Multiply-adds that take about as long as reading or writing one element: a core that computes 60
/// billion multiply-adds per second reads 15 GB per second from memory, at 4 bytes per element.
const ELEMENT_WORK: u64 = 16;

/// Returns the model with a configuration of this name and number of devices, and with annotations
/// for it. Inlines calls of functions first. Each open size is assumed to be 64, or another size if
/// the model does not accept 64.
///
/// # Errors
///
/// A configuration of this name that the model already has; findings because of which the model
/// cannot run.
pub fn suggest(
    model: &Model,
    registry: &Registry,
    (name, devices): (&str, usize),
    division: Division,
    options: ShardOptions<'_>,
) -> Result<(Model, ShardReport), ShardError> {
    if configurations(model).iter().any(|known| known.name == name.as_bytes()) {
        let why = format!("the model has a configuration '{name}' already");
        return Err(ShardError::Configuration(why));
    }
    let (mut annotated, origins) = inlined(model, registry)?;
    add_configuration(&mut annotated, name, devices);
    let prepared = with_sizes(&annotated, registry, name, options)?;
    // Nodes that conversion to newest versions adds are not in the model, and get no annotations.
    let known: HashSet<NodeId> =
        annotated.main_graph().into_iter().flat_map(|main| &main.nodes).copied().collect();
    // Version 11 of the format added configurations.
    raise_ir_version(&mut annotated, 11);
    let inner = InnerWork::of(&prepared, registry);
    let mut report = ShardReport::default();
    match division {
        Division::Batch => {
            report.inputs = split_batch(&mut annotated, (name, devices))?;
            let again = with_sizes(&annotated, registry, name, options)?;
            let options = ShardOptions { configuration: Some(name), ..options };
            report.in_parts = of_prepared(again, options).facts().in_parts;
        }
        Division::Tensor => {
            let mut declined: HashSet<NodeId> = HashSet::new();
            loop {
                let planner = Planner::new(&prepared, Some(Columns::new(&declined)));
                let planned = planner.finish();
                let bad = gathered(&planned);
                if bad.iter().all(|node| declined.contains(node)) {
                    report = split_products((&mut annotated, &known), &planned, name);
                    break;
                }
                declined.extend(bad);
            }
        }
        Division::Pipeline => {
            let planner = Planner::new(&prepared, None);
            let resolved = planner.resolved;
            let order = resolved.order_of(resolved.main()).to_vec();
            let multiply_adds = |node: NodeId| {
                let own = node_multiply_adds(resolved, &prepared.types, node).unwrap_or(0);
                own.saturating_add(inner.of_node(node).0)
            };
            let work = |node: NodeId| {
                let model = resolved.model();
                let operands = model.inputs(node).chain(model.outputs(node).iter().copied());
                let elements = operands.flatten().map(|value| planner.elements(value));
                let elements = elements.fold(inner.of_node(node).1, u64::saturating_add);
                multiply_adds(node).saturating_add(elements.saturating_mul(ELEMENT_WORK))
            };
            let all: u64 = order.iter().map(|node| work(*node)).sum();
            report.stages = vec![0; devices];
            let mut done = 0u64;
            for node in order {
                let own = work(node);
                let middle = done + own / 2;
                let stage =
                    (u128::from(middle) * devices as u128 / u128::from(all.max(1))) as usize;
                let stage = stage.min(devices - 1);
                done += own;
                report.stages[stage] += multiply_adds(node);
                if known.contains(&node) {
                    let annotation = NodeAnnotation {
                        configuration: name.as_bytes(),
                        specs: Vec::new(),
                        stage: i64::try_from(stage).ok(),
                    };
                    annotate_devices(&mut annotated, node, &annotation);
                }
            }
        }
    }
    report.inside = inner.nodes;
    let input = JobInput { job: JobKind::Shard, model, registry };
    let accepted = input.accept(annotated, &origins).map_err(ShardError::Rejected)?;
    Ok((accepted.model, report))
}

/// Work in the graphs of nodes.
struct InnerWork {
    /// Multiply-adds and elements of all graphs in a node of the main graph.
    by_node: HashMap<NodeId, (u64, u64)>,
    /// Number of nodes with multiply-adds in such graphs.
    nodes: usize,
}

impl InnerWork {
    fn of(prepared: &Prepared, registry: &Registry) -> InnerWork {
        let model = prepared.resolved.model();
        let mut inner = InnerWork { by_node: HashMap::new(), nodes: 0 };
        for cost in cost_of_inferred(model, registry, &prepared.types).nodes {
            let Some(owner) = main_node_around(model, cost.graph) else { continue };
            let size = |sum: &Sum| u64::try_from(at_assumed_sizes(&sum.known)).unwrap_or(0);
            inner.nodes += usize::from(size(&cost.work.multiply_adds) > 0);
            let sum = inner.by_node.entry(owner).or_default();
            sum.0 = sum.0.saturating_add(size(&cost.work.multiply_adds.times(&cost.runs)));
            sum.1 = sum.1.saturating_add(size(&cost.work.elements.times(&cost.runs)));
        }
        inner
    }

    fn of_node(&self, node: NodeId) -> (u64, u64) {
        self.by_node.get(&node).copied().unwrap_or_default()
    }
}

/// Returns the node of the main graph that contains a graph; `None` for the main graph.
fn main_node_around(model: &Model, graph: GraphId) -> Option<NodeId> {
    let mut owner = None;
    let mut graph = graph;
    while let Some(around) = model.graph(graph).owner {
        owner = Some(around);
        graph = model.node(around).graph;
    }
    owner
}

/// Annotates nodes so that they read the first axis of batched inputs in parts, one for each
/// device. Returns the number of these inputs.
fn split_batch(model: &mut Model, (name, devices): (&str, usize)) -> Result<usize, ShardError> {
    let Some(main) = model.main_graph() else { return Ok(0) };
    let constants: HashSet<ValueId> =
        main.initializers.iter().filter_map(|initializer| initializer.value).collect();
    let first_axis = |info: &ValueInfo| {
        let ty = model.type_of(info.ty.as_ref()?)?;
        let axis = ty.shape()?.first()?.clone();
        info.value.filter(|value| !constants.contains(value)).map(|value| (value, axis))
    };
    let inputs: Vec<(ValueId, Dim)> = main.inputs.iter().filter_map(first_axis).collect();
    let Some((_, batch)) = inputs.first().cloned() else {
        let why = "the model has no input with a batch axis: no shape of an input is declared";
        return Err(ShardError::Configuration(why.into()));
    };
    let split: Vec<ValueId> =
        inputs.into_iter().filter(|(_, axis)| *axis == batch).map(|(value, _)| value).collect();
    let nodes = main.nodes.clone();
    for node in nodes {
        let read: BTreeSet<ValueId> =
            model.inputs(node).flatten().filter(|value| split.contains(value)).collect();
        if read.is_empty() {
            continue;
        }
        let tensors: Vec<Vec<u8>> =
            read.into_iter().map(|value| model.text(model.value(value).name).to_vec()).collect();
        let spec = |tensor| {
            let parts = SimpleShardedDim { size: None, num_shards: i64::try_from(devices).ok() };
            ShardingSpec {
                tensor,
                devices: (0..devices).filter_map(|device| i64::try_from(device).ok()).collect(),
                dims: vec![ShardedDim { axis: Some(0), factors: vec![parts] }],
                ..ShardingSpec::default()
            }
        };
        let specs = tensors.iter().map(|tensor| spec(&tensor[..])).collect();
        let annotation = NodeAnnotation { configuration: name.as_bytes(), specs, stage: None };
        annotate_devices(model, node, &annotation);
    }
    Ok(split.len())
}

/// Sizes to try for all open sizes, in this order, until the model accepts one: a model may limit
/// the number of positions, or need an image of a minimum size.
const ASSUMED_SIZES: [i64; 4] = [64, 224, 16, 1];

/// Prepares the model with numbers for all sizes, which splitting needs.
fn with_sizes(
    annotated: &Model,
    registry: &Registry,
    name: &str,
    options: ShardOptions<'_>,
) -> Result<Prepared, ShardError> {
    let mut refused = None;
    for size in ASSUMED_SIZES {
        let inputs = with_assumed_sizes(annotated, options, size);
        let options = ShardOptions { configuration: Some(name), inputs: &inputs, ..options };
        match prepare(newest_forms(annotated.clone(), registry), registry, options) {
            Ok(prepared) => return Ok(prepared),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.expect("sizes were tried"))
}

/// Returns the types of inputs with a number for each size.
fn with_assumed_sizes(model: &Model, options: ShardOptions<'_>, assumed: i64) -> Vec<Option<Type>> {
    let Some(main) = model.main_graph() else { return Vec::new() };
    let given = options.inputs.iter().chain(std::iter::repeat(&None));
    let types = main.inputs.iter().zip(given).map(|(info, given)| {
        let declared = || info.ty.as_ref().and_then(|ty| model.type_of(ty));
        let ty = given.clone().or_else(declared)?;
        let number = |name: &str| {
            let known = options.symbols.iter().find(|(known, _)| known == name);
            Some(Dim::Known(known.map_or(assumed, |(_, size)| *size)))
        };
        let mut ty = ty.substitute(&number);
        ty.for_each_dim(&mut |dim| {
            if dim.is_unknown() {
                *dim = Dim::Known(assumed);
            }
        });
        Some(ty)
    });
    types.collect()
}

/// State of the search for products that can be split by columns.
#[derive(Default)]
pub(super) struct Columns {
    declined: HashSet<NodeId>,
    /// Products that are split in the plan.
    chosen: BTreeSet<NodeId>,
    /// Products whose split each value has.
    from: HashMap<ValueId, BTreeSet<NodeId>>,
}

impl Columns {
    fn new(declined: &HashSet<NodeId>) -> Columns {
        Columns { declined: declined.clone(), ..Columns::default() }
    }

    /// Records the products from which the splits of a node's outputs come.
    pub(super) fn note(
        &mut self,
        node: NodeId,
        split_inputs: &[ValueId],
        split_outputs: &[ValueId],
    ) {
        let mut from: BTreeSet<NodeId> = split_inputs
            .iter()
            .filter_map(|value| self.from.get(value))
            .flat_map(|products| products.iter().copied())
            .collect();
        from.extend(self.chosen.get(&node));
        for value in split_outputs {
            self.from.insert(*value, from.clone());
        }
    }
}

impl Planner<'_> {
    /// Returns the right operand of a product, if it is a large constant matrix, and its sizes.
    fn matrix(&self, node: NodeId) -> Option<(ValueId, [usize; 2])> {
        let is_product = self.resolved.is(node, &MATMUL) || self.resolved.is(node, &GEMM);
        let value = self.plan.model.inputs(node).nth(1).flatten().filter(|_| is_product)?;
        let is_constant = matches!(self.plan.model.value(value).producer, Producer::Initializer(_))
            || self.from_constants.contains_key(&value);
        let (_, dims) = self.plan.tensor(value)?;
        let [rows, columns] = dims?.iter().map(Dim::size).collect::<Option<Vec<_>>>()?[..] else {
            return None;
        };
        (is_constant && rows * columns >= SMALLEST_MATRIX).then_some((value, [rows, columns]))
    }

    /// Whether devices compute partial results of a node.
    fn is_summed(&self, computed: &Computed) -> bool {
        let mut forms = computed.outputs.iter().flatten();
        forms.any(|form| self.plan.form(*form).partial().is_some())
    }

    /// Returns the left operand of a product with a constant matrix, if devices compute partial
    /// results that are larger than the operand.
    fn has_less_to_read(&self, computed: &Computed) -> Option<ValueId> {
        self.matrix(computed.node).filter(|_| self.is_summed(computed))?;
        let left = self.plan.model.inputs(computed.node).next().flatten()?;
        let output = self.plan.model.outputs(computed.node).first().copied().flatten()?;
        (self.bytes(output) > self.bytes(left)).then_some(left)
    }

    /// Returns the form that splits the constant matrix of a product by columns, and records the
    /// product. `None` if the product is declined or its left operand is split.
    pub(super) fn columns_of(&mut self, node: NodeId) -> Option<FormId> {
        let is_open = self.columns.as_ref().is_some_and(|own| !own.declined.contains(&node));
        let (_, dims) = self.matrix(node).filter(|_| is_open)?;
        let left = self.plan.model.inputs(node).next().flatten()?;
        let form = self.current(left);
        if !self.plan.form(form).is_whole() {
            return None;
        }
        let rule = self.rule(node)?;
        let last = rule.outputs.first()?.last()?;
        let axis = rule.inputs[1].iter().position(|axis| axis == last)?;
        let parts = self.plan.devices;
        if dims[axis] < parts || parts < 2 {
            return None;
        }
        let mut axes = [SplitAxis::new(), SplitAxis::new()];
        axes[axis] = self.split_of_columns(node, dims[axis])?;
        let places = self.all().map(|device| (device, std::iter::once(device as usize).collect()));
        let form = Form::new(axes.to_vec(), None, places.collect());
        self.columns.as_mut()?.chosen.insert(node);
        Some(self.number(form))
    }
}

/// Maximum number of values that are visited to find the readers of a product's columns.
const FAR: usize = 32;

impl Planner<'_> {
    /// Returns a split of the columns of a product whose parts later nodes can use. If the columns
    /// are queries, keys and values, each of the three is split. If they are heads, each device has
    /// whole heads. `None` if there are fewer columns or heads than devices.
    fn split_of_columns(&self, product: NodeId, size: usize) -> Option<SplitAxis> {
        let parts = self.plan.devices;
        let model = &self.plan.model;
        let last = |value: ValueId| Some((value, self.tensor(value)?.1?.len().checked_sub(1)?));
        let output = model.outputs(product).first().copied().flatten();
        let mut split = SplitAxis::new();
        let mut size = size;
        let mut open: Vec<(ValueId, usize)> = output.and_then(last).into_iter().collect();
        let mut at = 0;
        while let Some((value, axis)) = open.get(at).copied().filter(|_| at < FAR) {
            at += 1;
            for (reader, index) in model.uses(value) {
                let Some(rule) = self.rule(reader) else { continue };
                let is_cut = |factor: usize| rule.factors[factor].cut == Cut::Parts;
                let number = |factor: usize| rule.factors[factor].size.size();
                let axes = rule.inputs.get(index).and_then(|axes| axes.get(axis));
                let inner = match axes.map_or(&[][..], |axes| &axes[..]) {
                    [outer, inner] if !is_cut(*outer) && is_cut(*inner) && split.is_empty() => {
                        let (Some(groups), Some(inner_size)) = (number(*outer), number(*inner))
                        else {
                            continue;
                        };
                        split.push(Split { size: groups, parts: 1 });
                        size = inner_size;
                        // All other readers separate the groups as well, or need them whole.
                        open.truncate(at);
                        *inner
                    }
                    [heads, _, ..] if is_cut(*heads) => {
                        let heads = number(*heads).filter(|heads| *heads >= parts)?;
                        split.push(Split { size: heads, parts });
                        split.push(Split { size: size / heads, parts: 1 });
                        return Some(split);
                    }
                    [factor] if is_cut(*factor) => *factor,
                    _ => continue,
                };
                let outputs = model.outputs(reader).iter().zip(&rule.outputs);
                open.extend(outputs.filter_map(|(output, axes)| {
                    let to = axes.iter().position(|axes| axes[..] == [inner]);
                    Some(((*output)?, to?))
                }));
            }
        }
        split.push(Split { size, parts });
        (size >= parts).then_some(split)
    }

    /// Returns the form that splits the table of a lookup by rows, if the table is large.
    pub(super) fn rows_of(&mut self, node: NodeId) -> Option<FormId> {
        self.columns.as_ref()?;
        let (value, rows) = self.table(node)?;
        let parts = self.plan.devices;
        let rank = self.tensor(value)?.1?.len();
        let rule = self.rule(node)?;
        let is_summed = |factor: &usize| matches!(rule.factors[*factor].cut, Cut::Combined(_));
        if rows < parts || parts < 2 || !rule.inputs.first()?.first()?.iter().any(is_summed) {
            return None;
        }
        let mut axes = vec![SplitAxis::new(); rank];
        axes[0].push(Split { size: rows, parts });
        let places = self.all().map(|device| (device, std::iter::once(device as usize).collect()));
        let form = Form::new(axes, None, places.collect());
        Some(self.number(form))
    }

    /// Returns the constant table that a node gathers rows from, if it is large, and the number of
    /// its rows.
    fn table(&self, node: NodeId) -> Option<(ValueId, usize)> {
        let value = self.plan.model.inputs(node).next().flatten()?;
        let is_constant = matches!(self.plan.model.value(value).producer, Producer::Initializer(_));
        let is_large = self.elements(value) >= SMALLEST_TABLE as u64;
        if !self.resolved.is(node, &GATHER) || !is_constant || !is_large {
            return None;
        }
        let (_, dims) = self.tensor(value)?;
        Some((value, dims?.first()?.size()?))
    }
}

/// Returns the products that should not be split.
///
/// Devices would have to send each other all parts of their results. Parts that are sent only
/// because the value is an output of the model do not count if nodes also read them, such as keys
/// and values of attention, or if computing the product on one device takes longer than sending its
/// result. The split is not worth it either if a later product has partial results that are larger
/// than its left operand.
fn gathered(planner: &Planner<'_>) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::new();
    let Some(columns) = &planner.columns else { return found };
    let mut read: HashSet<(ValueId, FormId)> = HashSet::new();
    for step in &planner.plan.steps {
        let Step::Node(computed) = step else { continue };
        if let Some(left) = planner.has_less_to_read(computed) {
            found.extend(columns.from.get(&left).into_iter().flatten().copied());
        }
        let inputs = planner.plan.model.inputs(computed.node).zip(&computed.inputs);
        read.extend(inputs.filter_map(|(value, form)| Some((value?, (*form)?))));
        read.extend(computed.captured.iter().copied());
    }
    for step in &planner.plan.steps {
        let Step::Move(moved) = step else { continue };
        let from = planner.plan.form(moved.from);
        let is_gather = !from.is_whole() && from.partial().is_none();
        let products = || columns.from.get(&moved.value).into_iter().flatten().copied();
        let is_long = |product: NodeId| {
            planner
                .matrix(product)
                .is_some_and(|(_, [rows, columns])| rows.min(columns) >= WORTH_SENDING)
        };
        let is_given_alone = planner.plan.model.value(moved.value).is_output
            && (read.contains(&(moved.value, moved.from)) || products().all(is_long))
            && !read.contains(&(moved.value, moved.form));
        if is_gather && !is_given_alone && !planner.plan.is_local(moved) {
            found.extend(products());
        }
    }
    found
}

/// Annotates products and tables with their splits in the plan, and counts them.
fn split_products(
    (model, own): (&mut Model, &HashSet<NodeId>),
    planner: &Planner<'_>,
    name: &str,
) -> ShardReport {
    let mut report = ShardReport::default();
    for step in &planner.plan.steps {
        let Step::Node(computed) = step else { continue };
        let form = |input: usize| {
            let form = computed.inputs.get(input).copied().flatten();
            form.map(|form| planner.plan.form(form)).filter(|form| !form.is_whole())
        };
        let (value, dims, form) = if let Some((value, dims)) = planner.matrix(computed.node) {
            let Some(form) = form(1) else {
                report.whole += 1;
                continue;
            };
            *if planner.is_summed(computed) { &mut report.rows } else { &mut report.columns } += 1;
            (value, dims.to_vec(), form)
        } else if let (Some((value, rows)), Some(form)) = (planner.table(computed.node), form(0)) {
            report.tables += 1;
            (value, vec![rows], form)
        } else {
            continue;
        };
        let tensor = planner.plan.model.text(planner.plan.model.value(value).name).to_vec();
        let Some(spec) = spec_of(form, &tensor, &dims) else { continue };
        if own.contains(&computed.node) {
            let annotation =
                NodeAnnotation { configuration: name.as_bytes(), specs: vec![spec], stage: None };
            annotate_devices(model, computed.node, &annotation);
        }
    }
    report
}

/// Returns the specification of a tensor in this form, in which each part is on one device.
fn spec_of<'t>(form: &Form, tensor: &'t [u8], dims: &[usize]) -> Option<ShardingSpec<'t>> {
    let mut spec = ShardingSpec { tensor, ..ShardingSpec::default() };
    for (axis, factors) in form.axes().iter().enumerate() {
        if factors.is_empty() {
            continue;
        }
        let is_plain = factors.len() == 1 && factors[0].size == dims[axis];
        let factors = factors.iter().map(|split| SimpleShardedDim {
            size: (!is_plain)
                .then(|| i64::try_from(split.size).map(FactorSize::Value).ok())
                .flatten(),
            num_shards: i64::try_from(split.parts).ok(),
        });
        spec.dims.push(ShardedDim { axis: i64::try_from(axis).ok(), factors: factors.collect() });
    }
    // Shards are numbered in the order of the places.
    let mut shards: Vec<(&Place, Device)> =
        form.places().iter().map(|(device, place)| (place, *device)).collect();
    shards.sort_unstable();
    spec.devices = shards.iter().map(|(_, device)| i64::from(*device)).collect();
    Some(spec)
}
