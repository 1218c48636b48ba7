//! Outputs that are scores of classes, shown as a ranking with bars.

use std::fmt::Write;
use std::path::PathBuf;

use sardonyx::{CastOptions, DataType, ErrorKind, Model, Tensor, cast};
use serde::Serialize;

use crate::failure::Failure;
use crate::files;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Show the K best classes of an output with scores
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    top: Option<u64>,
    /// Names of the classes: one per line, or a JSON array; by default from the model's metadata
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
pub(crate) struct Classes {
    top: Option<usize>,
    labels: Vec<String>,
}

/// The best classes of one row of an output.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Ranking {
    pub(crate) output: String,
    pub(crate) row: usize,
    pub(crate) classes: Vec<Class>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Class {
    pub(crate) index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    /// As the model gave it.
    pub(crate) score: f32,
    pub(crate) probability: f32,
}

/// Rows of a batch that are shown.
const SHOWN_ROWS: usize = 16;
const DEFAULT_TOP: usize = 5;
const BAR_CELLS: usize = 30;

impl Classes {
    pub(crate) fn new(args: &Args, model: &Model) -> Result<Classes, Failure> {
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
        })
    }

    /// The best classes of each row, if the tensor looks like scores: `[K]` or `[N, K]` floats with a label for each of the K, or
    /// with any K > 1 if a ranking was asked for.
    pub(crate) fn rank(
        &self,
        name: &str,
        tensor: &Tensor,
    ) -> Result<Option<Vec<Ranking>>, Failure> {
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
        let scores = cast(tensor, DataType::Float, CastOptions::default())?.to_vec::<f32>()?;
        let ranking = |(row, scores): (usize, &[f32])| {
            let probabilities = probabilities(scores);
            let mut order: Vec<usize> = (0..classes).collect();
            // Not a number comes last; equals stay in the order of their numbers.
            let key = |i: &usize| {
                if scores[*i].is_nan() {
                    f32::NEG_INFINITY
                } else {
                    scores[*i]
                }
            };
            order.sort_by(|a, b| key(b).total_cmp(&key(a)));
            order.truncate(self.top.unwrap_or(DEFAULT_TOP));
            let class = |index: usize| Class {
                index,
                label: labelled.then(|| self.labels[index].clone()),
                score: scores[index],
                probability: probabilities[index],
            };
            Ranking {
                output: name.to_string(),
                row,
                classes: order.into_iter().map(class).collect(),
            }
        };
        Ok(Some(
            scores.chunks(classes).enumerate().map(ranking).collect(),
        ))
    }
}

/// Scores that are probabilities already stay as they are (each within 0..1: softmax or independent sigmoids gave them); others go
/// through softmax.
fn probabilities(scores: &[f32]) -> Vec<f32> {
    if scores.iter().all(|score| (-1e-4..=1.0001).contains(score)) {
        return scores.iter().map(|score| score.clamp(0.0, 1.0)).collect();
    }
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f32 = exps.iter().filter(|exp| !exp.is_nan()).sum();
    exps.iter().map(|exp| exp / sum).collect()
}

fn parse_labels(text: &str) -> Result<Vec<String>, Failure> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let bad = |what: &dyn std::fmt::Display| {
        Failure::new(format!("the labels are no JSON array of strings: {what}"))
            .code(ErrorKind::Format)
    };
    let name = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.starts_with('[') {
        let list: Vec<serde_json::Value> =
            serde_json::from_str(text).map_err(|error| bad(&error))?;
        return Ok(list.iter().map(name).collect());
    }
    // As in the configuration files of transformers: {"0": "cat", "1": "dog"}.
    if text.starts_with('{') {
        let map: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|error| bad(&error))?;
        let mut entries = Vec::new();
        for (key, value) in &map {
            entries.push((
                key.parse::<usize>()
                    .map_err(|_| bad(&format!("key '{key}' is no number")))?,
                name(value),
            ));
        }
        entries.sort_by_key(|(index, _)| *index);
        if entries
            .iter()
            .enumerate()
            .any(|(i, (index, _))| i != *index)
        {
            return Err(bad(&"the keys do not run from 0 without gaps"));
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

/// The rankings of one output, with bars.
pub(crate) fn show(rankings: &[Ranking]) -> String {
    let mut text = String::new();
    let name = |class: &Class| {
        let label = class
            .label
            .clone()
            .unwrap_or_else(|| format!("class {}", class.index));
        label
            .replace(['\n', '\r', '\t'], " ")
            .chars()
            .take(40)
            .collect::<String>()
    };
    let width = rankings
        .iter()
        .take(SHOWN_ROWS)
        .flat_map(|ranking| &ranking.classes)
        .map(|class| name(class).chars().count())
        .max()
        .unwrap_or(0);
    for ranking in rankings.iter().take(SHOWN_ROWS) {
        if rankings.len() > 1 {
            let _ = writeln!(text, "{} [{}]", ranking.output, ranking.row);
        }
        for class in &ranking.classes {
            let bar = bar(class.probability);
            let _ = writeln!(
                text,
                "{:<width$}  {bar:<BAR_CELLS$}  {:>6.2} %",
                name(class),
                100.0 * class.probability
            );
        }
    }
    if rankings.len() > SHOWN_ROWS {
        let _ = writeln!(text, "… and {} more rows", rankings.len() - SHOWN_ROWS);
    }
    text
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

    #[test]
    fn scores_become_a_ranking() {
        let classes = Classes {
            top: None,
            labels: ["a", "b", "c"].map(str::to_string).to_vec(),
        };
        let rank = |dims: &[usize], values: &[f32]| {
            classes
                .rank("y", &Tensor::from_slice(dims, values).unwrap())
                .unwrap()
        };
        let rankings = rank(&[2, 3], &[0.1, 0.7, 0.2, 5.0, f32::NAN, -5.0]).unwrap();
        let order: Vec<usize> = rankings
            .iter()
            .flat_map(|r| r.classes.iter().map(|c| c.index))
            .collect();
        assert_eq!(order, [1, 2, 0, 0, 2, 1]);
        assert_eq!(rankings[0].classes[0].probability, 0.7);
        assert!((rankings[1].classes[0].probability - 1.0).abs() < 1e-3);
        let text = show(&rankings);
        assert!(
            text.contains(&format!("b  {}  ", "█".repeat(21))) && text.contains(" 70.00 %\n"),
            "{text}"
        );
        assert!(rank(&[4], &[0.0; 4]).is_none(), "four scores, three labels");
        assert!(rank(&[1, 1, 3], &[0.0; 3]).is_none());
        assert_eq!(bar(1.0).chars().count(), BAR_CELLS);
        assert_eq!((bar(0.0).as_str(), bar(f32::NAN).as_str()), ("", ""));
    }
}
