//! Transport for several devices in one worker.

use std::sync::Arc;

use crate::endpoint::{Endpoint, Notice, worker_failure};
use crate::error::{TransportError, err};
use crate::transport::{
    FIRST_RESERVED_TAG, RunNumber, Settings, Tag, Transport, check_worker, receive_with, split_tag,
    tag_in_run,
};

/// Transport of one of several devices that a worker runs. Other devices see it as a worker.
///
/// A worker runs consecutive devices, and no worker runs two devices more than another. Messages
/// between devices of one worker stay in its process. Messages to others use the transport of the
/// workers, with the pair of devices encoded in the tag.
#[derive(Debug)]
pub struct Hosted {
    shared: Arc<Shared>,
    /// Position among the devices of the worker.
    place: usize,
}

#[derive(Debug)]
struct Shared {
    transport: Arc<dyn Transport>,
    devices: usize,
    /// Number of the first device of this worker.
    first: usize,
    /// Endpoints of the devices of this worker.
    endpoints: Vec<Endpoint>,
}

/// Returns the worker that runs a device, if `devices` devices are spread over `workers` workers.
/// With more workers than devices, each of the first workers has one device.
pub fn worker_of(device: usize, devices: usize, workers: usize) -> usize {
    if workers >= devices { device } else { device * workers / devices }
}

impl Hosted {
    /// Creates the transports of those of `devices` devices that the worker of `transport` runs.
    pub fn new(transport: &Arc<dyn Transport>, devices: usize, settings: &Settings) -> Vec<Hosted> {
        let (own, workers) = (transport.number(), transport.workers());
        let is_own = |device: &usize| worker_of(*device, devices, workers) == own;
        let hosted = (0..devices).filter(is_own);
        let shared = Arc::new(Shared {
            transport: Arc::clone(transport),
            devices,
            first: hosted.clone().next().unwrap_or(0),
            endpoints: hosted.map(|device| Endpoint::new(device, devices, settings)).collect(),
        });
        let places = 0..shared.endpoints.len();
        places.map(|place| Hosted { shared: Arc::clone(&shared), place }).collect()
    }

    fn worker_of(&self, device: usize) -> usize {
        worker_of(device, self.shared.devices, self.shared.transport.workers())
    }

    /// Returns the endpoint of a device of this worker, or `None` for other devices.
    fn neighbour(&self, device: usize) -> Option<&Endpoint> {
        let place = device.checked_sub(self.shared.first)?;
        self.shared.endpoints.get(place)
    }

    /// Returns the tag between workers that encodes a tag between two devices.
    ///
    /// # Errors
    /// `Argument` if the encoded tag does not fit.
    fn encode_tag(&self, from: usize, to: usize, tag: Tag) -> Result<Tag, TransportError> {
        let most = self.shared.devices.div_ceil(self.shared.transport.workers());
        let place = |device: usize| {
            let worker = self.worker_of(device);
            (0..device).rev().take_while(|other| self.worker_of(*other) == worker).count()
        };
        let (run, number) = split_tag(tag);
        let number = Tag::from(number);
        // There are few reserved tags, so their products stay in the reserved range.
        let (base, first, end) = if number < FIRST_RESERVED_TAG {
            (0, 0, FIRST_RESERVED_TAG)
        } else {
            (SHIFTED, FIRST_RESERVED_TAG, Tag::from(u32::MAX))
        };
        let pair = (most * place(from) + place(to)) as u64;
        let whole = (number - first) * (most * most) as u64 + pair + base;
        match u32::try_from(whole) {
            Ok(number) if whole < end => Ok(tag_in_run(run, number)),
            _ => err!(Argument, "tag {number} is too large for {most} devices in a worker"),
        }
    }
}

/// First of the tags between workers that encode reserved tags between devices. The reserved tags
/// of the workers themselves are lower.
const SHIFTED: Tag = FIRST_RESERVED_TAG + 16;

impl Transport for Hosted {
    fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoints[self.place]
    }

    fn post(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        if let Some(neighbour) = self.neighbour(to) {
            return neighbour.deliver(self.number(), tag, bytes);
        }
        let tag = self.encode_tag(self.number(), to, tag)?;
        self.shared.transport.send(self.worker_of(to), tag, bytes)
    }

    /// Sends a notice to the devices of this worker. The transport of the workers informs the
    /// others.
    fn tell(&self, notice: Notice<'_>) {
        self.shared.endpoints.iter().for_each(|endpoint| endpoint.note(self.number(), notice));
    }

    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        check_worker(from, self.workers())?;
        self.endpoint().count_waiting(take, |take| {
            if self.neighbour(from).is_some() {
                return receive_with(self, from, tag, take);
            }
            let tag = self.encode_tag(from, self.number(), tag)?;
            self.shared.transport.receive_with(self.worker_of(from), tag, take)
        })
    }

    fn worker(&self) -> usize {
        self.shared.transport.number()
    }

    fn end_run(&self, run: RunNumber, reason: &TransportError) {
        self.shared.transport.end_run(run, reason);
        self.tell(Notice::RunEnded(run, reason));
    }

    fn fail(&self, reason: &str) {
        self.shared.transport.fail(reason);
        self.tell(Notice::Failure(&worker_failure(self.worker(), reason)));
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("its thread panicked");
        }
        self.shared.endpoints.iter().for_each(|endpoint| endpoint.end(self.number()));
    }
}
