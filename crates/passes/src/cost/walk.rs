//! Traversal of the nodes of a graph whose types are known.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Bindings, Dim, GraphId, Model, NodeAttributes, NodeId, OperatorSetId, Producer, Symbol,
    TensorProto, Type, ValueId,
};
use sardonyx_ops::cost::elements;
use sardonyx_ops::operators::{FLEX_ATTENTION, IF, LOOP, SCAN};
use sardonyx_ops::{AttributeView, Infer, Known, OpDef, Present, Registry, Schema};
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use super::calls::CallCosts;
use super::live::{Peak, Span, largest};
use super::sum::{Adder, Assumed, Sum};
use super::{Cost, NodeCost, Work};
use crate::infer::Inference;

/// Maximum depth of subgraphs, which is also that of inference.
const DEEPEST: usize = 100;

/// State of the traversal.
pub(super) struct Walk<'a> {
    model: &'a Model,
    registry: &'a Registry,
    found: &'a Inference,
    calls: &'a CallCosts,
    imports: std::collections::HashMap<Cow<'a, str>, i64>,
    bindings: Option<&'a Bindings>,
    called: HashMap<(Option<Symbol>, Option<Symbol>), Option<Called<'a>>>,
    /// Initializers that are also inputs, as all are in early versions of the format.
    defaults: HashMap<ValueId, &'a TensorProto>,
    assumed: Assumed,
    /// Elements and bytes by the bits of an element and the shape: most values of a model share few
    /// shapes.
    sizes: HashMap<(Option<usize>, &'a [Dim]), [Dim; 2]>,
    nodes: Vec<NodeCost>,
    bodies_counted_once: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        model: &'a Model,
        registry: &'a Registry,
        found: &'a Inference,
        calls: &'a CallCosts,
        imports: &'a [OperatorSetId],
    ) -> Self {
        Walk {
            model,
            registry,
            found,
            calls,
            imports: model.opsets_in(imports),
            bindings: None,
            called: HashMap::new(),
            defaults: HashMap::new(),
            assumed: Assumed::default(),
            sizes: HashMap::new(),
            nodes: Vec::new(),
            bodies_counted_once: 0,
        }
    }

    /// Sets the attribute values of the call, for the body of a function.
    pub(super) fn in_call(self, bindings: &'a Bindings) -> Self {
        Walk { bindings: Some(bindings), ..self }
    }

    /// Computes the cost of a graph with its subgraphs.
    pub(super) fn cost_of(mut self, graph: GraphId) -> Cost {
        let peak = self.graph(graph, &Dim::Known(1), 0);
        Cost {
            total: self.total(),
            nodes: self.nodes,
            peak,
            bodies_counted_once: self.bodies_counted_once,
        }
    }

    fn total(&self) -> Work {
        let mut read = HashSet::new();
        let nodes = self.nodes.iter();
        let values = nodes.flat_map(|cost| self.model.inputs(cost.node).flatten());
        let once = values.filter(|value| read.insert(*value));
        let [parameters, parameter_bytes] = self.weights(once);
        Work {
            parameters,
            parameter_bytes,
            ..Work::sum(self.nodes.iter().map(|cost| (&cost.work, &cost.runs)))
        }
    }

    /// Adds up the elements and bytes of the initializers among `values`.
    fn weights(&self, values: impl Iterator<Item = ValueId>) -> [Sum; 2] {
        let [mut elements, mut bytes] = <[Adder; 2]>::default();
        for (elem, dims) in values.filter_map(|value| self.weight(value)) {
            let [count, size] = measure_stored(elem, dims);
            elements.add(&count.into());
            bytes.add(&size.into());
        }
        [elements.finish(), bytes.finish()]
    }

    /// Lists the nodes of a graph, and returns the peak of its memory.
    fn graph(&mut self, id: GraphId, runs: &Dim, depth: usize) -> Peak {
        let graph = self.model.graph(id);
        self.nodes.reserve(graph.nodes.len());
        self.note_defaults(id);
        // Inputs and outputs of a body are those of the node around it.
        let is_body = depth > 0 || self.bindings.is_some();
        let mut spans = Spans::default();
        for value in graph.inputs.iter().filter_map(|info| info.value) {
            if !is_body && self.weight(value).is_none() {
                let [_, bytes] = self.sizes(value);
                spans.begin(value, bytes, 0);
            }
        }
        // Step of each node with subgraphs, and the inner node at the peak of its memory.
        let mut inside: Vec<(usize, NodeId)> = Vec::new();
        for (step, node) in graph.nodes.iter().enumerate() {
            let peak = self.node(*node, runs, depth);
            if let Some(node) = peak.node {
                inside.push((step, node));
            }
            spans.extra(&peak.bytes, step);
            self.read_by(*node, step, depth, &mut spans);
            for value in self.made_by(*node) {
                if !(is_body && self.model.value(value).is_output) {
                    let [_, bytes] = self.sizes(value);
                    spans.begin(value, bytes, step);
                }
            }
        }
        let steps = graph.nodes.len().max(1);
        for value in graph.outputs.iter().filter_map(|info| info.value) {
            spans.read(value, steps - 1);
        }
        let (step, mut bytes) = largest(&spans.spans, steps, &mut self.assumed);
        bytes.missing = bytes.missing.saturating_add(spans.missing);
        let place = inside.binary_search_by_key(&step, |(step, _)| *step);
        Peak {
            bytes,
            node: match place {
                Ok(index) => Some(inside[index].1),
                Err(_) => graph.nodes.get(step).copied(),
            },
        }
    }

    fn note_defaults(&mut self, graph: GraphId) {
        for initializer in &self.model.graph(graph).initializers {
            if let Some(value) = initializer.value
                && matches!(self.model.value(value).producer, Producer::Input(_))
            {
                self.defaults.insert(value, &initializer.tensor);
            }
        }
    }

    /// Returns the activations that a node computes. Constants are not activations.
    fn made_by(&self, node: NodeId) -> impl Iterator<Item = ValueId> + use<'a> {
        let is_constant = self.is_constant(node);
        let outputs = self.model.outputs(node).iter().flatten();
        outputs.copied().filter(move |_| !is_constant)
    }

    /// Records the reads of a node and of the nodes in its subgraphs at a step.
    fn read_by(&self, node: NodeId, step: usize, depth: usize, spans: &mut Spans) {
        for value in self.model.inputs(node).flatten() {
            spans.read(value, step);
        }
        if depth >= DEEPEST {
            return;
        }
        for inner in self.graphs_in(node) {
            let outputs = self.model.graph(inner).outputs.iter();
            for value in outputs.filter_map(|info| info.value) {
                spans.read(value, step);
            }
            for node in &self.model.graph(inner).nodes {
                self.read_by(*node, step, depth + 1, spans);
            }
        }
    }

    /// Lists a node and the nodes in its subgraphs, and returns the memory that it takes in
    /// addition to its inputs and outputs.
    fn node(&mut self, node: NodeId, runs: &Dim, depth: usize) -> Peak {
        let work = self.work(node);
        self.nodes.push(NodeCost {
            node,
            graph: self.model.node(node).graph,
            runs: runs.clone(),
            work,
        });
        if let Some(body) = self.calls.of(node).filter(|_| self.find_called(node).is_none()) {
            let once = &mut self.bodies_counted_once;
            *once = once.saturating_add(body.bodies_counted_once);
            return Peak { bytes: body.peak, node: None };
        }
        let graphs: SmallVec<[GraphId; 2]> = self.graphs_in(node).collect();
        if graphs.is_empty() {
            return Peak::default();
        }
        if depth >= DEEPEST {
            let last = self.nodes.last_mut().expect("it was just listed");
            last.work.multiply_adds = Dim::Unknown.into();
            return Peak::default();
        }
        let runs = match self.iterations(node) {
            Some(iterations) => runs.mul(&iterations),
            None => {
                self.bodies_counted_once = self.bodies_counted_once.saturating_add(1);
                runs.clone()
            }
        };
        let mut parts = Vec::new();
        let mut peaks = Vec::new();
        for graph in graphs {
            let first = self.nodes.len();
            peaks.push(self.graph(graph, &runs, depth + 1));
            parts.push(first..self.nodes.len());
        }
        if self.is("If", node) {
            self.leave_out_smaller(&parts);
        }
        self.largest_of(peaks)
    }

    /// Returns the largest peak of graphs that run one after another.
    fn largest_of(&mut self, peaks: Vec<Peak>) -> Peak {
        let missing = peaks.iter().map(|peak| peak.bytes.missing);
        let missing = missing.fold(0, usize::saturating_add);
        let largest = peaks.into_iter().max_by_key(|peak| self.assumed.size(&peak.bytes.known));
        let mut largest = largest.unwrap_or_default();
        largest.bytes.missing = missing;
        largest
    }

    /// Sets the runs of all branches of an `If` but the largest to 0, as only one branch runs. The
    /// largest has the most multiply-adds, then the most elements.
    fn leave_out_smaller(&mut self, branches: &[Range<usize>]) {
        let mut sizes = Vec::new();
        for branch in branches {
            let mut size = (0, 0);
            for node in &self.nodes[branch.clone()] {
                let times = |sum: &Sum| sum.times(&node.runs).known;
                size.0 += self.assumed.size(&times(&node.work.multiply_adds));
                size.1 += self.assumed.size(&times(&node.work.elements));
            }
            sizes.push(size);
        }
        let largest = (0..sizes.len()).rev().max_by_key(|index| sizes[*index]);
        for (index, branch) in branches.iter().enumerate() {
            if Some(index) != largest {
                let left_out = self.nodes[branch.clone()].iter_mut();
                left_out.for_each(|node| node.runs = Dim::Known(0));
            }
        }
    }

    /// Returns the number of runs of a node's subgraphs for one run of the node; `None` if it is
    /// not known.
    fn iterations(&self, node: NodeId) -> Option<Dim> {
        let (schema, operator) = self.called_by(node)?;
        let is = |other: &OpDef| operator.is_some_and(|operator| operator.is(other));
        let inputs: Vec<Option<ValueId>> = self.model.inputs(node).collect();
        match () {
            () if is(&IF) => Some(Dim::Known(1)),
            () if is(&LOOP) => {
                let iterations = self.found.known((*inputs.first()?)?)?.ints()?;
                let [iterations] = &iterations[..] else { return None };
                match iterations {
                    Dim::Known(iterations) => Some(Dim::Known(*iterations.max(&0))),
                    Dim::Expr(_) => Some(iterations.clone()),
                    Dim::Unknown => None,
                }
            }
            () if is(&SCAN) && schema.since >= 9 => {
                let attributes =
                    NodeAttributes::in_call(self.model, self.model.texts(), node, self.bindings);
                let view = AttributeView::new(schema, &attributes);
                let scanned = usize::try_from(view.int("num_scan_inputs")?).ok()?;
                let first = inputs.len().checked_sub(scanned)?;
                let axis = view.ints("scan_input_axes");
                let axis = axis.and_then(|axes| axes.first().copied()).unwrap_or(0);
                let shape = self.found.ty((*inputs.get(first)?)?)?.shape()?;
                let from_end = if axis < 0 { shape.len() as i64 } else { 0 };
                let axis = usize::try_from(axis.checked_add(from_end)?).ok()?;
                shape.get(axis).filter(|dim| !dim.is_unknown()).cloned()
            }
            // The subgraphs of FlexAttention process all scores at once.
            () if is(&FLEX_ATTENTION) => Some(Dim::Known(1)),
            () => None,
        }
    }

    /// Returns the work of one run of a node, without its subgraphs.
    fn work(&mut self, node: NodeId) -> Work {
        let [parameters, parameter_bytes] = self.weights(self.model.inputs(node).flatten());
        let made = self.made_by(node).map(|value| self.sizes(value));
        let made: SmallVec<[[Dim; 2]; 2]> = made.collect();
        let [made, bytes] = match &made[..] {
            [[elements, bytes]] => [elements.clone().into(), bytes.clone().into()],
            several => [0, 1].map(|which| {
                let mut adder = Adder::default();
                for sizes in several {
                    adder.add(&sizes[which].clone().into());
                }
                adder.finish()
            }),
        };
        let (multiply_adds, elements) = match (self.find_called(node), self.calls.of(node)) {
            (Some(called), _) => (self.multiply_adds(node, called).into(), made),
            (None, Some(body)) => (body.multiply_adds, body.elements),
            (None, None) => (Dim::Unknown.into(), made),
        };
        Work { parameters, parameter_bytes, multiply_adds, elements, bytes }
    }

    fn multiply_adds(&self, node: NodeId, called: Called<'_>) -> Dim {
        multiply_adds_of(self.model, self.found, node, called, self.bindings)
    }

    fn find_called(&mut self, node: NodeId) -> Option<Called<'a>> {
        let found = self.model.node(node);
        let key = (found.domain, found.op_type);
        if let Some(called) = self.called.get(&key) {
            return *called;
        }
        let called = self.called_by(node);
        self.called.insert(key, called);
        called
    }

    fn called_by(&self, node: NodeId) -> Option<Called<'a>> {
        let domain = self.model.domain_of(node);
        let name = self.model.display(self.model.node(node).op_type);
        let opset = u32::try_from(*self.imports.get(&domain)?).ok()?;
        let schema = self.registry.schema(&domain, &name, opset)?;
        Some((schema, self.registry.definition(schema)))
    }

    fn graphs_in(&self, node: NodeId) -> impl Iterator<Item = GraphId> + use<'a> {
        let model = self.model;
        let attributes = model.attributes(node).iter();
        attributes.flat_map(|id| model.attribute(*id).graphs())
    }

    fn is(&self, name: &str, node: NodeId) -> bool {
        let op = self.model.maybe_text(self.model.node(node).op_type);
        op == Some(name.as_bytes()) && self.model.domain_of(node).is_empty()
    }

    fn is_constant(&self, node: NodeId) -> bool {
        self.is("Constant", node)
    }

    /// Returns the number of the element type and the dimensions of an initializer; `None` for
    /// other values. Sparse initializers count as dense, as they are in memory.
    fn weight(&self, value: ValueId) -> Option<(Option<i32>, &'a [i64])> {
        let found = self.model.value(value);
        let graph = self.model.graph(found.graph);
        let dense = match found.producer {
            Producer::Initializer(index) => &graph.initializers.get(index as usize)?.tensor,
            Producer::SparseInitializer(index) => {
                let sparse = &graph.sparse_initializers.get(index as usize)?.tensor;
                return Some((sparse.values.as_ref()?.data_type, &sparse.dims));
            }
            Producer::Input(_) => *self.defaults.get(&value)?,
            _ => return None,
        };
        Some((dense.data_type, &dense.dims))
    }

    /// Returns the numbers of elements and bytes of a value.
    fn sizes(&mut self, value: ValueId) -> [Dim; 2] {
        let Some(tensor) = self.found.ty(value).and_then(Type::as_tensor) else {
            return [Dim::Unknown, Dim::Unknown];
        };
        let Some(shape) = &tensor.shape else {
            return [Dim::Unknown, Dim::Unknown];
        };
        let found = self.sizes.entry((tensor.elem.and_then(DataType::bits), shape));
        let sizes = found.or_insert_with(|| {
            let count = elements(shape).unwrap_or(Dim::Unknown);
            let bytes = bytes_of(&count, tensor.elem);
            [count, bytes]
        });
        sizes.clone()
    }
}

