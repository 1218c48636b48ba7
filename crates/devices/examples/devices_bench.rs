//! Program of `cargo xtask bench devices`: times collectives between two workers.
//!
//! Compares each collective with the least that the machine needs: a barrier, and a copy of as many
//! bytes. Measures both in turn, a few calls at a time, so that a change of the machine's speed
//! affects both. Prints one line of JSON per measurement.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use sardonyx_devices::{Group, Reduction, Settings, Threads, Transport, TransportError};
use sardonyx_tensor::DataType;

const GROUP: Group<'_> = Group { workers: &[0, 1], tag: 0 };

struct Measurement {
    name: &'static str,
    bytes: usize,
    call: fn(&Threads, &mut [u8]) -> Result<(), TransportError>,
}

const MEASUREMENTS: &[Measurement] = &[
    Measurement { name: "barrier", bytes: 0, call: |worker, _| worker.barrier() },
    Measurement { name: "all-reduce of 4 KB", bytes: 4 << 10, call: all_reduce },
    Measurement { name: "all-reduce of 1 MB", bytes: 1 << 20, call: all_reduce },
    Measurement { name: "all-reduce of 16 MB", bytes: 16 << 20, call: all_reduce },
    Measurement { name: "all-reduce of 1 MB of float16", bytes: 1 << 20, call: all_reduce_halves },
    Measurement { name: "broadcast of 1 MB", bytes: 1 << 20, call: broadcast },
];

fn all_reduce(worker: &Threads, data: &mut [u8]) -> Result<(), TransportError> {
    worker.all_reduce(GROUP, Reduction::Sum, DataType::Float, data)
}

fn all_reduce_halves(worker: &Threads, data: &mut [u8]) -> Result<(), TransportError> {
    worker.all_reduce(GROUP, Reduction::Sum, DataType::Float16, data)
}

fn broadcast(worker: &Threads, data: &mut [u8]) -> Result<(), TransportError> {
    worker.broadcast(GROUP, 0, data)
}

/// Seconds per call, one element per round: of the collective, and of a barrier with a copy.
type Times = (Vec<f64>, Vec<f64>);

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = if std::env::args().any(|argument| argument == "--smoke") { 3 } else { 200 };
    for measurement in MEASUREMENTS {
        let barrier = &Barrier::new(2);
        let times = thread::scope(|scope| {
            let workers = Threads::new(2, &Settings::default()).into_iter();
            let started: Vec<_> = workers
                .map(|worker| scope.spawn(move || time(&worker, barrier, measurement, rounds)))
                .collect();
            started.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
        });
        // Each collective is a barrier of the two workers, so the times of one worker are enough.
        let first = times.into_iter().next().ok_or("there are two workers")?;
        let (ours, copy) = first.map_err(|_| "a worker panicked")??;
        let (ours, copy) = (median(ours), median(copy));
        println!(
            "{{\"name\": \"{}\", \"bytes\": {}, \"seconds\": {ours:e}, \"copy_seconds\": {copy:e}}}",
            measurement.name, measurement.bytes
        );
    }
    Ok(())
}

fn time(
    worker: &Threads,
    barrier: &Barrier,
    measurement: &Measurement,
    rounds: usize,
) -> Result<Times, TransportError> {
    /// Calls per turn, before the other side is timed.
    const CALLS: u32 = 5;
    // Zeros keep the repeated sums from overflowing.
    let (mut data, mut into) = (vec![0; measurement.bytes], vec![1; measurement.bytes]);
    let (mut ours, mut copy) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        barrier.wait();
        let start = Instant::now();
        for _ in 0..CALLS {
            (measurement.call)(worker, black_box(&mut data))?;
        }
        ours.push(start.elapsed().as_secs_f64() / f64::from(CALLS));
        barrier.wait();
        let start = Instant::now();
        for _ in 0..CALLS {
            barrier.wait();
            into.copy_from_slice(black_box(&data));
            black_box(&mut into);
        }
        copy.push(start.elapsed().as_secs_f64() / f64::from(CALLS));
    }
    Ok((ours, copy))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
