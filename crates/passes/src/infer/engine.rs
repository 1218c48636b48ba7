//! The walk over the nodes.

use std::borrow::Cow;
use std::mem::take;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Dim, DimValue, GraphId, Id, Model, NoExternalData, NodeAttributes, NodeId, OperatorSetId,
    Producer, Symbol, TensorType, Texts, Type, TypeKind, TypeProto, ValueId, shown_domain,
};
use sardonyx_ops::{
    AttrType, Attribute, Demand, Infer, InferError, InferFn, Known, MAX_KNOWN, OpDef, OpRef,
    Present, Registry, Said, Schema, Subgraphs,
};
use sardonyx_proto::shown;
use sardonyx_tensor::DataType;
use sardonyx_tensor::shape::RANK_LIMIT;
use smallvec::SmallVec;

use super::calls::{Answer, Asked, Call};
use super::denotations;
use super::equalities::{Equalities, over_sizes};
use super::everywhere::InAllCalls;
use super::inner::Inside;
use super::operands::{Bound, wrong_count};
use super::reference::weaken;
use super::repeats::{Repeats, is_of_types};
use super::table::TypeTable;
use super::unknown::{Fresh, Missing};
use super::{InferOptions, Inference, Problem, ProblemKind, RuleAnswer, Rules, Style};
use crate::codes;
use crate::finding::Spot;
use crate::order::sorted;
use crate::resolve::Resolved;

/// Node visits of graphs that are walked through more than once, for each node that the model has,
/// and to begin with.
const VISITS_PER_NODE: u64 = 64;
const VISITS: u64 = 100_000;

/// What is listed of each kind; nobody reads more.
pub(super) const MOST_LISTED: usize = 100_000;

/// Inference in progress.
pub(super) struct Engine<'a> {
    pub(super) model: &'a Model,
    pub(super) texts: Texts<'a>,
    pub(super) registry: &'a Registry,
    pub(super) options: InferOptions<'a>,
    /// What resolving found: operators of nodes, and graphs in an order in which they can run.
    resolved: Option<&'a Resolved>,
    /// By number of an operator of it.
    of_resolved: Vec<Option<Callee<'a>>>,
    pub(super) found: Inference,
    pub(super) equalities: Equalities,
    /// What nodes demand of sizes, if it is asked for.
    pub(super) demands: HashSet<Demand>,
    pub(super) fresh: Fresh,
    /// The sizes that names of the file stand for.
    named: HashMap<Symbol, Dim>,
    imports: HashMap<Scope, std::collections::HashMap<Cow<'a, str>, i64>>,
    callees: HashMap<CalleeKey, Callee<'a>>,
    /// Nodes that were looked at, for those that are given the same.
    pub(super) repeats: Repeats,
    /// Problems and gaps so far, listed or not.
    pub(super) complaints: usize,
    /// Functions of the model by domain, name and overload; empty texts are `None`.
    functions: HashMap<FunctionKey, usize>,
    empty: Option<Symbol>,
    /// Calls on the way, the innermost last.
    pub(super) calls: Vec<Call>,
    /// What calls of functions gave, by all that they were given.
    pub(super) answers: HashMap<Asked, Answer>,
    /// What calls have found of the values of functions, if that is asked for.
    pub(super) in_all_calls: Option<InAllCalls>,
    pub(super) depth: usize,
    pub(super) visits: u64,
    /// The number of the first name that could be made up by the node at hand.
    pub(super) first_name: usize,
    /// Whether the graph has a node of which nothing is known: then it is no wonder if types are
    /// missing further down.
    pub(super) unsupported: bool,
    /// Whether that is so of a graph around this one.
    pub(super) muted: bool,
    /// Whether one node is looked at alone: it is compared with its operator, and unknown sizes get
    /// no names.
    pub(super) alone: bool,
    /// Inputs that are constants as well, with the position among these.
    pub(super) defaults: HashMap<ValueId, usize>,
    /// Values that the file gives more dimensions than a tensor can have, with how many, in the
    /// style of the reference implementation: it lets them be, so that they matter only where a
    /// node needs them.
    deep: HashMap<ValueId, usize>,
    /// Graphs that were walked through before: of their values there is something to forget.
    walked: HashSet<GraphId>,
    /// Values that are declared with an element type that the standard does not have, if that is
    /// asked for.
    pub(super) strange: HashSet<ValueId>,
    /// The order of their nodes, where that is not the one of the file.
    orders: HashMap<GraphId, Option<Rc<[NodeId]>>>,
}

/// What decides which operator sets count: the model, or a function.
type Scope = Option<usize>;

/// Key of a callee: the operator sets in force, the domain, and the operator.
type CalleeKey = (Scope, Option<Symbol>, Option<Symbol>);

type FunctionKey = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

/// What a node calls, by domain and operator.
#[derive(Clone, Copy)]
pub(super) struct Callee<'a> {
    /// A number that no other one has.
    pub(super) number: u32,
    pub(super) schema: Option<&'a Schema>,
    /// The definition, of an operator of the standard.
    pub(super) operator: Option<&'static OpDef>,
    rule: Option<InferFn>,
    /// The function, where that is decided already.
    function: Option<usize>,
    /// Whether the operator set is imported, whatever its version.
    imported: bool,
    /// Whether attributes are graphs.
    pub(super) has_graphs: bool,
    /// Inputs whose integers decide shapes.
    pub(super) deciding: &'static [usize],
    /// What the reference implementation does not say, in its style.
    weaker: weaken::Rows,
}

