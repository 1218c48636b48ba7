//! Changes graphs.
//!
//! Every function here keeps the lists of uses up to date; no other code may change them.

use std::collections::BTreeMap;
use std::fmt::Write;

use hashbrown::{HashMap, HashSet};
use sardonyx_tensor::{Buffer, DataType, Tensor};
use smallvec::SmallVec;

use crate::attribute::{Attribute, AttributeValue, AttributeValues};
use crate::attribute_values::AttrValue;
use crate::constant::{SparseTensorProto, TensorProto};
use crate::graph::{
    Graph, Header, Initializer, Model, Node, NodeExtras, Producer, Range, SparseInitializer, Use,
    Value, ValueInfo,
};
use crate::ids::{AttributeId, GraphId, Id, NodeId, UseId, ValueId};
use crate::names::Symbol;
use crate::source::Span;

impl Model {
    /// Copies the parts that determine the model's results: without training steps, without the
    /// documentation, metadata and unknown fields of its header, and with one import of each
    /// operator set.
    pub fn clone_to_run(&self) -> Model {
        let imports = self.effective_imports(&self.header.opset_import);
        let opset_import = imports.into_values().cloned().collect();
        let mut copy = Model {
            header: Header {
                ir_version: self.header.ir_version,
                opset_import,
                ..Header::default()
            },
            main: self.main,
            functions: self.functions.clone(),
            training_info: self.training_info.clone(),
            sources: self.sources.clone(),
            names: self.names.clone(),
            graphs: self.graphs.clone(),
            nodes: self.nodes.clone(),
            values: self.values.clone(),
            attributes: self.attributes.clone(),
            uses: self.uses.clone(),
            output_lists: self.output_lists.clone(),
            attribute_lists: self.attribute_lists.clone(),
            extras: self.extras.clone(),
        };
        copy.remove_training(None);
        copy
    }

    /// Removes the training information. The nodes of its graphs lose their inputs, as they would
    /// otherwise count as readers of values of the main graph, except in the graph `kept`.
    pub fn remove_training(&mut self, kept: Option<GraphId>) {
        for info in std::mem::take(&mut self.training_info) {
            let graphs = [info.initialization, info.algorithm].into_iter().flatten();
            for graph in graphs.filter(|graph| Some(*graph) != kept) {
                for node in self.graphs[graph].nodes.clone() {
                    self.detach_node(node);
                }
            }
        }
    }

    /// Interns a text.
    pub fn intern(&mut self, text: &str) -> Symbol {
        self.names.intern_own(text.as_bytes(), &self.sources)
    }

    /// Adds bytes to the model as a new source.
    pub fn add_bytes(&mut self, buffer: Buffer) -> Span {
        let len = buffer.len() as u64;
        Span { source: self.sources.push(buffer), offset: 0, len }
    }

    /// Returns a graph's lists to be changed. Values and uses are changed by functions of their
    /// own.
    pub fn graph_mut(&mut self, id: GraphId) -> &mut Graph {
        &mut self.graphs[id]
    }

    /// Returns a node to change its names. Inputs, outputs and attributes are changed by functions
    /// of their own.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// Returns the rare fields of a node to be changed, if it has any.
    pub fn extras_mut(&mut self, node: NodeId) -> Option<&mut NodeExtras> {
        Some(&mut self.extras[self.nodes[node].extras?])
    }

    /// Sets the rare fields of a node.
    pub fn set_extras(&mut self, node: NodeId, extras: NodeExtras) {
        self.nodes[node].extras = Some(self.extras.push(extras));
    }

    /// Returns an attribute to change its texts and values.
    pub fn attribute_mut(&mut self, id: AttributeId) -> &mut Attribute {
        &mut self.attributes[id]
    }

