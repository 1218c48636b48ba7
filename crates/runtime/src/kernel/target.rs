//! Where outputs of a step go: places in the plan, or memory of their own.

use std::sync::Arc;

use sardonyx_tensor::{
    Buffer, DataType, Dims, Recycler, Tensor, TensorError, TensorViewMut, Value,
};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::layout::Layout;

/// Where a node writes.
pub(crate) enum Target<'a> {
    /// Nobody wants the output.
    Absent,
    /// Into planned memory: in rows, if nothing else is said.
    Planned { data_type: DataType, dims: &'a Dims, bytes: &'a mut [u8], laid: Option<Laid<'a>> },
    /// Into memory of its own.
    Owned(Option<Value>),
}

/// How an output lies that is not in rows.
#[derive(Clone, Copy)]
pub(crate) struct Laid<'a> {
    pub(crate) layout: &'a Layout,
    /// Whether it is a part of another value, to which belongs what lies between.
    pub(crate) is_part: bool,
}

/// Where memory for outputs comes from that have no place in the plan.
#[derive(Clone, Copy)]
pub(crate) struct MemorySource<'a> {
    pub(crate) recycler: Option<&'a Arc<Recycler>>,
    pub(crate) account: &'a Account,
}

impl MemorySource<'_> {
    /// Memory of its own for a tensor, counted.
    pub(crate) fn tensor(self, data_type: DataType, dims: &[usize]) -> Result<Tensor, KernelError> {
        self.tensor_by(data_type, dims, Recycler::take)
    }

    /// The same for the time of a call. Where memory is limited, no block is lent for much less
    /// than it has.
    pub(crate) fn brief(self, data_type: DataType, dims: &[usize]) -> Result<Tensor, KernelError> {
        let is_limited = self.account.is_limited();
        let take = if is_limited { Recycler::take } else { Recycler::take_briefly };
        self.tensor_by(data_type, dims, take)
    }

    fn tensor_by(
        self,
        data_type: DataType,
        dims: &[usize],
        take: fn(&Arc<Recycler>, usize) -> Result<Buffer, TensorError>,
    ) -> Result<Tensor, KernelError> {
        let bytes = data_type.storage_bytes(sardonyx_tensor::shape::elems(dims)?);
        // Before it is taken, so that a size that only the data tells is refused at once.
        self.account.charge(bytes.unwrap_or(0))?;
        Ok(match (bytes, self.recycler) {
            (Some(bytes), Some(recycler)) => {
                if self.account.is_limited() {
                    recycler.keep_at_most(self.account.left());
                }
                Tensor::from_buffer(data_type, dims, take(recycler, bytes)?)?
            }
            _ => Tensor::zeros(data_type, dims)?,
        })
    }
}

/// A value as messages tell of it: a tensor with its dimensions.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("{}{:?}", tensor.data_type().name(), tensor.dims()),
        other => other.value_type().to_string(),
    }
}

/// Memory for the output that has the number `index`.
pub(super) fn memory_of<'t>(
    target: Option<&'t mut Target<'_>>,
    index: usize,
    source: MemorySource<'_>,
    data_type: DataType,
    dims: &[usize],
) -> Result<TensorViewMut<'t>, KernelError> {
    let Some(target) = target else {
        fail!("output {index} is not requested");
    };
    if let Target::Absent = target {
        *target = Target::Owned(None);
    }
    match target {
        Target::Planned { laid: Some(_), .. } => {
            fail!("output {index} has its channels last, which this kernel does not write");
        }
        Target::Planned { data_type: planned, dims: planned_dims, bytes, laid: None } => {
            // Inference and kernel are written apart; where they disagree, one of them is wrong.
            if *planned != data_type || &planned_dims[..] != dims {
                fail!(
                    "output {index} is {}{dims:?}, but {}{:?} was inferred",
                    data_type.name(),
                    planned.name(),
                    &planned_dims[..]
                );
            }
            Ok(TensorViewMut::over(data_type, planned_dims, bytes)?)
        }
        Target::Owned(slot) => {
            let value = slot.insert(Value::Tensor(source.tensor(data_type, dims)?));
            match value {
                Value::Tensor(tensor) => Ok(tensor.view_mut()?),
                _ => fail!("output {index} is not a tensor"),
            }
        }
        Target::Absent => unreachable!("it has been replaced"),
    }
}
