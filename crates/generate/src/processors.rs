//! Changes of the scores of the next token: penalties, bans and biases, each a [`Processor`].
//!
//! Grammars will be processors as well. Choosing among the changed scores is in `sampling.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::options::GenerateOptions;

/// Tokens before the one that is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History<'a> {
    /// Prompt and answer.
    pub(crate) tokens: &'a [u32],
    /// Number of tokens of the prompt.
    pub(crate) prompt: usize,
}

impl<'a> History<'a> {
    fn answer(&self) -> &'a [u32] {
        &self.tokens[self.prompt.min(self.tokens.len())..]
    }
}

/// Change of the scores of the next token.
pub(crate) trait Processor: std::fmt::Debug + Send + Sync {
    /// Changes scores in place; minus infinity bans a token.
    fn process(&self, history: History<'_>, scores: &mut [f32]);
}

/// Makes the processors that the options need, in the order in which they apply.
pub(crate) fn make_processors(options: &GenerateOptions) -> Vec<Box<dyn Processor>> {
    let mut list: Vec<Box<dyn Processor>> = Vec::new();
    if !options.logit_bias.is_empty() {
        list.push(Box::new(Bias { values: options.logit_bias.clone() }));
    }
    #[expect(clippy::float_cmp, reason = "exactly 1 changes nothing")]
    if options.repetition_penalty != 1.0 {
        list.push(Box::new(Repetition { factor: options.repetition_penalty }));
    }
    if options.frequency_penalty != 0.0 || options.presence_penalty != 0.0 {
        list.push(Box::new(Frequency {
            each: options.frequency_penalty,
            any: options.presence_penalty,
        }));
    }
    if options.no_repeat_ngram_size > 0 {
        list.push(Box::new(NoRepeat { size: options.no_repeat_ngram_size }));
    }
    if !options.bad_words_ids.is_empty() {
        let ends = &options.eos_token_id;
        // As in transformers, a ban of an end token alone is not honored.
        let sequences = options.bad_words_ids.iter();
        let sequences =
            sequences.filter(|words| !matches!(words[..], [token] if ends.contains(&token)));
        list.push(Box::new(BadWords { sequences: sequences.cloned().collect() }));
    }
    if options.min_length > 0 || options.min_new_tokens > 0 {
        list.push(Box::new(MinLength {
            total: options.min_length,
            new: options.min_new_tokens,
            ends: options.eos_token_id.clone(),
        }));
    }
    if !options.suppress_tokens.is_empty() {
        list.push(Box::new(Suppress { tokens: options.suppress_tokens.clone() }));
    }
    list
}

fn ban(scores: &mut [f32], token: u32) {
    if let Some(score) = scores.get_mut(token as usize) {
        *score = f32::NEG_INFINITY;
    }
}

#[derive(Debug)]
struct Bias {
    values: BTreeMap<u32, f32>,
}

impl Processor for Bias {
    fn process(&self, _: History<'_>, scores: &mut [f32]) {
        for (token, bias) in &self.values {
            if let Some(score) = scores.get_mut(*token as usize) {
                *score += bias;
            }
        }
    }
}

#[derive(Debug)]
struct Repetition {
    factor: f32,
}

impl Processor for Repetition {
    fn process(&self, history: History<'_>, scores: &mut [f32]) {
        let tokens: BTreeSet<u32> = history.tokens.iter().copied().collect();
        for token in tokens {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = if *score < 0.0 { *score * self.factor } else { *score / self.factor };
            }
        }
    }
}

#[derive(Debug)]
struct Frequency {
    /// Value subtracted for each time that the answer has a token.
    each: f32,
    /// Value subtracted once.
    any: f32,
}

impl Processor for Frequency {
    fn process(&self, history: History<'_>, scores: &mut [f32]) {
        let mut counts: BTreeMap<u32, f32> = BTreeMap::new();
        for token in history.answer() {
            *counts.entry(*token).or_default() += 1.0;
        }
        for (token, count) in counts {
            if let Some(score) = scores.get_mut(token as usize) {
                *score -= self.each * count + self.any;
            }
        }
    }
}

