//! The custom operator that moves tensors between devices: sends, receives and reduces shards.

use std::fmt;
use std::num::TryFromIntError;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardonyx_devices::{
    Group, Reduction, RunNumber, Tag, Transport, TransportError, TransportErrorKind, collectives,
    combine, tag_in_run,
};
use sardonyx_model::{Dim, Type};
use sardonyx_ops::{Combine, Sizes};
use sardonyx_passes::RuleAnswer;
use sardonyx_runtime::{OperatorCall, OperatorError};
use sardonyx_shard::{Device, EXCHANGE_STEP, Move, Numbers, Plan, Run, Step, Transfer, transfers};
use sardonyx_tensor::{DataType, TensorView};

use super::profile::Exchanged;
use crate::custom::CustomOperator;
use crate::inference::NodeTypes;

/// Transport of a device, with the progress of its current run.
#[derive(Debug, Clone)]
pub(super) struct Link {
    transport: Arc<dyn Transport>,
    state: Arc<Mutex<LinkState>>,
}

/// Progress of a device in its current run.
#[derive(Debug, Default)]
struct LinkState {
    run: RunNumber,
    /// Index among the plan's steps of the first exchange that has not begun.
    next_exchange: usize,
    /// Last error of the transport in this run; `None` without an error.
    failure: Option<TransportError>,
    /// Waiting time and traffic of the last exchange, until [`Link::take_exchanged`] takes them.
    exchanged: Option<Exchanged>,
}

impl Link {
    /// Links a device with its transport; no run has begun.
    pub(super) fn new(transport: Arc<dyn Transport>) -> Link {
        Link { transport, state: Arc::default() }
    }

    /// Returns the transport of the device.
    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Returns a shared reference to the transport of the device.
    pub(super) fn clone_transport(&self) -> Arc<dyn Transport> {
        Arc::clone(&self.transport)
    }

    /// Locks the progress of the device in its current run.
    fn lock_state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the device's progress for a new run.
    pub(super) fn begin(&self, run: RunNumber) {
        *self.lock_state() = LinkState { run, ..LinkState::default() };
    }

    /// Returns the tag of message `number` of the current run.
    pub(super) fn make_tag(&self, number: usize) -> Result<Tag, TryFromIntError> {
        Ok(tag_in_run(self.lock_state().run, u32::try_from(number)?))
    }

    /// Cancels the current run on all devices, because this device failed for the reason `why`. If
    /// another device cancelled the run first, passes on the reason of that device instead.
    pub(super) fn end_run(&self, why: &str) {
        let (run, failure) = {
            let state = self.lock_state();
            (state.run, state.failure.clone())
        };
        let reason = match failure {
            Some(received) if received.kind() == TransportErrorKind::RunEnded => received,
            _ => run_ended(self.transport(), why),
        };
        self.transport.end_run(run, &reason);
    }

    /// Takes the waiting time and traffic of the last exchange; `None` if already taken.
    pub(super) fn take_exchanged(&self) -> Option<Exchanged> {
        self.lock_state().exchanged.take()
    }

    /// Returns the last error of the transport in the current run; `None` without an error.
    pub(super) fn failure(&self) -> Option<TransportError> {
        self.lock_state().failure.clone()
    }

    /// Records a transport error as the cause of the run's failure.
    pub(super) fn record_failure(&self, error: &TransportError) {
        self.lock_state().failure = Some(error.clone());
    }

    /// Records a transport error and converts it into the error of a node.
    pub(super) fn to_operator_error(&self, error: &TransportError) -> OperatorError {
        self.record_failure(error);
        OperatorError::from(error.to_string())
    }
}

/// Makes the error that other worker processes receive when a run fails in this process.
#[cold]
pub(super) fn run_ended(transport: &dyn Transport, why: &str) -> TransportError {
    let worker = transport.worker();
    TransportError::at(
        TransportErrorKind::RunEnded,
        worker,
        format!("worker {worker} failed: {why}"),
    )
}

