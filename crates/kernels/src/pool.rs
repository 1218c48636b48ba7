//! The thread pool: persistent workers that spin briefly and then park.
//!
//! The one idea: a parallel region is *open* or *closed*, and one atomic word says which, together
//! with how many workers are inside. The caller opens the region, works on chunks itself, closes it
//! when no chunk is left and waits only for workers that are inside. A worker that wakes late finds
//! the region closed and goes back to sleep, so a region never waits for a thread that did not take
//! part.
//!
//! A pool runs one region at a time. A second caller, or a chunk that opens a region itself, runs
//! its chunks inline.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an idle worker spins before it parks. Long enough to bridge the gap between two
/// operators of a model, short enough not to matter when the machine is shared.
const SPIN: Duration = Duration::from_micros(40);

/// Set in [`Shared::state`] while workers may enter the region.
const OPEN: u64 = 1 << 31;
/// The low bits of [`Shared::state`]: how many workers are inside.
const INSIDE: u64 = OPEN - 1;
/// One step of the region counter, the high half of [`Shared::state`].
const EPOCH: u64 = 1 << 32;

/// A set of threads that run the chunks of one parallel region at a time.
///
/// Dropping the pool ends and joins its workers.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Taken while a region runs; who does not get it runs inline.
    busy: AtomicBool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// A pool of `threads` threads, the caller included: `1` (or `0`) starts no thread at all.
    ///
    /// If the system refuses to start a thread, the pool is smaller.
    pub fn new(threads: usize) -> Pool {
        let extra = threads.saturating_sub(1);
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            job: UnsafeCell::new(Job::EMPTY),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            quit: AtomicBool::new(false),
            seats: (0..extra).map(|_| Seat::default()).collect(),
        });
        let workers = (0..extra)
            .map_while(|seat| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("sardonyx-{seat}"))
                    .spawn(move || shared.work(seat))
                    .ok()
            })
            .collect();
        Pool { shared, workers, busy: AtomicBool::new(false) }
    }

    /// The pool of the process, started at first use with [`Pool::available_threads`] threads.
    pub fn global() -> &'static Pool {
        static GLOBAL: OnceLock<Pool> = OnceLock::new();
        GLOBAL.get_or_init(|| Pool::new(Pool::available_threads()))
    }

    /// A pool of the calling thread alone, for work inside a chunk.
    pub fn serial() -> &'static Pool {
        static SERIAL: OnceLock<Pool> = OnceLock::new();
        SERIAL.get_or_init(|| Pool::new(1))
    }

    /// How many threads this process may usefully run: the smaller of its CPU affinity and its
    /// cgroup quota.
    ///
    /// `std::thread::available_parallelism` reads both on Linux (cgroup v1 and v2), so nothing is
    /// parsed here.
    pub fn available_threads() -> usize {
        std::thread::available_parallelism().map_or(1, |n| n.get())
    }

    /// The number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(0)` to `body(chunks - 1)`, each once, on the threads of the pool, and returns
    /// when all are done.
    ///
    /// Chunks are handed out in order, one at a time. If the pool already runs a region, all chunks
    /// run on the caller.
    ///
    /// # Panics
    ///
    /// When a chunk panics, with the payload of the first such panic, after the other chunks have
    /// run (at once when the chunks run on the caller alone).
    pub fn run<F: Fn(usize) + Sync>(&self, chunks: usize, body: F) {
        if chunks <= 1 || self.workers.is_empty() || self.busy.swap(true, Ordering::Acquire) {
            (0..chunks).for_each(body);
            return;
        }
        let shared = &*self.shared;
        let job = Job {
            body: (&raw const body).cast(),
            // SAFETY: `body` points to an `F` that outlives the region: this function leaves only
            // after it is closed and empty.
            call: |body, chunk| unsafe { (*body.cast::<F>())(chunk) },
            chunks,
        };
        // SAFETY: the region is closed and nobody is inside (end of the previous `run`), so no
        // worker reads the job; `busy` keeps other callers out.
        unsafe { *shared.job.get() = job };
        shared.next.store(0, Ordering::Relaxed);
        let old = shared.state.load(Ordering::Relaxed);
        debug_assert_eq!(old & (OPEN | INSIDE), 0);
        // SeqCst here and on `asleep` below: either the worker sees the new region before it parks
        // or we see it asleep.
        shared.state.store(old.wrapping_add(EPOCH) | OPEN, Ordering::SeqCst);
        for (seat, worker) in shared.seats.iter().zip(&self.workers).take(chunks - 1) {
            if seat.asleep.load(Ordering::SeqCst) && seat.asleep.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }

        shared.take_chunks(job);

        let mut state = shared.state.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let mut spins = 0u32;
        while state & INSIDE != 0 {
            spins += 1;
            if spins < 20_000 {
                std::hint::spin_loop();
            } else {
                // The worker has lost its core; let it have this one.
                std::thread::yield_now();
            }
            state = shared.state.load(Ordering::Acquire);
        }
        // The workers have left, which makes what they stored visible.
        let panicked = shared.panicked.swap(false, Ordering::Relaxed);
        let panic = panicked.then(|| shared.panic.lock().map_or(None, |mut slot| slot.take()));
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic.flatten() {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of chunks, so there is nothing to report.
            let _ = worker.join();
        }
    }
}

