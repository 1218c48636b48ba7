//! `consumed_inputs`: an attribute before opset 6 that listed the inputs that the result may
//! overwrite.
//!
//! It was a hint about memory that did not influence the result, so removing it is exact.

use crate::adapt::{Adapt, Refusal};

/// Removes the attribute, from opset 5 to 6.
pub(crate) fn remove(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    cx.remove("consumed_inputs");
    Ok(())
}
