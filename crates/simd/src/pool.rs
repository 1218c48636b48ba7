//! The thread pool: persistent workers that spin briefly and then park.
//!
//! A parallel region is *open* or *closed*. One atomic word holds this state and the number of
//! workers that may enter, and only callers write it. A worker that wants to enter marks its own
//! seat and reads the word again, so that threads that enter and leave do not contend. The caller
//! opens the region, works on chunks itself, closes it when no chunk is left, and waits only for
//! workers whose seats are marked. A worker that wakes late finds the region closed and goes back
//! to sleep, so a region never waits for a thread that did not take part.
//!
//! Waking a parked worker is a system call. All threads of a region share these calls: each wakes
//! [`WAKES`] workers before each of its chunks, as long as some are parked.
//!
//! All pools of [`Pool::new_shared`] share the workers of the process, as many as the largest of
//! them needs; each pool lets only its own number take part. These workers run one region at a
//! time. A second caller, or a chunk that opens a region itself, runs its chunks inline.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::panics::Panicked;
use crate::recording;

/// Work: time for which an idle worker spins before it parks. Long enough to bridge the gap between
/// two operators of a model, short enough not to matter on a shared machine.
const SPIN: Duration = Duration::from_micros(40);

/// Work: number of parked workers that a thread wakes before each of its chunks.
const WAKES: usize = 4;

/// Bit of [`Shared::state`] that is set while workers may enter the region.
const OPEN: u64 = 1 << 31;
/// Low bits of [`Shared::state`]: the number of workers that may enter.
const LIMIT: u64 = OPEN - 1;
/// One step of the region counter, which is the high half of [`Shared::state`] and of
/// [`Share::next`].
const EPOCH: u64 = 1 << 32;

/// Predicate that cancels a region when it returns true.
type Ends = dyn Fn() -> bool;

/// Cancellation of work before it is complete, by a predicate of [`Pool::run_until`]. The outputs
/// of a function that returns it hold arbitrary values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended;

/// Failure of a function that checks its operands: an operand that it cannot use, or cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure<E> {
    Operand(E),
    Ended(Ended),
}

impl<E> From<Ended> for Failure<E> {
    fn from(ended: Ended) -> Failure<E> {
        Failure::Ended(ended)
    }
}

/// Result of a chunk: `()`, or a [`Result`] if the chunk can be cancelled.
pub trait Outcome {
    /// Converts the outcome to a result.
    ///
    /// # Errors
    ///
    /// The chunk was cancelled.
    fn into_result(self) -> Result<(), Ended>;
}

impl Outcome for () {
    #[inline(always)]
    fn into_result(self) -> Result<(), Ended> {
        Ok(())
    }
}

impl Outcome for Result<(), Ended> {
    #[inline(always)]
    fn into_result(self) -> Result<(), Ended> {
        self
    }
}

/// A set of threads that run the chunks of one parallel region at a time.
///
/// Clones are one pool. Dropping the last clone of a [`Pool::new`] ends and joins its workers.
#[derive(Clone)]
pub struct Pool {
    crew: Arc<Crew>,
    threads: usize,
}

/// Workers of one pool, or of all pools that share those of the process.
struct Crew {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

thread_local! {
    /// Pool on which this thread packs constants, if not that of the process.
    static PACKING: RefCell<Option<Pool>> = const { RefCell::new(None) };
    /// Predicate that cancels regions of this thread, if any. [`Pool::run_until`] removes it before
    /// it returns.
    static ENDS: Cell<Option<&'static Ends>> = const { Cell::new(None) };
}

/// Cancels regions of this thread once `ends` returns true, until the returned guard is dropped.
fn set_ends<'a>(ends: &'a dyn Fn() -> bool) -> EndsBefore<'a> {
    // SAFETY: only the lifetime changes. Only this thread calls `ends`, and only until the guard is
    // dropped. That is before `ends` is dropped, also when unwinding, as no caller leaks the guard.
    let ends = unsafe { std::mem::transmute::<&'a dyn Fn() -> bool, &'static Ends>(ends) };
    EndsBefore(ENDS.replace(Some(ends)), PhantomData)
}

