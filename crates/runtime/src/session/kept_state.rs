//! Kept state: values that a run leaves to the next one, such as the keys and values of a decoder.
//!
//! A pair is an output and the input that it becomes in the next run. If the output is the input
//! followed by new rows along one axis, the state has memory with room for more rows: a run writes
//! new rows after the length of the state, where nothing reads, and the end of the run moves the
//! length. So an error leaves the state as it was, and no run copies earlier rows. Other outputs
//! replace the value of their input.
//!
//! A run may also write rows from a position on that it computes, as `TensorScatter` and
//! `GroupQueryAttention` do, which count the valid rows by an input. Where that is before the
//! length of the state, an error leaves new rows in place of those from the position on.

use std::fmt;
use std::sync::Arc;

use sardonyx_model::Type;
use sardonyx_tensor::shape::{elems, normalize_axis, strides};
use sardonyx_tensor::{Buffer, DataType, Dims, Tensor, TensorView, Value, ViewData};

use super::Session;
use crate::account::{Account, Reservation};
use crate::error::{InputError, RunError};
use crate::executable::{Body, Work};
use crate::memory::{Held, KeptInput, Planned};
use crate::plan::{KeptRows, Plan};
use crate::program::{MoveKind, Order, Slot, StatePorts};
use crate::schedule::Schedule;
use crate::sizes::{Scope, Sizes};

/// Choice: rows of which the capacity of a grown state is a multiple.
const MIN_GROWTH: usize = 64;

/// Kept state of a series of runs. Clones share memory until one of them changes it.
#[derive(Debug, Clone)]
pub struct KeptState {
    /// Number of the session that the pairs belong to.
    session: u64,
    pairs: Vec<KeptPair>,
    /// Bytes of earlier rows that the last run copied.
    copied_bytes: usize,
}

/// Ports of a pair, and its value before the first run.
#[derive(Debug, Clone)]
pub struct KeptPorts {
    /// Input and output.
    pub ports: StatePorts,
    /// Value before the first run: mostly a tensor without rows.
    pub first: Tensor,
    /// Axis of the rows of an output that replaces its input, if known.
    pub axis: Option<usize>,
    /// Axis of independent sequences, if there is one.
    pub batch_axis: Option<usize>,
    /// Minimum number of rows to reserve memory for.
    pub capacity: usize,
}

/// Way in which runs keep a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateUse {
    /// Input and output.
    pub ports: StatePorts,
    /// Whether runs append to the input in place.
    pub is_appended: bool,
    /// Reasons why runs copy earlier rows, as sentences without their subject.
    pub copies: Vec<String>,
}

/// Pair with its value.
#[derive(Debug, Clone)]
struct KeptPair {
    ports: StatePorts,
    axis: Option<usize>,
    batch_axis: Option<usize>,
    content: Content,
}

/// Value of a pair.
#[derive(Debug, Clone)]
enum Content {
    /// Rows, to which runs append.
    Rows(Rows),
    /// Value that each run replaces.
    Whole(Tensor),
}

/// Reason why runs do not append to an input in place.
struct NotAppended {
    /// Axis along which the output is the input and new rows all the same.
    axis: Option<usize>,
    /// Reason, as a sentence without its subject.
    why: String,
}

impl From<&str> for NotAppended {
    fn from(why: &str) -> NotAppended {
        NotAppended::from(why.to_string())
    }
}

impl From<String> for NotAppended {
    fn from(why: String) -> NotAppended {
        NotAppended { axis: None, why }
    }
}

/// Rows in memory with room for more.
#[derive(Debug, Clone)]
struct Rows {
    elem: DataType,
    /// Dimensions of the value; the size along the axis is the length of the state.
    dims: Dims,
    /// Slots and axis of the append, and the number of rows that `memory` has room for.
    place: KeptRows,
    memory: Arc<RowMemory>,
}

/// Memory of rows, charged to the budget until all clones of the state drop it.
#[derive(Debug)]
struct RowMemory {
    buffer: Buffer,
    _reserved: Reservation,
}

impl Rows {
    /// Returns the dimensions of the memory: those of the value, with the capacity along the axis.
    fn memory_dims(&self) -> Dims {
        let mut dims = self.dims.clone();
        dims[self.place.axis] = self.place.capacity;
        dims
    }

