//! Operators on sequences of tensors.
//!
//! A sequence without other readers grows in place, so that a loop that appends to one is linear.
//! Items are shared, not copied, wherever a value of its own may hold them.

use sardonyx_tensor::{DataType, Dims, Sequence, Tensor, TensorView, Value, ValueType};
use sardonyx_tensor::{shape, shape::normalize_axis};
use smallvec::SmallVec;

use super::element_type;
use super::tensor::concat::join;
use super::tensor::moves::copy;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Operand, Site};

/// Binds `SequenceAt`.
pub(crate) fn bind_at(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(At))
}

/// Binds `SequenceConstruct`.
pub(crate) fn bind_construct(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Construct))
}

/// Binds `SequenceEmpty`.
pub(crate) fn bind_empty(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let elem = element_type(site, "dtype")?.unwrap_or(DataType::Float);
    Ok(Box::new(Empty(ValueType::Tensor(elem))))
}

/// Binds `SequenceErase`.
pub(crate) fn bind_erase(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Erase))
}

/// Binds `SequenceInsert`.
pub(crate) fn bind_insert(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Insert))
}

/// Binds `SequenceLength`.
pub(crate) fn bind_length(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Length))
}

/// Binds `ConcatFromSequence`.
pub(crate) fn bind_concat(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let is_new = site.int("new_axis") == Some(1);
    Ok(Box::new(Concat { axis: site.need_int("axis")?, is_new }))
}

/// Binds `SplitToSequence`.
pub(crate) fn bind_split(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let keeps_axis = site.int("keepdims") != Some(0);
    Ok(Box::new(SequenceSplit { axis: site.need_int("axis")?, keeps_axis }))
}

/// Returns the sequence at an input that the kernel does not take over.
fn sequence<'a>(call: &Call<'a>, index: usize) -> Result<&'a Sequence, KernelError> {
    match call.operands.get(index) {
        Some(Operand::Value(Value::Sequence(sequence))) => Ok(sequence),
        Some(Operand::Value(other)) => {
            fail!("input {index} is {}, not a sequence", other.value_type())
        }
        Some(Operand::Tensor(view)) => {
            fail!("input {index} is tensor({}), not a sequence", view.data_type())
        }
        _ => fail!("input {index} is missing"),
    }
}

/// Takes over the sequence at an input, to change it.
fn take_sequence(call: &mut Call<'_>, index: usize) -> Result<Sequence, KernelError> {
    if let Some(Operand::Tensor(view)) = call.operands.get(index) {
        fail!("input {index} is tensor({}), not a sequence", view.data_type());
    }
    match call.take(index)? {
        Value::Sequence(sequence) => Ok(sequence),
        other => fail!("input {index} is {}, not a sequence", other.value_type()),
    }
}

/// Returns the only integer of an input that may be omitted.
fn position(call: &Call<'_>, index: usize) -> Result<Option<i64>, KernelError> {
    if !call.has_input(index) {
        return Ok(None);
    }
    match call.ints(index)?[..] {
        [position] => Ok(Some(position)),
        _ => fail!("the position must be a scalar, not a tensor {:?}", call.tensor(index)?.dims()),
    }
}

/// Converts a position in a sequence of `length` items to an index below `places`; negative ones
/// count from the end.
fn index_of(position: i64, length: usize, places: usize) -> Result<usize, KernelError> {
    let from_front =
        if position < 0 { position.checked_add(length as i64) } else { Some(position) };
    match from_front.and_then(|index| usize::try_from(index).ok()) {
        Some(index) if index < places => Ok(index),
        _ => match length {
            0 => fail!("position {position} is out of range: the sequence is empty"),
            1 => fail!("position {position} is out of range: the sequence has 1 item"),
            _ => fail!("position {position} is out of range: the sequence has {length} items"),
        },
    }
}

struct At;

impl Kernel for At {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let items = sequence(call, 0)?.items();
        let Some(position) = position(call, 1)? else { fail!("the position is missing") };
        let index = index_of(position, items.len(), items.len())?;
        call.set_output(0, items[index].clone())
    }

    fn describe(&self) -> String {
        "share an item".to_string()
    }
}

struct Construct;

impl Kernel for Construct {
    fn memory(&self) -> MemoryRules {
        MemoryRules { takes: Inputs::ALL, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut sequence: Option<Sequence> = None;
        for index in 0..call.input_count() {
            let item = call.take(index)?;
            call.reserve(item.bytes())?;
            let (found, to) = (item.value_type(), &mut sequence);
            let sequence = to.get_or_insert_with(|| Sequence::new(found.clone()));
            if found != *sequence.element() {
                let first = sequence.element();
                fail!(
                    "input {index} is {found}, but input 0 is {first}: a sequence has one element type"
                );
            }
            sequence.push(item)?;
        }
        let Some(sequence) = sequence else { fail!("there are no tensors") };
        let counted = sequence.items().iter().map(Value::bytes).sum();
        call.uncount(counted);
        call.set_output(0, Value::Sequence(sequence))
    }

    fn describe(&self) -> String {
        "list".to_string()
    }
}

struct Empty(ValueType);

impl Kernel for Empty {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        call.set_output(0, Value::Sequence(Sequence::new(self.0.clone())))
    }

    fn describe(&self) -> String {
        "list".to_string()
    }
}

struct Erase;

