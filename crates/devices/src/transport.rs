//! What moves bytes between the workers of a model: the trait, and what its calls take.

use std::fmt;
use std::time::{Duration, Instant};

use sardonyx_tensor::DataType;

use crate::collectives;
use crate::endpoint::{Endpoint, Notice, failed, grace};
use crate::error::{ErrorKind, TransportError, err};
use crate::reduction::Reduction;
use crate::scratch::Scratch;
use crate::traffic::Traffic;

/// Tells messages of one sender to one receiver apart: 32 bits for the number of a run, 0 for
/// messages of no run, and 32 bits for a number within it. Numbers from [`FIRST_RESERVED_TAG`] on
/// are for barriers and agreement.
pub type Tag = u64;

/// The first number within a run that callers must not use.
pub const FIRST_RESERVED_TAG: Tag = 0xffff_0000;

/// The number of a run: one of several pieces of work that follow each other, each of which may end
/// early without the others. See [`Transport::end_run`].
pub type RunNumber = u32;

/// The tag of messages with this number of a run.
pub fn tag_in_run(run: RunNumber, number: u32) -> Tag {
    Tag::from(run) << 32 | Tag::from(number)
}

/// The run of a tag, and its number within the run.
pub(crate) fn parts_of(tag: Tag) -> (RunNumber, u32) {
    ((tag >> 32) as RunNumber, tag as u32)
}

/// What all transports can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a receive waits for its message, and how long workers may take to find each other.
    /// In the last quarter of that time, up to 2 seconds, workers tell each other for whom they
    /// wait, so that the error of a receive names the worker that all wait for.
    pub deadline: Duration,
}

impl Default for Settings {
    /// A minute.
    fn default() -> Settings {
        Settings { deadline: Duration::from_secs(60) }
    }
}

/// The workers that take part in a collective, and the tag of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// Their numbers, in ascending order, each once. The caller's own is among them.
    pub workers: &'a [usize],
    /// The tag of all messages of the collective.
    pub tag: Tag,
}

/// One worker's end of the connections between all workers: it sends bytes to the others and
/// receives from them.
///
/// *Workers* are numbered from 0. Each has one transport, which any number of its threads may use
/// at the same time.
///
/// *Messages.* A send copies the bytes and returns: it never waits until the receiver asks for
/// them. A receive names sender and tag; messages with the same sender, receiver and tag arrive in
/// the order in which they were sent, others in any. A worker may send to itself. What is sent to a
/// worker that ended its work is lost.
///
/// *Failures.* Once a worker failed ([`Transport::fail`]) or is lost, every call of every worker
/// that waits for a message or sends one ends with that failure, which names the worker. Of several
/// failures the first that a worker learns of stays.
///
/// *Runs.* A run may end early ([`Transport::end_run`]): then calls with its tags end with the
/// reason, and its messages are dropped. All others go on.
///
/// *Collectives* are called by all workers of their group with the same tag and fitting arguments.
/// Workers that share several groups call their collectives in the same order. Memory of an element
/// need not be aligned. Unless a transport says otherwise, the result has the same bits for every
/// worker, in every run and over every transport: elements are combined in the order of the numbers
/// of their workers.
pub trait Transport: fmt::Debug + Send + Sync {
    /// What has arrived for this worker, and what it has sent.
    fn endpoint(&self) -> &Endpoint;

    /// Lets a message go to another worker: what [`Transport::send`] does when it has checked its
    /// arguments, and before it counts the message.
    ///
    /// # Errors
    /// As [`Transport::send`].
    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError>;