    fn len(&self) -> usize {
        self.dims[self.place.axis]
    }

    fn view(&self) -> Result<TensorView<'_>, RunError> {
        let strides = strides(&self.memory_dims());
        let data = ViewData::Bytes(self.memory.buffer.as_slice());
        let view = TensorView::with_strides(self.elem, &self.dims, strides, 0, data);
        view.map_err(refuse)
    }

    /// Moves the rows to memory of their own with room for `capacity` rows. Returns the bytes of
    /// the rows, which are copied.
    fn move_to(&mut self, capacity: usize, account: &Account) -> Result<usize, RunError> {
        let mut moved = self.dims.clone();
        moved[self.place.axis] = capacity;
        let bytes = elems(&moved).ok().and_then(|len| self.elem.storage_bytes(len));
        let bytes = bytes.ok_or_else(|| refuse("its size overflows"))?;
        account.charge(bytes).map_err(refuse)?;
        let reserved = account.reserve();
        let mut buffer = Buffer::zeroed(bytes).map_err(refuse)?;
        let axis = self.place.axis;
        let row: usize = self.dims[axis + 1..].iter().product();
        let row = self.elem.storage_bytes(row).unwrap_or(0);
        let blocks: usize = self.dims[..axis].iter().product();
        let (from, to) = (self.place.capacity * row, capacity * row);
        let used = self.len() * row;
        if used > 0 {
            let old = self.memory.buffer.as_slice();
            let new = buffer.make_mut().map_err(refuse)?;
            for block in 0..blocks {
                new[block * to..][..used].copy_from_slice(&old[block * from..][..used]);
            }
        }
        self.memory = Arc::new(RowMemory { buffer, _reserved: reserved });
        self.place.capacity = capacity;
        Ok(used * blocks)
    }
}

impl KeptPair {
    /// Copies the value into a dense tensor.
    fn to_tensor(&self) -> Result<Tensor, RunError> {
        match &self.content {
            Content::Whole(tensor) => Ok(tensor.clone()),
            Content::Rows(rows) => rows.view()?.to_tensor().map_err(refuse),
        }
    }

    fn dims(&self) -> &[usize] {
        match &self.content {
            Content::Whole(tensor) => tensor.dims(),
            Content::Rows(rows) => &rows.dims,
        }
    }

    fn elem(&self) -> DataType {
        match &self.content {
            Content::Whole(tensor) => tensor.data_type(),
            Content::Rows(rows) => rows.elem,
        }
    }

    /// Returns the size of the memory, in bytes.
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Rows(rows) => rows.memory.buffer.len(),
            Content::Whole(tensor) => tensor.held_bytes(),
        }
    }

    /// Replaces the value by a tensor of the same rank. `others` are the bytes of other pairs.
    fn set(&mut self, tensor: Tensor, others: usize, session: &Session) -> Result<(), RunError> {
        let (rank, elem) = (self.dims().len(), self.elem());
        if tensor.rank() != rank || tensor.data_type() != elem {
            let name = session.inputs()[self.ports.input].name();
            let what = format!(
                "the state '{name}' is {} of rank {rank}, but the new value is {}{:?}",
                elem.name(),
                tensor.data_type().name(),
                tensor.dims()
            );
            return Err(InputError::new(what).into());
        }
        self.content = match &self.content {
            Content::Whole(_) => Content::Whole(tensor),
            Content::Rows(rows) => {
                let capacity = rows.place.capacity.max(tensor.dims()[rows.place.axis]);
                let (place, tensor) = (rows.place, &tensor);
                Content::Rows(Rows::from_tensor(tensor, place, capacity, others, session)?)
            }
        };
        Ok(())
    }
}

impl Rows {
    /// Copies a tensor into memory with room for `capacity` rows, beside `others` bytes of other
    /// pairs.
    fn from_tensor(
        tensor: &Tensor,
        place: KeptRows,
        capacity: usize,
        others: usize,
        session: &Session,
    ) -> Result<Rows, RunError> {
        let dims = Dims::from(tensor.dims());
        let place = KeptRows { capacity: dims[place.axis], ..place };
        let whole = match tensor.buffer() {
            Some(buffer) if !tensor.is_empty() => buffer.clone(),
            _ => Buffer::zeroed(0).map_err(refuse)?,
        };
        let memory = RowMemory { buffer: whole, _reserved: Account::new(None, 0).reserve() };
        let elem = tensor.data_type();
        let mut rows = Rows { elem, dims, place, memory: Arc::new(memory) };
        rows.move_to(capacity, &session.open_state_account(others))?;
        Ok(rows)
    }
}

