//! Walk over the nodes of a graph.

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
    Present, Registry, RuleOutcome, Schema, Subgraphs,
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
use super::repeats::{Repeats, depends_on_types_only};
use super::table::TypeTable;
use super::unknown::{Fresh, Missing};
use super::{InferOptions, Inference, Problem, ProblemKind, RuleAnswer, Rules, Style};
use crate::check::codes;
use crate::finding::Spot;
use crate::order::sort_nodes;
use crate::resolve::Resolved;

/// Maximum number of node visits of graphs that are walked through several times: a share per node
/// of the model, and a constant part.
const VISITS_PER_NODE: u64 = 64;
const VISITS: u64 = 100_000;

/// Maximum number of listed items of each kind.
pub(super) const MOST_LISTED: usize = 100_000;

/// Inference in progress.
pub(super) struct Engine<'a> {
    pub(super) model: &'a Model,
    pub(super) texts: Texts<'a>,
    pub(super) registry: &'a Registry,
    pub(super) options: InferOptions<'a>,
    /// Results of resolving: operators of nodes, and graphs in topological order.
    resolved: Option<&'a Resolved>,
    /// Callees by the number of the operator in `resolved`.
    of_resolved: Vec<Option<Callee<'a>>>,
    pub(super) found: Inference,
    pub(super) equalities: Equalities,
    /// Conditions of nodes on sizes, if they are recorded.
    pub(super) demands: HashSet<Demand>,
    pub(super) fresh: Fresh,
    /// Sizes for the names of the file.
    named: HashMap<Symbol, Dim>,
    imports: HashMap<Scope, std::collections::HashMap<Cow<'a, str>, i64>>,
    callees: HashMap<CalleeKey, Callee<'a>>,
    /// Nodes that were visited, for look-up of nodes with equal inputs.
    pub(super) repeats: Repeats,
    /// Number of problems and unknown sizes so far, listed or not.
    pub(super) complaints: usize,
    /// Functions of the model by domain, name and overload; empty texts are `None`.
    functions: HashMap<FunctionKey, usize>,
    empty: Option<Symbol>,
    /// Calls in progress, the innermost last.
    pub(super) calls: Vec<Call>,
    /// Results of calls of functions, by everything that determines them.
    pub(super) answers: HashMap<Asked, Answer>,
    /// Facts of all calls about the values of functions, if they are collected.
    pub(super) in_all_calls: Option<InAllCalls>,
    pub(super) depth: usize,
    pub(super) visits: u64,
    /// Number of the first name that the current node could make up.
    pub(super) first_name: usize,
    /// Whether the graph has a node without a rule, which explains missing types after it.
    pub(super) unsupported: bool,
    /// Whether an outer graph has such a node.
    pub(super) muted: bool,
    /// Whether a single node is inferred: it is compared with its operator, and unknown sizes get
    /// no names.
    pub(super) alone: bool,
    /// Inputs that are also constants, with the index among the constants.
    pub(super) defaults: HashMap<ValueId, usize>,
    /// Values with more declared dimensions than supported, with their number, in the style of the
    /// reference implementation. It allows them, so they only matter if a node reads them.
    deep: HashMap<ValueId, usize>,
    /// Graphs that were walked through before, for whose values there are results to forget.
    walked: HashSet<GraphId>,
    /// Values that are declared with an element type outside of the standard, if these are
    /// reported.
    pub(super) strange: HashSet<ValueId>,
    /// Order of the nodes of graphs, if it is not that of the file.
    orders: HashMap<GraphId, Option<Rc<[NodeId]>>>,
}

/// Owner of the imports of operator sets: the model, or a function.
type Scope = Option<usize>;

/// Key of a callee: scope of the imports, domain, and operator.
type CalleeKey = (Scope, Option<Symbol>, Option<Symbol>);

type FunctionKey = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

/// Callee of a node, by domain and operator.
#[derive(Clone, Copy)]
pub(super) struct Callee<'a> {
    /// Unique number.
    pub(super) number: u32,
    pub(super) schema: Option<&'a Schema>,
    /// Definition, for an operator of the standard.
    pub(super) operator: Option<&'static OpDef>,
    rule: Option<InferFn>,
    /// Function, if it has been determined.
    function: Option<usize>,
    /// Whether the operator set is imported, in any version.
    imported: bool,
    /// Whether attributes are graphs.
    pub(super) has_graphs: bool,
    /// Inputs whose integers determine shapes.
    pub(super) deciding: &'static [usize],
    /// Facts that the reference implementation does not derive, in its style.
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

