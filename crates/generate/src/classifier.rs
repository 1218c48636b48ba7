//! [`Classifier`]: labels of texts, scores of pairs, and labelled spans.

use std::path::Path;

use sardonyx::StopFlag;

use crate::config::Config;
use crate::encoder::{BATCH_SIZE, BatchOptions, BatchOutput, Encoder};
use crate::error::Error;
use crate::files::Files;
use crate::loading::LoadOptions;
use crate::sampling::softmax;
use crate::tokenizer::Tokens;

/// Model that gives labels to texts, to pairs of texts, or to spans of a text.
///
/// ```no_run
/// use sardonyx_generate::Classifier;
///
/// let classifier = Classifier::open("distilbert-sst2")?;
/// let labels = classifier.classify(&["a fine film"])?;
/// println!("{} {}", labels[0][0].label, labels[0][0].score);
/// # Ok::<(), sardonyx_generate::Error>(())
/// ```
#[derive(Debug)]
pub struct Classifier {
    encoder: Encoder,
    config: Config,
    stop: Option<StopFlag>,
}

/// Label of a text with its probability.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Label {
    /// Name of the class.
    pub label: String,
    /// Probability of the class, from 0 to 1.
    pub score: f32,
}

/// Labelled part of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Span {
    /// Name of the class, without the prefixes `B-` and `I-`.
    pub label: String,
    /// Mean probability of the class over the tokens of the span.
    pub score: f32,
    /// First byte of the span in the text.
    pub start: usize,
    /// Byte after the last one of the span.
    pub end: usize,
}

/// Output that classifiers have.
const OUTPUT: &str = "logits";

impl Classifier {
    /// Opens the classifier in a directory.
    ///
    /// # Errors
    ///
    /// If files are missing or contradict each other, or the model has no output `logits`.
    pub fn open(directory: impl AsRef<Path>) -> Result<Classifier, Error> {
        Classifier::open_with(directory, &LoadOptions::default())
    }

