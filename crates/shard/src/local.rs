//! Model that one device runs: nodes on parts, with exchanges between them.

mod bodies;
mod changes;
mod nodes;
mod parts;
mod ports;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{AttrValue, GraphId, Model, NodeId, Type, ValueId};
use sardonyx_ops::Change;
use sardonyx_passes::import_operator_set;
use sardonyx_passes::order::{inner_graphs, tree};

use crate::collectives::Spelling;
use crate::form::Device;
use crate::plan::{Computed, FormId, Move, Plan, Step};

/// Domain of the operator [`EXCHANGE`], which is reserved for local models.
pub const EXCHANGE_DOMAIN: &str = "sardonyx.devices";
/// Operator of local models that moves a value to another form. All devices that hold a part of the
/// value or get one run it together. Its input is the device's old part, if it has one. Its first
/// output is the device's new part, if it gets one. Its second output is one byte and leads to an
/// output of the model, so that the device takes part even if it does not read its new part.
pub const EXCHANGE: &str = "Exchange";
/// Attribute of [`EXCHANGE`]: index of the step in the plan, which is a [`Move`].
pub const EXCHANGE_STEP: &str = "step";

/// Model of one device.
#[derive(Debug, Clone)]
pub struct Local {
    /// The model. Its inputs are the inputs of the whole model that the device reads. They are
    /// whole tensors, except residents, which are the device's parts.
    pub model: Model,
    /// For each output of the whole model, the index of the local output with its value; `None` on
    /// a device that does not return it.
    pub outputs: Vec<Option<usize>>,
    /// For each resident, the index of the local output with the device's part of its new value;
    /// `None` on a device without a part, or if the run does not change the resident.
    pub kept: Vec<Option<usize>>,
}

impl Plan {
    /// Builds the model of a device.
    pub fn local(&self, device: Device) -> Local {
        Building::new(self, device).build()
    }
}

/// State of a local model that is being built.
pub(crate) struct Building<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) device: Device,
    pub(crate) model: Model,
    /// Graph that nodes are added to.
    pub(crate) graph: GraphId,
    /// Local value with the device's part, for each moved value and form. A value without an entry
    /// is its own local value.
    held: HashMap<(ValueId, FormId), ValueId>,
    /// Nodes of the device in each graph, in order.
    orders: HashMap<GraphId, Vec<NodeId>>,
    /// Second outputs of the exchanges in each graph.
    tokens: HashMap<GraphId, Vec<ValueId>>,
    /// Results of collectives that the device does not read, with their types. They become outputs,
    /// so that no engine removes the collectives.
    kept: Vec<(ValueId, Type)>,
    /// Engine whose collectives a file has for moves. `None` in a session, where moves are
    /// exchanges.
    pub(crate) spelling: Option<Spelling<'p>>,
    /// Error message of the first constant that could not be read.
    pub(crate) failed: Option<String>,
}

impl<'p> Building<'p> {
    pub(crate) fn new(plan: &'p Plan, device: Device) -> Self {
        let mut model = plan.model().clone_to_run();
        let graph = model.main.expect("a model that was resolved has a graph");
        for inner in tree(&model, graph) {
            model.graph_mut(inner).value_info.clear();
        }
        Building {
            plan,
            device,
            model,
            graph,
            held: HashMap::new(),
            orders: HashMap::new(),
            tokens: HashMap::new(),
            kept: Vec::new(),
            spelling: None,
            failed: None,
        }
    }

    fn build(mut self) -> Local {
        import_operator_set(&mut self.model, EXCHANGE_DOMAIN, 1);
        self.nodes();
        self.declare_inputs();
        let (outputs, kept) = self.outputs();
        self.drop_unread();
        Local { model: self.model, outputs, kept }
    }

    /// Replaces the nodes of the model by the nodes of the device, in order.
    pub(crate) fn nodes(&mut self) {
        let main = self.graph;
        for (number, step) in self.plan.steps.iter().enumerate() {
            match step {
                Step::Move(moved) => {
                    self.graph = moved.graph;
                    self.exchange(number, moved);
                }
                Step::Node(computed) => {
                    self.graph = self.plan.model().node(computed.node).graph;
                    self.node(computed);
                }
            }
        }
        self.graph = main;
        self.put_nodes();
    }

    /// Replaces the nodes of the current graph by the nodes of the device, in order.
    pub(crate) fn put_nodes(&mut self) {
        let mut order = self.orders.remove(&self.graph).unwrap_or_default();
        let kept: HashSet<NodeId> = order.iter().copied().collect();
        let gone = self.model.graph(self.graph).nodes.clone();
        for node in gone.into_iter().filter(|node| !kept.contains(node)) {
            self.model.detach_node(node);
        }
        std::mem::swap(&mut self.model.graph_mut(self.graph).nodes, &mut order);
    }

    /// Returns the nodes of the device in the current graph.
    fn order_mut(&mut self) -> &mut Vec<NodeId> {
        self.orders.entry(self.graph).or_default()
    }

