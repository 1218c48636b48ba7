//! A decoder: the session of a language model, its inputs by role, and the state of a batch.

use std::collections::VecDeque;

use half::{bf16, f16};
use sardonyx::run::SessionState;
use sardonyx::{DataType, ErrorKind, Port, RunOptions, Session, Tensor, Type, Value};

use crate::config::Config;
use crate::error::Error;
use crate::files::Files;
use crate::key_values::StateLayout;
use crate::loading::LoadOptions;

/// Language model that reads tokens and gives scores of the next one.
#[derive(Debug)]
pub(crate) struct Decoder {
    session: Session,
    /// Session that converts tokens to vectors, for models that take vectors.
    embedding: Option<Embedding>,
    pub(crate) layout: StateLayout,
    inputs: Vec<DecoderInput>,
    logits: String,
    /// Whether sequences of different lengths can share a run, by padding.
    pub(crate) can_pad: bool,
    /// Whether the model takes one sequence only.
    is_single: bool,
    /// Whether a prompt can be read in several runs.
    can_continue: bool,
    /// Size of the weights in the file, in bytes.
    pub(crate) weight_bytes: u64,
    memory_limit: Option<usize>,
}

#[derive(Debug)]
struct Embedding {
    session: Session,
    input: Port,
    output: String,
}

/// Input of a decoder that is not a state.
#[derive(Debug)]
struct DecoderInput {
    name: String,
    role: Role,
    data_type: DataType,
}

/// Content of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Tokens,
    Embeddings,
    /// 1 for positions that count, 0 for padding; past and new positions.
    Mask,
    Positions,
    TokenTypes,
    /// Whether there is a past: chooses a branch of merged decoders.
    UseCache,
    /// Number of positions at the end whose scores are computed.
    KeptLogits,
    PastLength,
    TotalLength,
}

/// Names of inputs by role. `genai_config.json` may give others.
const ROLES: [(&str, Role); 11] = [
    ("input_ids", Role::Tokens),
    ("inputs_embeds", Role::Embeddings),
    ("attention_mask", Role::Mask),
    ("position_ids", Role::Positions),
    ("token_type_ids", Role::TokenTypes),
    ("use_cache_branch", Role::UseCache),
    ("num_logits_to_keep", Role::KeptLogits),
    ("past_sequence_length", Role::PastLength),
    ("past_seq_len", Role::PastLength),
    ("total_sequence_length", Role::TotalLength),
    ("total_seq_len", Role::TotalLength),
];

/// Names of decoders without a variant, preferred ones first.
pub(crate) const MODEL_NAMES: [&str; 4] =
    ["model", "decoder_model_merged", "decoder_with_past_model", "decoder_model"];
/// Names of models that convert tokens to vectors.
const EMBEDDING_NAMES: [&str; 2] = ["embed_tokens", "embeddings"];
/// Maximum size of the scores of a run in bytes, unless one position has more: a longer prompt is
/// read in several runs.
const SCORE_BYTES: usize = 128 << 20;
/// Minimum number of positions of such a run.
const MIN_CHUNK: usize = 64;

/// State of the sequences of a batch.
#[derive(Debug)]
pub(crate) struct BatchState {
    /// All tokens of each member, without padding.
    pub(crate) tokens: Vec<Vec<u32>>,
    /// Number of padding positions before each member.
    padding: Vec<usize>,
    /// Number of positions in `key_values`, with padding.
    length: usize,
    /// Keys and values of all members; `None` if the model has no state.
    key_values: Option<SessionState>,
    /// Whether an error left a state that differs from `tokens`.
    is_lost: bool,
}

/// Scores of the next token for each member of a batch.
#[derive(Debug)]
pub(crate) struct Scores {
    logits: Tensor,
}

