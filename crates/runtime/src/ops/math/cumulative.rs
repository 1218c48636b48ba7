//! Sums up to each element of an axis.

use std::marker::PhantomData;

use sardonyx_kernels::CumulativeLoops;
use sardonyx_kernels::cumulative::Cumulative;
use sardonyx_tensor::{Dims, Element};

use super::for_element;
use super::softmax::around;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// `CumSum`
pub(crate) fn bind_sum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let which = Cumulative {
        exclusive: site.need_int("exclusive")? != 0,
        reverse: site.need_int("reverse")? != 0,
    };
    for_element!(site, site.elem(0)?, high_precision, T => CumSum::<T> { which, elements: PhantomData })
}

struct CumSum<T> {
    which: Cumulative,
    elements: PhantomData<fn() -> T>,
}

impl<T: CumulativeLoops + Element> Kernel for CumSum<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let axis = call.ints(1)?;
        let &[axis] = &axis[..] else {
            fail!("the axis must be one number, not {}", axis.len());
        };
        let sizes = around(&dims, axis)?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::cumulative_sum(exec, self.which, sizes, x, y);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("cumulative sum of {}", T::DATA_TYPE)
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
        for (axis, refusal) in [
            (tensor(&[], &[2i32]), "axis 2 is outside rank 2"),
            (tensor(&[2], &[0i32, 1]), "the axis must be one number, not 2"),
        ] {
            let found = run("CumSum", &[], &[Some(&x), Some(&axis)], 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
