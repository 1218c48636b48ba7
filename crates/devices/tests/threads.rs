//! Tests of the promises of every transport, with threads: messages, failures, ends and traffic.

use std::thread;
use std::time::{Duration, Instant};

use sardonyx_devices::{
    Group, Reduction, Sent, Settings, Threads, Transport, TransportError, TransportErrorKind,
    tag_in_run,
};
use sardonyx_tensor::DataType;

fn with_deadline(workers: usize, milliseconds: u64) -> Vec<Threads> {
    Threads::new(workers, &Settings { deadline: Duration::from_millis(milliseconds) })
}

/// Runs `work` for each worker in a thread of its own, and returns the results by number.
fn each<R: Send>(workers: Vec<Threads>, work: impl Fn(Threads) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || work(worker))).collect();
        started.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
fn messages_match_by_sender_and_tag_in_order() {
    let workers = with_deadline(3, 5000);
    let [a, b, c] = &workers[..] else { panic!() };
    // Sends return although no worker receives yet.
    for text in ["first", "second", "third"] {
        a.send(2, 7, text.as_bytes()).unwrap();
    }
    a.send(2, 8, b"of another tag").unwrap();
    b.send(2, 7, b"of another sender").unwrap();
    c.send(2, 7, b"").unwrap();
    assert_eq!(c.receive(0, 8).unwrap(), b"of another tag");
    assert_eq!(c.receive(1, 7).unwrap(), b"of another sender");
    assert_eq!(c.receive(2, 7).unwrap(), b"");
    let mut five = [0; 5];
    c.receive_into(0, 7, &mut five).unwrap();
    assert_eq!(&five, b"first");
    assert_eq!(c.receive(0, 7).unwrap(), b"second");
    assert_eq!(c.receive(0, 7).unwrap(), b"third");
}

#[test]
fn a_message_of_another_length_is_an_error() {
    let workers = with_deadline(2, 5000);
    workers[1].send(0, 3, b"four").unwrap();
    let mut memory = [9; 5];
    let error = workers[0].receive_into(1, 3, &mut memory).unwrap_err();
    assert_eq!(error.message(), "message 3 of worker 1 has 4 bytes; 5 were expected");
    assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Size, Some(1)));
    assert_eq!(memory, [9; 5]);
}

#[test]
fn a_worker_that_does_not_exist_is_refused() {
    let workers = with_deadline(2, 5000);
    let message = "worker 2 does not exist: the last of 2 workers is 1";
    assert_eq!(workers[0].send(2, 0, b"").unwrap_err().message(), message);
    assert_eq!(workers[0].receive(2, 0).unwrap_err().message(), message);
}

#[test]
fn a_deadline_names_the_worker_that_did_not_answer() {
    let workers = with_deadline(2, 50);
    let start = Instant::now();
    let error = workers[0].receive(1, 4).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(error.message(), "worker 1 did not send message 4 within 50ms");
    assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Deadline, Some(1)));
    // The worker may continue: a later message is found.
    workers[1].send(0, 4, b"late").unwrap();
    assert_eq!(workers[0].receive(1, 4).unwrap(), b"late");
}

#[test]
fn a_chain_of_waiting_workers_names_the_last() {
    let errors = each(with_deadline(5, 400), |worker| match worker.number() {
        3 => {
            thread::sleep(Duration::from_millis(2000));
            None
        }
        number => {
            let error = worker.receive([1, 2, 3, 0, 0][number], 6).unwrap_err();
            // Keeps workers from ending before the others have given up.
            thread::sleep(Duration::from_millis(1000));
            Some(error)
        }
    });
    for (number, error) in errors.iter().enumerate() {
        let Some(error) = error else { continue };
        assert_eq!(
            (error.kind(), error.worker()),
            (TransportErrorKind::Deadline, Some(3)),
            "{error}"
        );
        let expected = match number {
            2 => "worker 3 did not send message 6 within 400ms",
            1 => {
                "worker 3 did not answer within 400ms: worker 2, from which message 6 is \
                  expected, waits for it"
            }
            _ => continue,
        };
        assert_eq!(error.message(), expected);
    }
}

