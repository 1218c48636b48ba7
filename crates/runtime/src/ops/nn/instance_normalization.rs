//! InstanceNormalization: every channel of every image by its own mean and variance.

use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::norm::{Affine, ByRow, Statistics};
use sardonyx_tensor::{Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

/// `InstanceNormalization`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let epsilon = f64::from(site.float("epsilon").unwrap_or(1e-5));
    for_element!(site, site.elem(0)?, floats, T => InstanceNormalization::<T> { epsilon, elements: PhantomData })
}

struct InstanceNormalization<T> {
    epsilon: f64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for InstanceNormalization<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let [_, channels, spatial @ ..] = &dims[..] else {
            fail!("the input must have batch and channels, not dimensions {:?}", &dims[..]);
        };
        let real = |index: usize| -> Result<Vec<T::Real>, KernelError> {
            let values: Vec<T::Real> =
                call.slice::<T>(index)?.iter().map(|value| value.to_real()).collect();
            if values.len() != *channels {
                fail!("input {index} has {} elements for {channels} channels", values.len());
            }
            Ok(values)
        };
        let (scale, shift) = (real(1)?, real(2)?);
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let inner: usize = spatial.iter().product();
        let y = call.output_slice::<T>(0, &dims)?;
        if inner == 0 || *channels == 0 {
            return Ok(());
        }
        let affine = Affine::Rows(&scale, &shift);
        let statistics = Statistics::MeanVariance;
        T::normalize_rows(
            exec,
            ByRow { statistics, len: inner, epsilon: self.epsilon, affine },
            x,
            y,
            None,
            None,
        );
        Ok(())
    }
}
