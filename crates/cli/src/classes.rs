//! Outputs that are scores of classes, shown as a ranking with bars.

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
    /// Whether a ranking was asked for, rather than being the default.
    pub(crate) fn wanted(&self) -> bool {
        self.top.is_some() || self.labels.is_some()
    }
}

/// How classes are shown: how many, and under which names.
pub(crate) struct Classes<'m> {
    top: Option<usize>,
    labels: Vec<String>,
    model: &'m Model,
}

/// What the scores of an output are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scores {
    /// Probabilities that add up to 1, by the operator at the end or by the numbers alone.
    Probabilities { by_operator: bool },
    /// Logarithms of such probabilities.
    Logarithms,
    /// A probability for each class by itself.
    Independent,
    /// Anything else.
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

    /// What was done, in one line.
    fn note(self) -> &'static str {
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

    fn probability(self, score: f32) -> Option<f32> {
        let found = match self {
            Scores::Probabilities { .. } | Scores::Independent => score,
            Scores::Logarithms => score.exp(),
            Scores::Unknown => return None,
        };
        (!found.is_nan()).then(|| found.clamp(0.0, 1.0))
    }
}

/// The best classes of each row of an output.
#[derive(Debug, PartialEq)]
pub(crate) struct Ranking {
    output: String,
    scores: Scores,
    rows: Vec<Vec<Class>>,
}

#[derive(Debug, PartialEq)]
struct Class {
    index: usize,
    label: Option<String>,
    /// As the model gave it.
    score: f32,
    probability: Option<f32>,
}

/// Rows of a batch that are shown.
const SHOWN_ROWS: usize = 16;
const DEFAULT_TOP: usize = 5;
const BAR_CELLS: usize = 30;
/// Columns of a label on a terminal.
const LABEL_COLUMNS: usize = 40;

