//! Size: counts the elements of a tensor.

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};

struct Size;

/// Binds `Size`.
pub(crate) fn bind(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Size))
}

impl Kernel for Size {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let count = call.tensor(0)?.len() as i64;
        call.output_slice(0, &[])?.fill(count);
        Ok(())
    }
}