impl KeptState {
    /// Makes the state of runs of `session`.
    ///
    /// # Errors
    ///
    /// A port that does not exist or is in two pairs, values that are not dense numbers, and a lack
    /// of memory.
    pub fn new(session: &Session, ports: Vec<KeptPorts>) -> Result<KeptState, RunError> {
        let mut pairs: Vec<KeptPair> = Vec::with_capacity(ports.len());
        for kept in ports {
            let StatePorts { input, output } = kept.ports;
            let (Some(past), Some(_)) =
                (session.inputs().get(input), session.outputs().get(output))
            else {
                let what = format!("the model has no input {input} or no output {output}");
                return Err(InputError::new(what).into());
            };
            if pairs.iter().any(|pair| pair.ports.input == input || pair.ports.output == output) {
                let what = format!("the input '{}' or its output is in two pairs", past.name());
                return Err(InputError::new(what).into());
            }
            if session.executable.body.committed_outputs().contains(&output)
                || kept.first.data_type().bits().is_none_or(|bits| bits % 8 != 0)
            {
                let what = format!("the input '{}' cannot be kept between runs", past.name());
                return Err(InputError::new(what).into());
            }
            let shape = past.ty().and_then(Type::shape);
            let rank = kept.first.rank();
            let axes = kept.axis.iter().chain(&kept.batch_axis);
            if shape.is_some_and(|shape| shape.len() != rank)
                || axes.max().is_some_and(|axis| *axis >= rank)
            {
                let what =
                    format!("the first value of the state '{}' has rank {rank}", past.name());
                return Err(InputError::new(what).into());
            }
            let (axis, content) = match session.find_append(kept.ports) {
                Ok(append) => {
                    let capacity = kept.capacity.max(kept.first.dims()[append.axis]);
                    let others = pairs.iter().map(KeptPair::bytes).sum();
                    let rows = Rows::from_tensor(&kept.first, append, capacity, others, session)?;
                    (Some(append.axis), Content::Rows(rows))
                }
                Err(reason) => (kept.axis.or(reason.axis), Content::Whole(kept.first)),
            };
            pairs.push(KeptPair { ports: kept.ports, axis, batch_axis: kept.batch_axis, content });
        }
        Ok(KeptState { session: session.number, pairs, copied_bytes: 0 })
    }