/// Guard that restores the previous predicate when dropped, also after a panic.
struct EndsBefore<'a>(Option<&'static Ends>, PhantomData<&'a ()>);

impl Drop for EndsBefore<'_> {
    fn drop(&mut self) {
        ENDS.set(self.0);
    }
}

/// Whether the work of the calling thread is cancelled.
fn is_to_end() -> bool {
    // The predicate may open regions itself, which must not call it again.
    let Some(ends) = ENDS.take() else { return false };
    let answer = ends();
    ENDS.set(Some(ends));
    answer
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

impl Pool {
    /// Limit: most threads of a pool. A larger number is a mistake, and starting so many would take
    /// all memory.
    pub const MOST_THREADS: usize = 1024;

    /// Makes a pool of `threads` threads, the caller included, with workers of its own. `1` (or
    /// `0`) starts no thread.
    ///
    /// If the system refuses to start a thread, the pool is smaller.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.clamp(1, Pool::MOST_THREADS);
        let crew = Arc::new(Crew::with_room(threads - 1));
        let threads = crew.start(threads - 1) + 1;
        Pool { crew, threads }
    }

    /// Makes a pool of `threads` threads, the caller included, that shares the workers of the
    /// process. `1` (or `0`) starts no thread, and neither does a number up to that of an earlier
    /// shared pool.
    ///
    /// If the system refuses to start a thread, the pool is smaller.
    pub fn new_shared(threads: usize) -> Pool {
        static PROCESS: OnceLock<Arc<Crew>> = OnceLock::new();
        let threads = threads.clamp(1, Pool::MOST_THREADS);
        if threads == 1 {
            return Pool::serial().clone();
        }
        let crew = PROCESS.get_or_init(|| Arc::new(Crew::with_room(Pool::MOST_THREADS - 1)));
        let threads = crew.start(threads - 1).min(threads - 1) + 1;
        Pool { crew: crew.clone(), threads }
    }

    /// Returns this pool with at most `threads` of its threads, the caller included.
    pub fn at_most(&self, threads: usize) -> Pool {
        Pool { crew: Arc::clone(&self.crew), threads: threads.clamp(1, self.threads) }
    }

    /// Returns the shared pool of [`Pool::available_threads`] threads.
    pub fn global() -> &'static Pool {
        static GLOBAL: OnceLock<Pool> = OnceLock::new();
        GLOBAL.get_or_init(|| Pool::new_shared(Pool::available_threads()))
    }

    /// Returns a pool of the calling thread alone, for work inside a chunk.
    pub fn serial() -> &'static Pool {
        static SERIAL: OnceLock<Pool> = OnceLock::new();
        SERIAL.get_or_init(|| Pool::new(1))
    }

    /// Returns the number of threads that this process may usefully run: the smaller of its CPU
    /// affinity and its cgroup quota.
    ///
    /// `std::thread::available_parallelism` reads both on Linux (cgroup v1 and v2), so nothing is
    /// parsed here.
    pub fn available_threads() -> usize {
        std::thread::available_parallelism().map_or(1, |n| n.get())
    }

    /// Returns the number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns the number of workers of this pool and of all pools that share them. The caller does
    /// not count.
    pub fn workers(&self) -> usize {
        self.crew.workers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Calls a function during which the calling thread packs constants on this pool instead of
    /// that of the process.
    pub fn pack_within<R>(&self, body: impl FnOnce() -> R) -> R {
        /// Guard that restores the previous pool when dropped, also after a panic.
        struct Before(Option<Pool>);
        impl Drop for Before {
            fn drop(&mut self) {
                PACKING.with(|packing| *packing.borrow_mut() = self.0.take());
            }
        }
        let _before = Before(PACKING.with(|packing| packing.replace(Some(self.clone()))));
        body()
    }

    /// Calls a function during which `ends` can cancel the parallel regions that the calling thread
    /// opens. They call `ends` before each chunk that this thread takes. Once it returns true, no
    /// more chunks begin, and the region returns [`Ended`], which the function passes on.
    pub fn run_until<R>(ends: &dyn Fn() -> bool, body: impl FnOnce() -> R) -> R {
        let _before = set_ends(ends);
        body()
    }

    /// Checks whether the work of the calling thread is cancelled, for long work that opens no
    /// regions. [`Pace`](crate::Pace) calls this now and then.
    ///
    /// # Errors
    ///
    /// The work is cancelled, which needs an enclosing [`Pool::run_until`].
    pub fn check_ended() -> Result<(), Ended> {
        if is_to_end() { Err(Ended) } else { Ok(()) }
    }

    /// Whether the work of the calling thread can be cancelled.
    pub fn may_end() -> bool {
        ENDS.get().is_some()
    }

    /// Calls a function whose regions cannot be cancelled, also within [`Pool::run_until`], and
    /// returns its value.
    ///
    /// # Panics
    ///
    /// The function returned an [`Ended`] from elsewhere.
    pub fn run_to_end<R>(body: impl FnOnce() -> Result<R, Ended>) -> R {
        let _before = EndsBefore(ENDS.take(), PhantomData);
        match body() {
            Ok(value) => value,
            Err(Ended) => unreachable!("regions without a predicate do not end"),
        }
    }

    /// Returns the pool on which the calling thread packs constants.
    pub fn for_packing() -> Pool {
        PACKING.with(|packing| packing.borrow().clone()).unwrap_or_else(|| Pool::global().clone())
    }

    /// Runs `body(0)` to `body(chunks - 1)`, each once, on the threads of the pool, and returns
    /// when all are done.
    ///
    /// Each thread begins with a share of adjacent chunks, the same share in every region of as
    /// many chunks, and takes them in order, one at a time. A thread without chunks left takes
    /// those of others. So data that one region leaves in the cache of a core is used there by the
    /// next one, where both cut the data alike. If the workers already run a region, all chunks run
    /// on the caller.
    ///
    /// # Errors
    ///
    /// The work was cancelled ([`Pool::run_until`]), or a chunk was. Not all chunks have run.
    ///
    /// # Panics
    ///
    /// When a chunk panics, with the payload of the first panic, after the other chunks have run
    /// (at once when the chunks run on the caller alone).
    #[inline]
    pub fn run<R: Outcome>(
        &self,
        chunks: usize,
        body: impl Fn(usize) -> R + Sync,
    ) -> Result<(), Ended> {
        self.run_on(self.threads, chunks, body)
    }

    /// Runs chunks like [`Pool::run`], but on at most `threads` threads of the pool.
    ///
    /// # Errors
    ///
    /// The work was cancelled ([`Pool::run_until`]), or a chunk was. Not all chunks have run.
    #[inline]
    pub fn run_on<R: Outcome>(
        &self,
        threads: usize,
        chunks: usize,
        body: impl Fn(usize) -> R + Sync,
    ) -> Result<(), Ended> {
        self.run_dyn(threads, chunks, &|chunk| body(chunk).into_result())
    }

    /// Runs [`Pool::run_on`] with a body behind a pointer, so that it is compiled once. A copy for
    /// each caller would hold the whole protocol and the body twice, and a call per chunk is cheap
    /// beside a chunk.
    fn run_dyn(&self, threads: usize, chunks: usize, body: &Body<'_>) -> Result<(), Ended> {
        let shared = &*self.crew.shared;
        let threads = threads.min(self.threads).min(chunks);
        let in_order = |chunk: usize| {
            Pool::check_ended()?;
            body(chunk)
        };
        if threads > 1 && recording::is_on() {
            return recording::run(threads, chunks, in_order);
        }
        // The index of a chunk takes half a word, see [`Share::next`].
        let is_alone = threads <= 1 || chunks as u64 >= EPOCH - 1;
        // Read first: within a chunk the flag is set, and other threads read its cache line.
        let is_busy =
            || shared.busy.load(Ordering::Relaxed) || shared.busy.swap(true, Ordering::Acquire);
        if is_alone || is_busy() {
            return (0..chunks).try_for_each(in_order);
        }
        // SAFETY: only the lifetime changes, of a pointer that is followed only while the region is
        // open or has workers inside. This function returns after that.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        let old = shared.state.0.load(Ordering::Relaxed);
        debug_assert_eq!(old & OPEN, 0);
        let mut epoch = (old & !(EPOCH - 1)).wrapping_add(EPOCH);
        if epoch == 0 {
            // Shares with the numbers of the first regions would look like those of the new ones.
            shared.shares.iter().for_each(|share| share.next.store(0, Ordering::Relaxed));
            epoch = EPOCH;
        }
        let job = Job { body, chunks, shares: threads, epoch };
        // SAFETY: the region is closed and no worker is inside (end of the previous `run`), so no
        // worker reads the job; `busy` keeps other callers out.
        unsafe { *shared.job.get() = job };
        shared.wake.store(0, Ordering::Relaxed);
        // SeqCst here and where workers read the state: either the worker sees the new region
        // before it parks, or the caller sees that the worker is parked.
        let limit = (threads - 1) as u64;
        shared.state.0.store(epoch | OPEN | limit, Ordering::SeqCst);

        shared.take_chunks(job, 0);

        // SeqCst here and where workers enter: either the worker sees that the region is closed, or
        // the caller sees that the worker is inside.
        shared.state.0.store(epoch | limit, Ordering::SeqCst);
        for seat in &shared.seats[..threads - 1] {
            let mut spins = 0u32;
            while seat.inside.load(Ordering::SeqCst) {
                spins += 1;
                if spins < 20_000 {
                    std::hint::spin_loop();
                } else {
                    // The worker has lost its core: let it have this one.
                    std::thread::yield_now();
                }
            }
        }
        // The workers have left, which makes their stores visible.
        let ended = take_flag(&shared.ended);
        let panicked = take_flag(&shared.panicked);
        let panic = panicked.then(|| shared.panic.lock().map_or(None, |mut slot| slot.take()));
        shared.busy.store(false, Ordering::Release);
        if let Some(panicked) = panic.flatten() {
            panicked.resume();
        }
        if ended { Err(Ended) } else { Ok(()) }
    }
}

