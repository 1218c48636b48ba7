//! Compares random collectives in random groups with a direct computation, bit by bit. Messages
//! arrive late and in another order.

use std::thread;
use std::time::Duration;

use crate::steps::{Random, Sums, run, run_with_early_ends, steps};
use sardonyx_devices::{Delayed, Settings, Threads, Transport, TransportErrorKind};

#[test]
fn random_collectives_are_right_whatever_the_order_of_messages() {
    for seed in 0..21 {
        let mut random = Random(seed);
        let workers = 2 + seed as usize % 7;
        let steps = &steps(&mut random, workers, 60);
        let transports = Threads::new(workers, &Settings { deadline: Duration::from_secs(100) });
        thread::scope(|scope| {
            for transport in transports {
                let most = Duration::from_micros(800);
                scope.spawn(move || {
                    run(&Delayed::new(transport, seed, most), steps, Sums::InOrder).unwrap()
                });
            }
        });
    }
}

#[test]
fn random_collectives_are_right_at_full_speed() {
    for seed in 100..170 {
        let mut random = Random(seed);
        let workers = 2 + seed as usize % 7;
        let steps = &steps(&mut random, workers, 100);
        let transports = Threads::new(workers, &Settings { deadline: Duration::from_secs(100) });
        thread::scope(|scope| {
            for transport in transports {
                scope.spawn(move || run(&transport, steps, Sums::InOrder).unwrap());
            }
        });
    }
}

#[test]
fn a_run_ends_without_the_others() {
    for workers in [2, 3, 5, 8] {
        let transports = Threads::new(workers, &Settings { deadline: Duration::from_secs(100) });
        thread::scope(|scope| {
            for transport in transports {
                let transport = Delayed::new(transport, 3, Duration::from_micros(300));
                scope.spawn(move || run_with_early_ends(&transport, 90));
            }
        });
    }
}

#[test]
fn workers_that_wait_for_a_failed_one_learn_its_reason() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let workers = 2 + seed as usize % 7;
        let steps = &steps(&mut random, workers, 40);
        let (failing, at) = (random.next_below(workers), random.next_below(steps.len()));
        let transports = Threads::new(workers, &Settings { deadline: Duration::from_secs(100) });
        thread::scope(|scope| {
            for transport in transports {
                let transport = Delayed::new(transport, seed, Duration::from_micros(300));
                scope.spawn(move || {
                    if transport.number() == failing {
                        run(&transport, &steps[..at], Sums::InOrder).unwrap();
                        transport.fail("no memory");
                        assert!(transport.barrier().is_err());
                        return;
                    }
                    // A worker that needs no more of its messages may finish.
                    if let Err(error) = run(&transport, steps, Sums::InOrder) {
                        assert_eq!(error.kind(), TransportErrorKind::Failed, "{error}");
                        assert_eq!(error.worker(), Some(failing));
                        assert!(error.message().ends_with("failed: no memory"));
                    }
                });
            }
        });
    }
}
