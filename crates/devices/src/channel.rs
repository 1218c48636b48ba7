//! Transport over any carrier of whole messages: actors, queues, or a message library of another
//! language.
//!
//! Each worker runs two threads. The writer passes outgoing messages to the channel, the reader
//! puts incoming ones into the endpoint. A send therefore never waits for a slow channel, and each
//! function of the channel is called by a single thread. Messages are numbered, so that they may
//! arrive in any order and several times.
//!
//! Workers send heartbeats, because a channel need not notice that a worker is gone.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Notice, decode_failure, grace, worker_failure};
use crate::error::{TransportError, TransportErrorKind, err};
use crate::frame::{Frame, HEADER_BYTES, Header};
use crate::lock;
use crate::scratch::Piece;
use crate::transport::{Settings, Tag, Transport, check_worker};

/// Carrier of messages between several workers, which a program implements.
///
/// Each message arrives whole. Messages may arrive in any order and several times. A message to a
/// worker that has ended its work may be lost. `send` and `receive` are called from two different
/// threads, each from only one thread at a time.
pub trait Channel: fmt::Debug + Send + Sync {
    /// Returns the number of workers.
    fn workers(&self) -> usize;

    /// Returns the number of this worker, from 0.
    fn number(&self) -> usize;

    /// Sends a message to another worker. May block until the other worker receives it, because
    /// every worker receives at all times.
    ///
    /// # Errors
    /// The message cannot be sent. The other worker then counts as lost.
    fn send(&self, to: usize, message: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Waits about as long as `wait` for the next message of any worker, and calls `take` with the
    /// number of the sender and the message. Returns whether a message arrived.
    ///
    /// # Errors
    /// No more messages can be received. This worker then fails.
    fn receive(
        &self,
        wait: Duration,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<bool, Box<dyn Error + Send + Sync>>;
}

/// Transport over a [`Channel`], which a program implements.
///
/// A worker is lost if a message cannot be sent to it, or if no message of it arrives for as long
/// as the deadline. Dropping the transport ends the work of this worker: it waits until all
/// messages are sent, and a quarter of the deadline, at most 2 seconds, for the other workers to
/// end theirs. If a call of the channel does not return by then, its thread is detached.
#[derive(Debug)]
pub struct Channels {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    channel: Box<dyn Channel>,
    outbox: Mutex<Outbox>,
    /// Signals that a message was queued or that a thread has ended.
    changed: Condvar,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Outbox {
    messages: VecDeque<(usize, Piece)>,
    /// Number of the next message, by receiver.
    next: Vec<u64>,
    /// Whether the outbox accepts no more messages.
    closed: bool,
    /// Whether the writer and the reader still call the channel.
    running: [bool; 2],
}

const WRITER: usize = 0;
const READER: usize = 1;

/// Length of the prefix of each message: a header and the number of the message.
const NUMBERED_BYTES: usize = HEADER_BYTES + 8;

/// Maximum time that the reader waits for a message before it checks whether to stop.
const WAIT: Duration = Duration::from_millis(50);

impl Channels {
    /// Starts the transport of the worker at this end of the channel, with two threads.
    ///
    /// # Errors
    /// `Argument` if the number of this worker is not below the number of workers, `System` if
    /// threads cannot be started.
    pub fn new(
        channel: impl Channel + 'static,
        settings: &Settings,
    ) -> Result<Channels, TransportError> {
        let (number, workers) = (channel.number(), channel.workers());
        check_worker(number, workers)?;
        let shared = Arc::new(Shared {
            endpoint: Endpoint::new(number, workers, settings),
            channel: Box::new(channel),
            outbox: Mutex::new(Outbox {
                messages: VecDeque::new(),
                next: vec![0; workers],
                closed: false,
                running: [false; 2],
            }),
            changed: Condvar::new(),
            closing: AtomicBool::new(false),
        });
        let mut channels = Channels { shared, threads: Vec::new() };
        let works: [(&str, fn(&Shared)); 2] =
            [("sends", Shared::write), ("receives", Shared::read)];
        for (thread, (name, work)) in works.into_iter().enumerate() {
            let shared = Arc::clone(&channels.shared);
            lock(&shared.outbox).running[thread] = true;
            let started = thread::Builder::new().name(name.to_string()).spawn(move || {
                let running = Running { shared: &shared, thread };
                work(running.shared);
            });
            match started {
                Ok(started) => channels.threads.push(started),
                Err(error) => {
                    lock(&channels.shared.outbox).running[thread] = false;
                    return err!(System, "no thread can be started: {error}");
                }
            }
        }
        Ok(channels)
    }
}

/// Guard of a thread that calls the channel. Dropping it reports a panic of the thread as a failure
/// of this worker.
struct Running<'s> {
    shared: &'s Shared,
    thread: usize,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared
                .learn(worker_failure(self.shared.endpoint.number(), "its channel panicked"));
        }
        lock(&self.shared.outbox).running[self.thread] = false;
        self.shared.changed.notify_all();
    }
}

