//! Durations of the chunks of parallel regions on one thread, for a simulation of more threads.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use crate::Ended;

/// Durations of one region on one thread.
#[derive(Clone, Debug)]
pub struct Region {
    /// Start, as time since recording began.
    pub start: Duration,
    /// Duration of each chunk, in order.
    pub chunks: Vec<Duration>,
    /// Number of threads that would take part.
    pub threads: usize,
}

impl Region {
    /// Returns the sum of the durations of all chunks.
    pub fn duration(&self) -> Duration {
        self.chunks.iter().sum()
    }
}

/// Treatment of regions on the calling thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Off,
    On,
    /// Within a chunk. Regions opened there count as part of it.
    Inside,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
    static REGIONS: RefCell<(Option<Instant>, Vec<Region>)> = const { RefCell::new((None, Vec::new())) };
}

/// Guard that restores the previous state when dropped, also after a panic.
struct Restore(State);

impl Restore {
    /// Sets the state until the guard is dropped.
    fn set(state: State) -> Restore {
        Restore(STATE.replace(state))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        STATE.set(self.0);
    }
}

/// Calls `body` and returns its value and the durations of its parallel regions. Their chunks run
/// one after the other on the calling thread, cut as for the threads of their pool.
pub fn record<R>(body: impl FnOnce() -> R) -> (R, Vec<Region>) {
    let before = REGIONS.replace((Some(Instant::now()), Vec::new()));
    let restore = Restore::set(State::On);
    let value = body();
    drop(restore);
    (value, REGIONS.replace(before).1)
}

/// Whether regions of the calling thread must run on it alone.
#[inline]
pub(crate) fn is_on() -> bool {
    STATE.get() != State::Off
}

/// Runs the chunks of a region in order and records their durations, unless the region is nested in
/// another one.
pub(crate) fn run(
    threads: usize,
    chunks: usize,
    one: impl Fn(usize) -> Result<(), Ended>,
) -> Result<(), Ended> {
    if STATE.get() == State::Inside {
        return (0..chunks).try_for_each(one);
    }
    let _restore = Restore::set(State::Inside);
    let (start, mut times) = (Instant::now(), Vec::with_capacity(chunks));
    let mut last = start;
    let result = (0..chunks).try_for_each(|chunk| {
        let result = one(chunk);
        let now = Instant::now();
        times.push(now - last);
        last = now;
        result
    });
    REGIONS.with_borrow_mut(|(began, regions)| {
        let start = began.map_or(Duration::ZERO, |began| start - began);
        regions.push(Region { start, chunks: times, threads });
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn regions_run_in_order_on_the_caller() {
        let (pool, caller) = (Pool::new(4), std::thread::current().id());
        let next = AtomicUsize::new(0);
        let (value, regions) = record(|| {
            let ran = pool.run(9, |chunk| {
                assert_eq!(std::thread::current().id(), caller);
                assert_eq!(next.fetch_add(1, Ordering::Relaxed), chunk);
                std::thread::sleep(Duration::from_millis(1));
                // Part of the chunk around it.
                pool.run(3, |_| {})
            });
            // Serial work is in no region.
            assert_eq!(Pool::serial().run(5, |_| {}), Ok(()));
            ran
        });
        assert_eq!(value, Ok(()));
        assert_eq!(regions.len(), 1);
        assert_eq!((regions[0].chunks.len(), regions[0].threads), (9, 4));
        assert!(regions[0].duration() >= Duration::from_millis(9));
        assert!(!is_on());
    }

    #[test]
    fn recording_ends_with_a_panic() {
        let found = std::panic::catch_unwind(|| {
            record(|| Pool::new(2).run(2, |_| -> () { panic!("chunk") }))
        });
        assert!(found.is_err() && !is_on());
    }
}
