//! Program of `cargo xtask mpi`: one worker of an MPI job.
//!
//! Without arguments it runs random collectives, compares their results with a direct computation,
//! and then exchanges messages that are all sent before any is received. Options:
//!
//! - `--reproducible`: uses collectives made of messages, whose bits must be the expected ones, and
//!   also ends runs early.
//! - `--fail`, `--leave`: worker 1 fails, or exits at once, while the others wait for it.
//! - `--hang`: worker 1 waits for worker 2, which does not answer, and the others wait for worker
//!   1.
//! - `--time`: prints the duration of an all-reduce.
#![allow(clippy::unwrap_used)]

#[path = "../tests/steps/mod.rs"]
mod steps;

use std::env;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use sardonyx_devices::{
    Group, Mpi, MpiSettings, Reduction, Settings, Transport, TransportError, agree,
};
use sardonyx_tensor::DataType;
use steps::{Random, Sums};

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let library = arguments.iter().find_map(|argument| argument.strip_prefix("--library="));
    let settings = MpiSettings {
        settings: Settings { deadline: Duration::from_secs(if has("--hang") { 2 } else { 60 }) },
        reproducible: has("--reproducible"),
        library: library.map(OsString::from),
    };
    let worker = Mpi::start(&settings).unwrap();
    let error = Mpi::start(&settings).unwrap_err();
    assert_eq!(error.message(), "this process is a worker of an MPI job already");
    if worker.number() == 0 {
        println!("{} workers, {:?}", worker.workers(), worker.interface());
    }
    if has("--fail") || has("--leave") {
        return wait_for_one_that_fails(&worker, has("--leave"));
    }
    if has("--hang") {
        return wait_for_one_that_hangs(&worker);
    }
    let result = if has("--time") { time(&worker) } else { check(&worker, has("--reproducible")) };
    match result {
        Ok(()) => println!("worker {}: all is right", worker.number()),
        Err(error) => {
            println!("worker {}: {error}", worker.number());
            worker.fail(error.message());
        }
    }
}

fn check(worker: &Mpi, reproducible: bool) -> Result<(), TransportError> {
    agree(worker, &[7; 32], "the same")?;
    let sums = if reproducible { Sums::InOrder } else { Sums::AnyOrder };
    for seed in 0..20 {
        let mut random = Random(seed);
        steps::run(worker, &steps::steps(&mut random, worker.workers(), 40), sums)?;
    }
    if reproducible {
        // Collectives of the MPI library cannot end early.
        steps::run_with_early_ends(worker, 60);
    }
    // Includes a size above the longest MPI message of the transport (64 MiB), and sizes that
    // libraries send only once a receive matches.
    for bytes in [0, 1, 100_000, 10_000_000, 150_000_000] {
        let others = || (0..worker.workers()).filter(|other| *other != worker.number());
        let mut message = vec![worker.number() as u8; bytes];
        for to in others() {
            worker.send(to, 9, &message)?;
        }
        for from in others() {
            worker.receive_into(from, 9, &mut message)?;
            assert!(message.iter().all(|byte| usize::from(*byte) == from));
        }
    }
    if worker.workers() > 1 {
        let traffic = worker.traffic();
        assert_eq!(traffic.library.messages == 0, reproducible, "{traffic:?}");
        let error = agree(worker, &[worker.number() as u8; 32], "it is not").unwrap_err();
        assert!(error.message().starts_with("workers 0 and 1 disagree about what to run"));
    }
    worker.barrier()
}

fn wait_for_one_that_fails(worker: &Mpi, leaves: bool) {
    if worker.number() != 1 {
        let error = worker.barrier().and_then(|()| worker.receive(1, 1)).unwrap_err();
        println!("worker {}: {error}", worker.number());
        return;
    }
    worker.barrier().unwrap();
    if leaves {
        println!("worker 1 leaves");
        std::process::exit(3);
    } else {
        worker.fail("no memory");
    }
}

fn wait_for_one_that_hangs(worker: &Mpi) {
    worker.barrier().unwrap();
    if worker.number() == 2 {
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let from = if worker.number() == 1 { 2 } else { 1 };
    worker.fail(worker.receive(from, 1).unwrap_err().message());
}

fn time(worker: &Mpi) -> Result<(), TransportError> {
    let workers: Vec<usize> = (0..worker.workers()).collect();
    let group = Group { workers: &workers, tag: 0 };
    for bytes in [4 << 10, 1 << 20] {
        let mut data = vec![0; bytes];
        let mut times = Vec::new();
        for _ in 0..50 {
            worker.barrier()?;
            let start = Instant::now();
            worker.all_reduce(group, Reduction::Sum, DataType::Float, &mut data)?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        if worker.number() == 0 {
            println!("all-reduce of {bytes} bytes: {:?}", times[times.len() / 2]);
        }
    }
    Ok(())
}
