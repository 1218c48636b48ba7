//! Split: cuts a tensor into pieces along one axis.

use sardonyx_tensor::shape::normalize_axis;
use smallvec::SmallVec;

use super::slice::Window;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{MoveKind, Op, Split};

/// Lowers `Split`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let count = site.outputs.len();
    if let Some(given) =
        site.int("num_outputs").filter(|given| usize::try_from(*given) != Ok(count))
    {
        return Err(BindError::Invalid(format!(
            "num_outputs is {given}, but the node has {count} outputs"
        )));
    }
    let split = Split { axis: site.need_int("axis")?, count };
    Ok(Op::moves(MoveKind::Split(split), site))
}

impl Split {
    pub(super) fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        let given = if (site.has_input)(1) { Some((site.ints)(1)?) } else { None };
        let window = self.window(site.from, given.as_deref(), site.output).ok()?;
        window.layout(site.layout)
    }
}

impl Kernel for Split {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let given = if call.has_input(1) { Some(call.ints(1)?) } else { None };
        for index in (0..self.count)
            .filter(|index| call.has_output(*index))
            .collect::<SmallVec<[usize; 8]>>()
        {
            self.window(data.dims(), given.as_deref(), index)?.copy(call, index, &data)?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "split".to_string()
    }
}

impl Split {
    /// Returns the window of output number `output` in a tensor of dimensions `dims`.
    fn window(
        &self,
        dims: &[usize],
        given: Option<&[i64]>,
        output: usize,
    ) -> Result<Window, KernelError> {
        let axis = normalize_axis(self.axis, dims.len())?;
        let sizes = match given {
            Some(given) => self.check_sizes(given, axis, dims[axis])?,
            None => self.equal_sizes(axis, dims[axis])?,
        };
        let start = sizes[..output].iter().sum();
        let mut piece = Window::whole(dims);
        piece.take(axis, start, sizes[output]);
        Ok(piece)
    }

    fn check_sizes(
        &self,
        sizes: &[i64],
        axis: usize,
        whole: usize,
    ) -> Result<SmallVec<[usize; 8]>, KernelError> {
        if sizes.len() != self.count {
            fail!("split has {} sizes, but the node has {} outputs", sizes.len(), self.count);
        }
        let Ok(pieces) =
            sizes.iter().map(|size| usize::try_from(*size)).collect::<Result<SmallVec<_>, _>>()
        else {
            fail!("the sizes {sizes:?} include a negative one");
        };
        let sum = pieces.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        if sum != Some(whole) {
            fail!("the lengths {sizes:?} do not add up to the size {whole} of axis {axis}");
        }
        Ok(pieces)
    }

    /// Returns pieces of equal size; only the last may be smaller.
    fn equal_sizes(&self, axis: usize, whole: usize) -> Result<SmallVec<[usize; 8]>, KernelError> {
        let size = whole.div_ceil(self.count.max(1));
        let mut pieces = SmallVec::from_elem(size, self.count);
        if let Some((last, others)) = pieces.split_last_mut() {
            let Some(rest) = whole.checked_sub(others.len() * size) else {
                fail!(
                    "axis {axis} of size {whole} cannot be split into {} parts of {size}",
                    self.count
                );
            };
            *last = rest;
        }
        Ok(pieces)
    }
}
