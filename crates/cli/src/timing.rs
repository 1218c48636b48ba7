//! Durations of repeated runs, summed up.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Statistics over runs, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Timing {
    pub(crate) runs: usize,
    pub(crate) min_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p95_ms: f64,
}

impl Timing {
    /// `None` without runs.
    pub(crate) fn of(durations: &[Duration]) -> Option<Timing> {
        let mut sorted = durations.to_vec();
        sorted.sort_unstable();
        let n = sorted.len();
        let middle = (*sorted.get(n.checked_sub(1)? / 2)? + sorted[n / 2]) / 2;
        // Nearest rank: the smallest duration that at least 95 % of the runs do not exceed.
        let p95 = sorted[(n * 95).div_ceil(100) - 1];
        Some(Timing {
            runs: n,
            min_ms: millis(sorted[0]),
            median_ms: millis(middle),
            p95_ms: millis(p95),
        })
    }
}

/// Milliseconds, to a tenth of a microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 1e4
}

/// The result of `work`, and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_few_and_many() {
        let of = |millis: &[u64]| {
            Timing::of(
                &millis
                    .iter()
                    .map(|ms| Duration::from_millis(*ms))
                    .collect::<Vec<_>>(),
            )
        };
        assert!(of(&[]).is_none());
        let one = of(&[4]).unwrap();
        assert_eq!(
            (one.runs, one.min_ms, one.median_ms, one.p95_ms),
            (1, 4.0, 4.0, 4.0)
        );
        let even = of(&[4, 1, 3, 2]).unwrap();
        assert_eq!((even.min_ms, even.median_ms, even.p95_ms), (1.0, 2.5, 4.0));
        let many = of(&(1..=100).collect::<Vec<_>>()).unwrap();
        assert_eq!((many.median_ms, many.p95_ms), (50.5, 95.0));
    }
}
