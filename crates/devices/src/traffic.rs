//! How much a worker sent, by receiver.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a worker sent since its transport was made. Messages of barriers, of agreement and of the
/// default collectives count as all others; a notice of failure does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By receiver, as many as there are workers. What a worker sends to itself counts, too.
    pub sent: Vec<Sent>,
    /// What was left to collectives that are the library's own, whose messages nobody sees: how
    /// often, and the bytes of this worker's memory that took part.
    pub library: Sent,
}

/// Messages, and the bytes in them without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// How many messages.
    pub messages: u64,
    /// How many bytes were in them.
    pub bytes: u64,
}

impl Traffic {
    /// Over all receivers.
    pub fn total(&self) -> Sent {
        self.sent.iter().fold(Sent::default(), |sum, sent| Sent {
            messages: sum.messages + sent.messages,
            bytes: sum.bytes + sent.bytes,
        })
    }
}

/// Counts what a transport sends.
#[derive(Debug)]
pub struct TrafficCounters {
    links: Vec<Counter>,
    library: Counter,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl TrafficCounters {
    /// Nothing sent yet to any of so many workers.
    pub fn new(workers: usize) -> TrafficCounters {
        let links = (0..workers).map(|_| Counter::default()).collect();
        TrafficCounters { links, library: Counter::default() }
    }

    /// Counts a message of so many bytes to a worker.
    pub fn count(&self, to: usize, bytes: usize) {
        if let Some(link) = self.links.get(to) {
            link.count(bytes);
        }
    }

    /// Counts a collective that the library did with so many bytes of this worker's.
    pub fn count_library(&self, bytes: usize) {
        self.library.count(bytes);
    }

    /// What was counted so far.
    pub fn read(&self) -> Traffic {
        let sent = self.links.iter().map(Counter::read).collect();
        Traffic { sent, library: self.library.read() }
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