impl Decoder {
    /// Opens the decoder of a directory.
    pub(crate) fn open(
        files: &Files,
        config: &Config,
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let is_sequence_model =
            files.list_models().iter().any(|name| name.contains("encoder_model"));
        if config.is_encoder_decoder || is_sequence_model {
            return Err(Error::refusal("is a model of encoder and decoder, such as T5 or Whisper")
                .at(files.root())
                .with_help(
                    "text is generated with decoder-only models; run the parts with `Session`",
                ));
        }
        let genai = config.genai.as_ref();
        let by_genai = genai.and_then(|genai| genai.decoder.clone());
        let file = match by_genai.filter(|_| options.model.is_none()) {
            Some(file) => file,
            None => options.choose_model(files, &MODEL_NAMES)?,
        };
        let (model, session) = options.build_session(files, &file)?;
        let place = files.root().join(&file);
        let layout = StateLayout::find(session.inputs(), session.outputs(), config)
            .map_err(|error| error.at(&place))?;
        let inputs = find_inputs(&session, &layout, config).map_err(|error| error.at(&place))?;
        let logits = find_logits(&session, config).map_err(|error| error.at(&place))?;
        let has_role = |role: Role| inputs.iter().any(|input| input.role == role);
        let embedding = if has_role(Role::Embeddings) {
            Some(Embedding::open(files, config, options)?)
        } else {
            None
        };
        // The operator counts positions by the sum of the mask, so padding must not come first.
        let counts_mask = model.operators().iter().any(|op| op.name == "GroupQueryAttention");
        let batch = session.inputs().iter().find(|port| port.name() == inputs[0].name);
        let batch = batch.and_then(Port::ty).and_then(Type::shape);
        let is_single = batch.and_then(|shape| shape.first()?.size()) == Some(1);
        Ok(Decoder {
            can_pad: has_role(Role::Mask) && !counts_mask,
            is_single,
            // A merged decoder has a branch without a past, which the first run takes whole.
            can_continue: !layout.is_empty() && !has_role(Role::UseCache),
            session,
            embedding,
            layout,
            inputs,
            logits,
            weight_bytes: model.parameters().bytes + model.constants().bytes,
            memory_limit: options.memory_limit,
        })
    }

    /// Whether a later prompt can begin with the state of an earlier one.
    pub(crate) fn can_reuse(&self) -> bool {
        self.can_continue && self.layout.can_truncate()
    }

    /// Starts a batch: reads the prompts, each of at least one token, and returns the scores of
    /// the next token of each. Prompts of different lengths are padded in front.
    pub(crate) fn start(
        &self,
        prompts: &[Vec<u32>],
        pad: u32,
        run: &RunOptions<'_>,
    ) -> Result<(BatchState, Scores), Error> {
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let mut state = BatchState {
            tokens: vec![Vec::new(); prompts.len()],
            padding: prompts.iter().map(|prompt| longest - prompt.len()).collect(),
            length: 0,
            key_values: self.layout.make_state(&self.session, prompts.len())?,
            is_lost: false,
        };
        let padded: Vec<Vec<u32>> = prompts
            .iter()
            .zip(&state.padding)
            .map(|(prompt, padding)| {
                std::iter::repeat_n(pad, *padding).chain(prompt.iter().copied()).collect()
            })
            .collect();
        let scores = self.read(&mut state, &padded, run)?;
        for (tokens, prompt) in state.tokens.iter_mut().zip(prompts) {
            tokens.clone_from(prompt);
        }
        Ok((state, scores))
    }

    /// Appends a token to each member, and returns the scores of the next ones.
    pub(crate) fn step(
        &self,
        state: &mut BatchState,
        next: &[u32],
        run: &RunOptions<'_>,
    ) -> Result<Scores, Error> {
        let rows: Vec<Vec<u32>> = next.iter().map(|token| vec![*token]).collect();
        self.append(state, &rows, run)
    }

    /// Appends tokens to each member, the same number to all, and returns the scores of the next
    /// ones.
    pub(crate) fn append(
        &self,
        state: &mut BatchState,
        rows: &[Vec<u32>],
        run: &RunOptions<'_>,
    ) -> Result<Scores, Error> {
        let scores = if self.layout.is_empty() {
            // Without a state the model reads everything again.
            state.length = 0;
            let longest = state.tokens.iter().map(Vec::len).max().unwrap_or(0);
            let all: Vec<Vec<u32>> = state
                .tokens
                .iter()
                .zip(rows)
                .map(|(tokens, row)| {
                    let padding = std::iter::repeat_n(0, longest - tokens.len());
                    padding.chain(tokens.iter().copied()).chain(row.iter().copied()).collect()
                })
                .collect();
            self.read(state, &all, run)?
        } else {
            self.read(state, rows, run)?
        };
        for (tokens, row) in state.tokens.iter_mut().zip(rows) {
            tokens.extend_from_slice(row);
        }
        Ok(scores)
    }

    /// Runs the model on tokens of equal number for each member, in several runs if there are
    /// many, and returns the scores after the last.
    fn read(
        &self,
        state: &mut BatchState,
        rows: &[Vec<u32>],
        run: &RunOptions<'_>,
    ) -> Result<Scores, Error> {
        if state.is_lost {
            return Err(Error::new(ErrorKind::Run, "an earlier step failed"));
        }
        let before = state.length;
        let scores = self.read_in_parts(state, rows, run);
        // A run that fails changes nothing, but earlier parts of the tokens may have been read.
        if scores.is_err() && state.length > before {
            let cut = state.key_values.as_mut().map(|state| state.truncate(before));
            state.is_lost = !matches!(cut, Some(Ok(())));
            state.length = before;
        }
        scores
    }

