//! ReverseSequence, Tile, and channel shuffles.

use sardonyx_kernels::elementwise::MAX_RANK;
use sardonyx_kernels::pixels;
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::Dims;
use smallvec::SmallVec;

use super::moves::{Movement, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site, Target};
use crate::program::{MoveKind, Op, Shuffle, Tile};

/// Binds `ReverseSequence`.
pub(crate) fn bind_reverse_sequence(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let time_first = match (site.need_int("batch_axis")?, site.need_int("time_axis")?) {
        (1, 0) => true,
        (0, 1) => false,
        (batch, time) => {
            return Err(BindError::Invalid(format!(
                "batch_axis and time_axis must be 0 and 1, or 1 and 0, not {batch} and {time}"
            )));
        }
    };
    Ok(Box::new(ReverseSequence { time_first }))
}

/// Lowers `Tile`.
pub(crate) fn lower_tile(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Tile(Tile), site))
}

impl Kernel for Tile {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let repeats = call.ints(1)?;
        if repeats.len() != data.rank() {
            fail!("repeats has {} elements for rank {}", repeats.len(), data.rank());
        }
        let mut dims = Dims::new();
        // Each axis becomes two; the first has stride 0.
        let mut tiles = Strided::default();
        let mut stride = data.len();
        for (axis, (size, repeats)) in data.dims().iter().zip(&repeats).enumerate() {
            let repeated = usize::try_from(*repeats).ok();
            let Some((repeats, tiled)) = repeated.and_then(|r| Some((r, r.checked_mul(*size)?)))
            else {
                fail!("axis {axis} of size {size} cannot be repeated {repeats} times");
            };
            dims.push(tiled);
            stride /= (*size).max(1);
            for (count, step) in [(repeats, 0), (*size, stride as isize)] {
                if count != 1 {
                    tiles.dims.push(count);
                    tiles.steps.push(step);
                }
            }
        }
        if tiles.dims.len() > MAX_RANK {
            fail!("more than {} axes are repeated", MAX_RANK / 2);
        }
        if tiles.dims.is_empty() {
            tiles.dims.push(1);
            tiles.steps.push(0);
        }
        move_elements(call, 0, &dims, &[data], &tiles)
    }

    fn describe(&self) -> String {
        "tile".to_string()
    }
}

impl Kernel for Shuffle {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let dims = Dims::from(data.dims());
        let fits = dims.len() >= 2 && self.groups > 0 && dims[1].is_multiple_of(self.groups);
        if !fits {
            fail!("channels of images of {dims:?} are not {} groups", self.groups);
        }
        if data.is_empty() && matches!(call.targets.first(), Some(Target::Planned { .. })) {
            // A size of 0 in the last of the three reshapes stands for a size known only to the
            // plan.
            return Ok(());
        }
        if call.has_layout(0) {
            let Some(x) = call.pixels(0)? else {
                fail!("input 0 is in rows, output 0 is not");
            };
            let exec = call.exec;
            pixels::shuffle(exec, self.groups, x, call.output_pixels(0, &dims)?)?;
            return Ok(());
        }
        let width = dims[1] / self.groups;
        let plane: usize = dims[2..].iter().product();
        let image = (dims[1] * plane) as isize;
        let planes = |count: usize| (count * plane) as isize;
        let shuffled = Strided {
            dims: [dims[0], width, self.groups, plane].into_iter().collect(),
            steps: [image, planes(1), planes(width), 1].into_iter().collect(),
        };
        move_elements(call, 0, &dims, &[data], &shuffled)
    }

    fn describe(&self) -> String {
        "shuffle".to_string()
    }
}

struct ReverseSequence {
    time_first: bool,
}

impl Kernel for ReverseSequence {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let dims = Dims::from(data.dims());
        let &[first, second, ref inner @ ..] = &dims[..] else {
            fail!("the input has rank {}, not at least 2", dims.len());
        };
        let sizes = [first, second, inner.iter().product()];
        let (batch, time) = if self.time_first { (second, first) } else { (first, second) };
        let lengths = call.slice::<i64>(1)?;
        if call.tensor(1)?.dims() != [batch] {
            fail!(
                "sequence_lens has dimensions {:?}, but there are {batch} sequences",
                call.tensor(1)?.dims()
            );
        }
        let all = 0..=time as i64;
        let outside = lengths.iter().enumerate().find(|(_, length)| !all.contains(length));
        if let Some((sequence, length)) = outside {
            fail!(
                "sequence_lens is {length} for sequence {sequence}, but the time axis has size {time}"
            );
        }
        let reversed = Reversed { time_first: self.time_first, sizes, lengths };
        move_elements(call, 0, &dims, &[data], &reversed)
    }

    fn describe(&self) -> String {
        "reverse sequences".to_string()
    }
}

