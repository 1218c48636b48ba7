//! Interface that moves bytes between the workers of a model, and the arguments of its methods.

use std::fmt;
use std::time::{Duration, Instant};

use sardonyx_tensor::DataType;

use crate::collectives;
use crate::endpoint::{Endpoint, Notice, grace, worker_failure};
use crate::error::{TransportError, TransportErrorKind, err};
use crate::reduction::Reduction;
use crate::scratch::Scratch;
use crate::traffic::Traffic;

/// Tag of a message, which distinguishes the messages of one sender to one receiver. The upper 32
/// bits are the number of a run, 0 for messages outside of runs; the lower 32 bits are a number
/// within the run. Numbers from [`FIRST_RESERVED_TAG`] on are reserved for barriers and agreement.
pub type Tag = u64;

/// First number within a run that is reserved: callers must use lower ones.
pub const FIRST_RESERVED_TAG: Tag = 0xffff_0000;

/// Number of a run: one of several consecutive units of work, each of which can end early without
/// affecting the others. See [`Transport::end_run`].
pub type RunNumber = u32;

/// Creates the tag of message `number` within a run.
pub fn tag_in_run(run: RunNumber, number: u32) -> Tag {
    Tag::from(run) << 32 | Tag::from(number)
}

/// Splits a tag into its run and its number within the run.
pub(crate) fn split_tag(tag: Tag) -> (RunNumber, u32) {
    ((tag >> 32) as RunNumber, tag as u32)
}

/// Settings of all transports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Maximum time that a receive waits for its message, and that workers take to connect. The
    /// default is 60 seconds. In the last quarter of this time, at most 2 seconds, workers exchange
    /// which workers they wait for, so that the error of a receive names the worker that blocks all
    /// others.
    pub deadline: Duration,
}

impl Default for Settings {
    /// Returns settings with a deadline of 60 seconds.
    fn default() -> Settings {
        Settings { deadline: Duration::from_secs(60) }
    }
}

/// Workers that take part in a collective operation, and the tag of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// Numbers of the workers, strictly ascending. The number of the caller is among them.
    pub workers: &'a [usize],
    /// Tag of all messages of the collective operation.
    pub tag: Tag,
}

