//! One line of the table: a case at a number of threads.

use super::sides::{MustHold, Sample};
use serde_json::{Value, json};

pub(super) struct Row {
    pub(super) case: String,
    pub(super) threads: usize,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    /// Our side refused, and why.
    CannotRun(String),
    Measured(Measured),
}

#[derive(Default)]
pub(super) struct Measured {
    pub(super) rounds: Vec<Round>,
    pub(super) accuracy: Accuracy,
}

/// Samples of both sides in one round.
pub(super) struct Round {
    pub(super) ort: Sample,
    pub(super) ours: Sample,
    /// Ours with fewer bits, if that was asked for.
    pub(super) fast: Option<Sample>,
}

/// The worst of all rounds.
#[derive(Default)]
pub(in crate::bench) struct Accuracy {
    /// The largest difference of an output from ONNX Runtime's, as a part of its largest magnitude.
    pub(in crate::bench) difference: f64,
    /// Errors against the same model in double precision: ONNX Runtime's and ours.
    pub(super) float64: Option<(f64, f64)>,
    /// The relative error with fewer bits.
    pub(super) fast: Option<f64>,
    /// Complaints about the outputs.
    pub(in crate::bench) problems: Vec<String>,
    /// Errors beyond their limits.
    pub(super) inaccurate: Vec<String>,
    /// Outputs of nothing but zeros.
    pub(super) blank: Vec<String>,
}

impl Accuracy {
    /// Takes in what `compare_outputs.py` found.
    pub(super) fn add(&mut self, verdict: &Value) {
        let worse = |known: Option<f64>, next: f64| known.map_or(next, |known| known.max(next));
        self.difference = self.difference.max(verdict["worst"].as_f64().unwrap_or(f64::INFINITY));
        let float64 = &verdict["float64"];
        if let (Some(ort), Some(ours)) = (float64["reference"].as_f64(), float64["ours"].as_f64()) {
            let (known_ort, known_ours) = self.float64.unzip();
            self.float64 = Some((worse(known_ort, ort), worse(known_ours, ours)));
        }
        if let Some(error) = verdict["fast"]["error"].as_f64() {
            self.fast = Some(worse(self.fast, error));
        }
        for (key, known) in [
            ("problems", &mut self.problems),
            ("inaccurate", &mut self.inaccurate),
            ("blank", &mut self.blank),
        ] {
            let texts = verdict[key].as_array().into_iter().flatten();
            for text in texts.filter_map(Value::as_str) {
                note(known, text);
            }
        }
    }

    pub(super) fn add_problem(&mut self, problem: &str) {
        note(&mut self.problems, problem);
    }

    /// Summarizes the row in a few words.
    pub(super) fn verdict(&self) -> String {
        let word = match (self.problems.is_empty(), self.inaccurate.is_empty()) {
            (false, _) => "disagree",
            (true, false) => "inaccurate",
            (true, true) => "agree",
        };
        let mut words = format!("{word} ({:.1e})", self.difference);
        if let Some((ort, ours)) = self.float64 {
            words += &format!(", float64: {ours:.1e} (ORT {ort:.1e})");
        }
        if !self.blank.is_empty() {
            words += &format!(", nothing but zeros: {}", self.blank.join(", "));
        }
        words
    }
}

fn note(known: &mut Vec<String>, text: &str) {
    if !known.iter().any(|known| known == text) {
        known.push(text.to_string());
    }
}

impl Row {
    pub(super) fn name(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("{}, {} {threads}", self.case, self.threads)
    }

    pub(super) fn as_measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::CannotRun(_) => None,
        }
    }

    /// Lists the problems that do not depend on bars.
    pub(super) fn failures(&self) -> Vec<String> {
        let problems = match &self.outcome {
            Outcome::CannotRun(reason) => vec![format!("cannot run: {reason}")],
            Outcome::Measured(measured) => measured.accuracy.problems.clone(),
        };
        self.each(&problems)
    }

    /// Lists errors that are too large, if accuracy is a bar.
    pub(super) fn inaccurate(&self) -> Vec<String> {
        let accuracy = self.as_measured().map(|measured| &measured.accuracy);
        accuracy.map_or(Vec::new(), |accuracy| self.each(&accuracy.inaccurate))
    }

    fn each(&self, texts: &[String]) -> Vec<String> {
        let name = self.name();
        texts.iter().map(|text| format!("{name}: {text}")).collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let mut row = json!({ "case": self.case, "threads": self.threads });
        let measured = match &self.outcome {
            Outcome::CannotRun(reason) => {
                row["cannot_run"] = json!(reason);
                return row;
            }
            Outcome::Measured(measured) => measured,
        };
        let figures: [(&str, fn(&Sample) -> f64); 5] = [
            ("load_ms", |sample| sample.load_ms),
            ("first_ms", |sample| sample.first_ms),
            ("median_ms", |sample| sample.median_ms),
            ("min_ms", |sample| sample.min_ms),
            ("rss_peak_mb", |sample| sample.rss_peak_mb),
        ];
        for (name, figure) in figures {
            row[name] = json!({
                "onnxruntime": measured.median(|round| figure(&round.ort)),
                "sardonyx": measured.median(|round| figure(&round.ours)),
            });
            if let Some(fast) = measured.fast_median(figure) {
                row[name]["fast"] = json!(fast);
            }
        }
        let accuracy = &measured.accuracy;
        row["rounds"] = json!(measured.rounds.len());
        row["speed"] = json!({ "best": measured.speed(), "median": measured.median_speed() });
        if let Some((best, median)) = measured.fast_speed() {
            row["fast_speed"] = json!({ "best": best, "median": median });
        }
        row["session_ratio"] = json!(measured.session_ratio());
        row["memory_ratio"] = json!(measured.memory_ratio());
        row["worst_difference"] = json!(accuracy.difference);
        row["float64_error"] = match accuracy.float64 {
            Some((ort, ours)) => json!({ "onnxruntime": ort, "sardonyx": ours }),
            None => Value::Null,
        };
        row["fast_error"] = json!(accuracy.fast);
        row["problems"] = json!(accuracy.problems);
        row["inaccurate"] = json!(accuracy.inaccurate);
        row
    }
}

