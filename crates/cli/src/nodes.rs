//! `sardonyx info --nodes`: the nodes of a model as a table.

use sardonyx::Model;
use sardonyx::infer::InferOptions;
use sardonyx::inspect::{NodeInfo, NodeValue};
use sardonyx::tool::{Glob, suggest};
use serde::Serialize;

use crate::failure::Failure;
use crate::human::{Align, format_columns, format_count, group_digits};
use crate::model_arg::ModelArg;
use crate::operator_name::qualified_name;
use crate::terminal::Terminal;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// List the nodes instead: position, operator, name, and the values that each reads and makes,
    /// with their types
    #[arg(long)]
    nodes: bool,
    /// With --nodes: only nodes whose operator matches a pattern, such as 'Conv*' or
    /// 'com.microsoft.*'
    #[arg(long, value_name = "PATTERN", requires = "nodes", value_parser = Glob::parse)]
    op: Option<Glob>,
    /// With --nodes: only nodes whose name matches a pattern, such as '*layer.0*'
    #[arg(long, value_name = "PATTERN", requires = "nodes", value_parser = Glob::parse)]
    name: Option<Glob>,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.info-nodes/1";

impl Args {
    /// Whether `--nodes` is given.
    pub(crate) fn is_wanted(&self) -> bool {
        self.nodes
    }

    /// Whether `node` matches the patterns of `--op` and `--name`.
    fn is_selected(&self, node: &NodeInfo) -> bool {
        let op = self.op.as_ref().is_none_or(|op| has_operator(op, node));
        op && self.name.as_ref().is_none_or(|name| name.matches(&node.name))
    }

    /// Returns a hint for the case that no node matches: an operator or a node whose name resembles
    /// the pattern, or how to list the operators.
    fn suggest_names(&self, nodes: &[NodeInfo]) -> Option<String> {
        let mut operators: Vec<String> =
            nodes.iter().map(|node| qualified_name(&node.domain, &node.operator)).collect();
        operators.sort_unstable();
        operators.dedup();
        if let Some(op) = &self.op
            && !nodes.iter().any(|node| has_operator(op, node))
        {
            let wanted = op.text();
            let near = suggest::closest(&wanted, operators.iter().map(String::as_str));
            let advice = match near {
                Some(near) => format!("did you mean {near}?"),
                None => "`sardonyx info` lists the operators".to_string(),
            };
            return Some(format!("no node has the operator '{wanted}'; {advice}"));
        }
        let wanted = self.name.as_ref()?.text();
        let names = nodes.iter().map(|node| &*node.name).filter(|name| !name.is_empty());
        let near = suggest::hint(&wanted, names);
        let node = if self.op.is_some() { "node with the operator of --op" } else { "node" };
        Some(format!("no {node} has the name '{wanted}'{near}"))
    }
}

/// Whether the operator of `node` matches the pattern `op`, with or without its domain.
fn has_operator(op: &Glob, node: &NodeInfo) -> bool {
    op.matches(&node.operator) || op.matches(&qualified_name(&node.domain, &node.operator))
}

/// Prints the nodes that match `--op` and `--name`, or a hint if none does.
pub(crate) fn list_nodes(
    args: &Args,
    arg: &ModelArg,
    json: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let model: Model = arg.open()?;
    let types = model.infer(&InferOptions::new().without_reasons(true));
    let nodes = model.nodes(Some(&types));
    let total = nodes.len();
    let hint = args.suggest_names(&nodes);
    let fitting: Vec<NodeInfo> = nodes.into_iter().filter(|node| args.is_selected(node)).collect();
    if json {
        let answer = Answer { schema: SCHEMA, model: arg.name(), total, nodes: &fitting };
        return terminal.json(&answer, true);
    }
    terminal.print(&format_nodes(&fitting, total))?;
    if let Some(hint) = hint.filter(|_| fitting.is_empty()) {
        terminal.note(&hint);
    }
    Ok(())
}

/// JSON answer of `info --nodes`.
#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    model: String,
    /// Number of nodes in the model, including nodes that are not listed.
    total: usize,
    nodes: &'a [NodeInfo],
}

/// Formats a table of nodes for each graph, and below the tables the number of nodes.
fn format_nodes(nodes: &[NodeInfo], total: usize) -> String {
    let headings = [
        ("  node", Align::Right),
        ("operator", Align::Left),
        ("name", Align::Left),
        ("inputs", Align::Left),
        ("outputs", Align::Left),
    ];
    let mut text = String::new();
    for graph in nodes.chunk_by(|one, other| one.graph == other.graph) {
        let rows: Vec<[String; 5]> = graph.iter().map(format_row).collect();
        text += &format!("{}:\n{}", graph[0].graph, format_columns(&headings, &rows));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let all = format_count(total, "node");
    text + &if nodes.len() == total {
        format!("{all}\n")
    } else {
        format!("{} of {all}\n", group_digits(nodes.len() as u64))
    }
}

/// Formats a node as the cells of a row of the table.
fn format_row(node: &NodeInfo) -> [String; 5] {
    [
        node.index.to_string(),
        qualified_name(&node.domain, &node.operator),
        node.name.clone(),
        format_values(&node.inputs),
        format_values(&node.outputs),
    ]
}

/// Formats the inputs or outputs of a node, separated by commas.
fn format_values(values: &[Option<NodeValue>]) -> String {
    let values: Vec<String> = values.iter().map(|value| format_value(value.as_ref())).collect();
    values.join(", ")
}

/// Formats the name and type of a value, or a dash for an input or output that is left out.
fn format_value(value: Option<&NodeValue>) -> String {
    match value {
        None => "-".to_string(),
        Some(NodeValue { name, ty: Some(ty), .. }) => format!("{name}: {ty}"),
        Some(NodeValue { name, .. }) => name.clone(),
    }
}
