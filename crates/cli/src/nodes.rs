//! `sardonyx info --nodes`: the nodes of a model as a table.

use sardonyx::Model;
use sardonyx::infer::InferOptions;
use sardonyx::inspect::{NodeInfo, NodeValue};
use sardonyx::tool::{Glob, suggest};
use serde::Serialize;

use crate::ModelArg;
use crate::failure::Failure;
use crate::human::{Align, columns, count, group};
use crate::info::qualified;
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

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.info-nodes/1";

impl Args {
    pub(crate) fn is_wanted(&self) -> bool {
        self.nodes
    }

    fn fits(&self, node: &NodeInfo) -> bool {
        let op = self.op.as_ref().is_none_or(|op| is_of(op, node));
        op && self.name.as_ref().is_none_or(|name| name.matches(&node.name))
    }

    /// What to say if no node fits: names like those that are asked for, or the operators that
    /// there are.
    fn hint(&self, nodes: &[NodeInfo]) -> Option<String> {
        let mut operators: Vec<String> =
            nodes.iter().map(|node| qualified(&node.domain, &node.operator)).collect();
        operators.sort_unstable();
        operators.dedup();
        if let Some(op) = &self.op
            && !nodes.iter().any(|node| is_of(op, node))
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
        Some(format!("no node of those has the name '{wanted}'{near}"))
    }
}

fn is_of(op: &Glob, node: &NodeInfo) -> bool {
    op.matches(&node.operator) || op.matches(&qualified(&node.domain, &node.operator))
}

/// Lists the nodes that fit.
pub(crate) fn list(
    args: &Args,
    arg: &ModelArg,
    json: bool,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let model: Model = arg.open()?;
    let types = model.infer(&InferOptions::new().without_reasons(true));
    let nodes = model.nodes(Some(&types));
    let total = nodes.len();
    let hint = args.hint(&nodes);
    let fitting: Vec<NodeInfo> = nodes.into_iter().filter(|node| args.fits(node)).collect();
    if json {
        let answer = Answer { schema: SCHEMA, model: arg.name(), total, nodes: &fitting };
        return terminal.json(&answer, true);
    }
    terminal.print(&text(&fitting, total))?;
    if let Some(hint) = hint.filter(|_| fitting.is_empty()) {
        terminal.note(&hint);
    }
    Ok(())
}

/// The answer in JSON.
#[derive(Serialize)]
struct Answer<'a> {
    schema: &'static str,
    model: String,
    /// Nodes of the model, with those that are not listed.
    total: usize,
    nodes: &'a [NodeInfo],
}

/// A table for each graph, and how many nodes there are.
fn text(nodes: &[NodeInfo], total: usize) -> String {
    let headings = [
        ("  node", Align::Right),
        ("operator", Align::Left),
        ("name", Align::Left),
        ("inputs", Align::Left),
        ("outputs", Align::Left),
    ];
    let mut text = String::new();
    for graph in nodes.chunk_by(|one, other| one.graph == other.graph) {
        let rows: Vec<[String; 5]> = graph.iter().map(row).collect();
        text += &format!("{}:\n{}", graph[0].graph, columns(&headings, &rows));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let all = count(total, "node");
    text + &if nodes.len() == total {
        format!("{all}\n")
    } else {
        format!("{} of {all}\n", group(nodes.len() as u64))
    }
}

fn row(node: &NodeInfo) -> [String; 5] {
    let values = |values: &[Option<NodeValue>]| {
        let values: Vec<String> = values.iter().map(|value| value_text(value.as_ref())).collect();
        values.join(", ")
    };
    [
        node.index.to_string(),
        qualified(&node.domain, &node.operator),
        node.name.clone(),
        values(&node.inputs),
        values(&node.outputs),
    ]
}

/// Name and type; a dash where an input or output is left out.
fn value_text(value: Option<&NodeValue>) -> String {
    match value {
        None => "-".to_string(),
        Some(NodeValue { name, ty: Some(ty), .. }) => format!("{name}: {ty}"),
        Some(NodeValue { name, .. }) => name.clone(),
    }
}