/// Endpoint of one worker in the connections between all workers: sends bytes to other workers and
/// receives bytes from them.
///
/// *Workers* are numbered from 0. Each has one transport, which its threads may share.
///
/// *Messages.* A send copies the bytes and returns without waiting for the receiver. A receive
/// names a sender and a tag. Messages of equal sender, receiver and tag arrive in the order in
/// which they were sent; others arrive in any order. A worker may send to itself. Messages to a
/// worker that has ended its work are lost.
///
/// *Failures.* Once a worker has failed ([`Transport::fail`]) or is lost, all calls of all workers
/// that send or wait for a message fail with an error that names this worker. If several workers
/// fail, each worker keeps the first failure that reaches it.
///
/// *Runs.* A run may end early ([`Transport::end_run`]). Calls with its tags then fail with the
/// reason, and its messages are dropped. Other runs are not affected.
///
/// *Collectives* are called by all workers of their group, with equal tags and matching arguments.
/// Workers that share several groups call their collectives in the same order. The memory of
/// elements need not be aligned. Unless a transport documents otherwise, results have equal bits on
/// every worker, in every run and with every transport: elements are combined in the order of the
/// workers' numbers.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Returns the state of this worker: messages that have arrived, and the traffic that it sent.
    fn endpoint(&self) -> &Endpoint;

    /// Hands a message over for delivery to another worker. [`Transport::send`] calls it after
    /// checking its arguments, and counts the message afterwards.
    ///
    /// # Errors
    /// See [`Transport::send`].
    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError>;

    /// Sends a notice to other workers. A worker that cannot be reached detects the failure itself.
    fn tell(&self, notice: Notice<'_>);

    /// Returns the number of workers.
    fn workers(&self) -> usize {
        self.endpoint().workers()
    }

    /// Returns the number of this worker, from 0.
    fn number(&self) -> usize {
        self.endpoint().number()
    }

    /// Sends a message to worker `to` without waiting for the receiver.
    ///
    /// # Errors
    /// `Argument` if the worker does not exist, `System` if memory or the connection is refused;
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

    /// Waits for a message of any length from worker `from`, and calls `take` once with its bytes,
    /// which need not be aligned.
    ///
    /// # Errors
    /// `Argument` if the worker does not exist, `Deadline` if the message does not arrive in time,
    /// `Ended` if it cannot arrive any more; failures of workers. `take` is not called after an
    /// error.
    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        self.endpoint().count_waiting(take, |take| receive_with(self, from, tag, take))
    }

    /// Waits at most `time` for a message, like [`Transport::receive_with`]. Returns whether the
    /// message arrived.
    ///
    /// # Errors
    /// `Ended` if the message cannot arrive any more; failures of workers.
    fn receive_within(
        &self,
        time: Duration,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        self.endpoint().receive_within(time, from, tag, take)
    }

    /// Announces to all workers, this one included, that this worker has failed, with the reason.
    /// Has no effect after an earlier failure, which the other workers know already.
    fn fail(&self, reason: &str) {
        let failure = worker_failure(self.worker(), reason);
        if self.endpoint().fail(failure.clone()) {
            self.tell(Notice::Failure(&failure));
        }
    }

    /// Returns the number of the worker that failures of this one name. It is the worker itself,
    /// except for a device that another worker hosts.
    fn worker(&self) -> usize {
        self.number()
    }

    /// Announces to all workers, this one included, that a run has ended early. From then on, calls
    /// with its tags fail with `reason`, and its messages, including later ones, are dropped. Each
    /// worker keeps the first reason that reaches it. Other runs are not affected.
    ///
    /// Workers that do not wait for messages of the run do not notice, and may still send some.
    fn end_run(&self, run: RunNumber, reason: &TransportError) {
        if self.endpoint().end_run(run, reason) {
            self.tell(Notice::RunEnded(run, reason));
        }
    }

    /// Whether a library performs this reduction and waits for all workers of the group, even after
    /// the run has ended. Workers that end the run must then take part nevertheless.
    fn waits_for_all(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        bytes: usize,
    ) -> bool {
        let _ = (group, reduction, data_type, bytes);
        false
    }

    /// Returns the traffic that this worker has sent so far.
    fn traffic(&self) -> Traffic {
        self.endpoint().counters.read()
    }

    /// Returns memory for partial results that is reused between calls.
    fn scratch(&self) -> &Scratch {
        &self.endpoint().scratch
    }

    /// Waits for a message of any length, and returns its bytes.
    ///
    /// # Errors
    /// See [`Transport::receive_with`].
    fn receive(&self, from: usize, tag: Tag) -> Result<Vec<u8>, TransportError> {
        let mut message = Vec::new();
        self.receive_with(from, tag, &mut |bytes| message.extend_from_slice(bytes))?;
        Ok(message)
    }

    /// Waits for a message of exactly the length of `into`, and copies its bytes there.
    ///
    /// # Errors
    /// The errors of [`Transport::receive_with`]; `Size` if the message has another length. `into`
    /// is unchanged after an error.
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

    /// Waits until all workers have called this method.
    ///
    /// # Errors
    /// See [`Transport::receive_with`].
    fn barrier(&self) -> Result<(), TransportError> {
        collectives::barrier(self)
    }

    /// Combines the elements of all workers of the group position by position, and writes the
    /// result to `data` on all of them. Sums and products of integers wrap. Those of `float16` and
    /// `bfloat16` are computed in `float` and rounded once. NaN propagates.
    ///
    /// # Errors
    /// `Argument` if the arguments are inconsistent; `Unsupported` if the reduction does not exist
    /// for the element type; errors of [`Transport::send`] and [`Transport::receive_into`].
    fn all_reduce(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::all_reduce(self, group, reduction, data_type, data)
    }

    /// Combines elements like [`Transport::all_reduce`], but gives each worker only its part of the
    /// result. `data` is divided into one part for each worker of the group, in their order, with
    /// the lengths `parts` in bytes. The part of this worker is written to `into`.
    ///
    /// # Errors
    /// See [`Transport::all_reduce`].
    fn reduce_scatter(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::reduce_scatter(self, group, reduction, data_type, data, parts, into)
    }

    /// Concatenates the parts of all workers of the group, in their order, and writes the result to
    /// `into` on all of them. `parts` has the length in bytes of each worker's part.
    ///
    /// # Errors
    /// `Argument` if the arguments are inconsistent; errors of [`Transport::send`] and
    /// [`Transport::receive_into`].
    fn all_gather(
        &self,
        group: Group<'_>,
        part: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::all_gather(self, group, part, parts, into)
    }

    /// Sends each worker of the group its part of `data`, and concatenates the parts that arrive
    /// from them in `into`. `parts` and `into_parts` have the lengths in bytes of the parts, by
    /// worker.
    ///
    /// # Errors
    /// See [`Transport::all_gather`].
    fn all_to_all(
        &self,
        group: Group<'_>,
        data: &[u8],
        parts: &[usize],
        into: &mut [u8],
        into_parts: &[usize],
    ) -> Result<(), TransportError> {
        collectives::all_to_all(self, group, data, parts, into, into_parts)
    }

    /// Copies `data` of worker `root`, a member of the group, to all other workers of the group.
    ///
    /// # Errors
    /// See [`Transport::all_gather`].
    fn broadcast(
        &self,
        group: Group<'_>,
        root: usize,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        collectives::broadcast(self, group, root, data)
    }
}

/// Implements [`Transport::receive_with`] with numbers of the workers of this transport, which may
/// be devices of others.
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
    // The error should name the worker that blocks all others, which need not be the sender. All
    // workers learn which ones wait, and report theirs in the remaining time.
    endpoint.note(endpoint.number(), Notice::Overdue(from));
    transport.tell(Notice::Overdue(from));
    if transport.receive_within(deadline.saturating_sub(start.elapsed()), from, tag, take)? {
        return Ok(());
    }
    Err(endpoint.record_timeout(from, tag))
}

/// Checks that a message has the length that its receiver expects.
pub(crate) fn check_len(
    from: usize,
    tag: Tag,
    len: usize,
    expected: usize,
) -> Result<(), TransportError> {
    if len == expected {
        return Ok(());
    }
    let (_, number) = split_tag(tag);
    let message =
        format!("message {number} of worker {from} has {len} bytes; {expected} were expected");
    Err(TransportError::at(TransportErrorKind::Size, from, message))
}

/// Checks that there is a worker with this number.
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
