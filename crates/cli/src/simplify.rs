//! `sardonyx simplify`: writes a model that computes the same with fewer nodes. `sardonyx slim` and
//! `sardonyx sim` take the arguments of other tools.

use std::collections::BTreeSet;
use std::path::PathBuf;

use sardonyx::check::VerifyOptions;
use sardonyx::edit::{EditError, NearMiss, SimplifyLevel, SimplifyOptions, SimplifyReport};
use sardonyx::io::Weights;
use sardonyx::run::Optimization;
use sardonyx::value::Tolerance;
use sardonyx::{Model, SaveOptions};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{format_bytes, format_count, group_digits, parse_bytes};
use crate::model_arg::ModelArg;
use crate::refused::report_refusals;
use crate::session::SizeArgs;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving, verify};

/// Simplify a model: compute the same with fewer nodes
///
/// Inputs, outputs, operator set versions and metadata stay, and rules work inside subgraphs and
/// functions as well. By default results keep their bits. Each rewrite is run on drawn values,
/// before and after, and left out if the results differ.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    options: Options,
    /// Report what would be done and write nothing
    #[arg(long, conflicts_with_all = ["output", "in_place", "replace", "sync"])]
    dry_run: bool,
}

/// Simplify a model, with the arguments of other tools
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct SlimArgs {
    #[command(flatten)]
    model: ModelArg,
    /// File to write
    #[arg(value_name = "OUTPUT")]
    file: PathBuf,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    options: Options,
}

/// Options of simplification.
#[derive(clap::Args)]
#[group(skip)]
struct Options {
    #[command(flatten)]
    invalid: invalid::Args,
    /// Extent of rewrites: 'exact' keeps the bits of results, 'close' also merges
    /// floating-point operations, so that results change by rounding. slim and sim take 'close'
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,
    /// Bytes by which computed constants may be larger, in all, than those that they replace, 1M
    /// for example [default: a hundredth of the constants, from 16K to 1M]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    grow: Option<u64>,
    /// Leave out a rule, such as 'fold'. May be repeated
    #[arg(long = "without", value_name = "RULE")]
    without: Vec<String>,
    /// Do not run rewritten nodes to compare their results
    #[arg(long)]
    no_local_verification: bool,
    /// Also run the whole model before and after N times on the same pseudo-random inputs. If the
    /// outputs differ, report the first node whose values differ and write nothing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    verify: Option<u64>,
    #[command(flatten)]
    sizes: SizeArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    Exact,
    Close,
}

impl Level {
    fn to_level(self) -> SimplifyLevel {
        match self {
            Level::Exact => SimplifyLevel::Exact,
            Level::Close => SimplifyLevel::Close,
        }
    }
}

/// Name and version of the schema of `simplify --json`. The version rises when the meaning of a key
/// changes, not when a key is added.
const SCHEMA: &str = "sardonyx.simplify/1";

/// A simplification to be done.
struct Job<'a> {
    arg: &'a ModelArg,
    saving: &'a saving::Args,
    options: &'a Options,
    level: SimplifyLevel,
}

/// Runs `sardonyx simplify`.
pub(crate) fn simplify(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = if args.dry_run { None } else { Some(args.saving.target(&args.model, &model)?) };
    let level = args.options.level.map_or(SimplifyLevel::Exact, Level::to_level);
    let (arg, saving, options) = (&args.model, &args.saving, &args.options);
    Job { arg, saving, options, level }.run(&model, target, terminal)
}

/// Runs `sardonyx slim` and `sardonyx sim`.
pub(crate) fn slim(args: &SlimArgs, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target_at(Some(&args.file), &args.model, &model)?;
    let level = args.options.level.map_or(SimplifyLevel::Close, Level::to_level);
    let (arg, saving, options) = (&args.model, &args.saving, &args.options);
    Job { arg, saving, options, level }.run(&model, Some(target), terminal)
}

