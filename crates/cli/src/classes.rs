//! Ranks the classes of outputs that are class scores, and shows them with bars.

use std::convert::identity;
use std::fmt::Write;
use std::path::PathBuf;

use sardonyx::tool::{CastOptions, ModelExt, ScoreOperator, cast};
use sardonyx::{DataType, ErrorKind, Model, Tensor};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::pad_names;
use crate::{files, show};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Show the K classes with the highest scores; by default 5 if the classes have names
    #[arg(long, value_name = "K", value_parser = crate::human::parse_positive)]
    top: Option<u64>,
    /// Class names: one per line, or a JSON array; by default from the model's metadata
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
}

impl Args {
    /// Whether the arguments request a ranking. By default only models with labels get a
    /// ranking.
    pub(crate) fn is_requested(&self) -> bool {
        self.top.is_some() || self.labels.is_some()
    }
}

/// Settings for the ranking of class scores: number of classes to show, and class labels.
pub(crate) struct Classes<'m> {
    top: Option<usize>,
    labels: Vec<String>,
    model: &'m Model,
}

/// Meaning of the scores of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scores {
    /// Probabilities that sum to 1. `by_operator` if the model ends in Softmax; otherwise they are
    /// recognized by their sum.
    Probabilities { by_operator: bool },
    /// Logarithms of probabilities that sum to 1.
    Logarithms,
    /// Probability of each class independent of the others, as Sigmoid computes it.
    Independent,
    /// Scores that are not recognized as probabilities.
    Unknown,
}

impl Scores {
    fn name(self) -> &'static str {
        match self {
            Scores::Probabilities { .. } => "probabilities",
            Scores::Logarithms => "log-probabilities",
            Scores::Independent => "independent",
            Scores::Unknown => "scores",
        }
    }

    /// Returns an explanation of what the scores mean, in one line.
    fn describe(self) -> &'static str {
        match self {
            Scores::Probabilities { by_operator: true } => {
                "probabilities: the model ends in Softmax"
            }
            Scores::Probabilities { by_operator: false } => {
                "probabilities: the scores are between 0 and 1 and sum to 1"
            }
            Scores::Logarithms => {
                "probabilities: exp of the scores, as the model ends in LogSoftmax"
            }
            Scores::Independent => {
                "independent probabilities: the model ends in Sigmoid, and they do not sum to 1"
            }
            Scores::Unknown => "scores of the model; they are not probabilities",
        }
    }

    /// Converts a score to a probability; `None` if it is NaN or has an unknown meaning.
    fn to_probability(self, score: f32) -> Option<f32> {
        let found = match self {
            Scores::Probabilities { .. } | Scores::Independent => score,
            Scores::Logarithms => score.exp(),
            Scores::Unknown => return None,
        };
        (!found.is_nan()).then(|| found.clamp(0.0, 1.0))
    }
}

/// Classes with the highest scores in each row of a graph output, best first.
#[derive(Debug, PartialEq)]
pub(crate) struct Ranking {
    output: String,
    scores: Scores,
    rows: Vec<Vec<Class>>,
}

/// Class of a ranking, with its score.
#[derive(Debug, PartialEq)]
struct Class {
    index: usize,
    label: Option<String>,
    /// Score that the model computed for the class.
    score: f32,
    /// Probability of the class; `None` if the score does not determine one.
    probability: Option<f32>,
}

/// Maximum number of rows of a batch to show.
const SHOWN_ROWS: usize = 16;
/// Number of classes to show without `--top`.
const DEFAULT_TOP: usize = 5;
/// Length of the bar of probability 1, in characters.
const BAR_CELLS: usize = 30;
/// Maximum width of a label on a terminal, in columns.
const LABEL_COLUMNS: usize = 40;

