//! CumSum and CumProd: sums and products up to each element of an axis.

use std::marker::PhantomData;

use sardonyx_kernels::CumulativeLoops;
use sardonyx_kernels::cumulative::{Cumulative, CumulativeOp};
use sardonyx_tensor::{Dims, Element};

use super::for_element;
use super::softmax::split_at_axis;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `CumProd`.
pub(crate) fn bind_product(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, CumulativeOp::Product)
}

/// Binds `CumSum`.
pub(crate) fn bind_sum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, CumulativeOp::Sum)
}

fn bind(site: &Site<'_>, of: CumulativeOp) -> Result<Box<dyn Kernel>, BindError> {
    let which = Cumulative {
        op: of,
        exclusive: site.need_int("exclusive")? != 0,
        reverse: site.need_int("reverse")? != 0,
    };
    for_element!(site, site.elem(0)?, high_precision, T => UpToEach::<T> { which, elements: PhantomData })
}

struct UpToEach<T> {
    which: Cumulative,
    elements: PhantomData<fn() -> T>,
}

impl<T: CumulativeLoops + Element> Kernel for UpToEach<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let axis = call.ints(1)?;
        let &[axis] = &axis[..] else {
            fail!("the axis must have one element, not {}", axis.len());
        };
        let sizes = split_at_axis(&dims, axis)?;
        call.reserve_slices::<T>(2 * sizes[1] * sizes[2])?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::cumulative(exec, self.which, sizes.into(), x, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        let of = match self.which.op {
            CumulativeOp::Sum => "sum",
            CumulativeOp::Product => "product",
        };
        format!("cumulative {of} of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn sums() {
        let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        for (axis, exclusive, reverse, expected) in [
            (0i64, 0, 0, [1i32, 2, 3, 5, 7, 9]),
            (-1, 0, 0, [1, 3, 6, 4, 9, 15]),
            (1, 1, 0, [0, 1, 3, 0, 4, 9]),
            (1, 0, 1, [6, 5, 3, 15, 11, 6]),
            (0, 1, 1, [4, 5, 6, 0, 0, 0]),
        ] {
            let attributes = [("exclusive", Int(exclusive)), ("reverse", Int(reverse))];
            let inputs = [Some(&x), Some(&tensor(&[], &[axis]))];
            let found = run("CumSum", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{attributes:?}");
        }
        for op in ["CumProd", "CumSum"] {
            check_refusals(op);
        }
    }

    #[test]
    fn products() {
        let x = tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        for (axis, exclusive, reverse, expected) in [
            (0i32, 0, 0, [1f32, 2.0, 3.0, 4.0, 10.0, 18.0]),
            (-1, 0, 0, [1.0, 2.0, 6.0, 4.0, 20.0, 120.0]),
            (1, 1, 0, [1.0, 1.0, 2.0, 1.0, 4.0, 20.0]),
            (1, 0, 1, [6.0, 6.0, 3.0, 120.0, 30.0, 6.0]),
            (0, 1, 1, [4.0, 5.0, 6.0, 1.0, 1.0, 1.0]),
        ] {
            let attributes = [("exclusive", Int(exclusive)), ("reverse", Int(reverse))];
            let inputs = [Some(&x), Some(&tensor(&[], &[axis]))];
            let found = run("CumProd", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{attributes:?}");
        }
        let axis = tensor(&[], &[0i64]);
        let x = tensor(&[3], &[u64::MAX, 2, 3]);
        let found = run("CumProd", &[], &[Some(&x), Some(&axis)], 1).unwrap();
        assert_eq!(found[0], tensor(&[3], &[u64::MAX, u64::MAX - 1, u64::MAX - 5]));
        let x = tensor::<f64>(&[0], &[]);
        assert_eq!(run("CumProd", &[], &[Some(&x), Some(&axis)], 1).unwrap()[0], x);
        let scalar = tensor(&[], &[1f32]);
        let found = run("CumProd", &[], &[Some(&scalar), Some(&axis)], 1).unwrap_err();
        assert_eq!(found, "axis 0 is out of range for rank 0");
    }

    fn check_refusals(op: &str) {
        let x = tensor(&[2, 3], &[1i32, 2, 3, 4, 5, 6]);
        for (axis, refusal) in [
            (tensor(&[], &[2i32]), "axis 2 is out of range for rank 2"),
            (tensor(&[2], &[0i32, 1]), "the axis must have one element, not 2"),
        ] {
            let found = run(op, &[], &[Some(&x), Some(&axis)], 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
