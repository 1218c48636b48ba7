//! Timing of the steps of each device in a run.

use std::time::{Duration, SystemTime};

use sardonyx_devices::Sent;
use sardonyx_model::Type;
use sardonyx_runtime::{RunDetails, StepEvent, StepInfo};
use sardonyx_shard::Device;

use super::DeviceSession;
use super::plans::SizedPlan;
use crate::error::{Error, catch_panic};

/// Timed steps of one device in a run; see [`DeviceSession::run_watched`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceRun {
    /// Number of the device, from 0.
    pub device: usize,
    /// Time from the start of the run to the start of the device. For a device of another process,
    /// the time is a difference of two wall clocks, as accurate as the clocks are synchronized.
    pub start: Duration,
    /// Time that the device took for its part of the model.
    pub took: Duration,
    /// Steps of the device in the order in which they ended, at most the first million. Times of
    /// steps are relative to the start of the device.
    pub events: Vec<DeviceEvent>,
    /// Number of steps that ended after `events` was full.
    pub untold: u64,
}

/// A step that a device has finished, with its traffic if the step exchanges tensors.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DeviceEvent {
    /// Times of the step, and its index in [`DevicePart::steps`].
    pub step: StepEvent,
    /// Waiting time and traffic of the step; `None` if it exchanges no tensors with other devices.
    pub exchanged: Option<Exchanged>,
}

/// Waiting time and traffic of one device in one exchange of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchanged {
    /// Index of the exchange among the steps of the sharding plan.
    pub step: usize,
    /// Time blocked on messages that had not arrived. The rest of the step's time went into
    /// packing, sending, copying and reducing. Zero in a collective of an MPI library, which does
    /// not report its waiting time.
    pub waited: Duration,
    /// Messages and bytes sent, including the traffic of collectives of an MPI library.
    pub sent: Sent,
}

/// The part of a model that a device runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DevicePart {
    /// Number of the device, from 0.
    pub device: usize,
    /// Steps of the device, in the order of a run. Steps with the operator
    /// [`EXCHANGE`](super::EXCHANGE) exchange tensors with other devices.
    pub steps: Vec<StepInfo>,
    /// Tensor sizes, arithmetic work and memory of the steps.
    pub details: RunDetails,
}

impl DeviceSession {
    /// Returns the part of the model that each device runs, in the order of the devices. `inputs`
    /// overrides the declared types of inputs. The parts of devices in other processes are compiled
    /// in this process to be described, and may differ from the parts compiled there.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::run`] before anything runs.
    #[doc(hidden)]
    pub fn parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        catch_panic(|| self.make_parts(inputs))
    }

    /// Compiles the parts of [`DeviceSession::parts`], which catches panics.
    fn make_parts(&self, inputs: &[(String, Type)]) -> Result<Vec<DevicePart>, Error> {
        let types = self.list_types(|name| {
            inputs.iter().find(|(given, _)| given == name).map(|(_, ty)| ty.clone())
        });
        let first = self.crew.find_first_link().ok_or_else(|| self.crew.make_worker_error())?;
        let SizedPlan { prepared, numbers } = self.fit_plan(&types)?;
        let mut parts = Vec::with_capacity(self.crew.devices);
        for device in 0..self.crew.devices as Device {
            let own = self.crew.seats.iter().position(|seat| seat.device == device);
            let looked;
            let session = match own.and_then(|own| prepared.parts.get(own)) {
                Some(own) => &own.session,
                None => {
                    let link = first.clone();
                    looked = self.make_part(&prepared.plan, device, link, &numbers, true)?.session;
                    &looked
                }
            };
            let ports = session.inputs();
            let inputs =
                inputs.iter().filter(|(name, _)| ports.iter().any(|port| port.name() == name));
            parts.push(DevicePart {
                device: device as usize,
                steps: session.steps(),
                details: session.details(inputs.cloned())?,
            });
        }
        Ok(parts)
    }
}

/// Maximum number of steps that a device reports in one run.
const MOST_EVENTS: usize = 1_000_000;

impl DeviceRun {
    /// Starts the record of a device that begins its part now, in a run that began at
    /// `run_start`.
    pub(super) fn begin(device: usize, run_start: SystemTime) -> DeviceRun {
        let start = run_start.elapsed().unwrap_or_default();
        DeviceRun { device, start, took: Duration::ZERO, events: Vec::new(), untold: 0 }
    }

    /// Adds a finished step; only counts it if [`MOST_EVENTS`] steps are recorded.
    pub(super) fn add(&mut self, step: StepEvent, exchanged: Option<Exchanged>) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(DeviceEvent { step, exchanged });
        } else {
            self.untold += 1;
        }
    }

    /// Encodes the record as a message to device 0: four numbers for the device, then seven for
    /// each step.
    pub(super) fn to_numbers(&self) -> Vec<u64> {
        let mut numbers =
            vec![self.device as u64, to_nanos(self.start), to_nanos(self.took), self.untold];
        for DeviceEvent { step, exchanged } in &self.events {
            numbers.extend([step.step as u64, to_nanos(step.start), to_nanos(step.took)]);
            numbers.extend(match exchanged {
                // One more than the index, as 0 stands for a step without an exchange.
                Some(Exchanged { step, waited, sent }) => {
                    [*step as u64 + 1, to_nanos(*waited), sent.messages, sent.bytes]
                }
                None => [0; 4],
            });
        }
        numbers
    }

    /// Decodes the message of [`DeviceRun::to_numbers`]; `None` if it is malformed.
    pub(super) fn from_numbers(numbers: &[u64]) -> Option<DeviceRun> {
        let (head, events) = numbers.split_first_chunk::<4>()?;
        let time = Duration::from_nanos;
        let events = events.chunks(7).map(|event| {
            let [step, start, took, exchange, waited, messages, bytes] = *event.as_array::<7>()?;
            let exchanged = match exchange.checked_sub(1) {
                Some(step) => Some(Exchanged {
                    step: usize::try_from(step).ok()?,
                    waited: time(waited),
                    sent: Sent { messages, bytes },
                }),
                None => None,
            };
            let step = usize::try_from(step).ok()?;
            Some(DeviceEvent { step: StepEvent::new(step, time(start), time(took)), exchanged })
        });
        let [device, start, took, untold] = *head;
        Some(DeviceRun {
            device: usize::try_from(device).ok()?,
            start: time(start),
            took: time(took),
            events: events.collect::<Option<_>>()?,
            untold,
        })
    }
}

/// Converts a duration into whole nanoseconds, at most `u64::MAX`.
fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
        let read = DeviceRun::from_numbers(&numbers).expect("it is whole");
        assert_eq!(read.to_numbers(), numbers);
        assert_eq!((read.device, read.events[1].exchanged), (3, Some(exchanged)));
        assert!(DeviceRun::from_numbers(&numbers[..numbers.len() - 1]).is_none());
        assert!(DeviceRun::from_numbers(&[]).is_none());
    }
}
