//! ConstantOfShape: fills a tensor of a given shape with one value.

use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{Dims, Tensor};

use super::moves::{Movement, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{self, Op};

/// Kernel of [`program::Fill`].
pub(crate) struct ConstantOfShape(pub(crate) Tensor);

/// Lowers `ConstantOfShape`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let value = match site.attributes.get("value") {
        Some(AttrValue::Tensor(value)) => value,
        Some(_) => {
            return Err(BindError::Unsupported("attribute 'value' cannot be read".to_string()));
        }
        None => Tensor::scalar(0.0f32),
    };
    if value.len() != 1 {
        return Err(BindError::Invalid(format!(
            "value must have one element, not {}",
            value.len()
        )));
    }
    Ok(Op::Fill(Box::new(program::Fill { one: value, shape: site.slot(0)? })))
}

impl Kernel for ConstantOfShape {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = call.ints(0)?;
        let Ok(dims) = dims.iter().map(|size| usize::try_from(*size)).collect::<Result<Dims, _>>()
        else {
            fail!("the shape {dims:?} has a negative size");
        };
        move_elements(call, 0, &dims, &[self.0.view()], &Fill)
    }

    fn describe(&self) -> String {
        "fill".to_string()
    }
}

struct Fill;

impl Movement for Fill {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::fill(pool, sources[0][0], out)?;
        Ok(())
    }
}
