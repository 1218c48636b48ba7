//! Versions that take fewer element types than the one before: integers, whose results nobody had
//! defined, went away.

use crate::adapt::{Adapt, Refusal};

/// Only a node on floats is the same in the newer version.
pub(crate) fn check(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    match cx.input_type(0).and_then(|ty| ty.elem()) {
        Some(elem) if elem.is_float() => Ok(()),
        Some(elem) => {
            Err(cx.refuse(format_args!("the newer version takes floats only, not {elem}")))
        }
        None => {
            Err(cx.refuse("the newer version takes floats only, and the element type is not known"))
        }
    }
}
