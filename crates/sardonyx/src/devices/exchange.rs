//! The operator by which devices give each other parts of values.

use std::fmt;
use std::num::TryFromIntError;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_devices::{
    ErrorKind as Kind, Group, Reduction, RunNumber, Tag, Transport, TransportError, collectives,
    combine, tag_in_run,
};
use sardonyx_model::{Dim, Type};
use sardonyx_ops::{Combine, Sizes};
use sardonyx_passes::{
    Device, EXCHANGE_STEP, Move, Numbers, Plan, RuleAnswer, Run, Step, Transfer, transfers,
};
use sardonyx_runtime::{OperatorCall, OperatorError};
use sardonyx_tensor::{DataType, TensorView};

use super::profile::Exchanged;
use crate::custom::CustomOperator;
use crate::inference::NodeTypes;

/// The transport of a device, and how far it is in the run that it takes part in.
#[derive(Debug, Clone)]
pub(super) struct Link {
    transport: Arc<dyn Transport>,
    state: Arc<Mutex<LinkState>>,
}

#[derive(Debug, Default)]
struct LinkState {
    run: RunNumber,
    /// Exchanges before this one have begun.
    next_exchange: usize,
    /// Why the last call of the transport failed that did, in this run.
    failure: Option<TransportError>,
    /// What the last exchange did, until somebody asks.
    exchanged: Option<Exchanged>,
}

impl Link {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Link {
        Link { transport, state: Arc::default() }
    }

    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(super) fn get(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.transport)
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to take part in a run.
    pub(super) fn begin(&self, run: RunNumber) {
        *self.state() = LinkState { run, ..LinkState::default() };
    }

    /// The tag of messages with this number in the run.
    pub(super) fn tag(&self, number: usize) -> Result<Tag, TryFromIntError> {
        Ok(tag_in_run(self.state().run, u32::try_from(number)?))
    }

    /// Ends the run on all devices, because this one failed: with the reason that it was told, if
    /// there is one.
    pub(super) fn end_run(&self, why: &str) {
        let (run, told) = {
            let state = self.state();
            (state.run, state.failure.clone())
        };
        let told = told.filter(|told| told.kind() == Kind::RunEnded);
        let own = || run_ended(self.transport(), why);
        self.transport.end_run(run, &told.unwrap_or_else(own));
    }

    /// What the last exchange did, if nobody has asked yet.
    pub(super) fn take_exchanged(&self) -> Option<Exchanged> {
        self.state().exchanged.take()
    }

    /// Why the last call of the transport failed that did, in this run.
    pub(super) fn failure(&self) -> Option<TransportError> {
        self.state().failure.clone()
    }

    /// Notes the error of a call of the transport.
    pub(super) fn note(&self, error: &TransportError) {
        self.state().failure = Some(error.clone());
    }

    /// The error of a node for one of the transport.
    pub(super) fn failed(&self, error: &TransportError) -> OperatorError {
        self.note(error);
        OperatorError::from(error.to_string())
    }
}

/// That a run ended because of this worker.
#[cold]
pub(super) fn run_ended(transport: &dyn Transport, why: &str) -> TransportError {
    let worker = transport.worker();
    TransportError::at(Kind::RunEnded, worker, format!("worker {worker} failed: {why}"))
}

/// Exchanges of one device.
#[derive(Clone)]
pub(super) struct Exchange {
    plan: Arc<Plan>,
    device: Device,
    link: Link,
    routes: Arc<Routes>,
}

/// What a device does in the exchanges of a plan, for the sizes of a run.
pub(super) struct Routes {
    plan: Arc<Plan>,
    device: Device,
    known: Mutex<(Numbers, Arc<Vec<Option<Way>>>)>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("device", &self.device).finish_non_exhaustive()
    }
}

/// What a device does in an exchange.
struct Way {
    route: Route,
    /// The sizes of what it gets, if it gets anything and they are known.
    dims: Option<Sizes>,
}

