//! `sardonyx extract`: a part of a model as a model of its own, with data to test it.

use std::io::Write;
use std::path::{Path, PathBuf};

use sardonyx::edit::{EditError, ExtractOptions, ExtractReport};
use sardonyx::io::{Weights, write_value};
use sardonyx::{ErrorKind, Model, Outputs, RunOptions, SaveOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::files::{self, Protected};
use crate::human::{format_count, group_digits};
use crate::inputs::{self, gather_or_fill_all};
use crate::invalid;
use crate::model_arg::ModelArg;
use crate::saving::{self, Target};
use crate::session::SessionArgs;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Make a model of a part of a model
///
/// The part has the nodes between two sets of values, with the constants, functions, imports and
/// annotations that they need. Values are inputs, results of nodes or constants, by name or by
/// pattern such as '*layer.3*'. What the part reads beyond --from becomes a further input. NODE is
/// the name of a node, the name of one of its outputs, or its position in the main graph.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Values at which the part begins, which become its inputs; by default the inputs of the
    /// model. A pattern matches inputs and results, or if there are none, constants; those that the
    /// part does not read are left out
    #[arg(long, value_name = "VALUE", num_args = 1..)]
    from: Vec<String>,
    /// Values at which the part ends, which become its outputs; by default the outputs of the model
    /// that are computed from --from. A pattern matches results
    #[arg(long, value_name = "VALUE", num_args = 1..)]
    to: Vec<String>,
    /// Extract a node and its neighborhood
    #[arg(long, value_name = "NODE", conflicts_with_all = ["from", "to"])]
    node: Option<String>,
    /// With --node: how many edges before and after the node
    #[arg(long, value_name = "N", default_value_t = 0, requires = "node")]
    depth: usize,
    /// Extract the graph in a node, such as the body of a Loop, or the body of the function that it
    /// calls. Captured values become inputs, captured constants constants
    #[arg(long, value_name = "NODE")]
    inside: Option<String>,
    /// With --inside: the graph, if the node has several, by the name of its attribute, such as
    /// then_branch, or by its own name
    #[arg(long, value_name = "NAME", requires = "inside")]
    graph: Option<String>,
    /// Run the model once and store inputs and outputs of the part as a test case, in
    /// test\_data\_set\_0 beside FILE. Inputs that are not given are filled as by --random 0. If
    /// the part is in a graph of a node, the part itself is run, and the inputs are those of the
    /// part
    #[arg(long)]
    with_data: bool,
    #[command(flatten)]
    inputs: inputs::Args,
    #[command(flatten)]
    session: SessionArgs,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.extract/1";

/// Directory of the stored inputs and outputs, beside the model.
const DATA: &str = "test_data_set_0";

/// Runs `sardonyx extract`.
pub(crate) fn extract(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let data = args.find_data_directory(&target)?;
    let (mut part, report) = match model.extract(&args.build_options()) {
        Ok(extracted) => extracted,
        Err(EditError::Invalid(result)) => {
            let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
            return command.finish(*result, Some(target), terminal);
        }
        Err(refusal) => return Err(explain_refusal(refusal)),
    };
    part.fill_producer();
    let values = match &data {
        Some(_) => Some(args.run_part(&part, &report, terminal)?),
        None => None,
    };
    let save = SaveOptions::new();
    let saved = args.saving.save(&args.model, &part, save, Weights::Keep, target, terminal)?;
    if let Some((directory, values)) = data.as_ref().zip(values) {
        let protected = saving::protect_inputs(&args.model, &model, &values.files);
        values.write(directory, &protected)?;
    }
    if args.saving.json {
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "extracted": report,
            "data": data.map(|directory| directory.display().to_string()),
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
        return Ok(Verdict::Fine);
    }
    terminal.remark(&as_text(&report));
    saved.print(terminal);
    if let Some(directory) = data {
        terminal.remark(&format!("wrote {}", directory.display()));
    }
    Ok(Verdict::Fine)
}

impl Args {
    /// Builds the options of the extraction from the arguments.
    fn build_options(&self) -> ExtractOptions {
        let mut options = ExtractOptions::new().from(&self.from).to(&self.to);
        if let Some(node) = &self.node {
            options = options.node(node, self.depth);
        }
        if let Some(node) = &self.inside {
            options = options.body_of(node);
        }
        if let Some(graph) = &self.graph {
            options = options.graph(graph);
        }
        options
    }

    /// Returns the directory for the data of the part; `None` without `--with-data`.
    fn find_data_directory(&self, target: &Target) -> Result<Option<PathBuf>, Failure> {
        match target {
            _ if !self.with_data && self.inputs.is_given() => {
                Err(Failure::new("inputs are given, but the model is not run")
                    .help("give --with-data, which stores inputs and outputs of the part"))
            }
            _ if !self.with_data => Ok(None),
            Target::Stdout => Err(Failure::new("--with-data writes files beside the model")
                .help("give --output FILE")),
            Target::File(path) => {
                let directory = path.with_file_name(DATA);
                let mut entries = std::fs::read_dir(&directory).into_iter().flatten();
                if entries.next().is_some() && !self.saving.replaces_data() {
                    let message =
                        format!("'{}' has files of another test case", directory.display());
                    return Err(Failure::new(message)
                        .help("write the part to another directory, or give --replace"));
                }
                Ok(Some(directory))
            }
        }
    }

    /// Runs the model, or the part if it is in a graph of a node, and returns the values of the
    /// part's inputs and outputs.
    fn run_part(
        &self,
        part: &Model,
        report: &ExtractReport,
        terminal: &Terminal,
    ) -> Result<PartValues, Failure> {
        let names: Vec<&str> =
            report.inputs.iter().chain(&report.outputs).map(String::as_str).collect();
        let (opened, is_whole) =
            self.session.open_changed(&self.model, &|builder| builder, terminal, |model| {
                match model.with_outputs(names.iter().copied()) {
                    Ok(model) => Ok((model, true)),
                    Err(error) if error.kind() == ErrorKind::Output => {
                        let inputs = report.inputs.iter().map(String::as_str);
                        Ok((part.with_outputs(inputs)?, false))
                    }
                    Err(error) => Err(error.into()),
                }
            })?;
        if !is_whole {
            terminal.note("the part is in a graph of a node: the part itself is run");
        }
        let inputs = gather_or_fill_all(&self.inputs, &opened, terminal)?;
        let outputs = opened.session.run(inputs.named_values(), &RunOptions::default())?;
        Ok(PartValues { report: report.clone(), outputs, files: inputs.files })
    }
}

/// Values of the inputs and outputs of a part.
struct PartValues {
    report: ExtractReport,
    /// Outputs of a run that has these values among its outputs.
    outputs: Outputs,
    /// Files that the inputs of the run were read from.
    files: Vec<PathBuf>,
}

impl PartValues {
    /// Writes the values as `input_0.pb`, `output_0.pb` and so on.
    fn write(&self, directory: &Path, protected: &Protected) -> Result<(), Failure> {
        std::fs::create_dir_all(directory)
            .map_err(|error| files::io_failure("cannot create", directory, &error))?;
        // Values of another part, of which there may be more.
        for kind in ["input", "output"] {
            for path in (0..).map(|index| directory.join(format!("{kind}_{index}.pb"))) {
                if !path.is_file() {
                    break;
                }
                protected.check(&path)?;
                std::fs::remove_file(&path)
                    .map_err(|error| files::io_failure("cannot remove", &path, &error))?;
            }
        }
        for (kind, names) in [("input", &self.report.inputs), ("output", &self.report.outputs)] {
            for (index, name) in names.iter().enumerate() {
                let path = directory.join(format!("{kind}_{index}.pb"));
                protected.check(&path)?;
                let value = self.outputs.get(name).ok_or_else(|| {
                    Failure::new(format!("the run has no value for the {kind} '{name}'"))
                })?;
                let bytes = write_value(value, name)?;
                files::write(&path, |file| Ok(file.write_all(&bytes)?))?;
            }
        }
        Ok(())
    }
}

/// Converts an error of the extraction to a failure with advice.
fn explain_refusal(refusal: EditError) -> Failure {
    let failure = Failure::new(refusal.to_string());
    match refusal {
        EditError::UnknownValue { similar: Some(similar), .. } => {
            failure.help(format!("did you mean '{similar}'?"))
        }
        EditError::UnknownValue { .. } => {
            failure.help("`sardonyx info --nodes` lists nodes and values")
        }
        EditError::NotExtractable(_) => {
            failure.help("cut at other values, or declare the types of these values in the model")
        }
        _ => failure,
    }
}

/// Formats the sizes and the interface of the part.
fn as_text(report: &ExtractReport) -> String {
    let ExtractReport { nodes_before, constants_before, functions_before, .. } = report;
    let mut parts = vec![format!(
        "extracted {} of {}",
        group_digits(report.nodes as u64),
        format_count(*nodes_before, "node")
    )];
    if *constants_before > 0 {
        let kept = group_digits(report.constants as u64);
        parts.push(format!("{kept} of {}", format_count(*constants_before, "constant")));
    }
    if report.captured > 0 {
        parts.push(format_count(report.captured, "captured constant"));
    }
    if *functions_before > 0 {
        let kept = group_digits(report.functions as u64);
        parts.push(format!("{kept} of {}", format_count(*functions_before, "function")));
    }
    let mut lines = vec![parts.join(", ")];
    lines.push(format!("from {} to {}", list_names(&report.inputs), list_names(&report.outputs)));
    if report.nodes == 0 && !report.inputs.is_empty() {
        lines.push("no node lies between them".to_string());
    }
    if !report.added.is_empty() {
        lines.push(format!("inputs beyond the selected values: {}", list_names(&report.added)));
    }
    if !report.shapeless.is_empty() {
        lines.push(format!("declared without a shape: {}", list_names(&report.shapeless)));
    }
    lines.join("\n")
}

/// Formats the first names, and the number of further ones.
fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 8;
    if names.is_empty() {
        return "nothing".to_string();
    }
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
