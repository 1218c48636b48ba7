//! Tests of workers that are processes: they connect, compute the same bits as threads, and learn
//! which worker is lost.
//!
//! The program starts itself for each worker, with arguments in environment variables.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx_devices::{
    Group, Processes, Reduction, Rendezvous, Settings, Threads, Transport, TransportError,
    TransportErrorKind,
};
use sardonyx_tensor::{DataType, f16};

use crate::steps::{self, Random, Sums};

pub(crate) fn run() -> ExitCode {
    if let Ok(task) = env::var("DEVICES_TEST_TASK") {
        worker(&task);
        return ExitCode::SUCCESS;
    }
    let trials: [(&str, fn()); 11] = [
        ("processes_compute_the_bits_of_threads", compute_the_bits_of_threads),
        ("random_collectives_are_right", random_collectives_are_right),
        ("a_run_ends_without_the_others", runs_end),
        ("a_killed_worker_is_named_by_all_others", kill_while_working),
        ("a_worker_that_never_connects_is_named", never_connects),
        ("a_worker_that_fails_is_named_with_its_reason", fails),
        ("a_worker_that_panics_is_named", panics),
        ("a_worker_that_ends_is_named_by_who_waits_for_it", ends),
        ("a_stopped_worker_is_named_after_the_deadline", stop_while_working),
        ("directories_are_private", directories_are_private),
        ("workers_that_count_differently_are_refused", count_differently),
    ];
    let trials = trials.map(|(name, run)| {
        libtest_mimic::Trial::test(name, move || {
            run();
            Ok(())
        })
    });
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// Workers in processes, killed on drop.
struct Workers {
    directory: Rendezvous,
    children: Vec<(Child, BufReader<ChildStdout>)>,
}

impl Workers {
    fn start(task: &str, count: usize, deadline: Duration) -> Workers {
        Workers::start_some(task, 0..count, count, deadline)
    }

    fn start_some(task: &str, numbers: Range<usize>, count: usize, deadline: Duration) -> Workers {
        let mut workers = Workers { directory: Rendezvous::new().unwrap(), children: Vec::new() };
        numbers.for_each(|number| workers.start_one(task, number, count, deadline));
        workers
    }

    fn start_one(&mut self, task: &str, number: usize, count: usize, deadline: Duration) {
        let mut child = Command::new(env::current_exe().unwrap())
            .env("DEVICES_TEST_TASK", task)
            .env("DEVICES_TEST_DIRECTORY", self.directory.path())
            .env("DEVICES_TEST_NUMBER", number.to_string())
            .env("DEVICES_TEST_WORKERS", count.to_string())
            .env("DEVICES_TEST_DEADLINE", deadline.as_millis().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        self.children.push((child, output));
    }

    /// Returns the next line that a worker prints, or an empty string after its last line.
    fn line(&mut self, worker: usize) -> String {
        let mut line = String::new();
        self.children[worker].1.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    fn expect(&mut self, worker: usize, line: &str) {
        assert_eq!(self.line(worker), line, "worker {worker}");
    }

    fn kill(&mut self, worker: usize) {
        self.children[worker].0.kill().unwrap();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn variable(name: &str) -> String {
    env::var(format!("DEVICES_TEST_{name}")).unwrap()
}

/// Runs a process as a worker.
fn worker(task: &str) {
    let (number, workers) = (variable("NUMBER").parse().unwrap(), variable("WORKERS"));
    let mut workers: usize = workers.parse().unwrap();
    let deadline = Duration::from_millis(variable("DEADLINE").parse().unwrap());
    let settings = Settings { deadline };
    if task == "count differently" && number == 1 {
        workers += 1;
    }
    let directory = variable("DIRECTORY");
    let joined = Processes::join(Path::new(&directory), number, workers, &settings);
    let transport = match joined {
        Ok(transport) => transport,
        Err(error) => return print_error(&error),
    };
    println!("joined");
    let result = match task {
        "steps" => {
            for seed in 0..8 {
                let steps = steps::steps(&mut Random(seed), workers, 40);
                steps::run(&transport, &steps, Sums::InOrder).unwrap();
            }
            println!("all is right");
            Ok(())
        }
        "runs" => {
            steps::run_with_early_ends(&transport, 90);
            println!("all is right");
            Ok(())
        }
        "digest" => digest(&transport).map(|digest| println!("{digest:016x}")),
        "work" => loop {
            if let Err(error) = work(&transport) {
                break Err(error);
            }
        },
        "fail" if number == 1 => {
            transport.fail("no memory");
            Ok(())
        }
        "panic" if number == 1 => panic!("this one is part of the test"),
        "end" if number == 1 => Ok(()),
        "fail" | "panic" | "end" => transport.receive(1, 3).map(|_| ()),
        "big" => big(&transport),
        _ => transport.barrier(),
    };
    if let Err(error) = result {
        // Workers that wait for this one receive its reason.
        if error.kind() == TransportErrorKind::Deadline {
            transport.fail(error.message());
        }
        print_error(&error);
    }
}

fn print_error(error: &TransportError) {
    println!("{:?} {:?} {error}", error.kind(), error.worker());
}

/// Sends messages that exceed any socket buffer, all before the first receive.
fn big(transport: &Processes) -> Result<(), TransportError> {
    let message = vec![7; 4 << 20];
    for _ in 0..2 {
        for to in 0..transport.workers() {
            transport.send(to, 1, &message)?;
        }
    }
    for _ in 0..2 {
        for from in 0..transport.workers() {
            assert_eq!(transport.receive(from, 1)?, message);
        }
    }
    println!("received");
    Ok(())
}

fn work(transport: &dyn Transport) -> Result<(), TransportError> {
    let workers: Vec<usize> = (0..transport.workers()).collect();
    let group = Group { workers: &workers, tag: 1 };
    for bytes in [40, 200_000] {
        let mut data = vec![1; bytes];
        transport.all_reduce(group, Reduction::Sum, DataType::Float, &mut data)?;
        transport.broadcast(group, 1, &mut data)?;
    }
    Ok(())
}

/// Returns a digest of the results of collectives whose bits depend on the order of workers.
fn digest(transport: &dyn Transport) -> Result<u64, TransportError> {
    let workers: Vec<usize> = (0..transport.workers()).collect();
    let group = Group { workers: &workers, tag: 1 };
    let mut digest = 0xcbf2_9ce4_8422_2325;
    for elems in [1, 100, 1000, 30_001] {
        for data_type in [DataType::Float, DataType::Float16] {
            let element = |place: usize| ((place * 7 + transport.number() * 13) % 19) as f32 * 0.3;
            let elements = (0..elems).map(element);
            let mut data: Vec<u8> = match data_type {
                DataType::Float => elements.flat_map(f32::to_ne_bytes).collect(),
                _ => elements.flat_map(|x| f16::from_f32(x).to_ne_bytes()).collect(),
            };
            transport.all_reduce(group, Reduction::Sum, data_type, &mut data)?;
            let parts = vec![data.len(); workers.len()];
            let mut all = vec![0; data.len() * workers.len()];
            transport.all_gather(group, &data, &parts, &mut all)?;
            for byte in all {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    Ok(digest)
}

/// Deadline that none of these tests reaches.
const LONG: Duration = Duration::from_secs(60);

fn compute_the_bits_of_threads() {
    let of_threads = thread::scope(|scope| {
        let started: Vec<_> = Threads::new(4, &Settings::default())
            .into_iter()
            .map(|worker| scope.spawn(move || digest(&worker).unwrap()))
            .collect();
        started.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let mut workers = Workers::start("digest", 4, LONG);
    for (worker, digest) in of_threads.into_iter().enumerate() {
        workers.expect(worker, "joined");
        workers.expect(worker, &format!("{digest:016x}"));
        workers.expect(worker, "");
    }
    let mut workers = Workers::start("big", 3, LONG);
    for worker in 0..3 {
        workers.expect(worker, "joined");
        workers.expect(worker, "received");
    }
}

fn random_collectives_are_right() {
    all_are_right("steps");
}

fn runs_end() {
    all_are_right("runs");
}

fn all_are_right(task: &str) {
    for count in [2, 5] {
        let mut workers = Workers::start(task, count, LONG);
        for worker in 0..count {
            workers.expect(worker, "joined");
            workers.expect(worker, "all is right");
        }
    }
}

/// Kills a worker at many moments, 377 µs apart so that they drift against the steps of the work.
fn kill_while_working() {
    for moment in 0..100u64 {
        let (count, killed) = (2 + moment as usize % 4, moment as usize % 2);
        let mut workers = Workers::start("work", count, LONG);
        (0..count).for_each(|worker| workers.expect(worker, "joined"));
        thread::sleep(Duration::from_micros(moment * 377 % 20_000));
        let start = Instant::now();
        workers.kill(killed);
        let message =
            format!("Lost Some({killed}) worker {killed} is lost: its process ended unexpectedly");
        for worker in (0..count).filter(|worker| *worker != killed) {
            workers.expect(worker, &message);
        }
        assert!(start.elapsed() < LONG / 2);
    }
}

fn never_connects() {
    // Worker 2 of 3 never starts.
    let mut workers = Workers::start_some("barrier", 0..2, 3, Duration::from_millis(1500));
    for worker in 0..2 {
        workers.expect(worker, "Deadline Some(2) worker 2 did not connect within 1.5s");
    }
}

fn expect_from_others(task: &str, count: usize, message: &str) {
    let mut workers = Workers::start(task, count, LONG);
    for worker in 0..count {
        workers.expect(worker, "joined");
        workers.expect(worker, if worker == 1 { "" } else { message });
    }
}

fn fails() {
    expect_from_others("fail", 4, "Failed Some(1) worker 1 failed: no memory");
}

fn panics() {
    expect_from_others("panic", 3, "Failed Some(1) worker 1 failed: it panicked");
}

fn ends() {
    expect_from_others("end", 3, "Ended Some(1) worker 1 ended its work before it sent message 3");
}

fn stop_while_working() {
    let mut workers = Workers::start("work", 3, Duration::from_millis(1500));
    (0..3).for_each(|worker| workers.expect(worker, "joined"));
    let process = workers.children[2].0.id().to_string();
    assert!(Command::new("kill").args(["-STOP", &process]).status().unwrap().success());
    // Either worker may wait for the other, which waits for the stopped one.
    for worker in 0..2 {
        let line = workers.line(worker);
        assert!(line.contains("worker 2 did not "), "{line}");
        assert!(line.starts_with("Deadline Some(2)") || line.starts_with("Failed Some("), "{line}");
    }
}

fn directories_are_private() {
    let directory = Rendezvous::new().unwrap();
    let path = directory.path().to_path_buf();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let settings = Settings { deadline: Duration::from_millis(200) };
    for open in [0o710, 0o701, 0o740, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
        let error = Processes::join(&path, 1, 2, &settings).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::System);
        assert!(error.message().ends_with("the directory is open to other users"), "{error}");
        fs::remove_file(path.join("1")).unwrap();
    }
    fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
    let error = Processes::join(&path, 1, 2, &settings).unwrap_err();
    assert_eq!(error.message(), "worker 0 did not connect within 200ms");
    drop(directory);
    assert!(!path.exists());
    let error = Processes::join(&path, 0, 1, &settings).unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::System);
}

fn count_differently() {
    let mut workers = Workers::start("count differently", 2, Duration::from_millis(3000));
    let message = "Disagreement Some(1) worker 1 counts 3 workers instead of 2";
    workers.expect(0, message);
}