impl Routes {
    pub(super) fn new(plan: Arc<Plan>, device: Device, numbers: &Numbers) -> Arc<Routes> {
        let ways = Arc::new(ways(&plan, device, numbers));
        Arc::new(Routes { plan, device, known: Mutex::new((numbers.clone(), ways)) })
    }

    /// Says which sizes the next run has.
    pub(super) fn set(&self, numbers: &Numbers) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != *numbers {
            *known = (numbers.clone(), Arc::new(ways(&self.plan, self.device, numbers)));
        }
    }

    /// By step of the plan.
    fn get(&self) -> Arc<Vec<Option<Way>>> {
        Arc::clone(&self.known.lock().unwrap_or_else(PoisonError::into_inner).1)
    }
}

fn ways(plan: &Plan, device: Device, numbers: &Numbers) -> Vec<Option<Way>> {
    let ways = plan.steps.iter().map(|step| match step {
        Step::Move(moved) if !plan.is_local(moved) => {
            let dims = moved.dims.as_ref().and_then(|dims| numbers.of(dims));
            let own = dims.as_ref().and_then(|dims| plan.form(moved.to).dims(device, dims));
            Some(Way { route: route(plan, moved, dims.as_deref(), device), dims: own })
        }
        _ => None,
    });
    ways.collect()
}

/// What a device does in an exchange.
enum Route {
    /// All devices of a group have partial results of the same part, and all get it.
    Reduce { workers: Vec<usize>, reduction: Reduction },
    /// Parts are sent.
    Parts { sends: Vec<Block>, receives: Vec<Block>, reduction: Option<Reduction> },
    /// The whole value, whose sizes are not known before the run, goes from one device to others.
    Whole { from: usize, to: Vec<usize> },
}

/// A part of a tensor that goes from one device to another.
pub(super) struct Block {
    /// The other device, or the device itself.
    peer: usize,
    /// The number of the partial result.
    partial: usize,
    /// Runs of elements, axis by axis, from the outermost; inner axes of which everything goes are
    /// part of the axis around them.
    runs: Vec<Vec<Run>>,
    /// Elements from one index of each axis to the next, in what is sent and in what is made.
    strides: Vec<(usize, usize)>,
    elements: usize,
}

impl Block {
    pub(super) fn new(peer: Device, transfer: &Transfer, have: &[usize], want: &[usize]) -> Block {
        let mut runs: Vec<Vec<Run>> = Vec::new();
        let mut strides: Vec<(usize, usize)> = Vec::new();
        let (mut stride, mut other) = (1, 1);
        for (axis, own) in transfer.runs.iter().enumerate().rev() {
            runs.insert(0, own.clone());
            strides.insert(0, (stride, other));
            stride *= have[axis];
            other *= want[axis];
        }
        // An axis of which both have everything, in one run, goes with the one around it.
        while runs.len() > 1 {
            let last = runs.len() - 1;
            let (inner, size) = (&runs[last], runs[last].first().map_or(0, |run| run.len));
            let is_all = inner.len() == 1
                && strides[last - 1] == (size * strides[last].0, size * strides[last].1)
                && strides[last] == (1, 1);
            if !is_all {
                break;
            }
            runs.pop();
            strides.pop();
            for run in &mut runs[last - 1] {
                *run = Run { from: run.from * size, to: run.to * size, len: run.len * size };
            }
            strides[last - 1] = (1, 1);
        }
        let count = |axis: &Vec<Run>| axis.iter().map(|run| run.len).sum::<usize>();
        let elements = runs.iter().map(count).product();
        Block { peer: peer as usize, partial: transfer.partial, runs, strides, elements }
    }

    /// The elements that are sent, if they follow each other where they lie.
    fn dense(&self) -> Option<Range<usize>> {
        match self.runs.as_slice() {
            [axis] => match axis.as_slice() {
                [run] => Some(run.from..run.from + run.len),
                _ => None,
            },
            _ => None,
        }
    }

