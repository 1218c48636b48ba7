//! Workers that are threads of one process.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::TransportError;
use crate::locked;
use crate::mailbox::{Mailbox, failed};
use crate::scratch::Scratch;
use crate::traffic::{Traffic, TrafficCounters};
use crate::transport::{Settings, Tag, Transport, check_worker};

/// The transport of a worker that is a thread, or several, of this process. Messages are copied
/// twice: into memory of the receiver's mailbox, and from there to where the receiver wants them.
///
/// Dropping it ends the worker's work: who waits for a message of it then gets the error `Ended`.
/// If it is dropped by a panic, the worker failed.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    number: usize,
    counters: TrafficCounters,
    scratch: Scratch,
}

#[derive(Debug)]
struct Shared {
    /// By receiver.
    mailboxes: Vec<Mailbox>,
    /// Held while a failure is told, so that all learn of the same one first.
    telling: Mutex<()>,
    settings: Settings,
}

impl Threads {
    /// The transports of so many workers, by number.
    pub fn new(workers: usize, settings: &Settings) -> Vec<Threads> {
        let mailboxes = (0..workers).map(|_| Mailbox::new(workers)).collect();
        let shared =
            Arc::new(Shared { mailboxes, telling: Mutex::new(()), settings: settings.clone() });
        let worker = |number| Threads {
            shared: Arc::clone(&shared),
            number,
            counters: TrafficCounters::new(workers),
            scratch: Scratch::new(),
        };
        (0..workers).map(worker).collect()
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[self.number]
    }
}

impl Transport for Threads {
    fn workers(&self) -> usize {
        self.shared.mailboxes.len()
    }

    fn number(&self) -> usize {
        self.number
    }

    fn send(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        check_worker(to, self.workers())?;
        self.mailbox().check()?;
        self.shared.mailboxes[to].put_copy(self.number, tag, bytes)?;
        self.counters.count(to, bytes.len());
        Ok(())
    }

    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        check_worker(from, self.workers())?;
        let (mailboxes, deadline) = (&self.shared.mailboxes, self.shared.settings.deadline);
        self.mailbox().receive(from, tag, deadline, take, || {
            mailboxes.iter().for_each(|mailbox| mailbox.note_overdue(self.number, from));
        })
    }

    fn fail(&self, reason: &str) {
        let failure = failed(self.number, reason);
        let _telling = locked(&self.shared.telling);
        for mailbox in &self.shared.mailboxes {
            mailbox.fail(failure.clone());
        }
    }

    fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("its thread panicked");
        }
        // Who ends because of a failure must not be noticed before the failure.
        let _telling = locked(&self.shared.telling);
        for mailbox in &self.shared.mailboxes {
            mailbox.end(self.number);
        }
    }
}
