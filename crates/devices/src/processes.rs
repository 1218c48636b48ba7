//! Transport between processes of one machine, connected by Unix sockets.
//!
//! Each pair of workers has a socket. In each worker, a thread per other worker reads its socket
//! and puts frames into the endpoint. A writer therefore waits only until the other process has
//! read its bytes, never for that process's computations.

use std::fs;
use std::io::{self, ErrorKind as IoErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::endpoint::{Endpoint, Notice, worker_failure};
use crate::error::{TransportError, TransportErrorKind, err};
use crate::frame::{Frame, HEADER_BYTES, Header};
use crate::lock;
use crate::private::PrivateDirectory;
use crate::transport::{Settings, Tag, Transport, check_worker, split_tag};

/// Private directory in which the worker processes of one machine find each other. Only its user
/// can access it. Dropping it removes the directory.
#[derive(Debug)]
pub struct Rendezvous(PrivateDirectory);

impl Rendezvous {
    /// Makes a directory with a random name in the system's directory for temporary files.
    ///
    /// # Errors
    /// `System` if the directory cannot be made.
    pub fn new() -> Result<Rendezvous, TransportError> {
        match PrivateDirectory::new() {
            Ok(directory) => Ok(Rendezvous(directory)),
            Err(error) => err!(System, "{}: {error}", std::env::temp_dir().display()),
        }
    }

    /// Returns the path of the directory, to pass to the workers.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Transport of a worker that is a process, on the machine of all other workers. They are connected
/// by Unix sockets.
///
/// Dropping it ends the work of this worker: other workers that wait for a message of it get the
/// error `Ended`. If a panic drops it, the worker counts as failed; if the process ends in another
/// way or is killed, the worker is `Lost`.
#[derive(Debug)]
pub struct Processes {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    /// Connections by worker. This worker has none to itself.
    peers: Vec<Option<Peer>>,
    /// Thread that reports a failure, which a reader noticed, to the other workers.
    telling: Mutex<Option<JoinHandle<()>>>,
    /// Whether this worker has ended its work, so that lost workers no longer matter.
    closing: AtomicBool,
}

#[derive(Debug)]
struct Peer {
    /// Stream for writing. The lock is held for a whole frame.
    writing: Mutex<UnixStream>,
}

/// Maximum time that the last frame waits for a worker that does not read.
const FAREWELL: Duration = Duration::from_millis(200);

/// Start of a greeting, which opens each connection. The number of the connecting worker and the
/// number of workers follow.
const GREETING: &[u8; 12] = b"sardonyx-2\r\n";
const GREETING_BYTES: usize = GREETING.len() + 16;

impl Processes {
    /// Connects worker `number`, from 0, of `workers` workers with the others. All of them call
    /// this function with one directory, that of a [`Rendezvous`].
    ///
    /// # Errors
    /// `Deadline` if a worker does not connect in time; `Disagreement` if a worker expects another
    /// number of workers; `System` if other users can access the directory or a connection is
    /// refused.
    pub fn join(
        directory: &Path,
        number: usize,
        workers: usize,
        settings: &Settings,
    ) -> Result<Processes, TransportError> {
        check_worker(number, workers)?;
        let until = Instant::now() + settings.deadline;
        let streams = connect(directory, number, workers, until).map_err(|failure| {
            let deadline = settings.deadline;
            match failure {
                Unconnected::Missing(worker) => TransportError::at(
                    TransportErrorKind::Deadline,
                    worker,
                    format!("worker {worker} did not connect within {deadline:?}"),
                ),
                Unconnected::Other(error) => error,
            }
        })?;
        let refused =
            |error: io::Error| TransportError::new(TransportErrorKind::System, error.to_string());
        let mut peers = Vec::new();
        for stream in &streams {
            let peer = stream.as_ref().map(|stream| {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(None)?;
                stream.set_write_timeout(Some(settings.deadline))?;
                Ok(Peer { writing: Mutex::new(stream.try_clone()?) })
            });
            peers.push(peer.transpose().map_err(refused)?);
        }
        let shared = Arc::new(Shared {
            endpoint: Endpoint::new(number, workers, settings),
            peers,
            telling: Mutex::new(None),
            closing: AtomicBool::new(false),
        });
        let mut processes = Processes { shared, readers: Vec::new() };
        for (peer, stream) in streams.into_iter().enumerate() {
            let Some(stream) = stream else { continue };
            let shared = Arc::clone(&processes.shared);
            let reader = thread::Builder::new().name(format!("from worker {peer}"));
            let reader = reader.spawn(move || shared.read(peer, stream)).map_err(refused)?;
            processes.readers.push(reader);
        }
        Ok(processes)
    }
}

enum Unconnected {
    Missing(usize),
    Other(TransportError),
}

impl From<TransportError> for Unconnected {
    fn from(error: TransportError) -> Unconnected {
        Unconnected::Other(error)
    }
}

/// Connects to workers with lower numbers, and accepts connections of those with higher ones.
fn connect(
    directory: &Path,
    number: usize,
    workers: usize,
    until: Instant,
) -> Result<Vec<Option<UnixStream>>, Unconnected> {
    let own = directory.join(number.to_string());
    let shown = |path: &Path, error: io::Error| {
        TransportError::new(TransportErrorKind::System, format!("{}: {error}", path.display()))
    };
    let listener = UnixListener::bind(&own).map_err(|error| shown(&own, error))?;
    check_private(directory, &own)?;
    let mut streams: Vec<Option<UnixStream>> = (0..workers).map(|_| None).collect();
    for (peer, place) in streams.iter_mut().enumerate().take(number) {
        let path = directory.join(peer.to_string());
        let mut stream = loop {
            match UnixStream::connect(&path) {
                Ok(stream) => break stream,
                // The worker has not started yet, or is too busy to accept.
                Err(error) if is_transient(error.kind()) => {
                    pause(until).ok_or(Unconnected::Missing(peer))?;
                }
                Err(error) => return Err(shown(&path, error).into()),
            }
        };
        let written = stream.write_all(&make_greeting(number, workers));
        written.map_err(|error| shown(&path, error))?;
        *place = Some(stream);
    }
    listener.set_nonblocking(true).map_err(|error| shown(&own, error))?;
    while let Some(missing) = (number + 1..workers).find(|peer| streams[*peer].is_none()) {
        match listener.accept() {
            Ok((stream, _)) => {
                let left = until.saturating_duration_since(Instant::now());
                let greeted = read_greeting(&stream, left.max(Duration::from_millis(1)));
                let bytes = greeted.map_err(|_| Unconnected::Missing(missing))?;
                let peer = check_greeting(&bytes, workers)?;
                let expected = peer > number && streams[peer].is_none();
                if !expected {
                    let message = format!("there are two workers {peer}");
                    return Err(TransportError::at(
                        TransportErrorKind::Disagreement,
                        peer,
                        message,
                    )
                    .into());
                }
                streams[peer] = Some(stream);
            }
            Err(error) if is_transient(error.kind()) => {
                pause(until).ok_or(Unconnected::Missing(missing))?;
            }
            Err(error) => return Err(shown(&own, error).into()),
        }
    }
    // All connections exist, so the socket file has no more use.
    let _ = fs::remove_file(&own);
    Ok(streams)
}

fn is_transient(kind: IoErrorKind) -> bool {
    use IoErrorKind::{ConnectionRefused, Interrupted, NotFound, WouldBlock};
    matches!(kind, ConnectionRefused | Interrupted | NotFound | WouldBlock)
}

/// Sleeps for a millisecond. Returns `None` once `until` has passed.
fn pause(until: Instant) -> Option<()> {
    if Instant::now() >= until {
        return None;
    }
    thread::sleep(Duration::from_millis(1));
    Some(())
}

/// Checks that no other user can have put a socket into the directory or can connect to ours: its
/// owner is the owner of the socket just created, and it is closed to others.
fn check_private(directory: &Path, own: &Path) -> Result<(), TransportError> {
    let metadata = |path: &Path| {
        fs::symlink_metadata(path).map_err(|error| {
            TransportError::new(TransportErrorKind::System, format!("{}: {error}", path.display()))
        })
    };
    let (of_directory, of_socket) = (metadata(directory)?, metadata(own)?);
    let is_closed = of_directory.is_dir() && of_directory.mode() & 0o077 == 0;
    if is_closed && of_directory.uid() == of_socket.uid() {
        return Ok(());
    }
    err!(System, "{}: the directory is open to other users", directory.display())
}

fn make_greeting(number: usize, workers: usize) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    let (text, numbers) = bytes.split_at_mut(GREETING.len());
    text.copy_from_slice(GREETING);
    numbers[..8].copy_from_slice(&(number as u64).to_ne_bytes());
    numbers[8..].copy_from_slice(&(workers as u64).to_ne_bytes());
    bytes
}

fn read_greeting(mut stream: &UnixStream, wait: Duration) -> io::Result<[u8; GREETING_BYTES]> {
    let mut bytes = [0; GREETING_BYTES];
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(wait))?;
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Decodes a greeting into the number of the connecting worker.
///
/// # Errors
/// `Disagreement` if the worker has another version or expects another number of workers.
fn check_greeting(bytes: &[u8], workers: usize) -> Result<usize, TransportError> {
    let (text, numbers) = bytes.split_at(GREETING.len());
    let (peer, peer_workers) = numbers.split_at(8);
    let (peer, peer_workers) = (decode_number(peer), decode_number(peer_workers));
    if text != GREETING {
        return err!(Disagreement, "a worker of another version connects");
    }
    if peer_workers != workers || peer >= workers {
        let message = format!("worker {peer} counts {peer_workers} workers instead of {workers}");
        return Err(TransportError::at(TransportErrorKind::Disagreement, peer, message));
    }
    Ok(peer)
}

fn decode_number(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(usize::MAX, |bytes| u64::from_ne_bytes(bytes) as usize)
}

impl Shared {
    /// Runs a reader: handles frames of a worker until it ends its work or is lost.
    fn read(self: &Arc<Self>, peer: usize, mut stream: UnixStream) {
        loop {
            match self.read_frame(peer, &mut stream) {
                Ok(Frame::End) => return,
                Ok(_) => {}
                // The kind of error does not matter: the connection is over.
                Err(_) => break,
            }
        }
        if self.closing.load(Ordering::Acquire) {
            return;
        }
        let message = format!("worker {peer} is lost: its process ended unexpectedly");
        self.learn(TransportError::at(TransportErrorKind::Lost, peer, message));
    }

    fn read_frame(self: &Arc<Self>, peer: usize, stream: &mut UnixStream) -> io::Result<Frame> {
        let mut bytes = [0; HEADER_BYTES];
        stream.read_exact(&mut bytes)?;
        let header = Header::from_bytes(&bytes).ok_or(IoErrorKind::InvalidData)?;
        let refused = |error: TransportError| io::Error::other(error.to_string());
        let mut bytes = self.endpoint.memory.take(header.len).map_err(refused)?;
        stream.read_exact(&mut bytes)?;
        if let Some(failure) = self.endpoint.take_frame(peer, header, bytes) {
            self.learn(failure);
        }
        Ok(header.frame)
    }

    /// Records a failure that a reader noticed or received, and reports it to the others in a
    /// thread of its own. A reader that waited for a writer could block other workers.
    fn learn(self: &Arc<Self>, failure: TransportError) {
        let mut telling = lock(&self.telling);
        if self.endpoint.fail(failure.clone()) {
            let shared = Arc::clone(self);
            let tell = move || shared.tell(Notice::Failure(&failure));
            *telling = thread::Builder::new().spawn(tell).ok();
        }
    }

    /// Writes a notice to all its receivers. They keep the first failure that they receive.
    fn tell(&self, notice: Notice<'_>) {
        let (frame, worker, text) = notice.frame(self.endpoint.number());
        for to in self.endpoint.recipients(notice) {
            // A worker that misses the notice detects the failure itself.
            let _ = self.peers[to].as_ref().map(|peer| peer.write(frame, worker, text));
        }
    }

    /// Handles a failed write of a message: returns the cause, or `Ok` if the worker ended its work
    /// regularly, since messages to it are lost then.
    fn handle_write_error(
        self: &Arc<Self>,
        peer: usize,
        tag: Tag,
        error: &io::Error,
    ) -> Result<(), TransportError> {
        let deadline = self.endpoint.deadline();
        if matches!(error.kind(), IoErrorKind::WouldBlock | IoErrorKind::TimedOut) {
            let (_, tag) = split_tag(tag);
            let message = format!("worker {peer} did not take message {tag} within {deadline:?}");
            let failure = TransportError::at(TransportErrorKind::Deadline, peer, message);
            // Part of the frame may be written, so the connection is unusable.
            self.learn(worker_failure(self.endpoint.number(), failure.message()));
            return Err(failure);
        }
        // The reader of this worker first handles all that the worker sent before.
        self.endpoint.wait_for_end(peer, deadline, || {
            let message = format!("worker {peer} is lost: nothing can be sent to it");
            TransportError::at(TransportErrorKind::Lost, peer, message)
        })
    }
}

impl Peer {
    /// Writes a whole frame.
    fn write(&self, frame: Frame, tag: Tag, bytes: &[u8]) -> io::Result<()> {
        let header = Header { frame, tag, len: bytes.len() }.to_bytes();
        let mut rest = &mut [IoSlice::new(&header), IoSlice::new(bytes)][..];
        let mut stream = lock(&self.writing);
        while !rest.is_empty() {
            match stream.write_vectored(rest) {
                Ok(0) if rest.iter().all(|slice| slice.is_empty()) => break,
                Ok(0) => return Err(IoErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == IoErrorKind::Interrupted => {}
                Err(error) => {
                    let _ = stream.shutdown(Shutdown::Write);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Transport for Processes {
    fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        let written =
            self.shared.peers[to].as_ref().map(|peer| peer.write(Frame::Message, tag, bytes));
        match written {
            Some(Err(error)) => self.shared.handle_write_error(to, tag, &error),
            _ => Ok(()),
        }
    }

    fn tell(&self, notice: Notice<'_>) {
        match notice {
            Notice::Failure(_) | Notice::RunEnded(..) => self.shared.tell(notice),
            Notice::Overdue(waits_for) => {
                let shared = Arc::clone(&self.shared);
                // A thread of its own writes it, because a worker that does not answer may not read
                // either. A worker that misses the notice names, in its own error, the worker for
                // which it waits.
                let tell = move || shared.tell(Notice::Overdue(waits_for));
                let _ = thread::Builder::new().spawn(tell);
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail("it panicked");
        }
        self.shared.closing.store(true, Ordering::Release);
        let telling = lock(&self.shared.telling).take();
        // The thread has no cause to panic. If it did, the panic message has been printed.
        let _ = telling.map(JoinHandle::join);
        for peer in self.shared.peers.iter().flatten() {
            // A running worker always reads, and a lost one needs no last frame.
            let _ = lock(&peer.writing).set_write_timeout(Some(FAREWELL));
            let _ = peer.write(Frame::End, 0, &[]);
            let _ = lock(&peer.writing).shutdown(Shutdown::Both);
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}
