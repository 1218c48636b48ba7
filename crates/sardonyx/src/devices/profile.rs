//! What devices do in a run, and when.

use std::time::{Duration, SystemTime};

use sardonyx_devices::Sent;
use sardonyx_model::Type;
use sardonyx_passes::Device;
use sardonyx_runtime::{RunDetails, StepEvent, StepInfo};

use super::DeviceSession;
use super::plans::Fitted;
use crate::error::{Error, catch_panic};

/// Steps of one device in a run; see [`DeviceSession::run_watched`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceRun {
    /// The number of the device.
    pub device: usize,
    /// When it began, since the run was handed out. Devices of other processes tell it by the time
    /// of day, so it is as exact as the clocks of the machines agree.
    pub start: Duration,
    /// How long it took to run its part of the model.
    pub took: Duration,
    /// Its steps, in the order in which they ended; their times are since the device began. The
    /// first million of them.
    pub events: Vec<DeviceEvent>,
    /// How many steps ended after these.
    pub untold: u64,
}

/// A step of a device that has just ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DeviceEvent {
    /// Its number is that among [`DevicePart::steps`].
    pub step: StepEvent,
    /// What was exchanged, if the step is an exchange with other devices.
    pub exchanged: Option<Exchanged>,
}

/// What a device did in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanged {
    /// The number of the move among the steps of the plan.
    pub step: usize,
    /// How long it waited for messages that had not arrived. What is left of the time of the step
    /// is that of packing, sending, copying and combining; and all of it where a collective of an
    /// MPI library was called, which does not tell.
    pub waited: Duration,
    /// What it sent, with what took part in collectives of an MPI library.
    pub sent: Sent,
}

/// The part of a model that a device runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DevicePart {
    /// The number of the device.
    pub device: usize,
    /// Its steps, in the order of a run; those whose operator is [`EXCHANGE`](super::EXCHANGE) are
    /// exchanges with other devices.
    pub steps: Vec<StepInfo>,
    /// What the steps do.
    pub details: RunDetails,
}

impl DeviceSession {
    /// Returns the parts of the model that devices run for inputs of these types, or of the
    /// declared types where none is given, in the order of their numbers. For devices of other
    /// processes, the parts are as this process would run them.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceSession::run`] before anything runs.
    #[doc(hidden)]
    pub fn parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        catch_panic(|| self.make_parts(inputs))
    }

    fn make_parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        let types = self.by_position(|name| {
            inputs.iter().find(|(given, _)| given == name).map(|(_, ty)| ty.clone())
        });
        let first = self.crew.first().ok_or_else(|| self.crew.only_first())?;
        let Fitted { prepared, numbers } = self.fit_plan(&types)?;
        let part = |device: Device| {
            let own = self.crew.seats.iter().position(|seat| seat.device == device);
            let looked;
            let session = match own.and_then(|own| prepared.parts.get(own)) {
                Some(own) => &own.session,
                None => {
                    let place = (device, first.clone());
                    looked = self.make_part(&prepared.plan, place, &numbers, true)?.session;
                    &looked
                }
            };
            let reads = |name: &str| session.inputs().iter().any(|port| port.name() == name);
            let inputs = inputs.iter().filter(|(name, _)| reads(name)).cloned();
            Ok(DevicePart {
                device: device as usize,
                steps: session.steps(),
                details: session.details(inputs)?,
            })
        };
        (0..self.crew.devices as Device).map(part).collect()
    }
}

/// Steps that a device tells of in a run.
const MOST_EVENTS: usize = 1_000_000;

impl DeviceRun {
    /// Of a device that begins now. The run was handed out at that time of day.
    pub(super) fn begin(device: usize, handed_out: SystemTime) -> DeviceRun {
        let start = handed_out.elapsed().unwrap_or_default();
        DeviceRun { device, start, took: Duration::ZERO, events: Vec::new(), untold: 0 }
    }

    pub(super) fn add(&mut self, step: StepEvent, exchanged: Option<Exchanged>) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(DeviceEvent { step, exchanged });
        } else {
            self.untold += 1;
        }
    }

    /// As a message to the first device: numbers, those of each step after the others.
    pub(super) fn to_numbers(&self) -> Vec<u64> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut numbers =
            vec![self.device as u64, nanos(self.start), nanos(self.took), self.untold];
        for DeviceEvent { step, exchanged } in &self.events {
            numbers.extend([step.step as u64, nanos(step.start), nanos(step.took)]);
            numbers.extend(match exchanged {
                // One more than the number: 0 is for none.
                Some(Exchanged { step, waited, sent }) => {
                    [*step as u64 + 1, nanos(*waited), sent.messages, sent.bytes]
                }
                None => [0; 4],
            });
        }
        numbers
    }

    /// `None` if these are not the numbers of a run.
    pub(super) fn of_numbers(numbers: &[u64]) -> Option<DeviceRun> {
        let (head, events) = numbers.split_first_chunk::<4>()?;
        let size = |number: u64| usize::try_from(number).ok();
        let time = Duration::from_nanos;
        let events = events.chunks(7).map(|event| {
            let [step, start, took, exchange, waited, messages, bytes] = *event.as_array::<7>()?;
            let exchanged = match exchange.checked_sub(1) {
                Some(step) => Some(Exchanged {
                    step: size(step)?,
                    waited: time(waited),
                    sent: Sent { messages, bytes },
                }),
                None => None,
            };
            let step = StepEvent::new(size(step)?, time(start), time(took));
            Some(DeviceEvent { step, exchanged })
        });
        let [device, start, took, untold] = *head;
        Some(DeviceRun {
            device: size(device)?,
            start: time(start),
            took: time(took),
            events: events.collect::<Option<_>>()?,
            untold,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_are_written() {
        let mut run = DeviceRun::begin(3, SystemTime::now());
        let time = Duration::from_nanos;
        run.took = time(77);
        run.add(StepEvent::new(0, time(1), time(2)), None);
        let sent = Sent { messages: 2, bytes: 640 };
        let exchanged = Exchanged { step: 0, waited: time(5), sent };
        run.add(StepEvent::new(9, time(3), time(40)), Some(exchanged));
        let numbers = run.to_numbers();
        let read = DeviceRun::of_numbers(&numbers).expect("it is whole");
        assert_eq!(read.to_numbers(), numbers);
        assert_eq!((read.device, read.events[1].exchanged), (3, Some(exchanged)));
        assert!(DeviceRun::of_numbers(&numbers[..numbers.len() - 1]).is_none());
        assert!(DeviceRun::of_numbers(&[]).is_none());
    }
}