struct Reversed<'a> {
    time_first: bool,
    sizes: [usize; 3],
    lengths: &'a [i64],
}

impl Movement for Reversed<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let Reversed { time_first, sizes, lengths } = *self;
        T::reverse_sequences(pool, time_first, sizes, lengths, sources[0], out)?;
        Ok(())
    }
}

/// The elements in another order, possibly repeated.
#[derive(Default)]
struct Strided {
    dims: Dims,
    steps: SmallVec<[isize; 6]>,
}

impl Movement for Strided {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::copy_strided(pool, &self.dims, 0, &self.steps, sources[0], out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::{StringArray, Tensor};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn sequences_turn_around() {
        let axes = |batch, time| [("batch_axis", Int(batch)), ("time_axis", Int(time))];
        let x = tensor(&[2, 3], &[1u16, 2, 3, 4, 5, 6]);
        // (batch axis, lengths, elements)
        let rows: [(i64, &[i64], [u16; 6]); 3] = [
            (0, &[3, 1], [3, 2, 1, 4, 5, 6]),
            (0, &[0, 2], [1, 2, 3, 5, 4, 6]),
            (1, &[2, 1, 2], [4, 2, 6, 1, 5, 3]),
        ];
        for (batch, lengths, expected) in rows {
            let lengths = tensor(&[lengths.len()], lengths);
            let inputs = [Some(&x), Some(&lengths)];
            let found = run("ReverseSequence", &axes(batch, 1 - batch), &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{batch} {lengths:?}");
        }
        let strings = |texts: &[&str]| {
            Tensor::from_strings([2, 1, 2], texts.iter().collect::<StringArray>()).unwrap()
        };
        let (x, lengths) = (strings(&["a", "b", "c", "d"]), tensor(&[1], &[2i64]));
        let found = run("ReverseSequence", &[], &[Some(&x), Some(&lengths)], 1).unwrap();
        assert_eq!(found[0], strings(&["c", "d", "a", "b"]));
    }

    #[test]
    fn sequences_that_are_refused() {
        let x = tensor(&[2, 3], &[0u8; 6]);
        let rows: [(i64, i64, &[i64], &str); 5] = [
            (1, 0, &[1, 2, 3], "sequence_lens is 3 for sequence 2, but the time axis has size 2"),
            (0, 1, &[1, -1], "sequence_lens is -1 for sequence 1"),
            (0, 1, &[1], "sequence_lens has dimensions [1], but there are 2 sequences"),
            (1, 1, &[1, 1], "batch_axis and time_axis must be 0 and 1, or 1 and 0, not 1 and 1"),
            (0, 2, &[1, 1], "not 0 and 2"),
        ];
        for (batch, time, lengths, refusal) in rows {
            let given = [("batch_axis", Int(batch)), ("time_axis", Int(time))];
            let inputs = [Some(&x), Some(&tensor(&[lengths.len()], lengths))];
            let found = run("ReverseSequence", &given, &inputs, 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let inputs = [Some(&tensor(&[1], &[0u8])), Some(&tensor(&[1], &[0i64]))];
        let found = run("ReverseSequence", &[], &inputs, 1);
        assert_eq!(found.unwrap_err(), "the input has rank 1, not at least 2");
    }

    #[test]
    fn tiles() {
        let x = tensor(&[2, 2], &[1u8, 2, 3, 4]);
        // (repeats, dimensions, elements)
        let rows: [(&[i64], &[usize], &[u8]); 5] = [
            (&[1, 1], &[2, 2], &[1, 2, 3, 4]),
            (&[2, 1], &[4, 2], &[1, 2, 3, 4, 1, 2, 3, 4]),
            (&[1, 2], &[2, 4], &[1, 2, 1, 2, 3, 4, 3, 4]),
            (&[2, 2], &[4, 4], &[1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4]),
            (&[0, 2], &[0, 4], &[]),
        ];
        for (repeats, dims, expected) in rows {
            let inputs = [Some(&x), Some(&tensor(&[2], repeats))];
            let found = run("Tile", &[], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(dims, expected), "{repeats:?}");
        }
        let one = tensor(&[], &[7u8]);
        let found = run("Tile", &[], &[Some(&one), Some(&tensor::<i64>(&[0], &[]))], 1).unwrap();
        assert_eq!(found[0], one);
        for (repeats, refusal) in [
            (&[1i64][..], "repeats has 1 elements for rank 2"),
            (&[1, -1], "axis 1 of size 2 cannot be repeated -1 times"),
        ] {
            let inputs = [Some(&x), Some(&tensor(&[repeats.len()], repeats))];
            assert_eq!(run("Tile", &[], &inputs, 1).unwrap_err(), refusal);
        }
    }
}
