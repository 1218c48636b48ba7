//! Columns of blocks, summed into the images that they were taken from (col2im).

use sardonyx_simd::buffer::{AnyBits, with_scratch_of};
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Exec};

/// Limit: most spatial axes of images.
pub const MAX_AXES: usize = 30;

/// One spatial axis of images and of the blocks over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAxis {
    /// Elements of the image.
    pub image: usize,
    /// Elements of a block.
    pub block: usize,
    /// Distance from one block to the next, in elements of the image.
    pub stride: usize,
    /// Distance from one element of a block to the next, in elements of the image.
    pub dilation: usize,
    /// Padding: elements by which the first block begins before the image.
    pub before: usize,
    /// Number of blocks.
    pub count: usize,
}

impl BlockAxis {
    /// Returns the blocks whose element `at` lies in the image.
    fn blocks_inside(&self, at: usize) -> std::ops::Range<usize> {
        let offset = at * self.dilation;
        let first = self.before.saturating_sub(offset).div_ceil(self.stride);
        let end = match (self.image + self.before).checked_sub(offset) {
            None | Some(0) => 0,
            Some(room) => (room - 1) / self.stride + 1,
        };
        let end = end.min(self.count);
        first.min(end)..end
    }

    /// Returns the index in the image of element `at` of a block. The element must lie in the
    /// image.
    fn place(&self, at: usize, block: usize) -> usize {
        block * self.stride + at * self.dilation - self.before
    }
}

