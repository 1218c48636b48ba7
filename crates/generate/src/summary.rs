//! Summary of a directory: the kind of its model, and its missing parts, without building a
//! session.

use std::path::Path;

use sardonyx::OpenOptions;

use crate::chat::ChatTemplate;
use crate::config::Config;
use crate::decoder::MODEL_NAMES;
use crate::error::Error;
use crate::files::Files;
use crate::key_values::StateLayout;
use crate::loading::LoadOptions;
use crate::tokenizer::Tokenizer;

/// Purpose of the model of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectoryKind {
    /// Decoder that continues texts: [`Generator`](crate::Generator).
    Generator,
    /// Encoder that gives vectors: [`Embedder`](crate::Embedder).
    Embedder,
    /// Encoder that gives labels of texts or pairs: [`Classifier`](crate::Classifier).
    Classifier,
    /// Encoder that gives labels of tokens: [`Classifier`](crate::Classifier).
    TokenClassifier,
    /// Encoder and decoder, such as T5, whose parts are run with sessions.
    EncoderDecoder,
    /// Model of another kind.
    Other,
}

impl DirectoryKind {
    /// Returns the stable name of the kind, such as `token-classifier`.
    pub fn name(self) -> &'static str {
        match self {
            DirectoryKind::Generator => "generator",
            DirectoryKind::Embedder => "embedder",
            DirectoryKind::Classifier => "classifier",
            DirectoryKind::TokenClassifier => "token-classifier",
            DirectoryKind::EncoderDecoder => "encoder-decoder",
            DirectoryKind::Other => "other",
        }
    }
}

/// Summary of a directory with a model.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DirectorySummary {
    /// Purpose of the model.
    pub kind: DirectoryKind,
    /// Type of the model, such as `qwen2`; empty if `config.json` is missing.
    pub model_type: String,
    /// Model file that is opened by default, relative to the directory.
    pub model: Option<String>,
    /// All model files of the directory.
    pub models: Vec<String>,
    /// Maximum number of positions.
    pub context_length: Option<usize>,
    /// Number of tokens of the tokenizer, if it can be read.
    pub vocab_size: Option<usize>,
    /// Whether there is a chat template.
    pub has_chat_template: bool,
    /// Size of keys and values of one token in bytes, for decoders with a state.
    pub state_bytes_per_token: Option<usize>,
    /// Labels of a classifier, by class.
    pub labels: Vec<String>,
    /// Problems: parts that are missing or cannot be read, each in a sentence.
    pub problems: Vec<String>,
}

impl DirectorySummary {
    /// Summarizes a directory. Problems of its parts are listed in the summary.
    ///
    /// # Errors
    ///
    /// If `directory` is not a directory.
    pub fn read(directory: impl AsRef<Path>) -> Result<DirectorySummary, Error> {
        let files = Files::open(directory.as_ref())?;
        let mut problems = Vec::new();
        let config = Config::read(&files).unwrap_or_else(|error| {
            problems.push(error.to_string());
            Config::default()
        });
        for (name, why) in [
            ("config.json", "type, length limit and labels are not known"),
            ("tokenizer_config.json", "names of special tokens are not known"),
        ] {
            if files.find(name).is_none() && files.find("genai_config.json").is_none() {
                problems.push(format!("{name} is missing: {why}"));
            }
        }
        let vocab_size = match Tokenizer::read(&files) {
            Ok(tokenizer) => Some(tokenizer.vocab_size()),
            Err(error) => {
                problems.push(error.to_string());
                None
            }
        };
        let template = ChatTemplate::read(&files, &config).unwrap_or_else(|error| {
            problems.push(error.to_string());
            None
        });
        let models = files.list_models();
        let by_genai = config.genai.as_ref().and_then(|genai| genai.decoder.clone());
        let chosen = match by_genai {
            Some(file) => Ok(file),
            None => LoadOptions::new().choose_model(&files, &MODEL_NAMES),
        };
        let model = chosen.map_err(|error| problems.push(error.to_string())).ok();
        let mut summary = DirectorySummary {
            kind: DirectoryKind::Other,
            model_type: config.model_type.clone(),
            model,
            models,
            context_length: config.context_length,
            vocab_size,
            has_chat_template: template.is_some(),
            state_bytes_per_token: None,
            labels: config.labels.values().cloned().collect(),
            problems,
        };
        summary.describe_model(&files, &config);
        Ok(summary)
    }

    /// Reads the structure of the model, and decides what it is for.
    fn describe_model(&mut self, files: &Files, config: &Config) {
        if config.is_encoder_decoder
            || self.models.iter().any(|name| name.contains("encoder_model"))
        {
            self.kind = DirectoryKind::EncoderDecoder;
            return;
        }
        let Some(file) = &self.model else {
            return;
        };
        let opened = files
            .resolve(file)
            .and_then(|path| Ok(OpenOptions::new().skip_payloads(true).open(path)?));
        let model = match opened {
            Ok(model) => model,
            Err(error) => {
                self.problems.push(error.to_string());
                return;
            }
        };
        let has_logits = model.outputs().iter().any(|output| output.name() == "logits");
        let is_for = |suffix: &str| config.architectures.iter().any(|name| name.ends_with(suffix));
        let layout = StateLayout::find(&model.inputs(), &model.outputs(), config);
        let layout = layout.unwrap_or_else(|error| {
            self.problems.push(error.to_string());
            StateLayout::default()
        });
        self.kind = if is_for("ForTokenClassification") {
            DirectoryKind::TokenClassifier
        } else if is_for("ForSequenceClassification") {
            DirectoryKind::Classifier
        } else if has_logits || config.genai.is_some() {
            DirectoryKind::Generator
        } else if model.inputs().iter().any(|input| input.name() == "input_ids") {
            DirectoryKind::Embedder
        } else {
            DirectoryKind::Other
        };
        if self.kind == DirectoryKind::Generator {
            if layout.is_empty() {
                self.problems.push(
                    "the model has no keys and values as inputs, so each token reads the whole text"
                        .to_string(),
                );
            } else {
                self.state_bytes_per_token = Some(layout.bytes_per_token());
            }
        }
    }
}