/// Receiving state for one sender.
#[derive(Debug, Default)]
struct Sender {
    /// Number of the next message to deliver.
    next: u64,
    /// Messages that overtook others with lower numbers.
    early: BTreeMap<u64, (Header, Piece)>,
    /// Time since the last message of this sender, heartbeats included.
    silent: Duration,
}

impl Shared {
    /// Builds a message with zeros in the place of its number.
    fn make_message(&self, frame: Frame, tag: Tag, bytes: &[u8]) -> Result<Piece, TransportError> {
        let mut message = self.endpoint.memory.take(NUMBERED_BYTES + bytes.len())?;
        let header = Header { frame, tag, len: bytes.len() }.to_bytes();
        message[..HEADER_BYTES].copy_from_slice(&header);
        message[HEADER_BYTES..NUMBERED_BYTES].fill(0);
        message[NUMBERED_BYTES..].copy_from_slice(bytes);
        Ok(message)
    }

    /// Queues a message for the writer, after all others to its receiver.
    fn queue(&self, outbox: &mut Outbox, to: usize, mut message: Piece) {
        let number = outbox.next[to];
        outbox.next[to] += 1;
        message[HEADER_BYTES..NUMBERED_BYTES].copy_from_slice(&number.to_le_bytes());
        outbox.messages.push_back((to, message));
        self.changed.notify_all();
    }

    /// Records a failure and, if it is the first, reports it to all other workers.
    fn learn(&self, failure: TransportError) {
        if self.endpoint.fail(failure.clone()) {
            self.tell(Notice::Failure(&failure));
        }
    }

    /// Queues a notice for the writer, before all waiting messages.
    fn tell(&self, notice: Notice<'_>) {
        let (frame, worker, text) = notice.frame(self.endpoint.number());
        let mut outbox = lock(&self.outbox);
        for to in self.endpoint.recipients(notice) {
            // A worker that misses the notice detects the failure by its deadline.
            if let Ok(message) = self.make_message(frame, worker, text) {
                outbox.messages.push_front((to, message));
            }
        }
        self.changed.notify_all();
    }

    /// Returns the interval between heartbeats.
    fn beat(&self) -> Duration {
        (self.endpoint.deadline() / 8).max(Duration::from_millis(1))
    }

    /// Runs the writer: sends queued messages and heartbeats until the outbox is closed and empty.
    fn write(&self) {
        let mut next_beat = Instant::now() + self.beat();
        let mut outbox = lock(&self.outbox);
        loop {
            let now = Instant::now();
            if now >= next_beat {
                next_beat = now + self.beat();
                for to in self.endpoint.others() {
                    if let Ok(message) = self.make_message(Frame::Here, 0, &[]) {
                        outbox.messages.push_front((to, message));
                    }
                }
            }
            if let Some((to, message)) = outbox.messages.pop_front() {
                drop(outbox);
                self.deliver(to, &message);
                self.endpoint.memory.give_back(message);
                outbox = lock(&self.outbox);
            } else if outbox.closed {
                return;
            } else {
                outbox = self.wait(outbox, next_beat - now);
            }
        }
    }

    /// Passes one message to the channel, and handles its failure to send.
    fn deliver(&self, to: usize, message: &[u8]) {
        let is_end = message.first() == Some(&(Frame::End as u8));
        // A worker that has ended waits only for the ends of the others.
        if self.endpoint.has_ended(to) && !is_end {
            return;
        }
        let Err(error) = self.channel.send(to, message) else { return };
        let own = self.endpoint.number();
        let lost = || {
            let message = format!("worker {to} is lost: worker {own} cannot send to it: {error}");
            TransportError::at(TransportErrorKind::Lost, to, message)
        };
        // The worker may have ended regularly, with its last messages still on the way.
        if let Err(failure) = self.endpoint.wait_for_end(to, grace(self.endpoint.deadline()), lost)
        {
            self.learn(failure);
        }
    }

    /// Runs the reader: takes messages from the channel until the transport closes.
    fn read(&self) {
        let mut senders: Vec<Sender> =
            (0..self.endpoint.workers()).map(|_| Sender::default()).collect();
        let mut looked = Instant::now();
        while !self.closing.load(Ordering::Acquire) {
            let mut failure = Ok(());
            let received = self.channel.receive(WAIT.min(self.beat()), &mut |from, message| {
                failure = self.take_in(&mut senders, from, message);
            });
            if let Err(failure) = failure {
                self.learn(failure);
            }
            if let Err(error) = received {
                // A closing transport expects the channel to end.
                if !self.closing.load(Ordering::Acquire) {
                    self.learn(worker_failure(
                        self.endpoint.number(),
                        &format!("it cannot receive: {error}"),
                    ));
                }
                return;
            }
            let now = Instant::now();
            // A process that was suspended must not count that time as silence of the others, so a
            // single step is bounded.
            let passed = (now - looked).min(2 * WAIT);
            looked = now;
            self.note_silence(&mut senders, passed);
        }
    }

