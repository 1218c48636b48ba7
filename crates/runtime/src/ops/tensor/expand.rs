//! Expand: a tensor repeated to a shape.

use sardonyx_tensor::{Dims, Tensor, shape::broadcast_dims};

use super::moves::copy_view;
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};
use crate::layout::{Layout, ViewSite};

struct Expand;

/// `Expand`
pub(crate) fn bind(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Expand))
}

impl Kernel for Expand {
    fn fill<'t>(&'t self, first: Option<&'t Tensor>) -> Option<&'t Tensor> {
        first
    }

    fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        site.layout.repeated(site.from, site.to)
    }

    fn reads_strides(&self, input: usize) -> bool {
        input == 0
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
        let repeated = input.broadcast_to(&to)?;
        copy_view(call, 0, &repeated, &to)
    }

    fn describe(&self) -> String {
        "repeat".to_string()
    }
}
