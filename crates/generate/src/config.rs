//! Facts of a directory about its model: architecture, special tokens, length limits, names of
//! inputs, and the options that its authors recommend.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::files::{Files, Object};
use crate::options::GenerateOptions;

/// Facts from `config.json`, `generation_config.json`, `genai_config.json` and
/// `tokenizer_config.json`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Type of the model, such as `qwen2`; empty if no file has it.
    pub(crate) model_type: String,
    /// Maximum number of positions of prompt and answer; `None` if it is not limited.
    pub(crate) context_length: Option<usize>,
    pub(crate) vocab_size: Option<usize>,
    pub(crate) is_encoder_decoder: bool,
    /// Heads of keys and values, and elements of each: sizes of the state for files that leave
    /// them open.
    pub(crate) key_value_heads: Option<usize>,
    pub(crate) head_size: Option<usize>,
    /// Names of classes by index.
    pub(crate) labels: BTreeMap<usize, String>,
    /// Kind of a classification problem, such as `multi_label_classification`.
    pub(crate) problem_type: Option<String>,
    pub(crate) architectures: Vec<String>,
    /// Section `model` of `genai_config.json`.
    pub(crate) genai: Option<Genai>,
    pub(crate) options: GenerateOptions,
    /// Maximum number of tokens that the tokenizer gives; `None` if it is not limited.
    pub(crate) tokenizer_length: Option<usize>,
    /// Special tokens by role, such as `bos_token`, as their texts.
    pub(crate) special_tokens: BTreeMap<String, String>,
    /// Chat templates of `tokenizer_config.json`, the one without a name first.
    pub(crate) templates: Vec<(String, String)>,
}

/// Files and names that `genai_config.json` gives.
#[derive(Debug, Clone, Default)]
pub(crate) struct Genai {
    pub(crate) decoder: Option<String>,
    pub(crate) embedding: Option<String>,
    /// Patterns with `%d`, or names, of inputs and outputs of the decoder by role.
    pub(crate) names: BTreeMap<String, String>,
}

/// Keys that different architectures have for one length limit.
const CONTEXT_KEYS: [&str; 6] = [
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
];

impl Config {
    /// Reads the configuration files of a directory. None of them has to exist.
    pub(crate) fn read(files: &Files) -> Result<Config, Error> {
        let mut config = Config::default();
        if let Some(object) = files.read_json("config.json")? {
            config.read_model(&object)?;
        }
        if let Some(object) = files.read_json("genai_config.json")? {
            config.read_genai(&object)?;
        }
        if let Some(object) = files.read_json("generation_config.json")? {
            config.options.read(&object)?;
        }
        if let Some(object) = files.read_json("tokenizer_config.json")? {
            config.read_tokenizer(&object)?;
        }
        Ok(config)
    }

    fn read_model(&mut self, object: &Object) -> Result<(), Error> {
        // Models of several kinds of input keep the language model's facts in a section.
        let inner = object.object("text_config")?;
        let model = if inner.value.is_empty() { object } else { &inner };
        self.model_type = object.text("model_type")?.unwrap_or_default().to_string();
        self.is_encoder_decoder = object.flag("is_encoder_decoder")?.unwrap_or(false);
        for key in CONTEXT_KEYS {
            self.context_length = match self.context_length {
                Some(length) => Some(length),
                // 0 and -1 mean that positions are relative.
                None => model.count(key).unwrap_or(None).filter(|length| *length > 0),
            };
        }
        self.vocab_size = model.count("vocab_size")?;
        let heads = first_count(model, &["num_attention_heads", "n_head", "num_heads"])?;
        let hidden = first_count(model, &["hidden_size", "n_embd", "d_model"])?;
        self.key_value_heads =
            first_count(model, &["num_key_value_heads", "num_kv_heads"])?.or(heads);
        self.head_size = match first_count(model, &["head_dim"])? {
            Some(size) => Some(size),
            None => {
                hidden.zip(heads.filter(|heads| *heads > 0)).map(|(hidden, heads)| hidden / heads)
            }
        };
        self.read_labels(object)?;
        self.problem_type = object.text("problem_type")?.map(str::to_string);
        if let Some(names) = object.get("architectures").and_then(|names| names.as_array()) {
            self.architectures =
                names.iter().filter_map(|name| name.as_str().map(String::from)).collect();
        }
        // Old files have the options of generation here; `generation_config.json` overrides them.
        self.options.read(object)
    }

    fn read_labels(&mut self, object: &Object) -> Result<(), Error> {
        for (index, label) in object.object("id2label")?.value {
            let Ok(index) = index.parse::<usize>() else {
                let message = format!("`id2label`: `{index}` is not the number of a class");
                return Err(Error::invalid(message));
            };
            let label = label.as_str().map_or_else(|| label.to_string(), str::to_string);
            self.labels.insert(index, label);
        }
        Ok(())
    }

    fn read_genai(&mut self, object: &Object) -> Result<(), Error> {
        let model = object.object("model")?;
        if self.model_type.is_empty() {
            self.model_type = model.text("type")?.unwrap_or_default().to_string();
        }
        if let Some(length) = model.count("context_length")? {
            self.context_length = Some(length);
        }
        self.vocab_size = self.vocab_size.or(model.count("vocab_size")?);
        let decoder = model.object("decoder")?;
        self.key_value_heads = self.key_value_heads.or(decoder.count("num_key_value_heads")?);
        self.head_size = self.head_size.or(decoder.count("head_size")?);
        let mut genai = Genai {
            decoder: decoder.text("filename")?.map(str::to_string),
            embedding: model.object("embedding")?.text("filename")?.map(str::to_string),
            names: BTreeMap::new(),
        };
        for section in ["inputs", "outputs"] {
            for (role, name) in decoder.object(section)?.value {
                if let Some(name) = name.as_str() {
                    genai.names.insert(role, name.to_string());
                }
            }
        }
        self.genai = Some(genai);
        self.options.read(&model)?;
        self.options.read(&object.object("search")?)
    }

    fn read_tokenizer(&mut self, object: &Object) -> Result<(), Error> {
        self.tokenizer_length = object.count("model_max_length")?;
        for (key, value) in &object.value {
            if !key.ends_with("_token") {
                continue;
            }
            // Older files have objects with the text in `content`.
            let text = value.as_str().or_else(|| value.get("content")?.as_str());
            if let Some(text) = text {
                self.special_tokens.insert(key.clone(), text.to_string());
            }
        }
        match object.get("chat_template") {
            Some(serde_json::Value::String(text)) => {
                self.templates.push(("default".to_string(), text.clone()));
            }
            Some(serde_json::Value::Array(items)) => {
                for item in items {
                    let [name, text] = ["name", "template"].map(|key| item.get(key)?.as_str());
                    if let (Some(name), Some(text)) = (name, text) {
                        self.templates.push((name.to_string(), text.to_string()));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the first count that the object has under one of `keys`.
fn first_count(object: &Object, keys: &[&str]) -> Result<Option<usize>, Error> {
    for key in keys {
        if let Some(count) = object.count(key)? {
            return Ok(Some(count));
        }
    }
    Ok(None)
}
