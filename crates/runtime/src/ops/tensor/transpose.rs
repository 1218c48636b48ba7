//! Transpose: permutes the axes. No element moves if the readers accept strides.

use sardonyx_tensor::Dims;

use super::moves::copy_view;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{MoveKind, Op, Transpose};

/// Lowers `Transpose`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let order = match site.ints("perm") {
        Some(perm) => match perm.iter().map(|axis| usize::try_from(*axis)).collect() {
            Ok(order) => Some(order),
            Err(_) => {
                return Err(BindError::Invalid(format!("perm = {perm:?} has a negative axis")));
            }
        },
        None => None,
    };
    Ok(Op::moves(MoveKind::Transpose(Transpose { order }), site))
}

impl Transpose {
    pub(super) fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        let order = self.order(site.from.len()).ok()?;
        Some(site.layout.transpose(&order))
    }

    fn order(&self, rank: usize) -> Result<Dims, KernelError> {
        let order = match &self.order {
            Some(order) => order.clone(),
            None => (0..rank).rev().collect(),
        };
        if order.len() != rank || !(0..rank).all(|axis| order.contains(&axis)) {
            fail!("perm = {order:?} is not a permutation of {rank} axes");
        }
        Ok(order)
    }
}

impl Kernel for Transpose {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?;
        let order = self.order(data.rank())?;
        let dims: Dims = order.iter().map(|axis| data.dims()[*axis]).collect();
        let layout = Layout::from_view(data).transpose(&order);
        let transposed = layout.to_view(data, &dims)?;
        copy_view(call, 0, &transposed, &dims)
    }

    fn describe(&self) -> String {
        "transpose".to_string()
    }
}
