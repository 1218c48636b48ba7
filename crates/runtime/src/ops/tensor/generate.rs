//! Tensors made of an index, a size or bounds.

use std::marker::PhantomData;

use sardonyx_kernels::elementwise::{self, Ranged};
use sardonyx_tensor::Element;

use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};
use crate::ops::math::for_element;

/// `Range`
pub(crate) fn bind_range(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let double = site.int("stash_type") == Some(11);
    for_element!(
        site, site.elem(0)?, [f32, f64, half::f16, half::bf16, i16, i32, i64],
        T => Range::<T> { double, elements: PhantomData }
    )
}

struct Range<T> {
    /// Whether narrow floats are counted in double precision.
    double: bool,
    elements: PhantomData<fn() -> T>,
}

impl<T: Ranged + Element> Kernel for Range<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, isa) = (call.pool, call.isa);
        let [start, limit, delta] = [0, 1, 2].map(|index| one::<T>(call, index));
        let (start, limit, delta) = (start?, limit?, delta?);
        // As many as inference finds.
        let count = T::steps(start, limit, delta, self.double);
        if count.is_nan() || count > MOST {
            fail!("from {start:?} to {limit:?} it takes {count} steps of {delta:?}");
        }
        let count = count.max(0.0) as usize;
        let out = call.output_slice::<T>(0, &[count])?;
        elementwise::range(pool, isa, start, delta, out);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("range of {}", T::DATA_TYPE)
    }
}

/// The only element of an input.
fn one<T: Element>(call: &Call<'_>, index: usize) -> Result<T, KernelError> {
    match call.slice::<T>(index)? {
        [element] => Ok(*element),
        elements => fail!("input {index} must be one number, not {}", elements.len()),
    }
}

/// More numbers than any memory has room for.
const MOST: f64 = (1u64 << 48) as f64;

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::ops::testing::{run, tensor};

    #[test]
    fn ranges() {
        let half = half::f16::from_f32;
        let brain = half::bf16::from_f32;
        fn of<T: Element>(numbers: [T; 3]) -> Result<Tensor, String> {
            let [start, limit, delta] = numbers.map(Tensor::scalar);
            let inputs = [Some(&start), Some(&limit), Some(&delta)];
            run("Range", &[("stash_type", Int(1))], &inputs, 1).map(|mut found| found.remove(0))
        }
        assert_eq!(of([1i64, 10, 4]).unwrap(), tensor(&[3], &[1i64, 5, 9]));
        assert_eq!(of([10i32, 4, -2]).unwrap(), tensor(&[3], &[10i32, 8, 6]));
        assert_eq!(of([3i16, 3, 1]).unwrap(), tensor::<i16>(&[0], &[]));
        assert_eq!(
            of([1f32, 2.0, 0.25]).unwrap(),
            tensor(&[4], &[1f32, 1.25, 1.5, 1.75])
        );
        assert_eq!(of([1f64, 0.0, 0.5]).unwrap(), tensor::<f64>(&[0], &[]));
        assert_eq!(
            of([half(1.0), half(2.0), half(0.5)]).unwrap(),
            tensor(&[2], &[half(1.0), half(1.5)])
        );
        assert_eq!(
            of([brain(0.0), brain(-2.0), brain(-1.0)]).unwrap(),
            tensor(&[2], &[brain(0.0), brain(-1.0)])
        );
        assert_eq!(
            of([1i64, 5, 0]).unwrap_err(),
            "from 1 to 5 it takes NaN steps of 0"
        );
        assert!(of([0f32, f32::INFINITY, 1.0]).is_err());
        assert!(of([0f32, f32::NAN, 1.0]).is_err());
        assert!(of([0f64, 1.0, 1e-300]).is_err());
    }
}
