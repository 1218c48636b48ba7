//! Slice: selects every n-th element from a start to an end, along some axes.

use sardonyx_tensor::{Dims, TensorView};
use smallvec::{SmallVec, smallvec};

use super::moves::copy_view;
use super::reshape::axes;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{MoveKind, Op, Slice};

/// Lowers `Slice`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Slice(Slice), site))
}

impl Slice {
    pub(super) fn view(self, site: &ViewSite<'_>) -> Option<Layout> {
        let given = |index: usize| {
            if (site.has_input)(index) { (site.ints)(index).map(Some) } else { Some(None) }
        };
        let (starts, ends, axes, steps) = (given(1)??, given(2)??, given(3)?, given(4)?);
        let window = window(site.from, &starts, &ends, axes.as_deref(), steps.as_deref()).ok()?;
        window.layout(site.layout)
    }
}

impl Kernel for Slice {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0]), ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let (starts, ends) = (call.ints(1)?, call.ints(2)?);
        let given = |index: usize| {
            if call.has_input(index) { call.ints(index).map(Some) } else { Ok(None) }
        };
        let (axes, steps) = (given(3)?, given(4)?);
        window(data.dims(), &starts, &ends, axes.as_deref(), steps.as_deref())?.copy(call, 0, &data)
    }

    fn describe(&self) -> String {
        "slice".to_string()
    }
}

/// Computes the window that the inputs of a slice describe.
fn window(
    dims: &[usize],
    starts: &[i64],
    ends: &[i64],
    axes_given: Option<&[i64]>,
    steps: Option<&[i64]>,
) -> Result<Window, KernelError> {
    let rank = dims.len();
    let sliced = match axes_given {
        Some(given) => axes(given, rank)?,
        None => (0..starts.len()).collect(),
    };
    let steps = steps.map_or_else(|| smallvec![1; starts.len()], SmallVec::<[i64; 8]>::from_slice);
    if [ends.len(), sliced.len(), steps.len()] != [starts.len(); 3] {
        fail!(
            "there are {} starts, {} ends, {} axes and {} steps",
            starts.len(),
            ends.len(),
            sliced.len(),
            steps.len()
        );
    }
    let mut window = Window::whole(dims);
    for (index, &axis) in sliced.iter().enumerate() {
        if axis >= rank {
            fail!("axis {axis} is out of range for rank {rank}");
        }
        window.narrow(axis, starts[index], ends[index], steps[index])?;
    }
    Ok(window)
}

/// Strided part of a tensor.
pub(super) struct Window {
    dims: Dims,
    starts: Dims,
    steps: SmallVec<[isize; 6]>,
    pub(super) out: Dims,
}

impl Window {
    /// Makes a window over the whole tensor.
    pub(super) fn whole(dims: &[usize]) -> Window {
        let rank = dims.len();
        Window {
            dims: dims.into(),
            starts: smallvec![0; rank],
            steps: smallvec![1; rank],
            out: dims.into(),
        }
    }

    /// Restricts an axis to `count` adjacent elements, which must exist.
    pub(super) fn take(&mut self, axis: usize, start: usize, count: usize) {
        (self.starts[axis], self.out[axis]) = (start, count);
    }

    /// Restricts an axis to a start and an exclusive end. Negative bounds count from the end;
    /// bounds outside are clamped.
    fn narrow(&mut self, axis: usize, start: i64, end: i64, step: i64) -> Result<(), KernelError> {
        if step == 0 {
            fail!("the step of axis {axis} is 0");
        }
        let size = self.dims[axis] as i64;
        if size == 0 {
            return Ok(());
        }
        let from_front = |bound: i64| {
            if bound < 0 { bound.saturating_add(size) } else { bound }
        };
        let (first, distance) = if step > 0 {
            let first = from_front(start).clamp(0, size);
            (first, from_front(end).clamp(0, size) - first)
        } else {
            let first = from_front(start).clamp(0, size - 1);
            (first, first - from_front(end).clamp(-1, size - 1))
        };
        let count = if distance <= 0 { 0 } else { (distance as u64 - 1) / step.unsigned_abs() + 1 };
        self.starts[axis] = first as usize;
        // A single element has no next one, so its step may be of any size.
        self.steps[axis] = if count > 1 { step as isize } else { 1 };
        self.out[axis] = count as usize;
        Ok(())
    }

    /// Returns the layout of the window, given that of the whole tensor.
    pub(super) fn layout(&self, whole: &Layout) -> Option<Layout> {
        if self.out.contains(&0) {
            return Some(Layout::dense(&self.out));
        }
        (0..self.dims.len()).try_fold(whole.clone(), |layout, axis| {
            layout.narrow(axis, self.starts[axis], self.steps[axis])
        })
    }

    /// Copies the window of `data` to an output.
    pub(super) fn copy(
        &self,
        call: &mut Call<'_>,
        index: usize,
        data: &TensorView<'_>,
    ) -> Result<(), KernelError> {
        let Some(layout) = self.layout(&Layout::from_view(data)) else {
            fail!("the steps {:?} are too large", self.steps);
        };
        let part = layout.to_view(data, &self.out)?;
        copy_view(call, index, &part, &self.out)
    }
}
