//! AveragePool, LpPool and MaxPool.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::pooling::{self, Divisor, Order};
use sardonyx_kernels::{FloatLoops, MaxPoolLoops};
use sardonyx_tensor::{Dims, Element};

use super::images::{OverPixels, WithPixels};
use super::window::Placed;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::program::{Images, Window};

/// Binds `AveragePool`.
pub(crate) fn bind_average(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let divisor = match site.int("count_include_pad") {
        Some(1) => Divisor::WithPadding,
        _ => Divisor::Inside,
    };
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => AveragePool::<T> {
        window: window(site)?,
        divisor,
        elements: PhantomData,
    });
    Ok(WithPixels::pooling(site, rows?, OverPixels::AveragePool(window(site)?, divisor)))
}

/// Returns how pooling reads images.
pub(crate) fn windows(_: &Site<'_>) -> Images {
    Images::Windows
}

/// Returns how MaxPool reads images. Indices of maxima are those of rows.
pub(crate) fn images_of_max(site: &Site<'_>) -> Images {
    if site.has_output(1) { Images::Rows } else { Images::Windows }
}

/// Binds `LpPool`.
pub(crate) fn bind_lp(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let p = power(site)?;
    for_element!(site, site.elem(0)?, floats, T => LpPool::<T> {
        window: window(site)?,
        p,
        elements: PhantomData,
    })
}

/// Returns the attribute `p`, which must be positive.
pub(super) fn power(site: &Site<'_>) -> Result<u32, BindError> {
    let p = site.need_int("p")?;
    let p = u32::try_from(p).ok().filter(|p| *p > 0);
    p.ok_or_else(|| BindError::Invalid("p must be positive".to_string()))
}

/// Binds `MaxPool`.
pub(crate) fn bind_max(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let order = match site.int("storage_order") {
        Some(1) => Order::ColumnMajor,
        _ => Order::RowMajor,
    };
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, [f32, f64, half::f16, half::bf16, i8, u8], T => MaxPool::<T> {
        window: window(site)?,
        order,
        elements: PhantomData,
    });
    if site.has_output(1) {
        return rows;
    }
    Ok(WithPixels::pooling(site, rows?, OverPixels::MaxPool(window(site)?)))
}

struct AveragePool<T> {
    window: Window,
    divisor: Divisor,
    elements: PhantomData<fn() -> T>,
}

struct LpPool<T> {
    window: Window,
    p: u32,
    elements: PhantomData<fn() -> T>,
}

struct MaxPool<T> {
    window: Window,
    order: Order,
    elements: PhantomData<fn() -> T>,
}

fn window(site: &Site<'_>) -> Result<Window, BindError> {
    let kernel = site.ints("kernel_shape").unwrap_or_default();
    let kernel: Result<Vec<usize>, _> = kernel.into_iter().map(usize::try_from).collect();
    match kernel {
        Ok(kernel) if !kernel.is_empty() && !kernel.contains(&0) => {
            Ok(Window { cut: true, ..Window::new(site, kernel)? })
        }
        _ => Err(BindError::Invalid("kernel_shape must be positive sizes".to_string())),
    }
}

/// Windows over an input of known dimensions.
pub(super) struct Geometry<'a> {
    window: &'a Window,
    input: Dims,
    placed: Placed,
    /// Dimensions of the output.
    pub(super) output: Dims,
}

impl<'a> Geometry<'a> {
    pub(super) fn new(window: &'a Window, input: &[usize]) -> Result<Self, KernelError> {
        if input.len() < 3 {
            fail!("the input must have at least three dimensions, not {input:?}");
        }
        let placed = window.place(&input[2..])?;
        let output = input[..2].iter().chain(&placed.counts).copied().collect();
        Ok(Geometry { window, input: input.into(), placed, output })
    }

    /// Returns the elements of a plane and of its output.
    fn plane(&self) -> usize {
        let (input, output) = (&self.input[2..], &self.placed.counts);
        input.iter().product::<usize>() + output.iter().product::<usize>()
    }

    fn planes(&self) -> usize {
        self.input[0] * self.input[1]
    }

    pub(super) fn window(&self) -> pooling::Window<'_> {
        pooling::Window {
            input: &self.input[2..],
            output: &self.placed.counts,
            kernel: &self.window.kernel,
            strides: &self.window.strides,
            dilations: &self.window.dilations,
            pads_begin: &self.placed.pads_begin,
            pads_end: &self.placed.pads_end,
        }
    }
}

impl<T: Element + FloatLoops> Kernel for AveragePool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let g = Geometry::new(&self.window, call.tensor(0)?.dims())?;
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        call.reserve_slices::<T>(g.plane())?;
        let y = call.output_slice::<T>(0, &g.output)?;
        T::average_pool(exec, g.planes(), &g.window(), self.divisor, x, y)?;
        Ok(())
    }
}

impl<T: Element + FloatLoops<Wide: Pod>> Kernel for LpPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let g = Geometry::new(&self.window, call.tensor(0)?.dims())?;
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let mut scratch = call.scratch(pooling::lp_pool_scratch(g.planes(), &g.window()))?;
        let y = call.output_slice::<T>(0, &g.output)?;
        T::lp_pool(exec, g.planes(), &g.window(), self.p, x, &mut scratch, y)?;
        Ok(())
    }
}

impl<T: Element + MaxPoolLoops> Kernel for MaxPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let g = Geometry::new(&self.window, call.tensor(0)?.dims())?;
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        if !call.has_output(1) {
            call.reserve_slices::<T>(g.plane())?;
            let y = call.output_slice::<T>(0, &g.output)?;
            T::max_pool(exec, g.planes(), &g.window(), x, y)?;
            return Ok(());
        }
        if let (y, Some(indices)) = call.output_slices::<T, i64>(1, &g.output)? {
            T::max_pool_with_indices(exec, g.planes(), &g.window(), self.order, x, y, indices)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{Int, Ints};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn norms_of_windows() {
        let x = tensor(&[1, 1, 4], &[3f32, -4.0, 0.0, 2.0]);
        let window = || ("kernel_shape", Ints(vec![2].into()));
        for (p, expected) in [(1, [7f32, 4.0, 2.0]), (2, [5.0, 4.0, 2.0]), (40, [4.0, 4.0, 2.0])] {
            let found = run("LpPool", &[window(), ("p", Int(p))], &[Some(&x)], 1).unwrap();
            let found = found[0].to_vec::<f32>().unwrap();
            let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3;
            assert!(found.iter().zip(&expected).all(is_near), "p = {p}: {found:?}");
        }
        let found = run("LpPool", &[window(), ("p", Int(0))], &[Some(&x)], 1).unwrap_err();
        assert!(found.contains("p must be positive"), "{found}");
    }
}
