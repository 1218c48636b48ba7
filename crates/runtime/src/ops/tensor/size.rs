//! Size: counts the elements of a tensor.

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};

struct Size;

/// Binds `Size`.
pub(crate) fn bind(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Size))
}

impl Kernel for Size {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::ALL, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let count = call.tensor(0)?.len() as i64;
        call.output_slice(0, &[])?.fill(count);
        Ok(())
    }
}
