//! Simulation of the thread pool: when each chunk of each region would be done by more threads than
//! the machine has.
//!
//! Events follow `crates/simd/src/pool.rs`: the caller opens a region, workers that spin see it
//! after a cache line has moved, parked ones are woken by the threads that are inside. Each thread
//! takes the chunks of its own share in order, then those of other shares. The caller closes the
//! region and waits for the last thread inside.

use clap::Args;
use sardonyx_kernels::split_even;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Costs of the machine and of the pool, in nanoseconds.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Opening a region: preparing the job and writing the word that workers read.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) open_ns: f64,
    /// Moving a cache line from one core to another.
    #[arg(long, default_value_t = 100.0)]
    pub(crate) line_ns: f64,
    /// Cache lines of other cores that a core waits for at the same time.
    #[arg(long, default_value_t = 4.0)]
    pub(crate) lines_at_once: f64,
    /// Taking a chunk whose counter is in the cache.
    #[arg(long, default_value_t = 20.0)]
    pub(crate) take_ns: f64,
    /// Time by which threads that enter or leave a region delay each other: 0, since each marks a
    /// line of its own.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) contended_ns: f64,
    /// Waking a parked worker, on the thread that wakes it.
    #[arg(long, default_value_t = 2_000.0)]
    pub(crate) wake_ns: f64,
    /// Time from waking a parked worker to its first chunk.
    #[arg(long, default_value_t = 5_000.0)]
    pub(crate) woken_ns: f64,
    /// Parked workers that a thread wakes before each chunk.
    #[arg(long, default_value_t = 4)]
    pub(crate) wakes: usize,
    /// Whether only the caller wakes workers.
    #[arg(long)]
    pub(crate) caller_wakes: bool,
    /// Time after which an idle worker parks.
    #[arg(long, default_value_t = 40_000.0)]
    pub(crate) spin_ns: f64,
    /// Bytes that all threads together move in a nanosecond.
    #[arg(long, default_value_t = 200.0)]
    pub(crate) bandwidth: f64,
    /// Speed of every second thread, from the second on.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) slow: f64,
}

/// Threads of a pool over the regions of a run.
pub(crate) struct Threads<'c> {
    costs: &'c Costs,
    /// Time until which each thread was busy, the caller first.
    busy: Vec<f64>,
    now: f64,
}

/// Times of one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// Time from opening to the end.
    pub(crate) time: f64,
    /// Time from the first thread that found no chunk to the last one.
    pub(crate) late: f64,
    /// Longest chunk, with the speed of the thread that ran it.
    pub(crate) longest: f64,
}

impl<'c> Threads<'c> {
    pub(crate) fn new(threads: usize, costs: &'c Costs) -> Threads<'c> {
        Threads { costs, busy: vec![0.0; threads], now: 0.0 }
    }

    fn speed(&self, thread: usize) -> f64 {
        if thread % 2 == 1 { self.costs.slow } else { 1.0 }
    }

    /// Passes time in which only the caller works.
    pub(crate) fn run_serial(&mut self, time: f64) {
        self.now += time;
    }

    /// Runs chunks of these times on the first `threads` threads.
    pub(crate) fn run_region(&mut self, threads: usize, chunks: &[f64]) -> Ran {
        let costs = self.costs;
        let threads = threads.min(self.busy.len()).min(chunks.len()).max(1);
        let start = self.now;
        let opened = start + if threads > 1 { costs.open_ns } else { 0.0 };
        let mut shares: Vec<Range<usize>> =
            (0..threads).map(|share| split_even(chunks.len(), threads, share)).collect();
        let mut queue = Queue::default();
        queue.push(opened, 0);
        let mut parked = Vec::new();
        let mut entered = opened;
        for thread in 1..threads {
            if opened - self.busy[thread] > costs.spin_ns {
                parked.push(thread);
            } else {
                entered = (opened + costs.line_ns).max(entered + costs.contended_ns);
                queue.push(entered, thread);
            }
        }
        parked.reverse();
        let (mut first, mut last, mut longest) = (f64::INFINITY, opened, 0.0f64);
        let scan = (threads - 1) as f64 * costs.line_ns / costs.lines_at_once;
        let mut left_at = opened;
        let mut has_run = vec![false; threads];
        while let Some((mut time, thread)) = queue.pop() {
            let share = if !shares[thread].is_empty() {
                Some(thread)
            } else {
                (1..threads)
                    .map(|step| (thread + step) % threads)
                    .find(|share| !shares[*share].is_empty())
            };
            let Some(share) = share else {
                self.busy[thread] = time;
                // The region may be closed by now: it waits for no thread that comes too late.
                if thread > 0 && !has_run[thread] {
                    continue;
                }
                first = first.min(time);
                if threads > 1 {
                    time = (time + scan).max(left_at + costs.contended_ns);
                }
                left_at = left_at.max(time);
                last = last.max(time);
                self.busy[thread] = time;
                continue;
            };
            if thread == 0 || !costs.caller_wakes {
                for _ in 0..costs.wakes {
                    let Some(woken) = parked.pop() else { break };
                    time += costs.wake_ns;
                    queue.push(time + costs.woken_ns, woken);
                }
            }
            has_run[thread] = true;
            let chunk = shares[share].start;
            shares[share].start += 1;
            time += costs.take_ns + if share == thread { 0.0 } else { costs.line_ns };
            let took = chunks[chunk] / self.speed(thread);
            longest = longest.max(took);
            queue.push(time + took, thread);
        }
        self.now = last + if threads > 1 { scan } else { 0.0 };
        Ran { time: self.now - start, late: last - scan - first.min(last - scan), longest }
    }
}

/// Threads that are inside a region, by the time at which they look for a chunk.
#[derive(Default)]
struct Queue(BinaryHeap<(Reverse<Time>, Reverse<usize>)>);

impl Queue {
    fn push(&mut self, time: f64, thread: usize) {
        self.0.push((Reverse(Time(time)), Reverse(thread)));
    }

