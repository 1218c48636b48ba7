//! Gradient of the input of a `MaxPool`, from the indices that it returns.

use std::marker::PhantomData;

use sardonyx_kernels::TrainingLoops;
use sardonyx_tensor::{DataType, Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program;

struct PoolGradient<T> {
    /// Number of elements of an image.
    size: usize,
    elements: PhantomData<fn() -> T>,
}

/// Selects the kernel.
pub(crate) fn select(
    site: &Site<'_>,
    gradient: &program::PoolGradient,
) -> Result<Box<dyn Kernel>, BindError> {
    let size = gradient.size;
    match gradient.elem {
        DataType::Float => Ok(Box::new(PoolGradient::<f32> { size, elements: PhantomData })),
        DataType::Double => Ok(Box::new(PoolGradient::<f64> { size, elements: PhantomData })),
        other => site.unsupported_type(other),
    }
}

impl<T: Element + TrainingLoops> Kernel for PoolGradient<T> {
    fn describe(&self) -> String {
        format!("gradient of a pool of {}", T::DATA_TYPE)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Some(images) = call.tensor(1)?.dims().first().copied() else {
            fail!("the gradient of the output is a scalar");
        };
        let (exec, dims) = (call.exec, Dims::from_slice(&[images, self.size]));
        let (places, dy) = (call.slice::<i64>(0)?, call.slice::<T>(1)?);
        if places.len() != dy.len() {
            fail!("there are {} indices for {} gradients", places.len(), dy.len());
        }
        let dx = call.output_slice::<T>(0, &dims)?;
        T::max_pool_gradient(exec, self.size, places, dy, dx)?;
        Ok(())
    }
}