#[test]
fn workers_that_wait_for_each_other_name_each_other() {
    let errors = each(with_deadline(2, 300), |worker| {
        let error = worker.receive(1 - worker.number(), 6).unwrap_err();
        thread::sleep(Duration::from_millis(500));
        error.worker()
    });
    assert_eq!(errors, [Some(1), Some(0)]);
}

#[test]
fn a_failure_ends_all_receives_and_the_first_one_stays() {
    let workers = with_deadline(4, 20_000);
    let start = Instant::now();
    let errors = each(workers, |worker| {
        if worker.number() == 2 {
            thread::sleep(Duration::from_millis(30));
            worker.fail("no memory");
            return worker.receive(0, 1).unwrap_err();
        }
        let error = worker.receive(3, 1).unwrap_err();
        // A later failure is a consequence of the first, and is not reported.
        worker.fail("a message did not come");
        assert_eq!(worker.send(0, 1, b"").unwrap_err(), error);
        error
    });
    assert!(start.elapsed() < Duration::from_secs(10));
    for error in errors {
        assert_eq!(error.message(), "worker 2 failed: no memory");
        assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Failed, Some(2)));
    }
}

#[test]
fn a_run_that_ended_drops_its_messages_and_no_others() {
    let workers = with_deadline(2, 5000);
    let [a, b] = &workers[..] else { panic!() };
    for run in [0, 1, 2] {
        a.send(1, tag_in_run(run, 4), &[run as u8]).unwrap();
    }
    let reason =
        TransportError::at(TransportErrorKind::RunEnded, 0, "worker 0 failed: no such row");
    a.end_run(1, &reason);
    b.end_run(1, &TransportError::at(TransportErrorKind::RunEnded, 1, "worker 1 failed: too late"));
    assert_eq!(b.receive(0, tag_in_run(1, 4)).unwrap_err(), reason);
    // A worker that has not noticed the end may still send.
    a.send(1, tag_in_run(1, 4), b"late").unwrap();
    assert_eq!(b.receive(0, tag_in_run(2, 4)).unwrap(), [2]);
    assert_eq!(b.receive(0, 4).unwrap(), [0]);
    b.endpoint().forget_runs_before(3);
    a.send(1, tag_in_run(2, 4), b"late").unwrap();
    a.send(1, tag_in_run(3, 4), b"of the next").unwrap();
    assert_eq!(b.receive(0, tag_in_run(3, 4)).unwrap(), b"of the next");
    // Numbers wrap around after the last one.
    b.endpoint().forget_runs_before(1 << 30);
    b.endpoint().forget_runs_before(1 << 31);
    b.endpoint().forget_runs_before(u32::MAX - 1);
    for run in [u32::MAX, 1] {
        a.send(1, tag_in_run(run, 4), &[9]).unwrap();
        assert_eq!(b.receive(0, tag_in_run(run, 4)).unwrap(), [9]);
    }
}

#[test]
fn failures_at_the_same_time_become_one() {
    for _ in 0..50 {
        let errors: Vec<TransportError> = each(with_deadline(3, 20_000), |worker| {
            worker.fail("it did");
            worker.barrier().unwrap_err()
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    }
}

#[test]
fn a_panic_is_a_failure_and_an_end_is_none() {
    let mut workers = with_deadline(3, 20_000);
    let last = workers.pop().unwrap();
    last.send(0, 1, b"sent before the end").unwrap();
    drop(last);
    assert_eq!(workers[0].receive(2, 1).unwrap(), b"sent before the end");
    let error = workers[0].receive(2, 1).unwrap_err();
    assert_eq!(error.message(), "worker 2 ended its work before it sent message 1");
    assert_eq!((error.kind(), error.worker()), (TransportErrorKind::Ended, Some(2)));

    let second = workers.pop().unwrap();
    let panicked = thread::spawn(move || {
        let _second = second;
        panic!("this one is part of the test");
    });
    assert!(panicked.join().is_err());
    let error = workers[0].receive(1, 1).unwrap_err();
    assert_eq!(error.message(), "worker 1 failed: its thread panicked");
}

#[test]
fn no_worker_leaves_a_barrier_before_all_arrive() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for count in 1..=9 {
        let arrived = AtomicUsize::new(0);
        each(with_deadline(count, 20_000), |worker| {
            for round in 1..=20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                worker.barrier().unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= round * count);
            }
        });
    }
}