impl<'m> Classes<'m> {
    /// Reads the class labels from the file of `--labels`, else from the metadata of the model.
    pub(crate) fn new(args: &Args, model: &'m Model) -> Result<Classes<'m>, Failure> {
        let labels = match &args.labels {
            Some(path) => {
                let bytes = files::read(path)?;
                let text = String::from_utf8_lossy(bytes.as_slice());
                let labels = parse_labels(&text).map_err(|failure| failure.at(path.display()))?;
                if labels.is_empty() {
                    return Err(Failure::new("the file of --labels has no class names")
                        .code(ErrorKind::Format)
                        .at(path.display()));
                }
                labels
            }
            // Metadata is only a hint: labels that cannot be parsed are ignored.
            None => ["labels", "classes"]
                .iter()
                .find_map(|key| model.metadata_value(key))
                .and_then(|text| parse_labels(&text).ok())
                .unwrap_or_default(),
        };
        Ok(Classes {
            top: args.top.map(|k| usize::try_from(k).unwrap_or(usize::MAX)),
            labels,
            model,
        })
    }

    /// Ranks the classes of each row if `tensor` looks like scores: `[K]` or `[N, K]` floats with a
    /// label for each of the K classes, or with any K > 1 if `--top` is given. Otherwise returns
    /// `None`.
    pub(crate) fn rank(&self, name: &str, tensor: &Tensor) -> Result<Option<Ranking>, Failure> {
        let (rows, classes) = match *tensor.dims() {
            [classes] => (1, classes),
            [rows, classes] => (rows, classes),
            _ => return Ok(None),
        };
        let labelled = !self.labels.is_empty() && self.labels.len() == classes;
        if !tensor.data_type().is_float()
            || rows == 0
            || classes < 2
            || !(labelled || self.top.is_some())
        {
            return Ok(None);
        }
        let values = cast(tensor, DataType::Float, CastOptions::default())?.to_vec::<f32>()?;
        let scores = classify_scores(self.model.find_score_operator(name), &values, classes);
        let mut rankings = Vec::new();
        for values in values.chunks(classes) {
            let mut order: Vec<usize> = (0..classes).collect();
            // NaN sorts last. The sort is stable: classes of equal score stay in ascending order.
            order.sort_by(|a, b| {
                let (a, b) = (values[*a], values[*b]);
                a.is_nan().cmp(&b.is_nan()).then(b.total_cmp(&a))
            });
            order.truncate(self.top.unwrap_or(DEFAULT_TOP));
            let best = order.into_iter().map(|index| Class {
                index,
                label: labelled.then(|| self.labels[index].clone()),
                score: values[index],
                probability: scores.to_probability(values[index]),
            });
            rankings.push(best.collect());
        }
        Ok(Some(Ranking { output: name.to_string(), scores, rows: rankings }))
    }
}

/// Maximum difference from 1 of a sum of probabilities that Softmax or LogSoftmax computed, whose
/// results may be rounded to few bits.
const OPERATOR_TOLERANCE: f64 = 0.02;
/// Maximum difference from 1 of a sum of scores that count as probabilities although no Softmax
/// computed them. A larger tolerance would accept other scores.
const TOLERANCE: f64 = 1e-3;

/// Determines the meaning of scores: from the operator that computes them if the scores are in its
/// range, else from the scores. Rows with scores that are infinite or NaN are ignored.
fn classify_scores(operator: Option<ScoreOperator>, values: &[f32], classes: usize) -> Scores {
    match operator {
        Some(ScoreOperator::Softmax)
            if are_probabilities(values, classes, identity, OPERATOR_TOLERANCE) =>
        {
            Scores::Probabilities { by_operator: true }
        }
        // A probability of 0 has an infinite logarithm.
        Some(ScoreOperator::LogSoftmax)
            if are_probabilities(values, classes, f64::exp, OPERATOR_TOLERANCE) =>
        {
            Scores::Logarithms
        }
        Some(ScoreOperator::Sigmoid)
            if values.iter().all(|score| score.is_nan() || is_probability((*score).into())) =>
        {
            Scores::Independent
        }
        _ if values.chunks(classes).any(is_finite)
            && are_probabilities(values, classes, identity, TOLERANCE) =>
        {
            Scores::Probabilities { by_operator: false }
        }
        _ => Scores::Unknown,
    }
}

/// Whether the scores of each finite row of `classes` elements, converted by `to_probability`, are
/// probabilities that sum to 1 within `tolerance`.
fn are_probabilities(
    values: &[f32],
    classes: usize,
    to_probability: fn(f64) -> f64,
    tolerance: f64,
) -> bool {
    values.chunks(classes).filter(|row| is_finite(row)).all(|row| {
        let probabilities: Vec<f64> =
            row.iter().map(|score| to_probability(f64::from(*score))).collect();
        probabilities.iter().all(|probability| is_probability(*probability))
            && (probabilities.iter().sum::<f64>() - 1.0).abs() <= tolerance
    })
}

fn is_finite(row: &[f32]) -> bool {
    row.iter().all(|score| score.is_finite())
}

/// Whether `score` is between 0 and 1, with room for rounding.
fn is_probability(score: f64) -> bool {
    (-1e-4..=1.0001).contains(&score)
}

/// Creates the failure for a file of labels that looks like JSON but is not a list of labels.
fn labels_error(reason: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the labels are not a JSON array of strings: {reason}"))
        .code(ErrorKind::Format)
}

/// Converts a JSON value to a label: strings without quotes, other values as JSON.
fn format_label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Parses labels: a JSON array, a JSON object with consecutive numbers as keys, or text with a
/// label on each line or between commas.
fn parse_labels(text: &str) -> Result<Vec<String>, Failure> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with('[') {
        let list: Vec<Value> = serde_json::from_str(text).map_err(labels_error)?;
        return Ok(list.iter().map(format_label).collect());
    }
    // The configuration files of transformers have objects: {"0": "cat", "1": "dog"}.
    if text.starts_with('{') {
        let map: serde_json::Map<String, Value> =
            serde_json::from_str(text).map_err(labels_error)?;
        let mut entries = Vec::new();
        for (key, value) in &map {
            let index = key.parse::<usize>();
            let index = index.map_err(|_| labels_error(format!("key '{key}' is not a number")))?;
            entries.push((index, format_label(value)));
        }
        entries.sort_by_key(|(index, _)| *index);
        if entries.iter().enumerate().any(|(i, (index, _))| i != *index) {
            return Err(labels_error("the keys are not consecutive numbers from 0"));
        }
        return Ok(entries.into_iter().map(|(_, label)| label).collect());
    }
    let separator = if text.contains('\n') { '\n' } else { ',' };
    Ok(text
        .split(separator)
        .map(|label| label.trim().to_string())
        .filter(|label| !label.is_empty())
        .collect())
}

