//! Expand: a tensor repeated to a shape.

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, Plain};
use sardonyx_tensor::{Dims, shape::broadcast_dims};

use super::moves::{Movement, move_elements};
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};

struct Expand;

/// `Expand`
pub(crate) fn bind(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Expand))
}

impl Kernel for Expand {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input = call.tensor(0)?.clone();
        let target = call.ints(1)?;
        let Ok(target) = target
            .iter()
            .map(|size| usize::try_from(*size))
            .collect::<Result<Dims, _>>()
        else {
            fail!("the shape {target:?} has a negative size");
        };
        let to = broadcast_dims(&[input.dims(), &target])?;
        let repeat = Repeat {
            from: input.dims().into(),
            to: to.clone(),
        };
        move_elements(call, 0, &to, &[input], &repeat)
    }

    fn describe(&self) -> String {
        "repeat".to_string()
    }
}

struct Repeat {
    from: Dims,
    to: Dims,
}

impl Movement for Repeat {
    fn run<T: Plain>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        copy::expand(pool, &self.from, &self.to, sources[0], out);
        Ok(())
    }
}
