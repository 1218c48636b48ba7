//! Kinds of models, how fast we are on each as a whole, and how fast we have to be.

use super::cases::{Case, model_of};
use super::row::{Measured, Row};
use super::sides::MustHold;
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Group {
    /// Transformers on many positions at once.
    Prefill,
    /// Transformers on one position, with what came before it given.
    Decode,
    Convolutions,
    /// Convolution networks that normalise across channels, which the rival is slow at.
    LocalResponses,
    /// Many nodes that do next to nothing.
    SmallNodes,
    /// Loops whose turns do next to nothing.
    Loops,
    /// Recurrent and quantised networks, pipelines, trees.
    Others,
}

impl Group {
    const ALL: [Group; 7] = [
        Group::Prefill,
        Group::Decode,
        Group::Convolutions,
        Group::LocalResponses,
        Group::SmallNodes,
        Group::Loops,
        Group::Others,
    ];

    fn of_case(case: &str) -> Group {
        match model_of(case) {
            _ if LOCAL_RESPONSES.contains(&case) => Group::LocalResponses,
            _ if case.ends_with(".decode") => Group::Decode,
            _ if case.ends_with(".prefill") => Group::Prefill,
            "bert_base" | "vit_b_16" => Group::Prefill,
            "convnext_tiny" | "light" | "mobilenet_v3" | "resnet50" | "yolov8n_like" => {
                Group::Convolutions
            }
            "nodes" => Group::SmallNodes,
            "loops" => Group::Loops,
            _ => Group::Others,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Prefill => "transformers",
            Group::Decode => "transformers, decoding",
            Group::Convolutions => "convolution networks",
            Group::LocalResponses => "convolution networks with LRN",
            Group::SmallNodes => "many small nodes",
            Group::Loops => "loops",
            Group::Others => "others",
        }
    }

    /// Returns the lowest accepted geometric mean of speeds.
    fn bar(self) -> Option<f64> {
        match self {
            Group::Prefill => Some(1.0),
            Group::Decode => Some(0.95),
            Group::Convolutions => Some(1.2),
            Group::LocalResponses | Group::SmallNodes | Group::Loops | Group::Others => None,
        }
    }

    fn is_of_convolutions(self) -> bool {
        matches!(self, Group::Convolutions | Group::LocalResponses)
    }
}

/// The networks of [`Group::LocalResponses`].
const LOCAL_RESPONSES: [&str; 3] = ["light.bvlc_alexnet", "light.inception_v1", "light.zfnet512"];

/// The smallest speeds of models and cases that will do, where that is not [`cell_bar`]'s.
const SPEED_BARS: [(&str, f64); 12] = [
    ("convnext_tiny", 1.30),
    ("light.bvlc_alexnet", 1.6),
    ("light.densenet121", 1.10),
    ("light.inception_v1", 1.6),
    ("light.shufflenet", 1.10),
    ("light.squeezenet", 1.10),
    ("light.vgg19", 1.10),
    ("light.zfnet512", 1.6),
    ("mobilenet_v3.b1", 1.05),
    ("mobilenet_v3.b8", 1.25),
    ("resnet50", 1.10),
    ("yolov8n_like", 1.15),
];

/// Returns the lowest accepted speed of a case.
fn cell_bar(case: &str) -> f64 {
    let own = SPEED_BARS.iter().find(|(name, _)| [case, model_of(case)].contains(name));
    let of_group = if Group::of_case(case).is_of_convolutions() { 1.0 } else { 0.8 };
    own.map_or(of_group, |(_, bar)| *bar)
}

/// Lowest accepted speed-up of runs with fewer bits, and the models that must reach it.
const FAST_BAR: f64 = 1.5;
const FAST: [&str; 3] = ["convnext_tiny", "resnet50", "yolov8n_like"];
/// Highest accepted ratio of the memory of convolution networks to ONNX Runtime's.
const MEMORY_RATIO_BAR: f64 = 1.0;

/// The largest part of ONNX Runtime's time that creating a session may take.
const SESSION_BAR: f64 = 0.4;

/// Computes the highest accepted memory of a process in MiB: packed weights may leave a fourth
/// more, live values a tenth.
fn memory_bar(must_hold: MustHold) -> f64 {
    const MIB: f64 = 1024.0 * 1024.0;
    (1.25 * must_hold.packed + 1.1 * must_hold.live + 30e6) / MIB
}

/// The smallest speed of turns that add one number.
const SCALAR_TURN_BAR: f64 = 10.0;

/// The most nanoseconds that a node of those that do next to nothing may take.
const NODE_BAR: f64 = 200.0;
/// Highest accepted ratio of the time per node of creating a session with many nodes to that with
/// few: the time is to be linear, apart from caches.
const LINEAR_BAR: f64 = 1.5;