    /// Returns the ports of the pairs, and whether runs append to each in place.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (StatePorts, bool)> {
        self.pairs.iter().map(|pair| (pair.ports, matches!(pair.content, Content::Rows(_))))
    }

    /// Returns the types of the values of the pairs, with the sizes that they have now.
    pub fn types(&self) -> impl ExactSizeIterator<Item = Type> {
        self.pairs.iter().map(|pair| Type::tensor(pair.elem(), pair.dims().iter().copied()))
    }

    /// Returns the number of rows of the first pair that has rows; 0 without one.
    pub fn len(&self) -> usize {
        let first = self.pairs.iter().find_map(|pair| Some(pair.dims()[pair.axis?]));
        first.unwrap_or(0)
    }

    /// Whether the state has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of rows that fit before memory grows; `None` if no pair is appended to.
    pub fn capacity(&self) -> Option<usize> {
        let rows = self.pairs.iter().filter_map(|pair| match &pair.content {
            Content::Rows(rows) => Some(rows.place.capacity),
            Content::Whole(_) => None,
        });
        rows.min()
    }

    /// Returns the size of the memory of all pairs, in bytes. Clones count what they share.
    pub fn bytes(&self) -> usize {
        self.pairs.iter().map(KeptPair::bytes).fold(0, usize::saturating_add)
    }

    /// Returns the bytes of earlier rows that the last run copied: those that it moved to larger
    /// memory or out of memory shared with a clone, those of pairs that are replaced, and those
    /// that steps rearranged.
    pub fn copied_bytes(&self) -> usize {
        self.copied_bytes
    }

    /// Copies the value of a pair, by index.
    ///
    /// # Errors
    ///
    /// A lack of memory.
    pub fn value(&self, pair: usize) -> Result<Tensor, RunError> {
        match self.pairs.get(pair) {
            Some(pair) => pair.to_tensor(),
            None => Err(InputError::new(format!("the state has no pair {pair}")).into()),
        }
    }

    /// Replaces the value of a pair, by index.
    ///
    /// # Errors
    ///
    /// Another rank or element type than that of the state; a lack of memory.
    pub fn set(&mut self, session: &Session, pair: usize, value: Tensor) -> Result<(), RunError> {
        self.demand_session(session)?;
        let bytes = self.bytes();
        match self.pairs.get_mut(pair) {
            Some(pair) => pair.set(value, bytes.saturating_sub(pair.bytes()), session),
            None => Err(InputError::new(format!("the state has no pair {pair}")).into()),
        }
    }

    /// Whether [`KeptState::truncate`] works: each pair has an axis of rows.
    pub fn can_truncate(&self) -> bool {
        self.pairs.iter().all(|pair| pair.axis.is_some())
    }

    /// Drops all rows after the first `len`. Copies nothing of pairs that are appended to.
    ///
    /// # Errors
    ///
    /// A pair without a known axis of rows; a lack of memory. The state stays as it was.
    pub fn truncate(&mut self, session: &Session, len: usize) -> Result<(), RunError> {
        self.demand_session(session)?;
        let mut cut = Vec::new();
        for (index, pair) in self.pairs.iter().enumerate() {
            let Some(axis) = pair.axis else {
                let name = session.inputs()[pair.ports.input].name();
                let what = format!("the state '{name}' has no known axis of rows to cut");
                return Err(InputError::new(what).into());
            };
            if let Content::Whole(tensor) = &pair.content
                && tensor.dims().get(axis).is_some_and(|rows| *rows > len)
            {
                let ranges = std::iter::once(0..len);
                cut.push((index, copy_ranges(tensor, axis, ranges)?));
            }
        }
        for (index, tensor) in cut {
            self.pairs[index].content = Content::Whole(tensor);
        }
        for pair in &mut self.pairs {
            if let Content::Rows(rows) = &mut pair.content {
                let axis = rows.place.axis;
                rows.dims[axis] = rows.dims[axis].min(len);
            }
        }
        Ok(())
    }

    /// Keeps the members of the batch with these numbers, in this order. Pairs without an axis of
    /// members stay.
    ///
    /// # Errors
    ///
    /// A number that is not below the size of the batch; a lack of memory. The state stays as it
    /// was.
    pub fn select(&mut self, session: &Session, members: &[usize]) -> Result<(), RunError> {
        self.demand_session(session)?;
        let bytes = self.bytes();
        let mut selected = self.pairs.clone();
        for pair in &mut selected {
            let Some(axis) = pair.batch_axis else { continue };
            let size = pair.dims().get(axis).copied().unwrap_or(0);
            if let Some(member) = members.iter().find(|member| **member >= size) {
                let what = format!("the batch has {size} members, so none has the number {member}");
                return Err(InputError::new(what).into());
            }
            let tensor = pair.to_tensor()?;
            let ranges = members.iter().map(|member| *member..member + 1);
            pair.set(copy_ranges(&tensor, axis, ranges)?, bytes, session)?;
        }
        self.pairs = selected;
        Ok(())
    }

    /// Reserves memory for `capacity` rows in all.
    ///
    /// # Errors
    ///
    /// A lack of memory. Rows stay as they were.
    pub fn reserve(&mut self, session: &Session, capacity: usize) -> Result<(), RunError> {
        self.demand_session(session)?;
        let mut bytes = self.bytes();
        for pair in &mut self.pairs {
            if let Content::Rows(rows) = &mut pair.content
                && rows.place.capacity < capacity
            {
                let before = rows.memory.buffer.len();
                rows.move_to(capacity, &session.open_state_account(bytes))?;
                bytes = bytes.saturating_add(rows.memory.buffer.len()).saturating_sub(before);
            }
        }
        Ok(())
    }

    /// Refuses a session that the state was not made for.
    pub(crate) fn demand_session(&self, session: &Session) -> Result<(), RunError> {
        if self.session == session.number {
            return Ok(());
        }
        Err(InputError::new("the state was made for another session").into())
    }

    /// Yields the values of a run's inputs, by index.
    pub(crate) fn inputs<'h>(&self) -> impl Iterator<Item = (usize, Held<'h>)> {
        self.pairs.iter().map(|pair| {
            let held = match &pair.content {
                Content::Whole(tensor) => Held::Value(Value::Tensor(tensor.clone()), 0),
                Content::Rows(rows) => Held::Kept(Box::new(KeptInput {
                    elem: rows.elem,
                    dims: rows.dims.clone(),
                    rows: rows.place,
                })),
            };
            (pair.ports.input, held)
        })
    }

    /// Makes room for the rows that a run with this plan appends, in memory that no clone shares.
    /// Returns whether the plan holds: memory that grows has other strides.
    pub(crate) fn make_room(&mut self, session: &Session, plan: &Plan) -> Result<bool, RunError> {
        let (mut holds, mut bytes) = (true, self.bytes());
        for pair in &mut self.pairs {
            let Content::Rows(rows) = &mut pair.content else { continue };
            let place = rows.place;
            let Some((_, dims)) = &plan.types[place.present.index()] else {
                let what = format!(
                    "the size of the output '{}' is not known before the run, so it cannot be \
                     appended to a state",
                    session.outputs()[pair.ports.output].name()
                );
                return Err(InputError::new(what).into());
            };
            let needed = dims[place.axis];
            let capacity = if needed > place.capacity {
                holds = false;
                needed.max(place.capacity.saturating_mul(2)).next_multiple_of(MIN_GROWTH)
            } else if Arc::get_mut(&mut rows.memory).is_none() {
                place.capacity
            } else {
                continue;
            };
            let before = rows.memory.buffer.len();
            self.copied_bytes += rows.move_to(capacity, &session.open_state_account(bytes))?;
            bytes = bytes.saturating_add(rows.memory.buffer.len()).saturating_sub(before);
        }
        Ok(holds)
    }

    /// Forgets what earlier runs copied.
    pub(crate) fn reset_copied(&mut self) {
        self.copied_bytes = 0;
    }

    /// Lends the memory of rows to a run, at the places of its inputs.
    pub(crate) fn lend<'a>(
        &'a mut self,
        schedule: &Schedule,
        held: &mut [Held<'a>],
    ) -> Result<(), RunError> {
        for pair in &mut self.pairs {
            let Content::Rows(rows) = &mut pair.content else { continue };
            let Some(place) = schedule.inputs[pair.ports.input] else { continue };
            let memory = Arc::get_mut(&mut rows.memory).map(|memory| &mut memory.buffer);
            held[place as usize] = match memory {
                Some(buffer) if buffer.is_empty() => Held::Output(&mut []),
                Some(buffer) => {
                    let bytes = buffer.make_mut();
                    Held::Output(bytes.map_err(refuse)?)
                }
                None => return Err(InputError::new("the memory of the state is shared").into()),
            };
        }
        Ok(())
    }

    /// Takes over the outcome of a run: moves the lengths after the new rows, and replaces values
    /// by outputs. Nothing fails once something has changed.
    pub(crate) fn commit(
        &mut self,
        session: &Session,
        plan: &Plan,
        outputs: &mut [Option<Value>],
    ) -> Result<(), RunError> {
        for pair in &self.pairs {
            let Content::Whole(old) = &pair.content else { continue };
            let fits = match &outputs[pair.ports.output] {
                Some(Value::Tensor(new)) => {
                    new.rank() == old.rank() && new.data_type() == old.data_type()
                }
                _ => false,
            };
            if !fits {
                let (past, present) =
                    (&session.inputs()[pair.ports.input], &session.outputs()[pair.ports.output]);
                let what = format!(
                    "the output '{}' is not a tensor of the type and rank of the input '{}'",
                    present.name(),
                    past.name()
                );
                return Err(InputError::new(what).into());
            }
        }
        self.copied_bytes += plan.copies.iter().map(|copy| copy.bytes).sum::<usize>();
        for pair in &mut self.pairs {
            match &mut pair.content {
                Content::Rows(rows) => {
                    if let Some((_, dims)) = &plan.types[rows.place.present.index()] {
                        rows.dims.clone_from(dims);
                    }
                }
                Content::Whole(tensor) => {
                    if let Some(Value::Tensor(new)) = outputs[pair.ports.output].take() {
                        self.copied_bytes += tensor.held_bytes();
                        *tensor = new;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Makes the error for a lack of memory, or for memory that does not fit.
fn refuse(error: impl fmt::Display) -> RunError {
    RunError::Resources(format!("the kept state: {error}"))
}

/// Copies ranges of an axis of a tensor, in order, into a new tensor.
fn copy_ranges(
    tensor: &Tensor,
    axis: usize,
    ranges: impl Iterator<Item = std::ops::Range<usize>> + Clone,
) -> Result<Tensor, RunError> {
    let mut dims = Dims::from(tensor.dims());
    let old = dims[axis];
    dims[axis] = ranges.clone().map(|range| range.len()).sum();
    let row: usize = dims[axis + 1..].iter().product();
    let row = tensor.data_type().storage_bytes(row).unwrap_or(0);
    let bytes = elems(&dims).ok().and_then(|len| tensor.data_type().storage_bytes(len));
    let mut buffer = Buffer::zeroed(bytes.unwrap_or(0)).map_err(refuse)?;
    let mut rest = buffer.make_mut().map_err(refuse)?;
    for block in tensor.bytes().chunks_exact((old * row).max(1)) {
        for range in ranges.clone() {
            let source = &block[range.start * row..range.end * row];
            let (to, after) = rest.split_at_mut(source.len());
            to.copy_from_slice(source);
            rest = after;
        }
    }
    Tensor::from_buffer(tensor.data_type(), dims, buffer).map_err(refuse)
}

impl Session {
    /// Opens an account for memory of a state that has `bytes` bytes already.
    fn open_state_account(&self, bytes: usize) -> Account {
        let taken = self.report.made_bytes.saturating_add(bytes);
        Account::with_budget(self.memory_limit, taken, self.budget())
    }

    /// Explains how runs keep pairs of inputs and outputs, for inputs of the given types by
    /// position.
    ///
    /// # Errors
    ///
    /// Types with which the model contradicts itself.
    pub fn explain_state(
        &self,
        ports: &[StatePorts],
        inputs: &[Option<Type>],
    ) -> Result<Vec<StateUse>, RunError> {
        let (executable, scope) = (&self.executable, Scope::main(&self.executable));
        let sizes = Sizes::infer(scope, inputs)?;
        let found: Vec<Result<KeptRows, NotAppended>> =
            ports.iter().map(|ports| self.find_append(*ports)).collect();
        let rows = found.iter().flatten().map(|rows| {
            let dims = sizes.types[rows.present.index()].as_ref();
            // Any number above that of the rows gives the strides of a state with room.
            let capacity = dims.map_or(0, |(_, dims)| dims[rows.axis].saturating_mul(2) + 1);
            KeptRows { capacity, ..*rows }
        });
        let rows: Vec<KeptRows> = rows.collect();
        let Planned { plan, .. } = Planned::with_kept(&executable.body, sizes, &rows);
        let uses = ports.iter().zip(found).map(|(ports, found)| match found {
            Err(reason) => StateUse { ports: *ports, is_appended: false, copies: vec![reason.why] },
            Ok(rows) => {
                let own = plan.copies.iter().filter(|copy| copy.past == rows.past);
                let copies = own.map(|copy| {
                    let node = executable.label(&executable.body.steps[copy.step].origins);
                    format!("is copied: {node} rearranges {} bytes", copy.bytes)
                });
                StateUse { ports: *ports, is_appended: true, copies: copies.collect() }
            }
        });
        Ok(uses.collect())
    }

    /// Finds the axis along which an output is its input followed by new rows, if runs can write
    /// the rows in place.
    ///
    /// # Errors
    ///
    /// The reason why runs copy the input, as a sentence without its subject.
    pub fn find_append_axis(&self, ports: StatePorts) -> Result<usize, String> {
        self.find_append(ports).map(|rows| rows.axis).map_err(|reason| reason.why)
    }

    /// Finds the step that appends rows to a kept input.
    fn find_append(&self, ports: StatePorts) -> Result<KeptRows, NotAppended> {
        let body = &self.executable.body;
        let past = body.inputs.get(ports.input).copied().flatten();
        let past = past.ok_or("is not read")?;
        let graph_outputs = &body.outputs[..body.graph_outputs()];
        let present = *graph_outputs.get(ports.output).ok_or("has no output")?;
        let makers = find_makers(body);
        let Some(index) = makers[present.index()] else {
            return Err("is not computed by a step".into());
        };
        let step = &body.steps[index];
        let mut is_overwritten = false;
        let axis = match step.movement.as_deref() {
            Some(MoveKind::Concat(concat)) => concat.axis,
            // Memory has room beyond the end that positions would wrap around.
            Some(MoveKind::WriteRows(rows)) if rows.in_bytes && !rows.around => {
                is_overwritten = true;
                rows.axis
            }
            _ => {
                let node = self.executable.label(&step.origins);
                let why = format!("is replaced: {node} does not append rows to the input");
                return Err(why.into());
            }
        };
        if step.inputs.first() != Some(&Some(past)) || step.outputs.len() != 1 {
            let node = self.executable.label(&step.origins);
            return Err(format!("is replaced: {node} does not begin with the input").into());
        }
        let shape = self.inputs()[ports.input].ty().and_then(Type::shape);
        let rank = shape.ok_or("has an unknown rank")?.len();
        let axis = normalize_axis(axis, rank);
        let axis = axis.map_err(|error| error.to_string())?;
        let copied = |why: String| NotAppended { axis: Some(axis), why };
        let others = body.outputs.iter().filter(|slot| [present, past].contains(slot));
        if others.count() != 1 {
            return Err(copied("is copied: it is more than one output".to_string()));
        }
        let orders = [past, present].map(|slot| body.slots[slot.index()].order);
        if orders != [Order::Rows; 2] {
            return Err(copied("is copied: it is stored with channels last".to_string()));
        }
        let mut others = step.inputs.iter().skip(1).flatten();
        if others.any(|slot| find_viewed(body, &makers, *slot) == past) {
            return Err(copied("is copied: it is appended to itself".to_string()));
        }
        for (reader, other) in body.steps.iter().enumerate() {
            for (position, slot) in other.inputs.iter().enumerate() {
                let is_kept = *slot == Some(present) || *slot == Some(past) && reader != index;
                let takes_strides =
                    matches!(other.work, Work::Kernel(_)) && other.rules.strided.contains(position);
                if is_kept && !takes_strides {
                    let node = self.executable.label(&other.origins);
                    return Err(copied(format!("is copied: {node} reads it in rows")));
                }
                let sees_new_rows =
                    || slot.is_some_and(|slot| views_past(body, &makers, slot, past, present));
                if is_overwritten && reader > index && sees_new_rows() {
                    let node = self.executable.label(&other.origins);
                    let why = format!("is copied: {node} reads it after rows were written");
                    return Err(copied(why));
                }
            }
        }
        Ok(KeptRows { past, present, axis, capacity: 0 })
    }
}

/// Returns the step that computes each slot.
fn find_makers(body: &Body) -> Vec<Option<usize>> {
    let mut makers = vec![None; body.slots.len()];
    for (index, step) in body.steps.iter().enumerate() {
        for slot in step.outputs.iter().flatten() {
            makers[slot.index()] = Some(index);
        }
    }
    makers
}

/// Whether a value may share the memory of a kept input, other than by the output that rows are
/// written into.
fn views_past(
    body: &Body,
    makers: &[Option<usize>],
    mut slot: Slot,
    past: Slot,
    present: Slot,
) -> bool {
    while slot != present {
        if slot == past {
            return true;
        }
        match find_source(body, makers, slot) {
            Some(source) => slot = source,
            None => return false,
        }
    }
    false
}

/// Returns the value whose memory a value may share, as moves may become views.
fn find_viewed(body: &Body, makers: &[Option<usize>], mut slot: Slot) -> Slot {
    while let Some(source) = find_source(body, makers, slot) {
        slot = source;
    }
    slot
}

/// Returns the value that a value is moved from.
fn find_source(body: &Body, makers: &[Option<usize>], slot: Slot) -> Option<Slot> {
    let step = &body.steps[makers[slot.index()]?];
    step.movement.as_ref()?;
    *step.inputs.first()?
}