    /// Reads the tokens of [`Decoder::read`], and leaves those of a failed run unread.
    fn read_in_parts(
        &self,
        state: &mut BatchState,
        rows: &[Vec<u32>],
        run: &RunOptions<'_>,
    ) -> Result<Scores, Error> {
        let count = rows.first().map_or(0, Vec::len);
        self.check_memory(rows.len(), state.length + count)?;
        let mut start = 0;
        let mut width = if self.can_continue { self.first_chunk(rows.len()) } else { count };
        loop {
            let end = count.min(start + width.max(1));
            let part: Vec<&[u32]> = rows.iter().map(|row| &row[start..end]).collect();
            let scores = self.run_once(state, &part, run)?;
            if end == count {
                return Ok(scores);
            }
            start = end;
            width = scores.chunk_length();
        }
    }

    /// Returns the number of positions to begin a long prompt with.
    fn first_chunk(&self, batch: usize) -> usize {
        let port = self.session.outputs().iter().find(|port| port.name() == self.logits);
        let shape = port.and_then(Port::ty).and_then(Type::shape);
        let vocabulary = shape.and_then(|shape| shape.last()?.size()).unwrap_or(1 << 17);
        chunk_length(vocabulary * batch.max(1))
    }

    fn run_once(
        &self,
        state: &mut BatchState,
        rows: &[&[u32]],
        run: &RunOptions<'_>,
    ) -> Result<Scores, Error> {
        let count = rows[0].len();
        let fed = Fed { state, rows, count };
        let mut inputs: Vec<(String, Value)> = Vec::new();
        for input in &self.inputs {
            let tensor = match (input.role, &self.embedding) {
                (Role::Embeddings, Some(embedding)) => embedding.compute(&fed, run)?,
                _ => fed.make_input(input)?,
            };
            inputs.push((input.name.clone(), tensor.into()));
        }
        let outputs = match &mut state.key_values {
            Some(key_values) => key_values.run(inputs, run)?,
            None => self.session.run(inputs, run)?,
        };
        let logits = outputs.into_iter().find(|(name, _)| *name == self.logits);
        let logits = logits.and_then(|(_, value)| value.into_tensor().ok());
        let Some(logits) = logits else {
            return Err(Error::invalid(format!("output `{}` is not a tensor", self.logits)));
        };
        state.length += count;
        Scores::new(logits, rows.len())
    }

    /// Checks that keys and values of this many positions fit the memory limit, twice: their memory
    /// doubles when it is full.
    fn check_memory(&self, batch: usize, length: usize) -> Result<(), Error> {
        let Some(limit) = self.memory_limit else {
            return Ok(());
        };
        let bytes = self.layout.bytes_per_token().saturating_mul(batch).saturating_mul(length);
        let bytes = bytes.saturating_mul(2);
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Run,
            format!(
                "keys and values of {length} positions of {batch} texts take {bytes} bytes, more than \
                 the limit of {limit}"
            ),
        ))
    }

    /// Cuts a batch of one sequence back to its first `length` tokens.
    pub(crate) fn truncate(&self, state: &mut BatchState, length: usize) -> Result<(), Error> {
        if let Some(key_values) = &mut state.key_values {
            key_values.truncate(length)?;
        }
        state.length = state.length.min(length);
        state.tokens[0].truncate(length);
        Ok(())
    }

    /// Keeps the members of a batch with these numbers.
    pub(crate) fn select(&self, state: &mut BatchState, members: &[usize]) -> Result<(), Error> {
        if let Some(key_values) = &mut state.key_values {
            key_values.select(members)?;
        }
        state.tokens =
            members.iter().map(|member| std::mem::take(&mut state.tokens[*member])).collect();
        state.padding = members.iter().map(|member| state.padding[*member]).collect();
        Ok(())
    }

    /// Returns which prompts of these lengths can share runs: groups of their numbers.
    pub(crate) fn group(&self, lengths: impl Iterator<Item = usize>) -> VecDeque<Vec<usize>> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (index, length) in lengths.enumerate() {
            let fits = |group: &&mut (usize, Vec<usize>)| {
                !self.is_single && (self.can_pad || group.0 == length)
            };
            match groups.iter_mut().find(fits) {
                Some((_, group)) => group.push(index),
                None => groups.push((length, vec![index])),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Whether a state belongs to its tokens: errors cut it back to them if they can.
    pub(crate) fn is_whole(&self, state: &BatchState) -> bool {
        !state.is_lost
    }

    pub(crate) fn threads(&self) -> usize {
        self.session.threads()
    }
}

impl Embedding {
    fn open(files: &Files, config: &Config, options: &LoadOptions) -> Result<Embedding, Error> {
        let by_genai = config.genai.as_ref().and_then(|genai| genai.embedding.clone());
        let file = match by_genai {
            Some(file) => file,
            None => {
                let options = LoadOptions { model: None, ..options.clone() };
                options.choose_model(files, &EMBEDDING_NAMES).map_err(|_| {
                    Error::new(
                        ErrorKind::Io,
                        "the model takes vectors, but embed_tokens.onnx is missing",
                    )
                    .at(files.root())
                })?
            }
        };
        let (_, session) = options.build_session(files, &file)?;
        let (input, output) = (session.inputs().first().cloned(), session.outputs().first());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(Error::refusal("has no input or no output").at(&files.root().join(&file)));
        };
        let output = output.name().to_string();
        Ok(Embedding { session, input, output })
    }

    /// Converts the tokens of a run to vectors.
    fn compute(&self, fed: &Fed<'_>, run: &RunOptions<'_>) -> Result<Tensor, Error> {
        let data_type = self.input.ty().and_then(Type::elem).unwrap_or(DataType::Int64);
        let input = DecoderInput { name: String::new(), role: Role::Tokens, data_type };
        let tokens = fed.make_input(&input)?;
        let outputs = self.session.run([(self.input.name(), tokens)], run)?;
        Ok(outputs.tensor(&self.output)?.clone())
    }
}

