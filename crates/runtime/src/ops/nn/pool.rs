//! AveragePool and MaxPool.

use std::marker::PhantomData;

use sardonyx_kernels::number::Number;
use sardonyx_kernels::pooling::{
    self, Divisor, Order, average_pool, max_pool, max_pool_with_indices,
};
use sardonyx_tensor::{Dims, Element};

use super::window::{Placed, Window};
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};
use crate::ops::math::for_element;

/// `AveragePool`
pub(crate) fn bind_average(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let divisor = match site.int("count_include_pad") {
        Some(1) => Divisor::WithPadding,
        _ => Divisor::Inside,
    };
    for_element!(site, site.elem(0)?, floats, T => Pool::<T>::new(site, What::Average(divisor))?)
}

/// `MaxPool`
pub(crate) fn bind_max(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let order = match site.int("storage_order") {
        Some(1) => Order::ColumnMajor,
        _ => Order::RowMajor,
    };
    for_element!(site, site.elem(0)?, [f32, f64, half::f16, half::bf16, i8, u8], T => {
        Pool::<T>::new(site, What::Max(order))?
    })
}

#[derive(Clone, Copy)]
enum What {
    Average(Divisor),
    Max(Order),
}

struct Pool<T> {
    window: Window,
    what: What,
    elements: PhantomData<fn() -> T>,
}

impl<T> Pool<T> {
    fn new(site: &Site<'_>, what: What) -> Result<Self, BindError> {
        let kernel = site.ints("kernel_shape").unwrap_or_default();
        let kernel: Result<Vec<usize>, _> = kernel.into_iter().map(usize::try_from).collect();
        match kernel {
            Ok(kernel) if !kernel.is_empty() && !kernel.contains(&0) => Ok(Pool {
                window: Window::new(site, kernel)?,
                what,
                elements: PhantomData,
            }),
            _ => Err(BindError::Invalid(
                "kernel_shape must be positive sizes".to_string(),
            )),
        }
    }
}

impl<T: Element + Number> Kernel for Pool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input: Dims = call.tensor(0)?.dims().into();
        if input.len() < 3 {
            fail!(
                "the input must have at least three dimensions, not {:?}",
                &input[..]
            );
        }
        let Placed {
            pads_begin,
            pads_end,
            counts,
        } = self.window.place(&input[2..])?;
        let dims: Dims = input[..2].iter().chain(&counts).copied().collect();
        let window = pooling::Window {
            input: &input[2..],
            output: &counts,
            kernel: &self.window.kernel,
            strides: &self.window.strides,
            dilations: &self.window.dilations,
            pads_begin: &pads_begin,
            pads_end: &pads_end,
        };
        let (pool, isa, planes) = (call.pool, call.isa, input[0] * input[1]);
        let x = call.slice::<T>(0)?;
        match self.what {
            What::Average(divisor) => {
                let y = call.output_slice::<T>(0, &dims)?;
                average_pool(pool, isa, planes, &window, divisor, x, y);
            }
            What::Max(order) if call.has_output(1) => {
                let mut y = vec![T::ZERO; dims.iter().product()];
                let indices = call.output_slice::<i64>(1, &dims)?;
                max_pool_with_indices(pool, isa, planes, &window, order, x, &mut y, indices);
                if call.has_output(0) {
                    call.output_slice::<T>(0, &dims)?.copy_from_slice(&y);
                }
            }
            What::Max(_) => {
                let y = call.output_slice::<T>(0, &dims)?;
                max_pool(pool, isa, planes, &window, x, y);
            }
        }
        Ok(())
    }
}
