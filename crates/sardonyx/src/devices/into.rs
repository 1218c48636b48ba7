//! Runs on devices that read and write tensors in the caller's memory.

use std::sync::{Arc, PoisonError};

use sardonyx_runtime::{Port, RunOptions};
use sardonyx_tensor::{Tensor, TensorView, TensorViewMut};

use super::DeviceSession;
use crate::error::{Error, ErrorKind};

impl DeviceSession {
    /// Runs the model on borrowed inputs and writes its outputs into memory of the caller, like
    /// [`Session::run_into`](crate::Session::run_into). Outputs that `outputs` does not name are
    /// dropped. Each input and output is copied once, as devices are other threads or processes;
    /// the copy of an input reuses the memory of the last run's copy if type and sizes are equal.
    ///
    /// ```
    /// use sardonyx::device::{DeviceOptions, Division, ShardOptions};
    /// use sardonyx::{Model, RunOptions, Session, TensorView, TensorViewMut};
    ///
    /// let text = "<ir_version: 11, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) { a = Abs (x)  y = Neg (a) }";
    /// let two = ShardOptions::new(Division::Pipeline, 2);
    /// let (model, _) = Model::from_text(text)?.shard(&two)?;
    /// let session = Session::builder(&model).devices(DeviceOptions::new())?;
    /// let mut y = [0.0f32; 2];
    /// let x = TensorView::from_slice([2], &[3.0f32, -4.0])?;
    /// let into = TensorViewMut::from_slice([2], &mut y)?;
    /// session.run_into(&[("x", x)], &mut [("y", into)], &RunOptions::default())?;
    /// assert_eq!(y, [-3.0, -4.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::run`]; [`ErrorKind::Input`] if the memory of an output has
    /// another type or other sizes. Outputs that were written before the error stay written.
    pub fn run_into(
        &self,
        inputs: &[(&str, TensorView<'_>)],
        outputs: &mut [(&str, TensorViewMut<'_>)],
        options: &RunOptions<'_>,
    ) -> Result<(), Error> {
        for (index, (name, _)) in outputs.iter().enumerate() {
            if !self.outputs().iter().any(|port| port.name() == *name) {
                let names: Vec<&str> = self.outputs().iter().map(Port::name).collect();
                let message = format!("the model has no output '{name}'");
                return Err(Error::new(ErrorKind::Input, message).with_help(format!(
                    "use one of the model's outputs: '{}'",
                    names.join("', '")
                )));
            }
            if outputs[..index].iter().any(|(before, _)| before == name) {
                let message = format!("the output '{name}' is requested twice");
                return Err(Error::new(ErrorKind::Input, message));
            }
        }
        let copies = self.copy_inputs(inputs)?;
        let found = self.run_many([copies.clone()], options)?.pop().unwrap_or_default();
        *self.copied.lock().unwrap_or_else(PoisonError::into_inner) = copies;
        for (name, memory) in outputs {
            memory.copy_from(&found.tensor(name)?.view()).map_err(|error| {
                Error::new(ErrorKind::Input, format!("the output '{name}': {error}"))
            })?;
        }
        Ok(())
    }

    /// Copies the inputs of a run. Reuses the memory of the last run's copies of equal type and
    /// sizes.
    fn copy_inputs(
        &self,
        inputs: &[(&str, TensorView<'_>)],
    ) -> Result<Vec<(Arc<str>, Tensor)>, Error> {
        let mut last =
            std::mem::take(&mut *self.copied.lock().unwrap_or_else(PoisonError::into_inner));
        let mut copies = Vec::with_capacity(inputs.len());
        for (name, view) in inputs {
            let reusable = last.iter().position(|(known, copy)| {
                **known == **name
                    && copy.data_type() == view.data_type()
                    && copy.dims() == view.dims()
                    && copy.data_type().bits().is_some()
            });
            let (name, copied) = match reusable {
                Some(at) => {
                    let (name, mut copy) = last.swap_remove(at);
                    let copied = copy.bytes_mut().and_then(|bytes| view.copy_to(bytes));
                    (name, copied.map(|()| copy))
                }
                None => (self.find_name(name)?, view.to_tensor()),
            };
            let copy = copied.map_err(|error| {
                Error::new(ErrorKind::Run, format!("the input '{name}': {error}"))
            })?;
            copies.push((name, copy));
        }
        Ok(copies)
    }
}
