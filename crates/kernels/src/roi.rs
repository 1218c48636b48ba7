//! Pooling of regions of images (ROI): each region is divided into cells.

use std::ops::{Range, RangeInclusive};

use crate::ImageDims;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Math, Number};
use sardonyx_simd::{Ended, Exec};

/// Value of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellValue {
    /// Mean of its samples.
    Mean,
    /// Maximum over the neighbours of all samples, each times its weight, as in the reference
    /// implementation of the ONNX standard.
    Max,
}

/// Cells and samples of the regions.
#[derive(Clone, Copy, Debug)]
pub struct RoiAlign<R> {
    pub value: CellValue,
    /// Number of rows and columns of cells.
    pub cells: [usize; 2],
    /// Number of samples of a cell along each side; 0 for about one per element.
    pub sampling: usize,
    /// Factor from coordinates of regions to those of elements.
    pub scale: R,
    /// Whether coordinates are those of corners of elements, rather than of their centres.
    pub half_pixel: bool,
}

/// Regions of images.
#[derive(Clone, Copy, Debug)]
pub struct ImageRegions<'a, R> {
    /// Corners `[x1, y1, x2, y2]` of each region.
    pub corners: &'a [R],
    /// Index of the image of each region.
    pub images: &'a [usize],
}

/// Limit: most samples of a cell along each side.
pub const MOST_SAMPLES: usize = 1 << 14;

/// Cells of a region, with rows first and columns second.
#[derive(Clone, Copy, Debug)]
struct Grid<R> {
    /// Coordinates of the first cell.
    start: [R; 2],
    /// Sizes of a cell.
    cell: [R; 2],
    /// Numbers of samples of a cell.
    samples: [usize; 2],
}

impl<R: Math> RoiAlign<R> {
    /// Divides the region `[x1, y1, x2, y2]` into cells.
    fn grid(&self, region: &[R]) -> Grid<R> {
        let offset = if self.half_pixel { R::from_f64(0.5) } else { R::ZERO };
        let scale_place = |place: usize| region[place].mul(self.scale).sub(offset);
        let cell_along = |i: usize| {
            let (start, end) = (scale_place(1 - i), scale_place(3 - i));
            let len = end.sub(start);
            let len = if self.half_pixel { len } else { at_least(len, R::ONE) };
            let cell = len.div(R::from_f64(self.cells[i] as f64));
            let samples = match self.sampling {
                // A single sample, which is NaN.
                0 if cell.is_nan() => 1,
                0 => cell.ceil().to_f64().max(0.0) as usize,
                given => given,
            };
            (start, cell, samples)
        };
        let [y, x] = [cell_along(0), cell_along(1)];
        Grid { start: [y.0, x.0], cell: [y.1, x.1], samples: [y.2, x.2] }
    }

    /// Returns the largest number of samples of a cell along a side, over all regions.
    pub fn most_samples(&self, regions: &[R]) -> usize {
        let most = regions.chunks_exact(4).flat_map(|region| self.grid(region).samples).max();
        most.unwrap_or(0)
    }
}

impl<R: Math> Grid<R> {
    /// Returns the coordinate of a sample of a cell along a side.
    #[inline(always)]
    fn place(&self, side: usize, cell: usize, sample: usize) -> R {
        let to_number = |x: usize| R::from_f64(x as f64);
        let within = to_number(sample).add(R::from_f64(0.5)).mul(self.cell[side]);
        let within = within.div(to_number(self.samples[side]));
        self.start[side].add(to_number(cell).mul(self.cell[side])).add(within)
    }
}

/// Returns the larger of two numbers; NaN if `x` is NaN.
#[inline(always)]
fn at_least<R: Math>(x: R, low: R) -> R {
    if x < low { low } else { x }
}

