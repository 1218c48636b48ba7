//! Conversion of images between rows and channels last.

use sardonyx_kernels::pixels;
use sardonyx_tensor::Dims;

use super::moves::copy_view;
use crate::error::KernelError;
use crate::kernel::{Call, Inputs, Kernel, MemoryRules};
use crate::layout::pitch_of_strides;
use crate::program::Order;

/// Kernel that changes the order of an image.
pub(crate) struct Reorder {
    pub(crate) to: Order,
}

impl Kernel for Reorder {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let dims = Dims::from(view.dims());
        let (exec, images) = (call.exec, dims[0]);
        let is_laid = call.has_layout(0);
        // A value in rows may be a part of another one.
        let is_image = pitch_of_strides(&dims, &view.strides()).is_some();
        if view.is_contiguous() && is_laid {
            let x = view.as_slice::<f32>()?;
            pixels::from_rows(exec, images, x, call.output_pixels(0, &dims)?)?;
            return Ok(());
        }
        let x = if is_image { call.pixels(0)? } else { None };
        match x {
            Some(x) if !is_laid => {
                pixels::to_rows(exec, images, x, call.output_slice::<f32>(0, &dims)?)?;
                Ok(())
            }
            _ => copy_view(call, 0, &view, &dims),
        }
    }

    fn describe(&self) -> String {
        match self.to {
            Order::Rows => "reorder to rows",
            Order::ChannelsLast => "reorder to channels last",
        }
        .to_string()
    }
}
