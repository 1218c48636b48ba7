//! `sardonyx infer`: types and shapes of all values, and the reasons for unknown ones.

use sardonyx::infer::{InferOptions, Inferred, InferredValue};
use sardonyx::io::Weights;
use sardonyx::tool::infer::{Equality, Missing, Naming, Style, TypeCounts, UnknownValue};
use sardonyx::tool::{BriefFinding, Glob, suggest};
use sardonyx::{Model, SaveOptions, Type, check};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{Align, format_columns, format_count};
use crate::model_arg::ModelArg;
use crate::session::note_tolerated;
use crate::terminal::{Each, Terminal};
use crate::verdict::Verdict;
use crate::{saving, symbols};

/// Infer types and shapes of all values, and explain what remains unknown
///
/// Dimensions are numbers, names from the model, or expressions such as 2*N + 5. With --output or
/// --in-place the types are written into the model; nothing else changes, except that a model
/// without a producer gets one.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    symbols: symbols::Args,
    /// List values with their types; with PATTERN only those whose names match
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", value_parser = Glob::parse)]
    show: Option<Glob>,
    /// List what remains unknown, with the first node and the reason, and which dimensions must be
    /// equal or divisible
    #[arg(long)]
    explain: bool,
    /// Write nothing if types or shapes contradict each other
    #[arg(long)]
    strict: bool,
    /// Write only numbers and names as dimensions, no expressions
    #[arg(long, conflicts_with = "like_onnx")]
    no_expressions: bool,
    /// Infer as the onnx package does: unknown dimensions get names such as unk__0, without
    /// expressions
    #[arg(long)]
    like_onnx: bool,
    /// With --like-onnx: propagate the values of shape computations
    #[arg(long, requires = "like_onnx")]
    data_prop: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.infer/1";

/// Runs `sardonyx infer`. Contradictory types are findings if no model is written, or with
/// `--strict`.
pub(crate) fn infer(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut model = args.model.open()?;
    let target =
        if args.saving.is_wanted() { Some(args.saving.target(&args.model, &model)?) } else { None };
    let options = args.build_options(&mut model)?;
    note_tolerated(&model, terminal);
    let found = model.infer(&options);
    let report = found.report(&model);
    let wrong = !report.findings.is_empty();
    let renderings = report.findings.iter();
    let renderings =
        renderings.map(|found| model.render_finding(found, &args.model.name()) + "\n\n");
    let renderings: String = renderings.collect();
    if wrong && args.strict && !args.saving.json {
        terminal.print(&renderings)?;
        return Ok(Verdict::Findings);
    }
    let mut saved = None;
    if let Some(target) = target.filter(|_| !(wrong && args.strict)) {
        model.add_types(&found);
        model.fill_producer();
        let save = SaveOptions::new();
        let written =
            args.saving.save(&args.model, &model, save, Weights::Keep, target, terminal)?;
        if !args.saving.json {
            terminal.remark(&(renderings.clone() + &format_summary(&model, &found)));
            written.print(terminal);
        }
        saved = Some(written);
    }
    // Types that no option shows are not formatted: for a large model, formatting takes several
    // times as long as inference.
    if args.saving.json {
        terminal.json(&args.as_json(&model, &found, &report, saved), true)?;
    } else if args.saving.is_wanted() {
        terminal.print(&args.as_text(&model, &found))?;
    } else {
        terminal.print(&(renderings + &args.as_text(&model, &found)))?;
    }
    if let Some(hint) = args.show.as_ref().and_then(|show| suggest_values(show, &model, &found))
        && !args.saving.json
    {
        terminal.note(&hint);
    }
    // If no model is written, contradictions are the result of the command.
    Ok(if wrong && (args.strict || !args.saving.is_wanted()) {
        Verdict::Findings
    } else {
        Verdict::Fine
    })
}

impl Args {
    /// Builds the options of inference, and sets the sizes of `--set` in `model`.
    fn build_options(&self, model: &mut Model) -> Result<InferOptions, Failure> {
        let mut options = self.symbols.apply(model)?;
        if self.like_onnx {
            options = options
                .naming(Naming::Reference)
                .style(Style::Reference { data_prop: self.data_prop });
        } else if self.no_expressions {
            options = options.naming(Naming::Names);
        }
        Ok(options)
    }

    /// Formats the text answer: the values of `--show`, the reasons of `--explain`, or without both
    /// options a summary.
    fn as_text(&self, model: &Model, found: &Inferred) -> String {
        let mut text = String::new();
        if let Some(pattern) = &self.show {
            text +=
                &format_values(found.values(model).filter(|value| pattern.matches(&value.name)));
        }
        if self.explain {
            text += &format_unknown(model, found);
        }
        if self.show.is_none() && !self.explain && !self.saving.is_wanted() {
            text += &format!("{}\n", format_summary(model, found));
        }
        text
    }

