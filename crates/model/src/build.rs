//! Builds models for parsers of any notation: assigns values to definitions, symbols to names, and
//! values to the inputs of nodes.

use hashbrown::HashMap;
use sardonyx_proto::{self as proto, Slice};
use sardonyx_tensor::Buffer;

use crate::attribute::Attribute;
use crate::constant::{SparseTensorProto, TensorProto};
use crate::error::ErrorKind;
use crate::graph::{
    Graph, Initializer, Model, Node, Producer, Range, SparseInitializer, Use, Value, ValueInfo,
};
use crate::ids::{Arena, AttributeId, GraphId, Id, NodeId, SourceId, UseId, ValueId};
use crate::names::{Symbol, same};
use crate::read::ReadLimits;
use crate::source::Span;

/// Builds a model from a source that holds its names, in any notation.
///
/// Definitions get their values at once. Inputs of nodes are bound by name: at once if the graph
/// has already defined the name, as nothing can change that; otherwise at the end, when all graphs
/// are complete, so that the order of nodes does not matter.
pub struct Builder<'m, 'a> {
    /// Model under construction.
    pub model: &'m mut Model,
    pub(crate) source: SourceId,
    /// Bytes of the source. May be empty: then names are found more slowly.
    pub(crate) bytes: &'a [u8],
    /// Number of graphs that the model had before; they are not changed.
    graphs_before: usize,
    /// Bytes of memory that the structure may still take.
    pub(crate) memory_left: u64,
    limits: ReadLimits,
    pub(crate) scopes: Scopes,
    /// Names of nodes and of their inputs and outputs that have no symbol yet.
    pending: Vec<PendingName<'a>>,
    /// Text of the last output and, once it has one, its symbol. The next node is most likely to
    /// read it.
    last_output: &'a [u8],
    last_output_name: Option<Symbol>,
    /// Cache of names of operators and attributes, by a hash. There are few, and comparing with the
    /// last text in a slot is faster than a lookup among all names.
    frequent: [Option<(&'a [u8], Symbol)>; FREQUENT],
    /// Inputs of nodes that are not bound yet.
    unbound: Vec<Unbound>,
    /// Small payloads that are not part of a source yet, and the source that they will become.
    pool: Option<(SourceId, Vec<u8>)>,
}

impl<'m, 'a> Builder<'m, 'a> {
    /// Creates a builder for a model whose names lie in `bytes`, the bytes of `source`, or for
    /// graphs that are added to a complete model.
    pub fn new(
        model: &'m mut Model,
        source: SourceId,
        bytes: &'a [u8],
        limits: ReadLimits,
    ) -> Self {
        Builder {
            graphs_before: model.graphs.len(),
            model,
            source,
            bytes,
            memory_left: limits.memory(bytes.len()),
            limits,
            scopes: Scopes::default(),
            pending: Vec::new(),
            last_output: &[],
            last_output_name: None,
            frequent: [None; FREQUENT],
            unbound: Vec::new(),
            pool: None,
        }
    }

    /// Binds the inputs of all nodes, and the declared outputs and types, to their values.
    pub fn finish(mut self) {
        self.intern_pending();
        self.flush_pool();
        // Binds graph by graph, outer ones first, like the reader: an undefined name belongs to the
        // outermost graph that uses it. A graph has a higher id than its parent.
        let before = self.graphs_before;
        let mut depth: Vec<u32> = Vec::with_capacity(self.model.graphs.len() - before);
        for (_, graph) in self.model.graphs.iter().skip(before) {
            depth.push(graph.parent.map_or(0, |parent| depth[parent.index() - before] + 1));
        }
        self.unbound.sort_by_key(|input| depth[input.graph.index() - before]);
        self.bind();
        self.bind_infos();
    }

    /// Reserves capacity for `nodes` nodes with a usual number of names, inputs and outputs.
    pub fn reserve(&mut self, nodes: usize) {
        self.model.reserve(nodes);
        self.scopes.reserve(self.model.names.len() + 2 * nodes + 64);
    }

    /// Adds a graph: the body of an attribute of `owner`, or a graph without owner. It sees the
    /// values of `parent`.
    ///
    /// # Errors
    ///
    /// The structure exceeds the memory limit, like in all methods that add to the model.
    pub fn add_graph(
        &mut self,
        owner: Option<NodeId>,
        parent: Option<GraphId>,
        offset: u64,
    ) -> Built<GraphId> {
        self.count::<Graph>(offset)?;
        Ok(self.model.graphs.push(Graph { owner, parent, ..Graph::default() }))
    }

    /// Adds a node at the end of a graph. Its outputs must be added before the nodes of its own
    /// graphs, its inputs before or after all of them.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn add_node(&mut self, graph: GraphId, offset: u64) -> Built<NodeId> {
        self.count::<(Node, NodeId)>(offset)?;
        let outputs = self.model.output_lists.len() as u32;
        let id = self.model.nodes.push(Node { outputs: Range::empty(outputs), ..Node::new(graph) });
        self.model.graphs[graph].nodes.push(id);
        Ok(id)
    }

    /// Adds an output to a node. An empty name stands for an omitted output.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn add_output(&mut self, node: NodeId, text: Text<'a>) -> Built {
        let Node { graph, outputs, .. } = &mut self.model.nodes[node];
        let (graph, index) = (*graph, outputs.len);
        outputs.len += 1;
        self.push_output(graph, node, index, text)
    }

