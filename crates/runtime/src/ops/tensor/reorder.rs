//! The same value in the other order: planes of pixels become pixels with their channels, and back.

use sardonyx_tensor::Dims;

use super::moves::copy_view;
use crate::error::KernelError;
use crate::kernel::{Call, Inputs, Kernel, MemoryRules};

/// See the module.
pub(crate) struct Reorder;

impl Kernel for Reorder {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::at(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?.clone();
        let dims = Dims::from(view.dims());
        copy_view(call, 0, &view, &dims)
    }

    fn describe(&self) -> String {
        "reorder".to_string()
    }
}