/// Result of all rows of a group.
pub(super) struct Summary {
    pub(super) group: Group,
    pub(super) cells: usize,
    /// Geometric means of [`Measured::speed`] and [`Measured::median_speed`].
    pub(super) best: f64,
    pub(super) median: f64,
    /// The smallest speed, by the best runs, and whose it is.
    pub(super) smallest: f64,
    pub(super) slowest: String,
}

/// Summarizes each group with measurements.
pub(super) fn summaries(rows: &[Row]) -> Vec<Summary> {
    let summary = |group: Group| {
        let cells: Vec<(&Row, &Measured)> = rows
            .iter()
            .filter(|row| Group::of_case(&row.case) == group)
            .filter_map(|row| Some((row, row.as_measured()?)))
            .collect();
        let (slowest, measured) =
            cells.iter().min_by(|(_, a), (_, b)| a.speed().total_cmp(&b.speed()))?;
        let mean = |speed: fn(&Measured) -> f64| {
            let logarithms = cells.iter().map(|(_, measured)| speed(measured).ln());
            (logarithms.sum::<f64>() / cells.len() as f64).exp()
        };
        Some(Summary {
            group,
            cells: cells.len(),
            best: mean(Measured::speed),
            median: mean(Measured::median_speed),
            smallest: measured.speed(),
            slowest: slowest.name(),
        })
    };
    Group::ALL.into_iter().filter_map(summary).collect()
}

impl Summary {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "group": self.group.name(),
            "cells": self.cells,
            "speed": { "best": self.best, "median": self.median },
            "smallest": self.smallest,
            "slowest": self.slowest,
        })
    }
}

/// Lists the bars that are not reached, errors included. Bars of speed use the best runs, which
/// other processes disturb least.
pub(super) fn missed_bars(rows: &[Row], summaries: &[Summary]) -> Vec<String> {
    let mut missed = Vec::new();
    for summary in summaries {
        if let Some(bar) = summary.group.bar().filter(|bar| summary.best < *bar) {
            let (group, mean) = (summary.group.name(), summary.best);
            missed.push(format!(
                "{group}: {mean:.3} times as fast in the geometric mean, the bar is {bar}"
            ));
        }
    }
    for (row, measured) in rows.iter().filter_map(|row| Some((row, row.as_measured()?))) {
        let (name, speed) = (row.name(), measured.speed());
        let bar = cell_bar(&row.case);
        if speed < bar {
            missed.push(format!("{name}: {speed:.3} times as fast, the bar is {bar}"));
        }
        missed.extend(of_convolutions(row, measured));
        if row.case == "loops.scalar" && speed < SCALAR_TURN_BAR {
            missed.push(format!("{name}: {speed:.1} times as fast, the bar is {SCALAR_TURN_BAR}"));
        }
        let session = measured.session_ratio();
        if session > SESSION_BAR {
            missed.push(format!(
                "{name}: creating the session takes {session:.2} of the rival's time, the bar is {SESSION_BAR}"
            ));
        }
        let is_transformer = matches!(Group::of_case(&row.case), Group::Prefill | Group::Decode);
        if let Some(must_hold) = measured.must_hold().filter(|_| is_transformer) {
            let peak = measured.median(|round| round.ours.rss_peak_mb);
            let bar = memory_bar(must_hold);
            if peak > bar {
                missed.push(format!("{name}: {peak:.0} MB of memory, the bar is {bar:.0}"));
            }
        }
        missed.extend(row.inaccurate());
        if let Some(nodes) = Case::node_count(&row.case) {
            let ns = measured.best(|round| round.ours.min_ms) * 1e6 / f64::from(nodes);
            if ns > NODE_BAR {
                missed.push(format!("{name}: {ns:.0} ns for a node, the bar is {NODE_BAR}"));
            }
        }
    }
    missed.extend(nonlinear(rows));
    missed
}

/// Lists the bars that a convolution network misses, apart from speed.
fn of_convolutions(row: &Row, measured: &Measured) -> Vec<String> {
    let (name, mut missed) = (row.name(), Vec::new());
    let memory = measured.memory_ratio();
    if Group::of_case(&row.case).is_of_convolutions() && memory >= MEMORY_RATIO_BAR {
        missed.push(format!(
            "{name}: {memory:.2} of the rival's memory, the bar is below {MEMORY_RATIO_BAR}"
        ));
    }
    let fast = measured.fast_best().filter(|_| FAST.contains(&model_of(&row.case)));
    if let Some(fast) = fast {
        let gain = measured.best(|round| round.ours.min_ms) / fast;
        if gain < FAST_BAR {
            missed.push(format!("{name}: fast is {gain:.2} times as fast, the bar is {FAST_BAR}"));
        }
    }
    missed
}

