//! `sardonyx strip`: take out of a model what it does not need to compute the same.

use sardonyx::{SaveOptions, StripOptions, StripReport, Weights};
use serde_json::json;

use crate::failure::Failure;
use crate::human::count;
use crate::terminal::Terminal;
use crate::{ModelArg, saving};

/// Take out what a model does not need to compute the same
///
/// Says how much of what was taken out. Some programs read metadata, for instance names of classes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    /// Documentation of everything
    #[arg(long)]
    docs: bool,
    /// Names of nodes; names of values stay
    #[arg(long)]
    names: bool,
    /// Metadata of everything
    #[arg(long)]
    metadata: bool,
    /// Initializers that nothing reads
    #[arg(long)]
    unused: bool,
    /// Training steps
    #[arg(long)]
    training: bool,
    /// Types of values between inputs and outputs, which inference finds again
    #[arg(long)]
    types: bool,
    /// All of these
    #[arg(long, conflicts_with_all = ["docs", "names", "metadata", "unused", "training", "types"])]
    all: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning
/// gets a new number.
const SCHEMA: &str = "sardonyx.strip/1";

pub(crate) fn strip(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let options = args.options();
    if options == StripOptions::default() {
        return Err(Failure::new("there is nothing to take out").help(
            "say what: --docs, --names, --metadata, --unused, --training, --types, or --all",
        ));
    }
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let report = model.strip(&options);
    let save = SaveOptions::new();
    let saved = args.saving.save(&args.model, &model, save, Weights::Keep, target, terminal)?;
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "stripped": {
                "docs": report.docs,
                "names": report.names,
                "metadata": report.metadata,
                "unused": report.unused_initializers,
                "training": report.training,
                "types": report.inferred_types,
            },
            "saved": saved.json(),
        });
        return terminal.json(&answer, true);
    }
    terminal.remark(&as_text(&report));
    saved.say(terminal);
    Ok(())
}

impl Args {
    fn options(&self) -> StripOptions {
        StripOptions {
            docs: self.docs || self.all,
            names: self.names || self.all,
            metadata: self.metadata || self.all,
            unused_initializers: self.unused || self.all,
            training: self.training || self.all,
            inferred_types: self.types || self.all,
        }
    }
}

fn as_text(report: &StripReport) -> String {
    let parts = [
        (report.docs, "text"),
        (report.names, "name"),
        (report.metadata, "entry of metadata"),
        (report.unused_initializers, "unused initializer"),
        (report.training, "training step"),
        (report.inferred_types, "type"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| match (*number, *what) {
            (2.., "entry of metadata") => format!("{number} entries of metadata"),
            (number, "text") => format!("{} of documentation", count(number, "text")),
            (number, what) => count(number, what),
        })
        .collect();
    if parts.is_empty() {
        "there was nothing to take out".to_string()
    } else {
        format!("took out {}", parts.join(", "))
    }
}
