//! State that every transport keeps for its worker: number, received messages and traffic.
//!
//! A transport implements how bytes leave a worker. It puts arriving messages here at once, so that
//! no sender waits for a receiver. Messages of one sender are queued in the order in which they
//! were sent; a receive takes the first message with its tag.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{TransportError, TransportErrorKind};
use crate::frame::{Frame, Header};
use crate::lock;
use crate::scratch::{Piece, Scratch};
use crate::traffic::TrafficCounters;
use crate::transport::{RunNumber, Settings, Tag, check_worker, split_tag, tag_in_run};

/// State of a worker that does not depend on the way in which a [`Transport`](crate::Transport)
/// moves bytes.
#[derive(Debug)]
pub struct Endpoint {
    number: usize,
    workers: usize,
    deadline: Duration,
    state: Mutex<State>,
    arrived: Condvar,
    /// Pool of memory for messages.
    pub(crate) memory: Scratch,
    /// Pool of memory for partial results.
    pub(crate) scratch: Scratch,
    pub(crate) counters: TrafficCounters,
}

#[derive(Debug)]
struct State {
    /// Receiving state, by sender.
    senders: Vec<Sender>,
    /// The first failure of any worker, which ends all receives.
    failure: Option<TransportError>,
    /// Whether a worker failed or missed the deadline, or a run ended early.
    has_failed: bool,
    /// Worker for which each worker waits beyond its deadline, and when this became known.
    overdue: Vec<Option<(usize, Instant)>>,
    /// Runs that have ended early with their reasons, in the order of their ends.
    ended_runs: VecDeque<(RunNumber, TransportError)>,
    /// First run whose messages are kept. Messages of earlier runs are dropped.
    first_run: RunNumber,
    /// Number of the next run that this worker begins.
    next_run: RunNumber,
}

#[derive(Debug, Default)]
struct Sender {
    messages: VecDeque<(Tag, Piece)>,
    /// Whether the sender has ended its work and sends nothing more.
    ended: bool,
}

/// Notice that a worker sends to others in addition to messages.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A worker failed or is lost. Sent to all other workers.
    Failure(&'a TransportError),
    /// A run has ended early, with the reason. Sent to all other workers.
    RunEnded(RunNumber, &'a TransportError),
    /// The sender has waited for this worker for longer than its deadline. Sent to all workers
    /// except these two.
    Overdue(usize),
}

impl Notice<'_> {
    /// Returns the frame of a notice, its tag and its text. The tag names worker `own` if the error
    /// names no worker.
    pub(crate) fn frame(&self, own: usize) -> (Frame, Tag, &[u8]) {
        let worker = |error: &TransportError| error.worker().unwrap_or(own) as u32;
        match *self {
            Notice::Failure(failure) => {
                let is_lost = failure.kind() == TransportErrorKind::Lost;
                let frame = if is_lost { Frame::Lost } else { Frame::Failed };
                (frame, worker(failure).into(), failure.message().as_bytes())
            }
            Notice::RunEnded(run, reason) => {
                let tag = tag_in_run(run, worker(reason));
                (Frame::RunEnded, tag, reason.message().as_bytes())
            }
            Notice::Overdue(waits_for) => (Frame::Overdue, waits_for as Tag, &[]),
        }
    }
}

impl Endpoint {
    /// Creates the state of worker `number`, from 0, of `workers` workers, without messages.
    pub fn new(number: usize, workers: usize, settings: &Settings) -> Endpoint {
        let senders = (0..workers).map(|_| Sender::default()).collect();
        Endpoint {
            number,
            workers,
            deadline: settings.deadline,
            state: Mutex::new(State {
                senders,
                failure: None,
                has_failed: false,
                overdue: vec![None; workers],
                ended_runs: VecDeque::new(),
                first_run: 1,
                next_run: 1,
            }),
            arrived: Condvar::new(),
            memory: Scratch::new(),
            scratch: Scratch::new(),
            counters: TrafficCounters::new(workers),
        }
    }

    /// Returns the number of this worker, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the maximum time that a receive waits.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the counters of traffic and waiting time.
    pub fn counters(&self) -> &TrafficCounters {
        &self.counters
    }

