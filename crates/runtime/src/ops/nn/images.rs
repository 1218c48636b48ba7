//! Kernels over pixels, for images of floats whose channels come last.
//!
//! Each also has a kernel for rows, which runs if sizes are unknown before the run.

use std::iter::repeat_n;

use sardonyx_kernels::norm::LocalResponse;
use sardonyx_kernels::pixels::{self, GroupNorm, PixelsMut, Total};
use sardonyx_kernels::pooling::Divisor;
use sardonyx_kernels::softmax::Softmax;
use sardonyx_tensor::{DataType, Dims};

use super::pool::Geometry;
use crate::error::{KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::program::{Images, Order, Window};

/// Operation over pixels.
pub(crate) enum OverPixels {
    AveragePool(Window, Divisor),
    MaxPool(Window),
    Local(LocalResponse),
    /// Normalizes groups of channels, or with `None` each channel, by mean and variance. Inputs 1
    /// and 2 are scale and shift.
    Groups {
        groups: Option<usize>,
        epsilon: f64,
    },
    Affine {
        scale: Vec<f32>,
        shift: Vec<f32>,
    },
    Softmax(Softmax),
    /// Reduces each image to one pixel, in rows; whether its axes are kept.
    Total(Total, bool),
}

/// Kernel with a form over pixels and one for rows.
pub(crate) struct WithPixels {
    rows: Box<dyn Kernel>,
    pixels: OverPixels,
}

impl WithPixels {
    /// Makes the kernel of a step whose result has the order of its operand: the one for rows only
    /// if that is the order.
    pub(crate) fn with_same_order(
        site: &Site<'_>,
        rows: Box<dyn Kernel>,
        pixels: OverPixels,
    ) -> Box<dyn Kernel> {
        match site.orders.output {
            Order::Rows => rows,
            Order::ChannelsLast => Box::new(WithPixels { rows, pixels }),
        }
    }

    /// Makes the kernel of pooling, whose results may be single pixels, which lie in both orders.
    pub(crate) fn pooling(
        site: &Site<'_>,
        rows: Box<dyn Kernel>,
        pixels: OverPixels,
    ) -> Box<dyn Kernel> {
        match site.elem(0) {
            Ok(DataType::Float) => WithPixels::reading(rows, pixels),
            _ => rows,
        }
    }

    /// Makes the kernel of a step that reads either order.
    pub(crate) fn reading(rows: Box<dyn Kernel>, pixels: OverPixels) -> Box<dyn Kernel> {
        Box::new(WithPixels { rows, pixels })
    }
}

/// Returns how an operator with loops over pixels reads images: it gains from channels last.
pub(crate) fn gains(_: &Site<'_>) -> Images {
    Images::Alike { gain: 1 }
}

/// Returns how an operator reads images that accepts either order.
pub(crate) fn reads(_: &Site<'_>) -> Images {
    Images::Read
}

/// Returns the memory of an output image, which may be in rows only if it has one pixel.
fn pooled_pixels<'a>(call: &'a mut Call<'_>, dims: &[usize]) -> Result<PixelsMut<'a>, KernelError> {
    if call.has_layout(0) {
        return call.output_pixels(0, dims);
    }
    if dims[2..].iter().any(|size| *size != 1) {
        fail!("output 0 is in rows, input 0 is not");
    }
    Ok(PixelsMut::new(call.output_slice(0, dims)?, dims[0], dims[1], dims[1]))
}

impl Kernel for WithPixels {
    /// Allows the layouts of the kernel for rows, but no reuse of inputs.
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[], ..self.rows.memory() }
    }

    fn describe(&self) -> String {
        let rows = self.rows.describe();
        if rows.is_empty() { "over pixels".to_string() } else { format!("{rows}, over pixels") }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        // The result's order decides, as an image of one pixel has both. If the result is one
        // pixel, the operand's order decides.
        let has_pixels = match self.pixels {
            OverPixels::Total(..) => !call.tensor(0)?.is_contiguous(),
            OverPixels::AveragePool(..) | OverPixels::MaxPool(_) => {
                call.has_layout(0) || !call.tensor(0)?.is_contiguous()
            }
            _ => call.has_layout(0),
        };
        if !has_pixels {
            return self.rows.run(call);
        }
        let Some(x) = call.pixels(0)? else {
            fail!("input 0 is in rows, output 0 is not");
        };
        let (exec, dims) = (call.exec, Dims::from(call.tensor(0)?.dims()));
        let images = dims[0];
        match &self.pixels {
            OverPixels::AveragePool(window, divisor) => {
                let g = Geometry::new(window, &dims)?;
                let y = pooled_pixels(call, &g.output)?;
                pixels::average_pool(exec, images, &g.window(), *divisor, x, y)?;
            }
            OverPixels::MaxPool(window) => {
                let g = Geometry::new(window, &dims)?;
                pixels::max_pool(exec, images, &g.window(), x, pooled_pixels(call, &g.output)?)?;
            }
            OverPixels::Local(response) => {
                pixels::local_response_norm(exec, *response, x, call.output_pixels(0, &dims)?)?;
            }
            OverPixels::Groups { groups, epsilon } => {
                let groups = groups.unwrap_or(dims[1]);
                let (scale, shift) = (call.slice::<f32>(1)?, call.slice::<f32>(2)?);
                let fits = groups > 0 && dims[1].is_multiple_of(groups);
                if !fits || [scale.len(), shift.len()] != [dims[1]; 2] {
                    fail!(
                        "{} channels in {groups} groups have {} scales and {} shifts",
                        dims[1],
                        scale.len(),
                        shift.len()
                    );
                }
                let norm = GroupNorm { groups, epsilon: *epsilon, scale, shift };
                pixels::group_norm(exec, images, norm, x, call.output_pixels(0, &dims)?)?;
            }
            OverPixels::Affine { scale, shift } => {
                if scale.len() != dims[1] {
                    fail!("{} channels have parameters for {}", dims[1], scale.len());
                }
                let y = call.output_pixels(0, &dims)?;
                pixels::scale_shift(exec, scale, shift, Some(x), y)?;
            }
            OverPixels::Softmax(op) => {
                pixels::softmax(exec, *op, Some(x), call.output_pixels(0, &dims)?)?;
            }
            OverPixels::Total(total, keeps_dims) => {
                let kept = if *keeps_dims { dims.len() - 2 } else { 0 };
                let to: Dims = dims[..2].iter().copied().chain(repeat_n(1, kept)).collect();
                let y = PixelsMut::new(call.output_slice(0, &to)?, images, dims[1], dims[1]);
                pixels::reduce(exec, *total, images, x, y)?;
            }
        }
        Ok(())
    }
}
