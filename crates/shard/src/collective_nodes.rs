//! Collectives in a model: nodes that the ranks of a job run together. Each rank has its own
//! session and its own model.

use sardonyx_model::{AttrValue, Model, NodeAttributes, NodeId};
use sardonyx_ops::{AttributeView, OpDef, Registry};
use sardonyx_passes::import_operator_set;

use crate::local::EXCHANGE_DOMAIN;

/// Attribute of a [connected](connect_collectives) node: its index among the [`collectives`] of the
/// model.
pub const COLLECTIVE_NUMBER: &str = "number";

/// Collective of a model.
#[derive(Debug, Clone)]
pub struct Collective {
    /// Node of the collective.
    pub node: NodeId,
    /// Operator of the node.
    pub operator: &'static OpDef,
    /// Operator and first output of the node, for messages.
    pub words: String,
    /// Operation of the ranks.
    pub kind: CollectiveKind,
    /// Number of ranks that take part, if the node declares it.
    pub ranks: Option<i64>,
    /// Ranks that take part, in the order of the file; empty if all do.
    pub group: Vec<i64>,
}

/// Operation of the ranks of a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Combines the tensors of all ranks by a reduction of this name: `sum`, `prod`, `min`, `max`
    /// or another.
    Reduce(String),
    /// Concatenates the tensors of all ranks along an axis. A negative axis counts from the end.
    Gather(i64),
    /// Combines the tensors of all ranks by a reduction of this name. Each rank gets its part of
    /// the first axis.
    ReduceScatter(String),
    /// Sends each rank its part of the tensors of all ranks.
    AllToAll,
    /// Sends the tensor of this rank to all ranks.
    Broadcast(i64),
    /// Operation of another name.
    Other(String),
}

/// Returns the collectives in all graphs of a model, in the order of the file.
pub fn collectives(model: &Model) -> Vec<Collective> {
    let registry = Registry::with_microsoft();
    let mut found = Vec::new();
    for (_, graph) in model.graphs() {
        for id in &graph.nodes {
            let (domain, name) = (model.domain_of(*id), model.display(model.node(*id).op_type));
            let operator = registry.operator(&domain, &name);
            let Some(operator) = operator.filter(|operator| operator.is_collective()) else {
                continue;
            };
            // A call of a function of the model is not a collective, even if the names are equal.
            let is_called = model.functions.iter().any(|function| {
                function.name == model.node(*id).op_type
                    && model.display(function.domain) == domain.as_ref()
            });
            if !is_called {
                found.extend(collective(model, *id, operator));
            }
        }
    }
    found
}

fn collective(model: &Model, node: NodeId, operator: &'static OpDef) -> Option<Collective> {
    let schema = operator.schema_at(operator.newest())?;
    let attributes = NodeAttributes::new(model, node);
    let attributes = AttributeView::new(&schema, &attributes);
    let word = |name: &str| attributes.string(name).unwrap_or_default().to_ascii_lowercase();
    let mut ranks = attributes.int("group_size");
    let mut group = Vec::new();
    let kind = match operator.name {
        "AllReduce" => CollectiveKind::Reduce("sum".to_string()),
        "AllGather" => CollectiveKind::Gather(attributes.int("axis").unwrap_or(1)),
        "AllToAll" => CollectiveKind::AllToAll,
        _ => {
            ranks = attributes.int("nb_rank");
            group = attributes.ints("groups").unwrap_or_default();
            match &*word("collective_operation") {
                "all_reduce" => CollectiveKind::Reduce(word("reduce_op")),
                "all_gather" => CollectiveKind::Gather(0),
                "reduce_scatter" => CollectiveKind::ReduceScatter(word("reduce_op")),
                "all_to_all" => CollectiveKind::AllToAll,
                "broadcast" => CollectiveKind::Broadcast(attributes.int("root").unwrap_or(-1)),
                other => CollectiveKind::Other(other.to_string()),
            }
        }
    };
    let words = {
        let output = model.outputs(node).iter().flatten().next();
        let output = output.map(|value| model.display(Some(model.value(*value).name)));
        format!("{} of '{}'", operator.full_name(), output.unwrap_or_default())
    };
    Some(Collective { node, operator, words, kind, ranks, group })
}

/// Moves collectives to the private domain, with unchanged operator names, and sets the attribute
/// [`COLLECTIVE_NUMBER`] of each.
pub fn connect_collectives(model: &mut Model, found: &[Collective]) {
    import_operator_set(model, EXCHANGE_DOMAIN, 1);
    let domain = Some(model.intern(EXCHANGE_DOMAIN));
    let imported = model.header.opset_import.iter().find(|import| import.domain == domain).cloned();
    for function in &mut model.functions {
        function.opset_import.extend(imported.clone());
    }
    for (number, collective) in found.iter().enumerate() {
        model.node_mut(collective.node).domain = domain;
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        model.set_attribute(collective.node, COLLECTIVE_NUMBER, AttrValue::Int(number));
    }
}