/// Tokens of a run, and the state before it.
struct Fed<'a> {
    state: &'a BatchState,
    rows: &'a [&'a [u32]],
    /// Number of tokens of each row.
    count: usize,
}

impl Fed<'_> {
    /// Makes the value of an input.
    fn make_input(&self, input: &DecoderInput) -> Result<Tensor, Error> {
        let batch = self.rows.len();
        let total = self.state.length + self.count;
        let past = i64::try_from(self.state.length).unwrap_or(i64::MAX);
        match input.role {
            Role::Tokens | Role::Embeddings => {
                let tokens = self.rows.iter().flat_map(|row| row.iter().copied().map(i64::from));
                make_integers(input, &[batch, self.count], tokens.collect())
            }
            Role::Mask => {
                let mask = self.state.padding.iter().flat_map(|padding| {
                    (0..total).map(move |position| i64::from(position >= *padding))
                });
                make_integers(input, &[batch, total], mask.collect())
            }
            Role::Positions => {
                let start = self.state.length;
                let positions = self.state.padding.iter().flat_map(|padding| {
                    // Padding has position 1, as in transformers.
                    (start..total).map(move |position| match position.checked_sub(*padding) {
                        Some(position) => i64::try_from(position).unwrap_or(i64::MAX),
                        None => 1,
                    })
                });
                make_integers(input, &[batch, self.count], positions.collect())
            }
            Role::TokenTypes => {
                make_integers(input, &[batch, self.count], vec![0; batch * self.count])
            }
            Role::UseCache => Ok(Tensor::from_bools([1], &[self.state.length > 0])?),
            Role::KeptLogits => make_integers(input, &[], vec![1]),
            Role::PastLength => make_integers(input, &[1], vec![past]),
            Role::TotalLength => {
                make_integers(input, &[1], vec![i64::try_from(total).unwrap_or(i64::MAX)])
            }
        }
    }
}

/// Makes a tensor of whole numbers of the type that an input has.
fn make_integers(input: &DecoderInput, dims: &[usize], numbers: Vec<i64>) -> Result<Tensor, Error> {
    make_numbers(&input.name, input.data_type, dims, numbers)
}

/// Makes a tensor of whole numbers of a type that the input called `name` has.
#[expect(clippy::cast_possible_truncation, reason = "tokens and positions are below 2^31")]
pub(crate) fn make_numbers(
    name: &str,
    data_type: DataType,
    dims: &[usize],
    numbers: Vec<i64>,
) -> Result<Tensor, Error> {
    let tensor = match data_type {
        DataType::Int64 => Tensor::from_vec(dims, numbers),
        DataType::Int32 => {
            Tensor::from_vec(dims, numbers.iter().map(|number| *number as i32).collect())
        }
        DataType::Float => {
            Tensor::from_vec(dims, numbers.iter().map(|number| *number as f32).collect())
        }
        DataType::Float16 => Tensor::from_vec(
            dims,
            numbers.iter().map(|number| f16::from_f32(*number as f32)).collect(),
        ),
        DataType::Bool => {
            let flags: Vec<bool> = numbers.iter().map(|number| *number != 0).collect();
            Tensor::from_bools(dims, &flags)
        }
        other => {
            let message = format!("input `{name}` has the type {other}, not int64 or int32");
            return Err(Error::refusal(message));
        }
    };
    Ok(tensor?)
}