    /// Whether a graph has exchanges that must be kept alive.
    pub(crate) fn has_tokens(&self, graph: GraphId) -> bool {
        self.tokens.get(&graph).is_some_and(|tokens| !tokens.is_empty())
    }

    /// Removes and returns the second outputs of exchanges in the current graph.
    pub(crate) fn take_tokens(&mut self) -> Vec<ValueId> {
        self.tokens.remove(&self.graph).unwrap_or_default()
    }

    /// Records a value of the current graph that keeps exchanges alive.
    pub(crate) fn add_token(&mut self, token: ValueId) {
        self.tokens.entry(self.graph).or_default().push(token);
    }

    /// Returns the local value with the device's part of a value in a form.
    pub(crate) fn held(&self, value: ValueId, form: FormId) -> ValueId {
        self.held.get(&(value, form)).copied().unwrap_or(value)
    }

    /// Records the local value with the device's part of a moved value.
    pub(crate) fn set_held(&mut self, moved: &Move, held: ValueId) {
        self.held.insert((moved.value, moved.form), held);
    }

    /// Records a value that becomes an output, so that the node that computes it is not removed.
    pub(crate) fn keep(&mut self, value: ValueId, ty: Type) {
        self.kept.push((value, ty));
    }

    /// Removes and returns the values recorded by [`keep`](Self::keep).
    pub(crate) fn kept(&mut self) -> Vec<(ValueId, Type)> {
        std::mem::take(&mut self.kept)
    }

    pub(crate) fn is_on(&self, form: FormId) -> bool {
        self.plan.form(form).is_on(self.device)
    }

    fn exchange(&mut self, number: usize, moved: &Move) {
        let gives = self.plan.givers(moved).contains(&self.device);
        let gets = self.is_on(moved.to);
        let given = gives.then(|| self.held(moved.value, moved.from));
        if self.plan.is_local(moved) {
            if let (Some(given), true) = (given, gets) {
                let part = self.part(given, moved);
                self.set_held(moved, part);
            }
            return;
        }
        if let Some(spelling) = self.spelling {
            return self.move_by_collectives(moved, spelling.collectives);
        }
        if !(gives || gets) {
            return;
        }
        let node = self.model.add_node(self.graph, EXCHANGE, EXCHANGE_DOMAIN, &[given], 2);
        self.order_mut().push(node);
        let [output, token] = [0, 1].map(|index| self.model.outputs(node)[index]);
        let step = i64::try_from(number).unwrap_or(i64::MAX);
        self.model.set_attribute(node, EXCHANGE_STEP, AttrValue::Int(step));
        token.into_iter().for_each(|token| self.add_token(token));
        match output {
            Some(output) if gets => {
                self.set_held(moved, output);
            }
            _ => self.model.drop_output(node, 0),
        }
    }

    fn node(&mut self, computed: &Computed) {
        if !computed.assignment.places.contains_key(&self.device) {
            return;
        }
        let node = computed.node;
        let inputs: Vec<Option<ValueId>> = self.plan.model().inputs(node).collect();
        let held = inputs.iter().zip(&computed.inputs).map(|(value, form)| match (value, form) {
            // Other devices add an operand that is added once.
            (Some(_), Some(form)) if !self.is_on(*form) => None,
            (Some(value), Some(form)) => Some(self.held(*value, *form)),
            (value, _) => *value,
        });
        let held: Vec<Option<ValueId>> = held.collect();
        self.model.set_inputs(node, &held);
        for change in &computed.changes {
            if let Change::Once { input, rest: Some(rest) } = change
                && inputs.get(*input).is_some_and(Option::is_some)
                && held[*input].is_none()
            {
                let op_type = Some(self.model.intern(rest));
                self.model.node_mut(node).op_type = op_type;
                let others: Vec<_> = held.iter().copied().filter(Option::is_some).collect();
                self.model.set_inputs(node, &others);
            }
        }
        for (value, form) in &computed.captured {
            let held = self.held(*value, *form);
            if held != *value {
                self.capture(node, *value, held);
            }
        }
        self.order_mut().push(node);
        if computed.assignment.is_cut() {
            computed.changes.iter().for_each(|change| self.change(computed, *change));
        }
        if let Some(bodies) = &computed.bodies {
            self.fill_bodies(node, bodies);
        }
    }

    /// Replaces a value that graphs in a node capture by another value.
    fn capture(&mut self, node: NodeId, from: ValueId, to: ValueId) {
        let graphs: Vec<GraphId> = inner_graphs(&self.model, node).collect();
        for graph in
            graphs.into_iter().flat_map(|graph| tree(&self.model, graph)).collect::<Vec<_>>()
        {
            for inner in self.model.graph(graph).nodes.clone() {
                let inputs: Vec<Option<ValueId>> = self.model.inputs(inner).collect();
                for (index, input) in inputs.into_iter().enumerate() {
                    if input == Some(from) {
                        self.model.set_input(inner, index, Some(to));
                    }
                }
            }
            for output in &mut self.model.graph_mut(graph).outputs {
                if output.value == Some(from) {
                    output.value = Some(to);
                }
            }
        }
    }
}

/// Converts a size to an element of a tensor or attribute.
pub(crate) fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
