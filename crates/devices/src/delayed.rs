//! Transport for tests that delays and reorders messages.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Notice};
use crate::error::TransportError;
use crate::lock;
use crate::transport::{RunNumber, Tag, Transport, check_worker};

/// Delays each message that is sent over another transport by its own random time, so that messages
/// arrive in every order that a [`Transport`] allows.
///
/// The times follow from a seed. A plan whose workers wait for each other in a circle, or that
/// relies on the order of arrival, fails with this transport sooner or later.
#[derive(Debug)]
pub struct Delayed<T: Transport + 'static> {
    inner: Arc<T>,
    outbox: Arc<Outbox>,
    courier: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Waiting messages. The top one is due first.
    letters: BinaryHeap<Reverse<Letter>>,
    /// Time at which the last message to a receiver with a tag is due. Later ones are not due
    /// before, so that messages of one tag stay in order.
    last: HashMap<(usize, Tag), Instant>,
    random: u64,
    most: Duration,
    count: u64,
    closed: bool,
}

/// Waiting message. The derived order is the order of delivery.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Letter {
    due: Instant,
    count: u64,
    to: usize,
    tag: Tag,
    bytes: Vec<u8>,
}

impl<T: Transport + 'static> Delayed<T> {
    /// Creates a transport over `inner` that delays half of its messages, each by up to `most`.
    pub fn new(inner: T, seed: u64, most: Duration) -> Delayed<T> {
        let inner = Arc::new(inner);
        let state = State {
            letters: BinaryHeap::new(),
            last: HashMap::new(),
            random: seed ^ (inner.number() as u64) << 32,
            most,
            count: 0,
            closed: false,
        };
        let outbox = Arc::new(Outbox { state: Mutex::new(state), changed: Condvar::new() });
        let courier = {
            let (inner, outbox) = (Arc::clone(&inner), Arc::clone(&outbox));
            thread::spawn(move || outbox.deliver(&*inner))
        };
        Delayed { inner, outbox, courier: Some(courier) }
    }
}

impl Outbox {
    /// Sends messages that are due, until the outbox is closed and empty.
    fn deliver(&self, inner: &impl Transport) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let wait = match state.letters.peek() {
                Some(Reverse(letter)) => letter.due.saturating_duration_since(now),
                None if state.closed => return,
                None => Duration::from_secs(1),
            };
            if wait.is_zero() {
                if let Some(Reverse(letter)) = state.letters.pop() {
                    drop(state);
                    // The error is ignored: a failure of a worker also ends the receives of this
                    // one.
                    let _ = inner.send(letter.to, letter.tag, &letter.bytes);
                    state = lock(&self.state);
                }
            } else {
                let waited = self.changed.wait_timeout(state, wait);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl State {
    fn add(&mut self, to: usize, tag: Tag, bytes: &[u8]) {
        let mut due = Instant::now();
        let random = next_random(&mut self.random);
        if random & 1 == 1 {
            due += self.most.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64);
        }
        let last = self.last.entry((to, tag)).or_insert(due);
        *last = due.max(*last);
        let letter = Letter { due: *last, count: self.count, to, tag, bytes: bytes.to_vec() };
        self.letters.push(Reverse(letter));
        self.count += 1;
    }
}

/// Returns the next number of SplitMix64: G. Steele, D. Lea, C. Flood, "Fast Splittable
/// Pseudorandom Number Generators" (2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl<T: Transport + 'static> Transport for Delayed<T> {
    fn endpoint(&self) -> &Endpoint {
        self.inner.endpoint()
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        self.inner.post(to, tag, bytes)
    }

    /// Sends the notice at once, because notices may overtake messages.
    fn tell(&self, notice: Notice<'_>) {
        self.inner.tell(notice);
    }

    fn send(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        check_worker(to, self.workers())?;
        lock(&self.outbox.state).add(to, tag, bytes);
        self.outbox.changed.notify_all();
        Ok(())
    }

    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        self.inner.receive_with(from, tag, take)
    }

    fn worker(&self) -> usize {
        self.inner.worker()
    }

    fn end_run(&self, run: RunNumber, reason: &TransportError) {
        self.inner.end_run(run, reason);
    }

    fn fail(&self, reason: &str) {
        self.inner.fail(reason);
    }
}

impl<T: Transport + 'static> Drop for Delayed<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.inner.fail("its thread panicked");
        }
        lock(&self.outbox.state).closed = true;
        self.outbox.changed.notify_all();
        if let Some(courier) = self.courier.take() {
            // A panic can only come from the inner transport, and its message is in the log of the
            // test.
            let _ = courier.join();
        }
    }
}
