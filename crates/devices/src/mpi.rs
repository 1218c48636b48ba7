//! Transport between the processes of an MPI job.
//!
//! A message is an MPI message with a header, so that any tag fits and notices of failures arrive
//! the same way. The transport never blocks inside MPI: it keeps all unfinished operations, and
//! every waiting call tests them. A thread of its own does so while no call waits.

mod library;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sardonyx_tensor::DataType;

use crate::collectives::{self, check_part, check_parts, count_elems};
use crate::endpoint::{Endpoint, Notice};
use crate::error::{TransportError, err};
use crate::frame::{Frame, HEADER_BYTES, Header};
use crate::lock;
use crate::reduction::{Loops, Reduction};
use crate::scratch::Piece;
use crate::transport::{FIRST_RESERVED_TAG, Group, Settings, Tag, Transport};
pub use library::MpiInterface;
use library::{Api, Call, Communicator, Operation};

/// Settings of [`Mpi`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MpiSettings {
    /// Settings of all transports.
    pub settings: Settings,
    /// Whether collectives are made of single messages, so that results have the same bits as with
    /// other transports. By default sums and products are those of the MPI library, which may
    /// combine elements in any order.
    pub reproducible: bool,
    /// File name of the MPI library. By default the usual names are tried.
    pub library: Option<OsString>,
}

/// Transport of a worker that is a process of an MPI job, such as one that `mpiexec -n 4 ...`
/// starts.
///
/// A process can have one at a time, and none once MPI has been finalized. Dropping it finalizes
/// MPI if it initialized MPI. Dropping it also ends the work of this worker: it waits until the
/// other workers have ended theirs, or until the deadline, after which it aborts the job.
///
/// Unless [`MpiSettings::reproducible`] is set, collectives are those of the MPI library.
/// Exceptions are reductions of `float16`, `bfloat16` and `bool`, minima and maxima of floats,
/// which lose NaN there, and sums and products of integers of 8 and 16 bits, which do not wrap in
/// Open MPI.
#[derive(Debug)]
pub struct Mpi {
    interface: MpiInterface,
    shared: Arc<Shared>,
    mover: Option<JoinHandle<()>>,
    reproducible: bool,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    state: Mutex<State>,
    /// Signals that an operation is unfinished, or that the transport closes.
    changed: Condvar,
}

/// State behind all calls of MPI.
#[derive(Debug)]
struct State {
    api: Box<dyn Api>,
    sending: Vec<Operation>,
    /// Unfinished receive, by sender.
    arriving: Vec<Option<Operation>>,
    partial: Vec<Option<Partial>>,
    groups: Vec<(Vec<usize>, Communicator)>,
    closing: bool,
}

/// Frame of which more parts follow.
#[derive(Debug)]
struct Partial {
    header: Header,
    bytes: Piece,
    here: usize,
}

/// Maximum length in bytes of an MPI message. MPI counts in 31 bits, so longer frames are sent in
/// parts.
const MOST: usize = 64 << 20;

/// Tests of a collective in a row before messages are tested again. A collective of MPI only
/// progresses while it is tested.
const TESTS: usize = 20;

/// Tag of the meeting of workers that are about to create a communicator.
const MEETING: Tag = FIRST_RESERVED_TAG + 2;

/// Maximum time that a failed job waits for workers that have not noticed the failure.
const FAREWELL: Duration = Duration::from_secs(5);

/// Delay between the last output of a worker and `MPI_Abort`. Launchers read the standard error of
/// workers through pipes, and may exit before they have read all of it when a worker aborts the
/// job. One job over MPICH ended without its reason.
const ABORT_DELAY: Duration = Duration::from_millis(250);

/// Whether the process has an [`Mpi`]. A second one would lose the library when the first finalizes
/// it.
static IN_USE: AtomicBool = AtomicBool::new(false);

impl Mpi {
    /// Loads the MPI library, and initializes MPI unless the process has done so. All processes of
    /// the job call this function.
    ///
    /// # Errors
    /// `System` if the library is missing, of an unknown kind, or reports an error; `Argument` if
    /// this process already has an [`Mpi`].
    pub fn start(settings: &MpiSettings) -> Result<Mpi, TransportError> {
        if IN_USE.swap(true, Ordering::AcqRel) {
            return err!(Argument, "this process is a worker of an MPI job already");
        }
        let started = Mpi::open(settings);
        if started.is_err() {
            IN_USE.store(false, Ordering::Release);
        }
        started
    }