    /// Calls with each run of elements that follow each other on both sides: where it begins in
    /// what is sent, and in what is made, and how many there are.
    fn for_each(&self, each: &mut dyn FnMut(usize, usize, usize)) {
        self.walk(0, (0, 0), each);
    }

    /// Copies the elements, each of so many bytes, from one tensor to the other.
    pub(super) fn copy(&self, size: usize, from: &[u8], to: &mut [u8]) {
        self.for_each(&mut |start, target, len| {
            let part = &from[start * size..(start + len) * size];
            to[target * size..(target + len) * size].copy_from_slice(part);
        });
    }

    fn walk(&self, axis: usize, base: (usize, usize), each: &mut dyn FnMut(usize, usize, usize)) {
        let Some(runs) = self.runs.get(axis) else { return each(base.0, base.1, 1) };
        let (from, to) = self.strides[axis];
        for run in runs {
            let start = (base.0 + run.from * from, base.1 + run.to * to);
            if axis + 1 == self.runs.len() && (from, to) == (1, 1) {
                each(start.0, start.1, run.len);
            } else {
                for index in 0..run.len {
                    self.walk(axis + 1, (start.0 + index * from, start.1 + index * to), each);
                }
            }
        }
    }
}

impl Exchange {
    pub(super) fn new(routes: Arc<Routes>, link: Link) -> Exchange {
        Exchange { plan: Arc::clone(&routes.plan), device: routes.device, link, routes }
    }

    fn step(&self, step: Option<i64>) -> Result<(usize, &Move), OperatorError> {
        let step = step.and_then(|step| usize::try_from(step).ok());
        let number = step.ok_or("the step of the plan is missing")?;
        match self.plan.steps.get(number) {
            Some(Step::Move(moved)) => Ok((number, moved)),
            _ => Err("the plan has no exchange of this number".into()),
        }
    }

    /// Takes part in what is left of a run that has ended early, as far as others wait for it
    /// nevertheless.
    pub(super) fn take_leave(&self) {
        let transport = self.link.transport();
        let begun = self.link.state().next_exchange;
        for (number, way) in self.routes.get().iter().enumerate().skip(begun) {
            let (
                Some(Way { route: Route::Reduce { workers, reduction }, dims }),
                Some(Step::Move(moved)),
            ) = (way, self.plan.steps.get(number))
            else {
                continue;
            };
            let elements: usize = dims.as_ref().map_or(0, |dims| dims.iter().product());
            let bytes = elements * moved.elem.bits().unwrap_or(0) / 8;
            let Ok(tag) = self.tag(number) else { return };
            let group = Group { workers, tag };
            let is_left_to_it = !self.plan.is_inner(moved)
                && transport.waits_for_all(group, (*reduction, moved.elem), bytes);
            if !is_left_to_it {
                continue;
            }
            let Ok(mut memory) = transport.scratch().take(bytes) else { return };
            memory.fill(0);
            let reduced = transport.all_reduce(group, *reduction, moved.elem, &mut memory);
            transport.scratch().give_back(memory);
            // Then workers are lost, of which all learn.
            if reduced.is_err() {
                return;
            }
        }
    }

    /// The tag of the messages of an exchange: outputs have those before.
    fn tag(&self, number: usize) -> Result<Tag, TryFromIntError> {
        self.link.tag(self.plan.givers_of_outputs().len() + number)
    }

    /// Says which sizes the next run has.
    pub(super) fn set_sizes(&self, numbers: &Numbers) {
        self.routes.set(numbers);
    }
}

fn reduction_of(combine: Combine) -> Reduction {
    match combine {
        Combine::Sum => Reduction::Sum,
        Combine::Product => Reduction::Product,
        Combine::Min => Reduction::Min,
        Combine::Max => Reduction::Max,
    }
}

