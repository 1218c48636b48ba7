//! Versions of operators that accept fewer element types than the previous version: integers were
//! removed, as the standard did not define their results.

use sardonyx_tensor::DataType;

use crate::adapt::{Adapt, Refusal};
use crate::attributes::AttrValue;
use crate::tensor::cast::CAST;

/// Accepts a node on floats, which means the same in the newer version. In order to run, a node on
/// integers computes in double, and its result is truncated.
pub(crate) fn check(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    match cx.input_type(0).and_then(|ty| ty.elem()) {
        Some(elem) if elem.is_float() => Ok(()),
        Some(elem) if cx.runs() => {
            let to = |elem: DataType| [("to", AttrValue::Int(elem.number().into()))];
            let wide = cx.before(CAST.name, &[cx.input(0)], &to(DataType::Double));
            cx.set_input(0, Some(wide));
            cx.after(0, CAST.name, &[], &to(elem));
            Ok(())
        }
        Some(elem) => {
            Err(cx.refuse(format_args!("the newer version supports only floats, not {elem}")))
        }
        None => {
            Err(cx
                .refuse("the newer version supports only floats, and the element type is unknown"))
        }
    }
}
