//! `sardonyx inline`: calls of functions replaced by what the functions do.

use sardonyx::edit::{FunctionId, InlineError, InlineOptions, InlineReport};
use sardonyx::io::Weights;
use sardonyx::{Model, SaveOptions, check};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::count;
use crate::objects::merged;
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, invalid, saving};

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

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.inline/1";

pub(crate) fn inline(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let original = model.clone();
    let report = match model.inline(&args.options()) {
        Ok(report) => report,
        Err(InlineError::Findings(findings)) => {
            if args.saving.json {
                let answer = json!({
                    "schema": SCHEMA,
                    "model": args.model.name(),
                    "refused": findings.iter().map(finding_json).collect::<Vec<_>>(),
                });
                terminal.json(&answer, true)?;
            } else {
                terminal.print(&renderings(&original, &findings, args))?;
            }
            return Ok(Verdict::Findings);
        }
        Err(InlineError::Invalid(result)) => {
            let command = invalid::Command {
                arg: &args.model,
                saving: &args.saving,
                invalid: &args.invalid,
                target: Some(target),
                answer: json!({"schema": SCHEMA, "model": args.model.name()}),
            };
            return command.finish(*result, terminal);
        }
        Err(refusal) => return Err(args.failure(&original, refusal)),
    };
    if is_changed(&report) {
        model.fill_producer();
    }
    let save = SaveOptions::new();
    let saved = args.saving.save(&args.model, &model, save, Weights::Keep, target, terminal)?;
    if args.saving.json {
        let answer = json!({"schema": SCHEMA, "model": args.model.name()});
        let mut answer = merged(answer, json!(report));
        answer["saved"] = saved.json();
        terminal.json(&answer, true)?;
    } else {
        terminal.remark(&(renderings(&original, &report.kept, args) + &as_text(&report)));
        saved.say(terminal);
    }
    Ok(Verdict::Fine)
}

/// Whether the model is another one now.
fn is_changed(report: &InlineReport) -> bool {
    let InlineReport { functions, operators, removed, imported, converted, .. } = report;
    let counts = [functions.len(), operators.len(), removed.len(), imported.len(), converted.len()];
    counts.iter().any(|count| *count > 0)
}

impl Args {
    fn options(&self) -> InlineOptions {
        let mut options =
            InlineOptions::new().limit(self.limit).keep_conflicting(self.keep_conflicting);
        if let Some(only) = &self.only {
            options = options.only(only);
        }
        if let Some(except) = &self.except {
            options = options.except(except);
        }
        if let Some(operators) = &self.operators {
            options = options.operators(operators);
            // Operators alone, unless functions are named as well.
            if self.only.is_none() && self.except.is_none() {
                options = options.only(Vec::<String>::new());
            }
        }
        if self.without_kernel {
            options = options.operators_without_kernel();
        }
        options
    }

    fn failure(&self, model: &Model, refusal: InlineError) -> Failure {
        let failure = Failure::new(refusal.to_string());
        match refusal {
            InlineError::TooLarge { .. } => {
                failure.help("select functions with --only, or raise --limit")
            }
            InlineError::UnknownFunction { similar: Some(similar), .. }
            | InlineError::UnknownOperator { similar: Some(similar), .. } => {
                failure.help(format!("did you mean {similar}?"))
            }
            InlineError::UnknownFunction { .. } => {
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
                    failure.help(format!("use one of its functions: {}", names.join(", ")))
                }
            }
            _ => failure.help("sardonyx ops lists the operators"),
        }
    }
}

fn renderings(model: &Model, findings: &[check::Finding], args: &Args) -> String {
    let renderings = findings.iter();
    renderings.map(|found| check::render(model, found, &args.model.name()) + "\n\n").collect()
}

fn as_text(report: &InlineReport) -> String {
    let mut lines = Vec::new();
    for (function, calls) in &report.functions {
        lines.push(format!("inlined {} of {function}", count(*calls, "call")));
    }
    for ((domain, name), nodes) in &report.operators {
        let domain = crate::info::domain_name(domain);
        lines.push(format!("inlined {} of the operator {domain}.{name}", count(*nodes, "node")));
    }
    if lines.is_empty() {
        lines.push("nothing to inline".to_string());
    }
    for kept in &report.without_body {
        let (domain, nodes) = (crate::info::domain_name(&kept.domain), count(kept.nodes, "node"));
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
    lines.extend(report.added.iter().map(added_text));
    for (domain, version) in &report.imported {
        let domain = crate::info::domain_name(domain);
        lines.push(format!("the model now imports version {version} of {domain}"));
    }
    if !report.removed.is_empty() {
        lines.push(format!("removed {}", count(report.removed.len(), "function")));
    }
    lines.join("\n")
}

/// Says of a function that was added which calls it is for.
pub(crate) fn added_text((function, of): &(FunctionId, FunctionId)) -> String {
    format!("added {function} for calls of {of} that leave out inputs")
}

fn finding_json(found: &check::Finding) -> Value {
    json!({
        "code": found.code.name,
        "place": found.place.path,
        "message": found.fact,
        "advice": found.advice,
    })
}
