//! Patches for deformable convolution, whose taps are moved by offsets, for any number of spatial
//! dims.
//!
//! Values between elements are interpolated linearly along each dim; outside the image they are 0.
//! The convolution is then a matrix product of weights and patches.

use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec};

/// Geometry of one image. Lists have one entry per spatial dim.
#[derive(Clone, Copy, Debug)]
pub struct Deform<'a> {
    pub channels: usize,
    /// Groups of channels; the channels of a group share offsets.
    pub offset_groups: usize,
    /// Sizes of the input.
    pub input: &'a [usize],
    /// Sizes of the output.
    pub output: &'a [usize],
    /// Sizes of the kernel.
    pub kernel: &'a [usize],
    pub strides: &'a [usize],
    pub dilations: &'a [usize],
    /// Padding before the input, in elements; negative for cropping.
    pub pads_begin: &'a [isize],
}

/// Limit: most spatial dims.
pub const MOST_DIMS: usize = 8;

impl Deform<'_> {
    /// Panics unless all lists have one entry per spatial dim and groups divide the channels.
    fn check(&self) {
        let rank = self.input.len();
        assert!(0 < rank && rank <= MOST_DIMS, "{rank} spatial dims");
        for list in [self.output, self.kernel, self.strides, self.dilations] {
            assert_eq!(list.len(), rank, "one entry per spatial dim");
        }
        assert_eq!(self.pads_begin.len(), rank, "one entry per spatial dim");
        assert!(self.offset_groups > 0, "groups of offsets");
        assert!(self.channels.is_multiple_of(self.offset_groups), "whole groups of offsets");
    }

    /// Returns the number of taps of the kernel.
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
}

/// Gathers the patches `[channels, taps, outputs]` of an image `[channels, input..]`. `offsets` are
/// `[groups, taps, dims, outputs]`, in elements; `mask`, whose elements scale the patches, is
/// `[groups, taps, outputs]`.
///
/// # Panics
///
/// If lengths do not fit, or there are more than [`MOST_DIMS`] spatial dims.
pub fn deformed_patches<R: Math>(
    exec: &Exec<'_>,
    geometry: &Deform<'_>,
    x: &[R],
    offsets: &[R],
    mask: Option<&[R]>,
    patches: &mut [R],
) -> Result<(), Ended> {
    geometry.check();
    let rank = geometry.input.len();
    let (taps, plane) = (geometry.taps(), geometry.input.iter().product::<usize>());
    let outputs: usize = geometry.output.iter().product();
    let moved = geometry.offset_groups * taps;
    assert_eq!(x.len(), geometry.channels * plane, "the input has other dims");
    assert_eq!(offsets.len(), moved * rank * outputs, "an offset for each dim of each tap");
    assert!(mask.is_none_or(|mask| mask.len() == moved * outputs), "one factor for each tap");
    assert_eq!(patches.len(), geometry.channels * taps * outputs, "the patches have other dims");
    if patches.is_empty() {
        return Ok(());
    }
    let of_group = geometry.channels / geometry.offset_groups;
    rows(exec.pool, patches, outputs, outputs.saturating_mul(8 << rank), |first, patches| {
        for (row, patches) in (first..).zip(patches.chunks_exact_mut(outputs)) {
            let (channel, tap) = (row / taps, row % taps);
            let moved = channel / of_group * taps + tap;
            let offsets = &offsets[moved * rank * outputs..][..rank * outputs];
            let x = &x[channel * plane..][..plane];
            read_tap(geometry, tap, x, offsets, patches);
            if let Some(mask) = mask {
                let mask = &mask[moved * outputs..][..outputs];
                patches.iter_mut().zip(mask).for_each(|(patch, mask)| *patch = patch.mul(*mask));
            }
        }
    })
}

/// Reads one tap of one channel for all outputs.
fn read_tap<R: Math>(
    geometry: &Deform<'_>,
    mut tap: usize,
    x: &[R],
    offsets: &[R],
    patches: &mut [R],
) {
    let rank = geometry.input.len();
    let outputs = patches.len();
    // Place of the tap for the first output, without its offset.
    let mut base = [0isize; MOST_DIMS];
    for d in (0..rank).rev() {
        let at = tap % geometry.kernel[d] * geometry.dilations[d];
        base[d] = (at as isize).wrapping_sub(geometry.pads_begin[d]);
        tap /= geometry.kernel[d];
    }
    let mut position = [0usize; MOST_DIMS];
    for (at, patch) in patches.iter_mut().enumerate() {
        let (mut low, mut part) = ([0isize; MOST_DIMS], [R::ZERO; MOST_DIMS]);
        let mut is_inside = true;
        for d in 0..rank {
            let start = base[d].wrapping_add((position[d] * geometry.strides[d]) as isize);
            let place = R::from_f64(start as f64).add(offsets[d * outputs + at]);
            let floor = place.floor();
            // False for NaN, too.
            is_inside &= place > R::from_f64(-1.0) && place < R::from_f64(geometry.input[d] as f64);
            (low[d], part[d]) = (floor.to_f64() as isize, place.sub(floor));
        }
        *patch = if is_inside { interpolate(geometry.input, &low, &part, x) } else { R::ZERO };
        for d in (0..rank).rev() {
            position[d] += 1;
            if position[d] < geometry.output[d] {
                break;
            }
            position[d] = 0;
        }
    }
}

/// Interpolates linearly between the elements around a place: `low` is the element before it along
/// each dim, `part` the distance from there.
#[inline]
fn interpolate<R: Math>(
    dims: &[usize],
    low: &[isize; MOST_DIMS],
    part: &[R; MOST_DIMS],
    x: &[R],
) -> R {
    let mut sum = R::ZERO;
    for corner in 0..1usize << dims.len() {
        let (mut at, mut weight) = (Some(0), R::ONE);
        for (d, dim) in dims.iter().enumerate() {
            let is_next = corner >> d & 1 == 1;
            let index = low[d] + isize::from(is_next);
            let index = usize::try_from(index).ok().filter(|index| index < dim);
            at = at.zip(index).map(|(at, index)| at * dim + index);
            weight = weight.mul(if is_next { part[d] } else { R::ONE.sub(part[d]) });
        }
        // An element with weight 0 is not read: it may be infinite.
        if let Some(at) = at.filter(|_| weight > R::ZERO) {
            sum = sum.add(weight.mul(x[at]));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    #[test]
    fn taps_between_elements() {
        let geometry = Deform {
            channels: 2,
            offset_groups: 1,
            input: &[2, 3],
            output: &[1, 2],
            kernel: &[1, 2],
            strides: &[1, 1],
            dilations: &[1, 1],
            pads_begin: &[0, 0],
        };
        let x = [1.0, 2.0, 3.0, 11.0, 12.0, 13.0, 0.0, 0.0, 8.0, 0.0, 0.0, 0.0f32];
        // By tap: rows of two outputs, then columns.
        let offsets = [0.0, 0.5, 0.5, 0.0, -9.0, f32::NAN, 0.0, 0.5];
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, Isa::detect());
        let mut patches = [9.0; 8];
        deformed_patches(&exec, &geometry, &x, &offsets, None, &mut patches).unwrap();
        assert_eq!(patches, [1.5, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let offsets = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25, 0.5];
        let mask = [1.0, 2.0, 1.0, 0.5];
        deformed_patches(&exec, &geometry, &x, &offsets, Some(&mask), &mut patches).unwrap();
        assert_eq!(patches, [1.0, 4.0, 2.25, 0.75, 0.0, 0.0, 2.0, 2.0]);
    }
}
