//! Workers that are threads of one process.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::endpoint::{Endpoint, Notice, worker_failure};
use crate::error::TransportError;
use crate::lock;
use crate::transport::{RunNumber, Settings, Tag, Transport};

/// Transport of a worker that is one or several threads of this process. Each message is copied
/// twice: into memory of the receiver's endpoint, and from there to its destination.
///
/// Dropping it ends the work of this worker: other workers that wait for a message of it get the
/// error `Ended`. If a panic drops it, the worker counts as failed.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    number: usize,
}

#[derive(Debug)]
struct Shared {
    /// Endpoints by worker number.
    endpoints: Vec<Endpoint>,
    /// Lock held while a failure is reported, so that all workers learn of one failure first.
    telling: Mutex<()>,
}

impl Threads {
    /// Creates the transports of `workers` workers, in the order of their numbers.
    pub fn new(workers: usize, settings: &Settings) -> Vec<Threads> {
        let endpoints = (0..workers).map(|number| Endpoint::new(number, workers, settings));
        let shared = Shared { endpoints: endpoints.collect(), telling: Mutex::new(()) };
        let shared = Arc::new(shared);
        (0..workers).map(|number| Threads { shared: Arc::clone(&shared), number }).collect()
    }
}

impl Transport for Threads {
    fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoints[self.number]
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        self.shared.endpoints[to].deliver(self.number, tag, bytes)
    }

    fn tell(&self, notice: Notice<'_>) {
        self.shared.endpoints.iter().for_each(|endpoint| endpoint.note(self.number, notice));
    }

    fn end_run(&self, run: RunNumber, reason: &TransportError) {
        let _telling = lock(&self.shared.telling);
        self.tell(Notice::RunEnded(run, reason));
    }

    fn fail(&self, reason: &str) {
        let _telling = lock(&self.shared.telling);
        self.tell(Notice::Failure(&worker_failure(self.number, reason)));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("its thread panicked");
        }
        // Other workers must notice the failure before the end that it causes.
        let _telling = lock(&self.shared.telling);
        self.shared.endpoints.iter().for_each(|endpoint| endpoint.end(self.number));
    }
}