impl<'m> Classes<'m> {
    pub(crate) fn new(args: &Args, model: &'m Model) -> Result<Classes<'m>, Failure> {
        let labels = match &args.labels {
            Some(path) => {
                let bytes = files::read(path)?;
                let text = String::from_utf8_lossy(bytes.as_slice());
                let labels = parse_labels(&text).map_err(|failure| failure.at(path.display()))?;
                if labels.is_empty() {
                    return Err(Failure::new("the file has no labels")
                        .code(ErrorKind::Format)
                        .at(path.display()));
                }
                labels
            }
            // Metadata is a hint: what cannot be understood is as good as absent.
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

    /// The best classes of each row, if the tensor looks like scores: `[K]` or `[N, K]` floats with
    /// a label for each of the K, or with any K > 1 if a ranking was asked for.
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
        let scores = scores(self.model.score_operator(name), &values, classes);
        let best = |values: &[f32]| {
            let mut order: Vec<usize> = (0..classes).collect();
            // Not a number comes last; equals stay in the order of their numbers.
            order.sort_by(|a, b| {
                let (a, b) = (values[*a], values[*b]);
                a.is_nan().cmp(&b.is_nan()).then(b.total_cmp(&a))
            });
            order.truncate(self.top.unwrap_or(DEFAULT_TOP));
            let class = |index: usize| Class {
                index,
                label: labelled.then(|| self.labels[index].clone()),
                score: values[index],
                probability: scores.probability(values[index]),
            };
            order.into_iter().map(class).collect()
        };
        Ok(Some(Ranking {
            output: name.to_string(),
            scores,
            rows: values.chunks(classes).map(best).collect(),
        }))
    }
}

/// How far from 1 a sum of probabilities may be: those of an operator may have been rounded to few
/// bits, those without one must be exact, or scores would be taken for probabilities.
const OPERATOR_TOLERANCE: f64 = 0.02;
const TOLERANCE: f64 = 1e-3;

/// What scores are: by the operator that the output ends in, if the numbers agree with it, else by
/// the numbers. Rows with scores that are infinite or not a number have no say.
fn scores(operator: Option<ScoreOperator>, values: &[f32], classes: usize) -> Scores {
    let finite = |row: &&[f32]| row.iter().all(|score| score.is_finite());
    let is_share = |score: f64| (-1e-4..=1.0001).contains(&score);
    let add_up = |to_share: fn(f64) -> f64, tolerance: f64| {
        let mut rows = values.chunks(classes).filter(finite);
        rows.all(|row| {
            let shares = || row.iter().map(|score| to_share(f64::from(*score)));
            shares().all(is_share) && (shares().sum::<f64>() - 1.0).abs() <= tolerance
        })
    };
    let same = |score: f64| score;
    match operator {
        Some(ScoreOperator::Softmax) if add_up(same, OPERATOR_TOLERANCE) => {
            Scores::Probabilities { by_operator: true }
        }
        // A probability of 0 has an infinite logarithm.
        Some(ScoreOperator::LogSoftmax) if add_up(f64::exp, OPERATOR_TOLERANCE) => {
            Scores::Logarithms
        }
        Some(ScoreOperator::Sigmoid)
            if values.iter().all(|score| score.is_nan() || is_share(f64::from(*score))) =>
        {
            Scores::Independent
        }
        _ if values.chunks(classes).any(|row| finite(&row)) && add_up(same, TOLERANCE) => {
            Scores::Probabilities { by_operator: false }
        }
        _ => Scores::Unknown,
    }
}

fn parse_labels(text: &str) -> Result<Vec<String>, Failure> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let bad = |what: &dyn std::fmt::Display| {
        Failure::new(format!("the labels are not a JSON array of strings: {what}"))
            .code(ErrorKind::Format)
    };
    let name = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.starts_with('[') {
        let list: Vec<Value> = serde_json::from_str(text).map_err(|error| bad(&error))?;
        return Ok(list.iter().map(name).collect());
    }
    // As in the configuration files of transformers: {"0": "cat", "1": "dog"}.
    if text.starts_with('{') {
        let map: serde_json::Map<String, Value> =
            serde_json::from_str(text).map_err(|error| bad(&error))?;
        let mut entries = Vec::new();
        for (key, value) in &map {
            entries.push((
                key.parse::<usize>().map_err(|_| bad(&format!("key '{key}' is not a number")))?,
                name(value),
            ));
        }
        entries.sort_by_key(|(index, _)| *index);
        if entries.iter().enumerate().any(|(i, (index, _))| i != *index) {
            return Err(bad(&"the keys are not consecutive numbers from 0"));
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
    /// What the numbers are, in one line.
    pub(crate) fn note(&self) -> String {
        format!("'{}' has {}", self.output, self.scores.note())
    }

    /// A line for each class, with bars for probabilities.
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
                        let (bar, percent) = (bar(probability), 100.0 * probability);
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

    /// An object for each row.
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
                "note": self.scores.note(),
                "classes": classes.collect::<Vec<_>>(),
            })
        })
    }
}

/// A bar in eighths of a cell.
fn bar(probability: f32) -> String {
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
        assert_eq!(bar(1.0).chars().count(), BAR_CELLS);
        assert_eq!((bar(0.0).as_str(), bar(f32::NAN).as_str()), ("", ""));
    }

    #[test]
    fn what_scores_are_is_said_by_the_operator_and_the_numbers() {
        use Scores::{Independent, Logarithms, Probabilities, Unknown};
        let third = (1.0f32 / 3.0).ln();
        let infinite = f32::INFINITY;
        let by_operator = Probabilities { by_operator: true };
        let by_numbers = Probabilities { by_operator: false };
        let rows: [(&str, [f32; 3], Scores); 11] = [
            ("y = Softmax(x)", [0.5, 0.3, 0.2], by_operator),
            // Rounded to few bits.
            ("a = Softmax(x) y = Cast<to = 10>(a)", [0.5, 0.3, 0.21], by_operator),
            // Along another axis.
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
            let found = scores(model.score_operator("y"), &values, 3);
            assert_eq!(found, expected, "{nodes} {values:?}");
        }
        let third = Logarithms.probability(third).unwrap();
        assert!((third - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(Independent.probability(f32::NAN), None);
    }
}