/// What a device does in a move of a value of these sizes; `None` if they are not known.
fn route(plan: &Plan, moved: &Move, dims: Option<&[usize]>, device: Device) -> Route {
    let (from, to) = (plan.form(moved.from), plan.form(moved.to));
    let Some(dims) = dims else {
        let giver = from.devices().next().unwrap_or(0);
        let takers = to.devices().filter(|taker| !from.is_on(*taker));
        return Route::Whole {
            from: giver as usize,
            to: takers.map(|taker| taker as usize).collect(),
        };
    };
    let reduction = from.partial().map(|(combine, _)| reduction_of(combine));
    if let (Some(reduction), Some(group)) = (reduction, plan.reducing(moved, device)) {
        let workers = group.into_iter().map(|one| one as usize).collect();
        return Route::Reduce { workers, reduction };
    }
    let sizes = |form: &sardonyx_passes::Form, device| form.dims(device, dims).unwrap_or_default();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for transfer in transfers(from, to, dims) {
        let (have, want) = (sizes(from, transfer.from), sizes(to, transfer.to));
        if transfer.to == device {
            receives.push(Block::new(transfer.from, &transfer, &have, &want));
        } else if transfer.from == device {
            sends.push(Block::new(transfer.to, &transfer, &have, &want));
        }
    }
    Route::Parts { sends, receives, reduction }
}

/// Where what a device gets is written: an output, or memory that is forgotten if nothing reads it.
pub(super) struct Into<'o, 'c, 'a> {
    call: &'o mut OperatorCall<'c, 'a>,
    output: usize,
    scratch: Vec<u8>,
}

impl<'o, 'c, 'a> Into<'o, 'c, 'a> {
    /// For an output of a node.
    pub(super) fn new(call: &'o mut OperatorCall<'c, 'a>, output: usize) -> Self {
        Into { call, output, scratch: Vec::new() }
    }

    pub(super) fn bytes(
        &mut self,
        elem: DataType,
        dims: &[usize],
    ) -> Result<&mut [u8], OperatorError> {
        if self.call.has_output(self.output) {
            return Ok(self.call.output(self.output, elem, dims)?.into_bytes());
        }
        let elements: usize = dims.iter().product();
        self.scratch.resize(elements * elem.bits().unwrap_or(0) / 8, 0);
        Ok(&mut self.scratch)
    }
}

impl CustomOperator for Exchange {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        let (number, moved) = self.step(call.attributes().int(EXCHANGE_STEP))?;
        let ways = self.routes.get();
        let way = ways.get(number).and_then(Option::as_ref);
        let way = way.ok_or("the plan has no exchange of this number")?;
        let message = Message {
            exchange: self,
            moved,
            number,
            tag: self.tag(number)?,
            transport: self.link.transport(),
        };
        // It is not empty: what is empty is known, and nobody has to make it.
        call.output(1, DataType::Uint8, &[1])?.bytes_mut().fill(0);
        let counters = message.transport.endpoint().counters();
        let (sent, waited) = (counters.sent(), counters.waited());
        message.run(call, way)?;
        let waited = counters.waited().saturating_sub(waited);
        let sent = counters.sent() - sent;
        self.link.state().exchanged = Some(Exchanged { step: number, waited, sent });
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let Ok((_, moved)) = self.step(node.attributes().int(EXCHANGE_STEP)) else {
            return RuleAnswer::NoRule;
        };
        let ty = match &moved.dims {
            Some(dims) => {
                let numbers: Sizes = dims.iter().map(|dim| dim.size().unwrap_or(1)).collect();
                let own = self.plan.form(moved.to).dims(self.device, &numbers).unwrap_or_default();
                // What is open is the same in what the device gives.
                let given = node.input(0).and_then(Type::shape);
                let open = |axis: usize| given.and_then(|given| given.get(axis).cloned());
                let dims =
                    dims.iter().zip(own).enumerate().map(|(axis, (dim, own))| match dim.size() {
                        Some(_) => Dim::from(own),
                        None => open(axis).unwrap_or(Dim::Unknown),
                    });
                Type::tensor(moved.elem, dims.collect::<Vec<_>>())
            }
            None => Type::unranked(moved.elem),
        };
        node.set_output(0, ty);
        node.set_output(1, Type::tensor(DataType::Uint8, [Dim::from(1usize)]));
        RuleAnswer::Said
    }

    fn is_deterministic(&self) -> bool {
        // It must run as often as it stands there, whatever its input is.
        false
    }
}

