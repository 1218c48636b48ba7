//! [`Embedder`]: texts to vectors, with the pooling of `1_Pooling/config.json`.

use std::collections::BTreeMap;
use std::path::Path;

use sardonyx::{Port, StopFlag, Type};

use crate::config::Config;
use crate::encoder::{BATCH_SIZE, BatchOptions, BatchOutput, Encoder};
use crate::error::Error;
use crate::files::{Files, Object};
use crate::loading::LoadOptions;

/// Model that converts texts to vectors.
///
/// ```no_run
/// use sardonyx_generate::{EmbedOptions, Embedder};
///
/// let embedder = Embedder::open("all-MiniLM-L6-v2")?;
/// let vectors = embedder.embed(&["a cat", "a dog"], &EmbedOptions::default())?;
/// assert_eq!(vectors.len(), 2);
/// # Ok::<(), sardonyx_generate::Error>(())
/// ```
#[derive(Debug)]
pub struct Embedder {
    encoder: Encoder,
    output: String,
    pooling: Pooling,
    normalize: bool,
    prompts: BTreeMap<String, String>,
    default_prompt: Option<String>,
    lower_case: bool,
}

/// Combination of the vectors of a text's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// Mean of all tokens.
    Mean,
    /// First token.
    Cls,
    /// Last token.
    LastToken,
    /// Maximum of all tokens.
    Max,
    /// Sum of all tokens, divided by the square root of their number.
    MeanSqrtLen,
    /// Mean of all tokens, weighted by their positions from 1.
    WeightedMean,
    /// The model's output is a vector of the text already.
    Model,
}

impl Pooling {
    /// Returns the stable name of the pooling, such as `last-token`.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::LastToken => "last-token",
            Pooling::Max => "max",
            Pooling::MeanSqrtLen => "mean-sqrt-len",
            Pooling::WeightedMean => "weighted-mean",
            Pooling::Model => "model",
        }
    }
}

/// Options of embedding texts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbedOptions {
    /// Name of the prompt of the directory to put in front of each text, such as `query`; `None`
    /// takes the directory's default.
    pub prompt_name: Option<String>,
    /// Text to put in front of each text, in place of a prompt of the directory.
    pub prompt: Option<String>,
    /// Whether vectors have the length 1; `None` follows the directory.
    pub normalize: Option<bool>,
    /// Number of elements of the vectors; `None` takes all. Cut vectors are shortened before they
    /// are normalized.
    pub truncate_dim: Option<usize>,
    /// Maximum number of texts of a run of the model.
    pub batch_size: usize,
    /// Flag that cancels the call.
    pub stop: Option<StopFlag>,
}

impl Default for EmbedOptions {
    fn default() -> EmbedOptions {
        EmbedOptions {
            prompt_name: None,
            prompt: None,
            normalize: None,
            truncate_dim: None,
            batch_size: BATCH_SIZE,
            stop: None,
        }
    }
}

/// Types of decoders whose embeddings are the vector of the last token.
const LAST_TOKEN_TYPES: [&str; 4] = ["qwen2", "qwen3", "mistral", "llama"];

/// Keys of `1_Pooling/config.json`.
const POOLING_KEYS: [(&str, Pooling); 6] = [
    ("pooling_mode_cls_token", Pooling::Cls),
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("pooling_mode_lasttoken", Pooling::LastToken),
];

impl Embedder {
    /// Opens the encoder in a directory.
    ///
    /// # Errors
    ///
    /// If files are missing or contradict each other.
    pub fn open(directory: impl AsRef<Path>) -> Result<Embedder, Error> {
        Embedder::open_with(directory, &LoadOptions::default())
    }