    /// Opens the classifier in a directory, with options such as the file of a variant.
    ///
    /// # Errors
    ///
    /// Those of [`Classifier::open`].
    pub fn open_with(directory: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, Error> {
        let files = Files::open(directory.as_ref())?;
        let config = Config::read(&files)?;
        let encoder = Encoder::open(&files, &config, options)?;
        if !encoder.outputs().iter().any(|output| output.name() == OUTPUT) {
            return Err(Error::refusal(format!(
                "has no output `{OUTPUT}`, so it is no classifier"
            ))
            .at(&files.root().join(&encoder.file))
            .with_help("an encoder without classes gives vectors: embed the texts"));
        }
        Ok(Classifier { encoder, config, stop: None })
    }

    /// Sets the flag that cancels calls.
    #[must_use]
    pub fn with_stop(mut self, stop: &StopFlag) -> Classifier {
        self.stop = Some(stop.clone());
        self
    }

    /// Whether the model labels the tokens of a text, so that [`Classifier::find_spans`] is the
    /// call to use.
    pub fn labels_tokens(&self) -> bool {
        self.config.architectures.iter().any(|name| name.ends_with("ForTokenClassification"))
    }

    /// Returns the label of a class by its number.
    fn label(&self, class: usize) -> String {
        let known = self.config.labels.get(&class);
        known.cloned().unwrap_or_else(|| format!("LABEL_{class}"))
    }

    /// Returns all labels of each text with their probabilities, the most likely one first.
    ///
    /// # Errors
    ///
    /// If the model labels tokens, or a run fails.
    pub fn classify(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<Label>>, Error> {
        let tokens = texts.iter().map(|text| self.encoder.tokenizer.encode(text.as_ref(), true));
        let tokens: Vec<Tokens> = tokens.collect::<Result<_, _>>()?;
        let probabilities = self.compute(&tokens)?;
        Ok(probabilities.into_iter().map(|text| self.sort_labels(&text)).collect())
    }

    /// Returns all labels of each pair of a first text with another, the most likely one first.
    ///
    /// # Errors
    ///
    /// If the model labels tokens, or a run fails.
    pub fn classify_pairs(
        &self,
        first: &str,
        others: &[impl AsRef<str>],
    ) -> Result<Vec<Vec<Label>>, Error> {
        let probabilities = self.compute(&self.encode_pairs(first, others)?)?;
        Ok(probabilities.into_iter().map(|pair| self.sort_labels(&pair)).collect())
    }

    /// Returns how well each document answers a query, from 0 to 1, in the order of the documents.
    /// Models of one class are rerankers; of more classes the last one counts.
    ///
    /// # Errors
    ///
    /// If the model labels tokens, or a run fails.
    pub fn rerank(&self, query: &str, documents: &[impl AsRef<str>]) -> Result<Vec<f32>, Error> {
        let probabilities = self.compute(&self.encode_pairs(query, documents)?)?;
        Ok(probabilities.iter().map(|pair| pair.last().copied().unwrap_or(0.0)).collect())
    }

    fn encode_pairs(&self, first: &str, others: &[impl AsRef<str>]) -> Result<Vec<Tokens>, Error> {
        let tokenizer = &self.encoder.tokenizer;
        others.iter().map(|other| tokenizer.encode_pair(first, other.as_ref(), true)).collect()
    }

    /// Computes the probabilities of all classes for each text.
    fn compute(&self, tokens: &[Tokens]) -> Result<Vec<Vec<f32>>, Error> {
        let mut probabilities = vec![Vec::new(); tokens.len()];
        let is_multiple = self.config.problem_type.as_deref() == Some("multi_label_classification");
        let mut take = |index: usize, output: &BatchOutput, row: usize| {
            if output.has_positions() {
                return Err(Error::refusal("the model labels tokens, not texts")
                    .with_help("find spans in place of classifying texts"));
            }
            let scores = output.features(row);
            probabilities[index] = if is_multiple || scores.len() == 1 {
                scores.iter().map(|score| sigmoid(*score)).collect()
            } else {
                softmax(scores)
            };
            Ok(())
        };
        self.encoder.run_batches(tokens, OUTPUT, &self.batches(), &mut take)?;
        Ok(probabilities)
    }

    fn batches(&self) -> BatchOptions {
        BatchOptions { batch_size: BATCH_SIZE, stop: self.stop.clone() }
    }

    fn sort_labels(&self, probabilities: &[f32]) -> Vec<Label> {
        let labels = probabilities.iter().enumerate();
        let mut labels: Vec<Label> = labels
            .map(|(class, score)| Label { label: self.label(class), score: *score })
            .collect();
        labels.sort_by(|a, b| b.score.total_cmp(&a.score));
        labels
    }

    /// Returns the labelled spans of each text. Adjacent tokens of a class are one span, unless
    /// the second begins another by the prefix `B-`. Tokens of the class `O` have none.
    ///
    /// # Errors
    ///
    /// If the model labels texts, or a run fails.
    pub fn find_spans(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<Span>>, Error> {
        let tokens = texts.iter().map(|text| self.encoder.tokenizer.encode(text.as_ref(), true));
        let tokens: Vec<Tokens> = tokens.collect::<Result<_, _>>()?;
        let mut spans = vec![Vec::new(); texts.len()];
        let mut take = |index: usize, output: &BatchOutput, row: usize| {
            if !output.has_positions() {
                return Err(Error::refusal("the model labels texts, not tokens")
                    .with_help("classify texts in place of finding spans"));
            }
            let mut builder = SpanBuilder::default();
            for (position, offsets) in tokens[index].offsets.iter().enumerate() {
                // Special tokens are not in the text.
                if tokens[index].words[position].is_none() || offsets.0 == offsets.1 {
                    continue;
                }
                let probabilities = softmax(output.position(row, position)?);
                let best = probabilities.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
                let Some((class, score)) = best else {
                    continue;
                };
                let token = LabelledToken { label: self.label(class), score: *score };
                builder.push(&token, offsets.0, offsets.1);
            }
            spans[index] = builder.finish();
            Ok(())
        };
        self.encoder.run_batches(&tokens, OUTPUT, &self.batches(), &mut take)?;
        Ok(spans)
    }
}

/// Most likely class of a token.
struct LabelledToken {
    label: String,
    score: f32,
}

/// Joins labelled tokens to spans.
#[derive(Default)]
struct SpanBuilder {
    spans: Vec<Span>,
    open: Option<Span>,
    /// Number of tokens of the open span, and the sum of their probabilities.
    count: f32,
    sum: f32,
}

impl SpanBuilder {
    fn push(&mut self, token: &LabelledToken, start: usize, end: usize) {
        let (begins, class) = match token.label.split_at_checked(2) {
            Some(("B-", class)) => (true, class),
            Some(("I-", class)) => (false, class),
            _ => (false, token.label.as_str()),
        };
        if class == "O" {
            self.close();
            return;
        }
        match &mut self.open {
            Some(span) if span.label == class && !begins => span.end = end,
            _ => {
                self.close();
                self.open = Some(Span { label: class.to_string(), score: 0.0, start, end });
            }
        }
        self.count += 1.0;
        self.sum += token.score;
    }

    fn close(&mut self) {
        if let Some(span) = self.open.take() {
            self.spans.push(Span { score: self.sum / self.count, ..span });
        }
        self.count = 0.0;
        self.sum = 0.0;
    }

    fn finish(mut self) -> Vec<Span> {
        self.close();
        self.spans
    }
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

#[cfg(test)]
mod tests {
    use super::{LabelledToken, SpanBuilder};

    #[test]
    fn tokens_are_joined_to_spans() {
        let rows: [(&[&str], &[(&str, usize, usize)]); 4] = [
            (&["B-PER", "I-PER", "O", "B-LOC"], &[("PER", 0, 2), ("LOC", 3, 4)]),
            (&["B-PER", "B-PER", "I-LOC"], &[("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 3)]),
            (&["NOUN", "NOUN", "VERB"], &[("NOUN", 0, 2), ("VERB", 2, 3)]),
            (&["O", "O"], &[]),
        ];
        for (labels, expected) in rows {
            let mut builder = SpanBuilder::default();
            for (index, label) in labels.iter().enumerate() {
                let token = LabelledToken { label: label.to_string(), score: 0.5 };
                builder.push(&token, index, index + 1);
            }
            let spans = builder.finish();
            let found: Vec<(&str, usize, usize)> =
                spans.iter().map(|span| (span.label.as_str(), span.start, span.end)).collect();
            assert_eq!(found, expected, "{labels:?}");
            assert!(spans.iter().all(|span| span.score == 0.5));
        }
    }
}
