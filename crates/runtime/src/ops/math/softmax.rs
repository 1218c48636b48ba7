//! Softmax, LogSoftmax and Hardmax along one axis.

use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::softmax::Softmax;
use sardonyx_tensor::{Dims, Element, shape::normalize_axis};

use super::{dims_in_place, for_element};
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::ops::nn::images::{OverPixels, WithPixels};
use crate::program::Images;

/// Binds `Hardmax`.
pub(crate) fn bind_hardmax(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Softmax::Hardmax)
}

/// Binds `LogSoftmax`.
pub(crate) fn bind_log_softmax(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Softmax::LogSoftmax)
}

/// Binds `Softmax`.
pub(crate) fn bind_softmax(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Softmax::Softmax)
}

fn bind(site: &Site<'_>, op: Softmax) -> Result<Box<dyn Kernel>, BindError> {
    let axis = site.need_int("axis")?;
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => AlongAxis::<T> { op, axis, elements: PhantomData });
    Ok(WithPixels::with_same_order(site, rows?, OverPixels::Softmax(op)))
}

/// Returns how the kernel reads images: over channels there are loops for channels last.
pub(crate) fn images(site: &Site<'_>) -> Images {
    let rank = site.shape(0).map(|shape| shape.len() as i64);
    match (site.int("axis"), rank) {
        (Some(axis), Some(rank)) if axis == 1 || axis == 1 - rank => Images::Alike { gain: 1 },
        _ => Images::Rows,
    }
}

struct AlongAxis<T> {
    op: Softmax,
    axis: i64,
    elements: PhantomData<T>,
}

impl<T: FloatLoops + Element> Kernel for AlongAxis<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        if call.over.is_some() {
            let sizes = split_at_axis(dims_in_place(call)?, self.axis)?;
            call.reserve_slices::<T>(2 * sizes[1] * sizes[2])?;
            if let Some((_, x)) = call.in_place::<T>()? {
                T::softmax_in_place(exec, self.op, sizes.into(), x)?;
            }
            return Ok(());
        }
        let (x, dims) = (call.slice::<T>(0)?, Dims::from(call.tensor(0)?.dims()));
        let sizes = split_at_axis(&dims, self.axis)?;
        call.reserve_slices::<T>(2 * sizes[1] * sizes[2])?;
        T::softmax(exec, self.op, sizes.into(), x, call.output_slice::<T>(0, &dims)?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Returns the numbers of elements before an axis, along it, and after it.
pub(in crate::ops) fn split_at_axis(dims: &[usize], axis: i64) -> Result<[usize; 3], KernelError> {
    let axis = normalize_axis(axis, dims.len())?;
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    Ok([product(&dims[..axis]), dims[axis], product(&dims[axis + 1..])])
}