/// Returns the traffic from each worker to each other in an `all_reduce` of `bytes` bytes.
fn sent_by_all_reduce(workers: usize, bytes: usize) -> Vec<Vec<Sent>> {
    each(with_deadline(workers, 20_000), |worker| {
        let group: Vec<usize> = (0..workers).collect();
        let group = Group { workers: &group, tag: 0 };
        let mut data = vec![1u8; bytes];
        worker.all_reduce(group, Reduction::Sum, DataType::Uint8, &mut data).unwrap();
        assert!(data.iter().all(|x| usize::from(*x) == workers));
        worker.traffic().sent
    })
}

#[test]
fn an_all_reduce_sends_as_little_as_there_is() {
    // Each other worker receives an equal share of `2 (n - 1) / n` of the size.
    for workers in [2, 4, 8] {
        let bytes = 64 << 10;
        for (number, sent) in sent_by_all_reduce(workers, bytes).iter().enumerate() {
            for (to, sent) in sent.iter().enumerate() {
                let expected = if to == number { 0 } else { 2 * bytes / workers };
                assert_eq!(sent.bytes, expected as u64);
            }
        }
    }
    // A short reduction is one step.
    for (number, sent) in sent_by_all_reduce(3, 100).iter().enumerate() {
        let one = Sent { messages: 1, bytes: 100 };
        let expected: Vec<Sent> =
            (0..3).map(|to| if to == number { Sent::default() } else { one }).collect();
        assert_eq!(*sent, expected);
    }
}

#[test]
fn wrong_arguments_of_collectives_are_refused() {
    let workers = with_deadline(3, 20_000);
    let worker = &workers[1];
    let mut data = [0u8; 6];
    let reduce = |workers: &[usize], data_type| {
        let group = Group { workers, tag: 0 };
        worker.all_reduce(group, Reduction::Sum, data_type, &mut [0; 6]).unwrap_err().to_string()
    };
    for (group, message) in [
        (&[1, 0][..], "the workers of a group are not in order: [1, 0]"),
        (&[1, 1], "the workers of a group are not in order: [1, 1]"),
        (&[0, 2], "worker 1 is not in the group [0, 2]"),
        (&[], "worker 1 is not in the group []"),
        (&[1, 3], "worker 3 does not exist: the last of 3 workers is 2"),
    ] {
        assert_eq!(reduce(group, DataType::Float16), message);
    }
    let message = "6 bytes are not a whole number of float elements";
    assert_eq!(reduce(&[0, 1], DataType::Float), message);

    let group = Group { workers: &[0, 1], tag: 0 };
    for (parts, own, message) in [
        (&[6][..], 6, "there are 1 parts for 2 workers"),
        (&[2, 5], 5, "parts of [2, 5] bytes do not fill 6 bytes"),
        (&[usize::MAX, 7], 7, "parts of [18446744073709551615, 7] bytes do not fill 6 bytes"),
        (&[2, 4], 3, "the worker's own part has 3 bytes instead of 4"),
    ] {
        let error = worker.all_gather(group, &[0; 8][..own], parts, &mut data).unwrap_err();
        assert_eq!((error.kind(), error.message()), (TransportErrorKind::Argument, message));
        let mut into = vec![0; own];
        let error = worker
            .reduce_scatter(group, Reduction::Sum, DataType::Int8, &data, parts, &mut into)
            .unwrap_err();
        assert_eq!(error.message(), message);
    }
    let error = worker.broadcast(group, 2, &mut data).unwrap_err();
    assert_eq!(error.message(), "worker 2 is not in the group [0, 1]");
    // Invalid calls send no messages.
    assert_eq!(worker.traffic().total(), Sent::default());
}