impl<'a> Callee<'a> {
    fn new(
        registry: &Registry,
        schema: Option<&'a Schema>,
        function: Option<usize>,
        opset: u32,
    ) -> Self {
        let operator = schema.and_then(|schema| registry.definition(schema));
        let is_graph =
            |attribute: &Attribute| matches!(attribute.ty, AttrType::Graph | AttrType::Graphs);
        Callee {
            number: 0,
            schema,
            operator,
            rule: operator.and_then(|operator| operator.inference_at(opset)),
            function,
            imported: opset != 0,
            has_graphs: schema.is_some_and(|schema| schema.attributes.iter().any(is_graph)),
            deciding: operator.map_or(&[], OpDef::deciding_inputs),
            weaker: weaken::Rows::NONE,
        }
    }
}

/// Why nothing is said of a node.
pub(super) enum Unsaid {
    /// Its inputs contradict what its operator demands.
    Misfit(InferError),
    /// A rule of the program failed, which knows of it.
    Failed,
}

/// Who said something of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The rule of an operator of the standard.
    Standard,
    /// A rule of [`InferOptions::rules`].
    Program,
    /// The body of a function.
    Function,
    /// Nobody: the operator has no rule.
    Nobody,
}

impl<'a> Engine<'a> {
    pub(super) fn new(model: &'a Model, registry: &'a Registry, options: InferOptions<'a>) -> Self {
        let empty = model.symbol(b"");
        let some = |symbol: Option<Symbol>| symbol.filter(|symbol| Some(*symbol) != empty);
        let functions = model.functions.iter().enumerate();
        let functions = functions.map(|(index, function)| {
            let domain = some(function.domain);
            ((domain, function.name, some(function.overload)), index)
        });
        Engine {
            model,
            texts: model.texts(),
            registry,
            options,
            resolved: None,
            of_resolved: Vec::new(),
            found: Inference {
                types: TypeTable::new(model.value_count()),
                known: vec![None; model.value_count()],
                ..Inference::default()
            },
            equalities: Equalities::default(),
            demands: HashSet::new(),
            fresh: Fresh::default(),
            named: HashMap::new(),
            imports: HashMap::new(),
            callees: HashMap::new(),
            repeats: Repeats::default(),
            complaints: 0,
            functions: functions.rev().collect(),
            empty,
            calls: Vec::new(),
            answers: HashMap::new(),
            in_all_calls: None,
            depth: 0,
            first_name: 0,
            unsupported: false,
            muted: false,
            alone: false,
            defaults: HashMap::new(),
            deep: HashMap::new(),
            walked: HashSet::new(),
            strange: HashSet::new(),
            orders: HashMap::new(),
            visits: visits(model),
        }
    }

    /// For a model that is resolved.
    pub(super) fn for_resolved(resolved: &'a Resolved, options: InferOptions<'a>) -> Self {
        let engine = Engine::new(resolved.model(), resolved.registry(), options);
        Engine { resolved: Some(resolved), ..engine }
    }

    pub(super) fn run(self) -> Inference {
        self.run_with(&[])
    }

    /// Looks at the main graph, then at the graphs of training steps, which see its values.
    pub(super) fn run_with_training(self) -> Inference {
        let steps = self.model.training_info.iter();
        let steps = steps.flat_map(|step| [step.initialization, step.algorithm]).flatten();
        let steps: Vec<GraphId> = steps.collect();
        self.run_with(&steps)
    }

    fn run_with(mut self, steps: &[GraphId]) -> Inference {
        let Some(main) = self.model.main else {
            return self.found;
        };
        self.begin(main);
        self.given_inputs(main);
        // The names of a model that is resolved are defined, and the reference implementation
        // passes others over.
        if self.is_algebra() && self.resolved.is_none() {
            self.undefined(main);
        }
        self.walk(main);
        for step in steps {
            self.begin(*step);
            self.walk(*step);
        }
        self.conclude();
        // A session does not need to know what dimensions mean.
        if !self.found.denotations.is_empty() && self.resolved.is_none() && self.is_algebra() {
            self.options.calls = None;
            self.denote(main);
        }
        self.found
    }

    /// What is known in the end, once all nodes have been looked at.
    fn conclude(&mut self) {
        if !self.equalities.is_empty() {
            let equalities = &self.equalities;
            self.found.types.change(|ty| equalities.apply_to(ty));
        }
        self.found.types.forget_equal();
        self.found.visits = visits(self.model) - self.visits;
        self.found.names = self.fresh.count();
        let equalities = take(&mut self.equalities);
        if let Some(sizes) = self.options.sizes {
            self.found.demands = over_sizes(take(&mut self.demands), &equalities, sizes);
        }
        self.found.equalities = equalities.into_learned();
    }

    /// Looks at one graph inside of a node, and at those in it.
    pub(super) fn run_inside(
        mut self,
        id: GraphId,
        around: &Inference,
        given: &[(ValueId, Type)],
    ) -> Inference {
        self.found.types.clone_from(&around.types);
        self.found.known.clone_from(&around.known);
        self.fresh = Fresh::after(around.names);
        // What was found of these graphs held for other types.
        self.walked.extend(self.resolved.iter().flat_map(|resolved| resolved.graphs()));
        self.begin(id);
        for (value, ty) in given {
            self.found.types.set(*value, Some(ty.clone()));
            self.found.known[value.index()] = None;
        }
        self.walk(id);
        self.conclude();
        self.found
    }

