//! Messages between worker 0 and the other worker processes: setup, orders, outputs.
//!
//! Worker 0 takes the inputs. For each run it sends every other worker an *order*: the input types,
//! from which every worker makes the same plan, and the inputs that the devices of that worker
//! read. A device sends its outputs to device 0, each with the output's index as tag.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sardonyx_devices::{
    FIRST_RESERVED_TAG, RunNumber, Tag, Transport, TransportError, TransportErrorKind, agree,
    tag_in_run, worker_of,
};
use sardonyx_model::{Dim, Type};
use sardonyx_runtime::Port;
use sardonyx_shard::{Device, Plan, divides_bodies};
use sardonyx_tensor::{DataType, Value};
use sha2::{Digest, Sha256};

use super::exchange::Link;
use super::plans::CompiledPlan;
use super::profile::DeviceRun;
use super::seat::{Inputs, Limits, OutputValues};
use crate::error::{Error, ErrorKind};
use crate::model::Model;
use crate::outputs::Outputs;
use crate::session::Choices;
use crate::values::{read_value, write_value};

/// Tag of the messages of worker 0 to other workers: the highest free tag, far above the tags of
/// exchanges.
const ORDER: Tag = FIRST_RESERVED_TAG - 1;

/// Converts an error of the transport between workers into the library's error.
#[cold]
pub(super) fn worker_error(error: TransportError) -> Error {
    Error::new(ErrorKind::Worker, error.to_string())
}

/// Connection of this worker process with all other worker processes.
#[derive(Debug, Clone)]
pub(super) struct Team(Arc<dyn Transport>);