/// Lists the numbers of threads with which session creation takes longer per node of the larger
/// model.
fn nonlinear(rows: &[Row]) -> Vec<String> {
    let per_node = |row: &Row| {
        let ms = row.as_measured()?.best(|round| round.ours.load_ms);
        Some(ms / f64::from(Case::node_count(&row.case)?))
    };
    let pairs = rows.iter().flat_map(|few| rows.iter().map(move |many| (few, many)));
    let pairs = pairs.filter(|(few, many)| {
        few.threads == many.threads && Case::node_count(&few.case) < Case::node_count(&many.case)
    });
    pairs
        .filter_map(|(few, many)| {
            let growth = per_node(many)? / per_node(few)?;
            (growth > LINEAR_BAR).then(|| {
                let name = many.name();
                format!("{name}: creating the session takes {growth:.2} times as long for a node as in {}", few.case)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::Outcome;
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn cases_belong_to_groups() {
        for (case, group) in [
            ("bert_base.b8", Group::Prefill),
            ("bert_base_int8dyn.b8", Group::Others),
            ("gpt2.prefill", Group::Prefill),
            ("gpt2.decode", Group::Decode),
            ("resnet50.b1", Group::Convolutions),
            ("light.vgg19", Group::Convolutions),
            ("light.zfnet512", Group::LocalResponses),
            ("resnet50_qdq.b1", Group::Others),
            ("nodes.25k", Group::SmallNodes),
            ("loops.scalar", Group::Loops),
            ("lstm.b1", Group::Others),
        ] {
            assert_eq!(Group::of_case(case), group, "{case}");
        }
    }

    #[test]
    fn cases_have_their_own_bars() {
        for (case, bar) in [
            ("bert_base.b8", 0.8),
            ("light.inception_v2", 1.0),
            ("light.zfnet512", 1.6),
            ("mobilenet_v3.b1", 1.05),
            ("mobilenet_v3.b8", 1.25),
            ("resnet50.b8", 1.10),
            ("resnet50_qdq.b8", 0.8),
        ] {
            assert_eq!(cell_bar(case), bar, "{case}");
        }
    }

    #[test]
    fn convolution_networks_have_bars_of_memory_and_of_fewer_bits() {
        for (case, rss, fast, misses) in [
            ("resnet50.b1", 90.0, 0.6, 0),
            ("resnet50.b1", 90.0, 0.7, 1),
            ("resnet50.b1", 100.0, 0.7, 2),
            ("light.vgg19", 90.0, 0.9, 0),
            ("gpt2.decode", 100.0, 0.9, 0),
        ] {
            let [mut row, fewer_bits] = [row(case, 1, 2.0, 1.0), row(case, 1, 2.0, fast)];
            let (Outcome::Measured(measured), Outcome::Measured(mut fewer_bits)) =
                (&mut row.outcome, fewer_bits.outcome)
            else {
                panic!("measured rows");
            };
            measured.rounds[0].ours.rss_peak_mb = rss;
            measured.rounds[0].fast = fewer_bits.rounds.pop().map(|round| round.ours);
            let missed = missed_bars(&[row], &[]);
            assert_eq!(missed.len(), misses, "{case} {missed:?}");
        }
    }

    #[test]
    fn memory_has_a_bar() {
        let must_hold = MustHold { packed: 400.0 * 1024.0 * 1024.0, live: 0.0 };
        for (peak, misses) in [(500.0, 0), (530.0, 1)] {
            let mut row = row("gpt2.decode", 1, 1.0, 1.0);
            let Outcome::Measured(measured) = &mut row.outcome else {
                panic!("a measured row");
            };
            measured.rounds[0].ours.rss_peak_mb = peak;
            measured.rounds[0].ours.must_hold = Some(must_hold);
            let missed = missed_bars(&[row], &[]);
            assert_eq!(missed.len(), misses, "{missed:?}");
        }
    }

    #[test]
    fn a_group_has_a_geometric_mean_and_bars() {
        let mut refused = row("vit_b_16.b1", 1, 1.0, 1.0);
        refused.outcome = Outcome::CannotRun("Erf".into());
        let rows = [
            row("bert_base.b1", 1, 4.0, 2.0),
            row("bert_base.b1", 2, 1.0, 2.0),
            refused,
            row("gpt2.decode", 1, 9.0, 10.0),
        ];
        let summaries = summaries(&rows);
        let [prefill, decode] = summaries.as_slice() else {
            panic!("{} groups", summaries.len());
        };
        assert!((prefill.best - 1.0).abs() < 1e-12);
        assert_eq!((prefill.cells, prefill.smallest), (2, 0.5));
        assert_eq!(prefill.slowest, "bert_base.b1, 2 threads");
        assert_eq!(decode.smallest, 0.9);
        let missed = missed_bars(&rows, &summaries);
        assert!(missed[0].starts_with("transformers, decoding: 0.900"), "{missed:?}");
        assert!(missed[1].starts_with("bert_base.b1, 2 threads: 0.500"), "{missed:?}");
        assert_eq!(missed.len(), 2, "{missed:?}");
    }
}