impl Measured {
    pub(super) fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    pub(super) fn best(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        self.rounds.iter().map(figure).fold(f64::INFINITY, f64::min)
    }

    /// Returns the ratio of ONNX Runtime's time to ours, the best run of all rounds each: how many
    /// times faster we are.
    pub(super) fn speed(&self) -> f64 {
        self.best(|round| round.ort.min_ms) / self.best(|round| round.ours.min_ms)
    }

    /// Returns the ratio of median runs: divided within a round, the median of the rounds.
    pub(super) fn median_speed(&self) -> f64 {
        self.median(|round| round.ort.median_ms / round.ours.median_ms)
    }

    /// Returns the ratio of our time to create a session to ONNX Runtime's, the best of all rounds
    /// each.
    pub(super) fn session_ratio(&self) -> f64 {
        self.best(|round| round.ours.load_ms) / self.best(|round| round.ort.load_ms)
    }

    /// Returns the ratio of our peak memory to ONNX Runtime's, which includes the Python
    /// interpreter.
    pub(super) fn memory_ratio(&self) -> f64 {
        self.median(|round| round.ours.rss_peak_mb / round.ort.rss_peak_mb)
    }

    /// Returns the memory that our side cannot do without, if it reports it.
    pub(super) fn must_hold(&self) -> Option<MustHold> {
        self.rounds.last()?.ours.must_hold
    }

    /// Returns a figure of our runs with fewer bits, if there were any.
    pub(super) fn fast_median(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        let figures: Vec<f64> = self.fast().map(|(_, fast)| figure(fast)).collect();
        (!figures.is_empty()).then(|| median(figures.into_iter()))
    }

    pub(super) fn fast_best(&self) -> Option<f64> {
        self.fast().map(|(_, fast)| fast.min_ms).reduce(f64::min)
    }

    /// Returns [`Measured::speed`] and [`Measured::median_speed`] with fewer bits on our side.
    pub(super) fn fast_speed(&self) -> Option<(f64, f64)> {
        let best = self.best(|round| round.ort.min_ms) / self.fast_best()?;
        let ratios = self.fast().map(|(round, fast)| round.ort.median_ms / fast.median_ms);
        Some((best, median(ratios)))
    }

    fn fast(&self) -> impl Iterator<Item = (&Round, &Sample)> {
        self.rounds.iter().filter_map(|round| Some((round, round.fast.as_ref()?)))
    }
}

/// Returns the median of at least one number.
pub(in crate::bench) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn sample(ms: f64, load_ms: f64) -> Sample {
        Sample {
            load_ms,
            first_ms: ms,
            median_ms: 2.0 * ms,
            min_ms: ms,
            rss_peak_mb: 100.0,
            must_hold: None,
            version: None,
        }
    }

    /// Makes a row of one round.
    pub(in crate::bench::models) fn row(case: &str, threads: usize, ort: f64, ours: f64) -> Row {
        let round = Round { ort: sample(ort, 10.0), ours: sample(ours, 3.0), fast: None };
        Row {
            case: case.into(),
            threads,
            outcome: Outcome::Measured(Measured {
                rounds: vec![round],
                accuracy: Accuracy::default(),
            }),
        }
    }

    #[test]
    fn medians() {
        for (values, wanted) in
            [(vec![3.0], 3.0), (vec![9.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5)]
        {
            assert_eq!(median(values.into_iter()), wanted);
        }
    }

    #[test]
    fn the_best_of_all_rounds_counts_for_each_side() {
        let rounds = [(6.0, 4.0), (8.0, 2.0), (7.0, 3.0)];
        let measured = Measured {
            rounds: rounds
                .into_iter()
                .map(|(ort, ours)| Round {
                    ort: sample(ort, 2.0 * ort),
                    ours: sample(ours, ours),
                    fast: Some(sample(ours / 2.0, ours)),
                })
                .collect(),
            accuracy: Accuracy::default(),
        };
        assert_eq!(measured.speed(), 3.0);
        assert_eq!(measured.median_speed(), 7.0 / 3.0);
        assert_eq!(measured.session_ratio(), 2.0 / 12.0);
        assert_eq!(measured.fast_speed(), Some((6.0, 14.0 / 3.0)));
    }

    #[test]
    fn the_worst_of_all_rounds_is_kept() {
        let mut accuracy = Accuracy::default();
        for (worst, ours, problems) in
            [(2e-7, 3e-7, json!([])), (1e-7, 4e-7, json!(["x: missing"]))]
        {
            let verdict = json!({
                "worst": worst,
                "float64": { "reference": 1e-7, "ours": ours },
                "fast": null,
                "blank": [],
                "problems": problems,
            });
            accuracy.add(&verdict);
            accuracy.add(&verdict);
        }
        assert_eq!(accuracy.difference, 2e-7);
        assert_eq!(accuracy.float64, Some((1e-7, 4e-7)));
        assert_eq!(accuracy.problems, ["x: missing"]);
    }
}