    fn take_in(
        &self,
        senders: &mut [Sender],
        from: usize,
        message: &[u8],
    ) -> Result<(), TransportError> {
        if from >= self.endpoint.workers() || from == self.endpoint.number() {
            let why = format!("its channel names worker {from} as the sender of a message");
            return Err(worker_failure(self.endpoint.number(), &why));
        }
        let damaged = || worker_failure(from, "it sent bytes that are not a message");
        let (head, bytes) = message.split_at_checked(NUMBERED_BYTES).ok_or_else(damaged)?;
        let (header, number) = head.split_at(HEADER_BYTES);
        let number = number.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let header = Header::from_bytes(header).filter(|header| header.len == bytes.len());
        let header = header.ok_or_else(damaged)?;
        let sender = &mut senders[from];
        sender.silent = Duration::ZERO;
        if let (Frame::End, Some((kind, text))) = (header.frame, bytes.split_first()) {
            let kind = if *kind == Frame::Lost as u8 {
                TransportErrorKind::Lost
            } else {
                TransportErrorKind::Failed
            };
            // Recorded before the end, so that the end itself is not taken for the cause.
            self.learn(decode_failure(kind, header.tag, text));
            self.endpoint.end(from);
            return Ok(());
        }
        let mut piece = self.endpoint.memory.take(bytes.len())?;
        piece.copy_from_slice(bytes);
        let is_numbered = matches!(header.frame, Frame::Message | Frame::End);
        // A worker that fails may end before its last numbered messages arrive. Its remaining
        // frames are handled without their order then.
        if !is_numbered || self.endpoint.check().is_err() {
            return self.endpoint.take_frame(from, header, piece).map_or(Ok(()), Err);
        }
        if number >= sender.next {
            sender.early.insert(number, (header, piece));
        }
        while let Some((header, piece)) = sender.early.remove(&sender.next) {
            sender.next += 1;
            // Neither a message nor an end reports a failure.
            self.endpoint.take_frame(from, header, piece);
        }
        Ok(())
    }

    /// Adds `passed` to the silence of all other workers, and reports workers that exceed the
    /// deadline as lost.
    fn note_silence(&self, senders: &mut [Sender], passed: Duration) {
        for worker in self.endpoint.others() {
            let sender = &mut senders[worker];
            sender.silent += passed;
            if sender.silent > self.endpoint.deadline() && !self.endpoint.has_ended(worker) {
                let deadline = self.endpoint.deadline();
                let message =
                    format!("worker {worker} is lost: it was not heard of for {deadline:?}");
                self.learn(TransportError::at(TransportErrorKind::Lost, worker, message));
            }
        }
    }

    fn wait<'a>(&self, outbox: MutexGuard<'a, Outbox>, time: Duration) -> MutexGuard<'a, Outbox> {
        let waited = self.changed.wait_timeout(outbox, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits up to `time` until a thread no longer calls the channel. Returns whether that
    /// happened.
    fn wait_for(&self, thread: usize, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut outbox = lock(&self.outbox);
        while outbox.running[thread] {
            let now = Instant::now();
            if now >= until {
                return false;
            }
            outbox = self.wait(outbox, until - now);
        }
        true
    }
}

impl Transport for Channels {
    fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        let message = self.shared.make_message(Frame::Message, tag, bytes)?;
        self.shared.queue(&mut lock(&self.shared.outbox), to, message);
        Ok(())
    }

    fn tell(&self, notice: Notice<'_>) {
        self.shared.tell(notice);
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("it panicked");
        }
        let shared = &self.shared;
        let failure = shared.endpoint.check().err();
        // The end repeats the cause of a failure, because the notice may arrive later.
        let (worker, why) = failure.as_ref().map_or((0, Vec::new()), |failure| {
            let notice = Notice::Failure(failure);
            let (frame, worker, text) = notice.frame(shared.endpoint.number());
            (worker, [&[frame as u8], text].concat())
        });
        {
            let mut outbox = lock(&shared.outbox);
            for to in shared.endpoint.others() {
                if let Ok(message) = shared.make_message(Frame::End, worker, &why) {
                    shared.queue(&mut outbox, to, message);
                }
            }
            outbox.closed = true;
            shared.changed.notify_all();
        }
        // After a failure, the remaining messages have no reader.
        let patience = if failure.is_some() {
            grace(shared.endpoint.deadline())
        } else {
            shared.endpoint.deadline()
        };
        shared.wait_for(WRITER, patience);
        // Another worker's send may block until this worker receives it, so the reader runs on
        // until all workers have ended.
        shared.endpoint.wait_for_all_ends(grace(shared.endpoint.deadline()));
        shared.closing.store(true, Ordering::Release);
        shared.wait_for(READER, grace(shared.endpoint.deadline()).max(2 * WAIT));
        for thread in self.threads.drain(..) {
            let has_ended = !lock(&shared.outbox).running.contains(&true);
            if has_ended || thread.is_finished() {
                // A panic of the channel was already reported to all workers.
                let _ = thread.join();
            }
        }
    }
}
