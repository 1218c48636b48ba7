//! Differences between two models: additions, removals, new names and changes, and their effect on
//! programs that run the model.
//!
//! Values are read where both models have a tensor in the same role, a piece at a time; everything
//! else takes time and memory in the size of the structure.

mod constants;
mod interface;
mod matching;
mod nodes;
mod queues;
mod side;
mod values;
mod versions;

use std::collections::BTreeMap;
use std::fmt;

use hashbrown::HashMap;
use sardonyx_model::{
    ExternalData, Function, GraphId, Model, OperatorSetId, TrainingInfo, TypeProto, ValueId,
    shown_domain,
};

use crate::finding::{Places, Spot};

pub use constants::{ConstantChange, Spread, TensorChange};
pub use interface::{PortChange, PortKind};
pub use nodes::{NodeChange, NodeChangeKind, NodeDetail};
pub use values::{MatchedValue, match_values};
pub use versions::{Impact, VersionAdvice, format_version};

use matching::Matching;
use side::Side;

/// Options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Whether the values of constants are compared. Without, only their types and shapes are.
    pub values: bool,
}

impl Default for DiffOptions {
    fn default() -> Self {
        DiffOptions { values: true }
    }
}

impl DiffOptions {
    /// Compares everything.
    pub fn new() -> DiffOptions {
        DiffOptions::default()
    }

    /// Sets whether the values of constants are compared.
    #[must_use]
    pub fn with_values(self, values: bool) -> DiffOptions {
        DiffOptions { values }
    }
}

/// The differences between two models.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelDiff {
    /// Changed fields of the header.
    pub header: Vec<FieldChange>,
    /// Changed imports of operator sets.
    pub imports: Vec<ImportChange>,
    /// Changed inputs and outputs of the model.
    pub ports: Vec<PortChange>,
    /// Functions and training steps that only one of the models has.
    pub parts: Vec<PartChange>,
    /// Graphs of both models that differ: the main graph, bodies of functions, graphs of training
    /// steps, and those in nodes.
    pub graphs: Vec<GraphDiff>,
    /// Advice on the version of the second model.
    pub version: VersionAdvice,
}

/// A changed text or number.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldChange {
    /// The field, such as `producer_name`; with the key of an entry, such as
    /// `metadata_props['author']`.
    pub field: String,
    /// Its value in the first model, if it has one.
    pub before: Option<String>,
    /// Its value in the second model, if it has one.
    pub after: Option<String>,
}

/// A changed import of an operator set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportChange {
    /// The domain; empty for `ai.onnx`.
    pub domain: String,
    /// The version in the first model.
    pub before: Option<i64>,
    /// The version in the second model.
    pub after: Option<i64>,
}

/// A function or training step that only one of the models has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartChange {
    /// The part, such as `function 'local.f'`.
    pub name: String,
    /// Whether the second model has it.
    pub is_added: bool,
}

/// The differences between two graphs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GraphDiff {
    /// The graph of the second model in words, such as `the graph`.
    pub place: String,
    /// Nodes of the first graph, without those in its nodes.
    pub nodes_before: usize,
    /// Nodes of the second graph, without those in its nodes.
    pub nodes_after: usize,
    /// Nodes that differ.
    pub nodes: Vec<NodeChange>,
    /// Constants that differ.
    pub constants: Vec<ConstantChange>,
    /// Outputs, by name, whose values come from somewhere else.
    pub outputs: Vec<String>,
    /// Inputs and outputs that differ, if it is not the main graph.
    pub ports: Vec<PortChange>,
    /// Declared types of inner values that differ or that only one of the graphs has.
    pub types: usize,
    /// Names and documentation of the graph.
    pub fields: Vec<FieldChange>,
}