    fn open(settings: &MpiSettings) -> Result<Mpi, TransportError> {
        let names = match &settings.library {
            Some(name) => vec![name.clone()],
            None => library_names(std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some()),
        };
        let (interface, mut api) = library::open(&names)?;
        let (number, workers) = api.place()?;
        let state = State {
            api,
            sending: Vec::new(),
            arriving: (0..workers).map(|_| None).collect(),
            partial: (0..workers).map(|_| None).collect(),
            groups: vec![((0..workers).collect(), Communicator::ALL)],
            closing: false,
        };
        let shared = Arc::new(Shared {
            endpoint: Endpoint::new(number, workers, &settings.settings),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let mover = Arc::clone(&shared);
        let mover =
            thread::Builder::new().name("mpi".to_string()).spawn(move || mover.keep_moving());
        let mover = match mover {
            Ok(mover) => Some(mover),
            Err(error) => return err!(System, "no thread can be started: {error}"),
        };
        Ok(Mpi { interface, shared, mover, reproducible: settings.reproducible })
    }
}

impl Mpi {
    /// Returns the kind of the MPI library.
    pub fn interface(&self) -> MpiInterface {
        self.interface
    }
}

/// Returns the names under which MPI libraries are installed: the standard interface, then current
/// versions of MPICH and of Open MPI. Open MPI comes first if it started this process.
fn library_names(is_open_mpi: bool) -> Vec<OsString> {
    let mut names = if cfg!(target_os = "macos") {
        ["libmpi_abi.1.dylib", "libmpi.12.dylib", "libmpi.40.dylib", "libmpi.dylib"].to_vec()
    } else {
        let names = ["libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12", "libmpi.so.40"];
        [&names[..], &["libmpi.so"]].concat()
    };
    // A process cannot join a job through another library than that of its launcher.
    names.sort_by_key(|name| is_open_mpi && !name.contains(".40"));
    names.into_iter().map(OsString::from).collect()
}

impl Shared {
    /// Tests unfinished operations while no call waits, until the transport closes.
    fn keep_moving(&self) {
        let mut state = lock(&self.state);
        while !state.closing {
            let is_idle = state.sending.is_empty() && state.arriving.iter().all(Option::is_none);
            if is_idle {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                // The error is ignored: calls that wait report it.
                let _ = self.advance(&mut state);
                drop(state);
                thread::sleep(Duration::from_micros(200));
                state = lock(&self.state);
            }
        }
    }

    /// Tests all unfinished operations. Returns whether any message arrived.
    fn advance(&self, state: &mut State) -> Result<bool, TransportError> {
        let mut index = 0;
        while index < state.sending.len() {
            if state.api.test(&mut state.sending[index])? {
                let pieces = state.sending.swap_remove(index).pieces();
                pieces
                    .into_iter()
                    .flatten()
                    .for_each(|piece| self.endpoint.memory.give_back(piece));
            } else {
                index += 1;
            }
        }
        let mut came = false;
        for from in self.endpoint.others() {
            came |= self.advance_from(state, from)?;
        }
        Ok(came)
    }

    /// Handles all messages that have arrived from a worker. Returns whether there were any.
    fn advance_from(&self, state: &mut State, from: usize) -> Result<bool, TransportError> {
        let mut came = false;
        loop {
            if state.arriving[from].is_none() {
                state.arriving[from] = state.api.receive(from, &self.endpoint.memory)?;
            }
            let Some(operation) = &mut state.arriving[from] else { return Ok(came) };
            if !state.api.test(operation)? {
                return Ok(came);
            }
            let pieces = state.arriving[from].take().map(Operation::pieces);
            if let Some([_, Some(bytes)]) = pieces {
                self.take_in(&mut state.partial[from], from, bytes)?;
            }
            came = true;
        }
    }

    /// Handles an MPI message: a frame, or a part of one.
    fn take_in(
        &self,
        partial: &mut Option<Partial>,
        from: usize,
        mut bytes: Piece,
    ) -> Result<(), TransportError> {
        let Some(mut frame) = partial.take() else {
            let Some(header) = Header::from_bytes(&bytes) else {
                return err!(System, "worker {from} sent bytes that are not a message");
            };
            bytes.skip(HEADER_BYTES);
            if header.len == bytes.len() {
                self.take_frame(from, header, bytes);
                return Ok(());
            }
            let mut whole = self.endpoint.memory.take(header.len)?;
            let Some(place) = whole.get_mut(..bytes.len()) else {
                return err!(System, "worker {from} sent more bytes than it announced");
            };
            place.copy_from_slice(&bytes);
            *partial = Some(Partial { header, bytes: whole, here: bytes.len() });
            self.endpoint.memory.give_back(bytes);
            return Ok(());
        };
        let end = frame.here + bytes.len();
        let Some(place) = frame.bytes.get_mut(frame.here..end) else {
            return err!(System, "worker {from} sent more bytes than it announced");
        };
        place.copy_from_slice(&bytes);
        self.endpoint.memory.give_back(bytes);
        frame.here = end;
        if end == frame.header.len {
            self.take_frame(from, frame.header, frame.bytes);
        } else {
            *partial = Some(frame);
        }
        Ok(())
    }

    fn take_frame(&self, from: usize, header: Header, bytes: Piece) {
        if let Some(failure) = self.endpoint.take_frame(from, header, bytes) {
            self.endpoint.fail(failure);
        }
    }

    /// Starts to send a frame.
    fn send(&self, to: usize, frame: Frame, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        let header = Header { frame, tag, len: bytes.len() }.to_bytes();
        let first = bytes.len().min(MOST - HEADER_BYTES);
        let mut state = lock(&self.state);
        let mut piece = self.endpoint.memory.take(HEADER_BYTES + first)?;
        piece[..HEADER_BYTES].copy_from_slice(&header);
        piece[HEADER_BYTES..].copy_from_slice(&bytes[..first]);
        self.start_to_send(&mut state, to, piece)?;
        for bytes in bytes[first..].chunks(MOST) {
            let mut piece = self.endpoint.memory.take(bytes.len())?;
            piece.copy_from_slice(bytes);
            self.start_to_send(&mut state, to, piece)?;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Sends a notice. A worker that misses it waits until its own deadline, and then names the
    /// worker for which it waits.
    fn tell(&self, notice: Notice<'_>) {
        let (frame, worker, text) = notice.frame(self.endpoint.number());
        for to in self.endpoint.recipients(notice) {
            let _ = self.send(to, frame, worker, text);
        }
    }

    fn start_to_send(
        &self,
        state: &mut State,
        to: usize,
        piece: Piece,
    ) -> Result<(), TransportError> {
        let mut operation = state.api.send(to, piece)?;
        // Short messages are complete at once.
        if state.api.test(&mut operation)? {
            let pieces = operation.pieces();
            pieces.into_iter().flatten().for_each(|piece| self.endpoint.memory.give_back(piece));
        } else {
            state.sending.push(operation);
        }
        Ok(())
    }

    /// Calls `done` until it returns `true`, and tests unfinished operations in between. Returns
    /// `false` if the deadline passes.
    fn wait(
        &self,
        deadline: Duration,
        mut done: impl FnMut(&mut State) -> Result<bool, TransportError>,
    ) -> Result<bool, TransportError> {
        let start = Instant::now();
        loop {
            let came = {
                let mut state = lock(&self.state);
                if done(&mut state)? {
                    return Ok(true);
                }
                self.advance(&mut state)?
            };
            let waited = start.elapsed();
            if waited >= deadline {
                return Ok(false);
            }
            if came {
                continue;
            }
            // Spins briefly, because fast answers come within microseconds, then leaves the core to
            // other threads.
            if waited < Duration::from_micros(50) {
                std::hint::spin_loop();
            } else if waited < Duration::from_millis(2) {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Runs a collective of the library, and returns its memory.
    fn run_collective(
        &self,
        group: Group<'_>,
        communicator: Communicator,
        call: Call,
    ) -> Result<[Option<Piece>; 2], TransportError> {
        self.endpoint.check()?;
        let mut operation = lock(&self.state).api.start_collective(communicator, call)?;
        let in_time = self.wait(self.endpoint.deadline(), |state| {
            for _ in 0..TESTS {
                if state.api.test(&mut operation)? {
                    return Ok(true);
                }
            }
            self.endpoint.check().map(|()| false)
        })?;
        if in_time {
            return Ok(operation.pieces());
        }
        let (workers, deadline) = (group.workers, self.endpoint.deadline());
        err!(Deadline, "a collective of workers {workers:?} did not end within {deadline:?}")
    }
}

impl Mpi {
    /// Returns the communicator of a group. Creates it on first use.
    fn communicator(&self, group: Group<'_>) -> Result<Communicator, TransportError> {
        let known = |state: &State| {
            let known = state.groups.iter().find(|(workers, _)| workers == group.workers);
            known.map(|(_, communicator)| *communicator)
        };
        if let Some(communicator) = known(&lock(&self.shared.state)) {
            return Ok(communicator);
        }
        // MPI waits for all workers of the group without a deadline, so they meet here first, even
        // if a run has ended.
        let meeting = Group { tag: MEETING, ..group };
        collectives::all_reduce(self, meeting, Reduction::Or, DataType::Bool, &mut [0])?;
        let mut state = lock(&self.shared.state);
        let communicator = state.api.create_group(group.workers)?;
        state.groups.push((group.workers.to_vec(), communicator));
        Ok(communicator)
    }

    /// Returns whether the library runs a collective of `bytes` bytes. All workers of the group get
    /// the same answer.
    fn is_for_library(&self, group: Group<'_>, bytes: usize) -> bool {
        !self.reproducible && group.workers.len() > 1 && bytes > 0 && to_c_count(bytes).is_some()
    }

    fn copy_to_piece(&self, bytes: &[u8]) -> Result<Piece, TransportError> {
        let mut piece = self.scratch().take(bytes.len())?;
        piece.copy_from_slice(bytes);
        Ok(piece)
    }

    /// Runs a collective of the library on `bytes` bytes of this worker, and copies its result to
    /// `into`.
    fn run(
        &self,
        group: Group<'_>,
        bytes: usize,
        call: Call,
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        let communicator = self.communicator(group)?;
        let done = self.shared.run_collective(group, communicator, call);
        // After a failed collective, the progress of the other workers is unknown, so the group
        // cannot go on.
        let done = done.inspect_err(|error| self.fail(error.message()));
        let [sent, received] = done?;
        self.shared.endpoint.counters.count_library(bytes);
        if let Some(received) = received {
            into.copy_from_slice(&received);
            self.scratch().give_back(received);
        }
        if let Some(sent) = sent {
            self.scratch().give_back(sent);
        }
        Ok(())
    }
}

/// Converts a length to a count of MPI, if it fits.
fn to_c_count(len: usize) -> Option<i32> {
    i32::try_from(len).ok()
}

/// Converts the lengths of parts to counts of MPI. The caller has checked that their sum fits.
fn to_c_counts(parts: &[usize], element_bytes: usize) -> Vec<i32> {
    parts.iter().map(|part| (part / element_bytes) as i32).collect()
}

impl Transport for Mpi {
    fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        self.shared.send(to, Frame::Message, tag, bytes)
    }

    fn tell(&self, notice: Notice<'_>) {
        self.shared.tell(notice);
    }

    /// Passes the message to `take` without holding the lock of MPI, because `take` may be slow.
    fn receive_within(
        &self,
        time: Duration,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let (start, endpoint) = (Instant::now(), self.endpoint());
        let mut in_time = true;
        loop {
            if endpoint.receive_if_there(from, tag, take)? {
                return Ok(true);
            }
            if !in_time {
                return Ok(false);
            }
            let left = time.saturating_sub(start.elapsed());
            in_time = self.shared.wait(left, |_| endpoint.has(from, tag))?;
        }
    }

    fn waits_for_all(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        bytes: usize,
    ) -> bool {
        self.is_for_library(group, bytes) && lock(&self.shared.state).api.has(reduction, data_type)
    }

    fn all_reduce(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        if !self.waits_for_all(group, reduction, data_type, data.len()) {
            return collectives::all_reduce(self, group, reduction, data_type, data);
        }
        group.place(self)?;
        let elems = count_elems(&Loops::new(reduction, data_type)?, data_type, data.len())?;
        let into = self.scratch().take(data.len())?;
        let elems = elems as i32;
        let call =
            Call::AllReduce { reduction, data_type, data: self.copy_to_piece(data)?, into, elems };
        self.run(group, data.len(), call, data)
    }

    fn reduce_scatter(
        &self,
        group: Group<'_>,
        reduction: Reduction,
        data_type: DataType,
        data: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        let has = lock(&self.shared.state).api.has(reduction, data_type);
        if !has || !self.is_for_library(group, data.len()) {
            return collectives::reduce_scatter(
                self, group, reduction, data_type, data, parts, into,
            );
        }
        let own = group.place(self)?;
        check_parts(group, parts, data.len())?;
        check_part(parts[own], into.len())?;
        let loops = Loops::new(reduction, data_type)?;
        for &part in parts {
            count_elems(&loops, data_type, part)?;
        }
        let parts = to_c_counts(parts, loops.element_bytes);
        let result = self.scratch().take(into.len())?;
        let data_piece = self.copy_to_piece(data)?;
        let call =
            Call::ReduceScatter { reduction, data_type, data: data_piece, into: result, parts };
        self.run(group, data.len(), call, into)
    }

    fn all_gather(
        &self,
        group: Group<'_>,
        part: &[u8],
        parts: &[usize],
        into: &mut [u8],
    ) -> Result<(), TransportError> {
        if !self.is_for_library(group, into.len()) {
            return collectives::all_gather(self, group, part, parts, into);
        }
        let own = group.place(self)?;
        check_parts(group, parts, into.len())?;
        check_part(parts[own], part.len())?;
        let (parts, result) = (to_c_counts(parts, 1), self.scratch().take(into.len())?);
        let call = Call::AllGather { data: self.copy_to_piece(part)?, into: result, parts };
        self.run(group, part.len(), call, into)
    }

    /// Exchanges parts. The collective of the library moves up to 2 GiB from and to each worker.
    fn all_to_all(
        &self,
        group: Group<'_>,
        data: &[u8],
        parts: &[usize],
        into: &mut [u8],
        into_parts: &[usize],
    ) -> Result<(), TransportError> {
        // Sizes differ between workers, and all must decide alike, so the decision ignores sizes.
        if !self.is_for_library(group, 1) {
            return collectives::all_to_all(self, group, data, parts, into, into_parts);
        }
        let own = group.place(self)?;
        check_parts(group, parts, data.len())?;
        check_parts(group, into_parts, into.len())?;
        check_part(parts[own], into_parts[own])?;
        if to_c_count(data.len().max(into.len())).is_none() {
            return err!(Argument, "{} bytes are more than MPI can count", data.len());
        }
        let call = Call::AllToAll {
            data: self.copy_to_piece(data)?,
            parts: to_c_counts(parts, 1),
            into: self.scratch().take(into.len())?,
            into_parts: to_c_counts(into_parts, 1),
        };
        self.run(group, data.len(), call, into)
    }

    fn broadcast(
        &self,
        group: Group<'_>,
        root: usize,
        data: &mut [u8],
    ) -> Result<(), TransportError> {
        if !self.is_for_library(group, data.len()) {
            return collectives::broadcast(self, group, root, data);
        }
        group.place(self)?;
        let Ok(place) = group.workers.binary_search(&root) else {
            return err!(Argument, "worker {root} is not in the group {:?}", group.workers);
        };
        let call = Call::Broadcast { data: self.copy_to_piece(data)?, root: place as i32 };
        self.run(group, data.len(), call, data)
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("it panicked");
        }
        let shared = &self.shared;
        let others = || shared.endpoint.others();
        let failure = shared.endpoint.check().err();
        // Other workers must notice the failure before the end that it causes.
        if let Some(failure) = &failure {
            shared.tell(Notice::Failure(failure));
        }
        for to in others() {
            // A worker that misses the end waits until its deadline.
            let _ = shared.send(to, Frame::End, 0, &[]);
        }
        let has_failed = failure.is_some();
        let patience = if has_failed {
            shared.endpoint.deadline().min(FAREWELL)
        } else {
            shared.endpoint.deadline()
        };
        let all_ended = shared.wait(patience, |state| {
            let mut others = others();
            Ok(state.sending.is_empty() && others.all(|other| shared.endpoint.has_ended(other)))
        });
        let mut state = lock(&shared.state);
        state.closing = true;
        shared.changed.notify_all();
        if let Ok(true) = all_ended {
            state.api.finish();
        } else {
            // The process ends here, so the reason has to be printed now.
            let failure = failure.or(shared.endpoint.check().err());
            let reason = failure.map_or("other workers did not end".to_string(), |f| f.to_string());
            // Prints the message in one piece, because another worker that aborts the job may end
            // this one in between.
            let number = shared.endpoint.number();
            let message = format!("error: worker {number} ends the job: {reason}\n");
            eprint!("{message}");
            thread::sleep(ABORT_DELAY);
            state.api.abort();
        }
        drop(state);
        let _ = self.mover.take().map(JoinHandle::join);
        IN_USE.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::TransportErrorKind;

    #[test]
    fn the_launcher_decides_which_library_is_tried_first() {
        let first = |is_open_mpi| library_names(is_open_mpi)[0].display().to_string();
        assert!(first(false).starts_with("libmpi_abi."));
        assert!(first(true).contains("40"));
        assert_eq!(library_names(false).len(), library_names(true).len());
    }

    #[test]
    fn other_libraries_are_refused() {
        let start = |library: &str| {
            let library = Some(OsString::from(library));
            Mpi::start(&MpiSettings { library, ..MpiSettings::default() }).unwrap_err()
        };
        let error = start("libno-such-mpi.so");
        assert_eq!(error.kind(), TransportErrorKind::System);
        assert!(error.message().starts_with("no MPI library can be opened: tried libno-such-mpi"));
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        assert_eq!(
            start("libc.so.6").message(),
            "the MPI library has neither the interface of MPI 5 nor MPICH's nor Open MPI's"
        );
    }
}
