//! `sardonyx generate`: continues texts with a language model, or keeps a conversation.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use sardonyx::tool::Machine;
use sardonyx_generate::{
    ContextLimit, FinishReason, GenerateOptions, Generator, LoadOptions, Message, Piece, Prompt,
    TextStream, Timing, TokenLogprob,
};
use serde_json::{Value, json};

use crate::escape::escape_controls;
use crate::failure::Failure;
use crate::human::{format_bytes, parse_bytes};
use crate::stopping::StopArgs;
use crate::terminal::Terminal;

/// Generate text with a language model of a directory, as it lies on a hub
///
/// The directory has an ONNX file, config.json, tokenizer.json and often a chat template; nothing
/// is downloaded. The answer is printed as it comes. Options have the names and meanings that they
/// have in the package transformers; by default those of generation_config.json apply. An option
/// of sampling, such as --temperature, implies sampling.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// Texts to continue; without one, stdin is
    #[arg(value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Give each prompt as a user's message, by the chat template
    #[arg(long)]
    instruct: bool,
    /// Keep a conversation: read messages from stdin, one a line
    #[arg(long, conflicts_with = "json")]
    chat: bool,
    /// Message of the system that a conversation begins with
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    stop: StopArgs,
    /// Print tokens a second after the answer
    #[arg(long)]
    stats: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Directory of a model, and how it is opened.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct LoadArgs {
    /// Directory with the model
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Model file in the directory, or its variant: q4 means onnx/model_q4.onnx
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Number of threads; by default one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Limit of the memory that runs take, such as 4G; by default none
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
}

impl LoadArgs {
    pub(crate) fn to_options(&self) -> LoadOptions {
        let mut options = LoadOptions::new();
        options.model.clone_from(&self.model);
        options.threads = self.threads;
        options.memory_limit =
            self.memory_limit.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        options
    }
}

/// Options of generation.
#[derive(clap::Args)]
#[group(skip)]
struct OptionArgs {
    /// Maximum number of tokens of the answer; by default the directory's, or 256
    #[arg(long, short = 'n', value_name = "N")]
    max_new_tokens: Option<usize>,
    /// Maximum number of tokens of prompt and answer together; by default that of the model
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
    /// Minimum number of tokens of the answer; by default the directory's, or 0
    #[arg(long, value_name = "N")]
    min_new_tokens: Option<usize>,
    /// Take the most likely token each time
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p", "seed"])]
    greedy: bool,
    /// Divisor of the logits before a token is drawn
    #[arg(long, value_name = "X")]
    temperature: Option<f32>,
    /// Draw from this many most likely tokens, 0 for all; by default the directory's, or 50
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Draw from the most likely tokens that reach this probability together
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,
    /// Draw from tokens of at least this share of the largest probability
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,
    /// Seed of the draws; by default another one in each call
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Factor by which earlier tokens become less likely; 1 changes nothing
    #[arg(long, value_name = "X")]
    repetition_penalty: Option<f32>,
    /// Value subtracted from a logit for each time that the answer has its token
    #[arg(long, value_name = "X")]
    frequency_penalty: Option<f32>,
    /// Value subtracted from the logits of tokens that the answer has
    #[arg(long, value_name = "X")]
    presence_penalty: Option<f32>,
    /// Length of token sequences that may occur once; by default the directory's, or 0 for all
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// Text that the answer must not have. May be repeated
    #[arg(long = "bad-word", value_name = "TEXT")]
    bad_words: Vec<String>,
    /// Value added to the logit of a token, as TOKEN=VALUE. May be repeated
    #[arg(long, value_name = "ID=X", value_parser = parse_bias)]
    logit_bias: Vec<Bias>,
    /// Text that ends the answer. May be repeated
    #[arg(long = "stop", value_name = "TEXT")]
    stop_strings: Vec<String>,
    /// Token that ends the answer, in place of the model's. May be repeated
    #[arg(long, value_name = "ID")]
    eos_token_id: Vec<u32>,
    /// Report the N most likely tokens at each place, with --json; by default none
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
    /// Drop the beginning of the text when the context of the model is full
    #[arg(long)]
    slide: bool,
}

