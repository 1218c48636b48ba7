//! Tests of workers over channels of whole messages: collectives with messages in any order, and
//! the errors for workers that fail, end or are lost.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::steps::{Random, Sums, run, run_with_early_ends, steps};
use sardonyx_devices::{
    Channel, Channels, Delayed, Group, Reduction, Settings, Transport, TransportError,
    TransportErrorKind,
};
use sardonyx_tensor::DataType;

type Letter = (usize, Vec<u8>);

/// Behaviour of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each sender blocks until its message is received.
    Meeting,
    /// Messages are held back and delivered in another order, some of them twice.
    Mixed,
}

/// Channel of queues between threads.
#[derive(Debug)]
struct Queues {
    number: usize,
    order: Order,
    to: Vec<SyncSender<Letter>>,
    arriving: Mutex<(Receiver<Letter>, Vec<Letter>, Random)>,
    /// Whether the channel drops all messages in both directions.
    is_dead: &'static AtomicBool,
}

fn flag() -> &'static AtomicBool {
    Box::leak(Box::new(AtomicBool::new(false)))
}

fn queues(workers: usize, order: Order, dead: &[&'static AtomicBool]) -> Vec<Queues> {
    let room = if order == Order::Meeting { 0 } else { 10_000 };
    let (to, from): (Vec<_>, Vec<_>) = (0..workers).map(|_| sync_channel(room)).unzip();
    let with = |(number, from)| Queues {
        number,
        order,
        to: to.clone(),
        arriving: Mutex::new((from, Vec::new(), Random(number as u64))),
        is_dead: dead.get(number).copied().unwrap_or_else(flag),
    };
    from.into_iter().enumerate().map(with).collect()
}

impl Channel for Queues {
    fn workers(&self) -> usize {
        self.to.len()
    }

    fn number(&self) -> usize {
        self.number
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.is_dead.load(Ordering::Acquire) {
            return Ok(());
        }
        self.to[to].send((self.number, message.to_vec()))?;
        Ok(())
    }

    fn receive(
        &self,
        wait: Duration,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let mut arriving = self.arriving.lock().unwrap();
        let (arriving, kept, random) = &mut *arriving;
        let wait = if kept.is_empty() { wait } else { Duration::from_micros(100) };
        let came = arriving.recv_timeout(wait);
        if self.is_dead.load(Ordering::Acquire) {
            return Ok(false);
        }
        match came {
            Err(RecvTimeoutError::Timeout) if kept.is_empty() => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("all ends are gone".into()),
            Ok(letter) => kept.push(letter),
        }
        if self.order == Order::Mixed && kept.len() < 4 && random.next_below(2) == 0 {
            kept.extend(arriving.try_iter());
        }
        let chosen = random.next_below(kept.len());
        let (from, message) = match random.next_below(8) {
            0 if self.order == Order::Mixed => kept[chosen].clone(),
            _ => kept.swap_remove(chosen),
        };
        take(from, &message);
        Ok(true)
    }
}

const LONG: Settings = Settings { deadline: Duration::from_secs(100) };

fn transports(workers: usize, order: Order, deadline: Duration) -> Vec<Channels> {
    let settings = Settings { deadline };
    let queues = queues(workers, order, &[]).into_iter();
    queues.map(|one| Channels::new(one, &settings).unwrap()).collect()
}

/// Runs `work` for each worker in a thread of its own, and returns the results by number.
fn each<T: Transport, R: Send>(workers: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || work(worker))).collect();
        started.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn random_collectives_are_right() {
    for order in [Order::Meeting, Order::Mixed] {
        for seed in 0..14 {
            let mut random = Random(seed);
            let workers = 2 + seed as usize % 7;
            let steps = &steps(&mut random, workers, 30);
            each(transports(workers, order, LONG.deadline), |transport| {
                let most = Duration::from_micros(300);
                run(&Delayed::new(transport, seed, most), steps, Sums::InOrder).unwrap();
            });
        }
    }
}

#[test]
fn a_run_ends_without_the_others() {
    for order in [Order::Meeting, Order::Mixed] {
        for workers in [2, 3, 5] {
            each(transports(workers, order, LONG.deadline), |transport| {
                let delayed = Delayed::new(transport, 7, Duration::from_micros(200));
                run_with_early_ends(&delayed, 60);
            });
        }
    }
}

/// Sends messages that exceed any queue, all before the first receive.
#[test]
fn no_send_waits_for_its_receiver() {
    each(transports(3, Order::Meeting, LONG.deadline), |worker| {
        for number in 0..20u8 {
            for to in 0..3 {
                worker.send(to, 1, &vec![number; 100_000]).unwrap();
            }
        }
        for number in 0..20 {
            for from in 0..3 {
                assert_eq!(worker.receive(from, 1).unwrap(), vec![number; 100_000]);
            }
        }
        assert_eq!(worker.traffic().sent[(worker.number() + 1) % 3].messages, 20);
    });
}

#[test]
fn workers_that_wait_for_a_failed_one_learn_its_reason() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let workers = 2 + seed as usize % 7;
        let steps = &steps(&mut random, workers, 40);
        let (failing, at) = (random.next_below(workers), random.next_below(steps.len()));
        let order = if seed % 2 == 0 { Order::Meeting } else { Order::Mixed };
        each(transports(workers, order, LONG.deadline), |transport| {
            if transport.number() == failing {
                run(&transport, &steps[..at], Sums::InOrder).unwrap();
                transport.fail("no memory");
                assert!(transport.barrier().is_err());
                return;
            }
            if let Err(error) = run(&transport, steps, Sums::InOrder) {
                assert_eq!(
                    (error.kind(), error.worker()),
                    (TransportErrorKind::Failed, Some(failing))
                );
                assert!(error.message().ends_with("failed: no memory"), "{error}");
            }
        });
    }
}