/// What a device sends and receives in an exchange.
struct Message<'e> {
    exchange: &'e Exchange,
    moved: &'e Move,
    /// That of the step of the plan.
    number: usize,
    tag: Tag,
    transport: &'e dyn Transport,
}

impl Message<'_> {
    /// Does what the device does in the exchange.
    fn run(&self, call: &mut OperatorCall<'_, '_>, way: &Way) -> Result<(), OperatorError> {
        let given = if call.has_input(0) { Some(call.tensor(0)?.clone()) } else { None };
        let mut into = Into::new(call, 0);
        match &way.route {
            Route::Reduce { workers, reduction } => {
                let given = given.ok_or("the device has no partial result for this exchange")?;
                let dims: Sizes = given.dims().iter().copied().collect();
                let bytes = into.bytes(self.moved.elem, &dims)?;
                given.copy_to(bytes)?;
                let group = Group { workers, tag: self.tag };
                let elem = self.moved.elem;
                let reduced = if self.exchange.plan.is_inner(self.moved) {
                    // How often it is made is not known, so nobody could take leave of the others
                    // in a library's reduction.
                    collectives::all_reduce(self.transport, group, *reduction, elem, bytes)
                } else {
                    self.exchange.link.state().next_exchange = self.number + 1;
                    self.transport.all_reduce(group, *reduction, elem, bytes)
                };
                reduced.map_err(|error| self.exchange.link.failed(&error))
            }
            Route::Parts { sends, receives, reduction } => {
                let into = (&mut into, way.dims.as_deref());
                self.parts(given.as_ref(), into, (sends, receives), *reduction)
            }
            Route::Whole { from, to } => self.whole(given.as_ref(), &mut into, (*from, to)),
        }
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), OperatorError> {
        let sent = self.transport.send(to, self.tag, bytes);
        sent.map_err(|error| self.exchange.link.failed(&error))
    }

    fn receive(&self, from: usize, take: &mut dyn FnMut(&[u8])) -> Result<(), OperatorError> {
        let received = self.transport.receive_with(from, self.tag, take);
        received.map_err(|error| self.exchange.link.failed(&error))
    }

    fn parts(
        &self,
        given: Option<&TensorView<'_>>,
        (into, dims): (&mut Into<'_, '_, '_>, Option<&[usize]>),
        (sends, receives): (&[Block], &[Block]),
        reduction: Option<Reduction>,
    ) -> Result<(), OperatorError> {
        let elem = self.moved.elem;
        let size = elem.bits().unwrap_or(0) / 8;
        let given = match given {
            Some(view) => view.contiguous_bytes().ok_or("the elements are not dense")?,
            None => &[],
        };
        for block in sends {
            if let Some(dense) = block.dense() {
                let bytes = given.get(dense.start * size..dense.end * size);
                self.send(block.peer, bytes.ok_or("the value is too short")?)?;
                continue;
            }
            let memory = self.transport.scratch().take(block.elements * size);
            let mut message = memory.map_err(|error| self.exchange.link.failed(&error))?;
            let mut at = 0;
            block.for_each(&mut |from, _, len| {
                let part = &given[from * size..(from + len) * size];
                message[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            });
            let sent = self.send(block.peer, &message);
            self.transport.scratch().give_back(message);
            sent?;
        }
        if !self.exchange.plan.form(self.moved.to).is_on(self.exchange.device) {
            return Ok(());
        }
        let into = into.bytes(elem, dims.ok_or("the sizes of the value are not known")?)?;
        for block in receives {
            let mut wrong = None;
            let mut put = |bytes: &[u8], is_own: bool| {
                let mut at = 0;
                block.for_each(&mut |from, to, len| {
                    let source = if is_own { from } else { at };
                    at += len;
                    let part = bytes.get(source * size..(source + len) * size);
                    let target = into.get_mut(to * size..(to + len) * size);
                    match (part, target, reduction.filter(|_| block.partial > 0)) {
                        (Some(part), Some(target), None) => target.copy_from_slice(part),
                        (Some(part), Some(target), Some(reduction)) => {
                            if let Err(error) = combine(reduction, elem, target, part) {
                                wrong = Some(OperatorError::from(error.to_string()));
                            }
                        }
                        _ => wrong = Some("a message is too short".into()),
                    }
                });
            };
            if block.peer == self.exchange.device as usize {
                put(given, true);
            } else {
                self.receive(block.peer, &mut |bytes| put(bytes, false))?;
            }
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Takes a value with its sizes out of a message.
    fn take_whole(&self, message: &[u8], into: &mut Into<'_, '_, '_>) -> Result<(), OperatorError> {
        let (dims, bytes) = parse(message).ok_or("a message is too short")?;
        let into = into.bytes(self.moved.elem, &dims)?;
        if into.len() != bytes.len() {
            return Err("a message does not have the length of its tensor".into());
        }
        into.copy_from_slice(bytes);
        Ok(())
    }

    /// Sends or receives a value with its sizes, or keeps it.
    fn whole(
        &self,
        given: Option<&TensorView<'_>>,
        into: &mut Into<'_, '_, '_>,
        (from, to): (usize, &[usize]),
    ) -> Result<(), OperatorError> {
        let own = self.exchange.device as usize;
        if own == from && !to.is_empty() {
            let view = given.ok_or("the value is not there")?;
            let bytes = view.contiguous_bytes().ok_or("the elements are not dense")?;
            let sizes = std::iter::once(view.rank()).chain(view.dims().iter().copied());
            let scratch = self.transport.scratch();
            let memory = scratch.take(bytes.len() + 8 * (view.rank() + 1));
            let mut message = memory.map_err(|error| self.exchange.link.failed(&error))?;
            let (head, rest) = message.split_at_mut(8 * (view.rank() + 1));
            for (place, size) in head.chunks_exact_mut(8).zip(sizes) {
                place.copy_from_slice(&(size as u64).to_le_bytes());
            }
            rest.copy_from_slice(bytes);
            let sent = to.iter().try_for_each(|peer| self.send(*peer, &message));
            scratch.give_back(message);
            sent?;
        }
        if to.contains(&own) {
            let mut taken = Ok(());
            self.receive(from, &mut |message| taken = self.take_whole(message, into))?;
            taken?;
        } else if self.exchange.plan.form(self.moved.to).is_on(self.exchange.device) {
            let view = given.ok_or("the value is not there")?;
            view.copy_to(into.bytes(self.moved.elem, view.dims())?)?;
        }
        Ok(())
    }
}

/// Sizes and bytes of a message.
fn parse(message: &[u8]) -> Option<(Sizes, &[u8])> {
    let (rank, mut rest) = message.split_first_chunk::<8>()?;
    let rank = usize::try_from(u64::from_le_bytes(*rank)).ok()?;
    let mut dims = Sizes::new();
    for _ in 0..rank {
        let (size, more) = rest.split_first_chunk::<8>()?;
        dims.push(usize::try_from(u64::from_le_bytes(*size)).ok()?);
        rest = more;
    }
    Some((dims, rest))
}