/// Value that is added to the logit of a token.
#[derive(Debug, Clone, Copy)]
struct Bias {
    token: u32,
    value: f32,
}

fn parse_bias(text: &str) -> Result<Bias, String> {
    let parts = text.split_once('=');
    let bias = parts.and_then(|(token, value)| {
        Some(Bias { token: token.trim().parse().ok()?, value: value.trim().parse().ok()? })
    });
    bias.ok_or_else(|| "expected the number of a token and a value, such as 42=-1.5".to_string())
}

impl OptionArgs {
    /// Applies the options to those that the directory recommends.
    fn apply(&self, generator: &Generator) -> Result<GenerateOptions, Failure> {
        let mut options = generator.options();
        if self.max_new_tokens.is_some() || self.max_length.is_some() {
            options.max_new_tokens = self.max_new_tokens;
            options.max_length = self.max_length;
        }
        if self.greedy {
            options.do_sample = false;
        }
        let samples = self.temperature.is_some()
            || self.top_k.is_some()
            || self.top_p.is_some()
            || self.min_p.is_some()
            || self.seed.is_some();
        options.do_sample |= samples;
        options.min_new_tokens = self.min_new_tokens.unwrap_or(options.min_new_tokens);
        options.temperature = self.temperature.unwrap_or(options.temperature);
        options.top_k = self.top_k.unwrap_or(options.top_k);
        options.top_p = self.top_p.unwrap_or(options.top_p);
        options.min_p = self.min_p.unwrap_or(options.min_p);
        options.seed = self.seed.unwrap_or_else(clock_seed);
        options.repetition_penalty = self.repetition_penalty.unwrap_or(options.repetition_penalty);
        options.frequency_penalty = self.frequency_penalty.unwrap_or(options.frequency_penalty);
        options.presence_penalty = self.presence_penalty.unwrap_or(options.presence_penalty);
        let size = self.no_repeat_ngram_size.unwrap_or(options.no_repeat_ngram_size);
        options.no_repeat_ngram_size = size;
        for word in &self.bad_words {
            // A word has other tokens at the beginning of a text than within.
            for text in [word.clone(), format!(" {word}")] {
                let ids = generator.tokenizer()?.encode(&text, false)?.ids;
                if !ids.is_empty() && !options.bad_words_ids.contains(&ids) {
                    options.bad_words_ids.push(ids);
                }
            }
        }
        options.logit_bias.extend(self.logit_bias.iter().map(|bias| (bias.token, bias.value)));
        options.stop_strings.clone_from(&self.stop_strings);
        if !self.eos_token_id.is_empty() {
            options.eos_token_id.clone_from(&self.eos_token_id);
        }
        options.logprobs = self.logprobs;
        if self.slide {
            options.context = ContextLimit::Slide;
        }
        Ok(options)
    }
}

/// Returns a seed that differs between calls of the command.
fn clock_seed() -> u64 {
    let elapsed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    elapsed.as_secs() ^ u64::from(elapsed.subsec_nanos()) << 32
}