impl Crew {
    /// Makes a crew without workers that has room for `seats` of them.
    fn with_room(seats: usize) -> Crew {
        let shared = Arc::new(Shared {
            state: Apart(AtomicU64::new(0)),
            parked: AtomicUsize::new(0),
            wake: AtomicUsize::new(0),
            shares: (0..=seats).map(|_| Share::default()).collect(),
            job: UnsafeCell::new(Job::EMPTY),
            busy: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            quit: AtomicBool::new(false),
            seats: (0..seats).map(|_| Seat::default()).collect(),
        });
        Crew { shared, workers: Mutex::default() }
    }

    /// Starts workers until there are `wanted`, and returns their number, which is lower if the
    /// system refuses to start threads.
    fn start(&self, wanted: usize) -> usize {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for seat in workers.len()..wanted.min(self.shared.seats.len()) {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name(format!("sardonyx-{seat}"));
            let Ok(worker) = thread.spawn(move || shared.work(seat)) else { break };
            // The seat is not set yet: seats are filled in order, under the lock.
            let _ = self.shared.seats[seat].worker.set(worker.thread().clone());
            workers.push(worker);
        }
        workers.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::SeqCst);
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for worker in &*workers {
            worker.thread().unpark();
        }
        for worker in workers.drain(..) {
            // A worker catches the panics of chunks, so `join` has no panic to report.
            let _ = worker.join();
        }
    }
}