/// Range number `index` of `parts` when `items` are split as evenly as possible, larger ranges
/// first.
///
/// # Panics
///
/// If `index >= parts`.
pub fn split_even(items: usize, parts: usize, index: usize) -> Range<usize> {
    assert!(index < parts, "part {index} of {parts}");
    let (size, larger) = (items / parts, items % parts);
    let start = index * size + index.min(larger);
    start..start + size + usize::from(index < larger)
}

/// A region's work with its type forgotten.
#[derive(Clone, Copy)]
struct Job {
    body: *const (),
    call: fn(*const (), usize),
    chunks: usize,
}

impl Job {
    const EMPTY: Job = Job { body: std::ptr::null(), call: |_, _| {}, chunks: 0 };
}

/// One worker's place.
#[derive(Default)]
#[repr(align(64))]
struct Seat {
    asleep: AtomicBool,
}

struct Shared {
    /// Region counter, [`OPEN`], and the number of workers inside.
    state: AtomicU64,
    /// The next chunk to hand out.
    next: AtomicUsize,
    /// Written only while the region is closed and empty; read by workers inside.
    job: UnsafeCell<Job>,
    /// Whether there was a panic in the region.
    panicked: AtomicBool,
    /// The first of them.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    quit: AtomicBool,
    seats: Vec<Seat>,
}

// SAFETY: `job` is the only part that is not `Sync` by itself; the protocol above keeps writers and
// readers apart, and the closure it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is used only while the closure lives.
unsafe impl Send for Shared {}

impl Shared {
    fn work(&self, seat: usize) {
        let mut seen = 0;
        while let Some(state) = self.wait(seat, seen) {
            seen = state / EPOCH;
            if self.enter(seen) {
                // SAFETY: inside an open region the job is not written; entering synchronises with
                // opening.
                let job = unsafe { *self.job.get() };
                self.take_chunks(job);
                self.state.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Waits for a region other than number `seen`; `None` when the pool ends.
    fn wait(&self, seat: usize, seen: u64) -> Option<u64> {
        let asleep = &self.seats[seat].asleep;
        let mut spin_until: Option<Instant> = None;
        let mut spins = 0u32;
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state / EPOCH != seen {
                asleep.store(false, Ordering::Relaxed);
                return Some(state);
            }
            if self.quit.load(Ordering::SeqCst) {
                return None;
            }
            if asleep.load(Ordering::SeqCst) {
                std::thread::park();
                continue;
            }
            spins += 1;
            // Reading the clock costs as much as a few dozen spins.
            if spins.is_multiple_of(64) {
                let now = Instant::now();
                match spin_until {
                    None => spin_until = Some(now + SPIN),
                    // Announce sleep and look at the state once more before parking.
                    Some(end) if now >= end => asleep.store(true, Ordering::SeqCst),
                    Some(_) => {}
                }
            }
            std::hint::spin_loop();
        }
    }

    /// Enters region number `epoch` unless it is closed or over.
    fn enter(&self, epoch: u64) -> bool {
        let mut state = self.state.load(Ordering::Acquire);
        while state / EPOCH == epoch && state & OPEN != 0 {
            match self.state.compare_exchange_weak(
                state,
                state + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    fn take_chunks(&self, job: Job) {
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= job.chunks {
                return;
            }
            let result = catch_unwind(AssertUnwindSafe(|| (job.call)(job.body, chunk)));
            if let Err(payload) = result
                && let Ok(mut slot) = self.panic.lock()
            {
                slot.get_or_insert(payload);
                self.panicked.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_every_chunk_once() {
        for threads in [0, 1, 2, 3, 7] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for chunks in [0, 1, 2, 3, 100] {
                for _ in 0..200 {
                    let hits: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(chunks, |i| {
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn wakes_parked_workers() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            let sum = AtomicUsize::new(0);
            pool.run(10, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }

    #[test]
    fn a_panic_propagates_after_the_others_ran_and_the_pool_stays_usable() {
        let pool = Pool::new(2);
        for _ in 0..50 {
            let done = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(8, |i| {
                    if i == 3 {
                        resume_unwind(Box::new("chunk 3"));
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let payload = result.expect_err("the panic must come out");
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"chunk 3"));
            assert_eq!(done.into_inner(), 7);
        }
    }

    #[test]
    fn nested_and_concurrent_regions_do_not_deadlock() {
        let pool = Pool::new(2);
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        pool.run(4, |_| {
                            pool.run(3, |_| {
                                sum.fetch_add(1, Ordering::Relaxed);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 100 * 12);
    }

    #[test]
    fn split_even_covers_everything_in_order() {
        for (items, parts) in [(0, 1), (0, 3), (1, 3), (7, 3), (9, 3), (100, 7)] {
            let mut next = 0;
            for i in 0..parts {
                let r = split_even(items, parts, i);
                assert_eq!(r.start, next);
                assert!(r.len() == items / parts || r.len() == items / parts + 1);
                next = r.end;
            }
            assert_eq!(next, items);
        }
    }
}
