//! `cargo xtask bench kernels`, the program: times kernels, and in the same run the peaks of the
//! machine.
//!
//! Prints one line of JSON for each measurement: its time, the number of operations and bytes, and
//! the peaks, which are means of those before and after the measurement's group. Clocks drift, so
//! peaks of another minute are not comparable.

mod bars;
mod convolutions;
mod elementwise;
mod peaks;
mod products;

use clap::Parser;
use peaks::{Meter, Peaks};
use sardonyx_kernels::{Ended, Exec, Isa, Pool};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Only measurements whose name, group included, contains this.
    #[arg(long, default_value = "")]
    filter: String,
    /// Milliseconds for each measurement.
    #[arg(long, default_value_t = 200)]
    budget: u64,
    /// Measure the speeds that are demanded of every processor, and nothing else.
    #[arg(long)]
    bars: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let threads = usize::from(arguments.threads);
    let isa = Isa::detect();
    let bench = Bench {
        pool: Pool::new(threads),
        isa,
        threads,
        filter: arguments.filter,
        budget: Duration::from_millis(arguments.budget),
        meter: Meter::new(isa, threads),
        // The fallback is more than most machines have.
        beyond_caches: 3 * last_cache().unwrap_or(64 << 20),
    };
    if arguments.bars {
        return bars::run(&bench);
    }
    let mut regions = Group::new(&bench, "threads");
    regions.time("empty region", Work::default(), |_| bench.pool.run(threads, |_| {}));
    drop(regions);
    products::run(&bench);
    convolutions::run(&bench);
    elementwise::run(&bench);
}

/// State shared by all measurements.
struct Bench {
    pool: Pool,
    isa: Isa,
    threads: usize,
    filter: String,
    budget: Duration,
    meter: Meter,
    /// Number of bytes that exceeds every cache.
    beyond_caches: usize,
}

impl Bench {
    /// Returns the threads and instructions that kernels compute with.
    fn exec(&self) -> Exec<'_> {
        Exec::new(&self.pool, self.isa)
    }

    /// Returns the number of buffers of this size that must take turns to come from memory.
    fn turns(&self, bytes: usize) -> usize {
        self.beyond_caches.div_ceil(bytes.max(1)).clamp(1, 64)
    }

    /// Returns whether no cache holds so many bytes.
    fn exceeds_caches(&self, bytes: usize) -> bool {
        3 * bytes > self.beyond_caches
    }

    /// Measures the durations of calls, which get the number of calls before them.
    fn sample(&self, mut call: impl FnMut(usize) -> Result<(), Ended>) -> Times {
        let mut times = Vec::new();
        let start = Instant::now();
        call(0).expect("nothing ends a measurement");
        // The first call only warms up, unless it takes all the time there is.
        while times.len() < FEWEST_RUNS || start.elapsed() < self.budget && times.len() < MOST_RUNS
        {
            let start = Instant::now();
            call(times.len() + 1).expect("nothing ends a measurement");
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Times { best: times[0], median: times[times.len() / 2], runs: times.len() }
    }
}

/// Returns the number of copies of a layer's weights that make them cold: 80 MB in turn, more than
/// the caches of a core and its part of those that cores share. Tiny weights have fewer.
fn copies_of(bytes: usize) -> usize {
    (80usize << 20).div_ceil(bytes.max(1)).clamp(2, 4096)
}

/// Work of one call.
#[derive(Clone, Copy, Default)]
struct Work {
    /// Multiplications and additions, one each.
    flops: f64,
    /// Read and written, each once.
    bytes: f64,
    /// Whether most of them come from memory, not from a cache.
    from_memory: bool,
}

/// Measurements between two looks at the peaks. Dropping the group ends it.
struct Group<'b> {
    bench: &'b Bench,
    name: &'static str,
    before: Option<Peaks>,
    measured: Vec<Measured>,
}

struct Measured {
    name: String,
    work: Work,
    times: Times,
    /// Times with cold weights, of layers.
    cold: Option<Times>,
}

/// Durations of the calls of one measurement, in seconds.
struct Times {
    best: f64,
    median: f64,
    runs: usize,
}

impl Times {
    fn to_json(&self) -> Value {
        json!({ "best_s": self.best, "median_s": self.median, "runs": self.runs })
    }
}

const FEWEST_RUNS: usize = 3;
const MOST_RUNS: usize = 100_000;

impl<'b> Group<'b> {
    fn new(bench: &'b Bench, name: &'static str) -> Group<'b> {
        Group { bench, name, before: None, measured: Vec::new() }
    }

    /// Whether a measurement was asked for: making its data may take long.
    fn wants(&self, name: &str) -> bool {
        format!("{} {name}", self.name).contains(&self.bench.filter)
    }

    /// Times a call, which gets the number of calls before it.
    fn time(&mut self, name: &str, work: Work, call: impl FnMut(usize) -> Result<(), Ended>) {
        if self.wants(name) {
            self.before.get_or_insert_with(|| self.bench.meter.look());
            let times = self.bench.sample(call);
            self.measured.push(Measured { name: name.to_string(), work, times, cold: None });
        }
    }

    /// Measures a layer twice: with the first copy of its weights, which stays in the caches if it
    /// fits, and with all copies in turn. A call gets the number of the copy.
    fn time_layer(
        &mut self,
        name: &str,
        work: Work,
        copies: usize,
        mut call: impl FnMut(usize) -> Result<(), Ended>,
    ) {
        if self.wants(name) {
            self.before.get_or_insert_with(|| self.bench.meter.look());
            let times = self.bench.sample(|_| call(0));
            let cold = Some(self.bench.sample(|turn| call(turn % copies)));
            self.measured.push(Measured { name: name.to_string(), work, times, cold });
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let Some(before) = &self.before else {
            return;
        };
        let peaks = before.mean(&self.bench.meter.look());
        for measured in &self.measured {
            let line = json!({
                "group": self.name,
                "name": measured.name,
                "isa": format!("{:?}", self.bench.isa),
                "threads": self.bench.threads,
                "times": measured.times.to_json(),
                "cold": measured.cold.as_ref().map(Times::to_json),
                "flops": measured.work.flops,
                "bytes": measured.work.bytes,
                "from_memory": measured.work.from_memory,
                "peaks": peaks.to_json(),
            });
            println!("{line}");
        }
    }
}

/// Returns the size of the largest cache in bytes.
fn last_cache() -> Option<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").ok()?;
    let kilobytes: usize = text.trim().strip_suffix('K')?.parse().ok()?;
    Some(kilobytes << 10)
}

/// Makes numbers between -1 and 1, none of them special.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect()
}
