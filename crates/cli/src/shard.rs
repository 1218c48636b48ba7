//! `sardonyx shard`: annotations for running a model on several devices, or one model for each
//! device.

mod local;

use sardonyx::device::{Division, ShardOptions, ShardReport};
use sardonyx::io::Weights;
use sardonyx::tool::ModelExt;
use sardonyx::{Model, SaveOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::human::{format_count, group_digits};
use crate::model_arg::ModelArg;
use crate::session::SizeArgs;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Annotate a model for several devices: split its matrix products, its stages or its examples
///
/// The model gets a device configuration (IR version 11), and nodes say for it how their tensors
/// are split over the devices. Annotations never change results; `sardonyx run --devices` uses
/// them, and `sardonyx explain --devices` shows the resulting plan. Calls of functions are inlined
/// first.
///
/// With --local, one model is written for each device, a rank: ordinary nodes on parts, constants
/// cut, and collectives of another engine where ranks exchange values. All ranks take all inputs
/// and give all outputs. `sardonyx run 'rank%d.onnx' --processes N` runs them together.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Number of devices, at least 2. With --local it may be left out: the annotations of the model
    /// are used then
    #[arg(long, value_name = "N", required_unless_present = "local", value_parser = clap::value_parser!(u64).range(2..=1024))]
    devices: Option<u64>,
    /// Split products with constant matrices of at least 4096 elements over all devices: by
    /// columns, and by rows where a later product reads the parts; heads of attention go with them.
    /// Tables of at least 1048576 elements are split by rows. This is the default
    #[arg(long, requires = "devices")]
    tensor: bool,
    /// Divide the nodes into one pipeline stage for each device, with about equal work
    #[arg(long, requires = "devices", conflicts_with = "tensor")]
    pipeline: bool,
    /// Divide the examples of a batch: split the first axis of the first input, and of all inputs
    /// whose first axis has the same size, into one part for each device. Each device has all
    /// weights; in training, their gradients are summed over the devices
    #[arg(long, requires = "devices", conflicts_with_all = ["tensor", "pipeline"])]
    batch: bool,
    /// Name of the configuration; by default tensor-N, pipeline-N or batch-N
    #[arg(long, value_name = "NAME", requires = "devices")]
    name: Option<String>,
    /// Write one model for each device, with fixed sizes: %d in FILE stands for the number of the
    /// device, from 0
    #[arg(long, conflicts_with = "in_place")]
    local: bool,
    /// Name of the configuration whose annotations --local uses; by default the only one of the
    /// model
    #[arg(long, value_name = "NAME", requires = "local", conflicts_with = "devices")]
    configuration: Option<String>,
    /// Collectives that --local writes. The standard has none
    #[arg(long, value_enum, value_name = "ENGINE", default_value_t = local::Engine::Microsoft, requires = "local")]
    collectives: local::Engine,
    #[command(flatten)]
    sizes: SizeArgs,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.shard/1";

/// Runs `sardonyx shard`: annotates a model for several devices, or writes a model for each device.
pub(crate) fn shard(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
    let Some(devices) = args.devices else {
        let written = local::write_ranks(args, &model, args.configuration.as_deref(), terminal)?;
        let written = match written {
            Ok(written) => written,
            Err(local::Invalid { result, target }) => {
                return command.finish(result, Some(target), terminal);
            }
        };
        if args.saving.json {
            let answer = json!({
                "schema": SCHEMA,
                "model": args.model.name(),
                "local": written.json(),
            });
            terminal.json(&answer, true)?;
            return Ok(Verdict::Fine);
        }
        written.print(terminal);
        return Ok(Verdict::Fine);
    };
    let target = (!args.local).then(|| args.saving.target(&args.model, &model)).transpose()?;
    let devices = usize::try_from(devices).unwrap_or(usize::MAX);
    let division = args.choose_division();
    let mut options = ShardOptions::new(division, devices);
    if let Some(name) = &args.name {
        options = options.configuration(name);
    }
    let name = options.name();
    for (name, size) in args.sizes.resolve(&model)?.fixed {
        options = options.dim(name, size);
    }
    if model.device_configurations().iter().any(|known| known.name == name) {
        let message = format!("the model has a configuration '{name}' already");
        return Err(
            Failure::new(message).help("give the new configuration another name: --name NAME")
        );
    }
    let (mut annotated, report) = match model.shard(&options) {
        Ok(annotated) => annotated,
        Err(error) => {
            return match error.invalid_result() {
                Some(result) => command.finish(result.clone(), target, terminal),
                None => Err(error.into()),
            };
        }
    };
    annotated.fill_producer();
    let (mut saved, mut local) = (None, None);
    match target {
        Some(target) => {
            let save = SaveOptions::new();
            let arg = &args.model;
            let weights = Weights::Keep;
            saved = Some(args.saving.save(arg, &annotated, save, weights, target, terminal)?);
        }
        None => match local::write_ranks(args, &annotated, Some(&name), terminal)? {
            Ok(written) => local = Some(written),
            Err(local::Invalid { result, target }) => {
                return command.finish(result, Some(target), terminal);
            }
        },
    }
    if args.saving.json {
        let mut answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "configuration": name,
            "devices": devices,
            "report": report,
            "nothing_split": explain_not_split(&model, &report, division),
        });
        if let Some(saved) = saved {
            answer["saved"] = saved.json();
        }
        if let Some(local) = local {
            answer["local"] = local.json();
        }
        terminal.json(&answer, true)?;
        return Ok(Verdict::Fine);
    }
    terminal.remark(&as_text(&name, &report, division));
    if let Some(why) = explain_not_split(&model, &report, division) {
        terminal.note(&format!("the model is not divided: {why}"));
    }
    if report.inside > 0 && division != Division::Pipeline {
        let nodes = format_count(report.inside, "node");
        terminal.note(&format!(
            "{nodes} with multiply-adds in graphs of If, Loop or Scan are not divided; only nodes of the main graph are"
        ));
    }
    saved.iter().for_each(|saved| saved.print(terminal));
    local.iter().for_each(|local| local.print(terminal));
    Ok(Verdict::Fine)
}