    /// Tells other workers something; who cannot be told finds out by itself.
    fn tell(&self, notice: Notice<'_>);

    /// How many workers there are.
    fn workers(&self) -> usize {
        self.endpoint().workers()
    }

    /// The own number.
    fn number(&self) -> usize {
        self.endpoint().number()
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `Argument` if there is no such worker, `System` if memory or the connection is refused, and
    /// failures of workers.
    fn send(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        let endpoint = self.endpoint();
        check_worker(to, endpoint.workers())?;
        endpoint.check()?;
        if to == endpoint.number() {
            endpoint.deliver(to, tag, bytes)?;
        } else {
            self.post(to, tag, bytes)?;
        }
        endpoint.counters.count(to, bytes.len());
        Ok(())
    }

    /// Receives a message of any length: calls `take` once with its bytes, which need not be
    /// aligned.
    ///
    /// # Errors
    /// `Argument` if there is no such worker, `Deadline` if the message does not arrive in time,
    /// `Ended` if it cannot arrive any more, and failures of workers. `take` is not called then.
    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        self.endpoint().count_waiting(take, |take| receive_with(self, from, tag, take))
    }

    /// As [`Transport::receive_with`], but waits so long at most; whether the message came.
    ///
    /// # Errors
    /// `Ended` if the message cannot arrive any more, and failures of workers.
    fn receive_within(
        &self,
        time: Duration,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        self.endpoint().receive_within(time, from, tag, take)
    }

    /// Tells all workers, this one included, that this worker failed and why. Does nothing if a
    /// failure is known already: the others know that one, too.
    fn fail(&self, reason: &str) {
        let failure = failed(self.worker(), reason);
        if self.endpoint().fail(failure.clone()) {
            self.tell(Notice::Failure(&failure));
        }
    }

    /// The worker that failures of this one name: itself, but for a device that a worker hosts.
    fn worker(&self) -> usize {
        self.number()
    }

    /// Tells all workers, this one included, that a run has ended early and why: all calls with its
    /// tags end with that error from now on, its messages that have come are dropped, and so are
    /// those that come later. Of several reasons the first that a worker learns of stays. Other
    /// runs go on.
    ///
    /// Workers that do not wait for messages of the run do not notice, and may send some.
    fn end_run(&self, run: RunNumber, reason: &TransportError) {
        if self.endpoint().end_run(run, reason) {
            self.tell(Notice::RunEnded(run, reason));
        }
    }

    /// Whether a reduction is left to a library that waits for all workers of the group, even if
    /// the run has ended: then those that end it take part nevertheless.
    fn waits_for_all(
        &self,
        group: Group<'_>,
        (reduction, data_type): (Reduction, DataType),
        bytes: usize,
    ) -> bool {
        let _ = (group, reduction, data_type, bytes);
        false
    }

    /// What this worker sent so far.
    fn traffic(&self) -> Traffic {
        self.endpoint().counters.read()
    }

    /// Memory for partial results that is kept between calls.
    fn scratch(&self) -> &Scratch {
        &self.endpoint().scratch
    }

    /// Receives a message of any length into new memory.
    ///
    /// # Errors
    /// As [`Transport::receive_with`].
    fn receive(&self, from: usize, tag: Tag) -> Result<Vec<u8>, TransportError> {
        let mut message = Vec::new();
        self.receive_with(from, tag, &mut |bytes| message.extend_from_slice(bytes))?;
        Ok(message)
    }

    /// Receives a message of known length into the caller's memory.
    ///
    /// # Errors
    /// As [`Transport::receive_with`], and `Size` if the message has another length. `into` is
    /// unchanged then.
    fn receive_into(&self, from: usize, tag: Tag, into: &mut [u8]) -> Result<(), TransportError> {
        let mut len = 0;
        let expected = into.len();
        self.receive_with(from, tag, &mut |bytes| {
            len = bytes.len();
            if len == expected {
                into.copy_from_slice(bytes);
            }
        })?;
        check_len(from, tag, len, expected)
    }

    /// Waits until all workers are here.
    ///
    /// # Errors
    /// As [`Transport::receive_with`].
    fn barrier(&self) -> Result<(), TransportError> {
        collectives::barrier(self)
    }

    /// Combines the elements of all workers of the group, place by place; all get the result in
    /// `data`. Sums and products of integers wrap, those of `float16` and `bfloat16` are made in
    /// `float` and rounded once; a NaN stays a NaN.
    ///
    /// # Errors
    /// `Argument`, `Unsupported` if the reduction does not exist for the element type, and what
    /// [`Transport::send`] and [`Transport::receive_into`] say.
    fn all_reduce(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::all_reduce(self, group, reduction, data_type, data)
    }

    /// As [`Transport::all_reduce`], but each worker gets only its part of the result: `data` is
    /// cut into as many parts as the group has workers, of `parts` bytes each, and the own one is
    /// written to `into`.
    ///
    /// # Errors
    /// As [`Transport::all_reduce`].
    fn reduce_scatter(
        &self,
        group: Group<'_>,
        (reduction, data_type): (Reduction, DataType),
        data: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::reduce_scatter(self, group, (reduction, data_type), data, parts, into)
    }

    /// Puts the parts of all workers of the group one after the other into `into` of each. The part
    /// of each worker has the length in bytes that `parts` has in its place.
    ///
    /// # Errors
    /// `Argument`, and what [`Transport::send`] and [`Transport::receive_into`] say.
    fn all_gather(
        &self,
        group: Group<'_>,
        part: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::all_gather(self, group, part, parts, into)
    }

    /// Sends each worker of the group its part of `data`, and puts what the others send one after
    /// the other into `into`. Both come with the lengths in bytes of their parts, by worker.
    ///
    /// # Errors
    /// As [`Transport::all_gather`].
    fn all_to_all(
        &self,
        group: Group<'_>,
        (data, parts): (&[u8], &[usize]),
        (into, into_parts): (&mut [u8], &[usize]),
    ) -> Result<(), TransportError> {
        collectives::all_to_all(self, group, (data, parts), (into, into_parts))
    }

    /// Copies `data` of worker `root`, which is in the group, to all others of the group.
    ///
    /// # Errors
    /// As [`Transport::all_gather`].
    fn broadcast(
        &self,
        group: Group<'_>,
        root: usize,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::broadcast(self, group, root, data)
    }
}

/// [`Transport::receive_with`], in numbers of the workers of this transport.
pub(crate) fn receive_with<T: Transport + ?Sized>(
    transport: &T,
    from: usize,
    tag: Tag,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), TransportError> {
    let endpoint = transport.endpoint();
    check_worker(from, endpoint.workers())?;
    let (start, deadline) = (Instant::now(), endpoint.deadline());
    if transport.receive_within(deadline - grace(deadline), from, tag, take)? {
        return Ok(());
    }
    // The error is to name the worker that all wait for, which may be another one than the sender:
    // all are told, and have the rest of the time to do the same.
    endpoint.note(endpoint.number(), Notice::Overdue(from));
    transport.tell(Notice::Overdue(from));
    if transport.receive_within(deadline.saturating_sub(start.elapsed()), from, tag, take)? {
        return Ok(());
    }
    Err(endpoint.no_answer(from, tag))
}

/// That a message has the length that its receiver expects.
pub(crate) fn check_len(
    from: usize,
    tag: Tag,
    len: usize,
    expected: usize,
) -> Result<(), TransportError> {
    if len == expected {
        return Ok(());
    }
    let (_, number) = parts_of(tag);
    let message =
        format!("message {number} of worker {from} has {len} bytes; {expected} were expected");
    Err(TransportError::at(ErrorKind::Size, from, message))
}

/// That there is a worker with this number.
pub(crate) fn check_worker(worker: usize, workers: usize) -> Result<(), TransportError> {
    if worker < workers {
        return Ok(());
    }
    err!(
        Argument,
        "worker {worker} does not exist: the last of {workers} workers is {}",
        workers.saturating_sub(1)
    )
}