impl From<sardonyx_generate::Error> for Failure {
    fn from(error: sardonyx_generate::Error) -> Failure {
        match error.into_engine() {
            Ok(error) => Failure::from(error),
            Err(error) => {
                let mut failure = Failure::new(error.message()).code(error.kind());
                if let Some(place) = error.place() {
                    failure = failure.at(place);
                }
                match error.help() {
                    Some(advice) => failure.help(advice),
                    None => failure,
                }
            }
        }
    }
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.generate/1";

/// Runs `sardonyx generate`.
pub(crate) fn generate(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let bar = terminal.progress("opening", None);
    let generator = Generator::open_with(&args.load.directory, &args.load.to_options());
    bar.finish_and_clear();
    let generator = generator?;
    let mut options = args.options.apply(&generator)?;
    let run = args.stop.to_run_options();
    options.stop = run.stop;
    options.deadline = run.deadline;
    if args.chat {
        return keep_conversation(args, &generator, &options, terminal);
    }
    let mut prompts = args.prompts.clone();
    if prompts.is_empty() {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| {
            Failure::new(format!("stdin cannot be read: {error}")).code(sardonyx::ErrorKind::Io)
        })?;
        prompts.push(text);
    }
    let encoded = encode_prompts(args, &generator, &prompts, &options)?;
    let given: Vec<Prompt<'_>> = encoded.iter().map(Prompt::from).collect();
    if args.json {
        let mut stream = generator.stream_batch(&given, &options)?;
        let answers = collect_answers(&mut stream, given.len())?;
        let answers: Vec<Value> = answers
            .iter()
            .zip(prompts.iter().zip(&encoded))
            .map(|(answer, (prompt, tokens))| answer_json(answer, prompt, tokens.len()))
            .collect();
        let timing = stream.timing();
        let stats = args.stats.then(|| stats_json(&generator, &timing));
        let answer = json!({"schema": SCHEMA, "answers": answers, "stats": stats});
        return terminal.json(&answer, true);
    }
    if let [prompt] = given[..] {
        let mut stream = generator.stream(prompt, &options)?;
        print_stream(&mut stream)?;
        print_stats(args, &generator, &stream.timing(), terminal);
        return Ok(());
    }
    let mut stream = generator.stream_batch(&given, &options)?;
    for (answer, prompt) in collect_answers(&mut stream, given.len())?.iter().zip(&prompts) {
        terminal.print(&format!("{prompt}{}\n\n", answer.text))?;
    }
    print_stats(args, &generator, &stream.timing(), terminal);
    Ok(())
}

/// Converts prompts to tokens, with `--instruct` by the chat template.
fn encode_prompts(
    args: &Args,
    generator: &Generator,
    prompts: &[String],
    options: &GenerateOptions,
) -> Result<Vec<Vec<u32>>, Failure> {
    let mut encoded = Vec::new();
    for prompt in prompts {
        encoded.push(if args.instruct {
            let mut messages = begin_conversation(args);
            messages.push(Message::new("user", prompt.as_str()));
            generator.encode_chat(&messages)?
        } else {
            generator.tokenizer()?.encode(prompt, options.add_special_tokens)?.ids
        });
    }
    Ok(encoded)
}

fn begin_conversation(args: &Args) -> Vec<Message> {
    args.system.iter().map(|text| Message::new("system", text.as_str())).collect()
}

/// Answer of a member of a batch, as far as it is shown.
#[derive(Default)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    finish_reason: Option<FinishReason>,
    logprobs: Vec<TokenLogprob>,
}

fn collect_answers(stream: &mut TextStream, count: usize) -> Result<Vec<Answer>, Failure> {
    let mut answers: Vec<Answer> = Vec::new();
    answers.resize_with(count, Answer::default);
    for piece in stream {
        let Piece { member, token, text, logprob, finish_reason, .. } = piece?;
        let answer = &mut answers[member];
        answer.text += &text;
        answer.tokens.extend(token);
        answer.logprobs.extend(logprob);
        answer.finish_reason = finish_reason.or(answer.finish_reason);
    }
    Ok(answers)
}

fn answer_json(answer: &Answer, prompt: &str, prompt_tokens: usize) -> Value {
    let logprobs = answer.logprobs.iter().map(|found| {
        let top =
            found.top.iter().map(|(token, logprob)| json!({"token": token, "logprob": logprob}));
        json!({"token": found.token, "logprob": found.logprob, "top": top.collect::<Vec<_>>()})
    });
    json!({
        "prompt": prompt,
        "prompt_tokens": prompt_tokens,
        "text": answer.text,
        "tokens": answer.tokens,
        "finish_reason": answer.finish_reason.map(FinishReason::name),
        "logprobs": logprobs.collect::<Vec<_>>(),
    })
}

