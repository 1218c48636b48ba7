//! `Conv`: cross-correlation of `[N, C, D1, …]` with `M` kernels `[M, C / group, K1, …]`.
//!
//! Since 1; 11 only states defaults; 22 adds bfloat16.
//!
//! `auto_pad` SAME always meant one window for each `stride` elements; later documents only
//! describe it more clearly.

use sardonyx_model::{Dim, Shape};

use super::window::Window;
use crate::denotation::{FILTERS, IMAGES};
use crate::facts::*;
use crate::infer::Rule;
use crate::nn::gradients;
use crate::sharding::layers;
use crate::{Infer, InferError, OpDef};

pub static CONV: OpDef = OpDef::new("Conv")
    .about(
        "Convolution (cross-correlation) of an input `[N, C, D1, …]` with `M` filters `[M, C / \
         group, K1, …]`. The size of each spatial output axis is `floor((D + pad_begin + pad_end - \
         dilation * (K - 1) - 1) / stride) + 1`.",
    )
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_word("NOTSET"),
            ints("dilations"),
            int("group").or(1),
            ints("kernel_shape"),
            ints("pads"),
            ints("strides"),
            types("T", FLOATS),
        ],
    )
    .since(
        11,
        &[
            input("X", "T").differentiable(),
            input("W", "T").differentiable(),
            input("B", "T").optional().differentiable(),
            output("Y", "T").differentiable(),
        ],
    )
    .same()
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer)
    .infer_as_reference(infer_as_reference)
    .keeps_format(&[(0, IMAGES), (1, FILTERS)])
    .cost(|node| node.convolution(1))
    .gradient(gradients::conv)
    .split_by(layers::conv);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = PLAIN.output_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = PLAIN.shape_as_reference(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

/// Indices of the inputs of a convolution.
pub(crate) struct Convolution {
    pub(crate) x: usize,
    pub(crate) w: usize,
    pub(crate) bias: Option<usize>,
}

const PLAIN: Convolution = Convolution { x: 0, w: 1, bias: Some(2) };

impl Convolution {
    /// Infers the output shape: one channel per kernel, and one element per window.
    pub(crate) fn output_shape(&self, cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
        self.shape_of(cx, cx.shape(self.x), cx.shape(self.w))
    }

    /// Returns the output shape for an input and filters of these shapes.
    pub(crate) fn shape_of(
        &self,
        cx: &Infer<'_>,
        x: Option<&Shape>,
        w: Option<&Shape>,
    ) -> Result<Option<Shape>, InferError> {
        let given = cx.ints("kernel_shape");
        // Each of the three determines the number of spatial axes.
        let Some(rank) = w
            .or(x)
            .map(|shape| shape.len())
            .or_else(|| given.as_ref().map(|kernel| kernel.len() + 2))
        else {
            return Ok(None);
        };
        if rank < 3 {
            return cx.fail(format_args!("inputs require a spatial axis, but have rank {rank}"));
        }
        if let Some(found) = x.map(|x| x.len()).filter(|found| *found != rank) {
            return cx.fail(format_args!(
                "the weight tensor has rank {rank}, but the input has rank {found}"
            ));
        }
        let channels = self.channels(cx, x, w)?;
        let kernel = kernel_sizes(cx, w, given.as_deref(), rank)?;
        let window = Window::new(cx, kernel)?;
        let (batch, counts) = match x {
            Some(x) => (x[0].clone(), window.counts(cx, x, Rule::Operator)?),
            None => (Dim::Unknown, vec![Dim::Unknown; rank - 2]),
        };
        Ok(Some([batch, channels].into_iter().chain(counts).collect()))
    }

    /// Infers like the reference implementation, which compares no channels, prefers `kernel_shape`
    /// to the sizes of the weights, and leaves the rank open unless all sizes of the kernel are
    /// known.
    pub(crate) fn shape_as_reference(&self, cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
        let (Some(x), Some(w)) = (cx.shape(self.x), cx.shape(self.w)) else {
            return Ok(None);
        };
        if x.len() < 3 {
            return cx
                .fail(format_args!("inputs require a spatial axis, but have rank {}", x.len()));
        }
        let kernel: Vec<Dim> = match cx.ints("kernel_shape") {
            Some(given) => given.into_iter().map(Dim::Known).collect(),
            None => w.iter().skip(2).cloned().collect(),
        };
        if kernel.iter().any(|size| size.known().is_none()) {
            return Ok(None);
        }
        if kernel.len() != x.len() - 2 {
            let what = if cx.ints("kernel_shape").is_some() {
                "kernel_shape"
            } else {
                "the weight tensor"
            };
            return cx.fail(format_args!(
                "{what} has {} spatial axes, but the input has {}",
                kernel.len(),
                x.len() - 2
            ));
        }
        let Some(channels) = w.first() else {
            return cx.fail("the weight tensor has no axis of channels");
        };
        let counts = Window::new(cx, kernel)?.counts(cx, x, Rule::Reference)?;
        let dims = [x[0].clone(), channels.clone()];
        Ok(Some(dims.into_iter().chain(counts).collect()))
    }

    /// Returns the number of output channels.
    fn channels(
        &self,
        cx: &Infer<'_>,
        x: Option<&Shape>,
        w: Option<&Shape>,
    ) -> Result<Dim, InferError> {
        let group = group(cx)?;
        if let (Some(x), Some(w)) = (x, w) {
            let expected = w[1].mul(&Dim::Known(group));
            cx.same_dim(&x[1], &expected, "channels of X and of W times group")?;
        }
        let mut channels = w.map_or(Dim::Unknown, |w| w[0].clone());
        if let Some(found) = channels.known().filter(|channels| channels % group != 0) {
            return cx.fail(format_args!(
                "{found} output channels cannot be divided into {group} groups"
            ));
        }
        if let Some(bias) = self.bias {
            cx.demand_rank(bias, 1)?;
            if let Some(bias) = cx.shape(bias) {
                channels = cx.same_dim(&channels, &bias[0], "output channels of W and B")?;
            }
        }
        Ok(channels)
    }
}

/// Returns the number of groups.
pub(super) fn group(cx: &Infer<'_>) -> Result<i64, InferError> {
    match cx.int("group").unwrap_or(1) {
        group @ 1.. => Ok(group),
        group => cx.fail(format_args!("group must be positive, not {group}")),
    }
}

/// Returns the sizes of the kernel, on which the weights and `kernel_shape` must agree.
pub(super) fn kernel_sizes(
    cx: &Infer<'_>,
    w: Option<&Shape>,
    given: Option<&[i64]>,
    rank: usize,
) -> Result<Vec<Dim>, InferError> {
    let mut kernel = w.map_or_else(|| vec![Dim::Unknown; rank - 2], |w| w[2..].to_vec());
    let Some(given) = given else {
        return Ok(kernel);
    };
    if given.len() != kernel.len() {
        return cx.fail(format_args!(
            "kernel_shape has {} elements, but inputs of rank {rank} have {} spatial axes",
            given.len(),
            kernel.len()
        ));
    }
    for (axis, (size, given)) in kernel.iter_mut().zip(given).enumerate() {
        *size = cx.same_dim(
            &Dim::Known(*given),
            size,
            format_args!("sizes {axis} of kernel_shape and W"),
        )?;
    }
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::CONV;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn known_sizes_give_known_shapes() {
        check(
            &CONV,
            11,
            &[
                (&[], "float[1, 3, 224, 224]; float[64, 3, 7, 7]", "float[1, 64, 218, 218]"),
                (
                    &[("pads", ints(&[3, 3, 3, 3])), ("strides", ints(&[2, 2]))],
                    "float[1, 3, 224, 224]; float[64, 3, 7, 7]; float[64]",
                    "float[1, 64, 112, 112]",
                ),
                (&[("dilations", ints(&[2]))], "float[2, 4, 10]; float[4, 4, 3]", "float[2, 4, 6]"),
                (&[("group", Int(4))], "float[2, 4, 10]; float[8, 1, 3]", "float[2, 8, 8]"),
                (
                    &[("auto_pad", word("SAME_UPPER")), ("strides", ints(&[2]))],
                    "float[2, 4, 9]; float[8, 4, 3]",
                    "float[2, 8, 5]",
                ),
                (
                    &[
                        ("auto_pad", word("SAME_LOWER")),
                        ("strides", ints(&[2])),
                        ("pads", ints(&[0, 0])),
                    ],
                    "float[2, 4, 8]; float[8, 4, 3]",
                    "float[2, 8, 4]",
                ),
                (
                    &[("auto_pad", word("VALID")), ("strides", ints(&[2]))],
                    "float[2, 4, 9]; float[8, 4, 3]",
                    "float[2, 8, 4]",
                ),
                (&[], "float[0, 4, 9]; float[8, 4, 3]", "float[0, 8, 7]"),
                (&[], "float[1, 4, 0]; float[8, 4, 3]", "float[1, 8, 0]"),
            ],
        );
    }

    #[test]
    fn symbolic_sizes_give_expressions() {
        check(
            &CONV,
            22,
            &[
                (
                    &[("pads", ints(&[1, 1, 1, 1]))],
                    "float[N, 3, H, W]; float[8, 3, 3, 3]",
                    "float[N, 8, H, W]",
                ),
                (
                    &[("strides", ints(&[2])), ("pads", ints(&[1, 1]))],
                    "float[N, 3, H]; float[M, 3, 3]",
                    "float[N, M, floor((H - 1)/2) + 1]",
                ),
                // One window per stride is the same expression with explicit pads and with
                // `auto_pad`.
                (
                    &[("strides", ints(&[2])), ("auto_pad", word("SAME_UPPER"))],
                    "float[N, 3, H]; float[M, 3, 3]",
                    "float[N, M, floor((H - 1)/2) + 1]",
                ),
                (&[], "float[?, 3, ?, 5]; float[8, 3, 3, 3]", "float[?, 8, ?, 3]"),
                (
                    &[("kernel_shape", ints(&[3]))],
                    "float[1, 3, 9]; float[8, ?, ?]",
                    "float[1, 8, 7]",
                ),
                (&[], "float[...]; float[8, 3, 3]", "float[?, 8, ?]"),
                (&[], "float[1, 3, 9]; float[...]; float[8]", "float[1, 8, ?]"),
                (&[("kernel_shape", ints(&[3, 3]))], "float[...]; float[...]", "float[?, ?, ?, ?]"),
                (&[], "float[...]; float[...]", "float[...]"),
                (&[], "-; -", "?[...]"),
            ],
        );
    }

    #[test]
    fn contradictions_are_refused() {
        check(
            &CONV,
            1,
            &[
                (
                    &[],
                    "float[1, 3, 9]; float[8, 4, 3]",
                    "Conv: channels of X and of W times group differ (3 and 4)",
                ),
                (
                    &[("group", Int(3))],
                    "float[1, 3, 9]; float[8, 1, 3]",
                    "Conv: 8 output channels cannot be divided into 3 groups",
                ),
                (
                    &[],
                    "float[1, 3, 9]; float[8, 3, 3, 3]",
                    "Conv: the weight tensor has rank 4, but the input has rank 3",
                ),
                (
                    &[],
                    "float[1, 3]; float[8, 3]",
                    "Conv: inputs require a spatial axis, but have rank 2",
                ),
                (
                    &[],
                    "float[1, 3, 9]; float[8, 3, 3]; float[7]",
                    "Conv: output channels of W and B differ (8 and 7)",
                ),
                (
                    &[("kernel_shape", ints(&[5]))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: sizes 0 of kernel_shape and W differ (5 and 3)",
                ),
                (
                    &[("strides", ints(&[1, 1]))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: strides has 2 elements, but there are 1 spatial axes",
                ),
                (
                    &[("strides", ints(&[0]))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: strides must be positive, not 0",
                ),
                (
                    &[("pads", ints(&[1]))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: pads has 1 elements, but 1 spatial axes require 2",
                ),
                (
                    &[("auto_pad", word("SAME"))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: auto_pad has no value \"SAME\"",
                ),
                (
                    &[("group", Int(0))],
                    "float[1, 3, 9]; float[8, 3, 3]",
                    "Conv: group must be positive, not 0",
                ),
                (
                    &[("dilations", ints(&[4])), ("pads", ints(&[0, 1]))],
                    "float[1, 3, 6]; float[8, 3, 3]",
                    "Conv: the kernel spans 9 elements, but spatial axis 0 has 6 with padding 0 and 1",
                ),
            ],
        );
    }
}
