//! LRN: local response normalization across channels.

use sardonyx_kernels::norm::LocalResponse;
use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_tensor::{Dims, Element};

use super::images::{OverPixels, WithPixels};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

/// Binds `LRN`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let size = site.need_int("size")?;
    let size = match usize::try_from(size) {
        Ok(size) if size > 0 => size,
        _ => {
            return Err(BindError::Invalid(format!("size must be positive, not {size}")));
        }
    };
    let response = LocalResponse {
        size,
        alpha: site.float("alpha").unwrap_or(1e-4),
        beta: site.float("beta").unwrap_or(0.75),
        bias: site.float("bias").unwrap_or(1.0),
    };
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => Lrn::<T> {
        response,
        elements: PhantomData,
    });
    Ok(WithPixels::with_same_order(site, rows?, OverPixels::Local(response)))
}

struct Lrn<T> {
    response: LocalResponse,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for Lrn<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let [batch, channels, spatial @ ..] = &dims[..] else {
            fail!("the input must have batch and channels, not dimensions {:?}", &dims[..]);
        };
        let sizes = [*batch, *channels, spatial.iter().product()];
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        call.reserve_slices::<T>(2 * sizes[1] * sizes[2])?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::local_response_norm(exec, sizes.into(), self.response, x, y)?;
        Ok(())
    }
}
