//! Options of generation, with the names that they have in the package `transformers`.

use std::collections::BTreeMap;
use std::time::Instant;

use sardonyx::StopFlag;

use crate::error::Error;
use crate::files::Object;

/// Options of generation. [`Generator::options`](crate::Generator::options) returns those that the
/// directory recommends, and a program changes fields.
///
/// Names and meanings are those of the package `transformers`, but for the penalties of frequency
/// and presence, which are those of the OpenAI interface. Penalties, bans and biases are applied
/// first, in the order of the fields below, then temperature, `top_k`, `top_p` and `min_p`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Maximum number of tokens of the answer. Default: 256, unless `max_length` is set.
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens of prompt and answer together.
    pub max_length: Option<usize>,
    /// Minimum number of tokens of prompt and answer together before an end token is allowed.
    pub min_length: usize,
    /// Minimum number of tokens of the answer before an end token is allowed.
    pub min_new_tokens: usize,
    /// Values added to the logits of tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Factor by which tokens of prompt and answer become less likely; 1 changes nothing.
    /// Keskar et al., "CTRL", 2019.
    pub repetition_penalty: f32,
    /// Value subtracted from a logit for each time that the answer has its token.
    pub frequency_penalty: f32,
    /// Value subtracted from the logits of tokens that the answer has.
    pub presence_penalty: f32,
    /// Length of token sequences that may occur once in prompt and answer; 0 allows all.
    pub no_repeat_ngram_size: usize,
    /// Token sequences that the answer must not have.
    pub bad_words_ids: Vec<Vec<u32>>,
    /// Tokens that the answer must not have.
    pub suppress_tokens: Vec<u32>,
    /// Whether tokens are drawn by their probabilities. Otherwise the most likely one is taken,
    /// the first of equal ones.
    pub do_sample: bool,
    /// Divisor of the logits before a token is drawn, greater than 0.
    pub temperature: f32,
    /// Number of most likely tokens to draw from; 0 means all.
    pub top_k: usize,
    /// Probability that the tokens to draw from reach together, most likely ones first; 1 means
    /// all. Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020.
    pub top_p: f32,
    /// Minimum probability of a token to draw, as a share of the largest; 0 means all.
    pub min_p: f32,
    /// Seed of the draws. The text depends on it and the prompt, not on the number of threads.
    pub seed: u64,
    /// Tokens that end an answer.
    pub eos_token_id: Vec<u32>,
    /// Token that fills shorter prompts of a batch. The model does not see it.
    pub pad_token_id: Option<u32>,
    /// Texts that end an answer, which ends before them. They may begin and end within tokens.
    pub stop_strings: Vec<String>,
    /// Whether special tokens are left out of texts.
    pub skip_special_tokens: bool,
    /// Whether the tokenizer adds its special tokens to a prompt, such as one that begins texts.
    /// Prompts of a chat template have them already.
    pub add_special_tokens: bool,
    /// Number of most likely tokens to report with each token of the answer, by the model's own
    /// probabilities; `None` reports no probabilities.
    pub logprobs: Option<usize>,
    /// Behaviour when prompt and answer reach the model's context length.
    pub context: ContextLimit,
    /// Whether keys and values of a prompt's beginning are taken from the previous call.
    pub reuse_prefix: bool,
    /// Flag that ends generation; see [`FinishReason::Stopped`](crate::FinishReason::Stopped).
    pub stop: Option<StopFlag>,
    /// Time at which generation ends, like the flag.
    pub deadline: Option<Instant>,
}

