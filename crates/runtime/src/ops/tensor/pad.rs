//! Pad: adds elements around a tensor, or removes them where a number is negative.

use sardonyx_kernels::copy::{self, Padding};
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::{Dims, TensorView};
use smallvec::{SmallVec, smallvec};

use super::moves::{Movement, move_elements};
use super::reshape::axes;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

struct Pad {
    mode: copy::Pad,
}

/// Binds `Pad`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let mode = match site.string("mode").as_deref() {
        Some("constant") => copy::Pad::Constant,
        Some("edge") => copy::Pad::Edge,
        Some("reflect") => copy::Pad::Reflect,
        Some("wrap") => copy::Pad::Wrap,
        other => {
            let word = other.unwrap_or_default();
            return Err(BindError::Invalid(format!("mode = \"{word}\" is not a padding mode")));
        }
    };
    Ok(Box::new(Pad { mode }))
}

impl Kernel for Pad {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let rank = data.rank();
        let pads = call.ints(1)?;
        let padded =
            if call.has_input(3) { axes(&call.ints(3)?, rank)? } else { (0..rank).collect() };
        if pads.len() != 2 * padded.len() {
            fail!(
                "pads has {} elements, but {} axes require {}",
                pads.len(),
                padded.len(),
                2 * padded.len()
            );
        }
        let mut dims = Dims::from(data.dims());
        let mut frame = PadSizes {
            mode: self.mode,
            dims: dims.clone(),
            before: smallvec![0; rank],
            after: smallvec![0; rank],
        };
        let (before, after) = pads.split_at(padded.len());
        for ((&axis, &before), &after) in padded.iter().zip(before).zip(after) {
            let size = i128::from(before) + i128::from(after) + dims[axis] as i128;
            let Ok(size) = usize::try_from(size) else {
                fail!(
                    "pads {before} and {after} give size {size} instead of {} on axis {axis}",
                    dims[axis]
                );
            };
            if dims[axis] == 0 && size > 0 && self.mode != copy::Pad::Constant {
                fail!("axis {axis} is empty, so there is no element to repeat");
            }
            dims[axis] = size;
            // Sizes fit, so larger pads only occur in pairs that cancel.
            let small = |pad: i64| isize::try_from(pad).ok().filter(|pad| pad.abs() < 1 << 48);
            let (Some(before), Some(after)) = (small(before), small(after)) else {
                fail!("pads {before} and {after} of axis {axis} are too large");
            };
            (frame.before[axis], frame.after[axis]) = (before, after);
        }
        let mut sources: SmallVec<[TensorView<'_>; 2]> = smallvec![data];
        if let Some(value) = call.maybe_tensor(2)? {
            if value.len() != 1 {
                fail!("the padding value has {} elements, not 1", value.len());
            }
            sources.push(value.clone());
        }
        move_elements(call, 0, &dims, &sources, &frame)
    }

    fn describe(&self) -> String {
        format!("{:?}", self.mode).to_lowercase()
    }
}

struct PadSizes {
    mode: copy::Pad,
    dims: Dims,
    before: SmallVec<[isize; 6]>,
    after: SmallVec<[isize; 6]>,
}

impl Movement for PadSizes {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let value = sources.get(1).map_or(T::default(), |value| value[0]);
        let (before, after) = (&self.before, &self.after);
        T::pad(
            pool,
            Padding { mode: self.mode, before, after, value },
            &self.dims,
            sources[0],
            out,
        )?;
        Ok(())
    }
}