    /// Adds an input to a node. An empty name stands for an omitted input.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn add_input(&mut self, node: NodeId, text: Text<'a>) -> Built {
        let next = self.model.uses.len() as u32;
        let inputs = &mut self.model.nodes[node].inputs;
        if inputs.len == 0 {
            inputs.start = next;
        }
        inputs.len += 1;
        let graph = self.model.nodes[node].graph;
        self.push_use(graph, node, text)
    }

    /// Names a node.
    ///
    /// # Errors
    ///
    /// The name has 4 GiB or more.
    #[inline]
    pub fn name_node(&mut self, node: NodeId, text: Text<'a>) -> Built {
        self.queue_name(text, NamePlace::Node(node))
    }

    /// Adds an attribute to the model. [`set_attributes`](Self::set_attributes) assigns it to a
    /// node.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn add_attribute(&mut self, attribute: Attribute, offset: u64) -> Built<AttributeId> {
        self.count::<(Attribute, AttributeId)>(offset)?;
        Ok(self.model.attributes.push(attribute))
    }

    /// Assigns attributes to a node, once all of them have been added with the content of their
    /// graphs.
    pub fn set_attributes(&mut self, node: NodeId, attributes: &[AttributeId]) {
        let lists = &mut self.model.attribute_lists;
        self.model.nodes[node].attributes =
            Range { start: lists.len() as u32, len: attributes.len() as u32 };
        lists.extend_from_slice(attributes);
    }

    /// Adds an input to a graph.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn add_graph_input(&mut self, graph: GraphId, mut info: ValueInfo, offset: u64) -> Built {
        self.count::<Value>(offset)?;
        let index = self.model.graphs[graph].inputs.len() as u32;
        info.value =
            info.name.map(|name| self.define_after_nodes(graph, name, Producer::Input(index)));
        self.model.graphs[graph].inputs.push(info);
        Ok(())
    }

    /// Adds an initializer to a graph.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn add_initializer(&mut self, graph: GraphId, tensor: TensorProto, offset: u64) -> Built {
        self.count::<Value>(offset)?;
        let index = self.model.graphs[graph].initializers.len() as u32;
        let value = tensor
            .name
            .map(|name| self.define_after_nodes(graph, name, Producer::Initializer(index)));
        self.model.graphs[graph].initializers.push(Initializer { value, tensor });
        Ok(())
    }

    /// Adds a sparse initializer to a graph.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn add_sparse_initializer(
        &mut self,
        graph: GraphId,
        tensor: SparseTensorProto,
        offset: u64,
    ) -> Built {
        self.count::<Value>(offset)?;
        let index = self.model.graphs[graph].sparse_initializers.len() as u32;
        let name = tensor.values.as_ref().and_then(|values| values.name);
        let value = name
            .map(|name| self.define_after_nodes(graph, name, Producer::SparseInitializer(index)));
        self.model.graphs[graph].sparse_initializers.push(SparseInitializer { value, tensor });
        Ok(())
    }

    /// Interns a text that is not part of the source.
    pub fn own_name(&mut self, text: &[u8]) -> Symbol {
        self.model.names.intern_own(text, &self.model.sources)
    }

    /// Copies bytes into the model. Until the model is finished, only
    /// [`with_bytes`](Self::with_bytes) can read them.
    pub fn keep(&mut self, bytes: &[u8]) -> Span {
        /// Size of the shared source of small payloads: most are a few bytes long, and a source of
        /// their own costs more than that.
        const POOL: usize = 256 << 10;
        if bytes.len() > POOL / 8 {
            return self.keep_vec(bytes.to_vec(), 0);
        }
        let full = |(_, pool): &(SourceId, Vec<u8>)| pool.len() + bytes.len() > POOL;
        if self.pool.as_ref().is_some_and(full) {
            self.flush_pool();
        }
        let sources = &mut self.model.sources;
        let (source, pool) = self
            .pool
            .get_or_insert_with(|| (sources.push(Buffer::empty()), Vec::with_capacity(4096)));
        // Aligned so that elements of up to 16 bytes can be used in place.
        pool.resize(pool.len().next_multiple_of(16), 0);
        let offset = pool.len() as u64;
        pool.extend_from_slice(bytes);
        Span { source: *source, offset, len: bytes.len() as u64 }
    }

    /// Moves the bytes of a vector from `start` on into the model.
    pub fn keep_vec(&mut self, bytes: Vec<u8>, start: usize) -> Span {
        let len = (bytes.len() - start) as u64;
        let source = self.model.sources.push(Buffer::from_vec(bytes));
        Span { source, offset: start as u64, len }
    }

    /// Passes bytes that were added to the model to `look`.
    pub fn with_bytes<T>(&self, span: Span, look: impl FnOnce(&[u8]) -> T) -> T {
        let range = span.offset as usize..(span.offset + span.len) as usize;
        match &self.pool {
            Some((source, pool)) if *source == span.source => look(&pool[range]),
            _ => look(self.model.bytes(span)),
        }
    }

    /// Returns the span of bytes of the source.
    pub fn span(&self, slice: Slice<'_>) -> Span {
        Span::new(self.source, slice)
    }

    fn flush_pool(&mut self) {
        if let Some((source, pool)) = self.pool.take() {
            self.model.sources[source] = Buffer::from_vec(pool);
        }
    }

    /// Adds an input position to a node.
    #[inline]
    pub(crate) fn push_use(&mut self, graph: GraphId, node: NodeId, text: Text<'a>) -> Built {
        self.count::<Use>(text.offset())?;
        let id = self.model.uses.push(Use { value: None, node, next: None, previous: None });
        if text.is_empty() {
            return Ok(());
        }
        self.count::<Unbound>(text.offset())?;
        self.queue_name(text, NamePlace::Input(id, graph))
    }

    /// Adds an output position to a node.
    #[inline]
    pub(crate) fn push_output(
        &mut self,
        graph: GraphId,
        node: NodeId,
        index: u32,
        text: Text<'a>,
    ) -> Built {
        self.count::<Value>(text.offset())?;
        self.model.output_lists.push(None);
        if text.is_empty() {
            return Ok(());
        }
        let position = self.model.output_lists.len() as u32 - 1;
        self.queue_name(text, NamePlace::Output(position, graph, node, index))
    }

    /// Counts the memory of a `T` against the limit. Names do not count, as they are as long in the
    /// file. A caller that adds a value info, a tensor or a type has counted it before.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn count<T>(&mut self, offset: u64) -> Built {
        self.count_list::<T>(1, offset)
    }

    /// Counts the memory of a list, in bytes.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn count_bytes(&mut self, bytes: u64, offset: u64) -> Built {
        self.count_list::<u8>(bytes as usize, offset)
    }

    /// Counts the memory of a list of `length` elements.
    #[inline]
    pub(crate) fn count_list<T>(&mut self, length: usize, offset: u64) -> Built {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        match self.memory_left.checked_sub(bytes) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => {
                let limit = self.limits.memory(self.bytes.len());
                let kind = ErrorKind::TooMuchStructure { limit };
                Err(Failure::new(kind, offset))
            }
        }
    }

    /// Interns a name of which there are few different ones. Each has one slot in a small cache,
    /// from which another name may evict it.
    ///
    /// # Errors
    ///
    /// The name has 4 GiB or more.
    pub fn frequent_name(&mut self, slice: Slice<'a>) -> Built<Symbol> {
        let [first, .., last] = *slice.bytes else {
            return self.name(slice);
        };
        let place = slice.bytes.len() * 29 + usize::from(first) * 7 + usize::from(last) * 37;
        let place = place % FREQUENT;
        match self.frequent[place] {
            Some((text, name)) if same(text, slice.bytes) => Ok(name),
            _ => {
                let name = self.name(slice)?;
                self.frequent[place] = Some((slice.bytes, name));
                Ok(name)
            }
        }
    }

    /// Interns a text of the source.
    ///
    /// # Errors
    ///
    /// The text has 4 GiB or more.
    #[inline]
    pub fn name(&mut self, slice: Slice<'_>) -> Built<Symbol> {
        check_length(slice)?;
        let hash = self.model.names.hash(slice.bytes);
        Ok(self.hashed_name(slice, hash))
    }

    #[inline]
    fn hashed_name(&mut self, slice: Slice<'_>, hash: u32) -> Symbol {
        self.model.names.intern(
            slice.bytes,
            hash,
            Span::new(self.source, slice),
            self.bytes,
            &self.model.sources,
        )
    }

    /// Queues a name that gets its symbol in a batch, at the latest in
    /// [`intern_pending`](Self::intern_pending).
    // Inlined: as a call, `place` would be stored and loaded again, which takes as long as hashing
    // the name.
    #[inline(always)]
    pub(crate) fn queue_name(&mut self, text: Text<'a>, place: NamePlace) -> Built {
        let text = match text {
            Text::Here(text) => text,
            Text::Interned(name) => {
                self.intern_pending();
                self.put_name(place, name);
                return Ok(());
            }
        };
        let is_last_output = match place {
            NamePlace::Input(..) => same(text.bytes, self.last_output),
            _ => false,
        };
        let name = if is_last_output {
            PendingName { text: None, hash: 0, place }
        } else {
            check_length(text)?;
            PendingName { text: Some(text), hash: self.model.names.hash(text.bytes), place }
        };
        if let NamePlace::Output(..) = place {
            self.last_output = text.bytes;
        }
        self.pending.push(name);
        if self.pending.len() == BATCH {
            self.intern_pending();
        }
        Ok(())
    }

    /// Interns the queued names.
    pub(crate) fn intern_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        self.model.names.fetch::<BATCH>(pending.iter().map(|name| name.hash), self.bytes);
        for &PendingName { text, place, hash } in &pending {
            let name = match (text, self.last_output_name) {
                (None, Some(name)) => name,
                (text, _) => self.hashed_name(text.unwrap_or_default(), hash),
            };
            if let NamePlace::Output(..) = place {
                self.last_output_name = Some(name);
            }
            self.put_name(place, name);
        }
        self.pending = pending;
        self.pending.clear();
    }

    #[inline]
    fn put_name(&mut self, place: NamePlace, name: Symbol) {
        match place {
            NamePlace::Node(node) => self.model.nodes[node].name = Some(name),
            NamePlace::Input(id, graph) => match self.scopes.get(graph, name, &self.model.values) {
                Some(value) => self.model.link(id, value),
                None => self.unbound.push(Unbound { id, graph, name }),
            },
            NamePlace::Output(position, graph, node, index) => {
                let value = self.define(graph, name, Producer::Node(node, index));
                self.model.output_lists[position as usize] = Some(value);
            }
        }
    }

    /// Defines a name after the outputs of all nodes so far, and returns its value.
    fn define_after_nodes(&mut self, graph: GraphId, name: Symbol, producer: Producer) -> ValueId {
        self.intern_pending();
        self.define(graph, name, producer)
    }

    /// Defines a name and returns its value. An input and an initializer of one name share a value;
    /// any other second definition gets a value of its own that no input can refer to.
    fn define(&mut self, graph: GraphId, name: Symbol, producer: Producer) -> ValueId {
        let defined = self.scopes.get(graph, name, &self.model.values);
        if let Some(id) = defined {
            let value = &mut self.model.values[id];
            match (value.producer, producer) {
                (Producer::Initializer(_) | Producer::SparseInitializer(_), Producer::Input(_)) => {
                    value.producer = producer;
                    return id;
                }
                (Producer::Input(_), Producer::Initializer(_) | Producer::SparseInitializer(_)) => {
                    return id;
                }
                _ => {}
            }
        }
        let id = self.model.values.push(Value {
            name,
            graph,
            producer,
            is_output: false,
            first_use: None,
        });
        if defined.is_none() {
            self.scopes.insert(graph, name, id);
        }
        id
    }

    /// Binds the remaining inputs, for graphs that are complete together with their parents.
    pub(crate) fn bind(&mut self) {
        for Unbound { id, graph, name } in std::mem::take(&mut self.unbound) {
            let value = self.look_up(graph, name).unwrap_or_else(|| {
                let value = Value {
                    name,
                    graph,
                    producer: Producer::Nothing,
                    is_output: false,
                    first_use: None,
                };
                let value = self.model.values.push(value);
                self.scopes.insert(graph, name, value);
                value
            });
            self.model.link(id, value);
        }
    }

    /// Binds declared outputs and types to their values.
    pub(crate) fn bind_infos(&mut self) {
        for index in self.graphs_before..self.model.graphs.len() {
            self.bind_infos_of(Id::new(index));
        }
    }

    fn bind_infos_of(&mut self, graph: GraphId) {
        let Model { graphs, values, .. } = &mut *self.model;
        let Graph { outputs, value_info, .. } = &mut graphs[graph];
        for info in outputs.iter_mut() {
            let value = info.name.and_then(|name| self.scopes.get(graph, name, values));
            info.value = value;
            if let Some(value) = value {
                values[value].is_output = true;
            }
        }
        for info in value_info {
            info.value = info.name.and_then(|name| self.scopes.get(graph, name, values));
        }
    }

    fn look_up(&self, graph: GraphId, name: Symbol) -> Option<ValueId> {
        let mut next = Some(graph);
        while let Some(graph) = next {
            let value = self.scopes.get(graph, name, &self.model.values);
            if value.is_some() {
                return value;
            }
            next = self.model.graphs[graph].parent;
        }
        None
    }
}

