//! GlobalAveragePool and GlobalMaxPool: a reduction over all spatial axes that keeps them with size
//! 1.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_kernels::pixels::Total;
use sardonyx_kernels::reduce::Reduce;
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use super::images::{OverPixels, WithPixels};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

/// `GlobalAveragePool`
pub(crate) fn bind_average(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => GlobalPool::<T> { what: Reduce::Mean, elements: PhantomData });
    of_either(site, rows?, Total::Mean)
}

/// `GlobalMaxPool`
pub(crate) fn bind_max(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => GlobalPool::<T> { what: Reduce::Max, elements: PhantomData });
    of_either(site, rows?, Total::Max)
}

fn of_either(
    site: &Site<'_>,
    rows: Box<dyn Kernel>,
    total: Total,
) -> Result<Box<dyn Kernel>, BindError> {
    Ok(match site.elem(0)? {
        DataType::Float => WithPixels::reading(rows, OverPixels::Total(total, true)),
        _ => rows,
    })
}

struct GlobalPool<T> {
    what: Reduce,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + Loops> Kernel for GlobalPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input: Dims = call.tensor(0)?.dims().into();
        if input.len() < 2 {
            fail!("the input must have batch and channels, not dimensions {:?}", &input[..]);
        }
        let axes: SmallVec<[bool; 6]> = (0..input.len()).map(|axis| axis >= 2).collect();
        let dims: Dims = (input.iter().zip(&axes))
            .map(|(size, reduced)| if *reduced { 1 } else { *size })
            .collect();
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let y = call.output_slice::<T>(0, &dims)?;
        T::reduce(exec, self.what, &input, &axes, x, y);
        Ok(())
    }
}