/// Returns the elements before and after a place along a side, and its distance from the first;
/// `None` if it is more than one element outside.
#[inline(always)]
fn find_neighbours<R: Math>(place: R, len: usize) -> Option<(usize, usize, R)> {
    if place < R::from_f64(-1.0) || place > R::from_f64(len as f64) {
        return None;
    }
    let place = at_least(place, R::ZERO);
    let low = place.to_f64() as usize;
    if low + 1 >= len {
        // A NaN becomes the weight, so that the result is NaN.
        return Some((len - 1, len - 1, if place.is_nan() { place } else { R::ZERO }));
    }
    Some((low, low + 1, place.sub(R::from_f64(low as f64))))
}

/// Computes the cells of each region, for each channel of its image. `x` is `[images, channels,
/// height, width]`, `y` is `[regions, channels, cells]`.
///
/// # Panics
///
/// If lengths do not fit, an image index is out of range, or images have no elements.
pub fn roi_align<R: Math>(
    exec: &Exec<'_>,
    how: &RoiAlign<R>,
    dims: ImageDims,
    x: &[R],
    ImageRegions { corners, images }: ImageRegions<'_, R>,
    y: &mut [R],
) -> Result<(), Ended> {
    let ImageDims { batch, channels, height, width } = dims;
    let [lines, columns] = how.cells;
    let plane = height * width;
    assert_eq!(x.len(), batch * channels * plane, "the input has other dims");
    assert_eq!(corners.len(), 4 * images.len(), "four numbers per region");
    let cells = lines * columns;
    assert_eq!(y.len(), images.len() * channels * cells, "the output has other dims");
    assert!(images.iter().all(|image| *image < batch), "an image does not exist");
    if y.is_empty() {
        return Ok(());
    }
    assert!(plane > 0, "an image has elements");
    let row = channels * cells;
    rows(exec.pool, y, row, row.saturating_mul(16), |first, y| {
        for (region, y) in y.chunks_exact_mut(row).enumerate() {
            let region = first + region;
            let grid = how.grid(&corners[4 * region..][..4]);
            let x = &x[images[region] * channels * plane..][..channels * plane];
            y.fill(if how.value == CellValue::Max { R::LOWEST } else { R::ZERO });
            for cell in 0..cells {
                CellTarget { value: how.value, height, width, cell, columns, cells }
                    .fill(&grid, x, y);
            }
        }
    })
}

/// One cell of a region, and the sizes of its image.
struct CellTarget {
    value: CellValue,
    height: usize,
    width: usize,
    cell: usize,
    /// Number of cells in a row of the region.
    columns: usize,
    /// Number of cells of the region.
    cells: usize,
}

impl CellTarget {
    /// Computes the cell in all channels.
    #[inline]
    fn fill<R: Math>(&self, grid: &Grid<R>, x: &[R], y: &mut [R]) {
        let &CellTarget { value, height, width, cell, columns, cells } = self;
        let [down, across] = grid.samples;
        let plane = height * width;
        let channels = || x.chunks_exact(plane).zip(0..).map(|(x, c)| (x, c * cells + cell));
        for (i, j) in (0..down).flat_map(|i| (0..across).map(move |j| (i, j))) {
            let line = find_neighbours(grid.place(0, cell / columns, i), height);
            let column = find_neighbours(grid.place(1, cell % columns, j), width);
            let Some(((top, bottom, ly), (left, right, lx))) = line.zip(column) else {
                if value == CellValue::Max {
                    channels().for_each(|(_, at)| y[at] = at_least(y[at], R::ZERO));
                }
                continue;
            };
            let (hy, hx) = (R::ONE.sub(ly), R::ONE.sub(lx));
            let corners = [
                (top * width + left, hy.mul(hx)),
                (top * width + right, hy.mul(lx)),
                (bottom * width + left, ly.mul(hx)),
                (bottom * width + right, ly.mul(lx)),
            ];
            for (x, at) in channels() {
                let parts = corners.map(|(corner, weight)| weight.mul(x[corner]));
                y[at] = match value {
                    CellValue::Mean => {
                        y[at].add(parts[0].add(parts[1]).add(parts[2]).add(parts[3]))
                    }
                    CellValue::Max => parts.into_iter().fold(y[at], Arith::max),
                };
            }
        }
        let count = down * across;
        for (_, at) in channels() {
            y[at] = match value {
                _ if count == 0 => R::ZERO,
                CellValue::Mean => y[at].div(R::from_f64(count as f64)),
                CellValue::Max => y[at],
            };
        }
    }
}