/// Version of an operator that a node calls, and its definition if it belongs to the standard.
pub(super) type Called<'a> = (&'a Schema, Option<&'static OpDef>);

/// Returns the number of multiply-adds of a node in the form of an operator version; unknown if
/// sizes are not known.
pub(super) fn multiply_adds_of(
    model: &Model,
    found: &Inference,
    node: NodeId,
    (schema, operator): Called<'_>,
    bindings: Option<&Bindings>,
) -> Dim {
    let inputs: SmallVec<[Option<ValueId>; 6]> = model.inputs(node).collect();
    let type_of = |value: &Option<ValueId>| value.and_then(|value| found.ty(value));
    let types: SmallVec<[Option<&Type>; 6]> = inputs.iter().map(type_of).collect();
    let known = inputs.iter();
    let known = known.map(|value| value.and_then(|value| found.known(value)));
    let known: SmallVec<[Option<&Known>; 6]> = known.collect();
    let present: SmallVec<[bool; 6]> = inputs.iter().map(Option::is_some).collect();
    let outputs = model.outputs(node);
    let made: SmallVec<[Option<&Type>; 4]> = outputs.iter().map(type_of).collect();
    let attributes = NodeAttributes::in_call(model, model.texts(), node, bindings);
    let cx = Infer::new(schema, &attributes, &types, &known, made.len())
        .with_present(Present { inputs: &present, outputs: &[] });
    // Operators without a definition count as 0 multiply-adds.
    let count = operator.map_or(Some(Dim::Known(0)), |op| op.multiply_adds(&cx, &made));
    count.unwrap_or(Dim::Unknown)
}