    /// Takes the first time and its thread, of several threads the one with the lowest number.
    fn pop(&mut self) -> Option<(f64, usize)> {
        let (Reverse(Time(time)), Reverse(thread)) = self.0.pop()?;
        Some((time, thread))
    }
}

/// Time with an order.
#[derive(Clone, Copy, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Time) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Time) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Costs = Costs {
        open_ns: 0.0,
        line_ns: 0.0,
        lines_at_once: 1.0,
        take_ns: 0.0,
        contended_ns: 0.0,
        wake_ns: 0.0,
        woken_ns: 0.0,
        wakes: 4,
        caller_wakes: false,
        spin_ns: 1e9,
        bandwidth: 1.0,
        slow: 1.0,
    };

    /// Simulates a region on new threads and returns its time.
    fn time(threads: usize, costs: &Costs, chunks: &[f64]) -> f64 {
        Threads::new(threads, costs).run_region(threads, chunks).time
    }

    #[test]
    fn without_costs_only_sizes_of_chunks_count() {
        assert_eq!(time(1, &FREE, &[3.0, 4.0]), 7.0);
        assert_eq!(time(2, &FREE, &[3.0, 4.0]), 4.0);
        assert_eq!(time(4, &FREE, &[1.0; 16]), 4.0);
        assert_eq!(time(4, &FREE, &[1.0; 17]), 5.0);
        // The first share takes long: its second chunk runs on another thread.
        assert_eq!(time(2, &FREE, &[9.0, 1.0, 1.0, 1.0]), 9.0);
    }

    #[test]
    fn parked_workers_are_late_and_woken_by_each_other() {
        let costs = Costs { wake_ns: 1.0, woken_ns: 10.0, spin_ns: -1.0, ..FREE };
        assert_eq!(time(2, &costs, &[100.0; 2]), 1.0 + 10.0 + 100.0);
        // A worker that comes when all chunks are done delays nothing.
        let late = Costs { woken_ns: 1e6, ..costs };
        assert_eq!(time(2, &late, &[100.0; 2]), 1.0 + 2.0 * 100.0);
        // The caller wakes four workers, and these wake the others.
        assert_eq!(time(9, &costs, &[100.0; 9]), 2.0 * 11.0 + 3.0 + 100.0 + 0.0);
        let alone = Costs { caller_wakes: true, wakes: 64, ..costs };
        assert_eq!(time(9, &alone, &[100.0; 9]), 8.0 + 10.0 + 100.0);
        assert!(time(64, &costs, &[100.0; 64]) < time(64, &alone, &[100.0; 64]));
    }

    #[test]
    fn no_region_waits_for_a_slow_thread_longer_than_for_one_chunk() {
        let costs = Costs { slow: 0.5, ..FREE };
        for threads in [2, 4, 16, 64] {
            for count in [threads, 4 * threads, 4 * threads + 3] {
                let chunks: Vec<f64> = (0..count).map(|i| 1.0 + (i % 3) as f64).collect();
                let ran = Threads::new(threads, &costs).run_region(threads, &chunks);
                assert!(ran.late <= ran.longest, "{threads} threads, {count} chunks: {ran:?}");
            }
        }
    }

    #[test]
    fn contended_counters_delay_threads() {
        let costs = Costs { contended_ns: 5.0, ..FREE };
        let ran = Threads::new(16, &costs).run_region(16, &[100.0; 16]);
        assert!(ran.time >= 100.0 + 15.0 * 5.0);
    }
}
