//! Putting a model together, for whatever notation it comes in: values get their definitions, names
//! their symbols, inputs of nodes what they read.

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

/// Puts a model together from a source that holds its names, whatever notation that source is in.
///
/// Definitions get their values at once. What nodes read is bound by name: at once if the graph has
/// defined it before, as nothing can change that; everything else at the end, when all graphs are
/// complete, so that nothing depends on the order of nodes.
pub struct Builder<'m, 'a> {
    /// The model so far.
    pub model: &'m mut Model,
    pub(crate) source: SourceId,
    /// The bytes of the source, or none: then names are only found more slowly.
    pub(crate) bytes: &'a [u8],
    /// Graphs that the model had before, which stay as they are.
    graphs_before: usize,
    /// Bytes that the structure may still take.
    pub(crate) memory_left: u64,
    limits: ReadLimits,
    pub(crate) scopes: Scopes,
    /// Names of nodes and their inputs and outputs that have no symbol yet.
    pending: Vec<PendingName<'a>>,
    /// The text of the last output, which is what the next node is most likely to read, and its
    /// symbol once it has one.
    last_output: &'a [u8],
    last_output_name: Option<Symbol>,
    /// Operators and names of attributes: there are few of them, and comparing with the one seen
    /// last is faster than looking for it among all names.
    frequent: [Option<(&'a [u8], Symbol)>; FREQUENT],
    /// Inputs that are not bound yet, by name.
    unbound: Vec<Unbound>,
    /// Small payloads that are in no source yet, and the source that they will be.
    pool: Option<(SourceId, Vec<u8>)>,
}

impl<'m, 'a> Builder<'m, 'a> {
    /// For a model whose names lie in `bytes`, which are those of `source`, or for graphs that are
    /// added to a model that is complete.
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

    /// Binds the inputs of all nodes, and declared outputs and types to their values.
    pub fn finish(mut self) {
        self.settle();
        self.flush_pool();
        // Graph by graph, from the outside in, as a file is read: a name that nothing defines
        // belongs to the outermost graph that uses it. A graph comes after the one around it.
        let before = self.graphs_before;
        let mut depth: Vec<u32> = Vec::with_capacity(self.model.graphs.len() - before);
        for (_, graph) in self.model.graphs.iter().skip(before) {
            depth.push(graph.parent.map_or(0, |parent| depth[parent.index() - before] + 1));
        }
        self.unbound.sort_by_key(|input| depth[input.graph.index() - before]);
        self.bind();
        self.bind_infos();
    }

    /// Makes room for that many nodes, and for what they usually bring along.
    pub fn reserve(&mut self, nodes: usize) {
        self.model.reserve(nodes);
        self.scopes.reserve(self.model.names.len() + 2 * nodes + 64);
    }

    /// A new graph: the body of an attribute of `owner`, or one that stands alone. It sees the
    /// values of `parent`.
    ///
    /// # Errors
    ///
    /// More structure than the limits allow, as for everything that is added.
    pub fn add_graph(
        &mut self,
        owner: Option<NodeId>,
        parent: Option<GraphId>,
        offset: u64,
    ) -> Built<GraphId> {
        self.count::<Graph>(offset)?;
        Ok(self.model.graphs.push(Graph { owner, parent, ..Graph::default() }))
    }

    /// A new node at the end of a graph. Its outputs are added before the nodes of its own graphs,
    /// its inputs before or after all of them.
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

    /// Adds an output to a node. An empty name is one left out.
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

    /// Adds an input to a node. An empty name is one left out.
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
    /// A name of 4 GiB.
    #[inline]
    pub fn name_node(&mut self, node: NodeId, text: Text<'a>) -> Built {
        self.later(text, NamePlace::Node(node))
    }

    /// Adds an attribute to the model. It belongs to a node once it is in the list that the node
    /// gets by [`set_attributes`](Self::set_attributes).
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn add_attribute(&mut self, attribute: Attribute, offset: u64) -> Built<AttributeId> {
        self.count::<(Attribute, AttributeId)>(offset)?;
        Ok(self.model.attributes.push(attribute))
    }

    /// Gives a node its attributes, once all of them, with what is in their graphs, have been
    /// added.
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

    /// Adds a constant to a graph.
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

    /// Adds a sparse constant to a graph.
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

    /// The symbol of a text that is not in the source as it is.
    pub fn own_name(&mut self, text: &[u8]) -> Symbol {
        self.model.names.intern_own(text, &self.model.sources)
    }

    /// Takes bytes into the model. They are not at hand before the model is finished.
    pub fn keep(&mut self, bytes: &[u8]) -> Span {
        /// Small payloads share a source: most are a few bytes long, and a source of their own
        /// costs more than that.
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
        // Elements that lie at multiples of their size can be used where they are.
        pool.resize(pool.len().next_multiple_of(16), 0);
        let offset = pool.len() as u64;
        pool.extend_from_slice(bytes);
        Span { source: *source, offset, len: bytes.len() as u64 }
    }

    /// Takes bytes into the model, those of a vector from `start` on.
    pub fn keep_vec(&mut self, bytes: Vec<u8>, start: usize) -> Span {
        let len = (bytes.len() - start) as u64;
        let source = self.model.sources.push(Buffer::from_vec(bytes));
        Span { source, offset: start as u64, len }
    }

    /// Looks at bytes that were taken into the model.
    pub fn with_bytes<T>(&self, span: Span, look: impl FnOnce(&[u8]) -> T) -> T {
        let range = span.offset as usize..(span.offset + span.len) as usize;
        match &self.pool {
            Some((source, pool)) if *source == span.source => look(&pool[range]),
            _ => look(self.model.bytes(span)),
        }
    }

    /// Takes bytes of the source as they are.
    pub fn span(&self, slice: Slice<'_>) -> Span {
        Span::of(self.source, slice)
    }

    fn flush_pool(&mut self) {
        if let Some((source, pool)) = self.pool.take() {
            self.model.sources[source] = Buffer::from_vec(pool);
        }
    }

    /// An input position of a node.
    #[inline]
    pub(crate) fn push_use(&mut self, graph: GraphId, node: NodeId, text: Text<'a>) -> Built {
        self.count::<Use>(text.offset())?;
        let id = self.model.uses.push(Use { value: None, node, next: None, previous: None });
        if text.is_empty() {
            return Ok(());
        }
        self.count::<Unbound>(text.offset())?;
        self.later(text, NamePlace::Input(id, graph))
    }

    /// An output position of a node.
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
        self.later(text, NamePlace::Output(position, graph, node, index))
    }

    /// Counts what becomes a `T` in memory against the limit. Names do not count: they are as long
    /// in the file. Whoever adds a value info, a tensor or a type has counted it.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    #[inline]
    pub fn count<T>(&mut self, offset: u64) -> Built {
        self.count_list::<T>(1, offset)
    }

    /// Counts memory of a list.
    ///
    /// # Errors
    ///
    /// See [`add_graph`](Self::add_graph).
    pub fn count_bytes(&mut self, bytes: u64, offset: u64) -> Built {
        self.count_list::<u8>(bytes as usize, offset)
    }

    /// Counts a list.
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

    /// The symbol of a name of which there are few. Each has one place, which it may have to leave
    /// to another.
    ///
    /// # Errors
    ///
    /// A name of 4 GiB.
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

    /// The symbol of a text.
    ///
    /// # Errors
    ///
    /// A text of 4 GiB.
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
            Span::of(self.source, slice),
            self.bytes,
            &self.model.sources,
        )
    }

    /// A name that gets its symbol with others, at the latest when [`settle`](Self::settle) is
    /// called.
    // As a call, `place` would go through memory twice, which takes as long as hashing the name.
    #[inline(always)]
    pub(crate) fn later(&mut self, text: Text<'a>, place: NamePlace) -> Built {
        let text = match text {
            Text::Here(text) => text,
            Text::Interned(name) => {
                self.settle();
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
            self.settle();
        }
        Ok(())
    }

    /// Gives the names that wait their symbols.
    pub(crate) fn settle(&mut self) {
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

    /// The value that a definition gives, after those of all nodes so far.
    fn define_after_nodes(&mut self, graph: GraphId, name: Symbol, producer: Producer) -> ValueId {
        self.settle();
        self.define(graph, name, producer)
    }

    /// The value that a definition gives. An input and an initializer of one name are one value;
    /// any other second definition is a value of its own, which nobody can refer to.
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

    /// Binds the inputs that are left, of graphs that are complete with those around them.
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

    /// Ties declared outputs and types to their values.
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

/// A name.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// Bytes of the source.
    Here(Slice<'a>),
    /// One that the model has already; not the empty one.
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

/// An error that does not know its place yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where, in bytes from the start of the source.
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

/// What building gives.
// A failure is boxed so that a symbol or an id comes back in registers.
pub type Built<T = ()> = Result<T, Box<Failure>>;

/// What names mean in which graph. Most names are defined in one graph only, so that a list by
/// symbol answers nearly every question; a table has the rest.
#[derive(Default)]
pub(crate) struct Scopes {
    /// By symbol, the first value of that name, in whichever graph.
    first: Vec<Option<ValueId>>,
    /// Values of other graphs whose names were taken.
    others: HashMap<(GraphId, Symbol), ValueId>,
}

impl Scopes {
    /// Makes room for the names below a number.
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

    /// Gives a name that the graph does not define yet its value.
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

/// Places for frequent names.
const FREQUENT: usize = 256;

/// Names that are looked up together. Nearly all the time a name takes is waiting for memory, first
/// for its slot in the table, then for the entry, then for its text in the file; the waits of a
/// batch overlap.
const BATCH: usize = 32;

/// A name that has no symbol yet.
struct PendingName<'a> {
    /// `None` for that of the last output before it, which needs no search.
    text: Option<Slice<'a>>,
    place: NamePlace,
    hash: u32,
}

/// An input of a node of a graph that reads a name.
#[derive(Clone, Copy)]
struct Unbound {
    id: UseId,
    graph: GraphId,
    name: Symbol,
}

/// What a name belongs to.
#[derive(Clone, Copy)]
pub(crate) enum NamePlace {
    /// A node.
    Node(NodeId),
    /// An input of a node of this graph.
    Input(UseId, GraphId),
    /// The output at this position of the model's output lists: which one of which node, in which
    /// graph.
    Output(u32, GraphId, NodeId, u32),
}

/// Lengths of texts are kept in 32 bits.
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