/// Operator that runs all exchanges of one device; an attribute of the node selects the exchange.
#[derive(Clone)]
pub(super) struct Exchange {
    plan: Arc<Plan>,
    device: Device,
    link: Link,
    routes: Arc<Routes>,
}

/// Messages of one device in each exchange of a sharding plan, cached for the sizes of the last
/// run.
pub(super) struct Routes {
    plan: Arc<Plan>,
    device: Device,
    cached: Mutex<CachedRoutes>,
}

/// Messages of a device in each exchange of a plan, with the open sizes for which they were
/// computed.
struct CachedRoutes {
    numbers: Numbers,
    /// Route of the device in each step of the plan; `None` for steps that exchange nothing.
    routes: Arc<Vec<Option<SizedRoute>>>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Messages of a device in one exchange, with the sizes of the shard that it has afterwards.
struct SizedRoute {
    route: Route,
    /// Sizes of the shard that the device has after the exchange; `None` if the device has no
    /// shard, or the sizes are not known before the run.
    dims: Option<Sizes>,
}

impl Routes {
    /// Computes which blocks of tensors `device` sends and receives in each exchange of `plan`, if
    /// the symbolic dimensions have the sizes `numbers`.
    pub(super) fn new(plan: Arc<Plan>, device: Device, numbers: &Numbers) -> Arc<Routes> {
        let routes = Arc::new(find_routes(&plan, device, numbers));
        let cached = Mutex::new(CachedRoutes { numbers: numbers.clone(), routes });
        Arc::new(Routes { plan, device, cached })
    }

    /// Recomputes the routes if `numbers`, the sizes of the symbolic dimensions in the next run,
    /// differ from those of the last run.
    pub(super) fn set_sizes(&self, numbers: &Numbers) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.numbers != *numbers {
            let routes = Arc::new(find_routes(&self.plan, self.device, numbers));
            *cached = CachedRoutes { numbers: numbers.clone(), routes };
        }
    }

    /// Returns the cached route for each step of the plan; `None` for steps that exchange nothing.
    fn load_routes(&self) -> Arc<Vec<Option<SizedRoute>>> {
        Arc::clone(&self.cached.lock().unwrap_or_else(PoisonError::into_inner).routes)
    }
}

/// Finds the route of `device` in each step of the plan; `None` for steps that exchange nothing.
fn find_routes(plan: &Plan, device: Device, numbers: &Numbers) -> Vec<Option<SizedRoute>> {
    let routes = plan.steps().iter().map(|step| match step {
        Step::Move(moved) if !plan.is_local(moved) => {
            let dims = moved.dims.as_ref().and_then(|dims| numbers.of(dims));
            let own = dims.as_ref().and_then(|dims| plan.form(moved.to).dims(device, dims));
            let route = Route::new(plan, moved, dims.as_deref(), device);
            Some(SizedRoute { route, dims: own })
        }
        _ => None,
    });
    routes.collect()
}

/// Messages that a device sends and receives in one exchange.
enum Route {
    /// All-reduce: the devices of a group hold partial results of one shard, and all receive the
    /// combined shard.
    Reduce { workers: Vec<usize>, reduction: Reduction },
    /// Point-to-point messages with blocks of shards.
    Parts(PartsRoute),
    /// Device `from` sends a whole tensor, whose sizes are not known before the run, to the devices
    /// `to`.
    Whole { from: usize, to: Vec<usize> },
}

/// Blocks that a device sends and receives in one exchange.
struct PartsRoute {
    sends: Vec<Block>,
    receives: Vec<Block>,
    /// Operation that combines received partial results; `None` if blocks are only copied.
    reduction: Option<Reduction>,
}