impl Ranking {
    /// Returns the name of the output and an explanation of its scores in one line.
    pub(crate) fn note(&self) -> String {
        format!("'{}' has {}", self.output, self.scores.describe())
    }

    /// Draws the ranking as text: a line for each class, with a bar for its probability.
    pub(crate) fn text(&self) -> String {
        let shown = &self.rows[..self.rows.len().min(SHOWN_ROWS)];
        let labels: Vec<String> = shown
            .iter()
            .flatten()
            .map(|class| {
                let label = class.label.clone();
                label.unwrap_or_else(|| format!("class {}", class.index))
            })
            .collect();
        let mut labels = pad_names(labels.iter().map(String::as_str), LABEL_COLUMNS).into_iter();
        let mut text = String::new();
        for (row, classes) in shown.iter().enumerate() {
            if self.rows.len() > 1 {
                let _ = writeln!(text, "{} [{row}]", self.output);
            }
            for (class, label) in classes.iter().zip(&mut labels) {
                let _ = match class.probability {
                    Some(probability) => {
                        let (bar, percent) = (draw_bar(probability), 100.0 * probability);
                        writeln!(text, "{label}  {bar:<BAR_CELLS$}  {percent:>6.2} %")
                    }
                    None => writeln!(text, "{label}  {}", show::format_number(class.score.into())),
                };
            }
        }
        if self.rows.len() > SHOWN_ROWS {
            let _ = writeln!(text, "… and {} more rows", self.rows.len() - SHOWN_ROWS);
        }
        text
    }

    /// Converts the ranking to JSON objects, one for each row of the output.
    pub(crate) fn json(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().enumerate().map(|(row, classes)| {
            let classes = classes.iter().map(|class| {
                let mut answer = json!({"index": class.index});
                if let Some(label) = &class.label {
                    answer["label"] = json!(label);
                }
                answer["score"] = show::number_json(class.score);
                answer["probability"] = json!(class.probability);
                answer
            });
            json!({
                "output": self.output,
                "row": row,
                "scores": self.scores.name(),
                "note": self.scores.describe(),
                "classes": classes.collect::<Vec<_>>(),
            })
        })
    }
}

