//! Patches out of a padded copy of the input, for inputs of few channels and for wide strides.
//!
//! [`Patches`](super::patches::Patches) finds out per tap where padding cuts a row; that pays when
//! many channels share the answer. With the three channels of an image it does not, so here the
//! input is first copied with its padding in place, each row split into `stride` phases. Then every
//! tap of every panel is the same few unit-stride loads, shifted by an offset that depends on the
//! row of the patch matrix alone.

use std::ops::Range;

use super::Geometry;
use crate::gemm::PackSource;
use crate::gemm::buffer::{with_scratch, with_scratch_of};
use crate::gemm::pack::{SendPtr, panel_width};
use crate::simd::{Body, Simd, check_isa, dispatch};
use crate::{Isa, Pool};

/// Most channels per group for which the copy is made whatever the stride.
const FEW_CHANNELS: usize = 8;

/// The patches of one image and group, from the padded copy.
pub(super) struct PaddedPatches<'a> {
    copy: &'a [f32],
    /// Where each row of the patch matrix begins in the copy.
    offsets: &'a [usize],
    strides: [usize; 3],
    /// Rows of the copy per depth step, and floats per row of one phase.
    rows: usize,
    row_len: usize,
    out_dims: [usize; 3],
}

/// Whether the copy is worth making. Parameters with much more padding than input are left to the
/// other way, which never stores padding.
pub(super) fn suits(
    geometry: &Geometry,
    in_dims: [usize; 3],
    out_dims: [usize; 3],
    channels: usize,
) -> bool {
    let size = (0..3).try_fold(1usize, |n, i| n.checked_mul(reach(geometry, out_dims, i)?));
    let input = in_dims.iter().product::<usize>();
    geometry.taps() > 1
        && (channels <= FEW_CHANNELS || geometry.strides[2] > 2)
        && size.is_some_and(|size| size / 4 <= input + 1024)
}

/// Floats of the copy of `channels` planes, which [`suits`] bounds by a few times the input.
pub(super) fn copy_len(g: &Geometry, out_dims: [usize; 3], channels: usize) -> usize {
    let reach = |i| reach(g, out_dims, i).expect("`suits` computed it");
    let phases = g.strides[2];
    channels * reach(0) * reach(1) * phases * reach(2).div_ceil(phases)
}

/// How far the outputs reach along dimension `i`, which may be less or more than the input with its
/// padding.
fn reach(g: &Geometry, out_dims: [usize; 3], i: usize) -> Option<usize> {
    let last = (out_dims[i] - 1).checked_mul(g.strides[i])?;
    let extent = (g.kernel[i] - 1).checked_mul(g.dilations[i])?;
    last.checked_add(extent)?.checked_add(1)
}

