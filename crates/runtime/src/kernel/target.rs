//! Memory for the outputs of a step: places in the plan, or memory of their own.

use std::sync::Arc;

use sardonyx_tensor::{
    Buffer, DataType, Dims, Recycler, Tensor, TensorError, TensorViewMut, Value,
};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::layout::Layout;

/// Destination of an output.
pub(crate) enum Target<'a> {
    /// Output without a reader.
    Absent,
    /// Planned memory: in rows unless `laid`.
    Planned {
        data_type: DataType,
        dims: &'a Dims,
        bytes: &'a mut [u8],
        laid: Option<OutputLayout<'a>>,
    },
    /// Memory of its own.
    Owned(Option<Value>),
}

/// Layout of an output that is not in rows.
#[derive(Clone, Copy)]
pub(crate) struct OutputLayout<'a> {
    pub(crate) layout: &'a Layout,
    /// Whether the output is a part of another value, which owns the gaps between the elements.
    pub(crate) is_part: bool,
}

/// Source of memory for outputs without a place in the plan.
#[derive(Clone, Copy)]
pub(crate) struct MemorySource<'a> {
    pub(crate) recycler: Option<&'a Arc<Recycler>>,
    pub(crate) account: &'a Account,
}

impl MemorySource<'_> {
    /// Allocates and charges a tensor.
    pub(crate) fn tensor(self, data_type: DataType, dims: &[usize]) -> Result<Tensor, KernelError> {
        self.tensor_by(data_type, dims, Recycler::take)
    }

    /// Allocates and charges a tensor for the time of a call. With a memory limit, a much larger
    /// recycled block is not used.
    pub(crate) fn scratch(
        self,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<Tensor, KernelError> {
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
        // Charges first, so that a size known only from data is refused before it is allocated.
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

/// Describes a value for messages: a tensor with its dimensions, any other by its type.
pub(crate) fn describe_value(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("{}{:?}", tensor.data_type().name(), tensor.dims()),
        other => other.value_type().to_string(),
    }
}

/// Returns the memory of output `index`.
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
            // Inference and kernels are written independently; a difference is a bug of one of
            // them.
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