    /// Turns inputs with an initializer into constants: the caller can no longer override them.
    pub fn fix_default_inputs(&mut self, id: GraphId) {
        let Model { graphs, values, .. } = self;
        let graph = &mut graphs[id];
        for (index, initializer) in graph.initializers.iter().enumerate() {
            if let Some(value) = initializer.value {
                values[value].producer = Producer::Initializer(index as u32);
            }
        }
        for (index, initializer) in graph.sparse_initializers.iter().enumerate() {
            if let Some(value) = initializer.value {
                values[value].producer = Producer::SparseInitializer(index as u32);
            }
        }
        let inputs = graph.inputs.iter().filter_map(|info| info.value);
        let kept = inputs.filter(|value| matches!(values[*value].producer, Producer::Input(_)));
        let kept: HashSet<ValueId> = kept.collect();
        self.retain_inputs(id, |info| info.value.is_none_or(|value| kept.contains(&value)));
    }

    /// Turns the inputs of a graph from position `first` on into constants if each of them has an
    /// initializer; otherwise changes nothing.
    pub fn fix_constant_inputs(&mut self, id: GraphId, first: usize) {
        let graph = &self.graphs[id];
        let rest = graph.inputs.get(first..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        let numbered = graph.initializers.iter().enumerate();
        let constants: HashMap<ValueId, usize> =
            numbered.filter_map(|(index, found)| Some((found.value?, index))).collect();
        let found = rest.iter().map(|info| {
            let value = info.value?;
            Some((value, *constants.get(&value)?))
        });
        let Some(found) = found.collect::<Option<Vec<_>>>() else { return };
        self.graphs[id].inputs.truncate(first);
        for (value, index) in found {
            self.values[value].producer = Producer::Initializer(index as u32);
        }
    }

    /// Keeps the inputs of a graph for which `keep` returns true. The values of the others remain,
    /// undefined unless their producer already was an initializer.
    pub fn retain_inputs(&mut self, graph: GraphId, keep: impl FnMut(&ValueInfo) -> bool) {
        let Model { graphs, values, .. } = self;
        let inputs = &mut graphs[graph].inputs;
        for value in inputs.iter().filter_map(|info| info.value) {
            if matches!(values[value].producer, Producer::Input(_)) {
                values[value].producer = Producer::Nothing;
            }
        }
        inputs.retain(keep);
        for (index, info) in inputs.iter().enumerate() {
            if let Some(value) = info.value {
                values[value].producer = Producer::Input(index as u32);
            }
        }
    }

    /// Keeps only the inputs in `order` and sorts them in this order. The values of the others
    /// remain undefined.
    pub fn order_inputs(&mut self, graph: GraphId, order: &[ValueId]) {
        let place = |info: &ValueInfo| {
            let value = info.value?;
            order.iter().position(|ordered| *ordered == value)
        };
        self.retain_inputs(graph, |info| place(info).is_some());
        let inputs = &mut self.graphs[graph].inputs;
        inputs.sort_by_key(place);
        for (index, value) in
            inputs.iter().enumerate().filter_map(|(at, info)| Some((at, info.value?)))
        {
            self.values[value].producer = Producer::Input(index as u32);
        }
    }

    /// Keeps the initializers of a graph for which `keep` returns true. The values of the others
    /// remain undefined.
    pub fn retain_initializers(
        &mut self,
        graph: GraphId,
        mut keep: impl FnMut(&Model, &Initializer) -> bool,
    ) {
        let initializers = std::mem::take(&mut self.graphs[graph].initializers);
        let defined: Vec<ValueId> = initializers.iter().filter_map(|found| found.value).collect();
        let kept: Vec<Initializer> =
            initializers.into_iter().filter(|initializer| keep(self, initializer)).collect();
        let Model { graphs, values, .. } = self;
        for value in defined {
            if matches!(values[value].producer, Producer::Initializer(_)) {
                values[value].producer = Producer::Nothing;
            }
        }
        for (index, initializer) in kept.iter().enumerate() {
            let value = initializer.value.map(|value| &mut values[value]);
            if let Some(value) = value.filter(|value| value.producer == Producer::Nothing) {
                value.producer = Producer::Initializer(index as u32);
            }
        }
        graphs[graph].initializers = kept;
    }

    /// Keeps the sparse initializers of a graph for which `keep` returns true, and returns the
    /// others, whose values remain undefined.
    pub fn retain_sparse_initializers(
        &mut self,
        graph: GraphId,
        mut keep: impl FnMut(&Model, &SparseInitializer) -> bool,
    ) -> Vec<SparseInitializer> {
        let all = std::mem::take(&mut self.graphs[graph].sparse_initializers);
        let (kept, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|found| keep(self, found));
        let Model { graphs, values, .. } = self;
        for value in gone.iter().filter_map(|found| found.value) {
            if matches!(values[value].producer, Producer::SparseInitializer(_)) {
                values[value].producer = Producer::Nothing;
            }
        }
        for (index, found) in kept.iter().enumerate() {
            let value = found.value.map(|value| &mut values[value]);
            if let Some(value) =
                value.filter(|value| matches!(value.producer, Producer::SparseInitializer(_)))
            {
                value.producer = Producer::SparseInitializer(index as u32);
            }
        }
        graphs[graph].sparse_initializers = kept;
        gone
    }

    /// Replaces sparse initializers of a graph, by position, by dense ones of the same names, which
    /// are appended to the dense initializers.
    pub fn replace_sparse_initializers(
        &mut self,
        graph: GraphId,
        mut dense: BTreeMap<usize, TensorProto>,
    ) {
        let mut positions = 0..;
        let mut tensors = Vec::with_capacity(dense.len());
        let replaced = self.retain_sparse_initializers(graph, |_, _| {
            let tensor = positions.next().and_then(|position: usize| dense.remove(&position));
            let is_kept = tensor.is_none();
            tensors.extend(tensor);
            is_kept
        });
        for (SparseInitializer { value, tensor: sparse }, mut tensor) in
            replaced.into_iter().zip(tensors)
        {
            tensor.name = sparse.values.and_then(|values| values.name);
            let initializers = &mut self.graphs[graph].initializers;
            if let Some(value) = value.map(|value| &mut self.values[value])
                && value.producer == Producer::Nothing
            {
                value.producer = Producer::Initializer(initializers.len() as u32);
            }
            initializers.push(Initializer { value, tensor });
        }
    }

    /// Reserves capacity for typical nodes: one output, two inputs, two attributes and two names
    /// each.
    pub fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
        // Untouched memory is not committed, so a reserve of one eighth costs nothing.
        let nodes = nodes + nodes / 8;
        self.attributes.reserve(2 * nodes);
        self.attribute_lists.reserve(2 * nodes);
        self.output_lists.reserve(nodes);
        self.uses.reserve(2 * nodes);
        self.values.reserve(nodes + 64);
        self.names.reserve(2 * nodes + 64);
    }

