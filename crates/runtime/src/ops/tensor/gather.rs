//! Gather: picks slices along one axis by index.

use sardonyx_kernels::copy::Indices;
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::{Dims, shape::normalize_axis};

use super::gather_elements::indices_of;
use super::moves::{Movement, move_elements};
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{Gather, MoveKind, Op};

/// Lowers `Gather`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let gather = Gather { axis: site.need_int("axis")?, from_constant: site.weight(0).is_some() };
    Ok(Op::moves(MoveKind::Gather(gather), site))
}

impl Gather {
    /// Returns the layout of the slice, if there is one index that is known.
    pub(super) fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        if self.from_constant {
            return None;
        }
        let axis = normalize_axis(self.axis, site.from.len()).ok()?;
        let (ints, size) = ((site.ints)(1)?, site.from[axis]);
        let [index] = ints[..] else { return None };
        let index = if index < 0 { index.checked_add(size as i64)? } else { index };
        let index = usize::try_from(index).ok().filter(|index| *index < size)?;
        let picked = site.layout.narrow(axis, index, 1)?;
        // The axes of the indices, all of size 1 here, replace the axis.
        let mut dims = Dims::from(site.from);
        dims[axis] = 1;
        picked.reshape(&dims, site.to)
    }
}

impl Kernel for Gather {
    fn memory(&self) -> MemoryRules {
        let unaligned =
            if self.from_constant { Inputs::from_positions(&[0]) } else { Inputs::default() };
        MemoryRules { unaligned, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let indices = call.tensor(1)?;
        let axis = normalize_axis(self.axis, data.rank())?;
        let (before, after) = (&data.dims()[..axis], &data.dims()[axis + 1..]);
        let dims: Dims = before.iter().chain(indices.dims()).chain(after).copied().collect();
        let split = [before.iter().product(), data.dims()[axis], after.iter().product()];
        let indices = indices_of(call, 1)?;
        move_elements(call, 0, &dims, &[data], &Pick { axis, split, indices })
    }

    fn describe(&self) -> String {
        "gather".to_string()
    }
}

/// Slices along an axis.
pub(in crate::ops) struct Pick<'a> {
    pub(in crate::ops) axis: usize,
    /// Numbers of elements before, along and after the axis.
    pub(in crate::ops) split: [usize; 3],
    pub(in crate::ops) indices: Indices<'a>,
}

impl Movement for Pick<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::gather(pool, self.split.into(), sources[0], self.indices, out).map_err(|failure| {
            KernelError::from_failure(failure, |error| format!("axis {}: {error}", self.axis))
        })
    }
}
