//! Running encoders: texts of different lengths in batches, padded at the end.

use half::{bf16, f16};
use sardonyx::{DataType, Port, RunOptions, Session, StopFlag, Tensor, Type, Value};

use crate::config::Config;
use crate::decoder::make_numbers;
use crate::error::Error;
use crate::files::Files;
use crate::key_values::StateLayout;
use crate::loading::LoadOptions;
use crate::tokenizer::{Tokenizer, Tokens};

/// Model that reads whole texts, with its tokenizer.
#[derive(Debug)]
pub(crate) struct Encoder {
    session: Session,
    /// State inputs of decoders that serve as encoders, which are given empty.
    layout: StateLayout,
    pub(crate) tokenizer: Tokenizer,
    pad: i64,
    /// Maximum number of tokens of a text; `None` if it is not limited.
    pub(crate) max_length: Option<usize>,
    pub(crate) file: String,
}

/// Output of a batch: `[texts, positions, features]` or `[texts, features]`, in `f32`.
#[derive(Debug)]
pub(crate) struct BatchOutput {
    values: Vec<f32>,
    dims: Vec<usize>,
}

/// Options of runs over batches of texts.
#[derive(Debug, Clone)]
pub(crate) struct BatchOptions {
    /// Maximum number of texts of a run.
    pub(crate) batch_size: usize,
    pub(crate) stop: Option<StopFlag>,
}

/// Number of texts of a run, as in sentence-transformers.
pub(crate) const BATCH_SIZE: usize = 32;

impl Encoder {
    pub(crate) fn open(
        files: &Files,
        config: &Config,
        options: &LoadOptions,
    ) -> Result<Self, Error> {
        let file = options.choose_model(files, &["model"])?;
        let (_, session) = options.build_session(files, &file)?;
        let place = files.root().join(&file);
        let layout = StateLayout::find(session.inputs(), session.outputs(), config)
            .map_err(|error| error.at(&place))?;
        let mut tokenizer = Tokenizer::read(files)?;
        let limits = [config.context_length, config.tokenizer_length, read_length(files)?];
        let limit = limits.into_iter().flatten().min();
        let max_length = options.max_length.or(limit);
        if let (Some(wanted), Some(limit)) = (options.max_length, config.context_length)
            && wanted > limit
        {
            let message = format!("`max_length`: {wanted} exceeds the model's {limit} positions");
            return Err(Error::argument(message));
        }
        if let Some(max_length) = max_length {
            tokenizer.truncate_to(max_length)?;
        }
        let by_name = config.special_tokens.get("pad_token");
        let pad = by_name.and_then(|token| tokenizer.token_to_id(token));
        let pad = i64::from(pad.or(config.options.pad_token_id).unwrap_or(0));
        for port in session.inputs() {
            let is_known = INPUTS.contains(&port.name()) || layout.has_input(port.name());
            if !is_known && port.is_required() {
                let message = format!("input `{}` has no known role", port.name());
                return Err(Error::refusal(message)
                    .at(&place)
                    .with_help(format!("inputs of encoders are {}", INPUTS.join(", "))));
            }
        }
        Ok(Encoder { session, layout, tokenizer, pad, max_length, file })
    }

    pub(crate) fn outputs(&self) -> &[Port] {
        self.session.outputs()
    }