/// Elements of a tensor that go from one device to another, as strided runs.
pub(super) struct Block {
    /// Number of the other device of the transfer; the own number for a local copy.
    peer: usize,
    /// Index of the partial result that the elements belong to.
    partial: usize,
    /// Runs of elements along each axis, the outermost axis first. Inner axes that are transferred
    /// completely are merged into the next outer axis, which makes the runs longer.
    runs: Vec<Vec<Run>>,
    /// Strides of each axis in the source and in the target tensor, in elements.
    strides: Vec<AxisStrides>,
    /// Number of elements in the block.
    elements: usize,
}

/// Strides of one axis in both tensors of a transfer, in elements.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AxisStrides {
    /// Stride in the tensor that is read, in elements.
    source: usize,
    /// Stride in the tensor that is written, in elements.
    target: usize,
}

impl AxisStrides {
    /// Strides of an innermost axis, whose elements are adjacent in both tensors.
    const ONE: AxisStrides = AxisStrides { source: 1, target: 1 };
}

impl Block {
    /// Makes the block of a transfer with device `peer`, from a tensor of sizes `have` into a
    /// tensor of sizes `want`.
    pub(super) fn new(peer: Device, transfer: &Transfer, have: &[usize], want: &[usize]) -> Block {
        let mut runs: Vec<Vec<Run>> = Vec::new();
        let mut strides: Vec<AxisStrides> = Vec::new();
        let mut stride = AxisStrides::ONE;
        for (axis, own) in transfer.runs.iter().enumerate().rev() {
            runs.insert(0, own.clone());
            strides.insert(0, stride);
            stride.source *= have[axis];
            stride.target *= want[axis];
        }
        // Merge an innermost axis that is a single run in both tensors into the next outer axis.
        while runs.len() > 1 {
            let last = runs.len() - 1;
            let (inner, size) = (&runs[last], runs[last].first().map_or(0, |run| run.len));
            let is_all = inner.len() == 1
                && strides[last - 1] == AxisStrides { source: size, target: size }
                && strides[last] == AxisStrides::ONE;
            if !is_all {
                break;
            }
            runs.pop();
            strides.pop();
            for run in &mut runs[last - 1] {
                *run = Run { from: run.from * size, to: run.to * size, len: run.len * size };
            }
            strides[last - 1] = AxisStrides::ONE;
        }
        let elements =
            runs.iter().map(|axis| axis.iter().map(|run| run.len).sum::<usize>()).product();
        Block { peer: peer as usize, partial: transfer.partial, runs, strides, elements }
    }

    /// Returns the block's range of elements in the source tensor; `None` if the elements are not
    /// contiguous and must be packed.
    fn find_contiguous_range(&self) -> Option<Range<usize>> {
        match self.runs.as_slice() {
            [axis] => match axis.as_slice() {
                [run] => Some(run.from..run.from + run.len),
                _ => None,
            },
            _ => None,
        }
    }

    /// Calls `each` for every run of elements that is contiguous in both tensors, with its start in
    /// the source, its start in the target, and its length in elements.
    fn for_each(&self, each: &mut dyn FnMut(usize, usize, usize)) {
        self.walk_axis(0, 0, 0, each);
    }

    /// Copies the block from the bytes of the source tensor to those of the target tensor. An
    /// element has `size` bytes.
    pub(super) fn copy(&self, size: usize, from: &[u8], to: &mut [u8]) {
        self.for_each(&mut |start, target, len| {
            let part = &from[start * size..(start + len) * size];
            to[target * size..(target + len) * size].copy_from_slice(part);
        });
    }

    /// Visits the runs of `axis` and of all inner axes, from the offsets `source` and `target`.
    fn walk_axis(
        &self,
        axis: usize,
        source: usize,
        target: usize,
        each: &mut dyn FnMut(usize, usize, usize),
    ) {
        let Some(runs) = self.runs.get(axis) else { return each(source, target, 1) };
        let strides = self.strides[axis];
        for run in runs {
            let source = source + run.from * strides.source;
            let target = target + run.to * strides.target;
            if axis + 1 == self.runs.len() && strides == AxisStrides::ONE {
                each(source, target, run.len);
            } else {
                for index in 0..run.len {
                    let (source, target) =
                        (source + index * strides.source, target + index * strides.target);
                    self.walk_axis(axis + 1, source, target, each);
                }
            }
        }
    }
}

