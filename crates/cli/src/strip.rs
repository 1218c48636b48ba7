//! `sardonyx strip`: removes parts of a model that do not affect its results.

use sardonyx::SaveOptions;
use sardonyx::edit::{EditError, StripOptions, StripReport};
use sardonyx::io::Weights;
use sardonyx::tool::edits::Edit;
use serde_json::json;

use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Remove parts of a model that do not affect its results
///
/// Reports what was removed. Note that some programs use metadata, such as class names. Only
/// --unused can break rules: that names are defined, and that training information assigns to
/// initializers. These are checked.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Documentation strings
    #[arg(long)]
    docs: bool,
    /// Names of nodes; names of values are kept
    #[arg(long)]
    names: bool,
    /// Metadata of the model, graphs, nodes and values
    #[arg(long)]
    metadata: bool,
    /// Unused initializers
    #[arg(long)]
    unused: bool,
    /// Training information
    #[arg(long)]
    training: bool,
    /// Types of intermediate values, which shape inference can restore
    #[arg(long)]
    types: bool,
    /// All of these
    #[arg(long, conflicts_with_all = ["docs", "names", "metadata", "unused", "training", "types"])]
    all: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.strip/1";

/// Runs `sardonyx strip`: writes a model without the parts that options name.
pub(crate) fn strip(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let options = args.build_options();
    if options == StripOptions::default() {
        return Err(Failure::new("nothing to remove")
            .help("give --docs, --names, --metadata, --unused, --training, --types, or --all"));
    }
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let report = match model.strip(&options) {
        Ok(report) => report,
        Err(EditError::Invalid(result)) => {
            let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
            return command.finish(*result, Some(target), terminal);
        }
        Err(error) => return Err(sardonyx::Error::from(error).into()),
    };
    let save = SaveOptions::new();
    let saved = args.saving.save(&args.model, &model, save, Weights::Keep, target, terminal)?;
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "stripped": report,
            "checked": invalid::describe_checked_rules(&Edit::of_strip(&options)),
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
        return Ok(Verdict::Fine);
    }
    terminal.remark(&as_text(&report));
    saved.print(terminal);
    Ok(Verdict::Fine)
}

impl Args {
    /// Converts the arguments to the parts to remove.
    fn build_options(&self) -> StripOptions {
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

/// Formats the numbers of removed parts by kind.
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
            (number, "text") => format!("{} of documentation", format_count(number, "text")),
            (number, what) => format_count(number, what),
        })
        .collect();
    if parts.is_empty() {
        "nothing to remove".to_string()
    } else {
        format!("removed {}", parts.join(", "))
    }
}
