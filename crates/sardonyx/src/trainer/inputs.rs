//! Inputs of a step or of inference: values that the caller gives away, or memory of the caller.

use std::borrow::Cow;

use sardonyx_runtime::Input;
use sardonyx_tensor::{TensorError, TensorView, Value};

use crate::error::{Error, ErrorKind};

/// Inputs of a call by name.
#[derive(Clone, Copy)]
pub(super) enum StepInputs<'v> {
    Values(&'v [(Cow<'v, str>, Value)]),
    Views(&'v [(&'v str, TensorView<'v>)]),
}

impl<'v> StepInputs<'v> {
    pub(super) fn has(self, name: &str) -> bool {
        match self {
            StepInputs::Values(values) => values.iter().any(|(given, _)| given == name),
            StepInputs::Views(views) => views.iter().any(|(given, _)| *given == name),
        }
    }

    /// Returns the inputs as a session takes them.
    pub(super) fn borrowed(self) -> impl Iterator<Item = (&'v str, Input<'v>)> {
        let (values, views) = match self {
            StepInputs::Values(values) => (values, &[][..]),
            StepInputs::Views(views) => (&[][..], views),
        };
        let values = values.iter().map(|(name, value)| (&**name, Input::Borrowed(value)));
        values.chain(views.iter().map(|(name, view)| (*name, Input::View(view.clone()))))
    }

    /// Copies views into values, which is what devices take.
    pub(super) fn to_values(self) -> Result<Vec<(&'v str, Value)>, Error> {
        match self {
            StepInputs::Values(values) => {
                Ok(values.iter().map(|(name, value)| (&**name, value.clone())).collect())
            }
            StepInputs::Views(views) => {
                let refused = |e: TensorError| Error::new(ErrorKind::Run, e.to_string());
                let copy = |(name, view): &(&'v str, TensorView<'v>)| {
                    Ok((*name, view.to_tensor().map_err(refused)?.into()))
                };
                views.iter().map(copy).collect()
            }
        }
    }
}
