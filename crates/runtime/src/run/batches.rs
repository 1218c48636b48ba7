//! `Scan` of version 8: scans each sequence of a batch, whose lengths may differ.
//!
//! Stacked outputs of shorter sequences are padded with zeros.

use sardonyx_tensor::shape::{elems, strides};
use sardonyx_tensor::{DataType, Dims, Tensor, TensorView, Value};

use super::stack::Slices;
use super::{Failed, RegionStep, Run, Watch};
use crate::error::{KernelError, fail};
use crate::kernel::{Call, Operand, Target};
use crate::memory::{Memory, Planned};

/// Sizes of a batch.
#[derive(Clone, Copy)]
struct BatchSizes {
    /// Number of sequences.
    batch: usize,
    /// Number of slices of the longest sequence.
    longest: usize,
}

impl Run<'_> {
    /// Runs the body of a region for each sequence of a batch. The first operand has their lengths,
    /// if given; the operands of the scan follow.
    pub(super) fn run_batches(
        &self,
        at: RegionStep<'_>,
        planned: &[Planned],
        inner: &mut Option<Box<Memory>>,
        call: &mut Call<'_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<(), Failed> {
        let kind = &at.region.kind;
        let carried = kind.carried_count();
        let scanned = kind.input_count() - carried;
        let counts = counts(call, carried, scanned)?;
        let lengths = lengths(call, counts)?;
        let mut all: Vec<Option<Tensor>> = call.targets.iter().map(|_| None).collect();
        // An empty batch runs once on zeros without slices, which determines the types and sizes of
        // outputs.
        let blanks = if lengths.is_empty() { blanks(call, carried + scanned)? } else { Vec::new() };
        let no_length = blanks.first().map(|_| &0);
        for (index, length) in lengths.iter().chain(no_length).enumerate() {
            let mut operands = Vec::with_capacity(call.operands.len() - 1);
            for (position, operand) in call.operands.iter().enumerate().skip(1) {
                operands.push(match operand {
                    Operand::Tensor(_) if position <= blanks.len() => {
                        Operand::Tensor(blanks[position - 1].view())
                    }
                    Operand::Tensor(view) if position <= carried + scanned => {
                        Operand::Tensor(part(view, index)?)
                    }
                    Operand::Tensor(view) => Operand::Tensor(view.clone()),
                    Operand::Value(value) => Operand::Value(value),
                    _ => Operand::Absent,
                });
            }
            let targets = call.targets.iter().map(|_| Target::Owned(None)).collect();
            let mut one = Call { operands, targets, over: None, ..*call };
            let slices = Slices::from_call(kind, &one)?.map(|slices| slices.truncate(*length));
            self.run_iterations(at, planned, inner, &mut one, slices, watch)?;
            for (position, target) in one.targets.into_iter().enumerate() {
                let Target::Owned(Some(Value::Tensor(tensor))) = target else {
                    return Err("an output is not a tensor".to_string().into());
                };
                let is_stacked = position >= carried;
                add(&mut all[position], &tensor, index, counts, is_stacked)?;
            }
        }
        for (index, whole) in all.into_iter().enumerate() {
            let Some(tensor) = whole else {
                return Err("the batch has size 0, so the shapes of outputs are unknown"
                    .to_string()
                    .into());
            };
            call.set_output(index, Value::Tensor(tensor))?;
        }
        Ok(())
    }
}

/// Makes zeros as first operands of an empty batch.
fn blanks(call: &Call<'_>, count: usize) -> Result<Vec<Tensor>, KernelError> {
    let blank = |position: usize| {
        let view = call.tensor(position)?;
        let (elem, dims) = (view.data_type(), &view.dims()[1..]);
        call.reserve(elem.storage_bytes(elems(dims)?).unwrap_or(0))?;
        Ok(Tensor::zeros(elem, dims)?)
    };
    (1..=count).map(blank).collect()
}

/// Writes the result of sequence `index` into an output of the whole batch.
fn add(
    whole: &mut Option<Tensor>,
    part: &Tensor,
    index: usize,
    counts: BatchSizes,
    is_stacked: bool,
) -> Result<(), KernelError> {
    let mut dims = Dims::from(part.dims());
    if is_stacked {
        dims[0] = counts.longest;
    }
    dims.insert(0, counts.batch);
    let whole = match whole {
        Some(whole) if whole.dims() == &dims[..] => whole,
        Some(whole) => {
            let (first, is) = (&whole.dims()[1..], part.dims());
            fail!("an output is {is:?} for sequence {index}, but {first:?} for those before");
        }
        none => none.insert(Tensor::zeros(part.data_type(), &dims)?),
    };
    if counts.batch == 0 {
        return Ok(());
    }
    let size = whole_bytes(part.data_type(), &dims[1..])?;
    let bytes = part.bytes();
    whole.bytes_mut()?[index * size..][..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// Returns the size of elements in bytes; fails for elements smaller than a byte.
fn whole_bytes(elem: DataType, dims: &[usize]) -> Result<usize, KernelError> {
    match elem.bits() {
        Some(bits) if bits % 8 == 0 => Ok(elems(dims)? * (bits / 8)),
        _ => fail!("a batch of {} cannot be scanned", elem.name()),
    }
}

/// Returns the number of sequences, and the maximum length.
fn counts(call: &Call<'_>, carried: usize, scanned: usize) -> Result<BatchSizes, KernelError> {
    let mut found: Option<(usize, usize)> = None;
    let mut batch = None;
    for position in 1..=carried + scanned {
        let dims = call.tensor(position)?.dims();
        let is_scanned = position > carried;
        if dims.len() < 1 + usize::from(is_scanned) {
            fail!("input {position} is {dims:?}, which has no axis for the batch");
        }
        if *batch.get_or_insert(dims[0]) != dims[0] {
            fail!("input {position} is {dims:?}, but the batch before had another size");
        }
        if is_scanned {
            let (first, longest) = *found.get_or_insert((position, dims[1]));
            if longest != dims[1] {
                fail!(
                    "input {position} has {} slices, but input {first} has has {longest}",
                    dims[1]
                );
            }
        }
    }
    let longest = found.map_or(0, |(_, longest)| longest);
    Ok(BatchSizes { batch: batch.unwrap_or(0), longest })
}

/// Returns the number of slices of each sequence.
fn lengths(call: &Call<'_>, counts: BatchSizes) -> Result<Vec<usize>, KernelError> {
    let BatchSizes { batch, longest, .. } = counts;
    if !call.has_input(0) {
        return Ok(vec![longest; batch]);
    }
    let given = call.slice::<i64>(0)?;
    if given.len() != batch {
        fail!("sequence_lens has {} elements for a batch of {batch}", given.len());
    }
    let length = |length: &i64| match usize::try_from(*length) {
        Ok(length) if length <= longest => Ok(length),
        _ => fail!("sequence_lens has the element {length}, but there are {longest} slices"),
    };
    given.iter().map(length).collect()
}

/// Returns element `index` of a tensor along its first axis.
fn part<'a>(view: &TensorView<'a>, index: usize) -> Result<TensorView<'a>, KernelError> {
    let dims = Dims::from(&view.dims()[1..]);
    let elem = view.data_type();
    let size = whole_bytes(elem, &dims)?;
    let Some(bytes) = view.contiguous_bytes() else {
        let offset = view.offset() + index * elems(&dims)?;
        return Ok(TensorView::with_strides(elem, &dims, strides(&dims), offset, view.data())?);
    };
    Ok(TensorView::new(elem, &dims, &bytes[index * size..(index + 1) * size])?)
}
