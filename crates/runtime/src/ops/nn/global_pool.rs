//! GlobalAveragePool, GlobalLpPool and GlobalMaxPool: reductions of all spatial axes to size 1.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::pixels::Total;
use sardonyx_kernels::pooling::{Window, lp_pool_scratch};
use sardonyx_kernels::reduce::Reduce;
use sardonyx_kernels::{FloatLoops, Loops};
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use super::images::{OverPixels, WithPixels};
use super::pool::power;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

/// Binds `GlobalAveragePool`.
pub(crate) fn bind_average(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => GlobalPool::<T> { what: Reduce::Mean, elements: PhantomData });
    of_either(site, rows?, Total::Mean)
}

/// Binds `GlobalLpPool`.
pub(crate) fn bind_lp(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let what = match power(site)? {
        1 => Reduce::L1,
        2 => Reduce::L2,
        p => {
            return for_element!(site, site.elem(0)?, floats, T => GlobalLpPool::<T> { p, elements: PhantomData });
        }
    };
    for_element!(site, site.elem(0)?, floats, T => GlobalPool::<T> { what, elements: PhantomData })
}

/// Binds `GlobalMaxPool`.
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

/// Lp norm without a reduction of its own: pools one window over all elements.
struct GlobalLpPool<T> {
    p: u32,
    elements: PhantomData<fn() -> T>,
}

/// Returns the dimensions of the input, and those of the output.
fn pooled_dims(call: &Call<'_>) -> Result<(Dims, Dims), KernelError> {
    let input: Dims = call.tensor(0)?.dims().into();
    if input.len() < 2 {
        fail!("the input must have batch and channels, not dimensions {:?}", &input[..]);
    }
    let ones = std::iter::repeat_n(1, input.len() - 2);
    let dims = input[..2].iter().copied().chain(ones).collect();
    Ok((input, dims))
}

impl<T: Element + Loops> Kernel for GlobalPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (input, dims) = pooled_dims(call)?;
        let axes: SmallVec<[bool; 6]> = (0..input.len()).map(|axis| axis >= 2).collect();
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let y = call.output_slice::<T>(0, &dims)?;
        T::reduce(exec, self.what, &input, &axes, x, y)?;
        Ok(())
    }
}

impl<T: Element + FloatLoops<Wide: Pod>> Kernel for GlobalLpPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (input, dims) = pooled_dims(call)?;
        let planes = input[0] * input[1];
        let elements = [input[2..].iter().product()];
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        if elements == [0] {
            // An empty sum is zero.
            call.output_slice::<T>(0, &dims)?.fill(T::ZERO);
            return Ok(());
        }
        let window = Window {
            input: &elements,
            output: &[1],
            kernel: &elements,
            strides: &[1],
            dilations: &[1],
            pads_begin: &[0],
            pads_end: &[0],
        };
        let mut scratch = call.scratch(lp_pool_scratch(planes, &window))?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::lp_pool(exec, planes, &window, self.p, x, &mut scratch, y)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn norms_of_all_elements() {
        let x = tensor(&[1, 2, 2, 2], &[3f32, 0.0, -4.0, 0.0, 1.0, -1.0, 1.0, 1.0]);
        for (p, expected) in [
            (1, [7f32, 4.0]),
            (2, [5.0, 2.0]),
            (3, [91f32.cbrt(), 4f32.cbrt()]),
            (40, [4.0, 4f32.powf(1.0 / 40.0)]),
        ] {
            let found = run("GlobalLpPool", &[("p", Int(p))], &[Some(&x)], 1).unwrap().remove(0);
            assert_eq!(found.dims(), [1, 2, 1, 1]);
            for (found, expected) in found.to_vec::<f32>().unwrap().iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4, "{p}: {found} {expected}");
            }
        }
        for p in [1, 2, 3] {
            let x = tensor::<f64>(&[2, 1, 0], &[]);
            let found = run("GlobalLpPool", &[("p", Int(p))], &[Some(&x)], 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 1, 1], &[0f64; 2]));
            let x = tensor(&[3], &[1f32; 3]);
            let found = run("GlobalLpPool", &[("p", Int(p))], &[Some(&x)], 1);
            assert!(found.unwrap_err().contains("must have batch and channels"));
        }
        let found = run("GlobalLpPool", &[("p", Int(0))], &[Some(&x)], 1);
        assert!(found.unwrap_err().contains("p must be positive"));
    }
}
