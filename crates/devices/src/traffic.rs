//! Counters of a worker's traffic, by receiver, and of its waiting time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Traffic that a worker has sent since its transport was made. Messages of barriers, of agreement
/// and of the default collectives count; notices of failures do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Messages to each worker, by number, including messages of the worker to itself.
    pub sent: Vec<Sent>,
    /// Collectives that the MPI library performed by its own messages: their number, and the bytes
    /// of this worker's memory that took part.
    pub library: Sent,
    /// Time that receives waited for messages that had not arrived.
    pub waited: Duration,
}

/// Number of messages, and their total size in bytes without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of messages.
    pub messages: u64,
    /// Total size of the messages in bytes.
    pub bytes: u64,
}

impl std::ops::Sub for Sent {
    type Output = Sent;

    /// Returns the traffic since an earlier moment.
    fn sub(self, earlier: Sent) -> Sent {
        Sent { messages: self.messages - earlier.messages, bytes: self.bytes - earlier.bytes }
    }
}

impl std::ops::Add for Sent {
    type Output = Sent;

    fn add(self, other: Sent) -> Sent {
        Sent { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl Traffic {
    /// Returns the sum over all receivers.
    pub fn total(&self) -> Sent {
        self.sent.iter().fold(Sent::default(), |sum, sent| sum + *sent)
    }
}

/// Counters of the messages that a transport sends.
#[derive(Debug)]
pub struct TrafficCounters {
    links: Vec<Counter>,
    library: Counter,
    /// Waiting time in nanoseconds.
    waited: AtomicU64,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl TrafficCounters {
    /// Creates counters for messages to `workers` workers.
    pub fn new(workers: usize) -> TrafficCounters {
        let links = (0..workers).map(|_| Counter::default()).collect();
        TrafficCounters { links, library: Counter::default(), waited: AtomicU64::new(0) }
    }

    /// Counts a message of `bytes` bytes to worker `to`.
    pub fn count(&self, to: usize, bytes: usize) {
        if let Some(link) = self.links.get(to) {
            link.count(bytes);
        }
    }

    /// Counts a collective of the MPI library on `bytes` bytes of this worker.
    pub fn count_library(&self, bytes: usize) {
        self.library.count(bytes);
    }

    /// Adds the time that a receive waited for its message.
    pub fn count_waiting(&self, time: Duration) {
        self.waited.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub fn read(&self) -> Traffic {
        let sent = self.links.iter().map(Counter::read).collect();
        Traffic { sent, library: self.library.read(), waited: self.waiting_time() }
    }

    /// Returns the total of messages to all workers and collectives of the MPI library.
    pub fn total(&self) -> Sent {
        self.links.iter().fold(self.library.read(), |sum, link| sum + link.read())
    }

    /// Returns the time that receives have waited for messages.
    pub fn waiting_time(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }
}

impl Counter {
    fn count(&self, bytes: usize) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn read(&self) -> Sent {
        Sent {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}