    /// Reserves capacity for new names.
    pub fn reserve_names(&mut self, names: usize) {
        self.names.reserve_own(names);
    }

    /// Adds an undefined value with a name that begins with `hint` and is unique in the model.
    pub fn add_value(&mut self, graph: GraphId, hint: &str) -> ValueId {
        let name = self.fresh_name(hint);
        self.new_value(graph, name)
    }

    /// Adds an input without a declared type to a graph. Its name begins with `hint`.
    pub fn add_graph_input(&mut self, graph: GraphId, hint: &str) -> ValueId {
        let value = self.add_value(graph, hint);
        let inputs = &mut self.graphs[graph].inputs;
        self.values[value].producer = Producer::Input(inputs.len() as u32);
        let name = Some(self.values[value].name);
        inputs.push(ValueInfo { name, value: Some(value), ..ValueInfo::default() });
        value
    }

    /// Makes a value an output of a graph, without a declared type.
    pub fn add_graph_output(&mut self, graph: GraphId, value: ValueId) {
        self.values[value].is_output = true;
        let name = Some(self.values[value].name);
        let output = ValueInfo { name, value: Some(value), ..ValueInfo::default() };
        self.graphs[graph].outputs.push(output);
    }

    /// Renames a value; the name must be unused in its graph and in all enclosing graphs. Renames
    /// the value's declarations and initializer as well.
    pub fn rename_value(&mut self, value: ValueId, name: Symbol) {
        let Value { graph, .. } = &mut self.values[value];
        let graph = &mut self.graphs[*graph];
        let infos = graph.inputs.iter_mut().chain(&mut graph.outputs).chain(&mut graph.value_info);
        for info in infos.filter(|info| info.value == Some(value)) {
            info.name = Some(name);
        }
        for found in graph.initializers.iter_mut().filter(|found| found.value == Some(value)) {
            found.tensor.name = Some(name);
        }
        let sparse = graph.sparse_initializers.iter_mut();
        for found in sparse.filter(|found| found.value == Some(value)) {
            if let Some(values) = &mut found.tensor.values {
                values.name = Some(name);
            }
        }
        self.values[value].name = name;
    }

