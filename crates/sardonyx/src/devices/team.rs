//! Workers that are other processes: what they agree on, and how they are told what to run.
//!
//! Worker 0 takes the inputs. For each run it sends every other worker an *order*: the types that
//! the plan is made for, and the inputs that the devices of that worker read. All make the same
//! plan from it. Outputs go from the device that has them to the first one, with their own number
//! as tag.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sardonyx_devices::{
    ErrorKind as Kind, FIRST_RESERVED_TAG, RunNumber, Tag, Transport, TransportError, agree,
    tag_in_run, worker_of,
};
use sardonyx_model::{Dim, Type};
use sardonyx_passes::{Device, Plan, divides_bodies};
use sardonyx_runtime::Port;
use sardonyx_tensor::{DataType, Value};
use sha2::{Digest, Sha256};

use super::exchange::Link;
use super::plans::Prepared;
use super::profile::DeviceRun;
use super::seat::{Given, Inputs, Limits};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Choices;
use crate::values::{read_value, write_value};

/// The tag of orders, which exchanges do not come near to.
const ORDER: Tag = FIRST_RESERVED_TAG - 1;

/// The error for one of the transport.
#[cold]
pub(super) fn worker_error(error: TransportError) -> Error {
    Error::new(ErrorKind::Worker, error.to_string())
}

/// All workers, as one of them sees them.
#[derive(Debug, Clone)]
pub(super) struct Team(Arc<dyn Transport>);

