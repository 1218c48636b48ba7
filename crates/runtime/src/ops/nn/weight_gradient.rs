//! Gradient of the weights of a convolution, computed without transposing an operand.

use sardonyx_kernels::Isa;
use sardonyx_kernels::conv::{self, ConvParams};
use sardonyx_tensor::Dims;

use crate::error::{KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{self, Window};

struct WeightGradient {
    /// Window of the convolution.
    window: Window,
    isa: Isa,
}

/// Selects the kernel of a gradient of weights.
pub(crate) fn select(site: &Site<'_>, gradient: &program::WeightGradient) -> Box<dyn Kernel> {
    Box::new(WeightGradient { window: gradient.window.clone(), isa: site.isa })
}

impl Kernel for WeightGradient {
    fn describe(&self) -> String {
        format!("gradient of weights, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [x, dy]: [Dims; 2] = [call.tensor(0)?.dims().into(), call.tensor(1)?.dims().into()];
        let window = &self.window;
        let rank = window.kernel.len() + 2;
        if x.len() != rank || dy.len() != rank || x[0] != dy[0] {
            fail!("the input is {x:?}, but the gradient of the output is {dy:?}");
        }
        let placed = window.place(&x[2..])?;
        if placed.counts[..].iter().zip(&dy[2..]).any(|(windows, outputs)| windows < outputs) {
            fail!("there are {:?} windows, but the output is {:?}", placed.counts, &dy[2..]);
        }
        let params = ConvParams {
            strides: window.strides[..].into(),
            dilations: window.dilations[..].into(),
            pads_begin: placed.pads_begin[..].into(),
            pads_end: placed.pads_end[..].into(),
            ..ConvParams::new(x[1], dy[1], &window.kernel)
        };
        let gradient = conv::WeightGradient {
            params: &params,
            images: x[0],
            inputs: &x[2..],
            outputs: &dy[2..],
        };
        call.reserve(gradient.scratch(call.exec)?)?;
        let dims: Dims = [dy[1], x[1]].into_iter().chain(window.kernel.iter().copied()).collect();
        let exec = call.exec;
        let (x, dy) = (call.slice::<f32>(0)?, call.slice::<f32>(1)?);
        let dw = call.output_slice::<f32>(0, &dims)?;
        Ok(gradient.run(exec, x, dy, dw)?)
    }
}
