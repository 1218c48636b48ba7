//! A worker: takes mutations of one property one after the other, until it has enough of them or
//! something ends it.
//!
//! Before each it writes the number into a file, so that whoever supervises it knows which one it
//! did not survive. Panics it survives, and saves their inputs itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use sardonyx_fuzz::corpus::{self, Corpus};
use sardonyx_fuzz::{Property, input, memory};

use crate::{Arguments, Result};

/// What an input may make its property use. Inputs have 16 KiB at most.
const MEMORY: u64 = 64 << 20;

/// This many inputs are measured at once; if they used too much, each is measured alone.
const BLOCK: u64 = 256;

/// What Rust gives a thread, and so what callers have.
const STACK: usize = 2 << 20;

/// Failures with the same message that are saved.
const SAVED: u32 = 3;

/// Failures of one property after which it is given up.
pub(crate) const GIVEN_UP: u64 = 40;

thread_local! {
    /// The message of the last panic, with its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Does the work; says at the end on one line how far it came, how many inputs failed, and how long
/// the slowest took.
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
        let reached = worker.take(first, end, until);
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
    /// How often each message came.
    failures: HashMap<String, u32>,
    failed: u64,
    slowest: Duration,
}

impl Worker {
    fn take(&mut self, first: u64, end: u64, until: Option<Instant>) -> Result<u64> {
        let mut at = first;
        while at < end && self.failed < GIVEN_UP && until.is_none_or(|until| Instant::now() < until)
        {
            let block = at..end.min(at + BLOCK);
            let before = memory::reset_peak();
            for index in block.clone() {
                self.one(index)?;
            }
            if too_much(before) {
                self.find_large(block.clone())?;
            }
            at = block.end;
        }
        Ok(at)
    }

    fn one(&mut self, index: u64) -> Result {
        self.progress.seek(SeekFrom::Start(0))?;
        self.progress.write_all(&index.to_le_bytes())?;
        let input = input(self.property, &self.corpus, self.seed, index);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.property.check)(&input)));
        self.slowest = self.slowest.max(start.elapsed());
        if outcome.is_err() {
            let message = PANIC.with_borrow(String::clone);
            self.failure(&message, &input)?;
        }
        Ok(())
    }

    /// Measures the inputs of a block one by one.
    fn find_large(&mut self, block: std::ops::Range<u64>) -> Result {
        for index in block {
            let input = input(self.property, &self.corpus, self.seed, index);
            let before = memory::reset_peak();
            let _ = catch_unwind(AssertUnwindSafe(|| (self.property.check)(&input)));
            if too_much(before) {
                let message = format!("an input takes more than {} MiB of memory", MEMORY >> 20);
                self.failure(&message, &input)?;
            }
        }
        Ok(())
    }

    fn failure(&mut self, message: &str, input: &[u8]) -> Result {
        self.failed += 1;
        // Numbers differ from input to input; the place is what tells failures apart.
        let place = message.lines().next().unwrap_or_default().to_string();
        let times = self.failures.entry(place).or_default();
        *times += 1;
        if *times <= SAVED {
            report(self.property, message, input)?;
        }
        Ok(())
    }
}

fn too_much(before: Option<u64>) -> bool {
    before.zip(memory::peak()).is_some_and(|(before, peak)| peak.saturating_sub(before) > MEMORY)
}

/// Saves an input and says how to look at it.
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
    // The same input twice is one file.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = directory.join(format!("{}-{hash:016x}", property.name));
    fs::write(&path, input)?;
    Ok(path)
}