/// Name that is passed to the builder.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// Bytes of the source.
    Here(Slice<'a>),
    /// A symbol of the model, not of the empty text.
    Interned(Symbol),
}

impl Text<'_> {
    #[inline]
    fn offset(self) -> u64 {
        match self {
            Text::Here(text) => text.offset,
            Text::Interned(_) => 0,
        }
    }

    #[inline]
    fn is_empty(self) -> bool {
        matches!(self, Text::Here(text) if text.bytes.is_empty())
    }
}

/// Error with an offset, before its path in the file is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Offset in bytes from the start of the source.
    pub offset: u64,
}

impl Failure {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, offset: u64) -> Box<Failure> {
        Box::new(Failure { kind, offset })
    }
}

impl From<proto::Error> for Box<Failure> {
    #[cold]
    fn from(error: proto::Error) -> Self {
        Failure::new(ErrorKind::Wire(error.kind()), error.offset())
    }
}

/// Result of a building step.
// A failure is boxed so that a symbol or an id is returned in registers.
pub type Built<T = ()> = Result<T, Box<Failure>>;

/// Values by name and graph. Most names are defined in one graph only, so a list by symbol answers
/// nearly every lookup; a table has the rest.
#[derive(Default)]
pub(crate) struct Scopes {
    /// First value of each name in any graph, by symbol.
    first: Vec<Option<ValueId>>,
    /// Values whose names were already defined in another graph.
    others: HashMap<(GraphId, Symbol), ValueId>,
}