/// Returns range `index` of `parts` when `items` are split as evenly as possible. Adjacent ranges
/// are even together, too: the first half of the parts has half of the items, give or take one.
///
/// # Panics
///
/// If `index >= parts`.
pub fn split_even(items: usize, parts: usize, index: usize) -> Range<usize> {
    assert!(index < parts, "part {index} of {parts}");
    let (size, left) = (items / parts, items % parts);
    let start = |index: usize| index * size + index * left / parts;
    start(index)..start(index + 1)
}

/// Function that a region calls with the index of each chunk.
type Body<'a> = dyn Fn(usize) -> Result<(), Ended> + Sync + 'a;

/// Work of a region.
#[derive(Clone, Copy)]
struct Job {
    /// Function of the chunks. Valid while the region is open or has workers inside.
    body: *const Body<'static>,
    chunks: usize,
    /// Number of shares: one for each thread.
    shares: usize,
    /// Number of the region, in the high half.
    epoch: u64,
}

impl Job {
    const EMPTY: Job = Job { body: &|_| Ok(()), chunks: 0, shares: 0, epoch: 0 };

    /// Returns the chunks of share `index`.
    fn share(&self, index: usize) -> Range<usize> {
        split_even(self.chunks, self.shares, index)
    }
}

/// Chunks with which a thread begins. The caller of a region has the first share, and the worker of
/// seat `i` has share `i + 1`.
#[derive(Default)]
#[repr(align(128))]
struct Share {
    /// Number of the region, and the next chunk to hand out. With the number of an earlier region,
    /// all chunks of the share are left; at or beyond the end of the share, none is.
    next: AtomicU64,
}

