//! `sardonyx convert`: converts a model to other operator set versions.

use sardonyx::convert::{Assumption, ConvertOptions, ConvertReport, Target};
use sardonyx::edit::EditError;
use sardonyx::io::Weights;
use sardonyx::tool::{RELEASES, shown_domain};
use sardonyx::{Model, SaveOptions, check};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::format_count;
use crate::inline::format_added_function;
use crate::model_arg::ModelArg;
use crate::operator_name::qualified_name;
use crate::refused::report_refusals;
use crate::session::SizeArgs;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving, set, verify};

/// Convert a model to other operator set versions, exactly
///
/// Every node keeps its meaning, including nodes of functions, subgraphs and training algorithms.
/// If a node has no exact equivalent, nothing is written, all such nodes are listed and the exit
/// code is 1. To convert to another file format (JSON, text), use --form or `sardonyx save`; to
/// change only the declared versions, use `sardonyx set`.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Operator set version to convert to; DOMAIN defaults to ai.onnx. May be repeated
    #[arg(long = "opset", value_name = "[DOMAIN=]VERSION", value_parser = set::parse_opset)]
    opsets: Vec<(String, i64)>,
    /// ONNX release, such as 1.16, whose operator set and IR versions to convert to
    #[arg(long, value_name = "VERSION", value_parser = parse_release)]
    release: Option<Target>,
    /// IR version; by default it is raised to the one released with the operator sets
    #[arg(long, alias = "ir", value_name = "N")]
    ir_version: Option<i64>,
    /// Make an assumption that the model does not guarantee, and list the nodes that need it:
    /// 'default-inputs' (callers never override an input that has a default), 'indices-in-range'
    /// (no index is negative), 'inference' (old Dropout and BatchNormalization run in inference
    /// mode whatever the value of is_test), 'integers-in-floats' (integers that are computed as
    /// floats fit in 53 bits), 'sizes-not-zero' (no shape that a Reshape with allowzero reads has a
    /// 0). May be repeated
    #[arg(long, value_name = "NAME", value_parser = parse_assumption)]
    assume: Vec<Assumption>,
    /// Reject nodes without an equivalent operator instead of replacing them by their function
    /// bodies
    #[arg(long)]
    no_expand: bool,
    /// Run the original and the converted model N times on the same pseudo-random inputs. If the
    /// outputs differ, report the first node whose values differ and write nothing. Bits must be
    /// equal if no node was added; otherwise differences of rounding are allowed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    verify: Option<u64>,
    #[command(flatten)]
    sizes: SizeArgs,
    /// Report what would be done and write nothing
    #[arg(long, conflicts_with_all = ["output", "in_place", "replace", "sync"])]
    dry_run: bool,
}

/// Name and version of the schema of `convert --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.convert/1";

pub(crate) fn convert(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut options = ConvertOptions::new(args.to_target()?);
    for assumption in &args.assume {
        options = options.assume(*assumption);
    }
    if args.no_expand {
        options = options.without_expansion();
    }
    let model = args.model.open()?;
    let target = if args.dry_run { None } else { Some(args.saving.target(&args.model, &model)?) };
    let (mut converted, report) = match model.convert(&options) {
        Ok(converted) => converted,
        Err(EditError::NotConvertible(refusals)) => {
            return args.report_refusals(&model, &refusals, terminal);
        }
        Err(EditError::Invalid(result)) => {
            let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
            let command = command.with_answer(args.make_empty_answer());
            return command.finish(*result, target, terminal);
        }
        Err(error) => return Err(Failure::new(error.to_string()).at(args.model.name())),
    };
    set::note_merged(model.opsets().len(), &converted, terminal);
    let verified = args
        .verify
        .map(|runs| {
            let options = verify::choose_options(&model, &report);
            verify::verify(&model, &converted, options, runs, &args.sizes, terminal)
        })
        .transpose()?;
    let differs = verified.as_ref().is_some_and(|verified| verified.failed.is_some());
    let mut saved = None;
    if let Some(target) = target.filter(|_| !differs) {
        if has_changes(&report) {
            converted.fill_producer();
        }
        let save = SaveOptions::new();
        let weights = Weights::Keep;
        saved = Some(args.saving.save(&args.model, &converted, save, weights, target, terminal)?);
    }
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "converted": report,
            "refusals": [],
            "verified": verified.as_ref().map(verify::to_json),
            "saved": saved.map(|saved| saved.json()),
        });
        terminal.json(&answer, true)?;
    } else {
        let verified = verified.as_ref().map_or(String::new(), verify::format_text);
        let text = as_text(&report) + &verified;
        match saved {
            None if differs => {
                terminal.print(&format!("{text}nothing was written\n"))?;
            }
            None => terminal.print(&text)?,
            Some(saved) => {
                terminal.remark(text.trim_end());
                saved.print(terminal);
            }
        }
    }
    Ok(if differs { Verdict::Findings } else { Verdict::Fine })
}