impl Scopes {
    /// Extends the list to `names` symbols.
    #[cold]
    pub(crate) fn reserve(&mut self, names: usize) {
        self.first.resize(names.max(self.first.len()), None);
    }

    #[inline]
    fn get(&self, graph: GraphId, name: Symbol, values: &Arena<ValueId, Value>) -> Option<ValueId> {
        let first = (*self.first.get(name.index())?)?;
        if values[first].graph == graph {
            return Some(first);
        }
        self.others.get(&(graph, name)).copied()
    }

    /// Adds the value of a name that the graph does not define yet.
    #[inline]
    fn insert(&mut self, graph: GraphId, name: Symbol, value: ValueId) {
        if self.first.len() <= name.index() {
            self.reserve(name.index() + 64);
        }
        match &mut self.first[name.index()] {
            Some(_) => {
                self.others.insert((graph, name), value);
            }
            none => *none = Some(value),
        }
    }
}

/// Number of slots for frequent names.
const FREQUENT: usize = 256;

/// Number of names that are looked up together. A lookup mostly waits for memory: for the slot in
/// the table, then for the entry, then for the text in the file. The waits of a batch overlap.
const BATCH: usize = 32;

/// Name without a symbol yet.
struct PendingName<'a> {
    /// Text; `None` for the name of the preceding output, which needs no lookup.
    text: Option<Slice<'a>>,
    place: NamePlace,
    hash: u32,
}

/// Input of a node of `graph`, to be bound to `name`.
#[derive(Clone, Copy)]
struct Unbound {
    id: UseId,
    graph: GraphId,
    name: Symbol,
}

/// Owner of a name.
#[derive(Clone, Copy)]
pub(crate) enum NamePlace {
    /// A node.
    Node(NodeId),
    /// Input of a node, and the node's graph.
    Input(UseId, GraphId),
    /// Output: its position in the model's output lists, graph, node, and position among the node's
    /// outputs.
    Output(u32, GraphId, NodeId, u32),
}

/// Fails if a text has 4 GiB or more, as lengths of texts are stored in 32 bits.
#[inline]
fn check_length(text: Slice<'_>) -> Built {
    match u32::try_from(text.bytes.len()) {
        Ok(_) => Ok(()),
        Err(_) => {
            let length = text.bytes.len() as u64;
            Err(Failure::new(ErrorKind::TextTooLong { length }, text.offset))
        }
    }
}

impl std::fmt::Debug for Builder<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder({} nodes so far)", self.model.nodes.len())
    }
}
