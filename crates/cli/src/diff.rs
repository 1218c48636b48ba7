//! `sardonyx diff`: lists the differences between two models and their impact on callers.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sardonyx::Model;
use sardonyx::check::diff::{
    ConstantChange, DiffOptions, FieldChange, GraphDiff, Impact, ImportChange, ModelDiff,
    NodeChange, NodeChangeKind, NodeDetail, PortChange, TensorChange,
};
use sardonyx::tool::{format_version, shown_domain};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{format_count, group_digits};
use crate::model_arg::{Limits, ModelArg};
use crate::objects::merge_objects;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Show the differences between two models
///
/// Nodes are matched by the values that they produce, then by what they compute, then by order, so
/// renamed nodes are renamed, not removed and added. Where tensors are stored and the order of
/// nodes make no difference. The last line names the part of the version (major, minor, patch) to
/// raise for the changes. Exit code 1 means that the models differ.
///
/// To use it in `git diff`, run `git config diff.onnx.command 'sardonyx diff --git'` and add the
/// line `*.onnx diff=onnx` to .gitattributes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX file, binary or text, or - for stdin
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// ONNX file to compare with it
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Further arguments of a diff driver of git
    #[arg(hide = true, requires = "git")]
    rest: Vec<OsString>,
    #[command(flatten)]
    limits: Limits,
    /// Print only the numbers of changes
    #[arg(long)]
    stat: bool,
    /// List all changes, however many
    #[arg(long)]
    all: bool,
    /// Compare only types and shapes of constants, not their values
    #[arg(long)]
    no_values: bool,
    /// Exit with code 1 only if the version has to be raised by at least this part
    #[arg(long, value_enum, default_value_t = FailOn::Any, value_name = "PART")]
    fail_on: FailOn,
    /// Take the arguments that git passes to a diff driver, and exit with code 0
    #[arg(long, conflicts_with_all = ["json", "fail_on"])]
    git: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Smallest part of the model version that has to be raised for exit code 1.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    Any,
    Patch,
    Minor,
    Major,
}

/// Name and version of the schema of `diff --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.diff/1";

/// Maximum number of changes to list without `--all`, for each category such as nodes or constants.
const LISTED: usize = 20;

pub(crate) fn diff(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let options = DiffOptions::new().with_values(!args.no_values);
    if args.git {
        return diff_for_git(args, &options, terminal);
    }
    let open = |path: &PathBuf| ModelArg { path: path.clone(), limits: args.limits.clone() }.open();
    let (before, after) = (open(&args.before)?, open(&args.after)?);
    let diff = before.diff(&after, &options);
    if args.json {
        terminal.json(&as_json(&diff, &args.before, &args.after), true)?;
    } else {
        terminal.print(&as_text(&diff, args.max_listed()))?;
    }
    let is_found = match args.fail_on {
        FailOn::Any => !diff.is_empty(),
        FailOn::Patch => diff.version.impact >= Impact::Patch,
        FailOn::Minor => diff.version.impact >= Impact::Minor,
        FailOn::Major => diff.version.impact >= Impact::Major,
    };
    Ok(if is_found { Verdict::Findings } else { Verdict::Fine })
}

/// Compares the two versions of a file as a diff driver of git. The arguments are the path, the old
/// file with hash and mode, the new file with hash and mode, and for a renamed file the new path
/// and a header.
fn diff_for_git(
    args: &Args,
    options: &DiffOptions,
    terminal: &Terminal,
) -> Result<Verdict, Failure> {
    let [_, _, new, ..] = args.rest.as_slice() else {
        return Err(Failure::new("--git needs the seven arguments of a diff driver of git")
            .help("set diff.onnx.command to 'sardonyx diff --git'; git passes the arguments"));
    };
    let path = args.before.display();
    let open = |path: PathBuf| -> Result<Option<Model>, Failure> {
        // Git passes the null device for the side on which the file does not exist.
        if path.as_os_str() == "/dev/null" || path.as_os_str() == "nul" {
            return Ok(None);
        }
        ModelArg { path, limits: args.limits.clone() }.open().map(Some)
    };
    let text = match (open(args.after.clone())?, open(PathBuf::from(new))?) {
        (Some(before), Some(after)) => as_text(&before.diff(&after, options), args.max_listed()),
        (None, Some(_)) => "new model\n".to_string(),
        (Some(_), None) => "removed model\n".to_string(),
        (None, None) => String::new(),
    };
    terminal.print(&format!("model {path}\n{text}"))?;
    Ok(Verdict::Fine)
}

impl Args {
    /// Returns the maximum number of changes to list in each category.
    fn max_listed(&self) -> usize {
        match (self.stat, self.all) {
            (true, _) => 0,
            (false, true) => usize::MAX,
            (false, false) => LISTED,
        }
    }
}

/// Text of the list of differences, under construction.
struct Text {
    text: String,
    /// Maximum number of changes to list in each category.
    listed: usize,
    /// Whether a list of changes was truncated.
    is_cut: bool,
}

