//! Where the messages for one worker wait until it asks for them.
//!
//! Every transport here has one per worker: what arrives is put in at once, so no sender ever waits
//! for a receiver. Messages of one sender lie in the order in which they were sent; a receiver
//! takes the first that has its tag.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{ErrorKind, TransportError};
use crate::frame::{Frame, Header};
use crate::locked;
use crate::scratch::{Piece, Scratch};
use crate::transport::Tag;

#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    arrived: Condvar,
    /// The memory of messages.
    pub(crate) memory: Scratch,
}

#[derive(Debug)]
struct State {
    /// By sender.
    senders: Vec<Sender>,
    /// The first failure of any worker, which ends all receives.
    failure: Option<TransportError>,
    /// By worker: for whom it waits longer than its deadline, and since when that is known.
    overdue: Vec<Option<(usize, Instant)>>,
}

#[derive(Debug, Default)]
struct Sender {
    messages: VecDeque<(Tag, Piece)>,
    /// It will send nothing more.
    ended: bool,
}

impl Mailbox {
    pub(crate) fn new(workers: usize) -> Mailbox {
        let senders = (0..workers).map(|_| Sender::default()).collect();
        Mailbox {
            state: Mutex::new(State { senders, failure: None, overdue: vec![None; workers] }),
            arrived: Condvar::new(),
            memory: Scratch::new(),
        }
    }

    /// Puts a message in.
    pub(crate) fn put(&self, from: usize, tag: Tag, message: Piece) {
        let mut state = locked(&self.state);
        state.senders[from].messages.push_back((tag, message));
        // Who sends does not wait any more.
        state.overdue[from] = None;
        drop(state);
        self.arrived.notify_all();
    }

    /// Puts a copy of a message in.
    pub(crate) fn put_copy(
        &self,
        from: usize,
        tag: Tag,
        bytes: &[u8],
    ) -> Result<(), TransportError> {
        let mut message = self.memory.take(bytes.len())?;
        message.copy_from_slice(bytes);
        self.put(from, tag, message);
        Ok(())
    }

    /// Takes in a frame of a worker. A failure that it tells of is returned and not yet noted: the
    /// caller may have to tell others.
    pub(crate) fn take_frame(
        &self,
        from: usize,
        header: Header,
        bytes: Piece,
    ) -> Option<TransportError> {
        let failure = match header.frame {
            Frame::Message => {
                self.put(from, header.tag, bytes);
                return None;
            }
            Frame::Failed => Some(told(ErrorKind::Failed, header.tag, &bytes)),
            Frame::Lost => Some(told(ErrorKind::Lost, header.tag, &bytes)),
            Frame::Overdue => {
                self.note_overdue(from, header.tag as usize);
                None
            }
            Frame::End => {
                self.end(from);
                None
            }
            Frame::Here => None,
        };
        self.memory.give_back(bytes);
        failure
    }

    /// Lends the first message of `from` with this tag to `take`, as soon as it is there. After the
    /// deadline it calls `tell`, which notes at all workers that this one waits for `from`, and
    /// gives them some time to do the same: who waits for a worker that waits itself is to name
    /// the one that all wait for.
    pub(crate) fn receive(
        &self,
        from: usize,
        tag: Tag,
        deadline: Duration,
        take: &mut dyn FnMut(&[u8]),
        tell: impl FnOnce(),
    ) -> Result<(), TransportError> {
        if self.receive_within(deadline, from, tag, take)? {
            return Ok(());
        }
        tell();
        if self.receive_within(grace(deadline), from, tag, take)? {
            return Ok(());
        }
        Err(self.no_answer(from, tag, deadline))
    }

    /// Whether the message came in time.
    fn receive_within(
        &self,
        time: Duration,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let until = Instant::now() + time;
        let mut state = locked(&self.state);
        loop {
            if let Some(message) = state.find(from, tag)? {
                drop(state);
                take(&message);
                self.memory.give_back(message);
                return Ok(true);
            }
            let now = Instant::now();
            if now >= until {
                return Ok(false);
            }
            state = self.wait(state, until - now);
        }
    }

    /// Notes that a worker waits for another longer than its deadline.
    pub(crate) fn note_overdue(&self, worker: usize, waits_for: usize) {
        let mut state = locked(&self.state);
        if waits_for < state.overdue.len() {
            state.overdue[worker] = Some((waits_for, Instant::now()));
        }
    }

    /// The error of who waits for `from` longer than the deadline.
    #[cold]
    pub(crate) fn no_answer(&self, from: usize, tag: Tag, deadline: Duration) -> TransportError {
        let missing = locked(&self.state).missing(from, 2 * grace(deadline));
        let message = if missing == from {
            format!("worker {from} did not send message {tag} within {deadline:?}")
        } else {
            format!(
                "worker {missing} did not answer within {deadline:?}: worker {from}, from which \
                 message {tag} is expected, waits for it"
            )
        };
        TransportError::at(ErrorKind::Deadline, missing, message)
    }