/// Makes the copy of `input` (`channels` planes of `in_dims`) in scratch memory and hands the
/// patches to `f`.
pub(super) fn with_padded<R>(
    pool: &Pool,
    geometry: &Geometry,
    in_dims: [usize; 3],
    out_dims: [usize; 3],
    channels: usize,
    input: &[f32],
    f: impl FnOnce(&PaddedPatches<'_>) -> R,
) -> R {
    let g = geometry;
    let reach = |i| reach(g, out_dims, i).expect("`suits` computed it");
    let (depth, rows) = (reach(0), reach(1));
    let phases = g.strides[2];
    let row_len = reach(2).div_ceil(phases);
    let phase_len = depth * rows * row_len;
    let plane_len = phases * phase_len;
    with_scratch(copy_len(g, out_dims, channels), |copy| {
        let out = SendPtr(copy.as_mut_ptr());
        let copy_rows = |line: usize| {
            let (channel, d, h) = (line / rows / depth, line / rows % depth, line % rows);
            let inside =
                |x: usize, i: usize| x.checked_sub(g.pads_begin[i]).filter(|&x| x < in_dims[i]);
            let source = match (inside(d, 0), inside(h, 1)) {
                (Some(d), Some(h)) => {
                    let at = ((channel * in_dims[0] + d) * in_dims[1] + h) * in_dims[2];
                    &input[at..][..in_dims[2]]
                }
                _ => &[],
            };
            for phase in 0..phases {
                let at = channel * plane_len + phase * phase_len + (d * rows + h) * row_len;
                // SAFETY: every line and phase has a row of its own inside `copy`.
                let to = unsafe { std::slice::from_raw_parts_mut(out.get().add(at), row_len) };
                // Position i of the phase is column `i * phases + phase` of the padded row: cut
                // where the input begins and ends.
                let pad = g.pads_begin[2];
                let begin = pad.saturating_sub(phase).div_ceil(phases).min(row_len);
                let end = (pad + source.len())
                    .saturating_sub(phase)
                    .div_ceil(phases)
                    .clamp(begin, row_len);
                to[..begin].fill(0.0);
                to[end..].fill(0.0);
                if begin < end {
                    let from = &source[begin * phases + phase - pad..];
                    if phases == 1 {
                        to[begin..end].copy_from_slice(&from[..end - begin]);
                    } else {
                        for (to, from) in to[begin..end].iter_mut().zip(from.iter().step_by(phases))
                        {
                            *to = *from;
                        }
                    }
                }
            }
        };
        let lines = channels * depth * rows;
        let chunks =
            if lines * row_len * phases < 16_384 { 1 } else { lines.min(8 * pool.threads()) };
        pool.run(chunks, |chunk| {
            crate::split_even(lines, chunks, chunk).for_each(copy_rows);
        });
        with_scratch_of(channels * g.taps(), |offsets| {
            let mut places = offsets.iter_mut();
            for channel in 0..channels {
                for kd in 0..g.kernel[0] {
                    for kh in 0..g.kernel[1] {
                        for kw in 0..g.kernel[2] {
                            let (d, h, w) =
                                (kd * g.dilations[0], kh * g.dilations[1], kw * g.dilations[2]);
                            let phase = channel * plane_len + w % phases * phase_len;
                            if let Some(place) = places.next() {
                                *place = phase + (d * rows + h) * row_len + w / phases;
                            }
                        }
                    }
                }
            }
            f(&PaddedPatches { copy, offsets, strides: g.strides, rows, row_len, out_dims })
        })
    })
}

impl PackSource for PaddedPatches<'_> {
    fn depth(&self) -> usize {
        self.offsets.len()
    }

    fn width(&self) -> usize {
        self.out_dims.iter().product()
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        let w = panel_width(isa);
        assert_eq!(out.len(), depth.len() * w);
        let body = PackPadded {
            patches: self,
            offsets: &self.offsets[depth],
            start,
            count: self.width().checked_sub(start).map_or(0, |n| n.min(w)),
            out,
        };
        // SAFETY: the machine has `isa`.
        unsafe { dispatch(isa, body) }
    }
}

struct PackPadded<'a> {
    patches: &'a PaddedPatches<'a>,
    offsets: &'a [usize],
    start: usize,
    /// Positions to write, at most a panel.
    count: usize,
    out: &'a mut [f32],
}

impl Body for PackPadded<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let p = self.patches;
        let [_, out_h, out_w] = p.out_dims;
        for half in 0..2 {
            // The runs of this vector: lanes, and where lane 0 would be in the copy.
            let mut runs = [(0u32, 0isize); 16];
            let mut count = 0;
            let base = half * S::LANES;
            let total = self.count.saturating_sub(base).min(S::LANES);
            let mut lane = 0;
            while lane < total {
                let at = self.start + base + lane;
                let (row, col) = (at / out_w, at % out_w);
                let len = (out_w - col).min(total - lane);
                let (d, h) = (row / out_h * p.strides[0], row % out_h * p.strides[1]);
                let first = (d * p.rows + h) * p.row_len + col;
                let bits = |n: usize| (1u32 << n) - 1;
                runs[count] = (bits(lane + len) & !bits(lane), first as isize - lane as isize);
                count += 1;
                lane += len;
            }
            let mut out = self.out.as_mut_ptr().wrapping_add(base);
            let data = p.copy.as_ptr();
            // SAFETY: selected lanes are inside the copy: the reach of all outputs was its size.
            // The output holds a panel row per offset.
            unsafe {
                match runs[..count] {
                    [(lanes, first)] => {
                        for &offset in self.offsets {
                            let at = data.wrapping_add(offset).wrapping_offset(first);
                            S::store(out, S::select(S::splat(0.0), lanes, at, 1));
                            out = out.wrapping_add(2 * S::LANES);
                        }
                    }
                    ref runs => {
                        for &offset in self.offsets {
                            let mut v = S::splat(0.0);
                            for &(lanes, first) in runs {
                                let at = data.wrapping_add(offset).wrapping_offset(first);
                                v = S::select(v, lanes, at, 1);
                            }
                            S::store(out, v);
                            out = out.wrapping_add(2 * S::LANES);
                        }
                    }
                }
            }
        }
    }
}
