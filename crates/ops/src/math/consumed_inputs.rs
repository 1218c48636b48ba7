//! `consumed_inputs`: before opset 6 a node said which of its inputs the result may overwrite.
//!
//! It was a hint about memory without influence on the result, so leaving it out is exact.

use crate::adapt::{Adapt, Refusal};

/// Opset 5 to 6: the attribute goes.
pub(crate) fn remove(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    cx.remove("consumed_inputs");
    Ok(())
}
