//! `sardonyx classify`: labels of texts, scores of documents, and labelled spans.

use sardonyx_generate::{Classifier, Label, Span};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::generate::LoadArgs;
use crate::human::{Align, cut_line, format_columns};
use crate::stopping::StopArgs;
use crate::terminal::Terminal;
use crate::texts::TextArgs;

/// Classify texts with a model of a directory, as it lies on a hub
///
/// A model that labels texts gives labels with probabilities, one that labels tokens gives spans,
/// and with --query each text gets a score of how well it answers the query.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    texts: TextArgs,
    /// Score the texts as answers to this query, best first
    #[arg(long, value_name = "TEXT", conflicts_with = "pair")]
    query: Option<String>,
    /// Classify pairs of this text and each of the texts
    #[arg(long, value_name = "TEXT")]
    pair: Option<String>,
    /// Number of labels of a text to show
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,
    #[command(flatten)]
    stop: StopArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.classify/1";

/// Runs `sardonyx classify`.
pub(crate) fn classify(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let mut classifier = Classifier::open_with(&args.load.directory, &args.load.to_options())?;
    if let Some(stop) = args.stop.to_run_options().stop {
        classifier = classifier.with_stop(&stop);
    }
    let texts = args.texts.read()?;
    if let Some(query) = &args.query {
        let scores = classifier.rerank(query, &texts)?;
        return show_scores(args, &texts, &scores, terminal);
    }
    if classifier.labels_tokens() {
        let spans = classifier.find_spans(&texts)?;
        return show_spans(args, &texts, &spans, terminal);
    }
    let labels = match &args.pair {
        Some(first) => classifier.classify_pairs(first, &texts)?,
        None => classifier.classify(&texts)?,
    };
    show_labels(args, &texts, &labels, terminal)
}

fn show_scores(
    args: &Args,
    texts: &[String],
    scores: &[f32],
    terminal: &Terminal,
) -> Result<(), Failure> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    if args.json {
        let ranked = order
            .iter()
            .map(|index| json!({"index": index, "text": texts[*index], "score": scores[*index]}));
        let ranked: Vec<Value> = ranked.collect();
        return terminal
            .json(&json!({"schema": SCHEMA, "query": args.query, "ranked": ranked}), true);
    }
    let rows: Vec<Vec<String>> = order
        .iter()
        .map(|index| vec![format!("{:.4}", scores[*index]), cut_line(&texts[*index])])
        .collect();
    let headings = [("score", Align::Right), ("text", Align::Left)];
    terminal.print(&(format_columns(&headings, &rows) + "\n"))
}

fn show_spans(
    args: &Args,
    texts: &[String],
    spans: &[Vec<Span>],
    terminal: &Terminal,
) -> Result<(), Failure> {
    if args.json {
        let answers = texts.iter().zip(spans).map(|(text, spans)| {
            let spans = spans.iter().map(|span| {
                json!({
                    "label": span.label,
                    "score": span.score,
                    "start": span.start,
                    "end": span.end,
                    "text": text.get(span.start..span.end),
                })
            });
            json!({"text": text, "spans": spans.collect::<Vec<_>>()})
        });
        let answers: Vec<Value> = answers.collect();
        return terminal.json(&json!({"schema": SCHEMA, "texts": answers}), true);
    }
    let mut rows = Vec::new();
    for (text, spans) in texts.iter().zip(spans) {
        for span in spans {
            let part = text.get(span.start..span.end).unwrap_or_default();
            rows.push(vec![span.label.clone(), format!("{:.4}", span.score), cut_line(part)]);
        }
    }
    let headings = [("label", Align::Left), ("score", Align::Right), ("span", Align::Left)];
    terminal.print(&(format_columns(&headings, &rows) + "\n"))
}

fn show_labels(
    args: &Args,
    texts: &[String],
    labels: &[Vec<Label>],
    terminal: &Terminal,
) -> Result<(), Failure> {
    if args.json {
        let answers = texts.iter().zip(labels).map(|(text, labels)| {
            let labels = labels.iter().take(args.top);
            let labels = labels.map(|label| json!({"label": label.label, "score": label.score}));
            json!({"text": text, "labels": labels.collect::<Vec<_>>()})
        });
        let answers: Vec<Value> = answers.collect();
        return terminal.json(&json!({"schema": SCHEMA, "texts": answers}), true);
    }
    let mut rows = Vec::new();
    for (text, labels) in texts.iter().zip(labels) {
        for (place, label) in labels.iter().take(args.top).enumerate() {
            let text = if place == 0 { cut_line(text) } else { String::new() };
            rows.push(vec![text, label.label.clone(), format!("{:.4}", label.score)]);
        }
    }
    let headings = [("text", Align::Left), ("label", Align::Left), ("score", Align::Right)];
    terminal.print(&(format_columns(&headings, &rows) + "\n"))
}
