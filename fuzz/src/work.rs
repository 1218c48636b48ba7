//! Worker: checks mutations of one property in turn until it reaches a limit or an input ends the
//! process.
//!
//! The number of each input is written into a file before its check, so that the supervisor can
//! name the input that ended the process. Panics are caught, and their inputs are saved by the
//! worker.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx_fuzz::corpus::{self, Corpus};
use sardonyx_fuzz::{Property, make_input, memory};

use crate::{Arguments, Result};

/// Memory in bytes that a property may use for an input. Inputs have at most 16 KiB.
const MEMORY: u64 = 64 << 20;

/// Inputs that are measured together; if they use too much, each is measured alone.
const BLOCK: u64 = 256;

/// Stack of the thread in bytes: the default of threads in Rust.
const STACK: usize = 2 << 20;

/// Most failures that are saved for each message.
const SAVED: u32 = 3;

/// Failures of one property after which the run of it ends.
pub(crate) const GIVEN_UP: u64 = 40;

thread_local! {
    /// Message of the last panic, with its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Checks the mutations. Prints a line at the end with the next index, the number of failures and
/// the microseconds of the slowest input.
pub(crate) fn run(arguments: &Arguments, progress: &Path) -> Result {
    let [property] = arguments.properties[..] else {
        return Err("a worker has one property".into());
    };
    let mut worker = Worker {
        property,
        corpus: Corpus::load(property)?,
        seed: arguments.seed,
        progress: File::create(progress)?,
        failures: HashMap::new(),
        failed: 0,
        slowest: Duration::ZERO,
    };
    let end = arguments.first + arguments.mutations.unwrap_or(u64::MAX / 2);
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = arguments.first;
    set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|message| *message = info.to_string());
    }));
    let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
        let reached = worker.check_range(first, end, until);
        reached.map(|reached| (reached, worker)).map_err(|error| error.to_string())
    })?;
    let (reached, worker) = thread.join().map_err(|_| "the worker itself panicked")??;
    println!("done {reached} {} {}", worker.failed, worker.slowest.as_micros());
    Ok(())
}

struct Worker {
    property: &'static Property,
    corpus: Corpus,
    seed: u64,
    progress: File,
    /// Number of failures by message.
    failures: HashMap<String, u32>,
    failed: u64,
    slowest: Duration,
}

impl Worker {
    fn check_range(&mut self, first: u64, end: u64, until: Option<Instant>) -> Result<u64> {
        let mut at = first;
        while at < end && self.failed < GIVEN_UP && until.is_none_or(|until| Instant::now() < until)
        {
            let block = at..end.min(at + BLOCK);
            let before = memory::reset_peak();
            for index in block.clone() {
                self.check_one(index)?;
            }
            if exceeds_memory(before) {
                self.find_large(block.clone())?;
            }
            at = block.end;
        }
        Ok(at)
    }

    fn check_one(&mut self, index: u64) -> Result {
        self.progress.seek(SeekFrom::Start(0))?;
        self.progress.write_all(&index.to_le_bytes())?;
        let input = make_input(self.property, &self.corpus, self.seed, index);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.property.check)(&input)));
        self.slowest = self.slowest.max(start.elapsed());
        if outcome.is_err() {
            let message = PANIC.with_borrow(String::clone);
            self.record_failure(&message, &input)?;
        }
        Ok(())
    }

    /// Measures the inputs of a block one by one.
    fn find_large(&mut self, block: std::ops::Range<u64>) -> Result {
        for index in block {
            let input = make_input(self.property, &self.corpus, self.seed, index);
            let before = memory::reset_peak();
            let _ = catch_unwind(AssertUnwindSafe(|| (self.property.check)(&input)));
            if exceeds_memory(before) {
                let message = format!("an input takes more than {} MiB of memory", MEMORY >> 20);
                self.record_failure(&message, &input)?;
            }
        }
        Ok(())
    }

    fn record_failure(&mut self, message: &str, input: &[u8]) -> Result {
        self.failed += 1;
        // Numbers in messages vary between inputs, so failures are counted by their place.
        let place = message.lines().next().unwrap_or_default().to_string();
        let times = self.failures.entry(place).or_default();
        *times += 1;
        if *times <= SAVED {
            report(self.property, message, input)?;
        }
        Ok(())
    }
}

fn exceeds_memory(before: Option<u64>) -> bool {
    before.zip(memory::peak()).is_some_and(|(before, peak)| peak.saturating_sub(before) > MEMORY)
}

/// Saves an input and prints the command that checks it again.
pub(crate) fn report(property: &Property, message: &str, input: &[u8]) -> Result {
    let path = save(property, input)?;
    let mut shown = message.to_string();
    if shown.len() > 600 {
        shown.truncate(shown.floor_char_boundary(600));
        shown.push('…');
    }
    eprintln!(
        "{} failed: {shown}\n  {} bytes; again: cargo run -p sardonyx-fuzz -- --property {} --input {}",
        property.name,
        input.len(),
        property.name,
        path.display()
    );
    Ok(())
}

fn save(property: &Property, input: &[u8]) -> Result<PathBuf> {
    let directory = corpus::directory().join("found");
    fs::create_dir_all(&directory)?;
    // Named by a hash so that an input that fails twice is one file.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = directory.join(format!("{}-{hash:016x}", property.name));
    fs::write(&path, input)?;
    Ok(path)
}