/// Sums the block elements that lie at each element of the image. `x` is `[planes, elements of a
/// block, blocks]`, the last two in row-major order over the axes; `y` is `[planes, image]`.
/// Integers wrap.
///
/// # Panics
///
/// If lengths do not fit, or there are more than [`MAX_AXES`] axes.
pub fn add_columns<T: Number>(
    exec: &Exec<'_>,
    axes: &[BlockAxis],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended>
where
    T::Wide: AnyBits,
{
    join_columns(exec, axes, <T::Wide as Arith>::add, x, y)
}

/// Combines truth values like [`add_columns`] numbers: an element is true if any block element that
/// lies there is.
pub fn any_of_columns(
    exec: &Exec<'_>,
    axes: &[BlockAxis],
    x: &[u8],
    y: &mut [u8],
) -> Result<(), Ended> {
    join_columns(exec, axes, |any, x| any | u8::from(x != 0), x, y)
}

/// Combines the block elements at each element of the image by `join`, starting from 0.
fn join_columns<T: Number>(
    exec: &Exec<'_>,
    axes: &[BlockAxis],
    join: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy + Sync,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended>
where
    T::Wide: AnyBits,
{
    assert!(axes.len() <= MAX_AXES, "too many axes");
    let count_along = |size: fn(&BlockAxis) -> usize| axes.iter().map(size).product::<usize>();
    let image = count_along(|axis| axis.image);
    if y.is_empty() {
        // Without planes, the sizes of blocks may overflow.
        return Ok(());
    }
    let columns = count_along(|axis| axis.block) * count_along(|axis| axis.count);
    let planes = y.len() / image;
    assert_eq!(y.len(), planes * image, "whole planes");
    assert_eq!(x.len(), planes * columns, "the columns have other dims");
    if x.is_empty() {
        // Without blocks, a block may have any number of elements.
        y.fill(T::narrow(T::Wide::ZERO));
        return Ok(());
    }
    rows(exec.pool, y, image, image + 2 * columns, |first, y| {
        with_scratch_of(image, |sums: &mut [T::Wide]| {
            for (plane, y) in y.chunks_exact_mut(image).enumerate() {
                sums.fill(T::Wide::ZERO);
                join_plane(axes, join, &x[(first + plane) * columns..][..columns], sums);
                y.iter_mut().zip(&*sums).for_each(|(y, sum)| *y = T::narrow(*sum));
            }
        });
    })
}

/// Combines the columns of one plane into `sums`.
fn join_plane<T: Number>(
    axes: &[BlockAxis],
    join: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
    x: &[T],
    sums: &mut [T::Wide],
) {
    let Some((last, outer)) = axes.split_last() else {
        // Without axes there is one block of one element.
        sums[0] = join(sums[0], x[0].widen());
        return;
    };
    let blocks: usize = axes.iter().map(|axis| axis.count).product();
    let mut element = [0; MAX_AXES];
    let mut x = x;
    loop {
        let inside = last.blocks_inside(element[outer.len()]);
        let (row, rest) = x.split_at(blocks);
        let start = inside.clone().next().map(|block| last.place(element[outer.len()], block));
        if let Some(start) = start {
            for_each_row(outer, &element, |row_of_blocks, row_of_image| {
                let x = &row[row_of_blocks * last.count..][..last.count][inside.clone()];
                let sums = sums[row_of_image * last.image..][..last.image][start..].iter_mut();
                for (sum, x) in sums.step_by(last.stride).zip(x) {
                    *sum = join(*sum, x.widen());
                }
            });
        }
        x = rest;
        if !advance(&mut element[..axes.len()], |axis| 0..axes[axis].block) {
            return;
        }
    }
}

/// Calls `body` with the row of blocks and the row of the image, over all blocks of the `outer`
/// axes whose element lies in the image.
fn for_each_row(
    outer: &[BlockAxis],
    element: &[usize; MAX_AXES],
    mut body: impl FnMut(usize, usize),
) {
    let find_blocks = |axis: usize| outer[axis].blocks_inside(element[axis]);
    let mut block = [0; MAX_AXES];
    for (axis, block) in block[..outer.len()].iter_mut().enumerate() {
        let Some(first) = find_blocks(axis).next() else {
            return;
        };
        *block = first;
    }
    loop {
        let places = outer.iter().zip(element).zip(&block);
        let rows = places.fold([0, 0], |[blocks, image], ((axis, element), block)| {
            [blocks * axis.count + block, image * axis.image + axis.place(*element, *block)]
        });
        body(rows[0], rows[1]);
        if !advance(&mut block[..outer.len()], find_blocks) {
            return;
        }
    }
}

/// Advances coordinates in row-major order, each within its range; returns `false` after the last
/// ones.
fn advance(at: &mut [usize], range: impl Fn(usize) -> std::ops::Range<usize>) -> bool {
    for (axis, at) in at.iter_mut().enumerate().rev() {
        let range = range(axis);
        *at += 1;
        if *at < range.end {
            return true;
        }
        *at = range.start;
    }
    false
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use sardonyx_simd::{Isa, Pool};

    /// Returns an axis with padding `pads` at both ends.
    fn axis(image: usize, block: usize, stride: usize, dilation: usize, pads: usize) -> BlockAxis {
        let reach = (block - 1) * dilation + 1;
        let count = (image + 2 * pads).checked_sub(reach).map_or(0, |room| room / stride + 1);
        BlockAxis { image, block, stride, dilation, before: pads, count }
    }

    /// Returns the coordinates of a row-major index.
    fn split(mut index: usize, sizes: &[usize]) -> Vec<usize> {
        let mut places = vec![0; sizes.len()];
        for (place, size) in places.iter_mut().zip(sizes).rev() {
            *place = index % size;
            index /= size;
        }
        places
    }

    /// Compares [`add_columns`] with sums over all block elements.
    fn check<T: Number>(planes: usize, axes: &[BlockAxis])
    where
        T::Wide: AnyBits,
    {
        let list_sizes = |size: fn(&BlockAxis) -> usize| axes.iter().map(size).collect::<Vec<_>>();
        let (blocks, counts, image) = (
            list_sizes(|axis| axis.block),
            list_sizes(|axis| axis.count),
            list_sizes(|axis| axis.image),
        );
        let [len, blocks_len, plane] =
            [&blocks, &counts, &image].map(|of| of.iter().product::<usize>());
        let make_number = |at: usize| T::from_f64((at * 7 % 5) as f64);
        let x: Vec<T> = (0..planes * len * blocks_len).map(make_number).collect();
        let mut expected = vec![0f64; planes * plane];
        for (at, x) in x.iter().enumerate() {
            let element = split(at / blocks_len % len, &blocks);
            let block = split(at % blocks_len, &counts);
            let place = (0..axes.len()).try_fold(0, |place, d| {
                let BlockAxis { stride, dilation, before, image, .. } = axes[d];
                let at = (block[d] * stride + element[d] * dilation).checked_sub(before)?;
                (at < image).then_some(place * image + at)
            });
            if let Some(place) = place {
                expected[at / blocks_len / len * plane + place] += x.to_f64();
            }
        }
        for threads in [1, 2] {
            let pool = Pool::new(threads);
            let exec = Exec::new(&pool, Isa::detect());
            let mut y = vec![T::ONE; expected.len()];
            add_columns(&exec, axes, &x, &mut y).unwrap();
            let found: Vec<f64> = y.iter().map(|y| y.to_f64()).collect();
            assert_eq!(found, expected, "{axes:?}");
        }
    }

    #[test]
    fn blocks_are_added_up() {
        let all: [&[BlockAxis]; 10] = [
            &[axis(5, 1, 1, 1, 0), axis(5, 5, 1, 1, 0)],
            &[axis(5, 3, 2, 1, 1), axis(6, 2, 1, 3, 2)],
            &[axis(7, 3, 3, 2, 0)],
            &[axis(4, 1, 1, 1, 0), axis(5, 1, 1, 1, 0), axis(5, 5, 1, 1, 1)],
            &[axis(2, 2, 1, 1, 0), axis(3, 2, 2, 1, 1), axis(1, 3, 1, 1, 4), axis(4, 2, 5, 1, 0)],
            &[axis(3, 4, 1, 1, 0), axis(3, 1, 1, 1, 0)],
            &[axis(0, 1, 1, 1, 2), axis(3, 1, 1, 1, 0)],
            &[axis(2, 5, 1, 3, 9)],
            &[axis(90, 3, 1, 1, 1), axis(100, 3, 1, 1, 1)],
            &[],
        ];
        for axes in all {
            for planes in [0, 1, 6] {
                check::<f32>(planes, axes);
                check::<f16>(planes, axes);
                check::<i64>(planes, axes);
                check::<u8>(planes, axes);
            }
        }
    }

    #[test]
    fn truth_values() {
        let axes = [axis(3, 2, 1, 1, 0)];
        let (x, mut y) = ([0, 7, 0, 1], [9; 3]);
        any_of_columns(&Exec::new(&Pool::new(1), Isa::detect()), &axes, &x, &mut y).unwrap();
        assert_eq!(y, [0, 1, 1]);
    }
}