impl GraphDiff {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
            && self.constants.is_empty()
            && self.outputs.is_empty()
            && self.ports.is_empty()
            && self.types == 0
            && self.fields.is_empty()
    }

    /// Whether only values of constants differ, and names, documentation and the like.
    fn is_weights_only(&self) -> bool {
        let mut nodes = self.nodes.iter();
        let mut constants = self.constants.iter();
        nodes.all(|node| matches!(node.kind, NodeChangeKind::Renamed | NodeChangeKind::Annotated))
            && self.outputs.is_empty()
            && self.ports.iter().all(|change| change.impact == Impact::None)
            && constants.all(|change| {
                let is_in_both = change.before.is_some() && change.after.is_some();
                is_in_both && matches!(change.content, TensorChange::None | TensorChange::Values(_))
            })
    }

    /// Returns the number of nodes with a kind of change.
    pub fn count(&self, kind: NodeChangeKind) -> usize {
        self.nodes.iter().filter(|change| change.kind == kind).count()
    }
}

impl ModelDiff {
    /// Whether the models do not differ. Tensors that are stored in other fields or files, and the
    /// order of nodes, do not count.
    pub fn is_empty(&self) -> bool {
        self.header.is_empty()
            && self.imports.is_empty()
            && self.ports.is_empty()
            && self.parts.is_empty()
            && self.graphs.is_empty()
    }

    /// Whether the models compute the same with other weights: values of constants differ, and
    /// otherwise only names, documentation and the like.
    pub fn is_weights_only(&self) -> bool {
        let only_weights = self.graphs.iter().all(GraphDiff::is_weights_only);
        let constants = self.graphs.iter().flat_map(|graph| &graph.constants);
        let mut changed = constants.filter(|change| !change.content.is_none());
        only_weights
            && changed.next().is_some()
            && self.imports.is_empty()
            && self.parts.is_empty()
            && self.ports.iter().all(|change| change.impact == Impact::None)
            && !self.header.iter().any(|change| change.field == "ir_version")
    }
}

/// A model with the files that hold its data.
#[derive(Clone, Copy)]
pub struct ModelWithData<'m> {
    /// The model.
    pub model: &'m Model,
    /// Its data files.
    pub data: &'m dyn ExternalData,
}

impl fmt::Debug for ModelWithData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelWithData").field("model", self.model).finish_non_exhaustive()
    }
}

/// Compares two models.
pub fn diff(
    before: ModelWithData<'_>,
    after: ModelWithData<'_>,
    options: DiffOptions,
) -> ModelDiff {
    let sides = Side::pair(before, after);
    let [before, after] = &sides;
    let mut comparison = Comparison {
        matching: Matching::new(before, after),
        options,
        graphs: Vec::new(),
        left: Vec::new(),
        places: Places::default(),
    };
    let (old, new) = (before.model, after.model);
    let ports = match (old.main, new.main) {
        (Some(before), Some(after)) => {
            comparison.matching.compare_ports(GraphPair { before, after })
        }
        _ => Vec::new(),
    };
    comparison.left.extend(GraphPair::new(old.main, new.main));
    let mut parts = comparison.pair_functions();
    parts.extend(comparison.pair_training_steps());
    if old.main.is_some() != new.main.is_some() {
        parts.push(PartChange { name: "the graph".to_string(), is_added: new.main.is_some() });
    }
    comparison.compare_graphs();
    let mut diff = ModelDiff {
        header: comparison.compare_headers(),
        imports: compare_imports(old, &old.header.opset_import, new, &new.header.opset_import),
        ports,
        parts,
        graphs: comparison.graphs,
        version: VersionAdvice::default(),
    };
    diff.version = versions::advise(&diff, old.header.model_version, new.header.model_version);
    diff
}

/// Matches inputs, constants and nodes of two graphs.
fn match_graphs(matching: &mut Matching<'_, '_>, graphs: GraphPair) {
    matching.pair_inputs(graphs);
    matching.pair_constants(graphs);
    matching.match_nodes(graphs);
}

/// A graph of the first model and the graph of the second model that stands for it.
#[derive(Debug, Clone, Copy)]
struct GraphPair {
    before: GraphId,
    after: GraphId,
}

impl GraphPair {
    /// Pairs the two graphs if both are there.
    fn new(before: Option<GraphId>, after: Option<GraphId>) -> Option<GraphPair> {
        Some(GraphPair { before: before?, after: after? })
    }
}

