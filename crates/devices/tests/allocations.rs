//! Tests that repeated calls do not allocate.

use std::thread;

use allocation_counter::measure;
use sardonyx_devices::{Group, Reduction, Settings, Threads, Transport};
use sardonyx_tensor::DataType;

const WORKERS: [usize; 3] = [0, 1, 2];

/// Calls each collective with short and with long messages, in memory of the caller.
fn collectives(worker: &Threads, data: &mut [u8], into: &mut [u8]) {
    let group = Group { workers: &WORKERS, tag: 5 };
    for bytes in [1200, 60_000] {
        let (data, into) = (&mut data[..bytes], &mut into[..bytes]);
        let parts = [bytes / 3; 3];
        for data_type in [DataType::Float, DataType::Bfloat16] {
            worker.all_reduce(group, Reduction::Max, data_type, data).unwrap();
            worker
                .reduce_scatter(
                    group,
                    Reduction::Sum,
                    data_type,
                    data,
                    &parts,
                    &mut into[..bytes / 3],
                )
                .unwrap();
        }
        worker.all_gather(group, &data[..bytes / 3], &parts, into).unwrap();
        worker.all_to_all(group, data, &parts, into, &parts).unwrap();
        worker.broadcast(group, 1, data).unwrap();
        worker.barrier().unwrap();
    }
}

/// Counts the allocations of 50 calls of each collective, after a first call.
fn count_allocations(worker: &Threads) -> u64 {
    let (mut data, mut into) = (vec![0; 60_000], vec![0; 60_000]);
    // Depending on the speed of the workers, several messages wait at a time. These are more than
    // any collective can have waiting.
    for bytes in [0, 400, 1200, 20_000] {
        for _ in 0..8 {
            WORKERS.iter().for_each(|to| worker.send(*to, 1, &data[..bytes]).unwrap());
        }
    }
    worker.barrier().unwrap();
    for _ in 0..32 {
        WORKERS.iter().for_each(|from| worker.receive_with(*from, 1, &mut |_| ()).unwrap());
    }
    collectives(worker, &mut data, &mut into);
    let measured = measure(|| {
        for _ in 0..50 {
            collectives(worker, &mut data, &mut into);
        }
    });
    worker.barrier().unwrap();
    measured.count_total
}

#[test]
fn a_repeated_collective_allocates_nothing() {
    let workers = Threads::new(3, &Settings::default());
    let allocated: Vec<u64> = thread::scope(|scope| {
        let started: Vec<_> = workers
            .into_iter()
            .map(|worker| scope.spawn(move || count_allocations(&worker)))
            .collect();
        started.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(allocated, [0, 0, 0]);
}