impl Share {
    /// Takes the next chunk, or returns `None` if none is left.
    fn take(&self, job: &Job, chunks: &Range<usize>) -> Option<usize> {
        let mut word = self.next.load(Ordering::Relaxed);
        loop {
            let is_new = word & !(EPOCH - 1) == job.epoch;
            let next = if is_new { (word & (EPOCH - 1)) as usize } else { chunks.start };
            if next >= chunks.end {
                return None;
            }
            let taken = job.epoch | (next as u64 + 1);
            match self.next.compare_exchange_weak(word, taken, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return Some(next),
                Err(now) => word = now,
            }
        }
    }

    /// Takes all chunks that are left.
    fn clear(&self, job: &Job) {
        self.next.store(job.epoch | (EPOCH - 1), Ordering::Relaxed);
    }
}

/// State of one worker.
#[derive(Default)]
#[repr(align(128))]
struct Seat {
    /// Whether the worker is in a region, or checks whether it may enter one.
    inside: AtomicBool,
    /// Whether the worker is parked or about to park.
    asleep: AtomicBool,
    /// Handle of the worker's thread, set shortly after the start.
    worker: OnceLock<Thread>,
}

/// A value in cache lines of its own; the processor fetches lines in pairs.
#[repr(align(128))]
struct Apart<T>(T);

/// State of a crew that callers and workers share.
struct Shared {
    /// Region counter, [`OPEN`], and the number of workers that may enter. Only the caller of a
    /// region writes it, since idle workers read it all the time.
    state: Apart<AtomicU64>,
    /// Number of workers that are parked.
    parked: AtomicUsize,
    /// First seat that no thread of the region has tried to wake yet.
    wake: AtomicUsize,
    /// One share for the caller, and one for each seat.
    shares: Vec<Share>,
    /// Work of the region. Written only while the region is closed and empty; read by workers
    /// inside.
    job: UnsafeCell<Job>,
    /// Set while a region runs. A caller that finds it set runs its chunks inline.
    busy: AtomicBool,
    /// Whether the region is cancelled.
    ended: AtomicBool,
    /// Whether a chunk of the region panicked.
    panicked: AtomicBool,
    /// First panic of the region.
    panic: Mutex<Option<Panicked>>,
    /// Whether workers must exit.
    quit: AtomicBool,
    seats: Vec<Seat>,
}

// SAFETY: only `job` is not `Sync` by itself. The protocol of the module separates its writers from
// its readers, and the closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is followed only while the closure lives.
unsafe impl Send for Shared {}

impl Shared {
    /// Runs the worker of a seat until the pool is dropped.
    fn work(&self, seat: usize) {
        let mut seen = 0;
        while let Some(state) = self.wait(seat, seen) {
            seen = state & !(EPOCH - 1);
            if state & OPEN == 0 {
                continue;
            }
            let inside = &self.seats[seat].inside;
            inside.store(true, Ordering::SeqCst);
            // This region is closed if the worker is late, and the next one may be open.
            let state = self.state.0.load(Ordering::SeqCst);
            if state & OPEN != 0 && has_seat(state, seat) {
                // SAFETY: the region was open after the seat was marked, so its caller waits for
                // the mark to be cleared before it writes the next job. Loading the state
                // synchronizes with opening.
                let job = unsafe { *self.job.get() };
                seen = job.epoch;
                let ends = || self.ended.load(Ordering::Relaxed);
                let before = set_ends(&ends);
                self.take_chunks(job, seat + 1);
                drop(before);
            }
            inside.store(false, Ordering::Release);
        }
    }

