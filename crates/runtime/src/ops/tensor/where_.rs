//! Selection between elements of two tensors by a condition: Where.

use sardonyx_kernels::elementwise::{Strided, broadcast_strides};
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::{DataType, Dims, shape::broadcast_dims};
use smallvec::smallvec;

use super::moves::{Movement, dense, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{Op, Select};
use crate::scratch::Contents;

pub(crate) struct Where;

/// Lowers `Where`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let (condition, x, y) = (site.slot(0)?, site.slot(1)?, site.slot(2)?);
    Ok(Op::Select(Select { condition, x, y }))
}

impl Kernel for Where {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let condition = call.tensor(0)?.clone();
        let (x, y) = (call.tensor(1)?.clone(), call.tensor(2)?.clone());
        if condition.data_type() != DataType::Bool {
            fail!("the condition has type {}, not bool", condition.data_type().name());
        }
        let dims = broadcast_dims(&[condition.dims(), x.dims(), y.dims()])?;
        let strides = |from: &[usize]| -> Result<Dims, KernelError> {
            let mut strides: Dims = smallvec![0; dims.len()];
            match broadcast_strides(from, &dims, &mut strides) {
                Some(()) => Ok(strides),
                None => fail!("{from:?} does not broadcast to {dims:?}"),
            }
        };
        let choice = Choice {
            condition: dense(call, &condition)?,
            strides: [strides(condition.dims())?, strides(x.dims())?, strides(y.dims())?],
            dims: dims.clone(),
        };
        move_elements(call, 0, &dims, &[x, y], &choice)
    }

    fn describe(&self) -> String {
        "select".to_string()
    }
}

struct Choice<'a> {
    condition: Contents<'a, u8>,
    /// Strides of the condition and of both tensors.
    strides: [Dims; 3],
    dims: Dims,
}

impl Movement for Choice<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let [condition, x, y] = &self.strides;
        T::select(
            pool,
            &self.dims,
            Strided::new(&self.condition, condition),
            Strided::new(sources[0], x),
            Strided::new(sources[1], y),
            out,
        )?;
        Ok(())
    }
}
