//! [`Generator`]: a language model of a directory, with its tokenizer and chat template.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sardonyx::RunOptions;

use crate::chat::{ChatTemplate, Message};
use crate::config::Config;
use crate::decoder::{BatchState, Decoder, Scores};
use crate::error::Error;
use crate::files::Files;
use crate::loading::LoadOptions;
use crate::options::GenerateOptions;
use crate::processors::{History, make_processors};
use crate::sampling::{compute_probabilities, softmax};
use crate::stream::{FinishReason, TextStream, Timing, TokenLogprob};
use crate::tokenizer::Tokenizer;

/// Language model that continues texts. Clones share the model.
///
/// ```no_run
/// use sardonyx_generate::{Generator, Message};
///
/// let generator = Generator::open("Qwen3-0.6B-ONNX")?;
/// let mut options = generator.options();
/// options.max_new_tokens = Some(100);
/// let prompt = generator.encode_chat(&[Message::new("user", "What is an ONNX file?")])?;
/// for piece in generator.stream(&prompt, &options)? {
///     print!("{}", piece?.text);
/// }
/// # Ok::<(), sardonyx_generate::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Generator {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) decoder: Decoder,
    pub(crate) config: Config,
    tokenizer: Option<Tokenizer>,
    template: Option<ChatTemplate>,
    files: Files,
    /// State of the last sequence, for prompts that begin like it.
    kept: Mutex<Option<BatchState>>,
}

/// Beginning of a text: a text, or tokens that are given to the model as they are.
#[derive(Debug, Clone, Copy)]
pub enum Prompt<'a> {
    /// Text that the tokenizer of the directory converts.
    Text(&'a str),
    /// Numbers of tokens.
    Tokens(&'a [u32]),
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Prompt::Text(text)
    }
}

impl<'a> From<&'a String> for Prompt<'a> {
    fn from(text: &'a String) -> Self {
        Prompt::Text(text)
    }
}

impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Prompt::Tokens(tokens)
    }
}

impl<'a> From<&'a Vec<u32>> for Prompt<'a> {
    fn from(tokens: &'a Vec<u32>) -> Self {
        Prompt::Tokens(tokens)
    }
}

/// Answer to a prompt.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Generation {
    /// Text of the answer, without the prompt. Empty if the directory has no tokenizer.
    pub text: String,
    /// Tokens of the answer, with the one that ended it.
    pub tokens: Vec<u32>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Reason for the end of the answer.
    pub finish_reason: FinishReason,
    /// Probabilities of the tokens, if `logprobs` is set.
    pub logprobs: Vec<TokenLogprob>,
}

impl Generator {
    /// Opens the language model in a directory.
    ///
    /// # Errors
    ///
    /// If files are missing or contradict each other, or the model is not a decoder.
    pub fn open(directory: impl AsRef<Path>) -> Result<Generator, Error> {
        Generator::open_with(directory, &LoadOptions::default())
    }

    /// Opens the language model in a directory, with options such as the file of a variant.
    ///
    /// # Errors
    ///
    /// Those of [`Generator::open`].
    pub fn open_with(directory: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, Error> {
        let files = Files::open(directory.as_ref())?;
        let mut config = Config::read(&files)?;
        let decoder = Decoder::open(&files, &config, options)?;
        // Without a tokenizer tokens can be generated, but no text.
        let tokenizer = match files.find("tokenizer.json") {
            Some(_) => Some(Tokenizer::read(&files)?),
            None => None,
        };
        if config.options.eos_token_id.is_empty() {
            let token = config.special_tokens.get("eos_token");
            let id = tokenizer.as_ref().zip(token).and_then(|(t, token)| t.token_to_id(token));
            config.options.eos_token_id.extend(id);
        }
        let template = ChatTemplate::read(&files, &config)?;
        let kept = Mutex::new(None);
        let shared = Shared { decoder, config, tokenizer, template, files, kept };
        Ok(Generator { shared: Arc::new(shared) })
    }

    /// Replaces the tokenizer of the directory.
    ///
    /// # Errors
    ///
    /// If the generator has clones or streams, which use the other tokenizer.
    pub fn with_tokenizer(self, tokenizer: Tokenizer) -> Result<Generator, Error> {
        let mut shared = Arc::try_unwrap(self.shared)
            .map_err(|_| Error::argument("the generator has clones, which use its tokenizer"))?;
        shared.tokenizer = Some(tokenizer);
        Ok(Generator { shared: Arc::new(shared) })
    }

    /// Returns the options of generation that the directory recommends.
    pub fn options(&self) -> GenerateOptions {
        self.shared.config.options.clone()
    }

    /// Returns the tokenizer of the directory.
    ///
    /// # Errors
    ///
    /// If the directory has none, with advice.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.shared.tokenizer()
    }