    /// Interns a name that no text of the model has: `text`, or `text` followed by a number.
    pub fn free_name(&mut self, text: &str) -> Symbol {
        if self.symbol(text.as_bytes()).is_none() {
            self.intern(text)
        } else {
            self.fresh_name(text)
        }
    }

    /// Adds an undefined value with a given name.
    pub(crate) fn new_value(&mut self, graph: GraphId, name: Symbol) -> ValueId {
        self.values.push(Value {
            name,
            graph,
            producer: Producer::Nothing,
            is_output: false,
            first_use: None,
        })
    }

    fn fresh_name(&mut self, hint: &str) -> Symbol {
        let mut number = self.values.len();
        let mut text = String::with_capacity(hint.len() + 12);
        loop {
            text.clear();
            // Writing to a string cannot fail.
            let _ = write!(text, "{hint}__{number}");
            let before = self.names.len();
            let name = self.intern(&text);
            if self.names.len() > before {
                return name;
            }
            number += 1;
        }
    }

    /// Adds an initializer to a graph. Numbers are shared with `tensor`, strings are encoded.
    pub fn add_initializer(&mut self, graph: GraphId, hint: &str, tensor: &Tensor) -> ValueId {
        let value = self.add_value(graph, hint);
        let mut proto = self.tensor_proto(tensor);
        proto.name = Some(self.values[value].name);
        let initializers = &mut self.graphs[graph].initializers;
        self.values[value].producer = Producer::Initializer(initializers.len() as u32);
        initializers.push(Initializer { value: Some(value), tensor: proto });
        value
    }

    /// Defines `value`, which must be undefined, by a new initializer of a graph, to which the
    /// value belongs then. The value gets the name `name`, if one is given.
    pub fn define_initializer(
        &mut self,
        graph: GraphId,
        value: ValueId,
        mut tensor: TensorProto,
        name: Option<Symbol>,
    ) {
        let initializers = &mut self.graphs[graph].initializers;
        let found = &mut self.values[value];
        found.name = name.unwrap_or(found.name);
        found.graph = graph;
        found.producer = Producer::Initializer(initializers.len() as u32);
        tensor.name = Some(found.name);
        initializers.push(Initializer { value: Some(value), tensor });
    }

    /// Replaces the list of inputs of a graph.
    pub fn list_inputs(&mut self, graph: GraphId, inputs: Vec<ValueInfo>) {
        self.graphs[graph].inputs = inputs;
        let inputs = self.graphs[graph].inputs.iter().enumerate();
        for (index, value) in inputs.filter_map(|(index, info)| Some((index, info.value?))) {
            self.values[value].producer = Producer::Input(index as u32);
        }
    }