struct Comparison<'s, 'm> {
    matching: Matching<'s, 'm>,
    options: DiffOptions,
    graphs: Vec<GraphDiff>,
    /// Pairs of graphs to compare.
    left: Vec<GraphPair>,
    places: Places,
}

/// Domain, name and overload of a function, as numbers of texts.
type FunctionKey = (Option<usize>, Option<usize>, Option<usize>);

impl Comparison<'_, '_> {
    /// Compares the headers. Does not judge the version of the model.
    fn compare_headers(&self) -> Vec<FieldChange> {
        let header = |side: &Side<'_>| {
            let header = &side.model.header;
            let text = |symbol| side.model.maybe_text(symbol).filter(|text| !text.is_empty());
            let text = |symbol| text(symbol).map(sardonyx_proto::shown);
            let mut fields = Fields::default();
            fields.add("ir_version", header.ir_version.map(|version| version.to_string()));
            fields.add("producer_name", text(header.producer_name));
            fields.add("producer_version", text(header.producer_version));
            fields.add("domain", text(header.domain));
            fields.add("model_version", header.model_version.map(|version| version.to_string()));
            fields.add("doc_string", text(header.doc_string));
            fields.add_entries(side, &header.metadata_props);
            fields.add_records(side, "configuration", header.configuration.iter().copied());
            fields.add_records(side, "unknown fields", header.unknown.records());
            fields
        };
        header(self.matching.before).compare(header(self.matching.after))
    }

    /// Pairs the functions by domain, name and overload. Returns those without a partner.
    fn pair_functions(&mut self) -> Vec<PartChange> {
        let (before, after) = (self.matching.before, self.matching.after);
        let keys = |side: &Side<'_>| -> Vec<FunctionKey> {
            let key = |function: &Function| {
                (
                    side.number(function.domain),
                    side.number(function.name),
                    side.number(function.overload),
                )
            };
            side.model.functions.iter().map(key).collect()
        };
        let (old, new) = (keys(before), keys(after));
        let change = |side: &Side<'_>, index: usize, is_added: bool| PartChange {
            name: crate::finding::describe_spot(side.model, Spot::function(index)),
            is_added,
        };
        let mut by_key: HashMap<FunctionKey, usize> =
            old.iter().enumerate().map(|(index, key)| (*key, index)).collect();
        let mut changes = Vec::new();
        for (index, key) in new.iter().enumerate() {
            match by_key.remove(key) {
                Some(partner) => {
                    self.left.push(GraphPair {
                        before: before.model.functions[partner].body,
                        after: after.model.functions[index].body,
                    });
                }
                None => changes.push(change(after, index, true)),
            }
        }
        let mut gone: Vec<usize> = by_key.into_values().collect();
        gone.sort_unstable();
        changes.extend(gone.into_iter().map(|index| change(before, index, false)));
        changes
    }

    /// Pairs the training steps by position. Returns those without a partner.
    fn pair_training_steps(&mut self) -> Vec<PartChange> {
        let (old, new) =
            (&self.matching.before.model.training_info, &self.matching.after.model.training_info);
        let graphs = |step: &TrainingInfo| [step.initialization, step.algorithm];
        for (old, new) in old.iter().zip(new) {
            let pairs = graphs(old).into_iter().zip(graphs(new));
            self.left.extend(pairs.filter_map(|(old, new)| GraphPair::new(old, new)));
        }
        let common = old.len().min(new.len());
        let is_added = new.len() > old.len();
        let more = common..old.len().max(new.len());
        more.map(|index| PartChange { name: format!("training step {index}"), is_added }).collect()
    }

    /// Compares the pairs of graphs, and the graphs in their nodes.
    fn compare_graphs(&mut self) {
        // A graph may read values of the one around it, which is compared first.
        let mut next = 0;
        while let Some(graphs) = self.left.get(next).copied() {
            next += 1;
            self.compare_graph(graphs);
        }
    }

    fn compare_graph(&mut self, graphs: GraphPair) {
        match_graphs(&mut self.matching, graphs);
        let model = self.matching.after.model;
        let is_main = model.main == Some(graphs.after);
        let (nodes, inner) = self.matching.compare_nodes(graphs, self.options);
        let found = GraphDiff {
            place: self.places.of(model, Spot::graph(graphs.after)).words,
            nodes_before: self.matching.before.model.graph(graphs.before).nodes.len(),
            nodes_after: model.graph(graphs.after).nodes.len(),
            nodes,
            constants: self.matching.compare_constants(graphs, self.options),
            outputs: self.find_moved_outputs(graphs),
            ports: if is_main { Vec::new() } else { self.matching.compare_ports(graphs) },
            types: self.count_changed_types(graphs),
            fields: self.compare_fields(graphs),
        };
        if !found.is_empty() {
            self.graphs.push(found);
        }
        self.left.extend(inner);
    }

    /// Finds outputs of both graphs whose values do not stand for each other.
    fn find_moved_outputs(&self, graphs: GraphPair) -> Vec<String> {
        let pairs = self.matching.pair_outputs(graphs).into_iter();
        pairs
            .filter(|(before, after)| !self.matching.are_same(Some(*before), Some(*after)))
            .map(|(_, after)| self.matching.after.show(after))
            .collect()
    }

    /// Counts inner values of both graphs whose declared types differ. Types of values without a
    /// partner come and go with their nodes.
    fn count_changed_types(&self, graphs: GraphPair) -> usize {
        let matching = &self.matching;
        let old = Declared::list(matching.before, graphs.before, |value| {
            matching.value_after(value).map(|_| value)
        });
        let new =
            Declared::list(matching.after, graphs.after, |value| matching.value_before(value));
        let is_of_one_value = |a: &Declared<'_>, b: &Declared<'_>| a.value == b.value;
        let mut changed = 0;
        let mut old = old.chunk_by(is_of_one_value).peekable();
        for new in new.chunk_by(is_of_one_value) {
            let value = new[0].value;
            while old.next_if(|old| old[0].value < value).is_some() {
                changed += 1;
            }
            let partner = old.next_if(|old| old[0].value == value).unwrap_or_default();
            let is_same = partner.len() == new.len()
                && partner.iter().zip(new).all(|(old, new)| {
                    matching.before.type_bytes(old.ty) == matching.after.type_bytes(new.ty)
                });
            changed += usize::from(!is_same);
        }
        changed + old.count()
    }

    /// Compares the names and documentation of two graphs, and the fields of their functions.
    fn compare_fields(&self, graphs: GraphPair) -> Vec<FieldChange> {
        let fields = |side: &Side<'_>, id: GraphId| {
            let graph = side.model.graph(id);
            let text = |symbol| side.model.maybe_text(symbol).filter(|text| !text.is_empty());
            let text = |symbol| text(symbol).map(sardonyx_proto::shown);
            let mut fields = Fields::default();
            fields.add("name", text(graph.name));
            fields.add("doc_string", text(graph.doc_string));
            fields.add_entries(side, &graph.metadata_props);
            fields.add_records(side, "unknown fields", graph.unknown.records());
            for annotation in &graph.quantization_annotation {
                let tensor = text(annotation.tensor_name).unwrap_or_default();
                for (key, value) in side.entries(&annotation.quant_parameter_tensor_names) {
                    fields.add(&format!("quantization of '{tensor}': {key}"), Some(value));
                }
            }
            let mut functions = side.model.functions.iter();
            if let Some(function) = functions.find(|function| function.body == id) {
                fields.add("doc_string of the function", text(function.doc_string));
                fields.add_entries(side, &function.metadata_props);
                fields.add_records(side, "unknown fields", function.unknown.records());
                for name in &function.attributes {
                    fields.add(
                        &name_parameter(&text(Some(*name)).unwrap_or_default()),
                        Some(String::new()),
                    );
                }
                for attribute in &function.attribute_protos {
                    let name = text(attribute.name).unwrap_or_default();
                    let line = sardonyx_text::attribute_excerpt(side.model, attribute).line;
                    fields.add(&name_parameter(&name), Some(line));
                }
                for (domain, version) in side.model.opsets_in(&function.opset_import) {
                    let domain = shown_domain(&domain);
                    fields.add(&format!("import of {domain}"), Some(version.to_string()));
                }
            }
            let steps = side.model.training_info.iter();
            for step in steps.filter(|step| step.algorithm == Some(id)) {
                for (target, source) in side.entries(&step.update_binding) {
                    fields.add(&format!("update_binding['{target}']"), Some(source));
                }
                for (target, source) in side.entries(&step.initialization_binding) {
                    fields.add(&format!("initialization_binding['{target}']"), Some(source));
                }
            }
            fields
        };
        fields(self.matching.before, graphs.before)
            .compare(fields(self.matching.after, graphs.after))
    }
}