/// Describes the setup that must be equal on all workers, as lines of text: version, model,
/// configuration and options.
pub(super) fn describe_setup(
    model: &Model,
    configuration: &str,
    devices: usize,
    choices: &Choices,
) -> Result<String, Error> {
    let options = &choices.options;
    let mut text = format!("sardonyx {}\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "model {}", model.hash_sampled_pages()?);
    let _ = writeln!(text, "configuration '{configuration}' of {devices} devices");
    let _ = writeln!(text, "precision {:?}", options.precision);
    let _ = writeln!(text, "optimization {:?}", options.optimization);
    for (name, size) in &options.dims {
        let _ = writeln!(text, "size {name} = {size}");
    }
    for rewrite in &options.without {
        let _ = writeln!(text, "without rewrite {rewrite}");
    }
    // Each worker computes loop conditions by itself. Kernels of another instruction set round sums
    // differently, so that one worker could leave a loop before the others.
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
    /// Connects this worker process with the others by `transport`.
    pub(super) fn new(transport: Arc<dyn Transport>) -> Team {
        Team(transport)
    }

    /// Returns the rank of this process among the worker processes.
    pub(super) fn number(&self) -> usize {
        self.0.number()
    }

    /// Compares the setup of all worker processes, and returns the random seed of worker 0 in each
    /// process.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Worker`] if the descriptions differ.
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

    /// Sends the order to start a run to the other workers, with the inputs that their devices
    /// read.
    pub(super) fn send_order(
        &self,
        plan: &Plan,
        names: &[Arc<str>],
        order: &Order,
    ) -> Result<(), Error> {
        let (devices, workers) = (plan.devices(), self.0.workers());
        let readers: Vec<BTreeSet<usize>> = plan
            .readers_of_inputs()
            .iter()
            .map(|readers| {
                readers.iter().map(|one| worker_of(*one as usize, devices, workers)).collect()
            })
            .collect();
        // Inputs that only worker 0 reads are not encoded.
        let encoded = order.encode_inputs(names, |input| {
            readers.get(input).is_some_and(|readers| readers.iter().any(|worker| *worker > 0))
        })?;
        for worker in 1..workers.min(devices) {
            let mut message = order.encode_head();
            for (input, bytes) in
                encoded.iter().filter(|(input, _)| readers[*input].contains(&worker))
            {
                put_number(&mut message, *input as u64);
                put_number(&mut message, bytes.len() as u64);
                message.extend_from_slice(bytes);
            }
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// Waits, without a deadline, until a message of worker 0 arrives, and decodes it; `None` if
    /// worker 0 has dropped its session.
    pub(super) fn receive(
        &self,
        names: &[Arc<str>],
        inputs: &[Port],
        outputs: &[Port],
    ) -> Result<Option<LeaderMessage>, Error> {
        let message = loop {
            match self.0.receive(0, ORDER) {
                Ok(message) => break message,
                // The transport's deadline limits single messages, not the time between runs.
                Err(error) if error.kind() == TransportErrorKind::Deadline => {}
                Err(error) if error.kind() == TransportErrorKind::Ended => return Ok(None),
                Err(error) => return Err(worker_error(error)),
            }
        };
        let decoded = LeaderMessage::decode(&message, names, inputs, outputs);
        decoded.map(Some).inspect_err(|error| self.0.fail(&error.to_string()))
    }

    /// Informs the other workers that a run is cancelled. Their devices may be computing, and would
    /// not notice an error of the transport.
    pub(super) fn send_cancellation(&self, run: RunNumber, devices: usize) {
        for worker in 1..self.0.workers().min(devices) {
            let mut message = Vec::new();
            put_number(&mut message, CANCELLED);
            put_number(&mut message, run.into());
            // A worker that cannot be reached has ended, or will fail at its next message.
            let _ = self.0.send(worker, ORDER, &message);
        }
    }

    /// Sends the outputs of a run to the other workers that have devices.
    pub(super) fn send_results(&self, outputs: &Outputs, devices: usize) -> Result<(), Error> {
        let mut message = Vec::new();
        put_number(&mut message, RESULTS);
        for (_, value) in outputs.iter() {
            let bytes = encode_value(value)?;
            put_number(&mut message, bytes.len() as u64);
            message.extend_from_slice(&bytes);
        }
        for worker in 1..self.0.workers().min(devices) {
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// Informs the other workers that a run succeeded on all devices, so that each worker returns
    /// the output shards that its devices keep.
    pub(super) fn send_success(&self, run: RunNumber, devices: usize) -> Result<(), Error> {
        for worker in 1..self.0.workers().min(devices) {
            let mut message = Vec::new();
            put_number(&mut message, KEPT);
            put_number(&mut message, run.into());
            self.0.send(worker, ORDER, &message).map_err(worker_error)?;
        }
        Ok(())
    }

    /// Returns the transport between the worker processes.
    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.0
    }
}

/// Message of worker 0 to another worker.
pub(super) enum LeaderMessage {
    /// Order to start a run.
    Run(Order),
    /// Number of a run that was cancelled.
    Cancelled(RunNumber),
    /// Outputs of a run, in the order of the model's outputs.
    Results(Outputs),
    /// Number of a run that succeeded and whose outputs stay on the devices.
    Kept(RunNumber),
}

/// Discriminant of [`LeaderMessage::Run`]: the first number of the message.
const RUN: u64 = 0;
/// Discriminant of [`LeaderMessage::Cancelled`].
const CANCELLED: u64 = 1;
/// Discriminant of [`LeaderMessage::Results`].
const RESULTS: u64 = 2;
/// Discriminant of [`LeaderMessage::Kept`].
const KEPT: u64 = 3;

/// Order of worker 0 to start a run.
pub(super) struct Order {
    pub(super) run: RunNumber,
    /// Types for which the sharding plan is made, one for each graph input; `None` for the declared
    /// type.
    pub(super) types: Vec<Option<Type>>,
    /// Inputs of the run by name; in a received order, only inputs that devices of this worker
    /// read.
    pub(super) inputs: Inputs,
    pub(super) limits: Limits,
    /// Wall-clock time at which the run began; `None` if steps are not recorded.
    pub(super) watched: Option<SystemTime>,
}

/// Number that stands for an absent time or iteration limit in a message.
const NO_LIMIT: u64 = u64::MAX;

impl Order {
    /// Encodes the head of an order message, which is equal for all workers: run number, limits and
    /// input types. The inputs follow, each as index, length in bytes and protobuf message.
    fn encode_head(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_number(&mut message, RUN);
        put_number(&mut message, self.run.into());
        // Clocks of workers differ, so the deadline is sent as the milliseconds that are left.
        let millis = self.limits.deadline.map_or(NO_LIMIT, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            u64::try_from(left.as_millis()).unwrap_or(NO_LIMIT)
        });
        put_number(&mut message, millis);
        put_number(&mut message, self.limits.iteration_limit.unwrap_or(NO_LIMIT));
        put_number(&mut message, u64::from(self.limits.seed.is_some()));
        put_number(&mut message, self.limits.seed.unwrap_or(0));
        let since_epoch = self.watched.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        put_number(&mut message, since_epoch.map_or(0, |time| time.as_nanos() as u64));
        for ty in &self.types {
            let known = ty.as_ref().and_then(|ty| Some((ty.elem()?, ty.shape()?)));
            let Some((elem, shape)) = known else {
                put_number(&mut message, 0);
                continue;
            };
            put_number(&mut message, u64::from(elem.number().unsigned_abs()));
            put_number(&mut message, shape.len() as u64);
            for dim in shape {
                put_number(&mut message, dim.size().unwrap_or_default() as u64);
            }
        }
        message
    }

    /// Encodes the inputs of the run that `is_sent` selects by index. Returns the index and the
    /// protobuf message of each.
    fn encode_inputs(
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

    /// Decodes an order from the rest of a message, after the discriminant. `names` are the names
    /// of the graph inputs, `ports` their declarations.
    fn decode(mut rest: Rest<'_>, names: &[Arc<str>], ports: &[Port]) -> Result<Order, Error> {
        let run = rest.read_run()?;
        let millis = Some(rest.read_number()?).filter(|millis| *millis != NO_LIMIT);
        let iteration_limit =
            Some(rest.read_number()?).filter(|iterations| *iterations != NO_LIMIT);
        let deadline =
            millis.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        let has_seed = rest.read_number()? != 0;
        let seed = Some(rest.read_number()?).filter(|_| has_seed);
        let limits = Limits { stop: None, deadline, iteration_limit, seed };
        let watched = Some(rest.read_number()?).filter(|nanos| *nanos > 0);
        let watched = watched.map(|nanos| UNIX_EPOCH + Duration::from_nanos(nanos));
        let mut types = Vec::with_capacity(names.len());
        for _ in names {
            let elem = i32::try_from(rest.read_number()?).ok().and_then(DataType::from_number);
            types.push(match elem {
                None => None,
                Some(elem) => {
                    let rank = rest.read_number()?;
                    let dims: Result<Vec<Dim>, Error> =
                        (0..rank).map(|_| Ok(Dim::from(rest.read_size()?))).collect();
                    Some(Type::tensor(elem, dims?))
                }
            });
        }
        let mut inputs = Vec::new();
        while !rest.0.is_empty() {
            let number = rest.read_size()?;
            let name = names.get(number).ok_or_else(make_damaged_error)?;
            let bytes = rest.read_bytes()?;
            let declared = ports.iter().find(|port| *port.name() == **name);
            let ty = types[number].as_ref().or_else(|| declared.and_then(Port::ty));
            inputs.push((name.clone(), decode_value(bytes, ty)?));
        }
        Ok(Order { run, types, inputs, limits, watched })
    }
}

impl LeaderMessage {
    /// Decodes a message of worker 0. `names` are the names of the graph inputs; `inputs` and
    /// `outputs` are the declarations of the model.
    fn decode(
        message: &[u8],
        names: &[Arc<str>],
        inputs: &[Port],
        outputs: &[Port],
    ) -> Result<LeaderMessage, Error> {
        let mut rest = Rest(message);
        match rest.read_number()? {
            RUN => Order::decode(rest, names, inputs).map(LeaderMessage::Run),
            CANCELLED => rest.read_run().map(LeaderMessage::Cancelled),
            KEPT => rest.read_run().map(LeaderMessage::Kept),
            RESULTS => {
                let mut values = Vec::with_capacity(outputs.len());
                for port in outputs {
                    values.push((Arc::from(port.name()), decode_output(rest.read_bytes()?, port)?));
                }
                Ok(LeaderMessage::Results(Outputs::new(values)))
            }
            _ => Err(make_damaged_error()),
        }
    }
}

/// Sends the model outputs that a device has computed to device 0.
pub(super) fn send_outputs(link: &Link, given: OutputValues) -> Result<(), Error> {
    for (index, value) in given.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let message = encode_value(&value)?;
        let tag = link.make_tag(index).map_err(|_| make_damaged_error())?;
        let sent = link.transport().send(0, tag, &message);
        sent.inspect_err(|error| link.record_failure(error)).map_err(worker_error)?;
    }
    Ok(())
}

/// Sends device 0 the empty message that reports a successful run.
pub(super) fn send_done(link: &Link, prepared: &CompiledPlan) -> Result<(), Error> {
    let tag =
        link.make_tag(find_free_number(&prepared.plan) + 1).map_err(|_| make_damaged_error())?;
    let sent = link.transport().send(0, tag, &[]);
    sent.inspect_err(|error| link.record_failure(error)).map_err(worker_error)
}

/// Waits, at device 0, until device `by` of another process reports a successful run.
pub(super) fn receive_done(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    plan: &Plan,
) -> Result<(), Error> {
    let transport = first.ok_or_else(make_damaged_error)?.transport();
    let number = u32::try_from(find_free_number(plan) + 1).map_err(|_| make_damaged_error())?;
    transport.receive(by as usize, tag_in_run(run, number)).map(drop).map_err(worker_error)
}

/// Receives output `index` of the model from device `by` of another process, at device 0.
pub(super) fn receive_output(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    index: usize,
    port: &Port,
) -> Result<Value, Error> {
    let transport = first.ok_or_else(make_damaged_error)?.transport();
    let tag = tag_in_run(run, u32::try_from(index).map_err(|_| make_damaged_error())?);
    let message = transport.receive(by as usize, tag).map_err(worker_error)?;
    decode_output(&message, port)
}

/// Encodes a model output, preceded by the number of its element type (0 if it is not a tensor), as
/// the model may not declare the type.
fn encode_value(value: &Value) -> Result<Vec<u8>, Error> {
    let elem = value.as_tensor().map_or(0, |tensor| tensor.data_type().number().unsigned_abs());
    let mut message = Vec::new();
    put_number(&mut message, u64::from(elem));
    message.extend(write_value(value, "")?);
    Ok(message)
}

/// Decodes a model output from a message of [`encode_value`]. Uses the type that `port` declares if
/// the output is not a tensor.
fn decode_output(message: &[u8], port: &Port) -> Result<Value, Error> {
    let mut rest = Rest(message);
    let elem = i32::try_from(rest.read_number()?).ok().and_then(DataType::from_number);
    let ty = elem.map(Type::unranked);
    decode_value(rest.0, ty.as_ref().or(port.ty()))
}

/// Sends the recorded steps of a device to device 0.
pub(super) fn send_watched(
    link: &Link,
    prepared: &CompiledPlan,
    watched: &DeviceRun,
) -> Result<(), Error> {
    let mut message = Vec::new();
    watched.to_numbers().into_iter().for_each(|number| put_number(&mut message, number));
    let tag = link.make_tag(find_free_number(&prepared.plan)).map_err(|_| make_damaged_error())?;
    let sent = link.transport().send(0, tag, &message);
    sent.inspect_err(|error| link.record_failure(error)).map_err(worker_error)
}

/// Receives the recorded steps of device `by` of another process, at device 0.
pub(super) fn receive_watched(
    first: Option<&Link>,
    run: RunNumber,
    by: Device,
    plan: &Plan,
) -> Result<DeviceRun, Error> {
    let transport = first.ok_or_else(make_damaged_error)?.transport();
    let tag =
        tag_in_run(run, u32::try_from(find_free_number(plan)).map_err(|_| make_damaged_error())?);
    let message = transport.receive(by as usize, tag).map_err(worker_error)?;
    let mut rest = Rest(&message);
    let mut numbers = Vec::with_capacity(message.len() / 8);
    while !rest.0.is_empty() {
        numbers.push(rest.read_number()?);
    }
    DeviceRun::from_numbers(&numbers).ok_or_else(make_damaged_error)
}

/// Returns the lowest message number of a run that neither outputs nor exchanges use.
fn find_free_number(plan: &Plan) -> usize {
    plan.givers_of_outputs().len() + plan.steps().len()
}

/// Decodes the protobuf message of a value of type `ty`; fails without a type.
fn decode_value(bytes: &[u8], ty: Option<&Type>) -> Result<Value, Error> {
    read_value(bytes.to_vec(), ty.ok_or_else(make_damaged_error)?)
}

/// Makes the error for a message of another worker that cannot be decoded.
#[cold]
fn make_damaged_error() -> Error {
    Error::new(ErrorKind::Worker, "a message of another worker is damaged")
}

/// Appends a number to a message, as 8 little-endian bytes.
fn put_number(message: &mut Vec<u8>, number: u64) {
    message.extend(number.to_le_bytes());
}

/// Reader of a message: the bytes that have not been read.
struct Rest<'m>(&'m [u8]);

impl<'m> Rest<'m> {
    /// Reads the next 8 bytes as a number; fails at the end of the message.
    fn read_number(&mut self) -> Result<u64, Error> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(make_damaged_error)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*number))
    }

    /// Reads the number of a run.
    fn read_run(&mut self) -> Result<RunNumber, Error> {
        RunNumber::try_from(self.read_number()?).map_err(|_| make_damaged_error())
    }

    /// Reads a size or an index.
    fn read_size(&mut self) -> Result<usize, Error> {
        usize::try_from(self.read_number()?).map_err(|_| make_damaged_error())
    }

    /// Reads a length, and as many bytes.
    fn read_bytes(&mut self) -> Result<&'m [u8], Error> {
        let len = self.read_size()?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(make_damaged_error)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::{Model, Session};

    /// Checks that the instruction set is compared only if inner graphs are divided: there, kernels
    /// that round differently could take different branches.
    #[test]
    fn workers_with_divided_loops_agree_on_the_instruction_set() {
        let annotation = "@<device_configurations: [{configuration_id: \"c\"}]>";
        for (inner, outer, agrees) in [(annotation, "", true), ("", annotation, false)] {
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
            let setup = super::describe_setup(&model, "c", 2, builder.choices()).unwrap();
            assert_eq!(setup.contains("instruction set"), agrees, "{setup}");
        }
    }
}