    /// Looks at the nodes of a graph, each after those that make what it reads, wherever they stand
    /// in the file.
    pub(super) fn walk(&mut self, id: GraphId) {
        let nodes = &self.model.graph(id).nodes;
        for node in self.order(id).as_deref().unwrap_or(nodes) {
            self.node(*node);
        }
    }

    /// The order of the nodes of a graph, where that is not the one of the file.
    pub(super) fn order(&mut self, id: GraphId) -> Option<Rc<[NodeId]>> {
        let model = self.model;
        // The reference implementation goes by the file. A cycle has no order at all.
        if !self.is_algebra() || self.resolved.is_some() {
            return None;
        }
        let nodes = &model.graph(id).nodes;
        let sort = || sorted(model, nodes).ok().flatten().map(Rc::from);
        self.orders.entry(id).or_insert_with(sort).clone()
    }

    /// What is said of the outputs of one node of the main graph: by the rule of an operator, or by
    /// the body of a function. Unknown sizes stay unknown.
    pub(super) fn alone(
        mut self,
        node: NodeId,
        callee: Result<&Schema, usize>,
    ) -> (Vec<Option<Type>>, Vec<Problem>) {
        self.alone = true;
        if let Some(main) = self.model.main {
            self.begin(main);
        }
        let opset = callee.map_or(1, |schema| schema.since);
        if callee.is_err() {
            // The body is looked at as if it stood alone.
            self.functions.clear();
        }
        let mut found = Callee::new(self.registry, callee.ok(), callee.err(), opset);
        self.as_reference(&mut found);
        let callee = found;
        let said = self.said(node, &callee).unwrap_or_default();
        let mut types = said.types;
        for ty in types.iter_mut().flatten() {
            ty.for_each_dim(&mut only_names);
        }
        types.resize(self.model.outputs(node).len(), None);
        (types.into_vec(), self.found.problems)
    }

    pub(super) fn is_algebra(&self) -> bool {
        self.options.style == Style::Algebra
    }

    /// Types of sparse constants; compares defaults of inputs with their declarations.
    fn begin_sparse_initializers(&mut self, id: GraphId) {
        let model = self.model;
        for (index, initializer) in model.graph(id).sparse_initializers.iter().enumerate() {
            let (Some(value), Some(values)) = (initializer.value, &initializer.tensor.values)
            else {
                continue;
            };
            if matches!(model.value(value).producer, Producer::Input(_)) && self.is_algebra() {
                // The default of an input, which must fit its declaration.
                let default = self.constant(id, value, values.data_type, &initializer.tensor.dims);
                let declared = self.found.types.get(value);
                let differs = declared.filter(|ty| ty.merge(&default).is_none());
                if let Some(declared) = differs.map(Type::to_string) {
                    self.differs(id, ("sparse_initializer", index), &default, &declared);
                }
            }
            if matches!(model.value(value).producer, Producer::SparseInitializer(_)) {
                // Nodes see the whole tensor.
                let dims = &initializer.tensor.dims;
                let ty = match self.constant(id, value, values.data_type, dims) {
                    // The reference implementation hands it on as it is stored.
                    Type::Tensor(tensor) if !self.is_algebra() => Type::SparseTensor(tensor),
                    ty => ty,
                };
                self.found.types.set(value, Some(ty));
            }
        }
    }

