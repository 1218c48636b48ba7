//! Clip: what is below the first limit becomes that limit, what is above the second becomes that
//! one.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_tensor::{Dims, Element};

use super::for_element;
use crate::kernel::{BindError, Call, Kernel, KernelError, Pointwise, Site, fail};

/// See the module.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, numeric, T => Clip::<T> { elements: PhantomData })
}

struct Clip<T> {
    elements: PhantomData<T>,
}

impl<T: Loops + Element> Kernel for Clip<T> {
    fn in_place(&self) -> &[usize] {
        &[0]
    }

    fn pointwise(&self) -> Option<Pointwise> {
        Some(Pointwise::Clip)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (low, high) = (limit(call, 1, T::LOWEST)?, limit(call, 2, T::HIGHEST)?);
        if let Some((_, x)) = call.in_place::<T>()? {
            T::clip_in_place(exec, low, high, x);
            return Ok(());
        }
        let (x, dims) = (call.slice::<T>(0)?, Dims::from(call.tensor(0)?.dims()));
        T::clip(exec, low, high, x, call.output_slice::<T>(0, &dims)?);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("Clip of {}", T::DATA_TYPE)
    }
}

fn limit<T: Element>(call: &Call<'_>, index: usize, absent: T) -> Result<T, KernelError> {
    match call.maybe_slice::<T>(index)? {
        None => Ok(absent),
        Some([limit]) => Ok(*limit),
        Some(limits) => {
            fail!("input {index} must be one number, but has {} elements", limits.len())
        }
    }
}
