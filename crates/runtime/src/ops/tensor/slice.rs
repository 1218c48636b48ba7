//! Slice: every so many elements from a start to an end, along some of the axes.

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, Plain};
use sardonyx_tensor::Dims;
use smallvec::{SmallVec, smallvec};

use super::moves::{Movement, move_elements};
use super::reshape::axes;
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};

struct Slice;

/// `Slice`
pub(crate) fn bind(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Slice))
}

impl Kernel for Slice {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let rank = data.rank();
        let (starts, ends) = (call.ints(1)?, call.ints(2)?);
        let sliced = match call.has_input(3) {
            true => axes(&call.ints(3)?, rank)?,
            false => (0..starts.len()).collect(),
        };
        let steps = match call.has_input(4) {
            true => call.ints(4)?,
            false => smallvec![1; starts.len()],
        };
        if [ends.len(), sliced.len(), steps.len()] != [starts.len(); 3] {
            fail!(
                "there are {} starts, {} ends, {} axes and {} steps",
                starts.len(),
                ends.len(),
                sliced.len(),
                steps.len()
            );
        }
        let mut window = Window::whole(data.dims());
        for (index, &axis) in sliced.iter().enumerate() {
            if axis >= rank {
                fail!("axis {axis} is outside rank {rank}");
            }
            window.narrow(axis, starts[index], ends[index], steps[index])?;
        }
        let dims = window.out.clone();
        move_elements(call, 0, &dims, &[data], &window)
    }

    fn describe(&self) -> String {
        "slice".to_string()
    }
}

/// Part of a tensor.
pub(super) struct Window {
    dims: Dims,
    starts: Dims,
    steps: SmallVec<[isize; 6]>,
    pub(super) out: Dims,
}

impl Window {
    /// All of it.
    pub(super) fn whole(dims: &[usize]) -> Window {
        let rank = dims.len();
        Window {
            dims: dims.into(),
            starts: smallvec![0; rank],
            steps: smallvec![1; rank],
            out: dims.into(),
        }
    }

    /// `count` neighbours along an axis, which must exist.
    pub(super) fn take(&mut self, axis: usize, start: usize, count: usize) {
        (self.starts[axis], self.out[axis]) = (start, count);
    }

    /// From a start to before an end. Negative bounds count from the back; bounds outside are moved inside.
    fn narrow(&mut self, axis: usize, start: i64, end: i64, step: i64) -> Result<(), KernelError> {
        if step == 0 {
            fail!("the step of axis {axis} is 0");
        }
        let size = self.dims[axis] as i64;
        if size == 0 {
            return Ok(());
        }
        let from_front = |bound: i64| {
            if bound < 0 {
                bound.saturating_add(size)
            } else {
                bound
            }
        };
        let (first, distance) = if step > 0 {
            let first = from_front(start).clamp(0, size);
            (first, from_front(end).clamp(0, size) - first)
        } else {
            let first = from_front(start).clamp(0, size - 1);
            (first, first - from_front(end).clamp(-1, size - 1))
        };
        let count = if distance <= 0 {
            0
        } else {
            (distance as u64 - 1) / step.unsigned_abs() + 1
        };
        self.starts[axis] = first as usize;
        // A single element has no next one, so the step does not matter, however large.
        self.steps[axis] = if count > 1 { step as isize } else { 1 };
        self.out[axis] = count as usize;
        Ok(())
    }
}

impl Movement for Window {
    fn run<T: Plain>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        copy::slice(
            pool,
            &self.dims,
            &self.starts,
            &self.steps,
            &self.out,
            sources[0],
            out,
        );
        Ok(())
    }
}