/// A declared type of an inner value.
struct Declared<'m> {
    /// The value in the first model.
    value: ValueId,
    ty: Option<&'m TypeProto>,
}

impl<'m> Declared<'m> {
    /// Lists the declared types of the values for which `find` finds one in the first model, sorted
    /// by that, and in the order of the file where several are declared for a value.
    fn list(
        side: &Side<'m>,
        graph: GraphId,
        find: impl Fn(ValueId) -> Option<ValueId>,
    ) -> Vec<Declared<'m>> {
        let infos = side.model.graph(graph).value_info.iter();
        let declared = infos
            .filter_map(|info| Some(Declared { value: find(info.value?)?, ty: info.ty.as_ref() }));
        let mut declared: Vec<Declared<'m>> = declared.collect();
        declared.sort_by_key(|declared| declared.value);
        declared
    }
}

/// Names a parameter of a function.
fn name_parameter(name: &str) -> String {
    format!("parameter '{name}'")
}

/// Compares the imports of operator sets by domain.
fn compare_imports(
    before: &Model,
    old: &[OperatorSetId],
    after: &Model,
    new: &[OperatorSetId],
) -> Vec<ImportChange> {
    let (old, new) = (before.opsets_in(old), after.opsets_in(new));
    let domains: std::collections::BTreeSet<&str> =
        old.keys().chain(new.keys()).map(|domain| &**domain).collect();
    let change = |domain: &str| ImportChange {
        domain: domain.to_string(),
        before: old.get(domain).copied(),
        after: new.get(domain).copied(),
    };
    let changes = domains.into_iter().map(change);
    changes.filter(|change| change.before != change.after).collect()
}

