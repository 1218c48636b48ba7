//! `sardonyx embed`: vectors of texts.

use std::path::PathBuf;

use sardonyx::Tensor;
use sardonyx_generate::{EmbedOptions, Embedder};
use serde_json::json;

use crate::arrays::{self, Content, Format, SUFFIXES};
use crate::failure::Failure;
use crate::generate::LoadArgs;
use crate::saving;
use crate::stopping::StopArgs;
use crate::terminal::Terminal;
use crate::texts::TextArgs;

/// Convert texts to vectors with an encoder of a directory, as it lies on a hub
///
/// Pooling and normalization are those of 1_Pooling/config.json and modules.json. The vectors are
/// printed as JSON, one on a line, or written to a file.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    texts: TextArgs,
    /// File for the vectors: .npy, .npz, .pb, .safetensors, .txt or .csv
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Prompt of the directory to put in front of each text, such as query
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// Text to put in front of each text
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    prompt: Option<String>,
    /// Give vectors the length 1
    #[arg(long, conflicts_with = "no_normalize")]
    normalize: bool,
    /// Leave vectors as the pooling gives them
    #[arg(long)]
    no_normalize: bool,
    /// Keep the first N elements of the vectors; by default all
    #[arg(long, value_name = "N")]
    truncate_dim: Option<usize>,
    /// Maximum number of tokens of a text, longer ones are cut; by default that of the model
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
    /// Maximum number of texts of a run
    #[arg(long, value_name = "N", default_value_t = 32)]
    batch_size: usize,
    #[command(flatten)]
    stop: StopArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.embed/1";

/// Runs `sardonyx embed`.
pub(crate) fn embed(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut load = args.load.to_options();
    load.max_length = args.max_length;
    let embedder = Embedder::open_with(&args.load.directory, &load)?;
    let texts = args.texts.read()?;
    let mut options = EmbedOptions::default();
    options.prompt.clone_from(&args.prompt);
    options.prompt_name.clone_from(&args.prompt_name);
    options.normalize = match (args.normalize, args.no_normalize) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    options.truncate_dim = args.truncate_dim;
    options.batch_size = args.batch_size;
    options.stop = args.stop.to_run_options().stop;
    let vectors = embedder.embed(&texts, &options)?;
    let size = vectors.first().map_or(0, Vec::len);
    if let Some(path) = &args.output {
        let Some(format) = Format::from_path(path) else {
            return Err(Failure::new(format!("'{}' is not {SUFFIXES}", path.display())));
        };
        let flat: Vec<f32> = vectors.iter().flatten().copied().collect();
        let tensor = Tensor::from_vec([vectors.len(), size], flat)
            .map_err(|error| Failure::new(error.to_string()))?;
        let tensors = vec![("embeddings".to_string(), tensor)];
        let content = Content { tensors, ..Content::default() };
        arrays::write(&saving::parse_target(path)?, format, &content, terminal)?;
    }
    if args.json {
        let mut answer = json!({
            "schema": SCHEMA,
            "texts": texts.len(),
            "dimensions": size,
            "pooling": embedder.pooling().name(),
            "output": args.output.as_ref().map(|path| path.display().to_string()),
        });
        if args.output.is_none() {
            answer["vectors"] = json!(vectors);
        }
        return terminal.json(&answer, false);
    }
    if args.output.is_none() {
        for vector in &vectors {
            terminal.json(vector, false)?;
        }
    }
    Ok(())
}
