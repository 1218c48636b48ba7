//! Repetition of runs, and statistics of their durations.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Options for the number of runs.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct RepeatArgs {
    /// Warm-up runs after the first, which are not measured: a number (3) or a time (0.5s, 200ms)
    #[arg(long, value_name = "N|SECONDS", default_value = "0", value_parser = parse_amount)]
    warm_up: Amount,
    /// Repeat for about this long, in seconds, and at least 7 times
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_budget)]
    budget: f64,
    /// Number of measured runs; by default as many as --budget allows
    #[arg(long, value_name = "N", conflicts_with = "budget", value_parser = clap::value_parser!(u64).range(1..=MOST_RUNS))]
    runs: Option<u64>,
}

/// Amount of warm-up: a number of runs, or a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Runs(u64),
    Time(Duration),
}

/// Minimum number of measured runs, even if they exceed `--budget`.
const FEWEST_RUNS: u64 = 7;
/// Maximum number of measured runs, so that the timings of a model that takes microseconds do not
/// fill the memory.
const MOST_RUNS: u64 = 1_000_000;

impl RepeatArgs {
    /// Whether another warm-up run follows after `runs` warm-up runs that took `elapsed` together.
    pub(crate) fn is_cold(&self, runs: u64, elapsed: Duration) -> bool {
        match self.warm_up {
            Amount::Runs(wanted) => runs < wanted,
            Amount::Time(wanted) => elapsed < wanted,
        }
    }

    /// Whether another measured run follows after `runs` runs that took `elapsed` together. Without
    /// `--runs`, at most `most` runs are measured.
    pub(crate) fn has_next_run(&self, runs: u64, elapsed: Duration, most: u64) -> bool {
        match self.runs {
            Some(wanted) => runs < wanted,
            None => {
                let budget = Duration::from_secs_f64(self.budget);
                runs < FEWEST_RUNS || (elapsed < budget && runs < most.min(MOST_RUNS))
            }
        }
    }

    /// Returns the value of `--runs`; `None` without the option.
    pub(crate) fn runs(&self) -> Option<u64> {
        self.runs
    }
}

/// Parses the value of `--warm-up`: a number of runs, or a time.
fn parse_amount(arg: &str) -> Result<Amount, String> {
    read_amount(arg).ok_or_else(|| {
        format!("expected runs such as 3, or a time such as 0.5s or 200ms, not '{arg}'")
    })
}

/// Reads a number of runs, or a time in `s` or `ms` of up to a day; `None` if `arg` is neither.
fn read_amount(arg: &str) -> Option<Amount> {
    let (number, scale) = match (arg.strip_suffix("ms"), arg.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => {
            let runs = arg.parse().ok().filter(|runs| *runs <= MOST_RUNS);
            return runs.map(Amount::Runs);
        }
    };
    let seconds = number.parse::<f64>().ok()? * scale;
    let is_valid = (0.0..=86_400.0).contains(&seconds);
    is_valid.then(|| Amount::Time(Duration::from_secs_f64(seconds)))
}

/// Parses the value of `--budget`: seconds from 0 to 86400.
fn parse_budget(arg: &str) -> Result<f64, String> {
    match arg.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0 to 86400".to_string()),
    }
}

/// Statistics of the durations of runs, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Timing {
    pub(crate) runs: usize,
    pub(crate) min_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) mean_ms: f64,
}

impl Timing {
    /// Computes the statistics of the durations of runs; `None` without runs.
    pub(crate) fn from_durations(durations: &[Duration]) -> Option<Timing> {
        let mut sorted = durations.to_vec();
        sorted.sort_unstable();
        let n = sorted.len();
        let middle = compute_median(&sorted)?;
        let sum: Duration = sorted.iter().sum();
        Some(Timing {
            runs: n,
            min_ms: to_millis(sorted[0]),
            median_ms: to_millis(middle),
            p90_ms: to_millis(find_percentile(&sorted, 90)?),
            p95_ms: to_millis(find_percentile(&sorted, 95)?),
            p99_ms: to_millis(find_percentile(&sorted, 99)?),
            max_ms: to_millis(sorted[n - 1]),
            mean_ms: to_millis(sum.div_f64(n as f64)),
        })
    }
}

/// Returns the percentile of sorted durations by nearest rank: the smallest duration that at least
/// `percent` percent of them do not exceed. `None` without durations.
fn find_percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

/// Returns the median of sorted durations: the mean of the two middle ones for an even number of
/// durations. `None` without durations.
pub(crate) fn compute_median(sorted: &[Duration]) -> Option<Duration> {
    let n = sorted.len();
    Some((*sorted.get(n.checked_sub(1)? / 2)? + sorted[n / 2]) / 2)
}

/// Converts a duration to milliseconds, rounded to a tenth of a microsecond.
pub(crate) fn to_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 1e4
}

/// Calls `work`, and returns its result with the time that the call took.
pub(crate) fn time_call<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_few_and_many() {
        let timing = |millis: &[u64]| {
            let durations: Vec<_> = millis.iter().map(|ms| Duration::from_millis(*ms)).collect();
            Timing::from_durations(&durations)
        };
        assert!(timing(&[]).is_none());
        let one = timing(&[4]).unwrap();
        assert_eq!((one.runs, one.min_ms, one.median_ms, one.p95_ms), (1, 4.0, 4.0, 4.0));
        let even = timing(&[4, 1, 3, 2]).unwrap();
        assert_eq!((even.min_ms, even.median_ms, even.p95_ms), (1.0, 2.5, 4.0));
        let many = timing(&(1..=100).collect::<Vec<_>>()).unwrap();
        assert_eq!((many.median_ms, many.p95_ms), (50.5, 95.0));
    }

    #[test]
    fn warm_up_is_a_number_or_a_time() {
        let time = |millis| Ok(Amount::Time(Duration::from_millis(millis)));
        let rows = [
            ("0", Ok(Amount::Runs(0))),
            ("3", Ok(Amount::Runs(3))),
            ("0.5s", time(500)),
            ("2s", time(2000)),
            ("200ms", time(200)),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_amount(text), expected, "{text}");
        }
        for text in ["", "s", "1.5", "-1", "-1s", "infs", "NaNs", "99999999", "3 runs"] {
            assert!(parse_amount(text).is_err(), "{text}");
        }
    }
}
