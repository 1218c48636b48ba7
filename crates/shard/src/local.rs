//! Model that one device runs: nodes on parts, with exchanges between them.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NodeId, Type, ValueId};
use sardonyx_ops::Change;
use sardonyx_passes::order::{inner_graphs, tree};
use sardonyx_passes::{declaration, import_operator_set};
use sardonyx_tensor::Tensor;
use smallvec::SmallVec;

use crate::collectives::Spelling;
use crate::form::{Device, Form};
use crate::plan::{Computed, FormId, Move, Plan, Step};
use crate::sizes::stand_in;

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
pub(super) struct Building<'p> {
    pub(super) plan: &'p Plan,
    pub(super) device: Device,
    pub(super) model: Model,
    /// Graph that nodes are added to.
    pub(super) graph: GraphId,
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
    pub(super) spelling: Option<Spelling<'p>>,
    /// Error message of the first constant that could not be read.
    pub(super) failed: Option<String>,
}

impl<'p> Building<'p> {
    pub(super) fn new(plan: &'p Plan, device: Device) -> Self {
        let mut model = plan.model.clone_to_run();
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
    pub(super) fn nodes(&mut self) {
        let main = self.graph;
        for (number, step) in self.plan.steps.iter().enumerate() {
            match step {
                Step::Move(moved) => {
                    self.graph = moved.graph;
                    self.exchange(number, moved);
                }
                Step::Node(computed) => {
                    self.graph = self.plan.model.node(computed.node).graph;
                    self.node(computed);
                }
            }
        }
        self.graph = main;
        self.put_nodes();
    }

    /// Replaces the nodes of the current graph by the nodes of the device, in order.
    pub(super) fn put_nodes(&mut self) {
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
    pub(super) fn has_tokens(&self, graph: GraphId) -> bool {
        self.tokens.get(&graph).is_some_and(|tokens| !tokens.is_empty())
    }

    /// Removes and returns the second outputs of exchanges in the current graph.
    pub(super) fn take_tokens(&mut self) -> Vec<ValueId> {
        self.tokens.remove(&self.graph).unwrap_or_default()
    }

    /// Records a value of the current graph that keeps exchanges alive.
    pub(super) fn add_token(&mut self, token: ValueId) {
        self.tokens.entry(self.graph).or_default().push(token);
    }

    /// Returns the local value with the device's part of a value in a form.
    pub(super) fn held(&self, value: ValueId, form: FormId) -> ValueId {
        self.held.get(&(value, form)).copied().unwrap_or(value)
    }

    /// Records the local value with the device's part of a moved value.
    pub(super) fn set_held(&mut self, moved: &Move, held: ValueId) {
        self.held.insert((moved.value, moved.form), held);
    }

    /// Records a value that becomes an output, so that the node that computes it is not removed.
    pub(super) fn keep(&mut self, value: ValueId, ty: Type) {
        self.kept.push((value, ty));
    }

    /// Removes and returns the values recorded by [`keep`](Self::keep).
    pub(super) fn kept(&mut self) -> Vec<(ValueId, Type)> {
        std::mem::take(&mut self.kept)
    }

    pub(super) fn is_on(&self, form: FormId) -> bool {
        self.plan.form(form).is_on(self.device)
    }

    pub(super) fn add(
        &mut self,
        op: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
    ) -> (NodeId, ValueId) {
        let node = self.model.add_node(self.graph, op, domain, inputs, 1);
        self.order_mut().push(node);
        let output = self.model.outputs(node)[0].expect("a new node has its outputs");
        (node, output)
    }

    pub(super) fn constant(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_slice([values.len()], values).expect("a vector has its length");
        self.model.add_initializer(self.graph, "indices", &tensor)
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
        self.model.set_attribute(node, EXCHANGE_STEP, sardonyx_model::AttrValue::Int(step));
        token.into_iter().for_each(|token| self.add_token(token));
        match output {
            Some(output) if gets => {
                self.set_held(moved, output);
            }
            _ => self.model.drop_output(node, 0),
        }
    }

    /// Takes the new part of a local move from the device's old part.
    fn part(&mut self, given: ValueId, moved: &Move) -> ValueId {
        let Some(dims) = moved.dims.as_deref().map(stand_in) else { return given };
        let plan = self.plan;
        self.part_of(given, (plan.form(moved.from), plan.form(moved.to)), &dims)
    }

    /// Takes the device's part in the form `to` from `given`, its part in the form `from`. `dims`
    /// are the sizes of the whole value.
    pub(super) fn part_of(
        &mut self,
        given: ValueId,
        (from, to): (&Form, &Form),
        dims: &[usize],
    ) -> ValueId {
        let ranges = |form: &Form| form.ranges(self.device, dims);
        let (Some(have), Some(want)) = (ranges(from), ranges(to)) else { return given };
        if have != want
            && from.is_whole()
            && let Some(part) = self.cut_constant(given, &want)
        {
            return part;
        }
        let mut bounds: Vec<(usize, usize, usize)> = Vec::new();
        let mut gathered: Vec<(usize, Vec<i64>)> = Vec::new();
        for (axis, (have, want)) in have.iter().zip(&want).enumerate() {
            if have == want {
                continue;
            }
            match &have.shared(want)[..] {
                // An empty part.
                [] => bounds.push((axis, 0, 0)),
                [run] => bounds.push((axis, run.from, run.from + run.len)),
                runs => {
                    let indices = runs.iter().flat_map(|run| run.from..run.from + run.len);
                    gathered.push((axis, indices.map(signed).collect()));
                }
            }
        }
        let mut part = if bounds.is_empty() { given } else { self.slice(given, &bounds) };
        for (axis, indices) in gathered {
            part = self.take(part, &indices, axis);
        }
        part
    }

    fn node(&mut self, computed: &Computed) {
        if !computed.assignment.places.contains_key(&self.device) {
            return;
        }
        let node = computed.node;
        let inputs: Vec<Option<ValueId>> = self.plan.model.inputs(node).collect();
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

    /// Adapts the sizes in attributes and inputs of a node to the device's part.
    fn change(&mut self, computed: &Computed, change: Change) {
        match change {
            Change::Sizes { input, output, zeros } => {
                let value = self.plan.model.outputs(computed.node)[output];
                let Some(own) = self.own_sizes(value, computed.outputs[output]) else { return };
                let numbers: Option<Vec<i64>> = own.iter().copied().collect();
                if let Some(numbers) = numbers {
                    let sizes = self.constant(&numbers);
                    self.model.set_input(computed.node, input, Some(sizes));
                    if let Some(name) = zeros.filter(|_| numbers.contains(&0)) {
                        let yes = sardonyx_model::AttrValue::Int(1);
                        self.model.set_attribute(computed.node, name, yes);
                    }
                    return;
                }
                // Open sizes are not split: they equal the sizes in the input of the whole node.
                let whole = self.model.inputs(computed.node).nth(input).flatten();
                self.order_mut().retain(|known| *known != computed.node);
                let (_, sizes) = self.some_of(&own, whole);
                self.model.set_input(computed.node, input, Some(sizes));
                self.order_mut().push(computed.node);
            }
            Change::Shape { start } => self.give_shape(computed, start),
            Change::Attribute { name, factors } => {
                let factors = factors.iter().flatten();
                let sizes = factors.map(|factor| computed.assignment.size(self.device, *factor));
                let value = sardonyx_model::AttrValue::Int(signed(sizes.product()));
                self.model.set_attribute(computed.node, name, value);
            }
            Change::Lengths { input, axis } => {
                let outputs = self.plan.model.outputs(computed.node).iter();
                let own = outputs.zip(&computed.outputs).map(|(value, form)| {
                    self.own_sizes(*value, *form)?.get(axis).copied().flatten()
                });
                let Some(own) = own.collect::<Option<Vec<i64>>>() else { return };
                let sizes = self.constant(&own);
                self.model.set_input(computed.node, input, Some(sizes));
            }
            Change::Own { axis } => self.take_own(computed, axis),
            Change::Places { output, factor, stride } => {
                let before = computed.assignment.start(self.device, factor) * stride;
                self.move_up(computed, output, before);
            }
            // Applied before: by the planner, and by `node`.
            Change::Partly { .. } | Change::Once { .. } => {}
        }
    }

    /// Returns the sizes of the device's part of a value in a form, with `None` for each open size.
    fn own_sizes(
        &self,
        value: Option<ValueId>,
        form: Option<FormId>,
    ) -> Option<SmallVec<[Option<i64>; 4]>> {
        let (_, dims) = self.plan.tensor(value?)?;
        let dims = dims?;
        let own = self.plan.form(form?).dims(self.device, &stand_in(&dims))?;
        let sizes = dims.iter().zip(own);
        Some(sizes.map(|(dim, own)| dim.size().map(|_| signed(own))).collect())
    }

    /// Adds a vector of `numbers`, with elements of `others` in place of `None`.
    fn some_of(&mut self, numbers: &[Option<i64>], others: Option<ValueId>) -> (NodeId, ValueId) {
        let mask: Vec<bool> = numbers.iter().map(Option::is_some).collect();
        let mask = Tensor::from_bools([mask.len()], &mask).expect("a vector has its length");
        let mask = self.model.add_initializer(self.graph, "is_known", &mask);
        let numbers: Vec<i64> = numbers.iter().map(|number| number.unwrap_or(0)).collect();
        let numbers = self.constant(&numbers);
        self.add("Where", "", &[Some(mask), Some(numbers), others])
    }

    /// Replaces the output of a `Shape` node, whose input is a part, by the sizes of the whole
    /// tensor.
    fn give_shape(&mut self, computed: &Computed, start: usize) {
        let node = computed.node;
        let [Some(output)] = *self.model.outputs(node) else { return };
        let whole = |value: Option<ValueId>| self.plan.tensor(value?)?.1;
        let count = whole(Some(output)).and_then(|dims| dims.first()?.size());
        let sizes = whole(self.plan.model.inputs(node).next().flatten());
        let (Some(count), Some(sizes)) = (count, sizes) else { return };
        let numbers = sizes.iter().skip(start).take(count);
        let numbers: Vec<Option<i64>> = numbers.map(|size| size.size().map(signed)).collect();
        let own = self.model.add_value(self.graph, "own_shape");
        self.model.redefine_output(node, 0, own);
        let (last, _) = self.some_of(&numbers, Some(own));
        self.model.redefine_output(last, 0, output);
    }

    /// Adds the number `by` to the elements of an integer output.
    fn move_up(&mut self, computed: &Computed, output: usize, by: usize) {
        let node = computed.node;
        let Some(value) = self.model.outputs(node)[output].filter(|_| by > 0) else { return };
        let raw = self.model.add_value(self.graph, "places");
        self.model.redefine_output(node, output, raw);
        let number = self.model.add_initializer(self.graph, "before", &Tensor::scalar(signed(by)));
        let (sum, _) = self.add("Add", "", &[Some(raw), Some(number)]);
        self.model.redefine_output(sum, 0, value);
    }

    /// Makes a node gather the rows of its first input that the device has, and zeros for all other
    /// rows.
    fn take_own(&mut self, computed: &Computed, axis: usize) {
        let plan = self.plan;
        let node = computed.node;
        let operand = |index: usize| {
            let value = plan.model.inputs(node).nth(index).flatten()?;
            let form = plan.form((*computed.inputs.get(index)?)?);
            let (elem, dims) = plan.tensor(value)?;
            let dims = stand_in(&dims?);
            let ranges = form.ranges(self.device, &dims)?;
            Some((elem, dims, ranges))
        };
        let (Some((elem, dims, rows)), Some((_, places, _))) = (operand(0), operand(1)) else {
            return;
        };
        let own = &rows[axis];
        let Ok(size) = i32::try_from(dims[axis]) else { return };
        let [Some(output)] = *self.model.outputs(node) else { return };
        if own.len() == dims[axis] {
            return;
        }
        // Position of each index among the indices that the device has, or -1.
        let mut table = vec![-1i32; dims[axis]];
        let indices = own.iter().flat_map(|range| range.clone());
        for (position, index) in (0..size).zip(indices) {
            table[index] = position;
        }
        let constant = |building: &mut Self, tensor: Tensor| {
            Some(building.model.add_initializer(building.graph, "rows", &tensor))
        };
        let table = Tensor::from_vec([dims[axis]], table).expect("a vector has its length");
        let table = constant(self, table);
        let none = constant(self, Tensor::scalar(0i32));
        let zero = constant(self, sardonyx_ops::scalar(elem, 0.0));
        let at = self.model.inputs(node).nth(1).flatten();
        self.order_mut().retain(|known| *known != node);
        // An index out of range fails in this node, whose message has the size of the whole axis.
        let (_, position) = self.add("Gather", "", &[table, at]);
        let (_, has) = self.add("GreaterOrEqual", "", &[Some(position), none]);
        let mask = match dims.len() - axis - 1 {
            0 => has,
            trailing => {
                let first = places.len();
                let axes: Vec<i64> = (first..first + trailing).map(signed).collect();
                let axes = self.constant(&axes);
                self.add("Unsqueeze", "", &[Some(has), Some(axes)]).1
            }
        };
        let last = if own.is_empty() {
            // The device has no rows. The mask still depends on the indices, so that they are
            // checked.
            let own = self.own_sizes(plan.model.outputs(node)[0], computed.outputs[0]);
            let own: Vec<i64> = own.into_iter().flatten().flatten().collect();
            let sizes = Some(self.constant(&own));
            let (_, zeros) = self.add("Expand", "", &[zero, sizes]);
            self.model.detach_node(node);
            self.add("Where", "", &[Some(mask), Some(zeros), zero]).0
        } else {
            let (_, safe) = self.add("Max", "", &[Some(position), none]);
            self.model.set_input(node, 1, Some(safe));
            let taken = self.model.add_value(self.graph, "taken");
            self.model.redefine_output(node, 0, taken);
            self.order_mut().push(node);
            self.add("Where", "", &[Some(mask), Some(taken), zero]).0
        };
        self.model.redefine_output(last, 0, output);
    }

    /// Declares the types of residents, which are the device's parts, and of inputs with
    /// initializers, which the plan has inferred: symbols in their declarations may stand for other
    /// sizes elsewhere. Other inputs keep the types of the model, as a branch that is not taken may
    /// contradict the types of a run.
    fn declare_inputs(&mut self) {
        let plan = self.plan;
        let graph = plan.model.graph(self.graph);
        let has_default =
            |input: &ValueId| graph.initializers.iter().any(|one| one.value == Some(*input));
        let inputs = graph.inputs.iter().filter_map(|info| info.value).filter(has_default);
        let whole = inputs.filter_map(|input| Some((input, plan.types.ty(input)?.clone())));
        let whole: Vec<(ValueId, Type)> = whole.filter(|(_, ty)| ty.shape().is_some()).collect();
        for (input, ty) in whole.into_iter().chain(plan.parts_on(self.device)) {
            let ty = declaration(&mut self.model, &ty);
            let inputs = &mut self.model.graph_mut(self.graph).inputs;
            if let Some(info) = inputs.iter_mut().find(|info| info.value == Some(input)) {
                info.ty = Some(ty);
            }
        }
    }

    /// Sets the outputs of the local model: outputs of the whole model that the device returns, its
    /// parts of new values of residents, and values that keep exchanges alive. Returns the indices
    /// of the outputs for each output of the whole model and for each resident.
    fn outputs(&mut self) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
        self.model.retain_outputs(self.graph, |_, _| false);
        let mut left: Vec<ValueId> = Vec::new();
        let mut place = |(value, form): (ValueId, FormId)| {
            let held = self.held(value, form);
            left.iter().position(|known| *known == held).unwrap_or_else(|| {
                left.push(held);
                left.len() - 1
            })
        };
        let given = self.plan.outputs.iter().map(|given| {
            let own = given.filter(|given| self.plan.gives(*given, self.device))?;
            Some(place((own.value, own.form)))
        });
        let given = given.collect();
        let kept = self.plan.kept.iter().map(|kept| {
            let own = kept.new.filter(|(_, form)| self.is_on(*form))?;
            Some(place(own))
        });
        let kept = kept.collect();
        left.append(&mut self.take_tokens());
        for value in left {
            self.model.add_graph_output(self.graph, value);
        }
        (given, kept)
    }

    /// Removes inputs and constants that the device does not read.
    fn drop_unread(&mut self) {
        self.drop_unread_constants();
        let inputs: Vec<ValueId> =
            self.model.graph(self.graph).inputs.iter().filter_map(|info| info.value).collect();
        let is_needed =
            |model: &Model, value: ValueId| model.is_read(value) || model.value(value).is_output;
        let kept: HashSet<ValueId> =
            inputs.iter().copied().filter(|value| is_needed(&self.model, *value)).collect();
        self.model.retain_inputs(self.graph, |info| {
            info.value.is_some_and(|value| kept.contains(&value))
        });
    }

    /// Removes constants that the device does not read.
    pub(super) fn drop_unread_constants(&mut self) {
        for graph in tree(&self.model, self.graph) {
            self.model.retain_initializers(graph, |model, initializer| {
                let is_needed =
                    |value: ValueId| model.is_read(value) || model.value(value).is_output;
                initializer.value.is_some_and(is_needed)
            });
        }
    }
}

pub(super) fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
