//! `sardonyx inline`: function calls, replaced by the bodies of the functions.

use sardonyx::edit::{EditError, FunctionId, InlineOptions, InlineReport};
use sardonyx::io::Weights;
use sardonyx::tool::{BriefFinding, shown_domain};
use sardonyx::{Model, SaveOptions, check};
use serde_json::json;

use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::objects::merge_objects;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Replace function calls by the bodies of the functions
///
/// Functions that are no longer called are removed. NAME is domain.name for all overloads, or
/// domain.name:overload; * matches any characters. The domain ai.onnx may be omitted.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Inline only these functions of the model
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "except")]
    only: Option<Vec<String>>,
    /// Inline all functions of the model except these
    #[arg(long, value_name = "NAME", num_args = 1..)]
    except: Option<Vec<String>>,
    /// Inline these operators of the standard, if the standard defines them as functions. Functions
    /// of the model are then inlined only with --only or --except
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "without_kernel")]
    operators: Option<Vec<String>>,
    /// Also inline such operators for which `sardonyx run` has no kernel
    #[arg(long)]
    without_kernel: bool,
    /// Keep calls that cannot be inlined and report why; by default nothing is written then
    #[arg(long)]
    keep_conflicting: bool,
    /// Maximum number of nodes to create
    #[arg(long, value_name = "NODES", default_value_t = 10_000_000)]
    limit: u64,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.inline/1";

/// Runs `sardonyx inline`. Calls that cannot be inlined are findings, and then no model is written.
pub(crate) fn inline(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let original = model.clone();
    let report = match model.inline(&args.build_options()) {
        Ok(report) => report,
        Err(EditError::NotInlinable(findings)) => {
            if args.saving.json {
                let answer = json!({
                    "schema": SCHEMA,
                    "model": args.model.name(),
                    "refused": findings.iter().map(BriefFinding::from).collect::<Vec<_>>(),
                });
                terminal.json(&answer, true)?;
            } else {
                terminal.print(&render_findings(&original, &findings, args))?;
            }
            return Ok(Verdict::Findings);
        }
        Err(EditError::Invalid(result)) => {
            let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
            return command.finish(*result, Some(target), terminal);
        }
        Err(refusal) => return Err(args.explain_refusal(&original, refusal)),
    };
    if is_changed(&report) {
        model.fill_producer();
    }
    let save = SaveOptions::new();
    let saved = args.saving.save(&args.model, &model, save, Weights::Keep, target, terminal)?;
    if args.saving.json {
        let answer = json!({"schema": SCHEMA, "model": args.model.name()});
        let mut answer = merge_objects(answer, json!(report));
        answer["saved"] = saved.json();
        terminal.json(&answer, true)?;
    } else {
        terminal.remark(&(render_findings(&original, &report.kept, args) + &as_text(&report)));
        saved.print(terminal);
    }
    Ok(Verdict::Fine)
}

/// Whether inlining changed the model.
fn is_changed(report: &InlineReport) -> bool {
    let InlineReport { functions, operators, removed, imported, converted, .. } = report;
    let counts = [functions.len(), operators.len(), removed.len(), imported.len(), converted.len()];
    counts.iter().any(|count| *count > 0)
}

impl Args {
    /// Builds the options of inlining from the arguments.
    fn build_options(&self) -> InlineOptions {
        let mut options =
            InlineOptions::new().limit(self.limit).keep_conflicting(self.keep_conflicting);
        if let Some(only) = &self.only {
            options = options.functions(only);
        }
        if let Some(except) = &self.except {
            options = options.functions_except(except);
        }
        if let Some(operators) = &self.operators {
            options = options.operators(operators);
            // With --operators, functions of the model are inlined only if they are named.
            if self.only.is_none() && self.except.is_none() {
                options = options.functions(Vec::<String>::new());
            }
        }
        if self.without_kernel {
            options = options.operators_without_kernel();
        }
        options
    }

    /// Converts an error of inlining to a failure with advice.
    fn explain_refusal(&self, model: &Model, refusal: EditError) -> Failure {
        let failure = Failure::new(refusal.to_string());
        match refusal {
            EditError::TooLarge { .. } => {
                failure.help("select functions with --only, or raise --limit")
            }
            EditError::UnknownFunction { similar: Some(similar), .. }
            | EditError::UnknownOperator { similar: Some(similar), .. } => {
                failure.help(format!("did you mean {similar}?"))
            }
            EditError::UnknownFunction { .. } => {
                const SHOWN: usize = 10;
                let functions = model.functions();
                let names = functions.into_iter().take(SHOWN).map(|function| {
                    let (domain, name, overload) =
                        (function.domain, function.name, function.overload);
                    FunctionId { domain, name, overload }.to_string()
                });
                let names: Vec<String> = names.collect();
                if names.is_empty() {
                    failure.help("the model has no functions")
                } else {
                    failure.help(format!("use one of the model's functions: {}", names.join(", ")))
                }
            }
            _ => failure.help("sardonyx ops lists the operators"),
        }
    }
}

/// Formats findings as text, each followed by a blank line.
fn render_findings(model: &Model, findings: &[check::Finding], args: &Args) -> String {
    let renderings = findings.iter();
    renderings.map(|found| model.render_finding(found, &args.model.name()) + "\n\n").collect()
}

/// Formats the report: inlined calls, nodes that stay, and functions that were added or removed.
fn as_text(report: &InlineReport) -> String {
    let mut lines = Vec::new();
    for (function, calls) in &report.functions {
        lines.push(format!("inlined {} of {function}", format_count(*calls, "call")));
    }
    for ((domain, name), nodes) in &report.operators {
        let domain = shown_domain(domain);
        lines.push(format!(
            "inlined {} of the operator {domain}.{name}",
            format_count(*nodes, "node")
        ));
    }
    if lines.is_empty() {
        lines.push("nothing to inline".to_string());
    }
    for kept in &report.without_body {
        let (domain, nodes) = (shown_domain(&kept.domain), format_count(kept.nodes, "node"));
        let stay = if kept.nodes == 1 { "stays" } else { "stay" };
        let first = if kept.nodes == 1 { "" } else { "the first is " };
        lines.push(format!(
            "{nodes} of the operator {domain}.{} {stay}: {} ({first}{})",
            kept.name, kept.why, kept.first
        ));
    }
    for function in &report.converted {
        lines.push(format!("converted {function} to the operator set versions of its callers"));
    }
    lines.extend(
        report.added.iter().map(|(function, original)| format_added_function(function, original)),
    );
    for (domain, version) in &report.imported {
        let domain = shown_domain(domain);
        lines.push(format!("the model now imports version {version} of {domain}"));
    }
    if !report.removed.is_empty() {
        lines.push(format!("removed {}", format_count(report.removed.len(), "function")));
    }
    lines.join("\n")
}

/// Formats the note that `function` was added for calls of `original` that leave out inputs.
pub(crate) fn format_added_function(function: &FunctionId, original: &FunctionId) -> String {
    format!("added {function} for calls of {original} that leave out inputs")
}
