//! Dropout at inference: the input itself, and a mask that keeps everything.

use sardonyx_tensor::{Bool8, Dims, Tensor};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::layout::{Layout, ViewSite};
use crate::ops::narrow::widen;
use crate::program::{Dropout, MoveKind, Op};

/// `Dropout`
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    // A node that surely trains is refused now; one that is told so when it runs, then.
    let training = site.constant(2).map(Tensor::bytes);
    let drops = site.constant(1).is_none_or(|ratio| ratio.bytes().iter().any(|byte| *byte != 0));
    if drops && training.is_some_and(|flag| flag != [0]) {
        return Err(BindError::Unsupported("training_mode is not implemented".to_string()));
    }
    let dropout = Dropout { has_mask: site.has_output(1) };
    Ok(Op::moves(MoveKind::Dropout(dropout), site))
}

impl Dropout {
    pub(in crate::ops) fn view(self, site: &ViewSite<'_>) -> Option<Layout> {
        // A mask has to be written, so the node has to run.
        (!self.has_mask).then(|| site.layout.clone())
    }

    /// Whether the ratio is given, and zero: both zeros, in any float type.
    fn drops_nothing(&self, call: &Call<'_>) -> Result<bool, KernelError> {
        Ok(match call.maybe_tensor(1)? {
            Some(ratio) => widen(call, ratio)?[..] == [0.0],
            None => false,
        })
    }
}

impl Kernel for Dropout {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let training = match call.maybe_tensor(2)? {
            Some(flag) => flag.contiguous_bytes() != Some(&[0]),
            None => false,
        };
        // Training that drops nothing is inference.
        if training && !self.drops_nothing(call)? {
            fail!("training_mode is not implemented");
        }
        let input = call.tensor(0)?.clone();
        let dims: Dims = input.dims().into();
        if call.has_output(0) {
            call.output(0, input.data_type(), &dims)?.copy_from(&input)?;
        }
        if call.has_output(1) {
            call.output_slice::<Bool8>(1, &dims)?.fill(Bool8::from(true));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        if self.has_mask { "copy" } else { "view" }.to_string()
    }
}
