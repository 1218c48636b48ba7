//! Det: determinants of matrices.

use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_tensor::{Dims, Element};

use super::for_element;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `Det`.
pub(crate) fn bind_det(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, floats, T => Det::<T>(PhantomData))
}

struct Det<T>(PhantomData<fn() -> T>);

impl<T: FloatLoops + Element> Kernel for Det<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = call.tensor(0)?.dims();
        let &[ref stack @ .., rows, columns] = dims else {
            fail!("the input has rank {}, not at least 2", dims.len());
        };
        if rows != columns {
            fail!("matrices must be square, but have {rows} rows and {columns} columns: {dims:?}");
        }
        let (exec, stack) = (call.exec, Dims::from(stack));
        let x = call.slice::<T>(0)?;
        // Each thread copies a matrix in double precision.
        let copies = exec.pool.threads().min(stack.iter().product());
        call.reserve(copies.saturating_mul(rows * columns).saturating_mul(size_of::<f64>()))?;
        T::determinants(exec, rows, x, call.output_slice::<T>(0, &stack)?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("determinant of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn determinants() {
        let x = [2f32, 1.0, 1.0, 3.0, 0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 2.0, 4.0];
        let expected = [5f32, -1.0, 0.0];
        for (x, expected) in [
            (tensor(&[3, 2, 2], &x), tensor(&[3], &expected)),
            (tensor(&[1, 3, 2, 2], &x.map(f64::from)), tensor(&[1, 3], &expected.map(f64::from))),
            (tensor(&[3, 2, 2], &x.map(f16::from_f32)), tensor(&[3], &expected.map(f16::from_f32))),
            (
                tensor(&[3, 2, 2], &x.map(bf16::from_f32)),
                tensor(&[3], &expected.map(bf16::from_f32)),
            ),
            (tensor(&[2, 2], &x[..4]), tensor(&[], &[5f32])),
            (tensor::<f32>(&[2, 0, 0], &[]), tensor(&[2], &[1f32; 2])),
            (tensor::<f32>(&[0, 2, 2], &[]), tensor::<f32>(&[0], &[])),
        ] {
            assert_eq!(run("Det", &[], &[Some(&x)], 1).unwrap()[0], expected);
        }
        for (x, refusal) in [
            (tensor(&[4], &[0f32; 4]), "the input has rank 1, not at least 2"),
            (tensor(&[2, 3], &[0f32; 6]), "matrices must be square, but have 2 rows and 3 columns"),
        ] {
            let found = run("Det", &[], &[Some(&x)], 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
    }
}