#[test]
fn an_end_comes_after_what_was_sent_before_it() {
    for order in [Order::Meeting, Order::Mixed] {
        let errors = each(transports(3, order, LONG.deadline), |worker| {
            if worker.number() == 1 {
                worker.send(0, 1, b"sent before the end").unwrap();
                worker.send(2, 1, b"sent before the end").unwrap();
                return None;
            }
            assert_eq!(worker.receive(1, 1).unwrap(), b"sent before the end");
            let error = worker.receive(1, 1).unwrap_err();
            // Messages to a worker that has ended are lost.
            worker.send(1, 1, b"too late").unwrap();
            Some(error)
        });
        for error in errors.iter().flatten() {
            assert_eq!(error.message(), "worker 1 ended its work before it sent message 1");
            assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Ended, Some(1)));
        }
    }
}

fn work(transport: &dyn Transport) -> TransportError {
    let workers: Vec<usize> = (0..transport.workers()).collect();
    let group = Group { workers: &workers, tag: 1 };
    loop {
        let mut data = vec![1; 4000];
        let sum = transport.all_reduce(group, Reduction::Sum, DataType::Float, &mut data);
        if let Err(error) = sum {
            return error;
        }
    }
}

/// Checks that all workers name a silent worker, to which messages get lost, whether they wait for
/// it or not.
#[test]
fn a_worker_that_is_gone_is_named_after_the_deadline() {
    for round in 0..6u64 {
        let dead = [flag(), flag(), flag(), flag()];
        let gone = (round % 4) as usize;
        let settings = Settings { deadline: Duration::from_millis(800) };
        let workers: Vec<_> = queues(4, Order::Mixed, &dead)
            .into_iter()
            .map(|one| Channels::new(one, &settings).unwrap())
            .collect();
        let errors = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_micros(round * 7331));
                dead[gone].store(true, Ordering::Release);
            });
            each(workers, |worker| {
                let start = Instant::now();
                let error = if worker.number() == (gone + 1) % 4 && round > 3 {
                    // Waits for another worker, for longer than the deadline.
                    loop {
                        match worker.receive((gone + 2) % 4, 9) {
                            Err(error) if error.kind() == TransportErrorKind::Deadline => {}
                            ended => break ended.unwrap_err(),
                        }
                    }
                } else {
                    work(&worker)
                };
                if error.kind() == TransportErrorKind::Deadline {
                    worker.fail(error.message());
                }
                (error, start.elapsed())
            })
        });
        for (number, (error, took)) in errors.iter().enumerate() {
            assert!(*took < Duration::from_secs(3), "{number}: {took:?}");
            if number != gone && round <= 3 {
                assert!(error.message().contains(&format!("worker {gone} ")), "{number}: {error}");
            }
        }
    }
}

/// Channel that fails in a given way.
#[derive(Debug)]
struct Broken(Queues, &'static str);

impl Channel for Broken {
    fn workers(&self) -> usize {
        self.0.workers()
    }

    fn number(&self) -> usize {
        self.0.number()
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.1 {
            "send" if to == 2 => Err("no such address".into()),
            "bytes" if to == 2 => self.0.send(to, b"hello"),
            _ => self.0.send(to, message),
        }
    }

    fn receive(
        &self,
        wait: Duration,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<bool, Box<dyn Error + Send + Sync>> {
        match self.1 {
            "receive" => Err("the address is in use".into()),
            "panic" => panic!("this one is part of the test"),
            "sender" => self.0.receive(wait, &mut |_, message| take(7, message)),
            _ => self.0.receive(wait, take),
        }
    }
}

/// Checks that all workers learn of a failure of the channel of worker 1 of 3.
#[test]
fn a_channel_that_fails_is_a_failure_that_names_a_worker() {
    for (broken, worker, message) in [
        ("send", 2, "worker 2 is lost: worker 1 cannot send to it: no such address"),
        ("receive", 1, "worker 1 failed: it cannot receive: the address is in use"),
        ("panic", 1, "worker 1 failed: its channel panicked"),
        ("bytes", 1, "worker 1 failed: it sent bytes that are not a message"),
        ("sender", 1, "worker 1 failed: its channel names worker 7 as the sender of a message"),
    ] {
        let settings = Settings { deadline: Duration::from_secs(4) };
        let workers = queues(3, Order::Mixed, &[]).into_iter().map(|one| {
            let broken = if one.number == 1 { broken } else { "" };
            Channels::new(Broken(one, broken), &settings).unwrap()
        });
        let start = Instant::now();
        for error in each(workers.collect(), |worker: Channels| work(&worker)) {
            assert_eq!((error.message(), error.worker()), (message, Some(worker)));
        }
        assert!(start.elapsed() < Duration::from_secs(12));
    }
    let one = Channels::new(Broken(queues(1, Order::Mixed, &[]).remove(0), ""), &LONG).unwrap();
    one.send(0, 3, b"to itself").unwrap();
    assert_eq!(one.receive(0, 3).unwrap(), b"to itself");
}
