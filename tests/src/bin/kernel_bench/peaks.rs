//! Peaks of the machine, with as many threads as the kernels have.

use sardonyx_kernels::{Isa, peak, split_even};
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Operations and bytes in a second.
pub(super) struct Peaks {
    multiply_add: f64,
    /// If there is an instruction for it.
    bf16_dot: Option<f64>,
    /// Bytes of memory, read past all caches.
    memory: f64,
    /// Bytes read from the second cache.
    cache: f64,
}

impl Peaks {
    pub(super) fn mean(&self, other: &Peaks) -> Peaks {
        let mean = |a: f64, b: f64| (a + b) / 2.0;
        Peaks {
            multiply_add: mean(self.multiply_add, other.multiply_add),
            bf16_dot: self.bf16_dot.zip(other.bf16_dot).map(|(a, b)| mean(a, b)),
            memory: mean(self.memory, other.memory),
            cache: mean(self.cache, other.cache),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "multiply_add": self.multiply_add,
            "bf16_dot": self.bf16_dot,
            "memory": self.memory,
            "cache": self.cache,
        })
    }
}

pub(super) struct Meter {
    isa: Isa,
    threads: usize,
    data: Vec<u64>,
}

/// 64-bit words of all threads together.
const MEMORY_WORDS: usize = (512 << 20) / size_of::<u64>();
/// 64-bit words of each thread.
const CACHE_WORDS: usize = (512 << 10) / size_of::<u64>();
/// Steps of a measurement of some milliseconds.
const STEPS: u32 = 1_000_000;
const CACHE_PASSES: usize = 300;
/// Rounds of which the best counts.
const ROUNDS: usize = 4;

impl Meter {
    pub(super) fn new(isa: Isa, threads: usize) -> Meter {
        // Written, so that every page is one of its own.
        let data = (1..=MEMORY_WORDS as u64).collect();
        Meter { isa, threads, data }
    }

    /// Measures the operations per second of multiply-adds, two each.
    pub(super) fn multiply_add(&self) -> f64 {
        self.best(|_| peak::multiply_add(self.isa, STEPS) as f64)
    }

    pub(super) fn look(&self) -> Peaks {
        let isa = self.isa;
        let part = |thread| &self.data[split_even(self.data.len(), self.threads, thread)];
        let bytes = |words: usize| words as f64 * size_of::<u64>() as f64;
        Peaks {
            multiply_add: self.multiply_add(),
            bf16_dot: peak::bf16_dot(0)
                .map(|_| self.best(|_| peak::bf16_dot(STEPS).unwrap_or(0) as f64)),
            memory: self.best(|thread| {
                black_box(peak::read(isa, part(thread)));
                bytes(part(thread).len())
            }),
            cache: self.best(|thread| {
                let near = &part(thread)[..CACHE_WORDS];
                for _ in 0..CACHE_PASSES {
                    black_box(peak::read(isa, black_box(near)));
                }
                bytes(CACHE_WORDS * CACHE_PASSES)
            }),
        }
    }

    /// Measures the rate of all threads together in the best round. A job returns its work.
    fn best(&self, job: impl Fn(usize) -> f64 + Sync) -> f64 {
        let together = Barrier::new(self.threads);
        let rounds = |thread: usize| -> Vec<f64> {
            let round = |_| {
                together.wait();
                let start = Instant::now();
                let work = job(thread);
                work / start.elapsed().as_secs_f64()
            };
            (0..ROUNDS).map(round).collect()
        };
        let rates: Vec<Vec<f64>> = std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..self.threads).map(|thread| scope.spawn(move || rounds(thread))).collect();
            let mut rates = vec![rounds(0)];
            rates.extend(others.into_iter().map(|other| other.join().expect("it only counts")));
            rates
        });
        let total = |round: usize| rates.iter().map(|rates| rates[round]).sum();
        (0..ROUNDS).map(total).fold(0.0, f64::max)
    }
}