    /// Adds a constant of zeros to a graph, as a sparse tensor without values: a few bytes for any
    /// size. Sparse tensors cannot have zero dimensions or a dimension of size 0.
    pub fn add_sparse_zeros(
        &mut self,
        graph: GraphId,
        hint: &str,
        elem: DataType,
        dims: &[usize],
    ) -> ValueId {
        let value = self.add_value(graph, hint);
        let empty = |elem: DataType| TensorProto {
            dims: SmallVec::from_slice(&[0]),
            data_type: Some(elem.number()),
            ..TensorProto::default()
        };
        let values = TensorProto { name: Some(self.values[value].name), ..empty(elem) };
        let tensor = SparseTensorProto {
            values: Some(values),
            // Indices may be absent, but some readers require them for their type.
            indices: Some(empty(DataType::Int64)),
            dims: dims.iter().map(|dim| *dim as i64).collect(),
            ..SparseTensorProto::default()
        };
        let sparse = &mut self.graphs[graph].sparse_initializers;
        self.values[value].producer = Producer::SparseInitializer(sparse.len() as u32);
        sparse.push(SparseInitializer { value: Some(value), tensor });
        value
    }

    /// Converts a tensor to its stored form: raw bytes or a list of strings.
    pub fn tensor_proto(&mut self, tensor: &Tensor) -> TensorProto {
        let mut proto = TensorProto {
            dims: tensor.dims().iter().map(|dim| *dim as i64).collect(),
            data_type: Some(tensor.data_type().number()),
            ..TensorProto::default()
        };
        match (tensor.buffer(), tensor.strings()) {
            (Some(buffer), _) => proto.raw_data = Some(self.add_bytes(buffer.clone())),
            (None, Some(strings)) => {
                let records = crate::value_files::string_records(strings);
                let records = self.add_bytes(Buffer::from_vec(records));
                proto.typed.push(crate::constant::TypedRun { number: 6, records });
            }
            (None, None) => {}
        }
        proto
    }

    /// Adds a graph without nodes inside a node, which does not refer to it yet.
    pub fn add_inner_graph(&mut self, node: NodeId, name: &str) -> GraphId {
        let (owner, parent) = (Some(node), Some(self.nodes[node].graph));
        let name = Some(self.intern(name));
        self.graphs.push(Graph { owner, parent, name, ..Graph::default() })
    }

    /// Appends a node to a graph, with new values as outputs.
    pub fn add_node(
        &mut self,
        graph: GraphId,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        outputs: usize,
    ) -> NodeId {
        let (node, _) = self.new_node(graph, op_type, domain, inputs, outputs);
        self.graphs[graph].nodes.push(node);
        node
    }

    /// Creates a node that no list contains yet, and its outputs.
    pub(crate) fn new_node(
        &mut self,
        graph: GraphId,
        op_type: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
        outputs: usize,
    ) -> (NodeId, SmallVec<[ValueId; 2]>) {
        let id: NodeId = Id::new(self.nodes.len());
        let op = self.intern(op_type);
        let domain = (!domain.is_empty()).then(|| self.intern(domain));
        let start = self.output_lists.len() as u32;
        let mut made = SmallVec::new();
        for index in 0..outputs {
            let value = self.add_value(graph, op_type);
            self.values[value].producer = Producer::Node(id, index as u32);
            self.output_lists.push(Some(value));
            made.push(value);
        }
        self.nodes.push(Node {
            op_type: Some(op),
            domain,
            outputs: Range { start, len: outputs as u32 },
            ..Node::new(graph)
        });
        self.set_inputs(id, inputs);
        (id, made)
    }

    /// Removes a node from its graph. Its outputs remain as undefined values.
    pub fn remove_node(&mut self, id: NodeId) {
        self.detach_node(id);
        let graph = self.nodes[id].graph;
        self.graphs[graph].nodes.retain(|node| *node != id);
    }