impl Args {
    /// Returns how the options divide the model: by tensors, pipeline stages or examples.
    fn choose_division(&self) -> Division {
        match (self.pipeline, self.batch) {
            (true, _) => Division::Pipeline,
            (_, true) => Division::Batch,
            _ => Division::Tensor,
        }
    }
}

/// Returns the reason why no part of the model is divided over the devices, with options to use
/// instead; `None` if a part is divided.
fn explain_not_split(model: &Model, report: &ShardReport, division: Division) -> Option<String> {
    let instead = match division {
        Division::Tensor => "use --batch to divide the examples, or --pipeline the nodes",
        Division::Pipeline => "use --batch to divide the examples",
        Division::Batch => "use --tensor or --pipeline",
    };
    model.explain_undivided(report, division).map(|why| format!("{why}; {instead}"))
}

/// Formats the report on a device configuration: the numbers of tensors or examples that are split,
/// or the work of each stage.
fn as_text(name: &str, report: &ShardReport, division: Division) -> String {
    let ShardReport { columns, rows, whole, tables, stages, inputs, .. } = report;
    let what = match division {
        Division::Tensor => {
            let products = format!(
                "{} split by columns, {rows} by rows, {whole} not split",
                format_count(*columns, "product"),
            );
            match tables {
                0 => products,
                _ => format!("{products}; {} split by rows", format_count(*tables, "table")),
            }
        }
        Division::Pipeline => {
            let stages: Vec<String> = stages.iter().map(|work| group_digits(*work)).collect();
            format!("multiply-adds by stage: {}", stages.join(", "))
        }
        Division::Batch => format!("{} split along the first axis", format_count(*inputs, "input")),
    };
    format!("configuration '{name}': {what}")
}