impl Kernel for Erase {
    fn memory(&self) -> MemoryRules {
        MemoryRules { takes: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let position = position(call, 1)?;
        let mut sequence = take_sequence(call, 0)?;
        let index = index_of(position.unwrap_or(-1), sequence.len(), sequence.len())?;
        sequence.remove(index);
        call.set_output(0, Value::Sequence(sequence))
    }

    fn describe(&self) -> String {
        "remove an item".to_string()
    }
}

struct Insert;

impl Kernel for Insert {
    fn memory(&self) -> MemoryRules {
        MemoryRules { takes: Inputs::from_positions(&[0, 1]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let position = position(call, 2)?;
        let item = call.take(1)?;
        let counted = item.bytes();
        call.reserve(counted)?;
        let mut sequence = take_sequence(call, 0)?;
        let length = sequence.len();
        let index = match position {
            Some(position) => index_of(position, length, length + 1)?,
            None => length,
        };
        sequence.insert(index, item)?;
        call.uncount(counted);
        call.set_output(0, Value::Sequence(sequence))
    }

    fn describe(&self) -> String {
        "insert an item".to_string()
    }
}

struct Length;

impl Kernel for Length {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let length = sequence(call, 0)?.len() as i64;
        call.output_slice::<i64>(0, &[])?.fill(length);
        Ok(())
    }

    fn describe(&self) -> String {
        "length".to_string()
    }
}

struct Concat {
    axis: i64,
    /// Whether items are stacked along a new axis.
    is_new: bool,
}

impl Kernel for Concat {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let items = sequence(call, 0)?.items().iter().enumerate();
        let tensors = items.map(|(index, item)| match item {
            Value::Tensor(tensor) => Ok(tensor),
            other => fail!("item {index} is {}, not a tensor", other.value_type()),
        });
        let tensors = tensors.collect::<Result<Vec<&Tensor>, KernelError>>()?;
        let Some(first) = tensors.first() else {
            fail!("the sequence is empty");
        };
        let views: Vec<TensorView<'_>> = if self.is_new {
            if let Some(index) = tensors.iter().position(|tensor| tensor.dims() != first.dims()) {
                fail!(
                    "items 0 and {index} have shapes {:?} and {:?}, which cannot be stacked",
                    first.dims(),
                    tensors[index].dims()
                );
            }
            let mut dims = Dims::from(first.dims());
            shape::demand_rank(dims.len() + 1)?;
            dims.insert(normalize_axis(self.axis, dims.len() + 1)?, 1);
            tensors.iter().map(|tensor| tensor.view().reshape(&dims)).collect::<Result<_, _>>()?
        } else {
            tensors.iter().map(|tensor| tensor.view()).collect()
        };
        join(call, self.axis, &views, "items")
    }

    fn describe(&self) -> String {
        "join".to_string()
    }
}

struct SequenceSplit {
    axis: i64,
    /// Whether pieces keep the axis if no lengths are given, so that each has length 1.
    keeps_axis: bool,
}

impl Kernel for SequenceSplit {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let axis = normalize_axis(self.axis, data.rank())?;
        let lengths = lengths(call, axis, data.dims()[axis])?;
        let mut rest = Dims::from(data.dims());
        rest.remove(axis);
        let drops_axis = !self.keeps_axis && !call.has_input(1);

        let mut sequence = Sequence::new(ValueType::Tensor(data.data_type()));
        let overhead = lengths.count().saturating_mul(Sequence::ITEM_BYTES);
        call.reserve(overhead)?;
        sequence.reserve(lengths.count())?;
        let mut start = 0;
        let mut counted = overhead;
        for length in lengths.iter() {
            let piece = copy(call, &data.slice(axis, start, length, 1)?)?;
            counted = counted.saturating_add(piece.held_bytes());
            start += length;
            sequence.push(Value::Tensor(if drops_axis {
                piece.reshape(&rest[..])?
            } else {
                piece
            }))?;
        }
        call.uncount(counted);
        call.set_output(0, Value::Sequence(sequence))
    }

    fn describe(&self) -> String {
        "split".to_string()
    }
}

/// Lengths of the pieces of an axis.
enum Lengths {
    /// Pieces of equal length; the last may be shorter.
    Equal {
        length: usize,
        whole: usize,
    },
    Listed(SmallVec<[usize; 8]>),
}

impl Lengths {
    fn count(&self) -> usize {
        match self {
            Lengths::Equal { length, whole } => whole.div_ceil(*length),
            Lengths::Listed(lengths) => lengths.len(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).map(move |index| match self {
            Lengths::Equal { length, whole } => (whole - index * length).min(*length),
            Lengths::Listed(lengths) => lengths[index],
        })
    }
}

/// Returns the lengths of the pieces into which `split` cuts an axis of size `whole`.
fn lengths(call: &Call<'_>, axis: usize, whole: usize) -> Result<Lengths, KernelError> {
    if !call.has_input(1) {
        return Ok(Lengths::Equal { length: 1, whole });
    }
    let given = call.ints(1)?;
    match (call.tensor(1)?.rank(), &given[..]) {
        (0, [length]) => match usize::try_from(*length) {
            Ok(length) if length > 0 => Ok(Lengths::Equal { length, whole }),
            _ => fail!("the length of a part must be greater than 0, not {length}"),
        },
        (1, _) => {
            let lengths = given.iter().map(|length| usize::try_from(*length));
            let Ok(lengths) = lengths.collect::<Result<SmallVec<[usize; 8]>, _>>() else {
                fail!("the lengths {given:?} include a negative one");
            };
            let sum = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(*length));
            if sum != Some(whole) {
                fail!("the lengths {given:?} do not add up to the size {whole} of axis {axis}");
            }
            Ok(Lengths::Listed(lengths))
        }
        (rank, _) => fail!("split must be a scalar or 1-D, not of rank {rank}"),
    }
}