impl Exchange {
    /// Makes the exchange operator of the device of `routes`.
    pub(super) fn new(routes: Arc<Routes>, link: Link) -> Exchange {
        Exchange { plan: Arc::clone(&routes.plan), device: routes.device, link, routes }
    }

    /// Returns the exchange that the node attribute `step` selects, with its index in the plan.
    ///
    /// # Errors
    ///
    /// Fails if the attribute is missing, or does not select an exchange.
    fn find_move(&self, step: Option<i64>) -> Result<(usize, &Move), OperatorError> {
        let step = step.and_then(|step| usize::try_from(step).ok());
        let number = step.ok_or("the exchange node has no valid attribute 'step'")?;
        match self.plan.steps().get(number) {
            Some(Step::Move(moved)) => Ok((number, moved)),
            _ => Err(format!("step {number} of the sharding plan is not an exchange").into()),
        }
    }

    /// Takes part, with zeros, in the remaining all-reduces of a cancelled run that an MPI library
    /// performs: these block until all workers of the group have called the library.
    pub(super) fn join_remaining_reductions(&self) {
        let transport = self.link.transport();
        let begun = self.link.lock_state().next_exchange;
        for (number, route) in self.routes.load_routes().iter().enumerate().skip(begun) {
            let (
                Some(SizedRoute { route: Route::Reduce { workers, reduction }, dims }),
                Some(Step::Move(moved)),
            ) = (route, self.plan.steps().get(number))
            else {
                continue;
            };
            let elements: usize = dims.as_ref().map_or(0, |dims| dims.iter().product());
            let bytes = elements * moved.elem.bits().unwrap_or(0) / 8;
            let Ok(tag) = self.make_tag(number) else { return };
            let group = Group { workers, tag };
            let is_left_to_it = !self.plan.is_inner(moved)
                && transport.waits_for_all(group, *reduction, moved.elem, bytes);
            if !is_left_to_it {
                continue;
            }
            let Ok(mut memory) = transport.scratch().take(bytes) else { return };
            memory.fill(0);
            let reduced = transport.all_reduce(group, *reduction, moved.elem, &mut memory);
            transport.scratch().give_back(memory);
            // A worker is lost: the transport informs all others.
            if reduced.is_err() {
                return;
            }
        }
    }

    /// Returns the message tag of the exchange at index `number` in the plan. The lower tags of the
    /// run belong to outputs.
    fn make_tag(&self, number: usize) -> Result<Tag, TryFromIntError> {
        self.link.make_tag(self.plan.givers_of_outputs().len() + number)
    }

    /// Recomputes the routes if `numbers`, the sizes of the symbolic dimensions in the next run,
    /// differ from those of the last run.
    pub(super) fn set_sizes(&self, numbers: &Numbers) {
        self.routes.set_sizes(numbers);
    }
}

/// Converts the reduction of the planner into that of the transport.
fn to_reduction(combine: Combine) -> Reduction {
    match combine {
        Combine::Sum => Reduction::Sum,
        Combine::Product => Reduction::Product,
        Combine::Min => Reduction::Min,
        Combine::Max => Reduction::Max,
    }
}

