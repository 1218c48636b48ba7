//! State that every transport keeps for its worker: number, messages that have arrived, traffic.
//!
//! A transport implements how bytes leave. It delivers arriving messages here at once, so no sender
//! ever waits for a receiver. Messages of one sender are queued in the order in which they were
//! sent; a receiver takes the first one with its tag.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{TransportError, TransportErrorKind};
use crate::frame::{Frame, Header};
use crate::locked;
use crate::scratch::{Piece, Scratch};
use crate::traffic::TrafficCounters;
use crate::transport::{RunNumber, Settings, Tag, check_worker, parts_of, tag_in_run};

/// State of a worker that does not depend on the way in which a [`Transport`](crate::Transport)
/// moves bytes.
#[derive(Debug)]
pub struct Endpoint {
    number: usize,
    workers: usize,
    deadline: Duration,
    state: Mutex<State>,
    arrived: Condvar,
    /// The memory of messages.
    pub(crate) memory: Scratch,
    /// The memory of partial results.
    pub(crate) scratch: Scratch,
    pub(crate) counters: TrafficCounters,
}

#[derive(Debug)]
struct State {
    /// By sender.
    senders: Vec<Sender>,
    /// The first failure of any worker, which ends all receives.
    failure: Option<TransportError>,
    /// Whether a worker failed or did not answer in time, or a run ended early.
    has_failed: bool,
    /// By worker: for whom it waits longer than its deadline, and since when that is known.
    overdue: Vec<Option<(usize, Instant)>>,
    /// Runs that have ended early, and why; the last one last.
    ended_runs: VecDeque<(RunNumber, TransportError)>,
    /// Messages of earlier runs are not wanted any more.
    first_run: RunNumber,
    /// The number of the next run that begins here.
    next_run: RunNumber,
}

#[derive(Debug, Default)]
struct Sender {
    messages: VecDeque<(Tag, Piece)>,
    /// It will send nothing more.
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
    /// The frame of a notice: what it is, its tag, and its text. The worker `own` is meant where an
    /// error names none.
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
    /// Makes the state of worker `number`, from 0, of `workers` workers, without messages.
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

    /// Receives by a call, and counts the time until it takes the message.
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