#[derive(Debug)]
struct NoRepeat {
    size: usize,
}

impl Processor for NoRepeat {
    fn process(&self, history: History<'_>, scores: &mut [f32]) {
        let tokens = history.tokens;
        if tokens.len() + 1 < self.size {
            return;
        }
        let last = &tokens[tokens.len() + 1 - self.size..];
        for window in tokens.windows(self.size) {
            if let Some((next, before)) = window.split_last()
                && before == last
            {
                ban(scores, *next);
            }
        }
    }
}

#[derive(Debug)]
struct BadWords {
    sequences: Vec<Vec<u32>>,
}

impl Processor for BadWords {
    fn process(&self, history: History<'_>, scores: &mut [f32]) {
        for sequence in &self.sequences {
            if let Some((last, before)) = sequence.split_last()
                && history.tokens.ends_with(before)
            {
                ban(scores, *last);
            }
        }
    }
}

#[derive(Debug)]
struct MinLength {
    total: usize,
    new: usize,
    ends: Vec<u32>,
}

impl Processor for MinLength {
    fn process(&self, history: History<'_>, scores: &mut [f32]) {
        if history.tokens.len() < self.total || history.answer().len() < self.new {
            for end in &self.ends {
                ban(scores, *end);
            }
        }
    }
}

#[derive(Debug)]
struct Suppress {
    tokens: Vec<u32>,
}

impl Processor for Suppress {
    fn process(&self, _: History<'_>, scores: &mut [f32]) {
        for token in &self.tokens {
            ban(scores, *token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GenerateOptions, History, make_processors};

    const OUT: f32 = f32::NEG_INFINITY;

    fn process(change: impl FnOnce(&mut GenerateOptions)) -> Vec<f32> {
        let mut options = GenerateOptions { eos_token_id: vec![0], ..GenerateOptions::default() };
        change(&mut options);
        let mut scores = vec![1.0, -1.0, 2.0, -2.0];
        // A prompt of two tokens and an answer of three.
        let history = History { tokens: &[2, 3, 1, 2, 2], prompt: 2 };
        for processor in make_processors(&options) {
            processor.process(history, &mut scores);
        }
        scores
    }

    #[test]
    fn each_option_changes_scores() {
        let rows: [(&str, fn(&mut GenerateOptions), [f32; 4]); 10] = [
            ("nothing", |_| {}, [1.0, -1.0, 2.0, -2.0]),
            ("bias", |o| o.logit_bias = [(1, 3.0), (9, 1.0)].into(), [1.0, 2.0, 2.0, -2.0]),
            ("repetition", |o| o.repetition_penalty = 2.0, [1.0, -2.0, 1.0, -4.0]),
            ("frequency", |o| o.frequency_penalty = 0.5, [1.0, -1.5, 1.0, -2.0]),
            ("presence", |o| o.presence_penalty = 0.5, [1.0, -1.5, 1.5, -2.0]),
            ("no 2-grams", |o| o.no_repeat_ngram_size = 2, [1.0, -1.0, OUT, OUT]),
            ("no 1-grams", |o| o.no_repeat_ngram_size = 1, [1.0, OUT, OUT, OUT]),
            (
                "bad words",
                |o| o.bad_words_ids = vec![vec![2, 2, 3], vec![1, 1], vec![0]],
                [1.0, -1.0, 2.0, OUT],
            ),
            ("min length", |o| o.min_new_tokens = 4, [OUT, -1.0, 2.0, -2.0]),
            ("suppress", |o| o.suppress_tokens = vec![1, 7], [1.0, OUT, 2.0, -2.0]),
        ];
        for (name, change, expected) in rows {
            assert_eq!(process(change), expected, "{name}");
        }
        assert_eq!(process(|o| o.min_length = 5)[0], 1.0);
        assert_eq!(process(|o| o.min_length = 6)[0], OUT);
    }
}