    /// Returns the chat template of the directory, if it has one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.shared.template.as_ref()
    }

    /// Returns the maximum number of tokens of prompt and answer, if the model has a limit.
    pub fn context_length(&self) -> Option<usize> {
        self.shared.config.context_length
    }

    /// Returns the size of keys and values of one token, in bytes.
    pub fn state_bytes_per_token(&self) -> usize {
        self.shared.decoder.layout.bytes_per_token()
    }

    /// Returns the size of the model's weights in bytes, as the file has them.
    pub fn weight_bytes(&self) -> u64 {
        self.shared.decoder.weight_bytes
    }

    /// Returns the number of threads that the model runs on.
    pub fn threads(&self) -> usize {
        self.shared.decoder.threads()
    }

    /// Converts a conversation to the tokens of a prompt, by the chat template.
    ///
    /// # Errors
    ///
    /// If the directory has no chat template or no tokenizer, or the template refuses the
    /// conversation.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        let Some(template) = &self.shared.template else {
            return Err(Error::refusal("has no chat template")
                .at(self.shared.files.root())
                .with_help(
                    "models without one continue texts: give a prompt in place of messages",
                ));
        };
        let text = template.render(messages, true)?;
        Ok(self.tokenizer()?.encode(&text, false)?.ids)
    }

    /// Continues a prompt to the end.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, an option is out of its range, or a run fails.
    pub fn generate<'a>(
        &self,
        prompt: impl Into<Prompt<'a>>,
        options: &GenerateOptions,
    ) -> Result<Generation, Error> {
        let mut answers = self.generate_batch(&[prompt.into()], options)?;
        answers.pop().ok_or_else(|| Error::argument("no prompt"))
    }

    /// Continues several prompts, which share the runs of the model.
    ///
    /// # Errors
    ///
    /// Those of [`Generator::generate`].
    pub fn generate_batch(
        &self,
        prompts: &[Prompt<'_>],
        options: &GenerateOptions,
    ) -> Result<Vec<Generation>, Error> {
        let mut stream = self.stream_batch(prompts, options)?;
        let mut answers: Vec<Generation> = stream
            .prompt_lengths()
            .map(|prompt_tokens| Generation {
                text: String::new(),
                tokens: Vec::new(),
                prompt_tokens,
                finish_reason: FinishReason::Stopped,
                logprobs: Vec::new(),
            })
            .collect();
        for piece in &mut stream {
            let piece = piece?;
            let answer = &mut answers[piece.member];
            answer.text += &piece.text;
            answer.tokens.extend(piece.token);
            answer.logprobs.extend(piece.logprob);
            if let Some(reason) = piece.finish_reason {
                answer.finish_reason = reason;
            }
        }
        Ok(answers)
    }

    /// Continues a prompt token by token. The model runs as the iterator is advanced, and dropping
    /// it ends generation.
    ///
    /// # Errors
    ///
    /// If the prompt is empty or too long, or an option is out of its range.
    pub fn stream<'a>(
        &self,
        prompt: impl Into<Prompt<'a>>,
        options: &GenerateOptions,
    ) -> Result<TextStream, Error> {
        self.stream_batch(&[prompt.into()], options)
    }

    /// Continues several prompts token by token. Pieces have the number of their prompt.
    ///
    /// # Errors
    ///
    /// Those of [`Generator::stream`].
    pub fn stream_batch(
        &self,
        prompts: &[Prompt<'_>],
        options: &GenerateOptions,
    ) -> Result<TextStream, Error> {
        options.check()?;
        let prompts = prompts.iter().map(|prompt| self.shared.encode(*prompt, options));
        TextStream::new(&self.shared, prompts.collect::<Result<_, _>>()?, options)
    }

    /// Computes the probability of each token to come after a prompt, after all changes that the
    /// options make.
    ///
    /// # Errors
    ///
    /// Those of [`Generator::generate`].
    pub fn next_probabilities<'a>(
        &self,
        prompt: impl Into<Prompt<'a>>,
        options: &GenerateOptions,
    ) -> Result<Vec<f32>, Error> {
        options.check()?;
        let prompt = self.shared.encode(prompt.into(), options)?;
        let run = make_run_options(options);
        let (_, scores, _) = self.shared.start(&prompt, options, &run)?;
        let mut last = Vec::new();
        scores.copy_last(0, &mut last)?;
        let history = History { tokens: &prompt, prompt: prompt.len() };
        for processor in make_processors(options) {
            processor.process(history, &mut last);
        }
        if options.do_sample {
            return Ok(compute_probabilities(options, &mut last));
        }
        Ok(softmax(&last))
    }

    /// Drops the keys and values of the last prompt and answer, which a prompt that begins like
    /// them would reuse.
    pub fn forget_prefix(&self) {
        *self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Makes the options of a run that ends when generation shall end.
pub(crate) fn make_run_options(options: &GenerateOptions) -> RunOptions<'static> {
    let mut run = RunOptions::new();
    run.stop.clone_from(&options.stop);
    run.deadline = options.deadline;
    run
}

