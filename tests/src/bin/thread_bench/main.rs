//! `cargo xtask bench threads`, the program: records the chunks of a model's regions on one thread,
//! cut as for many, and simulates how long the threads would take.
//!
//! Prints one line of JSON for each number of threads.

mod record;
mod simulate;

use clap::Parser;
use record::{Recorded, Span};
use serde_json::{Value, json};
use simulate::{Costs, Threads};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Arguments {
    /// Model; without one, random products are recorded.
    model: Option<PathBuf>,
    /// NAME=FILE.npy
    inputs: Vec<String>,
    /// Numbers of threads to simulate.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    threads: Vec<usize>,
    /// Milliseconds of repetition for each number of threads.
    #[arg(long, default_value_t = 500)]
    budget: u64,
    /// Number of steps to list, those that lose the most time.
    #[arg(long, default_value_t = 5)]
    worst: usize,
    #[command(flatten)]
    costs: Costs,
}

fn main() -> ExitCode {
    match simulate_all(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate_all(arguments: &Arguments) -> Result {
    let budget = Duration::from_millis(arguments.budget);
    let subject = record::Subject::new(arguments.model.as_deref(), &arguments.inputs)?;
    let alone = subject.record(1, budget)?;
    for &threads in &arguments.threads {
        let recorded =
            if threads == 1 { alone.clone() } else { subject.record(threads, budget)? };
        let real = if threads <= 2 { Some(subject.time(threads, budget)?) } else { None };
        let run = Simulated::new(&recorded, &alone, threads, &arguments.costs);
        println!("{}", run.to_json(real, arguments.worst));
    }
    Ok(())
}

/// Times of one step in nanoseconds, with the work that it ran.
#[derive(Clone, Copy, Default)]
struct Step {
    /// Time on one thread.
    alone: f64,
    /// Time with all threads.
    together: f64,
    /// Time outside of regions, part of `together`.
    serial: f64,
    /// Time of all chunks, on one thread.
    chunks: f64,
    /// Time within regions.
    in_regions: f64,
    regions: usize,
    parts: usize,
    /// Most threads of a region.
    threads: usize,
    /// Time to move the step's bytes at the bandwidth that all threads share.
    moving: f64,
}

impl Step {
    /// Returns whether all threads together wait for memory.
    fn is_bound_by_memory(&self) -> bool {
        self.moving >= self.in_regions
    }

    /// Returns the time beyond an even share of the step on each of `threads` threads.
    fn lost(&self, threads: f64) -> f64 {
        self.together - self.alone / threads
    }
}

/// A simulated run.
struct Simulated<'r> {
    threads: usize,
    recorded: &'r Recorded,
    steps: BTreeMap<usize, Step>,
    alone: f64,
    together: f64,
    /// Longest time that a region waited for its last thread, divided by its longest chunk.
    late: f64,
}

impl<'r> Simulated<'r> {
    fn new(
        recorded: &'r Recorded,
        alone: &Recorded,
        threads: usize,
        costs: &Costs,
    ) -> Simulated<'r> {
        let mut steps: BTreeMap<usize, Step> = BTreeMap::new();
        for span in &alone.spans {
            steps.entry(span.step).or_default().alone +=
                span.serial + span.chunks.iter().sum::<f64>();
        }
        let (mut pool, mut late) = (Threads::new(threads, costs), 0.0f64);
        for Span { step, serial, chunks, threads } in &recorded.spans {
            let entry = steps.entry(*step).or_default();
            entry.serial += serial;
            pool.run_serial(*serial);
            if chunks.is_empty() {
                continue;
            }
            let ran = pool.run_region(*threads, chunks);
            entry.in_regions += ran.time;
            entry.chunks += chunks.iter().sum::<f64>();
            entry.regions += 1;
            entry.parts += chunks.len();
            entry.threads = entry.threads.max(*threads);
            late = late.max(ran.late / ran.longest);
        }
        let mut together = 0.0;
        for (step, entry) in &mut steps {
            entry.moving = recorded.bytes.get(*step).map_or(0.0, |bytes| bytes / costs.bandwidth);
            let in_regions =
                if entry.regions > 0 { entry.in_regions.max(entry.moving) } else { 0.0 };
            entry.together = entry.serial + in_regions;
            together += entry.together;
        }
        let alone = alone.time();
        Simulated { threads, recorded, steps, alone, together, late }
    }

    /// Returns the efficiency of the regions that do not wait for memory: of their parts alone, and
    /// against one thread.
    fn compute_bound(&self) -> [f64; 2] {
        let [mut in_regions, mut alone, mut chunks] = [0.0; 3];
        for step in self.steps.values() {
            if step.regions > 0 && !step.is_bound_by_memory() {
                in_regions += step.in_regions;
                alone += (step.alone - step.serial).max(0.0);
                chunks += step.chunks;
            }
        }
        let available = self.threads as f64 * in_regions;
        [chunks / available, alone / available]
    }

    fn to_json(&self, real: Option<f64>, worst: usize) -> Value {
        let threads = self.threads as f64;
        let mut order: Vec<(&usize, &Step)> = self.steps.iter().collect();
        order.sort_by(|(_, a), (_, b)| b.lost(threads).total_cmp(&a.lost(threads)));
        let worst: Vec<Value> = order
            .into_iter()
            .take(worst)
            .map(|(index, step)| {
                json!({
                    "step": self.recorded.names.get(*index),
                    "alone_us": step.alone * 1e-3,
                    "together_us": step.together * 1e-3,
                    "serial_us": step.serial * 1e-3,
                    "chunks_us": step.chunks * 1e-3,
                    "regions": step.regions,
                    "parts": step.parts,
                    "threads": step.threads,
                    "bound_by_memory": step.is_bound_by_memory(),
                    "lost": step.lost(threads) / self.together,
                })
            })
            .collect();
        let [balance, compute_bound] = self.compute_bound();
        let memory = self.steps.values().filter(|step| step.is_bound_by_memory());
        json!({
            "threads": self.threads,
            "alone_ms": self.alone * 1e-6,
            "predicted_ms": self.together * 1e-6,
            "real_ms": real.map(|real| real * 1e-6),
            "speedup": self.alone / self.together,
            "efficiency": self.alone / self.together / threads,
            "compute_bound": compute_bound,
            "balance": balance,
            "memory_share": memory.map(|step| step.together).sum::<f64>() / self.together,
            "serial_share": self.steps.values().map(|step| step.serial).sum::<f64>() / self.together,
            "late": self.late,
            "worst": worst,
        })
    }
}
