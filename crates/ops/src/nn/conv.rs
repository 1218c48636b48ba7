//! Conv: cross-correlation of `[N, C, D1, …]` with `M` kernels `[M, C / group, K1, …]`.
//!
//! Since 1; 11 only words defaults; 22 adds bfloat16.
//!
//! `auto_pad` SAME always meant one window per stride; the later documents say it more clearly.

use sardonyx_model::{Dim, Shape};

use super::window::Window;
use crate::facts::*;
use crate::{Infer, InferError, OpDef};

pub static CONV: OpDef = OpDef::new("Conv")
    .since(
        1,
        &[
            input("X", "T"),
            input("W", "T"),
            input("B", "T").optional(),
            output("Y", "T"),
            string("auto_pad").or_string("NOTSET"),
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
    .since(22, &[types("T", FLOATS_IR4)])
    .infer(infer);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = infer_shape(cx)?;
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn infer_shape(cx: &Infer<'_>) -> Result<Option<Shape>, InferError> {
    let (x, w) = (cx.shape(0), cx.shape(1));
    let given = cx.ints("kernel_shape");
    // Each of the three tells the number of spatial axes.
    let Some(rank) = w.or(x).map(|shape| shape.len()).or_else(|| given.as_ref().map(|kernel| kernel.len() + 2)) else {
        return Ok(None);
    };
    if rank < 3 {
        return cx.fail(format_args!("inputs need a spatial axis, but have rank {rank}"));
    }
    cx.demand_rank(0, rank)?;
    cx.demand_rank(2, 1)?;
    let mut kernel = w.map_or_else(|| vec![Dim::Unknown; rank - 2], |w| w[2..].to_vec());
    if let Some(given) = given {
        if given.len() != kernel.len() {
            return cx.fail(format_args!(
                "kernel_shape has {} elements, but inputs of rank {rank} have {} spatial axes",
                given.len(),
                kernel.len()
            ));
        }
        for (axis, (size, given)) in kernel.iter_mut().zip(given).enumerate() {
            *size = cx.same_dim(&Dim::Known(given), size, format_args!("sizes {axis} of kernel_shape and W"))?;
        }
    }
    let channels = check_channels(cx, x, w)?;
    let window = Window::new(cx, kernel)?;
    let (batch, counts) = match x {
        Some(x) => (x[0].clone(), window.counts(cx, x)?),
        None => (Dim::Unknown, vec![Dim::Unknown; rank - 2]),
    };
    Ok(Some([batch, channels].into_iter().chain(counts).collect()))
}

/// The number of output channels.
fn check_channels(cx: &Infer<'_>, x: Option<&Shape>, w: Option<&Shape>) -> Result<Dim, InferError> {
    let group = cx.int("group").unwrap_or(1);
    if group < 1 {
        return cx.fail(format_args!("group must be positive, not {group}"));
    }
    if let (Some(x), Some(w)) = (x, w) {
        let expected = w[1].mul(&Dim::Known(group));
        cx.same_dim(&x[1], &expected, "channels of X and of W times group")?;
    }
    let mut channels = w.map_or(Dim::Unknown, |w| w[0].clone());
    if let Some(found) = channels.known().filter(|channels| channels % group != 0) {
        return cx.fail(format_args!("{found} output channels do not split into {group} groups"));
    }
    if let Some(bias) = cx.shape(2) {
        channels = cx.same_dim(&channels, &bias[0], "output channels of W and B")?;
    }
    Ok(channels)
}