    /// Calls `receive`, and counts the time until it passes a message to `take` as waiting time.
    pub(crate) fn count_waiting<R>(
        &self,
        take: &mut dyn FnMut(&[u8]),
        receive: impl FnOnce(&mut dyn FnMut(&[u8])) -> R,
    ) -> R {
        let start = Instant::now();
        receive(&mut |bytes| {
            self.counters.count_waiting(start.elapsed());
            take(bytes);
        })
    }

    /// Returns the numbers of all other workers.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.number;
        (0..self.workers).filter(move |worker| *worker != own)
    }

    /// Returns the workers that receive a notice.
    pub(crate) fn recipients(&self, notice: Notice<'_>) -> impl Iterator<Item = usize> + use<> {
        let but = match notice {
            Notice::Failure(_) | Notice::RunEnded(..) => None,
            Notice::Overdue(waits_for) => Some(waits_for),
        };
        self.others().filter(move |worker| Some(*worker) != but)
    }

    /// Records a notice of worker `from`.
    pub fn note(&self, from: usize, notice: Notice<'_>) {
        match notice {
            Notice::Failure(failure) => {
                self.fail(failure.clone());
            }
            Notice::RunEnded(run, reason) => {
                self.end_run(run, reason);
            }
            Notice::Overdue(waits_for) => self.note_overdue(from, waits_for),
        }
    }

    /// Returns the number of a run that begins at this worker, which must send it to the others.
    pub fn next_run(&self) -> RunNumber {
        let mut state = lock(&self.state);
        let run = state.next_run;
        state.next_run = run.checked_add(1).unwrap_or(1);
        run
    }

    /// Records that a run has ended early. Returns whether this is news: neither a failure nor an
    /// earlier end of the run is known.
    pub(crate) fn end_run(&self, run: RunNumber, reason: &TransportError) -> bool {
        let mut state = lock(&self.state);
        if run == 0 || state.failure.is_some() || state.is_unwanted(run) {
            return false;
        }
        state.has_failed = true;
        if state.ended_runs.len() == MOST_ENDED_RUNS {
            state.ended_runs.pop_front();
        }
        let (worker, text) = (reason.worker().unwrap_or(self.number), reason.message());
        let reason = TransportError::at(TransportErrorKind::RunEnded, worker, text);
        state.ended_runs.push_back((run, reason));
        self.drop_unwanted(&mut state);
        drop(state);
        self.arrived.notify_all();
        true
    }

    /// Ends all runs before `run` at this worker, and drops their messages, including later ones.
    pub fn forget_runs_before(&self, run: RunNumber) {
        let mut state = lock(&self.state);
        if is_before(state.first_run, run) {
            state.first_run = run;
            state.ended_runs.retain(|(ended, _)| !is_before(*ended, run));
            self.drop_unwanted(&mut state);
        }
    }

    /// Drops the queued messages of runs that are over.
    fn drop_unwanted(&self, state: &mut State) {
        for sender in 0..self.workers {
            while let Some(place) = state.find_unwanted(sender) {
                let message = state.senders[sender].messages.remove(place);
                message.into_iter().for_each(|(_, message)| self.memory.give_back(message));
            }
        }
    }

    /// Queues a message of worker `from`, unless its run is over.
    pub(crate) fn put(&self, from: usize, tag: Tag, message: Piece) {
        let mut state = lock(&self.state);
        // A worker that sends no longer waits.
        state.overdue[from] = None;
        if state.is_unwanted(split_tag(tag).0) {
            return self.memory.give_back(message);
        }
        state.senders[from].messages.push_back((tag, message));
        drop(state);
        self.arrived.notify_all();
    }

    /// Queues a copy of a message of worker `from`.
    ///
    /// # Errors
    /// `Argument` if the worker does not exist, `System` if memory cannot be allocated.
    pub fn deliver(&self, from: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        check_worker(from, self.workers)?;
        let mut message = self.memory.take(bytes.len())?;
        message.copy_from_slice(bytes);
        self.put(from, tag, message);
        Ok(())
    }

    /// Handles a frame of a worker. Returns a failure that the frame reports without recording it,
    /// because the caller may have to report it to others first.
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
            Frame::Failed => Some(decode_failure(TransportErrorKind::Failed, header.tag, &bytes)),
            Frame::Lost => Some(decode_failure(TransportErrorKind::Lost, header.tag, &bytes)),
            Frame::RunEnded => {
                let reason = decode_failure(TransportErrorKind::RunEnded, header.tag, &bytes);
                self.end_run(split_tag(header.tag).0, &reason);
                None
            }
            Frame::Overdue => {
                self.note_overdue(from, split_tag(header.tag).1 as usize);
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

    /// Waits up to `time` for the first message of `from` with this tag, and passes it to `take`.
    /// Returns whether it arrived in time.
    pub(crate) fn receive_within(
        &self,
        time: Duration,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        loop {
            if let Some(message) = state.take(from, tag)? {
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

    /// Records that a worker waits for another beyond its deadline.
    pub(crate) fn note_overdue(&self, worker: usize, waits_for: usize) {
        let mut state = lock(&self.state);
        if waits_for < self.workers && worker < self.workers {
            state.overdue[worker] = Some((waits_for, Instant::now()));
        }
    }

    /// Records that a message of `from` missed the deadline, and returns the error, which names the
    /// worker that blocks all others.
    #[cold]
    pub(crate) fn record_timeout(&self, from: usize, tag: Tag) -> TransportError {
        let (deadline, (_, tag)) = (self.deadline, split_tag(tag));
        let mut state = lock(&self.state);
        state.has_failed = true;
        let missing = state.find_blocker(from, 2 * grace(deadline));
        drop(state);
        let message = if missing == from {
            format!("worker {from} did not send message {tag} within {deadline:?}")
        } else {
            format!(
                "worker {missing} did not answer within {deadline:?}: worker {from}, from which \
                 message {tag} is expected, waits for it"
            )
        };
        TransportError::at(TransportErrorKind::Deadline, missing, message)
    }

    /// Passes a message to `take` like [`Endpoint::receive_within`], but never waits. Returns
    /// whether the message had arrived.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    pub(crate) fn receive_if_there(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let found = lock(&self.state).take(from, tag)?;
        let Some(message) = found else { return Ok(false) };
        take(&message);
        self.memory.give_back(message);
        Ok(true)
    }

    /// Returns whether a message has arrived, or an error if it cannot arrive any more.
    #[cfg(all(unix, feature = "mpi", not(target_feature = "crt-static")))]
    pub(crate) fn has(&self, from: usize, tag: Tag) -> Result<bool, TransportError> {
        lock(&self.state).find_place(from, tag).map(|place| place.is_some())
    }

    /// Returns whether a worker has ended its work.
    pub(crate) fn has_ended(&self, worker: usize) -> bool {
        lock(&self.state).senders[worker].ended
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let waited = self.arrived.wait_timeout(state, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Records that a worker has ended its work and will send nothing more.
    pub fn end(&self, from: usize) {
        if let Some(sender) = lock(&self.state).senders.get_mut(from) {
            sender.ended = true;
        }
        self.arrived.notify_all();
    }

    /// Waits up to `time` for the cause after nothing could be sent to `worker`. Succeeds if the
    /// worker ended its work regularly.
    ///
    /// # Errors
    /// The failure of a worker if one becomes known, else the result of `lost`.
    pub(crate) fn wait_for_end(
        &self,
        worker: usize,
        time: Duration,
        lost: impl FnOnce() -> TransportError,
    ) -> Result<(), TransportError> {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
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

    /// Waits up to `time` until all other workers have ended their work or are lost.
    pub(crate) fn wait_for_all_ends(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        loop {
            let lost =
                state.failure.as_ref().filter(|failure| failure.kind() == TransportErrorKind::Lost);
            let lost = lost.and_then(TransportError::worker);
            let has_ended = |(worker, sender): (usize, &Sender)| {
                sender.ended || worker == self.number || lost == Some(worker)
            };
            let now = Instant::now();
            if now >= until || state.senders.iter().enumerate().all(has_ended) {
                return;
            }
            state = self.wait(state, until - now);
        }
    }

    /// Records a failure unless an earlier one is known. Returns whether it is the first.
    pub(crate) fn fail(&self, failure: TransportError) -> bool {
        let mut state = lock(&self.state);
        let first = state.failure.is_none();
        if first {
            state.has_failed = true;
            state.failure = Some(failure);
            self.arrived.notify_all();
        }
        first
    }

    /// Returns whether a worker has failed, is lost or missed the deadline, or a run ended early.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).has_failed
    }

    /// Returns the first failure of any worker as an error.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        lock(&self.state).failure.clone().map_or(Ok(()), Err)
    }
}

impl State {
    /// Returns whether messages of a run are dropped.
    fn is_unwanted(&self, run: RunNumber) -> bool {
        run > 0 && (is_before(run, self.first_run) || self.end_reason(run).is_some())
    }

    /// Returns the position of a queued message of `sender` whose run is over.
    fn find_unwanted(&self, sender: usize) -> Option<usize> {
        let mut messages = self.senders[sender].messages.iter();
        messages.position(|(tag, _)| self.is_unwanted(split_tag(*tag).0))
    }

    /// Returns the reason why a run ended early, if it did.
    fn end_reason(&self, run: RunNumber) -> Option<&TransportError> {
        self.ended_runs.iter().find(|(ended, _)| *ended == run).map(|(_, reason)| reason)
    }

    /// Takes out a message if it has arrived.
    ///
    /// # Errors
    /// See [`State::find_place`].
    fn take(&mut self, from: usize, tag: Tag) -> Result<Option<Piece>, TransportError> {
        let Some(place) = self.find_place(from, tag)? else { return Ok(None) };
        Ok(self.senders[from].messages.remove(place).map(|(_, message)| message))
    }

    /// Follows the workers that wait for each other from `worker` to the one that blocks them, and
    /// returns it. Only uses reports younger than `lately`, since workers give up soon after.
    /// Returns `worker` itself if workers wait in a circle.
    fn find_blocker(&self, worker: usize, lately: Duration) -> usize {
        let mut missing = worker;
        for _ in &self.overdue {
            match self.overdue[missing] {
                Some((next, since)) if since.elapsed() <= lately => missing = next,
                _ => return missing,
            }
        }
        worker
    }

    /// Returns the position of a message in the queue of its sender, if it has arrived.
    ///
    /// # Errors
    /// The message cannot arrive any more: a worker failed, the run ended early or the sender
    /// ended.
    fn find_place(&self, from: usize, tag: Tag) -> Result<Option<usize>, TransportError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let (run, number) = split_tag(tag);
        if let Some(reason) = self.end_reason(run) {
            return Err(reason.clone());
        }
        let sender = &self.senders[from];
        let place = sender.messages.iter().position(|(with, _)| *with == tag);
        if place.is_none() && sender.ended {
            let message = format!("worker {from} ended its work before it sent message {number}");
            return Err(TransportError::at(TransportErrorKind::Ended, from, message));
        }
        Ok(place)
    }
}

/// Maximum number of ended runs whose reasons are kept. Fewer runs are in progress at a time.
const MOST_ENDED_RUNS: usize = 4096;

/// Returns whether a run comes before another. Numbers wrap around after the last one.
fn is_before(run: RunNumber, other: RunNumber) -> bool {
    (run.wrapping_sub(other) as i32) < 0
}

/// Returns the part of the deadline in which waiting workers learn from each other which worker
/// blocks all.
pub(crate) fn grace(deadline: Duration) -> Duration {
    (deadline / 4).min(Duration::from_secs(2))
}

/// Creates the error by which a failed worker is reported to all others.
#[cold]
pub(crate) fn worker_failure(worker: usize, reason: &str) -> TransportError {
    TransportError::at(
        TransportErrorKind::Failed,
        worker,
        format!("worker {worker} failed: {reason}"),
    )
}

/// Decodes a failure that a frame reports. The tag names the worker with the cause.
#[cold]
pub(crate) fn decode_failure(kind: TransportErrorKind, tag: Tag, text: &[u8]) -> TransportError {
    TransportError::at(kind, split_tag(tag).1 as usize, String::from_utf8_lossy(text))
}
