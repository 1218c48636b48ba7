//! AveragePool: the mean of each window.
//!
//! Since 1; 7 adds `count_include_pad` (its default is what 1 did); 10 adds `ceil_mode`; 11 only
//! words defaults; 19 adds `dilations`; 22 adds bfloat16.
//!
//! No adapter is needed: each new attribute's default is the older behaviour. The documents of 11
//! to 18 round `auto_pad` SAME and VALID otherwise than those before and after. That contradicts
//! their own attribute description, and no implementation followed it, so it counts as an error of
//! the text. Version 19 settled what a window counts that `ceil_mode` lets reach over the padding
//! (with `count_include_pad`): padding it counts, what lies beyond it does not. The older documents
//! leave that open, so the same is taken to hold for them.

use super::window::pooled_shape;
use crate::denotation::IMAGES;
use crate::downward::drop_ones;
use crate::facts::*;
use crate::{Infer, InferError, OpDef};

pub(crate) static AVERAGE_POOL: OpDef = OpDef::new("AveragePool")
    .about("The mean of each window.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            string("auto_pad").or_string("NOTSET"),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(7, &[int("count_include_pad").or(0)])
    .same_up()
    .types_down()
    .since(10, &[int("ceil_mode").or(0)])
    .same_up()
    .types_down()
    .since(11, &[input("X", "T").differentiable(), output("Y", "T").differentiable()])
    .same()
    .since(19, &[ints("dilations")])
    .same_up()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .adapter(19, 18, |cx| drop_ones(cx, "dilations"))
    .keeps_format(&[(0, IMAGES)]);

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = pooled_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::AVERAGE_POOL;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn windows() {
        let two = || [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
        let [kernel, strides] = two();
        let same = [kernel.clone(), strides.clone(), ("auto_pad", word("SAME_UPPER"))];
        for opset in [1, 7, 10, 11, 19, 22] {
            check(
                &AVERAGE_POOL,
                opset,
                &[
                    (&two(), "float[1, 2, 5, 6]", "float[1, 2, 2, 3]"),
                    // The documents of 11 to 18 would round this down; see above.
                    (&same, "float[1, 2, 5, 6]", "float[1, 2, 3, 3]"),
                    (&two(), "float[...]", "float[?, ?, ?, ?]"),
                ],
            );
        }
        check(
            &AVERAGE_POOL,
            10,
            &[(
                &[kernel, strides, ("ceil_mode", Int(1))],
                "float[1, 2, 5, 6]",
                "float[1, 2, 3, 3]",
            )],
        );
    }
}