    /// Opens the encoder in a directory, with options such as the file of a variant.
    ///
    /// # Errors
    ///
    /// Those of [`Embedder::open`].
    pub fn open_with(directory: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, Error> {
        let files = Files::open(directory.as_ref())?;
        let config = Config::read(&files)?;
        let encoder = Encoder::open(&files, &config, options)?;
        let output = choose_output(encoder.outputs())
            .map_err(|error| error.at(&files.root().join(&encoder.file)))?;
        let modules = read_modules(&files)?;
        let pooling = if output.is_pooled {
            Pooling::Model
        } else {
            if modules.iter().any(|module| module.ends_with("Dense")) {
                return Err(Error::refusal("has a dense layer after the pooling")
                    .at(&files.root().join("modules.json"))
                    .with_help(
                        "export the whole model, so that it has an output `sentence_embedding`",
                    ));
            }
            read_pooling(&files, &config)?
        };
        let normalize = modules.iter().any(|module| module.ends_with("Normalize"));
        let mut prompts = BTreeMap::new();
        let mut default_prompt = None;
        if let Some(object) = files.read_json("config_sentence_transformers.json")? {
            for (name, text) in object.object("prompts")?.value {
                if let Some(text) = text.as_str() {
                    prompts.insert(name, text.to_string());
                }
            }
            default_prompt = object.text("default_prompt_name")?.map(str::to_string);
        }
        let lower_case = match files.read_json("sentence_bert_config.json")? {
            Some(object) => object.flag("do_lower_case")?.unwrap_or(false),
            None => false,
        };
        let output = output.name;
        Ok(Embedder { encoder, output, pooling, normalize, prompts, default_prompt, lower_case })
    }

    /// Returns how the vectors of a text's tokens are combined.
    pub fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Whether vectors have the length 1, unless the options set it.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Returns the maximum number of tokens of a text, if there is a limit. Longer texts are cut.
    pub fn max_length(&self) -> Option<usize> {
        self.encoder.max_length
    }

    /// Returns the prompts of the directory by name, such as `query`.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        &self.prompts
    }

    /// Converts texts to vectors, in the order of the texts.
    ///
    /// # Errors
    ///
    /// If the directory has no prompt of the name, or a run fails.
    pub fn embed(
        &self,
        texts: &[impl AsRef<str>],
        options: &EmbedOptions,
    ) -> Result<Vec<Vec<f32>>, Error> {
        let prompt = self.choose_prompt(options)?;
        let mut tokens = Vec::with_capacity(texts.len());
        for text in texts {
            let mut text = format!("{prompt}{}", text.as_ref());
            if self.lower_case {
                text = text.to_lowercase();
            }
            tokens.push(self.encoder.tokenizer.encode(&text, true)?);
        }
        let mut vectors = vec![Vec::new(); texts.len()];
        let batches = BatchOptions { batch_size: options.batch_size, stop: options.stop.clone() };
        let mut take = |index: usize, output: &BatchOutput, row: usize| {
            let mut vector = self.pool(output, row, tokens[index].ids.len())?;
            if let Some(size) = options.truncate_dim {
                if size == 0 || size > vector.len() {
                    let message =
                        format!("`truncate_dim`: expected 1 to {}, found {size}", vector.len());
                    return Err(Error::argument(message));
                }
                vector.truncate(size);
            }
            if options.normalize.unwrap_or(self.normalize) {
                normalize(&mut vector);
            }
            vectors[index] = vector;
            Ok(())
        };
        self.encoder.run_batches(&tokens, &self.output, &batches, &mut take)?;
        Ok(vectors)
    }

    /// Returns the text to put in front of each text.
    fn choose_prompt<'a>(&'a self, options: &'a EmbedOptions) -> Result<&'a str, Error> {
        if let Some(prompt) = &options.prompt {
            return Ok(prompt);
        }
        let Some(name) = options.prompt_name.as_ref().or(self.default_prompt.as_ref()) else {
            return Ok("");
        };
        self.prompts.get(name).map(String::as_str).ok_or_else(|| {
            let known: Vec<&str> = self.prompts.keys().map(String::as_str).collect();
            let help = match known.as_slice() {
                [] => "the directory has no prompts".to_string(),
                known => format!("its prompts are: {}", known.join(", ")),
            };
            Error::argument(format!("`prompt_name`: unknown prompt `{name}`")).with_help(help)
        })
    }

    /// Combines the vectors of the first `count` positions of a text.
    fn pool(&self, output: &BatchOutput, row: usize, count: usize) -> Result<Vec<f32>, Error> {
        if self.pooling == Pooling::Model || !output.has_positions() {
            return Ok(output.features(row).to_vec());
        }
        let count = count.max(1);
        match self.pooling {
            Pooling::Cls => return Ok(output.position(row, 0)?.to_vec()),
            Pooling::LastToken => return Ok(output.position(row, count - 1)?.to_vec()),
            _ => {}
        }
        let is_max = self.pooling == Pooling::Max;
        let start = if is_max { f64::NEG_INFINITY } else { 0.0 };
        let mut sums = vec![start; output.position(row, 0)?.len()];
        let mut weights = 0.0;
        for position in 0..count {
            #[expect(clippy::cast_precision_loss, reason = "positions are small")]
            let weight =
                if self.pooling == Pooling::WeightedMean { (position + 1) as f64 } else { 1.0 };
            weights += weight;
            for (sum, value) in sums.iter_mut().zip(output.position(row, position)?) {
                let value = f64::from(*value);
                *sum = if is_max { sum.max(value) } else { *sum + weight * value };
            }
        }
        let divisor = match self.pooling {
            Pooling::Max => 1.0,
            Pooling::MeanSqrtLen => f64::sqrt(weights),
            _ => weights,
        };
        #[expect(clippy::cast_possible_truncation, reason = "vectors are f32")]
        Ok(sums.iter().map(|sum| (sum / divisor) as f32).collect())
    }
}

