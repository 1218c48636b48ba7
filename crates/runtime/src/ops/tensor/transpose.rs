//! Transpose: another order of the axes. Nothing moves where the readers follow strides.

use sardonyx_tensor::{Dims, Tensor};

use super::moves::copy_view;
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};
use crate::layout::{Layout, ViewSite};

struct Transpose {
    /// `None` reverses the axes.
    order: Option<Dims>,
}

/// `Transpose`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let order = match site.ints("perm") {
        Some(perm) => match perm.iter().map(|axis| usize::try_from(*axis)).collect() {
            Ok(order) => Some(order),
            Err(_) => {
                return Err(BindError::Invalid(format!("perm = {perm:?} has a negative axis")));
            }
        },
        None => None,
    };
    Ok(Box::new(Transpose { order }))
}

impl Transpose {
    fn order(&self, rank: usize) -> Result<Dims, KernelError> {
        let order = match &self.order {
            Some(order) => order.clone(),
            None => (0..rank).rev().collect(),
        };
        if order.len() != rank || !(0..rank).all(|axis| order.contains(&axis)) {
            fail!("perm = {order:?} is no order of {rank} axes");
        }
        Ok(order)
    }
}

impl Kernel for Transpose {
    fn fill<'t>(&'t self, first: Option<&'t Tensor>) -> Option<&'t Tensor> {
        first
    }

    fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        let order = self.order(site.from.len()).ok()?;
        Some(site.layout.transposed(&order))
    }

    fn reads_strides(&self, input: usize) -> bool {
        input == 0
    }

    fn turns(&self) -> Option<&Dims> {
        self.order.as_ref()
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?;
        let turned = data.transpose(&self.order(data.rank())?)?;
        let dims = Dims::from(turned.dims());
        copy_view(call, 0, &turned, &dims)
    }

    fn describe(&self) -> String {
        "transpose".to_string()
    }
}
