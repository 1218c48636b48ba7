//! `MaxPool`: the largest element of each window, and its position.
//!
//! Since 1; 8 adds the output `Indices` and `storage_order`; 10 adds `ceil_mode` and `dilations`;
//! 11 only states defaults; 12 adds 8-bit integers; 22 adds bfloat16.
//!
//! No adapter is needed: each new attribute's default is the older behaviour.

use sardonyx_tensor::DataType;

use super::window::pooled_shape;
use crate::denotation::IMAGES;
use crate::downward::drop_ones;
use crate::facts::*;
use crate::infer::Rule;
use crate::nn::gradients;
use crate::sharding::layers;
use crate::{Adapt, Infer, InferError, OpDef, Refusal, TypeSet};

pub static MAX_POOL: OpDef = OpDef::new("MaxPool")
    .about("Max pooling: the maximum of each window, and optionally its index. NaN if the window has a \
         NaN.")
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
    .since(
        8,
        &[
            output("Indices", "I").optional(),
            int("storage_order").or(0),
            types("I", TypeSet::tensors(&[DataType::Int64])),
        ],
    )
    .same_up()
    .since(10, &[int("ceil_mode").or(0), ints("dilations")])
    .same_up()
    .since(11, &[])
    .same()
    .since(
        12,
        &[
            input("X", "T").differentiable(),
            output("Y", "T").differentiable(),
            output("Indices", "I").optional().non_differentiable(),
            types("T", FLOATS.and(BYTES)),
        ],
    )
    .widens()
    .since(22, &[types("T", FLOATS_IR4.and(BYTES))])
    .widens()
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .adapter(8, 7, drop_indices)
    .adapter(10, 9, |cx| drop_ones(cx, "dilations"))
    .keeps_format(&[(0, IMAGES)])
    .gradient(gradients::max_pool)
    .split_by(layers::pool);

const BYTES: TypeSet = TypeSet::tensors(&[DataType::Int8, DataType::Uint8]);

/// Removes the indices if they have no reader.
fn drop_indices(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    if cx.is_used(1) {
        return Err(cx.refuse("version 1 has no output for indices"));
    }
    if cx.has_output(1) {
        cx.drop_output(1);
    }
    // It only matters for indices.
    cx.remove("storage_order");
    Ok(())
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Operator)
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    infer_by(cx, Rule::Reference)
}

fn infer_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let shape = pooled_shape(cx, rule)?;
    cx.set_tensor(0, cx.elem(0), shape.clone());
    cx.set_tensor(1, Some(DataType::Int64), shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::MAX_POOL;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, ints, outputs, word};

    #[test]
    fn sizes_follow_from_windows() {
        let three = || ("kernel_shape", ints(&[3]));
        let stride = |stride: &'static [i64]| ("strides", ints(stride));
        check(
            &MAX_POOL,
            12,
            &[
                (&[three()], "float[1, 2, 8]", "float[1, 2, 6]"),
                (&[three(), stride(&[2])], "float[1, 2, 8]", "float[1, 2, 3]"),
                (
                    &[three(), stride(&[2]), ("ceil_mode", Int(1))],
                    "float[1, 2, 8]",
                    "float[1, 2, 4]",
                ),
                // The window of the last stride would start in the padding.
                (
                    &[
                        ("kernel_shape", ints(&[2])),
                        stride(&[2]),
                        ("pads", ints(&[1, 1])),
                        ("ceil_mode", Int(1)),
                    ],
                    "float[1, 2, 3]",
                    "float[1, 2, 2]",
                ),
                (
                    &[("kernel_shape", ints(&[1])), stride(&[3]), ("ceil_mode", Int(1))],
                    "float[1, 2, 4]",
                    "float[1, 2, 2]",
                ),
                (
                    &[("kernel_shape", ints(&[1])), stride(&[3]), ("ceil_mode", Int(1))],
                    "float[1, 2, 3]",
                    "float[1, 2, 1]",
                ),
                (
                    &[("kernel_shape", ints(&[4])), stride(&[2]), ("ceil_mode", Int(1))],
                    "float[1, 2, 3]",
                    "float[1, 2, 1]",
                ),
                (
                    &[
                        ("kernel_shape", ints(&[2])),
                        stride(&[2]),
                        ("ceil_mode", Int(1)),
                        ("auto_pad", word("VALID")),
                    ],
                    "float[1, 2, 5]",
                    "float[1, 2, 3]",
                ),
                (&[three(), ("dilations", ints(&[3]))], "float[1, 2, 8]", "float[1, 2, 2]"),
                (
                    &[three(), stride(&[2]), ("auto_pad", word("SAME_LOWER"))],
                    "float[1, 2, 7]",
                    "float[1, 2, 4]",
                ),
                (&[three(), stride(&[2])], "float[N, C, L]", "float[N, C, floor((L - 3)/2) + 1]"),
                (
                    &[three(), stride(&[2]), ("ceil_mode", Int(1))],
                    "float[N, C, L]",
                    "float[N, C, floor((L - 2)/2) + 1]",
                ),
                // No window fits, and the result is empty.
                (&[three()], "float[1, 2, 2]", "float[1, 2, 0]"),
                (&[three()], "float[...]", "float[?, ?, ?]"),
                (&[three()], "float[?, ?, ?]", "float[?, ?, ?]"),
                (&[], "float[1, 2, 8]", "float[...]"),
                (
                    &[three()],
                    "float[1, 2, 8, 8]",
                    "MaxPool: a kernel with 1 spatial axes requires an input of rank 3, not 4",
                ),
                (
                    &[three()],
                    "float[1, 2, 1]",
                    "MaxPool: the kernel spans 3 elements, but spatial axis 0 has 1 with padding 0 and 0",
                ),
                (
                    &[("kernel_shape", ints(&[0]))],
                    "float[1, 2, 2]",
                    "MaxPool: the kernel must have positive sizes, not 0",
                ),
            ],
        );
    }

    /// Checks that the closed form for `ceil_mode` equals the rule in two steps.
    #[test]
    fn no_window_starts_in_the_padding_at_the_end() {
        for size in 1..12i64 {
            for (kernel, pads) in [(1, [0, 0]), (2, [0, 1]), (3, [1, 1]), (3, [0, 2]), (4, [1, 3])]
            {
                for stride in 1..5i64 {
                    let reach = kernel + (kernel - 1);
                    if size + pads[0] + pads[1] < reach {
                        continue;
                    }
                    let attributes = [
                        ("kernel_shape", crate::AttrValue::Ints(vec![kernel].into())),
                        ("strides", crate::AttrValue::Ints(vec![stride].into())),
                        ("dilations", ints(&[2])),
                        ("pads", crate::AttrValue::Ints(pads.to_vec().into())),
                        ("ceil_mode", Int(1)),
                    ];
                    // Rounded up, minus a last window that would start in the padding.
                    let mut expected = (size + pads[0] + pads[1] - reach + stride - 1) / stride + 1;
                    if (expected - 1) * stride >= size + pads[0] {
                        expected -= 1;
                    }
                    let found =
                        outputs(&MAX_POOL, 12, &attributes, &format!("float[1, 1, {size}]"), 1);
                    assert_eq!(
                        found,
                        format!("float[1, 1, {expected}]"),
                        "{size} {kernel} {pads:?} {stride}"
                    );
                }
            }
        }
    }

    #[test]
    fn indices_have_the_same_shape() {
        let found = outputs(&MAX_POOL, 8, &[("kernel_shape", ints(&[2]))], "float16[N, 1, 4]", 2);
        assert_eq!(found, "float16[N, 1, 3]; int64[N, 1, 3]");
    }
}
