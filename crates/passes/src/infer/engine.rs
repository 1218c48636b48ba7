//! Walk over the nodes of a graph.

use std::mem::take;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, GraphId, Id, Model, NodeAttributes, NodeId, Texts, Type, ValueId};
use sardonyx_ops::{Demand, Known, Registry, RuleOutcome, Schema};
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use super::callees::{Callee, Callees};
use super::calls::{Answer, Asked, Call};
use super::declarations::Declarations;
use super::equalities::{Equalities, over_sizes};
use super::everywhere::InAllCalls;
use super::inner::Inside;
use super::judged::Judged;
use super::problems::Complaints;
use super::repeats::{Repeats, depends_on_types_only};
use super::rulebook::{Given, NoResult, NodeResults, Origin, Rulebook};
use super::table::TypeTable;
use super::unknown::Fresh;
use super::{InferOptions, Inference, Problem, ProblemKind, Style};
use crate::order::sort_nodes;
use crate::resolve::Resolved;

/// Maximum number of node visits of graphs that are walked through several times, per node of the
/// model.
const VISITS_PER_NODE: u64 = 64;
/// Number of node visits that every model may have in addition.
const VISITS: u64 = 100_000;

/// Inference in progress.
pub(super) struct Engine<'a> {
    pub(super) model: &'a Model,
    pub(super) texts: Texts<'a>,
    pub(super) options: InferOptions<'a>,
    /// Whether the model is resolved: its names are defined, and its graphs are in an order in
    /// which they can run.
    resolved: Option<&'a Resolved>,
    pub(super) callees: Callees<'a>,
    pub(super) found: Inference,
    pub(super) equalities: Equalities,
    /// Conditions of nodes on sizes, if they are recorded.
    pub(super) demands: HashSet<Demand>,
    pub(super) fresh: Fresh,
    pub(super) declarations: Declarations,
    /// Nodes that were visited, for look-up of nodes with equal inputs.
    pub(super) repeats: Repeats,
    pub(super) complaints: Complaints,
    /// Calls in progress, the innermost last.
    pub(super) calls: Vec<Call>,
    /// Results of calls of functions, by everything that determines them.
    pub(super) answers: HashMap<Asked, Answer>,
    /// Facts of all calls about the values of functions, if they are collected.
    pub(super) in_all_calls: Option<InAllCalls>,
    pub(super) depth: usize,
    /// Number of node visits that are left.
    pub(super) visits: u64,
    /// Number of the first name that the current node could make up.
    pub(super) first_name: usize,
    /// Whether a single node is inferred: it is compared with its operator, and unknown sizes get
    /// no names.
    pub(super) alone: bool,
    /// Graphs that were walked through before, for whose values there are results to forget.
    pub(super) walked: HashSet<GraphId>,
    /// Order of the nodes of graphs, if it is not that of the file.
    orders: HashMap<GraphId, Option<Rc<[NodeId]>>>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(model: &'a Model, registry: &'a Registry, options: InferOptions<'a>) -> Self {
        Engine::with(model, registry, None, options)
    }

    /// Creates the inference of a resolved model.
    pub(super) fn for_resolved(resolved: &'a Resolved, options: InferOptions<'a>) -> Self {
        Engine::with(resolved.model(), resolved.registry(), Some(resolved), options)
    }

    fn with(
        model: &'a Model,
        registry: &'a Registry,
        resolved: Option<&'a Resolved>,
        options: InferOptions<'a>,
    ) -> Self {
        Engine {
            model,
            texts: model.texts(),
            options,
            resolved,
            callees: Callees::new(model, registry, resolved, options.style),
            found: Inference {
                types: TypeTable::new(model.value_count()),
                known: vec![None; model.value_count()],
                ..Inference::default()
            },
            equalities: Equalities::default(),
            demands: HashSet::new(),
            fresh: Fresh::default(),
            declarations: Declarations::default(),
            repeats: Repeats::default(),
            complaints: Complaints::default(),
            calls: Vec::new(),
            answers: HashMap::new(),
            in_all_calls: None,
            depth: 0,
            visits: max_visits(model),
            first_name: 0,
            alone: false,
            walked: HashSet::new(),
            orders: HashMap::new(),
        }
    }

    pub(super) fn style(&self) -> Style {
        self.options.style
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
        self.begin_given(main);
        // The names of a model that is resolved are defined.
        if self.style().lists_undefined_names() && self.resolved.is_none() {
            self.report_undefined(main);
        }
        self.walk(main);
        for step in steps {
            self.begin(*step);
            self.walk(*step);
        }
        self.conclude();
        // Sessions do not use the meanings of dimensions.
        let has_meanings = !self.found.denotations.is_empty() && self.resolved.is_none();
        if has_meanings && self.style().follows_denotations() {
            self.options.calls = None;
            self.denote(main);
        }
        self.found
    }

    /// Applies the equalities of all nodes to all types, once the nodes have been looked at.
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
        // Earlier findings about these graphs held for other types.
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
        if !self.style().sorts_nodes() || self.resolved.is_some() {
            return None;
        }
        let nodes = &model.graph(id).nodes;
        // A cycle has no order at all.
        let sort = || sort_nodes(model, nodes).ok().flatten().map(Rc::from);
        self.orders.entry(id).or_insert_with(sort).clone()
    }

    /// Infers the outputs of one node of the main graph by the rule of an operator. Unknown sizes
    /// stay unknown.
    pub(super) fn infer_as_operator(
        self,
        node: NodeId,
        schema: &Schema,
    ) -> (Vec<Option<Type>>, Vec<Problem>) {
        let callee = Callee::of_schema(self.callees.registry, schema, self.style());
        self.infer_alone(node, &callee)
    }

    /// Infers the outputs of one node of the main graph by the body of a function, which may call
    /// no other function of the model. Unknown sizes stay unknown.
    pub(super) fn infer_as_call(
        mut self,
        node: NodeId,
        function: usize,
    ) -> (Vec<Option<Type>>, Vec<Problem>) {
        self.callees.forget_functions();
        let callee = Callee::of_function(self.callees.registry, function, self.style());
        self.infer_alone(node, &callee)
    }

    fn infer_alone(
        mut self,
        node: NodeId,
        callee: &Callee<'_>,
    ) -> (Vec<Option<Type>>, Vec<Problem>) {
        self.alone = true;
        if let Some(main) = self.model.main {
            self.begin(main);
        }
        let mut types = self.infer_outputs(node, callee).unwrap_or_default().types;
        for ty in types.iter_mut().flatten() {
            ty.for_each_dim(&mut drop_expressions);
        }
        types.resize(self.model.outputs(node).len(), None);
        (types.into_vec(), self.found.problems)
    }

    /// Infers the outputs of a node, as far as the limit on visits allows.
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
        let before = (self.complaints.count, self.fresh.count());
        let Some(said) = self.infer_outputs(node, callee) else { return false };
        let follows_from_types = depends_on_types_only(&said);
        self.outputs(node, said);
        follows_from_types && before == (self.complaints.count, self.fresh.count())
    }

    /// Finds the callee of a node, in the function that is being called.
    pub(super) fn callee(&mut self, node: NodeId) -> Callee<'a> {
        let scope = self.calls.last().map(|call| call.function);
        self.callees.find(node, scope)
    }

    /// Infers the outputs of a node; `None` if something does not fit, or its operator is unknown.
    fn infer_outputs(&mut self, node: NodeId, callee: &Callee<'_>) -> Option<RuleOutcome> {
        let model = self.model;
        if self.style().is_reference() && !self.meets_demands(node, callee) {
            return None;
        }
        if self.calls.last().is_some_and(|call| call.leaves_open(model, node)) {
            return None;
        }
        let first_name = self.fresh.count();
        let judged = self.judge(node, callee);
        // Inner nodes had their own.
        self.first_name = first_name;
        match judged {
            Ok(Some(judged)) => self.report_faults(node, judged),
            Ok(None) => {
                self.report_no_rule(node, callee);
                None
            }
            Err(NoResult::Misfit(error)) => {
                self.problem(node, ProblemKind::Node, error.0);
                None
            }
            Err(NoResult::Failed) => None,
        }
    }

    /// Applies the rule of a node, and compares the result with the signature of its operator;
    /// `None` without a rule.
    fn judge(&mut self, node: NodeId, callee: &Callee<'_>) -> Result<Option<Judged>, NoResult> {
        let model = self.model;
        let has_rule = callee.schema.is_some();
        if !has_rule && self.callees.function_of(node, callee).is_none() {
            return Ok(None);
        }
        let values: SmallVec<[Option<ValueId>; 6]> = model.inputs(node).collect();
        let present: SmallVec<[bool; 6]> = values.iter().map(|value| self.has(*value)).collect();
        let bindings = self.calls.last().map(|call| call.bindings.clone());
        let attributes = NodeAttributes::in_call(model, self.texts, node, bindings.as_deref());
        if let Some(schema) = callee.schema.filter(|_| !callee.has_graphs) {
            let mut given = Given::new(&present, &attributes);
            for value in &values {
                given.inputs.push(value.and_then(|value| self.found.ty(value)));
                given.known.push(value.and_then(|value| self.found.known(value)));
            }
            let results = self.rulebook().apply(node, schema, callee, &given, None)?;
            return Ok(Some(self.compare_with_operator(node, callee, &given, results)));
        }
        // Findings about the inputs change while graphs are walked through.
        let types: SmallVec<[Option<Type>; 6]> =
            values.iter().map(|value| self.found.ty((*value)?).cloned()).collect();
        let known: SmallVec<[Option<Known>; 6]> =
            values.iter().map(|value| self.found.known((*value)?).cloned()).collect();
        let mut given = Given::new(&present, &attributes);
        given.inputs.extend(types.iter().map(Option::as_ref));
        given.known.extend(known.iter().map(Option::as_ref));
        let results = self.infer_by_walk(node, callee, &given)?;
        Ok(results.map(|results| self.compare_with_operator(node, callee, &given, results)))
    }

    fn rulebook(&self) -> Rulebook<'a> {
        Rulebook::new(self.model, &self.options)
    }

    /// Infers the outputs of a node whose attributes are graphs, or that calls a function, by a
    /// walk through these; `None` if it has neither.
    pub(super) fn infer_by_walk(
        &mut self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
    ) -> Result<Option<NodeResults>, NoResult> {
        if let Some(schema) = callee.schema {
            let (rulebook, inside) = (self.rulebook(), Inside::new(self));
            return rulebook.apply(node, schema, callee, given, Some(&inside)).map(Some);
        }
        let Some(function) = self.callees.function_of(node, callee) else { return Ok(None) };
        let outcome = self.call(node, function, given).map_err(NoResult::Misfit)?;
        Ok(Some(NodeResults { outcome, origin: Origin::Function }))
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
