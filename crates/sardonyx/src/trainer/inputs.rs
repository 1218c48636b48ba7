//! Inputs of a training step or of inference: owned values, or views of memory of the caller.

use std::borrow::Cow;

use sardonyx_runtime::Input;
#[cfg(feature = "device")]
use sardonyx_tensor::TensorError;
use sardonyx_tensor::{TensorView, Value};

#[cfg(feature = "device")]
use crate::error::{Error, ErrorKind};

/// Named inputs of a training step or of inference.
#[derive(Clone, Copy)]
pub(super) enum StepInputs<'v> {
    Values(&'v [(Cow<'v, str>, Value)]),
    Views(&'v [(&'v str, TensorView<'v>)]),
}

impl<'v> StepInputs<'v> {
    /// Whether an input called `name` is given.
    pub(super) fn has_input(self, name: &str) -> bool {
        match self {
            StepInputs::Values(values) => values.iter().any(|(given, _)| given == name),
            StepInputs::Views(views) => views.iter().any(|(given, _)| *given == name),
        }
    }

    /// Converts the inputs to borrowed inputs of a session.
    pub(super) fn to_inputs(self) -> impl Iterator<Item = (&'v str, Input<'v>)> {
        let (values, views) = match self {
            StepInputs::Values(values) => (values, &[][..]),
            StepInputs::Views(views) => (&[][..], views),
        };
        let values = values.iter().map(|(name, value)| (&**name, Input::Borrowed(value)));
        values.chain(views.iter().map(|(name, view)| (*name, Input::View(view.clone()))))
    }

    /// Converts the inputs to owned values, which devices require; copies views.
    #[cfg(feature = "device")]
    pub(super) fn to_values(self) -> Result<Vec<(&'v str, Value)>, Error> {
        match self {
            StepInputs::Values(values) => {
                Ok(values.iter().map(|(name, value)| (&**name, value.clone())).collect())
            }
            StepInputs::Views(views) => {
                let mut values = Vec::with_capacity(views.len());
                for (name, view) in views {
                    let copy = view.to_tensor();
                    let copy =
                        copy.map_err(|e: TensorError| Error::new(ErrorKind::Run, e.to_string()))?;
                    values.push((*name, copy.into()));
                }
                Ok(values)
            }
        }
    }
}
