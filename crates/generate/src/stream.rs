//! [`TextStream`]: the loop of generation, one token of each member of a batch at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sardonyx::ErrorKind;

use crate::decoder::{BatchState, Scores};
use crate::error::Error;
use crate::generator::{Shared, make_run_options};
use crate::options::{ContextLimit, GenerateOptions};
use crate::processors::{History, Processor, make_processors};
use crate::sampling::{Draws, choose_token, log_softmax};
use crate::streaming::{Detokenizer, StopFinder};

/// Piece of an answer: a token, and the text that it completes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Piece {
    /// Number of the prompt, from 0.
    pub member: usize,
    /// Token that was chosen; `None` if generation was stopped before one.
    pub token: Option<u32>,
    /// Text of whole characters, which may be empty: a character may have several tokens, and what
    /// may begin a stop string is held back.
    pub text: String,
    /// Probability of the token, if `logprobs` is set.
    pub logprob: Option<TokenLogprob>,
    /// Reason for the end of the answer, if it ends with this piece.
    pub finish_reason: Option<FinishReason>,
}

/// Probability of a token by the model, before options change it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// Token that was chosen.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Most likely tokens with the logarithms of their probabilities, the most likely one first.
    pub top: Vec<(u32, f32)>,
}

/// Reason for the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FinishReason {
    /// The model chose an end token.
    EndToken,
    /// The text has a stop string.
    StopString,
    /// The answer has the maximum number of tokens, or the context of the model is full.
    Length,
    /// The flag or the deadline of the options ended it.
    Stopped,
}

impl FinishReason {
    /// Returns the stable name of the reason, such as `end-token`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::EndToken => "end-token",
            FinishReason::StopString => "stop-string",
            FinishReason::Length => "length",
            FinishReason::Stopped => "stopped",
        }
    }
}

/// Counts and times of generation.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Timing {
    /// Number of tokens of all prompts.
    pub prompt_tokens: usize,
    /// Number of these tokens whose keys and values an earlier call had computed.
    pub reused_tokens: usize,
    /// Time of reading prompts.
    pub prompt_time: Duration,
    /// Number of tokens of all answers.
    pub answer_tokens: usize,
    /// Number of these tokens that were computed by a step after the prompt.
    pub stepped_tokens: usize,
    /// Time of these steps.
    pub answer_time: Duration,
}

/// Iterator over the pieces of answers. Each call runs the model once, so dropping the iterator
/// ends generation.
#[derive(Debug)]
pub struct TextStream {
    shared: Arc<Shared>,
    options: GenerateOptions,
    processors: Vec<Box<dyn Processor>>,
    members: Vec<Member>,
    /// Members that share runs, one group after the other.
    groups: VecDeque<Vec<usize>>,
    current: Option<Group>,
    ready: VecDeque<Piece>,
    timing: Timing,
    has_failed: bool,
}

/// Prompt with its answer so far.
#[derive(Debug)]
struct Member {
    /// Prompt and answer.
    tokens: Vec<u32>,
    prompt: usize,
    /// Number of tokens at which the answer ends.
    max_new_tokens: usize,
    draws: Draws,
    detokenizer: Option<Detokenizer>,
    stops: StopFinder,
    is_finished: bool,
}

/// Members whose runs are shared.
#[derive(Debug)]
struct Group {
    /// Numbers of the members of the state, some of which may have ended.
    rows: Vec<usize>,
    state: Option<BatchState>,
}

/// Choice of a member's next token.
struct Chosen {
    token: u32,
    logprob: Option<TokenLogprob>,
}