    /// Removes the inputs and outputs of a node and of all nodes in its graphs. Their outputs
    /// remain as undefined values.
    pub fn detach_node(&mut self, id: NodeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            self.set_inputs(id, &[]);
            for index in self.nodes[id].outputs.indices() {
                if let Some(value) = self.output_lists[index].take() {
                    self.values[value].producer = Producer::Nothing;
                }
            }
            let attributes = self.attributes(id).iter();
            let graphs = attributes.flat_map(|attribute| self.attribute(*attribute).graphs());
            open.extend(graphs.flat_map(|graph| &self.graphs[graph].nodes));
        }
    }

    /// Replaces the inputs of a node.
    pub fn set_inputs(&mut self, node: NodeId, inputs: &[Option<ValueId>]) {
        for id in self.use_ids(node) {
            self.unlink(id);
        }
        // Input positions of a node are adjacent in the arena, so a longer list moves to the end.
        let start = if inputs.len() <= self.nodes[node].inputs.len as usize {
            self.nodes[node].inputs.start
        } else {
            for _ in inputs {
                self.uses.push(Use { value: None, node, next: None, previous: None });
            }
            (self.uses.len() - inputs.len()) as u32
        };
        self.nodes[node].inputs = Range { start, len: inputs.len() as u32 };
        for (id, input) in self.use_ids(node).zip(inputs) {
            if let Some(value) = input {
                self.link(id, *value);
            }
        }
    }

    /// Replaces one input; extends the list if needed.
    pub fn set_input(&mut self, node: NodeId, index: usize, value: Option<ValueId>) {
        let mut inputs: SmallVec<[Option<ValueId>; 6]> = self.inputs(node).collect();
        if inputs.len() <= index {
            inputs.resize(index + 1, None);
        }
        inputs[index] = value;
        self.set_inputs(node, &inputs);
    }

    /// Omits an output. Its readers read an undefined value then.
    pub fn drop_output(&mut self, node: NodeId, index: usize) {
        let range = self.nodes[node].outputs;
        if index >= range.len as usize {
            return;
        }
        if let Some(value) = self.output_lists[range.start as usize + index].take() {
            self.values[value].producer = Producer::Nothing;
        }
        if index + 1 == range.len as usize {
            self.nodes[node].outputs.len -= 1;
        }
    }

    /// Defines the first `count` outputs of a node: omitted ones get new values.
    pub fn fill_outputs(&mut self, node: NodeId, count: usize) {
        let Node { graph, op_type, .. } = self.nodes[node];
        let hint = self.display(op_type).into_owned();
        let mut outputs: SmallVec<[Option<ValueId>; 6]> = self.outputs(node).into();
        outputs.resize(count.max(outputs.len()), None);
        for (index, output) in outputs.iter_mut().enumerate().take(count) {
            if output.is_none() {
                let value = self.add_value(graph, &hint);
                self.values[value].producer = Producer::Node(node, index as u32);
                *output = Some(value);
            }
        }
        // Only the end of the arena has room, so the list moves there.
        let start = self.output_lists.len() as u32;
        self.nodes[node].outputs = Range { start, len: outputs.len() as u32 };
        self.output_lists.extend(outputs);
    }

    /// Inserts `value`, which must be undefined, as the output of a node at `index`. Later outputs
    /// move back by one position.
    pub fn insert_output(&mut self, node: NodeId, index: usize, value: ValueId) {
        let mut outputs: SmallVec<[Option<ValueId>; 6]> = self.outputs(node).into();
        outputs.resize(index.max(outputs.len()), None);
        outputs.insert(index, Some(value));
        for (index, output) in outputs.iter().enumerate().skip(index) {
            if let Some(output) = output {
                self.values[*output].producer = Producer::Node(node, index as u32);
            }
        }
        // Only the end of the arena has room, so the list moves there.
        let start = self.output_lists.len() as u32;
        self.nodes[node].outputs = Range { start, len: outputs.len() as u32 };
        self.output_lists.extend(outputs);
    }

    /// Redirects all uses of `from` to `to`, by nodes and graph outputs, except those of the node
    /// `except`.
    pub fn replace_uses(&mut self, from: ValueId, to: ValueId, except: Option<NodeId>) {
        let mut next = self.values[from].first_use;
        while let Some(id) = next {
            next = self.uses[id].next;
            if Some(self.uses[id].node) != except {
                self.unlink(id);
                self.link(id, to);
            }
        }
    }

    /// Defines `value` by `node`'s output at `index`. The value that it defined before is undefined
    /// then.
    pub fn redefine_output(&mut self, node: NodeId, index: usize, value: ValueId) {
        let at = self.nodes[node].outputs.start as usize + index;
        if let Some(old) = self.output_lists[at].replace(value) {
            self.values[old].producer = Producer::Nothing;
        }
        self.values[value].producer = Producer::Node(node, index as u32);
    }

    /// Adds an attribute to a node, or replaces the attribute of that name. A type, or a value that
    /// could not be read, is stored as an attribute without a value.
    pub fn set_attribute<'v>(&mut self, node: NodeId, name: &str, value: impl Into<AttrValue<'v>>) {
        self.remove_attribute(node, name);
        let value = self.store_value(value.into());
        let name = Some(self.intern(name));
        let ty = value.as_ref().map(AttributeValue::ty);
        let values = value.map(AttributeValues::from).unwrap_or_default();
        let id: AttributeId =
            self.attributes.push(Attribute { name, ty, values, ..Attribute::default() });
        // Only the end of the arena has room, so the list moves there.
        let list = self.nodes[node].attributes;
        self.attribute_lists.extend_from_within(list.indices());
        self.attribute_lists.push(id);
        self.nodes[node].attributes =
            Range { start: self.attribute_lists.len() as u32 - list.len - 1, len: list.len + 1 };
    }

    /// Moves all attributes of a node, including their graphs, to a node that has none.
    pub(crate) fn move_attributes(&mut self, from: NodeId, to: NodeId) {
        self.nodes[to].attributes = self.nodes[from].attributes;
        self.nodes[from].attributes = Range::default();
        let parent = Some(self.nodes[to].graph);
        let attributes = self.attributes(to).to_vec();
        for graph in
            attributes.iter().flat_map(|id| self.attribute(*id).graphs()).collect::<Vec<_>>()
        {
            (self.graphs[graph].owner, self.graphs[graph].parent) = (Some(to), parent);
        }
    }

    /// Removes all attributes of a node.
    pub fn clear_attributes(&mut self, node: NodeId) {
        self.nodes[node].attributes.len = 0;
    }

    /// Removes an attribute, if the node has it.
    pub fn remove_attribute(&mut self, node: NodeId, name: &str) {
        let Some(symbol) = self.symbol(name.as_bytes()) else {
            return;
        };
        let list = self.nodes[node].attributes;
        let mut kept = list.start as usize;
        for index in list.indices() {
            let id = self.attribute_lists[index];
            if self.attributes[id].name != Some(symbol) {
                self.attribute_lists[kept] = id;
                kept += 1;
            }
        }
        self.nodes[node].attributes.len = kept as u32 - list.start;
    }

    /// Adds a use to the list of its value.
    pub(crate) fn link(&mut self, id: UseId, value: ValueId) {
        let first = self.values[value].first_use.replace(id);
        if let Some(first) = first {
            self.uses[first].previous = Some(id);
        }
        let used = &mut self.uses[id];
        (used.value, used.next, used.previous) = (Some(value), first, None);
    }

    fn unlink(&mut self, id: UseId) {
        let Use { value: Some(value), next, previous, .. } = self.uses[id] else {
            return;
        };
        match previous {
            Some(previous) => self.uses[previous].next = next,
            None => self.values[value].first_use = next,
        }
        if let Some(next) = next {
            self.uses[next].previous = previous;
        }
        let used = &mut self.uses[id];
        (used.value, used.next, used.previous) = (None, None, None);
    }
}
