//! Tensors that stay on the devices in parts.

use sardonyx_passes::{Device, Form, transfers};
use sardonyx_tensor::{DataType, Tensor};

use super::exchange::Block;
use crate::error::{Error, ErrorKind};

/// A tensor as devices have it: whole on some of them, or in parts.
#[derive(Debug)]
pub(crate) struct Parts {
    elem: DataType,
    dims: Vec<usize>,
    form: Form,
    /// The parts of the devices of this process.
    own: Vec<(Device, Tensor)>,
}

impl Parts {
    /// The parts that devices have of a tensor.
    pub(super) fn of(
        whole: &Tensor,
        form: &Form,
        devices: impl Iterator<Item = Device>,
    ) -> Result<Parts, Error> {
        let dims = whole.dims();
        let mut own = Vec::new();
        for device in devices.filter(|device| form.is_on(*device)) {
            let part = if form.is_whole() { whole.clone() } else { part(whole, form, device)? };
            own.push((device, part));
        }
        Ok(Parts { elem: whole.data_type(), dims: dims.to_vec(), form: form.clone(), own })
    }

    /// Parts that devices have computed of a tensor of a type.
    ///
    /// # Errors
    ///
    /// One that does not fit.
    pub(super) fn computed(
        (elem, dims): &(DataType, Vec<usize>),
        form: &Form,
        own: Vec<(Device, Tensor)>,
    ) -> Result<Parts, Tensor> {
        for (device, part) in &own {
            let wanted = form.dims(*device, dims);
            if part.data_type() != *elem || wanted.as_deref() != Some(part.dims()) {
                return Err(part.clone());
            }
        }
        Ok(Parts { elem: *elem, dims: dims.clone(), form: form.clone(), own })
    }

    /// The part of a device of this process.
    pub(super) fn on(&self, device: Device) -> Option<&Tensor> {
        self.own.iter().find(|(own, _)| *own == device).map(|(_, part)| part)
    }

    /// The whole tensor.
    pub(crate) fn whole(&self) -> Result<Tensor, Error> {
        if self.form.is_whole() {
            let first = self.own.first().map(|(_, part)| part.clone());
            return first.ok_or_else(elsewhere);
        }
        let mut whole = zeros(self.elem, &self.dims)?;
        let bytes =
            whole.bytes_mut().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))?;
        let on = |device| self.form.dims(device, &self.dims).unwrap_or_default();
        for transfer in transfers(&self.form, &Form::whole([0]), &self.dims) {
            let part = self.on(transfer.from).ok_or_else(elsewhere)?;
            let block = Block::new(transfer.from, &transfer, &on(transfer.from), &self.dims);
            block.copy(self.elem.bits().unwrap_or(0) / 8, part.bytes(), bytes);
        }
        Ok(whole)
    }
}

/// The part of a tensor that a device has in a form that is not whole.
fn part(whole: &Tensor, form: &Form, device: Device) -> Result<Tensor, Error> {
    let dims = whole.dims();
    let own = form.only_on(&[device].into());
    let want = own.dims(device, dims).unwrap_or_default();
    let mut part = zeros(whole.data_type(), &want)?;
    let bytes = part.bytes_mut().map_err(|error| Error::new(ErrorKind::Run, error.to_string()))?;
    for transfer in transfers(&Form::whole([device]), &own, dims) {
        let block = Block::new(device, &transfer, dims, &want);
        block.copy(whole.data_type().bits().unwrap_or(0) / 8, whole.bytes(), bytes);
    }
    Ok(part)
}

fn zeros(elem: DataType, dims: &[usize]) -> Result<Tensor, Error> {
    Tensor::zeros(elem, dims).map_err(|error| Error::new(ErrorKind::Run, error.to_string()))
}

fn elsewhere() -> Error {
    Error::new(ErrorKind::Worker, "a part of a state variable is in another process")
}
