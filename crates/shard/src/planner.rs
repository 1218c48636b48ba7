//! Planner: decides for the nodes of a model, in order, where and in which forms they run.
//!
//! Its four parts are the forms, the locations of values, the requests of annotations, and the
//! steps. What decides about a node reads the first three and adds to the last.

mod bodies;
mod compute;
mod forms;
mod linear;
mod locations;
mod place;
mod prune;
mod replace;
mod requests;
mod residents;
mod search;
mod steps;

use std::collections::BTreeSet;

use hashbrown::HashSet;
use sardonyx_model::{GraphId, NodeId, ValueId};
use sardonyx_passes::order::{self, inner_graphs, tree};

pub(crate) use forms::Forms;
pub(crate) use linear::find_nodes;
pub(crate) use locations::Locations;
use requests::Requests;
pub(crate) use search::LargeConstants;
use steps::Steps;

use crate::form::{Device, Form};
use crate::options::OutputsAt;
use crate::plan::{FormId, Given, Move, Plan};
use crate::prepare::Prepared;
use crate::resident::Kept;
use crate::suggest::Columns;
use crate::transfers::is_within;
use crate::typed::TypedModel;

/// State of a plan that is being made.
pub(crate) struct Planner<'r> {
    prepared: &'r Prepared,
    typed: TypedModel,
    forms: Forms,
    locations: Locations,
    requests: Requests<'r>,
    steps: Steps,
    /// Linear nodes that are computed on partial sums.
    on_sums: HashSet<NodeId>,
    /// Nodes that need whole values of which devices have parts, and that can be expanded.
    needs_whole: HashSet<NodeId>,
}

/// Plan, with what the planner found out on the way.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) locations: Locations,
    /// Products that are split, in a search for annotations.
    pub(crate) columns: Option<Columns>,
    /// Nodes that need whole values of which devices have parts, and that can be expanded.
    pub(crate) needs_whole: HashSet<NodeId>,
}

impl<'r> Planner<'r> {
    pub(crate) fn new(prepared: &'r Prepared) -> Self {
        Planner {
            prepared,
            typed: TypedModel::new(prepared),
            forms: Forms::new(prepared.devices),
            locations: Locations::new(),
            requests: Requests::new(prepared),
            steps: Steps::new(prepared.resolved.main()),
            on_sums: HashSet::new(),
            needs_whole: HashSet::new(),
        }
    }

    /// Searches for annotations: requests splits of products and tables, whatever the annotations
    /// of the model are.
    pub(crate) fn searching(mut self, columns: Columns) -> Self {
        self.requests.search = Some(columns);
        self
    }

    /// Computes linear nodes on partial sums, where their inputs are such.
    pub(crate) fn with_nodes_on_sums(mut self, nodes: HashSet<NodeId>) -> Self {
        self.on_sums = nodes;
        self
    }

    /// Places all nodes and outputs.
    pub(crate) fn plan(mut self) -> Planned {
        let mut kept = self.take_residents();
        self.requests.find_stages();
        let main = self.prepared.resolved.main();
        self.place_nodes_of(main);
        let outputs = self.typed.model.graph(main).outputs.iter().filter_map(|info| info.value);
        let outputs: Vec<ValueId> = outputs.collect();
        let outputs = outputs.into_iter().enumerate().map(|(index, value)| {
            let is_returned = !self.prepared.unreturned.contains(&index);
            is_returned.then(|| self.give(value))
        });
        let outputs: Vec<Option<Given>> = outputs.collect();
        self.keep_residents(&mut kept);
        let readers = self.prune(&outputs, &kept);
        self.into_planned(outputs, kept, readers)
    }

    fn into_planned(
        self,
        outputs: Vec<Option<Given>>,
        kept: Vec<Kept>,
        readers: Vec<BTreeSet<Device>>,
    ) -> Planned {
        let prepared = self.prepared;
        let plan = Plan {
            typed: self.typed,
            configuration: prepared.configuration.clone(),
            devices: prepared.devices,
            sizes: prepared.sizes.clone(),
            scope: prepared.scope.clone(),
            forms: self.forms.into_list(),
            steps: self.steps.list,
            not_honored: self.steps.not_honored,
            outputs,
            kept,
            readers,
        };
        Planned {
            plan,
            locations: self.locations,
            columns: self.requests.search,
            needs_whole: self.needs_whole,
        }
    }

    /// Places the nodes of a graph.
    fn place_nodes_of(&mut self, graph: GraphId) {
        self.steps.graph = graph;
        for node in self.prepared.resolved.order_of(graph).to_vec() {
            self.forget_like(node);
            if !self.replace_known(node) && !self.defer(node) {
                self.place(node);
            }
        }
    }

    /// Moves an output of the model to the devices that have it after a run. If that is one device,
    /// it is the first one that has the whole value, else the first one that has a part of it.
    fn give(&mut self, value: ValueId) -> Given {
        let at = self.prepared.outputs;
        let form = match at {
            OutputsAt::One => self.form_on_one(value),
            OutputsAt::All => self.forms.everywhere,
            OutputsAt::Parts => self.current(value),
        };
        self.need(value, form);
        let by = self.forms.get(form).devices().next().unwrap_or(0);
        Given { value, form, by, at }
    }

    /// Returns the form of an output that one device returns.
    fn form_on_one(&mut self, value: ValueId) -> FormId {
        let forms = self.locations.forms(value, &self.forms);
        let whole = forms.into_iter().filter(|form| self.forms.get(*form).is_whole());
        let whole =
            whole.filter_map(|form| Some((self.forms.get(form).devices().next()?, form))).min();
        if let Some((_, form)) = whole {
            return form;
        }
        let current = self.current(value);
        if !self.typed.can_move(value) {
            return self.forms.everywhere;
        }
        let by = self.forms.get(current).devices().next().unwrap_or(0);
        self.forms.number(Form::whole([by]))
    }

    /// Returns the form in which a value is read by default.
    fn current(&mut self, value: ValueId) -> FormId {
        self.locations.current(value, &mut self.forms)
    }

    /// Moves a value to a form unless it has that form.
    fn need(&mut self, value: ValueId, to: FormId) {
        if let Some(node) = self.locations.take_deferred(value) {
            self.place_for(node, to);
        }
        let has = self.locations.forms(value, &self.forms);
        if has.contains(&to) {
            return;
        }
        let Some((elem, dims)) = self.typed.tensor(value) else { return };
        let is_near =
            |form: &FormId| is_within(self.forms.get(*form), self.forms.get(to), dims.as_deref());
        let is_complete = |form: &FormId| self.forms.get(*form).partial().is_none();
        let from = has.iter().copied().find(is_near);
        let from = from.or_else(|| has.iter().copied().find(is_complete)).unwrap_or(has[0]);
        let graph = self.steps.graph;
        self.steps.add_move(Move { value, graph, from, to, form: to, elem, dims });
        self.locations.add(value, to, &self.forms);
    }

    /// Returns the values that a node and the graphs in it read from graphs around the node, each
    /// once, in an order that is the same in every process, as the steps of a plan depend on it.
    fn reads_of(&self, node: NodeId) -> Vec<ValueId> {
        let model = &self.typed.model;
        let mut reads = order::reads(model, node);
        let inner: HashSet<GraphId> =
            inner_graphs(model, node).flat_map(|graph| tree(model, graph)).collect();
        reads.retain(|value| !inner.contains(&model.value(*value).graph));
        reads.sort_unstable();
        reads.dedup();
        reads
    }
}