impl TextStream {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        prompts: Vec<Vec<u32>>,
        options: &GenerateOptions,
    ) -> Result<TextStream, Error> {
        let mut members = Vec::new();
        for (index, prompt) in prompts.into_iter().enumerate() {
            let detokenizer = match shared.find_tokenizer() {
                Some(tokenizer) => {
                    Some(Detokenizer::new(tokenizer, &prompt, options.skip_special_tokens)?)
                }
                None => None,
            };
            members.push(Member {
                prompt: prompt.len(),
                max_new_tokens: options.answer_length(prompt.len()),
                tokens: prompt,
                draws: Draws::new(options.seed, index),
                detokenizer,
                stops: StopFinder::new(&options.stop_strings),
                is_finished: false,
            });
        }
        let timing = Timing {
            prompt_tokens: members.iter().map(|member| member.prompt).sum(),
            ..Timing::default()
        };
        Ok(TextStream {
            groups: shared.decoder.group(members.iter().map(|member| member.prompt)),
            shared: Arc::clone(shared),
            options: options.clone(),
            processors: make_processors(options),
            members,
            current: None,
            ready: VecDeque::new(),
            timing,
            has_failed: false,
        })
    }

    /// Returns counts and times so far.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns the number of tokens of each prompt.
    pub(crate) fn prompt_lengths(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|member| member.prompt)
    }

    /// Runs the model once and chooses a token for each member of the current group.
    fn advance(&mut self) -> Result<(), Error> {
        let group = match self.current.take() {
            Some(group) => group,
            None => match self.groups.pop_front() {
                Some(rows) => Group { rows, state: None },
                None => return Ok(()),
            },
        };
        let mut rows = group.rows;
        // Ends before a run if no token is wanted, or the flag is up already.
        if group.state.is_none() {
            let wants_none = |row: &usize| self.members[*row].max_new_tokens == 0;
            let done: Vec<usize> = rows.iter().copied().filter(wants_none).collect();
            for row in done {
                self.finish(row, FinishReason::Length)?;
            }
            rows.retain(|row| !self.members[*row].is_finished);
            if rows.is_empty() {
                return Ok(());
            }
        }
        let is_first = group.state.is_none();
        let started = Instant::now();
        let result = self.run(&mut rows, group.state);
        let (state, scores) = match result {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::Stopped => {
                for row in rows {
                    self.finish(row, FinishReason::Stopped)?;
                }
                // Later groups have not begun.
                for row in std::mem::take(&mut self.groups).into_iter().flatten() {
                    self.finish(row, FinishReason::Stopped)?;
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut active = 0;
        for (index, row) in rows.iter().enumerate() {
            if self.members[*row].is_finished {
                continue;
            }
            let chosen = self.choose(*row, index, &scores)?;
            self.take_token(*row, chosen)?;
            self.timing.answer_tokens += 1;
            self.timing.stepped_tokens += usize::from(!is_first);
            active += usize::from(!self.members[*row].is_finished);
        }
        let took = started.elapsed();
        if is_first {
            self.timing.prompt_time += took;
        } else {
            self.timing.answer_time += took;
        }
        if active > 0 {
            self.current = Some(Group { rows, state: Some(state) });
        } else if self.options.reuse_prefix {
            self.shared.keep(state);
        }
        Ok(())
    }

    /// Reads the prompts of a group, or the tokens that were chosen last.
    fn run(
        &mut self,
        rows: &mut Vec<usize>,
        state: Option<BatchState>,
    ) -> Result<(BatchState, Scores), Error> {
        let run = make_run_options(&self.options);
        let decoder = &self.shared.decoder;
        let limit = self.shared.config.context_length;
        let is_full =
            |row: &usize| limit.is_some_and(|limit| self.members[*row].tokens.len() >= limit);
        let pad = self.options.pad_token_id.or(self.options.eos_token_id.first().copied());
        let pad = pad.unwrap_or(0);
        if self.options.context == ContextLimit::Slide
            && rows.iter().any(|row| !self.members[*row].is_finished && is_full(row))
        {
            // Positions count from the first token that stays, so the model reads all again.
            rows.retain(|row| !self.members[*row].is_finished);
            let kept = limit.unwrap_or(usize::MAX) / 2;
            let prompts: Vec<Vec<u32>> = rows
                .iter()
                .map(|row| {
                    let tokens = &self.members[*row].tokens;
                    tokens[tokens.len().saturating_sub(kept.max(1))..].to_vec()
                })
                .collect();
            drop(state);
            let same = prompts.iter().all(|prompt| prompt.len() == prompts[0].len());
            if !same && !decoder.can_pad {
                return Err(Error::refusal("a batch of this model cannot slide its context"));
            }
            return decoder.start(&prompts, pad, &run);
        }
        let Some(mut state) = state else {
            if let [row] = rows[..] {
                let prompt = &self.members[row].tokens;
                let (state, scores, reused) = self.shared.start(prompt, &self.options, &run)?;
                self.timing.reused_tokens += reused;
                return Ok((state, scores));
            }
            let prompts: Vec<Vec<u32>> =
                rows.iter().map(|row| self.members[*row].tokens.clone()).collect();
            return decoder.start(&prompts, pad, &run);
        };
        // Members that have ended stay in the runs until they are half of the batch, or have no
        // position left: leaving them out copies the state.
        let active: Vec<usize> =
            (0..rows.len()).filter(|index| !self.members[rows[*index]].is_finished).collect();
        let overflows = rows.iter().any(|row| self.members[*row].is_finished && is_full(row));
        if active.len() * 2 <= rows.len() || overflows {
            decoder.select(&mut state, &active)?;
            *rows = active.iter().map(|index| rows[*index]).collect();
        }
        let next: Vec<u32> = rows
            .iter()
            .map(|row| match &self.members[*row] {
                member if member.is_finished => pad,
                member => member.tokens.last().copied().unwrap_or(pad),
            })
            .collect();
        for row in rows.iter() {
            let member = &mut self.members[*row];
            if member.is_finished {
                // Counts the position, as the state does.
                member.tokens.push(pad);
            }
        }
        let scores = self.shared.decoder.step(&mut state, &next, &run)?;
        Ok((state, scores))
    }

    /// Chooses the next token of a member, which is the row `index` of the scores.
    fn choose(&mut self, row: usize, index: usize, scores: &Scores) -> Result<Chosen, Error> {
        let member = &mut self.members[row];
        let mut last = Vec::new();
        scores.copy_last(index, &mut last)?;
        let logprobs = self.options.logprobs.map(|_| log_softmax(&last));
        let history = History { tokens: &member.tokens, prompt: member.prompt };
        for processor in &self.processors {
            processor.process(history, &mut last);
        }
        let token = choose_token(&self.options, &mut last, &mut member.draws)?;
        let logprob = logprobs.zip(self.options.logprobs).map(|(logprobs, count)| TokenLogprob {
            token,
            logprob: logprobs[token as usize],
            top: find_top(&logprobs, count),
        });
        Ok(Chosen { token, logprob })
    }

    /// Appends a chosen token to its member, and makes its piece.
    fn take_token(&mut self, row: usize, chosen: Chosen) -> Result<(), Error> {
        let Chosen { token, logprob } = chosen;
        let limit = self.shared.config.context_length;
        let member = &mut self.members[row];
        member.tokens.push(token);
        let mut piece = Piece {
            member: row,
            token: Some(token),
            text: String::new(),
            logprob,
            finish_reason: None,
        };
        let is_end = self.options.eos_token_id.contains(&token);
        let tokenizer = self.shared.find_tokenizer();
        if let (Some(detokenizer), Some(tokenizer)) = (&mut member.detokenizer, tokenizer) {
            // Leaves an end token out of the text, unless special tokens are in it.
            if !is_end || !self.options.skip_special_tokens {
                let released = member.stops.push(&detokenizer.push(tokenizer, token)?);
                piece.text = released.text;
                if released.is_end {
                    piece.finish_reason = Some(FinishReason::StopString);
                }
            }
        }
        let answer = member.tokens.len() - member.prompt;
        let is_full = self.options.context == ContextLimit::Refuse
            && limit.is_some_and(|limit| member.tokens.len() >= limit);
        if is_end {
            piece.finish_reason.get_or_insert(FinishReason::EndToken);
        } else if answer >= member.max_new_tokens || is_full {
            piece.finish_reason.get_or_insert(FinishReason::Length);
        }
        match piece.finish_reason {
            Some(FinishReason::StopString) => member.is_finished = true,
            Some(_) => {
                member.is_finished = true;
                piece.text += &self.release_text(row)?;
            }
            None => {}
        }
        self.ready.push_back(piece);
        Ok(())
    }

    /// Returns the text of a member that was held back.
    fn release_text(&mut self, row: usize) -> Result<String, Error> {
        let member = &mut self.members[row];
        let tokenizer = self.shared.find_tokenizer();
        let mut text = String::new();
        if let (Some(detokenizer), Some(tokenizer)) = (&mut member.detokenizer, tokenizer) {
            let released = member.stops.push(&detokenizer.finish(tokenizer)?);
            text += &released.text;
            if !released.is_end {
                text += &member.stops.finish();
            }
        }
        Ok(text)
    }

    /// Ends the answer of a member without a token.
    fn finish(&mut self, row: usize, reason: FinishReason) -> Result<(), Error> {
        if self.members[row].is_finished {
            return Ok(());
        }
        let text = self.release_text(row)?;
        self.members[row].is_finished = true;
        self.ready.push_back(Piece {
            member: row,
            token: None,
            text,
            logprob: None,
            finish_reason: Some(reason),
        });
        Ok(())
    }
}

/// Returns the `count` largest values with their indices, the largest first.
fn find_top(values: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut top: Vec<(u32, f32)> = Vec::new();
    let indexed = values.iter().enumerate().map(|(index, value)| (index, *value));
    for (index, value) in indexed {
        let is_less = |(_, found): &(u32, f32)| *found >= value;
        let place = top.partition_point(is_less);
        if place < count {
            top.insert(place, (u32::try_from(index).unwrap_or(u32::MAX), value));
            top.truncate(count);
        }
    }
    top
}

impl Iterator for TextStream {
    type Item = Result<Piece, Error>;

    fn next(&mut self) -> Option<Result<Piece, Error>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.has_failed || (self.current.is_none() && self.groups.is_empty()) {
                return None;
            }
            if let Err(error) = self.advance() {
                self.has_failed = true;
                return Some(Err(error));
            }
        }
    }
}

impl Drop for TextStream {
    /// Keeps keys and values for a later prompt that begins like this text.
    fn drop(&mut self) {
        if let Some(Group { state: Some(state), .. }) = self.current.take()
            && self.options.reuse_prefix
        {
            self.shared.keep(state);
        }
    }
}