    /// All other workers.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.number;
        (0..self.workers).filter(move |worker| *worker != own)
    }

    /// The workers that a notice is for.
    pub(crate) fn told(&self, notice: Notice<'_>) -> impl Iterator<Item = usize> + use<> {
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

    /// Returns a number for a run that begins at this worker, which must tell the others.
    pub fn next_run(&self) -> RunNumber {
        let mut state = locked(&self.state);
        let run = state.next_run;
        state.next_run = run.checked_add(1).unwrap_or(1);
        run
    }

    /// Notes that a run has ended early; says whether that is new here, and no failure ends all
    /// runs anyway.
    pub(crate) fn end_run(&self, run: RunNumber, reason: &TransportError) -> bool {
        let mut state = locked(&self.state);
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

    /// Ends all runs before this one at this worker: their late messages are dropped.
    pub fn forget_runs_before(&self, run: RunNumber) {
        let mut state = locked(&self.state);
        if is_before(state.first_run, run) {
            state.first_run = run;
            state.ended_runs.retain(|(ended, _)| !is_before(*ended, run));
            self.drop_unwanted(&mut state);
        }
    }

    /// Drops the messages of runs that are over.
    fn drop_unwanted(&self, state: &mut State) {
        for sender in 0..self.workers {
            let unwanted = |state: &State| {
                let mut messages = state.senders[sender].messages.iter();
                messages.position(|(tag, _)| state.is_unwanted(parts_of(*tag).0))
            };
            while let Some(place) = unwanted(state) {
                let message = state.senders[sender].messages.remove(place);
                message.into_iter().for_each(|(_, message)| self.memory.give_back(message));
            }
        }
    }

    /// Puts a message in.
    pub(crate) fn put(&self, from: usize, tag: Tag, message: Piece) {
        let mut state = locked(&self.state);
        // Who sends does not wait any more.
        state.overdue[from] = None;
        if state.is_unwanted(parts_of(tag).0) {
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
            Frame::Failed => Some(told(TransportErrorKind::Failed, header.tag, &bytes)),
            Frame::Lost => Some(told(TransportErrorKind::Lost, header.tag, &bytes)),
            Frame::RunEnded => {
                let reason = told(TransportErrorKind::RunEnded, header.tag, &bytes);
                self.end_run(parts_of(header.tag).0, &reason);
                None
            }
            Frame::Overdue => {
                self.note_overdue(from, parts_of(header.tag).1 as usize);
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

    /// Lends the first message of `from` with this tag to `take`, as soon as it is there; whether
    /// it came in time.
    pub(crate) fn receive_within(
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
        if waits_for < self.workers && worker < self.workers {
            state.overdue[worker] = Some((waits_for, Instant::now()));
        }
    }

    /// The error of who waits for `from` longer than the deadline.
    #[cold]
    pub(crate) fn no_answer(&self, from: usize, tag: Tag) -> TransportError {
        let (deadline, (_, tag)) = (self.deadline, parts_of(tag));
        let mut state = locked(&self.state);
        state.has_failed = true;
        let missing = state.missing(from, 2 * grace(deadline));
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

    /// As [`Endpoint::receive_within`], but if the message is not there yet it says so at once.
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

    /// Records that a worker has ended its work and will send nothing more.
    pub fn end(&self, from: usize) {
        if let Some(sender) = locked(&self.state).senders.get_mut(from) {
            sender.ended = true;
        }
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

    /// Waits until all other workers will send nothing more, or are known to be lost; not
    /// longer than `time`.
    pub(crate) fn wait_for_all_ends(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = locked(&self.state);
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

    /// Notes a failure, unless there was one before; says whether there was none.
    pub(crate) fn fail(&self, failure: TransportError) -> bool {
        let mut state = locked(&self.state);
        let first = state.failure.is_none();
        if first {
            state.has_failed = true;
            state.failure = Some(failure);
            self.arrived.notify_all();
        }
        first
    }

    /// Whether a worker has failed, is lost or missed the deadline, or a run ended early.
    pub fn has_failed(&self) -> bool {
        locked(&self.state).has_failed
    }

    /// The first failure of any worker as an error.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        locked(&self.state).failure.clone().map_or(Ok(()), Err)
    }
}

impl State {
    /// Whether messages of a run are dropped.
    fn is_unwanted(&self, run: RunNumber) -> bool {
        run > 0 && (is_before(run, self.first_run) || self.ended(run).is_some())
    }

    /// Why a run has ended early, if it has.
    fn ended(&self, run: RunNumber) -> Option<&TransportError> {
        self.ended_runs.iter().find(|(ended, _)| *ended == run).map(|(_, reason)| reason)
    }

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
        let (run, number) = parts_of(tag);
        if let Some(reason) = self.ended(run) {
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

/// Runs that ended early of which the reason is known: more than there are at the same time.
const MOST_ENDED_RUNS: usize = 4096;

/// Whether a run is before another. Numbers begin again after the last one.
fn is_before(run: RunNumber, other: RunNumber) -> bool {
    (run.wrapping_sub(other) as i32) < 0
}

/// How long workers that all wait too long have to learn that of each other.
pub(crate) fn grace(deadline: Duration) -> Duration {
    (deadline / 4).min(Duration::from_secs(2))
}

/// What all others are told about a worker that failed.
#[cold]
pub(crate) fn failed(worker: usize, reason: &str) -> TransportError {
    TransportError::at(
        TransportErrorKind::Failed,
        worker,
        format!("worker {worker} failed: {reason}"),
    )
}

/// What another worker tells with a tag, which has the number of the worker that is meant.
#[cold]
pub(crate) fn told(kind: TransportErrorKind, tag: Tag, text: &[u8]) -> TransportError {
    TransportError::at(kind, parts_of(tag).1 as usize, String::from_utf8_lossy(text))
}
