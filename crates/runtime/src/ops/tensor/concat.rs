//! Concat: tensors joined along one axis.

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, Plain};
use sardonyx_tensor::{Dims, TensorView, shape::normalize_axis};
use smallvec::SmallVec;

use super::moves::{Movement, move_elements};
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};

struct Concat {
    axis: i64,
}

/// `Concat`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Concat {
        axis: site.need_int("axis")?,
    }))
}

impl Kernel for Concat {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let inputs: SmallVec<[TensorView<'_>; 4]> = (0..call.input_count())
            .map(|index| call.tensor(index).cloned())
            .collect::<Result<_, _>>()?;
        let Some(first) = inputs.first() else {
            fail!("there is nothing to join")
        };
        let axis = normalize_axis(self.axis, first.rank())?;
        let mut dims = Dims::from(first.dims());
        for (index, input) in inputs.iter().enumerate().skip(1) {
            let same = |other: usize| other == axis || input.dims()[other] == dims[other];
            if input.rank() != dims.len() || !(0..dims.len()).all(same) {
                fail!(
                    "inputs 0 and {index} have shapes {:?} and {:?}, which do not join along axis {axis}",
                    first.dims(),
                    input.dims()
                );
            }
            dims[axis] += input.dims()[axis];
        }
        let outer = dims[..axis].iter().product();
        move_elements(call, 0, &dims, &inputs, &Join { outer })
    }

    fn describe(&self) -> String {
        "join".to_string()
    }
}

struct Join {
    outer: usize,
}

impl Movement for Join {
    fn run<T: Plain>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        copy::concat(pool, self.outer, sources, out);
        Ok(())
    }
}
