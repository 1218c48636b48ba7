//! `sardonyx features`: which features of the library a program needs to run models.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sardonyx::io::ModelFormat;
use sardonyx::ops::RequiredFeature;
use sardonyx::{Model, OpenOptions};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::{format_count, to_one_line};
use crate::model_arg::Limits;
use crate::terminal::Terminal;

/// List the features of the Rust library that programs need to run models
///
/// A program that depends on the crate sardonyx with these features alone leaves the code of other
/// operators and formats out. Functions of the models are looked into; models are not run and
/// weights are not read.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// ONNX files, binary or text, or - for stdin
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.features/1";

/// Number of operators that the text names for a feature.
const SHOWN_OPERATORS: usize = 4;

/// Feature that a model needs, and why.
struct Need {
    feature: &'static str,
    reason: Reason,
}

/// Reason why a model needs a feature.
enum Reason {
    /// Operators of the model.
    Operators(Vec<String>),
    /// The format of the file.
    Format(ModelFormat),
    /// Training steps of the model.
    TrainingSteps(usize),
}

/// Prints the features that each model needs, and the dependency for all of them. Models that fail
/// are reported, and the others are still looked into.
pub(crate) fn features(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut text = String::new();
    let mut models = Vec::new();
    let mut all = BTreeSet::new();
    let mut failures = Vec::new();
    for path in &args.models {
        let name = path.display().to_string();
        match args.limits.load(path, OpenOptions::new()) {
            Ok(loaded) => {
                let needs = find_needs(path, &loaded.model);
                all.extend(needs.iter().map(|need| need.feature));
                text += &render_model(&name, &needs);
                let needs: Vec<Value> = needs.iter().map(Need::as_json).collect();
                models.push(json!({"model": name, "features": needs}));
            }
            Err(failure) => {
                models.push(json!({"model": name, "failure": failure.json()}));
                failures.push(failure);
            }
        }
    }
    let dependency = render_dependency(&all);
    if args.json {
        let answer = json!({
            "schema": SCHEMA, "models": models, "features": all, "dependency": dependency,
        });
        terminal.json(&answer, true)?;
    } else {
        terminal.print(&format!("{text}\nCargo.toml:\n{dependency}\n"))?;
    }
    let last = failures.pop();
    for failure in &failures {
        terminal.print_failure(failure);
    }
    last.map_or(Ok(()), Err)
}

/// Lists the features that a model needs to be opened, run and trained, sorted by name.
fn find_needs(path: &Path, model: &Model) -> Vec<Need> {
    let operators = model.required_features().into_iter();
    let mut needs: Vec<Need> = operators
        .map(|RequiredFeature { feature, operators, .. }| Need {
            feature,
            reason: Reason::Operators(operators),
        })
        .collect();
    let format = ModelFormat::from_path(path).unwrap_or_default();
    let feature = match format {
        ModelFormat::Json => Some("json"),
        ModelFormat::TextFormat => Some("textproto"),
        // Functions of operators are in ONNX text, so every program reads that.
        _ => None,
    };
    needs.extend(feature.map(|feature| Need { feature, reason: Reason::Format(format) }));
    let steps = model.training_steps();
    if steps > 0 && needs.iter().all(|need| need.feature != "training") {
        needs.push(Need { feature: "training", reason: Reason::TrainingSteps(steps) });
    }
    needs.sort_by_key(|need| need.feature);
    needs
}

impl Need {
    fn as_text(&self) -> String {
        let reason = match &self.reason {
            Reason::Operators(operators) => list_operators(operators),
            Reason::Format(format) => format!("the file is in {format}"),
            Reason::TrainingSteps(steps) => format_count(*steps, "training step"),
        };
        format!("{}: {reason}", self.feature)
    }

    fn as_json(&self) -> Value {
        let mut form = json!({"feature": self.feature});
        match &self.reason {
            Reason::Operators(operators) => form["operators"] = json!(operators),
            Reason::Format(format) => form["format"] = json!(format.to_string()),
            Reason::TrainingSteps(steps) => form["training_steps"] = json!(steps),
        }
        form
    }
}

/// Lists the first operators; names of functions are from the file.
fn list_operators(operators: &[String]) -> String {
    let shown = operators.iter().take(SHOWN_OPERATORS).map(|name| to_one_line(name));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    let more = operators.len().saturating_sub(SHOWN_OPERATORS);
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

fn render_model(name: &str, needs: &[Need]) -> String {
    if needs.is_empty() {
        return format!("{name}: no feature\n");
    }
    let needs = needs.iter().map(|need| format!("  {}\n", need.as_text()));
    format!("{name}:\n{}", needs.collect::<String>())
}

/// Renders the line of a manifest that depends on the library with some features.
fn render_dependency(features: &BTreeSet<&'static str>) -> String {
    let features: Vec<String> = features.iter().map(|feature| format!("{feature:?}")).collect();
    let features = match &features[..] {
        [] => String::new(),
        features => format!(", features = [{}]", features.join(", ")),
    };
    let version = env!("CARGO_PKG_VERSION");
    format!("sardonyx = {{ version = \"{version}\", default-features = false{features} }}")
}
