//! Several devices in one worker.

use std::sync::Arc;

use crate::error::{TransportError, err};
use crate::mailbox::{Mailbox, failed};
use crate::scratch::Scratch;
use crate::traffic::{Traffic, TrafficCounters};
use crate::transport::{FIRST_RESERVED_TAG, Settings, Tag, Transport, check_worker};

/// The transport of a device, of which a worker runs several: to the others it counts as a worker.
///
/// Devices that follow each other share a worker, and no worker has more than one device more than
/// another. Messages between devices of one worker do not leave its process; those to others go
/// over the transport of the workers, where the tag also says between which devices they go.
#[derive(Debug)]
pub struct Hosted {
    shared: Arc<Shared>,
    /// The own number among all devices.
    device: usize,
    counters: TrafficCounters,
    scratch: Scratch,
}

#[derive(Debug)]
struct Shared {
    transport: Arc<dyn Transport>,
    devices: usize,
    /// The first device of this worker.
    first: usize,
    /// By device of this worker.
    mailboxes: Vec<Mailbox>,
    settings: Settings,
}

/// The worker that runs a device, when so many devices are spread over so many workers. Where there
/// are more workers than devices, each of the first ones has one device.
pub fn worker_of(device: usize, devices: usize, workers: usize) -> usize {
    if workers >= devices { device } else { device * workers / devices }
}

impl Hosted {
    /// The transports of the devices that the worker of a transport runs, of so many devices.
    pub fn new(transport: &Arc<dyn Transport>, devices: usize, settings: &Settings) -> Vec<Hosted> {
        let (own, workers) = (transport.number(), transport.workers());
        let is_own = |device: &usize| worker_of(*device, devices, workers) == own;
        let hosted: Vec<usize> = (0..devices).filter(is_own).collect();
        let shared = Arc::new(Shared {
            transport: Arc::clone(transport),
            devices,
            first: hosted.first().copied().unwrap_or(0),
            mailboxes: hosted.iter().map(|_| Mailbox::new(devices)).collect(),
            settings: settings.clone(),
        });
        let with = |device| Hosted {
            shared: Arc::clone(&shared),
            device,
            counters: TrafficCounters::new(devices),
            scratch: Scratch::new(),
        };
        hosted.into_iter().map(with).collect()
    }

    fn worker_of(&self, device: usize) -> usize {
        worker_of(device, self.shared.devices, self.shared.transport.workers())
    }

    /// The mailbox of a device of this worker.
    fn mailbox(&self, device: usize) -> Option<&Mailbox> {
        let at = device.checked_sub(self.shared.first)?;
        self.shared.mailboxes.get(at)
    }

    /// The tag between workers of a message with a tag between devices.
    fn tag(&self, from: usize, to: usize, tag: Tag) -> Result<Tag, TransportError> {
        let most = self.shared.devices.div_ceil(self.shared.transport.workers());
        let place = |device: usize| {
            let worker = self.worker_of(device);
            (0..device).rev().take_while(|other| self.worker_of(*other) == worker).count()
        };
        // Reserved tags are few, so that their products stay reserved.
        let (base, most_tag) =
            if tag < FIRST_RESERVED_TAG { (0, FIRST_RESERVED_TAG) } else { (SHIFTED, Tag::MAX) };
        let number = if tag < FIRST_RESERVED_TAG { tag } else { tag - FIRST_RESERVED_TAG };
        let pair = (most * place(from) + place(to)) as u64;
        let whole = u64::from(number) * (most * most) as u64 + pair + u64::from(base);
        match Tag::try_from(whole) {
            Ok(tag) if tag < most_tag => Ok(tag),
            _ => err!(Argument, "tag {tag} is too large for {most} devices in a worker"),
        }
    }
}

/// Where reserved tags of devices begin among those of workers, which come before them.
const SHIFTED: Tag = FIRST_RESERVED_TAG + 16;

impl Transport for Hosted {
    fn workers(&self) -> usize {
        self.shared.devices
    }

    fn number(&self) -> usize {
        self.device
    }

    fn send(&self, to: usize, tag: Tag, bytes: &[u8]) -> Result<(), TransportError> {
        check_worker(to, self.workers())?;
        match (self.mailbox(self.device), self.mailbox(to)) {
            (Some(own), Some(mailbox)) => {
                own.check()?;
                mailbox.put_copy(self.device, tag, bytes)?;
            }
            _ => {
                let tag = self.tag(self.device, to, tag)?;
                self.shared.transport.send(self.worker_of(to), tag, bytes)?;
            }
        }
        self.counters.count(to, bytes.len());
        Ok(())
    }

    fn receive_with(
        &self,
        from: usize,
        tag: Tag,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TransportError> {
        check_worker(from, self.workers())?;
        match (self.mailbox(from), self.mailbox(self.device)) {
            (Some(_), Some(own)) => {
                own.receive(from, tag, self.shared.settings.deadline, take, || {
                    let mailboxes = self.shared.mailboxes.iter();
                    mailboxes.for_each(|mailbox| mailbox.note_overdue(self.device, from));
                })
            }
            _ => {
                let tag = self.tag(from, self.device, tag)?;
                self.shared.transport.receive_with(self.worker_of(from), tag, take)
            }
        }
    }

    fn fail(&self, reason: &str) {
        self.shared.transport.fail(reason);
        let failure = failed(self.shared.transport.number(), reason);
        for mailbox in &self.shared.mailboxes {
            mailbox.fail(failure.clone());
        }
    }

    fn traffic(&self) -> Traffic {
        self.counters.read()
    }

    fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("its thread panicked");
        }
        for mailbox in &self.shared.mailboxes {
            mailbox.end(self.device);
        }
    }
}
