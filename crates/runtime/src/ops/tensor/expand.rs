//! Expand: broadcasts a tensor to a shape.

use sardonyx_tensor::{Dims, shape::broadcast_dims};

use super::moves::copy_view;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{Expand, MoveKind, Op};

/// Lowers `Expand`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Expand(Expand), site))
}

impl Expand {
    pub(super) fn view(self, site: &ViewSite<'_>) -> Option<Layout> {
        site.layout.broadcast(site.from, site.to)
    }
}

impl Kernel for Expand {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let target = call.ints(1)?;
        let Ok(target) =
            target.iter().map(|size| usize::try_from(*size)).collect::<Result<Dims, _>>()
        else {
            fail!("the shape {target:?} has a negative size");
        };
        let input = call.tensor(0)?;
        let to = broadcast_dims(&[input.dims(), &target])?;
        let Some(layout) = Layout::from_view(input).broadcast(input.dims(), &to) else {
            fail!("{:?} does not broadcast to {to:?}", input.dims());
        };
        let repeated = layout.to_view(input, &to)?;
        copy_view(call, 0, &repeated, &to)
    }

    fn describe(&self) -> String {
        "repeat".to_string()
    }
}
