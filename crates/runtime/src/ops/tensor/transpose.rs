//! Transpose: another order of the axes.

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, Plain};
use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::Dims;

use super::moves::{Movement, move_elements};
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};

struct Transpose {
    /// `None` reverses the axes.
    order: Option<Dims>,
    /// Only axes of size 1 change places, so all elements stay in theirs.
    is_view: bool,
}

/// `Transpose`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let order = match site.ints("perm") {
        Some(perm) => match perm.iter().map(|axis| usize::try_from(*axis)).collect() {
            Ok(order) => Some(order),
            Err(_) => {
                return Err(BindError::Invalid(format!(
                    "perm = {perm:?} has a negative axis"
                )));
            }
        },
        None => None,
    };
    let is_view = site
        .shape(0)
        .is_some_and(|shape| keeps_elements(shape, order.as_deref()));
    Ok(Box::new(Transpose { order, is_view }))
}

fn keeps_elements(shape: &Shape, order: Option<&[usize]>) -> bool {
    let rank = shape.len();
    let moves = |axis: &usize| shape.get(*axis) != Some(&Dim::Known(1));
    let kept: Vec<usize> = match order {
        Some(order) => order.iter().copied().filter(moves).collect(),
        None => (0..rank).rev().filter(moves).collect(),
    };
    kept.is_sorted()
}

impl Kernel for Transpose {
    fn is_view(&self) -> bool {
        self.is_view
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let rank = data.rank();
        let order = self
            .order
            .clone()
            .unwrap_or_else(|| (0..rank).rev().collect());
        if order.len() != rank || !(0..rank).all(|axis| order.contains(&axis)) {
            fail!("perm = {order:?} is no order of {rank} axes");
        }
        let dims: Dims = order.iter().map(|axis| data.dims()[*axis]).collect();
        let reorder = Reorder {
            dims: data.dims().into(),
            order,
        };
        move_elements(call, 0, &dims, &[data], &reorder)
    }

    fn describe(&self) -> String {
        if self.is_view { "view" } else { "transpose" }.to_string()
    }
}

struct Reorder {
    dims: Dims,
    order: Dims,
}

impl Movement for Reorder {
    fn run<T: Plain>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        copy::transpose(pool, &self.dims, &self.order, sources[0], out);
        Ok(())
    }
}