/// Output of an encoder that has vectors.
struct ChosenOutput {
    name: String,
    /// Whether it has one vector for each text.
    is_pooled: bool,
}

/// Chooses the output with vectors of tokens, or of texts.
fn choose_output(outputs: &[Port]) -> Result<ChosenOutput, Error> {
    let find = |name: &str| outputs.iter().find(|output| output.name() == name);
    if let Some(output) = find("sentence_embedding") {
        return Ok(ChosenOutput { name: output.name().to_string(), is_pooled: true });
    }
    let rank = |output: &Port| output.ty().and_then(Type::shape).map(|shape| shape.len());
    let by_name = find("last_hidden_state").or_else(|| find("token_embeddings"));
    let by_rank = || outputs.iter().find(|output| rank(output) == Some(3));
    if let Some(output) = by_name.or_else(by_rank) {
        return Ok(ChosenOutput { name: output.name().to_string(), is_pooled: false });
    }
    if let Some(output) = outputs.iter().find(|output| rank(output) == Some(2)) {
        return Ok(ChosenOutput { name: output.name().to_string(), is_pooled: true });
    }
    let names: Vec<&str> = outputs.iter().map(Port::name).take(10).collect();
    Err(Error::refusal("has no output with vectors of tokens or texts")
        .with_help(format!("its outputs are: {}", names.join(", "))))
}

/// Reads the types of the modules of sentence-transformers; none without `modules.json`.
fn read_modules(files: &Files) -> Result<Vec<String>, Error> {
    let Some(text) = files.read_text("modules.json")? else {
        return Ok(Vec::new());
    };
    let path = files.root().join("modules.json");
    let modules: serde_json::Value = serde_json::from_str(&text).map_err(|error| {
        Error::new(sardonyx::ErrorKind::Format, format!("is not JSON: {error}")).at(&path)
    })?;
    let modules = modules.as_array().into_iter().flatten();
    Ok(modules.filter_map(|module| Some(module.get("type")?.as_str()?.to_string())).collect())
}

/// Reads the pooling of a directory; the one that the type of the model has by default.
fn read_pooling(files: &Files, config: &Config) -> Result<Pooling, Error> {
    match files.read_json("1_Pooling/config.json")? {
        Some(object) => parse_pooling(&object)
            .map_err(|error| error.at(&files.root().join("1_Pooling/config.json"))),
        None if LAST_TOKEN_TYPES.contains(&config.model_type.as_str()) => Ok(Pooling::LastToken),
        None => Ok(Pooling::Mean),
    }
}

fn parse_pooling(object: &Object) -> Result<Pooling, Error> {
    if let Some(name) = object.text("pooling_mode")? {
        let found = match name {
            "cls" => Some(Pooling::Cls),
            "mean" => Some(Pooling::Mean),
            "max" => Some(Pooling::Max),
            "mean_sqrt_len_tokens" => Some(Pooling::MeanSqrtLen),
            "weightedmean" => Some(Pooling::WeightedMean),
            "lasttoken" => Some(Pooling::LastToken),
            _ => None,
        };
        return found.ok_or_else(|| Error::refusal(format!("unknown pooling `{name}`")));
    }
    let mut chosen = Vec::new();
    for (key, pooling) in POOLING_KEYS {
        if object.flag(key)?.unwrap_or(false) {
            chosen.push(pooling);
        }
    }
    match chosen[..] {
        [pooling] => Ok(pooling),
        [] => Ok(Pooling::Mean),
        _ => Err(Error::refusal("several poolings are joined to one vector")),
    }
}

/// Divides a vector by its length. A vector of zeros stays.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        for value in vector {
            #[expect(clippy::cast_possible_truncation, reason = "vectors are f32")]
            let divided = (f64::from(*value) / length) as f32;
            *value = divided;
        }
    }
}