impl Route {
    /// Finds the route of `device` in the exchange `moved` of a tensor of sizes `dims`, which are
    /// `None` if not known before the run.
    fn new(plan: &Plan, moved: &Move, dims: Option<&[usize]>, device: Device) -> Route {
        let (from, to) = (plan.form(moved.from), plan.form(moved.to));
        let Some(dims) = dims else {
            let giver = from.devices().next().unwrap_or(0);
            let takers = to.devices().filter(|taker| !from.is_on(*taker));
            return Route::Whole {
                from: giver as usize,
                to: takers.map(|taker| taker as usize).collect(),
            };
        };
        let reduction = from.partial().map(|(combine, _)| to_reduction(combine));
        if let (Some(reduction), Some(group)) = (reduction, plan.reducing(moved, device)) {
            let workers = group.into_iter().map(|one| one as usize).collect();
            return Route::Reduce { workers, reduction };
        }
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for transfer in transfers(from, to, dims) {
            let have = from.dims(transfer.from, dims).unwrap_or_default();
            let want = to.dims(transfer.to, dims).unwrap_or_default();
            if transfer.to == device {
                receives.push(Block::new(transfer.from, &transfer, &have, &want));
            } else if transfer.from == device {
                sends.push(Block::new(transfer.to, &transfer, &have, &want));
            }
        }
        Route::Parts(PartsRoute { sends, receives, reduction })
    }
}

/// Memory that receives a tensor: a node output, or a scratch buffer if no other node reads the
/// output.
pub(super) struct OutputMemory<'o, 'c, 'a> {
    call: &'o mut OperatorCall<'c, 'a>,
    output: usize,
    scratch: Vec<u8>,
}

impl<'o, 'c, 'a> OutputMemory<'o, 'c, 'a> {
    /// Refers to the output with index `output` of a call, without allocating memory yet.
    pub(super) fn new(call: &'o mut OperatorCall<'c, 'a>, output: usize) -> Self {
        OutputMemory { call, output, scratch: Vec::new() }
    }

    /// Allocates a tensor of element type `elem` and sizes `dims`, and returns its bytes.
    pub(super) fn allocate_bytes(
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
        let (number, moved) = self.find_move(call.attributes().int(EXCHANGE_STEP))?;
        let routes = self.routes.load_routes();
        let route = routes.get(number).and_then(Option::as_ref);
        let route = route
            .ok_or_else(|| format!("step {number} of the sharding plan is not an exchange"))?;
        let message = Message {
            exchange: self,
            moved,
            number,
            tag: self.make_tag(number)?,
            transport: self.link.transport(),
        };
        // This output is one of the model's, so that the exchange is not dead code. It has one
        // element, as the value of an empty tensor is known without running the node.
        call.output(1, DataType::Uint8, &[1])?.bytes_mut().fill(0);
        let counters = message.transport.endpoint().counters();
        let (sent, waited) = (counters.total(), counters.waiting_time());
        message.run(call, route)?;
        let waited = counters.waiting_time().saturating_sub(waited);
        let sent = counters.total() - sent;
        self.link.lock_state().exchanged = Some(Exchanged { step: number, waited, sent });
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let Ok((_, moved)) = self.find_move(node.attributes().int(EXCHANGE_STEP)) else {
            return RuleAnswer::NoRule;
        };
        let ty = match &moved.dims {
            Some(dims) => {
                let numbers: Sizes = dims.iter().map(|dim| dim.size().unwrap_or(1)).collect();
                let own = self.plan.form(moved.to).dims(self.device, &numbers).unwrap_or_default();
                // An open size is equal before and after the exchange, as its axis is not split.
                let given = node.input(0).and_then(Type::shape);
                let dims =
                    dims.iter().zip(own).enumerate().map(|(axis, (dim, own))| match dim.size() {
                        Some(_) => Dim::from(own),
                        None => {
                            given.and_then(|given| given.get(axis).cloned()).unwrap_or(Dim::Unknown)
                        }
                    });
                Type::tensor(moved.elem, dims.collect::<Vec<_>>())
            }
            None => Type::unranked(moved.elem),
        };
        node.set_output(0, ty);
        node.set_output(1, Type::tensor(DataType::Uint8, [Dim::from(1usize)]));
        RuleAnswer::Inferred
    }