    /// Types of inputs and constants, and declared types of everything else.
    pub(super) fn begin(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        if !self.walked.insert(id) {
            self.forget(id);
        }
        let is_body = |call: &Call| model.functions[call.function].body == id;
        // Functions take other types in every call; the reference implementation reads nothing
        // about them.
        let is_read = self.is_algebra() || !self.calls.last().is_some_and(is_body);
        let declared: &[_] = if is_read { &graph.value_info } else { &[] };
        let infos = declared.iter().chain(&graph.outputs).chain(&graph.inputs);
        // Only of inputs of the model does a declaration hold for all sizes.
        let all_count = self.options.sizes.is_none();
        for info in infos {
            let is_input = |value| matches!(model.value(value).producer, Producer::Input(_));
            let is_certain = model.main == Some(id) && info.value.is_some_and(is_input);
            if !all_count && !is_certain {
                continue;
            }
            // Lists of an inner graph may name values of an outer one, which are what that one
            // says.
            if let (Some(value), Some(ty)) = (info.value, &info.ty)
                && model.value(value).graph == id
            {
                if !self.is_algebra() && has_strange_element(ty) {
                    self.strange.insert(value);
                }
                if let Some(denotations) =
                    denotations::declared(model, ty).filter(|_| self.calls.is_empty())
                {
                    self.found.denotations.insert(value, denotations);
                }
                let mut declared = self.declared(ty);
                if let Some(rank) = declared.as_mut().and_then(bound_rank) {
                    self.too_deep(id, value, rank);
                }
                let before = self.found.types.take(value);
                if let (Some(before), Some(declared)) = (&before, &declared)
                    && self.is_algebra()
                    && before.merge(declared).is_none()
                {
                    self.declared_twice(id, value, before, declared);
                }
                self.found.types.set(value, declared);
            }
        }
        self.begin_sparse_initializers(id);
        // Before version 4 of the format every constant had to be an input as well, so that says
        // nothing about overriding it.
        let all_are_inputs =
            self.is_algebra() && model.main == Some(id) && model.header.ir_version.unwrap_or(0) < 4;
        for (index, initializer) in graph.initializers.iter().enumerate() {
            let Some(value) = initializer.value else {
                continue;
            };
            let proto = &initializer.tensor;
            let is_input = !matches!(model.value(value).producer, Producer::Initializer(_));
            let is_default = is_input && !all_are_inputs;
            if is_input {
                self.defaults.insert(value, index);
            }
            let constant = self.constant(id, value, proto.data_type, &proto.dims);
            let declared = self.found.types.get(value);
            let has_type = declared.is_some();
            let differs = declared.filter(|ty| ty.merge(&constant).is_none());
            if let Some(declared) = differs.map(Type::to_string) {
                self.differs(id, ("initializer", index), &constant, &declared);
            } else if self.strange.contains(&value) {
                self.differs(
                    id,
                    ("initializer", index),
                    &constant,
                    "a tensor with an undefined element type",
                );
            }
            // The reference implementation goes by what is declared.
            let is_declared = !self.is_algebra() && (has_type || self.strange.contains(&value));
            // It may give way to anything that the declared type of the input allows.
            if is_default && self.is_algebra() {
                continue;
            }
            if !is_default && !is_declared {
                self.found.types.set(value, Some(constant));
            }
            let elems = proto.dims.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim));
            if elems.is_some_and(|elems| elems <= MAX_KNOWN as i64) && !proto.is_external() {
                let tensor = model.tensor(proto, &NoExternalData).ok();
                if let Some(tensor) = tensor {
                    self.found.known[value.index()] = Some(Box::new(Known::Tensor(tensor)));
                }
            }
        }
    }

    /// Forgets what an earlier walk through a graph found, and what was bound to its inputs for
    /// that walk.
    fn forget(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        let inputs = graph.inputs.iter().filter_map(|info| info.value);
        let made = graph.nodes.iter().flat_map(|node| model.outputs(*node));
        for value in inputs.chain(made.flatten().copied()) {
            self.found.types.set(value, None);
            self.found.known[value.index()] = None;
        }
    }

    /// Types that the caller gives to inputs of the main graph.
    fn given_inputs(&mut self, main: GraphId) {
        let inputs = &self.model.graph(main).inputs;
        for (info, given) in inputs.iter().zip(self.options.inputs) {
            if let (Some(value), Some(given)) = (info.value, given) {
                self.found.types.set(value, Some(given.clone()));
            }
        }
        if !self.is_algebra() {
            return;
        }
        // What the file leaves open gets a name as well, so that it can be followed.
        for value in inputs.iter().filter_map(|info| info.value) {
            let Some(mut ty) = self.found.types.take(value) else {
                continue;
            };
            let reason = "the model does not declare it".to_string();
            for (axis, name) in self.name_open(&mut ty) {
                self.note(value, Missing::Dim(axis), None, reason.clone(), Some(name));
            }
            if matches!(&ty, Type::Tensor(tensor) if tensor.shape.is_none()) {
                self.note(value, Missing::Rank, None, reason, None);
            }
            self.found.types.set(value, Some(ty));
        }
    }

    /// The type of a constant.
    fn constant(
        &mut self,
        id: GraphId,
        value: ValueId,
        data_type: Option<i32>,
        dims: &[i64],
    ) -> Type {
        let fits = dims.len() <= RANK_LIMIT;
        if !fits {
            self.too_deep(id, value, dims.len());
        }
        Type::Tensor(TensorType {
            elem: data_type.and_then(DataType::from_number),
            shape: fits.then(|| dims.iter().map(|dim| (*dim).into()).collect()),
        })
    }

    /// What a file declares, in the style of this inference.
    fn declared(&mut self, ty: &TypeProto) -> Option<Type> {
        let model = self.model;
        let (named, options) = (&mut self.named, self.options);
        model.type_with(ty, &mut |value| {
            let symbol = match (value, options.style) {
                // The reference implementation compares negative sizes like others; as a rule they
                // mean "any".
                (DimValue::Value(size), Style::Reference { .. }) => return Dim::Known(size),
                (DimValue::Value(size @ 0..), _) => return Dim::Known(size),
                (DimValue::Value(_), _) => return Dim::Unknown,
                (DimValue::Param(symbol), _) => symbol,
            };
            let dim = named.entry(symbol).or_insert_with(|| {
                let Ok(text) = std::str::from_utf8(model.text(symbol)) else {
                    return Dim::Unknown;
                };
                let set = |name: &str| {
                    let found = options.symbols.iter().find(|(symbol, _)| symbol == name);
                    found.map(|(_, size)| Dim::Known(*size))
                };
                match options.style {
                    Style::Algebra => Dim::parse(text).substitute(&set),
                    Style::Reference { .. } if text.is_empty() => Dim::Unknown,
                    Style::Reference { .. } => Dim::symbol(text),
                }
            });
            dim.clone()
        })
    }

    pub(super) fn node(&mut self, node: NodeId) {
        if self.visits == 0 {
            return;
        }
        self.visits -= 1;
        if self.visits == 0 {
            let fact = "inference stops here: functions and loops would have to be inferred too many times";
            self.problem(node, ProblemKind::Limit, fact.into());
            return;
        }
        if self.found.types.is_crowded() {
            self.found.types.remove_unused();
            self.repeats.clear();
        }
        let callee = self.callee(node);
        let given = self.given_hash(node, &callee);
        if given.is_some_and(|given| self.repeat(node, &callee, given)) {
            return;
        }
        let follows_from_types = self.look_at(node, &callee);
        if let Some(given) = given.filter(|_| follows_from_types) {
            self.keep(node, given);
        }
    }

    /// Finds what there is to say of the outputs of a node. Returns whether that follows from types
    /// alone, and nothing is wrong or open.
    pub(super) fn look_at(&mut self, node: NodeId, callee: &Callee<'_>) -> bool {
        let before = (self.complaints, self.fresh.count());
        let Some(said) = self.said(node, callee) else { return false };
        let follows_from_types = is_of_types(&said);
        self.outputs(node, said);
        follows_from_types && before == (self.complaints, self.fresh.count())
    }

    /// What there is to say of the outputs of a node; nothing if something does not fit, or nobody
    /// knows its operator.
    fn said(&mut self, node: NodeId, callee: &Callee<'_>) -> Option<Said> {
        let model = self.model;
        if !self.is_algebra()
            && let Some(schema) = callee.schema
            && !(self.demand_outputs(node, schema) && self.demand_integers(node, schema, callee))
        {
            return None;
        }
        let mut values: SmallVec<[Option<ValueId>; 6]> = SmallVec::new();
        let mut present: SmallVec<[bool; 6]> = SmallVec::new();
        for value in model.inputs(node) {
            values.push(value);
            present.push(self.has(value));
        }
        let is_known = callee.schema.is_some()
            || (!self.deep.is_empty() || !self.strange.is_empty())
                && self.function_of(node, callee).is_some();
        if is_known && !self.deep.is_empty() {
            let outputs = model.outputs(node).iter().flatten();
            let mut touched = values.iter().flatten().chain(outputs);
            if let Some(rank) = touched.find_map(|value| self.deep.get(value)) {
                let fact = format!(
                    "a value in it has {rank} dimensions; at most {RANK_LIMIT} are supported"
                );
                self.problem(node, ProblemKind::Rank, fact);
            }
        }
        if self.options.check_types && is_known && !self.strange.is_empty() {
            let strange =
                |value: &Option<ValueId>| value.is_some_and(|value| self.strange.contains(&value));
            if let Some(index) = values.iter().position(strange) {
                let fact = format!("input {index} is declared with an undefined element type");
                self.problem(node, ProblemKind::Signature, fact);
                return None;
            }
        }
        if self.calls.last().is_some_and(|call| call.leaves_open(model, node)) {
            return None;
        }
        let bindings = self.calls.last().map(|call| call.bindings.clone());
        let attributes = NodeAttributes::in_call(model, self.texts, node, bindings.as_deref());
        let first_name = self.fresh.count();
        let judged = match callee.schema.filter(|_| !callee.has_graphs) {
            Some(schema) => {
                let mut given = Given::new(&present, &attributes);
                for value in &values {
                    given.inputs.push(value.and_then(|value| self.found.ty(value)));
                    given.known.push(value.and_then(|value| self.found.known(value)));
                }
                let said = self.book().apply(node, schema, callee, &given, None);
                said.map(|said| Some(self.judged(node, callee, &given, said)))
            }
            None if callee.schema.is_none() && self.function_of(node, callee).is_none() => Ok(None),
            None => {
                // What is known changes while graphs are walked through.
                let types: SmallVec<[Option<Type>; 6]> =
                    values.iter().map(|value| self.found.ty((*value)?).cloned()).collect();
                let known: SmallVec<[Option<Known>; 6]> =
                    values.iter().map(|value| self.found.known((*value)?).cloned()).collect();
                let mut given = Given::new(&present, &attributes);
                given.inputs.extend(types.iter().map(Option::as_ref));
                given.known.extend(known.iter().map(Option::as_ref));
                let said = self.by_walk(node, callee, &given);
                said.map(|said| said.map(|said| self.judged(node, callee, &given, said)))
            }
        };
        // Nodes inside have had their own.
        self.first_name = first_name;
        match judged {
            Ok(Some(judged)) => self.accepted(node, judged),
            Ok(None) => {
                self.no_rule(node, callee);
                None
            }
            Err(Unsaid::Misfit(error)) => {
                self.problem(node, ProblemKind::Node, error.0);
                None
            }
            Err(Unsaid::Failed) => None,
        }
    }

    fn book(&self) -> Rulebook<'a> {
        Rulebook {
            model: self.model,
            rules: self.options.rules,
            demands: self.options.sizes.is_some(),
            differences: self.options.differences,
        }
    }

    /// What is said of a node whose attributes are graphs, or that calls a function.
    pub(super) fn by_walk(
        &mut self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
    ) -> Result<Option<(Said, Origin)>, Unsaid> {
        if let Some(schema) = callee.schema {
            let (book, inside) = (self.book(), Inside::new(self));
            let said = book.apply(node, schema, callee, given, Some(&inside));
            return said.map(Some);
        }
        match self.function_of(node, callee) {
            Some(function) => {
                let said = self.call(node, function, given).map_err(Unsaid::Misfit)?;
                Ok(Some((said, Origin::Function)))
            }
            None => Ok(None),
        }
    }

    /// The function of the model that a node calls.
    fn function_of(&self, node: NodeId, callee: &Callee<'_>) -> Option<usize> {
        let found = self.model.node(node);
        let some = |symbol: Option<Symbol>| symbol.filter(|symbol| Some(*symbol) != self.empty);
        let key = (some(found.domain), found.op_type, some(found.overload));
        callee.function.or(self.functions.get(&key).copied())
    }

    /// What was said of a node next to what its operator takes and makes.
    fn judged(
        &self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
        (mut said, origin): (Said, Origin),
    ) -> Judged {
        let (mut wrong, mut unmet) = (None, Vec::new());
        let ranks = said.types.iter_mut().enumerate();
        let too_deep =
            ranks.filter_map(|(index, ty)| Some((index, bound_rank(ty.as_mut()?)?))).collect();
        if let Some(schema) = callee.schema {
            let reference = !self.is_algebra();
            let check = self.options.check_types || self.alone && self.depth == 0;
            let is_open = |ty: &Option<Type>| ty.as_ref().is_none_or(|ty| ty.elem().is_none());
            if check || said.types.iter().any(is_open) {
                let (mut bound, of_inputs) = Bound::of_inputs(schema, &given.inputs);
                if check || !reference || origin == Origin::Standard {
                    bound.complete(schema, &mut said.types);
                }
                if check && reference {
                    let counts = [given.inputs.len(), self.model.outputs(node).len()];
                    wrong = wrong_count(schema, counts)
                        .or(of_inputs)
                        .or_else(|| without_element(&given.inputs))
                        .or_else(|| bound.outputs(schema, &said.types).err());
                } else if check {
                    wrong = of_inputs;
                }
            }
            if reference && origin == Origin::Standard {
                unmet = self.unmet(node, callee, given, &said);
            }
        }
        Judged { said, wrong, unmet, too_deep }
    }

    /// Lists what does not fit; gives what was said if it counts all the same.
    fn accepted(&mut self, node: NodeId, judged: Judged) -> Option<Said> {
        for (index, rank) in judged.too_deep {
            let fact =
                format!("output {index} has {rank} dimensions; at most {RANK_LIMIT} are supported");
            self.problem(node, ProblemKind::Rank, fact);
        }
        if let Some(wrong) = judged.wrong {
            self.problem(node, ProblemKind::Signature, wrong);
            if !self.is_algebra() {
                return None;
            }
        }
        for fact in judged.unmet {
            self.problem(node, ProblemKind::Node, fact);
        }
        if let Some(difference) = &judged.said.difference
            && self.found.differences.len() < MOST_LISTED
        {
            self.found.differences.insert(node, difference.clone());
        }
        Some(judged.said)
    }

    pub(super) fn callee(&mut self, node: NodeId) -> Callee<'a> {
        let model = self.model;
        let scope = self.calls.last().map(|call| call.function);
        let found = model.node(node);
        if let Some(resolved) = self.resolved
            && let Some(op) = resolved.op_id(node)
        {
            if self.of_resolved.len() <= op.index() {
                self.of_resolved.resize(op.index() + 1, None);
            }
            let found = self.of_resolved[op.index()];
            return found.unwrap_or_else(|| {
                let OpRef { schema, opset, .. } = resolved.op_of_id(op);
                let mut callee = Callee::new(self.registry, Some(schema), None, opset);
                // Those that are not resolved have odd numbers.
                callee.number = 2 * op.index() as u32;
                self.as_reference(&mut callee);
                self.of_resolved[op.index()] = Some(callee);
                callee
            });
        }
        let key = (scope, found.domain, found.op_type);
        if let Some(callee) = self.callees.get(&key) {
            return *callee;
        }
        let number = 2 * self.callees.len() as u32 + 1;
        let callee = Callee { number, ..self.find_callee(node, scope) };
        self.callees.insert(key, callee);
        callee
    }

    /// Looks up what a node calls.
    fn find_callee(&mut self, node: NodeId, scope: Scope) -> Callee<'a> {
        let (model, is_algebra) = (self.model, self.is_algebra());
        let imports = self.imports.entry(scope).or_insert_with(|| {
            let imports: &[OperatorSetId] = match scope {
                None => &model.header.opset_import,
                Some(function) => &model.functions[function].opset_import,
            };
            if imports.is_empty() && !is_algebra {
                // The reference implementation infers nothing without imports, although old models
                // may have none.
                std::collections::HashMap::new()
            } else {
                model.opsets_in(imports)
            }
        });
        let opset = imports.get(&model.domain_of(node)).copied();
        let mut callee = self.look_up(node, u32::try_from(opset.unwrap_or(0)).unwrap_or(0));
        // The reference implementation knows no operators of version 0, as it knows none of other
        // domains.
        callee.imported |= opset.is_some() && !is_algebra;
        callee
    }

    fn look_up(&self, node: NodeId, opset: u32) -> Callee<'a> {
        let domain = self.model.domain_of(node);
        let name = self.model.display(self.model.node(node).op_type);
        let schema = self.registry.schema(&domain, &name, opset);
        // A function of the model takes the place of an operator that is not the standard's, and
        // the reference implementation knows none of these.
        let schema = schema.filter(|schema| {
            let is_function = || {
                let functions = self.model.functions.iter();
                let op_type = self.model.node(node).op_type;
                functions.clone().any(|function| {
                    function.name == op_type
                        && self.model.display(function.domain) == domain.as_ref()
                })
            };
            !self.registry.is_added(schema) || (self.is_algebra() && !is_function())
        });
        let mut callee = Callee::new(self.registry, schema, None, opset);
        self.as_reference(&mut callee);
        callee
    }

    /// Puts the rule of the reference implementation in the place of the operator's, where it has
    /// one of its own or none, and notes what it does not say.
    fn as_reference(&self, callee: &mut Callee<'_>) {
        if self.is_algebra() {
            return;
        }
        let (Some(operator), Some(schema)) = (callee.operator, callee.schema) else {
            return;
        };
        if !operator.has_reference_rule(schema.since) {
            (callee.rule, callee.deciding) = (None, &[]);
            return;
        }
        callee.rule = operator.reference_inference_at(schema.since);
        callee.weaker = weaken::Rows::of(operator, schema.since);
    }

    fn no_rule(&mut self, node: NodeId, callee: &Callee<'_>) {
        let model = self.model;
        let op = model.display(model.node(node).op_type);
        let domain = model.domain_of(node);
        let reason = if callee.imported {
            let near = self.registry.similar(&domain, &op);
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("operator {op} of domain '{}' is unknown{near}", shown_domain(&domain))
        } else {
            let domain = shown_domain(&domain);
            format!("operator set '{domain}' is not imported, so {op} is not defined")
        };
        if !callee.imported {
            self.problem(node, ProblemKind::NotImported, reason.clone());
        }
        self.unsupported = true;
        for value in model.outputs(node).iter().flatten() {
            if self.found.ty(*value).is_none() {
                self.note(*value, Missing::Type, Some(node), reason.clone(), None);
            }
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    pub(super) fn problem(&mut self, node: NodeId, mut kind: ProblemKind, mut fact: String) {
        self.complaints += 1;
        if !self.is_algebra() {
            // Inside of a node it is a reason why that has no types.
            if self.depth > usize::from(self.alone)
                && !matches!(kind, ProblemKind::Limit | ProblemKind::Rank)
            {
                kind = ProblemKind::Node;
            }
            let is_wonder = !self.unsupported && !self.muted;
            if !is_wonder && matches!(kind, ProblemKind::Node | ProblemKind::Declared) {
                return;
            }
        }
        if self.found.problems.len() >= MOST_LISTED {
            return;
        }
        if let Some(call) = self.calls.first() {
            let place = crate::finding::place_of_node(self.model, call.node);
            fact = format!("{fact}, when called by {place}");
        }
        let advice = describe_inputs(self.model, node, &self.found);
        self.found.add_problem(Problem { spot: Spot::node(node), kind, fact, advice });
    }

    /// Notes a value that the file gives too many dimensions.
    fn too_deep(&mut self, id: GraphId, value: ValueId, rank: usize) {
        if !self.is_algebra() {
            self.deep.insert(value, rank);
            return;
        }
        if self.found.problems.len() < MOST_LISTED {
            let name = shown(self.model.text(self.model.value(value).name));
            self.found.add_problem(Problem {
                spot: Spot::graph(id),
                kind: ProblemKind::Rank,
                fact: format!("'{name}' has {rank} dimensions; at most {RANK_LIMIT} are supported"),
                advice: codes::RANK_ABOVE_LIMIT.help.into(),
            });
        }
    }

    /// Notes a value that the lists of its graph declare with types that contradict each other.
    fn declared_twice(&mut self, id: GraphId, value: ValueId, before: &Type, declared: &Type) {
        if self.found.problems.len() >= MOST_LISTED {
            return;
        }
        let graph = self.model.graph(id);
        let name = shown(self.model.text(self.model.value(value).name));
        let lists = [
            ("value_info", &graph.value_info),
            ("output", &graph.outputs),
            ("input", &graph.inputs),
        ];
        let mut spots = lists.into_iter().filter_map(|(field, infos)| {
            let index = infos.iter().position(|info| info.value == Some(value))?;
            Some(Spot::graph(id).item(field, index))
        });
        let Some(spot) = spots.next() else { return };
        self.found.problems.push(Problem {
            spot,
            kind: ProblemKind::Declared,
            fact: format!("'{name}' is declared as {before}, and as {declared}"),
            advice: "declare one type, or remove one of the declarations".into(),
        });
    }

    /// Notes a constant that is an input as well, and not what that is declared to be.
    fn differs(
        &mut self,
        id: GraphId,
        (list, index): (&'static str, usize),
        constant: &Type,
        declared: &str,
    ) {
        if self.found.problems.len() < MOST_LISTED {
            self.found.add_problem(Problem {
                spot: Spot::graph(id).item(list, index),
                kind: ProblemKind::Declared,
                fact: format!("the initializer is {constant}, but declared as {declared}"),
                advice: "change the type of the initializer, or the declaration".into(),
            });
        }
    }
}

/// What a node is given.
pub(super) struct Given<'g> {
    pub(super) inputs: SmallVec<[Option<&'g Type>; 6]>,
    pub(super) known: SmallVec<[Option<&'g Known>; 6]>,
    pub(super) present: &'g [bool],
    pub(super) attributes: &'g NodeAttributes<'g>,
}

impl<'g> Given<'g> {
    pub(super) fn new(present: &'g [bool], attributes: &'g NodeAttributes<'g>) -> Self {
        Given { inputs: SmallVec::new(), known: SmallVec::new(), present, attributes }
    }
}

/// What was said of a node, and what is wrong with it.
struct Judged {
    said: Said,
    /// Where it is not what its operator takes and makes.
    wrong: Option<String>,
    /// What the reference implementation demands beyond that.
    unmet: Vec<String>,
    /// Outputs that have more dimensions than a tensor can have, with how many.
    too_deep: Vec<(usize, usize)>,
}

/// What it takes to apply the rules of operators.
#[derive(Clone, Copy)]
struct Rulebook<'a> {
    model: &'a Model,
    rules: Option<&'a dyn Rules>,
    /// Whether demands are listed.
    demands: bool,
    /// Whether differences between runtimes are listed.
    differences: bool,
}

impl Rulebook<'_> {
    /// What the rule of an operator says of a node.
    fn apply(
        self,
        node: NodeId,
        schema: &Schema,
        callee: &Callee<'_>,
        given: &Given<'_>,
        inside: Option<&dyn Subgraphs>,
    ) -> Result<(Said, Origin), Unsaid> {
        let last = given.present.iter().rposition(|present| *present);
        let count_given = last.map_or(0, |last| last + 1);
        let outputs = self.model.outputs(node);
        let present: SmallVec<[bool; 4]> = outputs.iter().map(Option::is_some).collect();
        let count = outputs.len();
        let context = |inputs, known| {
            let cx = Infer::new(schema, given.attributes, inputs, known, count)
                .with_present(Present { inputs: given.present, outputs: &present })
                .with_demands(self.demands);
            match inside {
                Some(inside) => cx.with_subgraphs(inside),
                None => cx,
            }
        };
        let mut cx = context(&given.inputs[..count_given], &given.known[..]);
        let custom = self.rules.map(|rules| rules.infer(self.model, node, schema, &mut cx));
        match (custom, callee.rule) {
            (Some(RuleAnswer::Inferred), _) => Ok((cx.finish(), Origin::Program)),
            (Some(RuleAnswer::Failed), _) => Err(Unsaid::Failed),
            (Some(RuleAnswer::Misfit(fact)), _) => Err(Unsaid::Misfit(InferError(fact))),
            (Some(RuleAnswer::NoRule) | None, Some(rule)) => {
                let mut said = match weaken::hidden(callee.weaker, given) {
                    Some(seen) => {
                        let types = seen.types();
                        let mut cx = context(&types[..count_given], &seen.known[..]);
                        rule(&mut cx).map_err(Unsaid::Misfit)?;
                        cx.finish()
                    }
                    None => {
                        rule(&mut cx).map_err(Unsaid::Misfit)?;
                        let differs = callee.operator.and_then(OpDef::difference_rule);
                        let differs = differs.filter(|_| self.differences);
                        let difference = differs.and_then(|differs| differs(&cx));
                        Said { difference, ..cx.finish() }
                    }
                };
                weaken::weaken(callee.weaker, given, &mut said);
                Ok((said, Origin::Standard))
            }
            (Some(RuleAnswer::NoRule) | None, None) => Ok((cx.finish(), Origin::Nobody)),
        }
    }
}

/// Leaves numbers and names, the sizes that the reference implementation knows.
pub(super) fn only_names(dim: &mut Dim) {
    if matches!(dim, Dim::Expr(_)) && dim.as_symbol().is_none() {
        *dim = Dim::Unknown;
    }
}

/// How many nodes may be looked at.
fn visits(model: &Model) -> u64 {
    VISITS + VISITS_PER_NODE * model.node_count() as u64
}

/// The type of the elements of a tensor, or of the tensors that a sequence, an optional or a map
/// holds; `Some(None)` if it is not known. Opaque types have none.
pub(crate) fn element(ty: &Type) -> Option<Option<DataType>> {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => Some(tensor.elem),
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => element(inner),
        Type::Opaque { .. } => None,
    }
}