impl Shared {
    pub(crate) fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        match &self.tokenizer {
            Some(tokenizer) => Ok(tokenizer),
            // Reading again gives the error with its advice.
            None => Err(self
                .files
                .read_tokenizer()
                .err()
                .unwrap_or_else(|| Error::refusal("has no tokenizer").at(self.files.root()))),
        }
    }

    /// Returns the tokenizer, if there is one.
    pub(crate) fn find_tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// Converts a prompt to tokens, of which there is at least one.
    fn encode(&self, prompt: Prompt<'_>, options: &GenerateOptions) -> Result<Vec<u32>, Error> {
        let mut tokens = match prompt {
            Prompt::Text(text) => self.tokenizer()?.encode(text, options.add_special_tokens)?.ids,
            Prompt::Tokens(tokens) => tokens.to_vec(),
        };
        if tokens.is_empty() {
            let begin = self.config.special_tokens.get("bos_token");
            let begin = begin.and_then(|token| self.tokenizer.as_ref()?.token_to_id(token));
            match begin {
                Some(begin) => tokens.push(begin),
                None => {
                    return Err(Error::argument("the prompt has no tokens").with_help(
                        "the tokenizer has no token that begins a text: give at least a word",
                    ));
                }
            }
        }
        if let Some(limit) = self.config.context_length
            && options.context == crate::options::ContextLimit::Refuse
            && tokens.len() >= limit
        {
            let message = format!(
                "the prompt has {} tokens, which leave no place in the model's {limit}",
                tokens.len()
            );
            return Err(Error::argument(message).with_help(
                "shorten the prompt, or set `context` to `slide`, which drops its beginning",
            ));
        }
        Ok(tokens)
    }

    /// Reads a prompt alone, from the state of an earlier one if they begin alike. Also returns
    /// the number of tokens whose state was reused.
    pub(crate) fn start(
        &self,
        prompt: &[u32],
        options: &GenerateOptions,
        run: &RunOptions<'_>,
    ) -> Result<(BatchState, Scores, usize), Error> {
        if options.reuse_prefix
            && let Some(mut state) = self.take_kept()
        {
            let earlier = &state.tokens[0];
            let shared = earlier.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            // The last token of the prompt is read again: its scores are wanted.
            let shared = shared.min(prompt.len() - 1);
            if shared > 0 {
                self.decoder.truncate(&mut state, shared)?;
                let rest = [prompt[shared..].to_vec()];
                let scores = self.decoder.append(&mut state, &rest, run)?;
                return Ok((state, scores, shared));
            }
        }
        let (state, scores) = self.decoder.start(&[prompt.to_vec()], 0, run)?;
        Ok((state, scores, 0))
    }

    fn take_kept(&self) -> Option<BatchState> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps the state of a sequence for a later prompt.
    pub(crate) fn keep(&self, state: BatchState) {
        if self.decoder.can_reuse() && state.tokens.len() == 1 && self.decoder.is_whole(&state) {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        }
    }
}

impl Timing {
    /// Returns the number of tokens of prompts that the model read in a second; `None` if it read
    /// none.
    pub fn prompt_rate(&self) -> Option<f64> {
        let tokens = self.prompt_tokens.checked_sub(self.reused_tokens)?;
        divide(tokens, self.prompt_time.as_secs_f64())
    }

    /// Returns the number of tokens of answers in a second, without the first one of each, which
    /// comes from reading the prompt; `None` if all answers have at most one.
    pub fn answer_rate(&self) -> Option<f64> {
        divide(self.stepped_tokens, self.answer_time.as_secs_f64())
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens are small")]
fn divide(count: usize, seconds: f64) -> Option<f64> {
    (count > 0 && seconds > 0.0).then(|| count as f64 / seconds)
}