/// What all workers have to agree on, line by line.
pub(super) fn description(
    model: &Model,
    (configuration, devices): (&str, usize),
    choices: &Choices,
) -> Result<String, Error> {
    let options = &choices.options;
    let mut text = format!("sardonyx {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "model {}", model.sampled_hash()?);
    let _ = writeln!(text, "configuration '{configuration}' of {devices} devices");
    let _ = writeln!(text, "precision {:?}", options.precision);
    let _ = writeln!(text, "optimization {:?}", options.optimization);
    for (name, size) in &options.dims {
        let _ = writeln!(text, "size {name} = {size}");
    }
    for rewrite in &options.without {
        let _ = writeln!(text, "without rewrite {rewrite}");
    }
    // Each computes the conditions by itself: sums that are rounded otherwise could make one leave
    // a loop before the others.
    if divides_bodies(&model.graph, configuration)
        && let Ok(isa) = options.chosen_isa()
    {
        let _ = writeln!(text, "instruction set {}", isa.name());
    }
    if let Some(seed) = options.seed {
        let _ = writeln!(text, "seed {seed}");
    }
    Ok(text)
}

impl Team {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Team {
        Team(transport)
    }

    /// The own number.
    pub(super) fn number(&self) -> usize {
        self.0.number()
    }

    /// Finds out whether all workers are about to run the same; returns the seed of worker 0. A
    /// seed that was chosen is part of the description.
    pub(super) fn agree(&self, description: &str, seed: u64) -> Result<u64, Error> {
        let digest: [u8; 32] = Sha256::digest(description).into();
        agree(&*self.0, &digest, description).map_err(worker_error)?;

        if self.number() == 0 {
            for worker in 1..self.0.workers() {
                self.0.send(worker, ORDER, &seed.to_le_bytes()).map_err(worker_error)?;
            }
            return Ok(seed);
        }
        let mut seed = [0; 8];
        self.0.receive_into(0, ORDER, &mut seed).map_err(worker_error)?;
        Ok(u64::from_le_bytes(seed))
    }

    /// Tells the other workers what to run.
    pub(super) fn order(
        &self,
        plan: &Plan,
        names: &[Arc<str>],
        order: &Order,
    ) -> Result<(), Error> {
        let (devices, workers) = (plan.devices, self.0.workers());
        let workers_of = |input: usize| {
            let readers = plan.readers_of_inputs().get(input).into_iter().flatten();
            readers.map(|device| worker_of(*device as usize, devices, workers))
        };
        // What only this worker reads is not written.
        let is_sent = |input: usize| workers_of(input).any(|worker| worker > 0);
        let written: Vec<(usize, Vec<u8>)> = order.written_inputs(names, is_sent)?;
        for worker in 1..workers.min(devices) {
            let mut message = order.head();
            for (input, bytes) in
                written.iter().filter(|(input, _)| workers_of(*input).any(|one| one == worker))
            {
                put(&mut message, *input as u64);
                put(&mut message, bytes.len() as u64);
                message.extend_from_slice(bytes);
            }
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// Waits for what worker 0 says next, however long it takes; `None` if it will say nothing
    /// more.
    pub(super) fn next(
        &self,
        names: &[Arc<str>],
        inputs: &[Port],
        outputs: &[Port],
    ) -> Result<Option<Said>, Error> {
        let message = loop {
            match self.0.receive(0, ORDER) {
                Ok(message) => break message,
                // Worker 0 has nothing to run at the moment.
                Err(error) if error.kind() == Kind::Deadline => {}
                Err(error) if error.kind() == Kind::Ended => return Ok(None),
                Err(error) => return Err(worker_error(error)),
            }
        };
        let said = Said::read(&message, names, inputs, outputs);
        said.map(Some).inspect_err(|error| self.0.fail(&error.to_string()))
    }

    /// Tells those of the other workers that have devices that a run has ended early: they may be
    /// computing, and wait for nothing.
    pub(super) fn call_off(&self, run: RunNumber, devices: usize) {
        for worker in 1..self.0.workers().min(devices) {
            let mut message = Vec::new();
            put(&mut message, CALLED_OFF);
            put(&mut message, run.into());
            // Who cannot be told has ended, or will notice.
            let _ = self.0.send(worker, ORDER, &message);
        }
    }

    /// Gives what a run gives to those of the other workers that have devices.
    pub(super) fn give_results(&self, outputs: &Outputs, devices: usize) -> Result<(), Error> {
        let mut message = Vec::new();
        put(&mut message, RESULTS);
        for (_, value) in outputs.iter() {
            let bytes = with_type(value)?;
            put(&mut message, bytes.len() as u64);
            message.extend_from_slice(&bytes);
        }
        for worker in 1..self.0.workers().min(devices) {
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// Tells those of the other workers that have devices that a run is over, and all devices have
    /// what they are to keep.
    pub(super) fn keep(&self, run: RunNumber, devices: usize) -> Result<(), Error> {
        for worker in 1..self.0.workers().min(devices) {
            let mut message = Vec::new();
            put(&mut message, KEPT);
            put(&mut message, run.into());
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// What connects the workers.
    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.0
    }
}

/// What worker 0 says to the others.
pub(super) enum Said {
    /// What to run.
    Run(Order),
    /// That a run has ended early.
    CalledOff(RunNumber),
    /// What a run gives.
    Results(Outputs),
    /// That a run is over, whose outputs stay on the devices.
    Kept(RunNumber),
}

/// What a message of worker 0 begins with.
const RUN: u64 = 0;
const CALLED_OFF: u64 = 1;
const RESULTS: u64 = 2;
const KEPT: u64 = 3;

/// What to run.
pub(super) struct Order {
    pub(super) run: RunNumber,
    /// By input of the graph; its own type where there is none.
    pub(super) types: Vec<Option<Type>>,
    pub(super) inputs: Inputs,
    pub(super) limits: Limits,
    /// The time of day when the run was handed out, if devices are to tell of their steps.
    pub(super) watched: Option<SystemTime>,
}

const NO_LIMIT: u64 = u64::MAX;

impl Order {
    /// What all workers are told: the number of the run, limits and types. Inputs follow, each as
    /// its number, its length in bytes and a message of the standard.
    fn head(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put(&mut message, RUN);
        put(&mut message, self.run.into());
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        let millis = self.limits.deadline.map(|deadline| left(deadline).as_millis());
        put(&mut message, millis.map_or(NO_LIMIT, |left| u64::try_from(left).unwrap_or(NO_LIMIT)));
        put(&mut message, self.limits.iteration_limit.unwrap_or(NO_LIMIT));
        put(&mut message, u64::from(self.limits.seed.is_some()));
        put(&mut message, self.limits.seed.unwrap_or(0));
        let since_epoch = self.watched.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        put(&mut message, since_epoch.map_or(0, |time| time.as_nanos() as u64));
        for ty in &self.types {
            let known = ty.as_ref().and_then(|ty| Some((ty.elem()?, ty.shape()?)));
            let Some((elem, shape)) = known else {
                put(&mut message, 0);
                continue;
            };
            put(&mut message, u64::from(elem.number().unsigned_abs()));
            put(&mut message, shape.len() as u64);
            for dim in shape {
                put(&mut message, dim.size().unwrap_or_default() as u64);
            }
        }
        message
    }

    /// By number, the messages of inputs.
    fn written_inputs(
        &self,
        names: &[Arc<str>],
        is_sent: impl Fn(usize) -> bool,
    ) -> Result<Vec<(usize, Vec<u8>)>, Error> {
        let numbered = self.inputs.iter().filter_map(|(name, value)| {
            let number = names.iter().position(|own| own == name)?;
            is_sent(number).then_some((number, value))
        });
        numbered.map(|(number, value)| Ok((number, write_value(value, "")?))).collect()
    }

    fn read(mut rest: Rest<'_>, names: &[Arc<str>], ports: &[Port]) -> Result<Order, Error> {
        let run = rest.run()?;
        let millis = Some(rest.take()?).filter(|millis| *millis != NO_LIMIT);
        let iteration_limit = Some(rest.take()?).filter(|iterations| *iterations != NO_LIMIT);
        let deadline =
            millis.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        let has_seed = rest.take()? != 0;
        let seed = Some(rest.take()?).filter(|_| has_seed);
        let limits = Limits { stop: None, deadline, iteration_limit, seed };
        let watched = Some(rest.take()?).filter(|nanos| *nanos > 0);
        let watched = watched.map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos));
        let mut types = Vec::with_capacity(names.len());
        for _ in names {
            let elem = i32::try_from(rest.take()?).ok().and_then(DataType::from_number);
            types.push(match elem {
                None => None,
                Some(elem) => {
                    let rank = rest.take()?;
                    let dims: Result<Vec<Dim>, Error> =
                        (0..rank).map(|_| Ok(Dim::from(rest.size()?))).collect();
                    Some(Type::tensor(elem, dims?))
                }
            });
        }
        let mut inputs = Vec::new();
        while !rest.0.is_empty() {
            let number = rest.size()?;
            let name = names.get(number).ok_or_else(damaged)?;
            let bytes = rest.bytes()?;
            let declared = ports.iter().find(|port| *port.name() == **name);
            let ty = types[number].as_ref().or_else(|| declared.and_then(Port::ty));
            inputs.push((name.clone(), value_of(bytes, ty)?));
        }
        Ok(Order { run, types, inputs, limits, watched })
    }
}

impl Said {
    fn read(
        message: &[u8],
        names: &[Arc<str>],
        inputs: &[Port],
        outputs: &[Port],
    ) -> Result<Said, Error> {
        let mut rest = Rest(message);
        match rest.take()? {
            RUN => Order::read(rest, names, inputs).map(Said::Run),
            CALLED_OFF => rest.run().map(Said::CalledOff),
            KEPT => rest.run().map(Said::Kept),
            RESULTS => {
                let mut values = Vec::with_capacity(outputs.len());
                for port in outputs {
                    values.push((Arc::from(port.name()), typed(rest.bytes()?, port)?));
                }
                Ok(Said::Results(Outputs::new(values)))
            }
            _ => Err(damaged()),
        }
    }
}

/// Sends what a device gives to the first device.
pub(super) fn send_outputs(link: &Link, given: Given) -> Result<(), Error> {
    for (index, value) in given.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let message = with_type(&value)?;
        let tag = link.tag(index).map_err(|_| damaged())?;
        let sent = link.transport().send(0, tag, &message);
        sent.inspect_err(|error| link.note(error)).map_err(worker_error)?;
    }
    Ok(())
}

/// Tells the first device that a device is done with a run.
pub(super) fn send_done(link: &Link, prepared: &Prepared) -> Result<(), Error> {
    let tag = link.tag(after_exchanges(&prepared.plan) + 1).map_err(|_| damaged())?;
    let sent = link.transport().send(0, tag, &[]);
    sent.inspect_err(|error| link.note(error)).map_err(worker_error)
}

/// Waits until a device of another process is done with a run, at the first device.
pub(super) fn receive_done(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    plan: &Plan,
) -> Result<(), Error> {
    let transport = first.ok_or_else(damaged)?.transport();
    let number = u32::try_from(after_exchanges(plan) + 1).map_err(|_| damaged())?;
    transport.receive(by as usize, tag_in_run(run, number)).map(drop).map_err(worker_error)
}

/// Receives what a device of another process gives, at the first device.
pub(super) fn receive(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    (index, port): (usize, &Port),
) -> Result<Value, Error> {
    let transport = first.ok_or_else(damaged)?.transport();
    let tag = tag_in_run(run, u32::try_from(index).map_err(|_| damaged())?);
    let message = transport.receive(by as usize, tag).map_err(worker_error)?;
    typed(&message, port)
}

/// A value as a message, after the number of its element type if it is a tensor, as a model need
/// not declare any.
fn with_type(value: &Value) -> Result<Vec<u8>, Error> {
    let elem = value.as_tensor().map_or(0, |tensor| tensor.data_type().number().unsigned_abs());
    let mut message = Vec::new();
    put(&mut message, u64::from(elem));
    message.extend(write_value(value, "")?);
    Ok(message)
}

/// The value of an output, with its type.
fn typed(message: &[u8], port: &Port) -> Result<Value, Error> {
    let mut rest = Rest(message);
    let elem = i32::try_from(rest.take()?).ok().and_then(DataType::from_number);
    let ty = elem.map(Type::unranked);
    value_of(rest.0, ty.as_ref().or(port.ty()))
}

/// Sends what a device did in a run to the first device.
pub(super) fn send_watched(
    link: &Link,
    prepared: &Prepared,
    watched: &DeviceRun,
) -> Result<(), Error> {
    let mut message = Vec::new();
    watched.to_numbers().into_iter().for_each(|number| put(&mut message, number));
    let tag = link.tag(after_exchanges(&prepared.plan)).map_err(|_| damaged())?;
    let sent = link.transport().send(0, tag, &message);
    sent.inspect_err(|error| link.note(error)).map_err(worker_error)
}

/// Receives what a device of another process did in a run, at the first device.
pub(super) fn receive_watched(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    plan: &Plan,
) -> Result<DeviceRun, Error> {
    let transport = first.ok_or_else(damaged)?.transport();
    let tag = tag_in_run(run, u32::try_from(after_exchanges(plan)).map_err(|_| damaged())?);
    let message = transport.receive(by as usize, tag).map_err(worker_error)?;
    let mut rest = Rest(&message);
    let mut numbers = Vec::with_capacity(message.len() / 8);
    while !rest.0.is_empty() {
        numbers.push(rest.take()?);
    }
    DeviceRun::of_numbers(&numbers).ok_or_else(damaged)
}

/// The first number of a run that neither outputs nor exchanges have.
fn after_exchanges(plan: &Plan) -> usize {
    plan.givers_of_outputs().len() + plan.steps.len()
}

fn value_of(bytes: &[u8], ty: Option<&Type>) -> Result<Value, Error> {
    read_value(bytes.to_vec(), ty.ok_or_else(damaged)?)
}

#[cold]
fn damaged() -> Error {
    Error::new(ErrorKind::Worker, "a message of another worker is damaged")
}

fn put(message: &mut Vec<u8>, number: u64) {
    message.extend(number.to_le_bytes());
}

/// What is left to read of a message.
struct Rest<'m>(&'m [u8]);

impl<'m> Rest<'m> {
    fn take(&mut self) -> Result<u64, Error> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    fn run(&mut self) -> Result<RunNumber, Error> {
        RunNumber::try_from(self.take()?).map_err(|_| damaged())
    }

    fn size(&mut self) -> Result<usize, Error> {
        usize::try_from(self.take()?).map_err(|_| damaged())
    }

    fn bytes(&mut self) -> Result<&'m [u8], Error> {
        let len = self.size()?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Model, Session};

    /// Workers whose kernels round otherwise must not decide about conditions.
    #[test]
    fn workers_with_divided_loops_agree_on_the_instruction_set() {
        let says = "@<device_configurations: [{configuration_id: \"c\"}]>";
        for (inner, outer, agrees) in [(says, "", true), ("", says, false)] {
            let text = format!(
                "<ir_version: 11, opset_import: [\"\": 21]>
                 g (float x, bool c) => (float z) {{
                     y = If (c) <then_branch = yes () => (a) {{ a = Neg (x) {inner} }},
                                 else_branch = no () => (b) {{ b = Abs (x) }}>
                     z = Neg (y) {outer}
                 }}
                 @<configuration: [{{name: \"c\", num_devices: 2}}]>"
            );
            let model = Model::from_text(&text).unwrap();
            let builder = Session::builder(&model);
            let what = super::description(&model, ("c", 2), builder.choices()).unwrap();
            assert_eq!(what.contains("instruction set"), agrees, "{what}");
        }
    }
}