/// Prints the pieces of an answer as they come, and a line break at the end.
fn print_stream(stream: &mut TextStream) -> Result<String, Failure> {
    let mut out = io::stdout();
    let mut text = String::new();
    for piece in stream {
        let piece = piece?.text;
        text += &piece;
        write_piece(&mut out, &escape_controls(&piece))?;
    }
    write_piece(&mut out, "\n")?;
    Ok(text)
}

fn write_piece(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(Failure::from)
}

/// Keeps a conversation: each line of stdin is a message.
fn keep_conversation(
    args: &Args,
    generator: &Generator,
    options: &GenerateOptions,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut messages = begin_conversation(args);
    let mut first: Vec<String> = args.prompts.clone();
    let is_terminal = io::stdin().is_terminal();
    let mut lines = io::stdin().lock().lines();
    loop {
        let line = if first.is_empty() {
            if is_terminal {
                // An error of stderr is ignored, as no other stream is left to report it.
                let _ = write!(io::stderr(), "> ");
            }
            match lines.next() {
                Some(line) => line.map_err(|error| {
                    Failure::new(format!("stdin cannot be read: {error}"))
                        .code(sardonyx::ErrorKind::Io)
                })?,
                None => return Ok(()),
            }
        } else {
            first.remove(0)
        };
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::new("user", line));
        let prompt = generator.encode_chat(&messages)?;
        let mut stream = generator.stream(&prompt, options)?;
        let text = print_stream(&mut stream)?;
        print_stats(args, generator, &stream.timing(), terminal);
        messages.push(Message::new("assistant", text));
    }
}

fn print_stats(args: &Args, generator: &Generator, timing: &Timing, terminal: &Terminal) {
    if !args.stats {
        return;
    }
    let mut text = format!(
        "prompt: {} tokens, {} reused, {} a second; answer: {} tokens, {} a second",
        timing.prompt_tokens,
        timing.reused_tokens,
        format_rate(timing.prompt_rate()),
        timing.answer_tokens,
        format_rate(timing.answer_rate()),
    );
    if let Some(used) = measure_bandwidth(generator, timing) {
        text += &format!(
            "; {} a second of weights and state, {:.0} % of what one thread reads",
            format_bytes(used.bytes_per_second),
            used.share * 100.0
        );
    }
    terminal.remark(&text);
}

fn format_rate(rate: Option<f64>) -> String {
    rate.map_or("-".to_string(), |rate| format!("{rate:.1}"))
}

fn stats_json(generator: &Generator, timing: &Timing) -> Value {
    let used = measure_bandwidth(generator, timing);
    json!({
        "prompt_tokens": timing.prompt_tokens,
        "reused_tokens": timing.reused_tokens,
        "prompt_seconds": timing.prompt_time.as_secs_f64(),
        "prompt_tokens_per_second": timing.prompt_rate(),
        "answer_tokens": timing.answer_tokens,
        "answer_seconds": timing.answer_time.as_secs_f64(),
        "answer_tokens_per_second": timing.answer_rate(),
        "bytes_per_second": used.as_ref().map(|used| used.bytes_per_second),
        "bandwidth_share": used.map(|used| used.share),
        "threads": generator.threads(),
    })
}

/// Bytes of weights, keys and values that the steps of an answer read.
struct UsedBandwidth {
    bytes_per_second: u64,
    /// Share of what one thread of this machine reads at most.
    share: f64,
}

/// Compares the bytes that steps read with what this machine can read; `None` without steps.
#[expect(clippy::cast_precision_loss, reason = "rates are rounded")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are positive")]
fn measure_bandwidth(generator: &Generator, timing: &Timing) -> Option<UsedBandwidth> {
    let rate = timing.answer_rate()?;
    // The mean length of the text while the answer was made.
    let length = timing.prompt_tokens as f64 + timing.answer_tokens as f64 / 2.0;
    let state = generator.state_bytes_per_token() as f64 * length;
    let bytes = (generator.weight_bytes() as f64 + state) * rate;
    let machine = Machine::measure().ok()?;
    Some(UsedBandwidth { bytes_per_second: bytes as u64, share: bytes / machine.bandwidth })
}
