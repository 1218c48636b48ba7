//! `sardonyx shard --local`: one model for each rank.

use std::path::{Path, PathBuf};

use sardonyx::edit::InvalidResult;
use sardonyx::io::Weights;
use sardonyx::tool::ModelExt;
use sardonyx::tool::shard::{Collectives, RankOptions};
use sardonyx::{Model, SaveOptions};
use serde_json::{Value, json};

use super::Args;
use crate::devices::NUMBER;
use crate::failure::Failure;
use crate::human::{format_bytes, format_count};
use crate::saving::{Saved, Target};
use crate::session::Sizes;
use crate::terminal::Terminal;

/// Engine whose collective operators are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// AllReduce, AllGather and AllToAll of the domain com.microsoft, of ONNX Runtime
    Microsoft,
    /// DistCollective, of TensorRT
    Tensorrt,
}

impl Engine {
    /// Returns the collective operators of this engine.
    fn to_collectives(self) -> Collectives {
        match self {
            Engine::Microsoft => Collectives::Microsoft,
            Engine::Tensorrt => Collectives::TensorRt,
        }
    }

    /// Returns the engine's name as it is written on the command line.
    fn name(self) -> &'static str {
        match self {
            Engine::Microsoft => "microsoft",
            Engine::Tensorrt => "tensorrt",
        }
    }
}

/// Models that were written for all ranks of a device configuration.
pub(crate) struct WrittenRanks {
    ranks: Vec<Rank>,
    engine: Engine,
    /// Name of the device configuration.
    configuration: String,
    /// Names of the graph outputs of the model.
    outputs: Vec<String>,
    /// Number of annotations that the execution plan does not honor.
    not_honored: usize,
}

/// Model that was written for one rank.
struct Rank {
    saved: Saved,
    /// Size of the constants of the rank, in bytes.
    constants: u64,
    /// Version of the default operator set; `None` if the model does not import it.
    opset: Option<i64>,
}

/// Model of a rank with errors that the unsplit model does not have.
pub(crate) struct Invalid {
    pub(crate) result: InvalidResult,
    /// Destination that the model was to be written to.
    pub(crate) target: Target,
}

/// Writes the models of all ranks of a device configuration; no model if one of them is invalid.
pub(crate) fn write_ranks(
    args: &Args,
    model: &Model,
    configuration: Option<&str>,
    terminal: &Terminal,
) -> Result<Result<WrittenRanks, Invalid>, Failure> {
    let sizes = args.sizes.resolve(model)?;
    let ranks = model.rank_models(&build_options(args, configuration, &sizes))?;
    let mut targets = find_targets(args, model, ranks.count())?;
    // All models are made once before any is written, to find errors. They are made again for
    // writing, because all together may not fit into memory.
    for rank in 0..ranks.count() {
        if let Err(error) = ranks.model(rank) {
            return match error.invalid_result() {
                Some(result) => {
                    let (result, target) = (result.clone(), targets.swap_remove(rank));
                    Ok(Err(Invalid { result, target }))
                }
                None => Err(error.into()),
            };
        }
    }
    // Each rank gets its parts of the constants in files of its own, and does not refer to the data
    // files of the model.
    let weights =
        if model.external_files().is_empty() { Weights::Inside } else { Weights::Outside };
    let mut written = Vec::with_capacity(targets.len());
    for (rank, target) in targets.into_iter().enumerate() {
        let mut own = ranks.model(rank)?;
        own.fill_producer();
        let opset = own.opsets().into_iter().find(|set| set.domain.is_empty());
        let save = SaveOptions::new();
        let saved = args.saving.save(&args.model, &own, save, weights, target, terminal)?;
        let device = u32::try_from(rank).unwrap_or(u32::MAX);
        let constants = ranks.plan().constant_bytes(device);
        written.push(Rank { saved, constants, opset: opset.map(|set| set.version) });
    }
    Ok(Ok(WrittenRanks {
        ranks: written,
        engine: args.collectives,
        configuration: ranks.plan().configuration().to_string(),
        outputs: model.outputs().iter().map(|port| port.name().to_string()).collect(),
        not_honored: ranks.plan().not_honored().len(),
    }))
}

/// Builds the options for splitting a model into ranks.
fn build_options(args: &Args, configuration: Option<&str>, sizes: &Sizes) -> RankOptions {
    let mut options = RankOptions::new(args.collectives.to_collectives());
    if let Some(name) = configuration {
        options = options.configuration(name);
    }
    for (name, size) in &sizes.fixed {
        options = options.dim(name, *size);
    }
    for open in &sizes.open {
        options = options.dim(format!("{}[{}]", open.input, open.axis), open.size);
    }
    options
}

/// Returns the destination of the model of each rank. Fails for several ranks if `--output` has no
/// placeholder for the rank.
fn find_targets(args: &Args, model: &Model, ranks: usize) -> Result<Vec<Target>, Failure> {
    let has_number = args.saving.output().is_some_and(|path| make_rank_path(path, 0) != path);
    if ranks > 1 && !has_number {
        let message = format!("the models of {ranks} ranks need {ranks} files");
        return Err(Failure::new(message)
            .help("give -o FILE with %d for the number of the rank: -o 'rank%d.onnx'"));
    }
    (0..ranks)
        .map(|rank| {
            let path = args.saving.output().map(|path| make_rank_path(path, rank));
            args.saving.target_at(path.as_deref(), &args.model, model)
        })
        .collect()
}

/// Returns `path` with the number of the rank in place of the placeholder `%d`.
fn make_rank_path(path: &Path, rank: usize) -> PathBuf {
    match path.to_str() {
        Some(text) => PathBuf::from(text.replace(NUMBER, &rank.to_string())),
        None => path.to_path_buf(),
    }
}

impl WrittenRanks {
    /// Lists the written models on stderr, with the number of annotations that are not honored.
    pub(crate) fn print(&self, terminal: &Terminal) {
        let WrittenRanks { ranks, engine, configuration, outputs, not_honored } = self;
        terminal.remark(&format!(
            "configuration '{configuration}': {}, collectives of {}; each gives all outputs: {}",
            format_count(ranks.len(), "rank"),
            engine.name(),
            outputs.join(", "),
        ));
        for (number, rank) in ranks.iter().enumerate() {
            rank.saved.print(terminal);
            if rank.constants > 0 {
                let constants = format_bytes(rank.constants);
                terminal.detail(&format!("rank {number} has {constants} of constants"));
            }
        }
        if *not_honored > 0 {
            terminal.note(&format!(
                "{} not honored; `sardonyx explain --devices` lists them with reasons",
                format_count(*not_honored, "annotation")
            ));
        }
    }

    /// Converts the written models to JSON.
    pub(crate) fn json(&self) -> Value {
        let ranks = self.ranks.iter().enumerate();
        let ranks = ranks.map(|(number, rank)| {
            json!({
                "rank": number,
                "opset": rank.opset,
                "constant_bytes": rank.constants,
                "saved": rank.saved.json(),
            })
        });
        json!({
            "configuration": self.configuration,
            "collectives": self.engine.name(),
            "outputs": self.outputs,
            "not_honored": self.not_honored,
            "ranks": ranks.collect::<Vec<_>>(),
        })
    }
}
