//! The same elements in another arrangement.

use sardonyx_kernels::Pool;
use sardonyx_kernels::copy::{self, Plain};
use sardonyx_kernels::elementwise::MAX_RANK;
use sardonyx_tensor::Dims;
use smallvec::SmallVec;

use super::moves::{Movement, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{MoveKind, Op, Tile};

/// `Tile`
pub(crate) fn lower_tile(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Tile(Tile), site))
}

impl Kernel for Tile {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let repeats = call.ints(1)?;
        if repeats.len() != data.rank() {
            fail!("there are {} repeats for rank {}", repeats.len(), data.rank());
        }
        let mut dims = Dims::new();
        // Each axis becomes two, the first of which goes nowhere.
        let mut tiles = Tiles::default();
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

#[derive(Default)]
struct Tiles {
    dims: Dims,
    steps: SmallVec<[isize; 6]>,
}

impl Movement for Tiles {
    fn run<T: Plain>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        copy::copy_strided(pool, &self.dims, 0, &self.steps, sources[0], out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{run, tensor};

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
            (&[1i64][..], "there are 1 repeats for rank 2"),
            (&[1, -1], "axis 1 of size 2 cannot be repeated -1 times"),
        ] {
            let inputs = [Some(&x), Some(&tensor(&[repeats.len()], repeats))];
            assert_eq!(run("Tile", &[], &inputs, 1).unwrap_err(), refusal);
        }
    }
}