impl Text {
    fn write_line(&mut self, line: impl AsRef<str>) {
        self.text += line.as_ref();
        self.text.push('\n');
    }

    /// Writes the first `listed` changes and the number of further changes.
    fn write_list<T>(&mut self, changes: &[T], mut write: impl FnMut(&mut Text, &T)) {
        for change in changes.iter().take(self.listed) {
            write(self, change);
        }
        let more = changes.len().saturating_sub(self.listed);
        if more > 0 && self.listed > 0 {
            self.write_line(format!("  … and {} more", group_digits(more as u64)));
            self.is_cut = true;
        }
    }

    /// Writes a line `- BEFORE` and a line `+ AFTER`. A text that is `None` gets no line.
    fn write_pair(&mut self, before: Option<&str>, after: Option<&str>) {
        if let Some(before) = before {
            self.write_line(format!("- {before}"));
        }
        if let Some(after) = after {
            self.write_line(format!("+ {after}"));
        }
    }

    /// Writes a line for each changed field of the model or a graph.
    fn write_fields(&mut self, changes: &[FieldChange]) {
        self.write_list(changes, |text, change| {
            text.write_line(format!("  {}", format_field(change)))
        });
    }
}

fn as_text(diff: &ModelDiff, listed: usize) -> String {
    if diff.is_empty() {
        return "no differences\n".to_string();
    }
    let mut text = Text { text: String::new(), listed, is_cut: false };
    if !diff.header.is_empty() {
        text.write_line(format!("header: {} changed", format_count(diff.header.len(), "field")));
        text.write_fields(&diff.header);
    }
    if !diff.imports.is_empty() {
        text.write_line(format!("operator sets: {} changed", diff.imports.len()));
        text.write_list(&diff.imports, |text, change| {
            text.write_line(format!("  {}", format_import(change)))
        });
    }
    if !diff.ports.is_empty() {
        text.write_line(format!("inputs and outputs: {} changed", diff.ports.len()));
        text.write_list(&diff.ports, write_port);
    }
    if !diff.parts.is_empty() {
        text.write_line(format!(
            "functions and training steps: {} added or removed",
            diff.parts.len()
        ));
        text.write_list(&diff.parts, |text, part| {
            text.write_line(format!("{} {}", if part.is_added { '+' } else { '-' }, part.name));
        });
    }
    diff.graphs.iter().for_each(|found| write_graph(&mut text, found));
    let is_cut = text.is_cut;
    text.write_line(describe_version(diff));
    if is_cut {
        text.write_line("(--all lists all changes)");
    }
    text.text
}

/// Writes a changed input or output of the model, with the impact on callers.
fn write_port(text: &mut Text, change: &PortChange) {
    let kind = change.kind.name();
    if let Some(before) = &change.before {
        text.write_line(format!("- {kind} {before}"));
    }
    if let Some(after) = &change.after {
        text.write_line(format!("+ {kind} {after}"));
    }
    let impact = match change.impact {
        Impact::None => "",
        Impact::Patch | Impact::Minor => ": compatible",
        Impact::Major => ": breaking",
    };
    text.write_line(format!("  {}{impact}", change.meaning));
}

/// Writes the changes of a graph: numbers of changed nodes, fields, inputs, nodes and constants.
fn write_graph(text: &mut Text, graph: &GraphDiff) {
    let kinds = NodeChangeKind::ALL.into_iter().map(|kind| (graph.count(kind), kind.name()));
    let mut parts: Vec<String> = kinds
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{} {name}", group_digits(number as u64)))
        .collect();
    if parts.is_empty() {
        parts.push("no node changed".to_string());
    }
    let (before, after) =
        (group_digits(graph.nodes_before as u64), group_digits(graph.nodes_after as u64));
    let nodes = if before == after { after } else { format!("{before} → {after}") };
    text.write_line(format!("{}: {nodes} nodes: {}", graph.place, parts.join(", ")));
    text.write_fields(&graph.fields);
    if !graph.ports.is_empty() {
        text.write_line(format!(
            "inputs and outputs of {}: {} changed",
            graph.place,
            graph.ports.len()
        ));
        text.write_list(&graph.ports, |text, change| {
            text.write_pair(change.before.as_deref(), change.after.as_deref());
        });
    }
    for kind in NodeChangeKind::ALL {
        let changes: Vec<&NodeChange> =
            graph.nodes.iter().filter(|change| change.kind == kind).collect();
        if !changes.is_empty() && text.listed > 0 {
            text.write_line(format!("  {}:", kind.name()));
        }
        text.write_list(&changes, |text, change| write_node(text, change));
    }
    if !graph.outputs.is_empty() && text.listed > 0 {
        text.write_line(format!("  outputs computed by other nodes: {}", graph.outputs.join(", ")));
    }
    if graph.types > 0 {
        text.write_line(format!(
            "  {} of intermediate values changed",
            format_count(graph.types, "declared type")
        ));
    }
    if !graph.constants.is_empty() {
        text.write_line(format!(
            "constants of {}: {}",
            graph.place,
            format_constant_counts(&graph.constants)
        ));
        text.write_list(&graph.constants, write_constant);
    }
}