    fn is_deterministic(&self) -> bool {
        // Peers wait for each exchange, so none may be merged with another or computed ahead.
        false
    }
}

/// Error message for a received message with fewer bytes than its block or tensor.
const SHORT_MESSAGE: &str = "a message from another device is too short";

/// One execution of an exchange of tensors, with the tag and transport of its messages.
struct Message<'e> {
    exchange: &'e Exchange,
    moved: &'e Move,
    /// Index of the exchange among the steps of the plan.
    number: usize,
    tag: Tag,
    transport: &'e dyn Transport,
}

impl Message<'_> {
    /// Sends and receives the device's messages of an exchange, and writes the device's shard to
    /// output 0.
    fn run(
        &self,
        call: &mut OperatorCall<'_, '_>,
        sized: &SizedRoute,
    ) -> Result<(), OperatorError> {
        let given = if call.has_input(0) { Some(call.tensor(0)?.clone()) } else { None };
        let mut into = OutputMemory::new(call, 0);
        match &sized.route {
            Route::Reduce { workers, reduction } => {
                let given = given.ok_or("the device has no partial result to reduce")?;
                let dims: Sizes = given.dims().iter().copied().collect();
                let bytes = into.allocate_bytes(self.moved.elem, &dims)?;
                given.copy_to(bytes)?;
                let group = Group { workers, tag: self.tag };
                let elem = self.moved.elem;
                let reduced = if self.exchange.plan.is_inner(self.moved) {
                    // A library's reduction needs all workers even after a failure. How often an
                    // inner graph reduces is not known, so the missing calls cannot be made up for.
                    collectives::all_reduce(self.transport, group, *reduction, elem, bytes)
                } else {
                    self.exchange.link.lock_state().next_exchange = self.number + 1;
                    self.transport.all_reduce(group, *reduction, elem, bytes)
                };
                reduced.map_err(|error| self.exchange.link.to_operator_error(&error))
            }
            Route::Parts(parts) => {
                self.exchange_parts(given.as_ref(), parts, &mut into, sized.dims.as_deref())
            }
            Route::Whole { from, to } => self.move_whole(given.as_ref(), *from, to, &mut into),
        }
    }

    /// Sends a message to device `to`.
    fn send(&self, to: usize, bytes: &[u8]) -> Result<(), OperatorError> {
        let sent = self.transport.send(to, self.tag, bytes);
        sent.map_err(|error| self.exchange.link.to_operator_error(&error))
    }

    /// Receives a message of device `from`, and calls `take` with its bytes.
    fn receive(&self, from: usize, take: &mut dyn FnMut(&[u8])) -> Result<(), OperatorError> {
        let received = self.transport.receive_with(from, self.tag, take);
        received.map_err(|error| self.exchange.link.to_operator_error(&error))
    }

    /// Sends blocks of the tensor `given`, then assembles the device's new shard, of sizes `dims`,
    /// from received blocks and from blocks of `given`.
    fn exchange_parts(
        &self,
        given: Option<&TensorView<'_>>,
        route: &PartsRoute,
        into: &mut OutputMemory<'_, '_, '_>,
        dims: Option<&[usize]>,
    ) -> Result<(), OperatorError> {
        let elem = self.moved.elem;
        let size = elem.bits().unwrap_or(0) / 8;
        let given = match given {
            Some(view) => view
                .contiguous_bytes()
                .ok_or("the elements of the tensor to send are not contiguous")?,
            None => &[],
        };
        for block in &route.sends {
            if let Some(range) = block.find_contiguous_range() {
                let bytes = given.get(range.start * size..range.end * size);
                self.send(block.peer, bytes.ok_or("the tensor to send is too short")?)?;
                continue;
            }
            let memory = self.transport.scratch().take(block.elements * size);
            let mut message =
                memory.map_err(|error| self.exchange.link.to_operator_error(&error))?;
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
        let into = into
            .allocate_bytes(elem, dims.ok_or("the sizes of the exchanged tensor are not known")?)?;
        for block in &route.receives {
            // The first partial result is copied, the others are combined with it.
            let reduction = route.reduction.filter(|_| block.partial > 0);
            let mut written = Ok(());
            if block.peer == self.exchange.device as usize {
                written = self.write_block(block, given, reduction, into);
            } else {
                self.receive(block.peer, &mut |bytes| {
                    written = self.write_block(block, bytes, reduction, into);
                })?;
            }
            written?;
        }
        Ok(())
    }

    /// Copies a block into the device's shard, or combines both by `reduction`. `bytes` holds the
    /// packed elements of a message, or all elements of the device's own tensor.
    fn write_block(
        &self,
        block: &Block,
        bytes: &[u8],
        reduction: Option<Reduction>,
        into: &mut [u8],
    ) -> Result<(), OperatorError> {
        let elem = self.moved.elem;
        let size = elem.bits().unwrap_or(0) / 8;
        let is_own = block.peer == self.exchange.device as usize;
        let mut written = Ok(());
        let mut at = 0;
        block.for_each(&mut |from, to, len| {
            let source = if is_own { from } else { at };
            at += len;
            let part = bytes.get(source * size..(source + len) * size);
            let target = into.get_mut(to * size..(to + len) * size);
            match (part, target, reduction) {
                (Some(part), Some(target), None) => target.copy_from_slice(part),
                (Some(part), Some(target), Some(reduction)) => {
                    if let Err(error) = combine(reduction, elem, target, part) {
                        written = Err(OperatorError::from(error.to_string()));
                    }
                }
                _ => written = Err(SHORT_MESSAGE.into()),
            }
        });
        written
    }

    /// Writes a whole tensor that arrived in a message of [`Message::move_whole`].
    fn write_whole(
        &self,
        message: &[u8],
        into: &mut OutputMemory<'_, '_, '_>,
    ) -> Result<(), OperatorError> {
        let (dims, bytes) = split_message(message).ok_or(SHORT_MESSAGE)?;
        let into = into.allocate_bytes(self.moved.elem, &dims)?;
        if into.len() != bytes.len() {
            let (found, expected) = (bytes.len(), into.len());
            return Err(format!(
                "a message has {found} bytes, but its tensor has {expected} bytes"
            )
            .into());
        }
        into.copy_from_slice(bytes);
        Ok(())
    }

    /// Moves a whole tensor from device `from` to the devices `to`. The message begins with the
    /// tensor's rank and sizes, which receivers do not know.
    fn move_whole(
        &self,
        given: Option<&TensorView<'_>>,
        from: usize,
        to: &[usize],
        into: &mut OutputMemory<'_, '_, '_>,
    ) -> Result<(), OperatorError> {
        let own = self.exchange.device as usize;
        if own == from && !to.is_empty() {
            let view = given.ok_or("the device does not hold the tensor to exchange")?;
            let bytes = view
                .contiguous_bytes()
                .ok_or("the elements of the tensor to send are not contiguous")?;
            let sizes = std::iter::once(view.rank()).chain(view.dims().iter().copied());
            let scratch = self.transport.scratch();
            let memory = scratch.take(bytes.len() + 8 * (view.rank() + 1));
            let mut message =
                memory.map_err(|error| self.exchange.link.to_operator_error(&error))?;
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
            let mut written = Ok(());
            self.receive(from, &mut |message| written = self.write_whole(message, into))?;
            written?;
        } else if self.exchange.plan.form(self.moved.to).is_on(self.exchange.device) {
            let view = given.ok_or("the device does not hold the tensor to exchange")?;
            view.copy_to(into.allocate_bytes(self.moved.elem, view.dims())?)?;
        }
        Ok(())
    }
}

/// Splits a message with a whole tensor into sizes and bytes; `None` if the message is too short.
fn split_message(message: &[u8]) -> Option<(Sizes, &[u8])> {
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