impl Job<'_> {
    fn build_options(&self) -> SimplifyOptions {
        let mut options = SimplifyOptions::new().level(self.level);
        if let Some(bytes) = self.options.grow {
            options = options.grow(bytes);
        }
        for rule in &self.options.without {
            options = options.without_rule(rule);
        }
        if self.options.no_local_verification {
            options = options.without_verification();
        }
        options
    }

    /// Returns the options of `--verify`: at level `exact`, bits must be equal if the engine
    /// rewrites nothing.
    fn choose_verify_options(&self) -> VerifyOptions<'static> {
        let options = VerifyOptions::new().optimization(Optimization::Off);
        match self.level {
            SimplifyLevel::Exact => options.tolerance(Tolerance::EXACT),
            _ => options,
        }
    }

    fn run(
        &self,
        model: &Model,
        target: Option<saving::Target>,
        terminal: &Terminal,
    ) -> Result<Verdict, Failure> {
        let name = self.arg.name();
        let empty = json!({
            "schema": SCHEMA,
            "model": name,
            "simplified": null,
            "verified": null,
            "saved": null,
            "refusals": [],
        });
        let (simplified, report) = match model.simplify(&self.build_options()) {
            Ok(simplified) => simplified,
            Err(EditError::NotSimplifiable(refusals)) => {
                let answer = self.saving.json.then_some(empty);
                return report_refusals(model, &name, &refusals, answer, terminal);
            }
            Err(EditError::Invalid(result)) => {
                let invalid = &self.options.invalid;
                let command =
                    invalid.make_command(self.arg, self.saving, SCHEMA).with_answer(empty);
                return command.finish(*result, target, terminal);
            }
            // The options are wrong, not the model.
            Err(error @ EditError::Option(_)) => return Err(Failure::new(error.to_string())),
            Err(error) => return Err(Failure::new(error.to_string()).at(name)),
        };
        let options = self.choose_verify_options();
        let (runs, sizes) = (self.options.verify, &self.options.sizes);
        let verified =
            runs.map(|runs| verify::verify(model, &simplified, options, runs, sizes, terminal));
        let verified = verified.transpose()?;
        let differs = verified.as_ref().is_some_and(|verified| verified.failed.is_some());
        let mut saved = None;
        if let Some(target) = target.filter(|_| !differs) {
            let save = SaveOptions::new();
            let keep = Weights::Keep;
            saved = Some(self.saving.save(self.arg, &simplified, save, keep, target, terminal)?);
        }
        if self.saving.json {
            let mut answer = empty;
            answer["simplified"] = json!(report);
            answer["verified"] = verified.as_ref().map_or(Value::Null, verify::to_json);
            answer["saved"] = json!(saved.map(|saved| saved.json()));
            terminal.json(&answer, true)?;
        } else {
            let verified = verified.as_ref().map_or(String::new(), verify::format_text);
            let text = as_text(&report) + &verified;
            match saved {
                None if differs => terminal.print(&format!("{text}nothing was written\n"))?,
                None => terminal.print(&text)?,
                Some(saved) => {
                    terminal.remark(text.trim_end());
                    saved.print(terminal);
                }
            }
        }
        Ok(if differs { Verdict::Findings } else { Verdict::Fine })
    }
}

/// Formats the report: sizes, operators whose numbers changed, rules, near misses.
fn as_text(report: &SimplifyReport) -> String {
    let (before, after) = (&report.before, &report.after);
    if report.is_unchanged() && report.near.is_empty() && report.rejected.is_empty() {
        let nodes = format_count(before.nodes, "node");
        let bytes = format_bytes(before.constant_bytes);
        return format!("nothing to simplify in {nodes} and {bytes} of constants\n");
    }
    let mut text = format!(
        "{} → {}, {} → {} of constants\n",
        group_digits(before.nodes as u64),
        format_count(after.nodes, "node"),
        format_bytes(before.constant_bytes),
        format_bytes(after.constant_bytes)
    );
    let names = before.operators.keys().chain(after.operators.keys());
    for name in names.collect::<BTreeSet<&String>>() {
        let [before, after] =
            [before, after].map(|tally| tally.operators.get(name).copied().unwrap_or(0));
        if before != after {
            let [before, after] = [before, after].map(|count| group_digits(count as u64));
            text += &format!("{name}: {before} → {after}\n");
        }
    }
    for (rule, found) in &report.rules {
        let place = match &found.places[..] {
            [] => String::new(),
            [one] => format!(": {one}"),
            [first, ..] => format!(": {first}, …"),
        };
        text += &format!("{rule}: {}{place}\n", format_count(found.count, "rewrite"));
    }
    for rejected in &report.rejected {
        text += &format!(
            "left out: {} at {}, whose results differ: {}\n",
            rejected.rule, rejected.place, rejected.why
        );
    }
    let mut near: Vec<(&NearMiss, usize)> = Vec::new();
    for found in &report.near {
        match near.iter_mut().find(|(one, _)| one.rule == found.rule && one.why == found.why) {
            Some((_, more)) => *more += 1,
            None => near.push((found, 0)),
        }
    }
    for (one, more) in near {
        let others = if more == 0 { String::new() } else { format!(" and {more} more") };
        text += &format!("near: {} at {}{others}: {}\n", one.rule, one.place, one.why);
    }
    if report.more_near > 0 {
        text += &format!("near: {} more\n", report.more_near);
    }
    if report.unverified > 0 {
        let unverified = group_digits(report.unverified as u64);
        let all = format_count(report.verified + report.unverified, "rewrite");
        text += &format!("not verified by themselves: {unverified} of {all}\n");
    }
    text
}