/// Which input is a tensor of elements that the standard does not have.
fn without_element(inputs: &[Option<&Type>]) -> Option<String> {
    let is_without = |ty: &Option<&Type>| ty.is_some_and(|ty| element(ty) == Some(None));
    let index = inputs.iter().position(is_without)?;
    Some(format!("the element type of input {index} is unknown"))
}

/// Whether a declared tensor has elements of a type that the standard does not have; no type at all
/// is not meant.
fn has_strange_element(ty: &TypeProto) -> bool {
    match &ty.kind {
        Some(TypeKind::Tensor { elem_type, .. } | TypeKind::SparseTensor { elem_type, .. }) => {
            let number = elem_type.filter(|number| *number != 0);
            number.is_some_and(|number| DataType::from_number(number).is_none())
        }
        Some(TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. }) => {
            elem_type.as_deref().is_some_and(has_strange_element)
        }
        _ => false,
    }
}

/// Takes away the shape of a tensor of too many dimensions; how many it has.
fn bound_rank(ty: &mut Type) -> Option<usize> {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
            let rank = tensor.shape.as_ref()?.len();
            (rank > RANK_LIMIT).then(|| {
                tensor.shape = None;
                rank
            })
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => bound_rank(inner),
        Type::Opaque { .. } => None,
    }
}

fn describe_inputs(model: &Model, node: NodeId, found: &Inference) -> String {
    let inputs: Vec<String> = model
        .inputs(node)
        .flatten()
        .take(8)
        .map(|value| {
            let name = shown(model.text(model.value(value).name));
            match found.ty(value) {
                Some(ty) => format!("{name}: {ty}"),
                None => format!("{name}: ?"),
            }
        })
        .collect();
    if inputs.is_empty() { String::new() } else { format!("inputs: {}", inputs.join(", ")) }
}