/// Draws a probability as a bar of at most [`BAR_CELLS`] characters, in eighths of a character.
fn draw_bar(probability: f32) -> String {
    let eighths = (probability.clamp(0.0, 1.0) * (8 * BAR_CELLS) as f32).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_in_several_forms() {
        let rows = [
            ("cat\r\ndog\n", vec!["cat", "dog"]),
            ("cat, dog", vec!["cat", "dog"]),
            ("[\"cat\", \"a\\nb\", 3]", vec!["cat", "a\nb", "3"]),
            ("{\"1\": \"dog\", \"0\": \"cat\"}", vec!["cat", "dog"]),
            ("", vec![]),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_labels(text).unwrap(), expected, "{text}");
        }
        assert!(
            parse_labels("[1, ").is_err()
                && parse_labels("{\"x\": 1}").is_err()
                && parse_labels("{\"7\": 1}").is_err()
        );
    }

    fn model(nodes: &str) -> Model {
        Model::from_text(&format!(
            "<ir_version: 10, opset_import: [\"\": 21]> g (float[2, 3] x) => (y) {{ {nodes} }}"
        ))
        .unwrap()
    }

    #[test]
    fn scores_become_a_ranking() {
        let model = model("y = Identity(x)");
        let classes = Classes {
            top: None,
            labels: ["a", "b", "c"].map(str::to_string).to_vec(),
            model: &model,
        };
        let rank = |dims: &[usize], values: &[f32]| {
            classes.rank("y", &Tensor::from_slice(dims, values).unwrap()).unwrap()
        };
        let order = |ranking: &Ranking| -> Vec<usize> {
            let classes = ranking.rows.iter().flatten();
            classes.map(|class| class.index).collect()
        };
        let ranking = rank(&[2, 3], &[0.1, 0.7, 0.2, 5.0, f32::NAN, f32::NEG_INFINITY]).unwrap();
        assert_eq!(order(&ranking), [1, 2, 0, 0, 2, 1]);
        assert_eq!(ranking.rows[0][0].probability, Some(0.7));
        let text = ranking.text();
        assert!(
            text.contains(&format!("b  {}  ", "█".repeat(21))) && text.contains(" 70.00 %\n"),
            "{text}"
        );
        assert!(
            ranking.note().starts_with("'y' has probabilities: the scores are between 0 and 1")
        );
        let ranking = rank(&[3], &[f32::INFINITY, 2.5, -1.0]).unwrap();
        assert_eq!(order(&ranking), [0, 1, 2]);
        let text = ranking.text();
        assert!(
            ranking.note().starts_with("'y' has scores of the model; they are not probabilities")
        );
        assert_eq!(text, "a  inf\nb  2.5\nc  -1\n");
        let json: Vec<Value> = ranking.json().collect();
        assert_eq!(json[0]["scores"], "scores");
        assert_eq!(json[0]["classes"][0]["score"], "inf");
        assert_eq!(json[0]["classes"][1]["score"], 2.5);
        assert_eq!(json[0]["classes"][1]["probability"], Value::Null);
        assert!(rank(&[4], &[0.0; 4]).is_none(), "four scores, three labels");
        assert!(rank(&[1, 1, 3], &[0.0; 3]).is_none());
        assert_eq!(draw_bar(1.0).chars().count(), BAR_CELLS);
        assert_eq!((draw_bar(0.0).as_str(), draw_bar(f32::NAN).as_str()), ("", ""));
    }

    #[test]
    fn scores_are_classified_by_operator_and_numbers() {
        use Scores::{Independent, Logarithms, Probabilities, Unknown};
        let third = (1.0f32 / 3.0).ln();
        let infinite = f32::INFINITY;
        let by_operator = Probabilities { by_operator: true };
        let by_numbers = Probabilities { by_operator: false };
        let rows: [(&str, [f32; 3], Scores); 11] = [
            ("y = Softmax(x)", [0.5, 0.3, 0.2], by_operator),
            // Rounded to float16.
            ("a = Softmax(x) y = Cast<to = 10>(a)", [0.5, 0.3, 0.21], by_operator),
            // Softmax along another axis.
            ("y = Softmax<axis = 0>(x)", [0.9, 0.8, 0.1], Unknown),
            ("y = Identity(x)", [0.5, 0.3, 0.2], by_numbers),
            ("y = Identity(x)", [0.5, 0.3, 0.21], Unknown),
            ("y = Identity(x)", [0.9, 0.8, 0.7], Unknown),
            ("y = Identity(x)", [7.0, 2.0, -3.0], Unknown),
            ("y = Identity(x)", [infinite, f32::NAN, 0.0], Unknown),
            ("y = LogSoftmax(x)", [third, third, third], Logarithms),
            ("y = Sigmoid(x)", [0.9, 0.8, 0.7], Independent),
            ("y = Sigmoid(x)", [0.9, f32::NAN, 0.7], Independent),
        ];
        for (nodes, values, expected) in rows {
            let model = model(nodes);
            let found = classify_scores(model.find_score_operator("y"), &values, 3);
            assert_eq!(found, expected, "{nodes} {values:?}");
        }
        let third = Logarithms.to_probability(third).unwrap();
        assert!((third - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(Independent.to_probability(f32::NAN), None);
    }
}