    /// As [`Mailbox::receive`], but if the message is not there yet it says so at once.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    pub(crate) fn receive_if_there(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let found = locked(&self.state).find(from, tag)?;
        let Some(message) = found else { return Ok(false) };
        take(&message);
        self.memory.give_back(message);
        Ok(true)
    }

    /// Whether the message is there; an error if it will not come.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    pub(crate) fn has(&self, from: usize, tag: Tag) -> Result<bool, TransportError> {
        locked(&self.state).place(from, tag).map(|place| place.is_some())
    }

    /// Whether a worker will send nothing more.
    pub(crate) fn has_ended(&self, worker: usize) -> bool {
        locked(&self.state).senders[worker].ended
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.arrived.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes that a worker will send nothing more.
    pub(crate) fn end(&self, from: usize) {
        locked(&self.state).senders[from].ended = true;
        self.arrived.notify_all();
    }

    /// Waits until it is known how a worker ended to which nothing can be sent; an error unless it
    /// did so in good order: `lost` if nothing is known about it after `time`.
    pub(crate) fn wait_for_end(
        &self,
        worker: usize,
        time: Duration,
        lost: impl FnOnce() -> TransportError,
    ) -> Result<(), TransportError> {
        let until = Instant::now() + time;
        let mut state = locked(&self.state);
        while !state.senders[worker].ended {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            let now = Instant::now();
            if now >= until {
                return Err(lost());
            }
            state = self.wait(state, until - now);
        }
        Ok(())
    }

    /// Waits until all workers but the own one will send nothing more, or are known to be lost; not
    /// longer than `time`.
    pub(crate) fn wait_for_all_ends(&self, own: usize, time: Duration) {
        let until = Instant::now() + time;
        let mut state = locked(&self.state);
        loop {
            let lost = state.failure.as_ref().filter(|failure| failure.kind() == ErrorKind::Lost);
            let lost = lost.and_then(TransportError::worker);
            let has_ended = |(worker, sender): (usize, &Sender)| {
                sender.ended || worker == own || lost == Some(worker)
            };
            let now = Instant::now();
            if now >= until || state.senders.iter().enumerate().all(has_ended) {
                return;
            }
            state = self.wait(state, until - now);
        }
    }

    /// Notes a failure, unless there was one before; says whether there was none.
    pub(crate) fn fail(&self, failure: TransportError) -> bool {
        let mut state = locked(&self.state);
        let first = state.failure.is_none();
        if first {
            state.failure = Some(failure);
            self.arrived.notify_all();
        }
        first
    }

    /// The first failure of any worker as an error.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        locked(&self.state).failure.clone().map_or(Ok(()), Err)
    }
}

impl State {
    /// Takes out the message if it is there; an error if it will not come.
    fn find(&mut self, from: usize, tag: Tag) -> Result<Option<Piece>, TransportError> {
        let Some(place) = self.place(from, tag)? else { return Ok(None) };
        Ok(self.senders[from].messages.remove(place).map(|(_, message)| message))
    }

    /// For whom `worker` waits in the end, by what workers said lately: they give up soon after.
    /// If workers wait in a circle, `worker` itself.
    fn missing(&self, worker: usize, lately: Duration) -> usize {
        let mut missing = worker;
        for _ in &self.overdue {
            match self.overdue[missing] {
                Some((next, since)) if since.elapsed() <= lately => missing = next,
                _ => return missing,
            }
        }
        worker
    }

    /// Where the message lies among those of its sender.
    fn place(&self, from: usize, tag: Tag) -> Result<Option<usize>, TransportError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let sender = &self.senders[from];
        let place = sender.messages.iter().position(|(with, _)| *with == tag);
        if place.is_none() && sender.ended {
            let message = format!("worker {from} ended its work before it sent message {tag}");
            return Err(TransportError::at(ErrorKind::Ended, from, message));
        }
        Ok(place)
    }
}

/// How long workers that all wait too long have to learn that of each other.
pub(crate) fn grace(deadline: Duration) -> Duration {
    (deadline / 4).min(Duration::from_secs(2))
}

/// What all others are told about a worker that failed.
#[cold]
pub(crate) fn failed(worker: usize, reason: &str) -> TransportError {
    TransportError::at(ErrorKind::Failed, worker, format!("worker {worker} failed: {reason}"))
}

/// A failure that another worker tells of.
#[cold]
pub(crate) fn told(kind: ErrorKind, worker: u32, text: &[u8]) -> TransportError {
    TransportError::at(kind, worker as usize, String::from_utf8_lossy(text))
}
