//! `sardonyx cost`: counts parameters, multiply-adds and memory of a model without running it.

use std::borrow::Cow;
use std::cmp::Reverse;

use sardonyx::tool::ModelExt;
use sardonyx::tool::cost::{ASSUMED_SIZE, Cost, NodeCost, Sum, Work, at_assumed_sizes};
use sardonyx::{Dim, Error};
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::human::{Align, format_bytes, format_columns, format_count, group_digits};
use crate::model_arg::ModelArg;
use crate::symbols;
use crate::terminal::Terminal;

/// Count parameters, multiply-adds and memory of activations
///
/// Does not run the model or read weights. Results are numbers, or formulas over the symbolic
/// dimensions of the model; --set replaces these by numbers. Multiply-adds are counted for matrix
/// products, convolutions and operators made of them; for other operators the number of output
/// elements is listed.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    symbols: symbols::Args,
    /// Count the training step of this entry of the training information, from 0, instead of the
    /// main graph: the loss, its gradients and the optimizer. State variables are parameters
    #[arg(long, value_name = "ENTRY")]
    training_step: Option<usize>,
    /// Summarize by operator
    #[arg(long)]
    by_operator: bool,
    /// Show only the N entries with most multiply-adds; by default all
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Print comma-separated values, without totals
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Name and version of the schema of `cost --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.cost/1";

/// Name of the main graph, which tables leave out.
const MAIN: &str = "graph";

/// Row of the table of costs: a node, or the sum over all nodes of an operator.
struct Row<'a> {
    graph: &'a str,
    name: &'a str,
    operator: Cow<'a, str>,
    /// Number of nodes that the row sums up; `None` for a single node.
    nodes: Option<usize>,
    /// Number of times that the node runs in one run of the model.
    runs: &'a Dim,
    work: Cow<'a, Work>,
}

pub(crate) fn cost(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut model = args.model.open()?;
    if let Some(entry) = args.training_step {
        model = model.training_step_with_state(entry)?;
    }
    let options = args.symbols.apply(&mut model)?;
    let cost = model.cost(&options);
    // A training step that cannot be counted leaves the counts of inference valid, so its error
    // is listed. CSV has no rows for training steps.
    let entries = if args.csv { 0 } else { model.training_entries().len() };
    let training: Vec<(usize, Result<Cost, Error>)> = (0..entries)
        .map(|entry| (entry, model.training_step_with_state(entry).map(|step| step.cost(&options))))
        .collect();
    let mut rows: Vec<Row<'_>> = if args.by_operator {
        cost.sum_by_operator()
            .into_iter()
            .map(|(operator, nodes, work)| Row::from_operator(operator, nodes, work))
            .collect()
    } else {
        cost.nodes.iter().map(Row::from).collect()
    };
    if let Some(top) = args.top {
        // The sort is stable: rows of equal cost stay in the order of the file.
        rows.sort_by_cached_key(|row| Reverse(row.sort_key()));
        rows.truncate(top);
    }
    match (args.json, args.csv) {
        (true, _) => terminal.json(&as_json(args, &cost, &rows, &training), true),
        (_, true) => terminal.print(&as_csv(&rows)),
        _ => {
            let steps = training.iter().map(|(entry, step)| format_training_line(*entry, step));
            terminal.print(
                &(format_table(&rows) + "\n" + &format_summary(&cost) + &steps.collect::<String>()),
            )
        }
    }
}

impl<'a> From<&'a NodeCost> for Row<'a> {
    fn from(node: &'a NodeCost) -> Row<'a> {
        Row {
            graph: &node.graph,
            name: &node.name,
            operator: node.full_operator(),
            nodes: None,
            runs: &node.runs,
            work: Cow::Borrowed(&node.work),
        }
    }
}

impl Row<'_> {
    /// Creates the row that sums up all nodes of an operator.
    fn from_operator(operator: String, nodes: usize, work: Work) -> Self {
        Row {
            graph: MAIN,
            name: "",
            operator: operator.into(),
            nodes: Some(nodes),
            runs: &Dim::Known(1),
            work: Cow::Owned(work),
        }
    }

    /// Returns the sort key of `--top`: multiply-adds over all runs of the node, then bytes. A
    /// symbolic dimension is taken to be [`ASSUMED_SIZE`].
    fn sort_key(&self) -> (i64, i64) {
        let size = |sum: &Sum| at_assumed_sizes(&sum.times(self.runs).known);
        (size(&self.work.multiply_adds), size(&self.work.bytes))
    }
}

/// Lists the sums of a row or a total, each with its name in CSV and JSON.
fn list_sums(work: &Work) -> [(&'static str, &Sum); 5] {
    [
        ("parameters", &work.parameters),
        ("parameter_bytes", &work.parameter_bytes),
        ("multiply_adds", &work.multiply_adds),
        ("elements", &work.elements),
        ("bytes", &work.bytes),
    ]
}

/// Formats a sum as a number or a formula. If some of its terms are unknown, puts `least` in front;
/// if all are, returns `None`.
fn format_sum(sum: &Sum, least: &str, number: fn(u64) -> String) -> Option<String> {
    let least = if sum.missing > 0 { least } else { "" };
    match &sum.known {
        Dim::Known(0) if sum.missing > 0 => None,
        Dim::Unknown => None,
        Dim::Known(known) => {
            let known = u64::try_from(*known).ok()?;
            Some(format!("{least}{}", number(known)))
        }
        formula => Some(format!("{least}{formula}")),
    }
}

/// Formats rows as a table with headings.
fn format_table(rows: &[Row<'_>]) -> String {
    use Align::{Left, Right};
    let headings = [
        ("node", Left),
        ("operator", Left),
        ("nodes", Right),
        ("runs", Right),
        ("parameters", Right),
        ("multiply-adds", Right),
        ("elements", Right),
        ("bytes", Right),
        ("in", Left),
    ];
    let cell = |sum: &Sum| format_sum(sum, "≥ ", group_digits).unwrap_or("?".to_string());
    let cells = rows.iter().map(|row| {
        let nodes = row.nodes.map(|nodes| group_digits(nodes as u64));
        let runs = match row.runs {
            Dim::Known(1) => String::new(),
            runs => cell(&runs.clone().into()),
        };
        let inner = if row.graph == MAIN { "" } else { row.graph };
        [
            row.name.into(),
            Cow::Borrowed(&*row.operator),
            nodes.unwrap_or_default().into(),
            runs.into(),
            cell(&row.work.parameters).into(),
            cell(&row.work.multiply_adds).into(),
            cell(&row.work.elements).into(),
            cell(&row.work.bytes).into(),
            inner.into(),
        ]
    });
    format_columns(&headings, &cells.collect::<Vec<[Cow<'_, str>; 9]>>())
}

/// Formats the totals, the peak of memory, and the numbers of nodes that could not be counted.
fn format_summary(cost: &Cost) -> String {
    let total = &cost.total;
    let mut text = String::new();
    let mut line = |name: &str, rest: String| text += &format!("{name:<13}  {rest}\n");
    let size = format_byte_sum(&total.parameter_bytes);
    line("parameters", format!("{}, {size}", format_total(&total.parameters)));
    line("multiply-adds", format_total(&total.multiply_adds));
    line("elements", format_total(&total.elements));
    line("activations", format_byte_sum(&total.bytes));
    let at = cost.peak_at.as_ref().map(|node| format!(" at {node}"));
    line("peak", format_byte_sum(&cost.peak) + &at.unwrap_or_default());
    if matches!(cost.peak.known, Dim::Expr(_)) {
        text += &format!(
            "the peak is at the node with the largest memory if every symbolic dimension is {ASSUMED_SIZE}\n"
        );
    }
    let missing = [
        (total.multiply_adds.missing, "node", "the multiply-adds"),
        (total.bytes.missing, "output", "the bytes of activations"),
        (cost.peak.missing, "activation", "the peak of memory"),
    ];
    for (missing, what, of) in missing.into_iter().filter(|(missing, ..)| *missing > 0) {
        let missing = format_count(missing, what);
        text += &format!("not counted in {of}: {missing} of unknown size\n");
    }
    if cost.bodies_counted_once > 0 {
        let bodies = format_count(cost.bodies_counted_once, "node");
        text += &format!(
            "the number of iterations of {bodies} is unknown: subgraphs are counted once\n"
        );
    }
    text
}

/// Summarizes the cost of a training step in one line, or the reason why it is unknown.
fn format_training_line(entry: usize, step: &Result<Cost, Error>) -> String {
    match step {
        Ok(step) => format!(
            "training step {entry}: {} multiply-adds, parameters and state {}, peak {}; \
             --training-step {entry} lists its nodes\n",
            format_total(&step.total.multiply_adds),
            format_byte_sum(&step.total.parameter_bytes),
            format_byte_sum(&step.peak),
        ),
        Err(error) => format!("training step {entry} is not counted: {error}\n"),
    }
}

/// Formats a total, such as `at least 1,024`, or `unknown`.
fn format_total(sum: &Sum) -> String {
    format_sum(sum, "at least ", group_digits).unwrap_or("unknown".to_string())
}

/// Formats a sum of bytes exactly, and from 1,000 bytes on also rounded, as in
/// `4,096 bytes (4.1 kB)`.
fn format_byte_sum(sum: &Sum) -> String {
    let rounded = match sum.known.size() {
        Some(size @ 1000..) => format!(" ({})", format_bytes(size as u64)),
        _ => String::new(),
    };
    let exact = format_sum(sum, "at least ", group_digits);
    exact.map_or("unknown".to_string(), |exact| format!("{exact} bytes{rounded}"))
}

fn as_csv(rows: &[Row<'_>]) -> String {
    let names = list_sums(&Work::default()).map(|(name, _)| name).join(",");
    let is_summed_up = rows.iter().any(|row| row.nodes.is_some());
    let mut text = if is_summed_up {
        format!("operator,nodes,{names}\n")
    } else {
        format!("graph,node,operator,runs,{names}\n")
    };
    for row in rows {
        let mut cells = match row.nodes {
            Some(nodes) => vec![format_csv_cell(&row.operator), nodes.to_string()],
            None => vec![
                format_csv_cell(row.graph),
                format_csv_cell(row.name),
                format_csv_cell(&row.operator),
                format_csv_cell(&row.runs.to_string()),
            ],
        };
        let sums = list_sums(&row.work);
        let sums = sums.map(|(_, sum)| format_sum(sum, ">=", |number| number.to_string()));
        cells.extend(sums.map(|sum| format_csv_cell(&sum.unwrap_or_default())));
        text += &(cells.join(",") + "\n");
    }
    text
}

/// Formats a CSV cell: quotes text that contains a comma, a quote or a line break (RFC 4180).
fn format_csv_cell(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_string()
    }
}

fn as_json(
    args: &Args,
    cost: &Cost,
    rows: &[Row<'_>],
    training: &[(usize, Result<Cost, Error>)],
) -> Value {
    let key = if args.by_operator { "operators" } else { "nodes" };
    let steps = training.iter().map(|(entry, step)| match step {
        Ok(cost) => json!({
            "entry": entry,
            "total": total_to_json(cost),
            "bodies_counted_once": cost.bodies_counted_once,
        }),
        Err(error) => json!({"entry": entry, "error": error.to_string()}),
    });
    json!({
        "schema": SCHEMA,
        "model": args.model.name(),
        "training_step": args.training_step,
        key: rows.iter().map(row_to_json).collect::<Vec<_>>(),
        "total": total_to_json(cost),
        "bodies_counted_once": cost.bodies_counted_once,
        "training": steps.collect::<Vec<_>>(),
        "assumed_size": ASSUMED_SIZE,
    })
}

/// Converts the sum over all nodes and the peak of memory to JSON.
fn total_to_json(cost: &Cost) -> Map<String, Value> {
    let mut total = work_to_json(&cost.total);
    total.insert("peak".to_string(), json!(cost.peak.known));
    total.insert("peak_at".to_string(), json!(cost.peak_at));
    total.insert("peak_missing".to_string(), json!(cost.peak.missing));
    total
}

fn row_to_json(row: &Row<'_>) -> Value {
    let mut answer = work_to_json(&row.work);
    answer.insert("operator".to_string(), json!(row.operator));
    match row.nodes {
        Some(nodes) => {
            answer.insert("nodes".to_string(), json!(nodes));
        }
        None => {
            answer.insert("graph".to_string(), json!(row.graph));
            answer.insert("name".to_string(), json!(row.name));
            answer.insert("runs".to_string(), json!(row.runs));
        }
    }
    Value::Object(answer)
}

/// Converts the known parts of sums to JSON. The key `missing` holds the number of unknown terms of
/// each sum that has any.
fn work_to_json(work: &Work) -> Map<String, Value> {
    let mut answer = Map::new();
    let mut missing = Map::new();
    for (name, sum) in list_sums(work) {
        answer.insert(name.to_string(), json!(sum.known));
        if sum.missing > 0 {
            missing.insert(name.to_string(), json!(sum.missing));
        }
    }
    answer.insert("missing".to_string(), Value::Object(missing));
    answer
}

#[cfg(test)]
mod tests {
    use super::format_csv_cell;

    #[test]
    fn cells_with_commas_are_quoted() {
        let rows = [("a b", "a b"), ("floor(N, 2)", "\"floor(N, 2)\""), ("a\"b", "\"a\"\"b\"")];
        for (cell, expected) in rows {
            assert_eq!(format_csv_cell(cell), expected);
        }
    }
}