/// Finds the inputs that are not states, and their roles.
fn find_inputs(
    session: &Session,
    layout: &StateLayout,
    config: &Config,
) -> Result<Vec<DecoderInput>, Error> {
    let mut inputs = Vec::new();
    for port in session.inputs() {
        if layout.has_input(port.name()) {
            continue;
        }
        let by_genai = config.genai.iter().flat_map(|genai| &genai.names);
        let by_genai = by_genai.filter(|(_, name)| *name == port.name()).map(|(role, _)| role);
        let known = by_genai.map(String::as_str).chain([port.name()]);
        let role = known.filter_map(|name| ROLES.iter().find(|(known, _)| *known == name)).next();
        let Some((_, role)) = role else {
            if !port.is_required() {
                continue;
            }
            let names: Vec<&str> = ROLES.iter().map(|(name, _)| *name).collect();
            let message = format!("input `{}` has no known role", port.name());
            return Err(Error::refusal(message).with_help(format!(
                "inputs of language models are {}, and pairs such as `past_key_values.0.key` with \
                 `present.0.key`",
                names.join(", ")
            )));
        };
        let data_type = port.ty().and_then(Type::elem).unwrap_or(DataType::Int64);
        inputs.push(DecoderInput { name: port.name().to_string(), role: *role, data_type });
    }
    // The input with the batch first.
    inputs.sort_by_key(|input| !matches!(input.role, Role::Tokens | Role::Embeddings));
    match inputs.first().map(|input| input.role) {
        Some(Role::Tokens | Role::Embeddings) => Ok(inputs),
        _ => Err(Error::refusal("has no input `input_ids`, so it is not a language model")),
    }
}

/// Finds the output with the scores of the next token.
fn find_logits(session: &Session, config: &Config) -> Result<String, Error> {
    let by_genai = config.genai.as_ref().and_then(|genai| genai.names.get("logits"));
    let name = by_genai.map_or("logits", String::as_str);
    if session.outputs().iter().any(|output| output.name() == name) {
        return Ok(name.to_string());
    }
    let outputs: Vec<&str> = session.outputs().iter().map(Port::name).take(10).collect();
    Err(Error::refusal(format!("has no output `{name}`, so it gives no next token"))
        .with_help(format!("its outputs are: {}", outputs.join(", "))))
}

impl Scores {
    /// Takes over the output of a run: `[batch, positions, tokens]` or `[batch, tokens]`.
    fn new(logits: Tensor, batch: usize) -> Result<Scores, Error> {
        let dims = logits.dims();
        if !(2..=3).contains(&dims.len()) || dims[0] != batch || logits.is_empty() {
            return Err(Error::invalid(format!(
                "expected scores of the shape [{batch}, positions, tokens], found {dims:?}"
            )));
        }
        Ok(Scores { logits })
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.logits.dims().last().copied().unwrap_or(0)
    }

    /// Returns the number of positions to read in one run, as they have this many scores.
    fn chunk_length(&self) -> usize {
        chunk_length(self.vocabulary() * self.logits.dims()[0])
    }

    /// Copies the scores of the last position of a member.
    pub(crate) fn copy_last(&self, member: usize, into: &mut Vec<f32>) -> Result<(), Error> {
        let dims = self.logits.dims();
        let positions = if dims.len() == 3 { dims[1] } else { 1 };
        let size = self.vocabulary();
        let start = ((member + 1) * positions - 1) * size;
        let range = start..start + size;
        into.clear();
        match self.logits.data_type() {
            DataType::Float => into.extend_from_slice(&self.logits.as_slice::<f32>()?[range]),
            DataType::Float16 => {
                let scores = &self.logits.as_slice::<f16>()?[range];
                into.extend(scores.iter().map(|score| score.to_f32()));
            }
            DataType::Bfloat16 => {
                let scores = &self.logits.as_slice::<bf16>()?[range];
                into.extend(scores.iter().map(|score| score.to_f32()));
            }
            other => {
                return Err(Error::refusal(format!("scores have the type {other}, not a float")));
            }
        }
        Ok(())
    }
}

/// Returns the number of positions to read in one run, of this many scores each.
fn chunk_length(scores: usize) -> usize {
    (SCORE_BYTES / 4 / scores.max(1)).max(MIN_CHUNK)
}