    /// Runs the model on texts in batches of similar length, longest first, and gives each text's
    /// row of the output called `output` to `take`, with the number of the text.
    pub(crate) fn run_batches(
        &self,
        texts: &[Tokens],
        output: &str,
        options: &BatchOptions,
        take: &mut dyn FnMut(usize, &BatchOutput, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        // Longest first: the memory of the first batch serves all others.
        order.sort_by_key(|index| std::cmp::Reverse(texts[*index].ids.len()));
        for batch in order.chunks(options.batch_size.max(1)) {
            let rows: Vec<&Tokens> = batch.iter().map(|index| &texts[*index]).collect();
            let found = self.run_batch(&rows, output, options)?;
            if found.dims[0] != batch.len() {
                let message =
                    format!("output `{output}` has {} rows, not {}", found.dims[0], batch.len());
                return Err(Error::invalid(message));
            }
            for (row, index) in batch.iter().enumerate() {
                take(*index, &found, row)?;
            }
        }
        Ok(())
    }

    fn run_batch(
        &self,
        rows: &[&Tokens],
        output: &str,
        options: &BatchOptions,
    ) -> Result<BatchOutput, Error> {
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0).max(1);
        let dims = [rows.len(), longest];
        let mut inputs: Vec<(String, Value)> = Vec::new();
        for port in self.session.inputs() {
            if self.layout.has_input(port.name()) {
                continue;
            }
            let fill = |row: &Tokens, index: usize| -> i64 {
                let exists = index < row.ids.len();
                match port.name() {
                    "input_ids" => row.ids.get(index).map_or(self.pad, |id| i64::from(*id)),
                    "attention_mask" => i64::from(exists),
                    "token_type_ids" => row.type_ids.get(index).map_or(0, |id| i64::from(*id)),
                    _ => i64::try_from(index).unwrap_or(i64::MAX),
                }
            };
            if !INPUTS.contains(&port.name()) {
                continue;
            }
            let numbers = rows.iter().flat_map(|row| (0..longest).map(move |i| fill(row, i)));
            let data_type = port.ty().and_then(Type::elem).unwrap_or(DataType::Int64);
            let tensor = make_numbers(port.name(), data_type, &dims, numbers.collect())?;
            inputs.push((port.name().to_string(), tensor.into()));
        }
        inputs.extend(self.layout.make_empty(rows.len())?);
        let mut run = RunOptions::new();
        run.stop.clone_from(&options.stop);
        let outputs = self.session.run(inputs, &run)?;
        BatchOutput::new(outputs.tensor(output)?)
    }
}

/// Names of inputs of encoders that are not states.
const INPUTS: [&str; 4] = ["input_ids", "attention_mask", "token_type_ids", "position_ids"];

/// Reads the maximum length in `sentence_bert_config.json`.
fn read_length(files: &Files) -> Result<Option<usize>, Error> {
    match files.read_json("sentence_bert_config.json")? {
        Some(object) => object.count("max_seq_length"),
        None => Ok(None),
    }
}

impl BatchOutput {
    fn new(tensor: &Tensor) -> Result<BatchOutput, Error> {
        let values = match tensor.data_type() {
            DataType::Float => tensor.to_vec::<f32>()?,
            DataType::Float16 => tensor.as_slice::<f16>()?.iter().map(|v| v.to_f32()).collect(),
            DataType::Bfloat16 => tensor.as_slice::<bf16>()?.iter().map(|v| v.to_f32()).collect(),
            other => return Err(Error::refusal(format!("an output has the type {other}"))),
        };
        let dims = tensor.dims().to_vec();
        if !(2..=3).contains(&dims.len()) || values.is_empty() {
            return Err(Error::invalid(format!(
                "expected an output of the shape [texts, positions, features], found {dims:?}"
            )));
        }
        Ok(BatchOutput { values, dims })
    }

    /// Whether the output has features for each position.
    pub(crate) fn has_positions(&self) -> bool {
        self.dims.len() == 3
    }

    /// Returns the features of a text whose output has no positions.
    pub(crate) fn features(&self, row: usize) -> &[f32] {
        let size = self.dims[1..].iter().product::<usize>();
        &self.values[row * size..(row + 1) * size]
    }

    /// Returns the features of a position of a text.
    pub(crate) fn position(&self, row: usize, position: usize) -> Result<&[f32], Error> {
        let [_, positions, size] = self.dims[..] else {
            return Err(Error::invalid("an output has no positions"));
        };
        if position >= positions {
            return Err(Error::invalid("an output has fewer positions than the text has tokens"));
        }
        let start = (row * positions + position) * size;
        Ok(&self.values[start..start + size])
    }
}
