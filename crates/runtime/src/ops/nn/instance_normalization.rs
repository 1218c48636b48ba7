//! InstanceNormalization: normalizes each channel of each image by its mean and variance.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::norm::{Affine, RowNormalization, Statistics};
use sardonyx_kernels::number::Number;
use sardonyx_tensor::{Dims, Element};

use super::images::{OverPixels, WithPixels};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::scratch::Scratch;

/// Binds `InstanceNormalization`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let epsilon = f64::from(site.float("epsilon").unwrap_or(1e-5));
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => InstanceNormalization::<T> { epsilon, elements: PhantomData });
    Ok(WithPixels::with_same_order(site, rows?, OverPixels::Groups { groups: None, epsilon }))
}

struct InstanceNormalization<T> {
    epsilon: f64,
    elements: PhantomData<fn() -> T>,
}

/// Returns a parameter of each channel in the type in which elements are computed.
pub(super) fn per_channel<T: Element + Number>(
    call: &Call<'_>,
    index: usize,
    channels: usize,
) -> Result<Scratch<T::Real>, KernelError>
where
    T::Real: Pod,
{
    let values = call.slice::<T>(index)?;
    if values.len() != channels {
        fail!("input {index} has {} elements for {channels} channels", values.len());
    }
    let mut reals = call.scratch::<T::Real>(channels)?;
    for (real, value) in reals.iter_mut().zip(values) {
        *real = value.to_real();
    }
    Ok(reals)
}

impl<T: Element + FloatLoops> Kernel for InstanceNormalization<T>
where
    T::Real: Pod,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let [_, channels, spatial @ ..] = &dims[..] else {
            fail!("the input must have batch and channels, not dimensions {:?}", &dims[..]);
        };
        let (scale, shift) =
            (per_channel::<T>(call, 1, *channels)?, per_channel::<T>(call, 2, *channels)?);
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let inner: usize = spatial.iter().product();
        call.reserve_slices::<T>(2 * inner)?;
        let y = call.output_slice::<T>(0, &dims)?;
        if inner == 0 || *channels == 0 {
            return Ok(());
        }
        let affine = Affine::Rows(&scale, &shift);
        let statistics = Statistics::MeanVariance;
        T::normalize_rows(
            exec,
            RowNormalization { statistics, len: inner, epsilon: self.epsilon, affine },
            x,
            y,
            None,
            None,
        )?;
        Ok(())
    }
}