fn parse_release(text: &str) -> Result<Target, String> {
    Target::new().release(text).ok_or_else(|| {
        let newest = RELEASES.last().map_or("", |release| release.name);
        format!("no such release; releases are 1.0 to {newest}, and their patch releases")
    })
}

fn parse_assumption(text: &str) -> Result<Assumption, String> {
    let found = Assumption::ALL.into_iter().find(|assumption| assumption.name() == text);
    found.ok_or_else(|| {
        let names = Assumption::ALL.map(Assumption::name);
        format!("no such assumption; assumptions are {}", names.join(", "))
    })
}

impl Args {
    /// Combines `--opset`, `--release` and `--ir-version`. Fails if none is given, or if an
    /// operator set has two versions.
    fn to_target(&self) -> Result<Target, Failure> {
        let mut target = self.release.clone().unwrap_or_default();
        for (index, (domain, version)) in self.opsets.iter().enumerate() {
            let domain = shown_domain(domain);
            let mut before = self.opsets[..index].iter();
            if let Some((_, other)) = before.find(|(found, _)| shown_domain(found) == domain) {
                return Err(Failure::new(format!(
                    "two versions are given for the operator set {domain}: {other} and {version}"
                )));
            }
            let version = u32::try_from(*version)
                .map_err(|_| Failure::new(format!("{version} is not an operator set version")))?;
            target = target.opset(domain, version);
        }
        if let Some(version) = self.ir_version {
            target = target.ir_version(version);
        }
        if target.is_empty() {
            return Err(Failure::new("no target version is given")
                .help("give --opset, --release or --ir-version, such as --opset 21"));
        }
        Ok(target)
    }

    /// Reports the nodes that have no equivalent in the target versions.
    fn report_refusals(
        &self,
        model: &Model,
        refusals: &[check::Finding],
        terminal: &Terminal,
    ) -> Result<Verdict, Failure> {
        let name = self.model.name();
        let answer = self.saving.json.then(|| self.make_empty_answer());
        report_refusals(model, &name, refusals, answer, terminal)
    }

    /// Creates the JSON answer of a conversion that produced no model, without refusals.
    fn make_empty_answer(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "model": self.model.name(),
            "converted": null,
            "verified": null,
            "saved": null,
            "refusals": [],
        })
    }
}

/// Whether the conversion changed anything in the model.
fn has_changes(report: &ConvertReport) -> bool {
    let (before, after) = report.ir_version;
    before != Some(after)
        || report.imports.iter().any(|import| import.from != i64::from(import.to))
        || report.operators.iter().any(|op| op.rewritten > 0)
        || report.made + report.removed > 0
}

fn as_text(report: &ConvertReport) -> String {
    let mut text = String::new();
    for import in &report.imports {
        let domain = shown_domain(&import.domain);
        text += &format!("{domain}: {} → {}\n", import.from, import.to);
    }
    let (before, after) = report.ir_version;
    if before != Some(after) {
        let before = before.map_or("nothing".to_string(), |before| before.to_string());
        text += &format!("ir_version: {before} → {after}\n");
    }
    let rewritten: usize = report.operators.iter().map(|op| op.rewritten).sum();
    let others = [
        (report.constants.values().sum(), "replaced by constants"),
        (report.expanded.values().sum(), "replaced by function bodies"),
        (report.removed, "removed"),
    ];
    let others = others.into_iter().filter(|(nodes, _)| *nodes > 0);
    let others: String =
        others.map(|(nodes, what): (usize, _)| format!(", {nodes} {what}")).collect();
    let (unchanged, made) = (format_count(report.unchanged, "node"), report.made);
    text += &format!("{unchanged} unchanged, {rewritten} rewritten{others}, {made} added\n");
    for op in &report.operators {
        text += &format!("rewritten: {} {}\n", op.rewritten, qualified_name(op.domain, op.op));
    }
    for ((domain, name), nodes) in &report.constants {
        text += &format!("replaced by a constant: {nodes} {}\n", qualified_name(domain, name));
    }
    for ((domain, name), nodes) in &report.expanded {
        text +=
            &format!("replaced by its function body: {nodes} {}\n", qualified_name(domain, name));
    }
    for (function, original) in &report.added {
        text += &format!("{}\n", format_added_function(function, original));
    }
    for assumed in &report.assumed {
        text += &format!("assumed {}: {}\n", assumed.assumption.name(), assumed.place);
    }
    text
}