/// Returns the numbers of elements and bytes of a stored tensor.
fn measure_stored(elem: Option<i32>, dims: &[i64]) -> [Dim; 2] {
    let dims: Vec<Dim> = dims.iter().map(|dim| Dim::Known(*dim)).collect();
    let count = elements(&dims).unwrap_or(Dim::Unknown);
    let elem = elem.and_then(DataType::from_number);
    let size = bytes_of(&count, elem);
    [count, size]
}

/// Returns the size of elements in bytes, with elements smaller than a byte packed. The size of
/// strings is unknown.
fn bytes_of(elements: &Dim, elem: Option<DataType>) -> Dim {
    match elem.and_then(DataType::bits) {
        Some(bits) if bits % 8 == 0 => elements.mul(&Dim::Known(bits as i64 / 8)),
        Some(bits) => elements.mul(&Dim::Known(bits as i64)).ceil_div(&Dim::Known(8)),
        None => Dim::Unknown,
    }
}

/// Live ranges of the values of a graph.
#[derive(Default)]
struct Spans {
    spans: Vec<Span>,
    of: HashMap<ValueId, usize>,
    /// Number of values of unknown size in subgraphs.
    missing: usize,
}

impl Spans {
    fn begin(&mut self, value: ValueId, bytes: Dim, step: usize) {
        self.of.insert(value, self.spans.len());
        self.spans.push(Span { bytes, first: step, last: step });
    }

    /// Extends the live range of a value to a step. Ignores values of other graphs, and constants.
    fn read(&mut self, value: ValueId, step: usize) {
        if let Some(index) = self.of.get(&value) {
            let span = &mut self.spans[*index];
            span.last = span.last.max(step);
        }
    }

    /// Adds memory that is live in one step only.
    fn extra(&mut self, bytes: &Sum, step: usize) {
        self.missing = self.missing.saturating_add(bytes.missing);
        if bytes.known != Dim::Known(0) {
            self.spans.push(Span { bytes: bytes.known.clone(), first: step, last: step });
        }
    }
}