/// Fields with their values in words.
#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn add(&mut self, field: &str, value: Option<String>) {
        self.0.extend(value.map(|value| (field.to_string(), value)));
    }

    fn add_entries(&mut self, side: &Side<'_>, entries: &[sardonyx_model::Entry]) {
        for (key, value) in side.entries(entries) {
            self.add(&format!("metadata_props['{key}']"), Some(value));
        }
    }

    /// Adds messages that are kept as bytes, with a digest in place of a value.
    fn add_records(
        &mut self,
        side: &Side<'_>,
        field: &str,
        spans: impl Iterator<Item = sardonyx_model::Span>,
    ) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let records = side.records(spans);
        if !records.is_empty() {
            let mut hasher = DefaultHasher::new();
            records.hash(&mut hasher);
            let bytes: usize = records.iter().map(|record| record.len()).sum();
            self.add(field, Some(format!("{bytes} bytes, hash {:016x}", hasher.finish())));
        }
    }

    /// Returns the fields that differ, in alphabetical order.
    fn compare(mut self, mut after: Fields) -> Vec<FieldChange> {
        after.0.retain(|field, value| match self.0.get(field) {
            Some(before) if before == value => {
                self.0.remove(field);
                false
            }
            _ => true,
        });
        let mut fields: Vec<String> = self.0.keys().chain(after.0.keys()).cloned().collect();
        fields.sort();
        fields.dedup();
        let change = |field: String| FieldChange {
            before: self.0.get(&field).cloned(),
            after: after.0.get(&field).cloned(),
            field,
        };
        fields.into_iter().map(change).collect()
    }
}