/// Writes a changed node before and after the change, with its attributes and fields that differ.
fn write_node(text: &mut Text, change: &NodeChange) {
    if change.kind == NodeChangeKind::Annotated {
        text.write_line(format!("  {}", change.place));
    } else {
        text.write_pair(change.before.as_deref(), change.after.as_deref());
    }
    // Renamed nodes, other operators, inputs and outputs show in the two lines above.
    for detail in &change.details {
        match detail {
            NodeDetail::Attribute { name, content, .. } if !content.is_none() => {
                text.write_line(format!("  attribute '{name}': {}", describe_content(content)));
            }
            NodeDetail::Field(field) if field.field != "name" => {
                text.write_line(format!("  {}", format_field(field)));
            }
            _ => {}
        }
    }
}

/// Formats the numbers of changed constants, such as `1 added, 2 changed`.
fn format_constant_counts(changes: &[ConstantChange]) -> String {
    let added = changes.iter().filter(|change| change.before.is_none()).count();
    let removed = changes.iter().filter(|change| change.after.is_none()).count();
    let changed = changes.iter().filter(|change| !change.content.is_none()).count();
    let renamed = changes.len() - added - removed - changed;
    let counts =
        [(added, "added"), (removed, "removed"), (changed, "changed"), (renamed, "renamed")];
    let counts = counts.iter().filter(|(number, _)| *number > 0);
    let counts: Vec<String> =
        counts.map(|(number, what)| format!("{} {what}", group_digits(*number as u64))).collect();
    counts.join(", ")
}

/// Writes a changed constant before and after the change.
fn write_constant(text: &mut Text, change: &ConstantChange) {
    if change.before == change.after {
        let line = change.after.as_deref().unwrap_or_default();
        text.write_line(format!("  {line}: {}", describe_content(&change.content)));
        return;
    }
    text.write_pair(change.before.as_deref(), change.after.as_deref());
    if !change.content.is_none() && change.content != TensorChange::Type {
        text.write_line(format!("  {}", describe_content(&change.content)));
    }
}

/// Describes how the content of two tensors differs.
fn describe_content(content: &TensorChange) -> String {
    match content {
        TensorChange::None => "equal".to_string(),
        TensorChange::Type => "other type or shape".to_string(),
        TensorChange::Values(spread) => {
            let (number, total) =
                (group_digits(spread.count as u64), group_digits(spread.total as u64));
            let mut words = format!("{number} of {total} elements differ");
            if spread.largest.is_finite() {
                let (largest, mean) =
                    (format_difference(spread.largest), format_difference(spread.mean));
                let _ = write!(words, ", by at most {largest}, on average by {mean}");
            }
            words
        }
        TensorChange::Unknown(why) => format!("not compared: {why}"),
        _ => "changed".to_string(),
    }
}

/// Formats a difference with four decimals, or in scientific notation if it is very small or large.
fn format_difference(difference: f64) -> String {
    if !(1e-3..1e6).contains(&difference) {
        return format!("{difference:.3e}");
    }
    let digits = format!("{difference:.4}");
    digits.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Formats a changed field, such as `producer_name: a → b`.
fn format_field(change: &FieldChange) -> String {
    let value = |value: &Option<String>| match value {
        Some(text) if change.field == "model_version" => {
            text.parse().map_or_else(|_| text.clone(), format_version)
        }
        Some(text) => text.clone(),
        None => "(absent)".to_string(),
    };
    format!("{}: {} → {}", change.field, value(&change.before), value(&change.after))
}

/// Formats the changed version of an operator set, such as `ai.onnx: 20 → 21`.
fn format_import(change: &ImportChange) -> String {
    let version = |version: Option<i64>| version.map_or("(absent)".to_string(), |v| v.to_string());
    let (before, after) = (version(change.before), version(change.after));
    format!("{}: {before} → {after}", shown_domain(&change.domain))
}

/// Describes the part of the model version to raise, and whether `model_version` was raised enough.
fn describe_version(diff: &ModelDiff) -> String {
    let version = &diff.version;
    let meaning = match version.impact {
        Impact::None => {
            return "version: results and interface are the same, model_version need not change"
                .to_string();
        }
        Impact::Patch if diff.is_weights_only() => "patch (same interface, only weights differ)",
        Impact::Patch => "patch (same interface)",
        Impact::Minor => "minor (callers need no change)",
        Impact::Major => "major (callers may fail)",
    };
    let (before, after) = (format_version(version.before), format_version(version.after));
    let advice = match version.advised {
        _ if version.is_followed => "as advised".to_string(),
        Some(advised) => format!("advised is {} or more", format_version(advised)),
        None => "but no version is higher".to_string(),
    };
    format!("version: {meaning}; model_version {before} → {after}, {advice}")
}

fn as_json(diff: &ModelDiff, before: &Path, after: &Path) -> Value {
    let models = json!({
        "schema": SCHEMA,
        "before": before.display().to_string(),
        "after": after.display().to_string(),
    });
    merge_objects(models, json!(diff))
}