    /// Builds the JSON answer, whose lists are computed while it is serialized.
    fn as_json<'a>(
        &self,
        model: &'a Model,
        found: &'a Inferred,
        report: &'a check::CheckReport,
        saved: Option<saving::Saved>,
    ) -> impl Serialize + 'a {
        Answer {
            schema: SCHEMA,
            model: self.model.name(),
            values: Each(|| found.values(model)),
            unknown: Each(|| found.unknown(model).into_iter().map(unknown_to_json)),
            equal: Each(|| found.equalities(model).into_iter().map(equality_to_json)),
            problems: report.findings.iter().map(BriefFinding::from).collect(),
            saved: saved.map(|saved| saved.json()),
        }
    }
}

/// JSON answer of `sardonyx infer`. Lists are serialized element by element, so that a long list is
/// never in memory as a whole.
#[derive(Serialize)]
struct Answer<'a, Values: Serialize, Unknown: Serialize, Equal: Serialize> {
    schema: &'static str,
    model: String,
    values: Values,
    unknown: Unknown,
    equal: Equal,
    problems: Vec<BriefFinding<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<Value>,
}

/// Returns a hint if no value matches the pattern of `--show`: the outputs of the node with this
/// name, or a value with a similar name. `None` if a value matches.
fn suggest_values(show: &Glob, model: &Model, found: &Inferred) -> Option<String> {
    if found.values(model).any(|value| show.matches(&value.name)) {
        return None;
    }
    let wanted = show.text();
    let nodes = model.nodes(None);
    if let Some(node) = nodes.iter().find(|node| !wanted.is_empty() && node.name == wanted) {
        let outputs = node.outputs.iter().flatten().map(|value| value.name.as_str());
        let outputs: Vec<&str> = outputs.collect();
        return Some(format!(
            "'{wanted}' is a node, not a value; the outputs of the node are: {}",
            outputs.join(", ")
        ));
    }
    let names: Vec<String> = found.values(model).map(|value| value.name).collect();
    let near = suggest::hint(&wanted, names.iter().map(String::as_str));
    Some(format!("no input and no output of a node is called '{wanted}'{near}"))
}

/// Formats the number of values, and the number of values whose types are not fully known.
fn format_summary(model: &Model, found: &Inferred) -> String {
    let TypeCounts { values, open } = found.count_types(model);
    let all = format_count(values, "value");
    match open {
        0 => format!("{all}: the types of all are known"),
        open => {
            format!("{all}: the types of {open} are not fully known; --explain lists the reasons")
        }
    }
}

/// Formats the values of each graph as a table with types and nodes, below the title of the graph.
fn format_values<'a>(values: impl Iterator<Item = InferredValue<'a>>) -> String {
    let mut text = String::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut graph = None;
    for value in values {
        if graph.as_ref() != Some(&value.graph) {
            push_table(&mut text, &mut rows);
            text += &format!("{}:\n", value.graph);
            graph = Some(value.graph);
        }
        let ty = value.ty.map_or("?".to_string(), Type::to_string);
        rows.push(vec![format!("  {}", value.name), ty, value.made_by.into_owned()]);
    }
    push_table(&mut text, &mut rows);
    text
}

/// Appends a table of `rows` to `text`, unless `rows` is empty, and clears it.
fn push_table(text: &mut String, rows: &mut Vec<Vec<String>>) {
    let headings = [("  value", Align::Left), ("type", Align::Left), ("node", Align::Left)];
    if !rows.is_empty() {
        *text += &format_columns(&headings, rows);
        rows.clear();
    }
}

/// Lists the types and dimensions that inference could not determine, with nodes and reasons, and
/// the equalities of dimensions that nodes require.
fn format_unknown(model: &Model, found: &Inferred) -> String {
    let mut text = String::new();
    for unknown in found.unknown(model) {
        let what = match unknown.missing {
            Missing::Type => format!("the type of '{}'", unknown.value),
            Missing::Elem => format!("the element type of '{}'", unknown.value),
            Missing::Rank => format!("the rank of '{}'", unknown.value),
            Missing::Dim(axis) => match &unknown.symbol {
                Some(symbol) => format!("{symbol}, axis {axis} of '{}'", unknown.value),
                None => format!("axis {axis} of '{}'", unknown.value),
            },
        };
        text += &format!("{what}: {}: {}\n", unknown.node, unknown.reason);
    }
    for equality in found.equalities(model) {
        let (left, right) = (&equality.left, &equality.right);
        text += &format!("{left} = {right}: required by {}\n", equality.node);
    }
    if text.is_empty() { "nothing remains unknown\n".to_string() } else { text }
}

/// Converts a type, rank or dimension that inference could not determine to JSON.
fn unknown_to_json(unknown: UnknownValue) -> Value {
    let (what, axis) = match unknown.missing {
        Missing::Type => ("type", None),
        Missing::Elem => ("elem", None),
        Missing::Rank => ("rank", None),
        Missing::Dim(axis) => ("dim", Some(axis)),
    };
    json!({
        "value": unknown.value,
        "what": what,
        "axis": axis,
        "symbol": unknown.symbol,
        "node": unknown.node,
        "reason": unknown.reason,
    })
}

/// Converts an equality of two dimensions that a node requires to JSON.
fn equality_to_json(equality: Equality) -> Value {
    json!({
        "left": equality.left.to_string(),
        "right": equality.right.to_string(),
        "node": equality.node,
    })
}