/// Reason why a node has no result.
pub(super) enum NoResult {
    /// The inputs contradict the conditions of the operator.
    Misfit(InferError),
    /// A rule of the program failed, which reports it.
    Failed,
}

/// Results of inference for a node.
pub(super) struct NodeResults {
    pub(super) outcome: RuleOutcome,
    pub(super) origin: Origin,
}

/// Source of the result of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Rule of an operator of the standard.
    Standard,
    /// Rule of [`InferOptions::rules`].
    Program,
    /// Body of a function.
    Function,
    /// None: the operator has no rule.
    NoRule,
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
            visits: max_visits(model),
        }
    }

    /// Creates the inference of a resolved model.
    pub(super) fn for_resolved(resolved: &'a Resolved, options: InferOptions<'a>) -> Self {
        let engine = Engine::new(resolved.model(), resolved.registry(), options);
        Engine { resolved: Some(resolved), ..engine }
    }

    pub(super) fn run(self) -> Inference {
        self.run_with(&[])
    }

    /// Infers the main graph, then the graphs of training steps, which read its values.
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
        // All names of a resolved model are defined, and the reference implementation ignores
        // undefined ones.
        if self.is_algebra() && self.resolved.is_none() {
            self.report_undefined(main);
        }
        self.walk(main);
        for step in steps {
            self.begin(*step);
            self.walk(*step);
        }
        self.conclude();
        // Sessions do not need denotations.
        if !self.found.denotations.is_empty() && self.resolved.is_none() && self.is_algebra() {
            self.options.calls = None;
            self.denote(main);
        }
        self.found
    }

    /// Completes the results after all nodes have been visited.
    fn conclude(&mut self) {
        if !self.equalities.is_empty() {
            let equalities = &self.equalities;
            self.found.types.change(|ty| equalities.apply_to(ty));
        }
        self.found.types.forget_equal();
        self.found.visits = max_visits(self.model) - self.visits;
        self.found.names = self.fresh.count();
        let equalities = take(&mut self.equalities);
        if let Some(sizes) = self.options.sizes {
            self.found.demands = over_sizes(take(&mut self.demands), &equalities, sizes);
        }
        self.found.equalities = equalities.into_learned();
    }

    /// Infers one graph in a node, and graphs in it.
    pub(super) fn run_inside(
        mut self,
        id: GraphId,
        around: &Inference,
        given: &[(ValueId, Type)],
    ) -> Inference {
        self.found.types.clone_from(&around.types);
        self.found.known.clone_from(&around.known);
        self.fresh = Fresh::starting_after(around.names);
        // Earlier results for these graphs held for other types.
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

    /// Visits the nodes of a graph in topological order, whatever their order in the file.
    pub(super) fn walk(&mut self, id: GraphId) {
        let nodes = &self.model.graph(id).nodes;
        for node in self.order(id).as_deref().unwrap_or(nodes) {
            self.node(*node);
        }
    }

    /// Returns the order of the nodes of a graph, if it is not that of the file.
    pub(super) fn order(&mut self, id: GraphId) -> Option<Rc<[NodeId]>> {
        let model = self.model;
        // The reference implementation uses the order of the file. A cycle has no order.
        if !self.is_algebra() || self.resolved.is_some() {
            return None;
        }
        let nodes = &model.graph(id).nodes;
        let sort = || sort_nodes(model, nodes).ok().flatten().map(Rc::from);
        self.orders.entry(id).or_insert_with(sort).clone()
    }

    /// Infers the outputs of one node of the main graph by the rule of an operator, or by the body
    /// of a function. Unknown sizes stay unknown.
    pub(super) fn infer_alone(
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
            // The body is inferred without the other functions.
            self.functions.clear();
        }
        let mut found = Callee::new(self.registry, callee.ok(), callee.err(), opset);
        self.use_reference_rule(&mut found);
        let callee = found;
        let outcome = self.infer_outputs(node, &callee).unwrap_or_default();
        let mut types = outcome.types;
        for ty in types.iter_mut().flatten() {
            ty.for_each_dim(&mut drop_expressions);
        }
        types.resize(self.model.outputs(node).len(), None);
        (types.into_vec(), self.found.problems)
    }

    pub(super) fn is_algebra(&self) -> bool {
        self.options.style == Style::Algebra
    }

    /// Sets the types of sparse constants, and compares defaults of inputs with their declarations.
    fn begin_sparse_initializers(&mut self, id: GraphId) {
        let model = self.model;
        for (index, initializer) in model.graph(id).sparse_initializers.iter().enumerate() {
            let (Some(value), Some(values)) = (initializer.value, &initializer.tensor.values)
            else {
                continue;
            };
            if matches!(model.value(value).producer, Producer::Input(_)) && self.is_algebra() {
                // The default of an input must fit its declaration.
                let default = self.constant(id, value, values.data_type, &initializer.tensor.dims);
                let declared = self.found.types.get(value);
                let differs = declared.filter(|ty| ty.merge(&default).is_none());
                if let Some(declared) = differs.map(Type::to_string) {
                    self.report_default(id, "sparse_initializer", index, &default, &declared);
                }
            }
            if matches!(model.value(value).producer, Producer::SparseInitializer(_)) {
                // Nodes read the dense tensor.
                let dims = &initializer.tensor.dims;
                let ty = match self.constant(id, value, values.data_type, dims) {
                    // The reference implementation passes it on in its stored form.
                    Type::Tensor(tensor) if !self.is_algebra() => Type::SparseTensor(tensor),
                    ty => ty,
                };
                self.found.types.set(value, Some(ty));
            }
        }
    }

    /// Sets the types of inputs and constants, and the declared types of other values.
    pub(super) fn begin(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        if !self.walked.insert(id) {
            self.forget(id);
        }
        let is_body = |call: &Call| model.functions[call.function].body == id;
        // Functions get other types in every call; the reference implementation ignores their
        // declarations.
        let is_read = self.is_algebra() || !self.calls.last().is_some_and(is_body);
        let declared: &[_] = if is_read { &graph.value_info } else { &[] };
        let infos = declared.iter().chain(&graph.outputs).chain(&graph.inputs);
        // Only declarations of inputs of the model hold for all sizes.
        let all_count = self.options.sizes.is_none();
        for info in infos {
            let is_input = |value| matches!(model.value(value).producer, Producer::Input(_));
            let is_certain = model.main == Some(id) && info.value.is_some_and(is_input);
            if !all_count && !is_certain {
                continue;
            }
            // Lists of an inner graph may name values of an outer one, whose own declarations
            // count.
            if let (Some(value), Some(ty)) = (info.value, &info.ty)
                && model.value(value).graph == id
            {
                if !self.is_algebra() && has_strange_element(ty) {
                    self.strange.insert(value);
                }
                if let Some(denotations) =
                    denotations::declared_denotations(model, ty).filter(|_| self.calls.is_empty())
                {
                    self.found.denotations.insert(value, denotations);
                }
                let mut declared = self.convert_declared(ty);
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
        // Before IR version 4 each constant had to be an input too, which does not mean that
        // callers override it.
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
                self.report_default(id, "initializer", index, &constant, &declared);
            } else if self.strange.contains(&value) {
                self.report_default(
                    id,
                    "initializer",
                    index,
                    &constant,
                    "a tensor with an undefined element type",
                );
            }
            // The reference implementation uses the declared type.
            let is_declared = !self.is_algebra() && (has_type || self.strange.contains(&value));
            // Any value that the declared type of the input allows may replace it.
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

    /// Forgets the results of an earlier walk through a graph, and the types that its inputs had
    /// for that walk.
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

    /// Sets the types that the caller gives for inputs of the main graph.
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
        // Open sizes of the file also get names, so that they can be propagated.
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

    /// Returns the type of a constant.
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

    /// Converts a declared type in the style of this inference.
    fn convert_declared(&mut self, ty: &TypeProto) -> Option<Type> {
        let model = self.model;
        let (named, options) = (&mut self.named, self.options);
        model.type_with(ty, &mut |value| {
            let symbol = match (value, options.style) {
                // The reference implementation compares negative sizes like others; they usually
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
        let follows_from_types = self.visit(node, &callee);
        if let Some(given) = given.filter(|_| follows_from_types) {
            self.keep(node, given);
        }
    }

    /// Infers the outputs of a node. Returns whether the results follow from types alone, without
    /// problems and unknown sizes.
    pub(super) fn visit(&mut self, node: NodeId, callee: &Callee<'_>) -> bool {
        let before = (self.complaints, self.fresh.count());
        let Some(outcome) = self.infer_outputs(node, callee) else { return false };
        let follows_from_types = depends_on_types_only(&outcome);
        self.outputs(node, outcome);
        follows_from_types && before == (self.complaints, self.fresh.count())
    }

    /// Returns the results of a node; `None` if there is a contradiction, or no rule.
    fn infer_outputs(&mut self, node: NodeId, callee: &Callee<'_>) -> Option<RuleOutcome> {
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
                let found = self.book().apply(node, schema, callee, &given, None);
                found.map(|found| Some(self.compare_with_operator(node, callee, &given, found)))
            }
            None if callee.schema.is_none() && self.function_of(node, callee).is_none() => Ok(None),
            None => {
                // Results change while graphs are walked through.
                let types: SmallVec<[Option<Type>; 6]> =
                    values.iter().map(|value| self.found.ty((*value)?).cloned()).collect();
                let known: SmallVec<[Option<Known>; 6]> =
                    values.iter().map(|value| self.found.known((*value)?).cloned()).collect();
                let mut given = Given::new(&present, &attributes);
                given.inputs.extend(types.iter().map(Option::as_ref));
                given.known.extend(known.iter().map(Option::as_ref));
                let found = self.infer_by_walk(node, callee, &given);
                found.map(|found| {
                    found.map(|found| self.compare_with_operator(node, callee, &given, found))
                })
            }
        };
        // Inner nodes had their own.
        self.first_name = first_name;
        match judged {
            Ok(Some(judged)) => self.report_faults(node, judged),
            Ok(None) => {
                self.no_rule(node, callee);
                None
            }
            Err(NoResult::Misfit(error)) => {
                self.problem(node, ProblemKind::Node, error.0);
                None
            }
            Err(NoResult::Failed) => None,
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

    /// Infers a node whose attributes are graphs, or that calls a function.
    pub(super) fn infer_by_walk(
        &mut self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
    ) -> Result<Option<NodeResults>, NoResult> {
        if let Some(schema) = callee.schema {
            let (book, inside) = (self.book(), Inside::new(self));
            return book.apply(node, schema, callee, given, Some(&inside)).map(Some);
        }
        match self.function_of(node, callee) {
            Some(function) => {
                let outcome = self.call(node, function, given).map_err(NoResult::Misfit)?;
                Ok(Some(NodeResults { outcome, origin: Origin::Function }))
            }
            None => Ok(None),
        }
    }

    /// Returns the function of the model that a node calls.
    fn function_of(&self, node: NodeId, callee: &Callee<'_>) -> Option<usize> {
        let found = self.model.node(node);
        let some = |symbol: Option<Symbol>| symbol.filter(|symbol| Some(*symbol) != self.empty);
        let key = (some(found.domain), found.op_type, some(found.overload));
        callee.function.or(self.functions.get(&key).copied())
    }

    /// Compares the results of a node with the types of its operator.
    fn compare_with_operator(
        &self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
        results: NodeResults,
    ) -> Judged {
        let NodeResults { mut outcome, origin } = results;
        let (mut wrong, mut unmet) = (None, Vec::new());
        let ranks = outcome.types.iter_mut().enumerate();
        let too_deep =
            ranks.filter_map(|(index, ty)| Some((index, bound_rank(ty.as_mut()?)?))).collect();
        if let Some(schema) = callee.schema {
            let reference = !self.is_algebra();
            let check = self.options.check_types || self.alone && self.depth == 0;
            let is_open = |ty: &Option<Type>| ty.as_ref().is_none_or(|ty| ty.elem().is_none());
            if check || outcome.types.iter().any(is_open) {
                let (mut bound, of_inputs) = Bound::of_inputs(schema, &given.inputs);
                if check || !reference || origin == Origin::Standard {
                    bound.complete(schema, &mut outcome.types);
                }
                if check && reference {
                    let counts = [given.inputs.len(), self.model.outputs(node).len()];
                    wrong = wrong_count(schema, counts)
                        .or(of_inputs)
                        .or_else(|| without_element(&given.inputs))
                        .or_else(|| bound.outputs(schema, &outcome.types).err());
                } else if check {
                    wrong = of_inputs;
                }
            }
            if reference && origin == Origin::Standard {
                unmet = self.find_unmet_conditions(node, callee, given, &outcome);
            }
        }
        Judged { outcome, wrong, unmet, too_deep }
    }

    /// Reports what does not fit. Returns the results if they count nevertheless.
    fn report_faults(&mut self, node: NodeId, judged: Judged) -> Option<RuleOutcome> {
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
        if let Some(difference) = &judged.outcome.difference
            && self.found.differences.len() < MOST_LISTED
        {
            self.found.differences.insert(node, difference.clone());
        }
        Some(judged.outcome)
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
                // Callees that are not resolved have odd numbers.
                callee.number = 2 * op.index() as u32;
                self.use_reference_rule(&mut callee);
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

    /// Looks up the callee of a node.
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
        // The reference implementation has no operators of version 0, just like none of other
        // domains.
        callee.imported |= opset.is_some() && !is_algebra;
        callee
    }

    fn look_up(&self, node: NodeId, opset: u32) -> Callee<'a> {
        let domain = self.model.domain_of(node);
        let name = self.model.display(self.model.node(node).op_type);
        let schema = self.registry.schema(&domain, &name, opset);
        // A function of the model takes precedence over an operator outside of the standard, and
        // the reference implementation has none of these.
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
        self.use_reference_rule(&mut callee);
        callee
    }

    /// Replaces the operator's rule by that of the reference implementation, if that has its own or
    /// none, and records the facts that it does not derive.
    fn use_reference_rule(&self, callee: &mut Callee<'_>) {
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
        callee.weaker = weaken::Rows::new(operator, schema.since);
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
            // Inside a node, it is a reason why that node has no types.
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

    /// Records a value with too many declared dimensions.
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

    /// Reports a value that the lists of its graph declare with contradictory types.
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

    /// Reports a constant that is also an input and does not fit its declaration.
    fn report_default(
        &mut self,
        id: GraphId,
        list: &'static str,
        index: usize,
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

/// Inputs and attributes of a node.
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

/// Results of a node, with the faults in them.
struct Judged {
    outcome: RuleOutcome,
    /// Difference from the types of its operator.
    wrong: Option<String>,
    /// Further conditions of the reference implementation that do not hold.
    unmet: Vec<String>,
    /// Outputs with more dimensions than supported, and their number of dimensions.
    too_deep: Vec<(usize, usize)>,
}

/// Context for applying the rules of operators.
#[derive(Clone, Copy)]
struct Rulebook<'a> {
    model: &'a Model,
    rules: Option<&'a dyn Rules>,
    /// Whether conditions on sizes are recorded.
    demands: bool,
    /// Whether differences between runtimes are recorded.
    differences: bool,
}

impl Rulebook<'_> {
    /// Applies the rule of an operator to a node.
    fn apply(
        self,
        node: NodeId,
        schema: &Schema,
        callee: &Callee<'_>,
        given: &Given<'_>,
        inside: Option<&dyn Subgraphs>,
    ) -> Result<NodeResults, NoResult> {
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
            (Some(RuleAnswer::Inferred), _) => {
                Ok(NodeResults { outcome: cx.finish(), origin: Origin::Program })
            }
            (Some(RuleAnswer::Failed), _) => Err(NoResult::Failed),
            (Some(RuleAnswer::Misfit(fact)), _) => Err(NoResult::Misfit(InferError(fact))),
            (Some(RuleAnswer::NoRule) | None, Some(rule)) => {
                let mut outcome = match weaken::hide_inputs(callee.weaker, given) {
                    Some(seen) => {
                        let types = seen.types();
                        let mut cx = context(&types[..count_given], &seen.known[..]);
                        rule(&mut cx).map_err(NoResult::Misfit)?;
                        cx.finish()
                    }
                    None => {
                        rule(&mut cx).map_err(NoResult::Misfit)?;
                        let differs = callee.operator.and_then(OpDef::difference_rule);
                        let differs = differs.filter(|_| self.differences);
                        let difference = differs.and_then(|differs| differs(&cx));
                        RuleOutcome { difference, ..cx.finish() }
                    }
                };
                weaken::weaken(callee.weaker, given, &mut outcome);
                Ok(NodeResults { outcome, origin: Origin::Standard })
            }
            (Some(RuleAnswer::NoRule) | None, None) => {
                Ok(NodeResults { outcome: cx.finish(), origin: Origin::NoRule })
            }
        }
    }
}

/// Makes expressions unknown, since the reference implementation has only numbers and names.
pub(super) fn drop_expressions(dim: &mut Dim) {
    if matches!(dim, Dim::Expr(_)) && dim.as_symbol().is_none() {
        *dim = Dim::Unknown;
    }
}

/// Returns the maximum number of node visits.
fn max_visits(model: &Model) -> u64 {
    VISITS + VISITS_PER_NODE * model.node_count() as u64
}

/// Returns the type of the elements of a tensor, or of the tensors in a sequence, an optional or a
/// map; `Some(None)` if it is unknown. Opaque types have none.
pub(crate) fn element(ty: &Type) -> Option<Option<DataType>> {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => Some(tensor.elem),
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => element(inner),
        Type::Opaque { .. } => None,
    }
}

/// Describes an input whose element type is not in the standard.
fn without_element(inputs: &[Option<&Type>]) -> Option<String> {
    let is_without = |ty: &Option<&Type>| ty.is_some_and(|ty| element(ty) == Some(None));
    let index = inputs.iter().position(is_without)?;
    Some(format!("the element type of input {index} is unknown"))
}

/// Whether a declared tensor has an element type outside of the standard. A missing type does not
/// count.
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

/// Removes the shape of a tensor with too many dimensions, and returns their number.
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