/// Limit: largest magnitude of coordinates of corners in [`max_roi_pool`].
pub const MOST_COORDINATE: i64 = 1 << 40;

/// Returns the elements of an axis of `len` elements that one of the `cells` cells of a region
/// covers; two neighbouring cells may share one. The region covers at least its first element.
fn covered_range(
    region: RangeInclusive<i64>,
    cell: usize,
    cells: usize,
    len: usize,
) -> Range<usize> {
    let (first, last) = (i128::from(*region.start()), i128::from(*region.end()));
    let side = (last - first + 1).max(1);
    let (cell, cells) = (cell as i128, cells as i128);
    let start = first + cell * side / cells;
    let end = first + ((cell + 1) * side + cells - 1) / cells;
    let clamp_element = |at: i128| at.clamp(0, len as i128) as usize;
    clamp_element(start)..clamp_element(end)
}

/// Computes the maximum of each cell of each region, for each channel of its image, or 0 in cells
/// outside the image: Girshick, "Fast R-CNN", 2015. A region is `[image, x1, y1, x2, y2]`, with
/// both corners inside it. `x` is `[images, channels, height, width]`, `y` is `[regions, channels,
/// cells]`.
///
/// # Panics
///
/// If lengths do not fit, an image index is out of range, or coordinates exceed
/// [`MOST_COORDINATE`].
pub fn max_roi_pool<T: Number>(
    exec: &Exec<'_>,
    [lines, columns]: [usize; 2],
    ImageDims { batch, channels, height, width }: ImageDims,
    x: &[T],
    regions: &[[i64; 5]],
    y: &mut [T],
) -> Result<(), Ended> {
    let plane = height * width;
    assert_eq!(x.len(), batch * channels * plane, "the input has other dims");
    assert_eq!(y.len(), regions.len() * channels * lines * columns, "the output has other dims");
    let allowed = -MOST_COORDINATE..=MOST_COORDINATE;
    for [image, corners @ ..] in regions {
        assert!((0..batch as i64).contains(image), "an image does not exist");
        assert!(corners.iter().all(|at| allowed.contains(at)), "a coordinate is too far away");
    }
    if y.is_empty() {
        return Ok(());
    }
    rows(exec.pool, y, columns, plane.saturating_add(columns), |first, y| {
        for (row, y) in (first..).zip(y.chunks_exact_mut(columns)) {
            let ([image, x1, y1, x2, y2], channel) =
                (regions[row / lines / channels], row / lines % channels);
            let down = covered_range(y1..=y2, row % lines, lines, height);
            let x = &x[(image as usize * channels + channel) * plane..][..plane];
            for (column, y) in y.iter_mut().enumerate() {
                let across = covered_range(x1..=x2, column, columns, width);
                *y = if down.is_empty() || across.is_empty() {
                    T::ZERO
                } else {
                    let keep_larger = |most: T::Wide, x: &T| Arith::max(most, x.widen());
                    let elements = down.clone().flat_map(|line| &x[line * width..][across.clone()]);
                    T::narrow(elements.fold(T::LOWEST.widen(), keep_larger))
                };
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    #[test]
    fn largest_of_cells() {
        let (images, channels, height, width) = (2, 2, 5, 4);
        let make_number = |at: usize| (at * 37 % 41) as f32 - 20.0;
        let x: Vec<f32> = (0..images * channels * height * width).map(make_number).collect();
        let regions: Vec<[i64; 5]> = (0..30)
            .map(|at| [at % 2, at % 7 - 2, at % 5 - 3, at % 7 + at % 3, at % 4 - 1])
            .collect();
        for [lines, columns] in [[1, 1], [2, 3], [7, 2]] {
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, Isa::detect());
                let mut y = vec![99.0; regions.len() * channels * lines * columns];
                let dims = [images, channels, height, width];
                max_roi_pool(&exec, [lines, columns], dims.into(), &x, &regions, &mut y).unwrap();
                for (at, y) in y.iter().enumerate() {
                    let (i, j) = (at / columns % lines, at % columns);
                    let c = at / columns / lines % channels;
                    let [image, x1, y1, x2, y2] = regions[at / columns / lines / channels];
                    // The element at distance d from the first belongs to a cell that overlaps it:
                    // the cell ends after d and begins before d + 1.
                    let is_in = |[first, last]: [i64; 2], at: usize, cell: usize, cells: usize| {
                        let side = (last - first + 1).clamp(1, i64::MAX) as usize;
                        let d = at as i64 - first;
                        d >= 0
                            && (cell + 1) * side > d as usize * cells
                            && cell * side < (d as usize + 1) * cells
                    };
                    let inside = (0..height * width).filter(|at| {
                        is_in([y1, y2], at / width, i, lines)
                            && is_in([x1, x2], at % width, j, columns)
                    });
                    let plane = (image as usize * channels + c) * height * width;
                    let expected = inside.map(|at| x[plane + at]).reduce(f32::max);
                    assert_eq!(*y, expected.unwrap_or(0.0), "{at} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn cells_of_a_ramp() {
        // On a ramp, each mean is the value in the middle.
        let x: Vec<f32> = (0..2 * 64).map(|at| (at % 8 + at / 64 * 100) as f32).collect();
        let mut how = RoiAlign {
            value: CellValue::Mean,
            cells: [1, 2],
            sampling: 2,
            scale: 1.0f32,
            half_pixel: true,
        };
        let (regions, images) = ([1.0, 1.0, 5.0, 5.0, 30.0, 30.0, 40.0, 40.0], [0, 0]);
        for threads in [1, 2] {
            let pool = Pool::new(threads);
            let exec = Exec::new(&pool, Isa::detect());
            let mut y = [9.0; 8];
            roi_align(
                &exec,
                &how,
                [1, 2, 8, 8].into(),
                &x,
                ImageRegions { corners: &regions, images: &images },
                &mut y,
            )
            .unwrap();
            // The second region is outside.
            assert_eq!(y, [1.5, 3.5, 101.5, 103.5, 0.0, 0.0, 0.0, 0.0]);
        }
        how.sampling = 0;
        assert_eq!(how.most_samples(&regions), 10);
        how.half_pixel = false;
        assert_eq!(how.most_samples(&[3.0, 3.0, 3.0, 3.0]), 1);
        // A NaN corner gives NaN cells for any number of samples.
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, Isa::detect());
        for (value, sampling, half_pixel) in [
            (CellValue::Mean, 0, true),
            (CellValue::Mean, 2, false),
            (CellValue::Max, 0, false),
            (CellValue::Max, 2, true),
        ] {
            for corner in 0..4 {
                let (mut region, mut y) = ([1.0, 1.0, 5.0, 5.0], [9.0; 4]);
                region[corner] = f32::NAN;
                how = RoiAlign { value, sampling, half_pixel, ..how };
                roi_align(
                    &exec,
                    &how,
                    [1, 2, 8, 8].into(),
                    &x,
                    ImageRegions { corners: &region, images: &[0] },
                    &mut y,
                )
                .unwrap();
                assert!(y.iter().all(|y| y.is_nan()), "{value:?} {sampling} {corner}: {y:?}");
            }
        }
    }
}