/// Behaviour when prompt and answer reach the model's context length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ContextLimit {
    /// A prompt that is too long is an error, and an answer ends with
    /// [`FinishReason::Length`](crate::FinishReason::Length).
    #[default]
    Refuse,
    /// The first half of the context is dropped, and the model reads the rest again.
    Slide,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            max_new_tokens: None,
            max_length: None,
            min_length: 0,
            min_new_tokens: 0,
            logit_bias: BTreeMap::new(),
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            no_repeat_ngram_size: 0,
            bad_words_ids: Vec::new(),
            suppress_tokens: Vec::new(),
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            eos_token_id: Vec::new(),
            pad_token_id: None,
            stop_strings: Vec::new(),
            skip_special_tokens: true,
            add_special_tokens: true,
            logprobs: None,
            context: ContextLimit::Refuse,
            reuse_prefix: true,
            stop: None,
            deadline: None,
        }
    }
}

/// Number of tokens of an answer if neither option of length is set.
pub(crate) const DEFAULT_NEW_TOKENS: usize = 256;

impl GenerateOptions {
    /// Takes over the options that a configuration file has. Lengths are left out, but for the
    /// number of new tokens: hubs have files with the whole context as `max_length`.
    pub(crate) fn read(&mut self, object: &Object) -> Result<(), Error> {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        set(&mut self.do_sample, object.flag("do_sample")?);
        set(&mut self.temperature, object.number("temperature")?);
        set(&mut self.top_k, object.count("top_k")?);
        set(&mut self.top_p, object.number("top_p")?);
        set(&mut self.min_p, object.number("min_p")?);
        set(&mut self.repetition_penalty, object.number("repetition_penalty")?);
        set(&mut self.no_repeat_ngram_size, object.count("no_repeat_ngram_size")?);
        set(&mut self.min_length, object.count("min_length")?);
        set(&mut self.min_new_tokens, object.count("min_new_tokens")?);
        if let Some(count) = object.count("max_new_tokens")? {
            self.max_new_tokens = Some(count);
        }
        let ends = object.ids("eos_token_id")?;
        if !ends.is_empty() {
            self.eos_token_id = ends;
        }
        let suppressed = object.ids("suppress_tokens")?;
        if !suppressed.is_empty() {
            self.suppress_tokens = suppressed;
        }
        if let Some(pad) = object.ids("pad_token_id")?.first() {
            self.pad_token_id = Some(*pad);
        }
        Ok(())
    }

    /// Checks that every value is in its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |name: &str, rule: &str, found: f32| {
            Err(Error::argument(format!("`{name}`: expected {rule}, found {found}")))
        };
        // Greedy decoding does not read them, and files with greedy defaults have a temperature 0.
        if self.do_sample {
            if !(self.temperature > 0.0 && self.temperature.is_finite()) {
                return refuse("temperature", "a number greater than 0", self.temperature);
            }
            if !(0.0..=1.0).contains(&self.top_p) {
                return refuse("top_p", "a number from 0 to 1", self.top_p);
            }
            if !(0.0..=1.0).contains(&self.min_p) {
                return refuse("min_p", "a number from 0 to 1", self.min_p);
            }
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            return refuse(
                "repetition_penalty",
                "a number greater than 0",
                self.repetition_penalty,
            );
        }
        for (name, value) in [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ] {
            if !value.is_finite() {
                return refuse(name, "a finite number", value);
            }
        }
        if let Some((_, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            return refuse("logit_bias", "numbers", *bias);
        }
        if self.bad_words_ids.iter().any(Vec::is_empty) {
            return Err(Error::argument("`bad_words_ids`: a sequence has no tokens"));
        }
        if self.stop_strings.iter().any(String::is_empty) {
            return Err(Error::argument("`stop_strings`: a string is empty"));
        }
        Ok(())
    }

    /// Returns the number of tokens at which an answer to a prompt of `prompt` tokens ends.
    pub(crate) fn answer_length(&self, prompt: usize) -> usize {
        let by_total = self.max_length.map(|length| length.saturating_sub(prompt));
        match (self.max_new_tokens, by_total) {
            // As in transformers, the number of new tokens takes precedence.
            (Some(count), _) => count,
            (None, Some(count)) => count,
            (None, None) => DEFAULT_NEW_TOKENS,
        }
    }
}
