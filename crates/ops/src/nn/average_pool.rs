//! `AveragePool`: the mean of each window.
//!
//! Since 1; 7 adds `count_include_pad`, whose default is the behaviour of 1; 10 adds `ceil_mode`;
//! 11 only states defaults; 19 adds `dilations`; 22 adds bfloat16.
//!
//! No adapter to newer versions is needed: each new attribute's default is the older behaviour. The
//! documents of 11 to 18 round `auto_pad` SAME and VALID differently from all others. That
//! contradicts their own description of the attribute, and no implementation followed it, so it
//! counts as an error of the text. A window may reach beyond the padding because of `ceil_mode`:
//! since version 19 its mean counts padding (with `count_include_pad`), but no elements beyond it.
//! The older documents leave that open, and are taken to mean the same.

use super::window::pooled_shape;
use crate::attributes::Attributes;
use crate::denotation::IMAGES;
use crate::downward::drop_ones;
use crate::facts::*;
use crate::infer::Rule;
use crate::nn::gradients;
use crate::sharding::layers;
use crate::tensor::pad::PAD;
use crate::{Adapt, AttrValue, Infer, InferError, OpDef, Refusal};

pub static AVERAGE_POOL: OpDef = OpDef::new("AveragePool")
    .about(
        "Average pooling: the mean of each window. `count_include_pad` decides whether padding is \
         part of the mean. Positions beyond the padding, which `ceil_mode` may add, are never \
         counted.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            ints("kernel_shape").required(),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(7, &[int("count_include_pad").or(0)])
    .same_up()
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
    .infer_as_reference(infer_as_reference)
    .adapter(7, 6, pad_input)
    .adapter(19, 18, |cx| drop_ones(cx, "dilations"))
    .keeps_format(&[(0, IMAGES)])
    .gradient(gradients::average_pool)
    .split_by(layers::pool);

pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = pooled_shape(cx, Rule::Operator)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

pub(super) fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = pooled_shape(cx, Rule::Reference)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Adds padding that counts to the input as zeros, since version 1 counts no padding.
fn pad_input(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let counts = cx.int("count_include_pad").unwrap_or(0) != 0;
    cx.remove("count_include_pad");
    let pads = match cx.string("auto_pad").as_deref() {
        None | Some("NOTSET") => cx.ints("pads").unwrap_or_default(),
        Some("VALID") => Vec::new(),
        Some(word) if counts => {
            return Err(cx.refuse(format_args!(
                "count_include_pad must be 0 with auto_pad {word}: version 1 counts no padding"
            )));
        }
        Some(_) => return Ok(()),
    };
    if !counts || pads.iter().all(|size| *size == 0) {
        return Ok(());
    }
    if pads.len() % 2 != 0 || pads.iter().any(|size| *size < 0) {
        return Err(cx.refuse("pads has a negative size, or not two for each axis"));
    }
    let (before, after) = pads.split_at(pads.len() / 2);
    // Batch and channels have no padding.
    let all = [&[0, 0], before, &[0, 0], after].concat();
    let padded = cx.before(PAD.name, &[cx.input(0)], &[("pads", AttrValue::from(&all[..]))]);
    cx.set_input(0, Some(padded));
    cx.remove("pads");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::AVERAGE_POOL;
    use crate::AttrValue::Int;
    use crate::math::testing::lower_version;
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn counted_padding_becomes_part_of_the_input() {
        let counts = || ("count_include_pad", Int(1));
        let pads = |pads: &'static [i64]| ("pads", ints(pads));
        let rows = [
            (vec![counts()], "y = AveragePool(a)"),
            (vec![counts(), pads(&[0, 0])], "y = AveragePool(a) pads=[0, 0]"),
            (vec![("count_include_pad", Int(0)), pads(&[1, 2])], "y = AveragePool(a) pads=[1, 2]"),
            (
                vec![counts(), pads(&[1, 2])],
                "t2 = Pad(a) pads=[0, 0, 1, 0, 0, 2]; y = AveragePool(t2)",
            ),
            (
                vec![counts(), ("auto_pad", word("SAME_UPPER"))],
                "AveragePool: count_include_pad must be 0 with auto_pad SAME_UPPER: version 1 counts no padding",
            ),
        ];
        for (attributes, expected) in rows {
            assert_eq!(lower_version(&AVERAGE_POOL, 7, &attributes, "float[1, 1, N]"), expected);
        }
    }

    #[test]
    fn sizes_follow_from_windows() {
        let two = || [("kernel_shape", ints(&[2, 2])), ("strides", ints(&[2, 2]))];
        let [kernel, strides] = two();
        let same = [kernel.clone(), strides.clone(), ("auto_pad", word("SAME_UPPER"))];
        for opset in [1, 7, 10, 11, 19, 22] {
            check(
                &AVERAGE_POOL,
                opset,
                &[
                    (&two(), "float[1, 2, 5, 6]", "float[1, 2, 2, 3]"),
                    // The documents of 11 to 18 would round this down; see the head of the file.
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
