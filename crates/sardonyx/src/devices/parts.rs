//! Tensors that stay on the devices between runs, whole or as shards.

use sardonyx_shard::{Device, Form, transfers};
use sardonyx_tensor::{DataType, Tensor};

use super::exchange::Block;
use crate::error::{Error, ErrorKind};

/// A tensor that is distributed over devices: replicated on some devices, or split into shards.
#[derive(Debug)]
pub(crate) struct Parts {
    elem: DataType,
    dims: Vec<usize>,
    form: Form,
    /// Shards on the devices of this process; copies of the whole tensor if it is replicated.
    own: Vec<(Device, Tensor)>,
}

impl Parts {
    /// Distributes a whole tensor: cuts out the shard of each of `devices` that holds one according
    /// to the sharding `form`.
    pub(super) fn from_whole(
        whole: &Tensor,
        form: &Form,
        devices: impl Iterator<Item = Device>,
    ) -> Result<Parts, Error> {
        let dims = whole.dims();
        let mut own = Vec::new();
        for device in devices.filter(|device| form.is_on(*device)) {
            let part = if form.is_whole() { whole.clone() } else { cut_part(whole, form, device)? };
            own.push((device, part));
        }
        Ok(Parts { elem: whole.data_type(), dims: dims.to_vec(), form: form.clone(), own })
    }

    /// Collects the shards `own`, computed by devices of this process, of a tensor of element type
    /// `elem` and sizes `dims`.
    ///
    /// # Errors
    ///
    /// Returns as the error the first shard whose element type or sizes differ from those that the
    /// sharding `form` gives its device.
    pub(super) fn from_computed(
        elem: DataType,
        dims: &[usize],
        form: &Form,
        own: Vec<(Device, Tensor)>,
    ) -> Result<Parts, Tensor> {
        for (device, part) in &own {
            let wanted = form.dims(*device, dims);
            if part.data_type() != elem || wanted.as_deref() != Some(part.dims()) {
                return Err(part.clone());
            }
        }
        Ok(Parts { elem, dims: dims.to_vec(), form: form.clone(), own })
    }

    /// Returns the shard of the tensor on a device of this process; `None` if the device holds
    /// none.
    pub(super) fn find_shard(&self, device: Device) -> Option<&Tensor> {
        self.own.iter().find(|(own, _)| *own == device).map(|(_, part)| part)
    }

    /// Gathers the shards of the tensor, all of which must be in this process, into the whole
    /// tensor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Worker`] if a shard is in another process.
    pub(crate) fn gather_whole(&self) -> Result<Tensor, Error> {
        if self.form.is_whole() {
            let first = self.own.first().map(|(_, part)| part.clone());
            return first.ok_or_else(make_missing_shard_error);
        }
        let mut whole = make_zeros(self.elem, &self.dims)?;
        let bytes =
            whole.bytes_mut().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))?;
        for transfer in transfers(&self.form, &Form::whole([0]), &self.dims) {
            let part = self.find_shard(transfer.from).ok_or_else(make_missing_shard_error)?;
            let have = self.form.dims(transfer.from, &self.dims).unwrap_or_default();
            let block = Block::new(transfer.from, &transfer, &have, &self.dims);
            block.copy(self.elem.bits().unwrap_or(0) / 8, part.bytes(), bytes);
        }
        Ok(whole)
    }
}

/// Copies the shard of `device` out of a whole tensor. The sharding `form` must split the tensor.
fn cut_part(whole: &Tensor, form: &Form, device: Device) -> Result<Tensor, Error> {
    let dims = whole.dims();
    let own = form.only_on(&[device].into());
    let want = own.dims(device, dims).unwrap_or_default();
    let mut part = make_zeros(whole.data_type(), &want)?;
    let bytes = part.bytes_mut().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))?;
    for transfer in transfers(&Form::whole([device]), &own, dims) {
        let block = Block::new(device, &transfer, dims, &want);
        block.copy(whole.data_type().bits().unwrap_or(0) / 8, whole.bytes(), bytes);
    }
    Ok(part)
}

/// Allocates a tensor of zeros, and converts a failure into an error of a run.
fn make_zeros(elem: DataType, dims: &[usize]) -> Result<Tensor, Error> {
    Tensor::zeros(elem, dims).map_err(|error| Error::new(ErrorKind::Run, error.to_string()))
}

/// Makes the error for a state variable with a shard in another process.
fn make_missing_shard_error() -> Error {
    Error::new(ErrorKind::Worker, "a shard of a state variable is in another process")
}