    /// Waits for a region other than number `seen` that the worker of this seat may enter, and
    /// returns the state; `None` when the pool is dropped. Regions that the worker may not enter do
    /// not keep it awake.
    fn wait(&self, seat: usize, mut seen: u64) -> Option<u64> {
        let asleep = &self.seats[seat].asleep;
        let mut spin_until: Option<Instant> = None;
        let mut spins = 0u32;
        loop {
            let state = self.state.0.load(Ordering::SeqCst);
            if state & !(EPOCH - 1) != seen {
                if has_seat(state, seat) {
                    if asleep.load(Ordering::Relaxed) {
                        self.stay_awake(seat);
                    }
                    return Some(state);
                }
                seen = state & !(EPOCH - 1);
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
                    // Announce sleep and read the state once more before parking.
                    Some(end) if now >= end => {
                        self.parked.fetch_add(1, Ordering::SeqCst);
                        asleep.store(true, Ordering::SeqCst);
                    }
                    Some(_) => {}
                }
            }
            std::hint::spin_loop();
        }
    }

    /// Clears the flag that a worker is parked, and returns whether it was set.
    fn stay_awake(&self, seat: usize) -> bool {
        let was_asleep = self.seats[seat].asleep.swap(false, Ordering::SeqCst);
        if was_asleep {
            self.parked.fetch_sub(1, Ordering::SeqCst);
        }
        was_asleep
    }

    /// Wakes up to [`WAKES`] parked workers of a region.
    fn wake(&self, job: Job) {
        let mut woken = 0;
        while woken < WAKES && self.parked.load(Ordering::SeqCst) > 0 {
            if self.wake.load(Ordering::Relaxed) + 1 >= job.shares {
                return;
            }
            let seat = self.wake.fetch_add(1, Ordering::Relaxed);
            if seat + 1 < job.shares
                && self.seats[seat].asleep.load(Ordering::SeqCst)
                && let Some(worker) = self.seats[seat].worker.get()
                && self.stay_awake(seat)
            {
                worker.unpark();
                woken += 1;
            }
        }
    }

    /// Runs the chunks of share `own` that no thread has taken, then those of the shares after it.
    /// Share 0 is the caller's.
    fn take_chunks(&self, job: Job, own: usize) {
        let is_caller = own == 0;
        for index in (0..job.shares).map(|step| (own + step) % job.shares) {
            let (share, chunks) = (&self.shares[index], job.share(index));
            while let Some(chunk) = share.take(&job, &chunks) {
                self.wake(job);
                let result = if is_caller && is_to_end() {
                    Ok(Err(Ended))
                } else {
                    // SAFETY: this thread is inside the region.
                    Panicked::catch(|| unsafe { (*job.body)(chunk) })
                };
                match result {
                    Ok(Ok(())) => {}
                    Ok(Err(Ended)) => self.end(job),
                    Err(panicked) => self.keep_panic(panicked),
                }
            }
        }
    }

    /// Cancels the region: no thread takes a further chunk, and chunks that check for it end.
    fn end(&self, job: Job) {
        self.ended.store(true, Ordering::Relaxed);
        for share in &self.shares[..job.shares] {
            share.clear(&job);
        }
    }

    /// Stores the panic of a chunk, unless the region has one already.
    fn keep_panic(&self, panicked: Panicked) {
        if let Ok(mut slot) = self.panic.lock() {
            slot.get_or_insert(panicked);
            self.panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// Clears a flag and returns whether it was set. Writes nothing if it was not, as other threads
/// read the cache line.
fn take_flag(flag: &AtomicBool) -> bool {
    let is_set = flag.load(Ordering::Relaxed);
    if is_set {
        flag.store(false, Ordering::Relaxed);
    }
    is_set
}

/// Whether the worker of a seat may enter the region of `state`.
fn has_seat(state: u64, seat: usize) -> bool {
    (seat as u64) < state & LIMIT
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

    use super::*;

    #[test]
    fn runs_every_chunk_once() {
        for threads in [0, 1, 2, 3, 7] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for chunks in [0, 1, 2, 3, 100] {
                for _ in 0..200 {
                    let hits: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
                    let ran = pool.run(chunks, |i| {
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(ran, Ok(()));
                    assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn chunks_of_a_late_thread_are_taken_by_others() {
        let pool = Pool::new(2);
        for _ in 0..20 {
            let done = AtomicUsize::new(0);
            let ran = pool.run(10, |chunk| {
                // The thread of the first chunk has four more chunks in its share.
                while chunk == 0 && done.load(Ordering::Relaxed) < 9 {
                    std::thread::yield_now();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!((ran, done.into_inner()), (Ok(()), 10));
        }
    }

    #[test]
    fn the_counter_of_regions_wraps() {
        let pool = Pool::new(3);
        for start in [None, Some(0u64.wrapping_sub(3 * EPOCH))] {
            if let Some(start) = start {
                pool.crew.shared.state.0.store(start, Ordering::SeqCst);
            }
            for _ in 0..10 {
                let sum = AtomicUsize::new(0);
                let ran = pool.run(9, |chunk| {
                    sum.fetch_add(1 << (3 * chunk), Ordering::Relaxed);
                });
                assert_eq!((ran, sum.into_inner()), (Ok(()), 0o111_111_111));
            }
        }
    }

    #[test]
    fn many_workers_wake_each_other_and_no_more_take_part_than_are_asked() {
        let pool = Pool::new(16);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(1));
            let (threads, hits) =
                (Mutex::new(std::collections::HashSet::new()), AtomicUsize::new(0));
            let ran = pool.run_on(9, 40, |_| {
                threads.lock().expect("no panic").insert(std::thread::current().id());
                hits.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            });
            assert_eq!((ran, hits.into_inner()), (Ok(()), 40));
            let threads = threads.into_inner().expect("no panic").len();
            assert!(threads > WAKES + 1 && threads <= 9, "{threads}");
        }
    }

    #[test]
    fn wakes_parked_workers() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            let sum = AtomicUsize::new(0);
            let ran = pool.run(10, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!((ran, sum.into_inner()), (Ok(()), 45));
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
                        panic_any("chunk 3");
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                })
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
                        let ran = pool.run(4, |_| {
                            pool.run(3, |_| {
                                sum.fetch_add(1, Ordering::Relaxed);
                            })
                        });
                        assert_eq!(ran, Ok(()));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 4 * 100 * 12);
    }

    #[test]
    fn regions_end_when_they_are_told_to() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            for allowed in [0, 1, 5] {
                let (asked, done) = (Cell::new(0), AtomicUsize::new(0));
                let ends = || asked.replace(asked.get() + 1) >= allowed;
                let found = Pool::run_until(&ends, || {
                    // The caller takes a chunk, however many the other threads take.
                    pool.run(1000, |_| {
                        done.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(50));
                    })
                });
                assert_eq!(found, Err(Ended), "{threads} threads, {allowed}");
                assert_eq!(asked.get(), allowed + 1);
                let done = done.into_inner();
                assert!(done >= allowed && done < 1000, "{done} with {threads} threads");
            }
            // The predicate is removed, and all chunks run.
            let done = AtomicUsize::new(0);
            let count = |_| {
                done.fetch_add(1, Ordering::Relaxed);
            };
            assert_eq!(pool.run(10, count), Ok(()));
            assert_eq!(Pool::run_until(&|| false, || pool.run(10, count)), Ok(()));
            assert_eq!(done.into_inner(), 20);
        }
    }

    #[test]
    fn a_region_within_a_chunk_ends_the_one_around_it() {
        let (pool, inner) = (Pool::new(2), AtomicUsize::new(0));
        let asked = Cell::new(0);
        let ends = || asked.replace(asked.get() + 1) >= 3;
        let found = Pool::run_until(&ends, || {
            pool.run(100, |_| {
                std::thread::sleep(Duration::from_micros(50));
                pool.run(100, |_| {
                    inner.fetch_add(1, Ordering::Relaxed);
                })
            })
        });
        assert_eq!(found, Err(Ended));
        assert!(inner.into_inner() < 100 * 100);
    }

    #[test]
    fn what_is_done_to_its_end_asks_nothing() {
        let done = AtomicUsize::new(0);
        let count = |_| {
            done.fetch_add(1, Ordering::Relaxed);
        };
        let found = Pool::run_until(&|| true, || {
            Pool::run_to_end(|| Pool::serial().run(10, count));
            Pool::serial().run(10, count)
        });
        assert_eq!((found, done.into_inner()), (Err(Ended), 10));
    }

    #[test]
    fn long_chunks_end_on_all_threads() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            let start = Instant::now();
            let found = Pool::run_until(&|| start.elapsed() > Duration::from_millis(20), || {
                pool.run(threads, |_| {
                    let pace = crate::Pace::default();
                    // Without cancellation it would take years.
                    (0..u64::MAX).try_for_each(|_| pace.count(1))
                })
            });
            assert_eq!(found, Err(Ended), "{threads} threads");
            // The next region does not end.
            let done = AtomicUsize::new(0);
            let ran = pool.run(10, |_| {
                Pool::check_ended()?;
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            assert_eq!((ran, done.into_inner()), (Ok(()), 10));
        }
    }

    #[test]
    fn a_panic_stays_one() {
        let found = catch_unwind(|| {
            Pool::run_until(&|| false, || Pool::serial().run(1, |_| -> () { panic_any("chunk") }))
        });
        assert_eq!(found.expect_err("a panic").downcast_ref::<&str>(), Some(&"chunk"));
    }

    /// Counts the threads that take part in a region of many chunks of a millisecond each.
    fn count_participants(pool: &Pool) -> usize {
        let threads = Mutex::new(std::collections::HashSet::new());
        let ran = pool.run(12, |_| {
            threads.lock().expect("no panic").insert(std::thread::current().id());
            std::thread::sleep(Duration::from_millis(1));
        });
        assert_eq!(ran, Ok(()));
        threads.into_inner().expect("no panic").len()
    }

    #[test]
    fn shared_pools_have_the_workers_of_the_largest() {
        let four = Pool::new_shared(4);
        let [two, three, again] = [2, 3, 4].map(Pool::new_shared);
        let workers = 3.max(Pool::available_threads() - 1);
        for (pool, threads) in [(&four, 4), (&two, 2), (&three, 3), (&again, 4)] {
            assert_eq!((pool.threads(), pool.workers()), (threads, workers));
        }
        assert_eq!((Pool::new_shared(1).threads(), Pool::new_shared(1).workers()), (1, 0));
        assert_eq!(Pool::new_shared(0).threads(), 1);
    }

    #[test]
    fn of_shared_workers_no_more_take_part_than_the_pool_has() {
        let [one, two, four] = [1, 2, 4].map(Pool::new_shared);
        for _ in 0..20 {
            assert!(count_participants(&four) > 1);
            assert!(count_participants(&two) <= 2);
            assert_eq!(count_participants(&one), 1);
        }
        // A worker that sleeps through regions that it may not enter wakes for one that it may.
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(1));
            count_participants(&two);
        }
        assert!(count_participants(&four) > 2);
    }

    #[test]
    fn constants_are_packed_within_a_pool() {
        let inside = Pool::serial().pack_within(|| {
            let nested = Pool::new(2).pack_within(|| Pool::for_packing().threads());
            (nested, Pool::for_packing().threads())
        });
        assert_eq!(inside, (2, 1));
        let panicked = catch_unwind(|| Pool::new(3).pack_within(|| panic_any(0)));
        assert!(panicked.is_err());
        assert_eq!(Pool::for_packing().threads(), Pool::global().threads());
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
